"""`prime sandbox serve`: make sandboxes on this machine, for a hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from prime_cli.commands.sandbox_options import NodeDataDir, node_data_dir, node_words

if TYPE_CHECKING:
    from hub_server.sandbox_node.serve import Serving


def register(app: typer.Typer) -> None:
    """Add the command to `prime sandbox`."""
    app.command("serve")(serve)


def serve(
    hub: Annotated[
        str, typer.Option(metavar="URL", help="The hub that it works for; the one you are logged in to when left out.")
    ] = "",
    no_hub: Annotated[
        bool, typer.Option("--no-hub", help="Work for none: only to try out what this machine can.")
    ] = False,
    name: Annotated[str, typer.Option(help="What the hub calls it; this machine's name when left out.")] = "",
    host: Annotated[str, typer.Option(help="Address to listen on, for the hub and for clients.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8490,
    public_url: Annotated[str, typer.Option(metavar="URL", help="Where others reach it, behind a proxy.")] = "",
    backend: Annotated[str, typer.Option(metavar="NAME", help="What keeps sandboxes apart: bwrap, crun, ...")] = "auto",
    min_level: Annotated[
        Literal["none", "restricted", "container", "gvisor"],
        typer.Option(help="How well sandboxes must be kept from this machine; with less it does not start."),
    ] = "container",
    max_sandboxes: Annotated[
        int, typer.Option(min=1, help="How many may live at once; more wait for their turn.")
    ] = 256,
    min_idle: Annotated[int, typer.Option(min=0, help="Keep so many ready of each kind that is in demand.")] = 2,
    max_idle: Annotated[int, typer.Option(min=0, help="Keep no more than so many ready, of all kinds.")] = 32,
    creations: Annotated[int, typer.Option(min=0, help="Make so many at once; 0 is one for each processor.")] = 0,
    registry: Annotated[
        list[str] | None,
        typer.Option(metavar="REGISTRY", help="Fetch images that it lacks from there: docker.io; repeat it."),
    ] = None,
    registry_logins: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file that `skopeo login --authfile` wrote.")
    ] = None,
    allow_private: Annotated[
        list[str] | None,
        typer.Option(metavar="NETWORK", help="Let sandboxes reach it though it is not public, where they may; repeat."),
    ] = None,
    data_dir: NodeDataDir = None,
    ready_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write {url, pid, name, level, backend} here once it answers.")
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="How the log on stderr looks; json writes an object a line.")
    ] = "text",
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option(help="The least important lines to log.")
    ] = "info",
) -> None:
    """Make sandboxes on this machine for a hub, until Ctrl-C; all of them end with it.

    You must be logged in to the hub as an administrator. A hub starts a node on its own machine by itself; this is for
    other machines, and for options.

    JSON output (--output json), once it answers: {url, pid, name, level, backend, notes}
    """
    from prime_cli.core.context import for_hub, load_settings
    from prime_cli.core.credentials import load_api_key
    from prime_cli.core.errors import BadInput

    if hub and no_hub:
        raise BadInput("--hub and --no-hub exclude each other")
    settings = load_settings()
    settings = for_hub(settings, hub) if hub else settings
    with node_words():
        from hub_server.operation.logs import LogFormat, LogLevel
        from hub_server.sandbox_node.choosing import BackendChoice
        from hub_server.sandbox_node.serve import NodeOptions
        from hub_server.sandbox_node.serve import serve as serve_node
        from hub_server.sandbox_node.specification import Level

        choices = [str(choice) for choice in BackendChoice]
        if backend not in choices:
            raise BadInput(f"there is no backend {backend!r}", hint=f"there are: {', '.join(choices)}")
        options = NodeOptions(
            data_dir=node_data_dir(data_dir),
            hub_url="" if no_hub else settings.base_url,
            key="" if no_hub else load_api_key(settings) or "",
            name=name,
            host=host,
            port=port,
            public_url=public_url,
            backend=BackendChoice(backend),
            min_level=Level(min_level),
            most_sandboxes=max_sandboxes,
            least_idle=min_idle,
            most_idle=max_idle,
            creations_at_once=creations,
            registries=registry or (),
            registry_logins=registry_logins,
            allow_private=allow_private or (),
            log_format=LogFormat(log_format),
            log_level=LogLevel(log_level),
            ready_file=ready_file,
        )
        serve_node(options, _say_ready)


def _say_ready(serving: Serving) -> None:
    from prime_cli.core.output import note, print_result

    data = {**vars(serving), "notes": list(serving.notes)}
    print_result(data, f"Sandboxes are made at {serving.url}: level {serving.level} by {serving.backend}")
    for line in serving.notes:
        note(line)
    note("Ctrl-C stops it, and ends them all.")
