"""Looking into the source of a version without downloading it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub_server.errors import TooLarge
from hub_server.registry.inspect import SourceFile, SourceTree, look_into
from tests.running_hub import Push, RunningHub, answer, make_source

NewUser = Callable[[], tuple[str, str]]


class Source(Push):
    """A push whose source archive holds these files."""

    def __init__(self, client: httpx.Client, name: str, files: dict[str, bytes], **options: Any) -> None:
        super().__init__(client, name, "0.1.0", **options)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for path, data in files.items():
                member = tarfile.TarInfo(path)
                member.size, member.mtime = len(data), 1_600_000_000
                archive.addfile(member, io.BytesIO(data))
        self.source = buffer.getvalue()


@pytest.fixture
def look(hub: RunningHub, new_user: NewUser) -> Callable[..., httpx.Response]:
    """Ask about a path of an environment that holds a bit of everything, as nobody."""
    slug, key = new_user()
    files = {
        "README.md": b"# deep\n",
        "deep.py": b"VALUE = 1\n" * 10,
        "data/more/rows.jsonl": b"{}\n",
        "data/umlauts.txt": "ä".encode() * 10,
        "data/picture.png": b"\x89PNG\x00\x01",
        "./odd.txt": b"",
    }
    with hub.client(key) as client:
        assert Source(client, "deep", files).run().is_success

    def ask(path: str = "", **params: Any) -> httpx.Response:
        with hub.client() as nobody:
            return nobody.get(f"/environmentshub/{slug}/deep/@latest/inspect", params={"path": path, **params})

    return ask


def test_a_folder_shows_what_it_holds_folders_first(look: Callable[..., httpx.Response]) -> None:
    top = answer(look())["data"]
    assert (top["kind"], top["path"], top["truncated"]) == ("directory", "", False)
    assert [(entry["path"], entry["is_directory"]) for entry in top["entries"]] == [
        ("data", True), ("README.md", False), ("deep.py", False), ("odd.txt", False)
    ]  # fmt: skip
    assert top["entries"][1]["size"] == 7
    assert top["entries"][1]["modified_at"] == "2020-09-13T12:26:40+00:00"
    below = answer(look("/data/more/"))["data"]
    assert [(entry["name"], entry["path"]) for entry in below["entries"]] == [("rows.jsonl", "data/more/rows.jsonl")]
    assert below["total_bytes"] == 3


def test_a_file_shows_its_text_and_says_when_it_is_cut(look: Callable[..., httpx.Response]) -> None:
    whole = answer(look("deep.py"))["data"]
    assert (whole["kind"], whole["content"], whole["truncated"]) == ("file", "VALUE = 1\n" * 10, False)
    assert len(whole["entry"]["content_hash"]) == 64
    cut = answer(look("deep.py", max_bytes=15))["data"]
    assert (cut["content"], cut["truncated"], cut["total_bytes"]) == ("VALUE = 1\nVALUE", True, 100)
    assert answer(look("data/umlauts.txt", max_bytes=5))["data"]["content"] == "ää"
    assert answer(look("odd.txt"))["data"]["content"] == ""


def test_a_file_that_is_no_text_is_marked_so(look: Callable[..., httpx.Response]) -> None:
    shown = answer(look("data/picture.png"))["data"]
    assert shown["is_binary"]
    assert shown["content"] == "(6 bytes that are no text)"


def test_a_path_that_is_not_there_names_the_nearest(look: Callable[..., httpx.Response]) -> None:
    refused = look("rows.jsonl")
    assert refused.status_code == 404
    assert refused.json()["detail"] == "rows.jsonl not found in the source; did you mean data/more/rows.jsonl?"


@pytest.mark.parametrize("path", ["../deep.py", "data/../../x", "/..", "data\\x"])
def test_a_path_that_leads_out_is_refused(look: Callable[..., httpx.Response], path: str) -> None:
    refused = look(path)
    assert refused.status_code == 400
    assert refused.json()["detail"] == f"the path {path!r} leads out of the source"


@pytest.mark.parametrize("max_bytes", [0, 1_000_001, "many"])
def test_how_much_is_shown_is_bounded(look: Callable[..., httpx.Response], max_bytes: object) -> None:
    refused = look("deep.py", max_bytes=max_bytes)
    assert refused.status_code == 422
    assert refused.json()["detail"][0]["loc"] == ["query", "max_bytes"]


def test_a_version_without_source_shows_its_wheel(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        push = Push(client, "only-wheel", "0.1.0", code="VALUE = 7\n")
        push.resolve()
        data = answer(push.announce_wheel(wheel_only=True))["data"]
        httpx.put(data["upload_url"], content=push.wheel, trust_env=False)
        assert push.finalize("wheels", data["wheel_id"]).is_success
        path = f"/environmentshub/{slug}/only-wheel/@0.1.0/inspect"
        top = answer(client.get(path))["data"]
        assert top["archive"] == "wheel"
        assert [entry["name"] for entry in top["entries"]] == ["only_wheel-0.1.0.dist-info", "only_wheel.py"]
        assert answer(client.get(path, params={"path": "only_wheel.py"}))["data"]["content"] == "VALUE = 7\n"
        assert answer(client.get(path, params={"path": "only_wheel.py", "max_bytes": 3}))["data"]["content"] == "VAL"


def test_the_source_of_a_private_environment_does_not_exist_for_others(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as owner, hub.client(new_user()[1]) as stranger:
        push = Push(owner, "quiet", "0.1.0", visibility="PRIVATE")
        push.source = make_source({"quiet.py": "SECRET = 1\n"})
        assert push.run().is_success
        path = f"/environmentshub/{slug}/quiet/@latest/inspect"
        assert answer(owner.get(path, params={"path": "quiet.py"}))["data"]["content"] == "SECRET = 1\n"
        assert stranger.get(path, params={"path": "quiet.py"}).status_code == 404


def test_a_file_that_lies_too_deep_in_a_large_archive_is_not_unpacked(tmp_path: Path) -> None:
    tree = SourceTree()
    tree.add(SourceFile("far.py", 3, offset=2**30))
    with pytest.raises(TooLarge, match="lies too deep in a large archive to be shown"):
        look_into(tree, tmp_path / "never-opened.tar.gz", "source", "far.py", 10)
