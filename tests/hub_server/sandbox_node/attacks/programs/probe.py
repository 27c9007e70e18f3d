"""What the attack programs share: each attack runs in a process of its own and says itself how it ended.

An attack is a function that tries one thing. It returns how it was refused, raises `Through` when it succeeded, or
`NotHere` where the machine has nothing to attack (a 32-bit call on another architecture). Anything else that it
raises, and a process that dies of itself, is `broken`: no proof of anything, and a failure of the test.

    python3 FILE            runs every attack of the file and prints a line of JSON for each
    python3 FILE --control  runs only those that do no harm on an unprotected machine, where they ought to succeed
"""

import ctypes
import errno
import json
import os
import platform
import signal
import sys
import traceback

ATTACKS = []
PATIENCE_S = 20
LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"

# x86_64, aarch64
CALLS = {
    "ioctl": (16, 29), "clone": (56, 220), "ptrace": (101, 117), "syslog": (103, 116), "personality": (135, 92),
    "modify_ldt": (154, None), "pivot_root": (155, 41), "chroot": (161, 51), "acct": (163, 89), "mount": (165, 40),
    "umount2": (166, 39), "swapon": (167, 224), "reboot": (169, 142), "sethostname": (170, 161), "iopl": (172, None),
    "ioperm": (173, None), "init_module": (175, 105), "delete_module": (176, 106), "quotactl": (179, 60),
    "clock_settime": (227, 112), "mbind": (237, 235), "kexec_load": (246, 104), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "migrate_pages": (256, 238), "unshare": (272, 97),
    "perf_event_open": (298, 241), "fanotify_init": (300, 262), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "setns": (308, 268), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "kcmp": (312, 272), "finit_module": (313, 273), "seccomp": (317, 277),
    "kexec_file_load": (320, 294), "bpf": (321, 280), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fspick": (433, 433), "pidfd_open": (434, 434), "clone3": (435, 435), "openat2": (437, 437),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "mount_setattr": (442, 442), "memfd_secret": (447, 447),
}  # fmt: skip
NO = (errno.EPERM, errno.EACCES, errno.ENOSYS)
NO_SOCKET = (*NO, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT, errno.EINVAL)


class Through(Exception):
    """The attack succeeded."""


class NotHere(Exception):
    """This machine has nothing of the kind."""


def attack(harmless=False):
    """Mark a function as an attack; a `harmless` one succeeds on an unprotected machine, as root, and does nothing."""

    def mark(function):
        ATTACKS.append((function, harmless))
        return function

    return mark


def call(name, *arguments):
    """Make the system call; return its result, or minus its errno."""
    number = CALLS[name][0 if X86 else 1]
    if number is None:
        raise NotHere(name)
    return call_number(number, *arguments)


def call_number(number, *arguments):
    """Make the system call of this number."""
    ctypes.set_errno(0)
    given = [ctypes.c_void_p(value) if isinstance(value, int) else value for value in arguments]
    result = LIBC.syscall(ctypes.c_long(number), *given)
    return -ctypes.get_errno() if result == -1 else result


def refused(result, what, codes=NO):
    """Return how the call was refused; a result that is no refusal of these is a success of the attack."""
    if result < 0 and -result in codes:
        return what + ": " + errno.errorcode[-result]
    raise Through(what + " gave " + (errno.errorcode.get(-result, "") if result < 0 else str(result)))


def refused_file(path, flags, codes=(errno.EPERM, errno.EACCES, errno.ENOENT, errno.EROFS), then=None):
    """Open a file as the attack would; return how that was refused. `then` uses what was opened, and may be refused."""
    try:
        descriptor = os.open(path, flags)
        try:
            if then is not None:
                then(descriptor)
        finally:
            os.close(descriptor)
    except OSError as problem:
        if problem.errno in codes:
            return path + ": " + errno.errorcode[problem.errno]
        raise
    raise Through("opened " + path)


def all_refused(attempts):
    """Make every attempt (a function without arguments); return how all were refused, or raise what succeeded."""
    refusals, successes = [], []
    for attempt in attempts:
        try:
            refusals.append(attempt())
        except Through as success:
            successes.append(str(success))
    if successes:
        raise Through("; ".join(successes) + (" (but " + "; ".join(refusals) + ")" if refusals else ""))
    return "; ".join(refusals)


def _run(function):
    """Run one attack in a child; return its outcome and its words."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            outcome, how = "refused", function()
            if not how:
                outcome, how = "broken", "it says nothing"
        except Through as success:
            outcome, how = "through", str(success)
        except NotHere as absence:
            outcome, how = "not here", str(absence)
        except BaseException:
            outcome, how = "broken", traceback.format_exc(limit=-3)
        os.write(writer, json.dumps([outcome, how]).encode()[:60000])
        os._exit(0)
    os.close(writer)
    said = b""
    signal.alarm(PATIENCE_S)
    try:
        while True:
            more = os.read(reader, 65536)
            if not more:
                break
            said += more
    except TimeoutError:
        os.kill(child, signal.SIGKILL)
        return "broken", "it did not end"
    finally:
        signal.alarm(0)
        os.close(reader)
        _, status = os.waitpid(child, 0)
    if said:
        return json.loads(said)
    return "broken", f"it died with status {status}"


def _late(number, frame):
    raise TimeoutError


def main():
    """Run the attacks of the file that was started."""
    signal.signal(signal.SIGALRM, _late)
    control = "--control" in sys.argv
    for function, harmless in ATTACKS:
        if control and not harmless:
            continue
        outcome, how = _run(function)
        print(json.dumps({"attack": function.__name__, "outcome": outcome, "how": how}), flush=True)
