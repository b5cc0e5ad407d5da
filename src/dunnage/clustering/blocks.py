# SPDX-License-Identifier: Apache-2.0
"""Large tables cut into blocks that lie apart, each grouped by itself, so that time grows with the number of records.

Blocks come from cuts in two, as in Mondrian: each in the attribute in which records lie farthest apart by what the
metric charges. Numbers are cut between two values. Codes are put in line between two that are far apart and cut there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.clustering.constraints import Constraints
from dunnage.clustering.growth import Progress, grow
from dunnage.clustering.metric import CodeArray, Metric
from dunnage.errors import ParameterError

SIZE = 20_000  # a table of up to so many records is one block
TARGET = 12_500  # larger tables are cut into blocks of about so many

Method = Callable[..., IntArray]


def in_blocks(
    metric: Metric,  # Records, and what distances cost
    k: int,  # Smallest number of distinct persons in a class; of records when `person` is not given
    method: Method,
    *,
    size: int = SIZE,  # A table of up to so many records is one block
    constraints: Constraints | None = None,  # What classes must keep to besides
    person: IntArray | None = None,  # Code of the person of each record, from 0
    workers: int | None = None,  # How many blocks are grouped at once; as many as there are cores by default
    progress: Progress | None = None,  # Called with the share of records that are grouped
    **options: Any,
) -> IntArray:
    """Return the class of each record, from a method that is run on each block of the table, on several at once.

    The result does not depend on how many are run at once. A block that holds too few persons for one class is never
    cut off, so that every block can be grouped if the table can; records that a block leaves in no class stay so.
    """
    if size < 1:
        raise ParameterError(f"size must be at least 1. Got {size}. Give the largest number of records in one block.")

    def solved(block: IntArray) -> IntArray:
        given = dict(options)
        if constraints is not None:
            given["constraints"] = constraints.take(block)
        if person is not None:
            given["person"] = person[block]
        return method(metric.take(block), k, **given)

    return _joined(list(blocks(metric, k, size=size, person=person)), solved, workers or _num_cores(), progress)


def _joined(
    parts: list[IntArray], solved: Callable[[IntArray], IntArray], workers: int, progress: Progress | None
) -> IntArray:
    """Solve blocks in some threads, and number their classes one block after another, whichever was ready first."""
    from concurrent.futures import ThreadPoolExecutor, as_completed

    num_records = sum(map(len, parts))
    pool = ThreadPoolExecutor(max_workers=max(1, min(workers, len(parts))))
    try:
        futures = {pool.submit(solved, block): block for block in parts}
        done = 0
        for future in as_completed(futures):
            future.result()  # an error in one block ends all
            done += len(futures[future])
            if progress is not None:
                progress(done / num_records)
    finally:
        pool.shutdown(cancel_futures=True)
    found, num = np.full(num_records, -1, dtype=np.int64), 0
    for future, block in futures.items():
        inside = future.result()
        found[block] = np.where(inside >= 0, inside + num, -1)
        num += int(inside.max(initial=-1)) + 1
    return found


def _num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def grow_in_blocks(
    metric: Metric,  # Records, and what distances cost
    k: int,  # Smallest number of distinct persons in a class; of records when `person` is not given
    *,
    size: int = SIZE,  # A table of up to so many records is one block
    constraints: Constraints | None = None,  # What classes must keep to besides
    person: IntArray | None = None,  # Code of the person of each record, from 0
    price: float = 1.0,  # What a record in no class costs
    workers: int | None = None,  # How many blocks are grouped at once; as many as there are cores by default
    progress: Progress | None = None,  # Called with the share of records that are grouped
) -> IntArray:
    """Return classes grown in blocks: with heads put off in a table of one block, without in larger ones, for time."""
    given: dict[str, Any] = {"constraints": constraints, "person": person, "price": price, "progress": progress}
    if len(metric) <= size:
        return grow(metric, k, **given)
    return in_blocks(metric, k, grow, size=size, workers=workers, patience=0, **given)


def blocks(metric: Metric, k: int, *, size: int = SIZE, person: IntArray | None = None) -> Iterator[IntArray]:
    """Give the records of each block, in ascending order."""
    # block, and how many parts it is still to be cut into: parts of equal size need equal time
    waiting = [
        (np.arange(len(metric), dtype=np.int64), 1 if len(metric) <= size else -(-len(metric) // min(size, TARGET)))
    ]
    while waiting:
        block, parts = waiting.pop()
        sides = _sides(metric, block, parts // 2 / parts, k, person) if parts > 1 else None
        if sides is None:
            yield block
        else:
            waiting += [(sides[1], parts - parts // 2), (sides[0], parts // 2)]


def _sides(
    metric: Metric, block: IntArray, share: float, k: int, person: IntArray | None
) -> tuple[IntArray, IntArray] | None:
    """Return both sides of a block, cut in the first attribute of the widest that leaves each k persons."""
    for axis in np.argsort(-_spreads(metric, block), kind="stable"):
        first = _first_side(metric, block, int(axis), share)
        sides = block[first], block[~first]
        if min(_num_persons(side, person) for side in sides) >= max(k, 1):
            return sides
    return None


def _spreads(metric: Metric, block: IntArray) -> FloatArray:
    """Return how far apart the records of a block lie in each attribute: charged mean distance from a middle one."""
    numbers = [float(np.mean(np.abs(column[block] - np.median(column[block])))) for column in metric.numbers]
    coded = []
    for column, table in zip(metric.codes, metric.tables, strict=True):
        counts = np.bincount(column[block], minlength=len(table))
        coded.append(float((table @ counts).min()) / len(block))
    return np.asarray(metric.charge * np.array(numbers + coded))


def _first_side(metric: Metric, block: IntArray, axis: int, share: float) -> Any:
    """Return which records of a block are on the first side of a cut in one attribute: about a share of them."""
    wanted = int(share * len(block))
    if axis < len(metric.numbers):
        column = metric.numbers[axis, block]
        border = np.partition(column, wanted)[wanted]
        below, up_to = column < border, column <= border  # equal numbers stay together
        return below if abs(below.sum() - wanted) <= abs(up_to.sum() - wanted) else up_to
    codes = metric.codes[axis - len(metric.numbers), block]
    return _first_codes(codes, metric.tables[axis - len(metric.numbers)], wanted)[codes]


def _first_codes(codes: CodeArray, table: FloatArray, wanted: int) -> Any:
    """Return which codes are on the first side, put in line between two that are far apart."""
    counts = np.bincount(codes, minlength=len(table))
    present = np.flatnonzero(counts)
    inside = table[np.ix_(present, present)]
    middle = int(np.argmin(inside @ counts[present]))
    one = int(np.argmax(inside[middle]))
    other = int(np.argmax(inside[one]))
    line = present[np.argsort(inside[one] - inside[other], kind="stable")]
    up_to = np.cumsum(counts[line])
    num = 1 + int(np.argmin(np.abs(up_to - wanted)))
    first = np.zeros(len(table), dtype=np.bool_)
    first[line[:num]] = True
    return first


def _num_persons(records: IntArray, person: IntArray | None) -> int:
    return len(records) if person is None else len(np.unique(person[records]))
