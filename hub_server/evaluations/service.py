"""Evaluations: who sees them, beginning, changing, completing and listing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session

from hub_server.accounts.tables import Owner, User
from hub_server.accounts.teams import belongs_to, get_team, owner_to_act_for
from hub_server.database import now
from hub_server.errors import Conflict, NotFound
from hub_server.evaluations.tables import EvaluatedEnvironment, Evaluation
from hub_server.registry.service import get_environment, visible_to
from hub_server.registry.tables import Environment
from prime_cli.hub.models import EvaluationChange, EvaluationEnd, EvaluationStatus, NewEvaluation, Role

_ENDED_EARLY = (EvaluationStatus.FAILED, EvaluationStatus.TIMEOUT, EvaluationStatus.CANCELLED)
_FIELDS = (
    "name", "model_name", "dataset", "framework", "task_type", "description", "metrics", "is_public", "error_message"
)  # fmt: skip


@dataclass(frozen=True)
class Listing:
    """What to list, newest first. `environment_name` is `name` or `owner/name`."""

    environment_name: str | None = None
    environment_id: str | None = None
    suite_id: str | None = None
    team_id: str | None = None
    mine_only: bool = False
    limit: int = 50
    skip: int = 0


def may_see(user: User | None) -> ColumnElement[bool]:
    """Return the condition on Evaluation: public, or the user's own or their teams'."""
    public = Evaluation.is_public.is_(True)
    return public if user is None else or_(public, belongs_to(user, Evaluation.owner_id))


def get_evaluation(session: Session, user: User | None, evaluation_id: str) -> Evaluation:
    """Return the evaluation of this id that `user` may see.

    Raises:
        NotFound: there is none.
    """
    found = session.scalar(select(Evaluation).where(Evaluation.id == evaluation_id, may_see(user)))
    if found is None:
        raise NotFound(f"evaluation {evaluation_id} not found on this hub")
    return found


def begin(session: Session, user: User, new: NewEvaluation) -> Evaluation:
    """Begin an evaluation.

    Raises:
        NotFound: there is no such environment that the user may see, or no such team.
        Forbidden: the user may only read in that team.
    """
    owner = owner_to_act_for(session, user, team_id=new.team_id)
    evaluation = Evaluation(
        owner_id=owner.id,
        name=new.name,
        status=EvaluationStatus.PENDING,
        is_public=bool(new.is_public),
        suite_id=new.suite_id,
        run_id=new.run_id,
        model_name=new.model_name,
        dataset=new.dataset,
        framework=new.framework,
        task_type=new.task_type,
        description=new.description,
        tags=new.tags or [],
        details=new.metadata or {},
        metrics=new.metrics or {},
    )
    for position, reference in enumerate(new.environments):
        environment = get_environment(session, user, reference.id)
        evaluation.environments.append(
            EvaluatedEnvironment(position=position, environment_id=environment.id, version_id=reference.version_id)
        )
    session.add(evaluation)
    session.flush()
    session.refresh(evaluation)
    return evaluation


def change(session: Session, evaluation_id: str, changes: EvaluationChange) -> Evaluation:
    """Change what is named. An empty list of tags changes nothing: the published client sends one each time.

    Raises:
        Conflict: it is to end, and has ended in another way.
    """
    evaluation = session.get_one(Evaluation, evaluation_id)
    if changes.status is not None and changes.status != evaluation.status:
        if evaluation.status in (*_ENDED_EARLY, EvaluationStatus.COMPLETED):
            raise Conflict(f"evaluation {evaluation_id} is already closed: {evaluation.status}")
        evaluation.status, evaluation.finalized_at = changes.status, now()
    for name in _FIELDS:
        value = getattr(changes, name)
        if value is not None:
            setattr(evaluation, name, value)
    evaluation.details = changes.metadata if changes.metadata is not None else evaluation.details
    evaluation.tags = changes.tags or evaluation.tags
    evaluation.updated_at = now()
    return evaluation


def complete(session: Session, evaluation_id: str, end: EvaluationEnd) -> Evaluation:
    """Complete an evaluation; repeating it brings its metrics up to date.

    Raises:
        Conflict: it failed, timed out or was cancelled before.
    """
    evaluation = session.get_one(Evaluation, evaluation_id)
    if evaluation.status in _ENDED_EARLY:
        raise Conflict(f"evaluation {evaluation_id} is already closed: {evaluation.status}")
    if evaluation.status != EvaluationStatus.COMPLETED:
        evaluation.status, evaluation.finalized_at = EvaluationStatus.COMPLETED, now()
    if end.metrics is not None:
        evaluation.metrics = end.metrics
    evaluation.updated_at = now()
    return evaluation


def list_evaluations(session: Session, user: User | None, listing: Listing) -> tuple[list[Evaluation], int]:
    """Return one page of what `user` may see, newest first, and how many there are in all.

    Raises:
        NotFound: the user is in no such team.
    """
    conditions = [may_see(user)]
    if listing.team_id:
        conditions.append(Evaluation.owner_id == _team_id(session, user, listing.team_id))
    elif listing.mine_only and user is not None:
        conditions.append(Evaluation.owner_id == user.id)
    if listing.suite_id:
        conditions.append(Evaluation.suite_id == listing.suite_id)
    if listing.environment_id:
        on_it = EvaluatedEnvironment.environment_id == listing.environment_id
        conditions.append(Evaluation.id.in_(select(EvaluatedEnvironment.evaluation_id).where(on_it)))
    if listing.environment_name:
        conditions.append(Evaluation.id.in_(_on_environment(user, listing.environment_name)))
    total = session.scalar(select(func.count()).select_from(Evaluation).where(*conditions)) or 0
    ordered = select(Evaluation).where(*conditions).order_by(Evaluation.created_at.desc(), Evaluation.id)
    return list(session.scalars(ordered.limit(listing.limit).offset(listing.skip))), total


def environments_of(
    session: Session, user: User | None, evaluations: Sequence[Evaluation]
) -> Mapping[str, Environment]:
    """Return the environments of these evaluations that `user` may see, by id.

    A public evaluation of a private environment does not tell others what that is called.
    """
    ids = {reference.environment_id for evaluation in evaluations for reference in evaluation.environments}
    found = session.scalars(select(Environment).where(Environment.id.in_(ids), visible_to(user)))
    return {environment.id: environment for environment in found}


def _on_environment(user: User | None, name: str) -> Select[str]:
    owner, _, plain = name.rpartition("/")
    matching = (
        select(EvaluatedEnvironment.evaluation_id)
        .join(Environment, Environment.id == EvaluatedEnvironment.environment_id)
        .join(Environment.owner)
        .where(Environment.normalized_name == canonicalize_name(plain), visible_to(user))
    )
    return matching.where(Owner.slug == owner.lower()) if owner else matching


def _team_id(session: Session, user: User | None, team_id: str) -> str:
    if user is None:
        raise NotFound(f"team {team_id!r} not found")
    return get_team(session, user, team_id, Role.READER).id
