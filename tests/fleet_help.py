# SPDX-License-Identifier: Apache-2.0
"""What tests of fleets share: small cities, demands of several shapes, and the smallest fleet that knows the future."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import dunnage as dn
from dunnage.ledger import Ledger
from dunnage.model.city import Buses, City
from dunnage.noise.source import Noise
from dunnage.planning.demand import Trips
from dunnage.planning.dispatch import Dispatch, Operation, Parking, Requests, Service

SPAN = (8 * 3600, 10 * 3600)
SHAPES = ("spread", "commute", "waves", "linked", "crowd")


@dataclass(frozen=True, eq=False)
class Case:
    """Requests and where they are made."""

    requests: Requests
    times: NDArray[np.int32]
    homes: NDArray[np.int64]

    @property
    def num_zones(self) -> int:
        return len(self.homes)


def simulate(
    requests: Requests,
    fleet: Any,
    times: Any,
    homes: Any,
    service: Service | None = None,
    parking: Sequence[Parking | None] | None = None,
    **options: float,
) -> Operation:
    """Operate a fleet on requests."""
    return Dispatch(requests, times, homes, service or Service(), parking).run(fleet, **options)


def starts(homes: Sequence[Any], parking: Sequence[Parking | None]) -> list[Any]:
    """Return the stops where the shuttles of each zone may start: its posts, or else its homes."""
    return [home if own is None else own.posts[0] for home, own in zip(homes, parking, strict=True)]


def plane_times(num_stops: int, rng: np.random.Generator, across_seconds: int = 900) -> NDArray[np.int32]:
    """Seconds between random points of a square, rounded up so that no detour is shorter."""
    places = rng.random((num_stops, 2)) * across_seconds
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    times: NDArray[np.int32] = np.ceil(apart).astype(np.int32)
    return times


def make(shape: str, num: int, seed: int, *, num_stops: int = 30, num_zones: int = 2, seconds: int = 7200) -> Case:
    """Make demand of one shape: all over, to one place, in waves, with second legs, or all in one second."""
    rng = np.random.default_rng(seed)
    zone_of = np.arange(num_stops) % num_zones
    zone = rng.integers(0, num_zones, num)
    own = [np.flatnonzero(zone_of == number) for number in range(num_zones)]
    origin, destination = (np.array([rng.choice(own[number]) for number in zone], dtype=np.int64) for _ in range(2))
    if shape == "commute":
        destination = np.where(rng.random(num) < 0.8, [own[number][0] for number in zone], destination)
    again = origin == destination
    destination[again] = [
        own[number][-1] if own[number][-1] != at else own[number][0]
        for number, at in zip(zone[again], origin[again], strict=True)
    ]
    begin = rng.integers(0, seconds, num)
    if shape == "waves":
        begin = begin // 1800 * 1800 + begin % 120
    if shape == "crowd":
        begin = np.full(num, 1000)
    after, lag = np.full(num, -1), np.zeros(num, dtype=np.int64)
    if shape == "linked":
        second = np.arange(num) % 2 == 1
        after[second] = np.arange(num)[second] - 1
        lag[second] = rng.integers(0, 600, second.sum())
    requests = Requests(
        rider=np.arange(num), zone=zone, origin=origin, destination=destination, seconds=begin, after=after, lag=lag
    )
    return Case(requests, plane_times(num_stops, rng), np.array([stops[0] for stops in own]))


def offline_fleet(
    case: Case, service: Service, mean_wait: int, *, ahead: bool = False, seconds: float = 20.0
) -> int | None:
    """Return the smallest fleet of one zone that serves all within the service and a mean wait, knowing the future.

    A circuit for each shuttle through pickups and drops, with times and loads, for CP-SAT; None if it is not proved.
    Stays are as in the simulation: once at each stop, which consecutive events at one stop share. Unless ``ahead``, no
    shuttle sets out for a rider before the request, though all requests are known when riders are given to shuttles.
    """
    from ortools.sat.python import cp_model

    requests, times, dwell = case.requests, case.times, service.dwell_seconds
    num = len(requests)
    stops = [int(case.homes[0]), *requests.origin.tolist(), *requests.destination.tolist()]
    start, end = int(requests.seconds.min()), int(requests.seconds.max()) + 20_000
    model: Any = cp_model.CpModel()
    time = [model.new_int_var(start, end, f"t{node}") for node in range(2 * num + 1)]
    load = [model.new_int_var(0, service.capacity, f"l{node}") for node in range(2 * num + 1)]
    route = [model.new_int_var(0, num, f"r{node}") for node in range(2 * num + 1)]
    arcs, leaving = [], []
    for one in range(2 * num + 1):
        for other in range(2 * num + 1):
            if one == other or (one == 0 and other > num) or (0 < one <= num and other == 0) or one == other + num:
                continue
            taken = model.new_bool_var("")
            arcs.append((one, other, taken))
            if other == 0:
                continue
            way = int(times[stops[one], stops[other]])
            if not ahead and other <= num:
                model.add(time[other] >= int(requests.seconds[other - 1]) + way).only_enforce_if(taken)
            if one == 0:
                leaving.append(taken)
                model.add(route[other] == other).only_enforce_if(taken)
                model.add(time[other] >= start + way).only_enforce_if(taken)
                model.add(load[other] == 1).only_enforce_if(taken)
            else:
                stay = 0 if stops[one] == stops[other] else dwell
                model.add(route[other] == route[one]).only_enforce_if(taken)
                model.add(time[other] >= time[one] + stay + way).only_enforce_if(taken)
                model.add(load[other] == load[one] + (1 if other <= num else -1)).only_enforce_if(taken)
    model.add_multiple_circuit(arcs)
    waits = []
    for leg in range(num):
        pick, drop, asked = time[1 + leg], time[1 + num + leg], int(requests.seconds[leg])
        direct = times[requests.origin[leg], requests.destination[leg]]
        model.add(route[1 + leg] == route[1 + num + leg])
        model.add(drop >= pick + dwell + int(direct))
        model.add(drop <= pick + int(service.longest(np.array([direct], dtype=np.int64))[0]))
        model.add(pick >= asked)
        model.add(pick <= asked + service.max_wait_seconds)
        waits.append(pick - asked)
    model.add(sum(waits) <= mean_wait * num)
    model.minimize(sum(leaving))
    solver: Any = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.random_seed = 1
    return round(solver.objective_value) if solver.solve(model) == cp_model.OPTIMAL else None


def tiny_city(seed: int = 0, num: int = 10) -> City:
    """Make two zones with a hub each and a bus between them."""
    rng = np.random.default_rng(seed)
    places = rng.random((num, 2)) * 0.04
    zones = (places[:, 1] > np.median(places[:, 1])).astype(np.int32)
    hubs = np.zeros(num, dtype=bool)
    first, second = (int(np.flatnonzero(zones == zone)[0]) for zone in (0, 1))
    hubs[[first, second]] = True
    ride = {"seconds": np.array([100, 100], np.int32), "headway_seconds": np.array([60, 60], np.int32)}
    ends = {"origins": np.array([first, second], np.int32), "destinations": np.array([second, first], np.int32)}
    return City(
        stops=tuple(f"S{i}" for i in range(num)),
        zone_names=("west", "east"),
        zones=zones,
        lat=42 + places[:, 0],
        lon=-83 + places[:, 1],
        hubs=hubs,
        buses=Buses(**ends, **ride),
    )


def some_trips(num: int, stops: int, seed: int, length: int = 7200) -> Trips:
    rng = np.random.default_rng(seed)
    return Trips.in_order(
        rng.integers(0, stops, num), rng.integers(0, stops, num), SPAN[0] + rng.integers(0, length, num)
    )


def policy_of(folder: Path, place: City, *, count: bool = False, epsilon: float = 8, **time: Any) -> dn.Policy:
    """Make a policy for trips of the city between eight and ten, or for counts of them; the city is written beside."""
    if not (folder / "city").exists():
        place.write(folder / "city")
    stop, quasi = {"role": "quasi-identifier", "kind": "stop"}, {"role": "quasi-identifier"}
    clock = {**quasi, "kind": "time", "domain": ["08:00", "10:00"], "window_minutes": 30, **time}
    column = {"trips": {**quasi, "kind": "numeric", "domain": [0, 1000]}} if count else {"card": {"role": "identifier"}}
    trip = {"origin": "from", "destination": "to", "time": "at", **({"count": "trips"} if count else {})}
    document = {
        "dataset": "trips",
        "protects": "trip",
        "trip": trip,
        "city": {"stops": "city/stops.csv"},
        "attributes": {"from": stop, "to": stop, "at": clock, **column},
        "mechanism": {"name": "noisy-counts", "epsilon": epsilon},
        "expect": {} if time else {"dates": 1},
    }
    return dn.Policy.from_dict(document, path=folder / "p.toml")


def trip_rows(place: City, trips: Trips, days: int = 1) -> pa.Table:
    """Write trips as rows, one after another on so many days of November 2026."""
    clock = [
        f"2026-11-{9 + i % days:02d}T{s // 3600:02d}:{s % 3600 // 60:02d}:{s % 60:02d}"
        for i, s in enumerate(trips.seconds.tolist())
    ]
    ends = ([place.stops[stop] for stop in column] for column in (trips.origin, trips.destination))
    columns = dict(zip(("from", "to"), ends, strict=True))
    cards = pa.array([f"C{i}" for i in range(len(trips))], pa.string())
    return pa.table({"card": cards, **columns, "at": pa.array(clock, pa.string())})


def publish(data: dn.Dataset) -> dn.Publication:
    with Ledger(":memory:") as ledger:
        return dn.publish(data, ledger=ledger, noise=Noise(seed=1))
