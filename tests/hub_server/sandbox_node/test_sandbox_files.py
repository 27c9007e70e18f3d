"""Files in a sandbox: moved in both directions, in part and whole, and refused with a reason."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hub_server.sandbox_node.errors import FileRefused
from hub_server.sandbox_node.sandbox import Sandbox


async def in_chunks(data: bytes, size: int = 50_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def content(sandbox: Sandbox, path: str | Path, offset: int = 0, length: int | None = None) -> bytes:
    return b"".join([chunk async for chunk in sandbox.read_file(str(path), offset, length)])


async def test_a_file_comes_back_as_it_went(plain_sandbox: Sandbox, tmp_path: Path) -> None:
    data = os.urandom(2_500_000)
    path = tmp_path / "new" / "folder" / "file.bin"
    assert await plain_sandbox.write_file(str(path), in_chunks(data)) == len(data)
    assert path.read_bytes() == data
    assert await content(plain_sandbox, path) == data
    facts = await plain_sandbox.stat(str(path))
    assert (facts.kind, facts.size, facts.mode) == ("file", len(data), 0o644)
    assert os.listdir(path.parent) == ["file.bin"]


async def test_an_empty_file_is_a_file(plain_sandbox: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    assert await plain_sandbox.write_file(str(path), in_chunks(b"")) == 0
    assert await content(plain_sandbox, path) == b""


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [(0, 3, b"012"), (4, None, b"456789"), (-3, None, b"789"), (-100, 2, b"01"), (20, None, b""), (2, 0, b"")],
)
async def test_a_part_of_a_file(
    plain_sandbox: Sandbox, tmp_path: Path, offset: int, length: int | None, expected: bytes
) -> None:
    (tmp_path / "digits").write_bytes(b"0123456789")
    assert await content(plain_sandbox, tmp_path / "digits", offset, length) == expected
    facts, _ = await plain_sandbox.open_file(str(tmp_path / "digits"), offset, length)
    assert facts["size"] == 10


async def test_writing_keeps_the_mode_and_follows_a_link(plain_sandbox: Sandbox, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("old")
    script.chmod(0o750)
    (tmp_path / "link").symlink_to(script)
    await plain_sandbox.write_file(str(tmp_path / "link"), in_chunks(b"new"))
    assert script.read_text() == "new"
    assert script.stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "link").is_symlink()


async def test_a_file_over_the_limit_is_refused_and_leaves_nothing(plain_sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    with pytest.raises(FileRefused) as refused:
        await plain_sandbox.write_file(str(tmp_path / "file"), in_chunks(b"x" * 500_000), most_bytes=100_000)
    assert refused.value.reason == "too_large"
    assert (tmp_path / "file").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "sandboxes"]


async def test_what_is_no_regular_file_is_refused_at_once(plain_sandbox: Sandbox, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "queue")
    cases = {
        "/no/such/file": "not_found",
        str(tmp_path): "is_a_directory",
        str(tmp_path / "queue"): "not_a_file",
        "/dev/zero": "not_a_file",
        "/etc/passwd/below": "not_found",
        "/nul\0inside": "not_found",
    }
    for path, reason in cases.items():
        with pytest.raises(FileRefused) as refused:
            await content(plain_sandbox, path)
        assert refused.value.reason == reason, path
    for path in (str(tmp_path), str(tmp_path / "queue"), "/dev/null"):
        with pytest.raises(FileRefused) as refused:
            await plain_sandbox.write_file(path, in_chunks(b"x"))
        assert refused.value.reason in ("is_a_directory", "not_a_file"), path


async def test_a_reader_that_stops_halfway_leaves_the_sandbox_usable(plain_sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(5_000_000))
    reading = plain_sandbox.read_file(str(tmp_path / "large"))
    assert len(await anext(reading)) > 0
    await reading.aclose()  # type: ignore[attr-defined]
    assert len(await content(plain_sandbox, tmp_path / "large")) == 5_000_000
    assert plain_sandbox.attached == 0


async def test_a_writer_that_breaks_off_leaves_nothing(plain_sandbox: Sandbox, tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError("the client went away")

    with pytest.raises(ConnectionResetError):
        await plain_sandbox.write_file(str(tmp_path / "file"), broken())
    await plain_sandbox.is_alive()
    assert [path.name for path in tmp_path.iterdir()] == ["sandboxes"]
