"""Which environment and which example come next."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from prime_cli.rl.orchestrator.chooser import SourceChooser
from prime_cli.rl.orchestrator.samplers import ShuffledSampler


def test_an_epoch_shows_every_example_once_and_the_next_in_another_order() -> None:
    sampler = ShuffledSampler(50, seed=4)
    first = [sampler.next() for _ in range(50)]
    second = [sampler.next() for _ in range(50)]
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    again = ShuffledSampler(50, seed=4)
    assert [again.next() for _ in range(50)] == first


def test_a_restored_sampler_goes_on_in_the_middle_of_an_epoch() -> None:
    sampler = ShuffledSampler(7, seed=1)
    for _ in range(10):
        sampler.next()
    restored = ShuffledSampler(7, seed=1)
    restored.restore(json.loads(json.dumps(sampler.state())))
    assert [restored.next() for _ in range(20)] == [sampler.next() for _ in range(20)]


def test_an_environment_without_examples_is_refused() -> None:
    with pytest.raises(ValueError, match="no training examples"):
        ShuffledSampler(0, seed=1)


def test_environments_are_drawn_in_proportion_and_a_restored_chooser_goes_on() -> None:
    chooser = SourceChooser({"a": 1.0, "b": 3.0}, seed=2)
    counts = Counter(chooser.next() for _ in range(2000))
    assert 0.7 < counts["b"] / 2000 < 0.8
    restored = SourceChooser({"a": 1.0, "b": 3.0}, seed=2)
    restored.restore(json.loads(json.dumps(chooser.state())))
    assert [restored.next() for _ in range(50)] == [chooser.next() for _ in range(50)]
