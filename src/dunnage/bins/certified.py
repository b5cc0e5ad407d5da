# SPDX-License-Identifier: Apache-2.0
"""Pack classes of items into bins of several kinds so that everything fits with a certified probability.

Items of a class cannot be told apart, so a plan is a list of patterns, and all that can go wrong is known exactly.
With P the probability that a pattern fits, over all permutations inside the classes:

    1 - sum of (1 - P)  <=  probability that every bin fits  <=  product of P.

The left side holds always (the union bound). The right side holds for one resource and known members: inside a class
the members in different bins are negatively associated, and so are the events that bins fit. For several resources, or
where members are not known, only the smallest P is an upper bound.

Two covering programs follow. Every cover whose (1 - P) add up to at most the risk is a plan that holds (sufficient);
every plan that holds is a cover whose -log P add up to at most -log(1 - risk) (necessary). Where both have the same
cost, the plan is proven to be best; otherwise it carries its gap.

With risk 0 only patterns that fit surely are left: that is packing by the largest members of each class. A class of
equal sizes is ordinary packing. So one kernel serves every model.

Where patterns are too many to list, what packs the members themselves bounds every plan from below (a plan that ever
fits is such a packing), and a search proposes plans of that many bins, whose probabilities are then computed.

References
----------
Joag-Dev, Proschan 1983 (negative association of permutations); Hoogervorst et al. 2019, section 5.1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins.chances import ROUNDING, Chances, Members, Sizes, Sums
from dunnage.bins.covering import Choice, CoverProgram, without_surplus
from dunnage.bins.fleets import MOST_SIZES, FleetPricing, fill_then_pack
from dunnage.bins.listing import MOST_PATTERNS, Listing, list_patterns
from dunnage.bins.mixing import MOST_STEPS, STEPS_PER_ITEM, mix_classes
from dunnage.bins.scalar import pack_bins
from dunnage.solver import csr, solve_program

Progress = Callable[[str, int, int], None]

EXACT_WORK = 3 * 10**8
FINE_CELLS = 5000
COARSE_CELLS = 1500
MOST_REFINEMENTS = 200
COARSE_WORK = 2 * 10**9
BOUND_SECONDS = 2.0
SEARCHES = 8
MOST_SEARCHED = 2000
MOST_FILLINGS = 300
COMBINE_SECONDS = 5.0
LONG_EFFORT = 6
_FIRST_SEARCHES = 3
_MANY_ITEMS = 4.0
_BORDER = 1e-9
_OPEN_BINS = 100
_WORK_PER_SECOND = 2.5e8


@dataclass(frozen=True, kw_only=True)
class BinKind:
    """A kind of bin: what it holds of each resource, what one costs, how many there are (None: any number).

    A :class:`ChancePacker` takes whole costs only; :func:`~dunnage.bins.vectors.pack_vectors` takes fractions too.
    """

    capacity: tuple[int, ...]
    cost: int | Fraction = 1
    count: int | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassPacking:
    """How many items of each class each bin takes."""

    counts: IntArray  # Shape: (bins, classes)
    kinds: IntArray  # Kind of each bin
    cost: int  # cost, bound: what the bins cost, and what any plan costs at least; their number if every kind costs 1
    bound: int
    at_least: float  # at_least, at_most: bounds on the probability that every bin fits
    at_most: float


@dataclass
class _Search:
    """The best plan and bound so far. The plan is None until one is found."""

    deadline: float
    progress: Progress | None
    plan: ClassPacking | None = None
    bound: int = 0

    @property
    def done(self) -> bool:
        return time.monotonic() >= self.deadline or (self.plan is not None and self.plan.cost <= self.bound)

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def work(self, most: int) -> int:
        """Return how many steps of a walk the time allows, at most so many."""
        return min(most, int(max(self.seconds_left, 0.05) / 2 * _WORK_PER_SECOND))

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


class ChancePacker:
    """One packing problem on classes: solved by :meth:`solve`, plans weighed by :meth:`weighed`."""

    def __init__(
        self,
        classes: Sequence[Sizes],  # What is known of each class
        caps: IntArray,  # Most items of each class that a bin may take
        kinds: Sequence[BinKind],  # The kinds of bin
        *,
        risk: Fraction,  # Largest probability that not everything fits, as a fraction: at least 0, below 1
        groups: IntArray | None = None,
        seed: int = 0,  # Of the searches
    ) -> None:
        self.classes, self.caps, self.kinds = list(classes), np.asarray(caps, dtype=np.int64), list(kinds)
        self.costs = [int(kind.cost) for kind in kinds]
        self.exact_risk, self.risk, self.seed = risk, float(risk), seed
        self.demand = np.array([known.count for known in classes], dtype=np.int64)
        self.groups = np.zeros(len(self.classes), dtype=np.int64) if groups is None else np.asarray(groups)
        self.members = [np.flatnonzero(self.groups == group) for group in np.unique(self.groups)]
        self.chances = [Chances(self.classes, np.array(kind.capacity)) for kind in kinds]
        self.known = all(isinstance(known, Members) for known in classes)
        self.product_holds = self.known and len(kinds[0].capacity) == 1

    def weighed(self, counts: IntArray, kinds: IntArray) -> tuple[float, float]:
        """Return bounds on the probability that every bin of a plan fits."""
        every = [self.chances[kind].fits(line) for line, kind in zip(counts, kinds.tolist(), strict=True)]
        failing = math.fsum(1 - low + ROUNDING for low, _ in every if low < 1)
        highs = [high for _, high in every]
        most = math.prod(highs) if self.product_holds else min(highs, default=1.0)
        return max(0.0, 1.0 - failing), min(1.0, most + ROUNDING * (most < 1))

    def planned(self, counts: IntArray, kinds: IntArray) -> ClassPacking | None:
        """Return a plan if it holds at the risk."""
        at_least, at_most = self.weighed(counts, kinds)
        if at_least < 1.0 - self.risk:
            # A risk such as 1 in 20 is met exactly by one choice of twenty: then only fractions can tell.
            if at_least < 1.0 - self.risk - _BORDER or not self._holds_exactly(counts, kinds):
                return None
            at_least = _rounded_down(1 - self.exact_risk)
        cost = sum(self.costs[kind] for kind in kinds.tolist())
        return ClassPacking(counts=counts, kinds=kinds, cost=cost, bound=0, at_least=at_least, at_most=at_most)

    def _holds_exactly(self, counts: IntArray, kinds: IntArray) -> bool:
        failing = Fraction(0)
        for line, kind in zip(counts, kinds.tolist(), strict=True):
            fits = Fraction(1) if self.chances[kind].surely(line) else self.chances[kind].exactly(line)
            if fits is None:
                return False
            failing += 1 - fits
        return failing <= self.exact_risk

    def solve(
        self,
        *,
        seconds: float,
        progress: Progress | None = None,  # Called with stage, cost and bound whenever one improves
        aim: int | None = None,
        start: tuple[IntArray, IntArray] | None = None,  # Counts and kinds of a plan to begin with
    ) -> ClassPacking | None:
        """Find the cheapest plan that can be found in time, with a bound; None if none was found."""
        search = _Search(time.monotonic() + seconds, progress)
        search.offer(self.greedy() if start is None else self.planned(*start))
        search.raise_bound(aim if aim is not None else self._members_bound(min(BOUND_SECONDS, seconds / 4)))
        if self._items_per_bin() > _MANY_ITEMS:
            search.offer(self._whole_classes(min(BOUND_SECONDS, seconds / 8)))
            self._search(search, searches=_FIRST_SEARCHES, stop=1)
        if search.done:
            return self._answer(search)
        listings = self._listings(step=1, upward=True, work=search.work(EXACT_WORK)) if self.known else None
        if listings is not None:
            if not self._cover(search, listings, listings):
                return None
        elif self._plain():
            self._price(search)
        elif len(self.members) > 1:
            self._apart(search)
            self._combine(search)
        else:
            self._search(search, searches=SEARCHES)
            self._search(search, searches=2 * SEARCHES, stop=1, effort=LONG_EFFORT)
            self._cover_coarsely(search)
            self._combine(search)
        return self._answer(search)

    def _plain(self) -> bool:
        """Return whether this is packing of one resource with known sizes, where knapsacks find the patterns."""
        one = len(self.kinds[0].capacity) == 1 and len(self.members) == 1 and len(self.classes) <= MOST_SIZES
        equal = all(isinstance(known, Members) and (known.values == known.values[0]).all() for known in self.classes)
        capped = bool((self.caps < self.demand).any())
        return one and equal and not capped and min(int(known.smallest(1)[1, 0]) for known in self.classes) > 0

    def _price(self, search: _Search) -> None:
        """Solve by column generation."""
        sizes = np.array([int(known.smallest(1)[1, 0]) for known in self.classes])
        order = np.argsort(-sizes, kind="stable")
        rooms = [kind.capacity[0] for kind in self.kinds]
        counts = [kind.count for kind in self.kinds]
        self._fill(search, sizes, rooms, counts)
        pricing = FleetPricing(sizes[order], self.demand[order], rooms, self.costs, counts, deadline=search.deadline)
        limit = None
        if search.plan is not None:
            limit = search.plan.cost - pricing.step
            for line, kind in zip(search.plan.counts, search.plan.kinds.tolist(), strict=True):
                pricing.add(kind, line[order])
        found = pricing.solve(at_most=limit)
        search.raise_bound(found.bound)
        if len(found.kinds):
            patterns = np.empty_like(found.patterns)
            patterns[:, order] = found.patterns
            search.offer(self.planned(*without_surplus(patterns, found.kinds, self.demand)))

    def _fill(self, search: _Search, sizes: IntArray, rooms: list[int], counts: list[int | None]) -> None:
        """Offer packings of two kinds of bin."""
        class_of = np.repeat(np.arange(len(sizes)), self.demand)
        for bins, kinds in fill_then_pack(sizes[class_of], rooms, self.costs, counts, deadline=search.deadline):
            if search.done:
                return
            lines = [np.bincount(class_of[bin_], minlength=len(sizes)) for bin_ in bins]
            search.offer(self.planned(np.array(lines, dtype=np.int64), np.array(kinds, dtype=np.int64)))

    def _apart(self, search: _Search) -> None:
        """Solve each group by itself, with an equal part of the risk; what one leaves of limited bins is the next's."""
        kinds, plans = list(self.kinds), []
        for number, own in enumerate(self.members):
            part = ChancePacker(
                [self.classes[i] for i in own.tolist()],
                self.caps[own],
                kinds,
                risk=self.exact_risk / len(self.members),
                seed=self.seed,
            )
            found = part.solve(seconds=max(search.seconds_left, 0.05) / (len(self.members) - number))
            if found is None:
                return
            plans.append((own, found))
            used = np.bincount(found.kinds, minlength=len(kinds)).tolist()
            kinds = [
                kind if kind.count is None else replace(kind, count=kind.count - times)
                for kind, times in zip(kinds, used, strict=True)
            ]
        counts = np.zeros((sum(len(plan.kinds) for _, plan in plans), len(self.classes)), dtype=np.int64)
        at = 0
        for own, plan in plans:
            counts[at : at + len(plan.kinds), own] = plan.counts
            at += len(plan.kinds)
        search.offer(self.planned(counts, np.concatenate([plan.kinds for _, plan in plans])))

    def _answer(self, search: _Search) -> ClassPacking | None:
        return None if search.plan is None else replace(search.plan, bound=min(search.bound, search.plan.cost))

    def _items_per_bin(self) -> float:
        """Return how many items of mean size the largest bin takes."""
        means = np.array([known.moments()[0] for known in self.classes])
        mean = (means * self.demand[:, None]).sum(axis=0) / self.demand.sum()
        room = np.max([kind.capacity for kind in self.kinds], axis=0)
        return float((room / np.maximum(mean, 1e-9)).min())

    def greedy(self, generator: np.random.Generator | None = None) -> ClassPacking | None:
        """Put items one after another, largest first, into the first bin where all still fits surely.

        Bins are opened of the kind that costs least for what it holds, then each is exchanged for the cheapest kind
        that still takes its items. With a generator, sizes and values of kinds are taken a little otherwise.
        """
        largest = [known.largest(known.count) for known in self.classes]
        scale = np.maximum(np.max([kind.capacity for kind in self.kinds], axis=0), 1).astype(np.float64)
        weight = np.repeat([(table[1] / scale).max() for table in largest], self.demand)
        filling = _Filling(self, largest, scale)
        if generator is not None:
            weight = weight * generator.uniform(0.7, 1.3, len(weight))
            filling.preferred = generator.permutation(len(self.kinds)).tolist()
        class_of = np.repeat(np.arange(len(self.classes)), self.demand)
        for item in np.argsort(-weight, kind="stable").tolist():
            if not filling.put(int(class_of[item])):
                return None
        return self.planned(*filling.exchanged())

    def _combine(self, search: _Search) -> None:
        """Fill bins greedily in many random orders, and choose among all the bins met at least cost."""
        if search.done or int(self.demand.sum()) > MOST_SEARCHED:
            return
        generator = np.random.default_rng(self.seed)
        stop = time.monotonic() + min(search.seconds_left / 2, COMBINE_SECONDS)
        met: dict[tuple[int, bytes], IntArray] = {}
        plan = search.plan
        for _ in range(MOST_FILLINGS):
            for line, kind in zip(plan.counts, plan.kinds.tolist(), strict=True) if plan is not None else ():
                met[kind, line.tobytes()] = line
            if time.monotonic() > stop or search.done:
                break
            plan = self.greedy(generator)
            search.offer(plan)
        self._choose(search, met)

    def _choose(self, search: _Search, met: dict[tuple[int, bytes], IntArray]) -> None:
        if search.done or not met:
            return
        kinds = np.array([kind for kind, _ in met], dtype=np.int64)
        table = np.array(list(met.values()), dtype=np.int64)
        step = math.gcd(*self.costs)
        answer = solve_program(
            csr(table),
            self.demand,
            np.array(self.costs, dtype=np.float64)[kinds],
            kinds=kinds,
            limits={kind: bins.count for kind, bins in enumerate(self.kinds) if bins.count is not None},
            use=None,
            budget=math.inf,
            at_most=None if search.plan is None else search.plan.cost - step,
            seconds=min(search.seconds_left, COMBINE_SECONDS),
        )
        if answer.values is not None:
            rows = np.repeat(np.arange(len(kinds)), answer.values)
            search.offer(self.planned(*without_surplus(table[rows], kinds[rows], self.demand)))

    def _members_bound(self, seconds: float) -> int:
        """Bound the cost by packing the smallest sizes that the items may have, each resource by itself."""
        share = seconds / len(self.kinds[0].capacity) / len(self.members)
        every = range(len(self.kinds[0].capacity))
        return sum(max(self._resource_bound(own, resource, share) for resource in every) for own in self.members)

    def _resource_bound(self, own: IntArray, resource: int, seconds: float) -> int:
        """Bound what the classes of a group cost, by one resource."""
        known = [self.classes[number] for number in own.tolist()]
        sizes = np.concatenate([np.diff(one.smallest(one.count)[:, resource]) for one in known]).astype(np.int64)
        room = [kind.capacity[resource] for kind in self.kinds]
        if len(self.kinds) > 1:
            return _least_cost(int(sizes.sum()), self.kinds, room)
        if int(sizes.max()) > room[0]:
            return self.costs[0]
        return pack_bins(sizes, room[0], seconds=seconds).bound * self.costs[0]

    def _listings(self, *, step: int, upward: bool, work: int, least: int = 0) -> list[Listing] | None:
        found: list[Listing] = []
        share = work // len(self.kinds) // len(self.members)
        for kind in self.kinds:
            parts = [self._listed(kind, own, step, upward, share, least) for own in self.members]
            if any(part is None for part in parts):
                return None
            whole = [(part, own) for part, own in zip(parts, self.members, strict=True) if part is not None]
            found.append(Listing.together(whole, len(self.classes)))
        return found

    def _listed(self, kind: BinKind, own: IntArray, step: int, upward: bool, work: int, least: int) -> Listing | None:
        """List the patterns of one group of classes for one kind of bin; None if they are too many or not known."""
        capacity = np.array(kind.capacity)
        known = [(self.classes[number], self._most(number, capacity)) for number in own.tolist()]
        drawn = _largest_sums if self.risk == 0 else _drawn_sums  # without risk only the largest members matter
        draws = [drawn(sizes, cap, step, upward) for sizes, cap in known]
        if any(sums is None for sums in draws):
            return None
        # What fits surely stands for all it contains, so it must do so truly: the largest sums are rounded up always.
        worst = [sizes.largest(cap) for sizes, cap in known]
        return list_patterns(
            [sums for sums in draws if sums is not None],
            [-(-table // step) for table in worst],
            capacity // step,
            most_risk=self.risk,
            least=least // step,
            slack=0 if step == 1 else self._most_items(capacity),
            most_patterns=MOST_PATTERNS // len(self.kinds) // len(self.members) + 1000,
            most_work=work,
        )

    def _most_items(self, capacity: IntArray) -> int:
        """Return how many items a bin of a capacity can take at most, of one resource."""
        smallest = np.sort(np.concatenate([np.diff(known.smallest(known.count)[:, 0]) for known in self.classes]))
        return int((np.cumsum(smallest) <= capacity[0]).sum())

    def _most(self, number: int, capacity: IntArray) -> int:
        """Return how many items of a class a bin of a capacity can take at most."""
        cap = min(int(self.caps[number]), self.classes[number].count)
        smallest = self.classes[number].smallest(cap)
        return int((smallest <= capacity).all(axis=1).sum()) - 1

    def _program(self, listings: Sequence[Listing]) -> CoverProgram:
        choices = [
            Choice(listing, cost, kind.count)
            for listing, cost, kind in zip(listings, self.costs, self.kinds, strict=True)
        ]
        return CoverProgram(self.demand, choices)

    def _cover(self, search: _Search, safe: Sequence[Listing] | None, hopeful: Sequence[Listing] | None) -> bool:
        """Solve the sufficient program over safe risks and the necessary one over hopeful risks.

        Returns whether a plan may exist.
        """
        if hopeful is not None and not search.done and not self._necessary(search, self._program(hopeful)):
            return False
        if safe is not None:
            program = self._program(safe)
            # First with no margin, for what meets the risk exactly; what fails then in fractions needs one.
            for margin in (0.0, 2 * ROUNDING):
                if not search.done:
                    self._sufficient(search, program, margin)
        return True

    def _necessary(self, search: _Search, program: CoverProgram) -> bool:
        """Raise the bound by the necessary program; return whether a plan may exist.

        Where it finds a cover that is no plan, risks that were only rounded down are computed, and it is solved anew.
        """
        risk = program.risk.copy()
        deadline = time.monotonic() + search.seconds_left / 2
        for _ in range(MOST_REFINEMENTS):
            least = np.maximum(risk - ROUNDING, 0.0)
            limit = math.inf if search.plan is None else float(search.plan.cost)
            found = program.solve(
                deadline=deadline,
                use=-np.log1p(-least) if self.product_holds and self.risk > 0 else None,
                budget=-math.log1p(-self.risk) * (1 + 1e-9) + 1e-12,
                at_most=limit,
                known_bound=search.bound,
                usable=risk <= self.risk + ROUNDING,
            )
            if found.bound is None and search.plan is None:
                return False
            # Nothing covers at all: not with the loads that one bin fewer would need.
            search.raise_bound(int(limit) if found.bound is None else found.bound)
            if found.cost is not None:
                search.offer(self.planned(found.patterns, found.kinds))
            if found.cost is None or search.done or not self._refined(program, risk, found.rows):
                break
        return True

    def _refined(self, program: CoverProgram, risk: FloatArray, rows: IntArray) -> bool:
        """Compute the risks of some listed patterns exactly; return whether any is higher than was thought."""
        before = risk[rows].copy()
        for row in np.unique(rows).tolist():
            pattern = np.asarray(program.matrix[row].toarray()).ravel().astype(np.int64)
            risk[row] = max(risk[row], 1.0 - self.chances[int(program.kind[row])].fits(pattern.tolist())[1])
        return bool((risk[rows] > before + ROUNDING).any())

    def _sufficient(self, search: _Search, program: CoverProgram, margin: float) -> None:
        use = np.where(program.risk > 0, program.risk + margin, 0.0) if self.risk > 0 else None
        budget = self.risk + (0.0 if margin else _BORDER)
        limit = math.inf if search.plan is None else float(search.plan.cost)
        deadline = search.deadline if margin else time.monotonic() + search.seconds_left / 2
        found = program.solve(
            deadline=deadline,
            use=use,
            budget=budget,
            at_most=limit,
            known_bound=search.bound,
            usable=program.risk == 0 if margin and self.risk == 0 else None,
        )
        if found.cost is not None:
            search.offer(self.planned(found.patterns, found.kinds))

    def _search(self, search: _Search, *, searches: int, stop: int | None = None, effort: int = 1) -> None:
        """Look for plans with few bins of one kind, from the bound upward; ``stop`` says how many numbers to try."""
        large = int(self.demand.sum()) > MOST_SEARCHED
        if len(self.kinds) > 1 or len(self.members) > 1 or large or search.done:
            return
        most = int(self.demand.sum()) if self.kinds[0].count is None else self.kinds[0].count
        least = max(1, search.bound // self.costs[0])
        last = most + 1 if search.plan is None else len(search.plan.kinds)
        for number in range(least, last if stop is None else min(last, least + stop)):
            for attempt in range(searches):
                plan = (
                    None
                    if search.seconds_left < 0
                    else self._mixed(number, self.seed * SEARCHES + attempt + 1000 * effort, effort)
                )
                if plan is not None:
                    search.offer(plan)
                    return

    def _whole_classes(self, seconds: float) -> ClassPacking | None:
        """Keep every class together in one bin, so that nothing is left to chance; None if that cannot be."""
        single = len(self.kinds) == 1 and len(self.kinds[0].capacity) == 1 and len(self.members) == 1
        totals = np.array([known.largest(known.count)[-1, 0] for known in self.classes])
        if not single or (self.caps < self.demand).any() or int(totals.max()) > self.kinds[0].capacity[0]:
            return None
        bins = pack_bins(totals, self.kinds[0].capacity[0], seconds=seconds).bins
        counts = np.zeros((len(bins), len(totals)), dtype=np.int64)
        for number, held in enumerate(bins):
            counts[number, held] = self.demand[held]
        count = self.kinds[0].count
        return (
            self.planned(counts, np.zeros(len(bins), dtype=np.int64)) if count is None or len(bins) <= count else None
        )

    def _mixed(self, number: int, seed: int, effort: int) -> ClassPacking | None:
        """Search once for a plan with a number of bins."""
        room = np.array([self.kinds[0].capacity] * number)
        steps = effort * STEPS_PER_ITEM * int(self.demand.sum())
        counts = mix_classes(self.classes, self.caps, room, seed=seed, steps=min(steps, MOST_STEPS))
        if counts is None:
            return None
        used = counts[counts.any(axis=1)]
        return self.planned(used, np.zeros(len(used), dtype=np.int64))

    def _cover_coarsely(self, search: _Search) -> None:
        """List patterns with sizes rounded to a coarse grid: down for the bound, up for plans."""
        if search.done or len(self.kinds[0].capacity) > 1:
            return
        room = min(kind.capacity[0] for kind in self.kinds)
        least = self._least_load(search)
        for cells in (FINE_CELLS, COARSE_CELLS):
            step = max(1, room // cells)
            listings = (
                None
                if search.done
                else self._listings(step=step, upward=False, work=search.work(COARSE_WORK), least=least)
            )
            if listings is not None:
                self._cover(search, None, listings)
                break
        safe = (
            None
            if search.done
            else self._listings(step=max(1, room // COARSE_CELLS), upward=True, work=search.work(COARSE_WORK))
        )
        if safe is not None:
            self._cover(search, safe, None)

    def _least_load(self, search: _Search) -> int:
        """Return what every bin must hold, up to the risk, if one bin fewer than found is to be enough.

        All items together weigh the same whichever they are. Where the other bins fit, this one holds what they cannot.
        """
        if search.plan is None or len(self.kinds) > 1 or not self.known:
            return 0
        total = sum(int(known.largest(known.count)[-1, 0]) for known in self.classes)
        return max(0, total - (len(search.plan.kinds) - 2) * self.kinds[0].capacity[0])


def _drawn_sums(sizes: Sizes, most: int, step: int, upward: bool) -> list[Sums] | None:
    return sizes.draws(most, None, step, upward)


def _largest_sums(sizes: Sizes, most: int, step: int, upward: bool) -> list[Sums] | None:
    return [Sums.certain(-(-line // step) if upward else line // step) for line in sizes.largest(most)]


class _Filling:
    """Bins being filled surely, for the greedy start. Only the last few bins are looked at, so that it stays quick."""

    def __init__(self, packer: ChancePacker, largest: list[IntArray], scale: FloatArray) -> None:
        self.packer, self.largest = packer, largest
        value = [float(kind.cost) / max(float((np.array(kind.capacity) / scale).mean()), 1e-9) for kind in packer.kinds]
        self.preferred = np.argsort(value, kind="stable").tolist()
        self.capacities = np.array([kind.capacity for kind in packer.kinds], dtype=np.int64)
        self.left = [math.inf if kind.count is None else kind.count for kind in packer.kinds]
        self.kinds: list[int] = []
        self.held: list[dict[int, int]] = []
        self.loads: list[IntArray] = []
        self.open: dict[int, list[int]] = {}  # the last bins of each group

    def put(self, class_: int) -> bool:
        """Put one item of a class into the first bin that takes it, or a new one."""
        group, table = int(self.packer.groups[class_]), self.largest[class_]
        where = -1
        for bin_ in self.open.get(group, [])[-_OPEN_BINS:]:
            taken = self.held[bin_].get(class_, 0)
            if taken < self.packer.caps[class_]:
                load = self.loads[bin_] + table[taken + 1] - table[taken]
                if (load <= self.capacities[self.kinds[bin_]]).all():
                    where = bin_
                    break
        if where < 0:
            where = self._opened(table[1], group)
        if where < 0:
            return False
        taken = self.held[where].get(class_, 0)
        self.loads[where] = self.loads[where] + table[taken + 1] - table[taken]
        self.held[where][class_] = taken + 1
        return True

    def _opened(self, first: IntArray, group: int) -> int:
        for kind in self.preferred:
            if self.left[kind] > 0 and (first <= self.capacities[kind]).all():
                self.left[kind] -= 1
                self.kinds.append(kind)
                self.held.append({})
                self.loads.append(np.zeros(self.capacities.shape[1], dtype=np.int64))
                self.open.setdefault(group, []).append(len(self.kinds) - 1)
                return len(self.kinds) - 1
        return -1

    def exchanged(self) -> tuple[IntArray, IntArray]:
        """Exchange each bin for the cheapest kind that is left and takes its load."""
        costs = self.packer.costs
        for bin_, kind in enumerate(self.kinds):
            for other in np.argsort(costs, kind="stable").tolist():
                if costs[other] >= costs[kind]:
                    break
                if self.left[other] > 0 and (self.loads[bin_] <= self.capacities[other]).all():
                    self.left[other] -= 1
                    self.left[kind] += 1
                    self.kinds[bin_] = other
                    break
        counts = np.zeros((len(self.kinds), len(self.largest)), dtype=np.int64)
        for bin_, held in enumerate(self.held):
            for class_, number in held.items():
                counts[bin_, class_] = number
        return counts, np.array(self.kinds, dtype=np.int64)


def _rounded_down(value: Fraction) -> float:
    """Return the largest double that is not above a fraction."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def _least_cost(total: int, kinds: Sequence[BinKind], room: Sequence[int]) -> int:
    """Bound the cost of bins that hold a total: fill those of least cost for their room first, the last in part."""
    step = math.gcd(*(int(kind.cost) for kind in kinds))
    cost, left = 0.0, float(total)
    for kind in sorted((k for k in range(len(kinds)) if room[k] > 0), key=lambda k: kinds[k].cost / room[k]):
        count = kinds[kind].count
        used = left / room[kind] if count is None else min(float(count), left / room[kind])
        cost += used * float(kinds[kind].cost)
        left -= used * room[kind]
        if left <= 0:
            break
    return max(step, math.ceil(cost / step - 1e-9) * step)
