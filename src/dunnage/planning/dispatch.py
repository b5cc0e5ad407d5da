# SPDX-License-Identifier: Apache-2.0
"""Dispatch: operate a fleet of shared shuttles on requests, second by second.

Each request goes at once, and finally, to the shuttle of its zone with the lowest cost: the rider's wait, the time that
riders on board and waiting riders lose, and the longer drive (see :class:`Service`). The dispatch does not know future
requests. A rider's second leg is requested when the first leg has really arrived, so all zones are simulated together
in order of time.

A shuttle without work drives to where it is needed: the stop where, after the drive, its turn comes soonest if every
waiting shuttle leaves full, judging by the requests of the last quarter of an hour. If that would take two hours, it
drives home or, in zones with posts, to the nearest open post: with n shuttles without work, the first n posts of the
hour are open, by importance. Zones may also leave out the first step and only use posts; then a few more are open.
Parked shuttles decide again every minute. A shuttle can be called during such a drive: it continues to its
goal first, or turns back to the stop it left, which takes the same share of the way back as it drove of the way out.
With riders on board, or called by a rider, it drives to its next stop before anything else.

``docs/fleets.md`` says how rules, weights and posts were chosen.

All numbers are whole, so the same input gives the same operation on every machine.

References
----------
Immediate best insertion with slack is that of Jaw, Odoni, Psaraftis and Wilson 1986 (heuristic for dial-a-ride) as used
by fleet simulators since; the case study is that of Fioretto, Lee and Van Hentenryck 2018, section 10.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dunnage.arrays import BoolArray, IntArray
from dunnage.errors import ParameterError

EVENTS = ("park", "depart", "turn", "arrive", "dropoff", "pickup")
"""Events of a shuttle: it parks, leaves a stop, turns back to the stop it left, arrives; riders leave or board."""

HOUR = 3600  # seconds for which shuttles keep the same posts

_NEVER = 1 << 62


@dataclass(frozen=True, kw_only=True)
class Service:
    """The service of shuttles, and how a rider's shuttle is chosen.

    Parameters
    ----------
    capacity
        Seats of a shuttle.
    max_wait_seconds
        A rider gets a shuttle that comes within this time, if there is one. Otherwise, the rider gets the shuttle that
        comes soonest at little cost to others: everyone is served.
    max_detour, detour_seconds
        A ride takes at most ``max_detour`` times the direct drive plus ``detour_seconds``, with the same exception.
    dwell_seconds
        Duration of a stop at which riders board or alight, however many they are.
    wait_weight, ride_weight, drive_weight
        Cost of one second of waiting, of a longer ride, and of a longer drive of a shuttle.
    """

    capacity: int = 8
    max_wait_seconds: int = 600
    max_detour: float = 1.5
    detour_seconds: int = 300
    dwell_seconds: int = 20
    wait_weight: int = 3
    ride_weight: int = 1
    drive_weight: int = 1

    def __post_init__(self) -> None:
        _check_number("capacity", self.capacity, 1, 1000)
        for name in ("max_wait_seconds", "detour_seconds", "dwell_seconds"):
            _check_number(name, getattr(self, name), 0, 86_400)
        for name in ("wait_weight", "ride_weight", "drive_weight"):
            _check_number(name, getattr(self, name), 1 if name == "wait_weight" else 0, 1000)
        if not 1.0 <= self.max_detour <= 100.0:
            raise ParameterError(f"max_detour must be a number from 1 to 100. Got {self.max_detour!r}.")

    def longest(self, direct: IntArray) -> IntArray:
        """Return the longest allowed rides, including boarding, for direct drives."""
        detour = np.floor(self.max_detour * direct).astype(np.int64)
        return np.asarray(detour + self.detour_seconds + self.dwell_seconds)


def _check_number(name: str, value: object, low: int, high: int) -> None:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not low <= int(value) <= high:  # type: ignore[call-overload]
        raise ParameterError(f"{name} must be a whole number from {low} to {high}. Got {value!r}.")


@dataclass(frozen=True, eq=False, kw_only=True)
class Requests:
    """Legs that riders request by shuttle, in any order. Shapes: legs."""

    rider: IntArray  # only for events
    zone: NDArray[np.int32]  # the shuttles of this zone serve the leg
    origin: NDArray[np.int32]  # origin, destination: stops, as places in the table of travel times
    destination: NDArray[np.int32]
    seconds: IntArray  # of the request; not used for a linked leg, which is requested after the first leg arrives
    after: IntArray  # leg that must arrive before this leg is requested, or -1
    lag: IntArray  # seconds from that arrival to the request; 0 if `after` is -1

    def __post_init__(self) -> None:
        for item in fields(self):
            kind = np.int32 if item.name in ("zone", "origin", "destination") else np.int64
            object.__setattr__(self, item.name, np.ascontiguousarray(getattr(self, item.name), dtype=kind))

    def __len__(self) -> int:
        return len(self.rider)

    @classmethod
    def single(cls, zone: ArrayLike, origin: ArrayLike, destination: ArrayLike, seconds: ArrayLike) -> Requests:
        given = {"zone": zone, "origin": origin, "destination": destination, "seconds": seconds}
        columns = {name: np.asarray(column) for name, column in given.items()}
        num = len(columns["zone"])
        return cls(rider=np.arange(num), after=np.full(num, -1), lag=np.zeros(num, dtype=np.int64), **columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class Events:
    shuttle: NDArray[np.int32]
    seconds: IntArray
    stop: NDArray[np.int32]  # of a shuttle that turns back: the stop it returns to
    event: NDArray[np.int8]  # places in :data:`EVENTS`
    leg: IntArray  # the leg that boards or alights; -1 otherwise
    target: NDArray[np.int32]  # the stop for which a shuttle departs; -1 otherwise

    def __len__(self) -> int:
        return len(self.seconds)


@dataclass(frozen=True, eq=False, kw_only=True)
class Moves:
    """Drives between stops, each with the stay at its end. Shapes: moves, by departure of each shuttle."""

    shuttle: NDArray[np.int32]
    origin: NDArray[np.int32]  # origin, destination: equal if a rider boards a parked shuttle
    destination: NDArray[np.int32]
    departed: IntArray  # departed, arrived, left: seconds; after `left` it drives on or parks
    turned: IntArray  # second at which it turned back to `origin`, and arrived there; or -1
    arrived: IntArray
    left: IntArray
    carried: NDArray[np.int32]  # riders on board during the drive


@dataclass(frozen=True, eq=False, kw_only=True)
class Operation:
    """A day of a fleet. A shuttle is *busy* with riders, *empty* while it drives without, otherwise *parked*."""

    requested: IntArray  # requested, picked_up, dropped: seconds of each leg; -1 if the simulation stopped before
    picked_up: IntArray
    dropped: IntArray
    shuttle: NDArray[np.int32]  # the shuttle of each leg; -1 if the simulation stopped before
    zone: NDArray[np.int32]  # zone, home: zone of each shuttle, and the stop where it starts
    home: NDArray[np.int32]
    start: int  # start, end: from the first request until the last shuttle is parked
    end: int
    aborted: bool  # the simulation stopped because the mean wait could no longer meet the target
    late: int  # legs for which no shuttle was within the limits of the service
    work: int  # positions and places considered: the effort, independent of the machine
    moves: Moves
    boarded: IntArray
    alighted: IntArray

    @property
    def num_shuttles(self) -> int:
        return len(self.zone)

    @cached_property
    def waits(self) -> IntArray:
        self._need_whole()
        return self.picked_up - self.requested

    @property
    def mean_wait(self) -> float:
        return float(self.waits.mean()) if len(self.waits) else 0.0

    @cached_property
    def busy(self) -> IntArray:
        """Seconds that each shuttle has a rider on board, boarding or alighting. Shape: shuttles."""
        return self._seconds(busy=True)

    @cached_property
    def empty(self) -> IntArray:
        """Seconds that each shuttle drives without riders. Shape: shuttles."""
        return self._seconds(busy=False)

    def by_period(self, period_seconds: int = 1800) -> dict[str, NDArray[np.float64]]:
        """Return the mean shuttles that are busy, empty and parked in each period, which begins at ``seconds``."""
        first, last = self.start // period_seconds, -(-self.end // period_seconds)
        edges = np.arange(first, max(last, first + 1) + 1) * period_seconds

        def before(start: IntArray, end: IntArray) -> IntArray:  # seconds of all spans before each edge
            total = np.zeros(len(edges), dtype=np.int64)
            for sign, side in ((1, np.sort(start)), (-1, np.sort(end))):
                place, sums = np.searchsorted(side, edges), np.concatenate([[0], np.cumsum(side)])
                total += sign * (place * edges - sums[place])
            return total

        spent: dict[str, NDArray[np.float64]] = {
            name: np.diff(before(*self._spans(busy=name == "busy")[1:])) / period_seconds for name in ("busy", "empty")
        }
        there = np.diff(np.clip(edges, self.start, self.end).astype(float)) / period_seconds * self.num_shuttles
        return {"seconds": edges[:-1].astype(float), **spent, "parked": there - spent["busy"] - spent["empty"]}

    @cached_property
    def events(self) -> Events:
        self._need_whole()
        moves, num_shuttles = self.moves, self.num_shuttles
        reached = np.where(moves.turned >= 0, moves.origin, moves.destination)
        drives = np.flatnonzero((moves.origin != moves.destination) | (moves.departed != moves.arrived))
        turns = np.flatnonzero(moves.turned >= 0)
        # When the shuttle of each move departs next, or a time after all others.
        order = np.argsort(moves.shuttle, kind="stable")
        followed = np.full(len(order), _NEVER)
        same = moves.shuttle[order[1:]] == moves.shuttle[order[:-1]]
        followed[order[:-1][same]] = moves.departed[order[1:][same]]
        parks = np.flatnonzero(followed > moves.left)
        started, legs = np.arange(num_shuttles), np.arange(len(self.shuttle))
        boarded, alighted, goes = self.boarded, self.alighted, moves.destination[drives]
        # By kind, in the order in which they happen in a move: move, shuttle, seconds, stop, leg and target.
        kinds: list[tuple[Any, ...]] = [
            ("park", started - num_shuttles, started, self.start, self.home, -1, -1),
            ("depart", drives, moves.shuttle[drives], moves.departed[drives], moves.origin[drives], -1, goes),
            ("turn", turns, moves.shuttle[turns], moves.turned[turns], moves.origin[turns], -1, -1),
            ("arrive", drives, moves.shuttle[drives], moves.arrived[drives], reached[drives], -1, -1),
            ("dropoff", alighted, self.shuttle, self.dropped, reached[alighted], legs, -1),
            ("pickup", boarded, self.shuttle, self.picked_up, reached[boarded], legs, -1),
            ("park", parks, moves.shuttle[parks], moves.left[parks], reached[parks], -1, -1),
        ]
        columns: list[list[IntArray]] = [[] for _ in range(8)]
        for phase, (kind, move, *values) in enumerate(kinds):
            for column, value in zip(columns, (phase, EVENTS.index(kind), move, *values), strict=True):
                column.append(np.broadcast_to(np.asarray(value, dtype=np.int64), (len(move),)))
        phases, events, of_move, shuttle, seconds, stop, leg, target = map(np.concatenate, columns)
        order = np.lexsort((leg, seconds, phases, of_move, shuttle))
        return Events(
            shuttle=shuttle[order].astype(np.int32),
            seconds=seconds[order],
            stop=stop[order].astype(np.int32),
            event=events[order].astype(np.int8),
            leg=leg[order],
            target=target[order].astype(np.int32),
        )

    def _need_whole(self) -> None:
        if self.aborted:
            raise ParameterError("this operation stopped before its end. Simulate without abort_mean_wait.")

    def _spans(self, *, busy: bool) -> tuple[IntArray, IntArray, IntArray]:
        """Return shuttles, starts and ends of drives with or without riders, and of stays. Shapes: spans."""
        self._need_whole()
        moves = self.moves
        drives = (moves.carried > 0) == busy
        shuttle, start, end = moves.shuttle[drives], moves.departed[drives], moves.arrived[drives]
        if busy:
            pairs = ((shuttle, moves.shuttle), (start, moves.arrived), (end, moves.left))
            shuttle, start, end = (np.concatenate(pair) for pair in pairs)
        return shuttle.astype(np.int64), start, end

    def _seconds(self, *, busy: bool) -> IntArray:
        shuttle, start, end = self._spans(busy=busy)
        return np.bincount(shuttle, end - start, minlength=self.num_shuttles).astype(np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Parking:
    """Where the shuttles of one zone wait for riders: at posts, which change every hour, instead of homes."""

    posts: IntArray  # stops by importance, with repeats; n shuttles without work take about the first n. (hours, posts)
    begin: int  # second at which the first hour begins; the first and the last hour have no other end
    follows: bool  # whether shuttles go first to where they are needed soonest, as those with a home do

    @classmethod
    def of(
        cls, times: NDArray[np.int32], stops: IntArray, rides: IntArray, num: int, *, begin: int, follows: bool
    ) -> Parking:
        """Choose posts among stops by the rides that begin there. Shapes: (stops, stops), stops, (hours, stops)."""
        from dunnage.kernels.dispatch import LEVELS, choose_posts

        square = np.ascontiguousarray(times[np.ix_(stops, stops)])
        num = max(1, min(num, LEVELS * len(stops)))  # then they repeat
        posts = [stops[choose_posts(square, row, num)] for row in rides.astype(np.int64)]
        return cls(posts=np.array(posts, dtype=np.int64), begin=begin, follows=follows)

    def first(self, shuttles: int) -> IntArray:
        """Return the posts that may be open with a number of shuttles; a list that is too short is repeated."""
        num = open_posts(shuttles)
        return self.posts[:, np.arange(num) % self.posts.shape[1]]


def open_posts(shuttles: int) -> int:
    from dunnage.kernels.dispatch import OPEN_SHARE

    return shuttles + shuttles // OPEN_SHARE


class Places:
    def __init__(self, times: NDArray[np.int32], used: BoolArray) -> None:
        sizes = used.sum(axis=1)
        self.firsts = np.concatenate([[0], np.cumsum(sizes)])
        self.squares = np.concatenate([[0], np.cumsum(sizes.astype(np.int64) ** 2)])
        self.stops = np.nonzero(used)[1]
        self.number = np.full(used.shape, -1, dtype=np.int64)
        self.number[used] = np.arange(len(self.stops))
        self.times = np.empty(self.squares[-1], dtype=np.int32)
        self.near = np.empty(self.squares[-1], dtype=np.int32)
        for zone in range(len(used)):
            own = np.flatnonzero(used[zone])
            square = times[np.ix_(own, own)]
            part = slice(self.squares[zone], self.squares[zone + 1])
            self.times[part] = square.ravel()
            self.near[part] = np.argsort(square, axis=0, kind="stable").T.ravel()

    @classmethod
    def of(
        cls,
        times: NDArray[np.int32],
        requests: Sequence[Requests],
        homes: Sequence[IntArray],
        parking: Sequence[Parking | None],
    ) -> Places:
        used = np.zeros((len(homes), len(times)), dtype=bool)
        for day in requests:
            used[day.zone, day.origin] = used[day.zone, day.destination] = True
        for zone, (stops, own) in enumerate(zip(homes, parking, strict=True)):
            used[zone, stops] = True
            if own is not None:
                used[zone, own.posts] = True
        return cls(times, used)


class Dispatch:
    def __init__(
        self,
        requests: Requests,
        times: ArrayLike,
        homes: Sequence[int | Sequence[int]] | IntArray,
        service: Service,
        parking: Sequence[Parking | None] | None = None,  # of each zone; None: its shuttles park at homes
        places: Places | None = None,  # if several days share them
    ) -> None:
        from dunnage.kernels import dispatch as k

        self.requests, self.service = requests, service
        self.times = np.ascontiguousarray(times, dtype=np.int32)
        self.homes = [np.unique(np.atleast_1d(np.asarray(stops))) for stops in homes]
        # The kernel does not check bounds, and routes may come from another program.
        stops, zones = np.concatenate([requests.origin, requests.destination, *self.homes]), requests.zone
        if stops.min(initial=0) < 0 or stops.max(initial=0) >= max(len(self.times), 1):
            raise ParameterError("travel times are needed for all stops, but some requests are at other stops.")
        if zones.min(initial=0) < 0 or zones.max(initial=-1) >= len(self.homes) or not all(map(len, self.homes)):
            raise ParameterError(
                f"every zone needs a home for its shuttles. There are {len(self.homes)} homes, and requests in zones "
                f"up to {zones.max(initial=-1)}, counted from 0."
            )
        self.homes = [stops.astype(np.int64) for stops in self.homes]
        self.parking = (None,) * len(self.homes) if parking is None else tuple(parking)
        self.places = places or Places.of(self.times, [requests], self.homes, self.parking)
        self._posted: tuple[IntArray, IntArray, IntArray] | None = None
        place = self.places.number
        self._home_places = np.concatenate(
            [np.zeros(0, dtype=np.int64), *(place[zone, stops] for zone, stops in enumerate(self.homes))]
        )
        free = np.flatnonzero(requests.after < 0)
        self._order = free[np.argsort(requests.seconds[free], kind="stable")]
        legs = np.full((len(requests), k.LEG_COLUMNS), -1, dtype=np.int64)
        legs[:, k.ZONE] = requests.zone
        legs[:, k.ORIGIN] = place[requests.zone, requests.origin]
        legs[:, k.DESTINATION] = place[requests.zone, requests.destination]
        legs[:, k.LONGEST] = service.longest(self.times[requests.origin, requests.destination].astype(np.int64))
        legs[:, k.LAG] = requests.lag
        legs[:, k.REQUESTED] = np.where(requests.after < 0, requests.seconds, -1)
        linked = np.flatnonzero(requests.after >= 0)
        linked = linked[np.argsort(requests.after[linked], kind="stable")]
        first = requests.after[linked]
        same = first[1:] == first[:-1]
        legs[linked[:-1][same], k.SIBLING] = linked[1:][same]
        # Written backwards, so that the first leg remains if several wait for the same leg.
        legs[first[::-1], k.CHILD] = linked[::-1]
        self._legs = legs

    def parked(self, parking: Sequence[Parking | None]) -> Dispatch:
        """Return the same requests with other parking; its posts must be among the places."""
        other = copy.copy(self)
        other.parking, other._posted = tuple(parking), None
        return other

    def _posts(self, vehicles: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the number of posts of each zone, posts (hours, posts of all zones, columns), and those of places."""
        from dunnage.kernels import dispatch as k

        enough = np.array(
            [0 if own is None else open_posts(num) for own, num in zip(self.parking, vehicles.tolist(), strict=True)],
            dtype=np.int64,
        )
        if self._posted is None or (self._posted[0] < enough).any():
            hours = max((len(own.posts) for own in self.parking if own is not None), default=1)
            posts = np.empty((hours, int(enough.sum()), k.POST_COLUMNS), dtype=np.int64)
            firsts = np.full((hours, len(self.places.stops)), -1, dtype=np.int64)
            start = 0
            for zone, own in enumerate(self.parking):
                if own is None:
                    continue
                stands = self.places.number[zone, own.first(int(vehicles[zone]))]
                for hour in range(hours):
                    row = stands[min(hour, len(stands) - 1)]
                    k.list_posts(posts[hour, start : start + len(row)], firsts[hour], row)
                start += stands.shape[1]
            self._posted = enough, posts, firsts
        return self._posted

    def run(self, fleet: ArrayLike, *, abort_mean_wait: float | None = None) -> Operation:
        from dunnage.kernels import dispatch as k

        vehicles = np.asarray(fleet, dtype=np.int64)
        if vehicles.shape != (len(self.homes),):
            raise ParameterError(f"fleet must have a number of shuttles for each of {len(self.homes)} zones.")
        missing = np.flatnonzero((vehicles == 0) & (np.bincount(self.requests.zone, minlength=len(vehicles)) > 0))
        if len(missing):
            raise ParameterError(
                f"a zone with requests needs a shuttle. Got none for zone {missing[0]}, counted from 0."
            )
        of = self.service
        num, num_legs, num_places = int(vehicles.sum()), len(self.requests), len(self.places.stops)
        max_wait = _NEVER if abort_mean_wait is None else int(np.floor(abort_mean_wait * num_legs))
        zone_of = np.repeat(np.arange(len(vehicles)), vehicles)
        # Shuttles start at the posts or homes of their zone in turn.
        num_posts, posts, first_posts = self._posts(vehicles)
        starts = (stops if own is None else own.posts[0] for stops, own in zip(self.homes, self.parking, strict=True))
        zones = enumerate(zip(starts, vehicles.tolist(), strict=True))
        places = [self.places.number[zone, np.resize(stops, size)] for zone, (stops, size) in zones]
        parked = np.concatenate([np.zeros(0, dtype=np.int64), *places])
        start = int(self.requests.seconds[self._order].min()) if num_legs else 0
        extra = (4 if num_posts.any() else 1) * num_legs + 10 * num
        # At most two visits per leg, and one that is created before another is returned. For moves, also one to board a
        # parked shuttle, one after work, and the extra ones.
        nodes = np.empty((2 * num + 2 * num_legs + 1, k.NODE_COLUMNS), dtype=np.int64)
        moves = np.empty((5 * num_legs + num + extra, k.MOVE_COLUMNS), dtype=np.int64)
        shuttles = np.zeros((num, k.SHUTTLE_COLUMNS), dtype=np.int64)
        shuttles[:, k.ZONE] = zone_of
        legs = self._legs.copy()
        heads = np.full(k.PARTS * num_places, -1, dtype=np.int64)
        demand = np.zeros((num_places, k.DEMAND_COLUMNS), dtype=np.int64)
        spare = k.park_all(nodes, shuttles, heads, demand, parked, start, extra)
        # Heaps of shuttles and of second legs by due time: heap, places in it, times (and size).
        clock = np.arange(num), np.arange(num), np.full(num, _NEVER)
        num_second = num_legs - len(self._order)
        spots, keys = (np.empty(num_legs if num_second else 0, dtype=np.int64) for _ in range(2))
        linked = np.empty(num_second, dtype=np.int64), spots, keys, np.zeros(1, dtype=np.int64)
        # zones : columns of kernels.dispatch
        sizes = np.array([len(stops) for stops in self.homes], dtype=np.int64)
        homes, fleets = (np.cumsum(column) - column for column in (sizes, vehicles))
        places_of = (self.places.firsts[:-1], np.diff(self.places.firsts), self.places.squares[:-1])
        follows = np.array([own is None or own.follows for own in self.parking], dtype=np.int64)
        posts_of = (follows, np.cumsum(num_posts) - num_posts, num_posts)
        now = (0 * sizes, vehicles, vehicles)  # latest request, asleep and idle shuttles
        table = np.column_stack([*places_of, homes, sizes, fleets, vehicles, *now, *posts_of, 0 * sizes])
        begin = next((own.begin for own in self.parking if own is not None), 0)
        weights = (of.wait_weight, of.ride_weight, of.drive_weight)
        best = np.zeros(k.BEST_COLUMNS, dtype=np.int64)
        aborted, late = k.operate(
            (nodes, shuttles, legs, moves),
            np.ascontiguousarray(table, dtype=np.int64),
            (self.places.times, self.places.near),
            (self._home_places, posts, first_posts),
            np.array([of.capacity, of.max_wait_seconds, of.dwell_seconds, *weights, begin, HOUR], dtype=np.int64),
            self._order,
            (heads, clock, linked, demand, spare),
            max_wait,
            best,
        )
        moves = moves[: spare[k.NUM_MOVES]]
        made = Moves(
            shuttle=moves[:, k.MOVED].astype(np.int32),
            origin=self.places.stops[moves[:, k.FROM]].astype(np.int32),
            destination=self.places.stops[moves[:, k.TO]].astype(np.int32),
            departed=moves[:, k.DEPARTED].copy(),
            turned=moves[:, k.TURNED].copy(),
            arrived=moves[:, k.ARRIVED].copy(),
            left=moves[:, k.LEFT].copy(),
            carried=moves[:, k.CARRIED].astype(np.int32),
        )
        return Operation(
            requested=legs[:, k.REQUESTED].copy(),
            picked_up=legs[:, k.PICKED].copy(),
            dropped=legs[:, k.DROPPED].copy(),
            shuttle=legs[:, k.BY].astype(np.int32),
            zone=zone_of.astype(np.int32),
            home=self.places.stops[parked].astype(np.int32),
            start=start,
            end=int(made.left.max(initial=start)),
            aborted=bool(aborted),
            late=int(late),
            work=int(best[k.POSITIONS] + best[k.PLACES]),
            moves=made,
            boarded=legs[:, k.BOARD_MOVE].copy(),
            alighted=legs[:, k.ALIGHT_MOVE].copy(),
        )
