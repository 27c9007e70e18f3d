"""Publishing by the form that twine and `uv publish` send: by hand, and with the real tools, public and private."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement

from hub_server.registry.index import JSON_TYPE
from tests.published_tools import run
from tests.running_hub import Push, RunningHub, answer, make_wheel, sha256

NewUser = Callable[[], tuple[str, str]]


def send(
    hub: RunningHub, owner: str, key: str | None, filename: str, data: bytes, fields: dict[str, str] | None = None
) -> httpx.Response:
    """Send the form as the tools do, with the key as the password."""
    form = {":action": "file_upload", "protocol_version": "1", "filetype": "bdist_wheel", **(fields or {})}
    return httpx.post(
        f"{hub.url}/index/{owner}/legacy/", data=form, files={"content": (filename, data)}, timeout=30,
        auth=("__token__", key) if key else None, trust_env=False,
    )  # fmt: skip


def test_a_form_publishes_a_wheel_by_the_rules_of_a_push(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    about = (
        "Metadata-Version: 2.1\nName: by-form\nVersion: 0.1.0\nSummary: Sorts words\nRequires-Python: >=3.9\n"
        "Requires-Dist: six\nRequires-Dist: near @ https://near.example/near.whl\n"
    )
    filename, data = make_wheel("by-form", "0.1.0", metadata=about)
    assert answer(send(hub, slug, key, filename, data, {"sha256_digest": sha256(data)}))["success"]
    with hub.client() as nobody:
        details = answer(nobody.get(f"/environmentshub/{slug}/by-form/@latest"))["data"]
    assert details["metadata"]["description"] == "Sorts words"
    assert details["metadata"]["dependencies"] == ["six", "near @ https://near.example/near.whl"]
    assert [Requirement(text).name for text in details["url_dependencies"]] == ["near"]
    assert (details["requires_python"], details["package_url"]) == (">=3.9", None)
    assert httpx.get(details["wheel_url"], trust_env=False).content == data
    again = answer(send(hub, slug, key, filename, data))
    assert "already" in again["message"]
    other = send(hub, slug, key, filename, make_wheel("by-form", "0.1.0", code="VALUE = 2\n")[1])
    assert other.status_code == 409
    assert "already exists, and a published version never changes" in other.json()["detail"]
    assert httpx.get(details["wheel_url"], trust_env=False).content == data


def test_a_pushed_version_takes_its_own_wheel_again_by_form_and_no_other(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        push = Push(client, "both-ways", "0.1.0", visibility="PRIVATE")
        assert push.run().is_success
        before = answer(client.get(f"/environmentshub/{slug}/both-ways/versions"))
        assert send(hub, slug, key, push.filename, push.wheel).is_success
        assert answer(client.get(f"/environmentshub/{slug}/both-ways/versions")) == before
        filename, data = make_wheel("both-ways", "0.2.0")
        assert send(hub, slug, key, filename, data).is_success
        assert httpx.get(f"{hub.url}/index/{slug}/simple/both-ways/", trust_env=False).status_code == 404
        assert answer(client.get(f"/environmentshub/{slug}/both-ways/@latest"))["data"]["visibility"] == "PRIVATE"


def test_what_cannot_be_published_by_form_says_why_and_leaves_nothing(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    filename, data = make_wheel("refused", "0.1.0")
    url = f"{hub.url}/index/{slug}/legacy/"
    auth = ("__token__", key)
    broken = b'--x\r\nContent-Disposition: form-data; name="content"; filename="a.whl"\r\n\r\nPK'
    cases = {
        "announced was": send(hub, slug, key, filename, data, {"sha256_digest": "0" * 64}),
        "not a wheel": send(hub, slug, key, "refused-0.1.0.tar.gz", data),
        "takes only wheels": send(hub, slug, key, filename, data, {"filetype": "sdist"}),
        "not one of this hub": send(hub, slug, key, filename, data, {":action": "submit"}),
        "whl does not verify": send(hub, slug, key, filename, data, {"attestations": "[{}]"}),
        "not a file name": send(hub, slug, key, "a b-0.1.0-py3-none-any.whl", data),
        "not the file name of a wheel": send(hub, slug, key, "refused.whl", data),
        "does not belong": send(hub, slug, key, "other-0.1.0-py3-none-any.whl", data),
        "not a readable zip": send(hub, slug, key, filename, b"no zip"),
        "no file": send(hub, slug, key, filename, b""),
        "multipart/form-data": httpx.post(url, json={}, auth=auth, trust_env=False),
        "ends too early": httpx.post(
            url, content=broken, headers={"Content-Type": "multipart/form-data; boundary=x"}, auth=auth, trust_env=False
        ),
        "cannot be read": httpx.post(
            url, content=b"??", headers={"Content-Type": "multipart/form-data; boundary=x"}, auth=auth, trust_env=False
        ),
    }
    for words, response in cases.items():
        assert response.status_code == 400, (words, response.text)
        assert words in response.json()["detail"]
    with hub.client(key) as client:
        assert answer(client.get("/environmentshub/", params={"mine_only": True}))["total_count"] == 0
    assert not list((hub.data_dir / "blobs" / "incoming").iterdir())
    assert not (hub.data_dir / "blobs" / "sha256" / sha256(data)[:2] / sha256(data)).exists()


def named(name: str, version: str, *, needs: str = "", **members: str) -> tuple[str, bytes]:
    """Return a wheel of these files alone: `a__b_py` is a/b.py."""
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    extra = {key.replace("__", "/", 1).replace("_py", ".py"): text for key, text in members.items()}
    return make_wheel(name, version, metadata=about, extra=extra, has_module=False)


def test_a_library_that_is_imported_by_another_name_is_taken_by_form_and_marked(
    hub: RunningHub, new_user: NewUser
) -> None:
    slug, key = new_user()
    for version in ("0.1.0", "0.2.0"):
        assert send(hub, slug, key, *named("PyYAML-like", version, yaml_py="VALUE = 1\n")).is_success
    with hub.client(key) as client:
        details = answer(client.get(f"/environmentshub/{slug}/PyYAML-like/@latest"))["data"]
        assert (details["metadata"]["kind"], details["check"]["status"]) == ("library", "skipped")
        assert details["check"]["reason"] == "a library, which has no environment to load"
        retried = client.post(f"/environmentshub/{slug}/pyyaml-like/actions/retry", json={})
        assert retried.status_code == 409
        assert answer(client.get(f"/environmentshub/{slug}/PyYAML-like/@latest"))["data"] == details


def test_a_wheel_that_cannot_be_imported_as_what_it_is_is_refused_by_form(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    needs = "Requires-Dist: Verifiers>=0.1.14 ; python_version > '3'\n"
    cases = {
        "it has other": named("no-entry", "0.1.0", needs=needs, other_py="VALUE = 1\n"),
        "no_entry/__init__.py, by which the environment 'no-entry' is imported": named(
            "no-entry", "0.1.0", needs=needs, no_entry__core_py="VALUE = 1\n"
        ),
        "it has nothing that can be imported": named("no-entry", "0.1.0"),
    }
    for words, (filename, data) in cases.items():
        refused = send(hub, slug, key, filename, data)
        assert refused.status_code == 400, (words, refused.text)
        assert words in refused.json()["detail"]
        assert not (hub.data_dir / "blobs" / "sha256" / sha256(data)[:2] / sha256(data)).exists()
    with hub.client(key) as client:
        assert answer(client.get("/environmentshub/", params={"mine_only": True}))["total_count"] == 0


def test_only_the_owner_publishes_and_only_with_a_key(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    stranger, stranger_key = new_user()
    filename, data = make_wheel("mine", "0.1.0")
    with hub.client(key) as client:
        assert Push(client, "other", "0.1.0", visibility="PRIVATE").run().is_success
        index = answer(client.get(f"/environmentshub/{slug}/other/@latest"))["data"]["install_index_url"]
    token = httpx.URL(index).password
    assert send(hub, slug, token, filename, data).status_code == 401
    assert send(hub, slug, None, filename, data).status_code == 401
    refused = send(hub, slug, stranger_key, filename, data)
    assert refused.status_code == 403
    assert refused.json()["detail"] == f"you are {stranger!r} and cannot publish as {slug!r}"
    assert send(hub, slug, key, filename, data).is_success


@pytest.mark.parametrize("tool", ["twine", "uv"])
def test_the_tool_publishes_repeats_and_is_told_of_other_bytes(
    hub: RunningHub, new_user: NewUser, tools: Path, tmp_path: Path, tool: str
) -> None:
    slug, key = new_user()
    url = f"{hub.url}/index/{slug}/legacy/"

    def publish(wheel: Path, key: str = key) -> subprocess.CompletedProcess[str]:
        if tool == "uv":
            return run(tools / "uv", "publish", "--publish-url", url, "--token", key, "--no-cache", wheel)
        options = ["--non-interactive", "--disable-progress-bar", "--verbose", "--repository-url", url]
        return run(tools / "twine", "upload", *options, "-u", "__token__", "-p", key, wheel)

    filename, data = make_wheel(f"sent-by-{tool}", "0.1.0")
    wheel = tmp_path / filename
    wheel.write_bytes(data)
    for _ in range(2):
        done = publish(wheel)
        assert done.returncode == 0, done.stdout + done.stderr
    with hub.client() as nobody:
        assert answer(nobody.get(f"/environmentshub/{slug}/sent-by-{tool}/@latest"))["data"]["wheel_sha256"] == sha256(
            data
        )
    wheel.write_bytes(make_wheel(f"sent-by-{tool}", "0.1.0", code="VALUE = 2\n")[1])
    refused = publish(wheel)
    assert refused.returncode != 0
    said = "".join((refused.stdout + refused.stderr).split())
    assert "409" in said
    assert "neverchanges" in said, refused.stdout + refused.stderr
    wrong_key = publish(wheel, "prime_wrong")
    assert wrong_key.returncode != 0
    assert key not in refused.stdout + refused.stderr


def test_a_first_version_by_form_is_whole_in_list_index_and_audit_log(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    about = "Metadata-Version: 2.1\nName: First.One\nVersion: 1.0\nSummary: a first one\n"
    filename, data = make_wheel("first-one", "1.0", metadata=about)
    with hub.client(key) as client:
        form = {":action": "file_upload"}
        sent = client.post(f"{hub.url}/index/{slug}/legacy/", data=form, files={"content": (filename, data)})
        assert sent.is_success, sent.text
        row = client.get(f"/environmentshub/{slug}/first-one/@latest").json()["data"]
        listed = client.get("/environmentshub/", params={"owner": slug}).json()["data"]
        events = client.get("/user/audit").json()["data"]
        whole = client.get(f"{hub.url}/simple/first-one/", headers={"Accept": JSON_TYPE}).json()
    assert row["name"] == "First.One"
    assert [(each["name"], each["description"]) for each in listed] == [("First.One", "a first one")]
    assert [file["filename"] for file in whole["files"]] == [filename]
    assert {"environment.create", "version.publish"} <= {event["action"] for event in events}
