# SPDX-License-Identifier: Apache-2.0
"""The town of generated trips: stops, zones, hubs, bus lines, and how each pair of stops would be travelled.

All of it is public and the same for every seed. The town is made up: as many stops, zones and modes as in the case
study of Fioretto, Lee and Van Hentenryck 2018, laid around the place where Ann Arbor is.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from dunnage.samples.common import BoolArray, FloatArray, IntArray, texts

ZONES = ("north", "east", "south", "west")
TRIP_MODES: dict[str, tuple[bool, int, bool]] = {
    "walk": (False, 0, False),
    "hub-shuttle": (False, 0, True),
    "bus": (False, 1, False),
    "bus-shuttle": (False, 1, True),
    "bus-bus": (False, 2, False),
    "bus-bus-shuttle": (False, 2, True),
    "shuttle": (True, 0, False),
    "shuttle-hub-shuttle": (True, 0, True),
    "shuttle-bus": (True, 1, False),
    "shuttle-bus-shuttle": (True, 1, True),
    "shuttle-bus-bus": (True, 2, False),
    "shuttle-bus-bus-shuttle": (True, 2, True),
}
"""Each mode: whether a shuttle makes the first mile, the number of buses, whether a shuttle makes the last mile."""

_NUM_STOPS = 130
_RADIUS_KM = 6.5
_DENSER_INSIDE = 0.75
_CENTRE_DEGREES = (42.2808, -83.7430)
_KM_PER_DEGREE = 111.32
# The hub in the centre, then the inner and the outer one of each zone, in the order of ZONES.
_INNER_KM, _OUTER_KM = 1.6, 4.2
_LINES = ((5, 1, 0, 3, 7), (6, 2, 0, 4, 8), (5, 6), (7, 8))
_MOST_WALK_KM = 0.8
_MOST_FEEDER_KM = 2.5
_WALK_KMH, _SHUTTLE_KMH, _BUS_KMH = 4.5, 20.0, 30.0
_SHUTTLE_WAIT_MINUTES, _BUS_WAIT_MINUTES = 5.0, 4.0


@dataclass(frozen=True, eq=False)
class Town:
    """A made-up town.

    Parameters
    ----------
    names
        Names of the stops.
    places
        Where they are: km east and north of the centre. Shape: stops, 2.
    zones
        Zone of each stop, as a place in ``ZONES``.
    hubs
        Stops that are hubs; the first is that in the centre, which all zones share.
    """

    names: tuple[str, ...]
    places: FloatArray
    zones: IntArray
    hubs: IntArray

    @cached_property
    def apart(self) -> FloatArray:
        """Distances between stops in km."""
        return np.asarray(np.linalg.norm(self.places[:, None] - self.places[None], axis=2))

    @cached_property
    def modes(self) -> IntArray:
        """Quickest mode of each pair of stops, as a place in ``TRIP_MODES``. Shape: origins, destinations."""
        minutes = [self._minutes(*legs) for legs in TRIP_MODES.values()]
        # Rounded, so that no machine decides by its last digit.
        return np.asarray(np.argmin(np.round(minutes, 6), axis=0))

    def _minutes(self, first_mile: bool, buses: int, last_mile: bool) -> FloatArray:
        """Return the shortest time of each pair by one mode, infinite if it cannot be travelled so."""
        to_hub = self._shuttle_to_hub if first_mile else self._walk_to_hub
        from_hub = self._shuttle_to_hub if last_mile else self._walk_to_hub
        # to the last hub : (origins, hubs) ; all the way : (origins, destinations)
        at_last = (to_hub[:, :, None] + self._by_bus[buses][None]).min(axis=1)
        minutes = (at_last[:, None, :] + from_hub[None]).min(axis=2)
        if buses == 0 and not last_mile:
            minutes = np.minimum(minutes, self._by_shuttle) if first_mile else self._on_foot
        return np.asarray(minutes)

    @property
    def _on_foot(self) -> FloatArray:
        return np.where(self.apart <= _MOST_WALK_KM, 60 * self.apart / _WALK_KMH, np.inf)

    @property
    def _by_shuttle(self) -> FloatArray:
        """A shuttle goes from door to door within its zone."""
        same = self.zones[:, None] == self.zones[None]
        return np.where(same, _SHUTTLE_WAIT_MINUTES + 60 * self.apart / _SHUTTLE_KMH, np.inf)

    @property
    def _walk_to_hub(self) -> FloatArray:
        return self._on_foot[:, self.hubs]

    @property
    def _shuttle_to_hub(self) -> FloatArray:
        """A shuttle feeds the hubs of its zone and the central one: those near a stop, or the nearest."""
        far = self.apart[:, self.hubs]
        own = self.zones[:, None] == self.zones[self.hubs][None]
        own[:, 0] = True
        nearest = np.where(own, far, np.inf).min(axis=1, keepdims=True)
        fed: BoolArray = own & (far <= np.maximum(_MOST_FEEDER_KM, nearest))
        return np.where(fed, _SHUTTLE_WAIT_MINUTES + 60 * far / _SHUTTLE_KMH, np.inf)

    @property
    def _by_bus(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Minutes between hubs by no bus, one, and two."""
        num = len(self.hubs)
        one = np.full((num, num), np.inf)
        far = self.apart[np.ix_(self.hubs, self.hubs)]
        for line in _LINES:
            along = np.cumsum([0.0, *(far[start, end] for start, end in itertools.pairwise(line))])
            ride = _BUS_WAIT_MINUTES + 60 * np.abs(along[:, None] - along[None]) / _BUS_KMH
            one[np.ix_(line, line)] = np.where(np.eye(len(line), dtype=bool), np.inf, ride)
        two = (one[:, :, None] + one[None]).min(axis=1)
        np.fill_diagonal(two, np.inf)
        return np.where(np.eye(num, dtype=bool), 0.0, np.inf), one, two


@lru_cache(maxsize=1)
def town() -> Town:
    """Lay stops on a spiral, denser inside; cut four zones; make hubs of the stops nearest to where one belongs."""
    turn = np.arange(_NUM_STOPS) * np.pi * (3 - np.sqrt(5))
    out = _RADIUS_KM * ((np.arange(_NUM_STOPS) + 0.5) / _NUM_STOPS) ** _DENSER_INSIDE
    places = out[:, None] * np.column_stack([np.sin(turn), np.cos(turn)])
    zones = ((np.degrees(np.arctan2(places[:, 0], places[:, 1])) + 45) // 90 % 4).astype(np.int64)
    # Sorted by zone, and outwards within each.
    order = np.argsort(zones, kind="stable")
    places, zones = places[order], zones[order]
    rank = np.arange(_NUM_STOPS) - np.searchsorted(zones, zones)
    names = tuple(f"{ZONES[zone][0].upper()}{place + 1:02d}" for zone, place in zip(zones, rank, strict=True))
    towards = np.array([(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)])
    wanted = np.concatenate([np.zeros((1, 2)), _INNER_KM * towards, _OUTER_KM * towards])
    hubs = np.argmin(np.linalg.norm(places[None] - wanted[:, None], axis=2), axis=1)
    return Town(names, places, zones, hubs)


def trip_stops() -> pa.Table:
    """Return the stops of generated trips: ``stop``, ``zone``, ``lat``, ``lon``, ``hub``; the same for every seed.

    Examples
    --------
    >>> trip_stops().num_rows
    130
    """
    here = town()
    north = _CENTRE_DEGREES[0] + here.places[:, 1] / _KM_PER_DEGREE
    east = _CENTRE_DEGREES[1] + here.places[:, 0] / (_KM_PER_DEGREE * np.cos(np.radians(_CENTRE_DEGREES[0])))
    return pa.table(
        {
            "stop": list(here.names),
            "zone": texts(ZONES, here.zones),
            "lat": np.round(north, 6),
            "lon": np.round(east, 6),
            "hub": np.isin(np.arange(len(here.names)), here.hubs),
        }
    )


def trip_modes() -> pa.Table:
    """Return how each pair of stops is travelled most quickly: ``origin``, ``destination``, ``mode``.

    A mode has a shuttle for the first mile or none, no, one or two buses between hubs, and a shuttle for the last mile
    or none: twelve modes, see ``TRIP_MODES``. Who has no shuttle walks, at most 800 m. Shuttles go from door to door
    within their zone (mode ``shuttle``) and to and from its hubs and the central one, where riders may change from one
    zone's shuttle to another's (``shuttle-hub-shuttle``).

    Examples
    --------
    >>> trip_modes().num_rows
    16900
    """
    here = town()
    num = len(here.names)
    return pa.table(
        {
            "origin": texts(here.names, np.repeat(np.arange(num), num)),
            "destination": texts(here.names, np.tile(np.arange(num), num)),
            "mode": texts(tuple(TRIP_MODES), here.modes.reshape(-1)),
        }
    )
