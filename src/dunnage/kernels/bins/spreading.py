# SPDX-License-Identifier: Apache-2.0
"""Exchange items between the bins of a packing, so that items that look alike go to different bins.

An onlooker's best guess at the bin of an item is the bin with most of the items that look alike, so the objective is
the sum, over groups of such items, of the largest number in one bin. Items move alone or change places; a worse state
is accepted now and then (simulated annealing), and the best state is kept. Every state on the way fits.

Whether a bin fits depends only on how many items of each type it takes. It certainly fits if the largest possible sums
do. Otherwise its risk is that of a normal law with the mean and variance of its load, and all risks share a budget: an
estimate, so the caller computes the true probabilities.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dunnage.arrays import FloatArray, IntArray, kernel, piece

STEPS_PER_ITEM = 160
MIN_STEPS = 60_000
FLAT_STEPS = 40_000
SEGMENTS = 16
HOT, COLD = 0.5, 0.03
MAX_IDLE = 3
MAX_ROUNDS = 60
LAST_SHARE = 0.8  # of the time, to descend from the best state
LAST_IDLE, SHORT_IDLE = 150, 8  # descents without a gain after which it ends; for what is only offered
MORE_ITEMS, MAX_MORE = 1000, 4  # ... as often for each so many items, up to a number, so that each is tried as often
DENSE_CELLS = 20_000_000
EXACT_TRIES = 3
WORTHWHILE = 0.005  # part of the risk that an exchange has to save if it gains nothing else
ROUGH = 4.0  # how many times too high a risk by normal laws may be
_MIN_DENSE = 24
_PAIR_PRICE = 0.3
_TOP_PRICE = 0.01
_EXCESS = 1e6


@dataclass(frozen=True, eq=False, kw_only=True)
class TypeLoads:
    """What items of each type add to a bin: sums for certain, moments for likely."""

    sums: IntArray  # largest sum of 0, 1, ... items of each type, one type after another. Shape: lines, resources
    first: IntArray  # where the lines of each type begin
    sizes: IntArray  # number of items of each type
    mean: FloatArray  # mean, variance: of one item of each type. Shape: types, resources
    variance: FloatArray

    @classmethod
    def of_sizes(cls, sizes: IntArray, times: IntArray) -> TypeLoads:
        """Describe types whose items are all alike: ``sizes`` of one item, ``times`` items of each type."""
        first = np.cumsum(times + 1) - (times + 1)
        number = np.arange(int((times + 1).sum())) - np.repeat(first, times + 1)
        sums = number[:, None] * np.repeat(sizes, times + 1, axis=0)
        return cls(sums=sums, first=first, sizes=times, mean=sizes.astype(float), variance=np.zeros(sizes.shape))


class _Board(NamedTuple):
    """Items in order of type and look; the bins of alike items are therefore next to each other."""

    type_of: IntArray
    look_of: IntArray
    group_of: IntArray
    type_first: IntArray
    type_row: IntArray  # where the counts of a type begin in the table, -1 if its items are counted one by one
    look_first: IntArray
    look_row: IntArray
    type_size: IntArray
    look_size: IntArray
    price: FloatArray  # of a pair of alike items in one bin
    top_price: float  # of a bin with the largest number of a look that could be lower
    ideal: IntArray  # below which the largest number of a look cannot fall
    caps: IntArray
    sums: IntArray
    sums_first: IntArray
    mean: FloatArray
    variance: FloatArray
    room: IntArray
    near: IntArray  # items by group and size, for each resource. Shape: resources, items
    rank: IntArray  # place of each item in that order
    group_first: IntArray  # where a group begins and ends in these orders
    group_last: IntArray
    single: bool  # whether all items of a type look alike
    by_look: bool  # whether caps are for looks, and types are sizes that any look may have


class _Marks(NamedTuple):
    bin_of: IntArray
    table: IntArray  # counts of large types and looks in each bin
    heights: IntArray  # number of bins with 0, 1, ... items of each look
    largest: IntArray  # largest number of items of each look in one bin
    load: IntArray
    mean: FloatArray
    variance: FloatArray
    risk: FloatArray
    contents: IntArray
    group_of_bin: IntArray


def spread_items(
    loads: TypeLoads,
    type_of: IntArray,  # type, look and group of each item
    look_of: IntArray,
    group_of: IntArray,
    bin_of: IntArray,
    room: IntArray,  # capacity of each bin. Shape: bins, resources. A bin may be empty
    *,
    caps: IntArray,  # largest number of items of each type (or look) in a bin, if the search can reach it
    deadline: float,
    by_look: bool = False,  # whether a look has several types; otherwise items of a look have one type
    budget: float = 0.0,  # for the sum of the risks of all bins, and no bin may be riskier than that
    rounds: int = MAX_ROUNDS,
    seed: int = 0,
) -> IntArray:
    """Return bins in which items that look alike are less often together; the same bins if none are better."""
    num_bins = len(room)
    if num_bins < 2 or len(bin_of) < 2 or time.monotonic() >= deadline:
        return bin_of
    order = np.lexsort((type_of, look_of) if by_look else (look_of, type_of))
    caps = caps[np.unique(look_of)] if by_look else caps
    board, floor = _laid_out(loads, type_of[order], look_of[order], group_of[order], bin_of[order], room, caps, by_look)
    start = bin_of[order]
    marks = _marked(board, start)
    value = best_value = _value(board, marks)
    if value <= (0, floor):
        return bin_of
    best = start
    segment = max(len(order) * STEPS_PER_ITEM, MIN_STEPS) // SEGMENTS
    state = np.random.default_rng(seed).integers(2**62, size=1, dtype=np.uint64)
    idle, cold, none = 0, [1e-3] * (SEGMENTS // 2), np.empty(0, dtype=np.int64)
    flat = board._replace(price=np.zeros_like(board.price))
    # Fewer of the fullest bins show the way; without that price, the search leaves where it leads nowhere.
    descents = itertools.cycle([flat._replace(top_price=_TOP_PRICE), flat])
    soon = deadline - LAST_SHARE * (deadline - time.monotonic())
    for round_ in range(rounds):
        # The first round only descends: if the time is short, that is most of the gain.
        hot = HOT if round_ % 3 else HOT / 4
        heats = cold if not round_ else [*np.geomspace(hot, COLD, SEGMENTS - 1).tolist(), 1e-3]
        before = best_value
        # Where bins are full, pairs that do not count take room: the end of a round ignores them, and tries more often
        # the items that have to leave. Where looks are a proxy for what is revealed (sealed, noisy), all pairs count.
        for place, heat in enumerate(heats if by_look else [*heats, *cold]):
            last = place >= len(heats)
            steps = max(segment, FLAT_STEPS) if last else segment
            _exchange(
                next(descents) if last else board,
                marks,
                budget,
                heat,
                steps,
                state,
                _eager(board, marks) if last else none,
            )
            value = _value(board, marks)
            if value < best_value:
                best, best_value = marks.bin_of.copy(), value
            if time.monotonic() >= soon or best_value <= (0, floor):
                break
        idle = 0 if best_value < before else idle + 1
        if idle >= MAX_IDLE or time.monotonic() >= soon or best_value <= (0, floor):
            break
        if round_ and value > best_value:
            marks = _marked(board, best)
    # Time may have run out in the heat: from the best state, descend as long as it helps.
    long = LAST_IDLE * min(max(len(order) // MORE_ITEMS, 1), MAX_MORE)
    marks, idle, most = _marked(board, best), 0, long if rounds == MAX_ROUNDS else SHORT_IDLE
    while idle < most and time.monotonic() < deadline and best_value > (0, floor) and not by_look:
        _exchange(next(descents), marks, budget, 1e-3, max(segment, FLAT_STEPS), state, _eager(board, marks))
        value = _value(board, marks)
        idle = 0 if value < best_value else idle + 1
        if value < best_value:
            best, best_value = marks.bin_of.copy(), value
    if best is start:
        return bin_of
    spread = np.empty_like(bin_of)
    spread[order] = best
    return spread


def exchange_checked(
    start: IntArray,
    group_of: IntArray,
    num_bins: int,
    value: Callable[[IntArray], float],  # what is to be low
    accepted: Callable[[IntArray], bool],  # asked only if the value is no higher
    *,
    deadline: float,
    steps: int,
    max_idle: int,  # steps without a lower value
) -> IntArray:
    """Move or exchange two random items again and again, under any check of all bins; for small packings."""
    # Seeded, outside noise: no privacy depends on it, as the package says
    draw = np.random.default_rng(0)
    best, least, idle = start, value(start), 0
    for _ in range(steps):
        idle += 1
        if idle > max_idle or time.monotonic() >= deadline:
            break
        one, other = draw.integers(len(group_of), size=2).tolist()
        bins = best.copy()
        if draw.random() < 0.3:
            to = int(draw.integers(num_bins))
            if (best == best[one]).sum() == 1 or (group_of[best == to] != group_of[one]).any():
                continue
            bins[one] = to
        elif group_of[one] == group_of[other]:
            bins[one], bins[other] = best[other], best[one]
        if np.array_equal(bins, best) or (now := value(bins)) > least or not accepted(bins):
            continue
        idle = 0 if now < least - 1e-12 else idle
        best, least = bins, now
    return best


def exchange_likely(
    loads: TypeLoads,
    counts: IntArray,  # items of each type in each bin. Shape: bins, types
    room: IntArray,
    group_of: IntArray,  # of types
    caps: IntArray,
    risk_of: Callable[[int, IntArray], float],  # exact, of a bin with other counts
    risk: float,  # largest sum over all bins
    *,
    deadline: float,
) -> IntArray:
    """Exchange items of two types as long as the sum of the largest counts falls, under exact risks."""
    from scipy.special import ndtr

    counts, size = counts.copy(), loads.sizes
    group_of_bin = group_of[counts.argmax(axis=1)]
    risks = np.array([risk_of(bin_, line) for bin_, line in enumerate(counts)])

    def added(numbers: IntArray, kind: IntArray, step: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return what ``step`` items more change in largest sum, mean and variance, for some bins."""
        after, line = numbers + step, loads.first[kind] + numbers
        parts = (after * (size[kind] - after) - numbers * (size[kind] - numbers)) / size[kind]
        return (
            loads.sums[line + step] - loads.sums[line],
            step * loads.mean[kind],
            parts[:, None] * loads.variance[kind],
        )

    def exchanged(bins: IntArray, out: IntArray, into: IntArray) -> list[Any]:
        changes = zip(state, added(counts[bins, out], out, -1), added(counts[bins, into], into, 1), strict=True)
        return [own[bins] + less + more for own, less, more in changes]

    # Largest sum, mean and variance of each bin
    state: list[Any] = [np.zeros_like(room), np.zeros(room.shape), np.zeros(room.shape)]
    for bin_, line in enumerate(counts):
        some = np.flatnonzero(line)
        parts = line[some] * (size[some] - line[some]) / size[some]
        state[0][bin_] = loads.sums[loads.first[some] + line[some]].sum(axis=0)
        state[1][bin_], state[2][bin_] = line[some] @ loads.mean[some], parts @ loads.variance[some]

    def exchange(kind: int, here: int, gain: int) -> bool:
        """Give an item of a type to another bin for one that raises no largest count: to gain, or to lower the risk."""
        column = counts[:, kind]
        free = (group_of_bin == group_of_bin[here]) & (column < min(int(column.max()) - gain, caps[kind]))
        free[here] = False
        there, other = np.nonzero(counts * free[:, None])
        able = (counts[here] < np.minimum(counts.max(axis=0), caps))[other] & (other != kind)
        there, other = there[able], other[able]
        own, ours = np.full(len(there), here), np.full(len(there), kind)
        guess = np.zeros(len(there))
        for bins, out, into in ((own, ours, other), (there, other, ours)):
            largest, mean, variance = exchanged(bins, out, into)
            likely = ndtr((mean - room[bins] - 0.5) / np.sqrt(np.maximum(variance, 1e-9)))
            guess += np.where(largest <= room[bins], 0.0, likely).sum(axis=1)
        limit = risks[here] + risks[there] + (risk - risks.sum() if gain else -WORTHWHILE * risk)
        for at in np.argsort(guess - risks[there], kind="stable")[:EXACT_TRIES].tolist():
            if guess[at] > ROUGH * limit[at]:  # too risky also by normal laws
                continue
            bins, out, into = np.array([here, there[at]]), np.array([kind, other[at]]), np.array([other[at], kind])
            lines = counts[bins]
            lines[[0, 1], out] -= 1
            lines[[0, 1], into] += 1
            exact = [risk_of(bin_, line) for bin_, line in zip(bins.tolist(), lines, strict=True)]
            if sum(exact) <= limit[at]:
                for table, values in zip(state, exchanged(bins, out, into), strict=True):
                    table[bins] = values
                counts[bins], risks[bins] = lines, exact
                return True
        return False

    # Seeded, outside noise: no privacy depends on it, as the package says
    order, idle = np.random.default_rng(0).permutation(len(size)).tolist(), 0
    for kind in itertools.cycle(order):
        idle += 1
        if idle > len(order) or time.monotonic() >= deadline:
            break
        column = counts[:, kind]
        top, risky = int(column.max()), int(np.where(column > 0, risks, -1.0).argmax())
        alone = top > 1 and int((column == top).sum()) == 1
        if (alone and exchange(kind, int(column.argmax()), 1)) or (risks[risky] > 0 and exchange(kind, risky, 0)):
            idle = 0
    return counts


def over_caps(type_of: IntArray, bin_of: IntArray, caps: IntArray, num_bins: int) -> int:
    """Return the number of items above the caps of their types."""
    pairs, counts = np.unique(type_of * num_bins + bin_of, return_counts=True)
    return int(np.maximum(counts - caps[pairs // num_bins], 0).sum())


def _laid_out(
    loads: TypeLoads,
    type_of: IntArray,
    look_of: IntArray,
    group_of: IntArray,
    bin_of: IntArray,
    room: IntArray,
    caps: IntArray,
    by_look: bool,
) -> tuple[_Board, int]:
    num, num_bins = len(type_of), len(room)
    type_size = np.bincount(type_of, minlength=len(loads.sizes))
    type_first = np.cumsum(type_size) - type_size
    # Items are in order of type and look, so that looks are numbered in that order too.
    new = np.append(True, (np.diff(look_of) != 0) | (False if by_look else np.diff(type_of) != 0))
    look_of, look_first = np.cumsum(new) - 1, np.flatnonzero(new)
    look_size = np.diff(np.append(look_first, num))
    open_bins = num_bins - len(np.unique(bin_of))
    bins_of_group = np.bincount(group_of[np.unique(bin_of, return_index=True)[1]], minlength=int(group_of.max()) + 1)
    reach = np.maximum(bins_of_group[group_of[look_first]] + open_bins, 1)
    ideal = -(-look_size // reach)
    dense = max(_MIN_DENSE, num * num_bins // DENSE_CELLS)
    sizes = np.concatenate([type_size, look_size])
    large = (sizes > dense) & (np.arange(len(sizes)) >= len(type_size) * by_look)
    rows = np.where(large, (np.cumsum(large) - 1) * num_bins, -1)
    near = np.array([np.lexsort((loads.mean[type_of, r], group_of)) for r in range(room.shape[1])])
    rank = np.argsort(near, axis=1, kind="stable")
    groups = np.arange(int(group_of.max()) + 1)
    ordered = np.sort(group_of)
    board = _Board(
        type_of=type_of,
        look_of=look_of,
        group_of=group_of,
        type_first=type_first,
        type_row=rows[: len(type_size)],
        look_first=look_first,
        look_row=rows[len(type_size) :],
        type_size=type_size,
        look_size=look_size,
        price=_PAIR_PRICE / ideal,
        top_price=0.0,
        ideal=ideal,
        caps=np.asarray(caps, dtype=np.int64),
        sums=np.ascontiguousarray(loads.sums, dtype=np.int64),
        sums_first=loads.first,
        mean=np.ascontiguousarray(loads.mean),
        variance=np.ascontiguousarray(loads.variance),
        room=np.ascontiguousarray(room, dtype=np.int64),
        near=near,
        rank=rank,
        group_first=np.searchsorted(ordered, groups, side="left"),
        group_last=np.searchsorted(ordered, groups, side="right"),
        single=len(look_size) == len(type_size),
        by_look=by_look,
    )
    return board, int(ideal.sum())


def _marked(board: _Board, bin_of: IntArray) -> _Marks:
    num_bins, resources = board.room.shape
    num_rows = int((board.type_row >= 0).sum() + (board.look_row >= 0).sum())
    group_of_bin = np.full(num_bins, -1, dtype=np.int64)
    group_of_bin[bin_of] = board.group_of
    marks = _Marks(
        bin_of=bin_of.copy(),
        table=np.zeros(max(num_rows * num_bins, 1), dtype=np.int64),
        heights=np.zeros(len(bin_of) + len(board.look_size), dtype=np.int64),
        largest=np.zeros(len(board.look_size), dtype=np.int64),
        load=np.zeros((num_bins, resources), dtype=np.int64),
        mean=np.zeros((num_bins, resources)),
        variance=np.zeros((num_bins, resources)),
        risk=np.zeros(num_bins),
        contents=np.bincount(bin_of, minlength=num_bins).astype(np.int64),
        group_of_bin=group_of_bin,
    )
    _mark(board, marks)
    return marks


def _value(board: _Board, marks: _Marks) -> tuple[int, int, float]:
    """Return the items above the caps, the objective, and the largest share of a look in one bin."""
    over, owner = 0, board.look_of if board.by_look else board.type_of
    if (board.caps < np.bincount(owner)).any():
        over = over_caps(owner, marks.bin_of, board.caps, len(board.room))
    return over, int(marks.largest.sum()), float((marks.largest / board.look_size).max())


def _eager(board: _Board, marks: _Marks) -> IntArray:
    """Return the items that have to leave their bins before a look is spread further."""
    _, place, counts = np.unique(
        board.look_of * len(board.room) + marks.bin_of, return_inverse=True, return_counts=True
    )
    high = marks.largest > board.ideal
    return np.flatnonzero(high[board.look_of] & (counts[place.reshape(-1)] == marks.largest[board.look_of]))


@piece
def _count(bin_of: IntArray, table: IntArray, row: int, first: int, size: int, bin_: int) -> int:
    if row >= 0:
        return int(table[row + bin_])
    number = 0
    for at in range(first, first + size):
        if bin_of[at] == bin_:
            number += 1
    return number


@piece
def _part_risk(load: int, room: int, mean: float, variance: float) -> float:
    """Return how likely a resource of a bin does not fit, by a normal law; 0 if it certainly fits."""
    if load <= room:
        return 0.0
    return 0.5 * math.erfc((room + 0.5 - mean) / math.sqrt(max(variance, 1e-9)) / math.sqrt(2.0))


@kernel
def _mark(board: _Board, marks: _Marks) -> None:
    """Count everything once."""
    bins, resources = board.room.shape
    seen = np.full(bins, -1, dtype=np.int64)
    number = np.zeros(bins, dtype=np.int64)
    if board.by_look:
        for at in range(len(marks.bin_of)):
            for r in range(resources):
                marks.load[marks.bin_of[at], r] += board.sums[board.sums_first[board.type_of[at]] + 1, r]
    for c in range(0 if board.by_look else len(board.type_size)):
        first, size = board.type_first[c], board.type_size[c]
        for at in range(first, first + size):
            b = marks.bin_of[at]
            if seen[b] != c:
                seen[b], number[b] = c, 0
            number[b] += 1
            if board.type_row[c] >= 0:
                marks.table[board.type_row[c] + b] += 1
        for at in range(first, first + size):
            b = marks.bin_of[at]
            if number[b] > 0:
                taken = number[b]
                for r in range(resources):
                    marks.load[b, r] += board.sums[board.sums_first[c] + taken, r]
                    marks.mean[b, r] += taken * board.mean[c, r]
                    marks.variance[b, r] += taken * (size - taken) / size * board.variance[c, r]
                number[b] = 0
    seen[:] = -1
    for e in range(len(board.look_size)):
        first, size = board.look_first[e], board.look_size[e]
        for at in range(first, first + size):
            b = marks.bin_of[at]
            if seen[b] != e:
                seen[b], number[b] = e, 0
            number[b] += 1
            if board.look_row[e] >= 0:
                marks.table[board.look_row[e] + b] += 1
        for at in range(first, first + size):
            b = marks.bin_of[at]
            if number[b] > 0:
                marks.heights[first + e + number[b]] += 1
                marks.largest[e] = max(marks.largest[e], number[b])
                number[b] = 0
    for b in range(bins):
        for r in range(resources):
            marks.risk[b] += _part_risk(marks.load[b, r], board.room[b, r], marks.mean[b, r], marks.variance[b, r])


@piece
def _more_tops(largest: int, here: int, there: int) -> float:
    """Return how many more bins have the largest number of a look, if that number stays."""
    return (there + 1 == largest) * 1.0 - (here == largest) * 1.0


@piece
def _growth(largest: int, only: bool, here: int, there: int) -> int:
    """Return by how much the largest number of a look grows if one leaves ``here`` and one more comes ``there``."""
    if there + 1 > largest:
        return 1
    return -1 if only and here == largest and there + 1 < largest else 0


@kernel
def _exchange(
    board: _Board, marks: _Marks, budget: float, heat: float, steps: int, state: IntArray, eager: IntArray
) -> None:
    """Try random moves and exchanges, and keep those that spread, or at this heat some others."""
    # Arrays are taken out of their tuples before the loop: inside it, that takes as long as the rest.
    type_of, look_of, group_of = board.type_of, board.look_of, board.group_of
    type_first, type_row, type_size = board.type_first, board.type_row, board.type_size
    look_first, look_row, look_size = board.look_first, board.look_row, board.look_size
    top_price, ideal = board.top_price, board.ideal
    price, caps, sums, sums_first, room = board.price, board.caps, board.sums, board.sums_first, board.room
    means, variances, near, rank = board.mean, board.variance, board.near, board.rank
    group_first, group_last, single, by_look = board.group_first, board.group_last, board.single, board.by_look
    bin_of, table, heights, largest = marks.bin_of, marks.table, marks.heights, marks.largest
    loads, bin_mean, bin_variance, bin_risk = marks.load, marks.mean, marks.variance, marks.risk
    contents, group_of_bin = marks.contents, marks.group_of_bin
    n, bins, resources = len(bin_of), room.shape[0], room.shape[1]
    word = state[0] | np.uint64(1)
    load = np.zeros((2, resources), dtype=np.int64)
    mean, variance, risk = np.zeros((2, resources)), np.zeros((2, resources)), np.zeros(2)
    total = bin_risk.sum()
    for _ in range(steps):
        word ^= word << np.uint64(13)
        word ^= word >> np.uint64(7)
        word ^= word << np.uint64(17)
        i = np.int64(((word >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))
        choice = np.int64(word & np.uint64(15))
        if len(eager) and word & np.uint64(16):  # half of the items are those that are to leave
            i = eager[np.int64(((word >> np.uint64(32)) * np.uint64(len(eager))) >> np.uint64(32))]
        word ^= word << np.uint64(13)
        word ^= word >> np.uint64(7)
        word ^= word << np.uint64(17)
        g = group_of[i]
        low, high = group_first[g], group_last[g]
        r = choice % resources
        # Most partners are of about the same size in one resource: those fit more often.
        if choice & 7:
            far = 1 << (np.int64(word & np.uint64(7)) + np.int64((word >> np.uint64(3)) & np.uint64(3)))
            place = rank[r, i] - far + np.int64(((word >> np.uint64(32)) * np.uint64(2 * far + 1)) >> np.uint64(32))
            if place < low or place >= high:
                continue
        else:
            place = low + np.int64(((word >> np.uint64(32)) * np.uint64(high - low)) >> np.uint64(32))
        j = near[r, place]
        alone = choice >= 12
        b, t = bin_of[i], bin_of[j]
        if choice == 15:
            t = np.int64(((word >> np.uint64(32)) * np.uint64(bins)) >> np.uint64(32))
        e, f = look_of[i], look_of[j]
        if t == b or (not alone and e == f) or (alone and contents[b] == 1):
            continue
        if group_of_bin[t] >= 0 and group_of_bin[t] != g:
            continue
        # What it does to the guesses
        here = _count(bin_of, table, look_row[e], look_first[e], look_size[e], b)
        there = _count(bin_of, table, look_row[e], look_first[e], look_size[e], t)
        growth = _growth(largest[e], heights[look_first[e] + e + largest[e]] == 1, here, there)
        change = growth + price[e] * (there - here + 1)
        if growth == 0 and largest[e] > ideal[e]:
            change += top_price * _more_tops(largest[e], here, there)
        back = ahead = other_growth = 0
        if not alone:
            back = _count(bin_of, table, look_row[f], look_first[f], look_size[f], t)
            ahead = _count(bin_of, table, look_row[f], look_first[f], look_size[f], b)
            other_growth = _growth(largest[f], heights[look_first[f] + f + largest[f]] == 1, back, ahead)
            change += other_growth + price[f] * (ahead - back + 1)
            if other_growth == 0 and largest[f] > ideal[f]:
                change += top_price * _more_tops(largest[f], back, ahead)
        c, d = type_of[i], type_of[j]
        same = not alone and c == d and not by_look
        c_here, c_there, d_back, d_ahead = here, there, back, ahead
        if not same:
            if not single and not by_look:
                c_here = _count(bin_of, table, type_row[c], type_first[c], type_size[c], b)
                c_there = _count(bin_of, table, type_row[c], type_first[c], type_size[c], t)
                if not alone:
                    d_back = _count(bin_of, table, type_row[d], type_first[d], type_size[d], t)
                    d_ahead = _count(bin_of, table, type_row[d], type_first[d], type_size[d], b)
            cap, other_cap = (caps[e], caps[f]) if by_look else (caps[c], caps[d])
            change += _EXCESS * ((c_there >= cap) * 1.0 - (c_here > cap) * 1.0)
            if not alone:
                change += _EXCESS * ((d_ahead >= other_cap) * 1.0 - (d_back > other_cap) * 1.0)
            if by_look:  # sizes add up, whatever their numbers
                c_here, c_there, d_back, d_ahead = 1, 0, 1, 0
        if change > 0.0:
            if change > 20.0 * heat:
                continue
            word ^= word << np.uint64(13)
            word ^= word >> np.uint64(7)
            word ^= word << np.uint64(17)
            if (word >> np.uint64(11)) * (1.0 / 9007199254740992.0) >= math.exp(-change / heat):
                continue
        # Whether both bins still fit
        if not same:
            c_from, c_to = sums_first[c] + c_here, sums_first[c] + c_there
            d_from, d_to = sums_first[d] + d_back, sums_first[d] + d_ahead
            surely = True
            for q in range(resources):
                load[0, q] = loads[b, q] - sums[c_from, q] + sums[c_from - 1, q]
                load[1, q] = loads[t, q] + sums[c_to + 1, q] - sums[c_to, q]
                if not alone:
                    load[0, q] += sums[d_to + 1, q] - sums[d_to, q]
                    load[1, q] += sums[d_from - 1, q] - sums[d_from, q]
                surely = surely and load[0, q] <= room[b, q] and load[1, q] <= room[t, q]
            if not surely and budget <= 0.0:
                continue
            if budget > 0.0:
                # One item more or less changes the variance of n of m items, n (m - n) / m, by (m - 2 n -+ 1) / m.
                risk[0] = risk[1] = 0.0
                fewer, more = 1 - (2.0 * c_here - 1) / type_size[c], 1 - (2.0 * c_there + 1) / type_size[c]
                for q in range(resources):
                    mean[0, q], mean[1, q] = bin_mean[b, q] - means[c, q], bin_mean[t, q] + means[c, q]
                    variance[0, q] = bin_variance[b, q] - fewer * variances[c, q]
                    variance[1, q] = bin_variance[t, q] + more * variances[c, q]
                if not alone:
                    fewer, more = 1 - (2.0 * d_back - 1) / type_size[d], 1 - (2.0 * d_ahead + 1) / type_size[d]
                    for q in range(resources):
                        mean[0, q] += means[d, q]
                        mean[1, q] -= means[d, q]
                        variance[0, q] += more * variances[d, q]
                        variance[1, q] -= fewer * variances[d, q]
                if not surely:
                    for q in range(resources):
                        risk[0] += _part_risk(load[0, q], room[b, q], mean[0, q], variance[0, q])
                        risk[1] += _part_risk(load[1, q], room[t, q], mean[1, q], variance[1, q])
                added = risk[0] + risk[1] - bin_risk[b] - bin_risk[t]
                if added > 0.0 and total + added > budget:
                    continue
                total += added
                bin_risk[b], bin_risk[t] = risk[0], risk[1]
                for q in range(resources):
                    bin_mean[b, q], bin_mean[t, q] = mean[0, q], mean[1, q]
                    bin_variance[b, q], bin_variance[t, q] = variance[0, q], variance[1, q]
            for q in range(resources):
                loads[b, q], loads[t, q] = load[0, q], load[1, q]
        for side in range(1 if alone else 2):
            at, look, kind = (i, e, c) if side == 0 else (j, f, d)
            old, to = (b, t) if side == 0 else (t, b)
            least, most = (here, there) if side == 0 else (back, ahead)
            base = look_first[look] + look
            heights[base + least] -= 1
            heights[base + most] -= 1
            heights[base + least - 1] += 1
            heights[base + most + 1] += 1
            largest[look] += growth if side == 0 else other_growth
            if look_row[look] >= 0:
                table[look_row[look] + old] -= 1
                table[look_row[look] + to] += 1
            if type_row[kind] >= 0:
                table[type_row[kind] + old] -= 1
                table[type_row[kind] + to] += 1
            bin_of[at] = to
        if alone:
            contents[b] -= 1
            contents[t] += 1
            group_of_bin[t] = g
    state[0] = word
