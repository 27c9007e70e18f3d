"""Rules that say what becomes of the keys of one schema in another: moved, ignored with a warning, or refused.

A rule stands under the dotted name of a key, or of a table for all that is in it. Every key meets a rule, is kept as it
is, or is reported as unknown; none is dropped unseen.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prime_cli.core.config_file import Problem, unknown_key


@dataclass(frozen=True)
class Goes:
    """The value is that of the key `to`; `warning` says what is different there."""

    to: str
    warning: str | None = None


@dataclass(frozen=True)
class Table:
    """A table that says something by being there, even when it is empty: it is that of the key `to`."""

    to: str


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
        names: how the schema calls a key that the user did not write.
    """

    data: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

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
        self.set(to, value, self.names.get(to, to))

    def warn(self, text: str) -> None:
        """Tell the user something that does not keep the run from starting."""
        if text not in self.warnings:
            self.warnings.append(text)

    def refuse(self, location: str, reason: str) -> None:
        """Keep the run from starting, with a reason."""
        self.problems.append(Problem(location, reason))

    def written_as(self, location: str) -> str:
        """Return the name that the user wrote for the key that is now called `location`."""
        if location in self.names and location not in self.origins:
            return self.names[location]
        parts = location.replace("[", ".[").split(".")
        for count in range(len(parts), 0, -1):
            found = self.origins.get(".".join(parts[:count]).replace(".[", "["))
            if found is not None:
                return ".".join([found, *parts[count:]]).replace(".[", "[")
        return location


Rule = Goes | Table | Ignored | Refused | Only | Callable[[Any, str, Conversion], None]
"""What becomes of a key. A function gets the value, the name of the key, and the conversion that it adds to."""

Rules = Mapping[str, Rule]


def convert(source: Mapping[str, Any], rules: Rules, into: Conversion, *, keep_others: bool, prefix: str = "") -> None:
    """Apply to every key of `source` its rule, or that of the table around it; others are kept, or reported.

    `prefix` stands before the names of the keys in what the user is told.
    """
    met = list(_rules_met(source, rules, ""))
    for key, value, rule in met:
        if rule is None and keep_others:
            into.set(key, value, f"{prefix}{key}")
        elif rule is None and value != {}:
            into.problems.append(_unknown(key, rules, prefix))
    for key, value, rule in met:  # after what is kept, which some rules add to
        if rule is not None:
            _apply_rule(rule, value, f"{prefix}{key}", into)


def _rules_met(
    source: Mapping[str, Any], rules: Rules, path: str, around: Rule | None = None
) -> Iterator[tuple[str, Any, Rule | None]]:
    """Yield keys with their values and rules; what is null is as if it were not there."""
    for key, value in source.items():
        here = f"{path}{key}"
        rule = rules.get(here, around)
        if isinstance(value, Mapping) and any(name.startswith(f"{here}.") for name in rules):
            if isinstance(rule, Table) or (rule is None and not value):
                yield here, {}, rule
            yield from _rules_met(value, rules, f"{here}.", None if isinstance(rule, Table) else rule)
        elif value is not None:
            yield here, value, rule


def _unknown(key: str, rules: Rules, prefix: str) -> Problem:
    path, _, last = key.rpartition(".")
    if any(name.startswith(f"{key}.") for name in rules):
        return Problem(f"{prefix}{key}", "is a table with keys of its own")
    before = f"{path}." if path else ""
    known = {name.removeprefix(before).split(".")[0] for name in rules if name.startswith(before)}
    return unknown_key(f"{prefix}{key}", last, sorted(known))


def _apply_rule(rule: Rule, value: Any, name: str, into: Conversion) -> None:
    if isinstance(rule, Table):
        into.set(rule.to, value, name)
    elif isinstance(rule, Goes):
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


def in_words(rule: Rule) -> str:
    """Return what a rule does, for a table of all of them."""
    if isinstance(rule, Goes | Table):
        return f"`{rule.to}`"
    if isinstance(rule, Ignored):
        return f"ignored: {rule.reason}"
    if isinstance(rule, Refused):
        return f"refused: {rule.reason}"
    if isinstance(rule, Only):
        return f"only {' or '.join(json.dumps(value) for value in rule.values)}: {rule.reason}"
    return (rule.__doc__ or "").strip().splitlines()[0].rstrip(".")
