# SPDX-License-Identifier: Apache-2.0
"""Pictures of a fleet: waits against its size, how long riders wait, what shuttles do, how trips are made.

What the release tells is blue, and the truth, where it is shown, has the colour of the text. Only of what shuttles do
the bars are the fleet that is run, and a line says what was expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dunnage.arrays import FloatArray
from dunnage.planning.fleet import DayRun, FleetTask
from dunnage.svg import (
    Picture,
    Scale,
    Svg,
    bar_rows,
    chart,
    column,
    dot,
    joined,
    level,
    lower_axis,
    short,
    tag,
    upright,
    x_axis,
    y_axis,
)
from dunnage.text import number_text, percent

Points = Sequence[tuple[int, float]]

BASE, TOP = 178.0, 34.0
PERIOD = 1800
WAIT_STEP, WAIT_STEPS = 30, 30
"""Seconds of a bar of waits, and bars; longer waits are in one more."""
WORST = 4.0
"""Mean waits of more than so many times the target are not drawn."""
_CHANGES = ((1, 0.05), (2, 0.1), (3, 0.2))
_MOST_RIDES = 1_500_000
"""Rides that may be simulated to see waits with other fleets."""


# What is drawn


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Running:
    """What a fleet does on days of trips. Its ``repr`` shows nothing of it."""

    shuttles: int  # Shuttles of all zones
    # Share of the rides that wait so long: bars of :data:`WAIT_STEP` seconds, and one for all that is longer
    waits: FloatArray
    mean_wait: float  # Seconds
    # starts, busy, empty: second at which each half-hour begins, and how many shuttles carry riders or drive without on
    # average
    starts: FloatArray
    busy: FloatArray
    empty: FloatArray

    @classmethod
    def of(cls, task: FleetTask, fleet: Sequence[int]) -> Running:
        """Run a fleet. Every zone with rides needs a shuttle."""
        runs = task.operate(fleet)
        kept = [DayRun.of(day, run, len(fleet)) for day, run in zip(task.days, runs, strict=True)]
        waits, total, rides = np.zeros(WAIT_STEPS + 1), 0.0, 0.0
        for weight, run in zip(task.weights.tolist(), kept, strict=True):
            bars = np.minimum(run.waits // WAIT_STEP, WAIT_STEPS)
            waits += weight * np.bincount(bars, minlength=WAIT_STEPS + 1)
            total, rides = total + weight * float(run.waits.sum()), rides + weight * len(run.waits)
        # Half-hours: from the first of the service day until all have arrived.
        first, last = task.span[0] // PERIOD, -(-task.span[1] // PERIOD)
        num = max(last, -(-max((int(run.dropped.max(initial=0)) for run in runs), default=0) // PERIOD)) - first
        sums = {name: np.zeros(num) for name in ("busy", "empty")}
        for weight, operation in zip(task.weights.tolist(), runs, strict=True):
            told = operation.by_period(PERIOD)
            places = (told["seconds"] // PERIOD).astype(np.int64) - first
            inside = (places >= 0) & (places < num)
            for name, values in sums.items():
                values[places[inside]] += weight * told[name][inside]
        days = float(task.weights.sum()) or 1.0
        return cls(
            shuttles=sum(fleet),
            waits=waits / max(rides, 1.0),
            mean_wait=total / max(rides, 1.0),
            starts=PERIOD * np.arange(first, first + num, dtype=np.float64),
            busy=sums["busy"] / days,
            empty=sums["empty"] / days,
        )

    @property
    def parked(self) -> FloatArray:
        """Shuttles that stand, on average in each half-hour."""
        return np.maximum(self.shuttles - self.busy - self.empty, 0.0)


def fleets_around(fleet: Sequence[int]) -> list[tuple[int, ...]]:
    """Return fleets with more and fewer shuttles in all zones at once, up to a fifth or three, the given one first."""
    found = [tuple(fleet)]
    for sign in (-1, 1):
        for least, share in _CHANGES:
            changed = (number and max(1, number + sign * max(least, round(share * number))) for number in fleet)
            found.append(tuple(changed))
    return list(dict.fromkeys(found))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Curves:
    """Mean waits of zones against their shuttles. Its ``repr`` shows nothing of it."""

    # For each zone with rides, by number: shuttles and mean wait in seconds, by rising number
    points: Mapping[int, Points]
    days: int  # How many days were simulated for each

    @classmethod
    def of(cls, task: FleetTask, fleets: Sequence[Sequence[int]]) -> Curves:
        """Run fleets, each with all its zones. Every zone with rides needs a shuttle in each."""
        rides = np.cumsum(task.legs.sum(axis=1))
        days = max(1, int(np.searchsorted(rides * len(fleets), _MOST_RIDES, side="right")))
        found: dict[int, dict[int, float]] = {zone: {} for zone in task.served}
        for fleet in fleets:
            waits = task.mean_waits(fleet, days=days)
            for zone in task.served:
                found[zone].setdefault(fleet[zone], float(waits[zone]))
        return cls(points={zone: sorted(own.items()) for zone, own in found.items()}, days=min(days, len(task.days)))


# The pictures


def curve_picture(
    zone: str,
    curves: Mapping[str, tuple[Points, int | None]],
    *,
    target: float,  # Longest mean wait that was asked for, in seconds
    words: Mapping[str, str],  # By side what the number that was chosen is called
) -> Picture:
    shown: dict[str, Points] = {}
    for side, (points, _) in curves.items():
        shown[side] = [(number, wait) for number, wait in points if wait <= WORST * target] or points
    numbers = [number for points in shown.values() for number, _ in points]
    highest = max([target, *(wait for points in shown.values() for _, wait in points)])
    x = Scale(min(numbers) - 0.7, max(numbers) + 0.7)
    y = Scale(0.0, 1.12 * highest, BASE, TOP)
    labels = [(x.across(value), number_text(value)) for value in x.ticks(6) if value == round(value)]
    parts = [*y_axis(y, "mean wait, seconds"), *lower_axis(BASE, "shuttles", labels, grid=TOP - 10)]
    parts += level(y, target, f"target {target:g} s")
    told = []
    for side, points in shown.items():
        chosen = curves[side][1]
        parts += joined([(x.at(number), y.at(wait)) for number, wait in points], f"curve {side}")
        for number, wait in points:
            style, radius = (f"point chosen {side}", 6.5) if number == chosen else (f"point {side}", 3.5)
            parts.append(dot(x.at(number), y.at(wait), f"{number} shuttles: {wait:.0f} s", style=style, radius=radius))
            if number == chosen:
                told.append(f"{chosen} {words[side]} ({wait:.0f} s)")
    caption = f"{', '.join(told)}." if told else "No fleet near meets the target."
    label = f"Mean wait against shuttles of {zone}: {caption}"
    return Picture(title=zone, svg=chart(BASE + 40, parts, label=label), caption=caption)


def wait_picture(released: Running | None, true: Running | None, *, target: float) -> Picture:
    """Draw how many rides wait how long: as bars what the release tells, as a line the truth."""
    sides = [side for side in (released, true) if side is not None]
    x = Scale(0.0, (WAIT_STEPS + 1) * WAIT_STEP / 60)
    y = Scale(0.0, 105 * max(float(side.waits.max()) for side in sides), BASE, TOP)
    parts = [*y_axis(y, "per cent of rides"), *x_axis(x, BASE, "minutes from request to boarding")]
    legend, told = [], []
    edges = [x.at(place * WAIT_STEP / 60) for place in range(WAIT_STEPS + 2)]
    if released is not None:
        for place, share in enumerate(released.waits.tolist()):
            begin = place * WAIT_STEP
            until = f" to {begin + WAIT_STEP} s" if place < WAIT_STEPS else " s or longer"
            tip = f"{begin}{until}: {percent(share)}"
            parts += column(edges[place], edges[1], y, [("bar", 100 * share)], tip, gap=0.08)
        legend.append(("load", "trips of the release"))
        told.append(f"{'Planned for' if true is not None else 'On average'}: {_wait_words(released)}")
    if true is not None:
        parts.append(_steps(edges, [y.at(100 * share) for share in true.waits.tolist()]))
        legend.append(("step", "true trips"))
        told.append(f"true riders: {_wait_words(true)}")
    parts += upright(x, target / 60, BASE, f"target of the mean, {target:g} s")
    caption = f"{'; '.join(told)}. The last bar is all that is longer."
    return Picture(title="", svg=chart(BASE + 40, parts, label=caption), caption=caption, legend=legend)


def _wait_words(side: Running) -> str:
    longer = float(side.waits[2 * 5 * 60 // WAIT_STEP :].sum())
    return f"{side.mean_wait:.0f} s, and {percent(longer)} of the rides wait ten minutes or longer"


def _steps(edges: Sequence[float], heights: Sequence[float]) -> Svg:
    """Draw a line of steps; edges are per cent across, heights pixels."""
    corners = [(edge, height) for place, height in enumerate(heights) for edge in edges[place : place + 2]]
    return tag("g", *joined(corners, "step"))


def hours_picture(shown: Running, planned: Running | None = None) -> Picture:
    """Draw how many shuttles are busy, empty and parked in each half-hour, and how many were planned to be busy."""
    num = len(shown.starts)
    wide = 100 / num
    y = Scale(0.0, 1.04 * max(shown.shuttles, 1), BASE, TOP)
    apart = next(step for step in (1, 2, 4, 6, 8, 12, 24, 48, num) if num / step <= 5)
    labels = [
        (f"{short(place * wide)}%", _clock(start))
        for place, start in enumerate(shown.starts.tolist())
        if int(start // PERIOD) % apart == 0
    ]
    parts = [*y_axis(y, "shuttles", whole=True), *lower_axis(BASE, "time of day", labels, grid=BASE, first="start")]
    pieces = [("bar", "with riders", shown.busy), ("more", "driving empty", shown.empty)]
    pieces.append(("parked", "parked", shown.parked))
    for place in range(num):
        tip = ", ".join(f"{values[place]:.1f} {words}" for _, words, values in pieces)
        sizes = [(style, float(values[place])) for style, _, values in pieces]
        parts += column(place * wide, wide, y, sizes, f"{_clock(shown.starts[place])}: {tip}")
    legend = [("load", "with riders"), ("more", "driving empty"), ("parked", "parked")]
    if planned is not None:
        busy = dict(zip(planned.starts.tolist(), planned.busy.tolist(), strict=True))
        heights = [y.at(min(busy.get(start, 0.0), y.high)) for start in shown.starts.tolist()]
        parts.append(_steps([place * wide for place in range(num + 1)], heights))
        legend.append(("step", "with riders, as the plan expected"))
    most = int(np.argmax(shown.busy))
    caption = (
        f"Most are busy from {_clock(shown.starts[most])}: {shown.busy[most]:.0f} of {shown.shuttles:,} with riders, "
        f"{shown.empty[most]:.0f} driving empty, {shown.parked[most]:.0f} parked on average of half an hour."
    )
    return Picture(title="", svg=chart(BASE + 40, parts, label=caption), caption=caption, legend=legend)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3600:02d}:{int(seconds) % 3600 // 60:02d}"


def modes_picture(released: Mapping[str, float], true: Mapping[str, float] | None = None) -> Picture:
    sides = {"bar": released, **({"true-bar": true} if true is not None else {})}
    used = [mode for mode in released if any(side.get(mode, 0.0) > 0 for side in sides.values())]
    used.sort(key=lambda mode: -(true or released).get(mode, 0.0))
    x = Scale(0.0, 104 * max([side.get(mode, 0.0) for side in sides.values() for mode in used], default=1.0))
    row, bar = (40.0, 14.0) if true is None else (50.0, 10.0)
    height = row * len(used) + 4
    rows = []
    for mode in used:
        words = f"{mode}: {percent(released.get(mode, 0.0))}"
        words += "" if true is None else f", true {percent(true.get(mode, 0.0))}"
        rows.append((words, [[(style, 100 * side.get(mode, 0.0))] for style, side in sides.items()]))
    parts = [*x_axis(x, height, "per cent of trips"), *bar_rows(x, rows, row=row, bar=bar)]
    caption = f"Most trips go by {used[0]}." if used else "No trip goes from a stop to another."
    legend = [("load", "trips of the release"), ("true-bar", "true trips")] if true is not None else []
    svg = chart(height + 40, parts, label=caption, kind="flat")
    return Picture(title="Modes", svg=svg, caption=caption, legend=legend)
