"""The simple index, as text and with a real installer."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from hub_server.registry.index import (
    HTML_TYPE,
    JSON_TYPE,
    LEGACY_TYPE,
    IndexFile,
    IndexStatus,
    negotiate,
    render_project,
)
from tests.running_hub import Push, RunningHub, answer, make_wheel, sha256

NewUser = Callable[[], tuple[str, str]]


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, LEGACY_TYPE),
        ("*/*", LEGACY_TYPE),
        ("text/html", LEGACY_TYPE),
        (JSON_TYPE, JSON_TYPE),
        ("application/vnd.pypi.simple.latest+json", JSON_TYPE),
        (f"{JSON_TYPE}, {HTML_TYPE}; q=0.1, text/html; q=0.01", JSON_TYPE),
        (f"{JSON_TYPE};q=0.2, {HTML_TYPE};q=0.9", HTML_TYPE),
        (f"{JSON_TYPE};q=0, text/html", LEGACY_TYPE),
        ("image/png", None),
        (f"{JSON_TYPE};q=nonsense", None),
        (f"{JSON_TYPE};q=nan, {HTML_TYPE};q=1e3", None),
        ("*/*, text/html;q=0", JSON_TYPE),
        (f"application/*, {JSON_TYPE};q=0", HTML_TYPE),
        (f"text/html;q=0.5, {JSON_TYPE};q=0.5", LEGACY_TYPE),
        (f"{JSON_TYPE};q=0.5, text/html;q=0.5", JSON_TYPE),
    ],
)
def test_the_accept_header_chooses_the_form(accept: str | None, chosen: str | None) -> None:
    assert negotiate(accept) == chosen


def test_what_a_file_says_of_itself_cannot_break_the_page() -> None:
    file = IndexFile(
        filename='a"><script>.whl', url="../a b.whl", sha256="0" * 64, size=1, version="1",
        requires_python='>=3.8"><b>', metadata_sha256=None, uploaded_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    page = render_project("a", IndexStatus("active"), [file], LEGACY_TYPE)
    assert "<script>" not in page
    assert "<b>" not in page
    assert 'href="../a%20b.whl#sha256=' in page


def test_json_and_html_name_the_same_files(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        for version in ("0.1.0", "0.2.0"):
            assert Push(client, "Two_Forms", version).run().is_success
    with httpx.Client(base_url=f"{hub.url}/index/{slug}", trust_env=False, follow_redirects=True) as index:
        projects = index.get("/simple/", headers={"Accept": JSON_TYPE})
        assert projects.json() == {"meta": {"api-version": "1.4"}, "projects": [{"name": "two-forms"}]}
        response = index.get("/simple/Two_Forms", headers={"Accept": JSON_TYPE})
        assert response.headers["content-type"] == JSON_TYPE
        page = response.json()
        assert (page["name"], page["versions"]) == ("two-forms", ["0.1.0", "0.2.0"])
        html = index.get("/simple/two-forms/").text
        for file in page["files"]:
            wheel = index.get(response.url.join(file["url"]))
            assert sha256(wheel.content) == file["hashes"]["sha256"]
            assert len(wheel.content) == file["size"]
            metadata = index.get(response.url.join(file["url"] + ".metadata"))
            assert sha256(metadata.content) == file["core-metadata"]["sha256"]
            assert f"{file['url']}#sha256={file['hashes']['sha256']}" in html
            assert f'data-core-metadata="sha256={file["core-metadata"]["sha256"]}"' in html
            assert 'data-requires-python="&gt;=3.8"' in html
        assert (
            index.get(
                "/simple/two-forms/", headers={"If-None-Match": response.headers["etag"], "Accept": JSON_TYPE}
            ).status_code
            == 304
        )
        assert index.get("/simple/two-forms/", headers={"Accept": "image/png"}).status_code == 406
        assert index.get("/simple/other/").status_code == 404


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an empty virtual environment."""
    folder = tmp_path_factory.mktemp("install") / "venv"
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def pip_install(interpreter: Path, requirement: str, index: str, elsewhere: str) -> subprocess.CompletedProcess[str]:
    """Install with plain pip; `elsewhere` stands for the index that everything else comes from."""
    command = [sys.executable, "-m", "pip", "--python", str(interpreter), "install", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-cache-dir", "--index-url", elsewhere, "--extra-index-url", index, requirement]
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("visibility", ["PUBLIC", "PRIVATE"])
def test_plain_pip_installs_from_the_index(
    hub: RunningHub, new_user: NewUser, interpreter: Path, visibility: str
) -> None:
    slug, key = new_user()
    name = f"installed-{visibility.lower()}"
    with hub.client(key) as client:
        assert Push(client, name, "0.1.0", code="VALUE = 'old'\n", visibility=visibility).run().is_success
        assert Push(client, name, "0.2.0", code="VALUE = 'new'\n", visibility=visibility).run().is_success
        index = answer(client.get(f"/environmentshub/{slug}/{name}/@latest"))["data"]["install_index_url"]
    elsewhere = f"{hub.url}/index/nobody/simple/"
    if visibility == "PRIVATE":
        refused = pip_install(interpreter, name, f"{hub.url}/index/{slug}/simple/", elsewhere)
        assert refused.returncode == 1
    for requirement, value in ((f"{name}==0.1.0", "old"), (f"{name}>=0.2", "new")):
        done = pip_install(interpreter, requirement, index, elsewhere)
        assert done.returncode == 0, done.stderr
        assert key not in done.stdout + done.stderr
        module = name.replace("-", "_")
        shown = subprocess.run(
            [interpreter, "-c", f"import {module}; print({module}.VALUE)"], capture_output=True, text=True, check=True
        )
        assert shown.stdout.strip() == value


def test_an_index_password_is_an_api_key_or_a_token_and_nothing_else(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    _, stranger_key = new_user()
    with hub.client(key) as client:
        assert Push(client, "guarded", "0.1.0", visibility="PRIVATE").run().is_success
    page = f"{hub.url}/index/{slug}/simple/guarded/"

    def status(password: str | None) -> int:
        auth = httpx.BasicAuth("__token__", password) if password else None
        return httpx.get(page, auth=auth, trust_env=False).status_code

    assert status(key) == 200
    assert status(stranger_key) == 404
    assert status(None) == 404
    assert status("prime_wrong") == 401
    assert status("not.a-token") == 401
    assert httpx.get(page, headers={"Authorization": "Basic %%%"}, trust_env=False).status_code == 401
    assert "Basic" in httpx.get(page, auth=("x", "y"), trust_env=False).headers["www-authenticate"]


def test_a_wheel_can_be_fetched_in_parts(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        push = Push(client, "parts", "0.1.0")
        assert push.run().is_success
        url = answer(client.get(f"/environmentshub/{slug}/parts/@latest"))["data"]["wheel_url"]
    part = httpx.get(url, headers={"Range": "bytes=0-3"}, trust_env=False)
    assert (part.status_code, part.content) == (206, push.wheel[:4])
    assert make_wheel("parts", "0.1.0")[0] in url
