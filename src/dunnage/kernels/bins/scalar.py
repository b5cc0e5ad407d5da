# SPDX-License-Identifier: Apache-2.0
"""One-dimensional bin packing on bare whole numbers, with a proven bound.

A portfolio, cheapest first, that stops as soon as the bound meets the number of bins:

1. dominance: while the largest item can share its bin with at most one other, give it the largest that fits;
2. the bound L2, best fit decreasing, and filling bins one after another by subset sums;
3. column generation: a fractional cover by patterns (how many items of each size a bin takes), and a bound from it;
   with very many sizes, first on sizes rounded up to few;
4. diving: fix the patterns that the cover uses most, solve the rest again, with a little randomness in each try;
5. items that share a bin in any packing at the bound are glued (``forced.py``), and the rest is packed;
6. the integer program over all patterns if they can be listed, else over those met so far; and one bin above the bound,
   over all that a packing with one bin fewer could use, or a flow over loads.

Why the bound is never above the truth:

- Dominance keeps an optimal packing: see :func:`fix_dominated`. Dividing by a common divisor changes no sum's fit.
- Each threshold of L2 gives a valid bound by itself, so leaving thresholds out only lowers the largest.
- Farley's bound holds for any prices of at least 0, so neither the solver's rounding nor ours matters. It is computed
  in whole numbers; 64 bits are enough, because a price is at most ``PRICE_SCALE``, so n of them are at most 1e9 n. If
  the capacity is too large for a table, sizes are rounded down for the bound: more fits, the worth of a bin is
  overstated, and the bound only falls. A pattern is used only if its true sizes fit.
- Only the integer program rests on floating point: branch and bound by HiGHS, its bound rounded down by a margin. Its
  patterns are all those to which no item can be added, so every packing is among its covers. One bin above the bound
  b, they are fewer: at whole prices with total P, if no bin is worth more than M, every bin of a packing into b bins is
  worth at least P - (b - 1) M, for any prices. The same with sizes as prices: no bin leaves more room than all b do.

References
----------
Martello, Toth 1990 (L2, dominance); Gilmore, Gomory 1961 (column generation); Farley 1990 (bound from prices);
Baldacci, Christofides, Mingozzi 2008 (all columns within the gap).
"""

from __future__ import annotations

import bisect
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray, kernel
from dunnage.errors import ParameterError
from dunnage.kernels.bins.forced import glue_items
from dunnage.kernels.deadline import NEVER, Deadline
from dunnage.kernels.solver import Patterns, Relaxation, affordable, relax_cover, whole_cover, whole_flow
from dunnage.model.domains import decimal_scale

Pattern = npt.NDArray[np.int32]
Bins = list[list[int]]
Progress = Callable[[str, int, int], None]

PRICE_SCALE = 10**9
MAX_THRESHOLDS = 2000
MAX_LISTED_PATTERNS = 20_000
MAX_NEAR_PATTERNS = 40_000
MAX_NEAR_STEPS = 10**7  # a quarter of a second
MAX_NEAR_CELLS = 2 * 10**7
NUM_PRICES = 6
MAX_SIZES = 2000
MAX_EASY_SIZES = 300
COARSE_SIZES = 150
MAX_TABLE_WIDTH = 200_000
MAX_TABLE_CELLS = 5 * 10**7
FILL_WIDTH = 50_000
MAX_WINDOW = 4000
MIXED_FILLS = 3
_BLOCK = 512
_LARGEST_CAPACITY = 2.0**60
_ROUNDED_BITS = 52
_ROUNDING = 1e-6
_TRIES_BEFORE_PROGRAM = 4
WORTH_GLUING = 0.6  # of the items are left, before the integer programs


@dataclass(frozen=True, eq=False)
class Packing:
    bins: Bins  # for each bin the positions of its items
    bound: int  # no packing has fewer bins
    seconds: float  # running time

    @property
    def objective(self) -> int:
        return len(self.bins)

    @property
    def gap(self) -> int:
        return self.objective - self.bound

    @property
    def status(self) -> str:
        return "optimal" if self.gap == 0 else "feasible"


@dataclass
class _BinSearch:
    deadline: Deadline
    bins: Bins
    num_fixed: int = 0
    bound: int = 0
    progress: Progress | None = None

    @property
    def done(self) -> bool:
        return len(self.bins) <= self.bound or self.deadline.late

    def offer(self, bins: Bins | None) -> None:
        if bins is not None and len(bins) < len(self.bins):
            self.bins = bins
            self.tell("packing")

    def raise_bound(self, bound: int) -> None:
        if bound > self.bound:
            self.bound = bound
            self.tell("bound")

    def tell(self, stage: str) -> None:
        if self.progress is not None:
            self.progress(stage, self.num_fixed + len(self.bins), self.num_fixed + self.bound)


def pack_bins(
    weights: IntArray, capacity: int, *, seconds: float, progress: Progress | None = None, seed: int = 0
) -> Packing:
    """Pack items into as few bins as the time allows, with a proven bound; best fit always finishes."""
    start = time.monotonic()
    given = np.asarray(weights)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ParameterError(f"weights must be one row of whole numbers. Got {given.ndim} dimensions of {given.dtype}.")
    if given.size and (int(given.min()) < 0 or int(given.max()) > min(capacity, 2**62)):
        raise ParameterError(f"weights must be between 0 and the capacity {capacity}. Leave larger ones out.")
    if capacity < 0 or not seconds >= 0:
        raise ParameterError(f"capacity and seconds must be at least 0. Got {capacity} and {seconds}.")
    # Divide by the common divisor: a sum of multiples of d is at most c exactly if it is at most c // d times d.
    items = given.astype(np.int64)
    divisor = max(1, int(np.gcd.reduce(items)))
    items, capacity = items // divisor, min(capacity // divisor, sum((items // divisor).tolist()))
    weightless = np.flatnonzero(items == 0).tolist()
    bins, rest = fix_dominated(items, np.flatnonzero(items).tolist(), capacity)
    bound = len(bins)
    if rest:
        first = best_fit_decreasing(items, rest, capacity)
        search = _BinSearch(Deadline(start + seconds), first, len(bins), progress=progress)
        # Run the portfolio on the items that dominance left over.
        # Seeded, outside noise: no privacy depends on it, as the package says
        generator = np.random.default_rng(seed)
        search.raise_bound(l2_bound(items[rest], capacity))
        # Largest first, which suits large items, then in mixed order, which suits small ones.
        order = sorted(rest, key=items.tolist().__getitem__, reverse=True)
        for _ in range(1 + MIXED_FILLS):
            if search.done:
                break
            search.offer(fill_by_subset_sums(items, order, capacity, deadline=search.deadline.part(1 / 8)))
            order = generator.permutation(rest).tolist()
        if affordable(search.deadline.left):
            num_sizes = len(np.unique(items[rest]))
            if num_sizes > MAX_EASY_SIZES:
                _cover_coarsened(search, items, rest, capacity, generator)
            if num_sizes <= MAX_SIZES:
                _cover(search, Sizes.of(items, rest, capacity), [items[bin_] for bin_ in search.bins], generator)
        bins, bound = bins + search.bins, bound + search.bound
    if weightless:
        bins, bound = [weightless + (bins[0] if bins else []), *bins[1:]], max(bound, 1)
    return Packing(bins, bound, time.monotonic() - start)


def _cover_coarsened(
    search: _BinSearch, items: IntArray, rest: list[int], capacity: int, generator: np.random.Generator
) -> None:
    """Dive once on weights rounded up to few sizes: a packing of those is valid here, but a bound is not."""
    # Column generation over very many sizes takes minutes, while rounding costs a small fraction of the bins.
    unit = max(1, int(np.ptp(items[rest])) // COARSE_SIZES)
    rounded = -(-items // unit)
    if search.done or int(rounded[rest].max()) > capacity // unit:
        return
    first = best_fit_decreasing(rounded, rest, capacity // unit)
    coarse = _BinSearch(search.deadline.part(1 / 2), search.bins, bound=search.bound)
    coarse.offer(first)
    problem = Sizes.of(rounded, rest, capacity // unit)
    _cover(coarse, problem, [rounded[bin_] for bin_ in first], generator, most_tries=1)
    search.offer(coarse.bins)


def _cover(
    search: _BinSearch,
    problem: Sizes,
    first: Iterable[IntArray],
    generator: np.random.Generator,
    most_tries: int | None = None,
) -> None:
    """Cover the sizes by patterns, first those of a packing: dive often, with the integer program once in between."""
    if search.done:
        return
    pool = _Pool.of_singles(problem)
    for weights in first:
        ranks = np.searchsorted(-problem.sizes, -weights)
        pool.add(np.bincount(ranks, minlength=len(problem.sizes)).astype(np.int32))
    if _generate(search, problem, pool) is None:
        return
    tried = False
    for attempt in itertools.count() if most_tries is None else range(most_tries):
        if attempt in (1, _TRIES_BEFORE_PROGRAM + 2) and most_tries is None:
            _glue(search, problem, WORTH_GLUING if attempt == 1 else 1.0)
        if search.done:
            return
        if attempt > _TRIES_BEFORE_PROGRAM and len(search.bins) == search.bound + 1 and not tried:
            tried = True
            _decide(search, problem, pool, generator)
            if search.done:
                return
        if attempt != _TRIES_BEFORE_PROGRAM:
            patterns = _dive(search, problem, pool, generator)
            search.offer(None if patterns is None else problem.bins_of(patterns))
            continue
        # The integer program over all patterns if they can be listed, else a cover among those met so far
        listed = list_patterns(problem, MAX_LISTED_PATTERNS, deadline=search.deadline)
        table = pool.table if listed is None else listed
        share, goal = search.deadline.left, None
        if listed is None:
            share, goal = share / 3, len(search.bins) - 1
        if share > 0:
            cover = whole_cover(table, problem.demand, seconds=share, at_most=goal)
            if cover.values is not None:
                rows = np.repeat(np.arange(len(table)), cover.values).tolist()
                search.offer(problem.bins_of(table[row] for row in rows))
            search.raise_bound(min(cover.bound, len(search.bins)))


def _glue(search: _BinSearch, problem: Sizes, worth: float) -> None:
    """Decide whether there is a packing at the bound: glue items that then share a bin, and pack what is left."""
    positions = [position for of_size in problem.positions for position in of_size]
    sizes = np.repeat(problem.sizes, problem.demand)
    target = search.bound
    spare = target * problem.capacity - int(sizes.sum())
    if search.done or problem.capacity > MAX_TABLE_WIDTH:
        return
    groups = glue_items(sizes.tolist(), problem.capacity, spare, search.deadline.part(1 / 8))
    if search.done:
        return
    if groups is None:
        search.raise_bound(target + 1)
    elif len(groups) < worth * len(sizes):
        glued = np.array([sizes[group].sum() for group in groups])
        packing = pack_bins(glued, problem.capacity, seconds=search.deadline.left)
        if packing.objective == target:
            search.offer([[positions[i] for group in bin_ for i in groups[group]] for bin_ in packing.bins])
        elif packing.bound > target:
            search.raise_bound(target + 1)


def fix_dominated(items: IntArray, rest: list[int], capacity: int) -> tuple[Bins, list[int]]:
    """Fix bins that some optimal packing has, and return them and the positions left."""
    # If the largest item fits with at most one other, an optimal packing pairs it with the largest that fits: swap its
    # partner for that one, and the other bin only gets lighter. The room beside the largest only grows from one to the
    # next, so the items that fit wait on an ascending stack, and the partner is always its top.
    order = np.array(rest, dtype=np.int64)[np.argsort(items[rest], kind="stable")].tolist()
    sizes = items[order].tolist()
    fixed: Bins = []
    fitting: list[int] = []  # fits beside the largest; only this and sizes[low : high + 1] are left
    low, high = 0, len(sizes) - 1
    while fitting or low <= high:
        largest = high if low <= high else fitting[-1]
        room = capacity - sizes[largest]
        smallest = [*fitting[:2], *range(low, min(low + 2, high + 1))][:2]
        if len(fitting) + high + 1 - low >= 3 and sum(sizes[i] for i in smallest) <= room:
            break
        if low <= high:
            high -= 1
        else:
            fitting.pop()
        while low <= high and sizes[low] <= room:
            fitting.append(low)
            low += 1
        fixed.append([order[i] for i in (largest, *([fitting.pop()] if fitting else []))])
    return fixed, [order[i] for i in (*fitting, *range(low, high + 1))]


def l2_bound(weights: IntArray, capacity: int) -> int:
    """Return the bound L2 of Martello and Toth: the number of bins that the large items force."""
    # For a threshold t up to half the capacity: items above capacity - t need a bin each and leave no room for items of
    # t or more; those between half and that need a bin each, with some room; the rest, of t or more, must fit into the
    # remaining room. Every threshold is valid.
    if len(weights) == 0:
        return 0
    sizes = np.sort(np.asarray(weights, dtype=np.int64))
    total = list(itertools.accumulate(sizes.tolist(), initial=0))  # Python's whole numbers cannot overflow
    thresholds = np.unique(sizes[sizes <= capacity // 2])
    thresholds = np.append(thresholds[:: 1 + len(thresholds) // MAX_THRESHOLDS], 0)
    half = int(np.searchsorted(sizes, capacity // 2, side="right"))
    bigs = np.searchsorted(sizes, capacity - thresholds, side="right").tolist()
    smalls = np.searchsorted(sizes, thresholds, side="left").tolist()
    best = 0
    for big, small in zip(bigs, smalls, strict=True):
        room = (big - half) * capacity - (total[big] - total[half])
        over = total[half] - total[small] - room
        best = max(best, len(sizes) - half + max(0, -(-over // capacity)))
    return best


class _Rooms:
    """Open bins by their room, ascending, in blocks: no search or insertion touches more than a few."""

    def __init__(self) -> None:
        self._blocks: list[list[tuple[int, int]]] = [[]]
        self._firsts: list[tuple[int, int]] = [(-1, -1)]  # at most the first entry of each block, above all before

    def take(self, size: int) -> tuple[int, int] | None:
        """Remove and return the smallest room of at least ``size``, with its bin."""
        which = bisect.bisect_right(self._firsts, (size, -1)) - 1
        at = bisect.bisect_left(self._blocks[which], (size, -1))
        if at == len(self._blocks[which]):
            which, at = which + 1, 0
        if which == len(self._blocks):
            return None
        entry = self._blocks[which].pop(at)
        if not self._blocks[which] and which:
            del self._blocks[which], self._firsts[which]
        return entry

    def put(self, room: int, bin_: int) -> None:
        which = bisect.bisect_right(self._firsts, (room, bin_)) - 1
        block = self._blocks[which]
        bisect.insort(block, (room, bin_))
        if len(block) > 2 * _BLOCK:
            self._blocks[which : which + 1] = [block[:_BLOCK], block[_BLOCK:]]
            self._firsts.insert(which + 1, block[_BLOCK])


def best_fit_decreasing(items: IntArray, rest: list[int], capacity: int) -> Bins:
    """Put each item, largest first, into the fullest bin that still takes it."""
    order = np.array(rest, dtype=np.int64)[np.argsort(-items[rest], kind="stable")]
    bins: Bins = []
    rooms = _Rooms()
    least = int(items[order[-1]]) if rest else 0
    for item, size in zip(order.tolist(), items[order].tolist(), strict=True):
        entry = rooms.take(size)
        if entry is None:
            entry = capacity, len(bins)
            bins.append([])
        bins[entry[1]].append(item)
        if entry[0] - size >= least:  # else nothing fits any more
            rooms.put(entry[0] - size, entry[1])
    return bins


def fill_by_subset_sums(items: IntArray, order: list[int], capacity: int, *, deadline: Deadline = NEVER) -> Bins | None:
    """Fill bin after bin: the next item, and the later ones of a window that leave the least room; None if late."""
    unit = max(1, -(-capacity // FILL_WIDTH))
    most = min(MAX_WINDOW, 2**26 * unit // capacity)  # 8 MiB of bits
    waiting = order[::-1]
    window: list[int] = []
    loads: list[int] = []
    bins: Bins = []
    while waiting or window:
        if deadline.late:
            return None
        new = waiting[: -(most - len(window)) - 1 : -1]
        del waiting[len(waiting) - len(new) :]
        window += new
        loads += (-(-items[new] // unit)).tolist()
        room = (capacity - int(items[window[0]])) // unit
        # The subset with the largest sum that fits, from the front if there is a choice. The bits of one long integer
        # are the possible sums, so this is exact.
        mask, reached, chosen = (1 << (room + 1)) - 1, [1], [0]
        for size in itertools.islice(loads, 1, None):
            last = reached[-1]
            if last >> room:
                break
            reached.append((last | last << size) & mask if size <= room else last)
        total = reached[-1].bit_length() - 1
        for i in range(len(reached) - 1, 0, -1):
            if not reached[i - 1] >> total & 1:
                chosen.append(i)
                total -= loads[i]
        bins.append([window[i] for i in chosen])
        for i in sorted(chosen, reverse=True):
            del window[i], loads[i]
    return bins


@dataclass(frozen=True, eq=False)
class Sizes:
    sizes: IntArray  # distinct, largest first, at least 1
    demand: IntArray  # number of items of each size
    capacity: int  # of a bin
    positions: Sequence[list[int]] = ()  # the items of each size

    @classmethod
    def of(cls, items: IntArray, rest: list[int], capacity: int) -> Sizes:
        positions: dict[int, list[int]] = {}
        for size, item in sorted(zip(items[rest].tolist(), rest, strict=True), reverse=True):
            positions.setdefault(size, []).append(item)
        sizes = np.array(list(positions), dtype=np.int64)
        demand = np.array([len(items_of_size) for items_of_size in positions.values()], dtype=np.int64)
        return cls(sizes, demand, capacity, list(positions.values()))

    @property
    def most(self) -> IntArray:
        return np.minimum(self.demand, self.capacity // self.sizes)

    def part(self, demand: IntArray) -> Sizes:
        rest = np.flatnonzero(demand)
        return Sizes(self.sizes[rest], demand[rest], self.capacity)

    def bins_of(self, patterns: Iterable[Pattern]) -> Bins:
        """Give items to patterns; a pattern that needs more than is left gets less."""
        left = [list(items) for items in self.positions]
        bins = []
        for pattern in patterns:
            taken = [left[i].pop() for i in np.flatnonzero(pattern) for _ in range(int(pattern[i])) if left[i]]
            if taken:
                bins.append(taken)
        return bins


class _Pool:
    """Patterns met so far, each once. They have 32 bits, because a bin may take very many equal items."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._patterns = {pattern.tobytes(): pattern for pattern in patterns}

    @classmethod
    def of_singles(cls, problem: Sizes) -> _Pool:
        """Start with one pattern for each size: as many items as fit. So no price exceeds 1."""
        return cls(np.diag(problem.most).astype(np.int32))

    @property
    def table(self) -> Patterns:
        return np.array(list(self._patterns.values()))

    def add(self, pattern: Pattern) -> bool:
        before = len(self._patterns)
        self._patterns.setdefault(pattern.tobytes(), pattern)
        return len(self._patterns) > before

    def within(self, demand: IntArray) -> _Pool:
        """Return the patterns that need no more than the rest, over the sizes of the rest."""
        table = self.table
        return _Pool(table[(table <= demand).all(axis=1)][:, np.flatnonzero(demand)])


def _generate(search: _BinSearch, problem: Sizes, pool: _Pool, num_fixed: int = 0) -> Relaxation | None:
    """Generate patterns until the bound cannot rise any more; None if time is up or nothing can be gained."""
    pricing = Pricing(problem, deadline=search.deadline)
    while True:
        seconds = search.deadline.left
        relaxed = relax_cover(pool.table, problem.demand, seconds=seconds) if seconds else None
        if relaxed is None:
            return None
        prices = (np.clip(relaxed.prices, 0.0, 1.0) * PRICE_SCALE).astype(np.int64)
        bound = pricing.bound(prices)
        if num_fixed == 0:  # else it holds only for the rest of a dive
            search.raise_bound(bound)
        if num_fixed + bound >= len(search.bins) or search.deadline.late:
            return None
        if bound >= math.ceil(relaxed.objective - _ROUNDING):
            return relaxed
        if not sum([pool.add(pattern) for pattern in pricing.valuable(prices)]):
            return relaxed


class Pricing:
    """Knapsacks over the sizes: which patterns are worth most at given prices."""

    def __init__(self, problem: Sizes, *, deadline: Deadline = NEVER) -> None:
        # The copies of a size are bundled by powers of two: every number up to the most that fit is a sum of bundles.
        # If the capacity exceeds the width of a table, there are two tables. Rounding loads down overstates the worth
        # of a bin, which is valid for the bound; rounding up gives patterns that certainly fit.
        self.problem, self.deadline = problem, deadline
        bundles: list[tuple[int, int]] = []
        for kind, most in enumerate(problem.most.tolist()):  # 1, 2, 4, ... and a rest, which add up to the most
            powers = [1 << i for i in range((most + 1).bit_length() - 1)]
            left = most - sum(powers)
            bundles += [(kind, times) for times in (*powers, *([left] if left else []))]
        self.kinds, self.times = np.array(bundles, dtype=np.int64).reshape(-1, 2).T
        cells = problem.capacity * len(bundles)
        unit = max(1, -(-problem.capacity // MAX_TABLE_WIDTH), -(-cells // MAX_TABLE_CELLS))
        loads = problem.sizes[self.kinds] * self.times
        down, up = loads // unit, -(-loads // unit)
        self.tables = [
            _Knapsack(rounded, problem.capacity // unit) for rounded in ([loads] if unit == 1 else [down, up])
        ]

    def bound(self, prices: IntArray) -> int:
        """Return a lower bound on the number of bins, valid for any whole prices of at least 0; 0 if time is up."""
        # The worth of all items over the largest worth of a bin. Remembers the choices for `valuable`.
        most = self.most_worth(prices)
        return -(-int((self.problem.demand * prices).sum()) // most) if most else 0

    def most_worth(self, prices: IntArray) -> int | None:
        """Return the largest worth of a bin, or more; None if time is up. Remembers the choices."""
        worths = prices[self.kinds] * self.times
        most, *_ = [table.fill(worths, self.deadline) for table in self.tables]  # the first: exact or rounded down
        return most or (None if self.deadline.late else 0)

    def valuable(self, prices: IntArray) -> list[Pattern]:
        """Return for each bundle the best pattern that ends with it, if it is worth more than one bin and fits."""
        patterns = []
        worths = prices[self.kinds] * self.times
        for table, last in itertools.product(self.tables, np.flatnonzero(worths).tolist()):
            if self.deadline.late:
                break
            chosen = table.best_with(last)
            if int(worths[chosen].sum()) > PRICE_SCALE + 1:
                pattern = np.zeros(len(prices), dtype=np.int32)
                np.add.at(pattern, self.kinds[chosen], self.times[chosen])
                if int(pattern @ self.problem.sizes) <= self.problem.capacity:
                    patterns.append(pattern)
        return patterns


class _Knapsack:
    """The dynamic program of one knapsack, and for each bundle and room whether the bundle is taken."""

    def __init__(self, loads: IntArray, width: int) -> None:
        self.loads, self.width = loads, width
        self.taken = np.zeros((len(loads), width + 1), dtype=np.bool_)

    def fill(self, worths: IntArray, deadline: Deadline) -> int:
        """Return the largest worth of a bin; 0 if time is up."""
        best = np.zeros(self.width + 1, dtype=np.int64)
        for bundle, (load, worth) in enumerate(zip(self.loads.tolist(), worths.tolist(), strict=True)):
            if bundle % 16 == 0 and deadline.late:
                return 0  # a wide table takes a while, and half a table proves nothing
            self.taken[bundle] = False
            if worth and load <= self.width:
                with_it = best[: self.width + 1 - load] + worth
                np.greater(with_it, best[load:], out=self.taken[bundle, load:])
                np.maximum(best[load:], with_it, out=best[load:])
        return int(best[-1])

    def best_with(self, last: int) -> list[int]:
        """Return the best choice among bundles up to ``last`` that takes it; empty if it does not fit."""
        room = self.width - int(self.loads[last])
        chosen = []
        while room >= 0:
            chosen.append(last)
            marks = np.flatnonzero(self.taken[:last, room])
            if not len(marks):
                break
            last = int(marks[-1])
            room -= int(self.loads[last])
        return chosen


def _dive(search: _BinSearch, problem: Sizes, pool: _Pool, generator: np.random.Generator) -> list[Pattern] | None:
    """Fix what the fractional cover uses most, solve the rest again, and so on; None if that cannot improve."""
    demand = problem.demand.copy()
    fixed: list[Pattern] = []
    while demand.any():
        rest, part = np.flatnonzero(demand), problem.part(demand)
        own = pool.within(demand)
        for single in _Pool.of_singles(part).table:
            own.add(single)
        relaxed = _generate(search, part, own, num_fixed=len(fixed))
        if relaxed is None:
            return None
        table = np.zeros((len(own.table), len(demand)), dtype=np.int32)
        table[:, rest] = own.table
        for pattern in table:
            pool.add(pattern)
        # Choose the patterns to fix: whole parts of their values, then some of the largest fractions.
        left = demand.copy()
        chosen: list[Pattern] = []
        most = max(1, int(np.count_nonzero(demand)) // 10)
        for j in np.argsort(-(relaxed.values + generator.uniform(0, 0.05, len(relaxed.values)))).tolist():
            times = int(relaxed.values[j] + _ROUNDING)
            if times == 0 and chosen and (len(chosen) >= most or relaxed.values[j] < 0.3):
                break
            for _ in range(max(times, 1)):
                if not (table[j] <= left).all():
                    break
                chosen.append(table[j])
                left = left - table[j]
        fixed += chosen
        demand = demand - np.sum(chosen, axis=0)
    return fixed


def list_patterns(problem: Sizes, most: int, *, deadline: Deadline = NEVER) -> Patterns | None:
    """List all patterns to which no item can be added; None if there are more than ``most`` or time is up."""
    sizes, demand = problem.sizes.tolist(), problem.demand.tolist()
    after = list(itertools.accumulate((problem.sizes * problem.demand)[::-1].tolist(), initial=0))[::-1]
    patterns: list[Pattern] = []
    # Still to do: the next size to decide, room, smallest size left out, and the numbers decided so far. The first size
    # that fits comes next: larger ones will never fit, so they need no decision.
    stack: list[tuple[int, int, int, tuple[int, ...]]] = [(0, problem.capacity, problem.capacity + 1, ())]
    for step in itertools.count():
        if not stack:
            return np.array(patterns)
        if len(patterns) > most or step > 20 * most or (step % 1024 == 0 and deadline.late):
            return None
        i, room, left_out, numbers = stack.pop()
        i = max(i, bisect.bisect_left(sizes, -room, key=lambda size: -size))
        numbers += (0,) * (i - len(numbers))
        if room - after[i] >= left_out:
            continue  # even with everything still to come, the size left out would fit
        if i == len(sizes):
            patterns.append(np.array(numbers, dtype=np.int32))
            continue
        for times in range(min(demand[i], room // sizes[i]) + 1):
            least = sizes[i] if times < demand[i] else left_out
            stack.append((i + 1, room - times * sizes[i], least, (*numbers, times)))
    return None


def _decide(search: _BinSearch, problem: Sizes, pool: _Pool, generator: np.random.Generator) -> None:
    """Decide by an integer program whether a packing at the bound exists: over patterns, or if too many over loads."""
    if (problem.capacity + 1) * (len(problem.sizes) + 1) > MAX_NEAR_CELLS:
        return
    # Prices inside the face of the best ones exclude most: the mean of those for slightly different demands.
    pricing, mean = Pricing(problem, deadline=search.deadline), np.zeros(len(problem.sizes))
    for turn in range(NUM_PRICES):
        demand = problem.demand * (1.0 + bool(turn) * 1e-3 * generator.random(len(mean)))
        fresh, last = True, mean
        while fresh:
            seconds = search.deadline.left
            relaxed = relax_cover(pool.table, demand, seconds=seconds) if seconds else None
            if relaxed is None:
                return
            prices = (np.clip(relaxed.prices, 0.0, 1.0) * PRICE_SCALE).astype(np.int64)
            if pricing.most_worth(prices) is None:
                return
            fresh = sum([pool.add(pattern) for pattern in pricing.valuable(prices)]) > 0
            last = relaxed.prices
        mean += last / NUM_PRICES
    prices = (np.clip(mean, 0.0, 1.0) * PRICE_SCALE).astype(np.int64)
    most = pricing.most_worth(prices)
    if most is None:
        return
    target, others, capacity = search.bound, search.bound - 1, problem.capacity
    least_worth = int((problem.demand * prices).sum()) - others * most
    least_load = max(0, int(problem.demand @ problem.sizes) - others * capacity)
    given, impossible = (problem.sizes, problem.most, prices), False
    near = np.zeros((MAX_NEAR_PATTERNS, len(problem.sizes)), dtype=np.int32)
    num = _list_near(given, capacity, least_worth, least_load, near, MAX_NEAR_STEPS)
    if num >= 0 and (share := search.deadline.left / 2):
        cover = whole_cover(near[:num], problem.demand, seconds=share, at_most=target, exactly=True) if num else None
        impossible = cover is None or cover.impossible
        if cover is not None and cover.values is not None:
            search.offer(problem.bins_of(near[np.repeat(np.arange(num), cover.values)]))
    if not impossible and not search.done:
        arcs = _near_arcs(given, capacity, least_worth, least_load)
        flow = whole_flow(arcs, problem.sizes, problem.demand, capacity, target, seconds=search.deadline.left * 2 / 3)
        impossible = flow.impossible
        if flow.patterns is not None:
            search.offer(problem.bins_of(flow.patterns))
    if impossible:
        search.raise_bound(target + 1)


@kernel
def _near_arcs(
    given: tuple[IntArray, IntArray, IntArray], capacity: int, least_worth: int, least_load: int
) -> npt.NDArray[np.bool_]:
    """Say for each size and load whether a pattern of at least some worth and load puts the size on top of the load."""
    sizes, most, prices = given
    num, never = len(sizes), np.int64(-(2**62))
    # Largest sizes first: the largest worth of larger ones with this load, and of this size and smaller ones above it
    below, above = np.full((num + 1, capacity + 1), never), np.full((num + 1, capacity + 1), never)
    below[0, 0] = 0
    above[num, least_load:] = 0
    for i in range(num):
        for load in range(capacity + 1):
            if below[i, load] != never:
                for times in range(min(most[i], (capacity - load) // sizes[i]) + 1):
                    to = load + times * sizes[i]
                    below[i + 1, to] = max(below[i + 1, to], below[i, load] + times * prices[i])
    arcs = np.zeros((num, capacity + 1), dtype=np.bool_)
    for i in range(num - 1, -1, -1):
        for load in range(capacity + 1):
            for times in range(min(most[i], (capacity - load) // sizes[i]) + 1):
                rest = above[i + 1, load + times * sizes[i]]
                if rest == never:
                    continue
                above[i, load] = max(above[i, load], times * prices[i] + rest)
                if below[i, load] != never and below[i, load] + times * prices[i] + rest >= least_worth:
                    for time in range(times):
                        arcs[i, load + time * sizes[i]] = True
    return arcs


@kernel
def _list_near(
    given: tuple[IntArray, IntArray, IntArray],
    capacity: int,
    least_worth: int,
    least_load: int,
    out: Patterns,
    max_steps: int,
) -> int:
    """Write the patterns of at least some worth and load; return how many, or -1 if there are too many."""
    sizes, most, prices = given
    num = len(sizes)
    # best[i, room]: the largest worth of items of size i and smaller
    best = np.zeros((num + 1, capacity + 1), dtype=np.int64)
    for i in range(num - 1, -1, -1):
        for room in range(capacity + 1):
            value = best[i + 1, room]
            for times in range(1, min(most[i], room // sizes[i]) + 1):
                value = max(value, times * prices[i] + best[i + 1, room - times * sizes[i]])
            best[i, room] = value
    # Depth first: how many of size i, its room and worth so far. The next number to try is left[i] - 1.
    left, rooms, worths = np.zeros(num + 1, np.int64), np.zeros(num + 1, np.int64), np.zeros(num + 1, np.int64)
    rooms[0], left[0] = capacity, min(most[0], capacity // sizes[0]) + 1
    found, depth = 0, 0
    for _ in range(max_steps):
        if depth < 0:
            return found
        if left[depth] == 0:
            depth -= 1
            continue
        left[depth] -= 1
        room, worth = rooms[depth] - left[depth] * sizes[depth], worths[depth] + left[depth] * prices[depth]
        if worth + best[depth + 1, room] < least_worth:
            continue
        if depth + 1 < num:
            depth += 1
            rooms[depth], worths[depth] = room, worth
            left[depth] = min(most[depth], room // sizes[depth]) + 1
        elif capacity - room >= least_load:
            if found == len(out):
                return -1
            out[found] = left[:num]
            found += 1
    return -1


class WholeNumbers(NamedTuple):
    items: IntArray  # weights, rounded up if they are not exact, and the capacity down: what fits these really fits
    capacity: int
    below: tuple[IntArray, int] | None  # if they are not exact: both rounded the other way, for bounds


def whole_numbers(weights: FloatArray, capacity: float) -> WholeNumbers:
    """Turn decimals into whole numbers by a scale that makes all of them exact, or round them outward."""
    # The scale is a power of ten for decimals of up to nine places, a power of two for other doubles, as long as the
    # capacity stays below 2**60.
    values = np.append(weights, capacity)
    scale = decimal_scale(values)
    if scale is not None and capacity * scale < _LARGEST_CAPACITY:
        whole = np.rint(values * scale).astype(np.int64)
        return WholeNumbers(whole[:-1], int(whole[-1]), None)
    power = max(Fraction(value).denominator for value in np.unique(values).tolist())
    if Fraction(capacity) * power < _LARGEST_CAPACITY:
        whole = np.array([int(Fraction(value) * power) for value in values.tolist()], dtype=np.int64)
        return WholeNumbers(whole[:-1], int(whole[-1]), None)
    shift = _ROUNDED_BITS - math.frexp(capacity)[1]
    fine = np.ldexp(weights, shift)  # a power of two changes no digit
    room = math.floor(math.ldexp(capacity, shift))
    below = np.floor(fine).astype(np.int64), room + 1
    return WholeNumbers(np.minimum(np.ceil(fine), room).astype(np.int64), room, below)
