"""${distribution}: programs that are asked for in words, and judged by hidden tests in a sandbox.

The model answers with a program in a ```python block. The program runs in a sandbox of its own, once for each hidden input; the
expected outputs stay here and are compared here, so nothing that runs there can find them. A sandbox that fails is an error of
the rollout, which is run again or left out: never a reward of 0.
"""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

import verifiers as vf
from datasets import Dataset

from ${module}_problems import PROBLEMS, Problem, cases
from ${module}_sandbox import RanOut, Sandboxes

SYSTEM_PROMPT = (
    "You write Python 3 programs. A program reads its input from stdin and prints the answer to stdout, and nothing else. "
    "Give the whole program in one ```python block."
)
BY_NAME = {problem.name: problem for problem in PROBLEMS}
BLOCK = re.compile(r"```(?:python3?|py)?[ \t]*\n(.*?)```", re.DOTALL)


def question_of(problem: Problem, examples: list[tuple[str, str]]) -> str:
    """Return what the model is asked."""
    shown = (f"Input:\n{given}\nOutput:\n{answer}" for given, answer in examples)
    return "\n\n".join([problem.statement, *shown])


def reply_with(program: str) -> str:
    """Return a reply that gives this program."""
    return f"```python\n{program}\n```"


def code_of(text: str) -> str | None:
    """Return the program of a reply: its last block, after any thinking; None when there is none."""
    blocks = BLOCK.findall(text.rpartition("</think>")[2])
    return blocks[-1] if blocks else None


def is_right(result: dict[str, Any], expected: str) -> bool:
    """Say whether a run of the program gave what was expected; spaces at the ends of lines do not count."""
    return result["exit_code"] == 0 and _lines(result["stdout"]) == _lines(expected)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def verdict_of(result: dict[str, Any], expected: str) -> str:
    """Return in a word what became of a test."""
    if is_right(result, expected):
        return "passed"
    for field, verdict in (("timed_out", "too slow"), ("oom_killed", "out of memory"), ("cut", "too much output")):
        if result.get(field):
            return verdict
    return "crashed" if result["exit_code"] else "wrong"


def passed(state: vf.State, **_: Any) -> float:
    """Reward: the share of the hidden tests that the program passed."""
    verdicts = state.get("verdicts") or []
    return verdicts.count("passed") / len(verdicts) if verdicts else 0.0


def gave_a_program(state: vf.State, **_: Any) -> float:
    """Reward for the form: 1 when there is a block of code in the reply."""
    return float(bool(state.get("code")))


def solved(state: vf.State, **_: Any) -> float:
    """Metric: 1 when every hidden test was passed."""
    return float(passed(state) == 1.0)


def too_slow(state: vf.State, **_: Any) -> float:
    """Metric: the share of the hidden tests that took too long."""
    verdicts = state.get("verdicts") or []
    return verdicts.count("too slow") / len(verdicts) if verdicts else 0.0


class CodeTests(vf.SingleTurnEnv):
    """Judges the reply as soon as it is there, while an error can still become one of the rollout."""

    def __init__(self, sandboxes: Sandboxes, num_tests: int, timeout_s: float, at_once: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.sandboxes, self.num_tests, self.timeout_s = sandboxes, num_tests, timeout_s
        self.turns = asyncio.Semaphore(at_once)
        self.open_sandboxes: set[str] = set()

    async def add_model_response(self, state: vf.State, prompt_messages: vf.Messages, response: Any) -> None:
        """Keep the reply, and run its program on the hidden inputs."""
        await super().add_model_response(state, prompt_messages, response)
        code = code_of(str(response.message.content or ""))
        state["code"], state["verdicts"] = code, []
        if code is None:
            return  # no sandbox is needed
        info = state["info"]
        tests = cases(BY_NAME[info["problem"]], f"hidden {info['seed']}", self.num_tests)
        async with self.turns:
            sandbox = await self.sandboxes.create()
            state["sandbox_id"] = sandbox.id
            self.open_sandboxes.add(sandbox.id)
            try:
                results = await self.sandboxes.run_code(sandbox, code, [given for given, _ in tests], self.timeout_s)
            except RanOut:
                state["verdicts"] = ["out of memory"] * len(tests)
            else:
                state["verdicts"] = [verdict_of(result, expected) for result, (_, expected) in zip(results, tests)]
            finally:
                await self._delete(sandbox.id)

    @vf.cleanup
    async def delete_sandbox(self, state: vf.State) -> None:
        """End the sandbox of a rollout that was broken off."""
        sandbox_id = state.get("sandbox_id")
        if sandbox_id in self.open_sandboxes:
            await self._delete(sandbox_id)

    @vf.teardown
    async def delete_sandboxes(self) -> None:
        """End what is left when the environment ends."""
        for sandbox_id in sorted(self.open_sandboxes):
            await self._delete(sandbox_id)
        await self.sandboxes.close()

    async def _delete(self, sandbox_id: str) -> None:
        try:
            await self.sandboxes.delete(sandbox_id)
        except vf.SandboxError as error:  # it ends by itself when nothing uses it
            self.logger.warning(f"sandbox {sandbox_id} was not deleted: {error}")
        self.open_sandboxes.discard(sandbox_id)


def load_environment(
    num_train: int = 240,
    num_eval: int = 48,
    num_tests: int = 10,
    num_examples: int = 2,
    timeout_s: float = 2.0,
    image: str = "host",
    cpu_cores: float = 1.0,
    memory_gb: float = 0.5,
    min_level: str | None = None,
    at_once: int = 16,
    seed: int = 0,
    brief: bool = False,
    num_demonstrations: int = 0,
    care: float = 0.5,
) -> vf.Environment:
    """Build the environment.

    Args:
        num_train: Number of training questions: the problems in turn, each time with other examples and tests.
        num_eval: Number of held-out questions.
        num_tests: Hidden tests of a question.
        num_examples: Inputs with their outputs that the model is shown.
        timeout_s: How long the program may take for one test.
        image: The image of the sandboxes.
        cpu_cores: What a sandbox may use of the processors.
        memory_gb: What it may use of the memory.
        min_level: How well it must be kept from the host, at least; else as the hub says.
        at_once: Sandboxes that live at the same time, in each process of the environment. With many more than the node has
            processors, programs are too slow because of each other.
        seed: Same seed, same questions and tests.
        brief: Leave the system message out, for small models that were shown what is expected.
        num_demonstrations: If not 0, the training set is so many questions, each with a `demonstration` that often answers
            another question. For warming a model up.
        care: Probability with which a demonstration answers its own question.
    """
    if num_tests < 1:
        raise ValueError(f"num_tests is at least 1, found {num_tests}")
    if at_once < 1:
        raise ValueError(f"at_once is at least 1, found {at_once}")
    if not timeout_s > 0:
        raise ValueError(f"timeout_s is above 0, found {timeout_s}")

    if not 0.0 <= care <= 1.0:
        raise ValueError(f"care is a probability, found {care}")

    def rows(split: str, count: int) -> list[dict[str, Any]]:
        order = list(PROBLEMS)
        random.Random(f"{seed} {split}").shuffle(order)
        made = []
        for index in range(count):
            problem, own = order[index % len(order)], f"{seed} {split} {index}"
            question = question_of(problem, cases(problem, f"shown {own}", num_examples))
            made.append({"question": question, "answer": "", "info": {"problem": problem.name, "seed": own}})
        return made

    def demonstrations() -> list[dict[str, Any]]:
        rng = random.Random(f"{seed} care")
        made = rows("demonstrations", num_demonstrations)
        for row in made:
            shown = BY_NAME[row["info"]["problem"]] if rng.random() < care else rng.choice(PROBLEMS)
            row["demonstration"] = [{"role": "assistant", "content": reply_with(shown.program)}]
        return made

    return CodeTests(
        sandboxes=Sandboxes(image, cpu_cores, memory_gb, min_level),
        num_tests=num_tests,
        timeout_s=timeout_s,
        at_once=at_once,
        dataset=Dataset.from_list(demonstrations() if num_demonstrations else rows("train", num_train)),
        eval_dataset=Dataset.from_list(rows("eval", num_eval)),
        system_prompt=None if brief else SYSTEM_PROMPT,
        rubric=vf.Rubric(funcs=[passed, gave_a_program, solved, too_slow], weights=[1.0, 0.1, 0.0, 0.0]),
    )
