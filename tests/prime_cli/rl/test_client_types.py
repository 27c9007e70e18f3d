"""Two turns through each client type against the embedded server: what is trained on is what was sampled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from prime_cli.environments.runtime import ClientType, EnvironmentWorkers, ModelEndpoint
from prime_cli.rl.inference.serving import ServedModel, serve_model_folder
from prime_cli.rl.orchestrator.samples import samples_of_rollout
from prime_cli.rl.transport import Sample
from tests.prime_cli.rl.two_turns import two_turn_rollouts, two_turns_workers

MESSAGES = [{"role": "user", "content": "abc"}]
CLIENT_TYPES: tuple[ClientType, ...] = ("openai_chat_completions", "openai_chat_completions_token", "renderer")


@pytest.fixture(scope="module")
def served(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    with serve_model_folder(tiny_model, log_path=tmp_path_factory.mktemp("logs") / "inference.log") as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EnvironmentWorkers]:
    workers = two_turns_workers(tmp_path_factory.mktemp("environment"))
    await workers.start()
    yield workers
    await workers.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("takes_many", [False, True], ids=["one by one", "many at once"])
@pytest.mark.parametrize("client_type", CLIENT_TYPES)
async def test_a_sample_holds_the_tokens_and_the_log_probabilities_that_the_server_sampled(
    served: ServedModel, workers: EnvironmentWorkers, tiny_model: Path, client_type: ClientType, takes_many: bool
) -> None:
    endpoint = ModelEndpoint(
        served.base_url, served.model, client_type=client_type, tokenizer=str(tiny_model), takes_many=takes_many
    )
    for rollout in await two_turn_rollouts(workers, endpoint):
        assert not rollout.get("error"), rollout["error"]
        assert len(rollout["trajectory"]) == 2
        samples = samples_of_rollout(rollout["trajectory"], advantage=1.0, temperature=1.0)
        if client_type == "openai_chat_completions_token":
            assert len(samples) == 1, "the second turn begins with the tokens of the first"
        for sample in samples:
            for token, logprob, scored in zip(sample.token_ids, sample.logprobs, score(served, sample), strict=True):
                if logprob:
                    assert scored[str(token)]["logprob"] == pytest.approx(logprob, abs=1e-4)


def score(served: ServedModel, sample: Sample) -> list[Any]:
    body = {"prompt": sample.token_ids, "max_tokens": 1, "prompt_logprobs": 0}
    (choice,) = httpx.post(f"{served.base_url}/completions", json=body, timeout=60).json()["choices"]
    return list(choice["prompt_logprobs"])


def test_a_chat_completion_takes_its_prompt_as_tokens(served: ServedModel) -> None:
    tokens = [4, 71, 72, 2, 5]
    body = {"messages": MESSAGES, "tokens": tokens, "max_tokens": 3, "return_token_ids": True, "temperature": 0}
    response = httpx.post(f"{served.base_url}/chat/completions/tokens", json=body, timeout=60)
    assert response.json()["prompt_token_ids"] == tokens
    assert response.headers["x-policy-version"] == "0"


def test_tokens_are_generated_from_tokens_with_the_versions_that_sampled_them(served: ServedModel) -> None:
    body = {"token_ids": [4, 71, 2, 5], "sampling_params": {"max_tokens": 3, "temperature": 0, "ignore_eos": True}}
    answer = httpx.post(f"{served.admin_url}/inference/v1/generate", json=body, timeout=60).json()
    (choice,) = answer["choices"]
    assert len(choice["token_ids"]) == 3
    assert [entry["token_id"] for entry in choice["logprobs"]["content"]] == choice["token_ids"]
    assert choice["weight_versions"] == [{"version": "0", "start": 0, "end": 3}]


def test_messages_are_tokenised_as_the_chat_route_renders_them(served: ServedModel) -> None:
    tokenize = f"{served.admin_url}/tokenize"
    rendered = httpx.post(tokenize, json={"messages": MESSAGES}).json()
    chat = httpx.post(
        f"{served.base_url}/chat/completions",
        json={"messages": MESSAGES, "max_tokens": 1, "return_token_ids": True},
        timeout=60,
    ).json()
    assert rendered["tokens"] == chat["prompt_token_ids"]
    assert rendered["count"] == len(rendered["tokens"])
    unanswered = httpx.post(tokenize, json={"messages": MESSAGES, "add_generation_prompt": False}).json()["tokens"]
    assert rendered["tokens"][: len(unanswered)] == unanswered
    assert httpx.post(tokenize, json={"prompt": "abc"}).json()["count"] == 3
    assert httpx.post(tokenize, json={}).status_code == 400


def test_what_runs_and_waits_is_told_in_prometheus_text(served: ServedModel) -> None:
    text = httpx.get(f"{served.admin_url}/metrics").text
    assert f'vllm:num_requests_running{{model_name="{served.model}"}} 0' in text
    assert "vllm:num_preemptions_total" in text
