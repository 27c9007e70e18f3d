"""What a node holds of the output of commands has a bound, which harms no command that writes little."""

from __future__ import annotations

import asyncio

from hub_server.sandbox_node.collected import HeldOutput, collect
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import MEBIBYTE, Command, Finished


async def collected(sandbox: Sandbox, text: str, held: HeldOutput) -> Finished:
    session, follower = await sandbox.start_followed(Command(["/bin/sh", "-c", text]))
    return await collect(session, follower, b"", held)


async def test_commands_that_write_much_are_cut_when_much_is_held_and_others_are_not(plain_sandbox: Sandbox) -> None:
    held = HeldOutput(4 * MEBIBYTE)
    much = "head -c 3000000 /dev/zero; sleep 0.5; echo end"
    finished = await asyncio.gather(
        *(collected(plain_sandbox, much, held) for _ in range(6)),
        *(collected(plain_sandbox, "head -c 900000 /dev/zero; sleep 0.3", held) for _ in range(6)),
    )
    large, small = finished[:6], finished[6:]
    whole = [one for one in large if not one.ended.cut]
    assert 1 <= len(whole) <= 3, "so many fit beyond what each may have"
    assert {len(one.stdout) for one in whole} == {3_000_004}
    assert all(one.exit_code == 137 for one in large if one.ended.cut)
    assert [(len(one.stdout), one.ended.cut) for one in small] == [(900_000, False)] * 6
    again = await collected(plain_sandbox, much, held)
    assert len(again.stdout) == 3_000_004, "it was all given back"
