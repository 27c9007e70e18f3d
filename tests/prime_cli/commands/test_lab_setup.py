from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

PRIME = [sys.executable, "-m", "prime_cli.main"]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PRIME, *arguments], cwd=folder, capture_output=True, text=True)


def test_an_empty_folder_becomes_a_workspace(tmp_path: Path) -> None:
    result = run(tmp_path, "lab", "setup", "--no-interactive")
    assert result.returncode == 0, result.stderr
    for folder in ("environments", "configs/rl", "configs/sft", "configs/eval", "configs/gepa"):
        assert (tmp_path / folder).is_dir()
    for config in tmp_path.glob("configs/**/*.toml"):
        tomllib.loads(config.read_text())
    endpoints = tomllib.loads((tmp_path / "configs/endpoints.toml").read_text())["endpoint"]
    assert all({"endpoint_id", "model", "url", "key"} <= endpoint.keys() for endpoint in endpoints)
    assert "/outputs/" in (tmp_path / ".gitignore").read_text()
    assert not (tmp_path / "gitignore").exists()
    assert "prime env init" in result.stdout


def test_what_is_there_is_kept_and_told(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("mine")
    (tmp_path / ".gitignore").write_text("mine\n")
    first = json.loads(run(tmp_path, "--output", "json", "lab", "setup", "--path", str(tmp_path)).stdout)
    assert first["kept"] == ["AGENTS.md"]
    assert (tmp_path / "AGENTS.md").read_text() == "mine"
    assert (tmp_path / ".gitignore").read_text().startswith("mine\n\n# Lab generated artifacts\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    second = run(tmp_path, "lab", "setup")
    assert "kept as it was: AGENTS.md" in second.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(tmp_path, "lab", "setup", "--path", "file/deeper")
    assert result.returncode == 1
    assert result.stderr.startswith("error: cannot set up file/deeper: Not a directory")
    assert "Traceback" not in result.stderr


def test_a_dry_run_of_the_trainers_setup_shows_commands_and_writes_nothing(tmp_path: Path) -> None:
    result = run(tmp_path, "lab", "setup", "--prime-rl", "--vllm", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "-m prime_cli.lab.trainer_proof" in result.stdout
    assert "vllm" in result.stdout
    assert not list(tmp_path.iterdir())


def test_without_agents_and_instructions_only_configs_are_written(tmp_path: Path) -> None:
    result = run(tmp_path, "--output", "json", "lab", "setup", "--agents", "none", "--skip-agents-md")
    assert not [name for name in json.loads(result.stdout)["written"] if not name.startswith((".gitignore", "configs"))]


def test_sync_shows_what_it_left_alone(tmp_path: Path) -> None:
    run(tmp_path, "lab", "setup")
    (tmp_path / "AGENTS.md").write_text("mine")
    result = run(tmp_path, "lab", "sync")
    assert (result.returncode, result.stdout) == (0, "edited by you, nothing new: AGENTS.md\n")
    report = json.loads(run(tmp_path, "--output", "json", "lab", "sync", "--dry-run").stdout)
    assert (report["own"], report["edited"]) == (["AGENTS.md"], {})
