"""Which backend a node takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub_server.errors import NotServing
from hub_server.sandbox_node.choosing import BackendChoice, candidates, open_backend
from hub_server.sandbox_node.specification import Level


def test_the_soonest_comes_first_and_what_isolates_nothing_last() -> None:
    assert [choice.value for choice in candidates(BackendChoice.AUTO)] == ["bwrap", "crun", "runc", "runsc", "process"]
    assert [choice.value for choice in candidates(BackendChoice.OCI)] == ["crun", "runc", "runsc"]
    assert candidates(BackendChoice.RUNSC) == [BackendChoice.RUNSC]


async def test_a_backend_below_the_level_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(NotServing) as caught:
        await open_backend(BackendChoice.PROCESS, Level.RESTRICTED, tmp_path)
    assert "process gives level none only" in str(caught.value)


async def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotServing) as caught:
        await open_backend(BackendChoice.BWRAP, Level.CONTAINER, tmp_path)
    assert "bubblewrap is not installed" in str(caught.value)


async def test_development_gets_plain_processes_when_it_asks_for_no_level(tmp_path: Path) -> None:
    backend = await open_backend(BackendChoice.PROCESS, Level.NONE, tmp_path)
    assert backend.level is Level.NONE
    await backend.close()
