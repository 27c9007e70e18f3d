"""Make the filter of each architecture from the table, with libseccomp.

    python -m hub_server.sandbox_node.seccomp.generate

The programs are kept beside this file, so that a node needs neither pyseccomp nor libseccomp.
"""

from __future__ import annotations

import errno
import struct
import sys
import tempfile
from collections.abc import Sequence

import pyseccomp

from hub_server.sandbox_node.seccomp import MACHINES, kept_path
from hub_server.sandbox_node.seccomp.table import (
    ABSENT,
    ALLOWED,
    CONDITIONAL,
    DONE_NOTHING,
    NEWEST_CALL,
    Condition,
)

_ARCHITECTURES = {"x86_64": pyseccomp.Arch.X86_64, "aarch64": pyseccomp.Arch.AARCH64}
_BINARY_TREE = 2  # a search tree over the calls' numbers: some ten comparisons in place of three hundred
_ABSENT = pyseccomp.ERRNO(errno.ENOSYS)


def generate(machine: str) -> bytes:
    """Return the BPF program of the architecture, as `struct sock_filter[]` of a little-endian machine.

    A call through another architecture's table (32-bit, x32) fails as one that does not exist.
    """
    program = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))
    wanted = _ARCHITECTURES[machine]
    if wanted != pyseccomp.system_arch():
        program.add_arch(wanted)
        program.remove_arch(pyseccomp.system_arch())
    program.set_attr(pyseccomp.Attr.ACT_BADARCH, _ABSENT)
    program.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, _BINARY_TREE)
    for groups, action in (
        (ALLOWED, pyseccomp.ALLOW),
        (ABSENT, _ABSENT),
        (DONE_NOTHING, pyseccomp.ERRNO(0)),
    ):
        for group in groups:
            for call in group.calls:
                program.add_rule(action, call)  # one which the architecture does not have is left out
    for conditional in CONDITIONAL:
        for alternative in conditional.alternatives:
            program.add_rule(pyseccomp.ALLOW, conditional.call, *_arguments(alternative))
    with tempfile.TemporaryFile() as file:
        program.export_bpf(file)
        file.seek(0)
        return _newer_calls_are_absent() + file.read()


def _arguments(alternative: Sequence[Condition]) -> list[pyseccomp.Arg]:
    return [pyseccomp.Arg(part.argument, pyseccomp.MASKED_EQ, part.mask, part.value) for part in alternative]


def _newer_calls_are_absent() -> bytes:
    """Return the instructions that go before libseccomp's, whose own default is EPERM for whatever it does not know.

    Jumps in BPF are relative and lead forward, so that one program can be put before another.
    """
    load_number, jump_if_greater, answer = 0x20, 0x25, 0x06
    return b"".join(
        struct.pack("<HBBI", *instruction)
        for instruction in (
            (load_number, 0, 0, 0),
            (jump_if_greater, 0, 1, NEWEST_CALL),
            (answer, 0, 0, _ABSENT),
        )
    )


def main() -> int:
    """Write the programs of all architectures."""
    for machine in MACHINES:
        kept_path(machine).write_bytes(generate(machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
