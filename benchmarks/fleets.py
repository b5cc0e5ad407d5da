# SPDX-License-Identifier: Apache-2.0
"""Speed of sizing fleets, one core, after warm-up, and how it grows with trips.

Trips are those of the generated town: two hours of a weekday morning, ten times as many, the day, and the two hours
after rounded Laplace noise at epsilon 1. Each fleet is the smallest with a mean wait of at most 180 s in every zone,
averaged over five expansions of the counts, as ``dunnage size`` does it. Processor time is that of expanding and
sizing, without routes, which are the same for all; peers are the goals set, and the growth of one against another.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dunnage as dn
from benchmarks.dispatch import smallest
from benchmarks.measuring import Row, row, taken
from dunnage.mechanisms.counts import Counted, DrawnCounts, NoisyCounts, true_counts
from dunnage.noise.source import Noise
from dunnage.planning.demand import Day, Ground, Trips, counted_trips, service_seconds
from dunnage.planning.dispatch import Dispatch, Service
from dunnage.planning.fleet import EXPANSIONS, MAX_WAIT_SECONDS, FleetTask, expanded_days
from dunnage.samples import TripSetting, city, generate_trips

MORNING = ("08:00", "10:00")
TRIPS = 4_878
EPSILON = 1
MOST = 200  # shuttles of a zone; if hubs need more, they count as these


def counts(size: int | None = None, *, window: tuple[str, str] = MORNING, noisy: bool = False) -> tuple[Counted, Any]:
    """Return true counts of generated trips, and what is released of them: themselves, or with noise on every cell."""
    with tempfile.TemporaryDirectory() as folder:
        setting = TripSetting(size=size, window=window, level="stop")
        data, policy, _, _ = generate_trips(setting, Path(folder) / "trips.csv", seed=1)
        dataset = dn.load(data, dn.Policy.read(policy))
    true = true_counts(dataset)
    way = NoisyCounts(epsilon=EPSILON)
    return true, way.draw_counts(true, way.law(dataset), Noise(seed=1)) if noisy else true


def sized(ground: Ground, true: Counted, released: DrawnCounts | Counted, runs: int = 1) -> tuple[str, int, float]:
    """Return what was sized, the shuttles, and the least processor time of some runs."""

    def work() -> tuple[FleetTask, Sequence[int]]:
        trips = counted_trips(true.universe, released.cells, released.counts, ground.city)
        days = expanded_days(trips, ground, expansions=EXPANSIONS)
        span = service_seconds(true.universe)
        task = FleetTask(ground, days, service=Service(), max_wait=MAX_WAIT_SECONDS, span=span)
        return task, task.size().fleet

    (task, fleet), seconds = taken(work, runs)
    legs = round(float(task.legs.sum()) / len(task.days))
    return f"{int(released.counts.sum()):,} trips, {legs:,} legs, {sum(fleet):,} shuttles", sum(fleet), seconds


def riders_all_over(ground: Ground) -> tuple[str, int, int]:
    """Size for riders between all stops alike; return the trips, and the fleets with posts and with hubs only."""
    generator, num, span = np.random.default_rng(1), 2_000, (8 * 3600, 18 * 3600)
    ends = generator.integers(0, len(ground.city.stops), (2, num))
    day = Day.of(Trips.in_order(*ends, generator.integers(*span, num)), ground)
    task = FleetTask(ground, [day], service=Service(), max_wait=MAX_WAIT_SECONDS, span=span)
    hubs = smallest(Dispatch(day.requests, ground.times, ground.homes, Service()), MOST)
    return f"{num:,} trips all over the city in ten hours", sum(task.size().fleet), int(hubs.sum())


def run() -> list[Row]:
    ground = Ground.of(city())
    hours = counts()
    sized(ground, *hours)  # compiles
    name, needed, seconds = sized(ground, *hours, runs=3)
    many, _, longer = sized(ground, *counts(10 * TRIPS))
    day, _, of_day = sized(ground, *counts(window=("00:00", "24:00")))
    noisy, created, of_noisy = sized(ground, *counts(noisy=True))
    scattered, with_posts, at_hubs = riders_all_over(ground)
    return [
        row(f"sizing two hours: {name}; peer 2 s", seconds, 2.0),
        row(f"sizing ten times the two hours: {many}; peer 60 s", longer, 60.0),
        row("sizing ten times the two hours; peer 20 times the two hours", longer, 20 * seconds),
        row(f"sizing the day: {day}; peer 10 s", of_day, 10.0),
        row(f"sizing two hours, Laplace noise, epsilon 1: {noisy}; peer true counts", of_noisy, seconds),
        row("sizing two hours, Laplace noise, epsilon 1; peer true counts", created, needed, "shuttles"),
        row(f"sizing {scattered}; peer shuttles that wait at hubs", with_posts, at_hubs, "shuttles"),
    ]
