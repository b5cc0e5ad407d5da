# SPDX-License-Identifier: Apache-2.0
"""Simulate a fleet from one file: every vehicle in it reports as its own device would, while rows stream past.

By schedule, each vehicle chooses its slots at random for each of the stated days, or from the first day to the last of
the file, whatever rows there are, and reports at each of them until its allowance is used up. With ``every_row`` each
row is a slot of its own, and the result says what that composes to. Noise always comes from the system. A seed makes
only the *public* draws (tiers, slots) repeatable.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dunnage.arrays import FloatArray, IntArray
from dunnage.collecting import files
from dunnage.collecting.batch import perturb_column
from dunnage.collecting.tally import Packed, Tallies, Tally
from dunnage.devices.client import check_task, mechanism_of
from dunnage.devices.report import ID_BYTES, Report, ReportFile, day_text, write_reports
from dunnage.devices.task import MAX_DAYS, SECONDS_PER_DAY, FileColumns, Task
from dunnage.errors import InputError, ParameterError, Problem
from dunnage.exact import decimal_text
from dunnage.folders import new_file
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.tables.columns import MICROS
from dunnage.text import Progress, several

MAX_DRAWN_BYTES = 1 << 29
SHORT_DAY = 0.25  # share of the usual rows below which the first or last day is called nearly empty


@dataclass(kw_only=True)
class Simulation:
    num_rows: int = 0  # num_rows, num_vehicles, num_reports: rows read, vehicles in them, reports made
    num_vehicles: int = 0
    num_reports: int = 0
    # first_day, last_day: days after 1 January 1970; None where moments were not read
    first_day: int | None = None
    last_day: int | None = None
    num_missing: int = 0  # Slots without a row at their moment; these reported that it is missing
    num_silent: int = 0  # Slots that were not reported because the vehicle's allowance was used up
    num_outside: int = 0  # Rows outside the hours of the schedule, which are no slots
    composed: list[str] = field(default_factory=list)  # What all reports of a vehicle reveal together, tier by tier
    notes: list[str] = field(default_factory=list)  # Other remarks

    def to_dict(self) -> dict[str, object]:
        days = [None if day is None else day_text(day) for day in (self.first_day, self.last_day)]
        return {
            "rows": self.num_rows,
            "vehicles": self.num_vehicles,
            "reports": self.num_reports,
            "days": days,
            "missing": self.num_missing,
            "silent": self.num_silent,
            "composed": self.composed,
            "notes": self.notes,
        }

    def summary(self) -> str:
        lines = [f"Reports   {self.num_reports:,} of {self.num_vehicles:,} vehicles, from {self.num_rows:,} rows"]
        if self.first_day is not None and self.last_day is not None:
            lines.append(f"Days      {day_text(self.first_day)} to {day_text(self.last_day)} (UTC)")
        if self.num_missing:
            lines.append(
                f"Missing   {self.num_missing:,} slots had no row at their moment, and report that it is missing"
            )
        if self.num_silent:
            lines.append(f"Silent    {self.num_silent:,} slots were not reported: the allowance was used up")
        lines += [f"Gives     {text}" for text in self.composed]
        return "\n".join([*lines, *(f"Note      {note}" for note in self.notes)])


def simulate(
    data: str | os.PathLike[str],
    task: Task,
    out: str | os.PathLike[str],
    *,
    columns: FileColumns | None = None,
    tiers_column: str | None = None,
    seed: int | None = None,
    every_row: bool = False,
    tally: bool = False,
    days: tuple[str, str] | None = None,
    max_age: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Simulation:
    """Let every vehicle of a file report, and write the reports or their tallies.

    Parameters
    ----------
    data
        CSV, Parquet or Excel file with rows of many vehicles, or a folder of such files.
    task
        The task.
    out
        Report file (``.jsonl``, ``.bin``), or with ``tally`` a file of tallies (``.json``).
    columns
        Names of columns; by default those of the task, which are the policy's.
    tiers_column
        Public column with the tier of each vehicle; without it, tiers are random and equally likely.
    seed
        Makes the choice of tiers and slots repeatable; never the noise.
    every_row
        Treat each row as a slot.
    tally
        Keep tallies only.
    days
        By schedule: the first and the last day, such as ``("2026-10-14", "2026-10-15")``. Rows that cannot be read then
        count as missing. By default the days of the task, or else those of the rows, which the reports then show.
    max_age
        By schedule: how many minutes old a row may be at its slot's moment; by default the length of a slot.
    force
        Replace a file that is there.
    progress
        Called with a line about the progress.

    Returns
    -------
    Simulation
        Counts, and what the reports of a vehicle compose to.

    Raises
    ------
    InputError
        If the file cannot be used. Nothing is written then.
    """
    if tally and not str(out).endswith(".json"):
        raise ParameterError(f"the name of a file of tallies must end in .json. Got {Path(out).name!r}.")
    if not tally:
        ReportFile(out)  # refuses a name with another ending; nothing is opened
    target = files.check_new_file(out, force=force)
    if every_row and (max_age, days) != (None, None):
        raise ParameterError(
            "--max-age, --from and --to apply to slots of the schedule, not to --every-row. Leave one of them out."
        )
    stated = None if every_row or not (days or task.schedule.days) else files.read_days(days, task)
    needs_time = not (every_row and tally) or task.schedule.hours is not None
    names = columns or task.file_columns
    run = _FleetRun(Path(data), task, names, tiers_column, seed, needs_time=needs_time, days=stated)
    tell = progress or (lambda stage: None)
    readings = run.every_row(tell) if every_row else run.scheduled(files.Window(task=task, max_age=max_age), tell)
    if tally:
        tallies = json.dumps(run.tallied(readings).to_dict(), separators=(",", ":")).encode("ascii")
        with new_file(target) as sink:
            sink.write(tallies + b"\n")
    else:
        write_reports(target, run.reports(readings, tell), force=force)
    return run.finish(every_row)


class _FleetRun:
    def __init__(
        self,
        path: Path,
        task: Task,
        columns: FileColumns,
        tiers_column: str | None,
        seed: int | None,
        *,
        needs_time: bool,
        days: tuple[int, int] | None = None,
    ) -> None:
        self.days = days
        self.task, self.columns, self.tiers_column = task, columns, tiers_column
        self.losses = check_task(task)
        self.noise, self.public = Noise(), Noise(seed=seed)
        self.mechanisms = [mechanism_of(task, purpose) for purpose in task.purposes]
        time = columns.time if needs_time or files.most_steps(task) > 1 else None
        labels = [columns.vehicle, *([tiers_column] if tiers_column else [])]
        self.source = files.RowFile(
            path, numbers=columns.numbers_of(task), time=time, labels=labels, lenient=days is not None
        )
        self.fleet = _Vehicles(self.source, task, tiers_column, self.public)
        self.done = Simulation()
        self._rows_of_day: Counter[int] = Counter()

    def _rows(self, tell: Progress) -> Iterator[tuple[files.Rows, IntArray]]:
        total = "" if self.source.num_rows is None else f" of {self.source.num_rows:,}"
        for rows in self.source:
            vehicles = self.fleet.numbers_of(rows, self.columns.vehicle)
            if rows.micros is not None and self.days is None:
                days = [int(end) // (SECONDS_PER_DAY * MICROS) for end in (rows.micros.min(), rows.micros.max())]
                own, nums = np.unique(rows.micros // (SECONDS_PER_DAY * MICROS), return_counts=True)
                self._rows_of_day.update(dict(zip(own.tolist(), nums.tolist(), strict=True)))
                days += [day for day in (self.done.first_day, self.done.last_day) if day is not None]
                self.done.first_day, self.done.last_day = min(days), max(days)
                if max(days) - min(days) >= files.MAX_DAYS_OF_FILE:
                    what = f"spans more than {files.MAX_DAYS_OF_FILE} days"
                    problem = Problem(what, where=self.columns.time, remedy="Correct the times.")
                    raise InputError(str(self.source.path), [problem])
            self.done.num_rows += rows.size
            tell(f"reading: {self.done.num_rows:,}{total} rows")
            yield rows, vehicles
        if not self.done.num_rows:
            raise InputError(str(self.source.path), [Problem("has no rows", remedy="Give a file with rows.")])

    def every_row(self, tell: Progress) -> Iterator[files.Readings]:
        history = _History(self.source, self.columns, files.most_steps(self.task))
        window = files.Window(task=self.task)
        for rows, vehicles in self._rows(tell):
            slots = None if rows.micros is None else window.first_slots(rows.micros)
            steps = [*history.before(rows, vehicles), rows.numbers]
            if slots is not None and self.task.schedule.hours:
                inside = np.isin(slots % self.task.schedule.num_moments, self.task.schedule.moments)
                self.done.num_outside += int((~inside).sum())
                slots, vehicles = slots[inside], vehicles[inside]
                steps = [{name: column[inside] for name, column in step.items()} for step in steps]
            yield files.Readings(tiers=self.fleet.tiers[vehicles], slots=slots, steps=steps)

    def scheduled(self, window: files.Window, tell: Progress) -> Iterator[files.Readings]:
        log, chosen = files.Log(window, self.columns), _DrawnSlots(self.task, self.public)
        before = window.num_slots * window.slot_seconds
        for rows, vehicles in self._rows(tell):
            assert rows.micros is not None
            first, last = self.days or (0, MAX_DAYS)
            early, late = first * SECONDS_PER_DAY - before, (last + 1) * SECONDS_PER_DAY
            near = np.flatnonzero((rows.micros >= early * MICROS) & (rows.micros < late * MICROS))
            if near.size:
                matter = chosen.matter(window, vehicles[near], rows.micros[near], self.fleet.num_vehicles)
                log.add(vehicles, rows, near[matter])
        log.close()
        if self.days is not None:
            self.done.first_day, self.done.last_day = self.days
        first, last = self.done.first_day, self.done.last_day  # type: ignore[assignment]
        assert first is not None and last is not None  # noqa: PT018
        chosen.reach(first, last, self.fleet.num_vehicles)
        left = self._affordable()[self.fleet.tiers]
        for day in range(first, last + 1):
            vehicles, slots = chosen.of_day(day, self.fleet.num_vehicles)
            speaks = _rank_of_equals(vehicles) < left[vehicles]
            self.done.num_silent += int((~speaks).sum())
            vehicles, slots = vehicles[speaks], slots[speaks]
            left -= np.bincount(vehicles, minlength=left.size)
            readings = log.readings(vehicles, self.fleet.tiers[vehicles], day * chosen.num_moments + slots)
            self.done.num_missing += readings.num_missing
            yield readings

    def _affordable(self) -> IntArray:
        slots = (self.losses.bounded_of_slot(tier) for tier in self.task.tier_names)
        most = np.iinfo(np.int64).max // 2
        return np.array([min(self.task.limits.lifetime // loss, most) if loss else most for loss in slots])

    def tallied(self, readings: Iterator[files.Readings]) -> Tallies:
        tallies = Tallies(self.task)
        for some in readings:
            for number, purpose in enumerate(self.task.purposes):
                values, tiers = some.columns(purpose, self.columns.places), self._tiers(number, some.tiers)
                for index, tier in enumerate(self.task.slot_tiers(purpose)):
                    own = slice(None) if len(purpose.tiers) == 1 else np.flatnonzero(tiers == index)
                    names, columns = (purpose.name, tier.name), [column[own] for column in values]
                    tally = tallies.by_tier.get(names) or Tally(purpose=purpose.name, tier=tier.name)
                    law = self.mechanisms[number]
                    tallies.by_tier[names] = perturb_column(law, tier, columns, self.noise, tally=tally)
            self.done.num_reports += some.tiers.size * len(self.task.purposes)
        tallies.by_tier = {names: tally for names, tally in tallies.by_tier.items() if tally.num_reports}
        return tallies

    def _tiers(self, purpose: int, tiers: IntArray) -> IntArray:
        own = [self.task.tier_index(self.task.purposes[purpose], name) for name in self.task.tier_names]
        return np.array(own)[tiers]

    def reports(self, readings: Iterator[files.Readings], tell: Progress) -> Iterator[Report]:
        """Perturb readings one by one, those of a slot in a random order."""
        for some in readings:
            assert some.slots is not None
            purposes, num = np.divmod(np.arange(some.tiers.size * len(self.mechanisms)), max(some.tiers.size, 1))
            ids = np.frombuffer(self.noise.draw_bytes(ID_BYTES * num.size), dtype=np.uint64).reshape(-1, ID_BYTES // 8)
            columns = [some.columns(purpose, self.columns.places) for purpose in self.task.purposes]
            values = [list(zip(*(column.tolist() for column in own), strict=True)) for own in columns]
            tiers = [self._tiers(number, some.tiers) for number in range(len(self.mechanisms))]
            for at in np.lexsort((*ids.T, some.slots[num])):
                number, row = int(purposes[at]), int(num[at])
                purpose, tier = self.task.purposes[number], int(tiers[number][row])
                day, moment = divmod(int(some.slots[row]), self.task.schedule.num_moments)
                value, own = files.value_of(purpose, values[number][row]), self.task.slot_tiers(purpose)[tier]
                yield Report(
                    task=self.task.prefix,
                    purpose=number,
                    tier=tier,
                    day=day,
                    slot=moment,
                    report_id=ids[at].tobytes(),
                    payload=self.mechanisms[number].perturb(value, tier=own, noise=self.noise),
                )
                self.done.num_reports += 1
                if self.done.num_reports % 10_000 == 0:
                    tell(f"perturbing: {self.done.num_reports:,} reports")

    def finish(self, every_row: bool) -> Simulation:
        done = self.done
        done.num_vehicles = self.fleet.num_vehicles
        done.notes = [*self.source.warnings(), *self.source.notes()]
        if not every_row and self.days is None:
            done.notes.append(
                "the days are those of the first and last row, and reports show them; state them with --from and --to"
            )
            done.notes += self._short_days()
        if done.num_outside:
            done.notes.append(
                f"{done.num_outside:,} rows outside the hours of the schedule are no slots, and not reported"
            )
        filled = np.bincount(self.fleet.tiers, minlength=len(self.task.tier_names)) > 0
        if every_row:
            most = np.zeros(len(self.task.tier_names), dtype=np.int64)
            np.maximum.at(most, self.fleet.tiers, self.fleet.num_rows)
            words = "; each row counted as a slot, so do not use this as a schedule"
        else:
            assert done.first_day is not None and done.last_day is not None  # noqa: PT018
            num_slots = (done.last_day - done.first_day + 1) * self.task.schedule.slots_per_day
            most, words = np.minimum(self._affordable(), num_slots), ""
        limit = self.task.limits.lifetime
        for tier, num, any_vehicle in zip(self.task.tier_names, most, filled, strict=True):
            slot = self.losses.of_slot(tier)
            reports = f"reports of {num:,} {'slot' if num == 1 else 'slots'} of a vehicle"
            if slot is None:
                text = f"tier {tier}: {reports} reveal more than any bound"
            else:
                total: Fraction = slot * int(num)
                beyond = f", beyond the lifetime limit of {decimal_text(limit)}" if total > limit else ""
                text = f"tier {tier}: {reports} add up to at most epsilon {decimal_text(total, up=True)}{beyond}"
            done.composed += [text + words] if any_vehicle else []
        slots = done.num_reports // len(self.task.purposes)
        if done.num_missing * 2 > slots:
            done.notes.append(
                "most slots had no recent row: if vehicles rest at some hours, state working hours in [schedule]; if "
                "rows are farther apart than slots, allow older rows with --max-age"
            )
        return done

    def _short_days(self) -> Iterator[str]:
        """Name a first or last day with few rows: shifts that run past midnight add one, and it is nearly empty."""
        first, last = self.done.first_day, self.done.last_day
        usual = float(np.median(list(self._rows_of_day.values()) or [0]))
        short = [day for day in (first, last) if day is not None and self._rows_of_day[day] < SHORT_DAY * usual]
        for day in short:
            few = several(self._rows_of_day[day], "row")
            yield (
                f"{day_text(day)} has only {few} (other days about {usual:,.0f}), as if shifts ran past midnight UTC: "
                "most of its slots are missing"
            )
        if first is not None and last is not None and short:
            ends = day_text(first + (first in short)), day_text(last - (last in short))
            yield (
                f'leave out days that are nearly empty: days = ["{ends[0]}", "{ends[1]}"] in [schedule], so that '
                f"audits know it too; or --from {ends[0]} --to {ends[1]}"
            )


def _rank_of_equals(numbers: IntArray) -> IntArray:
    """Return, for sorted numbers, how many equal ones come before each."""
    starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))[: numbers.size]
    return np.arange(numbers.size) - np.repeat(starts, np.diff(np.append(starts, numbers.size)))


class _Vehicles:
    def __init__(self, source: files.RowFile, task: Task, tiers_column: str | None, public: Noise) -> None:
        self._source, self._tier_names, self._column = source, list(task.tier_names), tiers_column
        self._public = public
        self._names = pa.array([], pa.string())
        self._last = self._names, np.zeros(0, dtype=np.int64)
        self.tiers = np.zeros(0, dtype=np.int64)
        self.num_rows = np.zeros(0, dtype=np.int64)

    @property
    def num_vehicles(self) -> int:
        return len(self._names)

    def numbers_of(self, rows: files.Rows, column: str) -> IntArray:
        labels = rows.labels[column]
        codes = labels.indices.to_numpy(zero_copy_only=False)
        numbers = self._last[1] if labels.dictionary.equals(self._last[0]) else self._find(labels.dictionary)
        fresh = np.unique(codes[numbers[codes] < 0])  # a dictionary may have names that no row uses
        if fresh.size:
            new = pc.unique(labels.dictionary.take(pa.array(fresh)))
            self._names = pa.concat_arrays([self._names, new])
            numbers = self._find(labels.dictionary)
        self._last = labels.dictionary, numbers  # batches of one row group have the same
        vehicles: IntArray = numbers[codes]
        num_new = self.num_vehicles - self.tiers.size
        self.num_rows = np.append(self.num_rows, np.zeros(num_new, dtype=np.int64))
        self.num_rows += np.bincount(vehicles, minlength=self.num_vehicles)
        if self._column is None:
            self.tiers = np.append(self.tiers, noise_arrays.below(self._public, len(self._tier_names), num_new))
            return vehicles
        self.tiers = np.append(self.tiers, np.full(num_new, -1))
        labels, names = rows.labels[self._column], {name: number for number, name in enumerate(self._tier_names)}
        by_label = np.array([names.get(text, -1) for text in labels.dictionary.to_pylist()], dtype=np.int64)
        tiers = by_label[labels.indices.to_numpy(zero_copy_only=False)]
        if (tiers < 0).any():
            remedy = f"Write one of {', '.join(self._tier_names)}."
            wrong = rows.first + np.flatnonzero(tiers < 0)
            raise self._source.refused(self._column, "is not a tier of the task", wrong, remedy)
        first = self.tiers[vehicles] < 0
        self.tiers[vehicles[first]] = tiers[first]
        differs = self.tiers[vehicles] != tiers
        if differs.any():
            what = "differs from other rows of the vehicle"
            remedy = "A vehicle's tier is public and fixed: write the same tier in all its rows."
            raise self._source.refused(self._column, what, rows.first + np.flatnonzero(differs), remedy)
        return vehicles

    def _find(self, names: pa.Array) -> IntArray:
        numbers = pc.index_in(names, value_set=self._names).fill_null(-1)
        return np.asarray(numbers.cast(pa.int64()).to_numpy(zero_copy_only=False))


class _History:
    def __init__(self, source: files.RowFile, columns: FileColumns, num_steps: int) -> None:
        self._source, self._columns, self._num = source, columns, num_steps - 1
        # For each vehicle the latest row first; NaN where there was no row. Shape: rows before, vehicles.
        self._places = {name: np.full((self._num, 0), np.nan) for name in columns.places}
        self._micros = np.zeros(0, dtype=np.int64)

    def before(self, rows: files.Rows, vehicles: IntArray) -> list[dict[str, FloatArray]]:
        """Return for each row the places of the vehicle's rows before it, the earliest first."""
        if not self._num:
            return []
        num_vehicles = int(vehicles.max()) + 1
        if (more := num_vehicles - self._micros.size) > 0:
            self._micros = np.append(self._micros, np.zeros(more, dtype=np.int64))
            empty = np.full((self._num, more), np.nan)
            self._places = {name: np.append(kept, empty, axis=1) for name, kept in self._places.items()}
        order = np.argsort(vehicles, kind="stable")
        own = vehicles[order]
        rank = _rank_of_equals(own)
        assert rows.micros is not None
        micros = rows.micros[order]
        before = np.where(rank > 0, np.append(0, micros[:-1]), self._micros[own])
        if (wrong := np.sort(order[micros < before])).size:
            what, remedy = "is before the time of an earlier row of the vehicle", "Sort the file by time."
            raise self._source.refused(self._columns.time, what, rows.first + wrong, remedy)
        self._micros[own] = micros  # the last of several stays, because rows of a vehicle are in order
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        steps: list[dict[str, FloatArray]] = [{} for _ in range(self._num)]
        for name, kept in self._places.items():
            column = rows.numbers[name][order]
            for lag in range(1, self._num + 1):
                here = np.append(np.full(lag, np.nan), column)[: column.size]
                early = np.flatnonzero(rank < lag)
                here[early] = kept[lag - 1 - rank[early], own[early]]
                steps[self._num - lag][name] = here[back]
            last, earlier = np.flatnonzero(np.append(own[1:] != own[:-1], True)), kept.copy()
            for lag in range(self._num):
                inside = rank[last] >= lag
                recent, old = last[inside], last[~inside]
                kept[lag, own[recent]] = column[recent - lag]
                kept[lag, own[old]] = earlier[lag - 1 - rank[old], own[old]]
        return steps


class _DrawnSlots:
    """The random slots of vehicles and days, as bits; chosen when they are first needed."""

    # The choice depends on nothing, so choosing late is the same as choosing before the day.

    def __init__(self, task: Task, public: Noise) -> None:
        self._schedule, self._public = task.schedule, public
        self.num_moments = task.schedule.num_moments
        self._first = 0
        self._bits: Packed = np.zeros((0, 0, -(-self.num_moments // 8)), dtype=np.uint8)  # day, vehicle, byte

    def matter(
        self, window: files.Window, vehicles: IntArray, micros: IntArray, num_vehicles: int
    ) -> NDArray[np.bool_]:
        """Return which rows may be the reading of a chosen slot, or part of its path."""
        slots = window.first_slots(micros)
        last = int(slots.max()) + window.num_slots - 1
        self.reach(int(slots.min()) // self.num_moments, last // self.num_moments, num_vehicles)
        matters = np.zeros(slots.size, dtype=bool)
        for lag in range(window.num_slots):
            days, moments = np.divmod(slots + lag, self.num_moments)
            matters |= (self._bits[days - self._first, vehicles, moments >> 3] >> (moments & 7) & 1).astype(bool)
        return matters

    def reach(self, first: int, last: int, num_vehicles: int) -> None:
        """Choose the slots of some days and vehicles, as far as that has not been done."""
        days, room, _ = self._bits.shape
        if num_vehicles > room:
            more = max(num_vehicles, room * 3 // 2) - room  # a few in advance, so that growing stays cheap
            self._bits = np.concatenate([self._bits, self._draw(days, more)], axis=1)
            room += more
        if not days:
            self._first, self._bits = first, self._draw(last - first + 1, room)
            return
        early, late = self._first - first, last - (self._first + days - 1)
        if early > 0:
            self._first, self._bits = first, np.concatenate([self._draw(early, room), self._bits])
        if late > 0:
            self._bits = np.concatenate([self._bits, self._draw(late, room)])

    def _draw(self, days: int, vehicles: int) -> Packed:
        num, bits = days * vehicles, self._bits.shape[2]
        if num * bits + self._bits.size > MAX_DRAWN_BYTES:
            raise ParameterError("the file has too many vehicles and days for one simulation. Split it by days.")
        chosen, rows = np.zeros((num, bits), dtype=np.uint8), np.arange(num)
        choices = np.array(self._schedule.moments)
        # Floyd's sampling, as a device does it: one draw for each slot.
        for last in range(choices.size - self._schedule.slots_per_day, choices.size) if num else ():
            moments = choices[noise_arrays.below(self._public, last + 1, num)]
            moments = np.where(chosen[rows, moments >> 3] >> (moments & 7) & 1, choices[last], moments)
            chosen[rows, moments >> 3] |= (1 << (moments & 7)).astype(np.uint8)
        return chosen.reshape(days, vehicles, bits)

    def of_day(self, day: int, num_vehicles: int) -> tuple[IntArray, IntArray]:
        bits = np.unpackbits(self._bits[day - self._first, :num_vehicles], axis=1, bitorder="little")
        vehicles, slots = np.nonzero(bits)
        return vehicles, slots
