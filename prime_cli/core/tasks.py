"""Coroutines that run side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_to_end(main: Coroutine[Any, Any, None], *companions: Coroutine[Any, Any, None]) -> None:
    """Run all; return when the first that ends does so, raise what any raises; the others are cancelled then."""
    tasks = {asyncio.ensure_future(work) for work in (main, *companions)}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
