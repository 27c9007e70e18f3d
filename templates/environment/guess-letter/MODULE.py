"""Guess a hidden letter in a few turns: a task over several turns that demonstrations alone do not teach.

The environment hides a letter. Each turn the model names one, and is told whether the hidden letter comes before it (`<`)
or after it (`>`). The demonstrations heed the hints and else guess at random, so they teach how the game is played and
not how it is won. With 7 letters and 3 guesses a player who halves what is left always wins; nobody shows that.
"""

from __future__ import annotations

import random
from string import ascii_lowercase
from typing import Any

import verifiers as vf
from datasets import Dataset

QUESTION = "?"  # opens the game, and answers whatever is not one of the letters
BEFORE, AFTER = "<", ">"

Message = dict[str, str]


def hint(guess: str, secret: str, letters: str) -> str:
    """Return what the player is told after a wrong guess: where the hidden letter stands."""
    if guess not in list(letters):
        return QUESTION
    return BEFORE if secret < guess else AFTER


def random_game(secret: str, letters: str, guesses: int, care: float, rng: random.Random) -> list[Message]:
    """Return a game of random guesses, up to the hit or the last one.

    With probability `care` a guess is drawn from the letters that the hints have left over, else from all of them.
    """
    messages: list[Message] = []
    possible = letters
    for turn in range(guesses):
        guess = rng.choice(possible if rng.random() < care else letters)
        messages.append({"role": "assistant", "content": guess})
        if guess == secret or turn == guesses - 1:
            break
        answer = hint(guess, secret, letters)
        messages.append({"role": "user", "content": answer})
        possible = "".join(letter for letter in possible if letter != guess and (letter < guess) == (answer == BEFORE))
    return messages


def guess_in(message: Any) -> str:
    """Return the letter that a message of the model names, or whatever else it says."""
    return str(message["content"] or "").strip()


def found(completion: list[Any], answer: str, **_: Any) -> float:
    """Reward: 1 when the hidden letter was named within the guesses, else 0."""
    return float(any(message["role"] == "assistant" and guess_in(message) == answer for message in completion))


def fouls(completion: list[Any], **_: Any) -> float:
    """Metric: how often the model was asked again, because what it said was no letter of the game."""
    return float(sum(message["role"] == "user" and message["content"] == QUESTION for message in completion))


class GuessLetter(vf.MultiTurnEnv):
    """One game a rollout; it ends with a hit, or with the last guess."""

    def __init__(self, letters: str, **settings: Any) -> None:
        super().__init__(**settings)
        self._letters = letters

    @vf.stop
    async def letter_found(self, state: vf.State) -> bool:
        """Say whether the last guess was the hidden letter."""
        turns = state["trajectory"]
        return bool(turns) and guess_in(turns[-1]["completion"][-1]) == state["answer"]

    async def env_response(self, messages: vf.Messages, state: vf.State, **_: Any) -> vf.Messages:
        """Answer the last guess."""
        return [vf.UserMessage(content=hint(guess_in(messages[-1]), state["answer"], self._letters))]


def load_environment(
    num_letters: int = 7, guesses: int = 3, seed: int = 0, num_demonstrations: int = 0, care: float = 1.0
) -> vf.Environment:
    """Build the environment.

    Args:
        num_letters: The hidden letter is one of the first so many of the alphabet; each of them is one example.
        guesses: How many the model has. Halving finds one of 2**guesses - 1 letters for certain.
        seed: Same seed, same demonstrations.
        num_demonstrations: If not 0, the training set is so many games, each with a `demonstration` that guesses at
            random. For warming a model up.
        care: Probability with which a demonstrated guess heeds the hints before it.
    """
    if not 2 <= num_letters <= len(ascii_lowercase):
        raise ValueError(f"num_letters is 2 to {len(ascii_lowercase)}, found {num_letters}")
    if guesses < 1 or num_demonstrations < 0:
        raise ValueError(f"guesses {guesses} must be positive, num_demonstrations {num_demonstrations} not negative")
    if not 0.0 <= care <= 1.0:
        raise ValueError(f"care is a probability, found {care}")
    letters = ascii_lowercase[:num_letters]

    def games() -> Dataset:
        return Dataset.from_dict({"prompt": [_opening() for _ in letters], "answer": list(letters)})

    def demonstrations() -> Dataset:
        rng = random.Random(f"{seed} demonstrations")
        secrets = rng.choices(letters, k=num_demonstrations)
        shown = [random_game(secret, letters, guesses, care, rng) for secret in secrets]
        prompts = [_opening() for _ in secrets]
        return Dataset.from_dict({"prompt": prompts, "answer": secrets, "demonstration": shown})

    return GuessLetter(
        letters,
        max_turns=guesses,
        dataset=demonstrations if num_demonstrations else games,
        eval_dataset=games,
        rubric=vf.Rubric(funcs=[found, fouls], weights=[1.0, 0.0]),
    )


def _opening() -> list[Message]:
    return [{"role": "user", "content": QUESTION}]
