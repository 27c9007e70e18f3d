"""Writes the pictures of docs/images that show a hub in a browser, from a hub of its own that it fills first.

    python docs/make_screenshots.py [FOLDER]

Needs the extras `hub`, `lab` and `dev`, and Chromium (`chromium` on the PATH, or PRIME_TEST_CHROMIUM). The hub is real
and so are the versions, evaluations and stars on it; what came of checks is written down instead of waiting for checks.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from running_hub import Push, RunningHub, answer, make_wheel, start_hub  # noqa: E402

CHROMIUM = os.environ.get("PRIME_TEST_CHROMIUM") or shutil.which("chromium")
MAX_BYTES = 120_000
CODE = "def load_environment():\n    raise NotImplementedError\n"
README = """# {title}

{description}

| setting | default | meaning |
|---|---|---|
| `num_train` | 2000 | examples to train on |
| `max_turns` | 1 | turns of a rollout |
| `seed` | 0 | which examples come first |

```python
env = load_environment(num_train=500, seed=7)
```

## Rewards

- **{reward}** is the share of the answer that is right, between 0 and 1.
- **format** is 1 where the answer stands between its tags.
"""
ENVIRONMENTS: list[dict[str, Any]] = [
    {
        "owner": "mira", "name": "reverse-text", "title": "Reverse text", "reward": "similarity", "check": "runs",
        "description": "Reverse a sentence, letter by letter.", "tags": ["text", "single-turn", "starter"],
        "versions": ["0.1.0", "0.1.1", "0.2.0"], "stars": 4, "failed": ["0.1.0"],
    },
    {
        "owner": "atlas-lab", "name": "sql-repair", "title": "SQL repair", "reward": "rows", "check": "runs",
        "description": "Mend a query that returns the wrong rows, on small SQLite databases.",
        "tags": ["sql", "tool-use", "multi-turn"], "versions": ["1.0.0", "1.1.0"], "stars": 3,
    },
    {
        "owner": "atlas-lab", "name": "unit-conversions", "title": "Unit conversions", "reward": "value",
        "description": "Word problems with units, checked by value and by unit.", "tags": ["math", "single-turn"],
        "versions": ["0.3.0"], "stars": 2, "check": "loads",
    },
    {
        "owner": "jonas", "name": "wordle-six", "title": "Wordle with six letters", "reward": "solved", "stars": 1,
        "description": "Guess a word of six letters in eight turns.", "tags": ["game", "multi-turn"],
        "versions": ["0.1.0", "0.1.1"], "check": "fails",
    },
    {
        "owner": "jonas", "name": "citation-finder", "title": "Citation finder", "reward": "found", "check": "runs",
        "description": "Find the sentence of a paper that supports a claim.", "tags": ["text", "tool-use"],
        "versions": ["0.2.0"], "stars": 0,
    },
]  # fmt: skip
FACTS: dict[str, Any] = {
    "environment_type": "SingleTurnEnv", "num_train": 2000, "num_eval": 200, "verifiers": "0.1.14", "python": "3.12.11",
    "rewards": [{"name": "similarity", "weight": 1.0}, {"name": "format", "weight": 0.2}],
    "timings": {"install_s": 3.1, "import_s": 1.4, "load_s": 0.6, "rollout_s": 0.2}, "peak_memory_bytes": 310 * 2**20,
}  # fmt: skip
CHECKS: dict[str, tuple[str, dict[str, Any]]] = {
    "runs": ("passed", {**FACTS, "rollout": {"status": "passed", "reward": 0.2, "model_calls": 1}}),
    "loads": (
        "passed",
        {**FACTS, "reason": "it wants a judge", "rollout": {"status": "skipped", "reason": "it wants a judge"}},
    ),
    "fails": ("failed", {"stage": "import", "reason": "ModuleNotFoundError: No module named 'nltk'"}),
}


def fill(hub: RunningHub) -> dict[str, str]:
    """Put users, a team, environments and evaluations on an empty hub; return the addresses of what is shown."""
    with hub.client(hub.key_of("mira")) as mira:
        answer(mira.post("/teams", json={"slug": "atlas-lab", "name": "Atlas Lab"}))
    ids = {about["name"]: publish(hub, about) for about in ENVIRONMENTS}
    write_checks(hub)
    means = [("tiny-qwen3", 0.31), ("tiny-qwen3-sft", 0.62), ("tiny-qwen3-rl-100", 0.84), ("tiny-qwen3-rl-200", 0.93)]
    evaluations = [evaluate(hub, ids["reverse-text"], model, mean) for model, mean in means]
    return {
        "hub_list": "/",
        "hub_environment": "/dashboard/environments/mira/reverse-text",
        "hub_evaluation": f"/dashboard/evaluations/{evaluations[-1]}",
    }


def publish(hub: RunningHub, about: dict[str, Any]) -> str:
    """Publish all versions of an environment, have it starred, and return its id."""
    owner, name = about["owner"], about["name"]
    push = None
    with hub.client(hub.key_of("mira" if owner == "atlas-lab" else owner)) as client:
        for version in about["versions"]:
            push = Push(client, name, version, owner=owner, code=f"{CODE}\n\nVERSION = {version!r}\n")
            push.metadata = {"description": about["description"], "tags": about["tags"]}
            text = README.format(title=about["title"], description=about["description"], reward=about["reward"])
            metadata = (
                f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nRequires-Python: >=3.11\n"
                "License-Expression: Apache-2.0\nRequires-Dist: verifiers>=0.1.14\n"
                f"Requires-Dist: datasets>=3\nDescription-Content-Type: text/markdown\n\n{text}"
            )
            push.filename, push.wheel = make_wheel(name, version, code=push.code, metadata=metadata)
            sent = push.run()
            assert sent.is_success, sent.text
    assert push is not None
    for number in range(about["stars"]):
        with hub.client(hub.key_of(("mira", "jonas", "ada", "tomas")[number])) as fan:
            answer(fan.put(f"/environmentshub/{owner}/{name}/star"))
    return push.environment_id


def write_checks(hub: RunningHub) -> None:
    """Write down what came of the checks, which this hub does not make."""
    database = sqlite3.connect(hub.data_dir / "hub.db", timeout=30)
    with database:
        for about in ENVIRONMENTS:
            for version in about["versions"]:
                status, facts = CHECKS["fails" if version in about.get("failed", ()) else about["check"]]
                database.execute(
                    "UPDATE checks SET status = ?, facts = ?, finished_at = queued_at WHERE release_id IN (SELECT "
                    "releases.id FROM releases JOIN environments ON environments.id = environment_id "
                    "WHERE normalized_name = ? AND semantic_version = ?)",
                    (status, json.dumps(facts), about["name"], version),
                )
    database.close()


def evaluate(hub: RunningHub, environment_id: str, model: str, mean: float) -> str:
    """Push an evaluation with 60 rollouts around a mean reward, and return its id."""
    chance = random.Random(model)  # noqa: S311  any numbers will do
    samples = [
        {
            "example_id": number // 2, "rollout_number": number % 2, "prompt": "Reverse: the cat sat",
            "reward": round(min(1.0, max(0.0, chance.gauss(mean, 0.12))), 3),
            "completion": [{"role": "assistant", "content": "tas tac eht"}],
        }
        for number in range(60)
    ]  # fmt: skip
    body = {
        "name": f"{model} on reverse-text", "model_name": model, "environments": [{"id": environment_id}],
        "is_public": True, "metadata": {"num_examples": 30, "rollouts_per_example": 2, "temperature": 0.7},
    }  # fmt: skip
    with hub.client(hub.key_of("mira")) as client:
        evaluation = str(answer(client.post("/evaluations/", json=body))["evaluation_id"])
        answer(client.post(f"/evaluations/{evaluation}/samples", json={"samples": samples}))
        metrics = {"similarity": mean, "format": 0.98}
        answer(client.post(f"/evaluations/{evaluation}/finalize", json={"metrics": metrics}))
    return evaluation


def shoot(hub: RunningHub, shown: dict[str, str], folder: Path) -> None:
    """Write a picture of each page: light, 1,100 pixels wide, in few colours."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1100, "height": 800}, color_scheme="light")
        for name, path in shown.items():
            page.goto(hub.url + path)
            picture = folder / f"{name}.png"
            page.screenshot(path=picture)
            Image.open(picture).convert("RGB").quantize(256).save(picture, optimize=True)
            assert picture.stat().st_size < MAX_BYTES, f"{picture} has {picture.stat().st_size} bytes"
        browser.close()


def main() -> None:
    """Start a hub, fill it, photograph it."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    with tempfile.TemporaryDirectory() as scratch:
        hub = start_hub(Path(scratch) / "data")
        try:
            shown = fill(hub)
            hub.end()
            # Uploads went to the hub's own address; what is shown is one that reads well.
            hub = start_hub(Path(scratch) / "data", "--public-url", "https://hub.example")
            shoot(hub, shown, folder)
        finally:
            hub.end()


if __name__ == "__main__":
    main()
