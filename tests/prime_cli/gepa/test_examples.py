"""Which examples are for what."""

from __future__ import annotations

from typing import Any

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.gepa.examples import Pool, Splits, SplitSizes, draw_splits

NOTHING_GIVEN: frozenset[str] = frozenset()


def rows(*texts: str) -> list[dict[str, Any]]:
    return [{"example_id": i, "prompt": [{"role": "user", "content": text}]} for i, text in enumerate(texts)]


def numbered(name: str, count: int) -> list[dict[str, Any]]:
    return rows(*(f"{name}{i}" for i in range(count)))


def texts(splits: Splits, name: str) -> set[str]:
    return {example.row["prompt"][0]["content"] for example in getattr(splits, name)}


def test_no_example_is_in_two_sets_even_when_the_evaluation_set_is_the_training_set() -> None:
    same = numbered("a", 40)
    splits = draw_splits([Pool("env", same, same)], SplitSizes(20, 10, 10), NOTHING_GIVEN, seed=0)
    sets = [texts(splits, name) for name in ("train", "val", "test")]
    assert [len(one) for one in sets] == [20, 10, 10]
    assert len(set.union(*sets)) == 40


def test_validation_and_held_out_examples_come_from_the_evaluation_set() -> None:
    pool = Pool("env", numbered("train", 30), numbered("eval", 25))
    splits = draw_splits([pool], SplitSizes(20, 10, 10), NOTHING_GIVEN, seed=0)
    assert all(text.startswith("train") for text in texts(splits, "train"))
    assert all(text.startswith("eval") for text in texts(splits, "val") | texts(splits, "test"))


def test_what_says_the_same_is_one_example() -> None:
    with pytest.raises(PrimeError, match="env has 2 different examples; 4 are needed"):
        draw_splits([Pool("env", rows("a", "b", "a", "b"), rows("a"))], SplitSizes(100, 50, 50), NOTHING_GIVEN, seed=0)


def test_sizes_that_were_not_given_shrink_and_those_that_were_must_be_there() -> None:
    pool = Pool("env", numbered("a", 40), [])
    assert draw_splits([pool], SplitSizes(100, 50, 50), NOTHING_GIVEN, seed=0).sizes == SplitSizes(20, 10, 10)
    given = draw_splits([pool], SplitSizes(100, 28, 50), frozenset({"num_val"}), seed=0)
    assert given.sizes == SplitSizes(8, 28, 4)
    with pytest.raises(PrimeError, match="40 different examples; 53 are needed"):
        draw_splits([pool], SplitSizes(100, 50, 50), frozenset({"num_val"}), seed=0)


def test_several_environments_have_equal_shares() -> None:
    pools = [Pool("one", numbered("one", 50), []), Pool("two", numbered("two", 500), [])]
    splits = draw_splits(pools, SplitSizes(20, 11, 10), NOTHING_GIVEN, seed=0)
    shares = [[e.environment for e in getattr(splits, name)].count(0) for name in ("train", "val", "test")]
    assert shares == [10, 6, 5]
    assert splits.sizes == SplitSizes(20, 11, 10)


def test_a_seed_draws_the_same_examples_again_and_another_seed_others() -> None:
    pool = Pool("env", numbered("a", 200), numbered("b", 200))
    drawn = [draw_splits([pool], SplitSizes(20, 10, 10), NOTHING_GIVEN, seed).as_data() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_prompts_of_plain_text_are_refused() -> None:
    with pytest.raises(PrimeError, match="take no system prompt"):
        draw_splits([Pool("env", [{"prompt": "text"}], [])], SplitSizes(1, 1, 0), NOTHING_GIVEN, seed=0)
