"""Backups and restores that kill themselves with SIGKILL at a chosen line of the server's own code.

Run as a script, it imports everything once. Each line on stdin, `backup|restore FROM TO POINT`, is done in a process of
its own, forked so that it starts in a moment; it dies at the line of that number. On stdout stands how it ended: the
wait status, and how many lines it executed when it was not killed.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import hub_server
from hub_server.backups.backup import back_up
from hub_server.backups.restore import restore

_FOLDER = str(Path(hub_server.__file__).parent)


def run(what: str, source: Path, target: Path, point: int, count_file: Path) -> None:
    """Do it, and die at the line `point`."""
    reached = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal reached
        if not frame.f_code.co_filename.startswith(_FOLDER):
            return None
        if event == "line":
            reached += 1
            if reached == point:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    if what == "backup":
        back_up(source, None, target)
    else:
        restore(source, target)
    sys.settrace(None)
    count_file.write_text(str(reached))


def main() -> None:
    """Do what stdin asks for, one process each."""
    with tempfile.TemporaryDirectory() as folder:
        count_file = Path(folder) / "count"
        for line in sys.stdin:
            what, source, target, point = line.split()
            count_file.unlink(missing_ok=True)
            child = os.fork()
            if child == 0:
                run(what, Path(source), Path(target), int(point), count_file)
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            count = count_file.read_text() if count_file.exists() else "0"
            sys.stdout.write(f"{status} {count}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
