"""The temperature at which a group is sampled, by the batch that it is opened for."""

from __future__ import annotations

import math
from collections.abc import Callable

from prime_cli.rl.algorithm_config import SamplingConfig
from prime_cli.rl.curriculum_config import TemperatureScheduleConfig


def temperature_of(sampling: SamplingConfig, max_steps: int) -> Callable[[int], float]:
    """Return the temperature as a function of the batch, which counts from 1."""
    schedule = sampling.temp_scheduler
    if schedule is None:
        return lambda step: sampling.temperature
    steps = schedule.total_steps or max_steps
    return lambda step: scheduled_temperature(schedule, step, steps)


def scheduled_temperature(schedule: TemperatureScheduleConfig, step: int, total_steps: int) -> float:
    """Return the temperature of batch `step`: the start of the schedule at 1, its end from `total_steps` on."""
    passed = min((step - 1) / max(total_steps - 1, 1), 1.0)
    if schedule.type == "cosine":
        passed = (1 - math.cos(math.pi * passed)) / 2
    return schedule.start_temperature + (schedule.end_temperature - schedule.start_temperature) * passed
