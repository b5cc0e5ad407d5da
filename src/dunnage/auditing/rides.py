# SPDX-License-Identifier: Apache-2.0
"""Rides released in clusters: what that cost in distortion and demand figures, and how diverse classes are.

Distortion, and the diversity of sensitive columns, follow from the release alone. Everything else compares with the
truth and is private. A set-valued row is read as **spread**: it counts for every value, or pair of values, that it may
stand for, evenly or as often as multisets say (:mod:`dunnage.release.spreading`). Attackers who know part of the truth,
some attributes of a record or some rides of a card, are tried before, on the true table without names, and after, on
the release. On the release, all rows of every class that the known values do not rule out fit a record.

References
----------
Bhati et al. 2021, eqs. 14-20 (distortion) and section IV-C (top 20 pairs, mean start time).

Pellungrini, Pappalardo, Pratesi, Monreale 2018, as in scikit-mobility: the risk of a card is 1 / the number of cards
that fit the rides known of it, at worst over which rides these are. Here rides fit by their generalised values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from dunnage.arrays import FloatArray, IntArray
from dunnage.auditing import findings
from dunnage.auditing.classes import (
    ClassAttribute,
    ClassesTruth,
    ClassesView,
    Knowledge,
    Occurrences,
    candidates,
    codes_of,
    record_linkage,
)
from dunnage.auditing.findings import Interval, KeyFigure, Progress, figure, mean_interval, wilson, with_unit, words
from dunnage.model import measures
from dunnage.model.domains import CodedDomain, Graph
from dunnage.release import SPREAD_STEPS
from dunnage.release.spreading import Axis, axis_of, spread_counts
from dunnage.text import HOURS, number_text

TOP = 20
MAX_KNOWN = 4  # Attributes of a ride, or rides of a card, that an attacker knows
MAX_COMBINED = 6  # Attributes of which every choice is tried: if there are more, those of highest entropy
MAX_PAIRS = 20_000_000  # Pairs of an attacked record and a class: if there are more, evenly chosen records are attacked
MIN_ATTACKED = 2_000
MAX_CARDS = 500  # Cards attacked for each number of known rides
MAX_CHOICES = 50  # Choices of rides that are tried for one card
MAX_CARD_ROWS = 20_000_000  # Rows that fit the rides of all attacked cards: if there are more, fewer cards are attacked
MAX_LABELS = 4_000  # Labels with pairs that are counted in one table
SHARES_SHOWN = (0.1, 0.5, 0.8, 0.97)  # Shares of records in cheaper classes than the ones shown as examples
COST_STEPS, MAX_STEPS = (0.0025, 0.005, 0.01, 0.02, 0.025, 0.05), 32
ROUNDING = 1e-9
MAX_STATIONS = 500  # Stations of a network that is shown with the examples
SANITY = 0.001  # Relative errors divide by at least this share of all records


def view_figures(view: ClassesView) -> Iterator[KeyFigure]:
    """Compute what the release shows by itself: its distortion, and how diverse sensitive values are."""
    loss = ClassDistortion.of(view)
    own, equal = own_weights(view), measures.shares_of(dict.fromkeys(view.names, 1.0))
    total, fixed, inside = loss.total(own), loss.total(equal), loss.by_generalisation(own)
    counts = ", ".join(f"{name} {number_text(weight)}" for name, weight in own.items())
    lost, by_name = {"by_suppression": loss.suppressed}, {name: loss.attribute(name) for name in view.names}
    details = {"by_generalisation": inside, **lost, "weights": own, "attributes": by_name}
    yield figure("total distortion | clusters", total, 1.0, None, details, counts=counts)
    details = {"by_generalisation": loss.by_generalisation(equal), **lost}
    yield figure("total distortion, equal weights", fixed, 1.0, None, details)
    details = {"attributes": loss.generalised, **_class_details(view, loss.class_costs(own))}
    yield figure("distortion by generalisation", inside, 1.0, None, details)
    yield figure("distortion by suppression", loss.suppressed, 1.0)
    for name, value in by_name.items():
        wide = loss.generalised[name]
        facts = {"column": name, "wide": wide, "suppressed": loss.suppressed}
        yield figure("distortion ({column}) | clusters", value, 1.0, None, {"by_generalisation": wide, **lost}, **facts)
    for name in view.sensitive:
        column = measures.ranked(view.release.data.column(name).combine_chunks(), view.release.attributes[name].plain())
        yield from _diversity(name, view.class_id, column, ordered=view.mechanism.sensitive_order, private=False)


def truth_figures(truth: ClassesTruth, tell: Progress) -> tuple[list[KeyFigure], list[str]]:
    """Compare with the truth: attackers, diversity, demand; return figures, and notes on what is missing."""
    figures: list[KeyFigure] = []
    notes: list[str] = []
    parts = {
        "attacking with some attributes": knowledge_figures,
        "attacking with some rides of a card": card_figures,
        "comparing demand with the truth": demand_figures,
    }
    for stage, part in parts.items():
        tell(stage)
        more, lacking = part(truth)
        figures, notes = figures + more, notes + lacking
    if not truth.certain:
        return figures, notes
    # l and t of the generalised labels, and the persons of a class, from the truth
    class_id, persons = truth.of_record[truth.released], truth.data.persons
    for attribute in truth.view.attributes:
        if attribute.numeric is None:
            kept = truth.data.column(attribute.name).filter(pa.array(truth.released))
            column = measures.ranked(kept, {"domain": attribute.domain.describe()})
            figures += _diversity(attribute.name, class_id, column, ordered=None, private=True)
    if persons is not None:
        sizes = truth.view.sizes
        fewest = int(Occurrences.of(class_id, persons[truth.released], len(sizes)).distinct.min())
        figures.append(figure("persons in a class, fewest", fewest, int(sizes.min())))
    return figures, notes


def _diversity(
    name: str, class_id: IntArray, column: pa.Array, *, ordered: bool | None, private: bool
) -> list[KeyFigure]:
    """Compute the l and t that classes reach in one column; by default numbers are compared by order."""
    codes, ordered = codes_of(column), measures.is_ordered(column) if ordered is None else ordered
    fewest = int(Occurrences.of(class_id, codes, int(class_id.max()) + 1).distinct.min())
    entropy, in_all = measures.entropy_diversity(class_id, column), int(codes.max()) + 1
    distance, how = min(measures.closeness(class_id, column, ordered=ordered), 1.0), measures.DISTANCE_WORDS[ordered]
    return [
        figure("l reached ({column})", fewest, in_all, None, {"entropy_l": entropy}, column=name, private=private),
        figure("t reached ({column})", distance, 0.0, None, {"distance": how}, column=name, private=private),
    ]


# Distortion


def class_widths(attribute: ClassAttribute) -> FloatArray:
    """Return the largest distance within each class over the diameter of the domain (eq. 20)."""
    if attribute.listing is None:  # the leaves below a node have neighbouring places
        return np.asarray((attribute.upper - attribute.lower) / attribute.span)
    codes, counts = attribute.listing.places.astype(np.int64), np.bincount(attribute.listing.of_class)
    coded = cast(CodedDomain, attribute.domain)  # every domain except numbers is
    return measures.set_widths(coded, codes, counts.astype(np.int64)) / (attribute.domain.diameter or 1.0)


class ClassDistortion(NamedTuple):
    """Distortion of a release (eqs. 14-19)."""

    generalised: dict[str, float]  # By generalisation, over released records, of each attribute (eq. 19)
    suppressed: float  # Share of all records that were suppressed (eq. 17)
    widths: dict[str, FloatArray]  # Of each class, by attribute (eq. 20)

    @classmethod
    def of(cls, view: ClassesView) -> ClassDistortion:
        """Measure a release, by its classes and the count of suppressed records that it states."""
        released, lost = int(view.sizes.sum()), view.release.certificate.rows.num_suppressed
        widths = {attribute.name: class_widths(attribute) for attribute in view.attributes}
        means = {name: math.fsum((view.sizes * wide).tolist()) / released for name, wide in widths.items()}
        return cls(means, lost / (released + lost), widths)

    def attribute(self, name: str) -> float:  # eq. 18
        return self.with_suppressed(self.generalised[name])

    def total(self, weights: dict[str, float]) -> float:  # eq. 14
        return self.with_suppressed(self.by_generalisation(weights))

    def by_generalisation(self, weights: dict[str, float]) -> float:  # eq. 16: over released records
        return math.fsum(weights[name] * value for name, value in self.generalised.items())

    def class_costs(self, weights: dict[str, float]) -> FloatArray:  # eq. 15: for one record of each class
        return np.asarray(np.sum([weights[name] * wide for name, wide in self.widths.items()], axis=0))

    def with_suppressed(self, generalised: float) -> float:
        return generalised + (1 - generalised) * self.suppressed


def own_weights(view: ClassesView) -> dict[str, float]:
    """Return the weight of each attribute as the release states it; equal weights if it does not."""
    stated = view.release.certificate.rows.importance
    weights = {} if stated is None or set(stated.weights) != set(view.names) else stated.weights
    return measures.shares_of({name: weights.get(name, 1.0) for name in view.names})


def _class_details(view: ClassesView, costs: FloatArray) -> dict[str, object]:
    """Describe how costs are spread over records, with examples of classes from cheap to expensive; all is released."""
    assert view.release.classes is not None
    order = np.argsort(costs, kind="stable")
    reached = np.cumsum(view.sizes[order]) / view.sizes.sum()
    shown = dict.fromkeys(order[np.searchsorted(reached, SHARES_SHOWN)].tolist())
    # Costs lie between 0 and 1; a class without cost stands in the first step.
    step = next(step for step in COST_STEPS if step * MAX_STEPS >= costs.max())
    bars = np.bincount(np.floor(costs / step + ROUNDING).astype(np.int64), weights=view.sizes)
    details: dict[str, object] = {
        "costs": {
            "step": step,
            "records": bars.astype(np.int64).tolist(),
            "median": float(costs[order[np.searchsorted(reached, 0.5)]]),
            "highest": float(costs.max()),
        },
        "classes": [
            {"cost": float(costs[number]), "told": view.release.classes.slice(number, 1).to_pylist()[0]}
            for number in shown
        ],
        "units": {item.name: item.unit for item in view.attributes if item.numeric is not None},
    }
    network = next((item for item in view.attributes if isinstance(item.domain, Graph)), None)
    if network is not None and isinstance(network.domain, Graph) and network.num_labels <= MAX_STATIONS:
        details["network"] = {
            "attributes": [item.name for item in view.attributes if item.domain == network.domain],
            "edges": [[start, end] for start, end, _ in network.domain.edges],
        }
    return details


# Demand


def demand_figures(truth: ClassesTruth) -> tuple[list[KeyFigure], list[str]]:
    """Compare demand as read from the release with the truth: top pairs, means of numbers, hourly boardings."""
    attributes = truth.view.attributes
    sizes, rows, figures = truth.view.sizes, int(truth.view.sizes.sum()), []
    for item, values in zip(attributes, truth.known.low, strict=True):
        if item.numeric is None:
            continue
        # The mean of midpoints beside the true mean; lower ends, as the paper takes them, are in the details.
        mean = math.fsum(values.tolist()) / len(truth.data)
        middle = math.fsum((sizes * (item.lower + item.upper) / 2).tolist()) / rows
        least = math.fsum((sizes * item.lower).tolist()) / rows
        error, blind = abs(middle - mean), abs((item.numeric.lower_float + item.numeric.upper_float) / 2 - mean)
        details = {"truth": mean, "by_middles": middle, "by_lower_ends": least}
        facts = {"column": item.name, "unit": item.unit, "off": with_unit(error, item.unit)}
        lower_off = abs(least - mean)
        figures.append(figure("mean error ({column})", error, blind, None, details, lower_off=lower_off, **facts))
    graphs = [axis for axis, item in enumerate(attributes) if isinstance(item.domain, Graph)]
    pairs = itertools.combinations(graphs, 2)
    alike = ((one, two) for one, two in pairs if attributes[one].domain == attributes[two].domain)
    # The first two attributes that are stations of one network, and the first that is a time.
    stations = next((pair for pair in alike if attributes[pair[0]].num_labels <= MAX_LABELS), None)
    hours = next((axis for axis, item in enumerate(attributes) if item.numeric and _hour(item)), None)
    if stations is None:
        return figures, [words("no stations")] if graphs else []
    figures += _top_pairs(truth, *stations)
    if hours is None:
        return figures, [words("no time")]
    # The error of boardings by station and hour, over all stations and all hours of the domain.
    view, station, clock, num = truth.view, stations[0], attributes[hours], len(truth.data)
    assert clock.numeric is not None
    counts = hourly_boardings(view, station, hours)
    first = math.floor(clock.numeric.lower_float / _hour(clock))
    of_record = np.floor(truth.known.low[hours] / _hour(clock)).astype(np.int64) - first
    cells = truth.known.low[station].astype(np.int64) * counts.shape[1] + np.minimum(of_record, counts.shape[1] - 1)
    true = np.bincount(cells, minlength=counts.size).reshape(counts.shape)
    floor, even = max(1.0, SANITY * num), np.full(counts.shape, num / counts.size)
    errors = [np.abs(read - true) for read in (counts, even)]
    relative = [float((error / np.maximum(true, floor)).mean()) for error in errors]
    absolute = [float(error.mean()) for error in errors]
    sums: dict[str, object] = {"station": view.names[station], "time": view.names[hours], "floor": floor}
    sums["mean"] = float(true.mean())
    details = {"floor": floor, "cells": counts.size}
    return [
        *figures,
        figure("query error ({station} by hour of {time})", relative[0], relative[1], None, details, **sums),
        figure("query error, absolute ({station} by hour of {time})", absolute[0], absolute[1], **sums),
    ], []


def _hour(attribute: ClassAttribute) -> float:
    return HOURS.get(attribute.unit.lower(), 0.0)


def pair_counts(view: ClassesView, origin: int, destination: int) -> dict[str, FloatArray]:
    """Count rides by pairs of stations as a set-valued row may be read. Shape of each: labels, labels."""
    axes = [axis_of(view.release, view.names[axis], None) for axis in (origin, destination)]
    counts = {"spread": spread_counts(view.release, axes, SPREAD_STEPS)}
    # All rows of a class may be of each pair of its stations, and certainly are if there is no other pair.
    alone = np.prod([np.diff(axis.starts) for axis in axes], axis=0) == 1
    for name, sizes in {"certain": np.where(alone, view.sizes, 0), "possible": view.sizes}.items():
        tables = [_incidence(axis) for axis in axes]
        counts[name] = (tables[0].multiply(sizes[None, :]) @ tables[1].T).toarray()
    return counts


def _incidence(axis: Axis) -> Any:
    """Return a sparse table of ones: the labels that each class may have. Shape: labels, classes."""
    from scipy.sparse import csc_matrix

    return csc_matrix(
        (np.ones(len(axis.places)), axis.places, axis.starts), shape=(len(axis.cells), len(axis.starts) - 1)
    )


def _top_pairs(truth: ClassesTruth, origin: int, destination: int) -> list[KeyFigure]:
    """Compute how many of the busiest pairs are still the busiest, and how far their counts are off."""
    view, known = truth.view, truth.known
    num = view.attributes[origin].num_labels
    pairs = known.low[origin].astype(np.int64) * num + known.low[destination].astype(np.int64)
    true = np.bincount(pairs, minlength=num * num).astype(np.float64)
    counts = {name: table.ravel() for name, table in pair_counts(view, origin, destination).items()}
    top = min(TOP, int((true > 0).sum()))
    busiest = np.argsort(-true, kind="stable")[:top]
    # Pairs with as many rides as the last of them count too; sums are rounded so that equal ones stay equal.
    enough = true >= true[busiest[-1]]
    kept = float(enough[np.argsort(-np.round(counts["spread"], 9), kind="stable")[:top]].mean())
    # Pairs of a station with itself are pairs too: both the truth and sets may have them.
    chance = float(enough.sum() / num**2)
    error = float(np.abs(counts["spread"][busiest] - true[busiest]).mean())
    # Rides that are counted at a wrong pair, as a share of all: half the sum of all errors.
    readings = counts["spread"], np.full(len(true), true.sum() / num**2)
    wrong, unread = (float(np.abs(read - true).sum() / 2 / true.sum()) for read in readings)
    blind = float(np.abs(len(truth.data) / num**2 - true[busiest]).mean())
    means, mean = {name: float(table[busiest].mean()) for name, table in counts.items()}, float(true[busiest].mean())
    names = f"{view.names[origin]} and {view.names[destination]}"
    details = {"truth": mean, **means, "relative": error / mean}
    return [
        figure("counted at a wrong pair", wrong, unread, None, {"pairs": num**2}, names=names),
        figure("top pairs kept", kept, chance, None, {"pairs": top}, names=names),
        figure("top pairs, mean error", error, blind, None, details, top=top),
    ]


def hourly_boardings(view: ClassesView, station: int, time: int, steps: int = SPREAD_STEPS) -> FloatArray:
    """Count rides by station and hour, as they are read from the release. Shape: labels, hours."""
    width = _hour(view.attributes[time])
    return spread_counts(view.release, [axis_of(view.release, view.names[a], width) for a in (station, time)], steps)


# Attackers who know some attributes of a ride


class Remaining(NamedTuple):
    """How many true records, without names, and how many released rows fit what an attacker knows."""

    names: tuple[str, ...]  # The attributes that are known
    before: IntArray  # How many true records have the same values, for each released record
    after: IntArray  # How many released rows could be it, for each attacked record


def attack_by(truth: ClassesTruth, names: tuple[str, ...], attacked: IntArray) -> Remaining:
    """Attack records by some of their attributes; public values are always known."""
    axes = [truth.view.names.index(name) for name in names]
    group = _same_values(truth.known, axes)
    before = np.bincount(group)[group[truth.released]]
    # Records with the same known values have the same candidates.
    _, first, of_first = np.unique(group[attacked], return_index=True, return_inverse=True)
    records = attacked[first]
    values = truth.known.low[axes][:, records]
    about = Knowledge.of_axes(truth.known.stratum[records], axes, values, len(truth.view.attributes))
    return Remaining(names, before, record_linkage(truth.view, about).rows[of_first.reshape(-1)])


def _same_values(known: Knowledge, axes: Sequence[int]) -> IntArray:
    """Give records with the same public values and known attributes the same number, from 0 on."""
    group = np.unique(known.stratum, return_inverse=True)[1].reshape(-1)
    for axis in axes:
        code = np.unique(known.low[axis], return_inverse=True)[1].reshape(-1)
        group = np.unique(group * (int(code.max()) + 1) + code, return_inverse=True)[1].reshape(-1)
    return group


def evenly(items: IntArray, most: int) -> IntArray:
    return items if len(items) <= most else items[np.linspace(0, len(items) - 1, most).astype(np.int64)]


def knowledge_figures(truth: ClassesTruth) -> tuple[list[KeyFigure], list[str]]:
    """Attack with some attributes: for each number of them, the worst choice."""
    # The attributes with true values of the highest entropy, in the order of the release.
    shares = [np.unique(values, return_counts=True)[1] / len(values) for values in truth.known.low]
    order = np.argsort([(own * np.log2(own)).sum() for own in shares], kind="stable")[:MAX_COMBINED]
    names = [truth.view.names[axis] for axis in sorted(order.tolist())]
    attacked = evenly(np.flatnonzero(truth.released), max(MIN_ATTACKED, MAX_PAIRS // len(truth.view.sizes)))
    complete = len(attacked) == int(truth.released.sum())
    figures: list[KeyFigure] = []
    for num in range(1, min(MAX_KNOWN, len(names)) + 1):
        tried = [attack_by(truth, choice, attacked) for choice in itertools.combinations(names, num)]
        figures += _known_figures(truth, num, tried, complete)
    left = ", ".join(name for name in truth.view.names if name not in names)
    return figures, [words("highest entropy", num=MAX_COMBINED, left=left)] if left else []


def _known_figures(truth: ClassesTruth, num: int, tried: list[Remaining], complete: bool) -> list[KeyFigure]:
    """Make the figures for ``num`` known attributes, each for the choice that reveals most."""
    smallest = int(truth.view.sizes.min())
    unique = max(tried, key=lambda one: float((one.after == 1).mean()) + float((one.before == 1).mean()) * 1e-9)
    fewest = min(tried, key=lambda one: int(one.after.min()))
    middle = min(tried, key=lambda one: float(np.median(one.after)))
    before = max(float((one.before == 1).mean()) for one in tried)
    share, attacked = float((unique.after == 1).mean()), len(unique.after)
    protects = truth.view.release.certificate.guarantee.protects
    sampled = "" if complete else words("attacked evenly", num=attacked, record=protects)
    facts = {"num": num, "sampled": sampled}
    details = {
        " and ".join(one.names): {
            "unique_before": float((one.before == 1).mean()),
            "unique": float((one.after == 1).mean()),
            "fewest_before": int(one.before.min()),
            "fewest": int(one.after.min()),
            "median_before": float(np.median(one.before)),
            "median": float(np.median(one.after)),
        }
        for one in tried
    }
    # If no class has a single row, no choice of attributes leaves one.
    between = (share, share) if complete or smallest > 1 else wilson(share * attacked, attacked)
    reveal, rows = "reveals" if num == 1 else "reveal", int(fewest.after.min())
    median, least = float(np.median(middle.after)), float(min(one.before.min() for one in tried))
    median_before, bounds = min(float(np.median(one.before)) for one in tried), median_interval(middle.after, complete)
    names = " and ".join(fewest.names), " and ".join(middle.names)
    least_rows = float(rows if complete else smallest), float(rows)
    fewest_key, median_key = (f"candidate rows, {which} ({{num:#attribute}} known)" for which in ("fewest", "median"))
    return [
        figure("uniqueness ({num:#attribute} known)", share, before, between, details, reveal=reveal, **facts),
        figure(fewest_key, float(rows), least, least_rows, names=names[0], rows=rows, **facts),
        figure(median_key, median, median_before, bounds, names=names[1], **facts),
    ]


def median_interval(numbers: IntArray, complete: bool) -> Interval:
    """Return the median twice, or the order statistics that contain the median of all with 95 % confidence."""
    value = float(np.median(numbers))
    if complete:
        return value, value
    reach = findings.NORMAL_REACH * math.sqrt(len(numbers)) / 2
    ordered = np.sort(numbers)
    low, high = math.floor(len(ordered) / 2 - reach), math.ceil(len(ordered) / 2 + reach)
    return min(float(ordered[max(low, 0)]), value), max(float(ordered[min(high, len(ordered) - 1)]), value)


# Attackers who know some rides of a card


class Fitting(NamedTuple):
    """For some records, the groups of records that fit what is known about each."""

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
    """Count the cards that have different fitting rides for all known rides at once."""
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
    # Different rides can be chosen if any number of sets has at least that many rides together (Hall).
    sizes = range(2, len(known) + 1)
    return sum(
        all(len(set().union(*some)) >= num for num in sizes for some in itertools.combinations(own, num))
        for own in rides.values()
    )


def card_figures(truth: ClassesTruth) -> tuple[list[KeyFigure], list[str]]:
    """Attack cards with some of their released rides: for each number of them, the worst choice."""
    persons = truth.data.persons
    if persons is None:
        return [], [words("no person", record=truth.data.schema.protects)]
    if not truth.certain:
        return [], []
    released = np.flatnonzero(truth.released)
    order = released[np.argsort(persons[released], kind="stable")]
    of_cards = np.split(order, np.flatnonzero(np.diff(persons[order])) + 1)
    able = {num: [own for own in of_cards if len(own) >= num] for num in range(1, MAX_KNOWN + 1)}
    chosen = {num: evenly(np.arange(len(cards)), MAX_CARDS) for num, cards in able.items() if cards}
    rides = np.unique(np.concatenate([able[num][card] for num, cards in chosen.items() for card in cards.tolist()]))
    # Which records fit each ride by its true values, and which by the release.
    same = _same_values(truth.known, range(len(truth.view.attributes)))
    after = {ride: np.zeros(0, dtype=np.int64) for ride in rides.tolist()}
    known = truth.known
    for pairs in candidates(truth.view, Knowledge(known.stratum[rides], known.low[:, rides], known.high[:, rides])):
        for part in np.split(np.arange(len(pairs.record)), pairs.starts[1:]):
            after[int(rides[pairs.record[part[0]]])] = pairs.of_class[part]
    fits = Fitting.of({ride: same[[ride]] for ride in rides.tolist()}, same), Fitting.of(after, truth.of_record)
    figures = []
    for num, cards in chosen.items():
        rows = sum(fits[1].num_records(ride) for card in cards.tolist() for ride in able[num][card].tolist())
        some = evenly(cards, max(1, len(cards) * MAX_CARD_ROWS // max(rows, MAX_CARD_ROWS)))
        # How many cards fit each attacked card, before and after; for many rides not every choice is tried.
        fewest = np.empty((2, len(some)), dtype=np.int64)
        for place, card in enumerate(some.tolist()):
            choices = list(itertools.islice(itertools.combinations(able[num][card].tolist(), num), MAX_CHOICES))
            for side, fit in enumerate(fits):
                numbers = [cards_that_fit([fit.records(ride) for ride in own], persons) for own in choices]
                fewest[side, place] = min(numbers)
        complete = all(math.comb(len(able[num][card]), num) <= MAX_CHOICES for card in some.tolist())
        (before, risks), attacked = 1 / fewest, len(some)
        mean, unique, everyone = float(risks.mean()), float((risks == 1).mean()), attacked == len(able[num])
        low, high = (mean, mean) if everyone else mean_interval(risks)
        ends = (unique, unique) if everyone else wilson(unique * attacked, attacked)
        median_before, median = np.median(fewest, axis=1).tolist()
        details = {
            "cards": len(able[num]),
            "attacked": attacked,
            "fewest_cards": int(fewest[1].min()),
            "median_cards": median,
            "median_cards_before": median_before,
            "every_choice_tried": complete,
        }
        among = "" if everyone else words("cards attacked", attacked=attacked, able=len(able[num]))
        facts = {"num": num, "linked": "" if num == 1 else words("rows linked"), "among": among}
        facts["reveal"] = "reveals" if num == 1 else "reveal"
        between, ends = (low, high if complete else 1.0), (ends[0], ends[1] if complete else 1.0)
        figures += [
            figure("person risk ({num:#{record}} known)", mean, float(before.mean()), between, details, **facts),
            figure("person uniqueness ({num:#{record}} known)", unique, float((before == 1).mean()), ends, **facts),
        ]
    return figures, []
