# SPDX-License-Identifier: Apache-2.0
"""A small fleet, its task and its tallies, for the tests of estimates; and refusals of many cases in one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest

from dunnage.collecting.batch import perturb_column
from dunnage.collecting.estimate import estimate
from dunnage.collecting.tally import Tally
from dunnage.devices.client import mechanism_of
from dunnage.devices.task import Grid, Limits, Purpose, Quantity, Schedule, Task, Tier
from dunnage.noise.source import Noise
from dunnage.release import Release

GRID = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3, area_levels=2)
TIERS = (Tier(name="basic", epsilon="2"), Tier(name="strict", epsilon="1"))
HOURLY = Schedule(slots_per_day=24, slot_minutes=60, lateness_minutes=30, skew_seconds=60)
SPEED = Quantity(name="speed", low=0, high=120, unit="km/h")
LOAD = Quantity(name="load", low=0, high="20.5", unit="t", missing="symbol")

TRUCK_TIERS = (Tier(name="basic", epsilon="1"), Tier(name="strict", epsilon="0.5"))
TELEMETRY = Purpose(name="telemetry", mechanism="local-numeric", tiers=TRUCK_TIERS, quantities=(SPEED, LOAD))
PLACES = Purpose(name="places", mechanism="local-location", tiers=TRUCK_TIERS, grid=GRID)
PATHS = Purpose(name="paths", mechanism="local-trajectory", tiers=TRUCK_TIERS, grid=GRID, steps=2)


def truck_task(*purposes: Purpose, **changes: Any) -> Task:
    """Give a task of some purposes, all three if none is given, that reports every hour."""
    facts = {"schedule": HOURLY, "limits": Limits(lifetime="10000")}
    return Task(dataset="fleet", purposes=purposes or (TELEMETRY, PLACES, PATHS), **{**facts, **changes})


@contextmanager
def refuses(error: type[Exception], case: object) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error, and say which case did not raise it."""
    caught: Any = None
    try:
        with pytest.raises(error) as caught:
            yield caught
    except pytest.fail.Exception:
        pytest.fail(f"not refused: {case!r}")


def fleet_task(
    *names: str,
    telemetry: dict[str, Any] | None = None,
    places: dict[str, Any] | None = None,
    paths: dict[str, Any] | None = None,
    quantities: tuple[Quantity, ...] = (SPEED, LOAD),
    grid: Grid = GRID,
    schedule: Schedule | None = None,
) -> Task:
    """Give a task of the named purposes, all three if none is named; each takes parameters of its mechanism."""
    duties = {
        "telemetry": {"mechanism": "local-numeric", "quantities": quantities, "parameters": telemetry or {}},
        "places": {"mechanism": "local-location", "grid": grid, "parameters": places or {}},
        "paths": {"mechanism": "local-trajectory", "grid": grid, "steps": 2, "parameters": paths or {}},
    }
    purposes = tuple(Purpose(name=name, tiers=TIERS, **duties[name]) for name in names or tuple(duties))
    limits = Limits(lifetime="5000", allow_unbounded=True)
    return Task(dataset="fleet", purposes=purposes, schedule=schedule or Schedule(slots_per_day=2), limits=limits)


def columns(purpose: str, num: int, seed: int) -> list[np.ndarray]:
    """Make columns of values for a purpose."""
    generator = np.random.default_rng(seed)
    lon, lat = 103.9 + 0.3 * generator.beta(2, 4, num), 30.5 + 0.3 * generator.beta(2, 3, num)
    lon[::20] = np.nan
    loads = np.where(generator.uniform(size=num) < 0.2, np.nan, generator.uniform(0, 20, num))
    by_purpose = {
        "telemetry": [generator.uniform(20, 90, num), loads],
        "places": [lon, lat],
        "paths": [lon, lat, lon + 0.01, lat],
    }
    return by_purpose[purpose]


def fleet_tallies(task: Task, num: int = 3000, seed: int = 1) -> list[Tally]:
    """Perturb a fleet: so many vehicles in each tier of each purpose."""
    return [
        perturb_column(
            mechanism_of(task, purpose), tier, columns(purpose.name, num, seed), Noise(), purpose=purpose.name
        )
        for purpose in task.purposes
        for tier in task.slot_tiers(purpose)
    ]


@cache
def wave_release() -> Release:
    """Estimate distributions of numbers, which takes long; never changed."""
    task = fleet_task("telemetry", telemetry={"method": "square-wave"})
    return estimate(fleet_tallies(task, 1000), task, allow_noise=True)
