"""The OpenAPI document of the hub: what FastAPI knows of the routes, and what it cannot know.

It cannot know the values in paths that the door reads (access.py), who may call a route, what a refusal looks like, and
what is answered where it is not JSON.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from hub_server.access import RIGHTS, Right
from hub_server.attestations.routes import INTEGRITY_TYPE
from hub_server.registry.index import HTML_TYPE, JSON_TYPE, LEGACY_TYPE
from hub_server.traces.errors import is_about_traces

_PARAMETER = re.compile(r"{(\w+)}")
_PAGE = (JSON_TYPE, HTML_TYPE, LEGACY_TYPE)
_BYTES = ("application/octet-stream",)
# What is answered with 200 where it is not a JSON object.
_ANSWERED = {
    "index_projects": _PAGE,
    "index_project": _PAGE,
    "hub_projects": _PAGE,
    "hub_project": _PAGE,
    "index_file": (*_BYTES, "text/plain"),
    "download_package": ("application/gzip",),
    "metrics": ("text/plain",),
}
# What is answered with 200 where it is a JSON object of a type of its own.
_OBJECTS = {"file_provenance": INTEGRITY_TYPE}
_MOVED = ("index_project", "hub_project")
_READ_BY_HAND = {
    "upload": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    "add_samples": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["samples"],
                "properties": {"samples": {"type": "array", "items": {"type": "object"}}},
            }
        }
    },
    "legacy_upload": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["content"],
                "properties": {
                    ":action": {"type": "string", "const": "file_upload"},
                    "filetype": {"type": "string", "const": "bdist_wheel"},
                    "sha256_digest": {"type": "string"},
                    "attestations": {"type": "string"},
                    "content": {"type": "string", "format": "binary"},
                },
            }
        }
    },
}
_BEARER, _BASIC = "api_key", "api_key_as_password"
_SCHEMES = {
    _BEARER: {"type": "http", "scheme": "bearer", "description": "An API key."},
    _BASIC: {"type": "http", "scheme": "basic", "description": "Any user name; an API key or an index token."},
}
_WITHOUT_A_KEY = (Right.ANYONE,)
_WITH_A_PASSWORD = (Right.INDEX, Right.UPLOADER)
_KEY_IS_OPTIONAL = (Right.VISITOR, Right.READER, Right.EVALUATION_READER, Right.INDEX)
_REFUSALS = {
    "400": "What was sent cannot be right.",
    "401": "The route needs a user, and the request has none, or a key that is wrong.",
    "403": "The caller is known, and has not the right.",
    "404": "There is no such thing that the caller may see.",
    "405": "The path is not read or changed in this way.",
    "406": "The index speaks none of the types that are asked for.",
    "409": "It would change what is published, or take a name that is taken.",
    "413": "It is over a limit of this hub.",
    "422": "A value is missing or cannot be one.",
    "429": "It came too often; Retry-After says when it may come again.",
    "503": "The hub itself is not in order for this; its operator has to act.",
}
_PROBLEM = {
    "type": "object",
    "required": ["detail"],
    "properties": {
        "detail": {
            "oneOf": [
                {"type": "string"},
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["loc", "msg", "type"],
                        "properties": {
                            "loc": {"type": "array", "items": {"type": ["string", "integer"]}},
                            "msg": {"type": "string"},
                            "type": {"type": "string"},
                        },
                    },
                },
            ]
        }
    },
}
_TRACE_PROBLEM = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}


def document(app: FastAPI, routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of the app with these routes, made once."""
    if app.openapi_schema is None:
        listed = [route for route in routes if isinstance(route, APIRoute) and route.include_in_schema]
        for route in listed:
            route.unique_id = route.name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # GET and HEAD of one route get names of their own below
            made = get_openapi(title=app.title, version=app.version, routes=listed)
        components = made.setdefault("components", {})
        components["securitySchemes"] = _SCHEMES
        components.setdefault("schemas", {}).update(Problem=_PROBLEM, TraceProblem=_TRACE_PROBLEM)
        for name in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(name, None)
        for route in listed:
            for method in route.methods or ():
                _complete(made["paths"][route.path_format][method.lower()], route, method)
        # Routes keep their methods as a set, which has another order in each process.
        made["paths"] = {path: dict(sorted(operations.items())) for path, operations in made["paths"].items()}
        app.openapi_schema = made
    return app.openapi_schema


def _complete(operation: dict[str, Any], route: APIRoute, method: str) -> None:
    right = RIGHTS[route.name]
    operation["operationId"] = route.name if method != "HEAD" else f"{route.name}_head"
    operation["description"] = f"{operation.get('description', '')}\n\nWho may call it: {right}.".strip()
    known = {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "path"}
    missing = [name for name in _PARAMETER.findall(route.path_format) if name not in known]
    operation.setdefault("parameters", []).extend(
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in missing
    )
    if route.name in _READ_BY_HAND:
        operation["requestBody"] = {"required": True, "content": _READ_BY_HAND[route.name]}
    if right not in _WITHOUT_A_KEY:
        schemes: list[dict[str, list[str]]] = [{_BEARER: []}]
        schemes += [{_BASIC: []}] if right in _WITH_A_PASSWORD else []
        operation["security"] = [*schemes, *([{}] if right in _KEY_IS_OPTIONAL else [])]
    operation["responses"] = _responses(operation["responses"], route, method)


def _responses(known: dict[str, Any], route: APIRoute, method: str) -> dict[str, Any]:
    types = _ANSWERED.get(route.name)
    if types is not None:
        known["200"]["content"] = {name: {"schema": {"type": "string"}} for name in types}
    if route.name in _OBJECTS:
        known["200"]["content"] = {_OBJECTS[route.name]: {"schema": {"type": "object"}}}
    if method == "HEAD":
        known["200"].pop("content", None)
    if route.name in _ANSWERED:
        known["304"] = {"description": "The client has this very answer."}
        known["206"] = {**known["200"], "description": "A part of it."}
        known["416"] = {"description": "There is no such part of it."}
    if route.name in _MOVED:
        known["301"] = {"description": "The normalized name is another."}
    problem = "TraceProblem" if is_about_traces(route.path_format) else "Problem"
    for status, description in _REFUSALS.items():
        if status not in known or status == "422":
            content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{problem}"}}}
            known[status] = {"description": description, **({} if method == "HEAD" else {"content": content})}
    return known
