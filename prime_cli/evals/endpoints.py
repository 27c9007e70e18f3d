"""From what was typed after `-m` to a model that answers: an alias, a URL, or a folder of weights."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from pydantic import Field

from prime_cli.core.config_file import StrictModel, load_config
from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.environments.runtime import ModelEndpoint
from prime_cli.models.folder import check_model_folder

ENDPOINTS_FILE = Path("configs/endpoints.toml")
_ASK_TIMEOUT_S = 10.0


class EndpointEntry(StrictModel):
    """One `[[endpoint]]` of endpoints.toml. `key` names the environment variable that holds the API key."""

    endpoint_id: str = Field(min_length=1)
    model: str = Field(min_length=1)
    url: str | None = None
    api_base_url: str | None = None
    key: str | None = None
    api_key_var: str | None = None
    type: str = "openai_chat_completions"
    headers: dict[str, str] = Field(default_factory=dict)

    def endpoint(self) -> ModelEndpoint:
        """Return the endpoint with its key from the environment."""
        url = self.url or self.api_base_url
        if url is None:
            raise PrimeError(f"the endpoint {self.endpoint_id!r} has no `url`", hint="add one to endpoints.toml")
        return ModelEndpoint(url, self.model, api_key_from(self.key or self.api_key_var), self.type, self.headers)


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


def api_key_from(variable: str | None) -> str:
    """Return the API key in the environment variable of that name.

    Raises:
        PrimeError: the variable was named and is not set.
    """
    if not variable:
        return "EMPTY"
    value = os.environ.get(variable)
    if not value:
        raise PrimeError(f"the environment variable {variable} is not set", hint="it holds the endpoint's API key")
    return value


@dataclass(frozen=True)
class ChosenModel:
    """A model that is known: an endpoint that answers by itself, or a folder of weights to serve.

    `label` is the name under which results are filed.
    """

    label: str
    endpoint: ModelEndpoint | None = None
    folder: Path | None = None
    served_name: str | None = None


def choose_model(choice: ModelChoice) -> ChosenModel:
    """Find out what was chosen, without starting anything.

    Raises:
        BadInput: the choice is neither an alias, nor a URL, nor a folder; offers the nearest alias.
        NotAModel: the folder is not a model folder.
        PrimeError: a server that must be asked for its models does not answer.
    """
    if choice.base_url is not None:
        key = api_key_from(choice.api_key_variable)
        return ChosenModel(choice.model, ModelEndpoint(choice.base_url, choice.model, key))
    if choice.model.startswith(("http://", "https://")):
        key = api_key_from(choice.api_key_variable)
        name = choice.model_name or only_model_at(choice.model, key)
        return ChosenModel(name, ModelEndpoint(choice.model, name, key))
    entry = _alias(choice)
    if entry is not None:
        return ChosenModel(entry.model, entry.endpoint())
    folder = Path(choice.model).expanduser()
    if folder.exists() or choice.model.startswith((".", "/", "~")):
        check_model_folder(folder)
        return ChosenModel(choice.model.rstrip("/"), folder=folder, served_name=choice.model_name)
    raise _unknown_model(choice)


@contextlib.contextmanager
def opened_model(chosen: ChosenModel, *, log_path: Path) -> Iterator[ModelEndpoint]:
    """Yield an endpoint for the model; a folder of weights is served for as long as the context lasts.

    Raises:
        ProcessDied: the server of the folder did not start.
    """
    if chosen.endpoint is not None:
        yield chosen.endpoint
        return
    assert chosen.folder is not None, "a chosen model is an endpoint or a folder"
    from prime_cli.rl.inference.serving import serve_model_folder

    with serve_model_folder(chosen.folder, log_path=log_path) as served:
        yield ModelEndpoint(served.base_url, chosen.served_name or served.model)


def only_model_at(base_url: str, api_key: str) -> str:
    """Ask the server for its models and return the only one.

    Raises:
        PrimeError: it does not answer, or has several; names them.
    """
    try:
        response = httpx.get(
            f"{base_url.rstrip('/')}/models", headers={"Authorization": f"Bearer {api_key}"}, timeout=_ASK_TIMEOUT_S
        )
        response.raise_for_status()
        names = [str(model["id"]) for model in response.json()["data"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise PrimeError(
            f"no OpenAI-compatible server answers at {base_url}: {error or type(error).__name__}",
            hint="check the URL (it usually ends in /v1), or name the model with --model-name",
        ) from None
    if len(names) != 1:
        raise PrimeError(
            f"{base_url} serves {len(names)} models: {', '.join(names[:8])}", hint="choose one with --model-name"
        )
    return names[0]


def _alias(choice: ModelChoice) -> EndpointEntry | None:
    return next((entry for entry in _entries(choice) if entry.endpoint_id == choice.model), None)


def _entries(choice: ModelChoice) -> list[EndpointEntry]:
    if not choice.endpoints_file.is_file():
        if choice.endpoints_file != ENDPOINTS_FILE:
            raise BadInput(f"no such endpoints file: {choice.endpoints_file}")
        return []
    return load_config(choice.endpoints_file, EndpointsFile).endpoint


def _unknown_model(choice: ModelChoice) -> BadInput:
    known = [entry.endpoint_id for entry in _entries(choice)]
    nearest = difflib.get_close_matches(choice.model, known, n=1)
    if nearest:
        return BadInput(f"no endpoint is called {choice.model!r}", hint=f"did you mean {nearest[0]!r}?")
    aliases = f" (aliases in {choice.endpoints_file}: {', '.join(known)})" if known else ""
    return BadInput(
        f"{choice.model!r} is neither an endpoint's alias, nor a URL, nor a folder of weights{aliases}",
        hint="name a folder that exists, an alias, or a URL; or add -b URL to ask a server for this model",
    )
