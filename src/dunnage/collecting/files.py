# SPDX-License-Identifier: Apache-2.0
"""Files of devices: perturb the rows of one vehicle as its device does, and bring reports and tallies together.

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

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

import numpy as np

from dunnage.collecting.reading import FileColumns, Log, RowFile, Window, value_of
from dunnage.collecting.tally import (
    FORMAT,
    TALLIES_KIND,
    Tallies,
    Tally,
    TallyData,
    check_tally,
    note_tally,
)
from dunnage.devices.allowance import Allowance, Slot
from dunnage.devices.client import Client, check_task, mechanism_of
from dunnage.devices.report import MAX_BAD_NAMED, Report, ReportFile, write_reports
from dunnage.devices.task import MAX_BYTES, SECONDS_PER_DAY, Task
from dunnage.errors import AllowanceError, InputError, OutputError, ParameterError, Problem, ReportError, TaskError
from dunnage.exact import shown
from dunnage.tables.columns import MICROS, parse_moment

MAX_DAYS_OF_FILE = 3_660
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(kw_only=True)
class Perturbed:
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
        data = {item.name.removeprefix("num_"): getattr(self, item.name) for item in fields(self)}
        return data | {"reports": len(self.reports)}

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
        As for :meth:`dunnage.devices.allowance.Allowance.open`.
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
    own = _read_own_rows(
        Path(data), Window(task=task, max_age=max_age), names, vehicle, live=now is not None, enrol=enrol
    )
    if now is None and own.days is None:
        raise InputError(str(data), [Problem("holds no rows of the vehicle", remedy="Give a file with its rows.")])
    first, last = own.days or (0, 0)
    start, keep_from = (now, None) if now is not None else (first * SECONDS_PER_DAY, first)
    with Allowance.open(
        allowance, task, tier=tier, enrol=enrol, adopt=adopt, now=start, accept_clock=accept_clock, keep_from=keep_from
    ) as account:
        if now is None and target.exists():
            # Reports of days to play back that the allowance has forgotten are not to be replaced.
            today = account.seen // SECONDS_PER_DAY
            forgotten = {day for day in range(first, last + 1) if not account.slots(day) and day < today}
            if forgotten and any(report.day in forgotten for report in ReportFile(target, task=account.task)):
                raise OutputError(
                    f"{target} holds reports of days that have closed since, which cannot be made again. "
                    "Nothing was spent, and it was left as it is; choose another name."
                )
        done = Perturbed(notes=own.notes, num_skipped=own.num_skipped, warnings=own.warnings)
        client = Client(task, account)
        for slot in account.due(now) if now is not None else _play_back(account, first, last, done):
            _report_slot(client, own.log, names, slot, now, done)
        done.spent = str(account.spent_in_all())
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
            account.forget_kept(first)  # not before: now the reports have their final name
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
    """Read a time as it is given on the command line, ``now`` for the system's clock."""
    if text == "now":
        return time.time()
    micros = parse_moment(text)
    if micros < 0:
        raise ParameterError(
            f"a time must be like 2026-10-14T08:05:00 (UTC) or with an offset. Got {shown(text)}. Or write now."
        )
    return micros / MICROS


class _OwnRows(NamedTuple):
    log: Log
    days: tuple[int, int] | None  # The first and the last day
    num_skipped: int
    notes: list[str]
    warnings: list[str]


def _read_own_rows(
    path: Path, window: Window, names: FileColumns, vehicle: str | None, *, live: bool, enrol: bool
) -> _OwnRows:
    source = RowFile(
        path,
        numbers=names.numbers_of(window.task),
        time=names.time,
        labels=[names.vehicle],
        optional=[names.vehicle] if vehicle is None else [],
        lenient=live,
    )
    log, days, seen, warnings = Log(window, names), list[int](), set[str](), list[str]()
    for rows in source:
        own = np.arange(rows.size)
        if names.vehicle in rows.labels:
            labels = rows.labels[names.vehicle]
            codes, texts = labels.indices.to_numpy(zero_copy_only=False), labels.dictionary.to_pylist()
            seen.update(texts[code] for code in np.unique(codes))
            if vehicle is not None:
                own = np.flatnonzero(np.isin(codes, [code for code, text in enumerate(texts) if text == vehicle]))
        if vehicle is None and len(seen) > 1:
            log, days = Log(window, names), []
            what, remedy = "holds rows of several vehicles", "Name one with --vehicle."
            if not live or enrol:
                raise InputError(str(path), [Problem(what, where=names.vehicle, remedy=remedy)])
            warnings.append(f"the file {what}, so all its rows count as missing. {remedy}")
            break
        assert rows.micros is not None
        of_day = rows.micros[own] // (SECONDS_PER_DAY * MICROS)
        days += [int(of_day.min()), int(of_day.max())] if of_day.size else []
        log.add(np.zeros(rows.size, dtype=np.int64), rows, own)
    if not live and days and max(days) - min(days) >= MAX_DAYS_OF_FILE:
        what = f"spans more than {MAX_DAYS_OF_FILE} days"
        raise InputError(str(path), [Problem(what, where=names.time, remedy="Mend the times.")])
    log.close()
    notes = source.notes() + ([] if days else ["the file has no row of the vehicle"])
    span = (min(days), max(days)) if days else None
    return _OwnRows(log, span, source.num_skipped, notes, warnings + source.warnings())


def _play_back(account: Allowance, first: int, last: int, done: Perturbed) -> Iterator[Slot]:
    """Yield the slots of some days, each drawn before anything of its day is looked at."""
    for day in range(first, last + 1):
        if not account.slots(day):
            moment = max(day * SECONDS_PER_DAY, account.seen)
            if moment // SECONDS_PER_DAY > day:
                done.num_lapsed += 1
                continue
            account.advance(moment)
        for slot in account.slots(day):
            yield Slot(day, slot)


def _report_slot(client: Client, log: Log, names: FileColumns, slot: Slot, now: float | None, done: Perturbed) -> None:
    account, task, num_before = client.allowance, client.task, len(done.reports)
    stored = {purpose.name: account.stored(slot, purpose.name) for purpose in task.purposes}
    moment = max(task.schedule.moment(*slot), account.seen) if now is None else now
    lapsed = moment > task.schedule.deadline(*slot)
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
        elif account.is_spent(slot, purpose.name) or _affords(client, slot, purpose.name):
            report = client.report(purpose.name, values[number], moment, slot=slot)
        else:
            done.num_silent += 1
            continue
        done.reports.append(report)
    done.num_slots += len(done.reports) > num_before
    done.num_lapsed += lapsed and len(done.reports) == num_before


def _affords(client: Client, slot: Slot, purpose: str) -> bool:
    account, limits = client.allowance, client.task.limits
    loss = client.losses.by_report[account.tier, purpose]
    if loss is None:
        return True
    in_all, on_day = account.spent_in_all().loss + loss, account.spent_on(slot.day).loss + loss
    return in_all <= limits.lifetime and (limits.day is None or on_day <= limits.day)


def day_text(day: int) -> str:
    """Write a day that is counted from 1 January 1970 as a date."""
    return date.fromordinal(_EPOCH + day).isoformat()


MAX_TALLY_BYTES = 1 << 30


class _TalliesData(TypedDict):
    task: str
    tallies: list[TallyData]


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
    tallies: Tallies  # What is kept of the reports
    num_read: int = 0  # Reports that were read, and those in files of tallies
    left_out: Counter[str] = field(default_factory=Counter)  # Reports that were not counted, by kind
    first_bad: list[str] = field(default_factory=list)  # Where the first of them were, and why
    warnings: list[str] = field(default_factory=list)  # What else is to be known

    @property
    def num_reports(self) -> int:
        return self.tallies.num_reports

    def to_dict(self) -> dict[str, object]:
        return {
            "reports": self.num_reports,
            "left_out": dict(self.left_out),
            "first_bad": self.first_bad,
            "warnings": self.warnings,
        }

    def lines(self) -> list[str]:
        return [f"{_KINDS[kind]}: {num:,}" for kind, num in sorted(self.left_out.items())]


_KINDS = {
    "damaged": "damaged, cut off or no report at all",
    "other_task": "made for another task, or another version of it",
    "impossible": "no device of this task can have made it",
    "duplicate": "sent again, and counted once",
    "conflicting": "with the id of another report, but other content",
}


def collect(
    paths: Sequence[str | os.PathLike[str]], task: Task, *, progress: Callable[[str], None] | None = None
) -> Collected:
    """Bring together reports and tallies of a task.

    Parameters
    ----------
    paths
        Report files (``.jsonl``, ``.bin``) and files of tallies (``.json``).
    task
        The task they must be of.
    progress
        Called with what is being done.

    Raises
    ------
    InputError
        If a file cannot be read, or a tally came before.
    ReportError
        If no report counts.
    """
    tallies = Tallies(task)
    result, seen = Collected(tallies=tallies), set[str]()
    for path in paths:
        if str(path).endswith(".json"):
            for names, tally in read_tallies(path, task).by_tier.items():
                note_tally(tally, seen, str(path))  # before anything is merged into it
                result.num_read += tally.num_reports
                if names in tallies.by_tier:
                    tallies.by_tier[names].merge(tally)
                else:
                    tallies.by_tier[names] = tally
            continue
        file = ReportFile(path)
        for report in file:
            result.num_read += 1
            if progress is not None and result.num_read % 10_000 == 0:
                progress(f"reading: {result.num_read:,} reports")
            num_bad = tallies.num_bad
            if report.task != task.prefix:
                result.left_out["other_task"] += 1
                result.first_bad.append(f"{file.path}: made for another task")
            elif not tallies.add(report) and tallies.num_bad > num_bad:
                result.left_out["impossible"] += 1
                result.first_bad.append(f"{file.path}: {tallies.first_bad[-1]}")
            del result.first_bad[MAX_BAD_NAMED:]
        if file.num_bad:
            result.left_out["damaged"] += file.num_bad
            result.first_bad += [f"{file.path}, {bad}" for bad in file.first_bad]
            del result.first_bad[MAX_BAD_NAMED:]
    counts = {"duplicate": tallies.num_duplicates, "conflicting": tallies.num_conflicting}
    result.left_out.update({kind: num for kind, num in counts.items() if num})
    if not result.num_reports:
        if not result.left_out:
            raise ReportError(
                "there is no report. Got empty files. Name files that devices or dunnage device simulate wrote."
            )
        bad, first = "; ".join(result.lines()), f" The first: {result.first_bad[0]}" if result.first_bad else ""
        raise ReportError(f"no report can be used. Got {bad}. Name the task they were made for.{first}")
    if len(paths) > 1 and any(str(path).endswith(".json") for path in paths):
        result.warnings.append(
            "tallies hold no ids: whether a report in one is also in another of the files cannot be told, and it would "
            "count twice. See to it that the files are of different reports"
        )
    return result


def read_tallies(path: str | os.PathLike[str], task: Task) -> Tallies:
    """Read a file of tallies strictly: nothing that reports of the task cannot add up to."""
    data = _tally_content(Path(path))
    if data.get("task") != task.digest:
        raise _no_tallies(path, "was made for another task", "Name the task it was made for.")
    tallies = Tallies(task)
    for item in data["tallies"]:
        tally = Tally.from_dict(item)
        names = tally.purpose, tally.tier
        if names in tallies.by_tier:
            raise _no_tallies(path, "holds a purpose and tier twice", "Write it again.")
        purposes = [purpose for purpose in task.purposes if purpose.name == tally.purpose]
        if not purposes or tally.tier not in [tier.name for tier in purposes[0].tiers]:
            raise _no_tallies(path, "holds a purpose or tier that the task does not have", "Write it again.")
        try:
            check_tally(mechanism_of(task, purposes[0]), tally)
        except InputError as error:
            raise InputError(str(path), error.problems) from None
        tallies.by_tier[names] = tally
    return tallies


def _tally_content(path: Path) -> _TalliesData:
    try:
        with path.open("rb") as source:
            content = source.read(MAX_TALLY_BYTES + 1)
        data = json.loads(content) if len(content) <= MAX_TALLY_BYTES else None
    except OSError as error:
        raise _no_tallies(path, f"cannot be read: {error.strerror}", "Name a file of reports or tallies.") from None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("kind") != TALLIES_KIND or not isinstance(data.get("tallies"), list):
        raise _no_tallies(path, "is damaged, or no file of tallies", "Name one that --tally wrote.")
    if data.get("format") != FORMAT:
        raise _no_tallies(path, "has a format that is not known here", "Update Dunnage, or write it again.")
    return cast("_TalliesData", data)


def _no_tallies(path: str | os.PathLike[str], what: str, remedy: str) -> InputError:
    return InputError(str(path), [Problem(what, remedy=remedy)])


# For people


def describe_reports(path: str | os.PathLike[str]) -> tuple[dict[str, object], str]:
    """Describe a report file without its task: how many reports of which task, purpose, tier and days it has."""
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
