"""How the agent starts commands, with a loop that does nothing by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]

# A program of its own, for what waits for commands is forked from it.
PROGRAM = """
import os, select, signal, sys
from pathlib import Path
from hub_server.sandbox_node.agent.inside import kernel
from hub_server.sandbox_node.agent.inside.starting import Starter

class Loop:
    def watch(self, fd, events, handler):
        self.watched = fd
    def forget(self, fd):
        pass
    def after(self, delay_s, call):
        pass
    def cancel(self, entry):
        pass

kernel.keep_orphans()
loop, started = Loop(), []
starter = Starter(loop, [])
request = {"argv": ["sh", "-c", "exit 7"], "env": {"PATH": os.defpath}}
starter.start(request, lambda pid, pipes, request: started.append(pid), print)
assert not started
assert select.select([loop.watched], [], [], 10)[0], "what waits for a command says so"
spare = max(int(pid) for pid in Path("/proc/thread-self/children").read_text().split())
if sys.argv[1] == "itself":
    os.kill(spare, signal.SIGKILL)
    ended, status = os.waitpid(spare, 0)
else:
    ended, status = os.getpid(), 0
starter.ended(ended, status)
(command,) = started
assert (command == spare) == (sys.argv[1] == "another")
assert os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]) == 7
"""


@pytest.mark.parametrize("ended", ["another", "itself"])
def test_a_command_starts_also_where_a_child_ends_just_when_it_could(ended: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ended], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
