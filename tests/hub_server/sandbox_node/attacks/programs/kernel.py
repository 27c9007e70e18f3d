"""System calls that lead out of a sandbox, or deep into the host's kernel."""

import ctypes
import errno
import mmap
import os
import signal
import socket
import struct
import tempfile

from probe import (
    LIBC,
    NO,
    NO_SOCKET,
    X86,
    NotHere,
    Through,
    all_refused,
    attack,
    call,
    call_number,
    main,
    refused,
)

NAMESPACES = {
    "mount": 0x00020000, "cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000, "user": 0x10000000,
    "pid": 0x20000000, "net": 0x40000000,
}  # fmt: skip
SIGCHLD = 17
AT_FDCWD = -100


def _reaped(result):
    """Let a child that an attack made end, and return the result as it was."""
    if result == 0:
        os._exit(0)
    if result > 0:
        os.waitpid(result, 0)
    return result


@attack(harmless=True)
def a_user_namespace_by_unshare():
    return refused(call("unshare", NAMESPACES["user"]), "unshare(user)")


@attack(harmless=True)
def each_namespace_by_unshare():
    return all_refused(
        [lambda n=n, f=f: refused(call("unshare", f), "unshare(" + n + ")") for n, f in NAMESPACES.items()]
    )


@attack(harmless=True)
def each_namespace_by_clone():
    return all_refused(
        [
            lambda n=n, f=f: refused(_reaped(call("clone", f | SIGCHLD, 0, 0, 0, 0)), "clone(" + n + ")")
            for n, f in NAMESPACES.items()
        ]
    )


@attack(harmless=True)
def a_user_namespace_by_clone3():
    arguments = struct.pack("8Q", NAMESPACES["user"], 0, 0, 0, SIGCHLD, 0, 0, 0)
    return refused(_reaped(call("clone3", ctypes.create_string_buffer(arguments), 64)), "clone3(user)")


@attack(harmless=True)
def joining_the_namespaces_of_the_agent():
    def join(name):
        try:
            descriptor = os.open("/proc/1/ns/" + name, os.O_RDONLY)
        except PermissionError:
            descriptor = os.open("/proc/self/ns/" + name, os.O_RDONLY)
        except FileNotFoundError:
            return name + ": there is none to join"
        return refused(call("setns", descriptor, 0), "setns(" + name + ")")

    return all_refused([lambda n=n: join(n) for n in ("uts", "ipc", "net", "cgroup")])


@attack(harmless=True)
def mounting_a_file_system():
    folder = tempfile.mkdtemp()
    return all_refused(
        [
            lambda k=k: refused(call("mount", b"none", folder.encode(), k, 0, None), "mount " + k.decode())
            for k in (b"tmpfs", b"proc", b"sysfs", b"cgroup", b"cgroup2", b"overlay", b"devtmpfs", b"debugfs", b"bpf")
        ]
    )


@attack()
def making_read_only_mounts_writable():
    remount_bind = 0x1020
    return all_refused(
        [
            lambda p=p: refused(call("mount", None, p, None, remount_bind, None), "remount " + p.decode())
            for p in (b"/", b"/usr", b"/etc", b"/proc", b"/dev")
        ]
    )


@attack(harmless=True)
def binding_a_folder_elsewhere():
    folder = tempfile.mkdtemp().encode()
    return refused(call("mount", b"/", folder, None, 0x5000, None), "mount --rbind /")


@attack()
def taking_mounts_away():
    detach = 2
    return all_refused(
        [
            lambda p=p: refused(call("umount2", p, detach), "umount " + p.decode())
            for p in (b"/proc", b"/dev", b"/tmp", b"/usr")
        ]
    )


@attack(harmless=True)
def the_new_mount_calls():
    folder = tempfile.mkdtemp().encode()
    return all_refused(
        [
            lambda: refused(call("fsopen", b"tmpfs", 0), "fsopen"),
            lambda: refused(call("open_tree", AT_FDCWD, b"/", 1), "open_tree"),
            lambda: refused(call("fspick", AT_FDCWD, b"/proc", 0), "fspick"),
            lambda: refused(call("move_mount", AT_FDCWD, b"/tmp", AT_FDCWD, folder, 0), "move_mount"),
            lambda: refused(
                call("mount_setattr", AT_FDCWD, b"/tmp", 0, struct.pack("4Q", 0, 0, 0, 0), 32), "mount_setattr"
            ),
        ]
    )


@attack(harmless=True)
def another_root():
    folder = tempfile.mkdtemp().encode()
    return all_refused(
        [
            lambda: refused(call("pivot_root", folder, folder), "pivot_root"),
            lambda: refused(call("chroot", folder), "chroot"),
        ]
    )


@attack(harmless=True)
def io_uring():
    return all_refused(
        [
            lambda: refused(call("io_uring_setup", 8, ctypes.create_string_buffer(120)), "io_uring_setup"),
            lambda: refused(call("io_uring_enter", 0, 1, 0, 0, None), "io_uring_enter"),
        ]
    )


@attack(harmless=True)
def a_bpf_map():
    return refused(call("bpf", 0, struct.pack("5I", 2, 4, 4, 1, 0) + bytes(100), 120), "bpf(MAP_CREATE)")


@attack(harmless=True)
def performance_events():
    attributes = struct.pack("IIQ", 1, 112, 0) + bytes(96)
    return refused(call("perf_event_open", attributes, 0, -1, -1, 0), "perf_event_open")


@attack(harmless=True)
def page_faults_in_user_space():
    return all_refused([lambda f=f: refused(call("userfaultfd", f), f"userfaultfd({f})") for f in (0, 1)])


@attack(harmless=True)
def keyrings():
    key, value = b"prime-sandbox-channel", b"hello"
    user_keyring, session_keyring = -4, -3
    return all_refused(
        [
            lambda: refused(call("add_key", b"user", key, value, len(value), user_keyring), "add_key"),
            lambda: refused(call("request_key", b"user", key, None, 0), "request_key"),
            lambda: refused(call("keyctl", 0, session_keyring, 1), "keyctl(GET_KEYRING_ID)"),
            lambda: refused(call("keyctl", 1, b"prime"), "keyctl(JOIN_SESSION_KEYRING)"),
        ]
    )


@attack()
def kernel_modules_and_other_kernels():
    return all_refused(
        [
            lambda: refused(call("init_module", b"x", 1, b""), "init_module"),
            lambda: refused(call("finit_module", 0, b"", 0), "finit_module"),
            lambda: refused(call("delete_module", b"nothing", 0), "delete_module"),
            lambda: refused(call("kexec_load", 0, 0, 0, 0), "kexec_load"),
            lambda: refused(call("kexec_file_load", -1, -1, 0, 0, 0), "kexec_file_load"),
        ]
    )


@attack()
def the_machine_itself():
    now = struct.pack("qq", 1_000_000_000, 0)
    return all_refused(
        [
            lambda: refused(call("reboot", 0xFEE1DEAD, 672274793, 0, 0), "reboot"),
            lambda: refused(call("clock_settime", 0, now), "clock_settime"),
            lambda: refused(call("sethostname", b"owned", 5), "sethostname"),
            lambda: refused(call("swapon", b"/tmp/nothing", 0), "swapon"),
            lambda: refused(call("acct", b"/tmp/nothing"), "acct"),
            lambda: refused(call("quotactl", 0x800002 << 8, b"/dev/null", 0, None), "quotactl"),
        ]
    )


@attack(harmless=True)
def the_kernels_messages():
    return refused(call("syslog", 3, ctypes.create_string_buffer(100), 100), "syslog(READ_ALL)")


@attack(harmless=True)
def ports_of_devices():
    if not X86:
        raise NotHere("ports")
    return all_refused(
        [lambda: refused(call("iopl", 3), "iopl"), lambda: refused(call("ioperm", 0x80, 1, 1), "ioperm")]
    )


@attack(harmless=True)
def segments_of_its_own():
    return refused(call("modify_ldt", 0, ctypes.create_string_buffer(64), 64), "modify_ldt")


@attack(harmless=True)
def tracing_a_child():
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        return refused(call("ptrace", 16, child, 0, 0), "ptrace(ATTACH)")
    finally:
        os.kill(child, signal.SIGKILL)


@attack(harmless=True)
def the_memory_of_a_child():
    secret = ctypes.create_string_buffer(b"secret")
    child = os.fork()
    if child == 0:
        signal.pause()
    found = ctypes.create_string_buffer(6)
    here, there = struct.pack("QQ", ctypes.addressof(found), 6), struct.pack("QQ", ctypes.addressof(secret), 6)
    try:
        return all_refused(
            [
                lambda: refused(call("process_vm_readv", child, here, 1, there, 1, 0), "process_vm_readv"),
                lambda: refused(call("process_vm_writev", child, here, 1, there, 1, 0), "process_vm_writev"),
                lambda: refused(call("kcmp", os.getpid(), child, 0, 0, 0), "kcmp"),
            ]
        )
    finally:
        os.kill(child, signal.SIGKILL)


@attack(harmless=True)
def a_childs_descriptor():
    _reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        pidfd = call("pidfd_open", child, 0)
        if pidfd < 0:
            return refused(pidfd, "pidfd_open")
        return refused(call("pidfd_getfd", pidfd, writer, 0), "pidfd_getfd")
    finally:
        os.kill(child, signal.SIGKILL)


@attack(harmless=True)
def files_by_their_inode():
    """The "shocker": the root of a file system has inode 2, whatever path hides it."""
    handle = struct.pack("IiII", 8, 1, 2, 0) + bytes(128)
    own = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    folder = os.open("/", os.O_RDONLY)
    mount_id = ctypes.create_string_buffer(8)
    return all_refused(
        [
            lambda: refused(call("name_to_handle_at", folder, b".", own, mount_id, 0), "name_to_handle_at"),
            lambda: refused(call("open_by_handle_at", folder, handle, os.O_RDONLY), "open_by_handle_at"),
        ]
    )


@attack(harmless=True)
def watching_a_file_system():
    return refused(call("fanotify_init", 0, 0), "fanotify_init")


@attack(harmless=True)
def memory_that_the_kernel_does_not_see():
    return refused(call("memfd_secret", 0), "memfd_secret")


@attack(harmless=True)
def another_personality():
    return all_refused(
        [
            lambda f=f: refused(call("personality", f), f"personality({hex(f)})")
            for f in (0x0400000, 0x0040000, 0x0100000)
        ]
    )


def _socket(family, kind, protocol, name):
    try:
        socket.socket(family, kind, protocol).close()
    except OSError as problem:
        return refused(-problem.errno, name, NO_SOCKET)
    raise Through("made a socket of " + name)


@attack(harmless=True)
def a_socket_to_the_hypervisor():
    return all_refused([lambda k=k: _socket(40, k, 0, f"vsock, kind {k}") for k in (1, 2, 5)])


@attack(harmless=True)
def sockets_of_raw_packets():
    return all_refused(
        [
            lambda: _socket(17, 3, 0x0300, "packet"),
            lambda: _socket(2, 3, 255, "raw IPv4"),
            lambda: _socket(2, 3, 1, "raw ICMP"),
            lambda: _socket(10, 3, 58, "raw ICMPv6"),
        ]
    )


@attack(harmless=True)
def sockets_of_the_kernels_ciphers():
    return _socket(38, 5, 0, "alg")


@attack()
def sockets_of_rare_protocols():
    families = {"kcm": 41, "tipc": 30, "rds": 21, "can": 29, "bluetooth": 31, "xdp": 44, "smc": 43, "qipcrtr": 42,
                "nfc": 39, "x25": 9, "ax25": 3, "appletalk": 5, "key": 15, "llc": 26, "caif": 37, "phonet": 35,
                "ib": 27}  # fmt: skip
    attempts = [lambda f=f, k=k, n=n: _socket(f, k, 0, n) for n, f in families.items() for k in (1, 2, 3, 5)]
    for protocol, name in ((262, "mptcp"), (132, "sctp"), (33, "dccp"), (136, "udplite"), (115, "l2tp"), (256, "smc")):
        attempts += [lambda p=protocol, k=k, n=name: _socket(2, k, p, n) for k in (1, 2, 5, 6)]
    return all_refused(attempts)


@attack()
def sockets_of_the_kernels_messages():
    attempts = [
        lambda p=p: _socket(16, 3, p, f"netlink {p}")
        for p in (2, 4, 5, 6, 7, 9, 10, 11, 12, 14, 15, 16, 18, 19, 20, 21)
    ]
    return all_refused(attempts)


def _terminal():
    try:
        master, slave = os.openpty()
    except OSError as problem:
        raise NotHere(f"no terminals here: {problem}") from None
    os.setsid()
    LIBC.ioctl(slave, 0x540E, 0)  # TIOCSCTTY
    return master, slave


@attack()
def typing_into_a_terminal():
    """Also by a number with a bit above the 32 that the kernel looks at, which a naive filter lets through."""
    _, slave = _terminal()
    letter = ctypes.create_string_buffer(b"x")
    return all_refused(
        [
            lambda v=v: refused(call("ioctl", slave, v, letter), f"ioctl({hex(v)})", (*NO, errno.EIO))
            for v in (0x5412, 0x5412 | 1 << 32, 0x5412 | 0xFFFFFFFF << 32, 0x541C, 0x541C | 1 << 32)
        ]
    )


@attack(harmless=True)
def loading_a_line_discipline():
    _, slave = _terminal()
    return refused(call("ioctl", slave, 0x5423, struct.pack("i", 0)), "ioctl(TIOCSETD)", (*NO, errno.EIO))


@attack(harmless=True)
def the_32_bit_table_from_a_64_bit_program():
    """getpid of the 32-bit table, by its own instruction."""
    if not X86:
        raise NotHere("int 0x80")
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(
        b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x48\x98\x5b\xc3"
    )  # push rbx; mov eax,20; int 0x80; cdqe; pop rbx; ret
    function = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    child = os.fork()
    if child == 0:
        result = function()
        os._exit(0 if result > 0 else -result)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) in (signal.SIGSYS, signal.SIGSEGV):
            return f"int 0x80: signal {os.WTERMSIG(status)}"
        raise RuntimeError(f"signal {os.WTERMSIG(status)}")
    return refused(-os.WEXITSTATUS(status), "int 0x80")


@attack(harmless=True)
def a_32_bit_program():
    """It exits with 42; where its calls are refused, it runs into an instruction that kills it."""
    if not X86:
        raise NotHere("32-bit programs")
    code = b"\xb8\x01\x00\x00\x00\xbb\x2a\x00\x00\x00\xcd\x80\xf4"  # mov eax,1; mov ebx,42; int 0x80; hlt
    base = 0x08048000
    header = (
        b"\x7fELF\x01\x01\x01"
        + bytes(9)
        + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    )
    segment = struct.pack("<8I", 1, 0, base, base, 84 + len(code), 84 + len(code), 5, 4096)
    path = tempfile.mkdtemp() + "/small"
    with open(path, "wb") as file:
        file.write(header + segment + code)
    os.chmod(path, 0o755)
    child = os.fork()
    if child == 0:
        try:
            os.execv(path, [path])
        except OSError as problem:
            os._exit(100 + problem.errno)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGSYS, signal.SIGSEGV):
        return f"its call was refused, then signal {os.WTERMSIG(status)}"
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) in (100 + errno.ENOEXEC, 100 + errno.EACCES):
        return f"it was not started: {errno.errorcode[os.WEXITSTATUS(status) - 100]}"
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 42:
        raise Through("a 32-bit program ran")
    raise RuntimeError(f"status {status}")


@attack()
def the_x32_table():
    if not X86:
        raise NotHere("x32")
    child = os.fork()
    if child == 0:
        result = call_number(0x40000000 + 39)
        os._exit(0 if result > 0 else -result)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS:
        return "x32 getpid: killed for it"
    return refused(-os.waitstatus_to_exitcode(status), "x32 getpid")


main()
