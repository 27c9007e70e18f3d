"""Makes the wheel of an environment."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from prime_cli.core.errors import PrimeError
from prime_cli.environments.project import EnvironmentProject
from prime_cli.environments.wheel_facts import WheelFacts, read_wheel

_SHOWN_LINES = 12
# A fixed date for files in the wheel: building the same sources again gives the same bytes.
_SOURCE_DATE_EPOCH = "1580601600"


def build_wheel(project: EnvironmentProject) -> WheelFacts:
    """Build the wheel of `project` into its `dist` folder and check that it holds the environment.

    Runs without an isolated build environment, hence without the network, when what the build needs is installed here.

    Raises:
        PrimeError: the build fails (with the last lines that it wrote), or the wheel lacks the module. `dist` is then
            as it was.
    """
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", scratch, str(project.folder.resolve())]
        if all(_is_installed(text) for text in project.build_requires):
            command += ["--no-isolation", "--skip-dependency-check"]
        environment = {"SOURCE_DATE_EPOCH": _SOURCE_DATE_EPOCH, **os.environ}
        process = subprocess.run(command, capture_output=True, text=True, cwd=scratch, env=environment)
        wheels = sorted(Path(scratch).glob("*.whl"))
        if process.returncode != 0 or not wheels:
            lines = [line for line in (process.stdout + process.stderr).splitlines() if line.strip()]
            shown = "\n".join(f"  {line}" for line in lines[-_SHOWN_LINES:])
            raise PrimeError(f"building {project.name} failed\n{shown}", hint="mend pyproject.toml, then build again")
        facts = read_wheel(wheels[0])
        final = project.folder / "dist" / facts.path.name
        final.parent.mkdir(exist_ok=True)
        aside = final.with_name(f".{final.name}.part")
        shutil.copyfile(facts.path, aside)
        os.replace(aside, final)
    return WheelFacts(final, facts.name, facts.version, facts.size_bytes, facts.sha256, facts.metadata)


def _is_installed(text: str) -> bool:
    """Say whether a build requirement is met by the interpreter that runs this tool."""
    try:
        requirement = Requirement(text)
        installed = importlib.metadata.version(requirement.name)
    except (InvalidRequirement, importlib.metadata.PackageNotFoundError):
        return False
    return requirement.specifier.contains(installed, prereleases=True)
