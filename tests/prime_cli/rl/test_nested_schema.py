"""Files in the nested schema of prime-rl: every key is converted, ignored with a warning, or refused with a reason."""

from __future__ import annotations

import copy
from typing import Any, get_origin

import pytest

from prime_cli.core.config_file import table_model
from prime_cli.core.errors import ConfigError
from prime_cli.rl.config import RLConfig
from prime_cli.rl.nested_schema import from_nested, is_nested, targets
from prime_cli.rl.resolve import ResolvedRun, resolve

BASE: dict[str, Any] = {
    "model": {"name": "models/tiny"},
    "max_steps": 20,
    "orchestrator": {
        "batch_size": 64,
        "group_size": 8,
        "train": {"source": [{"name": "one", "env": {"taskset": {"id": "o/one", "size": 3}}}]},
    },
}


def with_key(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(BASE)
    *tables, last = path.split(".")
    place = data
    for table in tables:
        place = place.setdefault(table, {})
    place[last] = value
    return data


def resolved(path: str = "max_steps", value: Any = 20) -> ResolvedRun:
    return resolve(with_key(path, value), source="run.toml")


def refusal(path: str, value: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        resolved(path, value)
    return caught.value.message


def at(config: RLConfig, path: str) -> Any:
    value: Any = config
    for part in path.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize(
    ("data", "nested"),
    [
        ({"model": "m", "env": [{"id": "e"}], "trainer": {"ranks": 2}}, False),
        ({"env": [{"id": "e"}], "orchestrator": {}}, False),
        ({"model": "m"}, False),
        ({}, False),
        ({"model": {"name": "m"}}, True),
        ({"orchestrator": {"batch_size": 1}}, True),
        ({"deployment": {"num_train_gpus": 2}}, True),
    ],
)
def test_the_shape_of_a_file_tells_its_schema(data: dict[str, Any], nested: bool) -> None:
    assert is_nested(data) is nested


def test_a_nested_file_becomes_the_resolved_model_with_the_defaults_of_its_own_schema() -> None:
    run = resolved()
    config = run.config
    assert run.warnings == []
    assert (str(config.model), config.batch_size, config.rollouts_per_example) == ("models/tiny", 64, 8)
    assert (config.env[0].id, config.env[0].name, config.env[0].args) == ("o/one", "one", {"size": 3})
    assert (config.learning_rate, config.trainer.optim.betas) == (1e-6, (0.9, 0.999))
    assert (config.trainer.scheduler.type, config.trainer.scheduler.warmup_steps) == ("constant", 0)
    assert config.orchestrator.max_off_policy_steps == 8


@pytest.mark.parametrize(
    ("path", "value", "to", "becomes"),
    [
        ("seq_len", 4096, "trainer.seq_len", 4096),
        ("run.name", "first", "name", "first"),
        ("ckpt.interval", 5, "checkpoints.interval", 5),
        ("max_steps", 20, "checkpoints.interval", 0),
        ("ckpt", {"interval": 5}, "checkpoints.keep_last", 0),
        ("monitors.wandb", {"project": "p"}, "wandb.project", "p"),
        ("trainer.enable_token_export", True, "trainer.token_export_interval", 1),
        ("deployment.num_train_gpus", 2, "trainer.ranks", 2),
        ("trainer.model.lora", {"rank": 8, "alpha": 16}, "trainer.lora.rank", 8),
        ("trainer.model.fused_lm_head_token_chunk_size", 512, "trainer.head_chunk_tokens", 512),
        ("trainer.model.ac", {"mode": "full"}, "trainer.activation_checkpointing", True),
        ("trainer.optim.lr", 3e-6, "learning_rate", 3e-6),
        ("trainer.optim", {"type": "adamw", "betas1": 0.8}, "trainer.optim.betas", (0.8, 0.999)),
        ("trainer.optim", {"type": "muon", "mu": 0.9}, "trainer.optim.momentum", 0.9),
        ("trainer.scheduler", {"type": "linear"}, "trainer.scheduler.decay_steps", 10),
        ("trainer.loss", {"type": "ipo", "ipo_threshold": 0.2}, "trainer.loss.ipo_threshold", 0.2),
        ("trainer.loss", {"type": "default", "kl_tau": 0.0}, "trainer.loss.type", "dppo"),
        ("orchestrator.max_off_policy_steps", 2, "orchestrator.max_off_policy_steps", 2),
        ("orchestrator.algo.type", "max_rl", "orchestrator.algo.type", "max_rl"),
        ("orchestrator.train.sampling.max_completion_tokens", 99, "sampling.max_tokens", 99),
        ("inference.vllm.gpu_memory_utilization", 0.4, "inference.gpu_memory_utilization", 0.4),
        ("inference.vllm.tp", 2, "inference.vllm_args", {"tensor_parallel_size": 2}),
        ("inference.vllm.swap_space", 4, "inference.vllm_args", {"swap_space": 4}),
        ("deployment.num_infer_gpus", 2, "inference.servers", 2),
        ("orchestrator.eval", {"interval": 5, "sampling": {"top_p": 0.9}}, "eval.sampling.top_p", 0.9),
        ("orchestrator.curriculum.sampler", {"type": "standard"}, "orchestrator.curriculum.sampler.type", "ordered"),
        ("orchestrator.concurrency.max_inflight", 64, "orchestrator.concurrency.max_inflight", 64),
        ("orchestrator.concurrency.max_inflight", 64, "orchestrator.concurrency.type", "adaptive"),
    ],
)
def test_a_key_with_a_counterpart_is_converted(path: str, value: Any, to: str, becomes: Any) -> None:
    assert at(resolved(path, value).config, to) == becomes


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("trainer.model.attn", "flash_attention_2", "trainer.model.attn"),
        ("trainer.model.compile", {"fullgraph": True}, "trainer.model.compile"),
        ("rollout_transport", {"type": "zmq", "port": 5555}, "rollout_transport.port"),
        ("orchestrator.model.client.base_url", ["http://127.0.0.1:8000/v1"], "orchestrator.model.client.base_url"),
        ("orchestrator.use_renderer", True, "orchestrator.use_renderer"),
        ("inference.server.port", 8000, "inference.server.port"),
        ("inference.vllm.max_model_len", 4096, "inference.vllm.max_model_len"),
        ("monitors.prime", {"run_name": "x"}, "monitors.prime"),
    ],
)
def test_a_key_that_does_nothing_here_is_warned_about_with_the_reason(path: str, value: Any, named: str) -> None:
    (warning,) = resolved(path, value).warnings
    assert warning.startswith(f"`{named}` does nothing here: ")


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("slurm", {"partition": "p"}, "`slurm`: jobs are not sent to a cluster"),
        ("deployment.type", "multi_node", "`deployment.type`: a run is on one machine, found 'multi_node'"),
        ("deployment.num_infer_replicas", 2, "`deployment.num_infer_replicas`: a run is on one machine"),
        ("trainer.model.cp", 2, "`trainer.model.cp`: a sequence is not spread over ranks, found 2"),
        ("trainer.model.quantization", "fp8", "`trainer.model.quantization`: "),
        ("trainer.loss", {"type": "custom", "import_path": "a.b"}, "a loss of one's own is not imported"),
        ("trainer.optim.type", "sign_sgd", "sign_sgd is not to be had"),
        ("orchestrator.token_batch_size", 9, "`orchestrator.token_batch_size`: batches are counted in rollouts"),
        ("orchestrator.train.sampling.top_p", 0.9, "`orchestrator.train.sampling.top_p`: the trainer computes"),
        ("orchestrator.algo.type", "opsd", "`orchestrator.algo.type`: "),
        ("orchestrator.model.client.base_url", "http://gpu:8000/v1", "cannot load weights into http://gpu:8000/v1"),
        ("inference.vllm.port", 2, "`inference.vllm_args`: port: the run decides this itself"),
        ("trainer.seq_length", 9, "`trainer.seq_length` is not a known key"),
        ("orchestrator.train", 9, "`orchestrator.train` is a table with keys of its own"),
        ("orchestrator.batch_size", 0, "`orchestrator.batch_size`: input should be greater"),
        ("orchestrator.group_size", 1, "`orchestrator.group_size`: `grpo` compares a rollout with the others"),
    ],
)
def test_what_cannot_be_had_is_refused_by_the_name_that_the_user_wrote(path: str, value: Any, says: str) -> None:
    assert says in refusal(path, value)


def test_a_key_of_an_environment_is_named_by_its_place_in_the_users_list() -> None:
    source = {"env": {"taskset": {"id": "e"}}, "ratios": 1}
    assert "`orchestrator.train.source[0].ratios` is not a known key" in refusal("orchestrator.train.source", [source])
    assert "`orchestrator.train.source[0].env.taskset.id`: " in refusal(
        "orchestrator.train.source", [{"env": {"taskset": {"id": ""}}}]
    )


def test_a_shared_key_that_is_given_twice_and_differs_is_refused() -> None:
    data = with_key("seq_len", 4096)
    data["orchestrator"]["seq_len"] = 2048
    with pytest.raises(ConfigError, match=r"`seq_len` is 4096 and `orchestrator.seq_len` is 2048; give one"):
        resolve(data, source="run.toml")


def test_what_is_missing_is_named_as_the_nested_schema_calls_it() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({"orchestrator": {"batch_size": 8}}, source="run.toml")
    assert "`model.name` is required" in caught.value.message
    assert "`orchestrator.train.source` is required" in caught.value.message


def test_a_default_that_cannot_work_is_named_as_the_nested_schema_calls_it() -> None:
    data = with_key("seq_len", 64)
    del data["orchestrator"]["group_size"]
    with pytest.raises(ConfigError) as caught:
        resolve(data, source="run.toml")
    assert "`orchestrator.group_size`: `grpo` compares" in caught.value.message
    assert "`orchestrator.train.sampling.max_completion_tokens`: 512 leaves no room" in caught.value.message


@pytest.mark.parametrize(
    "path", ["inference", "deployment", "trainer", "ckpt", "monitors", "orchestrator.train.sampling"]
)
def test_an_empty_table_says_nothing(path: str) -> None:
    assert resolved(path, {}).config == resolved().config


@pytest.mark.parametrize(
    ("path", "to"), [("trainer.model.lora", "trainer.lora"), ("monitors.wandb", "wandb"), ("orchestrator.eval", "eval")]
)
def test_a_table_that_asks_for_something_by_being_there_may_be_empty(path: str, to: str) -> None:
    assert at(resolved().config, to) is None
    assert at(resolved(path, {}).config, to) is not None
    assert f"`{path}.ranks` is not a known key" in refusal(path, {"ranks": 3})


def test_a_conversion_leaves_what_it_is_given_alone() -> None:
    data = with_key("trainer.optim.betas1", 0.8)
    before = copy.deepcopy(data)
    from_nested(data)
    assert data == before


def test_every_key_is_converted_to_one_that_the_resolved_model_has() -> None:
    assert {target for target in targets() if not _is_a_key(target)} == set()


def _is_a_key(path: str) -> bool:
    model: Any = RLConfig
    for part in path.split("."):
        if model is None or part not in model.model_fields:
            return False
        annotation = model.model_fields[part].annotation
        if get_origin(annotation) is dict:
            return True
        model = table_model(annotation)
    return True
