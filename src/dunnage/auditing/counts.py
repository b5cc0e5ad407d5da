# SPDX-License-Identifier: Apache-2.0
"""Counts of trips: how far released counts are from the truth, and what they reveal to someone who knows all but one.

Errors compare with the truth and are private. They are counted over the whole universe of cells. Most cells are empty
in both tables and add nothing, so only cells with trips in either are visited. The baseline is to publish nothing: no
trips at all.

What a release reveals about one trip follows from the laws of the noise, which are released, by exact likelihoods. The
attacker compares two worlds: one with the trip (or the rider's trips) and one without. A noisy answer in which they
differ by ``shift`` is likelier in the one than in the other by some ratio. Noise on whole numbers with
``r = exp(-1 / scale)`` has geometric tails, in which that likelihood ratio does not change: so a few outcomes, the
*evidence* of an answer, stand for all of them and nothing is lost. Answers have independent noise, so the logarithms of
their ratios add up. Someone who sees less than the noisy answers can do no better: whatever is made from them reveals
at most as much.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.auditing import findings
from dunnage.auditing.classes import OTHER_KEY_ROWS
from dunnage.auditing.findings import Details, KeyFigure, Progress, RiderAtRisk, TripAtRisk, figure, wilson, words
from dunnage.errors import CheckFailed, ParameterError, ReleaseError
from dunnage.exact import exact, plain
from dunnage.kernels.counts import laplace
from dunnage.mechanisms.base import Mechanism
from dunnage.mechanisms.counts import (
    NAMED,
    Feature,
    FeatureColumns,
    feature_name,
    read_features,
    record_cells,
    true_counts,
)
from dunnage.model.certificate import FeatureNoise
from dunnage.model.guarantees import Basis, PureDP
from dunnage.model.schema import RIDER
from dunnage.model.trips import Universe
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.release.kinds import CELLS, DROPPED
from dunnage.tables.dataset import Dataset
from dunnage.text import large_percent, number_text, percent, plural
from dunnage.verification import check_release, mechanism_of

RIDER_TRIPS = 10  # Trips of the attacked rider where only single trips are protected
FLOATING_DRAWS = 200_000
MAX_ZONES, MAX_STOPS = 12, 12  # Rows and columns of a table of flows
MAX_RIDERS = 50  # Riders that are attacked exactly: those with most counted trips of one type
MAX_OUTCOMES = 1 << 22  # Outcomes of one half of the answers that are combined
LAWS = ("discrete", "round", "floor", "gaussian")
_COUNT_LAWS: Mapping[str, Callable[[Fraction], laplace.CountLaw]] = {
    law.name: law
    for law in (
        laplace.DiscreteLaplace,
        laplace.RoundedLaplace,
        laplace.FlooredLaplace,
        laplace.DiscreteGaussian,
        laplace.FloatingLaplace,
    )
}
_REST = "rest"
_REACHED = 9.0  # standard deviations of Gaussian noise; the chance to exceed them is below 1e-18
_ROUNDING = 1e-9
_SAME = 1e-12  # ratios this close are equal: they are sums of floats
_REACH = 8  # how far around the likeliest word others are tried; inversion is right to within two or three


# Laws of whole numbers, and the evidence that noisy answers give


@dataclass(frozen=True)
class WholeLaw:
    """A law of noise on counts: logarithms of its probabilities."""

    name: str  # `discrete`, `round` or `floor`
    scale: Fraction  # Its tails shrink by `exp(-1 / scale)` with each step

    @property
    def rate(self) -> float:
        """How much the logarithm of a probability falls with each step outwards."""
        return float(1 / self.scale)

    def log_mass(self, values: ArrayLike) -> FloatArray:
        values, rate = np.asarray(values, dtype=np.float64), self.rate
        if self.name == "discrete":
            return np.asarray(math.log(math.tanh(rate / 2)) - rate * np.abs(values))
        half = _log_complement(rate) - math.log(2)
        if self.name == "floor":
            return np.asarray(half - rate * np.maximum(values, -1 - values))
        return np.where(values == 0, _log_complement(rate / 2), half - rate * (np.abs(values) - 0.5))

    def log_below(self, values: ArrayLike) -> FloatArray:
        values = np.asarray(values, dtype=np.float64)
        lower = self._log_tail(self._mirrored(np.minimum(values, -1)))
        upper = np.log(-np.expm1(self._log_tail(np.maximum(values + 1, 1))))
        return np.where(values <= -1, lower, upper)

    def log_above(self, values: ArrayLike) -> FloatArray:
        return self.log_below(self._mirrored(np.asarray(values, dtype=np.float64)))

    def _mirrored(self, values: FloatArray) -> FloatArray:
        """Return the equally likely values on the other side of zero, or, for ``floor``, of minus one half."""
        return -1 - values if self.name == "floor" else -values

    def _log_tail(self, values: FloatArray) -> FloatArray:
        """Return the logarithm of the chance to reach each value, which is at least 1 (``floor``: 0)."""
        if self.name == "discrete":
            return np.asarray(-self.rate * values - math.log1p(math.exp(-self.rate)))
        return np.asarray(-self.rate * (values - (0.5 if self.name == "round" else 0.0)) - math.log(2))


def _log_complement(rate: float) -> float:
    return math.log(-math.expm1(-rate))


@dataclass(frozen=True, eq=False)
class Evidence:
    """What answers can say about two worlds; outcomes that say the same are merged."""

    ratios: FloatArray  # Logarithm of how much likelier each outcome is in the world with the trip, rising
    absent: FloatArray  # absent, present: probability of each outcome in the world without and with it
    present: FloatArray

    @classmethod
    def nothing(cls) -> Evidence:
        return cls(np.zeros(1), np.ones(1), np.ones(1))

    def __len__(self) -> int:
        return len(self.ratios)

    def joined(self, other: Evidence) -> Evidence:
        ratios = np.add.outer(self.ratios, other.ratios).reshape(-1)
        masses = [np.multiply.outer(getattr(self, name), getattr(other, name)) for name in ("absent", "present")]
        unit = _SAME * max(1.0, float(np.abs(ratios).max()))
        _, first, places = np.unique(np.rint(ratios / unit), return_index=True, return_inverse=True)
        absent, present = (np.bincount(places.reshape(-1), mass.reshape(-1)).astype(np.float64) for mass in masses)
        return Evidence(ratios[first], absent, present)


def noisy_answer(law: WholeLaw, shift: int = 1, *, dropped: int | None = None) -> Evidence:
    if shift < 1:
        raise ParameterError(f"the two worlds must differ by at least 1 trip. Got {shift}.")
    if law.name == "gaussian":
        spread = math.sqrt(law.scale)
        values = np.arange(-math.ceil(_REACHED * spread), math.ceil(_REACHED * spread) + shift + 1)
        logs = [-((values - by) ** 2) / (2 * float(law.scale)) for by in (0, shift)]
        masses = [np.exp(log) / np.exp(log).sum() for log in logs]
        return Evidence(np.asarray((values * shift - shift**2 / 2) / float(law.scale), np.float64), *masses)
    low = 0 if law.name == "discrete" else -1  # the highest value up to which probabilities grow by a constant factor
    low = low if dropped is None else max(low, dropped)
    high = max((law.name == "round") + shift, low + 1)  # the lowest from which they fall by one in either world
    inner = np.arange(low + 1, high)
    logs = [
        np.concatenate(([law.log_below(low - by)], law.log_mass(inner - by), [law.log_above(high - by)]))
        for by in (0, shift)
    ]
    return Evidence(logs[1] - logs[0], np.exp(logs[0]), np.exp(logs[1]))


class Membership(NamedTuple):
    # Total variation between the worlds: how much more often the best test says "with" when that is true
    advantage: float
    largest: float  # The largest logarithm of a ratio that can occur: the privacy loss
    share_at_largest: float  # How often it occurs if the trip is there

    @property
    def success(self) -> float:
        """How often the best test is right, from a suspicion of 50 %."""
        return (1 + self.advantage) / 2

    @property
    def suspicion(self) -> float:
        """What a suspicion of 50 % becomes at most; no test under this loss is right more often."""
        return float(posterior(self.largest))

    @property
    def details(self) -> dict[str, float]:
        return {
            "advantage": self.advantage,
            "loss": self.largest,
            "suspicion_at_most": self.suspicion,
            "share_at_most": self.share_at_largest,
        }

    @classmethod
    def of(cls, answers: Iterable[Evidence]) -> Membership:
        halves = [Evidence.nothing(), Evidence.nothing()]
        largest, share = 0.0, 1.0
        for answer in sorted(answers, key=len, reverse=True):
            largest, share = largest + float(answer.ratios[-1]), share * float(answer.present[-1])
            halves.sort(key=len)
            if len(halves[0]) * len(answer) > MAX_OUTCOMES:
                raise ParameterError(f"the answers have more than {MAX_OUTCOMES:,} outcomes. Use fewer features.")
            halves[0] = halves[0].joined(answer)
        one, other = halves
        # Outcomes that speak for the trip: for each one of one half, those of the other half that outweigh it.
        first = np.searchsorted(other.ratios, -one.ratios, side="right")
        absent, present = (np.append(np.cumsum(mass[::-1])[::-1], 0.0) for mass in (other.absent, other.present))
        gains = one.present * present[first] - one.absent * absent[first]
        advantage = min(1.0, max(0.0, math.fsum(gains.tolist())))  # the total variation between the worlds
        return cls(advantage, largest, share)


def posterior(ratio: ArrayLike, prior: float = 0.5) -> FloatArray:
    """Return what a suspicion becomes given evidence, the logarithm of a likelihood ratio."""
    return np.asarray(1 / (1 + (1 - prior) / prior * np.exp(-np.asarray(ratio, dtype=np.float64))))


class Answer(NamedTuple):
    law: WholeLaw  # Law of the noise on each of its sums
    groups: int  # How many sums it has


def trips_together(answers: Sequence[Answer], num: int) -> Membership:
    """Compute how well a rider with ``num`` trips of one type is detected: one sum of each feature moves."""
    return Membership.of(noisy_answer(answer.law, num) for answer in answers)


def trips_apart(answers: Sequence[Answer], num: int) -> Membership:
    """Compute how well a rider with trips as far apart as features allow is detected: each feature moves many sums."""
    moved = []
    for answer in answers:
        sums = min(num, answer.groups)
        each, rest = divmod(num, sums)
        moved += [noisy_answer(answer.law, each + 1)] * rest + [noisy_answer(answer.law, each)] * (sums - rest)
    return Membership.of(moved)


def released_ratios(law: WholeLaw, seen: IntArray, known: IntArray, threshold: int) -> FloatArray:
    """Return what each released count says about one more trip in its cell: logarithms of likelihood ratios."""
    above = seen - known
    cut = threshold - 1 - known
    return np.where(
        seen >= threshold, law.log_mass(above - 1) - law.log_mass(above), law.log_below(cut - 1) - law.log_below(cut)
    )


def impossible_share(scale: Fraction, draws: int, noise: Noise) -> tuple[int, int]:
    """Sample noisy zeros in floating point, and count those that a count of one can never become."""
    seen = laplace.floating_noise(noise_arrays.below(noise, 1 << laplace.FLOATING_BITS, draws), scale)
    return int((~reachable(seen, 1, scale)).sum()), draws


def reachable(seen: FloatArray, count: int, scale: Fraction) -> BoolArray:
    """Return whether a count plus floating-point noise can be exactly each of some values."""
    # The nearest words are tried. A value counts as out of reach only if it lies between the results of two of them:
    # every other word gives a lower or a higher one.
    wanted = seen - count
    size = -np.expm1(-np.abs(wanted) / float(scale)) / 2
    nearest = np.rint((0.5 + np.sign(wanted) * size) * 2.0**laplace.FLOATING_BITS - 0.5).astype(np.int64)
    hit, lower, higher = (np.zeros(len(seen), dtype=bool) for _ in range(3))
    for step in range(-_REACH, _REACH + 1):
        given = count + laplace.floating_noise(np.clip(nearest + step, 0, (1 << laplace.FLOATING_BITS) - 1), scale)
        hit |= given == seen
        lower |= given < seen
        higher |= given > seen
    return hit | ~lower | ~higher


# What the release tells, and what is true


class NoisyFeature(NamedTuple):
    name: str  # name, groups: what it distinguishes, and how many sums it has
    groups: int
    law: laplace.CountLaw  # Law of the noise on each sum


@dataclass(frozen=True, eq=False)
class CountsView:
    """A release of counts as anyone reads it."""

    release: Release
    universe: Universe  # All cells; zones and modes are not released
    cells: IntArray  # cells, counts: cells that were released with trips, rising, and how many
    counts: IntArray
    noisy: tuple[NoisyFeature, ...]  # The features that were measured with noise, cells first

    @classmethod
    def of(cls, release: Release) -> CountsView:
        try:
            check_release(release)
        except CheckFailed as failure:
            raise ReleaseError(f"the release does not state what it counts, or how: {failure}. Verify it.") from None
        guarantee, measures = release.certificate.guarantee, release.certificate.counts
        rows, noise = measures.features or [], measures.noise
        if noise is not None and isinstance(guarantee, PureDP):  # cells alone
            other = exact(measures.correction.epsilon) if measures.correction is not None else Fraction(0)
            epsilon, scale = plain(guarantee.epsilon - other), noise.scale
            rows = [FeatureNoise(feature=CELLS, groups=measures.cells, epsilon=epsilon, scale=scale, law=noise.law)]
        noisy = [NoisyFeature(r.feature, r.groups, _COUNT_LAWS[r.law](exact(r.scale))) for r in rows]
        return cls(release, release.universe, *release.counted(), tuple(noisy))

    @cached_property
    def mechanism(self) -> Mechanism:
        return mechanism_of(self.release.certificate)

    @property
    def protects(self) -> str:
        return self.release.certificate.guarantee.protects

    @property
    def change(self) -> int:
        """How much one protected unit can change the sums of a feature in total: the counted trips of a rider."""
        bound = self.release.certificate.counts.contribution
        return 1 if bound is None else bound.max * (bound.days or 1)

    @property
    def cells_alone(self) -> bool:
        """Whether the release has the noisy counts of cells themselves, without those below a threshold."""
        return self.noisy[0].groups > 0 and self.release.certificate.counts.noise is not None

    @property
    def threshold(self) -> int:
        return int(getattr(self.mechanism, "threshold", 1))

    @property
    def floating(self) -> bool:
        return any(feature.law.name not in LAWS for feature in self.noisy)

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        """The noisy features and, if counts are corrected for dropped trips, the noisy sum of kept trips."""
        answers = [Answer(WholeLaw(item.law.name, item.law.scale), item.groups) for item in self.noisy]
        if (stated := self.release.certificate.counts.correction) is not None:
            answers.append(Answer(WholeLaw(stated.law, exact(stated.scale)), 1))
        return tuple(answers)

    @property
    def bunches(self) -> tuple[int, ...]:
        """Trips of the protected unit by type, when they are of as few types as possible."""
        bound, universe = self.release.certificate.counts.contribution, self.universe
        if bound is not None and bound.per_cell is not None and bound.per_cell < self.change:
            whole, rest = divmod(self.change, bound.per_cell)
            return (*[bound.per_cell] * whole, *([rest] if rest else []))
        # If days have a column of their own, its labels may belong to any date.
        if bound is None or bound.per != "day" or universe.time is None or universe.time.day is None:
            return (self.change,)
        dates = universe.time.num_dates(self.release.certificate.period)
        return tuple(bound.max * num for num in dates) or (self.change,)

    @property
    def odds(self) -> str:
        rows = self.release.certificate.meaning.odds
        return next((row.sentence for row in rows if row.before == 0.5 and row.sentence), "no bound is proved")


@dataclass(frozen=True, eq=False, repr=False)
class CountsTruth:
    """Released and true counts of the cells that have either. Private."""

    view: CountsView
    data: Dataset
    key: Key | None  # The key, if it is available
    universe: Universe  # All cells, with zones and modes
    cells: IntArray  # Cells that have trips in truth or in the release, rising
    true: IntArray  # true, released: how many each has
    released: IntArray

    @classmethod
    def of(cls, view: CountsView, data: Dataset, key: Key | None) -> CountsTruth:
        if key is not None and key.certificate_digest not in ("", view.release.certificate.digest):
            raise ReleaseError("the key belongs to another release. Give the key that was written beside this one.")
        truth = true_counts(data)
        # The key of trips that were counted elsewhere has a digest of their counts.
        if key is not None and not key.belongs_to(data) and key.input_digest != truth.keyed_digest(key.salt):
            raise ReleaseError(OTHER_KEY_ROWS)
        cells = np.union1d(view.cells, truth.cells)
        true, released = np.zeros(len(cells), dtype=np.int64), np.zeros(len(cells), dtype=np.int64)
        true[np.searchsorted(cells, truth.cells)] = truth.counts
        released[np.searchsorted(cells, view.cells)] = view.counts
        return cls(view, data, key, truth.universe, cells, true, released)

    @cached_property
    def places(self) -> tuple[IntArray, IntArray]:  # pair and slot of each cell
        return self.universe.split(self.cells)

    @property
    def features(self) -> Iterator[FeatureColumns]:
        """The features to compare besides the total: those that were measured, then those of the paper."""
        measured = [columns_of(item.name) for item in self.view.noisy if item.name != CELLS]
        named: list[FeatureColumns] = [(name,) for name in self.universe.columns]
        if self.universe.of_trips:
            named = [columns for name in NAMED for columns in read_features(name, days=self.data.schema.tells_days)]
        for columns in dict.fromkeys([*measured, *named]):
            if columns and set(columns) <= set(self.universe.columns):
                yield columns


_OF_RECORDS = (
    ("where nobody else travelled", "of a type that nobody else has"),
    ("nobody travelled", "nobody has"),
    ("made the same trip", "have the same labels"),
)


def in_units(text: str, unit: str) -> str:
    """Write what is said of trips and riders for other records, and for persons with several of them."""
    for trips, records in _OF_RECORDS:
        text = text.replace(trips, records)
    of = {"trip": unit, "trips": plural(unit), "rider": "person", "riders": "persons"}
    of |= {word.capitalize(): own.capitalize() for word, own in of.items()}
    return re.sub(r"\b[Tt]rips?\b|\b[Rr]iders?\b", lambda found: of[found[0]], text)


def columns_of(name: str) -> FeatureColumns:
    return () if name == feature_name(()) else tuple(name.split(" x "))


# Figures that follow from the release alone


def view_figures(view: CountsView, tell: Progress) -> tuple[list[KeyFigure], list[str]]:
    """Compute what follows from the release and public facts; return figures and notes."""
    tell("attacking with all trips but one")
    figures: list[KeyFigure] = []
    notes: list[str] = []
    for item in view.noisy:
        sums = words("sums of cells") if item.name == CELLS else words("sums by", name=item.name)
        what = words("total") if item.name == feature_name(()) else words("each of", groups=item.groups, sums=sums)
        details = {"groups": item.groups, "law": item.law.name}
        facts: dict[str, object] = {"name": item.name, "what": what, "off": _trips(item.law.spread)}
        figures.append(figure("noise ({name})", item.law.spread, 0.0, None, details, **facts))
    if view.cells_alone:
        # For floating-point noise, the law of the whole numbers that it stands for.
        law, cells = view.noisy[0].law, view.universe.num_cells
        name = str(getattr(view.mechanism, "rounding", "round")) if view.floating else law.name
        most, trips = laplace.surplus(_COUNT_LAWS[name](law.scale), view.threshold) * cells, int(view.counts.sum())
        facts = {"cells": cells, "trips": trips, "off": _trips(round(most))}
        figures.append(figure("trips created, expected", most, 0.0, (0.0, most), **facts))
    if view.floating:
        # Floating-point noise has no bound; measure the reason.
        certain, draws = impossible_share(view.noisy[0].law.scale, FLOATING_DRAWS, Noise())
        unbounded = figure("membership bound | none", 1.0, 0.5, (0.5, 1.0))
        key, interval = "values of one world only", wilson(certain, draws)
        return [unbounded, figure(key, certain / draws, 0.0, interval, {"draws": draws}), *figures], notes
    if view.release.certificate.basis is Basis.VOID:
        notes.append(words("seeded"))
    for attack in (_membership, _empty_cell, _riders):
        try:
            figures += attack(view)
        except ParameterError as error:
            notes.append(words("not all computed", record=view.protects, error=error))
    for row in view.release.certificate.meaning.odds:  # what the certificate states for a suspicion of 50 %
        if row.before == 0.5 and row.at_most is not None:
            figures.append(figure("membership bound", row.at_most, 0.5, odds=row.sentence, record=view.protects))
    return figures, list(dict.fromkeys(notes))


def _trips(number: float) -> str:
    """Write a number of trips for a person; one that reads as 1 is singular."""
    text = number_text(number)
    return f"{text} trip{'' if text == '1' else 's'}"


def _membership(view: CountsView) -> Iterator[KeyFigure]:
    """Compute how well the best test does against the protected unit: one trip, or a rider with trips of few types."""
    rider, trips, bunches = view.protects == RIDER, view.change, view.bunches
    evidence = [_moved(view, item) for item in view.noisy]
    if (stated := view.release.certificate.counts.correction) is not None:  # its sums see more trips of a rider
        law = view.answers[-1].law
        evidence += [noisy_answer(law, trips), noisy_answer(law, stated.total_max - trips)]
    best = Membership.of(evidence)
    worst = words("all of one type", trips=trips) if rider and trips > 1 else ""
    if len(bunches) > 1:
        worst = words("most of one type", trips=trips, most=max(bunches))
    sees = words("no better")
    if view.cells_alone:
        sees = words("cells of at least", threshold=view.threshold) if view.threshold > 1 else ""
    unit = {"one": "those of one rider", "are": "they are"} if rider else {"one": "one", "are": "it is"}
    yield _at_most(view, "membership guess", best.success, 0.5, best.details, worst=worst, sees=sees, **unit)
    yield _at_most(view, "membership advantage", best.advantage, 0.0, {}, more=100 * best.advantage)
    yield _at_most(view, "suspicion at its bound", best.share_at_largest, 0.0, {}, suspicion=best.suspicion)


def _empty_cell(view: CountsView) -> Iterator[KeyFigure]:
    """Compute what a released count reveals where nobody else travelled: less, as small noisy counts are left out."""
    if view.cells_alone:
        test = Membership.of([_moved(view, view.noisy[0], dropped=view.threshold - 1)])
        yield figure("membership guess, empty cell", test.success, 0.5, None, test.details, threshold=view.threshold)


def _moved(view: CountsView, item: NoisyFeature, *, dropped: int | None = None) -> Evidence:
    """Return what the sums of a feature reveal about one unit with trips of as few types as possible."""
    by_day = item.name == CELLS or "day" in columns_of(item.name)
    law, evidence = WholeLaw(item.law.name, item.law.scale), Evidence.nothing()
    for trips in view.bunches if by_day else (view.change,):
        evidence = evidence.joined(noisy_answer(law, trips, dropped=dropped))
    return evidence


def _at_most(view: CountsView, key: str, value: float, baseline: float, details: Details, **facts: object) -> KeyFigure:
    """Make a figure of noisy counts: exact where they were released, otherwise an upper bound."""
    # A released count reveals as much as the noisy one if all counts that are left out say the same.
    return figure(key, value, baseline, (value if view.cells_alone else baseline, value), details, **facts)


def _riders(view: CountsView) -> Iterator[KeyFigure]:
    rider = view.protects == RIDER  # otherwise nothing bounds the trips of a rider
    trips = view.change if rider else RIDER_TRIPS
    together = ("together", trips_together, trips, "rider together")
    apart = ("apart", trips_apart, trips, "rider apart")
    one = ("all but one known", trips_together, 1, "rider, one trip")
    bound = "" if rider else words("no bound on trips")
    protect = words("protect riders") if view.universe.of_trips and not rider else ""
    for how, tested, num, who in (apart, one) if rider else (together, apart):
        test = tested(view.answers, num)
        facts = {"trips": trips, "how": how, "who": words(who, trips=trips), "bound": bound, "protect": protect}
        yield _at_most(view, "membership guess, rider of {trips:,}, {how}", test.success, 0.5, test.details, **facts)


# Figures that take the truth


class Errors(NamedTuple):
    rmse: float  # rmse, mae, largest: root of the mean square, mean size and largest size of errors
    mae: float
    largest: float

    @classmethod
    def of(cls, differences: NDArray[Any], size: int) -> Errors:
        sizes = np.abs(differences.astype(np.float64))
        rmse = math.sqrt(float((sizes**2).sum()) / size)
        return cls(rmse, float(sizes.sum()) / size, float(sizes.max(initial=0.0)))


def truth_figures(truth: CountsTruth, tell: Progress) -> tuple[list[KeyFigure], list[str]]:
    """Compare counts with the truth: by cell, in total, by feature, and for single trips."""
    tell("comparing counts with the truth")
    differences, occupied, size = truth.released - truth.true, truth.true > 0, truth.universe.num_cells
    num, everywhere = int(occupied.sum()), np.ones_like(occupied)
    figures: list[KeyFigure] = []
    parts = (
        ("per cell", everywhere, size),
        ("in cells with trips", occupied, num),
        ("in empty cells", ~occupied, size - num),
    )
    for where, chosen, many in parts:
        if many:
            errors, without = Errors.of(differences[chosen], many), Errors.of(truth.true[chosen], many)
            details, cell = {"cells": many, "largest": errors.largest}, words(where, num=many)
            for key, off, blind in (("RMSE", errors.rmse, without.rmse), ("MAE", errors.mae, without.mae)):
                facts = {"where": where, "cell": cell, "off": _trips(off)}
                figures.append(figure(f"{key} {{where}}", off, blind, None, details, **facts))
    true, released = int(truth.true.sum()), int(truth.released.sum())
    share_off = f": off by {percent(abs(released - true) / true)}" if true else ""
    totals: dict[str, object] = {"true": true, "released": released}
    figures.append(figure("error of the total", abs(released - true), true, None, totals, off=share_off))
    # A table without trips has nothing in common with one that has some.
    apart = 1.0 if (true > 0) != (released > 0) else 0.0
    if true and released:
        apart = min(float(np.abs(truth.true / true - truth.released / released).sum()) / 2, 1.0)
    figures.append(figure("total variation distance", apart, 1.0, None, {"flows": flows(truth)}))
    added_trips = np.maximum(differences, 0)
    created, added = int(added_trips[~occupied].sum()), int(added_trips[occupied].sum())
    kept = int(np.minimum(truth.released, truth.true).sum())
    share = f", {percent(created / released)} of all" if released else ""
    cells = int((added_trips[~occupied] > 0).sum())
    created_details = {"cells": cells, "kept": kept, "added": added, "lost": true - kept}
    created_facts = {"share": share, "are": "is" if created == 1 else "are"}
    figures.append(figure("trips created in empty cells", created, 0.0, None, created_details, **created_facts))
    noise_on = {item.name: item.law.spread for item in truth.view.noisy}
    for columns in truth.features:
        feature = Feature.of(truth.universe, columns)
        errors = Errors.of(feature.listed_sums(*truth.places, differences), feature.size)
        without = Errors.of(feature.listed_sums(*truth.places, truth.true), feature.size)
        noise = noise_on.get(feature.name)
        noise_note = words("noise on each", noise=noise) if noise is not None else words("not measured")
        more = {
            "groups": feature.size,
            "mae": errors.mae,
            "largest": errors.largest,
            "baseline_mae": without.mae,
            "baseline_largest": without.largest,
            "noise": noise,
        }
        facts = {"name": feature.name, "off": _trips(errors.rmse), "noise_note": noise_note}
        figures.append(figure("RMSE of sums ({name})", errors.rmse, without.rmse, None, more, **facts))
    attacks, notes = _on_this_release(truth)
    wrong = int(np.abs(differences).sum())
    useless = [words("counts worse than none", share=large_percent(wrong / true))] if wrong >= true > 0 else []
    return figures + attacks, [*useless, *([words("no key for counts")] if truth.key is None else []), *notes]


def flows(truth: CountsTruth) -> dict[str, dict[str, object]]:
    """Return tables of true and released trips between zones, and between the busiest stops (or counted zones)."""
    size, city = len(truth.universe.stops), truth.universe.city
    if not truth.universe.arrives:  # boardings go nowhere
        return {}
    origins, destinations = truth.universe.pair_ends(truth.places[0])

    def table(rows: NDArray[Any], columns: NDArray[Any], names: Sequence[str]) -> dict[str, object]:
        groups, num = rows.astype(np.int64) * len(names) + columns, len(names)
        sums = np.zeros((2, num * num), dtype=np.int64)
        for own, counts in zip(sums, (truth.true, truth.released), strict=True):
            np.add.at(own, groups, counts)
        true, released = sums.reshape(2, num, num).tolist()
        return {"names": list(names), "true": true, "released": released}

    tables = {}
    if city is not None and city.zones is not None and 1 < len(city.zone_names) <= MAX_ZONES:
        tables["zones"] = table(city.zones[origins], city.zones[destinations], city.zone_names)
    busy = np.bincount(origins, truth.true, size) + np.bincount(destinations, truth.true, size)
    top = np.sort(np.argsort(-busy, kind="stable")[: size if size <= MAX_STOPS else MAX_STOPS - 1])
    places = np.full(size, len(top))
    places[top] = np.arange(len(top))
    names = [truth.universe.stops[stop] for stop in top] + ([_REST] if len(top) < size else [])
    tables[f"{truth.universe.level}s"] = {
        **table(places[origins], places[destinations], names),
        "with_rest": len(top) < size,
    }
    return tables


def _on_this_release(truth: CountsTruth) -> tuple[list[KeyFigure], list[str]]:
    """Attack one trip of each cell, and one more like it, with the released counts."""
    view = truth.view
    if not view.cells_alone or view.floating or not truth.true.any():
        return [], []
    dropped = truth.key.facts.get(DROPPED, 0) if truth.key is not None else None
    corrected = view.release.certificate.counts.correction is not None
    if view.protects == RIDER and (dropped != 0 or corrected):
        return [], [words("trips left out")]
    details = weighed_by_counts(view, truth.released[truth.true > 0], truth.true[truth.true > 0])
    num, mean, right = int((truth.true > 0).sum()), details["mean"], details["right"]
    guess = figure("membership guess on this release", right, 0.5, wilson(right * num, num), details, num=num)
    return [guess, figure("suspicion on this release", mean, 0.5, (mean, mean), details)], []


def weighed_by_counts(view: CountsView, seen: IntArray, true: IntArray) -> dict[str, float]:
    """Weigh one trip of each cell, and one more that is not there, by the released counts."""
    law = view.answers[0].law
    there, missing = (released_ratios(law, seen, known, view.threshold) for known in (true - 1, true))
    suspicion = posterior(there)
    # 1 where the evidence speaks for a trip, 0 where it speaks against, one half where it does neither.
    says_yes, says_too = (np.where(np.abs(ratios) < _ROUNDING, 0.5, ratios > 0) for ratios in (there, missing))
    return {
        "mean": float(suspicion.mean()),
        "largest": float(suspicion.max()),
        "at_bound": float((there >= law.rate * (1 - _ROUNDING)).mean()),
        "right": float((says_yes + 1 - says_too).mean() / 2),
    }


# Trips and riders most at risk


def at_risk(truth: CountsTruth) -> tuple[list[TripAtRisk] | list[RiderAtRisk], str]:
    """List the trips or riders that a release of counts reveals most about, and say what that means."""
    view, true, released = truth.view, truth.true, truth.released
    if view.floating:
        return [], words("nobody: floating", record=view.protects)
    if view.protects == RIDER:
        return _riders_at_risk(truth)
    if not view.cells_alone or not true.any():
        return [], words("nobody: many sums", record=view.protects, odds=view.odds)
    # The trips that this very release reveals most about; of equal ones the rarest types come first.
    ratios = released_ratios(view.answers[0].law, released, true - 1, view.threshold)
    suspicion = np.where(true > 0, posterior(ratios), 0.0)
    cells = record_cells(truth.data, truth.universe)
    place = np.minimum(np.searchsorted(truth.cells, cells), len(truth.cells) - 1)
    made = (truth.cells[place] == cells) & (true[place] > 0)  # a line may count no trip
    rows, place = np.flatnonzero(made), place[made]
    source, chances, alike = truth.data.source_rows[rows], suspicion[place], true[place]
    order = np.lexsort((source, alike, -chances.round(12)))[: findings.MAX_AT_RISK]
    columns = (part[order].tolist() for part in (source, chances, alike, released[place]))
    listed = [
        TripAtRisk(source_row=row, suspicion=chance, alike=own, released=shown)
        for row, chance, own, shown in zip(*columns, strict=True)
    ]
    return listed, words("trips at risk", record=view.protects, odds=view.odds)


def _riders_at_risk(truth: CountsTruth) -> tuple[list[RiderAtRisk], str]:
    """List the riders that are easiest to detect by the types of their trips, whatever the noise."""
    persons, view = truth.data.persons, truth.view
    if persons is None:
        return [], words("nobody: no person")
    cells = record_cells(truth.data, truth.universe)
    chances: dict[tuple[tuple[int, ...], ...], float] = {}
    listed = []
    try:
        for rows in _bunched(persons, cells, view.change):
            own, moves = cells[rows], []  # how much the sums of each feature differ with and without these trips
            places = truth.universe.split(own)
            for item in view.noisy:
                groups = own
                if item.name != CELLS:
                    groups = Feature.of(truth.universe, columns_of(item.name)).groups(*places)
                moves.append(tuple(sorted(np.unique(groups, return_counts=True)[1].tolist())))
            moved = (*moves, (len(rows),))[: len(view.answers)]
            if moved not in chances:
                chances[moved] = rider_guess(view, moved)
            first, types = int(truth.data.source_rows[rows].min()), len(np.unique(own))
            listed.append(RiderAtRisk(source_row=first, guess=chances[moved], trips=len(rows), types=types))
    except ParameterError as error:
        return [], words("nobody: too much", error=error)
    listed.sort(key=lambda rider: (-round(rider.guess, 12), rider.source_row))
    return listed[: findings.MAX_AT_RISK], words("riders at risk", record=view.protects, odds=view.odds)


def _bunched(persons: IntArray, cells: IntArray, most: int) -> Iterator[IntArray]:
    """Yield the counted trips of the riders with most of one type; if some do not count, of few types."""
    order = np.lexsort((cells, persons))
    starts = np.flatnonzero(np.diff(persons[order], prepend=-1))
    # pair : (rider, type), rising; its trips
    fresh = np.flatnonzero((np.diff(persons[order], prepend=-1) != 0) | (np.diff(cells[order], prepend=-1) != 0))
    sizes = np.diff(np.append(fresh, len(order)))
    largest = np.maximum.reduceat(sizes, np.searchsorted(fresh, starts))
    trips = np.diff(np.append(starts, len(order)))
    best = np.lexsort((starts, -np.minimum(trips, most), -np.minimum(largest, most)))[:MAX_RIDERS]
    for rider in best.tolist():
        rows = order[starts[rider] : starts[rider] + trips[rider]]
        _, kind, num = np.unique(cells[rows], return_inverse=True, return_counts=True)
        yield np.asarray(rows[np.lexsort((kind, -num[kind]))][:most])


def rider_guess(view: CountsView, moved: tuple[tuple[int, ...], ...]) -> float:
    """Return how often the best test is right about trips that move the sums of each feature by these shifts."""
    pairs = zip(view.answers, moved, strict=True)
    return Membership.of(noisy_answer(item.law, shift) for item, shifts in pairs for shift in shifts).success
