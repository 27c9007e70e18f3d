"""Runs what `prime eval run` was asked for, shows how far it is, and prints what came out."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from prime_cli.commands.eval_display import print_summary
from prime_cli.commands.eval_progress import watched
from prime_cli.core import output as out
from prime_cli.core.errors import PrimeError
from prime_cli.evals.eval_file import EvalPlan
from prime_cli.evals.launch import Outcome, launch_evaluations
from prime_cli.evals.request import EvalRequest
from prime_cli.evals.summary import EvalSummary

STOPPED_BY_COST = 3
"""The exit code of evaluations that all went well as far as the money went."""


def run_and_print(plan: EvalPlan, *, is_file: bool) -> None:
    """Run the evaluations of a plan and print what came out; of a file as one table, or one list.

    Raises:
        PrimeError: the only evaluation could not be run.
        typer.Exit: with 1 where one of several could not be run, or had no rollout without an error; else with 3
            where one was stopped at the most that it may cost.
    """
    for warning in plan.warnings:
        out.warn(escape(warning))

    kept: list[Path] = []
    try:
        with watched([request.label for request in plan.requests], is_file=is_file) as watch:
            outcomes = launch_evaluations(
                plan.requests, max_concurrent=plan.max_concurrent, watch=watch, stopped=kept.extend
            )
    except KeyboardInterrupt:
        if kept:
            out.note(f"stopped; what is finished is kept. To go on: {escape(_again(kept, is_file))}")
        raise
    if is_file:
        _print_all(plan.requests, outcomes)
    elif isinstance(outcomes[0], PrimeError):
        raise outcomes[0]
    else:
        print_summary(outcomes[0])
    early = [outcome for outcome in outcomes if isinstance(outcome, EvalSummary) and outcome.stopped]
    for summary in early:
        command = _again([summary.path], is_file)
        out.warn(f"stopped: {escape(summary.stopped or '')}. To go on: {escape(command)} with a higher --max-cost")
    if any(isinstance(outcome, PrimeError) or (outcome.reward is None and not outcome.stopped) for outcome in outcomes):
        raise typer.Exit(1)
    if early:
        raise typer.Exit(STOPPED_BY_COST)


def _again(folders: list[Path], is_file: bool) -> str:
    """Return the command that goes on with what was stopped."""
    words = [word for word in sys.argv[1:] if not word.startswith("--resume=")]
    for index in (index for index, word in enumerate(words) if word in ("--resume", "-R")):
        has_value = index + 1 < len(words) and not words[index + 1].startswith("-")
        words = words[:index] + words[index + 1 + has_value :]
        break
    folder = [] if is_file else [str(folders[0])]
    return shlex.join(["prime", *words, "--resume", *folder])


def _print_all(requests: list[EvalRequest], outcomes: list[Outcome]) -> None:
    if out.mode().json:
        out.print_json([_data(request, outcome) for request, outcome in zip(requests, outcomes, strict=True)])
        return
    columns = ["evaluation", "reward", "95 % interval", "rollouts", "errors"]
    rows = [_cells(request, outcome) for request, outcome in zip(requests, outcomes, strict=True)]
    if out.mode().plain:
        paths = [str(outcome.path) if isinstance(outcome, EvalSummary) else "" for outcome in outcomes]
        out.print_table([*columns, "path"], [(*row, path) for row, path in zip(rows, paths, strict=True)])
        return
    out.print_table(columns, rows)
    failed = sum(isinstance(outcome, PrimeError) for outcome in outcomes)
    if failed:
        out.warn(f"{failed} of {len(outcomes)} evaluations could not be run; the reasons stand above")
    out.note("where they are: prime eval list; to look at them: prime eval view")


def _cells(request: EvalRequest, outcome: Outcome) -> tuple[object, ...]:
    if isinstance(outcome, PrimeError):
        return request.label, "could not be run", "-", 0, ""
    reward = outcome.reward
    mean, interval = (f"{reward.mean:.3f}", reward.interval or "-") if reward else ("none: every rollout failed", "-")
    return request.label, mean, interval, outcome.num_rollouts, outcome.num_errors or ""


def _data(request: EvalRequest, outcome: Outcome) -> dict[str, Any]:
    about = {"name": request.label, "environment": request.environment, "model": request.model.model}
    if isinstance(outcome, PrimeError):
        return {**about, "error": outcome.message}
    return {**about, "error": None, **outcome.as_data()}
