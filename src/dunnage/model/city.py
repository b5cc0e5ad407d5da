# SPDX-License-Identifier: Apache-2.0
"""City: stops, zones, hubs, modes of travel, travel times and buses. Public facts only, never private rows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import InputError, ParameterError, Problem, Refusal
from dunnage.exact import decimal, whole
from dunnage.folders import new_folder
from dunnage.tables import reader

STOP_COLUMNS = ("stop", "zone", "lat", "lon", "hub", "name")  # the name is for people
MODE_COLUMNS = ("origin", "destination", "mode")
TIME_COLUMNS = ("from", "to", "seconds")
LINE_COLUMNS = ("line", "lat", "lon")  # roads and tracks to draw, point by point
BUS_COLUMNS = ("from", "to", "seconds", "headway_seconds")
SEATS_COLUMN = "seats"  # of buses; it may be absent
# All but the first may be absent
CITY_FILES = ("stops.csv", "times.csv", "buses.csv", "modes.csv", "lines.csv", "city.json")
MAX_STOPS = 100_000
MAX_MODES = 32_767
MAX_STOPS_WITH_PAIRS = 6_000  # of a city with modes or travel times for each pair of stops
MAX_PAIRS_BYTES = 1 << 31  # of a file of modes or travel times
_BLOCK_PAIRS = 1 << 20  # of pairs of stops that are computed at a time
MAX_SECONDS = 86_400  # of a travel time, ride or headway: a day
MAX_SEATS = 10_000  # of a bus
MAX_ASSUMED = 100  # sentences about assumptions
EARTH_KM = 6371.0088
Lines = tuple[tuple[tuple[float, float], ...], ...]
SPEED_KMH, DETOUR = 25.0, 1.3
_HUB_WORDS = {"": False, "0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}
_RANGES = {"lat": 90.0, "lon": 180.0}


def read_stops(path: str | PathLike[str]) -> City:
    """Read a list of stops as a city without modes, times and buses."""
    (header_line, header), *lines = reader.read_lines(path)
    names = [name.strip().lower() for name in header]
    problems = []
    if unknown := [name for name in names if name not in STOP_COLUMNS]:
        columns_read = ", ".join(STOP_COLUMNS)
        problems.append((header_line, f"unknown column {unknown[0]!r}. Use only {columns_read}."))
    if "stop" not in names:
        problems.append((header_line, "the header has no column stop. Add it."))
    if ("lat" in names) != ("lon" in names):
        problems.append((header_line, "lat and lon go together. Add the missing one."))
    if len(set(names)) < len(names):
        problems.append((header_line, "a column is there twice. Remove one."))
    reader.refuse_lines(path, problems)
    for line, cells in lines:
        if len(cells) != len(names):
            what = f"the header has {len(names)} cells, but this line has {len(cells)}."
            problems.append((line, what))
    reader.refuse_lines(path, problems)
    if not lines or len(lines) > MAX_STOPS:
        what = f"a city needs 1 to {MAX_STOPS} stops. Got {len(lines)}"
        raise InputError(str(path), [Problem(what, remedy="Check the file.")])
    at = [line for line, _ in lines]
    columns = {name: [cells[place].strip() for _, cells in lines] for place, name in enumerate(names)}
    first: dict[str, int] = {}
    for stop, line in zip(columns["stop"], at, strict=True):
        if not stop:
            problems.append((line, "the stop is blank. Fill it in."))
        elif first.setdefault(stop, line) != line:
            problems.append((line, f"the stop {stop!r} is also in line {first[stop]}. Remove one."))
    whole = {}  # columns with a value for every stop
    for name in ("zone", "lat", "lon"):
        if any(columns.get(name, [])):
            blank = [line for cell, line in zip(columns[name], at, strict=True) if not cell]
            problems += [(line, f"this stop has no {name}, but others do. Fill it in.") for line in blank]
            if not blank:
                whole[name] = columns[name]
    degrees: dict[str, FloatArray] = {}
    for name in whole.keys() & _RANGES.keys():
        degrees[name], limit = np.array([decimal(cell) for cell in whole[name]]), _RANGES[name]
        for place in np.flatnonzero(~(np.abs(degrees[name]) <= limit)).tolist():
            problems.append((at[place], f"{name} must be a number of degrees from -{limit:g} to {limit:g}."))
    hubs = [_HUB_WORDS.get(cell.lower()) for cell in columns.get("hub", [])]
    for hub, line, cell in zip(hubs, at, columns.get("hub", at), strict=False):
        if hub is None:
            problems.append((line, f"hub must be 1 or 0, true or false, yes or no. Got {cell!r}."))
    reader.refuse_lines(path, sorted(problems))
    zone_names, zones = numbered(whole["zone"]) if "zone" in whole else ((), None)
    return City(
        stops=tuple(columns["stop"]),
        zone_names=zone_names,
        zones=zones,
        lat=degrees.get("lat"),
        lon=degrees.get("lon"),
        hubs=np.array(hubs, dtype=bool) if "hub" in columns else None,
        names=tuple(columns.get("name", ())),
    )


def read_drawn_lines(path: str | PathLike[str]) -> Lines:
    """Read the roads and tracks of a map: the points of each line in order."""
    (header_line, header), *rows = reader.read_lines(path)
    if [name.strip().lower() for name in header] != list(LINE_COLUMNS):
        reader.refuse_lines(path, [(header_line, f"the header must be {','.join(LINE_COLUMNS)}.")])
    points: dict[str, list[tuple[float, float]]] = {}
    problems = []
    for line, cells in rows:
        degrees = [decimal(cell) for cell in cells[1:]]
        if len(degrees) != 2 or not (abs(degrees[0]) <= 90 and abs(degrees[1]) <= 180):
            problems.append((line, "a point needs the name of its line and two numbers of degrees."))
        else:
            points.setdefault(cells[0], []).append((degrees[0], degrees[1]))
    reader.refuse_lines(path, problems)
    return tuple(map(tuple, points.values()))


def numbered(names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    number: dict[str, int] = {}
    codes = [number.setdefault(name, len(number)) for name in names]
    return tuple(number), np.array(codes, dtype=np.int32)


def _seconds(cell: str) -> int:
    """Read a number of seconds, rounded to a whole one; -1 if it is not a number or too large."""
    value = decimal(cell)
    return math.floor(value + 0.5) if 0 <= value <= MAX_SECONDS else -1


class _PairFile:
    """A file with a line for each pair of stops, and both ends of each pair as numbers of stops (-1: unknown)."""

    def __init__(
        self,
        path: str | PathLike[str],
        wanted: Sequence[str],
        stops: tuple[str, ...],
        max_bytes: int | None = None,
        *,
        optional: str = "",  # a column that may be there too
    ) -> None:
        def check(names: list[str]) -> str:
            found = sorted(name.lower() for name in names)
            more = f", or {','.join((*wanted, optional))}" if optional else ""
            right = found == sorted(wanted) or (more and found == sorted((*wanted, optional)))
            return "" if right else f"the header must be {','.join(wanted)}{more}."

        self.path, self.wanted, self.stops = path, wanted, stops
        table = reader.read_pairs(path, check, max_bytes)
        self.table = table._replace(columns={name.lower(): column for name, column in table.columns.items()})
        code_of = {stop: code for code, stop in enumerate(stops)}
        self.origins, self.destinations = (
            self.table.numbers(name, lambda stop: code_of.get(stop, -1)) for name in wanted[:2]
        )

    def pairs(
        self,
        what: str,  # What the file says about each pair
        wrongs: Sequence[tuple[BoolArray, str]],  # Lines with problems of their own, and why
        *,
        every: bool = True,  # Whether the file must have all pairs
        itself: bool = True,  # Whether it must have pairs from a stop to itself
    ) -> IntArray:
        """Return pairs as numbers; refuse a file that does not have every pair once."""
        stops, ends = self.stops, (self.origins, self.destinations)
        pairs: IntArray = np.where(np.minimum(*ends) < 0, -1, ends[0] * len(stops) + ends[1])
        order = np.argsort(pairs, kind="stable")
        again = np.zeros(len(pairs), dtype=bool)
        again[order[1:]] = (pairs[order[1:]] == pairs[order[:-1]]) & (pairs[order[1:]] >= 0)
        named = ("from", "to") if self.wanted[0] == "from" else ("the origin", "the destination")
        faults = [
            (end < 0, f"{name} is not one of the stops. Correct it, or add the stop.")
            for end, name in zip(ends, named, strict=True)
        ]
        faults += [*wrongs, (again, f"this pair of stops already has a {what}. Remove one.")]
        lines = [
            (line, sentence)
            for wrong, sentence in faults
            if wrong.any()
            for line in self.table.lines(np.flatnonzero(wrong)[: reader.MAX_LINES_NAMED + 1])
        ]
        listed = reader.line_problems(sorted(lines))
        if every:
            seen = np.zeros(len(stops) ** 2, dtype=bool)
            seen[pairs[pairs >= 0]] = True
            if not itself:
                seen[:: len(stops) + 1] = True
            if num := int((~seen).sum()):
                start, end = (stops[code] for code in divmod(int(np.argmin(seen)), len(stops)))
                text = f"{num} pairs of stops have no {what}" if num > 1 else f"a pair of stops has no {what}"
                listed.append(Problem(f"{text}, first {start!r} to {end!r}", remedy="Add a line for each pair."))
        if listed:
            raise InputError(str(self.path), listed)
        return pairs


def _streamed(
    path: str | PathLike[str],
    wanted: Sequence[str],
    stops: tuple[str, ...],
    read: Callable[[str], int],
    *,
    itself: bool = True,
) -> NDArray[np.int32] | None:
    """Read a number for each pair, part by part, so that large files need little memory. Shape: -> pairs."""
    # It is -1 from a stop to itself if the file need not have these pairs. A file with anything unusual gives None:
    # read as a whole, it is either right after all or refused with its lines.
    num, num_lines = len(stops), 0
    values = np.full(num * num, -1, dtype=np.int32)
    for batch in reader.pair_batches(path, wanted, MAX_PAIRS_BYTES):
        if batch is None:
            return None
        origins, destinations = (batch.codes(name, stops) for name in wanted[:2])
        own = batch.numbers(wanted[2], read)
        pairs = origins.astype(np.int64) * num + destinations
        if min(origins.min(), destinations.min(), own.min()) < 0 or own.max() > np.iinfo(np.int32).max:
            return None
        values[pairs] = own
        num_lines += len(own)
    missing = int((values < 0).sum())
    may_miss = 0 if itself else int((values[:: num + 1] < 0).sum())
    # No pair is there twice, and none is missing.
    return values if num_lines == num * num - missing and missing == may_miss else None


def _refuse_many(path: str | PathLike[str], stops: tuple[str, ...], what: str, remedy: str) -> None:
    if len(stops) > MAX_STOPS_WITH_PAIRS:
        what = f"{what} possible for at most {MAX_STOPS_WITH_PAIRS} stops. Got {len(stops)}"
        raise InputError(str(path), [Problem(what, remedy=remedy)])


def read_modes(path: str | PathLike[str], stops: tuple[str, ...]) -> tuple[tuple[str, ...], NDArray[np.int16]]:
    """Read the mode of each pair. Shapes: -> names, and codes (stops, stops)."""
    _refuse_many(path, stops, "modes of pairs are", "Use features without modes.")
    number: dict[str, int] = {}

    def code(name: str) -> int:
        return number.setdefault(name, len(number)) if name else -1

    of_pair: NDArray[Any] | None = _streamed(path, MODE_COLUMNS, stops, code)
    if of_pair is None:
        number.clear()
        file = _PairFile(path, MODE_COLUMNS, stops, MAX_PAIRS_BYTES)
        codes = file.table.numbers("mode", code)
        of_pair = np.empty(len(stops) ** 2, dtype=np.int64)
        of_pair[file.pairs("mode", [(codes < 0, "the mode is blank. Fill it in.")])] = codes
    names, numbers = by_first_pair(tuple(number), of_pair)
    if len(names) > MAX_MODES:
        what = f"there can be at most {MAX_MODES} modes. Got {len(names)}"
        raise InputError(str(path), [Problem(what, remedy="Use fewer.")])
    return names, numbers.astype(np.int16, copy=False).reshape(len(stops), len(stops))


def by_first_pair(names: Sequence[str], codes: NDArray[Any]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Give names numbers by their first pair, so that the order of lines does not matter."""
    first = np.full(len(names), len(codes), dtype=np.int64)
    for start in range(0, len(codes), _BLOCK_PAIRS):
        present, place = np.unique(codes[start : start + _BLOCK_PAIRS], return_index=True)
        first[present] = np.minimum(first[present], start + place)
    order = np.argsort(first, kind="stable")[: int((first < len(codes)).sum())]
    rank = np.zeros(len(names), dtype=np.int32)
    rank[order] = np.arange(len(order))
    return tuple(names[code] for code in order.tolist()), rank[codes]


def read_times(path: str | PathLike[str], stops: tuple[str, ...]) -> NDArray[np.int32]:
    """Read the seconds of travel of each pair; those from a stop to itself are optional. Shapes: -> (stops, stops)."""
    _refuse_many(path, stops, "travel times are", "Leave the file out, and give lat and lon of each stop.")
    streamed = _streamed(path, TIME_COLUMNS, stops, _seconds, itself=False)
    if streamed is not None and not (streamed[:: len(stops) + 1] > 0).any():
        streamed[:: len(stops) + 1] = 0
        return streamed.reshape(len(stops), len(stops))
    del streamed
    file = _PairFile(path, TIME_COLUMNS, stops, MAX_PAIRS_BYTES)
    seconds = file.table.numbers("seconds", _seconds)
    to_itself = (file.origins == file.destinations) & (file.origins >= 0) & (seconds > 0)
    wrongs = (
        (seconds < 0, f"seconds must be a number from 0 to {MAX_SECONDS}: every stop must be reachable."),
        (to_itself, "a stop is 0 seconds from itself."),
    )
    times = np.zeros(len(stops) ** 2, dtype=np.int32)
    times[file.pairs("travel time", wrongs, itself=False)] = seconds
    return times.reshape(len(stops), len(stops))


def read_buses(path: str | PathLike[str], stops: tuple[str, ...], hubs: BoolArray | None) -> Buses:
    file = _PairFile(path, BUS_COLUMNS, stops, optional=SEATS_COLUMN)
    origins, destinations = file.origins, file.destinations
    is_hub = np.append(np.zeros(len(stops), dtype=bool) if hubs is None else hubs, True)
    seconds, headways = (file.table.numbers(name, _seconds) for name in BUS_COLUMNS[2:])
    wrongs: tuple[tuple[BoolArray, str], ...] = (
        (~is_hub[origins], "a bus goes from hub to hub, but its first stop is not a hub. Mark it in stops.csv."),
        (~is_hub[destinations], "a bus goes from hub to hub, but its last stop is not a hub. Mark it in stops.csv."),
        ((origins == destinations) & (origins >= 0), "a bus cannot go from a stop to itself. Remove the line."),
        (seconds < 0, f"seconds must be a number from 0 to {MAX_SECONDS}."),
        (headways < 1, f"headway_seconds must be a number from 1 to {MAX_SECONDS}."),
    )
    columns = {"origins": origins, "destinations": destinations, "seconds": seconds, "headway_seconds": headways}
    if SEATS_COLUMN in file.table.columns:
        seats = columns[SEATS_COLUMN] = file.table.numbers(SEATS_COLUMN, lambda cell: whole(cell) or 0)
        wrongs += (
            ((seats < 1) | (seats > MAX_SEATS), f"seats must be a whole number from 1 to {MAX_SEATS} on every line."),
        )
    file.pairs("bus", wrongs, every=False)
    order = np.lexsort((destinations, origins))
    return Buses(**{name: column[order].astype(np.int32) for name, column in columns.items()})


def read_assumed(path: str | PathLike[str]) -> tuple[str, ...]:
    try:
        content = json.loads(reader.public_content(path))
    except (ValueError, RecursionError):
        what = "this is not JSON"
    else:
        assumed = content.get("assumed", []) if isinstance(content, dict) else []
        what = "format must be 1, which is what this version reads"
        if isinstance(content, dict) and content.get("format") == 1:
            if isinstance(assumed, list) and len(assumed) <= MAX_ASSUMED and all(isinstance(x, str) for x in assumed):
                return tuple(assumed)
            what = f"assumed must be a list of at most {MAX_ASSUMED} sentences"
    raise InputError(str(path), [Problem(what, remedy="Fix it, or remove the file.")])


@dataclass(frozen=True, eq=False, kw_only=True)
class Buses:
    """Rides with one bus between hubs. Shapes: rides."""

    origins: NDArray[np.int32]  # Numbers of stops
    destinations: NDArray[np.int32]
    seconds: NDArray[np.int32]  # Length of the ride
    headway_seconds: NDArray[np.int32]  # Time from one bus to the next; the mean wait is half of it
    seats: NDArray[np.int32] | None = None  # Of one bus; None if they are not known

    def __len__(self) -> int:
        return len(self.origins)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buses) and _same_fields(self, other)

    def __hash__(self) -> int:
        return hash(len(self))


def _same_fields(one: Buses | City, other: Buses | City) -> bool:
    pairs = [(getattr(one, item.name), getattr(other, item.name)) for item in fields(one)]
    return all(a == b if isinstance(a, tuple) else np.array_equal(a, b) for a, b in pairs)


@dataclass(frozen=True, eq=False, kw_only=True)
class City:
    """Public facts about where trips can be made."""

    stops: tuple[str, ...]  # names of all stops, in the order of their file
    # zone_names, zones: names of the zones, and the number of the zone of each stop; None without zones
    zone_names: tuple[str, ...] = ()
    zones: NDArray[np.int32] | None = None
    # mode_names, modes: names of the modes, and the number of the mode of each pair of stops: (origin, destination);
    # None without
    mode_names: tuple[str, ...] = ()
    modes: NDArray[np.int16] | None = None
    lat: NDArray[np.float64] | None = None  # lat, lon: coordinates of each stop in degrees; None if they are not known
    lon: NDArray[np.float64] | None = None
    hubs: NDArray[np.bool_] | None = None  # whether each stop is a hub; None if that is not known
    # seconds that a shuttle drives from stop to stop: (origin, destination); None if they are not known
    times: NDArray[np.int32] | None = None
    buses: Buses | None = None  # rides with one bus between hubs; None if they are not known
    assumed: tuple[str, ...] = ()  # sentences about what was assumed because it was not known
    names: tuple[str, ...] = ()  # what people call each stop; empty if it has only the name in `stops`
    lines: Lines = ()  # roads and tracks to draw on maps: the latitude and longitude of each point

    def __post_init__(self) -> None:
        num = len(self.stops)
        if self.times is not None and (
            self.times.shape != (num, num) or (self.times < 0).any() or np.diagonal(self.times).any()
        ):
            raise ParameterError(
                f"times must be seconds between all {num} stops, 0 or more, and 0 from a stop to itself."
            )
        if self.buses is not None and len(self.buses):
            ends = np.concatenate([self.buses.origins, self.buses.destinations])
            if self.hubs is None or not (0 <= ends.min() <= ends.max() < num and self.hubs[ends].all()):
                raise ParameterError("buses go from hub to hub, and a stop is not a hub. Mark it as one.")

    @classmethod
    def read(cls, stops: str | PathLike[str], modes: str | PathLike[str] | None = None) -> City:
        """Read the files of a city; problems name their lines.

        Stops are a table with the column ``stop`` and optionally ``zone``, ``lat`` and ``lon``, ``hub``, in any order;
        modes are ``origin,destination,mode``: every pair of stops once, including from a stop to itself.
        """
        city = read_stops(stops)
        if modes is None:
            return city
        names, of_pair = read_modes(modes, city.stops)
        return replace(city, mode_names=names, modes=of_pair)

    @classmethod
    def read_folder(cls, folder: str | PathLike[str]) -> City:
        """Read the folder of a city: ``stops.csv`` and optionally ``times.csv``, ``buses.csv`` and ``modes.csv``.

        ``city.json`` has the assumptions of the program that wrote the folder.
        """
        place = Path(folder)
        if not (place / "stops.csv").is_file():
            raise InputError(str(place), [Problem("there is no stops.csv", remedy="Give the folder of a city.")])
        paths = {name: place / name for name in CITY_FILES if (place / name).exists()}
        city = cls.read(paths["stops.csv"], paths.get("modes.csv"))
        if "times.csv" in paths:
            city = replace(city, times=read_times(paths["times.csv"], city.stops))
        if "buses.csv" in paths:
            city = replace(city, buses=read_buses(paths["buses.csv"], city.stops, city.hubs))
        if "lines.csv" in paths:
            city = replace(city, lines=read_drawn_lines(paths["lines.csv"]))
        if "city.json" in paths:
            city = replace(city, assumed=read_assumed(paths["city.json"]))
        return city

    def write(self, folder: str | PathLike[str], *, force: bool = False) -> Path:
        """Write a folder that :meth:`read_folder` reads back equal; ``force`` replaces a city's folder."""
        with new_folder(folder, marker="stops.csv", force=force, may_hold=CITY_FILES) as work:
            columns: dict[str, Sequence[object]] = {"stop": self.stops}
            if self.zones is not None:
                columns["zone"] = [self.zone_names[zone] for zone in self.zones.tolist()]
            if self.lat is not None and self.lon is not None:
                columns |= {"lat": self.lat.tolist(), "lon": self.lon.tolist()}
            if self.hubs is not None:
                columns["hub"] = self.hubs.astype(int).tolist()
            if self.names:
                columns["name"] = self.names
            reader.write_lines(work / "stops.csv", list(columns), zip(*columns.values(), strict=True))
            if self.times is not None:
                reader.write_lines(work / "times.csv", TIME_COLUMNS, self._pair_rows(self.times, itself=False))
            if self.buses is not None:
                ends = (self.buses.origins, self.buses.destinations)
                names = ([self.stops[stop] for stop in column.tolist()] for column in ends)
                numbers = [self.buses.seconds.tolist(), self.buses.headway_seconds.tolist()]
                header: tuple[str, ...] = BUS_COLUMNS
                if self.buses.seats is not None:
                    header, numbers = (*header, SEATS_COLUMN), [*numbers, self.buses.seats.tolist()]
                reader.write_lines(work / "buses.csv", header, zip(*names, *numbers, strict=True))
            if self.modes is not None:
                reader.write_lines(work / "modes.csv", MODE_COLUMNS, self._pair_rows(self.modes, names=self.mode_names))
            if self.lines:
                points = ((number, *point) for number, line in enumerate(self.lines) for point in line)
                reader.write_lines(work / "lines.csv", LINE_COLUMNS, points)
            text = json.dumps({"format": 1, "assumed": list(self.assumed)}, indent=2, ensure_ascii=False)
            (work / "city.json").write_text(text + "\n", encoding="utf-8")
        return Path(folder)

    def called(self, stop: int) -> str:
        """Say which stop it is, for people."""
        name = self.names[stop] if self.names else ""
        return f"{name} ({self.stops[stop]})" if name and name != self.stops[stop] else self.stops[stop]

    def _pair_rows(
        self, values: NDArray[Any], *, names: Sequence[str] = (), itself: bool = True
    ) -> Iterable[Sequence[Any]]:
        for start, row in enumerate(values):
            for end, value in enumerate(row.tolist()):
                if itself or start != end:
                    yield self.stops[start], self.stops[end], names[value] if names else value

    def with_modes(self, names: Sequence[str], codes: NDArray[np.integer[Any]]) -> City:
        mode_names, numbers = by_first_pair(names, codes.reshape(-1))
        shape = (len(self.stops), len(self.stops))
        return replace(self, mode_names=mode_names, modes=numbers.astype(np.int16).reshape(shape))

    def kilometres(self, rows: slice = slice(None)) -> FloatArray:
        """Return distances from some stops to all. Shape: -> (rows, stops)."""
        if self.lat is None or self.lon is None:
            raise Refusal("the city has no coordinates. Add lat and lon of each stop to stops.csv.")
        if len(self.stops) > MAX_STOPS_WITH_PAIRS:
            raise Refusal(
                f"travel times are computed for at most {MAX_STOPS_WITH_PAIRS} stops. Got {len(self.stops)}. "
                "Keep only the stops that trips use."
            )
        return haversine(self.lat, self.lon, rows)

    @property
    def row_blocks(self) -> Iterator[slice]:
        """Stops in parts that are small enough for tables of pairs."""
        num = len(self.stops)
        step = max(1, _BLOCK_PAIRS // max(num, 1))
        return (slice(start, min(num, start + step)) for start in range(0, num, step))

    def with_times(self, *, speed_kmh: float = SPEED_KMH, detour: float = DETOUR) -> City:
        """Return the city with travel times, computed from coordinates if none are known.

        A shuttle drives at ``speed_kmh``, and its way is ``detour`` times as long as the crow flies.
        """
        if self.times is not None:
            return self
        if not (0 < speed_kmh < math.inf and 1 <= detour < math.inf):
            raise ParameterError(f"speed must be above 0 km/h and detour at least 1. Got {speed_kmh:g} and {detour:g}.")
        if self.lat is None:
            raise Refusal(
                "the city has neither travel times nor coordinates. "
                "Add times.csv (from,to,seconds), or lat and lon of each stop to stops.csv."
            )
        times, farthest = np.empty((len(self.stops), len(self.stops)), dtype=np.int32), 0.0
        for rows in self.row_blocks:
            seconds = np.rint(self.kilometres(rows) * (detour / speed_kmh * 3600))
            farthest = max(farthest, float(seconds.max()))
            times[rows] = np.minimum(seconds, MAX_SECONDS)
        if farthest > MAX_SECONDS:
            raise Refusal(
                f"the farthest stops are {farthest / 3600:.0f} hours apart at {speed_kmh:g} km/h. "
                "Check lat and lon of the stops, or the speed."
            )
        assumption = (
            f"Travel times are straight-line distances, times {detour:g} for detours, at {speed_kmh:g} km/h, "
            "because none were given."
        )
        return replace(self, times=times, assumed=(*self.assumed, assumption))

    def with_zones(self, num: int) -> City:
        """Return the city cut into zones of about equally many stops, repeatedly across the longer side."""
        if self.lat is None or self.lon is None:
            raise Refusal("cutting zones needs coordinates. Add lat and lon of each stop to stops.csv.")
        if not 1 <= num <= len(self.stops):
            raise ParameterError(f"{len(self.stops)} stops make 1 to {len(self.stops)} zones. Got {num}.")
        shrink = math.cos(math.radians(float(np.median(self.lat))))
        parts = _cut(np.arange(len(self.stops)), np.column_stack([self.lat, self.lon * shrink]), num)
        # Numbered by their first stops, as the zones of a file are.
        parts.sort(key=lambda part: int(part.min()))
        zones = np.empty(len(self.stops), dtype=np.int32)
        for zone, part in enumerate(parts):
            zones[part] = zone
        assumption = f"The {num} zones were cut by the coordinates of stops, each with about the same number of stops."
        return replace(
            self,
            zone_names=tuple(f"zone {zone + 1}" for zone in range(num)),
            zones=zones,
            assumed=(*self.assumed, assumption),
        )

    def for_fleets(self, *, speed_kmh: float = SPEED_KMH, detour: float = DETOUR) -> City:
        """Return the city with what sizing a fleet needs: zones and travel times; hubs and buses are optional."""
        missing = []
        if self.zones is None:
            missing.append(
                "zones (add a column zone to stops.csv, because shuttles serve their zone; "
                "dunnage generate city --own stops.csv --zones 4 makes some)"
            )
        if self.times is None and self.lat is None:
            missing.append("travel times (add times.csv with from,to,seconds, or lat and lon to stops.csv)")
        if missing:
            raise Refusal(f"the city has no {', and no '.join(missing)}.")
        return self.with_times(speed_kmh=speed_kmh, detour=detour)

    @cached_property
    def homes(self) -> IntArray:
        """The stop where the shuttles of each zone park: of its hubs, or else its stops, the nearest to all others."""
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
        return isinstance(other, City) and _same_fields(self, other)

    def __hash__(self) -> int:
        return hash(self.stops)


def _cut(stops: IntArray, places: FloatArray, num: int) -> list[IntArray]:
    """Cut stops into ``num`` parts as equal as possible, across the longer side of each."""
    if num == 1:
        return [stops]
    here = places[stops]
    order = stops[np.argsort(here[:, int(np.argmax(np.ptp(here, axis=0)))], kind="stable")]
    first = len(stops) * (num // 2) // num
    return [*_cut(order[:first], places, num // 2), *_cut(order[first:], places, num - num // 2)]


def haversine(lat: FloatArray, lon: FloatArray, rows: slice | IntArray = slice(None)) -> FloatArray:
    """Return distances in km on a sphere from some points to all, in degrees. Shapes: points -> (rows, points)."""
    north, east = np.radians(lat), np.radians(lon)
    half = np.sin((north[rows, None] - north) / 2) ** 2
    half += np.cos(north)[rows, None] * np.cos(north) * np.sin((east[rows, None] - east) / 2) ** 2
    return np.asarray(2 * EARTH_KM * np.arcsin(np.sqrt(np.minimum(half, 1.0))))
