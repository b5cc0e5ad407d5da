# SPDX-License-Identifier: Apache-2.0
"""Partition: cut one numeric attribute into intervals of at least k records, losing as little as possible.

The problem is K-Optimize's (Bayardo and Agrawal 2005) with the loss metric of Hoogervorst et al. 2019, eq. 7. For one
attribute it needs no branch and bound: the best last class follows the best partition of what comes before it, and a
class that could be cut in two of k each never needs to be looked at. As in eq. 7, only intervals of fewer than k
records can be suppressed, and equal values share their fate (global recoding).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dunnage.dataset import Dataset
from dunnage.domains import Numeric, decimal_scale
from dunnage.errors import ParameterError, Refusal
from dunnage.exact import Exact, decimal_text, exact, plain, shown_number
from dunnage.guarantees import (
    CHOICE_DEPENDS_ON_DATA,
    DATA_DEPENDENT_REFUSAL,
    PUBLIC_DOMAIN,
    RECORDS_NOT_PERSONS,
    SINGLE_RELEASE,
    SYSTEM_ENTROPY,
    Basis,
    KAnonymity,
    Promise,
)
from dunnage.ledger import Ledger
from dunnage.mechanisms.recode import Classes, Intervals, publish_classes, strata
from dunnage.noise import Noise
from dunnage.publication import Publication
from dunnage.schema import Attribute, Schema

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

STATISTICS = ("bounds", "mean", "multiset")
BOUNDS = ("class", "grid")
MOST_ALPHA = 10**9
_COMPILE_FROM_RUNS = 20_000
_LARGEST_EXACT_INTEGER = 2**53


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Release each record's interval, at least k records to an interval.

    Parameters
    ----------
    k
        Fewest records that must look alike.
    alpha
        Price of suppressing one record, in records generalised to the whole domain.
    statistic
        What is told about a class: its ``bounds``, also its ``mean``, or the ``multiset`` of its values.
    bounds
        ``class``: the class's own smallest and largest value; ``grid``: rounded outward to the public grid.

    Guarantee
    ---------
    k-anonymity over public and generalised columns together, proved: classes are counted.

    Assumptions
    -----------
    Public domain; one record per protected unit; class borders depend on data; a refusal may depend on data.

    Runtime
    -------
    O(n log n) to sort, then at most O(n k) steps; on smooth data few more than n while k is below some thousands.

    Utility
    -------
    Exact minimum of the loss metric (eq. 7) within each combination of public values.

    References
    ----------
    Hoogervorst, Zhang, Tillem, Erkin, Verwer 2019, section 4.2 and eq. 7; Bayardo, Agrawal 2005 (K-Optimize).

    Examples
    --------
    >>> Partition(k=5, statistic="multiset").k
    5
    """

    name: ClassVar[str] = "partition"
    k: int
    alpha: Fraction = Fraction(1)
    statistic: str = "bounds"
    bounds: str = "class"

    def __post_init__(self) -> None:
        KAnonymity(k=self.k, protects="record")  # refuses a k that is no k
        object.__setattr__(self, "alpha", _price(self.alpha))
        for name, choices in (("statistic", STATISTICS), ("bounds", BOUNDS)):
            if getattr(self, name) not in choices:
                raise ParameterError(f"{name} must be one of {', '.join(choices)}. Got {getattr(self, name)!r}.")

    def promise(self, schema: Schema) -> Promise:
        """State what a release under this schema will guarantee; needs no data."""
        attribute = self._attribute(schema)
        return Promise(
            guarantee=KAnonymity(k=self.k, protects=schema.protects),
            basis=Basis.PROVED,
            mechanism=self.describe(),
            assumptions=(
                PUBLIC_DOMAIN,
                RECORDS_NOT_PERSONS,
                CHOICE_DEPENDS_ON_DATA,
                DATA_DEPENDENT_REFUSAL,
                SINGLE_RELEASE,
                SYSTEM_ENTROPY,
            ),
            in_clear=self._in_clear(schema, attribute),
            numerics="classes are exact; the order of rows is an exactly uniform permutation from system entropy",
        )

    def release(self, dataset: Dataset, *, ledger: Ledger, noise: Noise) -> Publication:
        """Find the best classes, spend, and release them with rows in random order.

        Raises
        ------
        Refusal
            If a combination of public values has fewer than k records, or every record would be suppressed.
        BudgetError
            If the ledger refuses; nothing is drawn then.
        """
        promise = self.promise(dataset.schema)
        if noise.seeded:
            promise = promise.voided("the order of rows was drawn from a seed that others may know")
        classes = self.classes(dataset)
        spend = ledger.spend(promise, dataset.purpose)
        return publish_classes(
            dataset,
            classes,
            promise=promise,
            k=self.k,
            statistic=self.statistic,
            spend={"id": spend.id, "at": spend.at, "composed": ledger.statement(dataset.policy.dataset).composed()},
            noise=noise,
        )

    def describe(self) -> dict[str, Any]:
        """Give name and all parameters as plain data."""
        return {
            "name": self.name,
            "k": self.k,
            "alpha": plain(self.alpha),
            "statistic": self.statistic,
            "bounds": self.bounds,
        }

    def classes(self, dataset: Dataset) -> Classes:
        """Find the classes of least loss: private, drawn from nothing but the rows.

        Raises
        ------
        Refusal
            If no k-anonymous release is possible.
        """
        attribute = self._attribute(dataset.schema)
        values = dataset.numbers(attribute.name)
        stratum, num_strata = strata(dataset)
        self._check_sizes(np.bincount(stratum, minlength=num_strata), dataset)
        lower, upper, span = self._ends(values, attribute.numeric)
        # order : rows by stratum, then value; runs : rows of equal value, which must stay together
        order = _row_order(stratum, num_strata, values)
        runs = _Runs.of(stratum[order], values[order], lower[order], upper[order])
        class_of_run, loss = _best_classes(runs, self.k, float(self.alpha) * span)
        of_row = np.empty(len(values), dtype=np.int64)
        of_row[order] = np.repeat(class_of_run, runs.counts)
        if (of_row < 0).all():
            raise Refusal(
                f"at alpha = {decimal_text(self.alpha)} suppressing every record loses least, so nothing would be "
                "released. Raise alpha in [mechanism], or lower k."
            )
        return Classes(of_row=of_row, intervals=(self._interval(attribute, values, of_row),), loss_sum=loss / span)

    def _attribute(self, schema: Schema) -> Attribute:
        found = schema.quasi_identifiers
        if len(found) != 1 or not isinstance(found[0].domain, Numeric):
            names = ", ".join(f"{a.name} ({a.kind})" for a in found) or "none"
            raise ParameterError(
                f"partition generalises one numeric quasi-identifier. Got {names}. "
                "Give the others another role: public, sensitive or drop."
            )
        if self.bounds == "grid" and found[0].numeric.resolution is None:
            raise ParameterError(
                f'bounds = "grid" needs a public grid. Attribute {found[0].name!r} has no resolution. Add one.'
            )
        return found[0]

    def _in_clear(self, schema: Schema, attribute: Attribute) -> tuple[str, ...]:
        name, domain = attribute.name, attribute.numeric
        told = ["number of released and of suppressed records, number of classes, size of each class"]
        if self.bounds == "class":
            told.append(f"two exact values of {name} per class: its smallest and its largest")
        else:
            step = f"{decimal_text(domain.resolution or Fraction(0))} {domain.unit}".strip()
            told.append(
                f"the smallest and largest {name} of each class, rounded outward to the public grid of {step} "
                "(exact where values are recorded on that grid)"
            )
        if self.statistic == "mean":
            told.append(f"the mean {name} of each class")
        if self.statistic == "multiset":
            told.append(f"every value of {name}, as an unordered list for each class")
        for role, attributes in (("public", schema.public), ("sensitive", schema.sensitive)):
            if attributes:
                told.append(f"{role} columns as they are: {', '.join(a.name for a in attributes)}")
        return tuple(told) + tuple(a.exception for a in schema if a.exception)

    def _check_sizes(self, sizes: IntArray, dataset: Dataset) -> None:
        """Refuse what cannot be k-anonymous; counts are the owner's to see."""
        if len(dataset) < self.k:
            raise Refusal(
                f"{dataset.source}: {len(dataset)} records cannot be {self.k}-anonymous. "
                f"Give at least {self.k}, or lower k in [mechanism]."
            )
        small = int((sizes < self.k).sum())
        names = ", ".join(a.name for a in dataset.schema.public)
        if small and (dataset.policy.small == "refuse" or small == len(sizes)):
            raise Refusal(
                f"{dataset.source}: {small} of {len(sizes)} combinations of public values ({names}) have fewer than "
                f'k = {self.k} records. Lower k, make {names} coarser, or set small = "suppress" to leave them out.'
                if small < len(sizes)
                else f"{dataset.source}: every combination of public values ({names}) has fewer than k = {self.k} "
                f"records. Lower k, or make {names} coarser."
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

    def _interval(self, attribute: Attribute, values: FloatArray, of_row: IntArray) -> Intervals:
        kept = of_row >= 0
        num = int(of_row.max()) + 1
        lower, upper = np.full(num, np.inf), np.full(num, -np.inf)
        np.minimum.at(lower, of_row[kept], values[kept])
        np.maximum.at(upper, of_row[kept], values[kept])
        if self.bounds == "grid":
            domain = attribute.numeric
            lower, upper = domain.grid_values(domain.steps_below(lower)), domain.grid_values(domain.steps_above(upper))
        return Intervals(name=attribute.name, lower=lower, upper=upper)


def _price(alpha: Exact) -> Fraction:
    value = exact(alpha, what="alpha")
    if not 0 < value <= MOST_ALPHA:
        raise ParameterError(
            f"alpha must be more than 0 and at most {MOST_ALPHA}. Got {shown_number(value)}. Use 1, the usual price."
        )
    return value


def _row_order(stratum: IntArray, num_strata: int, position: FloatArray) -> IntArray:
    """Sort rows by stratum, then position; rows of equal position come in any order."""
    return np.argsort(position) if num_strata == 1 else np.lexsort((position, stratum))


@dataclass(frozen=True, eq=False)
class _Runs:
    """Rows that cannot be told apart, in order: bounds, how many rows come before, and where each stratum starts.

    ``before`` and ``starts`` have one entry more than there are runs and strata.
    """

    lower: FloatArray
    upper: FloatArray
    before: IntArray
    starts: IntArray

    @classmethod
    def of(cls, stratum: IntArray, values: FloatArray, lower: FloatArray, upper: FloatArray) -> _Runs:
        """Collapse sorted rows into runs of equal stratum and value."""
        change = (np.diff(stratum) != 0) | (np.diff(values) != 0)
        first = np.concatenate([[0], np.flatnonzero(change) + 1])
        starts = np.concatenate([[0], np.flatnonzero(np.diff(stratum[first])) + 1, [len(first)]])
        return cls(lower[first], upper[first], np.append(first, len(stratum)), starts)

    @property
    def counts(self) -> IntArray:
        """Number of rows of each run."""
        return np.diff(self.before)


def _best_classes(runs: _Runs, k: int, price: float) -> tuple[IntArray, float]:
    """Return the class of each run (-1: suppressed), numbered in order, and the least total cost."""
    solve = _compiled() if len(runs.lower) >= _COMPILE_FROM_RUNS else _solve
    first = np.full(len(runs.lower), -1, dtype=np.int64)
    cost = solve(runs.lower, runs.upper, runs.before, runs.starts, k, price, first)
    opens = _opening_runs(runs, first)
    return np.where(first < 0, -1, np.cumsum(opens) - 1), float(cost)


def _opening_runs(runs: _Runs, first: IntArray) -> npt.NDArray[np.bool_]:
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


@functools.cache
def _compiled() -> Callable[..., float]:
    """Compile the dynamic program, or load it from numba's cache; small problems never get here."""
    import numba

    compiled: Callable[..., float]
    try:
        compiled = numba.njit(cache=True)(_solve)
    except RuntimeError:  # no folder that a cache could be written to
        compiled = numba.njit()(_solve)
    return compiled
