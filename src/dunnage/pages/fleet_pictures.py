# SPDX-License-Identifier: Apache-2.0
"""Pictures of a fleet: waits against its size, how long riders wait, what shuttles do, how trips are made.

What the release tells is blue, and the truth, where it is shown, has the colour of the text. Only of what shuttles do
the bars are the fleet that is run, and a line says what was expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray
from dunnage.planning.dispatch import Operation
from dunnage.planning.fleet import DayRun, FleetTask
from dunnage.svg import Scale, Svg, chart, tag, x_axis, y_axis
from dunnage.text import number_text, percent

Points = Sequence[tuple[int, float]]

BASE, TOP = 178.0, 34.0
ROW, BAR = 40.0, 14.0
PERIOD = 1800
WAIT_STEP, WAIT_STEPS = 30, 30
"""Seconds of a bar of waits, and bars; longer waits are in one more."""
WORST = 4.0
"""Mean waits of more than so many times the target are not drawn."""
_CHANGES = ((1, 0.05), (2, 0.1), (3, 0.2))
_MOST_RIDES = 1_500_000
"""Rides that may be simulated to see waits with other fleets."""
_LEAST_PART = 0.005


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
        starts, busy, empty = _half_hours(task, runs)
        return cls(
            shuttles=sum(fleet),
            waits=waits / max(rides, 1.0),
            mean_wait=total / max(rides, 1.0),
            starts=starts,
            busy=busy,
            empty=empty,
        )

    @property
    def parked(self) -> FloatArray:
        """Shuttles that stand, on average in each half-hour."""
        return np.maximum(self.shuttles - self.busy - self.empty, 0.0)


def _half_hours(task: FleetTask, runs: Sequence[Operation]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return starts of half-hours from the first of the service day until all have arrived, busy and empty shuttles."""
    first, last = task.span[0] // PERIOD, -(-task.span[1] // PERIOD)
    ends = [int(run.dropped.max(initial=0)) for run in runs]
    num = max(last, -(-max(ends, default=0) // PERIOD)) - first
    sums = {name: np.zeros(num) for name in ("busy", "empty")}
    for weight, run in zip(task.weights.tolist(), runs, strict=True):
        told = run.by_period(PERIOD)
        places = (told["seconds"] // PERIOD).astype(np.int64) - first
        inside = (places >= 0) & (places < num)
        for name, total in sums.items():
            total[places[inside]] += weight * told[name][inside]
    days = float(task.weights.sum()) or 1.0
    starts = PERIOD * np.arange(first, first + num, dtype=np.float64)
    return starts, sums["busy"] / days, sums["empty"] / days


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


def picture(title: str, svg: Svg, caption: str, legend: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """Put together what the template shows of a picture."""
    return {"title": title, "svg": svg, "caption": caption, "legend": legend}


# Wait against fleet


def curve_picture(
    zone: str,
    curves: Mapping[str, tuple[Points, int | None]],
    *,
    target: float,  # Longest mean wait that was asked for, in seconds
    words: Mapping[str, str],  # By side what the number that was chosen is called
) -> dict[str, Any]:
    """Draw the mean wait of a zone against its shuttles."""
    shown = {side: _worth_drawing(points, target) for side, (points, _) in curves.items()}
    numbers = [number for points in shown.values() for number, _ in points]
    highest = max([target, *(wait for points in shown.values() for _, wait in points)])
    x = Scale(min(numbers) - 0.7, max(numbers) + 0.7)
    y = Scale(0.0, 1.12 * highest, BASE, TOP)
    parts = [*y_axis(y, "mean wait, seconds"), *_number_axis(x, BASE, "shuttles")]
    parts.append(tag("line", class_="limit", x1="0", x2="100%", y1=y.at(target), y2=y.at(target)))
    parts.append(tag("text", f"target {target:g} s", class_="halo", x="100%", y=y.at(target) - 6, text_anchor="end"))
    told = []
    for side, points in shown.items():
        chosen = curves[side][1]
        parts += _curve(x, y, side, points, chosen)
        waits = dict(points)
        if chosen in waits:
            told.append(f"{chosen} {words[side]} ({waits[chosen]:.0f} s)")
    caption = f"{', '.join(told)}." if told else "No fleet near meets the target."
    label = f"Mean wait against shuttles of {zone}: {caption}"
    return picture(zone, chart(BASE + 40, parts, label=label), caption)


def _worth_drawing(points: Points, target: float) -> Points:
    near = [(number, wait) for number, wait in points if wait <= WORST * target]
    return near or points


def _curve(x: Scale, y: Scale, side: str, points: Points, chosen: int | None) -> list[Svg]:
    parts = []
    for (first, before), (second, after) in pairwise(points):
        ends: dict[str, Any] = {"x1": x.across(first), "x2": x.across(second), "y1": y.at(before), "y2": y.at(after)}
        parts.append(tag("line", class_=f"curve {side}", **ends))
    for number, wait in points:
        tip = tag("title", f"{number} shuttles: {wait:.0f} s")
        style, radius = (f"point chosen {side}", 6.5) if number == chosen else (f"point {side}", 3.5)
        parts.append(tag("circle", tip, class_=style, cx=x.across(number), cy=y.at(wait), r=radius))
    return parts


def _number_axis(x: Scale, y: float, title: str) -> list[Svg]:
    """Draw an axis below with whole numbers only."""
    parts = [tag("line", class_="axis", x1="0", x2="100%", y1=y, y2=y)]
    for value in x.ticks(6):
        if value == round(value):
            place = x.across(value)
            parts.append(tag("line", class_="grid", x1=place, x2=place, y1=TOP - 10, y2=y + 4))
            parts.append(tag("text", number_text(value), x=place, y=y + 17, text_anchor="middle"))
    return [*parts, tag("text", title, class_="name", x="100%", y=y + 34, text_anchor="end")]


# How long riders wait


def wait_picture(released: Running | None, true: Running | None, *, target: float) -> dict[str, Any]:
    """Draw how many rides wait how long: as bars what the release tells, as a line the truth."""
    sides = [side for side in (released, true) if side is not None]
    x = Scale(0.0, (WAIT_STEPS + 1) * WAIT_STEP / 60)
    y = Scale(0.0, 105 * max(float(side.waits.max()) for side in sides), BASE, TOP)
    parts = [*y_axis(y, "per cent of rides"), *x_axis(x, BASE, "minutes from request to boarding")]
    legend, told = [], []
    if released is not None:
        parts += _wait_bars(x, y, released)
        legend.append(("load", "trips of the release"))
        told.append(f"{'Planned for' if true is not None else 'On average'}: {_wait_words(released)}")
    if true is not None:
        parts.append(_wait_line(x, y, true))
        legend.append(("step", "true trips"))
        told.append(f"true riders: {_wait_words(true)}")
    place = x.across(target / 60)
    parts.append(tag("line", class_="limit", x1=place, x2=place, y1=TOP - 10, y2=BASE))
    parts.append(tag("text", f"target of the mean, {target:g} s", class_="halo", x=place, dx="6", y=TOP))
    caption = f"{'; '.join(told)}. The last bar is all that is longer."
    return picture("", chart(BASE + 40, parts, label=caption), caption, legend)


def _wait_words(side: Running) -> str:
    longer = float(side.waits[2 * 5 * 60 // WAIT_STEP :].sum())
    return f"{side.mean_wait:.0f} s, and {percent(longer)} of the rides wait ten minutes or longer"


def _wait_bars(x: Scale, y: Scale, side: Running) -> list[Svg]:
    parts = []
    wide = x.at(WAIT_STEP / 60) - x.at(0.0)
    for place, share in enumerate(side.waits.tolist()):
        if share:
            from_ = place * WAIT_STEP
            until = f" to {from_ + WAIT_STEP} s" if place < WAIT_STEPS else " s or longer"
            tip = tag("title", f"{from_}{until}: {percent(share)}")
            top = y.at(100 * share)
            across = {"x": f"{(place + 0.08) * wide:.2f}%", "width": f"{0.84 * wide:.2f}%"}
            parts.append(tag("rect", tip, class_="bar", y=top, height=BASE - top, **across))
    return parts


def _wait_line(x: Scale, y: Scale, side: Running) -> Svg:
    heights = [y.at(100 * share) for share in side.waits.tolist()]
    return _steps([x.at(place * WAIT_STEP / 60) for place in range(len(heights) + 1)], heights)


def _steps(edges: Sequence[float], heights: Sequence[float]) -> Svg:
    """Draw a line of steps; edges are per cent across, heights pixels."""
    parts = []
    for place, height in enumerate(heights):
        left, right = f"{edges[place]:.2f}%", f"{edges[place + 1]:.2f}%"
        parts.append(tag("line", class_="step", x1=left, x2=right, y1=height, y2=height))
        if place:
            parts.append(tag("line", class_="step", x1=left, x2=left, y1=heights[place - 1], y2=height))
    return tag("g", *parts)


# What shuttles do


def hours_picture(shown: Running, planned: Running | None = None) -> dict[str, Any]:
    """Draw how many shuttles are busy, empty and parked in each half-hour, and how many were planned to be busy."""
    num = len(shown.starts)
    x, y = Scale(0.0, num), Scale(0.0, 1.04 * max(shown.shuttles, 1), BASE, TOP)
    parts = [*y_axis(y, "shuttles", whole=True), *_clock_axis(x, shown.starts)]
    pieces = [("bar", "with riders", shown.busy), ("more", "driving empty", shown.empty)]
    pieces.append(("parked", "parked", shown.parked))
    wide = 100 / num
    for place in range(num):
        at = 0.0
        tip = ", ".join(f"{values[place]:.1f} {words}" for _, words, values in pieces)
        for style, _, values in pieces:
            number = float(values[place])
            if number >= _LEAST_PART:
                across = {"x": f"{(place + 0.06) * wide:.2f}%", "width": f"{0.88 * wide:.2f}%"}
                top, height = y.at(at + number), y.at(at) - y.at(at + number)
                told = tag("title", f"{_clock(shown.starts[place])}: {tip}")
                parts.append(tag("rect", told, class_=style, y=top, height=height, **across))
            at += number
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
    return picture("", chart(BASE + 40, parts, label=caption), caption, legend)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3600:02d}:{int(seconds) % 3600 // 60:02d}"


def _clock_axis(x: Scale, starts: FloatArray) -> list[Svg]:
    parts = [tag("line", class_="axis", x1="0", x2="100%", y1=BASE, y2=BASE)]
    apart = next(step for step in (1, 2, 4, 6, 8, 12, 24, 48, len(starts)) if len(starts) / step <= 5)
    for place, start in enumerate(starts.tolist()):
        if int(start // PERIOD) % apart == 0:
            across = x.across(place)
            parts.append(tag("line", class_="axis", x1=across, x2=across, y1=BASE, y2=BASE + 4))
            anchor = "start" if place == 0 else "middle"
            parts.append(tag("text", _clock(start), x=across, y=BASE + 17, text_anchor=anchor))
    return [*parts, tag("text", "time of day", class_="name", x="100%", y=BASE + 34, text_anchor="end")]


# How trips are made


def modes_picture(released: Mapping[str, float], true: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Draw which share of the trips is made by each mode."""
    sides = {"bar": released, **({"true-bar": true} if true is not None else {})}
    used = [mode for mode in released if any(side.get(mode, 0.0) > 0 for side in sides.values())]
    used.sort(key=lambda mode: -(true or released).get(mode, 0.0))
    x = Scale(0.0, 104 * max([side.get(mode, 0.0) for side in sides.values() for mode in used], default=1.0))
    row = ROW + (BAR - 4 if true is not None else 0.0)
    height = row * len(used) + 4
    parts = x_axis(x, height, "per cent of trips")
    for number, mode in enumerate(used):
        top = row * number
        shares = [(style, side.get(mode, 0.0)) for style, side in sides.items()]
        parts.append(tag("text", f"{mode}: {_shares_words(shares)}", class_="halo", x="0", y=top + 15))
        for line, (style, share) in enumerate(shares):
            high = BAR if true is None else BAR - 4
            place = {"y": top + 20 + line * (high + 1), "height": high}
            parts.append(tag("rect", class_=style, x="0", width=x.across(100 * share), **place))
    caption = f"Most trips go by {used[0]}." if used else "No trip goes from a stop to another."
    legend = [("load", "trips of the release"), ("true-bar", "true trips")] if true is not None else []
    return picture("Modes", chart(height + 40, parts, label=caption, kind="flat"), caption, legend)


def _shares_words(shares: Sequence[tuple[str, float]]) -> str:
    told = [percent(share) for _, share in shares]
    return told[0] if len(told) == 1 else f"{told[0]}, true {told[1]}"
