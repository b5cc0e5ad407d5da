# SPDX-License-Identifier: Apache-2.0
"""Counts of trips: how far released ones are from the truth, and what somebody who knows all trips but one can tell.

Errors compare with the truth and are private. All of them are counted over the whole universe of cells, most of which
are empty in both tables and add nothing: only cells that have trips in either are looked at. Their baseline is to
publish nothing, which is to say that there are no trips at all.

What can be told about one trip follows from the laws of the noise, which are released: ``dunnage.auditing.membership``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import FloatArray, IntArray
from dunnage.auditing.finding import (
    MOST_AT_RISK,
    NOTHING,
    About,
    Details,
    Figure,
    Finding,
    Progress,
    RiderAtRisk,
    TripAtRisk,
    wilson,
)
from dunnage.auditing.membership import (
    LAWS,
    Answer,
    Evidence,
    Membership,
    WholeLaw,
    impossible_share,
    noisy_answer,
    posterior,
    released_ratios,
    trips_apart,
    trips_together,
)
from dunnage.certificate import FeatureNoise
from dunnage.counting.laplace import CountLaw, DiscreteLaplace, FloatingLaplace, FlooredLaplace, RoundedLaplace, surplus
from dunnage.errors import CheckFailed, ParameterError, ReleaseError
from dunnage.exact import exact, plain
from dunnage.guarantees import Basis, PureDP
from dunnage.kinds.counts import CELLS
from dunnage.mechanisms.base import Mechanism
from dunnage.mechanisms.counts import (
    NAMED,
    Feature,
    FeatureColumns,
    feature_name,
    read_features,
    trip_cells,
    true_counts,
)
from dunnage.noise import Noise
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.schema import RIDER
from dunnage.tables.dataset import Dataset
from dunnage.text import number_text, percent, several
from dunnage.trips import Universe
from dunnage.verification import check_release, mechanism_of

RIDER_TRIPS = 10  # Trips of a rider who is attacked where only single trips are protected
FLOATING_DRAWS = 200_000
MOST_ZONES, MOST_STOPS = 12, 12  # Rows and columns of a table of flows at most
_COUNT_LAWS: Mapping[str, Callable[[Fraction], CountLaw]] = {
    law.name: law for law in (DiscreteLaplace, RoundedLaplace, FlooredLaplace, FloatingLaplace)
}
_REST = "rest"
_ROUNDING = 1e-9
MOST_RIDERS = 50  # Riders whose trips are weighed exactly: those with most counted trips of one type
_SAME_ODDS = "Noise gives every {unit} the same odds ({bound})"
_KNOWS = "Somebody who knows all trips but"
NO_KEY = (
    "Without the key nothing ties these rows to this release: errors are right only if they are the rows that were "
    "published."
)


# What the release tells


@dataclass(frozen=True, kw_only=True)
class AskedFeature:
    """A feature as its noise is stated."""

    name: str  # name, groups: what it tells apart, and how many sums it has
    groups: int
    epsilon: Fraction  # Its part of the loss
    law: CountLaw  # Law of the noise on each sum


@dataclass(frozen=True, eq=False, kw_only=True)
class CountsSight:
    release: Release  # The release
    universe: Universe  # All cells; zones and modes are not told
    cells: IntArray  # cells, counts: cells that were released with trips, rising, and how many
    counts: IntArray
    asked: tuple[AskedFeature, ...]  # The features that were asked with noise, cells first
    # By how much one protected unit can change the sums of a feature in all: the trips of a rider that are counted
    change: int

    @classmethod
    def of(cls, release: Release) -> CountsSight:
        try:
            check_release(release)
        except CheckFailed as failure:
            raise ReleaseError(f"the release does not say what it counts, or how: {failure}. Verify it.") from None
        cells, counts = release.counted()
        guarantee, measures = release.certificate.guarantee, release.certificate.counts
        rows, noise = measures.features or [], measures.noise
        if noise is not None and isinstance(guarantee, PureDP):  # cells alone
            epsilon, scale = plain(guarantee.epsilon), noise.scale
            rows = [FeatureNoise(feature=CELLS, groups=measures.cells, epsilon=epsilon, scale=scale, law=noise.law)]
        asked = [
            AskedFeature(
                name=row.feature,
                groups=row.groups,
                epsilon=exact(row.epsilon),
                law=_COUNT_LAWS[row.law](exact(row.scale)),
            )
            for row in rows
        ]
        return cls(
            release=release,
            universe=release.universe,
            cells=cells,
            counts=counts,
            asked=tuple(asked),
            change=int(asked[0].law.scale * asked[0].epsilon),
        )

    @cached_property
    def mechanism(self) -> Mechanism:
        return mechanism_of(self.release.certificate)

    @property
    def protects(self) -> str:
        return self.release.certificate.guarantee.protects

    @property
    def cells_alone(self) -> bool:
        """Whether the noisy counts of cells themselves were released, those below a threshold left out."""
        return self.asked[0].groups > 0 and self.release.certificate.counts.noise is not None

    @property
    def threshold(self) -> int:
        return int(getattr(self.mechanism, "threshold", 1))

    @property
    def floating(self) -> bool:
        return any(feature.law.name not in LAWS for feature in self.asked)

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        return tuple(Answer(WholeLaw(item.law.name, item.law.scale), item.groups) for item in self.asked)

    @property
    def bunches(self) -> tuple[int, ...]:
        """Trips of the unit that is protected by type, when they are of as few types as can be."""
        bound, universe = self.release.certificate.counts.contribution, self.universe
        # By a column of their own, labels of days may be those of any date.
        if bound is None or bound.per != "day" or not universe.days or not universe.num_dates:
            return (self.change,)
        return tuple(bound.max * num for num in universe.num_dates)


def counts_outside_findings(sight: CountsSight, tell: Progress) -> tuple[list[Finding], list[str]]:
    """Find what follows from the release and public facts; return findings and notes."""
    tell("weighing all trips but one")
    findings: list[Finding] = []
    notes: list[str] = []
    for item in sight.asked:
        sums = "counts of cells" if item.name == CELLS else f"sums by {item.name}"
        what = "The total" if item.name == feature_name(()) else f"Each of the {item.groups:,} {sums}"
        findings.append(
            About("trips", "utility").finding(
                Figure(f"noise ({item.name})", item.law.spread, 0.0),
                f"{what} was given noise of {_trips(item.law.spread)} (standard deviation) before anything was made of "
                "it; without privacy it would be none.",
                {"groups": item.groups, "law": item.law.name},
            )
        )
    if sight.cells_alone:
        # Of floating noise, the law of the whole numbers that it stands for.
        law = sight.asked[0].law
        name = str(getattr(sight.mechanism, "rounding", "round")) if sight.floating else law.name
        most = surplus(_COUNT_LAWS[name](law.scale), sight.threshold) * sight.universe.num_cells
        findings.append(
            About("trips", "utility").finding(
                Figure("trips created, expected", most, 0.0, (0.0, most)),
                f"Noise alone creates {_trips(round(most))} on average if all {sight.universe.num_cells:,} cells are "
                f"empty, and fewer the more are not; the release has {int(sight.counts.sum()):,} in all.",
            )
        )
    if sight.floating:
        return [*_unbounded(sight), *findings], notes
    if sight.release.certificate.basis is Basis.VOID:
        notes.append("The noise was drawn from a seed. What is said of one trip holds against who does not know it.")
    for attack in (_membership, _empty_cell, _riders, _bounds):
        try:
            findings += attack(sight)
        except ParameterError as error:
            notes.append(f"What can be told about one {sight.protects} was not all computed: {error}")
    return findings, list(dict.fromkeys(notes))


def _trips(number: float) -> str:
    text = number_text(number)
    return f"{text} trip{'' if text == '1' else 's'}"


# What can be told about one trip, or one rider


def _membership(sight: CountsSight) -> Iterator[Finding]:
    """Say how well the best test does against what is protected: one trip, or a rider with trips of few types."""
    rider, trips, bunches = sight.protects == RIDER, sight.change, sight.bunches
    found = Membership.of(_moved(sight, item) for item in sight.asked)
    all_in_one = f" ({trips:,} of one type, the worst case)" if rider and trips > 1 else ""
    if len(bunches) > 1:
        all_in_one = f" ({several(trips, 'trip')}, at most {max(bunches):,} of one type, the worst case)"
    sees = " Who sees only what is made of the noisy counts can do no better."
    if sight.cells_alone:
        sees = f" So it is for cells of at least {sight.threshold:,} trips." if sight.threshold > 1 else ""
    yield _told_at_most(
        sight,
        "probability",
        Figure("membership guess", found.success, 0.5),
        f"{_KNOWS} {'those of one rider' if rider else 'one'}, and sees even the noisy counts, guesses whether "
        f"{'they are' if rider else 'it is'} in the data{all_in_one} right with {percent(found.success)}; without the "
        f"release it is a coin toss.{sees}",
        _details(found),
    )
    yield _told_at_most(
        sight,
        "share",
        Figure("membership advantage", found.advantage, 0.0),
        f"Of a hundred releases the best test says yes in {number_text(100 * found.advantage)} more where the "
        f"{sight.protects} is there than where not (total variation); 0 would tell nothing.",
    )
    yield _told_at_most(
        sight,
        "share",
        Figure("suspicion at its bound", found.share_at_largest, 0.0),
        f"If the {sight.protects} is there, the noise lets a suspicion of one half grow to {percent(found.suspicion)}, "
        f"the most that is possible, in {percent(found.share_at_largest)} of all releases.",
    )


def _moved(sight: CountsSight, item: AskedFeature, *, dropped: int | None = None) -> Evidence:
    """Return what the sums of a feature tell of the trips of one unit that are of as few types as can be."""
    by_day = item.name == CELLS or "day" in columns_of(item.name)
    law, found = WholeLaw(item.law.name, item.law.scale), Evidence.nothing()
    for trips in sight.bunches if by_day else (sight.change,):
        found = found.joined(noisy_answer(law, trips, dropped=dropped))
    return found


def _told_at_most(sight: CountsSight, unit: str, figure: Figure, sentence: str, details: Details = NOTHING) -> Finding:
    """Give what noisy counts tell: exactly, where they were released; else no more is told than that."""
    # A released count tells as much as the noisy one where all that is left out says the same.
    interval = (figure.value if sight.cells_alone else figure.baseline, figure.value)
    return About(unit, "table").finding(figure._replace(interval=interval), sentence, details)


def _details(found: Membership) -> dict[str, float]:
    return {
        "advantage": found.advantage,
        "loss": found.largest,
        "suspicion_at_most": found.suspicion,
        "share_at_most": found.share_at_largest,
    }


def _empty_cell(sight: CountsSight) -> Iterator[Finding]:
    """Say what a released count tells where nobody else travelled: less, as small noisy counts are left out."""
    if not sight.cells_alone:
        return
    found = Membership.of([_moved(sight, sight.asked[0], dropped=sight.threshold - 1)])
    yield About("probability", "table").finding(
        Figure("membership guess, empty cell", found.success, 0.5),
        f"For a {sight.protects} where nobody else travelled the guess is right with {percent(found.success)}, as "
        f"noisy counts below {sight.threshold:,} are left out.",
        _details(found),
    )


def _riders(sight: CountsSight) -> Iterator[Finding]:
    """Say how a rider with several trips fares."""
    rider = sight.protects == RIDER  # else nothing bounds how many trips one has
    trips = sight.change if rider else RIDER_TRIPS
    own = f"the {several(trips, 'trip')} of a rider"
    together = ("together", trips_together, trips, f"{own}, all of one type, are")
    apart = ("apart", trips_apart, trips, f"{own}, in as many cells and sums as can be, are")
    one = ("all but one known", trips_together, 1, f"one trip of a rider of at most {trips:,}, the others known, is")
    bound = "" if rider else " No bound on trips of a rider was set: who has more is told more surely."
    for words, test, num, who in (apart, one) if rider else (together, apart):
        found = test(sight.answers, num)
        yield _told_at_most(
            sight,
            "probability",
            Figure(f"membership guess, rider of {trips:,}, {words}", found.success, 0.5),
            f"Whether {who} in the data is guessed right with {percent(found.success)} at best." + bound,
            _details(found),
        )


def _bounds(sight: CountsSight) -> Iterator[Finding]:
    """Repeat what the certificate prints for a suspicion of one half."""
    for row in sight.release.certificate.meaning.odds:
        if row.before == 0.5 and row.at_most is not None:
            yield About("probability", "table").finding(
                Figure("membership bound", row.at_most, 0.5),
                f"The certificate promises that {row.sentence}, whatever else is known; no guess can be right more "
                "often.",
            )


def _unbounded(sight: CountsSight) -> list[Finding]:
    """Say that floating-point noise has no bound, and measure why."""
    scale = sight.asked[0].law.scale
    told, draws = impossible_share(scale, FLOATING_DRAWS, Noise())
    share = told / draws
    return [
        About("probability", "table").finding(
            Figure("membership bound", 1.0, 0.5, (0.5, 1.0)),
            f"No bound is proved for one {sight.protects}: noise was drawn in floating point, whose last "
            "digits tell what it was added to.",
        ),
        About("share", "table").finding(
            Figure("values of one world only", share, 0.0, wilson(told, draws)),
            f"Of {draws:,} noisy counts of an empty cell, {percent(share)} are numbers that a cell with one "
            "trip can never give: who saw such a number would be certain. Only whole counts are released, which hides "
            "those digits; how much they still tell, nobody has proved.",
            {"draws": draws},
        ),
    ]


# Against the truth


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CountsCase:
    """Released counts and true ones, cell by cell where there are any of either. Private."""

    sight: CountsSight  # sight, data: the release as anyone reads it, and the trips
    data: Dataset
    universe: Universe  # All cells, with zones and modes
    cells: IntArray  # Cells that have trips in truth or in the release, rising
    true: IntArray  # true, released: how many each has
    released: IntArray
    key: Key | None  # The key, if it is at hand

    @classmethod
    def of(cls, sight: CountsSight, data: Dataset, key: Key | None) -> CountsCase:
        if key is not None and key.certificate_digest not in ("", sight.release.certificate.digest):
            raise ReleaseError("the key is that of another release. Give the key that was written beside this one.")
        if key is not None and not key.belongs_to(data):
            raise ReleaseError("the key was made from other rows. Give the data exactly as they were published.")
        truth = true_counts(data)
        cells = np.union1d(sight.cells, truth.cells)
        true, released = np.zeros(len(cells), dtype=np.int64), np.zeros(len(cells), dtype=np.int64)
        true[np.searchsorted(cells, truth.cells)] = truth.counts
        released[np.searchsorted(cells, sight.cells)] = sight.counts
        return cls(sight=sight, data=data, universe=truth.universe, cells=cells, true=true, released=released, key=key)

    @cached_property
    def places(self) -> tuple[IntArray, IntArray]:
        """Pair and slot of each cell."""
        return self.universe.split(self.cells)

    @property
    def features(self) -> Iterator[FeatureColumns]:
        """The features whose sums are compared, besides the total: those that were asked, then those of the paper."""
        asked = [columns_of(item.name) for item in self.sight.asked if item.name != CELLS]
        named = [columns for name in NAMED for columns in read_features(name, days=self.data.schema.tells_days)]
        for columns in dict.fromkeys([*asked, *named]):
            if columns and set(columns) <= set(self.universe.columns):
                yield columns


def columns_of(name: str) -> FeatureColumns:
    return () if name == feature_name(()) else tuple(name.split(" x "))


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How far sums are off, over all of them."""

    rmse: float  # rmse, mae, largest: root of the mean square, mean size and largest size of errors
    mae: float
    largest: float

    @classmethod
    def of(cls, differences: NDArray[Any], size: int) -> Errors:
        sizes = np.abs(differences.astype(np.float64))
        return cls(
            rmse=math.sqrt(float((sizes**2).sum()) / size),
            mae=float(sizes.sum()) / size,
            largest=float(sizes.max(initial=0.0)),
        )


def counts_inside_findings(case: CountsCase, tell: Progress) -> tuple[list[Finding], list[str]]:
    tell("comparing counts with the truth")
    findings = [*_cell_errors(case), *_totals(case)]
    findings += [_feature_error(case, Feature.of(case.universe, columns)) for columns in case.features]
    more, notes = _told_here(case)
    return findings + more, [*([NO_KEY] if case.key is None else []), *notes]


def _cell_errors(case: CountsCase) -> Iterator[Finding]:
    differences, occupied, size = case.released - case.true, case.true > 0, case.universe.num_cells
    num = int(occupied.sum())
    parts = (
        ("per cell", f"A cell (of all {size:,})", np.ones_like(occupied), size),
        ("in cells with trips", f"A cell that has trips (of {num:,})", occupied, num),
        ("in empty cells", f"A cell that is empty in truth (of {size - num:,})", ~occupied, size - num),
    )
    for name, where, chosen, many in parts:
        if not many:
            continue
        found, without = Errors.of(differences[chosen], many), Errors.of(case.true[chosen], many)
        measures = (
            ("RMSE", found.rmse, without.rmse, "by the root mean square, in which large errors weigh more"),
            ("MAE", found.mae, without.mae, "on average"),
        )
        for measure, value, baseline, words in measures:
            yield About("trips", "utility", private=True).finding(
                Figure(f"{measure} {name}", value, baseline),
                f"{where} is off by {_trips(value)} {words}; publishing nothing would be off by "
                f"{number_text(baseline)}.",
                {"cells": many, "largest": found.largest},
            )


def _totals(case: CountsCase) -> Iterator[Finding]:
    true, released = int(case.true.sum()), int(case.released.sum())
    off = f": off by {percent(abs(released - true) / true)}" if true else ""
    yield About("trips", "utility", private=True).finding(
        Figure("error of the total", abs(released - true), true),
        f"The release has {several(released, 'trip')}, the truth {true:,}{off}.",
        {"true": true, "released": released},
    )
    # Without any trips there is no share of them: nothing is in common with a table that has some.
    apart = 1.0 if (true > 0) != (released > 0) else 0.0
    if true and released:
        apart = min(float(np.abs(case.true / true - case.released / released).sum()) / 2, 1.0)
    yield About("share", "utility", private=True).finding(
        Figure("total variation distance", apart, 1.0),
        f"{percent(apart)} of all trips would have to be of another type to make shares of types equal to "
        "the true ones; a table that shares nothing with the truth has 100 %.",
        {"flows": flows(case)},
    )
    empty, more = case.true == 0, np.maximum(case.released - case.true, 0)
    created, added, cells = int(more[empty].sum()), int(more[~empty].sum()), int((more[empty] > 0).sum())
    kept = int(np.minimum(case.released, case.true).sum())
    share = f", {percent(created / released)} of all" if released else ""
    yield About("trips", "utility", private=True).finding(
        Figure("trips created in empty cells", created, 0.0),
        f"{several(created, 'trip')} of the release{share}, {'is' if created == 1 else 'are'} of types that nobody "
        f"travelled: in {several(cells, 'cell')}.",
        {"cells": cells, "kept": kept, "added": added, "lost": true - kept},
    )


def group_differences(feature: Feature, places: tuple[IntArray, IntArray], counts: IntArray) -> IntArray:
    """Add counts of cells up by group of a feature; only groups with a listed cell are returned, in no stated order."""
    groups, group = np.unique(feature.groups(*places), return_inverse=True)
    sums = np.zeros(len(groups), dtype=np.int64)
    np.add.at(sums, group.reshape(-1), counts)
    return sums


def _feature_error(case: CountsCase, feature: Feature) -> Finding:
    found = Errors.of(group_differences(feature, case.places, case.released - case.true), feature.size)
    without = Errors.of(group_differences(feature, case.places, case.true), feature.size)
    asked = {item.name: item.law.spread for item in case.sight.asked}
    noise = asked.get(feature.name)
    told = f" The noise on each was {number_text(noise)}." if noise is not None else " It was not asked by itself."
    return About("trips", "utility", private=True).finding(
        Figure(f"RMSE of sums ({feature.name})", found.rmse, without.rmse),
        f"Each of the {feature.size:,} sums by {feature.name} is off by {_trips(found.rmse)} by the root mean square "
        f"(RMSE), {number_text(found.mae)} on average (MAE), at most by "
        f"{number_text(found.largest)}; publishing nothing would be off by {number_text(without.rmse)}." + told,
        {
            "groups": feature.size,
            "mae": found.mae,
            "largest": found.largest,
            "baseline_mae": without.mae,
            "baseline_largest": without.largest,
            "noise": noise,
        },
    )


# Flows


def flows(case: CountsCase) -> dict[str, dict[str, object]]:
    """Return tables of trips from and to zones, and the stops that are busiest in truth: true and released."""
    size, city = len(case.universe.stops), case.universe.city
    origins, destinations = np.divmod(case.places[0], size)
    tables = {}
    if city is not None and city.zones is not None and 1 < len(city.zone_names) <= MOST_ZONES:
        tables["zones"] = _flow_table(case, city.zones[origins], city.zones[destinations], city.zone_names)
    busy = np.bincount(origins, case.true, size) + np.bincount(destinations, case.true, size)
    top = np.sort(np.argsort(-busy, kind="stable")[: size if size <= MOST_STOPS else MOST_STOPS - 1])
    places = np.full(size, len(top))
    places[top] = np.arange(len(top))
    names = [case.universe.stops[stop] for stop in top] + ([_REST] if len(top) < size else [])
    tables["stops"] = {**_flow_table(case, places[origins], places[destinations], names), "with_rest": len(top) < size}
    return tables


def _flow_table(case: CountsCase, rows: NDArray[Any], columns: NDArray[Any], names: Sequence[str]) -> dict[str, object]:
    groups, num = rows.astype(np.int64) * len(names) + columns, len(names)
    table: dict[str, object] = {"names": list(names)}
    for name, counts in (("true", case.true), ("released", case.released)):
        sums = np.zeros(num * num, dtype=np.int64)
        np.add.at(sums, groups, counts)
        table[name] = sums.reshape(num, num).tolist()
    return table


# What this release told


def _told_here(case: CountsCase) -> tuple[list[Finding], list[str]]:
    """Ask about every trip, and about one more like it, by the counts that were released."""
    sight = case.sight
    if not sight.cells_alone or sight.floating or not case.true.any():
        return [], []
    dropped = case.key.facts.get("trips_dropped", 0) if case.key is not None else None
    if sight.protects == RIDER and dropped != 0:
        return [], [
            "Trips of riders were left out at random, or there is no key to say that none were. Which ones is not "
            "kept, so what this very release tells about single trips was not computed."
        ]
    found = told_by_counts(sight, case.released[case.true > 0], case.true[case.true > 0])
    num, mean, right = int((case.true > 0).sum()), found["mean"], found["right"]
    return [
        About("probability", "table", private=True).finding(
            Figure("membership guess on this release", right, 0.5, wilson(right * num, num)),
            f"Asked in each of the {num:,} cells with trips about one of them, and about one more that is not "
            f"there, {_KNOWS.lower()} that one is right in {percent(right)} of all cases.",
            found,
        ),
        About("probability", "table", private=True).finding(
            Figure("suspicion on this release", mean, 0.5, (mean, mean)),
            f"Of a trip that is there, a suspicion of one half became {percent(mean)} on average over cells, "
            f"and {percent(found['largest'])} at most; in {percent(found['at_bound'])} of the cells it reached its "
            "bound.",
            found,
        ),
    ], []


def told_by_counts(sight: CountsSight, seen: IntArray, true: IntArray) -> dict[str, float]:
    """Weigh a trip of each of some cells, and one more in each, by the released counts."""
    law = sight.answers[0].law
    there, missing = (released_ratios(law, seen, known, sight.threshold) for known in (true - 1, true))
    suspicion = posterior(there)
    return {
        "mean": float(suspicion.mean()),
        "largest": float(suspicion.max()),
        "at_bound": float((there >= law.rate * (1 - _ROUNDING)).mean()),
        "right": float((_sign(there) + 1 - _sign(missing)).mean() / 2),
    }


def _sign(ratios: FloatArray) -> FloatArray:
    """Return 1 where evidence speaks for a trip, 0 where against, one half where for neither."""
    return np.where(np.abs(ratios) < _ROUNDING, 0.5, ratios > 0)


# Trips and riders most at risk


def counts_at_risk(case: CountsCase) -> tuple[list[TripAtRisk] | list[RiderAtRisk], str]:
    """List the trips or riders that a release of counts tells most of, and say what that means."""
    sight, trip = case.sight, case.data.schema.trip
    if sight.floating:
        return [], (
            f"Nobody is listed: noise was drawn in floating point, so no {sight.protects} has a bound, and which one "
            "the last digits gave away cannot be told from whole counts."
        )
    if sight.protects == RIDER:
        return _riders_at_risk(case)
    if not sight.cells_alone or trip is None or not case.true.any():
        return [], (
            f"Nobody is listed. {_odds_of(sight)}: it takes no heed of how many others made the same trip, and what is "
            "released was made of many noisy sums, none of which is one trip's own. Who made many trips is told more "
            "surely, as is said above of a rider."
        )
    return _trips_at_risk(case)


def _odds_of(sight: CountsSight) -> str:
    odds = sight.release.certificate.meaning.odds
    bound = next((row.sentence for row in odds if row.before == 0.5 and row.sentence), "no bound is proved")
    return _SAME_ODDS.format(unit=sight.protects, bound=bound)


def _trips_at_risk(case: CountsCase) -> tuple[list[TripAtRisk], str]:
    """List the trips of which this very release tells most; of equal ones those of the rarest types come first."""
    sight = case.sight
    true, released = case.true, case.released
    suspicion = np.where(
        true > 0, posterior(released_ratios(sight.answers[0].law, released, true - 1, sight.threshold)), 0.0
    )
    cells = trip_cells(case.data, case.universe)
    place = np.minimum(np.searchsorted(case.cells, cells), len(case.cells) - 1)
    made = (case.cells[place] == cells) & (true[place] > 0)  # a line may stand for no trip at all
    rows, place = np.flatnonzero(made), place[made]
    source = case.data.source_rows[rows]
    order = np.lexsort((source, true[place], -suspicion[place].round(12)))[:MOST_AT_RISK]
    listed = [
        TripAtRisk(
            source_row=int(source[row]),
            suspicion=float(suspicion[place[row]]),
            alike=int(true[place[row]]),
            released=int(released[place[row]]),
        )
        for row in order.tolist()
    ]
    return listed, (
        f"The trips of which this release tells most to somebody who knows all others and suspects them with one half: "
        f"the noise fell so. {_odds_of(sight)}; of trips that are told equally well the rarest come first."
    )


def _riders_at_risk(case: CountsCase) -> tuple[list[RiderAtRisk], str]:
    """List the riders whose trips, by their own types, are told best before any noise is drawn."""
    persons, sight = case.data.persons, case.sight
    if persons is None:
        return [], "Nobody is listed: the policy does not tell riders apart. Give the one with [contribution] person."
    cells = trip_cells(case.data, case.universe)
    known: dict[tuple[tuple[int, ...], ...], float] = {}
    listed = []
    try:
        for rows in _bunched(persons, cells, sight.change):
            own, moves = cells[rows], []  # by how much the sums of each feature differ with and without these trips
            places = case.universe.split(own)
            for item in sight.asked:
                groups = own if item.name == CELLS else Feature.of(case.universe, columns_of(item.name)).groups(*places)
                moves.append(tuple(sorted(np.unique(groups, return_counts=True)[1].tolist())))
            moved = tuple(moves)
            if moved not in known:
                known[moved] = _guess(sight, moved)
            first, types = int(case.data.source_rows[rows].min()), len(np.unique(own))
            listed.append(RiderAtRisk(source_row=first, guess=known[moved], trips=len(rows), types=types))
    except ParameterError as error:
        return [], f"Nobody is listed: what each rider's trips tell was too much to compute. {error}"
    listed.sort(key=lambda rider: (-round(rider.guess, 12), rider.source_row))
    return listed[:MOST_AT_RISK], (
        "The riders whose presence is guessed best by somebody who knows all other riders' trips and sees the noisy "
        f"counts themselves: those with many trips of one type. {_odds_of(sight)}; source row: a trip of theirs."
    )


def _bunched(persons: IntArray, cells: IntArray, most: int) -> Iterator[IntArray]:
    """Yield the counted trips of the riders with most of one type: where some are left out, as few types as can be."""
    order = np.lexsort((cells, persons))
    starts = np.flatnonzero(np.diff(persons[order], prepend=-1))
    # pair : (rider, type), rising; its trips
    fresh = np.flatnonzero((np.diff(persons[order], prepend=-1) != 0) | (np.diff(cells[order], prepend=-1) != 0))
    sizes = np.diff(np.append(fresh, len(order)))
    largest = np.maximum.reduceat(sizes, np.searchsorted(fresh, starts))
    trips = np.diff(np.append(starts, len(order)))
    best = np.lexsort((starts, -np.minimum(trips, most), -np.minimum(largest, most)))[:MOST_RIDERS]
    for rider in best.tolist():
        rows = order[starts[rider] : starts[rider] + trips[rider]]
        _, kind, num = np.unique(cells[rows], return_inverse=True, return_counts=True)
        yield np.asarray(rows[np.lexsort((kind, -num[kind]))][:most])


def _guess(sight: CountsSight, moved: tuple[tuple[int, ...], ...]) -> float:
    """Return how often the best test tells whether trips are there that move sums by so much."""
    answers: list[Evidence] = []
    for item, shifts in zip(sight.answers, moved, strict=True):
        answers += [noisy_answer(item.law, shift) for shift in shifts]
    return Membership.of(answers).success
