# SPDX-License-Identifier: Apache-2.0
"""Repair: a plan with the true amounts; how its trucks are filled, and how bins that overflow are repaired.

A row has one amount of each packed quantity, and a bin overflows if one of its quantities does. Amounts are whole
numbers of a unit per quantity, so rounding never decides whether a bin fits. Prices measure an overload: each unit
above capacity counts with a price above 0, so the total is 0 only if everything fits.

In a sealed plan, the owner decides which package of a class goes where; a repair that exchanges packages that look
alike does the same. Filling by weight reveals something about the weights, and following the planner's own packing
reveals everything. So the fill is chosen at random:

1. exactly uniformly among all feasible fills, if they can be counted;
2. otherwise among the feasible fills that random walks from random starts visit;
3. if they visit none, among those that walks visit from the solution of an integer program with random prices.

The law is known only in the first case, so only then is truck linkage exact. Every random bit comes from ``Noise``:
which fills are visited is part of what is revealed, so even the seed and the order of a packing come from it.

A repair has stages, and a stage is used only if all earlier stages fail: exchange packages that look alike to the
planner; move packages between bins; open bins; leave packages behind. If all ways to exchange can be counted, one of
them is chosen uniformly. Otherwise each stage starts from many random fills, and one of the resulting repairs is chosen
uniformly.

References
----------
Selman, Kautz, Cohen 1994 (descent with sideways steps, from many starts).
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import NoPlanError, ParameterError
from dunnage.exact import exact
from dunnage.kernels.bins.certified import BinKind, pack_vectors
from dunnage.kernels.bins.fills import Fills, FillSlots, Items, Words, count_fills, estimate_chances, solve_fill
from dunnage.kernels.bins.scalar import pack_bins, whole_numbers
from dunnage.model.documents import Model, Number
from dunnage.model.domains import decimal_scale
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.planning.linkage import exchangeable, linkage_of_rows, storable_count
from dunnage.planning.plan import Plan, Slots
from dunnage.planning.problem import combinations, rows_by_group
from dunnage.planning.trucks import Truck
from dunnage.release import Release
from dunnage.text import Progress, for_unit

LEFT_BEHIND = -1
_PRICE_DIGITS = 1000
_LARGEST_SUM = 2**62
_KERNEL_BITS = 40

WholeArray = npt.NDArray[Any]  # whole numbers: 64-bit, or Python's own if 64 bits are too few


def whole_amounts(values: FloatArray) -> tuple[WholeArray, int]:
    """Convert numbers, each meaning the decimal it prints as, to whole numbers of a unit; and return the units in 1."""
    scale = decimal_scale(values)
    if scale is not None:
        whole = [int(value) for value in np.rint(values * scale).tolist()]
    else:
        decimals = [Decimal(repr(value)) for value in values.tolist()]
        places = max(0, *(-int(value.as_tuple().exponent) for value in decimals))
        whole, scale = [int(value.scaleb(places)) for value in decimals], 10**places
    return np.array(whole, dtype=np.int64 if sum(map(abs, whole)) < _LARGEST_SUM else object), scale


class PrivateModel(Model):
    """A document about the true data: its ``repr`` shows nothing of it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(private)"

    __str__ = __repr__


class AboveSpread(PrivateModel):
    bin: int
    class_id: int
    count: int
    allowed: int


class RepairReport(PrivateModel):
    """What a repair changed, and whether every bin fits afterwards."""

    feasible: bool
    permuted: int  # packages that changed places with others of their class
    moved: int
    opened: int  # bins
    left_behind: int
    repairs_found: Number | None  # number of repairs from which this one was chosen
    sentence: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RepairTask:
    """What stays the same while a plan is applied and repaired. Private: its ``repr`` shows no data."""

    plan: Plan
    start: IntArray  # the planned bin of each row; for a sealed plan, a random fill of its slots
    amounts: FloatArray  # true amounts. Shape: rows by quantities
    whole: WholeArray  # the same in whole numbers
    scales: tuple[int, ...]  # number of units in 1 of each quantity
    prices: WholeArray  # of a unit of each quantity, for adding up quantities
    size: WholeArray  # priced sum of each row
    capacity_of: dict[str, WholeArray]  # of a kind of truck, by its name
    group: IntArray  # rows that may be exchanged: same class and, unless sealed, equal public and sensitive values
    members: list[IntArray]  # the rows of each group
    stratum: IntArray  # rows that may share a truck
    too_heavy: BoolArray  # rows that no truck can take
    class_id: IntArray

    def above_spread(self, bin_of_row: IntArray) -> list[AboveSpread]:
        """List the bins that take more of a class than the plan's spread allows."""
        if self.plan.spread is None:
            return []
        loaded = bin_of_row != LEFT_BEHIND
        pairs, counts = np.unique(np.stack([bin_of_row, self.class_id])[:, loaded], axis=1, return_counts=True)
        allowed = np.bincount(self.class_id)[pairs[1]] // self.plan.spread
        over = counts > allowed
        lines = zip(*pairs[:, over].tolist(), counts[over].tolist(), allowed[over].tolist(), strict=True)
        return [AboveSpread(bin=b, class_id=c, count=count, allowed=most) for b, c, count, most in lines]

    @cached_property
    def strata(self) -> tuple[frozenset[int], ...]:
        """The strata that the plan puts into each bin, and which the bin may therefore contain."""
        strata: list[set[int]] = [set() for _ in self.plan.truck_of_bin]
        for bin_, stratum in set(zip(self.start.tolist(), self.stratum.tolist(), strict=True)):
            strata[bin_].add(stratum)
        return tuple(map(frozenset, strata))

    @property
    def rooms(self) -> WholeArray:
        return np.array([self.capacity_of[name] for name in self.plan.truck_of_bin], dtype=self.whole.dtype)

    def in_units(self, whole: WholeArray) -> FloatArray:
        """Return numbers in the units of the data, as the nearest doubles. Last axis: quantities."""
        lines = [[int(value) / scale for value, scale in zip(row, self.scales, strict=True)] for row in whole]
        return np.array(lines, dtype=np.float64).reshape(whole.shape)

    def priced(self, amounts: WholeArray) -> WholeArray:
        """Add up the quantities at their prices. Shapes: rows x quantities -> rows."""
        return amounts[:, 0] if len(self.prices) == 1 else np.asarray(amounts @ self.prices)

    def fits(self, rows: IntArray, capacity: WholeArray) -> BoolArray:
        return np.asarray((self.whole[rows] <= capacity).all(axis=1), dtype=bool)

    def kernel_numbers(self, rows: IntArray, capacities: WholeArray) -> tuple[IntArray, IntArray]:
        """Return amounts and capacities as 64-bit numbers, rounded if necessary: what fits in them fits in truth."""
        whole = self.whole[rows]
        if whole.dtype != object:
            return whole, np.asarray(capacities, dtype=np.int64)
        bits = [max(int(most).bit_length() - _KERNEL_BITS, 0) for most in capacities.max(axis=0)]
        shift = np.array(bits, dtype=object)
        return (-(-whole >> shift)).astype(np.int64), (capacities >> shift).astype(np.int64)


def repair_task(plan: Plan, amounts: FloatArray, release: Release, noise: Noise) -> RepairTask:
    """Prepare a plan for settling; refuse a plan that does not keep values apart as it says."""
    rooms = np.array([[truck.capacity[quantity] for quantity in plan.quantities] for truck in plan.trucks])
    whole, capacities, scales, prices = whole_table(amounts, rooms)
    classes = release.class_of_row
    # Slots name only classes, so in a sealed plan rows can be exchanged whatever their sensitive values.
    group = exchangeable(release) if plan.slots is None else np.unique(classes, return_inverse=True)[1].reshape(-1)
    start = plan.assignment if plan.slots is None else random_fill(plan.slots, classes, noise)
    stratum = combinations(release, columns_apart(release, plan.by, plan.apart))
    if plan.by is not None or plan.apart is not None:
        bins, times = np.unique(np.unique(np.column_stack([start, stratum]), axis=0)[:, 0], return_counts=True)
        if (times > 1).any():
            names = " and ".join(name for name in dict.fromkeys((plan.by, plan.apart)) if name is not None)
            raise ParameterError(
                f"bin {int(bins[times > 1][0])} has rows of different {names}, which the plan should keep apart. Make "
                "the plan again."
            )
    return RepairTask(
        plan=plan,
        start=start,
        amounts=amounts,
        whole=whole,
        scales=scales,
        prices=prices,
        size=whole @ prices,
        capacity_of={truck.name: room for truck, room in zip(plan.trucks, capacities, strict=True)},
        group=group,
        members=rows_by_group(group),
        stratum=stratum,
        too_heavy=~np.any([(whole <= room).all(axis=1) for room in capacities], axis=0),
        class_id=classes,
    )


def whole_table(amounts: FloatArray, rooms: FloatArray) -> tuple[WholeArray, WholeArray, tuple[int, ...], WholeArray]:
    """Convert amounts and capacities to whole numbers, by quantity, and set prices."""
    columns = [whole_amounts(column) for column in np.vstack([amounts, rooms]).T]
    least = [int(column[len(amounts) :].min()) for column, _ in columns]
    # Relative to the smallest truck, so that quantities in large and small units have equal weight.
    prices = [1] if len(least) == 1 else [-(-_PRICE_DIGITS * max(least) // room) for room in least]
    total = sum(price * sum(map(int, column)) for (column, _), price in zip(columns, prices, strict=True))
    kind: type = np.int64 if total < _LARGEST_SUM else object
    table: WholeArray = np.column_stack([column.astype(kind) for column, _ in columns])
    scales = tuple(scale for _, scale in columns)
    return table[: len(amounts)], table[len(amounts) :], scales, np.array(prices, dtype=kind)


def columns_apart(release: Release, by: str | None, apart: str | None) -> list[str]:
    """Return the public columns that are packed apart: those of the plan, or else all public columns."""
    public = [name for name, item in release.attributes.items() if item.role == "public"]
    chosen = [name for name in dict.fromkeys((by, apart)) if name is not None]
    for name in chosen:
        if name not in public:
            raise ParameterError(
                f"the plan packs apart by {name!r}, which is not a public column of the release. Make the plan again."
            )
    return chosen or public


def random_fill(slots: Slots, class_id: IntArray, noise: Noise) -> IntArray:
    by_class = np.lexsort((noise_arrays.permutation(noise, len(class_id)), class_id))
    order = np.argsort(slots.class_id, kind="stable")
    bin_of_row = np.empty(len(class_id), dtype=np.int64)
    bin_of_row[by_class] = np.repeat(slots.bin[order], slots.count[order])
    return bin_of_row


@dataclass(eq=False, repr=False)
class Fill:
    """A changing way to fill the trucks. Rows set aside have bin -1; ``strata`` are those that a bin may contain."""

    task: RepairTask
    bin_of_row: IntArray
    loads: WholeArray
    capacities: WholeArray
    truck_of_bin: list[Truck]
    strata: list[frozenset[int]]

    @classmethod
    def of(cls, task: RepairTask, bin_of_row: IntArray) -> Fill:
        trucks = [task.plan.truck(name) for name in task.plan.truck_of_bin]
        loads = np.zeros((task.plan.num_bins, task.whole.shape[1]), dtype=task.whole.dtype)
        loaded = bin_of_row != LEFT_BEHIND
        for column, amount in zip(loads.T, task.whole.T, strict=True):
            np.add.at(column, bin_of_row[loaded], amount[loaded])
        return cls(task, bin_of_row.copy(), loads, task.rooms, trucks, list(task.strata))

    @property
    def excess(self) -> WholeArray:
        """By how much each bin is above capacity; negative if there is room. Shape: bins by quantities."""
        return np.asarray(self.loads - self.capacities)

    @property
    def overloaded(self) -> IntArray:
        return np.flatnonzero((self.loads > self.capacities).any(axis=1))

    @property
    def overload(self) -> int:
        """The total above capacity, over all bins and quantities, at the task's prices."""
        return int(self.task.priced(np.maximum(self.excess, 0)).sum())

    @property
    def aside(self) -> IntArray:
        """The rows set aside that some truck could take."""
        return np.flatnonzero((self.bin_of_row == LEFT_BEHIND) & ~self.task.too_heavy)

    def aside_of(self, stratum: int) -> IntArray:
        aside = self.aside
        return np.asarray(aside[self.task.stratum[aside] == stratum])

    def rows_of(self, bins: IntArray) -> IntArray:
        chosen = np.zeros(len(self.loads) + 1, dtype=bool)  # the last is for rows set aside: -1
        chosen[bins] = True
        return np.flatnonzero(chosen[self.bin_of_row])

    def put(self, row: int, bin_: int) -> None:
        if (before := self.bin_of_row[row]) != LEFT_BEHIND:
            self.loads[before] -= self.task.whole[row]
        if bin_ != LEFT_BEHIND:
            self.loads[bin_] += self.task.whole[row]
        self.bin_of_row[row] = bin_

    def open(self, truck: Truck, stratum: int) -> int:
        room = self.task.capacity_of[truck.name][None]
        self.loads = np.concatenate([self.loads, np.zeros_like(room)])
        self.capacities = np.concatenate([self.capacities, room])
        self.truck_of_bin.append(truck)
        self.strata.append(frozenset({stratum}))
        return len(self.loads) - 1

    def num_free(self, truck: Truck) -> int | None:
        return None if truck.count is None else truck.count - sum(used.name == truck.name for used in self.truck_of_bin)


# Choosing a fill at random

WALK_SECONDS = 2.5
COUNT_SECONDS = 2.0
MAX_CELLS = 20_000_000
LINKAGE_NOTE = (
    "the best guess of someone who knows all released weights, the weight of one package and the slots, if every "
    "feasible fill is equally likely; seeing that everything fitted adds nothing, but knowing where others are does"
)
ESTIMATE_NOTE = (
    "there were too many fills to count; this is based on the fills that random walks visited, which may miss some"
)


@dataclass(frozen=True, eq=False, repr=False)
class RandomFill:
    bin_of_row: IntArray | None = None  # the bin of each row; None if there is no feasible fill, or the search failed
    exact: bool = False  # whether all were counted: then the choice is uniform, and None means that there is no fill
    number: int | None = None  # number of feasible fills; None if they were not counted
    best_guess: FloatArray | None = None  # the largest probability of a bin, for each row; None without a fill


def noise_words(noise: Noise) -> Words:
    return lambda size: np.frombuffer(noise.draw_bytes(8 * size), dtype=np.uint64)


def walked_fill(items: Items, slots: FillSlots, noise: Noise, seconds: float) -> RandomFill:
    """Choose among the feasible fills that random walks visit, if necessary from the solution of an integer program."""
    words = noise_words(noise)
    met = estimate_chances(items, slots, seconds=seconds, words=words)
    if met is None and (start := solve_fill(items, slots, seconds=seconds / 2, words=words)) is not None:
        met = estimate_chances(items, slots, seconds=seconds / 2, words=words, start=start)
    return RandomFill() if met is None else RandomFill(met.fill, best_guess=met.best_chances)


def planned_counts(task: RepairTask) -> IntArray:
    counts = np.zeros((task.plan.num_bins, len(task.members)), dtype=np.int64)
    np.add.at(counts, (task.start, task.group), 1)
    return counts


def _problem(task: RepairTask) -> tuple[Items, FillSlots] | None:
    """Express a plan as a counting problem; None if the plan or its numbers are too large."""
    if task.plan.num_bins * max(len(task.members), len(task.whole)) > MAX_CELLS or task.whole.dtype == object:
        return None
    return Items(task.group, task.whole), FillSlots(planned_counts(task), task.rooms)


def counted_fills(task: RepairTask) -> Fills | None:
    """Count the feasible fills that keep the number of each group in each bin; None if they cannot be counted."""
    problem = _problem(task)
    return count_fills(*problem, deadline=time.monotonic() + COUNT_SECONDS) if problem is not None else None


def count_and_draw(task: RepairTask, noise: Noise) -> RandomFill | None:
    """Choose a fill exactly uniformly among all feasible fills; None if they cannot be counted."""
    if len(task.members) == len(task.start):  # no two rows look alike, so there is only the plan's own fill
        fits = not len(Fill.of(task, task.start).overloaded)
        return RandomFill(task.start, True, 1, np.ones(len(task.start))) if fits else RandomFill(exact=True, number=0)
    fills = counted_fills(task)
    if fills is None or fills.number == 0:
        return None if fills is None else RandomFill(exact=True, number=0)
    return RandomFill(fills.draw(noise.below), True, fills.number, fills.best_chances())


def draw(task: RepairTask, noise: Noise) -> RandomFill:
    """Choose a feasible fill: exactly uniformly if fills can be counted, otherwise by random walks."""
    if task.too_heavy.any():
        return RandomFill(exact=True, number=0)
    problem = _problem(task)
    if problem is None:
        return RandomFill()
    return count_and_draw(task, noise) or walked_fill(*problem, noise, WALK_SECONDS)


def most_frequent_share(bins: IntArray) -> FloatArray:
    """Return for each row the share of its most frequent bin. Shapes: repairs x rows -> rows."""
    run = np.ones(bins.shape[1], dtype=np.int64)
    longest = run.copy()
    for above, below in itertools.pairwise(np.sort(bins, axis=0)):
        run = np.where(above == below, run + 1, 1)
        longest = np.maximum(longest, run)
    return np.asarray(longest / len(bins))


# Repair


STAGE_SECONDS = 2.0
ROW_SECONDS = 1e-4
MAX_REPAIRS = 200
MAX_IDLE_STARTS = 30
MAX_STUCK_STEPS = 25
MAX_MIXING_STEPS = 2000
MAX_PAIRS = 200_000
REPACK_SECONDS = 1.0
MAX_REPACKED = 5000
_STAGES = ("exchanging packages that look alike", "moving packages", "opening bins", "leaving packages behind")


@dataclass(frozen=True, eq=False, repr=False)
class Repair:
    fill: Fill
    options: list[Fill]  # the repairs from which it was chosen
    counted: RandomFill | None  # if all fills were counted
    report: RepairReport


def find_repair(
    task: RepairTask, noise: Noise, *, leave_behind: bool, tell: Progress, tried: RandomFill | None = None
) -> Repair:
    """Go through the stages until one succeeds, and choose one of its best repairs uniformly."""
    tell(_STAGES[0])
    counted = None if task.too_heavy.any() else tried or count_and_draw(task, noise)
    if counted is not None and counted.exact and counted.bin_of_row is not None:
        fill = Fill.of(task, counted.bin_of_row)
        return Repair(fill, [fill], counted, _report(fill, True, storable_count(counted.number)))
    none_exists = counted is not None and counted.exact
    best, done = ([], False) if none_exists else _search(task, noise, 1)
    for stage, line in enumerate(_STAGES[1 : 4 if leave_behind else 3], 2):
        if not done:
            tell(line)
            best, done = _search(task, noise, stage)
    fill = best[noise.below(len(best))]
    feasible = done and (leave_behind or not task.too_heavy.any())
    if not leave_behind:
        for row in np.flatnonzero(fill.bin_of_row == LEFT_BEHIND).tolist():
            fill.put(row, int(task.start[row]))
    return Repair(fill, best, None, _report(fill, feasible, len(best) if feasible else 0))


def find_exchange(task: RepairTask, noise: Noise) -> RandomFill:
    """Search for fills in which every bin fits, by exchanging rows alone, and choose one of them uniformly."""
    fills, done = _search(task, noise, 1)
    if not done or task.too_heavy.any():
        return RandomFill()
    share = most_frequent_share(np.array([fill.bin_of_row for fill in fills]))
    bins = fills[noise.below(len(fills))].bin_of_row
    return RandomFill(bins, best_guess=np.maximum(share, linkage_of_rows(task.group, bins)))


def _search(task: RepairTask, noise: Noise, stage: int) -> tuple[list[Fill], bool]:
    """Search for repairs of a stage from many random starts; return the distinct best, and whether all bins fit."""
    deadline = time.monotonic() + STAGE_SECONDS + len(task.whole) * ROW_SECONDS
    planned, group = (np.where(task.too_heavy, -1, column) for column in (task.start, task.group))
    best: dict[bytes, Fill] = {}
    # Overload, excess over the spread, packages left behind, cost of opened bins.
    cost: tuple[int, int, int, Fraction] | None = None
    idle = 0
    while cost is None or (time.monotonic() < deadline and idle < MAX_IDLE_STARTS and len(best) < MAX_REPAIRS):
        # Fill the plan's bins again: exchangeable rows at random; rows that are too heavy for any truck are set aside.
        bin_of_row = np.empty_like(planned)
        keys = noise_arrays.permutation(noise, len(group))
        bin_of_row[np.argsort(group, kind="stable")] = planned[np.lexsort((keys, group))]
        fill = Fill.of(task, bin_of_row)
        _descend(fill, noise, _exchanges, deadline)
        if fill.overload and stage >= 2:
            _descend(fill, noise, _moves, deadline)
            _repack(fill, noise, deadline)
        if fill.overload and stage >= 3:
            # Set rows aside until every bin fits: as few as possible, and the last one no heavier than necessary.
            for bin_ in fill.overloaded.tolist():
                rows = fill.rows_of(np.array([bin_]))
                rows = rows[np.argsort(task.size[rows], kind="stable")]
                while ((excess := fill.excess[bin_]) > 0).any():
                    enough = np.flatnonzero((task.whole[rows] >= excess).all(axis=1))
                    relief = task.priced(np.minimum(task.whole[rows], np.maximum(excess, 0)))
                    taken = int(enough[0]) if len(enough) else int(np.argmax(relief))
                    fill.put(int(rows[taken]), LEFT_BEHIND)
                    rows = np.delete(rows, taken)
            _place_all(fill, fill.aside)
            for stratum in np.unique(task.stratum[fill.aside]).tolist():
                _open_bins(fill, noise, stratum, deadline)
        if stage >= 4 and fill.aside.size:
            _leave_fewest(fill, noise, deadline)
        if not fill.overload:
            _mix(fill, noise)
        above = sum(item.count - item.allowed for item in task.above_spread(fill.bin_of_row))
        num_aside, opened = len(fill.aside), fill.truck_of_bin[task.plan.num_bins :]
        paid = sum((exact(truck.cost, what="cost") for truck in opened), Fraction(0))
        own = (fill.overload + (num_aside if stage < 4 else 0), above, num_aside, paid)
        idle += 1
        if cost is None or own < cost:
            best, cost, idle = {}, own, 0
        if own == cost and fill.bin_of_row.tobytes() not in best:
            best[fill.bin_of_row.tobytes()] = fill
            idle = 0 if cost[0] == 0 else idle
    return list(best.values()), cost is not None and cost[0] == 0


class _Changes(NamedTuple):
    """Possible changes of one bin: a row goes to another bin, and a row from there, unless it is -1, comes back."""

    row: IntArray
    to: IntArray
    back: IntArray


def _descend(fill: Fill, noise: Noise, changes: Callable[[Fill, Noise, int], _Changes], deadline: float) -> None:
    """Lower the overload step by step, with a few sideways steps if it does not fall; keep the best state."""
    total = lowest = fill.overload
    whole, priced = fill.task.whole, fill.task.priced
    best: tuple[IntArray, WholeArray] | None = None  # None while the fill itself is the best
    stuck = 0
    while lowest and stuck < MAX_STUCK_STEPS and time.monotonic() < deadline:
        over = fill.overloaded
        bin_ = int(over[noise.below(len(over))])
        options = changes(fill, noise, bin_)
        stuck += 1
        if not len(options.row):
            continue
        # One after which both bins fit, else the one that helps most, else one of the least harmful.
        less = whole[options.row] - np.where((options.back >= 0)[:, None], whole[options.back], 0)
        other, own = fill.excess[options.to], fill.excess[bin_]
        after = priced(np.maximum(own - less, 0) + np.maximum(other + less, 0))
        changed = after - priced(np.maximum(other, 0)) - priced(np.maximum(own, 0)[None])[0]
        ties = np.flatnonzero(after == 0)
        if not len(ties):
            least = changed.min()
            ties = np.flatnonzero(changed == least) if least < 0 else np.argsort(changed, kind="stable")[:8]
        pick = int(ties[noise.below(len(ties))])
        change = int(changed[pick])
        if change >= 0 and best is None:
            best = fill.bin_of_row.copy(), fill.loads.copy()
        fill.put(int(options.row[pick]), int(options.to[pick]))
        if options.back[pick] >= 0:
            fill.put(int(options.back[pick]), bin_)
        total += change
        if total < lowest:
            best, lowest, stuck = None, total, 0
    if best is not None:
        fill.bin_of_row, fill.loads = best


def _exchanges(fill: Fill, noise: Noise, bin_: int) -> _Changes:
    """List swaps of a bin's rows with rows of other bins that look the same to the planner."""
    task = fill.task
    rows = fill.rows_of(np.array([bin_])).tolist()
    partners = [_few(task.members[task.group[row]], MAX_PAIRS // len(rows), noise) for row in rows]
    row, back = np.repeat(rows, list(map(len, partners))), np.concatenate(partners)
    other = (fill.bin_of_row[back] != bin_) & (fill.bin_of_row[back] != LEFT_BEHIND)
    row, back = row[other], back[other]
    other = (task.whole[row] != task.whole[back]).any(axis=1)
    return _Changes(row[other], fill.bin_of_row[back[other]], back[other])


def _few(rows: IntArray, max_rows: int, noise: Noise) -> IntArray:
    """Return all rows, or a random choice if there are many."""
    return rows if len(rows) <= max_rows else rows[noise_arrays.below(noise, len(rows), max(max_rows, 1))]


def _moves(fill: Fill, noise: Noise, bin_: int) -> _Changes:
    """List moves of a bin's rows to other bins, and swaps, that keep strata apart."""
    task = fill.task
    rows = fill.rows_of(np.array([bin_]))
    may_come = np.isin(task.stratum, list(fill.strata[bin_]))
    parts = []
    for stratum in np.unique(task.stratum[rows]).tolist():
        bins = np.array([b for b, strata in enumerate(fill.strata) if stratum in strata and b != bin_], dtype=np.int64)
        own = rows[task.stratum[rows] == stratum]
        back = fill.rows_of(bins)
        back = _few(back[may_come[back]], MAX_PAIRS // len(own), noise)
        nobody = np.full(len(bins), -1)
        to, back = np.concatenate([bins, fill.bin_of_row[back]]), np.concatenate([nobody, back])
        parts.append(_Changes(np.repeat(own, len(to)), np.tile(to, len(own)), np.tile(back, len(own))))
    return _Changes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _repack(fill: Fill, noise: Noise, deadline: float) -> None:
    """Repack bins of the same kind, first a few, then many, if this needs no more bins."""
    # Bins of equal capacity and strata: their rows may change places freely.
    alike: dict[tuple[tuple[int, ...], frozenset[int]], list[int]] = {}
    for bin_, (room, strata) in enumerate(zip(fill.capacities.tolist(), fill.strata, strict=True)):
        alike.setdefault((tuple(room), strata), []).append(bin_)
    overloaded = set(fill.overloaded.tolist())
    for bins in alike.values():
        if overloaded.isdisjoint(bins):
            continue
        order = np.array(bins)[noise_arrays.permutation(noise, len(bins))]
        over = (fill.excess[order] > 0).any(axis=1)
        order, num_over = order[np.argsort(~over, kind="stable")], int(over.sum())
        sizes = np.bincount(fill.bin_of_row + 1, minlength=len(fill.loads) + 1)[1:]
        # The overloaded bins with some others at random, then with as many as can be repacked in a second.
        most = max(num_over, int(np.searchsorted(np.cumsum(sizes[order]), MAX_REPACKED, side="right")))
        few = min(3 * num_over + 5, most)
        for num in (few, most) if few < most else (few,):
            chosen = order[:num]
            packed = packed_rows(fill.task, fill.rows_of(chosen), fill.capacities[chosen[0]], noise, deadline)
            if packed is not None and len(packed) <= len(chosen):
                _assign(fill, packed, chosen.tolist())
                break


def _mix(fill: Fill, noise: Noise) -> None:
    """Swap rows that look alike at random if everything still fits, so that the fill reveals less about its origin."""
    task = fill.task
    rows = np.concatenate([rows for rows in task.members if len(rows) > 1] or [np.empty(0, dtype=np.int64)])
    if not len(rows):
        return
    chosen = rows[noise_arrays.below(noise, len(rows), min(4 * len(rows), MAX_MIXING_STEPS))]
    mates = [task.members[group] for group in task.group[chosen].tolist()]
    others = np.array([int(members[noise.below(len(members))]) for members in mates])
    less = (task.whole[chosen] - task.whole[others]).tolist()
    room = (-fill.excess).tolist()
    for row, other, change in zip(chosen.tolist(), others.tolist(), less, strict=True):
        here, there = int(fill.bin_of_row[row]), int(fill.bin_of_row[other])
        if LEFT_BEHIND in (here, there) or here == there:
            continue
        left = [free + amount for free, amount in zip(room[here], change, strict=True)]
        taken = [free - amount for free, amount in zip(room[there], change, strict=True)]
        if min(left) >= 0 and min(taken) >= 0:
            room[here], room[there] = left, taken
            fill.bin_of_row[row], fill.bin_of_row[other] = there, here
    fill.loads = fill.capacities - np.array(room, dtype=fill.loads.dtype)


def _report(fill: Fill, feasible: bool, num_repairs: float | None) -> RepairReport:
    """Count net changes: rows of a group that exchanged places are permuted, others are moved."""
    task = fill.task
    before, after = task.start, fill.bin_of_row
    num_bins = len(fill.loads) + 1
    change = Counter((task.group * num_bins + after)[after != LEFT_BEHIND].tolist())
    change.subtract((task.group * num_bins + before).tolist())
    moved = sum(number for number in change.values() if number > 0)
    permuted = int(((before != after) & (after != LEFT_BEHIND)).sum()) - moved
    opened, left = len(fill.loads) - task.plan.num_bins, int((after == LEFT_BEHIND).sum())
    counts = {"permuted": permuted, "moved": moved, "opened": opened, "left_behind": left}
    exchanged = for_unit("packages exchanged within their class", task.plan.protects)
    words = (exchanged, "moved to another bin", "bins opened", "left behind")
    done = ", ".join(f"{number} {text}" for number, text in zip(counts.values(), words, strict=True) if number)
    sentence = f"every bin fits after these changes: {done}."
    if not feasible:
        remedy = for_unit("Use more or larger trucks, or allow packages to be left behind.", task.plan.protects)
        sentence = f"not every bin fits{f', even after these changes: {done}' if done else ''}. {remedy}"
    return RepairReport(feasible=feasible, repairs_found=num_repairs, sentence=sentence, **counts)


# Setting rows aside, repacking, opening bins


def packed_rows(
    task: RepairTask, rows: IntArray, capacity: WholeArray, noise: Noise, deadline: float
) -> list[IntArray] | None:
    """Pack rows into bins of one capacity by their true amounts; None if that is impossible."""
    if not task.fits(rows, capacity).all():
        return None
    rows = rows[noise_arrays.permutation(noise, len(rows))]
    seconds = _seconds_left(deadline)
    if len(capacity) == 1:
        numbers = whole_numbers(task.amounts[rows, 0], int(capacity[0]) / task.scales[0])
        bins = pack_bins(numbers.items, numbers.capacity, seconds=seconds, seed=noise.bits(32)).bins
    else:
        items, room = task.kernel_numbers(rows, capacity[None])
        if (items > room).any():  # after rounding
            return None
        try:
            kinds = [BinKind(capacity=tuple(room[0].tolist()))]
            bins = pack_vectors(items, kinds, seconds=seconds, seed=noise.bits(32)).bins
        except NoPlanError:
            return None
    packed = [rows[items] for items in bins]
    return packed if all((task.whole[items].sum(axis=0) <= capacity).all() for items in packed) else None


def _seconds_left(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), REPACK_SECONDS / 10), REPACK_SECONDS)


def _assign(fill: Fill, packed: list[IntArray], bins: list[int]) -> None:
    """Give each packed set the remaining bin that contained most of it."""
    free = set(bins)
    before = [Counter(fill.bin_of_row[items].tolist()) for items in packed]
    for number in sorted(range(len(packed)), key=lambda i: -max(before[i].values())):
        bin_ = next((bin_ for bin_, _ in before[number].most_common() if bin_ in free), None)
        bin_ = min(free) if bin_ is None else bin_
        free.remove(bin_)
        for row in packed[number].tolist():
            fill.put(row, bin_)


def _place_all(fill: Fill, rows: IntArray) -> None:
    """Put each row, the heaviest first, into the fullest bin that can and may take it, if there is one."""
    task = fill.task
    for row in sorted(rows.tolist(), key=lambda row: -int(task.size[row])):
        room = -fill.excess
        able = np.flatnonzero((room >= task.whole[row]).all(axis=1))
        if fitting := [bin_ for bin_ in able.tolist() if task.stratum[row] in fill.strata[bin_]]:
            priced = task.priced(room).tolist()
            fill.put(row, min(fitting, key=priced.__getitem__))


def _open_bins(fill: Fill, noise: Noise, stratum: int, deadline: float) -> None:
    """Open bins for the rows of a stratum that were set aside, as cheaply as possible with the available trucks."""
    task = fill.task
    # Pack other strata into fewer bins if possible, and use the saved bins before opening any.
    for other in {next(iter(strata)) for strata in fill.strata if len(strata) == 1} - {stratum}:
        single = [b for b, strata in enumerate(fill.strata) if strata == {other}]
        for line in {tuple(line) for line in fill.capacities[single].tolist()}:
            capacity = np.array(line, dtype=fill.capacities.dtype)
            own = _bins_for(fill, other, capacity)
            rows, loads = fill.rows_of(own), fill.loads[own].sum(axis=0)
            needed = max(-(-int(load) // most) for load, most in zip(loads, line, strict=True))
            if needed >= len(own) or not 0 < len(rows) <= MAX_REPACKED:
                continue
            packed = packed_rows(task, rows, capacity, noise, deadline)
            if packed is not None and len(packed) < len(own):
                _assign(fill, packed, own.tolist())
                for bin_ in set(own.tolist()) - set(fill.bin_of_row[rows].tolist()):
                    fill.strata[bin_] = frozenset({stratum})
    _place_all(fill, fill.aside_of(stratum))
    if len(task.plan.trucks) > 1:
        _open_cheapest(fill, noise, fill.aside_of(stratum), deadline)

    def cost(truck: Truck) -> Fraction:
        return exact(truck.cost, what="cost")

    def room(truck: Truck) -> Fraction:
        return Fraction(int(task.priced(task.capacity_of[truck.name][None])[0]))

    while True:
        # The next kind: the cheapest that takes all rows, otherwise the one with most room for its cost.
        rows = fill.aside_of(stratum)
        free = [truck for truck in task.plan.trucks if fill.num_free(truck) != 0]
        free = [truck for truck in free if task.fits(rows, task.capacity_of[truck.name]).any()]
        if not free:
            return
        total = task.whole[rows].sum(axis=0)
        if enough := [truck for truck in free if (total <= task.capacity_of[truck.name]).all()]:
            truck = min(enough, key=lambda truck: (cost(truck), room(truck)))
        else:
            truck = max(free, key=lambda truck: (room(truck) / cost(truck), room(truck)))
        _open_kind(fill, noise, truck, rows[task.fits(rows, task.capacity_of[truck.name])], deadline)


def _open_cheapest(fill: Fill, noise: Noise, rows: IntArray, deadline: float) -> None:
    """Open bins of several kinds for rows of one stratum, as cheaply as possible; none if there are too few trucks."""
    task = fill.task
    free = [truck for truck in task.plan.trucks if fill.num_free(truck) != 0]
    rooms = np.array([task.capacity_of[truck.name] for truck in free], dtype=task.whole.dtype)
    if not free or not 0 < len(rows) <= MAX_REPACKED:
        return
    rows = rows[noise_arrays.permutation(noise, len(rows))]
    items, rooms = task.kernel_numbers(rows, rooms)
    if not np.any(np.all(items[:, None] <= rooms, axis=2), axis=1).all():
        return
    kinds = [
        BinKind(capacity=tuple(room), cost=exact(truck.cost, what="cost"), count=fill.num_free(truck))
        for truck, room in zip(free, rooms.tolist(), strict=True)
    ]
    try:
        packing = pack_vectors(items, kinds, seconds=_seconds_left(deadline), seed=noise.bits(32))
    except NoPlanError:
        return
    for packed, kind in zip(packing.bins, packing.kind_of_bin, strict=True):
        bin_ = fill.open(free[kind], int(task.stratum[rows[0]]))
        for row in rows[packed].tolist():
            fill.put(row, bin_)


def _open_kind(fill: Fill, noise: Noise, truck: Truck, rows: IntArray, deadline: float) -> None:
    """Open bins of one kind for rows of one stratum, with or without repacking the present bins."""
    task = fill.task
    capacity, stratum, free = task.capacity_of[truck.name], int(task.stratum[rows[0]]), fill.num_free(truck)
    packed = packed_rows(task, rows, capacity, noise, deadline) or np.split(rows, len(rows))
    own = _bins_for(fill, stratum, capacity)
    together = np.concatenate([fill.rows_of(own), rows])
    if len(packed) > 1 and len(together) <= MAX_REPACKED:
        again = packed_rows(task, together, capacity, noise, deadline)
        more = max(len(again) - len(own), 0) if again is not None else len(packed)
        if again is not None and more < len(packed) and (free is None or more <= free):
            _assign(fill, again, own.tolist() + [fill.open(truck, stratum) for _ in range(more)])
            return
    packed = sorted(packed, key=len, reverse=True)[:free]  # without enough trucks, those with most packages
    _assign(fill, packed, [fill.open(truck, stratum) for _ in packed])


def _bins_for(fill: Fill, stratum: int, capacity: WholeArray | None = None) -> IntArray:
    """Return the bins that may contain only one stratum and, if it is given, have one capacity."""
    bins = np.array([b for b, strata in enumerate(fill.strata) if strata == {stratum}], dtype=np.int64)
    return bins if capacity is None else bins[(fill.capacities[bins] == capacity).all(axis=1)]


def _leave_fewest(fill: Fill, noise: Noise, deadline: float) -> None:
    """Leave fewer rows behind if the same bins can be packed with all but the heaviest rows."""
    task = fill.task
    for stratum in np.unique(task.stratum[fill.aside]).tolist():
        own, bins = fill.aside_of(stratum), _bins_for(fill, stratum)
        capacities = fill.capacities[bins]
        if len(own) < 2 or not len(bins) or (capacities != capacities[0]).any():
            continue
        rows = np.concatenate([fill.rows_of(bins), own])
        rows = rows[np.argsort(task.size[rows], kind="stable")]
        for num_left in range(1, len(own)):
            packed = packed_rows(task, rows[:-num_left], capacities[0], noise, deadline)
            if packed is not None and len(packed) <= len(bins):
                for row in rows[-num_left:].tolist():
                    fill.put(row, LEFT_BEHIND)
                _assign(fill, packed, bins.tolist())
                break
