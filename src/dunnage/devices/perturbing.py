# SPDX-License-Identifier: Apache-2.0
"""Perturb the rows of one vehicle as its device does: by its own allowance, slot by slot.

Without a time, the rows are played back: for each day from the first to the last of the file, each slot that the
allowance drew for it is reported at its moment. With a time, the device reports what is due at that time and nothing
else. Either way every slot that is reported makes exactly one report of each purpose, with or without a row to report.

Sending again is free: a slot that has its report gives the same bytes. When days are played back, the allowance keeps
the reports of those that close on the way until a later run has written later days, so that a crash at any moment, or a
file that went astray, costs nothing: the same command gives the same bytes.

At a time, a device reports whatever its file holds, so that no cell can silence it: rows that cannot be read are
skipped, and a file that is missing, empty or damaged is one without rows. The owner is told.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from dunnage.arrays import IntArray
from dunnage.devices.reading import FileColumns, Log, RowFile, Rows, Window, value_of
from dunnage.errors import AllowanceError, InputError, OutputError, ParameterError, Problem
from dunnage.exact import shown
from dunnage.local.allowance import Allowance, Slot
from dunnage.local.client import Client, check_task
from dunnage.local.report import Report, ReportFile, write_reports
from dunnage.local.task import SECONDS_PER_DAY, Task
from dunnage.tables.cells import MICROS, parse_moment

MOST_DAYS_OF_FILE = 3_660
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(kw_only=True)
class Perturbed:
    """What a device did."""

    reports: list[bytes] = field(default_factory=list)  # The reports, in the order of slots
    num_slots: int = 0  # How many slots they are of
    num_again: int = 0  # Reports that were made before, and are given again
    num_missing: int = 0  # Slots without a row of their moment, which reported that it is missing
    num_lapsed: int = 0  # Slots, or days, that are over: a collector would not take their reports any more
    num_silent: int = 0  # Reports that were not made since the allowance is used up
    num_skipped: int = 0  # Rows that could not be read, and were left out
    spent: str = ""  # What the vehicle has given away in all; private to it
    warnings: list[str] = field(default_factory=list)  # What is wrong with the file; private to the vehicle
    notes: list[str] = field(default_factory=list)  # What else there is to say

    def to_dict(self) -> dict[str, object]:
        found = {item.name.removeprefix("num_"): getattr(self, item.name) for item in fields(self)}
        return found | {"reports": len(self.reports)}

    def summary(self) -> str:
        again = f", {self.num_again} of them as made before" if self.num_again else ""
        lines = [f"Reports   {len(self.reports)} of {self.num_slots} slots{again}"]
        if self.num_missing:
            lines.append(f"Missing   {self.num_missing} slots had no row of their moment; that is what they report")
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
    accept_clock: bool = False,
    columns: FileColumns | None = None,
    max_age: int | None = None,
    force: bool = False,
) -> Perturbed:
    """Make the reports of one vehicle from a file of its rows, and write them.

    Parameters
    ----------
    data
        CSV or Parquet file.
    task
        The task.
    allowance
        The vehicle's allowance file.
    out
        Report file to write, ``.jsonl`` or ``.bin``.
    vehicle
        Which vehicle, if the file has rows of several.
    tier, enrol, adopt
        As for :meth:`dunnage.local.allowance.Allowance.open`.
    now
        Seconds after 1 January 1970: report what is due then. Left out, play back the days of the file.
    accept_clock
        Accept a time more than 400 days after the last one.
    columns
        Names of columns.
    max_age
        Minutes that a row may be old at its slot's moment; by default the length of a slot.
    force
        Replace a report file that is there.

    Returns
    -------
    Perturbed
        The reports and what is to be said of them.

    Raises
    ------
    InputError
        If the file cannot be used. Nothing has been spent then. With ``now``, only a file that could never be used.
    OutputError
        If the report file exists already, is one of the files that are read, or would replace reports that cannot be
        given again. Nothing has been spent then.
    AllowanceError
        If the allowance cannot be used, or no report can be made. What is spent is stored, so that a second run gives
        the same reports.
    """
    check_not_input(out, [data, allowance])
    target = check_report_file(out, force=force)
    check_task(task)
    names = columns or FileColumns()
    own = _OwnRows(names, vehicle, live=now is not None, enrol=enrol)
    log = own.read(Path(data), Window(task=task, max_age=max_age))
    if now is None and own.days is None:
        raise InputError(str(data), [Problem("holds no rows of the vehicle", remedy="Give a file with its rows.")])
    first, last = own.days or (0, 0)
    start, keep_from = (now, None) if now is not None else (first * SECONDS_PER_DAY, first)
    with Allowance.open(
        allowance, task, tier=tier, enrol=enrol, adopt=adopt, now=start, accept_clock=accept_clock, keep_from=keep_from
    ) as held:
        if now is None:
            _check_replaced(target, held, first, last)
        device = _Device(Client(task, held), log, names)
        slots = iter(held.due(now)) if now is not None else device.play_back(first, last)
        done = device.report(slots, now)
        done.spent, done.notes = str(held.spent_in_all()), own.notes
        done.num_skipped, done.warnings = own.num_skipped, own.warnings
        if not done.reports and done.num_silent:
            raise AllowanceError(
                f"the vehicle's allowance is used up: {done.spent}. Nothing was reported. It may not report any more."
            )
        if now is None and not done.reports:
            raise AllowanceError(
                "no slot of the days in the file is open: their reports were made before, or have lapsed. "
                "Nothing was spent or written. Give later rows, or keep the report file that was written then."
            )
        write_reports(target, map(Report.from_bytes, done.reports), force=force)
        with suppress(AllowanceError):  # what is not forgotten now is forgotten by the next run
            held.forget_kept(first)  # not before: now the reports have their final name
    return done


def check_not_input(out: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Check that a file to write is none of those that are read, under whatever name, nor one that is to be kept."""
    for path in inputs:
        same = os.path.realpath(out) == os.path.realpath(path)
        if same or (os.path.exists(out) and os.path.exists(path) and os.path.samefile(out, path)):
            raise OutputError(
                f"{os.fspath(out)} is {os.fspath(path)}, which is needed. It was left as it is; choose another name."
            )


def check_report_file(out: str | os.PathLike[str], *, force: bool) -> Path:
    """Check that a report file may be written here, before anything is spent."""
    ReportFile(out)  # refuses a name with another ending; nothing is opened
    return check_new_file(out, force=force)


def check_new_file(out: str | os.PathLike[str], *, force: bool) -> Path:
    target = Path(out)
    if os.path.lexists(target) and not (force and target.is_file()):
        raise OutputError(f"{target} exists already. Choose another name, or replace it with --force.")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise OutputError(f"{target.parent} is not a folder to write to. Make it first, or choose another place.")
    return target


def read_clock(text: str) -> float:
    """Read a time as it is given on the command line, ``now`` for the system's clock.

    Examples
    --------
    >>> read_clock("1970-01-02T00:00:00")
    86400.0
    """
    if text == "now":
        return time.time()
    micros = parse_moment(text)
    if micros < 0:
        raise ParameterError(
            f"a time must be like 2026-10-14T08:05:00 (UTC) or with an offset. Got {shown(text)}. Or write now."
        )
    return micros / MICROS


class _OwnRows:
    """Reads the rows of one vehicle, and finds the first and the last day and what is to be said."""

    def __init__(self, names: FileColumns, vehicle: str | None, *, live: bool, enrol: bool) -> None:
        self._names, self._vehicle, self._live, self._enrol = names, vehicle, live, enrol
        self._seen = set[str]()
        self.days: tuple[int, int] | None = None
        self.num_skipped = 0
        self.notes: list[str] = []
        self.warnings: list[str] = []

    def read(self, path: Path, window: Window) -> Log:
        names = self._names
        source = RowFile(
            path,
            numbers=names.numbers_of(window.task),
            time=names.time,
            labels=[names.vehicle],
            optional=[names.vehicle] if self._vehicle is None else [],
            lenient=self._live,
        )
        log, days = Log(window, names), list[int]()
        for rows in source:
            own = _own_rows(rows, names.vehicle, self._vehicle, self._seen)
            if self._vehicle is None and len(self._seen) > 1:
                log, days = Log(window, names), []
                what, remedy = "holds rows of several vehicles", "Name one with --vehicle."
                if not self._live or self._enrol:
                    raise InputError(str(path), [Problem(what, where=self._names.vehicle, remedy=remedy)])
                self.warnings.append(f"the file {what}, so all its rows count as missing. {remedy}")
                break
            assert rows.micros is not None
            of_day = rows.micros[own] // (SECONDS_PER_DAY * MICROS)
            days += [int(of_day.min()), int(of_day.max())] if of_day.size else []
            log.add(np.zeros(rows.size, dtype=np.int64), rows, own)
        self.days = (min(days), max(days)) if days else None
        if not self._live and self.days and self.days[1] - self.days[0] >= MOST_DAYS_OF_FILE:
            what = f"spans more than {MOST_DAYS_OF_FILE} days"
            raise InputError(str(path), [Problem(what, where=self._names.time, remedy="Mend the times.")])
        log.close()
        self.num_skipped = source.num_skipped
        self.warnings += source.warnings()
        self.notes = source.notes() + ([] if days else ["the file has no row of the vehicle"])
        return log


def _own_rows(rows: Rows, column: str, vehicle: str | None, seen: set[str]) -> IntArray:
    """Return which rows are of the vehicle, and note which vehicles there are."""
    if column not in rows.labels:
        return np.arange(rows.size)
    labels = rows.labels[column]
    codes, texts = labels.indices.to_numpy(zero_copy_only=False), labels.dictionary.to_pylist()
    seen.update(texts[code] for code in np.unique(codes))
    if vehicle is None:
        return np.arange(rows.size)
    return np.flatnonzero(np.isin(codes, [code for code, text in enumerate(texts) if text == vehicle]))


class _Device:
    """One vehicle's client, with the rows that it reports from."""

    def __init__(self, client: Client, log: Log, names: FileColumns) -> None:
        self._client, self._log, self._names = client, log, names
        self._held, self._task = client.allowance, client.task
        self._num_closed = 0

    def play_back(self, first: int, last: int) -> Iterator[Slot]:
        """Yield the slots of some days, each drawn before anything of its day is looked at."""
        for day in range(first, last + 1):
            if not self._held.slots(day):
                moment = max(day * SECONDS_PER_DAY, self._held.seen)
                if moment // SECONDS_PER_DAY > day:
                    self._num_closed += 1
                    continue
                self._held.advance(moment)
            for slot in self._held.slots(day):
                yield Slot(day, slot)

    def report(self, slots: Iterator[Slot], now: float | None) -> Perturbed:
        """Make the reports of slots, each at its moment or all now."""
        done = Perturbed()
        for slot in slots:
            self._report(slot, now, done)
        done.num_lapsed += self._num_closed
        return done

    def _report(self, slot: Slot, now: float | None, done: Perturbed) -> None:
        before = len(done.reports)
        schedule = self._task.schedule
        stored = {purpose.name: self._held.stored(slot, purpose.name) for purpose in self._task.purposes}
        moment = max(schedule.moment(*slot), self._held.seen) if now is None else now
        lapsed = moment > schedule.deadline(*slot)
        values = None if all(stored.values()) or lapsed else self._values(slot, done)
        for number, purpose in enumerate(self._task.purposes):
            report = stored[purpose.name]
            if report is not None:
                done.num_again += 1
            elif lapsed:
                continue
            elif not (self._held.is_spent(slot, purpose.name) or self._affords(slot, purpose.name)):
                done.num_silent += 1
                continue
            else:
                assert values is not None
                report = self._client.report(purpose.name, values[number], moment, slot=slot)
            done.reports.append(report)
        done.num_slots += len(done.reports) > before
        done.num_lapsed += lapsed and len(done.reports) == before

    def _values(self, slot: Slot, done: Perturbed) -> list[Any]:
        at = np.array([slot.day * self._task.schedule.num_moments + slot.slot], dtype=np.int64)
        readings = self._log.readings(np.zeros(1, np.int64), np.zeros(1, np.int64), at)
        done.num_missing += readings.num_missing
        return [
            value_of(purpose, [float(column[0]) for column in readings.columns(purpose, self._names.places)])
            for purpose in self._task.purposes
        ]

    def _affords(self, slot: Slot, purpose: str) -> bool:
        loss, limits = self._client.losses.by_report[self._held.tier, purpose], self._task.limits
        if loss is None:
            return True
        in_all, on_day = self._held.spent_in_all().loss + loss, self._held.spent_on(slot.day).loss + loss
        return in_all <= limits.lifetime and (limits.day is None or on_day <= limits.day)


def _check_replaced(target: Path, held: Allowance, first: int, last: int) -> None:
    """Refuse to replace reports of days to play back that the allowance has forgotten."""
    if not target.exists():
        return
    forgotten = {day for day in range(first, last + 1) if not held.slots(day) and day < held.seen // SECONDS_PER_DAY}
    if forgotten and any(report.day in forgotten for report in ReportFile(target, task=held.task)):
        raise OutputError(
            f"{target} holds reports of days that have closed since, which cannot be made again. "
            "Nothing was spent, and it was left as it is; choose another name."
        )


def day_text(day: int) -> str:
    """Write a day that is counted from 1 January 1970 as a date."""
    return date.fromordinal(_EPOCH + day).isoformat()
