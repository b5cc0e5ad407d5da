# SPDX-License-Identifier: Apache-2.0
"""Classes grown by what they are charged: each takes in the record that makes it least dearer.

The published method picks the members of a class by their distance to its head, but is charged the width of the
class. Growing by the charge itself costs 16 to 28 % less on 10,000 metro-like rides at k = 5 to 50. Heads are taken
where records lie densest, as published.
"""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.clustering.metric import CodeArray, Metric, Table, distance
from dunnage.compiling import kernel, piece
from dunnage.errors import ParameterError

# --- What a class must keep to besides its number of persons: widths, diverse sensitive values, few lost records.


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

    # Largest width a class may have in each attribute, in the metric's order and in its units of distance; infinity for
    # none (Bhati et al. 2021, C1)
    limits: FloatArray | None = None
    # Largest share of records that methods may leave out by their own choice (C2). Records that no class can take are
    # left out whatever it says: `kept` tells
    max_suppressed: float = 1.0
    # Smallest diversity of each sensitive attribute in each class
    l: float = 1.0  # noqa: E741 - the literature's name
    # `"distinct"`: number of values; `"entropy"`: exponential of the entropy
    l_kind: Literal["distinct", "entropy"] = "distinct"
    t: float = np.inf  # Largest distance of a class's sensitive values from those of the whole table; infinity for none
    # `"equal"`: all values equally far apart; `"ordered"`: codes are in order, neighbours 1/(codes - 1) apart
    t_kind: Literal["equal", "ordered"] = "equal"
    # Codes of sensitive attributes. Shape: attributes, records
    sensitive: CodeArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int32))
    # Share of each code in the whole table, for each sensitive attribute; by default that of `sensitive`. Parts of a
    # table are measured against the whole
    shares: tuple[FloatArray, ...] | None = None

    def __post_init__(self) -> None:
        _demand(0 <= self.max_suppressed <= 1, "max_suppressed must be a share from 0 to 1", self.max_suppressed)
        _demand(self.l >= 1, "l must be at least 1", self.l)
        _demand(self.t >= 0, "t must be at least 0", self.t)
        _demand(self.l_kind in ("distinct", "entropy"), "l_kind must be distinct or entropy", self.l_kind)
        _demand(self.t_kind in ("equal", "ordered"), "t_kind must be equal or ordered", self.t_kind)
        if self.limits is not None:
            _demand(bool(np.all(self.limits >= 0)), "limits must be at least 0", self.limits)
        if self.shares is None:
            counts = [np.bincount(codes) for codes in self.sensitive]
            object.__setattr__(self, "shares", tuple(count / max(1, count.sum()) for count in counts))

    def take(self, records: IntArray) -> Constraints:
        """Return the same conditions on some records, in their order, still measured against the whole table."""
        if not len(self.sensitive):
            return self
        return replace(self, sensitive=np.ascontiguousarray(self.sensitive[:, records]))

    def rules(self, num_attributes: int, num_records: int) -> Rules:
        """Return everything kernels take, in their order."""
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

    def diversity(self, of_record: IntArray) -> FloatArray:
        """Return the diversity of each class in each sensitive attribute. Shape: attributes, classes."""
        found = [_diversity(share, self.l_kind) for share in self._class_shares(of_record)]
        return np.array(found).reshape(len(found), int(of_record.max(initial=-1)) + 1)

    def closeness(self, of_record: IntArray) -> FloatArray:
        """Return how far each class is from the whole table in each sensitive attribute. Shape: attributes, classes."""
        assert self.shares is not None
        pairs = zip(self._class_shares(of_record), self.shares, strict=True)
        found = [_distance(share, whole, self.t_kind) for share, whole in pairs]
        return np.array(found).reshape(len(found), int(of_record.max(initial=-1)) + 1)

    def _class_shares(self, of_record: IntArray) -> list[FloatArray]:
        """Return the share of each code in each class, per sensitive attribute. Shape of each: classes, codes."""
        assert self.shares is not None
        kept = of_record >= 0
        found = []
        for codes, whole in zip(self.sensitive, self.shares, strict=True):
            counts = np.zeros((int(of_record.max(initial=-1)) + 1, len(whole)))
            np.add.at(counts, (of_record[kept], codes[kept]), 1)
            found.append(counts / np.maximum(1, counts.sum(axis=1, keepdims=True)))
        return found

    def kept(self, metric: Metric, of_record: IntArray) -> bool:
        """Whether every class keeps to the conditions, and no more records are left out than may be."""
        narrow = self.limits is None or bool(
            np.all(metric.widths(of_record) <= (self.limits * (1 + TOLERANCE) + TOLERANCE)[:, None])
        )
        lost = int((of_record < 0).sum())
        return (
            narrow
            and bool(np.all(self.diversity(of_record) >= self.l - TOLERANCE))
            and bool(np.all(self.closeness(of_record) <= self.t + TOLERANCE))
            and lost <= self.max_suppressed * len(of_record) + TOLERANCE
        )


def packed(constraints: Constraints | None, metric: Metric) -> Rules:
    """Return the rules for kernels; without constraints those that ask for nothing."""
    chosen = Constraints() if constraints is None else constraints
    if chosen.limits is not None and len(chosen.limits) != len(metric.charge):
        raise ParameterError(
            f"limits need one width an attribute. Got {len(chosen.limits)} for {len(metric.charge)} attributes. "
            "Give infinity where there is no limit."
        )
    return chosen.rules(len(metric.charge), len(metric))


def spare(constraints: Constraints | None, num_records: int) -> int:
    """Return how many records may be left out by choice: none when no constraints are given."""
    return 0 if constraints is None else int(constraints.max_suppressed * num_records + TOLERANCE)


def _diversity(share: FloatArray, kind: str) -> FloatArray:
    if kind == "distinct":
        return np.asarray((share > 0).sum(axis=1), dtype=np.float64)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return np.asarray(np.exp(-(share * logs).sum(axis=1)))


def _distance(share: FloatArray, whole: FloatArray, kind: str) -> FloatArray:
    if kind == "equal":
        return np.asarray(np.abs(share - whole).sum(axis=1) / 2)
    return np.asarray(np.abs(np.cumsum(share - whole, axis=1)).sum(axis=1) / max(1, len(whole) - 1))


def _demand(holds: bool, rule: str, got: object) -> None:
    if not holds:
        raise ParameterError(f"{rule}. Got {got}. Give a value that fits.")


# --- Compiled growth of classes, one after another, over records sorted by the attribute that searches follow.
#
# Whether a record widens a class, and by how much, is one look at each attribute of the extent of the class.


class Extent(NamedTuple):
    """What the cost of a class follows from."""

    low: FloatArray  # lowest number of each numeric attribute
    high: FloatArray
    width: FloatArray  # of each coded attribute
    reach: FloatArray  # for each code of the domain, how far it is from the farthest code of the class
    places: IntArray  # where the codes of each attribute start in it


class Free(NamedTuple):
    """Who may still be taken into a class, and whose person is in it already."""

    alive: BoolArray
    person: IntArray  # of each record
    mark: IntArray  # of each person: the stamp of the last class with a record of his
    stamp: int  # of the class that grows


class Listed(NamedTuple):
    """Records that make a class least dearer, cheapest first."""

    records: IntArray
    prices: FloatArray


class Work(NamedTuple):
    extent: Extent
    listed: Listed
    counts: IntArray  # of sensitive values
    falls: FloatArray  # shortfall with one more record of each code


@kernel
def new_extent(table: Table) -> Extent:
    numbers, codes, sizes = table.numbers, table.codes, table.sizes
    places = np.zeros(codes.shape[0] + 1, np.int64)
    for axis in range(codes.shape[0]):
        places[axis + 1] = places[axis] + sizes[axis]
    num = numbers.shape[0]
    return Extent(np.zeros(num), np.zeros(num), np.zeros(codes.shape[0]), np.zeros(places[-1]), places)


@piece
def begin(record: int, table: Table, extent: Extent) -> None:
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
def join(record: int, table: Table, extent: Extent) -> None:
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
def rise(record: int, table: Table, extent: Extent, enough: float) -> float:
    """Return by how much a record makes a class dearer for each record; anything above ``enough`` once there."""
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
    """Return what a class of this extent is charged for each of its records."""
    low, high, width = extent.low, extent.high, extent.width
    total = 0.0
    for axis in range(len(low)):
        total += charge[axis] * (high[axis] - low[axis])
    for axis in range(len(width)):
        total += charge[len(low) + axis] * width[axis]
    return total


@piece
def shortfall(counts: IntArray, column: int, rules: Rules) -> float:
    """Return by how much the sensitive values of a class miss l and t in one attribute; 0 if they meet both."""
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
def falls(counts: IntArray, rules: Rules, found: FloatArray) -> float:
    """Fill in each attribute's shortfall with one more record of each code; return that of the class as it is."""
    num_codes = rules.num_codes
    total = 0.0
    for column in range(len(num_codes)):
        total += shortfall(counts, column, rules)
        for code in range(num_codes[column]):
            counts[column, code] += 1
            found[column, code] = shortfall(counts, column, rules)
            counts[column, code] -= 1
    return total


@piece
def fall_with(record: int, rules: Rules, found: FloatArray) -> float:
    """Return the shortfall of a class with one more record."""
    total = 0.0
    for column in range(len(rules.num_codes)):
        total += found[column, rules.sensitive[column, record]]
    return total


@piece
def too_wide(record: int, table: Table, extent: Extent, limits: FloatArray) -> bool:
    """Whether a record makes a class wider than some attribute's limit."""
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
def densities(table: Table, lead: int, num_near: int, stride: int) -> Any:
    """Return the average charged distance of each record to its nearest ones among every ``stride``-th record.

    Records are sorted by the numeric attribute ``lead``: the search goes out from a record on both sides and ends
    where that attribute alone puts everything farther away than what was found.
    """
    numbers, codes, charge = table.numbers, table.codes, table.charge
    entries, starts, sizes = table.entries, table.starts, table.sizes
    num, num_axes = numbers.shape[1], numbers.shape[0]
    found = np.zeros(num)
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
        found[record] = best.mean()
    return found


@piece
def look(
    at: int, living: IntArray, table: Table, extent: Extent, lead: int, free: Free, limits: FloatArray, kept: Listed
) -> int:
    """List the living records that make a class least dearer, cheapest first; return how many there are.

    Goes out from the head on both sides, and ends where the attribute that records are sorted by alone makes the class
    dearer than the last of the list. ``kept`` is the list: records, and what each costs.
    """
    numbers, charge = table.numbers, table.charge
    alive, person, mark, stamp = free
    records, prices = kept
    num, room = 0, len(records)
    most = np.inf
    for step in (-1, 1):
        place = at + step
        while 0 <= place < len(living):
            record = living[place]
            place += step
            value = numbers[lead, record]
            if charge[lead] * (extent.low[lead] - value if step < 0 else value - extent.high[lead]) > most:
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
def cheapest(
    head: int, kept: Listed, num: int, table: Table, extent: Extent, free: Free, limits: FloatArray, numbered: IntArray
) -> Any:
    """Return the place in a list of the record that makes a class least dearer now, and by how much.

    Ties go to the record nearest to the head, then to the lowest record number.
    """
    near = table.near
    alive, person, mark, stamp = free
    best, chosen, best_away = np.inf, -1, np.inf
    for place in range(num):
        record = kept.records[place]
        if not alive[record] or mark[person[record]] == stamp:
            continue
        price = rise(record, table, extent, best)
        if price > best or too_wide(record, table, extent, limits):
            continue
        away = distance(head, record, table, near)
        if (
            price < best
            or away < best_away
            or (away == best_away and numbered[record] < numbered[kept.records[chosen]])
        ):
            best, chosen, best_away = price, place, away
    return chosen, best


@piece
def mending(
    living: IntArray, alive: BoolArray, table: Table, extent: Extent, rules: Rules, found: FloatArray, short: float
) -> int:
    """Return the living record that makes a class least dearer among those that lessen its shortfall; -1 for none."""
    best, chosen = np.inf, -1
    for record in living:
        if alive[record] and fall_with(record, rules, found) < short - 1e-12:
            price = rise(record, table, extent, best)
            if price < best and not too_wide(record, table, extent, rules.limits):
                best, chosen = price, record
    return chosen


@piece
def grow_class(
    head: int,
    living: IntArray,
    free: Free,
    table: Table,
    lead: int,
    k: int,
    rules: Rules,
    numbered: IntArray,
    work: Work,
    members: IntArray,
) -> int:
    """Grow one class from its head; return how many records it has, 0 if the living ones allow no class.

    What a class costs with a record more never falls while it grows. So a list of the cheapest records stays good for
    as long as the best of them costs no more than the last of the list did when it was made.
    """
    extent, kept, counts, found = work.extent, work.listed, work.counts, work.falls
    alive, person, mark, stamp = free
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
        for column in range(len(rules.num_codes)):
            counts[column, rules.sensitive[column, record]] += 1
        short = falls(counts, rules, found)
        if persons >= k and short == 0.0:
            return num
        if short > 0.0 and persons + short >= k:
            record = mending(living, alive, table, extent, rules, found, short)
        else:
            now = cost(extent, table.charge)
            chosen, price = cheapest(head, kept, listed, table, extent, free, rules.limits, numbered)
            if chosen < 0 or now + price > bar:
                listed = look(at, living, table, extent, lead, free, rules.limits, kept)
                bar = now + kept.prices[len(kept.prices) - 1] if listed == len(kept.prices) else np.inf
                chosen, price = cheapest(head, kept, listed, table, extent, free, rules.limits, numbered)
            record = kept.records[chosen] if chosen >= 0 else -1
        if record < 0:
            for place in range(num):
                alive[members[place]] = True
            return 0


@piece
def still_alive(living: IntArray, num: int, alive: BoolArray) -> Any:
    found = np.zeros(num, np.int64)
    place = 0
    for record in living:
        if alive[record]:
            found[place] = record
            place += 1
    return found


@piece
def set_free(members: IntArray, size: int, alive: BoolArray) -> None:
    for place in range(size):
        alive[members[place]] = True


@piece
def usual_cost(
    keys: FloatArray,
    living: IntArray,
    free: Free,
    table: Table,
    lead: int,
    k: int,
    rules: Rules,
    numbered: IntArray,
    work: Work,
) -> Any:
    """Return how many times its key a class usually costs, by classes grown from a few heads and undone."""
    members = np.zeros(len(living), np.int64)
    alive, person, mark = free.alive, free.person, free.mark
    prices, promised = 0.0, 0.0
    for place in range(32):
        head = place * len(living) // 32
        marked = Free(alive, person, mark, -2 - place)
        size = grow_class(head, living, marked, table, lead, k, rules, numbered, work, members)
        set_free(members, size, alive)
        if size:
            prices += cost(work.extent, table.charge)
            promised += keys[head]
    return prices / promised if promised > 0.0 else 1.0


@kernel
def grow_classes(
    table: Table,
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
    """Grow classes from the heads of lowest keys; return how many. Records that are in none keep -1.

    A class that costs more than ``slack`` times what the next head promises is undone, and its head put off with the
    cost as its new key, up to ``patience`` times. ``num_done`` counts records in classes for those who watch.
    """
    num = len(of_record)
    alive, living = np.ones(num, np.bool_), np.arange(num)
    num_living, num_classes = num, 0
    mark = np.full(person.max() + 1, -1)
    kept = Listed(np.zeros(room, np.int64), np.zeros(room))
    shape = rules.shares.shape
    work = Work(new_extent(table), kept, np.zeros(shape, np.int64), np.zeros(shape))
    members, put_off = np.zeros(num, np.int64), np.zeros(num, np.int64)
    scale = 1.0
    if patience > 0:
        scale = slack * usual_cost(keys, living, Free(alive, person, mark, 0), table, lead, k, rules, numbered, work)
    heap = [(scale * keys[head], head) for head in range(num)]
    heapq.heapify(heap)
    stamp = 0
    while len(heap) > 0:
        head = heapq.heappop(heap)[1]
        if not alive[head]:
            continue
        if len(living) > 1.25 * num_living:
            living = still_alive(living, num_living, alive)
        stamp += 1
        free = Free(alive, person, mark, stamp)
        size = grow_class(head, living, free, table, lead, k, rules, numbered, work, members)
        if size == 0:  # no class can begin here: its head waits for a place among the others
            alive[head] = False
            num_living -= 1
            continue
        price = cost(work.extent, table.charge)
        if put_off[head] < patience and len(heap) > 0 and price > slack * heap[0][0]:
            set_free(members, size, alive)
            put_off[head] += 1
            heapq.heappush(heap, (price, head))
            continue
        for place in range(size):
            of_record[members[place]] = num_classes
        num_classes += 1
        num_living -= size
        num_done[0] += size
    return num_classes


@kernel
def class_lists(of_record: IntArray, num_classes: int) -> Any:
    """Return the records of all classes one after another, and where each class starts."""
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
def extent_of(records: IntArray, table: Table, extent: Extent) -> None:
    """Make the extent that of a class of these records."""
    begin(records[0], table, extent)
    for record in records[1:]:
        join(record, table, extent)


@piece
def diverse(records: IntArray, more: int, rules: Rules, counts: IntArray) -> bool:
    """Whether records, and one more unless it is negative, meet l and t together."""
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
def dearer_with(
    record: int,
    records: IntArray,
    table: Table,
    low: FloatArray,
    high: FloatArray,
    width: FloatArray,
    limits: FloatArray,
    most: float,
) -> Any:
    """Return what a class costs in all more with another record; infinity if above ``most`` or too wide.

    ``low``, ``high`` and ``width`` say the extent of the class.
    """
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
def place_left(table: Table, of_record: IntArray, num_classes: int, rules: Rules, price: float, spare: int) -> None:
    """Put each record in no class where it costs least in all; leave it out if none may take it.

    Up to ``spare`` records are left out also where that is cheaper at their ``price``.
    """
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
            more = dearer_with(record, inside, table, low[class_], high[class_], width[class_], rules.limits, best)
            if more < best and diverse(inside, record, rules, counts):
                best, chosen = more, class_
        if chosen < 0:
            spare -= 1
            continue
        of_record[record] = chosen
        records, starts = class_lists(of_record, num_classes)
        extent_of(records[starts[chosen] : starts[chosen + 1]], table, extent)
        low[chosen], high[chosen], width[chosen] = extent.low, extent.high, extent.width


SMALL = 2_000  # up to here the published method is run too, for it takes no time, and the better result is kept
SAMPLE = 1_000  # records among which nearest ones are counted to find where records lie densest
SLACK = 1.3  # a class is put off if it costs so many times more than the next head promises
PATIENCE = 4  # how often a head is put off
TOLD_EVERY = 0.2  # seconds between two reports of how far growth is
LISTED = 2  # cheapest records that are listed at once, for each record a class needs, from 16 to 128

Progress = Callable[[float], None]


def grow(
    metric: Metric,  # Records, and what distances cost
    k: int,  # Smallest number of distinct persons in a class; of records when `person` is not given
    *,
    heads: Literal["density"] | IntArray = "density",
    constraints: Constraints | None = None,  # What classes must keep to besides
    person: IntArray | None = None,  # Code of the person of each record, from 0
    price: float = 1.0,  # What a record in no class costs
    patience: int = PATIENCE,
    progress: Progress | None = None,  # Called with the share of the work that is done
) -> IntArray:
    """Return the class of each record, from classes grown one after another; -1 for records in none.

    A class begins with the first head that is still free and takes in the free record that makes it least dearer,
    until it has k persons and meets the constraints; of equally dear records the one nearest to the head. Where heads
    go by density, a class that turns out much dearer than the next head promises is undone and its head put off: the
    cheapest classes come first, as long as their records are free. Records that are over go where they cost least in
    all. Where heads may be put off, each class and those nearest to its records at last exchange records, twice.
    With constraints, records that no class may take, or (up to the share that may be suppressed) that cost more than
    ``price`` everywhere, are in no class. Up to 2,000 records the result is never worse than that of the published
    density method, where that applies: no persons, no constraints.
    """
    check(metric, k, person)
    order, sorted_metric, lead = sort_for_search(metric)
    if isinstance(heads, str):
        keys = _densities(sorted_metric, lead, k)
    else:
        keys, patience = np.argsort(_as_order(heads, len(metric)))[order].astype(np.float64), 0
    found = np.empty(len(metric), dtype=np.int64)
    rules = rules_for(metric, order, constraints)
    may_lose = spare(constraints, len(metric))
    persons = persons_of(person, order)
    work = partial(_grow_sorted, sorted_metric, lead, k, keys, patience, order, rules, persons, price, may_lose)
    found[order] = _watched(work, len(metric), progress)
    if patience:
        from dunnage.clustering.refine import polish

        found = polish(metric, found, k, person, constraints)
    if isinstance(heads, str) and constraints is None and person is None and k <= len(metric) <= SMALL:
        # The better of the grown classes and the published ones.
        from dunnage.clustering.published import published_density

        published = published_density(metric, k)
        found = published if metric.total(published) < metric.total(found) else found
    if progress is not None:
        progress(1.0)
    return found


def check(metric: Metric, k: int, person: IntArray | None) -> None:
    """Raise an error unless there are records, k is a number of persons and each record has its person."""
    if k < 1:
        raise ParameterError(f"k must be at least 1. Got {k}. Give the smallest number of persons in a class.")
    if person is not None and len(person) != len(metric):
        raise ParameterError(
            f"each record needs its person. Got {len(person)} persons for {len(metric)} records. Give one for each."
        )


def sort_for_search(metric: Metric) -> tuple[IntArray, Metric, int]:
    """Return an order of records, the metric in that order, and the numeric attribute it is sorted by.

    That is the attribute in which records lie farthest apart by what it charges. Without a numeric attribute a
    constant one is put in, which costs nothing.
    """
    metric = with_numbers(metric)
    lead = leading(metric)
    order = np.argsort(metric.numbers[lead], kind="stable")
    return order, metric.take(order), lead


def leading(metric: Metric) -> int:
    """Return the numeric attribute in which records lie farthest apart by what it charges."""
    return int(np.argmax(np.std(metric.numbers, axis=1) * metric.charge[: len(metric.numbers)]))


def with_numbers(metric: Metric) -> Metric:
    """Return the metric; without a numeric attribute, with a constant one put in, which costs nothing."""
    if len(metric.numbers):
        return metric
    zero, none = np.zeros((1, len(metric))), np.zeros(1)
    charge, near = np.concatenate((none, metric.charge)), np.concatenate((none, metric.near))
    return Metric(zero, metric.codes, metric.tables, charge, near)


def persons_of(person: IntArray | None, order: IntArray) -> IntArray:
    """Return the person of each record in an order, numbered without gaps; each record its own when not given."""
    if person is None:
        return np.arange(len(order), dtype=np.int64)
    return np.unique(person[order], return_inverse=True)[1].astype(np.int64)


def rules_for(metric: Metric, order: IntArray, constraints: Constraints | None) -> Rules:
    """Return the rules for kernels on records that are sorted for the search."""
    rules = packed(None if constraints is None else constraints.take(order), metric)
    free = [] if len(metric.numbers) else [np.inf]  # the attribute that was put in has no limit
    return rules._replace(limits=np.concatenate((free, rules.limits)))


def _densities(sorted_metric: Metric, lead: int, k: int) -> FloatArray:

    stride = max(1, min(len(sorted_metric) // SAMPLE, k))
    found: FloatArray = densities(sorted_metric.arrays, lead, min(max(1, k - 1), len(sorted_metric)), stride)
    return found


def _grow_sorted(
    metric: Metric,
    lead: int,
    k: int,
    keys: FloatArray,
    patience: int,
    order: IntArray,
    rules: Rules,
    persons: IntArray,
    price: float,
    may_lose: int,
    num_done: IntArray,
) -> IntArray:
    """Grow classes of records that are sorted for the search; left-overs are placed. Counts records in classes."""
    found = np.full(len(metric), -1, dtype=np.int64)
    room = min(max(16, LISTED * k), 128)
    num = grow_classes(metric.arrays, keys, k, lead, persons, rules, order, room, SLACK, patience, found, num_done)
    place_left(metric.arrays, found, num, rules, price, may_lose)
    return found


def _watched(work: Callable[[IntArray], IntArray], num: int, progress: Progress | None) -> IntArray:
    """Return what work returns, which is given a place to count the records that are done; tell how many now and then.

    Work is compiled and lets other threads run: it goes on in one of its own, so that this one can tell.
    """
    num_done = np.zeros(1, dtype=np.int64)
    if progress is None:
        return work(num_done)
    from concurrent.futures import ThreadPoolExecutor, wait

    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(work, num_done)
        while not wait([future], timeout=TOLD_EVERY).done:
            progress(0.9 * int(num_done[0]) / num)
        return future.result()


def _as_order(heads: IntArray, num: int) -> IntArray:
    order = np.asarray(heads, dtype=np.int64)
    if not np.array_equal(np.sort(order), np.arange(num)):
        raise ParameterError(
            f"heads must name each record once. Got {len(order)} for {num} records. Give a permutation."
        )
    return order


# --- Large tables cut into blocks that lie apart, each grouped by itself, so that time grows with the number of
# records.
#
# Blocks come from cuts in two, as in Mondrian: each in the attribute in which records lie farthest apart by what the
# metric charges. Numbers are cut between two values. Codes are put in line between two that are far apart and cut
# there.


SIZE = 20_000  # a table of up to so many records is one block
TARGET = 12_500  # larger tables are cut into blocks of about so many

Method = Callable[..., IntArray]


def in_blocks(
    metric: Metric,  # Records, and what distances cost
    k: int,  # Smallest number of distinct persons in a class; of records when `person` is not given
    method: Method,
    *,
    size: int = SIZE,  # A table of up to so many records is one block
    constraints: Constraints | None = None,  # What classes must keep to besides
    person: IntArray | None = None,  # Code of the person of each record, from 0
    workers: int | None = None,  # How many blocks are grouped at once; as many as there are cores by default
    progress: Progress | None = None,  # Called with the share of records that are grouped
    **options: Any,
) -> IntArray:
    """Return the class of each record, from a method that is run on each block of the table, on several at once.

    The result does not depend on how many are run at once. A block that holds too few persons for one class is never
    cut off, so that every block can be grouped if the table can; records that a block leaves in no class stay so.
    """
    if size < 1:
        raise ParameterError(f"size must be at least 1. Got {size}. Give the largest number of records in one block.")

    def solved(block: IntArray) -> IntArray:
        given = dict(options)
        if constraints is not None:
            given["constraints"] = constraints.take(block)
        if person is not None:
            given["person"] = person[block]
        return method(metric.take(block), k, **given)

    return _joined(
        list(blocks(metric, k, size=size, person=person)),
        solved,
        workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1),
        progress,
    )


def _joined(
    parts: list[IntArray], solved: Callable[[IntArray], IntArray], workers: int, progress: Progress | None
) -> IntArray:
    """Solve blocks in some threads, and number their classes one block after another, whichever was ready first."""
    from concurrent.futures import ThreadPoolExecutor, as_completed

    num_records = sum(map(len, parts))
    pool = ThreadPoolExecutor(max_workers=max(1, min(workers, len(parts))))
    try:
        futures = {pool.submit(solved, block): block for block in parts}
        done = 0
        for future in as_completed(futures):
            future.result()  # an error in one block ends all
            done += len(futures[future])
            if progress is not None:
                progress(done / num_records)
    finally:
        pool.shutdown(cancel_futures=True)
    found, num = np.full(num_records, -1, dtype=np.int64), 0
    for future, block in futures.items():
        inside = future.result()
        found[block] = np.where(inside >= 0, inside + num, -1)
        num += int(inside.max(initial=-1)) + 1
    return found


def grow_in_blocks(
    metric: Metric,  # Records, and what distances cost
    k: int,  # Smallest number of distinct persons in a class; of records when `person` is not given
    *,
    size: int = SIZE,  # A table of up to so many records is one block
    constraints: Constraints | None = None,  # What classes must keep to besides
    person: IntArray | None = None,  # Code of the person of each record, from 0
    price: float = 1.0,  # What a record in no class costs
    workers: int | None = None,  # How many blocks are grouped at once; as many as there are cores by default
    progress: Progress | None = None,  # Called with the share of records that are grouped
) -> IntArray:
    """Return classes grown in blocks: with heads put off in a table of one block, without in larger ones, for time."""
    given: dict[str, Any] = {"constraints": constraints, "person": person, "price": price, "progress": progress}
    if len(metric) <= size:
        return grow(metric, k, **given)
    return in_blocks(metric, k, grow, size=size, workers=workers, patience=0, **given)


def blocks(metric: Metric, k: int, *, size: int = SIZE, person: IntArray | None = None) -> Iterator[IntArray]:
    """Give the records of each block, in ascending order."""
    # block, and how many parts it is still to be cut into: parts of equal size need equal time
    waiting = [
        (np.arange(len(metric), dtype=np.int64), 1 if len(metric) <= size else -(-len(metric) // min(size, TARGET)))
    ]
    while waiting:
        block, parts = waiting.pop()
        sides = _sides(metric, block, parts // 2 / parts, k, person) if parts > 1 else None
        if sides is None:
            yield block
        else:
            waiting += [(sides[1], parts - parts // 2), (sides[0], parts // 2)]


def _sides(
    metric: Metric, block: IntArray, share: float, k: int, person: IntArray | None
) -> tuple[IntArray, IntArray] | None:
    """Return both sides of a block, cut in the first attribute of the widest that leaves each k persons."""
    for axis in np.argsort(-_spreads(metric, block), kind="stable"):
        first = _first_side(metric, block, int(axis), share)
        sides = block[first], block[~first]
        if min((len(side) if person is None else len(np.unique(person[side]))) for side in sides) >= max(k, 1):
            return sides
    return None


def _spreads(metric: Metric, block: IntArray) -> FloatArray:
    """Return how far apart the records of a block lie in each attribute: charged mean distance from a middle one."""
    numbers = [float(np.mean(np.abs(column[block] - np.median(column[block])))) for column in metric.numbers]
    coded = []
    for column, table in zip(metric.codes, metric.tables, strict=True):
        counts = np.bincount(column[block], minlength=len(table))
        coded.append(float((table @ counts).min()) / len(block))
    return np.asarray(metric.charge * np.array(numbers + coded))


def _first_side(metric: Metric, block: IntArray, axis: int, share: float) -> Any:
    """Return which records of a block are on the first side of a cut in one attribute: about a share of them."""
    wanted = int(share * len(block))
    if axis < len(metric.numbers):
        column = metric.numbers[axis, block]
        border = np.partition(column, wanted)[wanted]
        below, up_to = column < border, column <= border  # equal numbers stay together
        return below if abs(below.sum() - wanted) <= abs(up_to.sum() - wanted) else up_to
    codes = metric.codes[axis - len(metric.numbers), block]
    # Which codes are on the first side, put in line between two that are far apart.
    table = metric.tables[axis - len(metric.numbers)]
    counts = np.bincount(codes, minlength=len(table))
    present = np.flatnonzero(counts)
    inside = table[np.ix_(present, present)]
    middle = int(np.argmin(inside @ counts[present]))
    one = int(np.argmax(inside[middle]))
    other = int(np.argmax(inside[one]))
    line = present[np.argsort(inside[one] - inside[other], kind="stable")]
    up_to = np.cumsum(counts[line])
    num = 1 + int(np.argmin(np.abs(up_to - wanted)))
    first = np.zeros(len(table), dtype=np.bool_)
    first[line[:num]] = True
    return first[codes]
