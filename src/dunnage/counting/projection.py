# SPDX-License-Identifier: Apache-2.0
"""The least-squares projection of noisy counts and noisy sums onto counts that are consistent and not negative.

Given a noisy value c_j of every cell and a noisy sum c_ig of every group g of every coarse feature i, find the counts
that minimise ::

    sum_j (x_j - c_j)^2 + sum_i ratio_i * sum_g (X_ig - c_ig)^2     over x >= 0, X_ig the sum of x over group g,

ratio_i being the weight of feature i over that of cells (all multiplied by the weight of cells, this is the objective
of Fioretto, Lee and Van Hentenryck 2018, section 8; they take weights 1 / number of groups).

Cells that share all their groups are a *join group*. With u_ig = ratio_i (c_ig - X_ig), the optimality conditions
give x_j = max(0, c_j + theta_m) for the cells of join group m, theta_m the sum of u over its groups, and u minimises
the strongly convex, piecewise quadratic ::

    1/2 sum_j max(0, c_j + theta_j)^2 + 1/2 sum_i |u_i|^2 / ratio_i - u . c.

A semismooth Newton method with a search along each step solves that: a finite number of steps, by strong convexity and
because the pieces are finitely many. Where features but for a few are local to blocks (slots), each block is first
brought to rest by itself, the unknowns of those few held: then two or three steps bring all together, however many
blocks there are. Sorted values and their partial sums make one evaluation a binary search in each
join group, whatever the number of cells.

*Chains.* A total is the sum of windows, which are sums of zone pairs of windows: along such chains the Hessian is
singular but for 1 / ratio, which may be 1e-9. So features that refine each other are written as a chain, whose
unknowns are v = u + (v of the group above): only the lowest feature of each chain meets cells, the ones above enter by
differences alone, and nothing cancels.

*Certificate.* Let r_ig = c_ig - X_ig - u_ig / ratio_i, which is zero at the solution. The difference between primal and
dual objective is exactly 1/2 sum_i ratio_i |r_i|^2, and the primal objective is strongly convex, so that the Euclidean
distance of x from the exact projection is at most the root of sum_i ratio_i |r_i|^2: ``Projection.distance``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement, pairwise
from typing import Literal, NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.counting.projection_kernels import (
    Arrow,
    Chains,
    Layout,
    Listed,
    Tree,
    arrow_step,
    conditions,
    conjugate_step,
    evaluate,
    factor_step,
    hessian_matrix,
    levels,
    moved,
    partial_sums,
    search,
    settle_blocks,
)
from dunnage.errors import InternalError, ParameterError

MOST_STEPS = 300  # Newton steps; ten are usual
STALLED = 5  # steps in a row that no longer halve the distance: rounding is reached
EXACT = 1e-13  # largest relative residual below which only rounding is left
UNSETTLED = 1e-3  # largest relative residual above which blocks are brought to rest again
ROUNDED = 1e-11  # the same where sums cancel
MOST_ARROW = 1e9  # operations of one step by blocks up to which that is the way to go
SMALL = 3e7  # operations up to which a step by blocks beats the fixed cost of other ways
MOST_DENSE = 4_000  # unknowns of a dense Cholesky factor


@dataclass(frozen=True, eq=False, kw_only=True)
class Family:
    """Coarse features over join groups: public, and prepared once for any number of projections."""

    groups: tuple[IntArray, ...]  # For each coarse feature the group, from 0, of each join group
    sizes: tuple[int, ...]  # For each coarse feature the number of its groups; groups without any cell are allowed
    ratios: tuple[float, ...]  # For each coarse feature its weight over the weight of cells
    # Block of each join group, if features are known to be mostly local to some blocks (slots of time); else blocks are
    # sought among the features themselves
    blocks: IntArray | None = None

    def __post_init__(self) -> None:
        if not (len(self.groups) == len(self.sizes) == len(self.ratios) >= 1):
            raise ParameterError(
                "Every coarse feature needs groups, a size and a ratio. "
                f"Got {len(self.groups)}, {len(self.sizes)} and {len(self.ratios)}. Give one or more of each."
            )
        shape = self.groups[0].shape
        for groups, size, ratio in zip(self.groups, self.sizes, self.ratios, strict=True):
            if groups.ndim != 1 or groups.shape != shape:
                raise ParameterError("Features must give a group to the same join groups. Give arrays of one length.")
            if len(groups) and not (groups.min() >= 0 and groups.max() < size):
                raise ParameterError(f"Groups of a feature must be numbered from 0 to {size - 1}. Renumber them.")
            if not (0 < ratio < np.inf):
                raise ParameterError(f"Weights must be positive and finite. Got a ratio of {ratio}.")
        if self.blocks is not None and self.blocks.shape != shape:
            raise ParameterError("Blocks must be given for each join group. Give an array of the length of groups.")

    def __len__(self) -> int:
        return len(self.groups[0])

    @cached_property
    def firsts(self) -> IntArray:
        """Number of the first group of each feature among all groups of all features, and their number."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @cached_property
    def members(self) -> IntArray:
        """For each feature and join group the number of its group among all groups of all features."""
        return np.stack([first + own for first, own in zip(self.firsts[:-1], self.groups, strict=True)])

    @cached_property
    def plan(self) -> Plan:
        """How the projection over this family is computed; made at the first use."""
        return _plan(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidates:
    """Noisy values of cells that may come out positive, sorted downwards inside each join group."""

    values: FloatArray  # Values of all listed cells, join group by join group
    starts: IntArray  # Where each join group starts in `values`, and their length
    # For each join group a value that no cell exceeds which is not listed; minus infinity where all are listed
    floors: FloatArray
    cells: IntArray | None = None  # Where each listed cell stood before sorting, if that is known

    def __post_init__(self) -> None:
        if len(self.starts) != len(self.floors) + 1 or (self.starts[0], self.starts[-1]) != (0, len(self.values)):
            raise ParameterError("Starts must run from 0 to the number of listed cells, one more than floors.")
        falls = self.values[1:] <= self.values[:-1]
        firsts = self.starts[1:-1]
        falls[firsts[(firsts > 0) & (firsts < len(self.values))] - 1] = True
        if not falls.all() or (len(self.values) and not np.isfinite(self.values).all()):
            raise ParameterError("Values must be finite and fall inside each join group. Sort them.")

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False, kw_only=True)
class Projection:
    """Counts that are consistent and not negative, and how exact they are."""

    theta: FloatArray  # For each join group what its cells were moved by before negative ones were set to zero
    # What rounding took of theta: x = (values + theta) + rest where positive, exact even where the first sum is next to
    # nothing
    rest: FloatArray
    # Counts of the listed cells, in the order of the candidates; of whole tables (`project_dense`) of all cells, or
    # (`project_table`) of the positive ones
    x: FloatArray
    counts: IntArray  # Number of listed cells of each join group that are positive
    sums: tuple[FloatArray, ...]  # For each coarse feature the sums of x over its groups
    # For each coarse feature the multipliers u of its groups; a start for a further projection
    duals: tuple[FloatArray, ...]
    residual: float  # See :func:`kkt_residual`: over the listed cells
    distance: float  # Upper bound on the Euclidean distance of x from the exact projection, over the listed cells
    iterations: int  # Newton steps
    # Join groups in which a cell that is not listed might be positive: list cells down to below -theta there and
    # project again. Where none is needed, the projection is the one over all cells
    needed: BoolArray
    cells: IntArray | None = None  # Of `project_table`: where the positive cells are in the table, rising


def project(
    candidates: Candidates,  # Noisy values of cells
    family: Family,  # Coarse features
    sums: Sequence[FloatArray],  # Noisy sums: for each coarse feature those of its groups
    *,
    tolerance: float = 1e-10,  # Largest residual that is let through
    start: Sequence[FloatArray] | None = None,  # `duals` of a similar projection
) -> Projection:
    """Return the projection over the listed cells, exact to rounding."""
    check_lengths(candidates, family, sums)
    problem, unknowns = problem_of(family.plan, candidates, sums), family.plan.start(start)
    settle(family.plan, problem, unknowns)
    return project_problem(candidates, family, sums, problem, unknowns, tolerance)


def project_problem(
    candidates: Candidates,
    family: Family,
    sums: Sequence[FloatArray],
    problem: _Problem,
    unknowns: FloatArray,
    tolerance: float,
) -> Projection:
    """Return the projection from unknowns to start from; see :func:`project`."""
    plan = family.plan
    best, iterations = _newton(plan, problem, unknowns)
    theta = levels(plan.leaves, best.unknowns)
    values = problem.listed.values
    x = moved(values, candidates.starts, theta)
    residual, totals = optimality(x, values, candidates.starts, family, sums)
    # Multipliers that are off could still give the right x, but not tell whether further cells are needed.
    if not max(residual, best.relative) <= tolerance:
        raise InternalError(
            f"The projection did not reach its tolerance. Got relative residuals of {residual:.1e} and "
            f"{best.relative:.1e} (multipliers) after {iterations} steps, allowed are {tolerance:.1e}. Please report "
            "the sizes and weights of the features."
        )
    active = np.zeros(len(family), dtype=np.int64)
    active[problem.used] = best.counts
    return Projection(
        theta=theta[0],
        rest=theta[1],
        x=x,
        counts=active,
        sums=totals,
        duals=plan.duals(best.unknowns),
        residual=residual,
        distance=float(best.distance),
        iterations=iterations,
        needed=-theta[0] < candidates.floors,
    )


def check_lengths(candidates: Candidates, family: Family, sums: Sequence[FloatArray]) -> None:
    if len(candidates.floors) != len(family):
        raise ParameterError(
            f"Candidates must have the join groups of the family. Got {len(candidates.floors)} and {len(family)}."
        )
    if tuple(len(part) for part in sums) != family.sizes:
        raise ParameterError("Sums must be given for each group of each coarse feature, in the order of the family.")
    if not all(np.isfinite(part).all() for part in sums):
        raise ParameterError("Sums must be finite numbers.")


# Newton


class _Problem(NamedTuple):
    """Join groups with a listed cell, the others have nothing to say; listed cells and tree as kernels take them."""

    used: IntArray
    listed: Listed
    tree: Tree


def problem_of(plan: Plan, candidates: Candidates, sums: Sequence[FloatArray]) -> _Problem:
    used = np.flatnonzero(np.diff(candidates.starts))
    starts = np.append(candidates.starts[used], candidates.starts[-1])
    values = np.asarray(candidates.values, dtype=np.float64)
    leaves = _columns(plan.leaves, used)
    return _Problem(
        used,
        Listed(values, starts, partial_sums(values, starts)),
        Tree(leaves, plan.parent, plan.slack, plan.flat(sums)),
    )


def _columns(table: IntArray, used: IntArray) -> IntArray:
    return table if len(used) == table.shape[1] else np.take(table, used, axis=1)


def settle(plan: Plan, problem: _Problem, unknowns: FloatArray) -> None:
    """Bring each block to rest by itself, in place, before all are brought together."""
    arrow, chains = plan.arrow, plan.inner_chains
    if arrow is not None and chains is not None:
        bounds = np.searchsorted(plan.blocks[problem.used], np.arange(len(arrow.layout.widths) + 1))
        used = arrow._replace(places=_columns(arrow.places, problem.used))
        settle_blocks(problem.listed, problem.tree, chains, bounds, used, unknowns)


def _newton(plan: Plan, problem: _Problem, unknowns: FloatArray) -> tuple[_Look, int]:
    """Minimise the dual function; return the best point and the number of steps.

    A full step is taken if it halves the distance to the best point so far, which can happen only so many times
    before rounding is reached; any other step goes to about the lowest point along it.
    """
    listed, tree, solve = problem.listed, problem.tree, plan.solver(problem.used)
    leaves, target = tree.leaves, tree.target

    def look(unknowns: FloatArray) -> _Look:
        theta = levels(leaves, unknowns)
        counts, gradient = np.empty(leaves.shape[1], dtype=np.int64), np.empty(len(target))
        distance, relative = evaluate(listed, tree, unknowns, theta, counts, gradient)
        return _Look(unknowns, theta, counts, gradient, distance, relative)

    best = here = look(unknowns)
    stalled = steps = 0
    while here.relative > EXACT and not (stalled >= STALLED and here.relative <= ROUNDED) and steps < MOST_STEPS:
        step = solve(here.counts, here.gradient)
        there = look(_moved(here.unknowns, step))
        if not there.distance <= best.distance / 2 and there.relative > EXACT:
            there = look(_moved(here.unknowns, search(listed, tree, here.theta, here.gradient, step) * step))
        if plan.inner_chains is not None and there.relative > UNSETTLED:  # what is shared moved some blocks far
            settled = there.unknowns.copy()
            settle(plan, problem, settled)
            there = min(there, look(settled), key=lambda one: one.distance)
        stalled = 0 if there.distance <= best.distance / 2 else stalled + 1
        best, here, steps = min(best, there, key=lambda one: one.distance), there, steps + 1
    return (here if here.relative <= EXACT else best), steps


class _Look(NamedTuple):
    """The dual function at a point: theta and active cells of groups, gradient, distance, relative residual."""

    unknowns: FloatArray
    theta: FloatArray
    counts: IntArray
    gradient: FloatArray
    distance: float
    relative: float


def _moved(unknowns: FloatArray, step: FloatArray) -> FloatArray:
    """Add a step to unknowns, and to what rounding took of them."""
    high, low = unknowns
    total = high + step
    part = total - high
    low = low + ((high - (total - part)) + (step - part))
    found = np.empty_like(unknowns)
    np.add(total, low, out=found[0])
    np.subtract(low, found[0] - total, out=found[1])
    return found


# Plans


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Unknowns of a family in chains, and the way Newton steps are solved."""

    order: tuple[int, ...]  # Coarse features as their unknowns are numbered: those above before those below
    firsts: IntArray  # First unknown of each coarse feature of `order`, and their number
    parent: IntArray  # Unknown above each unknown, -1 if there is none
    slack: FloatArray  # Reciprocal ratio of each unknown
    leaves: IntArray  # For each chain and join group the unknown of the lowest feature of the chain
    # `"arrow"`: by blocks and a few shared unknowns; `"dense"`: by one factor after the unknowns of one feature, which
    # are not coupled among each other, were eliminated; `"conjugate"`: by conjugate gradients after the same, with the
    # features that are left, by blocks, as preconditioner; `"sparse"`: by one sparse factor
    way: Literal["arrow", "dense", "conjugate", "sparse"] = "sparse"
    arrow: Arrow | None = None  # Of `"arrow"`: where entries are
    # Of `"dense"` and `"conjugate"`: unknowns of the feature that is eliminated; it ends a chain
    eliminated: IntArray | None = None
    # without, kept: of `"conjugate"`: plan of the features that are left, and which unknowns its unknowns are
    without: Plan | None = None
    kept: IntArray | None = None
    blocks: IntArray  # Block of each join group
    # The coarsest feature that is local to blocks: its sums tell at what level a first list of cells may end
    coarsest: int = 0

    @cached_property
    def inner_chains(self) -> Chains | None:
        """Chains that end inside blocks and the others, if there are several blocks, one after the other."""
        if self.arrow is None or len(self.arrow.layout.widths) < 2 or np.any(self.blocks[1:] < self.blocks[:-1]):
            return None
        shared = np.zeros(len(self.parent), dtype=bool)
        shared[self.arrow.members[len(self.parent) - self.arrow.layout.num_shared :]] = True
        outside = shared[self.leaves[:, 0]]
        return Chains(np.flatnonzero(~outside), np.flatnonzero(outside))

    def flat(self, parts: Sequence[FloatArray]) -> FloatArray:
        """Put numbers of the groups of features into the order of unknowns."""
        return np.concatenate([np.asarray(parts[feature], dtype=np.float64) for feature in self.order])

    def start(self, duals: Sequence[FloatArray] | None) -> FloatArray:
        """Return unknowns from multipliers; zeros if there are none."""
        unknowns = np.zeros((2, len(self.parent)))
        if duals is not None:
            unknowns[0] = self.flat(duals)
            for below in self.lower:  # those above are done already
                unknowns[0, below] += unknowns[0, self.parent[below]]
        return unknowns

    @cached_property
    def lower(self) -> list[IntArray]:
        """For each feature that has one above it, the unknowns that have one above them."""
        stretches = [np.arange(first, last) for first, last in pairwise(self.firsts.tolist())]
        parts = [stretch[self.parent[stretch] >= 0] for stretch in stretches]
        return [part for part in parts if len(part)]

    def duals(self, unknowns: FloatArray) -> tuple[FloatArray, ...]:
        """Return the multipliers of each coarse feature from unknowns."""
        above = np.where(self.parent >= 0, unknowns[:, self.parent], 0.0)
        flat = (unknowns - above).sum(axis=0)
        parts = dict(zip(self.order, np.split(flat, self.firsts[1:-1]), strict=True))
        return tuple(parts[feature] for feature in range(len(self.order)))

    def solver(self, used: IntArray) -> Callable[[IntArray, FloatArray], FloatArray]:
        """Return what makes a Newton step of active cells and gradient, over the join groups that are used."""
        if self.way == "arrow" and self.arrow is not None:
            arrow = self.arrow._replace(places=_columns(self.arrow.places, used))
            return lambda counts, gradient: arrow_step(counts, gradient, arrow)
        leaves = self.leaves[:, used]
        if self.way == "conjugate" and self.without is not None:
            near = self.without.solver(used)
            return lambda counts, gradient: conjugate_step(
                hessian_matrix(leaves, self.parent, self.slack, counts),
                gradient,
                (self.eliminated, self.kept),
                lambda right: near(counts, -right),
            )
        return lambda counts, gradient: factor_step(
            hessian_matrix(leaves, self.parent, self.slack, counts), gradient, self.eliminated
        )


def _plan(family: Family) -> Plan:
    chains = _chains(family)
    order = tuple(sorted(range(len(family.sizes)), key=lambda feature: family.sizes[feature]))
    firsts = np.concatenate([[0], np.cumsum([family.sizes[feature] for feature in order])]).astype(np.int64)
    first = {feature: int(firsts[place]) for place, feature in enumerate(order)}
    parent = np.full(firsts[-1], -1, dtype=np.int64)
    for chain in chains:
        for above, below in pairwise(chain):
            parent[first[below] + family.groups[below]] = first[above] + family.groups[above]
    slack = np.concatenate([np.full(family.sizes[feature], 1 / family.ratios[feature]) for feature in order])
    leaves = np.stack([first[chain[-1]] + family.groups[chain[-1]] for chain in chains])
    bare = Plan(
        order=order,
        firsts=firsts,
        parent=parent,
        slack=slack,
        leaves=leaves,
        blocks=np.zeros(len(family), dtype=np.int64),
    )
    return _with_way(bare, family, [chain[-1] for chain in chains], first)


def _refines(fine: IntArray, coarse: IntArray, size: int) -> bool:
    """Tell whether every group of one feature lies in one group of another."""
    above = np.zeros(size, dtype=np.int64)
    above[fine] = coarse
    return bool(np.array_equal(above[fine], coarse))


def _chains(family: Family) -> list[list[int]]:
    """Split the features into few chains, each from coarse to fine: a fine one goes below the finest it refines.

    Features of less weight than cells stay by themselves: their multipliers are small, and would be lost in
    differences of large unknowns.
    """
    chains: list[list[int]] = []
    for feature in sorted(range(len(family.sizes)), key=lambda feature: family.sizes[feature]):
        fits = [
            chain
            for chain in chains
            if family.ratios[feature] >= 1
            and _refines(family.groups[feature], family.groups[chain[-1]], family.sizes[feature])
        ]
        if fits:
            max(fits, key=lambda chain: family.sizes[chain[-1]]).append(feature)
        else:
            chains.append([feature])
    return chains


def _with_way(bare: Plan, family: Family, lowest: list[int], first: dict[int, int]) -> Plan:
    """Choose how Newton steps are solved: whatever takes the least time by a rough count of operations."""
    blocks, local, cost = _cheapest_blocks(family)
    plan = replace(bare, blocks=blocks, coarsest=min(local, key=lambda feature: family.sizes[feature]))
    largest = max(lowest, key=lambda feature: family.sizes[feature])
    rest = len(bare.parent) - family.sizes[largest]
    if cost <= min(MOST_ARROW, SMALL + rest**3 / 20):
        return replace(plan, way="arrow", arrow=_arrow(bare, family, blocks, local, first))
    if rest <= MOST_DENSE:
        return replace(plan, way="dense", eliminated=first[largest] + np.arange(family.sizes[largest]))
    return _without_one(plan, family, lowest, first)


def _without_one(plan: Plan, family: Family, lowest: list[int], first: dict[int, int]) -> Plan:
    """Take out the feature without which steps go by blocks; if there is none, steps are by one sparse factor."""
    for feature in sorted(lowest, key=lambda feature: -family.sizes[feature]):
        left = [other for other in range(len(family.sizes)) if other != feature]
        if not left:
            continue
        rest = Family(
            groups=tuple(family.groups[other] for other in left),
            sizes=tuple(family.sizes[other] for other in left),
            ratios=tuple(family.ratios[other] for other in left),
            blocks=family.blocks,
        )
        if _cheapest_blocks(rest)[2] > MOST_ARROW:
            continue
        order = [left[other] for other in rest.plan.order]
        kept = np.concatenate([first[other] + np.arange(family.sizes[other]) for other in order])
        above = rest.plan.parent
        if rest.plan.way == "arrow" and np.array_equal(plan.parent[kept], np.where(above >= 0, kept[above], -1)):
            inside = first[feature] + np.arange(family.sizes[feature])
            return replace(plan, way="conjugate", eliminated=inside, without=rest.plan, kept=kept)
    return plan


def _cheapest_blocks(family: Family) -> tuple[IntArray, list[int], float]:
    """Return the blocks with which a step by blocks takes least, the features local to them, and what it takes."""
    options = [np.zeros(len(family), dtype=np.int64)] + ([] if family.blocks is None else [family.blocks])
    options += [groups for groups, size in zip(family.groups, family.sizes, strict=True) if size > 1]
    tried = [(blocks, _local(family, blocks)) for blocks in options]
    costs = [_arrow_cost(family, blocks, local) for blocks, local in tried]
    best = int(np.argmin(costs))
    return *tried[best], costs[best]


def _local(family: Family, blocks: IntArray) -> list[int]:
    """Return the features whose groups never span two blocks."""
    every = zip(family.groups, family.sizes, strict=True)
    return [feature for feature, (groups, size) in enumerate(every) if _refines(groups, blocks, size)]


def block_of_groups(family: Family, blocks: IntArray, feature: int) -> IntArray:
    """Return the block of each group of a feature that is local; groups without cells are in the first."""
    found = np.zeros(family.sizes[feature], dtype=np.int64)
    found[family.groups[feature]] = blocks
    return found


def _arrow_cost(family: Family, blocks: IntArray, local: list[int]) -> float:
    """Return about how many operations a step by blocks takes."""
    shared = sum(family.sizes) - sum(family.sizes[feature] for feature in local)
    widths = np.zeros(int(blocks.max(initial=0)) + 1)
    for feature in local:
        widths += np.bincount(block_of_groups(family, blocks, feature), minlength=len(widths))
    return float((widths**3 / 3 + widths**2 * shared + widths * shared**2).sum() + shared**3 / 3)


def _arrow(bare: Plan, family: Family, blocks: IntArray, local: list[int], first: dict[int, int]) -> Arrow:
    block = np.full(len(bare.parent), -1, dtype=np.int64)
    for feature in local:
        stretch = slice(first[feature], first[feature] + family.sizes[feature])
        block[stretch] = block_of_groups(family, blocks, feature)
    num_blocks = int(blocks.max(initial=0)) + 1
    widths = np.bincount(block[block >= 0], minlength=num_blocks)
    # Those below come before those above inside a block: groups of one feature do not meet, so that little fills in.
    members = np.lexsort((-np.arange(len(block)), np.where(block >= 0, block, num_blocks)))
    begins = np.concatenate([[0], np.cumsum(widths)])
    place = np.empty(len(block), dtype=np.int64)
    place[members] = np.arange(len(block)) - begins[np.where(block >= 0, block, num_blocks)[members]]
    num_shared = len(block) - int(widths.sum())
    inner_starts = np.concatenate([[0], np.cumsum(widths**2)])
    cross_starts = inner_starts[-1] + np.concatenate([[0], np.cumsum(widths * num_shared)])

    def entry(one: IntArray, other: IntArray) -> IntArray:
        """Return where the entry of a pair of unknowns is: in a block, in its rows against shared ones, or in those."""
        swap = (block[one] < 0) | ((block[other] >= 0) & (place[other] < place[one]))
        one, other = np.where(swap, other, one), np.where(swap, one, other)
        own, row, column = block[one], place[one], place[other]
        inside = inner_starts[own] + row * widths[own] + column
        across = cross_starts[own] + row * num_shared + column
        outside = cross_starts[-1] + np.minimum(row, column) * num_shared + np.maximum(row, column)
        return np.asarray(np.where(own < 0, outside, np.where(block[other] < 0, across, inside)), dtype=np.int64)

    fixed = np.zeros(int(cross_starts[-1]) + num_shared**2)
    everyone, below = np.arange(len(block)), np.flatnonzero(bare.parent >= 0)
    above, slack = bare.parent[below], bare.slack[below]
    np.add.at(fixed, entry(everyone, everyone), bare.slack)
    np.add.at(fixed, entry(above, above), slack)
    np.add.at(fixed, entry(below, above), -slack)
    pairs = combinations_with_replacement(bare.leaves, 2)
    return Arrow(
        layout=Layout(num_shared, inner_starts, cross_starts, widths, begins),
        members=members,
        fixed=fixed,
        places=np.stack([entry(one, other) for one, other in pairs]),
    )


# Optimality


def kkt_residual(
    x: FloatArray, values: FloatArray, starts: IntArray, family: Family, sums: Sequence[FloatArray]
) -> float:
    """Return how far counts are from optimal, relative to the numbers that their optimality is computed from.

    The gradient of half the objective at cell j of join group m is g_j = x_j - c_j + sum_i ratio_i (X_ig - c_ig).
    The residual is the largest, over the cells, of

    - stationarity: how far g_j is below zero, over the natural scale of the gradient there, which is the sum of the
      absolute values of all its terms;
    - feasibility: how far x_j is below zero, over the largest absolute value or count;
    - complementarity: where both g_j and x_j are positive, the smaller of the two, each over its scale.

    It is computed from x alone and does not change when values and sums, or all weights, are multiplied by a number.
    """
    return optimality(np.asarray(x, dtype=np.float64), values, starts, family, sums)[0]


def optimality(
    x: FloatArray, values: FloatArray, starts: IntArray, family: Family, sums: Sequence[FloatArray]
) -> tuple[float, tuple[FloatArray, ...]]:
    """Return the residual (see :func:`kkt_residual`) and the sums of x over the groups of each feature."""
    flat = np.concatenate([np.asarray(part, dtype=np.float64) for part in sums])
    worst, totals = conditions(x, values, starts, family.members, np.array(family.ratios, dtype=np.float64), flat)
    return float(worst), tuple(np.split(totals, family.firsts[1:-1]))
