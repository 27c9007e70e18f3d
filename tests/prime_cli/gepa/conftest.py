"""A run whose rollouts are a function instead of an environment's worker; everything else is real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from prime_cli.environments.runtime import ModelEndpoint
from prime_cli.evals.cost import PricedEndpoint, TokenPrice
from prime_cli.gepa.config import GepaConfig
from prime_cli.gepa.examples import Pool, SplitSizes, draw_splits
from prime_cli.gepa.plan import Plan
from prime_cli.gepa.progress import Meter, Progress
from prime_cli.gepa.rollouts import LoadedEnvironment
from prime_cli.gepa.run import Models, Prepared, run_gepa
from prime_cli.gepa.run_directory import GepaDirectory
from prime_cli.gepa.summary import GepaSummary
from tests.prime_cli.gepa.scripted import answer, shout
from tests.scripted_model import scripted_model

WORDS = [f"{word}{i}" for i, word in enumerate(["apple", "brook", "cloud", "delta", "ember"] * 16)]


@dataclass
class Workers:
    """Stands for `EnvironmentWorkers`: a rollout is what `shout` says, scored; `fail` may make an error of it."""

    calls: list[str] = field(default_factory=list)
    fail: Callable[[int], dict[str, str] | None] = lambda number: None

    async def run_rollout(self, row: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        self.calls.append(row["answer"])
        await asyncio.sleep(0)
        error = self.fail(len(self.calls))
        messages = row["prompt"]
        text = shout(messages[0]["content"] if messages[0]["role"] == "system" else "", messages[-1]["content"])
        reward = (text.startswith("Hello ") + text.endswith(".") + (row["answer"].upper() in text)) / 3
        return {
            "completion": [{"role": "assistant", "content": text}],
            "reward": 0.0 if error else reward,
            "error": error,
            "token_usage": {"input_tokens": 10, "output_tokens": 2},
        }


@dataclass
class Runner:
    """Makes runs in folders below `folder`, against the reflection model at `url`."""

    folder: Path
    url: str
    price: TokenPrice | None = None

    def run(self, name: str, workers: Workers | None = None, **search: Any) -> GepaSummary:
        """Run, or go on with, the run of that name."""
        config = GepaConfig.model_validate({"model": "m", "env": [{"id": "shouting"}], "gepa": SEARCH | search})
        rows = [
            {"prompt": [{"role": "system", "content": "Repeat."}, {"role": "user", "content": w}], "answer": w}
            for w in WORDS
        ]
        settings = config.gepa
        splits = draw_splits([Pool("shouting", rows, [])], SplitSizes(12, 6, 10), frozenset(), settings.seed)
        plan = Plan(settings.max_calls, settings.minibatch_size, splits.sizes)
        environment: Any = workers or Workers()
        ready = Prepared("shouting", [LoadedEnvironment(environment, as_group=False)], splits, plan, "Repeat.")
        directory = GepaDirectory(self.folder / name)
        directory.path.mkdir(exist_ok=True)
        self.seen: list[Progress] = []
        meter = Meter(settings.max_calls, self.seen.append, settings.max_cost)
        endpoint = PricedEndpoint(ModelEndpoint(self.url, "scripted"), self.price)
        models = Models([endpoint], endpoint, "m", "m")
        return asyncio.run(run_gepa(config, ready, models, directory, meter, lambda text: None))


SEARCH = {"max_calls": 110, "max_retries": 0, "max_concurrent": 4}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with scripted_model(answer) as url:
        yield url


@pytest.fixture
def runner(tmp_path: Path, url: str) -> Runner:
    return Runner(tmp_path, url)
