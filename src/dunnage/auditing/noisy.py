# SPDX-License-Identifier: Apache-2.0
"""Attacks on noisy rows, and what noise cost: stated by the corrected eq. 30, counted on the truth, simulated.

The attacker knows the public and true values of one record and the law of the noise, and names the row that is most
likely by ``dunnage.planning.linkage``. The posterior of that guess (stated) and how often the guess is right (counted)
agree on data that are spread as the attacker believes, evenly over the public domain; on other data they may differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.auditing import findings
from dunnage.auditing.classes import NEITHER, OTHER_ROWS, PublicValues
from dunnage.auditing.findings import KeyFigure, Progress, RecordAtRisk, figure, mean_interval, wilson, with_unit, words
from dunnage.auditing.plans import noisy_interval, truck_figures, without_release
from dunnage.errors import ParameterError, ReleaseError
from dunnage.model.domains import Numeric, domain_from
from dunnage.noise.source import Noise
from dunnage.planning.linkage import NoisyRows, noisy_linkage
from dunnage.planning.plan import Plan
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.settle import matched_records
from dunnage.tables.dataset import Dataset
from dunnage.text import percent

# Pairs of a record and a row that one figure compares; if there are more, some evenly chosen records are attacked
MAX_PAIRS = 20_000_000
MAX_DRAWN_PAIRS = 10_000_000
MIN_DRAWS, MAX_DRAWS = 5, 200
LEFT_OUT = ", left out"


# What the attacker sees, and what is true


@dataclass(frozen=True, eq=False)
class NoisyView:
    """Noisy rows as an attacker reads them."""

    release: Release
    domains: Mapping[str, Numeric]  # The public domain of each noisy column
    public: PublicValues  # The combinations of public values, row by row
    rows: NoisyRows | None  # The noisy rows with their laws; None if the release does not state the laws

    @classmethod
    def of(cls, release: Release) -> NoisyView:
        measures = release.certificate.rows
        names = list(measures.noise or measures.published_intervals or {})
        stated = [(name, release.attributes[name].domain or {}) for name in names if name in release.bounded]
        numeric = {name: domain for name, own in stated if isinstance(domain := domain_from(own), Numeric)}
        if not names or set(numeric) != set(names):
            raise ParameterError(NEITHER.format(release.certificate.guarantee.model))
        public = PublicValues.of(release, np.arange(len(release)))
        return cls(release, numeric, public, NoisyRows.of(release, public.of_class))

    @cached_property
    def positions(self) -> IntArray:
        return np.arange(len(self.release)) if self.rows is None else self.rows.rows

    @property
    def label(self) -> str:
        """The ending of the names of findings: empty, unless noisy rows stand beside classes."""
        return "" if self.release.classes is None else LEFT_OUT

    @property
    def baseline(self) -> float:
        strata = self.public.of_class[self.positions]
        return len(np.unique(strata)) / max(len(strata), 1)

    def column(self, name: str) -> FloatArray:
        if name not in self.release.data.column_names and self.rows is not None:  # only intervals were released
            axis = self.rows.names.index(name)
            return self.rows.cells[axis].domain.grid_values(self.rows.steps[axis])
        values = self.release.data.column(name).combine_chunks().to_numpy(zero_copy_only=False)
        return np.asarray(values, dtype=np.float64)[self.positions]

    @property
    def known(self) -> str:
        values = [*(["the public values"] if self.public.columns else []), *self.domains]
        return ", ".join(values[:-1]) + (" and " if values[1:] else "") + values[-1]


@dataclass(frozen=True, eq=False)
class NoisyTruth:
    """Noisy rows and the true records they were made from. Private."""

    view: NoisyView
    data: Dataset
    records: IntArray  # The attacked records: those with noisy rows, or, without the key, all
    true_row: IntArray | None  # Place of each record's row among the noisy ones; None without the key
    stratum: IntArray  # Number of each record's public values

    @classmethod
    def of(cls, view: NoisyView, data: Dataset, key: Key | None) -> NoisyTruth:
        if view.release.classes is None and len(data) != len(view.release):
            raise ReleaseError(OTHER_ROWS)
        stratum = view.public.of_records(view.release, data, tuple(view.domains))
        if key is None:
            return cls(view, data, np.arange(len(data)), None, stratum)
        records = matched_records(data, view.release, key)[view.positions]
        return cls(view, data, records, np.arange(len(records)), stratum[records])

    @cached_property
    def values(self) -> FloatArray:
        """True values of the records. Shape: columns, records."""
        return np.array([self.data.numbers(name)[self.records] for name in self.view.domains])

    @cached_property
    def steps(self) -> IntArray:
        """Grid steps of the true values. Shape: columns, records."""
        assert self.view.rows is not None
        return self.view.rows.steps_of(dict(zip(self.view.domains, self.values, strict=True)))

    def some(self, max_pairs: int) -> IntArray:
        """Choose records evenly, few enough that there are at most ``max_pairs`` pairs with rows."""
        num = len(self.records)
        chosen = min(num, max(1, max_pairs // max(len(self.view.positions), 1)))
        return np.arange(chosen) * num // chosen

    def attack(self, some: IntArray, *, as_printed: bool = False, truck: IntArray | None = None) -> RowAttack:
        """Attack some of the records; without the key no guess counts as right."""
        assert self.view.rows is not None
        true_row = np.full(len(some), -1) if self.true_row is None else self.true_row[some]
        steps, stratum = self.steps[:, some], self.stratum[some]
        return attack_rows(self.view.rows, steps, stratum, true_row, as_printed=as_printed, truck=truck)


class RowAttack(NamedTuple):
    stated: FloatArray  # The posterior of the best guess
    hit: FloatArray  # How likely the guess is right; ties are broken at random
    on_truth: FloatArray  # The posterior of the true row
    truck_hit: FloatArray  # How likely the named truck is right, if there is a plan


def attack_rows(
    rows: NoisyRows,
    steps: IntArray,  # Grid steps of the true values. Shape: columns, records
    stratum: IntArray,
    true_row: IntArray,  # Place of each record's row among the noisy ones; private
    *,
    as_printed: bool = False,  # Use eq. 30 as printed
    truck: IntArray | None = None,  # Truck of each row, to name those too
) -> RowAttack:
    """Name a row for each record by its true values, and count how often that is right."""
    result = RowAttack(*np.zeros((4, len(true_row))))
    for part in rows.segments(steps, rows.group_of(steps, stratum), by=truck, as_printed=as_printed):
        chance = part.probabilities
        is_true = part.rows == np.repeat(true_row[part.truths], part.lengths)
        result.stated[part.truths] = np.maximum.reduceat(chance, part.starts)
        result.hit[part.truths] = _best_is_true(chance, is_true, part.starts)
        result.on_truth[part.truths] = np.add.reduceat(np.where(is_true, chance, 0.0), part.starts)
        if truck is not None:
            sums, of_sum, begins = part.by_truck(truck)
            lengths = np.diff(np.append(begins, len(sums)))
            is_its = of_sum == np.repeat(truck[true_row[part.truths]], lengths)
            result.truck_hit[part.truths] = _best_is_true(sums, is_its, begins)
    return result


def _best_is_true(chances: FloatArray, is_true: BoolArray, starts: IntArray) -> FloatArray:
    """Return, by record, how likely the guess of highest chance is right; ties are broken at random."""
    lengths = np.diff(np.append(starts, len(chances)))
    is_best = chances == np.repeat(np.maximum.reduceat(chances, starts), lengths)
    ties = np.add.reduceat(is_best.astype(np.int64), starts)
    return np.asarray(np.add.reduceat((is_best & is_true).astype(np.float64), starts) / ties)


def _alike(probability: float) -> dict[str, float]:
    return {"k_alike": 1 / probability} if probability > 0 else {}  # k of a k-anonymous release that is no better


def _mean(numbers: FloatArray) -> float:
    return math.fsum(numbers.tolist()) / len(numbers)


# Figures that follow from the release alone


def view_figures(view: NoisyView, plan: Plan | None, tell: Progress) -> Iterator[KeyFigure]:
    """Compute how likely a row is named by the release alone, and how wide intervals are."""
    if not len(view.positions):
        return
    if view.rows is not None:
        tell("comparing rows with every possible value")
        part = view.release
        if len(view.positions) < len(part):
            part = Release(certificate=part.certificate, data=part.data.take(view.positions))
        linkage = noisy_linkage(part, np.arange(len(part)))  # every row is a truck of its own
        assert linkage is not None  # the law of the noise is stated
        mean, worst, between = linkage.mean, linkage.worst, noisy_interval(linkage, "mean")
        # The worst is a point if every true value was tried; otherwise the upper end is what epsilon allows.
        low, high = noisy_interval(linkage, "worst")
        high = min(high, max(low, max_likelihood(view.rows)))
        at_worst = percent(low)
        if linkage.points is not None:
            at_worst += words("among values tried", num=linkage.points, high=high)
        blind, facts = view.baseline, {"label": view.label, "known": view.known, "worst": at_worst}
        details = {**_alike(mean), "note": linkage.note}
        yield figure("identification expected{label}", mean, blind, between, details, k=1 / mean, **facts)
        yield figure("identification expected{label}, worst", worst, blind, (low, high), _alike(worst), **facts)
        # The same under the usual names of risks.
        yield figure("prosecutor risk{label} | noisy", worst, blind, (low, high), {"mean": mean}, **facts)
        yield figure("journalist risk{label} | noisy", worst, blind, (0.0, high), **facts)
        yield figure("marketer risk{label} | noisy", mean, blind, between, **facts)
    for name, domain in view.domains.items():
        width = view.column(f"{name}_upper") - view.column(f"{name}_lower")
        share = min(_mean(width) / domain.span, 1.0)
        yield figure("interval width ({column}){label}", share, 1.0, column=name, label=view.label)
    if view.release.classes is None:
        yield from truck_figures(view.release, plan)


def max_likelihood(rows: NoisyRows) -> float:
    """Bound how likely the best guess of a row can be, whatever the true values are and however others are spread."""
    # A row weighs f(b | w) / g(b), where g averages f(b | .) over the values of a cell: epsilon keeps it between
    # e^-epsilon and e^epsilon, with the epsilons of all columns added up. So of n rows of a group the likeliest has at
    # most 1 / (1 + (n - 1) e^(-2 epsilon)) of the weight.
    loss = np.zeros(len(rows.sizes))
    for cells, of_group in zip(rows.cells, rows.cell_of_group, strict=True):
        # A cell with one point has no noise, and reveals nothing but itself.
        loss += np.array([float(cell.law.epsilon) if cell.law.last else 0.0 for cell in cells.cells])[of_group]
    with np.errstate(under="ignore"):
        bound = 1 / (1 + (rows.sizes - 1) * np.exp(-2 * loss))
    return float(min(1.0, bound.max() * (1 + 1e-12)))


# Figures that take the truth


def truth_figures(
    truth: NoisyTruth, plan: Plan | None, tell: Progress
) -> tuple[list[KeyFigure], list[RecordAtRisk], list[str]]:
    """Attack noisy rows, and compare them with the truth; return figures, records most at risk, and notes."""
    view = truth.view
    if not len(view.positions):
        return [], [], [words("no noisy row")]
    if view.label and truth.true_row is None:
        return [], [], [words("no key for those left out")]
    tell("naming noisy rows")
    figures: list[KeyFigure] = []
    at_risk: list[RecordAtRisk] = []
    notes, some = [], truth.some(MAX_PAIRS)
    if view.rows is not None and len(some) < len(truth.records):
        notes.append(words("some rows attacked", in_all=len(truth.records), num=len(some)))
    if truth.true_row is None:
        notes.append(words("no key for noisy rows"))
    if view.rows is None and truth.true_row is not None:
        chances = nearest_hits(truth, some)
        hits, num, blind = math.fsum(chances.tolist()), len(chances), view.baseline
        right, interval = hits / num, wilson(hits, num)
        details = {**_alike(right), "attacked": num}
        figures += [
            figure("record linkage | no law", right, blind, interval, details, known=view.known),
            figure("prosecutor risk | no law", 1.0, blind, (min(right, 1.0), 1.0)),
            figure("journalist risk | no law", 1.0, blind, (0.0, 1.0)),
            figure("marketer risk | no law", right, blind, (interval[0], 1.0)),
        ]
        at_risk = _at_risk(truth, some, chances, np.full(len(some), len(view.positions)))
    if view.rows is not None:
        attack = truth.attack(some)
        figures += _identification(truth, some, attack)
        if truth.true_row is not None:
            group = view.rows.group_of(truth.steps[:, some], truth.stratum[some])
            at_risk = _at_risk(truth, some, attack.on_truth, view.rows.sizes[group])
            figures += [_simulated(truth, tell)] if not view.label else []
            if plan is not None and not view.label:
                assert plan.bin_of_row is not None  # a sealed plan has no noisy rows
                truck = np.unique(plan.assignment, return_inverse=True)[1].reshape(-1)[view.positions]
                hits, num = math.fsum(truth.attack(some, truck=truck).truck_hit.tolist()), len(some)
                chance = without_release(view.release, plan)
                blind_words = chance.words(chance.mean, view.release.certificate.guarantee.protects)
                interval = wilson(hits, num)
                figures.append(figure("truck named", hits / num, chance.mean, interval, num=num, blind=blind_words))
    if truth.true_row is not None:
        for name, values in zip(view.domains, truth.values, strict=True):
            figures += _errors(view, name, values)
    return figures, at_risk, notes


def _identification(truth: NoisyTruth, some: IntArray, attack: RowAttack) -> Iterator[KeyFigure]:
    """Compute what the attacker believes about the guesses, and, with the key, how often they are right."""
    view, num, stated = truth.view, len(some), _mean(attack.stated)
    low, high = (stated, stated) if num == len(truth.records) else mean_interval(attack.stated)
    facts: dict[str, object] = {"label": view.label, "known": view.known}
    interval = min(low, stated), max(high, stated)
    details: dict[str, object] = {**_alike(stated), "worst": float(attack.stated.max())}
    yield figure("identification probability{label}", stated, view.baseline, interval, details, **facts)
    if truth.true_row is None:
        return
    hits = math.fsum(attack.hit.tolist())
    printed = truth.attack(some, as_printed=True)
    believed, right = _mean(printed.stated), _mean(printed.hit)
    details = {**_alike(hits / num), "stated": stated, "attacked": num}
    details["as_printed"] = {"stated": believed, "hits": right}
    facts |= {"believed": believed, "right": right}
    yield figure("record linkage{label} | noisy", hits / num, view.baseline, wilson(hits, num), details, **facts)


def _simulated(truth: NoisyTruth, tell: Progress) -> KeyFigure:
    """Sample the noise again many times, and count how often the best guess is right."""
    tell("sampling the noise again")
    some = truth.some(MAX_DRAWN_PAIRS // MIN_DRAWS)
    num = min(MAX_DRAWS, max(1, MAX_DRAWN_PAIRS // (len(some) * len(truth.records))))
    draws, trials = list(simulate(truth, some, num)), num * len(some)
    hits = math.fsum(float(one.hit.sum()) for one, _ in draws)
    stated = math.fsum(float(one.stated.sum()) for one, _ in draws) / trials
    printed = {
        "stated": math.fsum(float(one.stated.sum()) for _, one in draws) / trials,
        "hits": math.fsum(float(one.hit.sum()) for _, one in draws) / trials,
    }
    details = {**_alike(hits / trials), "draws": num, "attacked": len(some), "stated": stated, "as_printed": printed}
    key, interval = "identification by simulation | noisy", wilson(hits, trials)
    return figure(key, hits / trials, truth.view.baseline, interval, details)


def simulate(
    truth: NoisyTruth, some: IntArray, num: int, noise: Noise | None = None
) -> Iterator[tuple[RowAttack, RowAttack]]:
    """Add fresh noise to the true records ``num`` times, and attack some of them, corrected and as printed."""
    rows, noise = truth.view.rows, noise or Noise()
    assert rows is not None
    steps, stratum = truth.steps[:, some], truth.stratum[some]
    for _ in range(num):
        again = [cells.steps(cells.perturb(v, noise)) for cells, v in zip(rows.cells, truth.values, strict=True)]
        # Each record's row stands at its own place: the order reveals nothing, as ties are broken at random.
        own = {"rows": np.arange(len(truth.records)), "steps": np.array(again), "stratum": truth.stratum}
        others = NoisyRows(names=rows.names, cells=rows.cells, **own)
        yield (attack_rows(others, steps, stratum, some), attack_rows(others, steps, stratum, some, as_printed=True))


def nearest_hits(truth: NoisyTruth, some: IntArray) -> FloatArray:
    """Return how likely the row with the nearest noisy values is the right one; ties are broken at random."""
    assert truth.true_row is not None
    seen = np.array([truth.view.column(name) for name in truth.view.domains])
    spans = np.array([domain.span for domain in truth.view.domains.values()])[:, None, None]
    strata = truth.view.public.of_class[truth.view.positions]
    hits = np.zeros(len(some))
    for part in np.array_split(np.arange(len(some)), -(-len(some) * seen.shape[1] // 1_000_000)):
        chosen = some[part]
        far = (np.abs(seen[:, None, :] - truth.values[:, chosen, None]) / spans).max(axis=0)
        far[strata[None, :] != truth.stratum[chosen, None]] = np.inf
        nearest = far == far.min(axis=1, keepdims=True)
        hits[part] = nearest[np.arange(len(part)), truth.true_row[chosen]] / nearest.sum(axis=1)
    return hits


def _at_risk(truth: NoisyTruth, some: IntArray, chances: FloatArray, rows: IntArray) -> list[RecordAtRisk]:
    """List the records for which the attacker is surest of the true row."""
    source = truth.data.source_rows[truth.records[some]]
    order = np.lexsort((source, -chances))[: findings.MAX_AT_RISK]
    lines = zip(*(part[order].tolist() for part in (source, chances, rows)), strict=True)
    return [RecordAtRisk(source_row=row, record_linkage=chance, rows=num) for row, chance, num in lines]


def _errors(view: NoisyView, name: str, values: FloatArray) -> Iterator[KeyFigure]:
    """Compute how often intervals contain the true values, and how far noisy values are from them."""
    inside = (view.column(f"{name}_lower") <= values) & (values <= view.column(f"{name}_upper"))
    domain = view.domains[name]
    if view.rows is None:
        stated = float((view.release.certificate.rows.published_intervals or {})[name].confidence)
    else:  # the mean over rows
        axis = view.rows.names.index(name)
        cells, steps = view.rows.cells[axis], view.rows.steps[axis]
        stated = _mean(np.array([item["coverage"] for item in cells.describe()])[cells.index(steps)])
    interval = wilson(int(inside.sum()), len(inside))
    yield figure("coverage ({column}){label}", float(inside.mean()), stated, interval, column=name, label=view.label)
    if view.label:
        return
    errors = [np.abs(guess - values) for guess in (view.column(name), (domain.lower_float + domain.upper_float) / 2)]
    means, roots = [_mean(own) for own in errors], [math.sqrt(_mean(own**2)) for own in errors]
    for key, pair in (("mean absolute error ({column})", means), ("root mean squared error ({column})", roots)):
        off, blind_off = (with_unit(number, domain.unit) for number in pair)
        yield figure(key, pair[0], pair[1], column=name, unit=domain.unit, off=off, blind_off=blind_off)
