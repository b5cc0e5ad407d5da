# SPDX-License-Identifier: Apache-2.0
"""How tests of laws judge draws: chi-square, with cells large enough that a p-value of 1e-9 is as rare as it says."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

ENOUGH = 25.0
"""Draws to be expected in each cell: where one or five are expected, a p-value below 1e-9 comes in one of 10,000 runs
or of a million."""


def enough_in_each(observed: ArrayLike, expected: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Add up neighbouring cells until enough draws are expected in each."""
    number, so_far = [0], 0.0
    for share in np.asarray(expected, dtype=float):
        so_far += share
        number.append(number[-1] + (so_far >= ENOUGH))
        so_far = 0.0 if so_far >= ENOUGH else so_far
    groups = np.minimum(number[:-1], max(number[-1] - 1, 0))  # what is left over at the end joins the last
    return np.bincount(groups, observed), np.bincount(groups, expected)


def chance_of(observed: ArrayLike, expected: ArrayLike) -> float:
    """Return the p-value of draws of which so many are expected in each cell; rare cells should be neighbours."""
    counts, wanted = enough_in_each(observed, expected)
    if len(counts) == 1:
        return 1.0
    return float(stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue)
