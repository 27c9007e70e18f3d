"""Our trainer, asynchronous and synchronous, beside TRL's GRPOTrainer: the same weights, strings, batches and machine.

    python benchmarks/rl_vs_peers.py [--seeds 0 1 2] [--quick] [--json] [--check] [--trl-python PATH]

Two tasks. `reverse` is to reverse a string of letters, and nothing but the trainers' own work takes time. In
`slow tool` a tool checks each answer, which takes 0.05 s in the median, and seconds now and then. Each trainer starts
from the weights that one fine-tuning per seed left; each is measured alone, one after the other; a reward at the end is
that of the weights on held-out strings. Seconds count from the first rollout asked for; the start-up is told apart.

Goals: the moving average of the reward reaches 0.8 in a third of TRL's time; with the slow tool our asynchronous steps
take at most 1 / 1.5 of our synchronous ones, and the reward at the end is as good (to 0.03, in the mean of the seeds).

TRL is installed into a cache folder unless --trl-python names an interpreter that has it. It is tried with one process
of one thread, one of two, and two of one; the fastest is measured. --quick takes one seed and half the steps. --models
keeps the fine-tuned models in a folder, and takes those that it finds there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from contest import ours, theirs
from contest.recipe import REWARD_GOAL, Recipe, Trace, draw_strings

GOAL_AGAINST_TRL = 3.0
GOAL_AGAINST_SYNCHRONOUS = 1.5
REWARD_TOLERANCE = 0.03
REVERSE, SLOW_TOOL = "reverse", "slow tool"
TASKS = (REVERSE, SLOW_TOOL)
OFF_POLICY = {REVERSE: 1, SLOW_TOOL: 4}
TRL_SETTINGS = ((1, 1), (1, 2), (2, 1))  # processes, threads of each
CACHE = Path.home() / ".cache" / "prime-benchmarks" / "trl"

Table = dict[str, dict[str, list[Trace]]]
"""Of each task and contestant, one trace per seed."""


def main() -> None:
    """Run, print the tables; with --check exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--steps", type=int, help="of every training; 40 unless --quick")
    parser.add_argument(
        "--tool-seconds", type=float, default=0.05, help="the slow tool's median; more on a busy machine"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--without-trl", action="store_true")
    parser.add_argument("--trl-python", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    steps = options.steps or (20 if options.quick else 40)
    slow = {REVERSE: 0.0, SLOW_TOOL: options.tool_seconds}
    recipes = {task: Recipe(steps=steps, tool_median_s=slow[task]) for task in options.tasks}
    python = None if options.without_trl else options.trl_python or theirs.interpreter(CACHE)
    table = run_contest(recipes, options.seeds[:1] if options.quick else options.seeds, python, options.models)
    goals = list(compared(table))
    if options.json:
        print(json.dumps({"traces": as_data(table), "goals": goals}, indent=2))
    else:
        print_tables(table)
        for goal in goals:
            print(
                f"{'met   ' if goal['met'] else 'MISSED'} {goal['goal']}: {goal['found']:.2f}, wanted {goal['wanted']}"
            )
    if options.check and not all(goal["met"] for goal in goals):
        sys.exit(1)


def run_contest(recipes: dict[str, Recipe], seeds: list[int], python: Path | None, models: Path | None) -> Table:
    """Let every contestant train each task with each seed; without `python`, TRL's interpreter, only ours."""
    table: Table = {task: {} for task in recipes}
    setting: tuple[int, int] | None = None
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="prime-contest-") as scratch:
            folder = Path(scratch).resolve()
            model = warmed_up_model(folder if models is None else models.resolve() / f"seed-{seed}", seed)
            strings = folder / "strings.json"
            num_train = max(recipe.steps * recipe.prompts for recipe in recipes.values())
            strings.write_text(json.dumps(draw_strings(seed, num_train)))
            if python is not None and setting is None:
                setting = fastest_setting(folder, python, model, strings)
            for task, recipe in recipes.items():
                traces = trained_by_ours(folder, model, strings, recipe, seed, OFF_POLICY[task])
                if python is not None and setting is not None:
                    processes, threads = setting
                    traces.append(
                        theirs.train(
                            folder, python, model, strings, recipe, seed=seed, processes=processes, threads=threads
                        )
                    )
                for trace in traces:
                    table[task].setdefault(trace.trainer, []).append(trace)
                    print(f"seed {seed}, {task}: {row_of([trace])}", file=sys.stderr)
    return table


def warmed_up_model(folder: Path, seed: int) -> Path:
    """Return the model that everybody starts from, made in `folder` unless it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / ours.WARM_WEIGHTS
    if not weights.is_dir():
        ours.warm_up(folder, seed)
    return weights


def trained_by_ours(
    folder: Path, model: Path, strings: Path, recipe: Recipe, seed: int, off_policy: int
) -> list[Trace]:
    """Return what our trainer did, asynchronous and synchronous."""
    return [ours.train(folder, model, strings, recipe, seed=seed, off_policy=steps) for steps in (off_policy, 0)]


def fastest_setting(folder: Path, python: Path, model: Path, strings: Path) -> tuple[int, int]:
    """Return the (processes, threads) with which a few of TRL's steps take the least time."""
    found: dict[tuple[int, int], float] = {}
    recipe = Recipe(steps=8)
    for processes, threads in TRL_SETTINGS:
        trace = theirs.train(folder, python, model, strings, recipe, seed=0, processes=processes, threads=threads)
        found[processes, threads] = statistics.median(
            after - before for before, after in zip(trace.seconds[1:], trace.seconds[2:], strict=False)
        )
        print(f"TRL, {processes} x {threads}: {found[processes, threads]:.2f} s per step", file=sys.stderr)
    return min(found, key=lambda setting: found[setting])


def compared(table: Table) -> Iterator[dict[str, object]]:
    """Yield what is to be shown, with what was found."""
    for task, rows in table.items():
        (asynchronous, behind), (synchronous, level), *others = rows.items()
        for name, traces in others:
            ratio = mean_to_goal(traces) / mean_to_goal(behind)
            yield goal(f"{task}: time to {REWARD_GOAL}, {name} / {asynchronous}", ratio, GOAL_AGAINST_TRL)
        if task == SLOW_TOOL:
            ratio = mean(t.seconds_per_step for t in level) / mean(t.seconds_per_step for t in behind)
            yield goal(f"{task}: seconds per step, {synchronous} / {asynchronous}", ratio, GOAL_AGAINST_SYNCHRONOUS)
            lost = mean(t.held_out for t in behind) - mean(t.held_out for t in level)
            yield goal(f"{task}: held-out reward, {asynchronous} less {synchronous}", lost, -REWARD_TOLERANCE)


def goal(name: str, found: float, wanted: float) -> dict[str, object]:
    """Return a comparison as data."""
    return {"goal": name, "found": found, "wanted": f"at least {wanted}", "met": found >= wanted}


def mean_to_goal(traces: list[Trace]) -> float:
    """Return the mean seconds to the goal; where it was not reached, the whole training stands for it."""
    return mean(trace.seconds_to_goal or trace.seconds[-1] for trace in traces)


def mean(values: Iterator[float]) -> float:
    """Return the mean."""
    return statistics.fmean(values)


def row_of(traces: list[Trace]) -> str:
    """Return one row of a table, means over the seeds."""
    reached = sum(trace.seconds_to_goal is not None for trace in traces)
    to_goal = f"{mean_to_goal(traces):6.1f}" + ("" if reached == len(traces) else f" ({reached} of {len(traces)})")
    figures = [
        mean(getattr(t, name) for t in traces) for name in ("startup_s", "seconds_per_step", "tokens_per_second")
    ]
    cpu = mean(t.cpu_seconds / len(t.seconds) for t in traces)
    rewards = [mean(getattr(trace, name) for trace in traces) for name in ("final_reward", "held_out")]
    return (
        f"{traces[0].trainer:20} {figures[0]:8.1f} {figures[1]:10.2f} {figures[2]:9.0f} {to_goal:>8} {cpu:11.2f} "
        f"{rewards[0]:10.3f} {rewards[1]:9.3f}"
    )


def print_tables(table: Table) -> None:
    """Print one table per task."""
    for task, rows in table.items():
        print(f"{task} (means over the seeds)")
        print(
            f"{'':20} {'start, s':>8} {'s per step':>10} {'tokens/s':>9} {'s to ' + str(REWARD_GOAL):>8} "
            f"{'CPU s/step':>11} {'last steps':>10} {'held out':>9}"
        )
        for traces in rows.values():
            print(row_of(traces))
        print()


def as_data(table: Table) -> dict[str, list[dict[str, object]]]:
    """Return the traces as plain data, with the figures that are computed from them."""
    names = ("seconds_per_step", "tokens_per_second", "final_reward", "seconds_to_goal")
    return {
        task: [
            asdict(trace) | {name: getattr(trace, name) for name in names}
            for traces in rows.values()
            for trace in traces
        ]
        for task, rows in table.items()
    }


if __name__ == "__main__":
    main()
