# SPDX-License-Identifier: Apache-2.0
"""Generated trips of the same public shape as the owner's: stops, windows, days and a rough number, nothing else.

Where people go is made up anew at each draw: homes and workplaces of different weight, fewer trips between stops that
are near enough to walk or far apart, most trips on few pairs, more of them in the rush hours. Distances are those of a
city, if it says where its stops are. Nothing of the owner's trips goes in.

A slice of the day stands for all of it where a day has many trips: noise is drawn for each cell by itself, so what it
does in two hours it does in all.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from dunnage import noise_arrays
from dunnage.advising.alike import rounded, with_mechanism
from dunnage.advising.common import in_words
from dunnage.advising.frontier import DATA, GENERATED, Failure
from dunnage.advising.sweep import Asked, Case, Task
from dunnage.arrays import FloatArray, IntArray
from dunnage.city import City, haversine
from dunnage.counting.laplace import RoundedLaplace, surplus
from dunnage.dataset import Dataset
from dunnage.domains import Windows
from dunnage.domains.windows import DAY_SECONDS
from dunnage.errors import ParameterError, PolicyError
from dunnage.exact import exact
from dunnage.io import load
from dunnage.ledger import Ledger
from dunnage.mechanisms.counting import Counted, trip_cells, true_counts
from dunnage.mechanisms.noisy_counts import MOST_THRESHOLD
from dunnage.mechanisms.tabulated import sensitivity
from dunnage.noise import Noise
from dunnage.planning.demand import stop_numbers, window_seconds
from dunnage.policy import Policy
from dunnage.publishing import promise as promise_of
from dunnage.publishing import publish
from dunnage.release import Release
from dunnage.trips import Universe

MOST_TRIPS = 2_500
"""Trips of one date that are generated at most, unless a single hour has more."""
LEAST_MINUTES = 60
"""Length of the shortest slice."""
_WORD = 53
_HOURS = (3, 1, 1, 1, 2, 8, 25, 60, 70, 60, 55, 58, 65, 62, 68, 82, 95, 92, 68, 48, 34, 25, 17, 9)
"""Trips that begin in each hour of a day, relative to each other: a public guess."""
# As in generated days of trips: twice the trips are not on twice the pairs, and few pairs have most trips.
_PAIRS_OF_ONE, _PAIRS_GROW, _RANK_OFFSET, _RANK_POWER = 0.72, 0.75, 2.0, 1.88
_STOPS_DIFFER, _PAIRS_DIFFER, _WINDOWS_DIFFER = 0.7, 1.0, 0.5
_WALKED_KM, _FAR_KM = 1.5, 6.0
_TRIPS_OF_RIDER = 1.7
_MOST_STOPS = 1_000
"""Stops that generated trips are made between at most; which ones is drawn."""
_SOME_MONDAY = date(2026, 10, 12).toordinal()


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Part of a service day that is measured in place of all of it."""

    policy: Policy  # The policy, its time narrowed to the slice; times outside are left out
    size: int  # Trips that fall into the slice, roughly, on all dates together
    says: str = ""  # What was done, in a sentence; empty if the slice is the whole day

    @classmethod
    def of(cls, policy: Policy, size: int, *, period: str | None = None, most: int = MOST_TRIPS) -> Slice:
        """Choose the busiest hours, as far as is publicly known, that hold at most so many trips a date."""
        universe = policy.schema.universe(period)
        shares = _window_shares(universe)
        a_date = size / max(1, _num_dates(universe))
        least = min(len(shares), -(-LEAST_MINUTES // universe.window_minutes))
        num = max(least, _most_windows(shares, most / max(a_date, 1.0)))
        if num == len(shares):
            time = policy.schema.time
            return cls(policy=_narrowed(policy, time.lower, time.upper), size=size)
        sums = np.convolve(shares, np.ones(num), "valid")
        first = int(np.argmax(sums))
        lower = universe.windows[first]
        upper = universe.windows[first + num] if first + num < len(shares) else policy.schema.time.upper
        return cls(
            policy=_narrowed(policy, lower, upper),
            size=max(1, round(size * float(sums[first]))),
            says=f"Measured from {lower} to {upper} only, which stands for the whole service day.",
        )


def _most_windows(shares: FloatArray, room: float) -> int:
    """Return how many windows in a row hold at most a share of all trips, wherever they are."""
    num = len(shares)
    while num > 1 and np.convolve(shares, np.ones(num), "valid").max() > room:
        num -= 1
    return num


def _narrowed(policy: Policy, lower: str, upper: str) -> Policy:
    """Narrow the service day; times outside, and those that the clock of a zone skips, are left out."""
    trip = policy.schema.trip
    assert trip is not None  # a policy of trips
    attributes: Mapping[str, Any] = policy.document["attributes"]
    time = {**attributes[trip.time], "domain": [lower, upper], "outside": "leave-out"}
    document = {**policy.document, "attributes": {**attributes, trip.time: time}}
    return Policy.from_dict(document, path=policy.path)


def _num_dates(universe: Universe) -> int:
    return sum(universe.num_dates) or max(1, len(universe.days))


def _window_shares(universe: Universe) -> FloatArray:
    """Return the share of a date's trips in each window, as a public guess."""
    starts, lengths = window_seconds(universe)
    middles = (starts + lengths / 2) / 3600 % 24
    weights = lengths * np.interp(middles, np.arange(-1, 26) + 0.5, [_HOURS[-1], *_HOURS, *_HOURS[:2]])
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class _Drawn:
    """Single trips by the codes of their stops, their slot and their rider."""

    origins: IntArray
    destinations: IntArray
    slots: IntArray
    riders: IntArray


def alike_trips(
    policy: Policy, size: int, *, period: str | None = None, city: City | None = None, noise: Noise | None = None
) -> Dataset:
    """Generate trips from public facts alone."""
    source, universe = noise or Noise(), policy.schema.universe(period)
    pairs = _attraction(universe, city or policy.schema.city, source)
    drawn = _draw(universe, pairs, size, source)
    return _dataset(policy, period, universe, drawn, source)


def narrowed_trips(data: Dataset, policy: Policy, *, noise: Noise | None = None) -> Dataset:
    """Return the owner's trips under a narrowed policy: those of its windows, each at a random second of its own."""
    source, universe, narrow = noise or Noise(), data.schema.universe(data.period), policy.schema.universe(data.period)
    trip = data.schema.trip
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
    drawn = _Drawn(
        origins=origins,
        destinations=destinations,
        slots=days[kept] * len(narrow.windows) + windows[kept],
        riders=riders[kept],
    )
    return _dataset(policy, data.period, narrow, drawn, source)


# Where trips go


def _uniforms(noise: Noise, size: int) -> FloatArray:
    """Return numbers above 0 and below 1."""
    return np.asarray((noise_arrays.below(noise, 1 << _WORD, size) + 0.5) / float(1 << _WORD))


def _normals(noise: Noise, size: int) -> FloatArray:
    from scipy.special import ndtri

    return np.asarray(ndtri(_uniforms(noise, size)))


def _choices(noise: Noise, weights: FloatArray, size: int) -> IntArray:
    """Draw places by their weights."""
    ends = np.cumsum(weights)
    drawn = np.searchsorted(ends, _uniforms(noise, size) * ends[-1], side="right")
    return np.asarray(np.minimum(drawn, len(weights) - 1), dtype=np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Pairs:
    """How attractive pairs of some stops are, as logarithms. Shape of ``attraction``: (stops, stops)."""

    stops: IntArray
    attraction: FloatArray


def _attraction(universe: Universe, city: City | None, noise: Noise) -> _Pairs:
    num = len(universe.stops)
    stops = np.sort(noise_arrays.permutation(noise, num)[:_MOST_STOPS])
    size = len(stops)
    homes, work = _STOPS_DIFFER * _normals(noise, size), 2 * _STOPS_DIFFER * _normals(noise, size)
    pairs = _PAIRS_DIFFER * _normals(noise, size * size).reshape(size, size)
    attraction = homes[:, None] + work[None] + pairs - _deterred(universe, stops, city)
    if size > 1:
        np.fill_diagonal(attraction, -np.inf)
    return _Pairs(stops=stops, attraction=attraction)


def _deterred(universe: Universe, stops: IntArray, city: City | None) -> FloatArray:
    """Return how much distance keeps people from riding; nothing where it is not known."""
    nothing = np.zeros((len(stops), len(stops)))
    if city is None or city.lat is None or city.lon is None:
        return nothing
    places = stop_numbers(universe.stops, city)[stops]
    if (places < 0).any():
        return nothing
    apart = haversine(city.lat[places], city.lon[places])
    return np.asarray(apart / _FAR_KM + 3 * np.exp(-apart / _WALKED_KM))


def _draw(universe: Universe, pairs: _Pairs, size: int, noise: Noise) -> _Drawn:
    """Draw trips slot by slot: so many pairs, attractive ones rather, and one trip at least on each."""
    dates = np.array(universe.num_dates or [1] * max(1, len(universe.days)), dtype=np.float64)
    weights = np.outer(dates, _window_shares(universe)).reshape(-1)
    quotas = np.bincount(_choices(noise, weights, size), minlength=universe.num_slots)
    flat, found, slots = pairs.attraction.reshape(-1), [], []
    for slot in np.flatnonzero(quotas).tolist():
        num = int(quotas[slot])
        found.append(_filled(flat, num, noise))
        slots.append(np.full(num, slot))
    chosen = np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
    origins, destinations = np.divmod(chosen, len(pairs.stops))
    return _Drawn(
        origins=pairs.stops[origins],
        destinations=pairs.stops[destinations],
        slots=np.concatenate(slots) if slots else chosen,
        riders=noise_arrays.below(noise, max(1, round(size / _TRIPS_OF_RIDER)), len(chosen)),
    )


def _filled(attraction: FloatArray, num: int, noise: Noise) -> IntArray:
    """Return the pair of each of so many trips."""
    possible = int(np.isfinite(attraction).sum())
    num_pairs = max(1, min(num, possible, round(_PAIRS_OF_ONE * num**_PAIRS_GROW)))
    noisy = attraction + _WINDOWS_DIFFER * _normals(noise, len(attraction))
    busiest = np.argsort(-noisy, kind="stable")[:num_pairs]
    falling = (np.arange(num_pairs) + _RANK_OFFSET) ** -_RANK_POWER
    return np.concatenate([busiest, busiest[_choices(noise, falling, num - num_pairs)]])


# As rows


def _dataset(policy: Policy, period: str | None, universe: Universe, drawn: _Drawn, noise: Noise) -> Dataset:
    """Write trips as rows that the policy reads."""
    trip = policy.schema.trip
    assert trip is not None
    days, windows = np.divmod(drawn.slots, len(universe.windows))
    starts, lengths = window_seconds(universe)
    seconds = starts[windows] + noise_arrays.below_each(noise, lengths[windows])
    names = np.array(universe.stops, dtype=object)
    columns: dict[str, Any] = {
        trip.origin: pa.array(names[drawn.origins].tolist(), pa.string()),
        trip.destination: pa.array(names[drawn.destinations].tolist(), pa.string()),
        trip.time: pa.array(_times(policy.schema.time, period, days, seconds, noise), pa.string()),
    }
    if trip.count is not None:
        columns[trip.count] = pa.array(["1"] * len(seconds), pa.string())
    if trip.day is not None:
        columns[trip.day] = pa.array([universe.days[day] for day in days.tolist()], pa.string())
    for attribute in policy.schema:
        columns.setdefault(attribute.name, pa.array([f"r{rider}" for rider in drawn.riders.tolist()], pa.string()))
    return Dataset.from_table(pa.table(columns), policy, period=period, source="generated trips")


def _times(time: Windows, period: str | None, days: IntArray, seconds: IntArray, noise: Noise) -> list[str]:
    """Write moments as a policy of trips reads them: with a date where days are told apart or counted."""
    calendar = time.calendar(period)
    if calendar is None and time.day is None:
        return [_clock(second) for second in seconds.tolist()]
    known = np.arange(*((calendar.start, calendar.stop) if calendar else (_SOME_MONDAY, _SOME_MONDAY + 7)))
    codes = time.day_codes(known, period)
    ordinals = np.zeros(len(days), dtype=np.int64)
    for day in np.unique(days if time.day is not None else np.zeros_like(days)).tolist():
        rows = np.flatnonzero(days == day) if time.day is not None else np.arange(len(days))
        own = known[codes == day]
        ordinals[rows] = own[noise_arrays.below(noise, len(own), len(rows))]
    later, within = np.divmod(seconds, DAY_SECONDS)
    dated = zip((ordinals + later).tolist(), within.tolist(), strict=True)
    return [f"{date.fromordinal(ordinal).isoformat()}T{_clock(second)}" for ordinal, second in dated]


def _clock(second: int) -> str:
    return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


# What goals about trips share


@dataclass(frozen=True, eq=False, kw_only=True)
class TripCase(Case):
    """Trips, and the slice of the day that is measured."""

    part: Slice  # The slice, with its policy
    place: City | None = None  # The city whose distances generated trips go by, where there is one
    size: int  # Trips on all dates, for the whole service day, as they are generated
    says: tuple[str, ...] = ()  # Sentences about what was measured

    @property
    def trips(self) -> Dataset:
        """The owner's trips."""
        found: Dataset = self.data
        return found

    def drawn(self, mechanism: Mapping[str, Any], on: str) -> Dataset:
        """Return trips to be released by a mechanism: the owner's, or new ones at each call."""
        policy = with_mechanism(self.part.policy, mechanism)
        if on == DATA:
            return narrowed_trips(self.trips, policy)
        return alike_trips(policy, self.part.size, period=self.asked.period, city=self.place)


_PLACEHOLDER = {"name": "noisy-counts", "epsilon": 1}


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
    on_data = asked.on == DATA
    size = num if on_data else asked.size or rounded(num)
    part = Slice.of(policy, size, period=asked.period, most=size if most is None else most)
    return TripCase(
        asked=asked,
        data=data,
        digest=hashlib.sha256(f"{data.keyed_digest(b'advise')} {sorted(policy.files.items())}".encode()).hexdigest(),
        part=part,
        place=place,
        size=size,
        says=tuple(line for line in (_size_says(asked, size), part.says) if line),
    )


def _size_says(asked: Asked, size: int) -> str:
    if asked.on == DATA:
        return ""
    if asked.size is not None:
        return f"Generated trips are {size:,}, as was asked for."
    return (
        f"Generated trips are {size:,}: as many as the data have, rounded to one digit. The number of trips "
        "is not public under such a policy; give --size if even that says too much."
    )


def released_counts_of(data: Dataset) -> tuple[Release, Counted]:
    """Release trips under their policy, in memory and without a ledger of the owner's; also return the truth."""
    with Ledger(":memory:") as ledger:
        publication = publish(data, ledger=ledger)
    return publication.release, true_counts(data)


EPSILONS, QUICK_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0), (0.3, 1.0, 3.0)
_SHARES = ("uniform", "cells", "margins")
_CREATED = 0.05
"""Trips that noise may create on average, as a part of all, where a threshold is set."""


def count_tasks(case: TripCase) -> tuple[list[Task], list[Failure]]:
    """List mechanisms of counts and their parameters, as far as public facts allow them."""
    policy, on = case.asked.base.policy(_PLACEHOLDER), DATA if case.asked.on == DATA else GENERATED
    found: list[Task] = []
    failed: list[Failure] = []
    for name, parameters in _candidates(case, policy):
        title = _title(name, parameters)
        try:
            promise = promise_of(with_mechanism(policy, {"name": name, **parameters}))
        except PolicyError as error:
            why = "; ".join(str(problem) for problem in error.problems)
            failed.append(Failure(name=title, why=" ".join(why.split())))
            continue
        found.append(
            Task(
                name=title,
                mechanism=name,
                parameters=parameters,
                guarantee=f"{in_words(promise.guarantee)}, one {policy.schema.protects}",
                basis=str(promise.basis),
                on=on,
            )
        )
    return found, failed


def _candidates(case: TripCase, policy: Policy) -> Iterator[tuple[str, dict[str, Any]]]:
    features = _richest(policy)
    epsilons = QUICK_EPSILONS if case.asked.quick else EPSILONS
    shares = ("uniform", "margins") if case.asked.quick else _SHARES
    for share in shares:
        for epsilon in epsilons:
            yield "constrained-counts", {"epsilon": epsilon, "features": f"O{features}", "budget_shares": share}
    for epsilon in epsilons if not case.asked.quick else ():
        yield "hierarchical-counts", {"epsilon": epsilon, "features": f"H{features}"}
    for epsilon in epsilons:
        threshold = _threshold(policy, case, epsilon)
        if threshold == 1 or not case.asked.quick:
            yield "noisy-counts", {"epsilon": epsilon}
        if threshold > 1:
            yield "noisy-counts", {"epsilon": epsilon, "threshold": threshold}


def _richest(policy: Policy) -> int:
    """Return the number of features of the paper that public facts allow: with zones 4, with modes 5."""
    city = policy.schema.city
    if city is None or city.zones is None:
        return 3
    return 4 if city.modes is None else 5


def _threshold(policy: Policy, case: TripCase, epsilon: float) -> int:
    """Return the least threshold at which noise creates few trips; by public facts and the rough number of trips."""
    cells = policy.schema.universe(case.asked.period).num_cells
    scale = exact(sensitivity(policy.schema, case.asked.period)) / exact(epsilon)
    law, room = RoundedLaplace(scale), _CREATED * case.size / cells
    threshold = 1
    while surplus(law, threshold) > room and threshold < MOST_THRESHOLD:
        threshold += max(1, threshold // 8)
    return threshold


def _title(name: str, parameters: Mapping[str, Any]) -> str:
    more = [str(parameters[key]) for key in ("features", "budget_shares") if key in parameters]
    more += [f"threshold {parameters['threshold']}"] if "threshold" in parameters else []
    return " ".join([name, *more, f"epsilon={parameters['epsilon']:g}"])


def membership_says(policy: Policy) -> str:
    """Say what the risk is where trips or riders are hidden by noise."""
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
