"""Starts an inference server for a model folder and waits until it answers."""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prime_cli.core.errors import ProcessDied
from prime_cli.core.processes import child_environment, describe_exit, end_process_groups, tail
from prime_cli.models.folder import check_model_folder
from prime_cli.rl.inference.gateway_settings import ADMIN_TOKEN_VARIABLE

_SERVER_MODULE = "prime_cli.rl.inference.server"


@dataclass(frozen=True)
class ServedModel:
    """A server that answers: `base_url` ends in /v1, `model` is the name to ask for."""

    base_url: str
    model: str
    admin_url: str
    admin_token: str
    pid: int


def server_command(
    folder: Path, *, model_name: str, ready_file: Path, num_slots: int = 256, seed: int = 0
) -> list[str]:
    """Return the command line of the embedded server on a free loopback port."""
    return [
        sys.executable, "-m", _SERVER_MODULE, str(folder), "--port", "0", "--model-name", model_name,
        "--num-slots", str(num_slots), "--seed", str(seed), "--ready-file", str(ready_file),
    ]  # fmt: skip


def start_server(
    command: Sequence[str],
    *,
    log_path: Path,
    admin_token: str,
    start_new_session: bool = True,
    variables: Mapping[str, str] = {},
) -> subprocess.Popen[bytes]:
    """Start an inference server as the leader of its own process group, its output appended to `log_path`.

    `variables` are added to its environment.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    environment = child_environment(PYTHONUNBUFFERED="1", **variables, **{ADMIN_TOKEN_VARIABLE: admin_token})
    with log_path.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=start_new_session,
        )


def wait_until_ready(
    process: subprocess.Popen[bytes],
    ready_file: Path,
    *,
    log_path: Path,
    timeout_s: float,
    name: str = "inference server",
) -> str:
    """Wait for the server's ready file and return its URL.

    Raises:
        ProcessDied: it ended, or was not ready within `timeout_s`; carries the last lines of its log.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        url = url_in(ready_file)
        if url is not None:
            return url
        if process.poll() is not None:
            lines = tail(log_path)
            errors = [line for line in lines if line.startswith("error: ")]
            if errors:
                raise ProcessDied(errors[-1].removeprefix("error: "), hint=_hint_in(lines))
            raise ProcessDied(
                f"the {name} ended during start-up ({describe_exit(process.returncode)})",
                hint=_log_hint(log_path, lines),
            )
        time.sleep(0.05)
    raise ProcessDied(f"the {name} was not ready within {timeout_s:.0f} s", hint=_log_hint(log_path, tail(log_path)))


def url_in(ready_file: Path) -> str | None:
    """Return the URL that a server wrote when it was ready, or None before that."""
    return str(json.loads(ready_file.read_text())["url"]) if ready_file.exists() else None


@contextlib.contextmanager
def serve_model_folder(folder: Path, *, log_path: Path, startup_timeout_s: float = 120) -> Iterator[ServedModel]:
    """Serve the model in `folder` on a free loopback port for as long as the context lasts.

    Raises:
        NotAModel: the folder is not a model folder.
        ProcessDied: the server did not start.
    """
    check_model_folder(folder)
    name = folder.resolve().name
    token = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory(prefix="prime-serve-") as scratch:
        ready_file = Path(scratch) / "ready.json"
        process = start_server(
            server_command(folder, model_name=name, ready_file=ready_file), log_path=log_path, admin_token=token
        )
        try:
            url = wait_until_ready(process, ready_file, log_path=log_path, timeout_s=startup_timeout_s)
            yield ServedModel(base_url=f"{url}/v1", model=name, admin_url=url, admin_token=token, pid=process.pid)
        finally:
            end_process_groups([process])


def _hint_in(lines: Sequence[str]) -> str | None:
    hints = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
    return hints[-1] if hints else None


def _log_hint(log_path: Path, lines: Sequence[str]) -> str:
    return "\n".join([f"its log is {log_path}; the last lines:", *(f"  {line}" for line in lines)])
