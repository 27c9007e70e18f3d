"""The flat schema of Lab files: what hosted training reads and this trainer calls otherwise, or has no use for.

All other keys mean here what they mean there, and `RLConfig` reads them as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prime_cli.rl.schema_rules import Conversion, Goes, Ignored, Rules, convert

_HOSTED = "it is for training on a platform, and this run is on your own machine"


def from_lab(data: Mapping[str, Any]) -> Conversion:
    """Return a file in the flat schema as `RLConfig` reads it, with what is to be said about it."""
    into = Conversion()
    convert(data, RULES, into, keep_others=True)
    trainer = into.data.get("trainer")
    if data.get("type") == "full_finetune" and isinstance(trainer, dict) and trainer.get("lora") is not None:
        into.refuse("type", "is full_finetune, and [trainer.lora] asks for adapters; take one of them away")
    return into


def _loss(value: Any, name: str, into: Conversion) -> None:
    """`orchestrator.algo.type` for `sft` and `opd`; `rl` is the default."""
    if value == "rl":
        return
    if value in ("sft", "opd"):
        into.set("orchestrator.algo.type", value, name)
    else:
        into.refuse(name, f"is rl, sft or opd, found {value!r}; how tokens are weighed is `trainer.loss.type`")


def _env_file(value: Any, name: str, into: Conversion) -> None:
    """The first of `env_files`."""
    into.warn(f"`{name}` is now called `env_files`, a list")
    files = into.data.setdefault("env_files", [])
    if isinstance(files, list):
        files.insert(0, value)


def _eval_base_model(value: Any, name: str, into: Conversion) -> None:
    """`eval.skip_first_step`, which means the opposite."""
    into.warn(f"`{name}` is now called `eval.skip_first_step`, and means the opposite")
    if isinstance(value, bool):
        into.set("eval.skip_first_step", not value, name)
    else:
        into.refuse(name, f"is true or false, found {value!r}")


def _kind_of_run(value: Any, name: str, into: Conversion) -> None:
    """`full_finetune` refuses adapters."""
    if value != "full_finetune":
        into.refuse(name, f"is full_finetune or left out, found {value!r}; adapters are asked for by [trainer.lora]")


def environments(value: Any, name: str, into: Conversion) -> None:
    """Each table with the keys of its own table."""
    if not isinstance(value, list):
        into.set(name, value, name)
        return
    tables: list[Any] = []
    for index, table in enumerate(value):
        if not isinstance(table, Mapping):
            tables.append(table)
            continue
        one = Conversion(warnings=into.warnings, problems=into.problems)
        convert(table, ENVIRONMENT, one, keep_others=True, prefix=f"{name}[{index}].")
        tables.append(one.data)
        into.origins |= {f"{name}[{index}].{to}": origin for to, origin in one.origins.items()}
    into.set(name, tables, name)


def task_set(value: Any, name: str, into: Conversion) -> None:
    """`id`, and beside it what the loader takes, in `args`."""
    if not isinstance(value, Mapping) or "id" not in value:
        into.refuse(name, "is a table with an `id`")
        return
    into.set("id", value["id"], f"{name}.id")
    rest = {key: inner for key, inner in value.items() if key != "id"}
    if rest:
        into.set("args", rest, name)


ENVIRONMENT: Rules = {
    "taskset": task_set,
    "harness": Ignored("an environment brings its own way of running the model"),
    "pool": Ignored("workers of an environment are counted by `orchestrator.env_workers`"),
    "multiplex": Ignored("a worker runs as many rollouts at once as it is sent"),
}

RULES: Rules = {
    "cluster_name": Ignored(_HOSTED),
    "infrastructure": Ignored(_HOSTED),
    "tailscale": Ignored(_HOSTED),
    "run_config": Ignored(_HOSTED),
    "image_tag": Ignored(_HOSTED),
    "gpu_type": Ignored(_HOSTED),
    "volume": Ignored(_HOSTED),
    "volume_size": Ignored(_HOSTED),
    "source_ref": Ignored(_HOSTED),
    "checkpoints.keep_cloud": Ignored("checkpoints are kept on this machine; `checkpoints.keep_last` bounds them"),
    "trajectory_strategy": Ignored("it is deprecated; a turn that extends the tokens before it continues their sample"),
    "buffer": Ignored("it is deprecated; `orchestrator.curriculum` chooses examples by their difficulty"),
    "max_async_level": Ignored("it is deprecated; `orchestrator.max_off_policy_steps` bounds how old a rollout may be"),
    "max_off_policy_steps": Goes("orchestrator.max_off_policy_steps", "it belongs under [orchestrator] by now"),
    "teacher.client.skip_model_check": Ignored("a teacher's server is asked when it is needed, and not before"),
    "env_file": _env_file,
    "loss": _loss,
    "lora_alpha": Goes("trainer.lora.alpha"),
    "eval.eval_base_model": _eval_base_model,
    "type": _kind_of_run,
    "env": environments,
    "eval.env": environments,
}


def keys() -> list[str]:
    """Return the keys of Lab files that the resolved model does not have under the same name."""
    return [*RULES, *(f"env.{key}" for key in ENVIRONMENT)]
