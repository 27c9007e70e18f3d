"""A Python that has started already: it forks once for each snippet, and never sees one itself.

Run by path with the image's own interpreter, so this file is all that it has of ours. It forks when it is told to,
ahead of time; the child gets streams, and waits on a socket for its code and environment. So no snippet finds anything
of an earlier one in its memory; and since neither this process nor a child that waits can be traced, none can put
anything into them for a later one. What forks of one process share: the seed of string hashes and the layout of memory.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import types

_SOCKET = 3
_READY, _FORKED, _FAILED, _ENDED = b"rkfe"  # as in snippets.py
_SAID = struct.Struct("=Biiddq")
_DESCRIPTORS, _DESCRIPTOR = struct.Struct("=4i"), struct.Struct("=i")
_MOST_IN_MESSAGE = 60_000
_SET_DUMPABLE, _SET_CHILD_SUBREAPER = 4, 36
_libc = ctypes.CDLL(None)


def _serve() -> tuple[int, ...]:
    """Fork for each request until the agent is gone; in the child, return the descriptors that came with it."""
    link = socket.socket(fileno=_SOCKET)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake_write)
    poll = select.poll()
    poll.register(link, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    link.send(_SAID.pack(_READY, 0, 0, 0, 0, 0))
    while True:
        for fd, _events in poll.poll():
            if fd == wake_read:
                os.read(wake_read, 4096)
                _report(link)
                continue
            _, descriptors = _receive(link, _DESCRIPTORS)
            try:
                pid = os.fork()
            except OSError as error:
                link.send(_SAID.pack(_FAILED, 0, error.errno, 0, 0, 0))
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
                link.send(_SAID.pack(_FORKED, pid, 0, 0, 0, 0))


def _receive(link: socket.socket, numbers: struct.Struct) -> tuple[bytes, tuple[int, ...]]:
    """Return a message and its descriptors; end where there is none, for the agent is gone or needs this no more."""
    data, ancillary, _flags, _address = link.recvmsg(_MOST_IN_MESSAGE, socket.CMSG_LEN(numbers.size))
    if not data:
        os._exit(0)
    return data, numbers.unpack(ancillary[0][2]) if ancillary else ()


def _wait(descriptors: tuple[int, ...]) -> bytes:
    """Take on the streams of a snippet, wait for what is to be run, and return it."""
    for number, descriptor in enumerate(descriptors[1:]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.setsid()
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
    _rehearse()
    link = socket.socket(fileno=descriptors[0])
    told, files = _receive(link, _DESCRIPTOR)
    link.close()
    for file in files:
        with open(file, "rb") as stream:
            told = stream.read()
    return told


def _rehearse() -> None:
    """Do in vain what every snippet does: each page that is written to is copied then, and not when time counts."""
    os.environ.update(os.environ)
    with open(os.devnull, "w", encoding="utf-8", errors="surrogateescape") as file:
        print(json.loads('{"env": {}}'), file=file)
    exec(compile("value = [1]", "<rehearsal>", "exec"), types.ModuleType("__main__").__dict__)  # noqa: S102  harmless


def _report(link: socket.socket) -> None:
    """Tell the agent which children ended, and how."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        link.send(_SAID.pack(_ENDED, pid, status, usage[0], usage[1], usage[2]))


def _become(told: bytes) -> bytes:
    """Take on the folder, environment and limits of a snippet, and return its code."""
    _libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)
    head, _, code = told.partition(b"\n")
    request = json.loads(head)
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
_code = _become(_wait(_serve()))
_end(_run(_code))
