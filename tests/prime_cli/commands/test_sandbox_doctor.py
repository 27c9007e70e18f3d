"""How `prime sandbox doctor` tells what was found; what it finds is tested where it is looked for."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from hub_server.sandbox_node import doctor
from hub_server.sandbox_node.doctor import Examination, Finding, Offer, State
from hub_server.sandbox_node.specification import Level
from prime_cli.main import main

BWRAP = Offer("bwrap", Level.CONTAINER, "works", None, 12.3)
PROCESS = Offer("process", Level.NONE, "no isolation", None, 1.0)
NO_BWRAP = Offer("bwrap", None, "bubblewrap is not installed", "apt install bubblewrap")


def told(found: Examination, monkeypatch: pytest.MonkeyPatch, capsys: Any, *options: str) -> tuple[int, str, str]:
    monkeypatch.setattr(doctor, "examine", lambda: found)
    monkeypatch.setattr(sys, "argv", ["prime", "sandbox", "doctor", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def test_a_machine_that_is_good_enough(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    found = Examination([Finding("bubblewrap", State.OK, "0.8.0")], [BWRAP, PROCESS])
    code, shown, words = told(found, monkeypatch, capsys, "--plain")
    assert code == 0
    assert "bubblewrap\tok\t0.8.0" in shown
    assert "bwrap\tcontainer\t12 ms\tworks" in shown
    assert "a node makes sandboxes of level container here, by bwrap" in words
    data = json.loads(told(found, monkeypatch, capsys, "--output", "json")[1])
    assert (data["level"], data["backend"], len(data["offers"])) == ("container", "bwrap", 2)


def test_a_machine_that_is_not_says_what_would_help(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    found = Examination([], [NO_BWRAP, PROCESS])
    code, _, words = told(found, monkeypatch, capsys, "--plain")
    assert code == 1
    assert "bwrap: apt install bubblewrap" in words
    assert "a node starts here with --min-level none only, by process" in words
    assert told(Examination([], [NO_BWRAP]), monkeypatch, capsys, "--plain")[2].endswith("gives no sandboxes\n")
