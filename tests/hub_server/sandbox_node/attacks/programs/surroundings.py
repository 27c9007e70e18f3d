"""What lies around a job: its rights, the kernel's settings, devices, cgroups, mounts, descriptors, host sockets."""

import errno
import os
import resource
import socket
import stat
import tempfile

from probe import LIBC, Through, all_refused, attack, main, refused_file

DENIED = (errno.EPERM, errno.EACCES, errno.EROFS)
ABSENT_OR_DENIED = (*DENIED, errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV, errno.EIO, errno.EINVAL)
# CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE
ORDINARY_CAPABILITIES = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10))
UNMAPPED = 1 << 24
HARMLESS_DEVICES = {
    (1, 3),
    (1, 5),
    (1, 7),
    (1, 8),
    (1, 9),
    (5, 0),
    (5, 2),
}  # null, zero, full, random, urandom, tty, ptmx


def _status():
    with open("/proc/self/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def _mounts():
    with open("/proc/self/mounts") as file:
        return [line.split()[:4] for line in file]


def _denied(what, action, codes=ABSENT_OR_DENIED):
    """Do it; return how it was denied."""
    try:
        action()
    except OSError as problem:
        if problem.errno in codes:
            return f"{what}: {errno.errorcode[problem.errno]}"
        raise
    raise Through(what)


@attack(harmless=True)
def capabilities():
    """Root inside may own files and become other users of its own namespace; nothing that leads into the kernel."""
    held = {name: int(value, 16) for name, value in _status().items() if name.startswith("Cap")}
    got = {name: hex(value) for name, value in held.items() if value & ~ORDINARY_CAPABILITIES}
    if got:
        raise Through(f"holds {got}")
    return "holds none but ordinary ones: %s" % {name: hex(value) for name, value in held.items()}


@attack(harmless=True)
def gaining_rights_by_starting_a_program():
    if LIBC.prctl(39, 0, 0, 0, 0) != 1:  # PR_GET_NO_NEW_PRIVS
        raise Through("set-uid programs give their rights")
    return "no_new_privs is set"


@attack(harmless=True)
def calls_without_a_filter():
    if _status()["Seccomp"].strip() != "2":
        raise Through("no filter")
    return "a filter is set"


@attack(harmless=True)
def being_root_of_the_host():
    with open("/proc/self/uid_map") as file:
        mapped = [tuple(map(int, line.split())) for line in file]
    if not mapped or any(there < 65536 for _, there, _ in mapped):
        raise Through(f"uid_map is {mapped}")
    return f"uid_map is {mapped}"


@attack(harmless=True)
def being_somebody_of_the_host():
    gone = (errno.EPERM, errno.EINVAL)
    path = tempfile.mkdtemp()
    return all_refused(
        [
            lambda: _denied("setuid", lambda: os.setuid(UNMAPPED), gone),
            lambda: _denied("setgid", lambda: os.setgid(UNMAPPED), gone),
            lambda: _denied("setgroups", lambda: os.setgroups([UNMAPPED]), gone),
            lambda: _denied("chown", lambda: os.chown(path, UNMAPPED, UNMAPPED), gone),
        ]
    )


@attack()
def the_kernels_settings():
    """Those of the whole machine; some others, as pid_max, are a namespace's own."""
    names = [
        "kernel/core_pattern", "kernel/modprobe", "kernel/hotplug", "kernel/poweroff_cmd", "kernel/sysrq",
        "kernel/panic",
        "kernel/randomize_va_space", "kernel/kptr_restrict", "kernel/dmesg_restrict", "kernel/perf_event_paranoid",
        "kernel/threads-max", "kernel/unprivileged_bpf_disabled", "kernel/hostname", "kernel/sched_rt_runtime_us",
        "kernel/usermodehelper/bset", "vm/overcommit_memory", "vm/drop_caches", "vm/panic_on_oom", "vm/mmap_min_addr",
        "fs/suid_dumpable", "fs/protected_symlinks", "fs/protected_hardlinks", "fs/file-max", "fs/pipe-max-size",
        "fs/binfmt_misc/register", "dev/tty/legacy_tiocsti", "user/max_user_namespaces",
    ]  # fmt: skip
    return all_refused([lambda n=n: refused_file("/proc/sys/" + n, os.O_WRONLY, ABSENT_OR_DENIED) for n in names])


@attack()
def the_kernels_levers():
    return all_refused(
        [
            lambda p=p: refused_file(p, os.O_WRONLY, ABSENT_OR_DENIED)
            for p in ("/proc/sysrq-trigger", "/proc/kcore", "/sys/kernel/uevent_helper", "/sys/kernel/mm/ksm/run",
                      "/sys/power/state", "/sys/kernel/debug/tracing/trace_on", "/sys/kernel/profiling", "/proc/mtrr",
                      "/proc/irq/default_smp_affinity", "/proc/bus/pci/devices", "/proc/acpi/wakeup",
                      "/sys/module/kernel/parameters/panic", "/sys/fs/bpf/x")
        ]
    )  # fmt: skip


@attack()
def the_kernels_memory():
    def reads(path):
        def some(descriptor):
            if not os.read(descriptor, 64).strip(b"\0"):
                raise OSError(errno.EACCES, "it is empty")

        return refused_file(path, os.O_RDONLY | os.O_NONBLOCK, (*ABSENT_OR_DENIED, errno.EAGAIN, errno.EBADFD), some)

    paths = (
        "/proc/kcore", "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/vmallocinfo",
        "/proc/slabinfo", "/proc/pagetypeinfo", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats",
        "/proc/keys", "/proc/key-users", "/proc/iomem_raw", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg",
        "/dev/kvm",
        "/dev/vda", "/dev/sda", "/dev/fuse", "/dev/net/tun", "/dev/vsock", "/dev/vhost-vsock", "/dev/loop-control",
        "/dev/loop0", "/dev/uinput", "/dev/userfaultfd", "/dev/hpet", "/dev/rtc0", "/dev/cpu/0/msr", "/dev/tty0",
        "/dev/tty1",
        "/sys/kernel/security/lsm", "/sys/firmware/dmi/tables/DMI", "/sys/kernel/debug/sched", "/sys/kernel/notes",
    )  # fmt: skip
    return all_refused([lambda p=p: reads(p) for p in paths])


@attack(harmless=True)
def addresses_of_the_kernel():
    def addresses(path):
        with open(path) as file:
            shown = {line.split()[0].split("-")[0] for line in file if line.strip()}
        if any(int(address, 16) for address in shown):
            raise Through(path)
        return path + " shows zeros"

    def look(path):
        return addresses(path) if os.path.exists(path) and os.access(path, os.R_OK) else path + " is not there"

    return all_refused([lambda: look("/proc/kallsyms"), lambda: look("/proc/iomem")])


@attack()
def devices():
    """Every device node that can be seen, wherever it lies."""
    found, seen = [], 0
    for top in {"/dev", "/tmp", "/run", "/root", "/home", "/var", "/etc", "/workspace", "/app"}:
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                facts = os.lstat(path)
                if not (stat.S_ISCHR(facts.st_mode) or stat.S_ISBLK(facts.st_mode)):
                    continue
                seen += 1
                number = os.major(facts.st_rdev), os.minor(facts.st_rdev)
                if stat.S_ISBLK(facts.st_mode) or (number not in HARMLESS_DEVICES and not 136 <= number[0] <= 143):
                    found.append(f"{path} {number}")
    if found:
        raise Through("; ".join(found))
    if not seen:
        raise RuntimeError("not even /dev/null is here")
    return f"{seen} devices, all harmless"


@attack(harmless=True)
def making_devices():
    folder = tempfile.mkdtemp()
    wanted = {"mem": (stat.S_IFCHR, 1, 1), "kmsg": (stat.S_IFCHR, 1, 11), "disk": (stat.S_IFBLK, 254, 0),
              "null": (stat.S_IFCHR, 1, 3), "kvm": (stat.S_IFCHR, 10, 232), "tun": (stat.S_IFCHR, 10, 200)}  # fmt: skip
    return all_refused(
        [
            lambda n=n, w=w: _denied("mknod " + n, lambda: os.mknod(folder + "/" + n, w[0] | 0o666, os.makedev(*w[1:])))
            for n, w in wanted.items()
        ]
    )


@attack()
def cgroups():
    """The old way out: a release agent, or another limit, in a cgroup folder that can be written."""
    attempts, places = [], {"/sys/fs/cgroup", "/cgroup"} | {m[1] for m in _mounts() if m[2].startswith("cgroup")}
    for place in places:
        for folder, _, names in os.walk(place):
            attempts.append(
                lambda f=folder: _denied("a cgroup below " + f, lambda: _make_and_remove(f + "/prime-attack"))
            )
            attempts += [
                lambda p=os.path.join(folder, n): refused_file(p, os.O_WRONLY)
                for n in names
                if n in ("release_agent", "notify_on_release", "cgroup.procs", "tasks", "memory.limit_in_bytes",
                         "memory.max", "pids.max", "cpu.max", "cpu.cfs_quota_us", "devices.allow")
            ]  # fmt: skip
            if len(attempts) > 200:
                break
    return all_refused(attempts) or "no cgroup file system can be seen"


def _make_and_remove(folder):
    os.mkdir(folder)
    os.rmdir(folder)


@attack()
def sockets_of_the_host():
    names = [
        "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
        "/run/crio/crio.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify",
        "/run/systemd/journal/socket", "/dev/log", "/run/snapd.socket", "/run/udev/control", "/tmp/.X11-unix/X0",
    ]  # fmt: skip
    for top in ("/run", "/tmp", "/var", "/dev", "/root", "/home", "/etc", "/workspace", "/app"):
        for folder, _, files in os.walk(top):
            names += [p for p in (os.path.join(folder, f) for f in files) if stat.S_ISSOCK(os.lstat(p).st_mode)]

    def reach(path):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            with socket.socket(socket.AF_UNIX, kind) as client:
                try:
                    client.connect(path)
                except OSError as problem:
                    last = problem
                else:
                    raise Through("connected to " + path)
        return f"{path}: {errno.errorcode[last.errno]}"

    return all_refused([lambda n=n: reach(n) for n in dict.fromkeys(names)])


@attack()
def writing_to_the_hosts_programs():
    """Only the permission: nothing is written. What is mounted read-only says EROFS before all else."""
    paths = [os.path.realpath(p) for p in ("/usr/bin/env", "/bin/sh", "/usr/bin/python3", "/lib64/ld-linux-x86-64.so.2",
                                           "/usr/lib/os-release")]  # fmt: skip
    attempts = [lambda p=p: refused_file(p, os.O_WRONLY) for p in paths]
    attempts += [lambda p=p: _denied("chmod " + p, lambda: os.chmod(p, 0o777)) for p in paths if os.path.exists(p)]
    attempts += [lambda p=p: _denied("utime " + p, lambda: os.utime(p)) for p in paths if os.path.exists(p)]
    attempts += [
        lambda f=f: _denied("a file in " + f, lambda: os.close(os.open(f + "/prime-attack", os.O_CREAT | os.O_WRONLY)))
        for f in ("/usr/bin", "/usr/lib", "/usr/local/bin", "/usr/share")
    ]
    attempts.append(lambda: _denied("rename /usr/bin/env", lambda: os.rename("/usr/bin/env", "/usr/bin/env2")))
    attempts.append(lambda: _denied("link /usr/bin/env", lambda: os.link("/usr/bin/env", tempfile.mkdtemp() + "/env"),
                                    (*ABSENT_OR_DENIED, errno.EXDEV)))  # fmt: skip
    return all_refused(attempts)


@attack()
def the_agents_own_files():
    """As CVE-2019-5736 did: overwrite what the host's side starts again."""
    attempts = [lambda: refused_file("/proc/1/exe", os.O_RDONLY), lambda: refused_file("/proc/1/exe", os.O_WRONLY)]
    for folder, _, names in os.walk("/run/prime"):
        attempts += [lambda p=os.path.join(folder, n): refused_file(p, os.O_WRONLY) for n in names[:5]]
        attempts.append(
            lambda f=folder: _denied(
                "a file in " + f, lambda: os.close(os.open(f + "/json.py", os.O_CREAT | os.O_WRONLY))
            )
        )
        if len(attempts) > 100:
            break
    return all_refused(attempts)


@attack()
def descriptors_that_were_left_open():
    """As CVE-2024-21626 did: a folder of the host behind a descriptor, and from there upwards."""
    held = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            held[int(name)] = os.readlink("/proc/self/fd/" + name)
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
    others = {number: target for number, target in held.items() if number > 2 and "pipe:" not in target}
    here = os.getpid()
    others = {number: target for number, target in others.items() if target != f"/proc/{here}/fd"}
    if others:
        raise Through(f"holds {others}")
    strange = {n: t for n, t in held.items() if n <= 2 and not (t.startswith(("pipe:", "socket:")) or t == "/dev/null")}
    if strange:
        raise Through(f"standard descriptors are {strange}")
    if LIBC.fcntl(0, 3) & 3 == os.O_RDWR and held[0].startswith("/"):
        raise Through("stdin can be written")
    return f"holds only {held}"


@attack()
def above_the_root():
    top = os.stat("/")
    for path in ("/..", "/../../../..", "/proc/self/root/..", "/proc/self/cwd/../../../../../..", "/tmp/../../.."):
        found = os.stat(path)
        if (found.st_dev, found.st_ino) != (top.st_dev, top.st_ino):
            raise Through(path + " is not the root")
    return f"{5} ways lead to the same root"


@attack()
def processes_of_the_host():
    seen = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    if 1 not in seen or os.getpid() not in seen:
        raise RuntimeError(f"not even itself is in /proc: {seen}")
    if max(seen) > 5000 or len(seen) > 30:
        raise Through(f"{len(seen)} processes, the last is {max(seen)}")
    return f"sees {seen}"


@attack()
def a_terminal_of_the_host():
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError as problem:
        if problem.errno in (errno.ENXIO, errno.ENOENT, errno.EACCES, errno.EPERM, errno.EIO):
            return "/dev/tty: " + errno.errorcode[problem.errno]
        raise
    raise Through("it has a controlling terminal")


@attack(harmless=True)
def a_core_dump():
    """Through the host's core pattern a crash starts a program of the host, outside."""
    now = resource.getrlimit(resource.RLIMIT_CORE)
    if now != (0, 0):
        raise Through(f"cores may be {now} bytes")
    return _denied("raising RLIMIT_CORE", _raise_core, (errno.EPERM, errno.EINVAL))


def _raise_core():
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
    except ValueError:
        raise OSError(errno.EPERM, "not above the hard limit") from None


main()
