# SPDX-License-Identifier: Apache-2.0
"""What a plan's linkage is compared with: exchange two random rows again and again, and keep what is no worse."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def mean_linkage(look: IntArray, bin_of_row: IntArray) -> float:
    """Count the best guesses one by one."""
    most: dict[int, int] = {}
    for (kind, _), times in Counter(zip(look.tolist(), bin_of_row.tolist(), strict=True)).items():
        most[kind] = max(times, most.get(kind, 0))
    return sum(most.values()) / len(look)


def random_exchanges(
    look: IntArray,  # rows that look alike
    group: IntArray,  # rows that may share a bin
    bin_of_row: IntArray,
    fits: Callable[[IntArray, int], bool],  # whether a bin may take some rows
    *,
    steps: int | None = None,  # steps, seconds: of which one is the limit
    seconds: float | None = None,
    seed: int = 0,
) -> float:
    """Return the lowest mean linkage that random exchanges reach; every state fits."""
    draw = np.random.default_rng(seed)
    bins = bin_of_row.copy()
    rows = {bin_: set(np.flatnonzero(bins == bin_).tolist()) for bin_ in np.unique(bins).tolist()}
    held = {kind: Counter(bins[look == kind].tolist()) for kind in np.unique(look).tolist()}
    value = sum(max(counts.values()) for counts in held.values())
    begun, step = time.process_time(), 0
    while step < steps if steps is not None else time.process_time() - begun < (seconds or 0.0):
        step += 1
        one, other = draw.integers(len(look), size=2).tolist()
        here, there = int(bins[one]), int(bins[other])
        if here == there or look[one] == look[other] or group[one] != group[other]:
            continue
        changed = ((int(look[one]), here, there), (int(look[other]), there, here))
        before = sum(max(held[kind].values()) for kind, _, _ in changed)
        for kind, left, to in changed:
            held[kind][left] -= 1
            held[kind][to] += 1
        growth = sum(max(held[kind].values()) for kind, _, _ in changed) - before
        mine, theirs = (rows[here] - {one}) | {other}, (rows[there] - {other}) | {one}
        if growth <= 0 and fits(np.array(sorted(mine)), here) and fits(np.array(sorted(theirs)), there):
            bins[one], bins[other] = there, here
            rows[here], rows[there], value = mine, theirs, value + growth
        else:
            for kind, left, to in changed:
                held[kind][left] += 1
                held[kind][to] -= 1
    return value / len(look)
