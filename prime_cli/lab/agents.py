"""Coding agents that a workspace is prepared for, and where each of them looks for skills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prime_cli.core.errors import BadInput

DEFAULT_AGENTS = ("codex", "claude")


@dataclass(frozen=True)
class Agent:
    """A coding agent: the folder of its skills in a workspace, and the file of instructions that it reads."""

    name: str
    skills: str = ".agents/skills"
    instructions: str = "AGENTS.md"


_AGENTS = (
    Agent("amp"),
    Agent("claude", ".claude/skills", "CLAUDE.md"),
    Agent("codex"),
    Agent("cursor", ".cursor/skills"),
    Agent("droid", ".factory/skills"),
    Agent("grok", ".grok/skills"),
    Agent("hermes"),
    Agent("letta"),
    Agent("opencode", ".opencode/skills"),
    Agent("pi", ".pi/skills"),
)
AGENTS = {agent.name: agent for agent in _AGENTS}
_OTHER_NAMES = {"factory": "droid"}


def parse_agents(text: str) -> tuple[str, ...]:
    """Return the agents that `a,b`, `all` or `none` means, by name, each once.

    Raises:
        BadInput: one of them is not known.
    """
    if text.strip() == "none":
        return ()
    if text.strip() == "all":
        return tuple(AGENTS)
    names = [_OTHER_NAMES.get(name, name) for part in text.split(",") if (name := part.strip().lower())]
    unknown = [name for name in names if name not in AGENTS]
    if unknown or not names:
        raise BadInput(
            f"{', '.join(unknown) or repr(text)} is no coding agent that is known here",
            hint=f"choose among {', '.join(AGENTS)}, or say `all` or `none`",
        )
    return tuple(sorted(set(names)))


def skill_folders(agents: Sequence[str]) -> list[str]:
    """Return the folders in which these agents look for skills, each once."""
    return sorted({AGENTS[name].skills for name in agents})
