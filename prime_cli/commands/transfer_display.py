"""Shows how far uploads are, on stderr: a bar on a terminal, one line per file elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_Progress = Callable[[str, int, int], None]


@contextmanager
def transfer_display() -> Iterator[_Progress]:
    """Yield a function that is told a file's name, the bytes sent, and the bytes in all."""
    from prime_cli.core import output as out

    if not out.is_interactive():
        yield _one_line_each
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=out.stderr_console()) as display:
        tasks: dict[str, TaskID] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = display.add_task(name, total=total)
            display.update(tasks[name], completed=done)

        yield show


def _one_line_each(name: str, done: int, total: int) -> None:
    from prime_cli.core import output as out

    if done == total:
        out.note(f"uploaded {name} ({total / 1024:.1f} KiB)")
