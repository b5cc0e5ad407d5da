# SPDX-License-Identifier: Apache-2.0
"""Cells of trips that are counted where they live: the fold that counts them, and the trips of each rider that count.

The trips of a rider may be anywhere. Each is sent to a bucket by the digest of its rider, and there the same choice is
made as in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import IntArray
from dunnage.mechanisms.counts import MAX_TRIPS, BoundedSums, Counted, keep_few, record_cells, true_counts
from dunnage.model.schema import Contribution
from dunnage.noise.priorities import digests
from dunnage.tables.columns import Private

if TYPE_CHECKING:
    from dunnage.tables.dataset import Dataset

MAX_TABLE_CELLS = 1 << 25  # up to here the sums are a table of all cells, beyond it a list of those that occur
_MIN_PENDING = 1 << 22


class CellSums(Private):
    """How many trips each cell has, at most :data:`~dunnage.mechanisms.counts.MAX_TRIPS`."""

    def __init__(self, num_cells: int) -> None:
        self._table = np.zeros(num_cells, dtype=np.int64) if num_cells <= MAX_TABLE_CELLS else None
        self._lists = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))]

    def add(self, cells: IntArray, counts: IntArray) -> None:
        """Add the counts of cells that all differ."""
        if self._table is not None:
            self._table[cells] = np.minimum(self._table[cells] + counts, MAX_TRIPS)
            return
        self._lists.append((cells, counts))
        if sum(len(more) for more, _ in self._lists[1:]) > max(_MIN_PENDING, len(self._lists[0][0])):
            self._lists = [self.listed()]

    def listed(self) -> tuple[IntArray, IntArray]:
        """Return the cells that have trips, rising, and how many each has."""
        if self._table is not None:
            cells = np.flatnonzero(self._table)
            return cells, self._table[cells]
        cells, counts = (np.concatenate(parts) for parts in zip(*self._lists, strict=True))
        order = np.argsort(cells, kind="stable")
        occupied, starts = np.unique(cells[order], return_index=True)
        sums = np.add.reduceat(counts[order], starts) if len(starts) else counts
        return occupied, np.minimum(sums, MAX_TRIPS)


@dataclass(frozen=True)
class CellFold:
    num_cells: int

    def start(self) -> CellSums:
        return CellSums(self.num_cells)

    def add(self, state: CellSums, dataset: Dataset) -> None:
        counted = true_counts(dataset)
        state.add(counted.cells, counted.counts)

    def merge(self, state: CellSums, other: CellSums) -> None:
        state.add(*other.listed())

    def dump(self, state: CellSums) -> bytes:
        return np.stack(state.listed()).tobytes()

    def load(self, data: bytes) -> CellSums:
        state = self.start()
        state.add(*np.frombuffer(data, dtype=np.int64).reshape(2, -1))
        return state

    def result(self, state: CellSums) -> tuple[IntArray, IntArray]:
        return state.listed()


_NUM_BUCKETS = 256
_TRIP = np.dtype([("rider", "<u8", 2), ("row", "<i8"), ("day", "<i8"), ("cell", "<i8")])


@dataclass(frozen=True, repr=False, kw_only=True)
class RiderTrips(Private):
    bound: Contribution
    period: str | None
    key: bytes
    most: int  # trips of one rider that count

    num_buckets = _NUM_BUCKETS

    def spread(self, dataset: Dataset) -> Iterator[tuple[int, bytes]]:
        trips = np.zeros(len(dataset), dtype=_TRIP)
        encoded = dataset.rider_labels()
        # A letter before each label, so that none is empty.
        label, nothing = (pa.scalar(text, pa.large_string()) for text in ("r", ""))
        joined = pc.binary_join_element_wise(label, encoded.dictionary.cast(pa.large_string()), nothing)
        _, offsets, data = joined.buffers()
        ends = np.frombuffer(offsets, dtype=np.int64)[joined.offset : joined.offset + len(joined) + 1]
        if len(joined):
            content = np.frombuffer(data, dtype=np.uint8)[ends[0] :]
            trips["rider"] = digests(self.key, content, ends[1:] - ends[0])[
                encoded.indices.to_numpy(zero_copy_only=False)
            ]
        trips["row"], trips["day"] = dataset.source_rows, dataset.service_dates
        trips["cell"] = record_cells(dataset, dataset.schema.universe(self.period))
        bucket = (trips["rider"][:, 0] >> np.uint64(56)).astype(np.uint8)  # of bytes, numpy makes a radix sort
        order, ends = np.argsort(bucket, kind="stable"), np.cumsum(np.bincount(bucket, minlength=_NUM_BUCKETS))
        for number, (start, end) in enumerate(zip((0, *ends), ends, strict=False)):
            if end > start:
                yield number, trips[order[start:end]].tobytes()

    def gather(self, content: bytes) -> bytes:
        trips = np.frombuffer(content, dtype=_TRIP)
        _, riders = np.unique(trips["rider"], axis=0, return_inverse=True)
        groups = riders = riders.reshape(-1)
        if self.bound.per == "day":
            groups = riders * (int(trips["day"].max(initial=0)) + 1) + trips["day"]
        kept = keep_few(self.key, self.bound, trips["row"], riders, groups, trips["cell"])
        cells, counts = np.unique(trips["cell"][kept], return_counts=True)
        sums = BoundedSums.of(riders, np.ones(len(trips), dtype=bool), kept, self.bound, self.most)
        return np.concatenate([sums, cells, counts]).astype(np.int64).tobytes()

    def result(self, dataset: Dataset) -> tuple[Counted, BoundedSums]:
        universe = dataset.schema.universe(self.period)
        total, figures = CellSums(universe.num_cells), np.zeros(3, dtype=np.int64)
        for content in dataset.sort_rows(self):
            part = np.frombuffer(content, dtype=np.int64)
            figures += part[:3]
            total.add(*part[3:].reshape(2, -1))
        cells, counts = total.listed()
        most = max(1, MAX_TRIPS // universe.num_cells)
        counted = Counted(universe=universe, cells=cells, counts=np.minimum(counts, most))
        return counted, BoundedSums(*figures.tolist())
