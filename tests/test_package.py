"""The wheel of the tool itself carries everything that runs from it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

TOP = Path(__file__).parent.parent


def test_the_wheel_ships_the_templates_the_constraints_the_pages_and_the_migrations(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, TOP],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("prime_lab-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"prime_cli", "hub_server", wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"}
    for template in (TOP / "templates").rglob("*"):
        if template.is_file() and "__pycache__" not in template.parts:
            assert f"prime_cli/_resources/{template.relative_to(TOP)}" in names
    assert "prime_cli/_resources/constraints.txt" in names
    for package in ("prime_cli", "hub_server"):
        for file in (TOP / package).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                assert str(file.relative_to(TOP)) in names
