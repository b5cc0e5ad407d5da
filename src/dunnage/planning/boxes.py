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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import NoPlanError, ParameterError
from dunnage.exact import decimal, share, whole
from dunnage.kernels.bins.boxes import NO_LIMIT, TURNS, Boxes, TruckKinds, load_trucks
from dunnage.kernels.deadline import Deadline
from dunnage.model.domains import decimal_scale
from dunnage.planning.problem import PackingProblem, Telling, rows_by_group, whole_columns
from dunnage.planning.trucks import Truck, split_amount
from dunnage.release import TIMES, product
from dunnage.text import percent

ALLOWED_TURNS = {"any": 63, "upright": 3, "none": 1}  # bits of TURNS
MAX_WHOLE = 10**9
ROUNDING = 1e-12  # of a side or a weight
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
    whole = Boxes(lengths, rows.turns, loads, rows.stop, rows.layers, bears)
    trucks_of = TruckKinds(inner, capacities, costs, [truck.count for truck in trucks], slack)
    loaded = load_trucks(
        whole,
        rows.group,
        rows.look,
        trucks_of,
        rows.support,
        bound=bound,
        start=start,
        deadline=deadline,
        progress=progress,
    )
    return None if loaded is None else Placed(loaded.bin_of_row, loaded.kinds, loaded.cells / scale, loaded.bound)


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
    fits = (cells[:, None, 3:] * (1 + ROUNDING) >= turned).all(axis=2) & (
        (rows.turns[:, None] >> np.arange(6)) & 1 == 1
    )
    for row in np.flatnonzero(~fits.any(axis=1)).tolist():
        wrong[row] = "its cell is smaller than its sides in any way that it may be turned"
    whole, inner, _, _ = whole_cells(cells, rooms)
    support = Fraction(rows.support).limit_denominator(10**6)
    for bin_, members in zip(np.unique(bin_of_row).tolist(), rows_by_group(bin_of_row), strict=True):
        members = members[np.argsort(whole[members, 0], kind="stable")]
        low, size, stop = whole[members, :3], whole[members, 3:], rows.stop[members]
        high, ordered = low + size, int(stop.max()) > int(stop.min())
        for at in np.flatnonzero((low < 0).any(axis=1) | (high > inner[bin_]).any(axis=1)).tolist():
            wrong.setdefault(int(members[at]), "it is not inside its truck")
        on: list[IntArray] = []  # what each box rests on
        # From front to doors: a box can touch only those that begin before its end, and not too far before it.
        first = np.searchsorted(low[:, 0], low[:, 0] - int(size[:, 0].max()))
        last = np.searchsorted(low[:, 0], high[:, 0])
        for at, row in enumerate(members.tolist()):
            near = slice(first[at], last[at])
            common = np.minimum(high[at], high[near]) - np.maximum(low[at], low[near])
            meets = common > 0
            meets[at - first[at]] = False
            if meets.all(axis=1).any():
                wrong.setdefault(row, "it overlaps another")
            if true:
                continue
            stands = meets[:, 0] & meets[:, 1]
            below = np.flatnonzero(stands & (high[near, 2] == low[at, 2]))
            area = int((common[below, 0] * common[below, 1]).sum())
            if low[at, 2] > 0 and area < support * int(size[at, 0] * size[at, 1]):
                wrong.setdefault(row, "it is not supported")
            on.append(below + first[at])
            if ordered:  # what is loaded earlier is unloaded later: it must be neither above nor in front
                above_it = stands & (low[near, 2] >= high[at, 2]) & (stop[near] < stop[at])
                front = (
                    (stop[last[at] :] < stop[at])
                    & (low[last[at] :, 1] < high[at, 1])
                    & (high[last[at] :, 1] > low[at, 1])
                )
                front &= (low[last[at] :, 2] < high[at, 2]) & (high[last[at] :, 2] > low[at, 2])
                if above_it.any() or front.any():
                    wrong.setdefault(row, "a box that is unloaded later blocks it")
        if true or not (np.isfinite(rows.bears[members]).any() or (rows.layers[members] < NO_LIMIT).any()):
            continue
        # From the top down: the layers above each box, and everything that rests on it.
        above, resting = np.zeros(len(members), dtype=np.int64), [set[int]() for _ in members]
        for at in np.argsort(-low[:, 2], kind="stable").tolist():
            row = int(members[at])
            if above[at] >= rows.layers[row]:
                wrong.setdefault(row, "too many layers stand on it")
            if resting[at] and float(rows.amounts[members[list(resting[at])], 0].sum()) > rows.bears[row] * (
                1 + ROUNDING
            ):
                wrong.setdefault(row, "too much weight stands on it")
            for bearer in on[at].tolist():
                above[bearer] = max(above[bearer], above[at] + 1)
                resting[bearer] |= resting[at] | {at}
    return [Fault(row, words) for row, words in sorted(wrong.items())]
