# SPDX-License-Identifier: Apache-2.0
"""From tallies to means, shares and distributions with intervals, in the units of their public domains.

An :class:`Estimates` holds an array of unbiased values, each with an interval of its own and a variance. Intervals are
those of single values: that all of many hold at once is less likely. They are made so that they hold for small numbers
of reports, too: exact ones (Clopper and Pearson) where a count is binomial, score intervals (Wilson) where the law's
variance is known as a function of what is estimated, Student's t elsewhere. Several are put together by the method of
variance estimates recovery (Zou and Donner 2008), which carries lopsided intervals over.

*Means.* Per tier and attribute the symbols of each law are summed up to an unbiased mean in [-1, 1] units. A sign law's
interval is exact. For the others the variance is that of the reports, though never less than the law's own at that
mean, with Student's t; with fewer than :data:`FEW` reports the law's largest variance instead. The two parts of the
hybrid law are weighed by their variance, then tiers are put together (:func:`combine_tiers`).

*Shares.* Each oracle's counts give an unbiased share of every input: with an exact interval for randomised response and
unary encoding, a score interval for Hadamard response and where areas are in clear. What is released as value is the
nearest point of the simplex (shares that are not negative and add up to 1); the interval stays that of the unbiased
estimate, clipped to [0, 1], and is extended to the value where that lies outside. The planar law has no unbiased share:
the value is the likeliest map, the interval that of the map found by inverting the channel, however wide that is.

*Distributions* behind a known channel (square waves, planar reports) are found by expectation maximisation. For square
waves each step is followed by smoothing (EMS, Li et al. 2020), as without it noise is fitted. Smoothing flattens peaks,
and by how much cannot be seen from the fit, so that a bootstrap around it promises more than it keeps (on two humps at
epsilon 1 its "95 %" hold in 2 of 100 cases). Intervals of bins and quantiles are those that *no* distribution can leave
whose reports are distributed as observed, up to the band of Dvoretzky, Kiefer, Wolfowitz and Massart: the least and the
largest share by linear programming. They are wide, and all of them hold at once.

Everything here is computed from reports that devices have already perturbed; nothing is drawn.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dunnage.arrays import FloatArray, IntArray
from dunnage.certificate import EstimateMeasures, SpendStatement, certify
from dunnage.collecting import promises
from dunnage.collecting.promises import NO_TIER, ONE_TIER, PRECISION, QUANTILES, STRATIFY, chosen_rule, num_bins
from dunnage.collecting.tally import Counts, Part, Sums, Tallies, Tally, check_repeated, check_tally
from dunnage.devices.client import check_task, mechanisms_of
from dunnage.devices.numbers import Duchi, JointSign, LocalNumeric, Reading, SquareWave, Warner, odds_of
from dunnage.devices.paths import Independent, LocalTrajectory
from dunnage.devices.places import DIRECTIONS, HadamardResponse, InClear, LocalLocation, NoiseVerdict, Oracle, Planar
from dunnage.devices.report import Report
from dunnage.devices.subjects import Quantity
from dunnage.devices.task import Task
from dunnage.errors import InputError, ParameterError, Problem, Refusal
from dunnage.exact import shown
from dunnage.folders import new_folder
from dunnage.kinds import ESTIMATES
from dunnage.release import CERTIFICATE_FILE, RELEASE_FILES, Release


@dataclass(frozen=True)
class Estimates:
    """Unbiased values, the ends of their intervals, and their variances."""

    value: FloatArray  # Estimates; NaN where nothing was reported
    lower: FloatArray  # lower, upper: ends of the intervals; infinite where nothing was reported
    upper: FloatArray
    variance: FloatArray  # Variance of each value

    def scaled(self, factor: float, shift: float = 0.0) -> Estimates:
        """Return the estimates of a multiple, by a factor above 0, plus a constant."""
        value, lower, upper = (factor * end + shift for end in (self.value, self.lower, self.upper))
        return Estimates(value, lower, upper, factor * factor * self.variance)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Where anything was reported."""
        return np.isfinite(self.value)


def single(value: float, lower: float, upper: float, variance: float) -> Estimates:
    return Estimates(*(np.asarray(number, dtype=np.float64) for number in (value, lower, upper, variance)))


UNKNOWN = single(math.nan, -math.inf, math.inf, math.inf)  # What is known of a number that nobody reported


@dataclass(frozen=True, kw_only=True)
class Combination:
    """How tiers were put together, and why."""

    rule: str  # `precision`, `stratify`, or `one tier`
    p_value: float | None = None  # Of Cochran's Q for tiers that do not differ; None with one tier

    def to_dict(self) -> dict[str, str | float]:
        return {"rule": self.rule} | ({} if self.p_value is None else {"p_value": float(f"{self.p_value:.4g}")})


def check_confidence(confidence: object) -> float:
    number = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    if not number or not 0.5 <= float(confidence) < 1:  # type: ignore[arg-type]
        raise ParameterError(f"confidence must lie between 0.5 and 1. Got {shown(confidence)}. Use 0.95, say.")
    return float(confidence)  # type: ignore[arg-type]


def normal_quantile(confidence: float) -> float:
    """Return how many standard deviations to either side hold a normal variable with the given confidence."""
    from scipy.special import ndtri

    return float(ndtri((1 + confidence) / 2))


def student_quantile(confidence: float, num: int) -> float:
    """Return the same for the mean of ``num`` values, 2 or more, whose variance is estimated from them."""
    from scipy.special import stdtrit

    return float(stdtrit(num - 1, (1 + confidence) / 2))


def binomial_bounds(counts: ArrayLike, num: int, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Return the exact interval of Clopper and Pearson for the chance behind each count.

    If the counted events have different chances, their mean is meant: the count then varies less (Hoeffding 1956).

    Examples
    --------
    >>> [round(float(end), 4) for end in binomial_bounds(0, 30, 0.95)]
    [0.0, 0.1157]
    """
    from scipy.special import betaincinv

    found, tail = np.asarray(counts, dtype=np.float64), (1 - confidence) / 2
    with np.errstate(invalid="ignore"):
        lower = np.where(found > 0, betaincinv(np.maximum(found, 0.5), num - found + 1, tail), 0.0)
        upper = np.where(found < num, betaincinv(found + 1, np.maximum(num - found, 0.5), 1 - tail), 1.0)
    return lower, upper


def score_bounds(
    value: ArrayLike, num: float, quadratic: tuple[ArrayLike, ArrayLike], confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return Wilson's interval: all shares f whose estimate, of variance (a + b f - f^2) / num, may be the value."""
    estimate, (constant, slope) = np.asarray(value, dtype=np.float64), (np.asarray(part) for part in quadratic)
    weight = normal_quantile(confidence) ** 2 / num
    half = estimate + weight * slope / 2
    # (1 + w) f^2 - 2 half f + e^2 - w a = 0
    root = np.sqrt(np.maximum(half * half - (1 + weight) * (estimate * estimate - weight * constant), 0.0))
    return (half - root) / (1 + weight), (half + root) / (1 + weight)


def combine(parts: Sequence[Estimates], weights: Sequence[float]) -> Estimates:
    """Return the weighted sum of independent estimates; weights are not negative.

    The interval's ends are as far from the value as the root of the sum of squares of those of the parts. A part that
    is not known counts as anything in [-1, 1], which the interval is extended by.
    """
    value, below, above, variance = (np.zeros(np.shape(parts[0].value)) for _ in range(4))
    unknown = np.zeros(value.shape)
    for part, weight in zip(parts, weights, strict=True):
        known = part.known
        value = value + weight * np.where(known, part.value, 0.0)
        below = below + weight**2 * np.where(known, part.value - part.lower, 0.0) ** 2
        above = above + weight**2 * np.where(known, part.upper - part.value, 0.0) ** 2
        variance = variance + weight**2 * np.where(known, part.variance, 1.0)
        unknown = unknown + weight * ~known
    return Estimates(value, value - np.sqrt(below) - unknown, value + np.sqrt(above) + unknown, variance)


def shares_of(amounts: Sequence[float]) -> list[float]:
    whole = math.fsum(amounts)
    return [amount / whole for amount in amounts]


def combine_tiers(
    tiers: Sequence[Estimates], nums: Sequence[int], precisions: Sequence[float], rule: str
) -> tuple[Estimates, Combination]:
    if len(tiers) == 1:
        return tiers[0], Combination(rule=ONE_TIER)
    p_value = heterogeneity(tiers)
    stratified = combine(tiers, shares_of(nums))
    if chosen_rule(rule, len(tiers), p_value) == STRATIFY or not any(precisions):
        return stratified, Combination(rule=STRATIFY, p_value=p_value)
    known = [bool(np.all(tier.known)) for tier in tiers]
    weights = shares_of([precision if told else 0.0 for precision, told in zip(precisions, known, strict=True)])
    precise = combine([tier for tier, told in zip(tiers, known, strict=True) if told], [w for w in weights if w])
    if rule == PRECISION:
        return precise, Combination(rule=PRECISION, p_value=p_value)
    lower, upper = np.minimum(stratified.lower, precise.value), np.maximum(stratified.upper, precise.value)
    return Estimates(precise.value, lower, upper, stratified.variance), Combination(rule=PRECISION, p_value=p_value)


def heterogeneity(tiers: Sequence[Estimates]) -> float | None:
    """Return the p-value of Cochran's Q, over all values together, for tiers that estimate the same.

    Shares add up to 1, so that of k of them k - 1 count.
    """
    from scipy.special import chdtrc

    known = [tier for tier in tiers if np.all(tier.known)]
    if len(known) < 2:
        return None
    weights = np.stack([1 / np.maximum(tier.variance, 1e-300) for tier in known])
    values = np.stack([tier.value for tier in known])
    mean = (weights * values).sum(axis=0) / weights.sum(axis=0)
    distance = float((weights * (values - mean) ** 2).sum())
    return float(chdtrc((len(known) - 1) * max(mean.size - 1, 1), distance))


def project_shares(values: ArrayLike, total: float = 1.0) -> FloatArray:
    """Return the nearest values that are not negative and add up to a total: what is known as norm-sub.

    All values are lowered (or raised) by one amount, and those that become negative are 0 instead.

    Examples
    --------
    >>> project_shares([0.7, 0.5, -0.2]).round(6).tolist()
    [0.6, 0.4, 0.0]
    """
    given = np.asarray(values, dtype=np.float64)
    ordered = np.sort(given)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, given.size + 1)
    lowered = np.maximum(given - excess[np.flatnonzero(ordered > excess)[-1]], 0.0) if total > 0 else 0.0 * given
    return lowered * (total / lowered.sum()) if total > 0 else lowered


def settle_bounds(value: FloatArray, found: Estimates, low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """Return the ends of intervals clipped to a public domain, and extended to a value that lies outside of them."""
    lower, upper = np.clip(found.lower, low, high), np.clip(found.upper, low, high)
    return np.fmin(lower, value), np.fmax(upper, value)


def ratio_bounds(top: Estimates, bottom: Estimates, *, num_points: int = 20_001) -> tuple[float, float]:
    """Return the interval of a ratio in [-1, 1] of two estimates (Fieller 1954), the lower one of a share.

    A ratio r is in it if ``top - r * bottom`` may be 0. The two are taken to be independent. Where a report tells of
    both they are not, but vary together, so that the interval is wider than it must be.
    """
    ratios = np.linspace(-1.0, 1.0, num_points)
    difference = top.value - ratios * bottom.value
    ends = np.stack([ratios * bottom.lower, ratios * bottom.upper])
    below = np.hypot(top.value - top.lower, ends.max(axis=0) - ratios * bottom.value)
    above = np.hypot(top.upper - top.value, ratios * bottom.value - ends.min(axis=0))
    held = np.flatnonzero((difference - below <= 0) & (difference + above >= 0))
    if not held.size:  # the two contradict each other: nothing can be said
        return -1.0, 1.0
    first, last = max(held[0] - 1, 0), min(held[-1] + 1, num_points - 1)
    return float(ratios[first]), float(ratios[last])


def walsh_hadamard(table: IntArray) -> IntArray:
    """Transform each row, of a length that is a power of two: entry r becomes the sum of entries c, signed by r & c.

    Examples
    --------
    >>> walsh_hadamard(np.array([[1, 0, 2, 0]])).tolist()
    [[3, 3, -1, -1]]
    """
    num_rows, size = table.shape
    done, width = table.copy(), 1
    while width < size:
        pairs = done.reshape(num_rows, size // (2 * width), 2, width)
        done = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        done = done.reshape(num_rows, size)
        width *= 2
    return done


MOST_GROUPS = 64  # Groups of symbols that a distribution is fitted to, at most
MOST_PLANAR_CELLS = 1 << 12
_MOST_ROUNDS = 2_000
_STILL = 1e-6
_SUB_VALUES = 16
_NARROW = 256
_FINER = 2
_FINEST = 8
_MOST_REACH = 1 << 12
_NEGLIGIBLE = 40  # moves of a chance below exp(-40) of that of none


@dataclass(frozen=True)
class Distribution:
    """A fitted distribution over equal bins of [-1, 1]."""

    shares: Estimates  # Share of each bin, with its interval
    quantiles: Estimates  # Quarter, middle and three quarters points in [-1, 1], with their intervals


def wave_matrix(law: SquareWave, bins: int) -> FloatArray:
    """Return the chance of each symbol (line) for a value that is anywhere in a bin (column), evenly."""
    # How likely each point (line) is for a value anywhere in a bin (column), rounded at random.
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
    found: FloatArray = 1 + (odds - 1) * (total[stop] - total[first])
    return found / (law.window * odds + law.num_outside)


def _grouped(array: FloatArray, most: int = MOST_GROUPS) -> FloatArray:
    """Add up neighbouring lines, so that there are few."""
    starts = np.unique(np.linspace(0, len(array), min(most, len(array)), endpoint=False).astype(np.int64))
    found: FloatArray = np.add.reduceat(array, starts, axis=0)
    return found


def maximise(channel: FloatArray, frequencies: FloatArray, *, smooth: bool, rounds: int = _MOST_ROUNDS) -> FloatArray:
    """Return the likeliest distributions of inputs for observed frequencies, each a column."""
    shape = (channel.shape[1], frequencies.shape[1])
    fitted = np.full(shape, 1 / shape[0])
    for _ in range(rounds):
        expected = np.maximum(channel @ fitted, 1e-300)
        updated = fitted * (channel.T @ (frequencies / expected))
        updated = _smoothed(updated) if smooth else updated
        updated /= updated.sum(axis=0)
        still = float(np.abs(updated - fitted).max()) < _STILL
        fitted = updated
        if still:
            break
    return fitted


def _smoothed(columns: FloatArray) -> FloatArray:
    """Average each value with its neighbours, by 1, 2, 1; beyond an end there is none."""
    found = 2 * columns
    found[1:] += columns[:-1]
    found[:-1] += columns[1:]
    weights = np.full((len(columns), 1), 4.0)
    weights[[0, -1]] -= 1
    smooth: FloatArray = found / weights
    return smooth


def fit_distribution(
    laws: Sequence[SquareWave],  # laws, counts: the law of each tier and how often each of its symbols came up
    counts: Sequence[ArrayLike],
    weights: Sequence[float],  # Parts of the tiers, which add up to 1
    confidence: float,  # How likely all intervals are to hold
    *,
    fit_together: bool = True,
    bound_together: bool = False,  # Whether intervals may rest on that, too
) -> Distribution:
    """Fit the distribution of a number to the square waves of one or more tiers."""
    bins = num_bins(laws[0].steps)
    # On many narrow bins, as smoothing moves a share by about one bin, and then added up.
    narrow = bins * max(1, min(_NARROW, 2 * laws[0].steps) // bins)
    channels = [_grouped(wave_matrix(law, narrow), _NARROW) for law in laws]
    columns = [_grouped(np.asarray(count, dtype=np.float64)[:, None], _NARROW) for count in counts]
    if fit_together:  # one distribution, each tier through its own channel
        whole = math.fsum(float(count.sum()) for count in columns)
        channel = np.concatenate([count.sum() / whole * c for count, c in zip(columns, channels, strict=True)])
        fitted = maximise(channel, np.concatenate(columns) / whole, smooth=True)[:, 0]
    else:
        fits = [maximise(c, g / g.sum(), smooth=True)[:, 0] for c, g in zip(channels, columns, strict=True)]
        fitted = np.asarray(np.average(fits, axis=0, weights=weights))
    value = fitted.reshape(bins, -1).sum(axis=1)
    shares, reached = _possible(laws, counts, None if bound_together else weights, confidence)
    lower, upper = np.minimum(shares[0], value), np.maximum(shares[1], value)
    variance = (upper - lower) ** 2 / 12
    return Distribution(Estimates(value, lower, upper, variance), _quantiles(value, *reached))


def _possible(
    laws: Sequence[SquareWave], counts: Sequence[ArrayLike], weights: Sequence[float] | None, confidence: float
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Return the least and largest share of each bin, and of all bins up to each edge, that the reports leave open."""
    from scipy.linalg import block_diag

    bins = num_bins(laws[0].steps)
    finer = _FINER * bins
    bands = [_band(law, count, finer, (1 - confidence) / len(laws)) for law, count in zip(laws, counts, strict=True)]
    limits = np.concatenate([band[1] for band in bands])
    if weights is None:  # one distribution behind all tiers
        rows, parts = np.concatenate([band[0] for band in bands]), [1.0]
    else:
        rows, parts = block_diag(*(band[0] for band in bands)), list(weights)
    goals = np.kron(np.eye(bins), np.ones(_FINER))
    upto = np.cumsum(goals, axis=0)[:-1]
    bounds = [
        _extremes(np.concatenate([part * g for part in parts], axis=None), rows, limits, len(parts))
        for g in (*goals, *upto)
    ]
    least, most = (np.array(ends) for ends in zip(*bounds, strict=True))
    return (least[:bins], most[:bins]), (least[bins:], most[bins:])


def _band(law: SquareWave, counts: ArrayLike, bins: int, risk: float) -> tuple[FloatArray, FloatArray]:
    """Return linear inequalities ``rows @ shares <= limits`` that true shares of fine bins keep, but for the risk."""
    coarse = np.cumsum(_grouped(wave_matrix(law, bins)), axis=0)[:-1]
    fine = np.cumsum(_grouped(wave_matrix(law, bins * _FINEST)), axis=0)[:-1]
    # Values may lie anywhere in a fine bin, not evenly: how far that moves the distribution of reports, at most.
    apart = np.abs(fine.reshape(len(fine), bins, _FINEST) - coarse[:, :, None]).max(axis=(1, 2)) * (1 + 1 / _FINEST)
    grouped = _grouped(np.asarray(counts, dtype=np.float64))
    num = float(grouped.sum())
    observed = np.cumsum(grouped)[:-1] / num
    slack = math.sqrt(math.log(2 / risk) / (2 * num)) + apart
    return np.concatenate([coarse, -coarse]), np.concatenate([observed + slack, slack - observed])


def _extremes(goal: FloatArray, rows: FloatArray, limits: FloatArray, num_parts: int) -> tuple[float, float]:
    """Return the least and the largest value of a goal over distributions, one for each part, that keep the limits."""
    from scipy.optimize import linprog

    sums = np.kron(np.eye(num_parts), np.ones(goal.size // num_parts))
    ends = []
    for sign, otherwise in ((1, 0.0), (-1, 1.0)):
        answer = linprog(sign * goal, A_ub=rows, b_ub=limits, A_eq=sums, b_eq=np.ones(num_parts), method="highs")
        ends.append(sign * float(answer.fun) if answer.status == 0 else otherwise)
    return min(max(ends[0], 0.0), 1.0), min(max(ends[1], 0.0), 1.0)


def _quantiles(value: FloatArray, least: FloatArray, most: FloatArray) -> Estimates:
    """Return quantiles, and the edges between which the distribution must have reached them."""
    edges = np.linspace(-1.0, 1.0, value.size + 1)
    middle = np.interp(QUANTILES, np.concatenate([[0.0], np.cumsum(value)]), edges)
    # Up to an edge at which even the largest share is too small the quantile is not reached.
    before = np.concatenate([[0.0], np.maximum.accumulate(most), [1.0]])
    surely = np.concatenate([[0.0], np.maximum.accumulate(least), [1.0]])
    lower = edges[[np.flatnonzero(before < share)[-1] for share in QUANTILES]]
    upper = edges[[np.flatnonzero(surely >= share)[0] for share in QUANTILES]]
    return Estimates(middle, np.minimum(lower, middle), np.maximum(upper, middle), (upper - lower) ** 2 / 12)


def planar_matrix(law: Planar) -> FloatArray:
    """Return the chance of each reported cell (line) for each true cell (column), borders included.

    Displacements beyond the box are added up on its border, as devices do.
    """
    size, cells = law.grid.num_columns, law.grid.num_cells
    if cells > MOST_PLANAR_CELLS:
        raise ParameterError(f"planar maps have at most {MOST_PLANAR_CELLS} cells here. Got {cells}. Use fewer levels.")
    # Moves by -size .. size columns and rows, the ends for all beyond, added up from the lower left; one more for none.
    sums = np.pad(_displacements(law).cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    places = np.array([law.grid.column_row(cell) for cell in range(cells)])
    ends = []  # where the moves from each true place (column) to each reported one (line) begin and end in the sums
    for axis in (0, 1):
        reported = np.broadcast_to(places[:, axis, None], (cells, cells))
        moved = reported - places[None, :, axis] + size
        ends.append((np.where(reported == 0, 0, moved), np.where(reported == size - 1, 2 * size + 1, moved + 1)))
    columns, rows = ends
    found = sums[columns[1], rows[1]] - sums[columns[0], rows[1]] - sums[columns[1], rows[0]]
    chances: FloatArray = np.maximum(found + sums[columns[0], rows[0]], 0.0)
    return chances


def _displacements(law: Planar) -> FloatArray:
    """Return chances of moves by -size .. size columns and rows, each end with all that is beyond it."""
    size = law.grid.num_columns
    width, height = (float(law.epsilon * side) for side in law.grid.pitch_km)
    slopes = np.array([(width * a / c, height * b / c) for a, b, c in DIRECTIONS])
    reach = min(max(size + 1, math.ceil(_NEGLIGIBLE / min(width, height))), _MOST_REACH)
    quarter, rows, starts = np.zeros((size + 1, size + 1)), np.arange(reach + 1), np.arange(size + 1)
    for column in range(reach + 1):
        exponents = (slopes[:, :1] * column + slopes[:, 1:] * rows).max(axis=0)
        quarter[min(column, size)] += np.add.reduceat(np.exp(-exponents), starts)
    half = np.concatenate([quarter[:0:-1], quarter])
    whole = np.concatenate([half[:, :0:-1], half], axis=1)
    found: FloatArray = whole / whole.sum()
    return found


def planar_map(
    laws: Sequence[Planar], counts: Sequence[FloatArray], confidence: float | None
) -> tuple[FloatArray, Estimates]:
    """Return the likeliest map behind planar reports, and the unbiased map found by inverting the channel."""
    matrices = [planar_matrix(law) for law in laws]
    nums = [float(count.sum()) for count in counts]
    channel = np.concatenate([num / sum(nums) * matrix for num, matrix in zip(nums, matrices, strict=True)])
    observed = np.concatenate(list(counts))[:, None] / sum(nums)
    likeliest = maximise(channel, observed, smooth=False)[:, 0]
    if confidence is None:
        nothing = np.full(likeliest.size, math.nan)
        return likeliest, Estimates(nothing, nothing, nothing, nothing)
    try:
        inverse = np.linalg.inv(matrices[0])
    except np.linalg.LinAlgError:
        inverse = np.full(matrices[0].shape, math.nan)
    value = inverse @ (counts[0] / nums[0])
    # Frequencies as fitted, none of which is 0, so that no variance is.
    variance = np.maximum((inverse**2) @ (channel @ likeliest) - np.clip(value, 0.0, 1.0) ** 2, 0.0) / nums[0]
    sound = np.isfinite(value) & np.isfinite(variance)
    value, variance = np.where(sound, value, 0.5), np.where(sound, variance, 1.0)
    width = normal_quantile(confidence) * np.sqrt(variance)
    return likeliest, Estimates(value, value - width, value + width, variance)


FEW = 8  # With fewer reports than this their own variance says too little; the law's largest is taken
_SPREAD = 1 / 3  # Mean square of a number that is spread evenly over its domain: what weights are reckoned with


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
        return UNKNOWN, Combination(rule=NO_TIER), 0
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
    means = []
    for quantity, (top, combination, num) in zip(mechanism.quantities, found, strict=False):
        value, ends = float(top.value), (float(top.lower), float(top.upper))
        if quantity.name in presences:
            # Over present values: the mean of numbers which are 0 where missing, by the share of present ones.
            share = presences[quantity.name][0].scaled(0.5, 0.5)
            value, ends = math.nan, (-1.0, 1.0)
            if bool(top.known) and bool(share.known) and share.value > 0:
                value, ends = float(np.clip(top.value / share.value, -1.0, 1.0)), ratio_bounds(top, share)
        means.append(_mean(quantity, value, ends, combination, num))
    shares = {name: Quantity(name=name, low=Fraction(0), high=Fraction(1)) for name in presences}
    told = [
        _mean(shares[name], float(share.value), (float(share.lower), float(share.upper)), combination, num)
        for name, (share, combination, num) in presences.items()
    ]
    return means, told


def _mean(quantity: Quantity, value: float, ends: tuple[float, float], combination: Combination, num: int) -> Mean:
    """Clip to the domain and take to units; the value lies in the interval."""
    inside = [float(np.clip(number, -1.0, 1.0)) for number in (value, *ends)]
    known = math.isfinite(value)
    lower, upper = (min(inside[0], inside[1]), max(inside[0], inside[2])) if known else (-1.0, 1.0)
    low, high = float(quantity.low), float(quantity.high)  # rounding may leave the domain
    units = [min(max(quantity.in_units(number), low), high) for number in (inside[0], lower, upper)]
    return Mean(
        name=quantity.name,
        value=units[0] if known else None,
        lower=units[1],
        upper=units[2],
        combination=combination,
        num_told=num,
    )


MOST_SHARES = 1 << 24  # Most inputs whose shares are estimated at once


@dataclass(frozen=True)
class Shares:
    """Estimated shares of all inputs of a mechanism."""

    value: FloatArray  # Shares, not negative, that add up to 1
    lower: FloatArray  # lower, upper: ends of their intervals, within [0, 1], around the value
    upper: FloatArray
    combination: Combination  # How tiers were put together


def estimate_shares(
    mechanism: LocalLocation | LocalTrajectory, tallies: Sequence[Tally], *, confidence: float, rule: str
) -> Shares:
    """Estimate the shares of cells, or of paths by their number, from the reports of all tiers."""
    held = [tally for tally in tallies if tally.num_reports]
    laws = [mechanism.channel(tally.tier) for tally in held]
    if isinstance(laws[0], Planar):
        return _planar_shares(laws, held, confidence, rule)
    if laws[0].num_inputs > MOST_SHARES:
        raise ParameterError(
            f"shares of at most {MOST_SHARES} inputs can be estimated. Got {laws[0].num_inputs}. Use fewer levels."
        )
    tiers = [tier_shares(law, tally, confidence) for law, tally in zip(laws, held, strict=True)]
    mean_share = 1 / laws[0].num_inputs
    # The variance of a law holds for fixed places; that of drawing them comes on top (NOTES: 1 / (v + s^2)).
    precisions = [
        1 / (law.variance(mean_share, tally.num_reports) + mean_share * (1 - mean_share) / tally.num_reports)
        for law, tally in zip(laws, held, strict=True)
    ]
    nums = [tally.num_reports for tally in held]
    found, combination = combine_tiers(tiers, nums, precisions, rule)
    value = _projected(found.value, laws[0], held)
    return Shares(value, *settle_bounds(value, found, 0.0, 1.0), combination)


def tier_shares(law: object, tally: Tally, confidence: float) -> Estimates:
    if isinstance(law, Independent):
        return _product_shares(law, tally, confidence)
    if isinstance(law, InClear):
        return _clear_shares(law, tally, confidence)
    oracle: Oracle = law  # type: ignore[assignment]
    (part,) = tally.parts.values()
    assert isinstance(part, Counts)
    return oracle_shares(oracle, part, confidence)


def oracle_shares(oracle: Oracle, part: Counts, confidence: float, *, of: int | None = None) -> Estimates:
    num = of or part.num
    here = part.num / num
    if isinstance(oracle, HadamardResponse):
        scores, blocks = hadamard_scores(oracle, part.counts)
        value = scores / num * oracle.scale
        # The square of an entry is 1 in the own block, else 0.
        squares = np.maximum(blocks / num, 2 * oracle.q * here) * oracle.scale**2
        variance = np.maximum(squares - np.clip(value, 0.0, 1.0) ** 2, 0.0) / num
        return Estimates(value, *score_bounds(value, num, (squares, 0.0), confidence), variance)
    value = (part.counts / num - oracle.q * here) * oracle.scale
    inside = np.clip(value, 0.0, here)
    # One report's estimate: 0 in another area, else (own bit - q) / (p - q).
    constant, slope = here * oracle.q * (1 - oracle.q) * oracle.scale**2, (1 - 2 * oracle.q) * oracle.scale
    variance = np.maximum(constant + slope * inside - inside**2, 0.0) / num
    bounds = binomial_bounds(part.counts, part.num, confidence)
    lower, upper = (here * (end - oracle.q) * oracle.scale for end in bounds)
    if here < 1:  # how many reports an area has varies as well
        wider = normal_quantile(confidence) * inside / here * math.sqrt(here * (1 - here) / num)
        lower, upper = value - np.hypot(value - lower, wider), value + np.hypot(upper - value, wider)
    return Estimates(value, lower, upper, variance)


def hadamard_scores(oracle: HadamardResponse, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return for each input the sum of its matrix entries over reports, and how many reports its block has."""
    table = counts.reshape(oracle.num_blocks, oracle.num_columns)
    rows, blocks = np.divmod(np.arange(oracle.num_inputs), oracle.num_blocks)
    return walsh_hadamard(table)[blocks, rows + 1], table.sum(axis=1)[blocks]


def _clear_shares(law: InClear, tally: Tally, confidence: float) -> Estimates:
    """Return shares where groups are in clear: of each group's own reports, as parts of all."""
    size, zeros = law.group_size, np.zeros(law.num_inputs)
    # Groups are shown as they are, so of one that no report came from none of the reports was.
    empty = float(binomial_bounds(0, tally.num_reports, confidence)[1])
    found = Estimates(zeros, zeros.copy(), np.full(law.num_inputs, empty), zeros.copy())
    for (group,), part in tally.parts.items():
        assert isinstance(part, Counts)
        assert isinstance(group, int)
        inner = oracle_shares(law.oracle, part, confidence, of=tally.num_reports)
        places = slice(group * size, (group + 1) * size)
        for whole, of_group in zip(_arrays(found), _arrays(inner), strict=True):
            whole[places] = of_group[:size]
            if group == 0:  # where "outside or missing" is reported
                whole[-1] = of_group[size]
    return found


def _arrays(estimates: Estimates) -> tuple[FloatArray, ...]:
    return estimates.value, estimates.lower, estimates.upper, estimates.variance


def _product_shares(law: Independent, tally: Tally, confidence: float) -> Estimates:
    """Return shares of paths whose places were perturbed one by one: means of products of what each place estimates.

    Inputs are numbered place by place; a path with a place that is missing has a number, too.
    """
    oracle, num = law.place.oracle, tally.num_reports
    shape = (law.place.num_inputs,) * law.steps
    if math.prod(shape) > MOST_SHARES:
        raise ParameterError(f"there are more than {MOST_SHARES} paths. Use fewer levels.")
    value, square = np.zeros(shape), np.zeros(shape)
    for key, part in tally.parts.items():
        assert isinstance(part, Counts)
        means = _products(part.counts, -oracle.q * oracle.scale, oracle.scale) / num
        # b is 0 or 1, so ((b - q) / (p - q))^2 is linear in b as well
        squares = _products(part.counts, (oracle.q * oracle.scale) ** 2, (1 - 2 * oracle.q) * oracle.scale**2) / num
        # Where the places of a sequence of areas are among all, and among those of the areas.
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
    flat = (array.ravel() for array in (value, value - width, value + width, variance))
    return Estimates(*flat)


def _products(counts: IntArray, constant: float, slope: float) -> FloatArray:
    """Return sums over reports of products over places of ``constant + slope * bit``, for all choices of bits."""
    found = counts.astype(np.float64)
    for axis in range(counts.ndim):
        bits = np.moveaxis(found, axis, 0)
        found = np.moveaxis(constant * bits[-1:] + slope * bits[:-1], 0, axis)
    return found


def _projected(value: FloatArray, law: object, held: Sequence[Tally]) -> FloatArray:
    """Return the nearest shares; where groups are in clear those of a group add up to its part of the reports."""
    if not isinstance(law, InClear):
        return project_shares(value)
    nums = np.zeros(law.num_groups)
    for tally in held:
        for (group,), part in tally.parts.items():
            nums[int(group)] += part.num
    found, size = np.zeros(law.num_inputs), law.group_size
    for filled in np.flatnonzero(nums):
        places = np.arange(filled * size, (filled + 1) * size)
        places = np.append(places, law.num_inputs - 1) if filled == 0 else places
        found[places] = project_shares(value[places], nums[filled] / nums.sum())
    return found


def _planar_shares(laws: Sequence[object], held: Sequence[Tally], confidence: float, rule: str) -> Shares:
    """Return the likeliest map of all tiers, or of each by itself, and intervals by inverting the channel."""
    planar = [law for law in laws if isinstance(law, Planar)]
    counts = [next(iter(tally.parts.values())) for tally in held]
    arrays = [part.counts.astype(np.float64) for part in counts if isinstance(part, Counts)]
    maps = [planar_map([law], [array], confidence) for law, array in zip(planar, arrays, strict=True)]
    tiers = [estimates for _, estimates in maps]
    nums = [tally.num_reports for tally in held]
    precisions = [1 / max(float(np.mean(estimates.variance)), 1e-300) for estimates in tiers]
    found, combination = combine_tiers(tiers, nums, precisions, rule)
    if combination.rule == "precision":
        value = planar_map(planar, arrays, None)[0]
    else:
        value = np.asarray(np.average([likeliest for likeliest, _ in maps], axis=0, weights=nums))
    value = value / value.sum()
    return Shares(value, *settle_bounds(value, found, 0.0, 1.0), combination)


MOST_LISTED = 1000  # Paths that are listed at most, besides those whose interval lies above 0


@dataclass
class _Lines:
    """Lines of the table as they are found, and what is said of each purpose."""

    lines: list[dict[str, str | float | None]] = field(default_factory=list)
    combined: dict[str, dict[str, dict[str, str | float]]] = field(default_factory=dict)
    verdicts: dict[str, NoiseVerdict] = field(default_factory=dict)
    paths: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, quantity: str, purpose: str, ends: Iterable[float | None], **cells: str | float) -> None:
        """Add a line; its value and the ends of its interval in order."""
        told = dict(zip(("value", "lower", "upper"), ends, strict=True))
        self.lines.append({"quantity": quantity, "purpose": purpose, **told, **cells})

    def table(self, columns: Mapping[str, pa.DataType]) -> pa.Table:
        found = {name: [line.get(name, promises.EMPTY[name]) for line in self.lines] for name in columns}
        return pa.table({name: pa.array(found[name], kind) for name, kind in columns.items()})


def estimate(
    reports: Tallies | Iterable[Tally] | Iterable[Report],
    task: Task,
    *,
    confidence: float = 0.95,
    combine: str = "auto",
    allow_noise: bool = False,
    void: str = "",
    left_out: Mapping[str, int] | None = None,
) -> Release:
    """Estimate what the reports of a task tell, and certify it.

    Parameters
    ----------
    reports
        Reports (each counted once; those that the task cannot have made are left out), or tallies of them.
    task
        The task that they were made for.
    confidence
        How likely each interval is to hold the truth, by itself.
    combine
        How tiers are put together. ``"stratify"``: each weighs as much as it has reports. ``"precision"``: as much as
        it is sure, which assumes that tiers have nothing to do with values. ``"auto"``: values by precision unless
        tiers are found to differ; intervals that hold either way
        (:func:`~dunnage.collecting.estimate.combine_tiers`).
    allow_noise
        Make a map, or table of paths, even if it is noise.
    void
        Why the reports protect nobody, if so (their noise was seeded, say); the certificate is then void.
    left_out
        How many reports whoever brought them together left out, by kind (of :data:`LEFT_OUT`), for the certificate;
        what ``reports`` itself left out if None.

    Returns
    -------
    Release
        Of kind ``estimates``.

    Raises
    ------
    InputError
        If there is no report of the task, a tally cannot be one of it, or one is given twice.
    Refusal
        If a map or table of paths would be noise.

    Examples
    --------
    >>> from dunnage.collecting.batch import perturb_column
    >>> from dunnage.devices.task import Limits, Purpose, Schedule, Tier
    >>> from dunnage.noise import Noise
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
    level = check_confidence(confidence)
    if combine not in promises.COMBINATIONS:
        raise ParameterError(
            f"combine must be one of {', '.join(promises.COMBINATIONS)}. Got {shown(combine)}. Use auto, say."
        )
    losses, mechanisms = check_task(task), mechanisms_of(task)
    tallies, found_out = _tallied(reports, task)
    told_out = found_out if left_out is None else _checked_left_out(left_out)
    check_repeated(tallies)
    held: dict[str, list[Tally]] = {}
    merged: dict[tuple[str, str], Tally] = {}
    known = {(duty.name, tier.name) for duty in task.purposes for tier in duty.tiers}
    for tally in tallies:
        names = tally.purpose, tally.tier
        if names not in known:
            problem = Problem("a tally of a purpose or tier that the task does not have", remedy="Give the right task.")
            raise InputError("the tallies", [problem])
        merged.setdefault(names, Tally(purpose=tally.purpose, tier=tally.tier)).merge(tally)
    for duty in task.purposes:
        of_tiers = (merged.get((duty.name, tier.name)) for tier in duty.tiers)
        held[duty.name] = [tally for tally in of_tiers if tally is not None and tally.num_reports]
    for name, of_purpose in held.items():
        for tally in of_purpose:
            check_tally(mechanisms[name], tally)
    if not any(held.values()):
        raise InputError("the reports", [Problem("there is none of this task", remedy="Give reports of the task.")])
    lines = _Lines()
    for name, mechanism in mechanisms.items():
        of_purpose = held[name]
        if isinstance(mechanism, LocalNumeric):
            _add_numbers(lines, name, mechanism, of_purpose, level, combine)
            continue
        if not of_purpose:
            continue
        verdict = mechanism.noise_verdict(_num_reports(of_purpose))
        lines.verdicts[name] = verdict
        if verdict.is_noise and not allow_noise:
            raise Refusal(
                f"{name} would be noise. {verdict.message}. Change the task so, collect more, or allow noise."
            )
        shares = estimate_shares(mechanism, of_purpose, confidence=level, rule=combine)
        lines.combined[name] = {"shares": shares.combination.to_dict()}
        if isinstance(mechanism, LocalTrajectory):
            _add_paths(lines, name, mechanism, shares)
        else:
            for cell in range(shares.value.size):
                lines.add("share", name, _ends(shares, cell), cell=cell, **promises.place_of(mechanism.grid, cell))
    rules = {str(item["rule"]) for of_purpose in lines.combined.values() for item in of_purpose.values()}
    promise = promises.estimates_promise(
        task, losses, mechanisms, confidence=level, combine=combine, rules=rules, verdicts=lines.verdicts
    )
    if void:
        promise = promise.voided(void)
    measures = {
        "task": task.to_dict(),
        "task_digest": task.digest,
        "reports": {name: {tally.tier: tally.num_reports for tally in of_purpose} for name, of_purpose in held.items()},
        "lines": len(lines.lines),
        "combined": lines.combined,
        "loss": promises.loss_measures(task, losses).plain(),
        **({"maps": {name: verdict.message for name, verdict in lines.verdicts.items()}} if lines.verdicts else {}),
        **({"paths": lines.paths} if lines.paths else {}),
        **({"left_out": dict(told_out)} if told_out else {}),
    }
    certificate = certify(
        promise,
        kind=ESTIMATES,
        dataset=task.dataset,
        period=None,
        attributes=[subject.plain() for subject in promises.describe_subjects(mechanisms)],
        measures=EstimateMeasures.model_validate(measures),
        spend=SpendStatement(id=promises.spend_id(task), at=datetime.now(UTC).isoformat(timespec="seconds")),
        composed=promises.composed(task, losses, promise).plain(),
    )
    return Release(certificate=certificate, data=lines.table(promises.columns_of(mechanisms)))


def write_estimates(
    release: Release,  # What :func:`estimate` made
    folder: str | os.PathLike[str],  # Where to; must not exist
    *,
    sign: str | os.PathLike[str] | None = None,  # Ed25519 private key (PEM file) to sign the certificate with
    force: bool = False,  # Replace a release that is there
) -> Path:
    """Write a release of estimates; the folder appears whole or not at all. There is no key."""
    with new_folder(folder, marker=CERTIFICATE_FILE, force=force, may_hold=RELEASE_FILES) as work:
        release.write_files(work, sign=sign)
    return Path(folder)


def _tallied(reports: Any, task: Task) -> tuple[list[Tally], dict[str, int]]:
    """Return tallies of reports, and how many reports were left out of them."""
    if not isinstance(reports, Tallies):
        given = list(reports.values() if isinstance(reports, Mapping) else reports)
        if all(isinstance(item, Tally) for item in given):
            return given, {}
        if not all(isinstance(item, Report) for item in given):
            raise ParameterError("give reports, or tallies of reports, not both or something else.")
        reports = Tally.of_reports(task, given)
    elif reports.task.digest != task.digest:
        raise ParameterError("the tallies are of another task. Give the task that they were made for.")
    left_out = {
        "duplicate": reports.num_duplicates,
        "conflicting": reports.num_conflicting,
        "impossible": reports.num_bad,
    }
    return list(reports.by_tier.values()), _checked_left_out(left_out)


def _checked_left_out(given: Mapping[str, int]) -> dict[str, int]:
    """Return how many reports were left out, by every kind there is."""
    if not given.keys() <= set(promises.LEFT_OUT) or not all(type(num) is int and num >= 0 for num in given.values()):
        raise ParameterError(
            f"left_out must be whole numbers by kind: {', '.join(promises.LEFT_OUT)}. Got others. Mend it."
        )
    return {kind: given.get(kind, 0) for kind in promises.LEFT_OUT}


def _num_reports(tallies: Sequence[Tally]) -> int:
    return sum(tally.num_reports for tally in tallies)


def _add_numbers(
    lines: _Lines, purpose: str, mechanism: LocalNumeric, tallies: Sequence[Tally], confidence: float, rule: str
) -> None:
    means, presences = estimate_means(mechanism, tallies, confidence=confidence, rule=rule)
    units = {quantity.name: quantity.unit for quantity in mechanism.quantities}
    for mean in means:
        lines.add("mean", purpose, (mean.value, mean.lower, mean.upper), attribute=mean.name, unit=units[mean.name])
    for share in presences:
        lines.add("present", purpose, (share.value, share.lower, share.upper), attribute=share.name)
    lines.combined[purpose] = {mean.name: {**mean.combination.to_dict(), "reports": mean.num_told} for mean in means}
    if promises.has_bins(mechanism):
        for place, (quantity, mean) in enumerate(zip(mechanism.quantities, means, strict=True)):
            _add_distribution(lines, purpose, mechanism, tallies, place, quantity, mean, confidence, rule)


def _add_distribution(
    lines: _Lines,
    purpose: str,
    mechanism: LocalNumeric,
    tallies: Sequence[Tally],
    place: int,
    quantity: Quantity,
    mean: Mean,
    confidence: float,
    rule: str,
) -> None:
    """Add the bins and quantiles of a number reported by square waves, if anybody did."""
    found = [(tally, tally.parts.get((place, SquareWave.key))) for tally in tallies]
    told = [(tally, part) for tally, part in found if isinstance(part, Counts) and part.num]
    if not told:
        return
    laws = [mechanism.reading(tally.tier, place, SquareWave.key) for tally, _ in told]
    num = _num_reports([tally for tally, _ in told])
    together = mean.combination.rule in (promises.PRECISION, promises.ONE_TIER)
    fitted = fit_distribution(
        [law for law in laws if isinstance(law, SquareWave)],
        [part.counts for _, part in told],
        [tally.num_reports / num for tally, _ in told],
        confidence,
        fit_together=together,
        bound_together=rule == promises.PRECISION,
    )
    for at, (low, high) in enumerate(itertools.pairwise(promises.bin_edges(quantity))):
        ends = _ends(fitted.shares, at)
        lines.add("share", purpose, ends, attribute=quantity.name, bin_lower=low, bin_upper=high)
    for at, level in enumerate(promises.QUANTILES):
        points = map(quantity.in_units, _ends(fitted.quantiles, at))
        lines.add(f"quantile {level}", purpose, points, attribute=quantity.name, unit=quantity.unit)


def _ends(found: Estimates | Shares, at: int) -> tuple[float, float, float]:
    return float(found.value[at]), float(found.lower[at]), float(found.upper[at])


def _add_paths(lines: _Lines, purpose: str, mechanism: LocalTrajectory, shares: Shares) -> None:
    """Add the paths whose interval lies above 0, the most frequent ones, and all others as one line."""
    order = np.argsort(-shares.value, kind="stable")
    listed = [int(at) for place, at in enumerate(order) if place < MOST_LISTED or shares.lower[at] > 0]
    for at in listed:
        lines.add("share", purpose, _ends(shares, at), path=promises.path_text(mechanism, at))
    lines.paths[purpose] = {"paths": shares.value.size, "listed": len(listed)}
    if len(listed) < shares.value.size:
        rest = np.delete(shares.value, listed).sum()
        # Others are what the listed ones leave over.
        lower, upper = (1 - float(ends[listed].sum()) for ends in (shares.upper, shares.lower))
        ends = min(max(lower, 0.0), float(rest)), max(min(upper, 1.0), float(rest))
        lines.add("share", purpose, (float(rest), *ends), path=promises.OTHER)
