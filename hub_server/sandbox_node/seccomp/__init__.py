"""Which system calls a sandbox may make: an allow-list in `table`, and the filter programs made of it by `generate`."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from hub_server.sandbox_node.errors import NotPossible
from hub_server.sandbox_node.seccomp import table

MACHINES = ("x86_64", "aarch64")


def kept_path(machine: str) -> Path:
    """Return where the filter program of an architecture lies."""
    return Path(__file__).with_name(f"{machine}.bpf")


def filter_bytes(machine: str | None = None) -> bytes:
    """Return the seccomp filter program, as `bwrap --seccomp` and seccomp(2) take it; by default of this machine.

    Raises:
        NotPossible: there is none for this architecture.
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise NotPossible(
            f"there is no system call filter for {machine}", hint=f"Sandboxes run on {' and '.join(MACHINES)}."
        )
    return kept_path(machine).read_bytes()


def oci_profile() -> dict[str, Any]:
    """Return the same table as the `linux.seccomp` of an OCI runtime's configuration."""

    def answer(calls: list[str], action: str, **more: Any) -> dict[str, Any]:
        return {"names": calls, "action": action, **more}

    allowed = [call for group in table.ALLOWED for call in group.calls]
    rules = [answer(allowed, "SCMP_ACT_ALLOW")]
    for conditional in table.CONDITIONAL:
        for alternative in conditional.alternatives:
            arguments = [
                {"index": part.argument, "op": "SCMP_CMP_MASKED_EQ", "value": part.mask, "valueTwo": part.value}
                for part in alternative
            ]
            rules.append(answer([conditional.call], "SCMP_ACT_ALLOW", args=arguments))
    for groups, code in ((table.ABSENT, 38), (table.DONE_NOTHING, 0)):  # 38 is ENOSYS
        rules.append(answer([call for group in groups for call in group.calls], "SCMP_ACT_ERRNO", errnoRet=code))
    return {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1, "syscalls": rules}
