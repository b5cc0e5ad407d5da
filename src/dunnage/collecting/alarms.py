# SPDX-License-Identifier: Apache-2.0
"""Alarms about a fleet, with a bound on false alarms over all looks: "more than 5 % above 8 degrees, 99 % sure".

A rule compares a figure of the fleet with a limit. Each day is one look, at the reports of that day. An alarm is raised
if the figure exceeds the limit with certainty: its lower bound does (or its upper bound, for "below"). All looks and
rules share the risk evenly (a union bound, which needs no independence): if no figure is ever beyond its limit, the
chance of one or more alarms in the stated number of looks is at most the risk.

The bounds hold for any number of reports, with no normal approximation: those of Clopper and Pearson where a count is
binomial, Bernstein's inequality where a report is bounded, the band of Dvoretzky, Kiefer, Wolfowitz and Massart for
shares of a distribution. Figures are about the vehicles that reported, as one fleet; no rule can name a vehicle.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dunnage.arrays import FloatArray, IntArray
from dunnage.collecting import promises
from dunnage.collecting.estimate import (
    among_present,
    binomial_bounds,
    grouped,
    likeliest_shares,
    moments_of,
    oracle_shares,
    shares_of,
    wave_matrix,
)
from dunnage.collecting.frames import Batch, Source, TierReader, tally_groups
from dunnage.collecting.tally import Counts, Packed, Part, Sums, Tally
from dunnage.devices.client import mechanisms_of
from dunnage.devices.numbers import LocalNumeric, Reading, SquareWave
from dunnage.devices.places import Disk, HadamardResponse, InClear, LocalLocation, Planar
from dunnage.devices.report import day_text
from dunnage.devices.task import Task
from dunnage.errors import ParameterError, ReportError
from dunnage.exact import nearest_float, share, shown
from dunnage.text import percent

FORMS = (
    "mean of speed > 80",
    "share of temperature above 8 > 5%",
    "readings of temperature < 90%",
    "cell 17 of places > 5%",
)
_FINER, _FINEST = 2, 8
_NUMBER = r"(?P<limit>-?\d+(?:\.\d+)?%?)"
_FORMS = (
    rf"(?P<kind>mean|readings) of (?P<name>.+?) (?P<sign>[<>]) {_NUMBER}",
    rf"(?P<kind>share) of (?P<name>.+?) (?P<side>above|below) (?P<at>-?\d+(?:\.\d+)?) (?P<sign>[<>]) {_NUMBER}",
    rf"(?P<kind>cell) (?P<at>\d+) of (?P<name>.+?) (?P<sign>[<>]) {_NUMBER}",
)


class Bounds(NamedTuple):
    value: float
    lower: float  # lower, upper: each is wrong with at most the stated risk
    upper: float


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A figure of the fleet and the limit beyond which it raises an alarm."""

    text: str
    purpose: str
    kind: str  # mean, readings, share or cell
    place: int  # which quantity of the purpose, or which cell
    edge: int | None = None  # for shares: at which edge of the bins
    above: bool = True  # for shares: whether of values above the edge
    over: bool  # whether the alarm is about more than the limit
    limit: float

    @classmethod
    def read(cls, text: str, task: Task) -> Rule:
        match = next(filter(None, (re.fullmatch(form, text.strip()) for form in _FORMS)), None)
        if match is None:
            raise ParameterError(f"a rule reads like {', '.join(map(repr, FORMS))}. Got {shown(text)}.")
        given = match.groupdict()
        number = given["limit"]
        limit = nearest_float(share(number, what="the limit")) if number.endswith("%") else float(number)
        facts: Any = {"text": text.strip(), "kind": given["kind"], "over": given["sign"] == ">", "limit": limit}
        for purpose, mechanism in mechanisms_of(task).items():
            if given["kind"] == "cell" and isinstance(mechanism, LocalLocation) and purpose == given["name"]:
                law = mechanism.channel(mechanism.levels[0])
                if isinstance(law, Disk | InClear | Planar) or not int(given["at"]) < mechanism.grid.num_cells:
                    raise ParameterError(f"{text!r}: {purpose} has no such cell, or a law without bounds for one.")
                return cls(purpose=purpose, place=int(given["at"]), **facts)
            if given["kind"] == "cell" or not isinstance(mechanism, LocalNumeric):
                continue
            for place, quantity in enumerate(mechanism.quantities):
                if quantity.name != given["name"]:
                    continue
                if given["kind"] == "readings" and quantity.missing != "symbol":
                    raise ParameterError(f"{text!r}: devices do not report whether {quantity.name} is missing.")
                if given["kind"] != "share":
                    return cls(purpose=purpose, place=place, **facts)
                edges = promises.bin_edges(quantity, promises.fixed_bins(quantity.steps))
                if not promises.has_bins(mechanism) or float(given["at"]) not in edges[1:-1]:
                    inner = ", ".join(f"{edge:g}" for edge in edges[1:-1])
                    raise ParameterError(
                        f"{text!r}: shares need method square-wave and one of its edges ({inner}). Or let devices "
                        "report a number that is 0 or 1, and use its mean."
                    )
                edge, above = edges.index(float(given["at"])), given["side"] == "above"
                return cls(purpose=purpose, place=place, edge=edge, above=above, **facts)
        raise ParameterError(f"{text!r}: the task has no {shown(given['name'])} of that kind.")


@dataclass(frozen=True, kw_only=True)
class Look:
    """One rule on one day."""

    day: str
    rule: str
    reports: int
    value: float
    bound: float  # the figure is beyond this, but for the risk of one look
    limit: float
    alarm: bool

    @property
    def from_value(self) -> float | None:
        """From which estimate on the alarm would be raised, with the reports of this day; None if they are too few."""
        return None if self.bound in (0.0, 1.0) else self.limit + self.value - self.bound

    def sentence(self) -> str:
        surely = f"surely {'above' if self.value >= self.bound else 'below'} {self.bound:.4g}"
        takes = self.from_value
        quiet = "too few reports to tell" if takes is None else f"an alarm takes {takes:.4g}"
        outcome = surely if self.alarm else quiet
        return f"{self.day}: {self.rule}: {self.value:.4g}, {outcome} ({self.reports:,} reports)"


@dataclass(frozen=True, kw_only=True)
class Alarms:
    looks: list[Look]
    risk: float  # of one or more false alarms in all looks at all rules
    num_looks: int
    num_rules: int

    def promise(self) -> str:
        each = self.risk / (self.num_looks * self.num_rules)
        return (
            f"if no limit is ever exceeded, the chance of a false alarm in {self.num_looks} looks at {self.num_rules} "
            f"rule{'s' if self.num_rules > 1 else ''} is at most {percent(self.risk)} (union bound: {each:.2g} a look)"
        )

    def to_dict(self) -> dict[str, object]:
        looks = [{**vars(look), "from_value": look.from_value} for look in self.looks]
        return {"alarms": sum(look.alarm for look in self.looks), "promise": self.promise(), "looks": looks}


def look_at(
    task: Task,
    sources: Sequence[Source],
    rules: Sequence[str],
    *,
    sure: float,
    num_looks: int,
    days: tuple[int, int] | None = None,
    received: float | None = None,
) -> Alarms:
    """Look at each day of the reports with each rule."""
    if not 0.5 <= sure < 1 or num_looks < 1 or not rules:
        raise ParameterError("alarms need a rule, at least one look, and a certainty from 50 % to below 100 %.")
    checked, mechanisms = [Rule.read(text, task) for text in rules], mechanisms_of(task)
    by_day = tally_groups(task, sources, _day, days=days, received=received)
    if not by_day:
        raise ReportError("no report can be used. Name files of the task.")
    if len(by_day) > num_looks:
        raise ParameterError(f"the reports are of {len(by_day)} days, more than {num_looks} looks. State more looks.")
    risk, looks = (1 - sure) / (num_looks * len(checked)), []
    for day, tallies in sorted(by_day.items()):
        for rule in checked:
            own = [tally for (purpose, _), tally in tallies.by_tier.items() if purpose == rule.purpose]
            if own:
                figure = bounds(mechanisms[rule.purpose], own, rule, risk)
                bound = figure.lower if rule.over else figure.upper
                alarm = bound > rule.limit if rule.over else bound < rule.limit
                reports = sum(tally.num_reports for tally in own)
                facts: Any = {"value": figure.value, "bound": bound, "limit": rule.limit, "alarm": alarm}
                looks.append(Look(day=day_text(day), rule=rule.text, reports=reports, **facts))
    return Alarms(looks=looks, risk=1 - sure, num_looks=num_looks, num_rules=len(checked))


def _day(reader: TierReader, batch: Batch, own: IntArray, rows: Packed) -> IntArray:
    return batch.day[own]


def bounds(mechanism: Any, tallies: Sequence[Tally], rule: Rule, risk: float) -> Bounds:
    """Return the figure of a rule, with a lower and an upper bound that are each wrong with at most this risk."""
    if rule.kind == "cell":
        return _cell(mechanism, tallies, rule.place, risk)
    quantity = mechanism.quantities[rule.place]
    names = [own.quantity.name if own.presence else "" for own in mechanism.attributes]
    if quantity.name not in names:
        present = Bounds(1.0, 1.0, 1.0)
    else:
        risk /= 1 if rule.kind == "readings" else 2
        near = _number(mechanism, tallies, names.index(quantity.name), risk)
        present = Bounds(*((1 + end) / 2 for end in near))
    if rule.kind == "readings":
        return present
    present = Bounds(*(min(max(end, 0.0), 1.0) for end in present))
    if rule.kind == "share":
        return _share(mechanism, tallies, rule, present, risk)
    top = _number(mechanism, tallies, rule.place, risk)
    if present.lower <= 0:
        return Bounds(*(quantity.in_units(end) for end in (0.0, -1.0, 1.0)))
    value = top.value / max(present.value, 1e-9)
    lower = min(top.lower / present.lower, top.lower / present.upper)
    upper = max(top.upper / present.lower, top.upper / present.upper)
    return Bounds(*(quantity.in_units(end) for end in (value, lower, upper)))


def _number(mechanism: LocalNumeric, tallies: Sequence[Tally], place: int, risk: float) -> Bounds:
    """Return the mean of an attribute in [-1, 1]; tiers and laws weigh as many reports as they have."""
    parts = [
        (mechanism.reading(tally.tier, place, str(key[1])), part)
        for tally in tallies
        for key, part in tally.parts.items()
        if key[0] == place and part.num
    ]
    if not parts:
        return Bounds(0.0, -1.0, 1.0)
    weights = shares_of([float(part.num) for _, part in parts])
    ends = [number_bounds(reading, part, risk / len(parts)) for reading, part in parts]
    return Bounds(
        *(sum(weight * end for weight, end in zip(weights, ends, strict=True)) for ends in zip(*ends, strict=True))
    )


def number_bounds(reading: Reading, part: Part, risk: float) -> Bounds:
    num, mean, _ = moments_of(reading, part)
    if reading.signs and isinstance(part, Sums):
        chances = binomial_bounds((num + part.total) // 2, num, 1 - 2 * risk)
        return Bounds(mean, *(reading.scale * (2 * float(chance) - 1) for chance in chances))
    if (reach := reading.reach) is None:
        raise ParameterError("alarms need reports that are bounded. Use another method than laplace.")
    # One report's estimate: its law's variance, and at most 1 for which vehicles were sampled and for rounding.
    constant, square = reading.quadratic
    return Bounds(mean, *_bernstein(mean, num, max(constant, constant + square) + 1, reach + 1, risk))


def _bernstein(mean: float, num: int, variance: float, reach: float, risk: float) -> tuple[float, float]:
    log = -math.log(risk)
    width = (reach * log / 3 + math.sqrt((reach * log / 3) ** 2 + 2 * num * variance * log)) / num
    return mean - width, mean + width


def _share(mechanism: LocalNumeric, tallies: Sequence[Tally], rule: Rule, present: Bounds, risk: float) -> Bounds:
    waves = [(tally, tally.parts.get((rule.place, SquareWave.key))) for tally in tallies]
    filled = [(tally, part.counts) for tally, part in waves if isinstance(part, Counts) and part.num]
    if not filled:
        return Bounds(0.5, 0.0, 1.0)
    laws: Any = [mechanism.reading(tally.tier, rule.place, SquareWave.key) for tally, _ in filled]
    weights = shares_of([tally.num_reports for tally, _ in filled])
    counts = [own for _, own in filled]
    assert rule.edge is not None
    bins = promises.fixed_bins(laws[0].steps)
    likeliest = likeliest_shares(laws, counts, weights, bins=bins, present=present.value)
    ends = among_present(
        _possible_share(laws, counts, weights, risk, rule.edge), 0.0, rule.edge / bins, (present.lower, present.upper)
    )
    value = float(likeliest.reshape(bins, -1)[: rule.edge].sum())
    value, lower, upper = (1 - value, 1 - ends[1], 1 - ends[0]) if rule.above else (value, *ends)
    return Bounds(min(max(value, lower), upper), lower, upper)


def _possible_share(
    laws: Sequence[SquareWave], counts: Sequence[IntArray], weights: Sequence[float], risk: float, edge: int
) -> tuple[float, float]:
    """Return the smallest and the largest share of numbers below an edge of the bins, for whatever distributions."""
    # Those that agree with the reports up to the band of Dvoretzky, Kiefer, Wolfowitz and Massart, by linear
    # programming: wide, but right for any number of reports and any risk.
    from scipy.linalg import block_diag
    from scipy.optimize import linprog

    bins = promises.fixed_bins(laws[0].steps)
    finer = _FINER * bins
    bands = [_band(law, count, finer, risk / len(laws)) for law, count in zip(laws, counts, strict=True)]
    rows, limits = block_diag(*(band[0] for band in bands)), np.concatenate([band[1] for band in bands])
    below = np.arange(finer) < _FINER * edge
    goal, sums = np.kron(weights, below), np.kron(np.eye(len(laws)), np.ones(finer))  # each tier is a distribution
    ends = []
    for sign, otherwise in ((1, 0.0), (-1, 1.0)):
        answer = linprog(sign * goal, A_ub=rows, b_ub=limits, A_eq=sums, b_eq=np.ones(len(laws)), method="highs")
        ends.append(min(max(sign * float(answer.fun) if answer.status == 0 else otherwise, 0.0), 1.0))
    return ends[0], ends[1]


def _band(law: SquareWave, counts: ArrayLike, bins: int, risk: float) -> tuple[FloatArray, FloatArray]:
    """Return inequalities ``rows @ shares <= limits`` that true shares of fine bins obey, except for the risk."""
    coarse = np.cumsum(grouped(wave_matrix(law, bins)), axis=0)[:-1]
    fine = np.cumsum(grouped(wave_matrix(law, bins * _FINEST)), axis=0)[:-1]
    # Values need not be even within a fine bin: how far that moves the distribution of reports at most.
    apart = np.abs(fine.reshape(len(fine), bins, _FINEST) - coarse[:, :, None]).max(axis=(1, 2)) * (1 + 1 / _FINEST)
    together = grouped(np.asarray(counts, dtype=np.float64))
    num = float(together.sum())
    observed = np.cumsum(together)[:-1] / num
    slack = math.sqrt(math.log(2 / risk) / (2 * num)) + apart
    return np.concatenate([coarse, -coarse]), np.concatenate([observed + slack, slack - observed])


def _cell(mechanism: LocalLocation, tallies: Sequence[Tally], cell: int, risk: float) -> Bounds:
    weights, ends = shares_of([tally.num_reports for tally in tallies]), []
    for tally in tallies:
        oracle: Any = mechanism.oracle(tally.tier)
        (part,) = tally.parts.values()
        assert isinstance(part, Counts)
        shares = oracle_shares(oracle, part, 1 - 2 * risk / len(tallies))  # exact, but for Hadamard responses
        value, own = float(shares.value[cell]), (float(shares.lower[cell]), float(shares.upper[cell]))
        if isinstance(oracle, HadamardResponse):
            own = _bernstein(value, part.num, oracle.scale**2, oracle.scale + 1, risk / len(tallies))
        ends.append((value, *own))
    return Bounds(*(float(np.dot(weights, one)) for one in zip(*ends, strict=True)))
