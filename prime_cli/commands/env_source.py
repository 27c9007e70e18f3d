"""`prime env status` and `prime env inspect`: look at what a hub has without downloading it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence


def register(app: typer.Typer) -> None:
    """Add the commands to `prime env`."""
    app.command("status")(status)
    app.command("inspect")(inspect)


def status(name: Annotated[str, typer.Argument(metavar="OWNER/NAME")]) -> None:
    """Show whether an environment is on the hub, for whom, and what its latest version is.

    JSON output (--output json): {environment, description, visibility, latest_version: {semantic_version,
    content_hash, created_at, yanked, yanked_reason} or null}
    """
    from prime_cli.core import output as out
    from prime_cli.environments.hub_source import fetch_status
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    with connect(login_required=False) as client:
        told = fetch_status(client, parse_environment_id(name))
    latest: dict[str, Any] = told.get("latest_version") or {}
    facts = {
        "environment": f"{told['owner']['name']}/{told['name']}",
        "description": told.get("description") or "",
        "visibility": told["visibility"],
        "latest_version": latest or None,
    }
    shown = latest.get("semantic_version", "none published yet")
    lines = [
        f"{facts['environment']}  {facts['visibility']}",
        f"latest version: {shown}" + (f" (content {latest['content_hash'][:8]})" if latest else ""),
    ]
    out.print_result(facts, "\n".join([*lines, *([facts["description"]] if facts["description"] else [])]))


def inspect(
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME[@VERSION]")],
    source_path: Annotated[str | None, typer.Argument(metavar="[PATH]", help="A file or folder in it.")] = None,
    version: Annotated[str, typer.Option("--version", "-v", help="latest, a version, or a content hash.")] = "latest",
    max_bytes: Annotated[int, typer.Option(min=1, max=500_000, help="How much of a file to show.")] = 100_000,
) -> None:
    """Show the files of a version's source, or one of them, without downloading it.

    JSON output (--output json): {kind, path, version_id, archive, entry: {name, path, is_directory, size, modified_at,
    content_hash}, entries: [the same], content, is_binary, truncated, total_bytes}
    """
    from dataclasses import replace

    from prime_cli.core import output as out
    from prime_cli.environments.hub_source import fetch_source
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    identity = parse_environment_id(name)
    with connect(login_required=False) as client:
        found = fetch_source(client, replace(identity, version=identity.version or version), source_path, max_bytes)
    if out.mode().json:
        out.print_json(found)
    elif found.get("kind") == "file":
        text = str(found.get("content") or "")
        typer.echo(text, nl=not text.endswith("\n"))
        if found.get("truncated"):
            out.warn(f"these are the first {max_bytes} of {found.get('total_bytes')} bytes; see --max-bytes")
    else:
        out.print_table(("path", "bytes"), _rows(found.get("entries") or []))


def _rows(entries: Sequence[dict[str, Any]]) -> list[tuple[object, object]]:
    return [(f"{entry['path']}/", "") if entry["is_directory"] else (entry["path"], entry["size"]) for entry in entries]
