"""Nodes as rows: registering, signs of life, and which one takes a new sandbox."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from hub_server.database import Database, now
from hub_server.errors import Malformed, NotFound, Unavailable
from hub_server.sandbox_node.specification import EndKind, Level
from hub_server.sandbox_node.wire import Heartbeat, NodeFacts, Registration, WireEnd
from hub_server.sandboxes import service
from hub_server.sandboxes.tables import ACTIVE, Sandbox, SandboxNode
from hub_server.secrets.vault import Vault, WrongKey

LOST_AFTER = timedelta(seconds=30)
"""A node that was silent for so long, and does not answer when it is asked, is taken for dead."""
_SEEN_RESOLUTION = timedelta(seconds=10)
# A new sandbox is on its node before its row is here, and a heartbeat may be made in between.
_ROW_COMES_WITHIN_S = 30.0
_GRACE = timedelta(seconds=10)
_LOST = WireEnd(kind=EndKind.FAILED, message="its node was lost: it does not answer any more")
_STOPPED = WireEnd(kind=EndKind.DELETED, message="its node was stopped")


@dataclass(frozen=True)
class Reach:
    """What it takes to talk to a node."""

    node_id: str
    name: str
    url: str
    secret: str


@dataclass
class Strays:
    """Sandboxes that nodes report and that have no row, with the moment at which that was first seen."""

    since: dict[str, float] = field(default_factory=dict)

    def known_for_long(self, reported: set[str]) -> list[str]:
        """Return those that had time enough to get a row; what is reported no more is forgotten in time."""
        present = time.monotonic()
        for sandbox_id in reported:
            self.since.setdefault(sandbox_id, present)
        for sandbox_id in [known for known, since in self.since.items() if present - since > 10 * _ROW_COMES_WITHIN_S]:
            del self.since[sandbox_id]
        return [each for each in reported if present - self.since.get(each, present) > _ROW_COMES_WITHIN_S]


@dataclass(frozen=True)
class Told:
    """What follows from a heartbeat."""

    unknown: list[str]  # the node is to end them
    in_doubt: list[str]  # the node is to be asked what became of them


def register(session: Session, vault: Vault, offered: Registration, least: Level) -> SandboxNode:
    """Take a node in; under a name that is known, what was said of it is replaced.

    Raises:
        Malformed: its level is below what this hub asks for, or its address is none.
    """
    _check(offered, least)
    try:
        bytes.fromhex(offered.secret)
    except ValueError:
        raise Malformed("the secret of a sandbox node is hexadecimal") from None
    node = session.scalar(_named(offered.name))
    if node is None:
        node = SandboxNode(name=offered.name, sealed=b"")
        _say(node, offered)
        session.add(node)
        session.flush()
    _say(node, offered)
    node.sealed = vault.seal(node.place, offered.secret)
    node.registered_at = node.last_seen_at = now()
    node.left_at = None
    return node


def node_elsewhere(session: Session, vault: Vault, offered: Registration) -> Reach | None:
    """Return how to talk to a node of the same name that was heard lately, at another address."""
    node = session.scalar(_named(offered.name))
    if node is None or node.left_at is not None or node.url == offered.url.rstrip("/"):
        return None
    return reach_of(vault, node)


def take_heartbeat(
    database: Database, vault: Vault, strays: Strays, node_id: str, beat: Heartbeat, least: Level
) -> Told:
    """Write down what a node says, and return what it is to do and what it is to be asked.

    Raises:
        NotFound: the node is to register again.
        Malformed: its level fell below what this hub asks for.
    """
    with database.read() as session:
        node = session.get(SandboxNode, node_id)
        is_other = node is not None and node.url != beat.node.url.rstrip("/")
        if node is None or is_other or node.left_at is not None or _secret_of(vault, node) is None:
            raise NotFound(f"sandbox node {node_id} not found on this hub; register again")
        rows = select(Sandbox.id, Sandbox.status, Sandbox.updated_at)
        active = session.execute(rows.where(Sandbox.node_id == node_id, Sandbox.status.in_(ACTIVE))).all()
        others = beat.sandboxes.keys() - {row.id for row in active}
        ended = set(session.scalars(select(Sandbox.id).where(Sandbox.id.in_(others)))) if others else set()
    _check(beat.node, least)
    if beat.events or _is_news(node, beat.node):
        with database.write(f"sandbox node {node_id}") as session:
            current = session.get_one(SandboxNode, node_id)
            _say(current, beat.node)
            current.last_seen_at = now()
            for event in beat.events:
                service.note(session, event.facts)
    told = {event.facts.sandbox_id for event in beat.events}
    before = now() - _GRACE
    in_doubt = [
        row.id
        for row in active
        if row.id not in told
        and row.updated_at < before
        and beat.sandboxes.get(row.id) != {"PENDING": "pending"}.get(row.status, "running")
    ]
    return Told([*ended, *strays.known_for_long(others - ended)], in_doubt)


def unregister(session: Session, node_id: str) -> SandboxNode:
    """Let a node go; its sandboxes end with it.

    Raises:
        NotFound: there is none.
    """
    node = session.get(SandboxNode, node_id)
    if node is None or node.left_at is not None:
        raise NotFound(f"sandbox node {node_id} not found on this hub")
    service.end_all_of_node(session, node_id, _STOPPED)
    node.left_at = now()
    return node


def silent_nodes(session: Session) -> list[SandboxNode]:
    """Return the nodes that were silent for too long."""
    silent = SandboxNode.last_seen_at < now() - LOST_AFTER
    return list(session.scalars(select(SandboxNode).where(SandboxNode.left_at.is_(None), silent)))


def hear(session: Session, node_id: str) -> None:
    """Note that a node is there though it was silent."""
    session.get_one(SandboxNode, node_id).last_seen_at = now()


def give_up(session: Session, node_id: str) -> int:
    """Take a silent node for dead and end its sandboxes; return their number. It may register again."""
    node = session.get_one(SandboxNode, node_id)
    if node.left_at is not None or node.last_seen_at >= now() - LOST_AFTER:
        return 0  # it was heard in the meantime
    node.left_at = now()
    return service.end_all_of_node(session, node_id, _LOST)


def present_nodes(session: Session) -> list[SandboxNode]:
    """Return the nodes that are there, by name."""
    there = select(SandboxNode).where(SandboxNode.left_at.is_(None))
    return list(session.scalars(there.order_by(SandboxNode.name)))


def images_of(nodes: Iterable[SandboxNode]) -> set[str]:
    """Return the plain names of all images that some nodes have."""
    return {plain_name(image) for node in nodes for image in node.images}


def live_counts(session: Session) -> dict[str, int]:
    """Return how many sandboxes each node has, by its id."""
    counted = select(Sandbox.node_id, func.count()).where(Sandbox.status.in_(ACTIVE)).group_by(Sandbox.node_id)
    return dict(session.execute(counted).tuples().all())


@dataclass
class Offer:
    """A node that is there, and how many sandboxes it has, as far as this server knows."""

    reach: Reach
    level: Level
    arch: str
    images: frozenset[str]
    capacity: int
    is_draining: bool
    live: int

    def cost(self, image: str) -> tuple[bool, float, str]:
        """Return by what the best node for an image is found: who has it, and of these who is emptiest."""
        return plain_name(image) not in self.images, self.live / max(1, self.capacity), self.reach.node_id


def offers(database: Database, vault: Vault) -> list[Offer]:
    """Return the nodes that are there."""
    with database.read() as session:
        live = live_counts(session)
        return [
            Offer(
                reach,
                Level(node.level),
                node.arch,
                frozenset(map(plain_name, node.images)),
                node.capacity,
                node.is_draining,
                live.get(node.id, 0),
            )
            for node in present_nodes(session)
            if (reach := reach_of(vault, node)) is not None
        ]


def choose(there: Sequence[Offer], image: str, least: Level, arch: str | None = None) -> list[Offer]:
    """Return the nodes that may take a sandbox, the best first.

    Whether an image can be had is for the node to say: its store may have changed since its last sign of life.

    Raises:
        Unavailable: there is no node, or none that takes more.
        Malformed: no node keeps sandboxes as well as is asked, or none is of the architecture.
    """
    if not there:
        raise Unavailable("no sandbox node is registered with this hub; start one with `prime sandbox serve`")
    if arch is not None and all(offer.arch != arch for offer in there):
        raise Malformed(f"no sandbox node of this hub is of the architecture {arch}; there is {there[0].arch}")
    there = [offer for offer in there if arch in (None, offer.arch)]
    good = [offer for offer in there if offer.level >= least]
    if not good:
        offered = ", ".join(f"{offer.reach.name} ({offer.level})" for offer in there)
        raise Malformed(f"no sandbox node of this hub gives the level {least}; there are {offered}")
    taking = [offer for offer in good if not offer.is_draining]
    if not taking:
        raise Unavailable("the sandbox nodes of this hub take no new sandboxes at present")
    return sorted(taking, key=lambda offer: offer.cost(image))


def plain_name(image: str) -> str:
    """Return an image's name without the tag that a name alone means."""
    return image.removesuffix(":latest")


def reach_of(vault: Vault, node: SandboxNode) -> Reach | None:
    """Return how to talk to a node; None when it has to register again first."""
    secret = _secret_of(vault, node)
    return Reach(node.id, node.name, node.url, secret) if secret is not None else None


def _named(name: str) -> Select[SandboxNode]:
    return select(SandboxNode).where(SandboxNode.name == name)


def _secret_of(vault: Vault, node: SandboxNode) -> str | None:
    try:
        return vault.open(node.place, node.sealed)
    except WrongKey:
        return None  # the key of the secrets was lost and replaced


def _check(facts: NodeFacts, least: Level) -> None:
    if facts.level < least:
        raise Malformed(
            f"this hub takes sandbox nodes of the level {least} or better, and {facts.name} gives {facts.level}; "
            "see `prime sandbox doctor` on that machine"
        )
    parts = urlsplit(facts.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Malformed(f"{facts.url!r} is not the address of a sandbox node; it begins with http:// or https://")


def _say(node: SandboxNode, facts: NodeFacts) -> None:
    node.url = facts.url.rstrip("/")
    node.level, node.backend, node.arch, node.version = str(facts.level), facts.backend, facts.arch, facts.version
    node.images, node.capacity, node.is_draining = list(facts.images), facts.capacity, facts.draining


def _is_news(node: SandboxNode, facts: NodeFacts) -> bool:
    """Say whether a heartbeat is worth a write: the moment of the last one need not be exact."""
    if now() - node.last_seen_at > _SEEN_RESOLUTION:
        return True
    said = (node.url, node.level, node.backend, node.images, node.capacity, node.is_draining)
    return said != (
        facts.url.rstrip("/"), str(facts.level), facts.backend, list(facts.images), facts.capacity, facts.draining
    )  # fmt: skip
