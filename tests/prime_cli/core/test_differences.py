"""Paired and unpaired tests against textbook data, and against simulations with a known answer."""

from __future__ import annotations

import itertools
import random

import pytest

from prime_cli.core.differences import holm, paired_difference, sign_flip_p, unpaired_difference

# Hours of sleep gained under two drugs by ten patients: the data of "Student" (1908), as R has them in `sleep`.
FIRST = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
SLEEP = [b - a for a, b in zip(FIRST, SECOND, strict=True)]


def test_students_own_data_give_the_paired_test_of_the_textbooks() -> None:
    found = paired_difference(SLEEP)
    assert found is not None
    # R: t.test(paired = TRUE): t = 4.0621, df = 9, p = 0.002833, interval 0.7001 to 2.4599, mean 1.58
    assert (found.mean, found.degrees) == (pytest.approx(1.58), 9)
    assert found.p_t == pytest.approx(0.002832890197)
    assert (found.low, found.high) == (pytest.approx(0.7001142367), pytest.approx(2.459885763))


def test_the_same_data_unpaired_give_welchs_test() -> None:
    found = unpaired_difference(FIRST, SECOND)
    assert found is not None
    # R: t.test(): df = 17.776, p = 0.07939, interval -0.2055 to 3.3655
    assert (found.degrees, found.p) == (pytest.approx(17.776473516), pytest.approx(0.0793941401874))
    assert (found.low, found.high) == (pytest.approx(-0.2054832307), pytest.approx(3.365483231))


def test_few_examples_are_decided_by_all_ways_to_flip_signs() -> None:
    found = paired_difference(SLEEP)
    assert found is not None
    # nine differences above 0 and one of 0: 2 of 2 ** 9 patterns are as far out
    assert (found.p_flip, found.flips_exact, found.test) == (2 / 2**9, True, "exact sign-flip test")
    assert found.p == found.p_flip


def test_pass_and_fail_are_decided_by_mcnemars_exact_test() -> None:
    # 3 examples got worse, 12 better, 200 stayed: the binomial test of 3 of 15 has p = 0.0352
    found = paired_difference([-1.0] * 3 + [1.0] * 12 + [0.0] * 200)
    assert found is not None
    assert found.p == pytest.approx(0.03515625)
    assert found.test == "exact sign-flip test"


def test_many_examples_are_decided_by_the_t_test_and_drawn_flips_agree_with_it() -> None:
    rng = random.Random(5)
    values = [rng.gauss(0.3, 1) for _ in range(60)]
    found = paired_difference(values)
    assert found is not None
    assert found.test == "paired t test"
    assert found.p == found.p_t
    assert found.p_flip == pytest.approx(found.p_t, abs=0.01)
    assert found == paired_difference(values)


def test_drawn_flips_agree_with_all_of_them() -> None:
    rng = random.Random(6)
    values = [rng.gauss(0.4, 1) for _ in range(17)]
    patterns = itertools.product((-1, 1), repeat=16)
    extreme = sum(
        abs(values[0] + sum(s * v for s, v in zip(signs, values[1:], strict=True))) >= abs(sum(values)) - 1e-12
        for signs in patterns
    )
    drawn, exact = sign_flip_p(values)
    assert not exact
    assert drawn == pytest.approx(extreme / 2**16, abs=0.01)


def test_differences_that_do_not_vary_claim_no_interval_and_no_certainty() -> None:
    same = paired_difference([0.0] * 50)
    assert same is not None
    assert (same.p, same.low, same.smallest_effect, same.examples_to_decide) == (1.0, None, None, None)
    # three examples, all of them better: as good as two of eight ways to flip
    better = paired_difference([1.0] * 3)
    assert better is not None
    assert (better.p, better.low) == (pytest.approx(0.25), None)
    assert paired_difference([]) is None


def test_five_examples_show_nothing_however_they_come_out() -> None:
    found = [paired_difference([0.5 + e / 100 for e in range(n)]) for n in (5, 6)]
    assert [(one.p, one.is_too_small, one.smallest_effect is None) for one in found if one] == [
        (0.0625, True, True), (0.03125, False, False)
    ]  # fmt: skip


def test_many_thousands_of_examples_take_no_time() -> None:
    rng = random.Random(7)
    found = paired_difference([rng.gauss(0, 1) for _ in range(20_000)])
    assert found is not None
    assert (found.p_flip, found.p) == (None, found.p_t)
    many = paired_difference([rng.choice((-1.0, 0.0, 1.0)) for _ in range(20_000)])
    assert many is not None
    assert many.p == pytest.approx(many.p_t, abs=0.01)


def differences(rng: random.Random, num_examples: int, lift: float = 0.0) -> list[float]:
    """Differences of means over 4 rollouts, of examples that are easier or harder in themselves."""
    found = []
    for _ in range(num_examples):
        chance = rng.betavariate(2, 2)
        sides = [sum(rng.random() < chance + extra for _ in range(4)) / 4 for extra in (0.0, lift)]
        found.append(sides[1] - sides[0])
    return found


def share_shown(num_examples: int, number: int, *, seed: int, lift: float = 0.0) -> float:
    rng = random.Random(seed)
    found = [paired_difference(differences(rng, num_examples, lift), draws=50) for _ in range(number)]
    return sum(one is not None and one.p is not None and one.p < 0.05 for one in found) / number


def test_no_difference_is_taken_for_one_in_one_of_20_comparisons() -> None:
    assert 0.04 <= share_shown(40, 2000, seed=1) <= 0.06


def test_no_difference_between_few_examples_is_taken_for_one_no_more_often() -> None:
    assert share_shown(8, 2000, seed=2) <= 0.055


def test_unpaired_sides_of_one_kind_are_taken_for_different_in_one_of_20_comparisons() -> None:
    rng, shown = random.Random(4), 0
    for _ in range(500):
        sides = [[rng.gauss(0, spread) for _ in range(n)] for n, spread in ((12, 1.0), (30, 3.0))]
        found = unpaired_difference(*sides)
        shown += found is not None and found.p is not None and found.p < 0.05
    assert 0.03 <= shown / 500 <= 0.07


def test_the_smallest_effect_is_shown_four_times_in_five_and_so_is_one_with_as_many_examples_as_told() -> None:
    rng = random.Random(3)
    pilot = [rng.gauss(0.5, 1) for _ in range(4000)]
    told = paired_difference(pilot, draws=50)
    assert told is not None
    # by the normal approximation ((1.96 + 0.84) / 0.5) ** 2 = 31.4, and two more for t
    enough = told.examples_to_decide
    assert enough is not None
    assert 31 <= enough <= 36
    shown = 0
    for _ in range(1000):
        found = paired_difference([rng.gauss(0.5, 1) for _ in range(enough)], draws=50)
        shown += found is not None and found.p_t is not None and found.p_t < 0.05
    assert shown / 1000 == pytest.approx(0.8, abs=0.04)
    assert told.smallest_effect == pytest.approx(2.8016 / 4000**0.5, rel=0.05)


def test_holms_correction_is_that_of_the_textbooks() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
