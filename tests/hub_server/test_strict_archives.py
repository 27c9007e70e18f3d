"""Source archives that reach outside, hide something or fill a disk; and whatever hypothesis thinks of."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub_server.errors import Malformed
from hub_server.registry import archives, zips
from hub_server.registry.archives import check_source_archive
from tests.running_hub import Push, RunningHub, answer, make_source

FILES = {"pyproject.toml": "[project]\n" * 40, "some_task.py": "VALUE = 1\n" * 200, "deep/er/data.txt": "x" * 700}
SOUND = make_source(FILES)
SOUND_TAR = gzip.decompress(SOUND)
WITHOUT_END = SOUND_TAR[: -(-len(SOUND_TAR.rstrip(b"\0")) // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE]
EXAMPLES = settings(max_examples=150, deadline=None, database=None)


def check(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(data)
        check_source_archive(path, "a.tar.gz")


def contents(data: bytes) -> dict[str, bytes]:
    """Return what a reader unpacks of an archive that was found sound."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        files = [(member, archive.extractfile(member)) for member in archive]
        return {member.name: file.read() for member, file in files if file is not None}


def tar(*members: tarfile.TarInfo, data: bytes = b"") -> bytes:
    """Return a tar.gz of these members, each with these bytes when it is a file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member in members:
            member.size = len(data) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, **more: str) -> tarfile.TarInfo:
    """Return one member, a file unless said otherwise."""
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in more.items():
        setattr(info, key, value)
    return info


def with_size(claimed: int) -> bytes:
    """Return an archive whose only file says that it has so many bytes."""
    info = tarfile.TarInfo("a.txt")
    info.size = claimed
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(2 * tarfile.BLOCKSIZE))


@pytest.mark.parametrize(
    ("words", "data"),
    [
        ("no plain file", tar(member("a", tarfile.SYMTYPE, linkname="/etc/passwd"))),
        ("no plain file", tar(member("b"), member("a", tarfile.LNKTYPE, linkname="b"))),
        ("no plain file", tar(member("a", tarfile.CHRTYPE))),
        ("no plain file", tar(member("a", tarfile.BLKTYPE))),
        ("no plain file", tar(member("a", tarfile.FIFOTYPE))),
        ("no plain file", tar(member("a", tarfile.CONTTYPE))),
        ("outside itself", tar(member("../a"))),
        ("outside itself", tar(member("/a"))),
        ("outside itself", tar(member("a/../../b"))),
        ("outside itself", tar(member("a\\..\\b"))),
        ("outside itself", tar(member("C:a"))),
        ("outside itself", tar(member("a\nb"))),
        ("twice", tar(member("a"), member("a"))),
        ("twice", tar(member("a"), member("./a"))),
        ("twice", tar(member("a.py"), member("A.py"))),
        ("twice", tar(member("caf\u00e9"), member("cafe\u0301"))),
        ("twice", tar(member("a"), member("a", tarfile.DIRTYPE))),
        ("as a file and as a folder", tar(member("a"), member("a/b"))),
        ("unpacks to more than", with_size(zips.RATIO_COUNTS_FROM_BYTES + 1)),
        ("unpacks to more than", gzip.compress(SOUND_TAR + bytes(zips.RATIO_COUNTS_FROM_BYTES))),
        ("not a readable", with_size(5 * tarfile.BLOCKSIZE)),
        ("not a readable", SOUND_TAR),
        ("not a readable", SOUND + b"more"),
        ("behind its last file", SOUND + SOUND),
        ("behind its last file", gzip.compress(SOUND_TAR[: SOUND_TAR.index(b"some_task.py")] + b"\xff" * 1024)),
        ("ends too early", gzip.compress(WITHOUT_END)),
        ("ends too early", gzip.compress(tarfile.TarInfo("a").tobuf() + bytes(tarfile.BLOCKSIZE))),
        ("not a readable", gzip.compress(b"")),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "archive",
)  # fmt: skip
def test_an_archive_that_is_more_than_plain_files_inside_itself_is_refused(words: str, data: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        check(data)
    assert words in caught.value.detail
    assert "a.tar.gz" in caught.value.detail


def test_sound_archives_of_every_kind_are_taken() -> None:
    check(SOUND)
    check(tar())
    check(tar(member("a", tarfile.DIRTYPE), member("a", tarfile.DIRTYPE), member("a/b"), data=b"text"))
    check(tar(member("a/" * 120 + "long.py"), member("grüße.py")))
    dense = make_source({"zeros.txt": "\0" * 8 * 1024**2})
    assert len(dense) < 20_000
    check(dense)


def test_an_archive_of_too_many_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MAX_MEMBERS", 20)
    check(make_source({f"{number}.txt": "" for number in range(20)}))
    with pytest.raises(Malformed, match="more than 20 files"):
        check(make_source({f"{number}.txt": "" for number in range(21)}))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_would_fill_the_memory_is_not_read(kind: bytes) -> None:
    header = tarfile.TarInfo("header")
    header.type, header.size = kind, 60 * 1024**2
    data = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(header.size) + SOUND_TAR)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="header that is too large"):
            check(data)
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024**2
    finally:
        tracemalloc.stop()


def test_an_archive_with_a_size_below_zero_ends_in_a_refusal() -> None:
    with pytest.raises(Malformed):
        check(with_size(-512))


def test_a_refused_archive_publishes_nothing_and_a_sound_one_can_follow(hub: RunningHub) -> None:
    with hub.client(hub.key_of("archives")) as client:
        push = Push(client, "twice-named", "0.1.0")
        push.resolve()
        assert push.send_wheel().is_success
        sound, push.source = push.source, tar(member("a.py"), member("a.py"))
        refused = push.send_source()
        assert refused.status_code == 400
        assert "has the same file twice: 'a.py'" in refused.json()["detail"]
        assert client.get("/environmentshub/archives/twice-named/@latest").status_code == 404
        push.source = sound
        assert push.send_source().is_success
        latest = answer(client.get("/environmentshub/archives/twice-named/@latest"))["data"]
    assert latest["semantic_version"] == "0.1.0"


@EXAMPLES
@given(st.integers(0, len(SOUND)), st.binary(max_size=4))
def test_an_archive_that_was_cut_is_refused(length: int, more: bytes) -> None:
    if SOUND[:length] + more == SOUND:
        return
    with pytest.raises(Malformed):
        check(SOUND[:length] + (more if length < len(SOUND) else more + b"!"))


CHANGES = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 8), st.binary(max_size=8)), min_size=1, max_size=3
)  # fmt: skip


@EXAMPLES
@given(CHANGES)
def test_a_damaged_archive_is_refused_or_reads_as_the_sound_one(changes: list[tuple[int, int, bytes]]) -> None:
    data = SOUND
    for place, length, new in changes:
        place %= len(SOUND)
        data = data[:place] + new + data[place + length :]
    try:
        check(data)
    except Malformed:
        return
    assert contents(data) == contents(SOUND)


@EXAMPLES
@given(CHANGES)
def test_an_archive_that_was_changed_before_it_was_packed_stays_inside_itself(
    changes: list[tuple[int, int, bytes]],
) -> None:
    unpacked = SOUND_TAR
    for place, length, new in changes:
        place %= len(SOUND_TAR)
        unpacked = unpacked[:place] + new + unpacked[place + length :]
    data = gzip.compress(unpacked)
    try:
        check(data)
    except Malformed:
        return
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.getnames()
        assert len(names) == len(set(names))
        archive.extractall(Path(folder) / "inside", filter="data")
        assert [path.name for path in Path(folder).iterdir()] == ["inside"]


NAMES = st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8}){0,2}\.py", fullmatch=True)


@EXAMPLES
@given(st.dictionaries(NAMES, st.text(max_size=300), max_size=6))
def test_every_archive_of_plain_files_is_taken_as_it_is(files: dict[str, str]) -> None:
    data = make_source(files)
    check(data)
    assert contents(data) == {name: text.encode() for name, text in files.items()}
