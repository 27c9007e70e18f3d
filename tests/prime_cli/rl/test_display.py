"""What a person sees of a run, and the curve."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from prime_cli.rl.display import LiveDisplay, PlainDisplay, figure_rows, sparkline
from prime_cli.rl.run_directory import RunDirectory, create_run_directory

ORCHESTRATOR = {
    "reward/mean": 0.5, "off_policy/mean": 0.5, "off_policy/max": 1, "errors": 0, "perf/rollouts_per_second": 300,
}  # fmt: skip
TRAINER = {
    "mismatch_kl/mean": 1e-4, "entropy/mean": 0.7, "perf/throughput": 5000.0, "time/wait_for_batch": 0.2,
    "optim/grad_norm": 0.1,
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = create_run_directory(tmp_path, "run", {})
    for step, reward in enumerate([0.2, 0.4, 0.9], 1):
        run.append_metrics(step, "orchestrator", {**ORCHESTRATOR, "reward/mean": reward})
        run.append_metrics(step, "trainer", TRAINER)
    run.append_metrics(4, "orchestrator", ORCHESTRATOR)
    run.set_status("trainer", "waiting for batch 4")
    return run


def test_plain_output_is_one_line_per_finished_step(run: RunDirectory) -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=200), max_steps=10)
    display.observe(run)
    display.observe(run)
    lines = out.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["1/10", "2/10", "3/10"]
    assert "reward 0.900" in lines[2]
    assert "mismatch 1.0e-04" in lines[2]


def test_before_the_first_step_plain_output_says_what_is_waited_for(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run", {})
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=200), max_steps=10)
    for doing in ("loading the model", "loading the model", "waiting for batch 1"):
        run.set_status("trainer", doing)
        display.observe(run)
    assert [line.split("] ")[1] for line in out.getvalue().splitlines()] == [
        "trainer: loading the model",
        "trainer: waiting for batch 1",
    ]


def test_the_live_panel_shows_the_curve_the_figures_and_what_is_waited_for(run: RunDirectory) -> None:
    out = io.StringIO()
    display = LiveDisplay(Console(file=out, width=100, force_terminal=True), max_steps=10)
    display.observe(run)
    display.close()
    text = out.getvalue()
    for expected in ("step 4/10", "staleness", "mismatch KL", "tokens/s", "waiting for batch 4", "▁"):
        assert expected in text


def test_what_sounds_an_alarm_turns_red_and_says_why(run: RunDirectory) -> None:
    run.append_metrics(5, "orchestrator", {**ORCHESTRATOR, "off_policy/mean": 0})
    run.append_metrics(5, "trainer", {**TRAINER, "mismatch_kl/mean": 0.5})
    out = io.StringIO()
    display = LiveDisplay(Console(file=out, width=100, force_terminal=True, color_system="standard"), max_steps=10)
    display.observe(run)
    display.close()
    assert "\x1b[1;31mmismatch KL 5.0e-01" in out.getvalue()
    assert "\x1b[1;31m! mismatch KL 5.0e-01 is above 0.01; with fresh rollouts" in out.getvalue()


def test_plain_output_tells_an_alarm_once_when_it_begins(run: RunDirectory) -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=400), max_steps=10)
    for step in (4, 5, 6):
        run.append_metrics(step, "orchestrator", {**ORCHESTRATOR, "errors": 6, "rollouts": 8, "error/Timeout": 6})
        run.append_metrics(step, "trainer", TRAINER)
        display.observe(run)
    warnings = [line for line in out.getvalue().splitlines() if line.startswith("warning: ")]
    assert warnings == ["warning: 6 of 8 rollouts failed (Timeout 6); logs/ has what they wrote"]


def test_the_panel_has_the_ten_figures_that_the_page_of_metrics_begins_with_and_evaluations() -> None:
    page = Path(__file__).parents[3] / "docs" / "metrics.md"
    first_ten = re.findall(r"^\| \d+ \| `([^`]+)`", page.read_text(), re.MULTILINE)
    assert len(first_ten) == 10
    for name in first_ten:
        one = dict.fromkeys([name], 3)
        shown = [value for row in figure_rows(one) for _, value, _ in row if value.strip("- s()max")]
        assert len(shown) == 1, f"{name} is not shown"
    rows = figure_rows({"eval/gsm8k/reward/mean": 0.25})
    assert rows[-1] == [("eval/gsm8k/reward/mean", "0.250", "cyan")]


def test_a_sparkline_spans_its_values_and_keeps_its_width() -> None:
    assert sparkline([0.0, 0.5, 1.0], width=10) == "▁▅█"
    assert len(sparkline([float(i) for i in range(1000)], width=60)) == 60
    assert sparkline([], width=5) == ""
