"""Trainer against inference: log-probabilities of the same sampled tokens, for each engine that is there.

    python benchmarks/logprob_mismatch.py [--check] [--model DIR] [--engine embedded --engine vllm-float32 ...]

The server samples 64 completions of 48 tokens at temperature 1 from random prompts; the trainer computes in fp32,
packed, what it gives to the same tokens. Printed per engine: mean and largest difference, and the mismatch KL that runs
show. Without --model it is the tiny one with embeddings four times as large, so that its distributions have an opinion,
as a trained model's have. vLLM is measured where PRIME_VLLM_PYTHON names an interpreter that has it. With --check the
exit code is 1 when an engine's KL is above its goal.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import torch

from prime_cli.core.processes import end_process_groups
from prime_cli.models.folder import load_causal_model, load_tokenizer, save_model_folder
from prime_cli.models.tiny_qwen3 import write_model
from prime_cli.rl.inference.serving import serve_model_folder, start_server
from prime_cli.rl.inference.vllm import PYTHON_VARIABLE, answers, free_port, vllm_command
from prime_cli.rl.inference_config import InferenceConfig
from prime_cli.rl.trainer.micro_batches import micro_batches_of
from prime_cli.rl.trainer.policy import PolicyModel
from prime_cli.rl.transport import Sample

GOALS = {"embedded": 1e-8, "vllm-float32": 1e-8, "vllm-bfloat16": 1e-2}
REQUESTS, PROMPT, TOKENS = 64, 16, 48
START_S = 600


@contextlib.contextmanager
def served_by_vllm(folder: Path, log: Path, *, dtype: str = "float32", rank: int | None = None) -> Iterator[str]:
    """Serve `folder` as `policy` by vLLM for as long as the context lasts; yields the server's URL."""
    port = free_port()
    config = InferenceConfig.model_validate({"engine": "vllm", "dtype": dtype, "num_slots": 64})
    command = vllm_command(
        folder, config, model_name="policy", port=port, context=512, seed=0, adapter_rank=rank
    )  # fmt: skip
    process = start_server(command, log_path=log, admin_token="")
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_S
        while not answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"vLLM did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.5)
        yield url
    finally:
        end_process_groups([process])


def opinionated_model(folder: Path) -> None:
    """Write the tiny model with embeddings, which are its head too, four times as large."""
    write_model("tiny-qwen3", folder, seed=0)
    model, tokenizer = load_causal_model(folder), load_tokenizer(folder)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(4)
    save_model_folder(model, tokenizer, folder.with_name("opinionated"))


def sampled(url: str, model: str, vocabulary: int) -> list[tuple[list[int], list[int], list[float]]]:
    """Return prompts, sampled tokens and what the server says of these."""
    rng = random.Random(0)
    prompts = [[rng.randrange(vocabulary) for _ in range(PROMPT)] for _ in range(REQUESTS)]

    def ask(prompt: list[int]) -> tuple[list[int], list[int], list[float]]:
        parameters = {"max_tokens": TOKENS, "temperature": 1.0, "logprobs": 0, "ignore_eos": True}
        body = {"model": model, "token_ids": prompt, "sampling_params": parameters}
        answer = httpx.post(f"{url}/inference/v1/generate", json=body, timeout=600)
        answer.raise_for_status()
        (choice,) = answer.json()["choices"]
        return prompt, choice["token_ids"], [entry["logprob"] for entry in choice["logprobs"]["content"]]

    with ThreadPoolExecutor(32) as pool:
        return list(pool.map(ask, prompts))


def mismatch(folder: Path, answers_: list[tuple[list[int], list[int], list[float]]]) -> tuple[float, float, float]:
    """Return mean and largest difference to the trainer's log-probabilities, and the mean of exp(d) - d - 1."""
    policy = PolicyModel(load_causal_model(folder), chunk=256)
    samples = []
    for prompt, tokens, logprobs in answers_:
        none = [0.0] * (len(prompt) + len(tokens))
        mask = [0.0] * len(prompt) + [1.0] * len(tokens)
        samples.append(Sample(prompt + tokens, [0.0] * len(prompt) + logprobs, none, mask, none))
    differences = []
    for row in micro_batches_of(samples, max_tokens=1024, seq_len=512):
        wanted = row.columns.rl_weights > 0
        with torch.no_grad():
            logprobs_1T, _ = policy(row, wanted)
        differences.append((logprobs_1T - row.columns.inference_logprobs)[wanted])
    d = torch.cat(differences).double()
    return float(d.abs().mean()), float(d.abs().max()), float((d.exp() - d - 1).mean())


def measure(engine: str, folder: Path, scratch: Path) -> tuple[float, float, float]:
    """Serve `folder` by `engine` and return its figures."""
    vocabulary = int(load_causal_model(folder).get_input_embeddings().num_embeddings)
    log = scratch / f"{engine}.log"
    if engine == "embedded":
        with serve_model_folder(folder, log_path=log) as served:
            found = sampled(served.admin_url, served.model, vocabulary)
    else:
        with served_by_vllm(folder, log, dtype=engine.removeprefix("vllm-")) as url:
            found = sampled(url, "policy", vocabulary)
    return mismatch(folder, found)


def main() -> None:
    """Measure each engine and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--engine", action="append", choices=list(GOALS))
    options = parser.parse_args()
    there = list(GOALS) if os.environ.get(PYTHON_VARIABLE) else ["embedded"]
    missed = False
    with tempfile.TemporaryDirectory(prefix="prime-mismatch-") as name:
        scratch = Path(name)
        folder = options.model
        if folder is None:
            opinionated_model(scratch / "tiny")
            folder = scratch / "opinionated"
        for engine in options.engine or there:
            mean, most, kl = measure(engine, folder, scratch)
            missed = missed or kl > GOALS[engine]
            print(f"{engine:14s} mean {mean:.1e}  max {most:.1e}  mismatch KL {kl:.1e}  (goal {GOALS[engine]:.0e})")
    sys.exit(int(options.check and missed))


if __name__ == "__main__":
    main()
