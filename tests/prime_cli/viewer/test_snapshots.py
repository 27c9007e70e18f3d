"""Every screen as it was looked at, in a small and in a large terminal: pictures that a change must not alter unseen.

`UPDATE_SNAPSHOTS=1 python -m pytest tests/prime_cli/viewer/test_snapshots.py` writes them anew; then look at them.
"""

from __future__ import annotations

import difflib
import gzip
import os
import re
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from prime_cli.viewer.app import Viewer, view_evaluations, view_runs
from tests.prime_cli.viewer.material import a_rollout, a_run, an_evaluation, replace_rollouts

SNAPSHOTS = Path(__file__).with_name("snapshots")
SIZES = [(80, 24), (160, 50)]
Open = Callable[[Path], Viewer]


def one_evaluation(folder: Path) -> Viewer:
    directory = an_evaluation(folder / "a")
    (directory.path / "logs").mkdir()
    (directory.path / "logs" / "worker_0.log").write_text("".join(f"rollout {n} scored\n" for n in range(60)))
    return view_evaluations(Path("a"))


def several(folder: Path) -> Viewer:
    an_evaluation(folder / "0123abcd", age_s=1)
    an_evaluation(folder / "89abcdef", 8, age_s=2, env="spell", model="bigger", avg_reward=0.31)
    other = an_evaluation(folder / "4567cdef", model="bigger")
    replace_rollouts(other, [a_rollout(number, reward=(number + 2) % 5 / 4) for number in range(24)])
    return view_evaluations(Path())


def one_run(folder: Path) -> Viewer:
    a_run(folder, mismatch=0.5)
    return view_runs(Path("reverse-text"), Path())


SCREENS: dict[str, tuple[Open, Sequence[str]]] = {
    "browser": (several, ()),
    "rollouts": (one_evaluation, ("down", "down", "down")),
    "filter": (one_evaluation, ("slash", "=tag:sums reward>0.5")),
    "copy": (one_evaluation, ("c",)),
    "logs": (one_evaluation, ("l",)),
    "compare": (several, ("home", "down", "down", "v", "down", "down", "v")),
    "training": (one_run, ()),
    "training_samples": (one_run, ("2",)),
}


@pytest.mark.parametrize("name", SCREENS)
async def test_a_screen_looks_as_it_did(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make, keys = SCREENS[name]
    app = make(tmp_path)
    drawn: dict[str, str] = {}
    async with app.run_test(size=SIZES[0]) as pilot:
        await settle(pilot)
        for press in keys:
            if press.startswith("="):
                line = app.screen.query_one(Input)
                line.cursor_blink = False
                line.value = press[1:]
            else:
                await pilot.press(press)
            await settle(pilot)
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            await settle(pilot)
            drawn[f"{name}_{width}x{height}"] = app.export_screenshot()
    differences = {
        kept: difference(SNAPSHOTS / f"{kept}.svg.gz", picture, tmp_path / f"{kept}.svg")
        for kept, picture in drawn.items()
    }
    assert not any(differences.values()), differences


async def settle(pilot: Pilot[None]) -> None:
    """Wait until what was begun in the background is done and shown."""
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause(0.05)


def difference(kept: Path, drawn: str, aside: Path) -> list[str]:
    """Return how a picture differs from the one that is kept, empty when it does not; it is left at `aside` then."""
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOTS.mkdir(exist_ok=True)
        kept.write_bytes(gzip.compress(drawn.encode(), mtime=0))
        return []
    expected = gzip.decompress(kept.read_bytes()).decode()
    if drawn == expected:
        return []
    aside.write_text(drawn)
    words = difflib.unified_diff(text_of(expected), text_of(drawn), lineterm="", n=0)
    return [f"see {aside}", *words] if text_of(drawn) != text_of(expected) else [f"other colours, see {aside}"]


def text_of(svg: str) -> list[str]:
    """Return the words of a picture, line by line."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for x, y, words in re.findall(r'<text [^>]*?x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', svg):
        rows.setdefault(float(y), []).append((float(x), unescape(words).replace("\xa0", " ")))
    return ["".join(words for _, words in sorted(rows[y])).rstrip() for y in sorted(rows)]
