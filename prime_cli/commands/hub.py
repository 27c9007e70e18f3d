"""`prime hub`: run an Environments Hub of your own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from prime_cli.commands import hub_check, hub_token
from prime_cli.commands.hub_options import Blobs, DatabaseUrl, DataDir, data_dir_of, import_server
from prime_cli.core.command_groups import new_group

if TYPE_CHECKING:
    from hub_server.serve import Serving

app = new_group("Run an Environments Hub of your own.")

app.add_typer(hub_token.app, name="token")
hub_check.register(app)


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8480,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = "",
    blobs: Blobs = "",
    rate_limits: Annotated[bool, typer.Option(help="Refuse who uploads or logs in far too often.")] = True,
    checks: Annotated[
        int, typer.Option(metavar="N", min=0, max=64, help="Check N published versions at once; 0 checks none.")
    ] = 1,
    checks_network: Annotated[
        bool, typer.Option("--checks-network", help="Let environments use the network while they are checked.")
    ] = False,
    checks_unconfined: Annotated[
        bool, typer.Option("--checks-unconfined", help="Check without isolation: for hubs whose users you trust.")
    ] = False,
    checks_timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=1, help="How long loading and one rollout may take, after installing."),
    ] = 180,
    checks_memory: Annotated[int, typer.Option(metavar="MIB", min=64, help="Memory of one check.")] = 4096,
    sandboxes: Annotated[
        bool, typer.Option(help="Run sandboxes on this machine too, where it can isolate them.")
    ] = True,
    sandboxes_min_level: Annotated[
        Literal["none", "restricted", "container", "gvisor"],
        typer.Option("--sandboxes-min-level", help="Take no sandbox node that isolates less than this."),
    ] = "container",
    sandboxes_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of this machine's sandboxes; 0 takes a free one.")
    ] = 0,
    sandboxes_url: Annotated[
        str, typer.Option(metavar="URL", help="Where others reach this machine's sandboxes, behind a proxy.")
    ] = "",
    sandboxes_allow: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Whom sandboxes may reach whose makers say nothing; may be repeated."),
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write {url, pid, admin_key_path} here once it answers.")
    ] = None,
    public_url: Annotated[
        str, typer.Option(metavar="URL", envvar="PRIME_HUB_PUBLIC_URL", help="Where others reach it, behind a proxy.")
    ] = "",
    trusted_proxies: Annotated[
        str,
        typer.Option(
            metavar="ADDRESSES",
            envvar="PRIME_HUB_TRUSTED_PROXIES",
            help="Whose X-Forwarded-For and X-Forwarded-Proto count: addresses or networks, with commas between.",
        ),
    ] = "127.0.0.1,::1",
    sigstore_trust_root: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="PRIME_HUB_SIGSTORE_TRUST_ROOT",
            help="Verify attestations by this trusted_root.json, in place of Sigstore's public one.",
        ),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="How the log on stderr looks; json writes an object a line.")
    ] = "text",
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option(help="The least important lines to log.")
    ] = "info",
) -> None:
    """Serve a hub until Ctrl-C. The first start makes an administrator and stores its API key.

    JSON output (--output json), once it answers: {url, pid, data_dir, admin_key_path, first_start}
    """
    from functools import partial

    server = import_server()
    from hub_server.checks.options import RunnerOptions
    from hub_server.operation.logs import LogFormat, LogLevel
    from hub_server.sandbox_node.specification import Level
    from hub_server.sandboxes.beside import SandboxOptions

    server.serve(
        host=host,
        port=port,
        data_dir=data_dir_of(data_dir),
        database_url=database_url or None,
        blobs_url=blobs or None,
        public_url=public_url,
        trusted_proxies=trusted_proxies,
        log_format=LogFormat(log_format),
        log_level=LogLevel(log_level),
        rate_limits=rate_limits,
        ready_file=ready_file,
        sigstore_trust_root=sigstore_trust_root,
        checks=RunnerOptions(
            checks,
            isolated=not checks_unconfined,
            network=checks_network,
            time_s=checks_timeout,
            memory_mib=checks_memory,
        ),
        sandboxes=SandboxOptions(
            sandboxes, Level(sandboxes_min_level), sandboxes_port, sandboxes_url, tuple(sandboxes_allow or ())
        ),
        on_ready=partial(_say_ready, with_notes=log_format == "text"),
    )


@app.command()
def status(data_dir: DataDir = None) -> None:
    """Say whether the hub of a data folder runs, and where. Exit code 1 when it does not.

    JSON output (--output json): {running, url, pid, version, data_dir}
    """
    from prime_cli.core.output import print_result
    from prime_cli.hub.client import hub_version

    folder = data_dir_of(data_dir)
    facts = import_server().read_server_facts(folder)
    version = hub_version(str(facts["url"])) if facts else None
    shown: dict[str, Any] = {
        "running": version is not None,
        "url": facts["url"] if facts else None,
        "pid": facts["pid"] if facts else None,
        "version": version,
        "data_dir": str(folder),
    }
    if facts is None or version is None:
        print_result(shown, f"No hub runs on {folder}.")
        raise typer.Exit(1)
    print_result(shown, f"The hub of {folder} runs at {facts['url']} (version {version}, pid {facts['pid']}).")


@app.command("gc")
def collect_garbage(
    data_dir: DataDir = None,
    grace_hours: Annotated[
        float, typer.Option("--grace-hours", min=0, help="Keep what is younger than this; under 2 the hub must be off.")
    ] = 24.0,
    database_url: DatabaseUrl = "",
    blobs: Blobs = "",
) -> None:
    """Remove what nothing refers to: uploads that were cut off, and the bytes of deleted versions.

    JSON output (--output json): {drafts, blobs, bytes_freed, unfinished_uploads, blobs_kept, sandboxes}
    """
    from dataclasses import asdict
    from datetime import timedelta

    from prime_cli.core.output import print_result

    import_server()
    from hub_server.garbage import collect_garbage as collect

    done = collect(data_dir_of(data_dir), database_url or None, timedelta(hours=grace_hours), blobs_url=blobs or None)
    print_result(
        asdict(done),
        f"Removed {done.blobs} blobs ({done.bytes_freed} bytes), {done.drafts} drafts and "
        f"{done.unfinished_uploads} unfinished uploads, and forgot {done.sandboxes} sandboxes that ended a month ago; "
        f"{done.blobs_kept} blobs stay.",
    )


@app.command("rotate-secrets-key")
def rotate_secrets_key(
    data_dir: DataDir = None,
    forget_lost: Annotated[
        bool, typer.Option("--forget-lost", help="When the present key is lost: delete all values, and begin anew.")
    ] = False,
    database_url: DatabaseUrl = "",
) -> None:
    """Encrypt all secrets and variables anew under another key, in one transaction; the hub must be off.

    The key is the first of PRIME_HUB_SECRETS_KEY (NEW,OLD) where that is set, else a fresh one in secrets.key.

    JSON output (--output json): {resealed, forgotten, fingerprint, kept_in}
    """
    from dataclasses import asdict

    from prime_cli.core.output import print_result

    import_server()
    from hub_server.secrets.rotation import rotate_key_of

    done = rotate_key_of(data_dir_of(data_dir), database_url or None, forget_lost=forget_lost)
    lost = f" {done.forgotten} values that no key opens were deleted." if done.forgotten else ""
    print_result(asdict(done), f"Sealed {done.resealed} values anew.{lost} The key lies in {done.kept_in}.")


@app.command("backup")
def back_up(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A .tar file, or a folder that keeps many backups.")],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = "",
    blobs: Blobs = "",
    without_keys: Annotated[
        bool, typer.Option("--without-keys", help="Leave out the key files, which you keep elsewhere then.")
    ] = False,
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="In a folder: remove all but the newest N backups.")
    ] = None,
) -> None:
    """Back up a hub, beside its server or without: rows, blobs and keys, of one moment, with the hash of everything.

    Exit code 1 when blobs of the hub are missing or damaged; the backup then holds all others.

    JSON output (--output json): {path, made_at, tables, rows, blobs, blobs_copied, bytes, damaged, pruned}
    """
    from dataclasses import asdict

    from prime_cli.core.errors import PrimeError
    from prime_cli.core.output import print_result

    import_server()
    from hub_server.backups.backup import back_up as make_backup

    done = make_backup(
        data_dir_of(data_dir),
        database_url or None,
        target.absolute(),
        blobs_url=blobs or None,
        with_keys=not without_keys,
        keep=keep,
    )
    print_result(
        asdict(done),
        f"{done.path}: {done.rows} rows, {done.blobs} blobs ({done.blobs_copied} copied), {done.bytes} bytes",
    )
    if done.damaged:
        raise PrimeError(
            f"{len(done.damaged)} blobs of this hub are missing or damaged, the first is {done.damaged[0]}",
            hint="the backup holds everything else; look for them in an earlier one",
        )


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A .tar file, or a folder of backups.")],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = "",
    blobs: Blobs = "",
    snapshot: Annotated[
        str, typer.Option(metavar="NAME", help="Which backup of a folder; the newest when left out.")
    ] = "",
    check_only: Annotated[
        bool, typer.Option("--check-only", help="Read it all, compare every hash, write nothing.")
    ] = False,
) -> None:
    """Make a hub from a backup, in a new data folder; it appears there at once and whole, or not at all.

    JSON output (--output json): {data_dir, made_at, rows, blobs, bytes, damaged}; data_dir is null with --check-only
    """
    from dataclasses import asdict

    from prime_cli.core.output import print_result, warn

    import_server()
    from hub_server.backups.restore import restore as restore_hub
    from hub_server.backups.restore import verify

    if check_only:
        done = verify(source, snapshot or None)
    else:
        done = restore_hub(
            source, data_dir_of(data_dir), database_url or None, blobs_url=blobs or None, snapshot=snapshot or None
        )
    where = f"restored to {done.data_dir}" if done.data_dir else "is whole"
    print_result(
        asdict(done), f"The backup of {done.made_at} {where}: {done.rows} rows, {done.blobs} blobs, {done.bytes} bytes."
    )
    if done.damaged:
        warn(f"{len(done.damaged)} blobs were missing or damaged when it was made; their versions cannot be installed")


@app.command("add-user")
def add_user(
    slug: Annotated[str, typer.Argument(metavar="SLUG", help="3 to 30 of a-z, 0-9 and dashes.")],
    name: Annotated[str, typer.Option(help="The name to show.")] = "",
    key_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write the API key here (0600) instead of showing it.")
    ] = None,
) -> None:
    """Add a user to the hub you are logged in to as an administrator; their first API key is shown only now.

    JSON output (--output json): {id, slug, name, api_key or key_file}
    """
    from prime_cli.core.files import write_text_atomically
    from prime_cli.core.output import print_result
    from prime_cli.hub.client import connect

    with connect() as client:
        added = client.post("/users", {"slug": slug, "name": name})["data"]
    shown = {key: added[key] for key in ("id", "slug", "name")}
    if key_file is None:
        print_result({**shown, "api_key": added["api_key"]}, f"Added {slug}. API key: {added['api_key']}")
        return
    write_text_atomically(key_file, added["api_key"] + "\n", mode=0o600)
    print_result({**shown, "key_file": str(key_file)}, f"Added {slug}. The API key lies in {key_file}.")


def _say_ready(serving: Serving, *, with_notes: bool) -> None:
    from prime_cli.core.output import note, print_result, warn

    print_result(
        {
            "url": serving.url,
            "pid": serving.pid,
            "data_dir": str(serving.data_dir),
            "admin_key_path": str(serving.admin_key_path),
            "first_start": serving.is_first_start,
        },
        f"The hub answers at {serving.url}",
    )
    if not with_notes:
        return  # stderr carries nothing but JSON then
    if serving.is_first_start:
        note(f"First start: the administrator's API key lies in {serving.admin_key_path} (readable by you only).")
        note(f"Log in with: prime login --base-url {serving.url} --api-key-file {serving.admin_key_path}")
    if not (serving.is_loopback or serving.is_encrypted):
        warn("others reach this hub without encryption; put a TLS proxy in front of it")
    note("Ctrl-C stops it.")
