"""What an engine does now, in Prometheus' text format under vLLM's names."""

from __future__ import annotations

from prime_cli.rl.inference.engine import EngineStatistics


def prometheus_text(statistics: EngineStatistics, *, num_slots: int, model: str) -> str:
    """Return gauges and counters of the engine. It never preempts: a slot holds a whole context."""
    values = [
        ("vllm:num_requests_running", "gauge", statistics.running),
        ("vllm:num_requests_waiting", "gauge", statistics.waiting),
        ("vllm:kv_cache_usage_perc", "gauge", statistics.running / num_slots),
        ("vllm:num_preemptions_total", "counter", 0),
        ("vllm:prompt_tokens_total", "counter", statistics.prompt_tokens),
        ("vllm:generation_tokens_total", "counter", statistics.generated_tokens),
    ]
    lines = []
    for name, kind, value in values:
        lines += [f"# TYPE {name} {kind}", f'{name}{{model_name="{model}"}} {value}']
    return "\n".join(lines) + "\n"
