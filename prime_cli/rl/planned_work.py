"""What a run would open, evaluate and keep, said before it does."""

from __future__ import annotations

from dataclasses import dataclass

from prime_cli.rl.checkpoint_config import steps_to_drop
from prime_cli.rl.config import RLConfig
from prime_cli.rl.environment_config import EnvironmentConfig
from prime_cli.rl.eval_config import EvalConfig


@dataclass(frozen=True)
class PlannedEnvironment:
    """An environment, its share of the opened groups, and how its rollouts come about."""

    name: str
    share: float
    group_size: int
    workers: int
    algorithm: str
    sampler: str
    gates: list[str]


@dataclass(frozen=True)
class PlannedEvaluation:
    """A set that is evaluated, how much of it (-1: all), and at how many steps of the run."""

    name: str
    examples: int
    rollouts_per_example: int
    times: int


@dataclass(frozen=True)
class PlannedCheckpoints:
    """How many checkpoints are written, how many are kept in the end, and the bytes of one with its weights."""

    written: int
    kept: int
    bytes_each: int


@dataclass(frozen=True)
class PlannedWork:
    """What a run would do beside its steps."""

    environments: list[PlannedEnvironment]
    evaluations: list[PlannedEvaluation]
    checkpoints: PlannedCheckpoints
    max_inflight: int
    concurrency: str
    temperatures: list[float]


def planned_work(config: RLConfig, *, checkpoint_bytes: int) -> PlannedWork:
    """Return what a run with `config` would open, evaluate and keep, a checkpoint with its weights being so large."""
    total = sum(environment.ratio for environment in config.env)
    concurrency, schedule = config.orchestrator.concurrency, config.sampling.temp_scheduler
    return PlannedWork(
        environments=[_environment(config, environment, total) for environment in config.env],
        evaluations=_evaluations(config),
        checkpoints=_checkpoints(config, checkpoint_bytes),
        max_inflight=config.max_inflight if concurrency.type == "static" else concurrency.max_inflight,
        concurrency=concurrency.type,
        temperatures=[config.sampling.temperature]
        if schedule is None
        else [schedule.start_temperature, schedule.end_temperature],
    )


def work_lines(work: PlannedWork) -> list[str]:
    """Return it for a reader."""
    most = "" if work.concurrency == "static" else ", by the load of the server"
    temperature = " to ".join(f"{value:g}" for value in work.temperatures)
    return [
        *(
            f"environment {one.name}: {one.share:.0%} of the groups, {one.group_size} rollouts each, {one.algorithm}, "
            f"examples {one.sampler.replace('_', ' ')}" + (f", gates {', '.join(one.gates)}" if one.gates else "")
            for one in work.environments
        ),
        f"in flight: at most {work.max_inflight} rollouts{most}; temperature {temperature}",
        *(
            f"evaluation {one.name}: {one.times} times {'all' if one.examples < 0 else one.examples} examples, "
            f"{one.rollouts_per_example} rollout{'s' if one.rollouts_per_example > 1 else ''} each"
            for one in work.evaluations
        ),
        f"checkpoints: {work.checkpoints.written} written, {work.checkpoints.kept} kept, of about "
        f"{size_in_words(work.checkpoints.bytes_each)} each with its weights",
    ]


def _environment(config: RLConfig, environment: EnvironmentConfig, total: float) -> PlannedEnvironment:
    curriculum = config.curriculum_for(environment)
    return PlannedEnvironment(
        name=environment.label,
        share=environment.ratio / total,
        group_size=config.group_size_for(environment),
        workers=environment.workers or config.orchestrator.env_workers,
        algorithm=config.algorithm_for(environment).type,
        sampler=curriculum.sampler.type,
        gates=list(curriculum.gates),
    )


def _checkpoints(config: RLConfig, bytes_each: int) -> PlannedCheckpoints:
    settings, last = config.checkpoints, config.max_steps
    steps = sorted({*(range(settings.interval, last + 1, settings.interval) if settings.interval else ()), last})
    dropped = steps_to_drop(steps, keep_last=settings.keep_last, keep_interval=settings.keep_interval)
    best = settings.keep_best is not None and bool(dropped)
    return PlannedCheckpoints(len(steps), len(steps) - len(dropped) + best, bytes_each)


def size_in_words(count: int) -> str:
    """Return a number of bytes for a reader."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"


def _evaluations(config: RLConfig) -> list[PlannedEvaluation]:
    planned = []
    if config.val is not None:
        held_out = config.val
        planned += [
            PlannedEvaluation(
                f"val/{environment.label}", held_out.num_examples, held_out.rollouts_per_example,
                _times(held_out.interval, config.max_steps, at_start=True),
            )
            for environment in config.env
        ]  # fmt: skip
    if config.eval is not None:
        planned += [_evaluation(config.eval, one, config.max_steps) for one in config.eval.env or config.env]
    return planned


def _evaluation(settings: EvalConfig, environment: EnvironmentConfig, max_steps: int) -> PlannedEvaluation:
    def own(key: str) -> int:
        value = getattr(environment, key, None)
        return int(getattr(settings, key) if value is None else value)

    times = _times(own("interval"), max_steps, at_start=not settings.skip_first_step)
    return PlannedEvaluation(environment.label, own("num_examples"), own("rollouts_per_example"), times)


def _times(interval: int, max_steps: int, *, at_start: bool) -> int:
    return at_start + max_steps // interval + (max_steps % interval > 0)
