"""`prime rl list`, `show`, `metrics`, `samples` and `export`: runs on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from prime_cli.rl.runs import RunFacts

Run = Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run, or its name.")]
Folder = Annotated[Path, typer.Option("--output-dir", "-o", metavar="DIR", help="Where the runs lie.")]
_RUNS = Path("outputs/rl")
# What the table of metrics shows where nothing is chosen: does it learn, from how fresh data, how exactly, how fast.
_SHOWN = (
    "reward/mean", "errors", "groups/zero_advantage", "completion_tokens/mean", "off_policy/mean", "loss/mean",
    "entropy/mean", "mismatch_kl/mean", "optim/grad_norm", "time/step",
)  # fmt: skip
_WIDTH = 100


def register(app: typer.Typer) -> None:
    """Add the commands to `prime rl`."""
    app.command("list")(list_runs)
    app.command("ls", hidden=True)(list_runs)
    app.command("show")(show)
    app.command("metrics")(metrics)
    app.command("samples")(samples)
    app.command("export")(export)
    app.command("view")(view)


def list_runs(folder: Folder = _RUNS) -> None:
    """List the runs of this workspace, newest first.

    JSON output (--output json): {runs: [{name, path, state, model, environment, steps, max_steps, first_reward,
    last_reward, exported_steps, checkpoints}]}
    """
    from prime_cli.core import output as out
    from prime_cli.rl.runs import find_runs

    runs = find_runs(folder)
    if out.mode().json:
        out.print_json({"runs": [_facts(run) for run in runs]})
        return
    if not runs:
        out.note(f"There is no run under {folder}. `prime rl run CONFIG` makes one.")
        return
    columns = ("run", "state", "model", "environment", "steps", "reward, first", "last")
    rows = [
        (run.path.name, run.state, run.model, run.environment, f"{run.steps}/{run.max_steps}",
         _figure(run.first_reward), _figure(run.last_reward))
        for run in runs
    ]  # fmt: skip
    out.print_table(columns, rows)


def show(run: Run, folder: Folder = _RUNS) -> None:
    """Show how a run went, or how it stands: state, steps, rewards, weights, what its processes said last, and alarms.

    JSON output (--output json): the object of `list`, with config, doing: {process: what it does},
    evaluations: {name: [[step, reward]]} and alarms: [{figure, words}]
    """
    from dataclasses import asdict

    from prime_cli.core import output as out
    from prime_cli.rl.evaluation.output import eval_rewards
    from prime_cli.rl.resume import how_to_go_on
    from prime_cli.rl.runs import alarms_in, facts_of, open_run, read_run_config

    found = open_run(run, folder)
    facts = _facts(facts_of(found))
    alarms = alarms_in(found)
    evaluations = eval_rewards(found)
    doing = {}
    for name in ("inference", "orchestrator", "trainer"):
        status = found.read_status(name)
        if status is not None:
            doing[name] = status[0]
    if out.mode().json:
        sounding = [asdict(alarm) for alarm in alarms]
        out.print_json(
            {**facts, "doing": doing, "evaluations": evaluations, "alarms": sounding, "config": read_run_config(found)}
        )
        return
    rows = [(key.replace("_", " "), value) for key, value in facts.items() if value not in (None, [])]
    rows += [(name, _rises(rewards)) for name, rewards in evaluations.items()]
    rows += [(name, words) for name, words in doing.items() if facts["state"] != "finished"]
    if facts["state"] == "stopped":
        rows.append(("to go on", how_to_go_on(found)))
    out.print_table(("", "value"), rows)
    for alarm in alarms:
        out.warn(alarm.words)


def metrics(
    run: Run,
    only: Annotated[
        list[str] | None, typer.Option("--metric", "-m", help="Figures whose names hold this; repeat it. `all`: all.")
    ] = None,
    min_step: Annotated[int | None, typer.Option("--min-step", min=0)] = None,
    max_step: Annotated[int | None, typer.Option("--max-step", min=1)] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Only the last so many steps.")] = None,
    folder: Folder = _RUNS,
) -> None:
    """Print the figures of each step. docs/metrics.md says what they mean.

    JSON output (--output json): {metrics: [{step, ...}]}
    """
    from prime_cli.core import output as out
    from prime_cli.core.errors import BadInput
    from prime_cli.rl.runs import metrics_by_step, open_run

    records = metrics_by_step(open_run(run, folder), first=min_step, last=max_step, limit=limit)
    names = sorted({name for record in records for name in record} - {"step"})
    if only:
        chosen = [name for name in names if any(part == "all" or part in name for part in only)]
        if not chosen:
            raise BadInput(f"no figure is called like {', '.join(only)}", hint=f"there are {', '.join(names)}")
    else:
        chosen = [name for name in _SHOWN if name in names]
    if out.mode().json:
        kept = {"step", *(chosen if only else names)}
        out.print_json({"metrics": [{key: value for key, value in row.items() if key in kept} for row in records]})
        return
    out.print_table(("step", *chosen), [(row["step"], *(_figure(row.get(name)) for name in chosen)) for row in records])


def samples(
    run: Run,
    step: Annotated[
        int | None, typer.Option("--step", "-s", min=1, help="The step; the last one when left out.")
    ] = None,
    num: Annotated[int, typer.Option("--num", "-n", min=1, max=1000, help="How many rollouts.")] = 10,
    page: Annotated[int, typer.Option("--page", "-p", min=1)] = 1,
    folder: Folder = _RUNS,
) -> None:
    """Show rollouts of a step: what was asked, what came back, and its reward.

    JSON output (--output json): {step, page, rollouts: [as they are stored]}
    """
    from prime_cli.core import output as out
    from prime_cli.core.errors import PrimeError
    from prime_cli.rl.runs import open_run, rollouts_of, stored_steps

    found = open_run(run, folder)
    steps = stored_steps(found)
    if not steps:
        raise PrimeError(f"{found.path} has no finished step yet")
    chosen = step or steps[-1]
    rollouts = rollouts_of(found, chosen, offset=(page - 1) * num, limit=num)
    if out.mode().json:
        out.print_json({"step": chosen, "page": page, "rollouts": rollouts})
        return
    out.print_table(
        ("example", "reward", "policy", "prompt", "completion"),
        [
            (row.get("example_id"), _figure(row.get("reward")) if not row.get("error") else "error",
             row.get("policy_version"), _last_words(row.get("prompt")), _last_words(row.get("completion")))
            for row in rollouts
        ],
        title=f"step {chosen}",
    )  # fmt: skip


def export(
    run: Run,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new folder for the weights.")],
    step: Annotated[int | None, typer.Option("--step", "-s", min=1, help="The last exported when left out.")] = None,
    folder: Folder = _RUNS,
) -> None:
    """Copy the weights of a run into a folder of their own, in Hugging Face layout.

    JSON output (--output json): {path, step}
    """
    from prime_cli.core import output as out
    from prime_cli.rl.runs import export_weights, open_run

    target, chosen = export_weights(open_run(run, folder), to, step=step)
    out.print_result({"path": str(target), "step": chosen}, f"The weights of step {chosen} lie in {target}.")


def view(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The folder of a run, or its name; all of them when left out.")
    ] = None,
    folder: Folder = _RUNS,
) -> None:
    """Open the viewer: curves, staleness, mismatch and alarms of a run while it goes on, its rollouts and logs.

    Without a terminal it prints what `show` prints, or the list.
    """
    from prime_cli.core import output as out
    from prime_cli.rl.runs import open_run

    if not out.can_open_viewer():
        show(run, folder) if run else list_runs(folder)
        return
    from prime_cli.viewer.app import view_runs

    view_runs(open_run(run, folder).path if run else None, folder).run()


def _facts(run: RunFacts) -> dict[str, Any]:
    from dataclasses import asdict

    facts = asdict(run) | {"path": str(run.path)}
    del facts["started"]
    return {"name": run.path.name, **facts}


def _rises(rewards: list[tuple[int, float]]) -> str:
    """Return the first and the last reward of an evaluation, and its best one, if it is another."""
    chosen = dict.fromkeys([rewards[0], max(rewards, key=lambda entry: entry[1]), rewards[-1]])
    return ", ".join(f"{reward:.3f} at step {step}" for step, reward in chosen)


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _last_words(value: Any) -> str:
    """Return the last message of a prompt or a completion in one line."""
    if isinstance(value, list):
        last = value[-1] if value else ""
        value = last.get("content") if isinstance(last, dict) else last
    text = " ".join(str(value or "").split())
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"
