"""The embedded engine: continuous batching over an unmodified Hugging Face model.

One thread owns the model. At every step it admits waiting requests (one batched prefill, equal prompts computed once),
decodes one token for each running request, and hands finished ones back. Weights are swapped between two steps, so
running requests continue under the new policy; every token remembers the version that sampled it.

Shapes: B rows, Q new tokens, L columns attended to, V vocabulary.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from prime_cli.rl.inference.sampling import SamplingParameters, sample, uniforms
from prime_cli.rl.inference.slot_cache import SlotCache, Write

_IDLE_WAIT_S = 0.5
# A matrix product with fewer rows takes another path through the library, and comes out with other last bits; attention
# adds up in steps of a vector register, so lengths are rounded up to whole ones.
_FEWEST_ROWS, _LENGTH_STEP = 4, 32
_PREFILL_TOKENS = 8192  # prompts of one prefill, padding included; more wait for the next step


@dataclass
class Completion:
    """What a request produced. `versions[i]` is the policy version that sampled token i."""

    prompt_ids: list[int]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    finish_reason: str = "length"


@dataclass
class _Request:
    completion: Completion
    parameters: SamplingParameters
    stop_ids: frozenset[int]
    seed: int
    on_done: Callable[[Completion | Exception], None]
    cancelled: threading.Event
    limit: int  # tokens it may still have at most, prompt included

    @property
    def length(self) -> int:
        return len(self.completion.prompt_ids) + len(self.completion.token_ids)


@dataclass
class EngineStatistics:
    """Counters since the start, and what runs now."""

    running: int = 0
    waiting: int = 0
    generated_tokens: int = 0
    prompt_tokens: int = 0
    steps: int = 0
    policy_version: int = 0


class SlotEngine:
    """Serves one causal language model from one thread.

    Args:
        model: a Hugging Face causal model whose attention writes through `past_key_values.update` and takes a 4D mask.
        eos_token_ids: tokens that end a completion.
        num_slots: how many requests run at once; more wait.
        context_length: prompt and completion together, in tokens.
        seed: of the seeds that requests without one get.

    What a request with a seed is answered depends on the weights, its prompt and its seed alone, bit for bit, and not
    on what runs beside it. That holds on a CPU, with one thread; see `docs/training.md`.
    """

    def __init__(
        self, model: Any, *, eos_token_ids: Sequence[int], num_slots: int, context_length: int, seed: int = 0
    ) -> None:
        self.model = model.eval()
        self.context_length = context_length
        self.num_slots = num_slots
        self.statistics = EngineStatistics()
        self._eos_ids = frozenset(eos_token_ids)
        self._device = next(model.parameters()).device
        self._cache = SlotCache(model.config.num_hidden_layers, max(num_slots, _FEWEST_ROWS), _rounded(context_length))
        self._running: list[_Request] = []
        self._waiting: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._held_back: _Request | None = None
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._seeds = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._paused = False
        self._stopping = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the engine's thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current step; requests that still run are answered with an error."""
        self._stopping = True
        self._waiting.put(None)
        self._thread.join(timeout=30)

    @property
    def is_alive(self) -> bool:
        """Say whether the engine's thread still serves."""
        return self._thread.is_alive() and self._failure is None

    @property
    def failure(self) -> Exception | None:
        """Return what broke the engine, if anything did."""
        return self._failure

    @property
    def is_paused(self) -> bool:
        """Say whether decoding is paused (requests are kept)."""
        return self._paused

    def submit(
        self,
        prompt_ids: Sequence[int],
        parameters: SamplingParameters,
        on_done: Callable[[Completion | Exception], None],
    ) -> threading.Event:
        """Queue a request; `on_done` is called once, from the engine's thread. Setting the event cancels it.

        Raises:
            ValueError: the prompt is empty, leaves no room for a token in the context, or holds what is no token.
        """
        if not prompt_ids:
            raise ValueError("the prompt is empty")
        self._check_tokens(prompt_ids)
        if len(prompt_ids) >= self.context_length:
            raise ValueError(
                f"the prompt has {len(prompt_ids)} tokens; the model's context of {self.context_length} leaves no room"
            )
        seed = self._seeds.getrandbits(64) if parameters.seed is None else parameters.seed
        stop_ids = frozenset(parameters.stop_token_ids) | (frozenset() if parameters.ignore_eos else self._eos_ids)
        cancelled = threading.Event()
        limit = min(self.context_length, len(prompt_ids) + parameters.max_tokens)
        request = _Request(Completion(list(prompt_ids)), parameters, stop_ids, seed, on_done, cancelled, limit)
        if not self.is_alive:
            raise RuntimeError("the engine has stopped")
        self._waiting.put(request)
        return cancelled

    def _check_tokens(self, token_ids: Sequence[int]) -> None:
        vocabulary = int(self.model.get_input_embeddings().num_embeddings)
        if not 0 <= min(token_ids) <= max(token_ids) < vocabulary:
            raise ValueError(f"a token is a number from 0 to {vocabulary - 1}")

    def pause(self) -> None:
        """Stop decoding after the current step; running requests keep their state."""
        self._call(lambda: setattr(self, "_paused", True))

    def resume(self) -> None:
        """Go on decoding."""
        self._call(lambda: setattr(self, "_paused", False))

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """Return the log-probability at temperature 1 of every token but the first, computed between two steps.

        Raises:
            ValueError: the sequence is longer than the context, or holds what is no token.
        """
        self._check_tokens(token_ids)
        if len(token_ids) > self.context_length:
            raise ValueError(f"{len(token_ids)} tokens are more than the model's context of {self.context_length}")
        scores: list[float] = []

        def forward() -> None:
            ids = torch.tensor([list(token_ids)], device=self._device)
            logits_TV = self.model(input_ids=ids, use_cache=False).logits[0, :-1].float()
            scores.extend(torch.log_softmax(logits_TV, -1).gather(1, ids[0, 1:, None])[:, 0].tolist())

        self._call(forward)
        return scores

    def load_weights(self, folder: Path, version: int | None = None) -> None:
        """Replace the weights by those in `folder` (safetensors), between two steps.

        Raises:
            KeyError, ValueError: the tensors do not fit the model; the old weights then stay.
        """
        tensors: dict[str, torch.Tensor] = {}
        for file in sorted(folder.glob("*.safetensors")):
            tensors.update(load_file(file))
        unknown = tensors.keys() - self.model.state_dict().keys()
        if unknown or not tensors:
            raise KeyError(f"weights in {folder} do not fit the model: {sorted(unknown)[:3] or 'no tensors'}")
        self.replace_weights(tensors, version)

    def replace_weights(self, tensors: Mapping[str, torch.Tensor], version: int | None = None) -> None:
        """Replace parameters by `tensors` of the same names, between two steps; other names are passed over.

        Raises:
            ValueError: a tensor has another shape than its parameter; the old weights then stay.
        """
        own = dict(self.model.named_parameters())
        for name, tensor in tensors.items():
            if name in own and own[name].shape != tensor.shape:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}, the model's is {tuple(own[name].shape)}")

        def swap() -> None:
            with torch.no_grad():
                for name, tensor in tensors.items():
                    if name in own:
                        own[name].copy_(tensor)
            if version is not None:
                self.statistics.policy_version = version

        self._call(swap)

    def set_version(self, version: int) -> None:
        """Name the policy version of the weights that are loaded."""
        self._call(lambda: setattr(self.statistics, "policy_version", version))

    def _call(self, action: Callable[[], None], timeout_s: float = 120) -> None:
        """Run `action` in the engine's thread, between two steps, and wait for it."""
        done = threading.Event()
        failure: list[Exception] = []

        def run() -> None:
            try:
                action()
            except (RuntimeError, ValueError, KeyError) as error:
                failure.append(error)
            finally:
                done.set()

        self._commands.put(run)
        self._waiting.put(None)  # wakes an idle engine
        if not done.wait(timeout_s):
            raise TimeoutError(f"the engine did not reach its next step within {timeout_s:.0f} s")
        if failure:
            raise failure[0]

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while not self._stopping:
                    self._run_commands()
                    if not self._admit():
                        continue
                    if self._paused:
                        time.sleep(0.001)
                        continue
                    self._decode()
        except Exception as error:  # noqa: BLE001 - whatever broke the engine must reach every caller
            self._failure = error
        finally:
            reason = self._failure or RuntimeError("the engine was stopped")
            held_back = [self._held_back] if self._held_back is not None else []
            for request in [*self._running, *held_back]:
                request.on_done(reason)
            while not self._waiting.empty():
                request_or_wake = self._waiting.get()
                if request_or_wake is not None:
                    request_or_wake.on_done(reason)

    def _run_commands(self) -> None:
        while not self._commands.empty():
            self._commands.get()()

    def _admit(self) -> bool:
        """Take in waiting requests while slots are free. Returns whether there is anything to decode."""
        new: list[_Request] = []
        longest = 0
        while len(self._running) + len(new) < self.num_slots:
            idle = not self._running and not new
            try:
                request = self._next_waiting(idle)
            except queue.Empty:
                break
            if request is None:
                if idle:
                    return False
                continue
            if request.cancelled.is_set():
                request.on_done(request.completion)
                continue
            longest = max(longest, len(request.completion.prompt_ids))
            if new and longest * (len(new) + 1) > _PREFILL_TOKENS:
                self._held_back = request
                break
            new.append(request)
        if new:
            self._prefill(new)
        self.statistics.running, self.statistics.waiting = len(self._running), self._waiting.qsize()
        return bool(self._running)

    def _next_waiting(self, idle: bool) -> _Request | None:
        """Return the next request, or None for a mere wake-up; an idle engine waits a while for it."""
        if self._held_back is not None:
            request, self._held_back = self._held_back, None
            return request
        return self._waiting.get(timeout=_IDLE_WAIT_S) if idle else self._waiting.get_nowait()

    def _prefill(self, new: list[_Request]) -> None:
        """Compute the prompts of `new`, each distinct prompt once, and sample a first token.

        Prompts of like length are computed together: padded to a length that is its own, and not its neighbours'.
        """
        first_slot = len(self._running)
        slot_of: dict[tuple[int, ...], int] = {}
        buckets: dict[int, list[list[int]]] = {}
        for offset, request in enumerate(new):
            prompt = request.completion.prompt_ids
            if tuple(prompt) not in slot_of:
                slot_of[tuple(prompt)] = first_slot + offset
                buckets.setdefault(_rounded(len(prompt)), []).append(prompt)
        logits_of: dict[tuple[int, ...], torch.Tensor] = {}
        for length, prompts in buckets.items():
            keys = [tuple(prompt) for prompt in prompts]
            logits_UV = self._prefill_bucket(prompts, [slot_of[key] for key in keys], length)
            logits_of.update(zip(keys, logits_UV, strict=True))
        for offset, request in enumerate(new):
            source = slot_of[tuple(request.completion.prompt_ids)]
            if source != first_slot + offset:
                self._cache.copy_slot(source, first_slot + offset, len(request.completion.prompt_ids))
            self.statistics.prompt_tokens += len(request.completion.prompt_ids)
        self._running += new
        self._append_samples(torch.stack([logits_of[tuple(r.completion.prompt_ids)] for r in new]), first_slot)

    def _prefill_bucket(self, prompts: list[list[int]], slots: list[int], length: int) -> torch.Tensor:
        """Return the logits [U, V] after each of the prompts, which are padded to `length`."""
        ids_BQ = torch.zeros((len(prompts), length), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids_BQ[row, : len(prompt)] = torch.tensor(prompt)
        positions_BQ = torch.arange(length).clamp(max=self.context_length - 1).expand(len(prompts), length)
        # Padding lies behind the prompt: its keys are overwritten by the first completion tokens before being seen.
        mask_BQL = torch.ones((length, length), dtype=torch.bool).tril().expand(len(prompts), 1, length, length)
        last_B = torch.tensor([len(prompt) - 1 for prompt in prompts])
        # Only the columns in which a prompt ends go through the head: the logits of whole prompts would not fit.
        columns, column_of_B = torch.unique(last_B, return_inverse=True)
        wanted = torch.cat([columns, columns[-1:].expand(max(0, _FEWEST_ROWS - len(prompts) * len(columns)))])
        logits_BQV = self._forward(ids_BQ, positions_BQ, mask_BQL, slots, length, wanted)
        return logits_BQV[torch.arange(len(prompts)), column_of_B]

    def _decode(self) -> None:
        running = self._running
        lengths = [request.length for request in running]
        spare = max(0, _FEWEST_ROWS - len(running))  # rows in slots that nobody uses
        ids_BQ = torch.tensor([[request.completion.token_ids[-1]] for request in running] + [[0]] * spare)
        positions_BQ = torch.tensor(lengths + [1] * spare)[:, None] - 1
        longest = _rounded(max(lengths))
        mask_BQL = (torch.arange(longest)[None, :] <= positions_BQ)[:, None, None, :]
        logits_BQV = self._forward(ids_BQ, positions_BQ, mask_BQL, list(range(len(running) + spare)), longest)
        self._append_samples(logits_BQV[: len(running), -1], 0)

    def _forward(
        self,
        ids_BQ: torch.Tensor,
        positions_BQ: torch.Tensor,
        mask_BQL: torch.Tensor,
        slots: list[int],
        length: int,
        columns: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return logits [B, columns or Q, V]."""
        device = self._device
        write = Write(
            torch.tensor(slots, device=device),
            positions_BQ.to(device),
            length,
            contiguous=slots == list(range(len(slots))),
        )
        self._cache.plan(write)
        output = self.model(
            input_ids=ids_BQ.to(device),
            attention_mask=mask_BQL.to(device),
            position_ids=write.positions_BQ,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=0 if columns is None else columns.to(device),
        )
        self.statistics.steps += 1
        logits: torch.Tensor = output.logits
        return logits

    def _append_samples(self, logits_BV: torch.Tensor, first_slot: int) -> None:
        """Sample for the rows from `first_slot` on, record, and release what is finished."""
        requests = self._running[first_slot:]
        uniforms_B = uniforms([r.seed for r in requests], [len(r.completion.token_ids) for r in requests])
        tokens_B, logprobs_B = sample(logits_BV, [r.parameters for r in requests], uniforms_B)
        version = self.statistics.policy_version
        finished: list[int] = []
        for row, (request, token, logprob) in enumerate(
            zip(requests, tokens_B.tolist(), logprobs_B.tolist(), strict=True)
        ):
            completion = request.completion
            completion.token_ids.append(token)
            completion.logprobs.append(logprob)
            completion.versions.append(version)
            if token in request.stop_ids:
                completion.finish_reason = "stop"
                finished.append(first_slot + row)
            elif request.length >= request.limit or request.cancelled.is_set():
                finished.append(first_slot + row)
        self.statistics.generated_tokens += len(requests)
        self._release(finished)

    def _release(self, slots: list[int]) -> None:
        """Free `slots` (ascending) and close the gaps, so that the running requests stay in the first rows."""
        for slot in reversed(slots):
            request = self._running[slot]
            last = len(self._running) - 1
            if slot != last:
                moved = self._running[last]
                self._cache.copy_slot(last, slot, moved.length)
                self._running[slot] = moved
            self._running.pop()
            request.on_done(request.completion)


def _rounded(length: int) -> int:
    return -(-length // _LENGTH_STEP) * _LENGTH_STEP
