"""The table of system calls: what a sandbox may ask of the host's kernel, by purpose, and what it may not, and why.

What `ALLOWED` names is done, and what `CONDITIONAL` names where its arguments are as it says. All else fails with
EPERM, as forbidden; `REFUSED` says why for what programs or attackers may want. Calls that are newer than this table
fail with ENOSYS instead, as on a kernel that does not have them: C libraries try a new call first, and only on ENOSYS
the older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NEWEST_CALL = 450  # set_mempolicy_home_node; since 424 all architectures number new calls alike
LOW_32 = 0xFFFFFFFF  # the kernel reads an `int` from the low half of the register alone, so only that may be compared


@dataclass(frozen=True)
class Group:
    """Calls of one purpose, and why they stand where they stand."""

    purpose: str
    why: str
    calls: Sequence[str]


@dataclass(frozen=True)
class Condition:
    """One argument of a call, counted from 0: `argument & mask` must be `value`."""

    argument: int
    mask: int
    value: int


@dataclass(frozen=True)
class Conditional:
    """A call that is allowed when all conditions of one of its alternatives hold."""

    call: str
    why: str
    alternatives: Sequence[Sequence[Condition]]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def every_value_but(argument: int, forbidden: Iterable[int]) -> list[list[Condition]]:
    """Return alternatives that hold for each 32-bit value of the argument but the forbidden ones.

    A comparison of the whole register would be passed by a forbidden number with a bit set above the 32 which the
    kernel looks at; "not equal" does not exist with a mask. So the values are split by their leading bits, and each
    part which holds no forbidden one is allowed as a whole.
    """

    def parts(prefix: int, bits: int, among: list[int]) -> list[list[Condition]]:
        mask = (LOW_32 << (32 - bits)) & LOW_32
        if not among:
            return [[Condition(argument, mask, prefix)]]
        if bits == 32:
            return []
        one = prefix | 1 << (31 - bits)
        return parts(prefix, bits + 1, [value for value in among if not value & (one & ~prefix)]) + parts(
            one, bits + 1, [value for value in among if value & (one & ~prefix)]
        )

    return parts(0, 0, sorted(forbidden))


ALLOWED = [
    Group(
        "files and folders",
        "what they may reach is for the mount namespace and the uid to say",
        _words("""
        open openat openat2 creat close close_range read write readv writev pread64 pwrite64 preadv pwritev preadv2
        pwritev2 lseek truncate ftruncate fallocate fadvise64 readahead sendfile copy_file_range splice tee vmsplice
        fsync fdatasync sync_file_range syncfs stat fstat lstat newfstatat statx statfs fstatfs access faccessat
        faccessat2 getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir rename renameat renameat2 link linkat
        symlink symlinkat readlink readlinkat unlink unlinkat chmod fchmod fchmodat chown fchown lchown fchownat umask
        utime utimes utimensat futimesat getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr
        lsetxattr fsetxattr removexattr lremovexattr fremovexattr fcntl flock dup dup2 dup3 pipe pipe2 inotify_init
        inotify_init1 inotify_add_watch inotify_rm_watch io_setup io_submit io_getevents io_pgetevents io_cancel
        io_destroy
        """),
    ),
    Group(
        "waiting",
        "every event loop stands on them",
        _words("""
        poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd
        eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime
        """),
    ),
    Group(
        "sockets, once they are made",
        "which kinds can be made is decided at `socket`; where they lead, by the network namespace",
        _words("""
        bind connect listen accept accept4 getsockname getpeername getsockopt setsockopt shutdown sendto sendmsg
        sendmmsg recvfrom recvmsg recvmmsg
        """),
    ),
    Group(
        "memory",
        "a process's own; how much is for the memory cgroup to say",
        _words("""
        brk mmap munmap mremap mprotect madvise mincore msync mlock mlock2 mlockall munlock munlockall
        remap_file_pages memfd_create membarrier pkey_alloc pkey_free pkey_mprotect
        """),
    ),
    Group(
        "processes and threads",
        "of its own pid namespace; how many is for the pids cgroup to say",
        _words("""
        fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid getpgid setpgid getpgrp getsid
        setsid set_tid_address set_robust_list get_robust_list futex futex_waitv rseq prctl arch_prctl pidfd_open
        pidfd_send_signal sched_yield sched_getaffinity sched_setaffinity sched_getattr sched_setattr sched_getparam
        sched_setparam sched_getscheduler sched_setscheduler sched_get_priority_max sched_get_priority_min
        sched_rr_get_interval getpriority setpriority ioprio_get ioprio_set getcpu getrlimit setrlimit getrusage times
        """),
    ),
    Group(
        "signals",
        "a pid namespace holds no process of anybody else",
        _words("""
        kill tkill tgkill rt_sigaction rt_sigprocmask rt_sigpending rt_sigsuspend rt_sigtimedwait rt_sigqueueinfo
        rt_tgsigqueueinfo rt_sigreturn sigaltstack pause alarm getitimer setitimer restart_syscall
        """),
    ),
    Group(
        "users and groups",
        "of its own user namespace, in which only ids of its own are mapped",
        _words("""
        getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid setresuid
        setresgid setfsuid setfsgid setgroups capget capset
        """),
    ),
    Group(
        "time",
        "reading it and waiting for it",
        _words("""
        clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time timer_create timer_settime
        timer_gettime timer_getoverrun timer_delete
        """),
    ),
    Group(
        "shared memory, semaphores and message queues",
        "of its own IPC namespace; Python's multiprocessing and databases need them",
        _words("""
        shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink
        mq_timedsend mq_timedreceive mq_notify mq_getsetattr
        """),
    ),
    Group("facts about the machine", "programs look before they start", _words("uname sysinfo getrandom")),
    Group(
        "fences of its own",
        "they can only take rights away from who calls them",
        _words("seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self"),
    ),
]

_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _RAW, _SEQUENCED = 1, 2, 3, 5
_SOCKET_KIND = 0xF  # the kind in a socket's type; SOCK_CLOEXEC and SOCK_NONBLOCK are the other bits
_S_IFMT = 0o170000


def _socket(family: int, kind: int, protocol: int | None) -> list[Condition]:
    parts = [Condition(0, LOW_32, family), Condition(1, _SOCKET_KIND, kind)]
    return parts if protocol is None else [*parts, Condition(2, LOW_32, protocol)]


CONDITIONAL = [
    Conditional(
        "clone",
        "processes and threads, in the namespaces of the caller: in a new user namespace it would be root",
        [[Condition(0, _NEW_NAMESPACES, 0)]],
    ),
    Conditional(
        "socket",
        "TCP, UDP, unix sockets, and asking for the interfaces. Network namespaces do not hold vsock, which leads to "
        "the hypervisor; packet and raw sockets, AF_ALG and the rare protocols are what kernel exploits begin with",
        [
            *(_socket(_AF_UNIX, kind, None) for kind in (_STREAM, _DATAGRAM, _SEQUENCED)),
            *(_socket(family, _STREAM, protocol) for family in (_AF_INET, _AF_INET6) for protocol in (0, 6)),
            *(_socket(family, _DATAGRAM, protocol) for family in (_AF_INET, _AF_INET6) for protocol in (0, 17)),
            *(_socket(_AF_NETLINK, kind, 0) for kind in (_DATAGRAM, _RAW)),
        ],
    ),
    Conditional(
        "socketpair",
        "the kernel makes pairs of unix sockets, and of rare protocols",
        [[Condition(0, LOW_32, _AF_UNIX)]],
    ),
    Conditional(
        "ioctl",
        "all but typing into a terminal as its user (TIOCSTI, and TIOCLINUX, which pastes), taking over the console "
        "(TIOCCONS), and loading a line discipline (TIOCSETD), which several kernel exploits begin with",
        every_value_but(1, [0x5412, 0x541C, 0x541D, 0x5423]),
    ),
    Conditional(
        "personality",
        "asking (0xffffffff), and the plain ones: Linux, its 32-bit naming, the old version number",
        [[Condition(0, LOW_32, value)] for value in (0x0, 0x8, 0x20000, 0x20008, LOW_32)],
    ),
    Conditional(
        "prlimit64", "a process's own limits; the agent's are not for its jobs to lower", [[Condition(0, LOW_32, 0)]]
    ),
    *(
        Conditional(
            call,
            "plain files, named pipes and sockets; no devices",
            [[Condition(mode, _S_IFMT, kind)] for kind in (0, 0o100000, 0o010000, 0o140000)],
        )
        for call, mode in (("mknod", 1), ("mknodat", 2))
    ),
]

REFUSED = [
    Group(
        "new namespaces and mounts",
        "root of a namespace of one's own reaches much more of the kernel, and undoes what is mounted read-only",
        _words("""
        unshare setns mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick
        mount_setattr
        """),
    ),
    Group(
        "other processes' memory and descriptors",
        "the agent is a process of the same user; nobody debugs here",
        _words("ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp"),
    ),
    Group(
        "files by inode",
        "they go past every path, and so past the mount namespace",
        _words("open_by_handle_at name_to_handle_at fanotify_init fanotify_mark"),
    ),
    Group(
        "wide doors into the kernel",
        "large, young, and what many exploits begin with; io_uring also does without asking what this table refuses",
        _words("""
        io_uring_setup io_uring_enter io_uring_register bpf perf_event_open userfaultfd memfd_secret modify_ldt
        """),
    ),
    Group("keys", "keyrings belong to users of the host, not to namespaces", _words("add_key request_key keyctl")),
    Group(
        "the machine itself",
        "for its operator",
        _words("""
        reboot kexec_load kexec_file_load init_module finit_module delete_module swapon swapoff acct quotactl
        quotactl_fd settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname syslog vhangup iopl
        ioperm lookup_dcookie nfsservctl uselib ustat sysfs _sysctl
        """),
    ),
    Group(
        "where memory lies",
        "placing pages on the host's nodes is for the host; libraries go on without",
        _words("mbind set_mempolicy get_mempolicy set_mempolicy_home_node migrate_pages move_pages"),
    ),
]

ABSENT = [
    Group(
        "clone with a structure",
        "a filter cannot look through its pointer at the flags; C libraries fall back to clone when it does not exist",
        _words("clone3"),
    ),
]

DONE_NOTHING = [
    Group(
        "writing out every disk",
        "one sandbox could keep all disks of the host busy; its own files are gone with it. It is told that it is done",
        _words("sync"),
    ),
]
