# SPDX-License-Identifier: Apache-2.0
"""The robust and the stochastic model as they were published.

Budgeted: a bin fits if it does while only some of its rows deviate, as far as they can. A bin with rows of means mu and
deviations d (upper bound less mean) fits under a budget g if the sum of mu and the g largest d, the last in part, is at
most the capacity: that is eqs. 20 and 21 with the inner maximum solved. Rows of a class are equal to the model, so that
it is a cover by patterns.

Sampled: every bin fits in all but a share of some sampled permutations inside classes. Its items carry labels, although
rows of a class are exchangeable, so a solver is free to choose the labels that this one sample likes: the plan fits the
sample and, on permutations it was not made with, less often than it should (it overfits). It is here to show that;
plans to be relied on come from the exact probabilities of :class:`dunnage.Stochastic`.

References
----------
Hoogervorst et al. 2019, section 5.1, eqs. 12-16, and section 5.2, eqs. 17-21.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import NoPlanError, ParameterError
from dunnage.exact import Exact, exact
from dunnage.kernels.bins import pack_bins, whole_numbers
from dunnage.kernels.bins.chances import within_class_permutations
from dunnage.kernels.bins.covering import CoverProgram, KindPatterns, PatternList
from dunnage.planning.models import Robust
from dunnage.planning.problem import PackingProblem

# The budgeted robust model


MAX_PATTERNS = 60_000
_ROUNDING = 1e-9


class BudgetedPacking(NamedTuple):
    counts: IntArray | None  # how many rows of each class each bin takes; None: nothing better than was known
    bound: int


def budget_of(model: Robust, num_rows: int, in_bin: int) -> float:
    """Return how many rows of a bin may deviate at once."""
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
    # List every pattern that fits, class by class.
    num = len(problem.class_id)
    patterns: list[tuple[tuple[int, int], ...]] = []
    stack: list[tuple[int, tuple[tuple[int, int], ...]]] = [(0, ())]
    while stack:
        kind, taken = stack.pop()
        if len(patterns) > MAX_PATTERNS:
            return BudgetedPacking(None, 0)
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
    pairs = np.array([pair for pattern in patterns for pair in pattern], dtype=np.int64).reshape(-1, 2)
    starts = np.concatenate([[0], np.cumsum([len(pattern) for pattern in patterns])]).astype(np.int64)
    listing = PatternList(starts, pairs[:, 0], pairs[:, 1], np.zeros(len(patterns)), len(mean))
    program = CoverProgram(problem.class_sizes, [KindPatterns(listing, 1, problem.trucks[0].count)])
    cover = program.solve(deadline=deadline, at_most=known_bins)
    bound = known_bins if cover.bound is None else cover.bound
    return BudgetedPacking(cover.patterns if cover.cost is not None else None, bound)


# The sampled stochastic model


Progress = Callable[[str], None]

_BOUND_MARGIN = 0.01  # as everywhere: far above the tolerances of solvers
_START_SHARE = 0.1  # of the time, for the plan to start with, and again for a bound
_MIN_SECONDS = 0.01  # no solver takes 0 for a limit
_TERMS_A_SECOND = 300_000  # how fast eq. 13 can be written down


@dataclass(frozen=True, eq=False)
class _Sample:
    """Eqs. 12-16 in whole numbers."""

    weights: IntArray  # Weight of each row (second axis) in each scenario (first)
    capacity: int  # What a bin holds
    misses: int  # In how many scenarios a bin may overflow
    least: int  # A bound from the weights alone
    start: IntArray  # Bin of each row in a plan that fits in every scenario

    @property
    def num_rows(self) -> int:
        return int(self.weights.shape[1])

    def fits(self, bin_of_row: IntArray) -> bool:
        """Return whether a plan fits in enough scenarios."""
        loads = np.zeros((len(self.weights), int(bin_of_row.max()) + 1), dtype=np.int64)
        for row, number in enumerate(bin_of_row.tolist()):
            loads[:, number] += self.weights[:, row]
        return int((loads > self.capacity).any(axis=1).sum()) <= self.misses

    def apart(self) -> list[tuple[int, int]]:
        """Return the pairs of rows that overfill a bin by themselves in more scenarios than may be missed."""
        pairs = [(i, j) for j in range(self.num_rows) for i in range(j)]
        first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        over = (self.weights[:, first] + self.weights[:, second] > self.capacity).sum(axis=0) > self.misses
        return [pairs[number] for number in np.flatnonzero(over).tolist()]


def sampled_assignment(
    members_by_class: Sequence[FloatArray],  # The released values of each class
    class_of_row: IntArray,  # Position in `members_by_class` of each row's class; a class has as many rows as values
    capacity: float,  # What a bin holds
    *,
    risk: Exact,  # Share of the sampled permutations for which some bin may overflow
    num_scenarios: int = 100,  # How many permutations are sampled
    seconds: float,
    seed: int,  # For the sample and the solver
    progress: Progress | None = None,  # Called with a line whenever the plan improves
) -> tuple[IntArray, int]:
    """Pack rows so that all bins fit in all but a share ``risk`` of sampled permutations inside classes.

    Solved with OR-Tools CP-SAT (one worker) if it is installed, else with HiGHS. The search starts with the packing of
    the largest values of the classes, so there is always a plan; the best one found in time is returned. The model has
    a term for each scenario and pair of rows: where these cannot even be written down in time, nothing is searched.
    """
    deadline = time.monotonic() + seconds
    sample = _draw(members_by_class, class_of_row, capacity, risk, num_scenarios, seconds, seed)
    num_terms = len(sample.weights) * sample.num_rows * (sample.num_rows + 1) // 2
    if sample.start.max() < sample.least or num_terms > (deadline - time.monotonic()) * _TERMS_A_SECOND:
        return sample.start, sample.least
    solve = _solve_cp_sat if importlib.util.find_spec("ortools") else _solve_highs
    bins, bound = solve(sample, deadline, seed, progress)
    better = bins is not None and bins.max() < sample.start.max() and sample.fits(bins)
    return bins if bins is not None and better else sample.start, max(bound, sample.least)


def _draw(
    members_by_class: Sequence[FloatArray],
    class_of_row: IntArray,
    capacity: float,
    risk: Exact,
    num_scenarios: int,
    seconds: float,
    seed: int,
) -> _Sample:
    # Rows of a class are exchangeable: which value a row starts with does not matter.
    values = np.empty(len(class_of_row))
    values[np.argsort(class_of_row, kind="stable")] = np.concatenate(members_by_class)
    if values.max() > capacity:
        raise NoPlanError(f"a released value is larger than a bin of {capacity:g}. Use larger bins.")
    numbers = whole_numbers(values, capacity)
    largest = np.zeros(len(members_by_class), dtype=np.int64)
    np.maximum.at(largest, class_of_row, numbers.items)
    packed = pack_bins(largest[class_of_row], numbers.capacity, seconds=seconds * _START_SHARE, seed=seed)
    start = np.empty(len(values), dtype=np.int64)
    for number, rows in enumerate(packed.bins):
        start[rows] = number
    weights = numbers.items[within_class_permutations(class_of_row, num_scenarios, seed)]
    # Read as a decimal: 0.29 of 100 scenarios are 29 of them.
    misses = math.floor(exact(risk, what="risk") * num_scenarios)
    # Some scenario must fit, and every scenario has the same weights. What is rounded outward bounds nothing.
    below = numbers.below or (numbers.items, numbers.capacity)
    least = pack_bins(*below, seconds=seconds * _START_SHARE, seed=seed).bound
    return _Sample(weights, numbers.capacity, misses, max(least, 1), start)


def _pairs(sample: _Sample) -> list[tuple[int, int]]:
    """Return the pairs (bin, row) that a plan may use: a bin is named after its first row, so no bin has two names."""
    return [(first, row) for row in range(sample.num_rows) for first in range(row + 1)]


def _solve_cp_sat(
    sample: _Sample, deadline: float, seed: int, progress: Progress | None
) -> tuple[IntArray | None, int]:
    cp_model: Any = importlib.import_module("ortools.sat.python.cp_model")
    model = cp_model.CpModel()
    inside = {pair: model.new_bool_var("") for pair in _pairs(sample)}
    missed = [model.new_bool_var("") for _ in sample.weights]
    used = [inside[row, row] for row in range(sample.num_rows)]
    model.minimize(sum(used))  # eq. 12
    for first in range(sample.num_rows):
        members = [inside[first, row] for row in range(first, sample.num_rows)]
        for scenario, miss in zip(sample.weights[:, first:].tolist(), missed, strict=True):  # eq. 13
            excess = max(sum(scenario) - sample.capacity, 0)
            load = sum(weight * member for weight, member in zip(scenario, members, strict=True))
            model.add(load - excess * miss <= sample.capacity * members[0])
        for member in members[1:]:
            model.add_implication(member, members[0])
    for row in range(sample.num_rows):
        model.add_exactly_one(inside[first, row] for first in range(row + 1))  # eq. 14
    model.add(sum(missed) <= sample.misses)  # eq. 15
    model.add(sum(used) >= sample.least)
    for one, other in sample.apart():
        for first in range(one + 1):
            model.add_at_most_one(inside[first, one], inside[first, other])
    _, first_rows, bin_of_row = np.unique(sample.start, return_index=True, return_inverse=True)
    start = first_rows[bin_of_row]  # the first row of each row's bin
    for (first, row), variable in inside.items():
        model.add_hint(variable, bool(start[row] == first))
    for variable in missed:
        model.add_hint(variable, False)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(deadline - time.monotonic(), _MIN_SECONDS)
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed % 2**31

    class Teller(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]  # known at run time only
        def on_solution_callback(self) -> None:
            if progress is not None:
                progress(f"{self.objective_value:.0f} bins, at least {self.best_objective_bound:.0f} needed")

    status = solver.solve(model, Teller() if progress is not None else None)
    bound = math.ceil(solver.best_objective_bound - _BOUND_MARGIN)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, max(bound, 0)
    first_of_row = [next(i for i in range(row + 1) if solver.value(inside[i, row])) for row in range(sample.num_rows)]
    return np.unique(first_of_row, return_inverse=True)[1].reshape(-1), max(bound, 0)


def _solve_highs(sample: _Sample, deadline: float, seed: int, progress: Progress | None) -> tuple[IntArray | None, int]:
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix

    pairs = _pairs(sample)
    number_of = {pair: number for number, pair in enumerate(pairs)}
    rows, num = range(sample.num_rows), len(pairs) + len(sample.weights)

    def sparse(lines: list[dict[int, float]]) -> Any:
        values = [value for line in lines for value in line.values()]
        columns = [column for line in lines for column in line]
        return csr_matrix((values, columns, np.cumsum([0, *map(len, lines)])), shape=(len(lines), num))

    loads: list[dict[int, float]] = []
    for first in rows:
        for miss, scenario in enumerate(sample.weights[:, first:].tolist()):  # eq. 13
            line = {number_of[first, first + place]: float(weight) for place, weight in enumerate(scenario)}
            line[number_of[first, first]] -= sample.capacity
            line[len(pairs) + miss] = -float(max(sum(scenario) - sample.capacity, 0))
            loads.append(line)
    loads += [{number_of[i, j]: 1.0, number_of[i, i]: -1.0} for i, j in pairs if i < j]
    once = [{number_of[first, row]: 1.0 for first in range(row + 1)} for row in rows]
    missed = {len(pairs) + miss: 1.0 for miss in range(len(sample.weights))}
    apart = [
        {number_of[first, one]: 1.0, number_of[first, other]: 1.0}
        for one, other in sample.apart()
        for first in range(one + 1)
    ]
    cost = np.zeros(num)
    cost[[number for number, (first, row) in enumerate(pairs) if first == row]] = 1.0
    rules = [
        LinearConstraint(sparse(loads), ub=0.0),
        LinearConstraint(sparse(once), lb=1.0, ub=1.0),  # eq. 14
        LinearConstraint(sparse([missed]), ub=float(sample.misses)),  # eq. 15
        LinearConstraint(cost[None, :], lb=float(sample.least)),
        *([LinearConstraint(sparse(apart), ub=1.0)] if apart else []),
    ]
    # A relative gap would stop short of the optimum when there are many bins.
    options = {"time_limit": max(deadline - time.monotonic(), _MIN_SECONDS), "mip_rel_gap": 0.0}
    result = milp(cost, constraints=rules, integrality=np.ones(num), bounds=Bounds(0, 1), options=options)
    dual = result.get("mip_dual_bound")
    bound = math.ceil(dual - _BOUND_MARGIN) if dual is not None and math.isfinite(dual) else 0
    if progress is not None:
        progress(f"at least {max(bound, sample.least)} bins needed")
    if result.x is None:
        return None, max(bound, 0)
    first_of_row = np.zeros(sample.num_rows, dtype=np.int64)
    for number in np.flatnonzero(result.x[: len(pairs)] > 0.5).tolist():
        first, row = pairs[number]
        first_of_row[row] = first
    return np.unique(first_of_row, return_inverse=True)[1].reshape(-1), max(bound, 0)
