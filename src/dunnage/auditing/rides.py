# SPDX-License-Identifier: Apache-2.0
"""Rides that were released in clusters: what that cost in distortion and demand figures, and how diverse classes are.

Distortion, and the diversity of sensitive columns, follow from the release alone. All else compares with the truth and
is private. A set-valued row is read as **spread**: it counts evenly for every value, or pair of values, that it may
stand for.

References
----------
Bhati et al. 2021, eqs. 14-20 (distortion) and section IV-C (top 20 pairs, mean start time).

Pellungrini, Pappalardo, Pratesi, Monreale 2018, as in scikit-mobility: the risk of a card is 1 / the number of cards
that fit the rides known of it, at worst over which rides these are. Here rides fit by their generalised values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, cast

import numpy as np
import pyarrow as pa

from dunnage.arrays import FloatArray, IntArray
from dunnage.auditing import attacks
from dunnage.auditing.finding import CONFIDENCE, NO_UNIT, About, Figure, Finding, Progress, mean_interval, wilson
from dunnage.auditing.inside import Case
from dunnage.auditing.sight import Known, Listing, Sight, Told
from dunnage.domains import CodedDomain, Graph
from dunnage.measures import DISTANCE_WORDS, closeness, entropy_diversity, is_ordered, ranked, set_widths, shares_of
from dunnage.text import number_text, percent, several

TOP = 20
MOST_KNOWN = 4  # Attributes of a ride, or rides of a card, that an attacker knows at most
MOST_COMBINED = 6  # Attributes of which every choice is tried: of more, those of highest entropy
MOST_PAIRS = 20_000_000  # Pairs of an attacked record and a class: of more records some are attacked, evenly chosen
LEAST_ATTACKED = 2_000
MOST_CARDS = 500  # Cards attacked for each number of rides that are known
MOST_CHOICES = 50  # Choices of rides that are tried for one card
MOST_CARD_ROWS = 20_000_000  # Rows that fit the rides of all attacked cards together: of more, fewer cards are attacked
MOST_LABELS = 4_000  # Labels whose pairs are counted in one table
SHARES_SHOWN = (0.1, 0.5, 0.8, 0.97)  # Records that are in cheaper classes than those that are told of as examples
COST_STEPS, MOST_STEPS = (0.0025, 0.005, 0.01, 0.02, 0.025, 0.05), 32
ROUNDING = 1e-9
MOST_STATIONS = 500  # Stations of a network that is told with the examples
SANITY = 0.001  # Share of all records below which a true count is not divided by
_HOURS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 3600.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 1.0),
}


def ride_outside_findings(sight: Sight) -> list[Finding]:
    """Find what the release tells by itself: its distortion, and how diverse sensitive values are."""
    class_id = sight.release.data.column("class_id").to_numpy()
    findings = _distortion(sight)
    for name in sight.sensitive:
        column = ranked(sight.release.data.column(name).combine_chunks(), sight.release.attributes[name].plain())
        findings += _diversity(
            sight.protects, name, class_id, column, private=False, ordered=sight.mechanism.sensitive_order
        )
    return findings


def ride_inside_findings(case: Case, tell: Progress) -> tuple[list[Finding], list[str]]:
    """Compare with the truth: attackers, diversity, demand; return the findings, and notes on what is lacking."""
    findings: list[Finding] = []
    notes: list[str] = []
    parts = {
        "attacking by some attributes": knowledge_findings,
        "attacking by some rides of a card": card_findings,
        "comparing demand with the truth": demand_findings,
    }
    for stage, part in parts.items():
        tell(stage)
        more, lacking = part(case)
        findings, notes = findings + more, notes + lacking
    if not case.certain:
        return findings, notes
    # l and t of the generalised labels, and the persons of a class, by the truth
    class_id = case.of_record[case.released]
    for told in case.sight.told:
        if told.numeric is None:
            kept = case.data.column(told.name).filter(pa.array(case.released))
            column = ranked(kept, {"domain": told.domain.describe()})
            findings += _diversity(case.protects, told.name, class_id, column, private=True)
    persons = case.data.persons
    if persons is not None:
        fewest = int(attacks.Occurrences.of(class_id, persons[case.released], len(case.sight.sizes)).distinct.min())
        smallest = int(case.sight.sizes.min())
        findings.append(
            About("persons", "records", private=True).finding(
                Figure("persons in a class, fewest", fewest, smallest),
                f"The class with fewest persons has {fewest:,}; the class with fewest rows has {smallest:,}.",
            )
        )
    return findings, notes


# Distortion


def class_widths(told: Told) -> FloatArray:
    """Return the largest distance within each class over the diameter of the domain (eq. 20)."""
    if told.listing is None:  # leaves below a node have neighbouring places
        return np.asarray((told.upper - told.lower) / told.span)
    codes, counts = told.listing.places.astype(np.int64), np.bincount(told.listing.of_class)
    coded = cast(CodedDomain, told.domain)  # all but numbers are
    return set_widths(coded, codes, counts.astype(np.int64)) / (told.domain.diameter or 1.0)


@dataclass(frozen=True, eq=False)
class Distortion:
    """Distortion of a release (eqs. 14-19)."""

    generalised: dict[str, float]  # By generalisation, over released records, of each attribute (eq. 19)
    suppressed: float  # Share of all records that were suppressed (eq. 17)
    widths: dict[str, FloatArray]  # Of each class, by attribute (eq. 20)

    @classmethod
    def of(cls, sight: Sight) -> Distortion:
        """Measure a release, by its classes and the count of suppressed records that it states."""
        released = int(sight.sizes.sum())
        lost = sight.release.certificate.rows.num_suppressed
        widths = {told.name: class_widths(told) for told in sight.told}
        means = {name: math.fsum((sight.sizes * wide).tolist()) / released for name, wide in widths.items()}
        return cls(means, lost / (released + lost), widths)

    def attribute(self, name: str) -> float:
        """Return the distortion of one attribute (eq. 18)."""
        return self._with_suppressed(self.generalised[name])

    def total(self, weights: dict[str, float]) -> float:
        """Return the distortion in total (eq. 14), by the weight of each attribute."""
        return self._with_suppressed(self.by_generalisation(weights))

    def by_generalisation(self, weights: dict[str, float]) -> float:
        """Return the distortion of released records (eq. 16)."""
        return math.fsum(weights[name] * value for name, value in self.generalised.items())

    def class_costs(self, weights: dict[str, float]) -> FloatArray:
        """Return what each class is charged for one of its records (eq. 15), by the weight of each attribute."""
        return np.asarray(np.sum([weights[name] * wide for name, wide in self.widths.items()], axis=0))

    def _with_suppressed(self, generalised: float) -> float:
        return generalised + (1 - generalised) * self.suppressed


def own_weights(sight: Sight) -> dict[str, float]:
    """Return what each attribute counts, as the release states it; all alike if it does not."""
    stated = sight.release.certificate.rows.importance
    known = stated is not None and set(stated.weights) == set(sight.names)
    return shares_of({name: stated.weights[name] if stated is not None and known else 1.0 for name in sight.names})


def _distortion(sight: Sight) -> list[Finding]:
    found, record, about = Distortion.of(sight), sight.protects, About("share", "utility")
    own, equal = own_weights(sight), shares_of(dict.fromkeys(sight.names, 1.0))
    total, fixed, inside = found.total(own), found.total(equal), found.by_generalisation(own)
    counts = ", ".join(f"{name} {number_text(weight)}" for name, weight in own.items())
    lost = {"by_suppression": found.suppressed}
    by_name = {name: (found.attribute(name), found.generalised[name]) for name in sight.names}
    return [
        about.finding(
            Figure("total distortion", total, 1.0),
            f"{percent(total)} of what a {record} tells is lost, by the importance that the release was made with "
            f"({counts}); a suppressed {record} is lost altogether. 100 % would tell nothing.",
            {
                "by_generalisation": inside,
                **lost,
                "weights": own,
                "attributes": {name: value for name, (value, _) in by_name.items()},
            },
        ),
        about.finding(
            Figure("total distortion, equal weights", fixed, 1.0),
            f"It is {percent(fixed)} if all attributes count alike. Compare releases of different importance by this.",
            {"by_generalisation": found.by_generalisation(equal), **lost},
        ),
        about.finding(
            Figure("distortion by generalisation", inside, 1.0),
            f"Classes leave {percent(inside)} of a released {record} open, by the release's own importance.",
            {"attributes": found.generalised, **_class_details(sight, found.class_costs(own))},
        ),
        about.finding(
            Figure("distortion by suppression", found.suppressed, 1.0),
            f"{percent(found.suppressed)} of the {record}s were suppressed.",
        ),
        *(
            about.finding(
                Figure(f"distortion ({name})", value, 1.0),
                f"{percent(value)} of {name} is lost: classes span {percent(wide)} of its domain on average, and "
                f"{percent(found.suppressed)} is suppressed.",
                {"by_generalisation": wide, **lost},
            )
            for name, (value, wide) in by_name.items()
        ),
    ]


def _class_details(sight: Sight, costs: FloatArray) -> dict[str, object]:
    """Say how costs are spread over records, and what some classes from cheap to dear tell; all of it is released."""
    assert sight.release.classes is not None
    order = np.argsort(costs, kind="stable")
    reached = np.cumsum(sight.sizes[order]) / sight.sizes.sum()
    shown = dict.fromkeys(order[np.searchsorted(reached, SHARES_SHOWN)].tolist())
    # Costs lie between 0 and 1; a class of no cost at all stands in the first step.
    step = next(step for step in COST_STEPS if step * MOST_STEPS >= costs.max())
    bars = np.bincount(np.floor(costs / step + ROUNDING).astype(np.int64), weights=sight.sizes)
    details: dict[str, object] = {
        "costs": {
            "step": step,
            "records": bars.astype(np.int64).tolist(),
            "median": float(costs[order[np.searchsorted(reached, 0.5)]]),
            "highest": float(costs.max()),
        },
        "classes": [
            {"cost": float(costs[number]), "told": sight.release.classes.slice(number, 1).to_pylist()[0]}
            for number in shown
        ],
        "units": {told.name: told.numeric.unit for told in sight.told if told.numeric is not None},
    }
    network = next((told for told in sight.told if isinstance(told.domain, Graph)), None)
    if network is not None and isinstance(network.domain, Graph) and network.num_labels <= MOST_STATIONS:
        details["network"] = {
            "attributes": [told.name for told in sight.told if told.domain == network.domain],
            "edges": [[start, end] for start, end, _ in network.domain.edges],
        }
    return details


# Diversity


def _diversity(
    record: str, name: str, class_id: IntArray, column: pa.Array, *, private: bool, ordered: bool | None = None
) -> list[Finding]:
    """Give the l and t that classes reach in one column; by default numbers are compared by order."""
    codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False).astype(np.int64)
    fewest = int(attacks.Occurrences.of(class_id, codes, int(class_id.max()) + 1).distinct.min())
    entropy, in_all = entropy_diversity(class_id, column), int(codes.max()) + 1
    ordered = is_ordered(column) if ordered is None else ordered
    distance, how = min(closeness(class_id, column, ordered=ordered), 1.0), DISTANCE_WORDS[ordered]
    return [
        About("values", "attributes", private).finding(
            Figure(f"l reached ({name})", fewest, in_all),
            f"The least diverse class has {several(fewest, 'value')} of {name} (distinct l), and by entropy l = "
            f"{number_text(entropy)}; all {record}s together have {in_all:,}.",
            {"entropy_l": entropy},
        ),
        About("share", "attributes", private).finding(
            Figure(f"t reached ({name})", distance, 0.0),
            f"The class whose {name} differs most from the whole table is {percent(distance)} away from it ({how}).",
            {"distance": how},
        ),
    ]


# Demand


def demand_findings(case: Case) -> tuple[list[Finding], list[str]]:
    """Compare demand as read from the release with the truth: top pairs, means of numbers, hourly boardings."""
    told = case.sight.told
    findings = [_mean_error(case, axis) for axis, one in enumerate(told) if one.numeric is not None]
    graphs = [axis for axis, one in enumerate(told) if isinstance(one.domain, Graph)]
    pairs = itertools.combinations(graphs, 2)
    alike = ((one, two) for one, two in pairs if told[one].domain == told[two].domain)
    # The first two attributes that are stations of the same network, and the first that is a time.
    stations = next((pair for pair in alike if told[pair[0]].num_labels <= MOST_LABELS), None)
    hours = next((axis for axis, one in enumerate(told) if one.numeric and _hour(one)), None)
    if stations is None:
        return findings, ["No two attributes are stations of one network, so pairs and boardings were not counted."]
    findings += _top_pairs(case, *stations)
    if hours is None:
        note = 'No number is a time (unit "s", "min" or "h"), so boardings were not counted by the hour.'
        return findings, [note]
    return findings + _boardings(case, stations[0], hours), []


def _hour(told: Told) -> float:
    return _HOURS.get(told.numeric.unit.lower(), 0.0) if told.numeric is not None else 0.0


def possible_labels(told: Told) -> Listing:
    """Return the labels that each class may have: its set, or the leaves below its node."""
    if told.listing is not None:
        return told.listing
    counts = (told.upper - told.lower).astype(np.int64) + 1
    of_class = np.repeat(np.arange(len(counts)), counts)
    offset = np.arange(len(of_class)) - np.repeat(np.cumsum(counts) - counts, counts)
    return Listing(told.lower[of_class] + offset, of_class)


def _incidence(told: Told, num_classes: int) -> Any:
    """Return a sparse table of ones: which labels a class may have. Shape: labels, classes."""
    from scipy.sparse import csr_matrix

    places, of_class = possible_labels(told)
    shape = (told.num_labels, num_classes)
    return csr_matrix((np.ones(len(places)), (places.astype(np.int64), of_class)), shape=shape)


def pair_counts(sight: Sight, origin: int, destination: int) -> dict[str, FloatArray]:
    """Count rides by pairs of stations as a set-valued row may be read. Shape of each: labels, labels."""
    first, second = (_incidence(sight.told[axis], len(sight.sizes)) for axis in (origin, destination))
    num_first, num_second = (np.asarray(table.sum(axis=0)).ravel() for table in (first, second))
    sizes = sight.sizes.astype(np.float64)
    weights = {
        "spread": sizes / (num_first * num_second),
        "certain": np.where(num_first * num_second == 1, sizes, 0.0),
        "possible": sizes,
    }
    return {name: (first.multiply(weight[None, :]) @ second.T).toarray() for name, weight in weights.items()}


def _top_pairs(case: Case, origin: int, destination: int) -> list[Finding]:
    """Find how many of the busiest pairs are still the busiest, and how far their counts are off."""
    sight, record = case.sight, case.protects
    num = sight.told[origin].num_labels
    pairs = case.known.low[origin].astype(np.int64) * num + case.known.low[destination].astype(np.int64)
    truth = np.bincount(pairs, minlength=num * num).astype(np.float64)
    counts = {name: table.ravel() for name, table in pair_counts(sight, origin, destination).items()}
    top = min(TOP, int((truth > 0).sum()))
    busiest = np.argsort(-truth, kind="stable")[:top]
    # As good as the last of them is who has as many; sums are rounded so that equal ones stay equal.
    enough = truth >= truth[busiest[-1]]
    kept = float(enough[np.argsort(-np.round(counts["spread"], 9), kind="stable")[:top]].mean())
    # Pairs of a station with itself are pairs too: both the truth and sets may have them.
    chance = float(enough.sum() / num**2)
    error = float(np.abs(counts["spread"][busiest] - truth[busiest]).mean())
    blind = float(np.abs(len(case.data) / num**2 - truth[busiest]).mean())
    names = f"{sight.names[origin]} and {sight.names[destination]}"
    means = {name: float(table[busiest].mean()) for name, table in counts.items()}
    return [
        About("share", "utility", private=True).finding(
            Figure("top pairs kept", kept, chance),
            f"{percent(kept)} of the {top} pairs of {names} that look busiest are in truth among the {top} busiest; a "
            f"row counts evenly for each pair of its sets. Pairs at random would be with {percent(chance)}.",
            {"pairs": top},
        ),
        About(f"{record}s", "utility", private=True).finding(
            Figure("top pairs, mean error", error, blind),
            f"The {top} busiest pairs have {number_text(float(truth[busiest].mean()))} {record}s each on average; read "
            f"from the release, each is off by {number_text(error)} on average. Rows of no other pair alone give "
            f"{number_text(means['certain'])} a pair, all rows that may be of it {number_text(means['possible'])}.",
            {"truth": float(truth[busiest].mean()), **means, "relative": error / float(truth[busiest].mean())},
        ),
    ]


def _mean_error(case: Case, axis: int) -> Finding:
    """Compare the mean of midpoints with the true mean; minima, as the paper takes them, are in the details."""
    told, sizes = case.sight.told[axis], case.sight.sizes
    assert told.numeric is not None
    truth = math.fsum(case.known.low[axis].tolist()) / len(case.data)
    rows = int(sizes.sum())
    middle = math.fsum((sizes * (told.lower + told.upper) / 2).tolist()) / rows
    least = math.fsum((sizes * told.lower).tolist()) / rows
    error, unit = abs(middle - truth), told.numeric.unit
    blind = abs((told.numeric.lower_float + told.numeric.upper_float) / 2 - truth)
    return About(unit or NO_UNIT, "utility", private=True).finding(
        Figure(f"mean error ({told.name})", error, blind),
        f"The mean {told.name} by the middles of intervals is {number_text(error)}{' ' + unit if unit else ''} off the "
        f"true one; by their lower ends it would be {number_text(abs(least - truth))}, and the middle of the domain, "
        f"without the release, is {number_text(blind)} off.",
        {"truth": truth, "by_middles": middle, "by_lower_ends": least},
    )


def hour_shares(told: Told) -> tuple[FloatArray, int]:
    """Return which share of each class's interval lies in each hour, and the first hour. Shape: classes, hours.

    Who comes at the very end of the domain, such as 24:00, comes in the hour before it.
    """
    domain, hour = told.numeric, _hour(told)
    assert domain is not None
    first = math.floor(domain.lower_float / hour)
    begins = hour * np.arange(first, max(first + 1, math.ceil(domain.upper_float / hour)))
    ends = np.append(begins[1:], np.inf)
    # On a grid a value stands for the step that begins with it.
    step = float(domain.resolution) if domain.resolution is not None else 0.0
    lower, end = told.lower[:, None], told.upper[:, None] + step
    inside = np.minimum(end, ends) - np.maximum(lower, begins)
    points = (lower >= begins) & (lower < ends)
    width = np.where(end > lower, end - lower, 1.0)
    shares = np.where(end > lower, np.maximum(inside, 0.0) / width, points)
    return shares / shares.sum(axis=1, keepdims=True), first


def hourly_boardings(sight: Sight, station: int, time: int) -> FloatArray:
    """Count rides by station and hour, each row evenly over its set and its interval. Shape: labels, hours."""
    table = _incidence(sight.told[station], len(sight.sizes))
    weight = sight.sizes / np.asarray(table.sum(axis=0)).ravel()
    return np.asarray(table @ (weight[:, None] * hour_shares(sight.told[time])[0]))


def _boardings(case: Case, station: int, time: int) -> list[Finding]:
    """Find the error of boardings by station and hour, over all stations and all hours of the domain."""
    sight, record = case.sight, case.protects
    counts = hourly_boardings(sight, station, time)
    first = hour_shares(sight.told[time])[1]
    hours = np.floor(case.known.low[time] / _hour(sight.told[time])).astype(np.int64) - first
    hours = np.minimum(hours, counts.shape[1] - 1)
    cells = case.known.low[station].astype(np.int64) * counts.shape[1] + hours
    truth = np.bincount(cells, minlength=counts.size).reshape(counts.shape)
    floor = max(1.0, SANITY * len(case.data))
    blind = np.full(counts.shape, len(case.data) / counts.size)
    errors = [np.abs(read - truth) for read in (counts, blind)]
    relative = [float((error / np.maximum(truth, floor)).mean()) for error in errors]
    absolute = [float(error.mean()) for error in errors]
    where = f"({sight.names[station]} by hour of {sight.names[time]})"
    return [
        About("ratio", "utility", private=True).finding(
            Figure(f"query error {where}", relative[0], relative[1]),
            f"Asked for the {record}s of one {sight.names[station]} in one hour, the release is off by "
            f"{percent(relative[0])} of the true count on average, counts below {number_text(floor)} taken as that; "
            f"spreading all evenly is off by {percent(relative[1])}.",
            {"floor": floor, "cells": counts.size},
        ),
        About(f"{record}s", "utility", private=True).finding(
            Figure(f"query error, absolute {where}", absolute[0], absolute[1]),
            f"That is {number_text(absolute[0])} {record}s a count, and {number_text(absolute[1])} with all spread "
            f"evenly; there are {number_text(float(truth.mean()))} on average.",
        ),
    ]


# Attackers who know part of the truth, some attributes of a record or some rides of a card, are tried before, on the
# true table with names taken off, and after, on the release. What fits a record by the release are all rows of every
# class that the known values do not rule out.

# Who knows some attributes of a ride


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What somebody finds who knows some attributes of a record."""

    names: tuple[str, ...]  # The attributes that are known
    before: IntArray  # How many true records have the same values, for each released record
    after: IntArray  # How many released rows may be it, for each record that was attacked


def telling_names(case: Case) -> list[str]:
    """Return the six attributes whose true values have the highest entropy, in the order of the release."""
    shares = [np.unique(values, return_counts=True)[1] / len(values) for values in case.known.low]
    order = np.argsort([(own * np.log2(own)).sum() for own in shares], kind="stable")[:MOST_COMBINED]
    return [case.sight.names[axis] for axis in sorted(order.tolist())]


def attack_by(case: Case, names: tuple[str, ...], attacked: IntArray) -> Knowledge:
    """Attack records by some of their attributes; public values are always known."""
    axes = [case.sight.names.index(name) for name in names]
    group = _same_values(case.known, axes)
    before = np.bincount(group)[group[case.released]]
    # Who is known by the same values is found among the same rows.
    _, first, asked = np.unique(group[attacked], return_index=True, return_inverse=True)
    records = attacked[first]
    low = np.full((len(case.sight.told), len(records)), -np.inf)
    high = -low
    low[axes] = high[axes] = case.known.low[axes][:, records]
    found = attacks.record_linkage(case.sight, Known(stratum=case.known.stratum[records], low=low, high=high))
    return Knowledge(names, before, found.rows[asked.reshape(-1)])


def _same_values(known: Known, axes: Sequence[int]) -> IntArray:
    """Give records with the same public values and attributes the same number, from 0 on."""
    group = np.unique(known.stratum, return_inverse=True)[1].reshape(-1)
    for axis in axes:
        code = np.unique(known.low[axis], return_inverse=True)[1].reshape(-1)
        group = np.unique(group * (int(code.max()) + 1) + code, return_inverse=True)[1].reshape(-1)
    return group


def evenly(items: IntArray, most: int) -> IntArray:
    return items if len(items) <= most else items[np.linspace(0, len(items) - 1, most).astype(np.int64)]


def knowledge_findings(case: Case) -> tuple[list[Finding], list[str]]:
    names = telling_names(case)
    most = max(LEAST_ATTACKED, MOST_PAIRS // len(case.sight.sizes))
    attacked = evenly(np.flatnonzero(case.released), most)
    complete = len(attacked) == int(case.released.sum())
    findings: list[Finding] = []
    for num in range(1, min(MOST_KNOWN, len(names)) + 1):
        found = [attack_by(case, choice, attacked) for choice in itertools.combinations(names, num)]
        findings += _known_findings(case, num, found, complete)
    left = ", ".join(name for name in case.sight.names if name not in names)
    note = (
        f"Attackers who know some attributes were tried with the {MOST_COMBINED} of highest entropy, not with {left}."
    )
    return findings, [note] if left else []


def _known_findings(case: Case, num: int, found: list[Knowledge], complete: bool) -> list[Finding]:
    """Give the figures for so many known attributes, each for the choice that tells most."""
    record, smallest = case.protects, int(case.sight.sizes.min())
    unique = max(found, key=lambda one: float((one.after == 1).mean()) + float((one.before == 1).mean()) * 1e-9)
    fewest = min(found, key=lambda one: int(one.after.min()))
    middle = min(found, key=lambda one: float(np.median(one.after)))
    before = max(float((one.before == 1).mean()) for one in found)
    share, attacked = float((unique.after == 1).mean()), len(unique.after)
    sampled = "" if complete else f" ({attacked:,} {record}s were attacked, evenly chosen)"
    label, tell = f"({several(num, 'attribute')} known)", "tells" if num == 1 else "tell"
    details = {
        " and ".join(one.names): {
            "unique_before": float((one.before == 1).mean()),
            "unique": float((one.after == 1).mean()),
            "fewest_before": int(one.before.min()),
            "fewest": int(one.after.min()),
            "median_before": float(np.median(one.before)),
            "median": float(np.median(one.after)),
        }
        for one in found
    }
    # No class has a single row, so that no attribute leaves one.
    between = (share, share) if complete or smallest > 1 else wilson(share * attacked, attacked)
    return [
        About("share", "records", private=True).finding(
            Figure(f"uniqueness {label}", share, before, between),
            f"Somebody who knows the {several(num, 'attribute')} of a {record} that {tell} most is left with one "
            f"row for {percent(share)} of them; in the true table it is {percent(before)}{sampled}.",
            details,
        ),
        About("rows", "records", private=True).finding(
            Figure(
                f"candidate rows, fewest {label}",
                float(fewest.after.min()),
                float(min(one.before.min() for one in found)),
                (float(fewest.after.min() if complete else smallest), float(fewest.after.min())),
            ),
            f"No {record} has fewer than {several(int(fewest.after.min()), 'row')} that may be it, for who "
            f"knows {' and '.join(fewest.names)}{sampled}.",
        ),
        About("rows", "records", private=True).finding(
            Figure(
                f"candidate rows, median {label}",
                float(np.median(middle.after)),
                min(float(np.median(one.before)) for one in found),
                median_interval(middle.after, complete),
            ),
            f"Half of the {record}s have {number_text(float(np.median(middle.after)))} rows or more that may "
            f"be them, for who knows {' and '.join(middle.names)}{sampled}.",
        ),
    ]


def median_interval(figures: IntArray, complete: bool) -> tuple[float, float]:
    """Return the median, or the order statistics between which that of all lies at 95 % confidence."""
    value = float(np.median(figures))
    if complete:
        return value, value
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(len(figures)) / 2
    ranked = np.sort(figures)
    low, high = math.floor(len(ranked) / 2 - reach), math.ceil(len(ranked) / 2 + reach)
    return min(float(ranked[max(low, 0)]), value), max(float(ranked[min(high, len(ranked) - 1)]), value)


# Who knows some rides of a card


@dataclass(frozen=True, eq=False)
class Fitting:
    """For some records the groups of records that fit what is known of each."""

    groups: dict[int, IntArray]  # By record the numbers of the groups
    # members, starts: all records by group, and where each group begins; one entry more than there are groups
    members: IntArray
    starts: IntArray

    @classmethod
    def of(cls, groups: dict[int, IntArray], of_record: IntArray) -> Fitting:
        """Put records in order of their group; those of group -1 are in none."""
        members = np.argsort(of_record, kind="stable")[int((of_record < 0).sum()) :]
        return cls(groups, members, np.searchsorted(of_record[members], np.arange(int(of_record.max()) + 2)))

    def records(self, record: int) -> IntArray:
        parts = [self.members[self.starts[group] : self.starts[group + 1]] for group in self.groups[record].tolist()]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def num_records(self, record: int) -> int:
        groups = self.groups[record]
        return int((self.starts[groups + 1] - self.starts[groups]).sum())


def cards_that_fit(known: Sequence[IntArray], persons: IntArray) -> int:
    """Count the cards that have, for all known rides at once, different rides that fit."""
    common = np.unique(persons[known[0]])
    for records in known[1:]:
        common = np.intersect1d(common, persons[records])
    if len(known) == 1:
        return len(common)
    rides: dict[int, list[set[int]]] = {person: [] for person in common.tolist()}
    for records in known:
        for own in rides.values():
            own.append(set())
        inside = records[np.isin(persons[records], common)]
        for person, record in zip(persons[inside].tolist(), inside.tolist(), strict=True):
            rides[person][-1].add(record)
    # One can be chosen from each set, all different, if no sets are fewer together than there are of them (Hall).
    sizes = range(2, len(known) + 1)
    return sum(
        all(len(set().union(*some)) >= num for num in sizes for some in itertools.combinations(own, num))
        for own in rides.values()
    )


@dataclass(frozen=True, eq=False)
class CardRisk:
    """How many cards fit, at worst over which rides are known, for each attacked card; before and after."""

    before: IntArray
    after: IntArray
    complete: bool  # Whether every choice of rides was tried


def card_risk(cards: Sequence[IntArray], num: int, fits: tuple[Fitting, Fitting], persons: IntArray) -> CardRisk:
    """Attack cards by so many of their released rides; of a card with many rides not every choice is tried."""
    fewest = np.empty((2, len(cards)), dtype=np.int64)
    for place, rides in enumerate(cards):
        choices = list(itertools.islice(itertools.combinations(rides.tolist(), num), MOST_CHOICES))
        for side, fit in enumerate(fits):
            fewest[side, place] = min(cards_that_fit([fit.records(ride) for ride in own], persons) for own in choices)
    complete = all(math.comb(len(rides), num) <= MOST_CHOICES for rides in cards)
    return CardRisk(fewest[0], fewest[1], complete)


def card_findings(case: Case) -> tuple[list[Finding], list[str]]:
    persons = case.data.persons
    if persons is None:
        return [], ["The policy names no person, so rides of one card were not attacked together. Add [contribution]."]
    if not case.certain:
        return [], []
    released = np.flatnonzero(case.released)
    order = released[np.argsort(persons[released], kind="stable")]
    of_cards = np.split(order, np.flatnonzero(np.diff(persons[order])) + 1)
    able = {num: [own for own in of_cards if len(own) >= num] for num in range(1, MOST_KNOWN + 1)}
    chosen = {num: evenly(np.arange(len(cards)), MOST_CARDS) for num, cards in able.items() if cards}
    rides = np.unique(np.concatenate([able[num][card] for num, cards in chosen.items() for card in cards.tolist()]))
    # Which records fit each ride by its true values, and which by the release.
    same = _same_values(case.known, range(len(case.sight.told)))
    about = Known(stratum=case.known.stratum[rides], low=case.known.low[:, rides], high=case.known.high[:, rides])
    after = {ride: np.zeros(0, dtype=np.int64) for ride in rides.tolist()}
    for found in attacks.candidates(case.sight, about):
        for part in np.split(np.arange(len(found.record)), found.starts[1:]):
            after[int(rides[found.record[part[0]]])] = found.of_class[part]
    fits = Fitting.of({ride: same[[ride]] for ride in rides.tolist()}, same), Fitting.of(after, case.of_record)
    findings = []
    for num, cards in chosen.items():
        rows = sum(fits[1].num_records(ride) for card in cards.tolist() for ride in able[num][card].tolist())
        some = evenly(cards, max(1, len(cards) * MOST_CARD_ROWS // max(rows, MOST_CARD_ROWS)))
        risk = card_risk([able[num][card] for card in some.tolist()], num, fits, persons)
        findings += _card_figures(num, risk, len(able[num]))
    return findings, []


def _card_figures(num: int, found: CardRisk, able: int) -> list[Finding]:
    attacked, label, tell = len(found.after), f"({several(num, 'ride')} known)", "tells" if num == 1 else "tell"
    risks, before = 1 / found.after, float((1 / found.before).mean())
    mean, unique = float(risks.mean()), float((found.after == 1).mean())
    everyone = attacked == able
    low, high = (mean, mean) if everyone else mean_interval(risks)
    among = "" if everyone else f" ({attacked:,} of {able:,} cards were attacked)"
    linked = "" if num == 1 else ", if rows of one card could be told to belong together: the release does not tell"
    ends = (unique, unique) if everyone else wilson(unique * attacked, attacked)
    unique_before = float((found.before == 1).mean())
    return [
        About("probability", "records", private=True).finding(
            Figure(f"card risk {label}", mean, before, (low, high if found.complete else 1.0)),
            f"Somebody who knows the {several(num, 'ride')} of a card that {tell} most names it with "
            f"{percent(mean)} on average{linked}; in the true table it is {percent(before)}{among}.",
            {
                "cards": able,
                "attacked": attacked,
                "fewest_cards": int(found.after.min()),
                "median_cards": float(np.median(found.after)),
                "median_cards_before": float(np.median(found.before)),
                "every_choice_tried": found.complete,
            },
        ),
        About("share", "records", private=True).finding(
            Figure(f"card uniqueness {label}", unique, unique_before, (ends[0], ends[1] if found.complete else 1.0)),
            f"For {percent(unique)} of the cards with {several(num, 'ride')} or more no other card fits"
            f"{linked}; in the true table it is {percent(unique_before)}.",
        ),
    ]
