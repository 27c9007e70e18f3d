"""Snippets on the fast path: forks of a Python that never sees one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import Command

FIND_EARLIER_CODE = """
import os, re, sys
found = []
frame = sys._getframe()
while frame is not None:
    found += [name for name, value in frame.f_locals.items() if ''.join(['needle-', 'of-another']) in repr(value)]
    frame = frame.f_back
wanted = ''.join(['needle-', 'of-another']).encode()
own = 0
for line in open('/proc/self/maps'):
    span, rights = line.split()[:2]
    if 'r' in rights and '[v' not in line:
        start, end = (int(text, 16) for text in span.split('-'))
        with open('/proc/self/mem', 'rb', 0) as memory:
            memory.seek(start)
            try:
                own += memory.read(end - start).count(wanted)
            except OSError:
                pass
print('frames', found, 'memory', own)
"""


async def zygote_of(sandbox: Sandbox) -> int:
    return int((await sandbox.run_python("import os; print(os.getppid())")).stdout)


async def test_a_snippet_is_a_main_module_with_streams_and_an_exit_code(plain_sandbox: Sandbox) -> None:
    code = "import sys\nprint(__name__, input())\nprint('wrong', file=sys.stderr)\nsys.exit(7)"
    finished = await plain_sandbox.run_python(code, stdin="grüße\n".encode())
    assert finished.stdout == "__main__ grüße\n".encode()
    assert finished.stderr == b"wrong\n"
    assert finished.exit_code == 7


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [
        ("1 / 0", 1, 'Traceback (most recent call last):\n  File "<snippet>", line 1, in <module>\nZeroDivisionError'),
        ("print(", 1, "SyntaxError: '(' was never closed"),
        ("raise SystemExit('no')", 1, "no\n"),
        ("raise SystemExit", 0, ""),
        ("import os; os.kill(os.getpid(), 9)", 137, ""),
        ("import os; os._exit(4)", 4, ""),
    ],
)
async def test_a_snippet_ends_as_a_program_would(
    plain_sandbox: Sandbox, code: str, exit_code: int, stderr: str
) -> None:
    finished = await plain_sandbox.run_python(code)
    assert finished.exit_code == exit_code
    assert stderr in finished.stderr.decode()
    assert "zygote" not in finished.stderr.decode()


async def test_threads_and_exit_functions_are_waited_for(plain_sandbox: Sandbox) -> None:
    code = """
import atexit, threading, time
atexit.register(lambda: print('last'))
threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()
print('main')
"""
    assert (await plain_sandbox.run_python(code)).stdout == b"main\nthread\nlast\n"


async def test_a_snippet_finds_nothing_of_an_earlier_one(plain_sandbox: Sandbox) -> None:
    # Who looks for a text has it in memory too: as often as in a sandbox where nobody else ever had it.
    before = await plain_sandbox.run_python(FIND_EARLIER_CODE)
    secret = "secret = 'needle-of-another' * 3\nprint(len(secret))"
    for _ in range(3):
        assert (await plain_sandbox.run_python(secret, env={"LETTER": "needle-of-another"})).stdout == b"51\n"
    finished = await plain_sandbox.run_python(FIND_EARLIER_CODE)
    assert finished.stdout.startswith(b"frames [] memory "), finished.stderr
    assert finished.stdout == before.stdout


async def test_a_snippet_leaves_nothing_behind_for_the_next(plain_sandbox: Sandbox) -> None:
    await plain_sandbox.run_python("import json, builtins\njson.spoilt = builtins.spoilt = True")
    finished = await plain_sandbox.run_python(
        "import json\nprint(hasattr(json, 'spoilt'), 'spoilt' in dir(__builtins__))"
    )
    assert finished.stdout == b"False False\n"


async def test_a_snippet_has_no_descriptor_but_its_streams(plain_sandbox: Sandbox) -> None:
    finished = await plain_sandbox.run_python("import os\nprint(sorted(map(int, os.listdir('/proc/self/fd'))))")
    assert finished.stdout == b"[0, 1, 2, 3]\n", "the last is that of the listing itself"


async def test_environment_folder_and_limits_are_those_of_the_call(plain_sandbox: Sandbox) -> None:
    code = "import os; print(os.getcwd(), os.environ['A'], sorted(set(os.environ) - {'A', 'PATH', 'HOME', 'LANG'}))"
    finished = await plain_sandbox.run_python(code, cwd="/usr", env={"A": "b"})
    assert finished.stdout == b"/usr b []\n"
    code = "bytearray(400 << 20)"
    assert b"MemoryError" in (await plain_sandbox.run_python(code, memory_bytes=200 << 20)).stderr


async def test_a_timeout_kills_what_a_snippet_started(plain_sandbox: Sandbox) -> None:
    code = "import subprocess\nprint(subprocess.Popen(['setsid', 'sleep', '100']).pid, flush=True)\nwhile True: pass"
    finished = await plain_sandbox.run_python(code, timeout_s=0.6)
    assert finished.ended.timed_out
    pid = int(finished.stdout)
    await asyncio.sleep(0.1)
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


async def test_a_killed_zygote_is_replaced(plain_sandbox: Sandbox) -> None:
    before = await zygote_of(plain_sandbox)
    await plain_sandbox.run(Command(["/bin/sh", "-c", f"kill -9 {before}"]))
    await asyncio.sleep(0.1)
    after = await zygote_of(plain_sandbox)
    assert after != before


async def test_snippets_run_side_by_side(plain_sandbox: Sandbox) -> None:
    finished = await asyncio.gather(*(plain_sandbox.run_python(f"print({number})") for number in range(40)))
    assert [int(each.stdout) for each in finished] == list(range(40))


async def test_code_of_any_size_and_any_characters_runs(plain_sandbox: Sandbox) -> None:
    code = "text = '" + "ü" * 1_000_000 + "'\nprint(len(text))"
    assert (await plain_sandbox.run_python(code)).stdout == b"1000000\n"
