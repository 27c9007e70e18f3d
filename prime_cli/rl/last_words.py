"""How a process of a run ends: with words for the user when it gives up, and with the exit code of what ended it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator

from prime_cli.core.errors import PrimeError
from prime_cli.rl.run_directory import RunDirectory


@contextlib.contextmanager
def last_words(run: RunDirectory, name: str) -> Iterator[None]:
    """Leave in the run's folder why the process `name` gives up, and end it: 1 then, 130 when it was interrupted."""
    try:
        yield
    except PrimeError as error:
        run.record_failure(name, error)
        sys.exit(f"error: {error.message}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)
