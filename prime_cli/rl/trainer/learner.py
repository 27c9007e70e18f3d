"""One optimizer step over a batch of samples: what RL and supervised fine-tuning share."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch

from prime_cli.core.errors import PrimeError
from prime_cli.models.folder import save_model_folder
from prime_cli.rl.checkpoint import TrainerState, read_checkpoint
from prime_cli.rl.step_config import LossConfig, StepConfig
from prime_cli.rl.trainer import lora, state
from prime_cli.rl.trainer.loss import TokenTotals, loss_of
from prime_cli.rl.trainer.micro_batches import MicroBatch, micro_batches_of, token_totals
from prime_cli.rl.trainer.optimizers import learning_rate_at, optimizers_of
from prime_cli.rl.trainer.policy import PolicyModel
from prime_cli.rl.trainer.ranks import Ranks, divide, whole
from prime_cli.rl.trainer.token_export import TokenExport
from prime_cli.rl.transport import Sample


@dataclass(frozen=True)
class StepReport:
    """Facts of one step; means are over the tokens that the loss counts."""

    loss: float
    entropy: float
    mismatch_kl: float
    mismatch_kl_max: float
    ratio: float
    masked_share: float
    ref_kl: float
    grad_norm: float
    learning_rate: float
    tokens: int
    loss_tokens: int


class TrainingDiverged(PrimeError):
    """The gradient of a step is not finite; the weights are those before the step."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"the gradient of step {step} is not finite", hint="lower the learning rate, or look at the rewards"
        )


class Learner:
    """A model with its optimizer and learning-rate schedule, on this rank.

    Args:
        model: a causal language model; trained in place.
        total_steps: the last step of the schedule.
        ranks: this process and the others, each of which gets the same samples and takes its share of the rows.

    Raises:
        CannotPack: the model is of a kind that cannot be trained on packed rows.
        ConfigError: the adapters name no layer of the model.
    """

    def __init__(
        self,
        model: Any,
        *,
        config: StepConfig,
        loss: LossConfig,
        learning_rate: float,
        total_steps: int,
        ranks: Ranks = Ranks(),
    ) -> None:
        self.model = model.train()
        self._config = config
        self._loss = loss
        self._ranks = ranks
        self._device = str(next(model.parameters()).device)
        self._policy = PolicyModel(model, chunk=config.head_chunk_tokens)
        self._adapted = lora.put_on(model, config.lora) if config.lora is not None else None
        if config.activation_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self._quadratic = _attention_cost(model)
        if ranks.size > 1:
            kinds = set(model._no_split_modules or [])
            divide(self._policy, [module for module in model.modules() if type(module).__name__ in kinds])
        self._optimizers = optimizers_of(model, config.optim, learning_rate)
        self._learning_rate = learning_rate
        self._total_steps = total_steps
        self._steps_taken = 0

    def step(self, samples: Sequence[Sample], export: TokenExport | None = None) -> StepReport:
        """Take one optimizer step on `samples`; without any weighted token the weights stay as they are.

        Args:
            export: gets every token of this rank's share, as it was before the step.

        Raises:
            TrainingDiverged: the gradient is not finite.
        """
        counts, sums = self.accumulate(samples, export)
        rate = learning_rate_at(self._steps_taken, self._total_steps, self._learning_rate, self._config.scheduler)
        grad_norm = 0.0
        if counts.all:
            trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            grad_norm = float(whole(torch.nn.utils.clip_grad_norm_(trained, self._config.optim.max_norm)))
            if not math.isfinite(grad_norm):
                raise TrainingDiverged(self._steps_taken + 1)
            self._optimizers.step(rate)
        self._optimizers.zero_grad()
        self._steps_taken += 1
        sampled = max(sums.sampled, 1)
        return StepReport(
            loss=sums.loss,
            entropy=sums.entropy / max(sums.counted, 1),
            mismatch_kl=sums.mismatch_kl / sampled,
            mismatch_kl_max=sums.mismatch_kl_max,
            ratio=sums.ratio / sampled,
            masked_share=sums.masked / sampled,
            ref_kl=sums.ref_kl / max(counts.ref_kl, 1),
            grad_norm=grad_norm,
            learning_rate=rate,
            tokens=int(sums.tokens),
            loss_tokens=int(sums.counted),
        )

    def accumulate(self, samples: Sequence[Sample], export: TokenExport | None = None) -> tuple[TokenTotals, Sums]:
        """Add the gradient of the loss of `samples` to the parameters; return their counts, and sums over all ranks."""
        counts = token_totals(samples, self._config.seq_len)
        sums = Sums()
        for batch in self._rows(samples):
            self._backward(batch, counts, sums, export)
        return counts, sums.over(self._ranks)

    def evaluate(self, samples: Sequence[Sample]) -> float:
        """Return the mean cross-entropy, in nats, of the tokens with a `ce` weight; nothing is trained."""
        total, count = 0.0, 0.0
        with torch.no_grad(), self._evaluating():
            for batch in self._rows(samples):
                counted = batch.columns.ce_weights != 0
                logprobs, _ = self._policy(batch, counted)
                total -= float(logprobs[counted].sum())
                count += int(counted.sum())
        total, count = self._ranks.sum([total, count])
        return total / max(count, 1)

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the policy's parameters, adapters merged; with several ranks all of them must call this together."""
        if self._adapted is not None:
            return lora.merged_weights(self.model)
        return {name: whole(parameter).contiguous() for name, parameter in self.model.named_parameters()}

    def export(self, tokenizer: Any, folder: Path, adapter: Path | None = None) -> None:
        """Write the policy to `folder` in Hugging Face layout and, where adapters are trained, these in PEFT layout.

        With several ranks all of them must call this together; the first one writes.
        """
        stored = self.model.state_dict().keys()
        buffers = {name: buffer for name, buffer in self.model.named_buffers() if name in stored}
        weights = buffers | self.weights()
        if self._ranks.is_first:
            save_model_folder(self.model, tokenizer, folder, weights=weights)
        if self._adapted is not None and adapter is not None:
            self.export_adapter(adapter)

    def state(self) -> TrainerState:
        """Return all that a learner needs to go on from here; with several ranks all of them must call this together.

        The tensors are those that are trained on: write them before the next step.
        """
        optimizer = state.optimizer_tensors(self.model, self._optimizers) | state.rng_tensors(self._ranks)
        return TrainerState(self._steps_taken, state.trained_parameters(self.model), optimizer)

    def restore(self, checkpoint: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            BadCheckpoint: it is torn, or of another model or optimizer.
        """
        saved = read_checkpoint(checkpoint)
        source = f"the checkpoint {checkpoint}"
        tensors = dict(saved.optimizer)
        state.take_rng(tensors, self._ranks)
        state.load_parameters(self.model, saved.parameters, source=source)
        state.load_optimizer(self.model, self._optimizers, tensors, source=source)
        self._steps_taken = saved.steps_taken

    def warm_start(self, checkpoint: Path) -> None:
        """Begin with the parameters of a checkpoint, and with nothing else of it.

        Raises:
            BadCheckpoint: it is torn, or of another model.
        """
        saved = read_checkpoint(checkpoint, parameters_only=True)
        state.load_parameters(self.model, saved.parameters, source=f"the checkpoint {checkpoint}")

    def export_adapter(self, folder: Path) -> None:
        """Write the adapter alone, in PEFT layout; with several ranks all of them must call this together."""
        adapters = lora.adapter_weights(self._adapted)
        if self._ranks.is_first:
            lora.save_adapter(self._adapted, adapters, folder)

    def _rows(self, samples: Sequence[Sample]) -> list[MicroBatch]:
        return micro_batches_of(
            samples,
            max_tokens=self._config.micro_batch_tokens,
            seq_len=self._config.seq_len,
            device=self._device,
            rank=self._ranks.rank,
            ranks=self._ranks.size,
            quadratic=self._quadratic,
        )

    def _backward(self, batch: MicroBatch, counts: TokenTotals, sums: Sums, export: TokenExport | None) -> None:
        counted = batch.columns.counted
        with self._half_precision():
            logprobs, entropies = self._policy(batch, counted)
        parts = loss_of(logprobs, batch.columns, self._loss, totals=counts)
        parts.loss.backward()
        if export is not None:
            export.add(batch, logprobs, entropies, parts.dropped)
        sums.loss += float(parts.loss.detach())
        sums.tokens += batch.real_tokens
        sums.counted += int(counted.sum())
        sums.sampled += parts.sampled_tokens
        sums.entropy += float(entropies[counted].sum())
        sums.mismatch_kl += parts.mismatch_kl_sum
        sums.mismatch_kl_max = max(sums.mismatch_kl_max, parts.mismatch_kl_max)
        sums.ratio += parts.ratio_sum
        sums.masked += parts.masked_tokens
        sums.ref_kl += parts.ref_kl_sum

    def _half_precision(self) -> contextlib.AbstractContextManager[Any]:
        """Compute in bf16 on a GPU, over fp32 weights; divided weights see to that themselves."""
        if self._device == "cpu" or self._ranks.size > 1:
            return contextlib.nullcontext()
        context: contextlib.AbstractContextManager[Any] = torch.autocast("cuda", dtype=torch.bfloat16)
        return context

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        self.model.eval()
        try:
            with self._half_precision():
                yield
        finally:
            self.model.train()


@dataclass
class Sums:
    """Sums over the tokens of a batch; `mismatch_kl_max` is a maximum."""

    loss: float = 0.0
    tokens: float = 0
    counted: float = 0
    sampled: float = 0
    entropy: float = 0.0
    mismatch_kl: float = 0.0
    ratio: float = 0.0
    masked: float = 0
    ref_kl: float = 0.0
    mismatch_kl_max: float = 0.0

    def over(self, ranks: Ranks) -> Sums:
        """Return them over all ranks."""
        *sums, maximum = astuple(self)
        values = [*ranks.sum(sums), ranks.max(maximum)]
        return Sums(*values)


def _attention_cost(model: Any) -> float:
    """Return what a pair of tokens costs in attention, over what a token costs in all matrices."""
    config = model.config.get_text_config()
    heads = int(getattr(config, "num_attention_heads", 1))
    head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    return float(int(config.num_hidden_layers) * heads * head_dim / sum(p.numel() for p in model.parameters()))
