# SPDX-License-Identifier: Apache-2.0
"""The budgeted robust model: a bin fits if it does while only some of its rows deviate, as far as they can.

A bin with rows of means mu and deviations d (upper bound less mean) fits under a budget g if the sum of mu and the g
largest d, the last in part, is at most the capacity: that is eqs. 20 and 21 with the inner maximum solved. Rows of a
class are equal to the model, so that it is a cover by patterns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins.covering import Choice, CoverProgram, Listing
from dunnage.errors import ParameterError
from dunnage.planning.models import Robust
from dunnage.planning.problem import PackingProblem

MOST_PATTERNS = 60_000
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class BudgetedPacking:
    """How many rows of each class each bin takes (None: nothing better than was known), and a bound."""

    counts: IntArray | None
    bound: int


def budget_of(model: Robust, num_rows: int, in_bin: int) -> float:
    """Return how many rows of a bin may deviate at once.

    Examples
    --------
    >>> round(budget_of(Robust(budget="published"), 25, 2), 1)
    17.6
    """
    over = num_rows if model.budget == "published" else in_bin
    return math.sqrt(-2 * over * math.log(float(model.risk) / num_rows))


def robust_load(mean: FloatArray, deviation: FloatArray, budget: float) -> float:
    """Return the largest load of a bin under a budget."""
    ordered = -np.sort(-deviation)
    whole = min(len(ordered), int(budget))
    part = (budget - whole) * ordered[whole] if whole < len(ordered) else 0.0
    return float(mean.sum() + ordered[:whole].sum() + part)


def budgeted_packing(
    problem: PackingProblem, model: Robust, *, deadline: float, known_bins: int
) -> BudgetedPacking | None:
    """Pack under the budget; None where it is at least what any bin holds, so that upper bounds are the answer."""
    known = problem.known[0]
    if known.nominal is None:
        raise ParameterError(
            f"the budgeted robust model needs the mean of {known.name}, which the release does not tell. Use the "
            'standard model, or ask the owner for statistic = "mean" or "multiset".'
        )
    first = np.unique(problem.class_id, return_index=True)[1]
    mean = known.nominal[first]
    deviation = known.upper[first] - mean
    capacity = problem.trucks[0].capacity[known.name]
    most = int(capacity // max(float(mean.min()), 1e-12)) if mean.min() > 0 else len(problem.class_id)
    if budget_of(model, len(problem.class_id), max(1, most)) >= most:
        return None
    listing = _listed(problem, model, mean, deviation, capacity)
    if listing is None:
        return BudgetedPacking(None, 0)
    program = CoverProgram(problem.class_sizes, [Choice(listing, 1, problem.trucks[0].count)])
    found = program.solve(deadline=deadline, at_most=known_bins)
    bound = known_bins if found.bound is None else found.bound
    return BudgetedPacking(found.patterns if found.cost is not None else None, bound)


def _listed(
    problem: PackingProblem, model: Robust, mean: FloatArray, deviation: FloatArray, capacity: float
) -> Listing | None:
    """List every pattern that fits, class by class; None if they are too many."""
    num = len(problem.class_id)
    patterns: list[tuple[tuple[int, int], ...]] = []
    stack: list[tuple[int, tuple[tuple[int, int], ...]]] = [(0, ())]
    while stack:
        kind, taken = stack.pop()
        if len(patterns) > MOST_PATTERNS:
            return None
        if kind == len(mean):
            if taken:
                patterns.append(taken)
            continue
        stack.append((kind + 1, taken))
        if taken and problem.group_of_class[taken[0][0]] != problem.group_of_class[kind]:
            continue
        for number in range(1, int(problem.caps[kind]) + 1):
            longer = (*taken, (kind, number))
            rows = np.repeat([one for one, _ in longer], [times for _, times in longer])
            load = robust_load(mean[rows], deviation[rows], budget_of(model, num, len(rows)))
            if load > capacity * (1 + _ROUNDING):
                break
            stack.append((kind + 1, longer))
    lengths = [len(pattern) for pattern in patterns]
    pairs = np.array([pair for pattern in patterns for pair in pattern], dtype=np.int64).reshape(-1, 2)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Listing(starts, pairs[:, 0], pairs[:, 1], np.zeros(len(patterns)), len(mean))
