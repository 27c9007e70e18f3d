"""What a run would do, without doing it: its processes, what they need of memory, and how much each step trains on.

Nothing here loads torch: the size of the model is read from the headers of its files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from prime_cli.core.env_file import variables_of_files
from prime_cli.core.errors import ConfigError
from prime_cli.models.folder import check_model_folder
from prime_cli.rl.config import RLConfig
from prime_cli.rl.orchestrator.teacher import check_teacher
from prime_cli.rl.planned_work import PlannedWork, planned_work, size_in_words, work_lines
from prime_cli.rl.step_config import LoraConfig, StepConfig

_FP32_BYTES = 4
_OPTIMIZER_BYTES = {"adamw": 8, "muon": 8, "sgd": 4}  # of muon at most: its matrices keep one average, the rest two
_KEPT_PER_LAYER = 14  # hidden-sized activations that a layer keeps for its backward pass, the wide ones not counted
_KEPT_WIDE = 4  # those of the width of its feed-forward part
_HEAD_COPIES = 3


@dataclass(frozen=True)
class TrainerMemory:
    """Bytes of one rank of the trainer. Weights, gradients and optimizer are exact, activations and head estimates."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    head: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.head


@dataclass(frozen=True)
class TrainerSize:
    """The parameters of a model, how many of them are trained, and what a rank of its trainer needs."""

    parameters: int
    trained_parameters: int
    memory_per_rank: TrainerMemory


@dataclass(frozen=True)
class PlannedProcess:
    """A kind of process, how many of it there are, and where each one runs."""

    name: str
    count: int
    device: str


@dataclass(frozen=True)
class Plan:
    """What a run would do. A step trains on at most `tokens_per_step` tokens: every rollout as long as it may be."""

    processes: list[PlannedProcess]
    parameters: int
    trained_parameters: int
    memory_per_rank: TrainerMemory
    steps: int
    prompts_per_step: int
    rollouts_per_step: int
    tokens_per_step: int
    rows_per_step: int
    work: PlannedWork


def plan_of(config: RLConfig, *, gpus: int) -> Plan:
    """Return the plan of a run on a machine with this many GPUs.

    Raises:
        NotAModel: the configured model, or its teacher, is not a model folder.
        ConfigError: the teacher or an env file cannot be used, or there are fewer GPUs than ranks.
    """
    check_model_folder(config.model)
    check_devices(config.trainer.ranks, gpus)
    if config.teacher is not None:
        if config.teacher.client.base_url is None:
            check_model_folder(Path(config.teacher.model))
        check_teacher(config.teacher, config.model)
    variables_of_files(config.env_files)
    size = trainer_size(config.model, config.trainer, config.trainer.ranks)
    tokens = config.batch_size * config.trainer.seq_len
    return Plan(
        processes=_processes(config, gpus),
        parameters=size.parameters,
        trained_parameters=size.trained_parameters,
        memory_per_rank=size.memory_per_rank,
        steps=config.max_steps,
        prompts_per_step=config.groups_per_batch,
        rollouts_per_step=config.batch_size,
        tokens_per_step=tokens,
        rows_per_step=-(-tokens // max(config.trainer.micro_batch_tokens, config.trainer.seq_len)),
        work=planned_work(config, checkpoint_bytes=_checkpoint_bytes(config.trainer, size)),
    )


def trainer_size(folder: Path, step: StepConfig, ranks: int) -> TrainerSize:
    """Return how large the model in `folder` is and what a rank of its trainer needs.

    Raises:
        NotAModel: the folder is not a model folder.
    """
    about = check_model_folder(folder)
    shapes = dict(_shapes(folder))
    parameters = sum(prod(shape) for shape in shapes.values())
    trained = parameters if step.lora is None else _adapter_parameters(shapes, step.lora)
    return TrainerSize(parameters, trained, _memory(step, about, parameters, trained, ranks))


def _checkpoint_bytes(step: StepConfig, size: TrainerSize) -> int:
    """Return the bytes of a checkpoint: what is trained, the optimizer's state, and the weights of the whole policy."""
    state = size.trained_parameters * (_FP32_BYTES + _OPTIMIZER_BYTES[step.optim.type])
    return state + size.parameters * _FP32_BYTES


def count_gpus() -> int:
    """Return how many GPUs torch sees."""
    import torch

    return int(torch.cuda.device_count())


def check_devices(ranks: int, gpus: int) -> None:
    """See that every rank of the trainer has a device of its own.

    Raises:
        ConfigError: there are GPUs, and fewer than ranks.
    """
    if 0 < gpus < ranks:
        raise ConfigError(
            f"trainer.ranks is {ranks} and this machine has {gpus} GPU{'s' if gpus > 1 else ''}",
            hint="each rank needs a GPU of its own; lower trainer.ranks, or hide the GPUs with CUDA_VISIBLE_DEVICES=",
        )


def plan_lines(plan: Plan, engine: str) -> list[str]:
    """Return the plan for a reader."""
    return [
        model_line(plan.parameters, plan.trained_parameters),
        *(f"{p.name}: {p.count} process{'es' if p.count > 1 else ''} on {p.device}" for p in plan.processes),
        f"inference engine: {engine}",
        memory_line(plan.memory_per_rank),
        f"each of {plan.steps} steps: {plan.rollouts_per_step} rollouts of {plan.prompts_per_step} prompts, at most "
        f"{plan.tokens_per_step:,} tokens in {plan.rows_per_step} row{'s' if plan.rows_per_step > 1 else ''}",
        *work_lines(plan.work),
    ]


def model_line(parameters: int, trained: int) -> str:
    """Return the size of a model for a reader."""
    share = "" if trained == parameters else f", {trained:,} of them trained"
    return f"model: {parameters:,} parameters{share}"


def memory_line(memory: TrainerMemory) -> str:
    """Return the memory of a trainer process for a reader."""
    parts = ("weights", "gradients", "optimizer", "activations", "head")
    sizes = ", ".join(f"{name} {size_in_words(getattr(memory, name))}" for name in parts)
    return f"memory of a trainer process: about {size_in_words(memory.total)} ({sizes})"


def _processes(config: RLConfig, gpus: int) -> list[PlannedProcess]:
    device = "GPU" if gpus else "CPU"
    several = f"GPU 0 to {config.trainer.ranks - 1}" if gpus and config.trainer.ranks > 1 else device
    workers = sum(environment.workers or config.orchestrator.env_workers for environment in config.env)
    processes = [PlannedProcess("inference", config.inference.servers, device)]
    if config.teacher is not None and config.teacher.client.base_url is None:
        processes.append(PlannedProcess("teacher", 1, device))
    return [
        *processes,
        PlannedProcess("trainer", config.trainer.ranks, several),
        PlannedProcess("orchestrator", 1, "CPU"),
        PlannedProcess("environment worker", workers, "CPU"),
    ]


def _memory(step: StepConfig, about: dict[str, Any], parameters: int, trained: int, ranks: int) -> TrainerMemory:
    layers, hidden = int(about.get("num_hidden_layers", 0)), int(about.get("hidden_size", 0))
    wide, vocabulary = int(about.get("intermediate_size", 4 * hidden)), int(about.get("vocab_size", 0))
    row = max(step.micro_batch_tokens, step.seq_len)
    of_a_layer = row * (_KEPT_PER_LAYER * hidden + _KEPT_WIDE * wide) * _FP32_BYTES
    kept = row * hidden * _FP32_BYTES * layers + of_a_layer if step.activation_checkpointing else of_a_layer * layers
    return TrainerMemory(
        weights=parameters * _FP32_BYTES // ranks,
        gradients=trained * _FP32_BYTES // ranks,
        optimizer=trained * _OPTIMIZER_BYTES[step.optim.type] // ranks,
        activations=kept,
        head=min(row, step.head_chunk_tokens) * vocabulary * _FP32_BYTES * _HEAD_COPIES,
    )


def _adapter_parameters(shapes: dict[str, tuple[int, ...]], lora: LoraConfig) -> int:
    targets = tuple(f".{name}.weight" for name in lora.target_modules)
    return sum(lora.rank * sum(shape) for name, shape in shapes.items() if name.endswith(targets))


def _shapes(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names and shapes of the tensors in a model folder, from the headers of its files."""
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, entry in header.items():
            if name != "__metadata__":
                yield name, tuple(entry["shape"])
