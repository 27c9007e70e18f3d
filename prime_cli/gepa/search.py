"""The search by the gepa package: it chooses, reflects and accepts; the budget, the calls and the files are ours."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prime_cli.gepa.adapter import COMPONENT, LoopBridge, PromptAdapter, SearchStopped
from prime_cli.gepa.config import SearchConfig
from prime_cli.gepa.examples import Splits
from prime_cli.gepa.plan import Plan
from prime_cli.gepa.progress import Meter

if TYPE_CHECKING:
    from gepa.core.result import GEPAResult
    from gepa.core.state import GEPAState


@dataclass(frozen=True)
class Found:
    """The candidates of a search, the initial prompt first. `parents` and `scores` go with `prompts` one to one.

    `val_scores` has the score of each candidate on each validation example, in the order of the examples, and
    `discovered_after` the calls that were made before a candidate was accepted.
    """

    prompts: list[str]
    parents: list[list[int]]
    val_scores: list[list[float]]
    discovered_after: list[int]
    calls: int

    @property
    def scores(self) -> list[float]:
        """The mean of each candidate over the validation examples."""
        return [sum(scores) / len(scores) for scores in self.val_scores]

    @property
    def best(self) -> int:
        """The candidate with the highest mean, the first of several."""
        scores = self.scores
        return scores.index(max(scores))


@dataclass
class Proposal:
    """A prompt that was tested, or the reason why there was none."""

    iteration: int
    parent: int | None = None
    prompt: str | None = None
    minibatch: list[int] = field(default_factory=list)
    parent_scores: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    candidate: int | None = None
    skipped: str | None = None

    def as_data(self) -> dict[str, Any]:
        """Return a line of proposals.jsonl."""
        return {
            "iteration": self.iteration,
            "parent_candidate_idx": self.parent,
            "candidate_idx": self.candidate,
            "accepted": self.candidate is not None,
            "skipped": self.skipped,
            "train_examples": self.minibatch,
            "parent_scores": self.parent_scores,
            "scores": self.scores,
            "system_prompt": self.prompt,
        }


Keep = Callable[[Found, list[Proposal]], None]
"""Called with what there is so far after each accepted candidate."""


async def search(
    initial_prompt: str,
    splits: Splits,
    plan: Plan,
    settings: SearchConfig,
    make_adapter: Callable[[LoopBridge], PromptAdapter],
    meter: Meter,
    keep: Keep,
    *,
    folder: Path,
    log: Callable[[str], None],
) -> Found:
    """Search until the budget is used, and return what was found.

    The gepa package starts from nothing each time, also when a run is resumed: it does not save the state of its
    random numbers, so that going on from its own state would draw other examples than a run that was never stopped.

    Args:
        folder: for the gepa package's own files; emptied first.
        log: is told what the gepa package says.

    Raises:
        PrimeError: a rollout or a reflection could not be had.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    bridge = LoopBridge(asyncio.get_running_loop())
    watcher = _Watcher(plan, meter, keep, settings.perfect_score)

    def run() -> Found:
        return _optimize(initial_prompt, splits, settings, make_adapter(bridge), watcher, folder, log)

    thread = asyncio.get_running_loop().run_in_executor(None, run)
    try:
        return await asyncio.shield(thread)
    except SearchStopped as stopped:
        if stopped.reason is None:
            raise asyncio.CancelledError from None
        raise stopped.reason from None
    finally:
        bridge.stop()
        await asyncio.wait([thread])
        thread.exception()  # when this was interrupted, nobody else asks for it


def _optimize(
    initial_prompt: str,
    splits: Splits,
    settings: SearchConfig,
    adapter: PromptAdapter,
    watcher: _Watcher,
    folder: Path,
    log: Callable[[str], None],
) -> Found:
    from gepa.api import optimize

    result = optimize(
        seed_candidate={COMPONENT: initial_prompt},
        trainset=splits.train,
        valset=splits.val,
        adapter=adapter,
        reflection_lm=adapter.reflect,
        reflection_minibatch_size=settings.minibatch_size,
        skip_perfect_score=settings.perfect_score is not None,
        perfect_score=settings.perfect_score,
        stop_callbacks=[watcher.is_over],
        callbacks=[watcher],
        logger=_Log(log),
        run_dir=str(folder),
        track_best_outputs=False,
        seed=settings.seed,
    )
    return found_of(result)


def found_of(result: GEPAResult[Any, int]) -> Found:
    """Return the gepa package's result as ours."""
    return Found(
        prompts=[candidate[COMPONENT] for candidate in result.candidates],
        parents=[[parent for parent in parents if parent is not None] for parents in result.parents],
        val_scores=[[scores[i] for i in sorted(scores)] for scores in result.val_subscores],
        discovered_after=list(result.discovery_eval_counts),
        calls=int(result.total_metric_calls or 0),
    )


class _Watcher:
    """Hears of every step of the search: shows it, ends it in time, and keeps what it found."""

    def __init__(self, plan: Plan, meter: Meter, keep: Keep, perfect_score: float | None) -> None:
        self._plan = plan
        self._meter = meter
        self._keep = keep
        self._perfect_score = perfect_score
        self._proposals: list[Proposal] = []

    def is_over(self, state: GEPAState[Any, int]) -> bool:
        """Say whether nothing is left to find, or the next iteration might not fit in, with the comparison after it."""
        plan, best = self._plan, self._meter.now.best
        if best is not None and self._perfect_score is not None and best >= self._perfect_score:
            return True
        return not (plan.fits(state.total_num_evals) and self._meter.affords(plan.iteration + plan.comparison))

    def on_optimization_start(self, event: Any) -> None:
        self._meter.change(phase="the initial prompt on the validation examples")

    def on_valset_evaluated(self, event: Any) -> None:
        now, score = self._meter.now, event["average_score"]
        if event["iteration"] == 0:
            self._meter.change(baseline=score, best=score, candidates=1)
        else:
            best = (score, event["candidate_idx"]) if event["is_best_program"] else (now.best, now.best_candidate)
            self._meter.change(candidates=event["candidate_idx"] + 1, best=best[0], best_candidate=best[1])

    def on_iteration_start(self, event: Any) -> None:
        self._proposals.append(Proposal(event["iteration"]))

    def on_candidate_selected(self, event: Any) -> None:
        self._proposals[-1].parent = event["candidate_idx"]
        self._meter.change(phase=f"candidate {event['candidate_idx']} on a minibatch")

    def on_minibatch_sampled(self, event: Any) -> None:
        self._proposals[-1].minibatch = list(event["minibatch_ids"])

    def on_evaluation_end(self, event: Any) -> None:
        if event["candidate_idx"] is None:
            self._proposals[-1].scores = list(event["scores"])
            # Whether it is accepted shows a moment later; if not, the next iteration begins at once.
            self._meter.change(phase="the proposal on the validation examples")
        else:
            self._proposals[-1].parent_scores = list(event["scores"])

    def on_evaluation_skipped(self, event: Any) -> None:
        self._proposals[-1].skipped = str(event["reason"])

    def on_proposal_end(self, event: Any) -> None:
        self._proposals[-1].prompt = event["new_instructions"][COMPONENT]
        self._meter.change(proposals=self._meter.now.proposals + 1, phase="the proposal on the minibatch")

    def on_candidate_accepted(self, event: Any) -> None:
        self._proposals[-1].candidate = event["new_candidate_idx"]

    def on_iteration_end(self, event: Any) -> None:
        if event["proposal_accepted"]:
            from gepa.core.result import GEPAResult

            self._keep(found_of(GEPAResult.from_state(event["state"])), self._proposals)

    def on_optimization_end(self, event: Any) -> None:
        from gepa.core.result import GEPAResult

        self._keep(found_of(GEPAResult.from_state(event["final_state"])), self._proposals)


class _Log:
    """Takes the gepa package's own messages."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def log(self, message: str) -> None:
        self._tell(str(message))
