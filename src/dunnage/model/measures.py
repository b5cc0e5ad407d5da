# SPDX-License-Identifier: Apache-2.0
"""Figures about released classes that everyone can recompute: sizes, risks, l-diversity and t-closeness."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import FloatArray, IntArray
from dunnage.model.certificate import ClassSize, Diversity, Persons, Risks, RowMeasures, Suppressed
from dunnage.model.domains import CodedDomain, Graph, Ordinal, Tree

LOSS_METRIC = "loss metric of Hoogervorst et al. 2019, eq. 7, per record"
DISTORTION_METRIC = "distortion of Bhati et al. 2021, eqs. 14 and 18, per record"
ENTROPIES = ("entropy", "entropy-normalised")  # ways to compute the importance of attributes from the records
DISTANCE_WORDS = {True: "ordered earth mover's", False: "equal (total variation)"}
"""Distance between the values in a class and in the whole table, by whether values have an order."""
LEAST_K = 2
LIMIT_TOLERANCE = 1e-9  # maximum rounding error of a width, diversity or distance that is compared with a limit
_MAX_PAIRS = 2**22
_NUMBER_TYPES = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)


def class_sizes(class_id: IntArray, weights: IntArray | None = None) -> IntArray:
    return np.bincount(class_id, weights).astype(np.int64)  # exact below 2^53


def sort_key(column: pa.Array) -> FloatArray | IntArray:
    """Return numbers that sort like the values of a column; texts sort alphabetically."""
    if pa.types.is_floating(column.type):
        numbers: FloatArray = column.to_numpy(zero_copy_only=False)
        return numbers
    return np.asarray(pc.rank(column, tiebreaker="dense").to_numpy(zero_copy_only=False), dtype=np.int64)


class SizeFigures(TypedDict):
    """Figures of released classes that reveal nothing about other records."""

    records: int
    k_asked: int
    k_reached: int | None
    classes: int
    class_size: ClassSize | None


def size_figures(sizes: IntArray, k: int) -> SizeFigures:
    """Describe classes, if there are any: k requested and reached, their number and sizes."""
    if not len(sizes):
        return SizeFigures(records=0, k_asked=k, k_reached=None, classes=0, class_size=None)
    smallest, released = int(sizes.min()), int(sizes.sum())
    size = ClassSize(smallest=smallest, mean=released / len(sizes), largest=int(sizes.max()))
    return SizeFigures(records=released, k_asked=k, k_reached=smallest, classes=len(sizes), class_size=size)


def size_measures(sizes: IntArray, k: int, num_suppressed: int, fewest_persons: int | None = None) -> RowMeasures:
    """Describe classes in the usual terms: k requested and reached, sizes, suppression, risks."""
    released, mean_risk = int(sizes.sum()), len(sizes) / int(sizes.sum())
    measures = RowMeasures(
        **size_figures(sizes, k),
        suppressed=Suppressed(count=num_suppressed, share=num_suppressed / (released + num_suppressed)),
        risks=Risks(
            prosecutor_highest=1 / int(sizes.min()),
            prosecutor_mean=mean_risk,
            marketer=mean_risk,
            journalist="at most the prosecutor's: no population table was given",
        ),
    )
    if fewest_persons is None:
        return measures
    return measures.model_copy(update={"k_reached": fewest_persons, "persons": Persons(smallest=fewest_persons)})


def sensitive_measures(
    class_id: IntArray, column: pa.Array, times: IntArray | None = None, *, ordered: bool | None = None
) -> Diversity:
    table = _occurrences(class_id, column, times)
    ordered = is_ordered(column) if ordered is None else ordered
    closest = _largest_distance(table, ordered=ordered)
    return Diversity(l=int(np.bincount(table.classes).min()), t=closest, distance=DISTANCE_WORDS[ordered])


def ranked(column: pa.Array, attribute: Mapping[str, Any]) -> pa.Array:
    """Return a column as it is compared: an ordinal by the numbers of its levels, anything else unchanged."""
    domain = attribute.get("domain", {})
    return pc.index_in(column, value_set=pa.array(domain["levels"])) if domain.get("kind") == Ordinal.kind else column


def is_ordered(column: pa.Array) -> bool:
    """Return whether sensitive values are compared by order: numbers are, other values are equal or different."""
    return any(check(column.type) for check in _NUMBER_TYPES)


def closeness(class_id: IntArray, column: pa.Array, *, ordered: bool) -> float:
    """Return t: the largest distance between the values in a class and in the whole table."""
    return _largest_distance(_occurrences(class_id, column), ordered=ordered)


def entropy_diversity(class_id: IntArray, column: pa.Array) -> float:
    """Return the l of entropy l-diversity: e to the smallest entropy of the values in a class."""
    table = _occurrences(class_id, column)
    shares = table.counts / table.sizes
    return float(np.exp(np.bincount(table.classes, weights=-shares * np.log(shares)).min()))


def _largest_distance(table: _Occurrences, *, ordered: bool) -> float:
    if ordered:
        return float(_ordered_distances(table).max(initial=0.0))
    # Total variation between each class and the table: the excess of the class
    whole = table.whole / table.whole.sum()
    excess = np.maximum(table.counts / table.sizes - whole[table.values], 0.0)
    return float(np.bincount(table.classes, weights=excess).max(initial=0.0))


def label_distances(domain: CodedDomain, codes: IntArray) -> FloatArray:
    """Return symmetric distances between labels, by code; in a directed graph the longer of two ways."""
    table = domain.distances_between(codes)
    return np.maximum(table, table.T) if getattr(domain, "directed", False) else table


def set_widths(domain: CodedDomain, codes: IntArray, sizes: IntArray) -> FloatArray:
    """Return the largest distance between two labels of each set; in a directed graph the longer of two ways."""
    # Distances are computed only where they are needed, some at a time: a domain may have many labels.
    if isinstance(domain, Graph):
        # The longest path inside each set: for each vertex, the longest to another vertex of its set.
        widths = np.zeros(len(sizes))
        starts = np.cumsum(sizes) - sizes
        of_set = np.repeat(np.arange(len(sizes)), sizes)
        vertices, by_vertex = np.unique(codes), np.argsort(codes, kind="stable")
        first = 0
        for rows in domain.distances_from(vertices):
            last = first + len(rows)
            places = by_vertex[slice(*np.searchsorted(codes[by_vertex], vertices[[first, last - 1]] + [0, 1]))]
            row_of = np.searchsorted(vertices, codes[places]) - first
            # Runs of about _MAX_PAIRS pairs, with at least one item in each
            cuts = np.flatnonzero(np.diff(np.cumsum(sizes[of_set[places]]) // _MAX_PAIRS)) + 1
            for start, end in itertools.pairwise([0, *cuts.tolist(), len(places)]):
                some = slice(start, end)
                own, num = of_set[places[some]], sizes[of_set[places[some]]]
                begins = np.cumsum(num) - num
                others = codes[np.repeat(starts[own] - begins, num) + np.arange(num.sum())]
                longest = np.maximum.reduceat(rows[np.repeat(row_of[some], num), others], begins)
                np.maximum.at(widths, own, longest)
            first = last
        return widths
    ends = np.cumsum(sizes)
    steps = (codes[ends - 1] - codes[ends - sizes]).astype(np.float64)
    return np.asarray(steps if isinstance(domain, Ordinal) else np.minimum(steps, 1.0))


def width_limit(domain: Any, limit: Fraction | None) -> float:
    """Return the maximum distance in a class; the limit of a tree counts leaves, and the first is free."""
    if limit is None:
        return math.inf
    return max(0.0, float(limit) - 1.0) if isinstance(domain, Tree) else float(limit)


def shares_of(importance: Mapping[str, float]) -> dict[str, float]:
    """Return the weight of each attribute as a share of all (Bhati et al. 2021, eq. 2); equal if all are 0."""
    total = math.fsum(importance.values())
    return {name: value / total if total else 1 / len(importance) for name, value in importance.items()}


class _Occurrences(NamedTuple):
    """How often each value occurs in each class, by class and value; whole counts keep sums exact."""

    classes: IntArray
    values: IntArray
    counts: IntArray
    sizes: IntArray  # Size of the class, once for each of its values
    whole: IntArray  # How often each value occurs in the whole table


def _occurrences(class_id: IntArray, column: pa.Array, times: IntArray | None = None) -> _Occurrences:
    """Count values by class; with ``times``, each line stands for several records."""
    rank = pc.rank(column, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64) - 1
    pairs, inverse = np.unique(class_id * (int(rank.max()) + 1) + rank, return_inverse=True)
    classes, values = np.divmod(pairs, int(rank.max()) + 1)
    counts, sizes = class_sizes(inverse.reshape(-1), times), class_sizes(class_id, times)
    # One line for each value of each class, by class, then value.
    return _Occurrences(classes, values, counts, sizes=sizes[classes], whole=class_sizes(rank, times))


def _ordered_distances(table: _Occurrences) -> FloatArray:
    """Earth mover's distance over ranks: sum over ranks of |F_class - F|, divided by ranks - 1."""
    # F_class is constant between two values of the class, so each such run is one difference of prefix sums on either
    # side of where F crosses that constant.
    num_ranks = len(table.whole)
    if num_ranks == 1:
        return np.zeros(int(table.classes.max()) + 1)
    cumulative = np.cumsum(table.whole)
    prefix = np.concatenate([[0], np.cumsum(cumulative)]) / cumulative[-1]
    first = np.concatenate([[True], np.diff(table.classes) != 0])
    running = np.cumsum(table.counts)
    level = (running - np.maximum.accumulate(np.where(first, running - table.counts, 0))) / table.sizes
    stop = np.where(np.append(first[1:], True), num_ranks, np.append(table.values[1:], 0))
    # Sum |level - F(rank)| for ranks from a value to before the next.
    start = table.values
    crossing = np.clip(np.searchsorted(cumulative / cumulative[-1], level), start, stop)
    under = level * (crossing - start) - (prefix[crossing] - prefix[start])
    gap = under + (prefix[stop] - prefix[crossing]) - level * (stop - crossing)
    below = np.where(first, prefix[table.values], 0.0)  # ranks before the class's first value, where F_class is 0
    return np.bincount(table.classes, weights=gap + below) / (num_ranks - 1)
