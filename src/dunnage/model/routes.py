# SPDX-License-Identifier: Apache-2.0
"""Routes: how each pair of stops is travelled by shuttles, buses and on foot. Public facts only.

A route has a first mile, up to two buses between hubs, and a last mile. Each mile is by shuttle or on foot, which gives
twelve modes. Shuttles drive from door to door within their zone, and to and from its hubs and the one hub that all
zones share. There riders may change from the shuttle of one zone to that of another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.model.city import City

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

WALK, SHUTTLE = 0, 6
_MODES = tuple(TRIP_MODES)
# Rounded, so that the last digit of a machine decides nothing.
_DECIMALS = 4


Codes = NDArray[np.int16] | NDArray[np.int32]
"""Numbers of stops or zones, as short as they can be: there is one for each pair of stops."""


@dataclass(frozen=True, kw_only=True)
class RouteSetting:
    walk_kmh: float = 4.5  # Walking speed as the crow flies
    # Driving speed as the crow flies; used only without coordinates of stops: walking takes ``drive_kmh / walk_kmh``
    # times as long as driving.
    drive_kmh: float = 20.0
    max_walk_seconds: int = 640  # Longest walk: 800 m at 4.5 km/h
    max_feeder_seconds: int = 450  # Longest drive of a shuttle between a stop and a hub, unless none is nearer
    shuttle_wait_seconds: int = 300  # Expected wait for a shuttle. For a bus it is half its headway

    def __post_init__(self) -> None:
        for name in ("walk_kmh", "drive_kmh"):
            if not 0 < getattr(self, name) < math.inf:
                raise ParameterError(f"{name} must be above 0. Got {getattr(self, name)}.")
        for name in ("max_walk_seconds", "max_feeder_seconds", "shuttle_wait_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ParameterError(f"{name} must be 0 or more. Got {getattr(self, name)}.")


@dataclass(frozen=True, eq=False, kw_only=True)
class Legs:
    """The parts of routes: how long each leg takes with its wait; infinite if there is no such leg."""

    hubs: IntArray  # Stops that are hubs. Shape: hubs
    # on_foot, by_shuttle: from door to door. Half seconds fit exactly. Shapes: (stops, stops)
    on_foot: NDArray[np.float32]
    by_shuttle: NDArray[np.float32]
    feeding: FloatArray  # By shuttle from a stop to a hub. Shape: (stops, hubs)
    fetching: FloatArray  # By shuttle from a hub to a stop. Shape: (hubs, stops)
    by_bus: FloatArray  # By one bus. Shape: (hubs, hubs)

    @cached_property
    def between_hubs(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """How long it takes between hubs by no bus, one, and two. Shapes: (hubs, hubs)."""
        none = np.full(self.by_bus.shape, np.inf)
        np.fill_diagonal(none, 0.0)
        two = quickest_sums(self.by_bus, self.by_bus)
        np.fill_diagonal(two, np.inf)  # there and back again is no way
        return none, self.by_bus, two

    def to_hubs(self, mode: int) -> FloatArray:
        """How long the first mile takes by one mode. Shape: (stops, hubs)."""
        return self.feeding if TRIP_MODES[_MODES[mode]][0] else self.on_foot[:, self.hubs].astype(np.float64)

    def from_hubs(self, mode: int) -> FloatArray:
        """How long the last mile takes by one mode. Shape: (hubs, stops)."""
        return self.fetching if TRIP_MODES[_MODES[mode]][2] else self.on_foot[self.hubs].astype(np.float64)

    @cached_property
    def first_hubs(self) -> tuple[tuple[FloatArray, IntArray], ...]:
        """For each mode, how long it takes to the hub where the last mile begins, and the first hub on that way."""
        # The minimum of to_hubs[i, k] + between[k, j] over all k, and the first k that reaches it: (stops, hubs)
        ways = []
        for mode, (_, buses, _) in enumerate(TRIP_MODES.values()):
            to_hubs, between = self.to_hubs(mode), self.between_hubs[buses]
            at_last, first = np.full(to_hubs.shape, np.inf), np.zeros(to_hubs.shape, dtype=np.int64)
            for hub in range(len(self.hubs)):
                way = to_hubs[:, hub, None] + between[hub]
                better = way < at_last
                at_last[better], first[better] = way[better], hub
            ways.append((at_last, first))
        return tuple(ways)


@dataclass(frozen=True, eq=False, kw_only=True)
class Routes:
    """How each pair of stops is travelled. Shapes: pairs, numbered ``origin * stops + destination``."""

    num_stops: int
    mode: NDArray[np.int8]  # Place in ``TRIP_MODES``; from a stop to itself: ``walk``, without any leg
    first_drop: Codes  # Stop where the first shuttle, boarded at the origin, drops its rider; -1 without
    second_pickup: Codes  # Stop where the second shuttle, to the destination, picks them up; -1 without
    first_zone: Codes  # Zone of the origin, which serves the first leg; -1 without
    second_zone: Codes  # Zone of the destination, which serves the second leg; -1 without
    # Time from the first drop-off, or else the start, until the second shuttle is requested: walks, waits for buses and
    # bus rides; 0 without a second leg.
    lag_seconds: NDArray[np.int32]
    total_seconds: NDArray[np.int32]  # Time from start to end, with the expected waits for shuttles
    assumed: tuple[str, ...] = ()  # Sentences that say what was assumed
    setting: RouteSetting = RouteSetting()

    @property
    def mode_names(self) -> tuple[str, ...]:
        return _MODES

    def pairs(self, origins: IntArray, destinations: IntArray) -> IntArray:
        return np.asarray(origins, dtype=np.int64) * self.num_stops + destinations


def find_routes(city: City, *, setting: RouteSetting | None = None) -> Routes:
    """Find the quickest route for each pair of stops of a city with zones and travel times or coordinates."""
    # Waits are expected values: half the headway for a bus. At a tie, the first mode in TRIP_MODES wins. If the city
    # names modes of pairs and all are in TRIP_MODES, each pair uses the quickest route of its mode, if there is one. If
    # nothing else connects a pair, a shuttle of the origin's zone drives all the way.
    setting = setting or RouteSetting()
    city = city.for_fleets()
    legs = city_legs(city, setting)
    given = None  # modes of pairs that the city names, if TRIP_MODES has all of them
    if city.modes is not None and set(city.mode_names) <= TRIP_MODES.keys():
        given = np.array([_MODES.index(name) for name in city.mode_names], dtype=np.int8)[city.modes]
    # Choose the mode of each pair: the given one if it has a route, otherwise the quickest.
    num = len(legs.on_foot)
    mode = np.full((num, num), SHUTTLE, dtype=np.int8)
    seconds = np.full((num, num), np.inf, dtype=np.float32)
    for rows in city.row_blocks:
        best, chosen = seconds[rows], mode[rows]
        settled = np.zeros(best.shape, dtype=bool)
        for number in range(len(_MODES)):
            if number == WALK:  # a walk through a hub is no shorter
                taken = legs.on_foot[rows].astype(np.float64)
            else:
                taken = quickest_sums(legs.first_hubs[number][0][rows], legs.from_hubs(number))
            if number == SHUTTLE:
                taken = np.minimum(taken, legs.by_shuttle[rows])
            taken = np.round(taken, _DECIMALS)
            better = taken < best
            if given is not None:
                chosen_by_city = (given[rows] == number) & np.isfinite(taken)
                better = chosen_by_city | (better & ~settled)
                settled |= chosen_by_city
            np.copyto(best, taken, where=better, casting="same_kind")
            chosen[better] = number
    np.fill_diagonal(mode, WALK)
    np.fill_diagonal(seconds, 0.0)
    assert city.times is not None
    assert city.zones is not None
    assumptions = [*city.assumed, "Shuttles drive from door to door within their zone."]
    if len(legs.hubs):
        hub = city.stops[int(legs.hubs[shared_hub(city.times, legs.hubs)])]
        assumptions.append(
            f"They also drive to and from hubs of their zone up to {setting.max_feeder_seconds} s away, or the "
            f"nearest, and {hub!r}, the hub nearest to all stops, which all zones share."
        )
    pace = f"at {setting.walk_kmh:g} km/h in a straight line."
    if city.lat is None:
        pace = f"{setting.drive_kmh / setting.walk_kmh:.3g} times as long as the drive."
    assumptions.append(f"Walks are at most {setting.max_walk_seconds} s, {pace}")
    assumptions.append(
        f"Routes expect to wait {setting.shuttle_wait_seconds} s for a shuttle and half the headway for a bus."
    )
    if given is not None:
        changed = (given != mode) & ~np.eye(len(mode), dtype=bool)
        but = f", except for {changed.sum()} pairs that have no such route" if changed.any() else ""
        assumptions.append(f"Modes of pairs are those of the city{but}.")
    no_way = np.isinf(seconds)
    if no_way.any():
        seconds[no_way] = city.times[no_way] + setting.shuttle_wait_seconds
        assumptions.append(
            f"Shuttles of the origin's zone drive all the way between {no_way.sum()} pairs of stops that nothing else "
            "connects."
        )
    kind = np.int16 if num <= np.iinfo(np.int16).max else np.int32
    first_drop, second_pickup, first_zone, second_zone = (np.full((num, num), -1, dtype=kind) for _ in range(4))
    lag = np.zeros((num, num), dtype=np.int32)
    for rows in city.row_blocks:
        drop, pickup, wait = (table[rows].reshape(-1) for table in (first_drop, second_pickup, lag))
        origins, destinations = (ends.reshape(-1) for ends in np.mgrid[rows, 0:num])
        straight = np.round(legs.by_shuttle[rows].astype(np.float64), _DECIMALS) <= seconds[rows]
        for number, (first, buses, last) in enumerate(TRIP_MODES.values()):
            pairs = np.flatnonzero((mode[rows].reshape(-1) == number) & (origins != destinations))
            if number == SHUTTLE:  # pairs that pass no hub, or have only the direct way
                through = np.isfinite(_through_hubs(legs, number, origins[pairs], destinations[pairs])[2])
                direct = straight.reshape(-1)[pairs] | ~through
                drop[pairs[direct]] = destinations[pairs[direct]]
                pairs = pairs[~direct]
            if not (first or last) or not len(pairs):
                continue
            start, end, _ = _through_hubs(legs, number, origins[pairs], destinations[pairs])
            if first:
                drop[pairs] = legs.hubs[start]
            if last:
                pickup[pairs] = legs.hubs[end]
                walked = 0.0 if first else legs.to_hubs(number)[origins[pairs], start]
                wait[pairs] = np.rint(walked + legs.between_hubs[buses][start, end])
        first_zone[rows] = np.where(first_drop[rows] >= 0, city.zones[rows, None], -1)
        second_zone[rows] = np.where(second_pickup[rows] >= 0, city.zones, -1)
    return Routes(
        num_stops=num,
        mode=mode.reshape(-1),
        first_drop=first_drop.reshape(-1),
        second_pickup=second_pickup.reshape(-1),
        first_zone=first_zone.reshape(-1),
        second_zone=second_zone.reshape(-1),
        lag_seconds=lag.reshape(-1),
        total_seconds=np.rint(seconds).astype(np.int32).reshape(-1),
        assumed=tuple(assumptions),
        setting=setting,
    )


def bus_rides(city: City, routes: Routes, pairs: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the bus rides of pairs (-1: none), and the expected seconds until they are boarded. Shapes: (2, pairs)."""
    ride, boarded = np.full((2, len(pairs)), -1, dtype=np.int64), np.zeros((2, len(pairs)))
    if city.buses is None or not len(city.buses):
        return ride, boarded
    legs, half = city_legs(city, routes.setting), city.buses.headway_seconds / 2
    ends = [np.searchsorted(legs.hubs, column) for column in (city.buses.origins, city.buses.destinations)]
    slowest_first = np.argsort(-(city.buses.seconds + half), kind="stable")
    number = np.full(legs.by_bus.shape, -1, dtype=np.int64)
    number[ends[0][slowest_first], ends[1][slowest_first]] = slowest_first  # the quickest, if there are several
    change = np.array([(row[:, None] + legs.by_bus).argmin(axis=0) for row in legs.by_bus])  # hub between two buses
    for mode, (_, buses, _) in enumerate(TRIP_MODES.values()):
        own = np.flatnonzero(routes.mode[pairs] == mode) if buses else pairs[:0]
        origins, destinations = np.divmod(pairs[own], routes.num_stops)
        start, end, taken = _through_hubs(legs, mode, origins, destinations)
        kept = np.isfinite(taken)  # routes from elsewhere may have no such way
        own, start, end = own[kept], start[kept], end[kept]
        if not len(own):
            continue
        at_hub, middle = legs.to_hubs(mode)[origins[kept], start], change[start, end] if buses == 2 else end
        ride[0, own] = number[start, middle]
        boarded[0, own] = at_hub + half[ride[0, own]]
        if buses == 2:
            ride[1, own] = number[middle, end]
            boarded[1, own] = at_hub + legs.by_bus[start, middle] + half[ride[1, own]]
    return ride, boarded


def quickest_sums(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return the minimum of ``left[i, k] + right[k, j]`` over all k. Shapes: (i, k), (k, j) -> (i, j)."""
    best = np.full((left.shape[0], right.shape[1]), np.inf)
    way = np.empty_like(best)
    for middle in range(left.shape[1]):
        np.add(left[:, middle, None], right[middle], out=way)
        np.minimum(best, way, out=best)
    return best


def city_legs(city: City, setting: RouteSetting) -> Legs:
    assert city.zones is not None
    assert city.times is not None
    num = len(city.stops)
    hubs = np.flatnonzero(city.hubs) if city.hubs is not None else np.zeros(0, dtype=np.int64)
    own = city.zones[:, None] == city.zones[hubs]
    if len(hubs):
        own[:, shared_hub(city.times, hubs)] = True
    on_foot, by_shuttle = (np.empty((num, num), dtype=np.float32) for _ in range(2))
    for rows in city.row_blocks:
        if city.lat is not None:
            walked = np.rint(city.kilometres(rows) * (3600 / setting.walk_kmh))
        else:
            walked = np.rint(city.times[rows] * (setting.drive_kmh / setting.walk_kmh))
        on_foot[rows] = np.where(walked > setting.max_walk_seconds, np.inf, walked)
        same = city.zones[rows, None] == city.zones
        by_shuttle[rows] = np.where(same, setting.shuttle_wait_seconds + city.times[rows], np.inf)
    by_bus = np.full((len(hubs), len(hubs)), np.inf)
    if city.buses is not None:
        ends = [np.searchsorted(hubs, column) for column in (city.buses.origins, city.buses.destinations)]
        np.minimum.at(by_bus, (ends[0], ends[1]), city.buses.seconds + city.buses.headway_seconds / 2)
    return Legs(
        hubs=hubs,
        on_foot=on_foot,
        by_shuttle=by_shuttle,
        feeding=_fed(city.times[:, hubs].astype(np.float64), own, hubs, setting),
        fetching=_fed(city.times[hubs].T.astype(np.float64), own, hubs, setting).T,
        by_bus=by_bus,
    )


def shared_hub(times: NDArray[np.int32], hubs: IntArray) -> int:
    """Return the index of the hub that all zones share: the nearest to all stops, there and back."""
    return int(np.argmin(times[:, hubs].sum(axis=0, dtype=np.int64) + times[hubs].sum(axis=1, dtype=np.int64)))


def _fed(driven: FloatArray, own: BoolArray, hubs: IntArray, setting: RouteSetting) -> FloatArray:
    """Return how long a shuttle takes between stops and the hubs it serves. Shapes: (stops, hubs) -> (stops, hubs)."""
    nearest = np.where(own, driven, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    limit = np.where(np.isfinite(nearest), np.maximum(setting.max_feeder_seconds, nearest), -1.0)
    fed = np.where(own & (driven <= limit), setting.shuttle_wait_seconds + driven, np.inf)
    fed[hubs, np.arange(len(hubs))] = np.inf  # nobody rides to the stop where they are
    return fed


def _through_hubs(
    legs: Legs, mode: int, origins: IntArray, destinations: IntArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the first and the last hub of the quickest ways by one mode, and how long they take. Shapes: pairs."""
    at_last, first_of = legs.first_hubs[mode]
    from_hubs = legs.from_hubs(mode)
    best = np.full(len(origins), np.inf)
    end = np.zeros(len(origins), dtype=np.int64)
    for hub in range(len(legs.hubs)):
        taken = at_last[:, hub][origins] + from_hubs[hub][destinations]
        better = taken < best
        best[better], end[better] = taken[better], hub
    return first_of[origins, end] if len(legs.hubs) else end, end, best
