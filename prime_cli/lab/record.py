"""`.prime/lab.json`: what a workspace was set up with, so that a later version knows which files are still its own."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from prime_cli import __version__
from prime_cli.core.config_file import read_model
from prime_cli.core.errors import ConfigError
from prime_cli.core.files import write_json_atomically

LAB_FILE = ".prime/lab.json"


class LabChoices(BaseModel):
    """What was chosen at setup."""

    model_config = ConfigDict(frozen=True, extra="allow")  # other tools of the family keep choices of theirs here

    agents: tuple[str, ...] | None = Field(
        default=None, description="the coding agents that skills were laid out for; null: those of `lab setup` itself"
    )
    agents_md: bool = Field(default=True, description="whether AGENTS.md and its like are kept up to date")


class LabRecord(BaseModel):
    """What `.prime/lab.json` holds. Without it, no file of a workspace counts as unedited."""

    model_config = ConfigDict(frozen=True, extra="allow")

    setup_source: str = Field(default="", description="the tool and the version that last wrote files here")
    choices: LabChoices = LabChoices()
    files: dict[str, str] = Field(
        default_factory=dict, description="sha256 of what was written to each file, by its path in the workspace"
    )
    gitignore: tuple[str, ...] = Field(default=(), description="the lines that were added to .gitignore, ever")


def read_record(workspace: Path) -> LabRecord:
    """Return the record of a workspace; an empty one where there is none.

    Raises:
        ConfigError: it cannot be read.
    """
    path = workspace / LAB_FILE
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return LabRecord()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint=_MEND) from None
    record, problems = read_model(data if isinstance(data, dict) else {"files": data}, LabRecord)
    if record is None:
        raise ConfigError(f"{path}: {problems[0]}", hint=_MEND)
    return record


def update_record(workspace: Path, **changes: Any) -> None:
    """Write what is new of the record, under the name of this version; a record that says the same stays as it is."""
    before = read_record(workspace)
    record = before.model_copy(update={"setup_source": f"prime-lab {__version__}", **changes})
    if record != before:
        write_json_atomically(workspace / LAB_FILE, record.model_dump(mode="json"))


def fingerprint(content: bytes) -> str:
    """Return the sha256 of the contents of a file."""
    return hashlib.sha256(content).hexdigest()


_MEND = f"remove {LAB_FILE} and run `prime lab setup`; no file of yours is changed by that"
