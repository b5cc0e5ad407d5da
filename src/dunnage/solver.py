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

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Patterns = npt.NDArray[np.int32]

BOUND_MARGIN = 0.01
IMPORT_SECONDS = 0.6
LEAST_SECONDS = 0.01


@dataclass(frozen=True, eq=False)
class Relaxation:
    """An optimal fractional cover.

    Parameters
    ----------
    values
        How often each pattern is used.
    prices
        What covering each row once more would cost: at least 0.
    objective
        Number of patterns used.
    """

    values: FloatArray
    prices: FloatArray
    objective: float


@dataclass(frozen=True, eq=False)
class Cover:
    """A whole-numbered cover and a bound on every other.

    Parameters
    ----------
    values
        How often each pattern is used; None if no cover was found in time.
    bound
        No cover from these patterns has fewer, as far as floating-point branch and bound with a margin can tell.
    """

    values: IntArray | None
    bound: int


def affordable(seconds: float) -> bool:
    """Return whether the solver can be started in this time: the first import alone takes about half a second."""
    return seconds >= (LEAST_SECONDS if "scipy.optimize" in sys.modules else IMPORT_SECONDS)


def relax_cover(patterns: Patterns, demand: IntArray, *, seconds: float) -> Relaxation | None:
    """Solve the fractional cover; None if time is up or the solver fails.

    The dual is what is solved: the prices of greatest total such that no pattern is worth more than one. It has few
    columns and many rows, and the simplex method starts feasible at zero; HiGHS takes a fourth of the time.

    Parameters
    ----------
    patterns
        Table of patterns.
    demand
        How often each row of the cover, a column of the table, must be covered.
    seconds
        Time limit.
    """
    from scipy.optimize import linprog

    limits = {"time_limit": max(seconds, LEAST_SECONDS), "presolve": False}
    ceiling = np.ones(len(patterns))
    result = linprog(-demand.astype(np.float64), A_ub=_sparse(patterns), b_ub=ceiling, method="highs", options=limits)
    if result.status != 0:
        return None
    values = np.maximum(-np.asarray(result.ineqlin.marginals), 0.0)
    return Relaxation(values, np.maximum(np.asarray(result.x), 0.0), -float(result.fun))


def whole_cover(patterns: Patterns, demand: IntArray, *, seconds: float, at_most: int | None = None) -> Cover:
    """Solve the whole-numbered cover.

    Parameters
    ----------
    patterns, demand
        As for :func:`relax_cover`.
    seconds
        Time limit; the best cover found by then is returned.
    at_most
        Look only for a cover of at most so many patterns, and stop at the first; the bound is then 0.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    num = len(patterns)
    rules = [LinearConstraint(_sparse(patterns).T.tocsc(), lb=demand)]
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


def _sparse(patterns: Patterns) -> Any:
    from scipy.sparse import csr_matrix

    return csr_matrix(patterns.astype(np.float64))
