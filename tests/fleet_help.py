# SPDX-License-Identifier: Apache-2.0
"""What tests of fleets share: small cities, demands of several shapes, and the smallest fleet that knows the future."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.planning.dispatch import Dispatch, Operation, Requests, Service

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
    requests: Requests, fleet: Any, times: Any, homes: Any, service: Service | None = None, **options: float
) -> Operation:
    """Operate a fleet on requests."""
    return Dispatch(requests, times, homes, service or Service()).run(fleet, **options)


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
