# SPDX-License-Identifier: Apache-2.0
"""List every pattern worth using: how many items of each class a bin may take, and the risk that they do not fit.

One walk serves all models. A class is a list of :class:`~dunnage.bins.chances.Sums`, one for each number of items; a
class whose items all count the same has one sum with probability 1, so that a pattern either fits or does not. Taking
one more item never lowers the risk, so a walk turns back at the first that is above the limit.

A pattern that another contains at no more risk is of no use in a cover. Those that fit surely and stay sure with one
more item are therefore left out; every cover from all patterns has one as good from those that are kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins.chances import ROUNDING, Sums

MOST_PATTERNS = 300_000
MOST_WORK = 2 * 10**9
_MOST_POINTS = 30_000
_MOST_DEPTH = 40
_PAIRS_EACH = 6
_MOST_DENSE = 2_000_000


@dataclass(frozen=True, eq=False)
class Listing:
    """Patterns in compressed rows, with the risk of each."""

    # starts, kinds, numbers: pattern j takes `numbers[i]` items of class `kinds[i]` for i from `starts[j]` to `starts[j
    # + 1]`
    starts: IntArray
    kinds: IntArray
    numbers: IntArray
    risk: FloatArray  # Probability that the pattern does not fit; exactly 0 where it fits surely
    num_classes: int  # Number of classes

    def __len__(self) -> int:
        return len(self.risk)

    @classmethod
    def together(cls, parts: Sequence[tuple[Listing, IntArray]], num_classes: int) -> Listing:
        """Join listings of different classes; each comes with the numbers its classes have in the whole."""
        ends = np.concatenate([[0], np.cumsum([len(part.kinds) for part, _ in parts])])
        starts = [part.starts[:-1] + end for (part, _), end in zip(parts, ends, strict=False)]
        return cls(
            np.append(np.concatenate(starts), ends[-1]),
            np.concatenate([own[part.kinds] for part, own in parts]),
            np.concatenate([part.numbers for part, _ in parts]),
            np.concatenate([part.risk for part, _ in parts]),
            num_classes,
        )

    def matrix(self) -> Any:
        """Return the patterns as a sparse matrix, one line each."""
        from scipy.sparse import csr_matrix

        shape = (len(self), self.num_classes)
        return csr_matrix((self.numbers.astype(np.float64), self.kinds, self.starts), shape=shape)


def list_patterns(
    classes: Sequence[Sequence[Sums]],
    worst: Sequence[IntArray],
    capacity: IntArray,  # What a bin holds of each resource
    *,
    most_risk: float,  # Largest risk of a pattern; a pattern that is as risky as that up to rounding is listed
    least: int = 0,
    slack: int = 0,
    most_patterns: int = MOST_PATTERNS,  # most_patterns, most_work: where to give up
    most_work: int = MOST_WORK,
) -> Listing | None:
    """List the useful patterns whose risk is at most a limit; None if there are too many."""
    capacity = np.asarray(capacity, dtype=np.int64)
    flat = _flattened(classes, worst, capacity)
    limits = (most_risk + ROUNDING, least, slack, float(most_work))
    # Most of this is never used, and memory that is not written to is not taken.
    pairs = np.empty((most_patterns * _PAIRS_EACH, 2), dtype=np.int64)
    ends, risk = np.zeros(most_patterns + 1, dtype=np.int64), np.empty(most_patterns)
    sums = np.empty((most_patterns, len(capacity)), dtype=np.int64)
    status, found = _compiled()[0](*flat, capacity, limits, *_stack(capacity), pairs, ends, risk, sums)
    if status != 0:
        return None
    listed = (ends[: found + 1], pairs[: ends[found], 0], pairs[: ends[found], 1], risk[:found])
    useful = _compiled()[1](*listed, sums[:found], flat[0], flat[5], flat[1], capacity)
    return _chosen(*listed, useful, len(classes))


def _stack(capacity: IntArray) -> tuple[Any, ...]:
    """Make room for what a walk holds at each depth: sums, their odds and number, largest sum, class, number."""
    resources, depth = len(capacity), _MOST_DEPTH + 1
    dense = resources == 1 and int(capacity[0]) <= _MOST_DENSE
    return (
        np.zeros(int(capacity[0]) + 1 if dense else 0),
        np.empty((depth, _MOST_POINTS, resources), dtype=np.int64),
        np.empty((depth, _MOST_POINTS)),
        np.zeros(depth, dtype=np.int64),
        np.zeros((depth, resources), dtype=np.int64),
        np.zeros(depth, dtype=np.int64),
        np.zeros(depth, dtype=np.int64),
    )


def _chosen(
    starts: IntArray, kinds: IntArray, numbers: IntArray, risk: FloatArray, useful: Any, num_classes: int
) -> Listing:
    lengths = np.diff(starts)
    held = np.repeat(useful, lengths)
    ends = np.concatenate([[0], np.cumsum(lengths[useful])])
    return Listing(ends, kinds[held], numbers[held], risk[useful], num_classes)


def _flattened(classes: Sequence[Sequence[Sums]], worst: Sequence[IntArray], capacity: IntArray) -> tuple[Any, ...]:
    """Put the sums of all classes and numbers into flat arrays, with where each begins."""
    resources = len(capacity)
    caps = np.array([len(sums) - 1 for sums in classes], dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(caps)]).astype(np.int64)  # where a class's numbers begin, from 1 on
    every = [sums[number] for sums in classes for number in range(1, len(sums))]
    starts = np.concatenate([[0], np.cumsum([len(sums.values) for sums in every])]).astype(np.int64)
    values = np.concatenate([sums.values for sums in every] or [np.zeros((0, resources), dtype=np.int64)])
    chances = np.concatenate([sums.chances for sums in every] or [np.zeros(0)])
    lines = [table[number] for table, sums in zip(worst, classes, strict=True) for number in range(1, len(sums))]
    largest = np.array(lines, dtype=np.int64).reshape(-1, resources)
    return caps, first, starts, np.ascontiguousarray(values), chances, largest


def _walk(
    caps: IntArray,
    first: IntArray,
    starts: IntArray,
    values: IntArray,
    chances: FloatArray,
    largest: IntArray,
    capacity: IntArray,
    limits: tuple[float, int, int, float],
    cells: FloatArray,
    held: IntArray,
    odds: FloatArray,
    size: IntArray,
    total: IntArray,
    kind: IntArray,
    number: IntArray,
    out_pairs: IntArray,
    out_ends: IntArray,
    out_risk: FloatArray,
    out_sums: IntArray,
) -> tuple[int, int]:
    """Walk through all patterns, class by class, and return 0 (or why it gave up) and how many there are.

    Plain Python that numba compiles.
    """
    most_risk, least, slack, most_work = limits
    num, resources, dense = len(caps), len(capacity), len(cells) > 0
    found, pairs, work, depth, status = 0, 0, 0.0, 0, 0
    held[0, 0, :], odds[0, 0], size[0] = 0, 1.0, 1
    while depth >= 0:
        k = kind[depth]
        if k >= num:
            depth -= 1
            continue
        if number[depth] >= caps[k]:
            kind[depth] += 1
            number[depth] = 0
            continue
        number[depth] += 1
        at = first[k] + number[depth] - 1
        begin, end = starts[at], starts[at + 1]
        work += size[depth] * (end - begin)
        if work > most_work:
            status = 1
            break
        # Combine what the bin holds with the class's sums, keeping what still fits.
        fits, kept = 0.0, 0
        if dense:
            low, high = capacity[0] + 1, -1
            for i in range(size[depth]):
                for j in range(begin, end):
                    value = held[depth, i, 0] + values[j, 0]
                    if value > capacity[0]:
                        break  # the sums of a class ascend
                    cells[value] += odds[depth, i] * chances[j]
                    low, high = min(low, value), max(high, value)
            for value in range(low, high + 1):
                if cells[value] > 0.0 and kept < held.shape[1]:
                    held[depth + 1, kept, 0] = value
                    odds[depth + 1, kept] = cells[value]
                    fits += cells[value]
                    kept += 1
                cells[value] = 0.0
        else:
            for i in range(size[depth]):
                for j in range(begin, end):
                    inside = kept < held.shape[1]
                    for r in range(resources):
                        inside = inside and held[depth, i, r] + values[j, r] <= capacity[r]
                    if inside:
                        held[depth + 1, kept] = held[depth, i] + values[j]
                        odds[depth + 1, kept] = odds[depth, i] * chances[j]
                        fits += odds[depth + 1, kept]
                        kept += 1
        if kept == held.shape[1]:
            status = 2  # there may have been more
            break
        sure = True
        for r in range(resources):
            total[depth + 1, r] = total[depth, r] + largest[at, r]
            sure = sure and total[depth + 1, r] <= capacity[r]
        risk = 0.0 if sure else max(1.0 - fits, 1e-300)
        if risk > most_risk:
            kind[depth] += 1
            number[depth] = 0
            continue
        full, densest = 1.0, 1.0
        if least > 0 and dense:
            full, densest, inside_window, tail = 0.0, 0.0, 0.0, 0
            for i in range(kept):
                inside_window += odds[depth + 1, i]
                while held[depth + 1, i, 0] - held[depth + 1, tail, 0] > capacity[0] - least + slack:
                    inside_window -= odds[depth + 1, tail]
                    tail += 1
                densest = max(densest, inside_window)
                if held[depth + 1, i, 0] >= least - slack:
                    full += odds[depth + 1, i]
        if densest < 1.0 - most_risk:
            continue  # another number of this class may do again: all of it has no spread
        if depth + 2 >= len(size) or found >= len(out_risk) or pairs + depth + 1 > len(out_pairs):
            status = 3
            break
        if full >= 1.0 - most_risk:
            for level in range(depth + 1):
                out_pairs[pairs, 0], out_pairs[pairs, 1] = kind[level], number[level]
                pairs += 1
            out_risk[found] = risk
            out_sums[found] = total[depth + 1]
            found += 1
            out_ends[found] = pairs
        depth += 1
        size[depth], kind[depth], number[depth] = kept, k + 1, 0
    return status, found


def _mark_useful(
    starts: IntArray,
    kinds: IntArray,
    numbers: IntArray,
    risk: FloatArray,
    sums: IntArray,
    caps: IntArray,
    largest: IntArray,
    first: IntArray,
    capacity: IntArray,
) -> Any:
    """Mark all patterns but those that fit surely and would with one more item."""
    useful = np.ones(len(risk), dtype=np.bool_)
    taken = np.zeros(len(caps), dtype=np.int64)
    for j in range(len(risk)):
        if risk[j] > 0.0:
            continue
        for i in range(starts[j], starts[j + 1]):
            taken[kinds[i]] = numbers[i]
        for k in range(len(caps)):
            if taken[k] >= caps[k]:
                continue
            sure = True
            for r in range(len(capacity)):
                before = largest[first[k] + taken[k] - 1, r] if taken[k] > 0 else 0
                if sums[j, r] + largest[first[k] + taken[k], r] - before > capacity[r]:
                    sure = False
                    break
            if sure:
                useful[j] = False
                break
        for i in range(starts[j], starts[j + 1]):
            taken[kinds[i]] = 0
    return useful


@functools.cache
def _compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from numba import njit

    return njit(cache=True)(_walk), njit(cache=True)(_mark_useful)
