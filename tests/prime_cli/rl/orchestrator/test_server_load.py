"""What servers say of their load, in the text that they say it in."""

from __future__ import annotations

from prime_cli.rl.config import RLConfig
from prime_cli.rl.inference.engine import EngineStatistics
from prime_cli.rl.inference.metrics import prometheus_text
from prime_cli.rl.orchestrator.adaptive_concurrency import AdaptiveConcurrency, ServerLoad
from prime_cli.rl.orchestrator.server_load import concurrency_of, load_in

TWO_SERVERS = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="policy",server="a"} 4.0
vllm:num_requests_running{engine="0",model_name="policy",server="b"} 5.0
vllm:num_requests_waiting{engine="0",model_name="policy",server="a"} 0.0
vllm:num_requests_waiting{engine="0",model_name="policy",server="b"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="policy",server="a"} 0.25
vllm:kv_cache_usage_perc{engine="0",model_name="policy",server="b"} 0.75
vllm:num_preemptions_total{engine="0",model_name="policy",server="a"} 1.0
vllm:num_preemptions_created{engine="0",model_name="policy",server="a"} 1.7e+09
"""


def test_several_servers_are_as_full_as_the_fullest() -> None:
    assert load_in(TWO_SERVERS) == ServerLoad(usage=0.75, running=9, waiting=2, preemptions=1)


def test_the_embedded_engine_is_understood() -> None:
    statistics = EngineStatistics(running=3, waiting=1)
    assert load_in(prometheus_text(statistics, num_slots=4, model="policy")) == ServerLoad(0.75, 3, 1, 0)


def test_a_text_without_figures_says_nothing() -> None:
    assert load_in("<html>not found</html>") is None


def test_an_adaptive_number_begins_as_the_static_one_would_be() -> None:
    def concurrency(**values: object) -> int:
        config = {"model": "m", "env": [{"id": "e"}], "batch_size": 64, "orchestrator": {"concurrency": values}}
        found = concurrency_of(RLConfig.model_validate(config))
        assert isinstance(found, AdaptiveConcurrency) == (values.get("type") == "adaptive")
        return found.limit()

    assert concurrency() == 128
    assert concurrency(type="adaptive") == 128
    assert concurrency(type="adaptive", initial_inflight=8) == 8
    assert concurrency(type="adaptive", max_inflight=32) == 32
