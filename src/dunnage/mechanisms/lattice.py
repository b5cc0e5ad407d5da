# SPDX-License-Identifier: Apache-2.0
"""The lattice of generalisations: a node is one level of a public hierarchy for each attribute.

What the mechanisms that choose one node for a whole table share: rows encoded once, and the groups that they form at
any node, merged from those of a node below it. Groups only merge on the way up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dunnage.arrays import BoolArray, IntArray
from dunnage.domains import Hierarchy, IntervalHierarchy, hierarchy_of
from dunnage.errors import ParameterError
from dunnage.mechanisms.recode import Generalised, Intervals, Nodes
from dunnage.schema import Attribute, Schema

if TYPE_CHECKING:
    from dunnage.tables.dataset import Dataset

Node = tuple[int, ...]
"""One level for each attribute."""

LARGEST_KEY = 2**62


def hierarchies_of(schema: Schema, *, mechanism: str, verb: str, most_nodes: int) -> dict[str, Hierarchy]:
    """Return the hierarchy of each quasi-identifier by name; refuse what has none, and a lattice that is too large."""
    attributes = schema.quasi_identifiers
    if not attributes:
        raise ParameterError(f"{mechanism} generalises quasi-identifiers. Got none. Give one column or more that role.")
    hierarchies = {attribute.name: _hierarchy(attribute) for attribute in attributes}
    num_nodes = math.prod(hierarchy.num_levels for hierarchy in hierarchies.values())
    if num_nodes > most_nodes:
        raise ParameterError(
            f"{mechanism} {verb} at most {most_nodes} combinations of levels. Got {num_nodes}. Use hierarchies "
            "with fewer levels (a larger doubling), or fewer quasi-identifiers."
        )
    return hierarchies


def _hierarchy(attribute: Attribute) -> Hierarchy:
    if attribute.domain is None:  # a schema has no such quasi-identifier
        raise ParameterError(f"attribute {attribute.name!r} has no domain. Give it a kind and a domain.")
    if attribute.name == "size" and attribute.kind != "numeric":
        raise ParameterError(
            "a quasi-identifier of labels cannot be named 'size': the table of classes has such a column. Rename it."
        )
    try:
        return hierarchy_of(attribute.domain)
    except ParameterError as error:
        raise ParameterError(f"attribute {attribute.name!r}: {error}") from None


@dataclass(frozen=True, eq=False)
class Column:
    """One attribute of the rows: its distinct values, and what becomes of each value at each level.

    ``values`` are numbers, or codes of labels, in order; ``codes`` says which of them a row has. ``groups[level]``
    numbers their generalisations without gaps, ``widths[level]`` says how wide these are.
    """

    name: str
    hierarchy: Hierarchy
    values: npt.NDArray[Any]
    codes: IntArray
    groups: tuple[IntArray, ...]
    widths: tuple[IntArray, ...]

    @classmethod
    def of(cls, dataset: Dataset, name: str, hierarchy: Hierarchy, rows: IntArray) -> Column:
        values, codes = np.unique(_values(dataset, name, hierarchy)[rows], return_inverse=True)
        groups, widths = [], []
        for level in range(hierarchy.num_levels):
            groups.append(np.unique(hierarchy.groups(values, level), return_inverse=True)[1])
            widths.append(hierarchy.widths(values, level))
        return cls(name, hierarchy, values, codes, tuple(groups), tuple(widths))

    @cached_property
    def num_groups(self) -> tuple[int, ...]:
        return tuple(int(groups.max()) + 1 for groups in self.groups)

    @cached_property
    def in_order(self) -> bool:
        """Whether values that merge on some level are neighbours, so that the order of values keeps them together."""
        return all(bool((np.diff(groups) >= 0).all()) for groups in self.groups)

    def told(self, rows: IntArray, level: int) -> Generalised:
        values = self.values[self.codes[rows]]
        if isinstance(self.hierarchy, IntervalHierarchy):
            lower, upper = self.hierarchy.bounds(values, level)
            return Intervals(name=self.name, lower=lower, upper=upper)
        labels = self.hierarchy.labels(level)
        return Nodes(name=self.name, labels=tuple(labels[code] for code in values.tolist()))


def _values(dataset: Dataset, name: str, hierarchy: Hierarchy) -> npt.NDArray[Any]:
    if isinstance(hierarchy, IntervalHierarchy):
        return dataset.numbers(name)
    encoded = dataset.column(name).dictionary_encode()
    codes = hierarchy.domain.codes(np.asarray(encoded.dictionary.to_pylist(), dtype=object))
    indices: IntArray = encoded.indices.to_numpy(zero_copy_only=False)
    return codes[indices]


@dataclass(frozen=True, eq=False)
class Groups:
    """Records that look alike at a node: one of each group, and how many there are."""

    record: IntArray
    sizes: IntArray


@dataclass(frozen=True, eq=False)
class Records:
    """Rows that differ in something; equal rows are one record that counts several times."""

    stratum: IntArray
    num_strata: int
    columns: Sequence[Column]
    codes: tuple[IntArray, ...]
    counts: IntArray
    of_row: IntArray

    @classmethod
    def of(cls, stratum: IntArray, columns: Sequence[Column]) -> Records:
        num_strata = int(stratum.max()) + 1
        keys, _ = _combined([(stratum, num_strata), *((c.codes, len(c.values)) for c in columns)])
        _, first, of_row, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        codes = tuple(column.codes[first] for column in columns)
        return cls(stratum[first], num_strata, columns, codes, counts.astype(np.int64), of_row)

    @property
    def bottom(self) -> Groups:
        """Every record by itself: what all nodes can be reached from."""
        return Groups(np.arange(len(self.counts)), self.counts)

    def keys(self, node: Node, record: IntArray) -> tuple[IntArray, int]:
        """Give some records a number each, equal if they look alike at a node; also a bound of the numbers."""
        parts = [(self.stratum[record], self.num_strata)]
        for column, codes, level in zip(self.columns, self.codes, node, strict=True):
            parts.append((column.groups[level][codes[record]], column.num_groups[level]))
        return _combined(parts)

    def merged(self, node: Node, finer: Groups) -> Groups:
        """Return the groups of a node from those of a node below it: groups only merge."""
        keys, num_keys = self.keys(node, finer.record)
        if num_keys <= 4 * len(keys) + 1024:
            sizes = np.bincount(keys, weights=finer.sizes, minlength=num_keys)  # counts are exact in a double
            record = np.empty(num_keys, dtype=np.int64)
            record[keys] = finer.record
            present = np.flatnonzero(sizes)
            return Groups(record[present], sizes[present].astype(np.int64))
        order = np.argsort(keys)
        starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        return Groups(finer.record[order[starts]], np.add.reduceat(finer.sizes[order], starts))

    def only(self, chosen: BoolArray) -> Records:
        """Return the records with the rows that were chosen counted alone; one that none is left of counts 0."""
        counts = np.bincount(self.of_row[chosen], minlength=len(self.counts))
        return replace(self, counts=counts.astype(np.int64))

    def class_of_row(self, node: Node, k: int) -> IntArray:
        """Return the class of each row at a node, in the order of public values and generalisations; -1 below k."""
        keys, _ = self.keys(node, np.arange(len(self.counts)))
        _, group = np.unique(keys, return_inverse=True)
        kept = np.bincount(group, weights=self.counts) >= k
        number = np.where(kept, np.cumsum(kept) - 1, -1)
        return np.asarray(number[group][self.of_row], dtype=np.int64)

    def kept_counts(self, k: int) -> IntArray:
        """Count for every node the rows in groups of at least k. Shape: an axis of levels for each attribute."""
        counts = np.zeros([len(column.groups) for column in self.columns], dtype=np.int64)
        present = np.flatnonzero(self.counts)
        if len(present) >= 1:
            self._count(counts, (), Groups(present, self.counts[present]), k)
        return counts

    def _count(self, counts: IntArray, levels: Node, groups: Groups, k: int) -> None:
        """Fill in the nodes that begin with some levels, from the groups of the lowest of them.

        Each attribute is climbed level by level, so that no more groups are held at a time than one set for each.
        """
        if len(levels) == counts.ndim:
            counts[levels] = groups.sizes[groups.sizes >= k].sum()
            return
        if len(levels) == counts.ndim - 1 and self.columns[-1].in_order:
            counts[levels] = self._count_last(levels, groups, k)
            return
        for level in range(counts.shape[len(levels)]):
            node = (*levels, level)
            if level:
                groups = self.merged(node + (0,) * (counts.ndim - len(node)), groups)
            self._count(counts, node, groups, k)

    def _count_last(self, levels: Node, groups: Groups, k: int) -> list[int]:
        """Count the rows in groups of at least k at every level of the last attribute, the others staying as they are.

        Groups come in the order of the others, then of values, so that what merges on any level stands side by side.
        """
        parts = [(self.stratum[groups.record], self.num_strata)]
        for column, codes, level in zip(self.columns, self.codes, levels, strict=False):
            parts.append((column.groups[level][codes[groups.record]], column.num_groups[level]))
        others, value = _combined(parts)[0], self.codes[-1][groups.record]
        sizes, begins = groups.sizes, np.diff(others, prepend=-1) != 0
        found = []
        for of_value in self.columns[-1].groups:
            starts = np.flatnonzero(begins | (np.diff(of_value[value], prepend=-1) != 0))
            value, begins, sizes = value[starts], begins[starts], np.add.reduceat(sizes, starts)
            found.append(int(sizes[sizes >= k].sum()))
        return found


def _combined(parts: Sequence[tuple[IntArray, int]]) -> tuple[IntArray, int]:
    """Make one number of several, each below its bound, that keeps their order; also its bound."""
    keys, num_keys = parts[0]
    for codes, num in parts[1:]:
        if num_keys * num >= LARGEST_KEY:
            present, keys = np.unique(keys, return_inverse=True)
            num_keys = len(present)
        keys, num_keys = keys * num + codes, num_keys * num
    return keys, num_keys


def lost_widths(columns: Sequence[Column], rows: IntArray, sizes: IntArray, node: Node) -> list[Fraction]:
    """Add up what classes lose at a node, by attribute: their widths as shares of the domain, times their sizes."""
    return [
        Fraction(_exact_sum(column.widths[level][column.codes[rows]], sizes), column.hierarchy.whole)
        for column, level in zip(columns, node, strict=True)
    ]


def _exact_sum(widths: IntArray, sizes: IntArray) -> int:
    # Products may pass 2**63; halves of 26 bits do not.
    high, low = np.divmod(widths, 2**26)
    return int(np.dot(high, sizes)) * 2**26 + int(np.dot(low, sizes))
