# SPDX-License-Identifier: Apache-2.0
"""Classes grown by what they are charged: each takes in the record that makes it least dearer.

The published method picks the members of a class by their distance to its head, but is charged the width of the
class. Growing by the charge itself costs 16 to 28 % less on 10,000 metro-like rides at k = 5 to 50. Heads are taken
where records lie densest, as published.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.clustering.constraints import Constraints, packed, spare
from dunnage.clustering.metric import Metric
from dunnage.errors import ParameterError

SMALL = 2_000  # up to here the published method is run too, for it takes no time, and the better result is kept
SAMPLE = 1_000  # records among which nearest ones are counted to find where records lie densest
SLACK = 1.3  # a class is put off if it costs so many times more than the next head promises
PATIENCE = 4  # how often a head is put off
TOLD_EVERY = 0.2  # seconds between two reports of how far growth is
LISTED = 2  # cheapest records that are listed at once, for each record a class needs, from 16 to 128

Progress = Callable[[float], None]


def grow(
    metric: Metric,  # Records, and what distances cost
    k: int,  # Smallest number of distinct persons in a class; of records when `person` is not given
    *,
    heads: Literal["density"] | IntArray = "density",
    constraints: Constraints | None = None,  # What classes must keep to besides
    person: IntArray | None = None,  # Code of the person of each record, from 0
    price: float = 1.0,  # What a record in no class costs
    patience: int = PATIENCE,
    progress: Progress | None = None,  # Called with the share of the work that is done
) -> IntArray:
    """Return the class of each record, from classes grown one after another; -1 for records in none.

    A class begins with the first head that is still free and takes in the free record that makes it least dearer,
    until it has k persons and meets the constraints; of equally dear records the one nearest to the head. Where heads
    go by density, a class that turns out much dearer than the next head promises is undone and its head put off: the
    cheapest classes come first, as long as their records are free. Records that are over go where they cost least in
    all. Where heads may be put off, each class and those nearest to its records at last exchange records, twice.
    With constraints, records that no class may take, or (up to the share that may be suppressed) that cost more than
    ``price`` everywhere, are in no class. Up to 2,000 records the result is never worse than that of the published
    density method, where that applies: no persons, no constraints.
    """
    check(metric, k, person)
    order, sorted_metric, lead = sort_for_search(metric)
    if isinstance(heads, str):
        keys = _densities(sorted_metric, lead, k)
    else:
        keys, patience = np.argsort(_as_order(heads, len(metric)))[order].astype(np.float64), 0
    found = np.empty(len(metric), dtype=np.int64)
    rules = rules_for(metric, order, constraints)
    may_lose = spare(constraints, len(metric))
    persons = persons_of(person, order)
    work = partial(_grow_sorted, sorted_metric, lead, k, keys, patience, order, rules, persons, price, may_lose)
    found[order] = _watched(work, len(metric), progress)
    if patience:
        from dunnage.clustering.search import polish

        found = polish(metric, found, k, person, constraints)
    if isinstance(heads, str) and constraints is None and person is None and k <= len(metric) <= SMALL:
        found = _better(metric, found, k)
    if progress is not None:
        progress(1.0)
    return found


def check(metric: Metric, k: int, person: IntArray | None) -> None:
    """Raise an error unless there are records, k is a number of persons and each record has its person."""
    if k < 1:
        raise ParameterError(f"k must be at least 1. Got {k}. Give the smallest number of persons in a class.")
    if person is not None and len(person) != len(metric):
        raise ParameterError(
            f"each record needs its person. Got {len(person)} persons for {len(metric)} records. Give one for each."
        )


def sort_for_search(metric: Metric) -> tuple[IntArray, Metric, int]:
    """Return an order of records, the metric in that order, and the numeric attribute it is sorted by.

    That is the attribute in which records lie farthest apart by what it charges. Without a numeric attribute a
    constant one is put in, which costs nothing.
    """
    metric = with_numbers(metric)
    lead = leading(metric)
    order = np.argsort(metric.numbers[lead], kind="stable")
    return order, metric.take(order), lead


def leading(metric: Metric) -> int:
    """Return the numeric attribute in which records lie farthest apart by what it charges."""
    return int(np.argmax(np.std(metric.numbers, axis=1) * metric.charge[: len(metric.numbers)]))


def with_numbers(metric: Metric) -> Metric:
    """Return the metric; without a numeric attribute, with a constant one put in, which costs nothing."""
    if len(metric.numbers):
        return metric
    zero, none = np.zeros((1, len(metric))), np.zeros(1)
    charge, near = np.concatenate((none, metric.charge)), np.concatenate((none, metric.near))
    return Metric(zero, metric.codes, metric.tables, charge, near)


def persons_of(person: IntArray | None, order: IntArray) -> IntArray:
    """Return the person of each record in an order, numbered without gaps; each record its own when not given."""
    if person is None:
        return np.arange(len(order), dtype=np.int64)
    return np.unique(person[order], return_inverse=True)[1].astype(np.int64)


def rules_for(metric: Metric, order: IntArray, constraints: Constraints | None) -> tuple[Any, ...]:
    """Return the rules for kernels on records that are sorted for the search."""
    limits, *others = packed(None if constraints is None else constraints.take(order), metric)
    free = [] if len(metric.numbers) else [np.inf]  # the attribute that was put in has no limit
    return (np.concatenate((free, limits)), *others)


def _densities(sorted_metric: Metric, lead: int, k: int) -> FloatArray:
    from dunnage.clustering.growth_kernels import densities

    stride = max(1, min(len(sorted_metric) // SAMPLE, k))
    found: FloatArray = densities(sorted_metric.arrays, lead, min(max(1, k - 1), len(sorted_metric)), stride)
    return found


def _grow_sorted(
    metric: Metric,
    lead: int,
    k: int,
    keys: FloatArray,
    patience: int,
    order: IntArray,
    rules: tuple[Any, ...],
    persons: IntArray,
    price: float,
    may_lose: int,
    num_done: IntArray,
) -> IntArray:
    """Grow classes of records that are sorted for the search; left-overs are placed. Counts records in classes."""
    from dunnage.clustering.growth_kernels import grow_classes, place_left

    found = np.full(len(metric), -1, dtype=np.int64)
    room = min(max(16, LISTED * k), 128)
    num = grow_classes(metric.arrays, keys, k, lead, persons, rules, order, room, SLACK, patience, found, num_done)
    place_left(metric.arrays, found, num, rules, price, may_lose)
    return found


def _watched(work: Callable[[IntArray], IntArray], num: int, progress: Progress | None) -> IntArray:
    """Return what work returns, which is given a place to count the records that are done; tell how many now and then.

    Work is compiled and lets other threads run: it goes on in one of its own, so that this one can tell.
    """
    num_done = np.zeros(1, dtype=np.int64)
    if progress is None:
        return work(num_done)
    from concurrent.futures import ThreadPoolExecutor, wait

    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(work, num_done)
        while not wait([future], timeout=TOLD_EVERY).done:
            progress(0.9 * int(num_done[0]) / num)
        return future.result()


def _better(metric: Metric, found: IntArray, k: int) -> IntArray:
    """Return the better of the grown classes and the published ones."""
    from dunnage.clustering.published import published_density

    published = published_density(metric, k)
    return published if metric.total(published) < metric.total(found) else found


def _as_order(heads: IntArray, num: int) -> IntArray:
    order = np.asarray(heads, dtype=np.int64)
    if not np.array_equal(np.sort(order), np.arange(num)):
        raise ParameterError(
            f"heads must name each record once. Got {len(order)} for {num} records. Give a permutation."
        )
    return order
