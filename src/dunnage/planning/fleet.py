# SPDX-License-Identifier: Apache-2.0
"""size: the smallest fleet of shuttles, zone by zone, that keeps the mean wait of riders within a limit.

Sizing is a search over simulated days (:mod:`dunnage.planning.dispatch`). Zones depend on each other, because a rider's
second shuttle may belong to another zone. So each zone is first sized by itself, for each expansion, with second rides
requested at their expected times. Then all zones are simulated together, and fleets are adjusted up and down until
every zone meets the target, and does not with one shuttle fewer in any zone.

Where shuttles wait for riders decides how many are needed. Each zone gets the better of three ways: at hubs after
following the latest requests, at posts after following them, or only at posts. Posts are stops where many of the trips
begin, hour by hour, chosen so that all riders are near one. Before the search, each zone is simulated with as many
shuttles as can be useful: a target that even these miss is refused at once, with the wait that they reach.

The mean wait need not fall with every additional shuttle. The promise is that of a simulation: the plan meets the
target on the trips it was made for, and fails it with one shuttle fewer in any zone. Smaller fleets may exist that
happen to do better than larger ones; for each zone by itself, two fewer are tried.

References
----------
The case study is that of Fioretto, Lee and Van Hentenryck 2018, "Constraint-based differential privacy for mobility
services", sections 3 and 9; they do not say how they size fleets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import NoPlanError, ParameterError
from dunnage.kernels.deadline import NEVER, Deadline
from dunnage.model.city import City
from dunnage.model.documents import Model
from dunnage.model.routes import TRIP_MODES, Routes
from dunnage.model.trips import Universe
from dunnage.planning.buses import ASSUMED, bus_loads
from dunnage.planning.demand import Dates, Day, Ground, TripCounts, released_counts, service_seconds, with_dates
from dunnage.planning.dispatch import HOUR, Dispatch, Operation, Parking, Places, Requests, Service, open_posts
from dunnage.planning.plan import (
    PARKING_FILE,
    CityFacts,
    Demand,
    FleetModel,
    FleetPlan,
    FleetSpread,
    Posts,
    Run,
    Waiting,
    Waits,
    ZoneFacts,
)
from dunnage.planning.shifts import ShiftRule, drivers_of
from dunnage.release import Release
from dunnage.text import Progress, several

Fleet = tuple[int, ...]

MAX_WAIT_SECONDS = 180
WAIT_LIMIT_SECONDS = 86_400  # longest mean wait that you can set: a day
# Near the answer, the mean wait falls with about this power of the fleet. Only the next step of the search uses it.
_WAIT_POWER = 5.0
_GUESSED_SHARING = 4.5  # a first guess at the riders who share a shuttle
_SAFE = 1e-9
_MAX_ROUNDS = 40
_FIRST_DAYS = 2  # days at the start of the search for all zones together
_MAX_KNOWN = 8  # fleets with full results in memory; of the others, only the waits are kept
# Zones with at least twice this number of shuttles are sized to one part in this number: expansions differ by more.
_FINE = 200
_MAX_POSTS = 2_000  # posts of a zone that are chosen; beyond them they repeat
# A target is out of reach if a zone by itself misses it by so much with every useful shuttle; otherwise it is tried.
_OUT_OF_REACH = 1.1
# A fleet for the shortest possible wait would be huge: it is given for a wait that is so much longer.
_NEARLY = 1.2
_MAX_ZONES_NAMED = 3
# Fleets of at most this many shuttles are sized with each way to wait in all zones: it takes little time.
_SMALL_FLEET = 60


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DayRun:
    waits: NDArray[np.int32]  # seconds, of each ride
    busy: IntArray  # busy, empty: seconds that each shuttle carries riders, and drives empty
    empty: IntArray
    aboard: FloatArray  # total seconds that riders of each zone spend on board
    end: int  # second at which the last rider alights

    @classmethod
    def of(cls, day: Day, run: Operation, num_zones: int) -> DayRun:
        return cls(
            waits=run.waits.astype(np.int32),
            busy=run.busy,
            empty=run.empty,
            aboard=zone_sums(day, run.dropped - run.picked_up, num_zones),
            end=int(run.dropped.max(initial=0)),
        )


def zone_sums(day: Day, values: NDArray[Any], num_zones: int) -> FloatArray:
    return np.bincount(day.requests.zone, weights=values, minlength=num_zones).astype(np.float64)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Sized:
    fleet: Fleet  # shuttles of each zone
    alone: IntArray  # smallest fleet of each zone by itself, for each day; 0 without rides. Shape: (days, zones)
    runs: tuple[DayRun, ...]  # results of each day
    parking: tuple[Parking | None, ...]  # where the shuttles of each zone wait; None: at hubs
    complete: bool = True  # whether the search ended before its time limit


class UnreachableError(NoPlanError):
    """No fleet meets the target: for each zone that misses it, what can be reached."""

    def __init__(self, max_wait: float, zones: Sequence[Reach]) -> None:
        self.max_wait, self.zones = max_wait, tuple(zones)
        named = "; ".join(
            f"in zone {zone.zone!r}, {several(zone.most, 'shuttle')} reach {zone.wait_seconds:.0f} s, and "
            f"{several(zone.shuttles, 'shuttle')} reach {zone.near_seconds} s"
            for zone in zones[:_MAX_ZONES_NAMED]
        )
        rest = len(zones) - _MAX_ZONES_NAMED
        more = f"; {several(rest, 'other zone')} {'misses' if rest == 1 else 'miss'} it too" if rest > 0 else ""
        super().__init__(
            f"no fleet keeps the mean wait to {max_wait:g} seconds: {named}{more}. More shuttles would not help. "
            f"Set --max-wait to {self.near_seconds} or more, or divide large zones into smaller ones."
        )

    @property
    def near_seconds(self) -> int:
        return max(zone.near_seconds for zone in self.zones)


class Reach(Model):
    """What a zone can reach by itself if the target is out of reach."""

    zone: str
    most: int  # most, wait_seconds: all useful shuttles, and the mean wait with them
    wait_seconds: float
    shuttles: int  # shuttles, near_seconds: far fewer shuttles, for a slightly longer wait
    near_seconds: int


class _Bracket:
    """Limits of one zone's fleet while other zones vary: a number that is enough, and a smaller one that is not."""

    def __init__(self, most: int) -> None:
        self.most, self.few, self.enough, self._step = most, 0, most + 1, 1

    def learn(self, number: int, *, did: bool) -> None:
        """Record whether a number of shuttles is enough; contradicting limits are dropped."""
        if did:
            self.enough = number
            self.few = min(self.few, number - 1)
        else:
            self.few = number
            self.enough = self.most + 1 if self.enough <= number else self.enough

    @property
    def open(self) -> bool:
        return self.enough - self.few > grain(self.enough)

    def next(self, likely: float, *, halve: bool = True) -> int:
        """Return the number to try next: near a guess, in the middle, or the one that is enough."""
        if self.enough > self.most:  # nothing is enough yet: widen
            self._step *= 2
            return min(self.most, max(self.few + self._step // 2, min(math.ceil(likely), 2 * self.few)))
        if self.few == 0:  # everything is enough: narrow
            return max(1, min(self.enough - 1, math.floor(likely)))
        return (self.few + self.enough) // 2 if self.open and halve else self.enough


def grain(number: int) -> int:
    """Return the precision of sizing, in shuttles: 1, except if there are hundreds."""
    return max(1, number // _FINE)


class FleetTask:
    def __init__(
        self,
        ground: Ground,
        days: Sequence[Day],  # waits are averaged over the riders of all days
        *,
        service: Service,
        max_wait: float,  # longest mean wait of a zone's riders, in seconds
        span: tuple[int, int],
        parking: Sequence[Parking | None] | None = None,  # of each zone; None: at hubs, until the fleet is sized
        progress: Progress | None = None,  # called with a line of text with each simulated day
    ) -> None:
        check_max_wait(max_wait)
        self.ground, self.days, self.service, self.max_wait, self.span = ground, tuple(days), service, max_wait, span
        self.probes, self._stage = 0, ""
        self.deadline = NEVER  # then the search settles for the first fleet that meets the target
        self._tell = progress or (lambda line: None)
        self._sums: dict[tuple[Fleet, int], FloatArray] = {}
        self._known: dict[Fleet, dict[int, DayRun]] = {}
        self._apart: dict[tuple[int, int], Dispatch] = {}
        self._whole: dict[int, Dispatch] = {}
        self._ways: dict[int, tuple[Parking | None, ...]] = {}
        self._parking = (None,) * len(ground.zones) if parking is None else tuple(parking)

    @property
    def parking(self) -> tuple[Parking | None, ...]:
        return self._parking

    @parking.setter
    def parking(self, parking: Sequence[Parking | None]) -> None:
        self._parking = tuple(parking)
        self._sums.clear()
        self._known.clear()
        number = self._places.number
        if all(own is None or (number[zone, own.posts] >= 0).all() for zone, own in enumerate(parking)):
            self._whole = {day: ready.parked(self._parking) for day, ready in self._whole.items()}
        else:  # posts of another task, at stops where none of these rides begins or ends
            del self._places
            self._whole.clear()
            self._apart.clear()

    def __repr__(self) -> str:
        return f"FleetTask({len(self.ground.zones)} zones, {len(self.days)} days)"

    @cached_property
    def legs(self) -> IntArray:
        """Shuttle rides by day and zone. Shape: (days, zones)."""
        num = len(self.ground.zones)
        counts = [np.bincount(day.requests.zone, minlength=num) for day in self.days]
        return np.array(counts, dtype=np.int64).reshape(len(self.days), num)

    @cached_property
    def weights(self) -> FloatArray:
        return np.array([day.weight for day in self.days])

    @property
    def served(self) -> list[int]:
        return np.flatnonzero(self.legs.sum(axis=0)).tolist()

    def mean_waits(self, fleet: Sequence[int], *, days: int | None = None) -> FloatArray:
        key, num_days = tuple(map(int, fleet)), len(self.days[:days])
        for day in range(num_days):
            if (key, day) not in self._sums:
                self._run(key, day)
        return self.means_of([self._sums[key, day] for day in range(num_days)])

    def means_of(self, sums: Sequence[FloatArray]) -> FloatArray:
        """Return the mean wait of each zone's riders from the sums of the first days."""
        weights = self.weights[: len(sums), None]
        waits = np.array(sums).reshape(len(sums), len(self.ground.zones))
        rides = (weights * self.legs[: len(sums)]).sum(axis=0)
        return np.where(rides > 0, (weights * waits).sum(axis=0) / np.maximum(rides, _SAFE), 0.0)

    def runs(self, fleet: Sequence[int]) -> tuple[DayRun, ...]:
        """Return the results of a fleet on each day; those of the last simulated fleets are kept in memory."""
        key = tuple(map(int, fleet))
        known = self._known.get(key, {})
        return tuple(known.get(day) or self._run(key, day) for day in range(len(self.days)))

    def _run(self, fleet: Fleet, day: int) -> DayRun:
        run = DayRun.of(self.days[day], self._simulated(day, fleet), len(fleet))
        self._sums[fleet, day] = zone_sums(self.days[day], run.waits, len(fleet))
        self._known.setdefault(fleet, {})[day] = run
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return run

    def operate(self, fleet: Sequence[int]) -> tuple[Operation, ...]:
        return tuple(self._simulated(day, tuple(map(int, fleet))) for day in range(len(self.days)))

    def _count(self, stage: str | None = None) -> None:
        """Count a simulated day, or begin a stage; report progress."""
        if stage is None:
            self.probes += 1
        else:
            self._stage = stage
        self._tell(f"{self._stage} ({several(self.probes, 'simulated day')} so far)" if self.probes else self._stage)

    def _simulated(self, day: int, fleet: Fleet) -> Operation:
        self._count()
        if day not in self._whole:
            self._whole[day] = self._ready(self.days[day].requests)
        return self._whole[day].run(np.array(fleet, dtype=np.int64))

    def _ready(self, requests: Requests) -> Dispatch:
        ground = self.ground
        return Dispatch(requests, ground.times, ground.homes, self.service, self.parking, self._places)

    @cached_property
    def _places(self) -> Places:
        homes = [np.array(stops, dtype=np.int64) for stops in self.ground.homes]
        return Places.of(self.ground.times, [day.requests for day in self.days], homes, self.parking)

    def size(self) -> Sized:
        """Choose where shuttles wait and how many are needed, and keep that parking."""
        num = len(self.ground.zones)
        alone = np.zeros((len(self.days), num), dtype=np.int64)
        fleet = [0] * num
        self._count("checking whether the wait can be reached")
        self._check_reach()
        chosen = list(self.parking)
        for zone in self.served:
            self._count(f"sizing zone {self.ground.zones[zone]} by itself")
            last = 0  # the fleet of the last day with rides is a good guess for the next
            for day in np.flatnonzero(self.legs[:, zone]).tolist():
                if last:
                    last = self._smallest_alone(day, zone, last, chosen[zone])
                else:
                    guess = self._guess(day, zone)
                    chosen[zone], *others = self.ways(zone)
                    last = self._smallest_alone(day, zone, guess, chosen[zone], step=max(1, guess // 10))
                    for way in others if not self.deadline.late else ():
                        fewer = last - grain(last)
                        if fewer > 0 and self._does_alone(day, zone, fewer, way):
                            last, chosen[zone] = self._smallest_alone(day, zone, fewer, way), way
                alone[day, zone] = last
            fleet[zone] = int(np.median(alone[alone[:, zone] > 0, zone]))
        self._count("simulating all zones together")
        self.parking, final = chosen, tuple(fleet)
        if self.served:
            try:
                final = self._smallest_together(fleet)
            except UnreachableError:  # what is best for few shuttles may not be best for as many as it takes
                most = [self.most_shuttles(zone) if zone in self.served else 0 for zone in range(num)]
                self.parking = self.parked_best(most)
                final = self._smallest_together(fleet)
            final = self._parked_better(final)
        complete = not self.deadline.late
        return Sized(fleet=final, alone=alone, runs=self.runs(final), parking=self.parking, complete=complete)

    # Where shuttles wait

    def ways(self, zone: int) -> tuple[Parking | None, ...]:
        """Return the ways in which shuttles of a zone can wait: following requests to posts, only at posts, at hubs."""
        if zone not in self._ways:
            # Half of the rides in the next hour count, because shuttles move ahead of them, and half of those in an
            # average hour, because hours with few rides say little about where the next begins.
            hours = max(1, -(-(self.span[1] - self.span[0]) // HOUR))
            stops = np.unique(np.concatenate([day.requests.origin[day.requests.zone == zone] for day in self.days]))
            rides = np.zeros((hours, len(stops)))
            for day in self.days:
                own = np.flatnonzero(day.requests.zone == zone)
                hour = np.clip((day.requests.seconds[own] - self.span[0]) // HOUR, 0, hours - 1)
                np.add.at(rides, (hour, np.searchsorted(stops, day.requests.origin[own])), day.weight)
            blend = rides + np.vstack([rides[1:], rides[-1:]]) / 2 + rides.sum(axis=0) / (2 * hours)
            scaled = np.ceil(blend * (1_000 / self.weights.sum())).astype(np.int64)
            num, begin = min(open_posts(self.most_shuttles(zone)), _MAX_POSTS), self.span[0]
            posts = Parking.of(self.ground.times, stops.astype(np.int64), scaled, num, begin=begin, follows=True)
            self._ways[zone] = (posts, replace(posts, follows=False), None)
        return self._ways[zone]

    def _check_reach(self) -> None:
        every, missed = range(len(self.ground.zones)), []
        for zone in self.served:
            day, most, ways = int(np.argmax(self.legs[:, zone])), self.most_shuttles(zone), self.ways(zone)
            guess = self._guess(day, zone)
            # A few times the likely fleet usually shows that the target is in reach; many shuttles take long.
            few = [(min(most, times * guess), way) for times in (2, 6) for way in ways[:2]]
            if any(self._does_alone(day, zone, number, way) for number, way in few):
                continue
            waits = [self._wait_alone(zone, most, way) for way in ways]
            if min(waits) > _OUT_OF_REACH * self.max_wait:
                missed.append((zone, waits))
        if missed:
            best = {zone: self.ways(zone)[int(np.argmin(waits))] for zone, waits in missed}
            # Second rides begin a little later than expected if all zones are simulated together.
            self.parking = [best.get(zone, self.ways(zone)[0] if zone in self.served else None) for zone in every]
            together = self.mean_waits([self.most_shuttles(zone) if zone in self.served else 0 for zone in every])
            reach = []  # of each zone its shortest wait, and a smaller fleet for nearly that
            for zone, way in best.items():
                shortest, low, most = float(together[zone]), 0, self.most_shuttles(zone)
                near, high = max(math.ceil(_NEARLY * shortest), math.ceil(shortest) + 1), most
                while high - low > grain(high):
                    middle = (low + high) // 2
                    low, high = (low, middle) if self._wait_alone(zone, middle, way) <= near else (middle, high)
                name = self.ground.zones[zone]
                reach.append(Reach(zone=name, most=most, wait_seconds=shortest, shuttles=high, near_seconds=near))
            raise UnreachableError(self.max_wait, reach)

    def _guess(self, day: int, zone: int) -> int:
        return max(1, round(solo_cover(self._rides(day, zone).requests, self.ground.times) / _GUESSED_SHARING))

    def _wait_alone(self, zone: int, number: int, way: Parking | None) -> float:
        total = rides = 0.0
        for day in np.flatnonzero(self.legs[:, zone]).tolist():
            run = self._operate_alone(day, zone, number, way)
            total += self.days[day].weight * float(run.waits.sum())
            rides += self.days[day].weight * len(run.waits)
        return total / rides

    def parked_best(self, fleet: Sequence[int]) -> tuple[Parking | None, ...]:
        """Return where the shuttles of each zone should wait if there are so many: the way with the shortest wait."""
        before = self.parking
        ways = {zone: self.ways(zone) for zone in self.served if fleet[zone]}
        waits = []
        for number in range(3):
            self.parking = [ways[zone][number] if zone in ways else None for zone in range(len(fleet))]
            waits.append(self.mean_waits(fleet))
        self.parking = before
        best = np.argmin(waits, axis=0).tolist()
        return tuple(ways[zone][best[zone]] if zone in ways else None for zone in range(len(fleet)))

    def _parked_better(self, fleet: Fleet) -> Fleet:
        """Try other parking with all zones together; keep the one that needs fewest shuttles."""
        # In each zone, the way with the shortest wait for this fleet; and, if it is small, each way in all zones: what
        # is best for a zone by itself on one day may need one shuttle more in the end.
        best = fleet, self.parking
        if self.deadline.late:
            return fleet

        def smallest(*found: tuple[Fleet, tuple[Parking | None, ...]]) -> tuple[Fleet, tuple[Parking | None, ...]]:
            return min(found, key=lambda one: sum(one[0]))

        if (better := self.parked_best(fleet)) != self.parking:
            self.parking = better
            if (self.mean_waits(fleet) <= self.max_wait).all():
                best = smallest(best, (self._lowered(fleet), better))
        busiest = self.legs.argmax(axis=0).tolist()
        for number in range(3 if sum(fleet) <= _SMALL_FLEET else 0):
            ways = tuple(self.ways(zone)[number] if zone in self.served else None for zone in range(len(fleet)))
            near = [self._does_alone(busiest[zone], zone, best[0][zone], ways[zone]) for zone in self.served]
            if ways != best[1] and all(near) and not self.deadline.late:
                self.parking = ways
                with suppress(UnreachableError):
                    best = smallest(best, (self._smallest_together(best[0]), ways))
        if self.parking != best[1]:
            self.parking = best[1]
        return best[0]

    # Each zone by itself

    def _rides(self, day: int, zone: int) -> Dispatch:
        """Return the rides of one zone, each requested at its expected time, independent of other zones."""
        if (day, zone) not in self._apart:
            whole = self.days[day].requests
            own = np.flatnonzero(whole.zone == zone)
            later = self.max_wait + self.service.dwell_seconds
            seconds = whole.seconds[own] + np.where(whole.after[own] >= 0, round(later), 0)
            ends = whole.origin[own], whole.destination[own]
            self._apart[day, zone] = self._ready(Requests.single(whole.zone[own], *ends, seconds))
        return self._apart[day, zone]

    def _smallest_alone(self, day: int, zone: int, guess: int, way: Parking | None, *, step: int = 1) -> int:
        """Search for the smallest fleet from a guess: widen until there are limits, halve, and try two fewer."""
        tried: dict[int, bool] = {}

        def does(number: int) -> bool:
            if number not in tried:
                tried[number] = self._does_alone(day, zone, number, way)
            return tried[number]

        most = self.most_shuttles(zone)
        enough, wide = min(max(1, guess), most), step
        while not does(enough):
            if enough == most:  # a single day may miss the target that all days together meet
                return most
            enough, wide = min(most, enough + wide), 2 * wide
        few = max((number for number, good in tried.items() if not good and number < enough), default=0)
        while few == 0 and enough > 1 and not self.deadline.late:
            number = max(1, enough - step)
            if not does(number):
                few = number
            else:
                enough, step = number, 2 * step
        while enough - few > grain(enough) and not self.deadline.late:
            middle = (enough + few) // 2
            enough, few = (middle, few) if does(middle) else (enough, middle)
        # Waits need not fall with every shuttle: a smaller fleet may be enough even if a larger one is not.
        fewer = enough - 2 * grain(enough)
        again = day == 0 and fewer > 0 and not self.deadline.late and does(fewer)
        return self._smallest_alone(day, zone, fewer, way, step=grain(fewer)) if again else enough

    def _does_alone(self, day: int, zone: int, number: int, way: Parking | None) -> bool:
        run = self._operate_alone(day, zone, number, way, abort_mean_wait=self.max_wait)
        return not run.aborted and float(run.waits.sum()) <= self.max_wait * len(run.waits)

    def _operate_alone(
        self, day: int, zone: int, number: int, way: Parking | None, *, abort_mean_wait: float | None = None
    ) -> Operation:
        here = np.arange(len(self.ground.zones)) == zone
        rides = self._rides(day, zone)
        if rides.parking[zone] is not way:
            rides = self._apart[day, zone] = rides.parked([way if own else None for own in here])
        self._count()
        return rides.run(np.where(here, number, 0), abort_mean_wait=abort_mean_wait)

    def most_shuttles(self, zone: int) -> int:
        """Return a number of shuttles in a zone beyond which more are useless: most would stay at home all day."""
        return min(int(self.legs[:, zone].max()), 8 + 4 * self.solo_cover(zone))

    # All zones together

    def _smallest_together(self, start: Sequence[int]) -> Fleet:
        near = start if self.deadline.late else self._bracketed(start, _FIRST_DAYS, narrow=True)
        return self._lowered(self._bracketed(near, len(self.days), narrow=False))

    def _bracketed(self, start: Sequence[int], days: int, *, narrow: bool) -> list[int]:
        """Search for a fleet with which every zone meets the target on the first days: widen or halve all zones."""
        # The waits of a zone also depend a little on other zones; limits that contradict this are dropped.
        fleet, rounds = list(start), 0
        brackets = [_Bracket(self.most_shuttles(zone)) for zone in range(len(fleet))]
        while True:
            waits, before, rounds = self.mean_waits(fleet, days=days), list(fleet), rounds + 1
            halve = rounds < _MAX_ROUNDS and not self.deadline.late
            for zone in self.served:
                bracket, did = brackets[zone], bool(waits[zone] <= self.max_wait)
                bracket.learn(fleet[zone], did=did)
                if bracket.few >= bracket.most:
                    if narrow:  # all days together may meet a target that some days miss
                        continue
                    # It just misses the target with all useful shuttles, if all zones are simulated together.
                    wait = float(waits[zone])
                    near, name = max(math.ceil(wait), math.ceil(self.max_wait) + 1), self.ground.zones[zone]
                    reach = Reach(
                        zone=name, most=bracket.most, wait_seconds=wait, shuttles=bracket.most, near_seconds=near
                    )
                    raise UnreachableError(self.max_wait, [reach])
                # In the end, zones that never settle are only raised, so that the search ends.
                if not did or (narrow and halve and bracket.open):
                    likely = fleet[zone] * (max(waits[zone], 1.0) / self.max_wait) ** (1 / _WAIT_POWER)
                    fleet[zone] = bracket.next(likely, halve=halve)
            if fleet == before:
                return fleet

    def _lowered(self, start: Sequence[int]) -> Fleet:
        """Remove shuttles, a grain at a time, until one grain fewer in any zone misses the target somewhere."""
        fleet = tuple(start)
        while True:
            waits = self.mean_waits(fleet)
            # The zone with the shortest wait first.
            for zone in sorted(self.served, key=lambda zone: waits[zone]):
                less = (*fleet[:zone], fleet[zone] - grain(fleet[zone]), *fleet[zone + 1 :])
                if self.deadline.late:
                    return fleet
                if fleet[zone] > 1 and (self.mean_waits(less) <= self.max_wait).all():
                    fleet = less
                    break
            else:
                return fleet

    # Bounds

    def solo_cover(self, zone: int) -> int:
        """Return how many shuttles carry a zone's riders one by one on its busiest day without waits; no bound."""
        covers = [solo_cover(self._rides(day, zone).requests, self.ground.times) for day in range(len(self.days))]
        return max(covers, default=0)

    def bound(self, zone: int) -> int:
        """Return a lower bound on the shuttles of a zone that meets the target, for any dispatch."""
        # A ride occupies a seat for at least d seconds. If it waits w seconds, at most w d / (x + d) of these seconds
        # are later than x after the latest end without any wait. Waits add up to at most target times rides, so for
        # every x the seats of the fleet must provide the rest before then. Second rides are left out, because the time
        # of their request depends on the fleet.
        shortest = self.ground.shortest
        if not self.legs[:, zone].any():
            return 0
        if shortest is None:
            return 1
        allowed, work, longest, spans = 0.0, 0.0, 0, np.zeros(2)
        for day, legs in zip(self.days, self.legs[:, zone].tolist(), strict=True):
            requests = day.requests
            own = np.flatnonzero((requests.zone == zone) & (requests.after < 0))
            allowed += day.weight * self.max_wait * legs
            if len(own):
                rides = shortest[requests.origin[own], requests.destination[own]].astype(np.int64)
                seconds = requests.seconds[own]
                work, longest = work + day.weight * float(rides.sum()), max(longest, int(rides.max()))
                spans += day.weight * np.array([(seconds + rides).max() - seconds.min(), 1.0])
        later = np.linspace(0, 20 * max(1, longest), 401)
        late = allowed * longest / (later + max(1, longest))
        room = self.service.capacity * (spans[0] + spans[1] * later)
        least = ((work - late) / np.maximum(room, 1.0)).max()
        return max(1, math.ceil(float(least) * (1 - _SAFE) - _SAFE))


def check_max_wait(max_wait: float) -> None:
    if not 0 < max_wait <= WAIT_LIMIT_SECONDS:
        raise ParameterError(
            f"the longest mean wait must be above 0 seconds and at most {WAIT_LIMIT_SECONDS}, for example 180. Got "
            f"{max_wait:g}."
        )


def solo_cover(requests: Requests, times: NDArray[np.int32]) -> int:
    """Return the maximum number of simultaneous rides, if each begins when it is requested."""
    rides = times[requests.origin, requests.destination].astype(np.int64)
    moments = np.concatenate([requests.seconds, requests.seconds + np.maximum(rides, 1)])
    change = np.concatenate([np.ones(len(rides), dtype=np.int64), -np.ones(len(rides), dtype=np.int64)])
    order = np.lexsort((change, moments))
    return int(np.cumsum(change[order]).max(initial=0))


EXPANSIONS = 5
MAX_EXPANSIONS = 1_000
_MANY_TRIPS = 60_000  # of a date; with more, fewer expansions are sampled: they differ less and take longer


def size(
    release: Release,
    city: City,
    *,
    max_wait: float = MAX_WAIT_SECONDS,
    expansions: int = EXPANSIONS,
    service: Service | None = None,
    seed: int = 0,
    day: str | None = None,
    dates: Dates | None = None,
    routes: Routes | None = None,
    seconds: float | None = None,
    shifts: ShiftRule | None = None,
    progress: Progress | None = None,
) -> FleetPlan:
    """Size the smallest fleet of shuttles for released counts of trips. It needs only the release and a city.

    The fleet is for an average day: counts are divided by the number of dates that they cover. If the release
    distinguishes days, the fleet meets the target on average over the riders of all days, weighted by their dates. A
    busy day alone may miss it; set ``day`` to size for that day.

    Parameters
    ----------
    release
        A release of counts.
    city
        The city of the trips: stops with zones, and travel times or coordinates.
    max_wait
        Longest mean wait of a zone's riders, in seconds.
    expansions
        Minimum number of simulated days with random seconds; each day of the release is simulated at least once.
    service
        Seats, limits and weights of the shuttles.
    seed
        Seed of the random seconds.
    day
        Label of the only day to size for.
    dates
        How many dates the trips cover, for a release that does not state it: a number, or one for each label of days.
    routes
        The route of each pair of stops; by default the quickest.
    seconds
        Time limit: after it, the search settles for the first fleet that meets the target, and the plan says so.
    shifts
        How long drivers work and rest: the plan then also has the fewest shifts that keep every shuttle driven.
    progress
        Called with a line of text with each simulated day.

    Raises
    ------
    UserError
        If the release has no counts, the city lacks a stop or data for sizing, or there are too many trips.
    NoPlanError
        If no fleet meets the target; it says which wait can be reached, and with how many shuttles.
    """
    start = time.monotonic()
    tell = progress or (lambda line: None)
    check_max_wait(max_wait)
    if not isinstance(release, Release) or not isinstance(city, City):
        raise ParameterError("size takes a release first, then a city: dn.size(release, city).")
    if seconds is not None and not seconds > 0:
        raise ParameterError(f"the time limit must be more than 0 seconds, for example 60. Got {seconds:g}.")
    deadline = NEVER if seconds is None else Deadline.after(seconds)
    tell("finding routes")
    ground = Ground.of(city, routes)
    model = FleetModel(
        name="smallest-fleet",
        max_wait_seconds=max_wait,
        expansions=expansions,
        seed=seed,
        day=day,
        dates=dates if dates is None or isinstance(dates, int) else dict(dates),
        service=service or Service(),
    )
    task = released_task(release, ground, model, progress=tell)
    task.deadline = deadline
    sized = task.size()
    bounds = [task.bound(zone) for zone in range(len(ground.zones))]
    posts = {}  # as many as may be open
    for zone, own, number in zip(ground.zones, sized.parking, sized.fleet, strict=True):
        if own is not None:
            hours = tuple(tuple(city.stops[stop] for stop in row) for row in own.first(number).tolist())
            posts[zone] = Posts(waiting=_FOLLOWS[own.follows], begin=own.begin, stops=hours)
    loads = bus_loads(ground, task.days, release.universe)
    return FleetPlan(
        release=release.certificate.digest,
        zones=ground.zones,
        shuttles=sized.fleet,
        posts=posts,
        model=model,
        bound=sum(bounds),
        seconds=time.monotonic() - start,
        probes=task.probes,
        by_zone=zone_facts(task, sized, bounds),
        operation=run_facts(task, sized.fleet, sized.runs),
        demand=demand_facts(task),
        city=CityFacts(digest=ground.digest(), stops=len(city.stops), zones=len(ground.zones)),
        drivers=None
        if shifts is None
        else drivers_of(dict(zip(ground.zones, sized.fleet, strict=True)), task.span, shifts),
        buses=loads,
        assumed=_assumptions(task, with_dates(release.universe, dates), day, city, routes, shifts),
        notes=_notes(release, task, sized),
    )


def released_task(
    release: Release,
    ground: Ground,
    model: FleetModel,
    *,
    parking: Sequence[Parking | None] | None = None,
    progress: Progress | None = None,
) -> FleetTask:
    wait, expansions, seed, service = model.max_wait_seconds, model.expansions, model.seed, model.service
    if wait is None or expansions is None or seed is None or service is None:
        raise ParameterError("the plan does not say how it was sized. Size the fleet again.")
    if seed < 0:
        raise ParameterError(f"seed must be at least 0. Got {seed}.")
    counts = released_counts(release, ground.city, model.dates)
    return FleetTask(
        ground,
        expanded_days(counts, ground, expansions=expansions, seed=seed, day=model.day),
        service=service,
        max_wait=float(wait),
        span=service_seconds(release.universe),
        parking=parking,
        progress=progress,
    )


def planned_task(release: Release, ground: Ground, plan: FleetPlan, *, progress: Progress | None = None) -> FleetTask:
    """Sample again the days for which a plan was sized, to simulate its fleet or similar fleets as it parks them."""
    model = plan.model or FleetModel(name="")
    model = model.model_copy(update={"dates": dates_of_plan(release.universe, plan)})
    return released_task(release, ground, model, parking=planned_parking(plan, ground), progress=progress)


def dates_of_plan(universe: Universe, plan: FleetPlan) -> int | dict[str, int] | None:
    """Return the number of dates that a plan assumed; an earlier version took unknown dates for one."""
    if universe.num_dates or (plan.model is not None and plan.model.dates is not None):
        return plan.model.dates if plan.model is not None else None
    return dict.fromkeys(universe.days, 1) if universe.days else 1


_FOLLOWS: dict[bool, Waiting] = {False: "posts", True: "requests, then posts"}


def planned_parking(plan: FleetPlan, ground: Ground) -> tuple[Parking | None, ...]:
    """Return where the shuttles of a plan wait, with stops numbered as in the city."""
    number = {stop: place for place, stop in enumerate(ground.city.stops)}
    parking: list[Parking | None] = []
    for zone in ground.zones:
        own = plan.posts.get(zone)
        if own is None:
            parking.append(None)
            continue
        if lost := next((stop for row in own.stops for stop in row if stop not in number), None):
            raise ParameterError(
                f"the plan parks shuttles of zone {zone!r} at {lost!r}, which is not a stop of the city. Use the city "
                "of the plan."
            )
        posts = np.array([[number[stop] for stop in row] for row in own.stops], dtype=np.int64)
        parking.append(Parking(posts=posts, begin=own.begin, follows=own.waiting == _FOLLOWS[True]))
    return tuple(parking)


def expanded_days(
    counts: TripCounts, ground: Ground, *, expansions: int = EXPANSIONS, seed: int = 0, day: str | None = None
) -> list[Day]:
    """Sample days of trips from counts: at least ``expansions`` in all, and each day once; fewer of many trips."""
    if not 1 <= expansions <= MAX_EXPANSIONS:
        raise ParameterError(f"expansions must be from 1 to {MAX_EXPANSIONS}, for example 5. Got {expansions}.")
    if day is not None and day not in counts.days:
        raise ParameterError(f"the release has no day {day!r}. It has: {', '.join(counts.days)}.")
    chosen = [number for number, label in enumerate(counts.days) if day in (None, label)]
    each = math.ceil(expansions / len(chosen))
    # As many as requested, fewer with many trips, but at least one.
    fewer = {number: math.floor(each * _MANY_TRIPS / max(counts.trips_a_date(number), 1.0)) for number in chosen}
    draws = {number: max(1, min(each, most)) for number, most in fewer.items()}
    return [
        Day.of(counts.expanded(number, (seed, number, draw)), ground, counts.num_dates[number] / num_draws)
        for number, num_draws in draws.items()
        for draw in range(num_draws)
    ]


def demand_facts(task: FleetTask) -> Demand:
    """Return the demand of an average day; trips that end where they begin are counted separately."""
    routes, total = task.ground.routes, float(task.weights.sum()) or 1.0
    modes = np.zeros(len(routes.mode_names))
    trips = same_stop = shuttled = 0.0
    for day in task.days:
        same = day.trips.origin == day.trips.destination
        pairs = routes.pairs(day.trips.origin[~same], day.trips.destination[~same])
        modes += day.weight * np.bincount(routes.mode[pairs], minlength=len(modes))
        trips += day.weight * len(day.trips)
        same_stop += day.weight * float(same.sum())
        shuttled += day.weight * len(np.unique(day.requests.rider))
    share = modes / max(modes.sum(), 1.0)
    return Demand(
        trips=round(trips / total, 6),
        same_stop=round(same_stop / total, 6),
        without_shuttle=round((trips - shuttled) / total, 6),
        legs=round(float((task.weights * task.legs.sum(axis=1)).sum()) / total, 6),
        modes={name: float(part) for name, part in zip(routes.mode_names, share, strict=True)},
    )


def zone_facts(task: FleetTask, sized: Sized, bounds: Sequence[int]) -> dict[str, ZoneFacts]:
    facts = {}
    rides = np.average(task.legs, axis=0, weights=task.weights) if len(task.days) else np.zeros(len(bounds))
    for zone, name in enumerate(task.ground.zones):
        alone = sized.alone[:, zone]
        fleets, spread = alone[alone > 0], None
        if len(fleets):
            mean = round(float(fleets.mean()), 6)
            spread = FleetSpread(smallest=int(fleets.min()), mean=mean, largest=int(fleets.max()))
        run = run_facts(task, sized.fleet, sized.runs, zone=zone)
        facts[name] = ZoneFacts(
            legs=round(float(rides[zone]), 6),
            bound=bounds[zone],
            solo_cover=task.solo_cover(zone),
            spread=spread,
            wait_seconds=None,
        ).model_copy(update={} if run is None else dict(run))
    return facts


def run_facts(task: FleetTask, fleet: Sequence[int], runs: Sequence[DayRun], *, zone: int | None = None) -> Run | None:
    """Return the results of a fleet, for one zone or all: waits, and what shuttles do. None without rides."""
    waits, weights = [], []
    shuttle_zone = np.repeat(np.arange(len(fleet)), fleet)
    used = np.ones(len(shuttle_zone), dtype=bool) if zone is None else shuttle_zone == zone
    busy = empty = aboard = horizon = 0.0
    for day, run in zip(task.days, runs, strict=True):
        own = slice(None) if zone is None else day.requests.zone == zone
        waits.append(run.waits[own])
        weights.append(np.full(len(waits[-1]), day.weight))
        busy += day.weight * float(run.busy[used].sum())
        empty += day.weight * float(run.empty[used].sum())
        aboard += day.weight * float(run.aboard.sum() if zone is None else run.aboard[zone])
        # Shuttles are in service for the whole service day, and until the last rider has arrived.
        end = max(task.span[1], run.end)
        horizon += day.weight * int(used.sum()) * (end - task.span[0])
    if not sum(map(len, waits)):
        return None
    idle = horizon - busy
    return Run(
        wait_seconds=wait_facts(np.concatenate(waits), np.concatenate(weights)),
        busy_share=busy / horizon,
        empty_share=empty / horizon,
        parked_share=(idle - empty) / horizon,
        idle_share=idle / horizon,
        idle_seconds=idle / (int(used.sum()) * float(task.weights.sum())),
        occupancy=aboard / busy if busy else 0.0,
    )


def wait_facts(waits: IntArray, weights: FloatArray) -> Waits:
    order = np.argsort(waits, kind="stable")
    reached = np.cumsum(weights[order])
    median, p95 = (waits[order][np.searchsorted(reached, share * reached[-1])] for share in (0.5, 0.95))
    return Waits(mean=float(np.average(waits, weights=weights)), median=float(median), p95=float(p95))


def _assumptions(
    task: FleetTask, universe: Universe, day: str | None, city: City, routes: Routes | None, shifts: ShiftRule | None
) -> tuple[str, ...]:
    service, num_days = task.service, len(task.days)
    other = [name for name in city.mode_names if name not in TRIP_MODES]
    modes = []
    if city.modes is not None and routes is None and other:
        modes.append(
            f"The city's modes are ignored, because {other[0]!r} is not one of the {len(TRIP_MODES)} supported modes. "
            "Each pair of stops uses the quickest route."
        )
    dates = []
    if day is not None:
        dates.append(f"The fleet is planned only for {day}.")
    elif universe.days:
        dates.append("The mean wait is over the riders of all days together; on a busy day it may be longer.")
    elif universe.num_dates[0] > 1:
        dates.append(
            f"The trips are those of {universe.num_dates[0]:,} dates, spread evenly over them: the fleet is for an "
            "average day, and a busier day needs more."
        )
    # How the shuttles of each zone wait for riders.
    needed = "go to where the requests of the last quarter of an hour need them soonest, or else"
    words = {
        True: f"{needed} to the stops in {PARKING_FILE}, which are near where trips begin in each hour.",
        False: f"wait at the stops in {PARKING_FILE}, which are near where trips begin in each hour.",
        None: f"{needed} to a hub of their zone, or to the stop nearest to all others if it has no hub.",
    }
    ways = {zone: None if (own := task.parking[zone]) is None else own.follows for zone in task.served}
    parking = []
    for follows, does in words.items():
        if zones := [task.ground.zones[zone] for zone, way in ways.items() if way is follows]:
            more = f" and {len(zones) - _MAX_ZONES_NAMED} more" if len(zones) > _MAX_ZONES_NAMED else ""
            parking.append(f"Shuttles without riders in {', '.join(zones[:_MAX_ZONES_NAMED])}{more} {does}")
    return (
        *modes,
        *task.ground.routes.assumed,
        f"Shuttles have {service.capacity} seats. Riders should wait at most {service.max_wait_seconds} s, and a ride "
        f"should take at most {service.max_detour:g} times the direct drive plus {service.detour_seconds} s. A stop "
        f"takes {service.dwell_seconds} s. A second of waiting weighs {service.wait_weight}, a second of a longer ride "
        f"{service.ride_weight}, and a second of a longer drive {service.drive_weight}.",
        f"Each trip begins at a random second of its window. {several(num_days, 'such day')} "
        f"{'was' if num_days == 1 else 'were'} simulated.",
        *dates,
        "Every shuttle is in service for the whole service day.",
        *([] if task.ground.city.buses is None or task.ground.city.buses.seats is None else [ASSUMED]),
        *([] if shifts is None else [f"Drivers work {shifts.words}, and drive any shuttle of their zone."]),
        *parking,
    )


def _notes(release: Release, task: FleetTask, sized: Sized) -> tuple[str, ...]:
    expected, noise = release.certificate.counts.expected, []
    if expected is not None and expected.finest.is_noise:
        noise.append(
            "The release predicts that its single counts are noise, so this fleet rests on sums alone: where in a zone "
            "trips begin and end is largely invented. Ask the owner for fewer or larger counts, or keep some shuttles "
            "in reserve."
        )
    if not task.served:
        useless = " Noise may hide the true trips: this plan says nothing about the fleet they need." if noise else ""
        return (*noise, f"No released trip needs a shuttle, so the plan has none.{useless}")
    most = max(map(grain, sized.fleet), default=1)
    fewer = "one shuttle fewer" if most == 1 else f"one shuttle fewer (up to {most} fewer in large zones)"
    idle = [name for name, number in zip(task.ground.zones, sized.fleet, strict=True) if not number]
    searched = (
        f"With {fewer} in any zone, at least one zone misses it. Mean waits need not fall with every additional "
        "shuttle, so smaller fleets that do as well may exist."
        if sized.complete
        else "The search stopped at its time limit: fewer shuttles are probably enough. Allow more time to find out."
    )
    return (
        *noise,
        f"In the simulation, every zone meets the target. {searched}",
        "The bound is proved but weak. solo_cover is only a rough guide, because riders share rides.",
        *([f"No ride needs a shuttle of {', '.join(idle)}, so there is no shuttle there."] if idle else []),
    )
