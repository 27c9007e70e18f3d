"""The settings of this invocation: which hub, as whom. Environment variable, then file, then default.

`config.json` under `prime_home()` has the published shape, so that other tools of the family can read it. A context is
a named copy of the same keys in `environments/NAME.json`; the one in use lies in `config.json` itself.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prime_cli.core.errors import BadInput, ConfigError, PrimeError
from prime_cli.core.files import write_json_atomically

DEFAULT_BASE_URL = "http://127.0.0.1:8480"
# The name that the published config.json gives to the built-in context.
DEFAULT_CONTEXT = "production"

_DEFAULTS: dict[str, Any] = {
    "api_key": "",
    "team_id": None,
    "team_name": None,
    "team_role": None,
    "user_id": None,
    "user_name": None,
    "base_url": DEFAULT_BASE_URL,
    "frontend_url": None,
    "inference_url": None,
    "traces_url": None,
    "ssh_key_path": "~/.ssh/id_rsa",
    "current_environment": DEFAULT_CONTEXT,
    "share_resources_with_team": False,
    "traces_opt_out": False,
}
_NOBODY: dict[str, Any] = dict.fromkeys(("team_id", "team_name", "team_role", "user_id", "user_name"))
_CONTEXT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Settings:
    """What one invocation works with; URLs have no trailing slash and `base_url` no `/api/v1`."""

    context: str
    base_url: str
    frontend_url: str
    inference_url: str
    traces_url: str
    team_id: str | None
    team_name: str | None
    team_role: str | None
    user_id: str | None
    user_name: str | None
    ssh_key_path: str
    share_resources_with_team: bool
    traces_opt_out: bool


def prime_home() -> Path:
    """Return the folder of settings: `$PRIME_HOME`, else `~/.prime`. It need not exist."""
    configured = os.environ.get("PRIME_HOME")
    return Path(configured).expanduser() if configured else Path.home() / ".prime"


def current_context() -> str:
    """Return the context in force: `$PRIME_CONTEXT` (or `--context`), else the one that `config use` chose."""
    return os.environ.get("PRIME_CONTEXT") or chosen_context()


def chosen_context() -> str:
    """Return the context that config.json holds, whatever the environment says."""
    return str(_read_json(_config_path()).get("current_environment") or DEFAULT_CONTEXT)


def context_path(name: str) -> Path:
    """Return the file that holds the context `name`: config.json for the one in use, else its own.

    Raises:
        BadInput: `name` cannot be the name of a context.
    """
    if not _CONTEXT_NAME.fullmatch(name):
        raise BadInput(f"{name!r} cannot name a context", hint="use letters, digits, dots, dashes and underscores")
    return _config_path() if name == chosen_context() else prime_home() / "environments" / f"{name}.json"


def read_context(name: str) -> dict[str, Any]:
    """Return the stored values of the context `name`, defaults filled in.

    Raises:
        PrimeError: there is no such context.
        ConfigError: its file cannot be read.
    """
    path = context_path(name)
    if not path.exists() and name not in (chosen_context(), DEFAULT_CONTEXT):
        folder = prime_home() / "environments"
        known = sorted({DEFAULT_CONTEXT, *(file.stem for file in folder.glob("*.json"))})
        raise PrimeError(f"unknown context {name!r}", hint=f"known contexts: {', '.join(known)}")
    return {**_DEFAULTS, **_read_json(path)}


def write_context(name: str, values: dict[str, Any]) -> Path:
    """Write the values of the context `name` (0600) and return the file."""
    path = context_path(name)
    prime_home().mkdir(mode=0o700, parents=True, exist_ok=True)
    stored = {**_DEFAULTS, **values}
    # Other tools that read this file have defaults of their own for these two, so they are never left open.
    stored["frontend_url"] = stored["frontend_url"] or stored["base_url"]
    stored["inference_url"] = stored["inference_url"] or inference_url_of(stored["base_url"])
    write_json_atomically(path, stored, mode=0o600)
    return path


def load_settings() -> Settings:
    """Return the settings in force.

    Raises:
        PrimeError: the context asked for does not exist.
        ConfigError: the file of settings is not JSON.
    """
    name = current_context()
    stored = read_context(name)
    stored_base_url = normalise_url(str(stored["base_url"] or DEFAULT_BASE_URL))
    base_url = _from_environment("PRIME_API_BASE_URL", "PRIME_BASE_URL") or stored_base_url
    base_url = normalise_url(base_url)
    # URLs that were stored for one hub say nothing about another one that the environment names.
    beside = stored if base_url == stored_base_url else {}
    opt_out = _from_environment("PRIME_TRACES_OPT_OUT")
    return Settings(
        context=name,
        base_url=base_url,
        frontend_url=_url("PRIME_FRONTEND_URL", beside.get("frontend_url"), base_url),
        inference_url=_url("PRIME_INFERENCE_URL", beside.get("inference_url"), inference_url_of(base_url)),
        traces_url=_url("PRIME_TRACES_URL", beside.get("traces_url"), base_url),
        team_id=_from_environment("PRIME_TEAM_ID") or stored["team_id"] or None,
        team_name=stored["team_name"] or None,
        team_role=stored["team_role"] or None,
        user_id=_from_environment("PRIME_USER_ID") or stored["user_id"] or None,
        user_name=stored["user_name"] or None,
        ssh_key_path=_from_environment("PRIME_SSH_KEY_PATH") or str(stored["ssh_key_path"]),
        share_resources_with_team=bool(stored["share_resources_with_team"]),
        traces_opt_out=opt_out.lower() in ("1", "true", "yes") if opt_out else bool(stored["traces_opt_out"]),
    )


def save_settings(**changes: Any) -> None:
    """Store `changes` (keys of config.json) in the context in force; what the environment overrides stays unstored."""
    unknown = changes.keys() - _DEFAULTS.keys()
    assert not unknown, f"not keys of config.json: {unknown}"
    name = current_context()
    write_context(name, {**read_context(name), **changes})


def for_hub(settings: Settings, base_url: str) -> Settings:
    """Return the settings as they are towards another hub: its URLs, and nobody logged in."""
    base_url = normalise_url(base_url)
    if base_url == settings.base_url:
        return settings
    return replace(
        settings,
        base_url=base_url,
        frontend_url=base_url,
        inference_url=inference_url_of(base_url),
        traces_url=base_url,
        **_NOBODY,
    )


def set_base_url(base_url: str) -> bool:
    """Make `base_url` the hub of the context in force; True when a login to another hub was dropped.

    A key that lies in the file belongs to the former hub and must not be shown to the new one.
    """
    base_url = normalise_url(base_url)
    name = current_context()
    stored = read_context(name)
    if base_url == stored["base_url"]:
        return False
    urls = {"base_url": base_url, "frontend_url": None, "inference_url": None, "traces_url": None}
    write_context(name, {**stored, **urls, **_NOBODY, "api_key": ""})
    return bool(stored["api_key"] or stored["user_id"])


def inference_url_of(base_url: str) -> str:
    """Return where a hub serves models, unless it is set otherwise."""
    return f"{base_url}/inference/v1"


def normalise_url(url: str) -> str:
    """Return a hub's URL without trailing slash and without `/api/v1`.

    Raises:
        BadInput: it is no http or https URL.
    """
    return check_url(url).removesuffix("/api/v1").rstrip("/")


def check_url(url: str) -> str:
    """Return a URL without trailing slash.

    Raises:
        BadInput: it is no http or https URL.
    """
    text = url.strip().rstrip("/")
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text):
        raise BadInput(f"{url!r} is not a URL", hint=f"give it whole, such as {DEFAULT_BASE_URL}")
    return text


def _url(variable: str, stored: Any, default: str) -> str:
    return str(_from_environment(variable) or stored or default).rstrip("/")


def _from_environment(*names: str) -> str:
    """Return the first of these variables that is set; an empty one counts as unset."""
    return next((value for name in names if (value := os.environ.get(name, "").strip())), "")


def _config_path() -> Path:
    return prime_home() / "config.json"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}", hint="mend it, or remove it and log in again") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} does not hold an object", hint="mend it, or remove it and log in again")
    return data
