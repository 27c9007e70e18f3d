"""`prime sandbox image`: the root file systems that a node of this machine can make sandboxes of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prime_cli.commands.sandbox_options import NodeDataDir, node_data_dir, node_words
from prime_cli.core.command_groups import new_group

if TYPE_CHECKING:
    from hub_server.sandbox_node.images.store import ImageStore, StoredImage

app = new_group("Keep the images that the node of this machine makes sandboxes of.")

ImageName = Annotated[str, typer.Argument(metavar="NAME", help="Its name and tag, such as python:3.11-slim.")]


@app.command("list")
def list_images(
    hub: Annotated[bool, typer.Option("--hub", help="Those of all nodes of the hub, for everybody to use.")] = False,
    data_dir: NodeDataDir = None,
) -> None:
    """List the images of the node.

    JSON output (--output json): {images: [{name, source, digest, size_bytes, added_at, alias_of}]}; with --hub
    {images: [{name}]}
    """
    from prime_cli.core import output as out

    if hub:
        _print_images_of_hub()
        return
    with node_words():
        images = _store(data_dir).list()
    if out.mode().json:
        out.print_json({"images": [_data(image) for image in images]})
        return
    rows = ((image.name, _size(image), _added(image), _source(image)) for image in images)
    out.print_table(("name", "size", "added", "from"), rows)


app.command("ls", hidden=True)(list_images)


@app.command("import")
def import_image(
    source: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="An OCI or Docker archive, an OCI layout, or a tar of a root file system."),
    ],
    name: ImageName,
    tag: Annotated[str | None, typer.Option(help="Which one, where the archive holds several.")] = None,
    data_dir: NodeDataDir = None,
) -> None:
    """Take an image from a file, such as `docker save` writes. One that has the name already is replaced.

    JSON output (--output json): {name, source, digest, size_bytes, added_at, alias_of}
    """
    with node_words():
        added = _store(data_dir).import_archive(source, name, tag=tag)
    _print_added(added)


@app.command()
def pull(
    name: ImageName,
    registry: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGISTRY", help="Where it comes from, if elsewhere: docker.io=https://MIRROR, http://HOST."
        ),
    ] = None,
    registry_logins: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file that `skopeo login --authfile` wrote.")
    ] = None,
    data_dir: NodeDataDir = None,
) -> None:
    """Fetch an image from a registry.

    JSON output (--output json): {name, source, digest, size_bytes, added_at, alias_of}
    """
    with node_words():
        from hub_server.sandbox_node.images.references import DOCKER_HUB, parse
        from hub_server.sandbox_node.images.registries import NodeImages, Registry

        given = [Registry.parse(text) for text in registry or []]
        wanted = parse(name).registry or DOCKER_HUB
        if wanted not in {each.name for each in given}:
            given.append(Registry.parse(wanted))
        added = NodeImages(_store(data_dir), given, logins=registry_logins).pull(name)
    _print_added(added)


@app.command()
def debian(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="A release of Debian or Ubuntu, such as bookworm.")],
    name: ImageName,
    package: Annotated[list[str] | None, typer.Option("--package", "-p", help="What more it has; repeat it.")] = None,
    mirror: Annotated[str | None, typer.Option(metavar="URL", help="Where its packages come from.")] = None,
    data_dir: NodeDataDir = None,
) -> None:
    """Make an image of a Debian or Ubuntu release, with packages of your choice; no registry is needed.

    JSON output (--output json): {name, source, digest, size_bytes, added_at, alias_of}
    """
    with node_words():
        added = _store(data_dir).import_debian(suite, name, packages=package or [], mirror=mirror)
    _print_added(added)


@app.command()
def alias(
    name: ImageName,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="What it is to mean; host is the node's own system.")],
    data_dir: NodeDataDir = None,
) -> None:
    """Let a name mean another image: nothing is ever put in the place of an image that is asked for, unless you say so.

    JSON output (--output json): {name, source, digest, size_bytes, added_at, alias_of}
    """
    with node_words():
        added = _store(data_dir).add_alias(name, image)
    _print_added(added)


@app.command()
def remove(name: ImageName, data_dir: NodeDataDir = None) -> None:
    """Remove an image or an alias. Sandboxes that use it live on, and its files go with the last of them.

    JSON output (--output json): {name, files_removed}
    """
    from prime_cli.core.output import print_result

    with node_words():
        removed = _store(data_dir).remove(name)
    words = "removed" if removed else "removed; its files stay while something uses them"
    print_result({"name": name, "files_removed": removed}, f"{name} {words}")


app.command("rm", hidden=True)(remove)


def _print_images_of_hub() -> None:
    from prime_cli.core import output as out
    from prime_cli.hub.client import connect

    with connect() as client:
        images = [str(image["id"]) for image in client.get("images", limit=1000).get("data") or []]
    if out.mode().json:
        out.print_json({"images": [{"name": name} for name in images]})
    else:
        out.print_table(("name",), [(name,) for name in images])


def _store(data_dir: Path | None) -> ImageStore:
    from hub_server.sandbox_node.images.store import ImageStore

    return ImageStore(node_data_dir(data_dir) / "images")


def _print_added(image: StoredImage) -> None:
    from prime_cli.core.output import print_result

    what = f"means {image.alias_of}" if image.alias_of else f"{_size(image)}  {image.digest}"
    print_result(_data(image), f"{image.name}  {what}")


def _data(image: StoredImage) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(image), "added_at": image.added_at.isoformat() if image.added_at else None}


def _size(image: StoredImage) -> str:
    return f"{image.size_bytes / 1024**2:.0f} MiB" if image.digest else ""


def _added(image: StoredImage) -> str:
    return image.added_at.strftime("%Y-%m-%d %H:%M") if image.added_at else ""


def _source(image: StoredImage) -> str:
    return f"an alias of {image.alias_of}" if image.alias_of else image.source
