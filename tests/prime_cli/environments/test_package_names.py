from __future__ import annotations

import pytest

from prime_cli.core.errors import BadInput
from prime_cli.environments.package_names import check_new_name


@pytest.mark.parametrize("name", ["reverse-text", "gsm8k", "a", "two_words", "x1-y2"])
def test_a_package_name_is_taken(name: str) -> None:
    assert check_new_name(name).module == name.replace("-", "_")


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("2fast", "fast"), ("MyEnv", "my-env"), ("my env", "my-env"), ("a--b", "a-b"), ("-x", "x"), ("../up", "up")],
)
def test_what_is_no_package_name_is_refused_with_one_that_is(name: str, suggestion: str) -> None:
    with pytest.raises(BadInput, match="not a valid package name") as caught:
        check_new_name(name)
    assert caught.value.hint == f"try `{suggestion}`"


@pytest.mark.parametrize("name", ["", "ü", "x" * 61, "1.0"])
def test_a_hopeless_name_is_refused_too(name: str) -> None:
    with pytest.raises(BadInput, match="not a valid package name"):
        check_new_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("class", "keyword"),
        ("match", "keyword"),
        ("json", "Python itself"),
        ("torch", "installed package"),
        ("verifiers", "installed package"),
        ("pytest", "installed package"),
        ("prime-cli", "installed package"),
    ],
)
def test_a_name_that_would_hide_another_module_is_refused(name: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as caught:
        check_new_name(name)
    assert caught.value.hint == f"try `{name}-env`"
