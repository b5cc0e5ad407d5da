# SPDX-License-Identifier: Apache-2.0
"""Estimates from devices: what whoever collects the reports can tell about one vehicle, and how far estimates are off.

Attacks follow from the laws of the reports, which are public: :mod:`dunnage.auditing.tracking`. The attacker is the
platform, or whoever listens to it: he sees every report of one vehicle, knows the task, and, in an audit that is not
external, also how the whole fleet's values and places are spread. Of several tiers the one with the largest epsilon is
attacked. Errors compare with the truth and are private. Their baseline is what anybody could say without a report: the
middle of the domain, and a map on which all places are alike.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import FloatArray, IntArray
from dunnage.auditing.finding import (
    MOST_AT_RISK,
    NO_UNIT,
    About,
    Details,
    Figure,
    Finding,
    Progress,
    VehicleAtRisk,
    wilson,
)
from dunnage.auditing.fleet import NUM_BUCKETS, Fleet, Truth, inputs_of
from dunnage.auditing.tracking import (
    Guess,
    NumberGuess,
    even_weights,
    guess_numbers,
    guess_tuple,
    locate,
    movement,
    unique_by_slots,
    unique_shares,
)
from dunnage.collecting.promises import OTHER, OUTSIDE
from dunnage.devices.client import TaskLosses, check_task, mechanism_of
from dunnage.devices.numbers import LocalNumeric, SampledReport
from dunnage.devices.paths import Independent, LocalTrajectory
from dunnage.devices.places import InClear, LocalLocation
from dunnage.devices.subjects import Grid, Quantity, Tier
from dunnage.devices.task import Purpose, Task
from dunnage.errors import CheckFailed, ParameterError, ReleaseError, TaskError
from dunnage.kinds.common import floats
from dunnage.noise import Noise
from dunnage.release import Release
from dunnage.text import number_text, percent, several
from dunnage.verification import check_estimate_columns, check_estimate_lines

PERIODS = (("1 day", 1), ("30 days", 30), ("1 year", 365))
CURVE = (1, 12, 30, 96, 365)
"""Numbers of reports that are drawn on the page: among them an hour and eight of one every five minutes."""
UNIQUE_HOURS = (1, 2, 4)
MOST_COMPARED = 500  # Vehicles whose drawn slots are compared with the whole fleet
MOST_MAP_CELLS = 4_096
DAYS_SEEN = 30
_MEAN, _PRESENT = "mean", "present"
_MOST_SLOTS = 1 << 27  # Most slots of all vehicles, whether drawn or not, that the truth is averaged over


# What the release tells


@dataclass(frozen=True, kw_only=True)
class MeanEstimate:
    """A released mean, or share of values that are there."""

    purpose: str  # purpose, quantity: what was reported
    quantity: Quantity
    of_presence: bool  # Whether it is the share of values that are there
    value: float | None  # value, lower, upper: estimate (None if nothing was told of it) and interval
    lower: float
    upper: float

    @property
    def name(self) -> str:
        return self.quantity.name

    @property
    def label(self) -> str:
        return f"{self.name}, share present" if self.of_presence else self.name

    @property
    def unit(self) -> str:
        return "share" if self.of_presence else self.quantity.unit


@dataclass(frozen=True, eq=False, kw_only=True)
class MapEstimate:
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
        mechanism, remainder = mechanism_of(task, purpose), 0.0
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
        else:
            inputs = np.array(lines["cell"].to_pylist())
        value, lower, upper = (floats(lines, name) for name in ("value", "lower", "upper"))
        return cls(
            what="path" if paths else "place",
            grid=None if paths else purpose.grid,
            num_inputs=mechanism.channel(mechanism.levels[0]).num_inputs if paths else len(inputs),
            inputs=inputs,
            value=value,
            lower=lower,
            upper=upper,
            remainder=remainder,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class EstimatesSight:
    task: Task  # What devices reported
    num_reports: int  # Reports of each purpose, at most
    confidence: float  # Stated confidence of every interval
    means: tuple[MeanEstimate, ...]  # means, maps: what was estimated
    maps: Mapping[str, MapEstimate]

    @classmethod
    def of(cls, release: Release) -> EstimatesSight:
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
        means = [
            MeanEstimate(
                purpose=line["purpose"],
                quantity=quantities[line["purpose"], line["attribute"]],
                of_presence=line["quantity"] == _PRESENT,
                value=line["value"],
                lower=line["lower"],
                upper=line["upper"],
            )
            for line in lines
            if line["quantity"] in (_MEAN, _PRESENT)
        ]
        maps = {
            name: MapEstimate.of(task, purpose, release.data.filter(pc.equal(release.data["purpose"], name)))
            for name, purpose in purposes.items()
            if purpose.grid is not None and stated.estimates.reports[name]
        }
        return cls(
            task=task,
            num_reports=max(sum(tiers.values()) for tiers in stated.estimates.reports.values()),
            confidence=float(str(stated.mechanism["confidence"])),
            means=tuple(means),
            maps=maps,
        )


# The attacker, by the laws alone


@dataclass(frozen=True, kw_only=True)
class Target:
    """One kind of report of the vehicle that is attacked: one of the tier with the largest epsilon."""

    task: Task  # task, purpose: what is reported
    purpose: Purpose
    mechanism: Any  # mechanism, tier: by which law
    tier: Tier
    most_reports: int  # How many reports the allowance of a lifetime pays for

    @classmethod
    def all_of(cls, task: Task, losses: TaskLosses) -> list[Target]:
        found = []
        for purpose in task.purposes:
            tiers = {name: task.slot_tiers(purpose)[task.tier_index(purpose, name)] for name in task.tier_names}
            name = max(tiers, key=lambda each: tiers[each].epsilon)
            loss, made = losses.bounded_of_slot(name), mechanism_of(task, purpose)
            most = max(int(task.limits.lifetime // loss) if loss else 1 << 31, 1)
            found.append(cls(task=task, purpose=purpose, mechanism=made, tier=tiers[name], most_reports=most))
        return found

    @property
    def law(self) -> Any:
        return self.mechanism.channel(self.tier)

    @property
    def what(self) -> str:
        return "path" if self.purpose.steps > 1 else "place"

    @property
    def subject(self) -> str:
        """Who is found, as a sentence begins."""
        return "A truck that goes the same path at every slot" if self.what == "path" else "A truck that stays parked"

    def reports_of(self, days: int) -> int:
        """Return how many reports so many days hold, as far as the allowance reaches."""
        return min(days * self.task.schedule.slots_per_day, self.most_reports)


def carrier_outside_findings(task: Task, tell: Progress) -> tuple[list[Finding], list[str]]:
    """Find what the task alone tells about one vehicle; return findings and notes."""
    losses = check_task(task)
    findings, notes = list(_suspicion(losses)), []
    if len(task.purposes) > 1:
        notes.append(
            "Each kind of report was attacked by itself. Those of one slot tell more together, at most as much as is "
            "said of suspicions."
        )
    for target in Target.all_of(task, losses):
        tell(f"attacking {target.purpose.name}")
        try:
            findings += _number_findings(target, None) if target.purpose.grid is None else _place_findings(target)
        except ParameterError as error:
            notes.append(f"{target.purpose.name} was not attacked: {error}")
    return findings, notes


def _suspicion(losses: TaskLosses) -> Iterator[Finding]:
    """Say what a suspicion of one half becomes at most by one slot, one day and a lifetime."""
    task = losses.task
    slots = [losses.of_slot(name) for name in task.tier_names]
    slot = None if None in slots else max(loss for loss in slots if loss is not None)
    spans = {
        "one slot": (slot, "one slot's reports"),
        "one day": (None if slot is None else slot * task.schedule.slots_per_day, "a day's reports"),
        "lifetime": (None if slot is None else task.limits.lifetime, "all reports that the allowance pays for"),
    }
    for name, (loss, words) in spans.items():
        # Only what has no bound is certain; a float would say so from a loss of 37 on.
        value = 1.0 if loss is None else min(1 / (1 + math.exp(-float(loss))), math.nextafter(1.0, 0.0))
        bound = "there is no bound" if loss is None else f"their loss is at most {number_text(float(loss))}"
        yield About("probability", "table" if name == "one slot" else "several releases").finding(
            Figure(f"suspicion at most, {name}", value, 0.5),
            f"By {words} a suspicion of one half about a vehicle becomes {percent(value)} at most: {bound}.",
            {"loss": None if loss is None else float(loss)},
        )


def _guess_finding(about: About, name: str, guess: Guess, sentence: str, details: Details) -> Finding:
    return about.finding(
        Figure(name, guess.value, min(guess.baseline, 1.0), guess.interval),
        sentence + ("" if guess.computed else " Estimated by drawing."),
        {**details, "computed": guess.computed},
    )


def _place_findings(target: Target) -> Iterator[Finding]:
    """Say how well a parked truck is found, and whether a move is seen. Paths are found as places are."""
    law, name, schedule = target.law, target.purpose.name, target.task.schedule
    told = ", by its areas in clear" if isinstance(law, InClear) and law.num_groups > 1 else ""
    for number, (words, days) in enumerate(PERIODS):
        num = target.reports_of(days)
        guess = located(law, num)
        ends = " (where the allowance ends)" if num < days * schedule.slots_per_day else ""
        yield _guess_finding(
            About("probability", "several releases" if number else "attributes"),
            f"localisation, {words} ({name})",
            guess,
            f"{target.subject} is found by {several(num, 'report')}{ends} with {percent(guess.value)}{told}; guessing "
            f"among {law.num_inputs:,} {target.what}s gives {percent(guess.baseline)}.",
            details={"reports": num} | ({} if number else {"curve": localisation_curve(target)}),
        )
    # What a report at every moment would give away, as published: for an hour and for eight.
    for hours in (1, 8):
        num = hours * 60 // schedule.slot_minutes
        if num < 2:
            continue
        guess = located(law, num)
        finds = "finds" if schedule.slots_per_day == schedule.num_moments else "would find"
        yield _guess_finding(
            About("probability", "several releases"),
            f"localisation, every slot for {several(hours, 'hour')} ({name})",
            guess,
            f"A report every {several(schedule.slot_minutes, 'minute')} for {several(hours, 'hour')}, {num:,} in all, "
            f"{finds} a truck that does not move with {percent(guess.value)}.",
            details={"reports": num},
        )
    if not isinstance(target.mechanism, LocalLocation):
        return
    found, about = movement(law), About("share", "attributes")
    yield about.finding(
        Figure(f"movement seen ({name})", found.fresh, 0.0),
        f"By one more report the best test says that a truck moved in {number_text(100 * found.fresh)} of a hundred "
        "cases more where it did than where it stayed, for the two places that are easiest to tell apart: every report "
        "is drawn anew.",
    )
    yield about.finding(
        Figure(f"movement seen if reports were kept ({name})", found.kept, found.fresh),
        f"If a device kept the report it once drew for a place and sent it again there (memoisation), it would be "
        f"{percent(found.kept).removesuffix(' %')} of a hundred: staying shows as the same report. That is why none is "
        "kept.",
    )


@lru_cache(maxsize=256)
def located(law: Any, num_reports: int) -> Guess:
    """Find a parked truck among places that are alike; the same question is asked more than once, so it is kept."""
    return locate(law, num_reports)


def localisation_curve(target: Target) -> list[list[float]]:
    """Return numbers of reports, the chance that a parked truck is found by them, and its interval."""
    found = [(num, located(target.law, num)) for num in CURVE]
    return [[num, guess.value, *guess.interval] for num, guess in found]


def _number_findings(target: Target, truth: Truth | None) -> Iterator[Finding]:
    """Say how well numbers are guessed by one report, one by one and all at once, and as the other form would."""
    mechanism: LocalNumeric = target.mechanism
    weights = [_weights_of(target, attribute, truth) for attribute in mechanism.attributes]
    guesses, num_told = _guesses(mechanism, target.tier, weights)
    other = LocalNumeric(
        quantities=mechanism.quantities, tiers=mechanism.levels, as_published=not mechanism.as_published
    )
    other_guesses, other_told = _guesses(other, target.tier, weights)
    other_name = "sound" if mechanism.as_published else "published"
    prior = "spread evenly" if truth is None else "spread as they really are"
    for attribute, guess, else_guess in zip(mechanism.attributes, guesses, other_guesses, strict=True):
        if not attribute.presence:
            yield About("probability", "attributes", private=truth is not None).finding(
                Figure(f"number guess ({attribute.name})", guess.value, guess.baseline),
                f"Which of {NUM_BUCKETS} buckets a vehicle's {attribute.name} is in is guessed right by one report "
                f"with {percent(guess.value)}, if numbers are {prior}, and without any with "
                f"{percent(guess.baseline)}; the {other_name} form at the same stated epsilon would give "
                f"{percent(else_guess.value)}.",
                {"told": guess.told, "share": guess.share, other_name: else_guess.value},
            )
    value, else_value = guess_tuple(guesses, num_told), guess_tuple(other_guesses, other_told)
    blind = math.prod(guess.baseline for guess in guesses)
    num = sum(not attribute.presence for attribute in mechanism.attributes)
    yield About("probability", "attributes", private=truth is not None).finding(
        Figure(f"tuple guess ({target.purpose.name})", value, blind),
        f"All {several(num, 'number')} of a vehicle are guessed into the right buckets at once by one report with "
        f"{_small(value)}, numbers having nothing to do with each other, and without any with {_small(blind)}; the "
        f"{other_name} form would give {_small(else_value)}.",
        {
            "numbers_told": num_told,
            other_name: else_value,
            "true_loss": _loss(mechanism, target.tier),
            f"{other_name}_true_loss": _loss(other, target.tier),
        },
    )


def _small(chance: float) -> str:
    return percent(chance) if chance >= 1e-4 else f"1 in {number_text(round(1 / chance))}"


def _loss(mechanism: LocalNumeric, tier: Tier) -> float | None:
    loss = mechanism.true_loss(tier)
    return None if loss is None else float(loss)


def _weights_of(target: Target, attribute: Any, truth: Truth | None) -> FloatArray | None:
    if attribute.presence:
        return None
    known = truth.numbers.get((target.purpose.name, attribute.name)) if truth else None
    if known is None or not known.num:
        return even_weights(NUM_BUCKETS, attribute.steps)
    return np.asarray(known.weights / known.weights.sum())


def _guesses(
    mechanism: LocalNumeric, tier: Tier, weights: Sequence[FloatArray | None]
) -> tuple[list[NumberGuess], int]:
    report = mechanism.channel(tier)
    num_told = report.num_sampled if isinstance(report, SampledReport) else len(mechanism.attributes)
    return guess_numbers(report, weights), num_told


# The attacker who knows the fleet, and the owner


@dataclass(frozen=True, eq=False, kw_only=True)
class CarrierCase:
    sight: EstimatesSight  # The release as anyone reads it
    fleet: Fleet  # fleet, truth: the private rows, and what they come to
    truth: Truth
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, sight: EstimatesSight, fleet: Fleet) -> CarrierCase:
        if sight.task.digest != fleet.task.digest:
            raise ReleaseError(
                "the release was made for another task than this policy's. Give the policy as it was when devices "
                "reported."
            )
        whys = (
            (fleet.micros is None, "the policy names no column of time"),
            (sight.num_reports == fleet.num_rows, "there are as many of them as reports"),
            (fleet.num_rows * 2 < fleet.num_slots, "they lie farther apart than the slots of the schedule"),
            (fleet.num_slots > _MOST_SLOTS, "vehicles and slots are too many to look at each"),
        )
        why = next((f"The truth is taken over all rows alike, as {words}." for holds, words in whys if holds), "")
        slots = "The truth is taken over all slots of all vehicles and days alike, drawn or not."
        return cls(
            sight=sight, fleet=fleet, truth=Truth.of(fleet, by_row=bool(why)), notes=(why or slots, *fleet.notes)
        )


def carrier_inside_findings(case: CarrierCase, tell: Progress) -> tuple[list[Finding], list[str]]:
    """Find what takes the true rows: attacks by who knows the fleet, and errors; return findings and notes."""
    findings: list[Finding] = []
    notes = list(case.notes)
    losses = check_task(case.fleet.task)
    for target in Target.all_of(case.fleet.task, losses):
        tell(f"attacking {target.purpose.name} with what is known of the fleet")
        try:
            if target.purpose.grid is None:
                findings += _number_findings(target, case.truth)
            else:
                findings += _habit_findings(case, target)
        except ParameterError as error:
            notes.append(f"{target.purpose.name} was not attacked by who knows the fleet: {error}")
    tell("comparing with the truth")
    findings += _mean_errors(case)
    for name, found in case.sight.maps.items():
        findings += _map_errors(case, name, found)
    return findings, notes


def _habit_findings(case: CarrierCase, target: Target) -> Iterator[Finding]:
    """Attack with the true map as prior, and look for vehicles that nobody else travels with."""
    counts = case.truth.maps.get(target.purpose.name)
    for words, days in PERIODS[:2]:
        num = target.reports_of(days)
        if counts is not None and not isinstance(target.law, Independent):
            prior = counts.astype(np.float64)
            guess = locate(target.law, num, prior)
            yield _guess_finding(
                About("probability", "several releases" if days > 1 else "attributes", private=True),
                f"localisation, fleet known, {words} ({target.purpose.name})",
                guess,
                f"{target.subject} is found by {several(num, 'report')} with {percent(guess.value)} by who also knows "
                f"how often each {target.what} is taken in the whole fleet; by that knowledge alone it is "
                f"{percent(guess.baseline)}.",
                details={"reports": num},
            )
    if isinstance(target.law, InClear) and target.law.num_groups > 1 and target.purpose.steps == 1:
        yield from _uniqueness(case, target)


def _uniqueness(case: CarrierCase, target: Target) -> Iterator[Finding]:
    grid, fleet, schedule = target.purpose.grid, case.fleet, case.fleet.task.schedule
    if grid is None or fleet.micros is None or not 0 < fleet.num_slots <= _MOST_SLOTS // 4:
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
    clock = f"{worst % schedule.num_moments // per_hour:02}:00"
    about, name = About("share", "records", private=True), target.purpose.name
    for hours, share in zip(UNIQUE_HOURS, shares[worst], strict=False):
        yield about.finding(
            Figure(f"unique by areas, {several(hours, 'hour')} ({name})", share, 0.0),
            f"Seen in clear at every slot for {several(hours, 'hour')}, {percent(share)} of the {fleet.num_vehicles:,} "
            f"vehicles have a sequence of areas that no other has: from {clock} UTC on, when most are after "
            f"{several(UNIQUE_HOURS[len(lengths) - 1], 'hour')}.",
            {"curve": curve, "starts": clock, "areas": grid.num_areas},
        )
    # Slots are drawn for some vehicles as devices do: was anyone else in the same areas then?
    noise, num = Noise(), min(MOST_COMPARED, len(areas))
    seen = np.zeros((num, areas.shape[1]), dtype=bool)
    for vehicle in range(num):
        for first in range(0, areas.shape[1], schedule.num_moments):
            seen[vehicle, [first + slot for slot in schedule.draw_slots(noise)]] = True
    share = unique_by_slots(areas, seen)
    yield about.finding(
        Figure(f"unique by areas, as scheduled ({name})", share, 0.0, wilson(share * num, num)),
        f"By the areas of {several(int(seen[0].sum()), 'drawn slot')}, {percent(share)} of the vehicles are "
        f"alone: no other one was in the same areas at the same times. Drawn for {several(num, 'vehicle')}.",
    )


# Errors


def _mean_errors(case: CarrierCase) -> Iterator[Finding]:
    covered: list[bool] = []
    for found in case.sight.means:
        truth = _true_mean(case, found)
        if truth is not None:
            covered.append(found.lower <= truth <= found.upper)
            yield _mean_error(found, truth)
    if covered:
        yield _coverage(case, "numbers", sum(covered), len(covered))


def _true_mean(case: CarrierCase, found: MeanEstimate) -> float | None:
    """Return the true mean in units: missing numbers are the middle, or left out if that is reported by itself."""
    known = case.truth.numbers.get((found.purpose, found.name))
    if known is None or known.num + known.num_missing == 0:
        return None
    symbol = found.quantity.missing == "symbol"
    if found.of_presence:
        return known.num / (known.num + known.num_missing)
    if symbol and not known.num:
        return None
    return found.quantity.in_units(known.total / (known.num if symbol else known.num + known.num_missing))


def _mean_error(found: MeanEstimate, truth: float) -> Finding:
    low, high = (0.0, 1.0) if found.of_presence else (float(found.quantity.low), float(found.quantity.high))
    middle, unit = (low + high) / 2, found.unit
    estimate = middle if found.value is None else found.value
    error = abs(estimate - truth)
    relative = f", {percent(error / abs(truth))} of it" if truth else ""
    holds = "holds" if found.lower <= truth <= found.upper else "misses"
    in_units = "" if found.of_presence or not unit else f" {unit}"
    what = f"the share of {found.name} that is there" if found.of_presence else f"the mean {found.name}"
    told = f"T{what[1:]} is estimated as {number_text(found.value or 0.0)}{in_units}"
    if found.value is None:
        told = f"Nothing was told of {what}"
    return About(unit or NO_UNIT, "utility", private=True).finding(
        Figure(f"error of the mean ({found.label})", error, abs(middle - truth)),
        f"{told}, {number_text(found.lower)} to {number_text(found.upper)}; the truth is {number_text(truth)}: "
        f"off by {number_text(error)}{in_units}{relative}. The interval {holds} it. The middle of the domain would be "
        f"off by {number_text(abs(middle - truth))}.",
        {
            "label": found.label,
            "truth": truth,
            "value": found.value,
            "lower": found.lower,
            "upper": found.upper,
            "low": low,
            "high": high,
            "relative": error / abs(truth) if truth else None,
        },
    )


def _coverage(case: CarrierCase, name: str, num_covered: int, num: int) -> Finding:
    share, stated = num_covered / num, case.sight.confidence
    return About("share", "utility", private=True).finding(
        Figure(f"coverage ({name})", share, stated, wilson(num_covered, num)),
        f"{num_covered:,} of {num:,} intervals hold the truth; {percent(stated)} of them should, each for itself.",
    )


def _map_errors(case: CarrierCase, name: str, found: MapEstimate) -> Iterator[Finding]:
    counts, about = case.truth.maps[name], About("share", "utility", private=True)
    truth = counts / counts.sum()
    listed, blind = truth[found.inputs], np.abs(truth[: found.num_inputs] - 1 / found.num_inputs)
    # Inputs that are not listed share the remainder alike.
    others = found.num_inputs - len(found.inputs)
    unlisted = np.delete(truth, found.inputs) - found.remainder / others if others else np.zeros(0)
    off = np.abs(np.concatenate([found.value - listed, unlisted]))
    rmse, blind_rmse = (math.sqrt(float((far**2).mean())) for far in (off, blind))
    measures = {
        "RMSE of shares": (rmse, blind_rmse, "by the root mean square"),
        "MAE of shares": (float(off.mean()), float(blind.mean()), "on average"),
    }
    for measure, (value, baseline, words) in measures.items():
        yield about.finding(
            Figure(f"{measure} ({name})", value, baseline),
            f"The share of each of {found.num_inputs:,} {found.what}s is off by {number_text(100 * value)} points of "
            f"a hundred {words}; a map on which all are alike would be off by {number_text(100 * baseline)}.",
        )
    apart, all_alike = (min(1.0, float(far.sum()) / 2) for far in (off, blind))
    details: dict[str, object] = {}
    grid = found.grid
    if grid is not None and grid.num_cells <= MOST_MAP_CELLS:  # shares by row from the north, for the page
        estimated = np.zeros(found.num_inputs)
        estimated[found.inputs] = found.value
        rows = range(grid.num_rows - 1, -1, -1)
        order = [[grid.cell_at(column, row) for column in range(grid.num_columns)] for row in rows]
        details = {"map": {"true": truth[order].tolist(), "released": estimated[order].tolist()}}
    yield about.finding(
        Figure(f"total variation distance ({name})", apart, all_alike),
        f"{percent(apart)} of all would have to be in another {found.what} to make the estimated shares true; of a map "
        f"on which all are alike {percent(all_alike)}.",
        {**details, "unlisted": 1 - float(listed.sum())},
    )
    holds = (found.lower <= listed + 1e-12) & (listed <= found.upper + 1e-12)
    yield _coverage(case, name, int(holds.sum()), len(holds))


# Vehicles most at risk


def vehicles_at_risk(case: CarrierCase) -> tuple[list[VehicleAtRisk], str]:
    """List the vehicles that stay longest in one place, or on one path, and say how surely such are found."""
    fleet, maps = case.fleet, case.truth.maps
    targets = [
        target
        for target in Target.all_of(fleet.task, check_task(fleet.task))
        if target.purpose.grid is not None and target.purpose.name in maps
    ]
    if not targets:
        return [], (
            "No vehicle is listed: every report is bound by the same odds, whatever was measured. One whose numbers "
            "never change is told more surely by each further report, up to what the allowance pays for."
        )
    target = min(targets, key=lambda item: item.purpose.steps)  # a place is found before a path is
    num = target.reports_of(DAYS_SEEN)
    try:
        found = located(target.law, num).value
    except ParameterError:  # said in a note already
        return [], "No vehicle is listed: how surely one that stays is found could not be computed."
    vehicles, readings = fleet.vehicles[fleet.order], next(fleet.by_row())
    inputs = inputs_of(target.mechanism, target.law, readings.columns(target.purpose, fleet.columns.places))
    # The last input stands for what is missing or outside; the share is of all rows of a vehicle.
    known = inputs < len(maps[target.purpose.name]) - 1
    pairs, counts = np.unique(vehicles[known] * (int(inputs.max()) + 1) + inputs[known], return_counts=True)
    staying, starts = np.unique(pairs // (int(inputs.max()) + 1), return_index=True)
    most = np.maximum.reduceat(counts, starts) if len(staying) else np.zeros(0)
    share = most / np.bincount(vehicles)[staying]
    first = np.unique(fleet.vehicles, return_index=True)[1]
    order = np.lexsort((first[staying], -share.round(12)))[:MOST_AT_RISK]
    listed = [
        VehicleAtRisk(source_row=int(first[staying[place]]), stays=float(share[place]), found_if_it_stays=found)
        for place in order.tolist()
    ]
    return listed, (
        f"The vehicles with the largest share of rows in one {target.what} ({target.purpose.name}). One that always "
        f"stays there is found by {several(num, 'report')} with {percent(found)}, others less surely; by one report "
        "all have the same odds. Source row: their first one."
    )
