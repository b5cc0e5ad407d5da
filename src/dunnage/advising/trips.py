# SPDX-License-Identifier: Apache-2.0
"""Goals on counts of trips: the error of counts, and what privacy costs in a fleet that is sized on them.

Trips are the owner's, or generated ones of the same public shape. If a day has many trips, a slice of it stands for the
whole: each cell has independent noise, so its effect in two hours is its effect in all.

Each draw sizes a fleet on a release and one on the same true trips, with the same random seconds. Shuttles too many and
shuttles missing both count, zone by zone: noise that removes riders makes a fleet smaller, and it would be wrong to
call that cheap.
"""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dunnage.advising.frontier import DATA, GENERATED, Point, Table
from dunnage.advising.rows import check_digest, in_words, release_in_memory, round_to_one_digit
from dunnage.advising.sweep import AdviceRequest, Candidate, Candidates, Draw, Reference, Subject, allowed, words
from dunnage.errors import NoPlanError, ParameterError, Refusal
from dunnage.exact import exact, whole
from dunnage.kernels.counts.laplace import DiscreteLaplace, surplus
from dunnage.mechanisms.counts import (
    MAX_THRESHOLD,
    ConstrainedCounts,
    Counted,
    Feature,
    HierarchicalCounts,
    NoisyCounts,
    record_cells,
    sensitivity,
    true_counts,
)
from dunnage.mechanisms.fitted_counts import FittedCounts
from dunnage.model.city import City
from dunnage.model.policy import Policy
from dunnage.noise.source import Noise
from dunnage.planning.demand import Ground, check_arrivals, counted_trips, service_seconds, stop_numbers
from dunnage.planning.dispatch import Service
from dunnage.planning.fleet import MAX_WAIT_SECONDS, FleetTask, expanded_days
from dunnage.publishing import mechanism_of
from dunnage.publishing import promise as promise_of
from dunnage.release import Release
from dunnage.samples.shape import SlotTrips, like, trip_rows, window_shares
from dunnage.settle.fleets import served_task
from dunnage.tables.dataset import Dataset, bound_preview, load
from dunnage.tables.gtfs import load_city
from dunnage.text import large_percent

MAX_TRIPS, MAX_COUNTED = 2_500, 200_000
"""Trips of one date that are generated, and that are counted, unless a single hour has more."""
MAX_SIZED, QUICK_SIZED = 2_000, 800  # trips of a date that fleets are sized for, unless one hour has more
MIN_MINUTES = 60  # length of the shortest slice
EPSILONS, QUICK_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0), (0.3, 1.0, 3.0)
_SHARES, _QUICK_SHARES = ("uniform", "cells", "margins"), ("uniform", "margins")
_CREATED = 0.05  # share of trips that noise may create on average, where a threshold is set
_SUMS: Mapping[str, tuple[str, ...]] = {
    "windows": ("window",),
    "pairs of stops": ("origin", "destination"),
    "zone to zone": ("origin_zone", "destination_zone", "window"),
    "modes": ("mode", "window"),
}
_SUMS_OF_BOARDINGS = {"windows": ("window",), "stops": ("origin",), "zones": ("origin_zone", "window")}
_LEVELS = ("stops", "zones", "pairs of stops", "zone to zone", "modes", "windows", "the total")
GOOD_SUM = 0.25
"""Error of sums, relative to their mean, that is small enough to point them out where single counts are noise."""
# Any mechanism will do to read a policy with a blank one.
_PLACEHOLDER: Table = {"name": NoisyCounts.name, "epsilon": 1}


class Slice(NamedTuple):
    """Part of a service day that is measured instead of the whole."""

    policy: Policy  # with its time narrowed to the slice; times outside are left out
    size: int  # rough number of trips in the slice, on all dates together
    says: str = ""  # what was done; empty if the slice is the whole day

    @classmethod
    def of(cls, policy: Policy, size: int, *, period: str | None = None, limit: int = MAX_TRIPS) -> Slice:
        """Choose the busiest hours, as far as is publicly known, with at most ``limit`` trips a date."""
        universe, time = policy.schema.universe(period), policy.schema.time
        shares = window_shares(universe)
        num_dates = sum(universe.num_dates) or policy.expect.dates or max(1, len(universe.days))
        room = limit / max(size / max(1, num_dates), 1.0)
        num = len(shares)  # consecutive windows that have at most a share of all trips, wherever they are
        while num > 1 and np.convolve(shares, np.ones(num), "valid").max() > room:
            num -= 1
        num = max(num, min(len(shares), -(-MIN_MINUTES // universe.window_minutes)))
        if num == len(shares):
            return cls(_narrow(policy, time.lower, time.upper), size)
        sums = np.convolve(shares, np.ones(num), "valid")
        first = int(np.argmax(sums))
        lower = universe.windows[first]
        upper = universe.windows[first + num] if first + num < len(shares) else time.upper
        says = words("slice", lower=lower, upper=upper)
        return cls(_narrow(policy, lower, upper), max(1, round(size * float(sums[first]))), says)


def _narrow(policy: Policy, lower: str, upper: str) -> Policy:
    """Narrow the service day; times outside, and times that the clock of a zone skips, are left out."""
    trip, attributes = policy.schema.trip, policy.document["attributes"]
    assert trip is not None  # a policy of trips
    time = {**attributes[trip.time], "domain": [lower, upper], "outside": "leave-out"}
    document = {**policy.document, "attributes": {**attributes, trip.time: time}}
    return Policy.from_dict(document, path=policy.path)


def narrow_trips(data: Dataset, policy: Policy) -> Dataset:
    """Return the owner's trips in the windows of a narrowed policy, each at a random second."""
    universe, narrow = (schema.universe(data.period, level="stop") for schema in (data.schema, policy.schema))
    trip = data.schema.trip
    assert trip is not None
    cells = record_cells(data, universe)
    riders = np.arange(len(cells)) if data.persons is None else data.persons
    if trip.count is not None:
        counts = data.numbers(trip.count).astype(np.int64)
        cells, riders = np.repeat(cells, counts), np.repeat(riders, counts)
    pairs, slots = universe.split(cells)
    days, windows = np.divmod(slots, len(universe.windows))
    windows -= universe.windows.index(narrow.windows[0])
    kept = (windows >= 0) & (windows < len(narrow.windows))
    origins, destinations = universe.pair_ends(pairs[kept])
    trips = SlotTrips(origins, destinations, days[kept] * len(narrow.windows) + windows[kept], riders[kept])
    return trip_rows(policy, data.period, narrow, trips, Noise())


@dataclass(frozen=True, eq=False, kw_only=True)
class TripSubject(Subject):
    data: Dataset = field(repr=False)
    part: Slice
    place: City | None = None  # the city with the distances for generated trips, if there is one
    size: int  # number of generated trips on all dates, for the whole service day
    workload: tuple[str, ...] = ()  # what people will look up, if the policy says so; otherwise single counts
    says: tuple[str, ...] = ()  # about what was measured

    @property
    def unit(self) -> str:
        return "trip"

    def generated(self, policy: Policy) -> Dataset:
        return like(policy, self.part.size, period=self.request.period, city=self.place)

    def trips(self, candidate: Candidate) -> Dataset:
        policy = candidate.under(self.part.policy)
        return narrow_trips(self.data, policy) if candidate.on == DATA else self.generated(policy)


def open_trips(request: AdviceRequest, place: City | None = None, *, limit: int = MAX_COUNTED) -> TripSubject:
    policy = request.base.policy(_PLACEHOLDER)
    if policy.schema.trip is None:
        raise ParameterError(
            f"the policy of {policy.dataset} has no [trip]. Name the columns of origin, destination (if it is known) "
            "and time there, or choose another goal."
        )
    data: Dataset = load(request.data, policy, period=request.period)
    num = true_counts(data).num_trips
    expected = policy.expect.trips  # the owner's own estimate, so nothing is counted in the data
    size = num if request.on == DATA else request.size or expected or round_to_one_digit(num)
    part = Slice.of(policy, size, period=request.period, limit=limit)
    written = request.base.document.get("mechanism")
    wanted = written if isinstance(written, Mapping) else {}
    workload = tuple[str, ...]()
    if wanted.get("name") == FittedCounts.name or "workload" in wanted:
        asked = {name: wanted[name] for name in ("workload",) if name in wanted}
        fitted = request.base.policy({**_PLACEHOLDER, "name": FittedCounts.name, **asked})
        promise_of(fitted)  # refuses what there is not, such as zones
        workload = FittedCounts(epsilon=exact(1), **asked).questions(fitted.schema)
    kind = "requested" if request.size is not None else "rounded" if expected is None else "expected"
    number = "" if request.on == DATA else words(f"size {kind}", size=size)
    return TripSubject(
        request=request,
        data=data,
        digest=check_digest(data, policy),
        public_size=kind != "rounded",
        part=part,
        place=place,
        size=size,
        workload=workload,
        says=tuple(line for line in (number, part.says) if line),
        private_says=() if (line := bound_preview(data)) is None else (words("bounds", line=line),),
    )


def count_candidates(subject: TripSubject) -> Candidates:
    """List mechanisms of counts and their parameters, as far as public facts allow them."""
    request = subject.request
    policy, on = request.base.policy(_PLACEHOLDER), DATA if request.on == DATA else GENERATED

    def promised(candidate: Candidate) -> Candidate:
        promise = promise_of(candidate.under(policy))
        guarantee = f"{in_words(promise.guarantee)}, one {policy.schema.protects}"
        return replace(candidate, guarantee=guarantee, basis=str(promise.basis), on=on)

    return allowed(_candidates(subject, policy), promised)


def _candidates(subject: TripSubject, policy: Policy) -> Iterator[Candidate]:
    quick, period = subject.request.quick, subject.request.period
    epsilons = QUICK_EPSILONS if quick else EPSILONS
    features = ConstrainedCounts.richest_features(policy.schema.city)
    for share in _QUICK_SHARES if quick else _SHARES:
        for epsilon in epsilons:
            parameters: Table = {"epsilon": epsilon, "features": features, "budget_shares": share}
            yield Candidate.of(ConstrainedCounts, f"{features} {share} epsilon={epsilon:g}", parameters)
    for epsilon in epsilons if len(policy.schema.ends) == 2 else ():
        asked: Table = {"workload": list(subject.workload)} if subject.workload else {}
        yield Candidate.of(FittedCounts, f"epsilon={epsilon:g}", {"epsilon": epsilon, **asked})
    features = HierarchicalCounts.richest_features(policy.schema.city)
    for epsilon in () if quick else epsilons:
        parameters = {"epsilon": epsilon, "features": features}
        yield Candidate.of(HierarchicalCounts, f"{features} epsilon={epsilon:g}", parameters)
    change, room = exact(sensitivity(policy.schema, period)), _CREATED * subject.size
    room /= policy.schema.universe(period).num_cells
    for epsilon in epsilons:
        # The smallest threshold at which noise creates few trips, by public facts and the rough number of trips.
        law, threshold = DiscreteLaplace(change / exact(epsilon)), 1
        while surplus(law, threshold) > room and threshold < MAX_THRESHOLD:
            threshold += max(1, threshold // 8)
        if threshold == 1 or not quick:
            yield Candidate.of(NoisyCounts, f"epsilon={epsilon:g}", {"epsilon": epsilon})
        if threshold > 1:
            parameters = {"epsilon": epsilon, "threshold": threshold}
            yield Candidate.of(NoisyCounts, f"threshold {threshold} epsilon={epsilon:g}", parameters)


def membership_guess(epsilon: float) -> float:
    """Return how often the best guess about one protected unit is right at most, from a suspicion of 50 %."""
    return 1 / (1 + math.exp(-epsilon))


def _reference(subject: TripSubject, baseline: str, *says: str) -> Reference:
    sentences = *subject.says, *says, words("membership", record=subject.part.policy.schema.protects)
    return Reference(risk_without_privacy=1.0, risk_of_chance=0.5, cost_baseline=baseline, says=sentences)


def trips_help(subject: TripSubject, points: Sequence[Point]) -> str:
    """Say what makes counts better, and which sums are good already."""
    universe = subject.request.base.policy(_PLACEHOLDER).schema.universe(subject.request.period)
    zones = "" if isinstance(subject, ShuttleSubject) else "zones instead of stops, "  # shuttles need stops
    text = words("help trips", size=subject.size, cells=universe.num_cells, zones=zones)
    levels = [f"error of {name}" for name in _LEVELS]
    safe = [point for point in points if not point.weak and any(level in point.figures for level in levels)]
    for level in levels:  # the finest sums that are good under some policy
        best = min(safe, key=lambda point: point.figures.get(level, math.inf), default=None)
        if best is not None and best.figures.get(level, math.inf) <= GOOD_SUM:
            good = [one for one in levels[levels.index(level) :] if best.figures.get(one, math.inf) <= GOOD_SUM]
            sums = [f"{one.removeprefix('error of ')} by {large_percent(best.figures[one])}" for one in good]
            return f"{text} {words('help sums', name=best.name, sums=', '.join(sums))}"
    return text


def refused_as_noise(request: AdviceRequest, point: Point) -> bool:
    """Whether publishing under a point takes --allow-noise."""
    from dunnage.usefulness import predict_usefulness

    policy = request.base.policy({"name": point.mechanism, **point.parameters})
    result = predict_usefulness(policy, mechanism_of(policy), period=request.period, helpful=False)
    return result is not None and result.is_noise


# The goal error of counts


def measure_counts(subject: TripSubject, candidate: Candidate) -> Draw:
    data = subject.trips(candidate)
    release, truth = release_in_memory(data, Noise()).release, true_counts(data)
    if not truth.num_trips:
        raise Refusal("the measured hours have no trips. Give --size, or other data.")
    asked: Mapping[str, tuple[str, ...]] = {}
    if subject.workload:
        asked = FittedCounts(epsilon=exact(1), workload=subject.workload).levels(data.schema)
    errors = count_errors(release, truth, asked)
    cells = errors.pop("counts")
    errors |= {"single counts": cells} if asked else {}
    return Draw(
        cost=fmean(errors[name] for name in asked) if asked else cells,
        risk=membership_guess(candidate.epsilon),
        cost_step=1 / truth.num_trips,
        min_cost=0.0,
        num_records=truth.num_trips,
        figures={f"error of {name}": error for name, error in errors.items()},
    )


def count_errors(
    release: Release, truth: Counted, more: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> dict[str, float]:
    """Return the mean absolute errors of counts and of some sums, each relative to its mean."""
    cells, counts = release.counted()
    both = np.union1d(cells, truth.cells)
    differences = np.zeros(len(both), dtype=np.int64)
    differences[np.searchsorted(both, cells)] += counts
    differences[np.searchsorted(both, truth.cells)] -= truth.counts
    total, places = truth.num_trips, truth.universe.split(both)
    errors = {"counts": float(np.abs(differences).sum()) / total, "the total": abs(int(differences.sum())) / total}
    for name, columns in {**(_SUMS if truth.universe.arrives else _SUMS_OF_BOARDINGS), **more}.items():
        if set(columns) <= set(truth.universe.columns):
            sums = Feature.of(truth.universe, columns).listed_sums(*places, differences)
            errors[name] = float(np.abs(sums).sum()) / total
    return errors


def counts_reference(subject: TripSubject) -> Reference:
    names = ", ".join(subject.workload)
    cost = words("workload", names=names) if names else words("counts")
    return _reference(subject, "true counts; publishing nothing has an error of 100 %", cost)


# The goal shuttles

EXPANSIONS = 2
REPEATS = 3  # fleets that are sized and averaged in one draw, each for its own trips: single fleets differ much
MAX_TIMES = 6  # multiple of the true trips that a release may have: a fleet for more is useless, and takes long to size
WAITS = tuple(times * MAX_WAIT_SECONDS for times in (1, 2, 5, 10, 20))
"""Mean waits that fleets are sized for: the first one that is possible in the city, with the trips of a draw."""
_TRIED = 3
_TRIES = 100
_MAX_LABELS = 3
_MAX_SEATS = 1_000


@dataclass(frozen=True, eq=False, kw_only=True)
class ShuttleSubject(TripSubject):
    ground: Ground  # the city with its routes
    service: Service  # what shuttles promise
    day: str | None = None  # label of the only day to size for; None for all
    max_wait: float = MAX_WAIT_SECONDS  # longest mean wait of a zone's riders, in seconds

    def generated(self, policy: Policy) -> Dataset:
        """Generate trips of which at least one needs a shuttle, if that is likely at all; few may all be walks."""
        for _ in range(_TRIES):
            data = super().generated(policy)
            if len(data) > _TRIES or self.task(true_counts(data), Noise().bits(32)).legs.sum():
                break
        return data

    def task(self, counted: Counted, seed: int) -> FleetTask:
        counts = counted_trips(counted.universe, counted.cells, counted.counts, self.ground.city)
        days = expanded_days(counts, self.ground, expansions=EXPANSIONS, seed=seed, day=self.day)
        span = service_seconds(counted.universe)
        return FleetTask(self.ground, days, service=self.service, max_wait=self.max_wait, span=span)


class FleetDraw(NamedTuple):
    planned: tuple[int, ...]  # planned, needed: shuttles by zone, sized on the release and on the true trips
    needed: tuple[int, ...]
    wait_seconds: float  # mean wait of the served true riders with the planned fleet
    unserved: float  # share of the true rides in zones without a shuttle
    num_trips: int | None = None  # true trips
    max_wait: float = MAX_WAIT_SECONDS  # mean wait that both fleets are sized for

    @property
    def apart(self) -> float:
        """Shuttles too many and shuttles missing, zone by zone, as a share of those needed."""
        many = sum(abs(one - other) for one, other in zip(self.planned, self.needed, strict=True))
        return many / sum(self.needed)

    @property
    def signed(self) -> float:
        """How much larger the planned fleet is, as a share of the needed one."""
        return sum(self.planned) / sum(self.needed) - 1


def open_shuttles(request: AdviceRequest) -> ShuttleSubject:
    if request.city is None:
        raise ParameterError("the goal shuttles needs a city. Got none. Give --city CITY.")
    service = Service()
    if request.capacity:
        seats = whole(request.capacity[0]) or 0
        if len(request.capacity) > 1 or not 1 <= seats <= _MAX_SEATS:
            got = ", ".join(request.capacity)
            raise ParameterError(f"the capacity of a shuttle is its number of seats, for example 8. Got {got}.")
        service = Service(capacity=seats)
    ground = Ground.of(load_city(request.city))
    trips = open_trips(request, ground.city, limit=QUICK_SIZED if request.quick else MAX_SIZED)
    universe = trips.part.policy.schema.universe(request.period)
    check_arrivals(universe)
    if not universe.num_dates:
        raise ParameterError(
            "the policy does not say how many dates the trips cover, so the trips of one day are unknown. Write "
            "[expect] dates = N, for example 5."
        )
    number = stop_numbers(universe.stops, ground.city)
    if (number < 0).any():
        lacking = universe.stops[int(np.argmin(number))]
        raise ParameterError(f"the city lacks stops of the policy, such as {lacking!r}. Give a city with all of them.")
    day = None
    if len(universe.days) > _MAX_LABELS:  # the label with most dates stands for all
        day = universe.days[int(np.argmax(universe.num_dates or (1,) * len(universe.days)))]
    says = (*trips.says, *([words("one day", day=day)] if day else []))
    digest = hashlib.sha256(f"{trips.digest} {ground.digest()}".encode()).hexdigest()
    own: dict[str, Any] = {**vars(trips), "digest": digest, "says": says}
    subject = ShuttleSubject(**own, ground=ground, service=service, day=day)
    # The first wait that fleets can meet for generated trips: whether they can is a public fact.
    samples = [true_counts(subject.generated(subject.part.policy)) for _ in range(_TRIED)]
    for wait in WAITS:
        trial = replace(subject, max_wait=wait)
        try:
            for counted in samples:
                _smallest(trial.task(counted, Noise().bits(32)))
            return trial
        except NoPlanError:
            if wait == WAITS[-1]:
                raise
    raise AssertionError  # the last wait is met or refused


def measure_shuttles(subject: ShuttleSubject, candidate: Candidate) -> Draw:
    repeats = 1 if subject.request.quick else REPEATS
    draws = [draw_fleets(subject, subject.trips(candidate)) for _ in range(repeats)]
    return Draw(
        cost=fmean(draw.apart for draw in draws),
        risk=membership_guess(candidate.epsilon),
        cost_step=fmean(1 / sum(draw.needed) for draw in draws) / repeats,
        min_cost=0.0,
        num_records=draws[0].num_trips,
        figures={
            "shuttles": fmean(sum(draw.planned) for draw in draws),
            "shuttles_needed": fmean(sum(draw.needed) for draw in draws),
            "signed_error": fmean(draw.signed for draw in draws),
            "wait_seconds": fmean(draw.wait_seconds for draw in draws),
            "wait_target_seconds": fmean(draw.max_wait for draw in draws),
            "unserved": fmean(draw.unserved for draw in draws),
        },
    )


def draw_fleets(subject: ShuttleSubject, data: Dataset) -> FleetDraw:
    """Release trips, size a fleet on that and one on the truth, and run the first on the true trips."""
    release, truth = release_in_memory(data, Noise()).release, true_counts(data)
    cells, counts = release.counted()
    if counts.sum() > MAX_TIMES * max(truth.num_trips, 1):
        raise Refusal(
            f"noise makes more than {MAX_TIMES} times as many trips as there are: a fleet for them is useless. "
            "Set a threshold, use constrained counts, or raise epsilon."
        )
    # The same seconds for both, so that only the release makes a difference; new ones each time.
    released = Counted(universe=release.universe, cells=cells, counts=counts)
    for _ in range(_TRIES):  # a day of few trips may have none
        seed = Noise().bits(32)
        if truth.num_trips > _TRIES or subject.task(truth, seed).legs.sum():
            break
    for wait in WAITS[WAITS.index(subject.max_wait) :]:
        trial = replace(subject, max_wait=wait)
        true_task, released_task = trial.task(truth, seed), trial.task(released, seed)
        try:
            planned, needed = _smallest(released_task), _smallest(true_task)
            break
        except NoPlanError:
            if wait == WAITS[-1]:
                raise
    if not sum(needed):
        raise Refusal("no trip needs a shuttle in this city, so there is no fleet to compare with.")
    served = served_task(true_task, planned, released_task.parking)
    rides = float(served.weights @ served.legs.sum(axis=1))
    runs = served.runs(planned)
    waited = sum(weight * float(run.waits.sum()) for weight, run in zip(served.weights, runs, strict=True))
    return FleetDraw(
        planned=planned,
        needed=needed,
        wait_seconds=waited / rides if rides else 0.0,
        unserved=1 - float(rides / (true_task.weights @ true_task.legs.sum(axis=1))),
        num_trips=truth.num_trips,
        max_wait=true_task.max_wait,
    )


def _smallest(task: FleetTask) -> tuple[int, ...]:
    try:
        return task.size().fleet
    except NoPlanError:  # its message reveals something about the trips
        raise NoPlanError(
            f"no fleet gives every zone a mean wait of at most {task.max_wait:g} seconds: shuttles start too far from "
            "some stops. Make a city with smaller zones or more hubs, or leave out stops that are far from all others."
        ) from None


def shuttles_reference(subject: ShuttleSubject) -> Reference:
    return _reference(
        subject,
        "the fleet that the same method sizes on the true counts, zone by zone",
        words("shuttles", wait=subject.max_wait, seats=subject.service.capacity),
        *([words("long wait", wanted=WAITS[0])] if subject.max_wait > WAITS[0] else []),
    )


def size_command(subject: ShuttleSubject, point: Point) -> str:
    wait = [] if subject.max_wait == MAX_WAIT_SECONDS else ["--max-wait", f"{subject.max_wait:g}"]
    return shlex.join(["dunnage", "size", "RELEASE", "--city", str(subject.request.city), *wait, "-o", "PLAN"])
