"""The store of images: what is let in, under which names, and that nothing half made stays."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import textwrap
import time
from pathlib import Path

import pytest

from hub_server.sandbox_node.errors import ImageNotThere, ImageRefused, NotPossible
from hub_server.sandbox_node.images.references import normalised, parse
from hub_server.sandbox_node.images.store import ImageStore
from hub_server.sandbox_node.images.tools import run_kept_in
from hub_server.sandbox_node.images.unpacking import UnpackLimits
from tests.hub_server.sandbox_node.image_archives import busybox_root, folder, layout, link, member, tar


@pytest.fixture(scope="module")
def tools() -> None:
    missing = [name for name in ("bwrap", "skopeo", "umoci") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")


@pytest.fixture
def store(tools: None, tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def root_of(store: ImageStore, name: str) -> Path:
    path = store.find(name).path
    assert path is not None
    return path


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("python", "python:latest"),
        ("python:3.11-slim", "python:3.11-slim"),
        ("docker.io/library/python:3.11-slim", "python:3.11-slim"),
        ("index.docker.io/python:3.11-slim", "python:3.11-slim"),
        ("docker.io/someone/tool", "someone/tool:latest"),
        ("GHCR.io/someone/tool:1.0", "ghcr.io/someone/tool:1.0"),
        ("localhost:5000/tool", "localhost:5000/tool:latest"),
        ("host", "host"),
        ("host:latest", "host"),
        (f"python:3.11@sha256:{'a' * 64}", f"python@sha256:{'a' * 64}"),
    ],
)
def test_names_of_one_image_are_one_name(written: str, name: str) -> None:
    assert normalised(written) == name


@pytest.mark.parametrize(
    "written",
    ["", ":", "a:", "../x", "a b", "-x", "A/b", "https://x/y", "x@", "x@sha256:12", "a/../b", "x:" + "y" * 600],
)
def test_what_is_no_name_is_refused_in_one_line(written: str) -> None:
    with pytest.raises(ImageNotThere) as caught:
        parse(written)
    assert "no name of an image" in caught.value.detail
    assert "\n" not in caught.value.detail
    assert len(caught.value.detail) < 200


def test_every_store_has_the_hosts_own_system(store: ImageStore) -> None:
    assert store.find("host").path is None
    assert [image.name for image in store.list()] == ["host"]
    with pytest.raises(ImageRefused, match="every node has it"):
        store.remove("host")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_a_root_archive_is_imported_whatever_its_compression(store: ImageStore, tmp_path: Path, mode: str) -> None:
    archive = tar(tmp_path / "root.tar", busybox_root(), mode)
    image = store.import_archive(archive, "docker.io/library/busybox:1")
    assert image.name == "busybox:1"
    root = root_of(store, "busybox:1")
    assert (root / "bin/sh").is_symlink()
    assert (root / "etc/made-of").read_text() == "busybox\n"
    assert image.size_bytes > 1024**2
    assert image.source == str(archive)


@pytest.mark.parametrize("kind", ["folder", "archive", "docker-archive"])
def test_layers_lie_over_each_other_and_the_configuration_is_kept(store: ImageStore, tmp_path: Path, kind: str) -> None:
    second = [member("etc/made-of", b"two layers\n"), member("bin/.wh.ls"), folder("new")]
    config: dict[str, object] = {"Env": ["PATH=/bin", "A=b=c", "broken"], "WorkingDir": "/new"}
    files = source = layout(tmp_path / "layout", [busybox_root(), second], config=config)
    if kind == "archive":
        source = tmp_path / "oci.tar"
        subprocess.run(["tar", "-C", files, "-cf", source, "."], check=True)
    elif kind == "docker-archive":
        source = tmp_path / "docker.tar"
        copied = ["skopeo", "--insecure-policy", "copy", "-q", f"oci:{files}:made", f"docker-archive:{source}:some:tag"]
        subprocess.run(copied, check=True)
    store.import_archive(source, "two:1")
    found = store.find("two:1")
    root = root_of(store, "two:1")
    assert (root / "etc/made-of").read_text() == "two layers\n"
    assert not (root / "bin/ls").is_symlink()
    assert (root / "bin/cat").is_symlink()
    assert dict(found.environment) == {"PATH": "/bin", "A": "b=c"}
    assert found.working_dir == "/new"


def test_nothing_of_an_archive_lands_outside_of_its_image(store: ImageStore, tmp_path: Path) -> None:
    target = tmp_path / "outside"
    target.mkdir()
    hostile = [
        *busybox_root(),
        member("../" * 20 + f"{target}/by-dots", b"x"),
        member(f"{target}/by-root", b"x"),
        link("way", str(target)), member("way/by-link", b"x"),
        link("up", "../" * 20 + f"{target}"), member("up/by-relative-link", b"x"),
    ]  # fmt: skip
    store.import_archive(tar(tmp_path / "hostile.tar", hostile), "hostile:1")
    assert list(target.iterdir()) == []
    assert (root_of(store, "hostile:1") / "bin/busybox").is_file()


@pytest.mark.parametrize(
    "members",
    [
        [link("etc/taken", "/etc/hostname", tarfile.LNKTYPE)],
        [link("way", "/etc"), link("etc/taken", "way/hostname", tarfile.LNKTYPE)],
        [link("etc/taken", "../../../../../../etc/hostname", tarfile.LNKTYPE)],
    ],
    ids=["by-root", "through-a-link", "by-dots"],
)
def test_a_hard_link_to_a_file_of_the_host_is_refused(store: ImageStore, tmp_path: Path, members: list) -> None:
    with pytest.raises(ImageRefused, match="umoci failed"):
        store.import_archive(tar(tmp_path / "hostile.tar", [*busybox_root(), *members]), "hostile:1")
    assert_nothing_is_left(store)


def test_devices_set_uid_programs_and_attributes_are_taken_out(store: ImageStore, tmp_path: Path) -> None:
    marked = member("bin/marked", b"x", mode=0o755)
    marked[0].pax_headers = {"SCHILY.xattr.user.overlay.opaque": "y", "SCHILY.xattr.user.note": "n"}
    odd = [
        member("bin/su", b"x", mode=0o6755), marked,
        member("disk", type=tarfile.BLKTYPE, devmajor=8, devminor=0, mode=0o666),
        member("zero", type=tarfile.CHRTYPE, devmajor=1, devminor=5, mode=0o666),
        member("pipe", type=tarfile.FIFOTYPE, mode=0o666),
    ]  # fmt: skip
    store.import_archive(tar(tmp_path / "odd.tar", [*busybox_root(), *odd]), "odd:1")
    root = root_of(store, "odd:1")
    assert stat.S_IMODE((root / "bin/su").stat().st_mode) == 0o755
    assert os.listxattr(root / "bin/marked") == []
    assert not {"disk", "zero", "pipe"} & set(os.listdir(root))


@pytest.mark.parametrize("place", ["proc", "dev", "sys", "run", "tmp", "run/prime"])
def test_an_image_that_would_lead_a_mount_astray_is_refused(store: ImageStore, tmp_path: Path, place: str) -> None:
    with pytest.raises(ImageRefused, match=f"/{place} is no directory"):
        store.import_archive(tar(tmp_path / "astray.tar", [*busybox_root(), link(place, "/etc")]), "astray:1")
    assert_nothing_is_left(store)


def test_an_image_of_another_machine_is_refused(store: ImageStore, tmp_path: Path) -> None:
    with pytest.raises(ImageRefused, match="for s390x"):
        store.import_archive(layout(tmp_path / "layout", [busybox_root()], architecture="s390x"), "other:1")
    assert_nothing_is_left(store)


def test_an_image_over_the_limits_is_refused_and_its_files_removed(tools: None, tmp_path: Path) -> None:
    archive = tar(tmp_path / "root.tar", busybox_root())
    for limits, why in (
        (UnpackLimits(most_bytes=1024**2), "more than 1048576 bytes"),
        (UnpackLimits(most_files=5), "or 5 files"),
        (UnpackLimits(least_free_bytes=2**60), "is full"),
    ):
        store = ImageStore(tmp_path / "images", limits)
        with pytest.raises(ImageRefused, match=why):
            store.import_archive(archive, "large:1")
        assert_nothing_is_left(store)


def test_a_program_that_takes_too_long_or_fills_the_disk_is_stopped(tools: None, tmp_path: Path) -> None:
    with pytest.raises(ImageRefused, match="took too long"):
        run_kept_in(tmp_path, ["sleep", "60"], timeout_s=0.1, most_bytes=1024)
    with pytest.raises(ImageRefused, match="dd failed"):
        run_kept_in(tmp_path, ["dd", "if=/dev/zero", f"of={tmp_path}/x"], timeout_s=10, most_bytes=1024**2)
    assert (tmp_path / "x").stat().st_size == 1024**2


def test_a_program_for_images_sees_and_writes_its_own_folder_only(tools: None, tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (other / "secret").write_text("s")
    tried = f"ls {tmp_path}; cat {other}/secret; touch /usr/x {own}/x; ls /proc | grep -c '^[0-9]'; ls /root; true"
    assert run_kept_in(own, ["sh", "-c", tried], timeout_s=10, most_bytes=1024).split()[:1] == ["own"]
    assert (own / "x").exists()
    assert not Path("/usr/x").exists()


def test_a_small_archive_of_a_huge_file_is_stopped(tools: None, tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images", UnpackLimits(most_bytes=8 * 1024**2))
    bomb = layout(tmp_path / "layout", [[*busybox_root(), member("zeros", bytes(32 * 1024**2))]])
    with pytest.raises(ImageRefused):
        store.import_archive(bomb, "bomb:1")
    assert_nothing_is_left(store)


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08broken", b"\x28\xb5\x2f\xfdzstd"])
def test_what_is_no_archive_is_refused_in_one_line(store: ImageStore, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file.tar"
    file.write_bytes(content)
    with pytest.raises(ImageRefused) as caught:
        store.import_archive(file, "x:1")
    assert "\n" not in caught.value.detail
    assert_nothing_is_left(store)


def test_a_damaged_layer_is_refused(store: ImageStore, tmp_path: Path) -> None:
    files = layout(tmp_path / "layout", [busybox_root()])
    largest = max((files / "blobs/sha256").iterdir(), key=lambda blob: blob.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 0xFF
    largest.write_bytes(data)
    with pytest.raises(ImageRefused, match="skopeo failed"):
        store.import_archive(files, "damaged:1")
    assert_nothing_is_left(store)


def test_a_folder_that_is_no_layout_is_refused_with_what_to_do(store: ImageStore, tmp_path: Path) -> None:
    with pytest.raises(ImageRefused) as caught:
        store.import_archive(tmp_path, "x:1")
    assert caught.value.hint is not None
    assert "tar -C" in caught.value.hint


def test_a_missing_program_is_named_with_how_to_get_it(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tar(tmp_path / "root.tar", busybox_root())
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("rm", "chmod"):
        (programs / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(NotPossible) as caught:
        store.import_archive(archive, "x:1")
    assert "umoci" in caught.value.detail
    assert caught.value.hint == "apt install util-linux bubblewrap umoci"


def test_an_alias_is_the_operators_word_and_never_a_guess(store: ImageStore) -> None:
    with pytest.raises(ImageNotThere, match=r"no image python:3\.11-slim"):
        store.find("python:3.11-slim")
    store.add_alias("python:3.11-slim", "host")
    assert store.find("docker.io/library/python:3.11-slim").name == "host"
    assert [(image.name, image.alias_of) for image in store.list()] == [("host", None), ("python:3.11-slim", "host")]
    with pytest.raises(ImageNotThere):
        store.add_alias("other", "nothing:1")
    assert store.remove("python:3.11-slim")
    with pytest.raises(ImageNotThere):
        store.find("python:3.11-slim")


def test_an_image_stays_while_it_is_used_and_goes_when_nobody_has_it(store: ImageStore, tmp_path: Path) -> None:
    store.import_archive(tar(tmp_path / "a.tar", busybox_root()), "a:1")
    image = store.find("a:1")
    root = image.path
    assert root is not None
    other = ImageStore(store.folder)  # as the command line opens it beside a running node
    assert not other.remove("a:1")
    with pytest.raises(ImageNotThere):
        store.find("a:1")
    store.collect()
    assert root.is_dir()
    del image
    store.collect()
    assert not root.exists()
    assert_nothing_is_left(store)


def test_importing_again_replaces_the_name_and_leaves_what_is_in_use(store: ImageStore, tmp_path: Path) -> None:
    store.import_archive(tar(tmp_path / "a.tar", busybox_root()), "a:1")
    first = store.find("a:1")
    store.import_archive(tar(tmp_path / "b.tar", [*busybox_root(), member("etc/more", b"x")]), "a:1")
    second = store.find("a:1")
    assert first.path is not None
    assert second.path is not None
    assert first != second
    assert first.path.is_dir()
    assert (second.path / "etc/more").is_file()
    former = first.path
    del first
    store.collect()
    assert not former.exists()
    assert second.path.is_dir()


def test_one_content_under_two_names_is_stored_once(store: ImageStore, tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar", busybox_root())
    store.import_archive(archive, "a:1")
    store.import_archive(archive, "b:1")
    assert root_of(store, "a:1") == root_of(store, "b:1")
    assert not store.remove("a:1")
    assert root_of(store, "b:1").is_dir()
    assert store.remove("b:1")
    assert_nothing_is_left(store)


def test_nobody_else_of_the_host_can_look_into_the_store(store: ImageStore) -> None:
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_an_import_that_is_killed_at_any_moment_leaves_nothing_half(tools: None, tmp_path: Path) -> None:
    archive = tar(tmp_path / "root.tar", busybox_root())
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from hub_server.sandbox_node.images.store import ImageStore
        store = ImageStore(Path(sys.argv[1]))
        print("begin", flush=True)
        store.import_archive(Path(sys.argv[2]), "killed:1")
    """)
    for step in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", program, tmp_path / "images", archive], stdout=subprocess.PIPE, env=os.environ.copy()
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"begin\n"
        time.sleep(step * 0.012)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        store = ImageStore(tmp_path / "images")
        for _ in range(100):
            if not list((store.folder / "aside").iterdir()):
                break
            time.sleep(0.02)  # a program that was just being started ends by itself
            store = ImageStore(tmp_path / "images")
        names = [image.name for image in store.list()]
        if "killed:1" in names:
            assert (root_of(store, "killed:1") / "bin/busybox").stat().st_size > 1024**2
            store.remove("killed:1")
        assert_nothing_is_left(store)


def test_what_cannot_be_removed_yet_goes_when_the_store_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = ImageStore(tmp_path / "images").folder / "aside" / "left"
    (left / "work").mkdir(parents=True)
    (left / "lock").touch()
    (tmp_path / "rm").write_text('#!/bin/sh\ncase "$*" in */left) exit 1; esac\nexec /bin/rm "$@"\n')
    (tmp_path / "rm").chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        assert [image.name for image in ImageStore(tmp_path / "images").list()] == ["host"]
    assert left.exists()
    assert_nothing_is_left(ImageStore(tmp_path / "images"))


def assert_nothing_is_left(store: ImageStore) -> None:
    assert list((store.folder / "aside").iterdir()) == []
    assert list((store.folder / "contents").iterdir()) == []
    assert [image.name for image in store.list()] == ["host"]
