"""What somebody asks of the list of rollouts: a line of conditions and words, and an order.

    reward<0.5  reward>=1  reward=0     error  ok  truncated
    tag:sums  tag:task=sums  example:12  anything else is looked for in the whole rollout, also "in quotes"

All conditions must hold, and all words must be there, in small letters or capitals.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Literal

from prime_cli.core.errors import BadInput

Order = Literal["number", "reward", "-reward", "example", "-tokens"]
ORDERS: dict[Order, str] = {
    "number": "as stored",
    "reward": "worst first",
    "-reward": "best first",
    "example": "by example",
    "-tokens": "longest first",
}
_SQL_ORDER = {
    "number": "number",
    # Failed rollouts have no reward; whoever looks for the worst wants to see them before all others.
    "reward": "failed DESC, reward, number",
    "-reward": "failed, reward DESC, number",
    "example": "length(example), example, number",
    "-tokens": "tokens DESC, number",
}
_COMPARISON = re.compile(r"^(reward|tokens)(<=|>=|!=|<|>|=)(\S*)$")
_FLAGS = {"error": "failed", "errors": "failed", "ok": "NOT failed", "truncated": "truncated"}
HELP = "reward<0.5  error  ok  truncated  tag:NAME  example:ID  tokens>100  or words of the conversation"


@dataclass(frozen=True)
class RolloutQuery:
    """Conditions in SQL over the table of an index with their values, words to look for in the file, and the order."""

    conditions: tuple[str, ...] = ()
    values: tuple[str | float, ...] = ()
    words: tuple[str, ...] = ()
    order: Order = "number"

    @property
    def is_all(self) -> bool:
        """Whether it asks for every rollout as it is stored."""
        return not self.conditions and not self.words and self.order == "number"

    @property
    def where(self) -> str:
        """The conditions as one."""
        return " AND ".join(self.conditions) or "1"

    @property
    def order_by(self) -> str:
        """The order in SQL."""
        return _SQL_ORDER[self.order]

    def needles(self) -> list[set[bytes]]:
        """Return for each word how it may stand in a line of JSON whose ASCII letters were made small."""
        return [
            {
                json.dumps(spelling, ensure_ascii=ascii_only)[1:-1].encode().lower()
                for spelling in (word, word.lower(), word.upper())
                for ascii_only in (False, True)
            }
            for word in self.words
        ]


def parse_query(text: str, order: Order = "number") -> RolloutQuery:
    """Return what a line of conditions and words asks for.

    Raises:
        BadInput: a comparison without a number.
    """
    conditions: list[str] = []
    values: list[str | float] = []
    words: list[str] = []
    for term in _terms(text):
        comparison = _COMPARISON.match(term)
        if comparison:
            column, operator, number = comparison.groups()
            conditions.append(f"{column} {operator} ?")
            values.append(_number(term, number))
        elif term in _FLAGS:
            conditions.append(_FLAGS[term])
        elif term.startswith("tag:"):
            tag = _escaped(term.removeprefix("tag:"))
            conditions.append("((' ' || tags || ' ') LIKE ? ESCAPE '\\' OR (tags || ' ') LIKE ? ESCAPE '\\')")
            values += [f"% {tag} %", f"%={tag} %"]
        elif term.startswith("example:"):
            conditions.append("example = ?")
            values.append(term.removeprefix("example:"))
        else:
            words.append(term)
    return RolloutQuery(tuple(conditions), tuple(values), tuple(words), order)


def _terms(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is still open, while it is typed
        return text.replace('"', " ").replace("'", " ").split()


def _number(term: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{term!r} has no number", hint=HELP) from None


def _escaped(text: str) -> str:
    return re.sub(r"([%_\\])", r"\\\1", text)
