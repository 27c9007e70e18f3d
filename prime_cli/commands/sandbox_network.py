"""`prime sandbox network`, `expose`, `unexpose` and `list-ports`: whom a sandbox may reach, and who may reach it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

SandboxId = Annotated[str, typer.Argument(metavar="ID")]


def register(app: typer.Typer) -> None:
    """Add the commands to `prime sandbox`."""
    app.command("network")(network)
    app.command("expose")(expose)
    app.command("unexpose")(unexpose)
    app.command("list-ports")(list_ports)


def network(
    sandbox_id: SandboxId,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="HOST[:PORT]|all", help="Only these; repeat it, or put commas.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="HOST[:PORT]|all", help="All but these; repeat it, or put commas.")
    ] = None,
) -> None:
    """Show or change whom a sandbox may reach. A change holds at once, for open connections too.

    HOST is a name, a wildcard such as *.pypi.org, an IPv4 address or a network such as 203.0.113.0/24.

    JSON output (--output json): {policy: {allowlist, denylist}, generation, applied_generation, applied}
    """
    from prime_cli.core.errors import BadInput
    from prime_cli.core.output import print_result
    from prime_cli.hub.client import connect
    from prime_cli.sandboxes import platform

    if allow and deny:
        raise BadInput(
            "give --allow or --deny, not both", hint="--allow names all that may be reached, --deny what may not"
        )
    allowed, denied = _hosts(allow), _hosts(deny)
    with connect() as client:
        if not allow and not deny:
            told = platform.in_sandbox(sandbox_id, lambda path: client.get(f"{path}/egress-policy"))
        else:
            policy = {"allowlist": allowed, "denylist": denied}
            if allowed == ["all"] or denied == ["all"]:
                policy = {"allowlist": None, "denylist": []} if allowed else {"allowlist": [], "denylist": None}
            told = platform.in_sandbox(sandbox_id, lambda path: client.put(f"{path}/egress-policy", policy))
    print_result(told, _policy_words(told))


def expose(
    sandbox_id: SandboxId,
    port: Annotated[int, typer.Argument(min=1, max=65535, help="The port that something in the sandbox listens on.")],
    name: Annotated[str | None, typer.Option(help="What it is.")] = None,
    protocol: Annotated[str, typer.Option("--protocol", "-p", metavar="HTTP", help="What is spoken there.")] = "HTTP",
) -> None:
    """Give a port of a sandbox a URL. Whoever knows the URL reaches it, until it is taken back.

    JSON output (--output json): {exposure_id, sandbox_id, port, name, url, protocol}
    """
    from prime_cli.core.output import print_result
    from prime_cli.hub.client import connect
    from prime_cli.sandboxes import platform

    body = {"port": port, "name": name, "protocol": protocol.upper()}
    with connect() as client:
        made = platform.in_sandbox(sandbox_id, lambda path: client.post(f"{path}/expose", body))
    print_result(made, f"{made.get('url')}\nexposure {made.get('exposure_id')}")


def unexpose(
    sandbox_id: SandboxId,
    exposure_id: Annotated[str, typer.Argument(metavar="EXPOSURE_ID")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Take back the URL of a port.

    JSON output (--output json): {sandbox_id, exposure_id}
    """
    from urllib.parse import quote

    from prime_cli.commands.secret_shelves import confirm
    from prime_cli.core.output import print_result
    from prime_cli.hub.client import connect
    from prime_cli.sandboxes import platform

    confirm(f"Take back the URL {exposure_id}?", yes)
    with connect() as client:
        platform.in_sandbox(sandbox_id, lambda path: client.delete(f"{path}/expose/{quote(exposure_id, safe='')}"))
    print_result({"sandbox_id": sandbox_id, "exposure_id": exposure_id}, "Taken back.")


def list_ports(sandbox_id: Annotated[str | None, typer.Argument(metavar="ID")] = None) -> None:
    """List the ports that have a URL, of one sandbox or of all of yours.

    JSON output (--output json): {exposures: [{exposure_id, sandbox_id, port, name, url, protocol}]}
    """
    from prime_cli.core import output as out
    from prime_cli.hub.client import connect
    from prime_cli.sandboxes import platform

    with connect() as client:
        if sandbox_id is None:
            found = client.get("sandbox/expose/all")
        else:
            found = platform.in_sandbox(sandbox_id, lambda path: client.get(f"{path}/expose"))
    exposures = found.get("exposures") or []
    if out.mode().json:
        out.print_json({"exposures": exposures})
        return
    columns = ("exposure_id", "sandbox_id", "port", "name", "url")
    out.print_table(
        [column.removesuffix("_id") for column in columns], [[row.get(key) for key in columns] for row in exposures]
    )


def _hosts(given: list[str] | None) -> list[str] | None:
    from prime_cli.core.errors import BadInput

    if not given:
        return None
    hosts = [part.strip() for text in given for part in text.split(",") if part.strip()]
    if "all" in hosts and len(hosts) > 1:
        raise BadInput("`all` stands alone", hint="give `all`, or the hosts")
    return hosts


def _policy_words(told: dict[str, Any]) -> str:
    policy = told.get("policy") or {}
    allowed, denied = policy.get("allowlist"), policy.get("denylist")
    if allowed:
        words = f"It may reach {', '.join(allowed)}."
    elif denied:
        words = f"It may reach all but {', '.join(denied)}."
    elif denied is not None:
        words = "It may reach everybody."
    else:
        words = "It may reach nobody."
    return words if told.get("applied", True) else f"{words} This does not hold yet: its node has not taken it up."
