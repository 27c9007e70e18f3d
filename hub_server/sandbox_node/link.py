"""The node's side of the framed protocol that it speaks with the agent of a sandbox."""

from __future__ import annotations


class AgentLink:
    """One agent, reached over two pipes."""
