# SPDX-License-Identifier: Apache-2.0
"""Estimates from devices: what the collector of the reports learns about one vehicle, and how far estimates are off.

Attacks follow from the laws of the reports, which are public. The attacker is the platform, or someone who listens to
it: they see every report of one vehicle, know the task, and, unless the audit is external, also how the whole fleet's
values and places are spread. Of several tiers the one with the largest epsilon is attacked. Errors compare with the
truth and are private. Their baseline is what anyone could say without a report: the middle of the domain, and a map
that gives every place the same share.

The same code reads the rows of a fleet, and matches slots with rows, as for the files of devices. The truth is an
average: over all slots of all vehicles and days, each of which is equally likely to be sampled, or over all rows. The
true mean of a number is that of the readings there are, however the devices reported the missing ones.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.auditing import findings
from dunnage.auditing.findings import Details, Interval, KeyFigure, Progress, VehicleAtRisk, figure, wilson, words
from dunnage.collecting import batch
from dunnage.collecting.batch import find_inputs
from dunnage.collecting.estimate import MAX_SHARES, planar_matrix, walsh_hadamard
from dunnage.collecting.files import Log, Readings, RowFile, Rows, Window, most_steps, read_days
from dunnage.collecting.tasks import CarrierPolicy, read_carriers, task_of
from dunnage.devices.client import TaskLosses, check_task, mechanism_of
from dunnage.devices.numbers import (
    Designed,
    Hybrid,
    JointReport,
    LaplaceNumber,
    LocalNumeric,
    NumberLaw,
    Reading,
    SampledReport,
    WindowLaw,
    odds_of,
)
from dunnage.devices.paths import Independent, LocalTrajectory, PlaceByPlace
from dunnage.devices.places import (
    Design,
    Disk,
    HadamardResponse,
    InClear,
    LocalLocation,
    OptimisedUnary,
    Planar,
    ProjectiveResponse,
    RandomisedResponse,
    SubsetSelection,
    SymmetricUnary,
)
from dunnage.devices.report import day_text
from dunnage.devices.subjects import Grid, Quantity, Tier
from dunnage.devices.task import SECONDS_PER_DAY, FileColumns, Purpose, Task
from dunnage.errors import CheckFailed, InputError, ParameterError, ReleaseError, TaskError
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.release import Release
from dunnage.release.kinds import floats
from dunnage.release.kinds.estimates import OTHER, OUTSIDE
from dunnage.tables.reader import FIRST_ROW
from dunnage.text import number_text, percent
from dunnage.verification import check_estimate_columns, check_estimate_lines

NUM_BUCKETS = 10  # Buckets of equal width that a number is guessed in
PERIODS = (("1 day", 1), ("30 days", 30), ("1 year", 365))
# Numbers of reports that the page plots: among them one hour and eight hours of a report every five minutes
CURVE = (1, 12, 30, 96, 365)
UNIQUE_HOURS = (1, 2, 4)
MAX_COMPARED = 500  # Vehicles with sampled slots that are compared with the whole fleet
MAX_MAP_CELLS = 4_096
DAYS_SEEN = 30
_MEAN, _PRESENT = "mean", "present"
_CHUNK_SLOTS = 1 << 21
_MAX_SLOTS = 1 << 27  # Slots of all vehicles, sampled or not, that the truth is averaged over

# How often a law without a closed form is simulated; the more symbols there are, the less often
SIMULATIONS, MIN_SIMULATIONS = 2_000, 200
MAX_ENUMERATED = 1 << 17  # Multisets of symbols that are enumerated
MAX_LISTED = 1 << 12  # Symbols whose multisets are
MAX_ENTRIES = 1 << 22  # Entries of a channel's matrix, or of a table of draws, that are kept at once
MAX_RESPONSES = 600  # Reports for which randomised response is computed in closed form
MAX_DRAWN_REPORTS = 2_000  # Reports of one vehicle that are simulated; more of them locate it no less often
MAX_WITH_PRIOR = 1_200  # Places of unary encoding that a prior distinguishes in closed form
_NEGLIGIBLE = 1e-18
_TIE = 1e-9
_WORD = 53


# The private rows


@dataclass(frozen=True, eq=False, repr=False)
class Fleet:
    """The private rows of many vehicles, as devices would have read them. Made by :meth:`read`; ``repr`` shows none."""

    task: Task  # What was reported
    columns: FileColumns
    vehicles: IntArray  # Number of the vehicle of each row
    micros: IntArray | None  # Moments of the rows; None if the policy names no column of time
    numbers: Mapping[str, FloatArray]  # Columns of numbers, NaN where one is missing
    notes: tuple[str, ...] = ()  # What came up when the file was read
    policy_digest: str = ""
    reported: tuple[int, int] | None = None  # First and last day of the reports, if stated; from 1 January 1970

    def __repr__(self) -> str:
        return f"Fleet({self.task.dataset!r}, private)"

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        policy: CarrierPolicy | str | os.PathLike[str],
        *,
        days: tuple[str, str] | None = None,  # First and last day that devices reported, if the policy does not say so
    ) -> Fleet:
        """Read the rows of a file, or of a folder of files, under a policy for devices."""
        rules = policy if isinstance(policy, CarrierPolicy) else read_carriers(policy)
        task, columns = task_of(rules), rules.file_columns
        source = RowFile(Path(path), numbers=columns.numbers_of(task), time=rules.time, labels=[columns.vehicle])
        codes: dict[str, int] = {}
        pieces = []
        for rows in source:  # vehicles are numbered in the order they appear
            labels = rows.labels[columns.vehicle]
            own = [codes.setdefault(text, len(codes)) for text in labels.dictionary.to_pylist()]
            pieces.append((np.array(own, dtype=np.int64)[labels.indices.to_numpy(zero_copy_only=False)], rows))
        if not pieces:
            raise InputError(str(path), ["has no rows. Give the rows that devices reported from."])
        fleet = cls(
            task=task,
            columns=columns,
            vehicles=np.concatenate([vehicles for vehicles, _ in pieces]),
            micros=np.concatenate([rows.micros for _, rows in pieces]) if rules.time else None,
            numbers={name: np.concatenate([rows.numbers[name] for _, rows in pieces]) for name in source.numbers},
            notes=tuple(source.notes()),
            policy_digest=rules.digest(),
            reported=None if days is None else read_days(days, task),
        )
        if not len(fleet.order):
            raise InputError(str(path), ["has no rows on the days of the reports. Correct --from and --to."])
        return fleet

    @property
    def num_vehicles(self) -> int:
        return int(self.vehicles.max()) + 1

    @property
    def num_rows(self) -> int:
        return len(self.vehicles)

    @cached_property
    def _log(self) -> Log:
        log = Log(Window(task=self.task), self.columns)
        log.add(self.vehicles, Rows(1, self.num_rows, dict(self.numbers), self.micros))
        log.close()
        return log

    @cached_property
    def days(self) -> range:
        """The days of the reports or, if nobody states them, of the rows; from 1 January 1970."""
        assert self.micros is not None
        if stated := self.reported or (self.task.schedule.span if self.task.schedule.days else None):
            return range(stated[0], stated[1] + 1)
        per_day = SECONDS_PER_DAY * 1_000_000
        return range(int(self.micros.min()) // per_day, int(self.micros.max()) // per_day + 1)

    @property
    def compared_days(self) -> str:
        stated = words("days stated" if self.reported or self.task.schedule.days else "days of rows")
        return words("truth by slot", first=day_text(self.days[0]), last=day_text(self.days[-1]), stated=stated)

    @property
    def num_slots(self) -> int:
        return self.num_vehicles * len(self.days) * len(self.task.schedule.moments) if self.micros is not None else 0

    @cached_property
    def is_sparse(self) -> bool:
        """Whether rows of a vehicle usually lie over two slots apart, so that readings depend on the max age."""
        assert self.micros is not None
        vehicles, micros = self.vehicles[self.order], self.micros[self.order]
        apart = np.diff(micros)[vehicles[1:] == vehicles[:-1]]
        limit = 2 * self.task.schedule.slot_minutes * 60 * 1_000_000
        return bool(np.median(apart) > limit) if apart.size else self.num_rows * 2 < self.num_slots

    def by_slot(self, *, all_day: bool = False) -> Iterator[Readings]:
        """Yield what every vehicle would report at every slot of every day: all are equally likely."""
        schedule = self.task.schedule
        moments = np.array(range(schedule.num_moments) if all_day else schedule.moments)
        step = max(1, _CHUNK_SLOTS // len(moments))
        for day in self.days:
            slots = day * schedule.num_moments + moments
            for start in range(0, self.num_vehicles, step):
                some = np.arange(start, min(start + step, self.num_vehicles))
                vehicles = np.repeat(some, len(moments))
                yield self._log.readings(vehicles, np.zeros_like(vehicles), np.tile(slots, len(some)))

    @cached_property
    def order(self) -> IntArray:
        """Rows of the reported days in the order of vehicles and moments, as in :meth:`by_row`."""
        if self.micros is None:
            return np.lexsort((self.vehicles,))
        order = np.lexsort((self.micros, self.vehicles))
        days = self.micros[order] // (SECONDS_PER_DAY * 1_000_000)
        return order if self.reported is None else order[(days >= self.reported[0]) & (days <= self.reported[1])]

    def by_row(self) -> Iterator[Readings]:
        """Yield every row as a reading; its path is the vehicle's rows before it."""
        order = self.order
        vehicles, steps = self.vehicles[order], []
        for back in range(most_steps(self.task) - 1, -1, -1):
            rows = np.arange(len(order)) - back
            same, before = (rows >= 0) & (vehicles[np.maximum(rows, 0)] == vehicles), order[np.maximum(rows, 0)]
            steps.append({name: np.where(same, column[before], np.nan) for name, column in self.numbers.items()})
        yield Readings(tiers=np.zeros_like(vehicles), slots=None, steps=steps)

    def areas(self, grid: Grid) -> IntArray:
        """Return the area of each vehicle (rows) at each moment (columns), as reports in clear show it."""
        pieces: dict[int, list[IntArray]] = {}
        for readings in self.by_slot(all_day=True):
            assert readings.slots is not None
            longitudes, latitudes = (readings.steps[-1][name] for name in self.columns.places)
            cells = batch.find_cells(grid, longitudes, latitudes)
            # A missing place shows as the first area.
            areas = np.where(cells == grid.outside, 0, cells >> grid.inner_bits)
            day = int(readings.slots[0]) // self.task.schedule.num_moments
            pieces.setdefault(day, []).append(areas.reshape(-1, self.task.schedule.num_moments))
        return np.concatenate([np.concatenate(parts) for _, parts in sorted(pieces.items())], axis=1)


def inputs_of(mechanism: LocalLocation | LocalTrajectory, law: Any, columns: Sequence[FloatArray]) -> IntArray:
    if isinstance(mechanism, LocalLocation):
        return find_inputs(law, mechanism.grid, *columns)
    places = zip(columns[::2], columns[1::2], strict=True)
    cells = np.stack([batch.find_cells(mechanism.grid, *place) for place in places])
    if isinstance(mechanism.paths, PlaceByPlace):
        return np.asarray(np.ravel_multi_index(tuple(cells), (mechanism.grid.num_cells + 1,) * mechanism.steps))
    return batch.find_paths(mechanism.paths, cells)


@dataclass(eq=False)
class NumberTruth:
    """How a number is truly spread over what may have been reported."""

    weights: FloatArray  # Chances of buckets and points, times `num`
    total: float = 0.0  # Sum of the normalised numbers that are present
    num: int = 0  # num, num_missing: how many are present, and how many are missing
    num_missing: int = 0

    def add(self, quantity: Quantity, column: FloatArray) -> None:
        low, high = float(quantity.low), float(quantity.high)
        normalised = (2 * np.clip(column, low, high) - low - high) / (high - low)  # to [-1, 1]
        kept = normalised[~np.isnan(normalised)]
        self.num_missing += len(normalised) - len(kept)
        if len(kept):
            self.total += float(kept.sum())
            self.num += len(kept)
            self.weights += len(kept) * bucket_weights(kept, NUM_BUCKETS, quantity.steps)


@dataclass(eq=False)
class FleetTruth:
    """What devices would have reported without noise."""

    by_row: bool  # Whether every row counts once; else every slot of the schedule does
    numbers: dict[tuple[str, str], NumberTruth] = field(default_factory=dict)  # By purpose and quantity
    maps: dict[str, IntArray] = field(default_factory=dict)  # By purpose: how often each input of its law came up

    @classmethod
    def of(cls, fleet: Fleet, *, by_row: bool) -> FleetTruth:
        truth = cls(by_row)
        for readings in fleet.by_row() if by_row else fleet.by_slot():
            for purpose in fleet.task.purposes:
                columns, mechanism = readings.columns(purpose, fleet.columns.places), mechanism_of(fleet.task, purpose)
                if purpose.grid is None:
                    for quantity, column in zip(purpose.quantities, columns, strict=True):
                        empty = NumberTruth(np.zeros((NUM_BUCKETS, 2 * quantity.steps + 1)))
                        truth.numbers.setdefault((purpose.name, quantity.name), empty).add(quantity, column)
                    continue
                law = mechanism.channel(mechanism.levels[0])
                if law.num_inputs > MAX_SHARES:  # too many to estimate, either
                    continue
                counts = np.bincount(inputs_of(mechanism, law, columns), minlength=law.num_inputs)
                if isinstance(law, Planar):  # a missing place counts as the middle
                    counts[law.centre] += counts[-1]
                    counts[-1] = 0
                truth.maps[purpose.name] = truth.maps.get(purpose.name, np.zeros_like(counts)) + counts
        return truth


# What the release tells, and what is true


class MeanEstimate(NamedTuple):
    purpose: str  # purpose, quantity: what was reported
    quantity: Quantity
    of_presence: bool  # Whether it is the share of values that are present
    value: float | None  # value, lower, upper: estimate (None if no report covers it) and interval
    lower: float
    upper: float


class MapEstimate(NamedTuple):
    what: str  # `place` or `path`
    grid: Grid | None  # The grid of a map; None for paths
    num_inputs: int  # Number of shares, listed or not
    inputs: IntArray  # Numbers of the listed ones
    value: FloatArray  # value, lower, upper: their shares and intervals
    lower: FloatArray
    upper: FloatArray
    remainder: float = 0.0  # Share of all others

    @classmethod
    def of(cls, task: Task, purpose: Purpose, lines: pa.Table) -> MapEstimate:
        mechanism, remainder, num_inputs = mechanism_of(task, purpose), 0.0, len(lines)
        paths = isinstance(mechanism, LocalTrajectory)
        if paths:
            is_other = pc.equal(lines["path"], OTHER)
            remainder, lines = math.fsum(lines["value"].filter(is_other).to_pylist()), lines.filter(pc.invert(is_other))
            outside = mechanism.grid.outside  # a path is written as its cells in order, or as one word
            texts = [
                text if text != OUTSIDE else ">".join([OUTSIDE] * mechanism.steps) for text in lines["path"].to_pylist()
            ]
            cells = [tuple(outside if cell == OUTSIDE else int(cell) for cell in text.split(">")) for text in texts]
            inputs = np.array([int(mechanism.paths.index(path)) for path in cells])
            num_inputs = mechanism.channel(mechanism.levels[0]).num_inputs
        else:
            inputs = np.array(lines["cell"].to_pylist())
        value, lower, upper = (floats(lines, name) for name in ("value", "lower", "upper"))
        what, grid = ("path", None) if paths else ("place", purpose.grid)
        return cls(what, grid, num_inputs, inputs, value, lower, upper, remainder)


class EstimatesView(NamedTuple):
    task: Task  # What devices reported
    num_reports: int  # Reports of each purpose, at most
    confidence: float  # Stated confidence of every interval
    means: tuple[MeanEstimate, ...]  # means, maps: what was estimated
    maps: Mapping[str, MapEstimate]

    @classmethod
    def of(cls, release: Release) -> EstimatesView:
        stated, lines = release.certificate, release.data.to_pylist()
        try:
            check_estimate_columns(release)
            check_estimate_lines(release)
            task = Task.from_json(json.dumps(stated.estimates.task))
            check_task(task)
        except (CheckFailed, TaskError) as failure:
            raise ReleaseError(f"the release does not state what it estimates, or how: {failure}. Verify it.") from None
        purposes = {purpose.name: purpose for purpose in task.purposes}
        quantities = {(name, item.name): item for name, purpose in purposes.items() for item in purpose.quantities}
        means = []
        for line in lines:
            if line["quantity"] in (_MEAN, _PRESENT):
                purpose, bounds = line["purpose"], (line["value"], line["lower"], line["upper"])
                of_presence = line["quantity"] == _PRESENT
                means.append(MeanEstimate(purpose, quantities[purpose, line["attribute"]], of_presence, *bounds))
        maps = {
            name: MapEstimate.of(task, purpose, release.data.filter(pc.equal(release.data["purpose"], name)))
            for name, purpose in purposes.items()
            if purpose.grid is not None and stated.estimates.reports[name]
        }
        num_reports = max(sum(tiers.values()) for tiers in stated.estimates.reports.values())
        return cls(task, num_reports, float(str(stated.mechanism["confidence"])), tuple(means), maps)


class EstimatesTruth(NamedTuple):
    """Estimates, the private rows, and their true values. Private."""

    view: EstimatesView
    fleet: Fleet
    truth: FleetTruth
    notes: tuple[str, ...] = ()
    slots_known: bool = True  # Whether the truth shows which slots had no reading

    @classmethod
    def of(cls, view: EstimatesView, fleet: Fleet) -> EstimatesTruth:
        if view.task.digest != fleet.task.digest:
            # A policy that does not say how missing numbers are reported: version 0.1 took the middle.
            missing = {(p.name, q.name): q.missing for p in view.task.purposes for q in p.quantities}
            purposes = []
            for p in fleet.task.purposes:
                quantities = [replace(q, missing=missing.get((p.name, q.name), q.missing)) for q in p.quantities]
                purposes.append(replace(p, quantities=tuple(quantities)))
            if view.task.digest != replace(fleet.task, purposes=tuple(purposes)).digest:
                raise ReleaseError(
                    "the release was made for another task than this policy's. Give the policy that devices reported "
                    "under."
                )
            fleet = replace(fleet, task=view.task)
        whys: dict[str, Callable[[], bool]] = {
            "no column of time": lambda: fleet.micros is None,
            "rows are reports": lambda: view.num_reports == fleet.num_rows,
            "rows far apart": lambda: fleet.is_sparse,
            "too many slots": lambda: fleet.num_slots > _MAX_SLOTS,
        }
        why = next((why for why, holds in whys.items() if holds()), "")
        note = words("truth by row", why=words(why)) if why else fleet.compared_days
        slots_known = why in ("", "rows are reports")
        return cls(view, fleet, FleetTruth.of(fleet, by_row=bool(why)), (note, *fleet.notes), slots_known)


# The attacker, by the laws alone


class Target(NamedTuple):
    """One kind of report of the attacked vehicle, which is in the tier with the largest epsilon."""

    task: Task  # task, purpose: what is reported
    purpose: Purpose
    mechanism: Any  # mechanism, tier: by which law
    tier: Tier
    max_reports: int  # Reports that the allowance of a lifetime pays for

    @classmethod
    def all_of(cls, task: Task, losses: TaskLosses) -> list[Target]:
        targets = []
        for purpose in task.purposes:
            tiers = {name: task.slot_tiers(purpose)[task.tier_index(purpose, name)] for name in task.tier_names}
            name = max(tiers, key=lambda each: tiers[each].epsilon)
            loss = losses.bounded_of_slot(name)
            most = max(int(task.limits.lifetime // loss) if loss else 1 << 31, 1)
            targets.append(cls(task, purpose, mechanism_of(task, purpose), tiers[name], most))
        return targets

    @property
    def law(self) -> Any:
        return self.mechanism.channel(self.tier)

    @property
    def what(self) -> str:
        return "path" if self.purpose.steps > 1 else "place"

    def reports_of(self, days: int) -> int:
        return min(days * self.task.schedule.slots_per_day, self.max_reports)  # as far as the allowance reaches


def view_figures(task: Task, tell: Progress) -> tuple[list[KeyFigure], list[str]]:
    """Compute what the task alone reveals about one vehicle; return figures and notes."""
    losses, figures = check_task(task), []
    # What a suspicion of 50 % becomes at most from the reports of one slot, one day and a lifetime.
    slots = [losses.of_slot(name) for name in task.tier_names]
    slot = None if None in slots else max(loss for loss in slots if loss is not None)
    spans = {
        "one slot": slot,
        "one day": None if slot is None else slot * task.schedule.slots_per_day,
        "lifetime": None if slot is None else task.limits.lifetime,
    }
    for span, exactly in spans.items():
        loss = None if exactly is None else float(exactly)
        # Only a loss without a bound is certain; a float would round to 1 from a loss of 37 on.
        value = 1.0 if loss is None else min(1 / (1 + math.exp(-loss)), math.nextafter(1.0, 0.0))
        facts = {"span": span, "reports": words(span), "topic": "table" if span == "one slot" else "several releases"}
        facts["bound"] = words("no bound") if loss is None else words("loss at most", loss=loss)
        figures.append(figure("suspicion at most, {span}", value, 0.5, None, {"loss": loss}, **facts))
    notes = [words("each by itself")] if len(task.purposes) > 1 else []
    for target in Target.all_of(task, losses):
        tell(f"attacking {target.purpose.name}")
        try:
            figures += _number_figures(target, None) if target.purpose.grid is None else _place_figures(target)
        except ParameterError as error:
            notes.append(words("not attacked", purpose=target.purpose.name, error=error))
    return figures, notes


@lru_cache(maxsize=256)
def located(law: Any, num_reports: int) -> Guess:
    """Locate a parked truck among places that are alike; cached, as several figures need it."""
    return locate(law, num_reports)


def _guess_figure(
    key: str, target: Target, num: int, guess: Guess, topic: str, more: Details, **facts: object
) -> KeyFigure:
    estimated = "" if guess.computed else words("by simulation")
    details = {"reports": num, **more, "computed": guess.computed}
    facts |= {"purpose": target.purpose.name, "what": target.what, "topic": topic, "estimated": estimated}
    facts |= {"subject": words(f"staying on a {target.what}"), "blind": guess.baseline}
    return figure(key, guess.value, min(guess.baseline, 1.0), guess.interval, details, **facts)


def _place_figures(target: Target) -> Iterator[KeyFigure]:
    """Compute how well a parked truck, or one on a fixed path, is located, and whether a move is seen."""
    law, schedule = target.law, target.task.schedule
    in_clear = words("areas in clear") if isinstance(law, InClear) and law.num_groups > 1 else ""
    for number, (period, days) in enumerate(PERIODS):
        num = target.reports_of(days)
        guess = located(law, num)
        ends = words("allowance ends") if num < days * schedule.slots_per_day else ""
        # Numbers of reports, the chance that they locate a parked truck, and its interval.
        curve = [] if number else [(many, located(law, many)) for many in CURVE]
        more = {} if number else {"curve": [[many, own.value, *own.interval] for many, own in curve]}
        topic = "several releases" if number else "attributes"
        facts = {"period": period, "ends": ends, "in_clear": in_clear, "inputs": law.num_inputs}
        yield _guess_figure("localisation, {period} ({purpose})", target, num, guess, topic, more, **facts)
    # What a report at every moment would reveal, as published: for one hour and for eight.
    for hours in (1, 8):
        num = hours * 60 // schedule.slot_minutes
        if num >= 2:
            locates = "locates" if schedule.slots_per_day == schedule.num_moments else "would locate"
            key, facts = "localisation, every slot for {hours:#hour} ({purpose})", {"hours": hours, "locates": locates}
            guess = located(law, num)
            yield _guess_figure(key, target, num, guess, "", {}, minutes=schedule.slot_minutes, **facts)
    if isinstance(target.mechanism, LocalLocation):
        moves, name = movement(law), target.purpose.name
        yield figure("movement seen ({purpose})", moves.fresh, 0.0, purpose=name, cases=100 * moves.fresh)
        kept = percent(moves.kept).removesuffix(" %")
        yield figure("movement seen if reports were kept ({purpose})", moves.kept, moves.fresh, purpose=name, kept=kept)


def _number_figures(target: Target, truth: FleetTruth | None) -> Iterator[KeyFigure]:
    """Compute how well one report reveals numbers, one by one and all at once, beside the other form."""
    mechanism: LocalNumeric = target.mechanism
    other = LocalNumeric(
        quantities=mechanism.quantities, tiers=mechanism.levels, as_published=not mechanism.as_published
    )
    other_name = "sound" if mechanism.as_published else "published"
    weights: list[FloatArray | None] = []
    for attribute in mechanism.attributes:
        number_truth = truth.numbers.get((target.purpose.name, attribute.name)) if truth else None
        if attribute.presence:
            weights.append(None)
        elif number_truth is None or not number_truth.num:
            weights.append(even_weights(NUM_BUCKETS, attribute.steps))
        else:
            weights.append(np.asarray(number_truth.weights / number_truth.weights.sum()))
    guesses, tuples, losses, num_reported = [], [], [], []  # of both forms
    for form in (mechanism, other):
        report, loss = form.channel(target.tier), form.true_loss(target.tier)
        guesses.append(guess_numbers(report, weights))
        num_reported.append(report.num_sampled if isinstance(report, SampledReport) else len(form.attributes))
        tuples.append(guess_tuple(guesses[-1], num_reported[-1]))
        losses.append(None if loss is None else float(loss))
    facts: dict[str, object] = {"other": other_name, "private": truth is not None}
    spread = "spread evenly" if truth is None else "spread as they truly are"
    for attribute, guess, other_guess in zip(mechanism.attributes, *guesses, strict=True):
        if not attribute.presence:
            details = {"told": guess.if_covered, "share": guess.share, other_name: other_guess.value}
            number = {"column": attribute.name, "spread": spread, "else_value": other_guess.value}
            number |= {"buckets": NUM_BUCKETS, **facts}
            yield figure("number guess ({column})", guess.value, guess.baseline, None, details, **number)
    blind, details = math.prod(guess.baseline for guess in guesses[0]), {"numbers_told": num_reported[0]}
    details |= {other_name: tuples[1], "true_loss": losses[0], f"{other_name}_true_loss": losses[1]}
    chances = {
        name: percent(chance) if chance >= 1e-4 else f"1 in {number_text(round(1 / chance))}"
        for name, chance in {"chance": tuples[0], "blind": blind, "else_chance": tuples[1]}.items()
    }
    facts |= {"purpose": target.purpose.name, "num": sum(not item.presence for item in mechanism.attributes)}
    yield figure("tuple guess ({purpose})", tuples[0], blind, None, details, **chances, **facts)


# The attacker who knows the fleet, and the owner


def truth_figures(truth: EstimatesTruth, tell: Progress) -> tuple[list[KeyFigure], list[str]]:
    """Compute what takes the true rows: attacks with knowledge of the fleet, and errors; return figures and notes."""
    figures: list[KeyFigure] = []
    notes, task = list(truth.notes), truth.fleet.task
    for target in Target.all_of(task, check_task(task)):
        tell(f"attacking {target.purpose.name} with knowledge of the fleet")
        numbers = target.purpose.grid is None
        try:
            figures += _number_figures(target, truth.truth) if numbers else _habit_figures(truth, target)
        except ParameterError as error:
            notes.append(words("not attacked with fleet", purpose=target.purpose.name, error=error))
    tell("comparing with the truth")
    figures += _mean_errors(truth)
    for name, estimate in truth.view.maps.items():
        counts = truth.truth.maps[name]
        true, inputs = counts / counts.sum(), estimate.num_inputs
        listed, same = true[estimate.inputs], np.full(inputs, 1 / inputs)
        grid = estimate.grid
        if grid is not None and inputs > grid.num_cells:  # how many are outside or missing is no part of a map
            same[:-1], same[-1] = (1 - true[grid.outside]) / grid.num_cells, true[grid.outside]
        blind = np.abs(true[:inputs] - same)
        # Inputs that are not listed share the remainder equally.
        others = inputs - len(estimate.inputs)
        unlisted = np.delete(true, estimate.inputs) - estimate.remainder / others if others else np.zeros(0)
        off = np.abs(np.concatenate([estimate.value - listed, unlisted]))
        facts = {"purpose": name, "inputs": inputs, "what": estimate.what}
        rmse, blind_rmse = (math.sqrt(float((far**2).mean())) for far in (off, blind))
        mae, blind_mae = float(off.mean()), float(blind.mean())
        for key, value, baseline in (("RMSE", rmse, blind_rmse), ("MAE", mae, blind_mae)):
            points = {"points": 100 * value, "blind": 100 * baseline}
            figures.append(figure(f"{key} of shares ({{purpose}})", value, baseline, **points, **facts))
        apart, all_alike = (min(1.0, float(far.sum()) / 2) for far in (off, blind))
        details: dict[str, object] = {}
        if grid is not None and grid.num_cells <= MAX_MAP_CELLS:  # shares by row from the north, for the page
            estimated = np.zeros(inputs)
            estimated[estimate.inputs] = estimate.value
            rows = range(grid.num_rows - 1, -1, -1)
            order = [[grid.cell_at(column, row) for column in range(grid.num_columns)] for row in rows]
            details = {"map": {"true": true[order].tolist(), "released": estimated[order].tolist()}}
        details["unlisted"] = 1 - float(listed.sum())
        figures.append(figure("total variation distance ({purpose})", apart, all_alike, None, details, **facts))
        holds = (estimate.lower <= listed + 1e-12) & (listed <= estimate.upper + 1e-12)
        figures.append(_interval_coverage(truth.view, name, int(holds.sum()), len(holds)))
    return figures, notes


def _habit_figures(truth: EstimatesTruth, target: Target) -> Iterator[KeyFigure]:
    """Attack with the true map as prior, and count vehicles that nobody else travels with."""
    counts, fleet = truth.truth.maps.get(target.purpose.name), truth.fleet
    for period, days in PERIODS[:2]:
        num = target.reports_of(days)
        if counts is not None and not isinstance(target.law, Independent):
            guess = locate(target.law, num, counts.astype(np.float64))
            topic = "several releases" if days > 1 else "attributes"
            key = "localisation, fleet known, {period} ({purpose})"
            yield _guess_figure(key, target, num, guess, topic, {}, period=period)
    if not isinstance(target.law, InClear) or target.law.num_groups == 1 or target.purpose.steps > 1:
        return
    grid, schedule = target.purpose.grid, fleet.task.schedule
    if grid is None or fleet.micros is None or not 0 < fleet.num_slots <= _MAX_SLOTS // 4 or 60 % schedule.slot_minutes:
        return  # also if an hour is not a whole number of slots
    areas, per_hour = fleet.areas(grid), 60 // schedule.slot_minutes
    lengths = [hours * per_hour for hours in UNIQUE_HOURS if 0 < hours * per_hour <= areas.shape[1]]
    starts = range(0, areas.shape[1] - max(lengths, default=0) + 1, max(per_hour, 1))
    if not lengths:
        return
    shares = {start: unique_shares(areas[:, start:], lengths) for start in starts}
    worst = max(shares, key=lambda start: (shares[start][-1], shares[start][0]))
    longer = [hours * per_hour for hours in range(1, UNIQUE_HOURS[-1] + 1) if hours * per_hour <= max(lengths)]
    alone = unique_shares(areas[:, worst:], longer)
    curve = [[length / per_hour, share] for length, share in zip(longer, alone, strict=True)]
    clock, name = f"{worst % schedule.num_moments // per_hour:02}:00", target.purpose.name
    facts = {"purpose": name, "vehicles": fleet.num_vehicles, "clock": clock, "longest": UNIQUE_HOURS[len(lengths) - 1]}
    for hours, share in zip(UNIQUE_HOURS, shares[worst], strict=False):
        details = {"curve": curve, "starts": clock, "areas": grid.num_areas}
        yield figure("unique by areas, {hours:#hour} ({purpose})", share, 0.0, None, details, hours=hours, **facts)
    # Sample the slots of some vehicles as devices do: was any other vehicle in the same areas at these times?
    noise, num = Noise(), min(MAX_COMPARED, len(areas))
    seen = np.zeros((num, areas.shape[1]), dtype=bool)
    for vehicle in range(num):
        for first in range(0, areas.shape[1], schedule.num_moments):
            seen[vehicle, [first + slot for slot in schedule.draw_slots(noise)]] = True
    share, counts_of = unique_by_slots(areas, seen), {"slots": int(seen[0].sum()), "num": num}
    key = "unique by areas, as scheduled ({purpose})"
    yield figure(key, share, 0.0, wilson(share * num, num), purpose=name, **counts_of)


# Errors


def _mean_errors(truth: EstimatesTruth) -> Iterator[KeyFigure]:
    covered: list[bool] = []
    for estimate in truth.view.means:
        number, quantity = truth.truth.numbers.get((estimate.purpose, estimate.quantity.name)), estimate.quantity
        if number is None or not (num_all := number.num + number.num_missing):
            continue
        if not (truth.slots_known if estimate.of_presence else number.num):
            continue
        # In units: the mean of the readings that there are, also where missing ones were reported as the middle.
        true = number.num / num_all if estimate.of_presence else quantity.in_units(number.total / number.num)
        filled = ""
        if quantity.missing == "middle" and number.num_missing:
            spots, unit = "rows" if truth.truth.by_row else "slots", f" {quantity.unit}" if quantity.unit else ""
            value, share = number_text(quantity.in_units(0.0)), number.num_missing / num_all
            filled = words("missing as middle", share=share, spots=spots, middle=value, in_units=unit)
        covered.append(estimate.lower <= true <= estimate.upper)
        contains = "contains" if covered[-1] else "misses"
        low, high = (0.0, 1.0) if estimate.of_presence else (float(quantity.low), float(quantity.high))
        middle, unit = (low + high) / 2, "share" if estimate.of_presence else quantity.unit
        error = abs((middle if estimate.value is None else estimate.value) - true)
        in_units = "" if estimate.of_presence or not unit else f" {unit}"
        what = words("share of" if estimate.of_presence else "mean of", column=quantity.name)
        sentence = words("not estimated", what=what)
        if estimate.value is not None:
            sentence = words("estimated as", what=what, value=estimate.value, in_units=in_units)
        details = {
            "label": f"{quantity.name}, share present" if estimate.of_presence else quantity.name,
            "truth": true,
            "value": estimate.value,
            "lower": estimate.lower,
            "upper": estimate.upper,
            "low": low,
            "high": high,
            "relative": error / abs(true) if true else None,
        }
        of_it = f", {percent(error / abs(true))} of it" if true else ""
        facts = {"unit": unit, "estimate": sentence, "in_units": in_units, "contains": contains, "of_it": of_it}
        facts["filled"] = filled
        yield figure("error of the mean ({label})", error, abs(middle - true), None, details, **facts)
    if covered:
        yield _interval_coverage(truth.view, "numbers", sum(covered), len(covered))


def _interval_coverage(view: EstimatesView, name: str, covered: int, num: int) -> KeyFigure:
    interval = wilson(covered, num)
    return figure("coverage ({name})", covered / num, view.confidence, interval, name=name, covered=covered, num=num)


# Vehicles most at risk


def at_risk(truth: EstimatesTruth) -> tuple[list[VehicleAtRisk], str]:
    """List the vehicles that stay longest in one place, or on one path, and how likely such vehicles are located."""
    fleet, maps = truth.fleet, truth.truth.maps
    targets = [
        target
        for target in Target.all_of(fleet.task, check_task(fleet.task))
        if target.purpose.grid is not None and target.purpose.name in maps
    ]
    if not targets:
        return [], words("no vehicle: same odds")
    target = min(targets, key=lambda item: item.purpose.steps)  # a place is located before a path is
    num = target.reports_of(DAYS_SEEN)
    try:
        chance = located(target.law, num).value
    except ParameterError:  # a note says so already
        return [], words("no vehicle: not computed")
    vehicles, readings = fleet.vehicles[fleet.order], next(fleet.by_row())
    inputs = inputs_of(target.mechanism, target.law, readings.columns(target.purpose, fleet.columns.places))
    # The last input stands for what is missing or outside; the share is of all rows of a vehicle.
    inside = inputs < len(maps[target.purpose.name]) - 1
    pairs, counts = np.unique(vehicles[inside] * (int(inputs.max()) + 1) + inputs[inside], return_counts=True)
    staying, starts = np.unique(pairs // (int(inputs.max()) + 1), return_index=True)
    most = np.maximum.reduceat(counts, starts) if len(staying) else np.zeros(0)
    share = most / np.bincount(vehicles)[staying]
    first = FIRST_ROW + np.unique(fleet.vehicles, return_index=True)[1]
    order = np.lexsort((first[staying], -share.round(12)))[: findings.MAX_AT_RISK]
    listed = [
        VehicleAtRisk(source_row=int(first[staying[place]]), stays=float(share[place]), found_if_it_stays=chance)
        for place in order.tolist()
    ]
    return listed, words("vehicles at risk", what=target.what, purpose=target.purpose.name, num=num, chance=chance)


# Tracking, in pure numbers: where someone who collects reports locates a vehicle, which ones are unique, and who moved
#
# A vehicle that stays where it is sends one report after another through the same channel, and the attacker guesses the
# likeliest place. With a loss of l in each report, the posterior of a place is proportional to its prior times
# exp(l * n) if n reports speak for it. So the guess depends on these numbers alone, and the chance that it is right is
# a sum over them:
#
# unary encoding              numbers are binomial and independent of each other: closed form, also with a prior
# randomised response         numbers are multinomial: closed form by generating functions for places that are alike
# any law, few outcomes       all multisets of symbols are enumerated
# all others                  simulated, with an interval
#
# Closed forms have sums of positive terms only, so that nothing cancels in floating point.


class Guess(NamedTuple):
    value: float  # The chance
    interval: Interval  # The chance twice if it was computed; with 95 % confidence if it was simulated
    baseline: float  # The same without a report: the likeliest place beforehand

    @property
    def computed(self) -> bool:
        return self.interval[0] == self.interval[1]

    @classmethod
    def exactly(cls, value: float, baseline: float) -> Guess:
        """Make a guess with a computed chance; reports never make guessing worse."""
        value = min(1.0, max(float(value), baseline))
        return cls(value, (value, value), baseline)


def locate(law: Any, num_reports: int, prior: FloatArray | None = None, *, noise: Noise | None = None) -> Guess:
    noise = noise or Noise()
    if isinstance(law, Independent):  # every place of a path was perturbed by itself
        one = locate(law.place, num_reports, noise=noise)
        low, high = (end**law.steps for end in one.interval)
        return Guess(one.value**law.steps, (low, high), one.baseline**law.steps)
    beforehand = np.full(law.num_inputs, 1 / law.num_inputs)
    if prior is not None:
        beforehand = np.asarray(prior, dtype=np.float64)
        if beforehand.shape != (law.num_inputs,) or not (beforehand >= 0).all() or not beforehand.sum() > 0:
            raise ParameterError(f"a prior needs a chance for each of the {law.num_inputs} inputs. Give their shares.")
        beforehand = np.asarray(beforehand / beforehand.sum())
    if not isinstance(law, InClear) or not num_reports:
        return _within(law, num_reports, beforehand, noise)
    # Guess inside each area; the area itself is visible.
    size, sums = law.group_size, np.zeros(3)
    inside = np.zeros((law.num_groups, size + 1))
    inside[:, :size] = beforehand[:-1].reshape(law.num_groups, size)
    inside[0, size] = beforehand[-1]
    alike, how_many = np.unique(inside, axis=0, return_counts=True)
    for chances, num in zip(alike, how_many, strict=True):
        if (weight := float(chances.sum())) > 0:
            guess = _within(law.oracle, num_reports, chances / weight, noise)
            sums += num * weight * np.array([guess.value, *guess.interval])
    value, low, high = np.minimum(sums, 1.0).tolist()
    return Guess(value, (min(low, value), max(high, value)), float(beforehand.max()))


def _within(law: Any, num_reports: int, prior: FloatArray, noise: Noise) -> Guess:
    baseline, possible = float(prior.max()), prior[prior > 0]
    if not num_reports:
        return Guess.exactly(baseline, baseline)
    alike = bool(np.ptp(possible) <= _TIE * baseline)
    if isinstance(law, OptimisedUnary | SymmetricUnary) and (alike or len(possible) <= MAX_WITH_PRIOR):
        chance = unary_guess(possible, law.p, law.q, float(law.loss), num_reports, alike=alike)
        return Guess.exactly(chance, baseline)
    if isinstance(law, RandomisedResponse) and alike and num_reports <= MAX_RESPONSES:
        return Guess.exactly(response_guess(len(possible), law.num_inputs, law.p, num_reports), baseline)
    every = num_reports == 1 and alike and len(possible) == law.num_inputs
    if isinstance(law, SubsetSelection) and every:  # every set speaks for some place
        return Guess.exactly(float(1 + law.rarity) * law.p / law.num_inputs, baseline)
    few = law.num_symbols <= MAX_LISTED and law.num_inputs * law.num_symbols <= MAX_ENTRIES
    if few and math.comb(law.num_symbols + num_reports - 1, num_reports) <= MAX_ENUMERATED:
        return Guess.exactly(enumerated_guess(channel_matrix(law), prior, num_reports), baseline)
    if num_reports > MAX_DRAWN_REPORTS:
        fewer = _within(law, MAX_DRAWN_REPORTS, prior, noise)
        return Guess(fewer.value, (fewer.interval[0], 1.0), baseline)
    if isinstance(law, HadamardResponse) and every and law.num_inputs >= 3 * law.num_blocks:
        # Any column agrees with one of the rows 1, 2 and 3 of a block: every symbol speaks for some place.
        return Guess.exactly(2 * law.num_blocks * law.p / law.num_inputs, baseline)
    return _simulated_guess(law, num_reports, prior, noise)


# Closed forms


def mixed_powers(
    first: FloatArray, second: FloatArray, num: int, times: Callable[[FloatArray, FloatArray], FloatArray]
) -> FloatArray:
    """Return the sum over i < num of ``first^i second^(num - 1 - i)``, without a difference that could cancel."""
    # With S(m) the sum of m terms: S(2m) = S(m) (A^m + B^m) and S(m + 1) = A S(m) + B^m, from S(2) = A + B on.
    powers, total, done = (first, second), np.zeros(0), 1
    for digit in f"{num:b}"[1:]:
        both = powers[0] + powers[1]
        total = both if done == 1 else times(total, both)
        powers, done = (times(powers[0], powers[0]), times(powers[1], powers[1])), 2 * done
        if digit == "1":
            total = times(first, total) + powers[1]
            powers, done = (times(powers[0], first), times(powers[1], second)), done + 1
    return total


def unary_guess(prior: FloatArray, p: float, q: float, loss: float, num_reports: int, *, alike: bool) -> float:
    """Return the chance for unary encoding: the own bit is set with p, each other one with q, all independently."""
    from scipy.stats import binom

    counts = np.arange(num_reports + 1)
    own, upto = binom.pmf(counts, num_reports, p), binom.cdf(counts, num_reports, q)
    if len(prior) == 1:
        return 1.0
    if alike:
        below = np.concatenate([[0.0], upto[:-1]])
        # If t others have as many and no other has more, the guess is right with 1 / (1 + t): take the mean.
        return float(own @ mixed_powers(upto, below, len(prior), np.multiply)) / len(prior)
    total = 0.0
    for place, chance in enumerate(prior):
        # For each number of reports that speak for the place, the chance that no other place is likelier.
        lead = (math.log(chance) - np.log(np.delete(prior, place))) / loss
        limits = counts[:, None] + lead  # what others may have at most. Shape: counts, others
        whole = np.rint(limits)
        tied = np.abs(limits - whole) < _TIE
        first = np.arange(len(prior) - 1) < place  # ties go to the first
        most = np.where(tied, whole - first, np.floor(limits)).astype(np.int64)
        chances = np.where(most < 0, 0.0, upto[np.clip(most, 0, num_reports)])
        total += chance * (own @ chances.prod(axis=1))
    return float(total)


def response_guess(num_places: int, num_symbols: int, p: float, num_reports: int) -> float:
    """Return the chance for randomised response among places that are alike."""
    from scipy.stats import binom, poisson

    def most_often(own: int, rest: int) -> float:
        """Return the chance that a place that occurred ``own`` times is guessed if all others have the rest."""
        # The chance that others occur at most as often as the true place is a coefficient of a power of a truncated
        # exponential series; weighed as Poisson numbers, coefficients are chances.
        if own > rest or num_places == 1:
            return 1.0
        if not rest:
            return 1 / num_places
        mean = rest / (num_symbols - 1)
        series = poisson.pmf(np.arange(rest + 1), mean)
        upto, below = series.copy(), series.copy()
        upto[own + 1 :], below[own:] = 0.0, 0.0

        def times(one: FloatArray, other: FloatArray) -> FloatArray:
            return np.convolve(one, other)[: rest + 1]

        guessed = mixed_powers(upto, below, num_places, times) / num_places
        free = num_symbols - num_places  # symbols that stand for no place may occur any number of times
        if free:
            guessed = times(guessed, poisson.pmf(np.arange(rest + 1), mean * free))
        return float(guessed[rest] / poisson.pmf(rest, mean * (num_symbols - 1)))

    chances = binom.pmf(np.arange(num_reports + 1), num_reports, p).tolist()
    likely = ((own, chance) for own, chance in enumerate(chances) if chance > _NEGLIGIBLE)
    return math.fsum(chance * most_often(own, num_reports - own) for own, chance in likely)


# All outcomes, or many of them


def channel_matrix(law: Any) -> FloatArray:
    """Return the probability of each symbol (columns) for each input (rows) of a law with few of both."""
    if law.num_inputs * law.num_symbols > MAX_ENTRIES:
        what = "the grid is too fine for" if isinstance(law, Disk | Planar) else "there are too many symbols for"
        raise ParameterError(f"{what} this attack. Choose fewer levels.")
    if isinstance(law, Disk):
        rows = np.ones((law.num_inputs, law.num_symbols))
        for index, row in enumerate(rows):
            for run in law.disk(index):
                row[run.start : run.stop] = math.exp(float(law.epsilon))
        rows[:, -1] *= law.size
        return np.asarray(rows / rows.sum(axis=1, keepdims=True))
    if isinstance(law, Planar):
        rows = planar_matrix(law).T
        rows = np.vstack([rows, rows[law.centre]])  # a missing place counts as the middle
        return np.asarray(rows / rows.sum(axis=1, keepdims=True))
    exponents = [
        [-math.inf if (e := law.exponent(index, symbol)) is None else float(e) for symbol in range(law.num_symbols)]
        for index in range(law.num_inputs)
    ]
    base = np.zeros(law.num_symbols)  # the part of each logarithm that is the same for all inputs
    if isinstance(law, OptimisedUnary | SymmetricUnary):
        bits = np.array([symbol.bit_count() for symbol in range(law.num_symbols)])
        base = bits * math.log(law.q / (1 - law.q))
    weights = np.exp(np.array(exponents) + base)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def enumerated_guess(matrix: FloatArray, prior: FloatArray, num_reports: int) -> float:
    total = []
    for symbols in combinations_with_replacement(range(matrix.shape[1]), num_reports):
        counts = np.bincount(symbols, minlength=1)
        orders = math.factorial(num_reports) / math.prod(math.factorial(int(count)) for count in counts)
        total.append(orders * float((prior * matrix[:, symbols].prod(axis=1)).max()))
    return math.fsum(total)


def _uniforms(noise: Noise, size: int) -> FloatArray:
    return np.asarray(noise_arrays.below(noise, 1 << _WORD, size) / float(1 << _WORD))


def _simulated_guess(law: Any, num_reports: int, prior: FloatArray, noise: Noise) -> Guess:
    """Sample places and their reports, and count how often the place with the highest score is the true one."""
    is_hadamard = isinstance(law, HadamardResponse)  # needs no matrix: one transform scores all places
    evenly = isinstance(law, Design)
    matrix = np.zeros((0, law.num_counts)) if is_hadamard or evenly else channel_matrix(law)
    width, shares = max(*matrix.shape, law.num_inputs), np.cumsum(matrix, axis=1)
    with np.errstate(divide="ignore"):
        logs, weights = np.log(prior), np.maximum(np.log(matrix), -1e6)  # the impossible weighs most, but stays finite

    def scores(true: IntArray) -> FloatArray:
        if is_hadamard:
            blocks, columns = law.num_blocks, law.num_columns
            of_row, of_block = np.divmod(np.arange(law.num_inputs), blocks)
            symbols = batch.hadamard(noise, np.repeat(true, num_reports), blocks, columns, law.epsilon)
            counts = _counts_by_row(symbols.reshape(len(true), num_reports), blocks * columns)
            table = walsh_hadamard(counts.reshape(-1, columns)).reshape(len(true), blocks, columns)
            # Reports of the own block that agree: (all of the block + those that agree - those that do not) / 2.
            return np.asarray(float(law.loss) * (table[:, of_block, 0] + table[:, of_block, of_row + 1]) / 2)
        if evenly:
            reports = batch.perturbed(law, np.repeat(true, num_reports), noise)
            reports = reports.reshape(len(true), num_reports, *reports.shape[1:])
            return np.asarray(float(law.loss) * _agreeing(law, reports))
        symbols = np.empty((len(true), num_reports), dtype=np.int64)
        for place in np.unique(true).tolist():
            rows, ends = np.flatnonzero(true == place), shares[place]
            sample = np.searchsorted(ends, _uniforms(noise, len(rows) * num_reports) * ends[-1], "right")
            symbols[rows] = np.minimum(sample, matrix.shape[1] - 1).reshape(len(rows), num_reports)
        return np.asarray(_counts_by_row(symbols, matrix.shape[1]) @ weights.T)

    step = max(1, MAX_ENTRIES // max(width, num_reports))
    num, hits = min(SIMULATIONS, max(MIN_SIMULATIONS, 2 * MAX_ENTRIES // width)), 0
    ends, last = np.cumsum(prior), np.flatnonzero(prior)[-1]  # a place without a chance is never sampled
    for start in range(0, num, step):
        places = np.searchsorted(ends, _uniforms(noise, min(step, num - start)) * ends[-1], side="right")
        true = np.asarray(np.minimum(places, last), dtype=np.int64)
        posterior = scores(true) + logs
        tied = posterior >= posterior.max(axis=1, keepdims=True) - _TIE
        # Ties are broken by a coin, so that the count stays binomial.
        chosen = _uniforms(noise, len(true)) * tied.sum(axis=1) < 1
        hits += int((tied[np.arange(len(true)), true] & chosen).sum())
    return Guess(hits / num, wilson(hits, num), float(prior.max()))


def _agreeing(law: Design, reports: Any) -> IntArray:
    """Count for each row how many of its reports support each input."""
    if isinstance(law, ProjectiveResponse):
        from dunnage.collecting.kernels import count_agreeing

        return np.asarray(count_agreeing(reports, law.num_inputs, *law.geometry))
    if law.counts_bits:
        bits = np.unpackbits(reports, axis=2, count=law.num_inputs, bitorder="little")
        return np.asarray(bits.sum(axis=1, dtype=np.int64))
    return _counts_by_row(reports, law.num_inputs)


def _counts_by_row(symbols: IntArray, num_symbols: int) -> IntArray:
    rows = np.arange(len(symbols))[:, None] * num_symbols
    return np.bincount((rows + symbols).ravel(), minlength=len(symbols) * num_symbols).reshape(-1, num_symbols)


# Who moved


class Movement(NamedTuple):
    """How well two reports show whether a vehicle moved between them, from one known place to another."""

    # Advantage of the best test when every report is sampled afresh: the total variation between the two places
    fresh: float
    # The same when a device keeps its symbol for a place and sends it again (memoisation): staying always shows as the
    # same symbol, moving only by accident
    kept: float


def movement(law: Any) -> Movement:
    """Return how well moves are seen between the two places for which it is easiest."""
    if isinstance(law, InClear):
        return Movement(1.0, 1.0) if law.num_groups > 1 else movement(law.oracle)
    if isinstance(law, Disk | Planar):
        rows = channel_matrix(law)
        fresh = max(float(np.abs(rows - row).sum(axis=1).max()) / 2 for row in rows)
        return Movement(fresh, 1 - float((rows @ rows.T).min()))
    p, q, num = law.p, law.q, law.num_inputs
    if isinstance(law, Design):
        both, ratio = float(law.overlap), law.ratio
        same = both + 2 * (1 - both) * ratio + float(law.rarity - 1 + law.overlap) * ratio**2
        return Movement(p - q, 1 - p * p * same / law.num_supporting)
    if isinstance(law, HadamardResponse):
        # Inputs of two blocks differ in whole halves; inputs of one block differ in half of each.
        apart, each = law.num_blocks > 1, 2 / law.num_columns
        halves = 2 * law.num_blocks
        same = 2 * p * q + (halves - 2) * q * q if apart else (p + q) ** 2 / 2
        return Movement((p - q) if apart else (p - q) / 2, 1 - each * same)
    agree = (p * q + (1 - p) * (1 - q)) ** 2 * (q * q + (1 - q) ** 2) ** (num - 2)
    return Movement(p - q, 1 - agree)


# Sequences of areas


def unique_shares(areas: IntArray, lengths: Sequence[int]) -> list[float]:
    """Return, for some numbers of moments, the share of vehicles with a sequence of areas that no other vehicle has."""
    groups, done, shares = np.zeros(len(areas), dtype=np.int64), 0, {}
    for length in sorted(set(lengths)):
        for column in areas.T[done:length]:
            # The groups so far, split by the next area, and numbered again so that numbers stay small.
            _, groups = np.unique(np.stack([groups, column]), axis=1, return_inverse=True)
            groups = groups.reshape(-1)
        done = length
        sizes = np.bincount(groups)
        shares[length] = float((sizes == 1).sum()) / max(len(areas), 1)
    return [shares[length] for length in lengths]


def unique_by_slots(areas: IntArray, seen: BoolArray) -> float:
    """Return the share of vehicles that no other one accompanied at all moments at which they were seen."""
    pairs = zip(areas, seen, strict=False)
    same = [(areas[:, moments] == row[moments]).all(axis=1).sum() for row, moments in pairs]
    return same.count(1) / max(len(seen), 1)


# Numbers


class NumberGuess(NamedTuple):
    if_covered: float  # Chance if the report covers the number
    share: float  # How often a report does
    baseline: float  # Chance without a report: of the likeliest bucket

    @property
    def value(self) -> float:
        return self.share * self.if_covered + (1 - self.share) * self.baseline


def bucket_weights(values: FloatArray, num_buckets: int, steps: int) -> FloatArray:
    """Return the chances of buckets (rows) and points (columns) of numbers in [-1, 1] rounded to points at random."""
    kept = np.clip(values[~np.isnan(values)], -1.0, 1.0)
    if not kept.size:
        kept = np.linspace(-1, 1, 2 * num_buckets + 1)[1::2]
    buckets = np.minimum(((kept + 1) / 2 * num_buckets).astype(np.int64), num_buckets - 1)
    scaled = (kept + 1) * steps
    below = np.minimum(np.floor(scaled).astype(np.int64), 2 * steps - 1)
    table = np.zeros((num_buckets, 2 * steps + 1))
    np.add.at(table, (buckets, below), 1 - (scaled - below))
    np.add.at(table, (buckets, below + 1), scaled - below)
    return table / kept.size


def even_weights(num_buckets: int, steps: int) -> FloatArray:
    """Return the same for a number spread evenly over its domain: many evenly spaced numbers stand for it."""
    num = num_buckets * max(16, -(-8 * steps // num_buckets))
    return bucket_weights((np.arange(num) + 0.5) * 2 / num - 1, num_buckets, steps)


def number_guess(law: Reading, weights: FloatArray) -> float:
    if isinstance(law, Hybrid):  # the report shows which law was used
        parts = (law.share, law.piecewise), (1 - law.share, law.duchi)
        return sum(share * number_guess(part, weights) for share, part in parts)
    if isinstance(law, WindowLaw):
        odds = float(odds_of(law.epsilon))
        symbols = np.arange(-law.last, law.last + 1)
        before = np.pad(np.cumsum(weights, axis=1), ((0, 0), (1, 0)))  # (buckets, points + 1)
        # The points with a window that contains a symbol: from first to the one before stop.
        first = np.clip(-(-(symbols - law.half) // law.stride) + law.steps, 0, 2 * law.steps + 1)
        stop = np.clip((symbols + law.half) // law.stride + law.steps + 1, 0, 2 * law.steps + 1)
        joint = weights.sum(axis=1, keepdims=True) + (odds - 1) * (before[:, stop] - before[:, first])
        return float(joint.max(axis=0).sum() / (law.window * odds + law.num_outside))
    if isinstance(law, Designed):
        # The points of the number are rounded at random to those of the design.
        below, rest = np.divmod(np.arange(2 * law.steps + 1) * law.points, law.steps)
        rounded = np.zeros((len(weights), law.num_inputs + 1))
        for shift, share in ((0, 1 - rest / law.steps), (1, rest / law.steps)):
            np.add.at(rounded.T, below + shift, (weights * share).T)
        before = np.pad(np.cumsum(rounded, axis=1), ((0, 0), (1, 0)))
        first, stop = (np.array([getattr(arc, end) for arc in law.arcs]) for end in ("start", "stop"))
        odds = float(odds_of(law.epsilon))
        joint = weights.sum(axis=1, keepdims=True) + (odds - 1) * (before[:, stop] - before[:, first])
        return float((joint.max(axis=0) * law.weights).sum() / (law.around * odds + law.elsewhere))
    if isinstance(law, LaplaceNumber):
        from scipy.signal import lfilter

        ratio = math.exp(-float(1 / law.noise_scale))
        ahead = lfilter([1.0], [1.0, -ratio], weights, axis=1)
        behind = lfilter([1.0], [1.0, -ratio], weights[:, ::-1], axis=1)[:, ::-1]
        best = (ahead + behind - weights).max(axis=0)
        # Beyond the outermost points all chances only shrink together.
        return float((best.sum() + (best[0] + best[-1]) * ratio / (1 - ratio)) * (1 - ratio) / (1 + ratio))
    # A sign: its mean is the number over the scale.
    points = np.linspace(-1.0, 1.0, weights.shape[1])
    lean, all_of = weights @ points / law.scale, weights.sum(axis=1)
    return float(((all_of + lean) / 2).max() + ((all_of - lean) / 2).max())


def guess_numbers(report: SampledReport | JointReport, weights: Sequence[FloatArray | None]) -> list[NumberGuess]:
    guesses = []
    for place, table in enumerate(weights):
        chance = baseline = 1.0
        if table is not None:
            law: Reading | NumberLaw = report if isinstance(report, JointReport) else report.laws[place]
            baseline = float(table.sum(axis=1).max())
            chance = min(1.0, max(number_guess(law, table), baseline))
        guesses.append(NumberGuess(chance, report.share, baseline))
    return guesses


def guess_tuple(guesses: Sequence[NumberGuess], num: int) -> float:
    """Return how often all buckets are guessed right if ``num`` numbers are reported and all are independent."""
    sets = [1.0] + [0.0] * num  # sums over sets of products, by how many of the numbers so far are reported
    for guess in guesses:
        before = [0.0, *sets]
        sets = [guess.baseline * own + guess.if_covered * fewer for own, fewer in zip(sets, before, strict=False)]
    return sets[num] / math.comb(len(guesses), num)
