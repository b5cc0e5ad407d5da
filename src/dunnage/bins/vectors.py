# SPDX-License-Identifier: Apache-2.0
"""Pack items with several resources, or into bins of several kinds, at least cost."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dunnage.arrays import IntArray
from dunnage.bins.certified import BinKind, ChancePacker, ClassPacking, Progress
from dunnage.bins.chances import Members
from dunnage.bins.scalar import pack_bins
from dunnage.errors import NoPlanError


@dataclass(frozen=True, eq=False, kw_only=True)
class VectorPacking:
    """Items in bins, the kind of each bin, what they cost and what any packing costs at least."""

    bins: list[list[int]]  # For each bin the positions of its items
    kind_of_bin: list[int]  # Kind of each bin
    cost: Fraction  # cost, bound: what the bins cost, and what any packing costs at least
    bound: Fraction
    seconds: float  # Time taken


def pack_vectors(
    items: IntArray,  # One line an item, one column a resource: whole numbers of at least 0
    kinds: Sequence[BinKind],  # The kinds of bin; costs may be fractions
    *,
    seconds: float,
    groups: IntArray | None = None,  # Group of each item; items of different groups never share a bin
    progress: Progress | None = None,  # Called with stage, cost and bound
    seed: int = 0,  # Of the searches
) -> VectorPacking:
    """Pack items into bins of least total cost, as far as that can be found in time.

    Examples
    --------
    >>> small, large = BinKind(capacity=(5,), cost=2), BinKind(capacity=(10,), cost=3)
    >>> packing = pack_vectors(np.array([[5], [5], [4]]), [small, large], seconds=1)
    >>> int(packing.cost), int(packing.bound), sorted(packing.kind_of_bin)
    (5, 5, [0, 1])
    """
    start = time.monotonic()
    items = np.asarray(items, dtype=np.int64)
    apart = np.zeros(len(items), dtype=np.int64) if groups is None else np.asarray(groups, dtype=np.int64)
    unit = math.lcm(*(Fraction(kind.cost).denominator for kind in kinds))
    if (items > np.max([kind.capacity for kind in kinds], axis=0)).any():
        raise NoPlanError("an item is larger than every bin. Give larger bins, or leave such items out.")
    if items.shape[1] == 1 and len(kinds) == 1 and kinds[0].count is None and not apart.any():
        packing = pack_bins(items[:, 0], kinds[0].capacity[0], seconds=seconds, progress=progress, seed=seed)
        bins, kind_of_bin, least = packing.bins, [0] * packing.objective, packing.bound * Fraction(kinds[0].cost)
    else:
        whole = [replace(kind, cost=int(kind.cost * unit)) for kind in kinds]
        found, type_of = _by_types(items, apart, whole, seconds, progress, seed)
        if found is None:
            raise NoPlanError("the items were not packed with the bins there are. Give more or larger ones.")
        bins, kind_of_bin, least = items_of_counts(found, type_of), found.kinds.tolist(), Fraction(found.bound, unit)
    return VectorPacking(
        bins=bins,
        kind_of_bin=kind_of_bin,
        cost=sum((Fraction(kinds[kind].cost) for kind in kind_of_bin), Fraction(0)),
        bound=least,
        seconds=time.monotonic() - start,
    )


def _by_types(
    items: IntArray,
    apart: IntArray,
    kinds: Sequence[BinKind],
    seconds: float,
    progress: Progress | None,
    seed: int,
) -> tuple[ClassPacking | None, IntArray]:
    """Pack items by how many there are of each size, and return the packing and each item's type."""
    table = np.column_stack([apart, items])
    types, type_of, times = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    classes = [Members(np.repeat(line[None, 1:], number, axis=0)) for line, number in zip(types, times, strict=True)]
    packer = ChancePacker(classes, times, kinds, risk=Fraction(0), groups=types[:, 0], seed=seed)
    return packer.solve(seconds=seconds, progress=progress), type_of.reshape(-1)


def items_of_counts(packing: ClassPacking, class_of: IntArray) -> list[list[int]]:
    """Give each bin its items, by how many of each class it takes."""
    order = np.argsort(class_of, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(class_of, minlength=packing.counts.shape[1]))])[:-1]
    bins: list[list[int]] = []
    for line in packing.counts:
        chosen = [order[starts[kind] : starts[kind] + line[kind]] for kind in np.flatnonzero(line).tolist()]
        starts = starts + line
        bins.append(np.concatenate(chosen).tolist() if chosen else [])
    return bins
