"""The commands of `prime eval` that talk with a hub: push, get, samples, and the list of a hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prime_cli.commands.hub_evaluation import hub_id

if TYPE_CHECKING:
    from prime_cli.core.errors import PrimeError
    from prime_cli.evals.push import Pushed

_EXCERPT = 60


def register(app: typer.Typer) -> None:
    """Add the commands to `prime eval`."""
    app.command("push")(push)
    app.command("get")(get)
    app.command("samples")(samples)


def push(
    path: Annotated[str | None, typer.Argument(help="An evaluation's folder or id, or a folder above several.")] = None,
    env: Annotated[str | None, typer.Option("--env", "-e", metavar="OWNER/NAME", help="What it ran on.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Its name on the hub.")] = None,
    public: Annotated[bool, typer.Option("--public", help="Let everybody see it.")] = False,
    evaluation: Annotated[str | None, typer.Option("--eval", metavar="ID", help="Add to this evaluation.")] = None,
) -> None:
    """Put evaluations on the hub: PATH, else the one in this folder, else all of this workspace.

    A push that broke off is done again by the same command, which goes on with the same evaluation.

    JSON output (--output json): {evaluation_id, url, samples_added, samples_repeated, samples_skipped, path}; for
    several {results: [{path, status, eval_id, error}]}
    """
    from prime_cli.commands.transfer_display import transfer_display
    from prime_cli.core.errors import BadInput, PrimeError
    from prime_cli.evals.push import PushOptions, directories_to_push, push_evaluation
    from prime_cli.hub.client import Progress, connect

    directories = directories_to_push(path)
    if evaluation and len(directories) > 1:
        raise BadInput(f"{len(directories)} evaluations cannot become one", hint="name one folder beside --eval")
    options = PushOptions(environment=env, evaluation_id=evaluation, name=name, public=public)
    results: list[tuple[Path, Pushed | PrimeError]] = []
    with connect() as client, transfer_display() as show:

        def progress(file: Path) -> Progress:
            return lambda done, total: show(str(file), done, total)

        for directory in directories:
            try:
                results.append((directory.path, push_evaluation(client, directory, options, progress)))
            except PrimeError as error:
                if len(directories) == 1:
                    raise
                results.append((directory.path, error))
    _print_pushed(results)


def get(evaluation: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Show an evaluation of the hub.

    JSON output (--output json): the hub's object: {evaluation_id, name, status, environment_names, model_name,
    metrics, total_samples, avg_score, metadata, viewer_url, ...}
    """
    from prime_cli.core import output as out
    from prime_cli.hub.client import connect

    with connect(login_required=False) as client:
        facts = client.get(f"evaluations/{hub_id(evaluation)}")
    if out.mode().json:
        out.print_json(facts)
        return
    score = facts.get("avg_score")
    rows: list[tuple[str, object]] = [
        ("name", facts.get("name")),
        ("environment", ", ".join(facts.get("environment_names") or [])),
        ("model", facts.get("model_name")),
        ("status", facts.get("status")),
        ("rollouts", facts.get("total_samples")),
        ("mean reward", "none" if score is None else f"{score:.3f}"),
        *sorted((facts.get("metrics") or {}).items()),
        ("visible to", "everybody" if facts.get("is_public") else "its owner"),
        ("page", facts.get("viewer_url")),
    ]
    if facts.get("error_message"):
        rows.append(("error", facts["error_message"]))
    out.print_table(("", ""), [(label, value) for label, value in rows if value not in (None, "")])


def samples(
    evaluation: Annotated[str, typer.Argument(metavar="ID")],
    page: Annotated[int, typer.Option("--page", "-p", min=1)] = 1,
    num: Annotated[int, typer.Option("--num", "-n", min=1, max=1000, help="Rollouts on a page.")] = 20,
) -> None:
    """List the rollouts of an evaluation of the hub.

    JSON output (--output json): {samples, total, page, limit}
    """
    from prime_cli.core import output as out
    from prime_cli.hub.client import connect

    with connect(login_required=False) as client:
        found = client.get(f"evaluations/{hub_id(evaluation)}/samples", page=page, limit=num)
    rows = found.get("samples") or []
    if out.mode().json:
        out.print_json({name: found.get(name) for name in ("samples", "total", "page", "limit")})
        return
    out.print_table(("example", "rollout", "reward", "last message"), [_sample_cells(row) for row in rows])
    out.note(f"{len(rows)} of {found.get('total')}, page {page}; whole rollouts by --output json")


def print_hub_evaluations(env: str | None, num: int, page: int) -> None:
    """Print a page of your evaluations on the hub, or of those on an environment."""
    from prime_cli.core import output as out
    from prime_cli.hub.client import connect

    with connect(login_required=env is None) as client:
        found = client.get("evaluations/", environment_name=env, skip=(page - 1) * num, limit=num)
    rows = found.get("evaluations") or []
    if out.mode().json:
        out.print_json({"evaluations": rows, "total": found.get("total")})
        return
    out.print_table(("id", "environment", "model", "reward", "rollouts", "status", "date"), map(_list_cells, rows))
    out.note(f"{len(rows)} of {found.get('total')}" + (f", page {page}" if page > 1 else ""))


def _print_pushed(results: list[tuple[Path, Pushed | PrimeError]]) -> None:
    from rich.markup import escape

    from prime_cli.core import output as out
    from prime_cli.core.errors import PrimeError

    pushed = [result for _, result in results if not isinstance(result, PrimeError)]
    for one in pushed:
        if one.too_large:
            lines = ", ".join(map(str, one.too_large[:5]))
            out.warn(
                f"{len(one.too_large)} rollouts are over 25 MiB and were left out: {escape(str(one.path))} {lines}"
            )
    if len(results) == 1 and pushed:
        one = pushed[0]
        known = f", {one.repeated} were there" if one.repeated else ""
        out.print_result(_pushed_data(one), f"{one.url}\nevaluation {one.evaluation_id}: {one.added} added{known}")
        return
    if out.mode().json:
        out.print_json({"results": [_result_data(path, result) for path, result in results]})
    else:
        cells = [(data["path"], data["status"], data["eval_id"] or data["error"]) for data in
                 (_result_data(path, result) for path, result in results)]  # fmt: skip
        out.print_table(("path", "status", "evaluation"), cells)
    if len(pushed) < len(results):
        raise typer.Exit(1)


def _pushed_data(pushed: Pushed) -> dict[str, Any]:
    return {
        "evaluation_id": pushed.evaluation_id,
        "url": pushed.url,
        "samples_added": pushed.added,
        "samples_repeated": pushed.repeated,
        "samples_skipped": len(pushed.too_large),
        "path": str(pushed.path),
    }


def _result_data(path: Path, result: Pushed | PrimeError) -> dict[str, Any]:
    from prime_cli.core.errors import PrimeError

    if isinstance(result, PrimeError):
        return {"path": str(path), "status": "failed", "eval_id": None, "error": result.message}
    return {"path": str(path), "status": "pushed", "eval_id": result.evaluation_id, "error": None}


def _list_cells(row: dict[str, Any]) -> tuple[object, ...]:
    score = row.get("avg_score")
    return (
        row.get("evaluation_id"), ", ".join(row.get("environment_names") or []), row.get("model_name"),
        "-" if score is None else f"{score:.3f}", row.get("total_samples"), row.get("status"),
        str(row.get("created_at") or "")[:16].replace("T", " "),
    )  # fmt: skip


def _sample_cells(row: dict[str, Any]) -> tuple[object, ...]:
    completion = row.get("completion")
    last = completion[-1] if isinstance(completion, list) and completion else completion
    content = last.get("content") if isinstance(last, dict) else last
    words = content if isinstance(content, str) else json.dumps(content) if content is not None else ""
    shown = " ".join(words.split())
    shown = shown if len(shown) <= _EXCERPT else f"{shown[:_EXCERPT]}…"
    reward = "failed" if row.get("error") else row.get("reward")
    return row.get("example_id"), row.get("rollout_number"), reward, shown
