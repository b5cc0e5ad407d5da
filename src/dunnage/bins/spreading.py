# SPDX-License-Identifier: Apache-2.0
"""Spread the items of each class over the bins of a packing, without using more bins.

A packing says nothing about which class goes where. Moving and swapping items between bins with room lowers the largest
share of a class in one bin, which is what an onlooker's best guess rests on. A plain descent: nothing is proved, and
every state on the way fits.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dunnage.arrays import IntArray

MOST_CELLS = 20_000_000
_STEPS = 200_000
_EXCESS = 1e6


def spread_items(
    sizes: IntArray,  # Of each item, one column a resource
    class_of: IntArray,
    group_of: IntArray,
    bin_of: IntArray,
    room: IntArray,  # What each bin holds. Shape: (bins, resources). A bin may be empty
    *,
    caps: IntArray,  # Most items of each class that a bin should take; reached if the descent finds a way
    seconds: float,  # seconds, seed: time limit and seed
    seed: int = 0,
) -> IntArray:
    """Return bins of items with each class spread wider, every bin still fitting."""
    num_classes, num_bins = int(class_of.max()) + 1, len(room)
    if num_classes * num_bins > MOST_CELLS or num_bins < 2 or seconds <= 0:
        return bin_of
    deadline = time.monotonic() + seconds
    group_of_bin = np.full(num_bins, -1, dtype=np.int64)
    group_of_bin[bin_of] = group_of
    best, value = bin_of.copy(), _value(class_of, bin_of, caps, num_bins)
    state = np.random.default_rng(seed).integers(2**62)
    now = bin_of.copy()
    idle = 0
    while idle < 3 and time.monotonic() < deadline:
        state = _compiled()(sizes, class_of, group_of, now, room, caps, group_of_bin, _STEPS, state)
        own = _value(class_of, now, caps, num_bins)
        idle = 0 if own < value else idle + 1
        if own < value:
            best, value = now.copy(), own
    return best


def _value(class_of: IntArray, bin_of: IntArray, caps: IntArray, num_bins: int) -> tuple[int, int]:
    """Return items above the caps, and the sum over classes of the most items in one bin."""
    counts = np.zeros((len(caps), num_bins), dtype=np.int64)
    np.add.at(counts, (class_of, bin_of), 1)
    return int(np.maximum(counts - caps[:, None], 0).sum()), int(counts.max(axis=1).sum())


def over_caps(class_of: IntArray, bin_of: IntArray, caps: IntArray, num_bins: int) -> int:
    """Return how many items are above the caps."""
    return _value(class_of, bin_of, caps, num_bins)[0]


def _descend(
    sizes: IntArray,
    class_of: IntArray,
    group_of: IntArray,
    bin_of: IntArray,
    room: IntArray,
    caps: IntArray,
    group_of_bin: IntArray,
    steps: int,
    state: int,
) -> int:
    """Try random moves and swaps, keeping those that spread. Plain Python that numba compiles; changes ``bin_of``."""
    n, resources, bins = len(class_of), sizes.shape[1], len(room)
    load = np.zeros((bins, resources), dtype=np.int64)
    counts = np.zeros((len(caps), bins), dtype=np.int64)
    total = np.zeros(len(caps), dtype=np.int64)
    held = np.zeros(bins, dtype=np.int64)
    for i in range(n):
        counts[class_of[i], bin_of[i]] += 1
        total[class_of[i]] += 1
        held[bin_of[i]] += 1
        for r in range(resources):
            load[bin_of[i], r] += sizes[i, r]
    word = np.uint64(state) | np.uint64(1)
    for _ in range(steps):
        word ^= word << np.uint64(13)
        word ^= word >> np.uint64(7)
        word ^= word << np.uint64(17)
        i = int(np.int64(word % np.uint64(n)))
        word ^= word << np.uint64(13)
        word ^= word >> np.uint64(7)
        word ^= word << np.uint64(17)
        alone = (word & np.uint64(3)) == np.uint64(0)
        j = int(np.int64((word >> np.uint64(8)) % np.uint64(n)))
        b = int(bin_of[i])
        t = int(bin_of[j])
        if alone:
            t = int(np.int64((word >> np.uint64(8)) % np.uint64(bins)))
        if t == b or (group_of_bin[t] >= 0 and group_of_bin[t] != group_of[i]) or (alone and held[b] == 1):
            continue
        c = class_of[i]
        d = class_of[j]
        if c == d and not alone:
            continue
        fits = True
        for r in range(resources):
            back = 0 if alone else sizes[j, r]
            if load[t, r] + sizes[i, r] - back > room[t, r] or load[b, r] - sizes[i, r] + back > room[b, r]:
                fits = False
                break
        if not fits:
            continue
        change = 2.0 * (counts[c, t] - counts[c, b] + 1) / total[c]
        change += _EXCESS * ((counts[c, t] >= caps[c]) * 1.0 - (counts[c, b] > caps[c]) * 1.0)
        if not alone:
            change += 2.0 * (counts[d, b] - counts[d, t] + 1) / total[d]
            change += _EXCESS * ((counts[d, b] >= caps[d]) * 1.0 - (counts[d, t] > caps[d]) * 1.0)
        if change > 0.0:
            continue
        for r in range(resources):
            back = 0 if alone else sizes[j, r]
            load[t, r] += sizes[i, r] - back
            load[b, r] += back - sizes[i, r]
        counts[c, b] -= 1
        counts[c, t] += 1
        bin_of[i] = t
        if alone:
            held[b] -= 1
            held[t] += 1
            group_of_bin[t] = group_of[i]
        else:
            counts[d, t] -= 1
            counts[d, b] += 1
            bin_of[j] = b
    return int(word >> np.uint64(2))


@functools.cache
def _compiled() -> Callable[..., Any]:
    from numba import njit

    return njit(cache=True)(_descend)
