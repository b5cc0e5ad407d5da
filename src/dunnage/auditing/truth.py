# SPDX-License-Identifier: Apache-2.0
"""The best packing of the true amounts: what a plan would be worth without privacy. Private.

One quantity and one kind of truck go to the scalar kernel, everything else to the one for vectors. Both prove a bound.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins import BinKind, VectorPacking, pack_vectors
from dunnage.exact import exact
from dunnage.planning.packing import packed_group
from dunnage.planning.problem import rows_by_group
from dunnage.planning.trucks import Truck
from dunnage.settle.repair import whole_table

LEAST_SECONDS = 0.05
_KERNEL_BITS = 40

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False, repr=False)
class TruePacking:
    """Rows in bins by their true amounts. Private: its ``repr`` shows none of it."""

    bin_of_row: IntArray  # bin_of_row, truck_of_bin: the bin of each row, and the name of the truck that a bin is
    truck_of_bin: tuple[str, ...]
    cost: Fraction  # What the trucks cost together; of a single kind, their number
    bound: Fraction  # No packing costs less: proved


def cost_of(trucks: Sequence[Truck], used: Mapping[str, int]) -> Fraction:
    """Return what trucks cost together; of a single kind, their number.

    Examples
    --------
    >>> cost_of([Truck(name="van", capacity={}, cost=2.5), Truck(name="lorry", capacity={})], {"van": 2})
    Fraction(5, 1)
    """
    if len(trucks) == 1:
        return Fraction(sum(used.values()))
    return sum((exact(truck.cost, what="cost") * used.get(truck.name, 0) for truck in trucks), Fraction(0))


def pack_truth(
    amounts: FloatArray,  # Each row fits some truck. Shape: rows by quantities
    quantities: Sequence[str],
    trucks: Sequence[Truck],
    group: IntArray,  # Number of the group of each row; groups never share a truck
    *,
    deadline: float,
    progress: Progress | None = None,
) -> TruePacking:
    """Pack true amounts at the least cost that can be found in time, each group of rows apart."""
    if len(trucks) == 1 and len(quantities) == 1:
        bins, bound = _packed_weights(amounts[:, 0], trucks[0].capacity[quantities[0]], group, deadline, progress)
        names = [trucks[0].name] * len(bins)
    else:
        held = np.array([[truck.capacity[quantity] for quantity in quantities] for truck in trucks])
        packing, bound = _packed_vectors(amounts, held, trucks, group, deadline, progress)
        bins, names = (
            [np.array(rows, dtype=np.int64) for rows in packing.bins],
            [trucks[kind].name for kind in packing.kind_of_bin],
        )
    bin_of_row = np.empty(len(amounts), dtype=np.int64)
    for number, rows in enumerate(bins):
        bin_of_row[rows] = number
    return TruePacking(bin_of_row, tuple(names), cost_of(trucks, Counter(names)), bound)


def _packed_weights(
    weights: FloatArray, capacity: float, group: IntArray, deadline: float, progress: Progress | None
) -> tuple[list[IntArray], Fraction]:
    """Pack group after group; time that one leaves over is the next one's."""
    bins: list[IntArray] = []
    bound = 0
    groups = rows_by_group(group)
    for number, rows in enumerate(groups):
        seconds = max(deadline - time.monotonic(), LEAST_SECONDS) / (len(groups) - number)
        found, least = packed_group(weights[rows], capacity, seconds)
        bins += [rows[items] for items in found]
        bound += least
        if progress is not None:
            progress(f"true weights: {number + 1} of {len(groups)} parts packed")
    return bins, Fraction(bound)


def _packed_vectors(
    amounts: FloatArray,
    held: FloatArray,
    trucks: Sequence[Truck],
    group: IntArray,
    deadline: float,
    progress: Progress | None,
) -> tuple[VectorPacking, Fraction]:
    items, rooms, same = _kernel_table(*whole_table(amounts, held)[:2])
    several = len(trucks) > 1
    kinds = [
        BinKind(
            capacity=tuple(room),
            cost=exact(truck.cost, what="cost") if several else 1,
            count=truck.count if several else None,
        )
        for truck, room in zip(trucks, rooms.tolist(), strict=True)
    ]
    if progress is not None:
        progress("packing the true amounts")
    seconds = max(deadline - time.monotonic(), LEAST_SECONDS)
    packing = pack_vectors(items, kinds, seconds=seconds, groups=group)
    return packing, packing.bound if same else Fraction(0)


def _kernel_table(whole: npt.NDArray[Any], rooms: npt.NDArray[Any]) -> tuple[IntArray, IntArray, bool]:
    """Give whole numbers as 64-bit ones: the same, or rounded outward, so that what fits by them fits in truth."""
    if whole.dtype != object:
        return whole, rooms, True
    shift = np.array([max(int(most).bit_length() - _KERNEL_BITS, 0) for most in rooms.max(axis=0)], dtype=object)
    return (-(-whole >> shift)).astype(np.int64), (rooms >> shift).astype(np.int64), not shift.any()
