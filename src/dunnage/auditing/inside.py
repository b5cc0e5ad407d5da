# SPDX-License-Identifier: Apache-2.0
"""What it takes the truth to tell: attacks on each record, other releases, what a plan is worth. Private."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.auditing import attacks
from dunnage.auditing.finding import MOST_AT_RISK, NO_UNIT, About, Figure, Finding, Progress, RecordAtRisk
from dunnage.auditing.sight import OTHER_ROWS, Known, Sight, Told
from dunnage.auditing.utility import PlanUtility, plan_utility
from dunnage.errors import ParameterError, ReleaseError
from dunnage.planning.plan import Plan
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.settle import apply
from dunnage.tables.dataset import Dataset
from dunnage.text import number_text, percent

GUESS_REACH = 0.01  # A guessed value counts as right within this share of the domain on either side


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
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
            raise ReleaseError(OTHER_ROWS)
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
        return self.sight.protects

    @property
    def notes(self) -> list[str]:
        lacks = (
            "Without the key the class of some records is not certain: records that fit a class but were suppressed, "
            "or not sampled, count as released, and figures that need the class are left out. Give the key."
        )
        return [] if self.certain else [lacks]


# Attacks on single records


def linkage_findings(case: Case, tolerance: float | None, tell: Progress) -> tuple[list[Finding], list[RecordAtRisk]]:
    """Attack every released record; return the findings, and the records that are most at risk."""
    tell("linking records")
    sight, record = case.sight, case.protects
    exactly = attacks.record_linkage(sight, case.known)
    findings = _record_findings(case, exactly, "record linkage", "exactly")
    if tolerance is not None:
        tell("linking records by values that are known roughly")
        rough = attacks.record_linkage(sight, Known.of_records(sight, case.data, tolerance))
        known = f"within {percent(tolerance)}"
        findings += _record_findings(case, rough, f"record linkage, {known}", known)
    guesses = {}
    for name in sight.sensitive:
        tell(f"guessing {name}")
        guesses[name] = attacks.attribute_linkage(sight, case.known, name)
        findings += _attribute_findings(case, name, guesses[name])
    if case.certain:
        findings += [_value_guess(case, axis) for axis, told in enumerate(sight.told) if told.numeric is not None]
    told = float(attacks.values_told(sight, case.known)[case.released].mean())
    findings.append(
        About("share", "table", private=True).finding(
            Figure("certain presence (value)", told, 0.0),
            f"For {percent(told)} of the {record}s the release itself says that a {record} of exactly this "
            f"{' and '.join(sight.names)} is in it. That is certainly the one somebody looks for only if no other can "
            "have the same values.",
        )
    )
    # Most at risk is who is easiest to name, or whose sensitive value is easiest to guess.
    records = np.flatnonzero(case.released)
    worst_guess = np.max([guess[records] for guess in guesses.values()] or [np.zeros(len(records))], axis=0)
    source = case.data.source_rows[records]
    order = np.lexsort((source, -worst_guess, -exactly.probability[records]))[:MOST_AT_RISK]
    return findings, [
        RecordAtRisk(
            source_row=int(case.data.source_rows[number]),
            record_linkage=float(exactly.probability[number]),
            rows=int(exactly.rows[number]),
            attribute_linkage={name: float(guess[number]) for name, guess in guesses.items()},
        )
        for number in records[order].tolist()
    ]


def _record_findings(case: Case, found: attacks.RecordLinkage, name: str, known: str) -> list[Finding]:
    probability, rows = found.probability[case.released], found.rows[case.released]
    mean, worst, record = math.fsum(probability.tolist()) / len(probability), float(probability.max()), case.protects
    values = " and ".join([*(["the public values"] if case.sight.public.columns else []), *case.sight.names])
    about, blind = About("probability", "records", private=True), 1 / len(case.sight.release)
    return [
        about.finding(
            Figure(name, _settled(mean, probability), blind),
            f"Somebody who knows {values} of a {record} ({known}), and that it was released, "
            f"names its row with {percent(mean)} on average; {number_text(float(rows.mean()))} rows may be it.",
            {"mean_rows": float(rows.mean()), "fewest_rows": int(rows.min())},
        ),
        about.finding(
            Figure(f"{name}, worst", worst, blind),
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


def population_findings(case: Case, population: Dataset) -> list[Finding]:
    """Find the journalist's risk, and who of a population is certainly in the release (delta-presence)."""
    sizes, record = case.sight.sizes, case.protects
    counts = attacks.populations(case.sight, Known.of_records(case.sight, population))
    if (counts < sizes).any():
        raise ParameterError(
            "the population has fewer records of some class than the release. Give everyone the records were drawn "
            "from, the released ones included."
        )
    shares = sizes / counts
    named, mean = 1 / int(counts.min()), float(shares.sum() / sizes.sum())
    worst, prior = float(shares.max()), len(case.sight.release) / len(population)
    certain = float(sizes[shares == 1].sum() / sizes.sum())
    return [
        About("probability", "records", private=True).finding(
            Figure("journalist risk", named, 1 / int(counts.sum())),
            f"Somebody who does not know whether a {record} is in the release names it in the population with at "
            f"most {percent(named)}, and {percent(mean)} on average: {int(counts.min()):,} or more fit each class.",
            {"mean": mean},
        ),
        About("probability", "table", private=True).finding(
            Figure("presence, worst", worst, prior),
            f"Of the population {percent(prior)} are in the release; of those who fit one class, {percent(worst)} are "
            f"at worst. {percent(certain)} of the released {record}s are certainly in it.",
            {"certain": certain},
        ),
    ]


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
    fewest, record = int(found.shared.min()), case.protects
    chances, alone = 1 / found.shared, 1 / found.alone
    mean, single = float(chances.mean()), float(alone.mean())
    findings = [
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
    releases = case.sight.release, other.sight.release
    for name in sorted(set(case.sight.sensitive) & set(other.sight.sensitive)):
        findings.append(_one_value_left(case, other, found, label, name, [release.data for release in releases]))
    members = [release.members for release in releases if release.members is not None]
    for told in case.sight.told:
        twin = next((item for item in other.sight.told if item.name == told.name), None)
        if twin is not None and len(members) == 2:
            findings.append(_one_value_left(case, other, found, label, told.name, members))
        elif twin is not None and told.numeric is not None and twin.numeric is not None:
            # How wide both releases leave a number that did not change.
            lower = np.maximum(told.lower[found.first], twin.lower[found.second])
            upper = np.minimum(told.upper[found.first], twin.upper[found.second])
            width = float(np.maximum(upper - lower, 0.0).mean())
            by_one = float((told.upper - told.lower)[found.first].mean())
            findings.append(
                About(told.numeric.unit or NO_UNIT, "several releases", private=True).finding(
                    Figure(f"{label}, width ({told.name})", width, by_one),
                    f"If {told.name} did not change, both releases together leave {_with_unit(width, told)} of it open "
                    f"on average; this release alone leaves {_with_unit(by_one, told)}.",
                )
            )
    return findings, []


def _one_value_left(
    case: Case, other: Case, found: attacks.Correspondence, label: str, name: str, tables: Sequence[pa.Table]
) -> Finding:
    """Count the records for which one value alone occurs in both classes."""
    first, second = tables
    cells = attacks.joint_occurrences(
        (first.column(name).combine_chunks(), second.column(name).combine_chunks()),
        (first.column("class_id").to_numpy(), second.column("class_id").to_numpy()),
        (len(case.sight.sizes), len(other.sight.sizes)),
    )
    share = float((attacks.values_left(*cells, found) == 1).mean())
    alone = float((cells[0].distinct[found.first] == 1).mean())
    return About("share", "several releases", private=True).finding(
        Figure(f"{label}, one value left ({name})", share, alone),
        f"If {name} did not change, one value alone occurs in both classes of {percent(share)} of the "
        f"{case.protects}s, and whoever knows both classes knows it; by this release alone it is {percent(alone)}.",
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
    found = [*_costs(plan, worth, release.certificate.guarantee.protects), *_feasibility(worth)]
    # Noisy rows are never exchanged: either the plan fits or it does not.
    return found if release.classes is not None else found[:-1], []


def _costs(plan: Plan, worth: PlanUtility, record: str) -> Iterator[Finding]:
    """Compare the plan with the best on true weights, as a ratio, and in trucks or in what they cost."""
    # A plan takes one truck at least, the cheapest; trucks that cost nothing bound nothing.
    least = max(worth.bound, 1.0 if len(plan.trucks) == 1 else min(float(truck.cost) for truck in plan.trucks))
    # If the best is not proven, the ratio may be larger; those outside were packed as well as could be found.
    most = worth.ratio if worth.proven else max(worth.ratio, float(worth.objective / (least or 1)))
    in_all = worth.in_plan + worth.outside_bound
    unit, num = "trucks" if plan.minimises == "trucks" else "in cost", worth.packages_outside
    overloaded = f"{percent(1 - worth.bins_feasible)} of its trucks are overloaded in truth"
    takes = "Plan and packages outside it take" if num else "The plan takes"
    sure = "and nothing does better" if worth.proven else "the best found, not proven"
    holds = "" if worth.plan_feasible else f" But the plan does not hold as it is: {overloaded}."
    yield About("ratio", "utility", private=True).finding(
        Figure("objective ratio", worth.ratio, 1.0, (min(worth.ratio, in_all / worth.optimum), most)),
        f"{takes} {number_text(worth.objective)} {unit}; a plan on the true weights takes "
        f"{number_text(worth.optimum)}, {sure}.{holds}",
        {"objective": worth.objective, "optimum": worth.optimum, "proven": worth.proven},
    )
    more = worth.objective - worth.optimum
    begins = f"Privacy costs {number_text(more)} {'truck' if unit == 'trucks' and more == 1 else unit}: "
    begins += "the plan on the release"
    if not worth.plan_feasible:  # of a plan that does not hold nobody knows
        begins = f"The plan does not hold as it is: {overloaded}, and mended it may take more. It"
    takes = f" takes {number_text(worth.in_plan)}"
    if num:
        others = f"{record} outside it" if num == 1 else f"{num:,} {record}s outside it"
        takes += f", the {others} {number_text(worth.outside)} more"
    everyone = f" for all {worth.packages:,}" if num else ""
    sure = "" if worth.proven else f" (the best found; {number_text(worth.bound)} at least)"
    parts = ("proven", "bound", "in_plan", "outside", "packages", "packages_outside")
    yield About(unit, "utility", private=True).finding(
        Figure(
            "trucks" if unit == "trucks" else "cost",
            worth.objective,
            worth.optimum,  # a plan without privacy, of all packages
            (min(worth.objective, in_all), worth.objective),
        ),
        f"{begins}{takes}, one without privacy {number_text(worth.optimum)}{everyone}{sure}.",
        {name: getattr(worth, name) for name in parts},
    )


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
