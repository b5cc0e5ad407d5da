# SPDX-License-Identifier: Apache-2.0
"""Check a fleet's day: replay every event of every shuttle, in plain Python.

Shares nothing with the simulation that makes it (:mod:`dunnage.planning.dispatch`) but the columns of its result.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

KINDS = ("park", "depart", "turn", "arrive", "dropoff", "pickup")
NOBODY = -1


@dataclass
class _Rules:
    """What is asked of a day, as plain lists."""

    zone: list[int]
    origin: list[int]
    destination: list[int]
    requested: list[int]
    picked_up: list[int]
    dropped: list[int]
    shuttle: list[int]
    times: Any
    capacity: int
    dwell: int


@dataclass
class _Shuttle:
    """A shuttle as its events have moved it."""

    number: int
    zone: int
    stop: int
    time: int
    aboard: set[int] = field(default_factory=set)
    heading: int = NOBODY
    departed: int = 0
    due: int = 0
    turned: bool = False
    parked: bool = False
    stays_until: int = 0
    busy: int = 0
    empty: int = 0

    @property
    def driving(self) -> bool:
        return self.heading != NOBODY

    def pass_time(self, until: int) -> None:
        """Count the time until the next event as busy, empty or neither."""
        if self.driving:
            if self.aboard:
                self.busy += until - self.time
            else:
                self.empty += until - self.time
        elif self.aboard:
            self.busy += until - self.time
        else:
            self.busy += max(0, min(until, self.stays_until) - self.time)
        self.time = until


def check_operation(
    requests: Any, fleet: Sequence[int], times: Any, homes: Sequence[Any], service: Any, operation: Any
) -> list[str]:
    """Return everything that is wrong with an operation, up to a hundred things; nothing if it is sound.

    Every leg is requested when it should be, picked up at or after that, and dropped after that, once each, by a
    shuttle of its zone and at its stops; no shuttle is fuller than it may be; each starts at a home of its zone and is
    nowhere sooner than travel times and stays allow, also where it turns back; waits and the seconds busy, empty and
    parked are those of the events; no more legs exceed the limits of the service than are said to be late.
    """
    return list(itertools.islice(_problems(requests, fleet, times, homes, service, operation), 100))


def _problems(
    requests: Any, fleet: Sequence[int], times: Any, homes: Sequence[Any], service: Any, operation: Any
) -> Iterator[str]:
    if operation.aborted:
        yield "the operation was given up before its end."
        return
    columns = ("requested", "picked_up", "dropped", "shuttle")
    num = len(requests.seconds)
    if any(len(getattr(operation, name)) != num for name in columns):
        yield f"there are {num} legs, but other numbers of times or shuttles."
        return
    rules = _Rules(
        **{name: [int(value) for value in getattr(requests, name)] for name in ("zone", "origin", "destination")},
        **{name: [int(value) for value in getattr(operation, name)] for name in columns},
        times=times,
        capacity=service.capacity,
        dwell=service.dwell_seconds,
    )
    yield from _check_requests(requests, rules, service, operation)
    yield from _check_fleet(fleet, homes, operation)
    shuttles = [
        _Shuttle(number, int(zone), int(stop), int(operation.start), stays_until=int(operation.start))
        for number, (zone, stop) in enumerate(zip(operation.zone, operation.home, strict=True))
    ]
    yield from _replay(rules, shuttles, operation)
    horizon = int(operation.end) - int(operation.start)
    for shuttle in shuttles:
        said = [int(column[shuttle.number]) for column in (operation.busy, operation.empty)]
        if said != [shuttle.busy, shuttle.empty] or sum(said) > horizon:
            yield f"shuttle {shuttle.number} is busy and empty for other times than is said, or more than the day has."


def _check_requests(requests: Any, rules: _Rules, service: Any, operation: Any) -> Iterator[str]:
    """Check when legs are requested, that waits are counted from then, and who was served beyond the limits."""
    beyond = 0
    for leg, seconds in enumerate(requests.seconds):
        first = int(requests.after[leg])
        due = int(seconds) if first < 0 else rules.dropped[first] + int(requests.lag[leg])
        requested, picked_up, dropped = rules.requested[leg], rules.picked_up[leg], rules.dropped[leg]
        if requested != due:
            yield f"leg {leg} is requested at {requested} instead of {due}."
        if not requested <= picked_up <= dropped:
            yield f"leg {leg} is picked up before it is requested, or dropped before it is picked up."
        if int(operation.waits[leg]) != picked_up - requested:
            yield f"the wait of leg {leg} is not the time from its request to its pickup."
        direct = int(rules.times[rules.origin[leg]][rules.destination[leg]])
        longest = int(service.max_detour * direct) + service.detour_seconds + service.dwell_seconds
        beyond += dropped - picked_up > longest or picked_up - requested > service.max_wait_seconds
    starts = [int(seconds) for seconds, first in zip(requests.seconds, requests.after, strict=True) if first < 0]
    if starts and operation.start != min(starts):
        yield "the operation does not start with the first request."
    if beyond > operation.late:
        yield f"{beyond} legs exceed the limits of the service, but only {operation.late} are said to be late."


def _check_fleet(fleet: Sequence[int], homes: Sequence[Any], operation: Any) -> Iterator[str]:
    """Check that each zone has its shuttles, and that they start at home."""
    zones = [int(zone) for zone in operation.zone]
    for zone, size in enumerate(fleet):
        if zones.count(zone) != int(size):
            yield f"zone {zone} has {zones.count(zone)} shuttles instead of {int(size)}."
    if any(not 0 <= zone < len(fleet) for zone in zones):
        yield "a shuttle belongs to a zone that does not exist."
        return
    for shuttle, (zone, stop) in enumerate(zip(zones, operation.home, strict=True)):
        own = homes[zone]
        if int(stop) not in ([int(own)] if not hasattr(own, "__len__") else [int(home) for home in own]):
            yield f"shuttle {shuttle} does not start at a home of its zone."


def _replay(rules: _Rules, shuttles: list[_Shuttle], operation: Any) -> Iterator[str]:
    """Move every shuttle by its events."""
    events = operation.events
    state: dict[int, str] = {}
    seen: set[int] = set()
    columns = (events.shuttle, events.seconds, events.stop, events.event, events.leg, events.target)
    for row in zip(*(column.tolist() for column in columns), strict=True):
        number, seconds, stop, kind, leg, target = row
        if not 0 <= number < len(shuttles):
            yield f"there is no shuttle {number}."
            return
        shuttle = shuttles[number]
        if number not in seen:
            seen.add(number)
            if KINDS[kind] != "park" or seconds != operation.start:
                yield f"shuttle {number} does not start parked."
        if seconds < shuttle.time:
            yield f"shuttle {number} goes back in time at {seconds}."
        else:
            shuttle.pass_time(seconds)
        wrong = _step(rules, shuttle, KINDS[kind], stop, leg, target, state)
        if wrong:
            yield f"shuttle {number} at {seconds}: {wrong}"
    for leg in range(len(rules.origin)):
        if state.get(leg) != "dropped":
            yield f"leg {leg} is not served."
    for shuttle in shuttles:
        if shuttle.number not in seen:
            yield f"shuttle {shuttle.number} has no event."
        if not shuttle.parked or shuttle.time > operation.end:
            yield f"shuttle {shuttle.number} is not parked when the operation ends."
        else:
            shuttle.pass_time(int(operation.end))


def _step(
    rules: _Rules, shuttle: _Shuttle, kind: str, stop: int, leg: int, target: int, state: dict[int, str]
) -> str | None:
    """Let one event happen; return what is wrong with it."""
    if kind == "depart":
        return _depart(rules, shuttle, stop, target)
    if kind == "turn":
        return _turn(rules, shuttle, stop)
    if kind == "arrive":
        if not shuttle.driving or stop != (shuttle.stop if shuttle.turned else shuttle.heading):
            return "it arrives where it was not going."
        late = shuttle.time - shuttle.due
        shuttle.stop, shuttle.heading, shuttle.stays_until = stop, NOBODY, shuttle.time
        return f"it arrives {late} seconds after the drive allows." if late else None
    if shuttle.driving or stop != shuttle.stop:
        return f"a {kind} between stops, or where it is not."
    if kind == "park":
        again, shuttle.parked = shuttle.parked, True
        wrong = again or shuttle.aboard or shuttle.time != shuttle.stays_until
        return "it parks again, with riders, or not when its stay is over." if wrong else None
    stood = _stood(shuttle)
    shuttle.parked = False
    shuttle.stays_until = max(shuttle.stays_until, shuttle.time + rules.dwell)
    if not 0 <= leg < len(rules.origin):
        return "a rider that nobody knows."
    if kind == "pickup":
        before, state[leg] = state.get(leg), "aboard"
        shuttle.aboard.add(leg)
        if before is not None or len(shuttle.aboard) > rules.capacity:
            return f"leg {leg} is picked up again, or by a shuttle without free seats."
        place, time = rules.origin[leg], rules.picked_up[leg]
        if rules.shuttle[leg] != shuttle.number or rules.zone[leg] != shuttle.zone:
            return f"leg {leg} is picked up by a shuttle of another zone, or by another than is said."
    else:
        if leg not in shuttle.aboard:
            return f"leg {leg} is dropped without being aboard."
        shuttle.aboard.remove(leg)
        state[leg], place, time = "dropped", rules.destination[leg], rules.dropped[leg]
    if (shuttle.stop, shuttle.time) != (place, time):
        return f"a {kind} of leg {leg} elsewhere or at another time than is said."
    return stood


def _stood(shuttle: _Shuttle) -> str | None:
    """Return what is wrong if a shuttle stood longer than its stay without having parked."""
    return None if shuttle.parked or shuttle.time <= shuttle.stays_until else "it stood without having parked."


def _depart(rules: _Rules, shuttle: _Shuttle, stop: int, target: int) -> str | None:
    if shuttle.driving or stop != shuttle.stop:
        return "it departs from where it is not."
    if not 0 <= target < len(rules.times):
        return "it departs for nowhere."
    stood, early = _stood(shuttle), shuttle.time < shuttle.stays_until
    shuttle.parked = False
    shuttle.heading, shuttle.departed, shuttle.turned = target, shuttle.time, False
    shuttle.due = shuttle.time + int(rules.times[stop][target])
    return "it departs before its stay is over." if early else stood


def _turn(rules: _Rules, shuttle: _Shuttle, stop: int) -> str | None:
    """Send it back: that takes the same share of the way back as was driven of the way out, rounded up."""
    if not shuttle.driving or shuttle.turned or shuttle.aboard:
        return "it turns without being on its way, empty and for the first time."
    if stop != shuttle.stop or shuttle.time > shuttle.due:
        return "it turns back to another stop, or after it had arrived."
    out, back = int(rules.times[stop][shuttle.heading]), int(rules.times[shuttle.heading][stop])
    driven = shuttle.time - shuttle.departed
    shuttle.due = shuttle.time + (-(-back * driven // out) if out else 0)
    shuttle.turned = True
    return None
