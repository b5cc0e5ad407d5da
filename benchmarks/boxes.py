# SPDX-License-Identifier: Apache-2.0
"""Boxes in trucks: trucks needed, and volume in one truck, against a plain extreme-point heuristic.

Boxes are generated after Bischoff and Ratcliff 1995 (sets 1 to 15: 3 to 100 types of boxes, with their own generator of
random numbers), in a container of 587 x 233 x 220 cm: sides of 30 to 120, 25 to 100 and 20 to 80 cm, and as many boxes
as have the volume of the container. A side may stand up if it is less than twice the shortest. The peer is written here
from Crainic, Perboli, Tadei 2008: boxes by volume, each at the first extreme point of the first truck where it fits,
under the same rules (the whole base is supported). Trucks are needed for the cargo of five instances together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import permutations

import numpy as np

from benchmarks.measuring import Row, row
from dunnage.arrays import IntArray
from dunnage.kernels.bins.boxes import NO_LIMIT, TURNS
from dunnage.kernels.deadline import Deadline
from dunnage.planning.boxes import BoxRows, place_boxes
from dunnage.planning.trucks import Truck

ROOM = (587, 233, 220)
NUM_TYPES = (3, 5, 8, 10, 12, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)
RANGES = ((30, 120), (25, 100), (20, 80))
SETS, TOGETHER, SECONDS = (1, 4, 7, 10, 15), 5, 10.0

Cell = tuple[int, int, int, int, int, int]  # x, y, z and sides along them


def instance(number: int, problem: int) -> tuple[IntArray, IntArray]:
    """Generate a problem of a set: the sides of each box, and in which ways it may be turned, as bits."""
    seed = 2_502_505 + 100 * (problem - 1)

    def draw() -> float:
        nonlocal seed
        seed = 16_807 * seed % 2_147_483_647
        return seed / 2_147_483_647

    for _ in range(10):
        draw()
    types = [[low + int(draw() * (high - low + 1)) for low, high in RANGES] for _ in range(NUM_TYPES[number - 1])]
    volume, boxes = 0, list[list[int]]()
    while True:
        box = types[int(draw() * len(types))]
        volume += box[0] * box[1] * box[2]
        if volume > ROOM[0] * ROOM[1] * ROOM[2]:
            break
        boxes.append(box)
    turns = [sum(1 << n for n, turn in enumerate(TURNS) if box[turn[2]] < 2 * min(box)) for box in boxes]
    return np.array(boxes), np.array(turns)


def extreme_points(sides: IntArray, turns: IntArray, most: int | None = None) -> list[list[Cell]]:
    """Put boxes, the largest first, at the first extreme point where they fit; trucks are opened up to a number."""
    trucks: list[tuple[list[Cell], set[tuple[int, int, int]]]] = []
    for at in np.argsort(-sides.prod(axis=1), kind="stable").tolist():
        ways = [tuple(sides[at, turn].tolist()) for n, turn in enumerate(TURNS) if turns[at] >> n & 1]
        for cells, points in trucks:
            if _put(cells, points, ways):
                break
        else:
            if most is None or len(trucks) < most:
                trucks.append(([], {(0, 0, 0)}))
                _put(*trucks[-1], ways)
    return [cells for cells, _ in trucks]


def _put(cells: list[Cell], points: set[tuple[int, int, int]], ways: Sequence[tuple[int, ...]]) -> bool:
    table = np.array(cells, dtype=np.int64).reshape(-1, 6)
    low, high = table[:, :3], table[:, :3] + table[:, 3:]
    for point in sorted(points, key=lambda point: (point[0], point[2], point[1])):
        for size in ways:
            end = np.array(point) + size
            if (end > ROOM).any() or ((low < end) & (high > point)).all(axis=1).any():
                continue
            common = np.minimum(high[:, :2], end[:2]) - np.maximum(low[:, :2], point[:2])
            below = (high[:, 2] == point[2]) & (common > 0).all(axis=1)
            if point[2] and common[below].prod(axis=1).sum() < size[0] * size[1]:
                continue
            cells.append((*point, *size))  # type: ignore[arg-type]
            points.discard(point)
            # From each far corner, slide along the two other axes until a box or a wall.
            for axis, other in permutations(range(3), 2):
                corner = list(point)
                corner[axis] = int(end[axis])
                across = 3 - axis - other
                meets = (low[:, axis] <= corner[axis]) & (high[:, axis] > corner[axis])
                meets &= (low[:, across] <= corner[across]) & (high[:, across] > corner[across])
                walls = high[meets, other]
                corner[other] = int(walls[walls <= point[other]].max(initial=0))
                if corner[axis] < ROOM[axis]:
                    points.add((corner[0], corner[1], corner[2]))
            return True
    return False


def placed(sides: IntArray, turns: IntArray, seconds: float) -> int:
    num = len(sides)
    nothing, free = np.zeros(num, dtype=np.int64), np.full(num, NO_LIMIT)
    none = np.zeros((num, 0))
    rows = BoxRows(sides.astype(float), none, turns, nothing, free, np.full(num, np.inf), nothing, nothing, 1.0)
    truck = Truck(name="container", capacity=dict(zip("xyz", map(float, ROOM), strict=True)))
    result = place_boxes(rows, [truck], "xyz", [], [1], bound=1, start=None, deadline=Deadline.after(seconds))
    assert result is not None
    return len(result.kinds)


def run(*, long: bool = False) -> list[Row]:
    """Count trucks and CPU seconds for the cargo of several instances together."""
    rows = []
    for number in range(1, 16) if long else SETS:
        several = [instance(number, problem) for problem in range(1, TOGETHER + 1)]
        sides, turns = (np.concatenate(parts) for parts in zip(*several, strict=True))
        start = time.process_time()
        ours = placed(sides, turns, SECONDS)
        seconds = time.process_time() - start
        start = time.process_time()
        peer = len(extreme_points(sides, turns))
        name = f"boxes, {len(sides)} of {NUM_TYPES[number - 1]} types a container (BR{number})"
        rows.append(row(name, ours, peer, "trucks"))
        rows.append(row(name, seconds, time.process_time() - start))
    return rows
