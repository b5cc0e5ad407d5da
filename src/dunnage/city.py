# SPDX-License-Identifier: Apache-2.0
"""City: stops, zones, hubs, modes of travel, travel times and buses. Public facts only; no private row reaches it."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import FloatArray, IntArray
from dunnage.city_files import (
    BUS_COLUMNS,
    MODE_COLUMNS,
    MOST_PAIRS_BYTES,
    MOST_SECONDS,
    MOST_STOPS_WITH_PAIRS,
    TIME_COLUMNS,
    by_first_pair,
    read_assumed,
    read_buses,
    read_modes,
    read_stops,
    read_times,
)
from dunnage.errors import InputError, ParameterError, Problem, Refusal
from dunnage.folders import new_folder

MOST_MODES_BYTES = MOST_PAIRS_BYTES
CITY_FILES = ("stops.csv", "times.csv", "buses.csv", "modes.csv", "city.json")
"""The files of a city's folder; all but the first may be absent."""
EARTH_KM = 6371.0088
SPEED_KMH, DETOUR = 25.0, 1.3


@dataclass(frozen=True, eq=False, kw_only=True)
class Buses:
    """Rides with one bus between hubs. Shapes: rides.

    Parameters
    ----------
    origins, destinations
        Stops, as numbers, where one gets on and off.
    seconds
        How long the ride takes.
    headway_seconds
        Time from one bus to the next; who arrives at random waits half of it on average.
    """

    origins: NDArray[np.int32]
    destinations: NDArray[np.int32]
    seconds: NDArray[np.int32]
    headway_seconds: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.origins)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buses) and all(
            np.array_equal(getattr(self, item.name), getattr(other, item.name)) for item in fields(self)
        )

    def __hash__(self) -> int:
        return hash(len(self))


@dataclass(frozen=True, eq=False, kw_only=True)
class City:
    """Public facts about where trips can be made.

    Parameters
    ----------
    stops
        Names of all stops, in the order of their file.
    zone_names, zones
        Names of the zones, and the number of the zone of each stop; None where no zones are given.
    mode_names, modes
        Names of the modes, and the number of the mode of each pair of stops: (origin, destination); None without.
    lat, lon
        Where each stop is, in degrees; None where that is not given.
    hubs
        Whether each stop is a hub; None where that is not given.
    times
        Seconds a shuttle drives from stop to stop: (origin, destination); None where that is not given.
    buses
        Rides with one bus between hubs; None where they are not given.
    assumed
        Sentences that say what was assumed where something was not given.
    """

    stops: tuple[str, ...]
    zone_names: tuple[str, ...] = ()
    zones: NDArray[np.int32] | None = None
    mode_names: tuple[str, ...] = ()
    modes: NDArray[np.int16] | None = None
    lat: NDArray[np.float64] | None = None
    lon: NDArray[np.float64] | None = None
    hubs: NDArray[np.bool_] | None = None
    times: NDArray[np.int32] | None = None
    buses: Buses | None = None
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        num = len(self.stops)
        if self.times is not None and (
            self.times.shape != (num, num) or (self.times < 0).any() or np.diagonal(self.times).any()
        ):
            raise ParameterError(
                f"times must be seconds from each of the {num} stops to each, 0 or more, and 0 from a stop to itself. "
                "Mend them."
            )
        if self.buses is not None and len(self.buses):
            ends = np.concatenate([self.buses.origins, self.buses.destinations])
            if self.hubs is None or not (0 <= ends.min() <= ends.max() < num and self.hubs[ends].all()):
                raise ParameterError("buses go from hub to hub. Got a stop that is none. Mark it as a hub.")

    @classmethod
    def read(cls, stops: str | PathLike[str], modes: str | PathLike[str] | None = None) -> City:
        """Read the files of a city.

        Parameters
        ----------
        stops
            CSV file with the columns ``stop`` and, if wanted, ``zone``, ``lat`` and ``lon``, ``hub``, in any order.
        modes
            CSV file ``origin,destination,mode``: every pair of stops once, also from a stop to itself.

        Raises
        ------
        InputError
            With every problem of a file, by line.
        """
        facts = read_stops(stops)
        names, of_pair = read_modes(modes, facts["stops"]) if modes is not None else ((), None)
        return cls(**facts, mode_names=names, modes=of_pair)

    @classmethod
    def read_folder(cls, folder: str | PathLike[str]) -> City:
        """Read a city's folder: ``stops.csv`` and what else there is of ``times.csv``, ``buses.csv``, ``modes.csv``.

        ``city.json`` holds what was assumed when the folder was written.

        Raises
        ------
        InputError
            With every problem of the first file that has one, by line.
        """
        place = Path(folder)
        if not (place / "stops.csv").is_file():
            raise InputError(str(place), [Problem("there is no stops.csv", remedy="Name the folder of a city.")])
        paths = {name: place / name for name in CITY_FILES if (place / name).exists()}
        city = cls.read(paths["stops.csv"], paths.get("modes.csv"))
        found: dict[str, Any] = {}
        if "times.csv" in paths:
            found["times"] = read_times(paths["times.csv"], city.stops)
        if "buses.csv" in paths:
            found["buses"] = Buses(**read_buses(paths["buses.csv"], city.stops, city.hubs))
        if "city.json" in paths:
            found["assumed"] = read_assumed(paths["city.json"])
        return replace(city, **found)

    def write(self, folder: str | PathLike[str], *, force: bool = False) -> Path:
        """Write a folder that :meth:`read_folder` reads back equal.

        Raises
        ------
        OutputError
            If something is in the way (``force`` replaces a city's folder), or there is no place to write to.
        """
        with new_folder(folder, marker="stops.csv", force=force, may_hold=CITY_FILES) as work:
            _write_csv(work / "stops.csv", *self._stop_rows())
            if self.times is not None:
                _write_csv(work / "times.csv", TIME_COLUMNS, self._pair_rows(self.times, itself=False))
            if self.buses is not None:
                _write_csv(work / "buses.csv", BUS_COLUMNS, self._bus_rows(self.buses))
            if self.modes is not None:
                named = np.array(self.mode_names, dtype=object)[self.modes]
                _write_csv(work / "modes.csv", MODE_COLUMNS, self._pair_rows(named))
            text = json.dumps({"format": 1, "assumed": list(self.assumed)}, indent=2, ensure_ascii=False)
            (work / "city.json").write_text(text + "\n", encoding="utf-8")
        return Path(folder)

    def _stop_rows(self) -> tuple[list[str], Iterable[Sequence[Any]]]:
        columns: dict[str, Sequence[Any]] = {"stop": self.stops}
        if self.zones is not None:
            columns["zone"] = [self.zone_names[zone] for zone in self.zones.tolist()]
        if self.lat is not None and self.lon is not None:
            columns |= {"lat": self.lat.tolist(), "lon": self.lon.tolist()}
        if self.hubs is not None:
            columns["hub"] = self.hubs.astype(int).tolist()
        return list(columns), zip(*columns.values(), strict=True)

    def _pair_rows(self, values: NDArray[Any], *, itself: bool = True) -> Iterable[Sequence[Any]]:
        for start, row in enumerate(values):
            for end, value in enumerate(row.tolist()):
                if itself or start != end:
                    yield self.stops[start], self.stops[end], value

    def _bus_rows(self, buses: Buses) -> Iterable[Sequence[Any]]:
        ends = ([self.stops[stop] for stop in column.tolist()] for column in (buses.origins, buses.destinations))
        return zip(*ends, buses.seconds.tolist(), buses.headway_seconds.tolist(), strict=True)

    def with_modes(self, names: Sequence[str], codes: NDArray[np.integer[Any]]) -> City:
        """Return the city with the mode of each pair of stops, given as places in names."""
        found, numbers = by_first_pair(names, codes.reshape(-1).astype(np.int64))
        shape = (len(self.stops), len(self.stops))
        return replace(self, mode_names=found, modes=numbers.astype(np.int16).reshape(shape))

    def kilometres(self) -> FloatArray:
        """Return distances between stops as the crow flies. Shape: (stops, stops).

        Raises
        ------
        Refusal
            If it is not known where stops are.
        """
        if self.lat is None or self.lon is None:
            raise Refusal("the city does not say where its stops are. Give lat and lon of each stop in stops.csv.")
        self._refuse_many()
        return haversine(self.lat, self.lon)

    def _refuse_many(self) -> None:
        if len(self.stops) > MOST_STOPS_WITH_PAIRS:
            raise Refusal(
                f"travel times are computed for at most {MOST_STOPS_WITH_PAIRS} stops. Got {len(self.stops)}. "
                "Keep only stops that trips are made between."
            )

    def with_times(self, *, speed_kmh: float = SPEED_KMH, detour: float = DETOUR) -> City:
        """Return the city with travel times; computed from where stops are if none are given.

        Parameters
        ----------
        speed_kmh
            How fast a shuttle drives, in km/h.
        detour
            How much longer than the crow flies its way is.

        Raises
        ------
        Refusal
            If there are neither travel times nor coordinates.
        """
        if self.times is not None:
            return self
        if not (0 < speed_kmh < math.inf and 1 <= detour < math.inf):
            raise ParameterError(
                f"a speed is above 0 km/h and a detour at least 1. Got {speed_kmh:g} km/h and {detour:g}. Mend them."
            )
        if self.lat is None:
            raise Refusal(
                "the city has neither travel times nor coordinates. "
                "Add times.csv (from,to,seconds), or lat and lon of each stop to stops.csv."
            )
        seconds = np.rint(self.kilometres() * (detour / speed_kmh * 3600))
        if seconds.max() > MOST_SECONDS:
            raise Refusal(
                f"the farthest stops are {seconds.max() / 3600:.0f} hours apart at {speed_kmh:g} km/h. "
                "Check lat and lon of the stops, or the speed."
            )
        said = (
            f"Travel times are distances as the crow flies, times {detour:g} for detours, at {speed_kmh:g} km/h: "
            "none were given."
        )
        return replace(self, times=seconds.astype(np.int32), assumed=(*self.assumed, said))

    def with_zones(self, num: int) -> City:
        """Return the city with so many zones of about as many stops each: cut again and again across the longer side.

        Raises
        ------
        ParameterError
            If there are fewer stops than zones.
        Refusal
            If it is not known where stops are.
        """
        if self.lat is None or self.lon is None:
            raise Refusal("zones are cut by where stops are. Give lat and lon of each stop in stops.csv.")
        if not 1 <= num <= len(self.stops):
            raise ParameterError(
                f"{len(self.stops)} stops make 1 to {len(self.stops)} zones. Got {num}. Ask for fewer."
            )
        shrink = math.cos(math.radians(float(np.median(self.lat))))
        parts = _cut(np.arange(len(self.stops)), np.column_stack([self.lat, self.lon * shrink]), num)
        # Numbered as their first stops are, as zones of a file are.
        parts.sort(key=lambda part: int(part.min()))
        zones = np.empty(len(self.stops), dtype=np.int32)
        for zone, part in enumerate(parts):
            zones[part] = zone
        said = f"The {num} zones are cut by where stops are, each with about as many."
        return replace(
            self,
            zone_names=tuple(f"zone {zone + 1}" for zone in range(num)),
            zones=zones,
            assumed=(*self.assumed, said),
        )

    def for_fleets(self, *, speed_kmh: float = SPEED_KMH, detour: float = DETOUR) -> City:
        """Return the city with all that sizing a fleet needs: zones and travel times; hubs and buses may be absent.

        Raises
        ------
        Refusal
            Naming what is missing and where to add it.
        """
        missing = []
        if self.zones is None:
            missing.append(
                "zones (a column zone in stops.csv: shuttles serve the zone they belong to; "
                "dunnage generate city --gtfs FEED --zones 4 makes some)"
            )
        if self.times is None and self.lat is None:
            missing.append("travel times (times.csv with from,to,seconds, or lat and lon in stops.csv)")
        if missing:
            raise Refusal(f"the city has no {', and no '.join(missing)}. Add what is missing.")
        return self.with_times(speed_kmh=speed_kmh, detour=detour)

    @cached_property
    def homes(self) -> IntArray:
        """Stop at which the shuttles of each zone park: of its hubs, or else its stops, the nearest to all of it."""
        city = self.for_fleets()
        assert city.zones is not None
        assert city.times is not None
        hubs = np.zeros(len(self.stops), dtype=bool) if self.hubs is None else self.hubs
        homes = np.empty(len(self.zone_names), dtype=np.int64)
        for zone in range(len(homes)):
            own = np.flatnonzero(city.zones == zone)
            may = own[hubs[own]] if hubs[own].any() else own
            homes[zone] = may[np.argmin(city.times[np.ix_(may, own)].sum(axis=1, dtype=np.int64))]
        return homes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, City) and all(
            np.array_equal(getattr(self, item.name), getattr(other, item.name)) for item in fields(self)
        )

    def __hash__(self) -> int:
        return hash(self.stops)


def _cut(stops: IntArray, places: FloatArray, num: int) -> list[IntArray]:
    """Cut stops into so many parts, as equal as whole stops allow, across the longer side of each."""
    if num == 1:
        return [stops]
    here = places[stops]
    order = stops[np.argsort(here[:, int(np.argmax(np.ptp(here, axis=0)))], kind="stable")]
    first = len(stops) * (num // 2) // num
    return [*_cut(order[:first], places, num // 2), *_cut(order[first:], places, num - num // 2)]


def haversine(lat: FloatArray, lon: FloatArray) -> FloatArray:
    """Return distances in km on a sphere between points given in degrees. Shapes: points -> (points, points)."""
    north, east = np.radians(lat), np.radians(lon)
    half = np.sin((north[:, None] - north) / 2) ** 2
    half += np.cos(north)[:, None] * np.cos(north) * np.sin((east[:, None] - east) / 2) ** 2
    return np.asarray(2 * EARTH_KM * np.arcsin(np.sqrt(np.minimum(half, 1.0))))


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
