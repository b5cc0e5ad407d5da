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

A semismooth Newton method with a search along each step solves this in a finite number of steps, by strong convexity
and because there are finitely many pieces. If all but a few features are local to blocks (slots), each block is first
solved separately, with the unknowns of those few fixed; then two or three steps solve everything together, whatever
the number of blocks. Sorted values and their partial sums make one evaluation a binary search in each join group,
whatever the number of cells.

*Chains.* A total is the sum of windows, which are sums of zone pairs of windows: along such chains the Hessian is
singular except for 1 / ratio, which may be 1e-9. So features that refine each other are written as a chain with the
unknowns v = u + (v of the group above): only the lowest feature of each chain meets cells, the ones above enter only
through differences, and nothing cancels.

*Certificate.* Let r_ig = c_ig - X_ig - u_ig / ratio_i, which is zero at the solution. The difference between primal and
dual objective is exactly 1/2 sum_i ratio_i |r_i|^2, and the primal objective is strongly convex, so that the Euclidean
distance of x from the exact projection is at most the root of sum_i ratio_i |r_i|^2, ``Projection.distance``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement, pairwise
from typing import Any, NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray, kernel, piece
from dunnage.errors import InternalError, ParameterError

MAX_STEPS = 300  # Newton steps; ten are usual
STALLED = 5  # steps in a row that no longer halve the distance: rounding is reached
EXACT = 1e-13  # largest relative residual below which only rounding is left
UNSETTLED = 1e-3  # largest relative residual above which blocks are brought to rest again
ROUNDED = 1e-11  # the same where sums cancel
QUIET = 0.01  # share of active cells that a step may change for the list of cells to be judged already
MAX_ARROW = 1e9  # operations of one step by blocks up to which that is the way to go
_GLANCE = 4096  # join groups that are compared first
SMALL = 5e6  # operations up to which a step by blocks beats the fixed cost of other ways


@dataclass(frozen=True, eq=False, kw_only=True)
class Family:
    """Coarse features over join groups: public, and prepared once for any number of projections."""

    groups: tuple[IntArray, ...]  # for each coarse feature the group, from 0, of each join group
    sizes: tuple[int, ...]  # for each coarse feature the number of its groups; groups without any cell are allowed
    ratios: tuple[float, ...]  # for each coarse feature its weight over the weight of cells
    # Block of each join group, if features are mostly local to some blocks (slots of time); by default blocks come from
    # the features themselves
    blocks: IntArray | None = None

    def __post_init__(self) -> None:
        if wrong := [ratio for ratio in self.ratios if not 0 < ratio < np.inf]:
            raise ParameterError(f"weights must be positive and finite. Got a ratio of {wrong[0]}.")

    def __len__(self) -> int:
        return len(self.groups[0])

    @cached_property
    def firsts(self) -> IntArray:
        """Number of the first group of each feature among all groups of all features, and their number."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @cached_property
    def plan(self) -> NewtonPlan:
        return _plan(self)

    @cached_property
    def inner(self) -> Inner | None:
        """Return the features local to blocks, as a family of its own, if steps of all are not by blocks."""
        if self.plan.arrow is not None or self.blocks is None:
            return None
        num = int(self.blocks.max(initial=0)) + 1
        every = enumerate(zip(self.groups, self.sizes, strict=True))
        local = [feature for feature, (own, size) in every if size >= num and _refines(own, self.blocks, size)]
        if not local or len(local) == len(self.sizes):
            return None
        # Join groups that only other features tell apart are one.
        rows = np.stack([self.blocks] + [self.groups[at] for at in local])
        order = np.lexsort(rows[::-1])
        new = np.concatenate([[True], np.any(rows[:, order[1:]] != rows[:, order[:-1]], axis=0)])
        firsts, own = order[new], np.empty(len(order), dtype=np.int64)
        own[order] = np.cumsum(new) - 1
        part = Family(
            groups=tuple(self.groups[at][firsts] for at in local),
            sizes=tuple(self.sizes[at] for at in local),
            ratios=tuple(self.ratios[at] for at in local),
            blocks=self.blocks[firsts],
        )
        bounds = np.append(np.flatnonzero(new), len(order))
        return Inner(part, local, own, order, bounds) if part.plan.arrow is not None else None


class Inner(NamedTuple):
    """Some features of a family, and the join groups that these alone make."""

    family: Family
    features: list[int]
    own: IntArray  # for each join group of all features the one that it is in
    order: IntArray  # join groups of all features, by the one that they are in
    bounds: IntArray  # where each starts in that order, and their number


@dataclass(frozen=True, eq=False, kw_only=True)
class ListedCells:
    """Noisy values of cells that may become positive, sorted downwards inside each join group."""

    values: FloatArray  # of all listed cells, join group by join group
    starts: IntArray  # where each join group starts in `values`, and their length
    floors: FloatArray  # for each join group a limit that no unlisted cell exceeds; minus infinity if all are listed
    cells: IntArray | None = None  # place of each listed cell before sorting, if available

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False, kw_only=True)
class Projection:
    """Counts that are consistent and not negative, and how exact they are."""

    theta: FloatArray  # for each join group what its cells were moved by before negative ones were set to zero
    # The rounding error of theta: x = (values + theta) + rest if positive, exact even if the first sum is tiny
    rest: FloatArray
    # Counts of the listed cells, in their order; of whole tables of all cells (`project_dense`) or of the positive ones
    # (`project_table`)
    x: FloatArray
    counts: IntArray  # number of listed cells of each join group that are positive
    sums: tuple[FloatArray, ...]  # for each coarse feature the sums of x over its groups
    duals: tuple[FloatArray, ...]  # the multipliers u of its groups; a start for a further projection
    residual: float  # see :func:`optimality`: over the listed cells
    distance: float  # upper bound on the Euclidean distance of x from the exact projection, over the listed cells
    iterations: int  # Newton steps
    # Join groups in which an unlisted cell might be positive: list cells down to below -theta there and project again.
    # If none is needed, the projection is the one over all cells
    needed: BoolArray
    cells: IntArray | None = None  # of `project_table`: where the positive cells are in the table, rising


def project(
    candidates: ListedCells,
    family: Family,
    sums: Sequence[FloatArray],  # noisy sums: for each coarse feature those of its groups
    *,
    tolerance: float = 1e-10,  # largest accepted residual
    start: Sequence[FloatArray] | None = None,  # `duals` of a similar projection
) -> Projection:
    """Return the projection over the listed cells, exact to rounding."""
    problem, unknowns = problem_of(family.plan, candidates, sums), family.plan.start(start)
    settle(family.plan, problem, unknowns)
    return project_problem(candidates, family, sums, problem, unknowns, tolerance)


def project_problem(
    candidates: ListedCells,
    family: Family,
    sums: Sequence[FloatArray],
    problem: _Problem,
    unknowns: FloatArray,  # to start from
    tolerance: float,
    *,
    short: bool = False,  # whether to stop once it is clear that more cells are needed
) -> Projection:
    plan = family.plan
    best, iterations = _newton(plan, problem, unknowns, candidates.floors[problem.used] if short else None)
    theta = levels(plan.leaves, best.unknowns)
    values, needed = problem.listed.values, -theta[0] < candidates.floors
    totals: tuple[FloatArray, ...] = ()
    if short and needed.any():
        residual, tolerance, x = best.relative, np.inf, np.zeros(0)
    else:
        x = moved(values, candidates.starts, theta)
        residual, totals = optimality(x, values, candidates.starts, family, sums)
    # Wrong multipliers could still give the right x, but not decide whether further cells are needed.
    if not max(residual, best.relative) <= tolerance:
        raise InternalError(
            f"the projection did not reach its tolerance of {tolerance:.1e}. After {iterations} steps the relative "
            f"residuals are {residual:.1e} and {best.relative:.1e} (multipliers). Please report the sizes and weights "
            "of the features."
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
        needed=needed,
    )


class _Problem(NamedTuple):
    used: IntArray  # join groups with a listed cell: the others have nothing to say
    listed: SortedCells
    tree: Unknowns


def problem_of(plan: NewtonPlan, candidates: ListedCells, sums: Sequence[FloatArray]) -> _Problem:
    used = np.flatnonzero(np.diff(candidates.starts))
    starts = np.append(candidates.starts[used], candidates.starts[-1])
    values = np.asarray(candidates.values, dtype=np.float64)
    listed = SortedCells(values, starts, partial_sums(values, starts))
    return _Problem(used, listed, Unknowns(_columns(plan.leaves, used), plan.parent, plan.slack, plan.flat(sums)))


def _columns(table: IntArray, used: IntArray) -> IntArray:
    return table if len(used) == table.shape[1] else np.take(table, used, axis=1)


def settle(plan: NewtonPlan, problem: _Problem, unknowns: FloatArray) -> None:
    """Solve each block separately, in place, before all are solved together."""
    arrow, chains = plan.arrow, plan.inner_chains
    if arrow is not None and chains is not None:
        bounds = np.searchsorted(plan.blocks[problem.used], np.arange(len(arrow.widths) + 1))
        settle_blocks(problem.listed, problem.tree, chains, bounds, plan.in_use(problem.used), unknowns)


def _newton(plan: NewtonPlan, problem: _Problem, unknowns: FloatArray, floors: FloatArray | None) -> tuple[_Look, int]:
    """Minimise the dual function, unless cells below some floor are needed; return the best point and the steps."""
    # It takes a full step if that halves the distance to the best point so far, which can happen only a limited number
    # of times before rounding takes over; any other step goes to about the lowest point along it.
    listed, tree, solve = problem.listed, problem.tree, plan.solver(problem.used)
    leaves, target = tree.leaves, tree.target

    def look(unknowns: FloatArray) -> _Look:
        theta = levels(leaves, unknowns)
        counts, gradient = np.empty(leaves.shape[1], dtype=np.int64), np.empty(len(target))
        return _Look(unknowns, theta, counts, gradient, *evaluate(listed, tree, unknowns, theta, counts, gradient))

    def stepped(unknowns: FloatArray, step: FloatArray) -> FloatArray:
        # Unknowns with a step added, and their rounding errors
        high, low = unknowns
        total = high + step
        part = total - high
        low = low + ((high - (total - part)) + (step - part))
        new = np.empty_like(unknowns)
        np.add(total, low, out=new[0])
        np.subtract(low, new[0] - total, out=new[1])
        return new

    best = here = look(unknowns)
    stalled = steps = 0
    changed = 1.0  # share of active cells that the last step changed: if it is small, a list that is short shows it
    while here.relative > EXACT and not (stalled >= STALLED and here.relative <= ROUNDED) and steps < MAX_STEPS:
        if floors is not None and (changed <= QUIET or here.relative <= UNSETTLED) and np.any(-here.theta[0] < floors):
            return here, steps
        step = solve(here.counts, here.gradient, min(max(min(here.relative, changed), CLOSE), LOOSE))
        there = look(stepped(here.unknowns, step))
        if not there.distance <= best.distance / 2 and there.relative > EXACT:
            there = look(stepped(here.unknowns, search(listed, tree, here.theta, here.gradient, step) * step))
        if plan.inner_chains is not None and there.relative > UNSETTLED:  # what is shared moved some blocks far
            settled = there.unknowns.copy()
            settle(plan, problem, settled)
            there = min(there, look(settled), key=lambda one: one.distance)
        stalled = 0 if there.distance <= best.distance / 2 else stalled + 1
        if plan.arrow is None:
            changed = float(np.abs(there.counts - here.counts).sum() / max(1, here.counts.sum()))
        best, here, steps = min(best, there, key=lambda one: one.distance), there, steps + 1
    return (here if here.relative <= EXACT else best), steps


class _Look(NamedTuple):
    unknowns: FloatArray
    theta: FloatArray
    counts: IntArray  # active cells of groups
    gradient: FloatArray
    distance: float
    relative: float  # residual


@dataclass(frozen=True, eq=False, kw_only=True)
class NewtonPlan:
    """Unknowns of a family in chains, and how to solve Newton steps."""

    order: tuple[int, ...]  # coarse features as their unknowns are numbered: those above before those below
    firsts: IntArray  # first unknown of each coarse feature of `order`, and their number
    parent: IntArray  # unknown above each unknown, else -1
    slack: FloatArray  # reciprocal ratio of each unknown
    leaves: IntArray  # for each chain and join group the unknown of the lowest feature of the chain
    # How steps are solved: by blocks and a few shared unknowns, where entries are; if None, by conjugate gradients
    arrow: Arrow | None = None
    places: Callable[[IntArray], IntArray] | None = None  # those of join groups in use
    blocks: IntArray  # block of each join group
    coarsest: int = 0  # coarsest feature local to blocks: its sums give the level where a first list of cells may end

    @cached_property
    def inner_chains(self) -> Chains | None:
        """Chains that end inside blocks and the others, if there are several blocks, one after the other."""
        if self.arrow is None or len(self.arrow.widths) < 2 or np.any(self.blocks[1:] < self.blocks[:-1]):
            return None
        shared = np.zeros(len(self.parent), dtype=bool)
        shared[self.arrow.members[len(self.parent) - self.arrow.num_shared :]] = True
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
            for first, last in pairwise(self.firsts.tolist()):  # feature by feature: those above are done already
                below = np.arange(first, last)[self.parent[first:last] >= 0]
                unknowns[0, below] += unknowns[0, self.parent[below]]
        return unknowns

    def duals(self, unknowns: FloatArray) -> tuple[FloatArray, ...]:
        above = np.where(self.parent >= 0, unknowns[:, self.parent], 0.0)
        flat = (unknowns - above).sum(axis=0)
        parts = dict(zip(self.order, np.split(flat, self.firsts[1:-1]), strict=True))
        return tuple(parts[feature] for feature in range(len(self.order)))

    def in_use(self, used: IntArray) -> Arrow:
        assert self.arrow is not None
        assert self.places is not None
        return self.arrow._replace(places=self.places(used))

    def solver(self, used: IntArray) -> Callable[[IntArray, FloatArray, float], FloatArray]:
        """Return a function that makes a Newton step from active cells and gradient, over the join groups in use."""
        if self.arrow is not None:
            arrow = self.in_use(used)
            return lambda counts, gradient, close: arrow_step(counts, gradient, arrow)
        # The feature with the most groups ends a chain, and comes last. Its unknowns meet no other of their own, and
        # those without active cells say nothing.
        first, last = int(self.firsts[-2]), int(np.argmax(self.leaves[:, 0]))
        leaves = _columns(self.leaves, used)
        order = np.argsort(leaves[last], kind="stable")  # groups of an eliminated unknown, one after the other
        leaves, inside = np.delete(leaves, last, axis=0)[:, order], leaves[last, order] - first
        parent, slack, above, weak = self.parent[:first], self.slack[:first], self.parent[first:], self.slack[first:]

        def step(counts: IntArray, gradient: FloatArray, close: float) -> FloatArray:
            counts = counts[order]
            kept = np.flatnonzero(counts)
            weights, meeting = counts[kept].astype(np.float64), np.bincount(inside, counts, len(weak))
            own, touched = weak + meeting, np.flatnonzero(meeting)
            groups = (np.cumsum(meeting > 0) - 1)[inside[kept]]
            inner, others = gradient[first:].copy(), np.ascontiguousarray(leaves[:, kept])
            active = Active(others, groups, weights, parent, slack, above[touched], weak[touched], own[touched])
            # What hangs above an eliminated unknown without active cells moves with it, whatever its gradient.
            idle = np.flatnonzero((above >= 0) & (meeting == 0))
            outer = gradient[:first] + np.bincount(above[idle], inner[idle], first)
            answer = conjugate_step(active, outer, inner[touched], close)
            inner += np.bincount(inside[kept], weights * answer[others].sum(axis=0), len(weak))
            moved = np.where(above >= 0, weak * answer[above], 0.0)
            return np.concatenate([answer, (moved - inner) / own])

        return step


def _plan(family: Family) -> NewtonPlan:
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
    # Newton steps are solved in the way that takes the least time by a rough count of operations.
    blocks, local, cost = _cheapest_blocks(family)
    plan = NewtonPlan(
        order=order,
        firsts=firsts,
        parent=parent,
        slack=slack,
        leaves=leaves,
        blocks=blocks,
        coarsest=min(local, key=lambda feature: family.sizes[feature]),
    )
    rest = len(parent) - max(family.sizes)
    if cost > min(MAX_ARROW, SMALL + rest**3 / 20):
        return plan
    arrow, places = _arrow(plan, family, blocks, local, first)
    return replace(plan, arrow=arrow, places=places)


def _refines(fine: IntArray, coarse: IntArray, size: int) -> bool:
    if len(fine) > 2 * _GLANCE and not _refines(fine[:_GLANCE], coarse[:_GLANCE], size):
        return False  # most pairs of features show it at once
    above = np.zeros(size, dtype=np.int64)
    above[fine] = coarse
    return bool(np.array_equal(above[fine], coarse))


def _chains(family: Family) -> list[list[int]]:
    """Split the features into few chains, each from coarse to fine: a fine one goes below the finest it refines."""
    # Features of less weight than cells stay separate: their small multipliers would be lost in differences of large
    # unknowns.
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


def _cheapest_blocks(family: Family) -> tuple[IntArray, list[int], float]:
    """Return the blocks for the cheapest step by blocks, the features local to them, and the cost."""
    options = [np.zeros(len(family), dtype=np.int64)] + ([] if family.blocks is None else [family.blocks])
    options += [groups for groups, size in zip(family.groups, family.sizes, strict=True) if size > 1]
    choices = []
    for blocks in options:
        every = enumerate(zip(family.groups, family.sizes, strict=True))
        num = int(blocks.max(initial=0)) + 1
        local = [feature for feature, (groups, size) in every if size >= num and _refines(groups, blocks, size)]
        shared = sum(family.sizes) - sum(family.sizes[feature] for feature in local)  # they span several blocks
        widths = np.zeros(num)
        for feature in local:
            widths += np.bincount(block_of_groups(family, blocks, feature), minlength=len(widths))
        cost = float((widths**3 / 3 + widths**2 * shared + widths * shared**2).sum() + shared**3 / 3)
        choices.append((blocks, local, cost))
    return min(choices, key=lambda choice: choice[2])


def block_of_groups(family: Family, blocks: IntArray, feature: int) -> IntArray:
    """Return the block of each group of a feature that is local; groups without cells are in the first."""
    block_of = np.zeros(family.sizes[feature], dtype=np.int64)
    block_of[family.groups[feature]] = blocks
    return block_of


def _arrow(
    bare: NewtonPlan, family: Family, blocks: IntArray, local: list[int], first: dict[int, int]
) -> tuple[Arrow, Callable[[IntArray], IntArray]]:
    """Return a Hessian by blocks, and a function for the entries of join groups in use: few of them are."""
    block = np.full(len(bare.parent), -1, dtype=np.int64)
    for feature in local:
        stretch = slice(first[feature], first[feature] + family.sizes[feature])
        block[stretch] = block_of_groups(family, blocks, feature)
    num_blocks = int(blocks.max(initial=0)) + 1
    widths = np.bincount(block[block >= 0], minlength=num_blocks)
    # Inside a block, lower features come before upper ones: groups of one feature do not meet, so little fills in.
    members = np.lexsort((-np.arange(len(block)), np.where(block >= 0, block, num_blocks)))
    begins = np.concatenate([[0], np.cumsum(widths)])
    place = np.empty(len(block), dtype=np.int64)
    place[members] = np.arange(len(block)) - begins[np.where(block >= 0, block, num_blocks)[members]]
    num_shared = len(block) - int(widths.sum())
    inner_starts = np.concatenate([[0], np.cumsum(widths**2)])
    cross_starts = inner_starts[-1] + np.concatenate([[0], np.cumsum(widths * num_shared)])

    def entry(one: IntArray, other: IntArray) -> IntArray:
        """Return the place of the entry of two unknowns: in a block, in its rows against shared ones, or in those."""
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
    pairs = list(combinations_with_replacement(bare.leaves, 2))
    arrow = Arrow(
        num_shared=num_shared,
        inner_starts=inner_starts,
        cross_starts=cross_starts,
        widths=widths,
        begins=begins,
        members=members,
        fixed=fixed,
        places=np.zeros((0, 0), dtype=np.int64),
    )
    return arrow, lambda used: np.stack([entry(one[used], other[used]) for one, other in pairs])


def optimality(
    x: FloatArray, values: FloatArray, starts: IntArray, family: Family, sums: Sequence[FloatArray]
) -> tuple[float, tuple[FloatArray, ...]]:
    """Return how far counts are from optimal, relative to the terms of that, and their sums by feature."""
    # The gradient of half the objective at cell j of join group m is g_j = x_j - c_j + sum_i ratio_i (X_ig - c_ig). The
    # residual is the largest, over the cells, of stationarity (how far g_j is below zero, over the sum of the absolute
    # values of its terms), feasibility (how far x_j is below zero, over the largest absolute value or count) and
    # complementarity (if both are positive, the smaller of the two, each over its scale). It is computed from x alone
    # and does not change when values and sums, or all weights, are multiplied by a number.
    flat, used = np.concatenate([np.asarray(part, dtype=np.float64) for part in sums]), np.flatnonzero(np.diff(starts))
    # members : for each feature and join group with cells the number of its group among all groups of all features
    members = np.stack([first + own[used] for first, own in zip(family.firsts[:-1], family.groups, strict=True)])
    starts = np.append(starts[used], starts[-1])
    worst, totals = conditions(x, values, starts, members, np.array(family.ratios, dtype=np.float64), flat)
    return float(worst), tuple(np.split(totals, family.firsts[1:-1]))


# Numerical parts, compiled: the dual function, its search along a line, Newton steps, sorting, checking.
#
# Unknowns have two rows, a number and its rounding error: if features of great weight contradict each other, theta is a
# small sum of large unknowns.

LOOKS = 60  # evaluations in one search along a line; each at least halves the bracket or is a Newton step inside it
CLOSE, LOOSE = 1e-5, 0.1  # accuracy of one step by conjugate gradients, the residual in between; the next corrects it
MAX_CONJUGATE = 2_000  # rounds of conjugate gradients; twenty are usual
SETTLED = 1e-9  # relative residual at which a single block is finished
MAX_SETTLING = 40  # steps in a single block; this is only a start
LADDER = 3  # floors, one below the other, that cells are listed down to
LOWEST = -(2.0**60)  # below all values
TINY = 1e-15  # a pivot that cancelled to less than this part of its entry has no correct digit: it is raised to that


class SortedCells(NamedTuple):
    values: FloatArray
    starts: IntArray  # where each group starts
    partial: FloatArray  # for each cell the sum of the values of its group up to it


class Unknowns(NamedTuple):
    leaves: IntArray  # for each chain of features and each join group its unknown
    parent: IntArray  # the one above each, always a lower number; -1: none
    slack: FloatArray  # reciprocal of its ratio
    target: FloatArray  # its noisy sum


class Arrow(NamedTuple):
    """A Hessian by blocks and a few shared unknowns, stored flat; see :func:`arrow_step`."""

    num_shared: int  # unknowns that are in no block
    inner_starts: IntArray
    cross_starts: IntArray  # of the rows of blocks against shared unknowns
    widths: IntArray
    begins: IntArray  # first member of each block
    members: IntArray  # unknowns block by block, the shared ones last
    fixed: FloatArray  # the part that does not depend on active cells
    places: IntArray  # for each pair of chains and join group in use the entry that its active cells add to


class Chains(NamedTuple):
    inside: IntArray  # chains of features that end inside blocks
    outside: IntArray  # the others


class CellLists(NamedTuple):
    values: FloatArray  # falling inside each group
    cells: IntArray  # their numbers
    starts: IntArray  # of groups


class Bins(NamedTuple):
    low: int  # lowest value
    high: int  # highest that is binned
    shift: int  # logarithm of the width to base 2


@kernel
def partial_sums(values: Any, starts: IntArray) -> Any:
    """Return for each listed cell the sum of the values of its group up to it."""
    partial = np.empty(len(values))
    for group in range(len(starts) - 1):
        total = 0.0
        for cell in range(starts[group], starts[group + 1]):
            total += values[cell]
            partial[cell] = total
    return partial


@kernel
def num_active(values: Any, start: int, stop: int, theta: float, rest: float) -> int:
    """Return how many cells of a group are positive once theta is added: its values fall."""
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if (values[middle] + theta) + rest > 0.0:
            low = middle + 1
        else:
            high = middle
    return low - start


@kernel
def group_sum(listed: SortedCells, group: int, count: int, theta: float, rest: float) -> Any:
    """Return the sum of the positive cells of a group; cell by cell if partial sums would cancel."""
    values, starts, partial = listed
    start = starts[group]
    total = partial[start + count - 1] + count * theta
    if total < 0.01 * count * abs(theta):
        total = 0.0
        for cell in range(start, start + count):
            total += values[cell] + theta
    return total + count * rest


@kernel
def levels(leaves: IntArray, unknowns: FloatArray) -> Any:
    """Return theta of every group, in two rows: the sum of its unknowns with what each addition rounds off."""
    theta = np.empty((2, leaves.shape[1]))
    for group in range(leaves.shape[1]):
        high, low = 0.0, 0.0
        for chain in range(len(leaves)):
            more = unknowns[0, leaves[chain, group]]
            total = high + more
            part = total - high
            low += (high - (total - part)) + (more - part) + unknowns[1, leaves[chain, group]]
            high = total
        theta[0, group] = high + low
        theta[1, group] = low - (theta[0, group] - high)
    return theta


@kernel
def evaluate(
    listed: SortedCells, tree: Unknowns, unknowns: FloatArray, theta: FloatArray, counts: Any, gradient: FloatArray
) -> Any:
    """Fill in the active cells of each group and the gradient of the dual function."""
    # Return the certified distance to the projection and the largest residual relative to its terms.
    values, starts = listed.values, listed.starts
    leaves, parent, slack, target = tree
    num = len(parent)
    sums, pull = np.zeros(num), np.empty(num)
    for group in range(len(counts)):
        level, rest = theta[0, group], theta[1, group]
        count = num_active(values, starts[group], starts[group + 1], level, rest)
        counts[group] = count
        if count > 0:
            part = group_sum(listed, group, count, level, rest)
            for chain in range(len(leaves)):
                sums[leaves[chain, group]] += part
    for place in range(num):
        difference = unknowns[0, place] + unknowns[1, place]  # what it is more than the one above it
        if parent[place] >= 0:
            above = parent[place]
            difference = (unknowns[0, place] - unknowns[0, above]) + (unknowns[1, place] - unknowns[1, above])
        pull[place] = slack[place] * difference - target[place]
        gradient[place] = pull[place] + sums[place]
    for place in range(num - 1, -1, -1):  # those below come after those above
        if parent[place] >= 0:
            gradient[parent[place]] -= pull[place]
            sums[parent[place]] += sums[place]
    squared, largest, floor = 0.0, 0.0, 0.0
    for place in range(num):  # so that 1e-60 instead of zero does not count as an error of 100 %
        floor = max(floor, TINY * abs(target[place]))
    for place in range(num):
        residual = pull[place] + sums[place]
        squared += residual * residual / slack[place]
        if residual != 0.0:
            over = abs(unknowns[0, parent[place]]) if parent[place] >= 0 else 0.0
            scale = floor + sums[place] + abs(target[place]) + slack[place] * (abs(unknowns[0, place]) + over)
            largest = max(largest, abs(residual) / scale)
    return np.sqrt(squared), largest


@kernel
def search(listed: SortedCells, tree: Unknowns, theta: FloatArray, gradient: FloatArray, step: FloatArray) -> float:
    """Return how far to go along a step: to where the derivative, which rises piecewise linearly, is about zero."""
    # The end is before the zero, so that the dual function falls all the way there, or at zero up to rounding.
    values, starts = listed.values, listed.starts
    leaves, parent, slack = tree.leaves, tree.parent, tree.slack
    num = theta.shape[1]
    slope = np.zeros(num)
    at_start, bend = 0.0, 0.0
    for place in range(len(step)):
        at_start += gradient[place] * step[place]
        above = step[parent[place]] if parent[place] >= 0 else 0.0
        bend += slack[place] * (step[place] - above) ** 2
    fixed = at_start
    for group in range(num):
        for chain in range(len(leaves)):
            slope[group] += step[leaves[chain, group]]
        count = num_active(values, starts[group], starts[group + 1], theta[0, group], theta[1, group])
        if count > 0:
            fixed -= slope[group] * group_sum(listed, group, count, theta[0, group], theta[1, group])
    low, high, at = 0.0, np.inf, 1.0
    for _ in range(LOOKS):
        rise, second = fixed + at * bend, bend
        for group in range(num):
            level = theta[0, group] + at * slope[group]
            count = num_active(values, starts[group], starts[group + 1], level, 0.0)
            if count > 0:
                rise += slope[group] * group_sum(listed, group, count, level, 0.0)
                second += count * slope[group] ** 2
        if rise <= 0.0:
            low = at
        else:
            high = at
        if rise >= 0.1 * at_start and rise <= -1e-8 * at_start:
            return at
        at -= rise / second
        if not (low < at < high):
            at = 2.0 * low if high == np.inf else 0.5 * (low + high)
    return low


@kernel
def factor(matrix: Any, start: int, num: int, diagonal: Any) -> None:
    """Turn an upper triangle of a flat matrix into its Cholesky factor; ``diagonal`` is that before any subtraction."""
    for row in range(num):
        own = start + row * num
        pivot = np.sqrt(max(matrix[own + row], TINY * diagonal[row]))
        for column in range(row, num):
            matrix[own + column] /= pivot
        matrix[own + row] = pivot
        for lower in range(row + 1, num):
            share, other = matrix[own + lower], start + lower * num
            if share != 0.0:
                for column in range(lower, num):
                    matrix[other + column] -= share * matrix[own + column]


@kernel
def forward(matrix: Any, start: int, num: int, sides: FloatArray, begin: int) -> None:
    """Solve with the transposed factor, in place, for each column of the right-hand sides from row ``begin``."""
    width = sides.shape[1]
    for row in range(num):
        own = start + row * num
        for column in range(width):
            sides[begin + row, column] /= matrix[own + row]
        for lower in range(row + 1, num):
            share = matrix[own + lower]
            if share != 0.0:
                for column in range(width):
                    sides[begin + lower, column] -= share * sides[begin + row, column]


@kernel
def backward(matrix: Any, start: int, num: int, side: Any, begin: int) -> None:
    """Solve with the factor, in place, from entry ``begin`` of the right-hand side."""
    for row in range(num - 1, -1, -1):
        own = start + row * num
        total = side[begin + row]
        for column in range(row + 1, num):
            total -= matrix[own + column] * side[begin + column]
        side[begin + row] = total / matrix[own + row]


@kernel
def arrow_step(counts: IntArray, gradient: FloatArray, arrow: Arrow) -> Any:
    """Return the Newton step: a Cholesky factor per block, and one of the Schur complement of the shared unknowns."""
    # The Hessian is flat: upper triangles of the blocks, their rows against the shared unknowns, and the triangle of
    # those.
    num_shared, inner_starts, cross_starts, widths, begins, members, fixed, places = arrow
    entries = fixed.copy()
    for pair in range(len(places)):
        for group in range(len(counts)):
            entries[places[pair, group]] += counts[group]
    num, num_local, outer = len(members), len(members) - num_shared, cross_starts[-1]
    sides, right = np.empty((num_local, num_shared + 1)), np.empty((num_shared, 1))
    diagonal = np.empty(num_shared)
    for one in range(num_shared):
        right[one, 0] = -gradient[members[num_local + one]]
        diagonal[one] = entries[outer + one * num_shared + one]
    for row in range(num_local):
        sides[row, num_shared] = -gradient[members[row]]
    for block in range(len(widths)):
        # Factor a block, solve for its rows against the shared unknowns, and subtract its part from the shared ones.
        start, cross, width, begin = inner_starts[block], cross_starts[block], widths[block], begins[block]
        own_diagonal = np.empty(width)
        for row in range(width):
            own_diagonal[row] = entries[start + row * width + row]
            for one in range(num_shared):
                sides[begin + row, one] = entries[cross + row * num_shared + one]
        factor(entries, start, width, own_diagonal)
        forward(entries, start, width, sides, begin)
        for row in range(begin, begin + width):
            for one in range(num_shared):
                share = sides[row, one]
                if share != 0.0:
                    right[one, 0] -= share * sides[row, num_shared]
                    for other in range(one, num_shared):
                        entries[outer + one * num_shared + other] -= share * sides[row, other]
    factor(entries, outer, num_shared, diagonal)
    forward(entries, outer, num_shared, right, begins[0])  # zero; as a literal it would have one more version compiled
    answer = np.empty(num)
    for one in range(num_shared):
        answer[num_local + one] = right[one, 0]
    backward(entries, outer, num_shared, answer, num_local)
    for row in range(num_local):
        answer[row] = sides[row, num_shared]
        for one in range(num_shared):
            answer[row] -= sides[row, one] * answer[num_local + one]
    for block in range(len(widths)):
        backward(entries, inner_starts[block], widths[block], answer, begins[block])
    step = np.empty(num)
    for place in range(num):
        step[members[place]] = answer[place]
    return step


@piece
def settle_block(
    listed: SortedCells,
    tree: Unknowns,
    others_theta: FloatArray,  # theta of the others
    unknowns: FloatArray,
    fixed: FloatArray,  # the block's stretch of the part of the Hessian that does not depend on active cells
    places: IntArray,
    start: int,  # where that stretch starts
) -> None:
    """Minimise the dual function over the unknowns of one block, in place and approximately."""
    num, best = others_theta.shape[0], np.inf
    counts, gradient = np.empty(num, np.int64), np.empty(unknowns.shape[1])
    step, taken, here = np.zeros(unknowns.shape[1]), 0, unknowns.copy()
    theta = levels(tree.leaves, here)
    theta[0] += others_theta
    distance, relative = evaluate(listed, tree, here, theta, counts, gradient)
    while relative > SETTLED and taken < MAX_SETTLING:
        if distance < best:
            best = distance
            unknowns[:] = here
        # The Newton step of these unknowns, with all others fixed
        matrix, width, first = fixed.copy(), len(gradient), 0
        for pair in range(len(places)):
            for group in range(num):
                place = places[pair, group] - start
                if 0 <= place < len(matrix):
                    matrix[place] += counts[group]
        side, diagonal = np.empty((width, 1)), np.empty(width)
        for row in range(width):
            side[row, 0], diagonal[row] = -gradient[width - 1 - row], matrix[row * width + row]
        factor(matrix, first, width, diagonal)
        forward(matrix, first, width, side, first)
        answer = side[:, 0].copy()
        backward(matrix, first, width, answer, first)
        step = answer[::-1].copy()
        before, slope, origin = theta, gradient.copy(), here.copy()
        for share in range(2):
            here[0] = origin[0] + (step if share == 0 else search(listed, tree, before, slope, step) * step)
            theta = levels(tree.leaves, here)
            theta[0] += others_theta
            distance, relative = evaluate(listed, tree, here, theta, counts, gradient)
            if distance <= best / 2 or relative <= SETTLED:
                break
        taken += 1
    if distance < best:
        unknowns[:] = here


@kernel
def settle_blocks(
    listed: SortedCells, tree: Unknowns, chains: Chains, bounds: IntArray, arrow: Arrow, unknowns: FloatArray
) -> None:
    """Minimise the dual function over the unknowns of each block separately, in place, with shared ones fixed."""
    # Each block takes as many steps as it needs, and as far as it may, while all blocks in one step would go at the
    # pace of the slowest. `bounds` has the place where the join groups of each block start, and their number.
    values, starts, partial = listed
    leaves, parent, slack, target = tree
    inner_starts, widths, begins = arrow.inner_starts, arrow.widths, arrow.begins
    members, fixed, places = arrow.members, arrow.fixed, arrow.places
    place = np.full(len(parent), -1)
    for block in range(len(widths)):
        for row in range(widths[block]):
            place[members[begins[block] + row]] = widths[block] - 1 - row
    for block in range(len(widths)):
        first, last, width = bounds[block], bounds[block + 1], widths[block]
        others_theta, own_leaves = np.zeros(last - first), np.empty((len(chains.inside), last - first), np.int64)
        for group in range(first, last):
            for chain in chains.outside:
                others_theta[group - first] += unknowns[0, leaves[chain, group]]
            for row in range(len(chains.inside)):
                own_leaves[row, group - first] = place[leaves[chains.inside[row], group]]
        own = members[begins[block] : begins[block] + width][::-1].copy()
        own_parent, own_target, inside = np.full(width, -1), target[own], np.zeros((2, width))
        for row in range(width):
            above = parent[own[row]]
            inside[0, row] = unknowns[0, own[row]]
            if above >= 0:
                own_parent[row] = place[above]
                if place[above] < 0:
                    own_target[row] += slack[own[row]] * unknowns[0, above]
        settle_block(
            SortedCells(values, starts[first : last + 1], partial),
            Unknowns(own_leaves, own_parent, slack[own], own_target),
            others_theta,
            inside,
            fixed[inner_starts[block] : inner_starts[block + 1]],
            places[:, first:last],
            inner_starts[block],
        )
        for row in range(width):
            unknowns[0, own[row]], unknowns[1, own[row]] = inside[0, row], inside[1, row]


@piece
def num_above(values: Any, start: int, stop: int, floor: float) -> int:
    count, whole = 0, int(np.floor(max(floor, LOWEST)))  # comparing whole numbers is faster
    for cell in range(start, stop):
        count += values[cell] > whole
    return count


@kernel
def first_levels(values: Any, starts: IntArray, blocks: IntArray, bins: Bins, wanted: FloatArray, spare: int) -> Any:
    """Return for each block the level above which values add up to the wanted sum, and ever lower floors below it."""
    # All are lower ends of bins of values. There are at least `spare` times as many cells above a floor as above the
    # one before it. The last part is the number of cells of each group above the first floor.
    low, high, shift = bins
    last = (high - low) >> shift
    levels, floors = np.empty(len(wanted)), np.empty((LADDER, len(wanted)))
    # Join groups block by block, and where each block starts among them
    bounds = np.zeros(len(wanted) + 1, np.int64)
    for block in blocks:
        bounds[block + 1] += 1
    bounds = np.cumsum(bounds)
    order, filled = np.empty(len(blocks), np.int64), bounds[:-1].copy()
    for group in range(len(blocks)):
        order[filled[blocks[group]]] = group
        filled[blocks[group]] += 1
    above = np.empty(len(blocks), np.int64)
    table = np.zeros(last + 1, np.int64)  # of one block, from the highest bin down: it stays in the cache
    for block in range(len(wanted)):
        table[:] = 0
        excess = 0.0  # what exceeds the lower end of the bin
        for group in order[bounds[block] : bounds[block + 1]]:
            for cell in range(starts[group], starts[group + 1]):
                value = values[cell]
                if value > high:
                    excess += value - high
                    value = high
                table[last - ((value - low) >> shift)] += 1
        number, at = table[0], 0
        while at < last and excess < wanted[block]:
            excess += number << shift
            at += 1
            number += table[at]
        levels[block] = low + ((last - at) << shift)
        for rung in range(LADDER):
            enough = spare * number + 16
            while at < last and number < enough:
                at += 1
                number += table[at]
            floors[rung, block] = low + ((last - at - 1) << shift) if number >= enough else low - 1
        for group in order[bounds[block] : bounds[block + 1]]:  # now, while they are in the cache
            above[group] = num_above(values, starts[group], starts[group + 1], floors[0, block])
    return levels, floors, above


@kernel
def sort_falling(values: Any, cells: Any, start: int, stop: int) -> None:
    """Sort a stretch of values downwards and the cells with them, by Shell's method: stretches are mostly short."""
    gap = 1
    while gap < (stop - start) // 9:
        gap = 3 * gap + 1
    while gap > 0:
        for place in range(start + gap, stop):
            value, cell, at = values[place], cells[place], place
            while at >= start + gap and values[at - gap] < value:
                values[at], cells[at] = values[at - gap], cells[at - gap]
                at -= gap
            values[at], cells[at] = value, cell
        gap //= 3


@kernel
def list_above(values: Any, starts: IntArray, floors: FloatArray, fresh: Any, counts: Any, before: CellLists) -> Any:
    """List the cells above the floor of ``fresh`` groups; the others come from the list ``before``."""
    begins = np.zeros(len(starts), np.int64)
    for group in range(len(floors)):
        size = starts[group + 1] - starts[group]
        if len(counts) > 0:
            count = counts[group]
        elif not fresh[group]:
            count = before.starts[group + 1] - before.starts[group]
        elif size == 1:
            count = int(values[starts[group]] > floors[group])
        else:
            count = num_above(values, starts[group], starts[group + 1], floors[group])
        begins[group + 1] = begins[group] + count
    kept, cells = np.empty(begins[-1] + 1), np.empty(begins[-1] + 1, np.int64)  # one to spare: writes do not branch
    for group in range(len(floors)):
        at, filled = begins[group], begins[group + 1]
        if filled == at:
            continue
        if not fresh[group]:
            shift = before.starts[group] - at
            for place in range(at, filled):
                kept[place], cells[place] = before.values[place + shift], before.cells[place + shift]
        elif starts[group + 1] == starts[group] + 1:
            kept[at], cells[at] = values[starts[group]], starts[group]
        else:
            floor = int(np.floor(max(floors[group], LOWEST)))
            for cell in range(starts[group], starts[group + 1]):
                kept[at], cells[at] = values[cell], cell
                at += values[cell] > floor
            sort_falling(kept, cells, begins[group], filled)
    return CellLists(kept[:-1], cells[:-1], begins)


@kernel
def merge_groups(values: Any, starts: IntArray, order: IntArray, bounds: IntArray) -> Any:
    """Return values with some join groups made one, in their order, and where each of these starts."""
    merged, begins, filled = np.empty_like(values), np.zeros(len(bounds), np.int64), 0
    for whole in range(len(bounds) - 1):
        for group in order[bounds[whole] : bounds[whole + 1]]:
            for cell in range(starts[group], starts[group + 1]):
                merged[filled] = values[cell]
                filled += 1
        begins[whole + 1] = filled
    return merged, begins


@kernel
def positive(x: Any, cells: Any, starts: IntArray, counts: Any) -> Any:
    """Return the numbers of the positive cells, rising, and their counts: they are the first ones of each group."""
    numbers, values, filled = np.empty(counts.sum(), np.int64), np.empty(counts.sum()), 0
    for group in range(len(counts)):
        first = filled
        for place in range(starts[group], starts[group] + counts[group]):
            numbers[filled], values[filled] = -cells[place], x[place]
            filled += x[place] > 0.0  # rounding may have left nothing of a count
        sort_falling(numbers, values, first, filled)
    return -numbers[:filled], values[:filled]


@kernel
def moved(values: Any, starts: IntArray, theta: FloatArray) -> Any:
    """Return the counts of all cells: values moved by theta of their group, or zero."""
    x = np.empty(len(values))
    for group in range(theta.shape[1]):
        for cell in range(starts[group], starts[group + 1]):
            count = (values[cell] + theta[0, group]) + theta[1, group]
            x[cell] = count if count > 0.0 else 0.0
    return x


@kernel
def conditions(x: Any, values: Any, starts: IntArray, members: IntArray, ratios: Any, noisy: Any) -> Any:
    """Return the largest relative violation of the optimality conditions (see :func:`optimality`) and the sums of x."""
    sums, size, worst = np.zeros(len(noisy)), 0.0, 0.0
    for group in range(len(starts) - 1):
        total = 0.0
        for cell in range(starts[group], starts[group + 1]):
            total += x[cell]
            size = max(size, abs(x[cell]), abs(float(values[cell])))
        for feature in range(len(members)):
            sums[members[feature, group]] += total
    for group in range(len(starts) - 1):
        pull, scale = 0.0, 0.0
        for feature in range(len(members)):
            own = members[feature, group]
            pull += ratios[feature] * (sums[own] - noisy[own])
            scale += ratios[feature] * (abs(sums[own]) + abs(noisy[own]))
        for cell in range(starts[group], starts[group + 1]):
            gradient = x[cell] - values[cell] + pull
            if gradient != 0.0:
                gradient /= scale + abs(x[cell]) + abs(values[cell])
            share = x[cell] / size if size > 0.0 else 0.0
            worst = max(worst, abs(min(gradient, share)))  # below zero each counts, above zero the smaller one
    return worst, sums


class Active(NamedTuple):
    """The active join groups of a Newton step; the unknowns of the last feature do not meet, and are eliminated."""

    leaves: IntArray  # unknowns that stay, (chain, group)
    inside: IntArray  # the eliminated unknown of each group, numbered from 0, rising
    counts: FloatArray
    parent: IntArray  # of the unknowns that stay
    slack: FloatArray
    above: IntArray  # the unknown above each eliminated one, else -1
    weak: FloatArray  # slack of each eliminated one
    own: FloatArray  # and its diagonal


@kernel
def schur_product(active: Active, vector: FloatArray, product: FloatArray) -> None:
    """Multiply the Schur complement of the eliminated unknowns with a vector."""
    leaves, inside, counts, parent, slack, above, weak, own = active
    gone, sums = np.zeros(len(own)), np.zeros(len(counts))
    for group in range(len(counts)):
        for chain in range(len(leaves)):
            sums[group] += vector[leaves[chain, group]]
        gone[inside[group]] += counts[group] * sums[group]
    for place in range(len(parent)):
        product[place] = slack[place] * vector[place]
    for place in range(len(parent)):
        if parent[place] >= 0:
            product[parent[place]] += slack[place] * (vector[parent[place]] - vector[place])
            product[place] -= slack[place] * vector[parent[place]]
    for place in range(len(own)):
        if above[place] >= 0:
            gone[place] -= weak[place] * vector[above[place]]
        gone[place] /= own[place]
        if above[place] >= 0:
            product[above[place]] += weak[place] * (vector[above[place]] + gone[place])
    for group in range(len(counts)):
        share = counts[group] * (sums[group] - gone[inside[group]])
        for chain in range(len(leaves)):
            product[leaves[chain, group]] += share


@kernel
def conjugate_step(active: Active, gradient: FloatArray, inner: FloatArray, close: float) -> Any:
    """Return a Newton step of the unknowns that stay, by conjugate gradients; ``inner`` is the gradient of others."""
    leaves, inside, counts, parent, slack, above, weak, own = active
    own[:] = weak
    for group in range(len(counts)):
        own[inside[group]] += counts[group]
    residual, diagonal, meeting, first = -gradient, slack.copy(), np.zeros(len(parent)), 0
    for group in range(len(counts)):
        for chain in range(len(leaves)):
            residual[leaves[chain, group]] += counts[group] * inner[inside[group]] / own[inside[group]]
            diagonal[leaves[chain, group]] += counts[group]
            meeting[leaves[chain, group]] += counts[group]
        if group + 1 == len(counts) or inside[group + 1] != inside[group]:
            # What an unknown shares with an eliminated one leaves its diagonal, which may be next to nothing then.
            for member in range(first, group + 1):
                for chain in range(len(leaves)):
                    shared = meeting[leaves[chain, member]]
                    diagonal[leaves[chain, member]] -= shared * shared / own[inside[group]]
                    meeting[leaves[chain, member]] = 0.0
            first = group + 1
    for place in range(len(parent)):
        if parent[place] >= 0:
            diagonal[parent[place]] += slack[place]
    for place in range(len(own)):
        if above[place] >= 0:
            residual[above[place]] -= weak[place] * inner[place] / own[place]
            diagonal[above[place]] += weak[place] * (1.0 - weak[place] / own[place])
    for place in range(len(parent)):
        diagonal[place] = max(diagonal[place], slack[place])  # rounding may have left less
    answer, product, near = np.zeros(len(parent)), np.empty(len(parent)), residual / diagonal
    direction, size, rounds = near.copy(), (residual * near).sum(), 0
    goal = close * close * size
    while size > goal and rounds < MAX_CONJUGATE:
        schur_product(active, direction, product)
        share, before, size = size / (direction * product).sum(), size, 0.0
        for place in range(len(parent)):
            answer[place] += share * direction[place]
            residual[place] -= share * product[place]
            near[place] = residual[place] / diagonal[place]
            size += residual[place] * near[place]
        for place in range(len(parent)):
            direction[place] = near[place] + size / before * direction[place]
        rounds += 1
    return answer
