# SPDX-License-Identifier: Apache-2.0
"""size: the smallest fleet of shuttles, zone by zone, whose riders wait no longer on average than they may.

The search is that of :mod:`dunnage.planning.fleet_task`; this says what it is for and what came of it.

The mean wait need not fall with every shuttle more. What is promised is that of a simulation: the plan meets the target
on the trips it was made for, and no zone can do with one shuttle less. Smaller fleets that happen to do better than
larger ones may exist; two fewer are tried for each zone by itself.

References
----------
The case study is that of Fioretto, Lee and Van Hentenryck 2018, "Constraint-based differential privacy for mobility
services", sections 3 and 9; they do not say how they size fleets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.city import City
from dunnage.errors import ParameterError
from dunnage.planning.demand import Day, Ground, TripCounts, released_counts, service_seconds
from dunnage.planning.dispatch import Service
from dunnage.planning.fleet_plan import FleetPlan
from dunnage.planning.fleet_task import (
    MAX_WAIT_SECONDS,
    DayRun,
    Fleet,
    FleetTask,
    Sized,
    check_max_wait,
    grain,
)
from dunnage.release import Release
from dunnage.routes import TRIP_MODES, Routes
from dunnage.text import several

Progress = Callable[[str], None]

EXPANSIONS = 5
MOST_EXPANSIONS = 1_000
# Trips of a date from which on fewer expansions are drawn: they differ less, and take longer.
_MANY_TRIPS = 60_000


def size(
    release: Release,
    city: City,
    *,
    max_wait: float = MAX_WAIT_SECONDS,
    expansions: int = EXPANSIONS,
    service: Service | None = None,
    seed: int = 0,
    day: str | None = None,
    routes: Routes | None = None,
    progress: Progress | None = None,
) -> FleetPlan:
    """Size the smallest fleet of shuttles for released counts of trips. Needs only the release and a city.

    Where the release tells days apart, the fleet must meet the target averaged over the riders of all of them, each as
    often as it has dates; a busy day alone may miss it. Ask for that ``day`` to size for it.

    Parameters
    ----------
    release
        A release of counts.
    city
        Where the trips are made: stops with zones, and travel times or coordinates.
    max_wait
        Longest mean wait of a zone's riders, in seconds.
    expansions
        How many days with random seconds are simulated at least; each day that is told apart once at least.
    service
        What shuttles promise and need.
    seed
        Seed of the random seconds.
    day
        Label of the only day to size for.
    routes
        How pairs of stops are travelled; by default as quickly as the city allows.
    progress
        Called with a line as each stage begins.

    Raises
    ------
    UserError
        If the release is not one of counts, the city lacks a stop or what sizing needs, or there are too many trips.
    NoPlanError
        If no fleet meets the target.
    """
    start = time.monotonic()
    tell = progress or (lambda line: None)
    check_max_wait(max_wait)
    tell("finding routes")
    ground = Ground.of(city, routes)
    task = released_task(
        release, ground, max_wait=max_wait, expansions=expansions, service=service, seed=seed, day=day, progress=tell
    )
    sized = task.size()
    bounds = [task.bound(zone) for zone in range(len(ground.zones))]
    return FleetPlan(
        release=release.certificate.digest,
        zones=ground.zones,
        shuttles=sized.fleet,
        model={
            "name": "smallest-fleet",
            "max_wait_seconds": max_wait,
            "expansions": expansions,
            "seed": seed,
            "day": day,
            "service": asdict(task.service),
        },
        bound=sum(bounds),
        seconds=time.monotonic() - start,
        probes=task.probes,
        by_zone=zone_facts(task, sized, bounds),
        operation=run_facts(task, sized.fleet, sized.runs),
        demand=demand_facts(task),
        city={"digest": ground.digest(), "stops": len(city.stops), "zones": len(ground.zones)},
        assumed=(*_modes_assumed(city, routes), *_assumptions(task, release, day)),
        notes=_notes(task, sized),
    )


def released_task(
    release: Release,
    ground: Ground,
    *,
    max_wait: float = MAX_WAIT_SECONDS,
    expansions: int = EXPANSIONS,
    service: Service | None = None,
    seed: int = 0,
    day: str | None = None,
    progress: Progress | None = None,
) -> FleetTask:
    """Expand a release of counts into days to size a fleet for; parameters as for :func:`size`."""
    if seed < 0:
        raise ParameterError(f"a seed is a whole number from 0. Got {seed}. Mend it.")
    counts = released_counts(release, ground.city)
    return FleetTask(
        ground,
        expanded_days(counts, ground, expansions=expansions, seed=seed, day=day),
        service=service or Service(),
        max_wait=max_wait,
        span=service_seconds(release.universe),
        progress=progress,
    )


def planned_task(release: Release, ground: Ground, plan: FleetPlan, *, progress: Progress | None = None) -> FleetTask:
    """Draw the days again that a plan was sized for: to run its fleet, or to see waits around it."""
    model = plan.model
    try:
        service = Service(**model["service"])
        wait, expansions, seed = float(model["max_wait_seconds"]), int(model["expansions"]), int(model["seed"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ParameterError("the plan does not say how it was sized. Size the fleet anew.") from None
    return released_task(
        release,
        ground,
        max_wait=wait,
        expansions=expansions,
        service=service,
        seed=seed,
        day=model.get("day"),
        progress=progress,
    )


def expanded_days(
    counts: TripCounts, ground: Ground, *, expansions: int = EXPANSIONS, seed: int = 0, day: str | None = None
) -> list[Day]:
    """Draw days of trips from counts: so many in all at least, and each day that is told apart once at least.

    Of a day with more than 60,000 trips a date fewer are drawn: their fleets hardly differ.
    """
    if not 1 <= expansions <= MOST_EXPANSIONS:
        raise ParameterError(f"expansions must be 1 to {MOST_EXPANSIONS}. Got {expansions}. Ask for 5, say.")
    if day is not None and day not in counts.days:
        raise ParameterError(f"the release tells no day {day!r} apart. It has: {', '.join(counts.days)}.")
    chosen = [number for number, label in enumerate(counts.days) if day in (None, label)]
    each = math.ceil(expansions / len(chosen))
    drawn = {number: _num_draws(each, counts.trips_a_date(number)) for number in chosen}
    return [
        Day.of(counts.expanded(number, (seed, number, draw)), ground, counts.num_dates[number] / num_draws)
        for number, num_draws in drawn.items()
        for draw in range(num_draws)
    ]


def _num_draws(most: int, num_trips: float) -> int:
    """Return how many expansions of a day are drawn: as many as asked for, fewer of many trips, one at least."""
    return max(1, min(most, math.floor(most * _MANY_TRIPS / max(num_trips, 1.0))))


def demand_facts(task: FleetTask) -> dict[str, Any]:
    """Say what an average day asks for; trips that end where they begin are told apart from all others."""
    routes, total = task.ground.routes, float(task.weights.sum()) or 1.0
    modes = np.zeros(len(routes.mode_names))
    trips = same_stop = shuttled = 0.0
    for day in task.days:
        same = day.trips.origin == day.trips.destination
        pairs = routes.pairs(day.trips.origin[~same], day.trips.destination[~same])
        modes += day.weight * np.bincount(routes.mode[pairs], minlength=len(modes))
        trips += day.weight * len(day.trips)
        same_stop += day.weight * float(same.sum())
        shuttled += day.weight * len(np.unique(day.requests.rider))
    share = modes / max(modes.sum(), 1.0)
    return {
        "trips": round(trips / total, 6),
        "same_stop": round(same_stop / total, 6),
        "without_shuttle": round((trips - shuttled) / total, 6),
        "legs": round(float((task.weights * task.legs.sum(axis=1)).sum()) / total, 6),
        "modes": {name: float(part) for name, part in zip(routes.mode_names, share, strict=True)},
    }


def zone_facts(task: FleetTask, sized: Sized, bounds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Say of each zone what it was sized for, how sure its fleet is, and how it runs."""
    found = {}
    rides = np.average(task.legs, axis=0, weights=task.weights) if len(task.days) else np.zeros(len(bounds))
    for zone, name in enumerate(task.ground.zones):
        alone = sized.alone[:, zone]
        ridden = alone[alone > 0]
        run = run_facts(task, sized.fleet, sized.runs, zone=zone)
        found[name] = {
            "legs": round(float(rides[zone]), 6),
            "bound": bounds[zone],
            "solo_cover": task.solo_cover(zone),
            "spread": _spread(ridden) if len(ridden) else {},
            **(run or {"wait_seconds": {}}),
        }
    return found


def _spread(fleets: IntArray) -> dict[str, float]:
    return {"smallest": int(fleets.min()), "mean": round(float(fleets.mean()), 6), "largest": int(fleets.max())}


def run_facts(
    task: FleetTask, fleet: Sequence[int], runs: Sequence[DayRun], *, zone: int | None = None
) -> dict[str, Any]:
    """Say how a fleet runs: waits of its riders, and what its shuttles do; of one zone or all. Empty without rides."""
    waits, weights = [], []
    shuttle_zone = np.repeat(np.arange(len(fleet)), fleet)
    used = np.ones(len(shuttle_zone), dtype=bool) if zone is None else shuttle_zone == zone
    busy = empty = aboard = horizon = 0.0
    for day, run in zip(task.days, runs, strict=True):
        own = slice(None) if zone is None else day.requests.zone == zone
        waits.append(run.waits[own])
        weights.append(np.full(len(waits[-1]), day.weight))
        busy += day.weight * float(run.busy[used].sum())
        empty += day.weight * float(run.empty[used].sum())
        aboard += day.weight * float(run.aboard.sum() if zone is None else run.aboard[zone])
        # Shuttles are out for the whole service day, and until the last rider is home.
        end = max(task.span[1], run.end)
        horizon += day.weight * int(used.sum()) * (end - task.span[0])
    if not sum(map(len, waits)):
        return {}
    idle = horizon - busy
    return {
        "wait_seconds": wait_facts(np.concatenate(waits), np.concatenate(weights)),
        "busy_share": busy / horizon,
        "empty_share": empty / horizon,
        "parked_share": (idle - empty) / horizon,
        "idle_share": idle / horizon,
        "idle_seconds": idle / (int(used.sum()) * float(task.weights.sum())),
        "occupancy": aboard / busy if busy else 0.0,
    }


def wait_facts(waits: IntArray, weights: FloatArray) -> dict[str, float]:
    """Return mean, median and 95th percentile of waits, each as often as its weight says."""
    order = np.argsort(waits, kind="stable")
    reached = np.cumsum(weights[order])
    median, p95 = (waits[order][np.searchsorted(reached, share * reached[-1])] for share in (0.5, 0.95))
    return {"mean": float(np.average(waits, weights=weights)), "median": float(median), "p95": float(p95)}


def _assumptions(task: FleetTask, release: Release, day: str | None) -> tuple[str, ...]:
    service, days = task.service, task.days
    facts: Mapping[str, Any] = asdict(service)
    said = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in facts.items() if name != "capacity")
    return (
        *task.ground.routes.assumed,
        f"Shuttles have {service.capacity} seats; {said}.",
        f"Each trip begins at a random second of its window; {several(len(days), 'such day')} "
        f"{'was' if len(days) == 1 else 'were'} simulated.",
        *_days_assumed(release, day),
        "Every shuttle is out for the whole service day; when nobody needs it, it parks at a hub of its zone, or where "
        "there is none at the stop nearest to all others.",
    )


def _modes_assumed(city: City, routes: Routes | None) -> list[str]:
    """Say that modes of the city are not used, where some are none that shuttles and buses know."""
    other = [name for name in city.mode_names if name not in TRIP_MODES]
    if city.modes is None or routes is not None or not other:
        return []
    return [
        f"Modes of pairs that the city gives are ignored, as {other[0]!r} is none of the {len(TRIP_MODES)} known "
        "ones: each pair is travelled as quickly as can be."
    ]


def _days_assumed(release: Release, day: str | None) -> list[str]:
    universe = release.universe
    if day is not None:
        return [f"Only {day} was planned for."]
    if universe.days:
        return ["The mean wait is that of the riders of all days together; a busy day alone may have a longer one."]
    if not universe.num_dates:
        return ["The release does not say how many dates it counts: all its trips are taken for those of one day."]
    if universe.num_dates[0] > 1:
        return [f"The release counts {universe.num_dates[0]} dates: their trips are spread evenly over them."]
    return []


def _fewer(fleet: Fleet) -> str:
    most = max(map(grain, fleet), default=1)
    return "one shuttle fewer" if most == 1 else f"one shuttle fewer (of large zones up to {most})"


def _notes(task: FleetTask, sized: Sized) -> tuple[str, ...]:
    if not task.served:
        return ("No trip needs a shuttle: no fleet is needed.",)
    idle = [name for name, number in zip(task.ground.zones, sized.fleet, strict=True) if not number]
    return (
        f"In the simulation every zone meets the target, and with {_fewer(sized.fleet)} in any zone one misses it. "
        "Mean waits need not fall with every shuttle more, so smaller fleets that do as well are not excluded.",
        "The bound is proved but weak; solo_cover is for orientation only, as riders share rides.",
        *([f"No ride begins or ends with a shuttle of {', '.join(idle)}: no shuttle there."] if idle else []),
    )
