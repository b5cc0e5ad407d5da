# SPDX-License-Identifier: Apache-2.0
"""Who is most at risk in releases without rows of their own: trips, riders and vehicles. For the owner alone.

Differential privacy gives everyone the same odds. What differs is how the noise fell, how many trips a rider has of
one type, and how long a vehicle stays in one place; where nothing differs, nobody is listed and it is said why.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import IntArray
from dunnage.auditing.carriers import CarrierCase, Target, located
from dunnage.auditing.counts import CountsCase, CountsSight, columns_of
from dunnage.auditing.fleet import inputs_of
from dunnage.auditing.inside import MOST_AT_RISK
from dunnage.auditing.membership import Evidence, Membership, noisy_answer, posterior, released_ratios
from dunnage.errors import ParameterError
from dunnage.local.client import check_task
from dunnage.mechanisms.counting import trip_cells
from dunnage.mechanisms.features import Feature
from dunnage.release_words import CELLS
from dunnage.schema import RIDER
from dunnage.text import percent, several

Listed = tuple[list[dict[str, Any]], str]

MOST_RIDERS = 50
"""Riders whose trips are weighed exactly: those with most counted trips of one type."""
DAYS_SEEN = 30
_SAME_ODDS = "Noise gives every {unit} the same odds ({bound})"


# Trips and riders


def counts_at_risk(case: CountsCase) -> Listed:
    """List the trips or riders that a release of counts tells most of, and say what that means."""
    sight, trip = case.sight, case.data.schema.trip
    if sight.floating:
        return [], (
            f"Nobody is listed: noise was drawn in floating point, so no {sight.protects} has a bound, and which one "
            "the last digits gave away cannot be told from whole counts."
        )
    if sight.protects == RIDER:
        return _riders(case)
    if not sight.cells_alone or trip is None or not case.true.any():
        return [], (
            f"Nobody is listed. {_odds_of(sight)}: it takes no heed of how many others made the same trip, and what is "
            "released was made of many noisy sums, none of which is one trip's own. Who made many trips is told more "
            "surely, as is said above of a rider."
        )
    return _trips(case)


def _odds_of(sight: CountsSight) -> str:
    for row in sight.release.certificate.body["meaning"]["odds"]:
        if row.get("before") == 0.5 and "sentence" in row:
            return _SAME_ODDS.format(unit=sight.protects, bound=row["sentence"])
    return _SAME_ODDS.format(unit=sight.protects, bound="no bound is proved")


def _trips(case: CountsCase) -> Listed:
    """List the trips of which this very release tells most; of equal ones those of the rarest types come first."""
    sight = case.sight
    true, released = case.true, case.released
    suspicion = np.where(
        true > 0, posterior(released_ratios(sight.answers[0].law, released, true - 1, sight.threshold)), 0.0
    )
    cells = trip_cells(case.data, case.universe)
    place = np.minimum(np.searchsorted(case.cells, cells), len(case.cells) - 1)
    made = (case.cells[place] == cells) & (true[place] > 0)  # a line may stand for no trip at all
    rows, place = np.flatnonzero(made), place[made]
    source = case.data.source_rows[rows]
    order = np.lexsort((source, true[place], -suspicion[place].round(12)))[:MOST_AT_RISK]
    listed = [
        {
            "source_row": int(source[row]),
            "suspicion": float(suspicion[place[row]]),
            "alike": int(true[place[row]]),
            "released": int(released[place[row]]),
        }
        for row in order.tolist()
    ]
    return listed, (
        f"The trips of which this release tells most to somebody who knows all others and suspects them with one half: "
        f"the noise fell so. {_odds_of(sight)}; of trips that are told equally well the rarest come first."
    )


def _riders(case: CountsCase) -> Listed:
    """List the riders whose trips, by their own types, are told best before any noise is drawn."""
    persons, sight = case.data.persons, case.sight
    if persons is None:
        return [], "Nobody is listed: the policy does not tell riders apart. Give the one with [contribution] person."
    chosen = _bunched(persons, trip_cells(case.data, case.universe), sight.change)
    known: dict[tuple[tuple[int, ...], ...], float] = {}
    listed = []
    try:
        for rows in chosen:
            moved = _moved(case, rows)
            if moved not in known:
                known[moved] = _guess(sight, moved)
            listed.append((known[moved], rows))
    except ParameterError as error:
        return [], f"Nobody is listed: what each rider's trips tell was too much to compute. {error}"
    listed.sort(key=lambda item: (-round(item[0], 12), int(case.data.source_rows[item[1]].min())))
    return [_rider(case, guess, rows) for guess, rows in listed[:MOST_AT_RISK]], (
        "The riders whose presence is guessed best by somebody who knows all other riders' trips and sees the noisy "
        f"counts themselves: those with many trips of one type. {_odds_of(sight)}; source row: a trip of theirs."
    )


def _rider(case: CountsCase, guess: float, rows: IntArray) -> dict[str, Any]:
    cells = trip_cells(case.data, case.universe)[rows]
    return {
        "source_row": int(case.data.source_rows[rows].min()),
        "guess": guess,
        "trips": len(rows),
        "types": len(np.unique(cells)),
    }


def _bunched(persons: IntArray, cells: IntArray, most: int) -> list[IntArray]:
    """Return the counted trips of the riders with most of one type: where some are left out, as few types as can be."""
    order = np.lexsort((cells, persons))
    starts = np.flatnonzero(np.diff(persons[order], prepend=-1))
    # pair : (rider, type), rising; its trips
    fresh = np.flatnonzero((np.diff(persons[order], prepend=-1) != 0) | (np.diff(cells[order], prepend=-1) != 0))
    sizes = np.diff(np.append(fresh, len(order)))
    largest = np.maximum.reduceat(sizes, np.searchsorted(fresh, starts))
    trips = np.diff(np.append(starts, len(order)))
    best = np.lexsort((starts, -np.minimum(trips, most), -np.minimum(largest, most)))[:MOST_RIDERS]
    ends = starts + trips
    return [_fewest_types(order[starts[rider] : ends[rider]], cells, most) for rider in best.tolist()]


def _fewest_types(rows: IntArray, cells: IntArray, most: int) -> IntArray:
    """Choose so many trips of one rider at most, of the types that he has most of."""
    _, kind, sizes = np.unique(cells[rows], return_inverse=True, return_counts=True)
    return np.asarray(rows[np.lexsort((kind, -sizes[kind]))][:most])


def _moved(case: CountsCase, rows: IntArray) -> tuple[tuple[int, ...], ...]:
    """Return by how much the sums of each feature differ with and without some trips."""
    cells = trip_cells(case.data, case.universe)[rows]
    places = case.universe.split(cells)
    moved = []
    for item in case.sight.asked:
        groups = cells if item.name == CELLS else Feature.of(case.universe, columns_of(item.name)).groups(*places)
        moved.append(tuple(sorted(np.unique(groups, return_counts=True)[1].tolist())))
    return tuple(moved)


def _guess(sight: CountsSight, moved: tuple[tuple[int, ...], ...]) -> float:
    """Return how often the best test tells whether trips are there that move sums by so much."""
    answers: list[Evidence] = []
    for item, shifts in zip(sight.answers, moved, strict=True):
        answers += [noisy_answer(item.law, shift) for shift in shifts]
    return Membership.of(answers).success


# Vehicles


def vehicles_at_risk(case: CarrierCase) -> Listed:
    """List the vehicles that stay longest in one place, or on one path, and say how surely such are found."""
    fleet = case.fleet
    targets = [
        target
        for target in Target.all_of(fleet.task, check_task(fleet.task))
        if target.purpose.grid is not None and target.purpose.name in case.truth.maps
    ]
    if not targets:
        return [], (
            "No vehicle is listed: every report is bound by the same odds, whatever was measured. One whose numbers "
            "never change is told more surely by each further report, up to what the allowance pays for."
        )
    target = min(targets, key=lambda item: item.purpose.steps)  # a place is found before a path is
    vehicles, share = _staying(case, target)
    first = np.unique(fleet.vehicles, return_index=True)[1]
    num = target.reports_of(DAYS_SEEN)
    try:
        found = located(target.law, num).value
    except ParameterError:  # said in a note already
        return [], "No vehicle is listed: how surely one that stays is found could not be computed."
    order = np.lexsort((first[vehicles], -share.round(12)))[:MOST_AT_RISK]
    listed = [
        {
            "source_row": int(first[vehicles[place]]),
            "stays": float(share[place]),
            "found_if_it_stays": found,
        }
        for place in order.tolist()
    ]
    return listed, (
        f"The vehicles with the largest share of rows in one {target.what} ({target.purpose.name}). One that always "
        f"stays there is found by {several(num, 'report')} with {percent(found)}, others less surely; by one report "
        "all have the same odds. Source row: their first one."
    )


def _staying(case: CarrierCase, target: Target) -> tuple[IntArray, NDArray[np.float64]]:
    """Return vehicles with a known place, and the share of their rows that is in the commonest one."""
    fleet = case.fleet
    vehicles = fleet.vehicles[fleet.order]
    readings = next(fleet.by_row())
    inputs = inputs_of(target.mechanism, target.law, readings.columns(target.purpose, fleet.columns.places))
    # The last input stands for what is missing or outside; the share is of all rows of a vehicle.
    known = inputs < len(case.truth.maps[target.purpose.name]) - 1
    pairs, counts = np.unique(vehicles[known] * (int(inputs.max()) + 1) + inputs[known], return_counts=True)
    owner = pairs // (int(inputs.max()) + 1)
    seen, starts = np.unique(owner, return_index=True)
    if not len(seen):
        return seen, np.zeros(0)
    return seen, np.maximum.reduceat(counts, starts) / np.bincount(vehicles)[seen]
