"""Wheels made to be read in two ways, to reach outside or to fill the disk; and whatever hypothesis thinks of."""

from __future__ import annotations

import contextlib
import io
import stat
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub_server.errors import Malformed
from hub_server.registry import zips
from hub_server.registry.archives import check_source_archive
from hub_server.registry.wheels import read_wheel
from tests.running_hub import make_source, make_wheel

NAME, SOUND = make_wheel("some-task", "0.1.0", code="VALUE = 1\n" * 200)
RECORD = "some_task-0.1.0.dist-info/RECORD"
EXAMPLES = settings(max_examples=150, deadline=None, database=None)


def rebuilt(
    change: Callable[[dict[str, bytes]], None] = lambda _: None,
    *,
    attributes: int = 0,
    method: int = zipfile.ZIP_DEFLATED,
    base: bytes = SOUND,
) -> bytes:
    """Return a wheel with changed members, packed anew; its RECORD stays as it was."""
    with zipfile.ZipFile(io.BytesIO(base)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")
        for name, data in members.items():
            info = zipfile.ZipInfo(name, (2020, 2, 2, 0, 0, 0))
            info.external_attr, info.compress_type = attributes << 16, method
            archive.writestr(info, data)
    return buffer.getvalue()


def in_record(old: str, new: str) -> bytes:
    """Return the sound wheel with other words in its RECORD."""

    def change(members: dict[str, bytes]) -> None:
        assert old in members[RECORD].decode()
        members[RECORD] = members[RECORD].decode().replace(old, new, 1).encode()

    return rebuilt(change)


def member(name: str, data: bytes = b"") -> bytes:
    """Return the sound wheel with one file more."""
    return rebuilt(lambda members: members.update({name: data}))


def patched(offset: int, form: str, *values: int) -> bytes:
    """Return the sound wheel with other numbers at an offset, from its end when negative."""
    data = bytearray(SOUND)
    struct.pack_into(form, data, offset % len(data), *values)
    return bytes(data)


def renamed_in_one_list() -> bytes:
    """Return the sound wheel where the header before a file calls it by another name than the directory."""
    return SOUND.replace(b"some_task.py", b"evil_task.py", 1)


def with_hidden_bytes() -> bytes:
    """Return the sound wheel with bytes between its last file and its directory."""
    start = struct.unpack_from("<L", SOUND, len(SOUND) - 6)[0]
    data = SOUND[:start] + b"hidden" + SOUND[start:]
    return data[:-6] + struct.pack("<LH", start + 6, 0)


def read(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(data)
        return read_wheel(path, NAME)


@pytest.mark.parametrize(
    ("words", "data"),
    [
        ("after its end", SOUND + b"more"),
        ("before its", b"#!shebang\n" + SOUND),
        ("before its", SOUND + SOUND),
        ("announces", patched(-14, "<2H", 3, 3)),
        ("announces", patched(-18, "<H", 1)),
        ("zip64", patched(-12, "<H", 0xFFFF)),
        ("two names", renamed_in_one_list()),
        ("says two things", with_hidden_bytes()),
        ("says two things", patched(14, "<L", 1)),
        ("encrypts", SOUND.replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00", 1)),
        ("not every installer", rebuilt(method=zipfile.ZIP_LZMA)),
        ("no plain file", rebuilt(attributes=stat.S_IFLNK | 0o777)),
        ("no plain file", rebuilt(attributes=stat.S_IFIFO | 0o644)),
        ("twice", member("SOME_TASK.py")),
        ("as a file and as a folder", member("some_task.py/inner.py")),
        ("unusual way", member("./x.py")),
        ("unusual way", member("a//x.py")),
        ("outside itself", member("a/../../x.py")),
        ("outside itself", member("a\\..\\x.py")),
        ("outside itself", member("C:x.py")),
        ("outside itself", member("a\nb.py")),
        ("does not match its contents", member("unlisted.py")),
        ("another hash or size", in_record("sha256=", "sha256=A")),
        ("another hash or size", in_record(",2000", ",2001")),
        ("without a sha256", in_record("sha256=", "md5=")),
        ("without a sha256", in_record("sha256=", "")),
        ("lists 'some_task.py' twice", in_record("some_task.py,", "some_task.py,,\nsome_task.py,")),
        ("cannot be read", rebuilt(lambda members: members.update({RECORD: b'"\xff'}))),
        ("has no some_task-0.1.0.dist-info/WHEEL", make_wheel("some-task", "0.1.0", without="WHEEL")[1]),
        ("wheel version", rebuilt(lambda members: members.update({RECORD.replace("RECORD", "WHEEL"): b"nothing"}))),
        ("Requires-Python", make_wheel("some-task", "0.1.0", metadata=(
            "Metadata-Version: 2.1\nName: some-task\nVersion: 0.1.0\nRequires-Python: newest\n"
        ))[1]),
        ("Metadata-Version", make_wheel("some-task", "0.1.0", metadata="Name: some-task\nVersion: 0.1.0\n")[1]),
    ],
)  # fmt: skip
def test_a_wheel_that_could_be_read_in_two_ways_is_refused(words: str, data: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        read(data)
    assert words in caught.value.detail
    assert NAME in caught.value.detail


def test_sound_wheels_of_every_kind_are_taken() -> None:
    assert read(SOUND)
    assert read(rebuilt(method=zipfile.ZIP_STORED))
    streamed = io.BytesIO()

    class Pipe(io.RawIOBase):
        """Cannot seek, so that sizes are written behind each file."""

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            return streamed.write(data)

    with zipfile.ZipFile(io.BytesIO(SOUND)) as source, zipfile.ZipFile(Pipe(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name in source.namelist():
            archive.writestr(name, source.read(name))
    assert b"PK\x07\x08" in streamed.getvalue()
    assert read(streamed.getvalue())


def test_what_unpacks_far_beyond_its_size_is_refused_before_it_is_unpacked() -> None:
    bomb = rebuilt(base=make_wheel("some-task", "0.1.0", code="\0" * (zips.RATIO_COUNTS_FROM_BYTES + 1))[1])
    assert len(bomb) < 200_000
    with pytest.raises(Malformed, match="more than this hub takes"):
        read(bomb)
    dense = rebuilt(base=make_wheel("some-task", "0.1.0", code="\0" * (8 * 1024**2))[1])
    assert read(dense)


def test_a_file_that_holds_more_than_it_declares_is_not_unpacked_to_its_end() -> None:
    code = "\0" * (8 * 1024**2)
    data = bytearray(rebuilt(base=make_wheel("some-task", "0.1.0", code=code)[1]))
    for position in (22, data.index(b"PK\x01\x02") + 24):  # the declared size, in both lists
        assert struct.unpack_from("<L", data, position)[0] == len(code)
        struct.pack_into("<L", data, position, 100)
    with pytest.raises(Malformed, match="more than it declares"):
        read(bytes(data))


@EXAMPLES
@given(st.binary(max_size=2000))
def test_no_bytes_at_all_are_more_than_refused(data: bytes) -> None:
    for name, check in ((NAME, read_wheel), ("a.tar.gz", check_source_archive)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "file"
            path.write_bytes(data)
            with pytest.raises(Malformed):
                check(path, name)


@EXAMPLES
@given(
    st.lists(
        st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 8), st.binary(max_size=8)), min_size=1, max_size=3
    )
)
def test_a_damaged_wheel_is_refused_or_reads_as_the_sound_one(changes: list[tuple[int, int, bytes]]) -> None:
    data = SOUND
    for place, length, new in changes:
        data = data[:place] + new + data[place + length :]
    try:
        read(data)
    except Malformed:
        return
    with zipfile.ZipFile(io.BytesIO(data)) as found, zipfile.ZipFile(io.BytesIO(SOUND)) as sound:
        assert {name: found.read(name) for name in found.namelist()} == {
            name: sound.read(name) for name in sound.namelist()
        }


SAFE = st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8}){0,2}\.py", fullmatch=True)


@EXAMPLES
@given(st.dictionaries(SAFE, st.text(max_size=300), max_size=6))
def test_every_wheel_made_by_the_rules_is_taken(files: dict[str, str]) -> None:
    folders = {name[:place] for name in files for place, char in enumerate(name) if char == "/"}
    assert not folders & files.keys()
    data = make_wheel(
        "some-task", "0.1.0", extra={name: text for name, text in files.items() if name != "some_task.py"}
    )[1]
    assert read(data)


@EXAMPLES
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=8))
def test_a_damaged_archive_is_refused_or_stays_inside(place: int, new: bytes) -> None:
    data = make_source({"pyproject.toml": "x" * 500, "a/b.py": "y" * 500})
    place %= len(data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(data[:place] + new + data[place + len(new) :])
        with contextlib.suppress(Malformed):
            check_source_archive(path, "a.tar.gz")
