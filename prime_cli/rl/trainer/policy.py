"""A causal language model as the trainer sees it: packed rows in, log-probabilities and entropies out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from prime_cli.core.errors import PrimeError
from prime_cli.rl.trainer.attention import DOCUMENT_ATTENTION, Document, Documents, register_document_attention
from prime_cli.rl.trainer.head import head_logprobs
from prime_cli.rl.trainer.micro_batches import MicroBatch, micro_batches_of
from prime_cli.rl.transport import Sample

_TOLERANCE = 1e-3


class CannotPack(PrimeError):
    """A model whose tokens see other documents of a packed row, or that changes the logits of its head."""


class PolicyModel(torch.nn.Module):
    """Wraps a Hugging Face model, unchanged but for its attention, which stays within documents.

    Args:
        model: a causal language model.
        chunk: tokens whose logits are held at once.

    Raises:
        CannotPack: the model's own log-probabilities are not those that it gives here.
    """

    def __init__(self, model: Any, *, chunk: int) -> None:
        super().__init__()
        self.model = model
        self._chunk = chunk
        register_document_attention()
        with torch.no_grad(), _evaluating(model):
            self._check(_probe(model))

    def forward(self, batch: MicroBatch, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies (without gradient) of the wanted tokens, [1, T] each; 0 elsewhere.

        Args:
            wanted: [1, T]; the first token of a document has no prediction and stays 0.
        """
        hidden_TD = self.model.base_model(
            input_ids=batch.token_ids,
            position_ids=batch.position_ids,
            use_cache=False,
            documents=Documents(batch.documents or (Document(0, 1),), batch.token_ids.device),
        ).last_hidden_state[0]
        at_N = (wanted & (batch.position_ids > 0))[0].nonzero()[:, 0]
        hidden_ND = hidden_TD.index_select(0, batch.previous[0, at_N])
        device = hidden_ND.device.type
        if torch.is_autocast_enabled(device):
            hidden_ND = hidden_ND.to(torch.get_autocast_dtype(device))
        head = self.model.get_output_embeddings()
        logprobs_N, entropies_N = head_logprobs(
            hidden_ND, head.weight, head.bias, batch.token_ids[0, at_N], batch.temperatures[0, at_N], chunk=self._chunk
        )
        zeros_1T = torch.zeros(batch.token_ids.shape, device=hidden_ND.device)
        return zeros_1T.index_copy(1, at_N, logprobs_N[None]), zeros_1T.index_copy(1, at_N, entropies_N[None])

    def _check(self, documents: list[list[int]]) -> None:
        """Compare the documents in one row with what the model, as it came, says of each alone.

        From then on it has our attention. Models differ in what their attention needs and in what they do to their
        logits; training on other log-probabilities than those that are sampled from would fail unseen.
        """
        alone = torch.cat([_logprobs_alone(self.model, ids) for ids in documents])
        self.model.set_attn_implementation(DOCUMENT_ATTENTION)
        zeros = [[0.0] * len(ids) for ids in documents]
        samples = [Sample(ids, z, z, z, z) for ids, z in zip(documents, zeros, strict=True)]
        (row,) = micro_batches_of(samples, max_tokens=64, seq_len=64, device=str(alone.device))
        try:
            packed, _ = self(row, torch.ones_like(row.token_ids, dtype=torch.bool))
        except (ValueError, TypeError, AttributeError) as error:
            raise CannotPack(f"the model's layers are not those that the trainer knows: {error}") from error
        difference = float((packed[0] - alone).abs().max())
        if not difference < _TOLERANCE:
            raise CannotPack(
                f"packed and alone, the model's log-probabilities differ by {difference:.1e}",
                hint="its layers look beyond a document, or it changes its logits; such models cannot be trained yet",
            )


def _probe(model: Any) -> list[list[int]]:
    """Return two short documents of tokens from all over the vocabulary, the longer one first."""
    vocabulary = int(model.get_input_embeddings().num_embeddings)
    return [[(start + i * 104_729) % vocabulary for i in range(length)] for start, length in ((0, 12), (7919, 8))]


def _logprobs_alone(model: Any, ids: list[int]) -> torch.Tensor:
    inputs = torch.tensor([ids], device=next(model.parameters()).device)
    logits_TV = model(input_ids=inputs, use_cache=False).logits[0, :-1].float()
    chosen = torch.log_softmax(logits_TV, -1).gather(1, inputs[0, 1:, None])[:, 0]
    return torch.nn.functional.pad(chosen, (1, 0))


@contextlib.contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
