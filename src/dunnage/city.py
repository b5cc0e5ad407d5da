# SPDX-License-Identifier: Apache-2.0
"""City: stops, zones and modes of travel. Public facts only; no private row reaches this module."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.domains.files import MOST_LINES, delimiter_of, line_problems, read_csv, read_text, refuse_lines
from dunnage.errors import InputError, Problem

STOP_COLUMNS = ("stop", "zone", "lat", "lon", "hub")
MODE_COLUMNS = ("origin", "destination", "mode")
MOST_STOPS = 100_000
MOST_MODES = 32_767
MOST_STOPS_WITH_MODES = 4_000
MOST_MODES_BYTES = 1 << 30
"""Largest file of modes that is read."""

_HUB_WORDS = {"": False, "0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}
_RANGES = {"lat": 90.0, "lon": 180.0}
IntArray = NDArray[np.int64]


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
    """

    stops: tuple[str, ...]
    zone_names: tuple[str, ...] = ()
    zones: NDArray[np.int32] | None = None
    mode_names: tuple[str, ...] = ()
    modes: NDArray[np.int16] | None = None
    lat: NDArray[np.float64] | None = None
    lon: NDArray[np.float64] | None = None
    hubs: NDArray[np.bool_] | None = None

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
        facts = _read_stops(stops)
        names, of_pair = _read_modes(modes, facts["stops"]) if modes is not None else ((), None)
        return cls(**facts, mode_names=names, modes=of_pair)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, City) and all(
            np.array_equal(getattr(self, item.name), getattr(other, item.name)) for item in fields(self)
        )

    def __hash__(self) -> int:
        return hash(self.stops)


def _read_stops(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a list of stops; returns what :class:`City` says about them."""
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


def _read_modes(path: str | PathLike[str], stops: tuple[str, ...]) -> tuple[tuple[str, ...], NDArray[np.int16]]:
    """Read the mode of each pair. Shapes: -> names, and codes (stops, stops)."""
    if len(stops) > MOST_STOPS_WITH_MODES:
        what = f"modes of pairs are read for at most {MOST_STOPS_WITH_MODES} stops. Got {len(stops)}"
        raise InputError(str(path), [Problem(what, remedy="Use features without modes.")])
    sheet = _Sheet(path, read_text(path, MOST_MODES_BYTES))
    origins, destinations, modes = sheet.columns
    code_of = {stop: code for code, stop in enumerate(stops)}
    ends = [_distinct(column, lambda name: code_of.get(name, -1)) for column in (origins, destinations)]
    number: dict[str, int] = {}
    codes = _distinct(modes, lambda name: number.setdefault(name, len(number)) if name else -1)
    pairs = np.where(np.minimum(*ends) < 0, -1, ends[0] * len(stops) + ends[1])
    _refuse_pairs(sheet, stops, ends, pairs, codes)
    of_pair = np.empty(len(stops) ** 2, dtype=np.int64)
    of_pair[pairs] = codes
    # Numbered as they first appear among pairs in order, so that the order of lines does not matter.
    found, first, place = np.unique(of_pair, return_index=True, return_inverse=True)
    if len(found) > MOST_MODES:
        what = f"there may be at most {MOST_MODES} modes. Got {len(found)}"
        raise InputError(str(path), [Problem(what, remedy="Use fewer.")])
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int16)
    rank[order] = np.arange(len(order))
    names = list(number)
    return tuple(names[code] for code in found[order].tolist()), rank[place].reshape(len(stops), len(stops))


class _Sheet:
    """A large CSV file with the columns of modes, read as text; its lines are counted only where one is to be named."""

    def __init__(self, path: str | PathLike[str], text: str) -> None:
        self.path, self.text, self.delimiter = path, text, delimiter_of(text)
        try:
            header_line, header = next(self._rows(), (1, []))
        except csv.Error:  # a cell as long as a file
            header_line, header = 1, []
        names = [name.strip().lower() for name in header]
        if sorted(names) != sorted(MODE_COLUMNS):
            refuse_lines(path, [(header_line, f"the header must be {','.join(MODE_COLUMNS)}. Mend it.")])
        table = self._parsed(names)
        self.columns = [table.column(name).combine_chunks() for name in MODE_COLUMNS]

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
        num = len(MODE_COLUMNS)
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
    sheet: _Sheet, stops: tuple[str, ...], ends: Sequence[IntArray], pairs: IntArray, codes: IntArray
) -> None:
    """Refuse a file that does not have every pair once, with a mode."""
    order = np.argsort(pairs, kind="stable")
    again = np.zeros(len(pairs), dtype=bool)
    again[order[1:]] = (pairs[order[1:]] == pairs[order[:-1]]) & (pairs[order[1:]] >= 0)
    wrongs = (
        (ends[0] < 0, "the origin is not one of the stops. Mend it, or add the stop."),
        (ends[1] < 0, "the destination is not one of the stops. Mend it, or add the stop."),
        (codes < 0, "the mode is blank. Fill it in."),
        (again, "this pair of stops has a mode already. Remove one."),
    )
    problems = [
        (line, what)
        for wrong, what in wrongs
        if wrong.any()
        for line in sheet.lines(np.flatnonzero(wrong)[: MOST_LINES + 1])
    ]
    listed = line_problems(sorted(problems))
    seen = np.zeros(len(stops) ** 2, dtype=bool)
    seen[pairs[pairs >= 0]] = True
    if not seen.all():
        first, num = int(np.argmin(seen)), int((~seen).sum())
        start, end = (stops[code] for code in divmod(first, len(stops)))
        what = f"{num} pairs of stops have no mode" if num > 1 else "a pair of stops has no mode"
        listed.append(Problem(f"{what}, first {start!r} to {end!r}", remedy="Add a line for each pair."))
    if listed:
        raise InputError(str(sheet.path), listed)
