"""The embedded engine against the model it serves."""

from __future__ import annotations

import functools
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from prime_cli.models.folder import load_causal_model
from prime_cli.rl.inference.engine import Completion, SlotEngine
from prime_cli.rl.inference.sampling import SamplingParameters, sample, uniforms
from prime_cli.rl.inference.slot_cache import slots_that_fit
from prime_cli.rl.trainer.micro_batches import micro_batches_of
from prime_cli.rl.trainer.policy import PolicyModel
from prime_cli.rl.transport import Sample


@pytest.fixture(autouse=True)
def _threads_of_the_server():
    """As the server does: a product that several threads share adds up in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def engine(tiny_model: Path):
    engine = SlotEngine(load_causal_model(tiny_model), eos_token_ids=[2], num_slots=8, context_length=64, seed=0)
    engine.start()
    yield engine
    engine.stop()


def complete(engine: SlotEngine, prompts: list[list[int]], parameters: SamplingParameters) -> list[Completion]:
    results: dict[int, Completion | Exception] = {}
    done = threading.Event()

    def collect(index: int):
        def on_done(result: Completion | Exception) -> None:
            results[index] = result
            if len(results) == len(prompts):
                done.set()

        return on_done

    for index, prompt in enumerate(prompts):
        engine.submit(prompt, parameters, collect(index))
    assert done.wait(60)
    completions = [results[index] for index in range(len(prompts))]
    for completion in completions:
        assert isinstance(completion, Completion), completion
    return completions


PROMPTS = [[4, 70 + i, 71, *range(80, 80 + i % 5), 2, 5] for i in range(20)]


def test_greedy_completions_equal_the_models_own_generation(engine: SlotEngine, tiny_model: Path) -> None:
    model = load_causal_model(tiny_model)
    greedy = SamplingParameters(temperature=0, max_tokens=10, ignore_eos=True)
    for prompt, completion in zip(PROMPTS, complete(engine, PROMPTS, greedy), strict=True):
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=10, min_new_tokens=10, do_sample=False, eos_token_id=None
        )
        assert completion.token_ids == expected[0, len(prompt) :].tolist()
        assert completion.finish_reason == "length"


def test_log_probabilities_equal_the_trainers_on_the_same_tokens(engine: SlotEngine, tiny_model: Path) -> None:
    policy = PolicyModel(load_causal_model(tiny_model), chunk=16)
    for temperature in (1.0, 0.7):
        parameters = SamplingParameters(temperature=temperature, max_tokens=12, ignore_eos=True)
        for prompt, completion in zip(PROMPTS, complete(engine, PROMPTS, parameters), strict=True):
            ids = prompt + completion.token_ids
            none = [0.0] * len(ids)
            (row,) = micro_batches_of([Sample(ids, none, none, none, none, temperature)], max_tokens=64, seq_len=64)
            with torch.no_grad():
                logprobs, _ = policy(row, torch.ones_like(row.token_ids, dtype=torch.bool))
            torch.testing.assert_close(torch.tensor(completion.logprobs), logprobs[0, len(prompt) :], atol=1e-4, rtol=0)


def test_a_seeded_request_samples_the_same_tokens_whatever_runs_beside_it(engine: SlotEngine) -> None:
    prompts = [*PROMPTS, *([9 + i] * (5 + 3 * i) for i in range(12))]
    parameters = SamplingParameters(max_tokens=10, seed=7, ignore_eos=True)
    crowded = complete(engine, prompts, parameters)
    for prompt, expected in list(zip(prompts, crowded, strict=True))[::3]:
        (alone,) = complete(engine, [prompt], parameters)
        assert alone.token_ids == expected.token_ids
        assert alone.logprobs == expected.logprobs, "bit for bit"


def test_new_weights_take_effect_and_every_token_knows_its_version(engine: SlotEngine, tmp_path: Path) -> None:
    greedy = SamplingParameters(temperature=0, max_tokens=6, ignore_eos=True)
    (before,) = complete(engine, [PROMPTS[0]], greedy)
    torch.manual_seed(9)
    tensors = {name: torch.randn_like(p) * 0.05 for name, p in engine.model.named_parameters()}
    save_file(tensors, tmp_path / "model.safetensors")
    engine.load_weights(tmp_path, version=3)
    (after,) = complete(engine, [PROMPTS[0]], greedy)
    assert before.versions == [0] * 6
    assert after.versions == [3] * 6
    assert after.token_ids != before.token_ids


def test_weights_that_do_not_fit_are_refused_and_the_old_ones_stay(engine: SlotEngine, tmp_path: Path) -> None:
    greedy = SamplingParameters(temperature=0, max_tokens=6, ignore_eos=True)
    (before,) = complete(engine, [PROMPTS[0]], greedy)
    save_file({"model.norm.weight": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="shape"):
        engine.load_weights(tmp_path)
    save_file({"nobody.knows": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(KeyError):
        engine.load_weights(tmp_path)
    (after,) = complete(engine, [PROMPTS[0]], greedy)
    assert after.token_ids == before.token_ids


def test_a_paused_engine_keeps_its_requests_and_goes_on_after(engine: SlotEngine) -> None:
    engine.pause()
    finished = threading.Event()
    engine.submit(PROMPTS[0], SamplingParameters(max_tokens=5, ignore_eos=True), lambda result: finished.set())
    assert not finished.wait(0.2)
    engine.resume()
    assert finished.wait(30)


def test_prompts_that_cannot_be_served_are_refused(engine: SlotEngine) -> None:
    with pytest.raises(ValueError, match="empty"):
        engine.submit([], SamplingParameters(), lambda result: None)
    with pytest.raises(ValueError, match="context"):
        engine.submit([4] * 64, SamplingParameters(), lambda result: None)


def test_a_completion_ends_at_the_end_of_the_context(engine: SlotEngine) -> None:
    (completion,) = complete(engine, [[4] * 60], SamplingParameters(max_tokens=50, ignore_eos=True))
    assert len(completion.token_ids) == 4


def test_more_prompts_than_one_prefill_takes_are_served_in_several(
    engine: SlotEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy = SamplingParameters(temperature=0, max_tokens=6, ignore_eos=True)
    at_once = complete(engine, PROMPTS, greedy)
    monkeypatch.setattr("prime_cli.rl.inference.engine._PREFILL_TOKENS", 12)
    in_parts = complete(engine, PROMPTS, greedy)
    assert [c.token_ids for c in in_parts] == [c.token_ids for c in at_once]


def test_slots_are_as_many_as_the_memory_holds(tiny_model: Path) -> None:
    config = load_causal_model(tiny_model).config
    one = 2 * 2 * 2 * 32 * 1024 * 4  # keys and values, layers, heads, dimension, columns, bytes
    fit = functools.partial(slots_that_fit, config, context_length=1024, bytes_per_value=4)
    assert fit(budget_bytes=10 * one) == 10
    assert fit(budget_bytes=one // 2) == 1


def test_cuts_leave_only_the_likeliest_tokens() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, -5.0]]).repeat(200, 1)
    numbers = uniforms(range(200), [0] * 200)
    tokens, _ = sample(logits, [SamplingParameters(top_k=2)] * 200, numbers)
    assert set(tokens.tolist()) == {0, 1}
    tokens, logprobs = sample(logits, [SamplingParameters(top_p=0.5)] * 200, numbers)
    assert set(tokens.tolist()) == {0}
    assert logprobs.abs().max() < 1e-6


def test_sampling_follows_the_distribution() -> None:
    logits = torch.log(torch.tensor([[0.6, 0.3, 0.1]])).repeat(20_000, 1)
    tokens, _ = sample(logits, [SamplingParameters()] * 20_000, uniforms([7] * 20_000, range(20_000)))
    shares = torch.bincount(tokens, minlength=3) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.6, 0.3, 0.1]), atol=0.02, rtol=0)
