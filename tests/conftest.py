"""Fixtures that every test may use."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from prime_cli.core.output import set_mode

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so would every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _home_of_their_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test away from the user's own settings and keyring."""
    monkeypatch.setenv("PRIME_HOME", str(tmp_path_factory.mktemp("prime-home")))
    monkeypatch.setenv("PRIME_DISABLE_KEYRING", "1")
    for name in ("PRIME_API_KEY", "PRIME_API_BASE_URL", "PRIME_BASE_URL", "PRIME_CONTEXT", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    set_mode(plain=False, as_json=False)  # which an earlier test's command may have set otherwise


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny model under seed 0; not to be written to."""
    from prime_cli.models.tiny_qwen3 import write_model

    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_model("tiny-qwen3", folder, seed=0)
    return folder
