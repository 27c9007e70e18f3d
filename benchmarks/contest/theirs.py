"""TRL's side of the contest: an interpreter that has it, and one training in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from contest.ours import children_cpu, held_out_reward, rendered
from contest.recipe import Recipe, Trace
from prime_cli.models.folder import load_tokenizer

_SCRIPT = Path(__file__).with_name("trl_script.py")
_REQUIREMENTS = Path(__file__).with_name("requirements-trl.txt")


def interpreter(cache: Path) -> Path:
    """Return an interpreter with TRL, made in `cache` by pip if it is not there yet."""
    python, done = cache / "bin" / "python", cache / "installed.txt"
    wanted = _REQUIREMENTS.read_text()
    if not done.exists() or done.read_text() != wanted:
        print(f"installing TRL into {cache}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", cache], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", _REQUIREMENTS], check=True, stdout=sys.stderr)
        done.write_text(wanted)
    return python


def train(
    folder: Path, python: Path, model: Path, strings: Path, recipe: Recipe, *, seed: int, processes: int, threads: int
) -> Trace:
    """Train by GRPOTrainer in `processes` processes of `threads` threads each."""
    texts = json.loads(strings.read_text())["train"]
    seen, weights = folder / "trl-seen.json", folder / "trl-weights"
    job = {
        "recipe": asdict(recipe), "model": str(model), "seed": seed, "threads": threads,
        **recipe.tool, "seen": str(seen), "weights": str(weights),
        "prompts": rendered(load_tokenizer(model), texts), "answers": [text[::-1] for text in texts],
    }  # fmt: skip
    (folder / "trl-job.json").write_text(json.dumps(job))
    command = [python, _SCRIPT]
    if processes > 1:
        command = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone", _SCRIPT]
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    before, started = children_cpu(), time.time()
    subprocess.run([*command, folder / "trl-job.json"], cwd=folder, env=environment, check=True, stdout=sys.stderr)
    cpu_seconds = children_cpu() - before
    found = json.loads(seen.read_text())
    trace = Trace(
        trainer="TRL" if processes == 1 else f"TRL, {processes} processes",
        startup_s=found.pop("began") - started,
        cpu_seconds=cpu_seconds,
        **found,
    )
    trace.held_out = held_out_reward(weights, strings, recipe, folder)
    return trace
