# SPDX-License-Identifier: Apache-2.0
"""Rides that were released in clusters: what that cost in distortion and demand figures, and how diverse classes are.

Distortion, and the diversity of sensitive columns, follow from the release alone. All else compares with the truth and
is private. A set-valued row is read as **spread**: it counts evenly for every value, or pair of values, that it may
stand for.

References
----------
Bhati et al. 2021, eqs. 14-20 (distortion) and section IV-C (top 20 pairs, mean start time).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dunnage.arrays import FloatArray, IntArray
from dunnage.auditing import attacks
from dunnage.auditing.finding import NO_UNIT, Finding, counted
from dunnage.auditing.inside import Case
from dunnage.auditing.knowledge import card_findings, knowledge_findings, many
from dunnage.auditing.sight import Listing, Sight, Told
from dunnage.domains import CodedDomain, Graph, Numeric
from dunnage.measures import (
    DISTANCE_WORDS,
    closeness,
    entropy_diversity,
    is_ordered,
    order_asked,
    ranked,
    set_widths,
    shares_of,
)
from dunnage.text import number_text, percent

TOP = 20
MOST_LABELS = 4_000
"""Labels whose pairs are counted in one table."""
SHARES_SHOWN = (0.1, 0.5, 0.8, 0.97)
"""Records that are in cheaper classes than those that are told of as examples."""
COST_STEPS, MOST_STEPS = (0.0025, 0.005, 0.01, 0.02, 0.025, 0.05), 32
ROUNDING = 1e-9
MOST_STATIONS = 500
"""Stations of a network that is told with the examples."""
SANITY = 0.001
"""Share of all records below which a true count is not divided by."""
_HOURS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 3600.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 1.0),
}

Progress = Callable[[str], None]


def ride_outside_findings(sight: Sight) -> list[Finding]:
    """Find what the release tells by itself: its distortion, and how diverse sensitive values are."""
    class_id = sight.release.data.column("class_id").to_numpy()
    findings = _distortion(sight)
    asked = order_asked(sight.release.certificate.body["mechanism"])
    for name in sight.sensitive:
        column = ranked(sight.release.data.column(name).combine_chunks(), sight.release.attributes[name])
        findings += _diversity(_protects(sight), name, class_id, column, private=False, ordered=asked)
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
    if case.certain:
        findings += _true_diversity(case)
    return findings, notes


def _protects(sight: Sight) -> str:
    return str(sight.release.certificate.body["guarantee"]["protects"])


# Distortion


def class_widths(told: Told) -> FloatArray:
    """Return the largest distance within each class over the diameter of the domain (eq. 20)."""
    if told.listing is None:  # leaves below a node have neighbouring places
        return np.asarray((told.upper - told.lower) / told.span)
    codes, counts = told.listing.places.astype(np.int64), np.bincount(told.listing.of_class)
    return set_widths(_coded(told), codes, counts.astype(np.int64)) / (told.domain.diameter or 1.0)


def _coded(told: Told) -> CodedDomain:
    domain = told.domain
    assert not isinstance(domain, Numeric)
    return domain  # type: ignore[return-value]  # all but numbers are coded


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
        lost = int(sight.release.certificate.body["measures"].get("suppressed", {}).get("count", 0))
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
    stated = sight.release.certificate.body["measures"].get("importance", {}).get("weights", {})
    if set(stated) != set(sight.names):
        stated = dict.fromkeys(sight.names, 1.0)
    return shares_of({name: float(stated[name]) for name in sight.names})


def _distortion(sight: Sight) -> list[Finding]:
    found, record = Distortion.of(sight), _protects(sight)
    own, equal = own_weights(sight), shares_of(dict.fromkeys(sight.names, 1.0))
    total, fixed, inside = found.total(own), found.total(equal), found.by_generalisation(own)
    counts = ", ".join(f"{name} {number_text(weight)}" for name, weight in own.items())
    kinds: dict[str, Any] = {"unit": "share", "topic": "utility", "private": False}
    figures = {"by_generalisation": inside, "by_suppression": found.suppressed, "weights": own}
    return [
        counted(
            "total distortion",
            total,
            1.0,
            f"{percent(total)} of what a {record} tells is lost, by the importance that the release was made with "
            f"({counts}); a suppressed {record} is lost altogether. 100 % would tell nothing.",
            details={**figures, "attributes": {name: found.attribute(name) for name in sight.names}},
            **kinds,
        ),
        counted(
            "total distortion, equal weights",
            fixed,
            1.0,
            f"It is {percent(fixed)} if all attributes count alike. Compare releases of different importance by this.",
            details={"by_generalisation": found.by_generalisation(equal), "by_suppression": found.suppressed},
            **kinds,
        ),
        counted(
            "distortion by generalisation",
            inside,
            1.0,
            f"Classes leave {percent(inside)} of a released {record} open, by the release's own importance.",
            details={"attributes": found.generalised, **_class_details(sight, found.class_costs(own))},
            **kinds,
        ),
        counted(
            "distortion by suppression",
            found.suppressed,
            1.0,
            f"{percent(found.suppressed)} of the {record}s were suppressed.",
            **kinds,
        ),
        *(_attribute_distortion(found, name, kinds) for name in sight.names),
    ]


def _attribute_distortion(found: Distortion, name: str, kinds: dict[str, Any]) -> Finding:
    value, inside = found.attribute(name), found.generalised[name]
    return counted(
        f"distortion ({name})",
        value,
        1.0,
        f"{percent(value)} of {name} is lost: classes span {percent(inside)} of its domain on average, and "
        f"{percent(found.suppressed)} is suppressed.",
        details={"by_generalisation": inside, "by_suppression": found.suppressed},
        **kinds,
    )


def _class_details(sight: Sight, costs: FloatArray) -> dict[str, Any]:
    """Say how costs are spread over records, and what some classes from cheap to dear tell; all of it is released."""
    assert sight.release.classes is not None
    order = np.argsort(costs, kind="stable")
    reached = np.cumsum(sight.sizes[order]) / sight.sizes.sum()
    shown = dict.fromkeys(order[np.searchsorted(reached, SHARES_SHOWN)].tolist())
    # Costs lie between 0 and 1; a class of no cost at all stands in the first step.
    step = next(step for step in COST_STEPS if step * MOST_STEPS >= costs.max())
    bars = np.bincount(np.floor(costs / step + ROUNDING).astype(np.int64), weights=sight.sizes)
    details: dict[str, Any] = {
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
    entropy = entropy_diversity(class_id, column)
    ordered = is_ordered(column) if ordered is None else ordered
    distance = min(closeness(class_id, column, ordered=ordered), 1.0)
    kinds: dict[str, Any] = {"topic": "attributes", "private": private}
    how = DISTANCE_WORDS[ordered]
    return [
        counted(
            f"l reached ({name})",
            fewest,
            int(codes.max()) + 1,
            f"The least diverse class has {many(fewest, 'value')} of {name} (distinct l), and by entropy l = "
            f"{number_text(entropy)}; all {record}s together have {int(codes.max()) + 1:,}.",
            unit="values",
            details={"entropy_l": entropy},
            **kinds,
        ),
        counted(
            f"t reached ({name})",
            distance,
            0.0,
            f"The class whose {name} differs most from the whole table is {percent(distance)} away from it ({how}).",
            unit="share",
            details={"distance": how},
            **kinds,
        ),
    ]


def _true_diversity(case: Case) -> list[Finding]:
    """Give l and t of the generalised labels, and the persons of a class; by the truth, hence private."""
    findings, released = [], case.released
    class_id = case.of_record[released]
    for told in case.sight.told:
        if told.numeric is None:
            column = ranked(case.data.column(told.name).filter(pa.array(released)), {"domain": told.domain.describe()})
            findings += _diversity(case.protects, told.name, class_id, column, private=True)
    persons = case.data.persons
    if persons is not None:
        fewest = int(attacks.Occurrences.of(class_id, persons[released], len(case.sight.sizes)).distinct.min())
        smallest = int(case.sight.sizes.min())
        findings.append(
            counted(
                "persons in a class, fewest",
                fewest,
                smallest,
                f"The class with fewest persons has {fewest:,}; the class with fewest rows has {smallest:,}.",
                unit="persons",
                topic="records",
                private=True,
            )
        )
    return findings


# Demand


def demand_findings(case: Case) -> tuple[list[Finding], list[str]]:
    """Compare demand as read from the release with the truth: top pairs, means of numbers, hourly boardings."""
    findings = [_mean_error(case, axis) for axis, told in enumerate(case.sight.told) if told.numeric is not None]
    notes = []
    pair = _stations(case.sight)
    if pair is None:
        notes.append("No two attributes are stations of one network, so pairs and boardings were not counted.")
        return findings, notes
    findings += _top_pairs(case, *pair)
    hours = next((axis for axis, told in enumerate(case.sight.told) if told.numeric and _hour(told)), None)
    if hours is None:
        notes.append('No number is a time (unit "s", "min" or "h"), so boardings were not counted by the hour.')
        return findings, notes
    return findings + _boardings(case, pair[0], hours), notes


def _stations(sight: Sight) -> tuple[int, int] | None:
    """Return the first two attributes that are labels of the same network."""
    graphs = [axis for axis, told in enumerate(sight.told) if told.domain.kind == "graph"]
    for pair in itertools.combinations(graphs, 2):
        first, second = (sight.told[axis] for axis in pair)
        if first.domain == second.domain and first.num_labels <= MOST_LABELS:
            return pair[0], pair[1]
    return None


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
    kinds: dict[str, Any] = {"topic": "utility", "private": True}
    return [
        counted(
            "top pairs kept",
            kept,
            chance,
            f"{percent(kept)} of the {top} pairs of {names} that look busiest are in truth among the {top} busiest; a "
            f"row counts evenly for each pair of its sets. Pairs at random would be with {percent(chance)}.",
            unit="share",
            details={"pairs": top},
            **kinds,
        ),
        counted(
            "top pairs, mean error",
            error,
            blind,
            f"The {top} busiest pairs have {number_text(float(truth[busiest].mean()))} {record}s each on average; read "
            f"from the release, each is off by {number_text(error)} on average. Rows of no other pair alone give "
            f"{number_text(means['certain'])} a pair, all rows that may be of it {number_text(means['possible'])}.",
            unit=f"{record}s",
            details={"truth": float(truth[busiest].mean()), **means, "relative": error / float(truth[busiest].mean())},
            **kinds,
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
    return counted(
        f"mean error ({told.name})",
        error,
        blind,
        f"The mean {told.name} by the middles of intervals is {number_text(error)}{' ' + unit if unit else ''} off the "
        f"true one; by their lower ends it would be {number_text(abs(least - truth))}, and the middle of the domain, "
        f"without the release, is {number_text(blind)} off.",
        unit=unit or NO_UNIT,
        topic="utility",
        private=True,
        details={"truth": truth, "by_middles": middle, "by_lower_ends": least},
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
    kinds: dict[str, Any] = {"topic": "utility", "private": True}
    return [
        counted(
            f"query error {where}",
            relative[0],
            relative[1],
            f"Asked for the {record}s of one {sight.names[station]} in one hour, the release is off by "
            f"{percent(relative[0])} of the true count on average, counts below {number_text(floor)} taken as that; "
            f"spreading all evenly is off by {percent(relative[1])}.",
            unit="ratio",
            details={"floor": floor, "cells": counts.size},
            **kinds,
        ),
        counted(
            f"query error, absolute {where}",
            absolute[0],
            absolute[1],
            f"That is {number_text(absolute[0])} {record}s a count, and {number_text(absolute[1])} with all spread "
            f"evenly; there are {number_text(float(truth.mean()))} on average.",
            unit=f"{record}s",
            **kinds,
        ),
    ]
