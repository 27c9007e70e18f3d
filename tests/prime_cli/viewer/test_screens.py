"""The screens, driven by keys and by the mouse without a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Log, OptionList, Static, TabbedContent, Tree

from prime_cli.viewer.app import TooSmallScreen, Viewer, view_evaluations, view_runs, view_workspace
from prime_cli.viewer.screens.browser import BrowserScreen
from prime_cli.viewer.screens.compare import CompareScreen
from prime_cli.viewer.screens.copy import CopyScreen
from prime_cli.viewer.screens.logs import LogsScreen
from prime_cli.viewer.screens.rollouts import RolloutsScreen
from prime_cli.viewer.screens.training import TrainingScreen
from prime_cli.viewer.widgets.conversation import Conversation
from prime_cli.viewer.widgets.rollout_list import RolloutList
from prime_cli.viewer.widgets.row_list import RowList
from tests.prime_cli.viewer.material import a_rollout, a_run, an_evaluation, replace_rollouts, write_step

SIZE = (120, 40)


async def settle(pilot: Pilot[None]) -> None:
    """Wait until what was begun in the background is done and shown."""
    for _ in range(2):
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()


def listed(app: Viewer) -> list[int]:
    return list(app.screen.query_one(RowList).numbers)


def read(app: Viewer) -> str:
    return app.screen.query_one(Conversation).plain


def words(app: Viewer, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).content)


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_one_evaluation_opens_with_its_rollouts_and_keys_move_between_them(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    app = view_evaluations(an_evaluation(tmp_path / "a").path)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        assert listed(app) == list(range(24))
        assert "What is 17 times 0?" in read(app)
        await pilot.press("n")
        await settle(pilot)
        assert "the judge is broken" in read(app)
        await pilot.press("n", "p", "p")
        await settle(pilot)
        assert "0 [not markup]" in read(app)
        await pilot.press("end")
        await settle(pilot)
        assert "What is 17 times 23?" in read(app)
        assert "24 of 24" in words(app, "#head")


async def test_sections_are_folded_and_opened_one_by_one_and_all_at_once(tmp_path: Path) -> None:
    app = view_evaluations(an_evaluation(tmp_path / "a").path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        assert "the tool knows it" not in read(app)
        await pilot.press("enter", "right", "right", "enter")
        assert "the tool knows it" in read(app)
        await pilot.press("x")
        assert "What is 17 times 0?" not in read(app)
        await pilot.press("n")
        await settle(pilot)
        assert "▸ score" in read(app)
        await pilot.press("e")
        assert "the judge is broken" in read(app)
        await pilot.press("m")
        assert "the judge is broken" in read(app)


async def test_rollouts_are_filtered_while_one_types_and_escape_shows_all_again(tmp_path: Path) -> None:
    app = view_evaluations(an_evaluation(tmp_path / "a").path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press("slash", *"reward=1")
        await settle(pilot)
        assert listed(app) == [4, 9, 14, 19]
        await pilot.press("enter", "down")
        await settle(pilot)
        assert "What is 17 times 9?" in read(app)
        app.screen.query_one(Input).value = "times"
        await settle(pilot)
        assert len(listed(app)) == 24
        app.screen.query_one(Input).value = "reward<"
        await settle(pilot)
        assert "has no number" in str(app.screen.query_one(Input).border_title)
        await pilot.press("escape")
        await settle(pilot)
        assert listed(app) == list(range(24))


async def test_the_order_is_taken_with_o_or_by_a_click_on_a_head(tmp_path: Path) -> None:
    app = view_evaluations(an_evaluation(tmp_path / "a").path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press("o")
        await settle(pilot)
        assert listed(app)[:3] == [1, 0, 5]
        await pilot.click(RolloutList, offset=(20, 0))
        await settle(pilot)
        assert listed(app)[0] == 4
        assert "best first" in words(app, "#head")
        await pilot.click(RolloutList, offset=(5, 3))
        await settle(pilot)
        assert isinstance(app.focused, Conversation)
        assert "What is 17 times 14?" in read(app)


async def test_rollouts_that_come_while_one_looks_are_listed_and_the_cursor_stays(tmp_path: Path) -> None:
    directory = an_evaluation(tmp_path / "a", 5)
    app = view_evaluations(directory.path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press("down", "down")
        directory.append(a_rollout(5))
        screen = app.screen
        assert isinstance(screen, RolloutsScreen)
        screen._index_on()
        await settle(pilot)
        assert listed(app) == list(range(6))
        assert screen.query_one(RolloutList).cursor == 2


async def test_copy_mode_copies_a_section_or_everything(tmp_path: Path) -> None:
    app = view_evaluations(an_evaluation(tmp_path / "a").path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press("c")
        assert isinstance(app.screen, CopyScreen)
        await pilot.press("down", "enter")
        assert json.loads(app.clipboard) == a_rollout(0)
        await pilot.press("c")
        await pilot.pause()
        app.screen.query_one(OptionList).highlighted = 3
        await pilot.press("enter")
        assert app.clipboard == "What is 17 times 0?"
        await pilot.press("c", "escape")
        assert isinstance(app.screen, RolloutsScreen)


async def test_logs_of_an_evaluation_are_in_tabs_and_followed(tmp_path: Path) -> None:
    directory = an_evaluation(tmp_path / "a")
    (directory.path / "logs").mkdir()
    (directory.path / "logs" / "worker_0.log").write_text("first\n")
    (directory.path / "logs" / "worker_1.log").write_text("other\n")
    app = view_evaluations(directory.path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press("l")
        await pilot.pause(0.1)
        assert isinstance(app.screen, LogsScreen)
        assert list(app.screen.query_one(Log).lines) == ["first"]
        await pilot.press("right")
        await pilot.pause(0.1)
        assert list(app.screen.query_one(Log).lines) == ["other"]
        await pilot.press("b")
        assert isinstance(app.screen, RolloutsScreen)


async def test_the_browser_shows_details_and_opens_what_is_chosen(tmp_path: Path) -> None:
    an_evaluation(tmp_path / "a")
    an_evaluation(tmp_path / "b", 6, env="other")
    app = view_evaluations(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        details = words(app, "#details")
        for expected in ("0.512 ± 0.098", "rewards", "exact", "sampling.temperature", "pass@2 0.750", "1 failed"):
            assert expected in details
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, RolloutsScreen)
        await pilot.press("b", "left", "left")
        assert isinstance(app.screen, BrowserScreen)
        theme = app.theme
        await pilot.press("d")
        assert app.theme != theme
        await pilot.press("q")
    assert app.return_code == 0


async def test_two_evaluations_are_compared_example_by_example(tmp_path: Path) -> None:
    an_evaluation(tmp_path / "a")
    other = an_evaluation(tmp_path / "b", model="other")
    rewards = [1.0 if number in (10, 11) else 0.0 for number in range(24)]
    replace_rollouts(other, [a_rollout(number, reward=reward) for number, reward in enumerate(rewards)])
    app = view_evaluations(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        tree = app.screen.query_one(Tree)
        await pilot.press("v")
        await pilot.press(*["down"] * 2 if tree.cursor_line < 3 else ["up"] * 2, "v")
        await settle(pilot)
        assert isinstance(app.screen, CompareScreen)
        assert "11 examples, " in words(app, "#head")
        assert "1 now right" in words(app, "#head") or "1 now wrong" in words(app, "#head")
        both = [conversation.plain for conversation in app.screen.query(Conversation)]
        assert all("What is 17 times" in text for text in both)
        flipped = len(listed(app))
        await pilot.press("f", "n", "right_square_bracket")
        await settle(pilot)
        assert 0 < len(listed(app)) < flipped
        assert "2 of 2" in words(app, "#title-a")


async def test_a_training_run_shows_its_figures_and_follows_the_files(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    app = view_runs(run.path, tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        assert "step 12/12" in words(app, "#head")
        assert "staleness 1.0" in words(app, "#figures")
        assert "reward/mean" in words(app, "#curve")
        await pilot.press("down")
        await pilot.pause()
        assert "loss/mean" in words(app, "#curve")
        write_step(run, 13, mismatch=0.5)
        screen = app.screen
        assert isinstance(screen, TrainingScreen)
        screen._look()
        await settle(pilot)
        assert "mismatch KL 5.0e-01 is above" in words(app, "#figures")
        await pilot.press("3")
        await pilot.pause(0.2)
        assert "cut batch 1" in list(app.screen.query_one(Log).lines)
        await pilot.press("4")
        await pilot.pause()
        assert app.screen.query_one(TabbedContent).active == "settings"
        assert "learning_rate = 0.001" in words(app, "#settings-text")


async def test_the_rollouts_of_a_step_are_opened_from_the_run(tmp_path: Path) -> None:
    app = view_runs(None, tmp_path)
    a_run(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, TrainingScreen)
        await pilot.press("2")
        await pilot.pause()
        assert app.screen.query_one("#steps", DataTable).row_count == 12
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, RolloutsScreen)
        assert "step 12" in words(app, "#head")
        assert listed(app) == list(range(8))


async def test_the_whole_workspace_has_environments_evaluations_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    an_evaluation(tmp_path / "outputs" / "evals" / "multiply--tiny" / "0123abcd")
    a_run(tmp_path / "outputs" / "rl")
    folder = tmp_path / "environments" / "my_task"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "my-task"\nversion = "0.3.0"\n')
    app = view_workspace()
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        tree = app.screen.query_one(Tree)
        labels = [str(node.label) for node in tree.root.children]
        assert labels[0] == "multiply"
        assert "my-task  0.3.0" in labels
        assert "training runs" in labels


async def test_the_palette_has_the_keys_of_the_screen(tmp_path: Path) -> None:
    app = view_evaluations(an_evaluation(tmp_path / "a").path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        offered = {command.title: command for command in app.get_system_commands(app.screen)}
        assert {"Filter", "Copy", "Theme", "Quit"} <= set(offered)
        offered["Filter"].callback()
        await pilot.pause()
        assert isinstance(app.focused, Input)


async def test_a_terminal_that_is_too_small_is_told_so_until_it_is_larger(tmp_path: Path) -> None:
    app = view_evaluations(an_evaluation(tmp_path / "a").path)
    async with app.run_test(size=(60, 20)) as pilot:
        await settle(pilot)
        assert isinstance(app.screen, TooSmallScreen)
        await pilot.resize_terminal(80, 24)
        await settle(pilot)
        assert isinstance(app.screen, RolloutsScreen)


async def test_an_evaluation_with_broken_metadata_is_still_opened(tmp_path: Path) -> None:
    directory = an_evaluation(tmp_path / "a", 3)
    directory.metadata.write_text("{")
    app = view_evaluations(directory.path)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert listed(app) == [0, 1, 2]


async def test_what_is_marked_with_the_mouse_can_be_copied(tmp_path: Path) -> None:
    app = view_evaluations(an_evaluation(tmp_path / "a").path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.mouse_down(Conversation, offset=(3, 1))
        await pilot.hover(Conversation, offset=(10, 4))
        await pilot.mouse_up(Conversation, offset=(10, 4))
        await pilot.pause()
        assert "answer with the number alone.\n\n▾ user" in str(app.screen.get_selected_text())
