# SPDX-License-Identifier: Apache-2.0
"""The goal shuttles: what privacy costs in a fleet that is sized on released counts of trips.

At each draw a fleet is sized on a release and one on the same trips as they are, with the same random seconds. Shuttles
too many and shuttles missing both count, zone by zone: noise that takes riders away makes a fleet smaller, and it would
be wrong to call that cheap.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from dunnage.advising.frontier import Point
from dunnage.advising.sweep import Asked, Drawn, Goal, Reference, Task
from dunnage.advising.trips import (
    TripCase,
    count_tasks,
    membership_guess,
    membership_says,
    open_trips,
    released_counts_of,
)
from dunnage.dataset import Dataset
from dunnage.errors import NoPlanError, ParameterError, Refusal
from dunnage.mechanisms.counts import Counted, true_counts
from dunnage.noise import Noise
from dunnage.planning.demand import Ground, counted_trips, service_seconds, stop_numbers
from dunnage.planning.dispatch import Service
from dunnage.planning.fleet import MAX_WAIT_SECONDS, DayRun, FleetTask, expanded_days
from dunnage.settle.fleets import served_task

MOST_TRIPS, QUICK_TRIPS = 2_000, 800
"""Trips of a date for which fleets are sized, at most, unless one hour has more."""
EXPANSIONS = 2
REPEATS = 3
"""Fleets that are sized and averaged in one draw, each for trips of its own: single ones differ much."""
MOST_TIMES = 6
"""Times the true trips that a release may have: a fleet for more is of no use, and takes long to size."""
WAITS = (MAX_WAIT_SECONDS, 2 * MAX_WAIT_SECONDS, 5 * MAX_WAIT_SECONDS)
"""Mean waits that fleets are sized for: the first that can be met in the city."""
_TRIED = 3
_MOST_LABELS = 3
_MOST_SEATS = 1_000


@dataclass(frozen=True, eq=False, kw_only=True)
class ShuttleCase(TripCase):
    ground: Ground  # The city with its routes
    service: Service  # What shuttles promise
    day: str | None = None  # Label of the only day that is sized for; None for all
    max_wait: float = MAX_WAIT_SECONDS  # Longest mean wait of a zone's riders, in seconds


@dataclass(frozen=True, kw_only=True)
class FleetDraw:
    """Two fleets for the same trips."""

    planned: tuple[int, ...]  # planned, needed: shuttles by zone, sized on the release and on the true trips
    needed: tuple[int, ...]
    wait_seconds: float  # Mean wait of the true riders with the planned fleet, of those who are served
    unserved: float  # Share of the true rides in zones without a shuttle

    @property
    def apart(self) -> float:
        """Shuttles too many and shuttles missing, zone by zone, as a part of those needed."""
        many = sum(abs(one - other) for one, other in zip(self.planned, self.needed, strict=True))
        return many / sum(self.needed)

    @property
    def signed(self) -> float:
        """By what part of the needed fleet the planned one is larger."""
        return sum(self.planned) / sum(self.needed) - 1


def _open(asked: Asked) -> ShuttleCase:
    if asked.city is None:
        raise ParameterError("a fleet of shuttles is sized in a city. Got none. Give --city CITY.")
    service = Service()
    if asked.capacity:
        text = asked.capacity[0].strip()
        if len(asked.capacity) > 1 or not text.isdecimal() or not 1 <= int(text) <= _MOST_SEATS:
            got = ", ".join(asked.capacity)
            raise ParameterError(f"the capacity of a shuttle is its number of seats. Got {got}. Give 8.")
        service = Service(capacity=int(text))
    from dunnage.gtfs import load_city

    ground = Ground.of(load_city(asked.city))
    trips = open_trips(asked, ground.city, most=QUICK_TRIPS if asked.quick else MOST_TRIPS)
    universe = trips.part.policy.schema.universe(asked.period)
    number = stop_numbers(universe.stops, ground.city)
    if (number < 0).any():
        lacking = universe.stops[int(np.argmin(number))]
        raise ParameterError(
            f"the city lacks stops of the policy, such as {lacking!r}. Give the city that all of them are in."
        )
    day = None
    if len(universe.days) > _MOST_LABELS:  # the day of most dates stands for many
        day = universe.days[int(np.argmax(universe.num_dates or (1,) * len(universe.days)))]
    told = (f"Only {day} was sized for.",) if day else ()
    case = ShuttleCase(
        asked=asked,
        data=trips.data,
        digest=hashlib.sha256(f"{trips.digest} {ground.digest()}".encode()).hexdigest(),
        part=trips.part,
        place=trips.place,
        size=trips.size,
        says=(*trips.says, *told),
        ground=ground,
        service=service,
        day=day,
    )
    # The first of the waits that fleets can meet for generated trips: whether they can is a public fact.
    samples = [true_counts(case.alike()) for _ in range(_TRIED)]
    for wait in WAITS[:-1]:
        trial = replace(case, max_wait=wait)
        with contextlib.suppress(NoPlanError):
            for counted in samples:
                _smallest(_task(trial, counted, Noise().bits(32)))
            return trial
    trial = replace(case, max_wait=WAITS[-1])
    for counted in samples:
        _smallest(_task(trial, counted, Noise().bits(32)))
    return trial


def _measure(case: ShuttleCase, task: Task) -> Drawn:
    repeats = 1 if case.asked.quick else REPEATS
    drawn = [draw_fleets(case, case.drawn(task)) for _ in range(repeats)]
    return Drawn(
        cost=fmean(one.apart for one in drawn),
        risk=membership_guess(task.epsilon),
        cost_step=fmean(1 / sum(one.needed) for one in drawn) / repeats,
        cost_least=0.0,
        figures={
            "shuttles": fmean(sum(one.planned) for one in drawn),
            "shuttles_needed": fmean(sum(one.needed) for one in drawn),
            "signed_error": fmean(one.signed for one in drawn),
            "wait_seconds": fmean(one.wait_seconds for one in drawn),
            "unserved": fmean(one.unserved for one in drawn),
        },
    )


def _reference(case: ShuttleCase) -> Reference:
    return Reference(
        risk_without_privacy=1.0,
        risk_of_chance=0.5,
        cost_baseline="the fleet that the same method sizes on the true counts, zone by zone",
        says=(
            *case.says,
            f"Fleets are sized for a mean wait of {case.max_wait:g} seconds and {case.service.capacity} seats. "
            "Shuttles too many and shuttles missing both count as cost: look at wait_seconds, too.",
            membership_says(case.part.policy),
        ),
    )


def _next_step(case: ShuttleCase, point: Point) -> str:
    return shlex.join(["dunnage", "size", "RELEASE", "--city", str(case.asked.city), "-o", "PLAN"])


def draw_fleets(case: ShuttleCase, data: Dataset) -> FleetDraw:
    """Release trips, size a fleet on that and one on the truth, and run the first on the true trips."""
    release, truth = released_counts_of(data)
    cells, counts = release.counted()
    if counts.sum() > MOST_TIMES * max(truth.num_trips, 1):
        raise Refusal(
            f"noise makes more than {MOST_TIMES} times the trips there are: a fleet for them is of no use. "
            "Set a threshold, use constrained counts, or raise epsilon."
        )
    # The same seconds for both, so that only what was released makes a difference; drawn anew each time.
    seed = Noise().bits(32)
    true_task = _task(case, truth, seed)
    planned = _smallest(_task(case, Counted(universe=release.universe, cells=cells, counts=counts), seed))
    needed = _smallest(true_task)
    if not sum(needed):
        raise Refusal("no trip needs a shuttle in this city, so that there is no fleet to compare with.")
    served = served_task(true_task, planned)
    rides = float(served.weights @ served.legs.sum(axis=1))
    runs: tuple[DayRun, ...] = served.runs(planned)
    waited = sum(weight * float(run.waits.sum()) for weight, run in zip(served.weights, runs, strict=True))
    return FleetDraw(
        planned=planned,
        needed=needed,
        wait_seconds=waited / rides if rides else 0.0,
        unserved=1 - float(rides / (true_task.weights @ true_task.legs.sum(axis=1))),
    )


def _task(case: ShuttleCase, counted: Counted, seed: int) -> FleetTask:
    counts = counted_trips(counted.universe, counted.cells, counted.counts, case.ground.city)
    days = expanded_days(counts, case.ground, expansions=EXPANSIONS, seed=seed, day=case.day)
    span = service_seconds(counted.universe)
    return FleetTask(case.ground, days, service=case.service, max_wait=case.max_wait, span=span)


def _smallest(task: FleetTask) -> tuple[int, ...]:
    try:
        return task.size().fleet
    except NoPlanError:  # whose message tells of the trips
        raise NoPlanError(
            f"no fleet gives every zone a mean wait of at most {task.max_wait:g} seconds. Divide large zones."
        ) from None


SHUTTLES = Goal(
    name="shuttles",
    cost_name="shuttles",
    cost_unit="shuttles too many or missing",
    risk_name="membership guess",
    open=_open,
    tasks=count_tasks,
    measure=_measure,
    reference=_reference,
    next_step=_next_step,
    default_max_cost=0.15,
)
"""Shuttles too many or missing, against whether one trip or rider was there."""
