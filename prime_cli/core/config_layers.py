"""A configuration from several files and from the command line.

    CONFIG                       a TOML file, or one in JSON when its name ends so
    @ FILE                       one more, merged over those before it (the first may be written so, too)
    --table.key VALUE            one key; VALUE as in TOML, a text needs no quotes, None takes a key away; `list.0.key`
                                 reaches into a list
    --key, --no-key              true, false
    --table @ FILE               a file merged into one table

Tables are merged key by key, everything else is replaced as a whole. What comes later wins.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prime_cli.core.config_file import ModelT, read_table, validate_config
from prime_cli.core.errors import ConfigError


def load_layers(words: Sequence[str], model: type[ModelT]) -> ModelT:
    """Read the files and keys that `words` name, in their order, into `model`.

    Raises:
        ConfigError: a file or a key is wrong; says which.
    """
    data, source = read_layers(words)
    return validate_config(data, model, source=source)


def read_layers(words: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Return the merged tables, and the name of the first file for messages.

    Raises:
        ConfigError: a file cannot be read, or a word stands where none may.
    """
    data: dict[str, Any] = {}
    files: list[str] = []
    rest = list(words)
    if rest and not rest[0].startswith(("@", "-")):
        rest.insert(0, "@")
    while rest:
        word = rest.pop(0)
        if word == "@":
            files.append(_following(rest, "@"))
            merge(data, read_table(Path(files[-1])))
        elif word.startswith("--") and len(word) > 2:
            _override(data, word[2:], rest)
        else:
            raise ConfigError(
                f"{word!r} stands where no word may", hint="a further file is `@ FILE`, a key is `--table.key VALUE`"
            )
    return data, files[0] if files else "the command line"


def merge(into: dict[str, Any], over: dict[str, Any]) -> None:
    """Merge `over` into `into`: tables key by key, everything else as a whole."""
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def _override(data: dict[str, Any], key: str, rest: list[str]) -> None:
    key, equals, given = key.partition("=")
    value: Any
    if equals:
        value = _value(given)
    elif rest and rest[0] == "@":
        rest.pop(0)
        value = read_table(Path(_following(rest, f"--{key} @")))
    elif not rest or (rest[0].startswith("--") and len(rest[0]) > 2):
        value = not key.startswith("no-")
        key = key.removeprefix("no-")
    else:
        value = _value(rest.pop(0))
    path = key.replace("-", "_").split(".")
    place: Any = data
    for part in path[:-1]:
        place = _inside(place, part, key)
    last = path[-1]
    if isinstance(place, list):
        _inside(place, last, key)
        place[int(last)] = value
    elif isinstance(value, dict) and isinstance(place.get(last), dict):
        merge(place[last], value)
    else:
        place[last] = value


def _inside(place: Any, part: str, key: str) -> Any:
    if isinstance(place, list):
        if not part.isdigit() or int(part) >= len(place):
            raise ConfigError(f"--{key}: {part!r} is no element of a list of {len(place)}", hint="they count from 0")
        return place[int(part)]
    if isinstance(place, dict) and place.get(part) is None:
        place[part] = {}
    if not isinstance(place, dict) or not isinstance(place[part], dict | list):
        raise ConfigError(f"--{key}: {part!r} is not a table")
    return place[part]


def _following(rest: list[str], after: str) -> str:
    if not rest:
        raise ConfigError(f"`{after}` names no file", hint="write the path of a TOML file behind it")
    return rest.pop(0)


def _value(text: str) -> Any:
    if text == "None":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
