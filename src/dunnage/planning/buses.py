# SPDX-License-Identifier: Apache-2.0
"""How full buses are: riders that trips bring to each bus line, window by window, against the seats that it offers.

A rider counts in the window in which they are expected to board: the start of the trip, then the walk or the shuttle
with its expected wait, and half the headway. Riders who board after the last window count in it. Nobody is left behind:
loads are only stated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dunnage.model.routes import bus_rides
from dunnage.model.trips import Universe
from dunnage.planning.demand import Day, Ground, window_seconds
from dunnage.planning.plan import BusLine, BusLoads

ASSUMED = (
    "Riders count on a bus in the window in which they are expected to board. Full buses leave nobody behind in the "
    "simulation: how full they are is only stated."
)
_DIGITS = 6  # of riders and seats


def bus_loads(ground: Ground, days: Sequence[Day], universe: Universe) -> BusLoads | None:
    """Return riders and seats of each bus line on an average day; None if the city does not say how many seats."""
    buses, routes = ground.city.buses, ground.routes
    if buses is None or buses.seats is None:
        return None
    starts, lengths = window_seconds(universe)
    riders, num = np.zeros(len(buses) * len(starts)), len(starts)
    of_days = [routes.pairs(day.trips.origin, day.trips.destination) for day in days]
    pairs = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *of_days]))
    rides, boarded = bus_rides(ground.city, routes, pairs)
    for day, of_day in zip(days, of_days, strict=True):
        place = np.searchsorted(pairs, of_day)
        for ride, after in zip(rides, boarded, strict=True):
            on = np.flatnonzero(ride[place] >= 0)
            at = np.searchsorted(starts, day.trips.seconds[on] + after[place[on]], side="right") - 1
            riders += day.weight * np.bincount(ride[place[on]] * num + at, minlength=len(riders))
    means = (riders / (sum(day.weight for day in days) or 1.0)).reshape(len(buses), num)
    lines = []
    for line, seats in enumerate(buses.seats.tolist()):
        headway, most = int(buses.headway_seconds[line]), float((means[line] / lengths).max())  # riders per second
        lines.append(
            BusLine(
                origin=ground.city.stops[buses.origins[line]],
                destination=ground.city.stops[buses.destinations[line]],
                seats=seats,
                headway_seconds=headway,
                riders=means[line].round(_DIGITS).tolist(),
                offered=(seats * lengths / headway).round(_DIGITS).tolist(),
                seats_needed=math.ceil(round(most * headway, _DIGITS)),
                headway_needed=max(1, math.floor(round(seats / most, _DIGITS))) if most else None,
            )
        )
    return BusLoads(windows=list(universe.windows), lines=lines)
