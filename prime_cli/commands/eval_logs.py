"""`prime eval logs` and `prime eval stop`: what an evaluation wrote, and ending one that a hub has open."""

from __future__ import annotations

from typing import Annotated, Any

import typer

_FINAL = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")
_NOT_FOUND = 404
_CONFLICT = 409

Tail = Annotated[int, typer.Option("--tail", "-n", min=1, help="Last lines.")]
Poll = Annotated[float, typer.Option("--poll-interval", min=0.2, help="Seconds between two looks.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `prime eval`."""
    app.command("logs")(logs)
    app.command("stop")(stop)


def logs(
    evaluation: Annotated[str, typer.Argument(metavar="ID", help="A folder or id of this workspace; or of the hub.")],
    tail: Tail = 1000,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until a hub's evaluation has ended.")] = False,
    poll_interval: Poll = 5.0,
) -> None:
    """Print what an evaluation wrote: here its environment and its server, on a hub the job that runs it.

    JSON output (--output json): {logs, status}; of one in this workspace {logs: {FILE: TEXT}}
    """
    from prime_cli.commands.hub_evaluation import hub_id
    from prime_cli.core import output as out
    from prime_cli.core.processes import tail as last_lines
    from prime_cli.evals.find import find_here

    here = find_here(evaluation)
    if here is None:
        _print_hub_logs(hub_id(evaluation), tail, poll_interval if follow else None)
        return
    texts = {path.name: "\n".join(last_lines(path, tail)) for path in sorted((here.path / "logs").glob("*.log"))}
    if out.mode().json:
        out.print_json({"logs": texts})
        return
    for name, text in texts.items():
        out.note(f"{here.path / 'logs' / name}:")
        out.stdout_console().print(text or "(nothing)", markup=False)
    if not texts:
        out.note(f"{here.path} has no logs")


def stop(evaluation: Annotated[str, typer.Argument(metavar="ID", help="Of the hub.")]) -> None:
    """Close an evaluation that is open on the hub: it is cancelled and takes no more results.

    What feeds it from another machine is not stopped by this. One that runs here ends with Ctrl-C.

    JSON output (--output json): {evaluation_id, status}
    """
    from prime_cli.commands.hub_evaluation import hub_id
    from prime_cli.core import output as out
    from prime_cli.core.errors import HubError, PrimeError
    from prime_cli.evals.find import find_here
    from prime_cli.hub.client import connect

    here = find_here(evaluation)
    if here is not None:
        raise PrimeError(f"{here.path} is of this workspace", hint="one that runs here ends with Ctrl-C where it runs")
    identity = hub_id(evaluation)
    with connect() as client:
        try:
            client.patch(f"hosted-evaluations/{identity}/cancel")
        except HubError as error:
            if error.status != _NOT_FOUND:
                raise
            _close(client, identity)
    out.print_result({"evaluation_id": identity, "status": "CANCELLED"}, f"evaluation {identity} is cancelled")


def _close(client: Any, identity: str) -> None:
    """Close an evaluation on a hub that runs none itself."""
    from prime_cli.core.errors import HubError, PrimeError

    try:
        client.put(f"evaluations/{identity}", {"status": "CANCELLED"})
    except HubError as error:
        if error.status != _CONFLICT:
            raise
        status = client.get(f"evaluations/{identity}").get("status")
        raise PrimeError(f"evaluation {identity} has ended already: {status}") from None


def _print_hub_logs(identity: str, tail: int, poll_interval_s: float | None) -> None:
    """Print the logs of a hub's evaluation, and with an interval what comes after until it has ended.

    Raises:
        PrimeError: the hub keeps no logs of it.
        typer.Exit: with 1 where it was followed to another end than a good one.
    """
    import time

    from prime_cli.core import output as out
    from prime_cli.hub.client import connect

    shown = ""
    with connect(login_required=False) as client:
        while True:
            status = str(client.get(f"evaluations/{identity}").get("status"))
            text = _hub_logs(client, identity, status)
            ended = poll_interval_s is None or status in _FINAL
            if out.mode().json and ended:
                out.print_json({"logs": "\n".join(text.splitlines()[-tail:]), "status": status})
            elif not out.mode().json:
                # The text may be a sliding window: what is new follows the last line that was shown.
                lines = text.splitlines() if not shown else text.partition(shown)[2].splitlines()
                out.stdout_console().print("\n".join(lines[-tail:]), markup=False, end="\n" if lines else "")
                shown = text.splitlines()[-1] if text.strip() else shown
            if ended:
                break
            time.sleep(poll_interval_s or 0)
    if poll_interval_s is not None and status != "COMPLETED":
        out.note(f"evaluation {identity} ended: {status}")
        raise typer.Exit(1)


def _hub_logs(client: Any, identity: str, status: str) -> str:
    from prime_cli.core.errors import HubError, PrimeError

    try:
        return str(client.get(f"hosted-evaluations/{identity}/logs").get("logs") or "")
    except HubError as error:
        if error.status != _NOT_FOUND:
            raise
        raise PrimeError(
            f"the hub keeps no logs of evaluation {identity} ({status}): it did not run there",
            hint="they lie in the evaluation's folder on the machine that ran it, under logs/",
        ) from None
