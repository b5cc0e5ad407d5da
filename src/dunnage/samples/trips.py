# SPDX-License-Identifier: Apache-2.0
"""Generated trips of one day in a town, as many and as sparse as in a published case study.

Fioretto, Lee and Van Hentenryck 2018 protect the trips of a weekday in Ann Arbor. Their data are not public. These data
match every count that they state: 130 stops (so 16,900 pairs), half-hours of a day, 37,714 trips; between 8 and 10 am,
67,600 types of trip, of which 591 occur, and 4,878 trips. Everything else is our choice, including the total of the
weekend. The town is public and the same for every seed; it has as many stops, zones and modes as theirs, and lies where
Ann Arbor is. Trips can be generated in any other city too.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.model.city import EARTH_KM, Buses, City
from dunnage.model.routes import find_routes
from dunnage.model.trips import END_COLUMNS, Level
from dunnage.samples import common
from dunnage.text import several

ZONES = ("north", "east", "south", "west")
MAX_STOPS, MAX_ZONES = 4_000, 100

_NUM_STOPS = 130
_RADIUS_KM = 6.5
_DENSER_INSIDE = 0.75
_JITTER = 0.35
_CENTRE_DEGREES = (42.2808, -83.7430)
_KM_PER_DEGREE = 111.32
# The hub in the centre, then the inner hub of each zone, then the outer hubs.
_INNER_KM, _OUTER_KM = 1.6, 4.2
_SHUTTLE_KMH, _BUS_KMH = 20.0, 30.0
_HEADWAY_SECONDS = 480


@dataclass(frozen=True, eq=False, kw_only=True)
class Town:
    names: tuple[str, ...]  # of the stops
    places: FloatArray  # km east and north of the centre. Shape: stops, 2
    scale: float = 1.0  # size of the town of the case study, relative to this one

    @staticmethod
    def of(city: City) -> Town:
        """Project a city onto a plane around the middle of its stops."""
        if city.lat is None or city.lon is None or len(city.stops) < 2:
            raise ParameterError(
                "generated trips need a city with at least two stops that have coordinates. Add lat and lon to its "
                "stops.csv, or more stops."
            )
        middle = np.radians(np.median(city.lat))
        # Around the median, never the long way around the globe.
        away = (city.lon - city.lon[np.argsort(city.lon, kind="stable")[len(city.lon) // 2]] + 180) % 360 - 180
        per_degree = np.radians(EARTH_KM)
        places = per_degree * np.column_stack([away * np.cos(middle), city.lat - np.median(city.lat)])
        far = float(np.linalg.norm(places, axis=1).mean())
        usual = float(np.linalg.norm(lay_town().places, axis=1).mean())
        return Town(names=city.stops, places=places, scale=usual / far if far > 0 else 1.0)

    @cached_property
    def apart(self) -> FloatArray:
        return np.asarray(np.linalg.norm(self.places[:, None] - self.places[None], axis=2))


@dataclass(frozen=True, eq=False, kw_only=True)
class MadeTown(Town):
    zone_names: tuple[str, ...]
    zones: IntArray  # of each stop
    hubs: IntArray  # stops that are hubs; the first is in the centre, and all zones share it
    lines: tuple[tuple[int, ...], ...]  # bus lines, each as its hubs, by their places in `hubs`

    @cached_property
    def city(self) -> City:
        lat = _CENTRE_DEGREES[0] + self.places[:, 1] / _KM_PER_DEGREE
        lon = _CENTRE_DEGREES[1] + self.places[:, 0] / (_KM_PER_DEGREE * np.cos(np.radians(_CENTRE_DEGREES[0])))
        # Each ride along a bus line; if lines share a ride, the quickest.
        far = self.apart[np.ix_(self.hubs, self.hubs)]
        rides: dict[tuple[int, int], int] = {}
        for line in self.lines:
            along = np.cumsum([0.0, *(far[start, end] for start, end in itertools.pairwise(line))])
            for (here, start), (there, end) in itertools.permutations(enumerate(line), 2):
                seconds = round(abs(along[there] - along[here]) / _BUS_KMH * 3600)
                pair = (int(self.hubs[start]), int(self.hubs[end]))
                rides[pair] = min(seconds, rides.get(pair, seconds))
        pairs = sorted(rides)
        ends = np.array(pairs, dtype=np.int32).reshape(-1, 2)
        buses = Buses(
            origins=ends[:, 0],
            destinations=ends[:, 1],
            seconds=np.array([rides[pair] for pair in pairs], dtype=np.int32),
            headway_seconds=np.full(len(pairs), _HEADWAY_SECONDS, dtype=np.int32),
        )
        city = City(
            stops=self.names,
            zone_names=self.zone_names,
            zones=self.zones.astype(np.int32),
            lat=np.round(lat, 6),
            lon=np.round(lon, 6),
            hubs=np.isin(np.arange(len(self.names)), self.hubs),
            times=np.rint(self.apart * (3600 / _SHUTTLE_KMH)).astype(np.int32),
            buses=buses,
            assumed=(
                "The city is invented.",
                f"Shuttles drive at {_SHUTTLE_KMH:g} km/h and buses at {_BUS_KMH:g} km/h, in a straight line.",
                f"Buses run every {_HEADWAY_SECONDS / 60:g} minutes.",
            ),
        )
        routes = find_routes(city)
        return city.with_modes(routes.mode_names, routes.mode)


@lru_cache(maxsize=4)
def lay_town(num_stops: int = _NUM_STOPS, num_zones: int = len(ZONES), seed: int | None = None) -> MadeTown:
    """Place stops on a spiral, denser inside; divide them into zones; choose hubs near their ideal places."""
    if not 1 <= num_zones <= MAX_ZONES:
        raise ParameterError(f"the number of zones must be from 1 to {MAX_ZONES}. Got {num_zones}.")
    if not 2 <= num_stops <= MAX_STOPS:
        raise ParameterError(f"the number of stops must be from 2 to {MAX_STOPS}. Got {num_stops}.")
    size = float(np.sqrt(num_stops / _NUM_STOPS))
    turn = np.arange(num_stops) * np.pi * (3 - np.sqrt(5))
    out = _RADIUS_KM * ((np.arange(num_stops) + 0.5) / num_stops) ** _DENSER_INSIDE
    places = out[:, None] * np.column_stack([np.sin(turn), np.cos(turn)])
    if seed is not None:
        nudge = _JITTER * _RADIUS_KM / np.sqrt(num_stops)
        places = places + nudge * np.random.default_rng(seed).standard_normal((num_stops, 2))
    places = size * places
    step = 360 / num_zones
    zones = ((np.degrees(np.arctan2(places[:, 0], places[:, 1])) + step / 2) // step % num_zones).astype(np.int64)
    # Sorted by zone, and outwards within each.
    order = np.argsort(zones, kind="stable")
    places, zones = places[order], zones[order]
    names = ZONES if num_zones == len(ZONES) else tuple(f"zone {zone + 1}" for zone in range(num_zones))
    angle = np.radians(step * np.arange(num_zones))
    towards = np.column_stack([np.sin(angle), np.cos(angle)])
    wanted = size * np.concatenate([np.zeros((1, 2)), _INNER_KM * towards, _OUTER_KM * towards])
    hubs = np.argmin(np.linalg.norm(places[None] - wanted[:, None], axis=2), axis=1)
    if len(set(hubs.tolist())) < len(hubs) or len(set(zones.tolist())) < num_zones:
        raise ParameterError(
            f"{several(num_stops, 'stop')} are too few for {several(num_zones, 'zone')} with two hubs each. Use more "
            f"stops{' or fewer zones' if num_zones > 1 else ''}."
        )
    rank = np.arange(num_stops) - np.searchsorted(zones, zones) + 1
    digits = max(2, len(str(rank.max())))
    short = [name[0].upper() if name in ZONES else f"Z{name.removeprefix('zone ')}-" for name in names]
    # Lines join opposite zones through the centre, and the outer hubs of neighbouring zones in pairs.
    half = num_zones // 2
    across = [(1 + num_zones + a, 1 + a, 0, 1 + a + half, 1 + num_zones + a + half) for a in range(half)]
    alone = [(2 * num_zones, num_zones, 0)] if num_zones % 2 else []
    outside = [(1 + num_zones + a, 2 + num_zones + a) for a in range(0, num_zones - 1, 2)] if num_zones > 2 else []
    return MadeTown(
        names=tuple(f"{short[zone]}{place:0{digits}d}" for zone, place in zip(zones, rank, strict=True)),
        places=places,
        scale=1 / size,
        zone_names=names,
        zones=zones,
        hubs=hubs,
        lines=(*across, *alone, *outside),
    )


def trip_stops() -> pa.Table:
    """Return the stops of generated trips: ``stop``, ``zone``, ``lat``, ``lon``, ``hub``; the same for every seed."""
    here = lay_town()
    return pa.table(
        {
            "stop": list(here.names),
            "zone": common.texts(ZONES, here.zones),
            "lat": here.city.lat,
            "lon": here.city.lon,
            "hub": here.city.hubs,
        }
    )


def trip_modes() -> pa.Table:
    """Return the quickest of the twelve ``TRIP_MODES`` of each pair of stops: ``origin``, ``destination``, ``mode``.

    Riders walk at most 800 m. Shuttles go from door to door within their zone, and to and from its hubs and the central
    hub, where riders can change to the shuttle of another zone (``shuttle-hub-shuttle``).
    """
    city = lay_town().city
    num = len(city.stops)
    assert city.modes is not None
    return pa.table(
        {
            "origin": common.texts(city.stops, np.repeat(np.arange(num), num)),
            "destination": common.texts(city.stops, np.tile(np.arange(num), num)),
            "mode": common.texts(city.mode_names, city.modes.reshape(-1).astype(np.int64)),
        }
    )


# Generated cities, for demos and tests of fleets
@dataclass(frozen=True, kw_only=True)
class CitySetting:
    stops: int = _NUM_STOPS
    zones: int = len(ZONES)  # each has two hubs; all share another hub in the centre


def city(stops: int = _NUM_STOPS, zones: int = len(ZONES), seed: int | None = None) -> City:
    return lay_town(stops, zones, seed).city


def generate_city(
    setting: CitySetting, out: str | os.PathLike[str], *, seed: int | None = None, force: bool = False
) -> Path:
    return city(setting.stops, setting.zones, seed).write(out, force=force)


WHOLE_DAY = ("00:00", "24:00")

# Trips that begin in each half-hour of a day. On the weekday the total is 37,714, and 4,878 from 8 to 10 am.
# fmt: off
_WEEKDAY = np.array([
    60, 30, 12, 0, 0, 0, 0, 0, 0, 0, 40, 120,
    330, 560, 960, 1270, 1350, 1290, 1180, 1058, 1050, 1030, 1070, 1150,
    1250, 1250, 1190, 1180, 1250, 1350, 1500, 1620, 1760, 1850, 1880, 1720,
    1410, 1160, 970, 810, 680, 580, 460, 390, 320, 250, 180, 144,
])
_WEEKEND = np.array([
    140, 110, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    60, 120, 190, 270, 360, 440, 500, 560, 580, 620, 660, 690,
    720, 740, 740, 740, 740, 750, 750, 740, 720, 690, 650, 600,
    550, 510, 470, 430, 430, 390, 350, 320, 280, 240, 210, 180,
])
# fmt: on
_WEEKDAY_DATE, _WEEKEND_DATE = date(2026, 10, 14), date(2026, 10, 17)
_HALF_HOUR = 1800
_BUSY = slice(16, 20)
_BUSY_CELLS, _CELLS_GROW = 591, 0.75
_AT_NIGHT = 20
_MIN_TRIPS = 10  # of each zone pair and window that a starter policy counts
# Hours of the day, and the share of trips then that go to work.
_OUTWARD_HOURS, _OUTWARD_SHARES = (0, 5, 9.5, 13, 17, 24), (0.1, 0.9, 0.85, 0.5, 0.2, 0.15)
_OUTWARD_WEEKEND = (0.1, 0.7, 0.7, 0.55, 0.4, 0.2)
_WORKPLACES = 6
_NOON = 13 * 3600
_RETURN = 0.85
_JOINS, _JOINED = 4, 0.15
_SHARED, _POOL_POWER, _LARGEST_POOL = 0.02, 1.8, 60
_SHORTEST_STAY, _MEAN_STAY = 600, 2700
_WINDOW = re.compile("([01]?[0-9]|2[0-4]):([03]0)")


@dataclass(frozen=True, kw_only=True)
class TripSetting:
    size: int | None = None  # trips in the window; by default as in the case study (37,714; from 8 to 10 am 4,878)
    weekend: bool = False  # a Saturday, with fewer and later trips: 18,300, our choice
    window: tuple[str, str] = WHOLE_DAY  # trips begin at or after the first time, and before the second, in half-hours
    # What the starter policy counts trips between. At epsilon 1, counts of pairs of stops would be noise.
    level: Level = "zone"

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise ParameterError(f"size must be at least 1. Got {self.size}.")
        if self.size is not None and self.size > common.MAX_ROWS:
            raise ParameterError(f"size must be at most {common.MAX_ROWS:,}. Got {self.size:,}.")
        if self.level not in END_COLUMNS:
            raise ParameterError(f"level must be {' or '.join(END_COLUMNS)}. Got {self.level!r}.")
        half_hours = self.half_hours
        if half_hours.start >= half_hours.stop:
            raise ParameterError(f"the window must end after it starts. Got {self.window[0]} to {self.window[1]}.")
        if not self._profile[half_hours].any():
            raise ParameterError(
                f"there are no trips from {self.window[0]} to {self.window[1]}, because nothing runs at night. Choose "
                "another window."
            )

    @property
    def num_trips(self) -> int:
        return int(self._profile[self.half_hours].sum()) if self.size is None else self.size

    @property
    def half_hours(self) -> slice:
        return slice(*map(_half_hour, self.window))

    @property
    def date(self) -> date:
        return _WEEKEND_DATE if self.weekend else _WEEKDAY_DATE

    @property
    def domain(self) -> tuple[str, str]:
        start, end = (f"{half // 2:02d}:{half % 2 * 30:02d}" for half in (self.half_hours.start, self.half_hours.stop))
        return start, end

    @property
    def _profile(self) -> IntArray:
        return _WEEKEND if self.weekend else _WEEKDAY

    def quotas(self) -> tuple[IntArray, IntArray]:
        """Return the numbers of trips and cells in each half-hour of the window. Shapes: half-hours."""
        weights, total = self._profile[self.half_hours], self.num_trips
        num_trips, left = np.divmod(weights * total, weights.sum())  # the largest remainders are rounded up
        num_trips[np.argsort(-left, kind="stable")[: total - int(num_trips.sum())]] += 1
        # Cells grow more slowly than trips.
        cells = _BUSY_CELLS * num_trips**_CELLS_GROW / (_WEEKDAY[_BUSY] ** _CELLS_GROW).sum()
        return num_trips, np.minimum(np.rint(cells).astype(np.int64), num_trips)


def trips_of_hours() -> FloatArray:
    """Return the trips of a weekday that begin in each hour; every hour has some, because other cities run at night."""
    return np.asarray(np.maximum(_WEEKDAY.reshape(24, 2).sum(axis=1), _AT_NIGHT), dtype=np.float64)


def outward_shares(hours: FloatArray, *, weekend: bool = False) -> FloatArray:
    """Return the share of trips at some hours of the day that lead from home to work; the others lead back."""
    return np.interp(hours, _OUTWARD_HOURS, _OUTWARD_WEEKEND if weekend else _OUTWARD_SHARES)


def _half_hour(time: str) -> int:
    match = _WINDOW.fullmatch(time)
    if not match or (half := 2 * int(match[1]) + (match[2] == "30")) > 48:
        raise ParameterError(f"a window must start and end at a half-hour, for example 08:00 or 17:30. Got {time!r}.")
    return half


class _DayTrips(NamedTuple):
    """Single trips: stops by number, and the second of the day at which each begins. Shapes: trips."""

    origins: IntArray
    destinations: IntArray
    seconds: IntArray


def trips(
    size: int | None = None,
    seed: int | None = None,
    *,
    weekend: bool = False,
    window: tuple[str, str] = WHOLE_DAY,
    city: City | None = None,
) -> pa.Table:
    """Generate the trips of a day in the order of their start: ``card``, ``board_stop``, ``alight_stop``, ``tap_in``.

    Trips are few compared with all possible ones, and most are on few pairs of stops: to work, back, others in between.
    With the same seed and no size, the trips of a window are those of the whole day, with other cards.
    """
    return _table(TripSetting(size=size, weekend=weekend, window=window), seed, city)


def _table(setting: TripSetting, seed: int | None, city: City | None = None) -> pa.Table:
    # One stream per half-hour, so that a half-hour is the same in every window.
    streams = [np.random.default_rng(own) for own in np.random.SeedSequence(seed).spawn(2 + len(_WEEKDAY))]
    here = lay_town() if city is None else Town.of(city)
    made = _draw_trips(setting, here, streams[0], streams[2:])
    cards = _cards(made, here, streams[1])
    midnight = np.datetime64(setting.date.isoformat(), "s")
    return pa.table(
        {
            "card": common.card_names(cards),
            "board_stop": common.texts(here.names, made.origins),
            "alight_stop": common.texts(here.names, made.destinations),
            "tap_in": midnight + made.seconds.astype("timedelta64[s]"),
        }
    )


def _draw_trips(
    setting: TripSetting, here: Town, generator: np.random.Generator, streams: list[np.random.Generator]
) -> _DayTrips:
    """Generate the trips of each cell by half-hour, and their exact starts; sorted by start."""
    # to_work : (stops, stops), how likely each pair is the way from home to work, as logarithms
    num = len(here.names)
    far = here.scale * np.linalg.norm(here.places, axis=1)
    homes = 0.1 * far + 0.5 * generator.standard_normal(num)
    # Work is in the centre, and in a few places outside: a hospital, a campus, an office park ...
    suburbs = np.flatnonzero(far > 2)
    outside = generator.choice(suburbs, min(_WORKPLACES, len(suburbs)), replace=False)
    work = -far / 2 + 0.5 * generator.standard_normal(num)
    work[outside] += 2.0
    pairs = generator.standard_normal((num, num))
    to_work = homes[:, None] + work[None] - common.deterrence(here.scale * here.apart) + pairs
    np.fill_diagonal(to_work, -np.inf)  # nobody travels to the stop where they are
    shares = outward_shares(np.arange(len(_WEEKDAY)) / 2, weekend=setting.weekend)
    ways, seconds = [], []
    for half, num_trips, num in zip(range(len(_WEEKDAY))[setting.half_hours], *setting.quotas(), strict=True):
        either = np.logaddexp(np.log(shares[half]) + to_work, np.log(1 - shares[half]) + to_work.T)
        cells, falling = common.busiest(either.reshape(-1), streams[half].standard_normal(either.size), int(num))
        counts = 1 + streams[half].multinomial(num_trips - len(cells), falling / falling.sum()) if len(cells) else cells
        begin = np.sort(streams[half].integers(_HALF_HOUR, size=num_trips)) + half * _HALF_HOUR
        ways.append(streams[half].permutation(np.repeat(cells, counts)))
        seconds.append(begin)
    origins, destinations = np.divmod(np.concatenate(ways), len(to_work))
    return _DayTrips(origins, destinations, np.concatenate(seconds))


def _cards(trips: _DayTrips, here: Town, generator: np.random.Generator) -> IntArray:
    """Assign trips to cards: many go out and back, some continue, a few are shared. Returns card numbers, from 0."""
    size = len(trips.seconds)
    shared, after = generator.random(size) < _SHARED, np.full(size, -1)
    # At 15 km/h, after a wait.
    arrivals = np.asarray(trips.seconds + 300 + 240 * here.apart[trips.origins, trips.destinations]).astype(np.int64)
    # Match trips in the morning with return trips in the afternoon. In a list sorted by route, the n-th trip out and
    # the n-th trip back, both shuffled, belong to one rider.
    num, late = 1 + int(max(trips.origins.max(), trips.destinations.max())), trips.seconds >= _NOON
    forth, reverse = trips.origins * num + trips.destinations, trips.destinations * num + trips.origins
    key, shuffled = np.where(late, reverse, forth), generator.permutation(size)
    order = shuffled[np.argsort(2 * key[shuffled] + late[shuffled], kind="stable")]
    group = 2 * key[order] + late[order]
    turn = key[order] * size + np.arange(size) - np.searchsorted(group, group)
    morning = ~late[order]
    _, out, back = np.intersect1d(turn[morning], turn[~morning], assume_unique=True, return_indices=True)
    out, back = order[morning][out], order[~morning][back]
    kept = (arrivals[out] + _SHORTEST_STAY < trips.seconds[back]) & (generator.random(len(out)) < _RETURN)
    kept &= ~shared[out] & ~shared[back]
    after[out[kept]] = back[kept]
    for _ in range(_JOINS):
        # Match ends of chains among some trips with some trips that continue from there after a stay.
        chosen, begins = ~shared & (generator.random(size) < _JOINED), np.ones(size, dtype=bool)
        begins[after[after >= 0]] = False
        ends, starts = np.flatnonzero((after < 0) & chosen), np.flatnonzero(begins & chosen)
        ready = arrivals[ends] + _SHORTEST_STAY + generator.exponential(_MEAN_STAY, len(ends)).astype(np.int64)
        # events : ends and starts, by stop and time; at each stop an end is joined to a start immediately after it
        stop = np.concatenate([trips.destinations[ends], trips.origins[starts]])
        order = np.lexsort((np.concatenate([ready, trips.seconds[starts]]), stop))
        is_end = order < len(ends)
        joined = np.flatnonzero(is_end[:-1] & ~is_end[1:] & (stop[order[:-1]] == stop[order[1:]]))
        after[ends[order[joined]]] = starts[order[joined + 1] - len(ends)]
    card = np.arange(size)  # the first trip of each trip's chain
    card[after[after >= 0]] = np.flatnonzero(after >= 0)
    while not np.array_equal(card, further := card[card]):
        card = further
    # Shared cards have a few trips each, and some have dozens.
    num_shared = int(shared.sum())
    until = np.cumsum(2 + np.minimum(generator.zipf(_POOL_POWER, num_shared), _LARGEST_POOL - 2))
    card[shared] = size + generator.permutation(np.searchsorted(until, np.arange(num_shared), side="right"))
    _, numbers = np.unique(card, return_inverse=True)
    return np.asarray(generator.permutation(numbers.max() + 1)[numbers])


def trips_policy(
    setting: TripSetting, dataset: str, stops: str, modes: str | None, features: str = "O5", num_zones: int = len(ZONES)
) -> str:
    level, half_hours = setting.level if num_zones > 1 else "stop", setting.half_hours.stop - setting.half_hours.start
    windows = [num for num in range(1, half_hours + 1) if half_hours % num == 0]  # half-hours of a window
    # The shortest windows in which zone pairs have so many trips that noise at epsilon 1 is small beside them.
    lots = (num for num in windows if setting.num_trips * num >= _MIN_TRIPS * num_zones**2 * half_hours)
    minutes = 30 * (next(lots, half_hours) if level == "zone" else 1)
    places = "\n".join(
        f'[attributes.{name}]\nrole = "quasi-identifier"\nkind = "stop"\n' for name in ("board_stop", "alight_stop")
    )
    return common.starter_policy(
        "trips",
        dataset=json.dumps(dataset),
        places=places,
        domain=json.dumps(list(setting.domain)),
        stops=json.dumps(stops),
        modes="" if modes is None else f"\nmodes = {json.dumps(modes)}",
        features=json.dumps(features),
        level=json.dumps(level),
        minutes=minutes,
        trips=setting.num_trips,
    )


def generate_trips(
    setting: TripSetting, out: str | os.PathLike[str], *, seed: int | None = None, force: bool = False
) -> tuple[Path, Path, Path, Path]:
    """Write generated trips as CSV, with a starter policy, the stops and the mode of each pair of stops."""
    path, policy, stops, modes = common.targets(out, (".toml", "-stops.csv", "-modes.csv"), force)
    pacsv.write_csv(_as_text(_table(setting, seed), setting.date), str(path))
    pacsv.write_csv(trip_stops(), str(stops))
    pacsv.write_csv(trip_modes(), str(modes))
    policy.write_text(trips_policy(setting, path.stem, stops.name, modes.name), encoding="utf-8")
    return path, policy, stops, modes


def generate_city_trips(
    setting: TripSetting,
    city: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    seed: int | None = None,
    force: bool = False,
) -> tuple[Path, Path]:
    """Write trips generated in a city as CSV, with a starter policy that names the files of the city."""
    from dunnage.mechanisms.counts import ConstrainedCounts

    here = City.read_folder(city)
    path, policy = common.targets(out, (".toml",), force)
    table = _table(setting, seed, here)
    names = [os.path.relpath(Path(city) / name, path.parent) for name in ("stops.csv", "modes.csv")]
    features = ConstrainedCounts.richest_features(here)
    modes = names[1] if here.modes is not None else None
    text = trips_policy(setting, path.stem, names[0], modes, features, len(here.zone_names))
    pacsv.write_csv(_as_text(table, setting.date), str(path))
    policy.write_text(text, encoding="utf-8")
    return path, policy


def _as_text(table: pa.Table, day: date) -> pa.Table:
    """Write times in ISO 8601, with a T; all are on one day, so each second is formatted once."""
    clock = [f"{day.isoformat()}T{common.second_text(second)}" for second in range(48 * _HALF_HOUR)]
    seconds = table["tap_in"].combine_chunks().cast(pa.int64()).to_numpy() % (48 * _HALF_HOUR)
    return table.set_column(table.column_names.index("tap_in"), "tap_in", common.texts(clock, seconds))
