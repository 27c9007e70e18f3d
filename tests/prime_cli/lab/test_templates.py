"""What a workspace is given is true: its commands exist, its configs can be read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from prime_cli.core.config_file import load_config
from prime_cli.core.config_layers import load_layers
from prime_cli.core.resources import resource_path
from prime_cli.evals.endpoints import EndpointsFile
from prime_cli.evals.eval_file import read_eval_file
from prime_cli.gepa.config import GepaConfig
from prime_cli.main import COMMANDS
from prime_cli.rl.resolve import resolve_words
from prime_cli.sft.config import SFTConfig

LAB = resource_path("templates/lab")
PLACEHOLDER = re.compile(r"\s{2,}.*$")


def commands_in(path: Path) -> Iterator[str]:
    """Yield the `prime` commands of a text: those in code spans, and those that stand at the beginning of a line."""
    text = path.read_text()
    yield from re.findall(r"`(prime [a-z][^`]*)`", text)
    yield from (PLACEHOLDER.sub("", line) for line in re.findall(r"^[#\s]*(prime [a-z].*)$", text, re.MULTILINE))


TEXTS = sorted(path for path in LAB.rglob("*") if path.suffix in (".md", ".toml"))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(LAB)))
def test_every_command_that_a_workspace_tells_of_exists_with_its_options(path: Path) -> None:
    for line in commands_in(path):
        words = shlex.split(line)[1:]
        if words[0] == "COMMAND":
            continue
        command: Any = typer.main.get_command(import_module(COMMANDS[words.pop(0)][0]).app)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert not getattr(command, "commands", {}), f"{line}: no such command"
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        known |= {"--help", "--plain", "--output"}
        unknown = [word for word in words if re.match(r"--?[A-Za-z]", word) and word not in known]
        assert not unknown, f"{line}: {command.name} has no {unknown}"


@pytest.mark.parametrize("path", sorted(LAB.glob("configs/rl/*.toml")), ids=lambda path: path.stem)
def test_every_starter_of_a_training_run_is_accepted(path: Path) -> None:
    assert not resolve_words([str(path)]).warnings


@pytest.mark.parametrize("path", sorted(LAB.glob("configs/sft/*.toml")), ids=lambda path: path.stem)
def test_every_starter_of_a_fine_tuning_run_is_accepted(path: Path) -> None:
    load_layers([str(path)], SFTConfig)


@pytest.mark.parametrize("path", sorted(LAB.glob("configs/gepa/*.toml")), ids=lambda path: path.stem)
def test_every_starter_of_a_prompt_optimisation_is_accepted(path: Path) -> None:
    load_config(path, GepaConfig)


@pytest.mark.parametrize("path", sorted(LAB.glob("configs/eval/*.toml")), ids=lambda path: path.stem)
def test_every_starter_of_evaluations_is_accepted(path: Path) -> None:
    plan = read_eval_file(path, {})
    assert plan.requests
    assert not plan.warnings


def test_every_model_that_a_starter_asks_for_is_an_endpoint_or_a_folder() -> None:
    endpoints = {entry.endpoint_id for entry in load_config(LAB / "configs/endpoints.toml", EndpointsFile).endpoint}
    for path in sorted([*LAB.glob("configs/eval/*.toml"), *LAB.glob("configs/gepa/*.toml")]):
        for model in re.findall(r'^(?:reflection_)?model = "([^"]+)"', path.read_text(), re.MULTILINE):
            assert model in endpoints or "/" in model, f"{path.name}: {model}"
