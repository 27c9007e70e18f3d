"""One run from loaded models to files: examples, plan, search, held-out comparison."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.environments.runtime import EnvironmentSpec, EnvironmentWorkers
from prime_cli.environments.target import EnvironmentTarget
from prime_cli.evals.cost import PricedEndpoint, estimate_in_words
from prime_cli.gepa.adapter import LoopBridge, PromptAdapter
from prime_cli.gepa.comparison import Comparison, compare
from prime_cli.gepa.config import GepaConfig
from prime_cli.gepa.examples import Pool, Splits, SplitSizes, draw_splits
from prime_cli.gepa.journal import Journal
from prime_cli.gepa.outputs import candidate_rows, frontier_rows, metadata
from prime_cli.gepa.plan import Plan
from prime_cli.gepa.progress import Meter
from prime_cli.gepa.prompts import most_common_system_prompt
from prime_cli.gepa.reflection import ReflectionModel
from prime_cli.gepa.rollouts import LoadedEnvironment, Outcome, Rollouts
from prime_cli.gepa.run_directory import GepaDirectory
from prime_cli.gepa.search import Found, Proposal, search
from prime_cli.gepa.summary import GepaSummary

Note = Callable[[str], None]


@dataclass(frozen=True)
class Models:
    """The models of a run: replicas for the rollouts, one for reflection, and the names under which it is filed."""

    endpoints: Sequence[PricedEndpoint]
    reflection: PricedEndpoint
    label: str
    reflection_label: str


@dataclass(frozen=True)
class Prepared:
    """The environments of a run, loaded, with its examples, what the budget buys, and the prompt to begin with.

    `env_id` names the environments as they were found, several joined by +.
    """

    env_id: str
    environments: list[LoadedEnvironment]
    splits: Splits
    plan: Plan
    initial_prompt: str


@contextlib.asynccontextmanager
async def prepared(
    config: GepaConfig, given: frozenset[str], targets: Sequence[EnvironmentTarget], logs: Path, note: Note
) -> AsyncIterator[Prepared]:
    """Yield the run's environments for as long as the context lasts; `given` are the sizes of sets that were asked for.

    Raises:
        EnvironmentFailed: an environment does not load.
        BadInput: the budget is too small.
        PrimeError: there are too few examples.
    """
    settings = config.gepa
    async with contextlib.AsyncExitStack() as stack:
        environments, pools = [], []
        for target, environment in zip(targets, config.env, strict=True):
            workers = EnvironmentWorkers(
                EnvironmentSpec(target.identity.name, environment.args, attributes=environment.extra_env_kwargs),
                python=target.python,
                num_workers=settings.num_workers,
                log_directory=logs,
                search_path=target.search_path,
            )
            stack.push_async_callback(workers.close)
            info = await workers.start()
            environments.append(LoadedEnvironment(workers, info.needs_group_scoring))
            pools.append(await _pool(str(target.identity), workers))
        wanted = SplitSizes(settings.num_train, settings.num_val, settings.num_test)
        splits = draw_splits(pools, wanted, given, settings.seed)
        plan = Plan(settings.max_calls, settings.minibatch_size, splits.sizes)
        plan.check()
        env_id = "+".join(str(target.identity) for target in targets)
        yield Prepared(env_id, environments, splits, plan, _initial_prompt(config, splits, note))


async def run_gepa(
    config: GepaConfig, ready: Prepared, models: Models, directory: GepaDirectory, meter: Meter, note: Note
) -> GepaSummary:
    """Search, compare, and write everything down.

    Raises:
        PrimeError: a model gives no answer, or the folder cannot be written to.
    """
    started = time.monotonic()
    directory.check_examples(ready.splits.as_data())
    journal = Journal(directory.journal)
    settings = config.gepa
    if journal.num_calls:
        note(f"going on: {journal.num_calls} calls of this run are in its journal and are not made again")
    rollouts = Rollouts(
        ready.environments, models.endpoints, journal, meter,
        sampling_args=config.sampling, state_columns=settings.state_columns,
        max_concurrent=settings.max_concurrent, max_retries=settings.max_retries,
    )  # fmt: skip
    _say_cost(config, ready, models, note)
    reflection = ReflectionModel(models.reflection, journal, meter, max_retries=settings.max_retries)
    record = _Record(config, ready.env_id, models, directory)
    try:
        if not journal.num_calls:
            await reflection.check()
        with _gepa_log(directory, note if config.verbose else None) as log:
            found = await search(
                ready.initial_prompt, ready.splits, ready.plan, settings,
                lambda bridge: _adapter(rollouts, reflection, bridge, meter, settings.state_columns),
                meter, record.keep, folder=directory.gepa_state, log=log,
            )  # fmt: skip
        record.keep(found)
        compared = await _compare(found, ready.splits, rollouts, meter, directory)
    finally:
        await reflection.close()
        journal.close()
    seconds = time.monotonic() - started
    path = directory.path if config.save_results else None
    summary = GepaSummary(found, ready.plan, meter.now, compared, path, seconds)
    record.finish(summary)
    return summary


@contextlib.contextmanager
def _gepa_log(directory: GepaDirectory, note: Note | None) -> Iterator[Note]:
    with directory.gepa_log.open("a", encoding="utf-8") as file:

        def tell(message: str) -> None:
            file.write(f"{message}\n")
            file.flush()
            if note is not None:
                note(message)

        yield tell


def _adapter(
    rollouts: Rollouts, reflection: ReflectionModel, bridge: LoopBridge, meter: Meter, columns: Sequence[str]
) -> PromptAdapter:
    return PromptAdapter(rollouts, reflection, bridge, meter, columns)


def _say_cost(config: GepaConfig, ready: Prepared, models: Models, note: Note) -> None:
    price = models.endpoints[0].price
    if price is None:
        return
    prompts = [example.row["prompt"] for example in ready.splits.val]
    num_rollouts = ready.plan.max_calls + ready.plan.comparison
    limit = config.sampling.get("max_tokens") or config.sampling.get("max_completion_tokens")
    note(f"cost       {estimate_in_words(price, prompts, num_rollouts, limit)}; reflections come on top")


class _Record:
    """Keeps the files of a run in step with what was found."""

    def __init__(self, config: GepaConfig, env_id: str, models: Models, directory: GepaDirectory) -> None:
        self._config = config
        self._env_id = env_id
        self._models = models
        self._directory = directory

    def keep(self, found: Found, proposals: Sequence[Proposal] | None = None) -> None:
        """Write what there is so far."""
        self._directory.write_results(results=candidate_rows(found), pareto_frontier=frontier_rows(found))
        if proposals is not None:
            self._directory.write_results(proposals=(proposal.as_data() for proposal in proposals))
        self._directory.write_summary(found.prompts[found.best], self._metadata(found, complete=False))

    def finish(self, summary: GepaSummary) -> None:
        """Write the end."""
        found = summary.found
        body = summary.as_data()
        ours = {name: body[name] for name in ("held_out", "verdict", "usage", "cost_usd", "num_errors", "seconds")}
        self._directory.write_summary(summary.prompt, {**self._metadata(found, complete=True), **ours})

    def _metadata(self, found: Found, *, complete: bool) -> dict[str, Any]:
        return metadata(
            found,
            env_id=self._env_id,
            model=self._models.label,
            reflection_model=self._models.reflection_label,
            config=self._config.model_dump(mode="json"),
            complete=complete,
        )


async def _pool(name: str, workers: EnvironmentWorkers) -> Pool:
    train = await workers.examples("train") if await workers.count("train") else []
    return Pool(name, train, await workers.examples("eval") if await workers.count("eval") else [])


def _initial_prompt(config: GepaConfig, splits: Splits, note: Note) -> str:
    if config.initial_prompt is not None:
        try:
            return config.initial_prompt.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise PrimeError(f"the initial prompt {config.initial_prompt} cannot be read: {reason}") from None
    text, different = most_common_system_prompt([example.row for example in splits.train + splits.val])
    if different > 1:
        note(
            f"the examples have {different} different system prompts; the search begins with the most frequent one "
            "for all of them (initial_prompt names another)"
        )
    return text


async def _compare(
    found: Found, splits: Splits, rollouts: Rollouts, meter: Meter, directory: GepaDirectory
) -> Comparison | None:
    if not splits.test or found.best == 0:
        return None
    outcomes = []
    meter.change(comparison_total=2 * len(splits.test))
    for name, prompt in (("initial", found.prompts[0]), ("best", found.prompts[found.best])):
        meter.change(phase=f"the {name} prompt on the held-out examples")
        outcomes.append(await rollouts.evaluate(prompt, splits.test, held_out=True))
    directory.write_results(held_out=[_pair(*pair) for pair in zip(*outcomes, strict=True)])
    return compare(*outcomes)


def _pair(initial: Outcome, best: Outcome) -> dict[str, Any]:
    return {
        "example_id": initial.example.row.get("example_id"),
        "example": initial.example.key,
        "initial": {"reward": initial.score, "error": initial.error},
        "best": {"reward": best.score, "error": best.error},
    }
