# SPDX-License-Identifier: Apache-2.0
"""Compiled local search on classes: exchanges, moves, new splits of two classes, and dissolved classes.

The *classes* are a tuple: ``slots`` (records of each class; shape: classes, room), ``sizes``, ``costs`` (what each
class is charged for each of its records) and ``middles`` (the record of each class that is nearest to its others).
The *demands* are a tuple: k, person of each record, marks of persons, whether each record is a person of its own,
rules (``Constraints.rules``), room to count sensitive values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dunnage.clustering.compiling import distance, kernel
from dunnage.clustering.growth_kernels import begin, cost, diverse, extent_of, join, rise, too_wide

NEAREST = 3  # classes looked at for each record of a class
ENOUGH = 1e-9  # gains below this are rounding


@kernel
def apart(first: int, second: int, table: Any) -> Any:
    """Return what a class of two records would be charged."""
    numbers, codes, entries, starts, sizes, charge, _ = table
    return distance(first, second, numbers, codes, entries, starts, sizes, charge)


@kernel
def middle_of(records: Any, table: Any) -> Any:
    """Return the record that is nearest to the others."""
    best, chosen = np.inf, records[0]
    for one in records:
        total = 0.0
        for other in records:
            total += apart(one, other, table)
            if total >= best:
                break
        if total < best:
            best, chosen = total, one
    return chosen


@kernel
def valid(records: Any, table: Any, extent: Any, demands: Any) -> Any:
    """Whether records make a class: enough persons, no wider than allowed, diverse. The extent becomes theirs."""
    k, person, mark, single, rules, counts = demands
    if len(records) < k or not diverse(records, -1, rules, counts):
        return False
    begin(records[0], table, extent)
    for record in records[1:]:
        if too_wide(record, table, extent, rules[0]):
            return False
        join(record, table, extent)
    if single:
        return True
    for record in records:
        mark[person[record]] = 0
    persons = 0
    for record in records:
        persons += mark[person[record]] == 0
        mark[person[record]] = 1
    return persons >= k


@kernel
def put(class_: int, records: Any, table: Any, extent: Any, classes: Any) -> None:
    """Make these the records of a class."""
    slots, sizes, costs, middles = classes
    sizes[class_] = len(records)
    for place in range(len(records)):
        slots[class_, place] = records[place]
    if len(records):
        extent_of(records, table, extent)
        costs[class_] = cost(extent, table[5])
        middles[class_] = middle_of(records, table)


@kernel
def near_classes(class_: int, table: Any, classes: Any, seen: Any, found: Any) -> int:
    """List the classes whose middles are nearest to some record of a class; return how many."""
    slots, sizes, _, middles = classes
    best, ids = np.zeros(NEAREST), np.zeros(NEAREST, np.int64)
    num = 0
    for record in slots[class_, : sizes[class_]]:
        best[:] = np.inf
        for other in range(len(sizes)):
            if other == class_ or sizes[other] == 0:
                continue
            away = apart(record, middles[other], table)
            if away < best[NEAREST - 1]:
                place = NEAREST - 1
                while place > 0 and best[place - 1] > away:
                    best[place], ids[place] = best[place - 1], ids[place - 1]
                    place -= 1
                best[place], ids[place] = away, other
        for place in range(NEAREST):
            if best[place] < np.inf and not seen[ids[place]]:
                seen[ids[place]] = True
                found[num] = ids[place]
                num += 1
    seen[found[:num]] = False
    return num


@kernel
def number_holes(records: Any, table: Any) -> Any:
    """Return the lowest and highest numbers of a class without each of its records. Shape: 2, axes, records."""
    numbers = table[0]
    found = np.zeros((2, numbers.shape[0], len(records)))
    for axis in range(numbers.shape[0]):
        low, lower, high, higher = np.inf, np.inf, -np.inf, -np.inf
        for record in records:
            value = numbers[axis, record]
            if value < low:
                low, lower = value, low
            else:
                lower = min(lower, value)
            if value > high:
                high, higher = value, high
            else:
                higher = max(higher, value)
        for place in range(len(records)):
            value = numbers[axis, records[place]]
            found[0, axis, place] = lower if value == low else low
            found[1, axis, place] = higher if value == high else high
    return found


@kernel
def code_holes(records: Any, table: Any) -> Any:
    """Return the coded widths of a class without each of its records. Shape: axes, records."""
    _, codes, entries, starts, sizes, _, _ = table
    found = np.zeros((codes.shape[0], len(records)))
    for axis in range(codes.shape[0]):
        most, one, two = -1.0, 0, 0
        for first in range(len(records)):
            row = starts[axis] + codes[axis, records[first]] * sizes[axis]
            for second in range(first):
                if entries[row + codes[axis, records[second]]] > most:
                    most, one, two = entries[row + codes[axis, records[second]]], first, second
        found[axis, :] = max(0.0, most)
        for without in (one, two):  # only without one of the two farthest may a class be narrower
            most = 0.0
            for first in range(len(records)):
                row = starts[axis] + codes[axis, records[first]] * sizes[axis]
                for second in range(first):
                    if first != without and second != without:
                        most = max(most, entries[row + codes[axis, records[second]]])
            found[axis, without] = most
    return found


@kernel
def farthest(records: Any, others: Any, table: Any) -> Any:
    """Return how far each record is from the farthest of others, which it is, and how far from the next.

    Shapes: axes, records.
    """
    _, codes, entries, starts, sizes, _, _ = table
    shape = (codes.shape[0], len(records))
    first, which, second = np.zeros(shape), np.full(shape, -1), np.zeros(shape)
    for axis in range(codes.shape[0]):
        for place in range(len(records)):
            row = starts[axis] + codes[axis, records[place]] * sizes[axis]
            most, at, next_most = -1.0, -1, 0.0
            for other in range(len(others)):
                away = entries[row + codes[axis, others[other]]]
                if away > most:
                    most, at, next_most = away, other, max(most, 0.0)
                elif away > next_most:
                    next_most = away
            first[axis, place], which[axis, place], second[axis, place] = most, at, next_most
    return first, which, second


@kernel
def view(records: Any, others: Any, table: Any) -> Any:
    """Return all that is needed to weigh exchanges of a class's records with others, and its cost without each."""
    charge = table[5]
    numbers, codes = number_holes(records, table), code_holes(records, table)
    without = np.zeros(len(records))
    for place in range(len(records)):
        for axis in range(numbers.shape[1]):
            without[place] += charge[axis] * max(0.0, numbers[1, axis, place] - numbers[0, axis, place])
        for axis in range(codes.shape[0]):
            without[place] += charge[numbers.shape[1] + axis] * codes[axis, place]
    first, which, second = farthest(others, records, table)
    return numbers, codes, without, first, which, second


@kernel
def cost_with(seen: Any, place: int, other: int, record: int, table: Any) -> float:
    """Return what a class costs with a record of another class instead of that at a place."""
    numbers, codes, _, first, which, second = seen
    charge = table[5]
    total = 0.0
    num = numbers.shape[1]
    for axis in range(num):
        value = table[0][axis, record]
        total += charge[axis] * (max(numbers[1, axis, place], value) - min(numbers[0, axis, place], value))
    for axis in range(codes.shape[0]):
        far = second[axis, other] if which[axis, other] == place else first[axis, other]
        total += charge[num + axis] * max(codes[axis, place], far)
    return total


@kernel
def exchanged(records: Any, without: int, more: int) -> Any:
    """Return records without that at a place (if not negative) and with another (if not negative)."""
    kept = np.zeros(len(records) - (without >= 0) + (more >= 0), np.int64)
    num = 0
    for place in range(len(records)):
        if place != without:
            kept[num] = records[place]
            num += 1
    if more >= 0:
        kept[num] = more
    return kept


@kernel
def try_pair(mine: Any, theirs: Any, out: int, back: int, table: Any, extent: Any, demands: Any) -> Any:
    """Whether both classes stay valid when they exchange records; negative places exchange nothing."""
    given = mine[out] if out >= 0 else -1
    taken = theirs[back] if back >= 0 else -1
    _, _, _, single, rules, _ = demands
    if single and len(rules[3]) == 0 and np.all(np.isinf(rules[0])):
        return len(mine) - (out >= 0) + (back >= 0) >= demands[0]
    return valid(exchanged(mine, out, taken), table, extent, demands) and valid(
        exchanged(theirs, back, given), table, extent, demands
    )


@kernel
def best_exchange(mine: Any, theirs: Any, now: float, table: Any, extent: Any, demands: Any) -> Any:
    """Return what the best exchange or move of a record gains, and the places of the records that change class."""
    my_view, their_view = view(mine, theirs, table), view(theirs, mine, table)
    best, out, back = ENOUGH, -1, -1
    for one in range(len(mine)):
        for two in range(len(theirs)):
            left = now - len(theirs) * their_view[2][two]
            if left - len(mine) * my_view[2][one] <= best:
                continue
            my_cost = len(mine) * cost_with(my_view, one, two, theirs[two], table)
            if left - my_cost <= best:
                continue
            gain = now - my_cost - len(theirs) * cost_with(their_view, two, one, mine[one], table)
            if gain > best and try_pair(mine, theirs, one, two, table, extent, demands):
                best, out, back = gain, one, two
    if len(mine) > demands[0]:
        extent_of(theirs, table, extent)
        old = cost(extent, table[5])
        prices = np.array([rise(record, table, extent, np.inf) for record in mine])
        for one in range(len(mine)):
            gain = now - (len(mine) - 1) * my_view[2][one] - (len(theirs) + 1) * (old + prices[one])
            if gain > best and try_pair(mine, theirs, one, -1, table, extent, demands):
                best, out, back = gain, one, -1
    return best, out, back


@kernel
def split_from(seed: int, size: int, records: Any, table: Any, extent: Any) -> Any:
    """Return records with those first that a class of a size takes in when it grows from a seed, and its cost."""
    line = records.copy()
    line[seed], line[0] = line[0], line[seed]
    begin(line[0], table, extent)
    for num in range(1, size):
        best, chosen = np.inf, num
        for place in range(num, len(line)):
            price = rise(line[place], table, extent, best)
            if price < best:
                best, chosen = price, place
        join(line[chosen], table, extent)
        line[num], line[chosen] = line[chosen], line[num]
    return line, cost(extent, table[5])


@kernel
def best_split(records: Any, size: int, now: float, table: Any, extent: Any, demands: Any) -> Any:
    """Return what the best new split of records into two classes gains, the records in line, and where it is.

    Splits grow from either of two records that lie far apart.
    """
    k = demands[0]
    best, best_line, at = ENOUGH, records, -1
    one, far = 0, -1.0
    for _ in range(2):
        start, far = one, -1.0
        for place in range(len(records)):
            away = apart(records[start], records[place], table)
            if away > far:
                one, far = place, away
        previous = -1
        for first_size in (k, size, len(records) - k):
            if first_size < k or len(records) - first_size < k or first_size == previous:
                continue
            previous = first_size
            line, price = split_from(one, first_size, records, table, extent)
            extent_of(line[first_size:], table, extent)
            gain = now - first_size * price - (len(line) - first_size) * cost(extent, table[5])
            if (
                gain > best
                and valid(line[:first_size], table, extent, demands)
                and valid(line[first_size:], table, extent, demands)
            ):
                best, best_line, at = gain, line, first_size
    return best, best_line, at


@kernel
def improve_pair(one: int, two: int, table: Any, extent: Any, classes: Any, demands: Any) -> float:
    """Make the best changes of two classes until there is none; return what they gain."""
    slots, sizes, costs, _ = classes
    total = 0.0
    while True:
        mine, theirs = slots[one, : sizes[one]].copy(), slots[two, : sizes[two]].copy()
        now = len(mine) * costs[one] + len(theirs) * costs[two]
        gain, out, back = best_exchange(mine, theirs, now, table, extent, demands)
        given = theirs if out < 0 else exchanged(theirs, back, mine[out])
        kept = mine if out < 0 else exchanged(mine, out, theirs[back] if back >= 0 else -1)
        if out < 0:
            both = np.concatenate((mine, theirs))
            gain, line, at = best_split(both, len(mine), now, table, extent, demands)
            if at < 0:
                return total
            kept, given = line[:at], line[at:]
        if max(len(kept), len(given)) > slots.shape[1]:
            return total
        put(one, kept, table, extent, classes)
        put(two, given, table, extent, classes)
        total += gain


@kernel
def improve(start: int, num_visits: int, waiting: Any, table: Any, extent: Any, classes: Any, demands: Any) -> Any:
    """Visit classes that wait, and improve them with the classes near them; return where to go on, and the gain.

    ``waiting`` says which classes may be improved: all whose records, or those of a class near them, changed.
    """
    sizes = classes[1]
    num = len(sizes)
    seen, found = np.zeros(num, np.bool_), np.zeros(num, np.int64)
    total = 0.0
    class_ = start
    for _ in range(num):
        if num_visits == 0:
            break
        if waiting[class_] and sizes[class_]:
            num_visits -= 1
            waiting[class_] = False
            near = near_classes(class_, table, classes, seen, found)
            for other in found[:near]:
                gain = improve_pair(class_, other, table, extent, classes, demands)
                if gain > 0.0:
                    waiting[class_], waiting[other] = True, True
                    total += gain
        class_ = (class_ + 1) % num
    return class_, total


@kernel
def extents_of(chosen: Any, table: Any, extent: Any, classes: Any) -> Any:
    """Return the extents of some classes, each in a row of its own."""
    slots, sizes, _, _ = classes
    num = len(chosen)
    low, high = np.zeros((num, len(extent[0]))), np.zeros((num, len(extent[1])))
    width, reach = np.zeros((num, len(extent[2]))), np.zeros((num, len(extent[3])))
    for row in range(num):
        extent_of(slots[chosen[row], : sizes[chosen[row]]], table, extent)
        low[row], high[row], width[row], reach[row] = extent[0], extent[1], extent[2], extent[3]
    return low, high, width, reach


@kernel
def scatter(
    mine: Any, chosen: Any, table: Any, extent: Any, classes: Any, demands: Any, price: float, spare: int
) -> Any:
    """Put each record into the one of some classes where it costs least in all, or in none at a price.

    Classes take the records in, but their costs and middles stay; returns the class of each record, and the cost in
    all: infinity if there is a record that none may take.
    """
    slots, sizes, _, _ = classes
    rules, counts = demands[4], demands[5]
    low, high, width, reach = extents_of(chosen, table, extent, classes)
    goal, total = np.full(len(mine), -1), 0.0
    for place in range(len(mine)):
        best, row = (price if spare > 0 else np.inf), -1
        for other in range(len(chosen)):
            size = sizes[chosen[other]]
            theirs = (low[other], high[other], width[other], reach[other], extent[4])
            more = rise(mine[place], table, theirs, np.inf)
            more = (size + 1) * more + cost(theirs, table[5])
            if (
                more < best
                and size < slots.shape[1]
                and not too_wide(mine[place], table, theirs, rules[0])
                and diverse(slots[chosen[other], :size], mine[place], rules, counts)
            ):
                best, row = more, other
        total += best
        if best == np.inf:
            return goal, total
        if row < 0:
            spare -= 1
            continue
        goal[place] = chosen[row]
        slots[chosen[row], sizes[chosen[row]]] = mine[place]
        sizes[chosen[row]] += 1
        join(mine[place], table, (low[row], high[row], width[row], reach[row], extent[4]))
    return goal, total


@kernel
def dissolve_class(
    class_: int, table: Any, extent: Any, classes: Any, demands: Any, price: float, spare: int, waiting: Any
) -> Any:
    """Spread the records of a class over those near it if that costs less; return the gain and how many are in none."""
    slots, sizes, costs, _ = classes
    seen, found = np.zeros(len(sizes), np.bool_), np.zeros(len(sizes), np.int64)
    near = near_classes(class_, table, classes, seen, found)
    mine = slots[class_, : sizes[class_]].copy()
    old = sizes[found[:near]].copy()
    goal, total = scatter(mine, found[:near], table, extent, classes, demands, price, spare)
    gain = len(mine) * costs[class_] - total
    if gain <= ENOUGH:
        sizes[found[:near]] = old
        return 0.0, 0
    sizes[class_], waiting[class_] = 0, False
    for row in range(near):
        other = found[row]
        if sizes[other] > old[row]:
            put(other, slots[other, : sizes[other]].copy(), table, extent, classes)
            waiting[other] = True
    return gain, (goal < 0).sum()


@kernel
def dissolve_dearest(
    dearest: Any, table: Any, extent: Any, classes: Any, demands: Any, price: float, spare: int, waiting: Any
) -> Any:
    """Dissolve classes, in the order given, where that costs less; return the gain and how many records are in none."""
    total, lost = 0.0, 0
    for class_ in dearest:
        if classes[1][class_]:
            gain, more = dissolve_class(class_, table, extent, classes, demands, price, spare - lost, waiting)
            total += gain
            lost += more
    return total, lost


@kernel
def fill(records: Any, starts: Any, table: Any, extent: Any, classes: Any) -> None:
    """Put the records of all classes, one after another, into their classes."""
    for class_ in range(len(starts) - 1):
        put(class_, records[starts[class_] : starts[class_ + 1]], table, extent, classes)


@kernel
def middles_of(records: Any, starts: Any, table: Any) -> Any:
    """Return the middle record of each class."""
    found = np.zeros(len(starts) - 1, np.int64)
    for class_ in range(len(found)):
        found[class_] = middle_of(records[starts[class_] : starts[class_ + 1]], table)
    return found
