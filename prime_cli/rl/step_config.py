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


class OptimizerConfig(TypedTable):
    """How gradients become steps: see `prime_cli.rl.trainer.optimizers`. `max_norm` clips the global gradient norm.

    `betas` belong to AdamW, with `muon` to that of the parameters that are no hidden matrix; `momentum` to the others.
    """

    type: Literal["adamw", "sgd", "muon"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.95)
    momentum: float | None = Field(default=None, ge=0, lt=1, description="0.9 for sgd, 0.95 for muon")
    weight_decay: float = Field(default=0.0, ge=0)
    max_norm: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _keys_fit_the_type(self) -> OptimizerConfig:
        self._refuse_keys_of_other_types(self.type, {"momentum": ("sgd", "muon")})
        return self


class SchedulerConfig(TypedTable):
    """Learning rate over steps: it rises over `warmup_steps`, and then follows its type, never below `min_lr`.

    `constant` stays, `linear` stays and falls over the last `decay_steps` (0: it stays), `cosine` falls from the end of
    the warm-up to the last step.
    """

    type: Literal["constant", "linear", "cosine"] = "linear"
    warmup_steps: int = Field(default=10, ge=0)
    decay_steps: int = Field(default=0, ge=0)
    min_lr: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _keys_fit_the_type(self) -> SchedulerConfig:
        self._refuse_keys_of_other_types(self.type, {"decay_steps": ("linear",), "min_lr": ("linear", "cosine")})
        return self


class LoraConfig(StrictModel):
    """Low-rank adapters on the layers that `target_modules` names; everything else is frozen (arXiv:2106.09685)."""

    rank: int = Field(default=16, ge=1)
    alpha: float = Field(default=32.0, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: list[str] = Field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        min_length=1,
    )


class StepConfig(StrictModel):
    """How an optimizer step is taken, by reinforcement learning and by fine-tuning alike.

    Samples are cut at `seq_len` tokens and packed into rows of `micro_batch_tokens`, one row per forward pass.
    `head_chunk_tokens` bounds the tokens whose logits are held at once; `activation_checkpointing` computes a layer's
    activations again in the backward pass instead of keeping them. With `lora`, only adapters are trained.
    """

    optim: OptimizerConfig = OptimizerConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    lora: LoraConfig | None = None
    seq_len: int = Field(default=2048, ge=8)
    micro_batch_tokens: int = Field(default=16384, ge=8)
    head_chunk_tokens: int = Field(default=1024, ge=1)
    activation_checkpointing: bool = False
