"""Starts the processes of a run, watches them, and ends them all when one of them dies.

The launcher never hangs: it polls its children, and a child that ends early, is stopped or shows no sign of life ends
the run with its name, what happened to it and its last lines of log. All children lead their own process groups and die
with the launcher; Ctrl-Z pauses them with it.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from prime_cli.core.env_file import variables_of_files
from prime_cli.core.errors import ProcessDied
from prime_cli.core.files import write_json_atomically
from prime_cli.core.processes import (
    child_environment,
    terminate_as_interrupt,
)
from prime_cli.environments.runtime import ENVIRONMENTS_VARIABLE
from prime_cli.environments.target import find_target
from prime_cli.models.folder import check_model_folder
from prime_cli.rl.config import RLConfig
from prime_cli.rl.deaths import GaveUp, check_life, death_of
from prime_cli.rl.family import Family, Member
from prime_cli.rl.heartbeat import LAUNCHER, Heartbeat, watched_as
from prime_cli.rl.inference.fleet import (
    GATEWAY,
    INFERENCE,
    TEACHER,
    Server,
    needs_gateway,
    policy_servers,
    teacher_server,
)
from prime_cli.rl.inference.gateway_settings import ADMIN_TOKEN_VARIABLE, GatewaySettings
from prime_cli.rl.inference.serving import start_server, url_in
from prime_cli.rl.inference.vllm import check_weight_transfer, chosen_engine
from prime_cli.rl.orchestrator.policy import INFERENCE_VARIABLE, InferenceAddress
from prime_cli.rl.orchestrator.teacher import TeacherAddress, check_teacher
from prime_cli.rl.plan import check_devices, count_gpus
from prime_cli.rl.resume import how_to_go_on, open_run_directory
from prime_cli.rl.run_directory import RunDirectory, read_metrics
from prime_cli.rl.sinks.beside import check_sinks, sinks_beside

_POLL_S = 0.1
_GRACE_S = 5.0
_REPLACED_WITHIN_S = 10.0
_POLICY, _TEACHER = "policy", "teacher"
_WORKERS = ("trainer", "orchestrator")  # these end; the others serve until all is done
PROCESSES = (INFERENCE, GATEWAY, TEACHER, "trainer", "orchestrator")

Observer = Callable[[RunDirectory], None]
"""Called about ten times a second while the run goes on, to show what is seen."""


@dataclass(frozen=True)
class RunSummary:
    """How a finished run went."""

    path: Path
    weights: Path
    steps: int
    first_reward: float
    last_reward: float
    seconds: float


def run_training(
    config: RLConfig,
    observe: Observer,
    note: Callable[[str], None],
    variables: Mapping[str, str] | None = None,
    *,
    resume: str | None = None,
) -> RunSummary:
    """Run the whole training and return how it went; `note` hears what is going on before the processes start.

    Args:
        variables: what the environments' processes get beside those of `env_files`; they are written nowhere.
        resume: what to go on with: see `prime_cli.rl.resume`.

    Raises:
        BadInput: there is no run or checkpoint such as `resume` names, or the run is going on.
        BadCheckpoint: the checkpoint is torn.
        NotAModel: the configured model is not a model folder.
        ConfigError: the configured engine or a sink is not installed, the teacher cannot be used, ranks lack GPUs, or
            an env file is not as it should be.
        ProcessDied: a process ended before its work was done.
        KeyboardInterrupt: after everything was stopped.
    """
    check_model_folder(config.model)
    if config.teacher is not None:
        if config.teacher.client.base_url is None:
            check_model_folder(Path(config.teacher.model))
        check_teacher(config.teacher, config.model)
    of_environments = variables_of_files(config.env_files) | dict(variables or {})
    sinks_wanted = check_sinks(config.wandb, config.tensorboard, of_environments)
    engine = chosen_engine(config.inference)
    check_weight_transfer(config.inference, engine)
    if config.trainer.ranks > 1:
        check_devices(config.trainer.ranks, count_gpus())
    evaluated = [] if config.eval is None else config.eval.env
    targets = [find_target(environment.reference, note) for environment in [*config.env, *evaluated]]
    env_files = [path.resolve() for path in config.env_files]
    resolved = config.model_copy(update={"model": config.model.resolve(), "env_files": env_files})
    name = config.name or f"{targets[0].identity.name}--{resolved.model.name}--{secrets.token_hex(4)}"
    run, lock = open_run_directory(resolved, name, resume, note)
    started = time.monotonic()
    family = Family(
        run,
        timeout_s=config.watchdog.timeout_s,
        startup_timeout_s=config.inference.startup_timeout_s,
        workers_timeout_s=config.orchestrator.env_worker_timeout_s + _REPLACED_WITHIN_S,
    )
    run.forget_life()
    heartbeat = Heartbeat(run, LAUNCHER)
    beside = sinks_beside(run, sinks_wanted, note, of_environments)
    with terminate_as_interrupt(), lock, family.paused_with_the_launcher(), beside as sinks:

        def look(run: RunDirectory) -> None:
            sinks.look()
            observe(run)

        try:
            _run_children(resolved, run, engine, family, look, of_environments)
        except (ProcessDied, KeyboardInterrupt) as error:
            family.end(_GRACE_S)
            heartbeat.stop()
            sinks.end()
            _leave(run, error, note)
            raise
        finally:
            family.end(_GRACE_S)
            heartbeat.stop()
    run.drop_traffic()
    summary = _summary(run, time.monotonic() - started)
    write_json_atomically(run.summary, {**asdict(summary), "path": str(summary.path), "weights": str(summary.weights)})
    return summary


def _leave(run: RunDirectory, error: BaseException, note: Callable[[str], None]) -> None:
    """Say where a run lies that has stopped, and how it goes on; one that came to nothing is removed."""
    if not run.metrics.exists() and isinstance(error, GaveUp | KeyboardInterrupt):
        # No step was taken and the reason is told: nobody looks for this folder, and its name is wanted again.
        shutil.rmtree(run.path)
    else:
        note(f"stopped; what there is lies in {run.path}; {how_to_go_on(run)}")


def _run_children(
    config: RLConfig,
    run: RunDirectory,
    engine: str,
    family: Family,
    observe: Observer,
    of_environments: Mapping[str, str],
) -> None:
    token = secrets.token_urlsafe(16)
    run.set_status(INFERENCE, "loading the model")
    servers = policy_servers(config, run, engine, model_name=_POLICY)
    for server in servers:
        family.add(_serve(config, run, engine, server, token))
    find_teacher = _start_teacher(config, run, engine, family)
    trainer = "prime_cli.rl.trainer.process" if config.trainer.ranks == 1 else "prime_cli.rl.trainer.launch"
    family.add(_start(config, run, "trainer", trainer, {}))
    urls = {server.name: _wait_for_server(config, run, family, server, observe) for server in servers}
    url = _gateway(config, run, engine, family, urls, token, observe)
    run.set_status(INFERENCE, "serving" if len(servers) == 1 else f"{len(servers)} servers are serving")
    address = InferenceAddress(
        base_url=f"{url}/v1",
        model=_POLICY,
        admin_url=url,
        admin_token=token,
        weight_transfer=config.inference.weight_transfer,
        takes_many=not needs_gateway(engine, len(urls)),
    )
    variables = {INFERENCE_VARIABLE: json.dumps(asdict(address)), ENVIRONMENTS_VARIABLE: json.dumps(of_environments)}
    if find_teacher is not None:
        at = _wait_for_server(config, run, family, find_teacher, observe)
        run.set_status("teacher", "serving")
        variables |= TeacherAddress(f"{at}/v1", _TEACHER).variables()
    elif config.teacher is not None and config.teacher.client.base_url is not None:
        client = config.teacher.client
        at_others = TeacherAddress(
            str(client.base_url), config.teacher.model, client.api_key_var, client.headers_from_env
        )
        variables |= at_others.variables()
    family.add(_start(config, run, "orchestrator", "prime_cli.rl.orchestrator.process", variables))
    unfinished = set(_WORKERS)
    while unfinished:
        for child in family.members:
            code = child.process.poll()
            if code == 0 and child.name in unfinished:
                unfinished.discard(child.name)
            elif code is not None and (code != 0 or child.name not in _WORKERS):
                raise death_of(run, child, code)
        check_life(run, family)
        observe(run)
        time.sleep(_POLL_S)
    observe(run)


def _gateway(
    config: RLConfig,
    run: RunDirectory,
    engine: str,
    family: Family,
    urls: Mapping[str, str],
    token: str,
    observe: Observer,
) -> str:
    """Return the address of the servers: that of a gateway in front of them, or of the only one."""
    if not needs_gateway(engine, len(urls)):
        (url,) = urls.values()
        return url
    settings = GatewaySettings(dict(urls), engine, _POLICY, config.inference.liveness_timeout_s)
    variables = settings.variables() | {ADMIN_TOKEN_VARIABLE: token}
    member = _start(config, run, GATEWAY, "prime_cli.rl.inference.gateway", variables)
    family.add(member)
    gateway = Server(GATEWAY, [], lambda: url_in(run.ready(GATEWAY)))
    return _wait_for_server(config, run, family, gateway, observe)


def _start_teacher(config: RLConfig, run: RunDirectory, engine: str, family: Family) -> Server | None:
    """Serve the teacher's folder; returns None when others serve it, or there is none."""
    if config.teacher is None or config.teacher.client.base_url is not None:
        return None
    run.set_status(TEACHER, "loading the model")
    folder = Path(config.teacher.model).resolve()
    teacher = teacher_server(config, run, engine, model_name=_TEACHER, folder=folder)
    # Nobody else learns its token: a teacher stays as it is.
    family.add(_serve(config, run, engine, teacher, secrets.token_urlsafe(16)))
    return teacher


def _wait_for_server(config: RLConfig, run: RunDirectory, family: Family, server: Server, observe: Observer) -> str:
    limit_s = config.inference.startup_timeout_s
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        url = server.find_url()
        if url is not None:
            return url
        for child in family.members:
            code = child.process.poll()
            if code is not None:
                raise death_of(run, child, code)
        check_life(run, family)
        observe(run)
        time.sleep(_POLL_S)
    raise ProcessDied(
        f"the {server.name} server was not ready within {limit_s:.0f} s", hint=f"its log is {run.log(server.name)}"
    )


def _serve(config: RLConfig, run: RunDirectory, engine: str, server: Server, token: str) -> Member:
    watched = watched_as(run, server.name, config.watchdog.timeout_s)
    process = start_server(server.command, log_path=run.log(server.name), admin_token=token, variables=watched)
    return Member(server.name, process, beats=engine == "embedded")


def _start(config: RLConfig, run: RunDirectory, name: str, module: str, variables: dict[str, str]) -> Member:
    watched = watched_as(run, name, config.watchdog.timeout_s)
    environment = child_environment(PYTHONUNBUFFERED="1", OMP_NUM_THREADS="1", **watched, **variables)
    with run.log(name).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    return Member(name, process)


def _summary(run: RunDirectory, seconds: float) -> RunSummary:
    records, _ = read_metrics(run.metrics)
    rewards = [record["reward/mean"] for record in records if record["source"] == "orchestrator"]
    last_step = run.exported_steps()[-1]
    return RunSummary(run.path, run.weights(last_step), last_step, rewards[0], rewards[-1], seconds)
