"""A whole run: what is found, what it costs, and that it goes on where it was stopped."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.evals.cost import TokenPrice
from prime_cli.gepa.run_directory import GepaDirectory
from tests.documented_files import assert_documented
from tests.prime_cli.gepa.conftest import Runner, Workers
from tests.prime_cli.gepa.scripted import answer, reflect
from tests.scripted_model import Refusal, scripted_model

OUTAGE = {"error": "ModelError", "message": "connection refused"}
MISHAP = {"error": "ScoringError", "message": "the reward function raised"}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rules_are_found_one_after_another_within_the_budget_and_the_gain_is_tested(runner: Runner) -> None:
    summary = runner.run("whole")
    assert all(rule in summary.prompt for rule in ("CAPITALS", "FULL STOP", "GREETING"))
    assert summary.verdict.startswith("a gain: ")
    assert summary.comparison is not None
    assert summary.comparison.difference.n == 10
    found = summary.found
    assert found.parents[0] == []
    assert all(parents[0] < index for index, parents in enumerate(found.parents) if index)
    assert found.calls <= 110
    assert (runner.seen[-1].calls, runner.seen[-1].comparison_calls) == (found.calls, 20)
    assert runner.seen[-1].rollouts.input_tokens == 10 * (found.calls + 20)
    assert [progress.calls for progress in runner.seen] == sorted(progress.calls for progress in runner.seen)


def test_every_call_is_in_the_journal_once_and_every_iteration_among_the_proposals(runner: Runner) -> None:
    summary = runner.run("whole")
    folder = runner.folder / "whole"
    calls = [(tuple(line["key"]), line["number"]) for line in lines(folder / "journal.jsonl")]
    assert len(calls) == len(set(calls)) == summary.found.calls + 20 + runner.seen[-1].reflections.calls
    proposals = lines(folder / "proposals.jsonl")
    assert [p["candidate_idx"] for p in proposals if p["accepted"]] == list(range(1, len(summary.found.prompts)))
    assert any(not p["accepted"] and p["scores"] for p in proposals)
    assert {"held_out.jsonl", "pareto_frontier.jsonl", "metadata.json"} <= assert_documented(
        folder, "A prompt optimisation"
    )


@pytest.mark.parametrize("moments", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_a_run_cut_off_at_any_moment_ends_as_one_that_was_not_and_pays_for_nothing_twice(
    runner: Runner, moments: int
) -> None:
    whole = runner.run("whole")
    journal = (runner.folder / "whole" / "journal.jsonl").read_bytes()
    total = whole.found.calls + 20
    for cut in random.Random(0).sample(range(1, len(journal)), moments):
        name = f"cut{cut}"
        (runner.folder / name).mkdir()
        (runner.folder / name / "journal.jsonl").write_bytes(journal[:cut])
        workers = Workers()
        again = runner.run(name, workers)
        assert again.found == whole.found
        assert again.comparison == whole.comparison
        kept = sum(line.startswith(b'{"key": ["rollout"') for line in journal[:cut].splitlines(keepends=True)[:-1])
        whole_last = journal[:cut].endswith(b"\n")
        assert len(workers.calls) <= total - kept
        assert len(workers.calls) >= total - kept - whole_last
        assert again.progress.replayed + len(workers.calls) == total


def test_a_run_that_was_finished_costs_nothing_again_and_a_larger_budget_goes_on_from_it(runner: Runner) -> None:
    first = runner.run("one")
    workers = Workers()
    assert runner.run("one", workers).found == first.found
    assert workers.calls == []
    longer = runner.run("one", workers, max_calls=150)
    assert longer.found.prompts[: len(first.found.prompts)] == first.found.prompts
    assert longer.found == runner.run("other", max_calls=150).found
    assert 110 < longer.found.calls <= 150


def test_other_examples_than_the_run_had_are_refused(runner: Runner) -> None:
    runner.run("one")
    with pytest.raises(PrimeError, match="examples are not those"):
        runner.run("one", seed=1)


def test_a_model_that_is_down_stops_the_run_and_the_next_one_goes_on(runner: Runner) -> None:
    with pytest.raises(PrimeError, match="rollouts got no answer, retries and all: connection refused"):
        runner.run("one", Workers(fail=lambda number: OUTAGE if number > 40 else None))
    kept = lines(runner.folder / "one" / "journal.jsonl")
    assert not any(line.get("error") for line in kept)
    assert GepaDirectory(runner.folder / "one").system_prompt.exists()
    assert runner.run("one").found == runner.run("whole").found


def test_a_key_that_is_refused_is_not_tried_again(runner: Runner) -> None:
    refused = {"error": "EnvironmentFailed", "message": "the environment failed: Error code: 401 - wrong key"}
    workers = Workers(fail=lambda number: refused)
    with pytest.raises(PrimeError, match=r"6 of 6 rollouts got no answer, retries and all: .* wrong key"):
        runner.run("one", workers, max_retries=3)
    assert len(workers.calls) == 6


def test_a_rollout_without_an_answer_is_tried_again(runner: Runner) -> None:
    summary = runner.run("one", Workers(fail=lambda number: OUTAGE if number == 5 else None), max_retries=1)
    assert (summary.progress.errors, summary.found) == (0, runner.run("whole", max_retries=1).found)


def test_a_rollout_that_failed_counts_as_zero_and_is_counted_and_stays_so_when_the_run_goes_on(runner: Runner) -> None:
    def fail(number: int) -> dict[str, str] | None:
        return {3: MISHAP, 6: OUTAGE}.get(number)

    first = runner.run("one", Workers(fail=fail))
    assert first.progress.errors == 2
    again = runner.run("one")
    assert (again.found, again.progress.errors) == (first.found, 2)


def test_an_environment_that_fails_every_rollout_stops_the_run_at_once(runner: Runner) -> None:
    workers = Workers(fail=lambda number: MISHAP)
    with pytest.raises(PrimeError, match="every rollout of the initial prompt failed: the reward function raised"):
        runner.run("one", workers)
    assert len(workers.calls) == 6


def test_a_reflection_model_that_goes_down_stops_the_run_and_burns_no_budget(tmp_path: Path, runner: Runner) -> None:
    asked: list[str] = []

    def down_after_two(messages: list[dict[str, Any]]) -> str | Refusal:
        asked.append(str(messages[-1]["content"]))
        return Refusal(500, "out of memory") if len(asked) > 3 else answer(messages)

    with scripted_model(down_after_two) as url:
        workers = Workers()
        with pytest.raises(PrimeError, match="refuses with status 500: out of memory"):
            Runner(tmp_path, url).run("one", workers)
    assert len(workers.calls) < 40
    assert runner.run("one").found == runner.run("whole").found


@pytest.mark.parametrize(
    ("status", "says"), [(401, "check its API key"), (404, "check the name of the model and the URL")]
)
def test_a_reflection_model_that_refuses_is_found_before_anything_is_paid_for(
    tmp_path: Path, status: int, says: str
) -> None:
    workers = Workers()
    with scripted_model(lambda _: Refusal(status, "no")) as url, pytest.raises(PrimeError) as refused:
        Runner(tmp_path, url).run("one", workers)
    assert f"refuses with status {status}: no" in refused.value.message
    assert refused.value.hint == says
    assert workers.calls == []


def test_the_cost_of_both_models_is_metered_and_kept_within_what_it_may_be(tmp_path: Path, url: str) -> None:
    runner = Runner(tmp_path, url, price=TokenPrice(input=1000, output=5000))
    whole = runner.run("whole")
    usage = whole.progress.rollouts
    # a rollout sends 10 tokens and samples 2: 10 * 0.001 + 2 * 0.005
    assert usage.cost == pytest.approx(0.02 * usage.calls)
    assert whole.progress.reflections.cost is not None
    assert whole.progress.cost == pytest.approx(usage.cost + whole.progress.reflections.cost)
    half = whole.progress.cost / 2
    stopped = runner.run("half", max_cost=half)
    assert stopped.progress.cost is not None
    assert 0.3 * half < stopped.progress.cost <= half
    assert stopped.found.prompts == whole.found.prompts[: len(stopped.found.prompts)]
    workers = Workers()
    assert runner.run("half", workers, max_cost=10 * half).found == whole.found
    assert len(workers.calls) < whole.found.calls


def test_a_baseline_that_costs_all_there_is_ends_the_run_at_once(tmp_path: Path, url: str) -> None:
    workers = Workers()
    with pytest.raises(PrimeError, match=r"which is all of the 0.05 that it may"):
        Runner(tmp_path, url, price=TokenPrice(input=1000, output=5000)).run("one", workers, max_cost=0.05)
    assert len(workers.calls) <= 3 + 3  # those that ran beside the one that was too many


def test_thoughts_before_the_answer_are_no_part_of_the_prompt(tmp_path: Path) -> None:
    def thinking(messages: list[dict[str, Any]]) -> str:
        text = str(messages[-1]["content"])
        return f"<think>\nNot ```\nthis\n```</think>{reflect(text) if 'new instruction' in text else 'OK'}"

    with scripted_model(thinking) as url:
        summary = Runner(tmp_path, url).run("one")
    assert "GREETING" in summary.prompt
    assert not any("this" in prompt or "think" in prompt for prompt in summary.found.prompts)


def test_a_search_ends_when_every_validation_example_has_the_highest_reward(runner: Runner) -> None:
    best = max(runner.run("whole").found.scores)
    summary = runner.run("perfect", perfect_score=best)
    assert summary.found.scores[summary.found.best] == best
    assert summary.found.calls < 80


def test_no_gain_is_claimed_for_prompts_that_are_no_better(tmp_path: Path) -> None:
    with scripted_model(lambda _: "```\nRepeat, please.\n```") as url:
        summary = Runner(tmp_path, url).run("one")
    assert (summary.found.best, summary.comparison) == (0, None)
    assert summary.verdict.startswith("no gain: ")
    assert summary.prompt == "Repeat."
