# SPDX-License-Identifier: Apache-2.0
"""Speed and memory of private trip counts: releases of generated trips, few trips among a billion cells, reading taps.

Trips are those of ``dunnage generate trips``: 130 stops, half-hours, 4,878 trips in two hours (67,600 cells) and 37,714
in a day (811,200). A release is what a mechanism does after the ledger has agreed: noise on every answer, projection
and rounding, all exact. Peers: OpenDP's exact sampler for the noise alone, on as many answers; a plain Arrow read and
group-by for taps. Where there is no peer, the figure beside is the goal that was set. Processor time is the least of
some runs on one core, after warm-up; memory is the operating system's figure of a process of its own.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.csv as pacsv

import dunnage as dn
from benchmarks.measuring import GIGABYTES, Row, apart, row, taken
from benchmarks.noise import opendp_laplace
from dunnage.arrays import FloatArray, IntArray
from dunnage.kernels.counts.laplace import DiscreteLaplace
from dunnage.mechanisms.counts import (
    ConstrainedCounts,
    Counted,
    HierarchicalCounts,
    NoisyCounts,
    NoisyQueries,
    true_counts,
)
from dunnage.mechanisms.fitted_counts import FittedCounts
from dunnage.model.trips import END_COLUMNS, Universe
from dunnage.noise.source import Noise
from dunnage.samples import TripSetting, generate_trips

SPANS = {("08:00", "10:00"): 67_600, ("04:00", "24:00"): 676_000, ("00:00", "24:00"): 811_200}
"""Times of day, and how many cells they have: two hours, ten times as many, and a day."""
STOPS, WINDOWS, OCCUPIED = 1_000, 1_000, 100_000  # A billion cells, and how many of them have trips
TAPS = 5_000_000
PLAIN = "noisy-counts"
OPENDP_DRAWS = 20_000


def read_trips(window: tuple[str, str]) -> dn.Dataset:
    with tempfile.TemporaryDirectory() as folder:
        setting = TripSetting(window=window, level="stop")
        data, policy, _, _ = generate_trips(setting, Path(folder) / "trips.csv", seed=1)
        return dn.load(data, dn.Policy.read(policy))


def releases(dataset: dn.Dataset) -> dict[str, Callable[[], Any]]:
    """Return what each mechanism does at epsilon 1 once a release is paid for."""
    counted, noise = true_counts(dataset), Noise()
    ways: dict[str, Any] = {
        PLAIN: NoisyCounts(epsilon=1),
        "hierarchical-counts, H5": HierarchicalCounts(epsilon=1),
        "constrained-counts, O5": ConstrainedCounts(epsilon=1),
        "constrained-counts, O5, cells": ConstrainedCounts(epsilon=1, budget_shares="cells"),
        "constrained-counts, O5, margins": ConstrainedCounts(epsilon=1, budget_shares="margins"),
    }
    found: dict[str, Callable[[], Any]] = {}
    for name, way in ways.items():
        law = way.law(dataset) if isinstance(way, NoisyCounts) else way.asked(dataset)
        found[name] = lambda way=way, law=law: way.draw_counts(counted, law, noise)
    return found


def run() -> list[Row]:
    return [*_release_rows(), *_fitted_rows(), *_stop_rows(), *_noise_rows(), *_sparse_rows(), *_tap_rows()]


BIKES = {"bikes": (300, 20, 70_588, 0.6), "dense": (100, 24, 150_000, 0.5), "sparse": (200, 48, 12_000, 1.2)}
"""Generated systems: stops, windows, trips, and by how much stops differ."""


def bikes(size: int, slots: int, num: int, spread: float, seed: int = 1) -> IntArray:
    """Make trips between stops on a plane: near pairs, some stops and commuting times are busier."""
    draw = np.random.default_rng(seed)
    places = 3 * draw.normal(size=(size, 2))
    busy = np.exp(spread * draw.normal(size=size))
    far = np.hypot(*(places[:, None] - places).T)
    pairs = np.outer(busy, busy) * np.exp(-far / 2.5 + 0.8 * draw.normal(size=(size, size)))
    times, inward = np.linspace(0, 24, slots, endpoint=False), np.exp(-np.hypot(*places.T) / 3)
    lean = 2 * (inward[None] - inward[:, None])[..., None]
    morning, evening = (np.exp(-(((times - at) / 2) ** 2)) for at in (8, 17))
    shape = 0.1 + morning * np.exp(lean) + evening * np.exp(-lean)
    law = (pairs / pairs.sum())[..., None] * shape / shape.sum(axis=2, keepdims=True)
    return draw.multinomial(num, (law / law.sum()).reshape(-1)).reshape(law.shape)


class Stops:
    """All that shares and features need of a schema."""

    level, tells_days, contribution, city, trip = "stop", False, None, None, SimpleNamespace(origin="from")
    ends = END_COLUMNS["stop"]

    def __init__(self, size: int, slots: int) -> None:
        self.stops = tuple(f"S{at}" for at in range(size))
        self.windows = tuple(f"{at // 2:02d}:{30 * (at % 2):02d}" for at in range(slots))

    def __getitem__(self, name: str) -> Any:
        return SimpleNamespace(domain=self)

    def universe(self) -> Universe:
        return Universe(stops=self.stops, windows=self.windows, window_minutes=30)


def released(counts: IntArray, mechanism: Any, seed: int | None = None) -> FloatArray:
    """Return the released counts of a table (origin, destination, window)."""
    schema: Any = Stops(len(counts), counts.shape[2])
    flat, universe = np.moveaxis(counts, 2, 0).reshape(-1), schema.universe()
    cells = np.flatnonzero(flat)
    queries = NoisyQueries.of(universe, mechanism.queries(schema), mechanism.epsilon, 1, DiscreteLaplace)
    counted = Counted(universe=universe, cells=cells, counts=flat[cells])
    table, found = mechanism.draw_counts(counted, queries, Noise(seed=seed)), np.zeros(len(flat))
    found[table.cells] = table.counts
    return np.moveaxis(found.reshape(counts.shape[2], len(counts), len(counts)), 0, 2)


def rmse(errors: FloatArray) -> float:
    return float(np.sqrt((errors**2).mean()))


MARGINS: dict[str, Any] = {"features": "O3", "budget_shares": "margins"}
PRESETS: dict[str, dict[str, Any]] = {
    f"O3, {name}": {"budget_shares": name} for name in ("uniform", "cells", "margins")
}
WORKLOADS: dict[str, Any] = {"default": (), "pairs and departures": ("stop pairs", "departures")}


def ways(num: int, epsilon: object) -> dict[str, Any]:
    """Return all presets of constrained counts that need no zones, and fitted counts with two workloads."""
    made: dict[str, Any] = {k: ConstrainedCounts(epsilon=epsilon, features="O3", **v) for k, v in PRESETS.items()}
    fitted = {k: FittedCounts(epsilon=epsilon, workload=v, expected_trips=num) for k, v in WORKLOADS.items()}
    return made | {f"fitted-counts, {name}": way for name, way in fitted.items()}


def fitted_errors(epsilon: object = 1, draws: int = 5) -> None:
    """Print root mean square errors per pair, departures, departures by window and cell, the busiest pairs, CPU."""
    for name, (size, slots, num, spread) in BIKES.items():
        counts = bikes(size, slots, num, spread)
        print(f"{name}: {size} stops, {slots} windows, {num:,} trips, {(counts > 0).sum():,} cells with trips")
        sums: Any = (2, (1, 2), 1, ())
        print(f"| nothing | {' | '.join(f'{rmse(counts.sum(axis=axes)):.3g}' for axes in sums)} | | |")
        for label, way in ways(num, epsilon).items():
            figures = []
            for seed in range(draws):
                start = time.process_time()
                found = released(counts, way, seed)
                seconds = time.process_time() - start
                busiest = [set(np.argsort(-part.sum(axis=2).reshape(-1))[:100].tolist()) for part in (found, counts)]
                errors = [rmse((found - counts).sum(axis=axes)) for axes in sums]
                figures.append([*errors, len(busiest[0] & busiest[1]), seconds])
            print(f"| {label} | {' | '.join(f'{mean:.3g}' for mean in np.mean(figures, axis=0))} |")


def _fitted_rows() -> list[Row]:
    """Compare with the best preset and, if it is installed, with private-pgm (mbi) on three two-way margins."""
    rows, peers = [], {"O3, margins": lambda counts: released(counts, ConstrainedCounts(epsilon=1, **MARGINS))}
    with contextlib.suppress(ImportError):
        import mbi  # noqa: F401

        peers["private-pgm"] = private_pgm
    for size, slots, num, spread in BIKES.values():
        counts, fitted = bikes(size, slots, num, spread), FittedCounts(epsilon=1, expected_trips=num)
        found = released(counts, fitted)
        ours = taken(lambda counts=counts, fitted=fitted: released(counts, fitted), 3).seconds
        for name, release in peers.items():
            start = time.process_time()
            theirs = release(counts)
            seconds = time.process_time() - start
            label = f"fitted-counts: {num:,} trips of {size} stops in {slots} windows; peer {name}"
            rows.append(row(label, ours, seconds))
            for what, axes in {"stop pair": 2, "stop": (1, 2), "stop and window": 1}.items():
                errors = [rmse((one - counts).sum(axis=axes)) for one in (found, theirs)]
                rows.append(row(f"{label}, error per {what}", *errors, "trips"))
    return rows


def _stop_rows() -> list[Row]:
    """Compare features of stops with twenty times the time of O5, on the trips of two hours."""
    dataset, noise = read_trips(("08:00", "10:00")), Noise()
    counted, zones = true_counts(dataset), ["origin_zone", "destination_zone", "window"]
    features: Any = [[], ["window"], zones, ["mode", "window"]]
    ends, seconds = [["origin"], ["destination"]], []
    for chosen in (features, features + ends, [*features, *ends, ["origin", "destination"]]):
        way = ConstrainedCounts(epsilon=1, features=chosen)
        release = functools.partial(way.draw_counts, counted, way.asked(dataset), noise)
        release()
        seconds.append(taken(release, 3).seconds)
    label = "constrained-counts: 67,600 cells, O5 with origins and destinations"
    return [
        row(f"{label}{more}; peer 20 times O5", own, 20 * seconds[0])
        for more, own in zip(("", " and pairs"), seconds[1:], strict=True)
    ]


def private_pgm(counts: IntArray, iterations: int = 1_000) -> FloatArray:
    """Fit three two-way margins with a third of epsilon 1 each as private-pgm does; it samples no whole trips."""
    import jax
    import mbi

    jax.config.update("jax_enable_x64", True)
    draw, (size, _, slots) = np.random.default_rng(1), counts.shape
    domain = mbi.Domain(["o", "d", "t"], [size, size, slots])
    scale, measured = 3.0, []
    for names, axis in {("o", "d"): 2, ("o", "t"): 1, ("d", "t"): 0}.items():
        sums = counts.sum(axis=axis)
        noise = draw.geometric(1 - np.exp(-1 / scale), sums.shape) - draw.geometric(1 - np.exp(-1 / scale), sums.shape)
        measured.append(mbi.LinearMeasurement((sums + noise).reshape(-1).astype(float), names, stddev=scale * 2**0.5))
    model = mbi.estimation.MirrorDescent().estimate(domain, measured, iters=iterations)
    return np.asarray(model.project(("o", "d", "t")).datavector()).reshape(counts.shape)


def _release_rows() -> list[Row]:
    seconds: dict[tuple[str, int], float] = {}
    for window, num_cells in SPANS.items():
        for name, release in releases(read_trips(window)).items():
            release()
            seconds[name, num_cells] = taken(release, 5).seconds
    hours, ten, day = SPANS.values()
    rows = []
    for name in dict.fromkeys(name for name, _ in seconds):
        label = f"{name}: release of"
        rows.append(row(f"{label} {day:,} cells (a day); peer 0.5 s", seconds[name, day], 0.5))
        if name != PLAIN:
            two_hours = f"{label} {hours:,} cells (two hours); peer {PLAIN}"
            rows.append(row(two_hours, seconds[name, hours], seconds[PLAIN, hours]))
        most = 12 * seconds[name, hours]
        rows.append(row(f"{label} {ten:,} cells; peer 12 times that of {hours:,}", seconds[name, ten], most))
    return rows


def _noise_rows() -> list[Row]:
    """Compare the noise of the day's answers with that of OpenDP, whose rate is taken from fewer draws."""
    answers, noise, law = 811_200, Noise(), DiscreteLaplace(Fraction(5))
    law.draw(noise, 10)
    ours = taken(lambda: law.draw(noise, answers), 5).seconds
    peer = opendp_laplace(5)
    peer(10)
    theirs = taken(lambda: peer(OPENDP_DRAWS), 2).seconds * answers / OPENDP_DRAWS
    return [row(f"exact noise on {answers:,} counts, scale 5; peer OpenDP", ours, theirs)]


def release_sparse() -> None:
    """Release few trips among a billion cells and print the CPU seconds; alone in its process."""
    stops = tuple(f"S{number}" for number in range(STOPS))
    windows = tuple(f"{number // 2:02d}:{30 * (number % 2):02d}" for number in range(WINDOWS))
    universe = Universe(stops=stops, windows=windows, window_minutes=30)
    generator = np.random.default_rng(1)
    cells = np.unique(generator.integers(0, universe.num_cells, OCCUPIED + OCCUPIED // 100))
    cells = np.sort(generator.choice(cells, OCCUPIED, replace=False))
    counted = Counted(universe=universe, cells=cells, counts=generator.geometric(0.1, OCCUPIED))
    mechanism = ConstrainedCounts(epsilon=1, features="O3")
    # All that the features need of a schema.
    queries = mechanism.queries(SimpleNamespace(tells_days=False, level="stop", ends=END_COLUMNS["stop"]))
    law = NoisyQueries.of(universe, queries, mechanism.epsilon, 1, DiscreteLaplace)
    print(taken(lambda: mechanism.draw_counts(counted, law, Noise())).seconds)  # compiling included: it is run once


def _sparse_rows() -> list[Row]:
    (seconds,), memory = apart("counts", "release_sparse()")
    name = "constrained-counts, O3: 1e9 cells, 1e5 with trips"
    return [row(f"{name}; peer 30 s", seconds, 30.0), row(f"{name}; peer 2 GB", memory, 2.0, GIGABYTES)]


def count_taps(folder: str) -> None:
    """Read taps, check them against the policy and count them; print the CPU seconds."""
    policy = f"{folder}/taps.toml"
    print(taken(lambda: true_counts(dn.load(f"{folder}/taps.csv", dn.Policy.read(policy)))).seconds)


def group_taps(folder: str) -> None:
    """Read the same file with Arrow and count by group, with no check at all; print the CPU seconds."""
    start = time.process_time()
    table = pacsv.read_csv(f"{folder}/taps.csv")
    half_hours = pc.floor_temporal(table["tap_in"], 30, "minute")
    table = table.set_column(table.column_names.index("tap_in"), "tap_in", half_hours)
    table.group_by(["board_stop", "alight_stop", "tap_in"]).aggregate([([], "count_all")])
    print(time.process_time() - start)


def _tap_rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        generate_trips(TripSetting(size=TAPS, level="stop"), Path(folder) / "taps.csv", seed=1)
        (seconds,), memory = apart("counts", f"count_taps({folder!r})")
        (plain,), plain_memory = apart("counts", f"group_taps({folder!r})")
    name = f"{TAPS:,} taps read, checked and counted; peer Arrow read and group-by"
    return [row(name, seconds, plain), row(name, memory, plain_memory, GIGABYTES)]
