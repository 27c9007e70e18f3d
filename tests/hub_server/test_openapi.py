"""The OpenAPI document against a running hub: generated requests, right and wrong, and what is answered to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from hub_server.app import all_routers, routes_of
from hub_server.openapi import document
from tests.fake_sandbox_node import create, fake_node
from tests.running_hub import Push, RunningHub, answer, start_hub

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
EXAMPLES = 8
# These end what the other requests are about, so they never get its real name.
FINAL = (
    "delete_environment",
    "delete_version",
    "revoke_key",
    "change_slug",
    "delete_secret",
    "quarantine_environment",
    "unregister_node",
    "delete_sandbox",
)


ROUTES = [route for route in routes_of(all_routers()) if isinstance(route, APIRoute)]
DOCUMENT = document(FastAPI(title="prime hub"), ROUTES)
_FOUND = (found.ok() for found in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations())
OPERATIONS = sorted(_FOUND, key=lambda operation: operation.label)


@dataclass(frozen=True)
class Stage:
    """A hub, the real values of path parameters, and the keys of who may ask."""

    hub: RunningHub
    parts: dict[str, str]
    keys: list[str | None]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A hub with a team, an environment, an evaluation, a secret and a sandbox."""
    hub = start_hub(tmp_path_factory.mktemp("openapi") / "data", "--no-rate-limits")
    key, nodes = hub.key_of("the-owner"), ExitStack()
    with hub.client(key) as client:
        team = answer(client.post("/teams", json={"slug": "the-team"}))["data"]["teamId"]
        push = Push(client, "target", "0.1.0", owner="the-team")
        assert push.run().is_success
        evaluation = answer(client.post("/evaluations/", json={"name": "e", "team_id": team}))["evaluation_id"]
        secret = answer(client.post("/secrets", json={"name": "TOKEN", "value": "x"}))["data"]["id"]
        details = answer(client.get("/environmentshub/the-team/target/@latest"))["data"]
        node = nodes.enter_context(fake_node())
        node.register(hub)
        sandbox = create(client, team_id=team)["id"]
    parts = {
        "owner": "the-team", "name": "target", "version": "latest", "environment_id": push.environment_id,
        "project": "target", "filename": push.filename, "sha256": details["wheel_sha256"], "team_id": team,
        "evaluation_id": evaluation, "secret_id": secret, "global_id": secret, "user_slug": "the-owner",
        "sandbox_id": sandbox, "node_id": node.node_id,
    }  # fmt: skip
    # The owner more often than others: they get furthest.
    with nodes:
        yield Stage(hub, parts, [key, key, key, hub.admin_key, hub.key_of("a-stranger"), None])
    hub.end()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label.replace("/", "."))
def test_answers_are_as_the_document_says(stage: Stage, operation: Any) -> None:
    name = operation.definition.raw["operationId"]
    modes = [mode for mode in MODES if mode is schemathesis.GenerationMode.POSITIVE or _can_be_wrong(operation)]

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(data=st.data())
    def ask(data: st.DataObject) -> None:
        mode = data.draw(st.sampled_from(modes))
        case = data.draw(operation.as_strategy(generation_mode=mode))
        if name not in FINAL and data.draw(st.integers(0, 3)):
            case.path_parameters = {
                key: stage.parts.get(key, value) for key, value in (case.path_parameters or {}).items()
            }
        key = data.draw(st.sampled_from(stage.keys))
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        case.headers = {
            key: value for key, value in (case.headers or {}).items() if key.lower() not in ("authorization", "cookie")
        }
        response = case.call(base_url=stage.hub.url, headers=headers)
        case.validate_response(response, checks=CHECKS)

    ask()


def _can_be_wrong(operation: Any) -> bool:
    """Say whether there is anything to get wrong but texts in the path, of which all are allowed."""
    raw = operation.definition.raw
    return "requestBody" in raw or any(parameter["in"] == "query" for parameter in raw.get("parameters", []))


def test_every_route_of_the_api_is_in_the_document_under_its_own_name() -> None:
    named = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(named) == len(set(named))
    assert {name.removesuffix("_head") for name in named} == {route.name for route in ROUTES if route.include_in_schema}


def test_the_document_is_served(stage: Stage) -> None:
    with stage.hub.client() as nobody:
        served = answer(nobody.get(f"{stage.hub.url}/openapi.json"))
    assert served["paths"].keys() == DOCUMENT["paths"].keys()
    described = served["paths"]["/api/v1/environmentshub/{owner}/{name}"]["delete"]
    assert "Who may call it: the owner of the environment in the path" in described["description"]
    assert [parameter["name"] for parameter in described["parameters"]] == ["owner", "name"]
