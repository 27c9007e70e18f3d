"""The interpreters: that of this tool, and that of the environments, with what they have installed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

from prime_cli.core.resources import resource_path
from prime_cli.lab.doctor.finding import Finding, Repair
from prime_cli.lab.doctor.surroundings import Surroundings
from prime_cli.lab.installation import Missing
from prime_cli.lab.requirements import EVALUATING, Unmet, installed_versions, of_extra, tested_set, unmet

_OF_VERIFIERS = ("verifiers", "prime-sandboxes", "renderers", "mcp")
_COMPANIONS = _OF_VERIFIERS[1:]
_SUPPORTED = ((3, 10), (3, 13))
_VERSION = "import sys; print(*sys.version_info[:3], sep='.')"


def check_interpreters(around: Surroundings) -> list[Finding]:
    """See that the interpreter of the environments runs, and is of a version that verifiers runs on."""
    ran = around.run([str(around.python), "-c", _VERSION], 30)
    if ran.code != 0:
        last = next(iter(reversed(ran.output.strip().splitlines())), f"exit code {ran.code}")
        message = f"{around.python}, which should run the environments, does not run: {last}"
        hint = f"python3 -m venv {around.python.parent.parent}"
        return [Finding("interpreter", "fails", message, hint)]
    version = ran.output.strip()
    if not _SUPPORTED[0] <= tuple(int(part) for part in version.split(".")[:2]) <= _SUPPORTED[1]:
        message = f"{around.python} is Python {version}; verifiers 0.1.14 runs on 3.10 to 3.13"
        return [Finding("interpreter", "fails", message, "python3.12 -m venv .venv")]
    shared = around.python == around.own_python
    runs = "runs prime and the environments" if shared else f"({around.python}) runs the environments"
    return [Finding("interpreter", "ok", f"Python {version} {runs}")]


def check_environment_packages(around: Surroundings) -> list[Finding]:
    """See that verifiers is there, and its companions are of versions that it works with."""
    versions = installed_versions(around.python)
    missing = unmet([Requirement(text) for text in EVALUATING], versions)
    if missing:
        return [_to_install(around.python, "fails", missing, "environments cannot run")]
    tested = tested_set()
    # Another line of verifiers has companions of its own, of which nothing is known here.
    if unmet([tested["verifiers"]], versions):
        message = (
            f"verifiers {versions['verifiers']} is not the {tested['verifiers'].specifier} that this is tested with"
        )
        return [Finding("packages", "warning", message, _pip(around.python, ["verifiers"]))]
    broken = unmet([tested[name] for name in _COMPANIONS if name in versions], versions)
    if broken:
        return [_to_install(around.python, "fails", broken, "verifiers 0.1.14 does not work with")]
    names = ", ".join(f"{name} {versions[name]}" for name in _OF_VERIFIERS if name in versions)
    return [Finding("packages", "ok", f"environments have {names}")]


def check_own_packages(around: Surroundings) -> list[Finding]:
    """See that what evaluating and training needs is there, in the versions that this is tested with."""
    versions = installed_versions(around.own_python)
    missing = unmet(of_extra("lab"), versions)
    if missing and "torch" not in versions:
        # Gigabytes, and maybe left out on purpose: `--fix` does not install them.
        message = f"{around.own_python} has no torch: training, and serving folders of weights, need it"
        return [Finding("packages", "warning", message, "prime lab setup --prime-rl")]
    if missing:
        return [_to_install(around.own_python, "warning", missing, "training and the viewer lack")]
    others = unmet(
        [requirement for name, requirement in tested_set().items() if name in versions and name not in _OF_VERIFIERS],
        versions,
    )
    if others:
        names = ", ".join(str(each) for each in others)
        hint = _pip(around.own_python, [str(each.requirement) for each in others])
        return [Finding("packages", "warning", f"not the versions that this is tested with: {names}", hint)]
    torch, transformers = versions.get("torch"), versions.get("transformers")
    return [Finding("packages", "ok", f"training has torch {torch}, transformers {transformers}")]


def _to_install(python: Path, level: str, missing: Iterable[Unmet], what: str) -> Finding:
    found = list(missing)
    wanted = [f"{each.requirement.name}{each.requirement.specifier}" for each in found]
    message = f"{what}: {', '.join(str(each) for each in found)}, in {python}"
    repair = Repair(f"installed {', '.join(wanted)}", Missing(python, wanted).install)
    return Finding("packages", "fails" if level == "fails" else "warning", message, _pip(python, wanted), repair)


def _pip(python: Path, requirements: Iterable[str]) -> str:
    words = " ".join(f"'{requirement}'" for requirement in requirements)
    return f"{python} -m pip install {words} -c {resource_path('constraints.txt')}"
