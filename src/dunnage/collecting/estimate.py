# SPDX-License-Identifier: Apache-2.0
"""estimate: from reports, or their tallies, to a release of estimates with intervals and a certificate.

The release has one long table. ``quantity`` and ``purpose`` say what a line is about, and the cell columns of what:

==============  ==========================================  =================================
quantity        cell columns                                value
==============  ==========================================  =================================
mean            ``attribute``                               mean, in ``unit``
present         ``attribute``                               share of slots with a reading of it
share           ``attribute``, ``bin_lower``, ``bin_upper``  share of a bin (square waves)
quantile 0.5    ``attribute``                               the median (0.25, 0.75 alike), in ``unit``
share           ``cell``, ``lon``, ``lat``                  share of a cell; the cell past the last: outside or missing
share           ``path``                                    share of a path: cells in order, ``12>13``
==============  ==========================================  =================================

``value`` lies between ``lower`` and ``upper``. A column that no purpose needs is left out; where it does not apply to a
line it is empty. Estimates use only perturbed reports: they read nothing private, draw nothing and spend nothing. The
allowances of vehicles record what they revealed, and the certificate states how much that may be.

Intervals are for single values: it is less likely that many are right at once. They also work for small numbers of
reports: exact ones (Clopper and Pearson) where a count is binomial, score intervals (Wilson) where the law's variance
is a known function of the estimate, Student's t elsewhere. The method of variance estimates recovery (Zou and Donner
2008) combines several, and keeps lopsided intervals lopsided.

*Shares.* The released value is the nearest point of the simplex (shares that are not negative and add up to 1); the
interval stays that of the unbiased estimate. The planar law has no unbiased share: the value is the likeliest map, and
the interval that of the map from inverting the channel, however wide.

*Distributions* behind a known channel (square waves, planar reports) come from expectation maximisation. For square
waves each step is followed by smoothing (EMS, Li et al. 2020), because otherwise the fit follows the noise. The number
of bins follows from public facts, epsilon and how many reports there are (``promises.num_bins``). Smoothing flattens
peaks by an amount that the fit does not show, so a bootstrap around it promises more than it keeps (on two humps at
epsilon 1 its "95 %" are right in 2 of 100 cases). So intervals of bins and quantiles rely neither on the fit nor on
smoothness (``distributions``). Where numbers may be missing, bins and quantiles are those of the numbers that are
present: the reports made from the middle are taken out.
"""

from __future__ import annotations

import itertools
import math
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dunnage.arrays import FloatArray, IntArray
from dunnage.collecting import promises
from dunnage.collecting.distributions import ShareBounds
from dunnage.collecting.frames import Source, tally_reports
from dunnage.collecting.promises import NO_TIER, ONE_TIER, PRECISION, STRATIFY, chosen_rule, most_bins, num_bins
from dunnage.collecting.tally import Counts, Part, Sums, Tallies, Tally, check_tally, note_tally
from dunnage.devices.client import check_task, mechanisms_of
from dunnage.devices.numbers import Designed, LocalNumeric, Reading, SquareWave, odds_of
from dunnage.devices.paths import Independent, LocalTrajectory
from dunnage.devices.places import (
    DIRECTIONS,
    Disk,
    HadamardResponse,
    InClear,
    LocalLocation,
    NoiseVerdict,
    Oracle,
    Planar,
    ProjectiveResponse,
)
from dunnage.devices.report import Report
from dunnage.devices.subjects import Quantity
from dunnage.devices.task import Task
from dunnage.errors import InputError, ParameterError, Problem, Refusal
from dunnage.exact import shown
from dunnage.folders import new_folder
from dunnage.model.certificate import EstimateMeasures, SpendStatement, certify
from dunnage.model.guarantees import SENT_BY
from dunnage.noise.source import ceil_divide
from dunnage.release import CERTIFICATE_FILE, RELEASE_FILES, Release
from dunnage.release.kinds import ESTIMATES
from dunnage.release.kinds.estimates import OTHER, QUANTILES
from dunnage.text import percent

FEW = 8  # With fewer reports their own variance says too little, and the law's largest variance is used
MAX_SHARES = 1 << 24  # Inputs with shares that are estimated at once
MAX_LISTED = 1000  # Paths that are listed, besides those with an interval above 0
MAX_GROUPS = 64  # Groups of symbols that a distribution is fitted to
MAX_PLANAR_CELLS = 1 << 12
_MAX_ROUNDS = 2_000
_STILL = 1e-6
_SUB_VALUES = 16
_NARROW = 256
_MAX_REACH = 1 << 12
_NEGLIGIBLE = 40  # moves less likely than exp(-40) times no move are ignored
_GOLDEN = (math.sqrt(5) - 1) / 2
_JUDGED = 24  # predicted maps, to see how far the released one is from the truth
_EVEN = 0.05  # reports that are this likely for an even map, or likelier, do not show that places differ
_SPREAD = 1 / 3  # Mean square of a number that is spread evenly over its domain, for weights


class Intervals(NamedTuple):
    value: FloatArray  # NaN where nothing was reported
    lower: FloatArray  # lower, upper: ends of the intervals; infinite where nothing was reported
    upper: FloatArray
    variance: FloatArray

    def scaled(self, factor: float, shift: float = 0.0) -> Intervals:
        """Return the estimates of a multiple, by a factor above 0, plus a constant."""
        value, lower, upper = (factor * end + shift for end in (self.value, self.lower, self.upper))
        return Intervals(value, lower, upper, factor * factor * self.variance)

    @property
    def known(self) -> NDArray[np.bool_]:
        return np.isfinite(self.value)


def single(value: float, lower: float, upper: float, variance: float) -> Intervals:
    return Intervals(*(np.asarray(number, dtype=np.float64) for number in (value, lower, upper, variance)))


UNKNOWN = single(math.nan, -math.inf, math.inf, math.inf)  # The estimate of a number that nobody reported


@dataclass(frozen=True, kw_only=True)
class Combination:
    rule: str  # `precision`, `stratify`, or `one tier`
    p_value: float | None = None  # Of Cochran's Q for equal tiers; None with one tier

    def to_dict(self) -> dict[str, str | float]:
        return {"rule": self.rule} | ({} if self.p_value is None else {"p_value": float(f"{self.p_value:.4g}")})


def normal_quantile(confidence: float) -> float:
    """Return how many standard deviations to either side cover a normal variable with the given confidence."""
    from scipy.special import ndtri

    return float(ndtri((1 + confidence) / 2))


def binomial_bounds(counts: ArrayLike, num: int, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Return the exact interval of Clopper and Pearson for the chance behind each count."""
    # If the counted events have different chances, it is for their mean: the count then varies less (Hoeffding 1956).
    from scipy.special import betaincinv

    hits, tail = np.asarray(counts, dtype=np.float64), (1 - confidence) / 2
    with np.errstate(invalid="ignore"):
        lower = np.where(hits > 0, betaincinv(np.maximum(hits, 0.5), num - hits + 1, tail), 0.0)
        upper = np.where(hits < num, betaincinv(hits + 1, np.maximum(num - hits, 0.5), 1 - tail), 1.0)
    return lower, upper


def score_bounds(
    value: ArrayLike, num: float, quadratic: tuple[ArrayLike, ArrayLike], confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return Wilson's interval: all shares f for which the value is likely, with variance (a + b f - f^2) / num."""
    estimate, (constant, slope) = np.asarray(value, dtype=np.float64), (np.asarray(part) for part in quadratic)
    weight = normal_quantile(confidence) ** 2 / num
    half = estimate + weight * slope / 2
    # (1 + w) f^2 - 2 half f + e^2 - w a = 0
    root = np.sqrt(np.maximum(half * half - (1 + weight) * (estimate * estimate - weight * constant), 0.0))
    return (half - root) / (1 + weight), (half + root) / (1 + weight)


def combine(parts: Sequence[Intervals], weights: Sequence[float]) -> Intervals:
    """Return the weighted sum of independent estimates; weights are not negative."""
    # The distance of the interval's ends from the value is the root of the sum of squares of those of the parts. An
    # unknown part may be anything in [-1, 1], and extends the interval by that.
    value, below, above, variance, unknown = (np.zeros(np.shape(parts[0].value)) for _ in range(5))
    for part, weight in zip(parts, weights, strict=True):
        known = part.known
        value = value + weight * np.where(known, part.value, 0.0)
        below = below + weight**2 * np.where(known, part.value - part.lower, 0.0) ** 2
        above = above + weight**2 * np.where(known, part.upper - part.value, 0.0) ** 2
        variance = variance + weight**2 * np.where(known, part.variance, 1.0)
        unknown = unknown + weight * ~known
    return Intervals(value, value - np.sqrt(below) - unknown, value + np.sqrt(above) + unknown, variance)


def shares_of(amounts: Sequence[float]) -> list[float]:
    whole = math.fsum(amounts)
    return [amount / whole for amount in amounts]


def combine_tiers(
    tiers: Sequence[Intervals], nums: Sequence[int], precisions: Sequence[float], rule: str
) -> tuple[Intervals, Combination]:
    if len(tiers) == 1:
        return tiers[0], Combination(rule=ONE_TIER)
    p_value = heterogeneity(tiers)
    stratified = combine(tiers, shares_of(nums))
    if chosen_rule(rule, len(tiers), p_value) == STRATIFY or not any(precisions):
        return stratified, Combination(rule=STRATIFY, p_value=p_value)
    known = [(tier, precision) for tier, precision in zip(tiers, precisions, strict=True) if np.all(tier.known)]
    precise = combine([tier for tier, _ in known], shares_of([precision for _, precision in known]))
    if rule == PRECISION:
        return precise, Combination(rule=PRECISION, p_value=p_value)
    lower, upper = np.minimum(stratified.lower, precise.value), np.maximum(stratified.upper, precise.value)
    return Intervals(precise.value, lower, upper, stratified.variance), Combination(rule=PRECISION, p_value=p_value)


def heterogeneity(tiers: Sequence[Intervals]) -> float | None:
    """Return the p-value of Cochran's Q, over all values together, for tiers that estimate the same."""
    from scipy.special import chdtrc

    known = [tier for tier in tiers if np.all(tier.known)]
    if len(known) < 2:
        return None
    weights = np.stack([1 / np.maximum(tier.variance, 1e-300) for tier in known])
    values = np.stack([tier.value for tier in known])
    mean = (weights * values).sum(axis=0) / weights.sum(axis=0)
    distance = float((weights * (values - mean) ** 2).sum())
    # Shares add up to 1, so k of them count as k - 1.
    return float(chdtrc((len(known) - 1) * max(mean.size - 1, 1), distance))


def project_shares(values: ArrayLike, total: float = 1.0) -> FloatArray:
    """Return the nearest values that are not negative and add up to a total (norm-sub)."""
    given = np.asarray(values, dtype=np.float64)
    ordered = np.sort(given)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, given.size + 1)
    lowered = np.maximum(given - excess[np.flatnonzero(ordered > excess)[-1]], 0.0) if total > 0 else 0.0 * given
    return lowered * (total / lowered.sum()) if total > 0 else lowered


def ratio_bounds(top: Intervals, bottom: Intervals, *, num_points: int = 20_001) -> tuple[float, float]:
    """Return the interval of a ratio in [-1, 1] of two estimates (Fieller 1954); ``bottom`` is a share."""
    # A ratio r is in it if top - r * bottom may be 0. The two count as independent: if a report covers both, they vary
    # together, and the interval is wider than necessary.
    ratios = np.linspace(-1.0, 1.0, num_points)
    difference = top.value - ratios * bottom.value
    ends = np.stack([ratios * bottom.lower, ratios * bottom.upper])
    below = np.hypot(top.value - top.lower, ends.max(axis=0) - ratios * bottom.value)
    above = np.hypot(top.upper - top.value, ratios * bottom.value - ends.min(axis=0))
    possible = np.flatnonzero((difference - below <= 0) & (difference + above >= 0))
    if not possible.size:  # the two contradict each other, so anything is possible
        return -1.0, 1.0
    first, last = max(possible[0] - 1, 0), min(possible[-1] + 1, num_points - 1)
    return float(ratios[first]), float(ratios[last])


def walsh_hadamard(table: IntArray) -> IntArray:
    """Transform each row, of a length that is a power of two: entry r becomes the sum of entries c, signed by r & c."""
    num_rows, size = table.shape
    done, width = table.copy(), 1
    while width < size:
        pairs = done.reshape(num_rows, size // (2 * width), 2, width)
        done = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        done = done.reshape(num_rows, size)
        width *= 2
    return done


@dataclass(frozen=True, kw_only=True)
class Mean:
    name: str  # The quantity
    value: float | None  # The estimate, clipped to the domain; None if no report covers it
    lower: float  # lower, upper: its interval, clipped to the domain
    upper: float
    combination: Combination  # How tiers were combined
    num_told: int  # Reports that cover it


class Moments(NamedTuple):
    """The estimates of single reports: how many there are, their mean, and the sum of squares around it."""

    num: int
    mean: float
    squares: float


def moments_of(reading: Reading, part: Part) -> Moments:
    if isinstance(reading, Designed):
        assert isinstance(part, Counts)
        values = np.array(reading.values)
        mean = float(part.counts @ values) / max(part.num, 1)
        return Moments(part.num, mean, float(part.counts @ (values - mean) ** 2))
    if isinstance(part, Sums):
        sums = part
    else:
        last = part.counts.size // 2
        symbols, counts = np.arange(-last, last + 1).astype(object), part.counts.astype(object)
        sums = Sums(part.num, int((symbols * counts).sum()), int((symbols * symbols * counts).sum()))
    exactly = Fraction(sums.total, max(sums.num, 1))
    squares = reading.scale**2 * float(Fraction(sums.squares) - sums.total * exactly)
    return Moments(sums.num, reading.scale * float(exactly), squares)


def law_mean(reading: Reading, part: Part, confidence: float) -> Intervals:
    from scipy.special import stdtrit

    if not part.num:
        return UNKNOWN
    num, mean, squares = moments_of(reading, part)
    inside = float(np.clip(mean, -1.0, 1.0))
    if reading.signs:
        assert isinstance(part, Sums)
        chances = binomial_bounds((num + part.total) // 2, num, confidence)
        lower, upper = (reading.scale * (2 * float(chance) - 1) for chance in chances)
        return single(mean, lower, upper, (reading.scale**2 - inside**2) / num)
    if num < FEW:
        variance = sum(reading.quadratic)  # all numbers at the ends of the domain
        quantile = normal_quantile(confidence)
    else:  # the variance of one report's estimate: that of the reports, but at least the law's
        variance = max(squares / (num - 1), reading.variance_at(inside))
        quantile = float(stdtrit(num - 1, (1 + confidence) / 2))  # Student's: the variance is estimated
    width = quantile * math.sqrt(variance / num)
    return single(mean, mean - width, mean + width, variance / num)


def tier_mean(mechanism: LocalNumeric, tally: Tally, attribute: int, confidence: float) -> tuple[Intervals, float]:
    parts, precisions = [], []
    for key, part in tally.parts.items():
        if key[0] == attribute and part.num:
            reading = mechanism.reading(tally.tier, attribute, str(key[1]))
            constant, square = reading.quadratic
            parts.append(law_mean(reading, part, confidence))
            precisions.append(part.num / (constant + square * _SPREAD))
    if not parts:
        return UNKNOWN, 0.0
    if len(parts) == 1:
        return parts[0], precisions[0]
    return combine(parts, shares_of(precisions)), math.fsum(precisions)


def estimate_means(
    mechanism: LocalNumeric, tallies: Sequence[Tally], *, confidence: float, rule: str
) -> tuple[list[Mean], list[Mean]]:
    filled = [tally for tally in tallies if tally.num_reports]
    estimates: list[tuple[Intervals, Combination, int]] = []  # of each attribute, in units of [-1, 1]
    for place in range(len(mechanism.attributes)):
        num_told = sum(part.num for tally in filled for key, part in tally.parts.items() if key[0] == place)
        if not num_told:
            estimates.append((UNKNOWN, Combination(rule=NO_TIER), 0))
            continue
        tiers, precisions = zip(*(tier_mean(mechanism, tally, place, confidence) for tally in filled), strict=True)
        mean, combination = combine_tiers(tiers, [tally.num_reports for tally in filled], precisions, rule)
        estimates.append((mean, combination, num_told))
    presences = {
        attribute.quantity.name: estimate
        for attribute, estimate in zip(mechanism.attributes, estimates, strict=True)
        if attribute.presence
    }
    means = []
    for quantity, (top, combination, num) in zip(mechanism.quantities, estimates, strict=False):
        value, ends = float(top.value), (float(top.lower), float(top.upper))
        if quantity.name in presences:
            # Over present values: the mean of numbers that are 0 where missing, divided by the share of present ones.
            share = presences[quantity.name][0].scaled(0.5, 0.5)
            value, ends = math.nan, (-1.0, 1.0)
            if bool(top.known) and bool(share.known) and share.value > 0:
                value, ends = float(np.clip(top.value / share.value, -1.0, 1.0)), ratio_bounds(top, share)
        means.append(_mean(quantity, value, ends, combination, num))
    shares = []
    for name, (share, combination, num) in presences.items():
        unit = Quantity(name=name, low=Fraction(0), high=Fraction(1))
        shares.append(_mean(unit, float(share.value), (float(share.lower), float(share.upper)), combination, num))
    return means, shares


def _mean(quantity: Quantity, value: float, ends: tuple[float, float], combination: Combination, num: int) -> Mean:
    inside = [float(np.clip(number, -1.0, 1.0)) for number in (value, *ends)]
    known = math.isfinite(value)
    lower, upper = (min(inside[0], inside[1]), max(inside[0], inside[2])) if known else (-1.0, 1.0)
    low, high = float(quantity.low), float(quantity.high)  # rounding may leave the domain
    middle, lower, upper = (min(max(quantity.in_units(number), low), high) for number in (inside[0], lower, upper))
    value_known = middle if known else None
    return Mean(name=quantity.name, value=value_known, lower=lower, upper=upper, combination=combination, num_told=num)


class Distribution(NamedTuple):
    shares: Intervals  # Share of each bin, with its interval
    quantiles: Intervals  # Quarter, middle and three quarters points in [-1, 1], with their intervals


def wave_matrix(law: SquareWave, bins: int) -> FloatArray:
    """Return the chance of each symbol (line) for a value that is spread evenly over a bin (column)."""
    # The chance of each point (line) for a value in a bin (column), rounded at random.
    inside = (np.arange(bins * _SUB_VALUES) + 0.5) / (bins * _SUB_VALUES)  # of [0, 1]
    scaled = inside * 2 * law.steps
    below = np.minimum(scaled.astype(np.int64), 2 * law.steps - 1)
    points = np.zeros((2 * law.steps + 1, bins))
    of_bin = np.arange(inside.size) // _SUB_VALUES
    np.add.at(points, (below, of_bin), (1 - (scaled - below)) / _SUB_VALUES)
    np.add.at(points, (below + 1, of_bin), (scaled - below) / _SUB_VALUES)
    total = np.concatenate([np.zeros((1, bins)), np.cumsum(points, axis=0)])
    symbols = np.arange(-law.last, law.last + 1)
    first = np.clip(symbols - law.half + law.steps, 0, law.num_inputs)
    stop = np.clip(symbols + law.half + law.steps + 1, 0, law.num_inputs)
    odds = float(odds_of(law.epsilon))
    weights: FloatArray = 1 + (odds - 1) * (total[stop] - total[first])
    return weights / (law.window * odds + law.num_outside)


def grouped(array: FloatArray, most: int = MAX_GROUPS) -> FloatArray:
    starts = np.unique(np.linspace(0, len(array), min(most, len(array)), endpoint=False).astype(np.int64))
    return np.asarray(np.add.reduceat(array, starts, axis=0))


def maximise(channel: FloatArray, frequencies: FloatArray, *, smooth: bool, rounds: int = _MAX_ROUNDS) -> FloatArray:
    """Return the likeliest distributions of inputs for observed frequencies, each a column."""
    shape = (channel.shape[1], frequencies.shape[1])
    fitted = np.full(shape, 1 / shape[0])
    weights = np.full((shape[0], 1), 4.0)
    weights[[0, -1]] -= 1
    for _ in range(rounds):
        expected = np.maximum(channel @ fitted, 1e-300)
        updated = fitted * (channel.T @ (frequencies / expected))
        if smooth:  # average each value with its neighbours by 1, 2, 1; an end has only one
            sums = 2 * updated
            sums[1:] += updated[:-1]
            sums[:-1] += updated[1:]
            updated = sums / weights
        updated /= updated.sum(axis=0)
        still = float(np.abs(updated - fitted).max()) < _STILL
        fitted = updated
        if still:
            break
    return fitted


def fit_distribution(
    laws: Sequence[SquareWave],  # laws, counts: the law of each tier and how often each of its symbols occurred
    counts: Sequence[ArrayLike],
    weights: Sequence[float],  # Parts of the tiers, which add up to 1
    confidence: float,  # How likely each interval is right
    *,
    bins: int,
    fit_together: bool = True,
    bound_together: bool = False,  # Whether intervals may rely on that too
    present: tuple[float, float, float] = (1.0, 1.0, 1.0),  # Share of reports with a number, and its interval
) -> Distribution:
    narrow = likeliest_shares(laws, counts, weights, bins=bins, fit_together=fit_together, present=present[0])
    apart = [(laws, counts)] if bound_together else list(zip(([law] for law in laws), zip(counts), strict=True))
    tiers = [ShareBounds(own_laws, own_counts, bins) for own_laws, own_counts in apart]

    def ends(low: float, high: float) -> tuple[float, float]:
        parts = [tier.share(low, high, confidence) for tier in tiers]
        whole = combine([single(*part, 0.0) for part in parts], [1.0] if bound_together else weights)
        return among_present((float(whole.lower), float(whole.upper)), low, high, present[1:])

    value = narrow.reshape(bins, -1).sum(axis=1)
    limits = np.array([ends(at / bins, (at + 1) / bins) for at in range(bins)])
    lower, upper = np.minimum(limits[:, 0], value), np.maximum(limits[:, 1], value)
    # A quantile lies beyond an edge where even the largest share of values below is too small.
    edges = np.linspace(0.0, 1.0, most_bins(laws[0].steps) + 1)
    middle = np.interp(QUANTILES, np.append(0.0, np.cumsum(narrow)), np.linspace(0.0, 1.0, narrow.size + 1))
    inner = range(1, edges.size - 1)
    up_to = cache(lambda at: ends(0.0, float(edges[at])))
    first = edges[[bisect_left(inner, True, key=lambda at: up_to(at)[1] >= share) for share in QUANTILES]]
    last = edges[[bisect_left(inner, True, key=lambda at: up_to(at)[0] >= share) + 1 for share in QUANTILES]]
    return Distribution(
        Intervals(value, lower, upper, (upper - lower) ** 2 / 12),
        Intervals(middle, np.minimum(first, middle), np.maximum(last, middle), (last - first) ** 2 / 12).scaled(2, -1),
    )


def likeliest_shares(
    laws: Sequence[SquareWave],
    counts: Sequence[ArrayLike],
    weights: Sequence[float],
    *,
    bins: int,
    fit_together: bool = True,
    present: float = 1.0,  # Share of reports with a number
) -> FloatArray:
    """Return the smoothed likeliest share of each of many narrow bins, some of which make up a bin."""
    arrays = [np.asarray(count, dtype=np.float64) for count in counts]
    for at, law in enumerate(laws):
        inside = np.abs(np.arange(-law.last, law.last + 1)) <= law.half
        weight = np.where(inside, float(odds_of(law.epsilon)), 1.0)
        kept = np.maximum(arrays[at] - (1 - present) * arrays[at].sum() * weight / weight.sum(), 0.0)
        arrays[at] = kept if kept.any() else arrays[at]
    # Smoothing moves a share by about one narrow bin.
    narrow = bins * max(1, min(_NARROW, 2 * laws[0].steps) // bins)
    channels = [grouped(wave_matrix(law, narrow), _NARROW) for law in laws]
    columns = [grouped(array[:, None], _NARROW) for array in arrays]
    if fit_together:  # one distribution, each tier through its own channel
        whole = math.fsum(float(count.sum()) for count in columns)
        channel = np.concatenate([count.sum() / whole * c for count, c in zip(columns, channels, strict=True)])
        fitted = maximise(channel, np.concatenate(columns) / whole, smooth=True)[:, 0]
    else:
        fits = [maximise(c, g / g.sum(), smooth=True)[:, 0] for c, g in zip(channels, columns, strict=True)]
        fitted = np.asarray(np.average(fits, axis=0, weights=weights))
    return fitted


def among_present(
    ends: tuple[float, float],  # Of the share of a range in all reports
    low: float,  # low, high: the range, as parts of the domain
    high: float,
    present: tuple[float, float],  # Ends of the share of reports with a number
) -> tuple[float, float]:
    """Return the ends of the share of a range among the numbers that are present."""
    # The others were reported as the middle. Where it is an end of the range, they may count in it or not.
    if present[0] >= 1:
        return ends
    rarely, often = present
    all_in, none_in = low < 0.5 < high, high < 0.5 or low > 0.5
    least = ends[0] / often if none_in else 1 - (1 - ends[0]) / rarely if rarely else 0.0
    most = 1 - (1 - ends[1]) / often if all_in else ends[1] / rarely if rarely else 1.0
    return min(max(least, 0.0), 1.0), min(max(most, 0.0), 1.0)


# Shares of places and paths
class Shares(NamedTuple):
    value: FloatArray  # Shares, not negative, that add up to 1
    lower: FloatArray  # lower, upper: ends of their intervals, within [0, 1], around the value
    upper: FloatArray
    combination: Combination  # How tiers were combined
    unbiased: Intervals  # Before shares were made to fit; of places behind a disk or planar law, the same


def estimate_shares(
    mechanism: LocalLocation | LocalTrajectory,
    tallies: Sequence[Tally],
    *,
    confidence: float,
    rule: str,
    law_of: Callable[[str], Any] | None = None,  # The law of the reports of a tier, if not that of the mechanism
) -> Shares:
    filled = [tally for tally in tallies if tally.num_reports]
    laws = [(law_of or mechanism.channel)(tally.tier) for tally in filled]
    nums = [tally.num_reports for tally in filled]
    if isinstance(laws[0], Disk | Planar):  # the likeliest map of all tiers, or of each by itself
        parts = [next(iter(tally.parts.values())) for tally in filled]
        counts = [part.counts.astype(np.float64) for part in parts if isinstance(part, Counts)]
        likeliest_map: Any = disk_map if isinstance(laws[0], Disk) else planar_map
        maps = [likeliest_map([law], [array], confidence) for law, array in zip(laws, counts, strict=True)]
        tiers = [estimates for _, estimates in maps]
        precisions = [1 / max(float(np.mean(estimates.variance)), 1e-300) for estimates in tiers]
        together, combination = combine_tiers(tiers, nums, precisions, rule)
        if combination.rule == PRECISION:
            value = likeliest_map(laws, counts, None)[0]
        else:
            value = np.asarray(np.average([likeliest for likeliest, _ in maps], axis=0, weights=nums))
        value = value / value.sum()
    else:
        if laws[0].num_inputs > MAX_SHARES:
            raise ParameterError(
                f"a map or table has at most {MAX_SHARES:,} shares. Got {laws[0].num_inputs:,}. Use fewer levels."
            )
        tiers = [tier_shares(law, tally, confidence) for law, tally in zip(laws, filled, strict=True)]
        mean_share = 1 / laws[0].num_inputs
        # The variance of a law is for fixed places; sampling the places adds its own (NOTES: 1 / (v + s^2)).
        precisions = [
            1 / (law.variance(mean_share, num) + mean_share * (1 - mean_share) / num)
            for law, num in zip(laws, nums, strict=True)
        ]
        together, combination = combine_tiers(tiers, nums, precisions, rule)
        value = _projected(together.value, laws[0], filled)
    # Intervals are clipped to [0, 1], and extended to a value outside them.
    lower, upper = np.clip(together.lower, 0.0, 1.0), np.clip(together.upper, 0.0, 1.0)
    return Shares(value, np.fmin(lower, value), np.fmax(upper, value), combination, together)


def is_noise(shares: Shares, num_places: int, law: object, tallies: Sequence[Tally]) -> bool:
    """Judge by the reports whether a map or table is further from the truth than one with equal shares."""
    from scipy.special import ndtr, ndtri

    if isinstance(law, Planar):  # its blur is what makes it noise, and that is the same for all maps
        return True
    if isinstance(law, Disk):  # nothing but chance, if no disk has more reports than those of an even map
        parts = [next(iter(tally.parts.values())) for tally in tallies if tally.num_reports]
        return not any(_stands_out(_disk_chances(law, part)) for part in parts)
    value, variance, released = (part[:num_places] for part in (*shares.unbiased[::3], shares.value))
    if _stands_out(ndtr((value.mean() - value) / np.sqrt(np.maximum(variance, 1e-300)))):
        return False
    # Distances are predicted around a plausible truth: the released map, drawn towards the even one until it differs
    # from that by as much as the reports do beyond their noise.
    even, total = float(released.mean()), float(released.sum())
    signal = float(((value - value.mean()) ** 2).sum() - variance.sum())
    away = math.sqrt(float(((released - even) ** 2).sum()))
    by_chance = normal_quantile(1 - 2 * _EVEN) * math.sqrt(2 * float((variance**2).sum()))
    if signal <= by_chance or not away:
        return True
    truth = even + min(1.0, math.sqrt(signal) / away) * (released - even)
    # Quantiles in an order without a pattern, the same each time: this is a prediction, not noise that protects.
    evenly = np.modf((0.5 + np.arange(_JUDGED * value.size)) * _GOLDEN)[0].reshape(_JUDGED, -1)
    noise = ndtri(evenly) * np.sqrt(variance)
    errors = np.array([project_shares(truth + line, total) for line in noise]) - truth
    return all(
        float((np.abs(errors) ** power).sum(axis=1).mean()) > (np.abs(truth - even) ** power).sum() for power in (1, 2)
    )


def _stands_out(chances: FloatArray) -> bool:
    """Return whether one of many values, each that large with its chance if places do not differ, is too large."""
    return bool(chances.size * chances.min() <= _EVEN)


def _disk_chances(law: Disk, part: Part) -> FloatArray:
    """Return how likely the disk of each place would have as many reports, or more, on an even map."""
    from scipy.special import betainc

    assert isinstance(part, Counts)
    channel, places = DiskChannel(law), law.grid.num_cells
    missing = (part.counts[-1] / part.num * channel.total / law.size - 1) / (channel.odds - 1)
    missing = min(max(float(missing), 0.0), 1.0)
    even = channel.reports(np.append(np.full(places, (1 - missing) / places), missing))
    due = np.clip(channel.inside(even)[:-1], 0.0, 1.0)
    found = np.rint(channel.inside(part.counts)[:-1])
    # At least so many of all reports: the binomial tail.
    return np.where(found > 0, betainc(np.maximum(found, 1), part.num - found + 1, due), 1.0)


def tier_shares(law: object, tally: Tally, confidence: float) -> Intervals:
    if isinstance(law, Independent):
        return _product_shares(law, tally, confidence)
    if not isinstance(law, InClear):
        oracle: Oracle = law  # type: ignore[assignment]
        (part,) = tally.parts.values()
        assert isinstance(part, Counts)
        return oracle_shares(oracle, part, confidence)
    # Where groups are in clear, each group's own reports count, as parts of all, and one without reports has none.
    size, zeros = law.group_size, np.zeros(law.num_inputs)
    empty = float(binomial_bounds(0, tally.num_reports, confidence)[1])
    estimates = Intervals(zeros, zeros.copy(), np.full(law.num_inputs, empty), zeros.copy())
    for (group,), part in tally.parts.items():
        assert isinstance(part, Counts)
        assert isinstance(group, int)
        inner = oracle_shares(law.oracle, part, confidence, of=tally.num_reports)
        for whole, of_group in zip(estimates, inner, strict=True):
            whole[group * size : (group + 1) * size] = of_group[:size]
            if group == 0:  # where "outside or missing" is reported
                whole[-1] = of_group[size]
    return estimates


def oracle_shares(oracle: Oracle, part: Counts, confidence: float, *, of: int | None = None) -> Intervals:
    num = of or part.num
    here = part.num / num
    if isinstance(oracle, HadamardResponse):
        table = part.counts.reshape(oracle.num_blocks, oracle.num_columns)
        rows, blocks = np.divmod(np.arange(oracle.num_inputs), oracle.num_blocks)
        value = walsh_hadamard(table)[blocks, rows + 1] / num * oracle.scale
        # The square of an entry is 1 in the own block, else 0.
        squares = np.maximum(table.sum(axis=1)[blocks] / num, 2 * oracle.q * here) * oracle.scale**2
        variance = np.maximum(squares - np.clip(value, 0.0, 1.0) ** 2, 0.0) / num
        return Intervals(value, *score_bounds(value, num, (squares, 0.0), confidence), variance)
    counts = supports(oracle, part.counts) if isinstance(oracle, ProjectiveResponse) else part.counts
    value = (counts / num - oracle.q * here) * oracle.scale
    inside = np.clip(value, 0.0, here)
    # One report's estimate: 0 in another area, else (own bit - q) / (p - q).
    constant, slope = here * oracle.q * (1 - oracle.q) * oracle.scale**2, (1 - 2 * oracle.q) * oracle.scale
    variance = np.maximum(constant + slope * inside - inside**2, 0.0) / num
    bounds = binomial_bounds(counts, part.num, confidence)
    lower, upper = (here * (end - oracle.q) * oracle.scale for end in bounds)
    if here < 1:  # how many reports an area has varies as well
        wider = normal_quantile(confidence) * inside / here * math.sqrt(here * (1 - here) / num)
        lower, upper = value - np.hypot(value - lower, wider), value + np.hypot(upper - value, wider)
    return Intervals(value, lower, upper, variance)


def supports(oracle: ProjectiveResponse, counts: IntArray) -> IntArray:
    """Return for each input how many symbols lie on its hyperplane, from the counts of all symbols."""
    from scipy.fft import fftn, ifft

    from dunnage.collecting.kernels import lines_through, spread_points

    # An input (a, u) is orthogonal to the symbol (1, y) if the product of u and y is -a, and to (0, y) if it is 0. The
    # sums over all y whose product with u is z, for every z, are the inverse transform of the transform of the counts
    # along the line through u. With all multiples of a point counted, q times those on the plane is the transform, and
    # all of them. Sums of whole numbers in floating point are off by far less than a half.
    prime, dimension = oracle.geometry
    size, shape = prime ** (dimension - 1), (prime,) * (dimension - 1)
    directions = min(ceil_divide(oracle.num_inputs, prime), oracle.num_supporting)
    lines = lines_through(0, directions, prime, dimension - 1)
    along = fftn(counts[:size].reshape(shape)).ravel()[lines]
    by_product = ifft(along, axis=1).real  # (direction, product)
    last = counts[size:]
    flat = fftn(spread_points(last, prime, dimension - 1).reshape(shape)).real.ravel()[lines[:, 1]]
    sums = by_product[:, -np.arange(prime) % prime] + ((last.sum() + flat) / prime)[:, None]
    every = np.append(np.rint(sums).astype(np.int64).ravel(), last.sum())
    return every[: oracle.num_inputs]


def _product_shares(law: Independent, tally: Tally, confidence: float) -> Intervals:
    """Return shares of paths, numbered place by place: means of products of the estimates of places."""
    oracle, num = law.place.oracle, tally.num_reports
    shape = (law.place.num_inputs,) * law.steps
    if math.prod(shape) > MAX_SHARES:
        raise ParameterError(f"there are more than {MAX_SHARES:,} paths. Use fewer levels.")

    def products(counts: IntArray, constant: float, slope: float) -> FloatArray:
        """Return means over reports of products over places of ``constant + slope * bit``, for all choices of bits."""
        sums = counts.astype(np.float64)
        for axis in range(counts.ndim):
            bits = np.moveaxis(sums, axis, 0)
            sums = np.moveaxis(constant * bits[-1:] + slope * bits[:-1], 0, axis)
        return sums / num

    value, square = np.zeros(shape), np.zeros(shape)
    for key, part in tally.parts.items():
        assert isinstance(part, Counts)
        means = products(part.counts, -oracle.q * oracle.scale, oracle.scale)
        # b is 0 or 1, so ((b - q) / (p - q))^2 is linear in b as well
        squares = products(part.counts, (oracle.q * oracle.scale) ** 2, (1 - 2 * oracle.q) * oracle.scale**2)
        # Where the places of a sequence of areas stand among all places, and among those of the areas.
        size, last = law.place.group_size, law.place.num_inputs - 1
        targets, sources = [], []
        for area in key:
            inner = np.arange(size + (area == 0))  # "outside or missing" is reported in the first area
            sources.append(inner)
            targets.append(np.where(inner == size, last, int(area) * size + inner))
        target, source = np.ix_(*targets), np.ix_(*sources)
        value[target] = means[source]
        square[target] = squares[source]
    variance = np.maximum(square - value**2, square / num) / num
    width = normal_quantile(confidence) * np.sqrt(variance)
    return Intervals(*(array.ravel() for array in (value, value - width, value + width, variance)))


def _projected(value: FloatArray, law: object, filled: Sequence[Tally]) -> FloatArray:
    if not isinstance(law, InClear):
        return project_shares(value)
    nums = np.zeros(law.num_groups)
    for tally in filled:
        for (group,), part in tally.parts.items():
            nums[int(group)] += part.num
    shares, size = np.zeros(law.num_inputs), law.group_size
    for own in np.flatnonzero(nums):
        places = np.arange(own * size, (own + 1) * size)
        places = np.append(places, law.num_inputs - 1) if own == 0 else places
        shares[places] = project_shares(value[places], nums[own] / nums.sum())
    return shares


def planar_matrix(law: Planar) -> FloatArray:
    """Return the chance of each reported cell (line) for each true cell (column)."""
    size, cells = law.grid.num_columns, law.grid.num_cells
    if cells > MAX_PLANAR_CELLS:
        raise ParameterError(f"a planar map has at most {MAX_PLANAR_CELLS:,} cells. Got {cells:,}. Use fewer levels.")
    # Chances of moves by -size .. size columns and rows; each end includes everything beyond it.
    width, height = (float(law.epsilon * side) for side in law.grid.pitch_km)
    slopes = np.array([(width * a / c, height * b / c) for a, b, c in DIRECTIONS])
    reach = min(max(size + 1, math.ceil(_NEGLIGIBLE / min(width, height))), _MAX_REACH)
    quarter, steps, starts = np.zeros((size + 1, size + 1)), np.arange(reach + 1), np.arange(size + 1)
    for column in range(reach + 1):
        exponents = (slopes[:, :1] * column + slopes[:, 1:] * steps).max(axis=0)
        quarter[min(column, size)] += np.add.reduceat(np.exp(-exponents), starts)
    half = np.concatenate([quarter[:0:-1], quarter])
    moves = np.concatenate([half[:, :0:-1], half], axis=1)
    # Added up from the lower left, after a line of zeros.
    sums = np.pad((moves / moves.sum()).cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    places = np.array([law.grid.column_row(cell) for cell in range(cells)])
    ends = []  # where the moves from each true place (column) to each reported one (line) begin and end in the sums
    for axis in (0, 1):
        reported = np.broadcast_to(places[:, axis, None], (cells, cells))
        moved = reported - places[None, :, axis] + size
        ends.append((np.where(reported == 0, 0, moved), np.where(reported == size - 1, 2 * size + 1, moved + 1)))
    columns, rows = ends
    corners = sums[columns[1], rows[1]] - sums[columns[0], rows[1]] - sums[columns[1], rows[0]]
    return np.asarray(np.maximum(corners + sums[columns[0], rows[0]], 0.0))


def planar_map(
    laws: Sequence[Planar], counts: Sequence[FloatArray], confidence: float | None
) -> tuple[FloatArray, Intervals]:
    """Return the likeliest map behind planar reports, and the unbiased map from inverting the channel."""
    matrices = [planar_matrix(law) for law in laws]
    nums = [float(count.sum()) for count in counts]
    channel = np.concatenate([num / sum(nums) * matrix for num, matrix in zip(nums, matrices, strict=True)])
    observed = np.concatenate(list(counts))[:, None] / sum(nums)
    likeliest = maximise(channel, observed, smooth=False)[:, 0]
    if confidence is None:
        nothing = np.full(likeliest.size, math.nan)
        return likeliest, Intervals(nothing, nothing, nothing, nothing)
    try:
        inverse = np.linalg.inv(matrices[0])
    except np.linalg.LinAlgError:
        inverse = np.full(matrices[0].shape, math.nan)
    value = inverse @ (counts[0] / nums[0])
    # Fitted frequencies are never 0, so no variance is.
    variance = np.maximum((inverse**2) @ (channel @ likeliest) - np.clip(value, 0.0, 1.0) ** 2, 0.0) / nums[0]
    sound = np.isfinite(value) & np.isfinite(variance)
    value, variance = np.where(sound, value, 0.5), np.where(sound, variance, 1.0)
    width = normal_quantile(confidence) * np.sqrt(variance)
    return likeliest, Intervals(value, value - width, value + width, variance)


class DiskChannel:
    """The chances of a disk law as sums over disks: one convolution for all reports, or all places."""

    def __init__(self, law: Disk) -> None:
        from scipy.fft import rfft2

        size, self.law, self.odds = law.grid.num_columns, law, math.exp(float(law.epsilon))
        self.total = law.size * self.odds + law.starts[-1]
        top, wide = max(law.reach), law.reach[0]
        disk = np.zeros((2 * top + 1, 2 * wide + 1))
        for row, column in law.reach.items():
            disk[row + top, wide - column : wide + column + 1] = 1
        self.around = (size + 2 * top, size + 2 * wide)  # all reports, in a rectangle
        self.padded = (size + 4 * top, size + 4 * wide)
        self.inner = (slice(2 * top, 2 * top + size), slice(2 * wide, 2 * wide + size))
        self.transform = rfft2(disk, self.padded)
        # Where symbols stand among the reports, and cells among the rows of the grid.
        rows = np.repeat(np.arange(len(law.margins)), np.diff(law.starts))
        columns = np.arange(law.starts[-1]) - np.array(law.starts)[rows] + wide - np.array(law.margins)[rows]
        self.symbols = rows * self.around[1] + columns
        places = np.array([law.grid.column_row(cell) for cell in range(law.grid.num_cells)])
        self.cells = places[:, 1] * size + places[:, 0]

    def _disks(self, image: FloatArray, shape: tuple[int, int]) -> FloatArray:
        from scipy.fft import irfft2, rfft2

        return np.asarray(irfft2(rfft2(image.reshape(shape), self.padded) * self.transform, self.padded))

    def reports(self, shares: FloatArray) -> FloatArray:
        """Return the chance of each symbol if places have these shares."""
        size = self.law.grid.num_columns
        image = np.zeros(size * size)
        image[self.cells] = shares[:-1]
        near = self._disks(image, (size, size))[: self.around[0], : self.around[1]].ravel()[self.symbols]
        likely = np.append(np.maximum(near, 0.0), shares[-1])
        chances = (shares.sum() + (self.odds - 1) * likely) / self.total
        chances[-1] *= self.law.size
        return np.asarray(chances)

    def places(self, weights: FloatArray) -> FloatArray:
        """Return for each place the sum of the weights of symbols, each times its chance there."""
        image = np.zeros(math.prod(self.around))
        image[self.symbols] = weights[:-1]
        near = self._disks(image, self.around)[self.inner].ravel()[self.cells]
        last = self.law.size * weights[-1]
        whole = weights[:-1].sum() + last
        return np.asarray((whole + (self.odds - 1) * np.append(near, last)) / self.total)

    def inside(self, reports: FloatArray | IntArray) -> FloatArray:
        """Return how many reports are in the disk of each place; for the last, outside or missing, its own."""
        image = np.append(reports[:-1], 0.0)
        near = (self.places(image)[:-1] * self.total - image.sum()) / (self.odds - 1)
        return np.append(near, reports[-1])


def disk_map(
    laws: Sequence[Disk], counts: Sequence[FloatArray], confidence: float | None
) -> tuple[FloatArray, Intervals]:
    """Return the likeliest map behind reports of disks, and how large the share of each place can be."""
    channels, nums = [DiskChannel(law) for law in laws], [float(count.sum()) for count in counts]
    shares = np.full(laws[0].num_inputs, 1 / laws[0].num_inputs)
    for _ in range(_MAX_ROUNDS // 2):  # more rounds follow chance
        updated = np.zeros_like(shares)
        for channel, count in zip(channels, counts, strict=True):
            updated += channel.places(count / sum(nums) / channel.reports(shares))
        updated *= shares
        updated /= updated.sum()
        still = float(np.abs(updated - shares).max()) < _STILL
        shares = updated
        if still:
            break
    if confidence is None:
        nothing = np.full(shares.size, math.nan)
        return shares, Intervals(nothing, nothing, nothing, nothing)
    # All places send at least size / total of their reports into the disk of a place, and it sends odds times that. So
    # its share is at most what reports in its disk exceed that by; others may cause it as well, so it may be 0.
    (channel,), (num,) = channels, nums
    least = channel.law.size / channel.total
    inside = np.clip(np.rint(channel.inside(counts[0])), 0, num)
    most = (binomial_bounds(inside, int(num), confidence)[1] - least) / (least * (channel.odds - 1))
    upper = np.maximum(np.clip(most, 0.0, 1.0), shares)
    return shares, Intervals(shares, np.zeros(shares.size), upper, (upper / 2) ** 2)


class Lines:
    """Estimates, purpose by purpose."""

    def __init__(self) -> None:
        self.lines: list[dict[str, str | float | None]] = []
        self.combined: dict[str, dict[str, dict[str, str | float]]] = {}
        self.verdicts: dict[str, NoiseVerdict] = {}
        self.paths: dict[str, dict[str, int]] = {}

    def add(self, quantity: str, purpose: str, ends: Iterable[float | None], **cells: str | float) -> None:
        numbers = dict(zip(("value", "lower", "upper"), ends, strict=True))
        self.lines.append({"quantity": quantity, "purpose": purpose, **numbers, **cells})

    def add_purpose(
        self, name: str, mechanism: Any, tallies: Sequence[Tally], level: float, combine: str, *, allow_noise: bool
    ) -> None:
        if isinstance(mechanism, LocalNumeric):
            _add_numbers(self, name, mechanism, tallies, level, combine)
        elif tallies:
            num = sum(tally.num_reports for tally in tallies)
            verdict = mechanism.noise_verdict(num)
            shares = estimate_shares(mechanism, tallies, confidence=level, rule=combine)
            located = isinstance(mechanism, LocalLocation) and promises.has_outside(mechanism)
            num_places = promises.num_inside(mechanism)
            law = mechanism.channel(tallies[0].tier)
            if verdict.is_noise and not is_noise(shares, num_places, law, tallies):
                verdict = replace(verdict, is_noise=False, message=verdict.message + promises.CROWDED)
            self.verdicts[name] = verdict
            if verdict.is_noise and not allow_noise:
                raise Refusal(
                    f"{name} would be noise. {verdict.message}. Change the task, collect more reports, or allow noise."
                )
            if located and not allow_noise and not verdict.message.endswith(promises.CROWDED):
                missing = float(shares.value[mechanism.grid.outside])
                thin = mechanism.noise_verdict(num, present=1 - missing)
                if thin.is_noise and is_noise(shares, num_places, law, tallies):
                    raise Refusal(
                        f"{name} would be noise, because about {percent(missing)} of the reports have no place in the "
                        f"box. {thin.message}. If vehicles rest at some hours, state working hours in [schedule]; "
                        "otherwise change the task, collect more reports, or allow noise."
                    )
            self.combined[name] = {"shares": shares.combination.to_dict()}
            if isinstance(mechanism, LocalTrajectory):
                _add_paths(self, name, mechanism, shares)
            else:
                for cell in range(shares.value.size):
                    self.add("share", name, _ends(shares, cell), cell=cell, **promises.place_of(mechanism.grid, cell))


def estimate(
    reports: Tallies | Iterable[Tally] | Iterable[Report],
    task: Task,
    *,
    confidence: float = 0.95,
    combine: str = "auto",
    allow_noise: bool = False,
    void: str = "",
    left_out: Mapping[str, int] | None = None,
    senders: str | None = None,
) -> Release:
    """Make estimates from the reports of a task, and certify them.

    Parameters
    ----------
    reports
        Reports (each counted once, without those that are impossible for the task), or tallies of them.
    task
        Their task.
    confidence
        How likely each single interval contains the truth.
    combine
        How tiers are combined. ``"stratify"``: by their numbers of reports. ``"precision"``: by their precision, which
        assumes that tiers are independent of values. ``"auto"``: values by precision unless tiers differ, with
        intervals that are right either way (:func:`~dunnage.collecting.estimate.combine_tiers`).
    allow_noise
        Make a map, or table of paths, even if it is noise.
    void
        Why the reports protect nobody, if so (for example, their noise was seeded); the certificate is then void.
    left_out
        How many reports the collector left out, by kind (of :data:`LEFT_OUT`), for the certificate; by default those
        that ``reports`` itself left out.
    senders
        Who sent the reports to a collector, ``"gateway"``, ``"token"`` or ``"unlinkable"``, for the certificate.

    Returns
    -------
    Release
        Of kind ``estimates``.

    Raises
    ------
    InputError
        If there is no report of the task, a tally is impossible for it, or a tally is given twice.
    Refusal
        If a map or table of paths would be noise.

    Examples
    --------
    >>> from dunnage.collecting.batch import perturb_column
    >>> from dunnage.devices.subjects import Tier
    >>> from dunnage.devices.task import Limits, Purpose, Schedule
    >>> from dunnage.noise.source import Noise
    >>> speed = Quantity(name="speed", low=0, high=120, unit="km/h")
    >>> duty = Purpose(name="telemetry", mechanism="local-numeric", tiers=(Tier(name="all", epsilon=2),),
    ...                quantities=(speed,))
    >>> task = Task(dataset="fleet", purposes=(duty,), schedule=Schedule(), limits=Limits(lifetime=730))
    >>> numbers = mechanisms_of(task)["telemetry"]
    >>> tally = perturb_column(numbers, "all", [np.full(900, 60.0)], Noise(), purpose="telemetry")
    >>> release = estimate([tally], task)
    >>> release.kind, release.data.column("attribute").to_pylist()
    ('estimates', ['speed'])
    """
    number = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    if not number or not 0.5 <= float(confidence) < 1:
        raise ParameterError(f"confidence must lie between 0.5 and 1, for example 0.95. Got {shown(confidence)}.")
    if senders is not None and senders not in SENT_BY:
        raise ParameterError(f"senders must be one of {', '.join(SENT_BY)}. Got {shown(senders)}.")
    if combine not in promises.COMBINATIONS:
        raise ParameterError(f"combine must be one of {', '.join(promises.COMBINATIONS)}. Got {shown(combine)}.")
    level, losses, mechanisms = float(confidence), check_task(task), mechanisms_of(task)
    tallies, out_of_tallies = _tallied(reports, task)
    num_left_out = out_of_tallies if left_out is None else _checked_left_out(left_out)
    merged = {  # in the order of the task
        (duty.name, tier.name): Tally(purpose=duty.name, tier=tier.name)
        for duty in task.purposes
        for tier in duty.tiers
    }
    seen: set[str] = set()
    for tally in tallies:
        note_tally(tally, seen, "the tallies")
    for tally in tallies:
        if (tally.purpose, tally.tier) not in merged:
            problem = Problem("a tally of a purpose or tier that the task does not have", remedy="Give the right task.")
            raise InputError("the tallies", [problem])
        merged[tally.purpose, tally.tier].merge(tally)
    by_purpose: dict[str, list[Tally]] = {name: [] for name in mechanisms}
    for (name, _), tally in merged.items():
        if tally.num_reports:
            check_tally(mechanisms[name], tally)
            by_purpose[name].append(tally)
    if not any(by_purpose.values()):
        raise InputError("the reports", [Problem("none belongs to this task", remedy="Give reports of the task.")])
    lines = Lines()
    for name, mechanism in mechanisms.items():
        lines.add_purpose(name, mechanism, by_purpose[name], level, combine, allow_noise=allow_noise)
    rules = {str(item["rule"]) for of_purpose in lines.combined.values() for item in of_purpose.values()}
    promise = promises.estimates_promise(
        task,
        losses,
        mechanisms,
        confidence=level,
        combine=combine,
        rules=rules,
        verdicts=lines.verdicts,
        senders=senders,
    )
    if void:
        promise = promise.voided(void)
    nums = {name: {tally.tier: tally.num_reports for tally in own} for name, own in by_purpose.items()}
    measures = {
        "task": task.to_dict(),
        "task_digest": task.digest,
        "reports": nums,
        "lines": len(lines.lines),
        "combined": lines.combined,
        "loss": promises.loss_measures(task, losses).plain(),
        **({"maps": {name: verdict.message for name, verdict in lines.verdicts.items()}} if lines.verdicts else {}),
        **({"paths": lines.paths} if lines.paths else {}),
        **({"left_out": dict(num_left_out)} if num_left_out else {}),
        **({} if senders is None else {"senders": senders}),
    }
    shuffled = promises.shuffled_loss(mechanisms, nums, senders)
    measures |= {"shuffled": shuffled} if shuffled is not None else {}
    certificate = certify(
        promise,
        kind=ESTIMATES,
        dataset=task.dataset,
        period=None,
        attributes=[subject.plain() for subject in promises.describe_subjects(mechanisms, nums)],
        measures=EstimateMeasures.model_validate(measures),
        spend=SpendStatement(id=promises.spend_id(task), at=datetime.now(UTC).isoformat(timespec="seconds")),
        composed=promises.composed(task, losses, promise).plain(),
    )
    columns = {
        name: pa.array([line.get(name, promises.EMPTY[name]) for line in lines.lines], kind)
        for name, kind in promises.columns_of(mechanisms).items()
    }
    return Release(certificate=certificate, data=pa.table(columns))


def write_estimates(
    release: Release,  # What :func:`estimate` made
    folder: str | os.PathLike[str],  # Must not exist
    *,
    sign: str | os.PathLike[str] | None = None,  # Ed25519 private key (PEM file) to sign the certificate with
    force: bool = False,  # Replace an existing release
) -> Path:
    """Write a release of estimates; the folder appears whole or not at all. There is no key."""
    with new_folder(folder, marker=CERTIFICATE_FILE, force=force, may_hold=RELEASE_FILES) as work:
        release.write_files(work, sign=sign)
    return Path(folder)


def _tallied(reports: Any, task: Task) -> tuple[list[Tally], dict[str, int]]:
    if not isinstance(reports, Tallies):
        given = list(reports.values() if isinstance(reports, Mapping) else reports)
        if all(isinstance(item, Tally) for item in given):
            return given, {}
        if not all(isinstance(item, Report) for item in given):
            raise ParameterError("reports must be all reports, or all tallies. Got a mixture, or something else.")
        reports = tally_reports(task, [Source.of_reports(given)])
    elif reports.task.digest != task.digest:
        raise ParameterError("the tallies belong to another task. Give that task.")
    return list(reports.by_tier.values()), _checked_left_out(reports.left_out)


def _checked_left_out(given: Mapping[str, int]) -> dict[str, int]:
    if not given.keys() <= set(promises.LEFT_OUT) or not all(type(num) is int and num >= 0 for num in given.values()):
        raise ParameterError(f"left_out must have whole numbers by kind. The kinds are {', '.join(promises.LEFT_OUT)}.")
    return {kind: given.get(kind, 0) for kind in promises.LEFT_OUT}


def _add_numbers(
    lines: Lines, purpose: str, mechanism: LocalNumeric, tallies: Sequence[Tally], confidence: float, rule: str
) -> None:
    means, presences = estimate_means(mechanism, tallies, confidence=confidence, rule=rule)
    units = {quantity.name: quantity.unit for quantity in mechanism.quantities}
    for mean in means:
        lines.add("mean", purpose, (mean.value, mean.lower, mean.upper), attribute=mean.name, unit=units[mean.name])
    for share in presences:
        lines.add("present", purpose, (share.value, share.lower, share.upper), attribute=share.name)
    lines.combined[purpose] = {mean.name: {**mean.combination.to_dict(), "reports": mean.num_told} for mean in means}
    if not promises.has_bins(mechanism):
        return
    # Where numbers may be missing, the distribution and the share of missing ones are each right with half the risk.
    halved = (1 + confidence) / 2
    presents = {share.name: share for share in estimate_means(mechanism, tallies, confidence=halved, rule=rule)[1]}
    for place, (quantity, mean) in enumerate(zip(mechanism.quantities, means, strict=True)):
        # The bins and quantiles of a number that was reported by square waves.
        parts = [(tally, tally.parts.get((place, SquareWave.key))) for tally in tallies]
        waves = [(tally, part.counts) for tally, part in parts if isinstance(part, Counts) and part.num]
        if not waves:
            continue
        laws = [mechanism.reading(tally.tier, place, SquareWave.key) for tally, _ in waves]
        slots = presents.get(quantity.name)
        present = (1.0, 1.0, 1.0) if slots is None else (slots.value or 1.0, slots.lower, slots.upper)
        bins = num_bins(mechanism, quantity, {tally.tier: tally.num_reports for tally in tallies})
        fitted = fit_distribution(
            [law for law in laws if isinstance(law, SquareWave)],
            [counts for _, counts in waves],
            shares_of([tally.num_reports for tally, _ in waves]),
            confidence if slots is None else halved,
            bins=bins,
            fit_together=mean.combination.rule in (PRECISION, ONE_TIER),
            bound_together=rule == PRECISION,
            present=present,
        )
        for at, (low, high) in enumerate(itertools.pairwise(promises.bin_edges(quantity, bins))):
            ends = _ends(fitted.shares, at)
            lines.add("share", purpose, ends, attribute=quantity.name, bin_lower=low, bin_upper=high)
        for at, level in enumerate(QUANTILES):
            points = map(quantity.in_units, _ends(fitted.quantiles, at))
            lines.add(f"quantile {level}", purpose, points, attribute=quantity.name, unit=quantity.unit)


def _ends(estimates: Intervals | Shares, at: int) -> tuple[float, float, float]:
    return float(estimates.value[at]), float(estimates.lower[at]), float(estimates.upper[at])


def _add_paths(lines: Lines, purpose: str, mechanism: LocalTrajectory, shares: Shares) -> None:
    """Add the paths with an interval above 0, the most frequent ones, and all others as one line."""
    order = np.argsort(-shares.value, kind="stable")
    listed = [int(at) for place, at in enumerate(order) if place < MAX_LISTED or shares.lower[at] > 0]
    for at in listed:
        lines.add("share", purpose, _ends(shares, at), path=promises.path_text(mechanism, at))
    lines.paths[purpose] = {"paths": shares.value.size, "listed": len(listed)}
    if len(listed) < shares.value.size:
        rest = np.delete(shares.value, listed).sum()
        # The others are what the listed ones leave over.
        lower, upper = (1 - float(ends[listed].sum()) for ends in (shares.upper, shares.lower))
        ends = min(max(lower, 0.0), float(rest)), max(min(upper, 1.0), float(rest))
        lines.add("share", purpose, (float(rest), *ends), path=OTHER)
