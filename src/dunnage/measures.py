# SPDX-License-Identifier: Apache-2.0
"""Figures about released classes that everyone can recompute: sizes, risks, l-diversity and t-closeness."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LOSS_METRIC = "loss metric of Hoogervorst et al. 2019, eq. 7, per record"
_NUMBER_TYPES = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)


def class_sizes(class_id: IntArray) -> IntArray:
    """Count the records of each class; classes are numbered from 0."""
    return np.bincount(class_id).astype(np.int64)


def sort_key(column: pa.Array) -> FloatArray | IntArray:
    """Return numbers in the order of a column's values: numbers are themselves, texts in the order of their letters."""
    if pa.types.is_floating(column.type):
        numbers: FloatArray = column.to_numpy(zero_copy_only=False)
        return numbers
    return np.asarray(pc.rank(column, tiebreaker="dense").to_numpy(zero_copy_only=False), dtype=np.int64)


def size_measures(sizes: IntArray, k: int, num_suppressed: int) -> dict[str, Any]:
    """Describe classes in the words of the field: k asked and reached, sizes, suppression, risks."""
    released = int(sizes.sum())
    return {
        "records": released,
        "k_asked": k,
        "k_reached": int(sizes.min()),
        "classes": len(sizes),
        "class_size": {"smallest": int(sizes.min()), "mean": released / len(sizes), "largest": int(sizes.max())},
        "suppressed": {"count": num_suppressed, "share": num_suppressed / (released + num_suppressed)},
        "risks": {
            "prosecutor_highest": 1 / int(sizes.min()),
            "prosecutor_mean": len(sizes) / released,
            "marketer": len(sizes) / released,
            "journalist": "at most the prosecutor's: no population table was given",
        },
    }


def sensitive_measures(class_id: IntArray, column: pa.Array) -> dict[str, Any]:
    """Measure how much a class tells about a sensitive column.

    Parameters
    ----------
    class_id
        Class of each row.
    column
        The sensitive values; numbers are compared by order, everything else as equal or different.

    Returns
    -------
    dict
        ``l`` (fewest distinct values in a class), ``t`` (largest distance between a class and the whole table)
        and the name of that distance.
    """
    rank = pc.rank(column, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64) - 1
    pairs, counts = np.unique(class_id * (int(rank.max()) + 1) + rank, return_counts=True)
    classes, values = np.divmod(pairs, int(rank.max()) + 1)
    # One line for each value of each class, by class, then value.
    table = _Occurrences(classes, values, counts, sizes=class_sizes(class_id)[classes], whole=np.bincount(rank))
    ordered = any(check(column.type) for check in _NUMBER_TYPES)
    distances = _ordered_distances(table) if ordered else _equal_distances(table)
    return {
        "l": int(np.bincount(classes).min()),
        "t": float(distances.max(initial=0.0)),
        "distance": "ordered earth mover's" if ordered else "equal (total variation)",
    }


class _Occurrences(NamedTuple):
    """How often each value occurs in each class, in the order of class and value; counts, so that sums are exact."""

    classes: IntArray
    values: IntArray
    counts: IntArray
    sizes: IntArray
    """Size of the class, once for each of its values."""
    whole: IntArray
    """How often each value occurs in the whole table."""


def _equal_distances(table: _Occurrences) -> FloatArray:
    """Total variation between each class and the table: what the class has too much of."""
    whole = table.whole / table.whole.sum()
    excess = np.maximum(table.counts / table.sizes - whole[table.values], 0.0)
    return np.bincount(table.classes, weights=excess).astype(np.float64)


def _ordered_distances(table: _Occurrences) -> FloatArray:
    """Earth mover's distance over ranks: sum over ranks of |F_class - F|, divided by ranks - 1.

    F_class is constant between two values of the class, so each such run is one difference of prefix sums on
    either side of where F crosses that constant.
    """
    num_ranks = len(table.whole)
    if num_ranks == 1:
        return np.zeros(int(table.classes.max()) + 1)
    cumulative = np.cumsum(table.whole)
    prefix = np.concatenate([[0], np.cumsum(cumulative)]) / cumulative[-1]
    first = np.concatenate([[True], np.diff(table.classes) != 0])
    running = np.cumsum(table.counts)
    level = (running - np.maximum.accumulate(np.where(first, running - table.counts, 0))) / table.sizes
    stop = np.where(np.append(first[1:], True), num_ranks, np.append(table.values[1:], 0))
    gap = _absolute_gap(level, table.values, stop, cumulative / cumulative[-1], prefix)
    below = np.where(first, prefix[table.values], 0.0)  # ranks before the class's first value, where F_class is 0
    return np.bincount(table.classes, weights=gap + below) / (num_ranks - 1)


def _absolute_gap(
    level: FloatArray, start: IntArray, stop: IntArray, cumulative: FloatArray, prefix: FloatArray
) -> FloatArray:
    """Sum |level - F(rank)| for ranks from start to before stop."""
    crossing = np.clip(np.searchsorted(cumulative, level), start, stop)
    under = level * (crossing - start) - (prefix[crossing] - prefix[start])
    over = (prefix[stop] - prefix[crossing]) - level * (stop - crossing)
    return under + over
