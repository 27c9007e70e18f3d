"""A teacher behind a real server, and what is found out about it before a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from prime_cli.core.errors import ConfigError, PrimeError
from prime_cli.models.folder import load_causal_model
from prime_cli.rl.algorithm_config import TeacherConfig
from prime_cli.rl.inference.serving import serve_model_folder
from prime_cli.rl.orchestrator.algorithms import OnPolicyDistillation
from prime_cli.rl.orchestrator.teacher import Teacher, TeacherAddress, check_teacher
from prime_cli.rl.step_config import LossConfig, SchedulerConfig, StepConfig
from prime_cli.rl.trainer.learner import Learner
from tests.prime_cli.rl.learners import plain_logprobs


def turn(prompt: list[int], completion: list[int], logprobs: list[float]) -> dict[str, object]:
    tokens = {
        "prompt_ids": prompt, "completion_ids": completion, "completion_mask": [1] * len(completion),
        "completion_logprobs": logprobs,
    }  # fmt: skip
    return {"tokens": tokens}


async def test_the_policy_moves_to_what_its_teacher_finds_likely(tiny_model: Path, tmp_path: Path) -> None:
    learner = Learner(
        load_causal_model(tiny_model),
        config=StepConfig(scheduler=SchedulerConfig(warmup_steps=0), seq_len=64),
        loss=LossConfig(),
        learning_rate=1e-3,
        total_steps=10,
    )
    ids, liked = torch.tensor([[4, 70, 5, 80, 90]]), {80: 2.0, 90: -2.0}

    def policy() -> list[float]:
        with torch.no_grad():
            values: list[float] = plain_logprobs(learner.model(input_ids=ids).logits, ids, torch.ones(1))[0][0].tolist()
        return values

    with serve_model_folder(tiny_model, log_path=tmp_path / "teacher.log") as served:
        teacher = Teacher(TeacherAddress(served.base_url, served.model))

        async def score(token_ids: Sequence[int]) -> list[float]:
            logprobs = await teacher.score(token_ids)
            return [value + liked.get(token, 0.0) for token, value in zip(token_ids, logprobs, strict=True)]

        before = policy()
        assert await teacher.score(ids[0].tolist()) == pytest.approx(before, abs=1e-4)
        for _ in range(3):
            rollout = {"trajectory": [turn([4, 70, 5], [80, 90], policy()[3:])]}
            (sample,) = await OnPolicyDistillation(score).samples([rollout], temperature=1.0)
            report = learner.step([sample])
        await teacher.close()
    assert report.loss_tokens == 2
    assert policy()[3] > before[3]
    assert policy()[4] < before[4]


async def test_a_server_that_is_no_teacher_is_named(tiny_model: Path, tmp_path: Path) -> None:
    with serve_model_folder(tiny_model, log_path=tmp_path / "log") as served:
        teacher = Teacher(TeacherAddress(served.base_url, served.model))
        with pytest.raises(PrimeError, match="refused to score: HTTP 400"):
            await teacher.score([4000])
    with pytest.raises(PrimeError, match="the teacher did not answer"):
        await teacher.score([4, 70])
    await teacher.close()


def test_a_teacher_with_another_tokenizer_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    check_teacher(TeacherConfig(model=str(tiny_model)), tiny_model)
    other = tmp_path / "other"
    shutil.copytree(tiny_model, other)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["new"] = 300
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ConfigError, match="another tokenizer"):
        check_teacher(TeacherConfig(model=str(other)), tiny_model)


def test_a_teacher_whose_key_is_not_set_is_refused(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEACHER_KEY", raising=False)
    teacher = TeacherConfig.model_validate({"model": "big", "client": {"base_url": "x", "api_key_var": "TEACHER_KEY"}})
    with pytest.raises(ConfigError, match="TEACHER_KEY, which is not set"):
        check_teacher(teacher, tiny_model)
