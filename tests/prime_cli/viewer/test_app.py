"""The viewer, driven without a terminal."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import DataTable, Static

from prime_cli.evals.store import EvalDirectory
from prime_cli.viewer.app import EvalViewer, rollout_text
from prime_cli.viewer.index import RolloutFile, messages_of


def a_rollout(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "example_id": number,
        "prompt": [{"role": "user", "content": f"question {number}"}],
        "completion": [{"role": "assistant", "content": f"answer {number} [not markup]"}],
        "reward": number / 10,
        "metrics": {"exact": 0.0},
        "error": None,
        **changes,
    }


def an_evaluation(folder: Path, count: int, env: str = "reverse-text") -> EvalDirectory:
    folder.mkdir(parents=True)
    directory = EvalDirectory(folder)
    rows = [a_rollout(number) for number in range(count)]
    rows[1]["error"] = {"error": "Boom", "message": "the judge is broken"}
    directory.results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    directory.write_metadata(
        {"env_id": env, "model": "tiny", "avg_reward": 0.4, "reward_standard_error": 0.1, "num_rollouts": count,
         "num_errors": 1, "avg_metrics": {"exact": 0.0}, "sampling_args": {"temperature": 1.0}}
    )  # fmt: skip
    return directory


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_a_run_opens_with_its_rollouts_and_keys_move_between_them(tmp_path: Path, size: tuple[int, int]) -> None:
    app = EvalViewer([an_evaluation(tmp_path / "a", 5), an_evaluation(tmp_path / "b", 3, env="other")])
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        table = app.query_one("#rollouts", DataTable)
        assert table.row_count == 5
        assert "question 0" in shown(app)
        await pilot.press("n")
        await pilot.pause()
        assert "the judge is broken" in shown(app)
        await pilot.press("n", "p", "p")
        await pilot.pause()
        assert "answer 0 [not markup]" in shown(app)
        assert "reward 0.400 ± 0.100" in str(app.query_one("#summary", Static).content)


async def test_another_run_is_chosen_in_the_tree_and_b_leads_back(tmp_path: Path) -> None:
    app = EvalViewer([an_evaluation(tmp_path / "a", 5), an_evaluation(tmp_path / "b", 3, env="other")])
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.press("end", "enter")
        await pilot.pause()
        assert app.query_one("#rollouts", DataTable).row_count == 3
        assert app.focused is app.query_one("#rollouts")
        await pilot.press("b")
        await pilot.pause()
        assert app.focused is app.query_one("#runs")
        theme = app.theme
        await pilot.press("d")
        assert app.theme != theme
        await pilot.press("q")
    assert app.return_code == 0


async def test_a_long_run_is_listed_as_far_as_one_looks(tmp_path: Path) -> None:
    app = EvalViewer([an_evaluation(tmp_path / "a", 450)])
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        table = app.query_one("#rollouts", DataTable)
        assert table.row_count == 200
        table.move_cursor(row=199)
        await pilot.pause()
        assert table.row_count == 400


def test_a_hundred_thousand_rollouts_open_without_being_read(tmp_path: Path) -> None:
    line = json.dumps(a_rollout(7)) + "\n"
    path = tmp_path / "results.jsonl"
    path.write_text(line * 100_000)
    started = time.monotonic()
    rollouts = RolloutFile(path)
    assert len(rollouts) == 100_000
    assert rollouts[99_999]["example_id"] == 7
    assert time.monotonic() - started < 5


def test_a_line_that_is_still_being_written_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(a_rollout(1)) + '\n{"half')
    assert len(RolloutFile(path)) == 1
    assert len(RolloutFile(tmp_path / "none.jsonl")) == 0


def test_tool_calls_and_reasoning_are_shown() -> None:
    message = {"role": "assistant", "content": "done", "reasoning_content": "thinking", "tool_calls": ['{"name": "f"}']}
    text = rollout_text(a_rollout(1, completion=[message])).plain
    for expected in ("thinking", 'call {"name": "f"}', "done", "reward 0.100", "exact 0.0"):
        assert expected in text


def test_plain_text_and_odd_values_are_shown_as_they_are() -> None:
    row = a_rollout(1, prompt="Once upon", completion=" a time", reward=None)
    assert [message["content"] for message in messages_of(row, "prompt", "user")] == ["Once upon"]
    text = rollout_text(row).plain
    assert "assistant\n a time" in text
    assert "reward None" in text


async def test_an_evaluation_with_broken_metadata_is_still_opened(tmp_path: Path) -> None:
    directory = an_evaluation(tmp_path / "a", 3)
    directory.metadata.write_text("{")
    app = EvalViewer([directory])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert app.query_one("#rollouts", DataTable).row_count == 3


def shown(app: EvalViewer) -> str:
    return str(app.query_one("#messages", Static).content)
