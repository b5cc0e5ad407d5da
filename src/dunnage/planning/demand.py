# SPDX-License-Identifier: Apache-2.0
"""Demand: released counts of trips as single trips with a second each, and the shuttle rides they ask for.

Counts tell trips by windows of time. An *expansion* gives each trip a uniform second of its window. What several dates
share is spread over them: an expansion is then one such date, each trip made on it with probability one in their
number. All of it is drawn from released numbers, by a seeded generator: the same seed gives the same trips.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import IntArray
from dunnage.errors import ParameterError
from dunnage.model.city import City
from dunnage.model.routes import Routes, find_routes
from dunnage.model.trips import Universe
from dunnage.planning.dispatch import Requests
from dunnage.release import Release
from dunnage.release.kinds import COUNTS

MAX_TRIPS = 5_000_000  # of one day that are expanded
_MAX_STOPS_NAMED = 5
_MAX_STOPS_FOR_PATHS = 1_500
WHOLE_DAY = "all days"  # what a day is called where days are not told apart


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Trips:
    """Single trips of one day, by the second at which they begin. Its ``repr`` shows none of them."""

    origin: IntArray  # origin, destination: stops of a city, by number
    destination: IntArray
    seconds: IntArray  # Second of the service day

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
    """Trips by type, with stops numbered as in a city. Its ``repr`` shows none of them."""

    origin: IntArray  # origin, destination: stops of the city, by number. Shapes of these and the next three: types
    destination: IntArray
    day: IntArray  # day, start, length: number of the day, first second of the window, and its seconds
    start: IntArray
    length: IntArray
    count: IntArray  # Trips of the type, on all dates of its day together
    days: tuple[str, ...]  # days, num_dates: labels of the days, and how many dates each stands for
    num_dates: tuple[int, ...]

    def trips_a_date(self, day: int) -> float:
        """Return how many trips a date of a day has on average."""
        return float(self.count[self.day == day].sum()) / self.num_dates[day]

    def expanded(self, day: int, seed: Sequence[int]) -> Trips:
        if (num := self.trips_a_date(day)) > MAX_TRIPS:
            raise ParameterError(
                f"a fleet is sized for at most {MAX_TRIPS:,} trips a day. Got {num:,.0f}: noise may have made most of "
                "them. Publish with a threshold, or with constrained counts."
            )
        # No privacy rests on it: counts are released ones, or the owner drew the seed from noise.
        generator = np.random.default_rng(seed)
        of_day = np.flatnonzero(self.day == day)
        counts = self.count[of_day]
        if self.num_dates[day] > 1:
            counts = generator.binomial(counts, 1 / self.num_dates[day])
        each = np.repeat(of_day, counts)
        seconds = self.start[each] + generator.integers(0, self.length[each])
        return Trips.in_order(self.origin[each], self.destination[each], seconds)


def released_counts(release: Release, city: City) -> TripCounts:
    """Return the trips that a release of counts tells of, in a city."""
    if release.kind != COUNTS:
        raise ParameterError(
            f"a fleet is sized on counts of trips. Got a release of {release.kind}. Publish counts: noisy-counts, "
            "hierarchical-counts or constrained-counts."
        )
    cells, counts = release.counted()
    return counted_trips(release.universe, cells, counts, city)


def counted_trips(universe: Universe, cells: IntArray, counts: IntArray, city: City) -> TripCounts:
    """Give cells of a universe of trips the numbers that stops have in a city, and the seconds of their windows."""
    kept = counts > 0
    cells, counts = cells[kept], counts[kept]
    pairs, slots = universe.split(cells)
    ends = np.divmod(pairs, len(universe.stops))
    number = stop_numbers(universe.stops, city)
    used = np.unique(np.concatenate(ends)).tolist()
    lacking = [universe.stops[code] for code in used if number[code] < 0]
    if lacking:  # stops without trips do not matter
        named = ", ".join(map(repr, lacking[:_MAX_STOPS_NAMED]))
        more = f" and {len(lacking) - _MAX_STOPS_NAMED} more" if len(lacking) > _MAX_STOPS_NAMED else ""
        raise ParameterError(
            f"the city lacks stops that trips begin or end at: {named}{more}. Give the city they are in."
        )
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
    """Return how many dates each day that is told apart stands for; one where that is not known."""
    known = universe.num_dates or (1,) * max(1, len(universe.days))
    return tuple(max(1, num) for num in known)


def stop_numbers(stops: Sequence[str], city: City) -> IntArray:
    """Return the number that each stop has in a city, -1 for one that it lacks."""
    number = {stop: place for place, stop in enumerate(city.stops)}
    return np.array([number.get(stop, -1) for stop in stops], dtype=np.int64)


def window_seconds(universe: Universe) -> tuple[IntArray, IntArray]:
    """Return first second and length of each window; the last may be shorter than the others."""
    hours = np.array([[int(part) for part in label.split(":")] for label in universe.windows], dtype=np.int64)
    starts = hours[:, 0] * 3600 + hours[:, 1] * 60
    lengths = np.full(len(starts), 60 * universe.window_minutes, dtype=np.int64)
    if universe.time is not None:
        lengths = np.minimum(lengths, universe.time.upper_seconds - starts)
    return starts, lengths


def service_seconds(universe: Universe) -> tuple[int, int]:
    """Return the first second of the service day and the one after its last."""
    starts, lengths = window_seconds(universe)
    return int(starts[0]), int(starts[-1] + lengths[-1])


def shuttle_requests(trips: Trips, routes: Routes, times: NDArray[np.int32]) -> Requests:
    """Return the shuttle rides that trips ask for, in the order in which they can be requested at the earliest.

    A ride that follows another is requested at the earliest when the first shuttle drove straight and at once. A ride
    that would end where it begins is none: its rider is there.
    """
    pairs = routes.pairs(trips.origin, trips.destination)
    drop, pickup = routes.first_drop[pairs].astype(np.int64), routes.second_pickup[pairs].astype(np.int64)
    lag = routes.lag_seconds[pairs].astype(np.int64)
    first = np.flatnonzero((drop >= 0) & (drop != trips.origin))
    second = np.flatnonzero((pickup >= 0) & (pickup != trips.destination))
    leg_before = np.full(len(trips), -1, dtype=np.int64)
    leg_before[first] = np.arange(len(first))
    direct = np.zeros(len(trips), dtype=np.int64)
    direct[first] = times[trips.origin[first], drop[first]]
    # legs : first rides, then second ones
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
    """Where fleets run: a city with all that sizing needs, and how each pair of stops is travelled."""

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
        """Stops where the shuttles of each zone start and park: its hubs, or else the stop nearest to all of it."""
        zones, hubs = self.city.zones, self.city.hubs
        assert zones is not None  # completed
        homes = []
        for zone in range(len(self.zones)):
            own = np.flatnonzero(zones == zone)
            parks = own[hubs[own]] if hubs is not None else own[:0]
            if not len(parks) and len(own):
                parks = own[[np.argmin(self.times[np.ix_(own, own)].sum(axis=1, dtype=np.int64))]]
            homes.append(parks.tolist() or [0])  # without stops there are no rides either
        return homes

    @cached_property
    def shortest(self) -> NDArray[np.int32] | None:
        """Seconds between stops by whatever way is quickest; None where there are too many stops to tell."""
        if len(self.times) > _MAX_STOPS_FOR_PATHS:
            return None
        seconds = self.times.copy()
        for stop in range(len(seconds)):
            np.minimum(seconds, seconds[:, stop, None] + seconds[None, stop], out=seconds)
        return seconds

    def digest(self) -> str:
        """Return a digest of everything about the city that a fleet depends on."""
        city, state = self.city, hashlib.sha256()
        state.update("\0".join((*city.stops, "", *city.zone_names, "", *city.mode_names)).encode())
        buses = city.buses
        columns = () if buses is None else (buses.origins, buses.destinations, buses.seconds, buses.headway_seconds)
        for array in (city.zones, city.hubs, city.times, city.modes, *columns):
            state.update(b"\0" if array is None else np.ascontiguousarray(array).tobytes())
        return state.hexdigest()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Day:
    """Trips of one day and the shuttle rides they ask for. Its ``repr`` shows none of them."""

    trips: Trips  # trips, requests: the trips, and their shuttle rides
    requests: Requests
    weight: float = 1.0  # How many days it stands for
    label: str = ""  # What it is called

    @classmethod
    def of(cls, trips: Trips, ground: Ground, weight: float = 1.0) -> Day:
        return cls(trips=trips, requests=shuttle_requests(trips, ground.routes, ground.times), weight=weight)
