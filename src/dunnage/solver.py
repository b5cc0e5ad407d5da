# SPDX-License-Identifier: Apache-2.0
"""The one seam to linear and integer programming: HiGHS, as scipy carries it.

Problems here are covers: the fewest patterns (with repetition) such that every row is covered as often as asked. A
table of patterns has one row a pattern and one column a size. scipy is imported on first use, for it takes a while.

What is exact and what is not: covers are checked in whole numbers before they are returned. Values, prices and bounds
are the solver's floating-point word. Prices need no trust, for whoever uses them can bound any packing by them in
whole numbers; a bound is rounded down by ``BOUND_MARGIN``, far above the solver's tolerances of 1e-6 or less.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray

Patterns = npt.NDArray[np.int32]

BOUND_MARGIN = 0.01
IMPORT_SECONDS = 0.6
LEAST_SECONDS = 0.01
_PRICE_CEILING = 1e5
_INFEASIBLE = 2


@dataclass(frozen=True, eq=False)
class Relaxation:
    """An optimal fractional cover."""

    values: FloatArray  # How often each pattern is used
    prices: FloatArray  # What covering each row once more would cost: at least 0
    objective: float  # Number of patterns used


@dataclass(frozen=True, eq=False)
class Cover:
    """A whole-numbered cover and a bound on every other."""

    values: IntArray | None  # How often each pattern is used; None if no cover was found in time
    # No cover from these patterns has fewer, as far as floating-point branch and bound with a margin can tell
    bound: int


def affordable(seconds: float) -> bool:
    """Return whether the solver can be started in this time: the first import alone takes about half a second."""
    return seconds >= (LEAST_SECONDS if "scipy.optimize" in sys.modules else IMPORT_SECONDS)


def relax_cover(patterns: Patterns, demand: IntArray, *, seconds: float) -> Relaxation | None:
    """Solve the fractional cover; None if time is up or the solver fails.

    The dual is what is solved: the prices of greatest total such that no pattern is worth more than one. It has few
    columns and many rows, and the simplex method starts feasible at zero; HiGHS takes a fourth of the time.
    """
    from scipy.optimize import linprog

    limits = {"time_limit": max(seconds, LEAST_SECONDS), "presolve": False}
    ceiling = np.ones(len(patterns))
    result = linprog(-demand.astype(np.float64), A_ub=csr(patterns), b_ub=ceiling, method="highs", options=limits)
    if result.status != 0:
        return None
    values = np.maximum(-np.asarray(result.ineqlin.marginals), 0.0)
    return Relaxation(values, np.maximum(np.asarray(result.x), 0.0), -float(result.fun))


def whole_cover(patterns: Patterns, demand: IntArray, *, seconds: float, at_most: int | None = None) -> Cover:
    from scipy.optimize import Bounds, LinearConstraint, milp

    num = len(patterns)
    rules = [LinearConstraint(csr(patterns).T.tocsc(), lb=demand)]
    if at_most is not None:
        rules.append(LinearConstraint(np.ones((1, num)), ub=at_most))
    cost = np.full(num, 1.0 if at_most is None else 0.0)
    # A relative gap would stop short of the optimum when there are many bins.
    options = {"time_limit": max(seconds, LEAST_SECONDS), "mip_rel_gap": 0.0}
    result = milp(cost, constraints=rules, integrality=np.ones(num), bounds=Bounds(0, np.inf), options=options)
    dual = result.get("mip_dual_bound")
    known = at_most is None and dual is not None and math.isfinite(dual)
    return Cover(_checked(result.x, patterns, demand), max(0, math.ceil(dual - BOUND_MARGIN)) if known else 0)


def _checked(values: FloatArray | None, patterns: Patterns, demand: IntArray) -> IntArray | None:
    """Round to whole numbers, and keep them only if they cover the demand exactly."""
    if values is None:
        return None
    whole = np.maximum(np.rint(values), 0.0).astype(np.int64)
    return whole if bool((whole @ patterns.astype(np.int64) >= demand).all()) else None


def csr(patterns: Patterns | IntArray) -> Any:
    from scipy.sparse import csr_matrix

    return csr_matrix(patterns.astype(np.float64))


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices of a covering program: of each class, of the budget, and of each limited kind of bin.

    Where nothing covers, prices could grow for ever; they stop at a ceiling, and the objective is then very large.
    """

    cover: FloatArray
    budget: float
    limits: dict[int, float]
    objective: float


def solve_prices(
    patterns: Any,  # Sparse matrix, one line a pattern
    demand: IntArray,  # demand, cost: items of each class, and the cost of each pattern
    cost: FloatArray,
    *,
    kinds: IntArray,  # kinds, limits: kind of bin of each pattern, and how many bins there are of the limited kinds
    limits: dict[int, int],
    use: FloatArray | None,  # use, budget: share of the budget that each pattern takes, and the budget
    budget: float,
    seconds: float,
) -> Prices | None:
    """Solve the dual of the fractional covering program; None if time is up or the solver fails."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, hstack

    extra = []
    gains = [demand.astype(np.float64)]
    scale = 1.0 / budget if use is not None and budget > 0 else 1.0
    if use is not None:
        extra.append(csr_matrix(-use.reshape(-1, 1) * scale))
        gains.append(np.array([-budget * scale]))
    for kind, most in limits.items():
        extra.append(csr_matrix(-(kinds == kind).astype(np.float64).reshape(-1, 1)))
        gains.append(np.array([-float(most)]))
    table = hstack([patterns, *extra], format="csr") if extra else patterns
    # A ceiling on the prices keeps the program bounded where the patterns at hand cannot cover.
    ceiling = _PRICE_CEILING * float(cost.max())
    options = {"time_limit": max(seconds, LEAST_SECONDS), "presolve": False}
    result = linprog(
        -np.concatenate(gains), A_ub=table, b_ub=cost, bounds=(0, ceiling), method="highs", options=options
    )
    if result.status != 0:
        return None
    found = np.maximum(np.asarray(result.x), 0.0)
    num = len(demand)
    at_budget = num + (use is not None)
    return Prices(
        cover=found[:num],
        budget=float(found[num] * scale) if use is not None else 0.0,
        limits={kind: float(found[at_budget + i]) for i, kind in enumerate(limits)},
        objective=-float(result.fun),
    )


@dataclass(frozen=True, eq=False)
class ProgramAnswer:
    """How often each pattern is used (None: nothing found), a bound, and whether there is provably nothing."""

    values: IntArray | None
    bound: float
    impossible: bool


def solve_program(
    patterns: Any,
    demand: IntArray,
    cost: FloatArray,
    *,
    kinds: IntArray,
    limits: dict[int, int],
    use: FloatArray | None,
    budget: float,
    at_most: float | None,  # Largest cost of interest
    seconds: float,
) -> ProgramAnswer:
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix

    rules = [LinearConstraint(patterns.T.tocsc(), lb=demand)]
    if use is not None:
        scale = 1.0 / budget if budget > 0 else 1.0
        rules.append(LinearConstraint(csr_matrix(use.reshape(1, -1) * scale), ub=budget * scale))
    rules += [
        LinearConstraint(csr_matrix((kinds == kind).astype(np.float64)), ub=most) for kind, most in limits.items()
    ]
    if at_most is not None:
        rules.append(LinearConstraint(csr_matrix(cost.reshape(1, -1)), ub=at_most))
    options = {"time_limit": max(seconds, LEAST_SECONDS), "mip_rel_gap": 0.0}
    ends = Bounds(0, np.inf)
    result = milp(cost, constraints=rules, integrality=np.ones(len(cost)), bounds=ends, options=options)
    bound = result.get("mip_dual_bound")
    known = bound if bound is not None and math.isfinite(bound) else 0.0
    values = None if result.x is None else np.maximum(np.rint(result.x), 0.0).astype(np.int64)
    if values is not None and not _allowed(values, patterns, demand, kinds, limits, use, budget):
        values = None
    return ProgramAnswer(values, known - BOUND_MARGIN, result.status == _INFEASIBLE)


def _allowed(
    values: IntArray,
    patterns: Any,
    demand: IntArray,
    kinds: IntArray,
    limits: dict[int, int],
    use: FloatArray | None,
    budget: float,
) -> bool:
    """Check a solution in whole numbers, and the budget by an exact sum."""
    covers = bool((patterns.T @ values >= demand).all())
    within = all(int(values[kinds == kind].sum()) <= most for kind, most in limits.items())
    spent = 0.0 if use is None else math.fsum((use * values).tolist())
    return covers and within and spent <= budget
