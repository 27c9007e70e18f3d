"""The pages of the registry: the list of environments, one environment, its versions and its evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import FileResponse, RedirectResponse
from sqlalchemy.orm import Session

from hub_server.access import Caller, PathEnvironment, Visitor
from hub_server.accounts.tables import User
from hub_server.attestations.service import of_files
from hub_server.checks.answers import Badge, badge_of
from hub_server.checks.service import latest_checks
from hub_server.evaluations.service import Listing as EvaluationListing
from hub_server.evaluations.service import list_evaluations
from hub_server.evaluations.tables import Evaluation
from hub_server.registry import service, stars
from hub_server.registry.abouts import dependency_warnings
from hub_server.registry.forks import lineage
from hub_server.registry.listing import count_facets, list_environments
from hub_server.registry.tables import Environment, Release, ReleaseAbout
from hub_server.services import HubServices, Services, public_url
from hub_server.web.browsing import PER_PAGE, BrowsingQuery, PageNumber, Pager
from hub_server.web.forms import check_form
from hub_server.web.install_lines import install_lines
from hub_server.web.package_facts import facts_of
from hub_server.web.plots import reward_plot
from hub_server.web.readme import render_readme
from hub_server.web.rendering import PAGES, page
from hub_server.web.shown_checks import shown_check
from prime_cli.hub.models import ProjectStatus

router = APIRouter(include_in_schema=False)

ListedRow = tuple[Environment, Release | None, Badge | None]
VersionRow = tuple[Release, Badge | None]

_VERSIONS_SHOWN = 5
_EVALUATIONS_SHOWN = 8
_VERSIONS_ON_A_PAGE = 100
_EVALUATIONS_ON_A_PAGE = 50
_EVALUATIONS_PLOTTED = 200


@router.get("/static/hub.css")
def stylesheet() -> FileResponse:
    """The one stylesheet, light and dark."""
    return FileResponse(PAGES / "hub.css", media_type="text/css", headers={"Cache-Control": "max-age=3600"})


@router.get("/static/hub.svg")
def icon() -> FileResponse:
    """The mark that browsers show beside the title."""
    return FileResponse(PAGES / "hub.svg", media_type="image/svg+xml", headers={"Cache-Control": "max-age=86400"})


@router.get("/")
def home_page(
    user: Visitor, request: Request, services: HubServices, browsing: BrowsingQuery, number: PageNumber = 1
) -> Response:
    """The environments that the visitor may see, with what narrows them down."""
    listing = browsing.listing(signed_in=user is not None, page=number)
    with services.database.read() as session:
        found, total = list_environments(session, user, listing)
        return page(
            request,
            "home.html",
            browsing=browsing,
            rows=listed_rows(session, found),
            total=total,
            facets=count_facets(session, user, listing.filters),
            pager=Pager(number, total, PER_PAGE, browsing.link),
        )


@router.get("/dashboard/environments/{owner}/{name}")
def environment_page(environment: PathEnvironment, user: Visitor, request: Request, services: HubServices) -> Response:
    """One environment: its README, how to install it, its newest versions and evaluations."""
    with services.database.read() as session:
        environment = session.get_one(Environment, environment.id)
        releases, total_versions = service.newest_releases(session, environment, limit=_VERSIONS_SHOWN)
        latest = service.latest_releases(session, [environment]).get(environment.id)
        evaluations, total = _evaluations(session, user, environment, limit=_EVALUATIONS_PLOTTED)
        return page(
            request,
            "environment.html",
            **_about_version(session, services, request, environment, latest),
            starred=stars.is_starred(session, environment.id, user),
            forked_from=lineage(session, environment, user).get("forked_from"),
            versions=version_rows(session, releases),
            total_versions=total_versions,
            evaluations=evaluations[:_EVALUATIONS_SHOWN],
            total_evaluations=total,
            plot=reward_plot(evaluations),
        )


@router.post("/dashboard/environments/{owner}/{name}/star")
def star_page(
    environment: PathEnvironment,
    user: Caller,
    request: Request,
    services: HubServices,
    form_token: Annotated[str, Form(max_length=200)],
    starred: Annotated[bool, Form()],
) -> Response:
    """Star an environment or take the star back, and show it again."""
    check_form(services, request, form_token)
    with services.database.write() as session:
        (stars.star if starred else stars.unstar)(session, environment.id, user)
    return RedirectResponse(environment_path(environment), status_code=303)


@router.get("/dashboard/environments/{owner}/{name}/versions")
def versions_page(
    environment: PathEnvironment, request: Request, services: HubServices, number: PageNumber = 1
) -> Response:
    """All published versions of an environment, newest first."""
    with services.database.read() as session:
        environment = session.get_one(Environment, environment.id)
        skipped = (number - 1) * _VERSIONS_ON_A_PAGE
        releases, total = service.newest_releases(session, environment, limit=_VERSIONS_ON_A_PAGE, offset=skipped)
        return page(
            request,
            "versions.html",
            environment=environment,
            versions=version_rows(session, releases),
            total_versions=total,
            pager=Pager(number, total, _VERSIONS_ON_A_PAGE),
        )


@router.get("/dashboard/environments/{owner}/{name}/versions/{version}")
def version_page(version: str, environment: PathEnvironment, request: Request, services: HubServices) -> Response:
    """One version: whether it works, its files, what it depends on, and its README."""
    with services.database.read() as session:
        environment = session.get_one(Environment, environment.id)
        release = service.find_release(session, environment, version)
        return page(
            request,
            "version.html",
            **_about_version(session, services, request, environment, release),
            attestations=of_files(session, [file.id for file in release.files]),
        )


@router.get("/dashboard/environments/{owner}/{name}/evaluations")
def evaluations_page(
    environment: PathEnvironment, user: Visitor, request: Request, services: HubServices, number: PageNumber = 1
) -> Response:
    """All evaluations on an environment that the visitor may see, as a plot and as a table."""
    with services.database.read() as session:
        environment = session.get_one(Environment, environment.id)
        skipped = (number - 1) * _EVALUATIONS_ON_A_PAGE
        rows, total = _evaluations(session, user, environment, limit=_EVALUATIONS_ON_A_PAGE, skip=skipped)
        plotted, _ = _evaluations(session, user, environment, limit=_EVALUATIONS_PLOTTED)
        return page(
            request,
            "evaluations.html",
            environment=environment,
            evaluations=rows,
            total_evaluations=total,
            plot=reward_plot(plotted),
            pager=Pager(number, total, _EVALUATIONS_ON_A_PAGE),
        )


def listed_rows(session: Session, environments: Sequence[Environment]) -> list[ListedRow]:
    """Return what a list shows of each environment: itself, its latest version, and the badge of its check."""
    latest = service.latest_releases(session, environments)
    checks = latest_checks(session, [release.id for release in latest.values()])
    rows: list[ListedRow] = []
    for environment in environments:
        release = latest.get(environment.id)
        check = checks.get(release.id) if release is not None else None
        rows.append((environment, release, badge_of(check) if check is not None else None))
    return rows


def version_rows(session: Session, releases: Sequence[Release]) -> list[VersionRow]:
    """Return what a table shows of each version: itself, and the badge of its check where it has one."""
    checks = latest_checks(session, [release.id for release in releases])
    return [(release, badge_of(checks[release.id]) if release.id in checks else None) for release in releases]


def environment_path(environment: Environment) -> str:
    """Return the address of an environment's page."""
    return f"/dashboard/environments/{environment.owner.slug}/{quote(environment.name, safe='')}"


def _evaluations(
    session: Session, user: User | None, environment: Environment, *, limit: int, skip: int = 0
) -> tuple[Sequence[Evaluation], int]:
    listing = EvaluationListing(environment_id=environment.id, limit=limit, skip=skip)
    return list_evaluations(session, user, listing)


def _about_version(
    session: Session, services: Services, request: Request, environment: Environment, release: Release | None
) -> dict[str, Any]:
    """Return what both the page of an environment and that of a version show of one version."""
    facts = facts_of(services.blobs, release)
    about = session.get(ReleaseAbout, release.id) if release is not None else None
    if about is not None:
        facts = replace(facts, readme=about.readme, readme_type=about.readme_type)
    is_offered = environment.project_status != ProjectStatus.QUARANTINED
    files_path = f"{environment_path(environment)}/versions/{release.semantic_version}/files" if release else None
    check = latest_checks(session, [release.id]).get(release.id) if release is not None else None
    return {
        "environment": environment,
        "release": release,
        "check": shown_check(check),
        "facts": facts,
        "files_path": files_path,
        "readme": render_readme(facts.readme, facts.readme_type, files_path) if facts.readme.strip() else None,
        "dependency_warnings": dependency_warnings(about.url_dependencies) if about is not None else [],
        "is_offered": is_offered,
        "install": install_lines(environment, release, public_url(request)) if release and is_offered else [],
    }
