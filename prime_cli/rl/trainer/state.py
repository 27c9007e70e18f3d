"""A trainer's tensors as they go into a checkpoint and come out of it, whole, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from prime_cli.rl.checkpoint import BadCheckpoint
from prime_cli.rl.trainer.optimizers import Optimizers
from prime_cli.rl.trainer.ranks import Ranks, divided_like, whole

_RNG = "rng"


def trained_parameters(model: Any) -> dict[str, torch.Tensor]:
    """Return copies of the parameters that are trained; with several ranks all of them must ask together."""
    return {name: _kept(parameter) for name, parameter in model.named_parameters() if parameter.requires_grad}


def load_parameters(model: Any, tensors: Mapping[str, torch.Tensor], *, source: str) -> None:
    """Copy `tensors` into the trained parameters of `model`.

    Raises:
        BadCheckpoint: they are not those of this model; `source` says where they came from.
    """
    own = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if own.keys() != tensors.keys():
        example = min(own.keys() ^ tensors.keys())
        whose = "the checkpoint alone has" if example in tensors else "the model alone has"
        raise BadCheckpoint(
            f"{source} is not of this model: {whose} {example}",
            hint="a run goes on with the `model` and `trainer.lora` that it began with",
        )
    for name, parameter in own.items():
        if parameter.shape != tensors[name].shape:
            shapes = f"{tuple(tensors[name].shape)} there, {tuple(parameter.shape)} in the model"
            raise BadCheckpoint(f"{source} is not of this model: {name} is {shapes}")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(divided_like(parameter, tensors[name]))


def optimizer_tensors(model: Any, optimizers: Optimizers) -> dict[str, torch.Tensor]:
    """Return copies of all that the optimizers remember; with several ranks all of them must ask together."""
    return {
        f"{part}/{name}/{key}": _kept(value)
        for part, name, state, _ in _states(model, optimizers)
        for key, value in state.items()
        if value is not None
    }


def load_optimizer(model: Any, optimizers: Optimizers, tensors: Mapping[str, torch.Tensor], *, source: str) -> None:
    """Let the optimizers remember `tensors`.

    Raises:
        BadCheckpoint: they are those of other optimizers.
    """
    by_parameter: dict[str, dict[str, torch.Tensor]] = {}
    for label, tensor in tensors.items():
        owner, _, key = label.rpartition("/")
        by_parameter.setdefault(owner, {})[key] = tensor
    for part, name, state, parameter in _states(model, optimizers):
        for key, tensor in by_parameter.pop(f"{part}/{name}", {}).items():
            state[key] = divided_like(parameter, tensor) if tensor.shape == parameter.shape else tensor.clone()
    if by_parameter:
        raise BadCheckpoint(
            f"{source} is of another optimizer: nothing here takes {min(by_parameter)}",
            hint="a run goes on with the `trainer.optim.type` that it began with",
        )


def rng_tensors(ranks: Ranks) -> dict[str, torch.Tensor]:
    """Return the state of the random numbers of each rank; all of them must ask together."""
    states = ranks.gather(torch.get_rng_state())
    return {f"{_RNG}/{rank}": state for rank, state in enumerate(states)}


def take_rng(tensors: dict[str, torch.Tensor], ranks: Ranks) -> None:
    """Take the states of random numbers out of `tensors`, and go on with this rank's own; a new rank starts afresh."""
    states = {label: tensors.pop(label) for label in list(tensors) if label.startswith(f"{_RNG}/")}
    own = states.get(f"{_RNG}/{ranks.rank}")
    if own is not None:
        torch.set_rng_state(own)


def _states(model: Any, optimizers: Optimizers) -> Iterator[tuple[str, str, dict[str, Any], Any]]:
    """Yield (kind of the optimizer, name of a parameter, what is remembered for it, the parameter)."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for part in optimizers.parts:
        for group in part.param_groups:
            for parameter in group["params"]:
                yield type(part).__name__, names[id(parameter)], part.state[parameter], parameter


def _kept(value: torch.Tensor) -> torch.Tensor:
    tensor = whole(value)
    return tensor.cpu().contiguous() if tensor.device.type != "cpu" else tensor.contiguous()
