# SPDX-License-Identifier: Apache-2.0
"""Attacks on noisy rows, and what noise cost: stated by the corrected eq. 30, counted on the truth, drawn again.

The attacker knows the public and true values of one record and the law of the noise. He names the row that is most
likely by ``dunnage.planning.linkage``. What his posterior says of that guess (stated) and how often the guess is
right (counted) agree on data that are spread as he believes, evenly over the public domain; other data may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.auditing.finding import MOST_AT_RISK, NO_UNIT, About, Figure, Finding, RecordAtRisk, mean_interval, wilson
from dunnage.auditing.outside import noisy_interval, truck_findings, without_release
from dunnage.auditing.sight import NEITHER, PublicValues
from dunnage.dataset import Dataset
from dunnage.domains import Numeric, domain_from
from dunnage.errors import ParameterError, ReleaseError
from dunnage.noise import Noise
from dunnage.planning.linkage import NoisyRows, noisy_linkage
from dunnage.planning.plan import Linkage, Plan
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.settle import matched_records
from dunnage.text import number_text, percent

MOST_PAIRS = 20_000_000
"""Pairs of a record and a row that are weighed for one figure; of more records some are attacked, evenly chosen."""
MOST_DRAWN_PAIRS = 10_000_000
MOST_DRAWS = 200
LEAST_DRAWS = 5
LEFT_OUT = ", left out"

Progress = Callable[[str], None]


# What the attacker sees


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisySight:
    """The noisy rows of a release as an attacker reads them."""

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
        """Say what cannot be computed from this release."""
        if self.rows is not None:
            return []
        return [
            "The release does not state the law of its noise: what the best guess is worth, and truck linkage, cannot "
            "be computed. With the key, rows are named by the nearest noisy value."
        ]

    def known(self) -> str:
        values = [*(["the public values"] if self.public.columns else []), *self.domains]
        return ", ".join(values[:-1]) + (" and " if values[1:] else "") + values[-1]


def _alike(probability: float) -> dict[str, float]:
    """Give the k of a k-anonymous release that would let a row be named as often."""
    return {"k_alike": 1 / probability} if probability > 0 else {}


def noisy_outside_findings(sight: NoisySight, plan: Plan | None, tell: Progress) -> list[Finding]:
    """Find what a noisy release and a plan tell by themselves."""
    if not len(sight.positions):
        return []
    findings = []
    if sight.rows is not None:
        tell("weighing rows for every possible value")
        findings += _expected(sight)
    findings += [_width(sight, name) for name in sight.domains]
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


def _expected(sight: NoisySight) -> list[Finding]:
    """Say how likely a row is named before anything but the release is known: every row is a truck of its own."""
    part = sight.release
    if len(sight.positions) < len(part):
        part = Release(certificate=part.certificate, data=part.data.take(sight.positions))
    found = noisy_linkage(part, np.arange(len(part)))
    assert found is not None  # the law of the noise is stated
    mean, worst = found.mean, found.worst
    top = _worst_interval(sight, found)
    name = f"identification expected{sight.label}"
    return [
        About("probability", "records").finding(
            Figure(name, mean, sight.baseline, noisy_interval(found, "mean")),
            f"Somebody who knows {sight.known()} of a {sight.protects}, and the law of the noise, names its "
            f"row with {percent(mean)} on average, {_EVEN}; {_AS_IT_FELL}. k-anonymity with k of "
            f"{number_text(1 / mean)} would give the same.",
            {**_alike(mean), "note": found.note},
        ),
        About("probability", "records").finding(
            Figure(f"{name}, worst", worst, sight.baseline, top),
            f"For the values that are easiest to name it is {_worst_words(found, top)}.",
            _alike(worst),
        ),
        *_known_names(sight, found, top),
    ]


_EVEN = "for values that are spread evenly over the public domain"
_AS_IT_FELL = "this is as the noise fell, and another draw of it gives another figure"


def _worst_interval(sight: NoisySight, found: Linkage) -> tuple[float, float]:
    """Bound the worst: a point if every true value was looked at, else what epsilon allows is the upper end."""
    low, high = noisy_interval(found, "worst")
    assert sight.rows is not None
    return low, min(high, max(low, most_likely(sight.rows)))


def _worst_words(found: Linkage, top: tuple[float, float]) -> str:
    """Say the worst; if not every true value was looked at, what is proved of the others."""
    low, high = top
    if found.points is None:
        return percent(low)
    return f"{percent(low)} among the {found.points:,} values tried; for others it is at most {percent(high)}"


def _known_names(sight: NoisySight, found: Linkage, top: tuple[float, float]) -> list[Finding]:
    """Give the same risks under the names they are known by."""
    mean, worst, label = found.mean, found.worst, sight.label
    return [
        About("probability", "records").finding(
            Figure(f"prosecutor risk{label}", worst, sight.baseline, top),
            f"Somebody who knows that a {sight.protects} is in the release, and {sight.known()} of it, names "
            f"its row at worst with {_worst_words(found, top)}. Public values alone give {percent(sight.baseline)}.",
            {"mean": mean},
        ),
        About("probability", "records").finding(
            Figure(f"journalist risk{label}", worst, sight.baseline, (0.0, top[1])),
            f"Somebody who does not know whether a {sight.protects} is in the release names its row no more "
            f"surely than the prosecutor, who does at worst with {_worst_words(found, top)}.",
        ),
        About("share", "records").finding(
            Figure(f"marketer risk{label}", mean, sight.baseline, noisy_interval(found, "mean")),
            f"Somebody who names a row for every {sight.protects} is right for {percent(mean)} of them, "
            f"{_EVEN}; {_AS_IT_FELL}.",
        ),
    ]


def _width(sight: NoisySight, name: str) -> Finding:
    width = sight.column(f"{name}_upper") - sight.column(f"{name}_lower")
    share = min(math.fsum(width.tolist()) / len(width) / sight.domains[name].span, 1.0)
    return About("share", "utility").finding(
        Figure(f"interval width ({name}){sight.label}", share, 1.0),
        f"Intervals of {name} are {percent(share)} of the domain wide on average; 100 % would tell nothing.",
    )


# Attacks with the truth at hand


@dataclass(frozen=True, eq=False)
class Attack:
    """What somebody who names a row for each of some records comes to, record by record."""

    stated: FloatArray  # What his posterior says of his best guess
    hit: FloatArray  # How likely the guess is right; between equally good ones he guesses
    on_truth: FloatArray  # What his posterior says of the true row
    truck_hit: FloatArray | None = None  # How likely the truck he names is right, if there is a plan


def attack_rows(
    rows: NoisyRows,  # The noisy rows
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
        best = np.maximum.reduceat(chance, part.starts)
        is_best = chance == np.repeat(best, part.lengths)
        is_true = part.rows == np.repeat(true_row[part.truths], part.lengths)
        ties = np.add.reduceat(is_best.astype(np.int64), part.starts)
        found.stated[part.truths] = best
        found.hit[part.truths] = np.add.reduceat((is_best & is_true).astype(np.float64), part.starts) / ties
        found.on_truth[part.truths] = np.add.reduceat(np.where(is_true, chance, 0.0), part.starts)
        if truck is not None and found.truck_hit is not None:
            sums, of_sum, begins = part.by_truck(truck)
            found.truck_hit[part.truths] = _trucks_named(sums, of_sum, begins, truck[true_row[part.truths]])
    return found


def _trucks_named(sums: FloatArray, of_sum: IntArray, begins: IntArray, true: IntArray) -> FloatArray:
    lengths = np.diff(np.append(begins, len(sums)))
    is_best = sums == np.repeat(np.maximum.reduceat(sums, begins), lengths)
    is_true = of_sum == np.repeat(true, lengths)
    ties = np.add.reduceat(is_best.astype(np.int64), begins)
    return np.asarray(np.add.reduceat((is_best & is_true).astype(np.float64), begins) / ties)


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
        public = [name for name, *_ in sight.public.columns]
        columns = {attribute.name for attribute in data.schema}
        lacking = [name for name in (*public, *sight.domains) if name not in columns]
        if lacking:
            raise ReleaseError(f"the data have no column {', '.join(lacking)}. Give the data that were published.")
        if sight.release.classes is None and len(data) != len(sight.release):
            raise ReleaseError(
                "the release was not made from these rows. Give the data exactly as they were published."
            )
        stratum = sight.public.of_records(sight.release, data)
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
    notes = _notes(case)
    if sight.rows is None and case.true_row is not None:
        nearest = case.some(MOST_PAIRS)
        hits = nearest_hits(case, nearest)
        findings += _nearest(case, hits)
        at_risk = _nearest_at_risk(case, nearest, hits)
    if sight.rows is not None:
        some = case.some(MOST_PAIRS)
        found = case.attack(some)
        findings += _identification(case, some, found)
        if case.true_row is not None:
            at_risk = _most_at_risk(case, some, found)
            findings += [_simulated(case, tell)] if not sight.label else []
            findings += [_truck_named(case, plan, some)] if plan is not None and not sight.label else []
    if case.true_row is not None:
        for axis, name in enumerate(sight.domains):
            findings.append(_coverage(case, name, case.values[axis]))
            findings += _errors(case, axis, name) if not sight.label else []
    return findings, at_risk, notes


def _notes(case: NoisyCase) -> list[str]:
    notes = []
    if case.sight.rows is not None and len(case.some(MOST_PAIRS)) < len(case.records):
        notes.append(
            f"Of {len(case.records):,} noisy rows {len(case.some(MOST_PAIRS)):,}, evenly chosen, were attacked; who is "
            "most at risk is told of those alone."
        )
    if case.true_row is None:
        notes.append(
            "Which noisy row is whose only the key tells. Without it no guess and no error was counted. Give it."
        )
    return notes


def _mean(figures: FloatArray) -> float:
    return math.fsum(figures.tolist()) / len(figures)


def _stated_interval(stated: FloatArray, everyone: int) -> tuple[float, float]:
    """Bound the mean over everyone by that over some, evenly chosen."""
    mean = _mean(stated)
    if len(stated) == everyone:
        return mean, mean
    low, high = mean_interval(stated)
    return min(low, mean), max(high, mean)


def _identification(case: NoisyCase, some: IntArray, found: Attack) -> list[Finding]:
    """Say what the attacker believes of his guesses, and, with the key, how often they are right."""
    sight = case.sight
    stated = _mean(found.stated)
    findings = [
        About("probability", "records", private=True).finding(
            Figure(
                f"identification probability{sight.label}",
                stated,
                sight.baseline,
                _stated_interval(found.stated, len(case.records)),
            ),
            f"Somebody who knows {sight.known()} of a {sight.protects}, and the law of the noise, believes "
            f"that his best guess of its row is right with {percent(stated)} on average (eq. 30, corrected).",
            {**_alike(stated), "worst": float(found.stated.max())},
        )
    ]
    if case.true_row is None:
        return findings
    hits = math.fsum(found.hit.tolist())
    printed = case.attack(some, as_printed=True)
    findings.append(
        About("probability", "records", private=True).finding(
            Figure(f"record linkage{sight.label}", hits / len(some), sight.baseline, wilson(hits, len(some))),
            f"The best guess of somebody who knows {sight.known()} is right for {percent(hits / len(some))} "
            f"of {len(some):,} {sight.protects}s; he believes in {percent(stated)}. By eq. 30 as printed he would "
            f"believe in {percent(_mean(printed.stated))} and be right for {percent(_mean(printed.hit))}.",
            {
                **_alike(hits / len(some)),
                "stated": stated,
                "attacked": len(some),
                "as_printed": {"stated": _mean(printed.stated), "hits": _mean(printed.hit)},
            },
        )
    )
    return findings


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
    found = case.attack(some, truck=truck)
    assert found.truck_hit is not None
    hits = math.fsum(found.truck_hit.tolist())
    chance = without_release(case.sight.release, plan)
    return About("share", "trucks", private=True).finding(
        Figure("truck named", hits / len(some), chance.mean, wilson(hits, len(some))),
        f"Somebody who knows the values of a {case.sight.protects} and names its likeliest truck is right for "
        f"{percent(hits / len(some))} of {len(some):,}; {chance.words(chance.mean, case.sight.protects)}.",
    )


def _nearest(case: NoisyCase, chances: FloatArray) -> list[Finding]:
    """Name the row with the nearest noisy values, where no law says how likely it is."""
    hits, num, record = math.fsum(chances.tolist()), len(chances), case.sight.protects
    no_law = "The release states no law of its noise, so nothing limits"
    return [
        About("probability", "records", private=True).finding(
            Figure("record linkage", hits / num, case.sight.baseline, wilson(hits, num)),
            f"Somebody who knows {case.sight.known()} of a {record} and names the row with the nearest noisy "
            f"values is right for {percent(hits / num)} of {num:,}.",
            {**_alike(hits / num), "attacked": num},
        ),
        About("probability", "records", private=True).finding(
            Figure("prosecutor risk", 1.0, case.sight.baseline, (min(hits / num, 1.0), 1.0)),
            f"{no_law} how surely somebody who knows that a {record} is in the release names its row: take it "
            "as 100 % at worst.",
        ),
        About("probability", "records", private=True).finding(
            Figure("journalist risk", 1.0, case.sight.baseline, (0.0, 1.0)),
            f"{no_law} that of somebody who does not know whether a {record} is in the release either.",
        ),
        About("share", "records", private=True).finding(
            Figure("marketer risk", hits / num, case.sight.baseline, (wilson(hits, num)[0], 1.0)),
            f"Somebody who names the nearest row for every {record} is right for {percent(hits / num)} of "
            "them; a better guess may exist.",
        ),
    ]


def _nearest_at_risk(case: NoisyCase, some: IntArray, chances: FloatArray) -> list[RecordAtRisk]:
    """List the records whose own row is the nearest to them, those with fewest other rows as near first."""
    source = case.data.source_rows[case.records[some]]
    order = np.lexsort((source, -chances))[:MOST_AT_RISK]
    return [
        RecordAtRisk(
            source_row=int(source[place]),
            record_linkage=float(chances[place]),
            rows=len(case.sight.positions),
            attribute_linkage={},
        )
        for place in order.tolist()
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


def _most_at_risk(case: NoisyCase, some: IntArray, found: Attack) -> list[RecordAtRisk]:
    """List the records whose true row the attacker is surest of."""
    assert case.sight.rows is not None
    source = case.data.source_rows[case.records[some]]
    group = case.sight.rows.group_of(case.truths[:, some], case.stratum[some])
    order = np.lexsort((source, -found.on_truth))[:MOST_AT_RISK]
    return [
        RecordAtRisk(
            source_row=int(source[place]),
            record_linkage=float(found.on_truth[place]),
            rows=int(case.sight.rows.sizes[group[place]]),
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
    stated = _stated_coverage(sight, name)
    share = float(inside.mean())
    return About("share", "utility", private=True).finding(
        Figure(f"coverage ({name}){sight.label}", share, stated, wilson(int(inside.sum()), len(inside))),
        f"{percent(share)} of the {sight.protects}s have their {name} inside the interval; the certificate "
        f"states at least {percent(stated)} for each.",
    )


def _stated_coverage(sight: NoisySight, name: str) -> float:
    """Return the coverage that the certificate states, averaged over rows."""
    if sight.rows is None:
        return float((sight.release.certificate.rows.published_intervals or {})[name].confidence)
    axis = sight.rows.names.index(name)
    cells, steps = sight.rows.cells[axis], sight.rows.steps[axis]
    of_cell = np.array([item["coverage"] for item in cells.describe()])
    return _mean(of_cell[cells.index(steps)])


def _with_unit(figure: float, domain: Numeric) -> str:
    return f"{number_text(figure)} {domain.unit}".strip()
