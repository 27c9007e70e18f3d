"""Commands in a sandbox: what they get, what comes back, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import time
from pathlib import Path

import pytest

from hub_server.sandbox_node.batches import Batch, run_batch
from hub_server.sandbox_node.errors import Gone, NoSession, NotStarted, SessionTaken
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.sessions import Output, Session
from hub_server.sandbox_node.specification import Command, End, Ended, EndKind


def shell(text: str, **options: object) -> Command:
    return Command(["/bin/sh", "-c", text], **options)  # type: ignore[arg-type]


def lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


async def until_dead(pid: int) -> bool:
    for _ in range(200):
        if not lives(pid):
            return True
        await asyncio.sleep(0.01)
    return False


async def test_a_command_gets_its_folder_environment_and_input_and_its_streams_stay_apart(
    plain_sandbox: Sandbox,
) -> None:
    command = shell("pwd; echo $GREETING; cat; echo wrong >&2; exit 3", cwd="/usr", env={"GREETING": "hello"})
    finished = await plain_sandbox.run(command, stdin=b"fed\n")
    assert finished.stdout == b"/usr\nhello\nfed\n"
    assert finished.stderr == b"wrong\n"
    assert finished.exit_code == 3
    assert 0 < finished.ended.wall_s < 10
    assert finished.ended.cpu_s > 0
    assert finished.ended.peak_memory_bytes > 100_000


async def test_the_variables_of_a_sandbox_are_in_every_command(plain_sandbox: Sandbox) -> None:
    plain_sandbox.environment["TOKEN"] = "of the sandbox"
    assert (await plain_sandbox.run(shell("echo $TOKEN"))).stdout == b"of the sandbox\n"
    assert (await plain_sandbox.run(shell("echo $TOKEN", env={"TOKEN": "own"}))).stdout == b"own\n"


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (Command(["no-such-program"]), 127, b"no-such-program: No such file or directory"),
        (Command(["/etc/passwd"]), 126, b"/etc/passwd: Permission denied"),
        (shell("true", cwd="/no/such/folder"), 126, b"/no/such/folder: No such file or directory"),
        (shell("true", user="nobody-of-this-name"), 126, b"no such user"),
    ],
)
async def test_a_command_that_cannot_start_says_why(
    plain_sandbox: Sandbox, command: Command, code: int, words: bytes
) -> None:
    finished = await plain_sandbox.run(command)
    assert finished.exit_code == code
    assert words in finished.stderr


async def test_megabytes_go_in_and_out_whole(plain_sandbox: Sandbox) -> None:
    data = os.urandom(3_000_000)
    assert (await plain_sandbox.run(Command(["cat"]), stdin=data)).stdout == data


async def test_a_command_without_input_reads_an_empty_one(plain_sandbox: Sandbox) -> None:
    finished = await plain_sandbox.run(Command(["cat"], timeout_s=10))
    assert (finished.exit_code, finished.stdout) == (0, b"")


async def test_a_command_that_does_not_read_its_input_ends_all_the_same(plain_sandbox: Sandbox) -> None:
    finished = await plain_sandbox.run(shell("exec <&-; sleep 0.05; echo done"), stdin=b"x" * 2_000_000)
    assert finished.stdout == b"done\n"


async def test_a_timeout_kills_the_whole_tree_those_that_left_it_included(plain_sandbox: Sandbox) -> None:
    left = "setsid sh -c 'sleep 100 & echo $!; wait' & (setsid sh -c 'sleep 100 & echo $!' &)"
    text = f"sleep 100 & echo $!; {left}; sleep 90"
    finished = await plain_sandbox.run(shell(text, timeout_s=0.5))
    assert finished.ended.timed_out
    assert finished.exit_code == 128 + signal.SIGKILL
    started = [int(line) for line in finished.stdout.split()]
    assert len(started) == 3
    assert all([await until_dead(pid) for pid in started])


async def test_what_a_command_left_running_lives_on_and_holds_nothing_up(plain_sandbox: Sandbox) -> None:
    before = time.monotonic()
    finished = await plain_sandbox.run(shell("sleep 30 & echo $!"))
    assert time.monotonic() - before < 10
    pid = int(finished.stdout)
    assert lives(pid)
    other = await plain_sandbox.run(shell("sleep 100", timeout_s=0.2))
    assert other.ended.timed_out
    assert lives(pid), "the timeout of another command took a background job with it"
    await plain_sandbox.run(shell(f"kill {pid}"))


async def test_a_flood_is_cut_where_the_caller_said(plain_sandbox: Sandbox) -> None:
    finished = await plain_sandbox.run(Command(["yes"]), most_output=100_000)
    assert len(finished.stdout) == 100_000
    assert finished.ended.cut
    assert finished.exit_code == 128 + signal.SIGKILL


async def test_a_reader_that_waits_holds_up_its_command_and_no_other(plain_sandbox: Sandbox) -> None:
    session, follower = await plain_sandbox.start_followed(shell("yes | head -c 20000000; echo end >&2"))
    with follower:
        await asyncio.sleep(0.3)  # nothing is read: the command must stand still with what the windows hold
        assert session.ended is None
        assert (await plain_sandbox.run(shell("echo other"))).stdout == b"other\n"
        size = 0
        async for event in follower:
            size += len(event.data) if isinstance(event, Output) and event.stream == "stdout" else 0
    assert size == 20_000_000


async def test_output_comes_while_a_command_runs_and_input_goes_to_it(plain_sandbox: Sandbox) -> None:
    session, follower = await plain_sandbox.start_followed(Command(["cat"], stdin=True))
    with follower:
        await session.write(b"one")
        assert await asyncio.wait_for(follower.next(), 10) == Output("stdout", b"one")
        await session.write(b"two", uuid="a")
        await session.write(b"two", uuid="a")  # sent again because an answer was lost
        await session.write(b"three", uuid="b")
        await session.close_input()
        rest = [event async for event in follower]
    assert b"".join(event.data for event in rest if isinstance(event, Output)) == b"twothree"
    assert isinstance(rest[-1], Ended)
    assert rest[-1].exit_code == 0


async def test_signals_reach_the_group_and_are_sent_once_for_each_name(plain_sandbox: Sandbox) -> None:
    text = "trap 'echo caught' TERM; echo ready; while :; do sleep 0.05; done"
    session, follower = await plain_sandbox.start_followed(Command(["/bin/bash", "-c", text]))
    with follower:
        assert await follower.next() == Output("stdout", b"ready\n")
        await session.signal(signal.SIGTERM, uuid="once")
        await session.signal(signal.SIGTERM, uuid="once")
        await asyncio.sleep(0.3)
        await session.signal(signal.SIGKILL)
        rest = [event async for event in follower]
    assert [event for event in rest if isinstance(event, Output) and event.stream == "stdout"] == [
        Output("stdout", b"caught\n")
    ]
    assert isinstance(rest[-1], Ended)
    assert (rest[-1].signal, rest[-1].exit_code) == (signal.SIGKILL, 137)


async def test_a_session_is_created_once_and_found_again(plain_sandbox: Sandbox) -> None:
    command = shell("echo first; sleep 30")
    starts = await asyncio.gather(*(plain_sandbox.start(command, "name") for _ in range(5)))
    session = starts[0]
    assert all(each is session for each in starts)
    assert plain_sandbox.session(uuid="name") is session
    assert plain_sandbox.session(pid=session.pid) is session
    assert plain_sandbox.sessions() == [session]
    with pytest.raises(SessionTaken):
        await plain_sandbox.start(shell("other"), "name")
    with pytest.raises(NoSession):
        plain_sandbox.session(uuid="another")
    await session.signal(signal.SIGKILL)
    ended = await session.wait()
    assert plain_sandbox.sessions() == []
    again = [event async for event in plain_sandbox.session(uuid="name").events()]
    assert again == [ended], "the end of a named session is told again"


async def test_many_commands_run_side_by_side(plain_sandbox: Sandbox) -> None:
    finished = await asyncio.gather(*(plain_sandbox.run(shell(f"echo {number}")) for number in range(60)))
    assert [int(each.stdout) for each in finished] == list(range(60))


async def test_a_call_that_is_given_up_takes_its_command_with_it(plain_sandbox: Sandbox) -> None:
    call = asyncio.create_task(plain_sandbox.run(shell("echo started; sleep 100")))
    while not plain_sandbox.sessions():
        await asyncio.sleep(0.01)
    session: Session = plain_sandbox.sessions()[0]
    call.cancel()
    await asyncio.wait({call})
    assert (await asyncio.wait_for(session.wait(), 10)).signal == signal.SIGKILL


async def test_use_is_counted_and_dated(plain_sandbox: Sandbox) -> None:
    assert plain_sandbox.attached == 0
    before = plain_sandbox.last_used
    running = asyncio.create_task(plain_sandbox.run(shell("sleep 0.3")))
    await asyncio.sleep(0.1)
    assert plain_sandbox.attached > 0
    await running
    assert plain_sandbox.attached == 0
    assert plain_sandbox.last_used > before + 0.2


async def test_all_calls_on_a_sandbox_that_ended_say_how(plain_sandbox: Sandbox) -> None:
    waiting = asyncio.create_task(plain_sandbox.run(shell("sleep 100")))
    while not plain_sandbox.sessions():
        await asyncio.sleep(0.01)
    end = End(EndKind.TIMEOUT, "its time was over")
    await plain_sandbox.destroy(end)
    with pytest.raises(Gone) as told:
        await waiting
    assert told.value.end == end
    with pytest.raises(Gone):
        await plain_sandbox.run(shell("true"))
    with pytest.raises(Gone):
        await plain_sandbox.stat("/tmp")


async def test_an_agent_that_is_killed_ends_its_sandbox(plain_sandbox: Sandbox) -> None:
    waiting = asyncio.create_task(plain_sandbox.run(shell("echo $PPID; sleep 100")))
    while not plain_sandbox.sessions():
        await asyncio.sleep(0.01)
    job = plain_sandbox.sessions()[0].pid
    agent = int(Path(f"/proc/{job}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(agent, signal.SIGKILL)
    with pytest.raises(Gone) as told:
        await asyncio.wait_for(waiting, 20)
    assert told.value.end.kind is EndKind.FAILED


async def test_a_batch_runs_one_program_on_many_inputs(plain_sandbox: Sandbox) -> None:
    inputs = [str(number).encode() for number in range(20)]
    squares = await run_batch(plain_sandbox, Batch(inputs, code="print(int(input()) ** 2)"))
    assert [int(each.stdout) for each in squares] == [number**2 for number in range(20)]
    by_shell = await run_batch(plain_sandbox, Batch(inputs, argv=["/bin/sh", "-c", "read x; echo $((x + 1))"]))
    assert [int(each.stdout) for each in by_shell] == list(range(1, 21))


async def test_a_batch_stops_at_the_first_failure_and_limits_each_run(plain_sandbox: Sandbox) -> None:
    code = "n = int(input())\nif n == 2: raise SystemExit(5)\nif n == 1:\n    while True: pass"
    inputs = [b"0", b"1", b"2", b"3", b"4"]
    all_of_them = await run_batch(plain_sandbox, Batch(inputs, code=code, timeout_s=0.3))
    assert [each.exit_code for each in all_of_them] == [0, 137, 5, 0, 0]
    assert all_of_them[1].ended.timed_out
    batch = Batch(inputs, code=code, timeout_s=0.3, stop_at_first_failure=True, at_once=1)
    assert [each.exit_code for each in await run_batch(plain_sandbox, batch)] == [0, 137]


async def test_a_run_of_a_batch_has_its_own_memory_limit(plain_sandbox: Sandbox) -> None:
    batch = Batch([b"10", b"400"], code="x = bytearray(int(input()) << 20)", memory_bytes=200 << 20)
    small, large = await run_batch(plain_sandbox, batch)
    assert small.exit_code == 0
    assert large.exit_code == 1
    assert b"MemoryError" in large.stderr


async def test_a_signal_right_after_the_start_is_not_lost(plain_sandbox: Sandbox) -> None:
    for _ in range(20):
        session, follower = await plain_sandbox.start_followed(shell("sleep 30"))
        await session.signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            with follower:
                last = [event async for event in follower][-1]
        assert isinstance(last, Ended)
        assert last.exit_code == 143


async def test_a_start_whose_caller_gives_up_leaves_no_command_that_nobody_knows(plain_sandbox: Sandbox) -> None:
    marker = "sleep 4444"
    for turns in range(40):
        starting = asyncio.create_task(plain_sandbox.run(shell(marker)))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
    await plain_sandbox.run(shell("true"))
    async with asyncio.timeout(10):
        while plain_sandbox.sessions() or plain_sandbox.attached or "4444" in processes():
            await asyncio.sleep(0.02)


async def test_a_named_start_whose_caller_gives_up_is_found_by_the_next(plain_sandbox: Sandbox, tmp_path: Path) -> None:
    command = shell(f"echo x >> {tmp_path}/started; sleep 30")
    for turns in range(12):
        starting = asyncio.create_task(plain_sandbox.start(command, "one"))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
    pids = {(await plain_sandbox.start(command, "one")).pid for _ in range(3)}
    assert len(pids) == 1
    assert len(plain_sandbox.sessions()) == 1
    async with asyncio.timeout(5):
        while not (tmp_path / "started").exists():
            await asyncio.sleep(0.01)
    assert (tmp_path / "started").read_text() == "x\n"
    assert plain_sandbox.attached == 0


def processes() -> str:
    """The command lines of all processes of this host."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_text())
    return "\n".join(found)


async def test_what_is_made_ahead_for_the_next_command_holds_no_pipe_of_another(plain_sandbox: Sandbox) -> None:
    session, follower = await plain_sandbox.start_followed(Command(["cat"], stdin=True))
    for _ in range(3):
        await plain_sandbox.run(shell("true"))
    with follower:
        await session.close_input()
        assert isinstance(await asyncio.wait_for(follower.next(), 10), Ended)


async def test_commands_start_after_one_that_killed_all_it_could(plain_sandbox: Sandbox) -> None:
    await plain_sandbox.run(shell("true"))
    # What waits for the next command is a child of the agent too.
    killed = "sleep 0.3; for stat in /proc/[0-9]*/stat; do read -r pid name state parent rest < $stat; "
    killed += '[ "$parent" = $PPID ] && [ $pid != $$ ] && kill -9 $pid && echo $pid; done'
    assert (await plain_sandbox.run(shell(killed))).stdout != b""
    for number in range(3):
        assert (await plain_sandbox.run(shell(f"echo {number}"))).stdout == f"{number}\n".encode()


# Sends a signal to all that run this agent's program, which is what waits for commands and what forks it.
SIGNAL_ALL = """
for folder in /proc/[0-9]*; do
    [ $folder = /proc/$PPID ] && continue
    if cmp -s /proc/$PPID/cmdline $folder/cmdline; then kill -SIGNAL ${folder#/proc/} && echo ${folder#/proc/}; fi
done
"""


async def test_a_command_that_stopped_all_it_could_stops_no_later_one(plain_sandbox: Sandbox) -> None:
    await plain_sandbox.run_python("pass")
    session, follower = await plain_sandbox.start_followed(Command(["sleep", "0.6"]))
    await asyncio.sleep(0.3)  # a spare and a fork for a snippet wait by now
    stopped = (await plain_sandbox.run(shell(SIGNAL_ALL.replace("SIGNAL", "STOP")))).stdout.split()
    assert stopped, "what forks waits at least"
    with follower:
        await session.wait()
    await asyncio.sleep(0.2)
    async with asyncio.timeout(30):
        for number in range(3):
            assert (await plain_sandbox.run(shell(f"echo {number}"))).stdout == f"{number}\n".encode()


async def test_what_waits_and_was_stopped_goes_on_when_it_is_needed(plain_sandbox: Sandbox) -> None:
    zygote = int((await plain_sandbox.run_python("import os; print(os.getppid())")).stdout)
    await plain_sandbox.run(shell("true"))
    await asyncio.sleep(0.3)
    agent = int(Path(f"/proc/{zygote}/stat").read_text().rpartition(")")[2].split()[1])
    waiting = [pid for pid in children_of(agent) if pid != zygote] + children_of(zygote)
    assert len(waiting) == 3, "what forks commands, and what waits for a command and a snippet"
    for pid in waiting:
        os.kill(pid, signal.SIGSTOP)
    async with asyncio.timeout(30):
        assert (await plain_sandbox.run_python("print(1)")).stdout == b"1\n"
        for number in range(2):
            assert (await plain_sandbox.run(shell(f"echo {number}"))).stdout == f"{number}\n".encode()


async def test_a_stopped_helper_is_replaced_when_its_snippets_are_not_reaped(plain_sandbox: Sandbox) -> None:
    zygote = int((await plain_sandbox.run_python("import os; print(os.getppid())")).stdout)
    await asyncio.sleep(0.2)
    os.kill(zygote, signal.SIGSTOP)
    async with asyncio.timeout(30):
        assert (await plain_sandbox.run_python("pass", timeout_s=0.2)).ended.timed_out
        after = await plain_sandbox.run_python("import os; print(os.getppid())")
    assert int(after.stdout) != zygote


def children_of(parent: int) -> list[int]:
    """Return the processes whose parent is this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if path.read_text().rpartition(")")[2].split()[1] == str(parent):
                found.append(int(path.parent.name))
    return found


async def test_descriptors_that_run_out_are_given_back(plain_sandbox: Sandbox) -> None:
    agent = int((await plain_sandbox.run(shell("echo $PPID"))).stdout)
    await plain_sandbox.run_python("pass")
    await asyncio.sleep(0.3)
    before = len(os.listdir(f"/proc/{agent}/fd"))
    resource.prlimit(agent, resource.RLIMIT_NOFILE, (before + 12, 4096))
    for work in (lambda: plain_sandbox.run(shell("sleep 0.1")), lambda: plain_sandbox.run_python("pass")):
        ended = await asyncio.gather(*(work() for _ in range(12)), return_exceptions=True)
        assert any(isinstance(one, NotStarted) for one in ended)
    resource.prlimit(agent, resource.RLIMIT_NOFILE, (4096, 4096))
    assert (await plain_sandbox.run(shell("echo 1"))).stdout == b"1\n"
    await plain_sandbox.run_python("pass")
    await asyncio.sleep(0.3)
    assert len(os.listdir(f"/proc/{agent}/fd")) <= before


async def test_commands_are_children_of_the_agent_whoever_forked_them(plain_sandbox: Sandbox) -> None:
    parents = set()
    for pause_s in (0, 0.2, 0):
        await asyncio.sleep(pause_s)
        parents.add((await plain_sandbox.run(shell("echo $PPID"))).stdout)
    assert len(parents) == 1


async def test_a_command_of_any_length_starts(plain_sandbox: Sandbox) -> None:
    for size in (50_000, 100_000, 120_000):
        finished = await plain_sandbox.run(
            Command(["/bin/sh", "-c", "echo ${#LONG} ${#1}", "sh", "y" * size], env={"LONG": "x" * size})
        )
        assert finished.stdout == f"{size} {size}\n".encode()
