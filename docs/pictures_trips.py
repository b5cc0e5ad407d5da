# SPDX-License-Identifier: Apache-2.0
"""The pictures of ``docs/trip-counts.md``: generate trips, publish their counts, measure how far they are off, draw.

``draw_pictures.py`` runs them. Trips are those of ``dunnage generate trips --level stop --seed 1`` from 8 to 10 am,
and for riders those of the whole day; releases are made in memory with seeded noise, so that certificates are void.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from picture_parts import across_line, curve, frame, generated, legend, mean, panel, picture, published, side_by_side

from dunnage.arrays import IntArray
from dunnage.auditing.counts import CountsTruth, CountsView, Errors
from dunnage.mechanisms.counts import (
    ConstrainedCounts,
    Feature,
    FeatureColumns,
    HierarchicalCounts,
    NoisyCounts,
    feature_name,
    true_counts,
)
from dunnage.samples import TripSetting, generate_trips
from dunnage.showing.figures import LogScale, Scale, Svg, tag
from dunnage.tables.dataset import Dataset
from dunnage.text import number_text

Method = Callable[[Fraction], Any]

SEED = 1
RUNS = 20
BUSY = ("08:00", "10:00")
WHOLE_DAY = ("00:00", "24:00")
EPSILONS = tuple(map(Fraction, ("1", "0.5", "0.2", "0.1", "0.05", "0.02", "0.01")))
METHODS: dict[str, Method] = {
    "Laplace": lambda epsilon: NoisyCounts(epsilon=epsilon),
    "H5": lambda epsilon: HierarchicalCounts(epsilon=epsilon),
    "O3": lambda epsilon: ConstrainedCounts(epsilon=epsilon, features="O3"),
    "O4": lambda epsilon: ConstrainedCounts(epsilon=epsilon, features="O4"),
    "O5": lambda epsilon: ConstrainedCounts(epsilon=epsilon),
    "cells": lambda epsilon: ConstrainedCounts(epsilon=epsilon, budget_shares="cells"),
    "margins": lambda epsilon: ConstrainedCounts(epsilon=epsilon, budget_shares="margins"),
}
"""By the words of the pictures: rounded Laplace noise, a tree, the paper's features, and shares of epsilon of ours."""
STYLES = {"Laplace": "plain", "H5": "mean", "O5": "standard", "cells": "stochastic", "margins": "sealed"}
FAINT = {"O3": "thin dashed", "O4": "thin"}
SUMS: tuple[FeatureColumns, ...] = (
    ("window",),
    ("origin_zone", "destination_zone", "window"),
    ("mode", "window"),
    ("origin", "destination"),
)
MODES: FeatureColumns = ("mode", "window")
BOUNDS = (1, 2, 3, 4, 6, 10, 20)
RIDER_EPSILONS = tuple(map(Fraction, ("0.25", "1", "4")))
RIDER_RUNS = 5
FOLD = 2  # so many stops are drawn as one, to keep files small
SHADES = ((1, 0.14), (3, 0.34), (8, 0.62), (20, 1.0))  # fewest trips of each shade, and how much of the colour it has


@lru_cache(maxsize=3)
def trips(window: tuple[str, str], bound: int | None = None) -> Dataset:
    """Generate trips; with a bound, riders are protected and so many trips of each are counted."""

    def of_riders(text: str) -> str:
        more = f'\n[contribution]\nperson = "card"\nmax = {bound}\nper = "period"\n'
        return text if bound is None else text.replace('protects = "trip"', 'protects = "rider"') + more

    return generated(generate_trips, TripSetting(window=window, level="stop"), SEED, of_riders)


@dataclass(frozen=True, kw_only=True)
class Measured:
    cells: float  # root mean square over all cells
    occupied: float  # mean absolute error where there are trips in truth
    sums: dict[str, float]  # root mean square over the sums of each feature, by its name
    trips: float  # trips, created: Trips in all, and trips in cells that have none in truth
    created: float

    def summary(self) -> str:
        sums = ", ".join(f"{name} {value:.2f}" for name, value in self.sums.items())
        return (
            f"RMSE {self.cells:.3f}, MAE where there are trips {self.occupied:.2f}, trips {self.trips:,.0f}, created "
            f"{self.created:,.0f}; RMSE of sums: {sums}"
        )


def released(mechanism: Any, data: Dataset, seed: int) -> CountsTruth:
    return CountsTruth.of(CountsView.of(published(mechanism, data, seed).release), data, None)


def measured(mechanism: Any, data: Dataset, runs: int = RUNS) -> Measured:
    found = []
    for seed in range(runs):
        case = released(mechanism, data, seed)
        found.append(compared(case.universe, case.places, case.true, case.released))
    values = {name: mean(getattr(one, name) for one in found) for name in ("cells", "occupied", "trips", "created")}
    return Measured(**values, sums={name: mean(one.sums[name] for one in found) for name in found[0].sums})


def compared(universe: Any, places: Any, true: IntArray, released: IntArray) -> Measured:
    difference, occupied = released - true, true > 0
    features = [Feature.of(universe, columns) for columns in SUMS]
    sums = {item.name: Errors.of(item.listed_sums(*places, difference), item.size).rmse for item in features}
    return Measured(
        cells=Errors.of(difference, universe.num_cells).rmse,
        occupied=Errors.of(difference[occupied], int(occupied.sum())).mae,
        sums=sums,
        trips=float(released.sum()),
        created=float(released[~occupied].sum()),
    )


def nothing(data: Dataset) -> Measured:
    counted = true_counts(data)
    places = counted.universe.split(counted.cells)
    return compared(counted.universe, places, counted.counts, np.zeros_like(counted.counts))


@lru_cache(maxsize=1)
def by_epsilon() -> dict[tuple[str, Fraction], Measured]:
    data = trips(BUSY)
    print(f"nothing: {nothing(data).summary()}")
    found = {}
    for name, method in METHODS.items():
        for epsilon in EPSILONS:
            found[name, epsilon] = measured(method(epsilon), data)
            print(f"{name} epsilon {float(epsilon):g}: {found[name, epsilon].summary()}")
    return found


def flows() -> None:
    data = trips(BUSY)
    names = {"O5": "constrained counts, O5", "Laplace": "Laplace noise"}
    cases = {name: released(METHODS[name](Fraction(1)), data, SEED) for name in names}
    true = cases["O5"]
    maps = {"true trips": _matrix(true, true.true)}
    maps |= {words: _matrix(cases[name], cases[name].released) for name, words in names.items()}
    size, side, top = len(true.universe.stops) // FOLD, 214.0, 104.0
    parts = []
    words = [f"{low} to {high - 1} trips" for (low, _), (high, _) in pairwise(SHADES)] + [f"{SHADES[-1][0]} or more"]
    for at, ((_, depth), text) in enumerate(zip(SHADES, words, strict=True)):
        parts.append(tag("rect", class_="swatch", x=24 + 118 * at, y=41, width=14, height=14, fill_opacity=depth))
        parts.append(tag("text", text, x=44 + 118 * at, y=52))
    for number, (words, matrix) in enumerate(maps.items()):
        left = 40 + number * (side + 24)
        parts.append(tag("text", f"{words}: {int(matrix.sum()):,}", class_="name", x=left, y=top - 12))
        parts.append(_heat(matrix, left, top, side / size))
        print(f"{words}: {int(matrix.sum())} trips, {int((matrix > 0).sum())} of {matrix.size} squares")
    parts += _zones(true, top, side)
    sizes = {"stops": len(true.universe.stops), "cells": true.universe.num_cells, "full": int((true.true > 0).sum())}
    picture("trips-flows", top + side + 40, parts, style="trips", FOLD=FOLD, **sizes)


def _matrix(case: CountsTruth, counts: IntArray) -> IntArray:
    """Add counts of all windows up by origin and destination, neighbouring stops together."""
    stops = len(case.universe.stops)
    size = stops // FOLD
    origins, destinations = (np.minimum(ends // FOLD, size - 1) for ends in np.divmod(case.places[0], stops))
    matrix = np.zeros((size, size), dtype=np.int64)
    np.add.at(matrix, (origins, destinations), counts)
    return matrix


def _heat(matrix: IntArray, left: float, top: float, side: float) -> Svg:
    """Draw a matrix: one path for each shade, a stroke for each run of squares of that shade in a line."""
    shade = np.searchsorted([fewest for fewest, _ in SHADES], matrix, side="right")
    paths = [
        tag("path", class_="heat", d="".join(_runs(shade == at)), stroke_opacity=depth, stroke_width="1")
        for at, (_, depth) in enumerate(SHADES, 1)
    ]
    size = len(matrix)
    frame = tag("rect", class_="frame", width=size, height=size, stroke_width="0.3")
    return tag("g", *paths, frame, transform=f"translate({left:g} {top:g}) scale({side:.4f})")


def _runs(chosen: npt.NDArray[np.bool_]) -> list[str]:
    edges = np.diff(np.pad(chosen.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    starts, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)
    return [f"M{x} {y}.5h{end - x}" for (y, x), (_, end) in zip(starts.tolist(), ends.tolist(), strict=True)]


def _zones(case: CountsTruth, top: float, side: float) -> list[Svg]:
    city, parts = case.universe.city, []
    assert city is not None
    assert city.zones is not None
    for number, name in enumerate(city.zone_names):
        middle = float(np.flatnonzero(city.zones == number).mean()) / len(case.universe.stops)
        y = top + side * middle
        turned = f"rotate(-90 30 {y:.1f})"
        parts.append(tag("text", name, class_="faint", x=30, y=y, text_anchor="middle", transform=turned))
        for panel_at in range(3):
            x = 40 + panel_at * (side + 24) + side * middle
            parts.append(tag("text", name, class_="faint", x=x, y=top + side + 15, text_anchor="middle"))
    return parts


def _against_epsilon(
    panels: Sequence[tuple[str, Callable[[Measured], float], tuple[float, float]]],  # title, measure, ends of the axis
    without: Callable[[Callable[[Measured], float]], float],  # where to draw the dotted line
    *,
    left: float,
    width: float,
    height: float,
    faint: bool,
) -> list[Svg]:
    """Draw a line for each method over all epsilons, in a panel for each measure."""
    found, styles = by_epsilon(), STYLES | (FAINT if faint else {})
    across = LogScale(0.85 * float(EPSILONS[-1]), 1.18)
    x_ticks = {float(epsilon): f"{float(epsilon):g}" for epsilon in EPSILONS}
    drawn = []
    for words, read, ends in panels:
        down = LogScale(*ends, height, 0.0)
        y_ticks = {value: f"{value:,.0f}" if value >= 1 else number_text(value) for value in down.ticks(9)}
        inner = [*frame(across, down, x_ticks, y_ticks, "epsilon"), across_line(down, without(read))]
        for name in (name for name in METHODS if name in styles):
            points = [(float(e), max(read(found[name, e]), down.low)) for e in EPSILONS]
            inner += curve(styles[name], across, down, points, marks=name in STYLES)
        drawn.append((words, inner))
    words = {"Laplace": "Laplace noise", "H5": "tree H5", "O5": "O5"}
    words |= {"cells": "O5, shares cells", "margins": "O5, shares margins"}
    places = (24.0, 146.0, 226.0, 280.0, 414.0)
    parts = legend(54, [(STYLES[name], text, x) for (name, text), x in zip(words.items(), places, strict=True)])
    for name, x in (("O4", 566.0), ("O3", 632.0)) if faint else ():
        parts.append(tag("line", class_=FAINT[name], x1=x, x2=x + 26, y1=50, y2=50))
        parts.append(tag("text", name, x=x + 32, y=54))
    return parts + side_by_side(drawn, left=left, top=118.0, width=width, height=height, gap=70)


def errors() -> None:
    without = nothing(trips(BUSY))
    panels = (
        ("single counts (cells)", lambda one: one.cells, (0.1, 300.0)),
        ("sums by mode and window", lambda one: one.sums[feature_name(MODES)], (2.0, 250_000.0)),
    )
    parts = _against_epsilon(panels, lambda read: read(without), left=70, width=300, height=270, faint=True)
    picture("trips-error", 450, parts, style="trips", RUNS=RUNS)


def created() -> None:
    total = true_counts(trips(BUSY)).num_trips
    panels = (
        ("trips of types that nobody travelled", lambda one: one.created, (100.0, 5e6)),
        ("trips in all", lambda one: one.trips, (1000.0, 5e6)),
    )
    parts = _against_epsilon(panels, lambda _: total, left=84, width=292, height=250, faint=False)
    picture("trips-created", 430, parts, style="trips", RUNS=RUNS, total=total)


def riders() -> None:
    lines: dict[Fraction, list[float]] = {}
    for epsilon in RIDER_EPSILONS:
        found = [measured(METHODS["cells"](epsilon), trips(WHOLE_DAY, bound), runs=RIDER_RUNS) for bound in BOUNDS]
        lines[epsilon] = [one.cells for one in found]
        for bound, one in zip(BOUNDS, found, strict=True):
            print(f"rider epsilon {float(epsilon):g} max {bound}: {one.summary()}")
        by_trip = measured(METHODS["cells"](epsilon), trips(WHOLE_DAY), runs=RIDER_RUNS)
        print(f"trip epsilon {float(epsilon):g}: {by_trip.summary()}")
    without = nothing(trips(WHOLE_DAY))
    print(f"nothing: {without.summary()}")
    left, top, width, height = 62.0, 84.0, 500.0, 230.0
    down = LogScale(0.2, 5.0, height, 0.0)
    across = Scale(-0.3, len(BOUNDS) - 0.7)
    x_ticks = {float(at): str(bound) for at, bound in enumerate(BOUNDS)}
    inner = frame(across, down, x_ticks, {value: f"{value:g}" for value in (0.2, 0.5, 1.0, 2.0, 5.0)})
    for at, bound in enumerate(BOUNDS):
        each = np.bincount(trips(WHOLE_DAY, bound).persons)  # the share that is counted: a figure for the owner alone
        words = f"{np.minimum(each, bound).sum() / each.sum():.1%}".replace("%", " %")
        inner.append(tag("text", words, class_="faint", x=across.across(at), y=height + 35, text_anchor="middle"))
    inner.append(across_line(down, without.cells))
    ends = []
    for style, (epsilon, line) in zip(("stochastic", "standard", "sealed"), lines.items(), strict=True):
        inner += curve(style, across, down, [(float(at), value) for at, value in enumerate(line)])
        end = top + down.at(line[-1]) + 4
        ends.append(tag("text", f"epsilon {float(epsilon):g}", x=left + width + 12, y=end))
    parts = [
        tag("text", "root mean square error of a cell, in trips", class_="name", x=24, y=top - 18),
        panel(left, top, width, height, inner),
        *ends,
        tag("text", "publish nothing", class_="faint", x=left + 6, y=top + down.at(without.cells) - 6),
        tag("text", "trips counted of a rider", class_="name", x=left + width + 12, y=top + height + 17),
        tag("text", "share of trips counted", class_="faint", x=left + width + 12, y=top + height + 35),
    ]
    picture("trips-riders", top + height + 68, parts, style="trips", RUNS=RIDER_RUNS)


DRAWN = {
    "trips-flows": flows,
    "trips-error": errors,
    "trips-created": created,
    "trips-riders": riders,
}
