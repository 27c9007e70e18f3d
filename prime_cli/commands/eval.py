"""`prime eval`: measure a model on an environment, and look at the rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from prime_cli.evals.run import EvalSettings, EvalSummary

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Measure a model on an environment, and look at the rollouts.",
)

_PLAIN_EVERY_S = 5.0


@app.callback()
def group() -> None:
    """Measure a model on an environment, and look at the rollouts."""


@app.command(epilog="A model is an alias of configs/endpoints.toml, an OpenAI-compatible URL, or a folder of weights.")
def run(
    environment: Annotated[str, typer.Argument(help="name, or owner/name[@version] of the hub.")],
    model: Annotated[str, typer.Option("--model", "-m", help="Alias, URL or folder of weights.")],
    num_examples: Annotated[
        int | None, typer.Option("--num-examples", "-n", help="Examples; -1 for all. Default: the environment's, or 5.")
    ] = None,
    rollouts_per_example: Annotated[
        int | None, typer.Option("--rollouts-per-example", "-r", help="Default: the environment's, or 3.", min=1)
    ] = None,
    max_concurrent: Annotated[int, typer.Option("--max-concurrent", "-c", help="Rollouts at once.", min=1)] = 32,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", "-t", help="Tokens per answer.", min=1)] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", "-T", help="Sampling temperature.")] = None,
    sampling_args: Annotated[str, typer.Option("--sampling-args", "-S", help="JSON; wins over -t and -T.")] = "{}",
    env_args: Annotated[str, typer.Option("--env-args", "-a", help="JSON for load_environment.")] = "{}",
    split: Annotated[str, typer.Option(help="eval or train.")] = "eval",
    state_columns: Annotated[str, typer.Option("--state-columns", "-C", help="a,b: state to keep.")] = "",
    output_dir: Annotated[Path | None, typer.Option("--output-dir", "-o", help="Instead of .../outputs.")] = None,
    base_url: Annotated[str | None, typer.Option("--api-base-url", "-b", help="Ask this server for MODEL.")] = None,
    api_key_var: Annotated[str | None, typer.Option("--api-key-var", "-k", help="Variable with the key.")] = None,
    model_name: Annotated[str | None, typer.Option(help="The model to ask for, when -m is a URL.")] = None,
    endpoints_path: Annotated[Path, typer.Option("--endpoints-path", "-e")] = Path("configs/endpoints.toml"),
    num_workers: Annotated[int, typer.Option("--num-workers", "-w", help="Environment processes.", min=1)] = 1,
    resume: Annotated[Path | None, typer.Option(help="Go on with the evaluation in this folder.")] = None,
) -> None:
    """Run MODEL on ENVIRONMENT, keep every rollout, and print the mean reward with its standard error."""
    import asyncio

    from prime_cli.core import output as out
    from prime_cli.core.errors import PrimeError
    from prime_cli.environments.install import ensure_installed
    from prime_cli.environments.metadata import eval_defaults
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.evals.endpoints import ModelChoice, choose_model, opened_model
    from prime_cli.evals.run import EvalSettings, run_evaluation
    from prime_cli.evals.store import EvalDirectory, new_eval_directory, outputs_root, remove_if_empty

    identity = parse_environment_id(environment)
    arguments = _json_object(env_args, "--env-args")
    sampling: dict[str, Any] = {}
    if temperature is not None:
        sampling["temperature"] = temperature
    if max_tokens is not None:
        sampling["max_tokens"] = max_tokens
    sampling |= _json_object(sampling_args, "--sampling-args")
    ensure_installed(identity, out.note)
    defaults = eval_defaults(identity)
    chosen = choose_model(ModelChoice(model, model_name, base_url, api_key_var, endpoints_path))
    settings = EvalSettings(
        environment=identity, model=chosen.label, env_args=arguments, split=_split(split),
        num_examples=num_examples if num_examples is not None else defaults.num_examples,
        rollouts_per_example=rollouts_per_example or defaults.rollouts_per_example,
        max_concurrent=max_concurrent, sampling_args=sampling,
        state_columns=tuple(name for name in state_columns.split(",") if name), num_workers=num_workers,
    )  # fmt: skip
    if resume is not None:
        directory = EvalDirectory(resume)
        _check_same(directory.read_metadata(), settings)
    else:
        directory = new_eval_directory(outputs_root(identity.module, output_dir), identity.name, chosen.label)
    try:
        with (
            opened_model(chosen, log_path=directory.path / "logs" / "inference.log") as endpoint,
            _Progress() as progress,
        ):
            summary = asyncio.run(run_evaluation(settings, endpoint, directory, progress.observe))
    except KeyboardInterrupt:
        out.note(f"stopped; what is finished is kept: go on with --resume {directory.path}")
        raise
    except PrimeError:
        remove_if_empty(directory)
        raise
    _print_summary(summary, settings)
    if summary.reward is None:
        raise typer.Exit(1)


@app.command("list")
def list_() -> None:
    """List the evaluations of this workspace, newest first."""
    from prime_cli.core import output as out
    from prime_cli.evals.store import default_roots, find_evaluations

    rows = [(directory, directory.read_metadata()) for directory in find_evaluations(default_roots())]
    if out.mode().json:
        out.print_json({"evaluations": [{"path": str(d.path), **m} for d, m in rows], "total": len(rows)})
        return
    cells = [
        (m["env_id"], m["model"], _number(m.get("avg_reward")), m.get("num_rollouts", ""), m.get("date", ""), d.path)
        for d, m in rows
    ]
    out.print_table(["environment", "model", "reward", "rollouts", "date", "path"], cells)


app.command("ls", hidden=True)(list_)


@app.command()
def view(
    path: Annotated[Path | None, typer.Argument(help="An evaluation's folder; all of the workspace's without.")] = None,
) -> None:
    """Open the viewer: evaluations, their rollouts, the messages and the rewards."""
    import sys

    from prime_cli.core import output as out
    from prime_cli.core.errors import PrimeError
    from prime_cli.evals.store import EvalDirectory, default_roots, find_evaluations

    directories = [EvalDirectory(path)] if path is not None else find_evaluations(default_roots())
    if not directories:
        raise PrimeError("there is no evaluation here", hint="run one with `prime eval run ENV -m MODEL`")
    for directory in directories:
        directory.read_metadata()
    if not sys.stdout.isatty() or out.mode().json or out.mode().plain:
        list_()
        return
    from prime_cli.viewer.app import EvalViewer

    EvalViewer(directories).run()


class _Progress:
    """Shows the running mean: a bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self) -> None:
        import time

        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from prime_cli.core import output as out

        self._out = out
        self._clock = time.monotonic
        self._printed = self._clock()
        self._interactive = out.is_interactive()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=out.stderr_console(), disable=not self._interactive)
        self._task = self._bar.add_task("loading the environment", total=None)

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def observe(self, rollouts: Any, total: int) -> None:
        """Show how far it is."""
        clean = [rollout["reward"] for rollout in rollouts if not rollout.get("error")]
        mean = f"reward {sum(clean) / len(clean):.3f}" if clean else "no reward yet"
        errors = len(rollouts) - len(clean)
        text = f"{mean}, {errors} errors" if errors else mean
        self._bar.update(self._task, completed=len(rollouts), total=total, description=text)
        due = len(rollouts) == total or self._clock() - self._printed > _PLAIN_EVERY_S
        if not self._interactive and due:
            self._printed = self._clock()
            self._out.note(f"{len(rollouts)}/{total}  {text}")


def _print_summary(summary: EvalSummary, settings: EvalSettings) -> None:
    from prime_cli.core import output as out

    if out.mode().json:
        out.print_json(
            {
                "reward_mean": summary.reward.mean if summary.reward else None,
                "reward_standard_error": summary.reward.standard_error if summary.reward else None,
                "num_rollouts": summary.num_rollouts,
                "num_errors": summary.num_errors,
                "errors": summary.errors,
                "metrics": summary.metrics,
                "pass_at_k": summary.pass_at_k,
                "seconds": summary.seconds,
                "path": str(summary.path),
            }
        )
        return
    good = summary.num_rollouts - summary.num_errors
    rows: list[tuple[str, str, object]] = [
        ("reward", str(summary.reward) if summary.reward else "none: every rollout failed", good)
    ]
    rows += [(name, f"{value:.3f}", good) for name, value in summary.metrics.items()]
    rows += [(f"pass@{k}", f"{value:.3f}", "") for k, value in summary.pass_at_k.items()]
    out.print_table(
        ["", "mean ± standard error", "n"], rows, title=f"{settings.environment}  {settings.model}  ({settings.split})"
    )
    for text, count in list(summary.errors.items())[:3]:
        out.warn(f"{count} of {summary.num_rollouts} rollouts failed and are not in the mean: {text}")
    typer.echo(f"results: {summary.path}")
    out.note(f"look at them with: prime eval view {summary.path}")


def _check_same(metadata: dict[str, Any], settings: EvalSettings) -> None:
    from prime_cli.core.errors import BadInput

    asked = {
        "env_id": str(settings.environment), "model": settings.model, "env_args": settings.env_args,
        "rollouts_per_example": settings.rollouts_per_example, "sampling_args": settings.sampling_args,
    }  # fmt: skip
    different = [
        f"{key} was {metadata.get(key)!r}, now {value!r}" for key, value in asked.items() if metadata.get(key) != value
    ]
    if different:
        raise BadInput(f"that evaluation had other settings: {'; '.join(different)}", hint="resume with the same ones")


def _json_object(text: str, option: str) -> dict[str, Any]:
    import json

    from prime_cli.core.errors import BadInput

    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{option} is not JSON: {error}", hint=f"""for example {option} '{{"key": 1}}'""") from None
    if not isinstance(value, dict):
        raise BadInput(f"{option} is not a JSON object", hint=f"""for example {option} '{{"key": 1}}'""")
    return value


def _split(text: str) -> Any:
    from prime_cli.core.errors import BadInput

    if text not in ("eval", "train"):
        raise BadInput(f"no such split: {text!r}", hint="use `--split eval` or `--split train`")
    return text


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "-"
