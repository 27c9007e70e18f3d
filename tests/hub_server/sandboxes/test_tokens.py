"""Tokens open one sandbox for a while, and nothing else."""

from __future__ import annotations

import pytest

from hub_server.sandboxes.tokens import Expired, ForAnother, Wrong, check_token, make_secret, make_token

SECRET = b"s" * 32


def test_a_token_opens_its_sandbox_until_it_expires() -> None:
    token = make_token(SECRET, "sb-1", lifetime_s=60, now=1000.0)
    assert token.expires_at == 1060
    check_token(SECRET, token.text, "sb-1", now=1059.9)
    with pytest.raises(Expired, match="expired"):
        check_token(SECRET, token.text, "sb-1", now=1060.0)


def test_a_token_opens_no_other_sandbox() -> None:
    with pytest.raises(ForAnother):
        check_token(SECRET, make_token(SECRET, "sb-1").text, "sb-2")


def test_ids_cannot_be_shifted_into_one_another() -> None:
    token = make_token(SECRET, "sb.1", lifetime_s=60)
    check_token(SECRET, token.text, "sb.1")
    with pytest.raises(ForAnother):
        check_token(SECRET, token.text, "sb")


@pytest.mark.parametrize(
    "damage", ["", ".", "..", "sb-1", "sb-1.9999999999.", "sb-1.9999999999.00", "sb-1.x.y", "\udcff.1.2"]
)
def test_what_is_no_token_is_wrong(damage: str) -> None:
    with pytest.raises(Wrong):
        check_token(SECRET, damage, "sb-1")


def test_a_token_is_bound_to_secret_and_expiry() -> None:
    token = make_token(SECRET, "sb-1")
    with pytest.raises(Wrong):
        check_token(make_secret(), token.text, "sb-1")
    later = token.text.replace(str(token.expires_at), str(token.expires_at + 1))
    with pytest.raises(Wrong):
        check_token(SECRET, later, "sb-1")
