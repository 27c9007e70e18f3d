"""From a rollout's trajectory to training samples, token for token as they were sampled.

Nothing is decoded and encoded again. A turn whose prompt begins with all tokens of the turns before it continues their
sample; one that does not (a template that rewrites history, a compacted context) starts a new sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.rl.transport import Sample


class TokensMissing(PrimeError):
    """The inference server did not return token ids and log-probabilities, so the rollout cannot be trained on."""


def samples_of_rollout(
    trajectory: Sequence[Mapping[str, Any]], *, advantage: float, temperature: float
) -> list[Sample]:
    """Return the samples of one rollout; sampled tokens carry `advantage` and weight 1, all others weight 0.

    Args:
        trajectory: steps with `tokens` = {prompt_ids, completion_ids, completion_mask, completion_logprobs}.

    Raises:
        TokensMissing: a step has no tokens.
    """
    samples: list[Sample] = []
    for step in trajectory:
        tokens = step.get("tokens")
        if tokens is None:
            raise TokensMissing(
                "a rollout came back without token ids",
                hint="the server must return token ids and logprobs, as vLLM and the embedded engine do",
            )
        prompt_ids: list[int] = tokens["prompt_ids"]
        continued = next((s for s in samples if prompt_ids[: len(s.token_ids)] == s.token_ids), None)
        if continued is None:
            continued = Sample([], [], [], [], [], temperature)
            samples.append(continued)
        _append(continued, prompt_ids[len(continued.token_ids) :], sampled=False)
        _append(
            continued,
            tokens["completion_ids"],
            sampled=True,
            logprobs=tokens["completion_logprobs"],
            advantage=advantage,
            mask=tokens["completion_mask"],
        )
    return samples


def count_branches(trajectory: Sequence[Mapping[str, Any]]) -> int:
    """Return how many samples a rollout makes: 1 as long as every turn continues those before it."""
    branches: list[list[int]] = []
    for step in trajectory:
        tokens = step.get("tokens") or {"prompt_ids": [], "completion_ids": []}
        prompt_ids: list[int] = tokens["prompt_ids"]
        whole = prompt_ids + tokens["completion_ids"]
        at = next((i for i, branch in enumerate(branches) if prompt_ids[: len(branch)] == branch), None)
        if at is None:
            branches.append(whole)
        else:
            branches[at] = whole
    return len(branches)


def _append(
    sample: Sample,
    token_ids: Sequence[int],
    *,
    sampled: bool,
    logprobs: Sequence[float] = (),
    advantage: float = 0.0,
    mask: Sequence[int | bool] = (),
) -> None:
    count = len(token_ids)
    sample.token_ids += token_ids
    sample.logprobs += logprobs if sampled else [0.0] * count
    sample.advantages += [advantage if sampled else 0.0] * count
    sample.rl_weights += [float(bool(m)) for m in mask] if sampled else [0.0] * count
    for column in (sample.ce_weights, sample.ref_kl_weights, sample.ref_logprobs):
        column += [0.0] * count


@dataclass(frozen=True)
class EnvironmentSpan:
    """The tokens `start` to `end` of a sample, between two turns of the model, and the messages that stand there."""

    sample: Sample
    start: int
    end: int
    messages: list[Mapping[str, Any]]


def environment_spans(trajectory: Sequence[Mapping[str, Any]], samples: Sequence[Sample]) -> Iterator[EnvironmentSpan]:
    """Yield what the environment added to each of `samples`, those of `trajectory`, after a turn of the model."""
    ends: dict[int, tuple[int, int]] = {}  # of each sample: its tokens and its messages so far
    for step in trajectory:
        prompt_ids: list[int] = step["tokens"]["prompt_ids"]
        index = next(i for i, sample in enumerate(samples) if sample.token_ids[: len(prompt_ids)] == prompt_ids)
        if index in ends:
            start, known = ends[index]
            yield EnvironmentSpan(samples[index], start, len(prompt_ids), list(step["prompt"][known:]))
        end = len(prompt_ids) + len(step["tokens"]["completion_ids"])
        ends[index] = end, len(step["prompt"]) + len(step["completion"])
