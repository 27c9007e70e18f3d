"""All checks, several at a time, and what can safely be done about what they find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from prime_cli.core.errors import PrimeError
from prime_cli.lab.doctor.configs import check_configs
from prime_cli.lab.doctor.endpoints import check_endpoints
from prime_cli.lab.doctor.finding import Finding
from prime_cli.lab.doctor.hub import check_hub, check_sandboxes, check_settings
from prime_cli.lab.doctor.interpreters import check_environment_packages, check_interpreters, check_own_packages
from prime_cli.lab.doctor.machine import check_disk, check_gpu, check_isolation, check_vllm
from prime_cli.lab.doctor.surroundings import Surroundings
from prime_cli.lab.doctor.workspace import check_environments, check_files, check_git

Check = Callable[[Surroundings], list[Finding]]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("interpreter", check_interpreters),
    ("packages", check_environment_packages),
    ("packages", check_own_packages),
    ("workspace", check_files),
    ("configs", check_configs),
    ("environments", check_environments),
    ("endpoints", check_endpoints),
    ("hub", check_hub),
    ("hub", check_settings),
    ("sandboxes", check_sandboxes),
    ("gpu", check_gpu),
    ("vllm", check_vllm),
    ("disk", check_disk),
    ("isolation", check_isolation),
    ("git", check_git),
)
_AT_ONCE = 6


def examine(around: Surroundings, checks: Sequence[tuple[str, Check]] = CHECKS) -> list[Finding]:
    """Make all checks, several at a time, and return what they found in their order."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda named: _one(named[0], named[1], around), checks))
    return [finding for findings in found for finding in findings]


def mend(findings: Sequence[Finding], say: Callable[[str], None]) -> list[str]:
    """Do what is safe about the findings; return what was done, and say what could not be."""
    done = []
    for finding in findings:
        if finding.repair is None:
            continue
        try:
            finding.repair.carry_out()
        except (PrimeError, OSError) as error:
            say(f"could not mend {finding.check}: {error}")
        else:
            done.append(finding.repair.does)
    return done


def _one(name: str, check: Check, around: Surroundings) -> list[Finding]:
    try:
        return check(around)
    except PrimeError as error:
        return [Finding(name, "fails", error.message.splitlines()[0], error.hint)]
