# SPDX-License-Identifier: Apache-2.0
"""How UtilityClusters finds its classes: records in one metric, clustered stratum by stratum, then counted.

Records are sorted by their values before anything else, so that the order of the input decides at most between records
that are equal in every released column. Classes that would look alike are one class. Nothing here draws at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import FloatArray, IntArray
from dunnage.clustering.growth import Constraints
from dunnage.clustering.metric import Metric, distance_deviations, near_weights
from dunnage.dataset import Dataset
from dunnage.domains import MOST_IN_MATRIX, CodedDomain, Domain, Graph, Numeric, Tree
from dunnage.errors import InternalError, Refusal
from dunnage.exact import shown_number
from dunnage.measures import (
    DISTORTION_METRIC,
    LIMIT_TOLERANCE,
    class_sizes,
    diversity_reached,
    label_distances,
    ranked,
    set_widths,
    shares_of,
    width_limit,
)
from dunnage.mechanisms.recode import (
    Classes,
    Generalised,
    Intervals,
    Nodes,
    Sets,
    check_stratum_sizes,
    lower_k,
    released_column,
    strata,
)
from dunnage.schema import Attribute

if TYPE_CHECKING:
    from dunnage.mechanisms.utility_clusters import UtilityClusters

Progress = Callable[[str], None]

NUM_BUCKETS = 96
"""Buckets of equal width for the entropy of a number, where no others are asked for."""
TOLD_FROM = 5_000
"""Fewer records are grown into classes before there is anything to tell."""
IMPORTANCE_DIGITS = 3
"""Decimals that an entropy is rounded to before it is used, so that what is printed is what was used."""


def find_classes(mechanism: UtilityClusters, dataset: Dataset, progress: Progress | None = None) -> Classes:
    """Find classes that keep to the parameters of a mechanism."""
    records = Records(mechanism, dataset, progress)
    if mechanism.max_distortion is None:
        return records.classes(mechanism.least_k)
    k, classes = _largest_k(records, mechanism.least_k, mechanism.max_distortion)
    return replace(classes, figures={**classes.figures, "k_chosen": k})


def _largest_k(records: Records, least: int, most: Fraction) -> tuple[int, Classes]:
    """Double k while the distortion is low enough, then halve the gap: the k found keeps to it, and k + 1 does not.

    Distortion need not rise with every k, so that a larger one still may keep to it as well.
    """
    good, found = least, records.classes(least)
    if not _within(found, len(records), most):
        raise Refusal(
            f"at k = {good} the distortion is {found.loss_sum / len(records):.4f}, more than max_distortion = "
            f"{shown_number(most)}. Raise it, or give attributes another importance."
        )
    bad, doubling = records.most_k + 1, True
    while good + 1 < bad:
        k = min(2 * good, bad - 1) if doubling else (good + bad) // 2
        attempt = _attempt(records, k, most)
        if attempt is None:
            bad, doubling = k, False
        else:
            good, found = k, attempt
    return good, found


def _attempt(records: Records, k: int, most: Fraction) -> Classes | None:
    try:
        classes = records.classes(k)
    except Refusal:
        return None
    return classes if _within(classes, len(records), most) else None


def _within(classes: Classes, num_records: int, most: Fraction) -> bool:
    return classes.loss_sum <= num_records * float(most) * (1 + LIMIT_TOLERANCE)


@dataclass(frozen=True, eq=False, repr=False)
class Column:
    """One generalised attribute of all records. Private: its ``repr`` shows nothing.

    ``values`` are numbers, or codes of labels.
    """

    attribute: Attribute
    values: npt.NDArray[Any]

    @classmethod
    def of(cls, dataset: Dataset, attribute: Attribute) -> Column:
        """Read a column of a dataset."""
        if isinstance(attribute.domain, Numeric):
            return cls(attribute, dataset.numbers(attribute.name))
        domain = cast("CodedDomain", attribute.domain)
        encoded = dataset.column(attribute.name).dictionary_encode()
        codes = domain.codes(np.asarray(encoded.dictionary.to_pylist(), dtype=object)).astype(np.int32)
        return cls(attribute, codes[encoded.indices.to_numpy(zero_copy_only=False)])

    @property
    def coded(self) -> CodedDomain | None:
        """The domain, if values are codes of labels."""
        domain = self.attribute.domain
        return None if isinstance(domain, Numeric) else cast("CodedDomain", domain)

    @cached_property
    def diameter(self) -> float:
        """Largest distance in the public domain."""
        return float(cast("Domain", self.attribute.domain).diameter)

    def dense(self) -> tuple[npt.NDArray[np.int32], FloatArray]:
        """Return labels numbered from 0 among those that occur, and the distances between these alone."""
        present, codes = np.unique(self.values, return_inverse=True)
        if len(present) > MOST_IN_MATRIX:
            raise Refusal(
                f"{self.attribute.name!r} has more than {MOST_IN_MATRIX:,} different values, too many to work out "
                "distances between. Make its domain coarser, or leave the column out."
            )
        assert self.coded is not None
        return codes.reshape(-1).astype(np.int32), label_distances(self.coded, present.astype(np.int64))

    def entropy(self, bucket: tuple[str, Fraction] | None, *, normalised: bool) -> float:
        """Return the entropy in bits (eq. 1); normalised, over what it could be at most."""
        if self.coded is not None:
            codes, num = self.values, len(self.coded.labels)
        else:
            codes, num = _bucketed(self.values, self.attribute.numeric, bucket)
        counts = np.bincount(codes)
        shares = counts[counts > 0] / len(codes)
        bits = abs(float(-(shares * np.log2(shares)).sum()))
        return bits / max(1.0, math.log2(num)) if normalised else bits


def _bucketed(values: FloatArray, domain: Numeric, bucket: tuple[str, Fraction] | None) -> tuple[IntArray, int]:
    """Return the bucket of each number, and how many there are."""
    kind, size = bucket or ("width", (domain.upper - domain.lower) / NUM_BUCKETS)
    if kind == "quantiles":
        edges = np.unique(np.quantile(values, np.arange(1, int(size)) / int(size)))
        return np.searchsorted(edges, values, side="right").astype(np.int64), int(size)
    num = math.ceil((domain.upper - domain.lower) / size)
    places = np.floor((values - float(domain.lower)) / float(size)).astype(np.int64)
    return np.unique(np.clip(places, 0, num - 1), return_inverse=True)[1], num


class Records:
    """All records of a dataset in one metric, sorted by their values. Private."""

    def __init__(self, mechanism: UtilityClusters, dataset: Dataset, progress: Progress | None = None) -> None:
        self.mechanism, self.dataset = mechanism, dataset
        self.tell: Progress = progress or (lambda stage: None)
        columns = [Column.of(dataset, attribute) for attribute in dataset.schema.quasi_identifiers]
        stratum, self.num_strata = strata(dataset)
        self.order = _by_values(dataset, stratum, columns)
        self.columns = [replace(column, values=column.values[self.order]) for column in columns]
        self.stratum = stratum[self.order]
        self.person = None if dataset.persons is None else dataset.persons[self.order]
        self.factors = {column.attribute.name: self._factor(column) for column in self.columns}
        self.weights = shares_of(self.factors)
        self.axes = np.argsort(np.argsort([column.coded is not None for column in self.columns], kind="stable"))
        self.metric = self._metric()
        self.constraints = self._constraints()
        self.sizes = self._persons(self.stratum, self.num_strata)

    def __len__(self) -> int:
        return len(self.order)

    def _factor(self, column: Column) -> float:
        """Return the utility factor of an attribute: as given, or its entropy."""
        given, name = self.mechanism.importance, column.attribute.name
        if not isinstance(given, str):
            return float(dict(given).get(name, Fraction(1)))
        bucket = dict(self.mechanism.buckets).get(name)
        return round(column.entropy(bucket, normalised=given == "entropy-normalised"), IMPORTANCE_DIGITS)

    def _in_metric_order(self, values: Sequence[float]) -> FloatArray:
        found = np.empty(len(values))
        found[self.axes] = values
        return found

    def _metric(self) -> Metric:
        numbers = [column.values for column in self.columns if column.coded is None]
        coded = [column.dense() for column in self.columns if column.coded is not None]
        number_rows = np.array(numbers) if numbers else np.zeros((0, len(self)))
        code_rows = np.array([codes for codes, _ in coded], dtype=np.int32).reshape(len(coded), len(self))
        tables = tuple(table for _, table in coded)
        weights = self._in_metric_order([self.weights[column.attribute.name] for column in self.columns])
        diameters = self._in_metric_order([column.diameter for column in self.columns])
        unit = self.mechanism.scaling == "unit-variance"
        scales = distance_deviations(number_rows, code_rows, tables) if unit else diameters
        return Metric(number_rows, code_rows, tables, near_weights(weights, diameters), near_weights(weights, scales))

    def _constraints(self) -> Constraints | None:
        """Return what clusterings must keep to; None if nothing, and then none suppresses by its own choice."""
        made = self.mechanism
        if not made.limits and made.max_suppressed is None and made.l is None and made.t is None and made.price >= 1:
            return None
        limits = [width_limit(c.attribute.domain, dict(made.limits).get(c.attribute.name)) for c in self.columns]
        diverse = made.l is not None or made.t is not None
        ranks = [_ranks(self.dataset, a)[self.order] for a in self.dataset.schema.sensitive] if diverse else []
        self._refuse_impossible(ranks)
        return Constraints(
            limits=self._in_metric_order(limits),
            max_suppressed=1.0 if made.max_suppressed is None else float(made.max_suppressed),
            l=1.0 if made.l is None else float(made.l),
            l_kind=cast("Literal['distinct', 'entropy']", made.l_kind),
            t=math.inf if made.t is None else float(made.t),
            t_kind=cast("Literal['equal', 'ordered']", made.t_kind),
            sensitive=np.array(ranks, dtype=np.int32).reshape(len(ranks), len(self)),
        )

    def _refuse_impossible(self, ranks: list[IntArray]) -> None:
        """Refuse an l that not even all records together have."""
        asked = self.mechanism.l
        for attribute, values in zip(self.dataset.schema.sensitive, ranks, strict=False):
            num = int(values.max()) + 1
            if asked is not None and asked > num:
                raise Refusal(
                    f"l = {shown_number(asked)} asks for more different values of {attribute.name!r} in each class "
                    f"than the {num} that there are. Lower l."
                )

    def _persons(self, of_record: IntArray, num: int) -> IntArray:
        """Count the persons of each class or stratum, or the records where persons are not told apart."""
        inside = of_record >= 0
        groups = of_record[inside]
        if self.person is not None:
            person = self.person[inside]
            groups = np.unique(groups * (int(self.person.max()) + 1) + person) // (int(self.person.max()) + 1)
        return np.bincount(groups, minlength=num).astype(np.int64)

    @property
    def most_k(self) -> int:
        """Largest k that is possible at all."""
        refuses = self.dataset.policy.small == "refuse"
        return int(self.sizes.min() if refuses else self.sizes.max())

    def classes(self, k: int) -> Classes:
        """Cluster every stratum and make classes of what was found, counted and checked."""
        check_stratum_sizes(self.sizes, k, self.dataset)
        if self.mechanism.max_distortion is not None:
            self.tell(f"finding classes of {k}")
        of_record = self._clustered(k)
        if (of_record < 0).all():
            raise Refusal(
                f"at k = {k} every record would be suppressed, so nothing would be released. {self._relief()}."
            )
        of_record, told = self._looks(of_record)
        self._check_counts(of_record, k)
        found = self._made(of_record, told)
        self._check_suppressed(of_record)
        self._check_statistics(of_record, told)
        self._check_sensitive(of_record)
        return found

    def _relief(self) -> str:
        """Say which of the parameters given could be relaxed."""
        made = self.mechanism
        ways = {
            "widen the limits": bool(made.limits),
            "lower l": made.l is not None,
            "raise t": made.t is not None,
            "raise the price": made.price < 1,
            lower_k(self.dataset): True,
        }
        *others, last = [way for way, given in ways.items() if given]
        text = f"{', '.join(others)}, or {last}" if others else last
        return text[0].upper() + text[1:]

    def _clustered(self, k: int) -> IntArray:
        """Cluster stratum by stratum; those with fewer than k persons are suppressed."""
        of_record = np.full(len(self), -1, dtype=np.int64)
        constraints, num = self._allowed(k), 0
        for records in self._usable_strata(k):
            found = self._cluster(records, k, constraints)
            of_record[records] = np.where(found >= 0, found + num, -1)
            num += int(found.max(initial=-1)) + 1
        return of_record

    def _allowed(self, k: int) -> Constraints | None:
        """Return the constraints, with the share of records that may still be suppressed besides small strata."""
        most = self.mechanism.max_suppressed
        if self.constraints is None or most is None:
            return self.constraints
        usable = int((self.sizes[self.stratum] >= k).sum())
        spare = math.floor(most * len(self)) - (len(self) - usable)
        return replace(self.constraints, max_suppressed=min(1.0, max(0, spare) / usable))

    def _usable_strata(self, k: int) -> Iterator[IntArray]:
        # Records are sorted by stratum first.
        starts = np.searchsorted(self.stratum, np.arange(self.num_strata + 1))
        for stratum in np.flatnonzero(self.sizes >= k).tolist():
            yield np.arange(starts[stratum], starts[stratum + 1])

    def _cluster(self, records: IntArray, k: int, constraints: Constraints | None) -> IntArray:
        """Cluster some records by the method asked for, and refine what it found."""
        whole = len(records) == len(self)
        metric = self.metric if whole else self.metric.take(records)
        constraints = constraints if whole or constraints is None else constraints.take(records)
        person = None if self.person is None else self.person[records]
        found = self._grouped(metric, k, constraints, person)
        seconds = float(self.mechanism.refine_seconds) * len(records) / len(self)
        if seconds > 0:
            from dunnage.clustering.refine import refine

            price, told = float(self.mechanism.price), _by_tenths(self.tell, "refining classes")
            found = refine(
                metric, found, k, seconds=seconds, person=person, constraints=constraints, price=price, progress=told
            )
        return found

    def _grouped(self, metric: Metric, k: int, constraints: Constraints | None, person: IntArray | None) -> IntArray:
        limits = None if constraints is None else constraints.limits
        if self.mechanism.method == "published-greedy":
            from dunnage.clustering.published import published_greedy

            return published_greedy(metric, k, order=_scattered(len(metric)), limits=limits)
        if self.mechanism.method == "published-density":
            from dunnage.clustering.published import published_density

            return published_density(metric, k, limits=limits)
        from dunnage.clustering.growth import grow_in_blocks

        price = float(self.mechanism.price)
        told = _by_tenths(self.tell, "growing classes") if len(metric) >= TOLD_FROM else None
        return grow_in_blocks(metric, k, constraints=constraints, person=person, price=price, progress=told)

    def _looks(self, of_record: IntArray) -> tuple[IntArray, list[Generalised]]:
        """Give classes numbers by what is released of them, and make one of those that look alike."""
        by_class = _ByClass(of_record)
        columns = [by_class.told(column) for column in self.columns]
        keys = [self.stratum[by_class.first], *(key for _, column_keys in columns for key in column_keys)]
        _, representative, merged = np.unique(np.stack(keys, axis=1), axis=0, return_index=True, return_inverse=True)
        inside = of_record >= 0
        numbered = np.full(len(self), -1, dtype=np.int64)
        numbered[inside] = merged.reshape(-1)[of_record[inside]]
        return numbered, [_chosen(told, representative) for told, _ in columns]

    def _made(self, of_record: IntArray, told: list[Generalised]) -> Classes:
        sizes = class_sizes(of_record[of_record >= 0])
        lost = len(self) - int(sizes.sum())
        sums = []
        for column, of_class in zip(self.columns, told, strict=True):
            widths = _widths(of_class, column)
            self._check_limit(column.attribute, widths)
            sums.append(float(sizes @ (widths / (column.diameter or 1.0))))
        weights = tuple(self.weights[column.attribute.name] for column in self.columns)
        of_row = np.empty(len(self), dtype=np.int64)
        of_row[self.order] = of_record
        generalisation = math.fsum(w * s for w, s in zip(weights, sums, strict=True)) / (len(self) - lost)
        return Classes(
            of_row=of_row,
            generalised=tuple(told),
            losses=tuple(value + lost for value in sums),
            importance=weights,
            metric=DISTORTION_METRIC,
            fewest_persons=None if self.person is None else int(self._persons(of_record, len(sizes)).min()),
            figures={
                "importance": {"factors": self.factors, "weights": self.weights},
                "distortion": {"generalisation": generalisation, "suppression": lost / len(self)},
            },
        )

    def _check_counts(self, of_record: IntArray, k: int) -> None:
        """Count what is promised: whatever the clustering did, no smaller class is released."""
        if int(self._persons(of_record, int(of_record.max()) + 1).min()) < k:
            raise InternalError("a class came out smaller than k")

    def _check_limit(self, attribute: Attribute, widths: FloatArray) -> None:
        limit = width_limit(attribute.domain, dict(self.mechanism.limits).get(attribute.name))
        if float(widths.max()) > limit + LIMIT_TOLERANCE * max(1.0, limit):
            raise InternalError(f"a class came out wider in {attribute.name!r} than its limit")

    def _check_suppressed(self, of_record: IntArray) -> None:
        most, lost = self.mechanism.max_suppressed, int((of_record < 0).sum())
        if most is not None and lost > most * len(self):
            raise Refusal(
                f"{lost / len(self):.2%} of the records would be suppressed, more than max_suppressed = "
                f"{shown_number(most)} allows. Raise it. Or: {self._relief()}."
            )

    def _check_statistics(self, of_record: IntArray, told: list[Generalised]) -> None:
        """Refuse classes whose middles change a statistic by more than it may change (C3)."""
        sizes = class_sizes(of_record[of_record >= 0])
        for column, of_class in zip(self.columns, told, strict=True):
            for statistic, most in dict(self.mechanism.keep).get(column.attribute.name, ()):
                assert isinstance(of_class, Intervals)  # promised: only numbers have statistics
                middles = np.repeat((of_class.lower + of_class.upper) / 2, sizes)
                work_out = np.mean if statistic == "mean" else np.median
                change = abs(float(work_out(middles)) - float(work_out(column.values))) / column.diameter
                if change > most:
                    raise Refusal(
                        f"the {statistic} of {column.attribute.name!r} would change by {change:.3g} of its domain, and "
                        f"may by {shown_number(most)}. Raise that in keep, raise its importance, or lower k."
                    )

    def _check_sensitive(self, of_record: IntArray) -> None:
        """Refuse classes that are less diverse, or farther from all released records, than is asked for."""
        inside = of_record >= 0
        for attribute in self.dataset.schema.sensitive:
            column = released_column(self.dataset, attribute.name).take(pa.array(self.order[inside]))
            column = ranked(column, attribute.describe())
            diverse, close = diversity_reached(self.mechanism.describe(), of_record[inside], column)
            if not (diverse and close):
                limited = ", or max_suppressed" if self.mechanism.max_suppressed is not None else ""
                raise Refusal(
                    f"no classes were found whose values of {attribute.name!r} are as "
                    f"{'close to those of all released records as t' if diverse else 'diverse as l'} asks. "
                    f"{'Raise t or k' if diverse else 'Lower l, raise k'}{limited}: larger classes are more like the "
                    "whole table."
                )


def _by_tenths(tell: Progress, what: str) -> Callable[[float], None]:
    """Turn shares of the work done into words, ten at most."""
    told = -1

    def note(share: float) -> None:
        nonlocal told
        if int(10 * min(share, 1.0)) > told:
            told = int(10 * min(share, 1.0))
            tell(f"{what}: {10 * told} %")

    return note


class _ByClass:
    """Records in the order of their classes, so that a class is a slice."""

    def __init__(self, of_record: IntArray) -> None:
        self.records = np.flatnonzero(of_record >= 0)
        self.records = self.records[np.argsort(of_record[self.records], kind="stable")]
        self.classes = of_record[self.records]
        sizes = class_sizes(self.classes)
        self.starts = np.cumsum(sizes) - sizes
        self.first = self.records[self.starts]

    def told(self, column: Column) -> tuple[Generalised, list[IntArray]]:
        """Generalise a column class by class."""
        name, domain, values = column.attribute.name, column.attribute.domain, column.values[self.records]
        if isinstance(domain, Numeric):
            lower, upper = np.minimum.reduceat(values, self.starts), np.maximum.reduceat(values, self.starts)
            return Intervals(name=name, lower=lower, upper=upper), [_dense(lower), _dense(upper)]
        if isinstance(domain, Tree):
            lowest, highest = np.minimum.reduceat(values, self.starts), np.maximum.reduceat(values, self.starts)
            labels = _nodes(domain, lowest, highest)
            return Nodes(name=name, labels=labels), [_dense(np.asarray(labels))]
        return self._sets(column, cast("CodedDomain", domain), values)

    def _sets(self, column: Column, domain: CodedDomain, values: npt.NDArray[Any]) -> tuple[Sets, list[IntArray]]:
        num = len(domain.labels)
        classes, codes = np.divmod(np.unique(self.classes * num + values), num)
        sizes = class_sizes(classes)
        groups = [tuple(group.tolist()) for group in np.split(codes, np.cumsum(sizes)[:-1])]
        rank = {group: number for number, group in enumerate(sorted(set(groups)))}
        sets = tuple(tuple(domain.labels[code] for code in group) for group in groups)
        diameters = set_widths(domain, codes, sizes) if isinstance(domain, Graph) else None
        made = Sets(name=column.attribute.name, sets=sets, diameters=diameters)
        return made, [np.array([rank[group] for group in groups], dtype=np.int64)]


def _dense(values: npt.NDArray[Any]) -> IntArray:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _nodes(domain: Tree, lowest: IntArray, highest: IntArray) -> tuple[str, ...]:
    """Return the lowest node above the leaves between two codes; codes follow a depth-first walk."""
    pairs, which = np.unique(np.stack((lowest, highest), axis=1), axis=0, return_inverse=True)
    labels = [domain.generalise([domain.labels[code] for code in pair]) for pair in pairs.tolist()]
    return tuple(labels[number] for number in which.reshape(-1).tolist())


def _chosen(told: Generalised, classes: IntArray) -> Generalised:
    """Return what is told of some classes, in their order."""
    if isinstance(told, Intervals):
        return replace(told, lower=told.lower[classes], upper=told.upper[classes])
    if isinstance(told, Nodes):
        return replace(told, labels=tuple(told.labels[number] for number in classes.tolist()))
    diameters = None if told.diameters is None else told.diameters[classes]
    return replace(told, sets=tuple(told.sets[number] for number in classes.tolist()), diameters=diameters)


def _widths(told: Generalised, column: Column) -> FloatArray:
    """Return the largest distance in each class, from what is released of it."""
    if isinstance(told, Intervals):
        return np.asarray(told.upper - told.lower)
    if isinstance(told, Nodes):
        sizes = cast("Tree", column.attribute.domain).node_sizes
        return np.array([sizes[label] - 1.0 for label in told.labels])
    if told.diameters is not None:
        return told.diameters
    domain = cast("CodedDomain", column.attribute.domain)
    codes = domain.codes([label for labels in told.sets for label in labels])
    return set_widths(domain, codes, np.array([len(labels) for labels in told.sets]))


def _by_values(dataset: Dataset, stratum: IntArray, columns: Sequence[Column]) -> IntArray:
    """Return the rows in the order of stratum, generalised values, sensitive values and persons."""
    keys: list[npt.NDArray[Any]] = [stratum, *(column.values for column in columns)]
    keys += [_ranks(dataset, attribute) for attribute in dataset.schema.sensitive]
    keys += [] if dataset.persons is None else [dataset.persons]
    return np.lexsort(keys[::-1])


def _ranks(dataset: Dataset, attribute: Attribute) -> IntArray:
    """Give the values of a sensitive column numbers in their order, from 0."""
    ranks = pc.rank(ranked(released_column(dataset, attribute.name), attribute.describe()), tiebreaker="dense")
    return np.asarray(ranks.to_numpy(zero_copy_only=False), dtype=np.int64) - 1


def _scattered(num: int) -> IntArray:
    """Return records in an order without pattern that is the same each time: by a hash of their numbers (splitmix64).

    Which records become heads decides only how good classes are, never whether they are large enough.
    """
    hashed = (np.arange(1, num + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashed = (hashed ^ (hashed >> np.uint64(shift))) * np.uint64(factor)
    return np.argsort(hashed ^ (hashed >> np.uint64(31)), kind="stable")
