"""The backends that attacks are tried against, and what each of them does otherwise than the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
ATTACKING = ("kernel", "surroundings", "network", "process_one")

_OF_GVISOR = "it is gVisor's own, which the sandbox has for itself"
# What is not refused, by backend, and why it reaches nothing of the host all the same.
ALLOWED: dict[str, dict[tuple[str, str], str]] = {
    "oci (runsc)": {
        ("kernel", "the_32_bit_table_from_a_64_bit_program"): "gVisor takes it for the 64-bit call of this number",
        ("surroundings", "being_root_of_the_host"): "gVisor does not map users; on the host it is nobody",
        ("surroundings", "being_somebody_of_the_host"): "gVisor does not map users; on the host it is nobody",
        ("surroundings", "the_kernels_settings"): _OF_GVISOR,
        ("surroundings", "devices"): _OF_GVISOR,
        ("process_one", "what_proc_says_of_it"): "gVisor does not hide a process that cannot be traced, but its memory",
        ("process_one", "its_descriptors_by_name"): "gVisor does not hide a process that cannot be traced",
        ("process_one", "who_dies_first_without_memory"): _OF_GVISOR,
        ("process_one", "every_signal"): "gVisor lets process 1 be killed, which ends the sandbox and nothing else",
    }
}


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
