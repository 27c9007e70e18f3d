"""${distribution}: one question, one reply, one reward.

It works as it stands, on sums of two numbers. To make it your own, change the three marked places from top to bottom,
then run `pytest` in this folder.
"""

from __future__ import annotations

import random
import re
from typing import Any

import verifiers as vf
from datasets import Dataset

# 1. What the model is told before every question. None leaves the system message out.
SYSTEM_PROMPT: str | None = "Answer with a number and nothing else."


# 2. The data set. Each row has a `question` and an `answer`; add an `info` dictionary for whatever else a reward needs.
#    Rows may come from anywhere: a file beside this module, `datasets.load_dataset(...)`, or, as here, a seed.
def make_rows(seed: int) -> list[dict[str, Any]]:
    """Make all questions with their answers, in an order that the seed decides."""
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    random.Random(seed).shuffle(pairs)
    return [{"question": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in pairs]


# 3. The rewards. A reward function names what it wants to see (completion, answer, prompt, info, state) and returns a
#    number, 1.0 being best. Give partial credit where you can: a reward that is nearly always 0 teaches nothing.
def last_number(completion: list[Any]) -> str | None:
    """Return the last whole number in the model's reply, or None."""
    numbers = re.findall(r"-?\d+", str(completion[-1]["content"] or "")) if completion else []
    return numbers[-1] if numbers else None


def correct(completion: list[Any], answer: str, **_: Any) -> float:
    """Reward: 1 for the right number, else 0."""
    return float(last_number(completion) == answer)


def gave_a_number(completion: list[Any], **_: Any) -> float:
    """Reward for the form: 1 when there is a number in the reply at all."""
    return float(last_number(completion) is not None)


def load_environment(num_train: int = 500, num_eval: int = 100, seed: int = 0) -> vf.Environment:
    """Build the environment. The arguments are what `--env-args` and `args = {...}` in a config can set."""
    rows = make_rows(seed)
    return vf.SingleTurnEnv(
        # The two slices share no row: what is measured must not have been trained on.
        dataset=Dataset.from_list(rows[num_eval : num_eval + num_train]),
        eval_dataset=Dataset.from_list(rows[:num_eval]),
        system_prompt=SYSTEM_PROMPT,
        rubric=vf.Rubric(funcs=[correct, gave_a_number], weights=[1.0, 0.1]),
    )
