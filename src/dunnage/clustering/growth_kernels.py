# SPDX-License-Identifier: Apache-2.0
"""Compiled growth of classes, one after another, over records sorted by the attribute that searches follow.

A *table* is what ``Metric.arrays`` gives: numbers, codes, entries, starts, sizes, charge, near. The *extent* of a class
is what its cost follows from: lowest and highest number of each numeric attribute; for each coded attribute the
width, and for each code of the domain how far it is from the farthest code of the class. Whether a record widens a
class, and by how much, is then one look at each attribute.
"""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np

from dunnage.clustering.compiling import distance
from dunnage.compiling import kernel, piece

# Any: compiled functions take tuples of arrays, which have no type of their own.


@kernel
def new_extent(table: Any) -> Any:
    """Return room for the extent of one class: low, high, widths of coded attributes, reach of codes, their places."""
    numbers, codes, _, _, sizes, _, _ = table
    places = np.zeros(codes.shape[0] + 1, np.int64)
    for axis in range(codes.shape[0]):
        places[axis + 1] = places[axis] + sizes[axis]
    num = numbers.shape[0]
    return np.zeros(num), np.zeros(num), np.zeros(codes.shape[0]), np.zeros(places[-1]), places


@piece
def begin(record: int, table: Any, extent: Any) -> None:
    """Make the extent that of a class of one record."""
    numbers, codes, entries, starts, sizes, _, _ = table
    low, high, width, reach, places = extent
    for axis in range(numbers.shape[0]):
        low[axis] = high[axis] = numbers[axis, record]
    for axis in range(codes.shape[0]):
        width[axis] = 0.0
        row = starts[axis] + codes[axis, record] * sizes[axis]
        for code in range(sizes[axis]):
            reach[places[axis] + code] = entries[row + code]


@piece
def join(record: int, table: Any, extent: Any) -> None:
    """Widen the extent by one record."""
    numbers, codes, entries, starts, sizes, _, _ = table
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
def rise(record: int, table: Any, extent: Any, enough: float) -> float:
    """Return by how much a record makes a class dearer for each record; anything above ``enough`` once there."""
    numbers, codes, _, _, _, charge, _ = table
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
def cost(extent: Any, charge: Any) -> float:
    """Return what a class of this extent is charged for each of its records."""
    low, high, width, _, _ = extent
    total = 0.0
    for axis in range(len(low)):
        total += charge[axis] * (high[axis] - low[axis])
    for axis in range(len(width)):
        total += charge[len(low) + axis] * width[axis]
    return total


@piece
def shortfall(counts: Any, column: int, rules: Any) -> float:
    """Return by how much the sensitive values of a class miss l and t in one attribute; 0 if they meet both."""
    _, _, shares, num_codes, bounds, kinds = rules
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
        apart += abs(carried) if kinds[1] else abs(share - shares[column, code])
    apart = apart / max(1, num_codes[column] - 1) if kinds[1] else apart / 2
    missed = max(0.0, math.log(bounds[0]) - entropy) if kinds[0] else max(0.0, bounds[0] - distinct)
    missed += max(0.0, apart - bounds[1])
    return missed if missed > 1e-9 else 0.0


@piece
def falls(counts: Any, rules: Any, found: Any) -> float:
    """Fill in each attribute's shortfall with one more record of each code; return that of the class as it is."""
    num_codes = rules[3]
    total = 0.0
    for column in range(len(num_codes)):
        total += shortfall(counts, column, rules)
        for code in range(num_codes[column]):
            counts[column, code] += 1
            found[column, code] = shortfall(counts, column, rules)
            counts[column, code] -= 1
    return total


@piece
def fall_with(record: int, rules: Any, found: Any) -> float:
    """Return the shortfall of a class with one more record."""
    total = 0.0
    for column in range(len(rules[3])):
        total += found[column, rules[1][column, record]]
    return total


@piece
def too_wide(record: int, table: Any, extent: Any, limits: Any) -> bool:
    """Whether a record makes a class wider than some attribute's limit."""
    numbers, codes, _, _, _, _, _ = table
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
def densities(table: Any, lead: int, num_near: int, stride: int) -> Any:
    """Return the average charged distance of each record to its nearest ones among every ``stride``-th record.

    Records are sorted by the numeric attribute ``lead``: the search goes out from a record on both sides and ends
    where that attribute alone puts everything farther away than what was found.
    """
    numbers, codes, entries, starts, sizes, charge, _ = table
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
def look(at: int, living: Any, table: Any, extent: Any, lead: int, free: Any, limits: Any, kept: Any) -> int:
    """List the living records that make a class least dearer, cheapest first; return how many there are.

    Goes out from the head on both sides, and ends where the attribute that records are sorted by alone makes the class
    dearer than the last of the list. ``kept`` is the list: records, and what each costs.
    """
    numbers, charge = table[0], table[5]
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
            if charge[lead] * (extent[0][lead] - value if step < 0 else value - extent[1][lead]) > most:
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
def cheapest(head: int, kept: Any, num: int, table: Any, extent: Any, free: Any, limits: Any, numbered: Any) -> Any:
    """Return the place in a list of the record that makes a class least dearer now, and by how much.

    Ties go to the record nearest to the head, then to the lowest record number.
    """
    numbers, codes, entries, starts, sizes, _, near = table
    alive, person, mark, stamp = free
    best, chosen, best_away = np.inf, -1, np.inf
    for place in range(num):
        record = kept[0][place]
        if not alive[record] or mark[person[record]] == stamp:
            continue
        price = rise(record, table, extent, best)
        if price > best or too_wide(record, table, extent, limits):
            continue
        away = distance(head, record, numbers, codes, entries, starts, sizes, near)
        if price < best or away < best_away or (away == best_away and numbered[record] < numbered[kept[0][chosen]]):
            best, chosen, best_away = price, place, away
    return chosen, best


@piece
def mending(living: Any, alive: Any, table: Any, extent: Any, rules: Any, found: Any, short: float) -> int:
    """Return the living record that makes a class least dearer among those that lessen its shortfall; -1 for none."""
    best, chosen = np.inf, -1
    for record in living:
        if alive[record] and fall_with(record, rules, found) < short - 1e-12:
            price = rise(record, table, extent, best)
            if price < best and not too_wide(record, table, extent, rules[0]):
                best, chosen = price, record
    return chosen


@piece
def grow_class(
    head: int, living: Any, free: Any, table: Any, lead: int, k: int, rules: Any, numbered: Any, work: Any, members: Any
) -> int:
    """Grow one class from its head; return how many records it has, 0 if the living ones allow no class.

    What a class costs with a record more never falls while it grows. So a list of the cheapest records stays good for
    as long as the best of them costs no more than the last of the list did when it was made.
    """
    extent, kept, counts, found = work
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
        for column in range(len(rules[3])):
            counts[column, rules[1][column, record]] += 1
        short = falls(counts, rules, found)
        if persons >= k and short == 0.0:
            return num
        if short > 0.0 and persons + short >= k:
            record = mending(living, alive, table, extent, rules, found, short)
        else:
            now = cost(extent, table[5])
            chosen, price = cheapest(head, kept, listed, table, extent, free, rules[0], numbered)
            if chosen < 0 or now + price > bar:
                listed = look(at, living, table, extent, lead, free, rules[0], kept)
                bar = now + kept[1][len(kept[1]) - 1] if listed == len(kept[1]) else np.inf
                chosen, price = cheapest(head, kept, listed, table, extent, free, rules[0], numbered)
            record = kept[0][chosen] if chosen >= 0 else -1
        if record < 0:
            for place in range(num):
                alive[members[place]] = True
            return 0


@piece
def still_alive(living: Any, num: int, alive: Any) -> Any:
    """Return the records that live, in their order."""
    found = np.zeros(num, np.int64)
    place = 0
    for record in living:
        if alive[record]:
            found[place] = record
            place += 1
    return found


@piece
def set_free(members: Any, size: int, alive: Any) -> None:
    """Undo a class: its records live again."""
    for place in range(size):
        alive[members[place]] = True


@piece
def usual_cost(
    keys: Any, living: Any, free: Any, table: Any, lead: int, k: int, rules: Any, numbered: Any, work: Any
) -> Any:
    """Return how many times its key a class usually costs, by classes grown from a few heads and undone."""
    members = np.zeros(len(living), np.int64)
    alive, person, mark, _ = free
    prices, promised = 0.0, 0.0
    for place in range(32):
        head = place * len(living) // 32
        marked = (alive, person, mark, -2 - place)
        size = grow_class(head, living, marked, table, lead, k, rules, numbered, work, members)
        set_free(members, size, alive)
        if size:
            prices += cost(work[0], table[5])
            promised += keys[head]
    return prices / promised if promised > 0.0 else 1.0


@kernel
def grow_classes(
    table: Any,
    keys: Any,
    k: int,
    lead: int,
    person: Any,
    rules: Any,
    numbered: Any,
    room: int,
    slack: float,
    patience: int,
    of_record: Any,
    num_done: Any,
) -> int:
    """Grow classes from the heads of lowest keys; return how many. Records that are in none keep -1.

    A class that costs more than ``slack`` times what the next head promises is undone, and its head put off with the
    cost as its new key, up to ``patience`` times. ``num_done`` counts records in classes for those who watch.
    """
    num = len(of_record)
    alive, living = np.ones(num, np.bool_), np.arange(num)
    num_living, num_classes = num, 0
    mark = np.full(person.max() + 1, -1)
    kept = (np.zeros(room, np.int64), np.zeros(room))
    shape = rules[2].shape
    work = (new_extent(table), kept, np.zeros(shape, np.int64), np.zeros(shape))
    members, put_off = np.zeros(num, np.int64), np.zeros(num, np.int64)
    scale = 1.0
    if patience > 0:
        scale = slack * usual_cost(keys, living, (alive, person, mark, 0), table, lead, k, rules, numbered, work)
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
        free = (alive, person, mark, stamp)
        size = grow_class(head, living, free, table, lead, k, rules, numbered, work, members)
        if size == 0:  # no class can begin here: its head waits for a place among the others
            alive[head] = False
            num_living -= 1
            continue
        price = cost(work[0], table[5])
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
def class_lists(of_record: Any, num_classes: int) -> Any:
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
def extent_of(records: Any, table: Any, extent: Any) -> None:
    """Make the extent that of a class of these records."""
    begin(records[0], table, extent)
    for record in records[1:]:
        join(record, table, extent)


@piece
def diverse(records: Any, more: int, rules: Any, counts: Any) -> bool:
    """Whether records, and one more unless it is negative, meet l and t together."""
    if len(rules[3]) == 0:
        return True
    counts[:] = 0
    for column in range(len(rules[3])):
        for record in records:
            counts[column, rules[1][column, record]] += 1
        if more >= 0:
            counts[column, rules[1][column, more]] += 1
        if shortfall(counts, column, rules) > 0.0:
            return False
    return True


@piece
def dearer_with(
    record: int, records: Any, table: Any, low: Any, high: Any, width: Any, limits: Any, most: float
) -> Any:
    """Return what a class costs in all more with another record; infinity if above ``most`` or too wide.

    ``low``, ``high`` and ``width`` say the extent of the class.
    """
    numbers, codes, entries, starts, sizes, charge, _ = table
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
def place_left(table: Any, of_record: Any, num_classes: int, rules: Any, price: float, spare: int) -> None:
    """Put each record in no class where it costs least in all; leave it out if none may take it.

    Up to ``spare`` records are left out also where that is cheaper at their ``price``.
    """
    numbers, codes = table[0], table[1]
    records, starts = class_lists(of_record, num_classes)
    extent, counts = new_extent(table), np.zeros(rules[2].shape, np.int64)
    low, high = np.zeros((num_classes, numbers.shape[0])), np.zeros((num_classes, numbers.shape[0]))
    width = np.zeros((num_classes, codes.shape[0]))
    for class_ in range(num_classes):
        extent_of(records[starts[class_] : starts[class_ + 1]], table, extent)
        low[class_], high[class_], width[class_] = extent[0], extent[1], extent[2]
    for record in range(len(of_record)):
        if of_record[record] >= 0:
            continue
        best, chosen = (price if spare > 0 else np.inf), -1
        for class_ in range(num_classes):
            inside = records[starts[class_] : starts[class_ + 1]]
            more = dearer_with(record, inside, table, low[class_], high[class_], width[class_], rules[0], best)
            if more < best and diverse(inside, record, rules, counts):
                best, chosen = more, class_
        if chosen < 0:
            spare -= 1
            continue
        of_record[record] = chosen
        records, starts = class_lists(of_record, num_classes)
        extent_of(records[starts[chosen] : starts[chosen + 1]], table, extent)
        low[chosen], high[chosen], width[chosen] = extent[0], extent[1], extent[2]
