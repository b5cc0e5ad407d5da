# SPDX-License-Identifier: Apache-2.0
"""Files of devices: read rows of vehicles, perturb those of one vehicle as its device does, collect reports.

*Rows.* Files are read in parts, as columns of doubles. Whether a device reports must not depend on what cells contain:
a number that is missing, NaN or not a number is NaN here, is counted, and is reported as the task says. A vehicle and a
moment must be readable: a row without them is an :class:`~dunnage.errors.InputError` that names the rows, or, where a
device must report whatever its file contains, a row that is skipped and counted. The reading of a slot is the latest
row at or before its moment that is not older than ``max_age``; without one it is missing. The path of a slot is the
readings of its moment and of those before it, ``slot_minutes`` apart. Rows may come in any order of time.

*Reports.* Without a time, the rows are played back: for each of the stated days, each slot that the allowance chose is
reported at its moment. The days come from the caller or the task, never from rows: which slots are reported must not
depend on values. With a time, the device reports only what is due at that time. Either way every reported slot makes
exactly one report of each purpose, with or without a row.

Sending again is free: a slot that has its report gives the same bytes. When days are played back, the allowance keeps
the reports of days that close on the way until a later run has written later days. So a crash at any moment, or a lost
file, costs nothing: the same command gives the same bytes.

So that no cell can silence a device, a file that is empty or damaged, or a folder without files, counts as one without
rows; with a time, also a file that is missing. The owner gets a warning.
"""

from __future__ import annotations

import csv
import json
import os
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import FloatArray, IntArray
from dunnage.collecting.frames import ParquetSource, Source, check_reports, tally_reports
from dunnage.collecting.tally import FORMAT, TALLIES_KIND, Tallies, Tally, check_tally, note_tally
from dunnage.devices.allowance import OTHER_VEHICLE, Allowance, Slot
from dunnage.devices.client import Client, check_task, mechanism_of
from dunnage.devices.report import Report, ReportFile, day_text, write_reports
from dunnage.devices.task import MAX_BYTES, MINUTES_PER_DAY, SECONDS_PER_DAY, FileColumns, Purpose, Task, day_number
from dunnage.devices.tokens import Wallet
from dunnage.errors import (
    MOST_ROWS_NAMED,
    AllowanceError,
    InputError,
    OutputError,
    ParameterError,
    Problem,
    ReportError,
    TaskError,
    check_kind,
)
from dunnage.exact import Exact, shown
from dunnage.folds import Rows as Folded
from dunnage.model.documents import close_word
from dunnage.tables.columns import MICROS, coded, is_blank, is_text, moments_of, numbers_of, parse_moment
from dunnage.tables.reader import (
    CSV_ENDINGS,
    PARQUET_ENDINGS,
    TAB_ENDINGS,
    TableStream,
    checked_path,
    data_files,
    is_named,
    parquet_files,
)

BY_FILE = "file"
"""The vehicle column of a folder in which no file has a column of this name: each file is then one vehicle."""


@dataclass(frozen=True)
class Rows:
    first: int  # Number of the first of them, counted from 1 below the header
    size: int  # How many there are
    numbers: dict[str, FloatArray]  # Columns of doubles by name, NaN where there is no number
    micros: IntArray | None = None  # Moments in microseconds after 1 January 1970, UTC; None if nobody needs them
    # Columns of text by name, each text once; without None
    labels: dict[str, pa.DictionaryArray] = field(default_factory=dict)


class RowFile:
    """The rows of a file, or of the files of a folder, read in parts; memory does not grow with them."""

    def __init__(
        self,
        path: Path,
        *,
        numbers: Sequence[str],  # Columns to read as numbers
        time: str | None = None,  # Column of moments, if needed
        labels: Sequence[str] = (),  # Columns to read as text
        optional: Sequence[str] = (),  # Columns of `labels` that may be absent
        lenient: bool = False,  # Whether to skip rows and files that cannot be read
    ) -> None:
        self.path, self.time, self.numbers, self.labels = path, time, list(numbers), list(labels)
        self.num_rows: int | None = None
        self.unreadable: dict[str, int] = {}
        self.num_skipped, self.lost, self._lenient = 0, "", lenient
        self._streams: list[TableStream] = []
        self._by_file = False  # whether each file is one vehicle
        if lenient and not path.exists():
            self.lost = "the file does not exist, and counts as one without rows"
            return
        try:
            files = data_files(path)
        except InputError:  # a folder without files: a device must report all the same
            if not lenient:
                raise
            self.lost = "the folder has no files of rows, and counts as one without rows"
            return
        for file in files:
            checked_path(file)  # refuses a path that could never be read, even if lenient
            try:
                with _reported(file):
                    self._streams.append(TableStream(file, self.columns))
            except InputError:
                if not lenient:
                    raise
                self.lost = "the file is empty or damaged, and counts as one without rows"
        sizes = [stream.num_rows for stream in self._streams]
        self.num_rows = None if None in sizes else sum(size or 0 for size in sizes)
        if self._streams:  # a column that may be absent must be in all files or in none
            found = set[str]().union(*(stream.names for stream in self._streams))
            self.labels = [name for name in labels if name in found or name not in optional]
            if path.is_dir() and self.labels[:1] == [BY_FILE] and BY_FILE not in found:
                self._by_file, self.labels = True, self.labels[1:]
        for stream in self._streams:
            if problems := [problem for name in self.columns for problem in self._problems(stream, name)]:
                raise InputError(str(stream.path), problems)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys([*self.labels, *([self.time] if self.time else []), *self.numbers]))

    def _problems(self, stream: TableStream, name: str) -> Iterator[Problem]:
        if stream.names.count(name) != 1:
            what = "there are several such columns" if name in stream.names else "there is no such column"
            remedy = "Name it as the task does; name longitude and latitude with --place-columns."
            if name in (*self.labels[:1], self.time):
                option = "--vehicle-column" if name in self.labels else "--time-column"
                remedy = f"Correct the name in the policy, or give {option}; audit and advise use the policy's names."
                if name in self.labels and self.path.is_dir():
                    remedy += f" If each file is one vehicle, call the column {BY_FILE!r}."
            elif name in self.labels:
                remedy = "Name it with --tiers-column."
            close = "" if name in stream.names else close_word(name, stream.names)
            yield Problem(what, where=name, remedy=f"{close} {remedy}".strip())
        elif stream.schema is not None:
            kind, kinds = stream.schema.field(name).type, pa.types
            kind = kind.value_type if kinds.is_dictionary(kind) else kind
            counts = is_text(kind) or kinds.is_integer(kind) or kinds.is_floating(kind)
            counts |= kinds.is_null(kind)  # a column without any value has no other type
            if name in self.numbers and not (counts or kinds.is_decimal(kind)):
                yield Problem(
                    "the column does not contain numbers", where=name, remedy="Write it for example as double."
                )
            if name == self.time and not (counts or kinds.is_timestamp(kind) or kinds.is_date(kind)):
                yield Problem("the column does not contain moments", where=name, remedy="Write it as timestamps.")
            if name in self.labels and not (is_text(kind) or kinds.is_integer(kind) or kinds.is_null(kind)):
                yield Problem("the column does not contain names", where=name, remedy="Write it as text.")

    def __iter__(self) -> Iterator[Rows]:
        self.unreadable, self.num_skipped = dict.fromkeys(self.numbers, 0), 0
        for stream in self._streams:
            self._at, schema = stream.path, stream.schema
            kinds = {name: schema.field(name).type for name in self.labels} if schema is not None else {}
            kinds = {name: kind.value_type if pa.types.is_dictionary(kind) else kind for name, kind in kinds.items()}
            labels = [name for name, kind in kinds.items() if is_text(kind)]
            try:
                first = 1
                with _reported(stream.path):
                    for batch in stream.batches(self.columns, labels):
                        self._check_rows(stream)
                        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                        if stream.decimal_comma:
                            columns |= {name: pc.replace_substring(columns[name], ",", ".") for name in self.numbers}
                        if rows := self._rows(first, batch.num_rows, columns):
                            yield rows
                        first += batch.num_rows
                    self._check_rows(stream)
            except InputError:
                if not self._lenient:
                    raise
                self.lost = "the file is damaged; rows that cannot be read count as missing"

    def _check_rows(self, stream: TableStream) -> None:
        bad_rows = stream.bad_rows
        if bad_rows and not self._lenient:
            raise self.refused("", "a row has more or fewer cells than the header", bad_rows, "Fix the row.")
        self.num_skipped += len(bad_rows)
        bad_rows.clear()

    def _rows(self, first: int, size: int, columns: dict[str, pa.Array]) -> Rows | None:
        """Read some rows; refuse those without a vehicle or a moment, or skip and count them."""
        labels = {name: coded(columns[name]) for name in self.labels}
        if self._by_file:
            vehicle = self._at.name.removesuffix(".gz").rpartition(".")[0]
            labels = {BY_FILE: coded(pa.array([vehicle] * size)), **labels}
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
                if (missing := first + np.flatnonzero(is_blank(column))).size:
                    raise self.refused(name, "is missing", missing, "Fill it in, or leave the rows out.")
            if self.time and no_moment is not None and no_moment.any():
                what = "is missing, or not a moment from 1970 to 9999"
                remedy = (
                    "Write 2026-10-14T08:05:00 (UTC) or 2026-10-14T16:05:00+08:00, or seconds after 1 January 1970."
                )
                raise self.refused(self.time, what, first + np.flatnonzero(no_moment), remedy)
        if not size:
            return None
        numbers = {}
        for name in self.numbers:
            numbers[name], num_wrong = numbers_of(columns[name])
            self.unreadable[name] += num_wrong
        return Rows(first, size, numbers, micros, labels)

    def refused(self, column: str, what: str, rows: Sequence[int] | IntArray, remedy: str) -> InputError:
        named = tuple(int(row) for row in rows[:MOST_ROWS_NAMED] if row > 0)
        problem = Problem(what, where=column, rows=named, num_rows=len(rows), remedy=remedy)
        return InputError(str(self._at), [problem])

    def warnings(self) -> list[str]:
        rows = "1 row was" if self.num_skipped == 1 else f"{self.num_skipped:,} rows were"
        skipped = f"{rows} skipped: without a vehicle or moment, or with more or fewer cells than the header"
        return [*([skipped] if self.num_skipped else []), *([self.lost] if self.lost else [])]

    def notes(self) -> list[str]:
        words = {True: "1 cell is not a number, and counts", False: "{:,} cells are not numbers, and count"}
        cells = ((name, num) for name, num in self.unreadable.items() if num)
        files = [f"no file has a column {self._by_file!r}: each file is one vehicle, named as the file"]
        return [
            *(files if self._by_file else []),
            *(f"{name}: {words[num == 1].format(num)} as missing" for name, num in cells),
        ]


@contextmanager
def _reported(path: Path) -> Iterator[None]:
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
    tiers: IntArray  # The vehicle's tier for each reading, as a number among the task's tier names
    slots: IntArray | None  # The slot, counted from 1 January 1970; None if nobody needs it
    # Columns by name for each step of a path, the latest last; a reading without a path is the last step
    steps: Sequence[dict[str, FloatArray]]
    num_missing: int = 0  # Readings without a row

    def columns(self, purpose: Purpose, places: tuple[str, str]) -> list[FloatArray]:
        """Return the columns that a purpose reports, in the order that ``perturb_column`` takes them."""
        if purpose.grid is None:
            return [self.steps[-1][quantity.name] for quantity in purpose.quantities]
        return [step[name] for step in self.steps[len(self.steps) - purpose.steps :] for name in places]


def value_of(purpose: Purpose, cells: Sequence[float]) -> Any:
    """Return what a device reports from the cells of one row, in the order of :meth:`Readings.columns`."""
    if purpose.grid is None:
        return {quantity.name: cell for quantity, cell in zip(purpose.quantities, cells, strict=True)}
    places = list(zip(cells[::2], cells[1::2], strict=True))
    return places[0] if purpose.steps == 1 else places


def most_steps(task: Task) -> int:
    return max(purpose.steps for purpose in task.purposes)


@dataclass(frozen=True, kw_only=True)
class Window:
    task: Task  # The task, which states how far slots are apart
    max_age: int | None = None  # Minutes; by default the length of a slot

    def __post_init__(self) -> None:
        if self.max_age is not None and not 1 <= self.max_age <= MINUTES_PER_DAY:
            raise ParameterError(f"max-age must be 1 to 1440 minutes, for example 60. Got {self.max_age}.")

    @property
    def slot_seconds(self) -> int:
        return self.task.schedule.slot_minutes * 60

    @property
    def age_seconds(self) -> int:
        return self.slot_seconds if self.max_age is None else self.max_age * 60

    @property
    def num_slots(self) -> int:
        """How many slots, from the next one on, a row may matter to."""
        return -(-self.age_seconds // self.slot_seconds) + most_steps(self.task) - 1

    def first_slots(self, micros: IntArray) -> IntArray:
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
        """Sort all rows; of rows of one moment the last counts."""
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
        back = range(most_steps(self._window.task) - 1, -1, -1)
        latest = []  # the latest row of each vehicle at or before a moment that is not too old; -1 without one
        for steps in back:
            moments = (slots - steps) * self._window.slot_seconds
            inside = (moments - self._start).clip(-1, self._span - 1)
            rows = np.searchsorted(self._keys, vehicles * self._span + inside, side="right") - 1
            before = np.flatnonzero((rows >= 0) & (inside >= 0))
            at = rows[before]
            fresh = self._seconds[at] > moments[before] - self._window.age_seconds
            fresh &= self._vehicles[at] == vehicles[before]
            latest.append(np.full(rows.size, -1, dtype=np.int64))
            latest[-1][before[fresh]] = at[fresh]
        # Row -1, which stands for no row, is the NaN after the last.
        columns = {name: np.append(column, np.nan) for name, column in self._numbers.items()}
        path = [{name: column[rows] for name, column in columns.items()} for rows in latest]
        return Readings(tiers=tiers, slots=slots, steps=path, num_missing=int((latest[-1] < 0).sum()))


MAX_DAYS_OF_FILE = 3_660


@dataclass(kw_only=True)
class Perturbed:
    reports: list[bytes] = field(default_factory=list)  # The reports, in the order of slots
    num_slots: int = 0  # Slots that they cover
    num_again: int = 0  # Reports that were made before and are repeated
    num_missing: int = 0  # Slots without a row at their moment; they reported that it is missing
    num_lapsed: int = 0  # Slots, or days, that are over: a collector no longer takes their reports
    num_silent: int = 0  # Reports that were not made because the allowance is used up
    num_skipped: int = 0  # Rows that could not be read, and were left out
    spent: str = ""  # Total privacy loss of the vehicle; private to it
    warnings: list[str] = field(default_factory=list)  # What is wrong with the file; private to the vehicle
    notes: list[str] = field(default_factory=list)  # Other remarks

    def to_dict(self) -> dict[str, object]:
        data = {item.name.removeprefix("num_"): getattr(self, item.name) for item in fields(self)}
        return data | {"reports": len(self.reports)}

    def summary(self) -> str:
        again = f", {self.num_again} of them the same as before" if self.num_again else ""
        lines = [f"Reports   {len(self.reports)} of {self.num_slots} slots{again}"]
        if not (self.reports or self.num_lapsed or self.num_silent):
            lines = ["Reports   none: no slot of the vehicle is due. Its slots are moments chosen at random"]
        if self.num_missing:
            lines.append(
                f"Missing   {self.num_missing} slots had no row at their moment, and report that it is missing"
            )
        if self.num_lapsed:
            lines.append(f"Lapsed    {self.num_lapsed} slots or days are over, and report nothing")
        if self.num_silent:
            lines.append(f"Silent    {self.num_silent} reports were not made: the allowance is used up")
        lines.append(f"Spent     {self.spent} in the vehicle's lifetime (private)")
        return "\n".join([*lines, *(f"Note      {note}" for note in self.notes)])


def perturb(
    data: str | os.PathLike[str],
    task: Task,
    allowance: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    vehicle: str | None = None,
    tier: str | None = None,
    enrol: bool = False,
    adopt: bool = False,
    now: float | None = None,
    days: tuple[str, str] | None = None,
    accept_clock: bool = False,
    cap: Exact | None = None,
    counter: str | os.PathLike[str] | None = None,
    received: str | os.PathLike[str] | None = None,
    wallet: str | os.PathLike[str] | None = None,
    columns: FileColumns | None = None,
    max_age: int | None = None,
    force: bool = False,
) -> Perturbed:
    """Make the reports of one vehicle from a file of its rows, and write them.

    Parameters
    ----------
    data
        CSV, Parquet or Excel file, or a folder of such files.
    task
        The task.
    allowance
        The vehicle's allowance file.
    out
        Report file to write, ``.jsonl`` or ``.bin``.
    vehicle
        Which vehicle, if the file has rows of several. An allowance refuses rows of another vehicle than its own.
    tier, enrol, adopt
        As for :meth:`dunnage.devices.allowance.Allowance.open`.
    now
        Seconds after 1 January 1970: report what is due then.
    days
        Without ``now``, the first and the last day to play back, such as ``("2026-10-14", "2026-10-15")``; by default
        those of the task.
    accept_clock
        Accept a time before the last one, or more than 400 days after it.
    cap, counter
        The owner's own limit of a day, and a second place that counts writes, as for
        :meth:`dunnage.devices.allowance.Allowance.open`.
    received
        Report file with what the collector has of this vehicle; an allowance that does not know it is an older copy.
    wallet
        Wallet of tokens, if the collector takes reports without a sender: reports get the ids of tokens.
    columns
        Names of columns; by default those of the task, which are the policy's.
    max_age
        How many minutes old a row may be at its slot's moment; by default the length of a slot.
    force
        Replace a report file that is there.

    Returns
    -------
    Perturbed
        The reports, with counts, warnings and notes.

    Raises
    ------
    InputError
        If the file could never be used, whatever its rows; nothing has been spent then.
    OutputError
        If the report file already exists, is one of the input files, or would replace reports that cannot be made
        again. Nothing has been spent then.
    AllowanceError
        If the allowance cannot be used, or no report can be made. The spend is stored, so a second run gives the same
        reports.
    """
    check_kind(data, str | os.PathLike, "perturb takes the path of a file of rows, a Task, then two paths")
    check_kind(task, Task, "perturb takes the path of a file of rows, a Task, then two paths")
    check_not_input(out, [data, allowance])
    ReportFile(out)  # refuses a name with another ending; nothing is opened
    target = check_new_file(out, force=force)
    check_task(task)
    names = columns or task.file_columns
    if now is not None and days is not None:
        raise ParameterError("--now reports what is due, --from and --to play back days. Leave one of them out.")
    first, last = (0, -1) if now is not None else read_days(days, task)
    if now is None and not os.path.exists(data):
        raise InputError(os.fspath(data), ["cannot be read: it does not exist. Check the path."])
    window = Window(task=task, max_age=max_age)
    log, done, name = _read_own_rows(Path(data), window, names, vehicle, enrol=enrol)
    known = [] if received is None else list(ReportFile(received))
    start, keep_from = (now, None) if now is not None else (first * SECONDS_PER_DAY, first)
    with Allowance.open(
        allowance,
        task,
        tier=tier,
        enrol=enrol,
        adopt=adopt,
        now=start,
        accept_clock=accept_clock,
        cap=cap,
        counter=counter,
        keep_from=keep_from,
        vehicle=vehicle if now is not None else name,
    ) as account:
        if now is not None and name is not None and not account.recognise(name):
            log = Log(window, names)  # no cell may silence a device
            log.close()
            done.warnings.append(f"all rows count as missing: {allowance} is {OTHER_VEHICLE}")
        account.check_received(known)
        if now is None and target.exists():
            # Reports of days that the allowance has forgotten must not be replaced.
            today = account.seen // SECONDS_PER_DAY
            forgotten = {day for day in range(first, last + 1) if not account.slots(day) and day < today}
            if forgotten and any(report.day in forgotten for report in ReportFile(target, task=account.task)):
                raise OutputError(
                    f"{target} has reports of days that have closed since, which cannot be made again. Nothing was "
                    "spent, and the file was not changed. Choose another name."
                )
        client = Client(task, account, wallet=None if wallet is None else Wallet(wallet, task))
        for slot in account.due(now) if now is not None else _play_back(account, first, last, done):
            _report_slot(client, log, names, slot, now, done)
        done.spent = str(account.spent_in_all())
        if not done.reports and done.num_silent:
            raise AllowanceError(
                f"the vehicle's allowance is used up: {done.spent}. Nothing was reported. It may not report again."
            )
        if now is None and not done.reports:
            raise AllowanceError(
                "no slot of these days is open: its report was made before, or it has lapsed. Nothing was spent or "
                "written. Give later days, or use the report file that was written before."
            )
        write_reports(target, map(Report.from_bytes, done.reports), force=force)
        with suppress(AllowanceError):  # what is not forgotten now, the next run forgets
            account.forget_kept(first)  # only now, when the reports have their final name
    return done


def read_days(days: tuple[str, str] | None, task: Task) -> tuple[int, int]:
    """Read a first and a last day, counted from 1 January 1970; without them, those of the task."""
    stated = days or task.schedule.days
    if stated is None:
        raise ParameterError(
            "the days to report must be stated, because rows must not decide which slots are reported. Give --from and "
            "--to (days=), such as --from 2026-10-14 --to 2026-10-15, write days in [schedule], or give --now (now=)."
        )
    first, last = map(day_number, stated)
    if not first <= last < first + MAX_DAYS_OF_FILE:
        raise ParameterError(f"the days must be at most {MAX_DAYS_OF_FILE}, the first before the last. Got {stated}.")
    return first, last


def check_not_input(out: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]) -> None:
    for path in inputs:
        same = os.path.realpath(out) == os.path.realpath(path)
        if same or (os.path.exists(out) and os.path.exists(path) and os.path.samefile(out, path)):
            raise OutputError(
                f"{os.fspath(out)} is the input {os.fspath(path)}. It was not changed. Choose another name."
            )


def check_new_file(out: str | os.PathLike[str], *, force: bool) -> Path:
    target = Path(out)
    if os.path.lexists(target) and not (force and target.is_file()):
        raise OutputError.taken(target)
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise OutputError(f"{target.parent} is not a writable folder. Create it first, or choose another place.")
    return target


def read_clock(text: str) -> float:
    """Read a time from the command line; ``now`` is the system's clock."""
    if text == "now":
        return time.time()
    micros = parse_moment(text)
    if micros < 0:
        raise ParameterError(
            f"a time must be now, or like 2026-10-14T08:05:00 (UTC, or with an offset). Got {shown(text)}."
        )
    return micros / MICROS


def _read_own_rows(
    path: Path, window: Window, names: FileColumns, vehicle: str | None, *, enrol: bool
) -> tuple[Log, Perturbed, str | None]:
    """Read the rows of one vehicle; return its name too, if the caller or the file states it."""
    source = RowFile(
        path,
        numbers=names.numbers_of(window.task),
        time=names.time,
        labels=[names.vehicle],
        optional=[names.vehicle] if vehicle is None else [],
        lenient=True,
    )
    log, num_rows, seen, warnings = Log(window, names), 0, set[str](), list[str]()
    for rows in source:
        own = np.arange(rows.size)
        if names.vehicle in rows.labels:
            labels = rows.labels[names.vehicle]
            codes, texts = labels.indices.to_numpy(zero_copy_only=False), labels.dictionary.to_pylist()
            seen.update(texts[code] for code in np.unique(codes))
            if vehicle is not None:
                own = np.flatnonzero(np.isin(codes, [code for code, text in enumerate(texts) if text == vehicle]))
        if vehicle is None and len(seen) > 1:
            log, num_rows = Log(window, names), 0
            what, remedy = "has rows of several vehicles", "Name one with --vehicle."
            if enrol:
                raise InputError(str(path), [Problem(what, where=names.vehicle, remedy=remedy)])
            warnings.append(f"the file {what}, so all its rows count as missing. {remedy}")
            break
        num_rows += own.size
        log.add(np.zeros(rows.size, dtype=np.int64), rows, own)
    log.close()
    notes = source.notes() + ([] if num_rows else ["the file has no row of the vehicle"])
    done = Perturbed(notes=notes, num_skipped=source.num_skipped, warnings=warnings + source.warnings())
    return log, done, vehicle or (seen.pop() if len(seen) == 1 else None)


def _play_back(account: Allowance, first: int, last: int, done: Perturbed) -> Iterator[Slot]:
    """Yield the slots of some days, each chosen before anything of its day is read."""
    for day in range(first, last + 1):
        if not account.slots(day):
            moment = max(day * SECONDS_PER_DAY, account.seen)
            if moment // SECONDS_PER_DAY > day:
                done.num_lapsed += 1
                continue
            account.advance(moment)
        yield from (Slot(day, slot) for slot in account.slots(day))


def _report_slot(client: Client, log: Log, names: FileColumns, slot: Slot, now: float | None, done: Perturbed) -> None:
    account, task, num_before = client.allowance, client.task, len(done.reports)
    stored = {purpose.name: account.stored(slot, purpose.name) for purpose in task.purposes}
    moment = max(task.schedule.moment(*slot), account.seen) if now is None else now
    lapsed = moment > task.schedule.deadline(*slot) or not account.is_open(slot.day)
    values = []
    if not lapsed and not all(stored.values()):
        at = np.array([slot.day * task.schedule.num_moments + slot.slot], dtype=np.int64)
        readings = log.readings(np.zeros(1, np.int64), np.zeros(1, np.int64), at)
        done.num_missing += readings.num_missing
        for purpose in task.purposes:
            cells = [float(column[0]) for column in readings.columns(purpose, names.places)]
            values.append(value_of(purpose, cells))
    for number, purpose in enumerate(task.purposes):
        report = stored[purpose.name]
        if report is not None:
            done.num_again += 1
        elif lapsed:
            continue
        else:
            try:
                if not account.is_spent(slot, purpose.name):
                    account.check_limits(slot.day, client.losses.by_report[account.tier, purpose.name])
            except AllowanceError:  # it is used up
                done.num_silent += 1
                continue
            report = client.report(purpose.name, values[number], moment, slot=slot)
        done.reports.append(report)
    done.num_slots += len(done.reports) > num_before
    done.num_lapsed += lapsed and len(done.reports) == num_before


MAX_TALLY_BYTES = 1 << 30


def read_task_file(path: str | os.PathLike[str]) -> Task:
    file = Path(path)
    try:
        with file.open("rb") as source:
            content = source.read(MAX_BYTES + 1)
    except OSError as error:
        raise TaskError(f"the task {file} cannot be read: {error.strerror}. Name a task file.") from None
    if file.suffix == ".toml":
        raise TaskError(f"{file} is a policy, not a task. Make its task with dunnage device task {file} -o TASK.json.")
    task = Task.from_json(content)
    check_task(task)
    return task


@dataclass(kw_only=True)
class Collected:
    tallies: Tallies  # What is kept of the reports, and what was left out
    warnings: list[str] = field(default_factory=list)  # What else you should know
    num_days: int | None = None  # Days of the counted reports; None if there are tallies, which do not say

    @property
    def num_reports(self) -> int:
        return self.tallies.num_reports

    @property
    def left_out(self) -> Counter[str]:
        return self.tallies.left_out

    @property
    def first_bad(self) -> list[str]:
        return self.tallies.first_bad

    def to_dict(self) -> dict[str, object]:
        return {
            "reports": self.num_reports,
            "left_out": dict(self.left_out),
            "first_bad": self.first_bad,
            "warnings": self.warnings,
        }

    def lines(self) -> list[str]:
        return [f"{_KINDS[kind]}: {num:,}" for kind, num in sorted(self.left_out.items())]


_KINDS = {  # of reports that are left out
    "damaged": "damaged, cut off or not a report",
    "other_task": "made for another task, or another version of it",
    "impossible": "impossible for a device of this task",
    "duplicate": "sent again, and counted once",
    "conflicting": "with an id that came with different contents: none of them counts",
    "other_time": "of a day on which no device of the task reports, or too early or too late",
}


def collect(
    paths: Any,
    task: Task,
    *,
    days: tuple[str, str] | None = None,
    received: float | None = None,
    engine: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Collected:
    """Collect reports and tallies of a task.

    Parameters
    ----------
    paths
        Report files (``.jsonl``, ``.bin``), Parquet files with a column ``report`` of their bytes, files of tallies
        (``.json``), and folders of such files. For the engine ``duckdb`` a query, for ``spark`` a Spark DataFrame or
        the path of Parquet files.
    task
        Their task.
    days
        First and last day of the reports to count; others are left out. By default the days of the task.
    received
        When the reports came in, in seconds after 1 January 1970: those of slots that were not due then are left out.
    engine
        Where the reports live: ``files`` (the default; ``memory`` is the same), ``duckdb`` or ``spark``.
    progress
        Called with a line about the progress.

    Raises
    ------
    InputError
        If a file cannot be read, or a tally is given twice.
    ReportError
        If no report counts.
    """
    check_kind(task, Task, "collect takes files of reports, then their task: dn.collect(FILES, task)")
    span = None if days is None else read_days(days, task)
    live: Any = _elsewhere(paths, engine)
    if live is not None:
        paths = []
    else:
        given = [paths] if isinstance(paths, str | os.PathLike) else paths
        paths = [file for path in given for file in report_files(Path(path))]
        live = report_sources(paths)
    tallies = tally_reports(task, live, days=span, received=received, progress=progress)
    result, seen = Collected(tallies=tallies), set[str]()
    for path in paths:
        if str(path).endswith(".json"):
            for names, tally in read_tallies(path, task).by_tier.items():
                note_tally(tally, seen, str(path))  # before anything is merged into it
                tallies.num_read += tally.num_reports
                if names in tallies.by_tier:
                    tallies.by_tier[names].merge(tally)
                else:
                    tallies.by_tier[names] = tally
    if not result.num_reports:
        if not tallies.left_out:
            raise ReportError("the files have no reports. Name files that devices or dunnage device simulate wrote.")
        bad, first = "; ".join(result.lines()), f" The first: {tallies.first_bad[0]}" if tallies.first_bad else ""
        raise ReportError(f"no report can be used: {bad}. Name the task they were made for.{first}")
    from_tallies = any(str(path).endswith(".json") for path in paths)
    result.num_days = None if from_tallies else len(tallies.days)
    if len(paths) > 1 and from_tallies:
        result.warnings.append(
            "tallies have no ids, so a report that is in two of the files counts twice. Make sure that the files "
            "have different reports"
        )
    return result


def _elsewhere(reports: Any, engine: str | None) -> Folded | None:
    """Return reports that an engine reads as rows; None if they are files."""
    if engine in (None, "memory", "files") and not isinstance(reports, Folded):
        return None
    from dunnage.engines.sources import rows_of
    from dunnage.tables.reader import ReadOptions

    alone = reports[0] if isinstance(reports, list | tuple) and len(reports) == 1 else reports
    if isinstance(alone, list | tuple):
        raise ParameterError(
            f"the engine {engine} reads one folder or file. Got {len(alone)}. Put them into one folder."
        )
    rows = rows_of(alone, ReadOptions(), engine)
    check_reports(rows.source, rows.schema)
    return rows


def report_sources(paths: Iterable[str | os.PathLike[str]]) -> list[Source]:
    """Return what reads reports of files and folders, without files of tallies."""
    files = [file for path in paths for file in report_files(Path(path)) if file.suffix != ".json"]
    return [
        ParquetSource(path) if path.is_dir() or is_named(path, PARQUET_ENDINGS) else Source.of_file(str(path))
        for path in files
    ]


REPORT_ENDINGS = (".bin", ".jsonl", ".json")


def report_files(path: Path) -> list[Path]:
    """Return the files of reports and tallies of a folder, by name; Parquet files count as one."""
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.iterdir()) if is_named(file, REPORT_ENDINGS) and file.name[0] not in "._"]
    if not files and not parquet_files(path):
        raise InputError(str(path), [f"is a folder without files that end in {', '.join(REPORT_ENDINGS)} or .parquet."])
    return [*files, *([path] if parquet_files(path) else [])]


def read_tallies(path: str | os.PathLike[str], task: Task) -> Tallies:
    """Read a file of tallies strictly: reports of the task must be able to add up to it."""
    data = _tally_content(Path(path))
    if data.get("task") != task.digest:
        raise _no_tallies(path, "was made for another task", "Name the task it was made for.")
    tallies = Tallies(task)
    for item in data["tallies"]:
        tally = Tally.from_dict(item)
        names = tally.purpose, tally.tier
        if names in tallies.by_tier:
            raise _no_tallies(path, "has a purpose and tier twice", "Write it again.")
        purposes = [purpose for purpose in task.purposes if purpose.name == tally.purpose]
        if not purposes or tally.tier not in [tier.name for tier in purposes[0].tiers]:
            raise _no_tallies(path, "has a purpose or tier that the task does not have", "Write it again.")
        try:
            check_tally(mechanism_of(task, purposes[0]), tally)
        except InputError as error:
            raise InputError(str(path), error.problems) from None
        tallies.by_tier[names] = tally
    return tallies


def _tally_content(path: Path) -> Any:
    try:
        with path.open("rb") as source:
            content = source.read(MAX_TALLY_BYTES + 1)
        data = json.loads(content) if len(content) <= MAX_TALLY_BYTES else None
    except OSError as error:
        raise _no_tallies(path, f"cannot be read: {error.strerror}", "Name a file of reports or tallies.") from None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("kind") != TALLIES_KIND or not isinstance(data.get("tallies"), list):
        raise _no_tallies(path, "is damaged, or not a file of tallies", "Name one that --tally wrote.")
    if data.get("format") != FORMAT:
        raise _no_tallies(path, "has an unknown format", "Update Dunnage, or write it again.")
    return data


def _no_tallies(path: str | os.PathLike[str], what: str, remedy: str) -> InputError:
    return InputError(str(path), [Problem(what, remedy=remedy)])


def describe_reports(path: str | os.PathLike[str]) -> tuple[dict[str, object], str]:
    file = ReportFile(path)
    counts: Counter[tuple[str, int, int]] = Counter()
    days: list[int] = []
    num_bytes = 0
    for report in file:
        counts[report.task.hex(), report.purpose, report.tier] += 1
        days = [report.day, report.day] if not days else [min(days[0], report.day), max(days[1], report.day)]
        num_bytes += len(report.payload)
    groups = [
        {"task": task, "purpose": purpose, "tier": tier, "reports": num}
        for (task, purpose, tier), num in sorted(counts.items())
    ]
    shown_days = [day_text(day) for day in days]
    lines = [f"Reports   {file.num_read:,}" + (f", {shown_days[0]} to {shown_days[1]}" if days else "")]
    lines += [f"  task {g['task']}, purpose {g['purpose']}, tier {g['tier']}: {g['reports']:,}" for g in groups]
    lines += [f"Payload   {num_bytes / file.num_read:.1f} bytes each"] if file.num_read else []
    lines += [f"Damaged   {file.num_bad:,}", *(f"  {bad}" for bad in file.first_bad)] if file.num_bad else []
    described = {"reports": file.num_read, "days": shown_days, "groups": groups, "damaged": file.num_bad}
    return described, "\n".join(lines)


def describe_tallies(path: str | os.PathLike[str]) -> tuple[dict[str, object], str]:
    data = _tally_content(Path(path))
    tallies = [Tally.from_dict(item) for item in data["tallies"]]
    groups = [{"purpose": t.purpose, "tier": t.tier, "reports": t.num_reports} for t in tallies]
    total = sum(tally.num_reports for tally in tallies)
    task = str(data.get("task"))[:16]
    lines = [f"Tallies   of {total:,} reports, task {task}"]
    lines += [f"  {tally.purpose}, tier {tally.tier}: {tally.num_reports:,}" for tally in tallies]
    return {"reports": total, "task": data.get("task"), "groups": groups}, "\n".join(lines)
