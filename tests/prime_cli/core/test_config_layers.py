"""Files and keys of the command line, merged in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.config_layers import read_layers
from prime_cli.core.errors import ConfigError

BASE = """
model = "m"
max_steps = 5
[trainer.optim]
type = "sgd"
momentum = 0.5
[[env]]
id = "e"
args = { n = 1 }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "more.toml").write_text('max_steps = 9\n[trainer.optim]\nmomentum = 0.9\n[[env]]\nid = "f"\n')
    (tmp_path / "optim.toml").write_text('type = "muon"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(*words: str) -> dict[str, Any]:
    return read_layers(words)[0]


def test_a_later_file_is_merged_over_the_first_and_lists_are_replaced(folder: Path) -> None:
    data = read("base.toml", "@", "more.toml")
    assert data == read("@", "base.toml", "@", "more.toml")
    assert data["max_steps"] == 9
    assert data["trainer"]["optim"] == {"type": "sgd", "momentum": 0.9}
    assert data["env"] == [{"id": "f"}]


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        (["--max-steps", "7"], ["max_steps"], 7),
        (["--max_steps=7"], ["max_steps"], 7),
        (["--model", "models/tiny"], ["model"], "models/tiny"),
        (["--trainer.optim.momentum", "1e-1"], ["trainer", "optim", "momentum"], 0.1),
        (["--trainer.optim", "None"], ["trainer", "optim"], None),
        (["--trainer.activation-checkpointing"], ["trainer", "activation_checkpointing"], True),
        (["--no-flag", "--max-steps", "7"], ["flag"], False),
        (["--env.0.args.n", "3"], ["env", 0, "args", "n"], 3),
        (["--trainer.lora.target_modules", '["q_proj"]'], ["trainer", "lora", "target_modules"], ["q_proj"]),
        (["--trainer.optim", "@", "optim.toml"], ["trainer", "optim"], {"type": "muon", "momentum": 0.5}),
    ],
)
def test_a_key_of_the_command_line_wins(folder: Path, words: list[str], path: list[Any], value: object) -> None:
    found: Any = read("base.toml", *words)
    for part in path:
        found = found[part]
    assert found == value


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["@"], "names no file"),
        (["none.toml"], "no such file: none.toml"),
        (["more"], "'more' stands where no word may"),
        (["--env.3.id", "x"], "no element of a list of 1"),
        (["--max_steps.x", "1"], "'max_steps' is not a table"),
    ],
)
def test_what_cannot_be_merged_is_refused_with_its_name(folder: Path, words: list[str], says: str) -> None:
    first = [] if words[0].endswith(".toml") else ["base.toml"]
    with pytest.raises(ConfigError) as refused:
        read(*first, *words)
    assert says in refused.value.message


def test_a_file_in_json_is_merged_as_one_in_toml(folder: Path) -> None:
    (folder / "more.json").write_text('{"max_steps": 7, "trainer": {"optim": {"momentum": null}}}')
    data = read("base.toml", "@", "more.json")
    assert data["max_steps"] == 7
    assert data["trainer"]["optim"] == {"type": "sgd", "momentum": None}


@pytest.mark.parametrize(("text", "says"), [("[1]", "holds no object"), ("{", "is not valid JSON")])
def test_json_that_is_no_configuration_is_refused(folder: Path, text: str, says: str) -> None:
    (folder / "bad.json").write_text(text)
    with pytest.raises(ConfigError, match=says):
        read("bad.json")


def test_a_key_below_one_that_was_taken_away_makes_it_anew(folder: Path) -> None:
    assert read("base.toml", "--trainer.optim", "None", "--trainer.optim.type", "muon")["trainer"]["optim"] == {
        "type": "muon"
    }
