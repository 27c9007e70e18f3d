"""The SDK of the earlier generation, unchanged: over plain HTTP for containers, over the Connect protocol else.

0.2.36 is what verifiers 0.1.14 brings with it, together with a Connect library that shares its module's name with the
newer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_server.sandboxes.conftest import SandboxHub
from tests.hub_server.sandboxes.sdk_session import SdkSession
from tests.published_tools import installed


@pytest.fixture(scope="module", params=["0.2.36", pytest.param("0.2.39", marks=pytest.mark.slow)])
def sdk(
    request: pytest.FixtureRequest,
    sandbox_hub: SandboxHub,
    tool_cache: Path,
    tools: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SdkSession]:
    """The SDK, as a user of the hub."""
    binaries = installed(tool_cache, f"prime-sandboxes=={request.param}", uv=tools / "uv")
    hub = sandbox_hub.hub
    session = SdkSession(binaries / "python", hub.url, hub.key_of("older-sdk-user"), tmp_path_factory.mktemp("sdk"))
    yield session
    session.close()


@pytest.mark.parametrize("vm", [False, True], ids=["container", "vm"])
def test_commands_files_and_jobs_work(sdk: SdkSession, vm: bool) -> None:
    said = sdk.run(
        f"""
        made = create(vm={vm}, environment_vars={{"OF_SANDBOX": "yes"}})
        ran = client.execute_command(
            made, "echo $A $OF_SANDBOX; pwd; echo bad >&2; exit 7", working_dir="/usr", env={{"A": "b"}}
        )
        late = raised(client.execute_command, made, "sleep 60", timeout=1)
        sent = client.upload_bytes(made, "/tmp/deep/text", b"0123456789", "text")
        window = client.read_file(made, "/tmp/deep/text", offset=-4, length=2)
        job = client.start_background_job(made, "sleep 0.3; echo done; exit 3")
        while not (status := client.get_background_job(made, job)).completed:
            time.sleep(0.1)
        client.delete(made)
        answer = {{
            "ran": [ran.stdout, ran.stderr, ran.exit_code], "late": late[0], "sent": [sent.path, sent.size],
            "window": [window.content, window.offset, window.truncated],
            "missing": raised(client.read_file, made, "/tmp/none")[0],
            "job": [status.exit_code, status.stdout], "gone": raised(client.execute_command, made, "true")[0],
            "status": str(client.get(made).status),
        }}
        """
    )
    assert said["ran"] == ["b yes\n/usr\n", "bad\n", 7]
    assert said["late"] == "CommandTimeoutError"
    assert (said["sent"], said["window"]) == (["/tmp/deep/text", 10], ["67", 6, True])
    assert said["job"] == [3, "done\n"]
    assert (said["gone"], said["status"]) == ("SandboxNotRunningError", "TERMINATED")


def test_live_processes_are_found_by_their_process_id(sdk: SdkSession) -> None:
    said = sdk.run(
        """
        made = create(vm=True)
        async def main():
            async with AsyncSandboxClient() as live:
                echo = await live.open_process(made, "while read x; do echo got $x; [ $x = end ] && exit 7; done")
                await echo.write_stdin(b"one\\n")
                first = await anext(echo.stdout)
                await echo.write_stdin(b"end\\n")
                left = await live.open_process(made, "sleep 60")
                await left.terminate()
                return [first.decode(), await echo.wait(), await left.wait()]
        answer = asyncio.run(main())
        client.delete(made)
        """
    )
    assert said == ["got one\n", 7, 143]
