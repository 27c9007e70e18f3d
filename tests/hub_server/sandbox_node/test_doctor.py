"""What the doctor says of this host is what sandboxes then get, and what lacks has a remedy."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hub_server.sandbox_node import probes
from hub_server.sandbox_node.choosing import BackendChoice, candidates
from hub_server.sandbox_node.doctor import Examination, Finding, Offer, State, examine
from hub_server.sandbox_node.specification import Level


def traces() -> set[str]:
    groups = {str(path) for path in Path("/sys/fs/cgroup").glob("*/prime-sandboxes/*")}
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return {path for path in groups | mounts if "doctor" in path}


def test_the_doctor_looks_at_everything_makes_sandboxes_and_leaves_nothing() -> None:
    examination = examine()
    found = {finding.name: finding for finding in examination.findings}
    assert {"user namespaces", "bubblewrap", "system call filter", "control groups", "file systems"} <= set(found)
    assert {"agent's Python", "KVM", "skopeo", "umoci", "mmdebstrap"} <= set(found)
    assert [offer.backend for offer in examination.offers] == [str(name) for name in candidates(BackendChoice.AUTO)]
    assert found["agent's Python"].state is State.OK
    needed = ("privileges", "bubblewrap", "system call filter", "control groups", "file systems")
    if all(found[name].state is State.OK for name in needed):
        assert examination.best is not None
        assert examination.best.level is Level.CONTAINER
        assert examination.best.create_ms is not None
    assert found["skopeo"].state is (State.OK if shutil.which("skopeo") else State.LACKS)
    assert traces() == set()


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("apparmor_restrict_unprivileged_userns", "1", "apparmor_parser --replace /etc/apparmor.d/bwrap"),
        ("unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    ],
)
def test_a_host_that_forbids_user_namespaces_is_told_the_command_that_allows_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str, value: str, words: str
) -> None:
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == "setpriv" else f"/usr/bin/{name}")
    monkeypatch.setattr(probes, "_setting", lambda path: value if path.endswith(setting) else None)
    finding = probes.user_namespaces()
    assert finding.state is State.LACKS
    assert finding.detail == "unshare: unshare failed: Operation not permitted"
    assert finding.fix is not None
    assert words in finding.fix


def test_what_is_not_installed_is_told_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "dnf").write_text("#!/bin/sh\n")
    (tmp_path / "dnf").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probes.bubblewrap() == Finding("bubblewrap", State.LACKS, "not installed", "sudo dnf install bubblewrap")
    assert probes.image_program("umoci").fix == "sudo dnf install umoci"


def test_a_user_who_is_not_root_is_told_what_that_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert probes.privileges().fix == "sudo prime sandbox serve"
    assert probes.control_groups().state is State.LACKS
    assert "systemd-run --user" in (probes.control_groups().fix or "")


def test_the_best_offer_is_the_soonest_that_contains_and_else_the_strongest() -> None:
    weak, contained = Offer("bwrap", Level.RESTRICTED, ""), Offer("crun", Level.CONTAINER, "")
    strong, none = Offer("runsc", Level.GVISOR, ""), Offer("runc", None, "not installed")
    assert Examination([], [weak, none, contained, strong]).best is contained
    assert Examination([], [none, weak, Offer("process", Level.NONE, "")]).best is weak
    assert Examination([], [none]).best is None
