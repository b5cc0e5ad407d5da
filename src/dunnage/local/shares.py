# SPDX-License-Identifier: Apache-2.0
"""Shares of places and of paths from tallies: unbiased per tier, put together, and made shares again.

Each oracle's counts give an unbiased share of every input, with an interval of its own: exact for randomised response
and unary encoding, where a count is binomial; a score interval for Hadamard response and where areas are in clear.
Tiers are put together (:func:`~dunnage.local.estimators.combine_tiers`). What is released as value is the nearest point
of the simplex (shares that are not negative and add up to 1); the interval stays that of the unbiased estimate, clipped
to [0, 1], and is extended to the value where that lies outside.

The planar law has no unbiased share of its own: the value is the likeliest map (EM on the exact channel), the interval
that of the map found by inverting the channel, however wide that is (:mod:`dunnage.local.distribution`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.local.distribution import planar_map
from dunnage.local.estimators import (
    Combination,
    Estimates,
    binomial_bounds,
    combine_tiers,
    normal_quantile,
    project_shares,
    score_bounds,
    settle_bounds,
    walsh_hadamard,
)
from dunnage.local.location import LocalLocation
from dunnage.local.oracles import HadamardResponse, InClear, Oracle
from dunnage.local.planar import Planar
from dunnage.local.tally import Counts, Tally
from dunnage.local.trajectory import Independent, LocalTrajectory

MOST_SHARES = 1 << 24
"""Most inputs whose shares are estimated at once."""


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
    """Return unbiased shares of all inputs of a law from the reports of one tier."""
    if isinstance(law, Independent):
        return _product_shares(law, tally, confidence)
    if isinstance(law, InClear):
        return _clear_shares(law, tally, confidence)
    oracle: Oracle = law  # type: ignore[assignment]
    (part,) = tally.parts.values()
    assert isinstance(part, Counts)
    return oracle_shares(oracle, part, confidence)


def oracle_shares(oracle: Oracle, part: Counts, confidence: float, *, of: int | None = None) -> Estimates:
    """Return unbiased shares of all inputs of an oracle."""
    num = of or part.num
    here = part.num / num
    if isinstance(oracle, HadamardResponse):
        scores, blocks = hadamard_scores(oracle, part.counts)
        return _hadamard_shares(oracle, scores / num, np.maximum(blocks / num, 2 * oracle.q * here), num, confidence)
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


def _hadamard_shares(
    oracle: HadamardResponse, scores: FloatArray, blocks: FloatArray, num: int, confidence: float
) -> Estimates:
    """Return shares from mean matrix entries; ``blocks`` are the shares of reports in the own block of each input."""
    value = scores * oracle.scale
    constant = blocks * oracle.scale**2  # the square of an entry is 1 in the own block, else 0
    lower, upper = score_bounds(value, num, (constant, 0.0), confidence)
    inside = np.clip(value, 0.0, 1.0)
    return Estimates(value, lower, upper, np.maximum(constant - inside**2, 0.0) / num)


def _clear_shares(law: InClear, tally: Tally, confidence: float) -> Estimates:
    """Return shares where groups are in clear: of each group's own reports, as parts of all."""
    size, zeros = law.group_size, np.zeros(law.num_inputs)
    found = Estimates(zeros, zeros.copy(), _empty_upper(law, tally, confidence), zeros.copy())
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


def _empty_upper(law: InClear, tally: Tally, confidence: float) -> FloatArray:
    """Return upper ends for groups that no report came from: they are shown as they are, so none of the reports was."""
    upper = float(binomial_bounds(0, tally.num_reports, confidence)[1])
    return np.full(law.num_inputs, upper)


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
        target, source = _group_places(law, key)
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


def _group_places(law: Independent, key: tuple[int | str, ...]) -> tuple[tuple[IntArray, ...], tuple[IntArray, ...]]:
    """Return where the places of a sequence of areas are among all, and among those of the areas."""
    size, last = law.place.group_size, law.place.num_inputs - 1
    targets, sources = [], []
    for area in key:
        inner = np.arange(size + (area == 0))  # "outside or missing" is reported in the first area
        sources.append(inner)
        targets.append(np.where(inner == size, last, int(area) * size + inner))
    return np.ix_(*targets), np.ix_(*sources)


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
