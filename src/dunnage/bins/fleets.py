# SPDX-License-Identifier: Apache-2.0
"""Bins of several kinds at least cost, for one resource and more patterns than can be listed: column generation.

Prices of items are found on the patterns at hand; a knapsack for each kind of bin finds patterns that are worth more
than they cost, until there are none. Any prices bound the cost of every packing: where no pattern of a kind is worth
more than z, a kind of which there are K bins at cost c takes away at most K (z - c), and one without limit asks that
prices be lowered until z is c. Then an integer program chooses among the patterns met.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins.scalar import PRICE_SCALE, Pricing, Sizes, best_fit_decreasing, fill_by_subset_sums, pack_bins
from dunnage.solver import Prices, csr, solve_prices, solve_program

MOST_SIZES = 600
_MARGIN = 1e-6
_BEST_FILLS = 3
_FILL_SECONDS = 0.5


@dataclass(frozen=True, eq=False)
class FleetPacking:
    """Bins as patterns over the sizes (they may take more than there is), the kind of each, and a bound."""

    patterns: IntArray
    kinds: IntArray
    bound: int


def fill_then_pack(
    sizes: IntArray,  # Of each item
    capacities: Sequence[int],  # capacities, costs, counts: of each kind of bin
    costs: Sequence[int],
    counts: Sequence[int | None],
    *,
    deadline: float,  # Monotonic time by which to stop
) -> Iterator[tuple[list[list[int]], list[int]]]:
    """Yield packings: some bins of one kind filled to the brim, the rest packed into another."""
    items = np.asarray(sizes, dtype=np.int64)
    order = np.argsort(-items, kind="stable").tolist()
    for first, other in itertools.permutations(range(len(costs)), 2):
        if int(items.max()) > capacities[first]:
            continue
        filled = fill_by_subset_sums(items, order, capacities[first], deadline=deadline)
        if filled is None:
            continue
        options = []
        most = counts[first]
        for number in range(len(filled) + 1 if most is None else min(len(filled), most) + 1):
            rest = [item for bin_ in filled[number:] for item in bin_]
            if not rest or int(items[rest].max()) <= capacities[other]:
                guess = best_fit_decreasing(items, rest, capacities[other])
                left = counts[other]
                if left is None or len(guess) <= left:
                    options.append((number * costs[first] + len(guess) * costs[other], number, rest))
        for _, number, rest in sorted(options, key=lambda option: option[:2])[:_BEST_FILLS]:
            packed = pack_bins(items[rest], capacities[other], seconds=_FILL_SECONDS).bins if rest else []
            bins = filled[:number] + [[rest[i] for i in bin_] for bin_ in packed]
            yield bins, [first] * number + [other] * len(packed)


class FleetPricing:
    """The problem: sizes and how many there are of each, and the kinds of bin."""

    def __init__(
        self,
        sizes: IntArray,  # sizes, demand: sizes of at least 1, largest first, and the number of items of each
        demand: IntArray,
        capacities: Sequence[int],
        costs: Sequence[int],
        counts: Sequence[int | None],
        *,
        deadline: float,
    ) -> None:
        self.sizes, self.demand = sizes, demand
        self.costs, self.deadline = np.array(costs, dtype=np.float64), deadline
        self.limits = {kind: count for kind, count in enumerate(counts) if count is not None}
        self.step = math.gcd(*costs)
        # A size that a kind cannot take is in none of its patterns.
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
        """Add a pattern of a kind of bin; return whether it is new."""
        before = len(self._columns)
        self._columns.setdefault((kind, pattern.astype(np.int64).tobytes()), pattern.astype(np.int64))
        return len(self._columns) > before

    def solve(self, *, at_most: int | None) -> FleetPacking:
        """Generate patterns, then choose among them; ``at_most`` is the largest cost of interest."""
        bound = 0
        while time.monotonic() < self.deadline:
            prices = self._prices()
            if prices is None:
                break
            least, fresh = self._priced(prices)
            bound = max(bound, least)
            if not fresh or bound >= math.ceil(prices.objective / self.step - _MARGIN) * self.step:
                break
        return self._chosen(bound, at_most)

    def _table(self) -> tuple[object, IntArray]:
        kinds = np.array([kind for kind, _ in self._columns], dtype=np.int64)
        return csr(np.array(list(self._columns.values()), dtype=np.int64)), kinds

    def _prices(self) -> Prices | None:
        table, kinds = self._table()
        return solve_prices(
            table,
            self.demand,
            self.costs[kinds],
            kinds=kinds,
            limits=self.limits,
            use=None,
            budget=math.inf,
            seconds=self.deadline - time.monotonic(),
        )

    def _priced(self, prices: Prices) -> tuple[int, bool]:
        """Add the patterns that are worth more than they cost; return a bound, and whether any was added."""
        worth = np.zeros(len(self.costs))
        fresh = False
        for kind, (pricing, own) in enumerate(zip(self.pricings, self.fitting, strict=True)):
            if not len(own):
                continue
            allowed = self.costs[kind] + prices.limits.get(kind, 0.0)
            # Rounded up, so that what a bin holds is never understated.
            scaled = np.ceil(prices.cover[own] / allowed * PRICE_SCALE).astype(np.int64)
            most = pricing.most_worth(scaled)
            if most is None:
                return 0, False
            worth[kind] = most / PRICE_SCALE * allowed
            for pattern in pricing.valuable(scaled):
                whole = np.zeros(len(self.sizes), dtype=np.int64)
                whole[own] = pattern
                fresh = self.add(kind, whole) or fresh
        return self._bound(prices.cover, worth), fresh

    def _bound(self, cover: FloatArray, worth: FloatArray) -> int:
        free = [kind for kind in range(len(self.costs)) if kind not in self.limits and worth[kind] > 0]
        share = min([1.0, *(self.costs[kind] / worth[kind] for kind in free)])
        taken = sum(count * max(0.0, share * worth[kind] - self.costs[kind]) for kind, count in self.limits.items())
        value = share * float(cover @ self.demand) - taken
        return int(max(0, math.ceil(value / self.step - _MARGIN)) * self.step)

    def _chosen(self, bound: int, at_most: int | None) -> FleetPacking:
        table, kinds = self._table()
        answer = solve_program(
            table,
            self.demand,
            self.costs[kinds],
            kinds=kinds,
            limits=self.limits,
            use=None,
            budget=math.inf,
            at_most=at_most,
            seconds=max(self.deadline - time.monotonic(), 0.05),
        )
        values = np.zeros(len(kinds), dtype=np.int64) if answer.values is None else answer.values
        rows = np.repeat(np.arange(len(kinds)), values)
        patterns = np.array(list(self._columns.values()), dtype=np.int64)[rows]
        return FleetPacking(patterns, kinds[rows], bound)
