"""Tools that other people publish, in environments of their own, and run as their users run them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.running_hub import RunningHub

INSTALLERS = ("pip", "uv", "twine", "keyring", "keyrings.alt")
# Both generations of the published client. The older one does not start with newer releases of its own libraries.
CLIENTS = {
    "0.18.0": ("prime==0.18.0",),
    "0.6.26": (
        "prime==0.6.26",
        "prime-sandboxes==0.2.39",
        "verifiers==0.2.1",
        "prime-traces==0.0.2",
        "prime-evals==0.2.3",
        "prime-tunnel==0.1.10",
    ),
}
# Where nothing listens: a request to any other host than the hub's own fails at once.
NOWHERE = "http://127.0.0.1:9"
_OF_WHOEVER_RUNS_THE_TESTS = ("UV_", "PIP_", "TWINE_", "PRIME_", "VIRTUAL_ENV", "NETRC", "PYTHON_KEYRING")


def installed(cache: Path, *requirements: str, uv: Path | None = None) -> Path:
    """Return the bin folder of an environment with `requirements`, which is made once and kept in `cache`.

    Skips the test where they cannot be installed, with what the installer said.
    """
    name = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()[:16]
    folder = cache / name
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists() or not (folder / "bin" / "python").exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=False)
            python = str(folder / "bin" / "python")
            command = [uv, "pip", "install", "--python", python, "--compile-bytecode"] if uv else [
                sys.executable, "-m", "pip", "--python", python, "install"
            ]  # fmt: skip
            done = subprocess.run([*command, "--quiet", *requirements], capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(folder, ignore_errors=True)
                said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
                pytest.skip(f"{requirements[0]} cannot be installed from the index: {said}")
            (folder / "complete").touch()
    return folder / "bin"


def run(*command: object, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a tool without the settings of whoever runs the tests."""
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=120, check=False, cwd=folder,
        stdin=subprocess.DEVNULL,
        env={**_inherited(), "UV_NO_CONFIG": "1", "PIP_CONFIG_FILE": os.devnull, **environment},
    )  # fmt: skip


@dataclass
class PublishedClient:
    """A published client of a user, in a workspace with an environment of its own, with only its URLs changed."""

    hub: RunningHub
    generation: str
    prime: Path
    uv: Path
    workspace: Path
    key: str = ""

    @property
    def python(self) -> Path:
        """The interpreter of the workspace, which sees the client too: the older one installs where it runs itself."""
        return self.workspace / ".venv" / "bin" / "python"

    @property
    def command(self) -> list[str]:
        """The console script, as the interpreter of the workspace runs it."""
        return [str(self.python), str(self.prime)]

    def environment(self, *, online: bool = False) -> dict[str, str]:
        """What the client runs in: a home of its own and the hub's URLs; `online` lets it reach more than the hub."""
        elsewhere = {} if online else {"HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1"}
        urls = ("API_BASE_URL", "FRONTEND_URL", "INFERENCE_URL", "TRACES_URL")
        return {
            **_inherited(), **elsewhere, **{f"PRIME_{name}": self.hub.url for name in urls},
            **({"PRIME_API_KEY": self.key} if self.key else {}),
            "PRIME_DISABLE_VERSION_CHECK": "1", "HOME": str(self.workspace), "COLUMNS": "500",
            "VIRTUAL_ENV": str(self.workspace / ".venv"), "UV_NO_CONFIG": "1",
            "UV_CACHE_DIR": str(self.prime.parents[2] / "uv"), "PATH": f"{self.uv.parent}:{os.environ['PATH']}",
        }  # fmt: skip

    def attempt(
        self, *arguments: str, folder: Path | None = None, online: bool = False, answers: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the client, whatever comes of it."""
        return subprocess.run(
            [*self.command, *arguments], capture_output=True, text=True, timeout=120, check=False,
            cwd=folder or self.workspace, env=self.environment(online=online), input=answers,
        )  # fmt: skip

    def prints(self, *arguments: str, folder: Path | None = None, online: bool = False) -> str:
        """Run a command that must succeed, and return what it prints."""
        done = self.attempt(*arguments, folder=folder, online=online)
        assert done.returncode == 0, f"prime {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def refused(self, *arguments: str, online: bool = False) -> str:
        """Run a command that must end with exit code 1, and return all that it says."""
        done = self.attempt(*arguments, online=online)
        assert done.returncode == 1, f"prime {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def write_environment(self, name: str, version: str = "0.1.0", *, code: str = "", dependencies: str = "[]") -> Path:
        """Write an environment of the workspace and return its folder."""
        module = name.replace("-", "_")
        folder = self.workspace / "environments" / module
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "{name}"\nversion = "{version}"\ndescription = "Adds numbers"\n'
            f'tags = ["math"]\nrequires-python = ">=3.10"\ndependencies = {dependencies}\n\n'
            '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n\n'
            f'[tool.hatch.build]\ninclude = ["{module}.py", "pyproject.toml"]\n\n'
            "[tool.hatch.metadata]\nallow-direct-references = true\n"
        )
        (folder / "README.md").write_text(f"# {name}\n")
        (folder / f"{module}.py").write_text(code or f"def load_environment():\n    return '{name} {version}'\n")
        return folder

    def loads(self, name: str) -> str:
        """Return what the installed environment's `load_environment` returns, or why it cannot be imported."""
        module = name.replace("-", "_")
        done = run(self.python, "-c", f"import {module}; print({module}.load_environment())")
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def make_client(hub: RunningHub, generation: str, prime: Path, uv: Path, workspace: Path, key: str) -> PublishedClient:
    """Return a client whose workspace has a fresh interpreter beside the client's own packages."""
    client = PublishedClient(hub, generation, prime, uv, workspace, key)
    venv.create(workspace / ".venv", with_pip=False)
    (packages,) = (workspace / ".venv" / "lib").glob("python*/site-packages")
    (theirs,) = prime.parents[1].glob("lib/python*/site-packages")
    (packages / "client.pth").write_text(f"{theirs}\n")
    return client


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_OF_WHOEVER_RUNS_THE_TESTS)}
