"""Values of the nested schema that become others on their way, as rules of `nested_rules`."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from prime_cli.rl.schema_rules import Conversion, Rule, Rules, convert


def checkpointing(value: Any, name: str, into: Conversion) -> None:
    """`trainer.activation_checkpointing`; of every layer, or of none."""
    into.set("trainer.activation_checkpointing", value is not False, name)
    if isinstance(value, Mapping) and (value.get("mode", "full") != "full" or value.get("freq", 1) != 1):
        into.warn(f"`{name}`: the activations of every layer are computed again, not of some")


def loss_type(value: Any, name: str, into: Conversion) -> None:
    """`trainer.loss.type`: `default` is `dppo`, `ipo` is `ipo`; a custom one is refused."""
    if value in ("default", "ipo"):
        into.set("trainer.loss.type", {"default": "dppo"}.get(value, value), name)
    else:
        into.refuse(name, f"is default or ipo, found {value!r}; a loss of one's own is not imported")


def optimizer(value: Any, name: str, into: Conversion) -> None:
    """`trainer.optim.type`; `sign_sgd` is refused."""
    if value == "sign_sgd":
        into.refuse(name, "is adamw, sgd or muon here; sign_sgd is not to be had")
    else:
        into.set("trainer.optim.type", value, name)


def client_url(value: Any, name: str, into: Conversion) -> None:
    """Ignored on this machine, since the run serves its policy itself; refused elsewhere."""
    for url in value if isinstance(value, list) else [value]:
        host = _host(url)
        if host != "localhost" and not _is_loopback(host):
            into.refuse(name, f"the run serves its policy itself, and cannot load weights into {url}")
            return
    into.warn(f"`{name}` does nothing here: the run serves its policy itself, at an address of its own choice")


def _host(url: Any) -> str:
    try:
        return urlsplit(str(url)).hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def sampler(value: Any, name: str, into: Conversion) -> None:
    """`orchestrator.curriculum.sampler`; its type `standard` is `ordered`."""
    into.set("orchestrator.curriculum.sampler", _renamed_sampler(value), name)


def curriculum(value: Any, name: str, into: Conversion) -> None:
    """`curriculum` of the environment; a sampler of type `standard` is `ordered`."""
    if isinstance(value, Mapping) and "sampler" in value:
        value = {**value, "sampler": _renamed_sampler(value["sampler"])}
    into.set("curriculum", value, name)


def _renamed_sampler(value: Any) -> Any:
    return {**value, "type": "ordered"} if isinstance(value, Mapping) and value.get("type") == "standard" else value


def inflight(value: Any, name: str, into: Conversion) -> None:
    """A bound of `orchestrator.concurrency`, whose type becomes `adaptive`."""
    into.set("orchestrator.concurrency.type", "adaptive", name)
    into.set(f"orchestrator.concurrency.{name.rpartition('.')[2]}", value, name)


def vllm_argument(value: Any, name: str, into: Conversion) -> None:
    """An entry of `inference.vllm_args`, which go to vLLM's command line."""
    into.set(f"inference.vllm_args.{name.rpartition('.')[2]}", value, name)


def env_file(value: Any, name: str, into: Conversion) -> None:
    """The first of `env_files`."""
    files = into.data.setdefault("env_files", [])
    if isinstance(files, list):
        files.insert(0, value)


def token_export(value: Any, name: str, into: Conversion) -> None:
    """`trainer.token_export_interval` of 1, when true."""
    if value:
        into.set("trainer.token_export_interval", 1, name)


def eval_base_model(value: Any, name: str, into: Conversion) -> None:
    """`eval.skip_first_step`, which means the opposite."""
    into.set("eval.skip_first_step", not value, name)


def environments(to: str, rules: Rules) -> Rule:
    """Return the rule of a list of environments, each of which is converted by `rules`."""

    def rule(value: Any, name: str, into: Conversion) -> None:
        if not isinstance(value, list) or not all(isinstance(table, Mapping) for table in value):
            into.refuse(name, "is a list of tables")
            return
        tables = []
        for index, table in enumerate(value):
            one = Conversion(warnings=into.warnings, problems=into.problems)
            convert(table, rules, one, keep_others=False, prefix=f"{name}[{index}].")
            tables.append(one.data)
            into.origins |= {f"{to}[{index}].{key}": origin for key, origin in one.origins.items()}
        into.set(to, tables, name)

    rule.__doc__ = f"[[{to}]], each with the keys of its own table."
    return rule
