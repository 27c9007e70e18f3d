"""A machine for seccomp's filter programs: what a program answers to a system call, without making the call."""

from __future__ import annotations

import struct
from collections.abc import Sequence

X86_64, I386, AARCH64 = 0xC000003E, 0x40000003, 0xC00000B7
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


def answer(program: bytes, architecture: int, number: int, arguments: Sequence[int] = ()) -> int:
    """Run the program over one call; an instruction that filters do not use is a KeyError."""
    registers = [*(argument & (1 << 64) - 1 for argument in arguments), *[0] * (6 - len(arguments))]
    data = struct.pack("<iIQ6Q", number - (1 << 32 if number >= 1 << 31 else 0), architecture, 0, *registers)
    held, at = 0, 0
    while True:
        code, if_true, if_false, operand = struct.unpack_from("<HBBI", program, at * 8)
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                held &= operand
            case 0x05:
                at += operand
            case 0x06:
                return operand
            case _:
                holds = {0x15: held == operand, 0x25: held > operand, 0x35: held >= operand, 0x45: held & operand != 0}
                at += if_true if holds[code] else if_false
