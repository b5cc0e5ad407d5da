# SPDX-License-Identifier: Apache-2.0
"""FullDomain: generalise each attribute to one level of its public hierarchy, losing as little as possible.

The problem is that of Flash (Kohlmayer, Prasser, Eckert, Kemper and Kuhn 2012) with the loss metric of Hoogervorst et
al. 2019, eq. 7. A node of the lattice is one level for each attribute. Classes only merge on the way up, but with a
price on suppression the best node need not be the lowest without suppression, so the search rests on bounds of the
loss itself: ``docs/proofs/full-domain.md`` derives them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationInfo

from dunnage.arrays import BoolArray, IntArray
from dunnage.domains import Hierarchy
from dunnage.errors import ParameterError, Refusal
from dunnage.exact import exact, shown_number
from dunnage.guarantees import Promise
from dunnage.mechanisms.base import PLAIN, K, Progress, optional
from dunnage.mechanisms.lattice import LARGEST_KEY, Column, Groups, Node, Records, hierarchies_of, lost_widths
from dunnage.mechanisms.recode import (
    Alpha,
    Classes,
    ClassMechanism,
    Importance,
    Statistic,
    check_stratum_sizes,
    refuse_empty,
    strata,
)
from dunnage.schema import Schema

if TYPE_CHECKING:
    from dunnage.tables.dataset import Dataset

CostArray = npt.NDArray[Any]
"""Whole numbers, exact: int64, or Python's own where those could overflow."""

MOST_NODES = 2**18
"""Largest lattice that is searched."""


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
        Fewest records that must look alike.
    alpha
        Price of suppressing one record, in records generalised to the whole domain.
    max_suppressed
        Largest share of records that may be suppressed, 0 to 1; None for no limit. Records of small strata count.
    importance
        What an attribute's loss counts, by name; 1 where it is not given.
    statistic
        What is told about a class: its ``bounds``, also the ``mean`` of its numbers, or the ``multiset`` of its values.

    Guarantee
    ---------
    k-anonymity over public and generalised columns together, proved: classes are counted.

    Assumptions
    -----------
    Public domains and hierarchies; one record per protected unit; the levels depend on data; a refusal may depend on
    data.

    Runtime
    -------
    O(n) steps, after sorting, for each node of the lattice that bounds do not rule out.

    Utility
    -------
    Exact minimum of the loss metric (eq. 7) over all nodes of the lattice; of several the one with the lowest levels,
    the first attribute first.

    References
    ----------
    Hoogervorst, Zhang, Tillem, Erkin, Verwer 2019, section 4.1 and eq. 7; Kohlmayer et al. 2012 (Flash).

    Examples
    --------
    >>> FullDomain(k=5, max_suppressed=0.05, importance={"weight": 2}).describe()["importance"]
    {'weight': 2}
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

    @property
    def least_k(self) -> int:
        return self.k

    @property
    def tells(self) -> Statistic:
        return self.statistic

    @property
    def price_of_suppression(self) -> Fraction:
        return self.alpha

    @property
    def most_suppressed(self) -> Fraction | None:
        return self.max_suppressed

    def promise(self, schema: Schema) -> Promise:
        self._hierarchies(schema)
        names = ", ".join(attribute.name for attribute in schema.quasi_identifiers)
        told = [
            f"the generalisation of each record in the public hierarchies of {names}, at one level for each, chosen "
            "from the records (at level 0 the value itself)",
        ]
        numbers = [a.name for a in schema.quasi_identifiers if a.kind == "numeric"]
        if self.statistic in ("mean", "multiset") and numbers:
            told.append(f"the mean of {', '.join(numbers)} in each class")
        if self.statistic == "multiset":
            told.append(f"every combination of values of {names}, as an unordered list for each class")
        return self.class_promise(schema, in_clear=tuple(told), numerics="classes and losses are exact")

    def classes(self, dataset: Dataset, progress: Progress | None = None) -> Classes:
        """Find the classes of least loss: private, drawn from nothing but the rows.

        Raises
        ------
        Refusal
            If a combination of public values has fewer than k records, more would have to be suppressed than may be,
            or every record would be suppressed.
        """
        hierarchies = self._hierarchies(dataset.schema)
        stratum, num_strata = strata(dataset)
        sizes = np.bincount(stratum, minlength=num_strata)
        check_stratum_sizes(sizes, self.k, dataset)
        usable = np.flatnonzero(sizes[stratum] >= self.k)  # the others are suppressed at every node
        limit = self._limit(len(dataset), len(usable))
        weights = [dict(self.importance).get(a.name, Fraction(1)) for a in dataset.schema.quasi_identifiers]
        columns = [Column.of(dataset, name, hierarchy, usable) for name, hierarchy in hierarchies.items()]
        records = Records.of(stratum[usable], columns)
        node = _Search(records, _Costs.of(columns, weights, self.alpha, len(usable)), self.k, limit).best()
        of_row = np.full(len(dataset), -1, dtype=np.int64)
        of_row[usable] = records.class_of_row(node, self.k)
        if (of_row < 0).all():
            raise refuse_empty(self.alpha)
        return self._classes(of_row, usable, columns, node, weights)

    def _limit(self, num_records: int, num_usable: int) -> int:
        """Return how many records may be suppressed besides those of small strata."""
        if self.max_suppressed is None:
            return num_usable
        limit = math.floor(self.max_suppressed * num_records) - (num_records - num_usable)
        if limit < 0:
            raise Refusal(
                "more records are in combinations of public values with fewer than k records than "
                f"max_suppressed = {shown_number(self.max_suppressed)} allows. Raise it, lower k, or make public "
                "columns coarser."
            )
        return limit

    def _classes(
        self, of_row: IntArray, usable: IntArray, columns: Sequence[Column], node: Node, weights: Sequence[Fraction]
    ) -> Classes:
        of_usable = of_row[usable]
        kept = of_usable >= 0
        # member : one row of each class, all of which look alike at this node
        member = np.empty(int(of_usable.max()) + 1, dtype=np.int64)
        member[of_usable[kept]] = np.flatnonzero(kept)
        sizes = np.bincount(of_usable[kept])
        suppressed = self.alpha * int((of_row < 0).sum())
        losses = [lost + suppressed for lost in lost_widths(columns, member, sizes, node)]
        told = [column.told(member, level) for column, level in zip(columns, node, strict=True)]
        return Classes(
            of_row=of_row,
            generalised=tuple(told),
            losses=tuple(float(loss) for loss in losses),
            importance=tuple(float(weight) for weight in weights),
            levels=node,
        )

    def _hierarchies(self, schema: Schema) -> dict[str, Hierarchy]:
        """Return the hierarchy of each quasi-identifier; refuse what has none, and a lattice that is too large."""
        hierarchies = hierarchies_of(schema, mechanism=self.name, verb="searches", most_nodes=MOST_NODES)
        strange = sorted(dict(self.importance).keys() - hierarchies.keys())
        if strange:
            raise ParameterError(
                f"importance is given for {', '.join(strange)}, which is no quasi-identifier. There are: "
                f"{', '.join(hierarchies)}."
            )
        return hierarchies


@dataclass(frozen=True, eq=False)
class _Costs:
    """What a record costs, as whole numbers in one common unit.

    ``of_value[i][level]`` is what generalising each value of attribute i to a level costs, ``most[i]`` what
    suppressing a record costs for it: importance times alpha.
    """

    of_value: tuple[tuple[CostArray, ...], ...]
    most: tuple[int, ...]

    @classmethod
    def of(cls, columns: Sequence[Column], weights: Sequence[Fraction], alpha: Fraction, num_records: int) -> _Costs:
        """Find the common unit, and whether 64 bits hold every sum."""
        each = [weight / column.hierarchy.whole for column, weight in zip(columns, weights, strict=True)]
        unit = math.lcm(*((weight * alpha).denominator for weight in weights), *(cost.denominator for cost in each))
        factors = [int(cost * unit) for cost in each]
        most = tuple(int(weight * alpha * unit) for weight in weights)
        dearest = sum(factor * column.hierarchy.whole for factor, column in zip(factors, columns, strict=True))
        # Room for twice the largest sum: a bound is a sum of three terms, none above the cost of everything.
        fits = 4 * num_records * (dearest + sum(most)) < LARGEST_KEY
        dtype = np.int64 if fits else np.object_
        costs = (
            tuple(widths.astype(dtype) * factor for widths in column.widths)
            for column, factor in zip(columns, factors, strict=True)
        )
        return cls(tuple(costs), most)

    @property
    def price(self) -> int:
        return sum(self.most)


class _Search:
    """Search of the lattice for the node of least cost; of several the first in the order of their levels.

    For every node, cost = base + penalty + excess. The base needs no classes. The penalty, of suppressed records, only
    falls on the way up, and the excess, of records generalised beyond the price of suppressing them, only rises: so a
    node that was looked at bounds the penalty of all below it and the excess of all above it.
    """

    def __init__(self, records: Records, costs: _Costs, k: int, limit: int) -> None:
        self.records, self.price, self.k, self.limit = records, costs.price, k, limit
        pairs = list(zip(costs.of_value, costs.most, strict=True))
        self.capped = [[np.minimum(cost, most) for cost in levels] for levels, most in pairs]
        self.beyond = [[cost - np.minimum(cost, most) for cost in levels] for levels, most in pairs]
        self.any_beyond = any(cost.any() for levels in self.beyond for cost in levels)
        self.base = self._base()
        self.penalty, self.excess = np.zeros_like(self.base), np.zeros_like(self.base)
        self.closed: BoolArray = np.zeros(self.base.shape, dtype=bool)
        self.alive: IntArray = np.arange(self.base.size)  # nodes by their number in the order of levels
        self.known: list[tuple[Node, Groups]] = [((0,) * self.base.ndim, records.bottom)]
        self.room = 8 * len(records.counts)  # groups that may be kept in memory for others to start from
        self.least: int | None = None
        self.node: Node = tuple(num - 1 for num in self.base.shape)
        self.num_looks = 0

    def _base(self) -> CostArray:
        """Return for each node what its records would cost if each attribute cost at most its price."""
        parts = []
        for levels, codes in zip(self.capped, self.records.codes, strict=True):
            counts = np.bincount(codes, weights=self.records.counts, minlength=len(levels[0])).astype(np.int64)
            parts.append(np.asarray([np.sum(cost * counts) for cost in levels], dtype=levels[0].dtype))
        total = parts[0]
        for part in parts[1:]:
            total = np.add.outer(total, part)
        return total

    def best(self) -> Node:
        while path := self._path():
            # The middle tells most: below it suppression, above it generalisation is then known to be no less.
            self._look(path[len(path) // 2])
        return self.node

    def _path(self) -> list[Node]:
        """Return a way up from the most promising node through open ones, the cheaper step first; empty if none is."""
        bound = self._bound(self.alive)
        open_nodes = self._is_open(self.alive, bound)
        # Bounds only rise and the least cost only falls: what is closed stays so.
        self.alive, bound = self.alive[open_nodes], bound[open_nodes]
        if not len(self.alive):
            return []
        number = int(self.alive[np.argmin(bound)])
        path = [tuple(int(level) for level in np.unravel_index(number, self.base.shape))]
        while above := self._open_above(path[-1], number):
            _, number, node = min(above)
            path.append(node)
        return path

    def _bound(self, number: Any) -> Any:
        return self.base.flat[number] + self.penalty.flat[number] + self.excess.flat[number]

    def _is_open(self, number: Any, bound: Any) -> Any:
        unknown = ~self.closed.flat[number]
        if self.least is None:
            return unknown
        best = int(np.ravel_multi_index(self.node, self.base.shape))
        return unknown & ((bound < self.least) | ((bound == self.least) & (number < best)))

    def _open_above(self, node: Node, number: int) -> list[tuple[Any, int, Node]]:
        """Return the open nodes one level above a node: bound, number and levels."""
        found = []
        step = self.base.size
        for i, level in enumerate(node):
            step //= self.base.shape[i]
            if level + 1 < self.base.shape[i]:
                bound = self._bound(number + step)
                if self._is_open(number + step, bound):
                    found.append((bound, number + step, (*node[:i], level + 1, *node[i + 1 :])))
        return found

    def _look(self, node: Node) -> None:
        self.num_looks += 1
        groups = self._groups(node)
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
        total = 0
        for levels, codes, level in zip(costs, self.records.codes, node, strict=True):
            total += int(np.sum(levels[level][codes[record]] * sizes))
        return total

    def _groups(self, node: Node) -> Groups:
        """Return the groups of a node, from the known node below it that has fewest."""
        finer = min(
            (groups for known, groups in self.known if all(a <= b for a, b in zip(known, node, strict=True))),
            key=lambda groups: len(groups.sizes),
        )
        groups = self.records.merged(node, finer)
        if 2 * len(groups.sizes) <= len(finer.sizes) and len(groups.sizes) <= self.room:
            self.known.append((node, groups))
            self.room -= len(groups.sizes)
        return groups
