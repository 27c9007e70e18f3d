"""A rollout as sections to read: its messages, tool calls with what came back, what was thought, and how it scored."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prime_cli.environments.rollout_errors import error_text
from prime_cli.viewer.reading.messages import ToolCall, message_text, messages_of, reasoning_of, tool_calls_of

Kind = Literal["system", "user", "assistant", "tool", "reasoning", "error", "score", "facts"]
_MOST_CHARACTERS = 20_000
_KNOWN = ("system", "user", "assistant", "tool")
_TIMES = ("setup", "generation", "scoring", "total")


@dataclass(frozen=True)
class Section:
    """A title and a text under it. `folded`: whether only the title is shown at first."""

    kind: Kind
    title: str
    body: str
    folded: bool = False

    @property
    def shown_body(self) -> str:
        """The body as far as it is shown; copying takes all of it."""
        left_out = len(self.body) - _MOST_CHARACTERS
        if left_out <= 0:
            return self.body
        return f"{self.body[:_MOST_CHARACTERS]}\n… {left_out:,} more characters; c copies all of them"


def sections_of(row: Mapping[str, Any]) -> list[Section]:
    """Return a rollout as sections, in the order in which things happened."""
    prompt = messages_of(row, "prompt", "user")
    messages = [*prompt, *messages_of(row, "completion", "assistant")]
    sections = list(_conversation(messages, _outputs(messages)))
    if row.get("error"):
        sections.append(Section("error", "error", _error_body(row["error"])))
    sections.append(Section("score", _score_title(row), _score_body(row)))
    sections += [section for section in (_answer(row), _info(row), _usage(row), _turns(row), _tools(row)) if section]
    return sections


def reward_text(row: Mapping[str, Any]) -> str:
    """Return the reward for reading, also when it is no number."""
    reward = row.get("reward")
    if isinstance(reward, int | float) and not isinstance(reward, bool) and math.isfinite(reward):
        return f"{reward:.3f}"
    return str(reward)


def whole_text(sections: Sequence[Section]) -> str:
    """Return all sections as plain text."""
    return "\n\n".join(f"── {section.title}\n{section.body}".rstrip() for section in sections)


def _conversation(messages: Sequence[Mapping[str, Any]], outputs: Mapping[str, str]) -> Iterator[Section]:
    called: set[str] = set()
    for message in messages:
        role = str(message.get("role") or "?")
        if role == "tool" and str(message.get("tool_call_id") or "") in called:
            continue  # shown with its call
        thought = reasoning_of(message)
        if thought:
            yield Section("reasoning", f"reasoning · {len(thought.split()):,} words", thought, folded=True)
        text = message_text(message)
        calls = tool_calls_of(message)
        if text.strip() or not (thought or calls):
            kind: Kind = role if role in _KNOWN else "user"  # type: ignore[assignment]
            yield Section(kind, _message_title(role, message), text)
        for call in calls:
            called.add(call.id)
            yield _call_section(call, outputs.get(call.id))


def _outputs(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what tools answered, by the id of the call."""
    return {
        str(message["tool_call_id"]): message_text(message)
        for message in messages
        if message.get("role") == "tool" and message.get("tool_call_id")
    }


def _message_title(role: str, message: Mapping[str, Any]) -> str:
    name = message.get("name")
    return f"{role} · {name}" if isinstance(name, str) and name else role


def _call_section(call: ToolCall, output: str | None) -> Section:
    answer = "(no answer)" if output is None else output
    if not call.arguments:
        return Section("tool", f"tool · {call.name}()", f"→ {answer}")
    if "\n" in call.arguments:
        return Section("tool", f"tool · {call.name}", f"{call.arguments}\n→ {answer}")
    return Section("tool", f"tool · {call.name} {call.arguments}", f"→ {answer}")


def _error_body(error: Any) -> str:
    lines = [error_text(error)]
    if isinstance(error, Mapping):
        lines += [str(error[key]) for key in ("error_chain_str", "traceback") if error.get(key)]
    return "\n".join(dict.fromkeys(lines))


def _score_title(row: Mapping[str, Any]) -> str:
    if row.get("error"):
        return "score · none: it failed"
    return f"score · reward {reward_text(row)}"


def _score_body(row: Mapping[str, Any]) -> str:
    metrics = row.get("metrics")
    lines = _aligned({str(name): _value(value) for name, value in metrics.items()}) if isinstance(metrics, dict) else []
    facts = {"stopped by": row.get("stop_condition"), "advantage": row.get("advantage")}
    if row.get("is_truncated"):
        facts["cut off"] = "yes: the answer reached its limit of tokens"
    return "\n".join(lines + _aligned({name: _value(value) for name, value in facts.items() if value is not None}))


def _answer(row: Mapping[str, Any]) -> Section | None:
    answer = row.get("answer")
    return None if answer in (None, "") else Section("facts", "expected answer", _value(answer))


def _info(row: Mapping[str, Any]) -> Section | None:
    info = row.get("info")
    if not info or info == "{}":
        return None
    body = info if isinstance(info, str) else json.dumps(info, indent=2, ensure_ascii=False, default=str)
    return Section("facts", "about the example", body, folded=True)


def _usage(row: Mapping[str, Any]) -> Section | None:
    usage = row.get("token_usage")
    facts = {name.replace("_", " "): _value(value) for name, value in usage.items()} if isinstance(usage, dict) else {}
    timing = row.get("timing")
    for name in _TIMES if isinstance(timing, dict) else ():
        value = timing.get(name) if isinstance(timing, dict) else None
        seconds = value.get("duration") if isinstance(value, dict) else value
        if isinstance(seconds, int | float):
            facts[name] = f"{seconds:.2f} s"
    for name in ("policy_version", "completion_tokens", "samples"):
        if isinstance(row.get(name), int):
            facts[name.replace("_", " ")] = str(row[name])
    if not facts:
        return None
    title = f"tokens and time · {facts['output tokens']} out" if "output tokens" in facts else "tokens and time"
    return Section("facts", title, "\n".join(_aligned(facts)), folded=True)


def _turns(row: Mapping[str, Any]) -> Section | None:
    """Return the tokens of each turn, where the trajectory was kept (`--state-columns trajectory`)."""
    trajectory = row.get("trajectory")
    lines = []
    for number, step in enumerate(trajectory if isinstance(trajectory, list) else [], start=1):
        tokens = step.get("tokens") if isinstance(step, dict) else None
        if not isinstance(tokens, dict):
            continue
        prompt, completion = tokens.get("prompt_ids") or [], tokens.get("completion_ids") or []
        line = f"turn {number}: {len(prompt)} in, {len(completion)} out"
        logprobs = [value for value in tokens.get("completion_logprobs") or [] if isinstance(value, int | float)]
        if logprobs:
            line += f", mean log-probability {math.fsum(logprobs) / len(logprobs):.3f}, least {min(logprobs):.3f}"
        lines.append(line + ("\n  " + " ".join(map(str, completion)) if completion else ""))
    return Section("facts", f"tokens of {len(lines)} turns", "\n".join(lines), folded=True) if lines else None


def _tools(row: Mapping[str, Any]) -> Section | None:
    tools = row.get("tool_defs")
    if not isinstance(tools, list) or not tools:
        return None
    functions = [tool.get("function", tool) if isinstance(tool, dict) else {"name": str(tool)} for tool in tools]
    lines = [f"{function.get('name', '?')}: {function.get('description') or ''}".rstrip(": ") for function in functions]
    return Section("facts", f"tools offered · {len(lines)}", "\n".join(lines), folded=True)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _aligned(facts: Mapping[str, str]) -> list[str]:
    width = max((len(name) for name in facts), default=0)
    return [f"{name:<{width}}  {value}" for name, value in facts.items()]
