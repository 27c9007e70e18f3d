"""A hub that kills itself with SIGKILL at a chosen line of its own code.

Run as a script, it imports the server once and then starts one hub for each line on stdin, `DATA_DIR READY_FILE`, each
in a process of its own, forked so that a start takes a moment only. A hub that gets SIGUSR1 reads a number from
READY_FILE with the suffix `.point`, removes that file, counts the lines of `hub_server` that it executes from then on
in all threads, and dies at the line of that number. How many it executed it tells in a file with the suffix `.count`
when it is ended by SIGTERM instead.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import hub_server
from hub_server.app import create_app
from hub_server.serve import Serving, serve

_FOLDER = str(Path(hub_server.__file__).parent)
assert create_app is not None, "everything is imported before the first fork"


def run_hub(data_dir: Path, ready_file: Path) -> None:
    """Serve until the line that SIGUSR1 brought, or until SIGTERM."""
    lines, reached, point = itertools.count(1), 0, 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal reached
        if not frame.f_code.co_filename.startswith(_FOLDER):
            return None
        if event == "line":
            reached = next(lines)
            if reached == point:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    def arm(_serving: Serving) -> None:
        threading.settrace(trace)
        sys.settrace(trace)

    def take_point(_number: int, _frame: FrameType | None) -> None:
        nonlocal lines, point
        file = ready_file.with_suffix(".point")
        lines, point = itertools.count(1), int(file.read_text())
        file.unlink()

    signal.signal(signal.SIGUSR1, take_point)
    serve(host="127.0.0.1", port=0, data_dir=data_dir, ready_file=ready_file, on_ready=arm)
    sys.settrace(None)
    ready_file.with_suffix(".count").write_text(str(reached))


def _tell(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def main() -> None:
    """Start hubs as stdin asks for them, and say on stdout how each one ended."""
    for line in sys.stdin:
        data_dir, ready_file = line.split()
        child = os.fork()
        if child == 0:
            run_hub(Path(data_dir), Path(ready_file))
            os._exit(0)
        _tell(child)
        _tell(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
