"""Several [[env]] tables, and what each may say for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from prime_cli.core.config_file import load_config
from prime_cli.core.errors import ConfigError
from prime_cli.rl.config import RLConfig

TWO = """
model = "m"
batch_size = 64
[sampling]
max_tokens = 100
extra_body = { a = 1 }
[[env]]
id = "owner/words"
version = "1.2"
ratio = 3.0
max_retries = 2
max_turns = 4
max_total_tokens = 900
[[env]]
id = "sums"
name = "hard"
group_size = 16
workers = 1
sampling = { temperature = 0.7 }
"""


def read(tmp_path: Path, text: str) -> RLConfig:
    path = tmp_path / "run.toml"
    path.write_text(text)
    return load_config(path, RLConfig)


def test_an_environment_says_what_differs_from_the_run(tmp_path: Path) -> None:
    config = read(tmp_path, TWO)
    words, hard = config.env
    assert (words.label, words.reference, words.retries) == ("words", "owner/words@1.2", 2)
    assert words.limits == {"max_turns": 4, "max_total_tokens": 900}
    assert (hard.label, hard.reference, hard.limits) == ("hard", "sums", {})
    assert [config.group_size_for(environment) for environment in config.env] == [8, 16]
    assert config.sampling_for(words) == config.sampling
    sampling = config.sampling_for(hard)
    assert (sampling.temperature, sampling.max_tokens, sampling.extra_body) == (0.7, 100, {"a": 1})


def test_a_resolved_configuration_reads_as_itself(tmp_path: Path) -> None:
    config = read(tmp_path, TWO)
    assert RLConfig.model_validate_json(config.model_dump_json()) == config


def test_what_is_in_flight_is_counted_in_rollouts_or_in_batches(tmp_path: Path) -> None:
    assert read(tmp_path, TWO).max_inflight == 128
    assert read(tmp_path, "oversampling_factor = 1.5\n" + TWO).max_inflight == 96
    assert read(tmp_path, "max_inflight_rollouts = 40\n" + TWO).max_inflight == 40


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("oversampling_factor = 2\nmax_inflight_rollouts = 64\n" + TWO, "give one of them"),
        ("oversampling_factor = 0.1\n" + TWO, "a group starts as a whole"),
        (TWO + '[[env]]\nid = "owner/words"\n', "several environments are called words"),
        (TWO + '[[env]]\nid = "a@2"\nversion = "1"\n', "names a version"),
        (TWO + "[[env]]\nid = \"one\"\ngroup_size = 1\n", "every advantage is zero"),
        (TWO + "[[env]]\nid = \"one\"\nratio = 0\n", "env[2].ratio"),
    ],
)  # fmt: skip
def test_environments_that_cannot_work_together_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert says in caught.value.message
