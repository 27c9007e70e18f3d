"""The agent, which is process 1 of the sandbox and of the same user as the jobs, and its helpers."""

import ctypes
import errno
import os
import resource
import signal
import socket
import struct

from probe import NO, NotHere, Through, all_refused, attack, call, main, refused, refused_file

NOT_MINE = (*NO, errno.ESRCH, errno.EIO)
PROTECTED = (
    "mem", "environ", "fd/0", "fd/1", "fd/2", "fd/3", "fd/4", "fd/5", "exe", "root/etc/passwd", "cwd/etc/passwd",
    "maps", "smaps", "auxv", "pagemap", "syscall", "stack", "personality", "io", "ns/net",
)  # fmt: skip
DENIED = (errno.EPERM, errno.EACCES, errno.ENOENT, errno.ESRCH, errno.EIO, errno.ENXIO, errno.EAGAIN,
          errno.ENODEV)  # fmt: skip


def _agents():
    """The processes that are not this attack's own: process 1, and what it keeps beside the jobs."""
    mine, own = set(), os.getpid()
    while own > 1:
        mine.add(own)
        with open(f"/proc/{own}/stat") as file:
            own = int(file.read().rsplit(") ", 1)[1].split()[1])
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in mine)


def _each(action):
    return all_refused([lambda p=p: action(p) for p in _agents()])


@attack()
def tracing_it():
    return _each(
        lambda p: all_refused(
            [
                lambda: refused(call("ptrace", 16, p, 0, 0), f"ptrace(ATTACH, {p})", NOT_MINE),
                lambda: refused(call("ptrace", 0x4206, p, 0, 0), f"ptrace(SEIZE, {p})", NOT_MINE),
            ]
        )
    )


@attack()
def its_memory_by_a_call():
    space = ctypes.create_string_buffer(16)
    here, there = struct.pack("QQ", ctypes.addressof(space), 16), struct.pack("QQ", 0x400000, 16)
    return _each(
        lambda p: all_refused(
            [
                lambda: refused(call("process_vm_readv", p, here, 1, there, 1, 0), f"process_vm_readv({p})", NOT_MINE),
                lambda: refused(
                    call("process_vm_writev", p, here, 1, there, 1, 0), f"process_vm_writev({p})", NOT_MINE
                ),
            ]
        )
    )


def _first_byte(descriptor):
    try:
        byte = os.read(descriptor, 1)
    except OSError as problem:
        raise OSError(errno.EACCES, "it cannot be read") from problem
    if not byte:
        raise OSError(errno.EACCES, "it is empty")


@attack()
def what_proc_says_of_it():
    return _each(
        lambda p: all_refused(
            [lambda n=n: refused_file(f"/proc/{p}/{n}", os.O_RDONLY | os.O_NONBLOCK, DENIED, _first_byte)
             for n in PROTECTED]
        )
    )  # fmt: skip


@attack()
def its_descriptors_by_name():
    """Their numbers may be seen; what they are, and the way through them, may not."""

    def follow(pid):
        refusals, path = [], f"/proc/{pid}/fd/"
        for number in range(16):
            try:
                target = os.readlink(path + str(number))
            except OSError as problem:
                if problem.errno not in DENIED:
                    raise
                refusals.append(errno.errorcode[problem.errno])
            else:
                raise Through(f"{path}{number} is {target}")
        return "{}: {}".format(path, "/".join(sorted(set(refusals))))

    return _each(follow)


@attack()
def its_descriptors_by_a_call():
    def take(pid):
        handle = call("pidfd_open", pid, 0)
        if handle < 0:
            return refused(handle, f"pidfd_open({pid})", NOT_MINE)
        return all_refused(
            [lambda n=n: refused(call("pidfd_getfd", handle, n, 0), f"pidfd_getfd({pid}, {n})") for n in range(8)]
        )

    return _each(take)


@attack()
def its_memory_by_writing():
    return _each(
        lambda p: all_refused(
            [lambda n=n: refused_file(f"/proc/{p}/{n}", os.O_RDWR, DENIED) for n in ("mem", "exe", "map_files/x")]
        )
    )


@attack()
def its_limits():
    def lower(pid):
        try:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (4, 4))
        except OSError as problem:
            if problem.errno in NOT_MINE:
                return f"prlimit({pid}): {errno.errorcode[problem.errno]}"
            raise
        raise Through(f"lowered the limits of process {pid}")

    return _each(lower)


@attack()
def who_dies_first_without_memory():
    def protect(path):
        def write(descriptor):
            os.write(descriptor, b"-1000")

        return refused_file(path, os.O_WRONLY, DENIED, write)

    return all_refused([lambda: protect("/proc/self/oom_score_adj"), lambda: protect("/proc/1/oom_score_adj")])


@attack()
def its_sockets():
    """A socket that the agent or a helper of it listens on would take orders from a job."""
    with open("/proc/net/unix") as file:
        names = [line.split()[7] for line in file.readlines()[1:] if len(line.split()) > 7]
    with open("/proc/net/tcp") as file:
        ports = [int(line.split()[1].split(":")[1], 16) for line in file.readlines()[1:] if line.split()[3] == "0A"]
    for name in names:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(name.replace("@", "\0", 1) if name.startswith("@") else name)
            except OSError:
                continue
            raise Through("connected to " + name)
    if ports:
        raise Through(f"something listens on {ports}")
    return f"nothing listens: {len(names)} unix sockets with a name"


@attack()
def being_traced_by_a_parent():
    """A job that makes itself traceable must not open its parent."""
    if os.getppid() == 1:
        raise NotHere("its parent is process 1, which the others attack")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return refused(call("ptrace", 0, 0, 0, 0), "ptrace(TRACEME)")


@attack()
def every_signal():
    """Process 1 must be the same after each; the test then uses the sandbox."""
    with open("/proc/1/stat") as file:
        started = file.read().rsplit(") ", 1)[1].split()[19]
    for number in range(1, 65):
        try:
            os.kill(1, number)
        except OSError as problem:
            if problem.errno != errno.EINVAL:
                return "kill(1): " + errno.errorcode[problem.errno]
    with open("/proc/1/stat") as file:
        state, *rest = file.read().rsplit(") ", 1)[1].split()
    if rest[18] != started:
        raise Through("process 1 is another")
    if state in "TtZX":
        raise Through("process 1 is in state " + state)
    return "64 signals changed nothing"


main()
