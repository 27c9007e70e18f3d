"""Our side of the contest: warming up the model, training it by `prime rl run`, and asking trained weights."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
from difflib import SequenceMatcher
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import tomlkit

from contest.recipe import Recipe, Trace, draw_strings
from prime_cli.rl.inference.chat import ChatTokenizer
from prime_cli.rl.inference.protocol import ChatRequest
from prime_cli.rl.inference.serving import serve_model_folder
from prime_cli.rl.run_directory import RunDirectory, read_metrics

ENVIRONMENT = Path(__file__).parents[1] / "environments" / "checked_reversal"
_PRIME = [sys.executable, "-m", "prime_cli.main"]
_SFT_STEPS, _NOISE = 600, 0.4
WARM_WEIGHTS = f"outputs/sft/warm/weights/step_{_SFT_STEPS}"


def warm_up(folder: Path, seed: int) -> None:
    """Make a tiny model and fine-tune it on noisy demonstrations, so that it knows the task and samples badly.

    The weights are `WARM_WEIGHTS` of `folder`.
    """
    rng = random.Random(f"{seed} demonstrations")
    with (folder / "demonstrations.jsonl").open("w") as file:
        for text in draw_strings(seed + 1_000_000, 64 * _SFT_STEPS)["train"]:
            noisy = "".join(rng.choice(ascii_lowercase) if rng.random() < _NOISE else c for c in text[::-1])
            file.write(json.dumps({"prompt": text, "completion": noisy}) + "\n")
    _prime(folder, "model", "init", "tiny-qwen3", "model", "--seed", str(seed))
    config = {
        "model": "model", "name": "warm", "max_steps": _SFT_STEPS, "learning_rate": 1e-3, "seed": seed,
        "data": {"path": "demonstrations.jsonl", "num_validation": 0},
        "trainer": {"seq_len": 64, "scheduler": {"warmup_steps": 20}},
    }  # fmt: skip
    (folder / "sft.toml").write_text(tomlkit.dumps(config))
    _prime(folder, "sft", "run", "sft.toml")


def train(folder: Path, model: Path, strings: Path, recipe: Recipe, *, seed: int, off_policy: int) -> Trace:
    """Train by `prime rl run`; `off_policy` 0 is synchronous."""
    name = f"run-{off_policy}-{recipe.tool_median_s}"
    config = _config(name, model, strings, recipe, seed, off_policy)
    (folder / f"{name}.toml").write_text(tomlkit.dumps(config))
    before, started = children_cpu(), time.time()
    _prime(folder, "rl", "run", f"{name}.toml")
    run = RunDirectory(folder / "outputs/rl" / name)
    records, _ = read_metrics(run.metrics)
    cut = [record for record in records if record["source"] == "orchestrator"]
    trained = [record for record in records if record["source"] == "trainer"]
    first_asked = cut[0]["time"] - cut[0]["time/collect"]
    trace = Trace(
        trainer="ours, synchronous" if off_policy == 0 else f"ours, {off_policy} behind",
        startup_s=first_asked - started,
        cpu_seconds=children_cpu() - before,
        seconds=[record["time"] - first_asked for record in trained],
        rewards=[record["reward/mean"] for record in cut],
        tokens=[record["completion_tokens/mean"] * record["rollouts"] for record in cut],
    )
    trace.held_out = held_out_reward(run.weights(recipe.steps), strings, recipe, folder)
    return trace


def held_out_reward(weights: Path, strings: Path, recipe: Recipe, folder: Path) -> float:
    """Return the mean reward on the held-out strings; the trained weights of all trainers are asked in this way."""
    import httpx

    texts = json.loads(strings.read_text())["held_out"]
    total = 0.0
    with serve_model_folder(weights, log_path=folder / "held_out.log") as served, httpx.Client() as client:
        for number, text in enumerate(texts):
            body = {
                "model": served.model, "messages": [{"role": "user", "content": text}], "seed": number,
                "max_tokens": recipe.max_tokens, "temperature": recipe.temperature,
            }  # fmt: skip
            answer = client.post(f"{served.base_url}/chat/completions", json=body, timeout=60).raise_for_status().json()
            reply = answer["choices"][0]["message"]["content"].strip()
            total += SequenceMatcher(None, reply, text[::-1]).ratio()
    return total / len(texts)


def rendered(tokenizer: Any, texts: list[str]) -> list[str]:
    """Return the prompts as the model's template renders them, for trainers that are given plain text."""
    chat = ChatTokenizer(tokenizer)
    asked = (ChatRequest(messages=[{"role": "user", "content": text}]) for text in texts)
    return [tokenizer.decode(chat.prompt_ids(request)) for request in asked]


def _config(name: str, model: Path, strings: Path, recipe: Recipe, seed: int, off_policy: int) -> dict[str, Any]:
    return {
        "name": name, "model": str(model), "seed": seed, "max_steps": recipe.steps,
        "batch_size": recipe.prompts * recipe.rollouts, "rollouts_per_example": recipe.rollouts,
        "max_inflight_rollouts": (off_policy + 1) * recipe.prompts * recipe.rollouts,
        "learning_rate": recipe.learning_rate,
        "sampling": {"max_tokens": recipe.max_tokens, "temperature": recipe.temperature},
        "env": [{"id": str(ENVIRONMENT), "args": {"strings": str(strings), "seed": seed, **recipe.tool}}],
        "trainer": {
            "seq_len": 64,
            "optim": {"betas": list(recipe.betas)},
            "scheduler": {"type": "constant", "warmup_steps": recipe.warmup_steps},
        },
        "inference": {"num_slots": max(256, (off_policy + 1) * recipe.prompts * recipe.rollouts)},
        "orchestrator": {"max_off_policy_steps": off_policy},
    }  # fmt: skip


def _prime(folder: Path, *arguments: str) -> None:
    environment = os.environ | {"PRIME_HOME": str(folder / "home"), "PRIME_DISABLE_KEYRING": "1"}
    environment.pop("VIRTUAL_ENV", None)  # environments run where this benchmark does
    subprocess.run([*_PRIME, *arguments], cwd=folder, env=environment, check=True, stdout=sys.stderr)


def children_cpu() -> float:
    """Return the processor time of the child processes that have ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
