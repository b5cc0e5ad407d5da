# SPDX-License-Identifier: Apache-2.0
"""Estimates from devices: what whoever collects the reports can tell about one vehicle, and how far estimates are off.

Attacks follow from the laws of the reports, which are public: :mod:`dunnage.auditing.tracking`. The attacker is the
platform, or whoever listens to it: he sees every report of one vehicle, knows the task, and, in an audit that is not
external, also how the whole fleet's values and places are spread. Of several tiers the one with the largest epsilon is
attacked. Errors compare with the truth and are private. Their baseline is what anybody could say without a report: the
middle of the domain, and a map on which all places are alike.

Rows of a fleet are read, and slots find their rows, by the same code that devices' files go through. The truth is an
average: over all slots of all vehicles and days, of which any is as likely to be drawn as another, or over all rows.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import FloatArray, IntArray
from dunnage.auditing.findings import MAX_AT_RISK, Details, KeyFigure, Progress, VehicleAtRisk, figure, wilson, words
from dunnage.auditing.tracking import (
    Guess,
    bucket_weights,
    even_weights,
    guess_numbers,
    guess_tuple,
    locate,
    movement,
    unique_by_slots,
    unique_shares,
)
from dunnage.collecting import batch
from dunnage.collecting.batch import find_inputs
from dunnage.collecting.estimate import MAX_SHARES
from dunnage.collecting.promises import OTHER, OUTSIDE
from dunnage.collecting.reading import FileColumns, Log, Readings, RowFile, Rows, Window, most_steps
from dunnage.collecting.tasks import CarrierPolicy, read_carriers, task_of
from dunnage.devices.client import TaskLosses, check_task, mechanism_of
from dunnage.devices.numbers import LocalNumeric, SampledReport
from dunnage.devices.paths import Independent, LocalTrajectory, PlaceByPlace
from dunnage.devices.places import InClear, LocalLocation, Planar
from dunnage.devices.subjects import Grid, Quantity, Tier
from dunnage.devices.task import SECONDS_PER_DAY, Purpose, Task
from dunnage.errors import CheckFailed, InputError, ParameterError, ReleaseError, TaskError
from dunnage.noise.source import Noise
from dunnage.release import Release
from dunnage.release.kinds import floats
from dunnage.text import number_text, percent
from dunnage.verification import check_estimate_columns, check_estimate_lines

NUM_BUCKETS = 10  # Buckets of equal width that a number is guessed in
PERIODS = (("1 day", 1), ("30 days", 30), ("1 year", 365))
# Numbers of reports that are drawn on the page: among them an hour and eight of one every five minutes
CURVE = (1, 12, 30, 96, 365)
UNIQUE_HOURS = (1, 2, 4)
MAX_COMPARED = 500  # Vehicles whose drawn slots are compared with the whole fleet
MAX_MAP_CELLS = 4_096
DAYS_SEEN = 30
_MEAN, _PRESENT = "mean", "present"
_CHUNK_SLOTS = 1 << 21
_MAX_SLOTS = 1 << 27  # Most slots of all vehicles, whether drawn or not, that the truth is averaged over


# The private rows


@dataclass(frozen=True, eq=False, repr=False)
class Fleet:
    """The private rows of many vehicles, as devices would have read them. Made by :meth:`read`; no figure is shown."""

    task: Task  # What was reported
    columns: FileColumns
    vehicles: IntArray  # Number of the vehicle of each row
    micros: IntArray | None  # Moments of the rows; None if the policy names no column of time
    numbers: Mapping[str, FloatArray]  # Columns of numbers, NaN where there is none
    notes: tuple[str, ...] = ()  # What reading found
    policy_digest: str = ""

    def __repr__(self) -> str:
        return f"Fleet({self.task.dataset!r}, private)"

    @classmethod
    def read(cls, path: str | os.PathLike[str], policy: CarrierPolicy | str | os.PathLike[str]) -> Fleet:
        """Read the rows of a CSV or Parquet file under a policy for devices."""
        rules = policy if isinstance(policy, CarrierPolicy) else read_carriers(policy)
        task = task_of(rules)
        places = next(iter(rules.place_columns.values()), FileColumns().places)
        columns = FileColumns(vehicle=rules.vehicle, time=rules.time or FileColumns().time, places=places)
        source = RowFile(Path(path), numbers=columns.numbers_of(task), time=rules.time, labels=[columns.vehicle])
        codes: dict[str, int] = {}
        pieces = []
        for rows in source:  # vehicles are numbered as they come
            labels = rows.labels[columns.vehicle]
            own = [codes.setdefault(text, len(codes)) for text in labels.dictionary.to_pylist()]
            pieces.append((np.array(own, dtype=np.int64)[labels.indices.to_numpy(zero_copy_only=False)], rows))
        if not pieces:
            raise InputError(str(path), ["has no rows. Give those that devices reported from."])
        return cls(
            task=task,
            columns=columns,
            vehicles=np.concatenate([vehicles for vehicles, _ in pieces]),
            micros=np.concatenate([rows.micros for _, rows in pieces]) if rules.time else None,
            numbers={name: np.concatenate([rows.numbers[name] for _, rows in pieces]) for name in source.numbers},
            notes=tuple(source.notes()),
            policy_digest=rules.digest(),
        )

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
        """The days of the rows, counted from 1 January 1970."""
        assert self.micros is not None
        per_day = SECONDS_PER_DAY * 1_000_000
        return range(int(self.micros.min()) // per_day, int(self.micros.max()) // per_day + 1)

    @property
    def num_slots(self) -> int:
        """Slots of all vehicles, of all moments of all days, drawn or not."""
        return self.num_vehicles * len(self.days) * self.task.schedule.num_moments if self.micros is not None else 0

    def by_slot(self) -> Iterator[Readings]:
        """Yield what every vehicle would report at every moment of every day: one of these is as likely as another."""
        moments = self.task.schedule.num_moments
        step = max(1, _CHUNK_SLOTS // moments)
        for day in self.days:
            slots = day * moments + np.arange(moments)
            for start in range(0, self.num_vehicles, step):
                some = np.arange(start, min(start + step, self.num_vehicles))
                vehicles = np.repeat(some, moments)
                yield self._log.readings(vehicles, np.zeros_like(vehicles), np.tile(slots, len(some)))

    @cached_property
    def order(self) -> IntArray:
        """Rows in the order of vehicles and moments: that of :meth:`by_row`."""
        return np.lexsort((self.vehicles,) if self.micros is None else (self.micros, self.vehicles))

    def by_row(self) -> Iterator[Readings]:
        """Yield every row as a reading; its path is made of the vehicle's rows before it."""
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
        for readings in self.by_slot():
            assert readings.slots is not None
            longitudes, latitudes = (readings.steps[-1][name] for name in self.columns.places)
            cells = batch.find_cells(grid, longitudes, latitudes)
            # A place that is missing shows as the first area.
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
    """How a number is really spread over what may have been reported."""

    weights: FloatArray  # Chances of buckets and points, times `num`
    total: float = 0.0  # Sum of the normalised numbers that are there
    num: int = 0  # num, num_missing: how many are there, and how many are missing
    num_missing: int = 0


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
                columns = readings.columns(purpose, fleet.columns.places)
                if purpose.grid is None:
                    for quantity, column in zip(purpose.quantities, columns, strict=True):
                        truth._add_numbers(purpose.name, quantity, column)
                else:
                    truth._add_places(purpose.name, mechanism_of(fleet.task, purpose), columns)
        return truth

    def _add_numbers(self, purpose: str, quantity: Quantity, column: FloatArray) -> None:
        low, high = float(quantity.low), float(quantity.high)
        normalised = (2 * np.clip(column, low, high) - low - high) / (high - low)  # to [-1, 1]
        kept = normalised[~np.isnan(normalised)]
        empty = NumberTruth(np.zeros((NUM_BUCKETS, 2 * quantity.steps + 1)))
        number = self.numbers.setdefault((purpose, quantity.name), empty)
        number.num_missing += len(normalised) - len(kept)
        if len(kept):
            number.total += float(kept.sum())
            number.num += len(kept)
            number.weights += len(kept) * bucket_weights(kept, NUM_BUCKETS, quantity.steps)

    def _add_places(self, purpose: str, mechanism: Any, columns: Sequence[FloatArray]) -> None:
        law = mechanism.channel(mechanism.levels[0])
        if law.num_inputs > MAX_SHARES:  # nothing is estimated of so many, either
            return
        counts = np.bincount(inputs_of(mechanism, law, columns), minlength=law.num_inputs)
        if isinstance(law, Planar):  # a missing place counts as the middle
            counts[law.centre] += counts[-1]
            counts[-1] = 0
        self.maps[purpose] = self.maps.get(purpose, np.zeros_like(counts)) + counts


# What the release tells, and what is true


class MeanEstimate(NamedTuple):
    """A released mean, or share of values that are there."""

    purpose: str  # purpose, quantity: what was reported
    quantity: Quantity
    of_presence: bool  # Whether it is the share of values that are there
    value: float | None  # value, lower, upper: estimate (None if nothing was told of it) and interval
    lower: float
    upper: float


class MapEstimate(NamedTuple):
    """Released shares of places or paths."""

    what: str  # `place` or `path`
    grid: Grid | None  # The grid of a map; None for paths
    num_inputs: int  # How many shares there are, listed or not
    inputs: IntArray  # Those that are listed, by their number
    value: FloatArray  # value, lower, upper: their shares and intervals
    lower: FloatArray
    upper: FloatArray
    remainder: float = 0.0  # Share of all that are not listed

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
    """A release of estimates as anyone reads it."""

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
            raise ReleaseError(f"the release does not say what was estimated, or how: {failure}. Verify it.") from None
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
    """Estimates, the private rows, and what these come to. Private."""

    view: EstimatesView
    fleet: Fleet
    truth: FleetTruth
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, view: EstimatesView, fleet: Fleet) -> EstimatesTruth:
        if view.task.digest != fleet.task.digest:
            raise ReleaseError(
                "the release was made for another task than this policy's. Give the policy as it was when devices "
                "reported."
            )
        whys = {
            "no column of time": fleet.micros is None,
            "rows are reports": view.num_reports == fleet.num_rows,
            "rows far apart": fleet.num_rows * 2 < fleet.num_slots,
            "too many slots": fleet.num_slots > _MAX_SLOTS,
        }
        why = next((why for why, holds in whys.items() if holds), "")
        note = words("truth by row", why=words(why)) if why else words("truth by slot")
        return cls(view, fleet, FleetTruth.of(fleet, by_row=bool(why)), (note, *fleet.notes))


# The attacker, by the laws alone


class Target(NamedTuple):
    """One kind of report of the vehicle that is attacked: one of the tier with the largest epsilon."""

    task: Task  # task, purpose: what is reported
    purpose: Purpose
    mechanism: Any  # mechanism, tier: by which law
    tier: Tier
    max_reports: int  # How many reports the allowance of a lifetime pays for

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
        """Return how many reports so many days hold, as far as the allowance reaches."""
        return min(days * self.task.schedule.slots_per_day, self.max_reports)


def view_figures(task: Task, tell: Progress) -> tuple[list[KeyFigure], list[str]]:
    """Find what the task alone tells about one vehicle; return figures and notes."""
    losses, figures = check_task(task), []
    # What a suspicion of one half becomes at most by one slot, one day and a lifetime.
    slots = [losses.of_slot(name) for name in task.tier_names]
    slot = None if None in slots else max(loss for loss in slots if loss is not None)
    spans = {
        "one slot": slot,
        "one day": None if slot is None else slot * task.schedule.slots_per_day,
        "lifetime": None if slot is None else task.limits.lifetime,
    }
    for span, exactly in spans.items():
        loss = None if exactly is None else float(exactly)
        # Only what has no bound is certain; a float would say so from a loss of 37 on.
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
    """Find a parked truck among places that are alike; the same question is asked more than once, so it is kept."""
    return locate(law, num_reports)


def _guess_figure(
    key: str, target: Target, num: int, guess: Guess, topic: str, more: Details, **facts: object
) -> KeyFigure:
    """Give a guess of where a truck is by some reports."""
    drawn = "" if guess.computed else words("by drawing")
    details = {"reports": num, **more, "computed": guess.computed}
    facts |= {"purpose": target.purpose.name, "what": target.what, "topic": topic, "drawn": drawn}
    facts |= {"subject": words(f"staying on a {target.what}"), "blind": guess.baseline}
    return figure(key, guess.value, min(guess.baseline, 1.0), guess.interval, details, **facts)


def _place_figures(target: Target) -> Iterator[KeyFigure]:
    """Say how well a parked truck is found, and whether a move is seen. Paths are found as places are."""
    law, schedule = target.law, target.task.schedule
    in_clear = words("areas in clear") if isinstance(law, InClear) and law.num_groups > 1 else ""
    for number, (period, days) in enumerate(PERIODS):
        num = target.reports_of(days)
        guess = located(law, num)
        ends = words("allowance ends") if num < days * schedule.slots_per_day else ""
        # Numbers of reports, the chance that a parked truck is found by them, and its interval.
        curve = [] if number else [(many, located(law, many)) for many in CURVE]
        more = {} if number else {"curve": [[many, own.value, *own.interval] for many, own in curve]}
        topic = "several releases" if number else "attributes"
        facts = {"period": period, "ends": ends, "in_clear": in_clear, "inputs": law.num_inputs}
        yield _guess_figure("localisation, {period} ({purpose})", target, num, guess, topic, more, **facts)
    # What a report at every moment would give away, as published: for an hour and for eight.
    for hours in (1, 8):
        num = hours * 60 // schedule.slot_minutes
        if num >= 2:
            finds = "finds" if schedule.slots_per_day == schedule.num_moments else "would find"
            key, facts = "localisation, every slot for {hours:#hour} ({purpose})", {"hours": hours, "finds": finds}
            guess = located(law, num)
            yield _guess_figure(key, target, num, guess, "", {}, minutes=schedule.slot_minutes, **facts)
    if isinstance(target.mechanism, LocalLocation):
        moves, name = movement(law), target.purpose.name
        yield figure("movement seen ({purpose})", moves.fresh, 0.0, purpose=name, cases=100 * moves.fresh)
        kept = percent(moves.kept).removesuffix(" %")
        yield figure("movement seen if reports were kept ({purpose})", moves.kept, moves.fresh, purpose=name, kept=kept)


def _number_figures(target: Target, truth: FleetTruth | None) -> Iterator[KeyFigure]:
    """Say how well numbers are guessed by one report, one by one and all at once, and as the other form would."""
    mechanism: LocalNumeric = target.mechanism
    other = LocalNumeric(
        quantities=mechanism.quantities, tiers=mechanism.levels, as_published=not mechanism.as_published
    )
    other_name = "sound" if mechanism.as_published else "published"
    weights: list[FloatArray | None] = []
    for attribute in mechanism.attributes:
        known = truth.numbers.get((target.purpose.name, attribute.name)) if truth else None
        if attribute.presence:
            weights.append(None)
        elif known is None or not known.num:
            weights.append(even_weights(NUM_BUCKETS, attribute.steps))
        else:
            weights.append(np.asarray(known.weights / known.weights.sum()))
    guesses, tuples, losses, num_told = [], [], [], []  # of both forms
    for form in (mechanism, other):
        report, loss = form.channel(target.tier), form.true_loss(target.tier)
        guesses.append(guess_numbers(report, weights))
        num_told.append(report.num_sampled if isinstance(report, SampledReport) else len(form.attributes))
        tuples.append(guess_tuple(guesses[-1], num_told[-1]))
        losses.append(None if loss is None else float(loss))
    facts: dict[str, object] = {"other": other_name, "private": truth is not None}
    spread = "spread evenly" if truth is None else "spread as they really are"
    for attribute, guess, other_guess in zip(mechanism.attributes, *guesses, strict=True):
        if not attribute.presence:
            details = {"told": guess.told, "share": guess.share, other_name: other_guess.value}
            number = {
                "column": attribute.name,
                "buckets": NUM_BUCKETS,
                "spread": spread,
                "else_value": other_guess.value,
            }
            yield figure("number guess ({column})", guess.value, guess.baseline, None, details, **number, **facts)
    blind, details = math.prod(guess.baseline for guess in guesses[0]), {"numbers_told": num_told[0]}
    details |= {other_name: tuples[1], "true_loss": losses[0], f"{other_name}_true_loss": losses[1]}
    chances = {
        name: percent(chance) if chance >= 1e-4 else f"1 in {number_text(round(1 / chance))}"
        for name, chance in {"chance": tuples[0], "blind": blind, "else_chance": tuples[1]}.items()
    }
    facts |= {"purpose": target.purpose.name, "num": sum(not item.presence for item in mechanism.attributes)}
    yield figure("tuple guess ({purpose})", tuples[0], blind, None, details, **chances, **facts)


# The attacker who knows the fleet, and the owner


def truth_figures(truth: EstimatesTruth, tell: Progress) -> tuple[list[KeyFigure], list[str]]:
    """Find what takes the true rows: attacks by who knows the fleet, and errors; return figures and notes."""
    figures: list[KeyFigure] = []
    notes, task = list(truth.notes), truth.fleet.task
    for target in Target.all_of(task, check_task(task)):
        tell(f"attacking {target.purpose.name} with what is known of the fleet")
        numbers = target.purpose.grid is None
        try:
            figures += _number_figures(target, truth.truth) if numbers else _habit_figures(truth, target)
        except ParameterError as error:
            notes.append(words("not attacked with fleet", purpose=target.purpose.name, error=error))
    tell("comparing with the truth")
    figures += _mean_errors(truth)
    for name, estimate in truth.view.maps.items():
        figures += _map_errors(truth, name, estimate)
    return figures, notes


def _habit_figures(truth: EstimatesTruth, target: Target) -> Iterator[KeyFigure]:
    """Attack with the true map as prior, and look for vehicles that nobody else travels with."""
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
    if grid is None or fleet.micros is None or not 0 < fleet.num_slots <= _MAX_SLOTS // 4:
        return
    if 60 % schedule.slot_minutes:  # an hour is no whole number of slots
        return
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
    # Slots are drawn for some vehicles as devices do: was anyone else in the same areas then?
    noise, num = Noise(), min(MAX_COMPARED, len(areas))
    seen = np.zeros((num, areas.shape[1]), dtype=bool)
    for vehicle in range(num):
        for first in range(0, areas.shape[1], schedule.num_moments):
            seen[vehicle, [first + slot for slot in schedule.draw_slots(noise)]] = True
    share, drawn = unique_by_slots(areas, seen), {"slots": int(seen[0].sum()), "num": num}
    key = "unique by areas, as scheduled ({purpose})"
    yield figure(key, share, 0.0, wilson(share * num, num), purpose=name, **drawn)


# Errors


def _mean_errors(truth: EstimatesTruth) -> Iterator[KeyFigure]:
    covered: list[bool] = []
    for estimate in truth.view.means:
        known = truth.truth.numbers.get((estimate.purpose, estimate.quantity.name))
        symbol = estimate.quantity.missing == "symbol"
        if (
            known is None
            or known.num + known.num_missing == 0
            or (symbol and not estimate.of_presence and not known.num)
        ):
            continue
        # In units: missing numbers are the middle, or left out if that is reported by itself.
        true = known.num / (known.num + known.num_missing)
        if not estimate.of_presence:
            num = known.num if symbol else known.num + known.num_missing
            true = estimate.quantity.in_units(known.total / num)
        covered.append(estimate.lower <= true <= estimate.upper)
        quantity, holds = estimate.quantity, "holds" if covered[-1] else "misses"
        low, high = (0.0, 1.0) if estimate.of_presence else (float(quantity.low), float(quantity.high))
        middle, unit = (low + high) / 2, "share" if estimate.of_presence else quantity.unit
        error = abs((middle if estimate.value is None else estimate.value) - true)
        in_units = "" if estimate.of_presence or not unit else f" {unit}"
        what = words("share of" if estimate.of_presence else "mean of", column=quantity.name)
        told = words("estimated as", what=what[1:], value=estimate.value or 0.0, in_units=in_units)
        if estimate.value is None:
            told = words("nothing told", what=what)
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
        facts = {"unit": unit, "told": told, "in_units": in_units, "holds": holds, "of_it": of_it}
        yield figure("error of the mean ({label})", error, abs(middle - true), None, details, **facts)
    if covered:
        yield _interval_coverage(truth.view, "numbers", sum(covered), len(covered))


def _interval_coverage(view: EstimatesView, name: str, covered: int, num: int) -> KeyFigure:
    interval = wilson(covered, num)
    return figure("coverage ({name})", covered / num, view.confidence, interval, name=name, covered=covered, num=num)


def _map_errors(truth: EstimatesTruth, name: str, estimate: MapEstimate) -> Iterator[KeyFigure]:
    counts = truth.truth.maps[name]
    true, inputs = counts / counts.sum(), estimate.num_inputs
    listed, blind = true[estimate.inputs], np.abs(true[:inputs] - 1 / inputs)
    # Inputs that are not listed share the remainder alike.
    others = inputs - len(estimate.inputs)
    unlisted = np.delete(true, estimate.inputs) - estimate.remainder / others if others else np.zeros(0)
    off = np.abs(np.concatenate([estimate.value - listed, unlisted]))
    facts = {"purpose": name, "inputs": inputs, "what": estimate.what}
    rmse, blind_rmse = (math.sqrt(float((far**2).mean())) for far in (off, blind))
    mae, blind_mae = float(off.mean()), float(blind.mean())
    for key, value, baseline in (("RMSE", rmse, blind_rmse), ("MAE", mae, blind_mae)):
        points = {"points": 100 * value, "blind": 100 * baseline}
        yield figure(f"{key} of shares ({{purpose}})", value, baseline, **points, **facts)
    apart, all_alike = (min(1.0, float(far.sum()) / 2) for far in (off, blind))
    details: dict[str, object] = {}
    grid = estimate.grid
    if grid is not None and grid.num_cells <= MAX_MAP_CELLS:  # shares by row from the north, for the page
        estimated = np.zeros(inputs)
        estimated[estimate.inputs] = estimate.value
        rows = range(grid.num_rows - 1, -1, -1)
        order = [[grid.cell_at(column, row) for column in range(grid.num_columns)] for row in rows]
        details = {"map": {"true": true[order].tolist(), "released": estimated[order].tolist()}}
    details["unlisted"] = 1 - float(listed.sum())
    yield figure("total variation distance ({purpose})", apart, all_alike, None, details, **facts)
    holds = (estimate.lower <= listed + 1e-12) & (listed <= estimate.upper + 1e-12)
    yield _interval_coverage(truth.view, name, int(holds.sum()), len(holds))


# Vehicles most at risk


def at_risk(truth: EstimatesTruth) -> tuple[list[VehicleAtRisk], str]:
    """List the vehicles that stay longest in one place, or on one path, and say how surely such are found."""
    fleet, maps = truth.fleet, truth.truth.maps
    targets = [
        target
        for target in Target.all_of(fleet.task, check_task(fleet.task))
        if target.purpose.grid is not None and target.purpose.name in maps
    ]
    if not targets:
        return [], words("no vehicle: same odds")
    target = min(targets, key=lambda item: item.purpose.steps)  # a place is found before a path is
    num = target.reports_of(DAYS_SEEN)
    try:
        chance = located(target.law, num).value
    except ParameterError:  # said in a note already
        return [], words("no vehicle: not computed")
    vehicles, readings = fleet.vehicles[fleet.order], next(fleet.by_row())
    inputs = inputs_of(target.mechanism, target.law, readings.columns(target.purpose, fleet.columns.places))
    # The last input stands for what is missing or outside; the share is of all rows of a vehicle.
    known = inputs < len(maps[target.purpose.name]) - 1
    pairs, counts = np.unique(vehicles[known] * (int(inputs.max()) + 1) + inputs[known], return_counts=True)
    staying, starts = np.unique(pairs // (int(inputs.max()) + 1), return_index=True)
    most = np.maximum.reduceat(counts, starts) if len(staying) else np.zeros(0)
    share = most / np.bincount(vehicles)[staying]
    first = np.unique(fleet.vehicles, return_index=True)[1]
    order = np.lexsort((first[staying], -share.round(12)))[:MAX_AT_RISK]
    listed = [
        VehicleAtRisk(source_row=int(first[staying[place]]), stays=float(share[place]), found_if_it_stays=chance)
        for place in order.tolist()
    ]
    return listed, words("vehicles at risk", what=target.what, purpose=target.purpose.name, num=num, chance=chance)
