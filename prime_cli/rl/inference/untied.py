"""Models whose head is tied to their embeddings, as vLLM on a CPU can be given new weights of them.

There vLLM 0.32 computes with packed copies of the weights, and packs on a reload only what a file holds. The head of a
tied model is in no file, so it would stay as it was. Served with a head of its own, written beside the rest, and given
that head in every broadcast, it is replaced like any layer. On a GPU nothing is packed, and both are one tensor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prime_cli.core.errors import ConfigError
from prime_cli.core.files import directory_written_aside
from prime_cli.models.folder import check_model_folder

_INDEX, _WHOLE = "model.safetensors.index.json", "model.safetensors"
_REST, _HEAD = "rest.safetensors", "head.safetensors"


def is_tied(folder: Path) -> bool:
    """Say whether the model in `folder` uses its embeddings as its head.

    Raises:
        NotAModel: the folder is not a model folder.
    """
    check_model_folder(folder)
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    return bool(getattr(config.get_text_config(), "tie_word_embeddings", False))


def write_untied(folder: Path, into: Path) -> None:
    """Write the tied model in `folder` with a head of its own: the files it has are linked, the head is added.

    Raises:
        ConfigError: the embeddings are not stored under the name that the model has for them.
    """
    from safetensors import safe_open
    from safetensors.torch import save_file

    where = _stored(folder)
    with directory_written_aside(into) as aside:
        for file in folder.iterdir():
            if file.name not in ("config.json", _INDEX):
                # Under its own name a model in one file would be taken for all there is, whatever the index says.
                (aside / (_REST if file.name == _WHOLE else file.name)).symlink_to(file.resolve())
        config = json.loads((folder / "config.json").read_text())
        (aside / "config.json").write_text(json.dumps(_with_own_head(config), indent=2))
        heads = {}
        for head, embeddings in _tied_names(folder).items():
            if head in where:
                continue
            if embeddings not in where:
                raise ConfigError(
                    f"vLLM on a CPU needs the head of {folder} in a file, and no file there holds {embeddings}",
                    hint='use inference.weight_transfer = "adapter" with [trainer.lora], or the embedded engine',
                )
            with safe_open(aside / where[embeddings], framework="pt") as stored:
                heads[head] = stored.get_tensor(embeddings)
        save_file(heads, aside / _HEAD, metadata={"format": "pt"})
        index = {"metadata": {}, "weight_map": where | dict.fromkeys(heads, _HEAD)}
        (aside / _INDEX).write_text(json.dumps(index, indent=2))


def with_heads(weights: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Return `weights` and, under its own name, a copy of each tensor that `model` uses a second time."""
    tied = {head: weights[name].clone() for head, name in model.all_tied_weights_keys.items() if head not in weights}
    return {**weights, **tied}


def _with_own_head(config: dict[str, Any]) -> dict[str, Any]:
    """Return a `config.json` that ties nothing, at its top and in the part that is about text."""
    text = config.get("text_config")
    inner = {"text_config": {**text, "tie_word_embeddings": False}} if isinstance(text, dict) else {}
    return {**config, **inner, "tie_word_embeddings": False}


def _stored(folder: Path) -> dict[str, str]:
    """Return the file of each tensor, by its name: as it will be called."""
    from safetensors import safe_open

    index = folder / _INDEX
    if index.is_file():
        named: dict[str, str] = json.loads(index.read_text())["weight_map"]
        return {name: _REST if file == _WHOLE else file for name, file in named.items()}
    with safe_open(folder / _WHOLE, framework="pt") as stored:
        return dict.fromkeys(stored.keys(), _REST)


def _tied_names(folder: Path) -> dict[str, str]:
    """Return the names of tied tensors, each with that of the tensor that it is."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    return dict(model.all_tied_weights_keys)
