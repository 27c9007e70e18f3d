"""Makes a folder into a workspace: starter configs, a place for environments, notes for whoever works there."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from prime_cli import __version__
from prime_cli.core.errors import PrimeError
from prime_cli.core.files import write_json_atomically, write_text_atomically
from prime_cli.core.resources import resource_path

_FOLDERS = ("environments", "configs/rl", "configs/sft", "configs/eval", "configs/gepa")
_GITIGNORE = "gitignore"  # not hidden in the templates, so that it does not act there
_GITIGNORE_HEAD = "# Lab generated artifacts"


@dataclass
class Workspace:
    """A workspace and what `set_up_workspace` did there; paths are relative to `path`."""

    path: Path
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def set_up_workspace(path: Path) -> Workspace:
    """Write whatever of a workspace is missing in the folder `path`; what is there is never changed.

    Only .gitignore is added to, once, by a block of its own.

    Raises:
        PrimeError: the folder cannot be made or written to.
    """
    workspace = Workspace(path)
    try:
        for folder in _FOLDERS:
            (path / folder).mkdir(parents=True, exist_ok=True)
        _copy_templates(resource_path("templates/lab"), workspace)
        _extend_gitignore(resource_path("templates/lab") / _GITIGNORE, workspace)
        _write_lab_json(workspace)
    except OSError as error:
        raise PrimeError(
            f"cannot set up {path}: {error.strerror} ({error.filename})", hint="choose another folder by --path"
        ) from None
    return workspace


def _copy_templates(templates: Path, workspace: Workspace) -> None:
    for source in sorted(templates.rglob("*")):
        relative = source.relative_to(templates)
        if source.is_dir() or relative == Path(_GITIGNORE):
            continue
        target = workspace.path / relative
        if target.exists():
            workspace.kept.append(str(relative))
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        workspace.written.append(str(relative))


def _extend_gitignore(source: Path, workspace: Workspace) -> None:
    target = workspace.path / ".gitignore"
    present = target.read_text(encoding="utf-8") if target.exists() else ""
    if _GITIGNORE_HEAD in present:
        workspace.kept.append(".gitignore")
        return
    before = f"{present.rstrip()}\n\n" if present.strip() else ""
    write_text_atomically(target, before + source.read_text(encoding="utf-8"))
    workspace.written.append(".gitignore")


def _write_lab_json(workspace: Workspace) -> None:
    relative = ".prime/lab.json"
    if (workspace.path / relative).exists():
        workspace.kept.append(relative)
        return
    write_json_atomically(workspace.path / relative, {"setup_source": f"prime-lab {__version__}", "choices": {}})
    workspace.written.append(relative)
