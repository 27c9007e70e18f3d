"""The order in which demonstrations are shown."""

from __future__ import annotations

from collections import Counter

from prime_cli.sft.batches import Batches, Mixture


def test_every_epoch_shows_every_demonstration_once_in_another_order() -> None:
    batches = Batches(Mixture([10]))
    first, second = batches.take(10), batches.take(10)
    assert sorted(first) == sorted(second) == [(0, place) for place in range(10)]
    assert first != second
    assert batches.epochs == 2


def test_without_shuffling_the_order_is_that_of_the_sources() -> None:
    assert Batches(Mixture([2, 1], shuffle=False)).take(4) == [(0, 0), (0, 1), (1, 0), (0, 0)]


def test_a_batch_that_an_epoch_does_not_fill_is_filled_from_the_next_one() -> None:
    batches = Batches(Mixture([3]))
    shown = [index for _ in range(3) for index in batches.take(2)]
    assert sorted(shown[:3]) == sorted(shown[3:]) == [(0, 0), (0, 1), (0, 2)]


def test_what_is_shown_goes_on_from_a_state() -> None:
    mixture = Mixture([5, 7], probabilities=[0.5, 0.5], seed=3)
    one = Batches(mixture)
    one.take(23)
    other = Batches(mixture)
    other.go_on_from(one.state())
    assert other.take(40) == one.take(40)


def test_sources_are_drawn_by_their_probabilities_until_all_are_used_up() -> None:
    epoch = Mixture([400, 100], probabilities=[0.25, 0.75]).epoch(0)
    counts = Counter(source for source, _ in epoch)
    assert set(epoch) == {(0, place) for place in range(400)} | {(1, place) for place in range(100)}
    assert 0.2 < counts[0] / len(epoch) < 0.3


def test_an_epoch_may_end_with_the_first_source_that_is_used_up() -> None:
    epoch = Mixture([400, 100], probabilities=[0.25, 0.75], until_all_are_used_up=False).epoch(0)
    assert sum(source == 1 for source, _ in epoch) == 100
    assert max(Counter(epoch).values()) == 1


def test_rows_are_filled_and_what_does_not_fit_is_the_first_of_the_next_step() -> None:
    lengths = [[6, 3, 4, 5, 2]]
    batches = Batches(Mixture([5], shuffle=False))
    assert batches.take_rows(1, 10, lengths) == [(0, 0), (0, 1)]
    assert batches.take_rows(2, 10, lengths) == [(0, 2), (0, 3), (0, 4), (0, 0)]
