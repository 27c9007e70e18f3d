"""Attestations (PEP 740): signed by a Sigstore of our own, sent by the real tools, verified, kept and served."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st
from pypi_attestations import Provenance

from hub_server.attestations.verifying import AttestationVerifier
from hub_server.errors import Malformed
from tests.hub_server.pages import Browser
from tests.published_tools import run
from tests.running_hub import PRIME, RunningHub, answer, make_wheel, sha256, start_hub
from tests.sigstore_authority import PUBLISH, SLSA, Authority

NewUser = Callable[[], tuple[str, str]]
INTEGRITY = "application/vnd.pypi.integrity.v1+json"
JSON_INDEX = {"Accept": "application/vnd.pypi.simple.v1+json"}
PUBLISHER = {"kind": "GitHub", "repository": "our-lab/environments", "workflow": "publish.yml"}


@pytest.fixture(scope="module")
def authority() -> Authority:
    """The Sigstore that the hub of these tests trusts."""
    return Authority()


@pytest.fixture(scope="module")
def hub(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that trusts it."""
    folder = tmp_path_factory.mktemp("attesting-hub")
    trust_root = authority.write_trust_root(folder / "trusted_root.json")
    running = start_hub(folder / "data", "--sigstore-trust-root", str(trust_root))
    yield running
    running.end()


def send(
    hub: RunningHub, owner: str, key: str, filename: str, data: bytes, attestations: object = None
) -> httpx.Response:
    """Send the form as the tools do; a text stands in the field as it is."""
    form = {":action": "file_upload", "filetype": "bdist_wheel"}
    if attestations is not None:
        form["attestations"] = attestations if isinstance(attestations, str) else json.dumps(attestations)
    url, auth = f"{hub.url}/index/{owner}/legacy/", ("__token__", key)
    return httpx.post(url, data=form, files={"content": (filename, data)}, auth=auth, timeout=30, trust_env=False)


def index_entry(hub: RunningHub, owner: str, name: str, key: str | None = None) -> dict[str, Any]:
    """Return the one file on the JSON page of a project."""
    auth = ("__token__", key) if key else None
    page = answer(httpx.get(f"{hub.url}/index/{owner}/simple/{name}/", headers=JSON_INDEX, auth=auth, trust_env=False))
    (entry,) = page["files"]
    assert isinstance(entry, dict)
    return entry


def details_of(hub: RunningHub, owner: str, name: str, key: str | None = None) -> dict[str, Any]:
    """Return the details of the latest version."""
    with hub.client(key) as client:
        details: dict[str, Any] = answer(client.get(f"/environmentshub/{owner}/{name}/@latest"))["data"]
    return details


@pytest.mark.parametrize("tool", ["twine", "uv"])
def test_the_tool_publishes_a_wheel_with_its_attestation_which_is_served(
    hub: RunningHub, authority: Authority, new_user: NewUser, tools: Path, tmp_path: Path, tool: str
) -> None:
    slug, key = new_user()
    url = f"{hub.url}/index/{slug}/legacy/"
    filename, data = make_wheel(f"attested-by-{tool}", "0.1.0")
    wheel, beside = tmp_path / filename, tmp_path / f"{filename}.publish.attestation"
    wheel.write_bytes(data)
    attestation = authority.attest(filename, sha256(data))
    beside.write_text(json.dumps(attestation))

    def publish() -> subprocess.CompletedProcess[str]:
        if tool == "uv":
            return run(tools / "uv", "publish", "--publish-url", url, "--token", key, "--no-cache", wheel, beside)
        options = ["--non-interactive", "--disable-progress-bar", "--verbose", "--attestations"]
        options += ["--repository-url", url]
        return run(tools / "twine", "upload", *options, "-u", "__token__", "-p", key, wheel, beside)

    for _ in range(2):
        done = publish()
        assert done.returncode == 0, done.stdout + done.stderr
    name = f"attested-by-{tool}"
    served = httpx.get(index_entry(hub, slug, name)["provenance"], trust_env=False)
    assert (served.status_code, served.headers["Content-Type"]) == (200, INTEGRITY)
    (bundle,) = Provenance.model_validate(served.json()).attestation_bundles
    assert bundle.publisher.model_dump(exclude_none=True) == PUBLISHER
    assert served.json()["attestation_bundles"][0]["attestations"] == [attestation]
    (shown,) = details_of(hub, slug, name)["attestations"]
    assert shown["predicate_type"] == PUBLISH
    assert shown["publisher"]["claims"]["source_repository_ref"] == "refs/tags/v1"


def test_both_forms_of_the_index_name_the_provenance_of_what_has_it(
    hub: RunningHub, authority: Authority, new_user: NewUser
) -> None:
    slug, key = new_user()
    filename, data = make_wheel("in-the-index", "1.0")
    assert send(hub, slug, key, filename, data, [authority.attest(filename, sha256(data))]).is_success
    plain, plain_data = make_wheel("in-the-index", "2.0")
    assert send(hub, slug, key, plain, plain_data).is_success
    address = f"{hub.url}/index/{slug}/integrity/in-the-index/1.0/{filename}/provenance"
    for place in (f"index/{slug}/simple", "simple"):
        page = answer(httpx.get(f"{hub.url}/{place}/in-the-index/", headers=JSON_INDEX, trust_env=False))
        assert [file.get("provenance") for file in page["files"]] == [address, None]
        html = httpx.get(f"{hub.url}/{place}/in-the-index/", trust_env=False).text
        assert html.count("data-provenance=") == 1
        assert f'data-provenance="{address}"' in html
    missing = httpx.get(address.replace("1.0", "2.0"), trust_env=False)
    assert (missing.status_code, missing.json()["detail"]) == (
        404, f"no provenance of {plain} found in the index of {slug}"
    )  # fmt: skip


def test_an_address_that_a_request_came_to_is_not_shown_to_the_next(
    hub: RunningHub, authority: Authority, new_user: NewUser
) -> None:
    slug, key = new_user()
    filename, data = make_wheel("by-address", "0.1.0")
    assert send(hub, slug, key, filename, data, [authority.attest(filename, sha256(data))]).is_success
    elsewhere = {**JSON_INDEX, "Host": "elsewhere.example"}
    page = httpx.get(f"{hub.url}/index/{slug}/simple/by-address/", headers=elsewhere, trust_env=False).json()
    assert page["files"][0]["provenance"].startswith("http://elsewhere.example/index/")
    assert index_entry(hub, slug, "by-address")["provenance"].startswith(hub.url)


def test_the_same_bytes_again_bring_attestations_of_types_that_are_missing_and_replace_none(
    hub: RunningHub, authority: Authority, new_user: NewUser
) -> None:
    slug, key = new_user()
    filename, data = make_wheel("later", "0.1.0")
    digest = sha256(data)
    assert send(hub, slug, key, filename, data).is_success
    page = f"{hub.url}/index/{slug}/simple/later/"
    before = httpx.get(page, headers=JSON_INDEX, trust_env=False)
    assert "provenance" not in index_entry(hub, slug, "later")
    assert details_of(hub, slug, "later")["attestations"] == []
    first = authority.attest(filename, digest)
    assert "attestations kept: 1" in answer(send(hub, slug, key, filename, data, [first]))["message"]
    after = httpx.get(page, headers=JSON_INDEX, trust_env=False)
    assert int(after.headers["X-PyPI-Last-Serial"]) > int(before.headers["X-PyPI-Last-Serial"])
    address = after.json()["files"][0]["provenance"]
    signed_again = authority.attest(filename, digest)
    assert "attestations kept: 0" in answer(send(hub, slug, key, filename, data, [signed_again]))["message"]
    by_person = authority.attest(
        filename, digest, claims={8: "https://accounts.example"}, identity=x509.RFC822Name("ada@our-lab.example")
    )
    refused = send(hub, slug, key, filename, data, [by_person])
    assert refused.status_code == 409
    assert refused.json()["detail"] == f"{filename} has another attestation of the type {PUBLISH}, which stays"
    assert answer(httpx.get(address, trust_env=False))["attestation_bundles"][0]["attestations"] == [first]
    built = authority.attest(
        filename, digest, predicate_type=SLSA, predicate={"buildDefinition": {}},
        claims={8: "https://accounts.example"}, identity=x509.RFC822Name("ada@our-lab.example"),
    )  # fmt: skip
    assert send(hub, slug, key, filename, data, [first, built]).is_success
    bundles = answer(httpx.get(address, trust_env=False))["attestation_bundles"]
    assert [bundle["attestations"] for bundle in bundles] == [[first], [built]]
    assert bundles[1]["publisher"] == {
        "kind": "Sigstore", "issuer": "https://accounts.example", "identity": "ada@our-lab.example",
        "claims": {"identity": "ada@our-lab.example", "issuer": "https://accounts.example"},
    }  # fmt: skip
    browser = Browser(hub)
    assert browser.open(f"/dashboard/environments/{slug}/later/versions/0.1.0") == 200
    assert "Publication attested by GitHub our-lab/environments, workflow publish.yml" in browser.words
    assert "Build attested by ada@our-lab.example, identified by https://accounts.example" in browser.words
    with hub.client(key) as client:
        events = answer(client.get("/user/audit"))["data"]
    assert json.dumps(events).count("version.attest") == 2


def test_provenance_of_a_private_environment_is_for_who_may_see_it(
    hub: RunningHub, authority: Authority, new_user: NewUser
) -> None:
    slug, key = new_user()
    _, stranger = new_user()
    with hub.client(key) as client:
        answer(client.post("/environmentshub/resolve", json={"name": "hidden", "visibility": "PRIVATE"}))
    filename, data = make_wheel("hidden", "0.1.0")
    assert send(hub, slug, key, filename, data, [authority.attest(filename, sha256(data))]).is_success
    address = index_entry(hub, slug, "hidden", key)["provenance"]
    token = httpx.URL(details_of(hub, slug, "hidden", key)["install_index_url"]).password
    statuses = [
        httpx.get(address, auth=("__token__", password) if password else None, trust_env=False).status_code
        for password in (None, stranger, key, token)
    ]
    assert statuses == [404, 404, 200, 200]


def test_a_quarantined_environment_gives_out_no_provenance_and_an_archived_one_takes_no_attestation(
    hub: RunningHub, authority: Authority, new_user: NewUser
) -> None:
    slug, key = new_user()
    filename, data = make_wheel("closed", "0.1.0")
    attestation = authority.attest(filename, sha256(data))
    assert send(hub, slug, key, filename, data).is_success
    mark = f"/environmentshub/{slug}/closed/project-status"
    with hub.client(key) as client, hub.client(hub.admin_key) as admin:
        answer(client.put(mark, json={"status": "archived", "reason": ""}))
        refused = send(hub, slug, key, filename, data, [attestation])
        assert (refused.status_code, refused.json()["detail"]) == (409, "closed is archived and takes no new versions")
        assert details_of(hub, slug, "closed")["attestations"] == []
        answer(client.put(mark, json={"status": "active", "reason": ""}))
        assert send(hub, slug, key, filename, data, [attestation]).is_success
        address = index_entry(hub, slug, "closed")["provenance"]
        answer(admin.put(f"/environmentshub/{slug}/closed/quarantine", json={"reason": "looked into"}))
        assert httpx.get(address, auth=("__token__", key), trust_env=False).status_code == 404


def test_what_does_not_hold_is_refused_whole_and_leaves_nothing(
    hub: RunningHub, authority: Authority, new_user: NewUser
) -> None:
    slug, key = new_user()
    filename, data = make_wheel("unproven", "0.1.0")
    digest = sha256(data)
    good = authority.attest(filename, digest)
    for words, sent in wrong_attestations(authority, filename, digest, good).items():
        response = send(hub, slug, key, filename, data, sent)
        assert response.status_code == 400, (words, response.text)
        assert words in response.json()["detail"], (words, response.text)
    too_large = send(hub, slug, key, filename, data, json.dumps([good]) + " " * 600_000)
    assert (too_large.status_code, "524288 bytes together" in too_large.text) == (413, True)
    with hub.client(key) as client:
        assert answer(client.get("/environmentshub/", params={"mine_only": True}))["total_count"] == 0
    assert not list((hub.data_dir / "blobs" / "incoming").iterdir())
    assert not (hub.data_dir / "blobs" / "sha256" / digest[:2] / digest).exists()
    assert send(hub, slug, key, filename, data, [good]).is_success


def wrong_attestations(authority: Authority, filename: str, digest: str, good: dict[str, Any]) -> dict[str, object]:
    """Return each way to be wrong by the words that the refusal has."""

    def changed(change: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
        copied = copy.deepcopy(good)
        change(copied)
        return [copied]

    def entry(attestation: dict[str, Any]) -> dict[str, Any]:
        first: dict[str, Any] = attestation["verification_material"]["transparency_entries"][0]
        return first

    other = authority.attest(filename, digest)
    forged = {**good["envelope"], "signature": other["envelope"]["signature"]}
    statement = {"_type": "https://in-toto.io/Statement/v1", "predicateType": PUBLISH, "predicate": None}
    subject = {"name": filename, "digest": {"sha256": digest}}
    two = json.dumps({**statement, "subject": [subject, {**subject, "name": "other-0.1.0-py3-none-any.whl"}]}).encode()
    older = json.dumps({**statement, "_type": "https://in-toto.io/Statement/v0.1", "subject": [subject]}).encode()
    return {
        "is not a JSON list of attestations": "garbage",
        "'attestations' is not a JSON list": good,
        "not a JSON list": [],
        "a JSON list of": "[" * 100_000,
        "verification_material: Field required": [{"version": 1}],
        "Input should be 1": changed(lambda it: it.update(version=2)),
        "is about another file, 'other-0.1.0-py3-none-any.whl'": [
            authority.attest("other-0.1.0-py3-none-any.whl", digest)
        ],
        f"is about other bytes: it names the sha256 {'0' * 64}": [authority.attest(filename, "0" * 64)],
        "unknown predicate type 'https://example/other'": [
            authority.attest(filename, digest, predicate_type="https://example/other")
        ],
        "subject: List should have at most 1 item": [authority.attest(filename, digest, statement=two)],
        "_type: Input should be": [authority.attest(filename, digest, statement=older)],
        "DSSE: invalid signature": changed(lambda it: it.update(envelope=forged)),
        "failed to build timestamp certificate chain": [Authority().attest(filename, digest)],
        "chain: validation failed": [authority.attest(filename, digest, signed_after=timedelta(hours=1))],
        "transparency_entries: List should have at least 1 item": changed(
            lambda it: it["verification_material"].update(transparency_entries=[])
        ),
        "more than one entry of a transparency log": changed(
            lambda it: it["verification_material"]["transparency_entries"].append(entry(other))
        ),
        "inclusion proof has wrong size": changed(lambda it: entry(it)["inclusionProof"].update(hashes=[])),
        "invalid root hash": changed(
            lambda it: entry(it)["inclusionProof"].update(hashes=[base64.b64encode(b"\0" * 32).decode()])
        ),
        "inclusion promise or signed timestamp": changed(lambda it: entry(it).pop("inclusionPromise") and None),
        "SET: invalid inclusion promise": changed(
            lambda it: entry(it).update(integratedTime=str(int(entry(it)["integratedTime"]) + 1))
        ),
        "log entry payload hash does not match": changed(
            lambda it: it["verification_material"].update(
                transparency_entries=[entry(authority.attest(filename, "1" * 64))]
            )
        ),
        "holds something else than signatures": changed(
            lambda it: entry(it)["inclusionProof"]["checkpoint"].update(
                envelope=entry(it)["inclusionProof"]["checkpoint"]["envelope"] + "\ud800\n"
            )
        ),
        "log entry signatures do not match": changed(
            lambda it: it["verification_material"].update(transparency_entries=[entry(other)])
        ),
        "does not say who identified the signer": [
            authority.attest(filename, digest, claims={12: "https://a.example"})
        ],
        "two attestations with the same type": [good, other],
        "3 attestations for one file": [good, other, good],
    }


def test_the_public_sigstore_is_trusted_where_no_other_is_named(new_user: NewUser) -> None:
    filename, data = make_wheel("public", "0.1.0")
    attestation = json.dumps([Authority().attest(filename, sha256(data))])
    with pytest.raises(Malformed, match="failed to build timestamp certificate chain"):
        AttestationVerifier().verify(attestation, filename, sha256(data))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read the trust root"),
        ("{}", "is not a trust root of Sigstore"),
        ("no json", "is not a trust root"),
    ],
)
def test_a_hub_does_not_start_with_a_trust_root_that_is_none(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "trusted_root.json"
    if content is not None:
        path.write_text(content)
    command = [*PRIME, "hub", "serve", "--port", "0", "--data-dir", tmp_path / "data", "--sigstore-trust-root", path]
    done = run(*command)
    assert done.returncode == 1
    assert words in " ".join(done.stderr.split()), done.stderr
    assert not (tmp_path / "data").exists()


@pytest.fixture(scope="module")
def verifier(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> AttestationVerifier:
    """A verifier that trusts our Sigstore."""
    return AttestationVerifier(authority.write_trust_root(tmp_path_factory.mktemp("root") / "trusted_root.json"))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def sound(authority: Authority) -> dict[str, Any]:
    """An attestation that holds."""
    return authority.attest("damaged-0.1.0-py3-none-any.whl", "a" * 64)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_attestation_is_refused_or_says_the_same(
    sound: dict[str, Any], verifier: AttestationVerifier, data: st.DataObject
) -> None:
    good, filename, digest = sound, "damaged-0.1.0-py3-none-any.whl", "a" * 64
    damaged = copy.deepcopy(good)
    place: Any = damaged
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    if isinstance(place[key], str) and data.draw(st.booleans()):
        text = place[key]
        at = data.draw(st.integers(0, len(text) - 1))
        place[key] = text[:at] + data.draw(st.sampled_from("A/=0\n\u2014\x00")) + text[at + 1 :]
    else:
        place[key] = data.draw(JUNK)
    try:
        (verified,) = verifier.verify(json.dumps([damaged]), filename, digest)
    except Malformed:
        return
    assert verified.body["envelope"]["statement"] == good["envelope"]["statement"]
    assert verified.publisher["repository"] == PUBLISHER["repository"]


def test_publishers_are_named_as_tools_know_them(authority: Authority, verifier: AttestationVerifier) -> None:
    filename, digest = "named-0.1.0-py3-none-any.whl", "b" * 64

    def publisher(claims: dict[int, str], identity: x509.GeneralName | None = None) -> dict[str, Any]:
        attestation = authority.attest(filename, digest, claims=claims, identity=identity)
        (verified,) = verifier.verify(json.dumps([attestation]), filename, digest)
        return {name: value for name, value in verified.publisher.items() if name != "claims"}

    gitlab = "https://gitlab.com/our-lab/rl/envs"
    assert publisher({8: "https://gitlab.com", 12: gitlab, 18: f"{gitlab}//.gitlab-ci.yml@refs/heads/main"}) == {
        "kind": "GitLab", "repository": "our-lab/rl/envs", "workflow_filepath": ".gitlab-ci.yml"
    }  # fmt: skip
    robot = x509.RFC822Name("robot@our-lab.iam.example")
    assert publisher({8: "https://accounts.google.com"}, robot) == {"kind": "Google", "email": robot.value}
    # A workflow of one repository that says it is of another is nobody that tools know.
    github = "https://token.actions.githubusercontent.com"
    build = "https://github.com/a/b/.github/workflows/publish.yml@refs/heads/main"
    assert publisher({8: github, 12: "https://github.com/c/d", 18: build})["kind"] == "Sigstore"
    user = x509.OtherName(x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.7"), b"\x0c\x03ada")
    assert publisher({8: "https://id.our-lab.example"}, user) == {
        "kind": "Sigstore", "issuer": "https://id.our-lab.example", "identity": "ada"
    }  # fmt: skip


def test_attestations_go_with_a_backup_and_with_the_version_that_they_are_of(
    authority: Authority, tmp_path: Path
) -> None:
    trust = ("--sigstore-trust-root", str(authority.write_trust_root(tmp_path / "trusted_root.json")))
    hub = start_hub(tmp_path / "data", *trust)
    key, (filename, data) = hub.admin_key, make_wheel("carried", "0.1.0")
    with hub.client(key) as client:
        slug = answer(client.get("/user/whoami"))["data"]["slug"]
    assert send(hub, slug, key, filename, data, [authority.attest(filename, sha256(data))]).is_success
    before = httpx.get(index_entry(hub, slug, "carried")["provenance"], trust_env=False).json()
    hub.end()
    backup, restored = tmp_path / "backup.tar", tmp_path / "restored"
    assert run(*PRIME, "hub", "backup", backup, "--data-dir", tmp_path / "data").returncode == 0
    assert run(*PRIME, "hub", "restore", backup, "--data-dir", restored).returncode == 0
    again = start_hub(restored)
    assert httpx.get(index_entry(again, slug, "carried")["provenance"], trust_env=False).json() == before
    with again.client(key) as client:
        answer(client.delete(f"/environmentshub/{slug}/carried/@0.1.0"))
    again.end()
    collected = run(*PRIME, "hub", "gc", "--grace-hours", "0", "--data-dir", restored)
    assert collected.returncode == 0, collected.stderr
    with contextlib.closing(sqlite3.connect(restored / "hub.db")) as database:
        assert database.execute("SELECT count(*) FROM file_attestations").fetchone() == (0,)
