"""The published `prime-sandboxes` of the newer generation, unchanged, against a hub and a node: only its URL is set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_sandbox_node import FakeNode
from tests.hub_server.sandboxes.conftest import SandboxHub
from tests.hub_server.sandboxes.sdk_session import SdkSession
from tests.published_tools import installed
from tests.running_hub import RunningHub

ECHO = "while read x; do echo got $x; [ $x = end ] && exit 7; done"
TRAP = "trap 'echo bye; exit 9' TERM; echo on; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def sdk(
    sandbox_hub: SandboxHub, tool_cache: Path, tools: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SdkSession]:
    """The SDK, as a user of the hub."""
    binaries = installed(tool_cache, "prime-sandboxes==0.5.1", uv=tools / "uv")
    hub = sandbox_hub.hub
    session = SdkSession(binaries / "python", hub.url, hub.key_of("sdk-user"), tmp_path_factory.mktemp("sdk"))
    yield session
    session.close()


@pytest.fixture(scope="module")
def sandbox(sdk: SdkSession) -> str:
    """A sandbox that tests share which leave nothing in it."""
    made: str = sdk.run("answer = create(environment_vars={'OF_SANDBOX': 'yes'})")
    return made


def test_a_sandbox_is_made_used_listed_and_deleted(sdk: SdkSession) -> None:
    said = sdk.run(
        """
        import uuid
        mark = uuid.uuid4().hex
        made = client.create(CreateSandboxRequest(name="life", docker_image="host", labels=[mark], timeout_minutes=30))
        client.wait_for_creation(made.id)
        running = client.get(made.id)
        ran = client.execute_command(made.id, "echo well")
        listed = [one.id for one in client.list(labels=[mark]).sandboxes]
        client.delete(made.id)
        answer = {
            "id": made.id, "status": str(running.status), "image": running.docker_image,
            "labels": running.labels == [mark],
            "stdout": ran.stdout, "exit_code": ran.exit_code, "listed": listed,
            "after": str(client.get(made.id).status),
            "active": [one.id for one in client.list(labels=[mark], exclude_terminated=True).sandboxes],
            "refused": raised(client.execute_command, made.id, "true"),
            "upload": raised(client.upload_bytes, made.id, "/tmp/x", b"x", "x"),
        }
        """
    )
    assert (said["status"], said["labels"], said["stdout"], said["exit_code"]) == ("RUNNING", True, "well\n", 0)
    assert said["image"].startswith("host")
    assert (said["listed"], said["after"], said["active"]) == ([said["id"]], "TERMINATED", [])
    assert said["refused"][0] == said["upload"][0] == "SandboxNotRunningError"


def test_commands_have_folders_environments_and_separate_streams(sdk: SdkSession, sandbox: str) -> None:
    said = sdk.run(
        f"""
        ran = client.execute_command(
            "{sandbox}", "echo $A $OF_SANDBOX; pwd; echo bad >&2; exit 7", working_dir="/usr", env={{"A": "b c"}}
        )
        binary = client.execute_command("{sandbox}", "printf 'a\\\\xffb'; seq 20000 >&2")
        gone = client.execute_command("{sandbox}", "true", working_dir="/none")
        answer = [ran.stdout, ran.stderr, ran.exit_code, binary.stdout, len(binary.stderr), gone.exit_code, gone.stderr]
        """
    )
    assert said[:3] == ["b c yes\n/usr\n", "bad\n", 7]
    assert said[3:5] == ["a\ufffdb", 108894]
    assert said[5] != 0
    assert "/none" in said[6]


def test_a_command_that_runs_too_long_is_a_timeout_and_leaves_nothing(sdk: SdkSession, sandbox: str) -> None:
    said = sdk.run(
        f"""
        began = time.monotonic()
        refused = raised(client.execute_command, "{sandbox}", "sleep 4321 & sleep 4321", timeout=1)
        took = time.monotonic() - began
        time.sleep(0.2)
        left = client.execute_command("{sandbox}", "grep -l '[4]321' /proc/[0-9]*/cmdline").stdout
        answer = [refused, took, left]
        """
    )
    assert said[0][0] == "CommandTimeoutError"
    assert said[1] < 10
    assert said[2] == ""


def test_files_go_in_and_come_out(sdk: SdkSession, sandbox: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    (tmp_path / "local").write_bytes(content)
    said = sdk.run(
        f"""
        import hashlib
        sent = client.upload_file("{sandbox}", "/tmp/deep/er/bytes", "{tmp_path}/local")
        inside = client.execute_command("{sandbox}", "md5sum < /tmp/deep/er/bytes").stdout.split()[0]
        client.download_file("{sandbox}", "/tmp/deep/er/bytes", "{tmp_path}/back/again")
        client.upload_bytes("{sandbox}", "/tmp/text", "0123456789".encode(), "text")
        window = client.read_file("{sandbox}", "/tmp/text", offset=-4, length=2)
        client.execute_command("{sandbox}", "head -c 11000000 /dev/zero > /tmp/large")
        answer = {{
            "sent": [sent.success, sent.path, sent.size],
            "inside": inside == hashlib.md5(open("{tmp_path}/local", "rb").read()).hexdigest(),
            "whole": client.read_file("{sandbox}", "/tmp/text").content,
            "window": [window.content, window.offset, window.total_size, window.truncated],
            "missing": raised(client.read_file, "{sandbox}", "/tmp/none"),
            "missing_download": raised(client.download_file, "{sandbox}", "/tmp/none", "{tmp_path}/none"),
            "large": raised(client.read_file, "{sandbox}", "/tmp/large"),
        }}
        """
    )
    assert said["sent"] == [True, "/tmp/deep/er/bytes", len(content)]
    assert said["inside"]
    assert (tmp_path / "back" / "again").read_bytes() == content
    assert (said["whole"], said["window"]) == ("0123456789", ["67", 6, 10, True])
    assert said["missing"][0] == "SandboxFileNotFoundError"
    assert "404" in said["missing_download"][1]
    assert said["large"][0] == "SandboxFileTooLargeError"


def test_background_jobs_outlive_the_command_that_launched_them(sdk: SdkSession, sandbox: str) -> None:
    said = sdk.run(
        f"""
        wait = "until [ -e /tmp/go ]; do sleep 0.05; done; "
        job = client.start_background_job("{sandbox}", wait + "echo out $A; echo err >&2; exit 3", env={{"A": "b"}})
        early = client.get_background_job("{sandbox}", job).completed
        client.upload_bytes("{sandbox}", "/tmp/go", b"", "go")
        while not (done := client.get_background_job("{sandbox}", job)).completed:
            time.sleep(0.1)
        both = client.get_background_jobs([job, client.start_background_job("{sandbox}", "sleep 60")])
        whole = client.run_background_job("{sandbox}", "echo all; exit 2", poll_interval=1)
        answer = [
            early, done.exit_code, done.stdout, done.stderr, [one.completed for one in both], both[0].stdout,
            whole.exit_code, whole.stdout,
        ]
        """
    )
    assert said == [False, 3, "out b\n", "err\n", [True, False], "out b\n", 2, "all\n"]


def test_live_processes_are_fed_and_signalled(sdk: SdkSession, sandbox: str) -> None:
    said = sdk.run(
        f"""
        async def main():
            async with AsyncSandboxClient() as live:
                echo = await live.open_process("{sandbox}", "{ECHO}")
                await echo.write_stdin(b"one\\n")
                first = await anext(echo.stdout)
                await echo.write_stdin(b"end\\n")
                trap = await live.open_process("{sandbox}", "{TRAP}")
                await anext(trap.stdout)
                await trap.terminate()
                deaf = await live.open_process("{sandbox}", "trap '' TERM; sleep 60")
                await deaf.kill()
                left = await live.open_process("{sandbox}", "sleep 60")
                await left.aclose()
                return [
                    first.decode(), await echo.wait(), await trap.wait(), [part.decode() async for part in trap.stdout],
                    await deaf.wait(), left.returncode,
                ]
        answer = asyncio.run(main())
        """
    )
    assert said == ["got one\n", 7, 9, ["bye\n"], 137, 143]


def test_a_live_process_is_attached_to_again_when_the_connection_breaks(
    sdk: SdkSession, sandbox: str, sandbox_hub: SandboxHub
) -> None:
    sdk.run(
        f"""
        import threading
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        sys.modules["kept"] = kept = type(sys)("kept")
        kept.call = lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(30)
        async def start():
            kept.live = AsyncSandboxClient()
            kept.process = await kept.live.open_process("{sandbox}", "{ECHO}")
            await kept.process.write_stdin(b"one\\n")
            return (await anext(kept.process.stdout)).decode()
        answer = kept.call(start())
        """
    )
    assert sandbox_hub.proxy.cut() > 0
    said = sdk.run(
        """
        import kept
        async def go_on():
            heard = b""
            while b"two" not in heard:  # what is written while nobody is attached is not told
                await kept.process.write_stdin(b"two\\n")
                try:
                    heard += await asyncio.wait_for(anext(kept.process.stdout), 0.5)
                except asyncio.TimeoutError:
                    pass
            await kept.process.write_stdin(b"end\\n")
            code = await kept.process.wait()
            await kept.live.aclose()
            return [heard.decode().splitlines()[-1], code, kept.process.pid > 0]
        answer = kept.call(go_on())
        """
    )
    assert said == ["got two", 7, True]


def test_a_token_that_is_not_valid_any_more_is_replaced(sdk: SdkSession, sandbox: str) -> None:
    said = sdk.run(
        f"""
        cache = client._auth_cache
        first = cache.get_or_refresh("{sandbox}")
        cache._auth_cache["{sandbox}"]["token"] = first["token"][:-4] + "0000"
        ran = client.execute_command("{sandbox}", "echo again")
        answer = [ran.stdout, cache.get_or_refresh("{sandbox}")["token"] != first["token"][:-4] + "0000"]
        """
    )
    assert said == ["again\n", True]


def test_many_commands_run_at_once(sdk: SdkSession, sandbox: str) -> None:
    said = sdk.run(
        f"""
        async def main():
            async with AsyncSandboxClient() as live:
                ran = await asyncio.gather(*(live.execute_command("{sandbox}", f"echo {{n}}") for n in range(60)))
                return [one.stdout.strip() for one in ran]
        answer = asyncio.run(main())
        """
    )
    assert said == [str(number) for number in range(60)]


def test_sandboxes_are_deleted_in_bulk(sdk: SdkSession) -> None:
    said = sdk.run(
        """
        request = CreateSandboxRequest(name="bulk", docker_image="host", labels=["bulk"])
        made = [client.create(request).id for _ in range(4)]
        client.bulk_wait_for_creation(made)
        some = client.bulk_delete(sandbox_ids=made[:2])
        rest = client.bulk_delete(labels=["bulk"])
        answer = {
            "some": sorted(some.succeeded) == sorted(made[:2]), "rest": sorted(rest.succeeded) == sorted(made[2:]),
            "after": [str(client.get(one).status) for one in made],
        }
        """
    )
    assert said == {"some": True, "rest": True, "after": ["TERMINATED"] * 4}


def test_an_image_that_is_nowhere_is_its_own_error(sdk: SdkSession) -> None:
    said = sdk.run(
        """
        made = client.create(CreateSandboxRequest(name="none", docker_image="no-such-image:1"))
        answer = raised(client.wait_for_creation, made.id)
        """
    )
    assert said[0] == "SandboxImagePullError"
    assert "no-such-image:1" in said[1]


def test_a_command_without_memory_left_is_killed_alone(sdk: SdkSession, sandbox_hub: SandboxHub) -> None:
    if sandbox_hub.level == "none":
        pytest.skip("this host has no memory cgroup for sandboxes")
    said = sdk.run(
        """
        small = create(memory_gb=0.125)
        ran = client.execute_command(small, "python3 -c 'x = bytearray(10**9)'; echo ended $?")
        alone = client.execute_command(small, "exec python3 -c 'x = bytearray(10**9)'")
        answer = [ran.stdout, alone.exit_code, client.execute_command(small, "echo well").stdout]
        client.delete(small)
        """
    )
    assert said == ["ended 137\n", 137, "well\n"]


def test_what_is_not_offered_is_refused_with_a_reason(sdk: SdkSession, sandbox: str) -> None:
    said = sdk.run(f"""answer = raised(client.create_ssh_session, "{sandbox}", "ssh-ed25519 AAAA")""")
    assert said[0] == "APIError"
    assert "ssh" in said[1].lower()


def test_why_a_sandbox_ended_is_an_error_of_its_own(
    hub: RunningHub, node: FakeNode, tool_cache: Path, tools: Path, tmp_path: Path
) -> None:
    binaries = installed(tool_cache, "prime-sandboxes==0.5.1", uv=tools / "uv")
    session = SdkSession(binaries / "python", hub.url, hub.key_of("sdk-user"), tmp_path)
    said = {}
    try:
        for kind in ("OOM_KILLED", "TIMEOUT", "COMMAND_ENDED"):
            made = session.run("answer = client.create(CreateSandboxRequest(name='t', docker_image='host')).id")
            node.finish(made, kind, f"because of {kind}")
            node.beat(hub, made)
            said[kind] = session.run(f"answer = raised(client.wait_for_creation, '{made}')")
    finally:
        session.close()
    assert [name for name, _ in said.values()] == ["SandboxOOMError", "SandboxTimeoutError", "SandboxNotRunningError"]
    assert "because of OOM_KILLED" in said["OOM_KILLED"][1]
