"""`prime eval run`: one evaluation from options, or those of a file."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from prime_cli.evals.eval_file import EvalPlan

_FOREIGN = "prime.eval.foreign"
_LATEST = "latest"
_RESUME = ("--resume", "-R")
_EPILOG = (
    "A model is an alias of configs/endpoints.toml, a URL of an OpenAI-compatible server, a folder of weights, or any "
    "name with -b or -p. Options win over a file. Options that only mean something elsewhere are accepted with a "
    "warning, or refused with the reason."
)


class EvalRunCommand(TyperCommand):
    """Takes options that mean nothing here out of the line, and a `--resume` without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note what is to be said of foreign options; put `latest` behind a `--resume` that has no value."""
        if {"-h", "--help"} & set(args):
            return super().parse_args(ctx, args)
        from prime_cli.evals.foreign import sift_arguments

        known, *ctx.meta[_FOREIGN] = sift_arguments(args)
        words: list[str] = []
        for word, following in itertools.zip_longest(known, known[1:], fillvalue=""):
            words.append(word)
            if word in _RESUME and (not following or following.startswith("-") or following.endswith(".toml")):
                words.append(_LATEST)
        return super().parse_args(ctx, words)


def register(app: typer.Typer) -> None:
    """Add the command to `prime eval`."""
    app.command("run", cls=EvalRunCommand, epilog=_EPILOG)(run)


def run(
    ctx: typer.Context,
    environment: Annotated[
        str, typer.Argument(help="A name, a folder, owner/name[@version] of the hub, or a file.toml with evaluations.")
    ],
    model: Annotated[str | None, typer.Option("--model", "-m", help="Alias, URL, folder of weights, or name.")] = None,
    num_examples: Annotated[
        int | None, typer.Option("--num-examples", "-n", help="Examples; -1 for all. Default: the environment's, or 5.")
    ] = None,
    rollouts_per_example: Annotated[
        int | None, typer.Option("--rollouts-per-example", "-r", help="Default: the environment's, or 3.", min=1)
    ] = None,
    max_concurrent: Annotated[
        int | None, typer.Option("--max-concurrent", "-c", help="Rollouts at once, over all evaluations. [32]", min=1)
    ] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", "-t", help="Tokens per answer.", min=1)] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", "-T", help="Sampling temperature.")] = None,
    sampling: Annotated[
        str | None, typer.Option("--sampling-args", "-S", metavar="JSON", help="Wins over -t and -T.")
    ] = None,
    args: Annotated[
        str | None, typer.Option("--env-args", "-a", metavar="JSON", help="For the environment's load_environment.")
    ] = None,
    extra_env_kwargs: Annotated[
        str | None,
        typer.Option("--extra-env-kwargs", "-x", metavar="JSON", help="Attributes to set on the environment."),
    ] = None,
    env_dir_path: Annotated[
        Path | None, typer.Option("--env-dir-path", help="Where folders of environments lie. [environments]")
    ] = None,
    split: Annotated[str | None, typer.Option(help="eval or train. [eval]")] = None,
    seed: Annotated[int | None, typer.Option(help="Draw the examples by this seed, not the first ones.")] = None,
    shuffle: Annotated[bool | None, typer.Option("--shuffle", help="The same with the seed of --shuffle-seed.")] = None,
    shuffle_seed: Annotated[int | None, typer.Option("--shuffle-seed", help="[0]")] = None,
    independent_scoring: Annotated[
        bool | None,
        typer.Option("--independent-scoring", "-i", help="Refuse an environment that scores rollouts as a group."),
    ] = None,
    state_columns: Annotated[
        str | None, typer.Option("--state-columns", "-C", metavar="A,B", help="Keys of the state to keep.")
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", "-p", help="prime, openai, anthropic, openrouter, local, ...")
    ] = None,
    api_base_url: Annotated[str | None, typer.Option("--api-base-url", "-b", help="Ask this server for MODEL.")] = None,
    api_key_var: Annotated[str | None, typer.Option("--api-key-var", "-k", help="Variable with the key.")] = None,
    api_client_type: Annotated[
        str | None,
        typer.Option("--api-client-type", help="openai_chat_completions, openai_chat_completions_token or renderer."),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", metavar="FOLDER", help="The model's, for the type renderer.")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", metavar="'NAME: VALUE'", help="Sent with every request. Repeatable.")
    ] = None,
    headers_from_state: Annotated[
        list[str] | None,
        typer.Option("--header-from-state", metavar="'NAME: KEY'", help="Read from the rollout's state. Repeatable."),
    ] = None,
    model_name: Annotated[
        str | None, typer.Option("--model-name", help="The model to ask for, when -m is a URL.")
    ] = None,
    endpoints_path: Annotated[
        Path | None, typer.Option("--endpoints-path", "-e", help="The aliases. [configs/endpoints.toml]")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", "--eval-name", help="How it is called.")] = None,
    output_dir: Annotated[Path | None, typer.Option("--output-dir", "-o", help="Instead of .../outputs.")] = None,
    num_workers: Annotated[
        str | None, typer.Option("--num-workers", "-w", help="Environment processes, or auto. [1]")
    ] = None,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="A rollout that takes longer fails.")
    ] = None,
    max_retries: Annotated[
        int | None, typer.Option("--max-retries", help="Of a rollout that failed for a passing reason. [3]", min=0)
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", help="Stop before the rollouts cost more; exit code 3.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option("--resume", "-R", metavar="[FOLDER]", help="Go on with this one, else the newest like it."),
    ] = None,
    retry_errors: Annotated[
        bool | None, typer.Option("--retry-errors", help="With --resume: run failed ones again.")
    ] = None,
) -> None:
    """Run a model on an environment, keep every rollout, and print the mean reward with its standard error.

    JSON output (--output json): {reward_mean, reward_standard_error, num_rollouts, num_errors, errors, metrics,
    pass_at_k, estimates, cost, stopped, seconds, path}; of a file a list of these with {name, environment, model,
    error}
    """
    from prime_cli.commands.eval_outcome import run_and_print

    warnings, problems = ctx.meta[_FOREIGN]
    given = _given(ctx.params)
    run_and_print(_plan(environment, given, warnings, problems), is_file=environment.endswith(".toml"))


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return what was typed, by the keys of a file: every option has the name of its key."""
    given = {key: value for key, value in options.items() if value not in (None, ()) and key != "environment"}
    for key, option in (("sampling", "--sampling-args"), ("args", "--env-args"), ("extra_env_kwargs", "-x")):
        if key in given:
            given[key] = json_option(given[key], option)
    if "resume" in given:
        given["resume"] = True if given["resume"] == _LATEST else Path(given["resume"])
    return given


def _plan(environment: str, given: dict[str, Any], warnings: list[str], problems: list[Any]) -> EvalPlan:
    """Return what to run, from the file or from the options alone.

    Raises:
        BadInput: an option cannot be right.
        ConfigError: the file cannot.
    """
    from prime_cli.core.config_file import ImpossibleSettings, read_model
    from prime_cli.core.errors import BadInput
    from prime_cli.evals.config import EvalKeys
    from prime_cli.evals.eval_file import EvalPlan, read_eval_file
    from prime_cli.evals.request import request_of

    is_file = environment.endswith(".toml")
    keys, wrong = read_model({**given} if is_file else {"id": environment, **given}, EvalKeys)
    problems = [*problems, *wrong]
    if keys is not None and not problems and not is_file:
        try:
            request = request_of(keys)
            return EvalPlan([request], request.max_concurrent, warnings)
        except ImpossibleSettings as error:
            problems = list(error.problems)
    if problems:
        hints = [problem.hint for problem in problems if problem.hint]
        raise BadInput("; ".join(map(str, problems)), hint=hints[0] if hints else "see `prime eval run --help`")
    plan = read_eval_file(Path(environment), given)
    if isinstance(given.get("resume"), Path) and len(plan.requests) > 1:
        raise BadInput("one folder cannot be gone on with by several evaluations", hint="leave it out: `--resume`")
    return EvalPlan(plan.requests, plan.max_concurrent, [*warnings, *plan.warnings])


def json_option(text: str, option: str) -> dict[str, Any]:
    """Return the JSON object that was given to an option.

    Raises:
        BadInput: it is none.
    """
    import json

    from prime_cli.core.errors import BadInput

    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{option} is not JSON: {error}", hint=f"""for example {option} '{{"key": 1}}'""") from None
    if not isinstance(value, dict):
        raise BadInput(f"{option} is not a JSON object", hint=f"""for example {option} '{{"key": 1}}'""")
    return value
