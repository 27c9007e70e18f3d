"""Inference by vLLM, through its own command line and its own routes: no plugin, no patch.

vLLM's control routes (development mode) have no authentication, so its server listens on loopback only. It may live in
an interpreter of its own: nothing of it is imported here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from prime_cli.core.context import prime_home
from prime_cli.core.errors import ConfigError
from prime_cli.core.processes import die_with_parent
from prime_cli.rl.inference_config import InferenceConfig

PYTHON_VARIABLE = "PRIME_VLLM_PYTHON"
"""The environment variable that names an interpreter with vLLM, where it is not the one that runs `prime`."""

ADAPTER_NAME = "policy-adapter"
"""What the trained adapter is called at a server; the gateway asks for it where the policy is asked for."""

_SERVER_MODULE = "vllm.entrypoints.openai.api_server"
_ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1", "VLLM_LOGGING_LEVEL": "INFO", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
}  # fmt: skip
_CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1"}
_ADAPTER_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # vLLM takes no others


def vllm_python(config: InferenceConfig) -> Path:
    """Return the interpreter that has vLLM: as configured, as the environment says, its own, or this one."""
    named = config.vllm_python or os.environ.get(PYTHON_VARIABLE)
    if named:
        return Path(named)
    return own_interpreter() if own_interpreter().is_file() else Path(sys.executable)


def own_interpreter() -> Path:
    """Return where `prime lab setup --prime-rl` puts an interpreter for vLLM; it need not be there."""
    return prime_home() / "vllm" / "bin" / "python"


def chosen_engine(config: InferenceConfig) -> str:
    """Return `vllm` or `embedded`: as configured, or for `auto` vLLM where it and a GPU are present.

    Raises:
        ConfigError: vLLM was asked for and is not installed.
    """
    if config.engine == "embedded" or (config.engine == "auto" and not _has_gpu()):
        return "embedded"
    python = vllm_python(config)
    installed = _has_vllm(python)
    if config.engine == "vllm" and not installed:
        raise ConfigError(
            f"inference.engine is `vllm`, which {python} does not have",
            hint="install the extra `vllm`, or name an interpreter that has it in inference.vllm_python",
        )
    return "vllm" if installed else "embedded"


def check_weight_transfer(config: InferenceConfig, engine: str) -> None:
    """Look at what weights over NCCL need, before anything is started.

    Raises:
        ConfigError: something of it is missing.
    """
    if config.weight_transfer != "nccl":
        return
    if engine != "vllm" or not _has_gpu():
        raise ConfigError("inference.weight_transfer `nccl` needs vLLM and GPUs", hint="use `filesystem` or `adapter`")
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "inference.weight_transfer `nccl` needs vLLM beside the trainer, whose side of it is vLLM's own",
            hint="install the extra `vllm` where `prime` runs, or use `filesystem`",
        )


def reload_misses_tied_head(config: InferenceConfig) -> bool:
    """Say whether a tied model needs a head of its own at the server, so that new weights replace it: see `untied`."""
    return config.engine == "vllm" and config.weight_transfer == "filesystem" and not _has_gpu()


def vllm_command(
    folder: Path,
    config: InferenceConfig,
    *,
    model_name: str,
    port: int,
    context: int,
    seed: int,
    adapter_rank: int | None = None,
) -> list[str]:
    """Return the command line of a vLLM server that returns log-probabilities as they were sampled.

    With `adapter_rank` it takes adapters of that rank.
    """
    command = [
        sys.executable, "-m", __name__, str(vllm_python(config)), "--model", str(folder),
        "--served-model-name", model_name, "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", str(context), "--seed", str(seed), "--max-num-seqs", str(config.num_slots),
        "--logprobs-mode", "processed_logprobs", "--enable-scale-out",
    ]  # fmt: skip
    if config.tool_call_parser:
        command += ["--enable-auto-tool-choice", "--tool-call-parser", config.tool_call_parser]
    if adapter_rank is not None:
        allowed = next((rank for rank in _ADAPTER_RANKS if rank >= adapter_rank), adapter_rank)
        command += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(allowed)]
    if config.weight_transfer == "nccl":
        command += ["--weight-transfer-config", json.dumps({"backend": "nccl"})]
    if _has_gpu():
        command += [
            "--gpu-memory-utilization",
            str(config.gpu_memory_utilization),
            "--dtype",
            _dtype(config, "bfloat16"),
        ]
    else:
        command += ["--enforce-eager", "--dtype", _dtype(config, "float32")]
    for name, value in config.vllm_args.items():
        flag = f"--{name.replace('_', '-')}"
        command += [flag] if value is True else [flag, value if isinstance(value, str) else json.dumps(value)]
    return command


def _dtype(config: InferenceConfig, default: str) -> str:
    return default if config.dtype == "auto" else config.dtype


def _has_vllm(python: Path) -> bool:
    if python == Path(sys.executable):
        return importlib.util.find_spec("vllm") is not None
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    try:
        return subprocess.run([python, "-c", look], capture_output=True, timeout=60, check=False).returncode == 0
    except OSError:
        return False


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
    """Become the vLLM server of the interpreter that is named first; started so, it ends with the launcher."""
    die_with_parent()
    python, *rest = arguments
    environment = os.environ | _ENVIRONMENT | ({} if _has_gpu() else _CPU_ENVIRONMENT)
    os.execve(python, [python, "-m", _SERVER_MODULE, *rest], environment)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
