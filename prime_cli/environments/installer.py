"""Runs pip or uv for the workspace's interpreter."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prime_cli.core.errors import PrimeError
from prime_cli.core.resources import resource_path

Tool = Literal["pip", "uv"]
_SHOWN_LINES = 12


@dataclass(frozen=True)
class Installer:
    """How packages get into `python`.

    `prefix` is the command up to `install`; `constrained` holds installs to the versions that this tool is tested with.
    """

    tool: Tool
    python: Path
    prefix: tuple[str, ...]
    constrained: bool = True
    prerelease: bool = False

    def install(self, *requirements: str, extra_index_url: str | None = None, replace: str | None = None) -> None:
        """Install requirements; what already meets them stays as it is.

        Args:
            replace: name of the one distribution among them whose installed copy has this version but other bytes.

        Raises:
            PrimeError: the installer failed, with its own last lines.
        """
        options: list[str] = []
        if self.constrained:
            options += ["--constraint", str(resource_path("constraints.txt"))]
        if extra_index_url:
            options += ["--extra-index-url", extra_index_url]
        if self.tool == "uv":
            options += ["--prerelease=allow"] * self.prerelease
            options += ["--reinstall-package", replace] if replace else []
            self._run("install", *options, *requirements)
            return
        always = ["--disable-pip-version-check", "--no-input"]
        self._run("install", *always, *options, *["--pre"] * self.prerelease, *requirements)
        if replace:
            # pip keeps an installed copy of the same version, whatever its bytes; only this makes it look again.
            self._run("install", *always, "--no-deps", "--force-reinstall", *requirements)

    def install_editable(self, folder: Path, *, isolated: bool) -> None:
        """Install the project in `folder` so that edits of its files take effect at once."""
        options = [] if isolated else ["--no-build-isolation"]
        self.install(*options, "--editable", str(folder))

    def uninstall(self, distribution: str) -> None:
        """Remove a distribution."""
        self._run("uninstall", *(["--yes"] if self.tool == "pip" else []), distribution)

    def _run(self, action: str, *arguments: str) -> None:
        where = ["--python", str(self.python)] if self.tool == "uv" else []
        process = subprocess.run([*self.prefix, action, *where, *arguments], capture_output=True, text=True)
        if process.returncode != 0:
            lines = [line for line in process.stderr.splitlines() or process.stdout.splitlines() if line.strip()]
            shown = "\n".join(f"  {line}" for line in lines[-_SHOWN_LINES:])
            raise PrimeError(f"{self.tool} {action} failed\n{shown}")


def choose_installer(
    python: Path, *, has_pip: bool, tool: Tool | None = None, constrained: bool = True, prerelease: bool = False
) -> Installer:
    """Choose uv when it is there, else pip: the interpreter's own, else that of this tool pointed at it.

    Raises:
        PrimeError: neither is there, or not the one asked for.
    """
    uv = shutil.which("uv")
    if tool == "uv" and uv is None:
        raise PrimeError("uv is not on the PATH", hint="install it, or use `--with pip`")
    if uv is not None and tool != "pip":
        return Installer("uv", python, (uv, "pip"), constrained, prerelease)
    if has_pip:
        return Installer("pip", python, (str(python), "-m", "pip"), constrained, prerelease)
    if importlib.util.find_spec("pip") is not None:
        prefix = (sys.executable, "-m", "pip", "--python", str(python))
        return Installer("pip", python, prefix, constrained, prerelease)
    raise PrimeError(
        f"there is neither uv nor pip to install into {python}", hint=f"run `{python} -m ensurepip`, or install uv"
    )
