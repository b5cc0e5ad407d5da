# SPDX-License-Identifier: Apache-2.0
"""Opening: set aside what overflows, pack rows anew by their true amounts, open bins, and leave as little as can be.

Which fills are found is part of what a repair tells, so even a packing's own seed and order are drawn from the noise.
"""

from __future__ import annotations

import time
from collections import Counter
from fractions import Fraction

import numpy as np

from dunnage import noise_arrays
from dunnage.arrays import IntArray
from dunnage.bins import BinKind, pack_bins, pack_vectors, whole_numbers
from dunnage.errors import NoPlanError
from dunnage.exact import exact
from dunnage.noise import Noise
from dunnage.planning.trucks import Truck
from dunnage.settle.task import LEFT_BEHIND, Fill, Task, WholeArray

REPACK_SECONDS = 1.0
MOST_REPACKED = 5000


def packed_rows(
    task: Task, rows: IntArray, capacity: WholeArray, noise: Noise, deadline: float
) -> list[IntArray] | None:
    """Pack rows into bins of one capacity by their true amounts."""
    if not task.fits(rows, capacity).all():
        return None
    rows = rows[noise_arrays.permutation(noise, len(rows))]
    seconds = _seconds_left(deadline)
    if len(capacity) == 1:
        numbers = whole_numbers(task.amounts[rows, 0], int(capacity[0]) / task.scales[0])
        bins = pack_bins(numbers.items, numbers.capacity, seconds=seconds, seed=noise.bits(32)).bins
    else:
        items, room, _ = task.kernel_numbers(rows, capacity[None])
        if (items > room).any():  # rounded outward
            return None
        kind = BinKind(capacity=tuple(room[0].tolist()))
        try:
            bins = pack_vectors(items, [kind], seconds=seconds, seed=noise.bits(32)).bins
        except NoPlanError:
            return None
    packed = [rows[items] for items in bins]
    return packed if all((task.whole[items].sum(axis=0) <= capacity).all() for items in packed) else None


def _seconds_left(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), REPACK_SECONDS / 10), REPACK_SECONDS)


def assign(fill: Fill, packed: list[IntArray], bins: list[int]) -> None:
    """Give each packed set the bin, of those left, that held most of it."""
    free = set(bins)
    before = [Counter(fill.bin_of_row[items].tolist()) for items in packed]
    for number in sorted(range(len(packed)), key=lambda i: -max(before[i].values())):
        known = [bin_ for bin_, _ in before[number].most_common() if bin_ in free]
        bin_ = known[0] if known else min(free)
        free.remove(bin_)
        for row in packed[number].tolist():
            fill.put(row, bin_)


def set_aside(fill: Fill) -> IntArray:
    """Return the rows set aside that some truck could take."""
    return np.flatnonzero((fill.bin_of_row == LEFT_BEHIND) & ~fill.task.too_heavy)


def spill(fill: Fill) -> None:
    """Set rows aside until every bin fits: as few as will do, the last one no heavier than needed."""
    task = fill.task
    for bin_ in fill.overloaded.tolist():
        rows = fill.rows_of(np.array([bin_]))
        rows = rows[np.argsort(task.size[rows], kind="stable")]
        while ((excess := fill.excess[bin_]) > 0).any():
            enough = np.flatnonzero((task.whole[rows] >= excess).all(axis=1))
            relief = task.priced(np.minimum(task.whole[rows], np.maximum(excess, 0)))
            taken = int(enough[0]) if len(enough) else int(np.argmax(relief))
            fill.put(int(rows[taken]), LEFT_BEHIND)
            rows = np.delete(rows, taken)
    _place_all(fill, set_aside(fill))


def _place_all(fill: Fill, rows: IntArray) -> None:
    """Put rows into bins that can take them, the heaviest first."""
    for row in sorted(rows.tolist(), key=lambda row: -int(fill.task.size[row])):
        _place(fill, row)


def _place(fill: Fill, row: int) -> None:
    """Put a row into the fullest bin that may and can take it, if there is one."""
    task, room = fill.task, -fill.excess
    able = np.flatnonzero((room >= task.whole[row]).all(axis=1))
    fitting = [bin_ for bin_ in able.tolist() if task.stratum[row] in fill.strata[bin_]]
    if fitting:
        priced = task.priced(room)
        fill.put(row, min(fitting, key=lambda bin_: int(priced[bin_])))


def open_bins(fill: Fill, noise: Noise, deadline: float) -> None:
    """Open bins for what was set aside, each stratum apart, at as little cost as can be found and as trucks allow."""
    task = fill.task
    for stratum in np.unique(task.stratum[set_aside(fill)]).tolist():
        _give_over(fill, noise, stratum, deadline)
        if len(task.plan.trucks) > 1:
            _open_cheapest(fill, noise, _aside_of(fill, stratum), deadline)
        while (truck := _next_truck(fill, rows := _aside_of(fill, stratum))) is not None:
            _open_kind(fill, noise, truck, rows[task.fits(rows, task.capacity_of[truck.name])], deadline)


def _aside_of(fill: Fill, stratum: int) -> IntArray:
    aside = set_aside(fill)
    found: IntArray = aside[fill.task.stratum[aside] == stratum]
    return found


def _give_over(fill: Fill, noise: Noise, stratum: int, deadline: float) -> None:
    """Pack other strata into fewer bins where they can do with fewer, and use those saved before any is opened."""
    for other in {next(iter(held)) for held in fill.strata if len(held) == 1} - {stratum}:
        single = [b for b, held in enumerate(fill.strata) if held == {other}]
        for room in {tuple(held) for held in fill.capacities[single].tolist()}:
            capacity = np.array(room, dtype=fill.capacities.dtype)
            own = _bins_for(fill, other, capacity)
            rows = fill.rows_of(own)
            loads = fill.loads[own].sum(axis=0)
            needed = max(-(-int(load) // most) for load, most in zip(loads, room, strict=True))
            if needed >= len(own) or not 0 < len(rows) <= MOST_REPACKED:
                continue
            packed = packed_rows(fill.task, rows, capacity, noise, deadline)
            if packed is None or len(packed) >= len(own):
                continue
            assign(fill, packed, own.tolist())
            for bin_ in set(own.tolist()) - set(fill.bin_of_row[rows].tolist()):
                fill.strata[bin_] = frozenset({stratum})
    _place_all(fill, _aside_of(fill, stratum))


def _open_cheapest(fill: Fill, noise: Noise, rows: IntArray, deadline: float) -> None:
    """Open bins of several kinds for rows of one stratum, at the least cost found; none if there are too few trucks."""
    task = fill.task
    free = [truck for truck in task.plan.trucks if fill.num_free(truck) != 0]
    rooms = np.array([task.capacity_of[truck.name] for truck in free], dtype=task.whole.dtype)
    if not free or not 0 < len(rows) <= MOST_REPACKED:
        return
    rows = rows[noise_arrays.permutation(noise, len(rows))]
    items, rooms, _ = task.kernel_numbers(rows, rooms)
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
    stratum = int(task.stratum[rows[0]])
    for packed, kind in zip(packing.bins, packing.kind_of_bin, strict=True):
        bin_ = fill.open(free[kind], stratum)
        for row in rows[packed].tolist():
            fill.put(row, bin_)


def _next_truck(fill: Fill, rows: IntArray) -> Truck | None:
    """Choose the kind of truck to open next: the cheapest that takes all the rows, else the most room for its cost."""
    task = fill.task
    free = [truck for truck in task.plan.trucks if fill.num_free(truck) != 0]
    free = [truck for truck in free if task.fits(rows, task.capacity_of[truck.name]).any()]
    if not free:
        return None
    total = task.whole[rows].sum(axis=0)
    enough = [truck for truck in free if (total <= task.capacity_of[truck.name]).all()]
    if enough:
        return min(enough, key=lambda truck: (exact(truck.cost, what="cost"), _room(task, truck)))
    return max(free, key=lambda truck: (_room(task, truck) / exact(truck.cost, what="cost"), _room(task, truck)))


def _room(task: Task, truck: Truck) -> Fraction:
    return Fraction(int(task.priced(task.capacity_of[truck.name][None])[0]))


def _open_kind(fill: Fill, noise: Noise, truck: Truck, rows: IntArray, deadline: float) -> None:
    """Open bins of one kind for rows of one stratum: beside the bins there are, or by packing those anew too."""
    task = fill.task
    capacity, stratum, free = task.capacity_of[truck.name], int(task.stratum[rows[0]]), fill.num_free(truck)
    packed = packed_rows(task, rows, capacity, noise, deadline) or np.split(rows, len(rows))
    own = _bins_for(fill, stratum, capacity)
    together = np.concatenate([fill.rows_of(own), rows])
    if len(packed) > 1 and len(together) <= MOST_REPACKED:
        anew = packed_rows(task, together, capacity, noise, deadline)
        more = max(len(anew) - len(own), 0) if anew is not None else len(packed)
        if anew is not None and more < len(packed) and (free is None or more <= free):
            assign(fill, anew, own.tolist() + [fill.open(truck, stratum) for _ in range(more)])
            return
    packed = sorted(packed, key=len, reverse=True)[:free]  # without trucks enough, those that take most packages
    assign(fill, packed, [fill.open(truck, stratum) for _ in packed])


def _bins_for(fill: Fill, stratum: int, capacity: WholeArray) -> IntArray:
    """Return the bins that may hold one stratum only, of one capacity."""
    held, alike = frozenset({stratum}), (fill.capacities == capacity).all(axis=1)
    return np.array([b for b, strata in enumerate(fill.strata) if strata == held and alike[b]], dtype=np.int64)


def leave_fewest(fill: Fill, noise: Noise, deadline: float) -> None:
    """Leave fewer rows behind where the same bins can be packed to hold all but the heaviest ones."""
    task = fill.task
    for stratum in np.unique(task.stratum[set_aside(fill)]).tolist():
        own = _aside_of(fill, stratum)
        bins = np.array([b for b, held in enumerate(fill.strata) if held == frozenset({stratum})], dtype=np.int64)
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
                assign(fill, packed, bins.tolist())
                break
