# SPDX-License-Identifier: Apache-2.0
"""The projection of tables of noisy counts that are held whole.

Of the many cells only those are sorted that may come out positive; see :mod:`dunnage.counting.projection`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray
from dunnage.counting.projection import (
    Candidates,
    Family,
    Projection,
    block_of_groups,
    check_lengths,
    problem_of,
    project_problem,
    settle,
)
from dunnage.errors import ParameterError

STRETCH = 2**15  # values that stay in the cache between two passes
BINS = 2_048  # bins of the histogram that the first list of candidates is taken from
SPARE = 5  # cells listed at first, for each one that looks active; and again that many times more where that is short


def sort_candidates(values: IntArray, starts: IntArray, floors: FloatArray | None = None) -> Candidates:
    """Return the cells above the floors, sorted downwards inside each join group."""
    values = _whole(values)[0]
    return _sorted(values, starts, np.full(len(starts) - 1, -np.inf) if floors is None else floors)


def _sorted(values: IntArray, starts: IntArray, floors: FloatArray, above: IntArray | None = None) -> Candidates:
    """List cells above floors; the numbers of those of each join group may be given."""
    from dunnage.counting.projection_kernels import list_above

    none = np.zeros(0, dtype=np.int64)
    fresh, before = np.ones(len(floors), dtype=np.bool_), (np.zeros(0), none, np.zeros(len(starts), dtype=np.int64))
    kept, cells, begins = list_above(values, starts, floors, fresh, none if above is None else above, before)
    return Candidates(values=kept, starts=begins, floors=floors, cells=cells)


def _whole(values: npt.NDArray[Any]) -> tuple[IntArray, int, int]:
    """Return values as 64-bit whole numbers, the least and the largest; above 2^53 they would not be exact later on."""
    if values.dtype.kind in "iu":
        parts = [values[first : first + STRETCH] for first in range(0, len(values), STRETCH)]  # each is read but once
        low, top = (
            min((int(part.min()) for part in parts), default=0),
            max((int(part.max()) for part in parts), default=0),
        )
        if max(top, -low) <= 2**53:
            return np.ascontiguousarray(values, dtype=np.int64), low, top
    raise ParameterError(f"Values must be whole numbers up to 2^53. Got {values.dtype}.")


def project_dense(
    values: IntArray, starts: IntArray, family: Family, sums: Sequence[FloatArray], *, tolerance: float = 1e-10
) -> Projection:
    """Return the projection of a table that is held whole; ``x`` holds the counts of all its cells, in their order."""
    found = project_table(values, starts, family, sums, tolerance=tolerance)
    x = np.zeros(len(values))
    x[found.cells] = found.x
    return replace(found, x=x, cells=None)


def project_table(
    values: IntArray, starts: IntArray, family: Family, sums: Sequence[FloatArray], *, tolerance: float = 1e-10
) -> Projection:
    """Return the projection of a table that is held whole; ``x`` holds its positive counts, ``cells`` where they are.

    Only cells that may come out positive are sorted: first those above a level that a histogram tells, then, in join
    groups where that was too high, more.
    """
    from dunnage.counting.projection_kernels import levels, positive

    values, *extent = _whole(values)
    duals, ladder, above = _first_levels(values, extent, starts, family, sums)
    candidates, plan = _sorted(values, starts, ladder[0], above), family.plan
    check_lengths(candidates, family, sums)
    unknowns, rungs, iterations = plan.start(duals), iter(ladder[1:]), 0
    while True:
        problem = problem_of(plan, candidates, sums)
        settle(plan, problem, unknowns)
        theta = levels(plan.leaves, unknowns)[0]
        if plan.inner_chains is None or not np.any(-theta < candidates.floors):  # else blocks by themselves need more
            found = project_problem(candidates, family, sums, problem, unknowns, tolerance)
            iterations += found.iterations
            if not found.needed.any():
                cells, x = positive(found.x, candidates.cells, candidates.starts, found.counts)
                return replace(found, x=x, cells=cells, iterations=iterations)
            unknowns, theta = plan.start(found.duals), found.theta
        candidates = _longer(values, starts, candidates, theta, next(rungs, None))


def _longer(
    values: IntArray, starts: IntArray, candidates: Candidates, theta: FloatArray, lowest: FloatArray | None
) -> Candidates:
    """List more cells of the join groups that need them, but none below the lowest floor that is given.

    Where few cells are listed, theta is too high: that floor keeps it from having nearly all of them listed.
    """
    from dunnage.counting.projection_kernels import list_above

    needed = -theta < candidates.floors
    # Twice as far down as was missing: a group that is short time and again is listed whole before long.
    down = -2.0 * theta - candidates.floors - 1.0
    if lowest is not None:
        down = np.minimum(np.maximum(down, lowest), candidates.floors - 1.0)
    floors, before = np.where(needed, down, candidates.floors), (candidates.values, candidates.cells, candidates.starts)
    kept, cells, begins = list_above(values, starts, floors, needed, np.zeros(0, dtype=np.int64), before)
    return Candidates(values=kept, starts=begins, floors=floors, cells=cells)


def _first_levels(
    values: IntArray, extent: Sequence[int], starts: IntArray, family: Family, sums: Sequence[FloatArray]
) -> tuple[tuple[FloatArray, ...], list[FloatArray], IntArray]:
    """Guess multipliers and ever lower floors: in each block the level above which values add up to the noisy sum.

    The last part is the number of cells of each join group above its first floor.
    """
    from dunnage.counting.projection_kernels import first_levels

    blocks, coarsest = family.plan.blocks, family.plan.coarsest
    duals = [np.zeros(size) for size in family.sizes]
    if not len(values):
        return tuple(duals), [np.full(len(family), -np.inf)], np.zeros(len(family), dtype=np.int64)
    above = block_of_groups(family, blocks, coarsest)
    wanted = np.zeros(int(blocks.max()) + 1)
    np.add.at(wanted, above, sums[coarsest])
    low, top = extent
    high = min(top, max(-low, low + BINS))  # noise is symmetric: higher values are few, and only add to the sum
    bins = (low, high, ((high - low) // BINS).bit_length())
    levels, floors, above_floor = first_levels(values, starts, blocks, bins, wanted, SPARE)
    duals[coarsest] = -levels[above]
    return tuple(duals), list(floors[:, blocks]), above_floor
