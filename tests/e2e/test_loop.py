"""The whole loop through the real commands, small: publish, install, evaluate, fine-tune, train, evaluate again."""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running_hub import RunningHub, start_hub

RL = """
name = "run"
model = "outputs/sft/warm/weights/step_20"
max_steps = 3
batch_size = 32
rollouts_per_example = 8
learning_rate = 1e-3
[sampling]
max_tokens = 12
[[env]]
id = "reverse-text"
args = { num_train = 200 }
[checkpoints]
interval = 2
[orchestrator]
env_workers = 1
"""
SFT = """
name = "warm"
model = "tiny"
max_steps = 20
batch_size = 16
learning_rate = 1e-3
[data]
env = "reverse-text"
args = { num_train = 200 }
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    hub = start_hub(tmp_path / "hub")
    try:
        yield hub
    finally:
        if hub.process.poll() is None:
            hub.end(signal.SIGTERM)


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """An interpreter of the workspace's own that sees the libraries of this one, so that nothing is installed here."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False)
    library = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (library / "parent.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return folder


@pytest.fixture
def prime(hub: RunningHub, interpreter: Path) -> Callable[..., Any]:
    """Run `prime ... --output json` somewhere and return the object that it printed."""
    environment = os.environ | {"VIRTUAL_ENV": str(interpreter), "PRIME_API_BASE_URL": hub.url}

    def run(folder: Path, *arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "prime_cli.main", "--output", "json", *arguments],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    return run


def test_the_whole_loop_from_an_empty_folder_to_trained_weights(
    hub: RunningHub, prime: Callable[..., Any], tmp_path: Path
) -> None:
    author, user = tmp_path / "author", tmp_path / "user"
    author.mkdir()
    user.mkdir()
    key_file = hub.data_dir / "admin.key"

    prime(author, "login", "--api-key-file", str(key_file))
    owner = prime(author, "whoami")["slug"]
    prime(author, "lab", "setup")
    prime(author, "env", "init", "reverse-text", "--template", "reverse-text")
    prime(author, "env", "build", "reverse-text")
    prime(author, "env", "upload", "reverse-text")

    # The user has nothing but the hub: what runs from here on is the published wheel.
    prime(user, "env", "install", f"{owner}/reverse-text")
    prime(user, "model", "init", "tiny-qwen3", "tiny", "--seed", "1")
    (user / "sft.toml").write_text(SFT)
    (user / "rl.toml").write_text(RL)
    warm = prime(user, "sft", "run", "sft.toml")
    assert warm["weights"] == "outputs/sft/warm/weights/step_20"
    before = prime(user, "eval", "run", "reverse-text", "-m", warm["weights"], "-n", "8", "-r", "2", "-t", "12")
    assert before["num_rollouts"] == 16
    trained = prime(user, "rl", "run", "rl.toml")
    run = user / trained["path"]
    (listed,) = prime(user, "rl", "list")["runs"]
    assert (listed["state"], listed["steps"], listed["exported_steps"]) == ("finished", 3, [2, 3])
    assert [row["step"] for row in prime(user, "rl", "metrics", "run")["metrics"]] == [1, 2, 3]
    assert len(prime(user, "rl", "samples", "run", "--step", "2", "-n", "50")["rollouts"]) == 32
    assert prime(user, "rl", "export", "run", "--to", "exported")["step"] == 3
    assert sorted(path.name for path in (run / "weights").iterdir()) == ["step_2", "step_3"]
    rollouts = [json.loads(line) for line in (run / "rollouts" / "step_3.jsonl").read_text().splitlines()]
    assert len(rollouts) == 32
    assert {"prompt", "completion", "reward", "policy_version"} <= rollouts[0].keys()
    assert not (run / "batches").exists()
    assert not (run / "broadcasts").exists()
    after = prime(user, "eval", "run", "reverse-text", "-m", trained["weights"], "-n", "8", "-r", "2", "-t", "12")
    assert after["num_rollouts"] == 16
    assert prime(user, "eval", "list")["total"] == 2

    from transformers import AutoModelForCausalLM

    tiny, weights = (AutoModelForCausalLM.from_pretrained(user / p) for p in (warm["weights"], trained["weights"]))
    assert any(bool((a != b).any()) for a, b in zip(tiny.parameters(), weights.parameters(), strict=True))
