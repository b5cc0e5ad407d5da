# SPDX-License-Identifier: Apache-2.0
"""What mechanisms that release counts of trips share: the budget of features, the promise, and the release."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator

from dunnage import noise_arrays
from dunnage.arrays import IntArray
from dunnage.certificate import CountMeasures, CountNoise, FeatureNoise, StatedContribution, TripLoss
from dunnage.city import City
from dunnage.counting.laplace import CountLaw, DiscreteLaplace, FloatingLaplace
from dunnage.errors import ParameterError, Problem
from dunnage.exact import decimal_text, exact, plain, shown
from dunnage.guarantees import (
    BOUNDED_CONTRIBUTION,
    EPSILON_PER_TRIP,
    PUBLIC_DOMAIN,
    PUBLIC_FEATURES,
    SYSTEM_ENTROPY,
    Basis,
    Neighbours,
    Promise,
    PureDP,
)
from dunnage.kinds.common import require, same
from dunnage.kinds.counts import CELLS
from dunnage.mechanisms.base import Drawn, Epsilon, Flag, Foresight, Mechanism, Progress
from dunnage.mechanisms.counting import Counted, count_trips, most_trips
from dunnage.mechanisms.features import (
    Feature,
    FeatureColumns,
    Layout,
    described,
    feature_name,
    kept_features,
)
from dunnage.noise import Noise
from dunnage.schema import RIDER, TRIP, Schema
from dunnage.trips import PAIR_COLUMNS, Universe, known_columns

if TYPE_CHECKING:
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

NUMERICS = (
    "noise is drawn exactly, in whole trips, from system entropy; everything after it sees nothing but the noisy counts"
)
FLOATING = "noise in floating point: its last digits tell which counts it may have been added to"
MOST_DENSE_CELLS = 1 << 22
"""Up to so many cells noise is drawn for each; beyond, only where it can matter, with the same law."""

_MOST_DENOMINATOR = 10**9
_SHARE_TOLERANCE = 1e-6


def noise_scale(epsilon: Fraction, sensitivity: int) -> Fraction:
    scale = sensitivity / epsilon
    if scale > noise_arrays.MOST_SCALE:
        raise ParameterError(
            f"noise of over {noise_arrays.MOST_SCALE:,} trips would be needed. Got an epsilon (of one feature) of "
            f"{float(epsilon):.3g}, and counts that can change by {sensitivity:,}. Raise epsilon, or lower max."
        )
    return scale


@dataclass(frozen=True, kw_only=True)
class Query:
    columns: FeatureColumns | None  # What the feature is made of; None for the cells themselves
    share: Fraction  # Which part of epsilon goes to it

    @property
    def name(self) -> str:
        return CELLS if self.columns is None else feature_name(self.columns)

    def scale(self, epsilon: Fraction, sensitivity: int) -> Fraction:
        return noise_scale(self.share * epsilon, sensitivity)


def even_shares(features: Sequence[FeatureColumns], *, cells: Fraction | None = None) -> tuple[Query, ...]:
    num = len(features)
    first = Fraction(1, num + 1) if cells is None else cells if num else Fraction(1)
    return (
        Query(columns=None, share=first),
        *(Query(columns=columns, share=(1 - first) / num) for columns in features),
    )


def given_shares(given: Mapping[str, Fraction], features: Sequence[FeatureColumns]) -> tuple[Query, ...]:
    columns = {CELLS: None, **{feature_name(item): item for item in features}}
    strange, absent = sorted(given.keys() - columns.keys()), sorted(columns.keys() - given.keys())
    if strange or absent:
        what = f"Got {shown(strange[0])} besides" if strange else f"Got none for {absent[0]!r}"
        raise ParameterError(f"budget_shares needs a share for each of {', '.join(map(repr, columns))}. {what}.")
    shares = {name: exact(value, what=f"the share of {name}") for name, value in given.items()}
    if min(shares.values()) <= 0 or sum(shares.values()) != 1:
        total = decimal_text(sum(shares.values(), Fraction(0)))
        raise ParameterError(f"budget_shares must be above 0 and add up to 1. Got a sum of {total}. Mend them.")
    return tuple(Query(columns=columns[name], share=shares[name]) for name in columns)


def growing_shares(features: Sequence[FeatureColumns]) -> tuple[Query, ...]:
    """Give each level of a tree the third root of 2 times the share of the level above it; the cells are the last.

    Rounded to fractions that add up to 1, as budgets must.
    """
    weights = [Fraction(2.0 ** (level / 3)).limit_denominator(_MOST_DENOMINATOR) for level in range(len(features) + 1)]
    shares = [weight / sum(weights) for weight in weights]
    levels = [Query(columns=columns, share=share) for columns, share in zip(features, shares, strict=False)]
    return (Query(columns=None, share=shares[-1]), *levels)


def losses(epsilon: Fraction, schema: Schema, period: str | None) -> TripLoss:
    """Return what one trip and one rider lose at most; a rider whose trips are not bounded has no bound."""
    most = most_trips(schema, period)
    if most is None:
        return TripLoss(trip=plain(epsilon), rider=None)
    # A trip more, of a rider who has too many, can take the place of another: two counts change.
    return TripLoss(trip=plain(2 * epsilon / most), rider=plain(epsilon))


def sensitivity(schema: Schema, period: str | None) -> int:
    """Return by how much one protected unit can change the counts of a feature, all groups together."""
    if schema.protects != RIDER:
        return 1
    most = most_trips(schema, period)
    assert most is not None  # a schema that protects riders bounds their trips
    return most


class CountFigures(TypedDict, total=False):
    """What the certificate states of counts besides their number and loss."""

    noise: CountNoise
    features: list[FeatureNoise]
    kkt_residual: float
    contribution: StatedContribution


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DrawnCounts:
    cells: IntArray  # cells, counts: cells with one trip or more, rising, and how many
    counts: IntArray
    figures: CountFigures  # Public: they follow from noisy counts and public facts

    @classmethod
    def at(cls, layout: Layout, places: IntArray, counts: IntArray, figures: CountFigures) -> DrawnCounts:
        groups = np.searchsorted(layout.starts, places, side="right") - 1
        cells = layout.cells(groups, places - layout.starts[groups])
        order = np.argsort(cells)
        return cls(cells=cells[order], counts=counts[order], figures=figures)


@dataclass(frozen=True)
class CountForm:
    """Noise on counts as it is drawn, and what can be said of it."""

    law: Callable[[Fraction], CountLaw]
    basis: Basis = Basis.PROVED
    numerics: str = NUMERICS
    why: str = ""  # nothing is proved, if there is a reason


EXACT = CountForm(DiscreteLaplace)
AS_PUBLISHED = CountForm(FloatingLaplace, Basis.CLAIMED, FLOATING, FLOATING)


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
        """How noise is drawn."""

    def promise(self, schema: Schema) -> Promise:
        """State the guarantee of noisy counts of trips; refuse a schema whose rows are no trips."""
        if schema.trip is None:
            raise ParameterError(
                f"{self.name} counts trips. Got a policy without [trip]. Say which columns are origin, destination and "
                "time, or choose another mechanism."
            )
        if schema.protects not in (TRIP, RIDER):
            raise ParameterError(
                f"{self.name} protects one trip or one rider. Got protects = {schema.protects!r}. "
                'Write "trip" or "rider".'
            )
        epsilon, unit = self.epsilon, BOUNDED_CONTRIBUTION if schema.protects == RIDER else EPSILON_PER_TRIP
        exceptions = [attribute.exception for attribute in schema if attribute.exception]
        return Promise(
            guarantee=PureDP(epsilon=epsilon, protects=schema.protects, neighbours=Neighbours.ADD_REMOVE),
            basis=self.form.basis,
            mechanism=self.describe(),
            assumptions=(PUBLIC_DOMAIN, PUBLIC_FEATURES, unit, SYSTEM_ENTROPY),
            in_clear=("the universe of trip types: stops, windows and days", *exceptions),
            numerics=self.form.numerics,
            claim=f"{decimal_text(epsilon)}-differential privacy for one {schema.protects}" if self.form.why else "",
            why=self.form.why,
            notes=self.notes(),
        )

    @abc.abstractmethod
    def check_noise(self, release: Release, schema: Schema, change: int) -> set[str]:
        """Check that noise follows from epsilon and from what one protected unit can change; name the figures of it."""

    def recount(self, release: Release, schema: Schema) -> Iterator[str]:
        """Check that epsilon is that of all noisy sums together, and what one trip and one rider lose."""
        measures, period = release.certificate.counts, release.certificate.period
        follows = same(losses(self.epsilon, schema, period).plain(), measures.loss.plain())
        require(follows, "certificate.json: what one trip and one rider lose does not follow from epsilon")
        change = sensitivity(schema, period)
        own = {"trips", "cells", "cells_with_trips", "loss", *self.check_noise(release, schema, change)}
        own |= {"contribution"} if schema.contribution is not None else set()
        belong = measures.model_fields_set == own
        require(belong, "certificate.json: figures that do not belong to such counts")
        most = f", of at most {change:,} trips of a rider" if change > 1 else ""
        yield f"epsilon {decimal_text(self.epsilon)} is that of all noise together{most}, by its stated scales"

    @abc.abstractmethod
    def draw_counts(self, counted: Counted, prepared: Any, noise: Noise) -> DrawnCounts:
        """Draw noise for counts, and whatever follows from it."""

    def draw(self, dataset: Dataset, prepared: Any, noise: Noise) -> Drawn:
        counted = count_trips(dataset, noise)
        drawn, universe = self.draw_counts(counted, prepared, noise), counted.universe
        # data : a line per cell with trips, by day, window, origin, destination
        columns: dict[str, object] = {
            name: pa.array(universe.labels(name), pa.string()).take(pa.array(universe.column_codes(name, drawn.cells)))
            for name in universe.cell_columns
        }
        figures, bound = drawn.figures, dataset.schema.contribution
        if bound is not None:
            dates = dataset.schema.time.calendar(dataset.period)
            days = len(dates) if bound.per == "day" and dates is not None else None
            stated = StatedContribution.model_validate({"max": bound.max, "per": bound.per, "days": days})
            figures = {**figures, "contribution": stated}
        measures = CountMeasures(
            trips=int(drawn.counts.sum()),
            cells=universe.num_cells,
            cells_with_trips=len(drawn.cells),
            loss=losses(self.epsilon, dataset.schema, dataset.period),
            **figures,
        )
        # Counts have no rows to lead back to, but whose counts they are can be checked.
        facts = {"trips_dropped": counted.num_dropped}
        return Drawn(data=pa.table({**columns, "count": drawn.counts}), measures=measures, facts=facts)


class FeatureMechanism(CountsMechanism):
    """A mechanism that asks features, partitions of the cells by public columns, and makes answers consistent."""

    as_published: Flag = False
    fewest_features: ClassVar[str]  # Features that need nothing but stops and windows, by name

    @property
    def form(self) -> CountForm:
        return AS_PUBLISHED if self.as_published else EXACT

    def notes(self) -> tuple[str, ...]:
        return PUBLISHED_PROOF if self.as_published else self.proof

    def promise(self, schema: Schema) -> Promise:
        promise = super().promise(schema)
        self.queries(schema)  # refuses what cannot be asked
        return promise

    @classmethod
    def richest_features(cls, city: City | None) -> str:
        """Name the features that need no more than a city tells: zones the fourth, modes the fifth."""
        richest = 3 if city is None or city.zones is None else 4 if city.modes is None else 5
        return cls.fewest_features.replace("3", str(richest))

    @abc.abstractmethod
    def queries(self, schema: Schema) -> tuple[Query, ...]:
        """Return what is asked, and at which share of epsilon."""

    def check_noise(self, release: Release, schema: Schema, change: int) -> set[str]:
        """Check which sums were asked, at which share of epsilon, and that their noise follows from it."""
        features, queries = release.certificate.counts.features or [], self.queries(schema)
        asked = [item.feature for item in features] == [query.name for query in queries]
        require(asked, "certificate.json: other sums than the mechanism asks")
        parts = [exact(item.epsilon) for item in features]
        adds_up = min(parts) > 0 and sum(parts) == self.epsilon
        require(adds_up, "certificate.json: the parts of epsilon do not add up to it")
        law = self.form.law(Fraction(1)).name
        for item, query, part in zip(features, queries, parts, strict=True):
            # Shares that grow with the level of a tree are rounded, on another machine perhaps to another fraction.
            shared = math.isclose(part, query.share * self.epsilon, rel_tol=_SHARE_TOLERANCE)
            require(shared, "certificate.json: epsilon is not shared as the mechanism says")
            due = {**item.plain(), "epsilon": plain(part), "scale": plain(change / part), "law": law}
            wrong = f"certificate.json: the noise on {item.feature} does not follow from its epsilon"
            require(same(due, item.plain()), wrong)
        _check_groups(release.universe, [query.columns for query in queries], features)
        return {"features"}

    @abc.abstractmethod
    def asked(self, dataset: Dataset) -> Asked:
        """Return the features, with their noise; refuse what is too large."""

    def prepare(self, dataset: Dataset, progress: Progress | None = None) -> Asked:
        return self.asked(dataset)

    def ask(self, dataset: Dataset) -> Asked:
        change = sensitivity(dataset.schema, dataset.period)
        universe = dataset.schema.universe(dataset.period)
        return Asked.of(universe, self.queries(dataset.schema), self.epsilon, change, self.form.law)

    def problems(self, schema: Schema) -> Iterator[Problem]:
        assert schema.trip is not None  # it has promised
        zoned = schema.city is not None and schema.city.zones is not None
        has_modes = schema.city is not None and schema.city.modes is not None
        day = f'Write day = "weekday", say, in [attributes.{schema.trip.time}]'
        fewer = f'write features = "{self.fewest_features}", which needs none'
        needs = (
            (
                zoned,
                {"origin_zone", "destination_zone"},
                "the zone of each stop",
                f"Add a column zone to the stops file, or {fewer}",
            ),
            (has_modes, {"mode"}, "the mode of each pair of stops", f'Write [city] modes = "modes.csv", or {fewer}'),
            (schema.tells_days, {"day"}, "days that are told apart", f"{day}, or choose features without days"),
        )
        for known, columns, what, remedy in needs:
            needing = [query.name for query in self.queries(schema) if columns & set(query.columns or ())]
            if needing and not known:
                told = f"the feature {needing[0]} needs {what}, which the policy does not tell"
                yield Problem(told, where="mechanism.features", remedy=f"{remedy}.")


Features = Annotated[str | tuple[FeatureColumns, ...], PlainValidator(kept_features), PlainSerializer(described)]
PUBLISHED_PROOF = ("noisy-counts.md#the-laws", "constrained-counts.md#privacy")


@dataclass(frozen=True, eq=False, kw_only=True)
class Asked:
    """Features to be asked with noise: public facts."""

    universe: Universe  # What the cells are of
    queries: tuple[Query, ...]  # The cells, then the other features
    features: tuple[Feature, ...]  # The other features
    laws: tuple[CountLaw, ...]  # Law of the noise of each query
    epsilon: Fraction  # What all queries share

    @classmethod
    def of(
        cls,
        universe: Universe,
        queries: Sequence[Query],
        epsilon: Fraction,
        change: int,
        law: Callable[[Fraction], CountLaw],
    ) -> Asked:
        """Make features and laws; ``change`` is what one protected unit can change in a feature."""
        features = (Feature.of(universe, query.columns) for query in queries if query.columns is not None)
        laws = (law(query.scale(epsilon, change)) for query in queries)
        return cls(
            universe=universe, queries=tuple(queries), features=tuple(features), laws=tuple(laws), epsilon=epsilon
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.universe.num_cells, *(feature.size for feature in self.features))

    def noisy_sums(self, counted: Counted, noise: Noise) -> list[NDArray[Any]]:
        pairs, slots = self.universe.split(counted.cells)
        return [
            feature.sums(pairs, slots, counted.counts) + law.draw(noise, feature.size)
            for feature, law in zip(self.features, self.laws[1:], strict=True)
        ]

    def noisy_cells(self, counted: Counted, layout: Layout, noise: Noise) -> NDArray[Any]:
        """Ask every cell, in the order of a layout."""
        noisy = self.laws[0].draw(noise, self.universe.num_cells)
        groups, ranks = layout.places(counted.cells)
        noisy[layout.starts[groups] + ranks] += counted.counts
        return noisy

    def describe(self) -> list[FeatureNoise]:
        return [
            FeatureNoise(
                feature=query.name,
                groups=size,
                epsilon=plain(query.share * self.epsilon),
                scale=plain(law.scale),
                law=law.name,
            )
            for query, size, law in zip(self.queries, self.sizes, self.laws, strict=True)
        ]

    def foresee(self, counted: Counted, *extra: str) -> Foresight:
        """Tell how far off the sums of each feature will be, beside publishing nothing: root mean squares, in trips."""
        pairs, slots = self.universe.split(counted.cells)
        sums = [counted.counts, *(feature.sums(pairs, slots, counted.counts) for feature in self.features)]
        lines, rows = [], []
        for query, size, law, true_sums in zip(self.queries, self.sizes, self.laws, sums, strict=True):
            nothing = math.sqrt(float((true_sums.astype(np.float64) ** 2).sum()) / size)
            rows.append({"feature": query.name, "groups": size, "noise": law.spread, "publish_nothing": nothing})
            lines.append(
                f"{query.name}: noise of {law.spread:.3g} trips on {'1 sum' if size == 1 else f'each of {size:,} sums'}"
                f"; publishing nothing would be off by {nothing:.3g} (root mean square)"
            )
        return Foresight(lines=(*lines, *extra), details={"expected_error": rows})


def _check_groups(universe: Universe, asked: Sequence[FeatureColumns | None], features: Sequence[FeatureNoise]) -> None:
    """Check into how many groups features part the cells, as far as it does not take zones and modes to know."""
    size, all_pairs, all_zones = len(universe.stops), [], set()
    columns_of = [universe.cell_columns if columns is None else columns for columns in asked]
    for columns, item in zip(columns_of, features, strict=True):
        wrong = f"certificate.json: {item.feature} has another number of groups"
        of_slots = {"day": len(universe.days), "window": len(universe.windows)}
        slots = math.prod(num for column, num in of_slots.items() if column in columns)
        # Every window and day has the same groups.
        require(item.groups > 0 and slots > 0 and item.groups % slots == 0, wrong)
        pairs = item.groups // slots
        all_pairs.append(pairs)
        ends = sum(end in columns for end in ("origin", "destination"))
        by_zone = sum(f"{end}_zone" in columns and end not in columns for end in ("origin", "destination"))
        require(size**ends <= pairs <= size**2, wrong)  # at least the groups by stops, at most those by pairs
        if "mode" in columns and ends < 2:
            continue
        zones = math.isqrt(pairs) if by_zone == 2 else pairs // size**ends
        require(pairs == size**ends * zones**by_zone and (zones <= size or not by_zone), wrong)
        all_zones |= {zones} if by_zone else set()
    require(len(all_zones) <= 1, "certificate.json: features have another number of groups by zone each")
    of_pairs = [known_columns(columns) & set(PAIR_COLUMNS) for columns in columns_of]
    for coarser, few in zip(of_pairs, all_pairs, strict=True):
        for finer, many, item in zip(of_pairs, all_pairs, features, strict=True):
            wrong = f"certificate.json: {item.feature} has another number of groups than what it tells apart"
            require(few <= many or not coarser <= finer, wrong)
