"""Models made here are ordinary Hugging Face folders."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from prime_cli.core.errors import BadInput
from prime_cli.models.folder import NotAModel, check_model_folder, load_causal_model, load_tokenizer
from prime_cli.models.tiny_qwen3 import write_model


def test_the_folder_loads_as_a_qwen3_model_of_the_promised_size(tiny_model: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert sum(p.numel() for p in model.parameters()) == 428_800
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


def test_the_seed_decides_the_weights(tiny_model: Path, tmp_path: Path) -> None:
    write_model("tiny-qwen3", tmp_path / "same", seed=0)
    write_model("tiny-qwen3", tmp_path / "other", seed=1)
    same, other, first = (
        load_causal_model(p).state_dict() for p in (tmp_path / "same", tmp_path / "other", tiny_model)
    )
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_the_tokenizer_brings_any_text_back_and_renders_conversations_that_only_grow(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(tiny_model)
    text = "Grüße, 世界!\n\t{}"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    prompt = tokenizer.apply_chat_template(messages[:1], add_generation_prompt=True, return_dict=False)
    whole = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert whole[: len(prompt)] == prompt
    assert tokenizer.decode(whole) == "<|user|>a<|im_end|><|assistant|>b<|im_end|><|user|>c<|im_end|><|assistant|>"


def test_an_unknown_preset_and_an_existing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="unknown model preset"):
        write_model("huge", tmp_path / "m")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "precious").write_text("x")
    with pytest.raises(BadInput, match="exists already"):
        write_model("tiny-qwen3", tmp_path / "taken")
    with pytest.raises(BadInput, match="not a model folder"):
        write_model("tiny-qwen3", tmp_path / "taken", force=True)
    assert (tmp_path / "taken" / "precious").read_text() == "x"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "no config.json"),
        ({"config.json": "{"}, "cannot be read"),
        ({"config.json": "{}"}, "model_type"),
        ({"config.json": '{"model_type": "qwen3"}'}, "no weights"),
        ({"config.json": '{"model_type": "qwen3"}', "model.safetensors": ""}, "no tokenizer"),
    ],
)
def test_what_a_folder_lacks_to_be_a_model_is_named(tmp_path: Path, files: dict[str, str], says: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(NotAModel, match=says):
        check_model_folder(tmp_path)


def test_a_missing_folder_is_refused_with_a_way_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NotAModel) as caught:
        check_model_folder(tmp_path / "none")
    assert "prime model init" in str(caught.value.hint)


def test_the_command_writes_the_model_and_says_so_as_json(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "prime_cli.main", "model", "init", "tiny-qwen3", "m", "--seed", "3", "--output", "json"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"path": "m", "preset": "tiny-qwen3", "parameters": 428_800, "seed": 3}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]
