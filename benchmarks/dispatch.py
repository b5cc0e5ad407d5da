# SPDX-License-Identifier: Apache-2.0
"""Speed of the dispatch simulation, one core, after warm-up, beside RidePy on one zone in the same run.

Trips are those of the generated town: two hours of a weekday morning (7,600 shuttle legs), ten times as many, and the
day (60,000 legs), each with the smallest fleet found whose mean wait in every zone is at most 180 s. Processor time is
that of one simulation with everything recorded; requests are made ready before. It is the least of some runs.

RidePy (``pip install ridepy``; it needs a C++ compiler and Boost's headers) gets the legs of one zone, its shuttles at
their home and the same longest wait. What is comparable: requests, seats, fleet, speed, straight-line travel times, and
that each rider is given to a shuttle at once and for good. What is not: RidePy's compiled brute-force dispatcher
minimises the drive, turns riders away who cannot be served within their windows, and neither stays at stops nor sends
idle shuttles anywhere; ours serves everyone, stays 20 s a stop and weighs waits. So the share served and the mean wait
of those served stand beside the time. FleetPy is not on the package index and is left out.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measuring import Row, row, taken
from dunnage.arrays import IntArray
from dunnage.model.routes import find_routes
from dunnage.planning.dispatch import Dispatch, Requests, Service
from dunnage.samples import city, trips

TARGET = 180
ZONE = 3  # the zone that RidePy is given


def legs(size: int | None = None, window: tuple[str, str] = ("08:00", "10:00")) -> Requests:
    here, table = city(), trips(size, 1, window=window)
    code = {stop: number for number, stop in enumerate(here.stops)}
    origin, end = (np.array([code[s] for s in table[c].to_pylist()]) for c in ("board_stop", "alight_stop"))
    begin = np.array([at.hour * 3600 + at.minute * 60 + at.second for at in table["tap_in"].to_pylist()])
    routes = find_routes(here)
    pair = routes.pairs(origin, end)
    first, second = (np.flatnonzero(c[pair] >= 0) for c in (routes.first_drop, routes.second_pickup))
    number = np.full(len(pair), -1)
    number[first] = np.arange(len(first))
    lag = routes.lag_seconds[pair[second]]
    none = np.full(len(first), -1)
    return Requests(
        rider=np.concatenate([first, second]),
        zone=np.concatenate([routes.first_zone[pair[first]], routes.second_zone[pair[second]]]),
        origin=np.concatenate([origin[first], routes.second_pickup[pair[second]]]),
        destination=np.concatenate([routes.first_drop[pair[first]], end[second]]),
        seconds=np.concatenate([begin[first], begin[second] + lag]),
        after=np.concatenate([none, number[second]]),
        lag=np.concatenate([none * 0, np.where(number[second] >= 0, lag, 0)]),
    )


def ready(requests: Requests) -> Dispatch:
    here = city()
    return Dispatch(requests, here.times, here.homes, Service())


def smallest(day: Dispatch, most: int) -> IntArray:
    """Return a fleet whose mean wait is at most the target in each zone; zones are bisected side by side."""
    num = len(day.homes)
    low, high = np.zeros(num, dtype=np.int64), np.full(num, most)
    while (high - low > 1 + high // 50).any():
        middle = np.maximum((low + high) // 2, 1)
        waits = np.bincount(day.requests.zone, day.run(middle).waits, minlength=num)
        fits = waits <= TARGET * np.maximum(np.bincount(day.requests.zone, minlength=num), 1)
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return high


def of_zone(requests: Requests, zone: int) -> Requests:
    """Return the legs of one zone, second ones requested when they are expected to be."""
    own = np.flatnonzero(requests.zone == zone)
    order = own[np.argsort(requests.seconds[own], kind="stable")]
    return Requests.single(
        np.zeros(len(order), dtype=np.int64),
        requests.origin[order],
        requests.destination[order],
        requests.seconds[order],
    )


def by_ridepy(requests: Requests, size: int, home: int, places: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Return processor time of RidePy, the share it serves, and their mean wait."""
    from ridepy.data_structures_cython import LocType, TransportationRequest
    from ridepy.events import PickupEvent, RequestAcceptanceEvent
    from ridepy.fleet_state import SlowSimpleFleetState
    from ridepy.util.dispatchers_cython import BruteForceTotalTravelTimeMinimizingDispatcher
    from ridepy.util.spaces_cython import Euclidean2D
    from ridepy.vehicle_state_cython import VehicleState

    service = Service()
    begin = requests.seconds - requests.seconds.min()
    direct = np.linalg.norm(places[requests.origin] - places[requests.destination], axis=1)
    longest = service.longest(np.ceil(direct).astype(np.int64))
    wanted = [
        TransportationRequest(
            request_id=leg,
            creation_timestamp=float(begin[leg]),
            origin=tuple(places[requests.origin[leg]]),
            destination=tuple(places[requests.destination[leg]]),
            pickup_timewindow_min=float(begin[leg]),
            pickup_timewindow_max=float(begin[leg] + service.max_wait_seconds),
            delivery_timewindow_min=0.0,
            delivery_timewindow_max=float(begin[leg] + service.max_wait_seconds + longest[leg]),
        )
        for leg in range(len(requests))
    ]
    fleet = SlowSimpleFleetState(
        initial_locations={number: tuple(places[home]) for number in range(size)},
        vehicle_state_class=VehicleState,
        space=Euclidean2D(velocity=1.0),
        dispatcher=BruteForceTotalTravelTimeMinimizingDispatcher(LocType.R2LOC),
        seat_capacities=service.capacity,
    )
    start = time.process_time()
    events = list(fleet.simulate(wanted, t_cutoff=50_000))
    seconds = time.process_time() - start
    boarded = _of_type(events, PickupEvent)
    waits = [event["timestamp"] - begin[event["request_id"]] for event in boarded]
    served = len(_of_type(events, RequestAcceptanceEvent)) / len(requests)
    return seconds, served, float(np.mean(waits))


def _of_type(events: list[Any], kind: Any) -> list[Row]:
    """Return events of one kind, whether they are objects or dictionaries."""
    named = (e if isinstance(e, dict) else {"event_type": type(e).__name__, **vars(e)} for e in events)
    return [event for event in named if event["event_type"] == kind.__name__]


def where() -> npt.NDArray[np.float64]:
    here = city()
    assert here.lat is not None
    assert here.lon is not None
    return in_seconds(here.lat, here.lon)


def in_seconds(lat: npt.NDArray[np.float64], lon: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return where stops are, in seconds of driving at 20 km/h, from their coordinates. Shape: stops, 2."""
    north, east = lat - lat.mean(), (lon - lon.mean()) * np.cos(np.radians(lat.mean()))
    return np.column_stack([north, east]) * 111.195 / 20.0 * 3600


def run() -> list[Row]:
    hours, more, day = ready(legs()), ready(legs(48_780)), ready(legs(window=("00:00", "24:00")))
    fleet = smallest(hours, 400)
    large, whole = smallest(more, 4_000), smallest(day, 400)
    once, seconds = taken(lambda: hours.run(fleet), 20)
    _, longer = taken(lambda: more.run(large), 5)
    _, of_day = taken(lambda: day.run(whole), 5)
    return [
        row(f"{_said(hours, fleet)}; peer 0.02 s", seconds, 0.02),
        row(f"{_said(hours, fleet)}; peer the target", once.mean_wait, TARGET, "seconds of wait"),
        row(f"{_said(day, whole)}; peer 0.2 s", of_day, 0.2),
        row(f"{_said(more, large)}; peer 20 times a tenth of it", longer, 20 * seconds),
        *_beside_ridepy(of_zone(hours.requests, ZONE), int(hours.homes[ZONE][0])),
    ]


def _beside_ridepy(requests: Requests, home: int) -> list[Row]:
    own = Dispatch(requests, city().times, [home], Service())
    size = smallest(own, 400)
    found = taken(lambda: own.run(size), 20)
    try:
        theirs, served, wait = by_ridepy(requests, int(size[0]), home, where())
    except ImportError:
        return []
    name = f"dispatch of one zone: {len(requests):,} legs, {size[0]} shuttles; peer RidePy"
    return [
        row(name, found.seconds, theirs),
        row(name, 1.0, served, "share of riders served"),
        row(name, found.result.mean_wait, wait, "seconds of wait of those served"),
    ]


def _said(day: Dispatch, fleet: IntArray) -> str:
    return f"dispatch of {len(day.requests):,} legs, {fleet.sum():,} shuttles"
