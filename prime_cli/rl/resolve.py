"""From the files and keys that a user gives to the one resolved configuration of a run.

A file is in the flat schema of Lab when it names a `model` by a text or has [[env]] tables, else in the nested one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prime_cli.core.config_file import read_model, refuse
from prime_cli.core.config_layers import read_layers
from prime_cli.rl.config import RLConfig
from prime_cli.rl.lab_schema import from_lab
from prime_cli.rl.nested_schema import from_nested, is_nested
from prime_cli.rl.remarks import remarks


@dataclass(frozen=True)
class ResolvedRun:
    """What will be run, and what its user should know about the file that asks for it."""

    config: RLConfig
    warnings: list[str]


def resolve_words(words: Sequence[str]) -> ResolvedRun:
    """Read the files and keys of a command line.

    Raises:
        ConfigError: lists everything that is wrong, each with the key as the user wrote it.
    """
    data, source = read_layers(words)
    return resolve(data, source=source)


def resolve(data: Mapping[str, Any], *, source: str) -> ResolvedRun:
    """Resolve what was read from `source`; see `resolve_words`."""
    converted = from_nested(data) if is_nested(data) else from_lab(data)
    config, problems = read_model(converted.data, RLConfig)
    problems = [replace(problem, location=converted.written_as(problem.location)) for problem in problems]
    problems = converted.problems + [problem for problem in problems if problem not in converted.problems]
    if config is None or problems:
        refuse(source, problems)
    return ResolvedRun(config, converted.warnings + remarks(config))
