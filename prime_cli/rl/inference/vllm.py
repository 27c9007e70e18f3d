"""Inference by vLLM, through its own command line and its own routes: no plugin, no patch.

vLLM's control routes (development mode) have no authentication, so its server listens on loopback only.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from prime_cli.core.errors import ConfigError
from prime_cli.core.processes import die_with_parent
from prime_cli.rl.inference_config import InferenceConfig

_SERVER_MODULE = "vllm.entrypoints.openai.api_server"
_ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_LOGGING_LEVEL": "INFO"}
_CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1"}


def chosen_engine(config: InferenceConfig) -> str:
    """Return `vllm` or `embedded`: as configured, or for `auto` vLLM where it and a GPU are present.

    Raises:
        ConfigError: vLLM was asked for and is not installed.
    """
    if config.engine == "embedded":
        return "embedded"
    installed = importlib.util.find_spec("vllm") is not None
    if config.engine == "vllm":
        if not installed:
            raise ConfigError(
                "inference.engine is `vllm`, which is not installed here",
                hint="install the extra `vllm`, or use `auto` or `embedded`",
            )
        return "vllm"
    return "vllm" if installed and _has_gpu() else "embedded"


def vllm_command(
    folder: Path, config: InferenceConfig, *, model_name: str, port: int, context: int, seed: int
) -> list[str]:
    """Return the command line of a vLLM server that returns log-probabilities as they were sampled."""
    command = [
        sys.executable, "-m", __name__, "--model", str(folder), "--served-model-name", model_name,
        "--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(context), "--seed", str(seed),
        "--max-num-seqs", str(config.num_slots), "--logprobs-mode", "processed_logprobs",
    ]  # fmt: skip
    if _has_gpu():
        return [*command, "--gpu-memory-utilization", str(config.gpu_memory_utilization)]
    return [*command, "--enforce-eager", "--dtype", "float32"]


def free_port() -> int:
    """Return a loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    """Say whether the server at `url` is up."""
    try:
        return httpx.get(f"{url}/health", timeout=2, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def main(arguments: Sequence[str]) -> None:
    """Become the vLLM server; started so, it ends with the launcher."""
    die_with_parent()
    environment = os.environ | _ENVIRONMENT | ({} if _has_gpu() else _CPU_ENVIRONMENT)
    os.execve(sys.executable, [sys.executable, "-m", _SERVER_MODULE, *arguments], environment)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
