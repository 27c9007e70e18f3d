"""Teams: who is in them, and what that lets them see and change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from hub_server.accounts import audit
from hub_server.accounts.service import flush_slug
from hub_server.accounts.tables import Membership, Owner, Team, User
from hub_server.errors import Conflict, Forbidden, NotFound
from prime_cli.hub.models import Role

_RANK = {Role.READER: 0, Role.MEMBER: 1, Role.OWNER: 2}


def belongs_to(user: User, owner_id: InstrumentedAttribute[str]) -> ColumnElement[bool]:
    """Return the condition that a row is the user's own or one of a team that the user is in, with any role."""
    teams = select(Membership.team_id).where(Membership.user_id == user.id)
    return or_(owner_id == user.id, owner_id.in_(teams))


def role_towards(session: Session, user: User, owner_id: str) -> Role | None:
    """Return what `user` is to an owner: its owner when it is the user; the role in the team; None for a stranger."""
    if owner_id == user.id:
        return Role.OWNER
    membership = session.get(Membership, (owner_id, user.id))
    return Role(membership.role) if membership is not None else None


def has_role(session: Session, user: User | None, owner_id: str, least: Role) -> bool:
    """Say whether `user` has at least this role towards an owner."""
    role = role_towards(session, user, owner_id) if user is not None else None
    return role is not None and _RANK[role] >= _RANK[least]


def owner_to_act_for(
    session: Session,
    user: User,
    *,
    slug: str | None = None,
    team_id: str | None = None,
    least: Role = Role.MEMBER,
) -> Owner:
    """Return whom a request acts for: the owner that it names by slug or by the id of a team, else the user.

    Raises:
        NotFound: there is none of this name.
        Forbidden: the user may not act for it.
    """
    if not slug and not team_id:
        return session.get_one(User, user.id)
    named = Owner.id == team_id if team_id else Owner.slug == str(slug).lower()
    owner = session.scalar(select(Owner).where(named))
    if owner is None or (team_id and not isinstance(owner, Team)):
        raise NotFound(f"{'team' if team_id else 'owner or team'} {team_id or slug!r} not found on this hub")
    if not has_role(session, user, owner.id, least):
        role = role_towards(session, user, owner.id)
        if role is not None:
            raise Forbidden(f"you are a {role} of the team {owner.slug!r}; this needs a {least}")
        raise Forbidden(f"you are {user.slug!r} and cannot act as {owner.slug!r}")
    return owner


def teams_of(session: Session, user: User) -> Sequence[Membership]:
    """Return the user's memberships, by the team's slug."""
    mine = select(Membership).join(Membership.team).where(Membership.user_id == user.id)
    return session.scalars(mine.order_by(Team.slug)).all()


def get_team(session: Session, user: User, team_id: str, least: Role) -> Team:
    """Return a team by its id or slug in which `user` has at least this role.

    Raises:
        NotFound: there is none that the user is in: what teams there are is not told to strangers.
        Forbidden: the user is in it with a smaller role.
    """
    team = session.scalar(select(Team).where(or_(Team.id == team_id, Team.slug == team_id.lower())))
    role = role_towards(session, user, team.id) if team is not None else None
    if team is None or role is None:
        raise NotFound(f"team {team_id!r} not found among yours")
    if _RANK[role] < _RANK[least]:
        raise Forbidden(f"you are a {role} of the team {team.slug!r}; this needs an {least}")
    return team


def create_team(session: Session, user: User, *, slug: str, name: str) -> Team:
    """Make a team with `user` as its owner.

    Raises:
        Conflict: the slug is taken, by a user or a team.
    """
    team = Team(slug=slug, name=name or slug)
    session.add(team)
    flush_slug(session, team)
    session.add(Membership(team_id=team.id, user_id=user.id, role=Role.OWNER))
    audit.record(session, user, "team.create", slug, owner_id=team.id)
    session.flush()
    return team


def rename_team(session: Session, user: User, team: Team, *, name: str) -> None:
    """Give a team another name for people to read; its slug stays."""
    team.name = name
    audit.record(session, user, "team.rename", team.slug, owner_id=team.id, name=name)


def members_of(session: Session, team: Team) -> Sequence[Membership]:
    """Return the members of a team, by slug."""
    return session.scalars(
        select(Membership).join(Membership.user).where(Membership.team_id == team.id).order_by(User.slug)
    ).all()


def set_role(session: Session, user: User, team: Team, member_slug: str, role: Role) -> Membership:
    """Take a user into a team, or change their role.

    Raises:
        NotFound: there is no such user.
        Conflict: the team would be left without an owner.
    """
    member = _user_named(session, member_slug)
    membership = session.get(Membership, (team.id, member.id))
    if membership is None:
        membership = Membership(team_id=team.id, user_id=member.id, role=role)
        session.add(membership)
    elif membership.role == Role.OWNER and role != Role.OWNER:
        _check_another_owner(session, team, member)
    membership.role = role
    audit.record(session, user, "team.role", member.slug, owner_id=team.id, role=role)
    session.flush()
    return membership


def remove_member(session: Session, user: User, team: Team, member_slug: str) -> None:
    """Take a user out of a team; everybody may leave by themselves.

    Raises:
        NotFound: there is no such member.
        Forbidden: somebody else is to be removed, and `user` does not own the team.
        Conflict: the team would be left without an owner.
    """
    member = _user_named(session, member_slug)
    membership = session.get(Membership, (team.id, member.id))
    if membership is None:
        raise NotFound(f"{member.slug!r} not found among the members of {team.slug!r}")
    if member.id != user.id and not has_role(session, user, team.id, Role.OWNER):
        raise Forbidden(f"only an owner of {team.slug!r} can remove others from it")
    if membership.role == Role.OWNER:
        _check_another_owner(session, team, member)
    session.delete(membership)
    audit.record(session, user, "team.remove", member.slug, owner_id=team.id)


def membership_row(membership: Membership) -> dict[str, Any]:
    """Return a member as clients read it."""
    user = membership.user
    return {
        "userId": user.id,
        "userName": user.name,
        "userSlug": user.slug,
        "userEmail": user.email,
        "role": membership.role,
        "joinedAt": membership.joined_at.isoformat(),
    }


def team_row(membership: Membership) -> dict[str, Any]:
    """Return a team as clients read it, with the role that the membership gives."""
    team = membership.team
    return {
        "teamId": team.id,
        "name": team.name,
        "slug": team.slug,
        "role": membership.role,
        "createdAt": team.created_at.isoformat(),
    }


def _user_named(session: Session, slug: str) -> User:
    member = session.scalar(select(User).where(or_(User.slug == slug.lower(), User.id == slug)))
    if member is None:
        raise NotFound(f"user {slug!r} not found on this hub")
    return member


def _check_another_owner(session: Session, team: Team, member: User) -> None:
    owners = select(func.count()).select_from(Membership)
    others = session.scalar(
        owners.where(Membership.team_id == team.id, Membership.role == Role.OWNER, Membership.user_id != member.id)
    )
    if not others:
        raise Conflict(
            f"{member.slug!r} is the last owner of the team {team.slug!r}; make somebody else an owner first"
        )
