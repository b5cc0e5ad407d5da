# SPDX-License-Identifier: Apache-2.0
"""Invented towns with stops, zones, hubs and bus lines; and any city as a place for generated trips.

The town of generated trips is public and the same for every seed. It has as many stops, zones and modes as the case
study of Fioretto, Lee and Van Hentenryck 2018, and lies where Ann Arbor is.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.model.city import EARTH_KM, Buses, City
from dunnage.model.routes import find_routes
from dunnage.samples.common import texts

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
            f"{num_stops} stops are too few for {num_zones} zones with two hubs each. Use more stops or fewer zones."
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
            "zone": texts(ZONES, here.zones),
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
            "origin": texts(city.stops, np.repeat(np.arange(num), num)),
            "destination": texts(city.stops, np.tile(np.arange(num), num)),
            "mode": texts(city.mode_names, city.modes.reshape(-1).astype(np.int64)),
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
