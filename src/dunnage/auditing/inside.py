# SPDX-License-Identifier: Apache-2.0
"""What it takes the truth to tell: attacks on each record, other releases, what a plan is worth. Private."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.auditing import attacks
from dunnage.auditing.finding import MOST_AT_RISK, NO_UNIT, About, Figure, Finding, RecordAtRisk
from dunnage.auditing.sight import Known, Sight, Told
from dunnage.auditing.utility import PlanUtility, plan_utility
from dunnage.dataset import Dataset
from dunnage.errors import ParameterError, ReleaseError
from dunnage.planning.plan import Plan
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.settle import apply
from dunnage.text import number_text, percent

GUESS_REACH = 0.01
"""A guessed value counts as right within this share of the domain on either side."""

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """A release and the true records it was made from."""

    sight: Sight  # sight, data, key: the release as an attacker reads it, the records, and the key if it is at hand
    data: Dataset
    key: Key | None
    known: Known  # What an attacker who knows the records exactly knows
    of_record: IntArray  # Class of each record, -1 where it was suppressed
    released: BoolArray  # Which records are in the release
    certain: bool  # Whether that is known for sure, not only likely

    @classmethod
    def of(cls, sight: Sight, data: Dataset, key: Key | None) -> Case:
        """Find the class of each record: by the key, or else by the values alone."""
        known = Known.of_records(sight, data)
        if (attacks.populations(sight, known) < sight.sizes).any():
            raise ReleaseError(
                "the release was not made from these rows. Give the data exactly as they were published."
            )
        if key is not None:
            of_record = attacks.classes_by_key(sight, data, key)
            released, certain = of_record >= 0, True
        else:
            of_record, times = attacks.unique_classes(sight, known)
            released = times > 0
            certain = bool(times.max() <= 1) and int(released.sum()) == int(sight.sizes.sum())
        return cls(
            sight=sight, data=data, key=key, known=known, of_record=of_record, released=released, certain=certain
        )

    @property
    def protects(self) -> str:
        return self.sight.release.certificate.guarantee.protects

    @property
    def notes(self) -> list[str]:
        """Say what the figures lack for want of the key."""
        if self.certain:
            return []
        return [
            "Without the key the class of some records is not certain: records that fit a class but were suppressed, "
            "or not sampled, count as released, and figures that need the class are left out. Give the key."
        ]


# Attacks on single records


def linkage_findings(case: Case, tolerance: float | None, tell: Progress) -> tuple[list[Finding], list[RecordAtRisk]]:
    """Attack every released record; return the findings, and the records that are most at risk."""
    tell("linking records")
    exactly = attacks.record_linkage(case.sight, case.known)
    findings = _record_findings(case, exactly, "record linkage", "exactly")
    if tolerance is not None:
        tell("linking records by values that are known roughly")
        rough = attacks.record_linkage(case.sight, Known.of_records(case.sight, case.data, tolerance))
        known = f"within {percent(tolerance)}"
        findings += _record_findings(case, rough, f"record linkage, {known}", known)
    guesses = {}
    for name in case.sight.sensitive:
        tell(f"guessing {name}")
        guesses[name] = attacks.attribute_linkage(case.sight, case.known, name)
        findings += _attribute_findings(case, name, guesses[name])
    if case.certain:
        findings += [_value_guess(case, axis) for axis, told in enumerate(case.sight.told) if told.numeric is not None]
    findings.append(_certain_presence(case))
    return findings, _most_at_risk(case, exactly, guesses)


def _record_findings(case: Case, found: attacks.RecordLinkage, name: str, known: str) -> list[Finding]:
    probability, rows = found.probability[case.released], found.rows[case.released]
    mean, worst, record = math.fsum(probability.tolist()) / len(probability), float(probability.max()), case.protects
    values = " and ".join([*(["the public values"] if case.sight.public.columns else []), *case.sight.names])
    return [
        About("probability", "records", private=True).finding(
            Figure(name, _settled(mean, probability), 1 / len(case.sight.release)),
            f"Somebody who knows {values} of a {record} ({known}), and that it was released, "
            f"names its row with {percent(mean)} on average; {number_text(float(rows.mean()))} rows may be it.",
            {"mean_rows": float(rows.mean()), "fewest_rows": int(rows.min())},
        ),
        About("probability", "records", private=True).finding(
            Figure(f"{name}, worst", worst, 1 / len(case.sight.release)),
            f"For the {record}s that are easiest to name it is {percent(worst)}; "
            f"{int((probability == worst).sum()):,} of {len(probability):,} are that easy.",
        ),
    ]


def _settled(mean: float, figures: FloatArray) -> float:
    """Return the mean; equal figures have a mean that is none of their roundings."""
    low, high = float(figures.min()), float(figures.max())
    return low if low == high else mean


def _attribute_findings(case: Case, name: str, guesses: FloatArray) -> list[Finding]:
    probability = guesses[case.released]
    codes = attacks.sensitive_codes(case.sight.release, name)
    baseline = float(np.bincount(codes).max() / len(codes))
    mean, worst = _settled(math.fsum(probability.tolist()) / len(probability), probability), float(probability.max())
    certain = float((probability == 1).mean())
    return [
        About("probability", "attributes", private=True).finding(
            Figure(f"attribute linkage ({name})", mean, baseline),
            f"Somebody who knows the other values of a {case.protects} guesses its {name} with {percent(mean)} on "
            f"average; the most frequent {name} of all is right for {percent(baseline)}.",
            {"certain": certain},
        ),
        About("probability", "attributes", private=True).finding(
            Figure(f"attribute linkage, worst ({name})", worst, baseline),
            f"For the {case.protects}s whose {name} is easiest to guess it is {percent(worst)}; for {percent(certain)} "
            "of all it is certain.",
        ),
    ]


def _value_guess(case: Case, axis: int) -> Finding:
    """Guess the number of somebody known by class alone, to within one per cent of the domain."""
    sight, told = case.sight, case.sight.told[axis]
    values, class_id = case.known.low[axis, case.released], case.of_record[case.released]
    reach = GUESS_REACH * told.span
    if sight.multisets:
        share, guess = attacks.best_window(sight.members[axis], sight.class_of_member, reach), "best of its multiset"
    else:
        middle = (told.lower + told.upper) / 2
        guesses, guess = (middle, "middle of its interval") if told.means is None else (told.means, "mean")
        share = attacks.guessed_within(values, class_id, guesses, reach)
    chance = attacks.best_window(values, np.zeros(len(values), dtype=np.int64), reach)
    # Nobody has to guess by the class: who knows how values are spread does no worse than without the release.
    best = max(share, chance)
    better = "; that is better, and takes no release" if share < chance else ""
    return About("share", "attributes", private=True).finding(
        Figure(f"value linkage ({told.name})", best, chance),
        f"Somebody who knows only the class of a {case.protects}, and guesses the {guess}, is within "
        f"{_with_unit(reach, told)} of its {told.name} for {percent(share)} of them; the best single guess for all is "
        f"for {percent(chance)}{better}.",
        {"reach": reach, "by_class": share},
    )


def _with_unit(figure: float, told: Told) -> str:
    unit = told.numeric.unit if told.numeric is not None else ""
    return f"{number_text(figure)} {unit}" if unit else number_text(figure)


def _certain_presence(case: Case) -> Finding:
    told = float(attacks.values_told(case.sight, case.known)[case.released].mean())
    values = " and ".join(case.sight.names)
    return About("share", "table", private=True).finding(
        Figure("certain presence (value)", told, 0.0),
        f"For {percent(told)} of the {case.protects}s the release itself says that a {case.protects} of exactly this "
        f"{values} is in it. That is certainly the one somebody looks for only if no other can have the same values.",
    )


def _most_at_risk(case: Case, found: attacks.RecordLinkage, guesses: Mapping[str, FloatArray]) -> list[RecordAtRisk]:
    """List the records that are easiest to name or whose sensitive value is easiest to guess."""
    records = np.flatnonzero(case.released)
    worst_guess = np.max([guess[records] for guess in guesses.values()] or [np.zeros(len(records))], axis=0)
    source = case.data.source_rows[records]
    order = np.lexsort((source, -worst_guess, -found.probability[records]))[:MOST_AT_RISK]
    return [
        RecordAtRisk(
            source_row=int(case.data.source_rows[record]),
            record_linkage=float(found.probability[record]),
            rows=int(found.rows[record]),
            attribute_linkage={name: float(guess[record]) for name, guess in guesses.items()},
        )
        for record in records[order].tolist()
    ]


def population_findings(case: Case, population: Dataset) -> list[Finding]:
    """Find the journalist's risk, and who of a population is certainly in the release."""
    counts = attacks.populations(case.sight, Known.of_records(case.sight, population))
    if (counts < case.sight.sizes).any():
        raise ParameterError(
            "the population has fewer records of some class than the release. Give everyone the records were drawn "
            "from, the released ones included."
        )
    return [_journalist(case, counts), _presence(case, counts, len(population))]


def _journalist(case: Case, counts: IntArray) -> Finding:
    worst, mean = 1 / int(counts.min()), float((case.sight.sizes / counts).sum() / case.sight.sizes.sum())
    return About("probability", "records", private=True).finding(
        Figure("journalist risk", worst, 1 / int(counts.sum())),
        f"Somebody who does not know whether a {case.protects} is in the release names it in the population with at "
        f"most {percent(worst)}, and {percent(mean)} on average: {int(counts.min()):,} or more fit each class.",
        {"mean": mean},
    )


def _presence(case: Case, counts: IntArray, everyone: int) -> Finding:
    """Say how sure one can be that a member of the population is in the release (delta-presence)."""
    shares = case.sight.sizes / counts
    worst, prior = float(shares.max()), len(case.sight.release) / everyone
    certain = float(case.sight.sizes[shares == 1].sum() / case.sight.sizes.sum())
    return About("probability", "table", private=True).finding(
        Figure("presence, worst", worst, prior),
        f"Of the population {percent(prior)} are in the release; of those who fit one class, {percent(worst)} are at "
        f"worst. {percent(certain)} of the released {case.protects}s are certainly in it.",
        {"certain": certain},
    )


# Other releases of the same records


def correspondence_findings(case: Case, other: Case, number: int) -> tuple[list[Finding], list[str]]:
    """Find what two releases tell together; return the findings, and notes on what could not be found."""
    if not (case.certain and other.certain):
        return [], ["Releases are compared by the classes of their records, which are not certain. Give the keys."]
    matched = attacks.match_records(case.data, other.data)
    found = attacks.correspond((case.sight, other.sight), (case.of_record, other.of_record), matched)
    if not len(found.shared):
        return [], ["No record is in both releases, so there is nothing to compare."]
    label = "correspondence" if number == 1 else f"correspondence {number}"
    findings = _shared_classes(case, found, label)
    for name in sorted(set(case.sight.sensitive) & set(other.sight.sensitive)):
        findings.append(_one_value_left(case, found, label, name, _sensitive_cells(case, other, name)))
    for told in case.sight.told:
        twin = next((item for item in other.sight.told if item.name == told.name), None)
        if twin is not None and case.sight.multisets and other.sight.multisets:
            findings.append(_one_value_left(case, found, label, told.name, _member_cells(case, other, told, twin)))
        elif twin is not None and told.numeric is not None and twin.numeric is not None:
            findings.append(_width_left(found, label, told, twin))
    return findings, []


def _shared_classes(case: Case, found: attacks.Correspondence, label: str) -> list[Finding]:
    fewest, record = int(found.shared.min()), case.protects
    chances, alone = 1 / found.shared, 1 / found.alone
    mean, single = float(chances.mean()), float(alone.mean())
    return [
        About("probability", "several releases", private=True).finding(
            Figure(label, _settled(mean, chances), _settled(single, alone)),
            f"{len(found.shared):,} {record}s are in both releases. Whoever can tell which of them share both classes "
            f"names one with {percent(mean)} on average; by one release alone it is {percent(single)}.",
            {"in_both": len(found.shared), "fewest_alike": fewest},
        ),
        About("probability", "several releases", private=True).finding(
            Figure(f"{label}, worst", 1 / fewest, 1 / int(found.alone.min())),
            f"At worst no more than {fewest:,} of the {record}s in both releases share the same two classes; in this "
            f"release alone no class of theirs has fewer than {int(found.alone.min()):,}.",
        ),
    ]


_Cells = tuple[attacks.Occurrences, attacks.Occurrences]


def _sensitive_cells(case: Case, other: Case, name: str) -> _Cells:
    first, second = case.sight.release.data, other.sight.release.data
    return attacks.joint_occurrences(
        (first.column(name).combine_chunks(), second.column(name).combine_chunks()),
        (first.column("class_id").to_numpy(), second.column("class_id").to_numpy()),
        (len(case.sight.sizes), len(other.sight.sizes)),
    )


def _member_cells(case: Case, other: Case, told: Told, twin: Told) -> _Cells:
    first, second = case.sight.release.members, other.sight.release.members
    assert first is not None
    assert second is not None
    return attacks.joint_occurrences(
        (first.column(told.name).combine_chunks(), second.column(twin.name).combine_chunks()),
        (first.column("class_id").to_numpy(), second.column("class_id").to_numpy()),
        (len(case.sight.sizes), len(other.sight.sizes)),
    )


def _one_value_left(case: Case, found: attacks.Correspondence, label: str, name: str, cells: _Cells) -> Finding:
    """Count the records for which one value alone occurs in both classes."""
    share = float((attacks.values_left(*cells, found) == 1).mean())
    alone = float((cells[0].distinct[found.first] == 1).mean())
    return About("share", "several releases", private=True).finding(
        Figure(f"{label}, one value left ({name})", share, alone),
        f"If {name} did not change, one value alone occurs in both classes of {percent(share)} of the "
        f"{case.protects}s, and whoever knows both classes knows it; by this release alone it is {percent(alone)}.",
    )


def _width_left(found: attacks.Correspondence, label: str, told: Told, twin: Told) -> Finding:
    """Say how wide the intervals of both releases together leave a number that did not change."""
    lower = np.maximum(told.lower[found.first], twin.lower[found.second])
    upper = np.minimum(told.upper[found.first], twin.upper[found.second])
    width = float(np.maximum(upper - lower, 0.0).mean())
    alone = float((told.upper - told.lower)[found.first].mean())
    unit = told.numeric.unit if told.numeric is not None else ""
    return About(unit or NO_UNIT, "several releases", private=True).finding(
        Figure(f"{label}, width ({told.name})", width, alone),
        f"If {told.name} did not change, both releases together leave {_with_unit(width, told)} of it open on "
        f"average; this release alone leaves {_with_unit(alone, told)}.",
    )


# What a plan is worth


def plan_findings(
    release: Release, data: Dataset, key: Key | None, plan: Plan, seconds: float, tell: Progress
) -> tuple[list[Finding], list[str]]:
    """Apply a plan to the truth and compare it with the best plan on true weights; notes say what that lacks."""
    if key is None:
        return [], ["Whether the plan fits the true data, and what it costs, takes the key. Give it."]
    tell("applying the plan")
    done = apply(plan, data, release, key)
    tell("packing the true weights")
    worth = plan_utility(done, data, seconds=seconds, progress=tell)
    record = release.certificate.guarantee.protects
    found = [_ratio(plan, worth), _trucks(plan, worth, record), *_feasibility(worth)]
    # Noisy rows are never exchanged: either the plan fits or it does not.
    return found if release.classes is not None else found[:-1], []


def _ratio(plan: Plan, worth: PlanUtility) -> Finding:
    """Compare the plan with the best on true weights; if that is not proven, the ratio may be larger."""
    # A plan takes one truck at least, the cheapest; trucks that cost nothing bound nothing.
    least = max(worth.bound, 1.0 if len(plan.trucks) == 1 else min(float(truck.cost) for truck in plan.trucks))
    most = worth.objective / least if least else worth.objective
    what = "trucks" if plan.minimises == "trucks" else "in cost"
    takes = "Plan and packages outside it take" if worth.packages_outside else "The plan takes"
    sure = "and nothing does better" if worth.proven else "the best found, not proven"
    holds = "" if worth.plan_feasible else f" But the plan does not hold as it is: {_overloaded(worth)}."
    return About("ratio", "utility", private=True).finding(
        Figure(
            "objective ratio",
            worth.ratio,
            1.0,
            (
                min(worth.ratio, _least(worth) / worth.optimum),
                worth.ratio if worth.proven else max(worth.ratio, float(most)),
            ),
        ),
        f"{takes} {number_text(worth.objective)} {what}; a plan on the true weights takes "
        f"{number_text(worth.optimum)}, {sure}.{holds}",
        {"objective": worth.objective, "optimum": worth.optimum, "proven": worth.proven},
    )


def _least(worth: PlanUtility) -> float:
    """Return what plan and packages outside take at least: those outside were packed as well as could be found."""
    return worth.in_plan + worth.outside_bound


def _overloaded(worth: PlanUtility) -> str:
    return f"{percent(1 - worth.bins_feasible)} of its trucks are overloaded in truth"


def _trucks(plan: Plan, worth: PlanUtility, record: str) -> Finding:
    """Say the same in trucks, or in what they cost: the baseline is a plan without privacy, of all packages."""
    kinds = plan.minimises == "trucks"
    unit = "trucks" if kinds else "in cost"
    return About(unit, "utility", private=True).finding(
        Figure(
            "trucks" if kinds else "cost",
            worth.objective,
            worth.optimum,
            (min(worth.objective, _least(worth)), worth.objective),
        ),
        _cost_words(worth, unit, record),
        {
            "proven": worth.proven,
            "bound": worth.bound,
            "in_plan": worth.in_plan,
            "outside": worth.outside,
            "packages": worth.packages,
            "packages_outside": worth.packages_outside,
        },
    )


def _cost_words(worth: PlanUtility, unit: str, record: str) -> str:
    """Say what privacy costs; of a plan that does not hold nobody knows, so what it takes as it is."""
    more = worth.objective - worth.optimum
    unit = "truck" if unit == "trucks" and more == 1 else unit
    begins = f"Privacy costs {number_text(more)} {unit}: the plan on the release"
    if not worth.plan_feasible:
        begins = f"The plan does not hold as it is: {_overloaded(worth)}, and mended it may take more. It"
    takes = f" takes {number_text(worth.in_plan)}"
    num = worth.packages_outside
    if num:
        others = f"{record} outside it" if num == 1 else f"{num:,} {record}s outside it"
        takes += f", the {others} {number_text(worth.outside)} more"
    everyone = f" for all {worth.packages:,}" if num else ""
    sure = "" if worth.proven else f" (the best found; {number_text(worth.bound)} at least)"
    return f"{begins}{takes}, one without privacy {number_text(worth.optimum)}{everyone}{sure}."


def _feasibility(worth: PlanUtility) -> list[Finding]:
    likely = worth.feasibility
    return [
        About("share", "utility", private=True).finding(
            Figure("plan feasible", float(worth.plan_feasible), 1.0),
            "Every truck holds its true load." if worth.plan_feasible else "Some trucks are overloaded in truth.",
        ),
        About("share", "utility", private=True).finding(
            Figure("bins feasible", worth.bins_feasible, 1.0),
            f"{percent(worth.bins_feasible)} of the trucks hold their true load.",
        ),
        About("probability", "utility", private=True).finding(
            Figure("joint feasibility", likely.value, 1.0, likely.interval),
            f"Over all ways in which rows of a class may be its true records, every truck fits with "
            f"{percent(likely.value)}.",
            {"kind": likely.kind, "permutations": likely.permutations},
        ),
    ]
