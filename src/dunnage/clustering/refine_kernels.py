# SPDX-License-Identifier: Apache-2.0
"""Compiled local search on classes: exchanges, moves, new splits of two classes, and dissolved classes.

The *classes* are a tuple: ``slots`` (records of each class; shape: classes, room), ``sizes``, ``costs`` (what each
class is charged for each of its records), ``middles`` (the record of each class that is nearest to its others),
``holes`` (for each record of a class and each attribute what is left without it: lowest and highest number, or width
of codes twice; shape: classes, attributes, 2, room), ``without`` (what the class then costs), ``spans`` (lowest and
highest number, or width of codes twice, of the whole class) and ``stamps`` (when each class changed last).
The *demands* are a tuple: k, person of each record, marks of persons, whether each record is a person of its own,
whether nothing but k is asked for, rules (``Constraints.rules``), room to count sensitive values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dunnage.clustering.compiling import distance
from dunnage.clustering.growth_kernels import begin, cost, diverse, extent_of, join, rise, too_wide
from dunnage.compiling import kernel, piece

NEAREST = 3  # classes looked at for each record of a class
ENOUGH = 1e-9  # gains below this are rounding
MEMORY = 1 << 17  # pairs of classes that are remembered as tried


@piece
def apart(first: int, second: int, table: Any) -> Any:
    """Return what a class of two records would be charged."""
    numbers, codes, entries, starts, sizes, charge, _ = table
    return distance(first, second, numbers, codes, entries, starts, sizes, charge)


@piece
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


@piece
def valid(records: Any, table: Any, extent: Any, demands: Any) -> Any:
    """Whether records make a class: enough persons, no wider than allowed, diverse. The extent becomes theirs."""
    k, person, mark, single, simple, rules, counts = demands
    if len(records) < k or simple:
        return len(records) >= k
    if not diverse(records, -1, rules, counts):
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


@piece
def number_holes(records: Any, column: Any, span: Any, holes: Any) -> None:
    """Fill in the lowest and highest number of a class, and both without each of its records."""
    low, lower, high, higher = np.inf, np.inf, -np.inf, -np.inf
    for record in records:
        value = column[record]
        if value < low:
            low, lower = value, low
        else:
            lower = min(lower, value)
        if value > high:
            high, higher = value, high
        else:
            higher = max(higher, value)
    span[0], span[1] = low, high
    for place in range(len(records)):
        value = column[records[place]]
        holes[0, place] = lower if value == low else low
        holes[1, place] = higher if value == high else high


@piece
def widest(records: Any, column: Any, entries: Any, start: int, size: int, without: int) -> Any:
    """Return the largest distance of two codes of a class without the record at a place, and where these are."""
    most, one, two = 0.0, 0, 0
    for first in range(len(records)):
        if first == without:
            continue
        row = start + column[records[first]] * size
        for second in range(first):
            if entries[row + column[records[second]]] > most and second != without:
                most, one, two = entries[row + column[records[second]]], first, second
    return most, one, two


@piece
def code_holes(records: Any, column: Any, entries: Any, start: int, size: int, span: Any, holes: Any) -> None:
    """Fill in the width of the codes of a class, and that without each of its records."""
    most, one, two = widest(records, column, entries, start, size, -1)
    span[0], span[1] = 0.0, most
    holes[0, : len(records)], holes[1, : len(records)] = 0.0, most
    if most > 0.0:  # only without one of the two farthest may a class be narrower
        holes[1, one] = narrower(records, one, two, most, column, entries, start, size)
        holes[1, two] = narrower(records, two, one, most, column, entries, start, size)


@piece
def narrower(
    records: Any, without: int, first: int, most: float, column: Any, entries: Any, start: int, size: int
) -> Any:
    """Return the width of a class without one of its two farthest records; ``first`` is the other one.

    Mostly a third record is as far from that one, which is looked at first.
    """
    row = start + column[records[first]] * size
    for place in range(len(records)):
        if place != without and entries[row + column[records[place]]] == most:
            return most
    return widest(records, column, entries, start, size, without)[0]


@piece
def put(class_: int, records: Any, table: Any, classes: Any) -> None:
    """Make these the records of a class."""
    numbers, codes, entries, starts, code_sizes, charge, _ = table
    slots, sizes, costs, _, holes, without, spans, stamps = classes
    num, size = numbers.shape[0], len(records)
    sizes[class_] = size
    stamps[class_] = stamps[-1] + 1
    stamps[-1] += 1
    if size == 0:
        return
    slots[class_, :size] = records
    costs[class_], without[class_, :size] = 0.0, 0.0
    for axis in range(len(charge)):
        span, hole = spans[class_, axis], holes[class_, axis]
        if axis < num:
            number_holes(records, numbers[axis], span, hole)
        else:
            place = axis - num
            code_holes(records, codes[place], entries, starts[place], code_sizes[place], span, hole)
        costs[class_] += charge[axis] * (span[1] - span[0])
        for place in range(size):
            without[class_, place] += charge[axis] * max(0.0, hole[1, place] - hole[0, place])


@piece
def find_middle(class_: int, table: Any, classes: Any) -> None:
    """Find the middle of a class; that of an empty one is nowhere."""
    slots, sizes, middles = classes[0], classes[1], classes[3]
    if sizes[class_] == 0:
        middles[0][:, class_] = np.inf
        return
    middle = middle_of(slots[class_, : sizes[class_]], table)
    middles[0][:, class_], middles[1][:, class_] = table[0][:, middle], table[1][:, middle]


@piece
def keep_nearest(away: float, which: int, best: Any, ids: Any) -> None:
    """Put one into a list of the nearest, which is sorted; the last one falls out."""
    place = len(best) - 1
    while place > 0 and best[place - 1] > away:
        best[place], ids[place] = best[place - 1], ids[place - 1]
        place -= 1
    best[place], ids[place] = away, which


@piece
def distances_from(record: int, table: Any, middles: Any, away: Any) -> None:
    """Fill in how far a record is from the middle of each class, infinity for an empty class."""
    numbers, codes, entries, starts, sizes, charge, _ = table
    middle_numbers, middle_codes = middles
    num = numbers.shape[0]
    away[:] = 0.0
    for axis in range(num):
        unit, value = charge[axis], numbers[axis, record]
        column = middle_numbers[axis]
        for class_ in range(len(away)):
            away[class_] += unit * abs(column[class_] - value)
    for axis in range(codes.shape[0]):
        start = starts[axis] + codes[axis, record] * sizes[axis]
        unit, row, line = charge[num + axis], entries[start : start + sizes[axis]], middle_codes[axis]
        for class_ in range(len(away)):
            away[class_] += unit * row[line[class_]]


@piece
def near_classes(class_: int, nearest: int, table: Any, classes: Any, seen: Any, found: Any, away: Any) -> int:
    """List the classes whose middles are nearest to some record of a class; return how many."""
    slots, sizes, middles = classes[0], classes[1], classes[3]
    best, ids = np.zeros(nearest), np.zeros(nearest, np.int64)
    num, last = 0, nearest - 1
    for record in slots[class_, : sizes[class_]]:
        distances_from(record, table, middles, away)
        away[class_], best[:] = np.inf, np.inf
        for other in range(len(away)):
            if away[other] < best[last]:
                keep_nearest(away[other], other, best, ids)
        for place in range(nearest):
            if best[place] < np.inf and not seen[ids[place]]:
                seen[ids[place]] = True
                found[num] = ids[place]
                num += 1
    seen[found[:num]] = False
    return num


@piece
def farthest(mine: Any, theirs: Any, table: Any, far: Any, which: Any) -> None:
    """Fill in how far records of two classes are from the farthest of the other class, which it is, and the next.

    ``far[side, axis, 0, place]`` is the distance to the farthest, ``[..., 1, ...]`` that to the next.
    """
    _, codes, entries, starts, sizes, _, _ = table
    for axis in range(codes.shape[0]):
        far[0, axis, :, : len(mine)], far[1, axis, :, : len(theirs)] = -1.0, -1.0
        for one in range(len(mine)):
            row = starts[axis] + codes[axis, mine[one]] * sizes[axis]
            for two in range(len(theirs)):
                away = entries[row + codes[axis, theirs[two]]]
                if away > far[0, axis, 0, one]:
                    far[0, axis, 1, one], far[0, axis, 0, one] = far[0, axis, 0, one], away
                    which[0, axis, one] = two
                elif away > far[0, axis, 1, one]:
                    far[0, axis, 1, one] = away
                if away > far[1, axis, 0, two]:
                    far[1, axis, 1, two], far[1, axis, 0, two] = far[1, axis, 0, two], away
                    which[1, axis, two] = one
                elif away > far[1, axis, 1, two]:
                    far[1, axis, 1, two] = away


@piece
def cost_with(hole: Any, place: int, other: int, record: int, table: Any, far: Any, which: Any) -> float:
    """Return what a class costs with a record of another class instead of that at a place.

    ``far`` and ``which`` are those of the other class's records: how far they are from records of this one.
    """
    numbers, charge = table[0], table[5]
    total = 0.0
    num = numbers.shape[0]
    for axis in range(num):
        value = numbers[axis, record]
        total += charge[axis] * (max(hole[axis, 1, place], value) - min(hole[axis, 0, place], value))
    for axis in range(far.shape[0]):
        away = far[axis, 1, other] if which[axis, other] == place else far[axis, 0, other]
        total += charge[num + axis] * max(hole[num + axis, 1, place], away)
    return total


@piece
def cost_and(span: Any, other: int, record: int, table: Any, far: Any) -> float:
    """Return what a class costs with a record of another class besides its own."""
    numbers, charge = table[0], table[5]
    total = 0.0
    num = numbers.shape[0]
    for axis in range(num):
        value = numbers[axis, record]
        total += charge[axis] * (max(span[axis, 1], value) - min(span[axis, 0], value))
    for axis in range(far.shape[0]):
        total += charge[num + axis] * max(span[num + axis, 1], far[axis, 0, other])
    return total


@piece
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


@piece
def allowed(mine: Any, theirs: Any, out: int, back: int, table: Any, extent: Any, demands: Any) -> Any:
    """Whether both classes stay valid when they exchange records; negative places exchange nothing."""
    if demands[4]:
        return len(mine) - (out >= 0) + (back >= 0) >= demands[0] and (
            len(theirs) - (back >= 0) + (out >= 0) >= demands[0]
        )
    given = mine[out] if out >= 0 else -1
    taken = theirs[back] if back >= 0 else -1
    return valid(exchanged(mine, out, taken), table, extent, demands) and valid(
        exchanged(theirs, back, given), table, extent, demands
    )


@piece
def best_exchange(pair: Any, now: float, table: Any, extent: Any, classes: Any, demands: Any, room: Any) -> Any:
    """Return what the best exchange of two records gains, and their places in their classes."""
    slots, sizes, _, _, holes, without, _, _ = classes
    one_class, two_class = pair
    mine, theirs = slots[one_class, : sizes[one_class]], slots[two_class, : sizes[two_class]]
    far, which = room[0], room[1]
    best, out, back = ENOUGH, -1, -1
    for one in range(len(mine)):
        left = now - len(mine) * without[one_class, one]
        for two in range(len(theirs)):
            if left - len(theirs) * without[two_class, two] <= best:
                continue
            price = len(mine) * cost_with(holes[one_class], one, two, theirs[two], table, far[1], which[1])
            if now - price - len(theirs) * without[two_class, two] <= best:
                continue
            price += len(theirs) * cost_with(holes[two_class], two, one, mine[one], table, far[0], which[0])
            if now - price > best and allowed(mine, theirs, one, two, table, extent, demands):
                best, out, back = now - price, one, two
    return best, out, back


@piece
def best_move(pair: Any, now: float, table: Any, extent: Any, classes: Any, demands: Any, room: Any) -> Any:
    """Return what the best move of a record from either class to the other gains, which class gives, and its place."""
    slots, sizes, _, _, _, without, spans, _ = classes
    best, side, out = ENOUGH, 0, -1
    for giving in range(2):
        from_, to = pair[giving], pair[1 - giving]
        mine, theirs = slots[from_, : sizes[from_]], slots[to, : sizes[to]]
        if len(mine) <= demands[0]:
            continue
        for one in range(len(mine)):
            price = (len(mine) - 1) * without[from_, one]
            if now - price <= best:
                continue
            price += (len(theirs) + 1) * cost_and(spans[to], one, mine[one], table, room[0][giving])
            if now - price > best and allowed(mine, theirs, one, -1, table, extent, demands):
                best, side, out = now - price, giving, one
    return best, side, out


@piece
def start_split(seed: int, line: Any, table: Any, reach: Any, ends: Any) -> None:
    """Begin a class with one record of a line; ``reach`` says how far each record is from the class's farthest."""
    numbers, codes, entries, starts, sizes, _, _ = table
    line[seed], line[0] = line[0], line[seed]
    for axis in range(numbers.shape[0]):
        ends[axis, 0] = ends[axis, 1] = numbers[axis, line[0]]
    for axis in range(codes.shape[0]):
        ends[numbers.shape[0] + axis, 0], ends[numbers.shape[0] + axis, 1] = 0.0, 0.0
        row = starts[axis] + codes[axis, line[0]] * sizes[axis]
        for place in range(1, len(line)):
            reach[axis, place] = entries[row + codes[axis, line[place]]]


@piece
def step_split(num: int, line: Any, table: Any, reach: Any, ends: Any) -> None:
    """Let a class of the first records of a line take in the one that makes it least dearer."""
    numbers, codes, entries, starts, sizes, charge, _ = table
    num_axes = numbers.shape[0]
    best, chosen = np.inf, num
    for place in range(num, len(line)):
        price = 0.0
        for axis in range(num_axes):
            value = numbers[axis, line[place]]
            price += charge[axis] * max(0.0, ends[axis, 0] - value, value - ends[axis, 1])
        for axis in range(codes.shape[0]):
            price += charge[num_axes + axis] * max(0.0, reach[axis, place] - ends[num_axes + axis, 1])
        if price < best:
            best, chosen = price, place
    line[num], line[chosen] = line[chosen], line[num]
    for axis in range(num_axes):
        value = numbers[axis, line[num]]
        ends[axis, 0], ends[axis, 1] = min(ends[axis, 0], value), max(ends[axis, 1], value)
    for axis in range(codes.shape[0]):
        ends[num_axes + axis, 1] = max(ends[num_axes + axis, 1], reach[axis, chosen])
        reach[axis, chosen] = reach[axis, num]
        row = starts[axis] + codes[axis, line[num]] * sizes[axis]
        for place in range(num + 1, len(line)):
            reach[axis, place] = max(reach[axis, place], entries[row + codes[axis, line[place]]])


@piece
def cost_of(records: Any, table: Any, most: float) -> float:
    """Return what a class of some records is charged for each of them; anything above ``most`` once there."""
    numbers, codes, entries, starts, sizes, charge, _ = table
    total = 0.0
    for axis in range(numbers.shape[0]):
        low, high = np.inf, -np.inf
        for record in records:
            low, high = min(low, numbers[axis, record]), max(high, numbers[axis, record])
        total += charge[axis] * (high - low)
    for axis in range(codes.shape[0]):
        if total >= most:
            return total
        away = widest(records, codes[axis], entries, starts[axis], sizes[axis], -1)[0]
        total += charge[numbers.shape[0] + axis] * away
    return total


@piece
def best_split(mine: Any, theirs: Any, now: float, table: Any, extent: Any, demands: Any, room: Any) -> Any:
    """Return what the best new split of the records of two classes gains, the records in line, and where it is.

    Splits grow from either of two records that lie far apart.
    """
    k, charge = demands[0], table[5]
    both = np.concatenate((mine, theirs))
    num, line, reach, ends = len(both), np.concatenate((mine, theirs)), room[2], room[3]
    best, best_line, at = ENOUGH, both, -1
    seed = 0
    for _ in range(2):
        start, away = seed, -1.0
        for place in range(num):
            if apart(both[start], both[place], table) > away:
                seed, away = place, apart(both[start], both[place], table)
        line[:] = both
        start_split(seed, line, table, reach, ends)
        for size in range(1, num - k + 1):
            if size >= k and (size == k or size == len(mine) or size == len(theirs) or size == num - k):
                price = 0.0
                for axis in range(len(charge)):
                    price += charge[axis] * (ends[axis, 1] - ends[axis, 0])
                left = now - size * price
                rest = (num - size) * cost_of(line[size:], table, (left - best) / (num - size))
                if (
                    left - rest > best
                    and valid(line[:size], table, extent, demands)
                    and valid(line[size:], table, extent, demands)
                ):
                    best, best_line, at = left - rest, line.copy(), size
            if size < num - k:
                step_split(size, line, table, reach, ends)
    return best, best_line, at


@piece
def change_pair(pair: Any, table: Any, extent: Any, classes: Any, demands: Any, room: Any) -> Any:
    """Make the best change of two classes: exchange, move, or else a new split; return what it gains, 0 for none."""
    slots, sizes, costs = classes[0], classes[1], classes[2]
    mine, theirs = slots[pair[0], : sizes[pair[0]]], slots[pair[1], : sizes[pair[1]]]
    now = len(mine) * costs[pair[0]] + len(theirs) * costs[pair[1]]
    farthest(mine, theirs, table, room[0], room[1])
    gain, out, back = best_exchange(pair, now, table, extent, classes, demands, room)
    moved, side, place = best_move(pair, now, table, extent, classes, demands, room)
    if moved > gain and place >= 0:
        gain, out, back = moved, place if side == 0 else -1, -1 if side == 0 else place
    if out >= 0 or back >= 0:
        kept = exchanged(mine, out, theirs[back] if back >= 0 else -1)
        given = exchanged(theirs, back, mine[out] if out >= 0 else -1)
    else:
        gain, line, at = best_split(mine, theirs, now, table, extent, demands, room)
        if at < 0:
            return 0.0
        kept, given = line[:at], line[at:]
    if max(len(kept), len(given)) > slots.shape[1]:
        return 0.0
    put(pair[0], kept, table, classes)
    put(pair[1], given, table, classes)
    return gain


@kernel
def new_room(table: Any, classes: Any) -> Any:
    """Return room to weigh changes of two classes, and to remember which pairs were tried when."""
    num, most = table[1].shape[0], classes[0].shape[1]
    return (
        np.zeros((2, num, 2, most)),
        np.zeros((2, num, most), np.int64),
        np.zeros((num, 2 * most)),
        np.zeros((len(table[5]), 2)),
        np.full((MEMORY, 2), -1),
    )


@kernel
def improve(
    start: int,
    num_visits: int,
    nearest: int,
    waiting: Any,
    table: Any,
    extent: Any,
    classes: Any,
    demands: Any,
    room: Any,
) -> Any:
    """Visit classes that wait, and improve them with the classes near them; return where to go on, and the gain.

    ``waiting`` says which classes may be improved: all whose records, or those of a class near them, changed.
    """
    sizes, stamps, tried = classes[1], classes[7], room[4]
    num = len(sizes)
    seen, found, away = np.zeros(num, np.bool_), np.zeros(num, np.int64), np.zeros(num)
    total = 0.0
    class_ = start
    for _ in range(num):
        if num_visits == 0:
            break
        if waiting[class_] and sizes[class_]:
            num_visits -= 1
            waiting[class_] = False
            near = near_classes(class_, nearest, table, classes, seen, found, away)
            for other in found[:near]:
                pair = min(class_, other), max(class_, other)
                key = pair[0] * num + pair[1]
                slot, before = key * 2654435761 % MEMORY, total
                while tried[slot, 0] != key or tried[slot, 1] < max(stamps[class_], stamps[other]):
                    tried[slot, 0], tried[slot, 1] = key, stamps[num]
                    gain = change_pair(pair, table, extent, classes, demands, room)
                    total += gain
                if total > before:
                    for changed in pair:
                        waiting[changed] = True
                        find_middle(changed, table, classes)
        class_ = (class_ + 1) % num
    return class_, total


@piece
def extents_of(chosen: Any, table: Any, extent: Any, classes: Any) -> Any:
    """Return the extents of some classes, each in a row of its own."""
    slots, sizes = classes[0], classes[1]
    num = len(chosen)
    low, high = np.zeros((num, len(extent[0]))), np.zeros((num, len(extent[1])))
    width, reach = np.zeros((num, len(extent[2]))), np.zeros((num, len(extent[3])))
    for row in range(num):
        extent_of(slots[chosen[row], : sizes[chosen[row]]], table, extent)
        low[row], high[row], width[row], reach[row] = extent[0], extent[1], extent[2], extent[3]
    return low, high, width, reach


@piece
def scatter(
    mine: Any, chosen: Any, table: Any, extent: Any, classes: Any, demands: Any, price: float, spare: int
) -> Any:
    """Put each record into the one of some classes where it costs least in all, or in none at a price.

    Classes take the records in, but their costs and middles stay; returns the class of each record, and the cost in
    all: infinity if there is a record that none may take.
    """
    slots, sizes = classes[0], classes[1]
    rules, counts = demands[5], demands[6]
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


@piece
def dissolve_class(
    class_: int,
    table: Any,
    extent: Any,
    classes: Any,
    demands: Any,
    price: float,
    spare: int,
    near: Any,
    waiting: Any,
) -> Any:
    """Spread the records of a class over those near it if that costs less; return the gain and how many are in none."""
    slots, sizes, costs = classes[0], classes[1], classes[2]
    seen, found, away = near
    num = near_classes(class_, NEAREST, table, classes, seen, found, away)
    mine = slots[class_, : sizes[class_]].copy()
    old = sizes[found[:num]].copy()
    goal, total = scatter(mine, found[:num], table, extent, classes, demands, price, spare)
    gain = len(mine) * costs[class_] - total
    if gain <= ENOUGH:
        sizes[found[:num]] = old
        return 0.0, 0
    put(class_, mine[:0], table, classes)
    find_middle(class_, table, classes)
    waiting[class_] = False
    for row in range(num):
        other = found[row]
        if sizes[other] > old[row]:
            put(other, slots[other, : sizes[other]].copy(), table, classes)
            find_middle(other, table, classes)
            waiting[other] = True
    return gain, (goal < 0).sum()


@kernel
def dissolve_dearest(
    dearest: Any,
    table: Any,
    extent: Any,
    classes: Any,
    demands: Any,
    price: float,
    spare: int,
    waiting: Any,
) -> Any:
    """Dissolve classes, in the order given, where that costs less; return the gain and how many records are in none."""
    total, lost = 0.0, 0
    near = (np.zeros(len(dearest), np.bool_), np.zeros(len(dearest), np.int64), np.zeros(len(dearest)))
    for class_ in dearest:
        if classes[1][class_]:
            gain, more = dissolve_class(class_, table, extent, classes, demands, price, spare - lost, near, waiting)
            total += gain
            lost += more
    return total, lost


@kernel
def fill(records: Any, starts: Any, table: Any, classes: Any) -> None:
    """Put the records of all classes, one after another, into their classes."""
    for class_ in range(len(starts) - 1):
        put(class_, records[starts[class_] : starts[class_ + 1]], table, classes)
        find_middle(class_, table, classes)


@kernel
def middles_of(records: Any, starts: Any, table: Any) -> Any:
    """Return the middle record of each class."""
    found = np.zeros(len(starts) - 1, np.int64)
    for class_ in range(len(found)):
        found[class_] = middle_of(records[starts[class_] : starts[class_ + 1]], table)
    return found
