"""What to tell of a process of a run that has ended, or shows no sign of life."""

from __future__ import annotations

from prime_cli.core.errors import ProcessDied
from prime_cli.core.processes import describe_exit, tail
from prime_cli.rl.family import Family, Member, Silent
from prime_cli.rl.run_directory import RunDirectory


class GaveUp(ProcessDied):
    """A process of the run stopped with a reason of its own."""


def death_of(run: RunDirectory, child: Member, code: int) -> ProcessDied:
    """Return the error for a process that ended with `code` before its work was done."""
    own = run.read_failure(child.name)
    if own is not None:
        message, hint = own
        return GaveUp(f"the {child.name} gave up: {message}", hint)
    what = f"the {child.name} process died ({describe_exit(code)})"
    return ProcessDied(f"{what}; its last lines of log:\n{_last_lines(run, child)}", hint=_log_hint(run, child))


def check_life(run: RunDirectory, family: Family) -> None:
    """See that no process is stopped or stuck.

    Raises:
        ProcessDied: one is; says which, and what it did.
    """
    silent = family.silent()
    if silent is not None:
        raise _fell_silent(run, silent)


def _fell_silent(run: RunDirectory, silent: Silent) -> ProcessDied:
    status = run.read_status(silent.member.name)
    doing = f"; what it did then: {status[0]}" if status is not None else ""
    lines = _last_lines(run, silent.member)
    return ProcessDied(f"{silent.words}{doing}; its last lines of log:\n{lines}", hint=_log_hint(run, silent.member))


def _last_lines(run: RunDirectory, child: Member) -> str:
    return "\n".join(f"  {line}" for line in tail(run.log(child.name))) or "  (it wrote nothing)"


def _log_hint(run: RunDirectory, child: Member) -> str:
    return f"the whole log is {run.log(child.name)}"
