"""What a user is told about a configuration file that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from prime_cli.core.config_file import load_config
from prime_cli.core.errors import ConfigError
from prime_cli.rl.config import RLConfig
from prime_cli.sft.config import SFTConfig

GOOD = 'model = "m"\n[[env]]\nid = "e"\n'


def problem(tmp_path: Path, text: str, model: type = RLConfig) -> ConfigError:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, model)
    return caught.value


def test_a_good_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(GOOD)
    config = load_config(path, RLConfig)
    assert config.rollouts_per_example == 8
    assert config.groups_per_batch == 16


def test_an_unknown_key_is_named_with_its_path_and_the_nearest_known_one(tmp_path: Path) -> None:
    error = problem(tmp_path, GOOD + "[sampling]\ntemprature = 1.0\n")
    assert "`sampling.temprature` is not a known key" in error.message
    assert error.hint == "did you mean `temperature`?"


def test_an_unknown_key_in_a_list_of_tables_is_named_with_its_index(tmp_path: Path) -> None:
    assert "`env[0].idd`" in problem(tmp_path, 'model = "m"\n[[env]]\nid = "e"\nidd = "x"\n').message


def test_a_wrong_type_says_what_was_expected_and_what_was_found(tmp_path: Path) -> None:
    error = problem(tmp_path, 'max_steps = "many"\n' + GOOD)
    assert "`max_steps`" in error.message
    assert "integer" in error.message
    assert "'many'" in error.message


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    assert "`model` is required" in problem(tmp_path, '[[env]]\nid = "e"\n').message


def test_several_problems_are_listed_together(tmp_path: Path) -> None:
    error = problem(tmp_path, "max_steps = 0\nbatch_size = 0\n" + GOOD)
    assert "2 problems" in error.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rollouts_per_example = 1\n" + GOOD, "every advantage is zero"),
        ("batch_size = 100\nrollouts_per_example = 16\n" + GOOD, "not a multiple"),
        ("max_inflight_rollouts = 4\n" + GOOD, "at least rollouts_per_example"),
        (GOOD + "[sampling]\nmax_tokens = 4096\n", "no room for a prompt"),
        (GOOD + "[sampling]\ntop_p = 0.9\n", "`top_p` would cut the distribution"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    assert says in problem(tmp_path, text).message


def test_text_that_is_no_toml_is_refused_with_the_place(tmp_path: Path) -> None:
    assert "line 1" in problem(tmp_path, "model = \n").message


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not a text file"):
        load_config(tmp_path / "run.toml", RLConfig)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "none.toml", RLConfig)


def test_demonstrations_come_from_exactly_one_source(tmp_path: Path) -> None:
    assert "not both and not none" in problem(tmp_path, 'model = "m"\n[data]\n', SFTConfig).message


def test_the_starter_configs_are_valid() -> None:
    from prime_cli.core.resources import resource_path

    configs = resource_path("templates/lab/configs")
    assert load_config(configs / "rl" / "reverse-text.toml", RLConfig).groups_per_batch == 16
    assert load_config(configs / "sft" / "reverse-text.toml", SFTConfig).max_steps == 600
