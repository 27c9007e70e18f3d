"""A workspace whose environment asks for words in capitals, and models whose answers truly depend on the prompt.

The model shouts what the system prompt tells it to: each rule that the prompt names makes it follow that rule. The
reflection model adds the next rule that the prompt lacks, when it is shown a failure that the rule would mend.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

ENVIRONMENT = '''
import verifiers as vf
from datasets import Dataset

WORDS = ["apple", "brook", "cloud", "delta", "ember", "frost", "grape", "house", "ivory", "jewel"]

def capitals(completion, answer, **_):
    """A third each for capitals, the full stop and the greeting."""
    text = completion[-1]["content"]
    return (text.startswith("Hello ") + text.endswith(".") + (answer.upper() in text)) / 3

def load_environment(size: int = 60, system_prompt: str | None = "Repeat the word."):
    rows = [{"question": f"{WORDS[i % 10]}{i}", "answer": f"{WORDS[i % 10]}{i}"} for i in range(size)]
    def part(rows):
        return Dataset.from_list(rows)
    return vf.SingleTurnEnv(
        dataset=part(rows[: size // 2]), eval_dataset=part(rows[size // 2 :]), system_prompt=system_prompt,
        rubric=vf.Rubric(funcs=[capitals]),
    )
'''
PYPROJECT = """
[project]
name = "shouting"
version = "0.1.0"
"""
RULES = ("CAPITALS", "FULL STOP", "GREETING")


def write_workspace(folder: Path, *, environment: str = ENVIRONMENT, name: str = "shouting") -> Path:
    """Write a workspace with the environment into `folder`."""
    home = folder / "environments" / name
    home.mkdir(parents=True)
    (home / f"{name}.py").write_text(environment)
    (home / "pyproject.toml").write_text(PYPROJECT.replace("shouting", name))
    return folder


def answer(messages: list[dict[str, Any]]) -> str:
    """Answer as the model, or as the reflection model when asked for an instruction."""
    text = str(messages[-1]["content"])
    if "new instruction" in text:
        return reflect(text)
    return shout(system_prompt=str(messages[0]["content"]) if messages[0]["role"] == "system" else "", word=text)


def shout(system_prompt: str, word: str) -> str:
    """Follow the rules that the prompt names; one word in seven is forgotten about, whatever the prompt."""
    if int(hashlib.sha256(word.encode()).hexdigest(), 16) % 7 == 0:
        return "?"
    word = word.upper() if "CAPITALS" in system_prompt else word
    word = f"{word}." if "FULL STOP" in system_prompt else word
    return f"Hello {word}" if "GREETING" in system_prompt else word


def reflect(text: str) -> str:
    """Return the prompt in `text` with the next rule that it lacks; every third time with nonsense instead."""
    prompt = text.split("```")[1].strip()
    missing = [rule for rule in RULES if rule not in prompt]
    if not missing or int(hashlib.sha256(text.encode()).hexdigest(), 16) % 3 == 0:
        return f"Perhaps so:\n```\n{prompt} Be nice.\n```"
    return f"Try this:\n```\n{prompt} Mind the {missing[0]}.\n```"
