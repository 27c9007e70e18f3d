"""Sandboxes as rows: who sees them, making, listing, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import CursorResult, Table, bindparam, delete, func, insert, select, update
from sqlalchemy.orm import Session

from hub_server.accounts.tables import User
from hub_server.accounts.teams import belongs_to, get_team, has_role, owner_to_act_for
from hub_server.database import Base, now, table_of
from hub_server.errors import Malformed, NotFound
from hub_server.sandbox_node.specification import EndKind
from hub_server.sandbox_node.wire import SandboxFacts, WireEnd
from hub_server.sandboxes.bodies import BulkDelete, NewSandbox
from hub_server.sandboxes.tables import ACTIVE, Sandbox, SandboxLabel, SandboxStatus
from prime_cli.hub.models import Role

_SANDBOXES, _LABELS = table_of(Sandbox), table_of(SandboxLabel)
_STATUS = {
    EndKind.OOM_KILLED: SandboxStatus.ERROR,
    EndKind.IMAGE_PULL_FAILED: SandboxStatus.ERROR,
    EndKind.FAILED: SandboxStatus.ERROR,
    EndKind.TIMEOUT: SandboxStatus.TIMEOUT,
}
_MADE_BEFORE = select(_SANDBOXES.c.id).where(
    _SANDBOXES.c.owner_id == bindparam("owner_id"), _SANDBOXES.c.idempotency_key == bindparam("key")
)
_ERROR_TYPES = (EndKind.OOM_KILLED, EndKind.TIMEOUT, EndKind.IMAGE_PULL_FAILED)
DELETED = WireEnd(kind=EndKind.DELETED, message="it was deleted")


@dataclass(frozen=True)
class Listing:
    """What to list, newest first: of a team when `team_id` names one, of all `with_teams`, else the caller's own."""

    team_id: str | None = None
    with_teams: bool = False
    user_id: str | None = None
    status: str | None = None
    labels: Sequence[str] = ()
    active_only: bool = False
    limit: int = 50
    skip: int = 0


def get_sandbox(session: Session, user: User, sandbox_id: str) -> Sandbox:
    """Return the sandbox of this id when it is the user's or of a team that they are in.

    Raises:
        NotFound: there is none.
    """
    seen = select(Sandbox).where(Sandbox.id == sandbox_id, belongs_to(user, Sandbox.owner_id))
    found = session.scalar(seen)
    if found is None:
        raise NotFound(f"sandbox {sandbox_id} not found on this hub")
    return found


def find_sandboxes(session: Session, user: User, sandbox_ids: Sequence[str]) -> dict[str, Sandbox]:
    """Return those of the sandboxes that `user` may see, by id."""
    seen = select(Sandbox).where(Sandbox.id.in_(sandbox_ids), belongs_to(user, Sandbox.owner_id))
    return {found.id: found for found in session.scalars(seen)}


def made_before(session: Session, owner_id: str, idempotency_key: str | None) -> Sandbox | None:
    """Return the sandbox that an earlier request with this key made."""
    if idempotency_key is None:
        return None
    found = session.connection().execute(_MADE_BEFORE, {"owner_id": owner_id, "key": idempotency_key}).scalar()
    return session.get(Sandbox, found) if found is not None else None


def owner_of_new(session: Session, user: User, team_id: str | None) -> str:
    """Return to whom a new sandbox will belong.

    Raises:
        NotFound: there is no such team.
        Forbidden: the user is not a member of it.
    """
    return owner_to_act_for(session, user, team_id=team_id).id if team_id else user.id


def add(
    session: Session, new: NewSandbox, facts: SandboxFacts, *, owner_id: str, user_id: str, node_id: str
) -> Sandbox:
    """Add what a node has made, is making or could not make."""
    assert new.docker_image is not None
    command, egress = new.start_command, new.egress
    created_at = now()
    values = {"egress_generation": 1, "exposures": [], "created_at": created_at, "updated_at": created_at}
    values |= _values_of(facts)
    row = Sandbox(
        id=facts.sandbox_id,
        owner_id=owner_id,
        user_id=user_id,
        node_id=node_id,
        idempotency_key=new.idempotency_key,
        name=new.name,
        image=new.docker_image,
        start_command=command if command is None or isinstance(command, str) else command.model_dump(),
        cpu_cores=new.cpu_cores,
        memory_gb=new.memory_gb,
        disk_size_gb=new.disk_size_gb,
        is_vm=new.vm,
        timeout_minutes=new.timeout_minutes,
        idle_timeout_minutes=new.idle_timeout_minutes,
        environment_vars=new.environment_vars,
        secret_names=sorted(new.secrets or {}),
        advanced_configs=new.advanced_configs,
        allowlist=egress.allowlist if egress is not None else None,
        denylist=egress.denylist if egress is not None else None,
        **values,
    )
    row.labels = [
        SandboxLabel(sandbox_id=row.id, label=label, position=place)
        for place, label in enumerate(dict.fromkeys(new.labels))
    ]
    # Without the session's bookkeeping, which would take longer than all the rest of a creation in the hub.
    session.execute(insert(_SANDBOXES), _columns(_SANDBOXES, row))
    if row.labels:
        session.execute(insert(_LABELS), [_columns(_LABELS, label) for label in row.labels])
    return row


def note(session: Session, facts: SandboxFacts) -> bool:
    """Write down what a node says of a sandbox, and say whether that was news. What has ended stays so."""
    before = (SandboxStatus.PENDING,) if facts.state == "running" else ACTIVE
    if facts.state == "pending":
        return False
    changed = update(Sandbox).where(Sandbox.id == facts.sandbox_id, Sandbox.status.in_(before))
    return _rows(session, changed.values(**_values_of(facts), updated_at=now())) > 0


def end(session: Session, sandbox_ids: Sequence[str], ended: WireEnd) -> int:
    """End those of the sandboxes that have not ended yet, and return their number."""
    changed = update(Sandbox).where(Sandbox.id.in_(sandbox_ids), Sandbox.status.in_(ACTIVE))
    return _rows(session, changed.values(**_end_values(ended, now()), updated_at=now()))


def forget_ended(session: Session, before: datetime) -> int:
    """Delete the rows of sandboxes that ended before a moment, and return their number."""
    ended = select(Sandbox.id).where(Sandbox.status.not_in(ACTIVE), Sandbox.terminated_at < before)
    session.execute(delete(SandboxLabel).where(SandboxLabel.sandbox_id.in_(ended)))
    return _rows(session, delete(Sandbox).where(Sandbox.status.not_in(ACTIVE), Sandbox.terminated_at < before))


def end_all_of_node(session: Session, node_id: str, ended: WireEnd) -> int:
    """End all sandboxes of a node."""
    changed = update(Sandbox).where(Sandbox.node_id == node_id, Sandbox.status.in_(ACTIVE))
    return _rows(session, changed.values(**_end_values(ended, now()), updated_at=now()))


def list_sandboxes(session: Session, user: User, listing: Listing) -> tuple[list[Sandbox], int]:
    """Return one page, newest first, and how many there are in all.

    Raises:
        NotFound: the user is in no such team.
    """
    owner_id = get_team(session, user, listing.team_id, Role.READER).id if listing.team_id else user.id
    conditions = [belongs_to(user, Sandbox.owner_id) if listing.with_teams else Sandbox.owner_id == owner_id]
    if listing.user_id:
        conditions.append(Sandbox.user_id == listing.user_id)
    if listing.status:
        conditions.append(Sandbox.status == listing.status.upper())
    if listing.active_only:
        conditions.append(Sandbox.status.in_(ACTIVE))
    for label in listing.labels:
        conditions.append(Sandbox.id.in_(select(SandboxLabel.sandbox_id).where(SandboxLabel.label == label)))
    total = session.scalar(select(func.count()).select_from(Sandbox).where(*conditions)) or 0
    ordered = select(Sandbox).where(*conditions).order_by(Sandbox.created_at.desc(), Sandbox.id)
    return list(session.scalars(ordered.limit(listing.limit).offset(listing.skip))), total


def to_delete(session: Session, user: User, wanted: BulkDelete) -> tuple[list[Sandbox], dict[str, str]]:
    """Return the sandboxes that a request means, and what is in the way of each of the others, by id.

    Raises:
        Malformed: it names neither sandboxes nor labels.
        NotFound: the user is in no such team.
    """
    if wanted.sandbox_ids:
        found = find_sandboxes(session, user, wanted.sandbox_ids)
        refused = {each: "not found on this hub" for each in wanted.sandbox_ids if each not in found}
        for sandbox in list(found.values()):
            if not has_role(session, user, sandbox.owner_id, Role.MEMBER):
                refused[sandbox.id] = "you may only look at the sandboxes of this team"
                del found[sandbox.id]
        return list(found.values()), refused
    if not wanted.labels:
        raise Malformed("name the sandboxes by sandbox_ids or by labels")
    if wanted.team_id:
        get_team(session, user, wanted.team_id, Role.MEMBER)
    made_by = wanted.user_id or (None if wanted.all_users else user.id)
    listing = Listing(team_id=wanted.team_id, user_id=made_by, labels=wanted.labels, active_only=True, limit=10_000)
    return list_sandboxes(session, user, listing)[0], {}


def _columns(table: Table, row: Base) -> dict[str, Any]:
    return {column.name: getattr(row, column.name) for column in table.columns}


def _values_of(facts: SandboxFacts) -> dict[str, Any]:
    """Return the columns that follow from what a node says."""
    values: dict[str, Any] = {}
    if facts.enforcement is not None:
        values["enforcement"] = facts.enforcement.model_dump(mode="json")
    if facts.started_at is not None:
        values["started_at"] = _moment(facts.started_at)
    if facts.state == "ended":
        ended = facts.end or WireEnd(kind=EndKind.FAILED, message="its node does not say how it ended")
        at = _moment(facts.ended_at) if facts.ended_at is not None else now()
        return values | _end_values(ended, at)
    status = SandboxStatus.RUNNING if facts.state == "running" else SandboxStatus.PENDING
    return values | {"status": status}


def _end_values(ended: WireEnd, at: datetime) -> dict[str, Any]:
    status = _STATUS.get(ended.kind, SandboxStatus.TERMINATED)
    is_error = ended.kind in _STATUS
    return {
        "status": status,
        "termination_reason": ended.message,
        "error_type": str(ended.kind) if ended.kind in _ERROR_TYPES else None,
        "error_message": ended.message if is_error else None,
        "exit_code": ended.exit_code,
        "terminated_at": at,
    }


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def _rows(session: Session, statement: Any) -> int:
    done = session.execute(statement, execution_options={"synchronize_session": False})
    assert isinstance(done, CursorResult)
    return done.rowcount
