# SPDX-License-Identifier: Apache-2.0
"""Distributions behind a known channel: square waves of a number, and planar reports of places.

Both are found by expectation maximisation (EM): the likeliest distribution of inputs given how often each symbol came
up. For square waves each step is followed by smoothing (EMS, Li et al. 2020), as without it noise is fitted.

Smoothing flattens peaks, and by how much cannot be seen from the fit, so that a bootstrap around it promises more than
it keeps (on two humps at epsilon 1 its "95 %" hold in 2 of 100 cases). Intervals of bins and quantiles are those that
*no* distribution can leave whose reports are distributed as observed, up to the band of Dvoretzky, Kiefer, Wolfowitz
and Massart: the least and the largest share by linear programming. They are wide, and all of them hold at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.local.estimators import Estimates, normal_quantile
from dunnage.local.numeric_laws import SquareWave, odds_of
from dunnage.local.planar import DIRECTIONS, Planar

MOST_BINS = 16
MOST_GROUPS = 64
"""Bins of a distribution, and groups of symbols it is fitted to, at most."""
QUANTILES = (0.25, 0.5, 0.75)
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


def num_bins(steps: int) -> int:
    """Return how many bins a number of so many steps has."""
    return min(MOST_BINS, 2 * steps)


def wave_matrix(law: SquareWave, bins: int) -> FloatArray:
    """Return the chance of each symbol (line) for a value that is anywhere in a bin (column), evenly."""
    points = _point_weights(law.steps, bins)  # (points, bins)
    total = np.concatenate([np.zeros((1, bins)), np.cumsum(points, axis=0)])
    symbols = np.arange(-law.last, law.last + 1)
    first = np.clip(symbols - law.half + law.steps, 0, law.num_inputs)
    stop = np.clip(symbols + law.half + law.steps + 1, 0, law.num_inputs)
    odds = float(odds_of(law.epsilon))
    found: FloatArray = 1 + (odds - 1) * (total[stop] - total[first])
    return found / (law.window * odds + law.num_outside)


def _point_weights(steps: int, bins: int) -> FloatArray:
    """Return how likely each point (line) is for a value anywhere in a bin (column), rounded at random."""
    inside = (np.arange(bins * _SUB_VALUES) + 0.5) / (bins * _SUB_VALUES)  # of [0, 1]
    scaled = inside * 2 * steps
    below = np.minimum(scaled.astype(np.int64), 2 * steps - 1)
    weights = np.zeros((2 * steps + 1, bins))
    of_bin = np.arange(inside.size) // _SUB_VALUES
    np.add.at(weights, (below, of_bin), (1 - (scaled - below)) / _SUB_VALUES)
    np.add.at(weights, (below + 1, of_bin), (scaled - below) / _SUB_VALUES)
    return weights


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
    if fit_together:
        fitted = _fit_together(channels, columns)
    else:
        fits = [maximise(c, g / g.sum(), smooth=True)[:, 0] for c, g in zip(channels, columns, strict=True)]
        fitted = np.asarray(np.average(fits, axis=0, weights=weights))
    value = fitted.reshape(bins, -1).sum(axis=1)
    shares, reached = _possible(laws, counts, None if bound_together else weights, confidence)
    lower, upper = np.minimum(shares[0], value), np.maximum(shares[1], value)
    variance = (upper - lower) ** 2 / 12
    return Distribution(Estimates(value, lower, upper, variance), _quantiles(value, *reached))


def _fit_together(channels: Sequence[FloatArray], counts: Sequence[FloatArray]) -> FloatArray:
    """Fit one distribution to the reports of several tiers, each through its own channel."""
    whole = math.fsum(float(count.sum()) for count in counts)
    channel = np.concatenate([count.sum() / whole * c for count, c in zip(counts, channels, strict=True)])
    found: FloatArray = maximise(channel, np.concatenate(list(counts)) / whole, smooth=True)[:, 0]
    return found


def _possible(
    laws: Sequence[SquareWave], counts: Sequence[ArrayLike], weights: Sequence[float] | None, confidence: float
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Return the least and largest share of each bin, and of all bins up to each edge, that the reports leave open."""
    bins = num_bins(laws[0].steps)
    finer = _FINER * bins
    bands = [_band(law, count, finer, (1 - confidence) / len(laws)) for law, count in zip(laws, counts, strict=True)]
    if weights is None:  # one distribution behind all tiers
        rows, limits, parts = np.concatenate([band[0] for band in bands]), np.concatenate([b[1] for b in bands]), [1.0]
    else:
        rows, limits, parts = (
            _block_diagonal([b[0] for b in bands]),
            np.concatenate([b[1] for b in bands]),
            list(weights),
        )
    goals = np.kron(np.eye(bins), np.ones(_FINER))
    upto = np.cumsum(goals, axis=0)[:-1]
    bounds = [
        _extremes(np.concatenate([part * g for part in parts], axis=None), rows, limits, len(parts))
        for g in (*goals, *upto)
    ]
    least, most = (np.array(ends) for ends in zip(*bounds, strict=True))
    return (least[:bins], most[:bins]), (least[bins:], most[bins:])


def _block_diagonal(blocks: Sequence[FloatArray]) -> FloatArray:
    from scipy.linalg import block_diag

    found: FloatArray = block_diag(*blocks)
    return found


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
    columns, rows = (_moves(places[:, axis], size) for axis in (0, 1))
    found = sums[columns[1], rows[1]] - sums[columns[0], rows[1]] - sums[columns[1], rows[0]]
    chances: FloatArray = np.maximum(found + sums[columns[0], rows[0]], 0.0)
    return chances


def _moves(places: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Return where the moves from each true place (column) to each reported one (line) begin and end in the sums."""
    moved = places[:, None] - places[None, :] + size
    reported = np.broadcast_to(places[:, None], moved.shape)
    return np.where(reported == 0, 0, moved), np.where(reported == size - 1, 2 * size + 1, moved + 1)


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
    return likeliest, _inverted(matrices[0], counts[0] / nums[0], channel @ likeliest, nums[0], confidence)


def _inverted(
    matrix: FloatArray, observed: FloatArray, expected: FloatArray, num: float, confidence: float
) -> Estimates:
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        inverse = np.full(matrix.shape, math.nan)
    value = inverse @ observed
    # Frequencies as fitted, none of which is 0, so that no variance is.
    variance = np.maximum((inverse**2) @ expected - np.clip(value, 0.0, 1.0) ** 2, 0.0) / num
    sound = np.isfinite(value) & np.isfinite(variance)
    value, variance = np.where(sound, value, 0.5), np.where(sound, variance, 1.0)
    width = normal_quantile(confidence) * np.sqrt(variance)
    return Estimates(value, value - width, value + width, variance)
