"""The gateway: which server answers, what vLLM is asked, what goes to all, and when a server counts as dead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from aiohttp import web

from prime_cli.rl.inference.dialects import chat_of_generated, sampling_of_chat
from prime_cli.rl.inference.gateway import serving, with_label
from prime_cli.rl.inference.gateway_settings import GatewaySettings
from prime_cli.rl.inference.liveness import Pauses, ServerSilent, watch
from prime_cli.rl.inference.replicas import Replica, Replicas, conversation_of
from prime_cli.rl.inference.vllm import ADAPTER_NAME
from prime_cli.rl.inference.weight_updates import NCCL_FILE, NCCL_WANTED_FILE, update_weights

USER = {"role": "user", "content": "hi"}
TOKEN = "secret"


class RecordingServer:
    """Answers every route of vLLM that the gateway uses, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.stuck = False
        self.refuses: str | None = None
        self.cancelled = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        raw = await request.read()
        body = json.loads(raw) if raw else {}
        self.asked.append((request.path_qs, body))
        if self.stuck:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if request.path == self.refuses:
            return web.json_response({"error": "no memory"}, status=500)
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "x", "max_model_len": 77}]})
        if request.path == "/metrics":
            return web.Response(text='# TYPE a gauge\na{m="x"} 1\nb 2\n')
        if request.path == "/inference/v1/generate":
            return web.json_response(GENERATED)
        return web.json_response({"choices": [], "usage": None})

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


GENERATED: dict[str, Any] = {
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    "choices": [
        {
            "text": "a",
            "token_ids": [70, 2],
            "finish_reason": "stop",
            "logprobs": {"content": [{"token": "a", "logprob": -0.5}, {"token": "", "logprob": -0.25}]},
            "weight_versions": [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2}],
        }
    ],
}


@asynccontextmanager
async def gateway_over(
    *servers: RecordingServer, engine: str = "vllm", liveness_timeout_s: float = 5
) -> AsyncIterator[tuple[httpx.AsyncClient, Any]]:
    """Serve each of `servers` and a gateway in front of them; yields a client with the run's token."""
    async with AsyncExitStack() as stack:
        urls = {}
        for index, server in enumerate(servers):
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", server.answer)
            runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            urls[f"inference_{index}"] = f"http://127.0.0.1:{runner.addresses[0][1]}"
        settings = GatewaySettings(urls, engine, "policy", liveness_timeout_s)
        url, gateway = await stack.enter_async_context(serving(settings, TOKEN))
        for server in servers:
            server.asked.clear()
        headers = {"Authorization": f"Bearer {TOKEN}"}
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, headers=headers, timeout=30))
        yield client, gateway


def test_a_conversation_stays_with_its_server_and_others_go_to_the_least_busy() -> None:
    replicas = Replicas({"a": "", "b": ""})
    first = replicas.choose("x")
    with replicas.busy(first):
        second = replicas.choose("y")
        assert second is not first
        assert replicas.choose("x") is first
        assert replicas.choose(None) is second
    with replicas.busy(second):
        assert replicas.choose("y") is second


def test_an_overloaded_server_gives_conversations_away() -> None:
    replicas = Replicas({"a": "", "b": ""})
    home = replicas.choose("x")
    home.in_flight = 9
    assert replicas.choose("x") is not home


def test_the_rollouts_of_a_group_and_their_later_turns_count_as_one_conversation() -> None:
    turns = [[USER], [USER, {"role": "assistant", "content": "a"}, {"role": "user", "content": "again"}]]
    first, second = (conversation_of({}, {"messages": messages}) for messages in turns)
    assert first == second is not None
    assert conversation_of({"X-Session-ID": "7"}, {"messages": [USER]}) == "session 7"
    assert conversation_of({}, {"token_ids": list(range(40))}) == conversation_of({}, {"token_ids": list(range(50))})


async def test_vllm_is_asked_for_the_policy_with_a_prefix_cache_of_the_policys_version() -> None:
    server = RecordingServer()
    async with gateway_over(server) as (client, _):
        await client.post("/update_weight_version", json={"new_version": "4"})
        answer = await client.post("/v1/chat/completions", json={"model": "policy", "messages": [USER]})
    assert server.asked[-1][1] == {"model": "policy", "messages": [USER], "cache_salt": "policy-4"}
    assert answer.headers["x-policy-version"] == "4"
    assert answer.json() == {"choices": [], "usage": None, "policy_versions": [4, 4]}


async def test_a_chat_completion_from_tokens_is_made_of_vllms_token_route() -> None:
    server = RecordingServer()
    body = {"messages": [USER], "tokens": [4, 70, 5], "max_completion_tokens": 9, "temperature": 0.5, "logprobs": True}
    async with gateway_over(server) as (client, _):
        answer = (await client.post("/v1/chat/completions/tokens", json=body)).json()
    ((path, asked),) = server.asked
    assert path == "/inference/v1/generate"
    assert asked["token_ids"] == [4, 70, 5]
    assert asked["sampling_params"] == {"temperature": 0.5, "max_tokens": 9, "logprobs": 0}
    (choice,) = answer["choices"]
    assert answer["prompt_token_ids"] == [4, 70, 5]
    assert choice["token_ids"] == [70, 2]
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == [-0.5, -0.25]
    assert choice["message"] == {"role": "assistant", "content": "a"}
    assert answer["policy_versions"] == [3, 4]


async def test_the_weights_that_vllm_starts_with_are_named_version_0() -> None:
    server = RecordingServer()
    async with gateway_over(server) as (_, gateway):
        await gateway.begin()
    assert server.asked == [("/update_weight_version", {"new_version": "0"})]


def test_what_a_chat_request_says_of_sampling_reaches_the_token_route() -> None:
    said = {"seed": 3, "top_p": 1.0, "stop_token_ids": [2], "max_tokens": 4, "n": 1, "user": "me", "top_k": None}
    assert sampling_of_chat(said) == {"seed": 3, "top_p": 1.0, "stop_token_ids": [2], "max_tokens": 4, "logprobs": 0}
    answer = chat_of_generated(GENERATED, [1], {"role": "assistant", "content": ""}, "tool_calls", "policy")
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


async def test_control_requests_need_the_token_and_reach_every_server() -> None:
    servers = RecordingServer(), RecordingServer()
    async with gateway_over(*servers) as (client, _):
        assert (await client.post("/pause", headers={"Authorization": "Bearer wrong"})).status_code == 403
        assert (await client.post("/pause", params={"mode": "keep"})).status_code == 200
    assert [server.paths() for server in servers] == [["/pause?mode=keep"]] * 2


async def test_a_server_that_refuses_new_weights_is_named() -> None:
    servers = RecordingServer(), RecordingServer()
    servers[1].refuses = "/collective_rpc"
    async with gateway_over(*servers) as (client, _):
        answer = await client.post("/collective_rpc", json={})
    assert answer.status_code == 500
    assert answer.json()["error"]["message"].startswith("inference_1: ")


async def test_an_adapter_is_asked_for_where_the_policy_is_once_every_server_has_it() -> None:
    server = RecordingServer()
    async with gateway_over(server) as (client, _):
        await client.post("/v1/load_lora_adapter", json={"lora_name": ADAPTER_NAME, "lora_path": "/x"})
        await client.post("/v1/completions", json={"model": "policy", "prompt": [1]})
        assert server.asked[-1][1]["model"] == ADAPTER_NAME
        scoring = {"model": "policy", "prompt": [1], "prompt_logprobs": 0}
        assert (await client.post("/v1/completions", json=scoring)).status_code == 400, "it would end the engine"
        await client.post("/v1/unload_lora_adapter", json={"lora_name": ADAPTER_NAME})
        await client.post("/v1/completions", json={"model": "policy", "prompt": [1]})
        assert server.asked[-1][1]["model"] == "policy"


async def test_the_model_has_the_runs_name_and_metrics_have_the_servers() -> None:
    async with gateway_over(RecordingServer(), RecordingServer()) as (client, _):
        (model,) = (await client.get("/v1/models")).json()["data"]
        assert (model["id"], model["max_model_len"]) == ("policy", 77)
        metrics = (await client.get("/metrics")).text
        health = (await client.get("/health")).json()
    assert 'a{server="inference_1",m="x"} 1' in metrics
    assert [entry["name"] for entry in health["servers"]] == ["inference_0", "inference_1"]
    assert with_label("b 2", "server", "s") == 'b{server="s"} 2\n'


async def test_a_client_that_goes_away_takes_its_request_from_the_server() -> None:
    server = RecordingServer()
    async with gateway_over(server) as (client, _):
        server.stuck = True  # not before: the gateway begins by asking it
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/completions", json={"prompt": [1]}, timeout=0.2)
        await asyncio.wait_for(server.cancelled.wait(), 5)


async def test_a_request_goes_to_another_server_when_one_cannot_be_reached() -> None:
    server = RecordingServer()
    async with gateway_over(server, RecordingServer()) as (client, gateway):
        gateway._replicas.all[1].url = "http://127.0.0.1:9"
        for _ in range(4):
            assert (await client.post("/v1/completions", json={"prompt": [1]})).status_code == 200
    assert len(server.asked) == 4


async def test_a_server_that_computes_nothing_is_named_within_the_bound() -> None:
    well, stuck = RecordingServer(), RecordingServer()
    async with gateway_over(well, stuck, liveness_timeout_s=0.3) as (_, gateway):
        stuck.stuck = True
        with pytest.raises(ServerSilent, match="inference_1 has computed nothing"):
            await asyncio.wait_for(gateway.watch(), 10)


@pytest.mark.parametrize("reason", ["paused", "busy"])
async def test_a_server_that_is_paused_or_answers_others_is_well(reason: str) -> None:
    replica, pauses = Replica("inference", ""), Pauses()

    async def probe(replica: Replica) -> None:
        if reason == "paused":
            pauses.begin()
        replica.answers += reason == "busy"
        await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watch(replica, probe, pauses, timeout_s=0.05), 0.5)


async def test_weights_over_nccl_are_asked_for_in_three_phases_with_a_rank_for_each_server(tmp_path: Any) -> None:
    meeting = {"master_address": "127.0.0.1", "master_port": 5, "world_size": 3, "rank_offset": 1}
    sent = {"names": ["w"], "dtype_names": ["float32"], "shapes": [[2]]}
    (tmp_path / NCCL_FILE).write_text(json.dumps({"init_info": meeting, "update_info": sent}))
    servers = RecordingServer(), RecordingServer()
    async with gateway_over(*servers) as (client, _):

        async def post(path: str, **request: Any) -> None:
            assert (await client.post(path, **request)).status_code == 200

        await update_weights("nccl", post, tmp_path, 1, first=True)
        assert (tmp_path / NCCL_WANTED_FILE).exists()
        await update_weights("nccl", post, tmp_path, 2, first=False)
    update = ["/start_weight_update", "/update_weights", "/finish_weight_update", "/reset_prefix_cache",
              "/update_weight_version", "/resume"]  # fmt: skip
    for index, server in enumerate(servers):
        assert server.paths() == [
            "/pause?mode=keep", "/init_weight_transfer_engine", *update, "/pause?mode=keep", *update
        ]  # fmt: skip
        assert server.asked[1][1] == {"init_info": {**meeting, "rank_offset": 1 + index}}
        assert server.asked[3][1] == {"update_info": sent}
        assert server.asked[4][1] == {"weight_version": "1"}
