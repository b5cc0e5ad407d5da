# SPDX-License-Identifier: Apache-2.0
"""The state of a local search on classes, and the steps that kernels make on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dunnage.arrays import IntArray
from dunnage.clustering.constraints import Constraints, spare
from dunnage.clustering.growth import persons_of, rules_for, with_numbers
from dunnage.clustering.metric import Metric

VISITS = 100  # classes that are visited between two looks at the clock
STAGES = (3, 6, 12)  # classes looked at for each record of a class: more once nothing helps with fewer
ROUNDS = 2  # how often grown classes are visited to polish them
LARGE = 4, 64  # classes of more records than the first times k, plus the second, are left as they are

Clock = Callable[[], float]


@dataclass(eq=False)
class Search:
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
        from dunnage.clustering.refine_kernels import fill, new_room

        sizes = np.bincount(self.of_record)
        num, room, axes = len(sizes), int(max(2 * self.k, sizes.max()) + self.k), len(self.metric.charge)
        self.classes = (
            np.zeros((num, room), dtype=np.int64),
            np.zeros(num, dtype=np.int64),
            np.zeros(num),
            (np.zeros((len(self.metric.numbers), num)), np.zeros((len(self.metric.codes), num), dtype=np.int32)),
            np.zeros((num, axes, 2, room)),
            np.zeros((num, room)),
            np.zeros((num, axes, 2)),
            np.zeros(num + 1, dtype=np.int64),
        )
        self.extent = new_extent(self.metric.arrays)
        self.room = new_room(self.metric.arrays, self.classes)
        self.waiting = np.ones(num, dtype=np.bool_)
        records, starts = class_lists(self.of_record, num)
        fill(records, starts, self.metric.arrays, self.classes)
        persons = persons_of(self.person, np.arange(len(self.metric)))
        marks, counts = np.zeros(len(self.metric), dtype=np.int64), np.zeros(self.rules[2].shape, dtype=np.int64)
        single = self.person is None
        simple = single and len(self.rules[3]) == 0 and bool(np.isinf(self.rules[0]).all())
        self.demands = (self.k, persons, marks, single, simple, self.rules, counts)

    def run(self, end: float, clock: Clock, told: Callable[[], None]) -> None:
        """Improve classes until nothing helps or time is up."""
        place = stage = 0
        while clock() < end:
            if self.waiting.any():
                place = self.improve(place, STAGES[stage])
            elif self.dissolve() <= 0:
                if stage + 1 == len(STAGES):
                    return
                stage += 1
                self.waiting[:] = self.classes[1] > 0
            told()

    def step(self) -> None:
        """Make one step of each kind."""
        self.improve(0, STAGES[0])
        self.dissolve()

    def improve(self, place: int, nearest: int, num_visits: int = VISITS) -> int:
        """Visit some classes that wait, from a place on, once at most; return where to go on.

        Each is improved together with the classes whose middles are nearest to one of its records.
        """
        from dunnage.clustering.refine_kernels import improve

        arrays = self.metric.arrays
        further, _ = improve(
            place, num_visits, nearest, self.waiting, arrays, self.extent, self.classes, self.demands, self.room
        )
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
        slots, sizes = self.classes[:2]
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


def search_on(
    metric: Metric,
    found: IntArray,
    group: IntArray,
    k: int,
    person: IntArray | None,
    constraints: Constraints | None,
    price: float,
    lost: int,
) -> Search:
    """Return a search on a group of records that are whole classes."""
    taken = None if constraints is None else constraints.take(group)
    part = metric.take(group)
    return Search(
        with_numbers(part),
        renumbered(found[group]),
        k,
        None if person is None else person[group],
        rules_for(part, np.arange(len(group)), taken),
        price,
        max(0, spare(constraints, len(metric)) - lost),
    )


def small_enough(of_record: IntArray, k: int) -> IntArray:
    """Return the records of classes that a search looks at: not of those far larger than k, which need much room."""
    sizes = np.bincount(of_record[of_record >= 0])
    most = LARGE[0] * k + LARGE[1]
    return np.flatnonzero((of_record >= 0) & (np.append(sizes, most + 1)[of_record] <= most))


def polish(
    metric: Metric, of_record: IntArray, k: int, person: IntArray | None, constraints: Constraints | None
) -> IntArray:
    """Return the classes, each improved with the classes nearest to its records, and once more if it changed.

    Needs no clock: the same classes come out each time.
    """
    group = small_enough(of_record, k)
    if len(np.unique(of_record[group])) < 2:
        return of_record
    search = search_on(metric, of_record, group, k, person, constraints, 1.0, 0)
    for _ in range(ROUNDS):
        search.improve(0, 1, len(search.waiting))
    return search.put_back(of_record, group)
