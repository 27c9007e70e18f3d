"""How new weights get into the servers: read from a folder, as an adapter, or from GPU to GPU.

Each way is a sequence of requests to control routes that vLLM has (in development mode), the embedded engine too where
it can, and the gateway passes on to all. In between, decoding is paused and running requests are kept.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from prime_cli.rl.inference.vllm import ADAPTER_NAME
from prime_cli.rl.inference_config import WeightTransfer

NCCL_FILE = "nccl.json"
"""In a broadcast over NCCL: where the trainer waits (`init_info`) and what it sends (`update_info`); no weights."""

NCCL_WANTED_FILE = "wanted"
"""Appears beside it when the servers are about to receive: then the trainer sends."""

Post = Callable[..., Awaitable[None]]
"""Posts to a control route; raises where the server refuses."""


async def update_weights(transfer: WeightTransfer, post: Post, folder: Path, version: int, *, first: bool) -> None:
    """Give the servers the weights of `version`, whose broadcast is `folder`; `first` says that none came before.

    What was computed under the old weights must not be reused, so the prefix cache is emptied.
    """
    await post("/pause", params={"mode": "keep"})
    try:
        if transfer == "nccl":
            await _over_nccl(post, folder, version, first=first)
        elif transfer == "adapter":
            adapter = {"lora_name": ADAPTER_NAME, "lora_path": str(folder), "load_inplace": True}
            await post("/v1/load_lora_adapter", json=adapter)
        else:
            await post("/collective_rpc", json={"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
        await post("/reset_prefix_cache")
        await post("/update_weight_version", json={"new_version": str(version)})
    finally:
        await post("/resume")


async def _over_nccl(post: Post, folder: Path, version: int, *, first: bool) -> None:
    """Three phases, while the trainer sends; before the first time both sides meet."""
    broadcast = json.loads((folder / NCCL_FILE).read_text())
    (folder / NCCL_WANTED_FILE).touch()
    if first:
        await post("/init_weight_transfer_engine", json={"init_info": broadcast["init_info"]})
    await post("/start_weight_update")
    await post("/update_weights", json={"update_info": broadcast["update_info"]})
    await post("/finish_weight_update", json={"weight_version": str(version)})
