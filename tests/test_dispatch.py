# SPDX-License-Identifier: Apache-2.0
"""Dispatch of shuttles: every simulated day is replayed by an independent checker."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fleet_help import SHAPES, Case, make, offline_fleet, plane_times, simulate
from tests.oracles.operations import check_operation

from dunnage.errors import ParameterError
from dunnage.planning.dispatch import EVENTS, Dispatch, Operation, Requests, Service

LINE = np.abs(np.subtract.outer(np.arange(4), np.arange(4))) * 100
"""Four stops in a line, 100 seconds apart."""
QUICK = Service(dwell_seconds=0)


def checked(case: Case, fleet: list[int], service: Service | None = None) -> Operation:
    service = service or Service()
    operation = simulate(case.requests, fleet, case.times, case.homes, service)
    assert check_operation(case.requests, fleet, case.times, case.homes, service, operation) == []
    return operation


def story(operation: Operation, shuttle: int = 0) -> list[tuple[int, str, int]]:
    """Return seconds, event and stop of all events of a shuttle."""
    events = operation.events
    own = events.shuttle == shuttle
    return [
        (int(time), EVENTS[kind], int(stop))
        for time, kind, stop in zip(events.seconds[own], events.event[own], events.stop[own], strict=True)
    ]


@st.composite
def cities(draw: st.DrawFn) -> tuple[Requests, list[int], Any, list[list[int]], Service]:
    """Draw tiny cities, travel times without any rule but whole seconds, and riders with second legs."""
    num_stops, num_zones, num = draw(st.integers(2, 5)), draw(st.integers(1, 2)), draw(st.integers(0, 25))
    few = st.sampled_from([0, 1, 7, 60, 61, 300, 900])
    times = np.array(draw(st.lists(few, min_size=num_stops**2, max_size=num_stops**2))).reshape(num_stops, num_stops)
    np.fill_diagonal(times, 0)
    stop = st.integers(0, num_stops - 1)
    leg = st.tuples(st.integers(0, num_zones - 1), stop, stop, st.integers(0, 600), st.integers(-1, num - 1), few)
    legs = draw(st.lists(leg, min_size=num, max_size=num))
    zone, origin, destination, seconds, after, lag = (np.array([leg[i] for leg in legs], dtype=int) for i in range(6))
    after = np.where(after < np.arange(num), after, -1)
    requests = Requests(
        rider=np.arange(num), zone=zone, origin=origin, destination=destination, seconds=seconds, after=after, lag=lag
    )
    homes = [draw(st.lists(stop, min_size=1, max_size=2)) for _ in range(num_zones)]
    service = Service(
        capacity=draw(st.integers(1, 3)),
        dwell_seconds=draw(st.sampled_from([0, 1, 20])),
        max_wait_seconds=draw(st.sampled_from([0, 100, 600])),
        detour_seconds=draw(st.sampled_from([0, 300])),
    )
    return requests, draw(st.lists(st.integers(1, 3), min_size=num_zones, max_size=num_zones)), times, homes, service


@settings(max_examples=240, deadline=None)
@given(cities())
def test_any_day_stands_the_check(city: tuple[Requests, list[int], Any, list[list[int]], Service]) -> None:
    requests, fleet, times, homes, service = city
    operation = simulate(requests, fleet, times, homes, service)
    assert check_operation(requests, fleet, times, homes, service, operation) == []
    again = simulate(requests, fleet, times, homes, service)
    assert all(
        np.array_equal(getattr(operation, name), getattr(again, name)) for name in ("picked_up", "dropped", "shuttle")
    )


@settings(max_examples=150, deadline=None)
@given(cities(), st.floats(0, 400))
def test_giving_up_is_exact(city: tuple[Requests, list[int], Any, list[list[int]], Service], target: float) -> None:
    whole = simulate(*city)
    tried = simulate(*city, abort_mean_wait=target)
    if tried.aborted:
        assert whole.mean_wait > target
        with pytest.raises(ParameterError):
            _ = tried.waits
        assert len(check_operation(*city, tried)) == 1
    else:
        assert np.array_equal(whole.picked_up, tried.picked_up)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fleet", [2, 60])
def test_demand_of_every_shape(shape: str, fleet: int) -> None:
    case = make(shape, 600, seed=5)
    operation = checked(case, [fleet, fleet])
    parts = operation.by_period()
    there = sum(parts[name] for name in ("busy", "empty", "parked")).sum()
    assert there == pytest.approx((operation.end - operation.start) * 2 * fleet / 1800)
    assert (parts["busy"].sum() * 1800, parts["empty"].sum() * 1800) == pytest.approx(
        (operation.busy.sum(), operation.empty.sum())
    )
    assert min(parts[name].min() for name in ("busy", "empty", "parked")) >= -1e-9


def test_small_days_by_hand() -> None:
    operation = simulate(Requests.single([0], [1], [3], [50]), [1], LINE, [0])
    there = [(50, "park", 0), (50, "depart", 0), (150, "arrive", 1), (150, "pickup", 1), (170, "depart", 1)]
    back = [(370, "arrive", 3), (370, "dropoff", 3), (390, "depart", 3), (690, "arrive", 0), (690, "park", 0)]
    assert story(operation) == there + back
    assert (operation.waits.tolist(), operation.busy.tolist(), operation.empty.tolist()) == ([100], [240], [400])
    assert ((operation.end - operation.start), operation.late) == (640, 0)
    # Every minute someone wants to go from stop 3, at the other end, to stop 2.
    seconds = 60 * np.arange(200)
    far = LINE * 5
    operation = checked(Case(Requests.single([0] * 200, [3] * 200, [2] * 200, seconds), far, np.array([0])), [25])
    assert operation.waits[60:].max() == 0
    requests = Requests.single([0] * 2, [1, 1], [3, 3], [0, 5000])
    assert story(checked(Case(requests, LINE, np.array([0])), [1]))[-1][1:] == ("park", 0)
    case = make("spread", 1500, seed=1)
    ready = Dispatch(case.requests, case.times, case.homes, Service())
    waits = [ready.run([size, size]).mean_wait for size in (5, 10, 20, 40, 80)]
    assert waits == sorted(waits, reverse=True)
    operation = simulate(Requests.single([0] * 3, [1, 1, 2], [3, 3, 3], [0, 5, 10]), [1], LINE, [1])
    # The second boards while the first's stay lasts; it is then as long as hers.
    assert (operation.picked_up.tolist(), operation.dropped.tolist()) == ([0, 5, 125], [245] * 3)
    assert operation.moves.carried.tolist()[:3] == [0, 2, 3]
    # On its way home it is called to where it came from, after 130 of 200 seconds.
    requests = Requests.single([0, 0], [1, 3], [3, 2], [0, 330])
    operation = simulate(requests, [1], LINE, [1], QUICK)
    assert check_operation(requests, [1], LINE, [1], QUICK, operation) == []
    assert (200, "depart", 3) in story(operation)
    assert story(operation)[6:9] == [(330, "turn", 3), (460, "arrive", 3), (460, "pickup", 3)]
    requests = Requests.single([0, 0], [1, 1], [3, 2], [0, 330])
    operation = simulate(requests, [1], LINE, [1], QUICK)
    assert operation.picked_up.tolist() == [0, 400]
    assert not (operation.moves.turned >= 0).any()
    requests = Requests(
        rider=np.array([0, 0]),
        zone=np.array([1, 0]),
        origin=np.array([3, 0]),
        destination=np.array([2, 1]),
        seconds=np.array([0, 10]),
        after=np.array([1, -1]),
        lag=np.array([60, 0]),
    )
    operation = checked(Case(requests, LINE.astype(np.int32), np.array([0, 3])), [1, 1], QUICK)
    assert operation.dropped[1] == 110
    assert (operation.requested[0], operation.picked_up[0], operation.start) == (170, 170, 10)


def test_shortcuts_by_hand() -> None:
    # From 2 over 0 to 1 is shorter than from 2 to 1. The fifth leg, from 0 to 2, would bring the fourth's boarding at 1
    # forward by 40 seconds, but where it alights, behind the visit of 2 in between, only by 20.
    requests = Requests(
        rider=np.arange(5),
        zone=np.zeros(5, dtype=int),
        origin=np.array([0, 0, 0, 1, 0]),
        destination=np.array([0, 1, 2, 0, 2]),
        seconds=np.zeros(5, dtype=int),
        after=np.array([-1, 0, 0, 0, 0]),
        lag=np.zeros(5, dtype=int),
    )
    times = np.array([[0, 0, 60, 0], [0, 0, 0, 0], [0, 60, 0, 0], [0, 0, 0, 0]])
    operation = checked(Case(requests, times, np.array([0])), [1], Service(capacity=2, detour_seconds=0))
    assert ((operation.dropped - operation.picked_up)[3], operation.late) == (20, 0)
    # The second rider, from 3 to 1, brings the first's ride from 1 to 2 forward by 80 seconds. That does not make room
    # for the third, whose way from 1 to 4 would make the first's ride 50 seconds longer than it may be.
    times = np.full((5, 5), 400)
    np.fill_diagonal(times, 0)
    times[0, 1] = times[1, 2] = 100
    times[0, 3] = times[3, 1] = 10
    times[1, 4] = times[4, 2] = 75
    service = Service(max_detour=1.0, detour_seconds=0, dwell_seconds=0)
    case = Case(Requests.single([0] * 3, [1, 3, 1], [2, 1, 4], [0] * 3), times, np.array([0]))
    operation = checked(case, [1], service)
    assert (operation.picked_up.tolist(), operation.dropped.tolist()) == ([20, 10, 520], [120, 20, 595])


@pytest.mark.parametrize("dwell", [0, 20])
def test_cities_full_of_shortcuts(dwell: int) -> None:
    rng = np.random.default_rng(dwell)
    for _ in range(300):
        requests = Requests.single([0] * 20, *rng.integers(0, 5, (2, 20)), rng.integers(0, 300, 20))
        times = rng.choice([0, 20, 60, 300, 900], (5, 5))
        np.fill_diagonal(times, 0)
        service = Service(capacity=3, dwell_seconds=dwell, max_wait_seconds=3000, detour_seconds=0)
        checked(Case(requests, times, np.array([0])), [2], service)


def test_crowds_gaps_and_empty_zones() -> None:
    case = make("crowd", 5000, seed=2, num_stops=4, num_zones=1)
    assert checked(case, [3]).late > 0
    requests = Requests.single([0] * 50, [1] * 50, [2] * 50, [7] * 50)
    operation = simulate(requests, [1], np.zeros((3, 3), dtype=int), [0], Service(dwell_seconds=0))
    assert operation.waits.tolist() == [0] * 50
    same = simulate(Requests.single([0] * 20, [1] * 20, [1] * 20, [7] * 20), [2], LINE, [0])
    assert same.dropped.min() > 0
    seconds = np.array([0, 10**11, 2 * 10**11])
    operation = simulate(Requests.single([0] * 3, [1] * 3, [2] * 3, seconds), [5], LINE, [0])
    assert len(operation.moves.shuttle) < 100
    none = Requests.single([], [], [], [])
    operation = simulate(none, [0, 2], LINE, [0, 3])
    assert (operation.mean_wait, (operation.end - operation.start)) == (0.0, 0)
    assert check_operation(none, [0, 2], LINE, [0, 3], Service(), operation) == []
    assert [row[1] for row in story(operation)] == ["park"]
    one = Requests.single([0], [1], [2], [0])
    assert check_operation(one, [1, 0], LINE, [0, 3], Service(), simulate(one, [1, 0], LINE, [0, 3])) == []
    with pytest.raises(ParameterError, match="zone 0"):
        simulate(one, [0, 2], LINE, [0, 3])


def test_bad_arguments_are_refused() -> None:
    good = {"requests": Requests.single([0], [1], [2], [0]), "fleet": [1], "times": LINE, "homes": [0]}
    wrong: dict[str, list[Any]] = {
        "fleet": [[1, 1]],
        "requests": [Requests.single([zone], [start], [2], [0]) for zone, start in ((1, 1), (-1, 1), (0, 9), (0, -1))],
        "homes": [[9], [[]], []],
    }
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        with pytest.raises(ParameterError):
            simulate(**good | {name: value})
    services = [("capacity", 0), ("capacity", True), ("max_detour", 0.5), ("dwell_seconds", -1), ("wait_weight", 0)]
    for name, value in services:
        with pytest.raises(ParameterError, match=name):
            Service(**{name: value})


def tampered(operation: Operation, events: dict[str, Any] | None = None, **change: Any) -> Any:
    """Return an operation with other columns; ``events`` changes columns of events."""
    names = [*(item.name for item in fields(operation)), "waits", "busy", "empty"]
    own = {item.name: getattr(operation.events, item.name) for item in fields(operation.events)}
    known = {name: getattr(operation, name) for name in names}
    return SimpleNamespace(**{**known, "events": SimpleNamespace(**{**own, **(events or {})}), **change})


def changed(column: Any, place: int, by: int) -> Any:
    copy = np.array(column, dtype=np.int64)
    copy[place] += by
    return copy


@pytest.fixture(scope="module")
def day() -> tuple[Case, Operation]:
    case = make("linked", 300, seed=9)
    return case, checked(case, [6, 6])


def test_whatever_is_tampered_with_is_found(day: tuple[Case, Operation]) -> None:
    case, operation = day
    events = operation.events

    def missed(**changes: Any) -> bool:
        wrong = tampered(operation, **changes)
        return not check_operation(case.requests, [6, 6], case.times, case.homes, Service(), wrong)

    for name in ("requested", "picked_up", "dropped", "waits", "busy", "empty"):
        column = getattr(operation, name)
        places = range(0, len(column), 23)
        assert [p for p in places if missed(**{name: changed(column, p, 1 if p % 2 else -1)})] == [], name
    for name in ("seconds", "stop", "event", "leg", "shuttle", "target"):
        column = getattr(events, name)
        places = [
            place
            for place in range(0, len(events), 35)
            if not (name == "target" and EVENTS[events.event[place]] != "depart")
            and not (name == "leg" and events.leg[place] < 0)
        ]
        assert [p for p in places if missed(events={name: changed(column, p, -1 if column[p] > 0 else 1)})] == [], name
    for place in range(0, len(events), 13):  # left out
        rest = {item.name: np.delete(getattr(events, item.name), place) for item in fields(events)}
        assert not missed(events=rest), EVENTS[events.event[place]]


def test_other_rules_are_found(day: tuple[Case, Operation]) -> None:
    case, operation = day
    good = {"requests": case.requests, "fleet": [6, 6], "times": case.times, "homes": case.homes, "service": Service()}
    services = [Service(capacity=2), Service(dwell_seconds=21), Service(max_wait_seconds=10)]
    for change in (
        *({"service": service} for service in services),
        *({"fleet": [7, 6]}, {"homes": [2, 3]}, {"times": case.times + 1}, {"times": case.times - 1}),
        {"requests": replace(case.requests, zone=1 - case.requests.zone)},
    ):
        assert check_operation(*(good | change).values(), operation), change
    # A turn that is too quick.
    requests = Requests.single([0, 0], [1, 3], [3, 2], [0, 330])
    operation = simulate(requests, [1], LINE, [1], QUICK)
    turn = int(np.flatnonzero(operation.events.event == EVENTS.index("turn"))[0])
    for by in (-1, 1):
        wrong = tampered(operation, events={"seconds": changed(operation.events.seconds, turn, by)})
        assert check_operation(requests, [1], LINE, [1], QUICK, wrong)


def smallest(ready: Dispatch) -> int:
    """Return the smallest fleet of one zone that serves all within the limits of the service."""
    return next(size for size in range(1, len(ready.requests) + 1) if ready.run([size]).late == 0)


@pytest.mark.parametrize("ahead", [False, True])
def test_fleet_is_near_the_smallest_that_knows_the_future(ahead: bool) -> None:
    """Compare fleets that serve all within 600 s of wait and the longest ride; offline ones are proved smallest.

    The offline fleet knows all requests from the start; with ``ahead`` it also drives to riders before they ask. This
    is about limits, not about a mean wait: seven riders whom nobody expects are waited for at home, and no number of
    shuttles there makes the mean wait as short as that of shuttles which are sent ahead.
    """
    service = Service()
    ours, theirs = [], []
    for seed in range(10):
        case = make("spread", 7, seed, num_stops=8, num_zones=1, seconds=600)
        case = Case(case.requests, plane_times(8, np.random.default_rng(seed + 100), 600), case.homes)
        offline = offline_fleet(case, service, 600, ahead=ahead)
        if offline is not None:
            theirs.append(offline)
            ours.append(smallest(Dispatch(case.requests, case.times, case.homes, service)))
    assert len(theirs) >= 8
    assert all(one >= other for one, other in zip(ours, theirs, strict=True))
    assert sum(ours) <= 1.25 * sum(theirs)


@pytest.mark.parametrize("shape", ["spread", "commute", "linked"])
def test_ten_times_the_trips_cost_twenty_times_the_work(shape: str) -> None:
    few, many = (make(shape, num, seed=4, num_stops=60) for num in (1500, 15000))
    once, more = (
        Dispatch(case.requests, case.times, case.homes, Service()).run([size, size])
        for case, size in ((few, 35), (many, 350))
    )
    assert once.mean_wait < 300
    assert more.work <= 20 * once.work
