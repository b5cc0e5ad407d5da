# SPDX-License-Identifier: Apache-2.0
"""What an attacker sees of a release of classes, class by class, and what he knows of the records he looks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import FloatArray, IntArray
from dunnage.domains import Domain, Numeric, Tree, domain_from
from dunnage.errors import CheckFailed, ParameterError, ReleaseError
from dunnage.guarantees import SampledDP
from dunnage.measures import DISTORTION_METRIC
from dunnage.mechanisms.classes import ClassRelease, released_column
from dunnage.release import Release
from dunnage.tables.columns import is_set
from dunnage.tables.dataset import Dataset
from dunnage.verification import mechanism_of

OTHER_ROWS = "the release was not made from these rows. Give the data exactly as they were published."
NEITHER = (
    "linkage is audited on classes of rows and on noisy rows. This release promises {} and has neither. Audit one that "
    "has."
)


# What the attacker sees


@dataclass(frozen=True, eq=False)
class PublicValues:
    """Numbers for the combinations of public values that a release has."""

    # Per public column its name, its values, and which combinations with those before it occur
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
        """Return the number of each combination, -1 where the release has none such."""
        codes, found = np.zeros(num, dtype=np.int64), np.ones(num, dtype=bool)
        for name, values, present in self.columns:
            position = positions(_comparable(given[name]), values)
            if not len(present):
                return np.full(num, -1)
            raw = codes * len(values) + position
            codes = np.searchsorted(present, raw).clip(max=len(present) - 1)
            found &= (position >= 0) & (present[codes] == raw)
        return np.where(found, codes, -1)

    def of_records(self, release: Release, data: Dataset, others: Sequence[str]) -> IntArray:
        """Return the number of each record's combination, -1 where the release has none such; others must be there."""
        columns, public = {attribute.name for attribute in data.schema}, [name for name, *_ in self.columns]
        lacking = [name for name in (*public, *others) if name not in columns]
        if lacking:
            raise ReleaseError(f"the data have no column {', '.join(lacking)}. Give the data that were published.")
        given = {}
        for name in public:
            try:
                given[name] = released_column(data, name).cast(release.data.schema.field(name).type)
            except pa.ArrowException:  # its text may quote cells
                raise ReleaseError(
                    f"column {name!r} of the data is not of the type that was released. Give the data that were "
                    "published."
                ) from None
        return self.look_up(given, len(data))


def names_of_role(release: Release, role: str) -> list[str]:
    return [name for name, item in release.attributes.items() if item.role == role]


def _comparable(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()) if pa.types.is_decimal(column.type) else column


def positions(column: pa.Array, values: pa.Array) -> IntArray:
    """Return where each cell stands among the values, -1 if it does not."""
    found: IntArray = pc.fill_null(pc.index_in(column, value_set=values), -1).to_numpy(zero_copy_only=False)
    return found.astype(np.int64)


class Listing(NamedTuple):
    """The labels of each class's set, one after the other, by class."""

    places: FloatArray  # Place of each label among those of the domain, in order within a class
    of_class: IntArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Told:
    """One generalised attribute as numbers, class by class; a label is its place among the labels of its domain.

    A node of a hierarchy covers neighbouring leaves, so that it is an interval of places. A set of labels lies between
    its first and last place, and is listed besides.
    """

    name: str  # name, domain: the attribute and its public domain
    domain: Domain
    lower: FloatArray  # lower, upper: closed bounds of each class
    upper: FloatArray
    means: FloatArray | None  # Mean of each class, where it was released
    members: FloatArray | None  # Values of the members by class, where multisets were released
    own_bounds: bool  # Whether bounds are the class's own smallest and largest value
    listing: Listing | None = None  # The labels of each class, where sets were released: no other occurs in it

    @property
    def numeric(self) -> Numeric | None:
        return self.domain if isinstance(self.domain, Numeric) else None

    @property
    def span(self) -> float:
        """Width of the whole domain, on the scale of the bounds."""
        if isinstance(self.domain, Numeric):
            return self.domain.span
        return max(1.0, self.num_labels - 1.0)

    @property
    def num_labels(self) -> int:
        return len(getattr(self.domain, "labels", ()))

    def numbers(self, column: pa.Array) -> FloatArray:
        return _numbers(self.domain, column)

    @classmethod
    def of(cls, release: Release, name: str, bounds: str) -> Told:
        classes, domain = release.classes, domain_from(release.attributes[name].domain or {})
        assert classes is not None
        means, own, listing = None, False, None
        if isinstance(domain, Numeric) and f"{name}_lower" in classes.column_names:
            lower, upper = (_numbers(domain, classes[f"{name}_{end}"].combine_chunks()) for end in ("lower", "upper"))
            if f"{name}_mean" in classes.column_names:
                means = _numbers(domain, classes[f"{name}_mean"].combine_chunks())
            own = bounds == "class"
            if bounds == "level":
                # Its public rule: a border belongs to the interval above it.
                open_end = (lower < upper) & (upper < domain.upper_float)
                upper = np.where(open_end, np.nextafter(upper, -np.inf), upper)
        elif name in classes.column_names and classes.schema.field(name).type == pa.string():
            # The first and last leaf below each node, by place; any node of no hierarchy is the whole domain.
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
                raise ReleaseError(
                    "a class has an empty set, or a label that is not in the domain. Verify the release."
                )
            of_class, ends = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts)
            places = places[np.lexsort((places, of_class))]
            listing, lower, upper = Listing(places, of_class), places[ends - counts], places[ends - 1]
        else:
            raise ParameterError(
                f"this version audits numbers, nodes of hierarchies and sets. Attribute {name!r} was released as none."
            )
        members = None if release.members is None else _numbers(domain, release.members.column(name).combine_chunks())
        return cls(
            name=name,
            domain=domain,
            lower=lower,
            upper=upper,
            means=means,
            members=members,
            own_bounds=own,
            listing=listing,
        )


def _numbers(domain: Domain, column: pa.Array) -> FloatArray:
    if isinstance(domain, Numeric):
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    place = pc.index_in(column.cast(pa.string()), value_set=pa.array(getattr(domain, "labels", ()), pa.string()))
    # A label that the domain has not stands outside every interval.
    return np.asarray(pc.fill_null(place, -1).to_numpy(zero_copy_only=False), dtype=np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Sight:
    """A release of classes as an attacker reads it, one line a class."""

    release: Release
    mechanism: ClassRelease  # What made it
    sizes: IntArray  # Rows of each class
    told: tuple[Told, ...]  # Its generalised attributes
    public: PublicValues

    @classmethod
    def of(cls, release: Release) -> Sight:
        names = names_of_role(release, "quasi-identifier")
        if release.classes is None or not names:
            raise ParameterError(NEITHER.format(release.certificate.guarantee.model))
        try:
            mechanism = mechanism_of(release.certificate)
        except CheckFailed as failure:
            raise ReleaseError(f"the release does not say how its classes were made: {failure}. Verify it.") from None
        if not isinstance(mechanism, ClassRelease):
            raise ParameterError(NEITHER.format(release.certificate.guarantee.model))
        class_id = release.data.column("class_id").to_numpy()
        in_class = np.flatnonzero(class_id >= 0)  # noisy rows are in none
        return cls(
            release=release,
            mechanism=mechanism,
            sizes=release.classes.column("size").to_numpy().astype(np.int64),
            told=tuple(Told.of(release, name, mechanism.class_bounds) for name in names),
            public=PublicValues.of(release, in_class[np.unique(class_id[in_class], return_index=True)[1]]),
        )

    @property
    def sampled(self) -> bool:
        """Whether it is of a secret sample, so that a record may be missing by chance."""
        return isinstance(self.release.certificate.guarantee, SampledDP)

    @property
    def protects(self) -> str:
        return self.release.certificate.guarantee.protects

    @property
    def clustered(self) -> bool:
        """Whether the classes are clusters of records that are near each other, told by sets, nodes and intervals."""
        return self.mechanism.metric == DISTORTION_METRIC

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(told.name for told in self.told)

    @property
    def multisets(self) -> bool:
        return self.release.members is not None

    @property
    def statistic(self) -> str:
        """What is told about a class: ``bounds``, ``mean``, ``multiset`` or, of clusters, ``values``."""
        if self.clustered:
            return "values"
        has_means = any(told.means is not None for told in self.told)
        return "multiset" if self.multisets else "mean" if has_means else "bounds"

    @cached_property
    def members(self) -> FloatArray:
        """The listed values by class, those of the first attribute in order. Shape: attributes, rows."""
        if self.release.members is None:
            raise ParameterError("the release has no multisets. Look at bounds.")
        values = np.array([told.members for told in self.told])
        return values[:, np.lexsort((values[0], self.release.members.column("class_id").to_numpy()))]

    @cached_property
    def class_of_member(self) -> IntArray:
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @property
    def sensitive(self) -> list[str]:
        return names_of_role(self.release, "sensitive")


# What the attacker knows


@dataclass(frozen=True, eq=False, kw_only=True)
class Known:
    """What an attacker knows of some records."""

    stratum: IntArray  # Number of their combination of public values, -1 if the release has none such
    # low, high: within what each generalised value lies; equal if it is known exactly. Shape: attributes, records
    low: FloatArray
    high: FloatArray

    def __len__(self) -> int:
        return len(self.stratum)

    @classmethod
    def of_values(cls, sight: Sight, stratum: IntArray, values: FloatArray, tolerance: float = 0.0) -> Known:
        """Know values exactly, or numbers within a share of each on either side. Shape of values: attributes, records.

        A label is known or not: the tolerance is for numbers.
        """
        shares = np.array([[tolerance if told.numeric is not None else 0.0] for told in sight.told])
        reach = shares * np.abs(values)
        return cls(stratum=stratum, low=values - reach, high=values + reach)

    @classmethod
    def of_records(cls, sight: Sight, data: Dataset, tolerance: float = 0.0) -> Known:
        stratum = sight.public.of_records(sight.release, data, sight.names)
        try:
            values = np.array([told.numbers(data.column(told.name)) for told in sight.told])
        except (pa.ArrowException, ValueError):
            raise ReleaseError("a column is not of the kind that was released. Give its policy and data.") from None
        return cls.of_values(sight, stratum, values, tolerance)
