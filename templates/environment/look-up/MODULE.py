"""Look a letter up in a hidden table with a tool: native tool calls, several turns, an answer that must be copied.

Every example has a table of its own that sends each letter to a letter. The question is a letter; the answer is where one
arrives after a number of steps, by default one. Only the tool `look` knows the table, so the model must call it with the
right letter, read what comes back, call it again with that while there are steps to go, and say the last letter it was shown.
"""

from __future__ import annotations

import json
import random
from string import ascii_lowercase
from typing import Any

import verifiers as vf
from datasets import Dataset

NOTHING = "?"  # what the tool says of a key that is not in the table

Message = dict[str, str]


def look(key: str, table: str) -> str:
    """Say where a letter leads.

    Args:
        key: The letter to look up.
        table: The whole table; the model neither sees nor gives it.
    """
    position = ascii_lowercase.find(key) if len(key) == 1 else -1
    return table[position] if 0 <= position < len(table) else NOTHING


def follow(start: str, table: str, hops: int) -> str:
    """Return where `hops` steps lead."""
    letter = start
    for _ in range(hops):
        letter = look(letter, table)
    return letter


def call_of(key: str) -> str:
    """Return a call as models write it, in the spelling of their chat templates."""
    return f"<tool_call>{json.dumps({'name': 'look', 'arguments': {'key': key}})}</tool_call>"


def careless_episode(start: str, table: str, hops: int, care: float, rng: random.Random) -> list[Message]:
    """Return an episode in which each thing that is done is the right one with probability `care` only.

    A step that goes wrong is answered from a guess, or looks up a letter by chance.
    """
    letters = ascii_lowercase[: len(table)]
    messages: list[Message] = []
    letter = start
    for _ in range(hops):
        if rng.random() > care:
            if rng.random() < 0.5:
                break
            letter = rng.choice(letters)
        messages.append({"role": "assistant", "content": call_of(letter)})
        letter = look(letter, table)
        messages.append({"role": "tool", "content": letter})
    said = letter if messages and rng.random() < care else rng.choice(letters)
    return [*messages, {"role": "assistant", "content": said}]


def arrived(completion: list[Any], answer: str, **_: Any) -> float:
    """Reward: 1 when the last message is the letter at the end of the chain, else 0."""
    if not completion or completion[-1]["role"] != "assistant":
        return 0.0
    return float(str(completion[-1]["content"] or "").strip() == answer)


def looked_up(completion: list[Any], info: dict[str, Any], **_: Any) -> float:
    """Metric: the share of the chain's letters that the tool was really shown on the way, in order."""
    shown = [str(message["content"]) for message in completion if message["role"] == "tool"]
    chain = [follow(info["start"], info["table"], step) for step in range(1, info["hops"] + 1)]
    right = 0
    while right < len(chain) and shown[right : right + 1] == [chain[right]]:
        right += 1
    return right / len(chain)


class LookUp(vf.StatefulToolEnv):
    """The tool gets the example's table besides what the model gives it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(tools=[], **settings)
        self.add_tool(look, args_to_skip=["table"])

    def update_tool_args(
        self, tool_name: str, tool_args: dict[str, Any], messages: vf.Messages, state: vf.State, **_: Any
    ) -> dict[str, Any]:
        """Add the table of this rollout's example."""
        return {**tool_args, "table": state["info"]["table"]}


def load_environment(
    num_train: int = 2000,
    num_eval: int = 200,
    num_letters: int = 16,
    hops: int = 1,
    seed: int = 0,
    num_demonstrations: int = 0,
    care: float = 0.5,
) -> vf.Environment:
    """Build the environment.

    Args:
        num_train: Number of training questions, each with a table of its own.
        num_eval: Number of held-out questions.
        num_letters: Letters in a table, from `a`.
        hops: Steps from the question to the answer.
        seed: Same seed, same tables.
        num_demonstrations: If not 0, the training set is so many episodes, each with a `demonstration` that often goes
            wrong. For warming a model up.
        care: Probability with which each thing that a demonstration does is the right one.
    """
    if not 3 <= num_letters <= len(ascii_lowercase):
        raise ValueError(f"num_letters is 3 to {len(ascii_lowercase)}, found {num_letters}")
    if not 1 <= hops < num_letters:
        raise ValueError(f"hops is at least 1 and less than num_letters {num_letters}, found {hops}")
    if not 0.0 <= care <= 1.0:
        raise ValueError(f"care is a probability, found {care}")

    def rows(split: str, count: int) -> dict[str, list[Any]]:
        rng = random.Random(f"{seed} {split}")
        infos = [_draw(num_letters, hops, rng) for _ in range(count)]
        return {
            "prompt": [[{"role": "user", "content": info["start"]}] for info in infos],
            "answer": [follow(info["start"], info["table"], hops) for info in infos],
            "info": infos,
        }

    def demonstrations() -> Dataset:
        rng = random.Random(f"{seed} care")
        columns = rows("demonstrations", num_demonstrations)
        shown = [careless_episode(info["start"], info["table"], hops, care, rng) for info in columns["info"]]
        tools = json.dumps([tool.model_dump(exclude_none=True) for tool in environment.tool_defs])
        return Dataset.from_dict({**columns, "demonstration": shown, "tools": [tools] * len(shown)})

    environment = LookUp(
        max_turns=hops + 2,  # a call for each step, the answer, and one call too many
        dataset=demonstrations if num_demonstrations else lambda: Dataset.from_dict(rows("train", num_train)),
        eval_dataset=lambda: Dataset.from_dict(rows("eval", num_eval)),
        rubric=vf.Rubric(funcs=[arrived, looked_up], weights=[1.0, 0.0]),
    )
    return environment


def _draw(num_letters: int, hops: int, rng: random.Random) -> dict[str, Any]:
    """Draw a table and a letter to start from, whose chain meets no letter twice."""
    letters = list(ascii_lowercase[:num_letters])
    while True:
        table = "".join(rng.sample(letters, len(letters)))
        start = rng.choice(letters)
        chain = {follow(start, table, step) for step in range(hops + 1)}
        if len(chain) == hops + 1:
            return {"start": start, "table": table, "hops": hops}
