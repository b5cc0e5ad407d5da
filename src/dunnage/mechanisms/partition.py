# SPDX-License-Identifier: Apache-2.0
"""Partition: cut numeric attributes into intervals, at least k records to a class, with as little loss as possible.

The problem is K-Optimize's (Bayardo and Agrawal 2005) with the loss metric of Hoogervorst et al. 2019, eq. 7. One
attribute needs no branch and bound: the best last class follows the best partition of the records before it, and a
class that could be cut into two of k each need not be tried. As in eq. 7, only intervals of fewer than k records can be
suppressed, and equal values are treated alike (global recoding). Several attributes are cut further below.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import logging
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from dunnage.arrays import FloatArray, IntArray, kernel
from dunnage.errors import ParameterError
from dunnage.exact import nearest_float, plain, shown_number
from dunnage.mechanisms.base import K, OptionalNumber, Progress, amount
from dunnage.mechanisms.classes import (
    Alpha,
    ClassMechanism,
    EquivalenceClasses,
    FinestFold,
    Importance,
    Intervals,
    Statistic,
    check_stratum_sizes,
    refuse_empty,
    strata,
)
from dunnage.model.domains import Numeric, decimal_scale
from dunnage.model.guarantees import CHOICE_DEPENDS_ON_DATA, Assumption, Promise
from dunnage.model.schema import Attribute, Schema
from dunnage.text import percent_at_most

if TYPE_CHECKING:
    from dunnage.tables.dataset import Dataset

_COMPILE_FROM_RUNS = 20_000
Borders = tuple[tuple[int, int], ...]  # for each class its first run and the run after its last
MAX_PACKED = 200_000  # items packed in total while candidates are compared
MIN_COMPARED = 4
MAX_SHIFT = 3
MAX_PERIOD = 8
_MAX_EXACT_INTEGER = 2**53
_log = logging.getLogger("dunnage")


@dataclass(frozen=True, eq=False, kw_only=True)
class SearchResult:
    """Classes, their loss, and a lower bound on the loss of any partition of the same kind. For the owner only."""

    classes: EquivalenceClasses
    bound: float  # no partition loses less (eq. 7 over all records)
    proven: bool  # whether no partition loses less, up to one part in 10^9

    @property
    def loss(self) -> float:
        return self.classes.loss_sum

    @property
    def gap(self) -> float:
        return max(0.0, 1 - self.bound / self.loss) if self.loss > 0 else 0.0


class Partition(ClassMechanism):
    """Release each record's intervals, at least k records to a class.

    Parameters
    ----------
    k
        Smallest number of records that must look alike.
    alpha
        Price of suppressing one record, in records generalised to the whole domain.
    importance
        Weight of an attribute in the loss, by its name (beta in eq. 7); 1 by default.
    statistic
        What is released about a class: its ``bounds``, also its ``mean``, or the ``multiset`` of its values.
    bounds
        ``class``: the class's own smallest and largest value; ``grid``: rounded outward to the public grid.
    goal
        ``loss``: the smallest possible loss; ``packing``: choose the borders of one attribute so that upper bounds
        pack into few bins, separately for each combination of public values (a heuristic, never more bins than
        ``loss``).
    capacity
        Capacity of a bin, for ``packing`` only.

    Guarantee
    ---------
    k-anonymity over public and generalised columns together, proved: the mechanism counts the classes.

    Assumptions
    -----------
    Public domain; one record per protected unit; class borders depend on the data; a refusal may depend on the data.

    Runtime
    -------
    One attribute: O(n) to count equal values, O(m log m) to sort the m different ones; then at most O(m k) steps, on
    smooth data hardly more than m if k is below some thousands. Several: some seconds for ten thousand records, limited
    by counted steps and not by the clock.

    Utility
    -------
    Within each combination of public values. One attribute: the exact minimum of the loss metric (eq. 7). Several: the
    exact minimum for small problems (for example two attributes of a hundred records); for larger ones a partition that
    no change of a single attribute improves. :meth:`search` returns the bound.

    References
    ----------
    Hoogervorst, Zhang, Tillem, Erkin, Verwer 2019, section 4.2 and eq. 7; Bayardo, Agrawal 2005 (K-Optimize).
    """

    name = "partition"
    fast = True
    apart = True
    proof = ("partition.md#guarantee",)
    k: K
    alpha: Alpha = Fraction(1)
    statistic: Statistic = "bounds"
    bounds: Literal["class", "grid"] = "class"
    # Descriptions leave these out at their defaults.
    goal: Annotated[Literal["loss", "packing"], Field(exclude_if=lambda goal: goal == "loss")] = "loss"
    capacity: Annotated[OptionalNumber, Field(exclude_if=lambda capacity: capacity is None)] = None
    importance: Annotated[Importance, Field(exclude_if=lambda importance: not importance)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.goal == "packing") != (self.capacity is not None):
            got = "no capacity" if self.capacity is None else f'a capacity with goal = "{self.goal}"'
            raise ParameterError(f'goal = "packing" and a capacity belong together. Got {got}. Give both, or neither.')
        if self.capacity is not None and not 0 < nearest_float(self.capacity) < math.inf:
            raise ParameterError(f"capacity, the size of a bin, must be above 0. Got {shown_number(self.capacity)}.")
        return self

    @property
    def class_bounds(self) -> str:  # type: ignore[override]
        return self.bounds

    def promise(self, schema: Schema) -> Promise:
        attributes = self._attributes(schema)
        names = ", ".join(a.name for a in attributes)
        in_clear, choice = [], CHOICE_DEPENDS_ON_DATA
        for a in attributes:
            in_clear.append(f"two exact values of {a.name} per class: its smallest and its largest")
            if self.bounds == "grid":
                grid = amount(a.numeric.resolution or Fraction(0), a.numeric)
                in_clear[-1] = (
                    f"the smallest and largest {a.name} of each class, rounded outward to the public grid of {grid} "
                    "(exact if values are recorded on that grid)"
                )
        if self.capacity is not None:
            bin_size = amount(self.capacity, attributes[0].numeric)
            in_clear.append(f"class borders, chosen from all values of {names} to pack well into bins of {bin_size}")
            says = f"the borders of classes were chosen from the records to pack into few bins of {bin_size}"
            choice = Assumption(choice.name, says)
        if self.statistic == "mean":
            in_clear.append(f"the mean {names} of each class")
        if self.statistic == "multiset" and len(attributes) == 1:
            in_clear.append(f"every value of {names}, as an unordered list for each class")
        if self.statistic == "multiset" and len(attributes) > 1:
            in_clear.append(f"every combination of {names}, as an unordered list for each class, and the mean of each")
        # Importance lists all attributes, unless there is only one and it counts 1.
        described, weights = self.describe(), self._weights_of(attributes)
        described.pop("importance", None)
        if weights != [1]:
            described["importance"] = {a.name: plain(weight) for a, weight in zip(attributes, weights, strict=True)}
        return self.class_promise(
            schema, in_clear=tuple(in_clear), numerics="classes are exact", choice=choice, mechanism=described
        )

    def classes(self, dataset: Dataset, progress: Progress | None = None) -> EquivalenceClasses:
        return self.search(dataset).classes

    def search(self, dataset: Dataset) -> SearchResult:
        """Return the classes with the smallest loss, and how much less any partition might lose. For the owner.

        Refuses if a combination of public values has fewer than k records, or if every record would be suppressed.
        """
        attributes = self._attributes(dataset.schema)
        if len(attributes) == 1:
            return self._cut_one(dataset, attributes[0])
        stratum, num_strata = strata(dataset)
        check_stratum_sizes(np.bincount(stratum, minlength=num_strata), self.k, dataset)
        result = self._cut_several(dataset, attributes, stratum, num_strata)
        outcome = "is proven least" if result.proven else f"could be at most {percent_at_most(result.gap)} lower"
        _log.info("partition of %d attributes: the loss %s", len(attributes), outcome)
        return result

    def fold(self, schema: Schema, period: str | None) -> FinestFold | None:
        """Count the values of one attribute; several are cut in memory."""
        return FinestFold.of(schema) if len(self._attributes(schema)) == 1 else None

    def _cut_one(self, dataset: Dataset, attribute: Attribute) -> SearchResult:
        # runs : rows of one stratum and equal value, which must stay together
        fold, finest = FinestFold.of(dataset.schema), self.folded(dataset)
        of_stratum, num_strata = finest.strata(len(dataset.schema.public))
        sizes = np.bincount(of_stratum, finest.counts, minlength=num_strata).astype(np.int64)
        check_stratum_sizes(sizes, self.k, dataset)
        values = finest.numbers(attribute.name)
        lower, upper, span = self._ends(values, attribute.numeric)
        runs = Runs.of(of_stratum, finest.counts, lower, upper)
        solve = _solve if len(runs.lower) >= _COMPILE_FROM_RUNS else _solve.plain
        first = np.full(len(runs.lower), -1, dtype=np.int64)
        price = float(self.alpha) * span
        loss = least = float(solve(runs.lower, runs.upper, runs.before, runs.starts, self.k, price, first))
        class_of_run = np.where(first < 0, -1, np.cumsum(opening_runs(runs, first)) - 1)
        if self.capacity is not None:
            from dunnage.kernels.bins.scalar import whole_numbers  # only this goal packs

            tops = self._tops(values, attribute.numeric)
            # Choose other borders in each stratum so that upper bounds pack well.
            capacity = nearest_float(self.capacity)
            first, loss = np.full(len(tops), -1, dtype=np.int64), 0.0
            whole = whole_numbers(np.minimum(tops, capacity), capacity)
            for start, stop in itertools.pairwise(runs.starts.tolist()):
                loads = Loads(
                    items=np.where(tops[start:stop] > capacity, whole.capacity + 1, whole.items[start:stop]),
                    capacity=whole.capacity,
                    before=runs.before[start : stop + 1] - runs.before[start],
                    lower=runs.lower[start:stop],
                    upper=runs.upper[start:stop],
                    k=self.k,
                    price=price,
                )
                # A class that other runs interrupt counts as several classes.
                class_of = class_of_run[start:stop]
                ends = [0, *(np.flatnonzero(np.diff(class_of)) + 1).tolist(), len(class_of)]
                least_loss = tuple((begin, end) for begin, end in itertools.pairwise(ends) if class_of[begin] >= 0)
                max_packed = round(MAX_PACKED / int(runs.before[-1]) * loads.num_records)
                borders = best_borders(loads, least_loss, max_packed=max_packed)
                for begin, end in borders:
                    first[start + begin : start + end] = start + begin
                loss += loads.loss(borders)
            class_of_run = np.where(first < 0, -1, np.cumsum(opening_runs(runs, first)) - 1)
        if (class_of_run < 0).all():
            raise refuse_empty(self.alpha)
        weight = float(dict(self.importance).get(attribute.name, 1))
        classes = EquivalenceClasses.of_finest(
            dataset,
            fold,
            finest,
            class_of_run,
            generalised=(self._interval(attribute, values, class_of_run),),
            losses=(loss / span,),
            importance=(weight,),
        )
        return SearchResult(classes=classes, bound=weight * least / span, proven=loss == least)

    def _cut_several(
        self, dataset: Dataset, attributes: tuple[Attribute, ...], stratum: IntArray, num_strata: int
    ) -> SearchResult:
        """Cut each stratum separately: no class spans two of them."""
        columns = [dataset.numbers(attribute.name) for attribute in attributes]
        ends = [self._ends(column, a.numeric) for column, a in zip(columns, attributes, strict=True)]
        values, lower, upper = np.column_stack(columns), *(np.column_stack([e[i] for e in ends]) for i in (0, 1))
        importance = np.array([float(weight) for weight in self._weights_of(attributes)])
        costs = {
            "factor": importance / np.array([span for _, _, span in ends]),
            "k": self.k,
            "price": float(self.alpha) * float(importance.sum()),
            "compiled": len(dataset) >= COMPILE_FROM_RECORDS or len(attributes) > 2,
        }
        # looks : for each row its stratum and the ends its cell shows; -1 is the stratum of suppressed rows
        looks = np.full((len(values), 1 + 2 * len(attributes)), -1.0)
        bound, proven = 0.0, True
        order = np.argsort(stratum, kind="stable")
        for number, rows in enumerate(np.split(order, np.searchsorted(stratum[order], np.arange(1, num_strata)))):
            points, point_of = Points.of(values[rows], lower[rows], upper[rows], **costs)
            best = search_cuts(points, max_steps=MAX_STEPS // num_strata)
            cells = CellBounds.of(points, best.cuts)
            ends_of_cell = np.stack([cells.lower, cells.upper], axis=2).reshape(len(cells.sizes), -1)
            shown = np.column_stack([np.where(cells.sizes >= self.k, float(number), -1.0), ends_of_cell])
            looks[rows] = shown[cells.of_point][point_of]
            bound, proven = bound + best.bound, proven and best.proven
        # Rows that look alike are one class, numbered by stratum and ends; -1 if the stratum is -1.
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
        classes = EquivalenceClasses(
            of_row=of_row,
            generalised=tuple(self._interval(a, column, of_row) for a, column in zip(attributes, columns, strict=True)),
            losses=tuple(losses),
            importance=tuple(importance.tolist()),
        )
        return SearchResult(classes=classes, bound=min(bound, classes.loss_sum), proven=proven)

    def _attributes(self, schema: Schema) -> tuple[Attribute, ...]:
        attributes = schema.quasi_identifiers
        names = ", ".join(f"{a.name} ({a.kind})" for a in attributes) or "none"
        if not attributes or not all(isinstance(a.domain, Numeric) for a in attributes):
            raise ParameterError(
                f"partition generalises numeric quasi-identifiers. Got {names}. Use the mechanism full-domain for "
                "trees, or give the others another role: public, sensitive or drop."
            )
        rough = [a.name for a in attributes if a.numeric.resolution is None]
        if self.bounds == "grid" and rough:
            raise ParameterError(
                f'bounds = "grid" needs a public grid, but attribute {rough[0]!r} has no resolution. Add one.'
            )
        if unknown := [name for name, _ in self.importance if name not in [a.name for a in attributes]]:
            raise ParameterError(
                f"importance names {unknown[0]!r}, which is not a quasi-identifier. The quasi-identifiers are {names}."
            )
        if self.goal == "packing" and (len(attributes) > 1 or attributes[0].numeric.lower < 0):
            raise ParameterError(
                'goal = "packing" takes one numeric quasi-identifier, and its domain must not go below 0. '
                f'Got {names}. Use goal = "loss".'
            )
        return attributes

    def _weights_of(self, attributes: tuple[Attribute, ...]) -> list[Fraction]:
        given = dict(self.importance)
        return [given.get(a.name, Fraction(1)) for a in attributes]

    def _ends(self, values: FloatArray, domain: Numeric) -> tuple[FloatArray, FloatArray, float]:
        """Return lower end, upper end and domain width on one scale, in whole numbers if possible."""
        # Costs are then exact integers in a double (up to 2**53), so equal costs compare equal.
        if self.bounds == "grid":
            below, above = domain.steps_below(values), domain.steps_above(values)
            return below.astype(np.float64), above.astype(np.float64), float(domain.num_steps)
        scale = decimal_scale(values)
        if scale is not None and (domain.upper - domain.lower) * scale < _MAX_EXACT_INTEGER:
            whole = np.rint(values * scale)
            return whole, whole, float((domain.upper - domain.lower) * scale)
        # A power of two changes no digit, and keeps the price finite even if the domain is enormous.
        width, exponent = math.frexp(domain.span)
        scaled = np.ldexp(values, -exponent)
        return scaled, scaled, width

    def _tops(self, values: FloatArray, domain: Numeric) -> FloatArray:
        """Return the upper bound that a class shows for each largest value."""
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


# Runs: the records of one attribute with equal values, in order, and the classes of consecutive runs with the smallest
# loss. This is an exact dynamic program; docs/proofs/partition.md says why it needs few steps.
@dataclass(frozen=True, eq=False)
class Runs:
    lower: FloatArray
    upper: FloatArray
    before: IntArray  # rows before each run, and in total
    starts: IntArray  # first run of each stratum, and the number of runs

    @classmethod
    def of(cls, stratum: IntArray, counts: IntArray, lower: FloatArray, upper: FloatArray) -> Runs:
        starts = np.concatenate([[0], np.flatnonzero(np.diff(stratum)) + 1, [len(counts)]])
        return cls(lower, upper, np.append(0, np.cumsum(counts)), starts)


def opening_runs(runs: Runs, first: IntArray) -> npt.NDArray[np.bool_]:
    """Mark the runs that open a class, by the first run of each run's class."""
    # Rounding can give neighbours of one stratum the same interval. They look alike, so they are one class.
    opens = np.asarray(first == np.arange(len(first)))
    begins = np.flatnonzero(opens)
    ends = np.searchsorted(first[first >= 0], begins, side="right")
    last = np.flatnonzero(first >= 0)[ends - 1]
    stratum = np.searchsorted(runs.starts, begins, side="right")
    alike = [np.diff(shown) == 0 for shown in (stratum, runs.lower[begins], runs.upper[last])]
    same = np.logical_and.reduce(alike)
    opens[begins[1:][same]] = False
    return opens


@kernel
def _solve(
    lower: FloatArray, upper: FloatArray, before: IntArray, starts: IntArray, k: int, price: float, first_of: IntArray
) -> float:
    """Dynamic program over the runs of each stratum; returns the least cost."""
    # `best[end]` is the least cost of the runs before `end`, counted from the stratum's first: the last of them is
    # suppressed (if below k records), or closes a class of at least k. `first_of` gets the first run of each run's
    # class; -1 stays for suppressed runs. The last class begins between `low` and `high`, which only move forward:
    # after `high` it would have fewer than k records; before `low` it can be cut in two at no more cost, or a later
    # begin has already been as good.
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


# Borders: cut one attribute into classes with upper bounds that pack into few bins of a stated capacity. This is a
# heuristic (docs/proofs/partition.md#goal-packing): it tries all partitions if they are few, else those that dynamic
# programs propose. Each program minimises a price per record that rises with its upper bound; different prices, which
# are dual feasible functions of bin packing, suit different mixes of large and small items.
@dataclass(frozen=True, eq=False, kw_only=True)
class Loads:
    """Runs of equal records of one stratum, in order, as a packer will see them."""

    items: IntArray  # upper bound of each run, in whole numbers
    capacity: int  # of a bin, in the same unit
    before: IntArray  # number of records before each run, and in total
    lower: FloatArray  # ends of each run, for the loss
    upper: FloatArray
    k: int  # smallest number of records in a class
    price: float  # cost of suppressing one record, in units of width

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
        """Count the bins for the classes' upper bounds, and one for each record that travels alone."""
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
    from dunnage.kernels.bins.scalar import best_fit_decreasing, fill_by_subset_sums, fix_dominated, l2_bound

    positive = items[items > 0]
    fixed, rest = fix_dominated(positive, list(range(len(positive))), capacity)
    if not rest:
        return max(len(fixed), min(1, len(items)))
    num = len(best_fit_decreasing(positive, rest, capacity))
    if num > l2_bound(positive[rest], capacity):
        order = sorted(rest, key=positive.tolist().__getitem__, reverse=True)
        num = min(num, len(fill_by_subset_sums(positive, order, capacity) or rest))
    return len(fixed) + num


def best_borders(loads: Loads, least_loss: Borders, *, max_packed: int = MAX_PACKED) -> Borders:
    """Choose the borders that need the fewest bins; among equals, those with the smallest loss."""
    best: Borders = ()
    best_key, seen, left = (math.inf, math.inf), set(), max(MIN_COMPARED, max_packed // loads.num_records)

    def offer(borders: Borders | None) -> bool:
        nonlocal best, best_key, left
        if borders is None or borders in seen or left <= 0:
            return False
        left -= 1
        seen.add(borders)
        key = (loads.num_bins(borders), loads.loss(borders))
        if key < best_key:
            best, best_key = borders, key
            return True
        return False

    def climb() -> None:
        while left > 0 and any(offer(borders) for borders in _moves(loads, best)):
            continue

    offer(least_loss)
    climb()
    if (partitions := few_partitions(loads, left)) is not None:
        for borders in partitions:
            offer(borders)
    else:
        for price in _prices():
            if left > 0:
                offer(_cheapest(loads, price))
    climb()
    return best


def few_partitions(loads: Loads, max_num: int) -> list[Borders] | None:
    """List the partitions without suppression into classes that cannot be cut in two; None if there are too many."""
    ways = [1] + [0] * len(loads.items)
    for end in range(1, len(ways)):
        ways[end] = min(MAX_PACKED, sum(ways[begin] for begin in loads.begins(end)))
    if ways[-1] > max_num:
        return None
    partitions: list[Borders] = []
    waiting: list[tuple[int, Borders]] = [(len(loads.items), ())]
    while waiting:
        end, after = waiting.pop()
        if end == 0:
            partitions.append(after)
        waiting += [(begin, ((begin, end), *after)) for begin in loads.begins(end)]
    return partitions


def _prices() -> Iterator[Callable[[FloatArray], FloatArray]]:
    yield lambda share: 1 / np.floor(1 / np.maximum(share, 1e-9))  # as many as fit of the same
    yield lambda share: share
    yield lambda share: share + 1 / np.floor(1 / np.maximum(share, 1e-9))
    for period in range(1, MAX_PERIOD + 1):  # Fekete and Schepers 2001, u^(period)
        yield lambda share, period=period: np.where(  # type: ignore[misc]
            (period + 1) * share % 1 == 0, share, np.floor((period + 1) * share) / period
        )
    for threshold in (1 / 3, 1 / 4, 1 / 5, 1 / 8):
        yield lambda share, threshold=threshold: np.where(  # type: ignore[misc]
            share > 1 - threshold, 1.0, np.where(share < threshold, 0.0, share)
        )


def _cheapest(loads: Loads, price: Callable[[FloatArray], FloatArray]) -> Borders | None:
    """Minimise the sum of prices over partitions into classes that cannot be cut in two; None without any."""
    share = np.minimum(loads.items / loads.capacity, 1.0)
    width = max(float(loads.upper[-1] - loads.lower[0]), np.finfo(float).tiny)
    paid = price(share)
    best = np.append(0.0, np.full(len(share), np.inf))
    previous = np.zeros(len(share) + 1, dtype=np.int64)
    for end in range(1, len(share) + 1):
        begins = loads.begins(end)
        if len(begins):
            window = slice(begins.start, begins.stop)
            # A small part of the loss decides between equal prices.
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
    """Yield the borders with one of them moved by a few runs, as long as both its classes keep k records."""
    for at, shift in itertools.product(range(1, len(borders)), range(-MAX_SHIFT, MAX_SHIFT + 1)):
        (first, end), (begin, last) = borders[at - 1], borders[at]
        moved = begin + shift
        if shift == 0 or end != begin or not first < moved < last:
            continue
        rows = loads.before
        if min(rows[moved] - rows[first], rows[last] - rows[moved]) >= loads.k:
            yield (*borders[: at - 1], (first, moved), (moved, last), *borders[at + 1 :])


# Cuts: each of several numeric attributes is cut into intervals; classes are the cells of the product that contain
# records (Hoogervorst et al. 2019, Definition 3). With the cuts of all other attributes fixed, the best cuts of one are
# an exact dynamic program, so descent from several starts ends in cuts that no change of a single attribute improves.
# Branch and bound, further below, proves them best, or bounds the gap. docs/proofs/partition.md#several-attributes
Cuts = tuple[IntArray, ...]  # for each attribute the piece that each interval begins with; the first is always 0
MAX_PIECES = 1024
MAX_PROGRAM_STEPS = 2 * 10**7
RECORDS_PER_CELL = (1.5, 2, 2.5, 4)
MANY_STARTS_TO_POINTS = 500
MAX_SUBSETS = 24
TOLERANCE = 1e-9  # share of a loss that sums in floating point are trusted to; bounds are lowered by it
COMPILE_FROM_RECORDS = 24
MAX_POINTS = 64
MAX_POINTS_OF_PAIRS = 128
MAX_STEPS = 10**8  # about the number of points visited in total; some seconds
MAX_POLISHED = 8
STEPS_OF_PAIR = 10**7
STEPS_OF_NODE = 2000  # charge for each node, which limits their number
STEPS_OF_SLAB = 300
STEPS_OF_BOX = 5000
MAX_BOX_STEPS = 10**8
MIN_BOX_STEPS = 100
MAX_NEIGHBOURS = 2 * 10**7
NUM_NEIGHBOURS = 64
_FEWER_RECORDS = (3, 6)


class PointArrays(NamedTuple):
    counts: IntArray
    lower: FloatArray
    upper: FloatArray
    factor: FloatArray
    price: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Points:
    """The records of one stratum, with equal ones merged, in an order that follows from their values alone."""

    lower: FloatArray  # for each point and attribute the smallest interval it may be released as
    upper: FloatArray
    counts: IntArray  # number of records of each point
    piece: IntArray  # for each point and attribute the piece it lies in: between two pieces a cut is possible
    factor: FloatArray  # cost of a unit of width in each attribute: importance divided by the width of the domain
    k: int  # smallest number of records in a class
    price: float  # cost of suppressing one record
    compiled: bool  # whether there is enough work for compiling to pay off

    @classmethod
    def of(cls, values: FloatArray, lower: FloatArray, upper: FloatArray, **costs: Any) -> tuple[Points, IntArray]:
        """Merge equal records; return the points, and the point of each record. Shapes: records, attributes."""
        # Distinct values of an attribute are its pieces; if there are very many, neighbours are merged by quantiles.
        _, first, point_of, counts = np.unique(
            values, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        weights, columns = counts.astype(np.int64), []
        for column in values[first].T:
            distinct, rank = np.unique(column, return_inverse=True)
            if len(distinct) > MAX_PIECES:
                in_value = np.bincount(rank, weights=weights)
                quantile = np.floor((np.cumsum(in_value) - in_value) * (MAX_PIECES / weights.sum()))
                rank = np.unique(quantile, return_inverse=True)[1][rank]
            columns.append(np.asarray(rank, dtype=np.int64))
        points = cls(lower=lower[first], upper=upper[first], counts=weights, piece=np.column_stack(columns), **costs)
        return points, np.asarray(point_of, dtype=np.int64).reshape(-1)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def num_attributes(self) -> int:
        return len(self.factor)

    @functools.cached_property
    def arrays(self) -> PointArrays:
        return PointArrays(self.counts, self.lower, self.upper, self.factor, self.price)

    @functools.cached_property
    def num_pieces(self) -> tuple[int, ...]:
        return tuple((self.piece.max(axis=0) + 1).tolist())

    @functools.cached_property
    def in_order(self) -> tuple[tuple[IntArray, IntArray], ...]:
        """For each attribute the points by piece, and where each piece begins among them."""
        orders = [np.argsort(column, kind="stable") for column in self.piece.T]
        return tuple(
            (order, np.searchsorted(column[order], np.arange(num + 1)))
            for column, order, num in zip(self.piece.T, orders, self.num_pieces, strict=True)
        )


def uncut(points: Points) -> Cuts:
    return (np.zeros(1, dtype=np.int64),) * points.num_attributes


def cell_of_points(points: Points, cuts: Cuts, *, without: int = -1) -> tuple[IntArray, int]:
    """Return the cell of each point, by the cuts of all attributes but one, and the number of cells."""
    codes, num = np.zeros(len(points), dtype=np.int64), 1
    for i, begins in enumerate(cuts):
        if i != without and len(begins) > 1:
            interval = np.searchsorted(begins, points.piece[:, i], side="right") - 1
            # Renumber after each attribute, so that the product stays small.
            present, codes = np.unique(codes * len(begins) + interval, return_inverse=True)
            num = len(present)
    return np.asarray(codes, dtype=np.int64), num


@dataclass(frozen=True, eq=False)
class CellBounds:
    of_point: IntArray
    sizes: IntArray
    lower: FloatArray
    upper: FloatArray

    @classmethod
    def of(cls, points: Points, cuts: Cuts) -> CellBounds:
        codes, num = cell_of_points(points, cuts)
        order = np.argsort(codes, kind="stable")
        begins = np.searchsorted(codes[order], np.arange(num))
        sizes = np.add.reduceat(points.counts[order], begins)
        lower = np.minimum.reduceat(points.lower[order], begins, axis=0)
        upper = np.maximum.reduceat(points.upper[order], begins, axis=0)
        return cls(codes, sizes, lower, upper)

    def cost(self, points: Points) -> float:
        kept = self.sizes >= points.k
        widths = (self.upper - self.lower)[kept] @ points.factor
        return float(self.sizes[kept] @ widths) + points.price * int(self.sizes[~kept].sum())


@dataclass(frozen=True, eq=False)
class BestCuts:
    cuts: Cuts  # where the intervals of each attribute begin
    loss: float  # eq. 7 over all records
    bound: float  # no cuts lose less
    proven: bool  # whether the search is finished: no cuts lose less by more than one part in 10^9

    @classmethod
    def of(cls, cuts: Cuts, loss: float, bound: float) -> BestCuts:
        safe = max(0.0, min(loss, bound) * (1 - TOLERANCE))
        return cls(cuts, loss, safe, proven=bound >= loss * (1 - TOLERANCE))


def local_optima(points: Points) -> list[tuple[Cuts, float]]:
    """Improve one attribute at a time from each of several starts; return the cuts and their losses, best first."""
    # The starts cut each attribute first alone, then use grids of equal shares with about 1.5 k to 4 k records to a
    # cell. A small problem also starts from grids of only some of the attributes.
    whole, attributes = uncut(points), list(range(points.num_attributes))
    by_cost = {CellBounds.of(points, whole).cost(points): whole}
    starts: list[tuple[Cuts, list[int]]] = []
    if len(points) * max(points.num_pieces) <= MAX_PROGRAM_STEPS:
        starts += [(whole, attributes[i:] + attributes[:i]) for i in attributes]
    fewest = 2 if len(points) <= MANY_STARTS_TO_POINTS else len(attributes)
    subsets = (itertools.combinations(attributes, num) for num in range(len(attributes), fewest - 1, -1))
    num_records = int(points.counts.sum())
    for some in itertools.islice(itertools.chain.from_iterable(subsets), MAX_SUBSETS):
        shares = [(num_records / (share * points.k)) ** (1 / len(some)) for share in RECORDS_PER_CELL]
        for num in dict.fromkeys(max(2, round(share)) for share in shares):
            grid = []
            for i, (column, num_pieces) in enumerate(zip(points.piece.T, points.num_pieces, strict=True)):
                parts = num if i in some else 1
                before = np.cumsum(np.bincount(column, weights=points.counts, minlength=num_pieces))
                begins = np.searchsorted(before, before[-1] * np.arange(parts) / parts, side="right")
                grid.append(np.unique(np.append(0, begins[begins < num_pieces])).astype(np.int64))
            starts.append((tuple(grid), attributes))
    for start, order in starts:
        cuts, cost = descend(points, start, order)
        by_cost.setdefault(cost, cuts)
    return [(by_cost[cost], cost) for cost in sorted(by_cost)]


def descend(points: Points, start: Cuts, order: Sequence[int]) -> tuple[Cuts, float]:
    """Cut one attribute after another again, each as well as the others allow, until none improves."""
    cuts, cost = start, CellBounds.of(points, start).cost(points)
    waiting = list(order)
    while waiting:
        i = waiting.pop(0)
        tried = (*cuts[:i], recut(points, cuts, i), *cuts[i + 1 :])
        if (new_cost := CellBounds.of(points, tried).cost(points)) < cost * (1 - TOLERANCE):
            cuts, cost = tried, new_cost
            waiting += [j for j in order if j != i and j not in waiting]
    return cuts, cost


def recut(points: Points, cuts: Cuts, attribute: int) -> IntArray:
    """Return the best cuts of one attribute if those of the others are fixed."""
    # Exact up to MAX_PROGRAM_STEPS. Beyond, it skips intervals that are longer than this allows and longer than the
    # longest present one, so the present cuts are always among those compared.
    label, num_labels = cell_of_points(points, cuts, without=attribute)
    num_pieces = points.num_pieces[attribute]
    longest = int(np.diff(np.append(cuts[attribute], num_pieces)).max())
    reach = min(num_pieces, max(longest, MAX_PROGRAM_STEPS // len(points)))
    return best_cuts(points, attribute, label, num_labels, reach)[0]


def best_cuts(points: Points, attribute: int, label: IntArray, num_labels: int, reach: int) -> tuple[IntArray, float]:
    """Cut one attribute as well as possible, with records of different labels apart; a label of -1 is left out."""
    order, first = points.in_order[attribute]
    previous = np.zeros(points.num_pieces[attribute] + 1, dtype=np.int64)
    program = cut_program if points.compiled else cut_program.plain
    cost = program(order, first, label, num_labels, points.arrays, points.k, reach, previous)
    begins, end = [], points.num_pieces[attribute]
    while end > 0:
        end = int(previous[end])
        begins.append(end)
    return np.array(begins[::-1], dtype=np.int64), float(cost)


@kernel
def cut_program(
    order: IntArray,
    first: IntArray,
    label: IntArray,
    num_labels: int,
    points: PointArrays,
    k: int,
    reach: int,
    previous: IntArray,
) -> float:
    """Dynamic program over the pieces of one attribute; returns the least cost."""
    # `best[end]` is the least cost of the pieces before `end`; `previous[end]` gets the begin of its last interval. An
    # interval grows piece by piece; each point changes the size and extremes of its own label's cell only. Suppressed
    # records are counted and kept ones summed separately, so that a high price hides no width.
    counts, lower, upper, factor, price = points
    num, num_factors = len(first) - 1, len(factor)
    best = np.full(num + 1, np.inf)
    best[0] = 0.0
    seen = np.full(num_labels, -1)  # the begin for which a label's cell was last reset
    size = np.zeros(num_labels, dtype=np.int64)
    worth = np.zeros(num_labels)
    low, high = np.zeros((num_labels, num_factors)), np.zeros((num_labels, num_factors))
    for begin in range(num):
        suppressed, kept = 0, 0.0
        for end in range(begin + 1, min(num, begin + reach) + 1):
            for at in range(first[end - 1], first[end]):
                point = order[at]
                cell = label[point]
                if cell < 0:
                    continue
                if seen[cell] != begin:
                    seen[cell], size[cell], worth[cell] = begin, 0, 0.0
                    low[cell], high[cell] = lower[point], upper[point]
                width = 0.0
                for i in range(num_factors):
                    low[cell, i] = min(low[cell, i], lower[point, i])
                    high[cell, i] = max(high[cell, i], upper[point, i])
                    width += factor[i] * (high[cell, i] - low[cell, i])
                if size[cell] < k:
                    suppressed -= size[cell]
                size[cell] += counts[point]
                if size[cell] < k:
                    suppressed += size[cell]
                else:
                    kept += size[cell] * width - worth[cell]
                    worth[cell] = size[cell] * width
            cost = best[begin] + (price * suppressed + kept)
            if cost < best[end]:
                best[end], previous[end] = cost, begin
    return float(best[num])


# Branching: best-first branch and bound in the manner of K-Optimize (Bayardo, Agrawal 2005; Hoogervorst et al. 2019,
# section 4.2), with the three bounds of docs/proofs/partition.md instead of eq. 8: narrowest boxes, own cuts for each
# slab, and decided intervals together. Counted steps limit the work, not time, so the same records give the same cuts.
def search_cuts(points: Points, *, max_steps: int = MAX_STEPS) -> BestCuts:
    """Return the best cuts and a lower bound on the loss; small problems are proved best."""
    if (num_records := int(points.counts.sum())) < points.k:
        return BestCuts(uncut(points), num_records * points.price, num_records * points.price, proven=True)
    optima = local_optima(points)
    cuts, loss = optima[0]
    two = points.num_attributes == 2
    if len(points) > (MAX_POINTS_OF_PAIRS if two else MAX_POINTS):
        return BestCuts.of(cuts, loss, neighbour_bound(points))
    if not two:
        polished = [_polished(points, *start, max_steps // MAX_POLISHED) for start in optima[:MAX_POLISHED]]
        cuts, loss = min(polished, key=operator.itemgetter(1))
    order = sorted(range(points.num_attributes), key=lambda i: (points.num_pieces[i], i))
    branching = _Branching(points, cuts, loss, max_steps, order)
    start = _Node((), (0,), 0, np.zeros(len(points), dtype=np.int64), _narrowest(points, branching.nearest))
    return branching.run(start)


def _polished(points: Points, cuts: Cuts, loss: float, max_steps: int) -> tuple[Cuts, float]:
    """Recut two attributes at once, as well as the others allow, until no pair improves or the steps are used up."""
    pairs = list(itertools.combinations(range(points.num_attributes), 2))
    waiting = list(pairs)
    while waiting and max_steps > 0:
        pair = waiting.pop(0)
        others = [i for i in range(points.num_attributes) if i not in pair]
        branching = _Branching(points, cuts, loss, min(max_steps, STEPS_OF_PAIR), [*others, *pair])
        apart = tuple(np.zeros(1, dtype=np.int64) if i in pair else begins for i, begins in enumerate(cuts))
        label, _ = cell_of_points(points, apart)
        before = branching.left
        best = branching.run(_Node(tuple(cuts[i] for i in others), (0,), 0, label, np.zeros(len(points))))
        max_steps -= before - branching.left
        if best.loss < loss * (1 - TOLERANCE):
            cuts, loss = best.cuts, best.loss
            waiting = [other for other in pairs if other != pair]
    return cuts, loss


def neighbour_bound(points: Points) -> float:
    """Return a lower bound on the loss: for each record the narrowest box with k records, or suppression."""
    # It uses a limited number of nearest neighbours, which lowers the bound; 0 if there are too many records for k
    # each.
    num = min(len(points), max(points.k, NUM_NEIGHBOURS))
    num = num if len(points) * num <= MAX_NEIGHBOURS else min(len(points), points.k)
    if len(points) * num > MAX_NEIGHBOURS:
        return 0.0
    from scipy.spatial import cKDTree

    # A class with lower ends a and b is at least |a - b| wide, so on the grid these widths are at most the true ones.
    at = (points.lower - points.lower.min(axis=0)) * points.factor
    widths, order = cKDTree(at).query(at, k=np.arange(1, num + 1), p=1)
    beyond = widths[:, -1].copy() if num < len(points) else np.full(len(points), np.inf)
    return float(points.counts @ _narrowest(points, Nearest(order.astype(np.int64), widths, beyond)))


class Nearest(NamedTuple):
    """For each point its nearest points, itself included, by the width of a class with both."""

    points: IntArray
    widths: FloatArray
    beyond: FloatArray  # smallest width of a class with any other point


def _narrowest(points: Points, nearest: Nearest) -> FloatArray:
    """Return the least cost of a record of each point: with k records to a box, or fewer if that takes too long."""
    least, label = np.zeros(len(points)), np.zeros(len(points), dtype=np.int64)
    max_steps = max(MAX_BOX_STEPS // len(points), MIN_BOX_STEPS)
    for k in sorted({min(few, points.k) for few in (*_FEWER_RECORDS, points.k)}):
        least, _ = _box_widths(points, nearest, label, least, k, max_steps)
    return least


def _box_widths(
    points: Points, nearest: Nearest, label: IntArray, floor: FloatArray, k: int, max_steps: int
) -> tuple[FloatArray, int]:
    search_boxes, least = box_widths if points.compiled else box_widths.plain, floor.copy()
    return least, int(search_boxes(label, nearest, points.arrays, k, least, max_steps))


class _Slabs(NamedTuple):
    """For a node at the last level, where intervals of its attribute are decided."""

    base: IntArray  # labels of all points by the attributes decided before
    alone: FloatArray  # cost of each interval alone, by begin and end
    rest: FloatArray  # cost of the rest from a piece on


class _Node(NamedTuple):
    """A partial decision: all intervals of some attributes, and those of the next one up to a piece."""

    cuts: Cuts
    begins: tuple[int, ...]
    at: int
    label: IntArray  # differs for points that a decided cut separates; at the last level -1 if in no decided interval
    least: FloatArray  # least cost of a record of each point
    cost: float = 0.0  # at the last level: least cost of the decided intervals
    slabs: _Slabs | None = None


@dataclass
class _Branching:
    """One search: the best cuts so far, the open nodes by their bound, and the work left."""

    points: Points
    cuts: Cuts
    loss: float
    left: int
    order: list[int]
    _open: list[tuple[float, int, _Node]] = field(default_factory=list)
    _serial: Iterator[int] = field(default_factory=itertools.count)

    @functools.cached_property
    def nearest(self) -> Nearest:
        low = np.minimum(self.points.lower[:, None], self.points.lower[None])
        high = np.maximum(self.points.upper[:, None], self.points.upper[None])
        widths = (high - low) @ self.points.factor
        order = np.argsort(widths, axis=1, kind="stable")
        return Nearest(order, np.take_along_axis(widths, order, axis=1), np.full(len(self.points), np.inf))

    def run(self, start: _Node) -> BestCuts:
        """Expand the node with the smallest bound until none can beat the best cuts, or the steps are used up."""
        points, before_last = self.points, self.points.num_attributes - 2
        last_but_one = self.points.piece[:, self.order[-2]]
        num = points.num_pieces[self.order[-2]]
        # Each slab is charged for a program over the points of an average one.
        slab_steps = num * (num + 1) // 2 * (len(points) ** 2 // 8 + STEPS_OF_SLAB)
        self._push(float(points.counts @ start.least), start)
        while self._open and self.left > 0:
            bound, _, node = self._open[0]
            if not self._may_beat(bound):
                return BestCuts.of(self.cuts, self.loss, self.loss)
            if node.slabs is None and len(node.cuts) == before_last and slab_steps > self.left:
                break
            heapq.heappop(self._open)
            if len(node.cuts) < before_last:
                self._expand(bound, node)
            elif node.slabs is None:
                # Let each interval of the last but one attribute have its own cuts of the last one, and compute for
                # each begin and end the least cost of the records between these pieces.
                alone = np.full((num, num + 1), np.inf)
                for begin, end in itertools.combinations(range(num + 1), 2):
                    inside = (last_but_one >= begin) & (last_but_one < end)
                    alone[begin, end] = self._last_cuts(np.where(inside, node.label, -1))[1]
                self.left -= slab_steps
                rest = np.zeros(num + 1)
                for begin in range(num - 1, -1, -1):
                    rest[begin] = (alone[begin] + rest).min()
                slabs = _Slabs(node.label, alone, rest)
                undecided = np.full(len(points), -1, dtype=np.int64)
                self._push(max(bound, float(rest[0])), _Node(node.cuts, (0,), 0, undecided, node.least, slabs=slabs))
            else:
                self._expand_last(node, node.slabs)
        return BestCuts.of(self.cuts, self.loss, min((bound for bound, _, _ in self._open), default=self.loss))

    def _may_beat(self, bound: float) -> bool:
        return bound < self.loss * (1 - TOLERANCE)

    def _push(self, bound: float, node: _Node) -> None:
        if self._may_beat(bound):
            heapq.heappush(self._open, (bound, next(self._serial), node))

    def _last_cuts(self, label: IntArray) -> tuple[IntArray, float]:
        last = self.order[-1]
        return best_cuts(self.points, last, label, int(label.max()) + 1, self.points.num_pieces[last])

    def _expand(self, bound: float, node: _Node) -> None:
        """Decide the next interval of an attribute before the last two, bounded by the narrowest boxes."""
        points, attribute = self.points, self.order[len(node.cuts)]
        piece, num = points.piece[:, attribute], points.num_pieces[attribute]
        for end in range(node.at + 1, num + 1):
            label = np.unique(2 * node.label + (piece >= end), return_inverse=True)[1].astype(np.int64)
            least, steps = _box_widths(points, self.nearest, label, node.least, points.k, STEPS_OF_BOX)
            self.left -= steps + STEPS_OF_NODE
            child = _Node(node.cuts, (*node.begins, end), end, label, least)
            if end == num:  # the next attribute begins
                child = _Node((*node.cuts, np.array(node.begins, dtype=np.int64)), (0,), 0, label, least)
            self._push(max(bound, float(points.counts @ least)), child)

    def _expand_last(self, node: _Node, slabs: _Slabs) -> None:
        """Decide the next interval of the last but one attribute, bounded by programs over the last one."""
        piece, num = self.points.piece[:, self.order[-2]], self.points.num_pieces[self.order[-2]]
        offset = (int(slabs.base.max()) + 1) * len(node.begins)
        bounds = node.cost + slabs.alone[node.at] + slabs.rest
        for end in node.at + 1 + np.argsort(bounds[node.at + 1 :], kind="stable"):
            if not self._may_beat(float(bounds[end])):
                break
            label = np.where((piece >= node.at) & (piece < end), slabs.base + offset, node.label)
            begins, cost = self._last_cuts(label)
            self.left -= len(self.points) ** 2 // 4 + STEPS_OF_NODE
            if end < num:
                child = _Node(node.cuts, (*node.begins, int(end)), int(end), label, node.least, cost, slabs)
                self._push(max(float(bounds[end]), cost + float(slabs.rest[end])), child)
                continue
            in_search_order = (*node.cuts, np.array(node.begins, dtype=np.int64), begins)
            cuts = tuple(in_search_order[self.order.index(i)] for i in range(len(self.order)))
            if (loss := CellBounds.of(self.points, cuts).cost(self.points)) < self.loss:
                self.cuts, self.loss = cuts, loss


@kernel
def box_widths(
    label: IntArray, nearest: Nearest, points: PointArrays, k: int, least: FloatArray, max_steps: int
) -> int:
    """Raise ``least``, the cost of a record of each point, to the narrowest box of its label with k records."""
    # Returns the number of steps. A depth-first search adds one neighbour after another to a box, nearest first, and
    # leaves a branch once the box is no narrower than the best so far. A box that meets the earlier bound ends the
    # search. After `max_steps` for one point, the earlier bound stays.
    neighbours, widths, beyond = nearest
    counts, lower, upper, factor, price = points
    total = 0
    num, num_factors = widths.shape[1], len(factor)
    low, high = np.zeros((k + 1, num_factors)), np.zeros((k + 1, num_factors))
    size, at = np.zeros(k + 1, dtype=np.int64), np.zeros(k + 1, dtype=np.int64)
    for point in range(len(label)):
        best, depth, steps = price, 0, 0
        at[0], size[0], low[0], high[0] = -1, counts[point], lower[point], upper[point]
        if counts[point] >= k:
            best = min(price, (factor * (upper[point] - lower[point])).sum())
            depth = -1
        while depth >= 0 and steps <= max_steps and best > least[point]:
            at[depth] += 1
            steps += 1
            if at[depth] >= num or widths[point, at[depth]] >= best:
                depth -= 1
                continue
            other = neighbours[point, at[depth]]
            if other == point or label[other] != label[point]:
                continue
            width = 0.0
            for i in range(num_factors):
                low[depth + 1, i] = min(low[depth, i], lower[other, i])
                high[depth + 1, i] = max(high[depth, i], upper[other, i])
                width += factor[i] * (high[depth + 1, i] - low[depth + 1, i])
            if width >= best:
                continue
            if size[depth] + counts[other] >= k:
                best = width
            else:
                size[depth + 1], at[depth + 1] = size[depth] + counts[other], at[depth]
                depth += 1
        total += steps
        if steps <= max_steps:
            least[point] = max(least[point], min(best, beyond[point]))
    return total
