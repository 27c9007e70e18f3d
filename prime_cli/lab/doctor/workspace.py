"""The workspace: its folders and files, what git keeps of it, and the environments in it."""

from __future__ import annotations

from pathlib import Path

from prime_cli.core.errors import PrimeError
from prime_cli.environments.project import read_project
from prime_cli.lab.doctor.finding import Finding, Repair
from prime_cli.lab.doctor.surroundings import Surroundings
from prime_cli.lab.kit import FOLDERS
from prime_cli.lab.record import LAB_FILE
from prime_cli.lab.setup import set_up_workspace
from prime_cli.lab.sync import sync_workspace

_NOT_FOR_GIT = (".env", ".prime", "outputs", "models")


def check_files(around: Surroundings) -> list[Finding]:
    """See that the folders and files of a workspace are there and of this version."""
    top = around.workspace
    if not is_workspace(top):
        return [Finding("workspace", "fails", f"{top.resolve()} is no workspace", "prime lab setup")]
    setup = Repair("wrote what was missing of the workspace", lambda: set_up_workspace(top))
    missing = [folder for folder in FOLDERS if not (top / folder).is_dir()]
    if missing:
        return [Finding("workspace", "warning", f"missing: {', '.join(missing)}", "prime lab setup", setup)]
    if not (top / LAB_FILE).is_file():
        message = f"there is no {LAB_FILE}, so `prime lab sync` takes every file for edited"
        return [Finding("workspace", "warning", message, "prime lab setup", setup)]
    try:
        report = sync_workspace(top, dry_run=True)
    except PrimeError as error:
        return [Finding("workspace", "fails", error.message, error.hint)]
    if report.changed:
        names = report.updated + report.written + report.removed
        message = f"not of this version: {', '.join(names)}"
        repair = Repair("ran `prime lab sync`", lambda: sync_workspace(top))
        return [Finding("workspace", "warning", message, "prime lab sync", repair)]
    return [Finding("workspace", "ok", f"{top.resolve()} is complete")]


def check_git(around: Surroundings) -> list[Finding]:
    """See that git keeps neither secrets nor what runs leave behind."""
    if not (around.workspace / ".git").exists():
        return []
    ran = around.run(["git", "-C", str(around.workspace), "ls-files", "--", *_NOT_FOR_GIT], 30)
    tracked = ran.output.split("\n")[:-1] if ran.code == 0 else []
    if not tracked:
        return [Finding("git", "ok", "git keeps no secrets and no outputs")]
    tops = sorted({name.partition("/")[0] for name in tracked})
    level, secret = ("fails", " (it holds secrets)") if ".env" in tops else ("warning", "")
    message = f"git keeps {len(tracked)} generated file{'s' * (len(tracked) > 1)} of {', '.join(tops)}{secret}"
    hint = f"git rm -r --cached --quiet {' '.join(tops)}"
    return [Finding("git", "fails" if level == "fails" else "warning", message, hint)]


def check_environments(around: Surroundings) -> list[Finding]:
    """See that each folder of environments/ holds one: a project, with a module of its name that loads it."""
    folders = [path for path in sorted((around.workspace / "environments").glob("*")) if _is_meant(path)]
    problems = [finding for folder in folders for finding in _of(folder)]
    if problems:
        return problems
    if not folders:
        return [Finding("environments", "ok", "none here yet: `prime env init my-task` writes one")]
    return [Finding("environments", "ok", ", ".join(folder.name for folder in folders))]


def is_workspace(folder: Path) -> bool:
    """Say whether a folder looks like one: it was set up, or has configs."""
    return (folder / LAB_FILE).is_file() or (folder / "configs").is_dir()


def _is_meant(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith((".", "_")) and any(path.iterdir())


def _of(folder: Path) -> list[Finding]:
    try:
        path = read_project(folder).module_path
        text = path.read_text(encoding="utf-8")
    except PrimeError as error:
        return [Finding("environments", "fails", error.message, error.hint)]
    except (OSError, UnicodeDecodeError) as error:
        return [Finding("environments", "fails", f"{folder} cannot be read: {error}")]
    if "load_environment" not in text:
        message = f"{path} has no function load_environment, which is what is called"
        return [Finding("environments", "fails", message, "prime env init NAME --template single-turn")]
    return []
