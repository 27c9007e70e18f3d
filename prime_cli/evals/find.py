"""Finds an evaluation by what a user types: its folder, its id, the beginning of its id, or an id of the hub."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prime_cli.core.errors import BadInput
from prime_cli.evals.store import METADATA, EvalDirectory, default_roots, evaluations_at, find_evaluations

HUB = "hub:"
"""What an evaluation of the hub is told by, before its id."""


def find_evaluation(text: str, roots: Iterable[Path] | None = None) -> EvalDirectory:
    """Return the evaluation that is meant by a folder, or by an id or the unique beginning of one in this workspace.

    `hub:ID` is one of the hub, which is fetched.

    Raises:
        BadInput: there is none, or several; names them.
        HubError: the hub has none, or does not show it.
    """
    if text.startswith(HUB):
        return _from_hub(text.removeprefix(HUB))
    path = Path(text)
    if (path / METADATA).is_file():
        return EvalDirectory(path)
    if path.is_dir():
        below = evaluations_at(path)
        if len(below) == 1:
            return below[0]
        raise BadInput(f"there are {len(below)} evaluations in {path}", hint=_names(below))
    everything = find_evaluations(default_roots() if roots is None else roots)
    found = [directory for directory in everything if directory.path.name.startswith(text.strip("/"))]
    exact = [directory for directory in found if directory.path.name == text]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if found:
        raise BadInput(f"{text!r} is the beginning of {len(found)} evaluations", hint=_names(found))
    raise BadInput(f"there is no evaluation {text!r} here", hint="`prime eval list` shows those there are")


def find_here(text: str) -> EvalDirectory | None:
    """Return the evaluation of this workspace that is meant, or None when there is none.

    Raises:
        BadInput: the text is the beginning of several.
    """
    if text.startswith(HUB):
        return None
    known = any(directory.path.name.startswith(text.strip("/")) for directory in find_evaluations(default_roots()))
    return find_evaluation(text) if known or Path(text).exists() else None


def evaluations_named(text: str) -> list[EvalDirectory]:
    """Return the evaluations in and below a folder, or the one with that id.

    Raises:
        PrimeError: there is none.
    """
    return evaluations_at(Path(text)) if Path(text).exists() else [find_evaluation(text)]


def _from_hub(evaluation_id: str) -> EvalDirectory:
    from prime_cli.evals.fetch import fetch_evaluation
    from prime_cli.hub.client import connect

    if not evaluation_id.isalnum():
        raise BadInput(f"{evaluation_id!r} is not the id of an evaluation", hint="`prime eval list --hub` shows yours")
    with connect(login_required=False) as client:
        return fetch_evaluation(client, evaluation_id)


def _names(directories: Iterable[EvalDirectory]) -> str:
    names = [str(directory.path) for directory in directories]
    return "name one of " + ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
