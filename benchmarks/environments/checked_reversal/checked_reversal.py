"""Reverse a string; the answer is checked by a tool that may be slow, and now and then very slow.

With `tool_median_s` 0 there is no waiting, and the task is that of the template `reverse-text`. Otherwise a check takes
a log-normal time: half of them longer than the median, one in 256 longer than about 2.7 ** (2.66 * sigma) medians.
The strings come from a file, so that other trainers can be given the same ones.
"""

from __future__ import annotations

import asyncio
import json
import random
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import verifiers as vf
from datasets import Dataset


def as_rows(texts: list[str]) -> Dataset:
    """Put strings into the columns that the library reads."""
    prompts = [[{"role": "user", "content": text}] for text in texts]
    return Dataset.from_dict({"prompt": prompts, "answer": [text[::-1] for text in texts]})


def load_environment(
    strings: str, tool_median_s: float = 0.0, tool_sigma: float = 1.2, tool_max_s: float = 5.0, seed: int = 0
) -> vf.Environment:
    """Build the environment from `strings`, a JSON file with the lists `train` and `held_out`."""
    texts = json.loads(Path(strings).read_text())
    rng = random.Random(seed)

    async def similarity(completion: list[Any], answer: str, **_: Any) -> float:
        if tool_median_s:
            await asyncio.sleep(min(tool_median_s * rng.lognormvariate(0.0, tool_sigma), tool_max_s))
        reply = str(completion[-1]["content"] or "").strip() if completion else ""
        return SequenceMatcher(None, reply, answer).ratio()

    return vf.SingleTurnEnv(
        dataset=as_rows(texts["train"]), eval_dataset=as_rows(texts["held_out"]), rubric=vf.Rubric(funcs=[similarity])
    )
