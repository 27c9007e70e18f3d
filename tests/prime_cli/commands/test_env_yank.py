"""`prime env yank` and `unyank` against a running hub."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.running_hub import PRIME, Push, answer, start_hub


def test_a_version_is_yanked_and_offered_again_by_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = start_hub(tmp_path / "data")
    monkeypatch.setenv("PRIME_API_BASE_URL", hub.url)
    monkeypatch.setenv("PRIME_API_KEY", hub.admin_key)

    def prime(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*PRIME, "--output", "json", "env", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)

    try:
        with hub.client(hub.admin_key) as client:
            slug = answer(client.get("/user/whoami"))["data"]["slug"]
            for version in ("0.1.0", "0.2.0"):
                assert Push(client, "taken-back", version).run().is_success
        name = f"{slug}/taken-back"
        yanked = prime("yank", f"{name}@0.2.0", "--reason", "no reward")
        assert yanked.returncode == 0, yanked.stderr
        assert json.loads(yanked.stdout) == {
            "environment": name, "version": "0.2.0", "yanked": True, "reason": "no reward"
        }  # fmt: skip
        assert json.loads(prime("info", name).stdout)["version"] == "0.1.0"
        pinned = json.loads(prime("info", f"{name}@0.2.0").stdout)
        assert pinned["yanked"] == "yes: no reward"
        rows = json.loads(prime("versions", name).stdout)["versions"]
        assert [row["yanked"] for row in rows] == [True, False]
        assert json.loads(prime("unyank", f"{name}@0.2.0").stdout)["yanked"] is False
        assert json.loads(prime("info", name).stdout)["version"] == "0.2.0"
        for wrong, words in ((name, "which version?"), (f"{name}@9.9", "not found"), ("taken-back@1", "no owner")):
            refused = prime("yank", wrong)
            assert refused.returncode != 0
            assert words in refused.stdout + refused.stderr
    finally:
        hub.end()
