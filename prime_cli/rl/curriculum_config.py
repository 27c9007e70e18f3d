"""The tables that say which examples are opened, when, how many at once, and what of them is trained on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from prime_cli.core.config_file import StrictModel
from prime_cli.rl.step_config import TypedTable


class PoolConfig(StrictModel):
    """Examples whose last mean reward is at most `max`, drawn with this `weight` against those of other pools."""

    max: float
    weight: float = Field(ge=0)


def _usual_pools() -> dict[str, PoolConfig]:
    return {
        "hard": PoolConfig(max=0.25, weight=0.2),
        "normal": PoolConfig(max=0.75, weight=1.0),
        "easy": PoolConfig(max=1.0, weight=0.2),
    }


class SamplerConfig(TypedTable):
    """Which example comes next: see `prime_cli.rl.orchestrator.samplers`.

    `shuffled` takes each once per epoch in a fresh order, `ordered` in the order of the environment, `difficulty_pool`
    draws with a weight that follows from the last mean reward of the example; one not seen yet weighs 1.
    """

    type: Literal["shuffled", "ordered", "difficulty_pool"] = "shuffled"
    pools: dict[str, PoolConfig] = Field(default_factory=_usual_pools, min_length=1)
    seed: int | None = Field(default=None, description="that of the run when left out")

    @model_validator(mode="after")
    def _keys_fit_the_type(self) -> SamplerConfig:
        self._refuse_keys_of_other_types(
            self.type, {"pools": ("difficulty_pool",), "seed": ("difficulty_pool", "shuffled")}
        )
        if not any(pool.weight for pool in self.pools.values()):
            raise ValueError("every pool has a weight of 0, so that only examples not seen yet would be drawn")
        return self


class GateConfig(TypedTable):
    """A gate that a finished group passes before it takes a place in a batch: see `prime_cli.rl.orchestrator.gates`.

    `advantage_range` refuses groups whose advantages all lie from `reject_min` to `reject_max`; `online_difficulty`
    those whose mean reward is not above `min_reward` and below `max_reward`.
    """

    type: Literal["advantage_range", "online_difficulty"] = "advantage_range"
    reject_min: float = Field(default=0.0, le=0)
    reject_max: float = Field(default=0.0, ge=0)
    min_reward: float = 0.0
    max_reward: float = 1.0

    @model_validator(mode="after")
    def _keys_fit_the_type(self) -> GateConfig:
        ranges, difficulty = ("advantage_range",), ("online_difficulty",)
        self._refuse_keys_of_other_types(
            self.type,
            {"reject_min": ranges, "reject_max": ranges, "min_reward": difficulty, "max_reward": difficulty},
        )
        if self.min_reward >= self.max_reward:
            raise ValueError(f"min_reward {self.min_reward} is not below max_reward {self.max_reward}")
        return self


class CurriculumConfig(StrictModel):
    """Which examples of an environment are opened, and which groups of them join a batch; `gates` go by any name."""

    sampler: SamplerConfig = SamplerConfig()
    gates: dict[str, GateConfig] = Field(default_factory=dict)


class FilterConfig(TypedTable):
    """A filter of samples: see `prime_cli.rl.orchestrator.filters`.

    One that does not `enforce` counts, and drops nothing; left out, it is true for `zero_advantage` alone. `gibberish`
    catches a sample with a token from `token_id_threshold` on whose log-probability is below that of a uniform guess by
    more than `logprob_offset`; `repetition` one with `window` sampled tokens in a row that each had a probability above
    `prob_threshold`; `zero_advantage` a group that has nothing to teach.
    """

    type: Literal["gibberish", "repetition", "zero_advantage"]
    enforce: bool | None = None
    token_id_threshold: int = Field(default=100_000, ge=0)
    logprob_offset: float = Field(default=2.0, ge=0)
    window: int = Field(default=3000, ge=1)
    prob_threshold: float = Field(default=0.99, gt=0, le=1)

    @model_validator(mode="after")
    def _keys_fit_the_type(self) -> FilterConfig:
        self._refuse_keys_of_other_types(
            self.type,
            {
                "token_id_threshold": ("gibberish",),
                "logprob_offset": ("gibberish",),
                "window": ("repetition",),
                "prob_threshold": ("repetition",),
            },
        )
        return self

    @property
    def enforces(self) -> bool:
        """Whether what is caught is dropped."""
        return self.type == "zero_advantage" if self.enforce is None else self.enforce


class TemperatureScheduleConfig(StrictModel):
    """A temperature that goes from one value to the other over the batches 1 to `total_steps`, and stays there."""

    type: Literal["linear", "cosine"] = "linear"
    start_temperature: float = Field(gt=0)
    end_temperature: float = Field(gt=0)
    total_steps: int | None = Field(default=None, ge=1, description="max_steps when left out")


class ConcurrencyConfig(TypedTable):
    """How many rollouts are in flight: see `prime_cli.rl.orchestrator.adaptive_concurrency`.

    `static` is `max_inflight_rollouts`, or `oversampling_factor` batches. `adaptive` begins with `initial_inflight` (or
    what the server's cache holds of the longest requests) and follows the load of the server between the two bounds.
    """

    type: Literal["static", "adaptive"] = "static"
    initial_inflight: int | None = Field(default=None, ge=1)
    min_inflight: int = Field(default=1, ge=1)
    max_inflight: int = Field(default=1024, ge=1)

    @model_validator(mode="after")
    def _keys_fit_the_type(self) -> ConcurrencyConfig:
        adaptive = ("adaptive",)
        self._refuse_keys_of_other_types(
            self.type, {"initial_inflight": adaptive, "min_inflight": adaptive, "max_inflight": adaptive}
        )
        if not self.min_inflight <= (self.initial_inflight or self.min_inflight) <= self.max_inflight:
            raise ValueError("initial_inflight must lie between min_inflight and max_inflight")
        return self


class LengthPenaltyConfig(StrictModel):
    """What a long rollout loses, against the longest of its group, in shares of the group's mean reward.

    `output`: of its sampled tokens, `input`: of those that it read, `turns`: of the model's turns.
    """

    type: Literal["linear"] = "linear"
    output: float = Field(default=0.25, ge=0)
    input: float = Field(default=0.1, ge=0)
    turns: float = Field(default=0.1, ge=0)
