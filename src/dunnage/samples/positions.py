# SPDX-License-Identifier: Apache-2.0
"""Generated positions of a fleet that drives on the streets of a made-up city.

As large as the fleet that Yao et al. 2024 test on: 9,858 vehicles and 265 moments five minutes apart. Theirs are taxis
in Chengdu; the streets here are ours, and only the box lies near there.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.samples.telemetry import (
    GROUP_ROWS,
    MOST_READINGS,
    coded,
    data_and_policy,
    moments,
    plain_table,
    vehicle_names,
    write_pieces,
)

CITY_BOX = (103.95, 30.56, 104.19, 30.76)
"""West, south, east and north of the city, about 23 by 22 km: public, whatever was drawn."""
MOST_VEHICLES = 1_000_000
"""Most vehicles that are moved at once: all are held in memory, moment by moment."""
EPOCH_MINUTES = 5

# Streets cross at whole numbers from 0 to _STREETS in both directions, and the outermost lie outside the box.
_STREETS, _BEYOND = 44, 2
_CENTRE = _STREETS / 2
_BEND = 0.35
_DEPOTS, _MARKETS = 9, 25
_MAIN_STREET = 6
# Streets a vehicle passes in five minutes, on others and on main ones; in the centre half as many.
_PACE, _MAIN_PACE = 5.0, 8.0
_PARKED = 0.12
_HOME, _NEAR, _OUT = 0.22, 0.45, 0.02
_STAY_EPOCHS, _HOME_EPOCHS = 3.0, 9.0
_LOST, _SILENT, _BACK = 0.004, 0.002, 0.15
_ERROR_DEGREES = 0.00008
_HOURS = (0, 5, 7, 10, 13, 16, 19, 22, 24)
_ACTIVE = (0.03, 0.05, 0.5, 1.0, 0.8, 1.0, 0.7, 0.12, 0.03)
_STRICT, _BASIC = 1.0, 2.0


@dataclass(frozen=True, kw_only=True)
class PositionSetting:
    """Which positions are generated.

    Parameters
    ----------
    size
        Number of vehicles.
    epochs
        Number of moments, five minutes apart from midnight on; more than 288 reach into further days.
    """

    size: int = 9_858
    epochs: int = 265

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MOST_VEHICLES or self.epochs < 1:
            raise ParameterError(
                f"size must be 1 to {MOST_VEHICLES:,} vehicles, epochs at least 1. Got {self.size} and {self.epochs}."
            )
        if self.num_rows > MOST_READINGS:
            raise ParameterError(f"at most {MOST_READINGS:,} rows are generated. Got {self.num_rows:,}. Ask for fewer.")

    @property
    def num_rows(self) -> int:
        """Number of rows in all."""
        return self.size * self.epochs


def positions(setting: PositionSetting | int, seed: int | None = None) -> pa.Table:
    """Generate positions in memory, in the order of time: ``vehicle``, ``time``, ``lon``, ``lat``.

    Every vehicle drives along streets from its depot to places near its round or anywhere in the city, stays there a
    while and returns; some stay parked all the time. Streets are dense and slow in the centre, main streets are fast,
    and at night few drive. Some places to go to lie outside the box, and a receiver loses its position now and then, or
    for a while.

    Examples
    --------
    >>> positions(PositionSetting(size=20, epochs=3), seed=1).num_rows
    60
    """
    if not isinstance(setting, PositionSetting):
        setting = PositionSetting(size=setting)
    return plain_table(pa.concat_tables(_pieces(setting, seed)))


def _pieces(setting: PositionSetting, seed: int | None) -> Iterator[pa.Table]:
    """Move the fleet from moment to moment; so many moments make a table that few rows are in memory at once."""
    generator = np.random.default_rng(seed)
    fleet = _Fleet(setting.size, generator)
    names, numbers = vehicle_names(setting.size), np.arange(setting.size)
    step = max(1, GROUP_ROWS // setting.size)
    for first in range(0, setting.epochs, step):
        epochs = range(first, min(first + step, setting.epochs))
        # fixes : (epochs, 2, vehicles)
        fixes = np.array([fleet.next_fixes(epoch) for epoch in epochs])
        minutes = EPOCH_MINUTES * np.array(epochs)
        yield pa.table(
            {
                "vehicle": coded(names, np.tile(numbers, len(epochs))),
                "time": moments(np.repeat(minutes, setting.size)),
                "lon": pa.array(fixes[:, 0].ravel(), from_pandas=True),
                "lat": pa.array(fixes[:, 1].ravel(), from_pandas=True),
            }
        )


class _Fleet:
    """Where all vehicles are, where they go, and how long they stay.

    A place is a pair of streets: a vehicle is always on one of them, at least one of its two numbers is whole. It goes
    straight along one street and then along the other, so that no route has to be kept.
    """

    def __init__(self, num: int, generator: np.random.Generator) -> None:
        self.generator = generator
        depots = generator.integers(_BEYOND + 2, _STREETS - _BEYOND - 1, (2, _DEPOTS))
        self.markets = generator.integers(_BEYOND, _STREETS - _BEYOND + 1, (2, _MARKETS))
        self.home = depots[:, generator.integers(0, _DEPOTS, num)]
        self.round = self._anywhere(num)
        self.parked = generator.random(num) < _PARKED
        # At midnight most are at home, all others somewhere on their round.
        out = generator.random(num) < 0.4
        self.place = np.where(out, self.round, self.home).astype(float)
        self.goal = self.place.copy()
        self.first = np.zeros(num, dtype=np.int64)
        self.stay = generator.geometric(1 / _HOME_EPOCHS, num)
        self.pace = generator.uniform(0.75, 1.25, num)
        self.silent = np.zeros(num, dtype=bool)

    def _anywhere(self, num: int) -> IntArray:
        """Draw places: markets are visited most, then the centre. Shape: 2, places."""
        at = self.generator.normal(_CENTRE, _STREETS / 6, (2, num))
        shares = 1 / np.arange(1, _MARKETS + 1)
        chosen = self.markets[:, self.generator.choice(_MARKETS, num, p=shares / shares.sum())]
        drawn = np.where(self.generator.random(num) < 0.4, chosen, np.rint(at).astype(np.int64))
        return np.clip(drawn, _BEYOND, _STREETS - _BEYOND)

    def next_fixes(self, epoch: int) -> FloatArray:
        """Return where receivers say that vehicles are, NaN if they do not know, and drive on. Shape: 2, vehicles."""
        fixes = self._fixes()
        self._leave(epoch)
        self._drive()
        return fixes

    def _leave(self, epoch: int) -> None:
        """Send vehicles that have stayed long enough to their next place; at night most stay on."""
        arrived = (self.place == self.goal).all(axis=0) & ~self.parked
        self.stay[arrived] -= 1
        active = np.interp(epoch * EPOCH_MINUTES / 60 % 24, _HOURS, _ACTIVE)
        ready = np.flatnonzero(arrived & (self.stay <= 0))
        ready = ready[self.generator.random(len(ready)) < active]
        self.goal[:, ready] = self._goals(ready)
        self.first[ready] = self.generator.integers(0, 2, len(ready))
        home = (self.goal[:, ready] == self.home[:, ready]).all(axis=0)
        self.stay[ready] = self.generator.geometric(1 / np.where(home, _HOME_EPOCHS, _STAY_EPOCHS))

    def _goals(self, vehicles: IntArray) -> IntArray:
        """Draw where some vehicles go next: home, near their round, out of the city, or anywhere."""
        draw, num = self.generator.random(len(vehicles)), len(vehicles)
        goals = self._anywhere(num)
        near = self.round[:, vehicles] + self.generator.integers(-3, 4, (2, num))
        goals = np.where(draw < _HOME + _NEAR, np.clip(near, _BEYOND, _STREETS - _BEYOND), goals)
        goals = np.where(draw < _HOME, self.home[:, vehicles], goals)
        beyond = self.generator.choice([0, _STREETS], num)
        outside = np.where(self.generator.integers(0, 2, num) == np.array([[0], [1]]), beyond, goals)
        return np.asarray(np.where(draw > 1 - _OUT, outside, goals))

    def _drive(self) -> None:
        """Move all vehicles towards their goals, along the street they are to take first and then along the other."""
        driving = np.flatnonzero((self.place != self.goal).any(axis=0))
        place, goal, first = self.place[:, driving], self.goal[:, driving], self.first[driving]
        numbers = np.arange(len(driving))
        reach = self._reach(driving, place)
        for axis in (first, 1 - first):
            ahead = goal[axis, numbers] - place[axis, numbers]
            moved = np.minimum(np.abs(ahead), reach)
            arrives = moved == np.abs(ahead)
            # Arriving must be exact, or nobody would ever be there.
            there = np.where(arrives, goal[axis, numbers], place[axis, numbers] + np.sign(ahead) * moved)
            place[axis, numbers] = there
            reach = reach - moved
        self.place[:, driving] = place

    def _reach(self, driving: IntArray, place: FloatArray) -> FloatArray:
        """Return how many streets vehicles pass until the next moment."""
        main = (place % _MAIN_STREET == 0).any(axis=0)
        far = np.hypot(*(place - _CENTRE)) / _CENTRE
        slow = np.clip(0.5 + far, 0.5, 1.0)
        pace = np.where(main, _MAIN_PACE, _PACE) * slow * self.pace[driving]
        return np.asarray(pace * self.generator.uniform(0.4, 1.2, len(driving)))

    def _fixes(self) -> FloatArray:
        num = len(self.parked)
        starts, ends = self.generator.random(num) < _SILENT, self.generator.random(num) < _BACK
        self.silent = (self.silent & ~ends) | starts
        lost = self.silent | (self.generator.random(num) < _LOST)
        fixes = _degrees(self.place) + _ERROR_DEGREES * self.generator.standard_normal((2, num))
        return _without(np.round(fixes, 6), lost)


def _without(fixes: FloatArray, lost: BoolArray) -> FloatArray:
    fixes[:, lost] = np.nan
    return fixes


def _degrees(place: FloatArray) -> FloatArray:
    """Turn places on streets into longitude and latitude: streets are dense in the centre, and bend a little."""
    # scaled : -1 to 1 between the outermost streets inside the box
    scaled = (place - _CENTRE) / (_CENTRE - _BEYOND)
    spread = scaled * (1 - _BEND) + _BEND * scaled**3
    bent = spread + 0.02 * np.sin(3 * scaled[::-1]) * np.cos(scaled * np.pi / 2)
    west, south, east, north = CITY_BOX
    low, high = np.array([[west], [south]]), np.array([[east], [north]])
    return np.asarray((low + high) / 2 + bent * (high - low) / 2)


def positions_policy(setting: PositionSetting, dataset: str) -> str:
    """Write the starter policy for generated positions."""
    places, paths = (_levels(setting.size, cells) for cells in (_num_places, _num_paths))
    box = ", ".join(f"{side:g}" for side in CITY_BOX)
    return f"""# Starter policy for generated positions. Every epsilon is an example: choose your own.
#   dunnage device task THIS.toml -o task.json
dataset = {json.dumps(dataset)}
protects = "vehicle"

[attributes.vehicle]
role = "identifier"        # stays on the device: no report names it

[attributes.time]
role = "drop"              # says which position a slot reports

[attributes.place]
role = "quasi-identifier"
kind = "grid"
box = [{box}]      # west, south, east, north
levels = {places}                 # {_cells_text(places)}
columns = ["lon", "lat"]

[attributes.district]      # the same box, coarser: there are far more paths than places
role = "quasi-identifier"
kind = "grid"
box = [{box}]
levels = {paths}                 # {_cells_text(paths)}

[tiers]                    # public: a vehicle's tier is chosen without looking at where it is
basic = {_BASIC}
strict = {_STRICT}

[schedule]
time = "time"
slots_per_day = 1          # one moment a day, drawn before the day begins; each mechanism then sends one report
slot_minutes = {EPOCH_MINUTES}

[allowance]                # what all reports of one vehicle may give away together
lifetime = 120

[mechanisms.places]
name = "local-location"
attributes = ["place"]

[mechanisms.paths]
name = "local-trajectory"
attributes = ["district"]
steps = 2
"""


def _cells_text(levels: int) -> str:
    return f"{2 ** (levels - 1)} x {2 ** (levels - 1)} cells"


def _num_places(levels: int) -> int:
    return int(4 ** (levels - 1))


def _num_paths(levels: int) -> int:
    """Count pairs of cells at most one column and one row apart."""
    return int((3 * 2 ** (levels - 1) - 2) ** 2)


def _levels(size: int, num_inputs: Callable[[int], int]) -> int:
    """Return the finest grid whose estimates, all vehicles in the strict tier, err by less than three times a share."""
    error = math.sqrt(4 * math.exp(_STRICT) / (math.expm1(_STRICT) ** 2 * size))
    return max((levels for levels in range(2, 6) if error <= 3 / (num_inputs(levels) + 1)), default=2)


def generate_positions(
    setting: PositionSetting, out: str | os.PathLike[str], *, seed: int | None = None, force: bool = False
) -> tuple[Path, Path]:
    """Write generated positions as CSV or Parquet, by the ending, and a starter policy beside it.

    Rows are written as they are made, some moments at a time, so that memory does not grow with their number.

    Returns
    -------
    tuple
        The paths of the data and of the policy.
    """
    path, policy = data_and_policy(out, force)
    write_pieces(_pieces(setting, seed), path)
    policy.write_text(positions_policy(setting, path.stem), encoding="utf-8")
    return path, policy
