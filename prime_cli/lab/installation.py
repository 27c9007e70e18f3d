"""Installs what a workspace's interpreter lacks, held to the versions that this tool is tested with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from prime_cli.core.errors import PrimeError
from prime_cli.environments.installed import inspect_interpreter
from prime_cli.environments.installer import choose_installer
from prime_cli.lab.requirements import EVALUATING, installed_versions, unmet


@dataclass(frozen=True)
class Missing:
    """Requirements that `python` does not meet."""

    python: Path
    requirements: list[str]

    def install(self) -> None:
        """Install them.

        Raises:
            PrimeError: the installer failed, with its own last lines.
        """
        try:
            installer = choose_installer(self.python, has_pip=inspect_interpreter(self.python, "pip").has_pip)
            installer.install(*self.requirements)
        except PrimeError as error:
            hint = error.hint or "`prime lab setup --skip-install` goes on without; evaluations need it later"
            raise PrimeError(error.message, hint) from None


def missing_for_evaluating(python: Path) -> Missing:
    """Return what environments need and `python` lacks.

    Raises:
        PrimeError: the interpreter does not run.
    """
    wanted = [Requirement(text) for text in EVALUATING]
    return Missing(python, [str(each.requirement) for each in unmet(wanted, installed_versions(python))])
