# SPDX-License-Identifier: Apache-2.0
"""A release of classes: what someone who knows a record's values can name or rule out, and what classes lose.

The attacker has the release and knows the public and the generalised values of one record, exactly or within bounds.
They look up every class that could contain the record: by its closed intervals, by the sets of labels that occur in it,
by what its mean leaves possible, or, with multisets, by the values that it lists. Rows of a class are in random order,
so within a class the attacker can only guess. Among several classes, each counts by how many of its rows (or listed
values) fit. These figures are counted over all records. A class is ruled out only if it is impossible beyond rounding.

For a secret sample, eq. 25 of Li et al. 2022, beta / k, bounds how likely a row is named **before** the release is
seen: the record must be sampled, and then stands among k rows or more. Someone who sees the release, and knows that the
record is in it, names its row with probability 1 / j if its class has j rows: at most 1 / k, as for any k-anonymous
release. ``docs/proofs/identification.md`` has both.

References
----------
Hoogervorst et al. 2019, section 7 (record, attribute and table linkage); Dankar, El Emam 2010 (prosecutor,
journalist, marketer); Ganta, Kasiviswanathan, Smith 2008 (several releases of the same records).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.auditing import findings
from dunnage.auditing.findings import KeyFigure, Progress, RecordAtRisk, figure, wilson, with_unit, words
from dunnage.errors import CheckFailed, ParameterError, ReleaseError
from dunnage.mechanisms.classes import ClassRelease, released_column
from dunnage.mechanisms.full_domain import Records
from dunnage.model.domains import Domain, Numeric, Tree, decimal_scale, domain_from
from dunnage.model.guarantees import SampledDP
from dunnage.model.hierarchies import hierarchy_of
from dunnage.model.measures import DISTORTION_METRIC
from dunnage.model.schema import COUNTS_SUFFIX
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.release.spreading import floats_of_lists
from dunnage.settle import matched_records
from dunnage.tables.columns import is_set
from dunnage.tables.dataset import Dataset
from dunnage.text import percent
from dunnage.verification import mechanism_of

MAX_PAIRS = 2_000_000  # Pairs of a record and a class that are compared at a time; bounds the memory
MAX_PROBES = 1_000_000  # Values that are tried to see which are certainly absent
GUESS_REACH = 0.01  # A guess counts as right within this share of the domain on either side
MIN_DRAWS, MAX_DRAWS = 20, 400  # How often a secret sample is taken again
MAX_DRAWN = 20_000_000
_GOLDEN = (math.sqrt(5) - 1) / 2
_ROUNDING = 1e-9
OTHER_ROWS = "the release was not made from these rows. Give the data exactly as they were published."
OTHER_KEY_ROWS = "the key was made from other rows. Give the data exactly as they were published."
NEITHER = (
    "an audit of linkage needs classes of rows or noisy rows. This release promises {} and has neither. Give another."
)


# What the attacker sees


def names_of_role(release: Release, role: str) -> tuple[str, ...]:
    return tuple(name for name, item in release.attributes.items() if item.role == role)


def positions(column: pa.Array, values: pa.Array) -> IntArray:
    """Return the place of each cell among the values, -1 if it is not there."""
    places: IntArray = pc.fill_null(pc.index_in(column, value_set=values), -1).to_numpy(zero_copy_only=False)
    return places.astype(np.int64)


class PublicValues(NamedTuple):
    """The combinations of public values that a release has, numbered."""

    # For each public column: its name, its values, and which combinations with the columns before it occur
    columns: tuple[tuple[str, pa.Array, IntArray], ...]
    of_class: IntArray  # Number of each class, or of each row where there are no classes

    @classmethod
    def of(cls, release: Release, first_rows: IntArray) -> PublicValues:
        columns: list[tuple[str, pa.Array, IntArray]] = []
        codes = np.zeros(len(first_rows), dtype=np.int64)
        for name in names_of_role(release, "public"):
            column = _comparable(release.data.column(name).combine_chunks().take(pa.array(first_rows)))
            values = column.unique()
            raw = codes * len(values) + positions(column, values)
            present, codes = np.unique(raw, return_inverse=True)
            columns.append((name, values, present))
        return cls(tuple(columns), codes.reshape(-1))

    def look_up(self, given: Mapping[str, pa.Array], num: int) -> IntArray:
        """Return the number of each combination, -1 where the release does not have it."""
        codes, present_too = np.zeros(num, dtype=np.int64), np.ones(num, dtype=bool)
        for name, values, present in self.columns:
            position = positions(_comparable(given[name]), values)
            if not len(present):
                return np.full(num, -1)
            raw = codes * len(values) + position
            codes = np.searchsorted(present, raw).clip(max=len(present) - 1)
            present_too &= (position >= 0) & (present[codes] == raw)
        return np.where(present_too, codes, -1)

    def of_records(self, release: Release, data: Dataset, others: Sequence[str]) -> IntArray:
        """Return the number of each record's combination, -1 where the release lacks it; ``others`` must exist."""
        columns, public = {attribute.name for attribute in data.schema}, [name for name, *_ in self.columns]
        if lacking := [name for name in (*public, *others) if name not in columns]:
            raise ReleaseError(f"the data have no column {', '.join(lacking)}. Give the data that were published.")
        given = {}
        for name in public:
            try:
                given[name] = released_column(data, name).cast(release.data.schema.field(name).type)
            except pa.ArrowException:  # its text may quote cells
                raise ReleaseError(
                    f"column {name!r} of the data has another type than the release. Give the data that were published."
                ) from None
        return self.look_up(given, len(data))


def _comparable(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()) if pa.types.is_decimal(column.type) else column


class LabelSets(NamedTuple):
    """The labels of each class's set, one after the other, by class."""

    places: FloatArray  # Place of each label among those of the domain, in order within a class
    of_class: IntArray
    counts: FloatArray | None  # How often each occurs in its class, where multisets were released


class ClassAttribute(NamedTuple):
    """One generalised attribute as numbers, class by class; a label counts as its place among those of its domain."""

    name: str
    domain: Domain
    # lower, upper: closed bounds of each class; a node of a hierarchy covers neighbouring leaves, so it is an interval
    lower: FloatArray
    upper: FloatArray
    means: FloatArray | None  # Mean of each class, where it was released
    members: FloatArray | None  # Values by class, where multisets were released
    own_bounds: bool  # Whether bounds are the smallest and largest value of the class itself
    listing: LabelSets | None  # The labels of each class, where sets were released: no others occur in it

    @property
    def numeric(self) -> Numeric | None:
        return self.domain if isinstance(self.domain, Numeric) else None

    @property
    def unit(self) -> str:
        return self.domain.unit if isinstance(self.domain, Numeric) else ""

    @property
    def span(self) -> float:
        return self.domain.span if isinstance(self.domain, Numeric) else max(1.0, self.num_labels - 1.0)

    @property
    def num_labels(self) -> int:
        return len(getattr(self.domain, "labels", ()))

    @classmethod
    def of(cls, release: Release, name: str, bounds: str) -> ClassAttribute:
        classes, domain = release.classes, domain_from(release.attributes[name].domain or {})
        assert classes is not None
        means, own, listing = None, False, None
        if isinstance(domain, Numeric) and f"{name}_lower" in classes.column_names:
            lower, upper = (_numbers(domain, classes[f"{name}_{end}"].combine_chunks()) for end in ("lower", "upper"))
            if f"{name}_mean" in classes.column_names:
                means = _numbers(domain, classes[f"{name}_mean"].combine_chunks())
            own = bounds == "class"
            if bounds == "level":
                # The public rule: a border belongs to the interval above it.
                open_end = (lower < upper) & (upper < domain.upper_float)
                upper = np.where(open_end, np.nextafter(upper, -np.inf), upper)
        elif name in classes.column_names and classes.schema.field(name).type == pa.string():
            # The first and last leaf below each node, by place; a node outside the hierarchy is the whole domain.
            labels: tuple[str, ...] = getattr(domain, "labels", ())
            spans: dict[str, tuple[int, int]] = {}
            for place, label in enumerate(labels):
                for node in domain.levels(label) if isinstance(domain, Tree) else (label,):
                    spans[node] = (spans.get(node, (place, place))[0], place)
            nodes = [spans.get(node, (0, len(labels) - 1)) for node in classes[name].to_pylist()]
            lower, upper = np.array(nodes, dtype=np.float64).reshape(-1, 2).T
        elif name in classes.column_names and is_set(classes.schema.field(name).type):
            sets = classes[name].combine_chunks()
            counts = np.asarray(pc.fill_null(pc.list_value_length(sets), 0).to_numpy(zero_copy_only=False), np.int64)
            places = _numbers(domain, sets.flatten())
            if not counts.all() or (places < 0).any():
                raise ReleaseError("a class has an empty set, or a label outside the domain. Verify the release.")
            of_class, ends = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts)
            order, often = np.lexsort((places, of_class)), None
            if name + COUNTS_SUFFIX in classes.column_names:
                often = floats_of_lists(classes, name + COUNTS_SUFFIX)[order]
            places = places[order]
            listing, lower, upper = LabelSets(places, of_class, often), places[ends - counts], places[ends - 1]
        else:
            raise ParameterError(
                f"this version audits numbers, nodes of hierarchies and sets. Attribute {name!r} is none of these."
            )
        members = None if release.members is None else _numbers(domain, release.members.column(name).combine_chunks())
        return cls(name, domain, lower, upper, means, members, own, listing)


def _numbers(domain: Domain, column: pa.Array) -> FloatArray:
    if isinstance(domain, Numeric):
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    place = pc.index_in(column.cast(pa.string()), value_set=pa.array(getattr(domain, "labels", ()), pa.string()))
    # A label outside the domain lies outside every interval.
    return np.asarray(pc.fill_null(place, -1).to_numpy(zero_copy_only=False), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class ClassesView:
    """A release of classes as an attacker reads it, one line for each class."""

    release: Release
    mechanism: ClassRelease  # What made it
    sizes: IntArray  # Rows of each class
    attributes: tuple[ClassAttribute, ...]  # The generalised ones
    names: tuple[str, ...]  # names, sensitive: of these, and of the sensitive columns
    sensitive: tuple[str, ...]
    public: PublicValues
    class_id: IntArray  # Class of each row; -1 for noisy rows
    sampled: bool  # Whether it is of a secret sample, so that a record may be missing by chance
    clustered: bool  # Whether classes are clusters of nearby records, shown as sets, nodes and intervals
    multisets: bool  # Whether the values of each class are listed

    @classmethod
    def of(cls, release: Release) -> ClassesView:
        names = names_of_role(release, "quasi-identifier")
        if release.classes is None or not names:
            raise ParameterError(NEITHER.format(release.certificate.guarantee.model))
        try:
            mechanism = mechanism_of(release.certificate)
        except CheckFailed as failure:
            raise ReleaseError(f"the release does not say how its classes were made: {failure}. Verify it.") from None
        if not isinstance(mechanism, ClassRelease):
            raise ParameterError(NEITHER.format(release.certificate.guarantee.model))
        class_id = np.asarray(release.data.column("class_id").to_numpy())
        in_class = np.flatnonzero(class_id >= 0)  # noisy rows are in none
        return cls(
            release=release,
            mechanism=mechanism,
            sizes=release.classes.column("size").to_numpy().astype(np.int64),
            attributes=tuple(ClassAttribute.of(release, name, mechanism.class_bounds) for name in names),
            names=names,
            sensitive=names_of_role(release, "sensitive"),
            public=PublicValues.of(release, in_class[np.unique(class_id[in_class], return_index=True)[1]]),
            class_id=class_id,
            sampled=isinstance(release.certificate.guarantee, SampledDP),
            clustered=mechanism.metric == DISTORTION_METRIC,
            multisets=release.members is not None,
        )

    @property
    def remedies(self) -> dict[str, str]:
        """What the owner can change about the values that classes show, given the parameters of the mechanism."""
        listed = any(item.listing is not None and item.listing.counts is not None for item in self.attributes)
        changes = ['statistic = "bounds"'] if listed or self.statistic not in ("bounds", "values") else []
        values = " (" + changes[0] + ")" if changes else ""
        if getattr(self.mechanism, "bounds", None) == "class":
            changes.append('bounds = "grid", and a coarser resolution')
        grid = f"Use {' and '.join(changes)}, in the policy." if changes else "Ask for a larger k."
        return {
            "bounds_instead": f"Publish bounds instead of every value{values}, or ask" if values else "Ask",
            "grid_bounds": grid,
        }

    @property
    def statistic(self) -> str:
        """What the release states about a class: ``bounds``, ``mean``, ``multiset`` or, for clusters, ``values``."""
        if self.clustered:
            return "values"
        has_means = any(attribute.means is not None for attribute in self.attributes)
        return "multiset" if self.multisets else "mean" if has_means else "bounds"

    @cached_property
    def members(self) -> FloatArray:
        """The listed values by class, sorted by the first attribute. Shape: attributes, rows."""
        if self.release.members is None:
            raise ParameterError("the release has no multisets. Use its bounds.")
        values = np.array([attribute.members for attribute in self.attributes])
        return values[:, np.lexsort((values[0], self.release.members.column("class_id").to_numpy()))]

    @cached_property
    def class_of_member(self) -> IntArray:
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


# What the attacker knows, and what is true


@dataclass(frozen=True, eq=False)
class Knowledge:
    stratum: IntArray  # Number of their combination of public values, -1 if the release does not have it
    # low, high: bounds of each generalised value; equal if it is known exactly. Shape: attributes, records
    low: FloatArray
    high: FloatArray

    def __len__(self) -> int:
        return len(self.stratum)

    @classmethod
    def of_values(cls, view: ClassesView, stratum: IntArray, values: FloatArray, tolerance: float = 0.0) -> Knowledge:
        """Know labels exactly, and numbers within a share of each on either side. Shape: attributes, records."""
        shares = np.array([[tolerance if item.numeric is not None else 0.0] for item in view.attributes])
        reach = shares * np.abs(values)
        return cls(stratum, values - reach, values + reach)

    @classmethod
    def of_records(cls, view: ClassesView, data: Dataset, tolerance: float = 0.0) -> Knowledge:
        stratum = view.public.of_records(view.release, data, view.names)
        try:
            values = np.array([_numbers(item.domain, data.column(item.name)) for item in view.attributes])
        except (pa.ArrowException, ValueError):
            message = "a column has another kind than the release. Give the policy and data as published."
            raise ReleaseError(message) from None
        return cls.of_values(view, stratum, values, tolerance)

    @classmethod
    def of_axes(cls, stratum: IntArray, axes: Sequence[int], values: FloatArray, num_attributes: int) -> Knowledge:
        """Know some attributes exactly and nothing about the others. Shape of values: axes, records."""
        low = np.full((num_attributes, len(stratum)), -np.inf)
        high = -low
        low[axes] = high[axes] = values
        return cls(stratum, low, high)


@dataclass(frozen=True, eq=False)
class ClassesTruth:
    """A release of classes and the records it was made from. Private."""

    view: ClassesView
    data: Dataset
    known: Knowledge  # What an attacker who knows the records exactly knows
    of_record: IntArray  # Class of each record, -1 where it was suppressed
    released: BoolArray  # Whether each record is in the release
    certain: bool  # Whether both are known for certain

    @classmethod
    def of(cls, view: ClassesView, data: Dataset, key: Key | None) -> ClassesTruth:
        """Find the class of each record: by the key, or else by the values alone."""
        known = Knowledge.of_records(view, data)
        if (populations(view, known) < view.sizes).any():
            raise ReleaseError(OTHER_ROWS)
        of_record = np.full(len(data), -1, dtype=np.int64)
        if key is not None:
            of_record[matched_records(data, view.release, key)] = view.class_id
            return cls(view, data, known, of_record, of_record >= 0, True)
        times = np.zeros(len(data), dtype=np.int64)  # classes that fit each record
        for pairs in candidates(view, known):
            of_record[pairs.record] = pairs.of_class
            times += np.bincount(pairs.record, minlength=len(data))
        certain = bool(times.max() <= 1) and int((times > 0).sum()) == int(view.sizes.sum())
        return cls(view, data, known, of_record, times > 0, certain)


# Which record may be in which class


class ClassCandidates(NamedTuple):
    """Pairs of a record and a class it may be in, by record."""

    record: IntArray
    of_class: IntArray
    weight: NDArray[Any]  # How many rows of the class (with multisets, listed values) fit what the attacker knows

    @property
    def starts(self) -> IntArray:
        """Position of each record's first pair."""
        return np.flatnonzero(np.concatenate([[True], np.diff(self.record) != 0])) if len(self.record) else self.record


def candidates(view: ClassesView, known: Knowledge) -> Iterator[ClassCandidates]:
    """Yield all classes that each record may be in, some records at a time; records that fit no class do not appear."""
    # Classes are looked up by the labels of up to two attributes that were released as sets and that are known of every
    # record. A class stands once for each combination of its labels, as long as these are not too many.
    by: tuple[int, ...] = ()
    lines = np.ones(len(view.sizes), dtype=np.int64)
    for axis, attribute in enumerate(view.attributes):
        if attribute.listing is None or not np.array_equal(known.low[axis], known.high[axis]):
            continue
        more = lines * np.bincount(attribute.listing.of_class, minlength=len(lines))
        if more.sum() <= MAX_PAIRS and len(by) < 2:
            by, lines = (*by, axis), more
    runs = min((_runs(view, known, axis, by) for axis in range(len(view.attributes))), key=lambda own: own.counts.sum())
    until = np.cumsum(runs.counts)
    start = 0
    while start < len(runs.counts):
        done = int(until[start - 1]) if start else 0
        stop = max(int(np.searchsorted(until, done + MAX_PAIRS, side="right")), start + 1)
        counts = runs.counts[start:stop]
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        record = np.repeat(np.arange(start, stop), counts)
        of_class = runs.order[np.repeat(runs.first[start:stop], counts) + offset]
        fits = _fits(view, known, record, of_class)
        record, of_class = record[fits], of_class[fits]
        sizes = view.sizes[of_class]
        if not view.multisets:
            weight = _expected_rows(view, known, record, of_class)
        elif len(view.attributes) == 1:
            low, high = known.low[0, record], known.high[0, record]
            weight = _ranked_inside(view.members[0], view.class_of_member, of_class, low, high)
        else:  # the listed values that lie inside in all attributes at once
            starts = (np.cumsum(view.sizes) - view.sizes)[of_class]
            pair = np.repeat(np.arange(len(record)), sizes)
            member = np.arange(len(pair)) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
            values, wanted = view.members[:, member], record[pair]
            inside = ((values >= known.low[:, wanted]) & (values <= known.high[:, wanted])).all(axis=0)
            weight = np.bincount(pair[inside], minlength=len(record)).astype(np.int64)
        some = weight > 0
        yield ClassCandidates(record[some], of_class[some], weight[some])
        start = stop


def _expected_rows(view: ClassesView, known: Knowledge, record: IntArray, of_class: IntArray) -> NDArray[Any]:
    """Return how many rows of each class fit what is known, if its listed labels occur apart from each other."""
    weight: NDArray[Any] = view.sizes[of_class]
    for axis in _axes_known(known):
        listing = view.attributes[axis].listing
        if listing is None or listing.counts is None:
            continue
        sums = np.concatenate(([0.0], np.cumsum(listing.counts)))
        first, stop = _ranks_inside(*listing[:2], of_class, known.low[axis, record], known.high[axis, record])
        weight = weight * (sums[stop] - sums[first]) / view.sizes[of_class]
    return weight


class _Runs(NamedTuple):
    """For each record, the consecutive classes in one order that one attribute and some labels do not rule out."""

    order: IntArray
    first: IntArray
    counts: IntArray


def _runs(view: ClassesView, known: Knowledge, axis: int, by: tuple[int, ...]) -> _Runs:
    """Find each run among the classes sorted by public values, labels of attributes ``by`` and lower bound."""
    # A group is a combination of public values and labels; a record has -1 if the release does not have it.
    group, wanted = view.public.of_class, known.stratum
    of_class = np.arange(len(group))
    for place in by:
        listing, num = view.attributes[place].listing, view.attributes[place].num_labels
        assert listing is not None  # chosen because there is one
        label = known.low[place].astype(np.int64)
        counts = np.bincount(listing.of_class, minlength=len(view.sizes))
        times = counts[of_class]
        line = np.repeat((np.cumsum(counts) - counts)[of_class] - (np.cumsum(times) - times), times)
        own_label = listing.places[line + np.arange(len(line))].astype(np.int64)
        group, of_class = np.repeat(group, times) * num + own_label, np.repeat(of_class, times)
        wanted = np.where((wanted < 0) | (label < 0), -1, wanted * num + label)
    # Candidates run from the first upper bound that is high enough to where lower bounds become too high.
    lower, upper = view.attributes[axis].lower[of_class], view.attributes[axis].upper[of_class]
    order = np.lexsort((lower, group))
    ends = np.unique(np.concatenate([lower, upper]))
    width = len(ends) + 1
    opens = (group * width + np.searchsorted(ends, lower))[order]
    reach = np.maximum.accumulate((group * width + np.searchsorted(ends, upper))[order])
    base = wanted * width
    first = np.searchsorted(reach, base + np.searchsorted(ends, known.low[axis], side="left"))
    stop = np.searchsorted(opens, base + np.searchsorted(ends, known.high[axis], side="right"))
    return _Runs(of_class[order], first, np.where(wanted < 0, 0, np.maximum(stop - first, 0)))


def _fits(view: ClassesView, known: Knowledge, record: IntArray, of_class: IntArray) -> BoolArray:
    fits = np.ones(len(record), dtype=bool)
    for axis in _axes_known(known):
        attribute, sizes = view.attributes[axis], view.sizes[of_class]
        low, high = known.low[axis, record], known.high[axis, record]
        lower, upper = attribute.lower[of_class], attribute.upper[of_class]
        fits &= (lower <= high) & (upper >= low)
        if attribute.listing is not None:
            # Knowledge that covers the whole set rules out none of its labels.
            open_ = np.flatnonzero(fits & ((low > lower) | (high < upper)))
            fits[open_] = _ranked_inside(*attribute.listing[:2], of_class[open_], low[open_], high[open_]) > 0
        if view.multisets:
            continue
        # With own bounds one member is the smallest and one the largest, so a class of two has no others. The mean
        # bounds what one more member can be: the others sum to no more than their upper bounds, and no less than
        # their lower bounds.
        least, most, fixed = lower, upper, 2 if attribute.own_bounds else 0
        if attribute.means is not None:
            slack = _ROUNDING * sizes * np.maximum(np.abs(lower), np.abs(upper))
            free = sizes * attribute.means[of_class] - (lower + upper if attribute.own_bounds else 0.0)
            others = np.maximum(sizes - fixed - 1, 0)
            least = np.maximum(lower, free - others * upper - slack)
            most = np.minimum(upper, free - others * lower + slack)
        inner = (sizes > fixed) & (np.maximum(least, low) <= np.minimum(most, high))
        at_an_end = ((low <= lower) & (lower <= high)) | ((low <= upper) & (upper <= high))
        fits &= inner | at_an_end if attribute.own_bounds else inner
    return fits


def _axes_known(known: Knowledge) -> list[int]:
    bounded = (known.low > -np.inf) | (known.high < np.inf)
    return [int(axis) for axis in np.flatnonzero(bounded.any(axis=1))]


def _ranked_inside(
    values: FloatArray, groups: IntArray, wanted: IntArray, low: FloatArray, high: FloatArray
) -> IntArray:
    """Count the values of each wanted group that lie between its bounds; values are sorted by group."""
    first, stop = _ranks_inside(values, groups, wanted, low, high)
    return np.asarray(stop - first, dtype=np.int64)


def _ranks_inside(
    values: FloatArray, groups: IntArray, wanted: IntArray, low: FloatArray, high: FloatArray
) -> tuple[IntArray, IntArray]:
    """Return the first of these values, and the one after the last."""
    ranks = np.unique(values)
    width = len(ranks) + 1
    places = groups * width + np.searchsorted(ranks, values)
    stop = np.searchsorted(places, wanted * width + np.searchsorted(ranks, high, side="right"))
    return np.searchsorted(places, wanted * width + np.searchsorted(ranks, low, side="left")), stop


# Record linkage


class RecordLinkage(NamedTuple):
    """For each record: how many released rows may be it, and how likely the best guess is right."""

    rows: IntArray
    probability: FloatArray


def record_linkage(view: ClassesView, known: Knowledge) -> RecordLinkage:
    """Look for the row of each record; records that fit no class have no rows and probability 0."""
    rows, probability = np.zeros(len(known), dtype=np.int64), np.zeros(len(known))
    axes = _axes_known(known)
    if len(axes) == 1 and np.array_equal(known.low[axes[0]], known.high[axes[0]]):
        attribute = view.attributes[axes[0]]
        if attribute.means is None and attribute.listing is None and not view.multisets:
            rows = _rows_at(view, known, axes[0])
            return RecordLinkage(rows, np.divide(1, rows, out=probability, where=rows > 0))
    for pairs in candidates(view, known):
        if not len(pairs.record):
            continue
        starts, sizes = pairs.starts, view.sizes[pairs.of_class]
        records = pairs.record[starts]
        rows[records] = np.add.reduceat(sizes, starts)
        total = np.repeat(np.add.reduceat(pairs.weight, starts), np.diff(np.append(starts, len(sizes))))
        # One division of whole numbers, so that 1 of 6 is 1/6 to the last digit.
        probability[records] = np.maximum.reduceat(pairs.weight / (sizes * total), starts)
    return RecordLinkage(rows, probability)


def _rows_at(view: ClassesView, known: Knowledge, axis: int) -> IntArray:
    """Count the rows with an interval that contains each record's value: those begun less those ended."""
    # Pairs of a record and a class would be far too many: a million values are tried in all classes.
    attribute, groups, value = view.attributes[axis], view.public.of_class, known.low[axis]
    ends = np.unique(np.concatenate([attribute.lower, attribute.upper]))
    width = len(ends) + 1
    lower, upper = (groups * width + np.searchsorted(ends, bound) for bound in (attribute.lower, attribute.upper))
    base = known.stratum * width
    after, at = (base + np.searchsorted(ends, value, side="right"), base + np.searchsorted(ends, value))

    def below(places: IntArray, some: BoolArray, wanted: IntArray) -> IntArray:
        """Add up the sizes of the classes that stand before each wanted place."""
        order = np.argsort(places[some], kind="stable")
        sums = np.concatenate(([0], np.cumsum(view.sizes[some][order])))
        return np.asarray(sums[np.searchsorted(places[some][order], wanted)], dtype=np.int64)

    inner = view.sizes > (2 if attribute.own_bounds else 0)
    rows = below(lower, inner, after) - below(upper, inner, at)
    # A class of two has nothing between its own bounds: it counts once at each of them.
    for bounds, some in ((lower, ~inner), (upper, ~inner & (lower != upper))):
        rows += below(bounds, some, after) - below(bounds, some, at)
    return rows  # a value in no stratum stands before all classes


# Attribute linkage


class Occurrences(NamedTuple):
    """How often each value of a column occurs in each class, by class, then value; values are numbered."""

    starts: IntArray  # Where each class begins; one entry more than there are classes
    values: IntArray
    counts: IntArray

    @classmethod
    def of(cls, class_id: IntArray, codes: IntArray, num_classes: int) -> Occurrences:
        width = int(codes.max()) + 1
        pairs, counts = np.unique(class_id * width + codes, return_counts=True)
        classes, values = np.divmod(pairs, width)
        return cls(np.searchsorted(classes, np.arange(num_classes + 1)), values, counts)

    @property
    def distinct(self) -> IntArray:
        return np.diff(self.starts)

    def expand(self, classes: IntArray) -> tuple[IntArray, IntArray]:
        """Return, for each value of some classes, the class's position in the list and the line here."""
        times = self.distinct[classes]
        place = np.repeat(np.arange(len(classes)), times)
        line = np.arange(len(place)) + np.repeat(self.starts[classes] - (np.cumsum(times) - times), times)
        return place, line


def codes_of(column: pa.Array) -> IntArray:
    codes: IntArray = column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
    return codes.astype(np.int64)


def sensitive_codes(view: ClassesView, name: str) -> IntArray:
    return codes_of(view.release.data.column(name).combine_chunks())


def attribute_linkage(view: ClassesView, known: Knowledge, column: str) -> FloatArray:
    """Return for each record how likely the best guess of its sensitive value is right; 0 where no class fits."""
    cells = Occurrences.of(view.class_id, sensitive_codes(view, column), len(view.sizes))
    probability = np.zeros(len(known))
    for pairs in candidates(view, known):
        if not len(pairs.record):
            continue
        total = np.bincount(pairs.record, weights=pairs.weight)
        pair, line = cells.expand(pairs.of_class)
        record = pairs.record[pair]
        chance = pairs.weight[pair] * cells.counts[line] / (view.sizes[pairs.of_class[pair]] * total[record])
        width = int(cells.values.max()) + 1
        guesses, guess = np.unique(record * width + cells.values[line], return_inverse=True)
        summed = np.bincount(guess.reshape(-1), weights=chance)
        np.maximum.at(probability, guesses // width, np.minimum(summed, 1.0))
    return probability


def homogeneous_by_chance(sizes: IntArray, values: IntArray) -> float:
    """Return the share of rows in classes with only one value if values were dealt to classes at random."""
    from scipy.special import gammaln

    num, expected = int(sizes.sum()), 0.0
    for size, often in zip(*(part.tolist() for part in np.unique(sizes, return_counts=True)), strict=True):
        enough = values[values >= size]
        # choose(count, size) / choose(num, size), in logarithms
        logs = gammaln(enough + 1) - gammaln(enough - size + 1) - gammaln(num + 1) + gammaln(num - size + 1)
        expected += often * size * float(np.exp(logs).sum())
    return min(expected / num, 1.0)


def best_window(values: FloatArray, groups: IntArray, reach: float) -> float:
    """Return the share of values within reach of the best single guess for their group."""
    order = np.lexsort((values, groups))
    values, groups = values[order], groups[order]
    inside = _ranked_inside(values, groups, groups, values, values + 2 * reach * (1 + _ROUNDING))
    most = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    np.maximum.at(most, groups, inside)
    return float(most.sum() / len(values))


# Table linkage


@dataclass(frozen=True, eq=False, kw_only=True)
class Match:
    """What a release reveals about a record with known values."""

    candidates: int  # Released rows that could be this record
    probability: float  # How likely the best guess of the row is right, if the record is known to be released
    # Whether no released row can be this record; it may still be suppressed or left out of the release
    certainly_absent: bool
    # Whether the release shows that it contains a record with exactly these values. That is this very person or package
    # only if no other has the same values
    value_shown: bool


def look_up(
    release: Release,
    known: Mapping[str, Any],  # Value of each generalised attribute
    *,
    public: Mapping[str, Any] | None = None,  # Value of each public attribute, if there are any
    tolerance: float = 0.0,  # Share of each value by which the attacker may be off
) -> Match:
    """Look for one record in a release of classes, as an attacker would."""
    view = ClassesView.of(release)
    names = [name for name, *_ in view.public.columns]
    given = dict(public or {})
    if set(known) != set(view.names) or set(given) != set(names):
        raise ParameterError(
            f"look_up needs {', '.join(view.names)} and the public {', '.join(names) or 'nothing'}. "
            f"Got {', '.join([*known, *given]) or 'nothing'}. Give a value for each."
        )
    try:
        values = np.array([_numbers(item.domain, pa.array([known[item.name]])) for item in view.attributes])
        columns = {name: pa.array([given[name]], release.data.schema.field(name).type) for name in names}
    except (pa.ArrowException, ValueError, TypeError):
        raise ParameterError("a value does not have the kind of its attribute. Give numbers as numbers.") from None
    about = Knowledge.of_values(view, view.public.look_up(columns, 1), values, tolerance)
    linkage = record_linkage(view, about)
    rows = int(linkage.rows[0])
    chance, shown = float(linkage.probability[0]), bool(shown_values(view, about)[0])
    return Match(candidates=rows, probability=chance, certainly_absent=rows == 0, value_shown=shown)


def shown_values(view: ClassesView, known: Knowledge) -> BoolArray:
    """Return for which records, known exactly, the release shows that it contains a record with the same values."""
    # With multisets every value is listed. Otherwise, with one attribute, own bounds are values of records, and so is
    # the third value of a class of three with a released mean. With several, only classes of one point count.
    shown, one = np.zeros(len(known), dtype=bool), view.attributes[0]
    points = np.logical_and.reduce([each.lower == each.upper for each in view.attributes])
    for pairs in candidates(view, known):
        exact: BoolArray = (known.low[:, pairs.record] == known.high[:, pairs.record]).all(axis=0)
        if not view.multisets and (len(view.attributes) > 1 or not one.own_bounds):
            exact = exact & points[pairs.of_class]
        elif not view.multisets:
            value, size = known.low[0, pairs.record], view.sizes[pairs.of_class]
            ends = (value == one.lower[pairs.of_class]) | (value == one.upper[pairs.of_class])
            exact = exact & (ends | ((size == 3) & (one.means is not None)))
        shown[pairs.record[exact]] = True
    return shown


def populations(view: ClassesView, population: Knowledge) -> IntArray:
    counts = np.zeros(len(view.sizes), dtype=np.int64)
    for pairs in candidates(view, population):
        counts += np.bincount(pairs.of_class, minlength=len(counts))
    return counts


# Figures that follow from the release alone


def view_figures(view: ClassesView, tell: Progress) -> Iterator[KeyFigure]:
    """Compute the risks that follow from class sizes, and the values that classes reveal or rule out."""
    rows, smallest = int(view.sizes.sum()), int(view.sizes.min())
    mean = len(view.sizes) / rows
    yield figure("prosecutor risk", 1 / smallest, 1 / rows, None, {"mean": mean, "smallest_class": smallest})
    yield figure("journalist risk", 1 / smallest, 1 / rows, (0.0, 1 / smallest))
    yield figure("marketer risk", mean, 1 / rows, classes=len(view.sizes), rows=rows)
    # How many records are in classes with only one value of a sensitive or generalised column.
    for name in view.sensitive:
        sizes, codes = np.bincount(view.class_id), sensitive_codes(view, name)
        alike = Occurrences.of(view.class_id, codes, len(sizes)).distinct == 1
        share, chance = float(sizes[alike].sum() / sizes.sum()), homogeneous_by_chance(sizes, np.bincount(codes))
        yield figure("homogeneity ({column})", share, chance, column=name, one=f"value of {name}", what=name, more="")
    for axis, attribute in enumerate(view.attributes):
        points, more = attribute.lower == attribute.upper, ""
        if view.multisets:
            value_counts = np.unique(view.members[axis], return_counts=True)[1]
        else:  # as far as the release shows
            _, of_value = np.unique(attribute.lower[points], return_inverse=True)
            value_counts = np.bincount(of_value.reshape(-1), weights=view.sizes[points]).astype(np.int64)
            more = "" if points.all() else words("homogeneity at least")
        share = float(view.sizes[points].sum() / view.sizes.sum())
        chance, name = homogeneous_by_chance(view.sizes, value_counts), attribute.name
        yield figure("homogeneity ({column})", share, chance, column=name, one=name, what=f"exact {name}", more=more)
    for axis, name in enumerate(view.names) if view.multisets else ():
        values = view.members[axis]
        share = best_window(values, view.class_of_member, 0.0)
        chance = best_window(values, np.zeros(len(values), dtype=np.int64), 0.0)
        yield figure("value linkage, exact ({column})", share, chance, column=name, **view.remedies)
    for attribute in view.attributes:  # the most frequent label of each class, and of all records
        if (listing := attribute.listing) is None or listing.counts is None:
            continue
        most = np.zeros(len(view.sizes))
        np.maximum.at(most, listing.of_class, listing.counts)
        often = np.bincount(listing.places.astype(np.int64), listing.counts)
        share, chance = float(most.sum() / rows), float(often.max() / rows)
        yield figure("value linkage, exact ({column})", share, chance, column=attribute.name, **view.remedies)
    tell("searching for values that are certainly absent")
    for axis in range(len(view.attributes)):
        yield _certain_absence(view, axis)
    if view.clustered:  # the loss of clusters is measured by their own distances
        return
    # Recompute the loss of eq. 7 for each record; a suppressed one costs alpha.
    alpha, suppressed = float(view.mechanism.price_of_suppression), view.release.certificate.rows.num_suppressed
    losses = {}
    for item in view.attributes:
        wide = math.fsum((view.sizes * (item.upper - item.lower)).tolist()) / item.span
        losses[item.name] = (wide + alpha * suppressed) / (rows + suppressed)
    weights = view.mechanism.weights(view.release)
    total = sum(weights[name] * loss for name, loss in losses.items()) / sum(weights.values())
    protects = view.release.certificate.guarantee.protects
    counting = words("released alone") if view.sampled else words("suppressed at", record=protects, alpha=alpha)
    details = {"attributes": losses, "alpha": alpha, "suppressed": suppressed}
    yield figure("total distortion", total, 1.0, None, details, counting=counting)
    for name, loss in losses.items() if len(losses) > 1 else ():
        yield figure("distortion ({column})", loss, 1.0, column=name)


def _grid(attribute: ClassAttribute) -> Numeric | None:
    """Return the grid to probe: all labels, the public grid, or the decimals that the release shows."""
    domain, members = attribute.numeric, attribute.members
    if domain is None:
        return Numeric(lower=0, upper=int(attribute.span), resolution=1)
    shown = np.concatenate([attribute.lower, attribute.upper, members if members is not None else []])
    if domain.resolution is not None and domain.on_grid(shown).all():
        return domain
    scale = decimal_scale(shown)  # values may be finer than the public grid
    if scale is None:
        return None
    try:
        return Numeric(lower=domain.lower, upper=domain.upper, resolution=Fraction(1, scale), unit=domain.unit)
    except ParameterError:  # the domain's own bounds have more decimals
        return None


def _certain_absence(view: ClassesView, axis: int) -> KeyFigure:
    """Count the values that the release rules out for someone who also knows the public values."""
    attribute, stated, strata_of_class = view.attributes[axis], view.release.certificate, view.public.of_class
    grid, num_strata = _grid(attribute), int(strata_of_class.max()) + 1
    points = grid.num_steps + 1 if grid is not None else MAX_PROBES + 1
    rows = np.bincount(strata_of_class, weights=view.sizes)
    complete = points * num_strata <= MAX_PROBES
    if complete and grid is not None:  # all values of the grid in every stratum
        values = np.tile(grid.grid_values(np.arange(points)), num_strata)
        stratum = np.repeat(np.arange(num_strata), points)
        weight = (rows / rows.sum() / points)[stratum]
    else:
        # Strata in proportion to their rows, and values by the golden ratio: even in both, whatever their numbers.
        index = np.arange(MAX_PROBES)
        stratum = np.searchsorted(np.cumsum(rows), (index + 0.5) * rows.sum() / MAX_PROBES)
        place = np.mod(index * _GOLDEN, 1.0)
        steps = np.minimum((place * points).astype(np.int64), points - 1)
        low = attribute.numeric.lower_float if attribute.numeric is not None else 0.0
        values = grid.grid_values(steps) if grid is not None else np.asarray(low + place * attribute.span)
        weight = np.full(MAX_PROBES, 1 / MAX_PROBES)
    about = Knowledge.of_axes(stratum, [axis], values[None], len(view.attributes))
    absent = record_linkage(view, about).rows == 0
    share = float(min(weight[absent].sum(), 1.0))
    hidden = stated.rows.num_suppressed > 0 or any("left out" in item for item in stated.in_clear)
    elsewhere = "elsewhere: suppressed" if hidden else "elsewhere: nowhere"
    if view.sampled:
        elsewhere = "elsewhere: noisy" if view.release.noisy else "elsewhere: not sampled"
    facts = {"column": attribute.name, "in_class": " in a class" if view.release.noisy else ""}
    facts["among"] = words("all values" if complete else "values", num=points, column=attribute.name)
    facts["elsewhere"] = words(elsewhere)
    interval = (share, share) if complete else wilson(share * len(absent), len(absent))
    details = {"values": points, "every_value_tried": complete}
    return figure("certain absence ({column})", share, 0.0, interval, details, **facts, **view.remedies)


# Figures that take the truth


def settled(mean: float, numbers: FloatArray) -> float:
    """Return the mean; equal numbers have exactly themselves as their mean, without rounding."""
    low, high = float(numbers.min()), float(numbers.max())
    return low if low == high else mean


def truth_figures(
    truth: ClassesTruth, tolerance: float | None, tell: Progress
) -> tuple[list[KeyFigure], list[RecordAtRisk]]:
    """Attack every released record; return the figures and the records most at risk."""
    tell("linking records")
    view = truth.view
    exactly = record_linkage(view, truth.known)
    figures = [*_record_figures(truth, exactly, "", "exactly")]
    if tolerance is not None:
        tell("linking records by roughly known values")
        rough = record_linkage(view, Knowledge.of_records(view, truth.data, tolerance))
        within = f"within {percent(tolerance)}"
        figures += _record_figures(truth, rough, f", {within}", within)
    guesses = {}
    for name in view.sensitive:
        tell(f"guessing {name}")
        guesses[name] = attribute_linkage(view, truth.known, name)
        probability, codes = guesses[name][truth.released], sensitive_codes(view, name)
        baseline = float(np.bincount(codes).max() / len(codes))
        mean = settled(math.fsum(probability.tolist()) / len(probability), probability)
        certain = float((probability == 1).mean())
        figures.append(figure("attribute linkage ({column})", mean, baseline, None, {"certain": certain}, column=name))
        worst, facts = float(probability.max()), {"column": name, "certain": certain}
        figures.append(figure("attribute linkage, worst ({column})", worst, baseline, **facts))
    if truth.certain:
        figures += [_value_guess(truth, axis) for axis, item in enumerate(view.attributes) if item.numeric is not None]
    present = float(shown_values(view, truth.known)[truth.released].mean())
    figures.append(figure("certain presence (value)", present, 0.0, names=" and ".join(view.names), **view.remedies))
    # Most at risk are the records that are easiest to name, then those with the value that is easiest to guess.
    records = np.flatnonzero(truth.released)
    worst_guess = np.max([guess[records] for guess in guesses.values()] or [np.zeros(len(records))], axis=0)
    source = truth.data.source_rows
    order = np.lexsort((source[records], -worst_guess, -exactly.probability[records]))[: findings.MAX_AT_RISK]
    return figures, [
        RecordAtRisk(
            source_row=int(source[number]),
            record_linkage=float(exactly.probability[number]),
            rows=int(exactly.rows[number]),
            attribute_linkage={name: float(guess[number]) for name, guess in guesses.items()},
        )
        for number in records[order].tolist()
    ]


def _record_figures(truth: ClassesTruth, linkage: RecordLinkage, how: str, known: str) -> Iterator[KeyFigure]:
    probability, rows = linkage.probability[truth.released], linkage.rows[truth.released]
    mean, worst = math.fsum(probability.tolist()) / len(probability), float(probability.max())
    values = " and ".join([*(["the public values"] if truth.view.public.columns else []), *truth.view.names])
    blind, details = 1 / len(truth.view.release), {"mean_rows": float(rows.mean()), "fewest_rows": int(rows.min())}
    mean, many = settled(mean, probability), {"num": int((probability == worst).sum()), "in_all": len(probability)}
    yield figure("record linkage{how}", mean, blind, None, details, how=how, values=values, known=known)
    yield figure("record linkage{how}, worst", worst, blind, how=how, **many)


def _value_guess(truth: ClassesTruth, axis: int) -> KeyFigure:
    """Guess a number from the class alone, to within one per cent of the domain."""
    view, attribute = truth.view, truth.view.attributes[axis]
    values, class_id = truth.known.low[axis, truth.released], truth.of_record[truth.released]
    reach = GUESS_REACH * attribute.span
    if view.multisets:
        share, guess = best_window(view.members[axis], view.class_of_member, reach), "best value of its multiset"
    else:
        guesses, guess = (attribute.lower + attribute.upper) / 2, "middle of its interval"
        if attribute.means is not None:
            guesses, guess = attribute.means, "mean of its class"
        share = float(np.mean(np.abs(values - guesses[class_id]) <= reach * (1 + _ROUNDING)))
    chance = best_window(values, np.zeros(len(values), dtype=np.int64), reach)
    # Nobody has to guess by the class: knowing how values are spread, the attacker does no worse than without it.
    better, details = words("better without") if share < chance else "", {"reach": reach, "by_class": share}
    facts = {"column": attribute.name, "guess": guess, "within": with_unit(reach, attribute.unit), "better": better}
    return figure("value linkage ({column})", max(share, chance), chance, None, details, **facts, **view.remedies)


def population_figures(truth: ClassesTruth, population: Dataset) -> list[KeyFigure]:
    """Compute the journalist's risk, and who of a population is certainly in the release (delta-presence)."""
    sizes = truth.view.sizes
    counts = populations(truth.view, Knowledge.of_records(truth.view, population))
    if (counts < sizes).any():
        raise ParameterError(
            "the population has fewer records of some class than the release. Give everyone the records come from, "
            "including those released."
        )
    shares, fewest = sizes / counts, int(counts.min())
    mean, certain = float(shares.sum() / sizes.sum()), float(sizes[shares == 1].sum() / sizes.sum())
    prior, journalist = len(truth.view.release) / len(population), "journalist risk | population"
    return [
        figure(journalist, 1 / fewest, 1 / int(counts.sum()), None, {"mean": mean}, fewest=fewest),
        figure("presence, worst", float(shares.max()), prior, None, {"certain": certain}),
    ]


# Other releases of the same records


class Correspondence(NamedTuple):
    """What two releases together reveal about the records that are in both."""

    shared: IntArray  # For each common record: how many common records share both its classes
    alone: IntArray  # For each: the size of its class in the first release
    first: IntArray  # first, second: class of each in either release
    second: IntArray
    records: tuple[IntArray, IntArray]  # Which record of the first data each is, and which of the second

    @classmethod
    def of(cls, one: ClassesTruth, other: ClassesTruth) -> Correspondence:
        matched = match_records(one.data, other.data)
        first, second = one.of_record[matched[0]], other.of_record[matched[1]]
        both = (first >= 0) & (second >= 0)
        first, second = first[both], second[both]
        pairs = first * (len(other.view.sizes) + 1) + second
        _, place, times = np.unique(pairs, return_inverse=True, return_counts=True)
        records = matched[0][both], matched[1][both]
        return cls(times[place.reshape(-1)], one.view.sizes[first], first, second, records)


def match_records(one: Dataset, other: Dataset) -> tuple[IntArray, IntArray]:
    """Match the records that are in both datasets, by a common identifier, or by row if the rows are the same."""

    def identifying(data: Dataset) -> list[str]:
        together = data.schema.together  # where rows are merged, the column they share
        return [a.name for a in data.schema.identifiers] if together is None else [together]

    shared = [name for name in identifying(one) if name in identifying(other)]
    if not shared:
        _, first, second = np.intersect1d(one.source_rows, other.source_rows, return_indices=True)
        names = {a.name for a in one.schema.quasi_identifiers} & {a.name for a in other.schema.quasi_identifiers}
        same = [one.column(name).take(first).equals(other.column(name).take(second)) for name in names]
        if not same or not all(same):
            raise ParameterError(
                "the records of two releases need an identifier in common. These two datasets have none, and their "
                "rows differ. Declare the identifier in both policies."
            )
        return first, second
    columns = [[data.column(name).cast(pa.string()) for name in shared] for data in (one, other)]
    left, right = (pc.binary_join_element_wise(*parts, "\x1f") for parts in columns)
    if any(len(column.unique()) < len(column) for column in (left, right)):
        raise ParameterError(
            f"the identifier {', '.join(shared)} occurs more than once, so the records of two releases cannot be "
            "matched. Give each record its own."
        )
    place = positions(left, right)
    in_both = np.flatnonzero(place >= 0)
    return in_both, place[in_both]


class ValuesLeft(NamedTuple):
    """For each common record, of one column: the values in both its classes, and those in its first class."""

    by_both: IntArray
    by_first: IntArray

    @classmethod
    def of(cls, tables: tuple[pa.Table, pa.Table], name: str, common: Correspondence) -> ValuesLeft:
        columns = [table.column(name).combine_chunks().cast(pa.string()) for table in tables]
        labels, cells = pa.concat_arrays(columns).unique(), []
        for table, column in zip(tables, columns, strict=True):  # numbered alike in both
            class_id = table.column("class_id").to_numpy()
            cells.append(Occurrences.of(class_id, positions(column, labels), int(class_id.max()) + 1))
        first, second = cells
        width = int(max(first.values.max(), second.values.max())) + 1
        known = np.repeat(np.arange(len(second.starts) - 1), second.distinct) * width + second.values
        pairs, place = np.unique(np.stack([common.first, common.second]), axis=1, return_inverse=True)
        pair, line = first.expand(pairs[0])
        wanted = pairs[1][pair] * width + first.values[line]
        at = np.searchsorted(known, wanted).clip(max=len(known) - 1)
        left = np.bincount(pair[known[at] == wanted], minlength=pairs.shape[1])[place.reshape(-1)]
        return cls(left.astype(np.int64), first.distinct[common.first])


def correspondence_figures(truth: ClassesTruth, other: ClassesTruth, number: int) -> tuple[list[KeyFigure], list[str]]:
    """Compute what two releases reveal together; return figures, and notes on what could not be computed."""
    if not (truth.certain and other.certain):
        return [], [words("classes not certain")]
    common = Correspondence.of(truth, other)
    if not len(common.shared):
        return [], [words("no record in both")]
    label = "correspondence" if number == 1 else f"correspondence {number}"
    fewest, fewest_alone = int(common.shared.min()), int(common.alone.min())
    chances, alone = 1 / common.shared, 1 / common.alone
    mean, single, num = float(chances.mean()), float(alone.mean()), len(common.shared)
    mean, single = settled(mean, chances), settled(single, alone)
    figures = [
        figure("{label}", mean, single, None, {"in_both": num, "fewest_alike": fewest}, label=label),
        figure("{label}, worst", 1 / fewest, 1 / fewest_alone, label=label, fewest=fewest, fewest_alone=fewest_alone),
    ]

    def one_value_left(name: str, tables: tuple[pa.Table, pa.Table]) -> KeyFigure:
        left = ValuesLeft.of(tables, name, common)
        share, by_first = (float((values == 1).mean()) for values in left)
        return figure("{label}, one value left ({column})", share, by_first, label=label, column=name)

    rows = truth.view.release.data, other.view.release.data
    members = truth.view.release.members, other.view.release.members
    for name in sorted(set(truth.view.sensitive) & set(other.view.sensitive)):
        figures.append(one_value_left(name, rows))
    for item in truth.view.attributes:
        twin = next((each for each in other.view.attributes if each.name == item.name), None)
        if twin is not None and members[0] is not None and members[1] is not None:
            figures.append(one_value_left(item.name, (members[0], members[1])))
        elif twin is not None and item.numeric is not None and twin.numeric is not None:
            # How wide an interval both releases leave for a number that did not change.
            lower = np.maximum(item.lower[common.first], twin.lower[common.second])
            upper = np.minimum(item.upper[common.first], twin.upper[common.second])
            width = float(np.maximum(upper - lower, 0.0).mean())
            by_one = float((item.upper - item.lower)[common.first].mean())
            wide, wide_alone = with_unit(width, item.unit), with_unit(by_one, item.unit)
            facts = {"label": label, "column": item.name, "unit": item.unit, "wide": wide, "wide_alone": wide_alone}
            figures.append(figure("{label}, width ({column})", width, by_one, **facts))
    return figures, []


# A secret sample


def _sampling(view: ClassesView) -> tuple[Fraction, int]:
    """Return the sampling rate and the fewest rows of a class, as the release states them."""
    stated = view.release.certificate
    assert isinstance(stated.guarantee, SampledDP)
    return stated.guarantee.beta, stated.rows.k_asked or 1


def sample_figures(view: ClassesView) -> Iterator[KeyFigure]:
    """Compute how likely a row is named before the release is seen (at most by eq. 25), and given the class."""
    (rate, k), rows = _sampling(view), int(view.sizes.sum())
    beta, bound = float(rate), float(rate / k)
    if not view.release.noisy:  # if the others are released with noise, not being sampled hides nobody
        details = {"beta": beta, "k": k, "k_anonymous": 1 / k}
        yield figure("identification before release", bound, beta / rows if rows else 0.0, (0.0, bound), details)
    if rows:
        details, mean, worst = {"k": k, "k_anonymous": 1 / k}, len(view.sizes) / rows, 1 / int(view.sizes.min())
        for name, value, how in (("", mean, "on average"), (", worst", worst, "at worst")):
            yield figure("identification given the class{worst}", value, 1 / rows, None, details, worst=name, how=how)


def sampled_again(view: ClassesView, data: Dataset, key: Key | None, noise: Noise | None = None) -> Iterator[KeyFigure]:
    """Take the sample again at the released levels, and count the records in classes; private."""
    (beta, k), kept = _sampling(view), int(view.sizes.sum())
    if not view.release.noisy:
        yield _simulated(groups_at_levels(view, data), beta, k, noise or Noise())
    if key is not None:
        facts = {name: value for name, value in key.facts.items() if type(value) is int}
        left = ", ".join(f"{facts[name]:,} {name}" for name in sorted(facts))
        details = {**facts, "records": len(data), "in_classes": kept}
        left = f" ({left})" if left else ""
        yield figure("records in classes", kept / len(data), float(beta), None, details, left=left)


def groups_at_levels(view: ClassesView, data: Dataset) -> IntArray:
    """Give records that look alike at the released levels, with the same public values, the same number from 0 on."""
    levels = view.release.certificate.rows.levels or {}
    if set(levels) != set(view.names):
        raise ParameterError("the release does not state a level for each attribute. Verify the release.")
    records = Records.of_dataset(data, {item.name: hierarchy_of(item.domain) for item in view.attributes})
    keys, _ = records.keys(tuple(levels[name] for name in view.names), np.arange(len(records.counts)))
    return np.unique(keys, return_inverse=True)[1].reshape(-1)[records.of_row]


def named_before(sizes: IntArray, beta: Fraction, k: int) -> float:
    """Return how likely a row is named before the release is seen, at fixed levels, on average over records."""
    from scipy.special import bdtrc

    # A class of m records is released with j of them if j >= k are sampled; on average one of the j is named right.
    # So as many of all n records are named right as classes are released: the sum of P(Bin(m, beta) >= k), over n.
    return float(np.sum(np.where(sizes >= k, bdtrc(k - 1, np.maximum(sizes, k), float(beta)), 0.0)) / sizes.sum())


def _simulated(group: IntArray, beta: Fraction, k: int, noise: Noise) -> KeyFigure:
    num = len(group)
    draws = min(MAX_DRAWS, max(MIN_DRAWS, MAX_DRAWN // num))
    named, kept = np.zeros(draws), np.zeros(draws)
    for number in range(draws):
        sizes = np.bincount(group[noise_arrays.bernoulli(noise, beta, num)])
        large = sizes[sizes >= k]
        # In a class of j rows each record is named right with probability 1/j: one of them on average.
        named[number], kept[number] = len(large), large.sum()
    value = float(named.mean() / num)
    reach = findings.NORMAL_REACH * float(named.std(ddof=1)) / math.sqrt(draws) / num
    if named.min() == named.max():
        # Equal draws do not show their spread: with 95 % confidence, at most a share of log(20) / draws differ from
        # them, and no draw has more rows named than there are groups.
        furthest = max(float(named[0]), len(np.unique(group)) - float(named[0]))
        reach = -math.log(1 - findings.CONFIDENCE) / draws * furthest / num
    interval = (max(0.0, value - reach), min(1.0, value + reach)) if named.any() else wilson(0, draws * num)
    computed, given = named_before(np.bincount(group), beta, k), float(named.sum() / kept.sum()) if kept.sum() else 0.0
    details = {"draws": draws, "computed": computed, "bound": float(beta / k), "given_release": given}
    return figure("identification by simulation | sample", value, 1 / num, interval, details)
