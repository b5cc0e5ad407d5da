# SPDX-License-Identifier: Apache-2.0
"""Pages of fleets: ``plan.html`` (public) for a planned fleet; ``settlement.html`` (private) for its performance.

All figures come from simulated days. The page of a plan needs only the release and the city; that of a settlement adds
the true trips. The release is blue, and the truth has the colour of the text. The exception is the picture of what
shuttles do: its bars are the fleet in operation, and a line shows what the plan expected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dunnage.arrays import FloatArray
from dunnage.model.city import City
from dunnage.model.routes import Routes
from dunnage.planning.demand import Ground
from dunnage.planning.fleet import (
    EXPANSIONS,
    DayRun,
    FleetTask,
    dates_of_plan,
    demand_facts,
    planned_task,
    released_task,
)
from dunnage.planning.plan import BusLoads, FleetModel, FleetPlan, Posts
from dunnage.release import Release
from dunnage.release.kinds.counts import CountsKind
from dunnage.settle.fleets import FleetSettlement
from dunnage.showing import figures as draw
from dunnage.showing.figures import render
from dunnage.text import NO_BREAK, number_text, percent, percent_change, several

Points = Sequence[tuple[int, float]]  # shuttles and mean wait in seconds, by rising number

MAX_CURVES = 12  # zones with a picture of waits, those with most rides first
PERIOD = 1800
WAIT_STEP, WAIT_STEPS = 30, 30  # seconds per bar of waits, and number of bars; one more bar is for longer waits
WORST = 4.0  # mean waits of more than this many times the target are not shown
_CHANGES = ((1, 0.05), (2, 0.1), (3, 0.2))
_MAX_RIDES = 1_500_000  # rides to simulate for the waits with other fleets
_NONE = "-"
_MAX_POSTS_NAMED = 5


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Running:
    """How a fleet performs on days of trips. Its ``repr`` shows no data."""

    shuttles: int  # of all zones
    waits: FloatArray  # share of rides by wait: bars of WAIT_STEP seconds, and one for longer waits
    mean_wait: float  # seconds
    starts: FloatArray  # second at which each half-hour begins
    busy: FloatArray  # busy, empty: mean number of shuttles with riders, and driving empty, in the half-hour
    empty: FloatArray

    @classmethod
    def of(cls, task: FleetTask, fleet: Sequence[int]) -> Running:
        """Simulate a fleet. Every zone with rides needs a shuttle."""
        runs = task.operate(fleet)
        days = [DayRun.of(day, run, len(fleet)) for day, run in zip(task.days, runs, strict=True)]
        waits, total, rides = np.zeros(WAIT_STEPS + 1), 0.0, 0.0
        for weight, day in zip(task.weights.tolist(), days, strict=True):
            steps = np.minimum(day.waits // WAIT_STEP, WAIT_STEPS)
            waits += weight * np.bincount(steps, minlength=WAIT_STEPS + 1)
            total, rides = total + weight * float(day.waits.sum()), rides + weight * len(day.waits)
        # Half-hours from the start of service until all riders have arrived.
        first, last = task.span[0] // PERIOD, -(-task.span[1] // PERIOD)
        num = max(last, -(-max((int(run.dropped.max(initial=0)) for run in runs), default=0) // PERIOD)) - first
        sums = {name: np.zeros(num) for name in ("busy", "empty")}
        for weight, run in zip(task.weights.tolist(), runs, strict=True):
            periods = run.by_period(PERIOD)
            places = (periods["seconds"] // PERIOD).astype(np.int64) - first
            inside = (places >= 0) & (places < num)
            for name, values in sums.items():
                values[places[inside]] += weight * periods[name][inside]
        num_days = float(task.weights.sum()) or 1.0
        return cls(
            shuttles=sum(fleet),
            waits=waits / max(rides, 1.0),
            mean_wait=total / max(rides, 1.0),
            starts=PERIOD * np.arange(first, first + num, dtype=np.float64),
            busy=sums["busy"] / num_days,
            empty=sums["empty"] / num_days,
        )

    @property
    def parked(self) -> FloatArray:
        return np.maximum(self.shuttles - self.busy - self.empty, 0.0)


def fleets_around(fleet: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the fleet, then fleets with up to a fifth, or three, more and fewer shuttles in every zone."""
    fleets = [tuple(fleet)]
    for sign in (-1, 1):
        for change, share in _CHANGES:
            fleets.append(tuple(num and max(1, num + sign * max(change, round(share * num))) for num in fleet))
    return list(dict.fromkeys(fleets))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Curves:
    """Mean waits of zones by number of shuttles. Its ``repr`` shows no data."""

    points: Mapping[int, Points]  # for each zone with rides, by number
    days: int  # simulated days per point

    @classmethod
    def of(cls, task: FleetTask, fleets: Sequence[Sequence[int]]) -> Curves:
        """Simulate fleets. In each of them, every zone with rides needs a shuttle."""
        rides = np.cumsum(task.legs.sum(axis=1))
        days = max(1, int(np.searchsorted(rides * len(fleets), _MAX_RIDES, side="right")))
        points: dict[int, dict[int, float]] = {zone: {} for zone in task.served}
        for fleet in fleets:
            waits = task.mean_waits(fleet, days=days)
            for zone in task.served:
                points[zone].setdefault(fleet[zone], float(waits[zone]))
        return cls(points={zone: sorted(own.items()) for zone, own in points.items()}, days=min(days, len(task.days)))

    @classmethod
    def around(cls, task: FleetTask, fleets: Sequence[Sequence[int]]) -> Curves:
        """Simulate fleets around the first, and the other fleets; a zone with rides has at least one shuttle."""
        served = np.isin(np.arange(len(task.ground.zones)), task.served)
        first, *others = [np.where(served, np.maximum(fleet, 1), 0).tolist() for fleet in fleets]
        return cls.of(task, [*fleets_around(first), *others])


# The pages


def plan_page(plan: FleetPlan, release: Release, city: City, *, routes: Routes | None = None) -> str:
    """Write the page of a planned fleet. It needs only what the planner has, so it is public."""
    task = planned_task(release, Ground.of(city, routes), plan)
    fleet = tuple(plan.shuttles_of(task.ground.zones))
    rows = []
    for zone, number in zip(plan.zones, plan.shuttles, strict=True):
        facts = plan.by_zone[zone]
        wait, spread = facts.wait_seconds, facts.spread
        waits = [f"{part:.0f} s" for part in (wait.mean, wait.median, wait.p95)] if wait else [_NONE] * 3
        ends = dict.fromkeys((spread.smallest, spread.largest)) if spread else ()
        between = " to ".join(f"{end:,}" for end in ends) or _NONE
        rows.append([zone, f"{number:,}", f"{facts.legs:,.0f}", *waits, between, f"{facts.bound:,}"])
    content: dict[str, object] = {
        "settlement": None,
        "target": task.max_wait,
        "rows": rows,
        "served": bool(task.served),
        "parking": [
            f"{zone}: shuttles without riders {own.words}: {_main_posts(own, number, city)}."
            for zone, number in zip(plan.zones, plan.shuttles, strict=True)
            if (own := plan.posts.get(zone)) is not None
        ],
    }
    if task.served:
        curves, running, zones = Curves.of(task, fleets_around(fleet)), Running.of(task, fleet), _main_zones(task)
        content |= {
            "curves": [
                curve_picture(task.ground.zones[zone], {"release": (curves.points[zone], fleet[zone])}, task.max_wait)
                for zone in zones
            ],
            "days": curves.days,
            "not_drawn": len(task.served) - len(zones),
            "waits": wait_picture(running, None, target=task.max_wait),
            "hours": hours_picture(running),
        }
    shares = modes_picture(plan.demand.modes if plan.demand else {})
    return _fleet_page(plan, release, {"release": task}, shares, content, plan.buses)


def _main_posts(posts: Posts, shuttles: int, city: City) -> str:
    """Name the stops where most shuttles wait, with their mean number over the hours."""
    counts = Counter(stop for hour in posts.stops for stop in hour[:shuttles])
    called = {stop: city.called(place) for place, stop in enumerate(city.stops)}
    main = counts.most_common(_MAX_POSTS_NAMED)
    named = [f"{called.get(stop, stop)} ({num / len(posts.stops):.1f})" for stop, num in main]
    more = len(counts) - len(named)
    return ", ".join(named) + (f" and {several(more, 'other stop')}" if more else "")


def settlement_page(settlement: FleetSettlement, release: Release) -> str:
    """Write the owner's page of a fleet on the true trips. It shows true trips: keep it private (mode 0600)."""
    plan, true, planned, needed = settlement.plan, settlement.task, settlement.planned, settlement.needed
    if not plan.external:  # the days are sampled again from the release, the same as for the plan
        released = planned_task(release, true.ground, plan)
    else:
        wait, service, dates = true.max_wait, true.service, dates_of_plan(release.universe, plan)
        model = FleetModel(name="", max_wait_seconds=wait, expansions=EXPANSIONS, seed=0, service=service, dates=dates)
        released = released_task(release, true.ground, model, parking=settlement.served.parking)
    rides = [np.average(task.legs, axis=0, weights=task.weights) for task in (released, true)]
    rows = [
        [
            zone,
            f"{planned[place]:,}",
            _NONE if needed is None else f"{needed[place]:,}",
            *(f"{side[place]:,.0f}" for side in rides),
            _seconds(settlement.zone_waits[place]),
            "met" if settlement.meets_target[place] else "missed",
        ]
        for place, zone in enumerate(settlement.zones)
    ]
    # The plan, its true performance and the fleet sized on the true trips.
    ideal, errors = settlement.sized_on_truth, settlement.relative_error
    stated, cost = plan.operation, settlement.cost
    here = f"{settlement.shuttles:,}"
    waits = (
        stated.wait_seconds.mean if stated else None,
        settlement.wait_seconds,
        ideal.wait_seconds if ideal else None,
    )
    idles = (stated.idle_seconds if stated else None, settlement.idle_seconds, ideal.idle_seconds if ideal else None)
    costs = [
        ["Shuttles", here, here, f"{ideal.shuttles:,}" if ideal else _NONE, _signed(errors.shuttles)],
        ["Mean wait", *map(_seconds, waits), _signed(errors.wait_seconds)],
        ["Idle time per shuttle and day", *map(_seconds, idles), _signed(errors.idle_seconds)],
    ]
    if cost is not None:
        ours, theirs = cost.planned_per_day, cost.needed_per_day
        relative = None if not theirs or cost.difference_per_day is None else (ours - theirs) / theirs
        enough = _NONE if theirs is None else f"{theirs:,.0f}"
        costs.append(["Cost per day", f"{ours:,.0f}", f"{ours:,.0f}", enough, _signed(relative)])
    content: dict[str, object] = {
        "settlement": settlement,
        "target": true.max_wait,
        "costs": costs,
        "rows": rows,
        "served": bool(true.served or released.served),
        "true_served": bool(true.served),
        "waits": None,
        "signed": _signed,
    }
    if true.served or released.served:
        sides = {
            "release": (Curves.around(released, [planned]), planned),
            "truth": (Curves.around(true, [planned if needed is None else needed, planned]), needed),
        }
        zones, pictures = _main_zones(true if true.served else released), []
        for zone in zones:
            of_zone = {
                side: (own.points[zone], None if chosen is None else chosen[zone])
                for side, (own, chosen) in sides.items()
                if zone in own.points
            }
            pictures.append(curve_picture(settlement.zones[zone], of_zone, true.max_wait))
        not_drawn = len(true.served) - len(zones) if true.served else 0
        content |= {"curves": pictures, "days": sides["release"][0].days, "not_drawn": not_drawn}
    # Waits and half-hours of the planned fleet are known only if every zone with rides has a shuttle.
    if true.served and not settlement.unserved:
        all_served = bool(released.served) and all(planned[zone] for zone in released.served)
        expected = Running.of(released, planned) if all_served else None
        actual = Running.of(settlement.served, planned)
        content["waits"] = wait_picture(expected, actual, target=true.max_wait)
        content["hours"] = hours_picture(actual, expected)
    shares = modes_picture(demand_facts(released).modes, settlement.demand.modes)
    return _fleet_page(plan, release, {"truth": true, "release": released}, shares, content, settlement.buses)


def _fleet_page(
    plan: FleetPlan,
    release: Release,
    tasks: Mapping[str, FleetTask],
    shares: draw.Picture,
    content: Mapping[str, object],
    loads: BusLoads | None,
) -> str:
    city = next(iter(tasks.values())).ground.city
    has_places = city.lat is not None and city.lon is not None
    parts = {
        "plan": plan,
        "buses": loads,
        "bus_rows": [] if loads is None else bus_rows(loads),
        "certificate": release.certificate,
        "has_places": has_places,
        "trips": [*(_flow_maps(city, tasks) if has_places else []), shares],
        "losses": CountsKind().loss_words(release.certificate),
    }
    return render("fleet.html", {**parts, **content})


def bus_rows(loads: BusLoads) -> list[list[str]]:
    """Describe the fullest bus lines."""
    return [
        [
            f"{line.origin} to {line.destination}",
            f"from {loads.windows[line.fullest]}",
            f"{line.riders[line.fullest]:,.1f}",
            f"{line.offered[line.fullest]:,.1f}",
            f"{line.seats:,} every {line.headway_seconds} s",
            line.remedy if line.too_full else "enough",
        ]
        for line in loads.fullest_first[:MAX_CURVES]
    ]


def _main_zones(task: FleetTask) -> list[int]:
    rides = task.weights @ task.legs
    return sorted(sorted(task.served, key=lambda zone: -rides[zone])[:MAX_CURVES])


def _signed(error: float | None) -> str:
    return _NONE if error is None else percent_change(error).replace(" ", NO_BREAK)


def _seconds(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.0f} s"


# The pictures


def curve_picture(
    zone: str,
    curves: Mapping[str, tuple[Points, int | None]],  # by side: points, and the chosen number
    target: float,  # longest acceptable mean wait, in seconds
) -> draw.Picture:
    shown = {
        side: [(number, wait) for number, wait in points if wait <= WORST * target] or points
        for side, (points, _) in curves.items()
    }
    numbers = [number for points in shown.values() for number, _ in points]
    highest = max([target, *(wait for points in shown.values() for _, wait in points)])
    x, y = draw.Scale(min(numbers) - 0.7, max(numbers) + 0.7), draw.Scale(0.0, 1.12 * highest, draw.BASE, draw.TOP)
    series, words = [], []
    for side, points in shown.items():
        chosen, dots = curves[side][1], []
        for number, wait in points:
            style, radius = (f"point chosen {side}", 6.5) if number == chosen else (f"point {side}", 3.5)
            dots.append(draw.Dot(number, wait, f"{number} shuttles: {wait:.0f} s", style, radius))
            if number == chosen:
                words.append(f"{chosen} {'planned' if side == 'release' else 'needed'} ({wait:.0f} s)")
        series.append((f"curve {side}", dots))
    labels = [(x.across(value), number_text(value)) for value in x.ticks(6) if value == round(value)]
    caption = f"{', '.join(words)}." if words else "No fleet of a similar size meets the target."
    svg = draw.lines(
        x,
        y,
        series,
        y_title="mean wait, seconds",
        below=draw.lower_axis(draw.BASE, "shuttles", labels, grid=draw.TOP - 10),
        limit=(target, f"target {target:g} s"),
        room=40.0,
        label=f"Mean wait by number of shuttles in {zone}: {caption}",
    )
    return draw.Picture(title=zone, svg=svg, caption=caption)


def wait_picture(released: Running | None, true: Running | None, *, target: float) -> draw.Picture:
    """Draw the share of rides by wait: bars for the release, a line for the true trips."""
    sides = [side for side in (released, true) if side is not None]
    x = draw.Scale(0.0, (WAIT_STEPS + 1) * WAIT_STEP / 60)
    y = draw.Scale(0.0, 105 * max(float(side.waits.max()) for side in sides), draw.BASE, draw.TOP)
    stacks, legend, words = [], [], []
    for place in range(WAIT_STEPS + 1):
        begin, share = place * WAIT_STEP, 0.0 if released is None else float(released.waits[place])
        until = f" to {begin + WAIT_STEP} s" if place < WAIT_STEPS else " s or longer"
        ends = begin / 60, (begin + WAIT_STEP) / 60
        stacks.append(draw.StackedColumn(*ends, [("bar", 100 * share)], f"{begin}{until}: {percent(share)}"))
    for side, start, key in (
        (released, "In the plan, riders wait" if true else "On average, riders wait", ("load", "trips of the release")),
        (true, "The true riders wait", ("step", "true trips")),
    ):
        if side is not None:
            longer = float(side.waits[2 * 5 * 60 // WAIT_STEP :].sum())
            words.append(f"{start} {side.mean_wait:.0f} s, and {percent(longer)} of rides wait ten minutes or longer.")
            legend.append(key)
    caption = f"{' '.join(words)} The last bar includes all longer waits."
    svg = draw.columns(
        x,
        y,
        stacks,
        y_title="per cent of rides",
        below=draw.x_axis(x, draw.BASE, "minutes from request to boarding"),
        gap=0.08,
        steps=None if true is None else [100 * share for share in true.waits.tolist()],
        more=draw.upright(x, target / 60, draw.BASE, f"target for the mean, {target:g} s"),
        label=caption,
    )
    return draw.Picture(title="", svg=svg, caption=caption, legend=legend)


def hours_picture(shown: Running, planned: Running | None = None) -> draw.Picture:
    """Draw the shuttles that are busy, empty and parked in each half-hour, and the busy shuttles that were planned."""
    num = len(shown.starts)
    x, y = draw.Scale(0.0, num), draw.Scale(0.0, 1.04 * max(shown.shuttles, 1), draw.BASE, draw.TOP)
    apart = next(step for step in (1, 2, 4, 6, 8, 12, 24, 48, num) if num / step <= 5)
    clock = [f"{int(start) // 3600:02d}:{int(start) % 3600 // 60:02d}" for start in shown.starts.tolist()]
    labels = [
        (f"{draw.short(100 * place / num)}%", clock[place])
        for place, start in enumerate(shown.starts.tolist())
        if int(start // PERIOD) % apart == 0
    ]
    pieces = [
        ("bar", "with riders", shown.busy),
        ("more", "driving empty", shown.empty),
        ("parked", "parked", shown.parked),
    ]
    stacks = []
    for place in range(num):
        tip = ", ".join(f"{values[place]:.1f} {words}" for _, words, values in pieces)
        sizes = [(style, float(values[place])) for style, _, values in pieces]
        stacks.append(draw.StackedColumn(place, place + 1, sizes, f"{clock[place]}: {tip}"))
    legend, steps = [("load", "with riders"), ("more", "driving empty"), ("parked", "parked")], None
    if planned is not None:
        busy = dict(zip(planned.starts.tolist(), planned.busy.tolist(), strict=True))
        steps = [min(busy.get(start, 0.0), y.high) for start in shown.starts.tolist()]
        legend.append(("step", "with riders, as the plan expected"))
    most = int(np.argmax(shown.busy))
    caption = (
        f"The busiest half-hour starts at {clock[most]}, with on average {shown.busy[most]:.0f} of {shown.shuttles:,} "
        f"shuttles carrying riders, {shown.empty[most]:.0f} driving empty and {shown.parked[most]:.0f} parked."
    )
    below = draw.lower_axis(draw.BASE, "time of day", labels, grid=draw.BASE, first="start")
    svg = draw.columns(x, y, stacks, y_title="shuttles", whole=True, below=below, steps=steps, label=caption)
    return draw.Picture(title="", svg=svg, caption=caption, legend=legend)


def modes_picture(released: Mapping[str, float], true: Mapping[str, float] | None = None) -> draw.Picture:
    sides = {"bar": released, **({"true-bar": true} if true is not None else {})}
    used = [mode for mode in released if any(side.get(mode, 0.0) > 0 for side in sides.values())]
    used.sort(key=lambda mode: -(true or released).get(mode, 0.0))
    x = draw.Scale(0.0, 104 * max([side.get(mode, 0.0) for side in sides.values() for mode in used], default=1.0))
    rows = []
    for mode in used:
        words = f"{mode}: {percent(released.get(mode, 0.0))}"
        words += "" if true is None else f", true {percent(true.get(mode, 0.0))}"
        rows.append((words, [[(style, 100 * side.get(mode, 0.0))] for style, side in sides.items()]))
    caption = f"Most trips go by {used[0]}." if used else "No trip goes from one stop to another."
    legend = [("load", "trips of the release"), ("true-bar", "true trips")] if true is not None else []
    row, bar = (40.0, 14.0) if true is None else (50.0, 10.0)
    svg = draw.bars(x, rows, row=row, bar=bar, axis="per cent of trips", label=caption)
    return draw.Picture(title="Modes", svg=svg, caption=caption, legend=legend)


def _flow_maps(city: City, tasks: Mapping[str, FleetTask]) -> list[draw.Picture]:
    flows = {}
    for side, task in tasks.items():
        origin, destination = (
            np.concatenate([getattr(day.trips, end) for day in task.days]) for end in ("origin", "destination")
        )
        weights = np.repeat(task.weights / (task.weights.sum() or 1.0), [len(day.trips) for day in task.days])
        flows[side] = draw.Flows.of(origin, destination, weights, len(city.stops))
    drawing, most, maps = draw.CityMap(city), max(own.most for own in flows.values()) or 1.0, []
    for side, own in flows.items():
        title = {"release": "Flows of the release", "truth": "True flows"}[side]
        caption = (
            f"The map shows the {several(own.shown, 'pair')} of stops with most trips, {percent(own.shown_share)} of "
            f"all trips between stops. The thickest line stands for {own.most:,.0f} trips a day, both ways together."
            if own.shown
            else "No trip goes from one stop to another."
        )
        svg = drawing.drawn(own, most=most, style=side, label=f"{title}. {caption}")
        legend = [(side, "trips"), ("stop", "stop"), ("hub", "hub")]
        maps.append(draw.Picture(title=title, svg=svg, caption=caption, legend=legend))
    return maps
