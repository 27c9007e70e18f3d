"""What vLLM is started with: a tied model with a head of its own, where that is needed, and a parser of tool calls."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file

from prime_cli.core.errors import ConfigError
from prime_cli.models.folder import load_causal_model, load_tokenizer
from prime_cli.rl.config import RLConfig
from prime_cli.rl.inference import vllm
from prime_cli.rl.inference.fleet import policy_servers
from prime_cli.rl.inference.untied import is_tied, write_untied
from prime_cli.rl.inference_config import InferenceConfig
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.trainer.broadcasting import broadcast_of
from prime_cli.rl.trainer.ranks import Ranks
from tests.prime_cli.rl.learners import a_learner, random_samples

EMBEDDINGS, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def config_of(model: Path, **inference: Any) -> RLConfig:
    lora = {"lora": {"rank": 4}} if inference.get("weight_transfer") == "adapter" else {}
    return RLConfig.model_validate(
        {"model": str(model), "env": [{"id": "reverse-text"}], "trainer": lora, "inference": inference}
    )


def first_command(model: Path, run: Path, **inference: Any) -> list[str]:
    """Return what the first server of a run without a GPU is started with."""
    config = config_of(model, **inference)
    server, *_ = policy_servers(config, RunDirectory(run), config.inference.engine, model_name="policy")
    return server.command


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "_has_gpu", lambda: False)


@pytest.mark.parametrize("shards", [1, 3])
def test_the_untied_model_answers_as_the_tied_one_and_has_a_head_of_its_own(
    tiny_model: Path, tmp_path: Path, shards: int
) -> None:
    tied = load_causal_model(tiny_model)
    folder = tmp_path / "model"
    tied.save_pretrained(folder, max_shard_size="1GB" if shards == 1 else "700KB")
    load_tokenizer(tiny_model).save_pretrained(folder)
    assert (len(list(folder.glob("*.safetensors"))) > 1) == (shards > 1)
    write_untied(folder, tmp_path / "untied")
    untied = load_causal_model(tmp_path / "untied")
    assert is_tied(folder)
    assert not is_tied(tmp_path / "untied")
    tokens = torch.tensor([[5, 70, 71, 72]])
    assert torch.equal(untied(input_ids=tokens).logits, tied(input_ids=tokens).logits)
    assert untied.lm_head.weight.data_ptr() != untied.model.embed_tokens.weight.data_ptr()
    index = json.loads((tmp_path / "untied" / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(index) == {*untied.state_dict()}, "the index names every tensor, as vLLM reads no other file"


def test_a_model_whose_embeddings_have_another_name_in_its_files_is_refused_with_a_way_out(
    tiny_model: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    stored = load_file(folder / "model.safetensors")
    save_file({name.removeprefix("model."): tensor for name, tensor in stored.items()}, folder / "model.safetensors")
    with pytest.raises(ConfigError, match=f"no file there holds {EMBEDDINGS}") as refused:
        write_untied(folder, tmp_path / "untied")
    assert "adapter" in str(refused.value.hint)
    assert not (tmp_path / "untied").exists()


def test_vllm_on_a_cpu_serves_the_untied_model_where_it_reloads_whole_weights(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "untied_model"
    assert str(folder) in first_command(tiny_model, tmp_path, engine="vllm")
    assert not is_tied(folder)
    RunDirectory(tmp_path).drop_traffic()
    assert not folder.exists()
    for inference in ({"engine": "vllm", "weight_transfer": "adapter"}, {"engine": "embedded"}):
        assert str(tiny_model) in first_command(tiny_model, tmp_path, **inference)


def test_vllm_parses_tool_calls_as_configured() -> None:
    def options(**inference: Any) -> str:
        config = InferenceConfig.model_validate({"engine": "vllm", **inference})
        return " ".join(vllm.vllm_command(Path("m"), config, model_name="m", port=1, context=8, seed=0))

    assert "--enable-auto-tool-choice --tool-call-parser hermes" in options()
    assert "--tool-call-parser llama3_json" in options(tool_call_parser="llama3_json")
    assert "tool" not in options(tool_call_parser="")
    with pytest.raises(ValidationError, match=r"set `inference\.tool_call_parser`"):
        options(vllm_args={"tool_call_parser": "hermes"})


@pytest.mark.parametrize("gpu", [False, True])
def test_broadcasts_for_vllm_hold_the_head_of_a_tied_model_where_there_is_no_gpu(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool
) -> None:
    monkeypatch.setattr(vllm, "_has_gpu", lambda: gpu)
    learner = a_learner(tiny_model)
    run = RunDirectory(tmp_path)
    broadcast = broadcast_of(config_of(tiny_model, engine="vllm"), run, learner, Ranks())
    learner.step(random_samples(4, 0))
    broadcast(1)
    written = load_file(run.broadcast(1) / "model.safetensors")
    assert (HEAD in written) == (not gpu)
    if not gpu:
        assert torch.equal(written[HEAD], learner.weights()[EMBEDDINGS])
        assert torch.equal(written[HEAD], written[EMBEDDINGS])
