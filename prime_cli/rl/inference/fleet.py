"""The servers of a run: how many, how each is started, and whether a gateway stands in front."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prime_cli.rl.config import RLConfig
from prime_cli.rl.inference.serving import server_command, url_in
from prime_cli.rl.inference.untied import is_tied, write_untied
from prime_cli.rl.inference.vllm import answers, free_port, reload_misses_tied_head, vllm_command
from prime_cli.rl.run_directory import RunDirectory

INFERENCE, GATEWAY, TEACHER = "inference", "gateway", "teacher"


@dataclass(frozen=True)
class Server:
    """A server to be started: its process's name, its command, and what gives its URL once it answers."""

    name: str
    command: list[str]
    find_url: Callable[[], str | None]


def policy_servers(config: RLConfig, run: RunDirectory, engine: str, *, model_name: str) -> list[Server]:
    """Return the servers of the policy: `inference`, or `inference_0`, `inference_1`, ... where there are several.

    Raises:
        ConfigError: vLLM would keep the head of this model when it gets new weights.
    """
    count = config.inference.servers
    names = [INFERENCE] if count == 1 else [f"{INFERENCE}_{index}" for index in range(count)]
    lora = config.trainer.lora
    rank = lora.rank if lora is not None and config.inference.weight_transfer == "adapter" else None
    folder = config.model
    if reload_misses_tied_head(config.inference) and is_tied(folder):
        folder = run.untied_model.resolve()
        write_untied(config.model, folder)
    return [
        _server(
            config, run, engine, name, model_name=model_name, folder=folder, adapter_rank=rank,
            seed=config.seed + index,
        )
        for index, name in enumerate(names)
    ]  # fmt: skip


def teacher_server(config: RLConfig, run: RunDirectory, engine: str, *, model_name: str, folder: Path) -> Server:
    """Return the server of a teacher's folder."""
    return _server(config, run, engine, TEACHER, model_name=model_name, folder=folder, seed=config.seed)


def needs_gateway(engine: str, count: int) -> bool:
    """Say whether a gateway stands in front: one embedded server speaks the whole dialect itself."""
    return engine == "vllm" or count > 1


def _server(
    config: RLConfig,
    run: RunDirectory,
    engine: str,
    name: str,
    *,
    model_name: str,
    folder: Path,
    seed: int,
    adapter_rank: int | None = None,
) -> Server:
    if engine == "vllm":
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = vllm_command(
            folder, config.inference, model_name=model_name, port=port, context=config.trainer.seq_len, seed=seed,
            adapter_rank=adapter_rank,
        )  # fmt: skip
        return Server(name, command, lambda: url if answers(url) else None)
    ready_file = run.ready(name)
    slots = config.inference.num_slots
    command = server_command(folder, model_name=model_name, ready_file=ready_file, num_slots=slots, seed=seed)
    return Server(name, command, lambda: url_in(ready_file))
