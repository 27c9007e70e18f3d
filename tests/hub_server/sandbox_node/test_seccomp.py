"""The filter of system calls: the programs in the repository answer each call as the table says."""

from __future__ import annotations

import errno
import itertools
import platform
import shutil
import subprocess
import sys

import pytest

from hub_server.sandbox_node.errors import NotPossible
from hub_server.sandbox_node.seccomp import MACHINES, filter_bytes, kept_path, oci_profile
from hub_server.sandbox_node.seccomp.table import (
    ABSENT,
    ALLOWED,
    CONDITIONAL,
    DONE_NOTHING,
    NEWEST_CALL,
    REFUSED,
)
from tests.hub_server.sandbox_node import bpf

ARCHITECTURES = {"x86_64": bpf.X86_64, "aarch64": bpf.AARCH64}
EPERM, ENOSYS = bpf.ERRNO | errno.EPERM, bpf.ERRNO | errno.ENOSYS
HIGH = 1 << 32  # a bit that the kernel does not look at in an int

# On its libseccomp, not on ours, depends whether a host can look up numbers of calls.
try:
    import pyseccomp
except (ImportError, RuntimeError, OSError):
    pyseccomp = None
needs_libseccomp = pytest.mark.skipif(pyseccomp is None, reason="libseccomp, or pyseccomp, is not installed")


def number(machine: str, call: str) -> int | None:
    """Return the call's number, None where the architecture has none."""
    found = pyseccomp.resolve_syscall(
        {"x86_64": pyseccomp.Arch.X86_64, "aarch64": pyseccomp.Arch.AARCH64}[machine], call
    )
    return found if found >= 0 else None


def answer(machine: str, call: str, *arguments: int) -> int | None:
    """Return what the filter answers, None where the architecture has no such call."""
    found = number(machine, call)
    return None if found is None else bpf.answer(filter_bytes(machine), ARCHITECTURES[machine], found, arguments)


@needs_libseccomp
def test_the_filters_in_the_repository_are_those_that_the_table_gives():
    from hub_server.sandbox_node.seccomp.generate import generate

    for machine in MACHINES:
        assert kept_path(machine).read_bytes() == generate(machine), (
            "python -m hub_server.sandbox_node.seccomp.generate"
        )


@needs_libseccomp
@pytest.mark.parametrize("machine", MACHINES)
def test_each_call_is_answered_as_the_table_says(machine):
    for groups, wanted in ((ALLOWED, bpf.ALLOW), (REFUSED, EPERM), (ABSENT, ENOSYS), (DONE_NOTHING, bpf.ERRNO)):
        calls = [call for group in groups for call in group.calls]
        assert {call: answer(machine, call) for call in calls if number(machine, call) is not None} == {
            call: wanted for call in calls if number(machine, call) is not None
        }
        assert len(calls) == len(set(calls))


@needs_libseccomp
@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_that_no_table_names_is_refused(machine):
    named = {call for group in (*ALLOWED, *ABSENT, *DONE_NOTHING) for call in group.calls}
    named |= {conditional.call for conditional in CONDITIONAL}
    known = {number(machine, call) for call in named}
    others = [other for other in range(NEWEST_CALL + 1) if other not in known]
    assert len(others) > 40
    architecture = ARCHITECTURES[machine]
    assert {bpf.answer(filter_bytes(machine), architecture, other) for other in others} == {EPERM}


@needs_libseccomp
def test_every_name_of_the_table_is_a_system_call():
    calls = [call for group in (*ALLOWED, *REFUSED, *ABSENT, *DONE_NOTHING) for call in group.calls]
    unknown = [call for call in calls if pyseccomp.resolve_syscall(pyseccomp.Arch.X86_64, call) == -1]
    assert unknown == []


@pytest.mark.parametrize("machine", MACHINES)
def test_newer_calls_are_absent_as_on_an_older_kernel(machine):
    for newer in (NEWEST_CALL + 1, 452, 500, 0x3FFFFFFF):
        assert bpf.answer(filter_bytes(machine), ARCHITECTURES[machine], newer) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_no_call_of_another_architecture_goes_through(machine):
    for architecture in {bpf.I386, bpf.X86_64, bpf.AARCH64, 0x40000028, 0} - {ARCHITECTURES[machine]}:
        answers = {bpf.answer(filter_bytes(machine), architecture, call) for call in range(500)}
        assert answers == {ENOSYS}


def test_no_call_of_the_x32_table_goes_through():
    answers = {bpf.answer(filter_bytes("x86_64"), bpf.X86_64, 0x40000000 + call) for call in range(600)}
    assert answers == {ENOSYS}
    assert bpf.answer(filter_bytes("x86_64"), bpf.X86_64, 0xFFFFFFFF) == ENOSYS


@needs_libseccomp
@pytest.mark.parametrize("machine", MACHINES)
def test_processes_and_threads_are_made_and_namespaces_are_not(machine):
    plain = [0, 17, 0x00010F00 | 17, 0x003D0F00, 0x4111, 0x1200011]  # fork, vfork, threads, posix_spawn
    assert {answer(machine, "clone", flags) for flags in plain} == {bpf.ALLOW}
    namespaces = [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000]
    for flag, more in itertools.product(namespaces, (0, 17, HIGH, 0x003D0F00)):
        assert answer(machine, "clone", flag | more) == EPERM


@needs_libseccomp
@pytest.mark.parametrize("machine", MACHINES)
def test_only_the_common_kinds_of_sockets_are_made(machine):
    nonblocking, close_on_exec = 0o4000, 0o2000000
    for family, kind, protocol in itertools.product(range(48), range(16), (0, 1, 6, 17, 58, 115, 132, 255, 256, 262)):
        wanted = (
            (family == 1 and kind in (1, 2, 5))
            or (family in (2, 10) and (kind, protocol) in ((1, 0), (1, 6), (2, 0), (2, 17)))
            or (family == 16 and kind in (2, 3) and protocol == 0)
        )
        verdict = bpf.ALLOW if wanted else EPERM
        assert answer(machine, "socket", family, kind, protocol) == verdict, (family, kind, protocol)
        assert answer(machine, "socket", family | HIGH, kind | nonblocking | close_on_exec, protocol) == verdict
    assert answer(machine, "socketpair", 1, 1, 0) == bpf.ALLOW
    assert {answer(machine, "socketpair", family, 1, 0) for family in (2, 16, 30, 40)} == {EPERM}


@needs_libseccomp
@pytest.mark.parametrize("machine", MACHINES)
def test_no_terminal_is_typed_into_also_by_a_number_with_higher_bits(machine):
    forbidden = {0x5412, 0x541C, 0x541D, 0x5423}
    near = {value ^ 1 << bit for value in forbidden for bit in range(32)} - forbidden
    for value in near | set(range(0x5300, 0x5500)) | {0x8910, 0x80045430, 0xFFFFFFFF, 0}:
        verdict = EPERM if value in forbidden else bpf.ALLOW
        for high in (0, HIGH, 0xFFFFFFFF << 32):
            assert answer(machine, "ioctl", 0, value | high) == verdict, hex(value)


@needs_libseccomp
@pytest.mark.parametrize("machine", MACHINES)
def test_pipes_are_made_and_devices_are_not(machine):
    for call, before in (("mknod", (0,)), ("mknodat", (0, 0))):
        for kind in range(16):
            wanted = bpf.ALLOW if kind in (0, 0o10, 0o1, 0o14) else EPERM
            assert answer(machine, call, *before, kind << 12 | 0o644, 0x0103) in (wanted, None)


@needs_libseccomp
@pytest.mark.parametrize("machine", MACHINES)
def test_only_harmless_personalities_are_taken(machine):
    assert {answer(machine, "personality", value) for value in (0, 8, 0x20000, 0xFFFFFFFF)} == {bpf.ALLOW}
    assert {answer(machine, "personality", value) for value in (0x0400000, 0x0040000, 0x0100000)} == {EPERM}


@needs_libseccomp
@pytest.mark.parametrize("machine", MACHINES)
def test_a_process_sets_its_own_limits_and_nobody_elses(machine):
    assert answer(machine, "prlimit64", 0, 7, 0, 0) == bpf.ALLOW
    assert {answer(machine, "prlimit64", pid, 7, 0, 0) for pid in (1, 2, 4711)} == {EPERM}


def test_an_architecture_without_a_filter_is_refused_with_those_that_have_one():
    with pytest.raises(NotPossible) as caught:
        filter_bytes("riscv64")
    assert "riscv64" in caught.value.detail
    assert "x86_64" in (caught.value.hint or "")


def test_the_profile_of_oci_runtimes_says_the_same():
    profile = oci_profile()
    allowed = {call for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for call in rule["names"]}
    assert allowed == {call for group in ALLOWED for call in group.calls} | {item.call for item in CONDITIONAL}
    assert profile["defaultErrnoRet"] == errno.EPERM
    assert not allowed & {call for group in REFUSED for call in group.calls}


ORDINARY = {
    "python": [sys.executable, "-c", "import threading, subprocess, socket, tempfile, multiprocessing as m, asyncio\n"
               "t = threading.Thread(target=print); t.start(); t.join(); subprocess.run(['true'], check=True)\n"
               "assert m.get_context('fork').Pool(2).map(abs, [-1, -2]) == [1, 2]\n"
               "asyncio.run(asyncio.create_subprocess_exec('true')); print('fine')"],
    "pip": [sys.executable, "-m", "pip", "--version"],
    "bash": ["bash", "-c", "for i in 1 2 3; do echo $i | cat; done; ( sleep 0 & wait ); mkfifo $0/p && echo fine", "."],
    "gcc": ["bash", "-c", "echo 'int main(){return 0;}' > a.c && gcc a.c && ./a.out && echo fine"],
    "git": ["bash", "-c", "git init -q . && git -c user.name=a -c user.email=b commit -qm x --allow-empty && git log"],
    "node": ["node", "-e", "require('child_process').execSync('true'); setTimeout(() => console.log('fine'), 1)"],
    "java": ["java", "-version"],
    "tar": ["bash", "-c", "mkdir d && touch d/f && tar cf t.tar d && rm -r d && tar xf t.tar && ls d"],
}  # fmt: skip


@pytest.mark.skipif(platform.machine() not in MACHINES or sys.platform != "linux", reason="no filter for this machine")
@pytest.mark.parametrize("program", ORDINARY)
def test_ordinary_programs_run_under_the_filter(program, tmp_path):
    argv = ORDINARY[program]
    if argv[0] != sys.executable and not (shutil.which(argv[0]) and shutil.which(program)):
        pytest.skip(f"{program} is not installed")
    under = subprocess.run(
        [sys.executable, "-c", UNDER_FILTER, str(kept_path(platform.machine())), *argv],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert under.returncode == 0, under.stderr
    assert under.stdout.strip() or "version" in under.stderr


UNDER_FILTER = """
import ctypes, os, sys
data = open(sys.argv[1], "rb").read()
libc = ctypes.CDLL(None, use_errno=True)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(data) // 8, data)), 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[2], sys.argv[2:])
"""
