"""Images of Debian releases."""

import shutil
import stat
from pathlib import Path

import pytest

from hub_server.sandbox_node.backends.bwrap import BwrapBackend
from hub_server.sandbox_node.errors import ImageRefused, NotPossible
from hub_server.sandbox_node.images.store import ImageStore
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import Command, Limits


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    for program in ("mmdebstrap", "umoci", "bwrap"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    return ImageStore(tmp_path / "images")


@pytest.mark.parametrize("word", ["bookworm;reboot", "--help", "../x", ""])
def test_only_names_of_releases_and_packages_are_taken(store: ImageStore, word: str) -> None:
    with pytest.raises(ImageRefused, match="no name of a release or package"):
        store.import_debian(word, "tools:1")
    with pytest.raises(ImageRefused, match="no name of a release or package"):
        store.import_debian("bookworm", "tools:1", packages=[word])


def test_a_mirror_that_is_not_there_is_said_in_one_line(store: ImageStore) -> None:
    with pytest.raises(ImageRefused) as caught:
        store.import_debian("bookworm", "tools:1", mirror="http://127.0.0.1:9/debian")
    assert "\n" not in caught.value.detail
    assert [image.name for image in store.list()] == ["host"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_an_image_with_python_is_made_of_a_release_and_runs(store: ImageStore, tmp_path: Path) -> None:
    try:
        made = store.import_debian("bookworm", "python:3.11", packages=["python3"])
    except ImageRefused as refused:
        if refused.hint is not None and "mirror" in refused.hint:
            pytest.skip(f"no mirror of Debian is within reach: {refused.detail}")
        raise
    assert made.source == "mmdebstrap bookworm with python3"
    image = store.find("python:3.11")
    assert image.path is not None
    kinds = {stat.S_IFMT(path.lstat().st_mode) for path in (image.path / "dev").iterdir()}
    assert kinds <= {stat.S_IFLNK, stat.S_IFDIR}
    programs = [path for path in (image.path / "usr/bin").iterdir() if not path.is_symlink()]
    assert [path for path in programs if path.stat().st_mode & 0o6000] == []
    try:
        backend = await BwrapBackend.open(tmp_path)
    except NotPossible as problem:
        pytest.skip(f"bubblewrap makes no sandbox on this host: {problem}")
    confined = await backend.create("debian", image, Limits())
    sandbox = Sandbox("debian", image.name, confined, {"PATH": "/usr/bin:/bin"})
    finished = await sandbox.run(Command(["sh", "-c", "touch /usr/new && dpkg --version | head -1 && id -un"]))
    assert finished.exit_code == 0, finished.stderr
    assert finished.stdout.endswith(b"root\n")
    assert (await sandbox.run_python("print(6 * 7)")).stdout == b"42\n"
    await backend.close()
