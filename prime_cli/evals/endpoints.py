"""From what was typed after `-m` to a model that answers: an alias, a URL, or a folder of weights."""

from __future__ import annotations

import contextlib
import difflib
import ipaddress
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import httpx
from pydantic import AliasChoices, Field

from prime_cli.core.config_file import StrictModel, load_config
from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.environments.runtime import ModelEndpoint
from prime_cli.models.folder import check_model_folder

ENDPOINTS_FILE = Path("configs/endpoints.toml")
_ANSWER_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5.0


class EndpointEntry(StrictModel):
    """One `[[endpoint]]` of endpoints.toml. `key` names the environment variable that holds the API key."""

    endpoint_id: str = Field(min_length=1)
    model: str = Field(min_length=1)
    url: str = Field(min_length=1, validation_alias=AliasChoices("url", "api_base_url"))
    key: str | None = Field(default=None, validation_alias=AliasChoices("key", "api_key_var"))
    type: Literal["openai_chat_completions", "openai_chat_completions_token"] = Field(
        default="openai_chat_completions", validation_alias=AliasChoices("type", "api_client_type")
    )
    headers: dict[str, str] = Field(default_factory=dict, validation_alias=AliasChoices("headers", "extra_headers"))

    def endpoint(self) -> ModelEndpoint:
        """Return the endpoint with its key from the environment."""
        return ModelEndpoint(self.url, self.model, api_key_from(self.key, self.url), self.type, self.headers)


class EndpointsFile(StrictModel):
    """The whole of endpoints.toml."""

    endpoint: list[EndpointEntry] = Field(default_factory=list)


@dataclass(frozen=True)
class ModelChoice:
    """What the user chose: `model` as typed after -m, and what may go with it."""

    model: str
    model_name: str | None = None
    base_url: str | None = None
    api_key_variable: str | None = None
    endpoints_file: Path = ENDPOINTS_FILE


@dataclass(frozen=True)
class ChosenModel:
    """A model that is known: endpoints that answer (replicas of one model), or a folder of weights to serve.

    `label` is the name under which results are filed.
    """

    label: str
    endpoints: tuple[ModelEndpoint, ...] = ()
    folder: Path | None = None
    served_name: str | None = None


def choose_model(choice: ModelChoice) -> ChosenModel:
    """Find out what was chosen, without starting anything.

    Raises:
        BadInput: the choice is neither an alias, nor a URL, nor a folder; offers the nearest alias.
        NotAModel: the folder is not a model folder.
        PrimeError: a server does not answer, or has several models and none was named.
    """
    if choice.base_url is not None:
        key = api_key_from(choice.api_key_variable, choice.base_url)
        return _answering(choice.model, ModelEndpoint(choice.base_url, choice.model, key))
    if choice.model.startswith(("http://", "https://")):
        key = api_key_from(choice.api_key_variable, choice.model)
        if choice.model_name is not None:
            return _answering(choice.model_name, ModelEndpoint(choice.model, choice.model_name, key))
        name = only_model_at(choice.model, key)
        return ChosenModel(name, (ModelEndpoint(choice.model, name, key),))
    entries = _entries(choice)
    replicas = [entry for entry in entries if entry.endpoint_id == choice.model]
    if replicas:
        return _answering(replicas[0].model, *(entry.endpoint() for entry in replicas))
    folder = Path(choice.model).expanduser()
    if folder.exists() or choice.model.startswith((".", "/", "~")):
        check_model_folder(folder)
        return ChosenModel(choice.model.rstrip("/"), folder=folder, served_name=choice.model_name)
    raise _unknown_model(choice, [entry.endpoint_id for entry in entries])


@contextlib.contextmanager
def opened_model(chosen: ChosenModel, *, log_path: Path) -> Iterator[tuple[ModelEndpoint, ...]]:
    """Yield the model's endpoints; a folder of weights is served for as long as the context lasts.

    Raises:
        ProcessDied: the server of the folder did not start.
    """
    if chosen.folder is None:
        yield chosen.endpoints
        return
    from prime_cli.rl.inference.serving import serve_model_folder

    with serve_model_folder(chosen.folder, log_path=log_path) as served:
        yield (ModelEndpoint(served.base_url, chosen.served_name or served.model),)


def api_key_from(variable: str | None, url: str) -> str:
    """Return the API key in the environment variable of that name; a server on this machine needs none.

    Raises:
        PrimeError: the variable was named and is not set.
    """
    value = os.environ.get(variable, "") if variable else ""
    if variable and not value and not _is_on_this_machine(url):
        raise PrimeError(f"the environment variable {variable} is not set", hint=f"it holds the API key of {url}")
    return value or "EMPTY"


def only_model_at(base_url: str, api_key: str) -> str:
    """Ask the server for its models and return the only one.

    Raises:
        PrimeError: it does not answer as such a server does, or has several; names them.
    """
    response = _ask_for_models(base_url, api_key)
    try:
        names = [str(model["id"]) for model in response.raise_for_status().json()["data"]]
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError) as error:
        raise PrimeError(
            f"{base_url} does not list its models: {_first_line(error)}",
            hint="check the URL (it usually ends in /v1), or name the model with --model-name",
        ) from None
    if len(names) != 1:
        raise PrimeError(
            f"{base_url} serves {len(names)} models: {', '.join(names[:8])}", hint="choose one with --model-name"
        )
    return names[0]


def _answering(label: str, *endpoints: ModelEndpoint) -> ChosenModel:
    """Return the model once its servers were seen to answer, whatever they say: better now than once per rollout."""
    for endpoint in endpoints:
        _ask_for_models(endpoint.base_url, endpoint.api_key)
    return ChosenModel(label, endpoints)


def _ask_for_models(base_url: str, api_key: str) -> httpx.Response:
    timeout = httpx.Timeout(_ANSWER_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {api_key}"}
    try:
        return httpx.get(f"{base_url.rstrip('/')}/models", headers=headers, timeout=timeout, follow_redirects=True)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise PrimeError(
            f"no OpenAI-compatible server answers at {base_url}: {_first_line(error)}",
            hint="check the URL (it usually ends in /v1), and that the server runs",
        ) from None


def _is_on_this_machine(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _entries(choice: ModelChoice) -> list[EndpointEntry]:
    if not choice.endpoints_file.is_file():
        if choice.endpoints_file != ENDPOINTS_FILE:
            raise BadInput(f"no such endpoints file: {choice.endpoints_file}")
        return []
    return load_config(choice.endpoints_file, EndpointsFile).endpoint


def _unknown_model(choice: ModelChoice, known: list[str]) -> BadInput:
    nearest = difflib.get_close_matches(choice.model, known, n=1)
    if nearest:
        return BadInput(f"no endpoint is called {choice.model!r}", hint=f"did you mean {nearest[0]!r}?")
    aliases = f" (aliases in {choice.endpoints_file}: {', '.join(known)})" if known else ""
    return BadInput(
        f"{choice.model!r} is neither an endpoint's alias, nor a URL, nor a folder of weights{aliases}",
        hint="name a folder that exists, an alias, or a URL; or add -b URL to ask a server for this model",
    )
