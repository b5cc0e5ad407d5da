# SPDX-License-Identifier: Apache-2.0
"""Partition: cut numeric attributes into intervals, at least k records to a class, losing as little as possible.

The problem is K-Optimize's (Bayardo and Agrawal 2005) with the loss metric of Hoogervorst et al. 2019, eq. 7. For one
attribute it needs no branch and bound: the best last class follows the best partition of what comes before it, and a
class that could be cut in two of k each never needs to be looked at. As in eq. 7, only intervals of fewer than k
records can be suppressed, and equal values share their fate (global recoding). Several attributes are cut by
:mod:`dunnage.mechanisms.cuts`.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins import l2_bound, whole_numbers
from dunnage.bins.scalar import best_fit_decreasing, fill_by_subset_sums, fix_dominated
from dunnage.compiling import kernel
from dunnage.domains import Numeric, decimal_scale
from dunnage.errors import ParameterError
from dunnage.exact import decimal_text, nearest_float, plain, shown_number
from dunnage.guarantees import CHOICE_DEPENDS_ON_DATA, Assumption, Promise
from dunnage.mechanisms import cuts
from dunnage.mechanisms.base import K, OptionalNumber, Progress
from dunnage.mechanisms.cuts import Cells, Points
from dunnage.mechanisms.recode import (
    Alpha,
    Classes,
    ClassMechanism,
    Importance,
    Intervals,
    Statistic,
    check_stratum_sizes,
    refuse_empty,
    strata,
)
from dunnage.schema import Attribute, Schema

if TYPE_CHECKING:
    from dunnage.tables.dataset import Dataset

_COMPILE_FROM_RUNS = 20_000
Borders = tuple[tuple[int, int], ...]
"""For each class its first run and the run after its last."""

MOST_PACKED = 200_000
"""Items packed in all while candidates are compared."""
FEWEST_COMPARED = 4
MOST_SHIFT = 3
LARGEST_PERIOD = 8
_LARGEST_EXACT_INTEGER = 2**53
_log = logging.getLogger("dunnage")


@dataclass(frozen=True, eq=False, kw_only=True)
class Search:
    """Classes, their loss, and a loss that no partition of the same kind goes below. For the owner only."""

    classes: Classes  # The classes found
    bound: float  # No partition loses less (eq. 7 over all records)
    proven: bool  # Whether no partition loses less, up to one part in 10^9

    @property
    def loss(self) -> float:
        return self.classes.loss_sum

    @property
    def gap(self) -> float:
        """Share of the loss that might still be saved."""
        return max(0.0, 1 - self.bound / self.loss) if self.loss > 0 else 0.0


class Partition(ClassMechanism):
    """Release each record's intervals, at least k records to a class.

    Parameters
    ----------
    k
        Fewest records that must look alike.
    alpha
        Price of suppressing one record, in records generalised to the whole domain.
    importance
        What an attribute counts in the loss, by its name (beta in eq. 7); 1 where nothing is said.
    statistic
        What is told about a class: its ``bounds``, also its ``mean``, or the ``multiset`` of its values.
    bounds
        ``class``: the class's own smallest and largest value; ``grid``: rounded outward to the public grid.
    goal
        ``loss``: lose as little as possible; ``packing``: choose the borders of one attribute so that upper bounds
        pack into few bins, each combination of public values apart (a heuristic, never more bins than ``loss``).
    capacity
        Capacity of a bin, for ``packing`` only.

    Guarantee
    ---------
    k-anonymity over public and generalised columns together, proved: classes are counted.

    Assumptions
    -----------
    Public domain; one record per protected unit; class borders depend on data; a refusal may depend on data.

    Runtime
    -------
    One attribute: O(n log n) to sort, then at most O(n k) steps; on smooth data few more than n while k is below some
    thousands. Several: some seconds for ten thousand records, by counted steps and not by the clock.

    Utility
    -------
    Within each combination of public values: one attribute, the exact minimum of the loss metric (eq. 7). Several, the
    exact minimum for small problems (two attributes of a hundred records, say), beyond that one that no change of a
    single attribute improves; :meth:`search` tells the bound.

    References
    ----------
    Hoogervorst, Zhang, Tillem, Erkin, Verwer 2019, section 4.2 and eq. 7; Bayardo, Agrawal 2005 (K-Optimize).

    Examples
    --------
    >>> Partition(k=5, statistic="multiset").k
    5
    """

    name = "partition"
    fast = True
    apart = True
    proof = ("partition.md#guarantee",)
    k: K
    alpha: Alpha = Fraction(1)
    statistic: Statistic = "bounds"
    bounds: Literal["class", "grid"] = "class"
    # Left out of descriptions where nothing was asked for
    goal: Annotated[Literal["loss", "packing"], Field(exclude_if=lambda goal: goal == "loss")] = "loss"
    capacity: Annotated[OptionalNumber, Field(exclude_if=lambda capacity: capacity is None)] = None
    importance: Annotated[Importance, Field(exclude_if=lambda importance: not importance)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.goal == "packing") != (self.capacity is not None):
            got = "none" if self.capacity is None else f'one with goal = "{self.goal}"'
            raise ParameterError(f'goal = "packing" and a capacity go together. Got {got}. Give both, or neither.')
        if self.capacity is not None and not 0 < nearest_float(self.capacity) < math.inf:
            got = shown_number(self.capacity)
            raise ParameterError(f"capacity must be more than 0. Got {got}. Give what a bin holds.")
        return self

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
    def class_bounds(self) -> str:  # type: ignore[override]
        return self.bounds

    def promise(self, schema: Schema) -> Promise:
        attributes = self._attributes(schema)
        names = ", ".join(a.name for a in attributes)
        told, choice = [self._bounds_in_clear(attribute) for attribute in attributes], CHOICE_DEPENDS_ON_DATA
        if self.capacity is not None:
            amount = _amount(self.capacity, attributes[0].numeric)
            told.append(f"class borders, chosen from all values of {names} to pack well into bins of {amount}")
            says = f"where classes begin and end was chosen from the records to pack into few bins of {amount}"
            choice = Assumption(choice.name, says)
        if self.statistic == "mean":
            told.append(f"the mean {names} of each class")
        if self.statistic == "multiset" and len(attributes) == 1:
            told.append(f"every value of {names}, as an unordered list for each class")
        if self.statistic == "multiset" and len(attributes) > 1:
            told.append(f"every combination of {names}, as an unordered list for each class, and the mean of each")
        # Importance lists all attributes, unless there is one that counts 1.
        described, weights = self.describe(), self._weights_of(attributes)
        described.pop("importance", None)
        if weights != [1]:
            described["importance"] = {a.name: plain(weight) for a, weight in zip(attributes, weights, strict=True)}
        return self.class_promise(
            schema, in_clear=tuple(told), numerics="classes are exact", choice=choice, mechanism=described
        )

    def classes(self, dataset: Dataset, progress: Progress | None = None) -> Classes:
        """Find the classes of least loss: private, drawn from nothing but the rows.

        Raises
        ------
        Refusal
            If a combination of public values has fewer than k records, or every record would be suppressed.
        """
        return self.search(dataset).classes

    def search(self, dataset: Dataset) -> Search:
        """Find the classes, and tell how much less any partition might lose. For the owner.

        Raises
        ------
        Refusal
            If no k-anonymous release is possible.
        """
        attributes = self._attributes(dataset.schema)
        stratum, num_strata = strata(dataset)
        check_stratum_sizes(np.bincount(stratum, minlength=num_strata), self.k, dataset)
        if len(attributes) == 1:
            return self._cut_one(dataset, attributes[0], stratum, num_strata)
        found = self._cut_several(dataset, attributes, stratum, num_strata)
        outcome = "is proven least" if found.proven else f"could be at most {found.gap:.1%} lower"
        _log.info("partition of %d attributes: the loss %s", len(attributes), outcome)
        return found

    def _cut_one(self, dataset: Dataset, attribute: Attribute, stratum: IntArray, num_strata: int) -> Search:
        values = dataset.numbers(attribute.name)
        lower, upper, span = self._ends(values, attribute.numeric)
        # order : rows by stratum, then value; runs : rows of equal value, which must stay together
        order = np.argsort(values) if num_strata == 1 else np.lexsort((values, stratum))
        runs = Runs.of(stratum[order], values[order], lower[order], upper[order])
        class_of_run, least = best_classes(runs, self.k, float(self.alpha) * span)
        loss = least
        if self.capacity is not None:
            tops = self._tops(values[order][runs.before[:-1]], attribute.numeric)
            # Choose borders anew in each stratum so that upper bounds pack well; return classes and cost as for least
            # loss.
            price = float(self.alpha) * span
            capacity = nearest_float(self.capacity)
            first, cost = np.full(len(tops), -1, dtype=np.int64), 0.0
            whole = whole_numbers(np.minimum(tops, capacity), capacity)
            share = MOST_PACKED / int(runs.before[-1])
            for start, stop in itertools.pairwise(runs.starts.tolist()):
                before = runs.before[start : stop + 1] - runs.before[start]
                loads = Loads(
                    items=np.where(tops[start:stop] > capacity, whole.capacity + 1, whole.items[start:stop]),
                    capacity=whole.capacity,
                    before=before,
                    lower=runs.lower[start:stop],
                    upper=runs.upper[start:stop],
                    k=self.k,
                    price=price,
                )
                borders = best_borders(
                    loads, _class_runs(class_of_run[start:stop]), most_packed=round(share * loads.num_records)
                )
                for begin, end in borders:
                    first[start + begin : start + end] = start + begin
                cost += loads.loss(borders)
            class_of_run, loss = np.where(first < 0, -1, np.cumsum(opening_runs(runs, first)) - 1), cost
        of_row = np.empty(len(values), dtype=np.int64)
        of_row[order] = np.repeat(class_of_run, runs.counts)
        if (of_row < 0).all():
            raise refuse_empty(self.alpha)
        weight = float(dict(self.importance).get(attribute.name, 1))
        classes = Classes(
            of_row=of_row,
            generalised=(self._interval(attribute, values, of_row),),
            losses=(loss / span,),
            importance=(weight,),
        )
        return Search(classes=classes, bound=weight * least / span, proven=loss == least)

    def _cut_several(
        self, dataset: Dataset, attributes: tuple[Attribute, ...], stratum: IntArray, num_strata: int
    ) -> Search:
        """Cut each stratum by itself: no class spans two, so the problem falls apart into theirs."""
        columns = [dataset.numbers(attribute.name) for attribute in attributes]
        ends = [self._ends(column, a.numeric) for column, a in zip(columns, attributes, strict=True)]
        values, lower, upper = np.column_stack(columns), *(np.column_stack([e[i] for e in ends]) for i in (0, 1))
        importance = np.array([float(weight) for weight in self._weights_of(attributes)])
        costs = {
            "factor": importance / np.array([span for _, _, span in ends]),
            "k": self.k,
            "price": float(self.alpha) * float(importance.sum()),
            "compiled": len(dataset) >= cuts.COMPILE_FROM_RECORDS,
        }
        # looks : for each row its stratum and the ends its cell shows; -1 is the stratum of suppressed rows
        looks = np.full((len(values), 1 + 2 * len(attributes)), -1.0)
        bound, proven = 0.0, True
        order = np.argsort(stratum, kind="stable")
        for number, rows in enumerate(np.split(order, np.searchsorted(stratum[order], np.arange(1, num_strata)))):
            points, point_of = Points.of(values[rows], lower[rows], upper[rows], **costs)
            found = cuts.search(points, most_steps=cuts.MOST_STEPS // num_strata)
            looks[rows] = _looks(points, Cells.of(points, found.cuts), number)[point_of]
            bound, proven = bound + found.bound, proven and found.proven
        # Make one class of rows that look alike, numbered by stratum and ends; -1 where the stratum is -1.
        kept = np.flatnonzero(looks[:, 0] >= 0)
        distinct, class_id, sizes = np.unique(looks[kept], axis=0, return_inverse=True, return_counts=True)
        of_row = np.full(len(looks), -1, dtype=np.int64)
        of_row[kept] = class_id.reshape(-1)
        if (of_row < 0).all():
            raise refuse_empty(self.alpha)
        widths = sizes.astype(np.int64) @ (distinct[:, 2::2] - distinct[:, 1::2])
        losses = [
            float(width / span) + float(self.alpha) * int((of_row < 0).sum())
            for width, (_, _, span) in zip(widths, ends, strict=True)
        ]
        classes = Classes(
            of_row=of_row,
            generalised=tuple(self._interval(a, column, of_row) for a, column in zip(attributes, columns, strict=True)),
            losses=tuple(losses),
            importance=tuple(importance.tolist()),
        )
        return Search(classes=classes, bound=min(bound, classes.loss_sum), proven=proven)

    def _attributes(self, schema: Schema) -> tuple[Attribute, ...]:
        found = schema.quasi_identifiers
        names = ", ".join(f"{a.name} ({a.kind})" for a in found) or "none"
        if not found or not all(isinstance(a.domain, Numeric) for a in found):
            raise ParameterError(
                f"partition generalises numeric quasi-identifiers. Got {names}. Use the mechanism full-domain for "
                "trees, or give the others another role: public, sensitive or drop."
            )
        rough = [a.name for a in found if a.numeric.resolution is None]
        if self.bounds == "grid" and rough:
            raise ParameterError(
                f'bounds = "grid" needs a public grid. Attribute {rough[0]!r} has no resolution. Add one.'
            )
        unknown = [name for name, _ in self.importance if name not in [a.name for a in found]]
        if unknown:
            raise ParameterError(
                f"importance is for quasi-identifiers. Got {unknown[0]!r}, and they are {names}. Take it out."
            )
        if self.goal == "packing" and (len(found) > 1 or found[0].numeric.lower < 0):
            raise ParameterError(
                'goal = "packing" takes one numeric quasi-identifier with a domain of at least 0. '
                f'Got {names}. Use goal = "loss".'
            )
        return found

    def _weights_of(self, attributes: tuple[Attribute, ...]) -> list[Fraction]:
        given = dict(self.importance)
        return [given.get(a.name, Fraction(1)) for a in attributes]

    def _bounds_in_clear(self, attribute: Attribute) -> str:
        name, domain = attribute.name, attribute.numeric
        if self.bounds == "class":
            return f"two exact values of {name} per class: its smallest and its largest"
        return (
            f"the smallest and largest {name} of each class, rounded outward to the public grid of "
            f"{_amount(domain.resolution or Fraction(0), domain)} (exact where values are recorded on that grid)"
        )

    def _ends(self, values: FloatArray, domain: Numeric) -> tuple[FloatArray, FloatArray, float]:
        """Return lower end, upper end and domain width on one scale, in whole numbers wherever possible.

        Costs are then exact integers in a double (up to 2**53), so that equal costs compare equal.
        """
        if self.bounds == "grid":
            return (
                domain.steps_below(values).astype(np.float64),
                domain.steps_above(values).astype(np.float64),
                float(domain.num_steps),
            )
        scale = decimal_scale(values)
        if scale is not None and (domain.upper - domain.lower) * scale < _LARGEST_EXACT_INTEGER:
            whole = np.rint(values * scale)
            return whole, whole, float((domain.upper - domain.lower) * scale)
        # A power of two changes no digit, and keeps the price finite where the domain is enormous.
        width, exponent = math.frexp(domain.span)
        scaled = np.ldexp(values, -exponent)
        return scaled, scaled, width

    def _tops(self, values: FloatArray, domain: Numeric) -> FloatArray:
        """Return the upper bound that a class with this largest value shows."""
        return domain.grid_values(domain.steps_above(values)) if self.bounds == "grid" else values

    def _interval(self, attribute: Attribute, values: FloatArray, of_row: IntArray) -> Intervals:
        kept = of_row >= 0
        num = int(of_row.max()) + 1
        lower, upper = np.full(num, np.inf), np.full(num, -np.inf)
        np.minimum.at(lower, of_row[kept], values[kept])
        np.maximum.at(upper, of_row[kept], values[kept])
        domain = attribute.numeric
        if self.bounds == "grid":
            lower = domain.grid_values(domain.steps_below(lower))
        return Intervals(name=attribute.name, lower=lower, upper=self._tops(upper, domain))


def _amount(number: Fraction, domain: Numeric) -> str:
    return f"{decimal_text(number)} {domain.unit}".strip()


def _looks(points: Points, cells: Cells, stratum: int) -> FloatArray:
    """Return for each point its stratum and what its cell shows: lower and upper end of each attribute in turn."""
    ends = np.stack([cells.lower, cells.upper], axis=2).reshape(len(cells.sizes), -1)
    number = np.where(cells.sizes >= points.k, float(stratum), -1.0)
    return np.column_stack([number, ends])[cells.of_point]


def _class_runs(class_of_run: IntArray) -> tuple[tuple[int, int], ...]:
    """Return first run and run after the last of each class; runs of a class that others interrupt are several."""
    change = np.flatnonzero(np.diff(class_of_run)) + 1
    pieces = itertools.pairwise([0, *change.tolist(), len(class_of_run)])
    return tuple((begin, end) for begin, end in pieces if class_of_run[begin] >= 0)


# Runs: one attribute's records of equal value, in order, and the classes of consecutive runs that lose least: an exact
# dynamic program; docs/proofs/partition.md says why it needs so few steps.


@dataclass(frozen=True, eq=False)
class Runs:
    """Rows that cannot be told apart, in order: bounds, how many rows come before, and where each stratum starts.

    ``before`` and ``starts`` have one entry more than there are runs and strata.
    """

    lower: FloatArray
    upper: FloatArray
    before: IntArray
    starts: IntArray

    @classmethod
    def of(cls, stratum: IntArray, values: FloatArray, lower: FloatArray, upper: FloatArray) -> Runs:
        change = (np.diff(stratum) != 0) | (np.diff(values) != 0)
        first = np.concatenate([[0], np.flatnonzero(change) + 1])
        starts = np.concatenate([[0], np.flatnonzero(np.diff(stratum[first])) + 1, [len(first)]])
        return cls(lower[first], upper[first], np.append(first, len(stratum)), starts)

    @property
    def counts(self) -> IntArray:
        return np.diff(self.before)


def best_classes(runs: Runs, k: int, price: float) -> tuple[IntArray, float]:
    """Return the class of each run (-1: suppressed), numbered in order, and the least total cost."""
    solve = _solve if len(runs.lower) >= _COMPILE_FROM_RUNS else _solve.plain
    first = np.full(len(runs.lower), -1, dtype=np.int64)
    cost = solve(runs.lower, runs.upper, runs.before, runs.starts, k, price, first)
    opens = opening_runs(runs, first)
    return np.where(first < 0, -1, np.cumsum(opens) - 1), float(cost)


def opening_runs(runs: Runs, first: IntArray) -> npt.NDArray[np.bool_]:
    """Mark the runs that open a class; neighbours of one stratum with equal rounded intervals are one class.

    Rounding can give two classes the same interval. They look alike, so they are one; their cost does not change.
    """
    opens = np.asarray(first == np.arange(len(first)))
    begins = np.flatnonzero(opens)
    ends = np.searchsorted(first[first >= 0], begins, side="right")
    last = np.flatnonzero(first >= 0)[ends - 1]
    stratum = np.searchsorted(runs.starts, begins, side="right")
    alike = [np.diff(found) == 0 for found in (stratum, runs.lower[begins], runs.upper[last])]
    same = np.logical_and.reduce(alike)
    opens[begins[1:][same]] = False
    return opens


@kernel
def _solve(
    lower: FloatArray,
    upper: FloatArray,
    before: IntArray,
    starts: IntArray,
    k: int,
    price: float,
    first_of: IntArray,
) -> float:
    """Dynamic program over the runs of each stratum; returns the least cost. Plain Python that numba can compile.

    ``best[end]`` is the least cost of the runs before ``end``, counted from the stratum's first: the last of them is
    suppressed (if below k records), or closes a class of at least k. ``first_of`` is filled with the first run of
    each run's class and keeps its -1 where suppressed.

    Where the last class may begin is a window that only moves forward. ``high``: later, and it has fewer than k
    records. ``low``: earlier, and either it can be cut in two classes, which cost no more, or an earlier ``end`` has
    already shown a later begin to be as good. Costs being size times width, the extra cost of beginning earlier only
    grows with ``end`` (the quadrangle inequality), so a begin that has lost has lost for good.
    """
    total = 0.0
    for s in range(len(starts) - 1):
        start, num = starts[s], starts[s + 1] - starts[s]
        best = np.zeros(num + 1)
        begin = np.full(num + 1, -1)  # first run of the class that closes here; -1: suppressed
        low, high = 0, 0
        for end in range(1, num + 1):
            rows = before[start + end]
            least = np.inf
            if rows - before[start] >= k:
                while rows - before[start + high + 1] >= k:
                    high += 1
                while before[start + high] - before[start + low] >= k:
                    low += 1
                for i in range(high, low - 1, -1):
                    cost = best[i] + (rows - before[start + i]) * (upper[start + end - 1] - lower[start + i])
                    if cost < least:
                        least, begin[end] = cost, i
                low = begin[end]
            count = rows - before[start + end - 1]
            if count < k and best[end - 1] + price * count < least:
                least, begin[end] = best[end - 1] + price * count, -1
            best[end] = least
        total += best[num]
        end = num
        while end > 0:
            i = begin[end] if begin[end] >= 0 else end - 1
            if begin[end] >= 0:
                first_of[start + i : start + end] = start + i
            end = i
    return total


# Borders: cut one attribute into classes whose upper bounds pack into few bins of a stated capacity.
#
# A heuristic. Cutting a class in two raises no upper bound, so only classes that cannot be cut into two of k need to be
# looked at; where there are few such partitions, all are tried. Otherwise dynamic programs propose some: each minimises
# a price per record that rises with its upper bound, and different prices suit different mixes of large and small items
# (they are the dual feasible functions of bin packing, which bound the number of bins from below). Borders of the best
# are then moved one at a time. The partition of least loss is always a candidate.
#
# Bins are counted by dominance, best fit decreasing and subset sums: no clock, so the same records give the same
# borders. A record that is suppressed, or whose upper bound exceeds the capacity, travels alone and counts as a bin.


@dataclass(frozen=True, eq=False, kw_only=True)
class Loads:
    """Runs of equal records of one stratum, in order, as a packer will see them."""

    items: IntArray  # Upper bound of each run, in whole numbers
    capacity: int  # Capacity of a bin, in the same unit
    before: IntArray  # Number of records before each run, and in all
    lower: FloatArray  # lower, upper: ends of each run, for the loss
    upper: FloatArray
    k: int  # Fewest records of a class
    price: float  # What suppressing one record costs, in units of width

    @property
    def num_records(self) -> int:
        return int(self.before[-1])

    def loss(self, borders: Borders) -> float:
        """Return eq. 7 over all records, before division by the width of the domain."""
        begins, ends = np.array(borders, dtype=np.int64).reshape(-1, 2).T
        sizes = self.before[ends] - self.before[begins]
        widths = self.upper[ends - 1] - self.lower[begins]
        return float(sizes @ widths) + self.price * (self.num_records - int(sizes.sum()))

    def num_bins(self, borders: Borders) -> int:
        """Count the bins that the classes' upper bounds need, and one for each record that travels alone."""
        begins, ends = np.array(borders, dtype=np.int64).reshape(-1, 2).T
        sizes, items = self.before[ends] - self.before[begins], self.items[ends - 1]
        fits = items <= self.capacity
        alone = self.num_records - int(sizes[fits].sum())
        return alone + count_bins(np.repeat(items[fits], sizes[fits]), self.capacity)

    def begins(self, end: int) -> range:
        """Return where a class that ends before this run may begin: k records, and not enough for two classes."""
        last = int(np.searchsorted(self.before, self.before[end] - self.k, side="right")) - 1
        if last < 0:
            return range(0)
        return range(int(np.searchsorted(self.before, self.before[last] - self.k, side="right")), last + 1)


def count_bins(items: IntArray, capacity: int) -> int:
    """Count bins by dominance, best fit decreasing and, if these leave a gap to the bound, subset sums."""
    positive = items[items > 0]
    fixed, rest = fix_dominated(positive, list(range(len(positive))), capacity)
    if not rest:
        return max(len(fixed), min(1, len(items)))
    num = len(best_fit_decreasing(positive, rest, capacity))
    if num > l2_bound(positive[rest], capacity):
        order = sorted(rest, key=positive.tolist().__getitem__, reverse=True)
        num = min(num, len(fill_by_subset_sums(positive, order, capacity) or rest))
    return len(fixed) + num


def best_borders(loads: Loads, least_loss: Borders, *, most_packed: int = MOST_PACKED) -> Borders:
    """Choose the borders whose upper bounds need the fewest bins, then those that lose least."""
    comparison = _Comparison(loads, max(FEWEST_COMPARED, most_packed // loads.num_records))
    comparison.offer(least_loss)
    comparison.climb()
    if _num_partitions(loads) <= comparison.left:
        for borders in _partitions(loads):
            comparison.offer(borders)
    else:
        for price in _prices():
            if comparison.left > 0:
                comparison.offer(_cheapest(loads, price))
    comparison.climb()
    return comparison.best


@dataclass
class _Comparison:
    """The best borders so far and how many more may be compared."""

    loads: Loads
    left: int
    best: Borders = ()
    _key: tuple[float, float] = (math.inf, math.inf)
    _seen: set[Borders] = field(default_factory=set)

    def offer(self, borders: Borders | None) -> bool:
        if borders is None or borders in self._seen or self.left <= 0:
            return False
        self.left -= 1
        self._seen.add(borders)
        key = (self.loads.num_bins(borders), self.loads.loss(borders))
        if key < self._key:
            self.best, self._key = borders, key
            return True
        return False

    def climb(self) -> None:
        while self.left > 0 and any(self.offer(moved) for moved in _moves(self.loads, self.best)):
            continue


def _num_partitions(loads: Loads) -> int:
    """Count the partitions without suppression into classes that cannot be cut in two."""
    ways = [1] + [0] * len(loads.items)
    for end in range(1, len(ways)):
        ways[end] = min(MOST_PACKED, sum(ways[begin] for begin in loads.begins(end)))
    return ways[-1]


def _partitions(loads: Loads) -> Iterator[Borders]:
    waiting: list[tuple[int, Borders]] = [(len(loads.items), ())]
    while waiting:
        end, after = waiting.pop()
        if end == 0:
            yield after
        waiting += [(begin, ((begin, end), *after)) for begin in loads.begins(end)]


def _prices() -> Iterator[Callable[[FloatArray], FloatArray]]:
    yield lambda share: 1 / np.floor(1 / np.maximum(share, 1e-9))  # as many as fit of the same
    yield lambda share: share
    yield lambda share: share + 1 / np.floor(1 / np.maximum(share, 1e-9))
    for period in range(1, LARGEST_PERIOD + 1):  # Fekete and Schepers 2001, u^(period)
        yield lambda share, period=period: np.where(  # type: ignore[misc]
            (period + 1) * share % 1 == 0, share, np.floor((period + 1) * share) / period
        )
    for threshold in (1 / 3, 1 / 4, 1 / 5, 1 / 8):
        yield lambda share, threshold=threshold: np.where(  # type: ignore[misc]
            share > 1 - threshold, 1.0, np.where(share < threshold, 0.0, share)
        )


def _cheapest(loads: Loads, price: Callable[[FloatArray], FloatArray]) -> Borders | None:
    """Minimise the sum of prices over partitions into classes that cannot be cut in two; None if there is none."""
    share = np.minimum(loads.items / loads.capacity, 1.0)
    width = max(float(loads.upper[-1] - loads.lower[0]), np.finfo(float).tiny)
    paid = price(share)
    best = np.append(0.0, np.full(len(share), np.inf))
    previous = np.zeros(len(share) + 1, dtype=np.int64)
    for end in range(1, len(share) + 1):
        begins = loads.begins(end)
        if len(begins):
            window = slice(begins.start, begins.stop)
            # A little of the loss decides where prices are equal.
            each = paid[end - 1] + 1e-6 * (loads.upper[end - 1] - loads.lower[window]) / width
            costs = best[window] + (loads.before[end] - loads.before[window]) * each
            at = int(np.argmin(costs))
            best[end], previous[end] = costs[at], begins[at]
    if not math.isfinite(best[-1]):
        return None
    ends = [len(share)]
    while ends[-1] > 0:
        ends.append(int(previous[ends[-1]]))
    return tuple(itertools.pairwise(ends[::-1]))


def _moves(loads: Loads, borders: Borders) -> Iterator[Borders]:
    """Move one border between neighbouring classes by a few runs, as long as both keep k records."""
    for at, shift in itertools.product(range(1, len(borders)), range(-MOST_SHIFT, MOST_SHIFT + 1)):
        (first, end), (begin, last) = borders[at - 1], borders[at]
        moved = begin + shift
        if shift == 0 or end != begin or not first < moved < last:
            continue
        rows = loads.before
        if min(rows[moved] - rows[first], rows[last] - rows[moved]) >= loads.k:
            yield (*borders[: at - 1], (first, moved), (moved, last), *borders[at + 1 :])
