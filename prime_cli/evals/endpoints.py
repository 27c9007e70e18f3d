"""From what was typed after `-m` to a model that answers: an alias, a URL, or a folder of weights."""

from __future__ import annotations

import contextlib
import difflib
import ipaddress
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from pydantic import AliasChoices, Field

from prime_cli.core.config_file import StrictModel, load_config
from prime_cli.core.context import load_settings
from prime_cli.core.credentials import load_api_key
from prime_cli.core.errors import BadInput, NotLoggedIn, PrimeError
from prime_cli.environments.runtime import ClientType, ModelEndpoint
from prime_cli.evals.cost import PricedEndpoint, TokenPrice
from prime_cli.evals.providers import PROVIDERS
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
    type: ClientType = Field(
        default="openai_chat_completions",
        validation_alias=AliasChoices("type", "api_client_type"),
        description="How the server is spoken to.",
    )
    headers: dict[str, str] = Field(
        default_factory=dict,
        validation_alias=AliasChoices("headers", "extra_headers"),
        description="Sent with every request.",
    )
    tokenizer: str | None = Field(
        default=None, description="The folder with the model's tokenizer, which the type `renderer` needs."
    )

    price: TokenPrice | None = Field(
        default=None, description="`{ input = 0.15, output = 0.6 }`: what a million tokens cost, for `--max-cost`."
    )

    def endpoint(self) -> ModelEndpoint:
        """Return the endpoint with its key from the environment."""
        key = api_key_from(self.key, self.url)
        return ModelEndpoint(self.url, self.model, key, self.type, self.headers, tokenizer=self.tokenizer)


class EndpointsFile(StrictModel):
    """The aliases that `-m` takes. Entries with one `endpoint_id` are replicas of one model, which take turns."""

    endpoint: list[EndpointEntry] = Field(default_factory=list)


@dataclass(frozen=True)
class ModelChoice:
    """What the user chose: `model` as typed after -m, and what may go with it.

    `alias_only`: the model is an alias of the endpoints and nothing else. What is said of client type, tokenizer and
    headers goes over what stands in the endpoints' file.
    """

    model: str
    model_name: str | None = None
    base_url: str | None = None
    api_key_variable: str | None = None
    endpoints_file: Path = ENDPOINTS_FILE
    provider: str | None = None
    alias_only: bool = False
    client_type: ClientType | None = None
    tokenizer: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    headers_from_state: Mapping[str, str] = field(default_factory=dict)

    def applied_to(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        """Return the endpoint, spoken to as the user said.

        Raises:
            BadInput: the client type needs a tokenizer, and none is known.
        """
        spoken_to = replace(
            endpoint,
            client_type=self.client_type or endpoint.client_type,
            tokenizer=self.tokenizer or endpoint.tokenizer,
            headers={**endpoint.headers, **self.headers},
            headers_from_state=dict(self.headers_from_state),
        )
        if spoken_to.client_type == "renderer" and spoken_to.tokenizer is None:
            raise BadInput(
                "the client type `renderer` needs the model's tokenizer",
                hint="name its folder with --tokenizer, or as `tokenizer` of the endpoint",
            )
        return spoken_to


@dataclass(frozen=True)
class ChosenModel:
    """A model that is known: endpoints that answer (replicas of one model), or a folder of weights to serve.

    `label` is the name under which results are filed. `prices` are those of the endpoints; empty where none is known.
    """

    label: str
    choice: ModelChoice
    endpoints: tuple[ModelEndpoint, ...] = ()
    folder: Path | None = None
    prices: tuple[TokenPrice | None, ...] = ()

    def endpoints_at(self, served: ModelEndpoint | None) -> tuple[ModelEndpoint, ...]:
        """Return the endpoints to ask; `served` is where the folder is served, if the model is one."""
        if self.folder is None:
            return self.endpoints
        assert served is not None, "a folder of weights is served before it is asked"
        return (self.choice.applied_to(replace(served, model=self.choice.model_name or served.model)),)

    def priced_endpoints_at(self, served: ModelEndpoint | None) -> list[PricedEndpoint]:
        """Return the endpoints to ask, with what their tokens cost."""
        pairs = itertools.zip_longest(self.endpoints_at(served), self.prices)
        return [PricedEndpoint(endpoint, price) for endpoint, price in pairs]


def choose_model(choice: ModelChoice) -> ChosenModel:
    """Find out what was chosen, without starting anything.

    Raises:
        BadInput: the choice is neither an alias, nor a URL, nor a folder; offers the nearest alias.
        NotAModel: the folder is not a model folder.
        PrimeError: a server does not answer, or has several models and none was named.
    """
    asked = _asked_server(choice)
    if asked is not None:
        return _answering(choice, asked)
    entries = _entries(choice)
    replicas = [entry for entry in entries if entry.endpoint_id == choice.model]
    if replicas:
        endpoints = [entry.endpoint() for entry in replicas]
        if choice.api_key_variable is not None:
            keys = [api_key_from(choice.api_key_variable, endpoint.base_url) for endpoint in endpoints]
            endpoints = [replace(endpoint, api_key=key) for endpoint, key in zip(endpoints, keys, strict=True)]
        return replace(_answering(choice, *endpoints), prices=tuple(entry.price for entry in replicas))
    folder = Path(choice.model).expanduser()
    if not choice.alias_only and (folder.exists() or choice.model.startswith((".", "/", "~"))):
        check_model_folder(folder)
        return ChosenModel(choice.model.rstrip("/"), choice, folder=folder)
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
    with served_folder(chosen.folder, log_path=log_path) as served:
        yield chosen.endpoints_at(served)


@contextlib.contextmanager
def served_folder(folder: Path, *, log_path: Path) -> Iterator[ModelEndpoint]:
    """Serve a folder of weights for as long as the context lasts, and yield where.

    Raises:
        ProcessDied: the server did not start.
    """
    from prime_cli.rl.inference.serving import serve_model_folder

    with serve_model_folder(folder, log_path=log_path) as served:
        yield ModelEndpoint(served.base_url, served.model, tokenizer=str(folder.resolve()))


def api_key_from(variable: str | None, url: str) -> str:
    """Return the API key in the environment variable of that name; a server on this machine needs none.

    Raises:
        PrimeError: the variable was named and is not set.
    """
    value = os.environ.get(variable, "") if variable else ""
    if variable and not value and not _is_on_this_machine(url):
        raise PrimeError(f"the environment variable {variable} is not set", hint=f"it holds the API key of {url}")
    return value or "EMPTY"


def _asked_server(choice: ModelChoice) -> ModelEndpoint | None:
    """Return the server that the choice itself names, by its address or as a provider; None when it names none."""
    variable = choice.api_key_variable
    if choice.provider is not None:
        provider = PROVIDERS[choice.provider]
        if provider.url is None:
            settings = load_settings()
            key = api_key_from(variable, settings.inference_url) if variable else load_api_key(settings)
            if key is None:
                raise NotLoggedIn(settings.base_url)
            return ModelEndpoint(settings.inference_url, choice.model, key)
        return ModelEndpoint(provider.url, choice.model, api_key_from(variable or provider.api_key_var, provider.url))
    if choice.base_url is not None:
        return ModelEndpoint(choice.base_url, choice.model, api_key_from(variable, choice.base_url))
    if choice.model.startswith(("http://", "https://")):
        key = api_key_from(variable, choice.model)
        return ModelEndpoint(choice.model, choice.model_name or only_model_at(choice.model, key), key)
    return None


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


def _answering(choice: ModelChoice, *endpoints: ModelEndpoint) -> ChosenModel:
    """Return the model once its servers were seen to answer, whatever they say: better now than once per rollout."""
    spoken_to = tuple(choice.applied_to(endpoint) for endpoint in endpoints)
    for endpoint in spoken_to:
        _ask_for_models(endpoint.base_url, endpoint.api_key, endpoint.headers)
    return ChosenModel(spoken_to[0].model, choice, spoken_to)


def _ask_for_models(base_url: str, api_key: str, headers: Mapping[str, str] = {}) -> httpx.Response:
    timeout = httpx.Timeout(_ANSWER_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
    all_headers = {"Authorization": f"Bearer {api_key}", **headers}
    try:
        return httpx.get(f"{base_url.rstrip('/')}/models", headers=all_headers, timeout=timeout, follow_redirects=True)
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
