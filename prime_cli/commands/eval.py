"""`prime eval`: measure a model on an environment, and look at the rollouts."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any

import typer

from prime_cli.commands import eval_compare, eval_hub
from prime_cli.core.command_groups import CommandGroup, new_group


class RunByDefault(CommandGroup):
    """Takes `prime eval ENVIRONMENT -m MODEL` as `prime eval run ENVIRONMENT -m MODEL`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put `run` in front of what is neither a command nor a misspelt one."""
        name = args[0] if args else ""
        if name and name not in self.commands and not difflib.get_close_matches(name, self.commands):
            args = ["run", *args]
        return super().resolve_command(ctx, args)


app = new_group("Measure a model on an environment, and look at the rollouts.", cls=RunByDefault)


@app.command(epilog="A model is an alias of configs/endpoints.toml, an OpenAI-compatible URL, or a folder of weights.")
def run(
    environment: Annotated[str, typer.Argument(help="A name, a folder, or owner/name[@version] of the hub.")],
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
    sampling_args: Annotated[str | None, typer.Option("--sampling-args", "-S", help="JSON; wins over -t, -T.")] = None,
    env_args: Annotated[str | None, typer.Option("--env-args", "-a", help="JSON for load_environment.")] = None,
    split: Annotated[str | None, typer.Option(help="eval or train. Default: eval.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draw the examples by this seed, not the first ones.")] = None,
    state_columns: Annotated[str | None, typer.Option("--state-columns", "-C", help="a,b: state to keep.")] = None,
    output_dir: Annotated[Path | None, typer.Option("--output-dir", "-o", help="Instead of .../outputs.")] = None,
    base_url: Annotated[str | None, typer.Option("--api-base-url", "-b", help="Ask this server for MODEL.")] = None,
    api_key_var: Annotated[str | None, typer.Option("--api-key-var", "-k", help="Variable with the key.")] = None,
    model_name: Annotated[str | None, typer.Option(help="The model to ask for, when -m is a URL.")] = None,
    endpoints_path: Annotated[Path, typer.Option("--endpoints-path", "-e", help="Where the aliases are.")] = Path(
        "configs/endpoints.toml"
    ),
    num_workers: Annotated[int, typer.Option("--num-workers", "-w", help="Environment processes.", min=1)] = 1,
    resume: Annotated[Path | None, typer.Option(help="Go on with the evaluation in this folder.")] = None,
    retry_errors: Annotated[bool, typer.Option("--retry-errors", help="With --resume: run failed ones again.")] = False,
) -> None:
    """Run MODEL on ENVIRONMENT, keep every rollout, and print the mean reward with its standard error."""
    import shlex

    from prime_cli.commands.eval_display import print_summary, progress_display
    from prime_cli.core import output as out
    from prime_cli.evals.endpoints import ModelChoice
    from prime_cli.evals.launch import EvalRequest, launch_evaluation

    sampling = _given(max_tokens=max_tokens, temperature=temperature) | (_json(sampling_args, "--sampling-args") or {})
    request = EvalRequest(
        environment=environment,
        model=ModelChoice(model, model_name, base_url, api_key_var, endpoints_path),
        given=_given(
            num_examples=num_examples,
            rollouts_per_example=rollouts_per_example,
            sampling_args=sampling or None,
            env_args=_json(env_args, "--env-args"),
            split=_split(split),
            seed=seed,
            state_columns=None if state_columns is None else tuple(filter(None, state_columns.split(","))),
        ),
        max_concurrent=max_concurrent,
        num_workers=num_workers,
        output_dir=output_dir,
        resume=resume,
        retry_errors=retry_errors,
    )

    def stopped(path: Path) -> None:
        command = shlex.join(["prime", "eval", "run", environment, "-m", model])
        out.note(f"stopped; what is finished is kept. To go on: {command} ... --resume {path}")

    with progress_display() as observe:
        summary = launch_evaluation(request, observe=observe, note=out.note, stopped=stopped)
    print_summary(summary)
    if summary.reward is None:
        raise typer.Exit(1)


@app.command("list")
def list_(
    hub: Annotated[bool, typer.Option("--hub", help="Yours on the hub, instead of this workspace's.")] = False,
    env: Annotated[
        str | None, typer.Option("--env", "-e", metavar="OWNER/NAME", help="All on the hub of an environment.")
    ] = None,
    num: Annotated[int, typer.Option("--num", "-n", min=1, max=1000, help="Rows on a page of the hub.")] = 20,
    page: Annotated[int, typer.Option("--page", "-p", min=1, help="The page of the hub.")] = 1,
) -> None:
    """List the evaluations of this workspace, newest first, or with --hub those on the hub."""
    from prime_cli.commands.eval_display import print_evaluations
    from prime_cli.evals.store import default_roots, find_evaluations

    if hub or env:
        eval_hub.print_hub_evaluations(env, num, page)
        return
    print_evaluations(find_evaluations(default_roots()))


app.command("ls", hidden=True)(list_)


@app.command()
def view(
    path: Annotated[
        Path | None, typer.Argument(help="An evaluation's folder, or one above several; else the workspace's.")
    ] = None,
) -> None:
    """Open the viewer: evaluations, their rollouts, the messages and the rewards."""
    import sys

    from prime_cli.commands.eval_display import print_evaluations
    from prime_cli.core import output as out
    from prime_cli.core.errors import PrimeError
    from prime_cli.evals.store import default_roots, evaluations_at, find_evaluations

    directories = evaluations_at(path) if path is not None else find_evaluations(default_roots())
    if not directories:
        raise PrimeError("there is no evaluation here", hint="run one with `prime eval run ENV -m MODEL`")
    if not sys.stdout.isatty() or out.mode().json or out.mode().plain:
        print_evaluations(directories)
        return
    from prime_cli.viewer.app import EvalViewer

    EvalViewer(directories).run()


eval_compare.register(app)
eval_hub.register(app)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _json(text: str | None, option: str) -> dict[str, Any] | None:
    import json

    from prime_cli.core.errors import BadInput

    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{option} is not JSON: {error}", hint=f"""for example {option} '{{"key": 1}}'""") from None
    if not isinstance(value, dict):
        raise BadInput(f"{option} is not a JSON object", hint=f"""for example {option} '{{"key": 1}}'""")
    return value


def _split(text: str | None) -> str | None:
    from prime_cli.core.errors import BadInput

    if text not in (None, "eval", "train"):
        raise BadInput(f"no such split: {text!r}", hint="use `--split eval` or `--split train`")
    return text
