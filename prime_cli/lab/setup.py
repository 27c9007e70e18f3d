"""Makes a folder into a workspace: starter configs, a place for environments, notes for whoever works there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import write_bytes_atomically, write_text_atomically
from prime_cli.lab.agents import AGENTS, DEFAULT_AGENTS
from prime_cli.lab.kit import FOLDERS, GITIGNORE_HEAD, Kit, kit_for
from prime_cli.lab.record import LabChoices, fingerprint, read_record, update_record


@dataclass
class Workspace:
    """A workspace and what was done there; paths are relative to `path`. `kept` differs from what would be written."""

    path: Path
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def set_up_workspace(path: Path, *, agents: Sequence[str] | None = None, agents_md: bool | None = None) -> Workspace:
    """Write whatever of a workspace is missing in the folder `path`; what is there is never changed.

    Only .gitignore is added to, by a block of its own.

    Args:
        agents: the coding agents to prepare for; None for those chosen before.
        agents_md: whether to write AGENTS.md and its like; None for what was chosen before.

    Raises:
        PrimeError: the folder cannot be made or written to.
    """
    workspace = Workspace(path)
    try:
        for folder in FOLDERS:
            (path / folder).mkdir(parents=True, exist_ok=True)
        before = read_record(path)
        choices = _chosen(before.choices, agents, agents_md)
        kit = chosen_kit(choices)
        ours = _write_missing(kit, workspace)
        workspace.written += lay_links(path, kit) + extend_gitignore(path, kit, before.gitignore)
        update_record(path, choices=choices, files=dict(sorted((before.files | ours).items())), gitignore=kit.gitignore)
    except OSError as error:
        raise PrimeError(
            f"cannot set up {path}: {error.strerror} ({error.filename})", hint="choose another folder by --path"
        ) from None
    return workspace


def chosen_kit(choices: LabChoices) -> Kit:
    """Return what this version gives to a workspace of these choices."""
    agents = DEFAULT_AGENTS if choices.agents is None else choices.agents
    return kit_for([name for name in agents if name in AGENTS], with_instructions=choices.agents_md)


def _chosen(before: LabChoices, agents: Sequence[str] | None, agents_md: bool | None) -> LabChoices:
    changes = {"agents": None if agents is None else tuple(agents), "agents_md": agents_md}
    return before.model_copy(update={key: value for key, value in changes.items() if value is not None})


def _write_missing(kit: Kit, workspace: Workspace) -> dict[str, str]:
    """Write the files that are not there; return the fingerprints of those that are now as the kit has them."""
    ours = {}
    for relative, content in kit.files.items():
        target = workspace.path / relative
        if not target.exists():
            write_bytes_atomically(target, content)
            workspace.written.append(relative)
        elif target.read_bytes() != content:
            workspace.kept.append(relative)
            continue
        ours[relative] = fingerprint(content)
    return ours


def lay_links(path: Path, kit: Kit, *, dry_run: bool = False) -> list[str]:
    """Link each agent's folder of skills to the skills; what lies there by those names is kept. Return what is new."""
    new = []
    for relative, target in kit.links.items():
        link = path / relative
        if os.path.lexists(link):
            continue
        new.append(relative)
        if not dry_run:
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target, target_is_directory=True)
    return new


def extend_gitignore(path: Path, kit: Kit, known: Sequence[str], *, dry_run: bool = False) -> list[str]:
    """Add to .gitignore the lines that it was not given before; return its name when there were any.

    A line of `known` that is not there was taken out by somebody, and stays out.
    """
    target = path / ".gitignore"
    present = target.read_text(encoding="utf-8") if target.exists() else ""
    lines = present.splitlines()
    missing = [line for line in kit.gitignore if line not in lines and (line not in known or not target.exists())]
    if not missing:
        return []
    if GITIGNORE_HEAD in lines:
        at = lines.index(GITIGNORE_HEAD) + 1
        lines[at:at] = missing
    else:
        lines = [*present.rstrip().splitlines(), *([""] if present.strip() else []), GITIGNORE_HEAD, *missing]
    if not dry_run:
        write_text_atomically(target, "\n".join(lines) + "\n")
    return [".gitignore"]
