"""A Python that has started already: it forks once for each snippet, and never sees one itself.

Run by path with the image's own interpreter, so this file is all that it has of ours. For each snippet it gets the
descriptors of its code and its streams, forks, and forgets them. The child reads code and environment. So no snippet
finds anything of an earlier one in its memory; and since this process cannot be traced, none can put anything into it
for a later one. What forks of one process share: the seed of string hashes and the layout of memory.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import types

_SOCKET = 3
_SET_DUMPABLE, _SET_CHILD_SUBREAPER = 4, 36
_libc = ctypes.CDLL(None)


def _serve() -> list[int]:
    """Fork for each request until the agent is gone; in the child, return its descriptors."""
    link = socket.socket(fileno=_SOCKET)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake_write)
    poll = select.poll()
    poll.register(link, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    link.send(json.dumps({"ready": sys.version.split()[0]}).encode())
    while True:
        for fd, _events in poll.poll():
            if fd == wake_read:
                os.read(wake_read, 4096)
                _report(link)
                continue
            request, descriptors = _receive(link)
            if request is None:
                os._exit(0)
            try:
                pid = os.fork()
            except OSError as error:
                link.send(json.dumps({"id": request["id"], "failed": error.strerror}).encode())
                pid = -1
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                link.close()
                os.close(wake_read)
                os.close(wake_write)
                return descriptors
            for descriptor in descriptors:
                os.close(descriptor)
            if pid > 0:
                link.send(json.dumps({"id": request["id"], "pid": pid}).encode())


def _receive(link: socket.socket) -> tuple[dict[str, object] | None, list[int]]:
    """Return the next request with its descriptors; None when the agent is gone."""
    numbers = array.array("i")
    data, ancillary, _flags, _address = link.recvmsg(256 * 1024, socket.CMSG_LEN(4 * numbers.itemsize))
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
    return (json.loads(data) if data else None), list(numbers)


def _report(link: socket.socket) -> None:
    """Tell the agent which children ended, and how."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        link.send(json.dumps({"ended": pid, "status": status, "usage": [usage[0], usage[1], usage[2]]}).encode())


def _become(descriptors: list[int]) -> bytes:
    """Take on the streams, folder, environment and limits of a snippet, and return its code."""
    os.setsid()
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)
    code_fd, stdin, stdout, stderr = descriptors
    with open(code_fd, "rb") as file:
        request, code = json.loads(file.readline()), file.read()
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    size = request.get("memory_bytes")
    if size is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.chdir(request.get("cwd") or "/")
    except OSError as error:
        os.write(2, f"sandbox: {error.filename}: {error.strerror}\n".encode())
        os._exit(126)
    return code


def _streams() -> None:
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115


def _run(code: bytes) -> int:
    """Run the snippet as the main module and return its exit code; what it raises is shown without our own frames."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["-c"]
    sys.path.insert(0, "")
    try:
        exec(compile(code, "<snippet>", "exec"), module.__dict__)  # noqa: S102  what a snippet is for
    except SystemExit as end:
        return _code_of(end)
    except BaseException as error:  # noqa: BLE001  shown, as an interpreter shows it
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        error.__traceback__ = trace
        sys.excepthook(type(error), error, trace)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _code_of(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)  # noqa: T201  as an interpreter does
    return 1


def _end(code: int) -> None:
    """End as an interpreter does, but without clearing all modules away: in a fork that copies every page of them."""
    try:
        threading = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()  # waits for threads that are no daemons
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001
        sys.excepthook(type(error), error, error.__traceback__)
        code = code or 120
    finally:
        os._exit(code)


# It was unreadable from the first, by groups that differ (see kernel.py); from here on it is so by itself.
_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
if os.getgid() != 0:
    os.setresgid(0, 0, 0)
gc.collect()
gc.freeze()  # no collection in a fork looks at, and so copies, what was here before
_code = _become(_serve())
_streams()
_end(_run(_code))
