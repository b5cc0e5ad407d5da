# SPDX-License-Identifier: Apache-2.0
"""How far the distances of one attribute spread over all pairs of records, without looking at all pairs.

Distances of different attributes are made comparable by dividing them by their standard deviation (Bhati et al. 2021,
eqs. 10-12). The paper also subtracts their mean; that moves all distances alike and changes no comparison.

Everywhere in this module the pairs are those of two different records, each pair once (``i < j``), equal values
included, and the deviation is that of these pairs themselves: the mean square is over their number, not one less.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray
from dunnage.clustering.metric import CodeArray

_ALL_ALIKE = 1e-9  # a deviation below this share of the mean is rounding: the distances are all the same


def distance_moments(values: npt.NDArray[Any], table: FloatArray | None = None) -> tuple[float, float]:
    """Return the mean and the standard deviation of the distances of all pairs of records.

    Notes
    -----
    Numbers take one sort: in sorted order ``x[i]`` is added in ``i`` pairs and subtracted in ``n - 1 - i``, and the
    squares of all differences add up to ``n`` times the squares of all deviations from the mean.
    """
    if len(values) < 2:
        return 0.0, 0.0
    return _number_moments(np.sort(values)) if table is None else _code_moments(values, table)


def distance_deviation(values: npt.NDArray[Any], table: FloatArray | None = None) -> float:
    """Return the standard deviation of the distances of all pairs of records, see :func:`distance_moments`."""
    return distance_moments(values, table)[1]


def distance_deviations(numbers: FloatArray, codes: CodeArray, tables: tuple[FloatArray, ...]) -> FloatArray:
    """Return the deviation of each attribute in the order of a :class:`~dunnage.clustering.metric.Metric`."""
    of_numbers = [distance_deviation(column) for column in numbers]
    of_codes = [distance_deviation(column, table) for column, table in zip(codes, tables, strict=True)]
    return np.array(of_numbers + of_codes, dtype=np.float64)


def near_weights(weights: FloatArray, scales: FloatArray) -> FloatArray:
    """Return what a unit of distance counts: the weight of an attribute over its scale, 0 where the scale is 0."""
    return np.divide(weights, scales, out=np.zeros(len(weights)), where=np.asarray(scales) > 0)


def _number_moments(ordered: npt.NDArray[Any]) -> tuple[float, float]:
    num = len(ordered)
    centred = ordered.astype(np.float64) - float(ordered[num // 2])  # small numbers: less is lost to rounding
    pairs = num * (num - 1) / 2
    mean = float((2 * np.arange(num) - num + 1) @ centred) / pairs
    if num == 2:
        return mean, 0.0
    squares = num * float(np.square(centred - centred.mean()).sum()) / pairs
    # From three records on, distances of numbers are alike only if all are 0: this difference loses no digits.
    return mean, math.sqrt(max(0.0, squares - mean * mean))


def _code_moments(codes: npt.NDArray[Any], table: FloatArray) -> tuple[float, float]:
    counts = np.bincount(codes, minlength=len(table))
    present = np.flatnonzero(counts)
    often = counts[present].astype(np.float64)
    pairs = np.outer(often, often)  # ordered pairs; a code meets itself in its other records only
    np.fill_diagonal(pairs, often * (often - 1))
    distances = np.asarray(table, dtype=np.float64)[np.ix_(present, present)]
    mean = float((pairs * distances).sum() / pairs.sum())
    deviation = math.sqrt(float((pairs * np.square(distances - mean)).sum() / pairs.sum()))
    return mean, deviation if deviation > _ALL_ALIKE * mean else 0.0
