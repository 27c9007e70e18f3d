"""Tokens that carry a right."""

from __future__ import annotations

import pytest

from hub_server.signing import Signer


def test_a_token_opens_for_its_purpose_only() -> None:
    signer = Signer(b"secret")
    token = signer.sign("upload", {"file": "x"}, valid_s=60)
    assert signer.open("upload", token) is not None
    assert signer.open("index", token) is None
    assert Signer(b"other").open("upload", token) is None


def test_an_expired_token_opens_nothing() -> None:
    signer = Signer(b"secret")
    assert signer.open("upload", signer.sign("upload", {}, valid_s=-1)) is None


@pytest.mark.parametrize("token", ["", ".", "a.b", "a.b.c", "é.é", "*.*"])
def test_nonsense_opens_nothing(token: str) -> None:
    assert Signer(b"secret").open("upload", token) is None
