"""What is said of endpoints that answer, refuse, are down, or have other models."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from prime_cli.lab.doctor.endpoints import check_endpoints
from prime_cli.lab.doctor.finding import Finding
from prime_cli.lab.doctor.surroundings import Answer, Surroundings, ask, run_program
from tests.scripted_model import scripted_model

NOWHERE = "http://127.0.0.1:9/v1"


def examine(folder: Path, *entries: dict[str, str], text: str | None = None, **variables: str) -> list[Finding]:
    lines = [line for entry in entries for line in ("[[endpoint]]", *(f'{k} = "{v}"' for k, v in entry.items()))]
    (folder / "configs").mkdir(exist_ok=True)
    (folder / "configs/endpoints.toml").write_text(text if text is not None else "\n".join(lines))
    return check_endpoints(Surroundings(folder, Path(), Path(), variables, run_program, ask))


def entry(url: str, **more: str) -> dict[str, str]:
    return {"endpoint_id": "mine", "model": "scripted", "url": url, **more}


@contextlib.contextmanager
def server_that_says(status: int, body: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a server with one answer, and the keys that it was shown."""
    shown: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.append(self.headers["Authorization"])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1", shown
        server.shutdown()


def test_an_endpoint_that_has_its_model_is_good(tmp_path: Path) -> None:
    with scripted_model(lambda messages: "") as url:
        (finding,) = examine(tmp_path, entry(url))
    assert finding.level == "ok"
    assert "mine" in finding.message


def test_an_endpoint_with_other_models_is_named_with_those_it_has(tmp_path: Path) -> None:
    with scripted_model(lambda messages: "", models=("other",)) as url:
        (finding,) = examine(tmp_path, entry(url))
    assert finding.level == "warning"
    assert "no model scripted; it has other" in finding.message


def test_servers_of_this_machine_that_are_not_started_are_one_warning(tmp_path: Path) -> None:
    (finding,) = examine(tmp_path, entry(NOWHERE), entry("http://localhost:7/v1", endpoint_id="other"))
    assert finding.level == "warning"
    assert "mine (127.0.0.1:9), other (localhost:7)" in finding.message
    assert finding.hint == "prime inference serve MODEL_FOLDER --port 9"


def test_an_endpoint_elsewhere_that_does_not_answer_fails(tmp_path: Path) -> None:
    (finding,) = examine(tmp_path, entry("http://nobody.invalid/v1"))
    assert finding.level == "fails"
    assert finding.hint == "curl http://nobody.invalid/v1/models"


@pytest.mark.parametrize(
    "url", ["not a url", "ftp://host/v1", "http://[::1/v1", "http://127.0.0.1:99999/v1", "http:///v1"]
)
def test_what_is_no_url_fails_without_being_asked(tmp_path: Path, url: str) -> None:
    (finding,) = examine(tmp_path, entry(url))
    assert finding.level == "fails"
    assert finding.message == f"mine at {url}: that is not a URL"


def test_a_key_that_is_refused_fails_with_its_variable_and_never_with_itself(tmp_path: Path) -> None:
    with server_that_says(401, {}) as (url, shown):
        (finding,) = examine(tmp_path, entry(url, key="MY_KEY"), MY_KEY="secret-words")
    assert shown == ["Bearer secret-words"]
    assert finding.level == "fails"
    assert finding.hint == "export MY_KEY=..."
    assert "secret-words" not in str(finding)


def test_an_endpoint_whose_key_is_not_set_is_not_asked(tmp_path: Path) -> None:
    asked: list[str] = []

    def fetch(url: str, headers: Any) -> Answer:
        asked.append(url)
        return Answer(200)

    (tmp_path / "configs").mkdir()
    text = '[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\nurl = "https://models.invalid/v1"\nkey = "UNSET_KEY"\n'
    (tmp_path / "configs/endpoints.toml").write_text(text)
    (finding,) = check_endpoints(Surroundings(tmp_path, Path(), Path(), {}, run_program, fetch))
    assert (finding.level, finding.hint, asked) == ("warning", "export UNSET_KEY=...", [])


def test_what_answers_without_listing_models_is_a_warning(tmp_path: Path) -> None:
    with server_that_says(404, {"detail": "no"}) as (url, _):
        (finding,) = examine(tmp_path, entry(url))
    assert finding.level == "warning"
    assert "HTTP 404" in finding.message


def test_a_file_that_cannot_be_read_fails_with_its_line(tmp_path: Path) -> None:
    (malformed,) = examine(tmp_path, text="[[endpoint]]\nurl = \n")
    assert malformed.level == "fails"
    assert "line 2" in malformed.message
    (unknown,) = examine(tmp_path, entry(NOWHERE, modle="x"))
    assert (unknown.level, unknown.hint) == ("fails", "did you mean `model`?")


def test_a_file_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    (finding,) = check_endpoints(Surroundings(tmp_path, Path(), Path(), {}, run_program, ask))
    assert (finding.level, finding.hint) == ("warning", "prime lab setup")
