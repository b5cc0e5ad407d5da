# SPDX-License-Identifier: Apache-2.0
"""Repair: mend the bins that overflow, without telling more of the weights than must be.

Stages, each only if those before found nothing: exchange packages that look alike to the planner; move packages between
bins; open bins; leave packages behind. Each stage is tried from many random fills, and one of the repairs found is
drawn uniformly.

References
----------
Selman, Kautz, Cohen 1994 (descent with steps sideways, from many starts).
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dunnage import noise_arrays
from dunnage.bins import pack_bins, whole_numbers
from dunnage.domains import decimal_scale
from dunnage.errors import ParameterError
from dunnage.noise import Noise
from dunnage.planning.plan import Plan, Truck, combinations, exchangeable, linkage_of_rows, rows_by_group, truck_linkage
from dunnage.release import Release

LEFT_BEHIND = -1
STAGE_SECONDS = 2.0
ROW_SECONDS = 1e-4
REPACK_SECONDS = 1.0
MOST_REPAIRS = 200
MOST_IDLE_STARTS = 30
MOST_STUCK_STEPS = 25
MOST_MIXING_STEPS = 2000
MOST_PAIRS = 200_000
MOST_REPACKED = 5000
_LARGEST_SUM = 2**62
_RELEASED_ROLES = ("public", "sensitive")

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
WholeArray = npt.NDArray[Any]
"""Whole numbers: 64-bit, or Python's own where those would not hold them."""
Progress = Callable[[str], None]


def whole_amounts(values: FloatArray) -> tuple[WholeArray, int]:
    """Write numbers, each meaning the decimal it prints as, as whole numbers of one unit.

    Returns
    -------
    tuple
        The whole numbers, and how many of their unit make one.

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


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """What does not change while a plan is repaired.

    ``group`` numbers rows that may be exchanged (same class, equal public and sensitive values), ``stratum`` rows that
    may share a truck; ``too_heavy`` are rows that no truck can take.
    """

    plan: Plan
    weights: FloatArray
    whole: WholeArray
    scale: int
    capacity_of: dict[str, int]
    group: IntArray
    stratum: IntArray
    too_heavy: npt.NDArray[np.bool_]
    members: list[IntArray]

    def amounts(self, whole: WholeArray) -> FloatArray:
        """Return numbers in the unit of the data: each the double nearest to the exact one."""
        return np.array([int(value) / self.scale for value in whole])


def task_of(plan: Plan, quantity: str, weights: FloatArray, release: Release) -> Task:
    """Prepare a plan, whose rows have these true weights, for settling.

    Raises
    ------
    ParameterError
        If the plan packs apart by a column that is not public.
    """
    held = np.array([truck.capacity.get(quantity, 0.0) for truck in plan.trucks])
    whole, scale = whole_amounts(np.concatenate([weights, held]))
    capacity_of = {truck.name: int(c) for truck, c in zip(plan.trucks, whole[len(weights) :], strict=True)}
    roles = {role: [n for n, item in release.attributes.items() if item["role"] == role] for role in _RELEASED_ROLES}
    if plan.by is not None and plan.by not in roles["public"]:
        raise ParameterError(f"the plan packs apart by {plan.by!r}, no public column of the release. Plan on it anew.")
    apart = roles["public"] if plan.by is None else [plan.by]
    group = exchangeable(release)
    return Task(
        plan=plan,
        weights=weights,
        whole=whole[: len(weights)],
        scale=scale,
        capacity_of=capacity_of,
        group=group,
        stratum=combinations(release, apart),
        too_heavy=np.asarray(whole[: len(weights)] > max(capacity_of.values()), dtype=bool),
        members=rows_by_group(group),
    )


@dataclass(eq=False)
class Fill:
    """A way to fill the trucks, being changed. Rows set aside have bin -1; ``strata`` are what a bin may hold."""

    bin_of_row: IntArray
    loads: WholeArray
    capacities: WholeArray
    truck_of_bin: list[Truck]
    strata: list[frozenset[int]]

    @classmethod
    def of_plan(cls, task: Task) -> Fill:
        """Start with the plan as it is."""
        plan = task.plan
        strata: list[set[int]] = [set() for _ in plan.truck_of_bin]
        for bin_, stratum in set(zip(plan.bin_of_row.tolist(), task.stratum.tolist(), strict=True)):
            strata[bin_].add(stratum)
        capacities = np.array([task.capacity_of[name] for name in plan.truck_of_bin], dtype=task.whole.dtype)
        trucks = [plan.truck(name) for name in plan.truck_of_bin]
        loads = np.zeros_like(capacities)
        np.add.at(loads, plan.bin_of_row, task.whole)
        return cls(plan.bin_of_row.copy(), loads, capacities, trucks, [frozenset(held) for held in strata])

    @property
    def overloaded(self) -> IntArray:
        """The bins above capacity."""
        return np.flatnonzero(self.loads > self.capacities)

    @property
    def overload(self) -> int:
        """How much is above capacity, over all bins."""
        return int(np.maximum(self.loads - self.capacities, 0).sum())

    def rows_of(self, bins: IntArray) -> IntArray:
        """Return the rows in some bins."""
        chosen = np.zeros(len(self.loads) + 1, dtype=bool)  # the last is for rows set aside: -1
        chosen[bins] = True
        return np.flatnonzero(chosen[self.bin_of_row])

    def put(self, task: Task, row: int, bin_: int) -> None:
        """Put a row into a bin, or aside."""
        before = self.bin_of_row[row]
        if before != LEFT_BEHIND:
            self.loads[before] -= task.whole[row]
        if bin_ != LEFT_BEHIND:
            self.loads[bin_] += task.whole[row]
        self.bin_of_row[row] = bin_

    def make(self, task: Task, bin_: int, row: int, to: int, back: int) -> None:
        """Put a row of a bin into another, and a row from there (or -1: none) into the bin."""
        self.put(task, row, to)
        if back >= 0:
            self.put(task, back, bin_)

    def open(self, task: Task, truck: Truck, stratum: int) -> int:
        """Open a bin for one stratum and return its number."""
        self.loads = np.append(self.loads, np.zeros(1, dtype=self.loads.dtype))
        self.capacities = np.append(self.capacities, np.array([task.capacity_of[truck.name]], self.loads.dtype))
        self.truck_of_bin.append(truck)
        self.strata.append(frozenset({stratum}))
        return len(self.loads) - 1


@dataclass(frozen=True, eq=False)
class Repair:
    """The repair drawn, all those it was drawn from, and what to say of it."""

    fill: Fill
    found: list[Fill]
    report: dict[str, Any]


def find_repair(task: Task, noise: Noise, *, leave_behind: bool, tell: Progress) -> Repair:
    """Go through the stages until one finds repairs, and draw one of its best uniformly."""
    best: list[Fill] = []
    for stage, line in enumerate(_STAGES[: 4 if leave_behind else 3], 1):
        tell(line)
        best, done = _search(task, noise, stage)
        if done:
            break
    drawn = best[noise.below(len(best))]
    feasible = done and (leave_behind or not task.too_heavy.any())
    if not leave_behind:
        for row in np.flatnonzero(drawn.bin_of_row == LEFT_BEHIND).tolist():
            drawn.put(task, row, int(task.plan.bin_of_row[row]))
    return Repair(drawn, best, _report(task, drawn, feasible, len(best) if feasible else 0))


_STAGES = ("exchanging packages that look alike", "moving packages", "opening bins", "leaving packages behind")


def _search(task: Task, noise: Noise, stage: int) -> tuple[list[Fill], bool]:
    """Look for repairs of a stage from many random starts; return the distinct best, and whether they are repairs."""
    deadline = time.monotonic() + STAGE_SECONDS + len(task.whole) * ROW_SECONDS
    found: dict[bytes, Fill] = {}
    cost: tuple[int, ...] | None = None
    idle = 0
    while cost is None or (time.monotonic() < deadline and idle < MOST_IDLE_STARTS and len(found) < MOST_REPAIRS):
        fill = _attempt(task, noise, stage, deadline)
        own = _cost(task, fill, stage)
        idle += 1
        if cost is None or own < cost:
            found, cost, idle = {}, own, 0
        if own == cost and fill.bin_of_row.tobytes() not in found:
            found[fill.bin_of_row.tobytes()] = fill
            idle = 0 if cost[0] == 0 else idle
    return list(found.values()), cost is not None and cost[0] == 0


def _cost(task: Task, fill: Fill, stage: int) -> tuple[int, int, int]:
    """Say how bad a fill is: what does not fit, packages left behind, bins opened."""
    aside = int(((fill.bin_of_row == LEFT_BEHIND) & ~task.too_heavy).sum())
    return fill.overload + (aside if stage < 4 else 0), aside, len(fill.loads)


def _attempt(task: Task, noise: Noise, stage: int, deadline: float) -> Fill:
    fill = _shuffled(task, noise)
    _descend(task, fill, noise, _exchanges, deadline)
    if fill.overload and stage >= 2:
        _descend(task, fill, noise, _moves, deadline)
        _repack(task, fill, noise, deadline)
    if fill.overload and stage >= 3:
        _spill(task, fill)
        _open_bins(task, fill, noise, deadline)
    if stage >= 4 and _aside(task, fill).size:
        _leave_fewest(task, fill, noise, deadline)
    if not fill.overload:
        _mix(task, fill, noise)
    return fill


def _shuffled(task: Task, noise: Noise) -> Fill:
    """Fill the plan's bins anew: rows that may be exchanged, at random; rows too heavy for any truck, set aside."""
    fill = Fill.of_plan(task)
    for row in np.flatnonzero(task.too_heavy).tolist():
        fill.put(task, row, LEFT_BEHIND)
    group = np.where(task.too_heavy, -1, task.group)
    keys = noise_arrays.permutation(noise, len(group))
    fill.bin_of_row[np.argsort(group, kind="stable")] = fill.bin_of_row[np.lexsort((keys, group))]
    fill.loads[:] = 0
    loaded = fill.bin_of_row != LEFT_BEHIND
    np.add.at(fill.loads, fill.bin_of_row[loaded], task.whole[loaded])
    return fill


class _Changes(NamedTuple):
    """Changes that could be made to one bin: a row out into another bin, and a row from there in (or -1: none)."""

    row: IntArray
    to: IntArray
    back: IntArray


def _descend(
    task: Task, fill: Fill, noise: Noise, changes: Callable[[Task, Fill, Noise, int], _Changes], deadline: float
) -> None:
    """Lower the overload change by change, with a few steps sideways where it does not fall; keep the best met."""
    total = lowest = fill.overload
    best: tuple[IntArray, WholeArray] | None = None  # None while the fill itself is the best met
    stuck = 0
    while lowest and stuck < MOST_STUCK_STEPS and time.monotonic() < deadline:
        over = fill.overloaded
        bin_ = int(over[noise.below(len(over))])
        options = changes(task, fill, noise, bin_)
        stuck += 1
        if not len(options.row):
            continue
        pick, change = _choice(task, fill, noise, bin_, options)
        if change >= 0 and best is None:
            best = fill.bin_of_row.copy(), fill.loads.copy()
        fill.make(task, bin_, *(int(part[pick]) for part in options))
        total += change
        if total < lowest:
            best, lowest, stuck = None, total, 0
    if best is not None:
        fill.bin_of_row, fill.loads = best


def _choice(task: Task, fill: Fill, noise: Noise, bin_: int, options: _Changes) -> tuple[int, int]:
    """Choose a change: any that settles both bins, else the one that helps most, else one of the least harmful.

    Returns
    -------
    tuple
        Its position, and by how much the overload grows.
    """
    less = task.whole[options.row] - np.where(options.back >= 0, task.whole[options.back], 0)
    other = fill.loads[options.to] - fill.capacities[options.to]
    own = fill.loads[bin_] - fill.capacities[bin_]
    after = np.maximum(own - less, 0) + np.maximum(other + less, 0)
    change = after - np.maximum(other, 0) - own
    ties = np.flatnonzero(after == 0)
    if not len(ties):
        least = change.min()
        ties = np.flatnonzero(change == least) if least < 0 else np.argsort(change, kind="stable")[:8]
    pick = int(ties[noise.below(len(ties))])
    return pick, int(change[pick])


def _exchanges(task: Task, fill: Fill, noise: Noise, bin_: int) -> _Changes:
    """List swaps of a bin's rows with rows elsewhere that look the same to the planner."""
    rows = fill.rows_of(np.array([bin_])).tolist()
    partners = [_few(task.members[task.group[row]], MOST_PAIRS // len(rows), noise) for row in rows]
    row = np.repeat(rows, [len(found) for found in partners])
    back = np.concatenate(partners)
    other = (fill.bin_of_row[back] != bin_) & (fill.bin_of_row[back] != LEFT_BEHIND)
    other &= task.whole[row] != task.whole[back]
    return _Changes(row[other], fill.bin_of_row[back[other]], back[other])


def _few(rows: IntArray, most: int, noise: Noise) -> IntArray:
    """Return all rows, or some at random if they are many."""
    return rows if len(rows) <= most else rows[noise_arrays.below(noise, len(rows), max(most, 1))]


def _moves(task: Task, fill: Fill, noise: Noise, bin_: int) -> _Changes:
    """List moves of a bin's rows into others, and swaps, that bring no row among strangers."""
    rows = fill.rows_of(np.array([bin_]))
    may_come = np.isin(task.stratum, list(fill.strata[bin_]))
    parts = []
    for stratum in np.unique(task.stratum[rows]).tolist():
        bins = np.array([b for b, held in enumerate(fill.strata) if stratum in held and b != bin_], dtype=np.int64)
        own = rows[task.stratum[rows] == stratum]
        back = fill.rows_of(bins)
        back = back[may_come[back]]
        back = _few(back, MOST_PAIRS // len(own), noise)
        nobody = np.full(len(bins), -1)
        to, back = np.concatenate([bins, fill.bin_of_row[back]]), np.concatenate([nobody, back])
        parts.append(_Changes(np.repeat(own, len(to)), np.tile(to, len(own)), np.tile(back, len(own))))
    return _Changes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _alike(fill: Fill) -> Iterator[IntArray]:
    """Yield bins of equal capacity and strata, some of them overloaded: their rows may change places freely."""
    alike: dict[tuple[int, frozenset[int]], list[int]] = {}
    for bin_, strata in enumerate(fill.strata):
        alike.setdefault((int(fill.capacities[bin_]), strata), []).append(bin_)
    over = set(fill.overloaded.tolist())
    yield from (np.array(bins) for bins in alike.values() if not over.isdisjoint(bins))


def _repack(task: Task, fill: Fill, noise: Noise, deadline: float) -> None:
    """Pack bins that are alike anew, a few of them or else many, where that needs no more bins than there are."""
    for bins in _alike(fill):
        for chosen in _few_then_many(fill, bins, noise):
            packed = _packed(task, fill.rows_of(chosen), int(fill.capacities[chosen[0]]), noise, deadline)
            if packed is not None and len(packed) <= len(chosen):
                _assign(task, fill, packed, chosen.tolist())
                break


def _few_then_many(fill: Fill, bins: IntArray, noise: Noise) -> Iterator[IntArray]:
    """Yield the overloaded bins with some others at random, then with as many as can be packed anew in a second."""
    order = bins[noise_arrays.permutation(noise, len(bins))]
    over = fill.loads[order] > fill.capacities[order]
    order, num_over = order[np.argsort(~over, kind="stable")], int(over.sum())
    sizes = np.bincount(fill.bin_of_row + 1, minlength=len(fill.loads) + 1)[1:]
    most = max(num_over, int(np.searchsorted(np.cumsum(sizes[order]), MOST_REPACKED, side="right")))
    few = min(3 * num_over + 5, most)
    yield order[:few]
    if few < most:
        yield order[:most]


def _packed(task: Task, rows: IntArray, capacity: int, noise: Noise, deadline: float) -> list[IntArray] | None:
    """Pack rows by their true weights; None if one is too heavy or digits beyond those of a double matter."""
    if (task.whole[rows] > capacity).any():
        return None
    rows = rows[noise_arrays.permutation(noise, len(rows))]
    numbers = whole_numbers(task.weights[rows], capacity / task.scale)
    seconds = min(max(deadline - time.monotonic(), REPACK_SECONDS / 10), REPACK_SECONDS)
    # Which repairs are found is part of what a repair tells, so even the search's own seed is drawn from the noise.
    packing = pack_bins(numbers.items, numbers.capacity, seconds=seconds, seed=noise.bits(32))
    packed = [rows[items] for items in packing.bins]
    return packed if all(int(task.whole[items].sum()) <= capacity for items in packed) else None


def _assign(task: Task, fill: Fill, packed: list[IntArray], bins: list[int]) -> None:
    """Give each packed set the bin, of those left, that held most of it."""
    free = set(bins)
    before = [Counter(fill.bin_of_row[items].tolist()) for items in packed]
    for number in sorted(range(len(packed)), key=lambda i: -max(before[i].values())):
        known = [bin_ for bin_, _ in before[number].most_common() if bin_ in free]
        bin_ = known[0] if known else min(free)
        free.remove(bin_)
        for row in packed[number].tolist():
            fill.put(task, row, bin_)


def _aside(task: Task, fill: Fill) -> IntArray:
    """Return the rows set aside that some truck could take."""
    return np.flatnonzero((fill.bin_of_row == LEFT_BEHIND) & ~task.too_heavy)


def _spill(task: Task, fill: Fill) -> None:
    """Set rows aside until every bin fits: as few as will do, the last one no heavier than needed."""
    for bin_ in fill.overloaded.tolist():
        rows = fill.rows_of(np.array([bin_]))
        rows = rows[np.argsort(task.whole[rows], kind="stable")]
        while (excess := fill.loads[bin_] - fill.capacities[bin_]) > 0:
            enough = np.flatnonzero(task.whole[rows] >= excess)
            taken = int(enough[0]) if len(enough) else len(rows) - 1
            fill.put(task, int(rows[taken]), LEFT_BEHIND)
            rows = np.delete(rows, taken)
    for row in sorted(_aside(task, fill).tolist(), key=lambda row: -int(task.whole[row])):
        _place(task, fill, row)


def _place(task: Task, fill: Fill, row: int) -> bool:
    """Put a row into the fullest bin that may and can take it."""
    rooms = fill.capacities - fill.loads
    fitting = [b for b in np.flatnonzero(rooms >= task.whole[row]).tolist() if task.stratum[row] in fill.strata[b]]
    if fitting:
        fill.put(task, row, min(fitting, key=lambda b: int(rooms[b])))
    return bool(fitting)


def _open_bins(task: Task, fill: Fill, noise: Noise, deadline: float) -> None:
    """Open bins for what was set aside, each stratum apart, as few as can be found and as trucks allow."""
    for stratum in np.unique(task.stratum[_aside(task, fill)]).tolist():
        _give_over(task, fill, noise, stratum, deadline)
        while (truck := _free_truck(task, fill)) is not None:
            aside = _aside(task, fill)
            small = task.whole[aside] <= task.capacity_of[truck.name]
            rows = aside[small & (task.stratum[aside] == stratum)]
            if not len(rows):
                break
            _open_kind(task, fill, noise, truck, rows, deadline)


def _give_over(task: Task, fill: Fill, noise: Noise, stratum: int, deadline: float) -> None:
    """Pack other strata into fewer bins where they can do with fewer, and use those saved before any is opened."""
    for other in {next(iter(held)) for held in fill.strata if len(held) == 1} - {stratum}:
        for capacity in {int(fill.capacities[b]) for b, held in enumerate(fill.strata) if held == {other}}:
            own = _bins_for(fill, other, capacity)
            rows = fill.rows_of(own)
            needed = -(-int(fill.loads[own].sum()) // capacity) if capacity else len(own)
            if needed >= len(own) or not 0 < len(rows) <= MOST_REPACKED:
                continue
            packed = _packed(task, rows, capacity, noise, deadline)
            if packed is None or len(packed) >= len(own):
                continue
            _assign(task, fill, packed, own.tolist())
            for bin_ in set(own.tolist()) - set(fill.bin_of_row[rows].tolist()):
                fill.strata[bin_] = frozenset({stratum})
    own_rows = [row for row in _aside(task, fill).tolist() if task.stratum[row] == stratum]
    for row in sorted(own_rows, key=lambda row: -int(task.whole[row])):
        _place(task, fill, row)


def _open_kind(task: Task, fill: Fill, noise: Noise, truck: Truck, rows: IntArray, deadline: float) -> None:
    """Open bins of one kind for rows of one stratum: beside the bins there are, or by packing those anew too."""
    capacity, stratum, free = task.capacity_of[truck.name], int(task.stratum[rows[0]]), _num_free(fill, truck)
    packed = _packed(task, rows, capacity, noise, deadline) or np.split(rows, len(rows))
    own = _bins_for(fill, stratum, capacity)
    together = np.concatenate([fill.rows_of(own), rows])
    if len(packed) > 1 and len(together) <= MOST_REPACKED:
        anew = _packed(task, together, capacity, noise, deadline)
        more = max(len(anew) - len(own), 0) if anew is not None else len(packed)
        if anew is not None and more < len(packed) and (free is None or more <= free):
            _assign(task, fill, anew, own.tolist() + [fill.open(task, truck, stratum) for _ in range(more)])
            return
    packed = sorted(packed, key=len, reverse=True)[:free]  # without trucks enough, those that take most packages
    _assign(task, fill, packed, [fill.open(task, truck, stratum) for _ in packed])


def _bins_for(fill: Fill, stratum: int, capacity: int) -> IntArray:
    """Return the bins that may hold one stratum only, of one capacity."""
    held = frozenset({stratum})
    found = [b for b, strata in enumerate(fill.strata) if strata == held and fill.capacities[b] == capacity]
    return np.array(found, dtype=np.int64)


def _num_free(fill: Fill, truck: Truck) -> int | None:
    """Return how many trucks of a kind are left; None if there is no limit."""
    return None if truck.count is None else truck.count - sum(used.name == truck.name for used in fill.truck_of_bin)


def _free_truck(task: Task, fill: Fill) -> Truck | None:
    """Return the largest kind of truck of which one is left."""
    free = [truck for truck in task.plan.trucks if _num_free(fill, truck) != 0]
    return max(free, key=lambda truck: task.capacity_of[truck.name], default=None)


def _leave_fewest(task: Task, fill: Fill, noise: Noise, deadline: float) -> None:
    """Leave fewer rows behind where the same bins can be packed to hold all but the heaviest ones."""
    aside = _aside(task, fill)
    for stratum in np.unique(task.stratum[aside]).tolist():
        own = aside[task.stratum[aside] == stratum]
        bins = [b for b, held in enumerate(fill.strata) if held == frozenset({stratum})]
        capacities = {int(fill.capacities[b]) for b in bins}
        if len(own) < 2 or len(capacities) != 1:
            continue
        rows = np.concatenate([fill.rows_of(np.array(bins)), own])
        rows = rows[np.argsort(task.whole[rows], kind="stable")]
        for num_left in range(1, len(own)):
            packed = _packed(task, rows[:-num_left], min(capacities), noise, deadline)
            if packed is not None and len(packed) <= len(bins):
                for row in rows[-num_left:].tolist():
                    fill.put(task, row, LEFT_BEHIND)
                _assign(task, fill, packed, bins)
                break


def _mix(task: Task, fill: Fill, noise: Noise) -> None:
    """Swap rows that look alike at random wherever all still fits, so that the fill tells less of how it was found."""
    rows = np.concatenate([found for found in task.members if len(found) > 1] or [np.empty(0, dtype=np.int64)])
    if not len(rows):
        return
    steps = min(4 * len(rows), MOST_MIXING_STEPS)
    for row in rows[noise_arrays.below(noise, len(rows), steps)].tolist():
        members = task.members[task.group[row]]
        other = int(members[noise.below(len(members))])
        here, there = int(fill.bin_of_row[row]), int(fill.bin_of_row[other])
        less = task.whole[row] - task.whole[other]
        if LEFT_BEHIND in (here, there) or here == there:
            continue
        if fill.loads[here] - less <= fill.capacities[here] and fill.loads[there] + less <= fill.capacities[there]:
            fill.put(task, row, there)
            fill.put(task, other, here)


def _report(task: Task, fill: Fill, feasible: bool, num_found: int) -> dict[str, Any]:
    """Count what was changed. Net: rows of a group that traded places are permuted, the others moved."""
    before, after = task.plan.bin_of_row, fill.bin_of_row
    num_bins = len(fill.loads) + 1
    change = Counter((task.group * num_bins + after)[after != LEFT_BEHIND].tolist())
    change.subtract((task.group * num_bins + before).tolist())
    moved = sum(number for number in change.values() if number > 0)
    counts = {
        "permuted": int(((before != after) & (after != LEFT_BEHIND)).sum()) - moved,
        "moved": moved,
        "opened": len(fill.loads) - task.plan.objective,
        "left_behind": int((after == LEFT_BEHIND).sum()),
    }
    return {"feasible": feasible, **counts, "repairs_found": num_found, "sentence": _sentence(feasible, counts)}


def _sentence(feasible: bool, counts: dict[str, int]) -> str:
    words = {
        "permuted": "{} packages changed places with others of their class",
        "moved": "{} moved to another bin",
        "opened": "{} bins opened",
        "left_behind": "{} left behind",
    }
    done = ", ".join(text.format(counts[name]) for name, text in words.items() if counts[name])
    if feasible:
        return f"every bin fits: {done}."
    return (
        f"not every bin fits{f', though {done}' if done else ''}. Leave packages behind, or use more or larger trucks."
    )


def linkage_after(task: Task, final: Fill, mended: Repair | None) -> dict[str, Any]:
    """Restate truck linkage for the final bins; packages left behind count as if they were in one truck."""
    bins = np.where(final.bin_of_row == LEFT_BEHIND, len(final.loads), final.bin_of_row)
    linkage = truck_linkage(task.group, bins)
    note = f"{linkage['note']}; packages outside the plan travel in trucks of their own and are not hidden by it"
    if mended is None:
        return {**linkage, "note": note}
    found = most_frequent_share(np.array([_comparable(task, fill) for fill in mended.found]))
    share = np.maximum(linkage_of_rows(task.group, bins), found)
    return {
        "mean": float(share.mean()),
        "worst": float(share.max()),
        "kind": "estimate",
        "repairs": len(mended.found),
        "note": f"{note}; the repair was drawn from {len(mended.found)} found; others may exist, "
        "and few make the estimate high",
    }


def _comparable(task: Task, fill: Fill) -> IntArray:
    """Give bins the same numbers in all repairs: opened ones have none of their own, so they count as one."""
    return np.minimum(fill.bin_of_row, task.plan.objective)


def most_frequent_share(bins: IntArray) -> FloatArray:
    """Return for each row the share of its most frequent bin. Shapes: repairs x rows -> rows.

    Examples
    --------
    >>> most_frequent_share(np.array([[0, 1], [0, 2], [1, 3]])).round(2).tolist()
    [0.67, 0.33]
    """
    ranked = np.sort(bins, axis=0)
    run = np.ones(bins.shape[1], dtype=np.int64)
    longest = run.copy()
    for above, below in itertools.pairwise(ranked):
        run = np.where(above == below, run + 1, 1)
        longest = np.maximum(longest, run)
    return np.asarray(longest / len(bins))
