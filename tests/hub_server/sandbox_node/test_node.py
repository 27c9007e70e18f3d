"""The life of sandboxes on a node, with agents that are plain processes."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import time
import weakref
from pathlib import Path

import pytest

from hub_server.sandbox_node import resident
from hub_server.sandbox_node.backends import RootFilesystem
from hub_server.sandbox_node.backends.process import ProcessBackend, ProcessSandbox
from hub_server.sandbox_node.errors import Gone, NotPossible, NotStarted
from hub_server.sandbox_node.node import Node
from hub_server.sandbox_node.resident import argv_of
from hub_server.sandbox_node.specification import Command, EndKind, Level, Limits
from hub_server.sandbox_node.wire import CreateSandbox, SandboxFacts
from tests.hub_server.sandbox_node.conftest import HostOnly, MakeNode


def new(sandbox_id: str = "one", **asked: object) -> CreateSandbox:
    """Return a wish for a sandbox."""
    return CreateSandbox.model_validate({"sandbox_id": sandbox_id, "wait_s": 20, **asked})


async def ended(node: Node, sandbox_id: str = "one", within_s: float = 10) -> SandboxFacts:
    """Return what is known of a sandbox once it has ended."""
    async with asyncio.timeout(within_s):
        while node.resident(sandbox_id).state != "ended":
            await asyncio.sleep(0.02)
    return node.resident(sandbox_id).facts()


def agents(folder: Path) -> list[int]:
    """Return the processes whose command line names a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in command and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


async def test_a_sandbox_is_made_used_and_deleted_without_a_trace(make_node: MakeNode, tmp_path: Path) -> None:
    node = await make_node()
    facts = await node.create(new(env={"ANSWER": "42"}))
    assert facts.state == "running"
    assert facts.enforcement is not None
    assert facts.enforcement.level == Level.NONE
    finished = await node.get("one").run(Command(["/bin/sh", "-c", "echo $ANSWER $MADE_BY"]))
    assert finished.stdout == b"42 the image\n"
    deleted = await node.delete("one")
    assert deleted.end is not None
    assert deleted.end.kind == EndKind.DELETED
    assert agents(tmp_path) == []
    assert node.counts.used == 0
    with pytest.raises(Gone):
        node.get("one")


async def test_the_same_id_again_is_the_same_sandbox(make_node: MakeNode) -> None:
    node = await make_node()
    first, second = await asyncio.gather(node.create(new()), node.create(new()))
    assert first.started_at == second.started_at
    assert node.counts.used == 1


async def test_an_unknown_image_ends_the_sandbox_with_its_error_type(make_node: MakeNode) -> None:
    node = await make_node()
    facts = await node.create(new(image="nowhere:1"))
    assert facts.state == "ended"
    assert facts.end is not None
    assert facts.end.kind == EndKind.IMAGE_PULL_FAILED
    assert "nowhere:1" in facts.end.message


async def test_a_level_that_the_node_cannot_give_is_refused(make_node: MakeNode) -> None:
    node = await make_node()
    with pytest.raises(NotPossible, match="level none"):
        await node.create(new(min_level="container"))
    assert node.states() == {}


async def test_a_lifetime_ends_a_sandbox_also_while_it_is_used(make_node: MakeNode) -> None:
    node = await make_node()
    await node.create(new(lifetime_s=0.5))
    with pytest.raises(Gone, match="lifetime"):
        await node.get("one").run(Command(["/bin/sleep", "30"]))
    facts = await ended(node)
    assert facts.end is not None
    assert facts.end.kind == EndKind.TIMEOUT


async def test_a_sandbox_that_nobody_uses_ends_and_one_with_a_command_followed_does_not(make_node: MakeNode) -> None:
    node = await make_node()
    await asyncio.gather(node.create(new("idle", idle_s=0.5)), node.create(new("busy", idle_s=0.5)))
    began = time.monotonic()
    running = asyncio.create_task(node.get("busy").run(Command(["/bin/sleep", "2"])))
    facts = await ended(node, "idle")
    assert 0.5 <= time.monotonic() - began < 1.9
    assert facts.end is not None
    assert facts.end.kind == EndKind.IDLE
    assert (await running).exit_code == 0
    assert node.resident("busy").state == "running"
    assert (await ended(node, "busy")).end.kind == EndKind.IDLE  # type: ignore[union-attr]


async def test_looking_at_facts_and_logs_is_no_use(make_node: MakeNode) -> None:
    node = await make_node()
    await node.create(new(idle_s=0.5, start_command="while :; do echo working; sleep 0.1; done"))
    for _ in range(50):
        if node.resident("one").facts().state == "ended":
            break
        node.resident("one").log.text()
        await asyncio.sleep(0.05)
    assert (await ended(node, within_s=0.1)).end.kind == EndKind.IDLE  # type: ignore[union-attr]


async def test_the_end_of_the_start_command_ends_a_container_with_its_exit_code_and_log(make_node: MakeNode) -> None:
    node = await make_node()
    await node.create(new(start_command=["/bin/sh", "-c", "echo out; echo error >&2; exit 3"]))
    facts = await ended(node)
    assert facts.end is not None
    assert (facts.end.kind, facts.end.exit_code) == (EndKind.COMMAND_ENDED, 3)
    assert facts.start_command_exit_code == 3
    assert set(node.resident("one").log.text().splitlines()) == {"out", "error"}


async def test_the_end_of_the_start_command_leaves_a_vm_running(make_node: MakeNode) -> None:
    node = await make_node()
    await node.create(new(start_command="exit 3", vm=True))
    async with asyncio.timeout(10):
        while node.resident("one").start_command_exit_code is None:
            await asyncio.sleep(0.02)
    assert node.resident("one").facts().start_command_exit_code == 3
    assert (await node.get("one").run(Command(["/bin/echo", "still here"]))).stdout == b"still here\n"


async def test_a_start_command_that_is_not_there_ends_with_127(make_node: MakeNode) -> None:
    node = await make_node()
    await node.create(new(start_command=["/no/such/program"]))
    facts = await ended(node)
    assert facts.end is not None
    assert facts.end.exit_code == 127
    assert node.resident("one").log.text()


@pytest.mark.parametrize("placeholder", ["tail -f /dev/null", ["tail", "-f", "/dev/null"], "", [], None])
def test_the_command_that_only_keeps_a_container_alive_costs_no_process(placeholder: object) -> None:
    assert argv_of(placeholder) is None  # type: ignore[arg-type]


async def test_the_log_of_a_chatty_start_command_stays_small(make_node: MakeNode) -> None:
    node = await make_node()
    await node.create(new(start_command="seq 1 1000000; exec sleep 60"))
    async with asyncio.timeout(20):
        while not node.resident("one").log.text().endswith("1000000\n"):
            await asyncio.sleep(0.05)
    text = node.resident("one").log.text()
    assert 900_000 < len(text) <= 1024**2
    assert text.splitlines()[0].isdecimal()


async def test_an_agent_that_dies_ends_its_sandbox_and_the_hub_hears_of_it(make_node: MakeNode, tmp_path: Path) -> None:
    node = await make_node()
    await node.create(new())
    (agent,) = agents(tmp_path)
    os.kill(agent, signal.SIGKILL)
    facts = await ended(node)
    assert facts.end is not None
    assert facts.end.kind == EndKind.FAILED
    states = [(event.facts.state, event.facts.sandbox_id) for event in node.take_events()]
    assert states == [("ended", "one")]
    async with asyncio.timeout(5):
        while node.counts.used:
            await asyncio.sleep(0.01)


async def test_the_hub_hears_of_what_it_was_not_answered_and_of_nothing_twice(make_node: MakeNode) -> None:
    node = await make_node()
    await node.create(new("answered"))
    await node.create(new("later", wait_s=0))
    async with asyncio.timeout(10):
        await node.has_events.wait()
    heard = node.take_events()
    assert [(event.facts.sandbox_id, event.facts.state) for event in heard] == [("later", "running")]
    await node.delete("answered")
    node.get("later")._link.close()
    await ended(node, "later")
    node.heard(heard)
    assert [(event.facts.sandbox_id, event.facts.state) for event in node.take_events()] == [("later", "ended")]


async def test_a_full_node_says_pending_and_then_runs(make_node: MakeNode) -> None:
    node = await make_node(most_sandboxes=1)
    await node.create(new("first"))
    pending = await node.create(new("second", wait_s=0.05))
    assert pending.state == "pending"
    with pytest.raises(NotStarted):
        node.get("second")
    await node.delete("first")
    assert (await node.create(new("second"))).state == "running"


async def test_deleting_one_that_waits_takes_it_out_of_the_queue(make_node: MakeNode) -> None:
    node = await make_node(most_sandboxes=1)
    await node.create(new("first"))
    await node.create(new("second", wait_s=0))
    await node.create(new("third", wait_s=0))
    assert (await node.delete("second")).state == "ended"
    await node.delete("first")
    assert (await node.create(new("third"))).state == "running"
    assert node.counts.used == 1


async def test_one_that_waits_for_too_long_fails(make_node: MakeNode) -> None:
    node = await make_node(most_sandboxes=1)
    await node.create(new("first"))
    await node.create(new("second", wait_s=0, most_pending_s=0.3))
    facts = await ended(node, "second")
    assert facts.end is not None
    assert facts.end.kind == EndKind.FAILED
    assert "no room" in facts.end.message


async def test_too_little_memory_lets_sandboxes_wait(make_node: MakeNode) -> None:
    has_memory = False
    node = await make_node(has_memory=lambda: has_memory)
    assert (await node.create(new(wait_s=0.3))).state == "pending"
    has_memory = True
    assert (await node.create(new())).state == "running"


async def test_each_sandbox_of_a_pool_is_used_once(make_node: MakeNode) -> None:
    node = await make_node(least_idle=2)
    homes = set()
    for number in range(5):
        await node.create(new(f"s{number}"))
        homes.add((await node.get(f"s{number}").run(Command(["/bin/sh", "-c", "readlink /proc/$PPID/cwd"]))).stdout)
        await node.delete(f"s{number}")
    assert len(homes) == 5


async def test_a_pool_gives_no_sandbox_of_an_image_that_was_replaced(make_node: MakeNode) -> None:
    node = await make_node(least_idle=1)
    async with asyncio.timeout(10):
        while not node.counts.idle:
            await asyncio.sleep(0.02)
    store = node.images
    store.host = type(store.host)("host", None, {"MADE_BY": "a newer image"})  # type: ignore[attr-defined]
    await node.create(new())
    assert (await node.get("one").run(Command(["/bin/sh", "-c", "echo $MADE_BY"]))).stdout == b"a newer image\n"


async def test_the_image_of_a_sandbox_is_held_for_as_long_as_it_lives(make_node: MakeNode) -> None:
    node = await make_node()
    store = node.images
    store.host = RootFilesystem("host", None, {})  # type: ignore[attr-defined]
    held = weakref.ref(store.host)  # type: ignore[attr-defined]
    await node.create(new())
    store.host = RootFilesystem("host", None, {"MADE_BY": "a newer image"})  # type: ignore[attr-defined]
    gc.collect()
    assert held() is not None
    await node.delete("one")
    gc.collect()
    assert held() is None


async def test_closing_a_node_leaves_no_process(make_node: MakeNode, tmp_path: Path) -> None:
    node = await make_node(least_idle=2)
    await asyncio.gather(*(node.create(new(f"s{number}")) for number in range(4)))
    await node.get("s0").start(Command(["/bin/sleep", "1000"]))
    assert len(agents(tmp_path)) >= 4
    await node.close()
    assert agents(tmp_path) == []


class Hungry(ProcessBackend):
    """A backend whose host has no descriptors left at first."""

    refusals = 6

    async def create(self, sandbox_id: str, image: RootFilesystem, limits: Limits) -> ProcessSandbox:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return await super().create(sandbox_id, image, limits)


async def test_a_host_that_has_run_out_of_descriptors_lets_sandboxes_wait(make_node: MakeNode, tmp_path: Path) -> None:
    node = await make_node(backend=Hungry(tmp_path))
    assert (await node.create(new())).state == "running"


class Broken(HostOnly):
    """A store that fails in a way that nobody has thought of."""

    async def find(self, reference: str) -> RootFilesystem:
        raise RuntimeError("the disk is on fire")


async def test_a_failure_that_nobody_has_thought_of_ends_a_sandbox_and_says_so(make_node: MakeNode) -> None:
    node = await make_node()
    node.images = Broken()
    facts = await node.create(new())
    assert facts.end is not None
    assert "RuntimeError" in facts.end.message


async def test_what_ended_long_ago_is_forgotten(make_node: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "FORGOTTEN_AFTER_S", 0.3)
    node = await make_node()
    await node.create(new())
    await node.create(new("other"))
    await node.delete("one")
    assert node.resident("one").facts().end is not None
    async with asyncio.timeout(10):
        while True:
            try:
                node.resident("one")
            except KeyError:
                break
            await asyncio.sleep(0.05)
    assert node.states() == {"other": "running"}
    assert (await node.create(new())).state == "running"
