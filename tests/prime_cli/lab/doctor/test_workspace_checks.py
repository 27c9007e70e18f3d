"""Each thing of a workspace is broken for real; the finding names it, and `--fix` mends what is safe to mend."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prime_cli.core.context import prime_home
from prime_cli.lab.doctor.configs import check_configs
from prime_cli.lab.doctor.examination import examine, mend
from prime_cli.lab.doctor.finding import Finding
from prime_cli.lab.doctor.hub import check_hub, check_sandboxes, check_settings
from prime_cli.lab.doctor.surroundings import Answer, Surroundings, ask, run_program
from prime_cli.lab.doctor.workspace import check_environments, check_files, check_git
from prime_cli.lab.setup import set_up_workspace

PRIME = [sys.executable, "-m", "prime_cli.main"]


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    set_up_workspace(tmp_path)
    return Surroundings(tmp_path, Path(sys.executable), Path(sys.executable), {}, run_program, ask)


def levels(findings: list[Finding]) -> list[str]:
    return [finding.level for finding in findings]


def test_a_fresh_workspace_is_complete(around: Surroundings) -> None:
    assert levels(check_files(around)) == ["ok"]


def test_a_folder_that_is_missing_is_named_and_made_again(around: Surroundings) -> None:
    shutil.rmtree(around.workspace / "configs/gepa")
    findings = check_files(around)
    assert "configs/gepa" in findings[0].message
    assert mend(findings, print) == ["wrote what was missing of the workspace"]
    assert levels(check_files(around)) == ["ok"]


def test_a_file_of_another_version_is_named_and_brought_up_to_date(around: Surroundings) -> None:
    import hashlib

    top = around.workspace
    (top / "AGENTS.md").write_text("of an older version\n")
    record = json.loads((top / ".prime/lab.json").read_text())
    record["files"]["AGENTS.md"] = hashlib.sha256(b"of an older version\n").hexdigest()
    (top / ".prime/lab.json").write_text(json.dumps(record))
    findings = check_files(around)
    assert findings[0].message == "not of this version: AGENTS.md"
    mend(findings, print)
    assert levels(check_files(around)) == ["ok"]


def test_a_torn_record_fails_with_its_name(around: Surroundings) -> None:
    (around.workspace / ".prime/lab.json").write_text("{")
    (finding,) = check_files(around)
    assert finding.level == "fails"
    assert "lab.json" in finding.message


def test_malformed_toml_is_named_with_its_line(around: Surroundings) -> None:
    for name in ("rl/a.toml", "sft/b.toml", "eval/c.toml", "gepa/d.toml"):
        (around.workspace / "configs" / name).write_text("max_steps = 3\nmodel = \n")
    failing = [finding for finding in check_configs(around) if finding.level == "fails"]
    assert len(failing) == 4
    for finding, name in zip(failing, ("rl/a", "sft/b", "eval/c", "gepa/d"), strict=True):
        assert finding.message.startswith(f"configs/{name}.toml is not valid TOML")
        assert "line 2" in finding.message


def test_a_training_file_that_would_be_refused_is_named_with_the_key(around: Surroundings) -> None:
    path = around.workspace / "configs/rl/reverse-text.toml"
    path.write_text(path.read_text().replace("batch_size = 256", "batch_size = 250"))
    (failing,) = [finding for finding in check_configs(around) if finding.level == "fails"]
    assert failing.message.startswith("configs/rl/reverse-text.toml: `batch_size`")


def test_environments_that_are_named_and_not_here_are_told_with_how_to_write_them(around: Surroundings) -> None:
    (finding,) = [finding for finding in check_configs(around) if finding.level == "warning"]
    assert "reverse-text (configs/rl/reverse-text.toml)" in finding.message
    assert finding.hint == "prime env init code-tests --template code-tests"


def test_a_folder_without_a_project_or_its_module_fails(around: Surroundings) -> None:
    environments = around.workspace / "environments"
    for name in ("no_project", "no_module", "no_function"):
        (environments / name).mkdir()
        (environments / name / "notes.txt").write_text("")
    for name in ("no_module", "no_function"):
        (environments / name / "pyproject.toml").write_text(
            f'[project]\nname = "{name.replace("_", "-")}"\nversion = "1"\n[build-system]\nrequires = ["hatchling"]\n'
        )
    (environments / "no_function/no_function.py").write_text("")
    findings = check_environments(around)
    assert levels(findings) == ["fails"] * 3
    assert "no_function.py has no function load_environment" in findings[0].message
    assert "has no module no_module.py" in findings[1].message
    assert "has no pyproject.toml" in findings[2].message


def test_secrets_that_git_keeps_fail(around: Surroundings) -> None:
    assert check_git(around) == []
    top = around.workspace
    (top / ".env").write_text("KEY=1")
    subprocess.run(["git", "init", "-q", top], check=True)
    subprocess.run(["git", "-C", top, "add", "."], check=True)
    assert levels(check_git(around)) == ["ok"], "what .gitignore names is not kept"
    subprocess.run(["git", "-C", top, "add", "--force", ".env"], check=True)
    (finding,) = check_git(around)
    assert (finding.level, finding.hint) == ("fails", "git rm -r --cached --quiet .env")


def test_settings_that_others_can_read_are_told_and_closed(around: Surroundings) -> None:
    assert check_settings(around) == []
    prime_home().mkdir(parents=True, exist_ok=True)
    (prime_home() / "config.json").write_text("{}")
    (prime_home() / "config.json").chmod(0o644)
    findings = check_settings(around)
    assert levels(findings) == ["fails"]
    mend(findings, print)
    assert check_settings(around) == []


@pytest.mark.parametrize(
    ("health", "whoami", "level", "hint"),
    [
        (Answer(None, problem="refused"), None, "warning", "prime hub serve"),
        (Answer(200, {"hello": "world"}), None, "fails", "prime config set-base-url URL"),
        (Answer(200, {"status": "ok", "version": "0.0.1"}), Answer(200, {"data": {"slug": "ann"}}), "warning", None),
        (Answer(200, {"status": "ok", "version": "0.0.1"}), Answer(401), "fails", "prime login"),
        (Answer(200, {"status": "ok", "version": "0.0.1"}), Answer(503), "fails", "prime whoami"),
    ],
)
def test_the_hub_is_judged_by_what_it_answers(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch, health: Answer, whoami: Answer, level: str, hint: str | None
) -> None:
    monkeypatch.setenv("PRIME_API_KEY", "secret-words")

    def fetch(url: str, headers: object) -> Answer:
        return health if url.endswith("/healthz") else whoami

    (finding,) = check_hub(Surroundings(around.workspace, Path(), Path(), {}, run_program, fetch))
    assert finding.level == level
    assert hint is None or finding.hint == hint
    assert "secret-words" not in str(finding)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            Answer(200, {"data": [], "totalCount": 0}),
            ["no node makes sandboxes for the hub; environments that run code need one"],
        ),
        (Answer(200, {"data": [{}], "totalCount": 3}), ["the hub has them, of 3 images"]),
        (Answer(404), []),
        (Answer(None, problem="refused"), []),
    ],
)
def test_a_hub_says_whether_it_has_sandboxes(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch, answer: Answer, words: list[str]
) -> None:
    monkeypatch.setenv("PRIME_API_KEY", "key")
    asked = Surroundings(around.workspace, Path(), Path(), {}, run_program, lambda url, headers: answer)
    assert [finding.message for finding in check_sandboxes(asked)] == words


def test_one_check_that_cannot_be_made_does_not_stop_the_others(around: Surroundings) -> None:
    broken = Surroundings(around.workspace, Path("/no/python"), Path(sys.executable), {}, run_program, ask)
    findings = examine(broken)
    assert {finding.check for finding in findings if finding.level == "fails"} == {"interpreter", "packages", "configs"}
    assert {finding.check for finding in findings if finding.level == "ok"} >= {"workspace", "disk"}


def test_the_command_exits_with_1_where_something_fails_and_mends_what_it_may(tmp_path: Path) -> None:
    def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*PRIME, "lab", "doctor", *arguments], cwd=tmp_path, capture_output=True, text=True)

    outside = doctor("--plain")
    assert outside.returncode == 1
    assert "is no workspace\tprime lab setup\n" in outside.stdout
    set_up_workspace(tmp_path)
    shutil.rmtree(tmp_path / "configs/gepa")
    mended = doctor("--fix", "--output", "json")
    report = json.loads(mended.stdout)
    assert (mended.returncode, report["fixed"]) == (0, ["wrote what was missing of the workspace"]), mended.stderr
    assert (tmp_path / "configs/gepa").is_dir()
    assert {finding["level"] for finding in report["findings"]} <= {"ok", "warning"}
