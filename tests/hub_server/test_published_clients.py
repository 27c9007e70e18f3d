"""The published `prime` of both generations, unchanged, against this hub: only its URLs are set."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement

from tests.published_tools import CLIENTS, PublishedClient, installed, make_client
from tests.running_hub import Push, RunningHub, answer

NewUser = Callable[[], tuple[str, str]]


NEWEST, *OLDER = CLIENTS
GENERATIONS = [
    pytest.param(NEWEST, id=f"prime-{NEWEST}"),
    *(pytest.param(older, id=f"prime-{older}", marks=pytest.mark.slow) for older in OLDER),
]


@pytest.fixture(params=GENERATIONS)
def client(
    request: pytest.FixtureRequest, hub: RunningHub, tool_cache: Path, tools: Path, tmp_path: Path
) -> PublishedClient:
    """A published client without a key, in a workspace of its own."""
    generation: str = request.param
    binaries = installed(tool_cache, *CLIENTS[generation], uv=tools / "uv")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return make_client(hub, generation, binaries / "prime", tools / "uv", workspace, key="")


@pytest.fixture
def owner(client: PublishedClient, new_user: NewUser) -> str:
    """The slug of a user as whom the client works."""
    slug, client.key = new_user()
    return slug


def push(client: PublishedClient, slug: str, name: str, *versions: str, visibility: str = "PRIVATE") -> None:
    """Publish versions of an environment by hand, which costs less than building them."""
    with client.hub.client(client.key) as api:
        for version in versions or ("0.1.0",):
            code = f"def load_environment():\n    return '{name} {version}'\n"
            assert Push(api, name, version, code=code, visibility=visibility).run().is_success


def read_line(process: subprocess.Popen[str], pattern: str) -> str:
    """Read what a process prints up to the first match."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError("the process ended before it printed what was waited for")


def test_login_waits_for_the_page_and_keeps_the_key(client: PublishedClient, new_user: NewUser) -> None:
    slug, key = new_user()
    process = subprocess.Popen(
        [*client.command, "login", "--headless"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, env={**client.environment(), "PYTHONUNBUFFERED": "1"}, cwd=client.workspace,
    )  # fmt: skip
    try:
        page = read_line(process, r"(http\S+/dashboard/tokens/challenge\?code=\S+)")
        with httpx.Client(trust_env=False) as browser:
            shown = browser.get(page)
            hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', shown.text))
            form = {**hidden, "decision": "approve", "api_key": key}
            assert browser.post(page.partition("?")[0], data=form).status_code == 200
        said, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "Successfully logged in" in said
    kept = json.loads((client.workspace / ".prime" / "config.json").read_text())
    assert kept["api_key"] not in ("", key)
    assert slug in client.prints("whoami")
    assert json.loads(client.prints("teams", "list", "--output", "json"))["total_count"] == 0


@pytest.mark.slow
def test_a_key_and_the_urls_are_taken_from_its_own_configuration(client: PublishedClient, new_user: NewUser) -> None:
    slug, key = new_user()
    client.prints("config", "set-api-key", key)
    for name in ("base", "frontend", "inference", "traces"):
        client.prints("config", f"set-{name}-url", client.hub.url)
    kept = json.loads((client.workspace / ".prime" / "config.json").read_text())
    assert {kept[f"{name}_url"] for name in ("base", "frontend", "traces")} == {client.hub.url}
    assert slug in client.prints("whoami")


def test_a_wrong_key_is_told_from_a_right_one(client: PublishedClient) -> None:
    client.key = "prime_wrong"
    assert "unauthorized" in client.refused("whoami")


def test_an_environment_is_pushed_repeated_and_raised(client: PublishedClient, owner: str) -> None:
    name = f"pushed-{client.generation.replace('.', '-')}"
    folder = client.write_environment(name)
    said = client.prints("env", "push", name, "--visibility", "PRIVATE", online=True)
    assert f"Created environment: {owner}/{name}" in said
    assert f"{client.hub.url}/dashboard/environments/{owner}/{name}" in said
    with client.hub.client(client.key) as api:
        before = answer(api.get(f"/environmentshub/{owner}/{name}/versions"))
        assert "Successfully pushed" in client.prints("env", "push", name, online=True)
        assert answer(api.get(f"/environmentshub/{owner}/{name}/versions")) == before
        (folder / f"{name.replace('-', '_')}.py").write_text("def load_environment():\n    return 'other'\n")
        refused = client.refused("env", "push", name, online=True)
        assert "409" in refused
        assert "a published version never changes" in refused
        assert answer(api.get(f"/environmentshub/{owner}/{name}/versions")) == before
        assert "0.1.0 → 0.1.1" in client.prints("env", "push", name, "--auto-bump", online=True)
        details = answer(api.get(f"/environmentshub/{owner}/{name}/@latest"))["data"]
    assert (details["semantic_version"], details["visibility"]) == ("0.1.1", "PRIVATE")
    assert details["metadata"]["tags"] == ["math"]
    kept = json.loads((folder / ".prime" / ".env-metadata.json").read_text())
    assert (kept["owner"], kept["name"], kept["environment_id"]) == (owner, name, details["id"])


def test_environments_are_listed_and_shown(client: PublishedClient, owner: str) -> None:
    push(client, owner, "shown", "0.1.0", "0.2.0")
    push(client, owner, "other", visibility="PUBLIC")
    listed = json.loads(client.prints("env", "list", "--mine", "--sort", "name", "--order", "asc", "--output", "json"))
    assert [row["environment"] for row in listed["environments"]] == [f"{owner}/other", f"{owner}/shown"]
    found = json.loads(client.prints("env", "list", "--search", "shown", "--owner", owner, "--output", "json"))
    assert [(row["version"], row["visibility"], row["tags"]) for row in found["environments"]] == [
        ("0.2.0", "PRIVATE", ["toy"])
    ]
    status = json.loads(client.prints("env", "status", f"{owner}/shown", "--output", "json"))
    assert status["latest_version"]["semantic_version"] == "0.2.0"
    assert "about shown" in client.prints("env", "info", f"{owner}/shown")


def test_versions_are_listed_and_deleted_by_the_short_hash(client: PublishedClient, owner: str) -> None:
    push(client, owner, "several", "0.1.0", "0.2.0")
    rows = client.prints("env", "version", "list", f"{owner}/several").splitlines()
    short = {found[1]: found[2] for row in rows if (found := re.search(r"(0\.\d\.0) .* ([0-9a-f]{8}) ", row))}
    assert short.keys() == {"0.1.0", "0.2.0"}
    client.prints("env", "version", "delete", f"{owner}/several", short["0.2.0"], "--force")
    assert short["0.2.0"] not in client.prints("env", "version", "list", f"{owner}/several", "--full-hashes")
    assert "0.1.0" in client.prints("env", "info", f"{owner}/several", "--version", "0.1.0")
    client.prints("env", "delete", f"{owner}/several", "--force")
    assert "not found" in client.refused("env", "status", f"{owner}/several")


def test_sources_are_pulled(client: PublishedClient, owner: str) -> None:
    push(client, owner, "pulled", "0.1.0", "0.2.0")
    client.prints("env", "pull", f"{owner}/pulled")
    assert 'version = "0.2.0"' in (client.workspace / "pulled" / "pyproject.toml").read_text()
    client.prints("env", "pull", f"{owner}/pulled@0.1.0", "--target", "before")
    assert 'version = "0.1.0"' in (client.workspace / "before" / "pyproject.toml").read_text()
    kept = json.loads((client.workspace / "before" / ".prime" / ".env-metadata.json").read_text())
    assert (kept["owner"], kept["name"], kept["version"]) == (owner, "pulled", "0.1.0")


def test_public_environments_are_installed(client: PublishedClient, owner: str) -> None:
    name = f"installs-{client.generation.replace('.', '-')}"
    push(client, owner, name, "0.1.0", "0.2.0", visibility="PUBLIC")
    client.prints("env", "install", f"{owner}/{name}", online=True)
    assert client.loads(name) == f"{name} 0.2.0"
    client.prints("env", "install", f"{owner}/{name}@0.1.0", online=True)
    assert client.loads(name) == f"{name} 0.1.0"


@pytest.mark.slow
def test_private_environments_are_installed(client: PublishedClient, owner: str) -> None:
    """The newer generation asks the index with a token, the older one builds the source."""
    name = f"private-{client.generation.replace('.', '-')}"
    client.write_environment(name)
    client.prints("env", "push", name, "--visibility", "PRIVATE", online=True)
    client.prints("env", "install", f"{owner}/{name}", online=True)
    assert client.loads(name) == f"{name} 0.1.0"


@pytest.mark.slow
def test_what_an_environment_needs_from_an_address_is_installed_with_it(client: PublishedClient, owner: str) -> None:
    """uv takes a requirement with an address only as an argument, so the hub tells clients of it."""
    suffix = client.generation.replace(".", "-")
    push(client, owner, f"needed-{suffix}", visibility="PUBLIC")
    with client.hub.client(client.key) as api:
        address = answer(api.get(f"/environmentshub/{owner}/needed-{suffix}/@latest"))["data"]["wheel_url"]
        client.write_environment(f"needing-{suffix}", dependencies=f'["needed-{suffix} @ {address}"]')
        client.prints("env", "push", f"needing-{suffix}", "--visibility", "PUBLIC", online=True)
        details = answer(api.get(f"/environmentshub/{owner}/needing-{suffix}/@latest"))["data"]
    assert [Requirement(text).url for text in details["url_dependencies"]] == [address]
    client.prints("env", "install", f"{owner}/needing-{suffix}", online=True)
    assert client.loads(f"needing-{suffix}") == f"needing-{suffix} 0.1.0"
    assert client.loads(f"needed-{suffix}") == f"needed-{suffix} 0.1.0"


@pytest.mark.slow
def test_what_belongs_to_others_is_refused_with_the_hubs_words(client: PublishedClient, new_user: NewUser) -> None:
    slug, client.key = new_user()
    push(client, slug, "hidden")
    push(client, slug, "open", visibility="PUBLIC")
    stranger, client.key = new_user()
    assert f"environment {slug}/hidden not found on this hub" in client.refused("env", "info", f"{slug}/hidden")
    assert "not found on this hub" in client.refused("env", "install", f"{slug}/hidden")
    assert f"belongs to '{slug}'" in client.refused("env", "delete", f"{slug}/open", "--force")
    client.write_environment("open")
    assert f"you are '{stranger}' and cannot act as '{slug}'" in client.refused(
        "env", "push", "open", "--owner", slug, online=True
    )
    assert "about open" in client.prints("env", "info", f"{slug}/open")


def write_results(folder: Path, count: int) -> Path:
    """Write an evaluation's results as the published tools leave them."""
    folder.mkdir(parents=True)
    metadata = {"env_id": "sums", "model": "tiny", "num_examples": count, "rollouts_per_example": 1, "avg_reward": 0.5}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    samples = [
        {"id": n, "task": "default", "prompt": [{"role": "user", "content": f"1+{n}"}], "reward": n % 2, "answer": n}
        for n in range(count)
    ]
    (folder / "results.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    return folder


def test_evaluations_are_pushed_listed_and_read(client: PublishedClient, owner: str) -> None:
    push(client, owner, "sums")
    results = str(write_results(client.workspace / "outputs" / "evals" / "sums--tiny" / "0123abcd", 4))
    said = client.prints("eval", "push", results, "--env", f"{owner}/sums")
    found = re.search(rf"{client.hub.url}/dashboard/evaluations/(\S+)", said)
    assert found
    listed = json.loads(client.prints("eval", "list", "--env", f"{owner}/sums", "--output", "json"))
    assert [row["evaluation_id"] for row in listed["evaluations"]] == [found[1]]
    assert found[1] in client.prints("eval", "list")
    read = json.loads(client.prints("eval", "get", found[1]))
    assert (read["status"], read["model_name"], read["environment_names"]) == ("COMPLETED", "tiny", [f"{owner}/sums"])
    assert (read["total_samples"], read["avg_score"], read["metrics"]["reward"]) == (4, 0.5, 0.5)
    page = json.loads(client.prints("eval", "samples", found[1], "--page", "2", "--num", "3"))
    assert [sample["answer"] for sample in page["samples"]] == [3]
    again = client.prints("eval", "push", results, "--eval", found[1])
    assert found[1] in again
    assert json.loads(client.prints("eval", "get", found[1]))["total_samples"] == 4


def test_the_source_of_a_version_is_looked_into(client: PublishedClient, owner: str) -> None:
    push(client, owner, "seen")
    whole = json.loads(client.prints("env", "inspect", f"{owner}/seen", "--output", "json"))
    assert (whole["kind"], sorted(entry["name"] for entry in whole["entries"])) == (
        "directory",
        ["pyproject.toml", "seen.py"],
    )
    assert "seen.py" in client.prints("env", "inspect", f"{owner}/seen@0.1.0")
    assert "def load_environment" in client.prints("env", "inspect", f"{owner}/seen", "seen.py")


def test_an_environment_is_forked(client: PublishedClient, owner: str, new_user: NewUser) -> None:
    push(client, owner, "source", visibility="PUBLIC")
    forker, client.key = new_user()
    told = json.loads(client.prints("fork", f"{owner}/source", "--output", "json"))
    assert told["environment_id"]
    assert "about source" in client.prints("env", "info", f"{forker}/{told['name']}")


def test_secrets_are_kept_changed_and_linked(client: PublishedClient, owner: str) -> None:
    push(client, owner, "guarded")
    environment = f"{owner}/guarded"
    made = json.loads(client.prints("secret", "create", "-n", "WIDE", "-v", "one", "--output", "json"))
    client.prints("secret", "update", made["id"], "-v", "two", "-d", "for all")
    (row,) = json.loads(client.prints("secret", "list", "--output", "json"))["secrets"]
    assert (row["id"], row["name"], row["description"]) == (made["id"], "WIDE", "for all")
    assert "WIDE" in client.prints("secret", "get", made["id"])
    client.prints("env", "secret", "create", environment, "-n", "NARROW", "-v", "three")
    client.prints("env", "secret", "link", made["id"], environment)
    rows = json.loads(client.prints("env", "secret", "list", environment, "--output", "json"))["secrets"]
    assert sorted(row["name"] for row in rows) == ["NARROW", "WIDE"]
    (narrow,) = [row["id"] for row in rows if row["name"] == "NARROW"]
    client.prints("env", "secret", "update", environment, "--id", narrow, "-v", "four")
    client.prints("env", "secret", "unlink", made["id"], environment, "--yes")
    client.prints("env", "secret", "delete", environment, "--id", narrow, "--yes")
    client.prints("secret", "delete", made["id"], "--yes")
    assert json.loads(client.prints("env", "secret", "list", environment, "--output", "json"))["secrets"] == []
    assert json.loads(client.prints("secret", "list", "--output", "json"))["secrets"] == []


@pytest.mark.slow
def test_variables_are_kept_and_changed(client: PublishedClient, owner: str) -> None:
    push(client, owner, "tuned")
    environment = f"{owner}/tuned"
    client.prints("env", "var", "create", environment, "-n", "LEVEL", "-v", "easy")
    (row,) = json.loads(client.prints("env", "var", "list", environment, "--output", "json"))["variables"]
    assert (row["name"], row["value"]) == ("LEVEL", "easy")
    client.prints("env", "var", "update", row["id"], environment, "-v", "hard")
    (row,) = json.loads(client.prints("env", "var", "list", environment, "--output", "json"))["variables"]
    assert row["value"] == "hard"
    client.prints("env", "var", "delete", row["id"], environment, "--yes")
    assert json.loads(client.prints("env", "var", "list", environment, "--output", "json"))["variables"] == []


@pytest.mark.slow
def test_a_team_is_switched_to_and_published_and_evaluated_for(client: PublishedClient, owner: str) -> None:
    team = f"team-of-{owner}"
    with client.hub.client(client.key) as api:
        answer(api.post("/teams", json={"slug": team, "name": "The team"}))
    (row,) = json.loads(client.prints("teams", "list", "--output", "json"))["teams"]
    assert (row["slug"], row["name"]) == (team, "The team")
    client.prints("switch", team)
    assert "The team" in client.prints("whoami")
    members = json.loads(client.prints("teams", "members", "--output", "json"))["members"]
    assert [member["userName"] for member in members] == [owner]
    client.write_environment("ours")
    assert f"{team}/ours" in client.prints("env", "push", "ours", online=True)
    results = str(write_results(client.workspace / "outputs" / "evals" / "ours--tiny" / "0123abcd", 2))
    client.prints("eval", "push", results, "--env", f"{team}/ours")
    (listed,) = json.loads(client.prints("eval", "list", "--output", "json"))["evaluations"]
    assert (listed["environment_names"], listed["owner"]["name"]) == ([f"{team}/ours"], team)


@pytest.mark.slow
@pytest.mark.parametrize("client", OLDER, indirect=True)
def test_the_older_generation_lists_checks_as_actions(client: PublishedClient, owner: str) -> None:
    push(client, owner, "checked")
    told = json.loads(client.prints("env", "action", "list", f"{owner}/checked", "--output", "json"))
    assert isinstance(told["actions"], list)


def test_traces_are_uploaded_found_and_deleted(client: PublishedClient, owner: str) -> None:
    lines = client.workspace / "traces.jsonl"
    lines.write_text(
        json.dumps({"id": f"trace-of-{owner}", "task": {"data": {"idx": 0}}, "nodes": [], "rewards": {}}) + "\n"
    )
    assert json.loads(client.prints("traces", "upload", str(lines), "--output", "json"))["num_batches"] == 1
    (item,) = json.loads(client.prints("traces", "list", "--output", "json"))["items"]
    assert item["trace_id"] == f"trace-of-{owner}"
    read = json.loads(client.prints("traces", "get", item["trace_id"], "--output", "json"))
    assert read["trace_id"] == item["trace_id"]
    client.prints("traces", "delete", item["trace_id"], "--yes")
    assert json.loads(client.prints("traces", "list", "--output", "json"))["items"] == []
