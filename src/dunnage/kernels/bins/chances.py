# SPDX-License-Identifier: Apache-2.0
"""Exact probabilities that a bin fits if only the classes of its items are known.

A class is a list of members: whole numbers, one for each resource. A pattern says how many items of each class a bin
takes. All choices of members are equally likely, so the sum of n items of a class of m is that of n members sampled
without replacement, and the classes are independent within one bin.

The sums of each class and number are listed with their probabilities; a pattern's are all combinations of its classes'.
Every sum is exact, in whole numbers. Probabilities are doubles; :data:`ROUNDING` is far above the rounding error of
their sums, and is added if a probability supports a proof. Whether a pattern certainly fits is decided in whole
numbers. Last come random orders inside classes, which try a plan out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.kernels.deadline import NEVER, Deadline
from dunnage.model.domains import decimal_scale

ROUNDING = 1e-11
MAX_SUMS = 200_000
MAX_DENSE_CELLS = 4_000_000
MAX_COMBINATIONS = 4_000_000
GRID = 4096
_LISTED_COMBINATIONS = 2000
_DIRECT_PRODUCTS = 2_000_000
_MAX_COUNTED = 2**1000
_MAX_COUNTING = 2 * 10**6
_BELOW_ONE = math.nextafter(1.0, 0.0)
CONFIDENCE = 0.95
_CHUNK_NUMBERS = 2_000_000


@dataclass(frozen=True, eq=False)
class SumLaw:
    """The possible sums of some items, and the probability of each. Shapes: (s, resources) and (s,)."""

    values: IntArray
    chances: FloatArray

    @classmethod
    def certain(cls, value: IntArray) -> SumLaw:
        return cls(np.asarray(value, dtype=np.int64).reshape(1, -1), np.ones(1))


def draw_sums(members: IntArray, most: int, deadline: Deadline = NEVER) -> list[SumLaw] | None:
    """Return the sums of 0, 1, ... ``most`` members sampled without replacement; None if too many or time is up."""
    members = np.asarray(members, dtype=np.int64)
    values, copies = np.unique(members, axis=0, return_counts=True)
    if len(values) == 1:
        return [SumLaw.certain(values[0] * number) for number in range(most + 1)]
    countable = math.comb(len(members), min(most, len(members) // 2)) < _MAX_COUNTED
    if members.shape[1] == 1 and most * int(np.ptp(values)) * (most + 1) <= MAX_DENSE_CELLS:
        return _dense_sums(members[:, 0], most, countable)
    # List sums value by value, merging equal ones after each; by counts, or by shares as in _dense_sums.
    zero = np.zeros((1, values.shape[1]), dtype=np.int64)
    ways: list[tuple[IntArray, FloatArray]] = [(zero, np.ones(1))] + [(zero[:0], np.ones(0))] * most
    before = 0
    for value, copy in zip(values, copies.tolist(), strict=True):
        longer = []
        for number in range(min(most, before + copy) + 1):
            every = 1 if countable else math.comb(before + copy, number)
            parts = [
                (
                    ways[number - taken][0] + taken * value,
                    ways[number - taken][1]
                    * (math.comb(copy, taken) * (1 if countable else math.comb(before, number - taken)) / every),
                )
                for taken in range(min(copy, number) + 1)
                if len(ways[number - taken][0])
            ]
            if sum(len(part[0]) for part in parts) > MAX_SUMS or deadline.late:
                return None
            sums, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
            if len(parts) > 1:
                sums, where = _distinct(sums)
                counts = np.bincount(where, weights=counts).astype(np.float64)
            longer.append((sums, counts))
        ways = longer + ways[len(longer) :]
        before += copy
    return [
        SumLaw(sums, shares / (math.comb(before, number) if countable else 1))
        for number, (sums, shares) in enumerate(ways)
    ]


def _distinct(lines: IntArray) -> tuple[IntArray, IntArray]:
    """Return the different lines of a table in order, and which of them each line is."""
    low = lines.min(axis=0) if len(lines) else np.zeros(lines.shape[1], dtype=np.int64)
    spans = (lines.max(axis=0) - low + 1).tolist() if len(lines) else [2**62]
    if math.prod(spans) >= 2**62:
        different, where = np.unique(lines, axis=0, return_inverse=True)
        return different, where.reshape(-1)
    keys = np.ravel_multi_index(tuple((lines - low).T), spans)
    numbers, where = np.unique(keys, return_inverse=True)
    return np.column_stack(np.unravel_index(numbers, spans)).astype(np.int64) + low, where.reshape(-1)


def _dense_sums(members: IntArray, most: int, countable: bool) -> list[SumLaw]:
    """Count subsets by number and sum over the whole range; counts stay exact in a double up to 2**53."""
    # Counts that exceed a double are replaced by shares: among the subsets of the members so far, the share of those
    # with the newest member is their size over the number of members.
    low, size = int(members.min()), len(members)
    width = most * int(members.max() - low) + 1
    ways = np.zeros((most + 1, width))
    ways[0, 0] = 1.0
    for number, extra in enumerate((members - low).tolist(), start=1):
        top = min(number, most)
        share = 1.0 if countable else np.arange(1, top + 1).reshape(-1, 1) / number
        with_newest = ways[:top, : width - extra] * share
        ways[1 : top + 1] *= 1.0 if countable else 1 - share
        ways[1 : top + 1, extra:] += with_newest
    sums = []
    for number in range(most + 1):
        cells = np.flatnonzero(ways[number])
        whole = math.comb(size, number) if countable else 1
        sums.append(SumLaw((cells + number * low).reshape(-1, 1), ways[number, cells] / whole))
    return sums


def fit_chance(parts: Sequence[SumLaw], capacity: IntArray, deadline: Deadline = NEVER) -> float | None:
    """Return the probability that a sum of independent parts is at most the capacity; None if it takes too long."""
    if not parts:
        return 1.0
    ordered = sorted(parts, key=lambda part: len(part.values))
    if len(capacity) == 1 and math.prod(len(part.values) for part in ordered[:-1]) > _LISTED_COMBINATIONS:
        return _dense_chance(ordered, int(capacity[0]))
    total = SumLaw.certain(np.zeros(len(capacity), dtype=np.int64))
    for part in ordered[:-1]:
        if len(total.values) * len(part.values) > MAX_COMBINATIONS or deadline.late:
            return None
        total = _within(total, part, capacity)
    last = ordered[-1]
    if len(capacity) == 1:
        order = np.argsort(last.values[:, 0], kind="stable")
        below = np.concatenate([[0.0], np.cumsum(last.chances[order])])
        room = np.searchsorted(last.values[order, 0], int(capacity[0]) - total.values[:, 0], side="right")
        return min(1.0, math.fsum((total.chances * below[room]).tolist()))
    if len(total.values) * len(last.values) > MAX_COMBINATIONS:
        return None
    return min(1.0, math.fsum(_within(total, last, capacity).chances.tolist()))


def _dense_chance(parts: Sequence[SumLaw], capacity: int) -> float | None:
    """Combine sums over their whole range, by convolution."""
    from scipy.signal import fftconvolve

    lows = [int(part.values.min()) for part in parts]
    widths = [int(part.values.max()) - low + 1 for part, low in zip(parts, lows, strict=True)]
    if sum(widths) > MAX_DENSE_CELLS:
        return None
    total = np.ones(1)
    for part, low, width in zip(parts, lows, widths, strict=True):
        dense = np.bincount(part.values[:, 0] - low, weights=part.chances, minlength=width)
        small = len(total) * len(dense) <= _DIRECT_PRODUCTS
        total = np.convolve(total, dense) if small else fftconvolve(total, dense)
    fitting = total[: max(capacity - sum(lows) + 1, 0)]
    return min(1.0, max(0.0, math.fsum(fitting.tolist())))


def _within(left: SumLaw, right: SumLaw, capacity: IntArray) -> SumLaw:
    """Combine two sums, drop what already exceeds the capacity, and merge equal values."""
    values = (left.values[:, None, :] + right.values[None, :, :]).reshape(-1, len(capacity))
    chances = (left.chances[:, None] * right.chances[None, :]).reshape(-1)
    fits = (values <= capacity).all(axis=1)
    different, where = _distinct(values[fits])
    return SumLaw(different, np.bincount(where, weights=chances[fits], minlength=len(different)).astype(np.float64))


class Members:
    """A class with known members, but without knowing which item is which."""

    def __init__(self, values: IntArray) -> None:
        self.values = np.asarray(values, dtype=np.int64)
        self.count, self.resources = self.values.shape

    def draws(
        self, most: int, resource: int | None, step: int, upward: bool, deadline: Deadline = NEVER
    ) -> list[SumLaw] | None:
        """Return the sums of 0 to ``most`` items, of all resources or of one, in steps rounded up or down."""
        values = self.values if resource is None else self.values[:, resource : resource + 1]
        return draw_sums(_grid(values, step, upward), most, deadline)

    def largest(self, most: int) -> IntArray:
        """Return the largest sum of 0 to ``most`` items, by resource."""
        ordered = -np.sort(-self.values, axis=0)[:most]
        return np.concatenate([np.zeros((1, self.resources), dtype=np.int64), np.cumsum(ordered, axis=0)])

    def smallest(self, most: int) -> IntArray:
        return -Members(-self.values).largest(most)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance (over count - 1) of an item, by resource."""
        return self.values.mean(axis=0), self.values.var(axis=0) * self.count / max(self.count - 1, 1)


class Between:
    """A class with known ends only: one item is at each end, the rest uniformly between (an assumption)."""

    def __init__(self, lower: IntArray, upper: IntArray, count: int) -> None:
        self.lower, self.upper = np.asarray(lower, dtype=np.int64), np.asarray(upper, dtype=np.int64)
        self.count, self.resources = count, len(self.lower)

    def draws(
        self, most: int, resource: int | None, step: int, upward: bool, deadline: Deadline = NEVER
    ) -> list[SumLaw] | None:
        """Return the sums of 0 to ``most`` items on a grid; None for several resources, which have no joint law."""
        if resource is None and self.resources > 1:
            return None
        low, high = (int(ends[resource or 0]) for ends in (self.lower, self.upper))
        if low == high or self.count == 1:
            return [SumLaw.certain(_grid(np.array([[number * high]]), step, upward)[0]) for number in range(most + 1)]
        first, last = (int(_grid(np.array([end]), step, upward)[0]) for end in (low, high))
        cells = np.arange(first, last + 1)  # a uniform value between two ends, rounded to the grid
        edges = (np.append(cells - 1, last) if upward else np.append(cells, last + 1)) * step
        between = np.asarray(np.diff(np.clip(edges, low, high)) / (high - low))
        sums: list[SumLaw] = []
        width = last - first
        for number in range(most + 1):
            if deadline.late:
                return None
            # Mix over whether the item at each end is among these items.
            total = np.zeros(number * width + 1)
            for at_low, at_high in itertools.product((0, 1), repeat=2):
                rest = number - at_low - at_high
                ways = math.comb(self.count - 2, rest) if 0 <= rest <= self.count - 2 else 0
                if ways:
                    law = np.ones(1)
                    for _ in range(rest):
                        law = np.convolve(law, between)
                    share = ways / math.comb(self.count, number)
                    total[at_high * width : at_high * width + len(law)] += share * law
            places = np.flatnonzero(total)
            sums.append(SumLaw((places + number * first).reshape(-1, 1), total[places]))
        return sums

    def largest(self, most: int) -> IntArray:
        """Return the largest sums: all at the upper end, except the item at the lower end if it is among them."""
        numbers = np.arange(most + 1).reshape(-1, 1)
        with_lowest = (numbers == self.count) & (self.count > 1)
        return np.asarray(numbers * self.upper - with_lowest * (self.upper - self.lower))

    def smallest(self, most: int) -> IntArray:
        """Return the smallest sums: all at the lower end, except the item at the upper end if it is among them."""
        numbers = np.arange(most + 1).reshape(-1, 1)
        return np.asarray(numbers * self.lower + (numbers == self.count) * (self.upper - self.lower))

    def moments(self) -> tuple[FloatArray, FloatArray]:
        half = (self.upper - self.lower) / 2.0
        at_ends = min(2, self.count) / self.count
        variance = half**2 * (at_ends + (1 - at_ends) / 3)
        return (self.lower + self.upper) / 2.0, variance * self.count / max(self.count - 1, 1)


ClassSizes = Members | Between


def _grid(values: IntArray, step: int, upward: bool) -> IntArray:
    return -(-values // step) if upward else values // step


def _counted(members: IntArray, number: int) -> dict[tuple[int, ...], int] | None:
    """Count the subsets of a size by their sum, in whole numbers; None if there are too many."""
    ways: list[dict[tuple[int, ...], int]] = [{(0,) * members.shape[1]: 1}, *({} for _ in range(number))]
    steps = 0
    for member in members.tolist():
        steps += sum(map(len, ways))
        if steps > _MAX_COUNTING:
            return None
        for taken in range(number, 0, -1):
            for total, times in ways[taken - 1].items():
                longer = tuple(map(int.__add__, total, member))
                ways[taken][longer] = ways[taken].get(longer, 0) + times
            if len(ways[taken]) > MAX_SUMS:
                return None
    return ways[number]


def _pairs(pattern: Sequence[int] | IntArray) -> tuple[tuple[int, int], ...]:
    line = np.asarray(pattern)
    used = np.flatnonzero(line)
    return tuple(zip(used.tolist(), line[used].tolist(), strict=True))


class Chances:
    """Probabilities that patterns fit into a bin, each computed once, and from 0 to 1 if time is up."""

    def __init__(
        self, classes: Sequence[ClassSizes], capacity: IntArray, worst: Sequence[IntArray] | None = None
    ) -> None:
        self.capacity = np.asarray(capacity, dtype=np.int64)
        self.classes = list(classes)
        self.worst = [sizes.largest(sizes.count) for sizes in self.classes] if worst is None else worst
        self.deadline = NEVER
        self.joint = True  # whether several resources that may be exceeded get a law in common, which takes long
        self._bounds_of: dict[tuple[tuple[int, int], ...], tuple[float, float]] = {}
        self._draws: dict[tuple[Any, ...], SumLaw | None] = {}

    def surely(self, pattern: Sequence[int] | IntArray) -> bool:
        return bool((self._largest(_pairs(pattern)) <= self.capacity).all())

    def _largest(self, used: tuple[tuple[int, int], ...]) -> IntArray:
        return np.asarray(sum((self.worst[kind][number] for kind, number in used), 0 * self.capacity))

    def fits(self, pattern: Sequence[int] | IntArray) -> tuple[float, float]:
        """Return bounds on the probability that a pattern fits; they are equal if it is exact."""
        # The lower one is 1 only if every choice fits, because a probability rounded to 1 is not certain.
        used = _pairs(pattern)
        if used not in self._bounds_of:
            if self.surely(pattern):
                self._bounds_of[used] = 1.0, 1.0
                return 1.0, 1.0
            if self.deadline.late:
                return 0.0, 1.0
            countable = all(isinstance(self.classes[kind], Members) for kind, _ in used)
            # What certainly fits of a resource needs no law, and one that is left none in common with others.
            tight = np.flatnonzero(self._largest(used) > self.capacity).tolist()
            countable = countable and (self.joint or len(tight) == 1)
            exact = self._chance(used, tight[0] if len(tight) == 1 else None, 1, True) if countable else None
            if exact is not None:
                low = high = exact
            else:
                # One resource at a time: all fit at most as often as the one that fits least often, and the chances to
                # fail add up at most.
                single = [self._bounds(used, resource) for resource in range(len(self.capacity))]
                low, high = max(0.0, 1 - sum(1 - low for low, _ in single)), min(high for _, high in single)
                if self.deadline.late:
                    return min(low, _BELOW_ONE), high
            self._bounds_of[used] = min(low, _BELOW_ONE), high
        return self._bounds_of[used]

    def exactly(self, pattern: Sequence[int] | IntArray) -> Fraction | None:
        """Return the probability as a fraction, by counting; None if members are unknown or there are too many ways."""
        used = [(self.classes[kind], number) for kind, number in _pairs(pattern)]
        sums: dict[tuple[int, ...], int] = {(0,) * len(self.capacity): 1}
        for sizes, number in used:
            ways = _counted(sizes.values, number) if isinstance(sizes, Members) else None
            if ways is None or len(ways) * len(sums) > MAX_SUMS:
                return None
            added: dict[tuple[int, ...], int] = {}
            for (one, times), (other, more) in itertools.product(sums.items(), ways.items()):
                total = tuple(map(int.__add__, one, other))
                added[total] = added.get(total, 0) + times * more
            sums = added
        room = self.capacity.tolist()
        fitting = sum(ways for total, ways in sums.items() if all(map(int.__le__, total, room)))
        return Fraction(fitting, math.prod(math.comb(sizes.count, number) for sizes, number in used))

    def _bounds(self, used: tuple[tuple[int, int], ...], resource: int) -> tuple[float, float]:
        """Bound the probability for one resource, by rounding sizes up and down to a grid if necessary."""
        if all(isinstance(self.classes[kind], Members) for kind, _ in used):
            exact = self._chance(used, resource, 1, True)
            if exact is not None:
                return exact, exact
        step = max(1, int(self.capacity[resource]) // GRID)
        low, high = (self._chance(used, resource, step, upward) for upward in (True, False))
        return 0.0 if low is None else low, 1.0 if high is None else high

    def _chance(self, used: tuple[tuple[int, int], ...], resource: int | None, step: int, upward: bool) -> float | None:
        parts = [self._sums(kind, number, resource, step, upward) for kind, number in used]
        room = self.capacity if resource is None else self.capacity[resource : resource + 1]
        laws = [part for part in parts if part is not None]
        return fit_chance(laws, room // step, self.deadline) if len(laws) == len(parts) else None

    def _sums(self, kind: int, number: int, resource: int | None, step: int, upward: bool) -> SumLaw | None:
        key = (kind, number, resource, step, upward)
        if key not in self._draws:
            draws = self.classes[kind].draws(number, resource, step, upward, self.deadline)
            if draws is None and self.deadline.late:
                return None
            for taken in range(number + 1):
                self._draws[kind, taken, resource, step, upward] = None if draws is None else draws[taken]
        return self._draws[key]


# Random orders inside classes: what a planner who knows the values of a class, but not their order, can try. The values
# are released, so no privacy depends on these seeded random numbers.


def within_class_permutations(class_of_row: IntArray, num: int, seed: int) -> IntArray:
    """Sample permutations of rows that exchange rows of one class only, each equally likely."""
    # Seeded, outside noise: no privacy depends on it, as the package says
    return _permutations(_rows_by_class(class_of_row), num, np.random.default_rng(seed))


def _rows_by_class(class_of_row: IntArray) -> list[IntArray]:
    order = np.argsort(class_of_row, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(class_of_row[order])) + 1)


def _permutations(classes: list[IntArray], num: int, generator: np.random.Generator) -> IntArray:
    lines = np.empty((num, sum(map(len, classes))), dtype=np.int64)
    for rows in classes:
        lines[:, rows] = generator.permuted(np.broadcast_to(rows, (num, len(rows))), axis=1)
    return lines


def fits_by_permutation(
    values: FloatArray,  # weight of each row if nothing is exchanged; one column per resource, or one number per row
    class_of_row: IntArray,  # class_of_row, bin_of_row: class and bin of each row; bins count from 0
    bin_of_row: IntArray,
    capacities: FloatArray,  # capacity of each bin for each resource; one line, or one number, stands for all bins
    *,
    permutations: int,  # how many to try
    seed: int,  # equal seeds give equal permutations
) -> Iterator[BoolArray]:
    """Try a plan on random permutations inside classes, some thousands at a time."""
    # Values (row, resource) and capacities (bin, resource), as whole numbers if they are decimals, so that a load equal
    # to the capacity fits
    loads = np.array(values, dtype=np.float64).reshape(len(class_of_row), -1)
    lines = np.asarray(capacities, dtype=np.float64).reshape(-1, loads.shape[1])
    num_bins = max(int(bin_of_row.max()) + 1, len(lines))
    rooms = np.array(np.broadcast_to(lines, (num_bins, loads.shape[1])))
    for own, room in zip(loads.T, rooms.T, strict=True):
        scale = decimal_scale(np.concatenate([own, room[np.isfinite(room)]])) or 1
        if scale > 1:
            own[:], room[:] = np.rint(own * scale), np.rint(room * scale)
    order = np.argsort(bin_of_row, kind="stable")
    used, starts = np.unique(bin_of_row[order], return_index=True)
    classes, generator = _rows_by_class(class_of_row), np.random.default_rng(seed)
    chunk = max(1, _CHUNK_NUMBERS // len(loads))
    for first in range(0, permutations, chunk):
        orders = _permutations(classes, min(chunk, permutations - first), generator)[:, order]
        fits = np.ones((len(orders), len(rooms)), dtype=np.bool_)  # an empty bin fits
        for resource, room in zip(loads.T, rooms.T, strict=True):
            # (permutation, bin in use): the load of one resource
            fits[:, used] &= np.add.reduceat(resource[orders], starts, axis=1) <= room[used]
        yield fits


def clopper_pearson(hits: int, tries: int) -> tuple[float, float]:
    """Return an interval that contains the probability of a hit with at least 95 % confidence."""
    from scipy.special import betaincinv

    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if hits == 0 else float(betaincinv(hits, tries - hits + 1, tail))
    high = 1.0 if hits == tries else float(betaincinv(hits + 1, tries - hits, 1 - tail))
    return low, high
