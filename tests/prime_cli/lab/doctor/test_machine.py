"""What is said of machines with and without a GPU, vLLM, room on the disk, and interpreters of several kinds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from prime_cli.lab.doctor import machine
from prime_cli.lab.doctor.finding import Finding
from prime_cli.lab.doctor.interpreters import check_environment_packages, check_interpreters, check_own_packages
from prime_cli.lab.doctor.machine import check_disk, check_gpu, check_isolation, check_vllm
from prime_cli.lab.doctor.surroundings import Ran, Surroundings, ask, run_program


def on_a_machine(folder: Path, programs: dict[str, Ran], **variables: str) -> Surroundings:
    """A machine on which programs end so: each by the first word that its command line has."""

    def run(command: Sequence[str], timeout_s: float) -> Ran:
        line = " ".join(command)
        return next((ran for word, ran in programs.items() if word in line), Ran(127))

    return Surroundings(folder, Path(sys.executable), Path(sys.executable), variables, run, ask)


def with_python(python: Path, folder: Path) -> Surroundings:
    return Surroundings(folder, python, Path(sys.executable), {}, run_program, ask)


GPU = Ran(0, "GPU 0: NVIDIA H100\n")


def test_without_a_gpu_the_processor_will_do(tmp_path: Path) -> None:
    (gpu,) = check_gpu(on_a_machine(tmp_path, {}))
    (vllm,) = check_vllm(on_a_machine(tmp_path, {"importlib.metadata": Ran(0, "[null, null]")}))
    assert (gpu.level, vllm.level) == ("ok", "ok")


def test_a_gpu_that_torch_does_not_see_fails(tmp_path: Path) -> None:
    around = on_a_machine(tmp_path, {"nvidia-smi": GPU, "import json, torch": Ran(0, '["2.13.0+cpu", false, 0]')})
    (finding,) = check_gpu(around)
    assert finding.level == "fails"
    assert "2.13.0+cpu does not see it" in finding.message
    assert "torch==2.13.0" in str(finding.hint)


def test_a_gpu_without_vllm_is_a_warning_with_the_command_that_sets_it_up(tmp_path: Path) -> None:
    (finding,) = check_vllm(on_a_machine(tmp_path, {"nvidia-smi": GPU, "importlib.metadata": Ran(0, "[null, null]")}))
    assert (finding.level, finding.hint) == ("warning", "prime lab setup --prime-rl")


@pytest.mark.parametrize(
    ("found", "level"),
    [('["0.32.0", "2.13.0+cu130"]', "ok"), ('["0.31.0", "2.13.0"]', "warning"), ('["0.32.0", "2.12.0"]', "warning")],
)
def test_vllm_and_its_torch_are_compared_with_the_tested_pair(tmp_path: Path, found: str, level: str) -> None:
    around = on_a_machine(tmp_path, {"importlib.metadata": Ran(0, found)}, PRIME_VLLM_PYTHON="/opt/vllm/bin/python")
    (finding,) = check_vllm(around)
    assert finding.level == level
    assert "/opt/vllm/bin/python" in finding.message


def test_an_interpreter_for_vllm_that_was_named_and_has_none_fails(tmp_path: Path) -> None:
    around = Surroundings(tmp_path, Path(), Path(), {"PRIME_VLLM_PYTHON": str(tmp_path / "missing")}, run_program, ask)
    (finding,) = check_vllm(around)
    assert finding.level == "fails"


def test_a_folder_that_cannot_be_written_to_fails(tmp_path: Path) -> None:
    (finding,) = check_disk(on_a_machine(tmp_path / "gone", {}))
    assert finding.level == "fails"
    assert "cannot be written to" in finding.message


@pytest.mark.parametrize(("free_gib", "level"), [(0.1, "fails"), (2, "warning"), (100, "ok")])
def test_little_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_gib: float, level: str) -> None:
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: SimpleNamespace(free=int(free_gib * 1024**3)))
    (finding,) = check_disk(on_a_machine(tmp_path, {}))
    assert finding.level == level


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_isolation_is_what_the_programs_of_this_machine_can_really_do(tmp_path: Path) -> None:
    (finding,) = check_isolation(Surroundings(tmp_path, Path(), Path(), os.environ, run_program, ask))
    assert finding.level == "ok"
    assert ("level none" in finding.message) == (shutil.which("bwrap") is None)
    (without,) = check_isolation(on_a_machine(tmp_path, {}))
    assert without.message.startswith("level none")


def test_this_interpreter_has_all_it_needs(tmp_path: Path) -> None:
    around = with_python(Path(sys.executable), tmp_path)
    found = check_interpreters(around) + check_environment_packages(around) + check_own_packages(around)
    assert [finding.level for finding in found] == ["ok"] * 3, found


def a_python_with(folder: Path, **versions: str) -> Path:
    """Make an interpreter that has these distributions, as far as its metadata says."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name, version in versions.items():
        about = packages / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder / "bin/python"


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_an_interpreter_without_verifiers_fails_and_can_be_mended(tmp_path: Path) -> None:
    finding = only(check_environment_packages(with_python(a_python_with(tmp_path / "venv"), tmp_path)))
    assert finding.level == "fails"
    assert "verifiers" in finding.message
    assert finding.repair is not None
    assert "verifiers" in finding.repair.does


def test_a_companion_that_verifiers_does_not_work_with_fails_by_its_name(tmp_path: Path) -> None:
    python = a_python_with(tmp_path / "venv", verifiers="0.1.14", renderers="0.1.7", mcp="2.3")
    finding = only(check_environment_packages(with_python(python, tmp_path)))
    assert finding.level == "fails"
    assert "mcp<2 (2.3 is installed)" in finding.message
    assert "'mcp<2'" in str(finding.hint)


def test_another_line_of_verifiers_is_a_warning_and_too_new_a_one_fails(tmp_path: Path) -> None:
    other = a_python_with(tmp_path / "other", verifiers="0.2.1", renderers="0.1.10")
    assert only(check_environment_packages(with_python(other, tmp_path))).level == "warning"
    new = a_python_with(tmp_path / "new", verifiers="0.4.0", renderers="0.1.10")
    assert only(check_environment_packages(with_python(new, tmp_path))).level == "fails"


def test_an_installation_without_torch_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    bare = a_python_with(tmp_path / "venv")
    finding = only(check_own_packages(Surroundings(tmp_path, bare, bare, {}, run_program, ask)))
    assert (finding.level, finding.hint, finding.repair) == ("warning", "prime lab setup --prime-rl", None)
    some = a_python_with(tmp_path / "some", torch="2.13.0")
    partly = only(check_own_packages(Surroundings(tmp_path, some, some, {}, run_program, ask)))
    assert partly.repair is not None


def test_an_interpreter_that_does_not_run_fails(tmp_path: Path) -> None:
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    python.chmod(0o755)
    finding = only(check_interpreters(with_python(python, tmp_path)))
    assert finding.level == "fails"
    assert finding.message.endswith("does not run: broken")
