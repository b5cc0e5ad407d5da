# SPDX-License-Identifier: Apache-2.0
"""Runs: one attribute's records of equal value, in order, and the classes of consecutive runs that lose least.

An exact dynamic program; ``docs/proofs/partition.md`` says why it needs so few steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray
from dunnage.compiling import kernel

_COMPILE_FROM_RUNS = 20_000


def row_order(stratum: IntArray, num_strata: int, position: FloatArray) -> IntArray:
    """Sort rows by stratum, then position; rows of equal position come in any order."""
    return np.argsort(position) if num_strata == 1 else np.lexsort((position, stratum))


@dataclass(frozen=True, eq=False)
class Runs:
    """Rows that cannot be told apart, in order: bounds, how many rows come before, and where each stratum starts.

    ``before`` and ``starts`` have one entry more than there are runs and strata.
    """

    lower: FloatArray
    upper: FloatArray
    before: IntArray
    starts: IntArray

    @classmethod
    def of(cls, stratum: IntArray, values: FloatArray, lower: FloatArray, upper: FloatArray) -> Runs:
        """Collapse sorted rows into runs of equal stratum and value."""
        change = (np.diff(stratum) != 0) | (np.diff(values) != 0)
        first = np.concatenate([[0], np.flatnonzero(change) + 1])
        starts = np.concatenate([[0], np.flatnonzero(np.diff(stratum[first])) + 1, [len(first)]])
        return cls(lower[first], upper[first], np.append(first, len(stratum)), starts)

    @property
    def counts(self) -> IntArray:
        """Number of rows of each run."""
        return np.diff(self.before)


def best_classes(runs: Runs, k: int, price: float) -> tuple[IntArray, float]:
    """Return the class of each run (-1: suppressed), numbered in order, and the least total cost."""
    solve = _solve if len(runs.lower) >= _COMPILE_FROM_RUNS else _solve.plain
    first = np.full(len(runs.lower), -1, dtype=np.int64)
    cost = solve(runs.lower, runs.upper, runs.before, runs.starts, k, price, first)
    opens = opening_runs(runs, first)
    return np.where(first < 0, -1, np.cumsum(opens) - 1), float(cost)


def opening_runs(runs: Runs, first: IntArray) -> npt.NDArray[np.bool_]:
    """Mark the runs that open a class; neighbours of one stratum with equal rounded intervals are one class.

    Rounding can give two classes the same interval. They look alike, so they are one; their cost does not change.
    """
    opens = np.asarray(first == np.arange(len(first)))
    begins = np.flatnonzero(opens)
    ends = np.searchsorted(first[first >= 0], begins, side="right")
    last = np.flatnonzero(first >= 0)[ends - 1]
    stratum = np.searchsorted(runs.starts, begins, side="right")
    alike = [np.diff(found) == 0 for found in (stratum, runs.lower[begins], runs.upper[last])]
    same = np.logical_and.reduce(alike)
    opens[begins[1:][same]] = False
    return opens


@kernel
def _solve(
    lower: FloatArray,
    upper: FloatArray,
    before: IntArray,
    starts: IntArray,
    k: int,
    price: float,
    first_of: IntArray,
) -> float:
    """Dynamic program over the runs of each stratum; returns the least cost. Plain Python that numba can compile.

    ``best[end]`` is the least cost of the runs before ``end``, counted from the stratum's first: the last of them is
    suppressed (if below k records), or closes a class of at least k. ``first_of`` is filled with the first run of
    each run's class and keeps its -1 where suppressed.

    Where the last class may begin is a window that only moves forward. ``high``: later, and it has fewer than k
    records. ``low``: earlier, and either it can be cut in two classes, which cost no more, or an earlier ``end`` has
    already shown a later begin to be as good. Costs being size times width, the extra cost of beginning earlier only
    grows with ``end`` (the quadrangle inequality), so a begin that has lost has lost for good.
    """
    total = 0.0
    for s in range(len(starts) - 1):
        start, num = starts[s], starts[s + 1] - starts[s]
        best = np.zeros(num + 1)
        begin = np.full(num + 1, -1)  # first run of the class that closes here; -1: suppressed
        low, high = 0, 0
        for end in range(1, num + 1):
            rows = before[start + end]
            least = np.inf
            if rows - before[start] >= k:
                while rows - before[start + high + 1] >= k:
                    high += 1
                while before[start + high] - before[start + low] >= k:
                    low += 1
                for i in range(high, low - 1, -1):
                    cost = best[i] + (rows - before[start + i]) * (upper[start + end - 1] - lower[start + i])
                    if cost < least:
                        least, begin[end] = cost, i
                low = begin[end]
            count = rows - before[start + end - 1]
            if count < k and best[end - 1] + price * count < least:
                least, begin[end] = best[end - 1] + price * count, -1
            best[end] = least
        total += best[num]
        end = num
        while end > 0:
            i = begin[end] if begin[end] >= 0 else end - 1
            if begin[end] >= 0:
                first_of[start + i : start + end] = start + i
            end = i
    return total
