"""Low-rank adapters by peft: put on, merged for the inference server, and saved in PEFT layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from prime_cli.core.errors import ConfigError
from prime_cli.core.files import directory_written_aside
from prime_cli.rl.step_config import LoraConfig
from prime_cli.rl.trainer.ranks import whole

_ADAPTER = "default"


def put_on(model: Any, config: LoraConfig) -> Any:
    """Put adapters on `model`, in place, and freeze the rest; return peft's view of it, which knows how to save them.

    Raises:
        ConfigError: no layer of the model has one of the configured names.
    """
    import peft

    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=list(config.target_modules),
        task_type="CAUSAL_LM",
    )
    try:
        return peft.get_peft_model(model, settings, adapter_name=_ADAPTER)
    except ValueError as error:
        layers = sorted({n.split(".")[-1] for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)})
        raise ConfigError(
            f"lora.target_modules {config.target_modules} names no layer of the model: {str(error).splitlines()[0]}",
            hint=f"its linear layers are {', '.join(layers)}",
        ) from error


def merged_weights(model: Any) -> dict[str, torch.Tensor]:
    """Return all parameters of the model under their names without adapters, which are added to what they adapt.

    With several ranks all of them must call this together.
    """
    from peft.tuners.lora import LoraLayer

    weights: dict[str, torch.Tensor] = {}
    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_" in name:
                continue
            value = whole(parameter)
            owner, _, attribute = name.rpartition(".base_layer.")
            layer = layers.get(owner)
            if layer is not None and attribute == "weight":
                low, high = (whole(getattr(layer, part)[_ADAPTER].weight) for part in ("lora_A", "lora_B"))
                value = value + (layer.scaling[_ADAPTER] * (high.float() @ low.float())).to(value.dtype)
            weights[name.replace(".base_layer.", ".")] = value.contiguous()
    return weights


def save_adapter(adapted: Any, weights: dict[str, torch.Tensor], folder: Path) -> None:
    """Write the adapter in PEFT layout; the folder appears complete or not at all.

    Args:
        adapted: what `put_on` returned.
        weights: `adapter_weights` of it.
    """
    with directory_written_aside(folder) as aside:
        adapted.save_pretrained(aside, state_dict=weights)
        (aside / "README.md").unlink(missing_ok=True)  # peft's empty model card


def adapter_weights(adapted: Any) -> dict[str, torch.Tensor]:
    """Return the adapter's own parameters, whole; with several ranks all of them must call this together."""
    return {name: whole(parameter) for name, parameter in adapted.named_parameters() if ".lora_" in name}
