# SPDX-License-Identifier: Apache-2.0
"""The pictures of ``docs/fleets.md``: publish counts, size fleets on them, run these on the true trips, draw.

The city is that of ``dunnage generate city`` without a seed, trips are those of
``dunnage generate trips --level stop --seed 1``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from picture_parts import curve, frame, legend, mark, mean, panel, picture, published, side_by_side
from pictures_trips import BUSY, METHODS, WHOLE_DAY, trips

from dunnage.planning.demand import Ground
from dunnage.planning.fleet import FleetTask, planned_task, size
from dunnage.planning.plan import FleetPlan
from dunnage.release import Release
from dunnage.samples import city
from dunnage.settle.fleets import FleetSettlement, apply_fleet
from dunnage.showing.figures import MAP_WIDTH, CityMap, Flows, Scale, tag
from dunnage.showing.fleets import Running
from dunnage.text import number_text

TARGET = 180
EPSILONS = tuple(map(Fraction, ("1", "0.5", "0.2", "0.1")))
DRAWS = 3
SIZED = {"O5": EPSILONS, "cells": EPSILONS, "margins": EPSILONS, "Laplace": EPSILONS[:1]}
"""Laplace noise of smaller epsilon makes so many trips that sizing takes long; it only gets worse."""
STYLES = {"O5": "standard", "cells": "stochastic", "margins": "sealed", "Laplace": "plain"}
WORDS = {"O5": "O5", "cells": "O5, shares cells", "margins": "O5, shares margins", "Laplace": "Laplace noise"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Sized:
    """A release, the fleet sized on it, and what that fleet does on the true trips."""

    release: Release
    plan: FleetPlan
    done: FleetSettlement

    def summary(self) -> str:
        needed = sum(self.done.needed or ())
        return (
            f"{self.plan.demand.trips:,.0f} trips, {self.plan.objective} shuttles ({needed} needed), wait "
            f"{self.done.wait_seconds:.0f} s, idle {self.done.idle_seconds:.0f} s, errors {self.done.relative_error}"
        )


def sized(method: str, epsilon: Fraction, seed: int, window: tuple[str, str] = BUSY) -> Sized:
    place, data = city(), trips(window)
    release = published(METHODS[method](epsilon), data, seed).release
    plan = size(release, place, max_wait=TARGET)
    found = Sized(release=release, plan=plan, done=apply_fleet(plan, data, release, place))
    print(f"{method} epsilon {float(epsilon):g} draw {seed}: {found.summary()}", flush=True)
    return found


@lru_cache(maxsize=1)
def by_epsilon() -> dict[tuple[str, Fraction], list[Sized]]:
    found = {}
    for method, epsilons in SIZED.items():
        for epsilon in epsilons:
            draws = range(DRAWS if method != "Laplace" else 1)
            found[method, epsilon] = [sized(method, epsilon, seed) for seed in draws]
    return found


def fleets_by_epsilon() -> None:
    found = by_epsilon()
    done = found["O5", Fraction(1)][0].done
    needed, wait = sum(done.needed or ()), float(done.ideal.wait_seconds.mean)
    panels: list[tuple[str, Callable[[Sized], float], float, float]] = [
        ("shuttles sized on the release", lambda one: float(one.plan.objective), needed, 100.0),
        ("mean wait on the true trips, seconds", lambda one: one.done.wait_seconds, wait, 50.0),
    ]
    height, drawn = 230.0, []
    places = (30.0, 100.0, 250.0, 420.0)
    parts = legend(54, [(STYLES[name], WORDS[name], x) for name, x in zip(SIZED, places, strict=True)])
    across = Scale(-0.4, len(EPSILONS) - 0.6)
    x_ticks = {float(at): f"{float(epsilon):g}" for at, epsilon in enumerate(EPSILONS)}
    for number, (words, read, true, step) in enumerate(panels):
        most = max(read(one) for draws in found.values() for one in draws)
        down = Scale(0.0, 1.05 * max(most, true, TARGET if number else 0), height, 0.0)
        y_ticks = {value: number_text(value) for value in np.arange(0, down.high, step).tolist()}
        inner = frame(across, down, x_ticks, y_ticks, "epsilon", grid=None)
        inner.append(tag("line", class_="target", x1="0", x2="100%", y1=down.at(true), y2=down.at(true)))
        for place, (method, epsilons) in enumerate(SIZED.items()):
            # A mark for each draw, and a line through their means.
            xs = [at + 0.12 * (place - 1) for at in range(len(epsilons))]
            values = [[read(one) for one in found[method, epsilon]] for epsilon in epsilons]
            inner += curve(STYLES[method], across, down, zip(xs, map(mean, values), strict=True), marks=False)
            inner += [
                mark(STYLES[method], across.across(x), down.at(y)) for x, ys in zip(xs, values, strict=True) for y in ys
            ]
        drawn.append((words, inner))
    parts += side_by_side(drawn, left=66, top=118.0, width=292.0, height=height, gap=76)
    picture("fleets-epsilon", 178 + height, parts, style="fleets", needed=needed, wait=wait, DRAWS=DRAWS)


def waits() -> None:
    sides = {name: by_epsilon()[name, Fraction(1)][0] for name in ("O5", "Laplace")}
    ground = Ground.of(city())
    true = sides["O5"].done
    lines: dict[str, tuple[list[tuple[float, float]], int]] = {}
    lines["truth"] = _curve(true.task, true.needed or (), days=1)
    for name, one in sides.items():
        lines[name] = _curve(planned_task(one.release, ground, one.plan), one.plan.shuttles, days=2)
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
        up = -14 if name != "O5" else 26
        inner.append(tag("text", f"{words[name]}: {chosen}", x=across.across(chosen), dx=10, y=down.at(at) + up))
    parts = [
        tag("text", "mean wait, seconds", class_="name", x=24, y=top - 18),
        panel(left, top, width, height, inner),
        tag("text", "shuttles, all zones", class_="name", x=left + width, y=top + height + 36, text_anchor="end"),
    ]
    picture("fleets-waits", top + height + 62, parts, style="fleets")


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


def day() -> None:
    found = sized("O5", Fraction(1), 0, WHOLE_DAY)
    run = Running.of(found.done.served, found.done.planned)
    left, top, width, height = 56.0, 92.0, 680.0, 220.0
    num = len(run.starts)
    down, across = Scale(0.0, 1.04 * run.shuttles, height, 0.0), Scale(0.0, num)
    hours = {at: f"{start // 3600:02d}:00" for at, start in enumerate(map(int, run.starts)) if start % (4 * 3600) == 0}
    inner = frame(across, down, hours, {value: number_text(value) for value in down.ticks(5)}, grid=None)
    for at in range(num):
        base = 0.0
        for style, values in (("busy", run.busy), ("empty", run.empty), ("parked", run.parked)):
            top_, bottom = down.at(base + float(values[at])), down.at(base)
            place = {"x": across.across(at + 0.06), "width": f"{88 / num:.3f}%", "y": top_, "height": bottom - top_}
            inner.append(tag("rect", class_=style, **place))
            base += float(values[at])
    parts = []
    for at, (style, words) in enumerate((("busy", "with riders"), ("empty", "driving empty"), ("parked", "parked"))):
        parts.append(tag("rect", class_=style, x=24 + 130 * at, y=45, width=14, height=11))
        parts.append(tag("text", words, x=44 + 130 * at, y=55))
    parts.append(panel(left, top, width, height, inner))
    picture("fleets-day", top + height + 48, parts, style="fleets", shuttles=run.shuttles)


def city_map() -> None:
    one, drawing = sized("O5", Fraction(1), 0), CityMap(city())
    planned = planned_task(one.release, Ground.of(city()), one.plan)
    sides = {"truth": ("true trips", _flows(one.done.task)), "release": ("O5 at epsilon 1", _flows(planned))}
    most = max(flows.most for _, flows in sides.values())
    width, top = 346.0, 78.0
    high = width * drawing.height / MAP_WIDTH
    panels = []
    for style, (words, flows) in sides.items():
        share = f"{words}: these are {100 * flows.shown_share:.0f} % of the trips"
        panels.append((share, [drawing.drawn(flows, most=most, style=style, label=words)]))
        print(share)
    parts = side_by_side(panels, left=24, top=top, width=width, height=high, gap=20, title_at=(0, -16))
    picture("fleets-map", top + high + 16, parts, style="fleets")


def _flows(task: FleetTask) -> Flows:
    trips = task.days[0].trips
    return Flows.of(trips.origin, trips.destination, np.ones(len(trips)), len(task.ground.city.stops))


DRAWN = {
    "fleets-waits": waits,
    "fleets-epsilon": fleets_by_epsilon,
    "fleets-day": day,
    "fleets-map": city_map,
}
