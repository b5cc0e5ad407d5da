# SPDX-License-Identifier: Apache-2.0
"""Boxes in a truck: blocks of equal boxes in maximal empty spaces, bounds, and a check that shares no code with them.

A truck is a cuboid: x runs from its front wall to the doors, y across, z up. All numbers are whole.

A space is an empty cuboid whose whole base rests on the floor or on boxes, so whatever is put into it is supported.
A step takes the space nearest the front, chooses boxes of one type and one orientation that fill it best, and puts a
block of them into its corner. The spaces that the block cuts are split; tops of equal height are joined. If less than
full support is enough, a space may also hang over, and each box of a block is checked.

References
----------
Parreno, Alvarez-Valdes, Tamarit, Oliveira 2008 (maximal spaces, layers of one type); Crainic, Perboli, Tadei 2008
(extreme points, which the benchmark compares with); Fekete, Schepers 2004 (conservative scales).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray, kernel, piece
from dunnage.kernels.deadline import Deadline

# Which side of a box lies along x, y and z, for each way to turn it; the first is as released, two keep it upright.
TURNS = np.array([(0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 1, 0)], dtype=np.int64)
FILL_ORDERS = np.array(list(itertools.permutations(range(3))), dtype=np.int64)
NO_LIMIT = 2**62
MAX_SPACES, FEW_SPACES = 1500, 200
WASTE_SHARES = (0.0, 0.3, 1.0)
MAX_SCALES, MAX_SCALED_TYPES = 8, 400
SPACES = np.array([(1, 0.5, 0.7), (1, 0.01, 0.1), (1, 0.1, 0.01), (0.1, 0.01, 1), (1, 1, 1), (0.5, 1, 0.7)])
NUM_WALLS = 3  # of these begin at the front wall, which suits an order of unloading
SHAKES = (0.0, 0.1, 0.3, 0.6)
MAX_TYPES, MIN_TYPES, MANY_BOXES = 300, 20, 300_000  # types considered at a step; fewer for very many boxes
TRIES_SHARE, MAX_TRIES = 0.2, 100
SPREAD_FACTORS = (1.0, 1.3, 1.7, 2.5)


class Boxes(NamedTuple):
    """Types of boxes. Shapes: types, and 3 sides, or resources such as weight."""

    sides: IntArray
    turns: IntArray  # allowed ways to turn, as bits
    loads: IntArray
    stop: IntArray  # from 0, by the time of loading: what is unloaded last is loaded first
    layers: IntArray  # how many layers may stand from this box up, itself included
    bears: IntArray  # how much of the first resource may stand on it


class Style(NamedTuple):
    """How a truck is filled: one of many ways to try."""

    space: FloatArray  # weights of x, y and z when the next space is chosen
    worth: FloatArray  # of one box of each type
    waste: float  # how much a strip that stays empty counts
    shake: float  # random change of a score, as a share
    max_types: int  # considered at a step
    support: float  # share of a base that must rest on something
    seed: int


@piece
def _overlap(low: int, high: int, other_low: int, other_high: int) -> int:
    return min(high, other_high) - max(low, other_low)


@piece
def _shuffled(random: np.uint64) -> np.uint64:
    random ^= random << np.uint64(13)
    random ^= random >> np.uint64(7)
    return random ^ (random << np.uint64(17))


@piece
def _copy(source: IntArray, at: int, target: IntArray, place: int) -> None:
    for column in range(7):  # slices would take long to compile
        target[place, column] = source[at, column]


@piece
def _add_space(spaces: IntArray, num: int, new: IntArray, least: int) -> int:
    """Add a space unless another contains it, and drop those that it contains; return the number of spaces."""
    new[6] = 0
    for axis in range(3):
        if new[axis + 3] - new[axis] < least:
            return num
    for at in range(num):
        inside = True
        for axis in range(3):
            inside = inside and spaces[at, axis] <= new[axis] and new[axis + 3] <= spaces[at, axis + 3]
        # A space on another level is not the same: its base rests on something else.
        if inside and spaces[at, 2] == new[2]:
            return num
    kept = 0
    for at in range(num):
        inside = spaces[at, 2] == new[2]
        for axis in range(3):
            inside = inside and new[axis] <= spaces[at, axis] and spaces[at, axis + 3] <= new[axis + 3]
        if not inside:
            _copy(spaces, at, spaces, kept)
            kept += 1
    if kept < len(spaces):
        for axis in range(7):
            spaces[kept, axis] = new[axis]
        kept += 1
    return kept


@piece
def _cut(spaces: IntArray, num: int, block: IntArray, least: int, full: bool, room_z: int) -> int:
    """Split the spaces that a block overlaps, add the space on top of it, and join tops of equal height."""
    new = np.empty((6 * num, 7), dtype=np.int64)
    num_new, kept, height, joined = 0, 0, block[5], np.empty(7, dtype=np.int64)
    for at in range(num):
        apart = False
        for axis in range(3):
            apart = apart or spaces[at, axis] >= block[axis + 3] or block[axis] >= spaces[at, axis + 3]
        if apart:
            _copy(spaces, at, spaces, kept)
            kept += 1
            continue
        for axis in range(3):
            if block[axis] > spaces[at, axis]:  # before the block, or below it
                _copy(spaces, at, new, num_new)
                new[num_new, axis + 3] = block[axis]
                num_new += 1
            if block[axis + 3] < spaces[at, axis + 3]:  # behind it, or on top of it
                _copy(spaces, at, new, num_new)
                new[num_new, axis] = block[axis + 3]
                if axis == 2 and full:
                    for side in range(2):
                        new[num_new, side] = max(spaces[at, side], block[side])
                        new[num_new, side + 3] = min(spaces[at, side + 3], block[side + 3])
                num_new += 1
    num = kept
    for at in range(num_new):
        for axis in range(7):
            joined[axis] = new[at, axis]
        num = _add_space(spaces, num, joined, least)
    if not full or height >= room_z:
        return num
    # Join what lies at the height of the block's top: common parts of two neighbours, along x and along y.
    for _ in range(2):
        before = num
        for one in range(num):
            for other in range(one):
                for axis in range(2):
                    # A join may have moved the spaces.
                    if one >= num or spaces[one, 2] != height or spaces[other, 2] != height:
                        continue
                    across = 1 - axis
                    touch = _overlap(
                        spaces[one, axis], spaces[one, axis + 3], spaces[other, axis], spaces[other, axis + 3]
                    )
                    common = _overlap(
                        spaces[one, across], spaces[one, across + 3], spaces[other, across], spaces[other, across + 3]
                    )
                    if touch < 0 or common < least:
                        continue
                    joined[axis] = min(spaces[one, axis], spaces[other, axis])
                    joined[axis + 3] = max(spaces[one, axis + 3], spaces[other, axis + 3])
                    joined[across] = max(spaces[one, across], spaces[other, across])
                    joined[across + 3] = min(spaces[one, across + 3], spaces[other, across + 3])
                    joined[2], joined[5] = height, min(spaces[one, 5], spaces[other, 5])
                    num = _add_space(spaces, num, joined, least)
        if num == before:
            break
    return num


@piece
def _bearers(
    placed: IntArray, num: int, low_x: int, high_x: int, low_y: int, high_y: int, z: int, out: IntArray
) -> int:
    """List the boxes whose tops a base at height z touches; return how many."""
    count = 0
    for at in range(num):
        if placed[at, 3] + placed[at, 6] == z:
            x, y = placed[at, 1], placed[at, 2]
            deep, wide = _overlap(low_x, high_x, x, x + placed[at, 4]), _overlap(low_y, high_y, y, y + placed[at, 5])
            if deep > 0 and wide > 0:
                out[count] = at
                count += 1
    return count


@piece
def _bear(placed: IntArray, num: int, block: IntArray, box: IntArray, weight: int, work: IntArray, stamp: int) -> int:
    """Add up, in ``work``, what the columns of a block put on each box below, directly or not; return the stamp."""
    extra, mark, below, stack = work[0], work[1], work[2], work[3]
    for at in range(num):
        extra[at] = 0
    for x in range(block[0], block[3], box[3]):
        for y in range(block[1], block[4], box[4]):
            stamp += 1
            depth, count = 0, _bearers(placed, num, x, x + box[3], y, y + box[4], block[2], below)
            while True:
                for at in range(count):
                    if mark[below[at]] != stamp:  # each box below counts the column once
                        mark[below[at]] = stamp
                        stack[depth] = below[at]
                        depth += 1
                if depth == 0:
                    break
                depth -= 1
                here = stack[depth]
                extra[here] += weight
                left, front = placed[here, 2], placed[here, 1]
                count = _bearers(
                    placed, num, front, front + placed[here, 4], left, left + placed[here, 5], placed[here, 3], below
                )
    return stamp


@piece
def _may_stand(
    boxes: Boxes, style: Style, kind: int, block: IntArray, box: IntArray, placed: IntArray, num: int, blocks: IntArray,
    num_blocks: int, work: IntArray, stamp: int,
) -> bool:  # fmt: skip
    """Say whether a block blocks no door, is supported, and is not too much for what stands below it."""
    below, full, stop = work[2], style.support >= 1.0, boxes.stop[kind]
    for at in range(num_blocks):
        deep = _overlap(block[0], block[3], blocks[at, 0], blocks[at, 3]) > 0
        wide = _overlap(block[1], block[4], blocks[at, 1], blocks[at, 4]) > 0
        high = _overlap(block[2], block[5], blocks[at, 2], blocks[at, 5]) > 0
        behind, under = high and block[3] <= blocks[at, 0], deep and block[5] <= blocks[at, 2]
        if wide and blocks[at, 6] < stop and (behind or under):
            return False
        if wide and under and block[5] == blocks[at, 2]:  # nothing is slipped under a box that hangs over
            return False
    if block[2] == 0:
        return True
    count = _bearers(placed, num, block[0], block[3], block[1], block[4], block[2], below)
    layers = (block[5] - block[2]) // box[5]
    for at in range(count):
        if placed[below[at], 7] < layers:
            return False
    if not full:
        for x in range(block[0], block[3], box[3]):
            for y in range(block[1], block[4], box[4]):
                area, count = 0, _bearers(placed, num, x, x + box[3], y, y + box[4], block[2], below)
                for at in range(count):
                    here = below[at]
                    wide = _overlap(y, y + box[4], placed[here, 2], placed[here, 2] + placed[here, 5])
                    area += wide * _overlap(x, x + box[3], placed[here, 1], placed[here, 1] + placed[here, 4])
                if area < style.support * box[3] * box[4]:
                    return False
    if work[4, 0]:  # some box bears only so much
        _bear(placed, num, block, box, layers * boxes.loads[kind, 0], work, stamp)
        for at in range(num):
            if placed[at, 8] + work[0, at] > boxes.bears[placed[at, 0]]:
                return False
    return True


@kernel
def fill_truck(
    boxes: Boxes, counts: IntArray, room: IntArray, capacity: IntArray, style: Style, placed: IntArray
) -> int:
    """Fill a truck with some of the boxes; write type, x, y, z and sides of each into ``placed``, return how many."""
    # placed : type, x, y, z, three sides, layers that may still stand on it, load on it. Shape: boxes by 9
    sides, turns, loads, stop, layers, bears = boxes
    num_types, num_loads, max_boxes = loads.shape[0], loads.shape[1], placed.shape[0]
    left, free, order = counts.copy(), capacity.copy(), np.empty(num_types, dtype=np.int64)
    work, stamp = np.full((5, max_boxes + 1), -1, dtype=np.int64), 0
    plain, num, num_blocks, num_spaces, phases, least = style.support >= 1.0, 0, 0, 1, 0, NO_LIMIT
    work[4, 0] = 0
    for kind in range(num_types):
        if left[kind] > 0:
            plain = plain and layers[kind] == NO_LIMIT and bears[kind] == NO_LIMIT and stop[kind] == 0
            work[4, 0] += bears[kind] < NO_LIMIT
            phases = max(phases, stop[kind] + 1)
            for axis in range(3):
                least = min(least, sides[kind, axis])
    blocks = np.empty((max_boxes, 7), dtype=np.int64)
    spaces = np.zeros((MAX_SPACES, 7), dtype=np.int64)  # two corners, and the stop (from 1) of which nothing fits
    for axis in range(3):
        spaces[0, axis + 3] = room[axis]
    random, whole = np.uint64(style.seed * 2654435761 + 88172645463325252), float(room[0]) * room[1] * room[2]
    box, block, number = np.zeros(6, dtype=np.int64), np.zeros(7, dtype=np.int64), np.zeros(3, dtype=np.int64)
    best_box, best_block = box.copy(), block.copy()
    for phase in range(phases):
        num_order = 0
        for kind in range(num_types):
            if stop[kind] == phase and left[kind] > 0:
                order[num_order] = kind
                num_order += 1
        while num_order > 0:
            chosen, nearest = -1, np.inf
            for at in range(num_spaces):
                if spaces[at, 6] <= phase:
                    key = style.space[0] * spaces[at, 0] + style.space[1] * spaces[at, 1]
                    key += style.space[2] * spaces[at, 2]
                    if key < nearest:
                        chosen, nearest = at, key
            if chosen < 0:
                break
            best, best_kind, step = -np.inf, -1, max(1, num_order // style.max_types)
            random = _shuffled(random)
            for place in range(random % np.uint64(step), num_order, step):
                kind = order[place]
                most = left[kind]
                for r in range(num_loads):
                    if loads[kind, r] > 0:
                        most = min(most, free[r] // loads[kind, r])
                for turn in range(6 if most > 0 else 0):
                    able = (turns[kind] >> turn) & 1 == 1
                    for axis in range(3):
                        box[axis + 3] = sides[kind, TURNS[turn, axis]]
                        able = able and box[axis + 3] <= spaces[chosen, axis + 3] - spaces[chosen, axis]
                    if not able:
                        continue
                    # The last way is a single box, for where a block may be refused.
                    for way in range(6 if plain else 7):
                        many = most if way < 6 else 1
                        score = style.worth[kind]
                        for part in range(3):
                            axis = FILL_ORDERS[way % 6, part]
                            into = min((spaces[chosen, axis + 3] - spaces[chosen, axis]) // box[axis + 3], many)
                            if axis == 2:
                                into = min(into, layers[kind])
                                if bears[kind] < NO_LIMIT and loads[kind, 0] > 0:
                                    into = min(into, 1 + bears[kind] // loads[kind, 0])
                            many //= into
                            score *= into
                            block[axis] = spaces[chosen, axis]
                            block[axis + 3] = spaces[chosen, axis] + into * box[axis + 3]
                        for axis in range(3):
                            rest = spaces[chosen, axis + 3] - block[axis + 3]
                            if 0 < rest < least:
                                one, two = (axis + 1) % 3, (axis + 2) % 3
                                face = float(block[one + 3] - block[one]) * float(block[two + 3] - block[two])
                                score -= style.waste * rest * face / whole
                        if style.shake > 0.0:
                            random = _shuffled(random)
                            score *= 1.0 + style.shake * ((random >> np.uint64(11)) / 9007199254740992.0 - 0.5)
                        if score > best:
                            stamp += max_boxes
                            if plain or _may_stand(
                                boxes, style, kind, block, box, placed, num, blocks, num_blocks, work, stamp
                            ):
                                best, best_kind = score, kind
                                for side in range(6):
                                    best_box[side], best_block[side] = box[side], block[side]
            if best_kind < 0:
                spaces[chosen, 6] = phase + 1
                if phase == phases - 1 and num_spaces > FEW_SPACES:  # it could only be joined to others
                    num_spaces -= 1
                    _copy(spaces, num_spaces, spaces, chosen)
                continue
            layer, size = NO_LIMIT, 1
            for axis in range(3):
                number[axis] = (best_block[axis + 3] - best_block[axis]) // best_box[axis + 3]
                size *= number[axis]
            if not plain and best_block[2] > 0:
                stamp += max_boxes
                _bear(placed, num, best_block, best_box, number[2] * loads[best_kind, 0], work, stamp)
                for at in range(num):
                    placed[at, 8] += work[0, at]
                count = _bearers(
                    placed, num, best_block[0], best_block[3], best_block[1], best_block[4], best_block[2], work[2]
                )
                for at in range(count):
                    layer = min(layer, placed[work[2, at], 7])
            for at in range(size):
                i, j, k = at // (number[1] * number[2]), at // number[2] % number[1], at % number[2]
                placed[num, 0] = best_kind
                placed[num, 1] = best_block[0] + i * best_box[3]
                placed[num, 2] = best_block[1] + j * best_box[4]
                placed[num, 3] = best_block[2] + k * best_box[5]
                for axis in range(4, 7):
                    placed[num, axis] = best_box[axis - 1]
                # A box allows what is allowed on those below it, less the layers up to it, and what it allows itself.
                above = layer if layer == NO_LIMIT else layer - k - 1
                placed[num, 7] = above if layers[best_kind] == NO_LIMIT else min(above, layers[best_kind] - k - 1)
                placed[num, 8] = (number[2] - 1 - k) * loads[best_kind, 0]
                num += 1
            left[best_kind] -= size
            for r in range(num_loads):
                free[r] -= size * loads[best_kind, r]
            best_block[6] = phase
            _copy(best_block.reshape(1, 7), 0, blocks, num_blocks)
            num_blocks += 1
            num_spaces = _cut(spaces, num_spaces, best_block, least, style.support >= 1.0, room[2])
            if left[best_kind] == 0:
                kept = 0
                for place in range(num_order):
                    if order[place] != best_kind:
                        order[kept] = order[place]
                        kept += 1
                num_order = kept
    return num


# How many trucks boxes take at least


def scaled_bound(sides: IntArray, turns: IntArray, counts: IntArray, room: IntArray, layers: int = NO_LIMIT) -> int:
    """Bound the number of trucks: the largest volume of the boxes over scales under which all packings still fit."""
    volumes = scaled_volumes(sides, turns, room, layers)
    return max(math.ceil(float(least @ counts) * (1 - 1e-9) - 1e-9) for least in volumes)


def scaled_volumes(sides: IntArray, turns: IntArray, room: IntArray, layers: int = NO_LIMIT) -> Iterator[FloatArray]:
    """Yield volumes of boxes of each type that add up to at most 1 in any packed truck."""
    # A dual feasible function along each axis; a box may lie in whichever allowed way makes it smallest.
    few = len(sides) <= MAX_SCALED_TYPES
    scaled = [_scaled(sides, length, few) for length in room.tolist()]
    if layers < NO_LIMIT:  # fully supported boxes that overlap from above are in different layers
        scaled[2].append(np.full(sides.shape, 1.0 / layers))
    allowed: BoolArray = (turns[:, None] >> np.arange(6)) & 1 == 1
    for along_x, along_y, along_z in itertools.product(*scaled):
        volume = along_x[:, TURNS[:, 0]] * along_y[:, TURNS[:, 1]] * along_z[:, TURNS[:, 2]]  # types by turns
        yield np.where(allowed, volume, np.inf).min(axis=1)


def mixed_bound(boxes: Boxes, counts: IntArray, trucks: TruckKinds, layers: int = NO_LIMIT) -> int:
    """Bound the cost of several kinds of truck: each box pays the least that its share of some kind of truck costs."""
    # If shares of a kind add up to at most 1 in any truck of it, boxes that pay the least of cost x share over all
    # kinds pay no more than the cost of their truck, whichever it is: what they pay together is a bound.
    sides, pays = boxes.sides - trucks.slack, list[list[FloatArray]]()
    allowed: BoolArray = (boxes.turns[:, None] >> np.arange(6)) & 1 == 1
    for room, cost in zip(trucks.rooms + trucks.slack, trucks.costs, strict=True):
        fits = (allowed & (sides[:, TURNS] <= room).all(axis=2)).any(axis=1)
        shares = scaled_volumes(sides, boxes.turns, room, layers)
        pays.append([np.where(fits, cost * share, np.inf) for share in shares])
    chosen, best = [0] * len(pays), 0.0
    for kind in [*range(len(pays))] * 2:  # the best shares of one kind after the other, given those of the others
        others = [pays[other][chosen[other]] for other in range(len(pays)) if other != kind]
        rest = np.minimum.reduce(others) if others else np.full(len(counts), np.inf)
        totals = [float(np.minimum(rest, own) @ counts) for own in pays[kind]]
        chosen[kind] = int(np.argmax(totals))
        best = max(best, totals[chosen[kind]])
    return math.ceil(best * (1 - 1e-9) - 1e-9) if best < np.inf else 0


def _scaled(sides: IntArray, room: int, few: bool) -> list[FloatArray]:
    """Return sides as shares of a room under some dual feasible functions; a side that is too long takes two rooms."""
    shares, short = np.asarray(sides / room), np.unique(sides[2 * sides <= room])
    ends = {room // 2, *short[:: max(1, len(short) // 3)].tolist()} if few else {room // 2}
    scales = [shares]
    for end in sorted(ends):  # what is longer than the room less the end takes it all, what is shorter counts nothing
        scales.append(np.where(sides > room - end, 1.0, np.where(sides < end, 0.0, shares)))
    for parts in range(1, MAX_SCALES if few else 2):
        many = (parts + 1) * sides
        scales.append(np.where(many % room == 0, shares, (many // room) / parts))
    return [np.where(sides > room, 2.0, scale) for scale in scales]


# The search: which boxes go into which truck


class TruckKinds(NamedTuple):
    rooms: IntArray  # inner sides. Shape: kinds by 3
    capacities: IntArray  # of loads. Shape: kinds by resources
    costs: Sequence[int]
    counts: Sequence[int | None]
    slack: int = 0  # by how much sides were rounded up, and rooms down


class LoadedTrucks(NamedTuple):
    bin_of_row: IntArray
    kinds: IntArray  # of the trucks
    cells: IntArray  # x, y, z and sides along them. Shape: rows by 6
    bound: int


class _Load(NamedTuple):
    kind: int
    placed: IntArray  # type, x, y, z, sides along them


class _Group:
    """The rows of one group, as types of boxes; and what is known about its trucks."""

    def __init__(self, rows: Boxes, members: IntArray) -> None:
        columns = (rows.sides, rows.turns, rows.stop, rows.layers, rows.bears, rows.loads)
        table = np.column_stack(columns)[members]
        types, type_of, counts = np.unique(table, axis=0, return_inverse=True, return_counts=True)
        self.members, self.type_of, self.counts = members, type_of.reshape(-1), counts.astype(np.int64)
        parts = (types[:, :3], types[:, 3], types[:, 7:], types[:, 4], types[:, 5], types[:, 6])
        self.boxes = Boxes(*(np.ascontiguousarray(part) for part in parts))
        self.volume = np.prod(types[:, :3].astype(np.float64), axis=1)
        self.loads: list[_Load] = []


class _Loader:
    def __init__(self, trucks: TruckKinds, support: float) -> None:
        self.rooms, self.capacities, self.costs, self.support = trucks.rooms, trucks.capacities, trucks.costs, support
        # Trucks of each kind. If there is only one kind, they are counted in the end.
        counts = trucks.counts if len(trucks.costs) > 1 else [None]
        self.left = [math.inf if count is None else count for count in counts]
        self.pace = 0.0  # seconds for a box
        self.random = np.random.default_rng(1)  # of the search, not of privacy
        self.spaces = np.prod(trucks.rooms.astype(np.float64), axis=1)

    def style(self, group: _Group, first: bool) -> Style:
        """Choose how to fill a truck: the usual way first, then at random."""
        draw, boxes = self.random, group.boxes
        share = group.volume / self.spaces.max()
        # What the trucks run out of first counts most.
        parts = [
            share,
            *(boxes.loads[:, r] / max(1, int(self.capacities[:, r].max())) for r in range(boxes.loads.shape[1])),
        ]
        pressure = np.array([float(part @ group.counts) for part in parts])
        pressure = pressure / max(float(pressure.max()), 1e-300)
        if not first:
            pressure = pressure ** draw.choice([0.0, 1.0, 4.0])
        worth = sum((weight * part for weight, part in zip(pressure, parts, strict=True)), np.zeros(len(share)))
        spaces = SPACES[:NUM_WALLS] if boxes.stop.any() else SPACES
        space = spaces[0] if first else spaces[draw.integers(len(spaces))]
        support = 1.0 if first or self.support >= 1 or draw.random() < 0.5 else self.support
        waste = WASTE_SHARES[1 if first else draw.integers(len(WASTE_SHARES))]
        shake = 0.0 if first else SHAKES[draw.integers(len(SHAKES))]
        return Style(space, worth, waste, shake, MAX_TYPES, support, int(draw.integers(2**31)))

    def fill(self, group: _Group, counts: IntArray, kind: int, style: Style) -> IntArray:
        num, began = int(counts.sum()), time.monotonic()
        placed = np.empty((num, 9), dtype=np.int64)
        style = style._replace(max_types=max(MIN_TYPES, min(MAX_TYPES, MANY_BOXES // max(num, 1))))
        num = fill_truck(group.boxes, counts, self.rooms[kind], self.capacities[kind], style, placed)
        # A truck cannot be left half filled, so a search needs to know how long one takes.
        self.pace = max(0.9 * self.pace, (time.monotonic() - began) / len(placed)) if len(placed) else self.pace
        return placed[:num, :7]

    def value(self, group: _Group, placed: IntArray, kind: int | None = None) -> float:
        """Return how full a truck is, by what it has least left of; or how much it takes of the largest truck."""
        types = placed[:, 0]
        space, room = self.spaces.max(), self.capacities.max(axis=0)
        if kind is not None:
            space, room = self.spaces[kind], self.capacities[kind]
        loads = group.boxes.loads[types].sum(axis=0) / np.maximum(room, 1)
        return max(float(group.volume[types].sum() / space), *map(float, loads))

    def load(
        self, group: _Group, counts: IntArray, free: list[float], tries: int, deadline: Deadline, most: float = math.inf
    ) -> list[_Load] | None:
        """Fill truck after truck, each the best of some tries; None if it costs too much, or trucks or time run out."""
        left, loads, cost, free = counts.copy(), list[_Load](), 0.0, list(free)
        # Whether a truck that takes everything is preferred: always at first, and if there is only one kind.
        ends = len(self.costs) == 1 or most == math.inf or self.random.random() < 0.5
        while left.any():
            best, best_value, best_kind = None, (False, 0.0), -1
            for attempt in range(tries):
                if attempt and deadline.late:
                    break
                style = self.style(group, attempt == 0 and tries != 1)
                for kind in range(len(self.costs)):
                    if free[kind] < 1:
                        continue
                    placed = self.fill(group, left, kind, style)
                    everything = len(placed) == left.sum()
                    if len(placed) == 0:
                        continue
                    worth = 1.0 if everything and ends else self.value(group, placed)
                    value = everything and ends, worth / self.costs[kind]
                    if value > best_value:
                        best, best_value, best_kind = placed, value, kind
                if best_value[0] and len(self.costs) == 1:
                    break
            if best is None:
                return None
            left -= np.bincount(best[:, 0], minlength=len(left))
            loads.append(_Load(best_kind, best))
            free[best_kind] -= 1
            cost += self.costs[best_kind]
            if cost >= most or (deadline.late and left.any() and most < math.inf):
                return None
        return loads

    def cost(self, loads: Sequence[_Load]) -> int:
        return sum(self.costs[load.kind] for load in loads)

    def fullness(self, group: _Group, loads: Sequence[_Load]) -> float:
        return sum(self.value(group, load.placed, load.kind) ** 2 for load in loads)

    def free_kinds(self, groups: Sequence[_Group]) -> list[float]:
        used = np.bincount([load.kind for group in groups for load in group.loads], minlength=len(self.costs))
        return [left - number for left, number in zip(self.left, used.tolist(), strict=True)]

    def as_started(self, group: _Group, bins: IntArray, kind_of: IntArray, deadline: Deadline) -> list[_Load] | None:
        """Load the rows of each bin of a plan that only adds up, as far as they can be placed, and the rest after."""
        left, loads = group.counts.copy(), list[_Load]()
        for bin_ in np.unique(bins).tolist():
            counts = np.bincount(group.type_of[bins == bin_], minlength=len(left)).astype(np.int64)
            best = np.empty((0, 7), dtype=np.int64)
            for attempt in range(8):
                placed = self.fill(group, counts, int(kind_of[bin_]), self.style(group, attempt == 0))
                best = placed if len(placed) > len(best) else best
                if len(best) == counts.sum() or deadline.late:
                    break
            left -= np.bincount(best[:, 0], minlength=len(left))
            loads.append(_Load(int(kind_of[bin_]), best))
        if left.any():
            used = np.bincount([load.kind for load in loads], minlength=len(self.costs)).tolist()
            free = [left_over - number for left_over, number in zip(self.left, used, strict=True)]
            rest = self.load(group, left, free, 1, deadline)
            if rest is None:
                return None
            loads += rest
        return [load for load in loads if len(load.placed)]

    def improve(self, groups: Sequence[_Group], number: int, deadline: Deadline) -> bool:
        """Load the emptiest truck of a group and some others again; say whether that saved a truck or cost."""
        group, draw = groups[number], self.random
        loads = group.loads
        full = [self.value(group, load.placed, load.kind) for load in loads]
        order = np.argsort(full)
        chosen = {int(order[0] if draw.random() < 0.7 else draw.integers(len(loads)))}
        some = int(draw.integers(1, min(4, len(loads)) + 1))
        chosen |= set(draw.choice(len(loads), some - 1, replace=False).tolist())
        pool = [loads[place] for place in chosen]
        if len(pool) < 2 and len(self.costs) == 1:
            return False
        types = np.concatenate([load.placed[:, 0] for load in pool])
        counts = np.bincount(types, minlength=len(group.counts)).astype(np.int64)
        free, tries = self.free_kinds(groups), int(draw.choice([1, 2, 6, 20]))
        if self.pace * len(types) * len(pool) > deadline.left:
            return False
        for load in pool:
            free[load.kind] += 1
        again = self.load(group, counts, free, tries, deadline, self.cost(pool) + 1)
        if again is None:
            return False
        cheaper = self.cost(again) < self.cost(pool)
        if cheaper or self.fullness(group, again) > self.fullness(group, pool) + 1e-9:
            group.loads = [load for place, load in enumerate(loads) if place not in chosen] + again
        return cheaper

    def spread(self, group: _Group, deadline: Deadline) -> None:
        """Load the same trucks again so that boxes of a type go to different ones, as far as they all fit."""
        for factor in SPREAD_FACTORS:
            for attempt in range(4):
                left, loads = group.counts.copy(), list[_Load]()
                for place, load in enumerate(group.loads):
                    if self.pace * int(left.sum()) > deadline.left:
                        return
                    rest = len(group.loads) - place
                    caps = np.minimum(left, np.ceil(left * min(1.0, factor / rest)).astype(np.int64))
                    placed = self.fill(group, caps, load.kind, self.style(group, attempt == 0))
                    left -= np.bincount(placed[:, 0], minlength=len(left))
                    loads.append(_Load(load.kind, placed))
                if not left.any() and all(len(load.placed) for load in loads):
                    group.loads = loads
                    return


def _parts(codes: IntArray) -> list[IntArray]:
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def load_trucks(
    rows: Boxes,  # one line per row
    group_of: IntArray,  # groups never share a truck
    look: IntArray,  # rows that nobody can distinguish
    trucks: TruckKinds,
    support: float,
    *,
    bound: int,  # known before
    start: tuple[IntArray, IntArray] | None,  # a plan that only adds up: bin of each row, kind of each bin
    deadline: Deadline,
    progress: Callable[[str, int, int], None] | None = None,
) -> LoadedTrucks | None:
    """Place boxes in as few or as cheap trucks as the time allows; None if there are not enough trucks."""
    num = len(rows.sides)
    groups = [_Group(rows, members) for members in _parts(group_of)]
    costs, one_kind = trucks.costs, len(trucks.costs) == 1
    loader = _Loader(trucks, support)
    if one_kind:
        stop = deadline.part(0.2)
        least = [
            1
            if stop.late
            else scaled_bound(
                one.boxes.sides - trucks.slack,
                one.boxes.turns,
                one.counts,
                trucks.rooms[0] + trucks.slack,
                int(one.boxes.layers.max()) if support >= 1 else NO_LIMIT,
            )
            for one in groups
        ]
        bound = max(bound, sum(least))
    else:
        stop = deadline.part(0.2)
        layers = [int(one.boxes.layers.max()) if support >= 1 else NO_LIMIT for one in groups]
        least = [
            0 if stop.late else mixed_bound(one.boxes, one.counts, trucks, most)
            for one, most in zip(groups, layers, strict=True)
        ]
        bound = max(bound, sum(least))
    for group in groups:
        began, free = time.monotonic(), loader.free_kinds(groups)
        options = [loader.load(group, group.counts, free, 1, deadline)]
        # Several tries for each truck, as many as a share of the time allows.
        share = deadline.part(TRIES_SHARE / len(groups))
        tries = min(MAX_TRIES, int(share.left / max(time.monotonic() - began, 1e-4)))
        for number in [tries] if len(costs) == 1 else [2, tries // 2]:
            if number > 1 and options[0] is not None and (len(options[0]) > 1 or len(costs) > 1):
                options.append(loader.load(group, group.counts, free, number, share, loader.cost(options[0]) + 1))
        if start is not None and not deadline.late:
            options.append(loader.as_started(group, start[0][group.members], start[1], deadline))
        able = [option for option in options if option is not None]
        if not able:
            return None
        group.loads = min(able, key=lambda option: (loader.cost(option), -loader.fullness(group, option)))
    total, last = sum(loader.cost(group.loads) for group in groups), deadline.part(0.9)
    if progress is not None:
        progress("", total, bound)
    improvable = [number for number, group in enumerate(groups) if len(group.loads) > 1 or len(costs) > 1]
    while total > bound and improvable and not last.late:
        if loader.improve(groups, improvable[int(loader.random.integers(len(improvable)))], last):
            total = sum(loader.cost(group.loads) for group in groups)
            if progress is not None:
                progress("", total, bound)
    for group in groups:
        if len(group.loads) > 1 and not deadline.late:
            loader.spread(group, deadline.part(1 / 2))
    # Rows of a type go to its places in turn, truck by truck, so that rows that look alike go to different trucks.
    bin_of_row, kinds, cells = np.empty(num, dtype=np.int64), list[int](), np.empty((num, 6), dtype=np.int64)
    for group in groups:
        bins = np.concatenate([np.full(len(load.placed), len(kinds) + at) for at, load in enumerate(group.loads)])
        placed = np.concatenate([load.placed for load in group.loads])
        rank = np.empty(len(placed), dtype=np.int64)  # of a place among those of its type and truck
        by_truck = np.lexsort((bins, placed[:, 0]))
        new = np.append(True, np.diff(placed[by_truck, 0] * (bins.max() + 1) + bins[by_truck]) != 0)
        rank[by_truck] = np.arange(len(placed)) - np.maximum.accumulate(np.where(new, np.arange(len(placed)), 0))
        places = np.lexsort((bins, rank, placed[:, 0]))
        order = group.members[np.lexsort((look[group.members], group.type_of))]
        bin_of_row[order], cells[order] = bins[places], placed[places, 1:]
        kinds += [load.kind for load in group.loads]
    if one_kind and trucks.counts[0] is not None and len(kinds) > trucks.counts[0]:
        return None
    return LoadedTrucks(bin_of_row, np.array(kinds, dtype=np.int64), cells, bound)
