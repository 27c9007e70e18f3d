"""Rules that say what becomes of the keys of one schema in another: moved, ignored with a warning, or refused.

A rule stands under the dotted name of a key, or of a table for all that is in it. Every key meets a rule, is kept as it
is, or is reported as unknown; none is dropped unseen.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prime_cli.core.config_file import Problem, unknown_key


@dataclass(frozen=True)
class Goes:
    """The value is that of the key `to`; `warning` says what is different there."""

    to: str
    warning: str | None = None


@dataclass(frozen=True)
class Ignored:
    """The key does nothing here, for this reason; the user is told."""

    reason: str


@dataclass(frozen=True)
class Refused:
    """The key asks for something that is not to be had here, and going on without it would be another run."""

    reason: str


@dataclass(frozen=True)
class Only:
    """These values are what happens here anyway; any other is refused."""

    values: tuple[Any, ...]
    reason: str


@dataclass
class Conversion:
    """A configuration on its way from one schema to another.

    Attributes:
        data: what it is by now.
        origins: the key that the user wrote, by the key that it became.
    """

    data: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)

    def set(self, to: str, value: Any, origin: str) -> None:
        """Write `value` under the dotted key `to`; a table is merged into one that is there, key by key.

        Two keys of the user that become one and differ are a problem.
        """
        *tables, last = to.split(".")
        place = self.data
        for table in tables:
            below = place.setdefault(table, {})
            if not isinstance(below, dict):
                return  # the model says that this is no table
            place = below
        if isinstance(value, dict) and isinstance(place.get(last), dict):
            for key, inner in value.items():
                self.set(f"{to}.{key}", inner, f"{origin}.{key}")
            return
        if last in place and place[last] != value:
            other = self.origins.get(to, to)
            self.problems.append(Problem(origin, f"is {value!r} and `{other}` is {place[last]!r}; give one of them"))
            return
        place[last] = copy.deepcopy(value)
        self.origins[to] = origin

    def default(self, to: str, value: Any) -> None:
        """Write `value` under `to` where nothing stands there yet."""
        place: Any = self.data
        for part in to.split("."):
            if not isinstance(place, dict) or part not in place:
                break
            place = place[part]
        else:
            return
        self.set(to, value, to)

    def warn(self, text: str) -> None:
        """Tell the user something that does not keep the run from starting."""
        if text not in self.warnings:
            self.warnings.append(text)

    def refuse(self, location: str, reason: str) -> None:
        """Keep the run from starting, with a reason."""
        self.problems.append(Problem(location, reason))

    def written_as(self, location: str) -> str:
        """Return the name that the user wrote for the key that is now called `location`."""
        parts = location.replace("[", ".[").split(".")
        for count in range(len(parts), 0, -1):
            found = self.origins.get(".".join(parts[:count]).replace(".[", "["))
            if found is not None:
                return ".".join([found, *parts[count:]]).replace(".[", "[")
        return location


Rule = Goes | Ignored | Refused | Only | Callable[[Any, str, Conversion], None]
"""What becomes of a key. A function gets the value, the name of the key, and the conversion that it adds to."""

Rules = Mapping[str, Rule]


def convert(source: Mapping[str, Any], rules: Rules, into: Conversion, *, keep_others: bool, prefix: str = "") -> None:
    """Apply `rules` to every key of `source`; others are kept as they are, or reported.

    `prefix` stands before the names of the keys in what the user is told.
    """
    _keep_or_report(source, rules, into, keep_others, prefix, "")
    _apply(source, rules, into, prefix, "")


def _keep_or_report(
    source: Mapping[str, Any], rules: Rules, into: Conversion, keep: bool, prefix: str, path: str
) -> None:
    for key, value in source.items():
        here = f"{path}{key}"
        if here in rules:
            continue
        inside = [name for name in rules if name.startswith(f"{here}.")]
        if inside and isinstance(value, Mapping):
            if keep:
                into.set(here, {}, f"{prefix}{here}")
            _keep_or_report(value, rules, into, keep, prefix, f"{here}.")
        elif keep:
            into.set(here, value, f"{prefix}{here}")
        elif inside:
            into.refuse(f"{prefix}{here}", f"is a table, found {value!r}")
        else:
            into.problems.append(unknown_key(f"{prefix}{here}", str(key), sorted(_known(rules, path))))


def _known(rules: Iterable[str], path: str) -> set[str]:
    return {name.removeprefix(path).split(".")[0] for name in rules if name.startswith(path)}


def _apply(source: Mapping[str, Any], rules: Rules, into: Conversion, prefix: str, path: str) -> None:
    for key, value in source.items():
        here = f"{path}{key}"
        rule = rules.get(here)
        if rule is not None and value is not None:
            _apply_rule(rule, value, f"{prefix}{here}", into)
        elif rule is None and isinstance(value, Mapping):
            _apply(value, rules, into, prefix, f"{here}.")


def _apply_rule(rule: Rule, value: Any, name: str, into: Conversion) -> None:
    if isinstance(rule, Goes):
        into.set(rule.to, value, name)
        if rule.warning is not None:
            into.warn(f"`{name}`: {rule.warning}")
    elif isinstance(rule, Ignored):
        into.warn(f"`{name}` does nothing here: {rule.reason}")
    elif isinstance(rule, Refused):
        into.refuse(name, rule.reason)
    elif isinstance(rule, Only):
        if value not in rule.values:
            into.refuse(name, f"{rule.reason}, found {value!r}")
    else:
        rule(value, name, into)
