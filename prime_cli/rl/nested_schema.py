"""The nested schema of prime-rl: every one of its keys is converted, ignored with a warning, or refused with a reason.

What the two call the same and give another default gets prime-rl's, so that a file means what it meant.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from prime_cli.rl.lab_schema import task_set
from prime_cli.rl.schema_rules import Conversion, Goes, Ignored, Only, Refused, Rules, convert

_TABLES = ("trainer", "orchestrator", "inference", "deployment", "ckpt", "monitors")
_CHOSEN = "the launcher chooses it"
_ONE_MACHINE = "a run is on one machine"
_TEXT_ONLY = "only models of text are trained"
_KERNELS = "layers run as PyTorch and Transformers have them"
_OWN_FOLDER = "a run has one folder, under `output_dir`"

_DEFAULTS: dict[str, Any] = {
    "rollouts_per_example": 1,
    "learning_rate": 1e-6,
    "trainer.seq_len": 2048,
    "trainer.optim.weight_decay": 0.01,
    "trainer.scheduler.type": "constant",
    "trainer.activation_checkpointing": True,
    "orchestrator.max_off_policy_steps": 8,
}
"""Where prime-rl's default differs from ours."""


def is_nested(data: Mapping[str, Any]) -> bool:
    """Say whether a file is in the nested schema: no `model` that is a text, no [[env]], and a table of prime-rl's."""
    if isinstance(data.get("model"), str) or "env" in data:
        return False
    return isinstance(data.get("model"), Mapping) or any(table in data for table in _TABLES)


def from_nested(data: Mapping[str, Any]) -> Conversion:
    """Return a file in the nested schema as `RLConfig` reads it, with what is to be said about it."""
    into = Conversion()
    convert(data, _RULES, into, keep_others=False)
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
    warmup = {"constant": 0}.get(scheduler.get("type", "constant"), 10)
    into.default("trainer.scheduler.warmup_steps", warmup)
    if scheduler.get("type") == "linear":
        into.default("trainer.scheduler.decay_steps", 10)


# Values that become others


def _checkpointing(value: Any, name: str, into: Conversion) -> None:
    into.set("trainer.activation_checkpointing", value not in (False, "None"), name)
    if isinstance(value, Mapping) and (value.get("mode", "full") != "full" or value.get("freq", 1) != 1):
        into.warn(f"`{name}`: the activations of every layer are computed again, not of some")


def _loss_type(value: Any, name: str, into: Conversion) -> None:
    if value in ("default", "ipo"):
        into.set("trainer.loss.type", {"default": "dppo"}.get(value, value), name)
    else:
        into.refuse(name, f"is default or ipo, found {value!r}; a loss of one's own is not imported")


def _optimizer(value: Any, name: str, into: Conversion) -> None:
    if value == "sign_sgd":
        into.refuse(name, "is adamw, sgd or muon here; sign_sgd is not to be had")
    else:
        into.set("trainer.optim.type", value, name)


def _client_url(value: Any, name: str, into: Conversion) -> None:
    for url in value if isinstance(value, list) else [value]:
        host = urlsplit(str(url)).hostname or ""
        if host != "localhost" and not _is_loopback(host):
            into.refuse(name, f"the run serves its policy itself, and cannot load weights into {url}")
            return
    into.warn(f"`{name}` does nothing here: the run serves its policy itself, at an address of its own choice")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _sampler(value: Any, name: str, into: Conversion) -> None:
    into.set("orchestrator.curriculum.sampler", _renamed_sampler(value), name)


def _renamed_sampler(value: Any) -> Any:
    return {**value, "type": "ordered"} if isinstance(value, Mapping) and value.get("type") == "standard" else value


def _curriculum(value: Any, name: str, into: Conversion) -> None:
    if isinstance(value, Mapping) and "sampler" in value:
        value = {**value, "sampler": _renamed_sampler(value["sampler"])}
    into.set("curriculum", value, name)


def _inflight(key: str) -> Callable[[Any, str, Conversion], None]:
    """A bound on what is in flight asks for the adaptive number."""

    def rule(value: Any, name: str, into: Conversion) -> None:
        into.set("orchestrator.concurrency.type", "adaptive", name)
        into.set(f"orchestrator.concurrency.{key}", value, name)

    return rule


def _sources(value: Any, name: str, into: Conversion) -> None:
    _each(value, name, into, "env", _SOURCE)


def _eval_sources(value: Any, name: str, into: Conversion) -> None:
    _each(value, name, into, "eval.env", _EVAL_SOURCE)


def _each(value: Any, name: str, into: Conversion, to: str, rules: Rules) -> None:
    if not isinstance(value, list) or not all(isinstance(table, Mapping) for table in value):
        into.refuse(name, "is a list of tables")
        return
    tables = []
    for index, table in enumerate(value):
        one = Conversion(warnings=into.warnings, problems=into.problems)
        convert(table, rules, one, keep_others=False, prefix=f"{name}[{index}].")
        tables.append(one.data)
        into.origins |= {f"{to}[{index}].{key}": origin for key, origin in one.origins.items()}
    into.set(to, tables, name)


# The rules, table by table


_SAMPLING: Rules = {
    "temperature": Goes("temperature"),
    "max_completion_tokens": Goes("max_tokens"),
    "max_tokens": Goes("max_tokens"),
    "temp_scheduler": Goes("temp_scheduler"),
    "extra_body": Goes("extra_body"),
    "top_p": Only((1, 1.0), "the trainer computes log-probabilities over the whole distribution, so it is 1"),
    "top_k": Only((-1,), "the trainer computes log-probabilities over the whole distribution, so it is -1"),
    "min_p": Only((0, 0.0), "the trainer computes log-probabilities over the whole distribution, so it is 0"),
}


def _below(rules: Rules, at: str, to: str) -> dict[str, Any]:
    """Return `rules` for a table that stands at `at` there and at `to` here."""
    return {
        f"{at}.{key}": Goes(f"{to}.{rule.to}", rule.warning) if isinstance(rule, Goes) else rule
        for key, rule in rules.items()
    }


_ALGORITHM: Rules = {
    "type": Goes("type"),
    "length_penalty": Goes("length_penalty"),
    "rae_decay": Goes("rae_decay"),
    "echo_weights": Goes("echo_weights"),
}

_EVAL_SOURCE: Rules = {
    "id": Goes("id"),
    "name": Goes("name"),
    "args": Goes("args"),
    "env.taskset": task_set,
    "env.agent.harness": Ignored("an environment brings its own way of running the model"),
    "env.agent.runtime": Ignored("an environment brings its own way of running the model"),
    "serve": Ignored("environments run in worker processes of the run, `orchestrator.env_workers` each"),
    "group_size": Goes("rollouts_per_example"),
    "rollouts_per_example": Goes("rollouts_per_example"),
    "num_examples": Goes("num_examples"),
    "interval": Goes("interval"),
    **_below(_SAMPLING, "sampling", "sampling"),
}

_SOURCE: Rules = {
    **{key: rule for key, rule in _EVAL_SOURCE.items() if key not in ("num_examples", "interval")},
    "group_size": Goes("group_size"),
    "rollouts_per_example": Goes("group_size"),
    "ratio": Goes("ratio"),
    "timeout": Goes("timeout"),
    "retries": Goes("retries"),
    "curriculum": _curriculum,
    **_below(_ALGORITHM, "algo", "algo"),
}

_WANDB: Rules = {key: Goes(key) for key in ("project", "entity", "name", "group", "tags", "offline")}

_CHECKPOINTS: Rules = {
    "interval": Goes("interval"),
    "keep_last": Goes("keep_last"),
    "keep_interval": Goes("keep_interval"),
    "output_dir": Refused(_OWN_FOLDER),
    **{
        f"skip_{part}": Only((False,), "a checkpoint is loaded whole")
        for part in ("optimizer", "scheduler", "progress", "dataloader")
    },
}

_TRANSPORT = Only(("filesystem", "zmq"), "batches travel as files")

_TOP: Rules = {
    "type": Only(("full_finetune",), "a nested file trains all weights, or adapters by [trainer.model.lora]"),
    "model.name": Goes("model"),
    "model.vlm": Refused(_TEXT_ONLY),
    "tokenizer.name": Goes("model"),
    "tokenizer": Refused("the tokenizer is that of the model's folder"),
    "max_steps": Goes("max_steps"),
    "seq_len": Goes("trainer.seq_len"),
    "run.name": Goes("name"),
    "run.dir": Refused(_OWN_FOLDER),
    "output_dir": Goes("output_dir"),
    "clean": Ignored("a run of the same name gets a number behind it, and nothing is wiped"),
    **_below(_CHECKPOINTS, "ckpt", "checkpoints"),
    "resume": Refused("a run is resumed by `prime rl run CONFIG --resume`"),
    **_below(_WANDB, "wandb", "wandb"),
    **_below(_WANDB, "monitors.wandb", "wandb"),
    "monitors.file": Ignored("metrics.jsonl and the rollouts are always written"),
    "monitors.prime": Ignored("nothing is sent to a platform"),
    "weight_broadcast.type": Goes("inference.weight_transfer"),
    "weight_broadcast": Ignored(_CHOSEN),
    "rollout_transport.type": _TRANSPORT,
    "rollout_transport": Ignored(_CHOSEN),
    "deployment.type": Only(("single_node",), _ONE_MACHINE),
    "deployment.num_train_gpus": Goes("trainer.ranks"),
    "deployment.num_infer_gpus": Goes("inference.servers"),
    "deployment.gpus_per_node": Ignored("the GPUs of this machine are counted"),
    "deployment": Refused(_ONE_MACHINE),
    "slurm": Refused("jobs are not sent to a cluster; run `prime rl run` inside one"),
    "env_vars": Refused("export them before `prime rl run`; what the environments need goes into `env_files`"),
    "env_files": Goes("env_files"),
    "env_file": lambda value, name, into: into.set("env_files", [value], name),
    "dry_run": Only((False,), "a dry run is asked for by `prime rl run CONFIG --dry-run`"),
    "log": Ignored("every process has its log under logs/"),
    "seed": Goes("seed"),
    **{
        key: Ignored("it is for training on a platform, and this run is on your own machine")
        for key in ("image_tag", "gpu_type", "volume", "volume_size", "source_ref")
    },
}

_LORA: Rules = {
    "rank": Goes("rank"),
    "alpha": Goes("alpha"),
    "dropout": Goes("dropout"),
    "target_modules": Goes("target_modules"),
    "modules_to_save": Only(([],), "adapters alone are trained, no module beside them"),
}

_TRAINER_MODEL: Rules = {
    "name": Goes("model"),
    "seq_len": Goes("trainer.seq_len"),
    "attn": Ignored(_KERNELS),
    "impl": Only(("auto", "hf"), _KERNELS),
    "compile": Ignored("the model is not compiled"),
    "ac": _checkpointing,
    "ac_offloading": Ignored("activations stay on the device"),
    "optim_cpu_offload": Ignored("the optimizer's state stays on the device; `--dry-run` shows what it takes"),
    "fsdp_cpu_offload": Only((False,), "weights stay on the device"),
    "full_offload": Only((False,), "weights stay on the device"),
    "reshard_after_forward": Ignored("weights are gathered layer by layer"),
    "dp_replicate": Only((1,), "ranks share one copy of the weights"),
    "ep": Only(("auto", 1), "experts are not spread over ranks"),
    "cp": Only((1,), "a sequence is not spread over ranks"),
    "cp_style": Ignored("a sequence is not spread over ranks"),
    "optimization_dtype": Only(("float32",), "weights and optimizer are float32"),
    "reduce_dtype": Only(("float32",), "gradients are summed in float32"),
    "moe_router_dtype": Ignored(_KERNELS),
    "quantization": Refused("training is in bfloat16 on a GPU and in float32 without one"),
    "fused_lm_head_token_chunk_size": Goes("trainer.head_chunk_tokens"),
    "debug": Refused("models are trained as they are; `prime model init` makes small ones"),
    **_below(_LORA, "lora", "trainer.lora"),
}

_TRAINER: Rules = {
    **{f"model.{key}": rule for key, rule in _TRAINER_MODEL.items()},
    "optim.type": _optimizer,
    "optim.lr": Goes("learning_rate"),
    "optim.betas": Goes("trainer.optim.betas"),
    "optim.betas1": Goes("trainer.optim.betas1"),
    "optim.betas2": Goes("trainer.optim.betas2"),
    "optim.mu": Goes("trainer.optim.momentum"),
    "optim.nesterov": Only((True,), "sgd is with Nesterov momentum"),
    **{f"optim.{key}": Goes(f"trainer.optim.{key}") for key in ("weight_decay", "max_norm", "momentum")},
    **{
        f"scheduler.{key}": Goes(f"trainer.scheduler.{key}")
        for key in ("type", "warmup_steps", "decay_steps", "min_lr")
    },
    "loss.type": _loss_type,
    **{
        f"loss.{key}": Goes(f"trainer.loss.{key}")
        for key in ("dppo_mask_low", "dppo_mask_high", "adv_tau", "kl_tau", "ipo_threshold")
    },
    "loss.import_path": Refused("a loss of one's own is not imported"),
    "loss.kwargs": Refused("a loss of one's own is not imported"),
    "data.fake": Refused("a run trains on rollouts"),
    "weight_broadcast.type": Goes("inference.weight_transfer"),
    "weight_broadcast": Ignored(_CHOSEN),
    "rollout_transport.type": _TRANSPORT,
    "rollout_transport": Ignored(_CHOSEN),
    **_below(_CHECKPOINTS, "ckpt", "checkpoints"),
    "max_steps": Goes("max_steps"),
    "enable_router_replay": Only((False,), "the choice of experts is not replayed"),
    "enable_token_export": lambda value, name, into: (
        into.set("trainer.token_export_interval", 1, name) if value else None
    ),
    "gc": Ignored("Python collects its garbage when it likes"),
    "dist_timeout_seconds": Ignored("every wait of the ranks has a bound of its own"),
    "matmul_precision": Ignored("float32 is multiplied as PyTorch does by default"),
    "trace_path": Ignored("there is no profiler in the run"),
    "memory_profiler_path": Ignored("there is no profiler in the run"),
    "heartbeat": Ignored("the launcher watches its processes itself"),
    "metrics_server": Ignored("figures are in metrics.jsonl"),
    "log": Ignored("every process has its log under logs/"),
}

_ORCHESTRATOR: Rules = {
    "batch_size": Goes("batch_size"),
    "token_batch_size": Refused("batches are counted in rollouts, by `orchestrator.batch_size`"),
    "group_size": Goes("rollouts_per_example"),
    "rollouts_per_example": Goes("rollouts_per_example"),
    "seq_len": Goes("trainer.seq_len"),
    "max_steps": Goes("max_steps"),
    "seed": Goes("seed"),
    "max_off_policy_steps": Goes("orchestrator.max_off_policy_steps"),
    "max_async_level": Ignored("it is deprecated; `max_off_policy_steps` bounds how old a rollout may be"),
    "oversampling_factor": Goes("oversampling_factor"),
    "max_inflight_rollouts": Goes("max_inflight_rollouts"),
    "concurrency.initial_inflight": _inflight("initial_inflight"),
    "concurrency.min_inflight": _inflight("min_inflight"),
    "concurrency.max_inflight": _inflight("max_inflight"),
    "tasks_per_minute": Refused("the rate at which examples are opened is not bounded"),
    **_below(_ALGORITHM, "algo", "orchestrator.algo"),
    "train.source": _sources,
    "env": _sources,
    **_below(_SAMPLING, "train.sampling", "sampling"),
    **_below(_SAMPLING, "sampling", "sampling"),
    "train.filter_zero_advantages": Only((True,), "what has no advantage teaches nothing and is not sent"),
    "eval.source": _eval_sources,
    "eval.env": _eval_sources,
    **{f"eval.{key}": Goes(f"eval.{key}") for key in ("interval", "num_examples", "skip_first_step")},
    "eval.group_size": Goes("eval.rollouts_per_example"),
    "eval.rollouts_per_example": Goes("eval.rollouts_per_example"),
    "eval.eval_base_model": lambda value, name, into: into.set("eval.skip_first_step", not value, name),
    "eval.retrigger_on_resume": Only((False,), "an evaluation that is written is not made again"),
    **_below(
        {key: rule for key, rule in _SAMPLING.items() if key != "temp_scheduler"}, "eval.sampling", "eval.sampling"
    ),
    "model.name": Goes("model"),
    "model.client.base_url": _client_url,
    "model.client": Ignored("the run serves its policy itself"),
    "model.lora.name": Ignored("the policy has one name in a run"),
    "renderer": Ignored("`orchestrator.client_type` says how turns become tokens"),
    "use_renderer": Ignored("`orchestrator.client_type` says how turns become tokens"),
    "env_server_base_port": Ignored("workers are spoken to through pipes"),
    "weight_broadcast.type": Goes("inference.weight_transfer"),
    "weight_broadcast": Ignored(_CHOSEN),
    "rollout_transport.type": _TRANSPORT,
    "rollout_transport": Ignored(_CHOSEN),
    "num_train_workers": Ignored("batches are shared out by the trainer"),
    "collect_inference_metrics": Ignored("the server's figures stand at its /metrics"),
    "curriculum.sampler": _sampler,
    "curriculum.gates": Goes("orchestrator.curriculum.gates"),
    "pre_batch_filters": Goes("pre_batch_filters"),
    "post_batch_filters": Goes("post_batch_filters"),
    "trajectory_strategy": Ignored("it is deprecated; a turn that extends the tokens before it continues their sample"),
    "buffer": Ignored("it is deprecated; `orchestrator.curriculum` chooses examples by their difficulty"),
    **_below(_CHECKPOINTS, "ckpt", "checkpoints"),
    "log": Ignored("every process has its log under logs/"),
}

_PARSERS = Ignored("environments read the text of answers themselves")

_INFERENCE: Rules = {
    "model.name": Goes("model"),
    "server.host": Ignored("the server listens on this machine alone"),
    "server.port": Ignored(_CHOSEN),
    "server.liveness_timeout": Ignored("the launcher watches the server itself"),
    "router": Ignored("the run's own gateway shares requests out"),
    "vllm.dtype": Only(("auto",), "the server takes the dtype of the weights that it is given"),
    "vllm.max_model_len": Ignored("a request is as long as `trainer.seq_len` at most"),
    "vllm.tp": Only((1,), "a server has one device"),
    "vllm.dp": Goes("inference.servers"),
    "vllm.api_server_count": Ignored(_CHOSEN),
    "vllm.gpu_memory_utilization": Goes("inference.gpu_memory_utilization"),
    **{
        f"vllm.{key}": Ignored("adapters are handed over as `inference.weight_transfer` says")
        for key in ("enable_lora", "max_loras", "max_cpu_loras", "max_lora_rank")
    },
    **{f"vllm.{key}": _PARSERS for key in ("tool_call_parser", "reasoning_parser", "enable_auto_tool_choice")},
    "vllm.seed": Ignored("the seed of the run is given to the server"),
    "vllm": Refused("the server is started with what a run needs and nothing else"),
    "tool_parser": _PARSERS,
    "reasoning_parser": _PARSERS,
    "logprobs_mode": Only(("processed_logprobs",), "log-probabilities are those of the sampled distribution"),
    "enable_fp32_lm_head": Ignored("the server computes in the dtype of its weights"),
    "enable_fp32_router_logits": Ignored("the server computes in the dtype of its weights"),
    "kv_cache_offload": Refused("the cache stays on the device"),
    "deployment.type": Only(("single_node",), _ONE_MACHINE),
    "deployment": Refused(_ONE_MACHINE),
    "gpu_memory_utilization": Goes("inference.gpu_memory_utilization"),
    "seed": Ignored("the seed of the run is given to the server"),
    "log": Ignored("every process has its log under logs/"),
}

_RULES: Rules = {
    **_TOP,
    **{f"trainer.{key}": rule for key, rule in _TRAINER.items()},
    **{f"orchestrator.{key}": rule for key, rule in _ORCHESTRATOR.items()},
    **{f"inference.{key}": rule for key, rule in _INFERENCE.items()},
}


def targets() -> set[str]:
    """Return the keys of the resolved model that keys of the nested schema become."""
    found = {rule.to for rule in _RULES.values() if isinstance(rule, Goes)}
    for at, rules in (("env", _SOURCE), ("eval.env", _EVAL_SOURCE)):
        found |= {f"{at}.{rule.to}" for rule in rules.values() if isinstance(rule, Goes)}
    return found - {"trainer.optim.betas1", "trainer.optim.betas2"}  # one key, in the end
