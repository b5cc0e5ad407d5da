# SPDX-License-Identifier: Apache-2.0
"""Hard instances of bin packing, made again from how the published ones are described.

References
----------
Caprara, Dell'Amico, Diaz-Diaz, Iori, Rizzi 2015 (fifteen items whose fractional cover takes three bins and no packing
does); Delorme, Iori, Martello 2016 (such items and triplets that fill a bin); Schoenfield 2002 (Hard28).
"""

from __future__ import annotations

import numpy as np

NEAR_LOADS = 16

Instance = tuple[list[int], int]

_OUTER = [(i, (i + 1) % 5) for i in range(5)]
PETERSEN = [*_OUTER, *((i, i + 5) for i in range(5)), *((i + 5, (i + 2) % 5 + 5) for i in range(5))]


def _sums(items: np.ndarray, capacity: int) -> np.ndarray:
    """Return which loads up to the capacity items can have."""
    reached = 1
    for size in items.tolist():
        reached |= reached << size
    return np.array([reached >> load & 1 for load in range(capacity + 1)], dtype=np.bool_)


def _core(generator: np.random.Generator) -> tuple[np.ndarray, int]:
    """Return fifteen items for the edges of Petersen's graph: matchings fill a bin, and no three bins take all."""
    while True:
        corners = generator.integers(1, 80, 10)
        items, capacity = np.array([corners[list(edge)].sum() for edge in PETERSEN]), int(corners.sum())
        sums = np.zeros(1, dtype=np.int64)
        for item in items.tolist():  # of all subsets, by their bits
            sums = np.concatenate([sums, sums + item])
        full = np.flatnonzero(sums == capacity)
        # Three bins take all if a full one with the first item and one without it are disjoint: the rest fills a third.
        if (full[full % 2 == 1, None] & full[None, full % 2 == 0]).all():
            return items, capacity


def no_round_up(num_triplets: int, largest: int, seed: int, *, split: bool = False) -> Instance:
    """Return items that fill three bins more than there are triplets, and take one more; ``split``: they just fit."""
    # A triplet (a, b, c) fills a bin, and nothing without b completes a. So a and b share a bin of a packing without
    # waste, and exchanging the rest of it for c gives one with the triplet: the core would have to fit as well.
    generator = np.random.default_rng(seed)
    items, capacity = _core(generator)
    if split:
        part = int(generator.integers(1, items[0]))
        items = np.concatenate([[part, items[0] - part], items[1:]])
    while len(items) < 3 * num_triplets + 15 + split:
        free = np.flatnonzero(~_sums(items, capacity // 2))[::-1]  # loads that nothing there is can have, largest first
        if len(free) > 1:
            first, second = np.sort(generator.choice(min(len(free), NEAR_LOADS), 2, replace=False)).tolist()
            items = np.append(items, [capacity - free[first], free[second], free[first] - free[second]])
        elif 2 * capacity > largest:
            return no_round_up(num_triplets, largest, seed + 1000, split=split)
        else:
            items, capacity = 2 * items, 2 * capacity
    return sorted(items.tolist(), reverse=True), capacity


def nearly_full(seed: int) -> Instance:
    """Return 160 to 200 items of up to 600 to 800 for bins of 1000, with a total just below a whole number of bins."""
    generator = np.random.default_rng(seed)
    while True:
        num, most = int(generator.choice([160, 180, 200])), int(generator.integers(600, 800))
        items = np.sort(generator.integers(1, most + 1, num))[::-1]
        if -int(items.sum()) % 1000 <= 20:
            return items.tolist(), 1000
