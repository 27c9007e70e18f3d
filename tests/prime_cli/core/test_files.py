"""Files that are wholly there or not there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prime_cli.core.files import directory_written_aside, write_bytes_atomically, write_json_atomically
from prime_cli.core.processes import describe_exit, end_process_groups, tail


def test_a_secret_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    write_json_atomically(tmp_path / "secret.json", {"key": "x"}, mode=0o600)
    assert (tmp_path / "secret.json").stat().st_mode & 0o777 == 0o600


def test_a_write_that_fails_leaves_the_old_bytes_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_bytes_atomically(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with directory_written_aside(tmp_path / "out") as aside:
        (aside / "a").write_text("1")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out" / "a").read_text() == "1"
    with pytest.raises(FileNotFoundError), directory_written_aside(tmp_path / "other") as aside:
        (aside / "nowhere" / "b").write_text("fails")
    assert os.listdir(tmp_path) == ["out"]


def test_ending_a_process_ends_what_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time, signal\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal, time; signal.signal(15, signal.SIG_IGN);"
        " print(1, flush=True); time.sleep(60)'], stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    grandchild = int(process.stdout.readline())
    end_process_groups([process], grace_s=0.2)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{grandchild}").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{grandchild}/stat").read_text().split()[2] == "Z":
            break
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{grandchild}").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_a_child_whose_parent_is_gone_already_does_not_start() -> None:
    code = "from prime_cli.core.processes import die_with_parent; die_with_parent()"
    for parent, expected in ((os.getpid(), 0), (os.getpid() + 1, 1)):
        environment = os.environ | {"PRIME_PARENT_PID": str(parent)}
        assert subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True).returncode == expected


def test_exits_are_described_in_words() -> None:
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-9) == "killed by SIGKILL"


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("\n".join(str(i) for i in range(100)))
    assert tail(tmp_path / "log", 3) == ["97", "98", "99"]
    assert tail(tmp_path / "none") == []
