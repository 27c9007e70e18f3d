"""Whether one evaluation differs from another: what is paired, what is left out and said, and what comes of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from prime_cli.core.differences import paired_difference
from prime_cli.core.errors import BadInput
from prime_cli.evals.compare import Comparison, compare, compare_all, left_out
from prime_cli.evals.comparison_report import as_csv, as_data, as_markdown, report_on
from prime_cli.evals.find import find_evaluation
from prime_cli.evals.scores import read_scores, read_summary
from prime_cli.evals.store import EvalDirectory
from tests.prime_cli.evals.evaluations import FAILED, write_evaluation


def compared(first: EvalDirectory, second: EvalDirectory, *, metric: str = "reward", **options: bool) -> Comparison:
    return compare(read_scores(first, metric=metric), read_scores(second, metric=metric), **options)


def words(comparison: Comparison) -> str:
    report = report_on([comparison.first, comparison.second], [comparison])
    return " ".join(report.verdicts[0])


def test_examples_are_paired_by_their_means_whatever_the_order_of_rollouts(tmp_path: Path) -> None:
    before = write_evaluation(tmp_path, "before", {0: [0.0, 1.0], 1: [0.0, 0.0], 2: [1.0, 1.0], 3: [0.5, 0.0]})
    after = write_evaluation(tmp_path, "after", {3: [1.0, 0.5], 2: [1.0, 1.0], 1: [1.0, 0.0], 0: [1.0, 1.0]})
    found = compared(before, after)
    assert (found.first_mean, found.second_mean) == (0.4375, 0.8125)
    assert found.difference == paired_difference([0.5, 0.5, 0.0, 0.5])
    assert found.pairing is not None
    assert found.pairing.pairs == 4
    assert found.settings_that_differ() == {}


def test_flipped_examples_come_first_then_the_largest_changes(tmp_path: Path) -> None:
    before = write_evaluation(tmp_path, "a", {0: [0.0], 1: [0.6], 2: [0.4], 3: [1.0], 4: [0.2]})
    after = write_evaluation(tmp_path, "b", {0: [0.45], 1: [0.4], 2: [0.5], 3: [0.5], 4: [0.2]})
    found = compared(before, after)
    assert [change.example_id for change in found.changes] == [1, 2, 3, 0]
    assert [change.example_id for change in found.flipped] == [1, 2]
    table = report_on([found.first, found.second], [found], examples=1).changes[0]
    assert str(before.path) in table.title
    assert "1 passed only in B and 1 only in A" in table.title
    assert list(table.rows) == [("1", "0.600", "0.400", "-0.200", "no longer passes")]


def test_examples_with_a_failed_rollout_are_left_out_and_said(tmp_path: Path) -> None:
    before = write_evaluation(tmp_path, "a", {0: [1.0], 1: [0.0], 2: [1.0, FAILED], 4: [1.0], 5: [1.0]})
    after = write_evaluation(tmp_path, "b", {0: [1.0], 1: [1.0], 2: [1.0, 1.0], 3: [1.0], 4: [FAILED], 6: [0.0]})
    found = compared(before, after)
    assert found.pairing is not None
    assert left_out(found.pairing) == "2 with a failed rollout, 1 only in the first, 2 only in the second"
    assert (found.pairing.pairs, found.second_mean) == (2, 1.0)
    # examples 0, 1, 2 and 4, with failed rollouts worth 0: 0, +1, +0.5, -1
    assert found.with_errors_as_zero == paired_difference([0.0, 1.0, 0.5, -1.0])
    assert "2 with a failed rollout" in words(found)
    assert [(one.num_rollouts, one.num_errors) for one in (found.first, found.second)] == [(6, 1), (7, 1)]


def test_other_environments_and_splits_are_paired_only_when_told_not_to(tmp_path: Path) -> None:
    squares = write_evaluation(tmp_path, "a", {0: [1.0], 1: [0.0], 2: [1.0]}, env_id="me/squares@1.0")
    cubes = write_evaluation(tmp_path, "b", {0: [0.0], 1: [0.0], 2: [1.0]}, env_id="cubes")
    train = write_evaluation(tmp_path, "c", {0: [0.0], 1: [0.0], 2: [1.0]}, split="train")
    with pytest.raises(BadInput, match=r"environment is squares .* and cubes"):
        compared(squares, cubes)
    with pytest.raises(BadInput, match=r"split is eval .* and train"):
        compared(squares, train)
    found = compared(squares, cubes, unpaired=True)
    assert found.pairing is None
    assert found.difference.mean == pytest.approx(-1 / 3)
    assert "Not paired" in words(found)
    newer = write_evaluation(tmp_path, "d", {0: [1.0], 1: [1.0], 2: [1.0]}, env_id="me/squares@2.0")
    assert compared(squares, newer).difference.mean == pytest.approx(1 / 3)


def test_examples_that_are_drawn_anew_are_no_pairs_although_their_numbers_agree(tmp_path: Path) -> None:
    before = write_evaluation(tmp_path, "a", {0: [1.0], 1: [0.0], 2: [0.0]})
    after = write_evaluation(tmp_path, "b", {0: [1.0], 1: [0.0], 2: [0.0]}, answers={1: "other"})
    found = compared(before, after)
    assert found.pairing is not None
    assert (found.pairing.pairs, found.pairing.other_answer) == (2, 1)
    anew = write_evaluation(tmp_path, "c", {0: [1.0], 1: [0.0]}, answers={0: "x", 1: "y"})
    with pytest.raises(BadInput, match="no example is left") as refusal:
        compared(before, anew)
    assert "seed" in str(refusal.value.hint)


def test_another_prompt_is_a_change_that_may_be_compared_and_is_said(tmp_path: Path) -> None:
    before = write_evaluation(tmp_path, "a", {0: [1.0], 1: [0.0]})
    after = write_evaluation(tmp_path, "b", {0: [1.0], 1: [1.0]}, rows={"prompt": "Think first."}, model="large")
    found = compared(before, after)
    assert found.pairing is not None
    assert found.pairing.other_prompts == 2
    assert "model (small, large)" in words(found)


def test_what_a_comparison_shows_and_could_show_is_put_into_words(tmp_path: Path) -> None:
    noise = [(-1) ** example * 0.1 for example in range(40)]
    before = write_evaluation(tmp_path, "a", {e: [0.3] for e in range(40)})
    better = write_evaluation(tmp_path, "b", {e: [0.5 + n] for e, n in enumerate(noise)})
    alike = write_evaluation(tmp_path, "c", {e: [0.31 + n] for e, n in enumerate(noise)})
    assert "reward of B is higher by 0.200" in words(compared(before, better))
    found = compared(before, alike)
    assert "no difference in reward is shown (+0.010" in words(found)
    # (2.8 * 0.1013 / 0.01) ** 2 = 804 examples in all
    assert "more examples would show it" in words(found)
    assert found.difference.examples_to_decide == pytest.approx(806, abs=5)
    assert "no example has another reward" in words(compared(before, before))


def test_it_is_told_what_more_rollouts_of_the_same_examples_could_show(tmp_path: Path) -> None:
    # Rollouts of an example agree: more of them would show no more.
    before = write_evaluation(tmp_path, "a", {e: [0.5, 0.5] for e in range(40)})
    mixed = write_evaluation(tmp_path, "b", {e: [0.51 + (-1) ** e * 0.1] * 2 for e in range(40)})
    found = compared(before, mixed)
    assert found.limit_of_rollouts == pytest.approx(found.difference.smallest_effect)
    # Examples are alike and rollouts are coins: enough of them would show anything.
    rng = random.Random(1)
    coins = [
        write_evaluation(tmp_path, name, {e: [float(rng.random() < 0.5) for _ in range(8)] for e in range(200)})
        for name in ("c", "d")
    ]
    found = compared(*coins)
    assert found.difference.smallest_effect is not None
    assert found.limit_of_rollouts is not None
    assert found.limit_of_rollouts < 0.4 * found.difference.smallest_effect
    assert "More rollouts of these same examples would" in words(found)
    single = write_evaluation(tmp_path, "e", {e: [0.5 + e / 100] for e in range(40)})
    assert compared(before, single).limit_of_rollouts is None


def test_several_are_held_against_the_first_and_their_p_values_corrected(tmp_path: Path) -> None:
    rewards = [{e: [float((e * k) % 7 < 4)] for e in range(30)} for k in (1, 2, 3)]
    scores = [read_scores(write_evaluation(tmp_path, f"run{i}", one)) for i, one in enumerate(rewards)]
    found = compare_all(scores)
    raw = [one.difference.p for one in found]
    assert [one.second.directory.path.name for one in found] == ["run1", "run2"]
    assert all(p is not None for p in raw)
    assert min(one.p or 0 for one in found) == pytest.approx(min(1.0, 2 * min(p or 0 for p in raw)))
    with pytest.raises(BadInput, match="two evaluations"):
        compare_all(scores[:1])


def test_a_tag_tells_where_the_difference_is(tmp_path: Path) -> None:
    before = write_evaluation(tmp_path, "a", {e: [0.0] for e in range(12)})
    after = write_evaluation(tmp_path, "b", {e: [float(e % 2)] for e in range(12)})
    sides = [read_scores(one, by="info.difficulty") for one in (before, after)]
    found = compare_all(sides, by_tag=True)[0]
    assert [(tag.value, tag.difference.mean, tag.difference.n) for tag in found.by_tag] == [
        ("easy", 0.0, 6), ("hard", 1.0, 6)
    ]  # fmt: skip
    # six of six better: 2 / 2 ** 6 = 0.03125, and twice that for two tags
    assert found.by_tag[1].p == pytest.approx(0.0625)
    assert as_csv([found]).splitlines()[2].startswith("B - A,easy,reward,0.0,0.0,0.0,")
    with pytest.raises(BadInput, match="the tag 'info"):
        read_scores(before, by="info.colour")


def test_metrics_and_passes_are_compared_like_rewards(tmp_path: Path) -> None:
    before = write_evaluation(tmp_path, "a", {0: [0.4], 1: [0.2], 2: [0.9]})
    after = write_evaluation(tmp_path, "b", {0: [0.6], 1: [0.3], 2: [0.9]})
    assert compared(before, after, metric="turns").difference.mean == pytest.approx(0.1)
    assert compared(before, after, metric="pass").difference.mean == pytest.approx(1 / 3)
    with pytest.raises(BadInput, match="no metric 'words'") as refusal:
        compared(before, after, metric="words")
    assert refusal.value.hint == "it has reward, pass, turns"


def test_a_line_that_is_broken_is_passed_over_and_counted_and_one_that_is_being_written_is_none(tmp_path: Path) -> None:
    directory = write_evaluation(tmp_path, "a", {0: [1.0], 1: [0.0]})
    with directory.results.open("ab") as file:
        file.write(b'{"example_id": 2, "rew\n{"example_id": 2, "rew')
    scores = read_scores(directory)
    assert (scores.num_rollouts, scores.num_broken_lines) == (2, 1)
    assert read_summary(directory).num_rollouts == 2


def test_the_same_facts_come_as_data_and_as_markdown(tmp_path: Path) -> None:
    before = write_evaluation(tmp_path, "a", {0: [0.0, 1.0], 1: [0.0, 0.0], 2: [0.5, 0.0]}, model="with|bar")
    after = write_evaluation(tmp_path, "b", {0: [1.0, 1.0], 1: [0.0, 1.0], 2: [0.5, 0.5]})
    found = compared(before, after)
    data = as_data([found.first, found.second], [found])
    assert data["evaluations"][0]["estimate"]["rollouts"] == 6
    one = data["comparisons"][0]
    assert (one["difference"], one["pairing"]["pairs"], one["test"]) == (
        pytest.approx(5 / 12), 3, "exact sign-flip test"
    )  # fmt: skip
    assert one["changes"][0] == {
        "example_id": 1, "first": 0.0, "second": 0.5, "first_rollouts": 2, "second_rollouts": 2, "flipped": True,
        "difference": 0.5,
    }  # fmt: skip
    text = as_markdown(report_on([found.first, found.second], [found]))
    assert "| A | squares--with\\|bar/a | 0.250 |" in text


def test_an_evaluation_is_found_by_its_folder_its_id_and_the_beginning_of_it(tmp_path: Path) -> None:
    first = write_evaluation(tmp_path, "1a2b3c4d", {0: [1.0]})
    second = write_evaluation(tmp_path, "1a99ffff", {0: [1.0]})
    for text in (str(first.path), "1a2b3c4d", "1a2"):
        assert find_evaluation(text, [tmp_path]) == first
    for text, complaint in (("1a", "beginning of 2"), ("77", "no evaluation '77'"), (str(tmp_path), "2 evaluations")):
        with pytest.raises(BadInput, match=complaint):
            find_evaluation(text, [tmp_path])
    assert second.path.name in str(find_evaluation("1a9", [tmp_path]).path)
