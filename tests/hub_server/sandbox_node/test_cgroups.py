"""Control groups of both versions: where they are made, what is written, and what is removed."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hub_server.sandbox_node.launcher import cgroups, hierarchies
from hub_server.sandbox_node.specification import MEBIBYTE, Limits

LIMITS = Limits(cpu_cores=1.5, memory_bytes=100 * MEBIBYTE, processes=30)

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


def tree_of_version_two(folder: Path, controllers: str = "cpuset cpu io memory pids") -> list[hierarchies.Mounted]:
    folder.joinpath("cgroup.controllers").write_text(controllers)
    return [hierarchies.Mounted(folder, "cgroup2", frozenset({"rw"}))]


@pytest.fixture
def real() -> Iterator[cgroups.Groups]:
    """Groups of this host, opened."""
    mounts = hierarchies.mounted(Path("/proc/self/mountinfo").read_text())
    groups, lacking = hierarchies.find(f"test-{os.getpid()}-{time.monotonic_ns()}", mounts, is_root=os.geteuid() == 0)
    if groups is None:
        pytest.skip(lacking)
    try:
        groups.open()
    except OSError as problem:
        pytest.skip(f"control groups cannot be made: {problem}")
    yield groups
    for home in groups.homes.values():
        cgroups.remove_tree(home)


def test_each_controller_of_version_one_is_found_where_it_is_mounted() -> None:
    groups, _ = hierarchies.find("node", hierarchies.mounted(HYBRID), is_root=True)
    assert groups is not None
    assert groups.version == 1
    assert {name: str(home) for name, home in groups.homes.items()} == {
        "memory": "/sys/fs/cgroup/memory/prime-sandboxes/node",
        "pids": "/sys/fs/cgroup/pids/prime-sandboxes/node",
        "cpu": "/sys/fs/cgroup/cpu,cpuacct/prime-sandboxes/node",
    }


def test_what_lacks_is_said_and_nothing_is_made_of_the_rest(tmp_path: Path) -> None:
    without_pids = "".join(line for line in HYBRID.splitlines(keepends=True) if "pids" not in line)
    assert hierarchies.find("node", hierarchies.mounted(without_pids), is_root=True) == (
        None,
        "the control group controller `pids` is not mounted",
    )
    assert hierarchies.find("node", hierarchies.mounted(HYBRID), is_root=False)[0] is None
    lacking = tree_of_version_two(tmp_path, "cpu memory")
    assert hierarchies.find("node", lacking, is_root=True)[0] is None


def test_version_two_is_used_where_it_has_the_controllers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, _ = hierarchies.find("node", tree_of_version_two(tmp_path), is_root=True)
    assert groups is not None
    groups.open()
    with_kernel = Path.mkdir

    def mkdir(path: Path, *arguments: Any, **more: Any) -> None:
        with_kernel(path, *arguments, **more)
        path.joinpath("cgroup.procs").touch()  # as the kernel does
        if path.name == "one":
            path.joinpath("cpu.max.burst").touch()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    whole = tmp_path / "prime-sandboxes/node"
    host = cgroups.host_size()
    assert int((whole / "memory.max").read_text()) < host.memory_bytes, "all together leave the host some"
    assert int((whole / "pids.max").read_text()) < host.processes
    joins = groups.make("one", LIMITS)
    home = tmp_path / "prime-sandboxes/node/one"
    assert len(joins) == 1
    os.write(joins[0], b"0")
    os.close(joins[0])
    written = {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()}
    assert written == {
        "cgroup.procs": "",
        "cgroup.subtree_control": "+memory +pids +cpu",
        "memory.max": str(164 * MEBIBYTE),
        "pids.max": "46",
        "cpu.max": "150000 100000",
        "cpu.max.burst": "150000",
        "agent/cgroup.procs": "0",
        "jobs/memory.max": str(100 * MEBIBYTE),
        "jobs/pids.max": "30",
        "jobs/cgroup.procs": "0",
    }
    home.joinpath("memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\n")
    home.joinpath("agent/memory.events").write_text("low 0\noom_kill 0\n")
    home.joinpath("memory.current").write_text("4096\n")
    assert (groups.oom_kills("one"), groups.agent_oom_kills("one"), groups.memory_bytes("one")) == (2, 0, 4096)


def test_a_sandbox_that_is_not_there_has_no_figures(tmp_path: Path) -> None:
    groups, _ = hierarchies.find("node", tree_of_version_two(tmp_path), is_root=True)
    assert groups is not None
    assert groups.oom_kills("none") is None
    assert groups.memory_bytes("none") is None
    assert groups.processes("none") == []
    assert groups.remove("none")


def test_all_sandboxes_together_leave_the_host_some_memory_and_processes(real: cgroups.Groups) -> None:
    host = cgroups.host_size()
    names = ("memory.limit_in_bytes", "pids.max") if real.version == 1 else ("memory.max", "pids.max")
    memory, processes = (int((real.homes[name.split(".")[0]] / name).read_text()) for name in names)
    assert 0 < memory < host.memory_bytes
    assert 0 < processes < host.processes


def test_processor_time_that_was_not_used_may_be_used_later(real: cgroups.Groups) -> None:
    quota, burst = ("cpu.cfs_quota_us", "cpu.cfs_burst_us") if real.version == 1 else ("cpu.max", "cpu.max.burst")
    group = real.homes["cpu"] / "one"
    child = os.fork()
    if child == 0:
        try:
            for fd in real.make("one", LIMITS):
                os.close(fd)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (group / quota).exists()
    if not (group / burst).exists():
        pytest.skip("the kernel knows no burst of processor time (5.14)")
    assert (group / burst).read_text().split()[0] == (group / quota).read_text().split()[0]
    assert real.remove("one")


def test_groups_hold_a_process_until_it_has_ended(real: cgroups.Groups) -> None:
    child = os.fork()
    if child == 0:
        try:
            for descriptor in real.make("one", LIMITS):
                os.write(descriptor, b"0")
            os.execv("/bin/sleep", ["sleep", "60"])
        finally:
            os._exit(1)
    deadline = time.monotonic() + 10
    while not real.hold("one") or Path(f"/proc/{child}/comm").read_text() != "sleep\n":
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert child in real.processes("one")
    assert (real.memory_bytes("one") or 0) > 0
    assert real.oom_kills("one") == real.agent_oom_kills("one") == 0
    assert not real.remove("one"), "a group with a process in it stays"
    os.kill(child, 9)
    os.waitpid(child, 0)
    while not real.remove("one"):
        assert time.monotonic() < deadline
    assert not any(home.joinpath("one").exists() for home in real.homes.values())


def test_groups_of_a_launcher_that_is_gone_are_removed_with_what_runs_in_them(real: cgroups.Groups) -> None:
    dead = type(real)({name: home.with_name(f"{home.name}-dead") for name, home in real.homes.items()})
    dead.open()
    inside = subprocess.Popen(["sleep", "60"], start_new_session=True)
    for home in dict.fromkeys(dead.homes.values()):
        group = home / "left"
        group.mkdir()
        group.joinpath("cgroup.procs").write_text(str(inside.pid))
    assert dead._lock is not None
    os.close(dead._lock)
    third = type(real)({name: home.with_name(f"{home.name}-third") for name, home in real.homes.items()})
    third.open()
    assert inside.wait(10) == -9
    assert not any(home.exists() for home in dead.homes.values())
    assert all(home.exists() for home in real.homes.values()), "those of one that lives stay"
    third.close()
    assert not any(home.exists() for home in third.homes.values())
