"""The words that all parts of a node share: levels, limits, what a sandbox is asked for and what it got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

MEBIBYTE = 1024**2
GIBIBYTE = 1024**3


class Level(StrEnum):
    """How well a sandbox is kept from the host, weakest first."""

    NONE = "none"  # resource limits of single processes only: trusted code, development
    RESTRICTED = "restricted"  # no host files, no network, seccomp; may exhaust the host
    CONTAINER = "container"  # and cgroups and a uid of its own; one kernel bug is an escape
    GVISOR = "gvisor"  # most system calls never reach the host's kernel

    # All four: the text that a level also is would else be compared by its letters.
    def __lt__(self, other: str) -> bool:
        return self._rank < Level(other)._rank

    def __le__(self, other: str) -> bool:
        return self._rank <= Level(other)._rank

    def __gt__(self, other: str) -> bool:
        return self._rank > Level(other)._rank

    def __ge__(self, other: str) -> bool:
        return self._rank >= Level(other)._rank

    @property
    def _rank(self) -> int:
        return list(Level).index(self)


@dataclass(frozen=True)
class Limits:
    """What one sandbox may use, all its processes together. They are caps, no reservations."""

    cpu_cores: float = 1.0
    memory_bytes: int = GIBIBYTE
    disk_bytes: int = 5 * GIBIBYTE
    inodes: int = 200_000
    processes: int = 512
    open_files: int = 4096  # of one process
    file_bytes: int = 4 * GIBIBYTE  # of one file


class Held(StrEnum):
    """How far a limit is enforced."""

    ENFORCED = "enforced"
    PER_PROCESS = "per process"  # by an rlimit: each process of the sandbox has it for itself
    LOWERED = "lowered"  # enforced at a smaller value, which the report gives
    NOT = "not enforced"


@dataclass(frozen=True)
class Enforcement:
    """What a sandbox really got: its level, and for each limit by name whether and by what it is held."""

    level: Level
    backend: str
    limits: Limits  # the values that are enforced, which may be lower than those that were asked for
    held: Mapping[str, Held] = field(default_factory=dict)  # cpu_cores, memory_bytes, disk_bytes, ...
    notes: Sequence[str] = ()  # one line each, for people


@dataclass(frozen=True)
class Shape:
    """What sandboxes of one pool have in common: an unused one of the same shape is as good as a new one."""

    image: str  # `name:tag` as in the store
    limits: Limits = Limits()


class EndKind(StrEnum):
    """Why a sandbox ended; the first three are errorTypes of the wire too."""

    OOM_KILLED = "OOM_KILLED"
    TIMEOUT = "TIMEOUT"  # of its lifetime
    IMAGE_PULL_FAILED = "IMAGE_PULL_FAILED"
    IDLE = "IDLE"
    DELETED = "DELETED"
    COMMAND_ENDED = "COMMAND_ENDED"  # its start command
    FAILED = "FAILED"  # its agent died or its host went away


@dataclass(frozen=True)
class End:
    """How a sandbox ended."""

    kind: EndKind
    message: str
    exit_code: int | None = None


@dataclass(frozen=True)
class Command:
    """A command to run inside. `env` is added to the sandbox's own; `user` is a name or number of the image."""

    argv: Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    timeout_s: float | None = None  # then the whole tree of the command is killed
    stdin: bool = False  # whether input may be sent; else it reads an empty one


@dataclass(frozen=True)
class Ended:
    """How a command ended. `exit_code` is 128 and the signal's number where one ended it, as shells say."""

    exit_code: int
    signal: int | None = None
    timed_out: bool = False
    oom_killed: bool = False
    cut: bool = False  # it wrote more than the caller wanted, and was killed for it
    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_memory_bytes: int = 0


@dataclass(frozen=True)
class Finished:
    """A command that ran to its end, with what it wrote."""

    ended: Ended
    stdout: bytes
    stderr: bytes

    @property
    def exit_code(self) -> int:
        """Return the command's exit code."""
        return self.ended.exit_code
