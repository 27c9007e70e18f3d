"""`prime sandbox`: places where untrusted code runs, made in milliseconds, on a machine of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from prime_cli.commands import (
    sandbox_delete,
    sandbox_doctor,
    sandbox_image,
    sandbox_network,
    sandbox_run,
    sandbox_serve,
)
from prime_cli.core.command_groups import new_group

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient

app = new_group("Run untrusted code in sandboxes, on a machine of your own.")

SandboxId = Annotated[str, typer.Argument(metavar="ID", help="The id of a sandbox; `prime sandbox list` shows yours.")]
_DEFAULT_IMAGE = "host"


class CreateCommand(TyperCommand):
    """Takes what stands behind `--` as the command, also where no image stands before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default image before a command that has none."""
        if "--" in args:
            split = args.index("--")
            told, _, _ = self.make_parser(ctx).parse_args(args=args[:split])
            if not isinstance(told.get("image"), str):
                args = [*args[:split], "--", _DEFAULT_IMAGE, *args[split + 1 :]]
        return super().parse_args(ctx, args)


@app.command(cls=CreateCommand)
def create(
    image: Annotated[
        str, typer.Argument(metavar="IMAGE", help="Its root file system, by name and tag; host is the node's own.")
    ] = _DEFAULT_IMAGE,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND...", help="What it runs from its start.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Its name; else one is made up.")] = None,
    start_command: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What it runs from its start, as text for a shell.")
    ] = None,
    cpu_cores: Annotated[float, typer.Option(help="CPU time per second that it may use, in cores.")] = 1.0,
    memory_gb: Annotated[float, typer.Option(help="Memory of all its processes together, in GiB.")] = 1.0,
    disk_size_gb: Annotated[float, typer.Option(help="What it may write, in GiB.")] = 5.0,
    gpu_count: Annotated[int, typer.Option(hidden=True)] = 0,
    vm: Annotated[bool, typer.Option("--vm/--container", help="Outlive the start command, or end with it.")] = True,
    network_allow: Annotated[
        list[str] | None, typer.Option(metavar="HOST[:PORT]", help="Whom it may reach; repeat it. Else nobody.")
    ] = None,
    network_deny: Annotated[
        list[str] | None, typer.Option(metavar="HOST[:PORT]", help="It may reach everybody but these; repeat it.")
    ] = None,
    timeout_minutes: Annotated[int, typer.Option(help="When it ends; negative is never.")] = 60,
    idle_timeout_minutes: Annotated[int | None, typer.Option(min=1, help="When it ends if nothing uses it.")] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A variable; repeat it.")] = None,
    secret: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A variable that the hub does not show; repeat it.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="To find it by; repeat it.")] = None,
    team_id: Annotated[str | None, typer.Option(help="The team that owns it; else as `prime switch` says.")] = None,
    min_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="How well it must be kept from the host, at least.")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until it runs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", hidden=True)] = False,
) -> None:
    """Make a sandbox, and wait until it runs.

    JSON output (--output json): the sandbox, as `get` shows it.
    """
    from prime_cli.core import output as out
    from prime_cli.hub.client import connect
    from prime_cli.sandboxes import platform

    with connect() as client:
        request = platform.SandboxRequest(
            image=image,
            name=name or _made_up_name(),
            cpu_cores=cpu_cores,
            memory_gb=memory_gb,
            disk_size_gb=disk_size_gb,
            gpu_count=gpu_count,
            timeout_minutes=timeout_minutes,
            idle_timeout_minutes=idle_timeout_minutes,
            start_command=_start_command(start_command, command or []),
            environment=platform.parse_variables(env or [], "--env"),
            secrets=platform.parse_variables(secret or [], "--secret"),
            labels=label or [],
            network_allowlist=network_allow,
            network_denylist=network_deny,
            team_id=team_id or client.settings.team_id,
            min_level=min_level,
            vm=vm,
        )
        request.check()
        sandbox = platform.create(client, request)
        if not no_wait:
            sandbox = _running(client, sandbox)
    out.print_result(platform.in_snake_case(_without_token(sandbox)), _created_words(sandbox))


@app.command("list")
def list_sandboxes(
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only those, such as RUNNING.")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="Only those with it; repeat it.")] = None,
    team_id: Annotated[str | None, typer.Option(help="Those of a team; else as `prime switch` says.")] = None,
    page: Annotated[int, typer.Option("--page", "-p", min=1)] = 1,
    num: Annotated[int, typer.Option("--num", "-n", min=1, max=100, help="Sandboxes on a page.")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="Those that have ended too.")] = False,
) -> None:
    """List your sandboxes, newest first.

    JSON output (--output json): {sandboxes: [{id, name, image, status, resources, labels, created_at,
    timeout_minutes, expires_at}], total, page, per_page, has_next}
    """
    from prime_cli.core import output as out
    from prime_cli.hub.client import connect
    from prime_cli.sandboxes import platform

    with connect() as client:
        found = platform.list_page(
            client,
            page,
            num,
            team_id=team_id or client.settings.team_id,
            status=status.upper() if status else None,
            labels=label,
            is_active=None if everything or status else "true",
        )
    rows = [_listed(row) for row in found.get("sandboxes") or []]
    if out.mode().json:
        shown = {"total": found.get("total"), "page": page, "per_page": num, "has_next": bool(found.get("hasNext"))}
        out.print_json({"sandboxes": rows, **shown})
        return
    columns = ("id", "name", "image", "status", "resources", "labels", "created")
    cells = ([*(row[key] for key in columns[:5]), ", ".join(row["labels"]), _minute(row["created_at"])] for row in rows)
    out.print_table(columns, cells)
    if found.get("hasNext"):
        out.note(f"{len(rows)} of {found.get('total')}; more by `--page {page + 1}`")


app.command("ls", hidden=True)(list_sandboxes)


@app.command()
def get(sandbox_id: SandboxId) -> None:
    """Show a sandbox: its state, what it may use, and how far each limit is held.

    JSON output (--output json): the sandbox: {id, name, docker_image, status, cpu_cores, memory_gb, disk_size_gb,
    timeout_minutes, created_at, enforcement: {level, backend, limits, held, notes}, error_type, error_message, ...}
    """
    from prime_cli.core import output as out
    from prime_cli.hub.client import connect
    from prime_cli.sandboxes import platform

    with connect() as client:
        sandbox = platform.find(client, sandbox_id)
    if out.mode().json:
        out.print_json(platform.in_snake_case(sandbox))
        return
    out.print_table(("", ""), [row for row in _facts(sandbox) if row[1] not in (None, "", [])])


@app.command()
def logs(sandbox_id: SandboxId) -> None:
    """Print the last that the start command of a sandbox wrote.

    JSON output (--output json): {logs}
    """
    from prime_cli.core.output import print_result
    from prime_cli.hub.client import connect
    from prime_cli.sandboxes import platform

    with connect() as client:
        found = platform.in_sandbox(sandbox_id, lambda path: client.get(f"{path}/logs"))
    print_result({"logs": found.get("logs") or ""}, str(found.get("logs") or "").removesuffix("\n"))


def _start_command(text: str | None, argv: list[str]) -> str | dict[str, Any] | None:
    from prime_cli.core.errors import BadInput

    if text is not None and argv:
        raise BadInput("a sandbox has one start command", hint="give --start-command TEXT, or -- COMMAND...")
    return {"executable": argv[0], "args": argv[1:]} if argv else text


def _made_up_name() -> str:
    import secrets

    return f"sandbox-{secrets.token_hex(3)}"


def _running(client: HubClient, sandbox: dict[str, Any]) -> dict[str, Any]:
    """Wait until a sandbox runs, with something to look at."""
    from contextlib import ExitStack

    from prime_cli.core import output as out
    from prime_cli.sandboxes import platform

    with ExitStack() as stack:
        shown = stack.enter_context(out.stderr_console().status("asking")) if out.is_interactive() else None

        def told(status: str) -> None:
            if shown is not None:
                shown.update(f"{sandbox['id']} is {status}")

        try:
            return platform.wait_until_running(client, sandbox, told=told)
        except KeyboardInterrupt:
            out.warn(
                f"sandbox {sandbox['id']} was asked for and may come; `prime sandbox delete {sandbox['id']}` ends it"
            )
            raise


def _without_token(sandbox: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in sandbox.items() if key != "gatewayAuth"}


def _created_words(sandbox: dict[str, Any]) -> str:
    rows = [(label, value) for label, value in _facts(sandbox) if label in _SHOWN_WHEN_CREATED and value]
    return "\n".join(f"{label:<10} {value}" for label, value in rows)


_SHOWN_WHEN_CREATED = ("id", "status", "image", "level", "cpu", "memory", "disk", "ends", "note")


def _facts(sandbox: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return what is worth knowing of a sandbox, with the limits as they are really held."""
    enforcement = sandbox.get("enforcement") or {}
    held = enforcement.get("held") or {}
    backend = enforcement.get("backend")
    level = enforcement.get("level")
    return [
        ("id", sandbox.get("id")),
        ("name", sandbox.get("name")),
        ("status", sandbox.get("status")),
        ("why", None if sandbox.get("status") == "RUNNING" else _why(sandbox)),
        ("exit code", sandbox.get("exitCode")),
        ("image", sandbox.get("dockerImage")),
        ("level", f"{level} ({backend})" if level else None),
        ("cpu", _limit(f"{sandbox.get('cpuCores'):g} cores", held.get("cpu_cores"))),
        ("memory", _limit(_size(sandbox, "memoryGB", "memory_bytes"), held.get("memory_bytes"))),
        ("disk", _limit(_size(sandbox, "diskSizeGB", "disk_bytes"), held.get("disk_bytes"))),
        ("network", _network(sandbox)),
        *(("note", note) for note in enforcement.get("notes") or []),
        ("labels", ", ".join(sandbox.get("labels") or [])),
        ("created", _minute(sandbox.get("createdAt"))),
        ("ends", _ends(sandbox)),
        ("ended", _minute(sandbox.get("terminatedAt"))),
    ]


def _network(sandbox: dict[str, Any]) -> str:
    allowed, denied = sandbox.get("networkAllowlist"), sandbox.get("networkDenylist")
    if denied is not None:
        return f"all but {', '.join(denied)}" if denied else "everybody"
    return ", ".join(allowed) if allowed else "nobody"


def _size(sandbox: dict[str, Any], asked: str, enforced: str) -> str:
    """Return a size in GiB: what is enforced, and what was asked for where that is more."""
    asked_gib = float(sandbox.get(asked) or 0)
    size_bytes = ((sandbox.get("enforcement") or {}).get("limits") or {}).get(enforced)
    given_gib = size_bytes / 1024**3 if size_bytes else asked_gib
    return f"{given_gib:.3g} GiB" + (f" of {asked_gib:.3g} asked for" if given_gib < asked_gib * 0.999 else "")


def _limit(value: str, held: str | None) -> str:
    return f"{value}, {held}" if held not in (None, "enforced", "lowered") else value


def _why(sandbox: dict[str, Any]) -> str | None:
    from prime_cli.sandboxes.platform import why_ended

    told = why_ended(sandbox)
    return told if told != str(sandbox.get("status")) else None


def _ends(sandbox: dict[str, Any]) -> str | None:
    if sandbox.get("terminatedAt"):
        return None
    return _minute(_expires_at(sandbox)) or "when it is deleted"


def _expires_at(sandbox: dict[str, Any]) -> str | None:
    """Return when its lifetime is over."""
    from datetime import datetime, timedelta

    minutes = sandbox.get("timeoutMinutes") or 0
    began = sandbox.get("startedAt") or sandbox.get("createdAt")
    if minutes <= 0 or not began:
        return None
    return (datetime.fromisoformat(str(began)) + timedelta(minutes=minutes)).isoformat()


def _minute(moment: Any) -> str:
    return str(moment or "")[:16].replace("T", " ")


def _listed(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row.get("id"),
        "name": row.get("name"),
        "image": row.get("dockerImage"),
        "status": row.get("status"),
        "resources": f"{row.get('cpuCores'):g} cpu, {row.get('memoryGB'):g} GiB, {row.get('diskSizeGB'):g} GiB disk",
        "labels": row.get("labels") or [],
        "created_at": row.get("createdAt"),
        "timeout_minutes": row.get("timeoutMinutes"),
        "expires_at": _expires_at(row),
    }


sandbox_run.register(app)
sandbox_delete.register(app)
sandbox_network.register(app)
sandbox_serve.register(app)
sandbox_doctor.register(app)
app.add_typer(sandbox_image.app, name="image")
