"""How the trainer hands on the weights of a version: whole in a folder, as an adapter in a folder, or over NCCL.

In each case a folder `broadcasts/step_V` appears, complete, when the version can be had.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from safetensors.torch import save_file

from prime_cli.core.files import directory_written_aside
from prime_cli.rl.config import RLConfig
from prime_cli.rl.inference.untied import with_heads
from prime_cli.rl.inference.vllm import free_port, reload_misses_tied_head
from prime_cli.rl.inference.weight_updates import NCCL_FILE, NCCL_WANTED_FILE
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.trainer.learner import Learner
from prime_cli.rl.trainer.ranks import Ranks

_POLL_S = 0.01


class Broadcast(Protocol):
    """Hands on the learner's weights; with several ranks all of them must call it together."""

    def __call__(self, version: int) -> None:
        """Hand on the weights as `version`."""


def broadcast_of(config: RLConfig, run: RunDirectory, learner: Learner, ranks: Ranks) -> Broadcast:
    """Return the way in which the configuration wants weights handed on."""
    if config.inference.weight_transfer == "adapter":
        return AdapterBroadcast(run, learner)
    if config.inference.weight_transfer == "nccl":
        return NcclBroadcast(run, learner, config.inference.gpu_workers, last_step=config.max_steps)
    return FileBroadcast(run, learner, ranks, tied_heads_too=reload_misses_tied_head(config.inference))


class FileBroadcast:
    """All weights, merged with the adapter where there is one; with `tied_heads_too`, what is tied under both names."""

    def __init__(self, run: RunDirectory, learner: Learner, ranks: Ranks, *, tied_heads_too: bool = False) -> None:
        self._run = run
        self._learner = learner
        self._ranks = ranks
        self._tied_heads_too = tied_heads_too

    def __call__(self, version: int) -> None:
        """Write the weights as safetensors."""
        tensors = self._learner.weights()
        if self._ranks.is_first:
            if self._tied_heads_too:
                tensors = with_heads(tensors, self._learner.model)
            with directory_written_aside(self._run.broadcast(version)) as aside:
                save_file(tensors, aside / "model.safetensors", metadata={"format": "pt"})


class AdapterBroadcast:
    """The adapter alone, in PEFT layout: a thousandth of the weights that it changes."""

    def __init__(self, run: RunDirectory, learner: Learner) -> None:
        self._run = run
        self._learner = learner

    def __call__(self, version: int) -> None:
        """Write the adapter."""
        self._learner.export_adapter(self._run.broadcast(version))


class NcclBroadcast:
    """From this GPU to those of the servers, by the code that vLLM has for trainers. Never run without two GPUs.

    The folder says where this side waits and what it sends. Sending begins when the orchestrator wants the version;
    when the last batch is there nothing is generated any more, and nobody will want one.

    Args:
        workers: GPU processes of all servers together.
        last_step: the step of the last batch.
    """

    def __init__(self, run: RunDirectory, learner: Learner, workers: int, *, last_step: int) -> None:
        self._run = run
        self._learner = learner
        self._last_step = last_step
        self._address = {
            "master_address": "127.0.0.1", "master_port": free_port(), "world_size": 1 + workers, "packed": True,
        }  # fmt: skip
        self._group: Any = None

    def __call__(self, version: int) -> None:
        """Announce the weights and send them."""
        tensors = self._learner.weights()
        folder = self._run.broadcast(version)
        with directory_written_aside(folder) as aside:
            (aside / NCCL_FILE).write_text(json.dumps(announcement(tensors, self._address)))
        while not (folder / NCCL_WANTED_FILE).exists():
            if self._run.batch(self._last_step).exists():
                return
            time.sleep(_POLL_S)
        self._send(tensors)

    def _send(self, tensors: Mapping[str, torch.Tensor]) -> None:
        from vllm.distributed.weight_transfer.nccl_common import trainer_init
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
        from vllm.distributed.weight_transfer.packed_tensor import packed_nccl_broadcast_producer

        settings = NCCLTrainerInitInfo(**self._address)
        if self._group is None:
            self._group = trainer_init(settings)
        packed_nccl_broadcast_producer(
            iterator=iter(tensors.items()),
            group=self._group,
            src=0,
            post_iter_func=lambda item: item[1],
            buffer_size_bytes=settings.packed_buffer_size_bytes,
            num_buffers=settings.packed_num_buffers,
        )


def announcement(tensors: Mapping[str, torch.Tensor], address: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the servers are told: where to meet, and names, types and shapes in the order of sending."""
    return {
        "init_info": {**address, "rank_offset": 1},
        "update_info": {
            "names": list(tensors),
            "dtype_names": [str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()],
            "shapes": [list(tensor.shape) for tensor in tensors.values()],
        },
    }
