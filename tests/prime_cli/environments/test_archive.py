from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.environments.archive import content_hash, pack, source_files, unpack
from tests.prime_cli.environments.conftest import MakeProject


def test_the_archive_holds_sources_and_nothing_that_was_made_or_hidden(make_project: MakeProject) -> None:
    folder = make_project()
    wanted = ["data/rows.jsonl", "data/deep/more.txt", "second.py"]
    unwanted = [
        ".env", "notes.txt", "data/.secret", ".prime/x.json", "dist/a.whl", "build/x.py", "outputs/evals/r.jsonl",
        "data/__pycache__/x.pyc", "tiny_sum.egg-info/PKG-INFO", "data/big.bin", "private/x.py",
    ]  # fmt: skip
    for name in wanted + unwanted:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / ".gitignore").write_text("*.bin\n/private/\n")
    os.symlink("/etc/hostname", folder / "data" / "link.txt")
    found = [str(path) for path in source_files(folder)]
    assert found == sorted([*wanted, "README.md", "pyproject.toml", "tiny_sum.py"])


def test_the_content_hash_is_over_sorted_paths_each_followed_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_bytes(b"B")
    (tmp_path / "a.py").write_bytes(b"A")
    expected = hashlib.sha256(b"file:a.pyAfile:b.pyB").hexdigest()
    assert content_hash(tmp_path, source_files(tmp_path)) == expected


def test_the_same_contents_pack_to_the_same_bytes(make_project: MakeProject) -> None:
    folder = make_project()
    first = pack(folder, source_files(folder))
    for path in folder.iterdir():
        os.utime(path, (1, 1))
        path.chmod(0o600)
    assert pack(folder, source_files(folder)) == first


def test_what_is_packed_unpacks(make_project: MakeProject, tmp_path: Path) -> None:
    folder = make_project()
    (tmp_path / "x.tar.gz").write_bytes(pack(folder, source_files(folder)))
    unpack(tmp_path / "x.tar.gz", tmp_path / "out")
    assert source_files(tmp_path / "out") == source_files(folder)
    assert (tmp_path / "out" / "tiny_sum.py").read_text() == (folder / "tiny_sum.py").read_text()


@pytest.mark.parametrize("name", ["../evil.py", "/tmp/evil.py", "a/../../evil.py", "link"])
def test_an_archive_that_leads_out_of_its_folder_is_refused(name: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member, io.BytesIO())
    (tmp_path / "x.tar.gz").write_bytes(buffer.getvalue())
    with pytest.raises(PrimeError, match=r"outside itself|no plain file"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out")
    assert not (tmp_path / "evil.py").exists()


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"not at all")
    with pytest.raises(PrimeError, match=r"not a readable tar\.gz"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out")
