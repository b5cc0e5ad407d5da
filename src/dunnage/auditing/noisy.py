# SPDX-License-Identifier: Apache-2.0
"""Attacks on noisy rows, and what noise cost: stated by the corrected eq. 30, counted on the truth, drawn again.

The attacker knows the public and true values of one record and the law of the noise. He names the row that is most
likely by ``dunnage.planning.linkage``. What his posterior says of that guess (stated) and how often the guess is
right (counted) agree on data that are spread as he believes, evenly over the public domain; other data may differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.auditing.finding import (
    MOST_AT_RISK,
    NO_UNIT,
    About,
    Figure,
    Finding,
    Progress,
    RecordAtRisk,
    mean_interval,
    wilson,
)
from dunnage.auditing.outside import noisy_interval, truck_findings, without_release
from dunnage.auditing.sight import NEITHER, OTHER_ROWS, PublicValues
from dunnage.domains import Numeric, domain_from
from dunnage.errors import ParameterError, ReleaseError
from dunnage.noise import Noise
from dunnage.planning.linkage import NoisyRows, noisy_linkage
from dunnage.planning.plan import Plan
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.settle import matched_records
from dunnage.tables.dataset import Dataset
from dunnage.text import number_text, percent

MOST_PAIRS = 20_000_000
"""Pairs of a record and a row that are weighed for one figure; of more records some are attacked, evenly chosen."""
MOST_DRAWN_PAIRS = 10_000_000
MOST_DRAWS = 200
LEAST_DRAWS = 5
LEFT_OUT = ", left out"


# What the attacker sees


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisySight:
    release: Release  # The release
    domains: Mapping[str, Numeric]  # The public domain of each noisy column
    public: PublicValues  # The combinations of public values, row by row
    rows: NoisyRows | None  # The noisy rows with their laws; None if the release does not state them

    @classmethod
    def of(cls, release: Release) -> NoisySight:
        measures = release.certificate.rows
        names = list(measures.noise or measures.published_intervals or {})
        domains = {
            name: domain_from(release.attributes[name].domain or {}) for name in names if name in release.quantities
        }
        numeric = {name: domain for name, domain in domains.items() if isinstance(domain, Numeric)}
        if not names or set(numeric) != set(names):
            raise ParameterError(NEITHER.format(release.certificate.guarantee.model))
        public = PublicValues.of(release, np.arange(len(release)))
        return cls(release=release, domains=numeric, public=public, rows=NoisyRows.of(release, public.of_class))

    @property
    def protects(self) -> str:
        return self.release.certificate.guarantee.protects

    @cached_property
    def positions(self) -> IntArray:
        return np.arange(len(self.release)) if self.rows is None else self.rows.rows

    @property
    def label(self) -> str:
        """What names of findings end with: nothing, unless noisy rows stand beside classes."""
        return "" if self.release.classes is None else LEFT_OUT

    @property
    def baseline(self) -> float:
        """How likely a row is named by public values alone, on average."""
        strata = self.public.of_class[self.positions]
        return len(np.unique(strata)) / max(len(strata), 1)

    def column(self, name: str) -> FloatArray:
        if name not in self.release.data.column_names and self.rows is not None:  # left out: intervals alone
            axis = self.rows.names.index(name)
            return self.rows.cells[axis].domain.grid_values(self.rows.steps[axis])
        found = self.release.data.column(name).combine_chunks().to_numpy(zero_copy_only=False)
        return np.asarray(found, dtype=np.float64)[self.positions]

    @property
    def notes(self) -> list[str]:
        lacks = (
            "The release does not state the law of its noise: what the best guess is worth, and truck linkage, cannot "
            "be computed. With the key, rows are named by the nearest noisy value."
        )
        return [lacks] if self.rows is None else []

    def known(self) -> str:
        values = [*(["the public values"] if self.public.columns else []), *self.domains]
        return ", ".join(values[:-1]) + (" and " if values[1:] else "") + values[-1]


def _alike(probability: float) -> dict[str, float]:
    """Give the k of a k-anonymous release that would let a row be named as often."""
    return {"k_alike": 1 / probability} if probability > 0 else {}


def noisy_outside_findings(sight: NoisySight, plan: Plan | None, tell: Progress) -> list[Finding]:
    if not len(sight.positions):
        return []
    findings = []
    if sight.rows is not None:
        tell("weighing rows for every possible value")
        findings += _expected(sight, sight.rows)
    for name, domain in sight.domains.items():
        width = sight.column(f"{name}_upper") - sight.column(f"{name}_lower")
        share = min(math.fsum(width.tolist()) / len(width) / domain.span, 1.0)
        findings.append(
            About("share", "utility").finding(
                Figure(f"interval width ({name}){sight.label}", share, 1.0),
                f"Intervals of {name} are {percent(share)} of the domain wide on average; 100 % would tell nothing.",
            )
        )
    return findings + (truck_findings(sight.release, plan) if sight.release.classes is None else [])


def most_likely(rows: NoisyRows) -> float:
    """Bound how likely the best guess of a row can be, whatever the true values and however others are spread.

    A row weighs f(b | w) / g(b), where g averages f(b | .) over the values of a cell: epsilon keeps it between
    e^-epsilon and e^epsilon, with the epsilons of all columns added up. So of n rows of a group the likeliest has at
    most 1 / (1 + (n - 1) e^(-2 epsilon)) of the weight.
    """
    loss = np.zeros(len(rows.sizes))
    for cells, of_group in zip(rows.cells, rows.cell_of_group, strict=True):
        # A cell with one point has no noise, and tells nothing but itself.
        loss += np.array([float(cell.law.epsilon) if cell.law.last else 0.0 for cell in cells.cells])[of_group]
    with np.errstate(under="ignore"):
        bound = 1 / (1 + (rows.sizes - 1) * np.exp(-2 * loss))
    return float(min(1.0, bound.max() * (1 + 1e-12)))


def _expected(sight: NoisySight, rows: NoisyRows) -> list[Finding]:
    """Say how likely a row is named before anything but the release is known, also under the names that risks have."""
    part, record = sight.release, sight.protects
    if len(sight.positions) < len(part):
        part = Release(certificate=part.certificate, data=part.data.take(sight.positions))
    found = noisy_linkage(part, np.arange(len(part)))  # every row is a truck of its own
    assert found is not None  # the law of the noise is stated
    mean, worst, between, label = found.mean, found.worst, noisy_interval(found, "mean"), sight.label
    # The worst is a point if every true value was looked at; else what epsilon allows is the upper end.
    low, high = noisy_interval(found, "worst")
    high = min(high, max(low, most_likely(rows)))
    worst_words = percent(low)
    if found.points is not None:
        worst_words += f" among the {found.points:,} values tried; for others it is at most {percent(high)}"
    even = "for values that are spread evenly over the public domain"
    as_it_fell = "this is as the noise fell, and another draw of it gives another figure"
    chance, share = About("probability", "records"), About("share", "records")
    return [
        chance.finding(
            Figure(f"identification expected{label}", mean, sight.baseline, between),
            f"Somebody who knows {sight.known()} of a {record}, and the law of the noise, names its "
            f"row with {percent(mean)} on average, {even}; {as_it_fell}. k-anonymity with k of "
            f"{number_text(1 / mean)} would give the same.",
            {**_alike(mean), "note": found.note},
        ),
        chance.finding(
            Figure(f"identification expected{label}, worst", worst, sight.baseline, (low, high)),
            f"For the values that are easiest to name it is {worst_words}.",
            _alike(worst),
        ),
        chance.finding(
            Figure(f"prosecutor risk{label}", worst, sight.baseline, (low, high)),
            f"Somebody who knows that a {record} is in the release, and {sight.known()} of it, names "
            f"its row at worst with {worst_words}. Public values alone give {percent(sight.baseline)}.",
            {"mean": mean},
        ),
        chance.finding(
            Figure(f"journalist risk{label}", worst, sight.baseline, (0.0, high)),
            f"Somebody who does not know whether a {record} is in the release names its row no more "
            f"surely than the prosecutor, who does at worst with {worst_words}.",
        ),
        share.finding(
            Figure(f"marketer risk{label}", mean, sight.baseline, between),
            f"Somebody who names a row for every {record} is right for {percent(mean)} of them, {even}; {as_it_fell}.",
        ),
    ]


# Attacks with the truth at hand


@dataclass(frozen=True, eq=False)
class Attack:
    """What somebody who names a row for each of some records comes to, record by record."""

    stated: FloatArray  # What his posterior says of his best guess
    hit: FloatArray  # How likely the guess is right; between equally good ones he guesses
    on_truth: FloatArray  # What his posterior says of the true row
    truck_hit: FloatArray | None = None  # How likely the truck he names is right, if there is a plan


def attack_rows(
    rows: NoisyRows,
    truths: IntArray,
    stratum: IntArray,
    true_row: IntArray,  # Place of each record's row among the noisy ones; private
    *,
    as_printed: bool = False,  # Go by eq. 30 as it is printed
    truck: IntArray | None = None,  # Truck of each row, to name those too
) -> Attack:
    """Name a row for each record whose true values are known, and see how often it is right."""
    num = len(true_row)
    found = Attack(np.zeros(num), np.zeros(num), np.zeros(num), None if truck is None else np.zeros(num))
    for part in rows.segments(truths, rows.group_of(truths, stratum), by=truck, as_printed=as_printed):
        chance = part.probabilities
        is_true = part.rows == np.repeat(true_row[part.truths], part.lengths)
        found.stated[part.truths] = np.maximum.reduceat(chance, part.starts)
        found.hit[part.truths] = _best_is_true(chance, is_true, part.starts)
        found.on_truth[part.truths] = np.add.reduceat(np.where(is_true, chance, 0.0), part.starts)
        if truck is not None and found.truck_hit is not None:
            sums, of_sum, begins = part.by_truck(truck)
            lengths = np.diff(np.append(begins, len(sums)))
            is_its = of_sum == np.repeat(truck[true_row[part.truths]], lengths)
            found.truck_hit[part.truths] = _best_is_true(sums, is_its, begins)
    return found


def _best_is_true(chances: FloatArray, is_true: BoolArray, starts: IntArray) -> FloatArray:
    """Return, by record, how likely the guess of highest chance is right; of equally good ones one is guessed."""
    lengths = np.diff(np.append(starts, len(chances)))
    is_best = chances == np.repeat(np.maximum.reduceat(chances, starts), lengths)
    ties = np.add.reduceat(is_best.astype(np.int64), starts)
    return np.asarray(np.add.reduceat((is_best & is_true).astype(np.float64), starts) / ties)


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyCase:
    """Noisy rows and the true records they were made from. Private."""

    sight: NoisySight  # sight, data: the release as an attacker reads it, and the records
    data: Dataset
    key: Key | None  # The key, if it is at hand
    records: IntArray  # The records that are attacked: all that are noisy, or, without the key, all
    true_row: IntArray | None  # Place of each one's row among the noisy ones; None without the key
    stratum: IntArray  # Number of each one's public values

    @classmethod
    def of(cls, sight: NoisySight, data: Dataset, key: Key | None) -> NoisyCase:
        if sight.release.classes is None and len(data) != len(sight.release):
            raise ReleaseError(OTHER_ROWS)
        stratum = sight.public.of_records(sight.release, data, tuple(sight.domains))
        if key is None:
            return cls(sight=sight, data=data, key=None, records=np.arange(len(data)), true_row=None, stratum=stratum)
        records = matched_records(data, sight.release, key)[sight.positions]
        rows = np.arange(len(records))
        return cls(sight=sight, data=data, key=key, records=records, true_row=rows, stratum=stratum[records])

    @cached_property
    def values(self) -> FloatArray:
        """True values of the records. Shape: columns, records."""
        return np.array([self.data.numbers(name)[self.records] for name in self.sight.domains])

    @cached_property
    def truths(self) -> IntArray:
        """Grid steps of the true values. Shape: columns, records."""
        assert self.sight.rows is not None
        return self.sight.rows.steps_of(dict(zip(self.sight.domains, self.values, strict=True)))

    def some(self, most_pairs: int) -> IntArray:
        """Choose so many records, evenly, that pairs with all rows are not too many."""
        num = len(self.records)
        tested = min(num, max(1, most_pairs // max(len(self.sight.positions), 1)))
        return np.arange(tested) * num // tested

    def attack(self, some: IntArray, *, as_printed: bool = False, truck: IntArray | None = None) -> Attack:
        """Attack some of the records; without the key none is ever right."""
        assert self.sight.rows is not None
        true_row = np.full(len(some), -1) if self.true_row is None else self.true_row[some]
        return attack_rows(
            self.sight.rows, self.truths[:, some], self.stratum[some], true_row, as_printed=as_printed, truck=truck
        )


def noisy_inside_findings(
    case: NoisyCase, plan: Plan | None, tell: Progress
) -> tuple[list[Finding], list[RecordAtRisk], list[str]]:
    """Attack noisy rows, and compare them with the truth; return findings, records most at risk, and notes."""
    sight = case.sight
    if not len(sight.positions):
        return [], [], ["The release has no noisy row, so there is nothing to attack."]
    if sight.label and case.true_row is None:
        return [], [], ["Which records were left out, and came by noise, only the key tells. Give it."]
    tell("naming noisy rows")
    findings: list[Finding] = []
    at_risk: list[RecordAtRisk] = []
    notes, some = [], case.some(MOST_PAIRS)
    if sight.rows is not None and len(some) < len(case.records):
        notes.append(
            f"Of {len(case.records):,} noisy rows {len(some):,}, evenly chosen, were attacked; who is "
            "most at risk is told of those alone."
        )
    if case.true_row is None:
        notes.append(
            "Which noisy row is whose only the key tells. Without it no guess and no error was counted. Give it."
        )
    if sight.rows is None and case.true_row is not None:
        hits = nearest_hits(case, some)
        findings += _nearest(case, hits)
        at_risk = _most_at_risk(case, some, hits, np.full(len(some), len(sight.positions)))
    if sight.rows is not None:
        found = case.attack(some)
        findings += _identification(case, some, found)
        if case.true_row is not None:
            group = sight.rows.group_of(case.truths[:, some], case.stratum[some])
            at_risk = _most_at_risk(case, some, found.on_truth, sight.rows.sizes[group])
            findings += [_simulated(case, tell)] if not sight.label else []
            findings += [_truck_named(case, plan, some)] if plan is not None and not sight.label else []
    if case.true_row is not None:
        for axis, name in enumerate(sight.domains):
            findings.append(_coverage(case, name, case.values[axis]))
            findings += _errors(case, axis, name) if not sight.label else []
    return findings, at_risk, notes


def _mean(figures: FloatArray) -> float:
    return math.fsum(figures.tolist()) / len(figures)


def _identification(case: NoisyCase, some: IntArray, found: Attack) -> Iterator[Finding]:
    """Say what the attacker believes of his guesses, and, with the key, how often they are right."""
    sight, num, stated = case.sight, len(some), _mean(found.stated)
    low, high = (stated, stated) if num == len(case.records) else mean_interval(found.stated)
    chance = About("probability", "records", private=True)
    yield chance.finding(
        Figure(
            f"identification probability{sight.label}", stated, sight.baseline, (min(low, stated), max(high, stated))
        ),
        f"Somebody who knows {sight.known()} of a {sight.protects}, and the law of the noise, believes "
        f"that his best guess of its row is right with {percent(stated)} on average (eq. 30, corrected).",
        {**_alike(stated), "worst": float(found.stated.max())},
    )
    if case.true_row is None:
        return
    hits = math.fsum(found.hit.tolist())
    printed = case.attack(some, as_printed=True)
    believed, right = _mean(printed.stated), _mean(printed.hit)
    yield chance.finding(
        Figure(f"record linkage{sight.label}", hits / num, sight.baseline, wilson(hits, num)),
        f"The best guess of somebody who knows {sight.known()} is right for {percent(hits / num)} "
        f"of {num:,} {sight.protects}s; he believes in {percent(stated)}. By eq. 30 as printed he would "
        f"believe in {percent(believed)} and be right for {percent(right)}.",
        {**_alike(hits / num), "stated": stated, "attacked": num, "as_printed": {"stated": believed, "hits": right}},
    )


def _simulated(case: NoisyCase, tell: Progress) -> Finding:
    """Draw the noise again, many times, and count how often the best guess is right."""
    tell("drawing the noise again")
    some = case.some(MOST_DRAWN_PAIRS // LEAST_DRAWS)
    num = min(MOST_DRAWS, max(1, MOST_DRAWN_PAIRS // (len(some) * len(case.records))))
    draws = list(simulate(case, some, num))
    trials = num * len(some)
    hits = math.fsum(float(one.hit.sum()) for one, _ in draws)
    stated = math.fsum(float(one.stated.sum()) for one, _ in draws) / trials
    parts = [one.stated for _, one in draws], [one.hit for _, one in draws]
    printed = [math.fsum(float(each.sum()) for each in part) / trials for part in parts]
    return About("probability", "records", private=True).finding(
        Figure("identification by simulation", hits / trials, case.sight.baseline, wilson(hits, trials)),
        f"With the noise drawn again {num:,} times the best guess is right for {percent(hits / trials)} of "
        f"the {case.sight.protects}s, and believed in with {percent(stated)}. The two agree if values are spread "
        "evenly over the public domain; else belief is off, as the attacker's picture of the values is.",
        {
            **_alike(hits / trials),
            "draws": num,
            "attacked": len(some),
            "stated": stated,
            "as_printed": {"stated": printed[0], "hits": printed[1]},
        },
    )


def simulate(case: NoisyCase, some: IntArray, num: int, noise: Noise | None = None) -> Iterator[tuple[Attack, Attack]]:
    """Draw fresh noise on the true records and attack some of them, corrected and as printed, so many times."""
    rows, noise = case.sight.rows, noise or Noise()
    assert rows is not None
    for _ in range(num):
        drawn = [cells.steps(cells.perturb(v, noise)) for cells, v in zip(rows.cells, case.values, strict=True)]
        # Each record's row stands at its own place: the order tells nothing, as ties are broken by chance.
        again = NoisyRows(
            names=rows.names,
            cells=rows.cells,
            rows=np.arange(len(case.records)),
            steps=np.array(drawn),
            stratum=case.stratum,
        )
        truths, stratum = case.truths[:, some], case.stratum[some]
        yield (attack_rows(again, truths, stratum, some), attack_rows(again, truths, stratum, some, as_printed=True))


def _truck_named(case: NoisyCase, plan: Plan, some: IntArray) -> Finding:
    assert plan.bin_of_row is not None  # a sealed plan has no noisy rows
    truck = np.unique(plan.assignment, return_inverse=True)[1].reshape(-1)[case.sight.positions]
    found = case.attack(some, truck=truck).truck_hit
    assert found is not None
    hits, num = math.fsum(found.tolist()), len(some)
    chance = without_release(case.sight.release, plan)
    return About("share", "trucks", private=True).finding(
        Figure("truck named", hits / num, chance.mean, wilson(hits, num)),
        f"Somebody who knows the values of a {case.sight.protects} and names its likeliest truck is right for "
        f"{percent(hits / num)} of {num:,}; {chance.words(chance.mean, case.sight.protects)}.",
    )


def _nearest(case: NoisyCase, chances: FloatArray) -> list[Finding]:
    """Name the row with the nearest noisy values, where no law says how likely it is."""
    hits, num, record = math.fsum(chances.tolist()), len(chances), case.sight.protects
    blind, right, about = case.sight.baseline, hits / num, About("probability", "records", private=True)
    no_law = "The release states no law of its noise, so nothing limits"
    return [
        about.finding(
            Figure("record linkage", right, blind, wilson(hits, num)),
            f"Somebody who knows {case.sight.known()} of a {record} and names the row with the nearest noisy "
            f"values is right for {percent(right)} of {num:,}.",
            {**_alike(right), "attacked": num},
        ),
        about.finding(
            Figure("prosecutor risk", 1.0, blind, (min(right, 1.0), 1.0)),
            f"{no_law} how surely somebody who knows that a {record} is in the release names its row: take it "
            "as 100 % at worst.",
        ),
        about.finding(
            Figure("journalist risk", 1.0, blind, (0.0, 1.0)),
            f"{no_law} that of somebody who does not know whether a {record} is in the release either.",
        ),
        about._replace(unit="share").finding(
            Figure("marketer risk", right, blind, (wilson(hits, num)[0], 1.0)),
            f"Somebody who names the nearest row for every {record} is right for {percent(right)} of "
            "them; a better guess may exist.",
        ),
    ]


def nearest_hits(case: NoisyCase, some: IntArray) -> FloatArray:
    """Return how likely the row with the nearest noisy values is each record's; of equally near ones one is guessed."""
    assert case.true_row is not None
    seen = np.array([case.sight.column(name) for name in case.sight.domains])
    spans = np.array([domain.span for domain in case.sight.domains.values()])[:, None, None]
    strata = case.sight.public.of_class[case.sight.positions]
    hits = np.zeros(len(some))
    for part in np.array_split(np.arange(len(some)), -(-len(some) * seen.shape[1] // 1_000_000)):
        chosen = some[part]
        far = (np.abs(seen[:, None, :] - case.values[:, chosen, None]) / spans).max(axis=0)
        far[strata[None, :] != case.stratum[chosen, None]] = np.inf
        nearest = far == far.min(axis=1, keepdims=True)
        hits[part] = nearest[np.arange(len(part)), case.true_row[chosen]] / nearest.sum(axis=1)
    return hits


def _most_at_risk(case: NoisyCase, some: IntArray, chances: FloatArray, rows: IntArray) -> list[RecordAtRisk]:
    """List the records whose true row the attacker is surest of, or has fewest other rows as near."""
    source = case.data.source_rows[case.records[some]]
    order = np.lexsort((source, -chances))[:MOST_AT_RISK]
    return [
        RecordAtRisk(
            source_row=int(source[place]),
            record_linkage=float(chances[place]),
            rows=int(rows[place]),
            attribute_linkage={},
        )
        for place in order.tolist()
    ]


# What noise cost


def _errors(case: NoisyCase, axis: int, name: str) -> list[Finding]:
    truth, domain = case.values[axis], case.sight.domains[name]
    middle = (domain.lower_float + domain.upper_float) / 2
    errors, blind = np.abs(case.sight.column(name) - truth), np.abs(middle - truth)
    mean, rms = _mean(errors), math.sqrt(_mean(errors**2))
    unit = domain.unit or NO_UNIT
    return [
        About(unit, "utility", private=True).finding(
            Figure(f"mean absolute error ({name})", mean, _mean(blind)),
            f"A noisy {name} is {_with_unit(mean, domain)} off on average; the middle of the domain is "
            f"{_with_unit(_mean(blind), domain)} off.",
        ),
        About(unit, "utility", private=True).finding(
            Figure(f"root mean squared error ({name})", rms, math.sqrt(_mean(blind**2))),
            f"The root of the mean squared error is {_with_unit(rms, domain)}; that of the middle of the domain is "
            f"{_with_unit(math.sqrt(_mean(blind**2)), domain)}.",
        ),
    ]


def _coverage(case: NoisyCase, name: str, truth: FloatArray) -> Finding:
    sight = case.sight
    inside = (sight.column(f"{name}_lower") <= truth) & (truth <= sight.column(f"{name}_upper"))
    if sight.rows is None:
        stated = float((sight.release.certificate.rows.published_intervals or {})[name].confidence)
    else:  # averaged over rows
        axis = sight.rows.names.index(name)
        cells, steps = sight.rows.cells[axis], sight.rows.steps[axis]
        stated = _mean(np.array([item["coverage"] for item in cells.describe()])[cells.index(steps)])
    share = float(inside.mean())
    return About("share", "utility", private=True).finding(
        Figure(f"coverage ({name}){sight.label}", share, stated, wilson(int(inside.sum()), len(inside))),
        f"{percent(share)} of the {sight.protects}s have their {name} inside the interval; the certificate "
        f"states at least {percent(stated)} for each.",
    )


def _with_unit(figure: float, domain: Numeric) -> str:
    return f"{number_text(figure)} {domain.unit}".strip()
