"""The files that a workspace is given: what they are, and what this version of the tool would write into each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from prime_cli.core.resources import resource_path
from prime_cli.lab.agents import AGENTS, skill_folders

FOLDERS = ("environments", "configs/rl", "configs/sft", "configs/eval", "configs/gepa")
"""The folders of a workspace."""

GITIGNORE_HEAD = "# Lab generated artifacts"
"""How the block of .gitignore begins that this tool adds."""

_SKILLS = ".prime/skills"
_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "environments/AGENTS.md")


@dataclass(frozen=True)
class Kit:
    """What a workspace is given. `files` holds contents by path, `links` targets by path; both relative to its top."""

    files: dict[str, bytes]
    links: dict[str, str]
    gitignore: tuple[str, ...]


def kit_for(agents: Sequence[str], *, with_instructions: bool = True) -> Kit:
    """Return what this version gives to a workspace for these coding agents.

    Args:
        with_instructions: whether AGENTS.md and its like are among it.
    """
    templates = resource_path("templates/lab")
    files = {_target(relative): path.read_bytes() for relative, path in _files_below(templates)}
    del files["gitignore"]  # not hidden in the templates, so that it does not act there
    claude = any(AGENTS[name].instructions == "CLAUDE.md" for name in agents)
    unwanted = set() if with_instructions else set(_INSTRUCTIONS)
    unwanted |= set() if claude else {"CLAUDE.md"}
    if not agents:
        unwanted |= {path for path in files if path.startswith(f"{_SKILLS}/")}
    kept = {path: content for path, content in sorted(files.items()) if path not in unwanted}
    return Kit(kept, _links(kept, agents), _gitignore(templates))


def _files_below(folder: Path) -> list[tuple[str, Path]]:
    return [(path.relative_to(folder).as_posix(), path) for path in folder.rglob("*") if path.is_file()]


def _target(relative: str) -> str:
    """Skills lie in one place, to which the folder of every agent links."""
    return f".prime/{relative}" if relative.startswith("skills/") else relative


def _links(files: dict[str, bytes], agents: Sequence[str]) -> dict[str, str]:
    skills = sorted({PurePosixPath(path).parent.name for path in files if path.startswith(f"{_SKILLS}/")})
    return {
        f"{folder}/{skill}": os.path.relpath(f"{_SKILLS}/{skill}", folder)
        for folder in skill_folders(agents)
        for skill in skills
    }


def _gitignore(templates: Path) -> tuple[str, ...]:
    lines = (templates / "gitignore").read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and line != GITIGNORE_HEAD)
