"""What may stand after -m."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from prime_cli.core.errors import BadInput, ConfigError, PrimeError
from prime_cli.evals.endpoints import ModelChoice, choose_model, opened_model
from prime_cli.models.folder import NotAModel
from tests.scripted_model import scripted_model


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with scripted_model(lambda _: "hello") as url:
        yield url


def endpoints(folder: Path, *entries: str) -> Path:
    path = folder / "endpoints.toml"
    path.write_text("".join(f"[[endpoint]]\n{entry}\n" for entry in entries))
    return path


def test_an_alias_stands_for_all_its_replicas_in_either_spelling(tmp_path: Path, url: str) -> None:
    file = endpoints(
        tmp_path,
        f'endpoint_id = "mine"\nmodel = "big"\nurl = "{url}"\nheaders = {{ X-Team = "a" }}',
        f'endpoint_id = "other"\nmodel = "small"\nurl = "{url}"',
        f'endpoint_id = "mine"\nmodel = "big"\napi_base_url = "{url}"\napi_client_type = "openai_chat_completions"',
    )
    chosen = choose_model(ModelChoice("mine", endpoints_file=file))
    assert chosen.label == "big"
    assert [(endpoint.model, dict(endpoint.headers)) for endpoint in chosen.endpoints] == [
        ("big", {"X-Team": "a"}),
        ("big", {}),
    ]
    with opened_model(chosen, log_path=tmp_path / "log") as opened:
        assert opened == chosen.endpoints


def test_a_key_comes_from_its_variable_and_a_server_on_this_machine_needs_none(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = 'endpoint_id = "{}"\nmodel = "m"\nurl = "{}"\nkey = "SOME_KEY"'
    file = endpoints(tmp_path, entry.format("here", url), entry.format("there", "https://models.example/v1"))
    monkeypatch.delenv("SOME_KEY", raising=False)
    assert choose_model(ModelChoice("here", endpoints_file=file)).endpoints[0].api_key == "EMPTY"
    with pytest.raises(PrimeError, match="SOME_KEY is not set"):
        choose_model(ModelChoice("there", endpoints_file=file))
    monkeypatch.setenv("SOME_KEY", "s3cret")
    assert choose_model(ModelChoice("here", endpoints_file=file)).endpoints[0].api_key == "s3cret"


def test_a_url_needs_no_name_where_there_is_one_model_only(url: str) -> None:
    assert choose_model(ModelChoice(url)).endpoints[0].model == "scripted"
    assert choose_model(ModelChoice(url, model_name="another")).label == "another"
    with (
        scripted_model(lambda _: "", models=("one", "two")) as several,
        pytest.raises(PrimeError, match="serves 2 models: one, two"),
    ):
        choose_model(ModelChoice(several))


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/v1", "http://", "http://[::1"])
def test_a_server_that_does_not_answer_is_told_before_anything_runs(address: str) -> None:
    for choice in (ModelChoice(address), ModelChoice("gpt", base_url=address)):
        with pytest.raises(PrimeError, match="no OpenAI-compatible server answers"):
            choose_model(choice)


def test_what_is_nothing_is_refused_with_the_nearest_alias(tmp_path: Path, url: str) -> None:
    file = endpoints(tmp_path, f'endpoint_id = "mine"\nmodel = "m"\nurl = "{url}"')
    with pytest.raises(BadInput) as caught:
        choose_model(ModelChoice("mime", endpoints_file=file))
    assert caught.value.hint == "did you mean 'mine'?"
    with pytest.raises(BadInput, match="no such endpoints file"):
        choose_model(ModelChoice("mine", endpoints_file=tmp_path / "none.toml"))
    with pytest.raises(NotAModel):
        choose_model(ModelChoice(str(tmp_path)))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ('endpoint_id = "a"\nmodel = "m"', "url` is required"),
        ('endpoint_id = "a"\nmodel = "m"\nurl = "u"\nkay = "K"', "kay` is not a known key"),
        ('endpoint_id = "a"\nmodel = "m"\nurl = "u"\ntype = "telepathy"', "type`: input should be"),
    ],
)
def test_a_wrong_endpoints_file_is_told_by_the_path_of_the_key(tmp_path: Path, entry: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_model(ModelChoice("a", endpoints_file=endpoints(tmp_path, entry)))
    assert f"endpoint[0].{says}" in caught.value.message
