# SPDX-License-Identifier: Apache-2.0
"""Count fills of sealed slots exactly: place items one after another, and meet the same states again and again.

What cannot matter is taken out first: a class of equal items, a bin that holds even the largest items it may get. What
is left falls into parts that share no class and no bin. In a part, items are placed class by class, largest first. How
bins got where they are does not matter for the rest, only how much room each has left: and of that only which of the
sets of items it still may get would fit. So bins that agree in this are taken together, and the number of ways to go on
from a state is computed once, in whole numbers of any length. ``docs/proofs/linkage.md`` has the proof.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dunnage.arrays import IntArray

Below = Callable[[int], int]
Amounts = tuple[int, ...]

MOST_SUMS = 400
TRIAL_PARTS = 20


class Sort(NamedTuple):
    """Bins that take the same numbers of the same classes and have the same room for them; None: for anything."""

    needs: tuple[tuple[int, int], ...]
    room: Amounts | None
    bins: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a problem that shares no class and no bin that matters with any other."""

    members: dict[int, list[int]]  # The items of each class, largest first
    # Bins that matter. Slots of a class in all other bins are together one bin, with number `-1 - class`
    sorts: list[Sort]
    pools: dict[int, list[int]]  # For each class the bin of each of those slots


def ways_to_share(bins: Sequence[int]) -> int:
    """Return in how many ways distinguishable items go into slots of these bins.

    Examples
    --------
    >>> ways_to_share([0, 0, 1])
    3
    """
    _, numbers = np.unique(np.asarray(bins, dtype=np.int64), return_counts=True)
    return math.factorial(len(bins)) // math.prod(math.factorial(number) for number in numbers.tolist())


def slots_of(counts: IntArray) -> list[int]:
    """Return the bin of each slot, given how many slots each bin has."""
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
    """Return the least and the largest load each bin could have in each resource. Shapes: bins x resources."""
    least = np.zeros((len(counts), sizes.shape[1]), dtype=np.int64)
    most = least.copy()
    for class_ in range(counts.shape[1]):
        low, high = _partial_sums(sizes[class_of == class_])
        least += low[counts[:, class_]]
        most += high[counts[:, class_]]
    return least, most


def _partial_sums(sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Return for 0, 1, ... items the least and the largest sum they can have in each resource."""
    ranked = np.sort(sizes, axis=0)
    nothing = np.zeros((1, sizes.shape[1]), dtype=np.int64)
    return (
        np.concatenate([nothing, np.cumsum(ranked, axis=0)]),
        np.concatenate([nothing, np.cumsum(ranked[::-1], axis=0)]),
    )


def split(
    members: list[list[int]], sizes: IntArray, counts: IntArray, capacities: IntArray, most: IntArray
) -> list[Part]:
    """Take out what cannot matter, and split the rest into parts."""
    varied = np.array([bool(np.any(sizes[found] != sizes[found[:1]])) for found in members], dtype=bool)
    can_overflow = np.max(most - capacities, axis=1, keepdims=True) > 0
    matters = can_overflow & varied & (counts > 0)  # bins x classes
    room = capacities.copy()
    for class_ in np.flatnonzero(~varied).tolist():
        if members[class_]:
            room -= counts[:, [class_]] * sizes[members[class_][0]]
    return [_part(counts, room, members, matters, *found) for found in _components(matters)]


def _part(
    counts: IntArray,
    room: IntArray,
    members: list[list[int]],
    matters: npt.NDArray[np.bool_],
    bins: list[int],
    classes: list[int],
) -> Part:
    alike: dict[tuple[tuple[tuple[int, int], ...], Amounts], list[int]] = {}
    for bin_ in bins:
        needs = tuple((class_, int(counts[bin_, class_])) for class_ in classes if matters[bin_, class_])
        alike.setdefault((needs, tuple(room[bin_].tolist())), []).append(bin_)
    pools = {class_: slots_of(counts[:, class_] * ~matters[:, class_]) for class_ in classes}
    pools = {class_: pool for class_, pool in pools.items() if pool}
    sorts = [Sort(needs, left, tuple(found)) for (needs, left), found in alike.items()]
    sorts += [Sort(((class_, len(pool)),), None, (-1 - class_,)) for class_, pool in pools.items()]
    return Part({class_: members[class_] for class_ in classes}, sorts, pools)


def _components(matters: npt.NDArray[np.bool_]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield bins and classes that hang together."""
    unseen = set(np.flatnonzero(matters.any(axis=0)).tolist())
    while unseen:
        classes, bins = {min(unseen)}, set[int]()
        while (reached := set(np.flatnonzero(matters[:, sorted(classes)].any(axis=1)).tolist())) != bins:
            bins = reached
            classes = set(np.flatnonzero(matters[sorted(bins)].any(axis=0)).tolist())
        unseen -= classes
        yield sorted(bins), sorted(classes)


class _Standing(NamedTuple):
    """Where a bin stands: its sort, how many items it has, and the room left, None if anything will fit."""

    sort: int
    num_placed: int
    room: Amounts | None


State = tuple[tuple[int, int], ...]
"""How many bins there are of each standing; standings by number, ascending."""
Option = tuple[int, int, State]
"""To place an item into a bin of some standing: the standing, how many bins have it, the state afterwards."""
_DONE, _DEAD = -1, -2
_END: dict[State, int] = {(): 1}


@dataclass(eq=False)
class _Layer:
    """What can be done with one item: the options of each state, and how standings change by it.

    ``ahead`` has the number of ways to go on from each state that leads to the end.
    """

    options: dict[State, list[Option]] = field(default_factory=dict)
    ahead: dict[State, int] = field(default_factory=dict)
    taking: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)


class Sweep:
    """The states of a part, items placed one after another, classes in a given order."""

    def __init__(self, part: Part, sizes: IntArray, order: Sequence[int]) -> None:
        self.part = part
        self.items = [item for class_ in order for item in part.members[class_]]
        self.layers = [_Layer() for _ in self.items]
        self._sizes = sizes
        self._nothing = np.zeros_like(sizes[0])
        self._rank = [rank for rank, class_ in enumerate(order) for _ in part.members[class_]]
        self._class_sizes = [sizes[part.members[class_]] for class_ in order]
        self._class_end = np.cumsum([len(found) for found in self._class_sizes]).tolist()
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

    def explore(self, most_states: int, deadline: float) -> int:
        """Find all states that can be reached; return how many items were placed before there were too many."""
        states: dict[State, None] = {self.start: None}
        num_states = 0
        for at, layer in enumerate(self.layers):
            after: dict[State, None] = {}
            for state in states:
                found = layer.options[state] = list(self._options(at, state))
                after.update((option[2], None) for option in found)
                num_states += 1
                if num_states > most_states or time.monotonic() > deadline:
                    return at
            states = after
        return len(self.layers)

    def _options(self, at: int, state: State) -> Iterator[Option]:
        """Yield the ways to place an item, without those that leave some bin with nothing that fits."""
        layer, rank = self.layers[at], self._rank[at]
        for number, _ in state:
            if number not in layer.waiting:
                layer.waiting[number] = self._settled(at, self._standings[number])
        blocked = [number for number, _ in state if layer.waiting[number] == _DEAD]
        for number, num_bins in state:
            standing = self._standings[number]
            if standing.num_placed < self._due[standing.sort][rank] and (not blocked or blocked == [number]):
                if number not in layer.taking:
                    layer.taking[number] = self._settled(at, self._with_item(standing, self.items[at]))
                if layer.taking[number] != _DEAD and not (blocked and num_bins > 1):
                    yield number, num_bins, self._after(layer, state, number)

    def _with_item(self, standing: _Standing, item: int) -> _Standing:
        room = standing.room
        if room is not None:
            room = tuple(r - s for r, s in zip(room, self._sizes[item].tolist(), strict=True))
        return _Standing(standing.sort, standing.num_placed + 1, room)

    @staticmethod
    def _after(layer: _Layer, state: State, chosen: int) -> State:
        """Return the state once an item is in a bin of the chosen standing."""
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
        """Return where a bin really stands once item ``at`` is placed.

        Its room is rounded down to what those sets of items need that may still come and would fit.
        """
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
        """Return the sums of what a bin may still get, twice, if they are few, else the least and the largest."""
        rank = self._rank[at]
        left = self._due[sort][rank] - num_placed
        options = [self._sums_of(at + 1, left)] if left else []
        for later in range(rank + 1, len(self._class_end)):
            if self._needs[sort][later]:
                options.append(self._sums_of(self._class_end[later - 1], self._needs[sort][later]))
        if all(low is high for low, high in options) and math.prod(len(low) for low, _ in options) <= MOST_SUMS:
            sums = functools.reduce(_added, (low for low, _ in options))
            return sums, sums
        return (
            sum((low.min(axis=0) for low, _ in options), start=self._nothing)[None],
            sum((high.max(axis=0) for _, high in options), start=self._nothing)[None],
        )

    def _sums_of(self, first: int, num: int) -> tuple[IntArray, IntArray]:
        """Return the sums of ``num`` items of one class from a position on: all (twice) if few, else the extremes."""
        if (first, num) not in self._sums:
            rank = self._rank[first]
            sizes = self._class_sizes[rank][first - self._class_end[rank] :]
            if math.comb(len(sizes), num) <= MOST_SUMS:
                picks = np.array(list(itertools.combinations(range(len(sizes)), num)), dtype=np.int64)
                sums = np.unique(sizes[picks].sum(axis=1), axis=0)
                self._sums[first, num] = sums, sums
            else:
                low, high = _partial_sums(sizes)
                self._sums[first, num] = low[[num]], high[[num]]
        return self._sums[first, num]

    def count(self) -> int:
        """Count the ways to go on from each state, last ones first; forget states from which there is none."""
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
        """How many ways there are, slots in bins that do not matter not told apart."""
        return self.layers[0].ahead.get(self.start, 0)

    def tally(self) -> list[dict[int, int]]:
        """Count for each item in how many ways it goes into a bin of each sort."""
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
        """Draw one way, all equally likely: yield each item and its bin."""
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


def _added(some: IntArray, others: IntArray) -> IntArray:
    """Return all sums of one of each. Shapes: a x resources, b x resources -> ab x resources."""
    return (some[:, None] + others).reshape(-1, some.shape[1])


def count_part(part: Part, sizes: IntArray, most_states: int, deadline: float) -> Sweep | None:
    """Count a part in the best of some orders of classes: first a short trial of each, then a long one."""
    heavy = sorted(part.members, key=lambda class_: sizes[part.members[class_][0]].tolist(), reverse=True)
    tries: list[tuple[int, list[int]]] = []
    for order in (_fewest_open(part), heavy, heavy[::-1]):
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


def _fewest_open(part: Part) -> list[int]:
    """Order classes so that few bins are begun and not done: next the class that leaves fewest such bins."""
    order: list[int] = []
    sorts = [({class_ for class_, _ in sort.needs}, len(sort.bins)) for sort in part.sorts]
    while len(order) < len(part.members):
        left = [class_ for class_ in part.members if class_ not in order]
        num_open = [
            sum(num for needs, num in sorts if needs & {*order, class_} and not needs <= {*order, class_})
            for class_ in left
        ]
        order.append(left[num_open.index(min(num_open))])
    return order
