# SPDX-License-Identifier: Apache-2.0
"""Counts of trips or other records: features, shares of epsilon, and three mechanisms that release noisy counts.

Every public column is a function of the pair (origin, destination) or of the slot (day, window), so every feature is a
product: a class of pairs and a class of slots. Cells in the same group of every feature form a *join group*, and all
features together only say which join group a cell is in. In a table of categories all columns are functions of the
"pair", a tuple of labels. The proofs are in ``docs/proofs/noisy-counts.md`` and
``docs/proofs/constrained-counts.md``.
"""

from __future__ import annotations

import abc
import hmac
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator, model_validator

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import ParameterError, Problem
from dunnage.exact import decimal_text, exact, plain, shown
from dunnage.kernels.counts.laplace import (
    CountLaw,
    DiscreteLaplace,
    FloatingLaplace,
    FlooredLaplace,
    RoundedLaplace,
    addresses,
    exceeding_cells,
    surplus,
)
from dunnage.kernels.counts.projection import Family, ListedCells, project
from dunnage.kernels.counts.tables import (
    Margin,
    consistent_tree,
    project_estimates,
    project_lazily,
    project_table,
    round_tree,
)
from dunnage.mechanisms.base import (
    Epsilon,
    Flag,
    Foresight,
    Mechanism,
    Outcome,
    Pairs,
    Progress,
    label_codes,
    plain_pairs,
)
from dunnage.model.categories import Categories
from dunnage.model.certificate import (
    Correction,
    CountMeasures,
    CountNoise,
    FeatureNoise,
    StatedContribution,
    TripLoss,
)
from dunnage.model.city import City
from dunnage.model.guarantees import (
    BOUNDED_CONTRIBUTION,
    CHECKED_FILE,
    EPSILON_PER_RECORD,
    EPSILON_PER_TRIP,
    KEYED_CHOICE,
    PUBLIC_DOMAIN,
    PUBLIC_FEATURES,
    SYSTEM_ENTROPY,
    Basis,
    ConcentratedDP,
    Neighbours,
    Promise,
    PureDP,
)
from dunnage.model.schema import RIDER, TRIP, Contribution, Schema
from dunnage.model.trips import (
    COLUMNS,
    END_COLUMNS,
    PAIR_COLUMNS,
    Grouping,
    Level,
    ProductClasses,
    Universe,
    is_nested,
    known_columns,
)
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.priorities import KEY_BYTES, priorities
from dunnage.noise.source import Noise
from dunnage.release.kinds import CELLS, DROPPED, require, same
from dunnage.tables.columns import Private
from dunnage.text import number_text, plural, several

if TYPE_CHECKING:
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

NUMERICS = (
    "the noise is exact, in whole trips, from system entropy; everything after it sees nothing but the noisy counts"
)
FLOATING = "the noise is in floating point: its last digits reveal which counts it may have been added to"
MAX_DENSE_CELLS = 1 << 22  # up to this size every cell gets noise; beyond it, only the cells where it can matter

MAX_TRIPS = 2**52  # that a table can hold: each type counts up to its part, so that all sums with noise are exact
_MAX_DENOMINATOR = 10**9
_SHARE_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Counted(Private):
    universe: Universe  # all possible types
    cells: IntArray  # types with at least one trip, rising
    counts: IntArray  # the number of trips of each

    @property
    def num_trips(self) -> int:
        return int(self.counts.sum())

    def keyed_digest(self, key: bytes) -> str:
        """Return a digest of the counts that only the owner of the key can compute."""
        return hmac.digest(key, b"counts\0" + self.cells.tobytes() + self.counts.tobytes(), "sha256").hex()


def true_counts(dataset: Dataset, *, rows: BoolArray | None = None, level: Level | None = None) -> Counted:
    universe, trip = dataset.schema.universe(dataset.period, level=level), dataset.schema.trip
    weights: NDArray[Any] | None = None
    if dataset.elsewhere and level in (None, dataset.schema.level):  # they were counted where they live
        cells, weights = dataset.folded
    else:
        cells = record_cells(dataset, universe)
        if trip is not None and trip.count is not None:  # a row stands for several trips
            weights = dataset.numbers(trip.count)  # the dataset has checked that they are whole
    if rows is not None:
        cells, weights = cells[rows], None if weights is None else weights[rows]
    if universe.num_cells <= max(MAX_DENSE_CELLS, 2 * len(cells)):  # a table of all cells is the fastest way to count
        sums: NDArray[Any] = np.bincount(cells, weights, minlength=universe.num_cells)
        occupied = np.flatnonzero(sums)
        sums = sums[occupied]
    else:
        order = np.argsort(cells, kind="stable")
        occupied, starts = np.unique(cells[order], return_index=True)
        each = np.ones(len(cells)) if weights is None else weights[order]
        sums = np.add.reduceat(each, starts) if len(starts) else np.zeros(0)
        occupied, sums = occupied[sums > 0], sums[sums > 0]
    # Sums up to the limit are exact. It moves no count by more than one trip does, and refuses nothing because of rows.
    counts = np.minimum(sums, max(1, MAX_TRIPS // universe.num_cells)).astype(np.int64)
    return Counted(universe=universe, cells=occupied, counts=counts)


def record_cells(dataset: Dataset, universe: Universe) -> IntArray:
    """Return the cell of each trip or, in a table of categories, of each record."""
    if (trip := dataset.schema.trip) is None:
        assert isinstance(universe, Categories)
        return universe.cells_of({name: label_codes(dataset, name, own) for name, own in universe.domains.items()})
    time = dataset.schema.time
    slots = time.slots(dataset.column(trip.time).to_numpy(zero_copy_only=False), dataset.period)
    if trip.day is not None:
        slots += label_codes(dataset, trip.day) * len(universe.windows)
    ends = [label_codes(dataset, name) for name in (trip.origin, trip.destination) if name is not None]
    if universe.level == "zone":
        assert dataset.schema.city is not None  # the schema has checked that every stop has a zone
        assert dataset.schema.city.zones is not None
        ends = [dataset.schema.city.zones.astype(np.int64)[end] for end in ends]
    return universe.cells(ends[0], ends[1] if universe.arrives else 0, slots)


def most_trips(schema: Schema, period: str | None) -> int | None:
    """Return the largest number of trips of one rider that a release counts; None if there is no limit."""
    if (bound := schema.contribution) is None:
        return None
    dates = schema.time.calendar(period) if bound.per == "day" else range(1)
    if dates is None:
        raise ParameterError(
            'per = "day" needs the number of days, to bound what one rider can change in total. The policy does not '
            'state it. Add [period], or dates such as dates = ["2026-11-01", "2026-11-30"].'
        )
    most = bound.max * len(dates)
    if bound.total_max is not None and bound.total_max <= most:
        raise ParameterError(
            f"total_max in [contribution] must be above the {several(most, 'trip')} of one rider that are counted. Got "
            f"{bound.total_max}. Try {4 * most}, or leave it out."
        )
    return most


def kept_rows(dataset: Dataset, noise: Noise) -> BoolArray:
    """Choose the trips to count: at most ``max`` of each rider (and day, if so stated), all equally likely."""
    bound, riders, groups = dataset.schema.contribution, dataset.persons, dataset.trip_groups
    if bound is None or riders is None or groups is None:
        raise ParameterError("the policy does not limit the trips of a rider. Add [contribution] max.")
    cells = None if bound.per_cell is None else record_cells(dataset, dataset.schema.universe(dataset.period))
    return keep_few(noise.draw_bytes(KEY_BYTES), bound, dataset.source_rows, riders, groups, cells)


def keep_few(
    key: bytes, bound: Contribution, rows: IntArray, riders: IntArray, groups: IntArray, cells: IntArray | None
) -> BoolArray:
    """Choose trips of riders by keyed priorities of their rows, the same wherever the rows live."""
    # Under a random key the rows of each group have a uniform order, independent of others, so that one rider more or
    # less changes the counts by at most :func:`most_trips`.
    kept = np.ones(len(rows), dtype=bool)
    limits = [(groups, bound.max)]
    if bound.per_cell is not None and cells is not None:
        _, codes = np.unique(cells, return_inverse=True)
        limits.insert(0, (riders * (int(codes.max(initial=0)) + 1) + codes.reshape(-1), bound.per_cell))
    for choice, (of_row, most) in enumerate(limits):
        open_rows = np.flatnonzero(kept)
        _, group, sizes = np.unique(of_row[open_rows], return_inverse=True, return_counts=True)
        crowded = np.flatnonzero(sizes[group.reshape(-1)] > most)
        first, second = priorities(key, rows[open_rows[crowded]], choice).T
        order = crowded[np.lexsort((second, first, group.reshape(-1)[crowded]))]
        _, starts, num = np.unique(group.reshape(-1)[order], return_index=True, return_counts=True)
        ranks = np.arange(len(order)) - np.repeat(starts, num)
        kept[open_rows[order[ranks >= most]]] = False
    return kept


_ZONES = END_COLUMNS["zone"]
_OF_PAIRS = {*(destination for _, destination in END_COLUMNS.values()), "mode"}  # columns that boardings lack
_STOPS_NEEDED = "stops, but trips are counted between zones"
_DESTINATIONS_NEEDED = "destinations, but boardings have none"
# A period of the paper is a window, of each day separately if the policy has days. Each name adds to the one before.
_FLAT: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "3": ((), ("window",)),
    "4": ((), ("window",), (*_ZONES, "window")),
    "5": ((), ("window",), (*_ZONES, "window"), ("mode", "window")),
}
_NESTED = {**_FLAT, "5": (*_FLAT["4"], (*_ZONES, "mode", "window"))}
# Features of the paper by name, without the cells, which are always the first feature.
NAMED = {
    **{f"O{name}": columns for name, columns in _FLAT.items()},
    **{f"H{name}": columns for name, columns in _NESTED.items()},
}
DEFAULT_FEATURES = "O5"
FeatureColumns = tuple[str, ...]


def read_features(
    given: object,
    *,
    days: bool,
    ends: FeatureColumns = END_COLUMNS["stop"],
    known: FeatureColumns | None = COLUMNS,  # None if the columns are not known yet
) -> tuple[FeatureColumns, ...]:
    """Read features by name or as lists; a name leaves out what only stops or pairs of them have, and the cells."""
    if isinstance(given, str):
        if given not in NAMED:
            raise ParameterError(
                f"features must be one of {', '.join(NAMED)}, or a list of lists of columns. Got {given!r}."
            )
        columns_of: Iterable[FeatureColumns] = NAMED[given]
        if ends[0] == _ZONES[0]:
            columns_of = [item for item in columns_of if item in _FLAT["3"]]
        elif len(ends) == 1:
            columns_of = dict.fromkeys(tuple(n for n in item if n not in _OF_PAIRS) for item in columns_of)
        return tuple(_ordered((*columns, "day") if days and columns else columns) for columns in columns_of)
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise ParameterError(f"features must be a name or a list of lists of columns. Got {shown(given)}.")
    features = []
    for item in given:
        if isinstance(item, str) or not isinstance(item, Iterable):
            raise ParameterError(
                f'each feature must be a list of columns, such as ["mode", "window"]. Got {shown(item)}. Add brackets.'
            )
        columns = tuple(item)
        unknown = [name for name in columns if not isinstance(name, str) or (known is not None and name not in known)]
        if unknown or len(set(columns)) < len(columns):
            what = f"Got {shown(unknown[0])}." if unknown else "One column appears twice."
            names = "" if known is None else f" {', '.join(known)}"
            raise ParameterError(f"a feature may use each of the columns{names} once. {what}")
        features.append(_ordered(columns, known or COLUMNS))
    if len(set(features)) < len(features):
        raise ParameterError("features must all be different. One appears twice. Remove it.")
    return tuple(features)


def nested(features: Sequence[FeatureColumns]) -> tuple[FeatureColumns, ...]:
    """Make a tree: each feature distinguishes everything that the one before it does."""
    grown: list[FeatureColumns] = []
    for columns in features:
        grown.append(_ordered((*(grown[-1] if grown else ()), *columns)))
    return tuple(dict.fromkeys(grown))


def _ordered(columns: Iterable[str], known: FeatureColumns = COLUMNS) -> FeatureColumns:
    place = {name: at for at, name in enumerate(known)}
    return tuple(sorted(dict.fromkeys(columns), key=lambda name: place.get(name, len(place))))


def features_of(given: object, schema: Schema) -> tuple[FeatureColumns, ...]:
    """Return the features for a schema. In a table of categories, the default is the total and each column alone."""
    if schema.trip is not None:
        return read_features(given, days=schema.tells_days, ends=schema.ends)
    columns = schema.universe().columns
    if given == DEFAULT_FEATURES:
        return ((), *((name,) for name in columns))
    if isinstance(given, str):
        example = json.dumps([columns[0]])
        raise ParameterError(f"{given} names features of trips. List features of columns, such as [[], {example}].")
    return read_features(given, days=False, known=columns)


_JOINED = " x "


def feature_name(columns: FeatureColumns) -> str:
    return _JOINED.join(columns) if columns else "total"


@dataclass(frozen=True, eq=False, kw_only=True)
class Feature:
    columns: FeatureColumns  # the public columns that define it; none for the total
    # Its classes of pairs and of slots: group `slot class * pair classes + pair class` has the cells in both.
    pairs: ProductClasses
    slots: Grouping

    @classmethod
    def of(cls, universe: Universe, columns: FeatureColumns) -> Feature:
        absent = [name for name in columns if name not in universe.columns]
        if absent:
            if not universe.of_trips:
                raise ParameterError(f"the feature {feature_name(columns)} has columns that are not counted.")
            source = {
                "mode": "the mode of each pair. Add [city] modes",
                "day": 'days. Add day (for example day = "weekday") to the attribute that contains the time',
            }.get(absent[0], "the zone of each stop. Add a column zone in [city] stops")
            if universe.level == "zone" and absent[0] != "day":
                source = f'{_STOPS_NEEDED}. Write level = "stop" in [trip]'
            if not universe.arrives and absent[0] in _OF_PAIRS:
                source = f"{_DESTINATIONS_NEEDED}. Name the column of the destination in [trip]"
            raise ParameterError(f"the feature {feature_name(columns)} needs {source}.")
        return cls(columns=columns, pairs=universe.pair_classes(columns), slots=universe.slot_classes(columns))

    @property
    def size(self) -> int:
        return self.pairs.num * self.slots.num

    @property
    def name(self) -> str:
        return feature_name(self.columns)

    def groups(self, pairs: IntArray, slots: IntArray) -> IntArray:
        return self.slots.codes_of(slots) * self.pairs.num + self.pairs.codes_of(pairs)

    def sums(self, pairs: IntArray, slots: IntArray, counts: NDArray[Any]) -> NDArray[Any]:
        sums = np.zeros(self.size, dtype=counts.dtype)
        np.add.at(sums, self.groups(pairs, slots), counts)
        return sums

    def listed_sums(self, pairs: IntArray, slots: IntArray, counts: IntArray) -> IntArray:
        """Add up counts by group; only groups with a listed cell are returned, in any order."""
        groups, group = np.unique(self.groups(pairs, slots), return_inverse=True)
        sums = np.zeros(len(groups), dtype=np.int64)
        np.add.at(sums, group.reshape(-1), counts)
        return sums

    def parents(self, other: Feature, layout: Layout) -> IntArray:
        """Return the group of a coarser feature that contains each group. Shapes: -> (size,)."""
        parents = np.zeros(self.size, dtype=np.int64)
        parents[layout.groups_of(self)] = layout.groups_of(other)
        return parents


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout:
    """The order of cells: join group by join group."""

    universe: Universe  # the universe of the cells
    # Join classes: join group `slot class * pair classes + pair class` has the cells in both, by slot, then pair.
    pairs: ProductClasses
    slots: Grouping

    @classmethod
    def of(cls, universe: Universe, features: Sequence[Feature]) -> Layout:
        return cls(
            universe=universe,
            pairs=ProductClasses.joined([feature.pairs for feature in features], universe.axes),
            slots=Grouping.joined([feature.slots for feature in features], universe.num_slots),
        )

    @property
    def num_groups(self) -> int:
        return self.pairs.num * self.slots.num

    @cached_property
    def sizes(self) -> IntArray:
        return np.multiply.outer(self.slots.sizes, self.pairs.sizes).reshape(-1)

    @cached_property
    def starts(self) -> IntArray:
        return np.concatenate(([0], np.cumsum(self.sizes)))

    def places(self, cells: IntArray) -> tuple[IntArray, IntArray]:
        pairs, slots = self.universe.split(cells)
        pair_class = self.pairs.codes_of(pairs)
        ranks = self.slots.ranks_of(slots) * self.pairs.sizes[pair_class] + self.pairs.ranks_of(pairs)
        return self.slots.codes_of(slots) * self.pairs.num + pair_class, ranks

    def cells(self, groups: IntArray, ranks: IntArray) -> IntArray:
        """Return the cells at given ranks of join groups: the inverse of :meth:`places`."""
        slot_class, pair_class = np.divmod(groups, self.pairs.num)
        slot_rank, pair_rank = np.divmod(ranks, self.pairs.sizes[pair_class])
        slots = self.slots.members_at(slot_class, slot_rank)
        return slots * self.universe.num_pairs + self.pairs.members_at(pair_class, pair_rank)

    def groups_of(self, feature: Feature) -> IntArray:
        """Return the group of a feature that contains each join group. Shapes: -> (num_groups,)."""
        rows = self.slots.parents(feature.slots) * feature.pairs.num
        return np.add.outer(rows, self.pairs.parents(feature.pairs)).reshape(-1)


def noise_scale(epsilon: Fraction, sensitivity: int) -> Fraction:
    scale = sensitivity / epsilon
    if scale > noise_arrays.MOST_SCALE:
        raise ParameterError(
            f"the noise would exceed {noise_arrays.MOST_SCALE:,} trips: the epsilon of one feature is "
            f"{float(epsilon):.3g}, and counts can change by {sensitivity:,}. Raise epsilon, or lower max."
        )
    return scale


@dataclass(frozen=True, kw_only=True)
class Query:
    columns: FeatureColumns | None  # columns of the feature; None for the cells
    share: Fraction  # its part of epsilon

    @property
    def name(self) -> str:
        return CELLS if self.columns is None else feature_name(self.columns)


def even_shares(features: Sequence[FeatureColumns], *, cells: Fraction | None = None) -> tuple[Query, ...]:
    num = len(features)
    first = Fraction(1, num + 1) if cells is None else cells if num else Fraction(1)
    others = (Query(columns=columns, share=(1 - first) / num) for columns in features)
    return (Query(columns=None, share=first), *others)


def growing_shares(features: Sequence[FeatureColumns]) -> tuple[Query, ...]:
    """Give each level of a tree the third root of 2 times the share of the level above it; the cells come last."""
    weights = [Fraction(2.0 ** (level / 3)).limit_denominator(_MAX_DENOMINATOR) for level in range(len(features) + 1)]
    shares = [weight / sum(weights) for weight in weights]  # fractions that add up to exactly 1
    levels = [Query(columns=columns, share=share) for columns, share in zip(features, shares, strict=False)]
    return (Query(columns=None, share=shares[-1]), *levels)


CORRECTION_SHARE = Fraction(1, 20)  # part of epsilon for how many trips the bound keeps and drops
_CORRECTION_NOTE = "noisy-counts.md#dropped-trips"
_DROWNED = 3  # so many standard deviations of its noise must the noisy sum of kept trips have


def _most_dropped(bound: Contribution, change: int) -> Fraction:
    """Return how many dropped trips of a rider are seen for each kept one, at most."""
    assert bound.total_max is not None
    # Who drops a trip keeps `max` others, of a day at least; with a limit by cell, `per_cell` others.
    return Fraction(bound.total_max - change, min(bound.max, bound.per_cell or bound.max))


def kept_share(kept: int, dropped: int, scale: Fraction, most: Fraction) -> float | None:
    """Return the share of trips that are kept, from noisy sums; None if they are noise.

    Nobody drops more than ``most`` times as many trips as are kept.
    """
    if kept < _DROWNED * DiscreteLaplace(scale).spread:
        return None
    return float(f"{1 / (1 + min(max(dropped / kept, 0.0), float(most))):.4g}")


def sensitivity(schema: Schema, period: str | None) -> int:
    """Return by how much one protected unit can change the counts of a feature, over all groups."""
    if schema.protects != RIDER:
        return 1
    most = most_trips(schema, period)
    assert most is not None  # a schema that protects riders limits their trips
    return most


class CountFigures(TypedDict, total=False):
    noise: CountNoise
    features: list[FeatureNoise]
    kkt_residual: float
    contribution: StatedContribution


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DrawnCounts:
    cells: IntArray  # cells with at least one trip, rising
    counts: IntArray
    figures: CountFigures  # public: they follow from noisy counts and public facts
    num_dropped: int = 0  # trips that are not counted because their rider has too many; only the owner sees it

    @classmethod
    def at(cls, layout: Layout, places: IntArray, counts: IntArray, figures: CountFigures) -> DrawnCounts:
        groups = np.searchsorted(layout.starts, places, side="right") - 1
        cells = layout.cells(groups, places - layout.starts[groups])
        order = np.argsort(cells)
        return cls(cells=cells[order], counts=counts[order], figures=figures)


@dataclass(frozen=True)
class CountForm:
    law: Callable[[Fraction], CountLaw]
    basis: Basis = Basis.PROVED
    numerics: str = NUMERICS
    why: str = ""  # the reason if nothing is proved


EXACT = CountForm(DiscreteLaplace)
AS_PUBLISHED = CountForm(FloatingLaplace, Basis.CLAIMED, FLOATING, FLOATING)


class BoundedSums(NamedTuple):
    """Trips of riders that count, that do not, and of these at most as many of each rider as total_max allows."""

    kept: int
    dropped: int
    beyond: int

    @classmethod
    def of(cls, riders: IntArray, every: BoolArray, kept: BoolArray, bound: Contribution, most: int) -> BoundedSums:
        dropped = every & ~kept
        beyond = np.minimum(np.bincount(riders[dropped]), max(0, (bound.total_max or most) - most))
        return cls(int((every & kept).sum()), int(dropped.sum()), int(beyond.sum()))


class CountsMechanism(Mechanism):
    kind = "counts"
    counts_persons = True
    counts_trips = True
    epsilon: Epsilon

    def attributes(self, dataset: Dataset) -> list[dict[str, object]]:
        return dataset.schema.universe(dataset.period).describe()

    @property
    @abc.abstractmethod
    def form(self) -> CountForm:
        """How noise is sampled."""

    def promise(self, schema: Schema) -> Promise:
        """State the guarantee of noisy counts of trips or records; refuse a schema without either."""
        if schema.trip is None:
            return self._promise_of_records(schema)
        if schema.protects not in (TRIP, RIDER):
            raise ParameterError(
                f"{self.name} protects one trip or one rider. Got protects = {schema.protects!r}. "
                'Write "trip" or "rider".'
            )
        unit = BOUNDED_CONTRIBUTION if schema.protects == RIDER else EPSILON_PER_TRIP
        exceptions = [attribute.exception for attribute in schema if attribute.exception]
        chosen = (KEYED_CHOICE,) if schema.contribution is not None else ()
        return Promise(
            guarantee=self.guarantee(schema),
            basis=self.form.basis,
            mechanism=self.describe(),
            assumptions=(PUBLIC_DOMAIN, CHECKED_FILE, PUBLIC_FEATURES, unit, *chosen, SYSTEM_ENTROPY),
            in_clear=(f"the universe of trip types: {schema.level}s, windows and days", *exceptions),
            numerics=self.form.numerics,
            claim=self._claim(schema),
            why=self.form.why,
            notes=(*self.notes(), *([_CORRECTION_NOTE] if self.correction_epsilon(schema) else [])),
        )

    def _promise_of_records(self, schema: Schema) -> Promise:
        if not self.counts_categories:
            raise ParameterError(
                f"{self.name} counts trips, but the policy has no [trip]. Name the columns of origin, destination (if "
                "it is known) and time there, or choose another mechanism."
            )
        universe = schema.universe()
        for name in universe.columns:
            if name in (CELLS, feature_name(())) or _JOINED in name:
                raise ParameterError(f"a table of counts cannot have a column {name!r}: sums are called so. Rename it.")
        if universe.num_cells > MAX_DENSE_CELLS:
            raise ParameterError(
                f"a table of counts has at most {MAX_DENSE_CELLS:,} combinations of labels. Got "
                f"{universe.num_cells:,}. Leave out a column, or use coarser labels."
            )
        if schema.protects == RIDER or schema.person is not None:
            raise ParameterError(
                f"a table of counts protects one record, however many somebody has. Write protects = {TRIP!r}, for "
                "example, and leave [contribution] out."
            )
        if schema.together is not None:
            raise ParameterError("records are counted row by row, so together has no meaning. Leave it out.")
        return Promise(
            guarantee=self.guarantee(schema),
            basis=self.form.basis,
            mechanism=self.describe(),
            assumptions=(PUBLIC_DOMAIN, CHECKED_FILE, EPSILON_PER_RECORD, SYSTEM_ENTROPY),
            in_clear=(
                f"all combinations of labels of {', '.join(universe.columns)}, whether or not they occur",
                *[attribute.exception for attribute in schema if attribute.exception],
            ),
            numerics=self.form.numerics.replace("trips", plural(schema.protects)),
            claim=self._claim(schema),
            why=self.form.why,
            notes=self.notes(),
        )

    def _claim(self, schema: Schema) -> str:
        return f"{decimal_text(self.epsilon)}-differential privacy for one {schema.protects}" if self.form.why else ""

    def guarantee(self, schema: Schema) -> PureDP | ConcentratedDP:
        return PureDP(epsilon=self.epsilon, protects=schema.protects, neighbours=Neighbours.ADD_REMOVE)

    def correction_epsilon(self, schema: Schema) -> Fraction:
        """Return the epsilon of the sums that correct counts for dropped trips; 0 if counts are not corrected."""
        corrected = schema.contribution is not None and schema.contribution.total_max is not None
        return self.epsilon * CORRECTION_SHARE if corrected else Fraction(0)

    def counts_epsilon(self, schema: Schema) -> Fraction:
        return self.epsilon - self.correction_epsilon(schema)

    def losses(self, schema: Schema, period: str | None) -> TripLoss:
        """Return the largest loss of one trip and of one rider; None for a rider without a limit on trips."""
        most = most_trips(schema, period)
        if most is None:
            return TripLoss(trip=plain(self.epsilon), rider=None)
        # One more trip, of a rider who has too many, can replace another trip: two counts change.
        return TripLoss(trip=plain(2 * self.epsilon / most), rider=plain(self.epsilon))

    def levels(self, schema: Schema) -> dict[str, FeatureColumns]:
        """Return the sums that the owner asks for, the most important first; by default the released types."""
        return {}

    @abc.abstractmethod
    def check_noise(self, release: Release, schema: Schema, change: int) -> set[str]:
        """Check that the noise follows from epsilon and from the change of one protected unit; name its figures."""

    def recount(self, release: Release, schema: Schema) -> Iterator[str]:
        measures, period = release.certificate.counts, release.certificate.period
        follows = same(self.losses(schema, period).plain(), measures.loss.plain())
        require(follows, "certificate.json: the loss of one trip and one rider does not follow from epsilon")
        change = sensitivity(schema, period)
        own = {"trips", "cells", "cells_with_trips", "loss", *self.check_noise(release, schema, change)}
        own |= {"contribution"} if schema.contribution is not None else set()
        if (stated := measures.correction) is not None and (bound := schema.contribution) is not None:
            part = self.correction_epsilon(schema)
            scale = stated.total_max / part
            share = kept_share(stated.kept, stated.dropped, scale, _most_dropped(bound, change))
            due = {"epsilon": plain(part), "scale": plain(scale), "law": DiscreteLaplace.name, "share": share}
            follows = same({**stated.plain(), **due}, stated.plain())
            require(follows, "certificate.json: the correction for dropped trips does not follow from its sums")
        own |= {"expected"} if measures.expected is not None else set()
        require(measures.model_fields_set == own, "certificate.json: it has figures that do not belong to such counts")
        most = f", for at most {change:,} trips of a rider" if change > 1 else ""
        yield f"the stated scales of all noise together give epsilon {decimal_text(self.epsilon)}{most}"

    def fold(self, schema: Schema, period: str | None) -> Any:
        from dunnage.mechanisms.cells import CellFold

        return CellFold(schema.universe(period).num_cells)

    @abc.abstractmethod
    def draw_counts(self, counted: Counted, prepared: Any, noise: Noise) -> DrawnCounts:
        """Add noise to counts, and return what follows from the noisy counts."""

    def draw_table(self, dataset: Dataset, prepared: Any, noise: Noise, among: BoolArray | None = None) -> DrawnCounts:
        """Count trips (among some rows), add noise and, if dropped trips were measured, correct counts for them."""
        bound = dataset.schema.contribution
        if bound is None:
            return self.draw_counts(true_counts(dataset, rows=among), prepared, noise)
        most = sensitivity(dataset.schema, dataset.period)
        counted, sums = self._bounded(dataset, noise, among, most)
        drawn = self.draw_counts(counted, prepared, noise)
        dates = dataset.schema.time.calendar(dataset.period)
        days = len(dates) if bound.per == "day" and dates is not None else None
        stated: dict[str, object] = {"max": bound.max, "per": bound.per, "days": days}
        stated |= {} if bound.per_cell is None else {"per_cell": bound.per_cell}
        if bound.total_max is not None:
            part = self.correction_epsilon(dataset.schema)
            law = DiscreteLaplace(noise_scale(part, bound.total_max))
            drawn_noise = law.draw(noise, 2).tolist()
            # One rider changes the first sum by at most `most`, and the second by what is left of `total_max`.
            num_kept, num_dropped = sums.kept + drawn_noise[0], sums.beyond + drawn_noise[1]
            share = kept_share(num_kept, num_dropped, law.scale, _most_dropped(bound, most))
            stated["correction"] = Correction(
                total_max=bound.total_max,
                epsilon=plain(part),
                scale=plain(law.scale),
                law=law.name,
                kept=num_kept,
                dropped=num_dropped,
                share=share,
            )
            if share is not None and len(drawn.cells):
                _, slots = dataset.schema.universe(dataset.period).split(drawn.cells)
                starts = np.append(np.flatnonzero(np.diff(slots, prepend=-1)), len(slots))
                counts = round_tree(drawn.counts / share, [starts, np.array([0, len(slots)])], noise)
                drawn = replace(drawn, counts=counts)
        contribution = StatedContribution.model_validate(stated)
        figures: CountFigures = {**drawn.figures, "contribution": contribution}
        return replace(drawn, figures=figures, num_dropped=sums.dropped)

    @staticmethod
    def _bounded(dataset: Dataset, noise: Noise, among: BoolArray | None, most: int) -> tuple[Counted, BoundedSums]:
        """Count the trips of each rider up to the bound (among some rows)."""
        bound, persons = dataset.schema.contribution, dataset.persons
        assert bound is not None
        if dataset.elsewhere:
            from dunnage.mechanisms.cells import RiderTrips

            trips = RiderTrips(bound=bound, period=dataset.period, key=noise.draw_bytes(KEY_BYTES), most=most)
            return trips.result(dataset)
        kept = kept_rows(dataset, noise)
        every = np.ones(len(dataset), dtype=bool) if among is None else among
        assert persons is not None  # the schema has checked that a column names them
        sums = BoundedSums.of(persons, every, kept, bound, most)
        return true_counts(dataset, rows=every & kept), sums

    def draw(self, dataset: Dataset, prepared: Any, noise: Noise) -> Outcome:
        noisy, universe = self.draw_table(dataset, prepared, noise), dataset.schema.universe(dataset.period)
        # data : one line per cell with trips, by day, window, origin, destination (or by all columns in order)
        columns: dict[str, object] = {
            name: pa.array(universe.labels(name), pa.string()).take(pa.array(universe.column_codes(name, noisy.cells)))
            for name in universe.cell_columns
        }
        measures = CountMeasures(
            trips=int(noisy.counts.sum()),
            cells=universe.num_cells,
            cells_with_trips=len(noisy.cells),
            loss=self.losses(dataset.schema, dataset.period),
            **noisy.figures,
        )
        # Nothing leads from counts back to rows, but the key still proves which dataset they come from.
        facts = {DROPPED: noisy.num_dropped}
        return Outcome(data=pa.table({**columns, "count": noisy.counts}), measures=measures, facts=facts)


def _kept_features(given: object) -> str | tuple[FeatureColumns, ...]:
    features = read_features(given, days=False, known=None)
    return given if isinstance(given, str) else features


Features = Annotated[
    str | tuple[FeatureColumns, ...],
    PlainValidator(_kept_features),
    PlainSerializer(lambda kept: kept if isinstance(kept, str) else [list(columns) for columns in kept]),
]


class FeatureMechanism(CountsMechanism):
    """A mechanism that queries features (partitions of the cells by public columns) and makes answers consistent."""

    def promise(self, schema: Schema) -> Promise:
        promise = super().promise(schema)
        self.queries(schema)  # refuses features that do not fit
        return promise

    @abc.abstractmethod
    def queries(self, schema: Schema) -> tuple[Query, ...]:
        """Return the queries, with the share of epsilon for each."""

    def check_noise(self, release: Release, schema: Schema, change: int) -> set[str]:
        features, queries = release.certificate.counts.features or [], self.queries(schema)
        same_sums = [item.feature for item in features] == [query.name for query in queries]
        require(same_sums, "certificate.json: the sums are not those that the mechanism queries")
        part_name, whole = self.whole(schema)
        parts = [exact(getattr(item, part_name) or 0) for item in features]
        adds_up = min(parts) > 0 and sum(parts) == whole
        require(adds_up, "certificate.json: the parts of epsilon do not add up to it")
        law = self.form.law(Fraction(1)).name
        for item, query, part in zip(features, queries, parts, strict=True):
            # Shares that grow with the level of a tree are rounded; another machine may get another fraction.
            shared = math.isclose(part, query.share * whole, rel_tol=_SHARE_TOLERANCE)
            require(shared, "certificate.json: the shares of epsilon are not those of the mechanism")
            scale = plain(self.scale(query, part, change, schema))
            fixed = {"feature": item.feature, "groups": item.groups}
            due = {**fixed, part_name: plain(part), "scale": scale, "law": law}
            wrong = f"certificate.json: the noise on {item.feature} does not follow from its epsilon"
            require(same(due, item.plain()), wrong)
        if not release.universe.of_trips:
            for query, item in zip(queries, features, strict=True):
                columns = release.universe.columns if query.columns is None else query.columns
                own = math.prod(len(release.universe.labels(name)) for name in columns)
                require(item.groups == own, f"certificate.json: {item.feature} has the wrong number of groups")
            return {"features"}
        # Check the number of groups of each feature, as far as this is possible without zones and modes.
        universe, all_pairs, all_zones = release.universe, [], set()
        columns_of = [universe.cell_columns if query.columns is None else query.columns for query in queries]
        size = len(universe.stops)
        for columns, item in zip(columns_of, features, strict=True):
            wrong = f"certificate.json: {item.feature} has the wrong number of groups"
            of_slots = {"day": len(universe.days), "window": len(universe.windows)}
            slots = math.prod(num for column, num in of_slots.items() if column in columns)
            # Every window and day has the same groups.
            require(item.groups > 0 and slots > 0 and item.groups % slots == 0, wrong)
            pairs = item.groups // slots
            all_pairs.append(pairs)
            ends, by_zone = sum(end in columns for end in universe.ends), 0
            if universe.level == "stop":
                by_zone = sum(f"{end}_zone" in columns and end not in columns for end in universe.ends)
            require(size**ends <= pairs <= universe.num_pairs, wrong)  # from groups by stops to those by pairs
            if "mode" in columns and ends < 2:
                continue
            zones = math.isqrt(pairs) if by_zone == 2 else pairs // size**ends
            require(pairs == size**ends * zones**by_zone and (zones <= size or not by_zone), wrong)
            all_zones |= {zones} if by_zone else set()
        require(len(all_zones) <= 1, "certificate.json: the numbers of groups imply different numbers of zones")
        of_pairs = [known_columns(columns) & set(PAIR_COLUMNS) for columns in columns_of]
        for coarser, few in zip(of_pairs, all_pairs, strict=True):
            for finer, many, item in zip(of_pairs, all_pairs, features, strict=True):
                wrong = f"certificate.json: {item.feature} has fewer groups than a feature that it refines"
                require(few <= many or not coarser <= finer, wrong)
        return {"features"}

    @abc.abstractmethod
    def check_size(self, queries: NoisyQueries) -> None:
        """Refuse queries that are too large."""

    def whole(self, schema: Schema) -> tuple[Literal["epsilon", "rho"], Fraction]:
        """Return what queries share, and how much of it there is."""
        return "epsilon", self.counts_epsilon(schema)

    def scale(self, query: Query, part: Fraction, change: int, schema: Schema) -> Fraction:
        """Return the scale of the noise of a query, from its part and from the trips of one protected unit."""
        return noise_scale(part, change)

    def asked(self, dataset: Dataset) -> NoisyQueries:
        schema, period = dataset.schema, dataset.period
        change, queries = sensitivity(schema, period), self.queries(schema)
        noisy = NoisyQueries.of(schema.universe(period), queries, self.counts_epsilon(schema), change, self.form.law)
        self.check_size(noisy)
        return noisy

    def prepare(self, dataset: Dataset, progress: Progress | None = None) -> NoisyQueries:
        return self.asked(dataset)


class NamedFeatures(FeatureMechanism):
    """A mechanism of a paper, which has names for features."""

    as_published: Flag = False
    fewest_features: ClassVar[str]  # name of the features that need only stops and windows

    @property
    def form(self) -> CountForm:
        return AS_PUBLISHED if self.as_published else EXACT

    def notes(self) -> tuple[str, ...]:
        return ("noisy-counts.md#the-laws", "constrained-counts.md#privacy") if self.as_published else self.proof

    @classmethod
    def richest_features(cls, city: City | None) -> str:
        """Name the richest features that a city supports: the fourth need zones, the fifth also modes."""
        richest = 3 if city is None or city.zones is None else 4 if city.modes is None else 5
        return cls.fewest_features.replace("3", str(richest))

    def problems(self, schema: Schema) -> Iterator[Problem]:
        if schema.trip is None:  # it has promised
            return
        zoned = schema.city is not None and schema.city.zones is not None
        has_modes = schema.city is not None and schema.city.modes is not None
        day = f'Write day (for example day = "weekday") in [attributes.{schema.trip.time}]'
        fewer = f'write features = "{self.fewest_features}", which does not need it'
        zone = f"Add a column zone to the stops file, or {fewer}"
        needs: tuple[tuple[bool, set[str], str, str], ...] = (
            (zoned, {"origin_zone", "destination_zone"}, "the zone of each stop", zone),
            (has_modes, {"mode"}, "the mode of each pair of stops", f'Write [city] modes = "modes.csv", or {fewer}'),
            (schema.tells_days, {"day"}, "days", f"{day}, or choose features without days"),
        )
        if schema.level == "zone":
            fewer = f'Write features = "{self.fewest_features}", or level = "stop" in [trip]'
            needs = ((False, {"origin", "destination", "mode"}, _STOPS_NEEDED, fewer), needs[-1])
        if len(schema.ends) == 1:
            fewer = f'Write features = "{self.fewest_features}", or destination in [trip]'
            needs = ((False, _OF_PAIRS, _DESTINATIONS_NEEDED, fewer), *needs)
        for available, columns, what, remedy in needs:
            needing = [query.name for query in self.queries(schema) if columns & set(query.columns or ())]
            if needing and not available:
                problem = f"the feature {needing[0]} needs {what}"
                problem += "" if ", but" in what else ", but the policy does not state this"
                yield Problem(problem, where="mechanism.features", remedy=f"{remedy}.")


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyQueries:
    """Features with the noise of their answers: public facts."""

    universe: Universe  # the universe of the cells
    queries: tuple[Query, ...]  # the cells, if they are queried by themselves, then the features
    features: tuple[Feature, ...]
    laws: tuple[CountLaw, ...]  # law of the noise of each query
    whole: Fraction  # epsilon (or rho) that all queries share
    part: Literal["epsilon", "rho"] = "epsilon"

    @classmethod
    def of(
        cls,
        universe: Universe,
        queries: Sequence[Query],
        epsilon: Fraction,
        change: int,  # by how much one protected unit can change a feature
        law: Callable[[Fraction], CountLaw],
    ) -> NoisyQueries:
        features = tuple(Feature.of(universe, query.columns) for query in queries if query.columns is not None)
        laws = tuple(law(noise_scale(query.share * epsilon, change)) for query in queries)
        return cls(universe=universe, queries=tuple(queries), features=features, laws=laws, whole=epsilon)

    @property
    def sizes(self) -> tuple[int, ...]:
        sizes = [feature.size for feature in self.features]
        return tuple(sizes if len(sizes) == len(self.queries) else [self.universe.num_cells, *sizes])

    def noisy_sums(self, counted: Counted, noise: Noise) -> list[NDArray[Any]]:
        pairs, slots = self.universe.split(counted.cells)
        return [
            feature.sums(pairs, slots, counted.counts) + law.draw(noise, feature.size)
            for feature, law in zip(self.features, self.laws[-len(self.features) :], strict=True)
        ]

    def noisy_cells(self, counted: Counted, layout: Layout, noise: Noise) -> NDArray[Any]:
        noisy = self.laws[0].draw(noise, self.universe.num_cells)
        groups, ranks = layout.places(counted.cells)
        noisy[layout.starts[groups] + ranks] += counted.counts
        return noisy

    def describe(self) -> list[FeatureNoise]:
        return [
            FeatureNoise.model_validate(
                {
                    "feature": query.name,
                    "groups": size,
                    self.part: plain(query.share * self.whole),
                    "scale": plain(law.scale),
                    "law": law.name,
                }
            )
            for query, size, law in zip(self.queries, self.sizes, self.laws, strict=True)
        ]

    def foresee(self, counted: Counted, *extra: str) -> Foresight:
        """Predict the error of each feature's sums, and that of publishing nothing: root mean squares, in trips."""
        pairs, slots = self.universe.split(counted.cells)
        sums = [feature.sums(pairs, slots, counted.counts) for feature in self.features]
        sums = sums if len(sums) == len(self.queries) else [counted.counts, *sums]
        lines, rows, units = [], [], plural(self.universe.unit)
        for query, size, law, true_sums in zip(self.queries, self.sizes, self.laws, sums, strict=True):
            nothing = math.sqrt(float((true_sums.astype(np.float64) ** 2).sum()) / size)
            rows.append({"feature": query.name, "groups": size, "noise": law.spread, "publish_nothing": nothing})
            where = "1 sum" if size == 1 else f"each of {size:,} sums"
            lines.append(
                f"{query.name}: noise of {_three_digits(law.spread)} {units} on {where}"
                f"; if you published nothing, the error would be {_three_digits(nothing)} {units} (root mean square)"
            )
        return Foresight(lines=(*lines, *extra), details={"expected_error": rows})


def _three_digits(trips: float) -> str:
    return number_text(float(f"{trips:.3g}"))


_LAWS: Mapping[str, Callable[[Fraction], CountLaw]] = {
    law.name: law for law in (DiscreteLaplace, RoundedLaplace, FlooredLaplace)
}
MAX_CREATED = 50_000_000
MAX_THRESHOLD = 1_000_000_000_000


def _threshold(given: Any) -> int:
    whole = isinstance(given, int) and not isinstance(given, bool)
    if not whole or not 1 <= given <= MAX_THRESHOLD:
        raise ParameterError(
            f"threshold must be a whole number from 1 (no threshold) to {MAX_THRESHOLD:,}. Got {shown(given)}."
        )
    return int(given)


class NoisyCounts(CountsMechanism):
    """Add Laplace noise to the count of every possible type of trips or records; keep counts that reach a threshold.

    Parameters
    ----------
    epsilon
        Privacy loss of one trip, rider or other record, as the policy says.
    rounding
        ``discrete`` (whole numbers from the start, closest to the truth), or ``round`` or ``floor``: how a Laplace
        number becomes whole, as published. The whole number is sampled directly and exactly.
    threshold
        Smallest noisy count to publish; choose it without looking at the data.
    as_published
        Sample in floating point as the paper does, and round afterwards; nothing is proved about that.

    Guarantee
    ---------
    Epsilon-differential privacy between datasets that differ by one trip (or rider, or other record), proved.

    Assumptions
    -----------
    Public stops and windows, or labels.

    Runtime
    -------
    O(cells); with a threshold O(trips + cells that reach it), however many cells there are.

    Utility
    -------
    Cells with trips are off by the scale of the noise. Most cells are empty and negative counts become zero, so the
    total is too large by ``cells x scale / 2``: seven times the trips, at epsilon 1 on the data of the paper.

    References
    ----------
    Dwork, McSherry, Nissim, Smith 2006; Fioretto, Lee, Van Hentenryck 2018, section 6; Cormode, Procopiuc, Srivastava,
    Tran 2012 (noise of empty cells only where it counts).
    """

    name = "noisy-counts"
    proof = ("noisy-counts.md#the-laws",)
    counts_categories = True
    rounding: Literal["discrete", "round", "floor"] = "discrete"
    threshold: Annotated[int, PlainValidator(_threshold)] = 1
    as_published: Flag = False

    @model_validator(mode="before")
    @classmethod
    def _as_published(cls, given: Any) -> Any:
        published = isinstance(given, dict) and given.get("as_published") is True
        if published and given.get("rounding") == DiscreteLaplace.name:
            raise ParameterError('as_published rounds floating-point noise. Write rounding = "round" or "floor".')
        return {"rounding": "round", **given} if published else given

    @property
    def form(self) -> CountForm:
        return AS_PUBLISHED if self.as_published else CountForm(_LAWS[self.rounding])

    def prepare(self, dataset: Dataset, progress: Progress | None = None) -> CountLaw:
        law, size = self.law(dataset), dataset.schema.universe(dataset.period).num_cells
        if size <= MAX_DENSE_CELLS:
            return law
        if self.as_published:
            raise ParameterError(
                f"as_published needs noise for every cell, and takes at most {MAX_DENSE_CELLS:,} cells. Got {size:,}. "
                "Leave it out."
            )
        created = size * law.above(self.threshold)
        if created > MAX_CREATED:
            enough = self.threshold + math.ceil(float(law.scale) * math.log(created / MAX_CREATED))
            raise ParameterError(
                f"the noise alone would reach the threshold of {self.threshold} in about {created:,.0f} of {size:,} "
                f"cells. Set threshold = {enough} or more, or use constrained-counts."
            )
        return law

    def law(self, dataset: Dataset) -> CountLaw:
        change = sensitivity(dataset.schema, dataset.period)
        return self.form.law(noise_scale(self.counts_epsilon(dataset.schema), change))

    def check_noise(self, release: Release, schema: Schema, change: int) -> set[str]:
        stated = release.certificate.counts.noise
        due = {"scale": plain(change / self.counts_epsilon(schema)), "law": self.form.law(Fraction(1)).name}
        follows = stated is not None and same(due, stated.plain())
        require(follows, "certificate.json: the noise does not follow from epsilon")
        counts = release.data.column("count").to_numpy()
        require(bool((counts >= self.threshold).all()), "data: a count is below the threshold")
        return {"noise"}

    def draw_counts(self, counted: Counted, prepared: CountLaw, noise: Noise) -> DrawnCounts:
        law, size = prepared, counted.universe.num_cells
        figures: CountFigures = {"noise": CountNoise(scale=plain(law.scale), law=law.name)}
        if size > MAX_DENSE_CELLS:
            noisy = counted.counts + law.draw(noise, len(counted.cells))
            kept = noisy >= self.threshold
            cells, counts = exceeding_cells(noise, law, size, self.threshold, taken=counted.cells)
            cells, counts = np.append(counted.cells[kept], cells), np.append(noisy[kept], counts)
            order = np.argsort(cells)
            return DrawnCounts(cells=cells[order], counts=counts[order], figures=figures)
        dense = law.draw(noise, size)
        dense[counted.cells] += counted.counts
        whole = (np.floor if self.rounding == "floor" else np.rint)(dense).astype(np.int64)
        reached = np.flatnonzero(whole >= self.threshold)
        return DrawnCounts(cells=reached, counts=whole[reached], figures=figures)

    def preview(self, dataset: Dataset) -> Foresight:
        counted, change = true_counts(dataset), sensitivity(dataset.schema, dataset.period)
        universe, law, epsilon = counted.universe, _LAWS[self.rounding], self.counts_epsilon(dataset.schema)
        created = surplus(law(noise_scale(epsilon, change)), self.threshold)
        created *= universe.num_cells - len(counted.cells)
        what = f"{created:,.0f} {plural(universe.unit)}"
        line = f"the noise creates about {what} in empty cells, and sums are too large by that much"
        return NoisyQueries.of(universe, even_shares([]), epsilon, change, law).foresee(counted, line)


MAX_CELLS = 50_000_000


class HierarchicalCounts(NamedFeatures):
    """Query every node of a tree of features with noise, and make all counts consistent by least squares.

    Parameters
    ----------
    epsilon
        Privacy loss of one trip, or of one rider, as the policy says; the levels share it.
    features
        ``H3``, ``H4``, ``H5``, or a list of lists of columns of which each refines the one before; the cells are
        always the last level.
    budget
        ``geometric`` (each level gets the third root of 2 times the share of the level above) or ``uniform``.
    prune
        Whether to set a node without a positive estimate to zero, with everything below it.
    as_published
        Sample in floating point as the paper does; nothing is proved about that.
    root
        Whether the features of a name begin with the total.
    negatives
        Whether to keep negative counts, as the paper may be read; only as published.

    Guarantee
    ---------
    Epsilon-differential privacy between datasets that differ by one trip (or rider), proved.

    Assumptions
    -----------
    Public stops, windows, zones and modes.

    Runtime
    -------
    O(cells); at most 50 million.

    Utility
    -------
    Smallest variance of all unbiased linear estimates. This does not help much, because most cells are empty and
    negative counts become zero.

    References
    ----------
    Hay, Rastogi, Miklau, Suciu 2010; Cormode, Procopiuc, Srivastava, Shen, Yu 2012 (geometric budget); Fioretto, Lee,
    Van Hentenryck 2018, sections 5 and 10.
    """

    name = "hierarchical-counts"
    proof = ("constrained-counts.md#privacy", "constrained-counts.md#the-tree")
    fewest_features = "H3"
    features: Features = "H5"
    budget: Literal["geometric", "uniform"] = "geometric"
    prune: Flag = True
    as_published: Flag = False
    root: Flag = True
    negatives: Flag = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.negatives and not self.as_published:
            raise ParameterError(
                "no trips are fewer than none, so negatives = true is only for comparing with the paper. Write "
                "as_published = true as well."
            )
        return self

    def describe(self) -> dict[str, object]:
        usual = {"root": True, "negatives": False}  # certificates of earlier versions do not state them
        return {name: value for name, value in super().describe().items() if usual.get(name) is not value}

    def problems(self, schema: Schema) -> Iterator[Problem]:
        yield from super().problems(schema)
        if self.negatives and schema.contribution is not None and schema.contribution.total_max is not None:
            problem = "negative counts cannot be corrected for dropped trips"
            yield Problem(problem, where="mechanism.negatives", remedy="Leave out negatives, or total_max.")

    def queries(self, schema: Schema) -> tuple[Query, ...]:
        columns = read_features(self.features, days=schema.tells_days, ends=schema.ends)
        columns = tuple(item for item in columns if item or self.root)
        if not columns or not is_nested(columns):
            raise ParameterError(
                f"each feature of {self.name} must refine the one before it, and some of these do not. Use H5, or "
                "constrained-counts, which takes any features."
            )
        return growing_shares(columns) if self.budget == "geometric" else even_shares(columns)

    def check_size(self, queries: NoisyQueries) -> None:
        if queries.universe.num_cells > MAX_CELLS:
            raise ParameterError(
                f"{self.name} needs noise for every cell, and takes at most {MAX_CELLS:,} cells. "
                f"Got {queries.universe.num_cells:,}. Use constrained-counts, or longer windows."
            )

    def estimates(self, counted: Counted, prepared: NoisyQueries, noise: Noise) -> tuple[Layout, FloatArray]:
        """Estimate all cells, in the order of their layout; many are below zero."""
        layout = Layout.of(prepared.universe, prepared.features)
        noisy = [*prepared.noisy_sums(counted, noise), prepared.noisy_cells(counted, layout, noise)]
        parents = [finer.parents(coarser, layout) for coarser, finer in pairwise(prepared.features)]
        parents.append(np.repeat(layout.groups_of(prepared.features[-1]), layout.sizes))
        variances = [law.spread**2 for law in (*prepared.laws[1:], prepared.laws[0])]
        return layout, consistent_tree(noisy, parents, variances, prune=self.prune)[-1]

    def draw_counts(self, counted: Counted, prepared: NoisyQueries, noise: Noise) -> DrawnCounts:
        layout, leaves = self.estimates(counted, prepared, noise)
        whole = np.rint(leaves).astype(np.int64)
        kept = np.flatnonzero(whole != 0 if self.negatives else whole > 0)
        return DrawnCounts.at(layout, kept, whole[kept], {"features": prepared.describe()})

    def preview(self, dataset: Dataset) -> Foresight:
        queries = self.asked(dataset)
        created = surplus(DiscreteLaplace(queries.laws[0].scale)) * queries.universe.num_cells
        line = (
            f"negative counts become zero, which creates up to about {created:,.0f} trips (fewer if nodes are pruned): "
            "sums of the released counts are off by much more than the noise above"
        )
        line = "negative counts are kept: planners take them as zero" if self.negatives else line
        return queries.foresee(true_counts(dataset), line)


PRESETS = ("uniform", "cells", "margins")
Structure = Literal["flat", "hierarchical"]
CELLS_SHARE = Fraction(3, 5)  # part of epsilon that the preset ``cells`` gives to the cells
MAX_GROUPS = 1 << 24
# Parts of epsilon that the preset ``margins`` gives to margin and cells; the other features share the rest.
MARGIN_SHARE = Fraction(1, 20)
MARGINS_CELLS_SHARE = Fraction(13, 20)


def _kept_shares(given: object) -> str | Pairs:
    """Check shares as far as possible without features, and return them in an immutable form."""
    if isinstance(given, str):
        if given not in PRESETS:
            raise ParameterError(f"budget_shares must be one of {', '.join(PRESETS)}. Got {shown(given)}.")
        return given
    try:
        pairs = dict(given).items()  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise ParameterError(
            f"budget_shares must be one of {', '.join(PRESETS)}, or a table of feature = share. Got {shown(given)}."
        ) from None
    return tuple((str(name), exact(value, what=f"the share of {name}")) for name, value in pairs)


class ConstrainedCounts(NamedFeatures):
    """Query several features with noise, then compute the consistent, non-negative counts nearest to all answers.

    Parameters
    ----------
    epsilon
        Privacy loss of one trip, rider or other record, as the policy says; the features share it.
    features
        ``O3``, ``O4``, ``O5`` (or ``H3`` to ``H5``), or a list of lists of columns, an empty one for the total; the
        cells are always the first feature. In a table of categories the default is the total and each column.
    budget_shares
        ``uniform``; ``cells`` (three fifths of epsilon for the cells); ``margins`` (adds an origin-destination margin
        over all windows, and estimates each cell by Bayes from the noisy counts alone); or a table with the share of
        each feature.
    feature_weights
        ``size``: answers of a feature weigh one over its number of groups, as in the paper; ``uniform``: all the same.
    structure
        ``flat``, or ``hierarchical``: each feature distinguishes everything that the one before it does.
    as_published
        Sample in floating point and round each count separately, as the paper does; nothing is proved about that.

    Guarantee
    ---------
    Epsilon-differential privacy between datasets that differ by one trip (or rider, or other record), proved.

    Assumptions
    -----------
    Public stops, windows, zones and modes, or labels.

    Runtime
    -------
    O(cells), or O(trips + groups) if there are too many cells for the memory.

    Utility
    -------
    In the norm it minimises, never further from the truth than the noisy answers are. Counts are whole numbers. Sums by
    join group, by slot (as far as features distinguish slots) and in total are those of the projection, rounded up or
    down. Made for sparse tables: if most cells are busy, noisy counts with all of epsilon on the cells are closer.

    References
    ----------
    Fioretto, Lee, Van Hentenryck 2018, "Constrained-based differential privacy for mobility services".
    """

    name = "constrained-counts"
    proof = ("constrained-counts.md#privacy",)
    fewest_features = "O3"
    counts_categories = True
    features: Features = DEFAULT_FEATURES
    budget_shares: Annotated[
        str | Pairs,
        PlainValidator(_kept_shares),
        PlainSerializer(lambda kept: kept if isinstance(kept, str) else plain_pairs(kept)),
    ] = "uniform"
    feature_weights: Literal["size", "uniform"] = "size"
    structure: Structure = "flat"
    as_published: Flag = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self._margins and (self.as_published or self.feature_weights != "size"):
            raise ParameterError(
                'budget_shares = "margins" is not from the paper, and weighs features by their noise. Leave out '
                "as_published and feature_weights."
            )
        return self

    def queries(self, schema: Schema) -> tuple[Query, ...]:
        columns = features_of(self.features, schema)
        if not columns:
            raise ParameterError(f"{self.name} needs a feature besides the cells. Use [[]], or noisy-counts.")
        if self.structure == "hierarchical":
            columns = nested(columns)
        if self._margins and schema.trip is None:
            raise ParameterError('budget_shares = "margins" is for trips. Use "uniform", "cells" or a table of shares.')
        if self._margins:
            # Divide epsilon between cells, features and an origin-destination margin, which comes last.
            margin = schema.ends
            others = [item for item in columns if item != margin]
            if not others:
                raise ParameterError('budget_shares = "margins" needs a feature besides the margin. Try O5.')
            rest = (1 - MARGINS_CELLS_SHARE - MARGIN_SHARE) / len(others)
            return (
                Query(columns=None, share=MARGINS_CELLS_SHARE),
                *(Query(columns=item, share=rest) for item in others),
                Query(columns=margin, share=MARGIN_SHARE),
            )
        if isinstance(self.budget_shares, str):
            return even_shares(columns, cells=None if self.budget_shares == "uniform" else CELLS_SHARE)
        shares, named = dict(self.budget_shares), {CELLS: None, **{feature_name(item): item for item in columns}}
        strange, absent = sorted(shares.keys() - named.keys()), sorted(named.keys() - shares.keys())
        if strange or absent:
            what = f"{shown(strange[0])} is not one of them" if strange else f"{absent[0]!r} has none"
            raise ParameterError(f"budget_shares needs a share for each of {', '.join(map(repr, named))}. {what}.")
        if min(shares.values()) <= 0 or sum(shares.values()) != 1:
            total = decimal_text(sum(shares.values(), Fraction(0)))
            raise ParameterError(f"budget_shares must be above 0 and add up to 1. Got a sum of {total}.")
        return tuple(Query(columns=named[name], share=shares[name]) for name in named)

    def asked(self, dataset: Dataset) -> NoisyQueries:
        num_cells = dataset.schema.universe(dataset.period).num_cells
        if num_cells > MAX_DENSE_CELLS and (self._margins or self.as_published):
            from dunnage.mechanisms.fitted_counts import FittedCounts

            level = dataset.schema.level
            raise ParameterError(
                f'as_published and budget_shares = "margins" take at most {MAX_DENSE_CELLS:,} cells. Got '
                f'{num_cells:,}. Use {FittedCounts.name} with workload = ["{level} pairs", "departures by window", '
                '"arrivals by window"], or longer windows.'
            )
        return super().asked(dataset)

    def check_size(self, queries: NoisyQueries) -> None:
        groups = Layout.of(queries.universe, queries.features[:-1] if self._margins else queries.features).num_groups
        if groups > MAX_GROUPS:
            raise ParameterError(
                f"these features divide the cells into {groups:,} groups; at most {MAX_GROUPS:,} are possible. Use "
                "coarser features (for example zones instead of stops) or longer windows."
            )

    def check_noise(self, release: Release, schema: Schema, change: int) -> set[str]:
        residual = release.certificate.counts.kkt_residual
        stated = residual is not None and 0 <= residual <= 1
        require(stated, "certificate.json: does not say how near the counts are to the noisy sums")
        return {"kkt_residual", *super().check_noise(release, schema, change)}

    @property
    def _margins(self) -> bool:
        return bool(self.budget_shares == "margins")

    def family(self, features: Sequence[Feature], layout: Layout) -> Family:
        ratios = [layout.universe.num_cells / feature.size for feature in features]
        return Family(
            groups=tuple(layout.groups_of(feature) for feature in features),
            sizes=tuple(feature.size for feature in features),
            ratios=tuple(ratios if self.feature_weights == "size" else [1.0] * len(ratios)),
            blocks=np.repeat(np.arange(layout.slots.num), layout.pairs.num),  # the join class of slots
        )

    def draw_counts(self, counted: Counted, prepared: NoisyQueries, noise: Noise) -> DrawnCounts:
        # The budget is spent, so nothing is refused here: the certificate says how exact the projection is.
        margins, laws = self._margins, prepared.laws
        features = prepared.features[:-1] if margins else prepared.features
        layout = Layout.of(prepared.universe, features)
        family, sums = self.family(features, layout), prepared.noisy_sums(counted, noise)
        if prepared.universe.num_cells > MAX_DENSE_CELLS:
            return self._draw_lazily(counted, prepared, layout, family, sums, noise)
        noisy = prepared.noisy_cells(counted, layout, noise)
        if self.as_published:  # each count is rounded separately
            order = np.lexsort((-noisy, np.repeat(np.arange(layout.num_groups), layout.sizes)))
            listed = ListedCells(values=noisy[order], starts=layout.starts, floors=np.full(layout.num_groups, -np.inf))
            projection = project(listed, family, sums, tolerance=math.inf)
            places, counts = order, np.rint(projection.x).astype(np.int64)
        else:
            if margins:  # estimate cells with the help of the margin, the last feature; then project the estimates
                every = np.repeat(np.arange(layout.num_groups), layout.sizes)
                cells = layout.cells(every, np.arange(len(every)) - layout.starts[every])
                dense = project_estimates(
                    noisy,
                    float(laws[0].scale),
                    starts=layout.starts,
                    margin=Margin(prepared.universe.split(cells)[0], sums[-1], float(laws[-1].scale)),
                    family=family,
                    sums=sums[:-1],
                    variances=[law.spread**2 for law in laws[1:-1]],
                )
                places = np.flatnonzero(dense.x > 0)
                projection = replace(dense, x=dense.x[places])
            else:
                projection = project_table(noisy, layout.starts, family, sums, tolerance=math.inf)
                assert projection.cells is not None  # the whole table is in memory
                places = projection.cells
            counts = _whole(projection.x, np.searchsorted(places, layout.starts), layout, noise)
        kept, figures = counts > 0, _figures(prepared, projection.residual)
        return DrawnCounts.at(layout, places[kept], counts[kept], figures)

    def _draw_lazily(
        self,
        counted: Counted,
        queries: NoisyQueries,
        layout: Layout,
        family: Family,
        sums: list[FloatArray],
        noise: Noise,
    ) -> DrawnCounts:
        """Sample the noise of empty cells only where it can matter."""
        groups, ranks = layout.places(counted.cells)
        law = queries.laws[0]
        listed = project_lazily(
            noise,
            law.scale,
            sizes=layout.sizes,
            groups=groups,
            values=counted.counts + law.draw(noise, len(groups)).astype(np.int64),
            family=family,
            sums=sums,
        )
        starts = np.searchsorted(listed.groups, np.arange(layout.num_groups + 1))
        counts = _whole(listed.counts, starts, layout, noise)
        kept = counts > 0
        owners, occupied = listed.groups[kept], listed.occupied[kept]
        taken, created = layout.starts[groups] + ranks, occupied < 0
        places = np.empty(len(owners), dtype=np.int64)
        places[~created] = taken[occupied[~created]]
        places[created] = addresses(noise, layout.starts, owners[created], np.sort(taken))
        return DrawnCounts.at(layout, places, counts[kept], _figures(queries, listed.residual))

    def preview(self, dataset: Dataset) -> Foresight:
        queries = self.asked(dataset)
        lines = ["sums will be off by about their noise; the projection removes most of the noise of cells"]
        if self._margins:
            lines = ["cells are estimates, so sums will be off by somewhat more than their noise"]
        if not any(query.columns == () for query in queries.queries):
            lines.append("the total is not among the features, so it may be far off: add [] to features")
        return queries.foresee(true_counts(dataset), *lines)


def _whole(values: FloatArray, starts: IntArray, layout: Layout, noise: Noise) -> IntArray:
    """Round counts, join group by join group, and keep the sums of join groups and slots and the total."""
    return round_tree(values, [starts, starts[:: layout.pairs.num], np.array([0, len(values)])], noise)


def _figures(queries: NoisyQueries, residual: float) -> CountFigures:
    return {"features": queries.describe(), "kkt_residual": float(f"{min(residual, 1.0):.1e}")}
