# SPDX-License-Identifier: Apache-2.0
"""Local search that makes classes cheaper: records change places, pairs are split anew, dear classes are dissolved.

Every step lowers the distortion and leaves all classes valid, so that the search may end at any time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dunnage.clustering.blocks import blocks
from dunnage.clustering.constraints import Constraints, packed, spare
from dunnage.clustering.growth import Progress, check, persons_of
from dunnage.clustering.metric import IntArray, Metric

VISITS = 100  # classes that are visited between two looks at the clock
GROUP = 3_000  # larger numbers of classes are searched in groups that lie apart

Clock = Callable[[], float]


def refine(
    metric: Metric,
    of_record: IntArray,
    k: int,
    *,
    seconds: float,
    person: IntArray | None = None,
    constraints: Constraints | None = None,
    price: float = 1.0,
    progress: Progress | None = None,
    clock: Clock = time.monotonic,
) -> IntArray:
    """Return classes that cost no more than those given, found by local search.

    Two classes near each other exchange two records, one gives a record to the other, or both are split anew; a class
    whose records cost less elsewhere is dissolved. Ends when nothing of this helps, or when time is up.

    Parameters
    ----------
    metric
        Records, and what distances cost.
    of_record
        Class of each record, from 0; -1 for records in none. The classes must be valid.
    k
        Smallest number of distinct persons in a class; of records when ``person`` is not given.
    seconds
        When to end, by the clock.
    person
        Code of the person of each record, from 0.
    constraints
        What classes must keep to besides. Without them no record is left out.
    price
        What a record in no class costs.
    progress
        Called with the share of the time that is gone, 1 at the end.
    clock
        Tells the time in seconds.
    """
    check(metric, k, person)
    found = _recalled(metric, of_record, constraints, price)
    groups = _groups(metric, found) if seconds > 0 else []
    if groups:  # a first run compiles kernels, which is no part of the search: two classes, thrown away
        _search(metric, found, np.flatnonzero((found == 0) | (found == 1)), k, person, constraints, price, 0).step()
    start = clock()
    for number, group in enumerate(groups):
        # time that a group does not need is for those after it
        end = clock() + (start + seconds - clock()) / (len(groups) - number)
        lost = int((found < 0).sum())
        search = _search(metric, found, group, k, person, constraints, price, lost)
        search.run(end, clock, lambda: _tell(progress, (clock() - start) / seconds))
        found = search.put_back(found, group)
    _tell(progress, 1.0)
    return _not_worse(metric, of_record, found, price)


def dissolve(
    metric: Metric,
    of_record: IntArray,
    k: int,
    *,
    person: IntArray | None = None,
    constraints: Constraints | None = None,
    price: float = 1.0,
) -> IntArray:
    """Return the classes without those whose records cost less elsewhere, dearest first.

    Each record of such a class goes to the class near by where it costs least in all, or into none at its price, as
    long as the constraints let records be left out. So records are suppressed without any limit on widths.

    Parameters
    ----------
    metric
        Records, and what distances cost.
    of_record
        Class of each record, from 0; -1 for records in none. The classes must be valid.
    k
        Smallest number of distinct persons in a class; of records when ``person`` is not given.
    person
        Code of the person of each record, from 0.
    constraints
        What classes must keep to besides. Without them no record is left out.
    price
        What a record in no class costs.
    """
    check(metric, k, person)
    found = _recalled(metric, of_record, constraints, price)
    for group in _groups(metric, found):
        search = _search(metric, found, group, k, person, constraints, price, int((found < 0).sum()))
        while search.dissolve() > 0:
            continue
        found = search.put_back(found, group)
    return _not_worse(metric, of_record, found, price)


@dataclass(eq=False)
class _Search:
    """Classes of some records, searched by kernels. Record numbers are those of ``metric``."""

    metric: Metric
    of_record: IntArray
    k: int
    person: IntArray | None
    rules: tuple[Any, ...]
    price: float
    spare: int
    classes: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        from dunnage.clustering.growth_kernels import class_lists, new_extent
        from dunnage.clustering.refine_kernels import fill

        sizes = np.bincount(self.of_record)
        num, room = len(sizes), int(max(2 * self.k, sizes.max()) + self.k)
        self.classes = (
            np.zeros((num, room), dtype=np.int64),
            np.zeros(num, dtype=np.int64),
            np.zeros(num),
            np.zeros(num, dtype=np.int64),
        )
        self.extent = new_extent(self.metric.arrays)
        self.waiting = np.ones(num, dtype=np.bool_)
        records, starts = class_lists(self.of_record, num)
        fill(records, starts, self.metric.arrays, self.extent, self.classes)
        persons = persons_of(self.person, np.arange(len(self.metric)))
        marks, counts = np.zeros(len(self.metric), dtype=np.int64), np.zeros(self.rules[2].shape, dtype=np.int64)
        self.demands = (self.k, persons, marks, self.person is None, self.rules, counts)

    def run(self, end: float, clock: Clock, told: Callable[[], None]) -> None:
        """Improve classes until nothing helps or time is up."""
        place = 0
        while clock() < end:
            if self.waiting.any():
                place = self.improve(place)
            elif self.dissolve() <= 0:
                return
            told()

    def step(self) -> None:
        """Make one step of each kind."""
        self.improve(0)
        self.dissolve()

    def improve(self, place: int) -> int:
        """Visit some classes that wait, from a place on; return where to go on."""
        from dunnage.clustering.refine_kernels import improve

        arrays = self.metric.arrays
        further, _ = improve(place, VISITS, self.waiting, arrays, self.extent, self.classes, self.demands)
        return int(further)

    def dissolve(self) -> float:
        """Dissolve classes where that helps, dearest first; return the gain."""
        from dunnage.clustering.refine_kernels import dissolve_dearest

        dearest = np.argsort(-self.classes[1] * self.classes[2], kind="stable")
        gain, lost = dissolve_dearest(
            dearest, self.metric.arrays, self.extent, self.classes, self.demands, self.price, self.spare, self.waiting
        )
        self.spare -= lost
        return float(gain)

    def put_back(self, found: IntArray, group: IntArray) -> IntArray:
        """Return all classes with those of this search in the place of a group of records."""
        slots, sizes, _, _ = self.classes
        inside = np.full(len(self.metric), -1, dtype=np.int64)
        for number, (records, size) in enumerate(zip(slots, sizes, strict=True)):
            inside[records[:size]] = number
        whole = found.copy()
        whole[group] = np.where(inside >= 0, inside + found.max() + 1, -1)
        return renumbered(whole)


def renumbered(of_record: IntArray) -> IntArray:
    """Return the same classes numbered from 0 without gaps, in their order; -1 stays."""
    kept = of_record >= 0
    found = np.full(len(of_record), -1, dtype=np.int64)
    found[kept] = np.unique(of_record[kept], return_inverse=True)[1]
    return found


def _search(
    metric: Metric,
    found: IntArray,
    group: IntArray,
    k: int,
    person: IntArray | None,
    constraints: Constraints | None,
    price: float,
    lost: int,
) -> _Search:
    """Return a search on a group of records that are whole classes."""
    taken = None if constraints is None else constraints.take(group)
    part = metric.take(group)
    return _Search(
        part,
        renumbered(found[group]),
        k,
        None if person is None else person[group],
        packed(taken, part),
        price,
        max(0, spare(constraints, len(metric)) - lost),
    )


def _groups(metric: Metric, of_record: IntArray) -> list[IntArray]:
    """Return records of groups of classes that lie apart; one group unless there are many classes."""
    from dunnage.clustering.growth_kernels import class_lists
    from dunnage.clustering.refine_kernels import middles_of

    num = int(of_record.max(initial=-1)) + 1
    if num <= GROUP:
        return [np.flatnonzero(of_record >= 0)] if num > 1 else []
    middles = middles_of(*class_lists(of_record, num), metric.arrays)
    group_of_class = np.zeros(num, dtype=np.int64)
    for number, inside in enumerate(blocks(metric.take(middles), 1, size=GROUP)):
        group_of_class[inside] = number
    group = np.where(of_record >= 0, group_of_class[of_record], -1)
    order = np.argsort(group, kind="stable")
    borders = np.searchsorted(group[order], np.arange(group.max() + 2))
    return [order[start:end] for start, end in itertools.pairwise(borders) if end > start]


def _recalled(metric: Metric, of_record: IntArray, constraints: Constraints | None, price: float) -> IntArray:
    """Return classes that take in the records in none that cost less than their price there."""
    from dunnage.clustering.growth_kernels import place_left

    found = np.array(of_record, dtype=np.int64)
    num, lost = int(found.max(initial=-1)) + 1, int((found < 0).sum())
    if num and lost:
        place_left(metric.arrays, found, num, packed(constraints, metric), price, lost)
    return found


def _not_worse(metric: Metric, before: IntArray, after: IntArray, price: float) -> IntArray:
    """Return the classes found, or those before if rounding made them dearer."""
    better = metric.total(after, price) < metric.total(before, price)
    return after if better else np.array(before, dtype=np.int64)


def _tell(progress: Progress | None, share: float) -> None:
    if progress is not None:
        progress(min(1.0, share))
