# SPDX-License-Identifier: Apache-2.0
"""The pictures of ``docs/carriers.md``: let a generated fleet report, estimate, measure how far that is off, draw.

``carriers-tables`` only prints. Noise is seeded here, so that everything comes out the same again; reports of devices
never are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from picture_parts import across_line, curve, frame, legend, panel, picture, side_by_side

from dunnage.arrays import FloatArray
from dunnage.auditing.carriers import locate
from dunnage.collecting.batch import find_cells, find_paths, perturb_column
from dunnage.collecting.estimate import estimate_means, estimate_shares
from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import LocalLocation
from dunnage.devices.subjects import Grid, Quantity
from dunnage.noise.source import Noise
from dunnage.samples.telemetry import CITY_BOX, PositionSetting, TelemetrySetting, positions, telemetry
from dunnage.showing.figures import LogScale, Scale, Svg, tag
from dunnage.text import number_text

SEED = 1
RUNS = 40
NUM_TRUCKS, NUM_VEHICLES = 5_000, 9_858
NUMBERS = 8
MORNING = 96  # moments of five minutes from midnight to eight in the morning
LEVELS = 4
MAP_LEVELS = (4, 5)
MAP_EPSILON = Fraction(1)
EPSILONS = tuple(map(Fraction, ("0.5", "1", "2", "3", "4", "6", "8")))
SOUND, PUBLISHED = "sound", "published"
STYLES = {SOUND: "standard", PUBLISHED: "stochastic"}
CONFIDENCE, RULE = 0.95, "precision"
TABLE_EPSILONS = tuple(map(Fraction, ("0.5", "1", "2", "4")))
TABLE_RUNS = 100
PARKED_EPSILONS = {Fraction(2): "sealed", Fraction(1): "standard", Fraction("0.5"): "mean"}
PARKED_DAYS = (1, 2, 4, 7, 14, 30, 60, 120, 200, 365)
PER_DAY = 288
PUBLISHED_REPORTS = (1, 3, 6, 12, 24, 48, 96, 144, 288)
PUBLISHED_EPSILON = Fraction("0.5")
MOMENTS = {1 / 288: "5 min", 1 / 24: "1 h", 1 / 3: "8 h", 1: "1 day", 7: "1 week", 30: "1 month", 365: "1 year"}


@lru_cache(maxsize=1)
def sensors() -> tuple[tuple[Quantity, ...], tuple[FloatArray, ...]]:
    """Generate one reading of every truck: the numbers with their bounds, and their columns."""
    setting = TelemetrySetting(size=NUM_TRUCKS, readings=1, attributes=NUMBERS)
    table = telemetry(setting, seed=SEED)
    quantities = tuple(
        Quantity(name=sensor.name, low=Fraction(sensor.low), high=Fraction(sensor.high)) for sensor in setting.sensors
    )
    columns = (np.asarray(table[quantity.name].to_numpy(), dtype=np.float64) for quantity in quantities)
    return quantities, tuple(columns)


def true_means() -> list[float]:
    """Return the mean that devices report of each number, as a share of its domain: clamped, missing in the middle."""
    means = []
    for quantity, column in zip(*sensors(), strict=True):
        low, high = float(quantity.low), float(quantity.high)
        shares = (np.clip(column, low, high) - low) / (high - low)
        means.append(float(np.where(np.isnan(shares), 0.5, shares).mean()))
    return means


@lru_cache(maxsize=2)
def moments(num: int) -> tuple[FloatArray, ...]:
    """Generate where all vehicles are at eight and after it: longitudes and latitudes of each moment in order."""
    table = positions(PositionSetting(size=NUM_VEHICLES, epochs=MORNING + num), seed=SEED)
    columns = [np.asarray(table[name].to_numpy(), dtype=np.float64) for name in ("lon", "lat")]
    rows = [column.reshape(-1, NUM_VEHICLES)[-num:] for column in columns]
    return tuple(row[at] for at in range(num) for row in rows)


def grid(levels: int, area_levels: int = 1) -> Grid:
    west, south, east, north = (Fraction(str(side)) for side in CITY_BOX)
    return Grid(box=(west, south, east, north), levels=levels, area_levels=area_levels)


def true_shares(on: Grid) -> FloatArray:
    cells = find_cells(on, *moments(1))
    return np.bincount(cells, minlength=on.num_cells + 1) / NUM_VEHICLES


def estimated_shares(mechanism: LocalLocation, seed: int) -> FloatArray:
    tally = perturb_column(mechanism, "all", moments(1), Noise(seed=seed))
    return estimate_shares(mechanism, [tally], confidence=CONFIDENCE, rule=RULE).value


def rms(errors: Sequence[float] | FloatArray) -> float:
    return math.sqrt(float(np.mean(np.square(errors))))


def number_errors(mechanism: LocalNumeric, runs: int) -> tuple[list[float], int]:
    """Return the errors of means over all numbers and runs, as shares of the domain, and how many intervals hold."""
    errors, held = [], 0
    columns = sensors()[1][: len(mechanism.quantities)]
    for seed in range(runs):
        tally = perturb_column(mechanism, "all", columns, Noise(seed=seed))
        means, _ = estimate_means(mechanism, [tally], confidence=CONFIDENCE, rule=RULE)
        for quantity, mean, share in zip(mechanism.quantities, means, true_means(), strict=False):
            low, width = float(quantity.low), float(quantity.high - quantity.low)
            value = low + width / 2 if mean.value is None else mean.value
            errors.append((value - low) / width - share)
            held += mean.value is not None and mean.lower <= low + width * share <= mean.upper
    return errors, held


def by_epsilon(
    sound: Callable[[Fraction], Any], published: Callable[[Fraction], Any], measure: Callable[[Any], float]
) -> dict[str, list[float]]:
    """Measure two mechanisms whose reports give away the same."""
    found: dict[str, list[float]] = {}
    for name, make in ((SOUND, sound), (PUBLISHED, published)):
        mechanisms = [make(epsilon) for epsilon in EPSILONS]
        losses = [mechanism.true_loss(mechanism.levels[0]) for mechanism in mechanisms]
        assert losses == list(EPSILONS), f"{name} gives away {losses}"
        found[name] = [measure(mechanism) for mechanism in mechanisms]
    return found


def errors() -> None:
    quantities, true = sensors()[0], true_shares(grid(LEVELS))
    of_numbers = by_epsilon(
        lambda epsilon: LocalNumeric(quantities=quantities, epsilon=epsilon),
        lambda epsilon: LocalNumeric(quantities=quantities, epsilon=epsilon / NUMBERS, as_published=True),
        lambda mechanism: rms(number_errors(mechanism, RUNS)[0]),
    )
    of_places = by_epsilon(
        lambda epsilon: LocalLocation(grid=grid(LEVELS), epsilon=epsilon),
        lambda epsilon: LocalLocation(grid=grid(LEVELS), epsilon=epsilon / 2, as_published=True),
        lambda mechanism: rms([rms(estimated_shares(mechanism, seed) - true) for seed in range(RUNS)]),
    )
    middles, alike = rms([mean - 0.5 for mean in true_means()]), rms(true - 1 / true.size)
    numbers = f"means of {NUMBERS} numbers, per cent of their domain"
    places = f"shares of {4 ** (LEVELS - 1)} cells, points of a hundred"
    panels = [
        (numbers, (of_numbers, middles), (0.5, 50.0), (0.5, 1, 2, 5, 10, 20, 50)),
        (places, (of_places, alike), (0.02, 4.0), (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)),
    ]
    top, height = 112.0, 250.0
    across, x_ticks = LogScale(0.43, 9.3), {float(epsilon): f"{float(epsilon):g}" for epsilon in EPSILONS}
    drawn = []
    for words, (found, without), ends, ticks in panels:
        down = LogScale(*ends, height, 0.0)
        y_ticks = {value: number_text(value) for value in ticks}
        inner = [*frame(across, down, x_ticks, y_ticks, "true loss of a report, epsilon")]
        inner.append(across_line(down, 100 * without))
        for name, line in found.items():
            points = [(float(epsilon), 100 * value) for epsilon, value in zip(EPSILONS, line, strict=True)]
            inner += curve(STYLES[name], across, down, points)
            print(f"{words}, {name}: {', '.join(f'{x:g}: {value:.3g}' for x, value in points)}")
        print(f"{words}, without reports: {100 * without:.3g}")
        drawn.append((words, inner))
    entries = [(STYLES[SOUND], "sound", 30.0), (STYLES[PUBLISHED], "published, at the same true loss", 110.0)]
    place = {"left": 62, "top": top, "width": 300, "height": height, "gap": 66, "title_at": (-30, -16)}
    parts = [*legend(54, entries), *side_by_side(drawn, **place)]
    sizes = {"trucks": NUM_TRUCKS, "vehicles": NUM_VEHICLES, "RUNS": RUNS}
    picture("carriers-error", top + height + 62, parts, style="carriers", **sizes)


def maps() -> None:
    side, top, gap = 168.0, 72.0, 16.0
    parts = []
    for number, levels in enumerate(MAP_LEVELS):
        on = grid(levels)
        mechanism = LocalLocation(grid=on, epsilon=MAP_EPSILON)
        true, found = true_shares(on), estimated_shares(mechanism, SEED)
        verdict = mechanism.noise_verdict(NUM_VEHICLES)
        moved = float(np.abs(found - true).sum()) / 2
        print(f"level {levels}: {verdict.message}; noise {verdict.is_noise}; moved {moved:.3f}")
        largest = float(true[:-1].max())
        for place, (words, shares) in enumerate((("true", true), ("estimated", found))):
            left = 24 + (2 * number + place) * (side + gap)
            parts.append(tag("text", f"{on.num_cells} cells, {words}", class_="name", x=left, y=top - 12))
            parts.append(_map(on, shares, largest, left, top, side))
        words = f"{100 * moved:.0f} % of the trucks in a wrong cell"
        parts.append(tag("text", words, x=24 + 2 * number * (side + gap), y=top + side + 22))
    picture("carriers-map", top + side + 54, parts, style="carriers", vehicles=NUM_VEHICLES, epsilon=float(MAP_EPSILON))


def _map(on: Grid, shares: FloatArray, largest: float, left: float, top: float, side: float) -> Svg:
    size = on.num_columns
    cells = []
    for cell in np.flatnonzero(shares[:-1] > 0).tolist():
        column, row = on.column_row(cell)
        depth = f"{min(1.0, float(shares[cell]) / largest):.2f}"
        cells.append(tag("rect", class_="cell", x=column, y=size - 1 - row, width=1, height=1, fill_opacity=depth))
    frame = tag("rect", class_="frame", width=size, height=size, stroke_width=f"{size / side:.3f}")
    return tag("g", *cells, frame, transform=f"translate({left:g} {top:g}) scale({side / size:.4f})")


def parked() -> None:
    left, top, width, height = 62.0, 100.0, 640.0, 250.0
    across, down = LogScale(0.8 / PER_DAY, 460.0), Scale(0.0, 1.0, height, 0.0)
    shares = {value: f"{100 * value:.0f} %" for value in (0.0, 0.25, 0.5, 0.75, 1.0)}
    inner = frame(across, down, MOMENTS, shares)
    published = LocalLocation(grid=grid(LEVELS, 2), epsilon=PUBLISHED_EPSILON, as_published=True).channel("all")
    lines = {"stochastic": [(num / PER_DAY, locate(published, num).value) for num in PUBLISHED_REPORTS]}
    for epsilon, style in PARKED_EPSILONS.items():
        law = LocalLocation(grid=grid(LEVELS), epsilon=epsilon).channel("all")
        lines[style] = [(float(days), locate(law, days).value) for days in PARKED_DAYS]
    for style, points in lines.items():
        inner += curve(style, across, down, points)
        print(style, ", ".join(f"{days:.3g} d: {chance:.3f}" for days, chance in points))
    entries = [(style, f"sound, epsilon {float(epsilon):g} a day") for epsilon, style in PARKED_EPSILONS.items()]
    parts = legend(54, [("stochastic", f"published, epsilon {float(PUBLISHED_EPSILON):g} every five minutes", 30.0)])
    parts += legend(76, [(style, words, 30.0 + 190 * at) for at, (style, words) in enumerate(entries)])
    parts.append(panel(left, top, width, height, inner))
    picture("carriers-parked", top + height + 48, parts, style="carriers")


def tables() -> None:
    for num in (1, 2, 4, 8):
        quantities = sensors()[0][:num]
        for epsilon in TABLE_EPSILONS:
            mechanism = LocalNumeric(quantities=quantities, epsilon=epsilon)
            found, held = number_errors(mechanism, TABLE_RUNS)
            sds = mechanism.predicted_sd("all", NUM_TRUCKS)
            most = max(sd / float(quantity.high - quantity.low) for sd, quantity in zip(sds, quantities, strict=True))
            error = f"{100 * rms(found):.2f} % of the domain, predicted {100 * most:.2f}"
            print(f"{num} numbers, epsilon {float(epsilon):g}: {error}, {held} of {len(found)} intervals hold")
    for levels in (2, 3, 4, 5, 6):
        places = find_cells(grid(levels), *moments(1))
        for epsilon in TABLE_EPSILONS:
            print_shares(LocalLocation(grid=grid(levels), epsilon=epsilon), moments(1), places)
    for levels in (2, 3, 4):
        for epsilon in TABLE_EPSILONS:
            paths = LocalTrajectory(grid=grid(levels), steps=2, epsilon=epsilon)
            values = moments(2)
            cells = np.stack([find_cells(paths.grid, *values[at : at + 2]) for at in (0, 2)])
            print_shares(paths, values, find_paths(paths.paths, cells))
    for epsilon in TABLE_EPSILONS[:3]:
        clear = LocalLocation(grid=grid(LEVELS, 2), epsilon=epsilon, area_in_clear=True)
        print_shares(clear, moments(1), find_cells(clear.grid, *moments(1)))


def print_shares(mechanism: LocalLocation | LocalTrajectory, values: Sequence[FloatArray], inputs: Any) -> None:
    """Print how many vehicles a table of shares has in a wrong place, or on a wrong path."""
    law = mechanism.channel("all")
    true, wrong, found = np.bincount(inputs, minlength=law.num_inputs) / NUM_VEHICLES, [], []
    for seed in range(TABLE_RUNS // 5):
        tally = perturb_column(mechanism, "all", values, Noise(seed=seed))
        error = estimate_shares(mechanism, [tally], confidence=CONFIDENCE, rule=RULE).value - true
        wrong.append(float(np.abs(error).sum()) / 2)
        found.append(rms(error))
    alike = float(np.abs(true - 1 / true.size).sum()) / 2
    errors = f"{100 * np.mean(wrong):.1f} % wrong (all alike {100 * alike:.1f}), RMSE {100 * np.mean(found):.3f} points"
    bits, noise = mechanism.payload_bits("all"), mechanism.noise_verdict(NUM_VEHICLES).message
    print(f"{mechanism.name}, {law.num_inputs} inputs, {bits} bits: {errors}; {noise}")


DRAWN = {
    "carriers-error": errors,
    "carriers-map": maps,
    "carriers-parked": parked,
    "carriers-tables": tables,
}
