"""The backends that attacks are tried against, and what each of them does otherwise than the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
ATTACKING = ("kernel", "surroundings", "process_one", "network")

# What an attack does that is not refused, by backend: it then reaches nothing of the host, for the reason given.
ALLOWED: dict[str, dict[tuple[str, str], str]] = {"bwrap": {}}


def attacks() -> list[tuple[str, str]]:
    """Return every attack as program and name."""
    found = []
    for program in ATTACKING:
        text = (PROGRAMS / f"{program}.py").read_text()
        found += [(program, name) for name in re.findall(r"^@attack\([^)]*\)\ndef (\w+)\(", text, re.MULTILINE)]
    return found


def outcomes(said: bytes) -> dict[str, tuple[str, str]]:
    """Return what each attack of a program said of itself."""
    lines = [json.loads(line) for line in said.decode().splitlines()]
    return {line["attack"]: (line["outcome"], line["how"]) for line in lines}
