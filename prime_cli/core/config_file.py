"""Reads a TOML file into a pydantic model, and says in a user's words what is wrong with it."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from prime_cli.core.errors import ConfigError


class StrictModel(BaseModel):
    """Base of all configuration models: unknown keys are errors, values do not change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True)
class Problem:
    """What is wrong with a configuration: the key (dotted, empty for no one key), the reason, and what may help."""

    location: str
    reason: str
    hint: str | None = None

    def __str__(self) -> str:
        """Return the line that a user reads."""
        if not self.location:
            return self.reason
        return f"`{self.location}`{' ' if self.reason.startswith('is ') else ': '}{self.reason}"


class ImpossibleSettings(ValueError):
    """Raised by a model whose keys are right one by one and cannot work together; names each such combination."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = list(problems)


def read_table(path: Path) -> dict[str, Any]:
    """Read a TOML file, or one in JSON when its name ends so.

    Raises:
        ConfigError: there is no such file, or it is neither.
    """
    if path.suffix != ".json":
        return read_toml(path)
    try:
        found = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} holds no object", hint="a configuration in JSON is one object")
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: there is no such file, or it is not TOML.
    """
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"no such file: {path}", hint="give the path of a TOML file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder", hint="give the path of a TOML file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file", hint="TOML is UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def load_config(path: Path, model: type[ModelT]) -> ModelT:
    """Read `path` into `model`.

    Raises:
        ConfigError: with the path of each wrong key and what was expected there.
    """
    return validate_config(read_toml(path), model, source=str(path))


def validate_config(data: dict[str, Any], model: type[ModelT], *, source: str) -> ModelT:
    """Validate `data` against `model`; `source` names the file in the message."""
    found, problems = read_model(data, model)
    if found is None:
        refuse(source, problems)
    return found


def read_model(data: dict[str, Any], model: type[ModelT]) -> tuple[ModelT | None, list[Problem]]:
    """Return `data` as a `model`, or None and all that is wrong with it."""
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        return None, [problem for detail in error.errors() for problem in _problems(detail, model)]


def refuse(source: str, problems: Sequence[Problem]) -> NoReturn:
    """Raise the ConfigError that names `source` and lists all `problems`."""
    if len(problems) == 1:
        raise ConfigError(f"{source}: {problems[0]}", problems[0].hint)
    lines = [f"{source}: {len(problems)} problems"] + [f"  {problem}" for problem in problems]
    hint = next((problem.hint for problem in problems if problem.hint), None)
    raise ConfigError("\n".join(lines), hint)


def unknown_key(location: str, key: str, known: Sequence[str]) -> Problem:
    """Return the problem of a key that nothing reads, with the nearest of those that are known beside it."""
    nearest = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean `{nearest[0]}`?" if nearest else f"known keys here: {', '.join(sorted(known))}"
    return Problem(location, "is not a known key", hint)


def _problems(detail: Any, model: type[BaseModel]) -> list[Problem]:
    location: tuple[str | int, ...] = detail["loc"]
    key = dotted(location)
    kind = detail["type"]
    if kind == "extra_forbidden":
        return [unknown_key(key, str(location[-1]), _field_names(model, location[:-1]))]
    if kind == "missing":
        return [Problem(key, "is required")]
    if kind == "value_error":
        raised = detail["ctx"]["error"]
        if isinstance(raised, ImpossibleSettings):
            return [Problem(".".join(filter(None, (key, p.location))), p.reason, p.hint) for p in raised.problems]
        return [Problem(key, str(detail["msg"]).removeprefix("Value error, "))]
    shown = repr(detail["input"])
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    expected = str(detail["msg"])[:1].lower() + str(detail["msg"])[1:]
    return [Problem(key, f"{expected}, found {shown}")]


def dotted(location: Sequence[str | int]) -> str:
    """Return the name of a key as a file's reader would write it: `env[0].args`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text


def _field_names(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """Return the keys that the table at `location` knows, aliases included."""
    current: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, int) or current is None:
            continue
        field = next((f for name, f in current.model_fields.items() if part in (name, f.alias)), None)
        current = table_model(field.annotation) if field else None
    if current is None:
        return []
    return [field.alias or name for name, field in current.model_fields.items()]


def table_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside a field's type (`Model`, `list[Model]`, `Model | None`), or None when there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = table_model(argument)
        if found is not None:
            return found
    return None
