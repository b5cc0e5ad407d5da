# SPDX-License-Identifier: Apache-2.0
"""Rows of vehicles from CSV and Parquet files, some at a time, as columns of doubles.

Whether a device reports must not depend on what a cell holds: a number that is missing, NaN or no number at all
is NaN here, is counted, and is reported as the task says. What rows are *about* must be readable: a vehicle or a moment
that is not there is an :class:`~dunnage.errors.InputError` with the rows concerned, or, where a device must report
whatever its file holds, a row that is skipped and counted.

Moments are UTC unless they say otherwise: a time of a zone, or with an offset, is taken to UTC; one without is UTC
already; a plain number is seconds after 1 January 1970. What Arrow says about a file may quote its cells, so its words
are never repeated.

The reading of a slot is the latest row at or before its moment that is not older than ``max_age``; without one it is
missing. The path of a slot is the readings of its moment and of those before it, ``slot_minutes`` apart. Rows need not
be in the order of time.
"""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.devices.task import MAX_DAYS, MINUTES_PER_DAY, SECONDS_PER_DAY, Purpose, Task
from dunnage.errors import MOST_ROWS_NAMED, InputError, ParameterError, Problem
from dunnage.exact import shown
from dunnage.io import CSV_ENDINGS, PARQUET_ENDINGS

BATCH_ROWS = 1 << 20
MICROS = 1_000_000
_BLOCK_BYTES = 1 << 24
_MOST_SECONDS = MAX_DAYS * SECONDS_PER_DAY
_MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none", "-")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, kw_only=True)
class FileColumns:
    """Names of the columns that a task does not name itself.

    Parameters
    ----------
    vehicle, time
        Which vehicle a row is about, and when.
    places
        Longitude and latitude.
    """

    vehicle: str = "vehicle"
    time: str = "time"
    places: tuple[str, str] = ("lon", "lat")

    def __post_init__(self) -> None:
        places: object = self.places
        if not isinstance(places, tuple) or len(places) != 2 or not all(isinstance(name, str) for name in places):
            raise ParameterError(
                f"place columns must be two names. Got {shown(places)}. Write lon,lat: longitude before latitude."
            )
        names = [self.vehicle, self.time, *self.places]
        if len(set(names)) < len(names) or not all(names):
            raise ParameterError(f"vehicle, time and place columns must differ. Got {', '.join(names)}. Mend them.")

    def numbers_of(self, task: Task) -> list[str]:
        """Name the columns of numbers that a task needs, each once."""
        found = [quantity.name for purpose in task.purposes for quantity in purpose.quantities]
        found += self.places if any(purpose.grid for purpose in task.purposes) else ()
        return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Rows:
    """Some rows of a file, column by column."""

    first: int  # Number of the first of them, counted from 1 below the header
    size: int  # How many there are
    numbers: dict[str, FloatArray]  # Columns of doubles by name, NaN where there is no number
    micros: IntArray | None = None  # Moments in microseconds after 1 January 1970, UTC; None if they were not asked for
    # Columns of text by name, each text once; None never stands in them
    labels: dict[str, pa.DictionaryArray] = field(default_factory=dict)


class RowFile:
    """The rows of a CSV or Parquet file, some at a time; memory does not grow with the file."""

    def __init__(
        self,
        path: Path,
        *,
        numbers: Sequence[str],  # Columns to read as numbers
        time: str | None = None,  # Column of moments, if they are needed
        labels: Sequence[str] = (),  # Columns to read as text
        optional: Sequence[str] = (),  # Columns of `labels` that need not be there
        lenient: bool = False,
    ) -> None:
        self.path, self.time, self.numbers, self.labels = path, time, list(numbers), list(labels)
        self.num_rows: int | None = None
        self.unreadable: dict[str, int] = {}
        self.num_skipped, self.lost, self._lenient = 0, "", lenient
        if lenient and not path.exists():
            self.lost = "the file is not there, and counts as one without rows"
            return
        self._parquet = _is_parquet(path)
        try:
            with _reported(path):
                names = self._header()
        except InputError:
            if not lenient:
                raise
            self.lost = "the file is empty or damaged, and counts as one without rows"
            return
        self.labels = [name for name in labels if name in names or name not in optional]
        self._check(names)

    def _header(self) -> list[str]:
        if not self._parquet:
            with pa.input_stream(str(self.path), compression="detect") as stream:
                content = stream.read(1 << 20)
            text = bytes(content).decode("utf-8-sig", errors="replace")
            if not text.strip():
                raise InputError(str(self.path), ["is empty. Give a header line and at least one row."])
            return next(cells for cells in csv.reader(text.splitlines()) if cells)
        with pq.ParquetFile(self.path) as source:
            self.num_rows = int(source.metadata.num_rows)
            self._schema = source.schema_arrow
            return list(source.schema_arrow.names)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys([*self.labels, *([self.time] if self.time else []), *self.numbers]))

    def _check(self, names: list[str]) -> None:
        if not self._parquet and len(names) == 1 < len(self.columns) and (";" in names[0] or "\t" in names[0]):
            what = "the file has one column; devices read commas"
            raise InputError(str(self.path), [Problem(what, remedy="Save it with commas between the cells.")])
        problems = [problem for name in self.columns for problem in self._problems(names, name)]
        if problems:
            raise InputError(str(self.path), problems)

    def _problems(self, names: list[str], name: str) -> Iterator[Problem]:
        if names.count(name) != 1:
            what = "there are several such columns" if name in names else "there is no such column"
            remedy = "Name it as the task does; longitude and latitude are named with --place-columns."
            if name in (*self.labels[:1], self.time):
                option = "--vehicle-column" if name in self.labels else "--time-column"
                remedy = f"Name it with {option}; audit and advise take the names of the policy."
            elif name in self.labels:
                remedy = "Name it with --tiers-column."
            yield Problem(what, where=name, remedy=remedy)
        elif self._parquet:
            kind = self._schema.field(name).type
            plain, kinds = _plain(kind), pa.types
            counts = _is_text(kind) or kinds.is_integer(plain) or kinds.is_floating(plain)
            if name in self.numbers and not (counts or kinds.is_decimal(plain) or kinds.is_null(plain)):
                yield Problem("the column does not hold numbers", where=name, remedy="Write it as double, say.")
            if name == self.time and not (counts or kinds.is_timestamp(plain) or kinds.is_date(plain)):
                yield Problem("the column does not hold moments", where=name, remedy="Write it as timestamps, say.")
            if name in self.labels and not (_is_text(kind) or pa.types.is_integer(_plain(kind))):
                yield Problem("the column does not hold names", where=name, remedy="Write it as text.")

    def __iter__(self) -> Iterator[Rows]:
        self.unreadable, self.num_skipped = dict.fromkeys(self.numbers, 0), 0
        if self.lost:
            return
        try:
            first = 1
            with _reported(self.path):
                for batch in self._parquet_batches() if self._parquet else self._csv_batches():
                    sound = self._sound(batch) if self._lenient else batch
                    if sound.num_rows:
                        yield self._rows(first, sound)
                    first += batch.num_rows
        except InputError:
            if not self._lenient:
                raise
            self.lost = "the file is damaged; rows that cannot be read count as missing"

    def _sound(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows whose vehicle and moment can be read, and count the others."""
        wrong = np.zeros(batch.num_rows, dtype=np.bool_)
        for name in self.labels:
            wrong |= _blank(coded(batch.column(batch.schema.get_field_index(name))))
        if self.time:
            wrong |= moments_of(batch.column(batch.schema.get_field_index(self.time)))[1]
        self.num_skipped += int(wrong.sum())
        return batch.filter(pa.array(~wrong)) if wrong.any() else batch

    def _parquet_batches(self) -> Iterator[pa.RecordBatch]:
        text = [name for name in self.labels if _is_text(self._schema.field(name).type)]
        # Not read ahead: a row group may be larger than the memory that is wanted. Names are read as codes.
        with pq.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False, read_dictionary=text) as source:
            yield from source.iter_batches(BATCH_ROWS, columns=self.columns, use_threads=False)

    def _csv_batches(self) -> Iterator[pa.RecordBatch]:
        bad_rows: list[int] = []

        def note(row: pacsv.InvalidRow) -> str:
            bad_rows.append(-1 if row.number is None else int(row.number) - 1)
            return "skip"

        with (
            pa.input_stream(str(self.path), compression="detect") as stream,
            pacsv.open_csv(
                stream,
                read_options=pacsv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
                parse_options=pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
                convert_options=pacsv.ConvertOptions(
                    include_columns=self.columns,
                    column_types=dict.fromkeys(self.columns, pa.string()),
                    strings_can_be_null=False,
                ),
            ) as source,
        ):
            for batch in source:
                self._check_rows(bad_rows)
                yield batch
            self._check_rows(bad_rows)

    def _check_rows(self, bad_rows: list[int]) -> None:
        if bad_rows and self._lenient:
            self.num_skipped += len(bad_rows)
            bad_rows.clear()
        if bad_rows:
            raise self._wrong_rows("", "a row has more or fewer cells than the header", bad_rows, "Mend the cells.")

    def _rows(self, first: int, batch: pa.RecordBatch) -> Rows:
        columns = {name: batch.column(batch.schema.get_field_index(name)) for name in self.columns}
        labels = {name: self._label_column(first, name, columns[name]) for name in self.labels}
        micros = self._moment_column(first, self.time, columns[self.time]) if self.time else None
        numbers = {name: self._number_column(name, columns[name]) for name in self.numbers}
        return Rows(first, batch.num_rows, numbers, micros, labels)

    def _label_column(self, first: int, name: str, column: pa.Array) -> pa.DictionaryArray:
        labels = coded(column)
        missing = _blank(labels)
        if missing.any():
            raise self.refused(first, name, "is missing", missing, "Fill it in, or leave the rows out.")
        return labels

    def _moment_column(self, first: int, name: str, column: pa.Array) -> IntArray:
        micros, wrong = moments_of(column)
        if wrong.any():
            what = "is missing, or no moment from 1970 to 9999"
            remedy = "Write 2026-10-14T08:05:00 (UTC) or 2026-10-14T16:05:00+08:00, or seconds after 1 January 1970."
            raise self.refused(first, name, what, wrong, remedy)
        return micros

    def _number_column(self, name: str, column: pa.Array) -> FloatArray:
        numbers, num_wrong = numbers_of(column)
        self.unreadable[name] += num_wrong
        return numbers

    def refused(self, first: int, column: str, what: str, wrong: BoolArray, remedy: str) -> InputError:
        """Make an error about some rows of a batch that begins at row ``first``; more may follow in later ones."""
        return self._wrong_rows(column, what, (first + np.flatnonzero(wrong)).tolist(), remedy)

    def _wrong_rows(self, column: str, what: str, rows: list[int], remedy: str) -> InputError:
        named = tuple(row for row in rows[:MOST_ROWS_NAMED] if row > 0)
        problem = Problem(what, where=column, rows=named, num_rows=len(rows), remedy=remedy)
        return InputError(str(self.path), [problem])

    def warnings(self) -> list[str]:
        """Say what was skipped, or could not be read at all."""
        rows = "1 row was" if self.num_skipped == 1 else f"{self.num_skipped:,} rows were"
        skipped = f"{rows} skipped: no vehicle or moment, or more or fewer cells than the header"
        return [*([skipped] if self.num_skipped else []), *([self.lost] if self.lost else [])]

    def notes(self) -> list[str]:
        """Say which cells held something that is no number."""
        return [
            f"{name}: 1 cell is no number, and counts as missing"
            if num == 1
            else f"{name}: {num:,} cells are no numbers, and count as missing"
            for name, num in self.unreadable.items()
            if num
        ]


def _is_parquet(path: Path) -> bool:
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise InputError(str(path), [f"{what}. Check the path."])
    name = path.name.lower()
    if not name.endswith((*CSV_ENDINGS, *PARQUET_ENDINGS)):
        known = ", ".join(CSV_ENDINGS + PARQUET_ENDINGS)
        raise InputError(str(path), [f"is neither CSV nor Parquet by its name. Use one of {known}."])
    return name.endswith(PARQUET_ENDINGS)


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn what readers say into an error that quotes no cell."""
    try:
        yield
    except OSError as error:
        reason = f"cannot be read: {error.strerror}" if error.strerror else "is damaged or cut off"
    except (pa.ArrowException, csv.Error, UnicodeError, EOFError, zlib.error):
        reason = "is damaged, cut off, or not UTF-8 text" if not _is_parquet(path) else "is not a readable Parquet file"
    else:
        return
    raise InputError(str(path), [f"{reason}. Check it, or write it again."])


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return str(_plain(kind)) in ("string", "large_string", "string_view")


def coded(column: pa.Array) -> pa.DictionaryArray:
    """Return a column of names as text, each text spelled once."""
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    if column.type.value_type != pa.string():
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.string()))
    return column


def _blank(labels: pa.DictionaryArray) -> BoolArray:
    blank = pc.equal(labels.dictionary, "").fill_null(True).to_numpy(zero_copy_only=False)
    if not (labels.null_count or blank.any()):
        return np.zeros(len(labels), dtype=np.bool_)
    missing: BoolArray = labels.indices.fill_null(-1).to_numpy(zero_copy_only=False) < 0
    missing[~missing] = blank[labels.indices.drop_null().to_numpy(zero_copy_only=False)]
    return missing


def numbers_of(column: pa.Array) -> tuple[FloatArray, int]:
    """Return a column as doubles, NaN where nothing is, and how many cells held something that is no number."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not _is_text(column.type):
        return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), 0
    trimmed = pc.utf8_trim_whitespace(column.cast(pa.string()))
    trimmed = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)
    try:
        return trimmed.cast(pa.float64()).to_numpy(zero_copy_only=False), 0
    except pa.ArrowInvalid:
        texts = trimmed.dictionary_encode()
        read = [_number(text) for text in texts.dictionary.to_pylist()]
        numbers = np.array([math.nan if number is None else number for number in read] + [math.nan])
        wrong = np.array([number is None for number in read] + [False])
        codes = texts.indices.fill_null(len(read)).to_numpy(zero_copy_only=False)
        return numbers[codes], int(wrong[codes].sum())


def _number(text: str) -> float | None:
    """Read one number; NaN if it is missing, None if it is something else."""
    if text.lower() in _MISSING_WORDS:
        return math.nan
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def moments_of(column: pa.Array) -> tuple[IntArray, BoolArray]:
    """Return moments in microseconds after 1 January 1970, UTC, and which cells hold none."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        return _moments_of_text(column.cast(pa.string()))
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        seconds = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        wrong = missing | ~((seconds >= 0) & (seconds < _MOST_SECONDS))
        return np.where(wrong, 0, np.where(wrong, 0, seconds) * MICROS).astype(np.int64), wrong
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    per_second = _PER_SECOND[column.type.unit] if pa.types.is_timestamp(column.type) else 1
    if pa.types.is_uint64(column.type):
        column = pc.min_element_wise(column, pa.scalar(_MOST_SECONDS, pa.uint64()))
        missing = column.is_null().to_numpy(zero_copy_only=False) | missing
    counted = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    wrong = missing | (counted < 0) | (counted // per_second >= _MOST_SECONDS)
    inside = np.where(wrong, 0, counted)
    return inside * (MICROS // per_second) if per_second <= MICROS else inside // (per_second // MICROS), wrong


def _moments_of_text(column: pa.Array) -> tuple[IntArray, BoolArray]:
    texts = pc.utf8_trim_whitespace(column).dictionary_encode()
    try:  # quick, where no text has a zone
        counted = texts.dictionary.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy(zero_copy_only=False)
        read = np.where((counted >= 0) & (counted < _MOST_SECONDS * MICROS), counted, -1)
    except pa.ArrowInvalid:
        read = np.array([parse_moment(text) for text in texts.dictionary.to_pylist()], dtype=np.int64)
    micros = np.append(read, -1)[texts.indices.fill_null(len(read)).to_numpy(zero_copy_only=False)]
    return micros, micros < 0


def parse_moment(text: str) -> int:
    """Read a moment as microseconds after 1 January 1970, UTC; -1 if it is none.

    Examples
    --------
    >>> parse_moment("1970-01-01T08:00:01+08:00"), parse_moment("1970-01-01 00:00:01"), parse_moment("x")
    (1000000, 1000000, -1)
    """
    try:
        if text.isascii() and text.replace(".", "", 1).isdigit() and not _is_compact_date(text):
            seconds = float(text)
            return int(seconds * MICROS) if seconds < _MOST_SECONDS else -1
        moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return -1
    micros = (since.days * SECONDS_PER_DAY + since.seconds) * MICROS + since.microseconds
    return micros if 0 <= micros < _MOST_SECONDS * MICROS else -1


def _is_compact_date(text: str) -> bool:
    """Tell whether digits are a date like 20261014 rather than seconds; that would be in 1970 otherwise."""
    return len(text) == 8 and text.isdigit() and text[:2] in ("19", "20")


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What some vehicles report, each of them all purposes."""

    tiers: IntArray  # For each reading, the vehicle's tier, as a number among the task's tier names
    slots: IntArray | None  # The slot, counted from 1 January 1970; None if nobody asks
    # Columns by name for each step of a path, the latest last; a reading that is no path is the last
    steps: Sequence[dict[str, FloatArray]]
    num_missing: int = 0  # How many readings no row was found for

    def columns(self, purpose: Purpose, places: tuple[str, str]) -> list[FloatArray]:
        """Return the columns that a purpose reports, in the order that ``perturb_column`` takes them."""
        if purpose.grid is None:
            return [self.steps[-1][quantity.name] for quantity in purpose.quantities]
        return [step[name] for step in self.steps[len(self.steps) - purpose.steps :] for name in places]


def value_of(purpose: Purpose, cells: Sequence[float]) -> Any:
    """Return what a device reports, of the cells of one row in the order of :meth:`Readings.columns`."""
    if purpose.grid is None:
        return {quantity.name: cell for quantity, cell in zip(purpose.quantities, cells, strict=True)}
    places = list(zip(cells[::2], cells[1::2], strict=True))
    return places[0] if purpose.steps == 1 else places


def most_steps(task: Task) -> int:
    """Return how many places the longest path of a task has; 1 if there is none."""
    return max(purpose.steps for purpose in task.purposes)


@dataclass(frozen=True, kw_only=True)
class Window:
    """How far back a slot looks for its reading."""

    task: Task  # The task, which says how far slots are apart
    max_age: int | None = None  # Minutes; by default the length of a slot

    def __post_init__(self) -> None:
        if self.max_age is not None and not 1 <= self.max_age <= MINUTES_PER_DAY:
            raise ParameterError(f"max-age must be 1 to 1440 minutes. Got {self.max_age}. Choose 60, say.")

    @property
    def slot_seconds(self) -> int:
        return self.task.schedule.slot_minutes * 60

    @property
    def age_seconds(self) -> int:
        """Age from which on a row is too old."""
        return self.slot_seconds if self.max_age is None else self.max_age * 60

    @property
    def num_slots(self) -> int:
        """To how many slots, from the next one on, a row may matter."""
        return -(-self.age_seconds // self.slot_seconds) + most_steps(self.task) - 1

    def first_slots(self, micros: IntArray) -> IntArray:
        """Return the first slot, counted from 1 January 1970, that is not before each moment."""
        return -(-micros // (self.slot_seconds * MICROS))


class Log:
    """Rows that may be the reading of some slot, of one vehicle or many."""

    def __init__(self, window: Window, columns: FileColumns) -> None:
        self._window, self._names = window, columns.numbers_of(window.task)
        self._pieces: list[tuple[IntArray, IntArray, dict[str, FloatArray]]] = []

    def add(self, vehicles: IntArray, rows: Rows, kept: Any = slice(None)) -> None:
        assert rows.micros is not None
        numbers = {name: rows.numbers[name][kept] for name in self._names}
        self._pieces.append((vehicles[kept], rows.micros[kept], numbers))

    def close(self) -> None:
        """Put all rows in order; of rows of one moment the last counts."""
        empty: dict[str, FloatArray] = {name: np.zeros(0) for name in self._names}
        pieces = self._pieces or [(np.zeros(0, np.int64), np.zeros(0, np.int64), empty)]
        vehicles, micros = (np.concatenate([piece[at] for piece in pieces]) for at in (0, 1))
        order = np.lexsort((micros, vehicles))
        # A row counts at whole seconds not before it, so seconds rounded up compare as the moments themselves do.
        seconds = -(-micros[order] // MICROS)
        self._start = int(seconds.min()) if seconds.size else 0
        self._span = int(seconds.max()) - self._start + 1 if seconds.size else 1
        self._vehicles, self._seconds = vehicles[order], seconds
        self._keys = self._vehicles * self._span + seconds - self._start
        self._numbers = {name: np.concatenate([piece[2][name] for piece in pieces])[order] for name in self._names}
        self._pieces = []

    def readings(self, vehicles: IntArray, tiers: IntArray, slots: IntArray) -> Readings:
        """Find what vehicles report at slots that are counted from 1 January 1970."""
        back = range(most_steps(self._window.task) - 1, -1, -1)
        found = [self._latest(vehicles, (slots - steps) * self._window.slot_seconds) for steps in back]
        steps = [{name: _taken(column, rows) for name, column in self._numbers.items()} for rows in found]
        return Readings(tiers=tiers, slots=slots, steps=steps, num_missing=int((found[-1] < 0).sum()))

    def _latest(self, vehicles: IntArray, moments: IntArray) -> IntArray:
        """Return the latest row of each vehicle at or before a moment that is not too old; -1 if there is none."""
        inside = (moments - self._start).clip(-1, self._span - 1)
        rows = np.searchsorted(self._keys, vehicles * self._span + inside, side="right") - 1
        known = np.flatnonzero((rows >= 0) & (inside >= 0))
        at = rows[known]
        fresh = (self._vehicles[at] == vehicles[known]) & (
            self._seconds[at] > moments[known] - self._window.age_seconds
        )
        latest = np.full(rows.size, -1, dtype=np.int64)
        latest[known[fresh]] = at[fresh]
        return latest


def _taken(column: FloatArray, rows: IntArray) -> FloatArray:
    """Take rows of a column; NaN for row -1."""
    return np.append(column, np.nan)[rows]
