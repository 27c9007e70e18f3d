"""The commands of `prime env` that talk with a hub: upload, list, info, versions, pull."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prime_cli.commands.env_change import delete_version
from prime_cli.core.command_groups import new_group

if TYPE_CHECKING:
    from prime_cli.environments.project import EnvironmentProject, VersionPart
    from prime_cli.environments.wheel_facts import WheelFacts

_ENVIRONMENTS = Path("environments")
HubName = Annotated[str, typer.Argument(metavar="OWNER/NAME[@VERSION]")]


def register(app: typer.Typer) -> None:
    """Add the commands to `prime env`."""
    app.command("upload")(upload)
    app.command("push", help="The same as upload.")(upload)
    app.command("list", epilog=_LIST_EPILOG)(list_environments)
    app.command("ls", hidden=True)(list_environments)
    app.command("info")(info)
    app.command("pull")(pull)
    app.add_typer(_versions(), name="version")
    app.command("versions", hidden=True)(versions)


_LIST_EPILOG = (
    "JSON output (--output json): {environments: [{environment, description, visibility, version, stars, downloads, "
    "updated_at, tags}], total, page, per_page}; with --local {environments: [{name, folder, folder_version, "
    "installed_version, origin, problem}]}."
)


def upload(
    name: Annotated[str | None, typer.Argument(help="A local environment, its folder, or a wheel.")] = None,
    path: Annotated[Path, typer.Option("--path", "-p", help="Where environments lie.")] = _ENVIRONMENTS,
    visibility: Annotated[
        str | None, typer.Option("--visibility", "-v", metavar="PUBLIC|PRIVATE", help="Who may see it.")
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", "-o", help="Publish under this name.")] = None,
    runtime: Annotated[
        str | None, typer.Option("--runtime", metavar="v0|v1", help="The API it is written for, if it does not say.")
    ] = None,
    team: Annotated[str | None, typer.Option("--team", "-t", help="Publish under this team.")] = None,
    auto_bump: Annotated[bool, typer.Option("--auto-bump", help="Raise the patch version first.")] = False,
    rc: Annotated[bool, typer.Option("--rc", help="Make it the next release candidate first.")] = False,
    post: Annotated[bool, typer.Option("--post", help="Make it the next post-release first.")] = False,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not import it first.")] = False,
) -> None:
    """Build an environment and publish it on the hub; a published version never changes."""
    from prime_cli.commands.transfer_display import transfer_display
    from prime_cli.core import output as out
    from prime_cli.core.errors import BadInput
    from prime_cli.environments.project import find_project, raised_version
    from prime_cli.environments.publish import Destination, publish
    from prime_cli.hub.client import connect

    if visibility is not None and visibility.upper() not in ("PUBLIC", "PRIVATE"):
        raise BadInput(f"invalid visibility {visibility!r}", hint="use PUBLIC or PRIVATE")
    if runtime is not None and runtime.lower() not in ("v0", "v1"):
        raise BadInput(f"invalid runtime {runtime!r}", hint="use v0, the classic interface of verifiers, or v1")
    is_wheel = name is not None and name.endswith(".whl")
    part = _part_to_raise(auto_bump=auto_bump, rc=rc, post=post)
    if is_wheel and part:
        raise BadInput("a built wheel has its version", hint="give the environment's name to raise its version")
    hint = f"VERIFIERS_{runtime.upper()}" if runtime else None
    destination = Destination(owner, team, visibility.upper() if visibility else None, hint)
    with connect() as client, transfer_display() as progress:
        if is_wheel:
            wheel, project = _read_given_wheel(Path(str(name)))
            published = publish(client, wheel, project, destination, progress)
        else:
            project = find_project(name, path)
            with raised_version(project, part) as project:
                published = publish(client, _built(project, no_check), project, destination, progress)
    full_name = f"{published.owner}/{published.name}"
    out.print_result(
        {
            "environment": full_name,
            "version": published.version,
            "content_hash": published.content_hash,
            "url": published.url,
            "already_published": published.already,
        },
        f"{full_name} {published.version} {'is already published' if published.already else 'published'}\n"
        f"page:    {published.url}\ninstall: prime env install {full_name}",
    )


def _part_to_raise(*, auto_bump: bool, rc: bool, post: bool) -> VersionPart | None:
    from prime_cli.core.errors import BadInput

    if auto_bump + rc + post > 1:
        raise BadInput("--auto-bump, --rc and --post raise the version in different ways", hint="give one of them")
    return "patch" if auto_bump else "rc" if rc else "post" if post else None


def list_environments(
    num: Annotated[int, typer.Option("--num", "-n", min=1, max=1000, help="Rows on a page.")] = 20,
    page: Annotated[int, typer.Option("--page", "-p", min=1)] = 1,
    owner: Annotated[str | None, typer.Option(help="Of this owner.")] = None,
    visibility: Annotated[str | None, typer.Option(help="PUBLIC or PRIVATE.")] = None,
    search: Annotated[str | None, typer.Option("--search", "-s", help="With these words, the best fit first.")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", "-t", help="With this tag; may be repeated.")] = None,
    sort: Annotated[str | None, typer.Option(metavar="name|created_at|updated_at|stars|downloads")] = None,
    order: Annotated[str, typer.Option(metavar="asc|desc")] = "desc",
    starred: Annotated[bool, typer.Option("--starred", help="Only those that you starred.")] = False,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own and your teams'.")] = False,
    local: Annotated[bool, typer.Option("--local", help="What this workspace has, instead of the hub.")] = False,
) -> None:
    """List environments on the hub, or with --local those of this workspace."""
    from prime_cli.core import output as out
    from prime_cli.environments.hub_catalog import fetch_page
    from prime_cli.hub.client import connect

    if local:
        _list_local()
        return
    with connect(login_required=mine or starred) as client:
        found = fetch_page(
            client, page=page, size=num, owner=owner, visibility=visibility.upper() if visibility else None,
            search=search, tags=tag or None, sort_by=sort, sort_order=order, mine_only=mine or None,
            starred_only=starred or None,
        )  # fmt: skip
    rows = [
        {
            "environment": f"{(row.get('owner') or {}).get('name', '')}/{row.get('name', '')}",
            "description": row.get("description"),
            "visibility": row.get("visibility"),
            "version": row.get("latest_version"),
            "stars": row.get("stars"),
            "downloads": row.get("downloads"),
            "updated_at": row.get("updated_at"),
            "tags": row.get("tags") or [],
        }
        for row in found.rows
    ]
    if out.mode().json:
        out.print_json({"environments": rows, "total": found.total, "page": page, "per_page": num})
        return
    columns = ("environment", "version", "visibility", "stars", "description")
    out.print_table(columns, [[row[column] for column in columns] for row in rows])
    out.note(f"{len(rows)} of {found.total}" + (f" (page {page})" if found.total > num else ""))


def info(
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME[@VERSION]|NAME")],
    version: Annotated[str, typer.Option("--version", "-v", help="latest, a version, or a content hash.")] = "latest",
) -> None:
    """Show one environment: of the hub, or by its plain name one of this workspace."""
    from dataclasses import replace

    from prime_cli.environments.hub_catalog import fetch_details
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    identity = parse_environment_id(name)
    if identity.owner is None:
        _info_local(identity.distribution)
        return
    with connect(login_required=False) as client:
        details = fetch_details(client, replace(identity, version=identity.version or version))
    facts: dict[str, Any] = {
        "environment": f"{details.owner}/{details.name}",
        "version": details.version,
        "latest_version": (details.raw.get("latest_version") or {}).get("semantic_version"),
        "yanked": _yanked(details.raw),
        "check": _check(details.raw),
        "visibility": details.visibility,
        "status": _status(details.raw),
        "description": details.description,
        "published": details.raw.get("created_at"),
        "content_hash": details.content_hash,
        "wheel_sha256": details.raw.get("wheel_sha256"),
        "stars": details.raw.get("stars"),
        "downloads": details.raw.get("downloads"),
        "forked_from": _forked_from(details.raw),
        "warnings": details.raw.get("dependency_warnings") or [],
        "dependencies": (details.raw.get("metadata") or {}).get("dependencies") or [],
        "install": f"prime env install {details.owner}/{details.name}@{details.version}",
    }
    index = details.raw.get("simple_index_url")
    if index:
        facts["install_by_pip"] = f"pip install {details.distribution}=={details.version} --extra-index-url {index}"
    _print_facts(facts)


def _forked_from(raw: dict[str, Any]) -> str:
    source = (raw.get("metadata") or {}).get("forked_from") or {}
    return f"{source['owner']}/{source['name']}@{source['version']}" if source else ""


def versions(name: HubName, full_hashes: Annotated[bool, typer.Option("--full-hashes")] = False) -> None:
    """List the published versions of an environment, newest first."""
    from prime_cli.core import output as out
    from prime_cli.environments.hub_catalog import fetch_versions
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    with connect(login_required=False) as client:
        rows = fetch_versions(client, parse_environment_id(name))
    if out.mode().json:
        out.print_json({"versions": rows})
        return
    length = None if full_hashes else 8
    cells = [
        (
            row.get("version"), _moment(row.get("created_at")), str(row.get("sha256") or "")[:length], _badge(row),
            _yanked(row),
        )
        for row in rows
    ]  # fmt: skip
    out.print_table(("version", "published", "content hash", "check", "yanked"), cells)


def pull(
    name: HubName,
    target: Annotated[Path | None, typer.Option("--target", "-t", help="The folder to write.")] = None,
    version: Annotated[str, typer.Option("--version", "-v")] = "latest",
) -> None:
    """Download the source of an environment into the workspace."""
    from dataclasses import replace

    from prime_cli.core import output as out
    from prime_cli.environments.pull import pull_environment
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    identity = parse_environment_id(name)
    with connect(login_required=False) as client:
        pulled = pull_environment(client, replace(identity, version=identity.version or version), target)
    out.print_result(
        {"environment": pulled.environment, "version": pulled.version, "path": str(pulled.path)},
        f"{pulled.environment} {pulled.version} written to {pulled.path}",
    )


def _status(row: dict[str, Any]) -> str:
    """Return how the whole environment is marked; nothing for one that is active."""
    status, reason = row.get("project_status") or "active", row.get("status_reason")
    if status == "active":
        return ""
    return f"{status}: {reason}" if reason else str(status)


def _badge(row: dict[str, Any]) -> str:
    """Return what a hub's check of a version came to in two words; nothing of hubs that make none."""
    return str((row.get("check") or {}).get("badge") or "")


def _check(details: dict[str, Any]) -> str:
    """Return what a hub's check of a version found, in a line."""
    check = details.get("check") or {}
    reason = check.get("reason") or (check.get("rollout") or {}).get("reason")
    sizes = f"{check['num_train']} to train, {check['num_eval']} to evaluate" if "num_train" in check else ""
    return "; ".join(part for part in (_badge(details), reason, sizes) if part)


def _yanked(row: dict[str, Any]) -> str:
    """Return words for a version that was taken back, nothing for others."""
    reason = row.get("yanked_reason")
    return (f"yes: {reason}" if reason else "yes") if row.get("yanked") else ""


def _versions() -> typer.Typer:
    group = new_group("Published versions.")
    group.command("list")(versions)
    group.command("ls", hidden=True)(versions)
    group.command("delete")(delete_version)
    return group


def _built(project: EnvironmentProject, no_check: bool) -> WheelFacts:
    from prime_cli.core import output as out
    from prime_cli.environments.build import build_wheel
    from prime_cli.environments.check import check_project
    from prime_cli.environments.workspace import workspace_python

    out.note(f"checking and building {project.name} {project.version or ''}")
    check_project(project, workspace_python(), by_import=not no_check)
    return build_wheel(project)


def _read_given_wheel(path: Path) -> tuple[WheelFacts, EnvironmentProject | None]:
    from prime_cli.environments.publish import project_beside
    from prime_cli.environments.wheel_facts import read_wheel

    wheel = read_wheel(path)
    return wheel, project_beside(wheel)


def _list_local() -> None:
    from dataclasses import asdict

    from prime_cli.core import output as out
    from prime_cli.environments.local import list_local

    found = list_local()
    if out.mode().json:
        out.print_json({"environments": [asdict(entry) for entry in found]})
        return
    columns = ("environment", "folder", "version", "installed", "from")
    rows = [
        (entry.name, entry.folder, entry.problem or entry.folder_version, entry.installed_version, entry.origin)
        for entry in found
    ]
    out.print_table(columns, rows)


def _info_local(name: str) -> None:
    from dataclasses import asdict

    from prime_cli.core.errors import PrimeError
    from prime_cli.environments.local import list_local
    from prime_cli.environments.package_names import nearest

    found = {entry.name: entry for entry in list_local()}
    if name not in found:
        guess = nearest(name, list(found))
        hint = f"did you mean `{guess}`?" if guess else f"on a hub it is OWNER/{name}"
        raise PrimeError(f"this workspace has no environment {name!r}", hint=hint)
    _print_facts(asdict(found[name]))


def _print_facts(facts: dict[str, Any]) -> None:
    """Print facts one to a line, unwrapped: commands among them are there to be copied."""
    from prime_cli.core import output as out

    if out.mode().json:
        out.print_json(facts)
        return
    for key, value in facts.items():
        if value:
            text = ", ".join(value) if isinstance(value, list) else _moment(value) if key == "published" else value
            typer.echo(f"{key.replace('_', ' '):<18} {text}")


def _moment(text: Any) -> str:
    """Return an ISO time as people write it, in local time to the minute; anything else as it is."""
    from datetime import datetime

    try:
        return f"{datetime.fromisoformat(str(text)).astimezone():%Y-%m-%d %H:%M}"
    except ValueError:
        return str(text or "")
