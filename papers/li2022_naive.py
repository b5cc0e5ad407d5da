# SPDX-License-Identifier: Apache-2.0
"""The wrong bound on how likely a plan on noisy weights fits: as if noise were independent of the plan.

``docs/proofs/plan-risk.md`` says why it is wrong. It is here to be shown failing beside the bounds that hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dunnage.arrays import IntArray
from dunnage.errors import ParameterError
from dunnage.exact import exact
from dunnage.kernels.bins.scalar import pack_bins, whole_numbers
from dunnage.model.laws import LaplaceLaw
from dunnage.planning.noisy import cells_of, convolved
from dunnage.planning.problem import PackingProblem
from dunnage.release import Release


def naive_chance(
    release: Release, *, capacity: float | str, bin_of_row: IntArray, quantity: str | None = None
) -> float:
    """Return how likely a plan would fit if noise were independent of the plan. It is not: **this bound is wrong**.

    It takes the sum of the true weights in a bin for that of the noisy ones less fresh noise, where the domain does not
    rule out an overload anyway. The plan was chosen after the noise was seen, so that bins are made of rows that noise
    made small. It is here to be shown failing.
    """
    problem = PackingProblem.of(
        release, capacity=capacity, trucks=None, by=None, apart=None, quantity=quantity, spread=None
    )
    known, room = problem.known[0], exact(problem.trucks[0].capacity[problem.known[0].name])
    cells = cells_of(release, known.name)
    resolution, steps = cells.domain.resolution, cells.steps(np.asarray(known.nominal))
    assert resolution is not None
    laws = [cell.law for cell in cells.cells]
    scales = [float(law.scale) if isinstance(law, LaplaceLaw) else math.nan for law in laws]
    if any(map(math.isnan, scales)):
        raise ParameterError("the naive bound is for Laplace noise. Use another release.")
    of_cell, chance = cells.index(steps), 1.0
    for bin_ in range(int(bin_of_row.max()) + 1):
        rows = np.flatnonzero(bin_of_row == bin_)
        held = math.floor((room - len(rows) * cells.domain.lower) / resolution)
        if sum(cells.cells[cell].end for cell in of_cell[rows].tolist()) > held:
            spare = held - int(steps[rows].sum())
            chance *= _noise_at_most(spare, [scales[cell] for cell in of_cell[rows].tolist()])
    return chance


def _noise_at_most(most: int, scales: Sequence[float]) -> float:
    """Return how likely independent discrete Laplace numbers add up to at most a number."""
    reach = math.ceil(40 * max(scales)) + 1
    points = np.abs(np.arange(-reach, reach + 1))
    total, width = np.ones(1), len(points)
    for scale in scales:
        law = np.exp(-points / scale)
        total = convolved(total, law / law.sum(), len(total) + width)
    total = total[: len(scales) * (width - 1) + 1]
    return float(total[: max(0, most + len(scales) * reach + 1)].sum())


def naive_packing(
    release: Release, *, capacity: float | str, risk: Fraction, seconds: float = 1.0
) -> tuple[IntArray, float]:
    """Pack so that :func:`naive_chance` is at least 1 - risk, which is a wrong promise: it is here to be shown failing.

    Noisy weights and a buffer that is equal for all rows are packed; the smallest buffer that seems to do is taken.
    """
    problem = PackingProblem.of(
        release, capacity=capacity, trucks=None, by=None, apart=None, quantity=None, spread=None
    )
    known = problem.known[0]
    cells, room = cells_of(release, known.name), problem.trucks[0].capacity[known.name]
    best: tuple[IntArray, float] | None = None
    low, high = -1, cells.domain.num_steps
    while high - low > 1:
        middle = (low + high) // 2
        steps = np.minimum(cells.steps(np.asarray(known.nominal)) + middle, cells.domain.num_steps)
        numbers = whole_numbers(np.minimum(cells.domain.grid_values(steps), room), room)
        packing = pack_bins(numbers.items, numbers.capacity, seconds=seconds)
        bins = np.empty(len(release), dtype=np.int64)
        for number, rows in enumerate(packing.bins):
            bins[rows] = number
        chance = naive_chance(release, capacity=capacity, bin_of_row=bins)
        likely = chance >= 1 - risk
        low, high = (low, middle) if likely else (middle, high)
        best = (bins, chance) if likely and (best is None or bins.max() < best[0].max()) else best
    alone = np.arange(len(release))
    return best or (alone, naive_chance(release, capacity=capacity, bin_of_row=alone))
