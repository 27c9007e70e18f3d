"""From any file to one resolved configuration, or to words about what is wrong with it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prime_cli.core.config_file import table_model
from prime_cli.core.errors import ConfigError
from prime_cli.rl import lab_schema, nested_schema
from prime_cli.rl.config import RLConfig
from prime_cli.rl.resolve import resolve

NAMES = st.text("abcdefghij", min_size=1, max_size=8)
NUMBERS = st.floats(0.01, 5.0, allow_nan=False)


def tables(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


SAMPLING = tables(
    max_tokens=st.integers(1, 1000),
    temperature=NUMBERS,
    extra_body=st.dictionaries(NAMES, st.integers() | NAMES, max_size=2),
    enable_thinking=st.booleans(),
)
ENVIRONMENT = st.fixed_dictionaries(
    {"id": NAMES},
    optional={
        "args": st.dictionaries(NAMES, st.integers()),
        "ratio": NUMBERS,
        "max_retries": st.integers(0, 3),
        "timeout": NUMBERS,
        "sampling": SAMPLING,
        "curriculum": st.just({"sampler": {"type": "difficulty_pool"}}),
    },
)
FLAT = st.fixed_dictionaries(
    {"model": NAMES, "env": st.lists(ENVIRONMENT, min_size=1, max_size=2, unique_by=lambda one: one["id"])},
    optional={
        "name": NAMES,
        "max_steps": st.integers(100, 1000),
        "batch_size": st.sampled_from([32, 64, 128]),
        "rollouts_per_example": st.sampled_from([2, 4, 8, 16]),
        "learning_rate": st.floats(1e-7, 1e-2),
        "lora_alpha": st.floats(1, 64),
        "max_off_policy_steps": st.integers(0, 8),
        "cluster_name": NAMES,
        "env_file": NAMES,
        "env_files": st.lists(NAMES, max_size=2),
        "seed": st.integers(0, 2**31),
        "sampling": SAMPLING | st.just({"temp_scheduler": {"start_temperature": 1.0, "end_temperature": 0.5}}),
        "pre_batch_filters": st.lists(st.sampled_from([{"type": "gibberish"}, {"type": "repetition", "window": 5}])),
        "post_batch_filters": st.lists(st.just({"type": "zero_advantage"}), max_size=1),
        "eval": tables(
            interval=st.integers(1, 50),
            sampling=st.sampled_from([{"temperature": 0.0}, {"top_p": 0.5, "reasoning_effort": "low"}]),
            env=st.lists(st.just({"id": "o/x@1", "num_examples": 5, "interval": 9}), max_size=1),
        ),
        "val": tables(num_examples=st.integers(1, 9)),
        "checkpoints": tables(interval=st.integers(0, 50), keep_cloud=st.integers(1, 5)),
        "trainer": tables(
            loss=st.sampled_from([{"type": "ipo", "ipo_threshold": 0.2}, {"type": "ratio_clip"}, {"kl_tau": 0.0}]),
            optim=st.sampled_from([{"type": "sgd", "momentum": 0.5}, {"type": "muon"}, {"betas": [0.8, 0.9]}]),
            micro_batch_tokens=st.integers(8, 10**6),
        ),
        "orchestrator": tables(
            algo=st.sampled_from([{"type": "max_rl"}, {"type": "rae", "rae_decay": 0.5}, {"length_penalty": {}}]),
            curriculum=tables(
                sampler=st.sampled_from([{"type": "difficulty_pool"}, {"type": "ordered"}, {"seed": 5}]),
                gates=st.sampled_from([{"a": {}}, {"b": {"type": "online_difficulty", "max_reward": 0.9}}]),
            ),
        ),
    },
)


@given(FLAT)
@settings(max_examples=40, deadline=None)
def test_a_resolved_configuration_is_read_again_as_it_is(data: dict[str, Any]) -> None:
    run = resolve(data, source="run.toml")
    config = run.config
    assert RLConfig.model_validate_json(config.model_dump_json()) == config
    again = resolve(config.model_dump(mode="json"), source="config.json")
    assert again.config == config
    assert all(warning in run.warnings for warning in again.warnings)


def paths_of(model: Any, before: str = "") -> list[str]:
    paths = []
    for name, field in model.model_fields.items():
        paths.append(before + name)
        inner = table_model(field.annotation)
        paths += paths_of(inner, f"{before}{name}.") if inner is not None else []
    return paths


FLAT_PATHS = sorted({*paths_of(RLConfig), *lab_schema.keys()})
NESTED_PATHS = sorted(nested_schema.keys())
WORDS = NAMES | st.sampled_from(["type", "id", "nccl", "sft"])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300) | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)


def put(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        below = data.get(parent)
        if not isinstance(below, dict):
            below = data[parent] = {}
        data = below
    data[last] = value


def is_resolved_or_refused(start: dict[str, Any], junk: dict[str, Any]) -> None:
    data = copy.deepcopy(start)
    for path, value in junk.items():
        put(data, path, value)
    try:
        run = resolve(data, source="run.toml")
    except ConfigError as error:
        message = error.message
    else:
        message = "run.toml: "
        assert all("\n" not in warning for warning in run.warnings)
    assert message.startswith("run.toml: ")


FLAT_START: dict[str, Any] = {"model": "m", "env": [{"id": "e"}]}
NESTED_START: dict[str, Any] = {
    "model": {"name": "m"},
    "orchestrator": {"group_size": 8, "train": {"source": [{"id": "e"}]}},
}
FLAT_JUNK = st.dictionaries(st.sampled_from(FLAT_PATHS), JUNK, max_size=4)
NESTED_JUNK = st.dictionaries(st.sampled_from(NESTED_PATHS), JUNK, max_size=4)


@given(FLAT_JUNK, NESTED_JUNK)
@settings(max_examples=60, deadline=None)
def test_any_file_is_resolved_or_refused_with_words(flat: dict[str, Any], nested: dict[str, Any]) -> None:
    is_resolved_or_refused(FLAT_START, flat)
    is_resolved_or_refused(NESTED_START, nested)


@pytest.mark.slow
@given(FLAT_JUNK, NESTED_JUNK)
@settings(max_examples=1500, deadline=None)
def test_more_than_a_thousand_files_are_resolved_or_refused(flat: dict[str, Any], nested: dict[str, Any]) -> None:
    is_resolved_or_refused(FLAT_START, flat)
    is_resolved_or_refused(NESTED_START, nested)
