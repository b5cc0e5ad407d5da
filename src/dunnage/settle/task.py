# SPDX-License-Identifier: Apache-2.0
"""Task and Fill: a plan beside the true amounts, in whole numbers, and a way to fill its trucks.

A row has one amount of each packed quantity, and a bin overflows if one of its quantities does. Amounts are whole
numbers of a unit per quantity, so whether a bin fits is never a matter of rounding. How badly it does not is told by
prices: what one unit above capacity counts for. Any prices above 0 are 0 together only where everything fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dunnage import noise_arrays
from dunnage.arrays import FloatArray, IntArray
from dunnage.domains import decimal_scale
from dunnage.errors import ParameterError
from dunnage.noise import Noise
from dunnage.planning.linkage import combinations, exchangeable, rows_by_group
from dunnage.planning.plan import Plan, Slots
from dunnage.planning.trucks import Truck
from dunnage.release import Release

LEFT_BEHIND = -1
_PRICE_DIGITS = 1000
_LARGEST_SUM = 2**62
_KERNEL_BITS = 40

WholeArray = npt.NDArray[Any]
"""Whole numbers: 64-bit, or Python's own where those would not hold them."""


def whole_amounts(values: FloatArray) -> tuple[WholeArray, int]:
    """Write numbers, each meaning the decimal it prints as, as whole numbers of one unit.

    Examples
    --------
    >>> whole_amounts(np.array([0.1, 2.25]))
    (array([ 10, 225]), 100)
    """
    scale = decimal_scale(values)
    if scale is not None:
        whole = [int(value) for value in np.rint(values * scale).tolist()]
    else:
        decimals = [Decimal(repr(value)) for value in values.tolist()]
        places = max(0, *(-int(value.as_tuple().exponent) for value in decimals))
        whole, scale = [int(value.scaleb(places)) for value in decimals], 10**places
    return np.array(whole, dtype=np.int64 if sum(map(abs, whole)) < _LARGEST_SUM else object), scale


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Task:
    """What does not change while a plan is applied and repaired. Private: its ``repr`` shows none of it."""

    plan: Plan  # The plan
    start: IntArray  # The bin of each row as planned; for a sealed plan one fill of its slots, drawn at random
    # amounts, whole, scales: true amounts (rows by quantities), as doubles and as whole numbers, and how many units of
    # a quantity make one
    amounts: FloatArray
    whole: WholeArray
    scales: tuple[int, ...]
    # prices, size: what a unit of each quantity counts for where quantities are added up, and the sum of it for each
    # row
    prices: WholeArray
    size: WholeArray
    capacity_of: dict[str, WholeArray]  # What a kind of truck holds, by its name
    # group, members: number of the rows that may be exchanged, and the rows of each number: same class and, unless the
    # plan is sealed, equal public and sensitive values
    group: IntArray
    stratum: IntArray  # Number of the rows that may share a truck
    too_heavy: npt.NDArray[np.bool_]  # Rows that no truck can take
    members: list[IntArray]
    class_id: IntArray  # Class of each row

    def above_spread(self, bin_of_row: IntArray) -> list[dict[str, int]]:
        """List the classes of which a bin holds more than the plan's spread allows."""
        if self.plan.spread is None:
            return []
        loaded = bin_of_row != LEFT_BEHIND
        pairs, counts = np.unique(np.stack([bin_of_row, self.class_id])[:, loaded], axis=1, return_counts=True)
        allowed = np.bincount(self.class_id)[pairs[1]] // self.plan.spread
        over = np.flatnonzero(counts > allowed).tolist()
        names = ("bin", "class_id", "count", "allowed")
        return [dict(zip(names, map(int, (*pairs[:, i], counts[i], allowed[i])), strict=True)) for i in over]

    @cached_property
    def strata(self) -> tuple[frozenset[int], ...]:
        """For each bin of the plan the strata that it puts there, and so may hold."""
        found: list[set[int]] = [set() for _ in self.plan.truck_of_bin]
        for bin_, stratum in set(zip(self.start.tolist(), self.stratum.tolist(), strict=True)):
            found[bin_].add(stratum)
        return tuple(frozenset(held) for held in found)

    @property
    def rooms(self) -> WholeArray:
        """What each bin of the plan holds. Shape: bins by quantities."""
        return np.array([self.capacity_of[name] for name in self.plan.truck_of_bin], dtype=self.whole.dtype)

    def in_units(self, whole: WholeArray) -> FloatArray:
        """Return numbers in the units of the data, each the double nearest to the exact one. Last axis: quantities."""
        found = [[int(value) / scale for value, scale in zip(row, self.scales, strict=True)] for row in whole]
        return np.array(found, dtype=np.float64).reshape(whole.shape)

    def priced(self, amounts: WholeArray) -> WholeArray:
        """Add up the quantities at their prices. Shapes: rows x quantities -> rows."""
        return amounts[:, 0] if len(self.prices) == 1 else np.asarray(amounts @ self.prices)

    def fits(self, rows: IntArray, capacity: WholeArray) -> npt.NDArray[np.bool_]:
        """Say which rows a bin of some capacity can take by themselves."""
        return np.asarray((self.whole[rows] <= capacity).all(axis=1), dtype=bool)

    def kernel_numbers(self, rows: IntArray, capacities: WholeArray) -> tuple[IntArray, IntArray, bool]:
        """Give amounts and capacities as 64-bit numbers, and whether these are exact.

        Those that are not are rounded outward, so that what fits by them fits in truth.
        """
        whole = self.whole[rows]
        if whole.dtype != object:
            return whole, np.asarray(capacities, dtype=np.int64), True
        shift = np.array(
            [max(int(most).bit_length() - _KERNEL_BITS, 0) for most in capacities.max(axis=0)], dtype=object
        )
        return (-(-whole >> shift)).astype(np.int64), (capacities >> shift).astype(np.int64), not shift.any()


def task_of(plan: Plan, amounts: FloatArray, release: Release, noise: Noise) -> Task:
    """Prepare a plan for settling."""
    held = np.array([[truck.capacity[quantity] for quantity in plan.quantities] for truck in plan.trucks])
    whole, capacities, scales, prices = whole_table(amounts, held)
    classes = release.class_of_row
    # Slots name classes only, so a sealed plan lets rows be exchanged whatever their sensitive values.
    group = exchangeable(release) if plan.slots is None else np.unique(classes, return_inverse=True)[1].reshape(-1)
    start = plan.assignment if plan.slots is None else random_fill(plan.slots, classes, noise)
    stratum = combinations(release, columns_apart(release, plan.by, plan.apart))
    _check_apart(plan, start, stratum)
    return Task(
        plan=plan,
        start=start,
        amounts=amounts,
        whole=whole,
        scales=scales,
        prices=prices,
        size=whole @ prices,
        capacity_of={truck.name: room for truck, room in zip(plan.trucks, capacities, strict=True)},
        group=group,
        stratum=stratum,
        too_heavy=~np.any([(whole <= room).all(axis=1) for room in capacities], axis=0),
        members=rows_by_group(group),
        class_id=classes,
    )


def whole_table(amounts: FloatArray, held: FloatArray) -> tuple[WholeArray, WholeArray, tuple[int, ...], WholeArray]:
    """Write amounts and capacities as whole numbers, quantity by quantity, and price them."""
    columns = [whole_amounts(column) for column in np.vstack([amounts, held]).T]
    least = [int(column[len(amounts) :].min()) for column, _ in columns]
    # Relative to the smallest truck, so that quantities in large and in small units weigh alike.
    prices = [1] if len(least) == 1 else [-(-_PRICE_DIGITS * max(least) // room) for room in least]
    total = sum(price * sum(map(int, column)) for (column, _), price in zip(columns, prices, strict=True))
    kind: type = np.int64 if total < _LARGEST_SUM else object
    table: WholeArray = np.column_stack([column.astype(kind) for column, _ in columns])
    scales = tuple(scale for _, scale in columns)
    return table[: len(amounts)], table[len(amounts) :], scales, np.array(prices, dtype=kind)


def columns_apart(release: Release, by: str | None, apart: str | None) -> list[str]:
    """Return the public columns whose values do not share a truck: those that are named, else all that there are."""
    public = [name for name, item in release.attributes.items() if item["role"] == "public"]
    named = [name for name in dict.fromkeys((by, apart)) if name is not None]
    for name in named:
        if name not in public:
            raise ParameterError(f"the plan packs apart by {name!r}, no public column of the release. Plan on it anew.")
    return named or public


def _check_apart(plan: Plan, start: IntArray, stratum: IntArray) -> None:
    """Refuse a plan that says it keeps values apart, and does not."""
    if plan.by is None and plan.apart is None:
        return
    pairs = np.unique(np.column_stack([start, stratum]), axis=0)
    bins, times = np.unique(pairs[:, 0], return_counts=True)
    if (times > 1).any():
        names = " and ".join(name for name in dict.fromkeys((plan.by, plan.apart)) if name is not None)
        raise ParameterError(
            f"bin {int(bins[times > 1][0])} holds rows of different {names}, which the plan is to keep apart. "
            "Plan on the release anew."
        )


def random_fill(slots: Slots, class_id: IntArray, noise: Noise) -> IntArray:
    """Fill the slots of a sealed plan uniformly at random, whatever the weights, and return the bin of each row."""
    by_class = np.lexsort((noise_arrays.permutation(noise, len(class_id)), class_id))
    order = np.argsort(slots.class_id, kind="stable")
    bin_of_row = np.empty(len(class_id), dtype=np.int64)
    bin_of_row[by_class] = np.repeat(slots.bin[order], slots.count[order])
    return bin_of_row


def add_up(bin_of_row: IntArray, amounts: WholeArray, num_bins: int) -> WholeArray:
    """Return the load of each bin; rows set aside count nowhere. Shape: bins by quantities."""
    loads = np.zeros((num_bins, amounts.shape[1]), dtype=amounts.dtype)
    loaded = bin_of_row != LEFT_BEHIND
    for column, amount in zip(loads.T, amounts.T, strict=True):
        np.add.at(column, bin_of_row[loaded], amount[loaded])
    return loads


@dataclass(eq=False, repr=False)
class Fill:
    """A way to fill the trucks, being changed. Rows set aside have bin -1; ``strata`` are what a bin may hold."""

    task: Task
    bin_of_row: IntArray
    loads: WholeArray
    capacities: WholeArray
    truck_of_bin: list[Truck]
    strata: list[frozenset[int]]

    @classmethod
    def of(cls, task: Task, bin_of_row: IntArray) -> Fill:
        """Fill the plan's bins so; what a bin may hold is what the plan puts there."""
        plan = task.plan
        trucks = [plan.truck(name) for name in plan.truck_of_bin]
        loads = add_up(bin_of_row, task.whole, plan.num_bins)
        return cls(task, bin_of_row.copy(), loads, task.rooms, trucks, list(task.strata))

    @property
    def excess(self) -> WholeArray:
        """By how much each bin is above capacity; below 0 where there is room. Shape: bins by quantities."""
        return np.asarray(self.loads - self.capacities)

    @property
    def overloaded(self) -> IntArray:
        """The bins above capacity."""
        return np.flatnonzero((self.loads > self.capacities).any(axis=1))

    @property
    def overload(self) -> int:
        """How much is above capacity, over all bins and quantities, at the task's prices."""
        return int(self.task.priced(np.maximum(self.excess, 0)).sum())

    def rows_of(self, bins: IntArray) -> IntArray:
        """Return the rows in some bins."""
        chosen = np.zeros(len(self.loads) + 1, dtype=bool)  # the last is for rows set aside: -1
        chosen[bins] = True
        return np.flatnonzero(chosen[self.bin_of_row])

    def put(self, row: int, bin_: int) -> None:
        """Put a row into a bin, or aside."""
        before = self.bin_of_row[row]
        if before != LEFT_BEHIND:
            self.loads[before] -= self.task.whole[row]
        if bin_ != LEFT_BEHIND:
            self.loads[bin_] += self.task.whole[row]
        self.bin_of_row[row] = bin_

    def make(self, bin_: int, row: int, to: int, back: int) -> None:
        """Put a row of a bin into another, and a row from there (or -1: none) into the bin."""
        self.put(row, to)
        if back >= 0:
            self.put(back, bin_)

    def open(self, truck: Truck, stratum: int) -> int:
        """Open a bin for one stratum and return its number."""
        room = self.task.capacity_of[truck.name][None]
        self.loads = np.concatenate([self.loads, np.zeros_like(room)])
        self.capacities = np.concatenate([self.capacities, room])
        self.truck_of_bin.append(truck)
        self.strata.append(frozenset({stratum}))
        return len(self.loads) - 1

    def num_free(self, truck: Truck) -> int | None:
        """Return how many trucks of a kind are left; None if there is no limit."""
        return None if truck.count is None else truck.count - sum(used.name == truck.name for used in self.truck_of_bin)
