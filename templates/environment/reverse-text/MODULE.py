"""Reverse a short string of letters: a task that a tiny model learns within minutes, and that needs no network.

The prompt is the string and nothing else; the answer is the string read backwards. All strings come from the seed.
"""

from __future__ import annotations

import random
from difflib import SequenceMatcher
from string import ascii_lowercase
from typing import Any

import verifiers as vf
from datasets import Dataset


def draw_strings(
    count: int, min_length: int, max_length: int, rng: random.Random, taken: frozenset[str] = frozenset()
) -> list[str]:
    """Draw `count` different lower-case strings, none of them in `taken`; their lengths are uniform."""
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        text = "".join(rng.choices(ascii_lowercase, k=rng.randint(min_length, max_length)))
        if text not in taken:
            drawn[text] = None
    return list(drawn)


def add_noise(answer: str, probability: float, rng: random.Random) -> str:
    """Replace each letter by a random one with the given probability."""
    return "".join(rng.choice(ascii_lowercase) if rng.random() < probability else letter for letter in answer)


def make_dataset(strings: list[str], answers: list[str]) -> Dataset:
    """Put strings and answers into the columns that the library reads: `prompt` (messages) and `answer`."""
    prompts = [[{"role": "user", "content": text}] for text in strings]
    return Dataset.from_dict({"prompt": prompts, "answer": answers})


def reversed_prompt(prompt: list[Any]) -> str:
    """Return the true answer, taken from the prompt itself: noise in a demonstration never reaches the reward."""
    return str(prompt[-1]["content"])[::-1]


def reply(completion: list[Any]) -> str:
    """Return the text of the model's last message without surrounding blanks."""
    return str(completion[-1]["content"] or "").strip() if completion else ""


def similarity(prompt: list[Any], completion: list[Any], **_: Any) -> float:
    """Reward: how alike the reply and the reversed string are, from 0 to 1."""
    return SequenceMatcher(None, reply(completion), reversed_prompt(prompt)).ratio()


def exact_match(prompt: list[Any], completion: list[Any], **_: Any) -> float:
    """Metric: 1 when the reply is exactly the reversed string, else 0."""
    return float(reply(completion) == reversed_prompt(prompt))


def load_environment(
    num_train: int = 2000,
    num_eval: int = 200,
    min_length: int = 4,
    max_length: int = 8,
    seed: int = 0,
    answer_noise: float = 0.0,
) -> vf.Environment:
    """Build the environment.

    Args:
        num_train: Number of training strings.
        num_eval: Number of held-out strings; no training string is among them, whatever `num_train` is.
        min_length: Letters in the shortest string.
        max_length: Letters in the longest string.
        seed: Same seed, same strings.
        answer_noise: Probability with which each letter of a *training answer* is replaced by a random letter. For
            warming a model up on imperfect demonstrations; the reward does not look at it.
    """
    if not 1 <= min_length <= max_length:
        raise ValueError(f"1 <= min_length <= max_length must hold, found {min_length} and {max_length}")
    if not 0.0 <= answer_noise <= 1.0:
        raise ValueError(f"answer_noise is a probability, found {answer_noise}")
    # Half of the shortest strings is the most that can be drawn by chance without waiting for the last few.
    if num_train + num_eval > 26**min_length * (max_length - min_length + 1) // 2:
        raise ValueError(f"there are too few strings of {min_length} to {max_length} letters: ask for fewer examples")

    def eval_strings() -> list[str]:
        return draw_strings(num_eval, min_length, max_length, random.Random(f"{seed} eval"))

    def train_dataset() -> Dataset:
        rng = random.Random(f"{seed} train")
        strings = draw_strings(num_train, min_length, max_length, rng, frozenset(eval_strings()))
        return make_dataset(strings, [add_noise(text[::-1], answer_noise, rng) for text in strings])

    def eval_dataset() -> Dataset:
        strings = eval_strings()
        return make_dataset(strings, [text[::-1] for text in strings])

    # Given as functions, the data sets are made when they are first asked for.
    return vf.SingleTurnEnv(
        dataset=train_dataset,
        eval_dataset=eval_dataset,
        rubric=vf.Rubric(funcs=[similarity, exact_match], weights=[1.0, 0.0]),
    )
