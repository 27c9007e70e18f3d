"""Files that were written for prime-rl's `sft`, or for an older version of ours: their keys under the names here.

model.name, model.lora                    model, trainer.lora
optim.lr, optim.betas1, optim.betas2      learning_rate, trainer.optim.betas
optim.*, scheduler.*                      trainer.optim.*, trainer.scheduler.*
data.batch_size (in packed rows)          batch_rows
data.seq_len, data.micro_batch_size       trainer.seq_len, trainer.micro_batch_tokens (that many rows)
ckpt.*                                    checkpoints.*
validation_interval (ours, until 0.1)     val.interval
"""

from __future__ import annotations

import copy
from typing import Any

Tables = dict[str, Any]

_MOVES = (
    ("model.lora", "trainer.lora"),
    ("model.name", "model"),
    ("optim.lr", "learning_rate"),
    ("optim", "trainer.optim"),
    ("scheduler", "trainer.scheduler"),
    ("ckpt", "checkpoints"),
    ("data.batch_size", "batch_rows"),
    ("data.seq_len", "trainer.seq_len"),
    ("validation_interval", "val.interval"),
)
_MEANINGLESS = {
    "data.num_workers": "demonstrations are read once, before the first step",
    "deployment": "`trainer.ranks` says how many processes train, all of them here",
    "slurm": "runs are started here",
}
_SEQ_LEN = 2048


def with_our_names(tables: Tables) -> Tables:
    """Return the tables with every key under its name here; what is nobody's name stays, for the reader to refuse.

    Raises:
        ValueError: a key is given under both names.
    """
    found = copy.deepcopy(tables)
    for key in _MEANINGLESS:
        _take(found, key)
    _betas(found.get("optim"))
    rows = _take(found, "data.micro_batch_size")
    for theirs, ours in _MOVES:
        value = _take(found, theirs)
        if value is not None:
            _put(found, ours, value, theirs)
    if isinstance(rows, int):
        seq_len = found.get("trainer", {}).get("seq_len", _SEQ_LEN)
        _put(found, "trainer.micro_batch_tokens", rows * seq_len, "data.micro_batch_size")
    return found


def notes_on(tables: Tables) -> list[str]:
    """Return a sentence for each key that is taken and does nothing."""
    copied = copy.deepcopy(tables)
    return [f"`{key}` does nothing: {why}" for key, why in _MEANINGLESS.items() if _take(copied, key) is not None]


def _betas(optim: Any) -> None:
    if isinstance(optim, dict) and {"betas1", "betas2"} & set(optim):
        optim["betas"] = [optim.pop("betas1", 0.9), optim.pop("betas2", 0.99)]


def _take(tables: Tables, key: str) -> Any:
    """Remove and return the value of a dotted key, and a table that is empty then; None where there is none."""
    first, _, rest = key.partition(".")
    if not rest:
        return tables.pop(first, None)
    inner = tables.get(first)
    if not isinstance(inner, dict):
        return None
    value = _take(inner, rest)
    if value is not None and not inner:
        del tables[first]
    return value


def _put(tables: Tables, key: str, value: Any, theirs: str) -> None:
    first, _, rest = key.partition(".")
    if rest:
        inner = tables.setdefault(first, {})
        if isinstance(inner, dict):
            _put(inner, rest, value, theirs)
    elif isinstance(value, dict) and isinstance(tables.get(first), dict):
        for name, part in value.items():
            _put(tables[first], name, part, f"{theirs}.{name}")
    elif tables.get(first, value) != value:
        raise ValueError(f"`{theirs}` and `{first}` are the same key, here with two values; give one of them")
    else:
        tables[first] = value
