"""The pane beside what is neither an evaluation nor a training run: environments, models, evaluations of the hub."""

from __future__ import annotations

from typing import Any

from textual.content import Content

from prime_cli.environments.local import LocalEnvironment
from prime_cli.viewer.reading.hub_runs import HubEvaluation
from prime_cli.viewer.widgets.styled import BOLD, DIM, lines


def other_details(what: Any) -> Content:
    """Return the details of what is neither an evaluation nor a run."""
    if isinstance(what, LocalEnvironment):
        rows = {
            "folder": what.folder, "version of the folder": what.folder_version,
            "installed version": what.installed_version, "hub": what.origin, "problem": what.problem,
        }  # fmt: skip
        known = [((f"{name}  ", DIM), str(value)) for name, value in rows.items() if value is not None]
        return lines([((what.name, BOLD),), (), *known, (), (("prime eval run " + what.name + " -m MODEL", DIM),)])
    if isinstance(what, HubEvaluation):
        score = "none" if what.score is None else f"{what.score:.3f}"
        rows = {"model": what.model, "mean reward": score, "rollouts": str(what.rollouts), "status": what.status,
                "date": what.date, "page": what.facts.get("viewer_url")}  # fmt: skip
        known = [((f"{name}  ", DIM), str(value)) for name, value in rows.items() if value]
        return lines([((what.environment, BOLD),), (), *known, (), (("Enter brings its rollouts here", DIM),)])
    if isinstance(what, tuple):
        name, model, runs = what
        count = len(runs) if isinstance(runs, list) else sum(map(len, runs.values()))
        return lines([((name, BOLD),), ((model or "", DIM),), (), (f"{count} evaluations",)])
    return Content(str(what))


def nothing_here() -> Content:
    return lines([
        (("There is nothing here yet.", BOLD),), (),
        ("prime eval run ENV -m MODEL   measures a model",),
        ("prime rl run CONFIG           trains one",),
    ])  # fmt: skip
