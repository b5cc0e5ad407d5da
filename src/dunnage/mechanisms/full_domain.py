# SPDX-License-Identifier: Apache-2.0
"""FullDomain: generalise each attribute to one level of its public hierarchy, with as little loss as possible.

The problem is that of Flash (Kohlmayer, Prasser, Eckert, Kemper and Kuhn 2012) with the loss metric of Hoogervorst et
al. 2019, eq. 7. A node of the lattice is one level for each attribute. Classes only merge on the way up. But
suppression has a price, so the best node need not be the lowest one without suppression, and the search uses bounds of
the loss itself. ``docs/proofs/full-domain.md`` derives them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from pydantic import ValidationInfo

from dunnage.arrays import BoolArray, IntArray
from dunnage.errors import ParameterError, Refusal
from dunnage.exact import exact, shown_number
from dunnage.mechanisms.base import PLAIN, K, Progress, optional
from dunnage.mechanisms.classes import (
    NOT_SIZE,
    Alpha,
    ClassMechanism,
    EquivalenceClasses,
    FinestFold,
    Generalised,
    Importance,
    Intervals,
    Nodes,
    Statistic,
    check_stratum_sizes,
    refuse_empty,
)
from dunnage.model.domains import Domain
from dunnage.model.guarantees import Promise
from dunnage.model.hierarchies import Hierarchy, IntervalHierarchy, hierarchy_of
from dunnage.model.measures import class_sizes
from dunnage.model.schema import Schema
from dunnage.tables.finest import MAX_KEY, Finest, combined

if TYPE_CHECKING:
    from dunnage.tables.dataset import Dataset

CostArray = npt.NDArray[Any]  # whole numbers, exact: int64, or Python's own where those could overflow
MAX_NODES = 2**18  # nodes of a lattice to search
Node = tuple[int, ...]  # one level for each attribute


def _share(given: Any, info: ValidationInfo) -> Fraction:
    share = exact(given, what="max_suppressed")
    if not 0 <= share <= 1:
        raise ParameterError(f"max_suppressed must be a share from 0 to 1. Got {shown_number(share)}.")
    return share


class FullDomain(ClassMechanism):
    """Release each attribute at one level of its public hierarchy, at least k records to a combination.

    Parameters
    ----------
    k
        Smallest number of records that must look alike.
    alpha
        Price of suppressing one record, in records generalised to the whole domain.
    max_suppressed
        Largest share of records that may be suppressed, 0 to 1; None for no limit. Records of small strata count.
    importance
        Weight of an attribute in the loss, by its name; 1 by default.
    statistic
        What is released about a class: its ``bounds``, also the ``mean`` of its numbers, or the ``multiset`` of its
        values.

    Guarantee
    ---------
    k-anonymity over public and generalised columns together, proved: the mechanism counts the classes.

    Assumptions
    -----------
    Public domains and hierarchies; one record per protected unit; the levels depend on the data; a refusal may depend
    on the data.

    Runtime
    -------
    O(n) to count the combinations of values, then for each node of the lattice that the bounds do not exclude a number
    of steps in proportion to the combinations.

    Utility
    -------
    Exact minimum of the loss metric (eq. 7) over all nodes of the lattice. Among equals it takes the lowest levels,
    comparing the first attribute first.

    References
    ----------
    Hoogervorst, Zhang, Tillem, Erkin, Verwer 2019, section 4.1 and eq. 7; Kohlmayer et al. 2012 (Flash).
    """

    name = "full-domain"
    fast = True
    proof = ("full-domain.md#guarantee",)
    class_bounds = "level"
    k: K
    alpha: Alpha = Fraction(1)
    max_suppressed: Annotated[Fraction | None, optional(_share), PLAIN] = None
    importance: Importance = ()
    statistic: Statistic = "bounds"

    def promise(self, schema: Schema) -> Promise:
        self._hierarchies(schema)
        names = ", ".join(attribute.name for attribute in schema.quasi_identifiers)
        in_clear = [
            f"the generalisation of each record in the public hierarchies of {names}, at one level for each; the level "
            "is chosen from the records (level 0 is the value itself)",
        ]
        numbers = [a.name for a in schema.quasi_identifiers if a.kind == "numeric"]
        if self.statistic in ("mean", "multiset") and numbers:
            in_clear.append(f"the mean of {', '.join(numbers)} in each class")
        if self.statistic == "multiset":
            in_clear.append(f"every combination of values of {names}, as an unordered list for each class")
        return self.class_promise(schema, in_clear=tuple(in_clear), numerics="classes and losses are exact")

    def classes(self, dataset: Dataset, progress: Progress | None = None) -> EquivalenceClasses:
        """Return the classes with the smallest loss.

        Refuses if a combination of public values has fewer than k records, if more records would be suppressed than
        allowed, or if every record would be suppressed.
        """
        hierarchies, finest = self._hierarchies(dataset.schema), self.folded(dataset)
        stratum, num_strata = finest.strata(len(dataset.schema.public))
        sizes = np.bincount(stratum, finest.counts, minlength=num_strata).astype(np.int64)
        check_stratum_sizes(sizes, self.k, dataset)
        usable = np.flatnonzero(sizes[stratum] >= self.k)  # the other records are suppressed at every node
        limit = num_usable = int(finest.counts[usable].sum())  # that may be suppressed besides those of small strata
        if self.max_suppressed is not None:
            limit = math.floor(self.max_suppressed * len(dataset)) - (len(dataset) - num_usable)
            if limit < 0:
                raise Refusal(
                    "too many records are in combinations of public values with fewer than k records: "
                    f"max_suppressed = {shown_number(self.max_suppressed)} does not allow to suppress them all. Raise "
                    "it, lower k, or make public columns coarser."
                )
        weights = [dict(self.importance).get(a.name, Fraction(1)) for a in dataset.schema.quasi_identifiers]
        records = Records.of(finest, hierarchies, usable)
        node = _LatticeSearch(records, weights, self.alpha, self.k, limit).best()
        of_record = records.classes(node, self.k)
        of_finest = np.full(len(finest), -1, dtype=np.int64)
        of_finest[usable] = of_record[records.of_row]
        if (of_finest < 0).all():
            raise refuse_empty(self.alpha)
        generalised, lost = generalised_at(node, records, of_record)
        suppressed = self.alpha * int(finest.counts[of_finest < 0].sum())
        return EquivalenceClasses.of_finest(
            dataset,
            self.fold(dataset.schema, dataset.period),
            finest,
            of_finest,
            generalised=generalised,
            losses=tuple(float(loss + suppressed) for loss in lost),
            importance=tuple(float(weight) for weight in weights),
            levels=node,
        )

    def fold(self, schema: Schema, period: str | None) -> FinestFold:
        return FinestFold.of(schema)

    def _hierarchies(self, schema: Schema) -> dict[str, Hierarchy]:
        hierarchies = hierarchies_of(schema, mechanism=self.name, verb="searches", max_nodes=MAX_NODES)
        if strange := sorted(dict(self.importance).keys() - hierarchies.keys()):
            raise ParameterError(
                f"importance names {', '.join(strange)}, which is not a quasi-identifier. The quasi-identifiers are "
                f"{', '.join(hierarchies)}."
            )
        return hierarchies


class _LatticeSearch:
    """Search of the lattice for the cheapest node; among equals, the first in the order of their levels."""

    # For every node, cost = base + penalty + excess. The base needs no classes. The penalty of suppressed records only
    # falls on the way up. The excess, of records generalised beyond the price of suppressing them, only rises. So each
    # visited node bounds the penalty of all nodes below it and the excess of all nodes above it.

    def __init__(self, records: Records, weights: Sequence[Fraction], alpha: Fraction, k: int, limit: int) -> None:
        self.records, self.k, self.limit = records, k, limit
        # The cost of a record, as whole numbers in one common unit; suppressed, importance x alpha for each attribute.
        columns = records.columns
        each = [weight / column.hierarchy.whole for column, weight in zip(columns, weights, strict=True)]
        unit = math.lcm(*((weight * alpha).denominator for weight in weights), *(cost.denominator for cost in each))
        factors, most = [int(cost * unit) for cost in each], [int(weight * alpha * unit) for weight in weights]
        self.price = sum(most)
        total = sum(factor * column.hierarchy.whole for factor, column in zip(factors, columns, strict=True))
        # Room for twice the largest sum: a bound is a sum of three terms, none above the cost of everything.
        dtype = np.int64 if 4 * int(records.counts.sum()) * (total + self.price) < MAX_KEY else np.object_
        # For each attribute and level what generalising each value costs, up to the price of suppression, and beyond
        self.capped: list[list[CostArray]] = []
        self.beyond: list[list[CostArray]] = []
        for column, factor, price in zip(columns, factors, most, strict=True):
            costs = [widths.astype(dtype) * factor for widths in column.widths]
            self.capped.append([np.minimum(cost, price) for cost in costs])
            self.beyond.append([cost - np.minimum(cost, price) for cost in costs])
        self.any_beyond = any(cost.any() for levels in self.beyond for cost in levels)
        # For each node what its records would cost if each attribute cost at most its price
        parts = []
        for levels, codes in zip(self.capped, records.codes, strict=True):
            counts = np.bincount(codes, weights=records.counts, minlength=len(levels[0])).astype(np.int64)
            parts.append(np.asarray([np.sum(cost * counts) for cost in levels], dtype=levels[0].dtype))
        self.base: CostArray = functools.reduce(np.add.outer, parts)
        self.penalty, self.excess = np.zeros_like(self.base), np.zeros_like(self.base)
        self.closed: BoolArray = np.zeros(self.base.shape, dtype=bool)
        self.alive: IntArray = np.arange(self.base.size)  # nodes by their number in the order of levels
        # Every record by itself: all nodes can be reached from here.
        bottom = Groups(np.arange(len(records.counts)), records.counts)
        self.kept_groups: list[tuple[Node, Groups]] = [((0,) * self.base.ndim, bottom)]
        self.room = 8 * len(records.counts)  # groups that may be kept in memory for others to start from
        self.least: int | None = None
        self.node: Node = tuple(num - 1 for num in self.base.shape)
        self.num_looks = 0

    def best(self) -> Node:
        while path := self._path():
            # The middle rules out most: it bounds suppression below it and generalisation above it.
            self._look(path[len(path) // 2])
        return self.node

    def _path(self) -> list[Node]:
        """Return a way up from the most promising node through open ones, the cheaper step first; empty if none."""
        bound = self._bound(self.alive)
        open_nodes = self._is_open(self.alive, bound)
        # Bounds only rise and the least cost only falls, so a closed node stays closed.
        self.alive, bound = self.alive[open_nodes], bound[open_nodes]
        if not len(self.alive):
            return []
        number = int(self.alive[np.argmin(bound)])
        path = [tuple(int(level) for level in np.unravel_index(number, self.base.shape))]
        while True:
            above, step = [], self.base.size
            for i, level in enumerate(path[-1]):
                step //= self.base.shape[i]
                if level + 1 < self.base.shape[i]:
                    bound = self._bound(number + step)
                    if self._is_open(number + step, bound):
                        above.append((bound, number + step, (*path[-1][:i], level + 1, *path[-1][i + 1 :])))
            if not above:
                return path
            _, number, node = min(above)
            path.append(node)

    def _bound(self, number: Any) -> Any:
        return self.base.flat[number] + self.penalty.flat[number] + self.excess.flat[number]

    def _is_open(self, number: Any, bound: Any) -> Any:
        unknown = ~self.closed.flat[number]
        if self.least is None:
            return unknown
        best = int(np.ravel_multi_index(self.node, self.base.shape))
        return unknown & ((bound < self.least) | ((bound == self.least) & (number < best)))

    def _look(self, node: Node) -> None:
        self.num_looks += 1
        # From the kept node below it that has fewest groups
        finer = min(
            (groups for below, groups in self.kept_groups if all(a <= b for a, b in zip(below, node, strict=True))),
            key=lambda groups: len(groups.sizes),
        )
        groups = self.records.merged(node, finer)
        if 2 * len(groups.sizes) <= len(finer.sizes) and len(groups.sizes) <= self.room:
            self.kept_groups.append((node, groups))
            self.room -= len(groups.sizes)
        small = groups.sizes < self.k
        num_suppressed = int(groups.sizes[small].sum())
        below, above = tuple(slice(level + 1) for level in node), tuple(slice(level, None) for level in node)
        self.closed[node] = True
        if num_suppressed > self.limit:
            self.closed[below] = True  # below, more still is suppressed
            return
        penalty = self.price * num_suppressed - self._total(self.capped, node, groups, small)
        excess = self._total(self.beyond, node, groups, ~small) if self.any_beyond else 0
        self.penalty[below] = np.maximum(self.penalty[below], penalty)
        self.excess[above] = np.maximum(self.excess[above], excess)
        cost = int(self.base[node]) + penalty + excess
        if self.least is None or (cost, node) < (self.least, self.node):
            self.least, self.node = cost, node

    def _total(self, costs: Sequence[Sequence[CostArray]], node: Node, groups: Groups, chosen: BoolArray) -> int:
        record, sizes = groups.record[chosen], groups.sizes[chosen]
        parts = zip(costs, self.records.codes, node, strict=True)
        return sum(int(np.sum(levels[level][codes[record]] * sizes)) for levels, codes, level in parts)


# The lattice of generalisations, shared by the mechanisms that choose one node for a whole table. A node is one level
# of a public hierarchy for each attribute. Rows are encoded once; the groups that they form at a node are merged from
# those of a node below it, because groups only merge on the way up.
def hierarchies_of(schema: Schema, *, mechanism: str, verb: str, max_nodes: int) -> dict[str, Hierarchy]:
    """Return the hierarchy of each quasi-identifier by name; refuse one without, and a lattice that is too large."""
    if not schema.quasi_identifiers:
        raise ParameterError(
            f"{mechanism} generalises quasi-identifiers. The policy has none. Give that role to at least one column."
        )
    hierarchies = {}
    for attribute in schema.quasi_identifiers:
        if attribute.name == "size" and attribute.kind != "numeric":
            raise ParameterError(NOT_SIZE)
        try:
            hierarchies[attribute.name] = hierarchy_of(cast("Domain", attribute.domain))
        except ParameterError as error:
            raise ParameterError(f"attribute {attribute.name!r}: {error}") from None
    if (num_nodes := math.prod(hierarchy.num_levels for hierarchy in hierarchies.values())) > max_nodes:
        raise ParameterError(
            f"{mechanism} {verb} at most {max_nodes:,} combinations of levels. Got {num_nodes:,}. Use hierarchies "
            "with fewer levels (a larger doubling), or fewer quasi-identifiers."
        )
    return hierarchies


@dataclass(frozen=True, eq=False)
class LatticeColumn:
    """One attribute: its distinct values, and what becomes of each value at each level."""

    name: str
    hierarchy: Hierarchy
    values: npt.NDArray[Any]  # distinct numbers, or codes of labels, in order
    groups: tuple[IntArray, ...]  # for each level their generalisations, numbered without gaps
    widths: tuple[IntArray, ...]  # the widths of these

    @classmethod
    def of(cls, name: str, hierarchy: Hierarchy, values: npt.NDArray[Any]) -> LatticeColumn:
        groups, widths = [], []
        for level in range(hierarchy.num_levels):
            groups.append(np.unique(hierarchy.groups(values, level), return_inverse=True)[1])
            widths.append(hierarchy.widths(values, level))
        return cls(name, hierarchy, values, tuple(groups), tuple(widths))

    @cached_property
    def num_groups(self) -> tuple[int, ...]:
        return tuple(int(groups.max(initial=-1)) + 1 for groups in self.groups)

    @cached_property
    def in_order(self) -> bool:
        """Whether values that merge at some level are neighbours, so that the order of values keeps them together."""
        return all(bool((np.diff(groups) >= 0).all()) for groups in self.groups)

    def generalised(self, codes: IntArray, level: int) -> Generalised:
        values = self.values[codes]
        if isinstance(self.hierarchy, IntervalHierarchy):
            lower, upper = self.hierarchy.bounds(values, level)
            return Intervals(name=self.name, lower=lower, upper=upper)
        labels = self.hierarchy.labels(level)
        return Nodes(name=self.name, labels=tuple(labels[code] for code in values.tolist()))


class Groups(NamedTuple):
    record: IntArray  # one record of each group that looks alike at a node
    sizes: IntArray


@dataclass(frozen=True, eq=False)
class Records:
    """Rows without repetitions: equal rows are one record that counts several times."""

    stratum: IntArray
    num_strata: int
    columns: Sequence[LatticeColumn]
    codes: tuple[IntArray, ...]
    counts: IntArray
    of_row: IntArray

    @classmethod
    def of(
        cls, finest: Finest, hierarchies: Mapping[str, Hierarchy], chosen: IntArray, of_row: IntArray | None = None
    ) -> Records:
        """Make records of some finest classes, in the order of hierarchies; without rows, these are the rows."""
        stratum, num_strata = finest.strata(len(finest.values) - len(hierarchies))
        columns, codes = [], []
        for (name, hierarchy), own in zip(hierarchies.items(), finest.codes[-len(hierarchies) :], strict=True):
            values: npt.NDArray[Any] = finest.values[name].to_numpy(zero_copy_only=False)
            rank = np.arange(len(values))
            if not isinstance(hierarchy, IntervalHierarchy):
                values, rank = np.unique(hierarchy.domain.codes(np.asarray(values, dtype=object)), return_inverse=True)
            columns.append(LatticeColumn.of(name, hierarchy, values))
            codes.append(rank.reshape(-1)[own[chosen]])
        sizes = [len(column.values) for column in columns]
        keys, _ = combined([(stratum[chosen], num_strata), *zip(codes, sizes, strict=True)])
        order = np.argsort(keys, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        in_order = tuple(code[order] for code in codes)
        rows = place if of_row is None else place[of_row]
        return cls(stratum[chosen][order], num_strata, columns, in_order, finest.counts[chosen][order], rows)

    @classmethod
    def of_dataset(cls, dataset: Dataset, hierarchies: Mapping[str, Hierarchy]) -> Records:
        finest = FinestFold.of(dataset.schema, tuple(hierarchies)).whole(dataset)
        return cls.of(finest, hierarchies, np.arange(len(finest)), finest.of_row)

    def keys(self, node: Node, record: IntArray) -> tuple[IntArray, int]:
        """Return a number for each of some records, equal if they look alike at a node, and a bound of the numbers."""
        # If there are fewer levels than attributes, the remaining attributes are ignored.
        parts = [(self.stratum[record], self.num_strata)]
        for column, codes, level in zip(self.columns, self.codes, node, strict=False):
            parts.append((column.groups[level][codes[record]], column.num_groups[level]))
        return combined(parts)

    def merged(self, node: Node, finer: Groups) -> Groups:
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
        """Return the records, counting only the chosen rows; a record without any counts 0."""
        counts = np.bincount(self.of_row[chosen], minlength=len(self.counts))
        return replace(self, counts=counts.astype(np.int64))

    def classes(self, node: Node, k: int) -> IntArray:
        """Return the class of each record at a node, in the order of public values and generalisations; -1 below k."""
        keys, _ = self.keys(node, np.arange(len(self.counts)))
        _, group = np.unique(keys, return_inverse=True)
        kept = np.bincount(group, weights=self.counts) >= k
        return np.asarray(np.where(kept, np.cumsum(kept) - 1, -1)[group], dtype=np.int64)

    def kept_counts(self, k: int) -> IntArray:
        """Count for every node the rows in groups of at least k. Shape: an axis of levels for each attribute."""
        counts = np.zeros([len(column.groups) for column in self.columns], dtype=np.int64)
        present = np.flatnonzero(self.counts)
        if len(present) >= 1:
            self._count(counts, (), Groups(present, self.counts[present]), k)
        return counts

    def _count(self, counts: IntArray, levels: Node, groups: Groups, k: int) -> None:
        """Fill in the nodes that begin with some levels, from the groups of the lowest of them."""
        # It climbs each attribute level by level, so memory never has more than one set of groups for each attribute.
        if len(levels) == counts.ndim:
            counts[levels] = groups.sizes[groups.sizes >= k].sum()
            return
        if len(levels) == counts.ndim - 1 and self.columns[-1].in_order:
            # Groups come in the order of the others, then of values, so groups that merge at any level of the last
            # attribute are neighbours.
            others, value = self.keys(levels, groups.record)[0], self.codes[-1][groups.record]
            sizes, begins = groups.sizes, np.diff(others, prepend=-1) != 0
            for level, of_value in enumerate(self.columns[-1].groups):
                starts = np.flatnonzero(begins | (np.diff(of_value[value], prepend=-1) != 0))
                value, begins, sizes = value[starts], begins[starts], np.add.reduceat(sizes, starts)
                counts[(*levels, level)] = sizes[sizes >= k].sum()
            return
        for level in range(counts.shape[len(levels)]):
            node = (*levels, level)
            if level:
                groups = self.merged(node + (0,) * (counts.ndim - len(node)), groups)
            self._count(counts, node, groups, k)


def generalised_at(node: Node, records: Records, of_record: IntArray) -> tuple[tuple[Generalised, ...], list[Fraction]]:
    """Return what classes show at a node, and the loss by attribute: widths as shares of the domain, times sizes."""
    kept = np.flatnonzero(of_record >= 0)
    sizes = class_sizes(of_record[kept], records.counts[kept])
    # member : one record of each class, all of which look alike at this node
    member = np.empty(len(sizes), dtype=np.int64)
    member[of_record[kept]] = kept
    lost, shown = [], []
    for column, codes, level in zip(records.columns, records.codes, node, strict=True):
        # Products may pass 2**63; halves of 26 bits do not.
        high, low = np.divmod(column.widths[level][codes[member]], 2**26)
        widths = int(np.dot(high, sizes)) * 2**26 + int(np.dot(low, sizes))
        lost.append(Fraction(widths, column.hierarchy.whole))
        shown.append(column.generalised(codes[member], level))
    return tuple(shown), lost
