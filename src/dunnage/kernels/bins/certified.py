# SPDX-License-Identifier: Apache-2.0
"""Pack classes of items into bins of several kinds so that everything fits with a certified probability.

Items of a class look alike, so a plan is a list of patterns, and everything that can go wrong is known exactly. With P
the probability that a pattern fits, over all permutations inside the classes:

    1 - sum of (1 - P)  <=  probability that every bin fits  <=  product of P.

The right side needs one resource and known members; otherwise only the smallest P is an upper bound. Two covering
programs follow, one sufficient and one necessary; if both have the same cost, the plan is proven to be best, otherwise
it carries its gap. With risk 0 only patterns that certainly fit are left, and a class of equal sizes is ordinary
packing, so one kernel serves every model. If there are too many patterns to list, a packing of the members themselves
bounds every plan from below, and a search proposes plans. ``docs/proofs/patterns.md`` has the proofs.

References
----------
Joag-Dev, Proschan 1983 (negative association of permutations); Hoogervorst et al. 2019, section 5.1.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dunnage.arrays import IntArray, kernel
from dunnage.errors import NoPlanError
from dunnage.kernels.bins.chances import ROUNDING, Chances, ClassSizes, Members, SumLaw
from dunnage.kernels.bins.covering import (
    MAX_PATTERNS,
    CoverProgram,
    KindPatterns,
    PatternList,
    list_patterns,
    without_surplus,
)
from dunnage.kernels.bins.first_fit import OPEN_BINS, TypePacking, fit_types, too_many_types, use_cheaper_kinds
from dunnage.kernels.bins.scalar import (
    PRICE_SCALE,
    Pricing,
    Sizes,
    best_fit_decreasing,
    fill_by_subset_sums,
    l2_bound,
    pack_bins,
)
from dunnage.kernels.deadline import NEVER, Deadline, solve_in_turn
from dunnage.kernels.solver import (
    CoverTable,
    LeastBins,
    Need,
    affordable,
    csr,
    least_bins,
    solve_prices,
    solve_program,
    spread_bins,
)

# Bins of several kinds at least cost, for one resource and more patterns than can be listed: column generation.
#
# The present patterns give prices of items; a knapsack for each kind of bin gives patterns that are worth more than
# they cost, until there are none. Any prices bound the cost of every packing: if no pattern of a kind is worth more
# than z, a kind with K bins at cost c lowers the bound by at most K (z - c), and for one without a limit prices are
# lowered until z is c. Then an integer program chooses among the patterns met.


MAX_SIZES = 600
_MARGIN = 1e-6
_BEST_FILLS = 3
SPARE_SHARES = (0.0, 0.01, 0.02, 0.04, 0.07, 0.12)
EVEN_FILLS = 8
_FILL_SECONDS = 0.5


class FleetPacking(NamedTuple):
    patterns: IntArray  # bins over the sizes; together they may take more than there is
    kinds: IntArray  # of each
    bound: int


def fill_then_pack(
    sizes: IntArray,  # of each item
    capacities: Sequence[int],  # capacities, costs, counts: of each kind of bin
    costs: Sequence[int],
    counts: Sequence[int | None],
    *,
    deadline: Deadline,
) -> Iterator[tuple[list[list[int]], list[int]]]:
    """Yield packings: some bins of one kind completely filled, the rest packed into another."""
    items = np.asarray(sizes, dtype=np.int64)
    order = np.argsort(-items, kind="stable").tolist()
    for first, other in itertools.permutations(range(len(costs)), 2):
        if int(items.max()) > capacities[first]:
            continue
        filled = fill_by_subset_sums(items, order, capacities[first], deadline=deadline)
        if filled is None:
            continue
        options: list[tuple[int, int, list[int]]] = []
        most = counts[first]
        numbers = range(len(filled) + 1 if most is None else min(len(filled), most) + 1)
        stop = deadline.part(1 / 4)
        # From coarse to fine, because every number takes a packing, and there may not be time for all.
        for number in sorted(numbers, key=lambda number: -(number & -number) if number else -len(filled) - 1):
            if options and stop.late:
                break
            rest = [item for bin_ in filled[number:] for item in bin_]
            if not rest or int(items[rest].max()) <= capacities[other]:
                guess = best_fit_decreasing(items, rest, capacities[other])
                left = counts[other]
                if left is None or len(guess) <= left:
                    options.append((number * costs[first] + len(guess) * costs[other], number, rest))
        for _, number, rest in sorted(options, key=lambda option: option[:2])[:_BEST_FILLS]:
            seconds = deadline.part(most=_FILL_SECONDS).left
            packed = pack_bins(items[rest], capacities[other], seconds=seconds).bins if rest else []
            bins = filled[:number] + [[rest[i] for i in bin_] for bin_ in packed]
            yield bins, [first] * number + [other] * len(packed)


class FleetPricing:
    def __init__(
        self,
        sizes: IntArray,  # sizes, demand: sizes of at least 1, largest first, and the number of items of each
        demand: IntArray,
        capacities: Sequence[int],
        costs: Sequence[int],
        counts: Sequence[int | None],
        *,
        deadline: Deadline,
    ) -> None:
        self.sizes, self.demand = sizes, demand
        self.costs, self.deadline = np.array(costs, dtype=np.float64), deadline
        self.limits = {kind: count for kind, count in enumerate(counts) if count is not None}
        self.step = math.gcd(*costs)
        # Patterns of a kind do not include a size that it cannot take.
        self.fitting = [np.flatnonzero(sizes <= capacity) for capacity in capacities]
        self.pricings = [
            Pricing(Sizes(sizes[own], demand[own], capacity), deadline=deadline)
            for own, capacity in zip(self.fitting, capacities, strict=True)
        ]
        self._columns: dict[tuple[int, bytes], IntArray] = {}
        for kind, own in enumerate(self.fitting):
            for number, size in enumerate(own.tolist()):
                single = np.zeros(len(sizes), dtype=np.int64)
                single[size] = self.pricings[kind].problem.most[number]
                self.add(kind, single)

    def add(self, kind: int, pattern: IntArray) -> bool:
        before = len(self._columns)
        self._columns.setdefault((kind, pattern.astype(np.int64).tobytes()), pattern.astype(np.int64))
        return len(self._columns) > before

    def _table(self) -> CoverTable:
        kinds = np.array([kind for kind, _ in self._columns], dtype=np.int64)
        patterns = np.array(list(self._columns.values()), dtype=np.int64)
        return CoverTable(csr(patterns), self.demand, self.costs[kinds], kinds, self.limits)

    def solve(self, *, at_most: int | None) -> FleetPacking:
        """Generate patterns, then choose among them; ``at_most`` is the largest cost of interest."""
        bound, fresh = 0, True
        while fresh and (seconds := self.deadline.left):
            prices = solve_prices(self._table(), seconds=seconds)
            if prices is None:
                break
            # Add the patterns that are worth more than they cost.
            worth, fresh = np.zeros(len(self.costs)), False
            for kind, (pricing, own) in enumerate(zip(self.pricings, self.fitting, strict=True)):
                if not len(own):
                    continue
                allowed = self.costs[kind] + prices.limits.get(kind, 0.0)
                # Rounded up, so that the worth of a bin is never understated.
                scaled = np.ceil(prices.cover[own] / allowed * PRICE_SCALE).astype(np.int64)
                most = pricing.most_worth(scaled)
                if most is None:
                    fresh = False
                    break
                worth[kind] = most / PRICE_SCALE * allowed
                for pattern in pricing.valuable(scaled):
                    whole = np.zeros(len(self.sizes), dtype=np.int64)
                    whole[own] = pattern
                    fresh = self.add(kind, whole) or fresh
            else:
                free = [kind for kind in range(len(self.costs)) if kind not in self.limits and worth[kind] > 0]
                share = min([1.0, *(self.costs[kind] / worth[kind] for kind in free)])
                taken = sum(
                    most * max(0.0, share * worth[kind] - self.costs[kind]) for kind, most in self.limits.items()
                )
                value = share * float(prices.cover @ self.demand) - taken
                bound = max(bound, math.ceil(value / self.step - _MARGIN) * self.step)
                if bound >= math.ceil(prices.objective / self.step - _MARGIN) * self.step:
                    break
        table = self._table()
        left = self.deadline.left
        answer = solve_program(table, at_most=at_most, seconds=left) if left else None
        unused = np.zeros(len(table.kinds), dtype=np.int64)
        values = unused if answer is None or answer.values is None else answer.values
        rows = np.repeat(np.arange(len(values)), values)
        patterns = np.array(list(self._columns.values()), dtype=np.int64)[rows]
        return FleetPacking(patterns, table.kinds[rows], bound)


# Search for a plan with a given number of bins and a small risk: which class goes where, by annealing.
#
# This is for bins with many items, which have too many patterns to list. The search uses only means and variances (a
# sum of many items is nearly normal), which change by a few additions with each step; the caller computes the true
# probabilities of the result. Nothing is proved here.


STEPS_PER_ITEM = 4000
MAX_STEPS = 3_000_000
PIECE_STEPS = 200_000  # between two looks at the clock


def mix_classes(
    classes: Sequence[ClassSizes],
    caps: IntArray,
    capacities: IntArray,
    *,
    seed: int,
    steps: int,
    deadline: Deadline = NEVER,
) -> IntArray | None:
    """Spread the items of classes over bins so that every bin is likely to fit; None if the caps leave no room."""
    sizes = np.array([sizes_of.count for sizes_of in classes], dtype=np.int64)
    room = np.asarray(capacities, dtype=np.float64)
    unit = np.maximum(room.max(axis=0), 1.0)
    moments = [sizes_of.moments() for sizes_of in classes]
    mean = np.array([mean / unit for mean, _ in moments])
    spread = np.array([variance / unit**2 for _, variance in moments])
    generator = np.random.default_rng(seed)
    if (caps * len(room) < sizes).any():
        return None
    # Put items, largest classes first, each into the bin with most room that may still take one of its class.
    start = np.zeros((len(room), len(sizes)), dtype=np.int64)
    left = room / unit
    for kind in np.argsort(-mean.max(axis=1), kind="stable").tolist():
        for _ in range(int(sizes[kind])):
            open_ = np.flatnonzero(start[:, kind] < caps[kind])
            rooms = left[open_].min(axis=1) + generator.random(len(open_)) * 1e-3
            bin_ = int(open_[np.argmax(rooms)])
            start[bin_, kind] += 1
            left[bin_] -= mean[kind]
    state = np.array([generator.integers(2**62)], dtype=np.uint64) | np.uint64(1)
    best, totals = start.copy(), np.zeros(2)
    loads, variances, costs = np.zeros(left.shape), np.zeros(left.shape), np.zeros(len(room))
    for first in range(0, steps, PIECE_STEPS):
        if deadline.late:
            break
        _anneal(
            (start, best, loads, variances, costs, totals, state),
            (mean, spread, sizes, caps, room / unit),
            first,
            min(first + PIECE_STEPS, steps),
            steps,
        )
    return best


@kernel
def _anneal(state: Any, problem: Any, first: int, last: int, steps: int) -> None:
    """Move and swap items between bins, and accept a worse state now and then; some of all steps."""
    # The variance of n items of m without replacement is n (m - n) / m times that of the class: one item more or less
    # changes it by (m - 2 n - 1) / m or -(m - 2 n + 1) / m.
    counts, best, load, variance, cost, totals, words = state
    mean, spread, sizes, caps, room = problem
    bins, kinds = counts.shape
    resources = mean.shape[1]
    word = words[0]
    root_two = math.sqrt(2.0)
    if first == 0:
        for b in range(bins):
            for r in range(resources):
                for k in range(kinds):
                    load[b, r] += counts[b, k] * mean[k, r]
                    variance[b, r] += counts[b, k] * (sizes[k] - counts[b, k]) / sizes[k] * spread[k, r]
                gap = room[b, r] - load[b, r]
                sigma = math.sqrt(max(variance[b, r], 1e-12))
                cost[b] += 0.5 * math.erfc(gap / sigma / root_two) + max(0.0, -gap) * 20.0
        totals[0] = cost.sum()
        totals[1] = totals[0]
    total, least = totals[0], totals[1]
    pair, new_cost, draw = np.zeros(2, np.int64), np.zeros(2), np.zeros(5)
    new_load, new_variance = np.zeros((2, resources)), np.zeros((2, resources))
    for step in range(first, last):
        for i in range(5):  # xorshift
            word ^= word << np.uint64(13)
            word ^= word >> np.uint64(7)
            word ^= word << np.uint64(17)
            draw[i] = (word >> np.uint64(11)) * (1.0 / 9007199254740992.0)
        a, b, give = int(draw[0] * bins), int(draw[1] * bins), int(draw[2] * kinds)
        back = int(draw[3] * (kinds + 1)) - 1  # -1: nothing comes back
        if a == b or give == back or counts[a, give] == 0 or counts[b, give] >= caps[give]:
            continue
        if back >= 0 and (counts[b, back] == 0 or counts[a, back] >= caps[back]):
            continue
        pair[0], pair[1] = a, b
        for i in range(2):
            here, less, more = pair[i], (give, back)[i], (back, give)[i]
            new_cost[i] = 0.0
            for r in range(resources):
                new_load[i, r], new_variance[i, r] = load[here, r], variance[here, r]
                if less >= 0:
                    new_load[i, r] -= mean[less, r]
                    shift = sizes[less] - 2 * counts[here, less] + 1
                    new_variance[i, r] -= shift / sizes[less] * spread[less, r]
                if more >= 0:
                    new_load[i, r] += mean[more, r]
                    shift = sizes[more] - 2 * counts[here, more] - 1
                    new_variance[i, r] += shift / sizes[more] * spread[more, r]
                gap = room[here, r] - new_load[i, r]
                sigma = math.sqrt(max(new_variance[i, r], 1e-12))
                new_cost[i] += 0.5 * math.erfc(gap / sigma / root_two) + max(0.0, -gap) * 20.0
        change = new_cost[0] + new_cost[1] - cost[a] - cost[b]
        heat = 0.1 * (1.0 - step / steps) ** 2 + 1e-7
        if change > 0.0 and change > -heat * math.log(max(1e-12, draw[4])):
            continue
        for i in range(2):
            cost[pair[i]] = new_cost[i]
            load[pair[i]], variance[pair[i]] = new_load[i], new_variance[i]
        counts[a, give] -= 1
        counts[b, give] += 1
        if back >= 0:
            counts[b, back] -= 1
            counts[a, back] += 1
        total += change
        if total < least - 1e-12:
            least = total
            best[:] = counts
    totals[0], totals[1], words[0] = total, least, word


Progress = Callable[[str, int, int], None]

EXACT_WORK = 3 * 10**8
FINE_CELLS = 5000
COARSE_CELLS = 1500
MAX_REFINEMENTS = 200
COARSE_WORK = 2 * 10**9
BOUND_SECONDS = 2.0
SEARCHES = 8
MAX_SEARCHED = 2000
MAX_LISTED_SUMS = 20_000_000
MAX_FILLINGS = 300
COMBINE_SECONDS = 5.0
LONG_EFFORT = 6
ROUNDED_SIZES = 300
SPARE_ROOM = (0.0, 0.005, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15)
_FIRST_SEARCHES = 3
_MANY_ITEMS = 4.0
_BORDER = 1e-9
_WORK_PER_SECOND = 2.5e8
_SECONDS_PER_ITEM = 5e-6  # of the quickest packing, which is not worth while for a bound that has less time


@dataclass(frozen=True, kw_only=True)
class BinKind:
    """A kind of bin; a :class:`ChancePacker` takes only whole costs, :func:`pack_vectors` also fractions."""

    capacity: tuple[int, ...]  # for each resource
    cost: int | Fraction = 1
    count: int | None = None  # None: any number


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassPacking:
    counts: IntArray  # Shape: (bins, classes)
    kinds: IntArray  # kind of each bin
    cost: int  # cost, bound: cost of the bins, and a lower bound for any plan; their number if every kind costs 1
    bound: int
    at_least: float  # at_least, at_most: bounds on the probability that every bin fits
    at_most: float


@dataclass
class _PlanSearch:
    deadline: Deadline
    progress: Progress | None
    plan: ClassPacking | None = None
    bound: int = 0

    @property
    def done(self) -> bool:
        return self.deadline.late or (self.plan is not None and self.plan.cost <= self.bound)

    def work(self, most: int) -> int:
        """Return how many steps of a walk the time allows, up to a limit."""
        return min(most, int(self.deadline.left / 2 * _WORK_PER_SECOND))

    def offer(self, plan: ClassPacking | None) -> None:
        if plan is not None and (self.plan is None or plan.cost < self.plan.cost):
            self.plan = plan
            self._tell("plan")

    def raise_bound(self, bound: int) -> None:
        most = bound if self.plan is None else min(bound, self.plan.cost)
        if most > self.bound:
            self.bound = most
            self._tell("bound")

    def _tell(self, stage: str) -> None:
        if self.progress is not None and self.plan is not None:
            self.progress(stage, self.plan.cost, self.bound)


def _fitting(table: IntArray, rooms: IntArray) -> IntArray:
    """Return how many items fit into each of some rooms, if ``table`` has their sums by number. Shape: rooms."""
    numbers = [np.searchsorted(sums, room, side="right") for sums, room in zip(table.T, rooms.T, strict=True)]
    return np.asarray(np.min(numbers, axis=0) - 1, dtype=np.int64)


class ChancePacker:
    """One packing problem on classes: solved by :meth:`solve`, plans weighed by :meth:`weighed`."""

    def __init__(
        self,
        classes: Sequence[ClassSizes],  # the members or ends of each class
        caps: IntArray,  # largest number of items of each class in a bin
        kinds: Sequence[BinKind],
        *,
        risk: Fraction,  # largest probability that not everything fits, as a fraction: at least 0, below 1
        bound_risk: Fraction | None = None,  # the same for the bound, if these classes are a part of more
        groups: IntArray | None = None,
        seed: int = 0,  # of the searches
    ) -> None:
        self.classes, self.caps, self.kinds = list(classes), np.asarray(caps, dtype=np.int64), list(kinds)
        self.costs = [int(kind.cost) for kind in kinds]
        self.exact_risk, self.risk, self.seed = risk, float(risk), seed
        self.exact_bound_risk = risk if bound_risk is None else bound_risk
        self.bound_risk = float(self.exact_bound_risk)
        self.demand = np.array([sizes_of.count for sizes_of in classes], dtype=np.int64)
        self.groups = np.zeros(len(self.classes), dtype=np.int64) if groups is None else np.asarray(groups)
        self.members = [np.flatnonzero(self.groups == group) for group in np.unique(self.groups)]
        self.worst = [sizes_of.largest(sizes_of.count) for sizes_of in self.classes]
        self.chances = [Chances(self.classes, np.array(kind.capacity), self.worst) for kind in kinds]
        self.members_known = all(isinstance(sizes_of, Members) for sizes_of in classes)
        self.product_holds = self.members_known and len(kinds[0].capacity) == 1

    def weighed(self, counts: IntArray, kinds: IntArray, deadline: Deadline | None = None) -> tuple[float, float]:
        """Return bounds on the probability that every bin fits; wider if time is up before all are computed."""
        if deadline is not None:
            self._limit(deadline)
        every = [self.chances[kind].fits(line) for line, kind in zip(counts, kinds.tolist(), strict=True)]
        failing = math.fsum(1 - low + ROUNDING for low, _ in every if low < 1)
        highs = [high for _, high in every]
        most = math.prod(highs) if self.product_holds else min(highs, default=1.0)
        return max(0.0, 1.0 - failing), min(1.0, most + ROUNDING * (most < 1))

    def _limit(self, deadline: Deadline) -> None:
        for chances in self.chances:
            chances.deadline = deadline

    def planned(self, counts: IntArray, kinds: IntArray) -> ClassPacking | None:
        at_least, at_most = self.weighed(counts, kinds)
        if at_least < 1.0 - self.risk:
            # One choice of twenty meets a risk of 1 in 20 exactly: then only fractions can decide.
            if at_least < 1.0 - self.risk - _BORDER:
                return None
            failing = Fraction(0)
            for line, kind in zip(counts, kinds.tolist(), strict=True):
                chances = self.chances[kind]
                fits = Fraction(1) if chances.surely(line) else None if chances.deadline.late else chances.exactly(line)
                if fits is None:
                    return None
                failing += 1 - fits
            if failing > self.exact_risk:
                return None
            # The largest double that is not above a fraction.
            value = 1 - self.exact_risk
            near = float(value)
            at_least = near if Fraction(near) <= value else math.nextafter(near, -math.inf)
        cost = sum(self.costs[kind] for kind in kinds.tolist())
        return ClassPacking(counts=counts, kinds=kinds, cost=cost, bound=0, at_least=at_least, at_most=at_most)

    def solve(
        self,
        *,
        seconds: float = math.inf,
        deadline: Deadline = NEVER,
        progress: Progress | None = None,  # called with stage, cost and bound whenever one improves
        aim: int | None = None,
        start: tuple[IntArray, IntArray] | None = None,  # counts and kinds of a first plan
    ) -> ClassPacking | None:
        """Return the cheapest plan within the time limit, with a bound; None without a plan."""
        search = _PlanSearch(min(deadline, Deadline.after(seconds)), progress)
        self._limit(search.deadline)
        search.offer(None if start is None else self.planned(*start))
        if search.plan is None:
            search.offer(self.greedy())
        bounds = PartBounds([0] * len(self.members), aim or 0)
        if aim is None:  # bound the cost by the smallest possible sizes of the items, and by the caps of classes
            limit = search.deadline.part(1 / 4, most=BOUND_SECONDS)
            bounds = bound_parts(*self._parts(), self.kinds, self.costs, limit)
        search.raise_bound(bounds.total)
        if search.done:
            return self._answer(search)
        # Groups share only the risk and limited bins. Without these, or if they are large, each is solved by itself.
        shared = self.risk > 0 or any(kind.count is not None for kind in self.kinds)
        if len(self.members) > 1 and (not shared or int(self.demand.sum()) > MAX_SEARCHED):
            self._apart(search, bounds)
            return self._answer(search)
        if aim is None and len(self.members) == 1 and (self.caps < self.demand).any():
            self._spread(search)
            if search.done:
                return self._answer(search)
        # How many items of mean size the largest bin takes.
        means = np.array([sizes_of.moments()[0] for sizes_of in self.classes])
        mean = (means * self.demand[:, None]).sum(axis=0) / self.demand.sum()
        room = np.max([kind.capacity for kind in self.kinds], axis=0)
        if float((room / np.maximum(mean, 1e-9)).min()) > _MANY_ITEMS:
            search.offer(self._whole_classes(search.deadline.part(1 / 8, most=BOUND_SECONDS).left))
            self._search(search, searches=_FIRST_SEARCHES, stop=1)
            if len(self.kinds) > 1:  # there are few choices of bins, and the first that works is usually cheap
                self._search(search, searches=1)
        if search.done:
            return self._answer(search)
        listings = self._listings(search, EXACT_WORK, step=1, upward=True) if self.members_known else None
        if listings is None and len(self.kinds[0].capacity) > 1:
            for resource in (-1, *range(len(self.kinds[0].capacity))):
                if not search.done:
                    search.offer(self.greedy(resource=resource))
        if listings is not None:
            if not self._cover(search, listings, listings):
                return None
        elif self._is_plain:
            self._solve_plain(search)
        elif len(self.members) > 1:
            self._apart(search, bounds)
            self._combine(search)
        else:
            self._search(search, searches=SEARCHES)
            self._search(search, searches=2 * SEARCHES, stop=1, effort=LONG_EFFORT)
            self._cover_coarsely(search)
            self._combine(search)
        return self._answer(search)

    @property
    def _is_plain(self) -> bool:
        one = len(self.kinds[0].capacity) == 1 and len(self.members) == 1 and len(self.classes) <= MAX_SIZES
        return (one and not (self.caps < self.demand).any()) and all(
            isinstance(own, Members) and (own.values == own.values[0]).all() and own.values[0, 0] > 0
            for own in self.classes
        )

    def _solve_plain(self, search: _PlanSearch) -> None:
        """Pack equal sizes of one resource: fill bins of one kind after another, then generate patterns."""
        sizes = np.array([int(sizes_of.smallest(1)[1, 0]) for sizes_of in self.classes])
        rooms, counts = [kind.capacity[0] for kind in self.kinds], [kind.count for kind in self.kinds]
        class_of = np.repeat(np.arange(len(sizes)), self.demand)
        for bins, kinds in fill_then_pack(sizes[class_of], rooms, self.costs, counts, deadline=search.deadline):
            if search.done:
                break
            lines = [np.bincount(class_of[bin_], minlength=len(sizes)) for bin_ in bins]
            search.offer(self.planned(np.array(lines, dtype=np.int64), np.array(kinds, dtype=np.int64)))
        order = np.argsort(-sizes, kind="stable")
        pricing = FleetPricing(sizes[order], self.demand[order], rooms, self.costs, counts, deadline=search.deadline)
        limit = None
        if search.plan is not None:
            limit = search.plan.cost - pricing.step
            for line, kind in zip(search.plan.counts, search.plan.kinds.tolist(), strict=True):
                pricing.add(kind, line[order])
        packing = pricing.solve(at_most=limit)
        search.raise_bound(packing.bound)
        if len(packing.kinds):
            patterns = np.empty_like(packing.patterns)
            patterns[:, order] = packing.patterns
            search.offer(self.planned(*without_surplus(patterns, packing.kinds, self.demand)))

    def _spread(self, search: _PlanSearch) -> None:
        """Bound and plan classes that are spread: a small program chooses the bins, which are then filled evenly."""
        low = np.array([sizes_of.smallest(1)[1] for sizes_of in self.classes], dtype=np.float64)
        high = np.array([table[1] for table in self.worst], dtype=np.float64)
        rooms, price = (
            np.array([kind.capacity for kind in self.kinds], dtype=np.float64),
            np.array(self.costs, dtype=float),
        )
        counts, step, before = [kind.count for kind in self.kinds], math.gcd(*self.costs), None
        # Seeded, outside noise: no privacy depends on it, as the package says
        generator = np.random.default_rng(self.seed)
        for share in (None, *SPARE_SHARES):  # first the bound, then with room to spare, because bins are never all full
            sizes = low if share is None else high * (1 + share)
            if search.done or not affordable(left := search.deadline.left):
                return
            bins, bound = spread_bins(sizes, self.demand, self.caps, rooms, price, counts, seconds=left)
            if share is None:
                search.raise_bound(math.ceil(bound / step - _MARGIN) * step)
            if bins is None or bins[0].tolist() == before:
                continue
            before = bins[0].tolist()
            if search.plan is not None and int(bins[0] @ price) >= search.plan.cost:
                return
            for turn in range(EVEN_FILLS):
                plan = self._fill_evenly(np.repeat(np.arange(len(self.kinds)), bins[0]), turn, generator)
                if plan is not None:
                    search.offer(plan)
                    return

    def _fill_evenly(self, kinds: IntArray, turn: int, generator: np.random.Generator) -> ClassPacking | None:
        """Give the items of each class, largest first, one after another to the bins with most room; None if full."""
        rooms = np.array([self.kinds[kind].capacity for kind in kinds.tolist()], dtype=np.int64)
        unit = rooms.max(axis=0) if turn % 2 == 0 else rooms  # room as such, or as a share of the bin's own
        counts = np.zeros((len(kinds), len(self.classes)), dtype=np.int64)
        weight = np.array([(table[1] / np.maximum(rooms.max(axis=0), 1)).max() for table in self.worst])
        for number in np.argsort(
            -weight * generator.uniform(1 - 0.1 * (turn // 2), 1, len(weight)), kind="stable"
        ).tolist():
            table, left = self.worst[number], int(self.demand[number])
            for taken in range(int(self.caps[number])):
                more = table[taken + 1] - table[taken]
                able = np.flatnonzero((counts[:, number] == taken) & (rooms >= more).all(axis=1))
                order = np.argsort(
                    -(rooms[able] / np.maximum(unit if turn % 2 == 0 else unit[able], 1)).min(axis=1), kind="stable"
                )
                into = able[order[:left]]
                counts[into, number] += 1
                rooms[into] -= more
                left -= len(into)
                if not left:
                    break
            if left:
                return None
        used = counts.any(axis=1)
        return self.planned(counts[used], kinds[used])

    def _apart(self, search: _PlanSearch, bounds: PartBounds) -> None:
        """Solve each group separately: their bounds add up, and what one leaves of risk and bins goes to others."""
        unlimited, whole = all(kind.count is None for kind in self.kinds), search.plan
        left = np.array([kind.count or 0 for kind in self.kinds], dtype=np.int64)
        spare, num, plans = self.exact_risk, len(self.members), dict[int, ClassPacking]()

        def solve(number: int, stop: Deadline, before: ClassPacking | None) -> ClassPacking:
            nonlocal spare, left
            own, start, waiting = self.members[number], None, num - number
            limits = [left] if bounds.allotted is None else [np.minimum(bounds.allotted[number], left), left]
            risk = spare / waiting
            if before is not None:
                own_risk = Fraction(1 - before.at_least)
                spare, left = spare + own_risk, left + np.bincount(before.kinds, minlength=len(left))
                risk = own_risk + (spare - own_risk) / sum(plan.cost > plan.bound for plan in plans.values())
                start, limits = (before.counts, before.kinds), [left]
            elif whole is not None and unlimited:
                bins = np.flatnonzero(whole.counts[:, own].any(axis=1))
                start = whole.counts[bins][:, own], whole.kinds[bins]
            plan = None
            for most in limits[:1] if unlimited else limits:  # first the bins that the program by totals gave it
                if plan is None:
                    kinds = zip(self.kinds, most.tolist(), strict=True)
                    plan = ChancePacker(
                        [self.classes[i] for i in own.tolist()],
                        self.caps[own],
                        [kind if kind.count is None else replace(kind, count=count) for kind, count in kinds],
                        risk=max(risk, Fraction(0)),
                        bound_risk=self.exact_bound_risk,
                        seed=self.seed + (before is not None),
                    ).solve(deadline=stop, start=start)
            if before is not None and (plan is None or plan.cost >= before.cost):
                plan = replace(before, bound=before.bound if plan is None else plan.bound)
            if plan is None:
                raise NoPlanError("a group does not fit into the bins that are left.")
            spare, left = spare - Fraction(1 - plan.at_least), left - np.bincount(plan.kinds, minlength=len(left))
            # A group that has all bins to itself may need less than with those that others leave.
            least = max(plan.bound if unlimited else 0, bounds.each[number], 0 if before is None else before.bound)
            plans[number] = replace(plan, bound=min(least, plan.cost))
            return plans[number]

        with contextlib.suppress(NoPlanError):
            solve_in_turn(num, solve, lambda plan: plan.cost - plan.bound, search.deadline)
            counts = np.zeros((sum(len(plan.kinds) for plan in plans.values()), len(self.classes)), dtype=np.int64)
            ends = np.cumsum([len(plans[number].kinds) for number in range(num)])
            for number, own in enumerate(self.members):
                counts[ends[number] - len(plans[number].kinds) : ends[number], own] = plans[number].counts
            search.offer(self.planned(counts, np.concatenate([plans[number].kinds for number in range(num)])))
            search.raise_bound(sum(plan.bound for plan in plans.values()))

    def _answer(self, search: _PlanSearch) -> ClassPacking | None:
        return None if search.plan is None else replace(search.plan, bound=min(search.bound, search.plan.cost))

    def greedy(self, generator: np.random.Generator | None = None, resource: int | None = None) -> ClassPacking | None:
        """Put items, largest share of a bin first, into the first bin where everything still certainly fits."""
        # The share is the largest of any resource, or that of one, or of all together (-1). New bins are of the kind
        # with the least cost for its capacity; then each is exchanged for the cheapest kind that still takes its items.
        # With a generator, sizes and values of kinds vary a little.
        largest = self.worst
        capacities = np.array([kind.capacity for kind in self.kinds], dtype=np.int64)
        scale = np.maximum(capacities.max(axis=0), 1).astype(np.float64)
        shares = np.array([table[1] for table in largest]) / scale
        by_class = (
            shares.max(axis=1) if resource is None else shares.sum(axis=1) if resource < 0 else shares[:, resource]
        )
        weight = np.repeat(by_class, self.demand)
        values = [
            cost / max(float(line.mean()), 1e-9) for cost, line in zip(self.costs, capacities / scale, strict=True)
        ]
        preferred = np.argsort(values, kind="stable").tolist()
        if generator is not None:
            weight = weight * generator.uniform(0.7, 1.3, len(weight))
            preferred = generator.permutation(len(self.kinds)).tolist()
        left = [math.inf if kind.count is None else kind.count for kind in self.kinds]
        kinds: list[int] = []
        contents: list[dict[int, int]] = []
        rooms = np.zeros((64, capacities.shape[1]), dtype=np.int64)  # of the bins so far, and of some to come
        of_group: dict[int, list[int]] = {}  # only the last bins of a group are tried, for speed
        class_of = np.repeat(np.arange(len(self.classes)), self.demand)[np.argsort(-weight, kind="stable")]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(class_of)) + 1])
        # Items of a class that follow each other are put together: a bin that refuses one refuses the others too.
        for class_, number in zip(
            class_of[starts].tolist(), np.diff(starts, append=len(class_of)).tolist(), strict=True
        ):
            group, table, cap = int(self.groups[class_]), largest[class_], int(self.caps[class_])
            bins = np.array(of_group.get(group, [])[-OPEN_BINS:], dtype=np.int64)
            if len(bins):
                taken = np.array([contents[bin_].get(class_, 0) for bin_ in bins.tolist()])
                most = np.maximum(np.minimum(_fitting(table, rooms[bins] + table[taken]), cap) - taken, 0)
                before = np.cumsum(most) - most
                given = np.clip(number - before, 0, most)
                rooms[bins] -= table[taken + given] - table[taken]
                for at in np.flatnonzero(given).tolist():
                    contents[int(bins[at])][class_] = int(taken[at] + given[at])
                number -= int(given.sum())
            while number:
                able = (kind for kind in preferred if left[kind] > 0 and (table[1] <= capacities[kind]).all())
                kind = next(able, None)
                if kind is None:
                    return None
                left[kind] -= 1
                if len(kinds) == len(rooms):
                    rooms = np.concatenate([rooms, np.zeros_like(rooms)])
                into = max(1, min(number, cap, int(_fitting(table, capacities[kind : kind + 1])[0])))
                rooms[len(kinds)] = capacities[kind] - table[into]
                of_group.setdefault(group, []).append(len(kinds))
                contents.append({class_: into})
                kinds.append(kind)
                number -= into
        loads = capacities[kinds] - rooms[: len(kinds)]
        use_cheaper_kinds(kinds, loads, capacities, self.costs, [kind.count for kind in self.kinds])
        counts = np.zeros((len(kinds), len(largest)), dtype=np.int64)
        for bin_, content in enumerate(contents):
            for class_, number in content.items():
                counts[bin_, class_] = number
        return self.planned(counts, np.array(kinds, dtype=np.int64))

    def _combine(self, search: _PlanSearch) -> None:
        """Fill bins greedily in many random orders, and choose the cheapest cover among all bins met."""
        if search.done or int(self.demand.sum()) > MAX_SEARCHED:
            return
        # Seeded, outside noise: no privacy depends on it, as the package says
        generator = np.random.default_rng(self.seed)
        stop = search.deadline.part(1 / 2, most=COMBINE_SECONDS)
        pool: dict[tuple[int, bytes], IntArray] = {}
        plan = search.plan
        for _ in range(MAX_FILLINGS):
            for line, kind in zip(plan.counts, plan.kinds.tolist(), strict=True) if plan is not None else ():
                pool[kind, line.tobytes()] = line
            if stop.late or search.done:
                break
            plan = self.greedy(generator)
            search.offer(plan)
        seconds = search.deadline.part(most=COMBINE_SECONDS).left
        if search.done or not pool or not seconds:
            return
        kinds = np.array([kind for kind, _ in pool], dtype=np.int64)
        patterns = np.array(list(pool.values()), dtype=np.int64)
        limits = {kind: bins.count for kind, bins in enumerate(self.kinds) if bins.count is not None}
        table = CoverTable(csr(patterns), self.demand, np.array(self.costs, dtype=np.float64)[kinds], kinds, limits)
        goal = None if search.plan is None else search.plan.cost - math.gcd(*self.costs)
        answer = solve_program(table, at_most=goal, seconds=seconds)
        if answer.values is not None:
            rows = np.repeat(np.arange(len(kinds)), answer.values)
            search.offer(self.planned(*without_surplus(patterns[rows], kinds[rows], self.demand)))

    def _listings(
        self, search: _PlanSearch, most_work: int, *, step: int, upward: bool, least: int = 0
    ) -> list[PatternList] | None:
        listings: list[PatternList] = []
        share = search.work(most_work) // len(self.kinds) // len(self.members)
        for kind in self.kinds:
            parts = []
            for own in self.members:
                part = self._listed(kind, own, step, upward, share, least, search.deadline)
                if part is None:
                    return None
                parts.append((part, own))
            listings.append(PatternList.together(parts, len(self.classes)))
        return listings

    def _listed(
        self, kind: BinKind, own: IntArray, step: int, upward: bool, work: int, least: int, deadline: Deadline
    ) -> PatternList | None:
        """List the patterns of a group of classes for one kind of bin; None if too many, unknown, or time is up."""
        capacity = np.array(kind.capacity)
        listed, draws, num_sums = [], [], 0
        for number in own.tolist():
            sizes = self.classes[number]
            smallest = sizes.smallest(min(int(self.caps[number]), sizes.count))
            most = int((smallest <= capacity).all(axis=1).sum()) - 1  # that a bin can take
            if self.bound_risk == 0:  # then only the largest members matter
                lines = sizes.largest(most)
                draws.append([SumLaw.certain(-(-line // step) if upward else line // step) for line in lines])
            elif (sums := sizes.draws(most, None, step, upward, deadline)) is None:
                return None
            else:
                draws.append(sums)
            listed.append((sizes, most))
            num_sums += sum(len(law.values) for law in draws[-1])
            if num_sums > MAX_LISTED_SUMS or deadline.late:
                return None
        slack = 0
        if step > 1:  # how many items a bin can take at most, of one resource
            slack = int((self._smallest_sums <= capacity[0]).sum())
        # A pattern that certainly fits stands for everything it contains, so its largest sums are always rounded up.
        return list_patterns(
            draws,
            [-(-sizes.largest(most) // step) for sizes, most in listed],
            capacity // step,
            most_risk=self.bound_risk,
            least=least // step,
            slack=slack,
            most_patterns=MAX_PATTERNS // len(self.kinds) // len(self.members) + 1000,
            most_work=work,
            deadline=deadline,
        )

    @functools.cached_property
    def _smallest_sums(self) -> IntArray:
        """The smallest sums of 1, 2, ... items of the first resource, whatever their classes."""
        sizes = np.concatenate([np.diff(sizes.smallest(sizes.count)[:, 0]) for sizes in self.classes])
        return np.cumsum(np.sort(sizes))

    def _program(self, listings: Sequence[PatternList]) -> CoverProgram:
        every = zip(listings, self.costs, self.kinds, strict=True)
        return CoverProgram(self.demand, [KindPatterns(listing, cost, kind.count) for listing, cost, kind in every])

    def _cover(
        self, search: _PlanSearch, safe: Sequence[PatternList] | None, hopeful: Sequence[PatternList] | None
    ) -> bool:
        """Solve the program over safe risks and that over hopeful ones; return whether a plan may exist."""
        if hopeful is not None and not search.done and not self._necessary(search, self._program(hopeful)):
            return False
        if safe is not None:
            program = self._program(safe)
            # First without a margin, for plans that meet the risk exactly; those that then fail in fractions need one.
            for margin in (0.0, 2 * ROUNDING):
                if not search.done:
                    use = np.where(program.risk > 0, program.risk + margin, 0.0) if self.risk > 0 else None
                    budget = self.risk + (0.0 if margin else _BORDER)
                    limit = math.inf if search.plan is None else float(search.plan.cost)
                    deadline = search.deadline if margin else search.deadline.part(1 / 2)
                    cover = program.solve(
                        deadline=deadline,
                        use=use,
                        budget=budget,
                        at_most=limit,
                        known_bound=search.bound,
                        usable=program.risk == 0 if margin and self.risk == 0 else None,
                    )
                    if cover.cost is not None:
                        search.offer(self.planned(cover.patterns, cover.kinds))
        return True

    def _necessary(self, search: _PlanSearch, program: CoverProgram) -> bool:
        """Raise the bound by the necessary program; return whether a plan may exist."""
        risk = program.risk.copy()
        deadline = search.deadline.part(1 / 2)
        for _ in range(MAX_REFINEMENTS):
            least = np.maximum(risk - ROUNDING, 0.0)
            limit = math.inf if search.plan is None else float(search.plan.cost)
            cover = program.solve(
                deadline=deadline,
                use=-np.log1p(-least) if self.product_holds and self.bound_risk > 0 else None,
                budget=-math.log1p(-self.bound_risk) * (1 + 1e-9) + 1e-12,
                at_most=limit,
                known_bound=search.bound,
                usable=risk <= self.bound_risk + ROUNDING,
            )
            if cover.bound is None and search.plan is None:
                return False
            # Nothing covers with the loads that one bin fewer would need.
            search.raise_bound(int(limit) if cover.bound is None else cover.bound)
            if cover.cost is not None:
                search.offer(self.planned(cover.patterns, cover.kinds))
            if cover.cost is None or search.done or deadline.late:
                break
            before = risk[cover.rows].copy()
            for row in np.unique(cover.rows).tolist():
                pattern = np.asarray(program.matrix[row].toarray()).ravel().astype(np.int64)
                risk[row] = max(risk[row], 1.0 - self.chances[int(program.kind[row])].fits(pattern.tolist())[1])
            if not (risk[cover.rows] > before + ROUNDING).any():
                break
        return True

    def _search(self, search: _PlanSearch, *, searches: int, stop: int | None = None, effort: int = 1) -> None:
        """Search plans with cheap bins, from the bound upward; ``stop`` is how many choices of bins to try."""
        large = int(self.demand.sum()) > MAX_SEARCHED
        if len(self.members) > 1 or large or search.done:
            return
        steps = min(effort * STEPS_PER_ITEM * int(self.demand.sum()), MAX_STEPS)
        rooms = np.array([kind.capacity for kind in self.kinds], dtype=np.int64)
        for kinds in itertools.islice(self._choices(search), stop):
            room = rooms[kinds]
            for attempt in range(searches):
                if search.deadline.late:
                    return
                seed = self.seed * SEARCHES + attempt + 1000 * effort
                counts = mix_classes(self.classes, self.caps, room, seed=seed, steps=steps, deadline=search.deadline)
                if counts is None:
                    continue
                used = counts.any(axis=1)
                plan = self.planned(counts[used], kinds[used])
                if plan is not None:
                    search.offer(plan)
                    return

    def _choices(self, search: _PlanSearch) -> Iterator[IntArray]:
        """Yield the kinds of bins that could be enough, cheapest first: for several kinds with more and more room."""
        cost = math.inf if search.plan is None else search.plan.cost
        if len(self.kinds) == 1:
            most = int(self.demand.sum()) if self.kinds[0].count is None else self.kinds[0].count
            last = most + 1 if search.plan is None else len(search.plan.kinds)
            for number in range(max(1, search.bound // self.costs[0]), last):
                yield np.zeros(number, dtype=np.int64)
            return
        before: list[int] = []
        for share in SPARE_ROOM:
            parts, fewest = self._parts()
            needs = _needs(parts[0], fewest[0], self.kinds, 1 + share)
            if not affordable(left := search.deadline.left):
                return
            counts = [kind.count for kind in self.kinds]
            price = np.array(self.costs, dtype=np.float64)
            bins = least_bins(needs, price, counts, None, seconds=left).bins
            if bins is not None and bins[0].tolist() != before and int(bins[0] @ price) < cost:
                before = bins[0].tolist()
                yield np.repeat(np.arange(len(self.kinds)), bins[0])

    def _parts(self) -> tuple[list[IntArray], list[int]]:
        """Return the smallest possible sizes of the items of each group, and how many bins its caps take."""
        parts, fewest = [], []
        for own in self.members:
            tables = [self.classes[number].smallest(self.classes[number].count) for number in own.tolist()]
            parts.append(np.concatenate([np.diff(table, axis=0) for table in tables]).astype(np.int64))
            fewest.append(int((-(-self.demand[own] // np.maximum(self.caps[own], 1))).max()))
        return parts, fewest

    def _whole_classes(self, seconds: float) -> ClassPacking | None:
        """Keep every class together in one bin, so that nothing is left to chance; None if that is impossible."""
        single = len(self.kinds) == 1 and len(self.kinds[0].capacity) == 1 and len(self.members) == 1
        totals = np.array([sizes_of.largest(sizes_of.count)[-1, 0] for sizes_of in self.classes])
        if not single or (self.caps < self.demand).any() or int(totals.max()) > self.kinds[0].capacity[0]:
            return None
        bins = pack_bins(totals, self.kinds[0].capacity[0], seconds=seconds).bins
        counts = np.zeros((len(bins), len(totals)), dtype=np.int64)
        for number, content in enumerate(bins):
            counts[number, content] = self.demand[content]
        if self.kinds[0].count is not None and len(bins) > self.kinds[0].count:
            return None
        return self.planned(counts, np.zeros(len(bins), dtype=np.int64))

    def _cover_coarsely(self, search: _PlanSearch) -> None:
        """List patterns with sizes rounded to a coarse grid: down for the bound, up for plans."""
        if search.done or len(self.kinds[0].capacity) > 1:
            return
        room, least = min(kind.capacity[0] for kind in self.kinds), 0
        if search.plan is not None and len(self.kinds) == 1 and self.members_known:
            # The smallest load of every bin, up to the risk, if one bin fewer than now is to be enough. All items
            # together always weigh the same: if the other bins fit, this one has what they cannot take.
            total = sum(int(sizes_of.largest(sizes_of.count)[-1, 0]) for sizes_of in self.classes)
            least = max(0, total - (len(search.plan.kinds) - 2) * self.kinds[0].capacity[0])
        for cells in (FINE_CELLS, COARSE_CELLS):
            if search.done:
                return
            step = max(1, room // cells)
            hopeful = self._listings(search, COARSE_WORK, step=step, upward=False, least=least)
            if hopeful is not None:
                self._cover(search, None, hopeful)
                break
        if not search.done:
            step = max(1, room // COARSE_CELLS)
            safe = self._listings(search, COARSE_WORK, step=step, upward=True)
            if safe is not None:
                self._cover(search, safe, None)


# Pack items with several resources, or into bins of several kinds, at least cost.


class PartBounds(NamedTuple):
    each: list[int]  # cost of the bins of each part, if it had all of them to itself
    total: int  # of all parts
    allotted: IntArray | None = None  # (part, kind): bins of limited kinds that could be enough for each part


def bound_parts(
    parts: Sequence[IntArray],  # items of each, one column per resource; parts never share a bin
    fewest: Sequence[int],  # bins of each part that its items take in any case
    kinds: Sequence[BinKind],
    costs: Sequence[int],
    deadline: Deadline,
) -> PartBounds:
    """Bound the cost of the bins of each part and of all of them, each resource separately."""
    if len(kinds) > 1:
        return _bound_fleet(parts, fewest, kinds, costs, deadline)
    each, resources = [], len(kinds[0].capacity)
    for number, (items, least) in enumerate(zip(parts, fewest, strict=True)):
        for resource, sizes in enumerate(items.T):
            room = kinds[0].capacity[resource]
            share = deadline.left / ((len(parts) - number) * resources - resource)
            if int(sizes.max()) > room:
                continue
            enough = share > _SECONDS_PER_ITEM * len(sizes)
            least = max(least, pack_bins(sizes, room, seconds=share).bound if enough else l2_bound(sizes, room))
        each.append(max(1, least) * costs[0])
    return PartBounds(each, sum(each))


def _needs(items: IntArray, fewest: int, kinds: Sequence[BinKind], factor: float = 1.0) -> list[Need]:
    """Return what the bins of one part must reach; items above a threshold go only to kinds with more room."""
    needs = [Need(np.ones(len(kinds)), np.array([float(fewest)]))]
    for sizes, room in zip(items.T, np.array([kind.capacity for kind in kinds], dtype=np.int64).T, strict=True):
        thresholds = {0, *room.tolist(), *(room // 2).tolist(), int(room.max()) // 3} - {int(room.max())}
        for threshold in sorted(thresholds):
            large = sizes[sizes > threshold]
            needs.append(Need(room * (room > threshold), np.array([float(large.sum()) * factor])))
            needs.append(Need(room // (threshold + 1), np.array([float(len(large))])))
    return needs


def _bound_fleet(
    parts: Sequence[IntArray], fewest: Sequence[int], kinds: Sequence[BinKind], costs: Sequence[int], deadline: Deadline
) -> PartBounds:
    """Bound by totals: a small integer program for each part, and one for all if they compete for limited kinds."""
    price, counts, step = np.array(costs, dtype=np.float64), [kind.count for kind in kinds], math.gcd(*costs)
    needs, each, bins = [], [], []
    for items, least in zip(parts, fewest, strict=True):
        own = _needs(items, least, kinds)
        needs.append(own)
        fractional = max(float(need.total[0] / (need.each / price).max()) for need in own if need.each.any())
        left = deadline.left
        answer = least_bins(own, price, counts, None, seconds=left) if affordable(left) else LeastBins(None, 0.0)
        each.append(max(step, math.ceil(max(fractional - _MARGIN, answer.bound) / step - _MARGIN) * step))
        bins.append(answer.bins)
    found = [own for own in bins if own is not None]
    allotted = np.concatenate(found) if len(found) == len(parts) else None
    total, limits = sum(each), np.array([math.inf if count is None else count for count in counts])
    if np.isfinite(limits).any() and (allotted is None or (allotted.sum(axis=0) > limits).any()):
        # Lines of the same kind of need, one for each part, in one program.
        lines = [Need(same[0].each, np.array([need.total[0] for need in same])) for same in zip(*needs, strict=True)]
        allotted, left = None, deadline.left
        if affordable(left):
            allotted, bound = least_bins(lines, price, counts, np.array(each, dtype=np.float64), seconds=left)
            total = max(total, math.ceil(bound / step - _MARGIN) * step)
    return PartBounds(each, total, allotted)


@dataclass(frozen=True, eq=False, kw_only=True)
class VectorPacking:
    bins: list[list[int]]  # for each bin the positions of its items
    kind_of_bin: list[int]  # kind of each bin
    cost: Fraction  # cost, bound: cost of the bins, and a lower bound for any packing
    bound: Fraction
    seconds: float  # running time


def pack_types(
    sizes: IntArray,  # of each type, one column per resource
    numbers: IntArray,  # items of each type
    caps: IntArray,  # largest number of items of each type in a bin
    groups: IntArray,  # types of different groups never share a bin
    kinds: Sequence[BinKind],  # with whole costs
    *,
    seconds: float = math.inf,
    deadline: Deadline = NEVER,
    progress: Progress | None = None,
    seed: int = 0,
) -> tuple[TypePacking, int] | None:
    """Pack types of equal items, with a bound on the cost; by first fit alone if they are too many for a table."""
    capacities, costs = np.array([kind.capacity for kind in kinds]), [int(kind.cost) for kind in kinds]
    deadline = min(deadline, Deadline.after(seconds))
    if not too_many_types(sizes, numbers, capacities):
        classes = [Members(np.repeat(line[None], number, axis=0)) for line, number in zip(sizes, numbers, strict=True)]
        packer = ChancePacker(classes, caps, kinds, risk=Fraction(0), groups=groups, seed=seed)
        plan = packer.solve(deadline=deadline, progress=progress)
        if plan is None:
            return None
        types, bins = np.nonzero(plan.counts.T)
        return TypePacking(types, bins, plan.counts[bins, types], plan.kinds), plan.bound
    parts = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    items = [np.repeat(sizes[own], numbers[own], axis=0) for own in parts]
    fewest = [int((-(-numbers[own] // np.maximum(caps[own], 1))).max()) for own in parts]
    bounds = bound_parts(items, fewest, kinds, costs, deadline.part(1 / 4, most=BOUND_SECONDS))
    bound, unlimited = bounds.total, all(kind.count is None for kind in kinds)
    limits = [kind.count for kind in kinds]
    packing = fit_types(sizes, numbers, caps, groups, capacities, costs, limits, deadline=deadline, bound=bound)
    cost = math.inf if packing is None else packing.cost(costs)
    if len(parts) > 1 and (unlimited or bounds.allotted is not None) and cost > bound and not deadline.late:

        def solve(number: int, stop: Deadline, before: tuple[TypePacking, int] | None) -> tuple[TypePacking, int]:
            own, choice = parts[number], list(kinds)
            if bounds.allotted is not None and not unlimited:
                counts = zip(kinds, bounds.allotted[number].tolist(), strict=True)
                choice = [kind if kind.count is None else replace(kind, count=count) for kind, count in counts]
            plan = pack_types(sizes[own], numbers[own], caps[own], groups[own], choice, deadline=stop, seed=seed)
            if plan is None:
                raise NoPlanError("a group does not fit into the bins that the program by totals gave it.")
            best = plan[0] if before is None or plan[0].cost(costs) <= before[0].cost(costs) else before[0]
            return best, max(plan[1] if unlimited else 0, bounds.each[number], 0 if before is None else before[1])

        with contextlib.suppress(NoPlanError):
            apart = solve_in_turn(len(parts), solve, lambda plan: plan[0].cost(costs) - plan[1], deadline)
            bound = max(bound, sum(least for _, least in apart))
            together = TypePacking.together([plan for plan, _ in apart], parts)
            if together.cost(costs) < cost:
                packing = together
    elif cost > bound and not deadline.late and len(parts) == 1 and sizes.shape[1] == 1 and (caps >= numbers).all():
        rounded = _pack_rounded(sizes[:, 0], numbers, kinds, deadline=deadline, seed=seed)
        if rounded is not None and rounded.cost(costs) < cost:
            packing = rounded
    if packing is None:
        return None
    if progress is not None:
        progress("plan", packing.cost(costs), min(bound, packing.cost(costs)))
    return packing, min(bound, packing.cost(costs))


def _pack_rounded(
    sizes: IntArray, numbers: IntArray, kinds: Sequence[BinKind], *, deadline: Deadline, seed: int
) -> TypePacking | None:
    """Pack very many sizes of one resource rounded up to few, which costs little; None if an item then fits nowhere."""
    unit = max(1, int(np.ptp(sizes)) // ROUNDED_SIZES)
    coarse, type_of = np.unique(-(-sizes // unit), return_inverse=True)
    demand = np.bincount(type_of, weights=numbers).astype(np.int64)
    rounded = [replace(kind, capacity=(kind.capacity[0] // unit,)) for kind in kinds]
    if int(coarse.max()) > max(kind.capacity[0] for kind in rounded):
        return None
    classes = [Members(np.full((count, 1), size)) for size, count in zip(coarse.tolist(), demand.tolist(), strict=True)]
    packer = ChancePacker(classes, demand, rounded, risk=Fraction(0), seed=seed)
    plan = packer.solve(deadline=deadline)
    if plan is None:
        return None
    # The items of a rounded size take its places in any order.
    size_of, places = np.nonzero(plan.counts.T)
    items = np.repeat(np.arange(len(sizes)), numbers)
    order, num_bins = np.argsort(type_of[items], kind="stable"), len(plan.kinds)
    pairs = items[order] * num_bins + np.repeat(places, plan.counts[places, size_of])
    lines, times = np.unique(pairs, return_counts=True)
    types, bins = lines // num_bins, lines % num_bins
    loads = np.bincount(bins, weights=sizes[types] * times, minlength=num_bins).astype(np.int64)
    used, rooms = plan.kinds.tolist(), np.array([kind.capacity for kind in kinds], dtype=np.int64)
    use_cheaper_kinds(used, loads[:, None], rooms, [int(kind.cost) for kind in kinds], [kind.count for kind in kinds])
    return TypePacking(types, bins, times, np.array(used, dtype=np.int64))


def pack_vectors(
    items: IntArray,  # one line per item, one column per resource: whole numbers of at least 0
    kinds: Sequence[BinKind],  # costs may be fractions
    *,
    seconds: float,
    groups: IntArray | None = None,  # group of each item; items of different groups never share a bin
    progress: Progress | None = None,  # called with stage, cost and bound
    seed: int = 0,  # of the searches
) -> VectorPacking:
    """Pack items into bins of the least total cost that the time limit allows."""
    start = time.monotonic()
    items = np.asarray(items, dtype=np.int64)
    apart = np.zeros(len(items), dtype=np.int64) if groups is None else np.asarray(groups, dtype=np.int64)
    unit = math.lcm(*(Fraction(kind.cost).denominator for kind in kinds))
    if (items > np.max([kind.capacity for kind in kinds], axis=0)).any():
        raise NoPlanError("an item is larger than every bin. Use larger bins, or leave such items out.")
    if items.shape[1] == 1 and len(kinds) == 1 and kinds[0].count is None and not apart.any():
        packing = pack_bins(items[:, 0], kinds[0].capacity[0], seconds=seconds, progress=progress, seed=seed)
        bins, kind_of_bin, least = packing.bins, [0] * packing.objective, packing.bound * Fraction(kinds[0].cost)
    else:
        whole = [replace(kind, cost=int(kind.cost * unit)) for kind in kinds]
        # Pack items by the number of each size.
        table = np.column_stack([apart, items])
        types, type_of, times = np.unique(table, axis=0, return_inverse=True, return_counts=True)
        plan = pack_types(types[:, 1:], times, times, types[:, 0], whole, seconds=seconds, progress=progress, seed=seed)
        if plan is None:
            raise NoPlanError("the items do not fit into the bins. Use more bins, or larger ones.")
        packed, bound = plan
        of_item = packed.bin_of_item(type_of.reshape(-1))
        order = np.argsort(of_item, kind="stable")
        bins = [part.tolist() for part in np.split(order, np.cumsum(np.bincount(of_item))[:-1])]
        kind_of_bin, least = packed.kinds.tolist(), Fraction(bound, unit)
    return VectorPacking(
        bins=bins,
        kind_of_bin=kind_of_bin,
        cost=sum((Fraction(kinds[kind].cost) for kind in kind_of_bin), Fraction(0)),
        bound=least,
        seconds=time.monotonic() - start,
    )
