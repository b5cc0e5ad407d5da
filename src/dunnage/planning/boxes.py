# SPDX-License-Identifier: Apache-2.0
"""Boxes: how the sides of rows are placed in trucks, and the check of what was placed.

A row takes a cell: a cuboid of its sides, turned as its rules allow, at a place in its truck. Sides are upper bounds,
so the true box fits into its cell, and room that it leaves is for padding. x runs from the front wall to the doors, y
across, z up.

The check (:func:`faults`) compares the cells of a truck pair by pair, and shares only numbers with the search.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import NoPlanError, ParameterError
from dunnage.exact import decimal, share, whole
from dunnage.kernels.boxes import NO_LIMIT, TURNS, WASTE_SHARES, Boxes, Style, fill_truck, scaled_bound
from dunnage.kernels.deadline import Deadline
from dunnage.model.domains import decimal_scale
from dunnage.planning.problem import PackingProblem, Telling, rows_by_group, whole_columns
from dunnage.planning.trucks import Truck, split_amount
from dunnage.release import TIMES, product
from dunnage.text import percent

ALLOWED_TURNS = {"any": 63, "upright": 3, "none": 1}  # bits of TURNS
SPACES = np.array([(1, 0.5, 0.7), (1, 0.01, 0.1), (1, 0.1, 0.01), (0.1, 0.01, 1), (1, 1, 1), (0.5, 1, 0.7)])
NUM_WALLS = 3  # of these begin at the front wall, which suits an order of unloading
SHAKES = (0.0, 0.1, 0.3, 0.6)
MAX_TYPES = 300
MAX_WHOLE = 10**9
TRIES_SHARE, MAX_TRIES = 0.2, 100
SPREAD_FACTORS = (1.0, 1.3, 1.7, 2.5)
_TIMES = re.compile(r"\s*[x*]\s*")


@dataclass(frozen=True, kw_only=True)
class Box:
    """Sides that are placed as a box instead of being added up, and how boxes may stand.

    Parameters
    ----------
    sides
        Length, width and height: three released quantities, or public numbers, of one unit.
    turn
        ``upright``: turn on the floor, height stays up; ``any``: all six ways; ``none``: length along the truck. Or a
        public column with these words.
    stack
        ``any``; ``none``: nothing stands on a box; ``3``: at most three layers from a box up; ``200kg``: at most this
        much stands on a box, directly or not. Or a public column with these.
    unload
        Public column with the order of unloading: numbers by size, other values by name. No box stands on, or between
        the doors and, a box that is unloaded earlier.
    support
        Share of every base that rests on the floor or on boxes.
    """

    sides: tuple[str, str, str]
    turn: str = "upright"
    stack: str = "any"
    unload: str | None = None
    support: int | float | str = 1

    def __post_init__(self) -> None:
        if len(self.sides) != 3 or len(set(self.sides)) < 3 or not all(isinstance(side, str) for side in self.sides):
            raise ParameterError("a box has three different sides: name length, width and height.")
        if not 0 <= share(self.support, what="support") <= 1:
            raise ParameterError(f"support must be a share from 0 to 1, for example 0.75. Got {self.support!r}.")

    @classmethod
    def parse(cls, text: str, **rules: str | None) -> Box:
        """Read ``length,width,height``, and the rules that are given."""
        sides = tuple(part.strip() for part in text.split(","))
        if len(sides) != 3:
            raise ParameterError(f"--box names three columns: length,width,height. Got {text!r}.")
        given = {name: value for name, value in rules.items() if value is not None}
        if "support" in given:
            given["support"] = str(share(given["support"], what="support"))
        return cls(sides=(sides[0], sides[1], sides[2]), **given)

    @property
    def words(self) -> str:
        parts = [f"{' x '.join(self.sides)} placed, {percent(float(share(self.support)))} of each base supported"]
        parts.append(
            {"any": "turned any way", "upright": "upright", "none": "not turned"}.get(
                self.turn, f"turned by {self.turn}"
            )
        )
        parts += [f"stack {self.stack}"] if self.stack != "any" else []
        parts += [f"unloaded by {self.unload}"] if self.unload is not None else []
        return ", ".join(parts)

    @property
    def volume(self) -> str:
        return TIMES.join(self.sides)

    def capacities(self, texts: Sequence[float | str]) -> list[float | str]:
        """Write a capacity such as ``600x240x240cm`` as the capacities of the sides."""
        given: list[float | str] = []
        for text in texts:
            parts = _TIMES.split(text) if isinstance(text, str) and "=" not in text else []
            unit = split_amount(parts[-1])[1] if len(parts) == 3 else ""
            values = [part if place == 2 else f"{part}{unit}" for place, part in enumerate(parts)]
            given += [f"{s}={v}" for s, v in zip(self.sides, values, strict=True)] if len(parts) == 3 else [text]
        return given

    def with_volume(self, truck: Truck) -> Truck:
        volume = product(truck.capacity[side] for side in self.sides)
        return replace(truck, capacity={**truck.capacity, self.volume: float(volume)})

    def rules(
        self, column: Callable[[str], list[object]], num: int, units: dict[str, str]
    ) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """Return the turns, the order of loading, the layers and the bearable weight (or infinity) of rows."""
        words = [self.turn] * num if self.turn in ALLOWED_TURNS else [str(cell) for cell in column(self.turn)]
        wrong = sorted({word for word in words if word not in ALLOWED_TURNS})
        if wrong:
            raise ParameterError(
                f"turn must be one of {', '.join(ALLOWED_TURNS)}, or a public column of these. Got {wrong[0]!r}."
            )
        turns = np.array([ALLOWED_TURNS[word] for word in words], dtype=np.int64)
        read = {text: self._limit(text, units) for text in {self.stack}}
        cells = [self.stack] * num
        if read[self.stack] is None:
            cells = ["any" if cell is None else str(cell).strip() for cell in column(self.stack)]
            read = {text: self._limit(text, units) for text in set(cells)}
        limits = []
        for cell in cells:
            limit = read[cell]
            if limit is None:
                raise ParameterError(
                    f"a stack is any, none, a number of layers such as 3, or a weight such as 200kg. Got {cell!r}."
                )
            limits.append(limit)
        layers, bears = (np.array(part) for part in zip(*limits, strict=True))
        stop = np.zeros(num, dtype=np.int64)
        if self.unload is not None:
            stops = [str(cell) for cell in column(self.unload)]
            numbers = [decimal(text) for text in stops]
            first = numbers if np.isfinite(numbers).all() else stops
            # What is unloaded last is loaded first.
            codes = np.unique(np.array(first), return_inverse=True)[1].reshape(-1)
            stop = int(codes.max()) - codes
        return turns, stop, layers.astype(np.int64), bears.astype(np.float64)

    @staticmethod
    def _limit(text: str, units: dict[str, str]) -> tuple[int, float] | None:
        """Return the layers and the weight that a stack allows; None if it is neither."""
        if text in ("any", "none"):
            return (NO_LIMIT, math.inf) if text == "any" else (1, math.inf)
        if (number := whole(text)) is not None and number > 0:
            return number, math.inf
        amount, unit = split_amount(text)
        return (NO_LIMIT, decimal(amount)) if unit and unit in units.values() and decimal(amount) >= 0 else None


class BoxRows(NamedTuple):
    """Rows to place. Shapes: rows; rows by 3 sides; rows by other quantities, the one of a stack first."""

    sides: FloatArray
    amounts: FloatArray
    turns: IntArray
    stop: IntArray
    layers: IntArray
    bears: FloatArray
    group: IntArray
    look: IntArray  # rows that nobody can distinguish
    support: float

    def some(self, rows: BoolArray) -> BoxRows:
        """Return some of the rows."""
        return self._replace(**{name: getattr(self, name)[rows] for name in self._fields if name != "support"})


def stacked_first(box: Box, units: dict[str, str]) -> list[str]:
    """Name the quantities, the one that limits a stack first."""
    unit = split_amount(box.stack)[1]
    return sorted(units, key=lambda name: not (unit and units[name] == unit))


def box_rows(problem: PackingProblem, box: Box, size_of: dict[str, FloatArray], look: IntArray) -> BoxRows:
    """Gather what is known about the boxes of a release."""
    release = problem.release
    public = [name for name, item in release.attributes.items() if item.role == "public"]

    def column(name: str) -> list[object]:
        if name not in public:
            words = ", ".join(public) or "the release has none"
            raise ParameterError(
                f"{name!r} is neither a rule for boxes nor a public column ({words}). Use one of these."
            )
        return list(release.data.column(name).to_pylist())

    units = {name: unit for name, unit in problem.quantities.items() if name not in box.sides}
    rules = box.rules(column, len(release), units)
    names = stacked_first(box, units)
    amounts = np.column_stack([size_of[name] for name in names]) if names else np.zeros((len(release), 0))
    sides = np.column_stack([size_of[side] for side in box.sides])
    return BoxRows(sides, amounts, *rules, problem.group, look, float(share(box.support)))


def inner_sides(trucks: Sequence[Truck], sides: Sequence[str]) -> FloatArray:
    return np.array([[truck.capacity[side] for side in sides] for truck in trucks])


def fitting(rows: BoxRows, trucks: Sequence[Truck], sides: Sequence[str]) -> BoolArray:
    """Say which boxes some truck can take, turned as they may be."""
    fits = np.zeros(len(rows.sides), dtype=bool)
    for room in inner_sides(trucks, sides):
        for turn, order in enumerate(TURNS):
            fits |= (rows.sides[:, order] <= room).all(axis=1) & ((rows.turns >> turn) & 1 == 1)
    return fits


def check_boxes_fit(rows: BoxRows, trucks: Sequence[Truck], sides: Sequence[str]) -> None:
    fits = fitting(rows, trucks, sides)
    if not fits.all():
        rows_named = ", ".join(map(str, np.flatnonzero(~fits)[:20].tolist()))
        raise NoPlanError(
            f"no truck can take {int((~fits).sum())} boxes, turned as they may be: row {rows_named}"
            f"{' and more' if (~fits).sum() > 20 else ''}. Use a larger truck, or allow more turns (--turn any)."
        )


class Placed(NamedTuple):
    bin_of_row: IntArray
    kinds: IntArray  # of the trucks
    cells: FloatArray  # x, y, z and sides along them. Shape: rows by 6
    bound: int


class _Load(NamedTuple):
    kind: int
    placed: IntArray  # type, x, y, z, sides along them


class WholeCells(NamedTuple):
    """Sides, rounded up, and inner sides of trucks, rounded down, in whole numbers of one unit."""

    sides: IntArray
    rooms: IntArray
    scale: int  # units in 1
    slack: int  # by how much a number may be rounded

    def volumes(self) -> tuple[FloatArray, FloatArray]:
        """Return volumes of boxes and trucks as whole numbers that a bound can use: rounded down, and up."""
        sides, rooms = (self.sides - self.slack).astype(np.float64), (self.rooms + self.slack).astype(np.float64)
        boxes, trucks = sides.prod(axis=1), rooms.prod(axis=1)
        unit = 2.0 ** max(0, math.ceil(math.log2(float(trucks.max())) - 52))
        return np.floor(boxes / unit), np.ceil(trucks / unit)


def whole_cells(values: FloatArray, rooms: FloatArray) -> WholeCells:
    scale = decimal_scale(np.concatenate([values.ravel(), rooms.ravel()]))
    if scale is not None and float(rooms.max()) * scale <= MAX_WHOLE:
        return WholeCells(np.rint(values * scale).astype(np.int64), np.rint(rooms * scale).astype(np.int64), scale, 0)
    scale = int(10 ** max(0, math.floor(math.log10(MAX_WHOLE / float(rooms.max())))))
    return WholeCells(np.ceil(values * scale).astype(np.int64), np.floor(rooms * scale).astype(np.int64), scale, 1)


class _Group:
    """The rows of one group, as types of boxes; and what is known about its trucks."""

    def __init__(self, rows: BoxRows, members: IntArray, sides: IntArray, loads: IntArray, bears: IntArray) -> None:
        table = np.column_stack([sides, rows.turns, rows.stop, rows.layers, bears, loads])[members]
        types, type_of, counts = np.unique(table, axis=0, return_inverse=True, return_counts=True)
        self.members, self.type_of, self.counts = members, type_of.reshape(-1), counts.astype(np.int64)
        self.boxes = Boxes(
            *(
                np.ascontiguousarray(part)
                for part in (types[:, :3], types[:, 3], types[:, 7:], types[:, 4], types[:, 5], types[:, 6])
            )
        )
        self.volume = np.prod(types[:, :3].astype(np.float64), axis=1)
        self.loads: list[_Load] = []


class _Loader:
    def __init__(
        self, rooms: IntArray, capacities: IntArray, costs: Sequence[int], counts: Sequence[int | None], support: float
    ) -> None:
        self.rooms, self.capacities, self.costs, self.support = rooms, capacities, costs, support
        self.left = [math.inf if count is None else count for count in counts]  # trucks of each kind
        self.random = np.random.default_rng(1)  # of the search, not of privacy
        self.spaces = np.prod(rooms.astype(np.float64), axis=1)

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
        placed = np.empty((int(counts.sum()), 9), dtype=np.int64)
        num = fill_truck(group.boxes, counts, self.rooms[kind], self.capacities[kind], style, placed)
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
        free = self.free_kinds(groups)
        for load in pool:
            free[load.kind] += 1
        again = self.load(group, counts, free, int(draw.choice([1, 2, 6, 20])), deadline, self.cost(pool) + 1)
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
                    if deadline.late:
                        return
                    rest = len(group.loads) - place
                    caps = np.minimum(left, np.ceil(left * min(1.0, factor / rest)).astype(np.int64))
                    placed = self.fill(group, caps, load.kind, self.style(group, attempt == 0))
                    left -= np.bincount(placed[:, 0], minlength=len(left))
                    loads.append(_Load(load.kind, placed))
                if not left.any() and all(len(load.placed) for load in loads):
                    group.loads = loads
                    return


def place_boxes(
    rows: BoxRows,
    trucks: Sequence[Truck],
    sides: Sequence[str],
    quantities: Sequence[str],
    costs: Sequence[int],
    *,
    bound: int,
    start: tuple[IntArray, IntArray] | None,
    deadline: Deadline,
    progress: Telling | None = None,
) -> Placed | None:
    """Place boxes in as few or as cheap trucks as the time allows; None if there are not enough trucks."""
    lengths, inner, scale, slack = whole_cells(rows.sides, inner_sides(trucks, sides))
    num, limited = len(lengths), np.isfinite(rows.bears)
    loads, capacities = np.zeros((num, 1), dtype=np.int64), np.zeros((len(trucks), 1), dtype=np.int64)
    bears = np.full(num, NO_LIMIT, dtype=np.int64)
    if quantities:
        # What a box bears is in the unit of the first quantity, and rounded down.
        columns = list(rows.amounts.T)
        columns[0] = np.concatenate([columns[0], np.where(limited, rows.bears, 0.0)])
        parts = [
            whole_columns([column], [[truck.capacity[name] for truck in trucks]])
            for column, name in zip(columns, quantities, strict=True)
        ]
        loads = np.column_stack([part.values[:num, 0] for part in parts])
        capacities = np.column_stack([part.rooms[:, 0] for part in parts])
        bears = np.where(limited, parts[0].below[num:, 0], NO_LIMIT)
    groups = [_Group(rows, members, lengths, loads, bears) for members in rows_by_group(rows.group)]
    counts = [None if len(trucks) == 1 else truck.count for truck in trucks]  # one kind is counted in the end
    loader = _Loader(inner, capacities, costs, counts, rows.support)
    if len(trucks) == 1:
        stop = deadline.part(0.2)
        least = [
            1
            if stop.late
            else scaled_bound(
                one.boxes.sides - slack,
                one.boxes.turns,
                one.counts,
                inner[0] + slack,
                int(one.boxes.layers.max()) if rows.support >= 1 else NO_LIMIT,
            )
            for one in groups
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
    bin_of_row, kinds, cells = np.empty(num, dtype=np.int64), list[int](), np.empty((num, 6))
    for group in groups:
        bins = np.concatenate([np.full(len(load.placed), len(kinds) + at) for at, load in enumerate(group.loads)])
        placed = np.concatenate([load.placed for load in group.loads])
        rank = np.empty(len(placed), dtype=np.int64)  # of a place among those of its type and truck
        by_truck = np.lexsort((bins, placed[:, 0]))
        new = np.append(True, np.diff(placed[by_truck, 0] * (bins.max() + 1) + bins[by_truck]) != 0)
        rank[by_truck] = np.arange(len(placed)) - np.maximum.accumulate(np.where(new, np.arange(len(placed)), 0))
        places = np.lexsort((bins, rank, placed[:, 0]))
        order = group.members[np.lexsort((rows.look[group.members], group.type_of))]
        bin_of_row[order], cells[order] = bins[places], placed[places, 1:] / scale
        kinds += [load.kind for load in group.loads]
    if len(trucks) == 1 and trucks[0].count is not None and len(kinds) > trucks[0].count:
        return None
    return Placed(bin_of_row, np.array(kinds, dtype=np.int64), cells, bound)


class Fault(NamedTuple):
    row: int
    words: str


def faults(
    cells: FloatArray,  # x, y, z and sides along them. Shape: rows by 6
    bin_of_row: IntArray,
    rooms: FloatArray,  # inner sides of each truck
    rows: BoxRows,
    *,
    true: bool = False,  # whether the boxes are true ones, which leave gaps: then only whether they fit is checked
) -> list[Fault]:
    """List what is wrong with boxes in their trucks, truck by truck and pair by pair; at most one fault of a row."""
    wrong: dict[int, str] = {}
    turned = np.stack([rows.sides[:, turn] for turn in TURNS], axis=1)  # rows, turns, axes
    fits = (cells[:, None, 3:] >= turned).all(axis=2) & ((rows.turns[:, None] >> np.arange(6)) & 1 == 1)
    for row in np.flatnonzero(~fits.any(axis=1)).tolist():
        wrong[row] = "its cell is smaller than its sides in any way that it may be turned"
    whole, inner, _, _ = whole_cells(cells, rooms)
    support = Fraction(rows.support).limit_denominator(10**6)
    for bin_, members in zip(np.unique(bin_of_row).tolist(), rows_by_group(bin_of_row), strict=True):
        low, size = whole[members, :3], whole[members, 3:]
        high = low + size
        for at in np.flatnonzero((low < 0).any(axis=1) | (high > inner[bin_]).any(axis=1)).tolist():
            wrong.setdefault(int(members[at]), "it is not inside its truck")
        on: list[IntArray] = []  # what each box rests on
        for at, row in enumerate(members.tolist()):
            common = np.minimum(high[at], high) - np.maximum(low[at], low)
            meets = common > 0
            meets[at] = False
            if meets.all(axis=1).any():
                wrong.setdefault(row, "it overlaps another")
            if true:
                continue
            stands = meets[:, 0] & meets[:, 1]
            below = np.flatnonzero(stands & (high[:, 2] == low[at, 2]))
            area = int((common[below, 0] * common[below, 1]).sum())
            if low[at, 2] > 0 and area < support * int(size[at, 0] * size[at, 1]):
                wrong.setdefault(row, "it is not supported")
            later = rows.stop[members] < rows.stop[row]  # loaded earlier, so unloaded later
            before = meets[:, 1] & meets[:, 2] & (low[:, 0] >= high[at, 0])
            if (later & (before | (stands & (low[:, 2] >= high[at, 2])))).any():
                wrong.setdefault(row, "a box that is unloaded later blocks it")
            on.append(below)
        if true or not (np.isfinite(rows.bears[members]).any() or (rows.layers[members] < NO_LIMIT).any()):
            continue
        # From the top down: the layers above each box, and everything that rests on it.
        above, resting = np.zeros(len(members), dtype=np.int64), [set[int]() for _ in members]
        for at in np.argsort(-low[:, 2], kind="stable").tolist():
            row = int(members[at])
            if above[at] >= rows.layers[row]:
                wrong.setdefault(row, "too many layers stand on it")
            if resting[at] and float(rows.amounts[members[list(resting[at])], 0].sum()) > rows.bears[row] * (1 + 1e-12):
                wrong.setdefault(row, "too much weight stands on it")
            for bearer in on[at].tolist():
                above[bearer] = max(above[bearer], above[at] + 1)
                resting[bearer] |= resting[at] | {at}
    return [Fault(row, words) for row, words in sorted(wrong.items())]
