"""What the training commands say to input that cannot work: one line, a hint, and nothing is written."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

RL = 'model = "{model}"\n[[env]]\nid = "reverse-text"\n'
SFT = 'model = "{model}"\n[data]\nenv = "reverse-text"\n'


def prime(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prime_cli.main", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def refused(done: subprocess.CompletedProcess[str], *says: str, code: int = 1) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for text in says:
        assert text in done.stderr


@pytest.mark.parametrize(("command", "text"), [("rl", RL), ("sft", SFT)])
def test_an_unknown_key_is_named_with_the_nearest_known_one(tmp_path: Path, command: str, text: str) -> None:
    (tmp_path / "run.toml").write_text("learnig_rate = 1e-3\n" + text)
    done = prime(tmp_path, command, "run", "run.toml")
    refused(done, "`learnig_rate` is not a known key", "hint: did you mean `learning_rate`?")
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(("command", "text"), [("rl", RL), ("sft", SFT)])
def test_a_folder_that_is_no_model_is_refused_before_anything_is_written(
    tmp_path: Path, command: str, text: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "run.toml").write_text(text.format(model="empty"))
    refused(prime(tmp_path, command, "run", "run.toml"), "empty is not a model folder", "hint:")
    assert not (tmp_path / "outputs").exists()


def test_a_missing_configuration_is_refused(tmp_path: Path) -> None:
    refused(prime(tmp_path, "rl", "run", "none.toml"), "no such file: none.toml")


def test_vllm_that_is_not_installed_is_refused_with_the_way_to_get_it(tmp_path: Path, tiny_model: Path) -> None:
    pytest.importorskip("torch")
    import importlib.util

    if importlib.util.find_spec("vllm") is not None:
        pytest.skip("vLLM is installed here")
    (tmp_path / "run.toml").write_text(RL.format(model=tiny_model) + '[inference]\nengine = "vllm"\n')
    refused(prime(tmp_path, "rl", "run", "run.toml"), "does not have", "hint: install the extra `vllm`")
    assert not (tmp_path / "outputs").exists()


def test_a_port_in_use_is_refused_with_the_way_to_another(tmp_path: Path, tiny_model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = prime(tmp_path, "inference", "serve", str(tiny_model), "--port", port)
    refused(done, f"cannot listen on 127.0.0.1:{port}", "`--port`")


def test_plotting_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    refused(prime(tmp_path, "rl", "plot", "."), "not a run directory")
