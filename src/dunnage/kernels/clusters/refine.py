# SPDX-License-Identifier: Apache-2.0
"""Local search that makes classes cheaper: records change places, pairs are split again, costly classes are dissolved.

Every step lowers the distortion and leaves all classes valid, so the search may end at any time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray, kernel, piece
from dunnage.kernels.clusters.growth import (
    CodeArray,
    Constraints,
    Extent,
    Metric,
    MetricTable,
    Progress,
    Rules,
    begin,
    blocks,
    class_lists,
    cost,
    distance,
    diverse,
    extent_of,
    join,
    new_extent,
    packed,
    persons_of,
    place_left,
    rise,
    rules_for,
    spare,
    too_wide,
    with_numbers,
)

# Compiled local search on classes: exchanges, moves, new splits of two classes, and dissolved classes.
NEAREST = 3  # classes to try for each record of a class
ENOUGH = 1e-9  # gains below this are rounding
MEMORY = 1 << 17  # pairs of classes that are remembered as tried


class State(NamedTuple):
    """The searched classes, with their extents without one of their records; their demands; and working memory."""

    table: MetricTable
    slots: IntArray  # records of each class. Shape: classes, room
    sizes: IntArray
    costs: FloatArray  # what each class is charged for each of its records
    # The record of each class that is nearest to its others, by its numbers and codes. Shape: attributes, classes
    middle_numbers: FloatArray
    middle_codes: CodeArray
    # For each record of a class and each attribute what is left without it: lowest and highest number, or width of
    # codes twice. Shape: classes, attributes, 2, room
    holes: FloatArray
    without: FloatArray  # what the class then costs
    spans: FloatArray  # lowest and highest number, or width of codes twice, of the whole class
    stamps: IntArray  # when each class changed last
    waiting: BoolArray  # classes that may be improved: their records, or those of a class near them, changed
    k: int
    person: IntArray  # of each record
    mark: IntArray  # of persons
    single: bool  # each record is a separate person
    simple: bool  # nothing but k is required
    rules: Rules
    counts: IntArray  # room to count sensitive values
    extent: Extent  # room for that of a class
    # Room to weigh changes of two classes: how far records are from the farthest of the other class (and the next), and
    # which that is
    far: FloatArray
    which: IntArray
    reach: FloatArray  # of a split: how far each record is from the farthest one taken
    ends: FloatArray
    tried: IntArray  # pairs of classes, and when they were tried
    seen: BoolArray  # room to look for the classes near one
    near: IntArray
    away: FloatArray


@piece
def middle_of(records: IntArray, table: MetricTable) -> Any:
    best, chosen = np.inf, records[0]
    for one in records:
        total = 0.0
        for other in records:
            total += distance(one, other, table, table.charge)
            if total >= best:
                break
        if total < best:
            best, chosen = total, one
    return chosen


@piece
def valid(records: IntArray, state: State) -> Any:
    """Return whether records are a valid class: enough persons, not too wide, diverse. Sets the extent to theirs."""
    table, extent, rules, person, mark = state.table, state.extent, state.rules, state.person, state.mark
    if len(records) < state.k or state.simple:
        return len(records) >= state.k
    if not diverse(records, -1, rules, state.counts):
        return False
    begin(records[0], table, extent)
    for record in records[1:]:
        if too_wide(record, table, extent, rules.limits):
            return False
        join(record, table, extent)
    if state.single:
        return True
    for record in records:
        mark[person[record]] = 0
    persons = 0
    for record in records:
        persons += mark[person[record]] == 0
        mark[person[record]] = 1
    return persons >= state.k


@piece
def number_holes(records: IntArray, column: Any, span: FloatArray, holes: FloatArray) -> None:
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
def widest(records: IntArray, column: Any, entries: FloatArray, start: int, size: int, without: int) -> Any:
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
def code_holes(
    records: IntArray, column: Any, entries: FloatArray, start: int, size: int, span: FloatArray, holes: FloatArray
) -> None:
    """Fill in the width of the codes of a class, and that without each of its records."""
    most, one, two = widest(records, column, entries, start, size, -1)
    span[0], span[1] = 0.0, most
    holes[0, : len(records)], holes[1, : len(records)] = 0.0, most
    if most == 0.0:
        return
    for without, other in ((one, two), (two, one)):  # only without one of the two farthest may a class be narrower
        row, third = start + column[records[other]] * size, -1
        for place in range(len(records)):  # mostly a third record is as far from the other one
            if place != without and entries[row + column[records[place]]] == most:
                third = place
                break
        if third < 0:
            holes[1, without] = widest(records, column, entries, start, size, without)[0]


@piece
def put(class_: int, records: IntArray, state: State) -> None:
    table, costs, without, stamps = state.table, state.costs, state.without, state.stamps
    numbers, codes, charge = table.numbers, table.codes, table.charge
    num, size = numbers.shape[0], len(records)
    state.sizes[class_] = size
    stamps[class_] = stamps[-1] + 1
    stamps[-1] += 1
    if size == 0:
        return
    state.slots[class_, :size] = records
    costs[class_], without[class_, :size] = 0.0, 0.0
    for axis in range(len(charge)):
        span, hole = state.spans[class_, axis], state.holes[class_, axis]
        if axis < num:
            number_holes(records, numbers[axis], span, hole)
        else:
            place = axis - num
            code_holes(records, codes[place], table.entries, table.starts[place], table.sizes[place], span, hole)
        costs[class_] += charge[axis] * (span[1] - span[0])
        for place in range(size):
            without[class_, place] += charge[axis] * max(0.0, hole[1, place] - hole[0, place])


@piece
def find_middle(class_: int, state: State) -> None:
    table, size = state.table, state.sizes[class_]
    if size == 0:
        state.middle_numbers[:, class_] = np.inf
        return
    middle = middle_of(state.slots[class_, :size], table)
    state.middle_numbers[:, class_] = table.numbers[:, middle]
    state.middle_codes[:, class_] = table.codes[:, middle]


@piece
def distances_from(record: int, state: State) -> None:
    """Fill in how far a record is from the middle of each class, infinity for an empty class."""
    table, away = state.table, state.away
    numbers, codes, charge = table.numbers, table.codes, table.charge
    num = numbers.shape[0]
    away[:] = 0.0
    for axis in range(num):
        unit, value = charge[axis], numbers[axis, record]
        column = state.middle_numbers[axis]
        for class_ in range(len(away)):
            away[class_] += unit * abs(column[class_] - value)
    for axis in range(codes.shape[0]):
        start = table.starts[axis] + codes[axis, record] * table.sizes[axis]
        unit, row, line = charge[num + axis], table.entries[start : start + table.sizes[axis]], state.middle_codes[axis]
        for class_ in range(len(away)):
            away[class_] += unit * row[line[class_]]


@piece
def near_classes(class_: int, nearest: int, state: State) -> int:
    """List the classes with middles nearest to some record of a class; return how many."""
    seen, near, away = state.seen, state.near, state.away
    best, ids = np.zeros(nearest), np.zeros(nearest, np.int64)
    num, last = 0, nearest - 1
    for record in state.slots[class_, : state.sizes[class_]]:
        distances_from(record, state)
        away[class_], best[:] = np.inf, np.inf
        for other in range(len(away)):
            if away[other] < best[last]:
                place = last
                while place > 0 and best[place - 1] > away[other]:
                    best[place], ids[place] = best[place - 1], ids[place - 1]
                    place -= 1
                best[place], ids[place] = away[other], other
        for place in range(nearest):
            if best[place] < np.inf and not seen[ids[place]]:
                seen[ids[place]] = True
                near[num] = ids[place]
                num += 1
    seen[near[:num]] = False
    return num


@piece
def farthest(mine: IntArray, theirs: IntArray, table: MetricTable, far: FloatArray, which: IntArray) -> None:
    """Fill in how far records of two classes are from the farthest of the other class, which it is, and the next."""
    # Axes of `far`: side, attribute, distance to the farthest or to the next, place
    codes, entries, starts, sizes = table.codes, table.entries, table.starts, table.sizes
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
def cost_with(
    hole: FloatArray, place: int, other: int, record: int, table: MetricTable, far: FloatArray, which: IntArray
) -> float:
    """Return the cost of a class with a record of another class instead of that at a place."""
    numbers, charge = table.numbers, table.charge
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
def exchanged(records: IntArray, without: int, more: int) -> Any:
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
def allowed(mine: IntArray, theirs: IntArray, out: int, back: int, state: State) -> Any:
    """Return whether both classes stay valid when they exchange records; negative places exchange nothing."""
    if state.simple:
        more = (back >= 0) - (out >= 0)
        return len(mine) + more >= state.k and len(theirs) - more >= state.k
    given = mine[out] if out >= 0 else -1
    taken = theirs[back] if back >= 0 else -1
    return valid(exchanged(mine, out, taken), state) and valid(exchanged(theirs, back, given), state)


@piece
def best_exchange(pair: tuple[int, int], now: float, state: State) -> Any:
    """Return the gain of the best exchange of two records, and their places in their classes."""
    slots, sizes, holes, without = state.slots, state.sizes, state.holes, state.without
    one_class, two_class = pair
    mine, theirs = slots[one_class, : sizes[one_class]], slots[two_class, : sizes[two_class]]
    far, which, table = state.far, state.which, state.table
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
            if now - price > best and allowed(mine, theirs, one, two, state):
                best, out, back = now - price, one, two
    return best, out, back


@piece
def best_move(pair: tuple[int, int], now: float, state: State) -> Any:
    """Return the gain of the best move of a record from either class to the other, which class gives, and its place."""
    slots, sizes, without, spans, table = state.slots, state.sizes, state.without, state.spans, state.table
    numbers, charge, num = table.numbers, table.charge, table.numbers.shape[0]
    best, side, out = ENOUGH, 0, -1
    for giving in range(2):
        from_, to = pair[giving], pair[1 - giving]
        mine, theirs, span, far = slots[from_, : sizes[from_]], slots[to, : sizes[to]], spans[to], state.far[giving]
        if len(mine) <= state.k:
            continue
        for one in range(len(mine)):
            price = (len(mine) - 1) * without[from_, one]
            if now - price <= best:
                continue
            wider = 0.0  # what the other class costs with this record besides its own
            for axis in range(num):
                value = numbers[axis, mine[one]]
                wider += charge[axis] * (max(span[axis, 1], value) - min(span[axis, 0], value))
            for axis in range(far.shape[0]):
                wider += charge[num + axis] * max(span[num + axis, 1], far[axis, 0, one])
            price += (len(theirs) + 1) * wider
            if now - price > best and allowed(mine, theirs, one, -1, state):
                best, side, out = now - price, giving, one
    return best, side, out


@piece
def start_split(seed: int, line: IntArray, table: MetricTable, reach: FloatArray, ends: FloatArray) -> None:
    """Begin a class with one record of a line; ``reach`` says how far each record is from the class's farthest."""
    numbers, codes, entries, starts, sizes = table.numbers, table.codes, table.entries, table.starts, table.sizes
    line[seed], line[0] = line[0], line[seed]
    for axis in range(numbers.shape[0]):
        ends[axis, 0] = ends[axis, 1] = numbers[axis, line[0]]
    for axis in range(codes.shape[0]):
        ends[numbers.shape[0] + axis, 0], ends[numbers.shape[0] + axis, 1] = 0.0, 0.0
        row = starts[axis] + codes[axis, line[0]] * sizes[axis]
        for place in range(1, len(line)):
            reach[axis, place] = entries[row + codes[axis, line[place]]]


@piece
def step_split(num: int, line: IntArray, table: MetricTable, reach: FloatArray, ends: FloatArray) -> None:
    """Let a class of the first records of a line take the one that raises its charge least."""
    numbers, codes, charge = table.numbers, table.codes, table.charge
    entries, starts, sizes = table.entries, table.starts, table.sizes
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
def cost_of(records: IntArray, table: MetricTable, most: float) -> float:
    """Return the charge of a class of some records for each of them; stop at anything above ``most``."""
    numbers, codes, charge = table.numbers, table.codes, table.charge
    entries, starts, sizes = table.entries, table.starts, table.sizes
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
def best_split(mine: IntArray, theirs: IntArray, now: float, state: State) -> Any:
    """Return the gain of the best split that grows from two records far apart, the records in line, and its place."""
    table, k, reach, ends = state.table, state.k, state.reach, state.ends
    both = np.concatenate((mine, theirs))
    num, line = len(both), np.concatenate((mine, theirs))
    best, best_line, at = ENOUGH, both, -1
    seed = 0
    for _ in range(2):
        start, away = seed, -1.0
        for place in range(num):
            apart = distance(both[start], both[place], table, table.charge)
            if apart > away:
                seed, away = place, apart
        line[:] = both
        start_split(seed, line, table, reach, ends)
        for size in range(1, num - k + 1):
            if size >= k and (size == k or size == len(mine) or size == len(theirs) or size == num - k):
                price = 0.0
                for axis in range(len(table.charge)):
                    price += table.charge[axis] * (ends[axis, 1] - ends[axis, 0])
                left = now - size * price
                rest = (num - size) * cost_of(line[size:], table, (left - best) / (num - size))
                if left - rest > best and valid(line[:size], state) and valid(line[size:], state):
                    best, best_line, at = left - rest, line.copy(), size
            if size < num - k:
                step_split(size, line, table, reach, ends)
    return best, best_line, at


@piece
def change_pair(pair: tuple[int, int], state: State) -> Any:
    """Make the best change of two classes: exchange, move, or else a new split; return its gain, 0 for no change."""
    slots, sizes, costs = state.slots, state.sizes, state.costs
    mine, theirs = slots[pair[0], : sizes[pair[0]]], slots[pair[1], : sizes[pair[1]]]
    now = len(mine) * costs[pair[0]] + len(theirs) * costs[pair[1]]
    farthest(mine, theirs, state.table, state.far, state.which)
    gain, out, back = best_exchange(pair, now, state)
    moved, side, place = best_move(pair, now, state)
    if moved > gain and place >= 0:
        gain, out, back = moved, place if side == 0 else -1, -1 if side == 0 else place
    if out >= 0 or back >= 0:
        kept = exchanged(mine, out, theirs[back] if back >= 0 else -1)
        given = exchanged(theirs, back, mine[out] if out >= 0 else -1)
    else:
        gain, line, at = best_split(mine, theirs, now, state)
        if at < 0:
            return 0.0
        kept, given = line[:at], line[at:]
    if max(len(kept), len(given)) > slots.shape[1]:
        return 0.0
    put(pair[0], kept, state)
    put(pair[1], given, state)
    return gain


@kernel
def improve(start: int, num_visits: int, nearest: int, state: State) -> int:
    """Visit waiting classes, and improve them with the classes near them; return where to continue."""
    sizes, stamps, tried, waiting = state.sizes, state.stamps, state.tried, state.waiting
    num = len(sizes)
    class_ = start
    for _ in range(num):
        if num_visits == 0:
            break
        if waiting[class_] and sizes[class_]:
            num_visits -= 1
            waiting[class_] = False
            num_near = near_classes(class_, nearest, state)
            for other in state.near[:num_near]:
                pair = min(class_, other), max(class_, other)
                key = pair[0] * num + pair[1]
                slot, total = key * 2654435761 % MEMORY, 0.0
                while tried[slot, 0] != key or tried[slot, 1] < max(stamps[class_], stamps[other]):
                    tried[slot, 0], tried[slot, 1] = key, stamps[num]
                    total += change_pair(pair, state)
                if total > 0.0:
                    for changed in pair:
                        waiting[changed] = True
                        find_middle(changed, state)
        class_ = (class_ + 1) % num
    return class_


@piece
def scatter(mine: IntArray, chosen: IntArray, state: State, price: float, spare: int) -> Any:
    """Put each record into the one of some classes where its total cost is least, or into none at a price."""
    # Classes take the records, but keep their costs and middles. The total cost is infinite if no class may take some
    # record.
    table, slots, sizes, extent, rules = state.table, state.slots, state.sizes, state.extent, state.rules
    num = len(chosen)  # the extents of these classes, each in a row of its own
    low, high = np.zeros((num, len(extent.low))), np.zeros((num, len(extent.high)))
    width, reach = np.zeros((num, len(extent.width))), np.zeros((num, len(extent.reach)))
    for row in range(num):
        extent_of(slots[chosen[row], : sizes[chosen[row]]], table, extent)
        low[row], high[row], width[row], reach[row] = extent.low, extent.high, extent.width, extent.reach
    goal, total = np.full(len(mine), -1), 0.0
    for place in range(len(mine)):
        best, row = (price if spare > 0 else np.inf), -1
        for other in range(num):
            size = sizes[chosen[other]]
            theirs = Extent(low[other], high[other], width[other], reach[other], extent.places)
            more = rise(mine[place], table, theirs, np.inf)
            more = (size + 1) * more + cost(theirs, table.charge)
            if (
                more < best
                and size < slots.shape[1]
                and not too_wide(mine[place], table, theirs, rules.limits)
                and diverse(slots[chosen[other], :size], mine[place], rules, state.counts)
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
        join(mine[place], table, Extent(low[row], high[row], width[row], reach[row], extent.places))
    return goal, total


@kernel
def dissolve_costliest(costliest: IntArray, state: State, price: float, spare: int) -> Any:
    """Spread the records of classes over those near them if that costs less; return the gain and the records lost."""
    slots, sizes = state.slots, state.sizes
    total, lost = 0.0, 0
    for class_ in costliest:
        if sizes[class_] == 0:
            continue
        near = state.near[: near_classes(class_, NEAREST, state)]
        mine = slots[class_, : sizes[class_]].copy()
        old = sizes[near]
        goal, price_of_all = scatter(mine, near, state, price, spare - lost)
        gain = len(mine) * state.costs[class_] - price_of_all
        if gain <= ENOUGH:
            sizes[near] = old
            continue
        put(class_, mine[:0], state)
        find_middle(class_, state)
        state.waiting[class_] = False
        for row in range(len(near)):
            other = near[row]
            if sizes[other] > old[row]:
                put(other, slots[other, : sizes[other]].copy(), state)
                find_middle(other, state)
                state.waiting[other] = True
        total += gain
        lost += (goal < 0).sum()
    return total, lost


@kernel
def fill(records: IntArray, starts: IntArray, state: State) -> None:
    for class_ in range(len(starts) - 1):
        put(class_, records[starts[class_] : starts[class_ + 1]], state)
        find_middle(class_, state)


@kernel
def middles_of(records: IntArray, starts: IntArray, table: MetricTable) -> Any:
    middles = np.zeros(len(starts) - 1, np.int64)
    for class_ in range(len(middles)):
        middles[class_] = middle_of(records[starts[class_] : starts[class_ + 1]], table)
    return middles


# The state of a local search on classes, and the steps that kernels make on it.
VISITS = 100  # classes to visit between two checks of the clock
STAGES = (3, 6, 12)  # classes to try for each record of a class: more once nothing helps with fewer
ROUNDS = 2  # how often grown classes are visited to polish them
LARGE = 4, 64  # classes of more records than the first times k, plus the second, are left as they are

Clock = Callable[[], float]


class LocalSearch:
    """A group of complete classes for kernels to search; records are numbered within the group."""

    def __init__(
        self,
        metric: Metric,
        of_record: IntArray,
        group: IntArray,
        k: int,
        person: IntArray | None,
        constraints: Constraints | None,
        price: float,
        lost: int,
    ) -> None:
        self.group, self.price = group, price
        self.spare = max(0, spare(constraints, len(metric)) - lost)
        part = metric.take(group)
        rules = rules_for(part, np.arange(len(group)), None if constraints is None else constraints.take(group))
        inside = renumbered(of_record[group])
        table, sizes = with_numbers(part).arrays, np.bincount(inside)
        num, room, axes = len(sizes), int(max(2 * k, sizes.max()) + k), len(table.charge)
        num_numbers, num_codes = len(table.numbers), len(table.codes)
        single = person is None
        self.state = State(
            table=table,
            slots=np.zeros((num, room), dtype=np.int64),
            sizes=np.zeros(num, dtype=np.int64),
            costs=np.zeros(num),
            middle_numbers=np.zeros((num_numbers, num)),
            middle_codes=np.zeros((num_codes, num), dtype=np.int32),
            holes=np.zeros((num, axes, 2, room)),
            without=np.zeros((num, room)),
            spans=np.zeros((num, axes, 2)),
            stamps=np.zeros(num + 1, dtype=np.int64),
            waiting=np.ones(num, dtype=np.bool_),
            k=k,
            person=persons_of(None if person is None else person[group], np.arange(len(group))),
            mark=np.zeros(len(group), dtype=np.int64),
            single=single,
            simple=single and len(rules.num_codes) == 0 and bool(np.isinf(rules.limits).all()),
            rules=rules,
            counts=np.zeros(rules.shares.shape, dtype=np.int64),
            extent=new_extent(table),
            far=np.zeros((2, num_codes, 2, room)),
            which=np.zeros((2, num_codes, room), dtype=np.int64),
            reach=np.zeros((num_codes, 2 * room)),
            ends=np.zeros((axes, 2)),
            tried=np.full((MEMORY, 2), -1),
            seen=np.zeros(num, dtype=np.bool_),
            near=np.zeros(num, dtype=np.int64),
            away=np.zeros(num),
        )
        fill(*class_lists(inside, num), self.state)

    def run(self, end: float, clock: Clock, report: Callable[[], None]) -> None:
        place = stage = 0
        while clock() < end:
            if self.state.waiting.any():
                place = improve(place, VISITS, STAGES[stage], self.state)
            elif self.dissolve() <= 0:
                if stage + 1 == len(STAGES):
                    return
                stage += 1
                self.state.waiting[:] = self.state.sizes > 0
            report()

    def dissolve(self) -> float:
        costliest = np.argsort(-self.state.sizes * self.state.costs, kind="stable")
        gain, lost = dissolve_costliest(costliest, self.state, self.price, self.spare)
        self.spare -= lost
        return float(gain)

    def put_back(self, of_record: IntArray) -> IntArray:
        """Return all classes, with those of this search for its group of records."""
        inside = np.full(len(self.group), -1, dtype=np.int64)
        for number, (records, size) in enumerate(zip(self.state.slots, self.state.sizes, strict=True)):
            inside[records[:size]] = number
        whole = of_record.copy()
        whole[self.group] = np.where(inside >= 0, inside + of_record.max() + 1, -1)
        return renumbered(whole)


def renumbered(of_record: IntArray) -> IntArray:
    """Return the same classes numbered from 0 without gaps, in their order; -1 stays."""
    kept = of_record >= 0
    numbered = np.full(len(of_record), -1, dtype=np.int64)
    numbered[kept] = np.unique(of_record[kept], return_inverse=True)[1]
    return numbered


def small_enough(of_record: IntArray, k: int) -> IntArray:
    """Return the records of the classes to search: not of those far larger than k, which need much memory."""
    sizes = np.bincount(of_record[of_record >= 0])
    most = LARGE[0] * k + LARGE[1]
    return np.flatnonzero((of_record >= 0) & (np.append(sizes, most + 1)[of_record] <= most))


def polish(
    metric: Metric, of_record: IntArray, k: int, person: IntArray | None, constraints: Constraints | None
) -> IntArray:
    """Improve each class with those nearest to its records, and once more if it changed; the same each time."""
    group = small_enough(of_record, k)
    if len(np.unique(of_record[group])) < 2:
        return of_record
    search = LocalSearch(metric, of_record, group, k, person, constraints, 1.0, 0)
    for _ in range(ROUNDS):
        improve(0, len(search.state.waiting), 1, search.state)
    return search.put_back(of_record)


GROUP = 3_000  # larger numbers of classes are searched in groups that lie apart


def refine(
    metric: Metric,
    of_record: IntArray,  # class of each record, from 0; -1 for records in none. The classes must be valid
    k: int,  # smallest number of distinct persons in a class; of records when `person` is not given
    *,
    seconds: float,  # when to end, by the clock
    person: IntArray | None = None,  # code of the person of each record, from 0
    constraints: Constraints | None = None,  # what classes must keep to besides. Without them no record is left out
    price: float = 1.0,  # what a record in no class costs
    progress: Progress | None = None,  # called with the share of the time that is gone, 1 at the end
    clock: Clock = time.monotonic,
) -> IntArray:
    """Improve classes by local search until nothing helps or time is up; the result never costs more."""
    # Two classes near each other exchange two records, one gives a record to the other, or both are split again; a
    # class is dissolved if its records cost less elsewhere. When none of this helps, classes farther away are tried
    # too.
    tell = progress or (lambda share: None)
    best = _recalled(metric, of_record, constraints, price)
    groups = _groups(metric, best, k) if seconds > 0 else []
    if groups:  # a first run on two classes compiles kernels, which is not part of the search
        two = np.flatnonzero(np.isin(best, np.unique(best[groups[0]])[:2]))
        search = LocalSearch(metric, best, two, k, person, constraints, price, 0)
        improve(0, VISITS, STAGES[0], search.state)
        search.dissolve()
    start = clock()
    for number, group in enumerate(groups):
        # later groups get the time that a group does not need
        end = clock() + (start + seconds - clock()) / (len(groups) - number)
        search = LocalSearch(metric, best, group, k, person, constraints, price, int((best < 0).sum()))
        search.run(end, clock, lambda: tell(min(1.0, (clock() - start) / seconds)))
        best = search.put_back(best)
    tell(1.0)
    return _not_worse(metric, of_record, best, price)


def dissolve(
    metric: Metric,
    of_record: IntArray,
    k: int,
    *,
    person: IntArray | None = None,
    constraints: Constraints | None = None,
    price: float = 1.0,
) -> IntArray:
    """Return the classes without those that cost less elsewhere, most expensive first; see :func:`refine`."""
    # Each record of such a class goes to the nearby class where its total cost is least, or into none at its price, if
    # the constraints allow to leave records out. So records may be suppressed even without limits on widths.
    best = _recalled(metric, of_record, constraints, price)
    for group in _groups(metric, best, k):
        search = LocalSearch(metric, best, group, k, person, constraints, price, int((best < 0).sum()))
        while search.dissolve() > 0:
            continue
        best = search.put_back(best)
    return _not_worse(metric, of_record, best, price)


def _groups(metric: Metric, of_record: IntArray, k: int) -> list[IntArray]:
    """Return the records of separate groups of classes; one group unless there are many classes."""
    records = small_enough(of_record, k)
    inside = renumbered(of_record[records])
    num = int(inside.max(initial=-1)) + 1
    if num <= GROUP:
        return [records] if num > 1 else []
    middles = records[middles_of(*class_lists(inside, num), metric.take(records).arrays)]
    group_of_class = np.zeros(num, dtype=np.int64)
    for number, group in enumerate(blocks(metric.take(middles), 1, size=GROUP)):
        group_of_class[group] = number
    of_group = group_of_class[inside]
    order = np.argsort(of_group, kind="stable")
    borders = np.searchsorted(of_group[order], np.arange(of_group.max() + 2))
    return [records[order[start:end]] for start, end in itertools.pairwise(borders) if end > start]


def _recalled(metric: Metric, of_record: IntArray, constraints: Constraints | None, price: float) -> IntArray:
    """Return classes that also take the records without a class that cost less than their price there."""
    classes = np.array(of_record, dtype=np.int64)
    num, lost = int(classes.max(initial=-1)) + 1, int((classes < 0).sum())
    if num and lost:
        place_left(metric.arrays, classes, num, packed(constraints, metric), price, lost)
    return classes


def _not_worse(metric: Metric, before: IntArray, after: IntArray, price: float) -> IntArray:
    """Return the classes after a search, or those before it if rounding made them cost more."""
    better = metric.total(after, price) < metric.total(before, price)
    return after if better else np.array(before, dtype=np.int64)
