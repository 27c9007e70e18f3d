"""An environment of two turns, and rollouts of it through any client type; several tests use it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from prime_cli.environments.runtime import EnvironmentSpec, EnvironmentWorkers, ModelEndpoint
from prime_cli.rl.algorithm_config import SamplingConfig
from prime_cli.rl.orchestrator.environments import sampling_arguments

ENVIRONMENT = '''
import verifiers as vf
from datasets import Dataset

class TwoTurns(vf.MultiTurnEnv):
    """Says "again" once, whatever the answer is."""

    async def env_response(self, messages, state, **_):
        return [{"role": "user", "content": "again"}]

def reward(completion, **_):
    return float(len(completion))

def load_environment():
    rows = [{"prompt": [{"role": "user", "content": word}], "answer": ""} for word in ("one", "two", "three")]
    data = Dataset.from_list(rows)
    return TwoTurns(dataset=data, eval_dataset=data, rubric=vf.Rubric(funcs=[reward]), max_turns=2)
'''

ENDS_SOON = {"stop_token_ids": list(range(6, 200))}
"""Lets a model that knows nothing end its turns: a turn that is cut off cannot be continued."""


def two_turns_workers(folder: Path, python: str = sys.executable) -> EnvironmentWorkers:
    """Write the environment into `folder` and return workers of it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "two_turns.py").write_text(ENVIRONMENT)
    return EnvironmentWorkers(
        EnvironmentSpec("two-turns"), python=Path(python), log_directory=folder / "logs", search_path=[folder]
    )


async def two_turn_rollouts(
    workers: EnvironmentWorkers, endpoint: ModelEndpoint, *, count: int = 4, max_tokens: int = 24
) -> list[dict[str, Any]]:
    """Return rollouts of the first example, sampled at temperature 1."""
    (example,) = await workers.examples("train", limit=1)
    sampling = SamplingConfig(max_tokens=max_tokens, extra_body=dict(ENDS_SOON))
    return await workers.run_group(
        [example] * count,
        endpoint,
        sampling_arguments(sampling, endpoint.client_type),
        state_columns=("trajectory",),
        timeout_s=120,
    )
