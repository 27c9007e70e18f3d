"""Writes the pictures of docs/images that show the viewer, from a workspace such as `prime lab demo` makes.

python docs/make_viewer_pictures.py WORKSPACE [browser|rollouts|training ...]
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from prime_cli.viewer.app import Viewer, view_evaluations, view_runs

IMAGES = Path(__file__).parent.resolve() / "images"
SIZE = (110, 30)


async def photograph(app: Viewer, name: str, *keys: str) -> None:
    """Press keys, wait for what they began, and write the screen."""
    async with app.run_test(size=SIZE) as pilot:
        for key in ("", *keys):
            if key:
                await pilot.press(key)
            await app.workers.wait_for_complete()
            await pilot.pause(0.3)
        (IMAGES / f"viewer_{name}.svg").write_text(app.export_screenshot(title=f"prime · {name}"))


async def main(workspace: Path, names: list[str]) -> None:
    """Write those that are named."""
    os.chdir(workspace)
    if "browser" in names:
        await photograph(view_evaluations(None), "browser")
    if "rollouts" in names:
        await photograph(view_evaluations(None), "rollouts", "enter", "o", "down", "down")
    if "training" in names:
        run = next(path for path in sorted(Path("outputs/rl").iterdir()) if (path / "metrics.jsonl").is_file())
        await photograph(view_runs(run, Path("outputs/rl")), "training")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:] or ["browser", "rollouts", "training"]))
