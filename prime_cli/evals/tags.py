"""Tags of rollouts: what sorts examples into kinds, so that a score can be told for each kind.

A tag is named by where it stands in a rollout: `task`, `info.difficulty`, `tags`. A name without a dot is also looked
for in `info`. `environment` is the member of a group of environments (`info.env_id`, which the library's EnvGroup
writes). A list gives a rollout several values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

USUAL_TAGS = ("environment", "task", "tags")
"""The tags that every summary looks for."""
ENVIRONMENT = "environment"
_ENVIRONMENT_PATH = "info.env_id"
_LONGEST = 80


def tags_of(rollout: Mapping[str, Any], names: Iterable[str] = USUAL_TAGS) -> dict[str, tuple[str, ...]]:
    """Return the values of those tags that the rollout has, as text."""
    found = {name: tag_values(rollout, name) for name in names}
    return {name: values for name, values in found.items() if values}


def tag_values(rollout: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the values of one tag in a rollout; none where it has no such thing, or something long or structured."""
    path = _ENVIRONMENT_PATH if name == ENVIRONMENT else name
    value = _at(rollout, path.split("."))
    if value is None and "." not in path:
        value = _at(rollout, ["info", path])
    values = value if isinstance(value, list | tuple) else [value]
    texts = (_as_text(one) for one in values)
    return tuple(dict.fromkeys(text for text in texts if text is not None))


def _at(value: Any, path: Iterable[str]) -> Any:
    for key in path:
        if isinstance(value, str) and value.startswith("{"):  # datasets often hold `info` as JSON text
            value = _parsed(value)
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _as_text(value: Any) -> str | None:
    if not isinstance(value, str | int | float) or value == "":
        return None
    text = str(value)
    return text if len(text) <= _LONGEST and "\n" not in text else None
