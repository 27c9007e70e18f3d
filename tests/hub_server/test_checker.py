"""Checks of wheels that are wrong in many ways, each in processes of its own on this machine."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hub_server.checks.checker import CheckSettings, Folders, Outcome, Subject, check, find_uv
from hub_server.checks.sandbox import Isolation, available_isolation
from hub_server.checks.tables import CheckStatus
from tests.running_hub import make_wheel

Check = Callable[..., Outcome]
pytestmark = pytest.mark.skipif(find_uv() is None, reason="uv is missing")


@pytest.fixture(scope="module")
def isolation(tmp_path_factory: pytest.TempPathFactory) -> Isolation:
    """The isolation of this machine."""
    found, reason = available_isolation(tmp_path_factory.mktemp("isolation"))
    if found is None:
        pytest.skip(f"this machine does not isolate: {reason}")
    return found


@pytest.fixture(scope="module")
def owners(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one owner, whose cache these tests share."""
    return tmp_path_factory.mktemp("data") / "owner"


@pytest.fixture
def checked(isolation: Isolation, owners: Path, tmp_path: Path) -> Check:
    """Check a wheel made by hand: `checked(code, name=..., extra=..., settings of the check...)`."""

    def run(
        code: str,
        *,
        name: str = "toy",
        module: str = "",
        requires: str = "",
        python: str | None = None,
        extra: dict[str, str] | None = None,
        **settings: object,
    ) -> Outcome:
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n{requires}"
        filename, wheel = make_wheel(name, "0.1.0", code=code, metadata=metadata, extra=extra)
        work = owners / tmp_path.name
        work.mkdir(parents=True)
        (work / filename).write_bytes(wheel)
        folders = Folders(owners, owners / "cache", work, tmp_path / "root")
        subject = Subject(work / filename, module or name, python)
        chosen = CheckSettings(**{"isolation": isolation, "hidden": (owners.parent,), **settings})  # type: ignore[arg-type]
        return check(subject, chosen, folders, lambda: None)

    return run


def loading(body: str) -> str:
    """Return a module whose load_environment has this body."""
    return "def load_environment():\n" + "".join(f"    {line}\n" for line in body.splitlines())


def test_a_module_that_cannot_be_imported_fails_at_import_with_the_reason(checked: Check) -> None:
    outcome = checked("import nothing_of_this_name\n")
    assert outcome.status == CheckStatus.FAILED
    assert outcome.facts["stage"] == "import"
    assert outcome.facts["reason"] == "ModuleNotFoundError: No module named 'nothing_of_this_name'"
    assert 'toy.py", line 1' in outcome.log


def test_a_module_that_exits_is_no_end_of_the_check(checked: Check) -> None:
    outcome = checked("raise SystemExit(3)\n")
    assert (outcome.status, outcome.facts["stage"]) == (CheckStatus.FAILED, "import")
    assert outcome.facts["reason"] == "SystemExit: 3"


def test_a_wheel_without_the_module_of_its_name_says_so(checked: Check) -> None:
    outcome = checked("VALUE = 1\n", module="another")
    assert (outcome.status, outcome.facts["stage"]) == (CheckStatus.FAILED, "import")
    assert outcome.facts["reason"] == "the wheel has no module 'another', as the name wants it"


def test_load_environment_that_raises_fails_at_load_with_its_words(checked: Check) -> None:
    outcome = checked(loading("raise ValueError('no such split')"))
    assert (outcome.status, outcome.facts["stage"]) == (CheckStatus.FAILED, "load")
    assert outcome.facts["reason"] == "ValueError: no such split"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("VALUE = 1\n", "the module toy has no load_environment() function"),
        (loading("return 3"), "load_environment() returned int, no environment of verifiers"),
        ("import os\nos._exit(7)\n", "its process ended with exit code 7"),
    ],
)
def test_what_is_no_environment_is_told_so(checked: Check, code: str, reason: str) -> None:
    outcome = checked(code)
    assert (outcome.status, outcome.facts["reason"]) == (CheckStatus.FAILED, reason)


def test_a_module_that_hangs_is_ended_at_the_limit_of_time(checked: Check) -> None:
    outcome = checked(loading("import time\nprint('sleeping')\ntime.sleep(600)"), probe_s=3)
    assert (outcome.status, outcome.facts["stage"]) == (CheckStatus.FAILED, "load")
    assert outcome.facts["reason"] == "it was not done after 3 s"
    assert "sleeping" in outcome.log


def test_a_module_that_eats_memory_is_ended_at_its_limit(checked: Check) -> None:
    eat = "kept = []\nwhile True:\n    kept.append(bytearray(1024**2))"
    outcome = checked(loading(eat), memory_bytes=256 * 1024**2)
    assert (outcome.status, outcome.facts["stage"]) == (CheckStatus.FAILED, "load")
    assert outcome.facts["reason"] in ("it used more than 256 MiB of memory", "MemoryError")


def test_nothing_of_a_check_lives_on_after_it(checked: Check, tmp_path: Path) -> None:
    mark = f"left-behind-{tmp_path.name}"
    start = f"""
import subprocess
subprocess.Popen(["sleep", "600"], start_new_session=True, env={{"MARK": {mark!r}}})
raise ValueError("done")
"""
    assert checked(loading(start)).facts["reason"] == "ValueError: done"
    deadline = time.monotonic() + 5
    while _processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _processes_with(mark) == []


def test_a_check_sees_neither_the_data_folder_nor_the_secrets_of_the_server(
    checked: Check, owners: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PRIME_HUB_SIGNING_SECRET", "the-secret-of-the-server")
    (owners.parent / "hub.db").write_text("rows")
    (tmp_path / "elsewhere.txt").write_text("private")
    look = f"""
import os, pathlib
seen = {{"environment": dict(os.environ), "user": os.getuid()}}
seen["data"] = os.listdir({str(owners.parent)!r})
seen["elsewhere"] = os.path.exists({str(tmp_path / "elsewhere.txt")!r})
seen["processes"] = [str(path) for path in pathlib.Path("/proc").glob("[0-9]*")]
raise ValueError(repr(seen))
"""
    outcome = checked(loading(look))
    seen = eval(outcome.facts["reason"].removeprefix("ValueError: "))
    assert "the-secret-of-the-server" not in repr(seen["environment"])
    assert set(seen["environment"]) <= {
        "PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "OMP_NUM_THREADS", "OPENAI_API_KEY", "OPENAI_BASE_URL",
        "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE",
    }  # fmt: skip
    assert seen["data"] == ["owner"], "of the data folder only the check's own corner is there"
    assert seen["elsewhere"] is False
    assert len(seen["processes"]) <= 3, "only its own processes"
    assert seen["user"] != 0


def test_a_check_cannot_change_what_it_was_installed_from(checked: Check) -> None:
    outcome = checked(loading("open(__file__, 'a').write('x = 1')"))
    assert outcome.facts["reason"].startswith("OSError: [Errno 30] Read-only file system")


def test_what_needs_the_network_says_so(checked: Check) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reach = f"""
import socket
try:
    socket.create_connection({server.getsockname()!r}, timeout=3)
except OSError as error:
    raise ConnectionError("no way to the data") from error
"""
        outcome = checked(loading(reach))
    assert (outcome.status, outcome.facts["stage"]) == (CheckStatus.FAILED, "load")
    assert outcome.facts["reason"] == (
        "it needs the network, which checks do not have: ConnectionError: no way to the data"
    )


def test_an_operator_can_let_checks_use_the_network(checked: Check) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reach = f"""
import socket
socket.create_connection({server.getsockname()!r}, timeout=3)
raise ValueError("reached")
"""
        assert checked(loading(reach), network=True).facts["reason"] == "ValueError: reached"


def test_what_a_check_says_of_itself_is_not_taken_on_trust(checked: Check) -> None:
    claim = r"""
import os
lies = ['{"done": "load", "facts": {"environment_type": 3}}', "no json", "[1]", '{"done": NaN}']
for number in os.listdir("/proc/self/fd"):
    for lie in lies:
        try:
            os.write(int(number), lie.encode() + b"\n")
        except OSError:
            pass
os._exit(0)
"""
    outcome = checked(loading(claim))
    assert outcome.status == CheckStatus.FAILED
    assert outcome.facts["reason"].startswith("what it says of itself cannot be")


def test_a_dependency_that_is_not_there_fails_at_install_with_the_words_of_uv(checked: Check) -> None:
    outcome = checked("VALUE = 1\n", requires="Requires-Dist: no-such-thing-for-checks-9\n")
    assert (outcome.status, outcome.facts["stage"]) == (CheckStatus.FAILED, "install")
    assert "no-such-thing-for-checks-9" in outcome.facts["reason"]
    assert "owner" not in outcome.facts["reason"], "places on this machine are left out"


def test_another_python_than_the_hubs_is_skipped(checked: Check) -> None:
    outcome = checked("VALUE = 1\n", python=">=3.99")
    assert outcome.status == CheckStatus.SKIPPED
    assert outcome.facts["reason"].startswith("it needs Python >=3.99, and checks run on ")


def test_an_environment_of_the_new_api_is_skipped_with_the_reason(checked: Check) -> None:
    library = {"verifiers/__init__.py": "class Taskset:\n    pass\n"}
    outcome = checked("import verifiers\n\n\nclass Mine(verifiers.Taskset):\n    pass\n", extra=library)
    assert outcome.status == CheckStatus.SKIPPED
    assert outcome.facts["reason"].startswith("it is written for the new API of verifiers")


def test_a_check_without_isolation_says_so(checked: Check) -> None:
    outcome = checked(loading("raise ValueError('here')"), isolation=Isolation.NONE)
    assert (outcome.facts["isolation"], outcome.facts["reason"]) == ("none", "ValueError: here")


def _processes_with(mark: str) -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in place.read_bytes() and place.parent.name != str(os.getpid()):
                found.append(place.parent.name)
        except OSError:
            continue
    return found
