"""Keeps results and metadata on disk in step with what is counted and shown."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.environments.runtime import EnvironmentInfo
from prime_cli.evals.cost import Meter
from prime_cli.evals.figures import figures_of
from prime_cli.evals.pace import Pace
from prime_cli.evals.settings import EvalSettings
from prime_cli.evals.store import EvalDirectory
from prime_cli.evals.summary import PASS_THRESHOLD, EvalSummary, EvalTally

_METADATA_EVERY_S = 2.0
_REST_PER_WRITE = 20  # the averages of very many rollouts take a while


@dataclass(frozen=True)
class EvalProgress:
    """How far an evaluation is. `mean` is over the rollouts without an error, None while there is none.

    `standard_error` is that of the mean, as of a moment ago.
    `num_refusals` counts requests that the server refused because there were too many; `pause_s` is for how long
    nothing is started for that reason. `projected_cost` is what all rollouts will have cost.
    """

    num_done: int
    num_errors: int
    total: int
    mean: float | None
    standard_error: float | None = None
    num_retries: int = 0
    num_refusals: int = 0
    pause_s: float = 0.0
    cost: float | None = None
    projected_cost: float | None = None


Observer = Callable[[EvalProgress], None]
"""Called after each finished rollout."""


class EvalRecord:
    """The growing results of one evaluation.

    Args:
        tally: of what is on disk already; new rollouts are added to it.
        total: how many rollouts there will be.
    """

    def __init__(
        self,
        settings: EvalSettings,
        directory: EvalDirectory,
        info: EnvironmentInfo,
        *,
        base_url: str,
        tally: EvalTally,
        total: int,
        observe: Observer,
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._info = info
        self._base_url = base_url
        self._tally = tally
        self._total = total
        self._observe = observe
        self._tools: Any = None
        self._started = time.time()
        self._next_write = 0.0
        self._standard_error: float | None = None
        self._num_retries = 0
        self._pace: Pace | None = None
        self._meter: Meter | None = None
        self.stopped: str | None = None
        self.write_metadata()
        self.show()

    @property
    def cost(self) -> float:
        """What the rollouts cost whose price is known; there are `num_priced` of them."""
        return self._tally.cost

    @property
    def num_priced(self) -> int:
        """How many rollouts have a price."""
        return self._tally.num_priced

    @property
    def num_missing(self) -> int:
        """How many rollouts there are still to be."""
        return self._total - self._tally.num_rollouts

    @property
    def num_done(self) -> int:
        """How many rollouts are on disk."""
        return self._tally.num_rollouts

    def show_also(self, *, pace: Pace, meter: Meter) -> None:
        """Show what these know, too."""
        self._pace, self._meter = pace, meter

    def retried(self) -> None:
        """Count an attempt that failed and is made again."""
        self._num_retries += 1
        self.show()

    def add(self, rollouts: Sequence[Mapping[str, Any]]) -> None:
        """Store finished rollouts, then count and show them."""
        for rollout in rollouts:
            self._directory.append(rollout)
            self._tally.add(figures_of(rollout))
            self._tools = self._tools or rollout.get("tool_defs")
        if time.time() > self._next_write:
            self.write_metadata()
        self.show()

    @contextlib.contextmanager
    def kept_up_to_date(self) -> Iterator[None]:
        """Write the metadata once more at the end, however it comes.

        Raises:
            PrimeError: it cannot be written, and nothing else went wrong before.
        """
        try:
            yield
        except BaseException:
            with contextlib.suppress(PrimeError):
                self.write_metadata()
            raise
        self.write_metadata()

    def summary(self) -> EvalSummary:
        """Return the averages so far."""
        summary = self._tally.summary(self._directory.path, time.time() - self._started)
        return replace(summary, stopped=self.stopped)

    def write_metadata(self) -> None:
        """Bring metadata.json up to date; the keys are verifiers' own, and ours after them."""
        began = time.time()
        summary = self.summary()
        self._standard_error = summary.reward.standard_error if summary.reward else None
        settings = self._settings.as_metadata()
        self._directory.write_metadata(
            {
                "env_id": settings.pop("env_id"),
                "env_args": settings.pop("env_args"),
                "model": settings.pop("model"),
                "base_url": self._base_url,
                **{key: settings.pop(key) for key in ("num_examples", "rollouts_per_example")},
                **{key: settings.pop(key) for key in ("shuffle", "shuffle_seed", "sampling_args")},
                "date": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(self._started)),
                "time": summary.seconds,
                "avg_reward": summary.reward.mean if summary.reward else None,
                "avg_metrics": {name: estimate.mean for name, estimate in summary.metrics.items()},
                "avg_error": summary.num_errors / summary.num_rollouts if summary.num_rollouts else 0.0,
                "pass_at_k": summary.pass_at_k,
                "pass_all_k": summary.pass_all_k,
                "pass_threshold": PASS_THRESHOLD,
                "usage": summary.usage or None,
                "cost": summary.cost,
                "stopped": summary.stopped,
                "version_info": {
                    "vf_version": self._info.verifiers_version,
                    "vf_commit": None,
                    "env_version": self._info.version,
                    "env_commit": None,
                },
                "state_columns": settings.pop("state_columns"),
                "tools": self._tools,
                **settings,
                "reward_standard_error": summary.reward.standard_error if summary.reward else None,
                "estimates": summary.estimates(),
                "num_rollouts": summary.num_rollouts,
                "num_errors": summary.num_errors,
                "total_rollouts": self._total,
                "max_concurrent": self._settings.max_concurrent,
                "num_workers": self._settings.num_workers,
            }
        )
        now = time.time()
        self._next_write = now + max(_METADATA_EVERY_S, _REST_PER_WRITE * (now - began))

    def show(self) -> None:
        """Tell the observer how far it is."""
        tally, pace, meter = self._tally, self._pace, self._meter
        priced = meter is not None and tally.num_priced > 0
        self._observe(
            EvalProgress(
                num_done=tally.num_rollouts,
                num_errors=tally.num_errors,
                total=self._total,
                mean=tally.mean_reward,
                standard_error=self._standard_error,
                num_retries=self._num_retries,
                num_refusals=pace.num_refusals if pace else 0,
                pause_s=pace.pause_s if pace else 0.0,
                cost=tally.cost if priced else None,
                projected_cost=meter.projected(self.num_missing) if meter and priced else None,
            )
        )
