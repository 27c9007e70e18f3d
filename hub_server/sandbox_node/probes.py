"""What a host has of what sandboxes need, each thing found out by doing it once and undoing it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hub_server.sandbox_node import seccomp
from hub_server.sandbox_node.errors import SandboxError
from hub_server.sandbox_node.launcher import hierarchies, runtime, system_calls
from hub_server.sandbox_node.specification import Limits

_TRY_WITHIN_S = 20.0
_BUBBLEWRAP_AT_LEAST = (0, 5)
_PROFILE = (
    "abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile bwrap /usr/bin/bwrap flags=(unconfined) {\\n  userns,\\n}\\n"
)
_INSTALLERS = (
    ("apt-get", "apt install"),
    ("dnf", "dnf install"),
    ("pacman", "pacman -S"),
    ("zypper", "zypper install"),
)


class State(StrEnum):
    """What came of a probe."""

    OK = "ok"
    LACKS = "lacks"  # something that sandboxes could use is not there
    NOTE = "note"  # nothing needs it


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: `detail` says what was found, `fix` the command that mends it."""

    name: str
    state: State
    detail: str
    fix: str | None = None


def every_probe(folder: Path) -> list[Finding]:
    """Return all findings, in the order in which one thing rests on another. `folder` is for what probes write."""
    probes: list[tuple[str, Callable[[], Finding]]] = [
        ("system", system), ("privileges", privileges), ("user namespaces", user_namespaces),
        ("bubblewrap", bubblewrap), ("system call filter", system_call_filter), ("control groups", control_groups),
        ("file systems", file_systems), ("agent's Python", lambda: agent_python(folder)), ("KVM", kvm),
        *[(name, lambda name=name: image_program(name)) for name in ("skopeo", "umoci", "mmdebstrap")],  # type: ignore[misc]
    ]  # fmt: skip
    return [_tried(name, probe) for name, probe in probes]


def system() -> Finding:
    """Tell whether the operating system and the architecture are ones for which sandboxes are made."""
    name, machine = platform.system(), platform.machine()
    if name != "Linux":
        fix = "run the node on Linux, or in a Linux virtual machine on this one"
        return Finding("system", State.LACKS, f"{name}: there are no namespaces; only the process backend works", fix)
    if machine not in seccomp.MACHINES:
        return Finding("system", State.LACKS, f"{machine}: there is no system call filter for it")
    return Finding("system", State.OK, f"Linux {platform.release()} on {machine}")


def privileges() -> Finding:
    """Tell whether the node would be root, which gives sandboxes user ids of their own."""
    if os.geteuid() == 0:
        return Finding("privileges", State.OK, "root: every sandbox gets user ids of its own")
    detail = "not root: sandboxes share your user id, and only delegated control groups limit them"
    return Finding("privileges", State.LACKS, detail, "sudo prime sandbox serve")


def user_namespaces() -> Finding:
    """Make a user namespace with a loopback device, as a user who is not root where that can be tried."""
    argv = ["unshare", "--user", "--map-root-user", "--net", "ip", "link", "set", "lo", "up"]
    if shutil.which("ip") is None:
        argv = ["unshare", "--user", "--map-root-user", "--net", "true"]
    if os.geteuid() == 0 and shutil.which("setpriv"):
        argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *argv]
    done = _run(argv)
    if done.returncode == 0:
        return Finding("user namespaces", State.OK, "any user can make them")
    return Finding("user namespaces", State.LACKS, _last_line(done), _user_namespace_fix())


def bubblewrap() -> Finding:
    """Run something in bubblewrap."""
    if shutil.which("bwrap") is None:
        return Finding("bubblewrap", State.LACKS, "not installed", _install("bubblewrap"))
    version = _run(["bwrap", "--version"]).stdout.strip().removeprefix("bubblewrap ")
    if (numbers := _numbers(version)) < _BUBBLEWRAP_AT_LEAST:
        wanted = ".".join(map(str, _BUBBLEWRAP_AT_LEAST))
        return Finding("bubblewrap", State.LACKS, f"{version} is too old; {wanted} or newer is needed")
    done = _run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"])
    if done.returncode != 0:
        return Finding("bubblewrap", State.LACKS, f"{version} does not work: {_last_line(done)}", _user_namespace_fix())
    return Finding("bubblewrap", State.OK, version if numbers else "works")


def system_call_filter() -> Finding:
    """Load the filter in a child and make a call that it refuses."""
    program = seccomp.filter_bytes()
    read_end, write_end = os.pipe()
    with open(write_end, "wb") as file:
        file.write(program)
    try:
        refused = "unshare --user true 2>/dev/null && exit 9; grep -q '^Seccomp:.2' /proc/self/status"
        argv = ["bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--seccomp", str(read_end), "sh", "-c", refused]
        done = _run(argv, keep=read_end)
    finally:
        os.close(read_end)
    if done.returncode == 0:
        return Finding("system call filter", State.OK, f"an allow-list of {len(program) // 8} instructions, enforced")
    what = "loaded but not enforced" if done.returncode == 9 else f"cannot be loaded: {_last_line(done)}"
    return Finding("system call filter", State.LACKS, what, "use a kernel with CONFIG_SECCOMP_FILTER")


def control_groups() -> Finding:
    """Make a control group with limits on memory, processes and processor time."""
    is_root = os.geteuid() == 0
    there = hierarchies.mounted(Path("/proc/self/mountinfo").read_text())
    groups, lacking = hierarchies.find(f"doctor-{uuid.uuid4().hex[:8]}", there, is_root=is_root)
    if groups is None:
        fix = "systemd-run --user --scope -p Delegate=yes prime sandbox serve" if not is_root else None
        return Finding("control groups", State.LACKS, lacking, fix or _controllers_fix(there))
    try:
        groups.open()
        _in_child(lambda: groups.make("probe", Limits()))
        groups.close()
    except OSError as error:
        return Finding("control groups", State.LACKS, f"cannot be made: {error}", _controllers_fix(there))
    return Finding("control groups", State.OK, f"version {groups.version}: memory, processes and processor time")


def file_systems() -> Finding:
    """Lay a limited writable layer over a folder whose owners are mapped, as is done for every sandbox."""
    if os.geteuid() != 0:
        detail = "not tried: images of their own need a node that runs as root"
        return Finding("file systems", State.LACKS, detail, "sudo prime sandbox serve")
    with tempfile.TemporaryDirectory() as folder:
        problem = _in_child(lambda: _lay_over(Path(folder)))
    if problem:
        fix = "use Linux 5.19 or newer, and a data folder on ext4, xfs or btrfs"
        return Finding("file systems", State.LACKS, problem, fix)
    return Finding("file systems", State.OK, "overlays on limited memory, with owners of files mapped")


def agent_python(folder: Path) -> Finding:
    """Copy the node's interpreter as sandboxes get it, and start the copy."""
    made = runtime.prepare(folder)
    # Inside, the folder has another path; here the copy is started from where it lies.
    argv = [word.replace(runtime.INSIDE, str(made.folder)) for word in made.command]
    if argv[-1].endswith(".pyc"):
        argv = argv[:-1]
    done = _run([*argv, "-c", "print('started')"])
    if done.returncode != 0:
        return Finding("agent's Python", State.LACKS, f"the copy does not start: {_last_line(done)}")
    size = sum(path.stat().st_size for path in made.folder.rglob("*") if path.is_file())
    return Finding(
        "agent's Python", State.OK, f"{platform.python_version()}, {size // 2**20} MiB, brought into any image"
    )


def kvm() -> Finding:
    """Tell whether this machine can run virtual machines; no backend needs that yet."""
    flags = re.search(r"^flags.*\b(vmx|svm)\b", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    if os.access("/dev/kvm", os.R_OK | os.W_OK) and (flags or platform.machine() == "aarch64"):
        return Finding("KVM", State.NOTE, "usable; no backend uses it yet")
    return Finding("KVM", State.NOTE, "not usable; no backend uses it yet")


def image_program(name: str) -> Finding:
    """Tell whether a program for images is installed, and what it is for."""
    purposes = {
        "skopeo": "to import and pull images", "umoci": "to import and pull images",
        "mmdebstrap": "to make images of Debian releases",
    }  # fmt: skip
    if shutil.which(name) is None:
        return Finding(name, State.LACKS, f"not installed; it is needed {purposes[name]}", _install(name))
    version = _run([name, "--version"]).stdout
    found = re.search(r"\d+(\.\d+)+", version)
    return Finding(name, State.OK, f"{found[0] if found else 'installed'}, {purposes[name]}")


def _tried(name: str, probe: Callable[[], Finding]) -> Finding:
    try:
        return probe()
    except SandboxError as error:
        return Finding(name, State.LACKS, error.detail, error.hint)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(name, State.LACKS, str(error))


def _lay_over(folder: Path) -> str:
    stage, image = folder / "stage", folder / "image"
    for path in (stage, image):
        path.mkdir()
    (image / "file").write_text("x")
    first = 0x70000000
    users = system_calls.user_namespace(first, f"0 {first} 65536")
    system_calls.keep_mounts_to_ourselves()
    system_calls.mount("tmpfs", str(stage), "tmpfs", 0, "size=1m,nr_inodes=64")
    for name in ("lower", "upper", "work", "root"):
        (stage / name).mkdir()
    system_calls.attach(str(image), str(stage / "lower"), readonly=True, idmap_fd=users)
    layers = f"lowerdir={stage}/lower,upperdir={stage}/upper,workdir={stage}/work"
    system_calls.mount("overlay", str(stage / "root"), "overlay", 0, layers)
    if (stage / "root/file").stat().st_uid != first:
        return "owners of files are not mapped"
    try:
        for number in range(100):
            (stage / "root" / str(number)).touch()
    except OSError:
        return ""
    return "the number of files is not limited"


def _in_child(work: Callable[[], object]) -> str:
    """Do something in a child process, for it changes what this process is; return what went wrong."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = work()
            os.write(write_end, str(said if isinstance(said, str) else "").encode()[:2000])
        except BaseException as error:  # noqa: BLE001 - the child must never return
            os.write(write_end, str(error).encode()[:2000] or b"failed")
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as file:
        said_bytes = file.read()
    os.waitpid(pid, 0)
    return said_bytes.decode(errors="replace")


def _user_namespace_fix() -> str | None:
    """Return the command for the setting that most likely forbids user namespaces here."""
    if _setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        profile = "/etc/apparmor.d/bwrap"
        return f"printf '{_PROFILE}' | sudo tee {profile} && sudo apparmor_parser --replace {profile}"
    if _setting("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if _setting("/proc/sys/user/max_user_namespaces") == "0":
        return "sudo sysctl -w user.max_user_namespaces=15000"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return (
            "run the node on the host, or its container with --privileged "
            "(at least --cap-add SYS_ADMIN, seccomp=unconfined and apparmor=unconfined)"
        )
    return None


def _controllers_fix(there: list[hierarchies.Mounted]) -> str:
    if any(mount.kind == "cgroup2" for mount in there) and not any(mount.kind == "cgroup" for mount in there):
        return "echo '+memory +pids +cpu' | sudo tee /sys/fs/cgroup/cgroup.subtree_control"
    return "boot with systemd.unified_cgroup_hierarchy=1, or mount the controllers memory, pids and cpu"


def _install(package: str) -> str:
    for program, command in _INSTALLERS:
        if shutil.which(program):
            return f"sudo {command} {package}"
    return f"install {package}"


def _setting(path: str) -> str | None:
    with contextlib.suppress(OSError):
        return Path(path).read_text().strip()
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _run(argv: list[str], *, keep: int | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=_TRY_WITHIN_S, stdin=subprocess.DEVNULL,
        pass_fds=() if keep is None else (keep,),
    )  # fmt: skip


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
