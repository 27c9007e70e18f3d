"""The tables that say how an optimizer step is taken: the loss, the optimizer, the schedule."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from prime_cli.core.config_file import StrictModel

LossType = Literal["dppo", "ipo", "ratio_clip", "sequence_ratio_clip"]

_CLIP_DEFAULTS = {"ratio_clip": (0.2, 0.2), "sequence_ratio_clip": (3e-4, 4e-4)}


class TypedTable(StrictModel):
    """A table with a `type`, and keys that mean something for some types only; a key of another type is refused."""

    def _refuse_keys_of_other_types(self, chosen: str, keys: dict[str, tuple[str, ...]]) -> None:
        for key, types in keys.items():
            default = type(self).model_fields[key].get_default(call_default_factory=True)
            if chosen not in types and getattr(self, key) != default:
                belongs = " and ".join(f"`{name}`" for name in types)
                raise ValueError(f"`{key}` belongs to type {belongs}; the type here is `{chosen}`")


class LossConfig(TypedTable):
    """How tokens with an advantage are weighed: see `prime_cli.rl.trainer.loss`.

    `clip_low` and `clip_high` bound the ratio to [1 - clip_low, 1 + clip_high]; absent, they are 0.2 for `ratio_clip`
    and 0.0003 and 0.0004 for `sequence_ratio_clip`, as in the papers.
    """

    type: LossType = "dppo"
    adv_tau: float = Field(default=1.0, gt=0)
    kl_tau: float = Field(default=1e-3, ge=0)
    dppo_mask_low: float = Field(default=0.2, gt=0, le=1)
    dppo_mask_high: float = Field(default=0.2, gt=0, le=1)
    ipo_threshold: float = Field(default=0.1, gt=0, le=1)
    clip_low: float | None = Field(default=None, gt=0, lt=1)
    clip_high: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _keys_fit_the_type(self) -> LossConfig:
        clips = tuple(_CLIP_DEFAULTS)
        owners: dict[str, tuple[str, ...]] = {
            "dppo_mask_low": ("dppo",), "dppo_mask_high": ("dppo",), "ipo_threshold": ("ipo",),
            "clip_low": clips, "clip_high": clips,
        }  # fmt: skip
        self._refuse_keys_of_other_types(self.type, owners)
        return self

    @property
    def clip(self) -> tuple[float, float]:
        """How far below and above 1 a ratio may lie; only for the types that clip."""
        low, high = _CLIP_DEFAULTS[self.type]
        return (low if self.clip_low is None else self.clip_low, high if self.clip_high is None else self.clip_high)


class OptimizerConfig(StrictModel):
    """AdamW. `max_norm` clips the global gradient norm."""

    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = Field(default=0.0, ge=0)
    max_norm: float = Field(default=1.0, gt=0)


class SchedulerConfig(StrictModel):
    """Learning rate over steps: rises over `warmup_steps`, then stays, or falls to zero over the last `decay_steps`."""

    warmup_steps: int = Field(default=10, ge=0)
    decay_steps: int = Field(default=0, ge=0)
