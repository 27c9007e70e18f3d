"""Brings what `lab setup` wrote up to date with this version, and leaves alone what was edited since."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import write_bytes_atomically
from prime_cli.lab.kit import Kit
from prime_cli.lab.record import LAB_FILE, fingerprint, read_record, update_record
from prime_cli.lab.setup import chosen_kit, extend_gitignore, lay_links


@dataclass
class SyncReport:
    """What a sync did, or with `dry_run` would do; paths are relative to the workspace.

    `edited` holds the files that were edited here and that this version has otherwise than that which wrote them, each
    with the difference from the file to what this version would write; `own` were edited and nothing is new in them.
    `left_out` were taken away, and are not written again.
    """

    updated: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    edited: dict[str, str] = field(default_factory=dict)
    own: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether anything was done."""
        return bool(self.updated or self.written or self.removed)


def sync_workspace(path: Path, *, agents: Sequence[str] | None = None, dry_run: bool = False) -> SyncReport:
    """Bring the files of the workspace `path` up to date.

    A file is replaced when it still is what was written; it is removed when this version has it no more. Files that
    were edited or taken away stay so.

    Args:
        agents: prepare for these coding agents from now on.

    Raises:
        PrimeError: the folder is no workspace, or a file cannot be read or written.
    """
    record = read_record(path)
    if not (path / LAB_FILE).exists() and not (path / "configs").is_dir():
        raise PrimeError(f"{path} is no workspace: it has no {LAB_FILE}", hint="make it one with `prime lab setup`")
    choices = record.choices if agents is None else record.choices.model_copy(update={"agents": tuple(agents)})
    kit = chosen_kit(choices)
    try:
        report = _compare(path, kit, record.files)
        if not dry_run:
            _carry_out(path, kit, report)
        report.written += lay_links(path, kit, dry_run=dry_run)
        report.removed += _remove_links(path, set(kit.links), dry_run=dry_run)
        report.updated += extend_gitignore(path, kit, record.gitignore, dry_run=dry_run)
        if not dry_run:
            gone = {*report.edited, *report.own, *report.left_out}
            files = {name: fingerprint(content) for name, content in kit.files.items() if name not in gone}
            files |= {name: record.files[name] for name in gone if name in record.files}
            update_record(path, choices=choices, files=dict(sorted(files.items())), gitignore=kit.gitignore)
    except OSError as error:
        raise PrimeError(f"cannot bring {path} up to date: {error.strerror} ({error.filename})") from None
    return report


def _compare(path: Path, kit: Kit, known: Mapping[str, str]) -> SyncReport:
    report = SyncReport()
    for name, content in kit.files.items():
        target = path / name
        if not target.exists():
            (report.left_out if name in known else report.written).append(name)
            continue
        found = target.read_bytes()
        if found == content:
            continue
        if fingerprint(found) == known.get(name):
            report.updated.append(name)
        elif fingerprint(content) != known.get(name):
            report.edited[name] = _difference(name, found, content)
        else:
            report.own.append(name)
    for name, written in known.items():
        target = path / name
        if name not in kit.files and target.exists() and fingerprint(target.read_bytes()) == written:
            report.removed.append(name)
    return report


def _carry_out(path: Path, kit: Kit, report: SyncReport) -> None:
    for name in report.updated + report.written:
        write_bytes_atomically(path / name, kit.files[name])
    for name in report.removed:
        (path / name).unlink()
        _remove_empty(path, (path / name).parent)


def _remove_empty(top: Path, folder: Path) -> None:
    while folder != top and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _remove_links(path: Path, wanted: set[str], *, dry_run: bool) -> list[str]:
    """Remove links of agents' folders to skills of ours that are no longer wanted."""
    found = [link for link in path.glob(".*/skills/prime-*") if link.is_symlink() and "/.prime/skills/" in _leads(link)]
    unwanted = [link for link in found if link.relative_to(path).as_posix() not in wanted]
    for link in unwanted if not dry_run else ():
        link.unlink()
        _remove_empty(path, link.parent)
    return [link.relative_to(path).as_posix() for link in unwanted]


def _leads(link: Path) -> str:
    return link.readlink().as_posix()


def _difference(name: str, found: bytes, offered: bytes) -> str:
    here, there = (text.decode(errors="replace").splitlines() for text in (found, offered))
    return "\n".join(difflib.unified_diff(here, there, f"{name} (yours)", f"{name} (this version)", lineterm=""))
