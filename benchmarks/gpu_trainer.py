"""Throughput of the trainer on one GPU: a Qwen3-shaped model of 0.6B with random weights, rows of 16,384 tokens.

    python benchmarks/gpu_trainer.py [--check] [--json] [--modes sft rl lora] [--steps 8] [--documents 4]
    python benchmarks/gpu_trainer.py --tiny      the same path on a CPU, with a model of 0.4M: shows that it works

A step is two rows and one optimizer step, weights in fp32, computation in bf16. Tokens per second count the tokens of
the rows. Model FLOPs utilisation counts, for a token, 6 FLOPs per parameter that multiplies (with LoRA 4, and 6 per
parameter of the adapters) and 12 * layers * heads * head_dim * row for attention, over the peak of the GPU; that is how
the published figures beside which ours are printed were counted, and documents shorter than the row make it an
overestimate. With --check the exit code is 1 when a goal (for one H200) is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from prime_cli.rl.step_config import LoraConfig, LossConfig, StepConfig
from prime_cli.rl.trainer.learner import Learner
from prime_cli.rl.transport import Sample

ROWS = 2
GOALS = {"sft": 27_000, "rl": 14_000, "lora": 14_000}
PUBLISHED = {
    "sft": "26,000 tokens/s, 31.7 GiB, rows of 8k (prime-rl, one H100)",
    "rl": "11,900 tokens/s, 12.5 GiB (prime-rl, one H100)",
    "lora": "13,300 tokens/s, 5.1 GiB (prime-rl, one H100)",
}
PEAK_TFLOPS = {"H100 PCIe": 756, "H100": 989, "H200": 989, "A100": 312, "B200": 2250}
"""Dense bf16, by a part of the device's name; the first that fits."""

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        "vocab_size": 151_936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40_960,
    },
    "tiny": {
        "vocab_size": 272, "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 1024,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """What one mode reached; `mfu` in percent, or None on a device whose peak is not known."""

    mode: str
    tokens_per_second: float
    seconds_per_step: float
    mfu: float | None
    peak_gib: float | None


def a_model(shape: str, device: str) -> Any:
    """Return the model with random weights, on `device`."""
    torch.manual_seed(0)
    config = Qwen3Config(**SHAPES[shape], tie_word_embeddings=True, dtype="float32")
    with torch.device(device):
        return Qwen3ForCausalLM(config)


def samples(mode: str, row: int, documents: int, vocabulary: int, seed: int) -> list[Sample]:
    """Return samples that fill `ROWS` rows, `documents` in each; a quarter of each is prompt."""
    rng = random.Random(seed)
    length = row // documents
    made = []
    for _ in range(ROWS * documents):
        mask = [0.0] * (length // 4) + [1.0] * (length - length // 4)
        zeros, advantage = [0.0] * length, rng.uniform(-1, 1)
        made.append(
            Sample(
                token_ids=[rng.randrange(vocabulary) for _ in range(length)],
                logprobs=[-12.0 * m for m in mask],
                advantages=[advantage * m for m in mask],
                rl_weights=zeros if mode == "sft" else mask,
                ce_weights=mask if mode == "sft" else zeros,
            )
        )
    return made


def flops_per_token(model: Any, trained_adapters: int, row: int) -> float:
    """Return the FLOPs that a token is counted with; see the head of this file."""
    config = model.config
    attention = 12 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * row
    base = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and ".lora_" not in name)
    return attention + (6.0 * base if not trained_adapters else 4.0 * base + 6.0 * trained_adapters)


def measure(mode: str, options: argparse.Namespace, device: str) -> Measured:
    """Take some steps to warm up, then `options.steps` more, and return how fast they were."""
    row = 16_384 if device != "cpu" else 512
    shape = "tiny" if options.tiny else "qwen3-0.6b"
    model = a_model(shape, device)
    settings = StepConfig(
        seq_len=row,
        micro_batch_tokens=row,
        head_chunk_tokens=options.head_chunk,
        activation_checkpointing=options.activation_checkpointing,
        lora=LoraConfig(rank=16) if mode == "lora" else None,
    )
    learner = Learner(
        model, config=settings, loss=LossConfig(), learning_rate=1e-6, total_steps=options.steps + options.warm_up
    )
    batches = [
        samples(mode, row, options.documents, SHAPES[shape]["vocab_size"], seed) for seed in range(options.steps)
    ]
    for step in range(options.warm_up):
        learner.step(batches[step % len(batches)])
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    started, tokens = time.perf_counter(), 0
    for batch in batches:
        tokens += learner.step(batch).tokens
    if device != "cpu":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    adapters = sum(p.numel() for name, p in model.named_parameters() if ".lora_" in name)
    peak = peak_flops(device)
    rate = tokens / seconds
    return Measured(
        mode=mode,
        tokens_per_second=rate,
        seconds_per_step=seconds / options.steps,
        mfu=None if peak is None else 100 * rate * flops_per_token(model, adapters, row) / peak,
        peak_gib=None if device == "cpu" else torch.cuda.max_memory_allocated() / 2**30,
    )


def peak_flops(device: str) -> float | None:
    """Return the dense bf16 FLOPs per second of the GPU, or None when they are not known."""
    if device == "cpu":
        return None
    name = torch.cuda.get_device_name()
    return next((tera * 1e12 for part, tera in PEAK_TFLOPS.items() if part in name), None)


def main() -> None:
    """Measure the modes one after the other and print them beside the published figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--modes", nargs="+", choices=list(GOALS), default=list(GOALS))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--documents", type=int, default=4, help="documents in a row")
    parser.add_argument("--head-chunk", type=int, default=2048)
    parser.add_argument("--activation-checkpointing", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() and not options.tiny else "cpu"
    if device == "cpu" and not options.tiny:
        print("no GPU here: nothing was measured (--tiny runs the same path on the CPU)")
        return
    results = []
    for mode in options.modes:
        measured = measure(mode, options, device)
        results.append(measured)
        if device != "cpu":
            torch.cuda.empty_cache()
        if not options.json:
            print(_line(measured, tiny=options.tiny), flush=True)
    if options.json:
        print(json.dumps({"device": _device_name(device), "results": [asdict(result) for result in results]}))
    if options.check and device != "cpu" and any(r.tokens_per_second < GOALS[r.mode] for r in results):
        sys.exit(1)


def _device_name(device: str) -> str:
    return "CPU" if device == "cpu" else str(torch.cuda.get_device_name())


def _line(measured: Measured, *, tiny: bool) -> str:
    mfu = "" if measured.mfu is None else f"  MFU {measured.mfu:.1f} %"
    peak = "" if measured.peak_gib is None else f"  peak {measured.peak_gib:.1f} GiB"
    speed = f"{measured.tokens_per_second:9,.0f} tokens/s  {measured.seconds_per_step:.3f} s a step"
    line = f"{measured.mode:5} {speed}{mfu}{peak}"
    return line if tiny else f"{line}  (goal {GOALS[measured.mode]:,}; published: {PUBLISHED[measured.mode]})"


if __name__ == "__main__":
    main()
