"""What other tools' evaluations can be told that means nothing here, and why: accepted with a word, or refused.

One table serves the options of the command line and the keys of files, so that neither is ignored in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prime_cli.core.config_file import Problem


@dataclass(frozen=True)
class Foreign:
    """An option with its spellings, the first as the key of a file writes it.

    `reason` says what is so here. One that is `refused` asks for something that going on without would not be.
    """

    key: str
    reason: str
    short: str = ""
    takes_value: bool = False
    refused: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """The spellings on a command line."""
        return tuple(filter(None, (f"--{self.key.replace('_', '-')}", self.short)))


_HOSTED = "is for evaluations that a hub runs, and none does"
_KEPT = "results stay on this machine; `prime eval push` puts them on a hub"

FOREIGN = (
    Foreign("save_results", "every rollout is kept as soon as it is finished", short="-s"),
    Foreign("verbose", "what an environment writes is kept in the evaluation's logs/", short="-v"),
    Foreign("debug", "what an environment writes is kept in the evaluation's logs/"),
    Foreign("disable_tui", "`--plain` chooses a display without a live part", short="-d"),
    Foreign("fullscreen", "the display takes a line for each evaluation", short="-f"),
    Foreign("tui", "`prime eval view` looks at rollouts, also while they come in", short="-u"),
    Foreign("abbreviated_summary", "there is one summary", short="-A"),
    Foreign("no_interleave_scoring", "each rollout is scored when it ends", short="-N"),
    Foreign("disable_env_server", "environments run in processes of their own; --num-workers says how many"),
    Foreign("skip_upload", "nothing is uploaded before `prime eval push`"),
    Foreign("heartbeat_url", "nothing is sent anywhere while it runs", takes_value=True, refused=True),
    Foreign("save_to_hf_hub", _KEPT, short="-H", refused=True),
    Foreign("hf_hub_dataset_name", _KEPT, short="-D", takes_value=True, refused=True),
    Foreign("env_path", "name the folder as the environment", takes_value=True, refused=True),
    Foreign("hosted", f"{_HOSTED}; leave it out to run here", refused=True),
    Foreign(
        "custom_secrets",
        f"{_HOSTED}; here environments see the variables of your shell",
        takes_value=True,
        refused=True,
    ),
    Foreign("follow", f"{_HOSTED}; progress is shown anyway"),
    Foreign("poll_interval", _HOSTED, takes_value=True),
    Foreign("timeout_minutes", _HOSTED, takes_value=True),
    Foreign("allow_sandbox_access", _HOSTED),
    Foreign("allow_instances_access", _HOSTED),
    Foreign("allow_tunnel_access", _HOSTED),
)

_BY_KEY = {one.key: one for one in FOREIGN}
_BY_OPTION = {option: one for one in FOREIGN for option in one.options}


@dataclass(frozen=True)
class Sifted:
    """What is left without foreign keys, what to tell the user, and what keeps the evaluation from running."""

    rest: dict[str, Any]
    warnings: list[str]
    problems: list[Problem]


def sift_table(table: Mapping[str, Any], where: str = "") -> Sifted:
    """Take foreign keys out of a table of a file; one that is false asks for nothing."""
    sifted = Sifted({}, [], [])
    for key, value in table.items():
        foreign = _BY_KEY.get(key)
        if foreign is None:
            sifted.rest[key] = value
        elif value is False and key == "save_results":
            sifted.warnings.append(f"`{where}{key}` is ignored: {foreign.reason}")
        elif value is False:
            continue
        elif foreign.refused:
            sifted.problems.append(Problem(f"{where}{key}", f"cannot be had here: {foreign.reason}"))
        elif key != "save_results":
            sifted.warnings.append(f"`{where}{key}` is ignored: {foreign.reason}")
    return sifted


def sift_arguments(words: list[str]) -> tuple[list[str], list[str], list[Problem]]:
    """Return the words of a command line without foreign options, what to tell the user, and what is refused."""
    rest: list[str] = []
    warnings: list[str] = []
    problems: list[Problem] = []
    pending = list(words)
    while pending:
        word = pending.pop(0)
        option, given, _ = word.partition("=")
        foreign = _BY_OPTION.get(option)
        if word == "--":
            return [*rest, word, *pending], warnings, problems
        if foreign is None:
            rest.append(word)
            continue
        if foreign.takes_value and not given and pending:
            pending.pop(0)
        if foreign.refused:
            problems.append(Problem("", f"{option} cannot be had here: {foreign.reason}"))
        else:
            warnings.append(f"{option} changes nothing: {foreign.reason}")
    return rest, warnings, problems
