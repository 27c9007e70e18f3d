"""Reads a TOML file into a pydantic model, and says in a user's words what is wrong with it."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from prime_cli.core.errors import ConfigError


class StrictModel(BaseModel):
    """Base of all configuration models: unknown keys are errors, values do not change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


ModelT = TypeVar("ModelT", bound=BaseModel)


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
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = [_describe(detail, model) for detail in error.errors()]
        if len(problems) == 1:
            message, hint = problems[0]
            raise ConfigError(f"{source}: {message}", hint) from None
        lines = [f"{source}: {len(problems)} problems"] + [f"  {message}" for message, _ in problems]
        hint = next((hint for _, hint in problems if hint), None)
        raise ConfigError("\n".join(lines), hint) from None


def _describe(detail: Any, model: type[BaseModel]) -> tuple[str, str | None]:
    location: tuple[str | int, ...] = detail["loc"]
    key = _dotted(location)
    kind = detail["type"]
    if kind == "extra_forbidden":
        known = _field_names(model, location[:-1])
        nearest = difflib.get_close_matches(str(location[-1]), known, n=1)
        hint = f"did you mean `{nearest[0]}`?" if nearest else f"known keys here: {', '.join(sorted(known))}"
        return f"`{key}` is not a known key", hint
    if kind == "missing":
        return f"`{key}` is required", None
    if kind == "value_error":
        text = str(detail["msg"]).removeprefix("Value error, ")
        return (f"`{key}`: {text}" if key else text), None
    shown = repr(detail["input"])
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    expected = str(detail["msg"])[:1].lower() + str(detail["msg"])[1:]
    return f"`{key}`: {expected}, found {shown}", None


def _dotted(location: tuple[str | int, ...]) -> str:
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
