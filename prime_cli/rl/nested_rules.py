"""What becomes of each key of prime-rl's nested schema, table by table."""

from __future__ import annotations

from typing import Any

from prime_cli.rl import nested_values as values
from prime_cli.rl.lab_schema import task_set
from prime_cli.rl.schema_rules import Goes, Ignored, Only, Refused, Rules, Table

_CHOSEN = "the launcher chooses it"
_ONE_MACHINE = "a run is on one machine"
_TEXT_ONLY = "only models of text are trained"
_KERNELS = "layers run as PyTorch and Transformers have them"
_OWN_FOLDER = "a run has one folder, under `output_dir`"


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

_EVAL_SAMPLING: Rules = {
    **{key: rule for key, rule in _SAMPLING.items() if key != "temp_scheduler"},
    **{key: Goes(key) for key in ("top_p", "top_k", "min_p")},
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

EVAL_SOURCE: Rules = {
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
    **_below(_EVAL_SAMPLING, "sampling", "sampling"),
}

SOURCE: Rules = {
    **{key: rule for key, rule in EVAL_SOURCE.items() if key not in ("num_examples", "interval")},
    "group_size": Goes("group_size"),
    "rollouts_per_example": Goes("group_size"),
    "ratio": Goes("ratio"),
    "timeout": Goes("timeout"),
    "retries": Goes("retries"),
    "curriculum": values.curriculum,
    **_below(_ALGORITHM, "algo", "algo"),
    **_below(_SAMPLING, "sampling", "sampling"),
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
    "wandb": Table("wandb"),
    **_below(_WANDB, "wandb", "wandb"),
    "monitors.wandb": Table("wandb"),
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
    "env_file": values.env_file,
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
    "ac": values.checkpointing,
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
    "lora": Table("trainer.lora"),
    **_below(_LORA, "lora", "trainer.lora"),
}

_TRAINER: Rules = {
    **{f"model.{key}": rule for key, rule in _TRAINER_MODEL.items()},
    "optim.type": values.optimizer,
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
    "loss.type": values.loss_type,
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
    "enable_token_export": values.token_export,
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
    "concurrency.initial_inflight": values.inflight,
    "concurrency.min_inflight": values.inflight,
    "concurrency.max_inflight": values.inflight,
    "tasks_per_minute": Refused("the rate at which examples are opened is not bounded"),
    **_below(_ALGORITHM, "algo", "orchestrator.algo"),
    "train.source": values.environments("env", SOURCE),
    "env": values.environments("env", SOURCE),
    **_below(_SAMPLING, "train.sampling", "sampling"),
    **_below(_SAMPLING, "sampling", "sampling"),
    "train.filter_zero_advantages": Only((True,), "what has no advantage teaches nothing and is not sent"),
    "eval": Table("eval"),
    "eval.source": values.environments("eval.env", EVAL_SOURCE),
    "eval.env": values.environments("eval.env", EVAL_SOURCE),
    **{f"eval.{key}": Goes(f"eval.{key}") for key in ("interval", "num_examples", "skip_first_step")},
    "eval.group_size": Goes("eval.rollouts_per_example"),
    "eval.rollouts_per_example": Goes("eval.rollouts_per_example"),
    "eval.eval_base_model": values.eval_base_model,
    "eval.retrigger_on_resume": Only((False,), "an evaluation that is written is not made again"),
    **_below(_EVAL_SAMPLING, "eval.sampling", "eval.sampling"),
    "model.name": Goes("model"),
    "model.client.base_url": values.client_url,
    "model.client": Ignored("the run serves its policy itself"),
    "model.lora.name": Ignored("the policy has one name in a run"),
    "renderer": Goes("orchestrator.renderer"),
    "use_renderer": Ignored("`orchestrator.client_type` says how turns become tokens"),
    "env_server_base_port": Ignored("workers are spoken to through pipes"),
    "weight_broadcast.type": Goes("inference.weight_transfer"),
    "weight_broadcast": Ignored(_CHOSEN),
    "rollout_transport.type": _TRANSPORT,
    "rollout_transport": Ignored(_CHOSEN),
    "num_train_workers": Ignored("batches are shared out by the trainer"),
    "collect_inference_metrics": Ignored("the server's figures stand at its /metrics"),
    "curriculum.sampler": values.sampler,
    "curriculum.gates": Goes("orchestrator.curriculum.gates"),
    "pre_batch_filters": Goes("pre_batch_filters"),
    "post_batch_filters": Goes("post_batch_filters"),
    "trajectory_strategy": Ignored("it is deprecated; a turn that extends the tokens before it continues their sample"),
    "buffer": Ignored("it is deprecated; `orchestrator.curriculum` chooses examples by their difficulty"),
    **_below(_CHECKPOINTS, "ckpt", "checkpoints"),
    "log": Ignored("every process has its log under logs/"),
}

_INFERENCE: Rules = {
    "model.name": Goes("model"),
    "server.host": Ignored("the server listens on this machine alone"),
    "server.port": Ignored(_CHOSEN),
    "server.liveness_timeout": Goes("inference.liveness_timeout_s"),
    "router": Ignored("the run's own gateway shares requests out"),
    "vllm.dtype": Goes("inference.dtype"),
    "vllm.max_model_len": Ignored("a request is as long as `trainer.seq_len` at most"),
    "vllm.tp": Goes("inference.vllm_args.tensor_parallel_size"),
    "vllm.dp": Goes("inference.servers"),
    "vllm.api_server_count": Ignored(_CHOSEN),
    "vllm.gpu_memory_utilization": Goes("inference.gpu_memory_utilization"),
    **{
        f"vllm.{key}": Ignored("adapters are handed over as `inference.weight_transfer` says")
        for key in ("enable_lora", "max_loras", "max_cpu_loras", "max_lora_rank")
    },
    "vllm.enable_auto_tool_choice": Ignored("tools are taken where `inference.tool_call_parser` names a parser"),
    "vllm.tool_call_parser": Goes("inference.tool_call_parser"),
    "vllm.seed": Ignored("the seed of the run is given to the server"),
    "vllm": values.vllm_argument,
    "tool_parser": Goes("inference.tool_call_parser"),
    "reasoning_parser": Goes("inference.vllm_args.reasoning_parser"),
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

RULES: Rules = {
    **_TOP,
    **{f"trainer.{key}": rule for key, rule in _TRAINER.items()},
    **{f"orchestrator.{key}": rule for key, rule in _ORCHESTRATOR.items()},
    **{f"inference.{key}": rule for key, rule in _INFERENCE.items()},
}
