# SPDX-License-Identifier: Apache-2.0
"""Groups of rows packed apart, one quantity into one kind of truck, with a bound that holds in truth."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins import l2_bound, pack_bins, whole_numbers

Telling = Callable[[str, int, int], None]


def pack_apart(
    weights: FloatArray, capacity: float, groups: list[IntArray], deadline: float, progress: Telling | None
) -> tuple[IntArray, int]:
    """Pack each group of rows apart; time that one leaves over is the next one's."""
    bin_of_row = np.empty(len(weights), dtype=np.int64)
    num_bins = bound = 0
    for number, rows in enumerate(groups):
        left = max(deadline - time.monotonic(), 0.05) / (len(groups) - number)
        packing = packed_group(weights[rows], capacity, left, progress if len(groups) == 1 else None)
        for items in packing[0]:
            bin_of_row[rows[items]] = num_bins
            num_bins += 1
        bound += packing[1]
        if progress is not None and len(groups) > 1:
            progress(f"part {number + 1} of {len(groups)}", num_bins, bound)
    return bin_of_row, bound


def packed_group(
    weights: FloatArray, capacity: float, seconds: float, progress: Telling | None = None
) -> tuple[list[list[int]], int]:
    """Pack weights that may share a truck: the rows of each bin, and how many bins are needed at least."""
    start = time.monotonic()
    numbers = whole_numbers(weights, capacity)
    packing = pack_bins(numbers.items, numbers.capacity, seconds=seconds, progress=progress)
    if numbers.below is None:
        return packing.bins, packing.bound
    # Packed on numbers rounded outward: only a bound on numbers rounded inward holds in truth.
    items, room = numbers.below
    bound = max(l2_bound(items, room), 1)
    left = seconds - (time.monotonic() - start)
    if bound < len(packing.bins) and left > 0:
        bound = max(bound, pack_bins(items, room, seconds=left).bound)
    return packing.bins, bound
