# SPDX-License-Identifier: Apache-2.0
"""First fit for very many types of items: a packing of 100,000 in a tenth of a second, as a list and not as a table.

Types come group by group, largest first. As many items of a type as fit go into the first of the last open bins, then
into the next, then into new ones. The cheapest of some orders and preferences of kinds is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dunnage.arrays import IntArray, kernel
from dunnage.kernels.deadline import Deadline

MAX_TYPES = 5000
MAX_COUNTS = 5_000_000
"""Types times bins: above this, a table of how many items of a type are in a bin takes too much time and memory."""
OPEN_BINS = 100
MAX_PREFERENCES = 24


class TypePacking(NamedTuple):
    types: IntArray  # types, bins, numbers: so many items of a type are in a bin
    bins: IntArray
    numbers: IntArray
    kinds: IntArray  # kind of each bin

    def cost(self, costs: Sequence[int]) -> int:
        return sum(costs[kind] for kind in self.kinds.tolist())

    @classmethod
    def together(cls, packings: Sequence[TypePacking], types: Sequence[IntArray]) -> TypePacking:
        """Join packings of different types; each comes with the numbers of its types in the whole."""
        ends = np.cumsum([0, *(len(packing.kinds) for packing in packings)])
        return cls(
            np.concatenate([own[packing.types] for packing, own in zip(packings, types, strict=True)]),
            np.concatenate([packing.bins + end for packing, end in zip(packings, ends[:-1], strict=True)]),
            np.concatenate([packing.numbers for packing in packings]),
            np.concatenate([packing.kinds for packing in packings]),
        )

    def bin_of_item(self, type_of: IntArray) -> IntArray:
        """Return the bin of each item, if ``type_of`` is the type of each."""
        order = np.argsort(type_of, kind="stable")
        places = np.argsort(self.types, kind="stable")
        bins = np.empty(len(type_of), dtype=np.int64)
        bins[order] = np.repeat(self.bins[places], self.numbers[places])
        return bins


def too_many_types(sizes: IntArray, numbers: IntArray, capacities: IntArray) -> bool:
    """Return whether a table of types and bins would be too large."""
    if len(sizes) > MAX_TYPES:
        return True
    loads = (sizes * numbers[:, None]).sum(axis=0, dtype=np.float64)
    return len(sizes) * float((loads / np.maximum(capacities.max(axis=0), 1)).max()) > MAX_COUNTS


def fit_types(
    sizes: IntArray,  # of each type, one column per resource
    numbers: IntArray,  # items of each type
    caps: IntArray,  # largest number of items of each type in a bin
    groups: IntArray,  # types of different groups never share a bin
    capacities: IntArray,  # of each kind of bin, one column per resource
    costs: Sequence[int],
    counts: Sequence[int | None],  # number of bins of each kind; None: any number
    *,
    deadline: Deadline,  # for other orders; the first is always tried
    bound: int = 0,  # of the cost: stop if it is reached
) -> TypePacking | None:
    """Return the cheapest of some packings; None if the bins are not enough for any."""
    unit = np.maximum(capacities.max(axis=0), 1)
    shares, rooms = sizes / unit, (capacities / unit).mean(axis=1)
    # Orders of types and of kinds: first by the largest share of a bin, and by the least cost for its room
    weights = [shares.max(axis=1)]
    if shares.shape[1] > 1:
        weights += [shares.sum(axis=1), *shares.T]
    first = np.argsort(np.array(costs) / np.maximum(rooms, 1e-9), kind="stable").tolist()
    preferences = itertools.islice(itertools.permutations(first), MAX_PREFERENCES)
    best, least, most = None, math.inf, int(numbers.sum())
    for preferred, weight in itertools.product(preferences, weights):
        if best is not None and (deadline.late or least <= bound):
            break
        left = np.array([most if count is None else count for count in counts], dtype=np.int64)
        lines, kinds = np.empty((most, 3), dtype=np.int64), np.empty(most, dtype=np.int64)
        given = (np.ascontiguousarray(sizes), numbers, caps, groups, np.lexsort((-weight, groups)))
        room = np.empty((most, sizes.shape[1]), dtype=np.int64)
        num_lines, num_bins = _first_fit(given, capacities, np.array(preferred), left, lines, kinds, room)
        if num_bins < 0:
            continue
        types, bins, into = lines[:num_lines].T.copy()
        cheaper = kinds[:num_bins].tolist()
        if len(costs) > 1:
            use_cheaper_kinds(cheaper, capacities[cheaper] - room[:num_bins], capacities, costs, counts)
        packing = TypePacking(types, bins, into, np.array(cheaper, dtype=np.int64))
        if packing.cost(costs) < least:
            best, least = packing, packing.cost(costs)
    return best


@kernel
def _first_fit(
    given: tuple[IntArray, IntArray, IntArray, IntArray, IntArray],
    capacities: IntArray,
    preferred: IntArray,
    left: IntArray,
    lines: IntArray,
    kinds: IntArray,
    rooms: IntArray,
) -> tuple[int, int]:
    """Write the lines, and kinds and rooms of bins; return the number of lines and of bins, -1 if no bin is left."""
    sizes, numbers, caps, groups, order = given
    resources, num_lines, num_bins, begin = sizes.shape[1], 0, 0, 0
    for at in range(len(order)):
        type_ = order[at]
        if at > 0 and groups[type_] != groups[order[at - 1]]:
            begin = num_bins
        rest = numbers[type_]
        bin_ = max(begin, num_bins - OPEN_BINS)
        while rest > 0:
            if bin_ == num_bins:
                kind = -1
                for other in preferred:
                    able = left[other] > 0
                    for r in range(resources):
                        able = able and sizes[type_, r] <= capacities[other, r]
                    if able:
                        kind = other
                        break
                if kind < 0:
                    return num_lines, -1
                left[kind] -= 1
                kinds[num_bins] = kind
                rooms[num_bins] = capacities[kind]
                num_bins += 1
            into = min(rest, max(caps[type_], 1))
            for r in range(resources):
                if sizes[type_, r] > 0:
                    into = min(into, rooms[bin_, r] // sizes[type_, r])
            if into > 0:
                for r in range(resources):
                    rooms[bin_, r] -= into * sizes[type_, r]
                lines[num_lines, 0], lines[num_lines, 1], lines[num_lines, 2] = type_, bin_, into
                num_lines += 1
                rest -= into
            bin_ += 1
    return num_lines, num_bins


def use_cheaper_kinds(
    kinds: list[int], loads: IntArray, capacities: IntArray, costs: Sequence[int], counts: Sequence[int | None]
) -> None:
    """Exchange each bin, in place, for the cheapest kind that still takes its load."""
    fits: list[list[bool]] = np.all(loads[:, None] <= capacities[None], axis=2).tolist()
    used = np.bincount(np.array(kinds, dtype=np.int64), minlength=len(costs)).tolist()
    left = [math.inf if count is None else count - times for count, times in zip(counts, used, strict=True)]
    by_cost = sorted(range(len(costs)), key=costs.__getitem__)
    for bin_, kind in enumerate(kinds):
        for other in by_cost:
            if costs[other] >= costs[kind]:
                break
            if left[other] > 0 and fits[bin_][other]:
                left[other] -= 1
                left[kind] += 1
                kinds[bin_] = other
                break
