"""What the gepa package asks of a system that it improves, on top of the rollouts.

The search is synchronous and runs in a thread of its own; rollouts and reflections run in the event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from prime_cli.core.errors import PrimeError
from prime_cli.environments.rollout_errors import error_text
from prime_cli.gepa.examples import Example
from prime_cli.gepa.progress import Meter
from prime_cli.gepa.prompts import query_of, text_of
from prime_cli.gepa.reflection import ReflectionModel
from prime_cli.gepa.rollouts import Outcome, Rollouts

if TYPE_CHECKING:
    from gepa.core.adapter import EvaluationBatch

COMPONENT = "system_prompt"
"""The name under which the search knows what it improves."""

Candidate = dict[str, str]
_T = TypeVar("_T")


class SearchStopped(BaseException):
    """Ends the search at once: no `except Exception` of the gepa package may take it for a failed proposal."""

    def __init__(self, reason: PrimeError | None) -> None:
        super().__init__()
        self.reason = reason


class LoopBridge:
    """Lets the thread of the search wait for what runs in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stopped = False
        self._waiting: concurrent.futures.Future[Any] | None = None

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run `coroutine` in the loop and return what it returns; for the thread of the search.

        Raises:
            SearchStopped: it failed with a PrimeError, or the search is to end.
        """
        if self._stopped:
            coroutine.close()
            raise SearchStopped(None)
        future: concurrent.futures.Future[_T] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._waiting = future
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise SearchStopped(None) from None
        except PrimeError as error:
            raise SearchStopped(error) from error

    def stop(self) -> None:
        """End the search at its next step, and what it waits for now; for the thread of the loop."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()


class PromptAdapter:
    """Evaluates candidates and says what a reflection gets to see."""

    propose_new_texts = None  # the gepa package's own proposer asks the reflection model

    def __init__(
        self,
        rollouts: Rollouts,
        reflection: ReflectionModel,
        bridge: LoopBridge,
        meter: Meter,
        state_columns: Sequence[str],
    ) -> None:
        self._rollouts = rollouts
        self._reflection = reflection
        self._bridge = bridge
        self._meter = meter
        self._state_columns = state_columns

    def evaluate(
        self, batch: list[Example], candidate: Candidate, capture_traces: bool = False
    ) -> EvaluationBatch[Outcome, Mapping[str, Any]]:
        """Run the candidate on the examples."""
        from gepa.core.adapter import EvaluationBatch

        outcomes = self._bridge.call(self._rollouts.evaluate(candidate[COMPONENT], batch))
        return EvaluationBatch(
            outputs=[outcome.record for outcome in outcomes],
            scores=[outcome.score for outcome in outcomes],
            trajectories=outcomes if capture_traces else None,
        )

    def make_reflective_dataset(
        self,
        candidate: Candidate,
        eval_batch: EvaluationBatch[Outcome, Mapping[str, Any]],
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return what was asked, answered and expected in each rollout, and what it was worth."""
        records = [_record(outcome, self._state_columns) for outcome in eval_batch.trajectories or []]
        return dict.fromkeys(components_to_update, records)

    def reflect(self, prompt: str | list[dict[str, Any]]) -> str:
        """Ask the reflection model; what the gepa package calls a language model."""
        self._meter.change(phase="reflecting")
        return self._bridge.call(self._reflection.ask(prompt))


def _record(outcome: Outcome, state_columns: Sequence[str]) -> dict[str, Any]:
    row, record = outcome.example.row, outcome.record
    shown: dict[str, Any] = {
        "query": query_of(row),
        "completion": _conversation(record.get("completion") or []),
        "expected_answer": row.get("answer", ""),
        "reward": outcome.score,
    }
    if record.get("metrics"):
        shown["metrics"] = record["metrics"]
    if record.get("error"):
        shown["error"] = error_text(record["error"])
    if record.get("stop_condition"):
        shown["stop_condition"] = record["stop_condition"]
    return shown | {column: record[column] for column in state_columns if column in record}


def _conversation(messages: Any) -> str:
    """Return the messages after the prompt as text: one answer as it is, several with who said them."""
    if isinstance(messages, str):
        return messages
    if len(messages) == 1 and not messages[0].get("tool_calls"):
        return text_of(messages[0])
    lines = []
    for message in messages:
        text = text_of(message)
        if text:
            lines.append(f"{message.get('role')}: {text}")
        lines += [f"{message.get('role')} calls a tool: {call}" for call in message.get("tool_calls") or []]
    return "\n".join(lines)
