# SPDX-License-Identifier: Apache-2.0
"""One metric for all attributes: numbers, and codes with a table of distances.

A class is charged, for each attribute, its largest pairwise distance over the diameter of the domain, times the weight
of the attribute (Bhati et al. 2021, eqs. 15 and 20): the range of its numbers, the leaves below the lowest common node
of a tree, the longest shortest path between its stations. Two records are near or far by a second set of weights
(eqs. 7-13), in which distances are scaled by their maximum or by their standard deviation.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray
from dunnage.compiling import piece

# --- How far the distances of one attribute spread over all pairs of records, without looking at all pairs.
#
# Distances of different attributes are made comparable by dividing them by their standard deviation (Bhati et al. 2021,
# eqs. 10-12). The paper also subtracts their mean; that moves all distances alike and changes no comparison.
#
# Everywhere in this module the pairs are those of two different records, each pair once (``i < j``), equal values
# included, and the deviation is that of these pairs themselves: the mean square is over their number, not one less.


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


CodeArray = npt.NDArray[np.int32]


class Table(NamedTuple):
    """Records and what distances count, as kernels take them; the distances of all codes are one array."""

    numbers: FloatArray
    codes: CodeArray
    entries: FloatArray
    starts: IntArray  # where the distances of each coded attribute start
    sizes: IntArray  # how many codes each has
    charge: FloatArray
    near: FloatArray


@piece
def distance(first: int, second: int, table: Table, weights: FloatArray) -> float:
    """Distance of two records: ``weights`` are those of the metric by which it is wanted."""
    numbers, codes, entries, starts, sizes = table.numbers, table.codes, table.entries, table.starts, table.sizes
    total = 0.0
    num = numbers.shape[0]
    for axis in range(num):
        total += weights[axis] * abs(numbers[axis, first] - numbers[axis, second])
    for axis in range(codes.shape[0]):
        place = starts[axis] + codes[axis, first] * sizes[axis] + codes[axis, second]
        total += weights[num + axis] * entries[place]
    return total


@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    """Records as numbers and codes, with what distances count. Private: its ``repr`` shows nothing.

    Attributes are in one order throughout: numeric ones first, then coded ones.
    """

    numbers: FloatArray  # Numeric attributes. Shape: attributes, records
    codes: CodeArray  # Coded attributes. Shape: attributes, records
    tables: tuple[FloatArray, ...]  # For each coded attribute the symmetric distances of its codes
    # What a unit of the largest pairwise distance in a class costs, per attribute: weight over diameter
    charge: FloatArray
    near: FloatArray  # What a unit of distance between two records counts when neighbours are looked for, per attribute

    def __post_init__(self) -> None:
        num = len(self.numbers) + len(self.codes)
        if not (len(self.tables) == len(self.codes) and len(self.charge) == len(self.near) == num):
            raise ValueError("one table a coded attribute, one weight an attribute")

    def __len__(self) -> int:
        return int(self.numbers.shape[1] if len(self.numbers) else self.codes.shape[1])

    @cached_property
    def arrays(self) -> Table:
        sizes = np.array([len(table) for table in self.tables], dtype=np.int64)
        entries = np.concatenate([table.ravel() for table in self.tables]) if self.tables else np.zeros(0)
        return Table(
            np.ascontiguousarray(self.numbers, dtype=np.float64),
            np.ascontiguousarray(self.codes, dtype=np.int32),
            np.ascontiguousarray(entries, dtype=np.float64),
            np.concatenate(([0], np.cumsum(sizes * sizes)))[: len(sizes)].astype(np.int64),
            sizes,
            np.ascontiguousarray(self.charge, dtype=np.float64),
            np.ascontiguousarray(self.near, dtype=np.float64),
        )

    def take(self, records: IntArray) -> Metric:
        """Return the same metric on some records, in their order."""
        return Metric(self.numbers[:, records], self.codes[:, records], self.tables, self.charge, self.near)

    def widths(self, of_record: IntArray) -> FloatArray:
        """Return the largest pairwise distance of each class in each attribute. Shape: attributes, classes."""
        num = int(of_record.max(initial=-1)) + 1
        found = np.zeros((len(self.charge), num))
        inside = np.flatnonzero(of_record >= 0)
        for axis, column in enumerate(self.numbers):
            low, high = np.full(num, np.inf), np.full(num, -np.inf)
            np.minimum.at(low, of_record[inside], column[inside])
            np.maximum.at(high, of_record[inside], column[inside])
            found[axis] = high - low
        for axis, (column, table) in enumerate(zip(self.codes, self.tables, strict=True), len(self.numbers)):
            pairs = np.unique(of_record.astype(np.int64) * len(table) + column)
            pairs = pairs[pairs >= 0]  # records in no class come out below 0
            classes, present = np.divmod(pairs, len(table))
            starts = np.concatenate((np.searchsorted(classes, np.arange(num)), [len(classes)]))
            found[axis] = np.array(
                [table[np.ix_(present[a:b], present[a:b])].max(initial=0.0) for a, b in itertools.pairwise(starts)]
            )
        return found

    def costs(self, of_record: IntArray) -> FloatArray:
        """Return what each class is charged for each of its records."""
        return self.charge @ self.widths(of_record)

    def total(self, of_record: IntArray, price: float = 1.0) -> float:
        """Return the distortion of all records: classes by their size, and a price for each record in none (eq. 14)."""
        kept = of_record[of_record >= 0]
        sizes = np.bincount(kept) if len(kept) else np.zeros(0)
        lost = len(of_record) - len(kept)
        return float((sizes @ self.costs(of_record) if len(kept) else 0.0) + price * lost) / len(of_record)
