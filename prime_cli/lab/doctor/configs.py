"""The configuration files: each read as its command would read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from prime_cli.core.config_file import load_config
from prime_cli.core.config_layers import load_layers
from prime_cli.core.errors import ConfigError, PrimeError
from prime_cli.environments.installed import inspect_interpreter
from prime_cli.environments.resolve import parse_environment_id
from prime_cli.environments.workspace import local_environment_folder
from prime_cli.evals.eval_file import read_eval_file
from prime_cli.gepa.config import GepaConfig
from prime_cli.lab.doctor.finding import Finding
from prime_cli.lab.doctor.surroundings import Surroundings
from prime_cli.rl.resolve import resolve_words
from prime_cli.sft.config import SFTConfig


def _environments_of_rl(path: Path) -> list[str]:
    return [environment.id for environment in resolve_words([str(path)]).config.env]


def _environments_of_sft(path: Path) -> list[str]:
    data = load_layers([str(path)], SFTConfig).data
    return [data.env] if data.env else []


def _environments_of_eval(path: Path) -> list[str]:
    return [request.environment for request in read_eval_file(path, {}).requests]


def _environments_of_gepa(path: Path) -> list[str]:
    return [environment.id for environment in load_config(path, GepaConfig).env]


READERS: dict[str, Callable[[Path], list[str]]] = {
    "rl": _environments_of_rl,
    "sft": _environments_of_sft,
    "eval": _environments_of_eval,
    "gepa": _environments_of_gepa,
}
"""What reads the files of each folder of configs/ and returns the environments that they name."""


def check_configs(around: Surroundings) -> list[Finding]:
    """Read every file; say which would be refused, and why, and which name environments that are not here."""
    findings, good = [], 0
    wanted: dict[str, list[str]] = {}
    for folder, reader in READERS.items():
        for path in sorted((around.workspace / "configs" / folder).glob("*.toml")):
            name = str(path.relative_to(around.workspace))
            try:
                for environment in reader(path):
                    wanted.setdefault(environment, []).append(name)
                good += 1
            except ConfigError as error:
                message = " ".join(error.message.replace(str(path), name).split())
                findings.append(Finding("configs", "fails", message, error.hint))
    if good:
        findings.append(Finding("configs", "ok", f"{good} file{'s' * (good > 1)} can be read"))
    return [*findings, *_not_here(wanted, around)]


def _not_here(wanted: dict[str, list[str]], around: Surroundings) -> list[Finding]:
    """Return one finding for all environments that are named and neither here, nor installed, nor on a hub."""
    installed = inspect_interpreter(around.python).distributions
    absent = [name for name in wanted if not _is_here(name, around.workspace, installed)]
    if not absent:
        return []
    named = ", ".join(f"{name} ({wanted[name][0]})" for name in absent)
    template = f" --template {absent[0]}" if absent[0] in _TEMPLATES else ""
    return [Finding("configs", "warning", f"named, and not here: {named}", f"prime env init {absent[0]}{template}")]


_TEMPLATES = ("reverse-text", "guess-letter", "look-up", "code-tests")


def _is_here(name: str, workspace: Path, installed: Iterable[str]) -> bool:
    if name.startswith((".", "/", "~")):
        return Path(name).expanduser().is_dir()
    try:
        identity = parse_environment_id(name)
    except PrimeError:
        return False
    # One with an owner is installed from its hub when it is asked for.
    here = local_environment_folder(identity.name, workspace / "environments") is not None
    return here or identity.owner is not None or identity.distribution in installed
