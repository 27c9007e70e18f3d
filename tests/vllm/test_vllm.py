"""vLLM behind the gateway: every client type, tools, adapters and new weights. Real servers throughout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import torch

from benchmarks.logprob_mismatch import served_by_vllm
from prime_cli.environments.runtime import ClientType, EnvironmentWorkers, ModelEndpoint
from prime_cli.models.folder import load_causal_model, load_tokenizer
from prime_cli.rl.inference.gateway import serving
from prime_cli.rl.inference.gateway_settings import GatewaySettings
from prime_cli.rl.inference.untied import write_untied
from prime_cli.rl.inference.weight_updates import update_weights
from prime_cli.rl.orchestrator.samples import samples_of_rollout
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.trainer.broadcasting import FileBroadcast
from prime_cli.rl.trainer.learner import Learner
from prime_cli.rl.trainer.ranks import Ranks
from tests.prime_cli.rl.learners import a_learner, random_samples
from tests.prime_cli.rl.two_turns import two_turn_rollouts, two_turns_workers

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "secret"
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
PROMPT = [4, 70, 71, 72, 2, 5]
CLIENT_TYPES: tuple[ClientType, ...] = ("openai_chat_completions", "openai_chat_completions_token", "renderer")


@pytest.fixture(scope="module")
def vllm(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_by_vllm(tiny_model, tmp_path_factory.mktemp("logs") / "vllm.log", rank=8) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(vllm: str) -> AsyncIterator[httpx.AsyncClient]:
    settings = GatewaySettings({"inference": vllm}, "vllm", "policy", 300)
    async with (
        serving(settings, TOKEN) as (url, _),
        httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300) as client,
    ):
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EnvironmentWorkers]:
    workers = two_turns_workers(tmp_path_factory.mktemp("environment"))
    await workers.start()
    yield workers
    await workers.close()


async def scores(gateway: httpx.AsyncClient, tokens: list[int]) -> list[float]:
    """Return what the policy gives to all tokens but the first."""
    body = {"model": "policy", "prompt": tokens, "max_tokens": 1, "prompt_logprobs": 0}
    answer = await gateway.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    rest = zip(tokens[1:], choice["prompt_logprobs"][1:], strict=True)
    return [float(entry[str(token)]["logprob"]) for token, entry in rest]


@pytest.mark.parametrize("client_type", CLIENT_TYPES)
async def test_a_sample_holds_the_tokens_and_the_log_probabilities_that_vllm_sampled(
    gateway: httpx.AsyncClient, workers: EnvironmentWorkers, tiny_model: Path, client_type: ClientType
) -> None:
    endpoint = ModelEndpoint(f"{gateway.base_url}/v1", "policy", client_type=client_type, tokenizer=str(tiny_model))
    for rollout in await two_turn_rollouts(workers, endpoint):
        assert not rollout.get("error"), rollout["error"]
        samples = samples_of_rollout(rollout["trajectory"], advantage=1.0, temperature=1.0)
        if client_type == "openai_chat_completions_token":
            assert len(samples) == 1, "the second turn begins with the tokens of the first"
        for sample in samples:
            scored = await scores(gateway, sample.token_ids)
            sampled = [(own, of) for own, of in zip(sample.logprobs[1:], scored, strict=True) if own]
            assert sampled
            assert all(own == pytest.approx(of, abs=1e-4) for own, of in sampled)


async def test_a_chat_completion_from_tokens_says_what_the_chat_route_says(gateway: httpx.AsyncClient) -> None:
    body: dict[str, Any] = {
        "model": "policy", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 6, "temperature": 0,
        "logprobs": True, "return_token_ids": True,
    }  # fmt: skip
    rendered = (await gateway.post("/tokenize", json={"messages": body["messages"]})).json()["tokens"]
    plain = (await gateway.post("/v1/chat/completions", json=body)).json()
    tokens = (await gateway.post("/v1/chat/completions/tokens", json={**body, "tokens": rendered})).json()
    assert plain["prompt_token_ids"] == tokens["prompt_token_ids"] == rendered
    for answer in (plain, tokens):
        assert answer["policy_versions"] == [0, 0]
    (one,), (other,) = plain["choices"], tokens["choices"]
    assert one["token_ids"] == other["token_ids"]
    assert one["message"]["content"] == other["message"]["content"]
    with_tools = {**body, "tokens": rendered, "tools": TOOLS}
    (parsed,) = (await gateway.post("/v1/chat/completions/tokens", json=with_tools)).json()["choices"]
    assert parsed["token_ids"] == other["token_ids"]


async def test_requests_with_tools_are_accepted_and_written_calls_are_parsed(
    gateway: httpx.AsyncClient, vllm: str, tiny_model: Path
) -> None:
    body: dict[str, Any] = {
        "model": "policy", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 6, "tools": TOOLS,
        "tool_choice": "auto", "logprobs": True, "return_token_ids": True,
    }  # fmt: skip
    answer = await gateway.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) > 0
    written = load_tokenizer(tiny_model).encode('<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>')
    generated = {"request_id": "x", "choices": [{"index": 0, "token_ids": written, "finish_reason": "stop"}]}
    asked = {"messages": body["messages"], "tools": TOOLS, "model": "policy"}
    parsing = {
        "model": "policy", "generate_response": generated, "prompt_token_ids": PROMPT, "prompt_tokens": len(PROMPT),
        "chat_request": asked,
    }  # fmt: skip
    async with httpx.AsyncClient(timeout=60) as client:
        parsed = await client.post(f"{vllm}/v1/chat/completions/derender", json=parsing)
    assert parsed.status_code == 200, parsed.text
    (call,) = parsed.json()["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": '{"x": 1}'}


async def sampled(gateway: httpx.AsyncClient) -> tuple[list[int], list[float]]:
    """Return tokens that the policy samples after the prompt, and the log-probabilities that it names."""
    parameters = {"max_tokens": 16, "temperature": 1.0, "logprobs": 0, "ignore_eos": True}
    body = {"model": "policy", "token_ids": PROMPT, "sampling_params": parameters}
    answer = await gateway.post("/inference/v1/generate", json=body)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    return choice["token_ids"], [entry["logprob"] for entry in choice["logprobs"]["content"]]


def logprobs_of(folder: Path, tokens: list[int], learner: Learner | None = None) -> list[float]:
    """Return what the model in `folder`, or the trained one, adapters merged, gives to `tokens` after the prompt."""
    model = load_causal_model(folder)
    if learner is not None:
        model.load_state_dict(learner.weights(), strict=False)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([PROMPT + tokens])).logits[0, len(PROMPT) - 1 : -1]
    return [float(value) for value in torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens)[:, None])[:, 0]]


async def test_an_adapter_answers_as_the_merged_weights_and_the_next_one_takes_its_place(
    gateway: httpx.AsyncClient, tiny_model: Path, tmp_path: Path
) -> None:
    learner = a_learner(tiny_model, learning_rate=0.02, lora={"rank": 8})

    async def post(path: str, **request: Any) -> None:
        answer = await gateway.post(path, **request)
        assert answer.status_code == 200, answer.text

    long = {"model": "policy", "token_ids": PROMPT, "sampling_params": {"max_tokens": 400, "ignore_eos": True}}
    for version in (1, 2):
        learner.step(random_samples(8, version))
        folder = tmp_path / f"step_{version}"
        learner.export_adapter(folder)
        running = asyncio.ensure_future(gateway.post("/inference/v1/generate", json=long))
        await asyncio.sleep(0.2)
        await update_weights("adapter", post, folder, version, first=version == 1)
        tokens, said = await sampled(gateway)
        assert said == pytest.approx(logprobs_of(tiny_model, tokens, learner), abs=1e-4)
        assert said != pytest.approx(logprobs_of(tiny_model, tokens), abs=1e-3)
        assert len((await running).json()["choices"][0]["token_ids"]) == 400, "running requests are kept"
    await post("/v1/unload_lora_adapter", json={"lora_name": "policy-adapter"})
    tokens, said = await sampled(gateway)
    assert said == pytest.approx(logprobs_of(tiny_model, tokens), abs=1e-4)


async def test_weights_are_reloaded_from_a_broadcast_with_the_head_of_a_tied_model(
    tiny_model: Path, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    learner = a_learner(tiny_model, learning_rate=0.02)
    broadcast = FileBroadcast(run, learner, Ranks(), tied_heads_too=True)
    write_untied(tiny_model, run.untied_model)
    with served_by_vllm(run.untied_model, tmp_path / "vllm.log") as server:
        settings = GatewaySettings({"inference": server}, "vllm", "policy", 300)
        async with (
            serving(settings, TOKEN) as (url, _),
            httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300) as client,
        ):

            async def post(path: str, **request: Any) -> None:
                assert (await client.post(path, **request)).status_code == 200

            tokens, said = await sampled(client)
            assert said == pytest.approx(logprobs_of(tiny_model, tokens), abs=1e-4)
            for version in (7, 8):
                learner.step(random_samples(8, version))
                broadcast(version)
                await update_weights("filesystem", post, run.broadcast(version), version, first=version == 7)
                tokens, said = await sampled(client)
                assert said == pytest.approx(logprobs_of(tiny_model, tokens, learner), abs=1e-4)
                assert said != pytest.approx(logprobs_of(tiny_model, tokens), abs=1e-3)
                body = {"model": "policy", "prompt": PROMPT, "max_tokens": 1}
                answer = await client.post("/v1/completions", json=body)
                assert answer.headers["x-policy-version"] == str(version)
