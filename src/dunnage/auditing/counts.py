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
from dunnage.auditing.finding import Finding, counted, wilson
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
from dunnage.counting.laplace import (
    CountLaw,
    DiscreteLaplace,
    FloatingLaplace,
    FlooredLaplace,
    RoundedLaplace,
    surplus,
)
from dunnage.dataset import Dataset
from dunnage.errors import CheckFailed, ParameterError, ReleaseError
from dunnage.exact import exact
from dunnage.guarantees import Basis
from dunnage.mechanisms.counting import Counted, true_counts
from dunnage.mechanisms.features import NAMED, Feature, FeatureColumns, feature_name, read_features
from dunnage.noise import Noise
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.release_words import CELLS
from dunnage.schema import RIDER
from dunnage.text import number_text, percent, several
from dunnage.trips import Universe
from dunnage.verification.counts import check_counts

Progress = Callable[[str], None]

RIDER_TRIPS = 10
"""Trips of a rider who is attacked where only single trips are protected."""
FLOATING_DRAWS = 200_000
MOST_ZONES, MOST_STOPS = 12, 12
"""Rows and columns of a table of flows at most."""
_COUNT_LAWS: Mapping[str, Callable[[Fraction], CountLaw]] = {
    law.name: law for law in (DiscreteLaplace, RoundedLaplace, FlooredLaplace, FloatingLaplace)
}
_REST = "rest"
_ROUNDING = 1e-9
_KNOWS = "Somebody who knows all trips but"
NO_KEY = (
    "Without the key nothing ties these rows to this release: errors are right only if they are the rows that were "
    "published."
)
_SEES_ALL = " Who sees only what is made of the noisy counts can do no better."


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
    """A release of counts as anyone reads it."""

    release: Release  # The release
    universe: Universe  # All cells; zones and modes are not told
    cells: IntArray  # cells, counts: cells that were released with trips, rising, and how many
    counts: IntArray
    asked: tuple[AskedFeature, ...]  # The features that were asked with noise, cells first
    # By how much one protected unit can change the sums of a feature in all: the trips of a rider that are counted
    change: int

    @classmethod
    def of(cls, release: Release) -> CountsSight:
        """Read a release."""
        try:
            check_counts(release)
        except CheckFailed as failure:
            raise ReleaseError(f"the release does not say what it counts, or how: {failure}. Verify it.") from None
        cells, counts = release.counted()
        asked = _asked_of(release.certificate.body)
        return cls(
            release=release,
            universe=release.universe,
            cells=cells,
            counts=counts,
            asked=asked,
            change=int(asked[0].law.scale * asked[0].epsilon),
        )

    @property
    def mechanism(self) -> Mapping[str, Any]:
        """Name and parameters of the mechanism."""
        found: Mapping[str, Any] = self.release.certificate.body["mechanism"]
        return found

    @property
    def protects(self) -> str:
        """What is protected: one trip or one rider."""
        return str(self.release.certificate.body["guarantee"]["protects"])

    @property
    def cells_alone(self) -> bool:
        """Whether the noisy counts of cells themselves were released, those below a threshold left out."""
        return self.asked_cells.groups > 0 and "noise" in self.release.certificate.body["measures"]

    @property
    def asked_cells(self) -> AskedFeature:
        """The cells, as they were asked."""
        return self.asked[0]

    @property
    def threshold(self) -> int:
        """Fewest trips that are released in a cell."""
        return int(self.mechanism.get("threshold", 1))

    @property
    def floating(self) -> bool:
        """Whether noise was drawn in floating point."""
        return any(feature.law.name not in LAWS for feature in self.asked)

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        """What was asked, for membership."""
        return tuple(Answer(WholeLaw(item.law.name, item.law.scale), item.groups) for item in self.asked)

    @property
    def rider_trips(self) -> int | None:
        """Trips of a rider that were counted at most; None if that is not bounded."""
        return self.change if self.protects == RIDER else None

    @property
    def bunches(self) -> tuple[int, ...]:
        """Trips of the unit that is protected by type, when they are of as few types as can be."""
        bound, universe = self.release.certificate.body["measures"].get("contribution"), self.universe
        # By a column of their own, labels of days may be those of any date.
        if bound is None or bound["per"] != "day" or not universe.days or not universe.num_dates:
            return (self.change,)
        return tuple(bound["max"] * num for num in universe.num_dates)


def _asked_of(body: Mapping[str, Any]) -> tuple[AskedFeature, ...]:
    measures = body["measures"]
    alone = {"feature": CELLS, "groups": measures["cells"], "epsilon": body["guarantee"]["epsilon"]}
    rows = measures["features"] if "features" in measures else [{**alone, **measures["noise"]}]
    return tuple(
        AskedFeature(
            name=str(row["feature"]),
            groups=int(row["groups"]),
            epsilon=exact(row["epsilon"]),
            law=_COUNT_LAWS[row["law"]](exact(row["scale"])),
        )
        for row in rows
    )


def counts_outside_findings(sight: CountsSight, tell: Progress) -> tuple[list[Finding], list[str]]:
    """Find what follows from the release and public facts; return findings and notes."""
    tell("weighing all trips but one")
    findings = [_noise(sight, item) for item in sight.asked]
    notes: list[str] = []
    if sight.cells_alone:
        findings.append(_expected_created(sight))
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


def _noise(sight: CountsSight, item: AskedFeature) -> Finding:
    spread, total = item.law.spread, item.name == feature_name(())
    sums = "counts of cells" if item.name == CELLS else f"sums by {item.name}"
    what = "The total" if total else f"Each of the {item.groups:,} {sums}"
    return counted(
        f"noise ({item.name})",
        spread,
        0.0,
        f"{what} was given noise of {_trips(spread)} (standard deviation) before anything was made of it; without "
        "privacy it would be none.",
        unit="trips",
        topic="utility",
        private=False,
        details={"groups": item.groups, "law": item.law.name},
    )


def _trips(number: float) -> str:
    text = number_text(number)
    return f"{text} trip{'' if text == '1' else 's'}"


def _rounded_law(sight: CountsSight) -> CountLaw:
    """Return the law of whole noisy counts; of floating noise, that of the numbers it stands for."""
    name = str(sight.mechanism.get("rounding", "round")) if sight.floating else sight.asked_cells.law.name
    return _COUNT_LAWS[name](sight.asked_cells.law.scale)


def _expected_created(sight: CountsSight) -> Finding:
    most = surplus(_rounded_law(sight), sight.threshold) * sight.universe.num_cells
    return Finding(
        name="trips created, expected",
        value=most,
        interval=(0.0, most),
        baseline=0.0,
        unit="trips",
        sentence=f"Noise alone creates {_trips(round(most))} on average if all {sight.universe.num_cells:,} cells are "
        f"empty, and fewer the more are not; the release has {int(sight.counts.sum()):,} in all.",
        topic="utility",
        private=False,
    )


# What can be told about one trip, or one rider


def _membership(sight: CountsSight) -> Iterator[Finding]:
    """Say how well the best test does against what is protected: one trip, or a rider with trips of few types."""
    rider, trips, bunches = sight.protects == RIDER, sight.change, sight.bunches
    found = Membership.of(_moved(sight, item) for item in sight.asked)
    known = f"{_KNOWS} {'those of one rider' if rider else 'one'}"
    all_in_one = f" ({trips:,} of one type, the worst case)" if rider and trips > 1 else ""
    if len(bunches) > 1:
        all_in_one = f" ({several(trips, 'trip')}, at most {max(bunches):,} of one type, the worst case)"
    exact_words = (
        f" So it is for cells of at least {sight.threshold:,} trips."
        if sight.cells_alone and sight.threshold > 1
        else ""
    )
    yield _told_at_most(
        sight,
        "membership guess",
        found.success,
        0.5,
        f"{known}, and sees even the noisy counts, guesses whether {'they are' if rider else 'it is'} in the "
        f"data{all_in_one} right with {percent(found.success)}; without the release it is a coin toss."
        + (exact_words if sight.cells_alone else _SEES_ALL),
        unit="probability",
        details=_details(found),
    )
    yield _told_at_most(
        sight,
        "membership advantage",
        found.advantage,
        0.0,
        f"Of a hundred releases the best test says yes in {number_text(100 * found.advantage)} more where the "
        f"{sight.protects} is there than where not (total variation); 0 would tell nothing.",
    )
    yield _told_at_most(
        sight,
        "suspicion at its bound",
        found.share_at_largest,
        0.0,
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


def _told_at_most(
    sight: CountsSight, name: str, value: float, baseline: float, sentence: str, unit: str = "share", **more: Any
) -> Finding:
    """Give what noisy counts tell: exactly, where they were released; else no more is told than that."""
    # A released count tells as much as the noisy one where all that is left out says the same.
    return Finding(
        name=name,
        value=value,
        interval=(value if sight.cells_alone else baseline, value),
        baseline=baseline,
        unit=unit,
        sentence=sentence,
        topic="table",
        private=False,
        **more,
    )


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
    found = Membership.of([_moved(sight, sight.asked_cells, dropped=sight.threshold - 1)])
    yield counted(
        "membership guess, empty cell",
        found.success,
        0.5,
        f"For a {sight.protects} where nobody else travelled the guess is right with {percent(found.success)}, as "
        f"noisy counts below {sight.threshold:,} are left out.",
        unit="probability",
        topic="table",
        private=False,
        details=_details(found),
    )


def _riders(sight: CountsSight) -> Iterator[Finding]:
    """Say how a rider with several trips fares."""
    trips = sight.rider_trips or RIDER_TRIPS
    together = ("together", trips_together, trips, f"the {several(trips, 'trip')} of a rider, all of one type, are")
    apart = (
        "apart",
        trips_apart,
        trips,
        f"the {several(trips, 'trip')} of a rider, in as many cells and sums as can be, are",
    )
    one = ("all but one known", trips_together, 1, f"one trip of a rider of at most {trips:,}, the others known, is")
    bound = "" if sight.rider_trips else " No bound on trips of a rider was set: who has more is told more surely."
    for words, test, num, who in (apart, one) if sight.protects == RIDER else (together, apart):
        found = test(sight.answers, num)
        yield _told_at_most(
            sight,
            f"membership guess, rider of {trips:,}, {words}",
            found.success,
            0.5,
            f"Whether {who} in the data is guessed right with {percent(found.success)} at best." + bound,
            unit="probability",
            details=_details(found),
        )


def _bounds(sight: CountsSight) -> Iterator[Finding]:
    """Repeat what the certificate prints for a suspicion of one half."""
    for row in sight.release.certificate.body["meaning"]["odds"]:
        if row.get("before") == 0.5 and "at_most" in row:
            yield counted(
                "membership bound",
                float(row["at_most"]),
                0.5,
                f"The certificate promises that {row['sentence']}, whatever else is known; no guess can be right more "
                "often.",
                unit="probability",
                topic="table",
                private=False,
            )


def _unbounded(sight: CountsSight) -> list[Finding]:
    """Say that floating-point noise has no bound, and measure why."""
    scale = sight.asked_cells.law.scale
    told, draws = impossible_share(scale, FLOATING_DRAWS, Noise())
    share = told / draws
    kinds: dict[str, Any] = {"topic": "table", "private": False}
    return [
        Finding(
            name="membership bound",
            value=1.0,
            interval=(0.5, 1.0),
            baseline=0.5,
            unit="probability",
            sentence=f"No bound is proved for one {sight.protects}: noise was drawn in floating point, whose last "
            "digits tell what it was added to.",
            **kinds,
        ),
        Finding(
            name="values of one world only",
            value=share,
            interval=wilson(told, draws),
            baseline=0.0,
            unit="share",
            sentence=f"Of {draws:,} noisy counts of an empty cell, {percent(share)} are numbers that a cell with one "
            "trip can never give: who saw such a number would be certain. Only whole counts are released, which hides "
            "those digits; how much they still tell, nobody has proved.",
            details={"draws": draws},
            **kinds,
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
        """Count trips and put them beside the released counts."""
        truth = _truth(sight, data, key)
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


def _truth(sight: CountsSight, data: Dataset, key: Key | None) -> Counted:
    if key is not None and key.certificate_digest not in ("", sight.release.certificate.digest):
        raise ReleaseError("the key is that of another release. Give the key that was written beside this one.")
    if key is not None and not key.belongs_to(data):
        raise ReleaseError("the key was made from other rows. Give the data exactly as they were published.")
    return true_counts(data)


def columns_of(name: str) -> FeatureColumns:
    """Return the columns of a feature by its name."""
    return () if name == feature_name(()) else tuple(name.split(" x "))


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How far sums are off, over all of them."""

    rmse: float  # rmse, mae, largest: root of the mean square, mean size and largest size of errors
    mae: float
    largest: float

    @classmethod
    def of(cls, differences: NDArray[Any], size: int) -> Errors:
        """Measure differences; those that are not listed are zero, ``size`` counts all."""
        sizes = np.abs(differences.astype(np.float64))
        return cls(
            rmse=math.sqrt(float((sizes**2).sum()) / size),
            mae=float(sizes.sum()) / size,
            largest=float(sizes.max(initial=0.0)),
        )


def counts_inside_findings(case: CountsCase, tell: Progress) -> tuple[list[Finding], list[str]]:
    """Compare released counts with the truth; return findings and notes."""
    tell("comparing counts with the truth")
    findings = [*_cell_errors(case), *_totals(case), *_created(case)]
    findings += [_feature_error(case, Feature.of(case.universe, columns)) for columns in case.features]
    more, notes = _told_here(case)
    return findings + more, [*([NO_KEY] if case.key is None else []), *notes]


def _pair(
    name: str, where: str, differences: IntArray, nothing: IntArray, size: int, extra: Mapping[str, Any] | None = None
) -> Iterator[Finding]:
    """Give both errors of some cells, each by its name."""
    found, without = Errors.of(differences, size), Errors.of(nothing, size)
    parts = (
        ("RMSE", found.rmse, without.rmse, "by the root mean square, in which large errors weigh more"),
        ("MAE", found.mae, without.mae, "on average"),
    )
    for measure, value, baseline, words in parts:
        yield counted(
            f"{measure} {name}",
            value,
            baseline,
            f"{where} is off by {_trips(value)} {words}; publishing nothing would be off by {number_text(baseline)}.",
            unit="trips",
            topic="utility",
            private=True,
            details={"cells": size, "largest": found.largest, **(extra or {})},
        )


def _cell_errors(case: CountsCase) -> Iterator[Finding]:
    differences, occupied, size = case.released - case.true, case.true > 0, case.universe.num_cells
    num = int(occupied.sum())
    yield from _pair("per cell", f"A cell (of all {size:,})", differences, case.true, size)
    if num:
        where = f"A cell that has trips (of {num:,})"
        yield from _pair("in cells with trips", where, differences[occupied], case.true[occupied], num)
    if num < size:
        where = f"A cell that is empty in truth (of {size - num:,})"
        yield from _pair("in empty cells", where, differences[~occupied], case.true[~occupied], size - num)


def _totals(case: CountsCase) -> Iterator[Finding]:
    true, released = int(case.true.sum()), int(case.released.sum())
    off = f": off by {percent(abs(released - true) / true)}" if true else ""
    yield counted(
        "error of the total",
        abs(released - true),
        true,
        f"The release has {several(released, 'trip')}, the truth {true:,}{off}.",
        unit="trips",
        topic="utility",
        private=True,
        details={"true": true, "released": released},
    )
    # Without any trips there is no share of them: nothing is in common with a table that has some.
    apart = 1.0 if (true > 0) != (released > 0) else 0.0
    if true and released:
        apart = float(np.abs(case.true / true - case.released / released).sum()) / 2
    yield counted(
        "total variation distance",
        min(apart, 1.0),
        1.0,
        f"{percent(min(apart, 1.0))} of all trips would have to be of another type to make shares of types equal to "
        "the true ones; a table that shares nothing with the truth has 100 %.",
        unit="share",
        topic="utility",
        private=True,
        details={"flows": flows(case)},
    )


def _created(case: CountsCase) -> Iterator[Finding]:
    occupied = case.true > 0
    more = np.maximum(case.released - case.true, 0)
    created, added = int(more[~occupied].sum()), int(more[occupied].sum())
    cells, released = int((more[~occupied] > 0).sum()), int(case.released.sum())
    kept = int(np.minimum(case.released, case.true).sum())
    share = f", {percent(created / released)} of all" if released else ""
    yield counted(
        "trips created in empty cells",
        created,
        0.0,
        f"{several(created, 'trip')} of the release{share}, {'is' if created == 1 else 'are'} of types that nobody "
        f"travelled: in {several(cells, 'cell')}.",
        unit="trips",
        topic="utility",
        private=True,
        details={"cells": cells, "kept": kept, "added": added, "lost": int(case.true.sum()) - kept},
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
    return counted(
        f"RMSE of sums ({feature.name})",
        found.rmse,
        without.rmse,
        f"Each of the {feature.size:,} sums by {feature.name} is off by {_trips(found.rmse)} by the root mean square "
        f"(RMSE), {number_text(found.mae)} on average (MAE), at most by "
        f"{number_text(found.largest)}; publishing nothing would be off by {number_text(without.rmse)}." + told,
        unit="trips",
        topic="utility",
        private=True,
        details={
            "groups": feature.size,
            "mae": found.mae,
            "largest": found.largest,
            "baseline_mae": without.mae,
            "baseline_largest": without.largest,
            "noise": noise,
        },
    )


# Flows


def flows(case: CountsCase) -> dict[str, dict[str, Any]]:
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
    tables["stops"] = {
        **_flow_table(case, places[origins], places[destinations], names),
        "with_rest": len(top) < size,
    }
    return tables


def _flow_table(case: CountsCase, rows: NDArray[Any], columns: NDArray[Any], names: Sequence[str]) -> dict[str, Any]:
    groups, num = rows.astype(np.int64) * len(names) + columns, len(names)
    table: dict[str, Any] = {"names": list(names)}
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
    kinds: dict[str, Any] = {"topic": "table", "private": True, "baseline": 0.5, "unit": "probability"}
    return [
        Finding(
            name="membership guess on this release",
            value=right,
            interval=wilson(right * num, num),
            sentence=f"Asked in each of the {num:,} cells with trips about one of them, and about one more that is not "
            f"there, {_KNOWS.lower()} that one is right in {percent(right)} of all cases.",
            details=found,
            **kinds,
        ),
        Finding(
            name="suspicion on this release",
            value=mean,
            interval=(mean, mean),
            sentence=f"Of a trip that is there, a suspicion of one half became {percent(mean)} on average over cells, "
            f"and {percent(found['largest'])} at most; in {percent(found['at_bound'])} of the cells it reached its "
            "bound.",
            details=found,
            **kinds,
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
