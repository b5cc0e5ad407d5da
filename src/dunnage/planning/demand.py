# SPDX-License-Identifier: Apache-2.0
"""Demand: released counts expanded to single trips, each with a second, and the shuttle rides that these trips need.

Counts are by windows of time. An *expansion* gives each trip a uniformly random second of its window. If counts are for
several dates together, an expansion is one such date: with n dates, it contains each trip with probability 1/n. All of
it is sampled from released numbers by a seeded generator: the same seed gives the same trips.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import IntArray
from dunnage.errors import ParameterError
from dunnage.exact import shown
from dunnage.model.city import City
from dunnage.model.routes import Routes, find_routes
from dunnage.model.trips import Universe
from dunnage.planning.dispatch import Requests
from dunnage.release import Release
from dunnage.release.kinds import COUNTS

MAX_TRIPS = 5_000_000  # in an expanded day
_MAX_STOPS_NAMED = 5
_MAX_STOPS_FOR_PATHS = 1_500
Dates = int | Mapping[str, int]  # How many dates trips cover: in all, or for each label of days
WHOLE_DAY = "all days"  # label of the only day if the release does not distinguish days


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Trips:
    """Single trips of one day, by the second at which they begin. Its ``repr`` shows no trips."""

    origin: IntArray  # origin, destination: stops of a city, by number
    destination: IntArray
    seconds: IntArray  # of the service day

    def __len__(self) -> int:
        return len(self.seconds)

    @classmethod
    def none(cls) -> Trips:
        return cls(**{name: np.zeros(0, dtype=np.int64) for name in ("origin", "destination", "seconds")})

    @classmethod
    def in_order(cls, origin: IntArray, destination: IntArray, seconds: IntArray) -> Trips:
        order = np.argsort(seconds, kind="stable")
        return cls(origin=origin[order], destination=destination[order], seconds=seconds[order])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TripCounts:
    """Trips by type, with stops numbered as in a city. Its ``repr`` shows no trips."""

    origin: IntArray  # origin, destination: stops of the city, by number. Shapes of these and the next three: types
    destination: IntArray
    day: IntArray  # day, start, length: number of the day, first second of the window, and its seconds
    start: IntArray
    length: IntArray
    count: IntArray  # trips of the type, on all dates of its day together
    days: tuple[str, ...]  # days, num_dates: labels of the days, and the number of dates of each
    num_dates: tuple[int, ...]

    def trips_a_date(self, day: int) -> float:
        return float(self.count[self.day == day].sum()) / self.num_dates[day]

    def expanded(self, day: int, seed: Sequence[int]) -> Trips:
        if (num := self.trips_a_date(day)) > MAX_TRIPS:
            raise ParameterError(
                f"a fleet can be sized for at most {MAX_TRIPS:,} trips a day. Got {num:,.0f}; noise may have created "
                "most of them. Publish with a threshold, or with constrained counts."
            )
        # No privacy depends on this generator: either the counts are released, or the owner sampled the seed from
        # noise.
        generator = np.random.default_rng(seed)
        of_day = np.flatnonzero(self.day == day)
        counts = self.count[of_day]
        if self.num_dates[day] > 1:
            counts = generator.binomial(counts, 1 / self.num_dates[day])
        each = np.repeat(of_day, counts)
        seconds = self.start[each] + generator.integers(0, self.length[each])
        return Trips.in_order(self.origin[each], self.destination[each], seconds)


def check_arrivals(universe: Universe) -> None:
    if not universe.arrives:
        raise ParameterError(
            "shuttles drive from stop to stop, and boardings have no destination, so no fleet can be sized for them. "
            "If riders have cards, dunnage taps infers where they went: count those trips."
        )


def released_counts(release: Release, city: City, dates: Dates | None = None) -> TripCounts:
    if release.kind != COUNTS:
        raise ParameterError(
            f"a fleet needs a release of counts of trips. Got a release of {release.kind}. Publish with noisy-counts, "
            "hierarchical-counts or constrained-counts."
        )
    if not release.universe.of_trips:
        raise ParameterError(
            "a fleet needs counts of trips between stops. These are counts of records by "
            f"{', '.join(release.universe.columns)}. Publish trips under a policy with [trip]."
        )
    check_arrivals(release.universe)
    if release.universe.level != "stop":
        raise ParameterError(
            "shuttles drive between stops, and this release counts trips between zones. Publish another release with "
            'level = "stop" in [trip] (it spends again). If publish refuses its counts as noise, sums by zone may '
            "still be good enough for a fleet: the message says so, and --allow-noise publishes them."
        )
    cells, counts = release.counted()
    return counted_trips(with_dates(release.universe, dates), cells, counts, city)


def counted_trips(universe: Universe, cells: IntArray, counts: IntArray, city: City) -> TripCounts:
    kept = counts > 0
    cells, counts = cells[kept], counts[kept]
    pairs, slots = universe.split(cells)
    ends = universe.pair_ends(pairs)
    number = stop_numbers(universe.stops, city)
    used = np.unique(np.concatenate(ends)).tolist()
    if missing := [universe.stops[code] for code in used if number[code] < 0]:  # stops without trips do not matter
        first = ", ".join(map(repr, missing[:_MAX_STOPS_NAMED]))
        more = f" and {len(missing) - _MAX_STOPS_NAMED} more" if len(missing) > _MAX_STOPS_NAMED else ""
        raise ParameterError(f"the city lacks stops of these trips: {first}{more}. Use the city of the trips.")
    days, windows = np.divmod(slots, len(universe.windows))
    starts, lengths = window_seconds(universe)
    return TripCounts(
        origin=number[ends[0]],
        destination=number[ends[1]],
        day=days,
        start=starts[windows],
        length=lengths[windows],
        count=counts,
        days=universe.days or (WHOLE_DAY,),
        num_dates=dates_of_days(universe),
    )


def dates_of_days(universe: Universe) -> tuple[int, ...]:
    """Return the number of dates of each day; refuse to guess it."""
    if not universe.num_dates:
        given = " ".join(f"--dates {label}=N" for label in universe.days) or "--dates N, such as --dates 5"
        raise ParameterError(
            "the release does not say how many dates its trips cover, so the trips of one day are unknown. Ask the "
            f"owner and give {given}. (The owner can state it in the policy: [expect] dates.)"
        )
    return universe.num_dates


def with_dates(universe: Universe, dates: Dates | None) -> Universe:
    """Add the number of dates to a universe that does not state it: one for all days, or one for each label."""
    if dates is None:
        return universe
    labels = universe.days
    if isinstance(dates, int) and labels:
        raise ParameterError(f"days are counted separately. Give the dates of each: {', '.join(labels)}.")
    if not isinstance(dates, int) and set(dates) != set(labels):
        raise ParameterError(
            f"dates need a number for each of {', '.join(labels) or 'no labels'}. Got {shown(dict(dates))}."
        )
    given = (dates,) if isinstance(dates, int) else tuple(dates[label] for label in labels)
    if min(given) < 1:
        raise ParameterError(f"dates must be 1 or more. Got {min(given)}.")
    if universe.num_dates and given != universe.num_dates:
        stated = ", ".join(map(str, universe.num_dates))
        raise ParameterError(f"the release itself states the number of its dates, {stated}. Leave dates out.")
    return replace(universe, num_dates=given)


def stop_numbers(stops: Sequence[str], city: City) -> IntArray:
    """Return the number of each stop in a city; -1 if the city lacks it."""
    number = {stop: place for place, stop in enumerate(city.stops)}
    return np.array([number.get(stop, -1) for stop in stops], dtype=np.int64)


def window_seconds(universe: Universe) -> tuple[IntArray, IntArray]:
    """Return the first second and the length of each window; the last may be shorter than the others."""
    hours = np.array([[int(part) for part in label.split(":")] for label in universe.windows], dtype=np.int64)
    starts = hours[:, 0] * 3600 + hours[:, 1] * 60
    lengths = np.full(len(starts), 60 * universe.window_minutes, dtype=np.int64)
    if universe.time is not None:
        lengths = np.minimum(lengths, universe.time.upper_seconds - starts)
    return starts, lengths


def service_seconds(universe: Universe) -> tuple[int, int]:
    starts, lengths = window_seconds(universe)
    return int(starts[0]), int(starts[-1] + lengths[-1])


def shuttle_requests(trips: Trips, routes: Routes, times: NDArray[np.int32]) -> Requests:
    # The earliest request of a second ride assumes that the first shuttle came at once and drove directly. A ride that
    # would end where it begins is left out: its rider is already there.
    pairs = routes.pairs(trips.origin, trips.destination)
    drop, pickup = routes.first_drop[pairs].astype(np.int64), routes.second_pickup[pairs].astype(np.int64)
    lag = routes.lag_seconds[pairs].astype(np.int64)
    first = np.flatnonzero((drop >= 0) & (drop != trips.origin))
    second = np.flatnonzero((pickup >= 0) & (pickup != trips.destination))
    leg_before = np.full(len(trips), -1, dtype=np.int64)
    leg_before[first] = np.arange(len(first))
    direct = np.zeros(len(trips), dtype=np.int64)
    direct[first] = times[trips.origin[first], drop[first]]
    # legs : first rides, then second rides
    after = np.concatenate([np.full(len(first), -1, dtype=np.int64), leg_before[second]])
    seconds = np.concatenate([trips.seconds[first], (trips.seconds + direct + lag)[second]])
    order = np.argsort(seconds, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    after = np.where(after >= 0, place[after], -1) if len(place) else after
    zone = np.concatenate([routes.first_zone[pairs[first]], routes.second_zone[pairs[second]]])
    return Requests(
        rider=np.concatenate([first, second])[order],
        zone=zone[order].astype(np.int32),
        origin=np.concatenate([trips.origin[first], pickup[second]])[order].astype(np.int32),
        destination=np.concatenate([drop[first], trips.destination[second]])[order].astype(np.int32),
        seconds=seconds[order],
        after=after[order],
        lag=np.where(after >= 0, np.concatenate([np.zeros(len(first), dtype=np.int64), lag[second]]), 0)[order],
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Ground:
    """Where fleets run: a city with everything that sizing needs, and the route of each pair of stops."""

    city: City
    routes: Routes

    @classmethod
    def of(cls, city: City, routes: Routes | None = None) -> Ground:
        ready = city.for_fleets()
        return cls(city=ready, routes=routes or find_routes(ready))

    @property
    def zones(self) -> tuple[str, ...]:
        return self.city.zone_names

    @property
    def times(self) -> NDArray[np.int32]:
        assert self.city.times is not None  # completed
        return self.city.times

    @cached_property
    def homes(self) -> list[list[int]]:
        """Stops where the shuttles of each zone start and park: its hubs, or else the stop nearest to all others."""
        zones, hubs = self.city.zones, self.city.hubs
        assert zones is not None  # completed
        homes = []
        for zone in range(len(self.zones)):
            own = np.flatnonzero(zones == zone)
            parks = own[hubs[own]] if hubs is not None else own[:0]
            if not len(parks) and len(own):
                parks = own[[np.argmin(self.times[np.ix_(own, own)].sum(axis=1, dtype=np.int64))]]
            homes.append(parks.tolist() or [0])  # without stops there are no rides
        return homes

    @cached_property
    def shortest(self) -> NDArray[np.int32] | None:
        """Seconds between stops on the quickest path; None if there are too many stops."""
        if len(self.times) > _MAX_STOPS_FOR_PATHS:
            return None
        seconds = self.times.copy()
        for stop in range(len(seconds)):
            np.minimum(seconds, seconds[:, stop, None] + seconds[None, stop], out=seconds)
        return seconds

    def digest(self) -> str:
        city, state = self.city, hashlib.sha256()
        state.update("\0".join((*city.stops, "", *city.zone_names, "", *city.mode_names)).encode())
        buses = city.buses
        columns = [] if buses is None else [buses.origins, buses.destinations, buses.seconds, buses.headway_seconds]
        if buses is not None and buses.seats is not None:  # cities without seats keep the digest of earlier versions
            columns.append(buses.seats)
        for array in (city.zones, city.hubs, city.times, city.modes, *columns):
            state.update(b"\0" if array is None else np.ascontiguousarray(array).tobytes())
        return state.hexdigest()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Day:
    trips: Trips
    requests: Requests
    weight: float = 1.0  # number of days it represents
    label: str = ""

    @classmethod
    def of(cls, trips: Trips, ground: Ground, weight: float = 1.0) -> Day:
        return cls(trips=trips, requests=shuttle_requests(trips, ground.routes, ground.times), weight=weight)
