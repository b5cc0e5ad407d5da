# SPDX-License-Identifier: Apache-2.0
"""Boxes in trucks the slow way: a check by definition, cube by cube, and the fewest trucks by trying everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import permutations, product
from typing import NamedTuple

WAYS = {"any": set(permutations(range(3))), "upright": {(0, 1, 2), (1, 0, 2)}, "none": {(0, 1, 2)}}


class Item(NamedTuple):
    """A box as somebody checks it: whole sides, and its rules."""

    sides: tuple[int, int, int]
    turn: str = "any"
    weight: float = 0.0
    layers: float = float("inf")  # from this box up, itself included
    bears: float = float("inf")
    stop: int = 0  # unloaded in this order


def cubes(cell: Sequence[int]) -> set[tuple[int, int, int]]:
    """List the unit cubes of a cell x, y, z, dx, dy, dz."""
    x, y, z, dx, dy, dz = cell
    return set(product(range(x, x + dx), range(y, y + dy), range(z, z + dz)))


def problems(
    items: Sequence[Item], cells: Sequence[Sequence[int]], room: Sequence[int], capacity: float, support: float = 1.0
) -> list[str]:
    """Say everything that is wrong with boxes in one truck, by looking at unit cubes."""
    wrong, taken = [], dict[tuple[int, int, int], int]()
    for number, (item, cell) in enumerate(zip(items, cells, strict=True)):
        if tuple(cell[3:]) not in {tuple(item.sides[side] for side in way) for way in WAYS[item.turn]}:
            wrong.append(f"{number} is turned wrongly")
        for cube in cubes(cell):
            if not all(0 <= at < most for at, most in zip(cube, room, strict=True)):
                wrong.append(f"{number} is outside")
                break
            if taken.setdefault(cube, number) != number:
                wrong.append(f"{number} overlaps {taken[cube]}")
                break
    if sum(item.weight for item in items) > capacity + 1e-9:
        wrong.append("too heavy")
    on: dict[int, set[int]] = {}
    for number, (x, y, z, dx, dy, _) in enumerate(cells):
        below = [taken.get((i, j, z - 1)) for i in range(x, x + dx) for j in range(y, y + dy)]
        on[number] = {one for one in below if one is not None}
        if z and sum(one is not None for one in below) < support * dx * dy - 1e-9:
            wrong.append(f"{number} is not supported")

    @cache
    def above(number: int) -> tuple[int, frozenset[int]]:
        """Return the layers from a box up, and everything that stands on it."""
        tops = [other for other, bearers in on.items() if number in bearers]
        layers = 1 + max((above(top)[0] for top in tops), default=0)
        return layers, frozenset(tops).union(*(above(top)[1] for top in tops))

    for number, item in enumerate(items):
        layers, resting = above(number)
        if layers > item.layers:
            wrong.append(f"{layers} layers from {number} up")
        if sum(items[other].weight for other in resting) > item.bears + 1e-9:
            wrong.append(f"too much on {number}")
        # Pull it straight to the doors, and look above it: what leaves later is in the way.
        x, y, z, dx, dy, dz = cells[number]
        way = product(range(x + dx, room[0]), range(y, y + dy), range(z, z + dz))
        over = product(range(x, x + dx), range(y, y + dy), range(z + dz, room[2]))
        if any(items[taken[cube]].stop > item.stop for cube in (*way, *over) if cube in taken):
            wrong.append(f"{number} is blocked")
    return wrong


def fits(items: Sequence[Item], room: Sequence[int], capacity: float, support: float = 1.0) -> bool:
    """Try every turn and every place of every box, whatever the order."""
    if sum(item.weight for item in items) > capacity:
        return False

    def place(number: int, cells: list[tuple[int, ...]], full: frozenset[tuple[int, int, int]]) -> bool:
        if number == len(items):
            return not problems(items, cells, room, capacity, support)
        for cell in _cells(items[number], room):
            own = cubes(cell)
            if not own & full and place(number + 1, [*cells, cell], full | own):
                return True
        return False

    return place(0, [], frozenset())


def _cells(item: Item, room: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for sides in {tuple(item.sides[side] for side in way) for way in WAYS[item.turn]}:
        for at in product(*(range(most - side + 1) for most, side in zip(room, sides, strict=True))):
            yield (*at, *sides)


def fewest(items: Sequence[Item], room: Sequence[int], capacity: float, support: float = 1.0) -> int:
    """Return the fewest trucks: try every way to divide a few boxes."""
    able = cache(lambda chosen: fits([items[at] for at in chosen], room, capacity, support))

    def divide(number: int, trucks: list[tuple[int, ...]], best: int) -> int:
        if len(trucks) >= best:
            return best
        if number == len(items):
            return len(trucks)
        for at in range(len(trucks) + 1):
            own = (*trucks[at], number) if at < len(trucks) else (number,)
            if able(own):
                others = [truck for place, truck in enumerate(trucks) if place != at]
                best = divide(number + 1, [*others, own], best)
        return best

    return divide(0, [], len(items) + 1)
