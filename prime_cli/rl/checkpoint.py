"""The state of a trainer on disk: tensors in safetensors, facts in JSON, nothing that is executed when it is read.

    checkpoint.json         step, steps taken, files with their sizes; what makes a folder a checkpoint
    parameters.safetensors  the trained parameters, whole, under the names that the model gives them
    optimizer.safetensors   `OPTIMIZER/PARAMETER/KEY`, and `rng/RANK`
    NAME.json               what others keep of the same step, such as orchestrator.json

Parameters and moments are stored whole, whatever the number of ranks, so that another number can go on from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import directory_written_aside

if TYPE_CHECKING:
    import torch

_FORMAT = 1
_ABOUT, _PARAMETERS, _OPTIMIZER = "checkpoint.json", "parameters.safetensors", "optimizer.safetensors"


class BadCheckpoint(PrimeError):
    """A folder that should hold a checkpoint holds none, a torn one, or that of another run."""


@dataclass(frozen=True)
class TrainerState:
    """What a trainer needs to go on as if it had never stopped; tensors are whole and lie in ordinary memory."""

    steps_taken: int
    parameters: Mapping[str, torch.Tensor]
    optimizer: Mapping[str, torch.Tensor]


def write_checkpoint(
    folder: Path, state: TrainerState, *, step: int, beside: Mapping[str, bytes] | None = None
) -> None:
    """Write `state` after `step` to `folder`, with further files `beside` it; it appears complete, or not at all."""
    from safetensors.torch import save_file

    with directory_written_aside(folder, durable=True) as aside:
        save_file(dict(state.parameters), aside / _PARAMETERS)
        save_file(dict(state.optimizer), aside / _OPTIMIZER)
        for name, content in (beside or {}).items():
            (aside / name).write_bytes(content)
        sizes = {path.name: path.stat().st_size for path in sorted(aside.iterdir())}
        about = {"format": _FORMAT, "step": step, "steps_taken": state.steps_taken, "files": sizes}
        (aside / _ABOUT).write_text(json.dumps(about, indent=2) + "\n")


def check_checkpoint(folder: Path) -> dict[str, Any]:
    """Return the facts of the checkpoint in `folder`; its tensors are not read.

    Raises:
        BadCheckpoint: it is none, or not whole.
    """
    try:
        about = json.loads((folder / _ABOUT).read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise BadCheckpoint(
            f"{folder} is no checkpoint: it has no {_ABOUT}", hint="`prime rl show RUN` lists those of a run"
        ) from None
    except (OSError, ValueError) as error:
        raise BadCheckpoint(f"the checkpoint {folder} cannot be read: {error}") from None
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise BadCheckpoint(f"the checkpoint {folder} is of a format that this version does not know")
    for name, size in about["files"].items():
        actual = (folder / name).stat().st_size if (folder / name).is_file() else None
        if actual != size:
            found = "is missing" if actual is None else f"has {actual} bytes of {size}"
            raise BadCheckpoint(
                f"the checkpoint {folder} is torn: {name} {found}", hint="go on from an earlier one: --resume STEP"
            )
    return about


def read_checkpoint(folder: Path, *, parameters_only: bool = False) -> TrainerState:
    """Read what `write_checkpoint` wrote.

    Raises:
        BadCheckpoint: it is none, or not whole.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    about = check_checkpoint(folder)
    try:
        parameters = load_file(folder / _PARAMETERS)
        optimizer = {} if parameters_only else load_file(folder / _OPTIMIZER)
    except SafetensorError as error:
        raise BadCheckpoint(f"the checkpoint {folder} cannot be read: {error}") from None
    return TrainerState(int(about["steps_taken"]), parameters, optimizer)
