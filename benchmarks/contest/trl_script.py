"""Trains by TRL's GRPOTrainer; runs on TRL's own interpreter, and so imports nothing of ours.

    python trl_script.py JOB_JSON

With one optimizer step per generation every ratio is 1 and no clip or mask acts, so TRL's loss `dapo` (a mean over all
tokens of the batch) is ours. Its settings here are the fastest that we found: no gradient checkpointing, no second
forward pass for old log-probabilities, whole batches, prompts as plain text, nothing logged or saved but the reward.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Watch(TrainerCallback):
    """Notes when training began, and the reward of each step with the time."""

    def __init__(self) -> None:
        self.began = 0.0
        self.seconds: list[float] = []
        self.rewards: list[float] = []
        self.tokens: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The first rollouts are asked for next."""
        self.began = time.time()

    def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:
        """A step was taken."""
        if "reward" in logs:
            self.seconds.append(time.time() - self.began)
            self.rewards.append(logs["reward"])
            self.tokens.append(logs["completions/mean_length"])


def likeness(completion: str, right: str) -> float:
    """Return the reward."""
    return SequenceMatcher(None, completion.strip(), right).ratio()


def main() -> None:
    """Train, save the weights, and write what was seen."""
    job = json.loads(Path(sys.argv[1]).read_text())
    recipe, processes = job["recipe"], int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(job["threads"])
    tokenizer = AutoTokenizer.from_pretrained(job["model"])
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32)
    rng = random.Random(job["seed"])

    def similarity(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        return [likeness(completion, right) for completion, right in zip(completions, answer, strict=True)]

    async def checked_similarity(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        async def check(completion: str, right: str) -> float:
            slow = recipe["tool_median_s"] * rng.lognormvariate(0.0, job["tool_sigma"])
            await asyncio.sleep(min(slow, job["tool_max_s"]))
            return likeness(completion, right)

        return list(await asyncio.gather(*map(check, completions, answer)))

    batch = recipe["prompts"] * recipe["rollouts"]
    watch = Watch()
    trainer = GRPOTrainer(
        model,
        reward_funcs=checked_similarity if recipe["tool_median_s"] else similarity,
        train_dataset=Dataset.from_dict({"prompt": job["prompts"], "answer": job["answers"]}),
        processing_class=tokenizer,
        callbacks=[watch],
        args=GRPOConfig(
            output_dir=str(Path(job["weights"]).parent / "trl-scratch"),
            max_steps=recipe["steps"],
            per_device_train_batch_size=batch // processes,
            num_generations=recipe["rollouts"],
            max_completion_length=recipe["max_tokens"],
            temperature=recipe["temperature"],
            top_k=0,
            learning_rate=recipe["learning_rate"],
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=recipe["warmup_steps"],
            adam_beta1=recipe["betas"][0],
            adam_beta2=recipe["betas"][1],
            weight_decay=0.0,
            max_grad_norm=1.0,
            beta=0.0,
            scale_rewards="none",
            loss_type="dapo",
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            dataloader_pin_memory=False,
            seed=job["seed"],
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    if trainer.accelerator.is_main_process:
        trainer.save_model(job["weights"])
        seen = {
            "began": watch.began, "seconds": watch.seconds, "rewards": watch.rewards,
            "tokens": [length * batch for length in watch.tokens],
        }  # fmt: skip
        Path(job["seen"]).write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
