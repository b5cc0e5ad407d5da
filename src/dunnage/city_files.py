# SPDX-License-Identifier: Apache-2.0
"""The files of a city: stops, modes, travel times and buses, with the line of everything that is wrong with them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import IntArray
from dunnage.domains.files import MOST_LINES, delimiter_of, line_problems, read_csv, read_text, refuse_lines
from dunnage.errors import InputError, Problem

STOP_COLUMNS = ("stop", "zone", "lat", "lon", "hub", "name")
"""A name is for people: it is read over."""
MODE_COLUMNS = ("origin", "destination", "mode")
TIME_COLUMNS = ("from", "to", "seconds")
BUS_COLUMNS = ("from", "to", "seconds", "headway_seconds")
MOST_STOPS = 100_000
MOST_MODES = 32_767
MOST_STOPS_WITH_PAIRS = 4_000
"""Most stops of a city that says something about each pair of them: its modes or its travel times."""
MOST_PAIRS_BYTES = 1 << 30
"""Largest file of modes or of travel times that is read."""
MOST_SECONDS = 86_400
"""Longest travel time, ride or headway: a day."""
MOST_ASSUMED = 100
"""Most sentences about what was assumed that are read."""

_HUB_WORDS = {"": False, "0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}
_RANGES = {"lat": 90.0, "lon": 180.0}


def read_stops(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a list of stops; returns what a city says about them."""
    (header_line, header), *lines = read_csv(path, None)
    names = [name.strip().lower() for name in header]
    _check_header(path, header_line, names)
    problems = [
        (line, f"there must be {len(names)} cells as in the header. Got {len(cells)}. Mend the line.")
        for line, cells in lines
        if len(cells) != len(names)
    ]
    refuse_lines(path, problems)
    if not lines or len(lines) > MOST_STOPS:
        what = f"a city has 1 to {MOST_STOPS} stops. Got {len(lines)}"
        raise InputError(str(path), [Problem(what, remedy="Check the file.")])
    at = [line for line, _ in lines]
    columns = {name: [cells[place].strip() for _, cells in lines] for place, name in enumerate(names)}
    problems += _stop_problems(columns["stop"], at)
    facts: dict[str, Any] = {"stops": tuple(columns["stop"])}
    if _given(columns, "zone", at, problems, "a zone"):
        facts["zone_names"], facts["zones"] = _numbered(columns["zone"])
    for name in ("lat", "lon"):
        if _given(columns, name, at, problems, f"a {name}"):
            facts[name] = _degrees(columns[name], name, at, problems)
    if "hub" in columns:
        facts["hubs"] = _flags(columns["hub"], at, problems)
    refuse_lines(path, sorted(problems))
    return facts


def _check_header(path: str | PathLike[str], line: int, names: Sequence[str]) -> None:
    problems = []
    unknown = [name for name in names if name not in STOP_COLUMNS]
    if unknown:
        known = ", ".join(STOP_COLUMNS)
        problems.append((line, f"the column {unknown[0]!r} is not one of {known}. Remove or rename it."))
    if names.count("stop") == 0:
        problems.append((line, "there must be a header with a column stop. Got none. Add it."))
    if ("lat" in names) != ("lon" in names):
        problems.append((line, "lat and lon go together. Got one of them. Add the other."))
    if len(set(names)) < len(names):
        problems.append((line, "columns must be all different. Got one twice. Remove it."))
    refuse_lines(path, problems)


def _stop_problems(stops: Sequence[str], at: Sequence[int]) -> list[tuple[int, str]]:
    first: dict[str, int] = {}
    problems = []
    for stop, line in zip(stops, at, strict=True):
        if not stop:
            problems.append((line, "the stop is blank. Name it."))
        elif first.setdefault(stop, line) != line:
            problems.append((line, f"the stop {stop!r} is in line {first[stop]} already. Remove one."))
    return problems


def _given(
    columns: dict[str, list[str]], name: str, at: Sequence[int], problems: list[tuple[int, str]], what: str
) -> bool:
    """Return whether a column is given; note the lines without a value if others have one."""
    cells = columns.get(name, [])
    if not any(cells):
        return False
    blank = [line for cell, line in zip(cells, at, strict=True) if not cell]
    problems += [(line, f"other stops have {what}, this one has none. Fill it in.") for line in blank]
    return not blank


def _numbered(names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Give names numbers as they first appear."""
    number: dict[str, int] = {}
    codes = [number.setdefault(name, len(number)) for name in names]
    return tuple(number), np.array(codes, dtype=np.int32)


def _degrees(
    cells: Sequence[str], name: str, at: Sequence[int], problems: list[tuple[int, str]]
) -> NDArray[np.float64]:
    values = np.array([_number(cell) for cell in cells])
    most = _RANGES[name]
    for place in np.flatnonzero(~(np.abs(values) <= most)).tolist():
        problems.append((at[place], f"{name} must be a number of degrees from -{most:g} to {most:g}. Mend it."))
    return values


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _flags(cells: Sequence[str], at: Sequence[int], problems: list[tuple[int, str]]) -> NDArray[np.bool_]:
    flags = np.zeros(len(cells), dtype=bool)
    for place, cell in enumerate(cells):
        if cell.lower() not in _HUB_WORDS:
            problems.append((at[place], f"hub must be 1 or 0, true or false, yes or no. Got {cell!r}. Mend it."))
        flags[place] = _HUB_WORDS.get(cell.lower(), False)
    return flags


def read_modes(path: str | PathLike[str], stops: tuple[str, ...]) -> tuple[tuple[str, ...], NDArray[np.int16]]:
    """Read the mode of each pair. Shapes: -> names, and codes (stops, stops)."""
    _refuse_many(path, stops, "modes of pairs are", "Use features without modes.")
    sheet = _Sheet(path, read_text(path, MOST_PAIRS_BYTES), MODE_COLUMNS)
    ends = _ends(sheet, stops)
    number: dict[str, int] = {}
    codes = _distinct(sheet.columns[2], lambda name: number.setdefault(name, len(number)) if name else -1)
    wrongs = ((codes < 0, "the mode is blank. Fill it in."),)
    pairs = _refuse_pairs(sheet, stops, ends, wrongs, "mode")
    of_pair = np.empty(len(stops) ** 2, dtype=np.int64)
    of_pair[pairs] = codes
    names, numbers = by_first_pair(tuple(number), of_pair)
    if len(names) > MOST_MODES:
        what = f"there may be at most {MOST_MODES} modes. Got {len(names)}"
        raise InputError(str(path), [Problem(what, remedy="Use fewer.")])
    return names, numbers.astype(np.int16).reshape(len(stops), len(stops))


def by_first_pair(names: Sequence[str], codes: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """Give names numbers as they first appear among pairs in order, so that the order of lines does not matter."""
    found, first, place = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return tuple(names[code] for code in found[order].tolist()), rank[place.reshape(-1)]


def read_times(path: str | PathLike[str], stops: tuple[str, ...]) -> NDArray[np.int32]:
    """Read the travel time of each pair, rounded to whole seconds; from a stop to itself it may be left out.

    Shapes: -> (stops, stops).
    """
    _refuse_many(path, stops, "travel times are", "Leave the file out, and give lat and lon of each stop.")
    sheet = _Sheet(path, read_text(path, MOST_PAIRS_BYTES), TIME_COLUMNS)
    ends = _ends(sheet, stops)
    seconds = _distinct(sheet.columns[2], _seconds)
    wrongs = (
        (seconds < 0, f"seconds must be a number from 0 to {MOST_SECONDS}: all stops are within reach. Mend it."),
        ((ends[0] == ends[1]) & (ends[0] >= 0) & (seconds > 0), "a stop is 0 seconds from itself. Mend it."),
    )
    pairs = _refuse_pairs(sheet, stops, ends, wrongs, "travel time", itself=False)
    times = np.zeros(len(stops) ** 2, dtype=np.int32)
    times[pairs] = seconds
    return times.reshape(len(stops), len(stops))


def read_buses(
    path: str | PathLike[str], stops: tuple[str, ...], hubs: NDArray[np.bool_] | None
) -> dict[str, NDArray[np.int32]]:
    """Read rides with one bus between hubs; returns columns, sorted by origin and destination. Shapes: -> rides."""
    sheet = _Sheet(path, read_text(path), BUS_COLUMNS)
    origins, destinations = _ends(sheet, stops)
    is_hub = np.append(np.zeros(len(stops), dtype=bool) if hubs is None else hubs, True)
    seconds, headways = (_distinct(column, _seconds) for column in sheet.columns[2:])
    wrongs = (
        (~is_hub[origins], "a bus goes from hub to hub, and its first stop is no hub. Mark it in stops.csv."),
        (
            ~is_hub[destinations],
            "a bus goes from hub to hub, and its last stop is no hub. Mark it in stops.csv.",
        ),
        ((origins == destinations) & (origins >= 0), "a bus goes from one stop to another. Remove the line."),
        (seconds < 0, f"seconds must be a number from 0 to {MOST_SECONDS}. Mend it."),
        (headways < 1, f"headway_seconds must be a number from 1 to {MOST_SECONDS}. Mend it."),
    )
    _refuse_pairs(sheet, stops, (origins, destinations), wrongs, "bus", every=False)
    order = np.lexsort((destinations, origins))
    columns = {"origins": origins, "destinations": destinations, "seconds": seconds, "headway_seconds": headways}
    return {name: column[order].astype(np.int32) for name, column in columns.items()}


def read_assumed(path: str | PathLike[str]) -> tuple[str, ...]:
    """Read the sentences about what was assumed when the other files were made."""
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError):
        raise InputError(str(path), [Problem("this is not JSON", remedy="Mend it, or remove the file.")]) from None
    form = content.get("format") if isinstance(content, dict) else None
    if form != 1:
        what = "format must be 1, the one this version reads"
        raise InputError(str(path), [Problem(what, remedy="Mend it, or remove the file.")])
    assumed = content.get("assumed", [])
    if not (isinstance(assumed, list) and len(assumed) <= MOST_ASSUMED and all(isinstance(x, str) for x in assumed)):
        what = f"assumed must be a list of at most {MOST_ASSUMED} sentences"
        raise InputError(str(path), [Problem(what, remedy="Mend it, or remove the file.")])
    return tuple(assumed)


def _seconds(cell: str) -> int:
    """Read a number of seconds, rounded to a whole one; -1 if it is none or too large."""
    value = _number(cell)
    return math.floor(value + 0.5) if 0 <= value <= MOST_SECONDS else -1


def _refuse_many(path: str | PathLike[str], stops: tuple[str, ...], what: str, remedy: str) -> None:
    if len(stops) > MOST_STOPS_WITH_PAIRS:
        what = f"{what} read for at most {MOST_STOPS_WITH_PAIRS} stops. Got {len(stops)}"
        raise InputError(str(path), [Problem(what, remedy=remedy)])


def _ends(sheet: _Sheet, stops: tuple[str, ...]) -> tuple[IntArray, IntArray]:
    """Read the first two columns as numbers of stops; -1 for what is none."""
    code_of = {stop: code for code, stop in enumerate(stops)}
    origins, destinations = (_distinct(column, lambda name: code_of.get(name, -1)) for column in sheet.columns[:2])
    return origins, destinations


class _Sheet:
    """A large CSV file with certain columns, read as text; its lines are counted only where one is to be named."""

    def __init__(self, path: str | PathLike[str], text: str, wanted: Sequence[str]) -> None:
        self.path, self.text, self.delimiter, self.wanted = path, text, delimiter_of(text), wanted
        try:
            header_line, header = next(self._rows(), (1, []))
        except csv.Error:  # a cell as long as a file
            header_line, header = 1, []
        names = [name.strip().lower() for name in header]
        if sorted(names) != sorted(wanted):
            refuse_lines(path, [(header_line, f"the header must be {','.join(wanted)}. Mend it.")])
        table = self._parsed(names)
        self.columns = [table.column(name).combine_chunks() for name in wanted]

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Read line by line, the slow way."""
        reader = csv.reader(io.StringIO(self.text, newline=""), delimiter=self.delimiter)
        return ((reader.line_num, cells) for cells in reader if cells)

    def _parsed(self, names: list[str]) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        try:
            return arrow_csv.read_csv(
                pa.BufferReader(self.text.encode()),
                # The header is read as a row, so that nothing is guessed.
                read_options=arrow_csv.ReadOptions(column_names=names, use_threads=False),
                parse_options=arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
                ),
            ).slice(1)
        except pa.ArrowException:
            refuse_lines(self.path, self._wrong_lines())
            raise InputError(str(self.path), [Problem("is not a readable CSV file", remedy="Check it.")]) from None

    def _wrong_lines(self) -> list[tuple[int, str]]:
        what = "there must be {} cells as in the header. Got {}. Mend the line."
        num = len(self.wanted)
        try:
            return [(line, what.format(num, len(cells))) for line, cells in self._rows() if len(cells) != num]
        except csv.Error:
            return []

    def lines(self, rows: IntArray) -> list[int]:
        """Return the lines of some rows below the header, counted from 0."""
        wanted = set(rows.tolist())
        try:
            return [line for row, (line, _) in enumerate(self._rows(), -1) if row in wanted]
        except csv.Error:  # a cell as long as a file: as if it had no blank lines and none in quotes
            return [row + 2 for row in sorted(wanted)]


def _distinct(column: Any, read: Callable[[str], int]) -> IntArray:
    """Read a column of text, each distinct value once."""
    encoded = column.dictionary_encode()
    codes = np.array([read(value.strip()) for value in encoded.dictionary.to_pylist()], dtype=np.int64)
    indices: IntArray = encoded.indices.to_numpy(zero_copy_only=False)
    return codes[indices] if len(codes) else np.zeros(0, dtype=np.int64)


def _refuse_pairs(
    sheet: _Sheet,
    stops: tuple[str, ...],
    ends: tuple[IntArray, IntArray],
    wrongs: Sequence[tuple[NDArray[np.bool_], str]],  # Lines that are wrong in themselves, and why
    what: str,  # What the file has of each pair
    *,
    every: bool = True,  # Whether all pairs must be there
    itself: bool = True,  # Whether those from a stop to itself must be
) -> IntArray:
    """Refuse a file that does not have every pair once and right; returns pairs as numbers."""
    pairs: IntArray = np.where(np.minimum(*ends) < 0, -1, ends[0] * len(stops) + ends[1])
    order = np.argsort(pairs, kind="stable")
    again = np.zeros(len(pairs), dtype=bool)
    again[order[1:]] = (pairs[order[1:]] == pairs[order[:-1]]) & (pairs[order[1:]] >= 0)
    named = [("the origin", "the destination"), ("from", "to")][sheet.wanted[0] == "from"]
    listed = _listed(
        sheet,
        (
            (ends[0] < 0, f"{named[0]} is not one of the stops. Mend it, or add the stop."),
            (ends[1] < 0, f"{named[1]} is not one of the stops. Mend it, or add the stop."),
            *wrongs,
            (again, f"this pair of stops has a {what} already. Remove one."),
        ),
    )
    if every:
        listed += _missing(stops, pairs, what, itself)
    if listed:
        raise InputError(str(sheet.path), listed)
    return pairs


def _listed(sheet: _Sheet, wrongs: Sequence[tuple[NDArray[np.bool_], str]]) -> list[Problem]:
    return line_problems(
        sorted(
            (line, what)
            for wrong, what in wrongs
            if wrong.any()
            for line in sheet.lines(np.flatnonzero(wrong)[: MOST_LINES + 1])
        )
    )


def _missing(stops: tuple[str, ...], pairs: IntArray, what: str, itself: bool) -> list[Problem]:
    seen = np.zeros(len(stops) ** 2, dtype=bool)
    seen[pairs[pairs >= 0]] = True
    if not itself:
        seen[:: len(stops) + 1] = True
    if seen.all():
        return []
    first, num = int(np.argmin(seen)), int((~seen).sum())
    start, end = (stops[code] for code in divmod(first, len(stops)))
    text = f"{num} pairs of stops have no {what}" if num > 1 else f"a pair of stops has no {what}"
    return [Problem(f"{text}, first {start!r} to {end!r}", remedy="Add a line for each pair.")]
