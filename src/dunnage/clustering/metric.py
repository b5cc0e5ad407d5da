# SPDX-License-Identifier: Apache-2.0
"""One metric for all attributes: numbers, and codes with a table of distances.

A class is charged, for each attribute, its largest pairwise distance over the diameter of the domain, times the weight
of the attribute (Bhati et al. 2021, eqs. 15 and 20): the range of its numbers, the leaves below the lowest common node
of a tree, the longest shortest path between its stations. Two records are near or far by a second set of weights
(eqs. 7-13), in which distances are scaled by their maximum or by their standard deviation.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray

CodeArray = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    """Records as numbers and codes, with what distances count. Private: its ``repr`` shows nothing.

    Attributes are in one order throughout: numeric ones first, then coded ones.
    """

    numbers: FloatArray  # Numeric attributes. Shape: attributes, records
    codes: CodeArray  # Coded attributes. Shape: attributes, records
    tables: tuple[FloatArray, ...]  # For each coded attribute the symmetric distances of its codes
    # What a unit of the largest pairwise distance in a class costs, per attribute: weight over diameter
    charge: FloatArray
    near: FloatArray  # What a unit of distance between two records counts when neighbours are looked for, per attribute

    def __post_init__(self) -> None:
        num = len(self.numbers) + len(self.codes)
        if not (len(self.tables) == len(self.codes) and len(self.charge) == len(self.near) == num):
            raise ValueError("one table a coded attribute, one weight an attribute")

    def __len__(self) -> int:
        return int(self.numbers.shape[1] if len(self.numbers) else self.codes.shape[1])

    @cached_property
    def flat(self) -> tuple[FloatArray, IntArray, IntArray]:
        """The tables as one array for kernels: entries, where each table starts, and how many codes it has."""
        sizes = np.array([len(table) for table in self.tables], dtype=np.int64)
        starts = np.concatenate(([0], np.cumsum(sizes * sizes)))[: len(sizes)].astype(np.int64)
        entries = np.concatenate([table.ravel() for table in self.tables]) if self.tables else np.zeros(0)
        return np.ascontiguousarray(entries, dtype=np.float64), starts, sizes

    @cached_property
    def arrays(self) -> tuple[Any, ...]:
        """Everything kernels take, in their order: numbers, codes, entries, starts, sizes, charge, near."""
        return (
            np.ascontiguousarray(self.numbers, dtype=np.float64),
            np.ascontiguousarray(self.codes, dtype=np.int32),
            *self.flat,
            np.ascontiguousarray(self.charge, dtype=np.float64),
            np.ascontiguousarray(self.near, dtype=np.float64),
        )

    def take(self, records: IntArray) -> Metric:
        """Return the same metric on some records, in their order."""
        return Metric(self.numbers[:, records], self.codes[:, records], self.tables, self.charge, self.near)

    def widths(self, of_record: IntArray) -> FloatArray:
        """Return the largest pairwise distance of each class in each attribute. Shape: attributes, classes."""
        num = int(of_record.max(initial=-1)) + 1
        found = np.zeros((len(self.charge), num))
        inside = np.flatnonzero(of_record >= 0)
        for axis, column in enumerate(self.numbers):
            low, high = np.full(num, np.inf), np.full(num, -np.inf)
            np.minimum.at(low, of_record[inside], column[inside])
            np.maximum.at(high, of_record[inside], column[inside])
            found[axis] = high - low
        for axis, (column, table) in enumerate(zip(self.codes, self.tables, strict=True), len(self.numbers)):
            found[axis] = _code_widths(of_record, column, table, num)
        return found

    def costs(self, of_record: IntArray) -> FloatArray:
        """Return what each class is charged for each of its records."""
        return self.charge @ self.widths(of_record)

    def total(self, of_record: IntArray, price: float = 1.0) -> float:
        """Return the distortion of all records: classes by their size, and a price for each record in none (eq. 14)."""
        kept = of_record[of_record >= 0]
        sizes = np.bincount(kept) if len(kept) else np.zeros(0)
        lost = len(of_record) - len(kept)
        return float((sizes @ self.costs(of_record) if len(kept) else 0.0) + price * lost) / len(of_record)


def _code_widths(of_record: IntArray, codes: CodeArray, table: FloatArray, num: int) -> FloatArray:
    """Return the largest distance between two codes of each class."""
    pairs = np.unique(of_record.astype(np.int64) * len(table) + codes)
    pairs = pairs[pairs >= 0]  # records in no class come out below 0
    classes, present = np.divmod(pairs, len(table))
    starts = np.concatenate((np.searchsorted(classes, np.arange(num)), [len(classes)]))
    return np.array([table[np.ix_(present[a:b], present[a:b])].max(initial=0.0) for a, b in itertools.pairwise(starts)])


def partition_of(classes: Sequence[IntArray], num_records: int) -> IntArray:
    """Return the class of each record from lists of records; -1 for records in none."""
    of_record = np.full(num_records, -1, dtype=np.int64)
    for number, records in enumerate(classes):
        of_record[records] = number
    return of_record
