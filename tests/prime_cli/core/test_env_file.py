"""Variables from files in the syntax of `.env`, and from a command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime_cli.core.env_file import parse_env, variables_from
from prime_cli.core.errors import BadInput, ConfigError


def parse(text: str, **known: str) -> dict[str, str]:
    return parse_env(text, source=".env", known=known)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("K=v", "v"),
        ("export K = v  \n", "v"),
        ("K=v # a comment", "v"),
        ("K=v#none", "v#none"),
        ("K=#none", "#none"),
        ("K=", ""),
        ("K=   # nothing", ""),
        ("K='a # b'  # c", "a # b"),
        ('K="a # b"', "a # b"),
        ('K="two\\nlines and a \\"quote\\""', 'two\nlines and a "quote"'),
        ('K="two\nlines"', "two\nlines"),
        ("K='as \\n it ${HOME_OF} stands'", "as \\n it ${HOME_OF} stands"),
        ("A=1\nK=${A}2", "12"),
        ('K="${OUTER}/x"', "o/x"),
        ("OUTER=mine\nK=$OUTER${OUTER}", "$OUTERmine"),
        ("K=${NONE:-else}", "else"),
        ('K="\\${OUTER}"', "${OUTER}"),
        ("# first\n\n  \nK=v", "v"),
        ("K=one\nK=two", "two"),
    ],
)
def test_a_file_sets_what_a_reader_expects(text: str, value: str) -> None:
    assert parse(text, OUTER="o")["K"] == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A=1\nno assignment\n", "line 2: this is no KEY=VALUE"),
        ("K='open\n", "line 1"),
        ("K='a' b", "line 1"),
        ("A=1\nK=${GONE}\n", "line 2: ${GONE} is not set"),
        ("1K=v", "line 1"),
    ],
)
def test_a_line_that_sets_nothing_is_named(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert says in refused.value.message


@given(st.text(st.characters(blacklist_characters="'\r\0", blacklist_categories=["Cs"])))
def test_single_quotes_keep_any_text(text: str) -> None:
    assert parse(f"A=1\nK='{text}'\nB=2") == {"A": "1", "K": text, "B": "2"}


def test_a_command_line_gives_values_names_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some.env").write_text("A=1\nB=2\n")
    monkeypatch.setenv("FROM_HERE", "h")
    monkeypatch.chdir(tmp_path)
    assert variables_from(["some.env", "B=x=y", "FROM_HERE"]) == {"A": "1", "B": "x=y", "FROM_HERE": "h"}
    with pytest.raises(BadInput, match="NOT_THERE is not set here"):
        variables_from(["NOT_THERE"])
    with pytest.raises(BadInput, match="neither KEY=VALUE, nor a KEY, nor a file"):
        variables_from(["gone.env"])
