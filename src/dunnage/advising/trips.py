# SPDX-License-Identifier: Apache-2.0
"""What goals about trips share, and the goal error of counts.

Trips are the owner's, or generated ones of the same public shape. A slice of the day stands for all of it where a day
has many trips: noise is drawn for each cell by itself, so what it does in two hours it does in all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dunnage.advising.common import check_digest, in_words, rounded
from dunnage.advising.frontier import DATA, GENERATED, Failure, Table
from dunnage.advising.sweep import Asked, Case, Drawn, Goal, Reference, Task, Tasks, reason
from dunnage.city import City
from dunnage.counting.laplace import RoundedLaplace, surplus
from dunnage.dataset import Dataset
from dunnage.errors import ParameterError, PolicyError, Refusal
from dunnage.exact import exact
from dunnage.io import load
from dunnage.ledger import Ledger
from dunnage.mechanisms.counts import (
    MAX_THRESHOLD,
    ConstrainedCounts,
    Counted,
    Feature,
    HierarchicalCounts,
    NoisyCounts,
    sensitivity,
    trip_cells,
    true_counts,
)
from dunnage.noise import Noise
from dunnage.policy import Policy
from dunnage.publishing import promise as promise_of
from dunnage.publishing import publish
from dunnage.release import Release
from dunnage.samples.like import Trips, like_trips, trip_rows, window_shares

MOST_TRIPS = 2_500
"""Trips of one date that are generated at most, unless a single hour has more."""
MOST_COUNTED = 20_000
"""Trips of a date that are counted, at most, unless one hour has more."""
LEAST_MINUTES = 60
"""Length of the shortest slice."""
EPSILONS, QUICK_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0), (0.3, 1.0, 3.0)
_SHARES, _QUICK_SHARES = ("uniform", "cells", "margins"), ("uniform", "margins")
_CREATED = 0.05
"""Trips that noise may create on average, as a part of all, where a threshold is set."""
_SUMS: Mapping[str, tuple[str, ...]] = {
    "windows": ("window",),
    "pairs of stops": ("origin", "destination"),
    "zone to zone": ("origin_zone", "destination_zone", "window"),
    "modes": ("mode", "window"),
}
# Any mechanism does to read a policy whose own is blank.
_PLACEHOLDER: Table = {"name": NoisyCounts.name, "epsilon": 1}


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Part of a service day that is measured in place of all of it."""

    policy: Policy  # The policy, its time narrowed to the slice; times outside are left out
    size: int  # Trips that fall into the slice, roughly, on all dates together
    says: str = ""  # What was done, in a sentence; empty if the slice is the whole day

    @classmethod
    def of(cls, policy: Policy, size: int, *, period: str | None = None, most: int = MOST_TRIPS) -> Slice:
        """Choose the busiest hours, as far as is publicly known, that hold at most so many trips a date."""
        universe, time = policy.schema.universe(period), policy.schema.time
        shares = window_shares(universe)
        num_dates = sum(universe.num_dates) or max(1, len(universe.days))
        room = most / max(size / max(1, num_dates), 1.0)
        num = len(shares)  # of windows in a row that hold at most a share of all trips, wherever they are
        while num > 1 and np.convolve(shares, np.ones(num), "valid").max() > room:
            num -= 1
        num = max(num, min(len(shares), -(-LEAST_MINUTES // universe.window_minutes)))
        if num == len(shares):
            return cls(policy=_narrowed(policy, time.lower, time.upper), size=size)
        sums = np.convolve(shares, np.ones(num), "valid")
        first = int(np.argmax(sums))
        lower = universe.windows[first]
        upper = universe.windows[first + num] if first + num < len(shares) else time.upper
        return cls(
            policy=_narrowed(policy, lower, upper),
            size=max(1, round(size * float(sums[first]))),
            says=f"Measured from {lower} to {upper} only, which stands for the whole service day.",
        )


def _narrowed(policy: Policy, lower: str, upper: str) -> Policy:
    """Narrow the service day; times outside, and those that the clock of a zone skips, are left out."""
    trip, attributes = policy.schema.trip, policy.document["attributes"]
    assert trip is not None  # a policy of trips
    time = {**attributes[trip.time], "domain": [lower, upper], "outside": "leave-out"}
    document = {**policy.document, "attributes": {**attributes, trip.time: time}}
    return Policy.from_dict(document, path=policy.path)


def narrowed_trips(data: Dataset, policy: Policy, *, noise: Noise | None = None) -> Dataset:
    """Return the owner's trips under a narrowed policy: those of its windows, each at a random second of its own."""
    universe, narrow, trip = data.schema.universe(data.period), policy.schema.universe(data.period), data.schema.trip
    assert trip is not None
    cells = trip_cells(data, universe)
    riders = np.arange(len(cells)) if data.persons is None else data.persons
    if trip.count is not None:
        counts = data.numbers(trip.count).astype(np.int64)
        cells, riders = np.repeat(cells, counts), np.repeat(riders, counts)
    pairs, slots = universe.split(cells)
    days, windows = np.divmod(slots, len(universe.windows))
    windows -= universe.windows.index(narrow.windows[0])
    kept = (windows >= 0) & (windows < len(narrow.windows))
    origins, destinations = np.divmod(pairs[kept], len(universe.stops))
    trips = Trips(origins, destinations, days[kept] * len(narrow.windows) + windows[kept], riders[kept])
    return trip_rows(policy, data.period, narrow, trips, noise or Noise())


@dataclass(frozen=True, eq=False, kw_only=True)
class TripCase(Case):
    part: Slice  # The slice, with its policy
    place: City | None = None  # The city whose distances generated trips go by, where there is one
    size: int  # Trips on all dates, for the whole service day, as they are generated
    says: tuple[str, ...] = ()  # Sentences about what was measured

    @property
    def trips(self) -> Dataset:
        found: Dataset = self.data
        return found

    def alike(self, policy: Policy | None = None) -> Dataset:
        return like_trips(policy or self.part.policy, self.part.size, period=self.asked.period, city=self.place)

    def drawn(self, task: Task) -> Dataset:
        """Return trips to be released as a task says: the owner's, or generated ones."""
        policy = task.under(self.part.policy)
        return narrowed_trips(self.trips, policy) if task.on == DATA else self.alike(policy)


def open_trips(asked: Asked, place: City | None = None, *, most: int | None = None) -> TripCase:
    """Read trips under a policy whose mechanism does not matter yet."""
    policy = asked.base.policy(_PLACEHOLDER)
    if policy.schema.trip is None:
        raise ParameterError(
            f"{policy.dataset} has no trips: its policy has no [trip]. Say there which columns are origin, destination "
            "and time, or choose another goal."
        )
    data: Dataset = load(asked.data, policy, period=asked.period)
    num = true_counts(data).num_trips
    size = num if asked.on == DATA else asked.size or rounded(num)
    part = Slice.of(policy, size, period=asked.period, most=size if most is None else most)
    told = ""
    if asked.on != DATA and asked.size is not None:
        told = f"Generated trips are {size:,}, as was asked for."
    elif asked.on != DATA:
        told = (
            f"Generated trips are {size:,}: as many as the data have, rounded to one digit. The number of trips "
            "is not public under such a policy; give --size if even that says too much."
        )
    says = tuple(line for line in (told, part.says) if line)
    return TripCase(
        asked=asked, data=data, digest=check_digest(data, policy), part=part, place=place, size=size, says=says
    )


def released_counts_of(data: Dataset) -> tuple[Release, Counted]:
    """Release trips under their policy, in memory and without a ledger of the owner's; also return the truth."""
    with Ledger(":memory:") as ledger:
        publication = publish(data, ledger=ledger)
    return publication.release, true_counts(data)


def count_tasks(case: TripCase) -> Tasks:
    """List mechanisms of counts and their parameters, as far as public facts allow them."""
    policy, on = case.asked.base.policy(_PLACEHOLDER), DATA if case.asked.on == DATA else GENERATED
    found: list[Task] = []
    failed: list[Failure] = []
    for task in _candidates(case, policy):
        try:
            promise = promise_of(task.under(policy))
        except PolicyError as error:
            failed.append(Failure(name=task.name, why=reason(error)))
            continue
        guarantee = f"{in_words(promise.guarantee)}, one {policy.schema.protects}"
        found.append(replace(task, guarantee=guarantee, basis=str(promise.basis), on=on))
    return found, failed


def _candidates(case: TripCase, policy: Policy) -> Iterator[Task]:
    quick, period = case.asked.quick, case.asked.period
    epsilons = QUICK_EPSILONS if quick else EPSILONS
    features = ConstrainedCounts.richest_features(policy.schema.city)
    for share in _QUICK_SHARES if quick else _SHARES:
        for epsilon in epsilons:
            parameters: Table = {"epsilon": epsilon, "features": features, "budget_shares": share}
            yield Task.of(ConstrainedCounts, f"{features} {share} epsilon={epsilon:g}", parameters)
    features = HierarchicalCounts.richest_features(policy.schema.city)
    for epsilon in () if quick else epsilons:
        parameters = {"epsilon": epsilon, "features": features}
        yield Task.of(HierarchicalCounts, f"{features} epsilon={epsilon:g}", parameters)
    change, room = exact(sensitivity(policy.schema, period)), _CREATED * case.size
    room /= policy.schema.universe(period).num_cells
    for epsilon in epsilons:
        # The least threshold at which noise creates few trips; by public facts and the rough number of trips.
        law, threshold = RoundedLaplace(change / exact(epsilon)), 1
        while surplus(law, threshold) > room and threshold < MAX_THRESHOLD:
            threshold += max(1, threshold // 8)
        if threshold == 1 or not quick:
            yield Task.of(NoisyCounts, f"epsilon={epsilon:g}", {"epsilon": epsilon})
        if threshold > 1:
            parameters = {"epsilon": epsilon, "threshold": threshold}
            yield Task.of(NoisyCounts, f"threshold {threshold} epsilon={epsilon:g}", parameters)


def membership_says(policy: Policy) -> str:
    return (
        f"The risk is the best guess that the promise allows about whether one {policy.schema.protects} is in the "
        "data, by somebody who knows all others; a coin is right with 50 %. From epsilon 3 on it is right with 95 % or "
        "more, and the promise is worth little."
    )


def membership_guess(epsilon: float) -> float:
    """Return how often the best guess about one protected unit is right at most, from a suspicion of one half.

    Examples
    --------
    >>> round(membership_guess(1.0), 3)
    0.731
    """
    return 1 / (1 + math.exp(-epsilon))


# The goal error of counts


def _open(asked: Asked) -> TripCase:
    return open_trips(asked, most=MOST_COUNTED)


def _measure(case: TripCase, task: Task) -> Drawn:
    release, truth = released_counts_of(case.drawn(task))
    if not truth.num_trips:
        raise Refusal("there are no trips in the hours that are measured. Give --size, or other data.")
    errors = count_errors(release, truth)
    return Drawn(
        cost=errors.pop("counts"),
        risk=membership_guess(task.epsilon),
        cost_step=1 / truth.num_trips,
        cost_least=0.0,
        figures={f"error of {name}": error for name, error in errors.items()},
    )


def _reference(case: TripCase) -> Reference:
    return Reference(
        risk_without_privacy=1.0,
        risk_of_chance=0.5,
        cost_baseline="true counts; publishing nothing has an error of 100 %",
        says=(
            *case.says,
            "The cost is the mean absolute error of a count over all trip types, in mean counts: trips that are "
            "missing or too many in some cell, as a part of all trips.",
            membership_says(case.part.policy),
        ),
    )


def count_errors(release: Release, truth: Counted) -> dict[str, float]:
    """Return the mean absolute errors of counts and of some sums, each in means of what it is of."""
    cells, counts = release.counted()
    both = np.union1d(cells, truth.cells)
    differences = np.zeros(len(both), dtype=np.int64)
    differences[np.searchsorted(both, cells)] += counts
    differences[np.searchsorted(both, truth.cells)] -= truth.counts
    total, places = truth.num_trips, truth.universe.split(both)
    found = {"counts": float(np.abs(differences).sum()) / total, "the total": abs(int(differences.sum())) / total}
    for name, columns in _SUMS.items():
        if set(columns) <= set(truth.universe.columns):
            sums = Feature.of(truth.universe, columns).sums(*places, differences)
            found[name] = float(np.abs(sums).sum()) / total
    return found


TRIP_ERROR = Goal(
    name="error",
    cost_name="error of a count",
    cost_unit="error of a count, in mean counts",
    risk_name="membership guess",
    open=_open,
    tasks=count_tasks,
    measure=_measure,
    reference=_reference,
    default_max_cost=0.25,
)
