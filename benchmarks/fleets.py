# SPDX-License-Identifier: Apache-2.0
"""Speed of sizing fleets, one core, after warm-up, and how it grows with trips.

Trips are those of the generated town: two hours of a weekday morning, ten times as many, the day, and the two hours
after rounded Laplace noise at epsilon 1. Each fleet is the smallest with a mean wait of at most 180 s in every zone,
averaged over five expansions of the counts, as ``dunnage size`` does it. Processor time is that of expanding and
sizing, without routes, which are the same for all; peers are the goals set, and the growth of one against another.

Run with ``python -m benchmarks.fleets``.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import dunnage as dn
from dunnage.mechanisms.counts import Counted, DrawnCounts, NoisyCounts, true_counts
from dunnage.noise.source import Noise
from dunnage.planning.demand import Ground, counted_trips, service_seconds
from dunnage.planning.dispatch import Service
from dunnage.planning.fleet import EXPANSIONS, MAX_WAIT_SECONDS, FleetTask, expanded_days
from dunnage.samples import TripSetting, city, generate_trips

SECONDS = "CPU seconds"
MORNING = ("08:00", "10:00")
TRIPS = 4_878
EPSILON = 1


def counts(size: int | None = None, *, window: tuple[str, str] = MORNING, noisy: bool = False) -> tuple[Counted, Any]:
    """Return true counts of generated trips, and what is released of them: themselves, or with noise on every cell."""
    with tempfile.TemporaryDirectory() as folder:
        data, policy, _, _ = generate_trips(TripSetting(size=size, window=window), Path(folder) / "trips.csv", seed=1)
        dataset = dn.load(data, dn.Policy.read(policy))
    true = true_counts(dataset)
    way = NoisyCounts(epsilon=EPSILON)
    return true, way.draw_counts(true, way.law(dataset), Noise(seed=1)) if noisy else true


def task_of(ground: Ground, true: Counted, told: DrawnCounts | Counted) -> FleetTask:
    """Expand counts into days to size a fleet for."""
    trips = counted_trips(true.universe, told.cells, told.counts, ground.city)
    days = expanded_days(trips, ground, expansions=EXPANSIONS)
    span = service_seconds(true.universe)
    return FleetTask(ground, days, service=Service(), max_wait=MAX_WAIT_SECONDS, span=span)


def sized(ground: Ground, true: Counted, told: DrawnCounts | Counted, runs: int = 1) -> tuple[str, int, float]:
    """Return what was sized, the shuttles, and the least processor time of some runs."""
    times, task, fleet = [], None, ()
    for _ in range(runs):
        start = time.process_time()
        task = task_of(ground, true, told)
        fleet = task.size().fleet
        times.append(time.process_time() - start)
    assert task is not None
    legs = round(float(task.legs.sum()) / len(task.days))
    return f"{int(told.counts.sum()):,} trips, {legs:,} legs, {sum(fleet):,} shuttles", sum(fleet), min(times)


def run() -> list[dict[str, Any]]:
    """Measure everything in one run; each row has name, ours, peer, ratio and unit."""
    ground = Ground.of(city())
    hours = counts()
    sized(ground, *hours)  # compiles
    name, needed, seconds = sized(ground, *hours, runs=3)
    many, _, longer = sized(ground, *counts(10 * TRIPS))
    day, _, of_day = sized(ground, *counts(window=("00:00", "24:00")))
    noisy, created, of_noisy = sized(ground, *counts(noisy=True))
    return [
        _row(f"sizing two hours: {name}; peer 2 s", seconds, 2.0, SECONDS),
        _row(f"sizing ten times the two hours: {many}; peer 60 s", longer, 60.0, SECONDS),
        _row("sizing ten times the two hours; peer 20 times the two hours", longer, 20 * seconds, SECONDS),
        _row(f"sizing the day: {day}; peer 10 s", of_day, 10.0, SECONDS),
        _row(f"sizing two hours, Laplace noise, epsilon 1: {noisy}; peer true counts", of_noisy, seconds, SECONDS),
        _row("sizing two hours, Laplace noise, epsilon 1; peer true counts", created, needed, "shuttles"),
    ]


def _row(name: str, value: float, peer: float, unit: str) -> dict[str, Any]:
    return {"name": name, "ours": value, "peer": peer, "ratio": value / peer, "unit": unit}


def main() -> None:
    """Print the table."""
    print(__doc__)
    for row in run():
        print(f"{row['name']:<108}{row['ours']:10.3g}{row['peer']:10.3g}{row['ratio']:10.2g}  {row['unit']}")


if __name__ == "__main__":
    main()
