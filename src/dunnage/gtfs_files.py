# SPDX-License-Identifier: Apache-2.0
"""The files of a GTFS feed, unpacked with limits and checked line by line before anything else reads them."""

from __future__ import annotations

import contextlib
import csv
import datetime
import lzma
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from dunnage.domains.files import refuse_lines
from dunnage.errors import InputError, Problem

MOST_FEED_BYTES = 1 << 29
"""Most bytes of a feed's files that are read, unpacked."""

_MOST_HOURS = 72
_CHUNK = 1 << 20
_DATE = re.compile("[0-9]{8}")
_TIME = re.compile("([0-9]{1,2}):([0-5][0-9]):([0-5][0-9])")


def _is_date(cell: str) -> bool:
    return bool(_DATE.fullmatch(cell)) and date_of(cell) is not None


def date_of(text: str) -> datetime.date | None:
    """Read a date; None if it is none."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def _is_whole(cell: str) -> bool:
    return cell.isascii() and cell.isdigit() and len(cell) <= 9


def _is_degrees(most: float) -> Callable[[str], bool]:
    def within(cell: str) -> bool:
        try:
            return not cell or abs(float(cell)) <= most
        except ValueError:
            return False

    return within


def _is_time(cell: str) -> bool:
    return not cell or (seconds_of(cell) is not None)


def seconds_of(cell: str) -> int | None:
    """Read a time of the service day, which may be past 24:00, as seconds; None if it is none."""
    found = _TIME.fullmatch(cell)
    if not found or int(found[1]) > _MOST_HOURS:
        return None
    return 3600 * int(found[1]) + 60 * int(found[2]) + int(found[3])


_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_Check = tuple[Callable[[str], bool], str]
_LAT: _Check = (_is_degrees(90.0), "a number of degrees from -90 to 90")
_LON: _Check = (_is_degrees(180.0), "a number of degrees from -180 to 180")
_CLOCK: _Check = (_is_time, "a time such as 07:30:00 or 25:10:00")
_CLOCK_GIVEN: _Check = (lambda cell: seconds_of(cell) is not None, _CLOCK[1])
_DAY: _Check = (_is_date, "a date such as 20261116")
_FLAG: _Check = (lambda cell: cell in ("0", "1"), "0 or 1")
_ID: _Check = (bool, "filled in")
_NUMBER: _Check = (_is_whole, "a whole number")
FEED_FILES: dict[str, dict[str, _Check]] = {
    "stops.txt": {"stop_id": _ID},
    "trips.txt": {"trip_id": _ID, "service_id": _ID, "route_id": _ID},
    "stop_times.txt": {
        "trip_id": _ID,
        "stop_id": _ID,
        "stop_sequence": _NUMBER,
        "arrival_time": _CLOCK,
        "departure_time": _CLOCK,
    },
    "calendar.txt": {"service_id": _ID, "start_date": _DAY, "end_date": _DAY, **dict.fromkeys(_DAYS, _FLAG)},
    "calendar_dates.txt": {
        "service_id": _ID,
        "date": _DAY,
        "exception_type": (lambda cell: cell in ("1", "2"), "1 or 2"),
    },
    "frequencies.txt": {
        "trip_id": _ID,
        "start_time": _CLOCK_GIVEN,
        "end_time": _CLOCK_GIVEN,
        "headway_secs": (lambda cell: _is_whole(cell) and int(cell) > 0, "a whole number above 0"),
    },
}
"""The files that are read, with the columns each must have and what their cells must be."""
_REQUIRED = ("stops.txt", "trips.txt", "stop_times.txt")
_OPTIONAL_COLUMNS: dict[str, dict[str, _Check]] = {
    "stops.txt": {
        "stop_lat": _LAT,
        "stop_lon": _LON,
        "location_type": (lambda cell: cell in ("", "0", "1", "2", "3", "4"), "0 to 4"),
    }
}


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Give a temporary folder with the files that are read, checked for their size."""
    with tempfile.TemporaryDirectory(prefix="dunnage-") as work:
        folder = Path(work)
        try:
            if path.is_dir():
                _copy_all(
                    {name: path / name for name in FEED_FILES if (path / name).is_file()}, folder, Path.open, path
                )
            else:
                with zipfile.ZipFile(path) as archive:
                    members = _members(path, archive)
                    _copy_all(members, folder, lambda member, _mode: archive.open(member), path)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error, lzma.LZMAError) as error:
            what = f"this is no readable zip file ({type(error).__name__})"
            remedy = "Name a GTFS feed, a folder or a zip; or the folder of a city, which has stops.csv."
            if path.suffix.lower() == ".csv":
                what, remedy = "a city is a folder with stops.csv, or a GTFS feed", f"Name the folder: {path.parent}."
            raise InputError(str(path), [Problem(what, remedy=remedy)]) from None
        except OSError as error:
            what = f"the feed cannot be read ({error.strerror or type(error).__name__})"
            raise InputError(str(path), [Problem(what, remedy="Check its name and permissions.")]) from None
        missing = [name for name in _REQUIRED if not (folder / name).exists()]
        if missing:
            are = "is" if len(missing) == 1 else "are"
            what = f"a feed has {', '.join(_REQUIRED)}. {', '.join(missing)} {are} not there"
            remedy = "Name a GTFS feed (a folder or a zip), or the folder of a city, which has stops.csv."
            raise InputError(str(path), [Problem(what, remedy=remedy)])
        yield folder


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Find the files of a feed in a zip file, also if all are in one folder of it."""
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = Path(member.filename).name
        if member.is_dir() or name not in FEED_FILES or member.filename.startswith("__MACOSX"):
            continue
        if name in found:
            what = f"there is more than one {name} in it"
            raise InputError(str(path), [Problem(what, remedy="Unpack it and name the folder of one feed.")])
        found[name] = member
    if sum(member.file_size for member in found.values()) > MOST_FEED_BYTES:
        raise _too_large(path)
    return found


def _copy_all(sources: Mapping[str, Any], folder: Path, opened: Callable[[Any, str], Any], path: Path) -> None:
    """Copy files, and stop when they get too large, whatever a zip file says about their size."""
    left = MOST_FEED_BYTES
    for name, source in sources.items():
        with opened(source, "rb") as stream, (folder / name).open("wb") as file:
            left -= _copy(stream, file, left)
        if left < 0:
            raise _too_large(path)


def _too_large(path: Path) -> InputError:
    what = f"its files are larger than {MOST_FEED_BYTES // 2**20} MB in all"
    return InputError(str(path), [Problem(what, remedy="Cut out the part of the feed that is needed.")])


def _copy(stream: BinaryIO, file: BinaryIO, most: int) -> int:
    copied = 0
    while copied <= most and (piece := stream.read(_CHUNK)):
        file.write(piece)
        copied += len(piece)
    return copied


def check_file(source: str, path: Path, name: str) -> None:
    """Refuse a file that is not UTF-8 or not CSV, lacks a column, or has wrong cells: every line that has."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            problems = _file_problems(source, csv.reader(file), name)
    except UnicodeDecodeError:
        raise InputError(source, [Problem("not UTF-8", _where_not_utf8(path), remedy="Save it as UTF-8.")]) from None
    refuse_lines(source, problems)


def _where_not_utf8(path: Path) -> str:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f"line {number}"
    return ""


def _file_problems(source: str, reader: Any, name: str) -> list[tuple[int, str]]:
    problems: list[tuple[int, str]] = []
    try:
        header = [cell.strip() for cell in next(reader, [])]
        if not set(FEED_FILES[name]) <= set(header) or len(set(header)) < len(header):
            what = f"there must be columns {', '.join(FEED_FILES[name])}, each column once. Mend the header."
            refuse_lines(source, [(1, what)])
        checks = [
            (header.index(column), column, *check)
            for column, check in (FEED_FILES[name] | _OPTIONAL_COLUMNS.get(name, {})).items()
            if column in header
        ]
        for cells in reader:
            if any(cells):
                problems += _line_problems(reader.line_num, cells, len(header), checks)
    except csv.Error as error:
        problems.append((reader.line_num, f"this is not CSV ({error}). Mend the line."))
    return problems


def _line_problems(
    line: int, cells: list[str], width: int, checks: Sequence[tuple[int, str, Callable[[str], bool], str]]
) -> list[tuple[int, str]]:
    if len(cells) != width:
        return [(line, f"there must be {width} cells as in the header. Got {len(cells)}. Mend the line.")]
    return [
        (line, f"{column} must be {what}. Mend it.")
        for place, column, is_right, what in checks
        if not is_right(cells[place].strip())
    ]
