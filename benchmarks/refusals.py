# SPDX-License-Identifier: Apache-2.0
"""Which maps are refused: how often a refused map was nearer to the truth than an even one, and a released one further.

    python benchmarks/refusals.py [--draws 100] [--feed GTFS.zip]

Maps of a few busy places, of many, of a thin fleet, of nothing but chance, and of the stops of a feed (weighted by
their departures), on 64 to 1,024 cells. Distances of exact cells are sums of absolute and of squared differences; a
map is *nearer* if it is by either, *nearer by all* if it is by both, and *further* if it is by neither. Maps of disks
are for roughly where, so theirs is how far mass has to be moved (the mean over directions). Each draw perturbs all
reports again.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

from dunnage.collecting.batch import perturb_column
from dunnage.collecting.estimate import estimate
from dunnage.devices.client import mechanism_of
from dunnage.devices.subjects import Grid, Tier
from dunnage.devices.task import Limits, Purpose, Schedule, Task
from dunnage.errors import Refusal
from dunnage.noise.source import Noise

BOX = (9, 53, 10, 54)
SETTINGS = (  # level, epsilon, devices
    *itertools.product((4,), ("0.5", "1", "2"), (1_000, 10_000)),
    *itertools.product((5,), ("1", "2"), (1_000, 10_000)),
    *itertools.product((6,), ("2", "4"), (2_000, 10_000)),
)


def feed_places(path: Path, rng: np.random.Generator, num: int) -> list[np.ndarray]:
    with zipfile.ZipFile(path) as feed:
        lines = {name: csv.DictReader(io.StringIO(feed.read(name).decode("utf-8-sig"))) for name in feed.namelist()}
        times = Counter(row["stop_id"] for row in lines["stop_times.txt"])
        stops = {row["stop_id"]: (float(row["stop_lon"]), float(row["stop_lat"])) for row in lines["stops.txt"]}
    points = np.array([stops[stop] for stop in times])
    low, high = points.min(axis=0), points.max(axis=0) + 1e-9
    weights = np.array(list(times.values())) / sum(times.values())
    chosen = points[rng.choice(len(points), num, p=weights)]
    return list(((chosen - low) / (high - low) + np.array(BOX[:2])).T)


def places_of(kind: str, rng: np.random.Generator, num: int) -> list[np.ndarray]:
    """Return longitudes and latitudes of devices; those without a place are not numbers."""
    if kind == "even":
        return [BOX[0] + rng.uniform(size=num), BOX[1] + rng.uniform(size=num)]
    centres = {"six towns": 6, "forty towns": 40, "one town": 1, "half missing": 6, "nearly all missing": 6}[kind]
    middle, busy = rng.uniform(0.1, 0.9, (centres, 2)), 1 / np.arange(1, centres + 1)
    own = rng.choice(centres, num, p=busy / busy.sum())
    points = np.clip(middle[own] + rng.normal(0, 0.04, (num, 2)), 0, 1 - 1e-9) + np.array(BOX[:2])
    missing = {"half missing": 0.5, "nearly all missing": 0.97}.get(kind, 0.0)
    points[rng.uniform(size=num) < missing] = np.nan
    return list(points.T)


def judge(kind: str, level: int, epsilon: str, num: int, method: str, draws: int, feed: Path | None) -> Counter[str]:
    rng = np.random.default_rng(level * num)
    places = feed_places(feed, rng, num) if kind == "stops" and feed else places_of(kind, rng, num)
    grid = Grid(box=BOX, levels=level)
    tiers, parameters = (Tier(name="all", epsilon=epsilon),), {"method": method}
    duty = Purpose(name="places", mechanism="local-location", tiers=tiers, parameters=parameters, grid=grid)
    task = Task(dataset="fleet", purposes=(duty,), schedule=Schedule(), limits=Limits(lifetime=10**6))
    mechanism, cells = mechanism_of(task, duty), grid.num_cells
    found = [cells if np.isnan(lon) else grid.cell(lon, lat) for lon, lat in zip(*places, strict=True)]
    truth = np.bincount(found, minlength=cells + 1)[:cells] / num
    result, places_of_cells = Counter[str](), np.array([grid.column_row(cell) for cell in range(cells)])
    lines = [places_of_cells @ (np.cos(angle), np.sin(angle)) for angle in np.linspace(0, np.pi, 8, endpoint=False)]
    orders = [np.argsort(line) for line in lines]

    def distances(map_: np.ndarray) -> list[float]:
        gap = map_ - truth
        if method != "disk":
            return [np.abs(gap).sum(), (gap**2).sum()]
        gap = map_ / map_.sum() - truth / truth.sum()
        moved = zip(lines, orders, strict=True)
        return [sum(np.abs(np.cumsum(gap[order])[:-1] * np.diff(line[order])).sum() for line, order in moved)]

    even = [0.0, 0.0] if kind == "even" else distances(np.full(cells, truth.sum() / cells))
    for _ in range(draws):
        tally, verdict = perturb_column(mechanism, "all", places, Noise(), purpose="places"), "released"
        try:
            released = estimate([tally], task)
        except Refusal:
            released, verdict = estimate([tally], task, allow_noise=True), "refused"
        map_ = np.array(released.data.column("value").to_pylist()[:cells])
        nearer = [own < other for own, other in zip(distances(map_), even, strict=False)]
        result[verdict] += 1
        if verdict == "released":
            result["released, further"] += not any(nearer)
        else:
            result["refused, nearer"] += any(nearer)
            result["refused, nearer by all"] += all(nearer)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--feed", type=Path)
    given = parser.parse_args()
    kinds = ["six towns", "forty towns", "one town", "even", "half missing", "nearly all missing"]
    total = Counter[str]()
    for kind, method in itertools.product((*["stops"] * bool(given.feed), *kinds), ("best", "disk")):
        for level, epsilon, num in SETTINGS:
            result = judge(kind, level, epsilon, num, method, given.draws, given.feed)
            total.update(
                {f"{'even' if kind == 'even' else 'other'} places, {method}, {n}": c for n, c in result.items()}
            )
            words = ", ".join(f"{name} {count}" for name, count in sorted(result.items()))
            print(
                f"{kind:18} {method:5} {4 ** (level - 1):5} cells  epsilon {epsilon:3} {num:6} devices: {words}",
                flush=True,
            )
    for name, count in sorted(total.items()):
        print(f"{name}: {count}")


if __name__ == "__main__":
    main()
