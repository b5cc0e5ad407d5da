# SPDX-License-Identifier: Apache-2.0
"""Search for a plan with a given number of bins whose risk is small: which class goes where, by annealing.

Used where bins hold many items, so that patterns are too many to be listed. The search is guided by means and variances
alone (a sum of many draws is nearly normal), which change by a few additions with each step; whoever uses what it
returns computes the true probabilities. Nothing is proved here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins.chances import Sizes

STEPS_PER_ITEM = 4000
MOST_STEPS = 3_000_000


def mix_classes(
    classes: Sequence[Sizes], caps: IntArray, capacities: IntArray, *, seed: int, steps: int
) -> IntArray | None:
    """Spread the items of classes over bins so that every bin is likely to fit; None if the caps leave no place."""
    sizes = np.array([known.count for known in classes], dtype=np.int64)
    room = np.asarray(capacities, dtype=np.float64)
    unit = np.maximum(room.max(axis=0), 1.0)
    moments = [known.moments() for known in classes]
    mean = np.array([mean / unit for mean, _ in moments])
    spread = np.array([variance / unit**2 for _, variance in moments])
    generator = np.random.default_rng(seed)
    start = _dealt(mean, sizes, caps, room / unit, generator)
    if start is None:
        return None
    found: IntArray = _compiled()(start, mean, spread, sizes, caps, room / unit, steps, generator.integers(2**62))
    return found


def _dealt(mean: FloatArray, sizes: IntArray, caps: IntArray, room: FloatArray, generator: Any) -> IntArray | None:
    """Deal items, largest classes first, each to the bin with most room that may still take one of its class."""
    counts = np.zeros((len(room), len(sizes)), dtype=np.int64)
    if (caps * len(room) < sizes).any():
        return None
    left = room.copy()
    for kind in np.argsort(-mean.max(axis=1), kind="stable").tolist():
        for _ in range(int(sizes[kind])):
            open_ = np.flatnonzero(counts[:, kind] < caps[kind])
            rooms = left[open_].min(axis=1) + generator.random(len(open_)) * 1e-3
            bin_ = int(open_[np.argmax(rooms)])
            counts[bin_, kind] += 1
            left[bin_] -= mean[kind]
    return counts


def _anneal(
    counts: IntArray,
    mean: FloatArray,
    spread: FloatArray,
    sizes: IntArray,
    caps: IntArray,
    room: FloatArray,
    steps: int,
    seed: int,
) -> IntArray:
    """Move and swap items between bins, accepting a worse state now and then. Plain Python that numba compiles.

    The variance of n draws from m without replacement is n (m - n) / m times the class's, so that one item more or less
    changes it by (m - 2 n - 1) / m or -(m - 2 n + 1) / m.
    """
    bins, kinds = counts.shape
    resources = mean.shape[1]
    state = np.uint64(seed) | np.uint64(1)
    root_two = math.sqrt(2.0)
    load, variance, cost = np.zeros((bins, resources)), np.zeros((bins, resources)), np.zeros(bins)
    for b in range(bins):
        for r in range(resources):
            for k in range(kinds):
                load[b, r] += counts[b, k] * mean[k, r]
                variance[b, r] += counts[b, k] * (sizes[k] - counts[b, k]) / sizes[k] * spread[k, r]
            gap = room[b, r] - load[b, r]
            cost[b] += 0.5 * math.erfc(gap / math.sqrt(max(variance[b, r], 1e-12)) / root_two) + max(0.0, -gap) * 20.0
    best, total = counts.copy(), cost.sum()
    least = total
    pair, new_load, new_variance, new_cost = (
        np.zeros(2, np.int64),
        np.zeros((2, resources)),
        np.zeros((2, resources)),
        np.zeros(2),
    )
    draw = np.zeros(5)
    for step in range(steps):
        for i in range(5):  # xorshift
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            draw[i] = (state >> np.uint64(11)) * (1.0 / 9007199254740992.0)
        a, b, give = int(draw[0] * bins), int(draw[1] * bins), int(draw[2] * kinds)
        back = int(draw[3] * (kinds + 1)) - 1  # -1: nothing comes back
        if a == b or give == back or counts[a, give] == 0 or counts[b, give] >= caps[give]:
            continue
        if back >= 0 and (counts[b, back] == 0 or counts[a, back] >= caps[back]):
            continue
        pair[0], pair[1] = a, b
        for i in range(2):
            here, less, more = pair[i], (give, back)[i], (back, give)[i]
            new_cost[i] = 0.0
            for r in range(resources):
                new_load[i, r], new_variance[i, r] = load[here, r], variance[here, r]
                if less >= 0:
                    new_load[i, r] -= mean[less, r]
                    shift = sizes[less] - 2 * counts[here, less] + 1
                    new_variance[i, r] -= shift / sizes[less] * spread[less, r]
                if more >= 0:
                    new_load[i, r] += mean[more, r]
                    shift = sizes[more] - 2 * counts[here, more] - 1
                    new_variance[i, r] += shift / sizes[more] * spread[more, r]
                gap = room[here, r] - new_load[i, r]
                sigma = math.sqrt(max(new_variance[i, r], 1e-12))
                new_cost[i] += 0.5 * math.erfc(gap / sigma / root_two) + max(0.0, -gap) * 20.0
        change = new_cost[0] + new_cost[1] - cost[a] - cost[b]
        heat = 0.1 * (1.0 - step / steps) ** 2 + 1e-7
        if change > 0.0 and change > -heat * math.log(max(1e-12, draw[4])):
            continue
        for i in range(2):
            cost[pair[i]] = new_cost[i]
            load[pair[i]], variance[pair[i]] = new_load[i], new_variance[i]
        counts[a, give] -= 1
        counts[b, give] += 1
        if back >= 0:
            counts[b, back] -= 1
            counts[a, back] += 1
        total += change
        if total < least - 1e-12:
            least = total
            best[:] = counts
    return best


@functools.cache
def _compiled() -> Callable[..., Any]:
    from numba import njit

    return njit(cache=True)(_anneal)
