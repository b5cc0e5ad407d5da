# SPDX-License-Identifier: Apache-2.0
"""The projection where cells are too many to hold: empty cells are listed only as far as they can come out positive.

Nothing is listed that the exact projection over all cells would not need, and what is listed has the law of drawing
the noise of every cell (:mod:`dunnage.counting.tails`). Which cells to list next is decided from noisy values alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.counting.projection import Candidates, Family, Projection, project
from dunnage.counting.tails import Tail, draw_tail, lower
from dunnage.errors import ParameterError
from dunnage.noise import Noise

FIRST_LISTED = 200_000
MOST_LISTED = 100_000_000
_FACTOR = 16.0


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Listed:
    """Cells that may come out positive, join group by join group, with their counts."""

    groups: IntArray  # Join group of each, rising
    occupied: IntArray  # Which of the occupied cells it is; -1 for an empty one, whose place is still open
    counts: FloatArray  # Its count before rounding
    residual: float  # How exact the projection is


def project_lazily(
    noise: Noise,  # noise, scale: where noise comes from, and its scale
    scale: Fraction,
    *,
    sizes: IntArray,  # Cells of each join group
    groups: IntArray,  # groups, values: join group and noisy value of each occupied cell
    values: IntArray,
    family: Family,  # family, sums: coarse features, and their noisy sums
    sums: Sequence[FloatArray],
) -> Listed:
    """Draw the noise of empty cells as far as it matters, and project."""
    empty = sizes - np.bincount(groups, minlength=len(sizes))
    first = max(1, math.ceil(float(scale) * math.log(max(1.0, float(empty.sum()) / FIRST_LISTED / 2))))
    tail, start = draw_tail(noise, scale, empty, np.full(len(sizes), first)), None
    while True:
        candidates, occupied = _candidates(groups, values, tail)
        found = project(candidates, family, sums, start=start)
        if not found.needed.any():
            return _listed(candidates, occupied, found)
        tail, start = lower(noise, tail, _lowered(tail, found, float(scale))), found.duals


def _lowered(tail: Tail, found: Projection, scale: float) -> IntArray:
    """List down to where the projection stands, but no more than some times as many cells at once."""
    step = np.floor(tail.thresholds - max(1.0, scale * math.log(_FACTOR)))
    wanted = np.where(found.needed, np.maximum(np.floor(-found.theta) - 1, step), tail.thresholds).astype(np.int64)
    reach = np.where(wanted >= 1, np.exp(-np.maximum(wanted, 1) / scale), 1.0)
    if float((tail.sizes * reach)[found.needed].sum()) > MOST_LISTED:
        raise ParameterError(
            f"over {MOST_LISTED:,} cells would have to be listed: at this epsilon noise drowns the counts of so many "
            "trip types. Raise epsilon, or use longer windows or fewer stops."
        )
    return wanted


def _candidates(groups: IntArray, values: IntArray, tail: Tail) -> tuple[Candidates, IntArray]:
    """Sort occupied cells and listed empty ones; those below the threshold of their group are left out."""
    kept = np.flatnonzero(values >= tail.thresholds[groups])
    owners = np.concatenate((groups[kept], tail.groups))
    numbers = np.concatenate((values[kept], tail.values))
    occupied = np.concatenate((kept, np.full(len(tail.groups), -1)))
    order = np.lexsort((-numbers, owners))
    starts = np.searchsorted(owners[order], np.arange(len(tail.sizes) + 1))
    return (
        Candidates(
            values=numbers[order].astype(np.float64), starts=starts, floors=(tail.thresholds - 1).astype(np.float64)
        ),
        occupied[order],
    )


def _listed(candidates: Candidates, occupied: IntArray, found: Projection) -> Listed:
    groups = np.repeat(np.arange(len(found.theta)), np.diff(candidates.starts))
    alive = found.x > 0
    return Listed(groups=groups[alive], occupied=occupied[alive], counts=found.x[alive], residual=found.residual)
