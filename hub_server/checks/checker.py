"""One check: installs a wheel into an environment of its own, then has the probe import, load and roll out."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from hub_server.checks import inside
from hub_server.checks.isolate import NOBODY
from hub_server.checks.reports import read_reports
from hub_server.checks.sandbox import Confinement, Ended, Isolation, Limits, base_interpreter, run_confined
from hub_server.checks.tables import CheckStatus
from prime_cli.core.resources import resource_path

_INSIDE = Path(inside.__file__).parent
_MOST_LOG = 64 * 1024
# How the operator's package index is reached. Nothing else of the hub's own environment gets into a check.
_INDEX_VARIABLES = (
    "UV_", "SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy",
    "no_proxy",
)  # fmt: skip
_NOT_FOR_CHECKS = ("UV_PUBLISH", "UV_PROJECT", "UV_PYTHON", "UV_CACHE_DIR", "UV_TOOL")


@dataclass(frozen=True)
class Subject:
    """What is checked: a wheel on this disk, of the environment `name`."""

    wheel: Path
    name: str
    requires_python: str | None


@dataclass(frozen=True)
class CheckSettings:
    """How checks are run on this machine; the folders in `hidden` hold what no check may see."""

    isolation: Isolation
    network: bool = False
    install_s: float = 600
    probe_s: float = 180
    memory_bytes: int = 4 * 1024**3
    hidden: tuple[Path, ...] = ()


@dataclass
class Outcome:
    """What came of a check; `facts` is what the page and the API show."""

    status: CheckStatus
    facts: dict[str, Any] = field(default_factory=dict)
    log: str = ""


class Unusable(Exception):
    """The machine, not the environment, keeps a check from being made."""


def find_uv() -> Path | None:
    """Return uv: beside the hub's interpreter, where the extra `hub` puts it, or on the PATH."""
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    return Path(found).resolve() if found else None


@dataclass(frozen=True)
class Folders:
    """Where a check works: `work` is new; `cache` keeps downloads; both lie in `owners`, which all checks of one owner
    may write. `root` is an empty folder elsewhere.
    """

    owners: Path
    cache: Path
    work: Path
    root: Path


def check(subject: Subject, settings: CheckSettings, folders: Folders, on_tick: Callable[[], None]) -> Outcome:
    """Check one wheel.

    Raises:
        Unusable: uv is missing, or the machine does not let it be isolated.
    """
    unfit = _unfit_python(subject.requires_python)
    if unfit:
        return Outcome(CheckStatus.SKIPPED, {"stage": "install", "reason": unfit})
    work = _Work(settings, folders, on_tick)
    facts: dict[str, Any] = {
        "isolation": settings.isolation.value,
        "network": settings.network,
        "python": ".".join(map(str, sys.version_info[:3])),
        "timings": {},
    }
    problem = work.install(subject.wheel, facts)
    if problem:
        return Outcome(
            CheckStatus.FAILED, {**facts, "stage": "install", "reason": work.without_paths(problem)}, work.log()
        )
    status = work.probe(subject.name.replace("-", "_"), facts)
    for place in (facts, facts.get("rollout", {})):
        if "reason" in place:
            place["reason"] = work.without_paths(place["reason"])
    return Outcome(status, facts, work.log())


class _Work:
    """The steps of one check and the log that they leave."""

    def __init__(self, settings: CheckSettings, folders: Folders, on_tick: Callable[[], None]) -> None:
        self._settings, self._folders, self._on_tick = settings, folders, on_tick
        self._venv, self._home, self._tmp = folders.work / "venv", folders.work / "home", folders.work / "tmp"
        self._log: list[str] = []
        for path in (self._home, self._tmp, folders.root):
            path.mkdir()
        folders.cache.mkdir(exist_ok=True)
        if os.getuid() == 0 and settings.isolation is Isolation.NAMESPACES:
            # Inside the command is nobody; it has to write here, and these are reached through it only.
            for path in (folders.work, self._home, self._tmp, folders.cache):
                os.chown(path, NOBODY, NOBODY)

    def install(self, wheel: Path, facts: dict[str, Any]) -> str:
        """Make the environment and install the wheel with what it needs; return what went wrong, if anything did."""
        uv = find_uv()
        if uv is None:
            raise Unusable("checks need uv: install it beside the hub, or put it on the PATH")
        self._note(f"$ uv pip install {wheel.name}")
        made = self._uv(uv, "venv", "--python", str(base_interpreter()), str(self._venv), wheel=wheel)
        if made.exit_code != 0:
            raise Unusable(f"uv cannot make an environment: {made.output.strip()[-300:]}")
        install = ("pip", "install", "--python", str(self._venv / "bin/python"), str(wheel))
        constraints = resource_path("constraints.txt")
        ended = self._uv(uv, *install, "--constraint", str(constraints), wheel=wheel)
        facts["constrained"] = True
        if ended.exit_code != 0 and ended.stopped_for is None and "unsatisfiable" in ended.output:
            self._note("the versions that prime is tested with do not fit it; once more without them")
            facts["constrained"] = False
            ended = self._uv(uv, *install, wheel=wheel)
        self._note(ended.output)
        facts["timings"]["install_s"] = round(ended.duration_s, 2)
        if ended.stopped_for:
            return ended.stopped_for
        if ended.exit_code != 0:
            return _last_words(ended.output) or f"uv ended with exit code {ended.exit_code}"
        return ""

    def probe(self, module: str, facts: dict[str, Any]) -> CheckStatus:
        """Run the probe in the installed environment and add what it found to the facts."""
        self._note(f"$ python -c 'import {module}; {module}.load_environment()'")
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        confined = self._settings.isolation is Isolation.NAMESPACES
        home = "/home" if confined else str(self._home)
        temporary = "/tmp" if confined else str(self._tmp)  # noqa: S108  one of its own
        ended = run_confined(
            Confinement(
                argv=[
                    str(self._venv / "bin/python"), "-u", str(_INSIDE / "probe.py"), module,
                    "network" if self._settings.network else "offline",
                ],
                environment={
                    "PATH": f"{self._venv / 'bin'}:/usr/bin:/bin", "HOME": home, "TMPDIR": temporary, "LANG": "C.UTF-8",
                    "OMP_NUM_THREADS": "2", **({} if self._settings.network else offline),
                },
                cwd=home,
                root=self._folders.root,
                isolation=self._settings.isolation,
                hidden=self._settings.hidden,
                read_only=[self._venv, _INSIDE],
                network=self._settings.network,
            ),
            Limits(self._settings.probe_s, self._settings.memory_bytes),
            self._on_tick,
        )  # fmt: skip
        self._note(ended.output)
        facts["peak_memory_bytes"] = ended.peak_memory_bytes
        return read_reports(ended, facts)

    def log(self) -> str:
        """Return the last part of what the steps said."""
        return "\n".join(self._log)[-_MOST_LOG:]

    def without_paths(self, text: str) -> str:
        """Return a text without the places of this machine, which are nobody's business."""
        return text.replace(str(self._folders.work), "…")

    def _note(self, text: str) -> None:
        if text.strip():
            self._log.append(self.without_paths(text.rstrip()))

    def _uv(self, uv: Path, *arguments: str, wheel: Path) -> Ended:
        variables = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_INDEX_VARIABLES) and not name.startswith(_NOT_FOR_CHECKS)
        }
        files = [
            Path(value) for name, value in variables.items() if name.startswith("SSL_CERT_") or name.endswith("_FILE")
        ]
        configured = [Path("/etc/uv"), Path.home() / ".config/uv"]
        return run_confined(
            Confinement(
                argv=[str(uv), *arguments, "--no-progress"],
                environment={
                    "PATH": "/usr/bin:/bin", "HOME": str(self._home), "TMPDIR": str(self._tmp), "LANG": "C.UTF-8",
                    **variables,
                    "XDG_CONFIG_HOME": str(Path.home() / ".config"), "UV_CACHE_DIR": str(self._folders.cache),
                },
                cwd=str(self._home),
                root=self._folders.root,
                isolation=self._settings.isolation,
                hidden=self._settings.hidden,
                read_only=[uv, wheel, resource_path("constraints.txt"), *filter(Path.exists, [*files, *configured])],
                # One mount: uv links files out of its cache, which does not go across two.
                writable=[self._folders.owners],
                network=True,
            ),
            Limits(self._settings.install_s, self._settings.memory_bytes),
            self._on_tick,
        )  # fmt: skip


def _unfit_python(requires_python: str | None) -> str:
    """Return why this machine's Python cannot install it, nothing where it can."""
    version = ".".join(map(str, sys.version_info[:3]))
    with contextlib.suppress(InvalidSpecifier):
        if requires_python and version not in SpecifierSet(requires_python):
            return f"it needs Python {requires_python}, and checks run on {version} here"
    return ""


def _last_words(output: str) -> str:
    """Return uv's own sentence about what went wrong."""
    lines = [line.strip(" ×╰─▶├│") for line in output.splitlines() if line.strip()]
    start = next((at for at, line in enumerate(lines) if line.startswith(("error", "No solution", "Failed"))), 0)
    return " ".join(lines[start:])[:1000]
