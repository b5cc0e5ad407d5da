# SPDX-License-Identifier: Apache-2.0
"""The pictures of ``docs/fleets.md``: publish counts, size fleets on them, run these on the true trips, draw.

Run by hand: ``python docs/pictures_fleets.py [NAME ...]``, names as in ``DRAWN`` (by default all; some minutes). The
city is that of ``dunnage generate city`` without a seed, trips are those of ``dunnage generate trips --seed 1``.
Releases are made in memory with seeded noise, so that their certificates are void.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from picture_parts import curve, frame, heading, legend, mark, notes, panel, picture
from pictures_trips import BUSY, METHODS, WHOLE_DAY, trips

from dunnage.ledger import Ledger
from dunnage.model.city import City
from dunnage.noise.source import Noise
from dunnage.planning.demand import Ground
from dunnage.planning.fleet import FleetTask, planned_task, size
from dunnage.planning.plan import FleetPlan
from dunnage.release import Release
from dunnage.samples import city
from dunnage.settle.fleets import FleetSettlement, apply_fleet
from dunnage.showing.figures import MAP_WIDTH, CityMap, Flows, Scale, Svg, tag
from dunnage.showing.fleets import Running
from dunnage.tables.dataset import Dataset
from dunnage.text import number_text

TARGET = 180
EPSILONS = tuple(map(Fraction, ("1", "0.5", "0.2", "0.1")))
DRAWS = 3
SIZED = {"O5": EPSILONS, "cells": EPSILONS, "margins": EPSILONS, "Laplace": EPSILONS[:1]}
"""Laplace noise of smaller epsilon makes so many trips that sizing takes long; it only gets worse."""
STYLES = {"O5": "standard", "cells": "stochastic", "margins": "sealed", "Laplace": "plain"}
WORDS = {"O5": "O5", "cells": "O5, shares cells", "margins": "O5, shares margins", "Laplace": "Laplace noise"}
STYLE = """
.target { stroke: #1b1f24; stroke-dasharray: 5 4; stroke-width: 1.5; }
.busy { fill: #0072b2; } .empty { fill: #e69f00; } .parked { fill: #d9dde2; }
.truth-line { stroke: #1b1f24; stroke-width: 2; fill: #1b1f24; }
.zone { stroke-width: 22; stroke-linejoin: round; stroke-linecap: round; opacity: .13; }
.zone-0 { fill: #0072b2; stroke: #0072b2; } .zone-1 { fill: #d55e00; stroke: #d55e00; }
.zone-2 { fill: #00704f; stroke: #00704f; } .zone-3 { fill: #a3478a; stroke: #a3478a; }
.stop { stroke-width: 0; } .hub { fill: #ffffff; stroke: #1b1f24; stroke-width: 2; }
.flow { stroke-opacity: .45; stroke-linecap: round; }
.flow.release { stroke: #0072b2; } .flow.truth { stroke: #1b1f24; }
.ruler { fill: none; stroke: #59626d; } .zone-name { font-weight: 600; font-size: 15px; }
@media (prefers-color-scheme: dark) {
  .target { stroke: #e8eaed; } .busy { fill: #56b4e9; } .empty { fill: #806000; } .parked { fill: #363c44; }
  .truth-line { stroke: #e8eaed; fill: #e8eaed; } .hub { fill: #14171b; stroke: #e8eaed; }
  .flow.truth { stroke: #e8eaed; } .ruler { stroke: #a3acb7; }
}
"""


# What is measured


def morning(window: tuple[str, str]) -> tuple[City, Dataset]:
    """Return the city and the trips in it."""
    return city(), trips(window)


@dataclass(frozen=True, eq=False, kw_only=True)
class Sized:
    """A release, the fleet sized on it, and what that fleet does on the true trips."""

    release: Release
    plan: FleetPlan
    done: FleetSettlement

    def summary(self) -> str:
        """Write the figures in a line."""
        needed = sum(self.done.needed or ())
        return (
            f"{self.plan.demand.trips:,.0f} trips, {self.plan.objective} shuttles ({needed} needed), wait "
            f"{self.done.wait_seconds:.0f} s, idle {self.done.idle_seconds:.0f} s, errors {self.done.relative_error}"
        )


def sized(method: str, epsilon: Fraction, seed: int, window: tuple[str, str] = BUSY) -> Sized:
    """Publish, size and apply."""
    place, data = morning(window)
    release, _ = METHODS[method](epsilon).release(data, ledger=Ledger(":memory:"), noise=Noise(seed=seed))
    plan = size(release, place, max_wait=TARGET)
    found = Sized(release=release, plan=plan, done=apply_fleet(plan, data, release, place))
    print(f"{method} epsilon {float(epsilon):g} draw {seed}: {found.summary()}", flush=True)
    return found


# Fleet and wait by epsilon


@lru_cache(maxsize=1)
def by_epsilon() -> dict[tuple[str, Fraction], list[Sized]]:
    """Size fleets on releases of all methods, and print what came of it."""
    found = {}
    for method, epsilons in SIZED.items():
        for epsilon in epsilons:
            draws = range(DRAWS if method != "Laplace" else 1)
            found[method, epsilon] = [sized(method, epsilon, seed) for seed in draws]
    return found


def fleets_by_epsilon() -> None:
    """Draw fleet and wait on the true trips against epsilon, always both."""
    found = by_epsilon()
    done = found["O5", Fraction(1)][0].done
    needed, wait = sum(done.needed or ()), float(done.ideal.wait_seconds.mean)
    panels: list[tuple[str, Callable[[Sized], float], float, float]] = [
        ("shuttles sized on the release", lambda one: float(one.plan.objective), needed, 100.0),
        ("mean wait on the true trips, seconds", lambda one: one.done.wait_seconds, wait, 50.0),
    ]
    top, width, height = 118.0, 292.0, 230.0
    title = "At epsilon 1 projected counts give about the right fleet; at 0.1 riders may wait far too long"
    parts = [heading(title)]
    places = (30.0, 100.0, 250.0, 420.0)
    parts += legend(54, [(STYLES[name], WORDS[name], x) for name, x in zip(SIZED, places, strict=True)])
    across = Scale(-0.4, len(EPSILONS) - 0.6)
    x_ticks = {float(at): f"{float(epsilon):g}" for at, epsilon in enumerate(EPSILONS)}
    for number, (words, read, true, step) in enumerate(panels):
        most = max(read(one) for draws in found.values() for one in draws)
        down = Scale(0.0, 1.05 * max(most, true, TARGET if number else 0), height, 0.0)
        y_ticks = {value: number_text(value) for value in np.arange(0, down.high, step).tolist()}
        inner = frame(across, down, x_ticks, y_ticks, "epsilon", grid=None)
        inner.append(tag("line", class_="target", x1="0", x2="100%", y1=down.at(true), y2=down.at(true)))
        for method in SIZED:
            inner += _marks(across, down, method, found, read)
        left = 66 + number * (width + 76)
        parts.append(panel(left, top, width, height, inner))
        parts.append(tag("text", words, class_="title", x=left, y=top - 14))
    lines = [
        f"Dashed: the fleet that the true trips need, {needed} shuttles, and its mean wait, {wait:.0f} s. Each mark is",
        f"a release: {DRAWS} draws, of Laplace noise one at epsilon 1. 4,878 generated trips from 8 to 10 am.",
    ]
    base = top + height + 60
    parts += notes(base, lines)
    picture("fleets-epsilon.svg", base + 36, parts, "Fleet and wait against epsilon", style=STYLE)


def _marks(
    across: Scale,
    down: Scale,
    method: str,
    found: dict[tuple[str, Fraction], list[Sized]],
    read: Callable[[Sized], float],
) -> list[Svg]:
    """Draw a mark for each draw, and a line through their means."""
    aside = 0.12 * (list(SIZED).index(method) - 1)
    parts, means = [], []
    for at, epsilon in enumerate(SIZED[method]):
        values = [read(one) for one in found[method, epsilon]]
        means.append((at + aside, math.fsum(values) / len(values)))
        parts += [mark(STYLES[method], across.across(at + aside), down.at(value)) for value in values]
    return [*curve(STYLES[method], across, down, means, marks=False), *parts]


# Wait against fleet


def waits() -> None:
    """Draw the mean wait against the fleet, for the true trips and for those that two releases tell of."""
    sides = {name: by_epsilon()[name, Fraction(1)][0] for name in ("O5", "Laplace")}
    place, _ = morning(BUSY)
    ground = Ground.of(place)
    true = sides["O5"].done
    lines: dict[str, tuple[list[tuple[float, float]], int]] = {}
    lines["truth"] = _curve(true.task, true.needed or (), days=1)
    for name, one in sides.items():
        lines[name] = _curve(planned_task(one.release, ground, one.plan), one.plan.shuttles, days=2)
    draw_waits(lines)


def _curve(task: FleetTask, fleet: Sequence[int], *, days: int) -> tuple[list[tuple[float, float]], int]:
    """Return fleets with all zones changed alike and their mean waits, and the size of the given one."""
    weights = task.legs.sum(axis=0)
    points = []
    for factor in (0.75, 0.82, 0.88, 0.94, 1.0, 1.06, 1.13, 1.22, 1.35):
        numbers = [max(1, round(factor * number)) if number else 0 for number in fleet]
        mean = float(np.average(task.mean_waits(numbers, days=days), weights=weights))
        points.append((float(sum(numbers)), mean))
        print(f"{sum(numbers)} shuttles: {mean:.0f} s")
    return points, sum(fleet)


def draw_waits(lines: dict[str, tuple[list[tuple[float, float]], int]]) -> None:
    """Draw a line for each side."""
    left, top, width, height = 62.0, 84.0, 660.0, 240.0
    down = Scale(0.0, 500.0, height, 0.0)
    across = Scale(0.0, 1.03 * max(x for points, _ in lines.values() for x, _ in points))
    x_ticks, y_ticks = ({value: number_text(value) for value in side.ticks(n)} for side, n in ((across, 8), (down, 5)))
    inner = frame(across, down, x_ticks, y_ticks, grid=None)
    inner.append(tag("line", class_="target", x1="0", x2="100%", y1=down.at(TARGET), y2=down.at(TARGET)))
    inner.append(tag("text", f"target {TARGET} s", class_="faint", x="0", dx="8", y=down.at(TARGET) - 6))
    words = {"truth": "true trips", "O5": "O5", "Laplace": "Laplace noise"}
    for name, (points, chosen) in lines.items():
        style = STYLES.get(name, "truth-line")
        inner += curve(style, across, down, [(x, y) for x, y in points if y <= down.low + 500], marks=False)
        at = dict(points)[float(chosen)]
        inner.append(tag("circle", class_=style, cx=across.across(chosen), cy=down.at(at), r=6))
        says = f"{words[name]}: {chosen}"
        up = -14 if name != "O5" else 26
        inner.append(tag("text", says, x=across.across(chosen), dx=10, y=down.at(at) + up))
    parts = [
        heading("The fewer shuttles, the longer the wait: where the curve meets the target"),
        tag("text", "mean wait, seconds", class_="name", x=24, y=top - 18),
        panel(left, top, width, height, inner),
        tag("text", "shuttles, all zones", class_="name", x=left + width, y=top + height + 36, text_anchor="end"),
    ]
    note = "4,878 generated trips from 8 to 10 am; one release each at epsilon 1. Marks: the fleets that size finds."
    parts += notes(top + height + 62, [note])
    picture("fleets-waits.svg", top + height + 80, parts, "Mean wait against the fleet", style=STYLE)


# A day


def day() -> None:
    """Size a fleet for a whole day of O5 counts, and draw what shuttles do by half-hours on the true trips."""
    found = sized("O5", Fraction(1), 0, WHOLE_DAY)
    draw_day(Running.of(found.done.task, found.done.planned))


def draw_day(run: Running) -> None:
    """Draw shuttles with riders, empty and parked."""
    left, top, width, height = 56.0, 92.0, 680.0, 220.0
    num = len(run.starts)
    down, across = Scale(0.0, 1.04 * run.shuttles, height, 0.0), Scale(0.0, num)
    inner = [tag("line", class_="axis", x1="0", x2="100%", y1=height, y2=height)]
    for value in down.ticks(5):
        y = down.at(value)
        inner.append(tag("line", class_="grid", x1="0", x2="100%", y1=y, y2=y))
        inner.append(tag("text", number_text(value), x="-6", y=y + 4, text_anchor="end"))
    for at in range(num):
        base = 0.0
        for style, values in (("busy", run.busy), ("empty", run.empty), ("parked", run.parked)):
            number = float(values[at])
            place: dict[str, Any] = {"x": across.across(at + 0.06), "width": f"{88 / num:.3f}%"}
            height_ = down.at(base) - down.at(base + number)
            inner.append(tag("rect", class_=style, y=down.at(base + number), height=height_, **place))
            base += number
        if int(run.starts[at]) % (4 * 3600) == 0:
            clock = f"{int(run.starts[at]) // 3600:02d}:00"
            inner.append(tag("text", clock, x=across.across(at), y=height + 17, text_anchor="middle"))
    title = f"All are out in the afternoon, most stand at night: {run.shuttles} shuttles, sized on O5 at epsilon 1"
    parts = [heading(title)]
    for at, (style, words) in enumerate((("busy", "with riders"), ("empty", "driving empty"), ("parked", "parked"))):
        parts.append(tag("rect", class_=style, x=24 + 130 * at, y=45, width=14, height=11))
        parts.append(tag("text", words, x=44 + 130 * at, y=55))
    parts.append(panel(left, top, width, height, inner))
    note = "Shuttles on average of each half-hour, run on the 37,714 true trips of a generated weekday."
    parts += notes(top + height + 48, [note])
    picture("fleets-day.svg", top + height + 66, parts, "Shuttles by half-hour of a day", style=STYLE)


# The map


def city_map() -> None:
    """Draw the city with the largest flows: true, and as released."""
    place, _ = morning(BUSY)
    one = sized("O5", Fraction(1), 0)
    told = planned_task(one.release, Ground.of(place), one.plan)
    drawing = CityMap(place)
    sides = {"truth": ("true trips", _flows(one.done.task)), "release": ("O5 at epsilon 1", _flows(told))}
    most = max(flows.most for _, flows in sides.values())
    width, top = 346.0, 78.0
    high = width * drawing.height / MAP_WIDTH
    title = "Four zones, their stops and hubs (diamonds), and the 80 largest flows"
    parts = [heading(title)]
    for at, (style, (words, flows)) in enumerate(sides.items()):
        left = 24 + at * (width + 20)
        drawn = drawing.drawn(flows, most=most, style=style, label=words)
        parts.append(panel(left, top, width, high, [drawn]))
        says = f"{words}: these are {100 * flows.shown_share:.0f} % of the trips"
        parts.append(tag("text", says, class_="title", x=left, y=top - 16))
        print(says)
    picture("fleets-map.svg", top + high + 16, parts, "Map of the city with its flows", style=STYLE)


def _flows(task: FleetTask) -> Flows:
    trips = task.days[0].trips
    return Flows.of(trips.origin, trips.destination, np.ones(len(trips)), len(task.ground.city.stops))


DRAWN: dict[str, Callable[[], None]] = {
    "fleets-waits": waits,
    "fleets-epsilon": fleets_by_epsilon,
    "fleets-day": day,
    "fleets-map": city_map,
}


if __name__ == "__main__":
    for name in sys.argv[1:] or DRAWN:
        DRAWN[name]()
