# SPDX-License-Identifier: Apache-2.0
"""Cities from GTFS feeds: stops, hubs, zones and the frequent buses between hubs.

A feed comes from elsewhere and may be broken, far too large, or old. It is read with limits, and every wrong line is
named. The ``assumed`` of the city says what was used and what was left out.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import lzma
import os
import re
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import FileIO
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import InputError, OutputError, ParameterError, Problem, Refusal
from dunnage.exact import decimal
from dunnage.folders import check_new_folder, new_file
from dunnage.model.city import EARTH_KM, MAX_SECONDS, MAX_STOPS_WITH_PAIRS, Buses, City, haversine, numbered
from dunnage.model.routes import find_routes
from dunnage.tables.reader import checked_utf8, read_columns, refuse_lines
from dunnage.text import several

MAX_FEED_BYTES = 1 << 29  # of the files of a feed, unpacked
MAX_DAYS_COMPARED = 366
HUBS, ZONES, MAX_HEADWAY_SECONDS = 12, 4, 1800
_MAX_HOURS = 72
_MAX_NAMED = 5
_LINE_STEP, _NEW_SHARE, _MAX_LINE_POINTS = 0.001, 0.15, 20_000  # degrees between points of a drawn line
_HUBS_APART_KM, _HUB_REACH_KM = 0.8, 0.25
_STATION, _ENTRANCE, _NODE = "1", "2", "3"
_DATE = re.compile("[0-9]{8}")
_TIME = re.compile("([0-9]{1,2}):([0-5][0-9]):([0-5][0-9])")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

# --- The files of a feed: their columns, and what cells must be


def date_of(text: str) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def _is_whole(cell: str) -> bool:
    return cell.isascii() and cell.isdigit() and len(cell) <= 9


def _is_degrees(cell: str, limit: float) -> bool:
    return not cell or abs(decimal(cell)) <= limit


def seconds_of(cell: str) -> int | None:
    """Read a time of the service day, which may be past 24:00, as seconds; None if it is not a time."""
    clock = _TIME.fullmatch(cell)
    if not clock or int(clock[1]) > _MAX_HOURS:
        return None
    return 3600 * int(clock[1]) + 60 * int(clock[2]) + int(clock[3])


_Check = tuple[Callable[[str], bool], str]
_LAT: _Check = (partial(_is_degrees, limit=90.0), "a number of degrees from -90 to 90")
_LON: _Check = (partial(_is_degrees, limit=180.0), "a number of degrees from -180 to 180")
_CLOCK: _Check = (lambda cell: not cell or seconds_of(cell) is not None, "a time such as 07:30:00 or 25:10:00")
_CLOCK_GIVEN: _Check = (lambda cell: seconds_of(cell) is not None, _CLOCK[1])
_DAY: _Check = (lambda cell: bool(_DATE.fullmatch(cell)) and date_of(cell) is not None, "a date such as 20261116")
_FLAG: _Check = (lambda cell: cell in ("0", "1"), "0 or 1")
_ID: _Check = (bool, "filled in")
_CALL_COLUMNS = ("trip_id", "stop_id", "stop_sequence", "arrival_time", "departure_time")
_RUN_COLUMNS = ("trip_id", "start_time", "end_time", "headway_secs")
_POSITIVE: _Check = (lambda cell: _is_whole(cell) and int(cell) > 0, "a whole number above 0")
_CALLS: tuple[_Check, ...] = (_ID, _ID, (_is_whole, "a whole number"), _CLOCK, _CLOCK)
FEED_FILES: dict[str, dict[str, _Check]] = {
    "stops.txt": {"stop_id": _ID},
    "trips.txt": {"trip_id": _ID, "service_id": _ID, "route_id": _ID},
    "stop_times.txt": dict(zip(_CALL_COLUMNS, _CALLS, strict=True)),
    "calendar.txt": {"service_id": _ID, "start_date": _DAY, "end_date": _DAY, **dict.fromkeys(_DAYS, _FLAG)},
    "calendar_dates.txt": {
        "service_id": _ID,
        "date": _DAY,
        "exception_type": (lambda cell: cell in ("1", "2"), "1 or 2"),
    },
    "shapes.txt": {},  # only drawn: wrong points are left out
    "frequencies.txt": dict(zip(_RUN_COLUMNS, (_ID, _CLOCK_GIVEN, _CLOCK_GIVEN, _POSITIVE), strict=True)),
}
_REQUIRED = ("stops.txt", "trips.txt", "stop_times.txt")
_OPTIONAL_COLUMNS: dict[str, dict[str, _Check]] = {
    "stops.txt": {
        "stop_lat": _LAT,
        "stop_lon": _LON,
        "location_type": (lambda cell: cell in ("", "0", "1", "2", "3", "4"), "0 to 4"),
    }
}


def feed_contents(path: Path) -> dict[str, bytes]:
    too_large = f"the files of the feed have more than {MAX_FEED_BYTES // 2**20} MB in total"
    too_large_error = InputError(str(path), [Problem(too_large, remedy="Cut out the part of the feed that you need.")])
    contents: dict[str, bytes] = {}
    try:
        with contextlib.ExitStack() as stack:
            sources: dict[str, Callable[[], IO[bytes]]]
            if path.is_dir():
                sources = {name: partial(FileIO, path / name) for name in FEED_FILES if (path / name).is_file()}
            else:
                archive = stack.enter_context(zipfile.ZipFile(path))
                members = _members(path, archive)
                if sum(member.file_size for member in members.values()) > MAX_FEED_BYTES:
                    raise too_large_error
                sources = {name: partial(archive.open, member) for name, member in members.items()}
            left = MAX_FEED_BYTES  # do not trust the sizes that a zip file states
            for name, opened in sources.items():
                with opened() as stream:
                    contents[name] = stream.read(left + 1)
                left -= len(contents[name])
                if left < 0:
                    raise too_large_error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error, lzma.LZMAError) as error:
        what = f"not a readable zip file ({type(error).__name__})"
        remedy = "Give a GTFS feed (a folder or a zip), or the folder of a city, which has stops.csv."
        if path.suffix.lower() == ".csv":
            what, remedy = "a city is a folder with stops.csv, or a GTFS feed", f"Give the folder: {path.parent}."
        raise InputError(str(path), [Problem(what, remedy=remedy)]) from None
    except FileNotFoundError:
        remedy = "Check the path. Give the folder of a city, or a GTFS feed (a folder or a zip)."
        raise InputError(str(path), [Problem("does not exist", remedy=remedy)]) from None
    except OSError as error:
        what = f"the feed cannot be read ({error.strerror or type(error).__name__})"
        raise InputError(str(path), [Problem(what, remedy="Check its name and permissions.")]) from None
    if missing := [name for name in _REQUIRED if name not in contents]:
        what = f"a feed needs {', '.join(_REQUIRED)}, but {', '.join(missing)} {_do(len(missing), 'is', 'are')} missing"
        remedy = "Give a GTFS feed (a folder or a zip), or the folder of a city, which has stops.csv."
        raise InputError(str(path), [Problem(what, remedy=remedy)])
    return {name: contents[name] for name in FEED_FILES if name in contents}


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the files of a feed in a zip file, also if they are all in one of its folders."""
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = Path(member.filename).name
        if member.is_dir() or name not in FEED_FILES or member.filename.startswith("__MACOSX"):
            continue
        if name in members:
            what = f"the zip file has more than one {name}"
            raise InputError(str(path), [Problem(what, remedy="Unpack it and give the folder of one feed.")])
        members[name] = member
    return members


class _Feed(NamedTuple):
    path: Path
    files: Mapping[str, Mapping[str, list[str]]]

    @classmethod
    def read(cls, path: Path) -> _Feed:
        """Read a feed; refuse files that are not UTF-8 or not CSV, lack a column or have wrong cells, by line."""
        files = {}
        for name, content in feed_contents(path).items():
            required, source = FEED_FILES[name], f"{path}: {name}"

            def check(header: list[str], required: Mapping[str, _Check] = required) -> str:
                right = set(required) <= set(header) and len(set(header)) == len(header)
                return "" if right else f"the header must have each of {', '.join(required)} once."

            table = read_columns(source, checked_utf8(source, content, "Save it as UTF-8."), check)
            problems: list[tuple[int, str]] = []
            for column, (is_right, what) in (required | _OPTIONAL_COLUMNS.get(name, {})).items():
                if column in table.columns:
                    wrong = np.flatnonzero(~table.numbers(column, is_right).astype(bool))
                    lines = table.lines(wrong) if len(wrong) else []
                    problems += [(line, f"{column} must be {what}.") for line in lines]
            refuse_lines(source, sorted(problems, key=lambda problem: problem[0]))
            files[name] = {
                column: [cell.strip() for cell in cells.to_pylist()] for column, cells in table.columns.items()
            }
        return cls(path, files)

    def texts(self, file: str, column: str) -> list[str]:
        """Return a column: all blank if the file does not have it, empty without the file."""
        columns = self.files.get(f"{file}.txt", {})
        return columns.get(column) or [""] * len(next(iter(columns.values()), ()))

    def refused(self, file: str, what: str, remedy: str) -> InputError:
        return InputError(f"{self.path}: {file}.txt", [Problem(what, remedy=remedy)])

    def services(self, day: datetime.date) -> set[str]:
        """Return the services that run on a day: those of its weekday, with the exceptions for the date."""
        today, weekday = f"{day:%Y%m%d}", _DAYS[day.weekday()]
        calendar = (self.texts("calendar", name) for name in ("service_id", "start_date", "end_date", weekday))
        running = {
            service
            for service, start, end, runs in zip(*calendar, strict=True)
            if start <= today <= end and runs == "1"
        }
        dates = (self.texts("calendar_dates", name) for name in ("service_id", "date", "exception_type"))
        changed = {(service, kind) for service, date, kind in zip(*dates, strict=True) if date == today}
        added = {service for service, kind in changed if kind == "1"}
        return (running | added) - {service for service, kind in changed if kind == "2"}


def _named(names: Sequence[str]) -> str:
    text = ", ".join(repr(name) for name in names[:_MAX_NAMED])
    return f"{text} and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else text


def _do(num: int, one: str, many: str) -> str:
    return one if num == 1 else many


def _require_places(feed: _Feed, nowhere: Sequence[str]) -> None:
    if nowhere:
        have = _do(len(nowhere), "has", "have")
        what = f"stops with trips need stop_lat and stop_lon, and {_named(nowhere)} {have} none"
        raise feed.refused("stops", what, "Fill them in.")


@dataclass(frozen=True, kw_only=True)
class FeedSetting:
    date: datetime.date | None = None  # The service day to use; by default the busiest
    zones: int | str = ZONES  # Number of zones with about equally many stops; or `"zone_id"`: those of the feed
    hubs: int | Sequence[str] = HUBS  # Number of hubs to choose, or their stop ids
    max_headway_seconds: int = MAX_HEADWAY_SECONDS  # Less frequent buses are left out

    def __post_init__(self) -> None:
        if self.zones != "zone_id" and not (isinstance(self.zones, int) and self.zones >= 1):
            raise ParameterError(f'zones must be 1 or more, or "zone_id" for those of the feed. Got {self.zones!r}.')
        if isinstance(self.hubs, str) or (self.hubs if isinstance(self.hubs, int) else len(self.hubs)) < 1:
            raise ParameterError(f"hubs must be a number of 1 or more, or a list of stop ids. Got {self.hubs!r}.")
        if not 1 <= self.max_headway_seconds <= MAX_SECONDS:
            raise ParameterError(f"max_headway_seconds must be 1 to {MAX_SECONDS}. Got {self.max_headway_seconds}.")


def load_city(
    path: str | PathLike[str],
    *,
    date: str | datetime.date | None = None,
    zones: int | str | None = None,
    hubs: int | Sequence[str] | None = None,
    max_headway_seconds: int | None = None,
) -> City:
    """Read a city from its own folder or from a GTFS feed (folder or zip).

    Parameters
    ----------
    path
        Folder with ``stops.csv``; or a folder or zip file with ``stops.txt``, ``trips.txt`` and ``stop_times.txt``.
    date, zones, hubs, max_headway_seconds
        For a feed, as in ``FeedSetting``; a date may be text such as ``"2026-11-16"``.

    Raises
    ------
    InputError
        With the problems of a file.
    ParameterError
        If an argument does not fit.
    Refusal
        If the feed does not make a city: no service on the date, or too many stops.
    """
    place = Path(path)
    day = None if date is None else read_date(date)
    options: dict[str, Any] = {"zones": zones, "hubs": hubs, "max_headway_seconds": max_headway_seconds, "date": day}
    given = {name: value for name, value in options.items() if value is not None}
    if (place / "stops.csv").is_file():
        if given:
            raise ParameterError(f"{', '.join(given)} is for GTFS feeds, but {place} is a city. Change its files.")
        return City.read_folder(place)
    return feed_city(place, FeedSetting(**given))


def read_date(date: str | datetime.date) -> datetime.date:
    day = date_of(date) if isinstance(date, str) else date
    if day is None:
        raise ParameterError(f"a date must be written like 2026-11-16. Got {date!r}.")
    return day


def generate_feed_city(
    path: str | PathLike[str], out: str | PathLike[str], setting: FeedSetting | None = None, *, force: bool = False
) -> City:
    check_new_folder(out, marker="stops.csv", force=force)
    return _write_city(feed_city(path, setting), out, force=force)


def generate_own_city(
    stops: str | PathLike[str], out: str | PathLike[str], zones: int | None = None, *, force: bool = False
) -> City:
    """Complete one's own stops (a file, or the folder of a city): zones unless they have some, travel times, modes."""
    check_new_folder(out, marker="stops.csv", force=force)
    city = City.read_folder(stops) if Path(stops).is_dir() else City.read(stops)
    if zones is not None or city.zones is None:
        city = city.with_zones(zones or min(ZONES, len(city.stops)))
    return _write_city(replace(city, mode_names=(), modes=None), out, force=force)


def _write_city(city: City, out: str | PathLike[str], *, force: bool) -> City:
    city = city.with_times()
    routes = find_routes(city)
    city = city.with_modes(routes.mode_names, routes.mode)
    city.write(out, force=force)
    return city


def feed_city(path: str | PathLike[str], setting: FeedSetting | None = None) -> City:
    """Make a city from a GTFS feed; its ``assumed`` says by which rules."""
    setting = setting or FeedSetting()
    feed = _Feed.read(Path(path))
    day = _service_day(feed, setting.date)
    stops = _read_stops(feed)
    timetable = _read_timetable(feed, stops, day)
    kept = np.array(sorted(timetable.served), dtype=np.int64)
    if not len(kept):
        raise Refusal(f"{path}: no trip stops anywhere, so there is no city. Get the complete feed.")
    if len(kept) > MAX_STOPS_WITH_PAIRS:
        raise Refusal(
            f"{path}: a city for fleets can have at most {MAX_STOPS_WITH_PAIRS} stops. Got {len(kept)}. "
            "Cut out the part of the feed that you need."
        )
    unplaced = np.isnan(stops.lat[kept] + stops.lon[kept])
    _require_places(feed, [stops.ids[place] for place in kept[unplaced].tolist()])
    ids = tuple(stops.ids[place] for place in kept.tolist())
    said = [f"The buses are those of {day:%A}, {day}." if day else "The feed has no calendar, so all its trips count."]
    if num := stops.num_rolled:
        count = _do(num, "counts as its station", "count as their stations")
        said.append(f"{several(num, 'platform')} {count}.")
    if unserved := len(set(stops.place_of.values())) - len(kept):
        are = _do(unserved, "is", "are")
        said.append(f"{several(unserved, 'stop')} without any trip {are} left out.")
    said += timetable.notes
    names = tuple(stops.names[place] for place in kept.tolist())
    # The ways of the buses for a map, thinned out; a way that others already show is left out.
    columns = ("shape_id", "shape_pt_sequence", "shape_pt_lat", "shape_pt_lon")
    shapes: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for shape, *cells in zip(*(feed.texts("shapes", name) for name in columns), strict=True):
        with contextlib.suppress(ValueError):
            place, lat, lon = map(float, cells)
            if abs(lat) <= 90 and abs(lon) <= 180:
                shapes[shape].append((place, lat, lon))
    lines: list[tuple[tuple[float, float], ...]] = []
    shown: set[tuple[int, int]] = set()
    num_points = 0
    for points in sorted(shapes.values(), key=len, reverse=True):
        line: list[tuple[float, float]] = []
        for _, lat, lon in sorted(points):
            if not line or abs(lat - line[-1][0]) + abs(lon - line[-1][1]) >= _LINE_STEP:
                line.append((round(lat, 5), round(lon, 5)))
        places = {(round(lat / _LINE_STEP), round(lon / _LINE_STEP)) for lat, lon in line}
        is_new = len(places - shown) >= _NEW_SHARE * len(places)
        if len(line) > 1 and is_new and num_points + len(line) <= _MAX_LINE_POINTS:
            lines.append(tuple(line))
            shown |= places
            num_points += len(line)
    city = City(
        stops=ids, lat=stops.lat[kept], lon=stops.lon[kept], names=names if any(names) else (), lines=tuple(lines)
    )
    hubs, chosen = _hubs(feed, city, timetable, kept, setting)
    near_hubs = {}  # the hub of each stop near one
    if hubs.any():
        far = haversine(stops.lat[kept], stops.lon[kept], np.flatnonzero(hubs)).T
        nearest, near = np.flatnonzero(hubs)[far.argmin(axis=1)], np.flatnonzero(far.min(axis=1) <= _HUB_REACH_KM)
        near_hubs = dict(zip(kept[near].tolist(), nearest[near].tolist(), strict=True))
    buses, more = _buses(timetable, near_hubs, setting)
    city = replace(city, hubs=hubs, buses=buses)
    if setting.zones == "zone_id":
        zone_ids = [stops.zone_ids[place] for place in kept.tolist()]
        if blank := zone_ids.count(""):
            raise Refusal(
                f"{path}: zone_id is blank for {blank} of {several(len(ids), 'stop')} with trips. "
                "Fill it in in stops.txt, or request a number of zones."
            )
        names, zones = numbered(zone_ids)
        city = replace(city, zone_names=names, zones=zones, assumed=("Zones are those of zone_id in the feed.",))
    else:
        city = city.with_zones(int(setting.zones))
    return replace(city, assumed=(*said, chosen, more, *city.assumed))


def _service_day(feed: _Feed, wanted: datetime.date | None) -> datetime.date | None:
    """Return the service day: the wanted one if the feed covers it, or the busiest; None without a calendar."""
    calendars = (("calendar", "start_date"), ("calendar", "end_date"), ("calendar_dates", "date"))
    named = {text for file, column in calendars for text in feed.texts(file, column)}
    days = [day for text in named if (day := date_of(text)) is not None]
    if not days:
        if wanted is None:
            return None
        what = f"the feed has neither calendar.txt nor calendar_dates.txt, so it is unknown what runs on {wanted}"
        raise InputError(str(feed.path), [Problem(what, remedy="Leave the date out to use all trips.")])
    first, last = min(days), max(days)
    busy = Counter(feed.texts("trips", "service_id"))

    def num_trips(start: int, num: int) -> dict[datetime.date, int]:
        # As far as the feed covers them; callers count few days, because a feed may claim to be valid for ages.
        span = range(max(start, first.toordinal()), min(start + num - 1, last.toordinal()) + 1)
        return {
            day: sum(busy[service] for service in feed.services(day)) for day in map(datetime.date.fromordinal, span)
        }

    if wanted is None:
        num = num_trips(first.toordinal(), MAX_DAYS_COMPARED)
        best = max(num, key=lambda day: num[day])  # at a tie the earliest
        if not num[best]:
            raise Refusal(f"{feed.path}: no trip runs from {min(num)} to {max(num)}. Give a date, or get a full feed.")
        return best
    if not first <= wanted <= last:
        raise Refusal(
            f"{feed.path}: the feed is valid from {first} to {last}, which does not include {wanted}. "
            "Choose another date, or get the feed of that time."
        )
    if not num_trips(wanted.toordinal(), 1)[wanted]:
        near = [str(day) for day, trips in num_trips(wanted.toordinal() - 7, 15).items() if trips]
        raise Refusal(
            f"{feed.path}: no trip runs on {wanted} ({wanted:%A}). "
            f"Choose another date{f', such as {near[-1]}' if near else f' from {first} to {last}'}."
        )
    return wanted


class _Stops(NamedTuple):
    ids: list[str]  # of stops and stations
    lat: FloatArray
    lon: FloatArray
    zone_ids: list[str]
    names: list[str]
    place_of: dict[str, int]  # the stop or station of each stop id
    num_rolled: int  # platforms that count as their station


def _read_stops(feed: _Feed) -> _Stops:
    names = ("stop_id", "location_type", "parent_station", "zone_id", "stop_lat", "stop_lon")
    ids, kinds, parents, zone_ids, *places = (feed.texts("stops", name) for name in names)
    problems = []
    if again := [stop for stop, num in Counter(ids).items() if num > 1]:
        what = f"stop ids must be different, but {_named(again)} appears more than once"
        problems.append(Problem(what, remedy="Remove all but one of each."))
    parent_of = dict(zip(ids, parents, strict=True))
    if lost := sorted({parent for parent in parents if parent and parent not in parent_of}):
        what = f"parent_station names {_named(lost)}, which the file does not have"
        problems.append(Problem(what, remedy="Add the station, or leave parent_station blank."))
    if problems:
        raise InputError(f"{feed.path}: stops.txt", problems)
    tops = {}
    for start in ids:  # up from boarding area to platform to station
        stop, seen = start, {start}
        while parent := parent_of[stop]:
            if parent in seen:
                raise feed.refused("stops", f"{start!r} is its own parent station", "Fix parent_station.")
            seen.add(parent)
            stop = parent
        tops[start] = stop
    zones_of: dict[str, Counter[str]] = defaultdict(Counter)
    for stop, zone in zip(ids, zone_ids, strict=True):
        if zone:
            zones_of[tops[stop]][zone] += 1
    degrees = []
    for cells in places:
        values = np.array([decimal(cell) for cell in cells])
        parts: dict[str, list[float]] = defaultdict(list)
        for stop, value in zip(ids, values.tolist(), strict=True):
            if not np.isnan(value):
                parts[tops[stop]].append(value)
        for place in np.flatnonzero(np.isnan(values)).tolist():
            if parts.get(ids[place]):  # a station without coordinates is in the middle of its platforms
                values[place] = float(np.mean(parts[ids[place]]))
        degrees.append(values)
    number = {stop: place for place, stop in enumerate(ids)}
    called = [stop for stop, kind in zip(ids, kinds, strict=True) if kind not in (_ENTRANCE, _NODE)]
    platforms = [stop for stop, kind in zip(ids, kinds, strict=True) if kind not in (_STATION, _ENTRANCE, _NODE)]
    return _Stops(
        ids=ids,
        lat=degrees[0],
        lon=degrees[1],
        # A station without a zone gets that of most of its platforms.
        zone_ids=[
            zone or (zones_of[stop].most_common(1)[0][0] if stop in zones_of else "")
            for stop, zone in zip(ids, zone_ids, strict=True)
        ],
        names=feed.texts("stops", "stop_name"),
        place_of={stop: number[tops[stop]] for stop in called},
        num_rolled=sum(tops[stop] != stop for stop in platforms),
    )


class _Visits(NamedTuple):
    stops: list[int]  # of one trip, in order
    arrivals: list[float]  # in seconds
    departures: list[float]


class _Timetable(NamedTuple):
    trips: dict[str, _Visits]  # of a day
    starts: dict[str, list[float]]  # Delay of each run of a trip after its timetable, in seconds
    routes: dict[str, str]
    served: set[int]
    notes: list[str]  # what was left out


def _read_timetable(feed: _Feed, stops: _Stops, day: datetime.date | None) -> _Timetable:
    """Read the trips that run on a day, or all trips without one."""
    all_trips, routes = feed.texts("trips", "trip_id"), feed.texts("trips", "route_id")
    if again := [trip for trip, num in Counter(all_trips).items() if num > 1]:
        what = f"trip ids must be different, but {_named(again)} appears more than once"
        raise feed.refused("trips", what, "Remove all but one of each.")
    calls = _read_calls(feed, stops, set(all_trips))
    running = feed.services(day) if day is not None else None
    services = zip(all_trips, feed.texts("trips", "service_id"), strict=True)
    today = [trip for trip, service in services if running is None or service in running]
    visits, notes = _timed({trip: calls[trip] for trip in today if trip in calls})
    if short := sum(1 for trip in today if len(calls.get(trip, ())) < 2):
        notes.append(f"{several(short, 'trip')} with fewer than two stops {_do(short, 'is', 'are')} left out.")
    if not visits:
        when = "of the feed" if day is None else f"of {day:%A}, {day}"
        what = f"no trip {when} is usable: times are blank or run backwards, or there is only one stop"
        raise feed.refused("stop_times", what, "Fix the times, or give another date.")
    starts: dict[str, list[float]] = {}
    runs = (feed.texts("frequencies", name) for name in _RUN_COLUMNS)
    for trip, start, end, headway in zip(*runs, strict=True):
        first, last = seconds_of(start), seconds_of(end)
        if trip in visits and first is not None and last is not None:
            after = np.arange(first, last, int(headway)) - visits[trip].departures[0]
            starts.setdefault(trip, []).extend(after.tolist())
    if num := len(starts):
        notes.append(f"{several(num, 'trip')} {_do(num, 'runs', 'run')} repeatedly, by frequencies.txt.")
    return _Timetable(
        trips=visits,
        starts={trip: starts.get(trip, [0.0]) for trip in visits},
        routes=dict(zip(all_trips, routes, strict=True)),
        served={stop for of_trip in calls.values() for _, stop, _, _ in of_trip},
        notes=notes,
    )


_Call = tuple[int, int, int | None, int | None]  # sequence, stop, arrival, departure


def _read_calls(feed: _Feed, stops: _Stops, trips: set[str]) -> dict[str, list[_Call]]:
    columns = [feed.texts("stop_times", name) for name in _CALL_COLUMNS]
    if not columns[0]:
        raise feed.refused("stop_times", "no trip has a stop", "Get the complete feed.")
    problems = []
    if lost := sorted(set(columns[0]) - trips):
        what = f"trip_id names {_named(lost)}, which trips.txt does not have"
        problems.append(Problem(what, remedy="Add the trip there, or remove the lines."))
    if lost := sorted(set(columns[1]) - stops.place_of.keys()):
        what = f"stop_id names {_named(lost)}, which stops.txt does not have as a stop"
        problems.append(Problem(what, remedy="Fix stops.txt, or remove the lines."))
    calls: dict[str, list[_Call]] = defaultdict(list)
    clock = {cell: seconds_of(cell) for cell in {*columns[3], *columns[4]}}
    if not problems:
        for trip, stop, order, arrival, departure in zip(*columns, strict=True):
            calls[trip].append((int(order), stops.place_of[stop], clock[arrival], clock[departure]))
        if twice := [trip for trip, own in calls.items() if len({call[0] for call in own}) < len(own)]:
            what = f"stop_sequence must differ within a trip, but {_named(twice)} has a number twice"
            problems.append(Problem(what, remedy="Number the stops of a trip in their order."))
    if problems:
        raise InputError(f"{feed.path}: stop_times.txt", problems)
    for own in calls.values():
        own.sort(key=lambda call: call[0])
    return calls


def _timed(rows: Mapping[str, Sequence[_Call]]) -> tuple[dict[str, _Visits], list[str]]:
    """Fill in blank times between others; leave out trips with impossible times."""
    visits: dict[str, _Visits] = {}
    wrong, filled = [], 0
    for trip, calls in rows.items():
        if len(calls) < 2:
            continue
        arrivals = [call[3] if call[2] is None else call[2] for call in calls]
        departures = [call[2] if call[3] is None else call[3] for call in calls]
        timed = [place for place, second in enumerate(arrivals) if second is not None]
        if not timed or timed[0] > 0 or timed[-1] < len(calls) - 1:
            wrong.append(trip)
            continue
        filled += len(calls) - len(timed)
        places = np.arange(len(calls))
        come, go = (
            np.interp(places, timed, [float(times[place] or 0) for place in timed]) for times in (arrivals, departures)
        )
        # Between two calls with times both lines run from the departure at the first to the arrival at the second.
        blank = np.setdiff1d(places, timed)
        if len(blank):
            after = np.searchsorted(timed, blank)
            start, end = np.array(timed)[after - 1], np.array(timed)[after]
            come[blank] = go[blank] = go[start] + (come[end] - go[start]) * (blank - start) / (end - start)
        if (go < come).any() or (come[1:] < go[:-1]).any():
            wrong.append(trip)
            continue
        visits[trip] = _Visits([call[1] for call in calls], come.tolist(), go.tolist())
    notes = []
    if filled:
        blanks, are = several(filled, "time"), _do(filled, "is", "are")
        notes.append(f"{blanks} that the feed leaves blank {are} filled in evenly from stop to stop.")
    if wrong:
        trips, are = several(len(wrong), "trip"), _do(len(wrong), "is", "are")
        notes.append(f"{trips} with times that run backwards or lack a start or end {are} left out.")
    return visits, notes


def _hubs(
    feed: _Feed, city: City, timetable: _Timetable, kept: IntArray, setting: FeedSetting
) -> tuple[BoolArray, str]:
    hubs = np.zeros(len(city.stops), dtype=bool)
    if not isinstance(setting.hubs, int):
        if lost := [name for name in setting.hubs if name not in city.stops]:
            raise ParameterError(f"{feed.path}: hubs must be stops with trips, and {_named(lost)} is not. Name others.")
        hubs[[city.stops.index(name) for name in setting.hubs]] = True
        return hubs, f"Hubs are the {several(int(hubs.sum()), 'stop')} that you named."
    # The number of departures from each stop on the day, and its routes.
    num: Counter[int] = Counter()
    routes: dict[int, set[str]] = defaultdict(set)
    for trip, visits in timetable.trips.items():
        for stop in visits.stops[:-1]:
            num[stop] += len(timetable.starts[trip])
        for stop in visits.stops:
            routes[stop].add(timetable.routes[trip])
    order = sorted(num, key=lambda place: (-num[place], -len(routes[place]), place))
    assert city.lat is not None
    assert city.lon is not None
    chosen: list[int] = []
    near = np.zeros(len(city.stops), dtype=bool)
    for stop in np.searchsorted(kept, order).tolist():
        if len(chosen) < setting.hubs and not near[stop]:
            chosen.append(stop)
            near |= haversine(city.lat, city.lon, np.array([stop]))[0] < _HUBS_APART_KM
    hubs[chosen] = True
    said = (
        f"Hubs are the {several(len(chosen), 'stop')} with most departures that are at least "
        f"{1000 * _HUBS_APART_KM:.0f} m apart."
    )
    return hubs, said


def _buses(timetable: _Timetable, hubs: Mapping[int, int], setting: FeedSetting) -> tuple[Buses, str]:
    rides: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for trip, visits in timetable.trips.items():
        times = zip(visits.stops, visits.arrivals, visits.departures, strict=True)
        calls = [(hubs[stop], come, go) for stop, come, go in times if stop in hubs]
        # Between hubs: from the last departure at the first hub to the arrival at the other.
        for place, (start, _, go) in enumerate(calls):
            seen = {start}
            for end, come, _ in calls[place + 1 :]:
                if end == start:  # it stops here again: the later departure arrives as soon
                    break
                if end not in seen:
                    rides[start, end] += [(go + run, come - go) for run in timetable.starts[trip]]
                seen.add(end)
    frequent = []
    for pair, runs in sorted(rides.items()):
        departures = sorted(departure for departure, _ in runs)
        if departures[-1] == departures[0]:
            continue
        headway = round((departures[-1] - departures[0]) / (len(departures) - 1))
        if 1 <= headway <= setting.max_headway_seconds:
            frequent.append((*pair, round(float(np.median([seconds for _, seconds in runs]))), headway))
    columns = np.array(frequent, dtype=np.int32).reshape(-1, 4).T
    names = ("origins", "destinations", "seconds", "headway_seconds")
    said = (
        f"Buses are the {several(len(frequent), 'ride')} between hubs (or stops within {1000 * _HUB_REACH_KM:.0f} m of "
        f"them) without a change, of {len(rides):,}, that run at least every "
        f"{setting.max_headway_seconds / 60:g} minutes on average, from the first of the day to the last."
    )
    return Buses(**dict(zip(names, columns, strict=True))), said


# --- The network of the stops of a feed, for the domain of an attribute

_WALK_KMH, _MIN_MINUTES = 4.5, 0.1


class FeedNetwork(NamedTuple):
    edges: tuple[tuple[str, str, float], ...]  # between stops, with minutes
    stops: tuple[str, ...]
    assumed: tuple[str, ...]


def feed_network(path: str | PathLike[str], *, names: bool = False) -> FeedNetwork:
    """Make a network of stops (or their names) in which each reaches every other; its ``assumed`` says how."""
    feed = _Feed.read(Path(path))
    stops = _read_stops(feed)
    visits, notes = _timed(_read_calls(feed, stops, set(feed.texts("trips", "trip_id"))))
    labels = feed.texts("stops", "stop_name") if names else stops.ids
    minutes: dict[tuple[str, str], list[float]] = defaultdict(list)
    served: set[int] = set()
    for own in visits.values():
        served.update(own.stops)
        for place, (start, end) in enumerate(pairwise(own.stops)):
            if labels[start] != labels[end]:
                ends = min(labels[start], labels[end]), max(labels[start], labels[end])
                minutes[ends].append((own.arrivals[place + 1] - own.departures[place]) / 60)
    places: dict[str, list[int]] = defaultdict(list)  # the stops behind each label
    for stop in sorted(served):
        places[labels[stop]].append(stop)
    if "" in places:
        what = "stop_name is blank for a stop with trips"
        raise feed.refused("stops", what, "Fill it in, or use stop ids: leave --names out.")
    if len(places) < 2:
        raise Refusal(f"{path}: a network needs two stops with trips. Get the complete feed.")
    known = tuple(sorted(places))
    edges = {ends: max(_MIN_MINUTES, round(float(np.median(runs)), 1)) for ends, runs in minutes.items()}
    walks, joins = _walks(feed, stops, known, places, edges)
    said = [f"Lengths are minutes: the median ride between {several(len(edges), 'pair')} of neighbours, on all days."]
    if walks:
        near = f"{several(len(walks), 'pair')} of stops within {1000 * _HUB_REACH_KM:.0f} m"
        said.append(f"{near} {_do(len(walks), 'is', 'are')} connected on foot, at {_WALK_KMH:g} km/h.")
    if joins:
        said.append(
            f"No trip connects {several(len(joins) + 1, 'part')} of the network: each is joined to another at its "
            f"nearest stops, by a walk of up to {max(joins.values()):,.0f} minutes."
        )
    listed = tuple((start, end, length) for (start, end), length in sorted({**joins, **walks, **edges}.items()))
    return FeedNetwork(listed, known, (*said, *notes))


_Edges = dict[tuple[str, str], float]


def _walks(
    feed: _Feed, stops: _Stops, labels: Sequence[str], places: Mapping[str, list[int]], edges: Mapping[Any, float]
) -> tuple[_Edges, _Edges]:
    """Return the walks between near stops, and those that connect parts of the network; in minutes."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import cKDTree

    number = {label: place for place, label in enumerate(labels)}
    where = np.radians([[float(np.mean(side[places[label]])) for side in (stops.lat, stops.lon)] for label in labels])
    _require_places(feed, [labels[place] for place in np.flatnonzero(np.isnan(where).any(axis=1)).tolist()])
    north, east = where.T
    # Points on a sphere of km: chords are as long as the way for neighbours, and order all pairs as distances do.
    points = EARTH_KM * np.column_stack((np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)))

    def walk(first: int, second: int) -> tuple[tuple[str, str], float]:
        ends = min(labels[first], labels[second]), max(labels[first], labels[second])
        hours = float(np.linalg.norm(points[first] - points[second])) / _WALK_KMH
        return ends, max(_MIN_MINUTES, round(60 * hours, 1))

    near = (walk(first, second) for first, second in cKDTree(points).query_pairs(_HUB_REACH_KM))
    walks = {ends: length for ends, length in near if ends not in edges}
    pairs = np.array([[number[end] for end in ends] for ends in (*edges, *walks)], dtype=np.int64).reshape(-1, 2)
    links = coo_matrix((np.ones(len(pairs)), pairs.T), shape=(len(labels), len(labels)))
    num, part = connected_components(links, directed=False)
    joins: _Edges = {}
    whole = part == np.bincount(part).argmax()
    for _ in range(num - 1):  # the nearest stop of another part, and its whole part with it
        others = np.flatnonzero(~whole)
        far, nearest = cKDTree(points[whole]).query(points[others])
        best = int(np.argmin(far))
        ends, length = walk(int(others[best]), int(np.flatnonzero(whole)[nearest[best]]))
        joins[ends] = length
        whole |= part == part[others[best]]
    return walks, joins


def generate_network(
    path: str | PathLike[str], out: str | PathLike[str], *, names: bool = False, force: bool = False
) -> FeedNetwork:
    target = Path(out)
    if os.path.lexists(target) and not force:
        raise OutputError.taken(target)
    network = feed_network(path, names=names)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("from", "to", "length"))
    writer.writerows((start, end, f"{length:g}") for start, end, length in network.edges)
    with new_file(target) as stream:
        stream.write(text.getvalue().encode())
    return network


# --- Where a passenger can get off


class FeedRides(NamedTuple):
    """What one ride on one vehicle can reach, over the whole feed."""

    ids: list[str]  # of stops; platforms count as their station
    lat: FloatArray
    lon: FloatArray
    place_of: dict[str, int]  # the stop or station of each stop id
    after: dict[tuple[int, str], dict[int, float]]  # stop and route -> later stop -> shortest ride in seconds


def feed_rides(path: str | PathLike[str]) -> FeedRides:
    """Read from which stop one can ride to which, on which route; ``""`` stands for any route."""
    feed = _Feed.read(Path(path))
    stops = _read_stops(feed)
    timetable = _read_timetable(feed, stops, None)
    _require_places(feed, [stops.ids[place] for place in sorted(timetable.served) if np.isnan(stops.lat[place])])
    after: dict[tuple[int, str], dict[int, float]] = defaultdict(dict)
    for trip, visits in timetable.trips.items():
        route = timetable.routes[trip]
        for start, stop in enumerate(visits.stops):
            ways = after[stop, route], after[stop, ""]
            for end in range(start + 1, len(visits.stops)):
                later, ride = visits.stops[end], visits.arrivals[end] - visits.departures[start]
                for way in ways:
                    way[later] = min(ride, way.get(later, ride))
    return FeedRides(stops.ids, stops.lat, stops.lon, stops.place_of, dict(after))
