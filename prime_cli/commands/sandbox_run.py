"""`prime sandbox run`, `upload` and `download`: what goes through a node's gateway; and `ssh`, which does not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from prime_cli.sandboxes.gateway import RemoteCommand

SandboxId = Annotated[str, typer.Argument(metavar="ID")]


class CommandBehindAnId(TyperCommand):
    """Reads options before the id and right after it; what follows is somebody else's command line, as it stands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move options that stand between the id and the command before the id."""
        ctx.allow_interspersed_args = False
        options, behind = self._split(ctx, args)
        if not behind:
            return super().parse_args(ctx, args)
        more, command = self._split(ctx, behind[1:])
        return super().parse_args(ctx, [*options, *more, "--", behind[0], *command])

    def _split(self, ctx: Any, args: list[str]) -> tuple[list[str], list[str]]:
        """Return the options that `args` begins with, and what stands behind them; a `--` between is dropped."""
        told, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        first, others = told.get("sandbox_id"), told.get("command")
        count = isinstance(first, str) + (len(others) if isinstance(others, (list, tuple)) else 0)
        options = args[: len(args) - count]
        return options[:-1] if options[-1:] == ["--"] else options, args[len(args) - count :]


def register(app: typer.Typer) -> None:
    """Add the commands to `prime sandbox`."""
    app.command("run", cls=CommandBehindAnId)(run)
    app.command("upload")(upload)
    app.command("download")(download)
    app.command("ssh", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(ssh)


def run(
    sandbox_id: SandboxId,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="A program and its arguments, or one text for a shell.")
    ],
    working_dir: Annotated[str | None, typer.Option("--working-dir", "-w", help="Where it runs.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE", help="Repeat it.")] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End it, with all it started, after so long.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="As whom it runs: a name or number.")] = None,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="Pass stdin on to it.")] = False,
) -> None:
    """Run a command in a sandbox: its output as it comes, its exit code as ours. Ctrl-C goes to the command.

    Options stand before the command. `prime sandbox run ID -- ls -l` starts a program; a single text such as
    'ls | wc -l' goes to a shell.

    JSON output (--output json), at its end: {exit_code, stdout, stderr, timed_out, remark}
    """
    from prime_cli.core.errors import BadInput
    from prime_cli.hub.client import connect
    from prime_cli.sandboxes.gateway import RemoteCommand, access_to
    from prime_cli.sandboxes.platform import parse_variables

    if timeout is not None and timeout <= 0:
        raise BadInput(f"--timeout is a number of seconds above 0, found {timeout:g}")
    wanted = RemoteCommand(
        argv=_argv(command),
        working_dir=working_dir,
        environment=parse_variables(env or [], "--env"),
        user=user,
        timeout_s=timeout,
        stdin=interactive,
    )
    with connect() as client:
        access = access_to(client, sandbox_id)
    raise typer.Exit(_run_and_print(access, wanted))


def upload(
    sandbox_id: SandboxId,
    local_file: Annotated[str, typer.Argument(metavar="LOCAL_FILE", help="A file; - is stdin.")],
    remote_path: Annotated[str, typer.Argument(metavar="REMOTE_PATH", help="The file in the sandbox.")],
) -> None:
    """Copy a file into a sandbox; folders above it are made.

    JSON output (--output json): {sandbox_id, path, size}
    """
    from prime_cli.commands.transfer_display import transfer_display
    from prime_cli.core.output import print_result
    from prime_cli.hub.client import connect
    from prime_cli.sandboxes.gateway import Gateway, access_to

    with _opened(local_file, sandbox_id) as source:
        with connect() as client:
            access = access_to(client, sandbox_id)
        with Gateway(access) as gateway, transfer_display() as show:
            told = gateway.upload(source, remote_path, lambda done, total: show(local_file, done, total))
    size = told.get("size")
    print_result({"sandbox_id": sandbox_id, "path": remote_path, "size": size}, f"{remote_path}: {size} bytes")


def download(
    sandbox_id: SandboxId,
    remote_path: Annotated[str, typer.Argument(metavar="REMOTE_PATH", help="The file in the sandbox.")],
    local_file: Annotated[str, typer.Argument(metavar="LOCAL_FILE", help="A file or folder; - is stdout.")],
) -> None:
    """Copy a file out of a sandbox; it appears whole or not at all.

    JSON output (--output json): {sandbox_id, path, size}, not where the file goes to stdout
    """
    from prime_cli.core.output import print_result
    from prime_cli.hub.client import connect
    from prime_cli.sandboxes.gateway import Gateway, access_to, download_to

    with connect() as client:
        access = access_to(client, sandbox_id)
    with Gateway(access) as gateway:
        if local_file == "-":
            gateway.download(remote_path, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        path = Path(local_file)
        path = path / Path(remote_path).name if path.is_dir() else path
        size = download_to(gateway, remote_path, path)
    print_result({"sandbox_id": sandbox_id, "path": str(path), "size": size}, f"{path}: {size} bytes")


def ssh(
    sandbox_id: Annotated[str | None, typer.Argument(metavar="ID")] = None,
    shell: Annotated[str | None, typer.Option("--shell", "-s", hidden=True)] = None,
) -> None:
    """Say why there is no SSH here, and what there is instead."""
    from prime_cli.core.errors import PrimeError

    name = sandbox_id or "ID"
    raise PrimeError(
        "sandboxes take no SSH: they have no network of their own, and nothing in them listens",
        hint=f"`prime sandbox run -i {name} -- bash` reads commands from stdin; `upload` and `download` copy files",
    )


# A text is for bash where the image has it, as the Python SDK has it, else for sh.
_SHELL = '[ -x /bin/bash ] && exec /bin/bash -c "$1"; exec /bin/sh -c "$1"'


def _argv(command: list[str]) -> list[str]:
    return ["/bin/sh", "-c", _SHELL, "sh", command[0]] if len(command) == 1 else command


def _run_and_print(access: Any, wanted: RemoteCommand) -> int:
    from prime_cli.core import output as out
    from prime_cli.sandboxes.attached import Attached
    from prime_cli.sandboxes.gateway import Finished, Gateway, TimedOut

    with Gateway(access) as gateway:
        attached = Attached(gateway, wanted, stdin=sys.stdin.buffer if wanted.stdin else None)
        if not out.mode().json:
            finished = attached.copy_to(sys.stdout.buffer, sys.stderr.buffer)
            if finished.remark:
                out.warn(finished.remark)
            return finished.exit_code
        kept: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        timed_out, finished = False, Finished(TimedOut.exit_code, "")
        try:
            finished = attached.each(lambda stream, data: kept[stream].extend(data))
        except TimedOut:
            timed_out = True
    texts = {name: kept[stream].decode(errors="replace") for stream, name in ((1, "stdout"), (2, "stderr"))}
    shown = {"exit_code": finished.exit_code, **texts, "timed_out": timed_out, "remark": finished.remark or None}
    out.print_json(shown)
    return finished.exit_code


def _opened(local_file: str, sandbox_id: str) -> IO[bytes]:
    from prime_cli.core.errors import BadInput

    if local_file == "-":
        return sys.stdin.buffer
    try:
        return Path(local_file).open("rb")
    except IsADirectoryError:
        hint = f"tar -C {local_file} -c . | prime sandbox run -i {sandbox_id} -- tar -x -C FOLDER"
        raise BadInput(f"{local_file} is a folder", hint=hint) from None
    except OSError as error:
        raise BadInput(f"cannot read {local_file}: {error.strerror}") from None
