"""Results on a disk that takes no more."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.evals.store import EvalDirectory, new_eval_directory

LIMITED = """
import json, resource, sys
from pathlib import Path
from prime_cli.core.errors import PrimeError
from prime_cli.evals.store import EvalDirectory

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
directory = EvalDirectory(Path(sys.argv[1]))
try:
    for number in range(1000):
        directory.append({"example_id": number, "text": "x" * 300})
except PrimeError as error:
    print(json.dumps([error.message, error.hint, number]))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_whole_lines_and_says_so_in_one(small_disk: Path) -> None:
    directory = EvalDirectory(small_disk)
    number, rollout = 0, {"text": "x" * 3000}
    with contextlib.suppress(PrimeError):
        for number in range(1000):
            directory.append({"example_id": number, **rollout})
    with pytest.raises(PrimeError, match=r"results\.jsonl cannot be written: No space left on device") as caught:
        directory.append(rollout)
    assert "--resume" in (caught.value.hint or "")
    assert [rollout["example_id"] for rollout in directory.rollouts()] == list(range(number))
    assert directory.results.read_bytes().endswith(b"\n")
    with pytest.raises(PrimeError, match=r"metadata\.json cannot be written"):
        directory.write_metadata({"much": "x" * 60_000})
    with pytest.raises(PrimeError, match="cannot be written"):
        directory.select_lines([True] * number)
    assert sorted(path.name for path in small_disk.iterdir()) == ["results.jsonl"]
    assert len(list(directory.lines())) == number


def test_a_limit_on_the_size_of_files_leaves_whole_lines_too(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True)
    message, hint, number = json.loads(done.stdout)
    assert "cannot be written: File too large" in message
    assert "--resume" in hint
    assert [rollout["example_id"] for rollout in EvalDirectory(tmp_path).rollouts()] == list(range(number))


def test_a_folder_that_cannot_be_made_or_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "evals").write_text("a file, where a folder is to be")
    with pytest.raises(PrimeError, match="cannot be created") as caught:
        new_eval_directory(tmp_path, "squares", "m")
    assert "--output-dir" in (caught.value.hint or "")
    (tmp_path / "results.jsonl").mkdir()
    with pytest.raises(PrimeError, match=r"results\.jsonl cannot be written: Is a directory"):
        EvalDirectory(tmp_path).append({})
