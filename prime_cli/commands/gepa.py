"""`prime gepa`: improve a system prompt without training."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from prime_cli.commands.eval import RunByDefault
from prime_cli.core.command_groups import new_group

app = new_group("Improve a system prompt by reflecting on what comes of it (GEPA).", cls=RunByDefault)

_LATEST = "latest"


class GepaCommand(TyperCommand):
    """Takes `--resume` without a value, and several words after `--state-columns`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Rewrite both into what the parser knows."""
        words: list[str] = []
        taking = False
        for word, following in itertools.zip_longest(args, args[1:], fillvalue=""):
            if taking and not word.startswith("-"):
                words += ["--state-columns", word] if words[-1] != "--state-columns" else [word]
                continue
            taking = word in ("--state-columns", "-C")
            words.append("--state-columns" if taking else word)
            if word == "--resume" and (not following or following.startswith("-")):
                words.append(_LATEST)
        return super().parse_args(ctx, words)


@app.command(
    cls=GepaCommand,
    epilog="A model is an alias of configs/endpoints.toml, an OpenAI-compatible URL, or a folder of weights. What is "
    "given on the command line wins over the file.",
)
def run(
    target: Annotated[
        str | None, typer.Argument(metavar="ENVIRONMENT|CONFIG.toml", help="A name, a folder, owner/name, or a file.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Runs the rollouts.")] = None,
    reflection_model: Annotated[
        str | None, typer.Option("--reflection-model", "-M", help="Writes the prompts. Default: --model.")
    ] = None,
    max_calls: Annotated[int | None, typer.Option("--max-calls", "-B", help="Budget in rollouts [500].")] = None,
    num_train: Annotated[int | None, typer.Option("--num-train", "-n", help="Examples to reflect on [100].")] = None,
    num_val: Annotated[int | None, typer.Option("--num-val", "-N", help="Examples to validate on [50].")] = None,
    num_test: Annotated[int | None, typer.Option("--num-test", help="Examples held out for the end [50].")] = None,
    minibatch_size: Annotated[int | None, typer.Option(help="Examples that one reflection looks at [3].")] = None,
    perfect_score: Annotated[float | None, typer.Option(help="Minibatches that have it are left alone.")] = None,
    state_columns: Annotated[
        list[str] | None, typer.Option("--state-columns", "-C", help="State that reflection sees, too; several words.")
    ] = None,
    initial_prompt: Annotated[
        Path | None, typer.Option(help="A file to begin with. Default: the environment's system prompt.")
    ] = None,
    env_args: Annotated[str | None, typer.Option("--env-args", "-a", help="JSON for load_environment.")] = None,
    extra_env_kwargs: Annotated[
        str | None, typer.Option("--extra-env-kwargs", "-x", help="JSON, set on the loaded environment.")
    ] = None,
    env_dir_path: Annotated[
        Path | None, typer.Option("--env-dir-path", "-p", help="Where environments lie [environments].")
    ] = None,
    max_cost: Annotated[float | None, typer.Option(help="What both models may cost together, by their prices.")] = None,
    max_concurrent: Annotated[int | None, typer.Option("--max-concurrent", "-c", help="Rollouts at once [32].")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", "-t", help="Tokens per answer.", min=1)] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", "-T", help="Of the rollouts.")] = None,
    sampling_args: Annotated[str | None, typer.Option("--sampling-args", "-S", help="JSON; wins over -t, -T.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draws examples and minibatches [0].")] = None,
    base_url: Annotated[
        str | None, typer.Option("--api-base-url", "-b", help="Ask this server for the models.")
    ] = None,
    api_key_var: Annotated[str | None, typer.Option("--api-key-var", "-k", help="Variable with the key.")] = None,
    endpoints_path: Annotated[
        Path | None, typer.Option("--endpoints-path", "-e", help="Where the aliases are [configs/endpoints.toml].")
    ] = None,
    num_workers: Annotated[int | None, typer.Option("--num-workers", "-w", help="Environment processes [1].")] = None,
    max_retries: Annotated[int | None, typer.Option(help="Of a call that got no answer [3].")] = None,
    run_dir: Annotated[Path | None, typer.Option("--run-dir", "-o", help="The folder of the run.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the gepa package's messages, too.")] = False,
    no_save: Annotated[bool, typer.Option("--no-save", help="Keep nothing, print the prompt.")] = False,
    resume: Annotated[
        str | None,
        typer.Option(metavar="[DIR]", help="Go on with the run in DIR, or the last one that did not come to its end."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what the budget buys, and ask no model.")] = False,
) -> None:
    """Search for a better system prompt, and test the best one on examples that the search never saw."""
    from rich.markup import escape

    from prime_cli.commands import gepa_display as display
    from prime_cli.core import output as out
    from prime_cli.gepa.launch import launch_gepa, new_request, plan_gepa, resumed_request

    sampling = _given(max_tokens=max_tokens, temperature=temperature) | _json(sampling_args, "--sampling-args")
    search = _given(
        max_calls=max_calls, num_train=num_train, num_val=num_val, num_test=num_test, minibatch_size=minibatch_size,
        perfect_score=perfect_score, state_columns=state_columns or None, seed=seed, max_concurrent=max_concurrent,
        num_workers=num_workers, max_retries=max_retries, max_cost=max_cost,
    )  # fmt: skip
    options = _given(
        model=model, reflection_model=reflection_model, initial_prompt=initial_prompt, api_base_url=base_url,
        api_key_var=api_key_var, endpoints_path=endpoints_path, run_dir=run_dir, sampling=sampling or None,
        gepa=search or None, save_results=False if no_save else None, env_dir_path=env_dir_path,
        verbose=True if verbose else None,
    )  # fmt: skip
    environment = {
        "args": _json(env_args, "--env-args"),
        "extra_env_kwargs": _json(extra_env_kwargs, "--extra-env-kwargs"),
    }
    tables, source = _tables(target, environment, options, resume)
    if resume is None:
        request = new_request(tables, source)
    else:
        request = resumed_request(None if resume == _LATEST else Path(resume), tables, source)

    def note(text: str) -> None:
        out.note(escape(text))

    def stopped(path: Path) -> None:
        note(f"stopped; what was paid for is kept. To go on: prime gepa run --resume {path}")

    if dry_run:
        display.print_plan(plan_gepa(request, note=note))
        return
    with display.progress_display() as observe:
        summary = launch_gepa(request, observe=observe, note=note, show_plan=display.show_plan, stopped=stopped)
    display.print_summary(summary)


def _tables(
    target: str | None, environment: dict[str, Any], options: dict[str, Any], resume: str | None
) -> tuple[dict[str, Any], str]:
    """Return the tables of the file, if it is one, with the options over them, and what to call them in messages."""
    from prime_cli.core.config_file import read_toml
    from prime_cli.core.config_layers import merge
    from prime_cli.core.errors import BadInput

    tables: dict[str, Any] = {}
    source = "the command line"
    if target is not None and target.endswith(".toml"):
        tables, source = read_toml(Path(target)), target
        if any(environment.values()):
            raise BadInput(
                "--env-args and --extra-env-kwargs say nothing of the environments of a file",
                hint=f"set args and extra_env_kwargs in {target}",
            )
    elif target is not None:
        tables["env"] = [{"id": target, **environment}]
    elif resume is None:
        raise BadInput("no environment is named", hint="for example: prime gepa run ENVIRONMENT -m MODEL")
    merge(tables, options)
    if "model" not in tables and resume is None:
        raise BadInput("no model is named", hint="add -m MODEL: an alias, a URL or a folder of weights")
    return tables, source


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _json(text: str | None, option: str) -> dict[str, Any]:
    from prime_cli.commands.eval_run import json_option

    return {} if text is None else json_option(text, option)
