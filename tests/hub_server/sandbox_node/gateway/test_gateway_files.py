"""Files go into a sandbox and come out of it, in pieces."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import httpx
import pytest

from hub_server.sandbox_node.gateway import files
from tests.hub_server.sandbox_node.gateway.conftest import LIMITS, Served


async def nothing_left(gateway: Served) -> None:
    """Wait until nothing goes on and no file is there, not even half of one."""
    async with asyncio.timeout(5):
        while gateway.sandbox.attached or os.listdir(gateway.folder):
            await asyncio.sleep(0.02)


async def test_an_upload_makes_parents_and_is_echoed(gateway: Served) -> None:
    path = f"{gateway.folder}/a/b/ü c.txt"
    content = os.urandom(3_000_000)
    answer = await gateway.post(
        "upload", params={"path": path, "sandbox_id": "sb-1"}, files={"file": ("x.bin", content)}
    )
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert (said["success"], said["path"], said["size"]) == (True, path, len(content))
    assert said["timestamp"].endswith("+00:00")
    assert (gateway.folder / "a" / "b" / "ü c.txt").read_bytes() == content
    downloaded = await gateway.get("download", params={"path": path})
    assert downloaded.content == content
    assert downloaded.headers["content-length"] == str(len(content))


@pytest.mark.parametrize("content", [b"", b"\r\n", b"--", b"\r\n--", b"a\r\n\r\nb"])
async def test_any_content_is_uploaded_as_it_is(gateway: Served, content: bytes) -> None:
    path = f"{gateway.folder}/x"
    more = {"other": (None, b"ignored"), "file": ("x", content)}
    assert (await gateway.post("upload", params={"path": path}, files=more)).json()["size"] == len(content)
    assert (await gateway.get("download", params={"path": path})).content == content


async def test_a_file_over_the_limit_is_refused_and_not_kept(gateway: Served) -> None:
    path = f"{gateway.folder}/big"
    content = b"x" * (LIMITS.file_bytes + 1)
    answer = await gateway.post("upload", params={"path": path}, files={"file": content})
    assert (answer.status_code, answer.json()["reason"]) == (413, "too_large")
    assert os.listdir(gateway.folder) == []
    assert (await gateway.post("exec", json={"command": "echo well"})).json()["stdout"] == "well\n"


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"x", {"content-type": "text/plain"}),
        (b"x", {"content-type": "multipart/form-data"}),
        (b"x", {"content-type": "multipart/form-data; boundary=b"}),
        (b"--b\r\n", {"content-type": "multipart/form-data; boundary=b"}),
        (b"--b\r\nno header\r\n\r\n", {"content-type": "multipart/form-data; boundary=b"}),
        (
            b'--b\r\nContent-Disposition: form-data; name="other"\r\n\r\nx\r\n--b--\r\n',
            {"content-type": "multipart/form-data; boundary=b"},
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx',
            {"content-type": "multipart/form-data; boundary=b"},
        ),
    ],
)
async def test_a_form_that_is_none_is_refused_and_writes_nothing(
    gateway: Served, content: bytes, headers: dict[str, str]
) -> None:
    path = f"{gateway.folder}/x"
    answer = await gateway.post("upload", params={"path": path}, content=content, headers=headers)
    assert answer.status_code == 422
    await nothing_left(gateway)


async def test_an_upload_that_breaks_off_leaves_nothing(gateway: Served) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + b"x" * 100_000
        await asyncio.sleep(0.1)
        raise ConnectionError

    headers = {"content-type": "multipart/form-data; boundary=b"}
    with pytest.raises(ConnectionError):
        await gateway.post("upload", params={"path": f"{gateway.folder}/x"}, content=broken(), headers=headers)
    await nothing_left(gateway)


async def test_paths_that_lead_nowhere_have_their_reasons(gateway: Served) -> None:
    folder = str(gateway.folder)
    for path, status in [(f"{folder}/none", 404), (folder, 400), ("/dev/null", 400), ("", 422), ("/a\0b", 422)]:
        for what in ("download", "read-file"):
            answer = await gateway.get(what, params={"path": path})
            assert answer.status_code == status, (what, path, answer.text)
            assert answer.json()["detail"]
    assert (await gateway.get("download")).status_code == 422
    upload = await gateway.post("upload", params={"path": folder}, files={"file": b"x"})
    assert (upload.status_code, upload.json()["reason"]) == (400, "is_a_directory")


async def test_parts_of_a_file_are_read(gateway: Served) -> None:
    file = gateway.folder / "text"
    file.write_text("0123456789")
    read = {
        "": ("0123456789", 10, 0, False),
        "&offset=3": ("3456789", 7, 3, True),
        "&offset=3&length=2": ("34", 2, 3, True),
        "&offset=-4": ("6789", 4, 6, True),
        "&offset=-100&length=100": ("0123456789", 10, 0, False),
        "&offset=20": ("", 0, 20, True),
        "&length=0": ("", 0, 0, True),
    }
    for query, (content, size, offset, truncated) in read.items():
        said = (await gateway.get(f"read-file?path={file}{query}")).json()
        wanted = {"content": content, "size": size, "offset": offset, "truncated": truncated}
        assert {name: said[name] for name in wanted} == wanted, query
        assert said["total_size"] >= 10
    for wrong in ("&offset=x", "&length=-1", "&length=1.5"):
        assert (await gateway.get(f"read-file?path={file}{wrong}")).status_code == 422


async def test_a_file_too_long_to_read_at_once_says_how(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_READ_BYTES", 10)
    (gateway.folder / "text").write_text("0123456789x")
    refused = await gateway.get(f"read-file?path={gateway.folder}/text")
    assert refused.status_code == 413
    assert "offset and length" in refused.json()["detail"]
    windowed = (await gateway.get(f"read-file?path={gateway.folder}/text&offset=-10&length=100")).json()
    assert (windowed["content"], windowed["truncated"]) == ("123456789x", True)


async def test_what_is_no_utf_8_is_read_with_replacements(gateway: Served) -> None:
    (gateway.folder / "bytes").write_bytes(b"a\xffb")
    assert (await gateway.get(f"read-file?path={gateway.folder}/bytes")).json()["content"] == "a\ufffdb"


async def test_files_without_a_size_are_read_too(gateway: Served) -> None:
    assert b"processor" in (await gateway.get("download?path=/proc/cpuinfo")).content
    said = (await gateway.get("read-file?path=/proc/cpuinfo")).json()
    assert "processor" in said["content"]
    assert said["size"] == said["total_size"] > 0


async def test_a_download_that_nobody_takes_is_given_up(gateway: Served) -> None:
    file = gateway.folder / "large"
    with file.open("wb") as sparse:
        sparse.truncate(2 * 1024**3)
    async with gateway.client.stream("GET", f"/sandboxes/sb-1/download?path={file}") as answer:
        await anext(answer.aiter_raw())
        assert gateway.sandbox.attached == 1
    async with asyncio.timeout(5):
        while gateway.sandbox.attached:
            await asyncio.sleep(0.02)


async def test_a_file_that_shrinks_under_way_breaks_the_connection(gateway: Served) -> None:
    file = gateway.folder / "large"
    file.write_bytes(b"x" * 30_000_000)
    async with gateway.client.stream("GET", f"/sandboxes/sb-1/download?path={file}") as answer:
        await asyncio.sleep(0.2)
        file.write_bytes(b"")
        with pytest.raises(httpx.RemoteProtocolError):
            await answer.aread()
