"""The demo's conduct when a step fails; that it works as a whole is what `benchmarks/demo.py` shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from prime_cli.lab.demo import Demo, StepFailed

# Stands for `prime`: a hub that says it is ready and stays, and one command that fails.
STAND_IN = """
import json, os, pathlib, sys, time
arguments = sys.argv[1:]
with open(os.environ["PRIME_HOME"] + ".calls", "a") as calls:
    calls.write(" ".join(arguments) + "\\n")
if arguments[:2] == ["hub", "serve"]:
    ready = pathlib.Path(arguments[arguments.index("--ready-file") + 1])
    pathlib.Path(os.environ["PRIME_HOME"] + ".hub").write_text(str(os.getpid()))
    ready.write_text(json.dumps({"url": "http://127.0.0.1:1"}))
    time.sleep(60)
if arguments[:2] == ["env", "build"]:
    sys.exit("error: the wheel does not build")
"""


def test_a_step_that_fails_stops_the_demo_with_its_name_and_the_hub_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prime.py").write_text(STAND_IN)
    said: list[str] = []
    demo = Demo(tmp_path / "demo", seed=0, say=said.append)
    demo._prime = [sys.executable, str(tmp_path / "prime.py")]
    with pytest.raises(StepFailed, match="build its wheel") as caught:
        demo.run()
    assert caught.value.exit_code == 1
    assert "the wheel does not build" in capfd.readouterr().err
    calls = (tmp_path / "demo" / "home.calls").read_text().splitlines()
    assert [call.split()[:2] for call in calls[-2:]] == [["env", "init"], ["env", "build"]]
    assert said[-1].endswith("$ prime env build reverse-text")
    assert not (tmp_path / "demo" / "summary.json").exists()
    hub = int((tmp_path / "demo" / "home.hub").read_text())
    assert not Path(f"/proc/{hub}").exists()


def test_a_hub_that_does_not_start_stops_the_demo_with_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "prime.py").write_text("import sys; sys.exit('error: the port is taken')")
    said: list[str] = []
    demo = Demo(tmp_path / "demo", seed=0, say=said.append)
    demo._prime = [sys.executable, str(tmp_path / "prime.py")]
    with pytest.raises(StepFailed, match="start a hub"):
        demo.run()
    assert "error: the port is taken" in said[-1]
