"""What is read of rollouts, evaluations, logs and runs, without a widget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prime_cli.viewer.reading.curve import draw_curve
from prime_cli.viewer.reading.evaluations import Evaluation, by_environment, histogram, read_evaluation, settings_of
from prime_cli.viewer.reading.log_tail import LogTail
from prime_cli.viewer.reading.messages import messages_of, tool_calls_of
from prime_cli.viewer.reading.pairs import pair_up
from prime_cli.viewer.reading.run_watch import RunWatch
from prime_cli.viewer.reading.sections import sections_of, whole_text
from prime_cli.viewer.reading.workspace import Scope, read_contents
from tests.prime_cli.viewer.material import CALL, a_rollout, a_run, an_evaluation, write_step


def test_a_rollout_is_its_messages_with_each_call_beside_its_answer_and_then_how_it_scored() -> None:
    sections = sections_of(a_rollout(3))
    assert [(section.kind, section.title) for section in sections[:5]] == [
        ("system", "system"),
        ("user", "user"),
        ("reasoning", "reasoning · 6 words"),
        ("tool", 'tool · multiply {"a": 17, "b": 3}'),
        ("assistant", "assistant"),
    ]
    assert sections[2].folded
    assert sections[3].body == "→ 51"
    assert sections[5].title == "score · reward 0.750"
    assert "cut off" in sections[5].body
    assert "── user\nWhat is 17 times 3?" in whole_text(sections)


def test_an_error_is_a_section_and_no_reward_is_claimed() -> None:
    row = a_rollout(1, error={"error": "Boom", "message": "broken", "error_chain_str": "because of this"}, reward=0.0)
    error, score = [section for section in sections_of(row) if section.kind in ("error", "score")]
    assert error.body == "broken\nbecause of this"
    assert score.title == "score · none: it failed"


def test_messages_and_calls_are_read_in_every_shape_that_they_come_in() -> None:
    assert messages_of({"prompt": "Once upon"}, "prompt", "user") == [{"role": "user", "content": "Once upon"}]
    openai = {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"q": 1}'}}
    calls = tool_calls_of({"tool_calls": [CALL, openai, "not json", {"name": "g"}, 3]})
    assert [call.name for call in calls] == ["multiply", "f", "not json", "g", "3"]
    parts = [{"type": "text", "text": "hello"}, {"type": "image_url"}]
    sections = sections_of({"completion": [{"role": "assistant", "content": parts}]})
    assert sections[0].body == "hello\n[image_url]"


def test_the_tokens_of_each_turn_are_shown_where_the_trajectory_was_kept() -> None:
    tokens = {"prompt_ids": [1, 2], "completion_ids": [3, 4, 5], "completion_logprobs": [-0.5, -1.0, -1.5]}
    (section,) = [
        s for s in sections_of(a_rollout(2, trajectory=[{"tokens": tokens}])) if s.title.startswith("tokens of")
    ]
    assert section.body.startswith("turn 1: 2 in, 3 out, mean log-probability -1.000, least -1.500")


def test_a_text_of_megabytes_is_cut_for_the_screen_and_whole_for_copying() -> None:
    (section, *_) = sections_of(a_rollout(0, prompt="x" * 1_000_000))
    assert len(section.shown_body) < 21_000
    assert "980,000 more characters" in section.shown_body
    assert len(section.body) == 1_000_000


def test_an_evaluation_says_its_mean_with_an_interval_and_one_that_is_running_how_far_it_is(tmp_path: Path) -> None:
    evaluation = read_evaluation(an_evaluation(tmp_path / "a", 24, total_rollouts=48))
    assert evaluation.mean_text == "0.512 ± 0.098"
    assert evaluation.count_text == "n=24/48… 1 failed"
    known = Evaluation(tmp_path, {"avg_reward": 0.9, "estimates": {"reward": {"interval": [0.8, 0.96]}}})
    assert known.interval == (0.8, 0.96)
    assert ("env.max_turns", "3") in settings_of(evaluation.metadata)


def test_evaluations_are_found_by_environment_and_model_and_broken_ones_are_not_lost(tmp_path: Path) -> None:
    an_evaluation(tmp_path / "a", 2)
    an_evaluation(tmp_path / "b", 2, model="other")
    broken = an_evaluation(tmp_path / "c", 2)
    broken.metadata.write_text("{")
    run = a_run(tmp_path / "runs", steps=2)
    (tmp_path / "runs" / "half").mkdir()
    contents = read_contents(Scope(path=tmp_path, run_folders=[tmp_path / "runs", tmp_path / "none"]))
    tree = by_environment(contents.evaluations)
    assert set(tree["multiply"]) == {"tiny", "other"}
    assert "cannot be read" in str(tree["?"]["?"][0].problem)
    assert [found.path for found in contents.runs] == [run.path]


def test_a_histogram_has_a_bar_for_each_value_or_equal_spans() -> None:
    assert histogram([0.0, 1.0, 1.0]) == [("0", 1), ("1", 2)]
    spans = histogram([number / 100 for number in range(100)])
    assert [label for label, _ in spans][:2] == ["0.00-0.10", "0.10-0.20"]
    assert sum(count for _, count in spans) == 100
    assert histogram([]) == []


def test_pairs_have_the_flipped_examples_first_and_the_mean_difference() -> None:
    a = [(0, "x", 1.0), (1, "y", 0.0), (2, "z", 0.5), (3, "only a", 1.0), (4, "failed", None)]
    b = [(0, "y", 1.0), (1, "x", 1.0), (2, "z", 0.25), (3, "x", 0.0), (4, "failed", 1.0)]
    pairing = pair_up(a, b)
    assert [(pair.example, pair.flipped) for pair in pairing.pairs[:2]] == [("y", "now right"), ("z", "now wrong")]
    assert (pairing.now_right, pairing.now_wrong) == (1, 1)
    assert pairing.difference is not None
    assert pairing.difference.mean == pytest.approx((-0.5 + 1.0 - 0.25) / 3)  # the one that failed is left out
    assert pairing.pairs[-1].difference is None
    assert pair_up([], b).difference is None


def test_a_log_is_read_from_its_end_and_then_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    tail = LogTail(path)
    assert tail.read() == []
    path.write_text("old\n" * 400_000 + "\x1b[31mred\x1b[0m\r 50 %\r100 %\nhalf")
    lines = tail.read()
    assert lines[-1] == "100 %"
    assert tail.skipped_bytes > 0
    with path.open("a") as file:
        file.write(" a line\n")
    assert tail.read() == ["half a line"]
    path.write_text("begun anew\n")
    assert tail.read() == ["begun anew"]


def test_a_curve_has_its_axes_and_reaches_from_the_first_to_the_last_step() -> None:
    chart = draw_curve([(step, step / 10) for step in range(1, 11)], width=40, height=10)
    assert len(chart) == 10
    assert chart[0].startswith("        1┤")
    assert chart[7].startswith("      0.1┤")
    assert chart[-1].split() == ["1", "10"]
    assert draw_curve([], width=40, height=10) == []
    assert draw_curve([(1, 2.0)], width=40, height=10) != []
    assert draw_curve([(1, 2.0)], width=10, height=3) == []


def test_a_run_is_looked_at_again_and_again_and_sounds_its_alarms(tmp_path: Path) -> None:
    run = a_run(tmp_path, steps=3)
    watch = RunWatch(run)
    view = watch.look()
    assert (view.facts.state, view.facts.steps, view.alarms) == ("finished", 3, [])
    assert view.names[:2] == ["reward/mean", "loss/mean"]
    newest = view.files[0]
    assert (newest.name, newest.count, newest.reward) == ("step 3", "8", "0.350")
    assert [path.name for path in view.logs] == ["orchestrator.log", "trainer.log"]
    write_step(run, 4, mismatch=0.5)
    later = watch.look()
    assert len(later.steps) == 4
    assert [alarm.figure for alarm in later.alarms] == ["mismatch_kl/mean"]


def test_the_rollouts_of_evaluations_beside_a_training_are_listed(tmp_path: Path) -> None:
    run = a_run(tmp_path, steps=1)
    path = run.eval_rollouts("eval/held-out", 1)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(a_rollout(0)) + "\n")
    run.append_metrics(1, "eval", {"eval/held-out/reward/mean": 0.5, "eval/held-out/rollouts": 1})
    (_, evaluation) = RunWatch(run).look().files
    assert (evaluation.name, evaluation.reward) == ("eval/held-out at step 1", "0.500")
