"""Connections into a sandbox and out of it, as the node has them."""

from __future__ import annotations

from hub_server.sandbox_node.agent.inside import frames
from hub_server.sandbox_node.link import Channel


class Stream:
    """A connection to a port inside, or from a program inside."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._is_over = False

    async def read(self) -> bytes:
        """Return what comes next; nothing at the end."""
        if self._is_over:
            return b""
        frame = await self._channel.receive()
        if frame.kind == frames.DATA:
            return frame.payload
        self._is_over = True
        return b""

    async def write(self, data: bytes) -> None:
        """Send, waiting while the other side has not taken what was sent before.

        Raises:
            ConnectionResetError: the sandbox is gone.
        """
        if self._channel.link.closed.done():
            raise ConnectionResetError("the sandbox ended")
        await self._channel.send_bytes(data)

    async def close_writing(self) -> None:
        """Say that no more will be sent; reading goes on."""
        self._channel.send_end()

    def close(self) -> None:
        """End the connection."""
        self._channel.send(frames.CLOSE)
        self._channel.close()
