# SPDX-License-Identifier: Apache-2.0
"""Fills of sealed slots, on bare whole numbers: count them, sample one uniformly, say how likely an item is in a bin.

A sealed plan only says how many items of each class a bin takes. A *fill* puts every item into a slot of its class; it
is feasible if no bin is above capacity. Items are distinguishable, the slots of one class in one bin are not.

**Counting** (:func:`count_fills`) is exact.

**Walking** (:func:`estimate_chances`) is for problems too large to count: Markov chains over all fills, feasible or
not, at several penalties for overload, that change places now and then. At every penalty all feasible fills are equally
likely, so the feasible ones met are the sample. Nothing proves that the chains walked long enough, so the result is an
estimate.

``docs/proofs/linkage.md`` has the proofs.

References
----------
Hoogervorst et al. 2019 (the setting); Geyer 1991 (chains that change places).
"""

from __future__ import annotations

import bisect
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray, kernel
from dunnage.errors import NoPlanError, ParameterError
from dunnage.kernels.deadline import NEVER, Deadline

# Counting removes what cannot matter, splits the rest into parts that share no class and no bin, and places the items
# of a part one after another. Bins that take the same future items are merged, so the same states come again and again,
# and the ways to continue from a state are counted once (docs/proofs/linkage.md#counting-fills).

Below = Callable[[int], int]
Amounts = tuple[int, ...]

MAX_SUMS = 400
TRIAL_PARTS = 20
MAX_CROSSINGS = 100_000  # sorts times classes of a part; a part with more has far too many states to count


class Sort(NamedTuple):
    """Bins that take the same numbers of the same classes and have the same room for them."""

    needs: tuple[tuple[int, int], ...]
    room: Amounts | None  # None: for anything
    bins: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class FillPart:
    """A part of a problem that shares no class and no bin that matters with any other."""

    members: dict[int, list[int]]  # the items of each class, largest first
    sorts: list[Sort]  # bins that matter; slots of a class in all other bins form one bin, with number `-1 - class`
    pools: dict[int, list[int]]  # for each class the bin of each of those slots


def ways_to_share(bins: Sequence[int]) -> int:
    """Return the number of ways to put distinguishable items into slots of these bins."""
    _, numbers = np.unique(np.asarray(bins, dtype=np.int64), return_counts=True)
    return math.factorial(len(bins)) // math.prod(math.factorial(number) for number in numbers.tolist())


def slots_of(counts: IntArray) -> list[int]:
    slots: list[int] = np.repeat(np.arange(len(counts)), counts).tolist()
    return slots


def members_by_class(class_of: IntArray, sizes: IntArray, num_classes: int) -> list[list[int]]:
    """Return the items of each class, largest first; equal ones are neighbours."""
    largest = np.maximum(sizes.max(axis=0, initial=0), 1)
    order = np.lexsort((*sizes.T, (sizes / largest).sum(axis=1)))[::-1]
    members: list[list[int]] = [[] for _ in range(num_classes)]
    for item in order.tolist():
        members[class_of[item]].append(item)
    return members


def extremes(class_of: IntArray, sizes: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return the smallest and the largest possible load of each bin in each resource. Shapes: bins x resources."""
    least = np.zeros((len(counts), sizes.shape[1]), dtype=np.int64)
    most = least.copy()
    ends = np.cumsum(np.bincount(class_of, minlength=counts.shape[1]))
    for class_, items in enumerate(np.split(np.argsort(class_of, kind="stable"), ends[:-1])):
        low, high = _partial_sums(sizes[items])
        bins = np.flatnonzero(counts[:, class_])
        least[bins] += low[counts[bins, class_]]
        most[bins] += high[counts[bins, class_]]
    return least, most


def _partial_sums(sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Return for 0, 1, ... items their smallest and largest possible sum in each resource."""
    ranked, sums = np.sort(sizes, axis=0), np.zeros((2, len(sizes) + 1, sizes.shape[1]), dtype=np.int64)
    sums[0, 1:], sums[1, 1:] = np.cumsum(ranked, axis=0), np.cumsum(ranked[::-1], axis=0)
    return sums[0], sums[1]


def split(
    members: list[list[int]], sizes: IntArray, counts: IntArray, capacities: IntArray, most: IntArray
) -> list[FillPart]:
    varied = np.array([bool(np.any(sizes[items] != sizes[items[:1]])) for items in members], dtype=bool)
    can_overflow = np.max(most - capacities, axis=1, keepdims=True) > 0
    matters = can_overflow & varied & (counts > 0)  # bins x classes
    room = capacities.copy()
    for class_ in np.flatnonzero(~varied).tolist():
        if members[class_]:
            room -= counts[:, [class_]] * sizes[members[class_][0]]
    parts = []
    unseen = set(np.flatnonzero(matters.any(axis=0)).tolist())
    while unseen:
        classes, bins = {min(unseen)}, set[int]()
        while (reached := set(np.flatnonzero(matters[:, sorted(classes)].any(axis=1)).tolist())) != bins:
            bins = reached
            classes = set(np.flatnonzero(matters[sorted(bins)].any(axis=0)).tolist())
        unseen -= classes
        alike: dict[tuple[tuple[tuple[int, int], ...], Amounts], list[int]] = {}
        for bin_ in sorted(bins):
            needs = tuple((class_, int(counts[bin_, class_])) for class_ in sorted(classes) if matters[bin_, class_])
            alike.setdefault((needs, tuple(room[bin_].tolist())), []).append(bin_)
        pools = {class_: slots_of(counts[:, class_] * ~matters[:, class_]) for class_ in sorted(classes)}
        pools = {class_: pool for class_, pool in pools.items() if pool}
        sorts = [Sort(needs, left, tuple(same)) for (needs, left), same in alike.items()]
        sorts += [Sort(((class_, len(pool)),), None, (-1 - class_,)) for class_, pool in pools.items()]
        parts.append(FillPart({class_: members[class_] for class_ in sorted(classes)}, sorts, pools))
    return parts


class _Standing(NamedTuple):
    sort: int
    num_placed: int
    room: Amounts | None


State = tuple[tuple[int, int], ...]  # the number of bins of each standing; standings by number, ascending
Option = tuple[int, int, State]
"""To place an item into a bin of some standing: the standing, the number of bins with it, the state afterwards."""
_DONE, _DEAD = -1, -2
_END: dict[State, int] = {(): 1}


@dataclass(eq=False)
class _Layer:
    """The options for one item in each state, and how standings change by it."""

    options: dict[State, list[Option]] = field(default_factory=dict)
    ahead: dict[State, int] = field(default_factory=dict)  # ways to continue from each state that leads to the end
    taking: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)


class Sweep:
    """The states of a part, items placed one after another, classes in a given order."""

    def __init__(self, part: FillPart, sizes: IntArray, order: Sequence[int]) -> None:
        self.part = part
        self.items = [item for class_ in order for item in part.members[class_]]
        self.layers = [_Layer() for _ in self.items]
        self._sizes = sizes
        self._nothing = np.zeros_like(sizes[0])
        self._rank = [rank for rank, class_ in enumerate(order) for _ in part.members[class_]]
        self._class_sizes = [sizes[part.members[class_]] for class_ in order]
        self._class_end = np.cumsum([len(some) for some in self._class_sizes]).tolist()
        needs = [dict(sort.needs) for sort in part.sorts]
        self._needs = [[need.get(class_, 0) for class_ in order] for need in needs]
        self._due = [list(itertools.accumulate(row)) for row in self._needs]  # slots up to and with a class
        self._standings: list[_Standing] = []
        self._number_of: dict[_Standing, int] = {}
        self._sums: dict[tuple[int, int], tuple[IntArray, IntArray]] = {}
        first = [self._number(_Standing(at, 0, sort.room)) for at, sort in enumerate(part.sorts)]
        self.start: State = tuple((at, len(sort.bins)) for at, sort in zip(first, part.sorts, strict=True))

    def _number(self, standing: _Standing) -> int:
        if standing not in self._number_of:
            self._number_of[standing] = len(self._standings)
            self._standings.append(standing)
        return self._number_of[standing]

    def explore(self, most_states: int, deadline: Deadline) -> int:
        """List all reachable states; return how many items were placed before there were too many."""
        states: dict[State, None] = {self.start: None}
        num_states = 0
        for at, layer in enumerate(self.layers):
            after: dict[State, None] = {}
            for state in states:
                options = layer.options[state] = list(self._options(at, state))
                after.update((option[2], None) for option in options)
                num_states += 1
                if num_states > most_states or deadline.late:
                    return at
            states = after
        return len(self.layers)

    def _options(self, at: int, state: State) -> Iterator[Option]:
        """Yield the ways to place an item, except those that leave some bin without anything that fits."""
        layer, rank = self.layers[at], self._rank[at]
        for number, _ in state:
            if number not in layer.waiting:
                layer.waiting[number] = self._settled(at, self._standings[number])
        blocked = [number for number, _ in state if layer.waiting[number] == _DEAD]
        for number, num_bins in state:
            standing = self._standings[number]
            if standing.num_placed < self._due[standing.sort][rank] and (not blocked or blocked == [number]):
                if number not in layer.taking:
                    room = standing.room
                    if room is not None:
                        room = tuple(r - s for r, s in zip(room, self._sizes[self.items[at]].tolist(), strict=True))
                    layer.taking[number] = self._settled(at, _Standing(standing.sort, standing.num_placed + 1, room))
                if layer.taking[number] != _DEAD and not (blocked and num_bins > 1):
                    yield number, num_bins, self._after(layer, state, number)

    @staticmethod
    def _after(layer: _Layer, state: State, chosen: int) -> State:
        """Return the state after an item is put into a bin of the chosen standing."""
        numbers: dict[int, int] = {}
        for number, num_bins in state:
            waiting = num_bins - (number == chosen)
            if waiting:
                then = layer.waiting[number]
                numbers[then] = numbers.get(then, 0) + waiting
        then = layer.taking[chosen]
        numbers[then] = numbers.get(then, 0) + 1
        numbers.pop(_DONE, None)
        return tuple(sorted(numbers.items()))

    def _settled(self, at: int, standing: _Standing) -> int:
        """Return the standing of a bin after item ``at`` is placed."""
        # Its room is rounded down to the largest need of a set of items that may still come and would fit.
        sort, num_placed, room = standing
        if room is not None and min(room) < 0:
            return _DEAD
        if num_placed == self._due[sort][-1]:
            return _DONE
        if self._due[sort][self._rank[at]] - num_placed > self._class_end[self._rank[at]] - at - 1:
            return _DEAD  # more slots of this class than items of it are left
        if room is None:
            return self._number(standing)
        least, most = self._rest(at, sort, num_placed)
        if (most <= room).all():
            return self._number(_Standing(sort, num_placed, None))
        fits = (least <= room).all(axis=1)
        if not fits.any():
            return _DEAD
        if least is most:
            room = tuple(most[fits].max(axis=0).tolist())
        return self._number(_Standing(sort, num_placed, room))

    def _rest(self, at: int, sort: int, num_placed: int) -> tuple[IntArray, IntArray]:
        """Return the possible sums of what a bin may still get, twice, if they are few, else smallest and largest."""
        rank = self._rank[at]
        left = self._due[sort][rank] - num_placed
        options = [self._sums_of(at + 1, left)] if left else []
        for later in range(rank + 1, len(self._class_end)):
            if self._needs[sort][later]:
                options.append(self._sums_of(self._class_end[later - 1], self._needs[sort][later]))
        if all(low is high for low, high in options) and math.prod(len(low) for low, _ in options) <= MAX_SUMS:
            sums = self._nothing[None]
            for low, _ in options:  # all sums of one of each. Shapes: a x resources, b x resources -> ab x resources
                sums = (sums[:, None] + low).reshape(-1, sums.shape[1])
            return sums, sums
        return (
            sum((low.min(axis=0) for low, _ in options), start=self._nothing)[None],
            sum((high.max(axis=0) for _, high in options), start=self._nothing)[None],
        )

    def _sums_of(self, first: int, num: int) -> tuple[IntArray, IntArray]:
        """Return the sums of ``num`` items of one class after a position: all (twice) if few, else the extremes."""
        if (first, num) not in self._sums:
            rank = self._rank[first]
            sizes = self._class_sizes[rank][first - self._class_end[rank] :]
            if math.comb(len(sizes), num) <= MAX_SUMS:
                picks = np.array(list(itertools.combinations(range(len(sizes)), num)), dtype=np.int64)
                sums = np.unique(sizes[picks].sum(axis=1), axis=0)
                self._sums[first, num] = sums, sums
            else:
                low, high = _partial_sums(sizes)
                self._sums[first, num] = low[[num]], high[[num]]
        return self._sums[first, num]

    def count(self) -> int:
        """Count the ways to continue from each state, last ones first; forget states without any."""
        beyond = _END
        for layer in reversed(self.layers):
            for state, options in layer.options.items():
                kept = [option for option in options if option[2] in beyond]
                layer.options[state] = kept
                if kept:
                    layer.ahead[state] = sum(num_bins * beyond[after] for _, num_bins, after in kept)
            layer.options = {state: kept for state, kept in layer.options.items() if kept}
            beyond = layer.ahead
        return self.number

    @property
    def number(self) -> int:
        return self.layers[0].ahead.get(self.start, 0)

    def tally(self) -> list[dict[int, int]]:
        """Count for each item the ways in which it goes into a bin of each sort."""
        tallied: list[dict[int, int]] = []
        reaching = {self.start: 1}
        for layer, following in itertools.zip_longest(self.layers, self.layers[1:]):
            beyond = following.ahead if following else _END
            numbers, after_all = dict.fromkeys(range(len(self.part.sorts)), 0), dict.fromkeys(beyond, 0)
            for state, number in reaching.items():
                for standing, num_bins, after in layer.options[state]:
                    ways = number * num_bins
                    after_all[after] += ways
                    numbers[self._standings[standing].sort] += ways * beyond[after]
            tallied.append(numbers)
            reaching = after_all
        return tallied

    def draw(self, below: Below) -> Iterator[tuple[int, int]]:
        """Sample one way, all equally likely: yield each item and its bin."""
        state = self.start
        holders = {number: list(sort.bins) for (number, _), sort in zip(state, self.part.sorts, strict=True)}
        for item, layer, following in itertools.zip_longest(self.items, self.layers, self.layers[1:]):
            beyond = following.ahead if following else _END
            ends = list(itertools.accumulate(num * beyond[then] for _, num, then in layer.options[state]))
            standing, _, after = layer.options[state][bisect.bisect_right(ends, below(ends[-1]))]
            bin_ = holders[standing].pop(below(len(holders[standing])))
            yield item, bin_
            moved: dict[int, list[int]] = {layer.taking[standing]: [bin_]}
            for number, bins in holders.items():
                if bins and number != _DONE:
                    moved.setdefault(layer.waiting[number], []).extend(bins)
            holders, state = moved, after


def count_part(part: FillPart, sizes: IntArray, most_states: int, deadline: Deadline) -> Sweep | None:
    """Count a part in the best of some orders of classes: first a short trial of each, then a long one."""
    if len(part.sorts) * len(part.members) > MAX_CROSSINGS:
        return None
    # Keep the number of unfinished bins small: next comes the class that leaves fewest of them.
    fewest: list[int] = []
    sorts = [({class_ for class_, _ in sort.needs}, len(sort.bins)) for sort in part.sorts]
    while len(fewest) < len(part.members):
        if deadline.late:
            return None
        left = [class_ for class_ in part.members if class_ not in fewest]
        num_open = [
            sum(num for needs, num in sorts if needs & {*fewest, class_} and not needs <= {*fewest, class_})
            for class_ in left
        ]
        fewest.append(left[num_open.index(min(num_open))])
    heavy = sorted(part.members, key=lambda class_: sizes[part.members[class_][0]].tolist(), reverse=True)
    tries: list[tuple[int, list[int]]] = []
    for order in (fewest, heavy, heavy[::-1]):
        sweep = Sweep(part, sizes, order)
        tries.append((sweep.explore(most_states // TRIAL_PARTS, deadline), order))
        if tries[-1][0] == len(sweep.layers):
            break
    else:
        sweep = Sweep(part, sizes, max(tries)[1])
        if sweep.explore(most_states, deadline) < len(sweep.layers):
            return None
    sweep.count()
    return sweep


WordArray = npt.NDArray[np.uint64]
Words = Callable[[int], WordArray]

MAX_STATES = 60_000
NUM_STARTS = 4
NUM_CHAINS = 12
MAX_ROUNDS = 1500
SWEEPS_PER_ROUND = 10
MAX_STEPS_PER_ROUND = 100_000
"""Of each chain: with many items a round has fewer sweeps, so that the clock is read often enough."""
MIN_PENALTY = 0.05
LARGEST_PENALTY = 20.0
FORBIDDING_PENALTY = 1e100
SHARE_SETTLING = 0.25
_WORDS_PER_STEP = 3
_SECONDS_PER_ITEM = 1e-5  # of the shortest walks
_LARGEST_SUM = 2**62


@dataclass(frozen=True, eq=False, repr=False)
class Items:
    class_of: IntArray  # class of each item, from 0
    sizes: IntArray  # whole numbers of at least 0. Shape: items x resources


@dataclass(frozen=True, eq=False, repr=False)
class FillSlots:
    counts: IntArray  # how many items of each class a bin takes. Shape: bins x classes
    capacities: IntArray  # of a bin, whole numbers. Shape: bins x resources


def _check_match(items: Items, slots: FillSlots) -> None:
    """Check that every class has as many slots as items and that no sum exceeds 64 bits."""
    num_classes = slots.counts.shape[1]
    inside = items.class_of[items.class_of < num_classes]
    num_items = np.bincount(inside, minlength=num_classes)
    possible = len(inside) == len(items.class_of) and int(slots.counts.max(initial=0)) <= len(inside)
    if not possible or not np.array_equal(num_items, slots.counts.sum(axis=0)):
        raise ParameterError("every class needs as many slots as items. Make a new plan on this release.")
    if items.sizes.shape[1] != slots.capacities.shape[1] or not items.sizes.shape[1]:
        raise ParameterError(
            f"items and bins must have the same number of resources, at least one. "
            f"Got {items.sizes.shape[1]} and {slots.capacities.shape[1]}."
        )
    if any(sum(column) > _LARGEST_SUM for column in items.sizes.T.tolist()):
        raise ParameterError("sizes must add up to less than 2**62. Use a coarser unit.")


@dataclass(eq=False)
class Fills:
    number: int  # how many there are, with distinguishable items
    _items: Items
    _slots: FillSlots
    _sweeps: list[Sweep]

    def __repr__(self) -> str:
        return f"<Fills of {len(self._items.class_of)} items in {len(self._slots.counts)} bins>"

    def chances(self) -> FloatArray:
        """Return the share of feasible fills in which an item is in a bin. Shape: items x bins; rows add up to 1."""
        # Each is a quotient of whole numbers, rounded once.
        self._check_any()
        counts = self._slots.counts
        shares = (counts / np.maximum(counts.sum(axis=0), 1)).T[self._items.class_of]  # items x bins
        for sweep in self._sweeps:
            for item, tallied in zip(sweep.items, sweep.tally(), strict=True):
                shares[item] = 0
                for sort, number in tallied.items():
                    bins = sweep.part.sorts[sort].bins
                    if bins[0] >= 0:
                        shares[item, list(bins)] += number / (sweep.number * len(bins))
                        continue
                    pool = sweep.part.pools[-1 - bins[0]]
                    places, times = np.unique(pool, return_counts=True)
                    shares[item, places] += [number * num / (sweep.number * len(pool)) for num in times.tolist()]
        return np.asarray(shares, dtype=np.float64)

    def best_chances(self) -> FloatArray:
        """Return the largest share of each item over all bins, without the table of items and bins. Shape: items."""
        self._check_any()
        counts = self._slots.counts
        best = (counts.max(axis=0, initial=0) / np.maximum(counts.sum(axis=0), 1))[self._items.class_of]
        for sweep in self._sweeps:
            for item, tallied in zip(sweep.items, sweep.tally(), strict=True):
                shares = []
                for sort, number in tallied.items():
                    bins = sweep.part.sorts[sort].bins
                    pool = np.array(bins if bins[0] >= 0 else sweep.part.pools[-1 - bins[0]])
                    most = int(np.unique(pool, return_counts=True)[1].max())
                    shares.append(number * most / (sweep.number * len(pool)))
                best[item] = max(shares)
        return np.asarray(best, dtype=np.float64)

    def draw(self, below: Below) -> IntArray:
        self._check_any()
        class_of, counts = self._items.class_of, self._slots.counts
        bin_of_item = np.full(len(class_of), -1, dtype=np.int64)
        for sweep in self._sweeps:
            pools = {-1 - class_: _shuffled(pool, below) for class_, pool in sweep.part.pools.items()}
            for item, bin_ in sweep.draw(below):
                bin_of_item[item] = pools[bin_].pop() if bin_ < 0 else bin_
        for class_ in np.unique(class_of[bin_of_item < 0]).tolist():
            bin_of_item[class_of == class_] = _shuffled(slots_of(counts[:, class_]), below)
        return bin_of_item

    def _check_any(self) -> None:
        if self.number == 0:
            raise NoPlanError("no fill of these slots is feasible. Make a new plan on this release, or add room.")


def _shuffled(values: Sequence[int], below: Below) -> list[int]:
    order = list(values)
    for last in range(len(order) - 1, 0, -1):
        other = below(last + 1)
        order[last], order[other] = order[other], order[last]
    return order


def count_fills(
    items: Items, slots: FillSlots, *, most_states: int = MAX_STATES, deadline: float = NEVER
) -> Fills | None:
    """Count the feasible fills; None if there are too many states or time is up."""
    _check_match(items, slots)
    least, most = extremes(items.class_of, items.sizes, slots.counts)
    if (least > slots.capacities).any():
        return Fills(0, items, slots, [])
    members = members_by_class(items.class_of, items.sizes, slots.counts.shape[1])
    stop = Deadline(deadline)
    sweeps: list[Sweep] = []
    number = 1
    loose = set(range(len(members)))
    for part in split(members, items.sizes, slots.counts, slots.capacities, most):
        sweep = count_part(part, items.sizes, most_states, stop)
        if sweep is None:
            return None
        sweeps.append(sweep)
        loose -= set(part.members)
        number *= math.prod(map(ways_to_share, part.pools.values()), start=sweep.number)
    number *= math.prod(ways_to_share(slots_of(slots.counts[:, class_])) for class_ in loose)
    return Fills(number, items, slots, sweeps)


# Walking


@dataclass(frozen=True, eq=False, kw_only=True)
class FillEstimate:
    """What the walks met. Only bins with a slot for an item's class have a cell: a table of all may be very large."""

    first: IntArray  # where the cells of each item begin
    bins: IntArray  # bin of each cell
    shares: FloatArray  # share of the feasible fills met in which the item is in the bin. Shape: cells
    error: FloatArray  # standard error of this between starts, 1 if only one start met any. Shape: cells
    num_bins: int
    num_met: int  # feasible fills met, including repeated ones
    num_starts: int  # independent starts that met any
    fill: IntArray  # bin of each item in one of the fills met, each equally likely

    def __repr__(self) -> str:
        return f"<Estimate from {self.num_met} fills of {self.num_starts} starts>"

    @property
    def best_chances(self) -> FloatArray:
        """The largest share of each item over all bins. Shape: items."""
        return np.maximum.reduceat(self.shares, self.first) if len(self.first) else np.zeros(0)

    @property
    def chances(self) -> FloatArray:
        """The share of each item in each bin. Shape: items x bins."""
        table = np.zeros((len(self.first), self.num_bins))
        lengths = np.diff(np.append(self.first, len(self.shares)))
        table[np.repeat(np.arange(len(self.first)), lengths), self.bins] = self.shares
        return table


def seeded_words(seed: int) -> Words:
    """Return a source of random 64-bit words for searches on numbers that are not secret."""
    # Seeded, outside noise: no privacy depends on it, as the package says
    generator = np.random.default_rng(seed)
    return lambda size: generator.integers(0, 2**64, size, dtype=np.uint64)


class _Board(NamedTuple):
    bin_of_slot: IntArray
    class_of_slot: IntArray
    class_first: IntArray
    class_size: IntArray
    slots_by_bin: IntArray
    bin_first: IntArray
    bin_size: IntArray
    column_of_slot: IntArray
    row_of_item: IntArray
    num_cells: int
    sizes: IntArray
    capacities: IntArray

    @classmethod
    def of(cls, items: Items, slots: FillSlots) -> _Board:
        """Lay out the slots. A table with a row per item and a column per bin of its class records what is met."""
        class_of_slot, bin_of_slot = (
            np.repeat(where, slots.counts.T[slots.counts.T > 0]) for where in np.nonzero(slots.counts.T)
        )
        num_items, num_columns = slots.counts.sum(axis=0), (slots.counts > 0).sum(axis=0)
        column = (np.cumsum(slots.counts > 0, axis=0) - 1)[bin_of_slot, class_of_slot]
        bin_size = slots.counts.sum(axis=1)
        row_lengths = num_columns[items.class_of]
        return cls(
            bin_of_slot=bin_of_slot,
            class_of_slot=class_of_slot,
            class_first=np.cumsum(num_items) - num_items,
            class_size=num_items,
            slots_by_bin=np.argsort(bin_of_slot, kind="stable"),
            bin_first=np.cumsum(bin_size) - bin_size,
            bin_size=bin_size,
            column_of_slot=column,
            row_of_item=np.cumsum(row_lengths) - row_lengths,
            num_cells=int(row_lengths.sum()),
            sizes=np.ascontiguousarray(items.sizes),
            capacities=np.ascontiguousarray(slots.capacities),
        )

    def bins(self, items: Items) -> IntArray:
        """Return the bin of each cell of the table."""
        bins = np.empty(self.num_cells, dtype=np.int64)
        for first, size, members in self._classes(items):
            columns = np.unique(self.bin_of_slot[first : first + size])
            bins[self.row_of_item[members][:, None] + np.arange(len(columns))] = columns
        return bins

    def shares(self, items: Items, numbers: IntArray) -> FloatArray:
        """Turn numbers of fills into shares; equal items of a class share theirs. Shape: cells."""
        shares = np.zeros(self.num_cells)
        for first, size, members in self._classes(items):
            width = len(np.unique(self.bin_of_slot[first : first + size]))
            cells = self.row_of_item[members][:, None] + np.arange(width)
            _, kind, sizes = np.unique(items.sizes[members], axis=0, return_inverse=True, return_counts=True)
            sums = np.zeros((len(sizes), width), dtype=np.int64)
            np.add.at(sums, kind.reshape(-1), numbers[cells])
            lines = (sums / sizes[:, None])[kind.reshape(-1)]
            shares[cells] = lines / np.maximum(lines.sum(axis=1, keepdims=True), 1)
        return shares

    def _classes(self, items: Items) -> Iterator[tuple[int, int, IntArray]]:
        """Yield the first slot, the number of slots and the items of each class that has any."""
        order = np.argsort(items.class_of, kind="stable")
        for first, size in zip(self.class_first.tolist(), self.class_size.tolist(), strict=True):
            if size:
                yield first, size, order[first : first + size]


@kernel
def _walk(
    board: _Board,
    item_at: IntArray,
    loads: IntArray,
    over: IntArray,
    penalty: FloatArray,
    words: IntArray,
    lots: IntArray,
    table: IntArray,
    kept: IntArray,
    num_met: IntArray,
) -> None:
    """Walk over fills, feasible or not; record the current fill, if it is feasible, as often as there are lots."""
    # A step exchanges two items of a class, or two pairs between the same two bins, and is taken with probability
    # min(1, exp(-penalty * growth of overload)). Proposals are symmetric, so all fills of equal overload are equally
    # likely in the long run. Lots decide which of the recorded fills is kept: each with equal chance.
    num_slots, num_resources = len(item_at), loads.shape[1]
    num_steps = len(words) // 3
    gap = num_steps // max(len(lots), 1)
    growth = np.zeros(num_resources, dtype=np.int64)
    change = np.zeros(num_resources, dtype=np.int64)
    for step in range(num_steps):
        word, second, last = words[3 * step], words[3 * step + 1], words[3 * step + 2]
        here = ((word >> 32) * num_slots) >> 31
        class_ = board.class_of_slot[here]
        there = board.class_first[class_] + (((word & 0xFFFFFFFF) * board.class_size[class_]) >> 32)
        one, other = board.bin_of_slot[here], board.bin_of_slot[there]
        also_here = also_there = -1
        possible = one != other
        if possible and last & 1:
            also_here = board.slots_by_bin[board.bin_first[one] + (((second >> 32) * board.bin_size[one]) >> 31)]
            place = ((second & 0xFFFFFFFF) * board.bin_size[other]) >> 32
            also_there = board.slots_by_bin[board.bin_first[other] + place]
            possible = board.class_of_slot[also_here] == board.class_of_slot[also_there]
            possible = possible and also_here != here and also_there != there
        if possible:
            cost = 0.0
            for q in range(num_resources):
                change[q] = board.sizes[item_at[there], q] - board.sizes[item_at[here], q]
                if also_here >= 0:
                    change[q] += board.sizes[item_at[also_there], q] - board.sizes[item_at[also_here], q]
                gives, takes = loads[one, q] - board.capacities[one, q], loads[other, q] - board.capacities[other, q]
                growth[q] = max(gives + change[q], 0) + max(takes - change[q], 0) - max(gives, 0) - max(takes, 0)
                cost += penalty[q] * growth[q]
            if cost <= 0 or (last >> 10) * 2.0**-53 < math.exp(-cost):
                item_at[here], item_at[there] = item_at[there], item_at[here]
                if also_here >= 0:
                    item_at[also_here], item_at[also_there] = item_at[also_there], item_at[also_here]
                for q in range(num_resources):
                    loads[one, q] += change[q]
                    loads[other, q] -= change[q]
                    over[q] += growth[q]
        if len(lots) and step % gap == gap - 1 and over.max() == 0:
            num_met[0] += 1
            keep = lots[step // gap] % num_met[0] == 0
            for slot in range(num_slots):
                table[board.row_of_item[item_at[slot]] + board.column_of_slot[slot]] += 1
                if keep:
                    kept[item_at[slot]] = board.bin_of_slot[slot]


class _Chains:
    """Walks that change places, at growing penalties: the first forgets where it began, the last stays feasible."""

    def __init__(self, board: _Board, items: Items, words: Words, start: IntArray | None) -> None:
        self.board, self._words = board, words
        num_items = len(items.class_of)
        keys = [words(num_items) if start is None else start for _ in range(NUM_CHAINS)]
        # Slots are in order of class, then of bin.
        self._items_at = [np.lexsort((key, items.class_of)).astype(np.int64) for key in keys]
        self._loads = [np.zeros_like(board.capacities) for _ in keys]
        for loads, item_at in zip(self._loads, self._items_at, strict=True):
            np.add.at(loads, board.bin_of_slot, board.sizes[item_at])
        self._overs = [np.maximum(loads - board.capacities, 0).sum(axis=0) for loads in self._loads]
        self._penalties = np.full((NUM_CHAINS, items.sizes.shape[1]), FORBIDDING_PENALTY)  # chains x resources
        steps = np.array([0.0, *np.geomspace(MIN_PENALTY, LARGEST_PENALTY, NUM_CHAINS - 2)])
        self._penalties[:-1] = steps[:, None] / np.maximum(_spread(items), 1.0)
        self.table = np.zeros(board.num_cells, dtype=np.int64)
        self.kept = np.full(num_items, -1, dtype=np.int64)
        self._num_met = np.zeros(1, dtype=np.int64)

    @property
    def num_met(self) -> int:
        return int(self._num_met[0])

    def go_round(self, *, note: bool) -> None:
        """Let every chain make some sweeps, then let neighbours change places."""
        num_slots = len(self.board.bin_of_slot)
        if not num_slots:
            self._num_met += note  # the only fill is empty
            return
        num_sweeps = max(1, min(SWEEPS_PER_ROUND, MAX_STEPS_PER_ROUND // num_slots))
        for chain, penalty in enumerate(self._penalties):
            _walk(
                self.board,
                self._items_at[chain],
                self._loads[chain],
                self._overs[chain],
                penalty,
                self._draw(_WORDS_PER_STEP * num_sweeps * num_slots),
                self._draw(num_sweeps if note else 0),
                self.table,
                self.kept,
                self._num_met,
            )
        chances = (self._words(NUM_CHAINS) >> np.uint64(11)) * 2.0**-53
        for chain in range(NUM_CHAINS - 1):
            growth = self._penalties[chain + 1] - self._penalties[chain]
            gain = float((growth * (self._overs[chain + 1] - self._overs[chain])).sum())
            if gain >= 0 or chances[chain] < math.exp(gain):
                for states in (self._items_at, self._loads, self._overs):
                    states[chain], states[chain + 1] = states[chain + 1], states[chain]

    def _draw(self, size: int) -> IntArray:
        """Return 63-bit words: numba multiplies signed numbers."""
        return (self._words(size) >> np.uint64(1)).astype(np.int64)


def _spread(items: Items) -> FloatArray:
    """Return the mean distance of sizes from the mean of their class, in each resource."""
    sums = np.zeros((int(items.class_of.max(initial=0)) + 1, items.sizes.shape[1]))
    np.add.at(sums, items.class_of, items.sizes)
    means = sums / np.maximum(np.bincount(items.class_of, minlength=len(sums)), 1)[:, None]
    return np.asarray(np.abs(items.sizes - means[items.class_of]).sum(axis=0) / max(len(items.class_of), 1))


def estimate_chances(
    items: Items,
    slots: FillSlots,
    *,
    seconds: float,  # time limit for everything, also for compiling the first walk of a process
    seed: int = 0,  # for the walks, if the numbers are not secret
    words: Words | None = None,
    start: IntArray | None = None,  # bin of each item where all walks begin, if random starts met nothing
    most_rounds: int | None = None,  # of each start; the first quarter is not recorded
) -> FillEstimate | None:
    """Estimate how likely an item is in a bin, all feasible fills being equally likely; None if no walk met any."""
    # Starts are random, so that no particular fill is favoured, unless `start` is given. Every start makes two rounds
    # or more.
    deadline = Deadline.after(seconds)
    _check_match(items, slots)
    if seconds < _SECONDS_PER_ITEM * len(items.class_of):
        return None
    board, words = _Board.of(items, slots), seeded_words(seed) if words is None else words
    _Chains(board, items, words, start).go_round(note=False)  # compiles the first walk of a process
    starts = []
    for number in range(NUM_STARTS):
        begun, share = time.monotonic(), deadline.left / (NUM_STARTS - number)
        chains = _Chains(board, items, words, start)
        for at in itertools.count():
            gone = max(at / (most_rounds or MAX_ROUNDS), (time.monotonic() - begun) / max(share, 1e-9))
            chains.go_round(note=gone >= SHARE_SETTLING)
            if gone >= 1:
                break
        starts.append(chains)
    starts = [chains for chains in starts if chains.num_met]
    if not starts:
        return None
    # Weigh each start by the number of fills it met.
    weights = np.array([chains.num_met for chains in starts], dtype=np.float64)
    weights /= weights.sum()
    shares = [board.shares(items, chains.table) for chains in starts]
    mean = sum((w * share for w, share in zip(weights, shares, strict=True)), start=np.zeros_like(shares[0]))
    squares = sum(((w * (s - mean)) ** 2 for w, s in zip(weights, shares, strict=True)), start=np.zeros_like(mean))
    error = np.sqrt(squares * len(starts) / (len(starts) - 1)) if len(starts) > 1 else np.ones_like(mean)
    point = (int(words(1)[0]) >> 11) * 2.0**-53
    chosen = min(int(np.searchsorted(np.cumsum(weights), point, side="right")), len(starts) - 1)
    return FillEstimate(
        first=board.row_of_item,
        bins=board.bins(items),
        shares=mean,
        error=error,
        num_bins=len(slots.counts),
        num_met=sum(chains.num_met for chains in starts),
        num_starts=len(starts),
        fill=starts[chosen].kept,
    )


def solve_fill(items: Items, slots: FillSlots, *, seconds: float, words: Words) -> IntArray | None:
    """Search a feasible fill by an integer program with random prices: for plans so tight that walks meet none."""
    from scipy import optimize, sparse

    _check_match(items, slots)
    if not len(items.class_of):
        return np.empty(0, dtype=np.int64)
    item, bin_ = np.nonzero(slots.counts.T[items.class_of])  # one unknown per item and bin it may go to
    num_bins, num_classes = slots.counts.shape

    def matrix(values: npt.NDArray[Any], rows: IntArray, num_rows: int) -> Any:
        return sparse.csr_array((values.astype(np.float64), (rows, np.arange(len(item)))), shape=(num_rows, len(item)))

    once = matrix(np.ones(len(item)), item, len(items.class_of))
    slot = matrix(np.ones(len(item)), bin_ * num_classes + items.class_of[item], slots.counts.size)
    constraints = [
        optimize.LinearConstraint(once, 1, 1),
        optimize.LinearConstraint(slot, slots.counts.reshape(-1), slots.counts.reshape(-1)),
    ]
    for sizes, capacities in zip(items.sizes.T, slots.capacities.T, strict=True):
        constraints.append(optimize.LinearConstraint(matrix(sizes[item], bin_, num_bins), -np.inf, capacities))
    result = optimize.milp(
        (words(len(item)) >> np.uint64(32)) * 2.0**-32,
        integrality=np.ones(len(item)),
        bounds=optimize.Bounds(0, 1),
        constraints=constraints,
        options={"time_limit": max(seconds, 0.01)},
    )
    if result.x is None:
        return None
    chosen = result.x > 0.5
    fill = np.full(len(items.class_of), -1, dtype=np.int64)
    fill[item[chosen]] = bin_[chosen]
    return fill if is_feasible(items, slots, fill) else None


def is_feasible(items: Items, slots: FillSlots, bin_of_item: IntArray) -> bool:
    if len(bin_of_item) != len(items.class_of) or (bin_of_item < 0).any() or (bin_of_item >= len(slots.counts)).any():
        return False
    taken, loads = np.zeros_like(slots.counts), np.zeros_like(slots.capacities)
    np.add.at(taken, (bin_of_item, items.class_of), 1)
    np.add.at(loads, bin_of_item, items.sizes)
    return bool((taken == slots.counts).all() and (loads <= slots.capacities).all())
