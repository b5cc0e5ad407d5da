# SPDX-License-Identifier: Apache-2.0
"""Counts in a tree: the estimate of least squares in closed form, and pruning.

References
----------
Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms through consistency", VLDB
2010, here for nodes of any number of children and levels of any variance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import FloatArray, IntArray


def consistent_tree(
    noisy: Sequence[FloatArray], parents: Sequence[IntArray], variances: Sequence[float], *, prune: bool
) -> list[FloatArray]:
    """Estimate all counts of a tree so that each is the sum of those below it."""
    estimates, spreads = _upwards(noisy, parents, variances)
    alive = _alive(estimates, parents) if prune else [np.ones(len(level), dtype=bool) for level in estimates]
    final = [np.where(alive[0], estimates[0], 0.0)]
    for level, parent in enumerate(parents, start=1):
        final.append(_downwards(final[-1], estimates[level], spreads[level], alive[level], parent))
    return final


def _upwards(
    noisy: Sequence[FloatArray], parents: Sequence[IntArray], variances: Sequence[float]
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Estimate each node from itself and all below it: the mean of both, weighted by their precision."""
    estimates = [np.asarray(noisy[-1], dtype=np.float64)]
    spreads = [np.full(len(noisy[-1]), variances[-1])]
    for level in range(len(noisy) - 2, -1, -1):
        num, parent = len(noisy[level]), parents[level]
        below = np.bincount(parent, weights=estimates[0], minlength=num)
        below_spread = np.bincount(parent, weights=spreads[0], minlength=num)
        own, other = 1 / variances[level], 1 / below_spread
        estimates.insert(0, (own * noisy[level] + other * below) / (own + other))
        spreads.insert(0, 1 / (own + other))
    return estimates, spreads


def _alive(estimates: Sequence[FloatArray], parents: Sequence[IntArray]) -> list[NDArray[np.bool_]]:
    alive = [estimates[0] > 0]
    for level, parent in enumerate(parents, start=1):
        alive.append((estimates[level] > 0) & alive[-1][parent])
    return alive


def _downwards(
    above: FloatArray, estimates: FloatArray, spreads: FloatArray, alive: NDArray[np.bool_], parent: IntArray
) -> FloatArray:
    """Share what a node has more than its living children among them, by their variance."""
    shares, kept = np.where(alive, spreads, 0.0), np.where(alive, estimates, 0.0)
    room = np.bincount(parent, weights=shares, minlength=len(above))
    missing = above - np.bincount(parent, weights=kept, minlength=len(above))
    with np.errstate(divide="ignore", invalid="ignore"):
        per_spread = np.where(room > 0, missing / room, 0.0)
    found: FloatArray = kept + shares * per_spread[parent]
    return found
