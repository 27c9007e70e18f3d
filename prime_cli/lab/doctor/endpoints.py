"""The endpoints of `configs/endpoints.toml`: whether their keys are set, and whether each answers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from prime_cli.core.config_file import load_config
from prime_cli.core.errors import ConfigError
from prime_cli.evals.endpoints import ENDPOINTS_FILE, EndpointEntry, EndpointsFile
from prime_cli.lab.doctor.finding import Finding
from prime_cli.lab.doctor.surroundings import LOOPBACK, Answer, Surroundings

_AT_ONCE = 8
_REFUSALS = (401, 403)


def check_endpoints(around: Surroundings) -> list[Finding]:
    """Read the file and ask every server for its models, all at once and each for a few seconds."""
    path = around.workspace / ENDPOINTS_FILE
    if not path.is_file():
        return [Finding("endpoints", "warning", f"there is no {ENDPOINTS_FILE}", "prime lab setup")]
    try:
        entries = load_config(path, EndpointsFile).endpoint
    except ConfigError as error:
        return [Finding("endpoints", "fails", " ".join(error.message.split()), error.hint)]
    if not entries:
        return [Finding("endpoints", "ok", f"{ENDPOINTS_FILE} names none; models are given by URL or folder")]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda entry: _ask(entry, around), entries))
    silent = [entry for entry, answer in zip(entries, answers, strict=True) if _is_silent_here(entry, answer)]
    told = [
        _judge(entry, answer, around)
        for entry, answer in zip(entries, answers, strict=True)
        if not _is_silent_here(entry, answer)
    ]
    return [*told, *_silent_here(silent)]


def _ask(entry: EndpointEntry, around: Surroundings) -> Answer:
    key = around.variables.get(entry.key or "", "")
    if _host(entry) is None:
        return Answer(None)
    if entry.key and not key and not _is_here(entry):
        return Answer(None)  # without its key there is nothing to ask
    headers = {"Authorization": f"Bearer {key or 'EMPTY'}", **entry.headers}
    return around.fetch(f"{entry.url.rstrip('/')}/models", headers)


def _judge(entry: EndpointEntry, answer: Answer, around: Surroundings) -> Finding:
    name = f"{entry.endpoint_id} at {entry.url}"
    if _host(entry) is None:
        return Finding("endpoints", "fails", f"{name}: that is not a URL", f"set `url` in {ENDPOINTS_FILE}")
    if entry.key and not around.variables.get(entry.key) and not _is_here(entry):
        message = f"{name}: its key is not set, so it was not asked"
        return Finding("endpoints", "warning", message, f"export {entry.key}=...")
    if answer.status is None:
        return Finding("endpoints", "fails", f"{name} does not answer: {answer.problem}", _check_url(entry))
    if answer.status in _REFUSALS:
        holder = f"the key in {entry.key}" if entry.key else "to be asked without a key"
        return Finding("endpoints", "fails", f"{name} refuses {holder} (HTTP {answer.status})", _new_key(entry))
    models = _models(answer)
    if models is None:
        message = f"{name} answers, and lists no models (HTTP {answer.status})"
        return Finding("endpoints", "warning", message, _check_url(entry))
    if entry.model not in models:
        has = ", ".join(models[:4]) or "none"
        message = f"{name} answers, and has no model {entry.model}; it has {has}"
        return Finding("endpoints", "warning", message, f"set `model` in {ENDPOINTS_FILE}")
    return Finding("endpoints", "ok", f"{name} has {entry.model} (answered in {1000 * answer.seconds:.0f} ms)")


def _silent_here(entries: Sequence[EndpointEntry]) -> list[Finding]:
    """Return one finding for all servers of this machine that are not started: a starter file names several."""
    if not entries:
        return []
    names = ", ".join(f"{entry.endpoint_id} ({urlsplit(entry.url).netloc})" for entry in entries)
    port = urlsplit(entries[0].url).port or 80
    hint = f"prime inference serve MODEL_FOLDER --port {port}"
    return [Finding("endpoints", "warning", f"not started on this machine: {names}", hint)]


def _is_silent_here(entry: EndpointEntry, answer: Answer) -> bool:
    return answer.status is None and _is_here(entry)


def _is_here(entry: EndpointEntry) -> bool:
    return _host(entry) in LOOPBACK


def _host(entry: EndpointEntry) -> str | None:
    """Return the host of a URL, None where it is none."""
    try:
        parts = urlsplit(entry.url)
        return parts.hostname if parts.scheme in ("http", "https") and parts.port != 0 else None
    except ValueError:
        return None


def _models(answer: Answer) -> list[str] | None:
    data = answer.data.get("data") if isinstance(answer.data, dict) else None
    if answer.status != 200 or not isinstance(data, list):
        return None
    return [str(model.get("id")) for model in data if isinstance(model, dict)]


def _check_url(entry: EndpointEntry) -> str:
    return f"curl {entry.url.rstrip('/')}/models"


def _new_key(entry: EndpointEntry) -> str:
    return f"export {entry.key}=..." if entry.key else f"set `key` of it in {ENDPOINTS_FILE}"
