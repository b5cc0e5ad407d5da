# SPDX-License-Identifier: Apache-2.0
"""Means of numbers from tallies: unbiased, with intervals, in the units of their public domains.

Per tier and attribute the symbols of each law are summed up to an unbiased mean in [-1, 1] units. A sign law's interval
is exact (a count of plus signs is binomial). For the others the variance is that of the reports, though never less than
the law's own at that mean, with Student's t; with fewer than :data:`FEW` reports the law's largest variance instead.
The two parts of the hybrid law are weighed by their variance, then tiers are put together
(:func:`~dunnage.local.estimators.combine_tiers`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dunnage.local.estimators import (
    UNKNOWN,
    Combination,
    Estimates,
    binomial_bounds,
    combine,
    combine_tiers,
    normal_quantile,
    ratio_bounds,
    shares_of,
    single,
    student_quantile,
)
from dunnage.local.numeric import LocalNumeric
from dunnage.local.numeric_laws import Duchi, JointSign, Reading, Warner
from dunnage.local.subjects import Quantity
from dunnage.local.tally import Counts, Part, Sums, Tally

FEW = 8
"""With fewer reports than this their own variance says too little; the law's largest is taken."""
_SPREAD = 1 / 3
"""Mean square of a number that is spread evenly over its domain: what weights are reckoned with."""


@dataclass(frozen=True, kw_only=True)
class Mean:
    """An estimated mean, or share of present values, in units."""

    name: str  # The quantity
    value: float | None  # The estimate, clipped to the domain; None if nothing was told of it
    lower: float  # lower, upper: its interval, clipped to the domain
    upper: float
    combination: Combination  # How tiers were put together
    num_told: int  # Reports that tell of it


def sums_of(part: Part) -> Sums:
    """Return number, sum and sum of squares of the symbols of a part; a square wave's are counted one by one."""
    if isinstance(part, Sums):
        return part
    assert isinstance(part, Counts)
    last = part.counts.size // 2
    symbols = np.arange(-last, last + 1).astype(object)
    counts = part.counts.astype(object)
    return Sums(part.num, int((symbols * counts).sum()), int((symbols * symbols * counts).sum()))


def law_mean(reading: Reading, sums: Sums, confidence: float) -> Estimates:
    """Estimate the mean of an attribute, in units of [-1, 1], from the symbols of one law."""
    if not sums.num:
        return UNKNOWN
    mean = reading.scale * float(Fraction(sums.total, sums.num))
    inside = float(np.clip(mean, -1.0, 1.0))
    if isinstance(reading, Duchi | Warner | JointSign):
        chances = binomial_bounds((sums.num + sums.total) // 2, sums.num, confidence)
        lower, upper = (reading.scale * (2 * float(chance) - 1) for chance in chances)
        return single(mean, lower, upper, (reading.scale**2 - inside**2) / sums.num)
    variance = _variance(reading, sums, inside)
    quantile = normal_quantile(confidence) if sums.num < FEW else student_quantile(confidence, sums.num)
    width = quantile * math.sqrt(variance / sums.num)
    return single(mean, mean - width, mean + width, variance / sums.num)


def _variance(reading: Reading, sums: Sums, mean: float) -> float:
    """Return the variance of one report's estimate: that of the reports, but at least the law's."""
    constant, square = reading.quadratic
    if sums.num < FEW:
        return constant + square  # all numbers at the ends of the domain, on either side
    of_symbols = (Fraction(sums.squares) - Fraction(sums.total**2, sums.num)) / (sums.num - 1)
    return max(reading.scale**2 * float(of_symbols), reading.variance_at(mean))


def tier_mean(mechanism: LocalNumeric, tally: Tally, attribute: int, confidence: float) -> tuple[Estimates, float]:
    """Estimate the mean of one attribute from the reports of one tier."""
    parts, precisions = [], []
    for key, part in tally.parts.items():
        if key[0] == attribute:
            reading, sums = mechanism.reading(tally.tier, attribute, str(key[1])), sums_of(part)
            constant, square = reading.quadratic
            parts.append(law_mean(reading, sums, confidence))
            precisions.append(sums.num / (constant + square * _SPREAD))
    if not any(precisions):
        return UNKNOWN, 0.0
    told = [(part, precision) for part, precision in zip(parts, precisions, strict=True) if precision]
    if len(told) == 1:
        return told[0]
    return combine([part for part, _ in told], shares_of([p for _, p in told])), math.fsum(precisions)


def attribute_mean(
    mechanism: LocalNumeric, tallies: Sequence[Tally], attribute: int, *, confidence: float, rule: str
) -> tuple[Estimates, Combination, int]:
    """Estimate the mean of one attribute, in units of [-1, 1], from the reports of all tiers."""
    held = [tally for tally in tallies if tally.num_reports]
    found = [tier_mean(mechanism, tally, attribute, confidence) for tally in held]
    num_told = sum(part.num for tally in held for key, part in tally.parts.items() if key[0] == attribute)
    if not num_told:
        return UNKNOWN, Combination(rule="none"), 0
    nums, precisions = [tally.num_reports for tally in held], [precision for _, precision in found]
    mean, combination = combine_tiers([estimate for estimate, _ in found], nums, precisions, rule)
    return mean, combination, num_told


def estimate_means(
    mechanism: LocalNumeric, tallies: Sequence[Tally], *, confidence: float, rule: str
) -> tuple[list[Mean], list[Mean]]:
    """Estimate the mean of every quantity, and the share of present values of those that report it."""
    found = [
        attribute_mean(mechanism, tallies, place, confidence=confidence, rule=rule)
        for place in range(len(mechanism.attributes))
    ]
    presences = {
        attribute.quantity.name: estimate
        for attribute, estimate in zip(mechanism.attributes, found, strict=True)
        if attribute.presence
    }
    means = [
        _ratio_mean(quantity, estimate, presences[quantity.name])
        if quantity.name in presences
        else _plain_mean(quantity, *estimate)
        for quantity, estimate in zip(mechanism.quantities, found, strict=False)
    ]
    return means, [_present_share(name, *estimate) for name, estimate in presences.items()]


def _in_units(quantity: Quantity, number: float) -> float:
    """Return a normalised number in units, never outside the domain by rounding."""
    return min(max(quantity.in_units(number), float(quantity.low)), float(quantity.high))


def _mean(quantity: Quantity, value: float, ends: tuple[float, float], combination: Combination, num: int) -> Mean:
    """Clip to the domain and take to units; the value lies in the interval."""
    inside = [float(np.clip(number, -1.0, 1.0)) for number in (value, *ends)]
    known = math.isfinite(value)
    lower, upper = (min(inside[0], inside[1]), max(inside[0], inside[2])) if known else (-1.0, 1.0)
    return Mean(
        name=quantity.name,
        value=_in_units(quantity, inside[0]) if known else None,
        lower=_in_units(quantity, lower),
        upper=_in_units(quantity, upper),
        combination=combination,
        num_told=num,
    )


def _plain_mean(quantity: Quantity, estimate: Estimates, combination: Combination, num: int) -> Mean:
    return _mean(quantity, float(estimate.value), (float(estimate.lower), float(estimate.upper)), combination, num)


def _ratio_mean(
    quantity: Quantity, top: tuple[Estimates, Combination, int], present: tuple[Estimates, Combination, int]
) -> Mean:
    """Return the mean over present values: that of numbers which are 0 where missing, by the share of present ones."""
    share = present[0].scaled(0.5, 0.5)
    if not (bool(top[0].known) and bool(share.known)) or share.value <= 0:
        return _mean(quantity, math.nan, (-1.0, 1.0), top[1], top[2])
    ratio = float(np.clip(top[0].value / share.value, -1.0, 1.0))
    return _mean(quantity, ratio, ratio_bounds(top[0], share), top[1], top[2])


def _present_share(name: str, estimate: Estimates, combination: Combination, num: int) -> Mean:
    share = Quantity(name=name, low=Fraction(0), high=Fraction(1))
    return _plain_mean(share, estimate, combination, num)
