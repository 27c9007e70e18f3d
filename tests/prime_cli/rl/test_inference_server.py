"""The inference server as a real process on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import save_file

from prime_cli.core.errors import ProcessDied
from prime_cli.models.folder import NotAModel, load_causal_model, load_tokenizer
from prime_cli.rl.inference.serving import ServedModel, serve_model_folder

MESSAGES = [{"role": "user", "content": "abc"}]


@pytest.fixture(scope="module")
def served(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    log = tmp_path_factory.mktemp("logs") / "inference.log"
    with serve_model_folder(tiny_model, log_path=log) as served:
        yield served


def ask(served: ServedModel, **body: object) -> httpx.Response:
    return httpx.post(f"{served.base_url}/chat/completions", json={"messages": MESSAGES, **body}, timeout=60)


def test_a_chat_completion_carries_exact_token_ids_and_log_probabilities(served: ServedModel, tiny_model: Path) -> None:
    body = ask(served, max_tokens=7, logprobs=True, return_token_ids=True, ignore_eos=True).json()
    tokenizer = load_tokenizer(tiny_model)
    expected = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
    (choice,) = body["choices"]
    assert body["prompt_token_ids"] == expected
    assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == 7
    assert choice["finish_reason"] == "length"
    assert body["usage"] == {"prompt_tokens": len(expected), "completion_tokens": 7, "total_tokens": len(expected) + 7}
    assert body["policy_versions"] == [0, 0]


def test_many_requests_at_once_are_all_answered(served: ServedModel) -> None:
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda i: ask(served, max_tokens=1 + i % 9, ignore_eos=True).json(), range(200)))
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [1 + i % 9 for i in range(200)]


def test_the_model_is_listed(served: ServedModel) -> None:
    (model,) = httpx.get(f"{served.base_url}/models").json()["data"]
    assert model["id"] == served.model


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"messages": []}, "messages"),
        ({"temperature": -1}, "temperature"),
        ({"n": 4}, "n"),
        ({"stream": True}, "stream"),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, "context"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_with_the_reason(
    served: ServedModel, body: dict[str, object], says: str
) -> None:
    response = httpx.post(f"{served.base_url}/chat/completions", json={"messages": MESSAGES, **body})
    assert response.status_code == 400
    assert says in response.json()["error"]["message"]


def test_a_client_that_goes_away_frees_its_slot(served: ServedModel) -> None:
    body = {"messages": MESSAGES, "max_tokens": 1000, "ignore_eos": True}
    with pytest.raises(httpx.TimeoutException):
        httpx.post(f"{served.base_url}/chat/completions", json=body, timeout=0.3)
    deadline = time.monotonic() + 10
    while httpx.get(f"{served.admin_url}/health").json()["running"]:
        assert time.monotonic() < deadline, "the request still runs"
        time.sleep(0.05)


def score(served: ServedModel, prompt: list[int]) -> httpx.Response:
    body = {"prompt": prompt, "max_tokens": 1, "prompt_logprobs": 0}
    return httpx.post(f"{served.base_url}/completions", json=body, timeout=60)


def test_a_prompt_of_token_ids_is_scored_as_the_model_scores_it(served: ServedModel, tiny_model: Path) -> None:
    prompt = [4, 70, 71, 2, 5, 80]
    (choice,) = score(served, prompt).json()["choices"]
    first, *rest = choice["prompt_logprobs"]
    assert first is None
    assert len(choice["token_ids"]) == 1
    with torch.no_grad():
        logits = load_causal_model(tiny_model)(input_ids=torch.tensor([prompt])).logits[0]
    expected = torch.log_softmax(logits, -1)
    for position, (token, entry) in enumerate(zip(prompt[1:], rest, strict=True)):
        assert entry[str(token)]["logprob"] == pytest.approx(float(expected[position, token]), abs=1e-4)


def test_a_prompt_that_fills_the_context_is_scored_without_a_completion(served: ServedModel) -> None:
    (choice,) = score(served, [70] * 1024).json()["choices"]
    assert len(choice["prompt_logprobs"]) == 1024
    assert choice["token_ids"] == []


@pytest.mark.parametrize(("prompt", "says"), [([], "prompt"), ([272], "271"), ([-1], "271"), ([70] * 1025, "context")])
def test_tokens_that_cannot_be_scored_are_refused(served: ServedModel, prompt: list[int], says: str) -> None:
    response = score(served, prompt)
    assert response.status_code == 400
    assert says in response.json()["error"]["message"]


def test_admin_routes_are_closed_without_the_token(served: ServedModel) -> None:
    for path in ("/pause", "/resume", "/collective_rpc", "/update_weight_version"):
        assert httpx.post(served.admin_url + path).status_code == 403
    wrong = {"Authorization": "Bearer wrong"}
    assert httpx.get(served.admin_url + "/weight_info", headers=wrong).status_code == 403


def test_weights_are_replaced_while_it_serves(served: ServedModel, tiny_model: Path, tmp_path: Path) -> None:
    admin = httpx.Client(
        base_url=served.admin_url, headers={"Authorization": f"Bearer {served.admin_token}"}, timeout=60
    )
    original = {name: p.detach().clone() for name, p in load_causal_model(tiny_model).named_parameters()}
    torch.manual_seed(3)
    changed = {name: torch.randn_like(p) * 0.05 for name, p in original.items()}
    greedy = {"temperature": 0, "max_tokens": 8, "return_token_ids": True, "ignore_eos": True}
    before = ask(served, **greedy).json()["choices"][0]["token_ids"]
    for version, tensors in ((1, changed), (2, original)):
        folder = tmp_path / f"step_{version}"
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors")
        assert admin.post("/pause", params={"mode": "keep"}).status_code == 200
        assert admin.get("/is_paused").json() == {"is_paused": True}
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        assert admin.post("/collective_rpc", json=body).status_code == 200
        assert admin.post("/update_weight_version", json={"new_version": str(version)}).status_code == 200
        assert admin.post("/resume").status_code == 200
        answer = ask(served, **greedy).json()
        assert answer["policy_versions"] == [version, version]
        same = answer["choices"][0]["token_ids"] == before
        assert same == (version == 2)
    assert admin.get("/weight_info").json() == {"weight_version": "2"}
    bad = {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path / "nothing")}}
    assert admin.post("/collective_rpc", json=bad).status_code == 400


def test_a_folder_that_is_no_model_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NotAModel, match=r"config\.json"), serve_model_folder(tmp_path, log_path=tmp_path / "log"):
        pass


def test_weights_that_do_not_fit_the_config_end_the_start_with_the_servers_own_words(
    tiny_model: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in tiny_model.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "model.safetensors").write_bytes(b"no tensors here")
    with pytest.raises(ProcessDied, match="cannot be loaded"), serve_model_folder(broken, log_path=tmp_path / "log"):
        pass
