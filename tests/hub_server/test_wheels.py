"""What is taken for a sound wheel and a sound archive, and what is not."""

from __future__ import annotations

import io
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest

from hub_server.errors import Malformed
from hub_server.registry.archives import check_source_archive
from hub_server.registry.wheels import read_wheel, version_key
from tests.running_hub import make_source, make_wheel

NAME = "some_task-0.1.0-py3-none-any.whl"
SOUND = "Metadata-Version: 2.1\nName: some-task\nVersion: 0.1.0\n"


def write(folder: Path, data: bytes) -> Path:
    path = folder / "file"
    path.write_bytes(data)
    return path


def test_a_sound_wheel_tells_its_metadata(tmp_path: Path) -> None:
    _, data = make_wheel("some-task", "0.1.0")
    facts = read_wheel(write(tmp_path, data), NAME)
    assert facts.requires_python == ">=3.8"
    assert b"Name: some-task" in facts.metadata


@pytest.mark.parametrize(
    ("words", "data"),
    [
        ("not a readable zip", b"no zip at all"),
        ("not a readable zip", make_wheel("some-task", "0.1.0")[1][:-40]),
        ("has no some_task-0.1.0.dist-info/METADATA", make_wheel("some-task", "0.1.0", without="METADATA")[1]),
        ("has no some_task-0.1.0.dist-info/RECORD", make_wheel("some-task", "0.1.0", without="RECORD")[1]),
        ("RECORD", make_wheel("some-task", "0.1.0", without="some_task.py")[1]),
        ("does not belong", make_wheel("some-task", "0.2.0")[1]),
        ("does not belong", make_wheel("other-task", "0.1.0")[1]),
        ("names other 0.1.0", make_wheel("some-task", "0.1.0", metadata="Name: other\nVersion: 0.1.0\n")[1]),
        ("no version", make_wheel("some-task", "0.1.0", metadata="Name: some-task\n")[1]),
        ("outside itself", make_wheel("some-task", "0.1.0", extra={"../evil.py": ""})[1]),
        ("outside itself", make_wheel("some-task", "0.1.0", extra={"/evil.py": ""})[1]),
        ("exactly one", make_wheel("some-task", "0.1.0", extra={"b-1.dist-info/METADATA": ""})[1]),
    ],
)
def test_a_wheel_that_is_not_sound_says_why(tmp_path: Path, words: str, data: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        read_wheel(write(tmp_path, data), NAME)
    assert words in caught.value.detail


@pytest.mark.parametrize(
    ("words", "metadata"),
    [
        ("names some-task 1111", f"Metadata-Version: 2.1\nName: some-task\nVersion: {'1' * 5000}\n"),
        ("without Metadata-Version", "Name: some-task\nVersion: 0.1.0\n"),
        ("which installers cannot read", SOUND + "Requires-Python: three\n"),
        ("more than 200 characters", SOUND + f"Requires-Python: >={'1' * 5000}\n"),
        ("which installers cannot read", SOUND + "Requires-Dist: ???\n"),
        ("nobody can get from another machine", SOUND + "Requires-Dist: tool @ file:///home/me/tool.whl\n"),
        ("nobody can get from another machine", SOUND + "Requires-Dist: tool @ http://[::1/tool.whl\n"),
    ],
)
def test_metadata_that_installers_could_not_use_says_why(tmp_path: Path, words: str, metadata: str) -> None:
    with pytest.raises(Malformed) as caught:
        read_wheel(write(tmp_path, make_wheel("some-task", "0.1.0", metadata=metadata)[1]), NAME)
    assert words in caught.value.detail


def test_a_folder_with_a_version_of_thousands_of_digits_does_not_belong(tmp_path: Path) -> None:
    _, data = make_wheel("some-task", "1" * 5000)
    with pytest.raises(Malformed, match="does not belong"):
        read_wheel(write(tmp_path, data), NAME)


def test_a_wheel_with_a_file_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, make_wheel("some-task", "0.1.0")[1])
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("some_task.py", "OTHER = 1")
    with pytest.raises(Malformed, match="twice"):
        read_wheel(path, NAME)


def test_a_sound_archive_is_taken(tmp_path: Path) -> None:
    check_source_archive(write(tmp_path, make_source({"pyproject.toml": "", "deep/er/x.py": ""})), "a.tar.gz")


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_an_archive_that_reaches_outside_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Malformed, match="outside itself"):
        check_source_archive(write(tmp_path, make_source({name: ""})), "a.tar.gz")


def test_an_archive_with_links_or_no_archive_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(Malformed, match="no plain file"):
        check_source_archive(write(tmp_path, buffer.getvalue()), "a.tar.gz")
    for data in (b"nothing", make_source({"a": "x" * 10_000})[:-30]):
        with pytest.raises(Malformed, match="not a readable"):
            check_source_archive(write(tmp_path, data), "a.tar.gz")


def test_versions_that_are_equal_have_one_key() -> None:
    assert version_key("1.0") == version_key("v1.0.0") == version_key("1")
    assert version_key("1.0-rc1") == version_key("1.0rc1") != version_key("1.0")
    with pytest.raises(Malformed, match="not a version"):
        version_key("newest")
