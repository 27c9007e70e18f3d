"""A process that has imported everything once and forks evaluations and their environment workers, so that a hundred
of them can be killed in minutes.

    python nursery.py SOCKET         waits on a Unix socket
    python nursery.py SOCKET ARGS    stands for an interpreter that was asked to run ARGS, the environment worker

Who asks sends its standard streams along; the answer is the child's process id, then its wait status when it ended. A
worker whose client is killed ends by itself, as its standard input ends.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

_STREAMS = 3


def ask(address: str, request: dict[str, Any], streams: tuple[int, int, int] = (0, 1, 2)) -> socket.socket:
    """Let the nursery start a child; the connection tells of it."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    connection.sendmsg(
        [json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
    )
    return connection


def number_from(connection: socket.socket) -> int:
    """Return the next number that the nursery says: the process id, then the wait status."""
    data = connection.recv(8, socket.MSG_WAITALL)
    return int(struct.unpack("!q", data)[0])


def _serve(address: str) -> None:
    _import_everything()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _attend(connection)
        connection.close()
        _reap()


def _import_everything() -> None:
    """Import what evaluations and workers import, of which the library leaves much until it is used."""
    import aiohttp  # noqa: F401
    import datasets  # noqa: F401
    import openai.types.chat  # noqa: F401
    import uvloop  # noqa: F401
    import verifiers
    import verifiers.clients

    import prime_cli.evals.run  # noqa: F401

    for name in ("SingleTurnEnv", "Rubric", "Error", "load_environment"):
        getattr(verifiers, name)
    _ = verifiers.clients.OpenAIChatCompletionsClient


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _attend(connection: socket.socket) -> None:
    """Fork the child, and tell of it until it has ended."""
    data, controls, _, _ = connection.recvmsg(1 << 20, socket.CMSG_LEN(_STREAMS * 4))
    if not data:
        os._exit(0)
    streams = array.array("i", controls[0][2])
    child = os.fork()
    if child == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _live(json.loads(data))
    for stream in (*streams, 0):
        os.close(stream)
    connection.send(struct.pack("!q", child))
    _, status = os.waitpid(child, 0)
    try:
        connection.send(struct.pack("!q", status))
    finally:
        os._exit(0)


def _live(request: dict[str, Any]) -> None:
    """Be the child."""
    code = 1
    try:
        if "worker" in request:
            import runpy

            script = request["worker"][0]
            sys.argv = request["worker"]
            sys.path.insert(0, str(Path(script).parent))
            runpy.run_path(script, run_name="__main__")
        else:
            _evaluate(**request)
        code = 0
    except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _evaluate(python: str, url: str, folder: str, environment: str, search_path: str, settings: dict[str, Any]) -> None:
    import asyncio

    from prime_cli.environments.resolve import EnvironmentId
    from prime_cli.environments.runtime import ModelEndpoint
    from prime_cli.evals.cost import PricedEndpoint
    from prime_cli.evals.run import run_evaluation
    from prime_cli.evals.settings import EvalSettings
    from prime_cli.evals.store import EvalDirectory

    asyncio.run(
        run_evaluation(
            EvalSettings(EnvironmentId(None, environment, None), "scripted", **settings),
            [PricedEndpoint(ModelEndpoint(url, "scripted"))],
            EvalDirectory(Path(folder)),
            lambda _: None,
            python=Path(python),
            search_path=[Path(search_path)],
        )
    )


if __name__ == "__main__":
    if len(sys.argv) == 2:
        _serve(sys.argv[1])
    else:
        connection = ask(sys.argv[1], {"worker": sys.argv[2:]})
        number_from(connection)
        os._exit(os.waitstatus_to_exitcode(number_from(connection)) & 0xFF)
