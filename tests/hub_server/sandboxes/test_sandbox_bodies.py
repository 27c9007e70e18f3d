"""What is refused of a new sandbox, and with which words: never ignored, never a bare failure."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from hub_server.sandbox_node.specification import Level
from hub_server.sandboxes.bodies import NewSandbox

SOUND: dict[str, Any] = {"name": "a sandbox", "docker_image": "host"}


def refused(**fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        NewSandbox.model_validate({**SOUND, **fields})
    return "; ".join(str(error["msg"]) for error in caught.value.errors())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"docker_image": None}, "docker_image is required"),
        ({"docker_image": None, "checkpoint_id": "x"}, "checkpoints are not available on this server"),
        ({"volumes": [{"name": "v", "mount_path": "/v"}]}, "volumes are not available on this server"),
        ({"gpu_count": 1, "gpu_type": "H100"}, "GPUs are not available to the sandboxes of this server"),
        ({"gpu_type": "H100"}, "gpu_type requires gpu_count greater than 0"),
        ({"region": "eu"}, "this server has no regions"),
        ({"guaranteed": True}, "resources cannot be guaranteed on this server; limits are caps"),
        ({"registry_credentials_id": "x"}, "registry credentials are not available on this server"),
        ({"timeout_minutes": 0}, "0 is no lifetime; a negative number is one without end"),
        ({"idle_timeout_minutes": 0}, "greater than or equal to 1"),
        ({"timeout_minutes": 5, "idle_timeout_minutes": 6}, "idle_timeout_minutes must not be over timeout_minutes"),
        ({"cpu_cores": 0}, "greater than 0"),
        ({"memory_gb": float("inf")}, "finite number"),
        ({"memory_gb": 10**6}, "less than 100000"),
        ({"network_allowlist": [], "network_denylist": []}, "give an allowlist or a denylist, not both"),
        ({"network_allowlist": ["http://x"]}, "schemes are not supported"),
        ({"network_allowlist": ["x"] * 1025}, "may have 1024"),
        ({"environment_vars": {"1A": "x"}}, "should match pattern"),
        ({"environment_vars": {"A": "x\0"}}, "it holds a zero byte"),
        ({"secrets": {"A": "x" * 300_000}}, "have over 262144 bytes"),
        ({"labels": ["x" * 201]}, "at most 200 characters"),
        ({"labels": [""]}, "at least 1 character"),
        ({"environment_vars": {"A": "\ud800"}}, "it holds half of a character"),
        ({"advanced_configs": {"min_level": "best"}}, "min_level is one of none, restricted, container, gvisor"),
        ({"start_command": {"executable": ""}}, "at least 1 character"),
        ({"arch": "mips"}, "Input should be 'amd64' or 'arm64'"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason(fields: dict[str, Any], words: str) -> None:
    assert words in refused(**fields)


def test_both_generations_of_clients_are_understood() -> None:
    newer = NewSandbox.model_validate(
        {**SOUND, "vm": True, "idempotency_key": "k", "advanced_configs": {"min_level": "gvisor"}, "unheard_of": 1}
    )
    assert newer.min_level is Level.GVISOR
    older = NewSandbox.model_validate({**SOUND, "vm": False, "start_command": "tail -f /dev/null", "guaranteed": False})
    assert older.start_command == "tail -f /dev/null"
    assert older.min_level is None
    assert older.egress is None
