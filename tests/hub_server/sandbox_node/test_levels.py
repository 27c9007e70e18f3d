"""Levels are ordered by what they hold, not by their letters."""

from __future__ import annotations

from itertools import combinations

import pytest

from hub_server.sandbox_node.specification import Level

ORDER = [Level.NONE, Level.RESTRICTED, Level.CONTAINER, Level.GVISOR]


@pytest.mark.parametrize(("weaker", "stronger"), list(combinations(ORDER, 2)))
def test_levels_are_ordered_in_every_comparison(weaker: Level, stronger: Level) -> None:
    assert weaker < stronger
    assert weaker <= stronger
    assert stronger > weaker
    assert stronger >= weaker
    assert not weaker > stronger
    assert not weaker >= stronger
    assert max(stronger, weaker) is stronger


def test_a_level_is_at_least_itself() -> None:
    assert all(level >= level and level <= level for level in ORDER)
