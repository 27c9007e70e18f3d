"""The pools as tasks of a loop, over sandboxes that are plain objects."""

from __future__ import annotations

import asyncio

import pytest

from hub_server.sandbox_node.errors import Full, ImageNotThere, NotStarted
from hub_server.sandbox_node.pool_plan import PoolSettings
from hub_server.sandbox_node.pools import Pools
from hub_server.sandbox_node.specification import Shape

HOST = Shape("host:latest")


class Made:
    """What a test's factory makes."""

    def __init__(self, number: int) -> None:
        self.number, self.is_alive, self.is_destroyed = number, True, False


class Factory:
    """Makes sandboxes that do nothing, and counts them."""

    def __init__(self, *, fails_with: Exception | None = None, seconds: float = 0.001) -> None:
        self.made: list[Made] = []
        self.under_way = self.most_under_way = 0
        self.fails_with, self.seconds = fails_with, seconds

    async def make(self, shape: Shape) -> Made:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(self.seconds)
        self.under_way -= 1
        if self.fails_with is not None:
            raise self.fails_with
        self.made.append(Made(len(self.made)))
        return self.made[-1]

    async def destroy(self, made: Made) -> None:
        await asyncio.sleep(0)
        assert not made.is_destroyed
        made.is_destroyed = True

    def pools(self, **settings: int) -> Pools[Made]:
        return Pools(
            PoolSettings(kept=(HOST,), **settings), self.make, self.destroy, is_usable=lambda shape, made: made.is_alive
        )


async def test_pools_fill_themselves_and_a_take_costs_no_creation() -> None:
    factory = Factory(seconds=0.02)
    pools = factory.pools(least_idle=2)
    pools.start()
    while pools.counts.idle < 2:
        await asyncio.sleep(0.005)
    made = await asyncio.wait_for(pools.take(HOST), 0.01)
    assert made.number in (0, 1)
    await pools.close()


async def test_a_burst_of_a_thousand_takes_all_end_well() -> None:
    factory = Factory()
    pools = factory.pools(most_sandboxes=50, creations_at_once=4)
    pools.start()

    async def use() -> int:
        made = await pools.take(HOST)
        await asyncio.sleep(0.001)
        await factory.destroy(made)
        pools.ended()
        return made.number

    numbers = await asyncio.gather(*(use() for _ in range(1000)))
    assert len(set(numbers)) == 1000
    assert factory.most_under_way <= 4
    await pools.close()
    assert all(made.is_destroyed for made in factory.made)


async def test_closing_destroys_what_nobody_took_and_what_was_being_made() -> None:
    factory = Factory(seconds=0.05)
    pools = factory.pools(least_idle=4, creations_at_once=2)
    pools.start()
    await asyncio.sleep(0.07)
    assert factory.under_way
    await pools.close()
    assert factory.under_way == 0
    assert factory.made
    assert all(made.is_destroyed for made in factory.made)
    assert pools.counts.idle == 0


async def test_callers_are_told_at_once_of_an_image_that_is_not_there() -> None:
    pools = Factory(fails_with=ImageNotThere("no image nowhere:1")).pools()
    with pytest.raises(ImageNotThere):
        await asyncio.wait_for(pools.take(Shape("nowhere:1")), 1)
    await pools.close()


async def test_a_full_backend_lets_callers_wait() -> None:
    factory = Factory(fails_with=Full("no room"))
    pools = factory.pools()
    pools.start()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pools.take(HOST), 0.05)
    factory.fails_with = None
    assert await asyncio.wait_for(pools.take(HOST), 3)
    await pools.close()


async def test_whoever_gives_up_waiting_leaves_no_sandbox_behind() -> None:
    factory = Factory(seconds=0.01)
    pools = factory.pools(least_idle=0)
    takes = [asyncio.create_task(pools.take(HOST)) for _ in range(50)]
    await asyncio.sleep(0.035)
    for take in takes:
        take.cancel()
    done = [made for made in await asyncio.gather(*takes, return_exceptions=True) if isinstance(made, Made)]
    for made in done:
        await factory.destroy(made)
        pools.ended()
    await pools.close()
    assert pools.counts.used == 0
    assert all(made.is_destroyed for made in factory.made)


async def test_a_closed_pool_gives_nothing() -> None:
    pools = Factory().pools()
    await pools.close()
    with pytest.raises(NotStarted):
        await pools.take(HOST)


async def test_a_sandbox_that_died_unused_is_replaced() -> None:
    factory = Factory()
    pools = factory.pools(least_idle=2)
    pools.start()
    while pools.counts.idle < 2:
        await asyncio.sleep(0.005)
    factory.made[0].is_alive = False
    taken = [await pools.take(HOST) for _ in range(2)]
    assert factory.made[0] not in taken
    await pools.close()
    assert factory.made[0].is_destroyed
