"""The index of a results file: what it knows, how it grows, and what it does about files that changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from prime_cli.core.errors import BadInput
from prime_cli.viewer.reading import rollout_index
from prime_cli.viewer.reading.rollout_index import RolloutIndex
from prime_cli.viewer.reading.rollout_query import Order, parse_query
from tests.prime_cli.viewer.material import a_rollout, an_evaluation, replace_rollouts


def indexed(path: Path, cache: Path | None = None) -> RolloutIndex:
    index = RolloutIndex(path, cache=cache)
    while index.advance():
        pass
    return index


def found(index: RolloutIndex, text: str, order: Order = "number") -> list[int]:
    query = parse_query(text, order)
    if query.words:
        return [number for _, numbers in index.search(query) for number in numbers]
    return list(index.numbers(query))


def test_facts_are_what_the_list_shows(tmp_path: Path) -> None:
    index = indexed(an_evaluation(tmp_path / "a", 6).results)
    first, failed = index.facts([0, 1])
    assert (first.example, first.reward, first.tokens, first.preview) == ("0", 0.0, 10, "0 [not markup]")
    assert first.tags == "task=products difficulty=hard"
    assert failed.failed
    assert failed.reward is None
    assert failed.preview == "the judge is broken"
    assert [facts.number for facts in index.facts([4, 2, 99])] == [4, 2]
    assert index.read(5)["answer"] == "85"


def test_rollouts_are_filtered_by_reward_error_tag_example_tokens_and_text(tmp_path: Path) -> None:
    index = indexed(an_evaluation(tmp_path / "a", 12).results)
    assert found(index, "reward>=0.75") == [3, 4, 8, 9]
    assert found(index, "error") == [1]
    assert found(index, "truncated ok") == [3, 10]
    assert found(index, "tag:hard reward=0") == [0]
    assert found(index, "tag:task=sums tag:hard") == [3, 9]
    assert found(index, "tag:har") == []
    assert found(index, "example:2") == [4, 5]
    assert found(index, "tokens>19") == [10, 11]
    assert found(index, "JUDGE") == [1]
    assert found(index, '"times 11" number') == [11]
    assert found(index, 'an "open quote') == []
    with pytest.raises(BadInput, match="has no number"):
        parse_query("reward<a")


def test_text_is_found_however_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    rows = [a_rollout(0, answer="Grüße"), a_rollout(1, answer='a "quoted" word')]
    lines = [json.dumps(rows[0], ensure_ascii=False), json.dumps(rows[0]), json.dumps(rows[1])]
    path.write_text("".join(f"{line}\n" for line in lines))
    index = indexed(path)
    assert found(index, "grüsse") == []
    assert found(index, "grüße") == [0, 1]
    assert found(index, "'a \"quoted\"'") == [2]


def test_rollouts_are_ordered_with_failures_first_when_the_worst_are_asked_for(tmp_path: Path) -> None:
    index = indexed(an_evaluation(tmp_path / "a", 7).results)
    assert found(index, "", "reward") == [1, 0, 5, 6, 2, 3, 4]
    assert found(index, "", "-reward") == [4, 3, 2, 6, 0, 5, 1]
    assert found(index, "", "-tokens")[0] == 6


def test_a_growing_file_is_read_on_and_a_half_written_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    index = RolloutIndex(path)
    assert index.advance() == 0
    line = json.dumps(a_rollout(3))
    path.write_text(line + "\n" + line[:20])
    assert index.advance() == 1
    assert index.advance() == 0
    with path.open("a") as file:
        file.write(line[20:] + "\n")
    assert index.advance() == 1
    assert index.read(1) == json.loads(line)


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    directory = an_evaluation(tmp_path / "a", 6)
    index = indexed(directory.results)
    replace_rollouts(directory, [a_rollout(9), a_rollout(8)])
    while index.advance():
        pass
    assert index.count == 2
    assert index.read(0)["answer"] == "153"


def test_a_line_that_is_not_json_is_shown_as_a_failed_rollout(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"reward": 1.0}\nnot json\n[1]\n{"reward": NaN}\n')
    index = indexed(path)
    assert [facts.failed for facts in index.facts(range(4))] == [False, True, True, True]
    assert "cannot be read" in index.facts([1])[0].preview


def test_the_index_of_a_large_file_is_kept_and_goes_on_where_the_file_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_index, "_KEPT_FROM_BYTES", 1)
    path, cache = an_evaluation(tmp_path / "a", 10).results, tmp_path / "cache"
    indexed(path, cache).close()
    again = RolloutIndex(path, cache=cache)
    assert again.count == 10
    assert again.advance() == 0
    with path.open("a") as file:
        file.write(json.dumps(a_rollout(10)) + "\n")
    assert again.advance() == 1
    again.close()
    path.write_text(path.read_text().replace("the judge is broken", "the judge is BROKEN"))
    os.utime(path)
    with path.open("a") as file:
        file.write(json.dumps(a_rollout(11)) + "\n")
    changed = indexed(path, cache)
    assert changed.count == 12
    assert changed.facts([1])[0].preview == "the judge is BROKEN"


def test_a_kept_index_that_is_damaged_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_index, "_KEPT_FROM_BYTES", 1)
    path, cache = an_evaluation(tmp_path / "a", 3).results, tmp_path / "cache"
    indexed(path, cache).close()
    (kept,) = cache.glob("*.sqlite")
    kept.write_bytes(b"not a database, but long enough to be taken for one at first sight" * 100)
    assert indexed(path, cache).count == 3


def test_metrics_and_tags_are_summed_over_the_rollouts_without_an_error(tmp_path: Path) -> None:
    index = indexed(an_evaluation(tmp_path / "a", 6).results)
    exact, calls = index.metrics()
    assert (exact.name, exact.mean, exact.least, exact.most, exact.count) == ("exact", 0.4, 0.0, 1.0, 5)
    assert calls.mean == 1.0
    assert index.tags()["task=sums"] == (3, pytest.approx((0.75 + 0.0) / 2))
