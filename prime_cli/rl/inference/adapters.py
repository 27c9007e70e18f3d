"""Adapters on the embedded engine: added to the weights that they adapt, between two decoding steps.

One adapter is on at a time, and it is the policy: every request is answered with it, whatever model it names. The
weights beneath it are kept, so that the next adapter starts from them and not from the last one's rounding.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from prime_cli.rl.inference.engine import SlotEngine

_PREFIX = "base_model.model."
_UNSUPPORTED = ("rank_pattern", "alpha_pattern", "modules_to_save", "use_dora", "fan_in_fan_out", "layers_to_transform")


@dataclass(frozen=True)
class Adapter:
    """Low-rank additions by the name of the weight that they go to: `scale * high @ low`."""

    scale: float
    pairs: dict[str, tuple[torch.Tensor, torch.Tensor]]  # low [r, in], high [out, r]


def read_adapter(folder: Path) -> Adapter:
    """Read an adapter in PEFT layout.

    Raises:
        ValueError: it is no LoRA adapter, or has parts that are not supported.
        OSError: the folder holds none.
    """
    config = json.loads((folder / "adapter_config.json").read_text())
    if config.get("peft_type") != "LORA":
        raise ValueError(f"{folder} holds a {config.get('peft_type')} adapter, not a LoRA adapter")
    unsupported = [name for name in _UNSUPPORTED if config.get(name)]
    if unsupported or config.get("bias", "none") != "none":
        raise ValueError(f"the adapter in {folder} uses {(unsupported or ['bias'])[0]}, which is not supported")
    rank, alpha = int(config["r"]), float(config["lora_alpha"])
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    tensors = load_file(folder / "adapter_model.safetensors")
    pairs = {}
    for name, low in tensors.items():
        if name.endswith(".lora_A.weight"):
            module = name.removesuffix(".lora_A.weight")
            pairs[f"{module.removeprefix(_PREFIX)}.weight"] = (low, tensors[f"{module}.lora_B.weight"])
    if not pairs or 2 * len(pairs) != len(tensors):
        raise ValueError(f"the adapter in {folder} holds other tensors than lora_A and lora_B")
    return Adapter(scale, pairs)


class Adapters:
    """The adapter that is on the engine's model, and the weights beneath it."""

    def __init__(self, engine: SlotEngine) -> None:
        self.name: str | None = None
        self._engine = engine
        self._beneath: dict[str, torch.Tensor] = {}

    def load(self, name: str, folder: Path) -> None:
        """Put the adapter in `folder` on, in place of the one before.

        Raises:
            ValueError, OSError: it cannot be read.
            KeyError: it adapts weights that the model does not have; the one before then stays.
        """
        adapter = read_adapter(folder)
        own = dict(self._engine.model.named_parameters())
        unknown = sorted(adapter.pairs.keys() - own.keys())
        if unknown:
            raise KeyError(f"the model has no {unknown[0]}")
        for weight in adapter.pairs.keys() - self._beneath.keys():
            self._beneath[weight] = own[weight].detach().clone()
        weights = dict(self._beneath)
        for weight, (low, high) in adapter.pairs.items():
            beneath = weights[weight]
            added = adapter.scale * (high.to(beneath.device).float() @ low.to(beneath.device).float())
            weights[weight] = beneath + added.to(beneath.dtype)
        self._engine.replace_weights(weights)
        self.name = name

    def unload(self) -> None:
        """Take the adapter off."""
        self._engine.replace_weights(self._beneath)
        self.forget()

    def forget(self) -> None:
        """Take the model's weights as they are now for those beneath the next adapter."""
        self.name = None
        self._beneath = {}
