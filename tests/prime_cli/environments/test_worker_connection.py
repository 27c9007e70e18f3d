"""What a worker process is given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from prime_cli.environments.runtime import ENVIRONMENTS_VARIABLE
from prime_cli.environments.worker_connection import EnvironmentFailed, WorkerConnection
from prime_cli.rl.inference.gateway_settings import ADMIN_TOKEN_VARIABLE, GATEWAY_VARIABLE
from prime_cli.rl.orchestrator.policy import INFERENCE_VARIABLE
from prime_cli.rl.orchestrator.teacher import TEACHER_VARIABLE

TELLING = """
import os

def load_environment():
    raise ValueError(" ".join(f"{name}={value}" for name, value in os.environ.items()))
"""


async def test_a_worker_gets_the_variables_of_its_user_and_its_own_but_no_secret_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "telling.py").write_text(TELLING)
    for variable in (
        ENVIRONMENTS_VARIABLE, ADMIN_TOKEN_VARIABLE, GATEWAY_VARIABLE, INFERENCE_VARIABLE, TEACHER_VARIABLE,
    ):  # fmt: skip
        monkeypatch.setenv(variable, "run-secret")
    monkeypatch.setenv("OF_THE_USER", "seen")
    worker = await WorkerConnection.open(
        "telling", Path(sys.executable), tmp_path / "log", [tmp_path], {"OF_THE_ENVIRONMENT": "given"}
    )
    try:
        with pytest.raises(EnvironmentFailed) as told:
            await worker.send("load", env="telling", args={}, limits={})
    finally:
        await worker.close()
    assert "OF_THE_USER=seen" in told.value.message
    assert "OF_THE_ENVIRONMENT=given" in told.value.message
    assert "run-secret" not in told.value.message
