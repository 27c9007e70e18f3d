"""The demo task itself: what the training recipe relies on."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import pytest

from prime_cli.environments.scaffold import write_environment


@pytest.fixture(scope="module")
def reverse_text(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = write_environment("reverse-text", tmp_path_factory.mktemp("environments"), "reverse-text").path
    spec = importlib.util.spec_from_file_location("reverse_text_of_the_template", path / "reverse_text.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.load_environment()  # the library imports most of itself on first use
    return module


def test_loading_takes_no_time_and_fifty_thousand_strings_little(reverse_text: Any) -> None:
    started = time.monotonic()
    environment = reverse_text.load_environment(num_train=50_000)
    assert time.monotonic() - started < 0.5
    assert len(environment.get_dataset()) == 50_000
    assert time.monotonic() - started < 5


def test_the_held_out_strings_do_not_depend_on_the_number_of_training_strings(reverse_text: Any) -> None:
    few, many = (reverse_text.load_environment(num_train=n, seed=3).get_eval_dataset()["answer"][:] for n in (10, 500))
    assert few == many


def test_the_reward_does_not_look_at_the_answer(reverse_text: Any) -> None:
    prompt, completion = [{"content": "abcd"}], [{"content": "dcba"}]
    assert reverse_text.similarity(prompt=prompt, completion=completion, answer="zzzz") == 1.0


def test_the_noise_does_not_change_the_strings(reverse_text: Any, tmp_path: Path) -> None:
    def prompts(noise: float) -> list[Any]:
        rows = reverse_text.load_environment(num_train=50, answer_noise=noise).get_dataset()["prompt"]
        return [row[0]["content"] for row in rows]

    assert prompts(0.0) == prompts(0.4)
