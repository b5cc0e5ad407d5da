# SPDX-License-Identifier: Apache-2.0
"""Generated telemetry: speed, load, temperature and more, as measured by the sensors of trucks.

Yao et al. 2024 name ten numbers that a vehicle may report, two of them spare, and test on numbers that follow simple
laws. The law ``fleet`` invents trucks that drive, stand, are loaded and cooled; the other laws are those of the paper.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import OutputError, ParameterError
from dunnage.samples.common import starter_policy, targets, texts

TELEMETRY_LAWS = ("fleet", "gauss", "uniform", "census")
MAX_READINGS = 500_000_000  # maximum number of generated rows
FIRST_DAY = datetime(2026, 10, 14)  # midnight of the first generated day
GROUP_ROWS = 1 << 19  # approximate number of rows in memory; they are one row group of a Parquet file

_KINDS = (".csv", ".parquet")
_MINUTES = 1440


class Sensor(NamedTuple):
    name: str
    low: int  # low, high: the public domain, independent of the generated values
    high: int
    unit: str = ""
    decimals: int = 0


_FLEET = (
    Sensor(name="speed", low=0, high=130, unit="km/h", decimals=1),
    Sensor(name="load", low=0, high=40, unit="t", decimals=2),
    Sensor(name="temperature", low=-30, high=50, unit="degC", decimals=1),
    Sensor(name="light", low=0, high=1000, unit="lx"),
    Sensor(name="shocks", low=0, high=20),
    Sensor(name="humidity", low=0, high=100, unit="%", decimals=1),
    Sensor(name="age", low=18, high=80, unit="years"),
    Sensor(name="tenure", low=0, high=50, unit="years", decimals=1),
    Sensor(name="spare_1", low=0, high=100, decimals=2),
    Sensor(name="spare_2", low=0, high=100, decimals=2),
)
_PAPER = tuple(Sensor(name=sensor.name, low=0, high=100, decimals=4) for sensor in _FLEET)
_CENSUS = (
    Sensor(name="age", low=0, high=100, unit="years"),
    Sensor(name="income", low=0, high=50_000, decimals=2),
    Sensor(name="school", low=0, high=20, unit="years"),
    Sensor(name="hours", low=0, high=100, unit="h"),
    Sensor(name="children", low=0, high=15),
)
_SENSORS = {"fleet": _FLEET, "gauss": _PAPER, "uniform": _PAPER, "census": _CENSUS}
_DEFAULT_ATTRIBUTES = {"fleet": 8, "gauss": 10, "uniform": 10, "census": 5}

# Share of single readings that are lost or wrong, and of sensors that fail for the rest of a vehicle's day.
_LOST, _WRONG, _FAILS = 0.004, 0.003, 0.01
_COOLED = 0.35
# Hours of the day, and the share of trucks that drive then.
_HOURS, _DRIVING = (0, 4, 6, 9, 12, 13, 17, 20, 24), (0.1, 0.12, 0.5, 0.75, 0.55, 0.7, 0.65, 0.25, 0.1)


@dataclass(frozen=True, kw_only=True)
class TelemetrySetting:
    size: int = 5_000  # vehicles, as in Yao et al. 2024
    days: int = 1
    readings: int = 24  # rows per vehicle and day, evenly spaced, from 1 to 1440
    attributes: int | None = None  # numbers in a row, from 2 to 10 (census: 5); by default 8 for fleet, otherwise all
    # fleet: trucks, with readings that are missing or outside the domain. gauss: mean 60, standard deviation 1.
    # uniform: each number has its own mean between 30 and 70, and is within 30 of it. census: five skewed numbers of
    # persons, for example income.
    law: str = "fleet"

    def __post_init__(self) -> None:
        if self.law not in TELEMETRY_LAWS:
            raise ParameterError(f"law must be one of {', '.join(TELEMETRY_LAWS)}. Got {self.law!r}.")
        if self.size < 1 or self.days < 1 or not 1 <= self.readings <= _MINUTES:
            raise ParameterError(
                "size and days must be at least 1, and readings per day from 1 to 1440. "
                f"Got {self.size}, {self.days} and {self.readings}."
            )
        if self.num_rows > MAX_READINGS:
            raise ParameterError(
                f"there can be at most {MAX_READINGS:,} rows. Got {self.num_rows:,}. Use fewer vehicles or days."
            )
        if self.attributes is not None and not 2 <= self.attributes <= len(_SENSORS[self.law]):
            raise ParameterError(f"{self.law} has 2 to {len(_SENSORS[self.law])} attributes. Got {self.attributes}.")

    @property
    def num_rows(self) -> int:
        return self.size * self.days * self.readings

    @property
    def sensors(self) -> tuple[Sensor, ...]:
        return _SENSORS[self.law][: self.attributes or _DEFAULT_ATTRIBUTES[self.law]]


def telemetry(setting: TelemetrySetting | int, seed: int | None = None) -> pa.Table:
    """Generate telemetry in memory by vehicle, then by time: ``vehicle``, ``time``, and a column for each number.

    Some readings are missing, and a few are outside the public domain, like those of a broken sensor.
    """
    if not isinstance(setting, TelemetrySetting):
        setting = TelemetrySetting(size=setting)
    return _plain_table(pa.concat_tables(_telemetry_pieces(setting, seed)))


def _telemetry_pieces(setting: TelemetrySetting, seed: int | None) -> Iterator[pa.Table]:
    generator = np.random.default_rng(seed)
    names = _vehicle_names(setting.size)
    means = generator.uniform(30, 70, len(setting.sensors))
    of_vehicle = setting.days * setting.readings
    of_day = np.arange(setting.readings) * _MINUTES // setting.readings
    readings = (np.arange(setting.days)[:, None] * _MINUTES + of_day).reshape(-1)
    step = max(1, GROUP_ROWS // of_vehicle)
    for first in range(0, setting.size, step):
        num = min(step, setting.size - first)
        # minutes : (vehicles, readings), evenly spaced over days; each vehicle has its own first minute
        minutes = generator.integers(0, _MINUTES // setting.readings, num)[:, None] + readings
        if setting.law == "gauss":
            numbers = [np.asarray(generator.normal(60, 1, minutes.shape)) for _ in setting.sensors]
        elif setting.law == "uniform":
            numbers = [np.asarray(generator.uniform(mean - 30, mean + 30, minutes.shape)) for mean in means]
        else:
            numbers = (_census if setting.law == "census" else _trucks)(minutes, generator)[: len(setting.sensors)]
            numbers = [np.clip(n, sensor.low, sensor.high) for n, sensor in zip(numbers, setting.sensors, strict=True)]
        if setting.law == "fleet":
            pairs = zip(numbers, setting.sensors, strict=True)
            numbers = [_broken(n, sensor, setting, generator) for n, sensor in pairs]
        vehicles = np.repeat(np.arange(first, first + num), of_vehicle)
        columns = {"vehicle": _coded(names, vehicles), "time": _moments(minutes.ravel())}
        for sensor, values in zip(setting.sensors, numbers, strict=True):
            columns[sensor.name] = pa.array(np.round(values.ravel(), sensor.decimals), from_pandas=True)
        yield pa.table(columns)


def _census(minutes: IntArray, generator: np.random.Generator) -> list[FloatArray]:
    shape = minutes.shape
    age = 85 * generator.beta(1.4, 2.6, shape)
    school = generator.binomial(20, 0.42 - 0.002 * age)
    income = np.where(age > 15, generator.lognormal(6.4 + 0.09 * school, 1.0), 0)
    hours = np.where(age > 15, generator.normal(42, 12, shape) * (generator.random(shape) < 0.62), 0)
    children = generator.poisson(np.clip(age - 17, 0, 25) * 0.09)
    return [np.floor(age), income, school.astype(float), np.floor(hours), children.astype(float)]


def _trucks(minutes: IntArray, generator: np.random.Generator) -> list[FloatArray]:
    """Generate the readings of trucks if no sensor failed. Shapes: vehicles, readings."""
    num, shape = len(minutes), minutes.shape
    hour = minutes % _MINUTES / 60
    driving = generator.random(shape) < np.interp(hour, _HOURS, _DRIVING)
    # Each truck leaves full or half full, and returns lighter.
    load = generator.uniform(4, 36, (num, 1)) * np.clip(generator.normal(1.25 - 0.05 * hour, 0.15), 0, 1)
    heavy = load / 40
    highway = generator.random(shape) < 0.45
    speed = np.where(highway, generator.normal(84 - 16 * heavy, 7), generator.normal(41 - 9 * heavy, 12)) * driving
    cooled = generator.random((num, 1)) < _COOLED
    daylight = np.maximum(0, np.sin((hour - 6) / 12 * np.pi))
    open_door = ~driving & (generator.random(shape) < 0.25)
    outdoors = 11 + 9 * daylight + generator.normal(0, 3, (num, 1))
    inside = np.where(cooled, generator.choice([-20.0, 3.0, 6.0], (num, 1)), outdoors)
    temperature = inside + open_door * 0.3 * (outdoors - inside) + generator.normal(0, 0.8, shape)
    light = np.where(open_door, 40 + 600 * daylight * generator.random(shape), generator.exponential(3, shape))
    shocks = generator.poisson(0.15 + driving * (0.4 + speed / 60))
    humidity = np.where(cooled, 45, 62) - 0.6 * (temperature - inside) + generator.normal(0, 7, shape)
    age = np.clip(generator.normal(43, 11, (num, 1)), 21, 72)
    tenure = (age - 19) * generator.beta(1.6, 2.4, (num, 1))
    spares = [50 + 12 * generator.standard_normal(shape) + 20 * (heavy - 0.4), 100 * generator.beta(2, 5, shape)]
    constant = [np.broadcast_to(np.floor(age), shape), np.broadcast_to(tenure, shape)]
    return [speed, load, temperature, light, shocks.astype(float), humidity, *constant, *spares]


def _broken(
    values: FloatArray, sensor: Sensor, setting: TelemetrySetting, generator: np.random.Generator
) -> FloatArray:
    """Lose some readings, let some sensors fail until the end of a day, and put some readings outside the domain."""
    width = sensor.high - sensor.low
    spike = sensor.high + width * generator.uniform(0.05, 0.5, values.shape)
    wrong = np.where(generator.random(values.shape) < _WRONG, spike, values)
    lost = generator.random(values.shape) < _LOST
    fails = generator.random((len(values), setting.days, 1)) < _FAILS
    since = generator.integers(0, setting.readings, (len(values), setting.days, 1))
    lost |= (fails & (np.arange(setting.readings) >= since)).reshape(len(values), -1)
    return np.where(lost, np.nan, wrong)


def telemetry_policy(setting: TelemetrySetting, dataset: str) -> str:
    numbers = "\n".join(
        f'[attributes.{sensor.name}]\nrole = "quasi-identifier"\nkind = "numeric"\n'
        f"domain = [{sensor.low}, {sensor.high}]\n" + (f"unit = {json.dumps(sensor.unit)}\n" if sensor.unit else "")
        for sensor in setting.sensors
    )
    # The smallest interval that divides a day evenly and contains a reading of every vehicle.
    apart = range(_MINUTES // setting.readings, _MINUTES + 1)
    minutes = next(each for each in apart if _MINUTES % each == 0 and each * setting.readings >= _MINUTES)
    return starter_policy(
        "telemetry", dataset=json.dumps(dataset), numbers=numbers, minutes=minutes, lifetime=max(30, setting.days)
    )


def generate_telemetry(
    setting: TelemetrySetting, out: str | os.PathLike[str], *, seed: int | None = None, force: bool = False
) -> tuple[Path, Path]:
    """Write generated telemetry as CSV or Parquet, by the ending, with a starter policy; return both paths."""
    path, policy = targets(out, (".toml",), force, _KINDS)
    _write_pieces(_telemetry_pieces(setting, seed), path)
    policy.write_text(telemetry_policy(setting, path.stem), encoding="utf-8")
    return path, policy


# Shared by telemetry and positions
def _vehicle_names(num: int) -> pa.Array:
    return pa.array([f"V{number:07d}" for number in range(1, num + 1)], pa.string())


def _coded(labels: pa.Array, codes: IntArray) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), labels)


def _moments(minutes: IntArray) -> pa.Array:
    return pa.array(np.datetime64(FIRST_DAY, "ms") + minutes * np.timedelta64(60_000, "ms"))


def _plain_table(table: pa.Table) -> pa.Table:
    at = table.column_names.index("vehicle")
    return table.set_column(at, "vehicle", table["vehicle"].cast(pa.string())).combine_chunks()


def _write_pieces(pieces: Iterable[pa.Table], path: Path) -> None:
    """Write tables to one file, CSV or Parquet by the ending; an incomplete file is removed."""
    work = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    csv = path.suffix == ".csv"
    rest = map(_as_text, pieces) if csv else iter(pieces)
    try:
        first = next(rest)
        if csv:
            writer = pacsv.CSVWriter(work, first.schema)
        else:
            # Measured numbers rarely repeat, so a dictionary would only cost time. Readers should see plain text, not
            # our encoding, so the schema is not stored.
            labels = [field.name for field in first.schema if not pa.types.is_floating(field.type)]
            writer = pq.ParquetWriter(work, first.schema, compression="zstd", use_dictionary=labels, store_schema=False)
        with writer:
            for piece in itertools.chain([first], rest):
                writer.write_table(piece)
        os.replace(work, path)
    except OSError as error:
        reason = error.strerror or "the disk failed"
        raise OutputError(f"{path} could not be written: {reason}. Free some space, or choose another place.") from None
    finally:
        work.unlink(missing_ok=True)


def _as_text(piece: pa.Table) -> pa.Table:
    """Write names as text, and moments in ISO 8601 with a T; each moment is formatted once."""
    table = _plain_table(piece)
    minutes = table["time"].combine_chunks().cast(pa.int64()).to_numpy() // 60_000
    every, codes = np.unique(minutes, return_inverse=True)
    spelled = [(datetime(1970, 1, 1) + timedelta(minutes=int(minute))).isoformat() for minute in every]
    return table.set_column(1, "time", texts(spelled, codes))


# Generated positions of a fleet on the streets of an invented city. It is as large as the fleet in Yao et al. 2024:
# 9,858 vehicles and 265 moments, five minutes apart. Theirs are taxis in Chengdu; our streets are invented, and only
# the box is near there.
CITY_BOX = (103.95, 30.56, 104.19, 30.76)
"""West, south, east and north of the city, about 23 by 22 km; public, and independent of the generated positions."""
MAX_VEHICLES = 1_000_000  # maximum number of vehicles: all are in memory at each moment
EPOCH_MINUTES = 5

# Streets cross at whole numbers from 0 to _STREETS in both directions; the outermost streets are outside the box.
_STREETS, _BEYOND = 44, 2
_CENTRE = _STREETS / 2
_BEND = 0.35
_DEPOTS, _MARKETS = 9, 25
_MAIN_STREET = 6
# Streets that a vehicle passes in five minutes, on side streets and on main streets; half as many in the centre.
_PACE, _MAIN_PACE = 5.0, 8.0
_PARKED = 0.12
_HOME, _NEAR, _OUT = 0.22, 0.45, 0.02
_STAY_EPOCHS, _HOME_EPOCHS = 3.0, 9.0
_UNHEARD, _SILENT, _BACK = 0.004, 0.002, 0.15
_ERROR_DEGREES = 0.00008
_ACTIVE_HOURS = (0, 5, 7, 10, 13, 16, 19, 22, 24)
_ACTIVE = (0.03, 0.05, 0.5, 1.0, 0.8, 1.0, 0.7, 0.12, 0.03)
_STRICT, _BASIC = 1.0, 2.0


@dataclass(frozen=True, kw_only=True)
class PositionSetting:
    size: int = 9_858  # vehicles
    epochs: int = 265  # moments from midnight on, five minutes apart; more than 288 continue on the following days

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MAX_VEHICLES or self.epochs < 1:
            raise ParameterError(
                f"size must be from 1 to {MAX_VEHICLES:,}, and epochs at least 1. Got {self.size} and {self.epochs}."
            )
        if self.num_rows > MAX_READINGS:
            raise ParameterError(
                f"there can be at most {MAX_READINGS:,} rows. Got {self.num_rows:,}. Use fewer vehicles or epochs."
            )

    @property
    def num_rows(self) -> int:
        return self.size * self.epochs


def positions(setting: PositionSetting | int, seed: int | None = None) -> pa.Table:
    """Generate positions in memory, in the order of time: ``vehicle``, ``time``, ``lon``, ``lat``.

    Vehicles drive along streets from their depots and back; some are always parked, some leave the box or lose signal.
    """
    if not isinstance(setting, PositionSetting):
        setting = PositionSetting(size=setting)
    return _plain_table(pa.concat_tables(_position_pieces(setting, seed)))


def _position_pieces(setting: PositionSetting, seed: int | None) -> Iterator[pa.Table]:
    """Move the fleet from moment to moment, in tables of some moments, so that few rows are in memory."""
    generator = np.random.default_rng(seed)
    fleet = _Vehicles(setting.size, generator)
    names, numbers = _vehicle_names(setting.size), np.arange(setting.size)
    step = max(1, GROUP_ROWS // setting.size)
    for first in range(0, setting.epochs, step):
        epochs = range(first, min(first + step, setting.epochs))
        # fixes : (epochs, 2, vehicles)
        fixes = np.array([fleet.next_fixes(epoch) for epoch in epochs])
        minutes = EPOCH_MINUTES * np.array(epochs)
        yield pa.table(
            {
                "vehicle": _coded(names, np.tile(numbers, len(epochs))),
                "time": _moments(np.repeat(minutes, setting.size)),
                "lon": pa.array(fixes[:, 0].ravel(), from_pandas=True),
                "lat": pa.array(fixes[:, 1].ravel(), from_pandas=True),
            }
        )


class _Vehicles:
    # A place is a pair of streets, and a vehicle is always on one of them: at least one of its two numbers is whole. It
    # drives along one street and then along the other, so no route has to be stored.
    def __init__(self, num: int, generator: np.random.Generator) -> None:
        self.generator = generator
        depots = generator.integers(_BEYOND + 2, _STREETS - _BEYOND - 1, (2, _DEPOTS))
        self.markets = generator.integers(_BEYOND, _STREETS - _BEYOND + 1, (2, _MARKETS))
        self.home = depots[:, generator.integers(0, _DEPOTS, num)]
        self.round = self._anywhere(num)
        self.parked = generator.random(num) < _PARKED
        # At midnight most vehicles are at home, and the others are on their round.
        out = generator.random(num) < 0.4
        self.place = np.where(out, self.round, self.home).astype(float)
        self.goal = self.place.copy()
        self.first = np.zeros(num, dtype=np.int64)
        self.stay = generator.geometric(1 / _HOME_EPOCHS, num)
        self.pace = generator.uniform(0.75, 1.25, num)
        self.silent = np.zeros(num, dtype=bool)

    def _anywhere(self, num: int) -> IntArray:
        """Generate places: markets are visited most, then the centre. Shape: 2, places."""
        at = self.generator.normal(_CENTRE, _STREETS / 6, (2, num))
        shares = 1 / np.arange(1, _MARKETS + 1)
        chosen = self.markets[:, self.generator.choice(_MARKETS, num, p=shares / shares.sum())]
        places = np.where(self.generator.random(num) < 0.4, chosen, np.rint(at).astype(np.int64))
        return np.clip(places, _BEYOND, _STREETS - _BEYOND)

    def next_fixes(self, epoch: int) -> FloatArray:
        """Return the received positions, NaN if lost, and move the vehicles. Shape: 2, vehicles."""
        num, generator = len(self.parked), self.generator
        starts, ends = generator.random(num) < _SILENT, generator.random(num) < _BACK
        self.silent = (self.silent & ~ends) | starts
        lost = self.silent | (generator.random(num) < _UNHEARD)
        fixes = np.round(_degrees(self.place) + _ERROR_DEGREES * generator.standard_normal((2, num)), 6)
        fixes[:, lost] = np.nan
        # Vehicles that have stayed long enough go to their next place; at night most stay longer.
        arrived = (self.place == self.goal).all(axis=0) & ~self.parked
        self.stay[arrived] -= 1
        active = np.interp(epoch * EPOCH_MINUTES / 60 % 24, _ACTIVE_HOURS, _ACTIVE)
        ready = np.flatnonzero(arrived & (self.stay <= 0))
        ready = ready[generator.random(len(ready)) < active]
        # They go home, near their round, out of the city, or anywhere.
        draw, num = generator.random(len(ready)), len(ready)
        goals = self._anywhere(num)
        near = self.round[:, ready] + generator.integers(-3, 4, (2, num))
        goals = np.where(draw < _HOME + _NEAR, np.clip(near, _BEYOND, _STREETS - _BEYOND), goals)
        goals = np.where(draw < _HOME, self.home[:, ready], goals)
        beyond = generator.choice([0, _STREETS], num)
        outside = np.where(generator.integers(0, 2, num) == np.array([[0], [1]]), beyond, goals)
        self.goal[:, ready] = np.where(draw > 1 - _OUT, outside, goals)
        self.first[ready] = generator.integers(0, 2, num)
        home = (self.goal[:, ready] == self.home[:, ready]).all(axis=0)
        self.stay[ready] = generator.geometric(1 / np.where(home, _HOME_EPOCHS, _STAY_EPOCHS))
        # All move towards their goals, first along one street and then along the other.
        driving = np.flatnonzero((self.place != self.goal).any(axis=0))
        place, goal, first = self.place[:, driving], self.goal[:, driving], self.first[driving]
        numbers = np.arange(len(driving))
        # reach : number of streets that each passes until the next moment
        main = (place % _MAIN_STREET == 0).any(axis=0)
        slow = np.clip(0.5 + np.hypot(*(place - _CENTRE)) / _CENTRE, 0.5, 1.0)
        pace = np.where(main, _MAIN_PACE, _PACE) * slow * self.pace[driving]
        reach = pace * generator.uniform(0.4, 1.2, len(driving))
        for axis in (first, 1 - first):
            ahead = goal[axis, numbers] - place[axis, numbers]
            moved = np.minimum(np.abs(ahead), reach)
            arrives = moved == np.abs(ahead)
            # Arrival must be exact, or nobody would ever arrive.
            beyond = place[axis, numbers] + np.sign(ahead) * moved
            place[axis, numbers] = np.where(arrives, goal[axis, numbers], beyond)
            reach = reach - moved
        self.place[:, driving] = place
        return fixes


def _degrees(place: FloatArray) -> FloatArray:
    """Convert places on streets to longitude and latitude: streets are dense in the centre, and bend a little."""
    # scaled : -1 to 1 between the outermost streets inside the box
    scaled = (place - _CENTRE) / (_CENTRE - _BEYOND)
    spread = scaled * (1 - _BEND) + _BEND * scaled**3
    bent = spread + 0.02 * np.sin(3 * scaled[::-1]) * np.cos(scaled * np.pi / 2)
    west, south, east, north = CITY_BOX
    low, high = np.array([[west], [south]]), np.array([[east], [north]])
    return np.asarray((low + high) / 2 + bent * (high - low) / 2)


def positions_policy(setting: PositionSetting, dataset: str) -> str:
    # The finest grids for which estimates have an error of less than three times a share, with all vehicles in the
    # strict tier: for cells, and for pairs of cells at most one column and one row apart.
    error = math.sqrt(4 * math.exp(_STRICT) / (math.expm1(_STRICT) ** 2 * setting.size))
    sides = {levels: 2 ** (levels - 1) for levels in range(2, 6)}
    places = max((levels for levels, side in sides.items() if error <= 3 / (side**2 + 1)), default=2)
    paths = max((levels for levels, side in sides.items() if error <= 3 / ((3 * side - 2) ** 2 + 1)), default=2)
    box = ", ".join(f"{side:g}" for side in CITY_BOX)
    grids = {"places": places, "places_side": sides[places], "paths": paths, "paths_side": sides[paths]}
    given = {"box": box, "basic": _BASIC, "strict": _STRICT, "minutes": EPOCH_MINUTES, **grids}
    return starter_policy("positions", dataset=json.dumps(dataset), **given)


def generate_positions(
    setting: PositionSetting, out: str | os.PathLike[str], *, seed: int | None = None, force: bool = False
) -> tuple[Path, Path]:
    """Write generated positions as CSV or Parquet, by the ending, with a starter policy; return both paths."""
    path, policy = targets(out, (".toml",), force, _KINDS)
    _write_pieces(_position_pieces(setting, seed), path)
    policy.write_text(positions_policy(setting, path.stem), encoding="utf-8")
    return path, policy
