# SPDX-License-Identifier: Apache-2.0
"""What estimates of numbers and of shares have in common: intervals, tiers put together, and projections.

An :class:`Estimates` holds an array of unbiased values, each with an interval of its own and a variance. Intervals are
those of single values: that all of many hold at once is less likely. They are made so that they hold for small numbers
of reports, too: exact ones (Clopper and Pearson) where a count is binomial, score intervals (Wilson) where the law's
variance is known as a function of what is estimated, Student's t elsewhere. Several are put together by the method of
variance estimates recovery (Zou and Donner 2008), which carries lopsided intervals over.

Everything here is computed from reports that devices have already perturbed; nothing is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.exact import shown

AUTO, PRECISION, STRATIFY, ONE_TIER = "auto", "precision", "stratify", "one tier"
COMBINATIONS = (AUTO, PRECISION, STRATIFY)
"""How tiers may be put together; see :func:`combine_tiers`."""
SIGNIFICANCE = 0.05
"""Below this p-value of Cochran's Q tiers are taken to differ."""


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
    """Return the estimates of one number."""
    return Estimates(*(np.asarray(number, dtype=np.float64) for number in (value, lower, upper, variance)))


UNKNOWN = single(math.nan, -math.inf, math.inf, math.inf)
"""What is known of a number that nobody reported."""


@dataclass(frozen=True, kw_only=True)
class Combination:
    """How tiers were put together, and why."""

    rule: str  # `precision`, `stratify`, or `one tier`
    p_value: float | None = None  # Of Cochran's Q for tiers that do not differ; None with one tier

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain data."""
        return {"rule": self.rule} | ({} if self.p_value is None else {"p_value": float(f"{self.p_value:.4g}")})


def check_confidence(confidence: object) -> float:
    """Return a confidence that intervals can have."""
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
    """Return amounts as parts of their sum."""
    whole = math.fsum(amounts)
    return [amount / whole for amount in amounts]


def combine_tiers(
    tiers: Sequence[Estimates], nums: Sequence[int], precisions: Sequence[float], rule: str
) -> tuple[Estimates, Combination]:
    """Put the estimates of tiers together."""
    if len(tiers) == 1:
        return tiers[0], Combination(rule=ONE_TIER)
    p_value = heterogeneity(tiers)
    stratified = combine(tiers, shares_of(nums))
    if rule == STRATIFY or not any(precisions):
        return stratified, Combination(rule=STRATIFY, p_value=p_value)
    known = [bool(np.all(tier.known)) for tier in tiers]
    weights = shares_of([precision if told else 0.0 for precision, told in zip(precisions, known, strict=True)])
    precise = combine([tier for tier, told in zip(tiers, known, strict=True) if told], [w for w in weights if w])
    if rule == PRECISION:
        return precise, Combination(rule=PRECISION, p_value=p_value)
    if p_value is not None and p_value < SIGNIFICANCE:
        return stratified, Combination(rule=STRATIFY, p_value=p_value)
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
