# SPDX-License-Identifier: Apache-2.0
"""The one interface to linear and integer programming: HiGHS, as part of scipy.

Problems here are covers: the fewest patterns (with repetition) that cover every row as often as its demand. A table of
patterns has one row per pattern and one column per size. scipy is imported at first use, because that takes a while.

What is exact: covers are checked in whole numbers before they are returned. Values, prices and bounds are the solver's
floating-point numbers. Prices need no trust, because any prices bound a packing in whole numbers. A bound is rounded
down by ``BOUND_MARGIN``, far above the solver's tolerances of 1e-6 or less.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray

Patterns = npt.NDArray[np.int32]

BOUND_MARGIN = 0.01
IMPORT_SECONDS = 0.6
MIN_SECONDS = 0.01
_PRICE_CEILING = 1e5
_INFEASIBLE = 2


class Relaxation(NamedTuple):
    values: FloatArray  # how often each pattern is used
    prices: FloatArray  # cost of covering each row once more: at least 0
    objective: float  # number of patterns


class WholeCover(NamedTuple):
    values: IntArray | None  # how often each pattern is used; None if there was no cover in time
    bound: int  # no cover from these patterns has fewer, by floating-point branch and bound with a margin
    impossible: bool = False  # whether there is provably none as requested


def affordable(seconds: float) -> bool:
    """Return whether the solver can start in this time: the first import alone takes about half a second."""
    return seconds >= (MIN_SECONDS if "scipy.optimize" in sys.modules else IMPORT_SECONDS)


def relax_cover(patterns: Patterns, demand: IntArray | FloatArray, *, seconds: float) -> Relaxation | None:
    """Solve the fractional cover; None if time is up or the solver fails."""
    # It solves the dual: the prices with the largest total at which no pattern is worth more than one. The dual has few
    # columns and many rows, and the simplex method starts feasible at zero; HiGHS takes a quarter of the time.
    from scipy.optimize import linprog

    limits = {"time_limit": max(seconds, MIN_SECONDS), "presolve": False}
    ceiling = np.ones(len(patterns))
    result = linprog(-demand.astype(np.float64), A_ub=csr(patterns), b_ub=ceiling, method="highs", options=limits)
    if result.status != 0:
        return None
    values = np.maximum(-np.asarray(result.ineqlin.marginals), 0.0)
    return Relaxation(values, np.maximum(np.asarray(result.x), 0.0), -float(result.fun))


def whole_cover(
    patterns: Patterns, demand: IntArray, *, seconds: float, at_most: int | None = None, exactly: bool = False
) -> WholeCover:
    """Solve the cover, or if ``at_most`` is given find any of so many patterns; ``exactly``: nothing covered twice."""
    from scipy.optimize import LinearConstraint

    rules = [LinearConstraint(csr(patterns).T.tocsc(), lb=demand, ub=demand if exactly else np.inf)]
    if at_most is not None:
        rules.append(LinearConstraint(np.ones((1, len(patterns))), ub=at_most))
    result, bound = _integers(np.full(len(patterns), 1.0 if at_most is None else 0.0), rules, seconds)
    proved = max(0, math.ceil(bound)) if at_most is None else 0
    return WholeCover(_checked(result.x, patterns, demand), proved, result.status == _INFEASIBLE)


class WholeFlow(NamedTuple):
    patterns: Patterns | None  # of each bin, in whole numbers; None if there was no packing in time
    impossible: bool  # whether there is provably none


def whole_flow(
    arcs: npt.NDArray[np.bool_],  # (size, load): whether an item of this size may lie on such a load
    sizes: IntArray,
    demand: IntArray,
    capacity: int,
    num_bins: int,
    *,
    seconds: float,
) -> WholeFlow:
    """Pack items into a number of bins as a flow from the empty bin over loads: nodes are loads, items are arcs."""
    from scipy.optimize import LinearConstraint
    from scipy.sparse import csc_matrix

    kinds, starts = np.nonzero(arcs)
    ends = starts + sizes[kinds]
    loads, nodes = np.unique(np.concatenate([[0], starts, ends]), return_inverse=True)
    if not len(kinds) or int(loads[-1]) > capacity or len(np.unique(kinds)) < len(sizes):
        return WholeFlow(None, True)
    num, last = len(kinds), len(loads) + len(sizes)
    # One line for each load: what leaves it; what ends there is counted by a column of its own.
    lines = np.concatenate([nodes[1 : num + 1], nodes[num + 1 :], len(loads) + kinds, np.arange(1, len(loads))])
    columns = np.concatenate([np.tile(np.arange(num), 3), np.arange(num, num + len(loads) - 1)])
    values = np.concatenate([np.ones(num), -np.ones(num), np.ones(num), np.ones(len(loads) - 1)])
    table = csc_matrix((values, (lines, columns)), shape=(last, num + len(loads) - 1))
    amounts = np.zeros(last)
    amounts[0], amounts[len(loads) :] = num_bins, demand
    result, _ = _integers(np.zeros(table.shape[1]), [LinearConstraint(table, lb=amounts, ub=amounts)], seconds)
    if result.x is None:
        return WholeFlow(None, result.status == _INFEASIBLE)
    # Follow the arcs from the empty bin; a packing is returned only if whole numbers confirm it.
    left = np.rint(result.x[:num]).astype(np.int64)
    leaving: dict[int, list[int]] = {}
    for arc in np.flatnonzero(left).tolist():
        leaving.setdefault(int(starts[arc]), []).extend([arc] * int(left[arc]))
    patterns = np.zeros((num_bins, len(sizes)), dtype=np.int32)
    for pattern in patterns:
        load = 0
        while leaving.get(load):
            arc = leaving[load].pop()
            pattern[kinds[arc]] += 1
            load = int(ends[arc])
    fits = (patterns @ sizes <= capacity).all() and (patterns.sum(axis=0) >= demand).all()
    return WholeFlow(patterns if fits else None, False)


def _integers(
    cost: FloatArray, rules: list[Any], seconds: float, whole: Any = 1, most: Any = np.inf
) -> tuple[Any, float]:
    """Solve an integer program; also return a bound that the solver's tolerances cannot make too high."""
    from scipy.optimize import Bounds, milp

    # A relative gap would stop short of the optimum when there are many bins.
    options = {"time_limit": max(seconds, MIN_SECONDS), "mip_rel_gap": 0.0}
    result = milp(
        cost, constraints=rules, integrality=whole * np.ones(len(cost)), bounds=Bounds(0, most), options=options
    )
    dual = result.get("mip_dual_bound")
    return result, (dual if dual is not None and math.isfinite(dual) else 0.0) - BOUND_MARGIN


def _checked(values: FloatArray | None, patterns: Any, demand: IntArray) -> IntArray | None:
    """Round to whole numbers, and keep them only if they cover the demand exactly."""
    if values is None:
        return None
    whole = np.maximum(np.rint(values), 0.0).astype(np.int64)
    return whole if bool((patterns.T.astype(np.int64) @ whole >= demand).all()) else None


def csr(patterns: Patterns | IntArray) -> Any:
    from scipy.sparse import csr_matrix

    return csr_matrix(patterns.astype(np.float64))


class CoverTable(NamedTuple):
    """A covering program: how often to use each pattern so that every class is covered, within limits and a budget."""

    patterns: Any  # sparse matrix, one line per pattern
    demand: IntArray  # items of each class
    cost: FloatArray  # of each pattern
    kinds: IntArray  # kind of bin of each pattern
    limits: dict[int, int]  # how many bins there are of the limited kinds
    use: FloatArray | None = None  # share of the budget of each pattern
    budget: float = math.inf

    @property
    def scale(self) -> float:
        """Factor for shares of the budget, so that the solver gets numbers near 1."""
        return 1.0 / self.budget if self.use is not None and self.budget > 0 else 1.0


class Prices(NamedTuple):
    """Prices of a covering program; if nothing covers, they stop at a ceiling, and the objective is very large."""

    cover: FloatArray
    budget: float
    limits: dict[int, float]
    objective: float


def solve_prices(table: CoverTable, *, seconds: float) -> Prices | None:
    """Solve the dual of the fractional covering program; None if time is up or the solver fails."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, hstack

    columns, gains = [table.patterns], [table.demand.astype(np.float64)]
    if table.use is not None:
        columns.append(csr_matrix(-table.use.reshape(-1, 1) * table.scale))
        gains.append(np.array([-table.budget * table.scale]))
    for kind, most in table.limits.items():
        columns.append(csr_matrix(-(table.kinds == kind).astype(np.float64).reshape(-1, 1)))
        gains.append(np.array([-float(most)]))
    # A ceiling on the prices keeps the program bounded if the present patterns cannot cover.
    ceiling = _PRICE_CEILING * float(table.cost.max())
    result = linprog(
        -np.concatenate(gains),
        A_ub=hstack(columns, format="csr") if len(columns) > 1 else table.patterns,
        b_ub=table.cost,
        bounds=(0, ceiling),
        method="highs",
        options={"time_limit": max(seconds, MIN_SECONDS), "presolve": False},
    )
    if result.status != 0:
        return None
    prices = np.maximum(np.asarray(result.x), 0.0)
    num = len(table.demand)
    at_limits = num + (table.use is not None)
    return Prices(
        cover=prices[:num],
        budget=float(prices[num] * table.scale) if table.use is not None else 0.0,
        limits={kind: float(prices[at_limits + i]) for i, kind in enumerate(table.limits)},
        objective=-float(result.fun),
    )


class Need(NamedTuple):
    """What the bins of a group must reach together: so much of something that each kind of bin has."""

    each: FloatArray  # of a bin of each kind
    total: FloatArray  # for each group


class LeastBins(NamedTuple):
    bins: IntArray | None  # (group, kind): how many bins; None without a solution
    bound: float


def least_bins(
    needs: list[Need], costs: FloatArray, counts: list[int | None], floors: FloatArray | None, *, seconds: float
) -> LeastBins:
    """Choose bins of each kind for each group that meet its needs at the least cost, at least the floors."""
    from scipy.optimize import LinearConstraint
    from scipy.sparse import csr_matrix

    groups, kinds = len(needs[0].total), len(costs)
    if floors is not None:
        needs = [*needs, Need(costs, floors)]
    # Every line is divided by its largest number, so that the solver's tolerances mean the same for all.
    lines = [(need.each, need.total, max(float(need.each.max()), 1e-9)) for need in needs if need.total.any()]
    table = csr_matrix(np.kron(np.eye(groups), np.array([each / scale for each, _, scale in lines])))
    rules = [LinearConstraint(table, lb=np.array([total / scale for _, total, scale in lines]).T.reshape(-1))]
    limits = np.array([np.inf if count is None else count for count in counts], dtype=np.float64)
    if np.isfinite(limits).any():
        rules.append(LinearConstraint(np.tile(np.eye(kinds), groups), ub=limits))
    result, bound = _integers(np.tile(costs, groups), rules, seconds)
    return LeastBins(None if result.x is None else np.rint(result.x).astype(np.int64).reshape(groups, kinds), bound)


def spread_bins(
    sizes: FloatArray,  # of an item of each class, one column per resource
    demand: IntArray,  # items of each class
    caps: IntArray,  # largest number of items of each class in a bin
    rooms: FloatArray,  # of each kind of bin, one column per resource
    costs: FloatArray,
    counts: list[int | None],
    *,
    seconds: float,
) -> LeastBins:
    """Choose bins of each kind for classes that are spread: a bin takes no more of a class than its cap, nor of all."""
    from scipy.optimize import LinearConstraint
    from scipy.sparse import coo_matrix

    num, (kinds, resources) = len(demand), rooms.shape
    # Columns: bins of each kind, then (class, kind): how many go there, in fractions, because bins of a kind share them
    every, class_of, kind_of = np.arange(num * kinds), np.repeat(np.arange(num), kinds), np.tile(np.arange(kinds), num)
    unit = np.maximum(rooms.max(axis=0), 1e-9)
    lines, columns, values = [class_of, num + every, num + every], [kinds + every, kinds + every, kind_of], []
    values += [np.ones(num * kinds), np.ones(num * kinds), -np.asarray(caps, dtype=np.float64)[class_of]]
    for resource in range(resources):
        first = num * (kinds + 1) + resource * kinds
        lines += [first + kind_of, first + np.arange(kinds)]
        columns += [kinds + every, np.arange(kinds)]
        values += [sizes[class_of, resource] / unit[resource], -rooms[:, resource] / unit[resource]]
    height, width = num * (kinds + 1) + resources * kinds, kinds + num * kinds
    table = coo_matrix(
        (np.concatenate(values), (np.concatenate(lines), np.concatenate(columns))), (height, width)
    ).tocsc()
    upper, lower = np.zeros(height), np.full(height, -np.inf)
    upper[:num] = lower[:num] = demand
    fits = (sizes[:, None, :] <= rooms[None]).all(axis=2).reshape(-1)
    most = [*(np.inf if count is None else count for count in counts), *np.where(fits, np.inf, 0.0)]
    cost, whole = np.append(costs, np.zeros(num * kinds)), np.append(np.ones(kinds), np.zeros(num * kinds))
    result, bound = _integers(cost, [LinearConstraint(table, lb=lower, ub=upper)], seconds, whole, np.array(most))
    return LeastBins(None if result.x is None else np.rint(result.x[:kinds]).astype(np.int64)[None], bound)


class ProgramAnswer(NamedTuple):
    values: IntArray | None  # how often each pattern is used; None: no solution yet
    bound: float
    impossible: bool  # whether there is provably no solution


def solve_program(table: CoverTable, *, at_most: float | None, seconds: float) -> ProgramAnswer:
    from scipy.optimize import LinearConstraint
    from scipy.sparse import csr_matrix

    cost, use = table.cost, table.use
    rules = [LinearConstraint(table.patterns.T.tocsc(), lb=table.demand)]
    if use is not None:
        rules.append(LinearConstraint(csr_matrix(use.reshape(1, -1) * table.scale), ub=table.budget * table.scale))
    for kind, most in table.limits.items():
        rules.append(LinearConstraint(csr_matrix((table.kinds == kind).astype(np.float64)), ub=most))
    if at_most is not None:
        rules.append(LinearConstraint(csr_matrix(cost.reshape(1, -1)), ub=at_most))
    result, bound = _integers(cost, rules, seconds)
    # Check the solution in whole numbers, and the budget by an exact sum.
    values = _checked(result.x, table.patterns, table.demand)
    if values is not None and (
        any(int(values[table.kinds == kind].sum()) > most for kind, most in table.limits.items())
        or (use is not None and math.fsum((use * values).tolist()) > table.budget)
    ):
        values = None
    return ProgramAnswer(values, bound, result.status == _INFEASIBLE)
