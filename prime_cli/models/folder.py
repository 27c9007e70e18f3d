"""Tells whether a folder holds a model, and loads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import directory_written_aside

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


class NotAModel(PrimeError):
    """A folder that was given as a model is not one in Hugging Face layout."""


def check_model_folder(folder: Path) -> dict[str, Any]:
    """Return the parsed `config.json` of the model in `folder`.

    Raises:
        NotAModel: the folder, its config, its weights or its tokenizer are missing or unreadable; says which.
    """
    if not folder.exists():
        raise NotAModel(
            f"no such model folder: {folder}", hint="make one with `prime model init tiny-qwen3 DIR`, or check the path"
        )
    if not folder.is_dir():
        raise NotAModel(f"{folder} is a file, not a model folder", hint="give the folder that holds config.json")
    wanted = "a model folder holds config.json, a tokenizer and *.safetensors"
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise NotAModel(f"{folder} is not a model folder: it has no config.json", hint=wanted)
    try:
        config = json.loads(config_path.read_text())
    except (ValueError, OSError) as error:
        raise NotAModel(f"{config_path} cannot be read: {error}", hint=wanted) from None
    if not isinstance(config, dict) or "model_type" not in config:
        raise NotAModel(f"{config_path} names no `model_type`", hint=wanted)
    if not any((folder / name).is_file() for name in _WEIGHTS):
        raise NotAModel(f"{folder} holds no weights ({' or '.join(_WEIGHTS)})", hint=wanted)
    if not (folder / "tokenizer_config.json").is_file():
        raise NotAModel(f"{folder} holds no tokenizer (tokenizer_config.json)", hint=wanted)
    return config


def load_causal_model(folder: Path, *, device: str = "cpu", dtype: str = "float32") -> Any:
    """Load the causal language model in `folder` with scaled-dot-product attention, in `dtype` on `device`.

    Raises:
        NotAModel: the folder is not a model folder, or its weights do not fit its config.
    """
    check_model_folder(folder)
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation="sdpa", local_files_only=True
        )
    except (ValueError, OSError, RuntimeError, SafetensorError) as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NotAModel(f"the model in {folder} cannot be loaded: {first_line}") from error
    return model.to(device)


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer in `folder`; it must carry a chat template.

    Raises:
        NotAModel: there is no tokenizer, or it has no chat template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (ValueError, OSError) as error:
        raise NotAModel(f"the tokenizer in {folder} cannot be loaded: {error}") from error
    if not tokenizer.chat_template:
        raise NotAModel(f"the tokenizer in {folder} has no chat template", hint="prime talks to models in messages")
    return tokenizer


def save_model_folder(model: Any, tokenizer: Any, folder: Path, *, weights: dict[str, Any] | None = None) -> None:
    """Write `model` and `tokenizer` in Hugging Face layout; the folder appears complete or not at all.

    Args:
        weights: what to write as the model's parameters, where they are not those that it holds.
    """
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    with directory_written_aside(folder) as aside:
        model.save_pretrained(aside, state_dict=weights)
        tokenizer.save_pretrained(aside)
        for file in aside.iterdir():
            file.chmod(0o644)
