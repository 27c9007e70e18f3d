"""Starts the workers of a run's environments, and makes of each environment a source of groups."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prime_cli.environments.runtime import (
    ENVIRONMENTS_VARIABLE,
    ClientType,
    EnvironmentWorkers,
    ModelEndpoint,
)
from prime_cli.models.folder import load_tokenizer
from prime_cli.rl.algorithm_config import AlgorithmConfig, SamplingConfig
from prime_cli.rl.config import RLConfig
from prime_cli.rl.environment_config import EnvironmentConfig
from prime_cli.rl.evaluation.environments import LoadedEnvironment, hold_out, workers_of
from prime_cli.rl.evaluation.evaluator import Row
from prime_cli.rl.orchestrator.admission_gates import gates_of
from prime_cli.rl.orchestrator.algorithms import Algorithm, Encode, algorithm_of
from prime_cli.rl.orchestrator.policy import InferenceAddress
from prime_cli.rl.orchestrator.samplers import sampler_of
from prime_cli.rl.orchestrator.sources import Source, WorkerGroups
from prime_cli.rl.orchestrator.teacher import Teacher, TeacherAddress
from prime_cli.rl.orchestrator.temperature import temperature_of


class RunEnvironments:
    """The environments of a run: workers while it goes on, sources for its loop.

    Args:
        policy: the server that most rollouts are sampled from.
        teacher: the model that judges tokens, or samples them.
    """

    def __init__(self, config: RLConfig, logs: Path, policy: InferenceAddress, teacher: TeacherAddress | None) -> None:
        self._config = config
        self._policy = policy
        self._teacher_address = teacher
        self._variables: dict[str, str] = json.loads(os.environ.get(ENVIRONMENTS_VARIABLE, "{}"))
        judged = any(config.algorithm_for(environment).type == "opd" for environment in config.env)
        self._teacher = Teacher(teacher) if judged and teacher is not None else None
        self._logs = logs
        self.loaded: dict[str, LoadedEnvironment] = {}
        self.held_out: dict[str, list[Row]] = {}
        self._workers: list[EnvironmentWorkers] = []

    async def start(self) -> list[Source]:
        """Start all workers; return the sources in the order of the configuration.

        Raises:
            EnvironmentFailed: an environment does not load, or has no training examples.
            EnvironmentWorkerDied: a worker ended while loading.
        """
        return list(await asyncio.gather(*(self._start(environment) for environment in self._config.env)))

    async def close(self) -> None:
        """End all workers."""
        await asyncio.gather(*(workers.close() for workers in self._workers))
        if self._teacher is not None:
            await self._teacher.close()

    async def load(self, environment: EnvironmentConfig, *, name: str) -> LoadedEnvironment:
        """Start workers that have loaded an environment; `name` is how they are called in logs.

        Raises:
            EnvironmentFailed: the environment does not load.
            EnvironmentWorkerDied: a worker ended while loading.
        """
        workers = workers_of(
            environment,
            name=name,
            logs=self._logs,
            num_workers=environment.workers or self._config.orchestrator.env_workers,
            variables=self._variables,
            silence_timeout_s=self._config.orchestrator.env_worker_timeout_s,
        )
        self._workers.append(workers)
        return LoadedEnvironment(workers, await workers.start())

    async def _start(self, environment: EnvironmentConfig) -> Source:
        loaded = self.loaded[environment.label] = await self.load(environment, name=environment.label)
        workers = loaded.workers
        rows: list[Row] = list(await workers.examples("train"))
        if self._config.val is not None:
            rows, self.held_out[environment.label] = hold_out(
                rows, self._config.val.num_examples, seed=self._config.seed, name=environment.label
            )
        settings = self._config.algorithm_for(environment)
        curriculum = self._config.curriculum_for(environment)
        endpoint, sampling = self._sampled_by(environment, settings)
        return Source(
            name=environment.label,
            group_size=self._config.group_size_for(environment),
            run_group=WorkerGroups(
                workers,
                rows,
                endpoint,
                sampling,
                timeout_s=environment.timeout,
                retries=environment.retries,
                whole_groups=loaded.about.needs_group_scoring,
                seed=self._config.seed,
            ),
            sampler=sampler_of(curriculum.sampler, len(rows), self._config.seed),
            algorithm=self._algorithm(settings),
            ratio=environment.ratio,
            temperature=temperature_of(self._sampling_of(environment, settings), self._config.max_steps),
            frozen=settings.type == "sft",
            gates=gates_of(curriculum, self._config.pre_batch_filters),
        )

    def _algorithm(self, settings: AlgorithmConfig) -> Algorithm:
        encode: Encode | None = None
        if settings.type == "echo":
            tokenizer = load_tokenizer(self._config.model)

            def encode(text: str) -> list[int]:
                ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
                return ids

        longest = self._config.trainer.seq_len - 1  # a server needs room for one token more

        async def score(token_ids: Sequence[int]) -> list[float]:
            assert self._teacher is not None, "the algorithm has a teacher"
            return await self._teacher.score(token_ids[:longest])

        return algorithm_of(settings, score=score, encode=encode)

    def _sampled_by(
        self, environment: EnvironmentConfig, settings: AlgorithmConfig
    ) -> tuple[ModelEndpoint, dict[str, Any]]:
        """Return the model that samples the rollouts, and how it samples."""
        how = self._sampling_of(environment, settings)
        kind = self._config.orchestrator.client_type
        if settings.type != "sft":
            endpoint = ModelEndpoint(
                base_url=self._policy.base_url,
                model=self._policy.model,
                client_type=kind,
                tokenizer=str(self._config.model),
                renderer=self._config.orchestrator.renderer,
                takes_many=self._policy.takes_many,
            )
            return endpoint, sampling_arguments(how, kind)
        teacher = self._teacher_address
        assert teacher is not None, "the launcher names the teacher"
        key = os.environ.get(teacher.api_key_var or "", "") or "EMPTY"
        endpoint = ModelEndpoint(teacher.base_url, teacher.model, api_key=key, headers=teacher.headers)
        return endpoint, sampling_arguments(how)

    def _sampling_of(self, environment: EnvironmentConfig, settings: AlgorithmConfig) -> SamplingConfig:
        own = self._config.teacher.sampling if settings.type == "sft" and self._config.teacher is not None else None
        return own or self._config.sampling_for(environment)


def sampling_arguments(sampling: SamplingConfig, client_type: ClientType = "openai_chat_completions") -> dict[str, Any]:
    """Return what is sent with each request: always with token ids and log-probabilities, never with a cut."""
    arguments = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens, "top_p": 1.0}
    if client_type == "renderer":  # it asks for both itself, and takes every other key for a sampling parameter
        return {**arguments, "extra_body": dict(sampling.extra_body)}
    return {
        **arguments,
        "logprobs": True,
        "extra_body": {**sampling.extra_body, "return_token_ids": True},
    }
