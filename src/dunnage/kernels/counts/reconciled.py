# SPDX-License-Identifier: Apache-2.0
"""Bayes estimates of cells, made consistent with noisy sums: two projections with an estimate in between.

The first projection says how many trips each join group may hold. From that, the noisy cells and the noisy margin,
each cell is estimated. The second projection reconciles the estimates with the noisy
sums, which weigh as much as they are better than the sums of estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.kernels.counts.projection import Family, Projection
from dunnage.kernels.counts.tables import project_dense

# --- Estimates of cells from noisy counts alone: what a count probably is, given its noisy value and those around it.
#
# Most cells of a trip table are empty, few are large. A noisy value of 5 among thousands of empty cells is probably
# noise; the same value on a pair of stops that is busy in other windows probably is not. How much each of that counts
# is learned from the noisy counts themselves, so nothing is spent: it is post-processing.
#
# The model
# ---------
# A count is drawn from a mixture of geometric laws, and its noisy value adds discrete Laplace noise of known scale.
# The means of the geometric laws are of two kinds: fixed ones, the same for all cells, and multiples of the
# *expected* count of the cell, which is predicted from everything but the cell's own value. One set of mixture
# weights is shared by all cells and found by expectation maximisation; it decides by itself how far the prediction
# can be trusted. A few dozen weights for thousands of cells are hardly fitted to noise, and a mixture of falling laws
# cannot put an atom where noise happens to be large. Free priors for many strata of cells do both, and lose to a
# table of zeros where trips are few.
#
# Two rounds are made. The first predicts cells from coarse sums (and the margin of the pair, if one was asked). The
# second predicts them from what the first found in the other cells of the same pair; a third would hear the echo of
# each cell's own value. In the end the cells of a pair are drawn to its margin, as far as its noise lets.
#
# Sums in closed form
# -------------------
# With r = exp(-1 / scale), a geometric law (1 - p) p**n, and j = 0, 1, 2, the sums over n of n**j p**n r**abs(y - n)
# are geometric series, cut at y. For y <= 0 they are r**abs(y) times those at 0, so that all such values say the
# same.


# Expectation maximisation is stopped early on purpose: where noise drowns all counts it has then hardly moved from its
# sceptical start, while going on would fit the mixture to the largest noise.
ITERATIONS = 60
PSEUDO_CELLS = 2.0  # cells' worth of belief in the first weights: keeps every law possible
BINS = 24  # classes of expected counts, by their logarithm
SMALLEST_MEAN = 2.0**-8  # of the fixed laws
MULTIPLES = 2.0 ** np.arange(-5, 6)  # means of the other laws, over the expected count
STEPS_PER_SCALE = 4  # noisy values are told apart to a fourth of the scale of noise
SCALES_NEAR = 24  # from so many scales on, noise explains nothing and values may be told apart less finely
GROWTH = 1.05
OWN_RATE = 0.9  # of the rate of a join group; the rest is that of all cells, as no group is surely empty
SPREAD_OF_SQUARES = 2.24  # standard deviation of a squared Laplace number over its mean, the root of 5
MAX_CORRECTED = 0.1  # part of all trips that a correction by coarse sums is thought to take away at most
NEAR_NOISE = 0.1  # how near to each other the mean of a law and that of the noise may be, over the latter
SMALLEST_SCALE = 0.02  # smaller noise is zero but for one draw in 1e21
_TINY = 1e-300
_MIN_VARIANCE = 1e-9


class CellEstimate(NamedTuple):
    """Means and variances of the law of each count, given the noisy counts."""

    means: FloatArray
    variances: FloatArray


def estimate_cells(
    values: IntArray,  # Noisy value of each cell: its count plus discrete Laplace noise
    scale: float,  # Scale of that noise
    *,
    pairs: IntArray,  # Pair of each cell, from 0; cells of a pair are expected to be busy together
    rates: FloatArray,
    margin: IntArray | None = None,
    margin_scale: float = 0.0,
) -> CellEstimate:
    """Estimate the counts of all cells from noisy counts."""
    if not (values.shape == pairs.shape == rates.shape and values.ndim == 1):
        raise ParameterError(
            f"Every cell needs a value, a pair and a rate. Got {values.size}, {pairs.size} and {rates.size}."
        )
    if not (0 < scale < np.inf and (margin is None or 0 < margin_scale < np.inf)):
        raise ParameterError(f"Scales of noise must be positive and finite. Got {scale} and {margin_scale}.")
    if not np.isfinite(rates).all() or (rates.size and rates.min() < 0):
        raise ParameterError("Rates must be finite and not negative. Pass sums that were projected.")
    if pairs.size and not (pairs.min() >= 0 and pairs.max() < (np.inf if margin is None else len(margin))):
        raise ParameterError("Pairs must be numbered from 0, and each have a sum in the margin. Renumber them.")
    if not values.size:
        return CellEstimate(means=np.zeros(0), variances=np.zeros(0))
    num_pairs = int(pairs.max()) + 1 if margin is None else len(margin)
    expected = _smoothed(rates)
    of_pairs = np.bincount(pairs, expected, num_pairs).astype(np.float64)
    shares = expected / of_pairs[pairs]
    if margin is not None:
        expected = shares * posterior(margin, margin_scale, of_pairs).means[pairs]
    estimate = posterior(values, scale, expected)
    if values.size == num_pairs:  # no pair has other cells
        return estimate
    # Predict each cell from the other cells of its pair.
    others = np.maximum(np.bincount(pairs, estimate.means, num_pairs)[pairs] - estimate.means, 0.0)
    estimate = posterior(values, scale, np.asarray(others * shares / np.maximum(1 - shares, 1e-3)))
    if margin is None:
        return estimate
    # Move cells towards the noisy sums of their pairs, the doubtful ones most: the best linear correction.
    doubt = np.bincount(pairs, estimate.variances, len(margin)) + max(laplace_variance(margin_scale), _MIN_VARIANCE)
    step = (margin - np.bincount(pairs, estimate.means, len(margin))) / doubt
    return estimate._replace(means=np.maximum(estimate.means + step[pairs] * estimate.variances, 0.0))


def _smoothed(rates: FloatArray) -> FloatArray:
    mean = float(rates.mean())
    return OWN_RATE * rates + (1 - OWN_RATE) * mean if mean > 0 else np.ones(rates.shape)


def posterior(values: IntArray, scale: float, expected: FloatArray) -> CellEstimate:
    """Fit the mixture to noisy values and return what each count probably is."""
    scale = max(scale, SMALLEST_SCALE)
    clipped = np.maximum(values, 0)  # values below zero say what zero does
    grid, num_even = _grid(scale, int(clipped.max()))
    bins, centres = _binned(expected)
    means, first = _laws(centres, float(grid[-1]))
    tables = moments(grid[None, :, None].astype(np.float64), _apart(means, scale)[:, None, :], scale)
    # For each value the last place of the grid that is not above it, the last one of all left out
    places = clipped // int(grid[1])
    far = np.flatnonzero(places >= num_even)
    places[far] = np.minimum(np.searchsorted(grid, clipped[far], side="right") - 1, len(grid) - 2)
    nearest = places + (2 * clipped >= grid[places] + grid[places + 1])
    histogram = np.bincount(bins * len(grid) + nearest, minlength=len(centres) * len(grid))
    weights = fit_weights(tables[0], histogram.reshape(len(centres), len(grid)).astype(np.float64), first)
    mixed = [np.maximum(table @ weights, _TINY) for table in tables]
    mean = mixed[1] / mixed[0]
    variance = np.maximum(mixed[2] / mixed[0] - mean**2, 0.0)
    step = (clipped - grid[places]) / (grid[places + 1] - grid[places])
    flat = bins * len(grid) + places
    return CellEstimate(means=_between(mean, flat, step), variances=_between(variance, flat, step))


def fit_weights(
    likelihoods: FloatArray, histogram: FloatArray, first: FloatArray, iterations: int = ITERATIONS
) -> FloatArray:
    seen = histogram > 0
    rows, cells = likelihoods[seen], histogram[seen]
    weights = first
    for _ in range(iterations):
        weights = weights * ((cells / np.maximum(rows @ weights, _TINY)) @ rows) + PSEUDO_CELLS * first
        weights = weights / weights.sum()
    return weights


def moments(values: FloatArray, means: FloatArray, scale: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the sums over n of n**j (1 - p) p**n r**abs(value - n) for j = 0, 1 and 2."""
    r, p = np.exp(-1 / scale), means / (1 + means)
    decay, power = np.exp(-values / scale), np.exp(values * np.log(np.maximum(p, _TINY)))
    # n from 0 to the value
    gap = r - p
    zeroth = (decay * r - power * p) / gap
    once = (p * r * decay - power * p * ((values + 1) * r - values * p)) / gap**2
    bracket = (values + 1) ** 2 * r**2 - (2 * values * (values + 1) - 1) * p * r + (values * p) ** 2
    twice = p * (decay * r * (r + p) - power * bracket) / gap**3
    # n beyond the value: p**(value + 1) r times the sums of (p r)**i (value + 1 + i)**j
    product, beyond = p * r, power * p * r / (1 - p * r)
    ahead = product / (1 - product)
    zeroth = zeroth + beyond
    once = once + beyond * (values + 1 + ahead)
    twice = twice + beyond * ((values + 1) ** 2 + 2 * (values + 1) * ahead + ahead * (1 + 2 * ahead))
    zeroth, once, twice = (np.maximum((1 - p) * part, 0.0) for part in (zeroth, once, twice))
    return zeroth, once, twice


def _grid(scale: float, top: int) -> tuple[IntArray, int]:
    """Return the noisy values that are told apart: evenly spaced where noise matters, then ever less finely.

    Returned too is how many steps are even.
    """
    width = max(1, int(scale / STEPS_PER_SCALE))
    num_even = int(np.ceil(SCALES_NEAR * scale / width)) + 1
    grid = [width * step for step in range(num_even + 1)]
    while grid[-1] < top:
        grid.append(int(grid[-1] * GROWTH) + 1)
    return np.array(grid, dtype=np.int64), num_even


def _binned(expected: FloatArray) -> tuple[IntArray, FloatArray]:
    """Put expected counts into bins by their logarithm; return the bin of each and the mean of each bin."""
    mean = float(expected.mean())
    kept = np.maximum(expected, 1e-6 * mean) if mean > 0 else np.ones(expected.shape)
    low, high = np.log(kept.min()), np.log(kept.max())
    bins = np.minimum((BINS * (np.log(kept) - low) / max(high - low, 1e-9)).astype(np.int64), BINS - 1)
    cells = np.bincount(bins, minlength=BINS)
    used = cells > 0
    numbers = np.cumsum(used) - 1
    return numbers[bins], np.bincount(bins, kept, BINS)[used] / cells[used]


def _laws(centres: FloatArray, top: float) -> tuple[FloatArray, FloatArray]:
    """Return the means of the laws for each bin of expected counts, and weights to begin with."""
    fixed = SMALLEST_MEAN * 2.0 ** np.arange(np.ceil(np.log2(max(top, 1.0) / SMALLEST_MEAN)) + 1)
    means = np.hstack(
        [np.zeros((len(centres), 1)), np.repeat(fixed[None], len(centres), axis=0), np.outer(centres, MULTIPLES)]
    )
    # As many trips are first thought to be in cells of each size: small counts are common, large ones rare.
    parts = (np.ones(1), (1 / fixed) / (1 / fixed).sum() / 2, (1 / MULTIPLES) / (1 / MULTIPLES).sum() / 2)
    return means, np.concatenate(parts) / 2


def _apart(means: FloatArray, scale: float) -> FloatArray:
    """Move means away from that of the geometric law that falls as noise does: near it the closed forms cancel."""
    same = 1 / np.expm1(1 / scale)
    near = np.abs(means / same - 1) < NEAR_NOISE
    return np.where(near, same * np.where(means < same, 1 - NEAR_NOISE, 1 + NEAR_NOISE), means)


def _between(table: FloatArray, flat: IntArray, step: FloatArray) -> FloatArray:
    """Look values up in a table by its flat places, between two neighbours where they fall between."""
    listed = table.reshape(-1)
    lower = listed[flat]
    return np.asarray(lower + step * (listed[flat + 1] - lower))


def reconciling_ratios(
    estimate: CellEstimate,
    scale: float,
    *,
    starts: IntArray,  # Where each join group starts, and the number of cells
    groups: Sequence[IntArray],  # For each coarse feature the group of each join group
    sums: Sequence[FloatArray],
    variances: Sequence[float],
    total: float,  # All trips, as far as coarse sums tell
) -> tuple[float, ...]:
    """Return how much noisy sums weigh beside estimated cells when both are made consistent.

    The sum of estimates over a group has an error of three kinds: what is left of the noise of its cells; how far the
    mixture is wrong for that group, for which the trips that rest on the mixture more than on their cells' values may
    all be misplaced; and what the noisy sums themselves show, if it is more than their noise explains. A feature weighs
    that error over the variance of its noise and over the number of cells in a group that can move; never more than
    the number of cells in a group, which is its weight in the paper.
    """
    num_cells = len(estimate.means)
    joined = np.diff(np.concatenate(([0.0], np.cumsum(estimate.means)))[starts])
    # Return, per cell, the variance that is left and the trips that rest on the mixture alone.
    own = np.minimum(estimate.variances / max(laplace_variance(scale), _MIN_VARIANCE), 1.0)
    resting = float(estimate.means @ (1 - own))
    misplaced = max(total - float(estimate.means @ own), resting, 1.0)
    left, misplaced = max(float(estimate.variances.mean()), _MIN_VARIANCE), misplaced / len(own)
    levels = _levels(estimate.means)
    ratios = []
    for codes, noisy, spread in zip(groups, sums, variances, strict=True):
        size, variance = num_cells / len(noisy), max(spread, _MIN_VARIANCE)
        off = noisy - np.bincount(codes, joined, len(noisy))
        shown = float(np.mean(off**2)) - variance * (1 + SPREAD_OF_SQUARES / np.sqrt(len(noisy)))
        error = max(size * left + (size * misplaced) ** 2, shown)
        # Cells that the likely correction would take to zero cannot move: half of it goes down.
        correction = error / (error + variance) * float(np.abs(off).sum()) / 2
        moving = num_cells - np.searchsorted(levels, min(correction, MAX_CORRECTED * levels[-1]))
        ratios.append(min(error / variance * len(noisy) / max(int(moving), 1), size))
    return tuple(ratios)


def _levels(means: FloatArray) -> FloatArray:
    """Return what is taken away, all in all, if every cell is lowered by the k-th smallest mean, but not below zero."""
    rising = np.sort(means)
    return np.asarray(np.cumsum(rising) + np.arange(len(rising) - 1, -1, -1) * rising)


def laplace_variance(scale: float) -> float:
    return float(2 * np.exp(-1 / scale) / np.expm1(-1 / scale) ** 2)


_STEPS = (
    2.0**16
)  # estimates are put on a grid of so many steps a trip: projections of whole tables are of whole numbers


class Margin(NamedTuple):
    """Noisy sums over the cells of pairs."""

    pairs: IntArray  # pair of each cell, in the order of the cells
    sums: IntArray
    scale: float  # of their noise


def project_estimates(
    noisy: IntArray,  # noisy cells, join group by join group
    scale: float,  # of their noise
    *,
    starts: IntArray,  # where each join group starts, and the number of cells
    margin: Margin,
    family: Family,
    sums: Sequence[FloatArray],  # noisy sums of coarse features
    variances: Sequence[float],  # of the noise of each
) -> Projection:
    """Return consistent, non-negative counts near the Bayes estimates of cells."""
    plain = project_dense(noisy, starts, family, sums)
    sizes = np.diff(starts)
    rates = np.repeat(np.add.reduceat(plain.x, starts[:-1]) / sizes, sizes)
    estimate = estimate_cells(
        noisy, scale, pairs=margin.pairs, rates=rates, margin=margin.sums, margin_scale=margin.scale
    )
    ratios = reconciling_ratios(
        estimate, scale, starts=starts, groups=family.groups, sums=sums, variances=variances, total=float(plain.x.sum())
    )
    values = np.rint(estimate.means * _STEPS).astype(np.int64)
    weighted = replace(family, ratios=ratios)
    projection = project_dense(values, starts, weighted, [of_feature * _STEPS for of_feature in sums])
    return replace(projection, x=projection.x / _STEPS)
