# SPDX-License-Identifier: Apache-2.0
"""Local search that makes classes cheaper: records change places, pairs are split anew, dear classes are dissolved.

Every step lowers the distortion and leaves all classes valid, so that the search may end at any time.
"""

from __future__ import annotations

import itertools
import time

import numpy as np

from dunnage.arrays import IntArray
from dunnage.clustering.blocks import blocks
from dunnage.clustering.constraints import Constraints, packed
from dunnage.clustering.growth import Progress, check
from dunnage.clustering.metric import Metric
from dunnage.clustering.search import Clock, renumbered, search_on, small_enough

GROUP = 3_000  # larger numbers of classes are searched in groups that lie apart


def refine(
    metric: Metric,  # Records, and what distances cost
    of_record: IntArray,  # Class of each record, from 0; -1 for records in none. The classes must be valid
    k: int,  # Smallest number of distinct persons in a class; of records when `person` is not given
    *,
    seconds: float,  # When to end, by the clock
    person: IntArray | None = None,  # Code of the person of each record, from 0
    constraints: Constraints | None = None,  # What classes must keep to besides. Without them no record is left out
    price: float = 1.0,  # What a record in no class costs
    progress: Progress | None = None,  # Called with the share of the time that is gone, 1 at the end
    clock: Clock = time.monotonic,  # Tells the time in seconds
) -> IntArray:
    """Return classes that cost no more than those given, found by local search.

    Two classes near each other exchange two records, one gives a record to the other, or both are split anew; a class
    whose records cost less elsewhere is dissolved. When nothing of this helps, classes farther off are looked at too.
    Ends when nothing helps there either, or when time is up. Classes of more than 4 k + 64 records stay as they are.
    """
    check(metric, k, person)
    found = _recalled(metric, of_record, constraints, price)
    groups = _groups(metric, found, k) if seconds > 0 else []
    if groups:  # a first run compiles kernels, which is no part of the search: two classes, thrown away
        two = np.flatnonzero(np.isin(found, np.unique(found[groups[0]])[:2]))
        search_on(metric, found, two, k, person, constraints, price, 0).step()
    start = clock()
    for number, group in enumerate(groups):
        # time that a group does not need is for those after it
        end = clock() + (start + seconds - clock()) / (len(groups) - number)
        lost = int((found < 0).sum())
        search = search_on(metric, found, group, k, person, constraints, price, lost)
        search.run(end, clock, lambda: _tell(progress, (clock() - start) / seconds))
        found = search.put_back(found, group)
    _tell(progress, 1.0)
    return _not_worse(metric, of_record, found, price)


def dissolve(
    metric: Metric,  # Records, and what distances cost
    of_record: IntArray,  # Class of each record, from 0; -1 for records in none. The classes must be valid
    k: int,  # Smallest number of distinct persons in a class; of records when `person` is not given
    *,
    person: IntArray | None = None,  # Code of the person of each record, from 0
    constraints: Constraints | None = None,  # What classes must keep to besides. Without them no record is left out
    price: float = 1.0,  # What a record in no class costs
) -> IntArray:
    """Return the classes without those whose records cost less elsewhere, dearest first.

    Each record of such a class goes to the class near by where it costs least in all, or into none at its price, as
    long as the constraints let records be left out. So records are suppressed without any limit on widths.
    """
    check(metric, k, person)
    found = _recalled(metric, of_record, constraints, price)
    for group in _groups(metric, found, k):
        search = search_on(metric, found, group, k, person, constraints, price, int((found < 0).sum()))
        while search.dissolve() > 0:
            continue
        found = search.put_back(found, group)
    return _not_worse(metric, of_record, found, price)


def _groups(metric: Metric, of_record: IntArray, k: int) -> list[IntArray]:
    """Return records of groups of classes that lie apart; one group unless there are many classes."""
    from dunnage.clustering.growth_kernels import class_lists
    from dunnage.clustering.refine_kernels import middles_of

    records = small_enough(of_record, k)
    inside = renumbered(of_record[records])
    num = int(inside.max(initial=-1)) + 1
    if num <= GROUP:
        return [records] if num > 1 else []
    middles = records[middles_of(*class_lists(inside, num), metric.take(records).arrays)]
    group_of_class = np.zeros(num, dtype=np.int64)
    for number, group in enumerate(blocks(metric.take(middles), 1, size=GROUP)):
        group_of_class[group] = number
    of_group = group_of_class[inside]
    order = np.argsort(of_group, kind="stable")
    borders = np.searchsorted(of_group[order], np.arange(of_group.max() + 2))
    return [records[order[start:end]] for start, end in itertools.pairwise(borders) if end > start]


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
