# SPDX-License-Identifier: Apache-2.0
"""Rows of vehicles from files, some at a time, as columns of doubles.

Whether a device reports must not depend on what a cell holds: a number that is missing, NaN or no number at all
is NaN here, is counted, and is reported as the task says. What rows are *about* must be readable: a vehicle or a moment
that is not there is an :class:`~dunnage.errors.InputError` with the rows concerned, or, where a device must report
whatever its file holds, a row that is skipped and counted.

The reading of a slot is the latest row at or before its moment that is not older than ``max_age``; without one it is
missing. The path of a slot is the readings of its moment and of those before it, ``slot_minutes`` apart. Rows need not
be in the order of time.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.devices.task import MINUTES_PER_DAY, Purpose, Task
from dunnage.errors import MOST_ROWS_NAMED, InputError, ParameterError, Problem
from dunnage.exact import shown
from dunnage.tables.columns import MICROS, coded, is_blank, is_text, moments_of, numbers_of
from dunnage.tables.reader import CSV_ENDINGS, TAB_ENDINGS, TableStream, checked_path, is_named


@dataclass(frozen=True, kw_only=True)
class FileColumns:
    """Names of the columns that a task does not name itself."""

    vehicle: str = "vehicle"  # Which vehicle a row is about
    time: str = "time"  # and when
    places: tuple[str, str] = ("lon", "lat")  # Longitude and latitude

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
        names = [quantity.name for purpose in task.purposes for quantity in purpose.quantities]
        names += self.places if any(purpose.grid for purpose in task.purposes) else ()
        return list(dict.fromkeys(names))


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
    """The rows of a file, some at a time; memory does not grow with the file."""

    def __init__(
        self,
        path: Path,
        *,
        numbers: Sequence[str],  # Columns to read as numbers
        time: str | None = None,  # Column of moments, if they are needed
        labels: Sequence[str] = (),  # Columns to read as text
        optional: Sequence[str] = (),  # Columns of `labels` that need not be there
        lenient: bool = False,  # Whether rows, and files, that cannot be read are skipped
    ) -> None:
        self.path, self.time, self.numbers, self.labels = path, time, list(numbers), list(labels)
        self.num_rows: int | None = None
        self.unreadable: dict[str, int] = {}
        self.num_skipped, self.lost, self._lenient = 0, "", lenient
        if lenient and not path.exists():
            self.lost = "the file is not there, and counts as one without rows"
            return
        checked_path(path)  # that it could never be read is said in any case
        try:
            with _reported(path):
                self._stream = TableStream(path, self.columns)
        except InputError:
            if not lenient:
                raise
            self.lost = "the file is empty or damaged, and counts as one without rows"
            return
        names, self.num_rows = self._stream.names, self._stream.num_rows
        self.labels = [name for name in labels if name in names or name not in optional]
        if (
            self._stream.schema is None
            and len(names) == 1 < len(self.columns)
            and (";" in names[0] or "\t" in names[0])
        ):
            what = "the file has one column; devices read commas"
            raise InputError(str(path), [Problem(what, remedy="Save it with commas between the cells.")])
        if problems := [problem for name in self.columns for problem in self._problems(names, name)]:
            raise InputError(str(path), problems)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys([*self.labels, *([self.time] if self.time else []), *self.numbers]))

    def _problems(self, names: list[str], name: str) -> Iterator[Problem]:
        """Say what is wrong with a column: it is not there, or holds something else."""
        if names.count(name) != 1:
            what = "there are several such columns" if name in names else "there is no such column"
            remedy = "Name it as the task does; longitude and latitude are named with --place-columns."
            if name in (*self.labels[:1], self.time):
                option = "--vehicle-column" if name in self.labels else "--time-column"
                remedy = f"Name it with {option}; audit and advise take the names of the policy."
            elif name in self.labels:
                remedy = "Name it with --tiers-column."
            yield Problem(what, where=name, remedy=remedy)
        elif self._stream.schema is not None:
            kind, kinds = self._stream.schema.field(name).type, pa.types
            kind = kind.value_type if kinds.is_dictionary(kind) else kind
            counts = is_text(kind) or kinds.is_integer(kind) or kinds.is_floating(kind)
            if name in self.numbers and not (counts or kinds.is_decimal(kind) or kinds.is_null(kind)):
                yield Problem("the column does not hold numbers", where=name, remedy="Write it as double, say.")
            if name == self.time and not (counts or kinds.is_timestamp(kind) or kinds.is_date(kind)):
                yield Problem("the column does not hold moments", where=name, remedy="Write it as timestamps, say.")
            if name in self.labels and not (is_text(kind) or kinds.is_integer(kind)):
                yield Problem("the column does not hold names", where=name, remedy="Write it as text.")

    def __iter__(self) -> Iterator[Rows]:
        self.unreadable, self.num_skipped = dict.fromkeys(self.numbers, 0), 0
        if self.lost:
            return
        schema = self._stream.schema
        labels = [name for name in self.labels if schema is not None and _holds_text(schema.field(name).type)]
        try:
            first = 1
            with _reported(self.path):
                for batch in self._stream.batches(self.columns, labels):
                    self._check_rows()
                    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                    if rows := self._rows(first, batch.num_rows, columns):
                        yield rows
                    first += batch.num_rows
                self._check_rows()
        except InputError:
            if not self._lenient:
                raise
            self.lost = "the file is damaged; rows that cannot be read count as missing"

    def _check_rows(self) -> None:
        bad_rows = self._stream.bad_rows
        if bad_rows and not self._lenient:
            raise self._wrong_rows("", "a row has more or fewer cells than the header", bad_rows, "Mend the cells.")
        self.num_skipped += len(bad_rows)
        bad_rows.clear()

    def _rows(self, first: int, size: int, columns: dict[str, pa.Array]) -> Rows | None:
        """Read some rows; those without a vehicle or a moment are refused, or skipped and counted."""
        labels = {name: coded(columns[name]) for name in self.labels}
        micros, no_moment = moments_of(columns[self.time]) if self.time else (None, None)
        if self._lenient:
            wrong = np.zeros(size, dtype=np.bool_) if no_moment is None else no_moment.copy()
            for column in labels.values():
                wrong |= is_blank(column)
            if wrong.any():
                self.num_skipped += int(wrong.sum())
                sound = pa.array(~wrong)
                columns = {name: column.filter(sound) for name, column in columns.items()}
                labels = {name: column.filter(sound) for name, column in labels.items()}
                micros, size = None if micros is None else micros[~wrong], size - int(wrong.sum())
        else:
            for name, column in labels.items():
                if (missing := is_blank(column)).any():
                    raise self.refused(first, name, "is missing", missing, "Fill it in, or leave the rows out.")
            if self.time and no_moment is not None and no_moment.any():
                what = "is missing, or no moment from 1970 to 9999"
                remedy = (
                    "Write 2026-10-14T08:05:00 (UTC) or 2026-10-14T16:05:00+08:00, or seconds after 1 January 1970."
                )
                raise self.refused(first, self.time, what, no_moment, remedy)
        if not size:
            return None
        numbers = {}
        for name in self.numbers:
            numbers[name], num_wrong = numbers_of(columns[name])
            self.unreadable[name] += num_wrong
        return Rows(first, size, numbers, micros, labels)

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


def _holds_text(kind: pa.DataType) -> bool:
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn what readers say into an error that quotes no cell."""
    try:
        yield
    except OSError as error:
        reason = f"cannot be read: {error.strerror}" if error.strerror else "is damaged or cut off"
    except (pa.ArrowException, csv.Error, UnicodeError, EOFError, zlib.error):
        of_text = is_named(path, CSV_ENDINGS + TAB_ENDINGS)
        reason = "is damaged, cut off, or not UTF-8 text" if of_text else "is not a readable Parquet file"
    else:
        return
    raise InputError(str(path), [f"{reason}. Check it, or write it again."])


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
        latest = [self._latest(vehicles, (slots - steps) * self._window.slot_seconds) for steps in back]
        # Row -1, which stands for none, is the NaN behind the last.
        columns = {name: np.append(column, np.nan) for name, column in self._numbers.items()}
        steps = [{name: column[rows] for name, column in columns.items()} for rows in latest]
        return Readings(tiers=tiers, slots=slots, steps=steps, num_missing=int((latest[-1] < 0).sum()))

    def _latest(self, vehicles: IntArray, moments: IntArray) -> IntArray:
        """Return the latest row of each vehicle at or before a moment that is not too old; -1 if there is none."""
        inside = (moments - self._start).clip(-1, self._span - 1)
        rows = np.searchsorted(self._keys, vehicles * self._span + inside, side="right") - 1
        before = np.flatnonzero((rows >= 0) & (inside >= 0))
        at = rows[before]
        fresh = self._seconds[at] > moments[before] - self._window.age_seconds
        fresh &= self._vehicles[at] == vehicles[before]
        latest = np.full(rows.size, -1, dtype=np.int64)
        latest[before[fresh]] = at[fresh]
        return latest
