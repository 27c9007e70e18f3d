"""Who may call each route, in one table, and the one place that enforces it.

A route that is not in the table keeps the app from being built.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from sqlalchemy import select
from starlette.routing import BaseRoute

from hub_server.accounts.keys import AREAS, KEY_PREFIX, READ, WRITE, allows, is_in_use, user_of_key
from hub_server.accounts.service import user_of_browser
from hub_server.accounts.tables import ApiKey, Owner, Team, User
from hub_server.accounts.teams import get_team, has_role
from hub_server.errors import Forbidden, NotAuthenticated
from hub_server.evaluations.service import get_evaluation
from hub_server.evaluations.tables import Evaluation
from hub_server.registry.service import find_environment, get_environment
from hub_server.registry.tables import Environment
from hub_server.sandboxes.beside import NODE_TOKEN_PURPOSE
from hub_server.sandboxes.service import get_sandbox
from hub_server.sandboxes.tables import Sandbox
from hub_server.secrets.service import get_global
from hub_server.secrets.tables import Secret
from hub_server.services import HubServices, Services
from hub_server.web.forms import SESSION_COOKIE
from prime_cli.hub.models import Role

INDEX_TOKEN_PURPOSE = "index"  # noqa: S105  the name of a purpose, not a secret


class Right(StrEnum):
    """What a caller needs for a route."""

    ANYONE = "anyone; a key is not looked at"
    VISITOR = "anyone; a key, when sent, must be good, and shows more"
    TOKEN = "the bearer of a token that this hub made for just this"  # noqa: S105  words, not a secret
    USER = "somebody with an API key"
    ADMIN = "an administrator"
    MONITOR = "an administrator, or whoever holds the token for metrics"
    READER = "whoever may see the environment in the path; for others it does not exist"
    READING_USER = "somebody with an API key who may see the environment in the path; for others it does not exist"
    WRITER = "who may publish in the environment in the path: its owner, or a member of the team that owns it"
    OWNER = "the owner of the environment in the path, or an owner of the team that owns it"
    EVALUATION_READER = "whoever may see the evaluation in the path; for others it does not exist"
    EVALUATION_OWNER = "whoever owns the evaluation in the path, or a member of the team that owns it"
    SECRET_KEEPER = "whose secret the path names, or a member of that team; for others it does not exist"  # noqa: S105  words, not a secret
    SANDBOX_READER = "whose sandbox the path names, or who is in that team; for others it does not exist"
    SANDBOX_KEEPER = "whose sandbox the path names, or a member of that team; for others it does not exist"
    NODE = "an administrator, or the sandbox node that this hub started beside itself"
    TEAM_READER = "whoever is in the team in the path; for others it does not exist"
    TEAM_OWNER = "an owner of the team in the path"
    UPLOADER = "the owner in the path or a member of that team, by an API key, which may be the password"
    INDEX = "anyone; an API key or an index token as the password shows private environments"
    PAGE = "anyone, in a browser; whoever is signed in sees more"
    SIGNED_IN = "somebody who is signed in in this browser; others are sent to sign in"
    PAGE_READER = "whoever may see the environment in the path, as who is signed in in this browser"
    PAGE_READING_USER = "somebody who is signed in and may see the environment in the path"
    PAGE_EVALUATION_READER = "whoever may see the evaluation in the path, as who is signed in in this browser"
    PAGE_SANDBOX_READER = "whoever may see the sandbox in the path, as who is signed in in this browser"
    PAGE_TEAM_READER = "somebody who is signed in and in the team in the path"
    PAGE_TEAM_OWNER = "somebody who is signed in and owns the team in the path"


RIGHTS: dict[str, Right] = {
    # web and operation
    "healthz": Right.ANYONE,
    "readyz": Right.ANYONE,
    "metrics": Right.MONITOR,
    "stylesheet": Right.ANYONE,
    "icon": Right.ANYONE,
    "home_page": Right.PAGE,
    "environment_page": Right.PAGE_READER,
    "versions_page": Right.PAGE_READER,
    "version_page": Right.PAGE_READER,
    "folder_page": Right.PAGE_READER,
    "file_page": Right.PAGE_READER,
    "evaluations_page": Right.PAGE_READER,
    "owner_page": Right.PAGE,
    "evaluation_page": Right.PAGE_EVALUATION_READER,
    "sample_page": Right.PAGE_EVALUATION_READER,
    "sandboxes_page": Right.SIGNED_IN,
    "sandbox_page": Right.PAGE_SANDBOX_READER,
    "star_page": Right.PAGE_READING_USER,
    "sign_in_page": Right.PAGE,
    "sign_in": Right.PAGE,
    "sign_out": Right.PAGE,
    "challenge_page": Right.PAGE,
    "answer_challenge": Right.PAGE,
    "settings_page": Right.SIGNED_IN,
    "keys_page": Right.SIGNED_IN,
    "create_key_page": Right.SIGNED_IN,
    "revoke_key_page": Right.SIGNED_IN,
    "teams_page": Right.SIGNED_IN,
    "create_team_page": Right.SIGNED_IN,
    "team_page": Right.PAGE_TEAM_READER,
    "set_role_page": Right.PAGE_TEAM_OWNER,
    "remove_member_page": Right.PAGE_TEAM_READER,
    "audit_page": Right.SIGNED_IN,
    # accounts
    "generate_challenge": Right.ANYONE,
    "challenge_status": Right.TOKEN,
    "approve_challenge": Right.USER,
    "whoami": Right.USER,
    "change_slug": Right.USER,
    "add_user": Right.ADMIN,
    "send_feedback": Right.USER,
    "list_audit_events": Right.USER,
    "list_keys": Right.USER,
    "create_key": Right.USER,
    "revoke_key": Right.USER,
    "list_teams": Right.USER,
    "create_team": Right.USER,
    "team_details": Right.TEAM_READER,
    "rename_team": Right.TEAM_OWNER,
    "list_members": Right.TEAM_READER,
    "set_role": Right.TEAM_OWNER,
    "remove_member": Right.TEAM_READER,
    "list_team_audit_events": Right.TEAM_OWNER,
    # registry
    "list_environments": Right.VISITOR,
    "environment_facets": Right.VISITOR,
    "lookup_environment": Right.VISITOR,
    "resolve_environment": Right.USER,
    "environment_status": Right.READER,
    "version_details": Right.READER,
    "download_package": Right.READER,
    "inspect_source": Right.READER,
    "list_versions": Right.READER,
    "star_environment": Right.READING_USER,
    "unstar_environment": Right.READING_USER,
    "fork_environment": Right.READING_USER,
    "mark_environment": Right.OWNER,
    "quarantine_environment": Right.ADMIN,
    "release_environment": Right.ADMIN,
    "delete_environment": Right.OWNER,
    "delete_version": Right.OWNER,
    "yank_version": Right.WRITER,
    "unyank_version": Right.WRITER,
    "announce_wheel": Right.WRITER,
    "finalize_wheel": Right.WRITER,
    "announce_version": Right.WRITER,
    "finalize_version": Right.WRITER,
    "upload": Right.TOKEN,
    # checks
    "list_actions": Right.READER,
    "action_logs": Right.READER,
    "retry_action": Right.WRITER,
    "badge": Right.READER,
    # evaluations
    "begin_evaluation": Right.USER,
    "list_evaluations": Right.VISITOR,
    "evaluation_details": Right.EVALUATION_READER,
    "list_samples": Right.EVALUATION_READER,
    "change_evaluation": Right.EVALUATION_OWNER,
    "add_samples": Right.EVALUATION_OWNER,
    "finalize_evaluation": Right.EVALUATION_OWNER,
    # secrets
    "list_secrets": Right.USER,
    "add_secret": Right.USER,
    "secret_details": Right.SECRET_KEEPER,
    "change_secret": Right.SECRET_KEEPER,
    "delete_secret": Right.SECRET_KEEPER,
    "list_environment_secrets": Right.WRITER,
    "add_environment_secret": Right.WRITER,
    "change_environment_secret": Right.WRITER,
    "delete_environment_secret": Right.WRITER,
    "link_secret": Right.WRITER,
    "unlink_secret": Right.WRITER,
    "list_variables": Right.WRITER,
    "add_variable": Right.WRITER,
    "change_variable": Right.WRITER,
    "delete_variable": Right.WRITER,
    # sandboxes
    "create_sandbox": Right.USER,
    "list_sandboxes": Right.USER,
    "delete_sandboxes": Right.USER,
    "sandbox_statuses": Right.USER,
    "background_job_statuses": Right.USER,
    "list_all_exposures": Right.USER,
    "sandbox_details": Right.SANDBOX_READER,
    "sandbox_logs": Right.SANDBOX_READER,
    "sandbox_error_context": Right.SANDBOX_READER,
    "egress_policy": Right.SANDBOX_READER,
    "list_exposures": Right.SANDBOX_READER,
    "delete_sandbox": Right.SANDBOX_KEEPER,
    "sandbox_auth": Right.SANDBOX_KEEPER,
    "set_egress_policy": Right.SANDBOX_KEEPER,
    "expose_port": Right.SANDBOX_KEEPER,
    "unexpose_port": Right.SANDBOX_KEEPER,
    "list_images": Right.USER,
    "check_image": Right.USER,
    "ssh_session": Right.ANYONE,
    "not_on_this_server": Right.ANYONE,
    "list_nodes": Right.ADMIN,
    "register_node": Right.NODE,
    "node_heartbeat": Right.NODE,
    "unregister_node": Right.NODE,
    # traces: private to the caller, or to the team that X-Prime-Team-ID names
    "upload_traces": Right.USER,
    "list_traces": Right.USER,
    "delete_run": Right.USER,
    "trace_details": Right.USER,
    "delete_trace": Right.USER,
    "trace_nodes": Right.USER,
    "trace_calls": Right.USER,
    "list_episodes": Right.USER,
    "episode_details": Right.USER,
    "episode_traces": Right.USER,
    "list_runs": Right.USER,
    "run_details": Right.USER,
    "run_steps": Right.USER,
    "search_run": Right.USER,
    # the index for pip and uv
    "index_projects": Right.INDEX,
    "index_project": Right.INDEX,
    "index_file": Right.INDEX,
    "hub_projects": Right.ANYONE,
    "hub_project": Right.ANYONE,
    "file_provenance": Right.INDEX,
    "legacy_upload": Right.UPLOADER,
}
_NEEDS_A_USER = (
    Right.USER, Right.ADMIN, Right.MONITOR, Right.READING_USER, Right.WRITER, Right.OWNER, Right.EVALUATION_OWNER,
    Right.TEAM_READER, Right.TEAM_OWNER, Right.SECRET_KEEPER, Right.SANDBOX_READER, Right.SANDBOX_KEEPER, Right.NODE,
    Right.UPLOADER,
)  # fmt: skip
_SIGNED_IN = (
    Right.SIGNED_IN, Right.PAGE_READING_USER, Right.PAGE_SANDBOX_READER, Right.PAGE_TEAM_READER, Right.PAGE_TEAM_OWNER,
)  # fmt: skip
IN_A_BROWSER = (Right.PAGE, Right.PAGE_READER, Right.PAGE_EVALUATION_READER, *_SIGNED_IN)
_ROLE_IN_ENVIRONMENT = {
    Right.READER: None, Right.READING_USER: None, Right.PAGE_READER: None, Right.PAGE_READING_USER: None,
    Right.WRITER: Role.MEMBER, Right.OWNER: Role.OWNER,
}  # fmt: skip
_ROLE_IN_SANDBOX = {
    Right.SANDBOX_READER: Role.READER, Right.PAGE_SANDBOX_READER: Role.READER, Right.SANDBOX_KEEPER: Role.MEMBER,
}  # fmt: skip
_ROLE_IN_TEAM = {
    Right.TEAM_READER: Role.READER, Right.PAGE_TEAM_READER: Role.READER, Right.TEAM_OWNER: Role.OWNER,
    Right.PAGE_TEAM_OWNER: Role.OWNER,
}  # fmt: skip
# Which area of an API key's scopes a route is in, by the tag of its router. Reading is GET and HEAD, but for these.
AREA_OF_TAG = {
    "operation": "account",
    "accounts": "account",
    "registry": "environments",
    "checks": "environments",
    "index": "environments",
    "evaluations": "evaluations",
    "traces": "evaluations",
    "secrets": "secrets",
    "sandboxes": "sandboxes",
}
_POSTS_THAT_READ = ("lookup_environment", "sandbox_statuses", "background_job_statuses", "check_image")
assert set(AREA_OF_TAG.values()) <= set(AREAS)


async def enforce(request: Request, services: HubServices) -> None:
    """Refuse the request unless its caller has the right that the table asks for; runs before every route.

    Leaves `request.state.user` and, for routes about one environment, evaluation, sandbox, team or owner,
    `request.state.environment`, `request.state.evaluation`, and so on.

    Raises:
        NotAuthenticated, Forbidden, NotFound: what is missing.
        TooManyRequests: the caller comes too often.
    """
    right = RIGHTS[request.scope["route"].name]
    is_nobody = right in (Right.VISITOR, Right.INDEX) and "authorization" not in request.headers
    is_own_node = right is Right.NODE and _is_own_node(request, services)
    if is_nobody or is_own_node or right in (Right.ANYONE, Right.TOKEN):
        _enforce(request, services, right)  # asks no database, and a visit to a thread would cost more than it does
    else:
        await run_in_threadpool(_enforce, request, services, right)


def _enforce(request: Request, services: Services, right: Right) -> None:
    route = request.scope["route"]
    request.state.user = user = None
    if right is Right.MONITOR and _is_monitor(request, services):
        return
    if right is Right.NODE and _is_own_node(request, services):
        return
    if right not in (Right.ANYONE, Right.TOKEN):
        user = _caller(request, services, right)
        if user is None and right in _NEEDS_A_USER:
            raise NotAuthenticated("this needs an API key; run `prime login`")
        if user is None and right in _SIGNED_IN:
            raise NotAuthenticated("sign in first")
        if user is not None and user.api_key is not None:
            _check_scope(route, request.method, user.api_key)
    request.state.user = user
    services.limiter.check(route.name, user, request.client.host if request.client else "")
    if right in (Right.ADMIN, Right.MONITOR, Right.NODE) and not (user and user.is_admin):
        raise Forbidden("this needs an administrator of the hub")
    if right is Right.UPLOADER and user is not None:
        request.state.owner = _owner_to_upload_for(services, user, request.path_params["owner"])
    if right in _ROLE_IN_ENVIRONMENT:
        request.state.environment = _environment_in_path(request, services, user, _ROLE_IN_ENVIRONMENT[right])
    if right in (Right.EVALUATION_READER, Right.EVALUATION_OWNER, Right.PAGE_EVALUATION_READER):
        with services.database.read() as session:
            evaluation = get_evaluation(session, user, request.path_params["evaluation_id"])
            if right is Right.EVALUATION_OWNER and not has_role(session, user, evaluation.owner_id, Role.MEMBER):
                raise Forbidden(f"evaluation {evaluation.id} belongs to {evaluation.owner.slug!r}")
        request.state.evaluation = evaluation
    if right is Right.SECRET_KEEPER and user is not None:
        with services.database.read() as session:
            request.state.secret = get_global(session, user, request.path_params["secret_id"])
    if right in _ROLE_IN_SANDBOX and user is not None:
        with services.database.read() as session:
            sandbox = get_sandbox(session, user, request.path_params["sandbox_id"])
            if not has_role(session, user, sandbox.owner_id, _ROLE_IN_SANDBOX[right]):
                raise Forbidden("you may only look at the sandboxes of this team")
        request.state.sandbox = sandbox
    if right in _ROLE_IN_TEAM and user is not None:
        with services.database.read() as session:
            request.state.team = get_team(session, user, request.path_params["team_id"], _ROLE_IN_TEAM[right])


def check_every_route_is_listed(listed: Iterable[BaseRoute]) -> None:
    """Assert that the table and the routes name the same things."""
    routes = list(listed)
    names = {route.name for route in routes if isinstance(route, APIRoute)}
    assert names == RIGHTS.keys(), f"routes and their rights differ: {names ^ RIGHTS.keys()}"
    for route in routes:
        if isinstance(route, APIRoute) and RIGHTS[route.name] not in (Right.ANYONE, Right.TOKEN, *IN_A_BROWSER):
            assert _area(route) in AREAS, f"the route {route.name} is in no area of scopes"


def _area(route: APIRoute) -> str:
    return next((AREA_OF_TAG[str(tag)] for tag in route.tags if tag in AREA_OF_TAG), "")


def _check_scope(route: APIRoute, method: str, key: ApiKey) -> None:
    access = READ if method in ("GET", "HEAD") or route.name in _POSTS_THAT_READ else WRITE
    area = _area(route)
    if not allows(key, area, access):
        raise Forbidden(f"this API key ({key.prefix}…) may not {access} {area}; use one with the scope {area}:{access}")


def _owner_to_upload_for(services: Services, user: User, slug: str) -> Owner:
    if user.slug == slug.lower():
        return user
    with services.database.read() as session:
        owner = session.scalar(select(Owner).where(Owner.slug == slug.lower()))
        if owner is None or not has_role(session, user, owner.id, Role.MEMBER):
            raise Forbidden(f"you are {user.slug!r} and cannot publish as {slug!r}")
        return owner


async def _optional_user(request: Request) -> User | None:
    user = request.state.user
    assert user is None or isinstance(user, User)
    return user


async def _known_user(request: Request) -> User:
    user = request.state.user
    assert isinstance(user, User)
    return user


async def _environment(request: Request) -> Environment:
    environment = request.state.environment
    assert isinstance(environment, Environment)
    return environment


async def _evaluation(request: Request) -> Evaluation:
    evaluation = request.state.evaluation
    assert isinstance(evaluation, Evaluation)
    return evaluation


async def _sandbox(request: Request) -> Sandbox:
    sandbox = request.state.sandbox
    assert isinstance(sandbox, Sandbox)
    return sandbox


async def _secret(request: Request) -> Secret:
    secret = request.state.secret
    assert isinstance(secret, Secret)
    return secret


async def _team(request: Request) -> Team:
    team = request.state.team
    assert isinstance(team, Team)
    return team


async def _owner(request: Request) -> Owner:
    owner = request.state.owner
    assert isinstance(owner, Owner)
    return owner


Visitor = Annotated[User | None, Depends(_optional_user)]
Caller = Annotated[User, Depends(_known_user)]
PathEnvironment = Annotated[Environment, Depends(_environment)]
PathEvaluation = Annotated[Evaluation, Depends(_evaluation)]
PathSandbox = Annotated[Sandbox, Depends(_sandbox)]
PathSecret = Annotated[Secret, Depends(_secret)]
PathOwner = Annotated[Owner, Depends(_owner)]
PathTeam = Annotated[Team, Depends(_team)]


def bearer_token(request: Request) -> str | None:
    """Return the token of an `Authorization: Bearer` header, None without one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _is_monitor(request: Request, services: Services) -> bool:
    expected, sent = services.settings.metrics_token, bearer_token(request)
    return expected is not None and sent is not None and hmac.compare_digest(sent.encode(), expected.encode())


def _is_own_node(request: Request, services: Services) -> bool:
    token = bearer_token(request)
    return token is not None and services.signer.open(NODE_TOKEN_PURPOSE, token) is not None


def _caller(request: Request, services: Services, right: Right) -> User | None:
    if right in (Right.INDEX, Right.UPLOADER):
        return _index_caller(request, services, takes_tokens=right is Right.INDEX)
    if right in IN_A_BROWSER:
        with services.database.read() as session:
            return user_of_browser(session, request.cookies.get(SESSION_COOKIE))
    return _api_caller(request, services)


def _api_caller(request: Request, services: Services) -> User | None:
    token = bearer_token(request)
    if token is None:
        return None
    user = user_of_key(services.database, token)
    if user is None:
        raise NotAuthenticated("this API key is wrong, expired or was revoked")
    return user


def _index_caller(request: Request, services: Services, *, takes_tokens: bool) -> User | None:
    """Return who asks the index: installers send what stands in its URL as basic authentication.

    Index tokens are there to read with; what publishes takes API keys only.
    """
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return _api_caller(request, services)
    try:
        _, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise NotAuthenticated("the Authorization header is not basic authentication") from None
    user = None
    if password.startswith(KEY_PREFIX):
        user = user_of_key(services.database, password)
    elif takes_tokens and (payload := services.signer.open(INDEX_TOKEN_PURPOSE, password)) is not None:
        with services.database.read() as session:
            key = session.get(ApiKey, payload.get("key", ""))
            # A token ends with the key that asked for it.
            user = key.user if key is not None and is_in_use(key) else None
    if user is None:
        if not takes_tokens:
            raise NotAuthenticated("the password must be an API key that is in use; the user name does not matter")
        raise NotAuthenticated("this index token expired or is wrong; ask for the environment's details again")
    return user


def _environment_in_path(request: Request, services: Services, user: User | None, least: Role | None) -> Environment:
    path = request.path_params
    with services.database.read() as session:
        if "environment_id" in path:
            environment = get_environment(session, user, path["environment_id"])
        else:
            environment = find_environment(session, user, path["owner"], path["name"])
        if least is not None and not has_role(session, user, environment.owner_id, least):
            owner = environment.owner.slug
            if isinstance(environment.owner, Team):
                raise Forbidden(
                    f"{owner}/{environment.name} belongs to the team {owner!r}; this needs a role of {least}"
                )
            raise Forbidden(f"{owner}/{environment.name} belongs to {owner!r}")
        return environment
