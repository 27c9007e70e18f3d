"""`prime eval push`, `get`, `samples` and `list --hub` as a user types them, against a real hub."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.running_hub import Push, RunningHub, answer, start_hub

PRIME = [sys.executable, "-m", "prime_cli.main"]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    running = start_hub(tmp_path_factory.mktemp("hub") / "data")
    for owner in ("ada-lovelace", "grace-hopper"):
        with running.client(running.key_of(owner)) as client:
            assert Push(client, "squares", "0.1.0", visibility="PRIVATE").run().is_success
    yield running
    running.end()


@dataclass
class Workspace:
    """A folder with results, as one user of the hub."""

    folder: Path
    hub: RunningHub
    user: str = "ada-lovelace"

    def prime(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        login = {"PRIME_API_KEY": self.hub.key_of(self.user), "PRIME_API_BASE_URL": self.hub.url}
        done = subprocess.run(
            [*PRIME, *arguments], cwd=self.folder, capture_output=True, text=True, env={**os.environ, **login}
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        data = json.loads(self.prime("--output", "json", *arguments, code=code).stdout)
        assert isinstance(data, dict)
        return data

    def write(self, run: str, rollouts: list[dict[str, Any]], **metadata: Any) -> Path:
        """Write an evaluation where `prime eval run` would."""
        folder = self.folder / "outputs/evals/squares--tiny" / run
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.jsonl").write_text("".join(json.dumps(rollout) + "\n" for rollout in rollouts))
        settings = {
            "env_id": "ada-lovelace/squares", "model": "tiny", "num_examples": 4, "rollouts_per_example": 2,
            "avg_reward": 0.5, "avg_metrics": {"right": 0.5}, "avg_error": 0.0,
            "version_info": {"env_version": "0.1.0"}, **metadata,
        }  # fmt: skip
        (folder / "metadata.json").write_text(json.dumps(settings))
        return folder


@pytest.fixture
def workspace(tmp_path: Path, hub: RunningHub) -> Workspace:
    return Workspace(tmp_path, hub)


def rollouts(count: int = 8) -> list[dict[str, Any]]:
    return [
        {
            "example_id": number // 2, "prompt": [{"role": "user", "content": f"{number}?"}],
            "completion": [{"role": "assistant", "content": f"[bold]it is {number}[/bold]"}],
            "reward": float(number % 2), "error": None,
        }
        for number in range(count)
    ]  # fmt: skip


def test_an_evaluation_is_pushed_and_read_back(workspace: Workspace) -> None:
    folder = workspace.write("first", rollouts())
    pushed = workspace.json("eval", "push", str(folder), "--name", "the first")
    assert (pushed["samples_added"], pushed["samples_skipped"]) == (8, 0)
    evaluation = pushed["evaluation_id"]
    assert pushed["url"] == f"{workspace.hub.url}/dashboard/evaluations/{evaluation}"
    facts = workspace.json("eval", "get", evaluation)
    assert (facts["name"], facts["status"], facts["total_samples"]) == ("the first", "COMPLETED", 8)
    assert facts["metrics"] == {"avg_reward": 0.5, "avg_error": 0.0, "right": 0.5}
    assert facts["avg_score"] == 0.5
    assert facts["environment_names"] == ["ada-lovelace/squares"]
    assert facts["version_id"]
    assert facts["metadata"]["rollouts_per_example"] == 2
    page = workspace.json("eval", "samples", evaluation, "-p", "2", "-n", "3")
    assert (page["total"], page["page"], page["limit"]) == (8, 2, 3)
    assert [(row["example_id"], row["rollout_number"]) for row in page["samples"]] == [(1, 1), (2, 0), (2, 1)]
    assert "[bold]it is 3[/bold]" in workspace.prime("eval", "samples", evaluation).stdout
    shown = workspace.prime("eval", "get", evaluation).stdout
    assert "COMPLETED" in shown
    assert "0.500" in shown
    listed = workspace.json("eval", "list", "--hub", "--env", "ada-lovelace/squares")
    assert evaluation in [row["evaluation_id"] for row in listed["evaluations"]]
    assert evaluation in workspace.prime("eval", "list", "--hub", "--plain").stdout


def test_an_evaluation_of_the_hub_is_compared_with_one_that_is_here(workspace: Workspace) -> None:
    after = [{**rollout, "reward": 1.0} for rollout in rollouts(220)]
    evaluation = workspace.json("eval", "push", str(workspace.write("after", after)))["evaluation_id"]
    workspace.write("before", rollouts(220))
    found = workspace.json("eval", "compare", "before", f"hub:{evaluation}")["comparisons"][0]
    assert (found["pairing"]["pairs"], found["difference"]) == (110, 0.5)
    fetched = workspace.folder / "outputs/evals/hub" / evaluation
    written = (fetched / "metadata.json").stat().st_mtime_ns
    assert workspace.json("eval", "show", f"hub:{evaluation}")["num_rollouts"] == 220
    assert (fetched / "metadata.json").stat().st_mtime_ns == written
    assert "not found" in workspace.prime("eval", "show", "hub:nothing", code=1).stderr.lower()


def test_a_repeated_push_goes_on_with_the_same_evaluation(workspace: Workspace) -> None:
    folder = workspace.write("again", rollouts(4))
    first = workspace.json("eval", "push", str(folder))
    workspace.write("again", rollouts(6), avg_reward=0.9)
    second = workspace.json("eval", "push", str(folder), "--public")
    assert second["evaluation_id"] == first["evaluation_id"]
    assert (second["samples_added"], second["samples_repeated"]) == (2, 4)
    stranger = Workspace(workspace.folder, workspace.hub, "grace-hopper")
    assert stranger.json("eval", "get", first["evaluation_id"])["metrics"]["avg_reward"] == 0.9
    # Another user has no right to that evaluation, and neither may change it by its id.
    refused = stranger.prime("eval", "push", str(folder), "--eval", first["evaluation_id"], code=1)
    assert "belongs to 'ada-lovelace'" in refused.stderr


def test_a_local_environment_counts_as_what_it_was_published_as(workspace: Workspace) -> None:
    local = workspace.folder / "environments" / "squares"
    (local / ".prime").mkdir(parents=True)
    (local / "pyproject.toml").write_text('[project]\nname = "squares"\n')
    published = {"owner": "ada-lovelace", "name": "squares"}
    (local / ".prime" / ".env-metadata.json").write_text(json.dumps(published))
    workspace.write(
        "local", rollouts(2), env_id="squares", version_info={"env_version": "9.9.9"}, avg_reward=float("nan")
    )
    pushed = workspace.json("eval", "push")
    facts = workspace.json("eval", "get", pushed["evaluation_id"])
    assert facts["environment_names"] == ["ada-lovelace/squares"]
    assert facts["version_id"] is None, "the hub has no version of this number"
    assert facts["metrics"]["avg_reward"] is None


def test_an_evaluation_that_the_hub_does_not_know_any_more_is_begun_anew(workspace: Workspace) -> None:
    folder = workspace.write("moved", rollouts(2))
    (folder / "pushed.json").write_text(json.dumps({workspace.hub.url: "c0", "http://elsewhere": "c1"}))
    pushed = workspace.json("eval", "push", str(folder))
    assert pushed["samples_added"] == 2
    remembered = json.loads((folder / "pushed.json").read_text())
    assert remembered == {workspace.hub.url: pushed["evaluation_id"], "http://elsewhere": "c1"}


def test_a_stranger_sees_neither_the_evaluation_nor_its_rollouts(workspace: Workspace) -> None:
    pushed = workspace.json("eval", "push", str(workspace.write("mine", rollouts(2))))
    stranger = Workspace(workspace.folder, workspace.hub, "grace-hopper")
    for command in ("get", "samples"):
        assert "not found" in stranger.prime("eval", command, pushed["evaluation_id"], code=1).stderr
    assert stranger.json("eval", "list", "--hub", "--env", "ada-lovelace/squares")["total"] == 0


def test_without_a_path_all_evaluations_go_and_one_that_fails_does_not_hold_the_others(workspace: Workspace) -> None:
    workspace.write("good", rollouts(2))
    workspace.write("bad", rollouts(2), env_id="nobodys-environment")
    told = workspace.json("eval", "push", code=1)
    assert sorted(row["status"] for row in told["results"]) == ["failed", "pushed"]
    failed = next(row for row in told["results"] if row["status"] == "failed")
    assert failed["eval_id"] is None
    assert "nobodys-environment" in failed["error"]
    assert len(workspace.json("eval", "push", "-e", "ada-lovelace/squares")["results"]) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["push", "nowhere"], 2, "there is no evaluation 'nowhere' here"),
        (["push"], 1, "there is no evaluation here"),
        (["push", "outputs", "-e", "ada-lovelace/circles"], 1, "circles not found on this hub"),
        (["push", "outputs", "-e", "squares"], 2, "on which environment of the hub"),
        (["push", "outputs", "--eval", "c123"], 1, "c123 not found"),
        (["get", "../users"], 2, "is not the id of an evaluation"),
        (["samples", "c123"], 1, "not found"),
    ],
)
def test_what_cannot_be_is_one_line(workspace: Workspace, arguments: list[str], code: int, words: str) -> None:
    if "outputs" in arguments:
        workspace.write("only", rollouts(2))
    assert words in workspace.prime("eval", *arguments, code=code).stderr


def test_thirty_megabytes_go_through_the_command_and_a_cut_line_stays_behind(workspace: Workspace) -> None:
    noise = random.Random(0)
    many = [
        {
            "example_id": n,
            "reward": 1.0,
            "completion": [{"role": "assistant", "content": noise.randbytes(25_000).hex()}],
        }
        for n in range(620)
    ]
    folder = workspace.write("large", many)
    with (folder / "results.jsonl").open("a") as file:
        file.write('{"example_id": 9999, "rew')
    assert (folder / "results.jsonl").stat().st_size > 30_000_000
    pushed = workspace.json("eval", "push", str(folder))
    assert pushed["samples_added"] == 620
    with workspace.hub.client(workspace.hub.key_of("ada-lovelace")) as client:
        path = f"/evaluations/{pushed['evaluation_id']}/samples"
        last = answer(client.get(path, params={"page": 620, "limit": 1}))["samples"][0]
    assert last["completion"] == many[-1]["completion"]
    assert last["example_id"] == 619


def test_an_evaluation_is_meant_by_its_id_and_its_logs_are_where_it_ran(workspace: Workspace) -> None:
    folder = workspace.write("1a2b3c4d", rollouts(2))
    (folder / "logs").mkdir()
    (folder / "logs" / "squares_worker_0.log").write_text("loaded\nscored\n")
    assert workspace.json("eval", "logs", "1a2b", "-n", "1")["logs"] == {"squares_worker_0.log": "scored"}
    pushed = workspace.json("eval", "push", "1a2b3c4d")["evaluation_id"]
    refused = workspace.prime("eval", "logs", pushed, code=1)
    assert f"the hub keeps no logs of evaluation {pushed} (COMPLETED): it did not run there" in refused.stderr
    assert "of this workspace" in workspace.prime("eval", "stop", "1a2b3c4d", code=1).stderr


def test_an_open_evaluation_of_the_hub_is_cancelled_once_and_an_ended_one_says_how_it_ended(
    workspace: Workspace,
) -> None:
    with workspace.hub.client(workspace.hub.key_of(workspace.user)) as client:
        begun = answer(client.post("evaluations/", json={"name": "open", "model_name": "tiny"}))
    opened = begun["evaluation_id"]
    assert workspace.json("eval", "stop", opened) == {"evaluation_id": opened, "status": "CANCELLED"}
    assert workspace.json("eval", "get", opened)["status"] == "CANCELLED"
    done = workspace.json("eval", "push", str(workspace.write("done", rollouts(2))))["evaluation_id"]
    assert f"evaluation {done} has ended already: COMPLETED" in workspace.prime("eval", "stop", done, code=1).stderr
    stranger = Workspace(workspace.folder, workspace.hub, "grace-hopper")
    assert "not found" in stranger.prime("eval", "stop", opened, code=1).stderr


def test_the_viewer_lists_evaluations_of_the_hub_and_brings_their_rollouts_here(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prime_cli.viewer.reading.hub_runs import fetch, list_hub_evaluations

    monkeypatch.chdir(workspace.folder)
    assert list_hub_evaluations() is None
    monkeypatch.setenv("PRIME_API_BASE_URL", workspace.hub.url)
    monkeypatch.setenv("PRIME_API_KEY", workspace.hub.key_of(workspace.user))
    pushed = workspace.json("eval", "push", str(workspace.write("viewed", rollouts(2))))
    address, evaluations = list_hub_evaluations() or ("", [])
    found = next(evaluation for evaluation in evaluations if evaluation.id == pushed["evaluation_id"])
    assert (address, found.rollouts, found.model) == (workspace.hub.url, 2, "tiny")
    here = fetch(found)
    assert here.results.read_text().count("\n") == 2
    assert here.environment == "ada-lovelace/squares"
