"""Variables for other processes: from files in the syntax of `.env`, and from `KEY=VALUE` on a command line.

KEY=value                  # ends at a space and a hash
export KEY="a line\\n"      escapes, ${OTHER} and line breaks in double quotes
KEY='as it stands, ${NOT_REPLACED}'
KEY=${OTHER}/path          an earlier key of the file, else a variable of this process; ${OTHER:-else} has a default
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from prime_cli.core.errors import BadInput, ConfigError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENTRY = re.compile(
    r"""[ \t]*(?:export[ \t]+)?(?P<key>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*
    (?: '(?P<single>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*)" | (?P<bare>(?:[^'"\s\#]|(?<==)\#)[^\n]*?|) )
    (?:[ \t]+\#[^\n]*|[ \t]*)(?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_EMPTY = re.compile(r"[ \t]*(?:\#[^\n]*)?(?:\n|\Z)")
_REFERENCE = re.compile(r"\\(?P<escaped>.)|\$\{(?P<name>[^}:]*)(?::-(?P<default>[^}]*))?\}", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "$": "$"}


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables that a file sets.

    Raises:
        ConfigError: the file cannot be read, a line is no assignment, or a `${NAME}` is not set.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the env file {path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}"
        ) from None
    return parse_env(text.replace("\r\n", "\n"), source=str(path), known=os.environ)


def parse_env(text: str, *, source: str, known: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that `text` sets; a `${NAME}` that it does not set itself is looked up in `known`.

    Raises:
        ConfigError: a line is no assignment, or a `${NAME}` is not set; names `source` and the line.
    """
    values: dict[str, str] = {}
    position = 0
    while position < len(text):
        line = text.count("\n", 0, position) + 1
        entry = _EMPTY.match(text, position)
        if entry is None:
            entry = _ENTRY.match(text, position)
            if entry is None:
                raise ConfigError(
                    f"{source}, line {line}: this is no KEY=VALUE",
                    hint="quotes must be closed, and nothing follow them",
                )
            values[entry["key"]] = _value(entry, {**known, **values}, f"{source}, line {line}")
        position = entry.end()
    return values


def _value(entry: re.Match[str], known: Mapping[str, str], where: str) -> str:
    if entry["single"] is not None:
        return entry["single"]
    quoted = entry["double"] is not None

    def replaced(found: re.Match[str]) -> str:
        escaped = found["escaped"]
        if escaped is not None:
            return _ESCAPES.get(escaped, found[0]) if quoted else found[0]
        value = known.get(found["name"]) or found["default"]
        if value is None and found["name"] not in known:
            raise ConfigError(f"{where}: {found[0]} is not set", hint="single quotes keep it as it stands")
        return value or ""

    return _REFERENCE.sub(replaced, entry["double"] if quoted else entry["bare"])


def variables_of_files(paths: Iterable[Path]) -> dict[str, str]:
    """Return what several files set; what comes later wins. See `read_env_file`."""
    return {key: value for path in paths for key, value in read_env_file(path).items()}


def variables_from(words: Iterable[str]) -> dict[str, str]:
    """Return what `KEY=VALUE`, `KEY` (its value here) and paths of env files set; what comes later wins.

    Raises:
        BadInput: a word is none of them, or `KEY` is not set here.
        ConfigError: a file is not as it should be.
    """
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals and _NAME.fullmatch(key):
            values[key] = value
        elif Path(word).is_file():
            values |= read_env_file(Path(word))
        elif not _NAME.fullmatch(word):
            raise BadInput(f"{word!r} is neither KEY=VALUE, nor a KEY, nor a file")
        elif word not in os.environ:
            raise BadInput(f"{word} is not set here", hint=f"export it, or write {word}=VALUE")
        else:
            values[word] = os.environ[word]
    return values
