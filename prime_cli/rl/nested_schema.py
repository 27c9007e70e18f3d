"""The nested schema of prime-rl: every one of its keys is converted, ignored with a warning, or refused with a reason.

What the two call the same and give another default gets prime-rl's, so that a file means what it meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prime_cli.rl.nested_rules import EVAL_SOURCE, RULES, SOURCE
from prime_cli.rl.schema_rules import Conversion, Goes, convert

_TABLES = ("trainer", "orchestrator", "inference", "deployment", "ckpt", "monitors")
_DEFAULTS: dict[str, Any] = {
    "rollouts_per_example": 1,
    "learning_rate": 1e-6,
    "trainer.seq_len": 2048,
    "trainer.optim.weight_decay": 0.01,
    "trainer.scheduler.type": "constant",
    "trainer.activation_checkpointing": True,
    "checkpoints.interval": 0,
    "checkpoints.keep_last": 0,
    "orchestrator.max_off_policy_steps": 8,
    "orchestrator.curriculum.sampler.type": "ordered",
}
"""Where prime-rl's default differs from ours."""


_NAMES = {rule.to: key for key, rule in reversed(list(RULES.items())) if isinstance(rule, Goes)}


def is_nested(data: Mapping[str, Any]) -> bool:
    """Say whether a file is in the nested schema: no `model` that is a text, no [[env]], and a table of prime-rl's."""
    if isinstance(data.get("model"), str) or "env" in data:
        return False
    return isinstance(data.get("model"), Mapping) or any(table in data for table in _TABLES)


def from_nested(data: Mapping[str, Any]) -> Conversion:
    """Return a file in the nested schema as `RLConfig` reads it, with what is to be said about it."""
    into = Conversion(names=_NAMES)
    convert(data, RULES, into, keep_others=False)
    _optimizer_defaults(into)
    for key, value in _DEFAULTS.items():
        into.default(key, value)
    if "model" not in into.data:
        into.refuse("model.name", "is required")
    if "env" not in into.data:
        into.refuse("orchestrator.train.source", "is required: a list of environments")
    if "max_steps" not in into.data:
        into.warn("`max_steps` is not given: the run ends after 100 steps here, and would not end there")
    return into


def _optimizer_defaults(into: Conversion) -> None:
    trainer = into.data.get("trainer", {})
    optimizer, scheduler = trainer.get("optim", {}), trainer.get("scheduler", {})
    kind = optimizer.get("type", "adamw")
    usual = {"betas1": 0.9, "betas2": 0.95 if kind == "muon" else 0.999}
    own = {name: optimizer.pop(name) for name in usual if name in optimizer}
    if own or kind != "sgd":
        into.default("trainer.optim.betas", list((usual | own).values()))
    shape = scheduler.get("type", "constant")
    into.default("trainer.scheduler.warmup_steps", 0 if shape == "constant" else 10)
    if shape == "linear":
        into.default("trainer.scheduler.decay_steps", 10)


def targets() -> set[str]:
    """Return the keys of the resolved model that keys of the nested schema become."""
    found = {rule.to for rule in RULES.values() if isinstance(rule, Goes)}
    for at, rules in (("env", SOURCE), ("eval.env", EVAL_SOURCE)):
        found |= {f"{at}.{rule.to}" for rule in rules.values() if isinstance(rule, Goes)}
    return found - {"trainer.optim.betas1", "trainer.optim.betas2"}  # one key, in the end


def keys() -> list[str]:
    """Return the keys of the nested schema outside its lists of environments."""
    return list(RULES)
