"""Images from a registry: a real one over HTTP on loopback, from which skopeo pulls."""

import asyncio
import shutil
from pathlib import Path

import pytest

from hub_server.sandbox_node.errors import ImageNotThere, NotPossible
from hub_server.sandbox_node.images.registries import NodeImages, Registry
from hub_server.sandbox_node.images.store import ImageStore
from tests.hub_server.sandbox_node.image_archives import busybox_root, layout, member, registry_of


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    missing = [name for name in ("bwrap", "skopeo", "umoci") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    return ImageStore(tmp_path / "images")


async def test_an_image_is_pulled_once_for_all_that_want_it_and_then_found(store: ImageStore, tmp_path: Path) -> None:
    files = layout(tmp_path / "layout", [busybox_root()], config={"Env": ["PATH=/bin"]})
    with registry_of(files, "team/tool", "1.0") as registry:
        images = NodeImages(store, [Registry.parse(f"http://{registry.address}")])
        name = f"{registry.address}/team/tool:1.0"
        found = await asyncio.gather(*[images.find(name) for _ in range(20)])
        manifests = [path for path in registry.asked if "/manifests/" in path]
        assert len(set(map(repr, found))) == 1
        assert found[0].path is not None
        assert (found[0].path / "etc/made-of").read_text() == "busybox\n"
        assert dict(found[0].environment) == {"PATH": "/bin"}
        assert len(manifests) <= 2
        await images.find(name)
        assert images.known(name) == found[0]
        assert images.known("nothing:1") is None
        assert images.names() == ["host", name]
        assert len([path for path in registry.asked if "/manifests/" in path]) == len(manifests)
    listed = next(image for image in store.list() if image.name == name)
    assert listed.source == name


async def test_a_mirror_serves_names_of_another_registry(store: ImageStore, tmp_path: Path) -> None:
    files = layout(tmp_path / "layout", [busybox_root()])
    with registry_of(files, "library/busybox", "1") as registry:
        images = NodeImages(store, [Registry.parse(f"docker.io=http://{registry.address}")])
        assert (await images.find("busybox:1")).name == "busybox:1"
        assert (await images.find("docker.io/library/busybox:1")).name == "busybox:1"


async def test_an_unknown_image_says_what_was_tried_and_is_not_asked_for_again_at_once(
    store: ImageStore, tmp_path: Path
) -> None:
    now = 0.0
    files = layout(tmp_path / "layout", [busybox_root()])
    with registry_of(files, "team/tool", "1.0") as registry:
        images = NodeImages(store, [Registry.parse(f"http://{registry.address}")], clock=lambda: now)
        name = f"{registry.address}/team/other:1.0"
        with pytest.raises(ImageNotThere) as caught:
            await images.find(name)
        assert caught.value.kind == "IMAGE_PULL_FAILED"
        assert f"no image {name} on this node, and {registry.address}/team/other:1.0" in caught.value.detail
        assert "manifest unknown" in caught.value.detail
        asked = len(registry.asked)
        with pytest.raises(ImageNotThere):
            await images.find(name)
        assert len(registry.asked) == asked
        now = 31.0
        with pytest.raises(ImageNotThere):
            await images.find(name)
        assert len(registry.asked) > asked


async def test_a_registry_that_is_out_of_reach_is_named(store: ImageStore) -> None:
    images = NodeImages(store, [Registry.parse("http://127.0.0.1:9")])
    with pytest.raises(ImageNotThere, match="connection refused"):
        await images.find("127.0.0.1:9/x:1")


async def test_a_node_asks_no_server_that_its_operator_did_not_name(store: ImageStore, tmp_path: Path) -> None:
    files = layout(tmp_path / "layout", [busybox_root()])
    with registry_of(files, "team/tool", "1.0") as registry:
        images = NodeImages(store, [Registry.parse("ghcr.io")])
        for name in (f"{registry.address}/team/tool:1.0", "python:3.11-slim"):
            with pytest.raises(ImageNotThere, match="pulls none from") as caught:
                await images.find(name)
            assert "--registry" in (caught.value.hint or "")
        assert registry.asked == []


def test_pulling_by_hand_replaces_what_the_name_had(store: ImageStore, tmp_path: Path) -> None:
    more = [*busybox_root(), member("etc/more", b"x")]
    for number, members in enumerate((busybox_root(), more)):
        with registry_of(layout(tmp_path / str(number), [members]), "team/tool", "1") as registry:
            NodeImages(store, [Registry.parse(f"docker.io=http://{registry.address}")]).pull("team/tool:1")
    root = store.find("team/tool:1").path
    assert root is not None
    assert (root / "etc/more").is_file()
    assert len(list((store.folder / "contents").iterdir())) == 1


@pytest.mark.parametrize("text", ["", "ftp://x", "http://", "https://a/b", "http://me:secret@x"])
def test_what_is_no_registry_is_refused(text: str) -> None:
    with pytest.raises(NotPossible, match="is no registry"):
        Registry.parse(text)
