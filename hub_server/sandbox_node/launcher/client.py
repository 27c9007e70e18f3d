"""The node's side of its launcher: starts it, sends orders, and learns what has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from hub_server.sandbox_node.errors import NotPossible, NotStarted
from hub_server.sandbox_node.launcher import orders

_PACKAGES = Path(__file__).parent.parent.parent.parent  # the folder in which hub_server lies
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")  # it becomes one of a folder
_READY_S = 60.0
# Isolated from the environment and from installed packages: of ours, it imports by path.
_START = """
import sys
sys.path.insert(0, sys.argv[1])
from hub_server.sandbox_node.launcher.process import main
main(0)
"""


class LauncherClient:
    """One running launcher."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket, ready: orders.Ready) -> None:
        self._process, self._channel = process, channel
        self.ready = ready
        self._ended: dict[str, asyncio.Future[orders.Ended]] = {}
        self.lost = False
        asyncio.get_running_loop().add_reader(channel.fileno(), self._receive)

    @classmethod
    async def start(cls, setup: orders.Setup, seccomp: bytes) -> LauncherClient:
        """Start a launcher process.

        Raises:
            NotPossible: it cannot do its work on this host.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
                [sys.executable, "-I", "-S", "-B", "-c", _START, str(_PACKAGES)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # a Ctrl-C at the terminal is the node's to answer
            )
        program = os.memfd_create("seccomp", os.MFD_CLOEXEC)
        try:
            os.write(program, seccomp)
            os.lseek(program, 0, os.SEEK_SET)
            socket.send_fds(ours, [orders.packed(setup)], [program])
            ours.settimeout(_READY_S)
            received = await asyncio.to_thread(orders.receive, ours)
        except OSError as problem:
            received = (orders.Failed(str(problem)), [])
        finally:
            os.close(program)
        answer = received[0] if received is not None else orders.Failed("it ended at once")
        if not isinstance(answer, orders.Ready):
            ours.close()
            process.wait()
            raise NotPossible(
                f"the launcher of sandboxes does not start: {answer.why}", hint="Run `prime sandbox doctor`."
            )
        ours.setblocking(False)
        return cls(process, ours, answer)

    async def create(self, order: orders.Create, descriptors: list[int]) -> asyncio.Future[orders.Ended]:
        """Let a sandbox be made; the future is done when it is gone again with all that it had.

        Raises:
            NotStarted: there is one of this name, or the launcher is gone.
        """
        if order.sandbox in self._ended:
            raise NotStarted(f"there is a sandbox {order.sandbox} already")
        if not _NAME.fullmatch(order.sandbox):
            raise NotStarted(f"{order.sandbox!r} is no name for a sandbox: letters, digits, - and _ are")
        ended: asyncio.Future[orders.Ended] = asyncio.get_running_loop().create_future()
        self._ended[order.sandbox] = ended
        try:
            await self._send(order, descriptors)
        except BaseException as problem:
            self._ended.pop(order.sandbox, None)  # it was not sent
            if isinstance(problem, OSError):
                raise NotStarted(f"the launcher of sandboxes is gone: {problem}") from problem
            raise
        return ended

    async def destroy(self, sandbox: str) -> None:
        """Let a sandbox be ended, and wait until nothing of it is left."""
        ended = self._ended.get(sandbox)
        if ended is None:
            return
        with contextlib.suppress(OSError):  # a launcher that is gone took its sandboxes along
            await self._send(orders.Destroy(sandbox), [])
            await asyncio.shield(ended)

    async def close(self) -> None:
        """End all sandboxes and the launcher."""
        if not self.lost:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_WR)
        await asyncio.to_thread(self._process.wait)
        self._give_up()

    async def _send(self, message: object, descriptors: list[int]) -> None:
        packet = orders.packed(message)
        while True:
            if self.lost:
                raise ConnectionError("its channel is closed")
            try:
                socket.send_fds(self._channel, [packet], descriptors)
                return
            except BlockingIOError:
                await asyncio.sleep(0.001)  # its queue is full of orders: it is busy

    def _receive(self) -> None:
        while True:
            try:
                received = orders.receive(self._channel)
            except BlockingIOError:
                return
            except OSError:
                received = None
            if received is None:
                self._give_up()
                return
            ended = received[0]
            assert isinstance(ended, orders.Ended)
            future = self._ended.pop(ended.sandbox, None)
            if future is not None and not future.done():
                future.set_result(ended)

    def _give_up(self) -> None:
        if self.lost:
            return
        self.lost = True
        asyncio.get_running_loop().remove_reader(self._channel.fileno())
        self._channel.close()
        for name, future in self._ended.items():
            if not future.done():
                future.set_result(orders.Ended(name, 9, agent_oom_killed=False))
        self._ended.clear()
        asyncio.get_running_loop().run_in_executor(None, self._process.wait)
