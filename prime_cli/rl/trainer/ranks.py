"""The trainer's processes: who I am among them, sums over all, and the model divided between them (FSDP2).

torchrun's machinery starts the ranks and says who each is in environment variables. A single rank needs none of it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class Ranks:
    """This process's number among `size`."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this one writes what all have computed."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sums over all ranks, in double precision."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def max(self, value: float) -> float:
        """Return the greatest value of any rank."""
        return self._reduced([value], dist.ReduceOp.MAX)[0]

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all ranks, which have the same shape and type, by rank."""
        if self.size == 1:
            return [tensor]
        here = tensor.to(device_of_this_rank())
        tensors = [torch.empty_like(here) for _ in range(self.size)]
        dist.all_gather(tensors, here)
        return [each.cpu() for each in tensors]

    def _reduced(self, values: Sequence[float], operation: Any) -> list[float]:
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=device_of_this_rank())
        dist.all_reduce(tensor, op=operation)
        reduced: list[float] = tensor.tolist()
        return reduced


def device_of_this_rank() -> str:
    """Return the GPU of this rank, or the CPU where there is none."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"


def suffix_of_this_rank() -> str:
    """Return what tells this process from the other ranks in the names of files; nothing where it is alone."""
    return f"_rank_{os.environ['RANK']}" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else ""


@contextlib.contextmanager
def joined() -> Iterator[Ranks]:
    """Join the other ranks that torchrun started, over NCCL on GPUs and gloo else; alone, do nothing."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Ranks()
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(device_of_this_rank())
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=_TIMEOUT)
    try:
        yield Ranks(dist.get_rank(), size)
        dist.barrier()  # a rank that leaves while another still talks to it takes that one down
    finally:
        dist.destroy_process_group()


def leave_cleanly() -> None:
    """End the process of a rank whose work is done; alone, do nothing.

    The threads of a process group that the divided model still holds are not joined when the interpreter winds up, and
    once in a while that ends a finished rank with SIGABRT. There is nothing left to wind up here.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def divide(policy: Any, layers: Sequence[Any]) -> None:
    """Divide the parameters of `policy` between the ranks, layer by layer; gradients are summed, not averaged.

    A sum, because each micro batch's loss is already its share of the whole batch's.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    precision = MixedPrecisionPolicy()
    if torch.cuda.is_available():
        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in layers:
        fully_shard(layer, mp_policy=precision)
    # The head's weight is used in the root's own backward pass, so the root is not divided again in between.
    fully_shard(policy, mp_policy=precision, reshard_after_forward=False)
    for module in [policy, *layers]:
        module.set_force_sum_reduction_for_comms(True)  # gloo knows no other
        module.set_gradient_divide_factor(1.0)


def whole(parameter: torch.Tensor) -> torch.Tensor:
    """Return a parameter as an ordinary tensor; of a divided one all ranks must ask together."""
    detached = parameter.detach()
    full = getattr(detached, "full_tensor", None)
    return detached if full is None else full()


def divided_like(parameter: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's view of a whole `tensor`, divided as `parameter` is, on its device; nothing is sent."""
    placed = tensor.to(parameter.device)
    placements = getattr(parameter, "placements", None)
    if placements is None:
        return placed.clone()
    from torch.distributed.tensor import distribute_tensor

    # Every rank read the same file, so each takes its own share without asking the others.
    share: torch.Tensor = distribute_tensor(placed, parameter.device_mesh, placements, src_data_rank=None)
    return share
