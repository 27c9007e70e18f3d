"""The `[data]` table: where demonstrations come from, how several sources are mixed, and whose words are learnt."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from prime_cli.core.config_file import StrictModel

_DEFAULT_VALIDATION = 64


class LossMaskConfig(StrictModel):
    """Whose words are learnt, by role. An assistant's words include its tool calls and the end marker."""

    system: bool = False
    user: bool = False
    assistant: bool = True
    tool: bool = False

    @model_validator(mode="after")
    def _somebody_is_learnt_from(self) -> Self:
        if not self.roles:
            raise ValueError("all roles are off, so there is nothing to learn; set `assistant` to true")
        return self

    @property
    def roles(self) -> frozenset[str]:
        """The roles whose words are learnt."""
        return frozenset(role for role in ("system", "user", "assistant", "tool") if getattr(self, role))


class SourceConfig(StrictModel):
    """One source of demonstrations: a file, a dataset, or the training examples of an environment with their answers.

    A row holds `messages`, or `prompt` and `completion`, each a text or a list of messages; `tools` (or `tool_defs`),
    a list or JSON text, is what the assistant may call.
    """

    path: Path | None = Field(default=None, description="a file: .jsonl or .parquet")
    name: str | None = Field(
        default=None, min_length=1, description="a dataset that `datasets` loads: a folder, or a name on its hub"
    )
    subset: str | None = Field(default=None, description="the configuration of the dataset `name`")
    split: str = Field(default="train", min_length=1, description="the split of the dataset `name`")
    env: str | None = Field(default=None, min_length=1)
    args: dict[str, Any] = Field(default_factory=dict)
    probability: float | None = Field(
        default=None, gt=0, le=1, description="how often a demonstration is drawn from here, among several sources"
    )

    @model_validator(mode="after")
    def _keys_fit_the_source(self) -> Self:
        if self.args and self.env is None:
            raise ValueError("`args` are arguments of an environment; there is none")
        if self.name is None and (self.subset is not None or self.split != "train"):
            raise ValueError("`subset` and `split` choose within a dataset; there is no `name`")
        return self

    @property
    def places(self) -> list[str]:
        """The keys that say where the demonstrations are; there should be one."""
        return [key for key in ("path", "name", "env") if getattr(self, key) is not None]

    @property
    def label(self) -> str:
        """The source in a message."""
        if self.name is not None:
            return f"{self.name} ({'/'.join(part for part in (self.subset, self.split) if part)})"
        return str(self.path if self.path is not None else self.env)


class DataConfig(SourceConfig):
    """Demonstrations: one source, given by the keys above, or several as `[[data.source]]`.

    Sources are put together and shuffled anew for each epoch; with probabilities, each demonstration is drawn from a
    source by chance instead, until all sources are used up (`all_exhausted`, smaller ones repeat) or the first one is.
    `subsets` and `splits` are several parts of one dataset, with `probabilities` in their order.
    """

    type: Literal["sft"] = Field(default="sft", description="demonstrations; there is no other kind")
    source: list[SourceConfig] = Field(default_factory=list)
    subsets: list[str] | None = Field(default=None, min_length=1)
    splits: list[str] | None = Field(default=None, min_length=1)
    probabilities: list[float] | None = Field(default=None, min_length=1)
    stopping_strategy: Literal["all_exhausted", "first_exhausted"] = "all_exhausted"
    shuffle: bool = True
    seed: int | None = Field(default=None, description="of the order; that of the run unless given")
    loss_mask: LossMaskConfig = LossMaskConfig()
    num_validation: int | None = Field(
        default=None, ge=0, description="held out for the validation loss: 64, or none with a [val.data] of its own"
    )

    @model_validator(mode="after")
    def _sources_are_clear(self) -> Self:
        for entry in self.source:
            if len(entry.places) != 1:
                raise ValueError("each `source` needs one of `path`, `name` and `env`")
        if len(self.places) != (0 if self.source else 1):
            raise ValueError(
                "give one of `path` (a file), `name` (a dataset) and `env` (an environment), or several as "
                "[[data.source]]; not both and not none"
            )
        if (self.subsets or self.splits) and self.name is None:
            raise ValueError("`subsets` and `splits` choose within a dataset; there is no `name`")
        if self.subsets and self.splits and len(self.subsets) != len(self.splits):
            raise ValueError("`subsets` and `splits` go together, one split for each subset, so they are equally many")
        given = [entry.probability is not None for entry in self.sources]
        if any(given) and not all(given):
            raise ValueError("give each source a `probability`, or none")
        if all(given) and not math.isclose(sum(entry.probability or 0 for entry in self.sources), 1, abs_tol=1e-6):
            raise ValueError("the probabilities of the sources do not add up to 1")
        return self

    @property
    def sources(self) -> list[SourceConfig]:
        """Each source by itself."""
        if self.source:
            parts = self.source
        else:
            count = len(self.subsets or self.splits or "1")
            subsets: list[str | None] = [*self.subsets] if self.subsets else [self.subset] * count
            splits = self.splits or [self.split] * count
            one = {"path": self.path, "name": self.name, "env": self.env, "args": self.args}
            parts = [
                SourceConfig(**one, subset=subset, split=split)  # type: ignore[arg-type]
                for subset, split in zip(subsets, splits, strict=True)
            ]
        if self.probabilities is None:
            return parts
        if len(self.probabilities) != len(parts):
            raise ValueError(f"there are {len(self.probabilities)} probabilities for {len(parts)} sources")
        return [
            part.model_copy(update={"probability": probability})
            for part, probability in zip(parts, self.probabilities, strict=True)
        ]

    def held_out(self, *, has_validation_data: bool) -> int:
        """Return how many demonstrations are kept for the validation loss."""
        if self.num_validation is not None:
            return self.num_validation
        return 0 if has_validation_data else _DEFAULT_VALIDATION
