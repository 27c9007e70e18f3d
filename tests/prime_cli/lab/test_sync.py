"""What a later version brings to a workspace, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prime_cli.core.errors import BadInput, ConfigError, PrimeError
from prime_cli.lab import kit as kits
from prime_cli.lab.agents import parse_agents
from prime_cli.lab.setup import set_up_workspace
from prime_cli.lab.sync import sync_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    set_up_workspace(tmp_path)
    return tmp_path


def everything_in(folder: Path) -> dict[str, bytes | str]:
    paths = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
    return {str(p.relative_to(folder)): str(p.readlink()) if p.is_symlink() else p.read_bytes() for p in paths}


@pytest.fixture
def another_version(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The templates of a version to come: AGENTS.md is longer, a starter is gone, another is new."""
    import shutil

    folder = tmp_path_factory.mktemp("later") / "lab"
    shutil.copytree(kits.resource_path("templates/lab"), folder)
    with (folder / "AGENTS.md").open("a") as file:
        file.write("\nA new line.\n")
    (folder / "configs/sft/look-up.toml").unlink()
    (folder / "configs/rl/new.toml").write_text("# new\n")
    with (folder / "gitignore").open("a") as file:
        file.write("/new/\n")
    monkeypatch.setattr(kits, "resource_path", lambda name: folder)
    return folder


def test_what_nobody_edited_follows_the_version(workspace: Path, another_version: Path) -> None:
    report = sync_workspace(workspace)
    assert (report.updated, report.written) == (["AGENTS.md", ".gitignore"], ["configs/rl/new.toml"])
    assert report.removed == ["configs/sft/look-up.toml"]
    assert (workspace / "AGENTS.md").read_text().endswith("A new line.\n")
    assert not (workspace / "configs/sft/look-up.toml").exists()
    assert "/new/" in (workspace / ".gitignore").read_text().splitlines()
    assert not sync_workspace(workspace).changed


def test_what_was_edited_stays_and_the_difference_is_shown(workspace: Path, another_version: Path) -> None:
    (workspace / "AGENTS.md").write_text("mine\n")
    (workspace / "configs/sft/look-up.toml").write_text("mine\n")
    for _ in range(2):
        report = sync_workspace(workspace)
        assert list(report.edited) == ["AGENTS.md"]
        assert "-mine" in report.edited["AGENTS.md"]
        assert "+A new line." in report.edited["AGENTS.md"]
        assert (workspace / "AGENTS.md").read_text() == "mine\n"
        assert (workspace / "configs/sft/look-up.toml").read_text() == "mine\n"


def test_an_edit_of_what_this_version_has_unchanged_is_nobodys_news(workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("mine\n")
    report = sync_workspace(workspace)
    assert (report.own, report.edited, report.changed) == (["AGENTS.md"], {}, False)


def test_what_was_taken_away_is_not_brought_back_but_by_setup(workspace: Path, another_version: Path) -> None:
    (workspace / "CLAUDE.md").unlink()
    lines = (workspace / ".gitignore").read_text().splitlines()
    (workspace / ".gitignore").write_text("\n".join(line for line in lines if line != "/outputs/") + "\n")
    assert sync_workspace(workspace).left_out == ["CLAUDE.md"]
    assert not (workspace / "CLAUDE.md").exists()
    assert "CLAUDE.md" in set_up_workspace(workspace).written
    assert "/outputs/" not in (workspace / ".gitignore").read_text().splitlines()


def test_a_dry_run_says_the_same_and_changes_nothing(workspace: Path, another_version: Path) -> None:
    (workspace / ".agents/skills/prime-loop").unlink()
    before = everything_in(workspace)
    foretold = sync_workspace(workspace, dry_run=True)
    assert everything_in(workspace) == before
    assert sync_workspace(workspace) == foretold
    assert ".agents/skills/prime-loop" in foretold.written


def test_a_workspace_without_a_record_keeps_every_file_that_differs(workspace: Path, another_version: Path) -> None:
    (workspace / ".prime/lab.json").unlink()
    report = sync_workspace(workspace)
    assert list(report.edited) == ["AGENTS.md"]
    assert (workspace / "configs/sft/look-up.toml").exists()


def test_other_agents_get_the_skills_where_they_look_for_them(workspace: Path) -> None:
    report = sync_workspace(workspace, agents=parse_agents("cursor"))
    assert (workspace / ".cursor/skills/prime-loop/SKILL.md").is_file()
    assert not (workspace / ".claude").exists()
    assert "CLAUDE.md" in report.removed
    assert sync_workspace(workspace).changed is False, "the choice is kept"


def test_a_skill_of_ones_own_by_that_name_is_kept(workspace: Path) -> None:
    link = workspace / ".claude/skills/prime-loop"
    link.unlink()
    link.mkdir()
    (link / "SKILL.md").write_text("mine")
    sync_workspace(workspace, agents=())
    assert (link / "SKILL.md").read_text() == "mine"
    assert not (workspace / ".prime/skills").exists()


def test_what_other_tools_keep_in_the_record_stays(workspace: Path) -> None:
    path = workspace / ".prime/lab.json"
    record = json.loads(path.read_text())
    record["choices"] |= {"agents": ["codex", "unheard-of"], "primary_agent": "codex"}
    path.write_text(json.dumps(record))
    sync_workspace(workspace, agents=("claude",))
    assert json.loads(path.read_text())["choices"] == {
        "agents": ["claude"], "agents_md": True, "primary_agent": "codex",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["{", "[1]", '{"files": 3}'])
def test_a_record_that_cannot_be_read_is_one_line_and_what_to_do(workspace: Path, text: str) -> None:
    (workspace / ".prime/lab.json").write_text(text)
    with pytest.raises(ConfigError, match=r"lab\.json") as caught:
        sync_workspace(workspace)
    assert "prime lab setup" in (caught.value.hint or "")


def test_a_folder_that_is_no_workspace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PrimeError, match="is no workspace"):
        sync_workspace(tmp_path)


def test_an_agent_that_nobody_knows_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadInput, match="coding agent") as caught:
        parse_agents("codex,typewriter")
    assert "opencode" in (caught.value.hint or "")
    assert parse_agents("factory, codex,codex") == ("codex", "droid")
