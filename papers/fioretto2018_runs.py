# SPDX-License-Identifier: Apache-2.0
"""Fioretto, Lee, Van Hentenryck 2018, sections 6, 10 and 11: release counts of generated trips and measure the errors.

The paper's trips are not public. Ours are generated to the counts it states (``dunnage generate trips``): a weekday of
37,714 trips, of which 4,878 from 8 to 10 am on 591 of 67,600 trip types. It states no counts of its weekend; ours has
1,860 trips in these two hours. Noise is seeded, so that everything but times comes out the same again.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

import dunnage as dn
from dunnage.arrays import FloatArray, IntArray
from dunnage.kernels.counts.tables import consistent_tree, project_dense
from dunnage.mechanisms.counts import (
    ConstrainedCounts,
    Counted,
    DrawnCounts,
    Feature,
    HierarchicalCounts,
    Layout,
    NoisyCounts,
    true_counts,
)
from dunnage.noise.source import Noise
from dunnage.samples import TripSetting, generate_trips
from papers.measuring import Run, Runs, efforts, mean_interval, means, seed_of

Mechanism = NoisyCounts | HierarchicalCounts | ConstrainedCounts

WEEKDAY, WEEKEND, WHOLE_DAY = "weekday", "weekend", "whole weekday"
DAYS = (WEEKDAY, WEEKEND)  # both from 8 to 10 am
SEED = 2018
EPSILONS = (1.0, 0.1, 0.05, 0.01)
IN_TABLE_2 = (1.0, 0.1, 0.01)

PUBLISHED, SOUND = "as published", "sound"
"""Floating-point noise and each count rounded by itself; or whole-number noise and sums that rounding keeps."""
NOTHING = "nothing"
LAPLACE, FLOOR = "Laplace", "Laplace, floor"
HIERARCHICAL = ("H3", "H4", "H5")
CONSTRAINED = ("O3", "O4", "O5")
ABLATIONS = ("O5(a)", "O5(b)", "O5(c)")
SIGNED = "H5, uniform, unpruned, no root, negatives kept"
READINGS = ("H5, uniform", "H5, unpruned", "H5, uniform, unpruned", SIGNED)  # other ways to read what the paper says
CELLS, MARGINS = "cells", "margins"
PRESETS = (CELLS, MARGINS)
PAPERS_OWN = (LAPLACE, *HIERARCHICAL, *CONSTRAINED)

SUMS: Mapping[str, tuple[str, ...]] = {
    "total": (),
    "windows": ("window",),
    "zone pairs": ("origin_zone", "destination_zone", "window"),
    "modes": ("mode", "window"),
    "stop pairs": ("origin", "destination"),
}
"""Sums whose errors are measured: F2 to F5, and pairs of stops over all windows, which no feature of the paper has."""


def mechanism(method: str, epsilon: float, form: str) -> Mechanism:
    given: dict[str, Any] = {"epsilon": Fraction(str(epsilon)), "as_published": form == PUBLISHED}
    if method in (LAPLACE, FLOOR):
        return NoisyCounts(**given, rounding="floor" if method == FLOOR else "round")
    if method.startswith("H"):
        budget = "uniform" if "uniform" in method else "geometric"
        given |= {"root": method != SIGNED, "negatives": method == SIGNED, "prune": "unpruned" not in method}
        return HierarchicalCounts(**given, features=method[:2], budget=budget)
    if method in PRESETS:
        return ConstrainedCounts(**given, budget_shares=method)
    if method in ABLATIONS:
        ways = ("hierarchical", "flat")[method == "O5(c)"], ("uniform", "size")[method == "O5(b)"]
        return ConstrainedCounts(**given, structure=ways[0], feature_weights=ways[1])
    return ConstrainedCounts(**given, features=method)


@dataclass(frozen=True, eq=False)
class Trips:
    """Generated trips of a day, or of two hours of it, and what errors are measured against."""

    dataset: dn.Dataset
    counted: Counted

    @property
    def num_cells(self) -> int:
        return self.counted.universe.num_cells

    @cached_property
    def true(self) -> FloatArray:
        return self.dense(self.counted)

    @cached_property
    def sums(self) -> Mapping[str, tuple[IntArray, int]]:
        """Group of each cell, and number of groups, of each kind of sum."""
        pairs, slots = self.counted.universe.split(np.arange(self.num_cells))
        features = {name: Feature.of(self.counted.universe, columns) for name, columns in SUMS.items()}
        return {name: (feature.groups(pairs, slots), feature.size) for name, feature in features.items()}

    def dense(self, counts: DrawnCounts | Counted) -> FloatArray:
        dense = np.zeros(self.num_cells)
        dense[counts.cells] = counts.counts
        return dense

    def draw(self, method: str, epsilon: float, form: str) -> Callable[[Noise], DrawnCounts]:
        """Return what releases counts by a method: noise, projection and rounding, without ledger and files."""
        way = mechanism(method, epsilon, form)
        queries: Any = way.law(self.dataset) if isinstance(way, NoisyCounts) else way.asked(self.dataset)
        return lambda noise: way.draw_counts(self.counted, queries, noise)


@lru_cache(maxsize=4)
def trips(day: str, draw: int = 0) -> Trips:
    """Generate the trips of a day; ``draw`` 0 is the one that everything is measured on."""
    window = ("00:00", "24:00") if day == WHOLE_DAY else ("08:00", "10:00")
    with tempfile.TemporaryDirectory() as folder:
        setting = TripSetting(weekend=day == WEEKEND, window=window, level="stop")
        data, policy, _, _ = generate_trips(setting, Path(folder) / "trips.csv", seed=SEED + draw)
        dataset = dn.load(data, dn.Policy.read(policy))
    return Trips(dataset, true_counts(dataset))


SUM_COLUMNS = {name: name.replace(" ", "_") for name in SUMS}


def errors(own: Trips, dense: FloatArray) -> dict[str, Any]:
    """Measure counts of all cells, of those without and with trips, and sums; trips released, and cells with some."""

    def root_mean_square(values: FloatArray) -> float:
        return math.sqrt(float((values**2).mean()))

    off = dense - own.true
    measures: dict[str, Any] = {}
    for suffix, which in (("", slice(None)), ("_empty", own.true == 0), ("_full", own.true > 0)):
        measures[f"rmse{suffix}"] = root_mean_square(off[which])
        measures[f"mae{suffix}"] = float(np.abs(off[which]).mean())
    for name, (groups, size) in own.sums.items():
        measures[SUM_COLUMNS[name]] = root_mean_square(
            np.bincount(groups, weights=off, minlength=size).astype(np.float64)
        )
    return {**measures, "trips": int(dense.sum()), "cells": int((dense > 0).sum())}


if TYPE_CHECKING:  # the class is made from what is written
    Effort: TypeAlias = Any
    FULL: Any
    QUICK: Any
else:
    Effort, FULL, QUICK = efforts(__name__)
ON_DRAWS = (LAPLACE, "H5", "O3", "O5", *PRESETS)  # what is released on further generated weekdays
NEGATIVE, CONTRACTION = "negative counts", "theorem 8.3"
CHECKS = {NEGATIVE: (PUBLISHED, HIERARCHICAL), CONTRACTION: (SOUND, (*CONSTRAINED, *ABLATIONS))}


@dataclass(frozen=True)
class Job:
    """Some releases of one kind, or what is looked at on the way (``check``)."""

    day: str
    epsilon: float
    method: str
    form: str
    runs: int
    draw: int = 0
    check: str = ""


def jobs(effort: Effort) -> list[Job]:
    both = [*PAPERS_OWN, FLOOR, *ABLATIONS]
    ways = [(method, form) for method in both for form in (PUBLISHED, SOUND)]
    ways += [(method, PUBLISHED) for method in READINGS] + [(method, SOUND) for method in PRESETS]
    kinds: list[tuple[Any, ...]] = [
        (day, epsilon, *way, effort.runs) for day, epsilon, way in itertools.product(DAYS, EPSILONS, ways)
    ]
    for check, (form, methods) in CHECKS.items():
        cases = itertools.product(DAYS, EPSILONS, methods)
        kinds += [(*case, form, min(effort.runs, 10), 0, check) for case in cases]
    whole = [(LAPLACE, PUBLISHED), (LAPLACE, SOUND), (FLOOR, PUBLISHED), (FLOOR, SOUND), ("O5", SOUND)]
    kinds += [(WHOLE_DAY, 1.0, *way, effort.runs) for way in whole]
    further = itertools.product(range(1, effort.draws + 1), IN_TABLE_2, ON_DRAWS)
    kinds += [(WEEKDAY, epsilon, method, SOUND, effort.draw_runs, draw) for draw, epsilon, method in further]
    todo = [Job(*kind) for kind in kinds]
    return sorted(todo, key=lambda job: (job.method != MARGINS, job.day != WHOLE_DAY, job.draw))


def measure(job: Job) -> list[Run]:
    noise = Noise(seed=seed_of(job))
    if job.check:
        number, mean = _CHECKS[job.check](job, noise)
        kind = {name: getattr(job, name) for name in ("check", "day", "epsilon", "method")}
        return [Run(**kind, number=number, mean=mean)]
    own, found = trips(job.day, job.draw), []
    release = own.draw(job.method, job.epsilon, job.form)
    release(noise)  # tables of noise are made once
    for run in range(job.runs):
        start = time.process_time()
        drawn = release(noise)
        seconds = time.process_time() - start  # of noise, projection and rounding
        kind = {name: getattr(job, name) for name in Results.KIND}
        found.append(Run(**kind, run=run, **errors(own, own.dense(drawn)), seconds=seconds))
    return found


def nothing(day: str, draw: int = 0) -> list[Run]:
    """Return the errors of publishing no trip at all, at every epsilon."""
    own = trips(day, draw)
    measured = {**errors(own, np.zeros(own.num_cells)), "seconds": 0.0}
    cases = itertools.product(EPSILONS, (PUBLISHED, SOUND))
    return [Run(day=day, draw=draw, epsilon=e, method=NOTHING, form=form, run=0, **measured) for e, form in cases]


def _queried(job: Job) -> tuple[Trips, Any, Any, Layout]:
    own, way = trips(job.day, job.draw), mechanism(job.method, job.epsilon, job.form)
    assert not isinstance(way, NoisyCounts)
    queries = way.asked(own.dataset)
    return own, way, queries, Layout.of(queries.universe, queries.features)


def _negative(job: Job, noise: Noise) -> tuple[float, float]:
    """Return how many leaves the closed form makes negative, before they are rounded to none, and their mean."""
    own, way, queries, layout = _queried(job)
    parents = [finer.parents(coarser, layout) for coarser, finer in pairwise(queries.features)]
    parents.append(np.repeat(layout.groups_of(queries.features[-1]), layout.sizes))
    variances = [law.spread**2 for law in (*queries.laws[1:], queries.laws[0])]
    number, total = 0, 0.0
    for _ in range(job.runs):
        noisy = [*queries.noisy_sums(own.counted, noise), queries.noisy_cells(own.counted, layout, noise)]
        leaves = consistent_tree(noisy, parents, variances, prune=way.prune)[-1]
        number, total = number + int((leaves < 0).sum()), total + float(leaves[leaves < 0].sum())
    return number / job.runs, total / number if number else 0.0


def _contraction(job: Job, noise: Noise) -> tuple[float, float]:
    """Return the largest and mean ratio of the error after the projection to that before, in the norm it minimises."""
    own, way, queries, layout = _queried(job)
    family = way.family(queries.features, layout)
    pairs, slots = queries.universe.split(own.counted.cells)
    true_sums = [feature.sums(pairs, slots, own.counted.counts) for feature in queries.features]
    groups, ranks = layout.places(own.counted.cells)
    true = np.zeros(own.num_cells)
    true[layout.starts[groups] + ranks] = own.counted.counts
    of_cell = np.repeat(np.arange(layout.num_groups), layout.sizes)
    ratios = []
    for _ in range(job.runs):
        sums, noisy = queries.noisy_sums(own.counted, noise), queries.noisy_cells(own.counted, layout, noise)
        x = project_dense(noisy, layout.starts, family, sums).x
        of_join = np.bincount(of_cell, weights=x, minlength=layout.num_groups)
        parts = zip(family.groups, family.sizes, family.ratios, true_sums, sums, strict=True)
        before, after = float(((noisy - true) ** 2).sum()), float(((x - true) ** 2).sum())
        for own_groups, size, ratio, exact, noisy_ in parts:
            found = np.bincount(own_groups, weights=of_join, minlength=size)
            before += ratio * ((noisy_ - exact) ** 2).sum()
            after += ratio * ((found - exact) ** 2).sum()
        ratios.append(math.sqrt(after / before))
    return max(ratios), float(np.mean(ratios))


_CHECKS = {NEGATIVE: _negative, CONTRACTION: _contraction}


def warm_up() -> None:
    for method, form in (("O5", SOUND), ("O5", PUBLISHED), (MARGINS, SOUND), ("H5", SOUND), (LAPLACE, SOUND)):
        measure(Job(day=WEEKDAY, epsilon=1.0, method=method, form=form, runs=1))


@dataclass(frozen=True, eq=False)
class Results(Runs):
    checks: Sequence[Run] = ()
    KIND = ("day", "draw", "epsilon", "method", "form")

    @classmethod
    def of(cls, found: Sequence[Run], effort: Effort) -> Results:
        """Sort what was measured, and add what publishing nothing would give."""
        runs = [item for item in found if not hasattr(item, "check")]
        runs += [run for day in (*DAYS, WHOLE_DAY) for run in nothing(day)]
        runs += [run for draw in range(1, effort.draws + 1) for run in nothing(WEEKDAY, draw)]
        runs.sort(key=lambda run: (run.day, run.draw, -run.epsilon, run.method, run.form, run.run))
        checks = [item for item in found if hasattr(item, "check")]
        checks.sort(key=lambda item: (item.check, item.day, item.method, -item.epsilon))
        return cls(runs, effort, checks)

    def values(self, column: str, method: str, epsilon: float, day: str, *, form: str, draw: int = 0) -> FloatArray:
        return super().values(column, method=method, epsilon=epsilon, day=day, form=form, draw=draw)

    def mean(
        self, column: str, method: str, epsilon: float, day: str = WEEKDAY, *, form: str = "", draw: int = 0
    ) -> float:
        """Return the mean of a measure; as published, unless the method is ours or another form is given."""
        form = form or (SOUND if method in PRESETS else PUBLISHED)
        return float(self.values(column, method, epsilon, day, form=form, draw=draw).mean())

    def interval(self, column: str, method: str, epsilon: float, day: str) -> tuple[float, float]:
        """Return the 95 % interval of a mean; the mean itself, twice, where nothing more is known."""
        form = SOUND if method in PRESETS else PUBLISHED
        mean, half = mean_interval(self.values(column, method, epsilon, day, form=form))
        return (mean, mean) if math.isnan(half) else (mean - half, mean + half)

    def row(self, columns: Mapping[str, str], method: str, epsilon: float, day: str, *, form: str) -> dict[str, object]:
        """Return named means, each with its 95 % interval (as ``_sd``, the half of its width); nan if not measured."""
        measured = {name: self.values(column, method, epsilon, day, form=form) for name, column in columns.items()}
        return means(mean_interval, measured)

    def checked(self, check: str, method: str = "") -> Iterator[Run]:
        return (item for item in self.checks if item.check == check and method in ("", item.method))


# What follows without any run


def expected_trips(own: Trips, epsilon: float, method: str, *, num_cells: int | None = None) -> float:
    """Return how many trips Laplace noise makes of the true ones, exactly.

    With ``r = exp(-epsilon)``, a cell of count c is given ``c + r^(c + 1/2) / (2 (1 - r))`` trips on average if noise
    is rounded, and ``c - 1/2 + r^c / (2 (1 - r))`` if it is rounded down; negative counts are none.
    """
    counts = own.counted.counts.astype(np.float64)
    empty = (own.num_cells if num_cells is None else num_cells) - len(counts)
    return float(_given(counts, epsilon, method).sum() + empty * _given(np.zeros(1), epsilon, method)[0])


def _given(counts: FloatArray, epsilon: float, method: str) -> FloatArray:
    ratio = math.exp(-epsilon)
    if method == FLOOR:
        return np.asarray(counts - 0.5 + ratio**counts / (2 * (1 - ratio)))
    return np.asarray(counts + ratio ** (counts + 0.5) / (2 * (1 - ratio)))


def implied_windows(own: Trips, epsilon: float, method: str, trips_told: float) -> float:
    """Return how many half-hours a day must have for Laplace noise to make so many trips of ours."""
    pairs = own.counted.universe.num_pairs
    of_window = pairs * _given(np.zeros(1), epsilon, method)[0]
    return float((trips_told - expected_trips(own, epsilon, method, num_cells=0)) / of_window)


def num_answers(own: Trips, method: str) -> list[int]:
    """Return how many answers each feature of a method has, the cells first."""
    return list(mechanism(method, 1.0, SOUND).asked(own.dataset).sizes)  # type: ignore[union-attr]


def largest_rmse(own: Trips, method: str, epsilon: float) -> float:
    """Return what the mean error of cells can be at most before rounding.

    The truth is consistent and not negative, and a projection onto a convex set brings nothing further from what is in
    it: in the norm that is minimised, the error is at most the noise. At worst all of it is on the cells. Rounding each
    count by itself adds at most one half.
    """
    sizes = np.array(num_answers(own, method), dtype=np.float64)
    weights = np.ones(len(sizes)) if method in ("O5(a)", "O5(c)") else sizes[0] / sizes
    square = 2 * (len(sizes) / epsilon) ** 2  # of the noise of one answer, on average
    return math.sqrt(square * float((weights * sizes).sum()) / sizes[0])
