# SPDX-License-Identifier: Apache-2.0
"""Classes that grow by their charge: each takes the record that raises its charge least.

The published method picks the members of a class by their distance to its head, but is charged the width of the class.
Growing by the charge itself costs 16 to 28 % less on 10,000 metro-like rides at k = 5 to 50. Heads are where records
are densest, as published.

A class is charged, for each attribute, its largest pairwise distance over the diameter of the domain, times the weight
of the attribute (Bhati et al. 2021, eqs. 15 and 20): the range of its numbers, the leaves below the lowest common node
of a tree, the longest shortest path between its stations. The distance between two records uses a second set of weights
(eqs. 7-13), in which distances are scaled by their maximum or by their standard deviation.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dunnage.arrays import BoolArray, FloatArray, IntArray, kernel, piece

# The spread of the distances of one attribute over all pairs of records, without visiting all pairs.
#
# Distances of different attributes are made comparable by dividing them by their standard deviation (Bhati et al. 2021,
# eqs. 10-12). The paper also subtracts their mean; that moves all distances equally and changes no comparison. The
# pairs are those of two different records, each pair once (``i < j``), including equal values, and the deviation is
# that of these pairs themselves: the mean square is over their number, not one less.
_ALL_ALIKE = 1e-9  # a deviation below this share of the mean is rounding: the distances are all the same


def distance_moments(
    values: npt.NDArray[Any], table: FloatArray | None = None, counts: IntArray | None = None
) -> tuple[float, float]:
    """Return the mean and the standard deviation of the distances of all pairs of records.

    With ``counts``, values are distinct and rising, and each stands for so many records.
    """
    if counts is None:
        values, counts = np.unique(values, return_counts=True)
    num = int(counts.sum())
    if num < 2:
        return 0.0, 0.0
    if table is None:
        # In sorted order x[i] is added in i pairs and subtracted in n - 1 - i, and the squares of all differences add
        # up to n times the squares of all deviations from the mean.
        ends = np.cumsum(counts)
        middle = float(values[np.searchsorted(ends, num // 2, side="right")])
        centred = values.astype(np.float64) - middle  # small numbers: less is lost to rounding
        num_pairs = num * (num - 1) / 2
        mean = float((counts * (2 * ends - counts - num)) @ centred) / num_pairs
        if num == 2:
            return mean, 0.0
        squares = num * float(counts @ np.square(centred - counts @ centred / num)) / num_pairs
        # With three records or more, distances of numbers are equal only if all are 0: this difference loses no digits.
        return mean, math.sqrt(max(0.0, squares - mean * mean))
    often = counts.astype(np.float64)
    pairs = np.outer(often, often)  # ordered pairs; a code meets itself in its other records only
    np.fill_diagonal(pairs, often * (often - 1))
    distances = np.asarray(table, dtype=np.float64)[np.ix_(values, values)]
    mean = float((pairs * distances).sum() / pairs.sum())
    deviation = math.sqrt(float((pairs * np.square(distances - mean)).sum() / pairs.sum()))
    return mean, deviation if deviation > _ALL_ALIKE * mean else 0.0


def distance_deviations(numbers: FloatArray, codes: CodeArray, tables: tuple[FloatArray, ...]) -> FloatArray:
    """Return the standard deviation of the distances in each attribute, in the order of a :class:`Metric`."""
    of_numbers = [distance_moments(column)[1] for column in numbers]
    of_codes = [distance_moments(column, table)[1] for column, table in zip(codes, tables, strict=True)]
    return np.array(of_numbers + of_codes, dtype=np.float64)


def near_weights(weights: FloatArray, scales: FloatArray) -> FloatArray:
    """Return the cost of a unit of distance: the weight of an attribute over its scale, 0 if the scale is 0."""
    return np.divide(weights, scales, out=np.zeros(len(weights)), where=np.asarray(scales) > 0)


CodeArray = npt.NDArray[np.int32]


class MetricTable(NamedTuple):
    """Records and the cost of distances, for kernels; the distances of all codes are one array."""

    numbers: FloatArray
    codes: CodeArray
    entries: FloatArray
    starts: IntArray  # where the distances of each coded attribute start
    sizes: IntArray  # how many codes each has
    charge: FloatArray
    near: FloatArray


@piece
def distance(first: int, second: int, table: MetricTable, weights: FloatArray) -> float:
    numbers, codes, entries, starts, sizes = table.numbers, table.codes, table.entries, table.starts, table.sizes
    total = 0.0
    num = numbers.shape[0]
    for axis in range(num):
        total += weights[axis] * abs(numbers[axis, first] - numbers[axis, second])
    for axis in range(codes.shape[0]):
        place = starts[axis] + codes[axis, first] * sizes[axis] + codes[axis, second]
        total += weights[num + axis] * entries[place]
    return total


@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    """Records as numbers and codes (in this order throughout), with the cost of distances. Private: no ``repr``."""

    numbers: FloatArray  # numeric attributes. Shape: attributes, records
    codes: CodeArray  # coded attributes. Shape: attributes, records
    tables: tuple[FloatArray, ...]  # for each coded attribute the symmetric distances of its codes
    charge: FloatArray  # cost of a unit of a class's largest pairwise distance, by attribute: weight over diameter
    near: FloatArray  # cost of a unit of distance between two records in the search for neighbours, by attribute

    def __len__(self) -> int:
        return int(self.numbers.shape[1] if len(self.numbers) else self.codes.shape[1])

    @cached_property
    def arrays(self) -> MetricTable:
        sizes = np.array([len(table) for table in self.tables], dtype=np.int64)
        entries = np.concatenate([table.ravel() for table in self.tables]) if self.tables else np.zeros(0)
        return MetricTable(
            np.ascontiguousarray(self.numbers, dtype=np.float64),
            np.ascontiguousarray(self.codes, dtype=np.int32),
            np.ascontiguousarray(entries, dtype=np.float64),
            np.concatenate(([0], np.cumsum(sizes * sizes)))[: len(sizes)].astype(np.int64),
            sizes,
            np.ascontiguousarray(self.charge, dtype=np.float64),
            np.ascontiguousarray(self.near, dtype=np.float64),
        )

    def take(self, records: IntArray) -> Metric:
        return Metric(self.numbers[:, records], self.codes[:, records], self.tables, self.charge, self.near)

    def widths(self, of_record: IntArray) -> FloatArray:
        num = int(of_record.max(initial=-1)) + 1
        widths = np.zeros((len(self.charge), num))
        inside = np.flatnonzero(of_record >= 0)
        for axis, column in enumerate(self.numbers):
            low, high = np.full(num, np.inf), np.full(num, -np.inf)
            np.minimum.at(low, of_record[inside], column[inside])
            np.maximum.at(high, of_record[inside], column[inside])
            widths[axis] = high - low
        for axis, (column, table) in enumerate(zip(self.codes, self.tables, strict=True), len(self.numbers)):
            pairs = np.unique(of_record.astype(np.int64) * len(table) + column)
            pairs = pairs[pairs >= 0]  # records in no class come out below 0
            classes, present = np.divmod(pairs, len(table))
            starts = np.concatenate((np.searchsorted(classes, np.arange(num)), [len(classes)]))
            widths[axis] = np.array(
                [table[np.ix_(present[a:b], present[a:b])].max(initial=0.0) for a, b in itertools.pairwise(starts)]
            )
        return widths

    def total(self, of_record: IntArray, price: float = 1.0) -> float:
        """Return the distortion of all records: classes by size, and a price for each record without one (eq. 14)."""
        kept = of_record[of_record >= 0]
        sizes = np.bincount(kept) if len(kept) else np.zeros(0)
        charged = sizes @ (self.charge @ self.widths(of_record)) if len(kept) else 0.0
        return float(charged + price * (len(of_record) - len(kept))) / len(of_record)


# What a class must keep to besides its number of persons: widths, diverse sensitive values, few lost records.
TOLERANCE = 1e-9  # rounding of sums of shares; a class this close to a bound keeps it


class Rules(NamedTuple):
    limits: FloatArray  # largest width in each attribute
    sensitive: CodeArray
    shares: FloatArray  # of each code in the whole table. Shape: sensitive attributes, codes
    num_codes: IntArray  # of each sensitive attribute
    l: float  # noqa: E741 - the literature's name
    t: float
    by_entropy: bool
    in_order: bool


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Constraints:
    """Conditions on each class and on the number of lost records. Private: its ``repr`` shows nothing."""

    # Largest width of a class in each attribute, in the metric's order and units; infinity for no limit (Bhati et al.
    # 2021, C1)
    limits: FloatArray | None = None
    # Largest share of records that methods may choose to leave out (C2); records that no class can take are always left
    # out
    max_suppressed: float = 1.0
    l: float = 1.0  # noqa: E741 - the literature's name; smallest diversity of each sensitive attribute in each class
    l_kind: Literal["distinct", "entropy"] = "distinct"  # number of values, or exponential of the entropy
    t: float = np.inf  # largest distance of a class's sensitive values from those of the whole table
    # All values equally far apart, or codes in order, neighbours 1/(codes - 1) apart
    t_kind: Literal["equal", "ordered"] = "equal"
    # Codes of sensitive attributes. Shape: attributes, records
    sensitive: CodeArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int32))
    # Share of each code in the whole table, by default that of `sensitive`: parts of a table are measured against the
    # whole
    shares: tuple[FloatArray, ...] | None = None

    def __post_init__(self) -> None:
        if self.shares is None:
            counts = [np.bincount(codes) for codes in self.sensitive]
            object.__setattr__(self, "shares", tuple(count / max(1, count.sum()) for count in counts))

    def take(self, records: IntArray) -> Constraints:
        """Return the same conditions on some records, in their order, still measured against the whole table."""
        if not len(self.sensitive):
            return self
        return replace(self, sensitive=np.ascontiguousarray(self.sensitive[:, records]))

    @property
    def diverse(self) -> bool:
        """Whether classes must meet l or t."""
        return self.l > 1 or bool(self.t < np.inf)

    def rules(self, num_attributes: int, num_records: int) -> Rules:
        assert self.shares is not None
        limits = np.full(num_attributes, np.inf) if self.limits is None else np.asarray(self.limits, dtype=np.float64)
        most = max((len(share) for share in self.shares), default=1)
        shares = np.zeros((len(self.shares), most))
        for row, share in zip(shares, self.shares, strict=True):
            row[: len(share)] = share
        sensitive = self.sensitive if len(self.sensitive) else np.zeros((0, num_records), dtype=np.int32)
        return Rules(
            limits + TOLERANCE * np.maximum(1.0, np.where(np.isfinite(limits), limits, 1.0)),
            np.ascontiguousarray(sensitive, dtype=np.int32),
            shares,
            np.array([len(share) for share in self.shares], dtype=np.int64),
            float(self.l),
            float(self.t),
            self.l_kind == "entropy",
            self.t_kind == "ordered",
        )


def packed(constraints: Constraints | None, metric: Metric) -> Rules:
    return (constraints or Constraints()).rules(len(metric.charge), len(metric))


def spare(constraints: Constraints | None, num_records: int) -> int:
    """Return how many records may be left out by choice: none without constraints."""
    return 0 if constraints is None else int(constraints.max_suppressed * num_records + TOLERANCE)


# Compiled growth of classes, one after another, over records sorted by the attribute that searches follow.
#
# Whether a record widens a class, and by how much, follows from the extent of the class in each attribute.
class Extent(NamedTuple):
    low: FloatArray  # lowest number of each numeric attribute
    high: FloatArray
    width: FloatArray  # of each coded attribute
    reach: FloatArray  # for each code of the domain, how far it is from the farthest code of the class
    places: IntArray  # where the codes of each attribute start in it


class Growth(NamedTuple):
    """Classes that grow one after another, and the one that grows now."""

    table: MetricTable
    lead: int  # the attribute that records are sorted by
    k: int
    rules: Rules
    numbered: IntArray  # number of each record, for ties
    person: IntArray  # of each record
    alive: BoolArray  # who may still be taken into a class
    mark: IntArray  # of each person: the stamp of the last class with one of their records
    extent: Extent
    nearest: IntArray  # records that raise the charge of the class least, cheapest first
    prices: FloatArray  # by how much
    counts: IntArray  # of sensitive values
    falls: FloatArray  # shortfall with one more record of each code
    members: IntArray


@kernel
def new_extent(table: MetricTable) -> Extent:
    numbers, codes, sizes = table.numbers, table.codes, table.sizes
    places = np.zeros(codes.shape[0] + 1, np.int64)
    for axis in range(codes.shape[0]):
        places[axis + 1] = places[axis] + sizes[axis]
    num = numbers.shape[0]
    return Extent(np.zeros(num), np.zeros(num), np.zeros(codes.shape[0]), np.zeros(places[-1]), places)


@piece
def begin(record: int, table: MetricTable, extent: Extent) -> None:
    numbers, codes, entries, starts, sizes = table.numbers, table.codes, table.entries, table.starts, table.sizes
    low, high, width, reach, places = extent
    for axis in range(numbers.shape[0]):
        low[axis] = high[axis] = numbers[axis, record]
    for axis in range(codes.shape[0]):
        width[axis] = 0.0
        row = starts[axis] + codes[axis, record] * sizes[axis]
        for code in range(sizes[axis]):
            reach[places[axis] + code] = entries[row + code]


@piece
def join(record: int, table: MetricTable, extent: Extent) -> None:
    numbers, codes, entries, starts, sizes = table.numbers, table.codes, table.entries, table.starts, table.sizes
    low, high, width, reach, places = extent
    for axis in range(numbers.shape[0]):
        low[axis] = min(low[axis], numbers[axis, record])
        high[axis] = max(high[axis], numbers[axis, record])
    for axis in range(codes.shape[0]):
        place, row = places[axis], starts[axis] + codes[axis, record] * sizes[axis]
        width[axis] = max(width[axis], reach[place + codes[axis, record]])
        for code in range(sizes[axis]):
            if entries[row + code] > reach[place + code]:
                reach[place + code] = entries[row + code]


@piece
def rise(record: int, table: MetricTable, extent: Extent, enough: float) -> float:
    """Return by how much a record raises the charge of a class; stop at anything above ``enough``."""
    numbers, codes, charge = table.numbers, table.codes, table.charge
    low, high, width, reach, places = extent
    total = 0.0
    num = numbers.shape[0]
    for axis in range(num):
        value = numbers[axis, record]
        if value < low[axis]:
            total += charge[axis] * (low[axis] - value)
        elif value > high[axis]:
            total += charge[axis] * (value - high[axis])
    for axis in range(codes.shape[0]):
        if total > enough:
            return total
        more = reach[places[axis] + codes[axis, record]] - width[axis]
        if more > 0.0:
            total += charge[num + axis] * more
    return total


@piece
def cost(extent: Extent, charge: FloatArray) -> float:
    """Return the charge of a class of this extent for each of its records."""
    low, high, width = extent.low, extent.high, extent.width
    total = 0.0
    for axis in range(len(low)):
        total += charge[axis] * (high[axis] - low[axis])
    for axis in range(len(width)):
        total += charge[len(low) + axis] * width[axis]
    return total


@piece
def shortfall(counts: IntArray, column: int, rules: Rules) -> float:
    """Return how far the sensitive values of a class miss l and t in one attribute; 0 if they meet both."""
    shares, num_codes = rules.shares, rules.num_codes
    num = 0
    for code in range(num_codes[column]):
        num += counts[column, code]
    distinct, entropy, apart, carried = 0, 0.0, 0.0, 0.0
    for code in range(num_codes[column]):
        share = counts[column, code] / max(1, num)
        if counts[column, code]:
            distinct += 1
            entropy -= share * math.log(share)
        carried += share - shares[column, code]
        apart += abs(carried) if rules.in_order else abs(share - shares[column, code])
    apart = apart / max(1, num_codes[column] - 1) if rules.in_order else apart / 2
    missed = max(0.0, math.log(rules.l) - entropy) if rules.by_entropy else max(0.0, rules.l - distinct)
    missed += max(0.0, apart - rules.t)
    return missed if missed > 1e-9 else 0.0


@piece
def too_wide(record: int, table: MetricTable, extent: Extent, limits: FloatArray) -> bool:
    numbers, codes = table.numbers, table.codes
    low, high, width, reach, places = extent
    num = numbers.shape[0]
    for axis in range(num):
        value = numbers[axis, record]
        if max(high[axis], value) - min(low[axis], value) > limits[axis]:
            return True
    for axis in range(codes.shape[0]):
        if max(width[axis], reach[places[axis] + codes[axis, record]]) > limits[num + axis]:
            return True
    return False


@kernel
def densities(table: MetricTable, lead: int, num_near: int, stride: int) -> Any:
    """Return the average charged distance of each record to its nearest ones among every ``stride``-th record."""
    # Records are sorted by the numeric attribute `lead`: the search goes out from a record on both sides, and ends when
    # that attribute alone puts everything farther away than the nearest ones so far.
    numbers, codes, charge = table.numbers, table.codes, table.charge
    entries, starts, sizes = table.entries, table.starts, table.sizes
    num, num_axes = numbers.shape[1], numbers.shape[0]
    averages = np.zeros(num)
    best = np.zeros(max(1, round(num_near / stride)))
    last = len(best) - 1
    for record in range(num):
        best[:] = np.inf
        before = (record - 1) // stride * stride
        after = (record // stride + 1) * stride
        while before >= 0 or after < num:
            gap_before = charge[lead] * (numbers[lead, record] - numbers[lead, before]) if before >= 0 else np.inf
            gap_after = charge[lead] * (numbers[lead, after] - numbers[lead, record]) if after < num else np.inf
            if min(gap_before, gap_after) >= best[last]:
                break
            if gap_before <= gap_after:
                other = before
                before -= stride
            else:
                other = after
                after += stride
            away = 0.0
            for axis in range(num_axes):
                away += charge[axis] * abs(numbers[axis, record] - numbers[axis, other])
            for axis in range(codes.shape[0] - 1, -1, -1):
                if away >= best[last]:
                    break
                place = starts[axis] + codes[axis, record] * sizes[axis] + codes[axis, other]
                away += charge[num_axes + axis] * entries[place]
            place = last
            if away < best[last]:
                while place > 0 and best[place - 1] > away:
                    best[place] = best[place - 1]
                    place -= 1
                best[place] = away
        averages[record] = best.mean()
    return averages


@piece
def look(at: int, living: IntArray, growth: Growth, stamp: int) -> int:
    """List the living records that raise the charge of a class least, cheapest first; return how many there are."""
    # It goes out from the head on both sides, and ends when the attribute that sorts the records alone raises the
    # charge by more than the last of the list does.
    table, lead, extent = growth.table, growth.lead, growth.extent
    numbers, charge, records, prices = table.numbers, table.charge, growth.nearest, growth.prices
    # Taken out of their tuple before the loop: inside, each access would count references
    alive, person, mark, limits = growth.alive, growth.person, growth.mark, growth.rules.limits
    low, high = extent.low, extent.high
    num, room = 0, len(records)
    most = np.inf
    for step in (-1, 1):
        place = at + step
        while 0 <= place < len(living):
            record = living[place]
            place += step
            value = numbers[lead, record]
            if charge[lead] * (low[lead] - value if step < 0 else value - high[lead]) > most:
                break
            if not alive[record]:
                continue
            price = rise(record, table, extent, most)
            if price >= most or mark[person[record]] == stamp or too_wide(record, table, extent, limits):
                continue
            slot = min(num, room - 1)
            while slot > 0 and prices[slot - 1] > price:
                prices[slot], records[slot] = prices[slot - 1], records[slot - 1]
                slot -= 1
            prices[slot], records[slot] = price, record
            num = min(num + 1, room)
            most = prices[room - 1] if num == room else np.inf
    return num


@piece
def cheapest(head: int, num: int, growth: Growth, stamp: int) -> Any:
    """Return the place in the list of the record that now raises the charge of a class least, and by how much."""
    # Ties go to the record nearest to the head, then to the lowest record number.
    table, extent, records, numbered = growth.table, growth.extent, growth.nearest, growth.numbered
    alive, person, mark, limits = growth.alive, growth.person, growth.mark, growth.rules.limits
    best, chosen, best_away = np.inf, -1, np.inf
    for place in range(num):
        record = records[place]
        if not alive[record] or mark[person[record]] == stamp:
            continue
        price = rise(record, table, extent, best)
        if price > best or too_wide(record, table, extent, limits):
            continue
        away = distance(head, record, table, table.near)
        if price < best or away < best_away or (away == best_away and numbered[record] < numbered[records[chosen]]):
            best, chosen, best_away = price, place, away
    return chosen, best


@piece
def grow_class(head: int, living: IntArray, growth: Growth, stamp: int) -> int:
    """Grow one class from its head; return how many records it has, 0 if the living ones allow no class."""
    # The cost of a class with one more record never falls while it grows. So a list of the cheapest records stays valid
    # as long as the best of them costs no more than the last of the list did at first.
    table, rules, extent, k, members = growth.table, growth.rules, growth.extent, growth.k, growth.members
    alive, person, mark, counts, falls = growth.alive, growth.person, growth.mark, growth.counts, growth.falls
    at = np.searchsorted(living, head)
    begin(head, table, extent)
    counts[:] = 0
    num, persons, listed, bar = 0, 0, 0, -np.inf
    record = head
    while True:
        members[num] = record
        num += 1
        alive[record] = False
        join(record, table, extent)
        persons += mark[person[record]] != stamp
        mark[person[record]] = stamp
        short = 0.0  # and for each attribute with one more record of each code
        for column in range(len(rules.num_codes)):
            counts[column, rules.sensitive[column, record]] += 1
            short += shortfall(counts, column, rules)
            for code in range(rules.num_codes[column]):
                counts[column, code] += 1
                falls[column, code] = shortfall(counts, column, rules)
                counts[column, code] -= 1
        if persons >= k and short == 0.0:
            return num
        if short > 0.0 and persons + short >= k:
            # The living record that raises the charge least among those that reduce the shortfall
            best, record = np.inf, -1
            for other in living:
                if alive[other]:
                    missed = 0.0
                    for column in range(len(rules.num_codes)):
                        missed += falls[column, rules.sensitive[column, other]]
                    if missed < short - 1e-12:
                        price = rise(other, table, extent, best)
                        if price < best and not too_wide(other, table, extent, rules.limits):
                            best, record = price, other
        else:
            now = cost(extent, table.charge)
            chosen, price = cheapest(head, listed, growth, stamp)
            if chosen < 0 or now + price > bar:
                listed = look(at, living, growth, stamp)
                bar = now + growth.prices[-1] if listed == len(growth.prices) else np.inf
                chosen, price = cheapest(head, listed, growth, stamp)
            record = growth.nearest[chosen] if chosen >= 0 else -1
        if record < 0:
            alive[members[:num]] = True
            return 0


@kernel
def grow_classes(
    table: MetricTable,
    keys: FloatArray,
    k: int,
    lead: int,
    person: IntArray,
    rules: Rules,
    numbered: IntArray,
    room: int,
    slack: float,
    patience: int,
    of_record: IntArray,
    num_done: IntArray,
) -> int:
    """Grow classes from the heads with the lowest keys; return how many. Records without a class keep -1."""
    # A class that costs more than `slack` times what the next head promises is undone, and its head postponed with the
    # cost as its new key, up to `patience` times. `num_done` counts records in classes for progress reports.
    num = len(of_record)
    alive, living = np.ones(num, np.bool_), np.arange(num)
    num_living, num_classes = num, 0
    members, put_off = np.zeros(num, np.int64), np.zeros(num, np.int64)
    mark, extent, shape = np.full(person.max() + 1, -1), new_extent(table), rules.shares.shape
    lists, counts, falls = (np.zeros(room, np.int64), np.zeros(room)), np.zeros(shape, np.int64), np.zeros(shape)
    growth = Growth(
        table, lead, k, rules, numbered, person, alive, mark, extent, lists[0], lists[1], counts, falls, members
    )
    scale = 1.0
    if patience > 0:
        # The usual cost of a class over its key, from classes that grow from a few heads and are undone
        paid, promised = 0.0, 0.0
        for place in range(32):
            head = place * num // 32
            size = grow_class(head, living, growth, -2 - place)
            alive[members[:size]] = True
            if size:
                paid += cost(extent, table.charge)
                promised += keys[head]
        scale = slack * (paid / promised if promised > 0.0 else 1.0)
    heap = [(scale * keys[head], head) for head in range(num)]
    heapq.heapify(heap)
    stamp = 0
    while len(heap) > 0:
        head = heapq.heappop(heap)[1]
        if not alive[head]:
            continue
        if len(living) > 1.25 * num_living:
            living = living[alive[living]]
        stamp += 1
        size = grow_class(head, living, growth, stamp)
        if size == 0:  # no class can begin here: its head waits for a place among the others
            alive[head] = False
            num_living -= 1
            continue
        price = cost(extent, table.charge)
        if put_off[head] < patience and len(heap) > 0 and price > slack * heap[0][0]:
            alive[members[:size]] = True
            put_off[head] += 1
            heapq.heappush(heap, (price, head))
            continue
        of_record[members[:size]] = num_classes
        num_classes += 1
        num_living -= size
        num_done[0] += size
    return num_classes


@kernel
def class_lists(of_record: IntArray, num_classes: int) -> Any:
    starts = np.zeros(num_classes + 1, np.int64)
    for class_ in of_record:
        if class_ >= 0:
            starts[class_ + 1] += 1
    starts = np.cumsum(starts)
    filled = starts.copy()
    records = np.zeros(starts[-1], np.int64)
    for record in range(len(of_record)):
        class_ = of_record[record]
        if class_ >= 0:
            records[filled[class_]] = record
            filled[class_] += 1
    return records, starts


@piece
def extent_of(records: IntArray, table: MetricTable, extent: Extent) -> None:
    begin(records[0], table, extent)
    for record in records[1:]:
        join(record, table, extent)


@piece
def diverse(records: IntArray, more: int, rules: Rules, counts: IntArray) -> bool:
    """Return whether records, and one more unless it is negative, meet l and t together."""
    if len(rules.num_codes) == 0:
        return True
    counts[:] = 0
    for column in range(len(rules.num_codes)):
        for record in records:
            counts[column, rules.sensitive[column, record]] += 1
        if more >= 0:
            counts[column, rules.sensitive[column, more]] += 1
        if shortfall(counts, column, rules) > 0.0:
            return False
    return True


@piece
def added_cost(
    record: int,
    records: IntArray,
    table: MetricTable,
    low: FloatArray,
    high: FloatArray,
    width: FloatArray,
    limits: FloatArray,
    most: float,
) -> Any:
    """Return the total extra cost of a class with another record; infinity if above ``most`` or too wide."""
    numbers, codes, charge = table.numbers, table.codes, table.charge
    entries, starts, sizes = table.entries, table.starts, table.sizes
    num, size = numbers.shape[0], len(records)
    before, after = 0.0, 0.0
    for axis in range(num):
        span = max(high[axis], numbers[axis, record]) - min(low[axis], numbers[axis, record])
        if span > limits[axis]:
            return np.inf
        before += charge[axis] * (high[axis] - low[axis])
        after += charge[axis] * span
    for axis in range(codes.shape[0]):
        before += charge[num + axis] * width[axis]
        after += charge[num + axis] * width[axis]
    for axis in range(codes.shape[0]):
        if (size + 1) * after - size * before >= most:
            return np.inf
        span, row = width[axis], starts[axis] + codes[axis, record] * sizes[axis]
        for other in records:
            span = max(span, entries[row + codes[axis, other]])
        if span > limits[num + axis]:
            return np.inf
        after += charge[num + axis] * (span - width[axis])
    return (size + 1) * after - size * before


@kernel
def place_left(
    table: MetricTable, of_record: IntArray, num_classes: int, rules: Rules, price: float, spare: int
) -> None:
    """Put each record without a class where its total cost is least; leave it out if no class may take it."""
    # Up to `spare` records are also left out if that is cheaper at their `price`.
    numbers, codes = table.numbers, table.codes
    records, starts = class_lists(of_record, num_classes)
    extent, counts = new_extent(table), np.zeros(rules.shares.shape, np.int64)
    low, high = np.zeros((num_classes, numbers.shape[0])), np.zeros((num_classes, numbers.shape[0]))
    width = np.zeros((num_classes, codes.shape[0]))
    for class_ in range(num_classes):
        extent_of(records[starts[class_] : starts[class_ + 1]], table, extent)
        low[class_], high[class_], width[class_] = extent.low, extent.high, extent.width
    for record in range(len(of_record)):
        if of_record[record] >= 0:
            continue
        best, chosen = (price if spare > 0 else np.inf), -1
        for class_ in range(num_classes):
            inside = records[starts[class_] : starts[class_ + 1]]
            more = added_cost(record, inside, table, low[class_], high[class_], width[class_], rules.limits, best)
            if more < best and diverse(inside, record, rules, counts):
                best, chosen = more, class_
        if chosen < 0:
            spare -= 1
            continue
        of_record[record] = chosen
        records, starts = class_lists(of_record, num_classes)
        extent_of(records[starts[chosen] : starts[chosen + 1]], table, extent)
        low[chosen], high[chosen], width[chosen] = extent.low, extent.high, extent.width


SMALL = 2_000  # up to here the published method runs too, because it is fast, and the better result is kept
SAMPLE = 1_000  # records to search for nearest ones, to see where records are densest
SLACK = 1.3  # a class is postponed if it costs this many times more than the next head promises
PATIENCE = 4  # how often a head may be postponed
REPORT_SECONDS = 0.2  # seconds between two progress reports
LARGER = (1, 2, 4)  # times k: sizes of classes to begin with, where classes of k cannot meet l and t
LISTED = 2  # cheapest records that are listed at once, for each record a class needs, from 16 to 128

Progress = Callable[[float], None]


def grow(
    metric: Metric,
    k: int,  # smallest number of distinct persons in a class; of records when `person` is not given
    *,
    constraints: Constraints | None = None,  # what classes must keep to besides
    person: IntArray | None = None,  # code of the person of each record, from 0
    price: float = 1.0,  # what a record in no class costs
    patience: int = PATIENCE,
    whole: bool = True,  # whether these are all records, and not a block that others can still be joined to
    progress: Progress | None = None,  # called with the share of the work that is done
) -> IntArray:
    """Return the class of each record, from classes grown one after another; -1 for records in none."""
    made = partial(_grow, metric, person=person, price=price, patience=patience, progress=progress)
    of_record = made(k, constraints=constraints)
    if constraints is None or not constraints.diverse or not (of_record < 0).any():
        return of_record
    # No class that meets l and t could take some records. Classes without regard to l and t, also larger ones, are
    # joined until they meet them: the union of all has the values of the whole table.
    attempts = [of_record] if constraints.t == np.inf else []
    # A lost record changes what t is measured against, so none is left out by choice.
    free = replace(constraints, l=1.0, t=np.inf, max_suppressed=0.0)
    some = persons_of(person, np.arange(len(metric)))
    for size in (times * k for times in LARGER if times == 1 or times * k <= int(some.max()) + 1):
        joined = join_until_diverse(metric, made(size, constraints=free), constraints, whole=whole)
        attempts.append(_polished(metric, joined, k, person, constraints) if patience else joined)
    return min(attempts, key=lambda attempt: metric.total(attempt, price))


def _polished(
    metric: Metric, of_record: IntArray, k: int, person: IntArray | None, constraints: Constraints | None
) -> IntArray:
    from dunnage.kernels.clusters.refine import polish

    return polish(metric, of_record, k, person, constraints)


def join_until_diverse(
    metric: Metric, of_record: IntArray, constraints: Constraints, *, whole: bool = True
) -> IntArray:
    """Join each class that misses l or t with another one, until all meet them; leave out those that may not be."""
    # The next class is the one that misses most. It is joined where that costs least for what is still missed after it.
    rules, num = packed(constraints, metric), int(of_record.max(initial=-1)) + 1
    of_record, kept = of_record.copy(), np.flatnonzero(of_record >= 0)
    classes, numbers = of_record[kept], metric.numbers[:, kept]
    low, high = np.full((len(numbers), num), np.inf), np.full((len(numbers), num), -np.inf)
    for axis, column in enumerate(numbers):
        np.minimum.at(low[axis], classes, column)
        np.maximum.at(high[axis], classes, column)
    widths, sizes = metric.widths(of_record), np.bincount(classes, minlength=num)
    counts = [np.zeros((num, codes), dtype=np.int64) for codes in rules.num_codes.tolist()]
    for column, table in enumerate(counts):
        np.add.at(table, (classes, rules.sensitive[column, kept]), 1)
    missed = shortfalls(counts, rules)
    alone, failed = np.ones(num, dtype=np.bool_), np.zeros(num, dtype=np.bool_)  # not joined to another; cannot be
    while (missed > 0).any():
        one = int(np.argmax(missed))
        wide = np.empty_like(widths)
        wide[: len(low)] = np.maximum(high, high[:, one, None]) - np.minimum(low, low[:, one, None])
        for axis, (codes, table) in enumerate(zip(metric.codes, metric.tables, strict=True), len(low)):
            reach = table[np.unique(codes[kept][classes == one])].max(axis=0)
            wide[axis] = np.maximum(widths[axis], widths[axis, one])
            np.maximum.at(wide[axis], classes, reach[codes[kept]])
        together = shortfalls([table + table[one] for table in counts], rules)
        rise = (sizes + sizes[one]) * (metric.charge @ wide)
        rise -= sizes * (metric.charge @ widths) + sizes[one] * float(metric.charge @ widths[:, one])
        gain = missed + missed[one] - together
        allowed = alone & (wide <= rules.limits[:, None]).all(axis=0)
        allowed[one] = False
        if not allowed.any():
            missed[one], failed[one] = 0.0, whole
            continue
        helps = allowed & (gain > TOLERANCE)
        worth = np.where(helps, rise / np.maximum(gain, TOLERANCE), np.inf) if helps.any() else rise
        other = int(np.argmin(np.where(allowed, worth, np.inf)))
        classes[classes == other], alone[other], missed[other] = one, False, 0.0
        widths[:, one], missed[one] = wide[:, other], together[other]
        low[:, one], high[:, one] = np.minimum(low[:, one], low[:, other]), np.maximum(high[:, one], high[:, other])
        sizes[one] += sizes[other]
        for table in counts:
            table[one] += table[other]
    classes[failed[classes]] = -1
    of_record[kept] = classes
    return np.unique(np.append(-1, of_record), return_inverse=True)[1][1:] - 1


def shortfalls(counts: list[IntArray], rules: Rules) -> FloatArray:
    """Return how far each class misses l and t over all sensitive attributes: :func:`shortfall`, for all classes."""
    missed = np.zeros(len(counts[0]) if counts else 0)
    for column, table in enumerate(counts):
        share = table / np.maximum(1, table.sum(axis=1, keepdims=True))
        away = share - rules.shares[column, : table.shape[1]]
        if rules.in_order:
            apart = np.abs(np.cumsum(away, axis=1)).sum(axis=1) / max(1, table.shape[1] - 1)
        else:
            apart = np.abs(away).sum(axis=1) / 2
        logs = np.log(share, out=np.zeros_like(share), where=share > 0)
        diversity = -(share * logs).sum(axis=1) if rules.by_entropy else (table > 0).sum(axis=1)
        missed += np.maximum(0.0, (math.log(rules.l) if rules.by_entropy else rules.l) - diversity)
        missed += np.maximum(0.0, apart - rules.t)
    return np.where(missed > TOLERANCE, missed, 0.0)


def _grow(
    metric: Metric,
    k: int,
    *,
    constraints: Constraints | None,
    person: IntArray | None,
    price: float,
    patience: int,
    progress: Progress | None,
) -> IntArray:
    # A class begins with the first free head and takes the free record that raises its charge least, until it has k
    # persons and meets the constraints. The cheapest classes come first, as long as their records are free. Remaining
    # records go where their total cost is least, or stay without a class if none may take them or (up to the share that
    # may be suppressed) if they cost more than `price` everywhere.
    full = with_numbers(metric)
    # Records are sorted by the numeric attribute in which they are farthest apart by its charge.
    lead = int(np.argmax(np.std(full.numbers, axis=1) * full.charge[: len(full.numbers)]))
    order = np.argsort(full.numbers[lead], kind="stable")
    arrays, rules = full.take(order).arrays, rules_for(metric, order, constraints)
    stride = max(1, min(len(metric) // SAMPLE, k))
    keys = densities(arrays, lead, min(max(1, k - 1), len(metric)), stride)
    persons, room = persons_of(person, order), min(max(16, LISTED * k), 128)
    num_done, grown = np.zeros(1, dtype=np.int64), np.full(len(metric), -1, dtype=np.int64)

    def work() -> None:
        num = grow_classes(arrays, keys, k, lead, persons, rules, order, room, SLACK, patience, grown, num_done)
        place_left(arrays, grown, num, rules, price, spare(constraints, len(metric)))

    if progress is None:
        work()
    else:  # the compiled work lets other threads run, so it has its own, and this one reports progress
        from concurrent.futures import ThreadPoolExecutor, wait

        with ThreadPoolExecutor(max_workers=1) as pool:
            future = pool.submit(work)
            while not wait([future], timeout=REPORT_SECONDS).done:
                progress(0.9 * int(num_done[0]) / len(metric))
            future.result()
    of_record = np.empty(len(metric), dtype=np.int64)
    of_record[order] = grown
    if patience:
        of_record = _polished(metric, of_record, k, person, constraints)
    if constraints is None and person is None and k <= len(metric) <= SMALL:
        from dunnage.kernels.clusters.published import published_density

        published = published_density(metric, k)
        of_record = published if metric.total(published) < metric.total(of_record) else of_record
    if progress is not None:
        progress(1.0)
    return of_record


def with_numbers(metric: Metric) -> Metric:
    """Return the metric; without a numeric attribute, add a constant one, which costs nothing."""
    if len(metric.numbers):
        return metric
    zero, none = np.zeros((1, len(metric))), np.zeros(1)
    charge, near = np.concatenate((none, metric.charge)), np.concatenate((none, metric.near))
    return Metric(zero, metric.codes, metric.tables, charge, near)


def persons_of(person: IntArray | None, order: IntArray) -> IntArray:
    if person is None:
        return np.arange(len(order), dtype=np.int64)
    return np.unique(person[order], return_inverse=True)[1].astype(np.int64)


def rules_for(metric: Metric, order: IntArray, constraints: Constraints | None) -> Rules:
    """Return the rules for kernels on records that are sorted for the search."""
    rules = packed(None if constraints is None else constraints.take(order), metric)
    free = [] if len(metric.numbers) else [np.inf]  # the added attribute has no limit
    return rules._replace(limits=np.concatenate((free, rules.limits)))


# Large tables are cut into separate blocks, each grouped by itself, so that time grows with the number of records.
#
# Blocks come from cuts in two, as in Mondrian: each in the attribute in which records are farthest apart by its charge.
# Numbers are cut between two values. Codes are put in line between two that are far apart and cut there.
SIZE = 20_000  # a table of up to this many records is one block
TARGET = 12_500  # larger tables are cut into blocks of about this many


def num_blocks(num_records: int, size: int = SIZE) -> int:
    return 1 if num_records <= size else -(-num_records // min(size, TARGET))


def grow_in_blocks(
    metric: Metric,
    k: int,  # smallest number of distinct persons in a class; of records when `person` is not given
    *,
    size: int = SIZE,
    num: int | None = None,  # into how many blocks records are cut that are a part of a larger table
    constraints: Constraints | None = None,
    person: IntArray | None = None,  # code of the person of each record, from 0
    price: float = 1.0,  # what a record in no class costs
    workers: int | None = None,  # how many blocks are grouped at once; as many as there are cores by default
    progress: Progress | None = None,  # called with the share of records that are grouped
) -> IntArray:
    """Return classes grown in blocks: heads may be postponed in a table of one block, but not in larger ones."""
    # The result does not depend on how many blocks are grouped at once. No cut leaves a block with too few persons for
    # one class, so every block can be grouped if the table can.
    if len(metric) <= size and num is None:
        return grow(metric, k, constraints=constraints, person=person, price=price, progress=progress)

    def grown(block: IntArray) -> IntArray:
        inside = None if constraints is None else constraints.take(block)
        persons = None if person is None else person[block]
        return grow(metric.take(block), k, constraints=inside, person=persons, price=price, patience=0, whole=False)

    from concurrent.futures import ThreadPoolExecutor, as_completed

    parts = list(blocks(metric, k, size=size, num=num, person=person))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pool = ThreadPoolExecutor(max_workers=max(1, min(workers or cores, len(parts))))
    try:
        futures = {pool.submit(grown, block): block for block in parts}
        done = 0
        for future in as_completed(futures):
            future.result()  # an error in one block ends all
            done += len(futures[future])
            if progress is not None:
                progress(done / len(metric))
    finally:
        pool.shutdown(cancel_futures=True)
    # Classes are numbered one block after another, whichever is ready first.
    of_record, num_classes = np.full(len(metric), -1, dtype=np.int64), 0
    for future, block in futures.items():
        inside = future.result()
        of_record[block] = np.where(inside >= 0, inside + num_classes, -1)
        num_classes += int(inside.max(initial=-1)) + 1
    if constraints is None or not constraints.diverse:
        return of_record
    return join_until_diverse(metric, of_record, constraints)  # a block as a whole may be unlike the table


def blocks(
    metric: Metric, k: int, *, size: int = SIZE, num: int | None = None, person: IntArray | None = None
) -> Iterator[IntArray]:
    """Return the records of each block, in ascending order."""
    # block, and how many parts it is still to be cut into: parts of equal size need equal time
    waiting = [(np.arange(len(metric), dtype=np.int64), num or num_blocks(len(metric), size))]
    while waiting:
        block, parts = waiting.pop()
        sides = _sides(metric, block, parts, k, person) if parts > 1 else None
        if sides is None:
            yield block
        else:
            waiting += [(sides[1], parts - parts // 2), (sides[0], parts // 2)]


class Marginal(NamedTuple):
    """How often each value of one attribute occurs, rising."""

    values: npt.NDArray[Any]
    counts: IntArray

    def at(self, places: Any) -> Any:
        """Return the values of the records at some places in sorted order."""
        return self.values[np.searchsorted(np.cumsum(self.counts), places, side="right")]


class Cut(NamedTuple):
    axis: int
    border: float  # numbers below it are on the first side
    first: IntArray  # codes on the first side
    num: int  # records there

    def side(self, column: npt.NDArray[Any]) -> BoolArray:
        """Return which records are on the first side, by their values in the attribute of the cut."""
        return np.isin(column, self.first) if len(self.first) else column < self.border


def cuts(marginals: Sequence[Marginal], tables: Sequence[FloatArray], charge: FloatArray, parts: int) -> Iterator[Cut]:
    """Yield cuts of a block in two sides of about equal parts, in the attribute in which it is widest first."""
    # It follows from how often values occur: wherever records live, they are cut in the same way.
    total, num = int(marginals[0].counts.sum()), len(marginals) - len(tables)
    spreads = []  # how far apart the records are in each attribute: mean distance from a middle one
    for own in marginals[:num]:
        middle = (own.at((total - 1) // 2) + own.at(total // 2)) / 2
        spreads.append(float(own.counts @ np.abs(own.values - middle)) / total)
    for own, table in zip(marginals[num:], tables, strict=True):
        spreads.append(float((table[:, own.values] @ own.counts).min()) / total)
    wanted = int(parts // 2 / parts * total)
    for axis in np.argsort(-(charge * np.array(spreads)), kind="stable").tolist():
        values, counts = marginals[axis]
        if axis < num:
            ends = np.cumsum(counts)
            place = int(np.searchsorted(ends, wanted, side="right"))
            below, up_to = int(ends[place] - counts[place]), int(ends[place])  # equal numbers stay together
            if abs(below - wanted) <= abs(up_to - wanted):
                yield Cut(axis, float(values[place]), np.zeros(0, dtype=np.int64), below)
            else:
                border = float(values[place + 1]) if place + 1 < len(values) else math.inf
                yield Cut(axis, border, np.zeros(0, dtype=np.int64), up_to)
        else:  # the codes on the first side, in line between two that are far apart
            inside = tables[axis - num][np.ix_(values, values)]
            one = int(np.argmax(inside[int(np.argmin(inside @ counts))]))
            line = np.argsort(inside[one] - inside[int(np.argmax(inside[one]))], kind="stable")
            ends = np.cumsum(counts[line])
            last = int(np.argmin(np.abs(ends - wanted)))
            yield Cut(axis, 0.0, values[line[: last + 1]].astype(np.int64), int(ends[last]))


def _sides(
    metric: Metric, block: IntArray, parts: int, k: int, person: IntArray | None
) -> tuple[IntArray, IntArray] | None:
    """Return both sides of a block, cut in the widest attribute that leaves each k persons."""
    columns = [column[block] for column in (*metric.numbers, *metric.codes)]
    marginals = [Marginal(*np.unique(column, return_counts=True)) for column in columns[: len(metric.numbers)]]
    for column in columns[len(metric.numbers) :]:
        counts = np.bincount(column)
        marginals.append(Marginal(np.flatnonzero(counts), counts[counts > 0]))
    for cut in cuts(marginals, metric.tables, metric.charge, parts):
        first = cut.side(columns[cut.axis])
        sides = block[first], block[~first]
        if min((len(side) if person is None else len(np.unique(person[side]))) for side in sides) >= max(k, 1):
            return sides
    return None
