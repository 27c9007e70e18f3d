"""The number of rollouts in flight follows the load of the server."""

from __future__ import annotations

import random

from prime_cli.rl.orchestrator.adaptive_concurrency import AdaptiveConcurrency, ServerLoad


class Looks:
    """A controller that is asked once a second."""

    def __init__(self, initial: int = 100, low: int = 1, high: int = 1000) -> None:
        self.controller = AdaptiveConcurrency(initial, low=low, high=high)
        self.now = 0.0
        self.ended = 0

    def look(
        self, usage: float = 0.3, *, waiting: int = 0, running: int = 50, preemptions: int = 0,
        in_flight: int | None = None, ended: int = 0, seconds: float = 1.0,
    ) -> int:  # fmt: skip
        self.now += seconds
        self.ended += ended
        in_flight = self.controller.limit() if in_flight is None else in_flight
        load = ServerLoad(usage, running, waiting, preemptions)
        return self.controller.look(load, now_s=self.now, in_flight=in_flight, ended=self.ended)

    @property
    def limit(self) -> int:
        return self.controller.limit()


def test_it_grows_by_a_quarter_once_a_pipeline_has_ended_under_light_load() -> None:
    looks = Looks()
    looks.look(ended=99)
    assert looks.limit == 100
    looks.look(ended=1)
    assert looks.limit == 125
    looks.look(ended=124)
    assert looks.limit == 125
    looks.look(ended=1)
    assert looks.limit == 156


def test_it_does_not_grow_when_busy_queued_unused_or_long_unheard_of() -> None:
    looks = Looks()
    looks.look(ended=500, usage=0.6)
    looks.look(waiting=1)
    looks.look(in_flight=89)
    looks.look(seconds=15)
    assert looks.limit == 100
    looks.look(in_flight=90)
    assert looks.limit == 125


def test_a_small_number_grows_too_and_none_leaves_its_bounds() -> None:
    looks = Looks(initial=1, high=3)
    for _ in range(5):
        looks.look(ended=5)
    assert looks.limit == 3
    assert Looks(initial=50, high=10).limit == 10
    assert Looks(initial=1, low=4).limit == 4


def test_a_full_cache_cuts_to_what_would_use_seven_tenths_and_lets_the_rest_end() -> None:
    looks = Looks()
    assert looks.look(usage=0.84, in_flight=90) == 0
    assert looks.limit == 75


def test_a_nearly_full_cache_gives_up_what_is_above_the_limit() -> None:
    looks = Looks()
    assert looks.look(usage=0.98, in_flight=98) == 28
    assert looks.limit == 70
    assert looks.look(usage=0.95, in_flight=80) == 10
    assert looks.limit == 70, "while it drains, the same overload does not cut again"


def test_preemptions_cut_by_a_fifth_whatever_their_number_was_at_first() -> None:
    looks = Looks()
    looks.look(preemptions=7)
    assert looks.limit == 100
    looks.look(preemptions=8)
    assert looks.limit == 80


def test_a_queue_cuts_by_a_tenth_when_it_stays_for_six_looks() -> None:
    looks = Looks()
    for _ in range(5):
        looks.look(waiting=26)
    looks.look(waiting=25)
    for _ in range(5):
        looks.look(waiting=26)
    assert looks.limit == 100
    looks.look(waiting=26)
    assert looks.limit == 90


def test_an_overload_soon_after_draining_halves_and_one_later_does_not() -> None:
    looks = Looks()
    looks.look(preemptions=0)
    looks.look(preemptions=1)  # 80, draining
    looks.look(preemptions=1, in_flight=80)  # drained
    for _ in range(4):
        looks.look(preemptions=1)
    looks.look(preemptions=2)
    assert looks.limit == 40
    looks.look(preemptions=2, in_flight=40)
    for _ in range(6):
        looks.look(preemptions=2)
    looks.look(preemptions=3)
    assert looks.limit == 32


def test_it_does_not_grow_while_it_drains_or_cools() -> None:
    looks = Looks()
    looks.look(usage=0.875, in_flight=100)
    assert looks.limit == 80
    looks.look(ended=1000, in_flight=81)
    for _ in range(6):
        looks.look(in_flight=80)
        assert looks.limit == 80
    looks.look(in_flight=80)
    assert looks.limit == 100


def test_against_a_server_with_room_for_200_it_settles_below_and_near_it() -> None:
    for seed in range(50):
        source = random.Random(seed)
        looks = Looks(initial=source.choice([8, 50, 400]))
        tail = []
        for step in range(400):
            in_flight = looks.limit
            usage = min(in_flight / 200 * source.uniform(0.9, 1.1), 1.0)
            looks.look(usage, in_flight=in_flight, running=min(in_flight, 200), waiting=max(in_flight - 200, 0),
                       ended=source.randrange(in_flight // 2 + 2))  # fmt: skip
            if step > 200:
                tail.append(looks.limit)
        assert min(tail) >= 60, seed
        assert max(tail) <= 180, seed
