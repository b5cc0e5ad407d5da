# SPDX-License-Identifier: Apache-2.0
"""Trips counted by type: true counts of a dataset, and counts in which one rider has but so many trips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dunnage.arrays import BoolArray, IntArray
from dunnage.domains import CodedDomain
from dunnage.domains.windows import split_stamps
from dunnage.errors import ParameterError
from dunnage.noise import Noise
from dunnage.noise_arrays import permutation
from dunnage.schema import Schema
from dunnage.trips import Universe

if TYPE_CHECKING:
    from dunnage.tables.dataset import Dataset

_MOST_DENSE = 1 << 22
"""Up to so many cells, or twice as many as trips, a table of all cells is the quickest way to count."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Counted:
    """How many trips there are of each type. Private: its ``repr`` shows none of it."""

    universe: Universe  # All types there can be
    cells: IntArray  # Those with one trip or more, rising
    counts: IntArray  # How many trips each has
    num_dropped: int = 0  # Trips that were not counted because a rider had too many

    def __repr__(self) -> str:
        return "Counted(private)"

    @property
    def num_trips(self) -> int:
        return int(self.counts.sum())


def count_trips(dataset: Dataset, noise: Noise) -> Counted:
    """Count trips as they may be released with noise: of each rider only so many, if riders are protected."""
    if dataset.schema.contribution is None:
        return true_counts(dataset)
    kept = kept_rows(dataset, noise)
    return true_counts(dataset, rows=kept)


def true_counts(dataset: Dataset, *, rows: BoolArray | None = None) -> Counted:
    universe = dataset.schema.universe(dataset.period)
    cells, weights = trip_cells(dataset, universe), _weights(dataset)
    dropped = 0
    if rows is not None:
        dropped = len(cells) - int(rows.sum())
        cells, weights = cells[rows], None if weights is None else weights[rows]
    found, counts = _tallied(cells, weights, universe.num_cells)
    return Counted(universe=universe, cells=found, counts=counts, num_dropped=dropped)


def _weights(dataset: Dataset) -> IntArray | None:
    """Return how many trips each row stands for; None if each is one."""
    trip = dataset.schema.trip
    if trip is None or trip.count is None:
        return None
    return dataset.numbers(trip.count).astype(np.int64)  # whole and small enough: the dataset has checked


def trip_cells(dataset: Dataset, universe: Universe) -> IntArray:
    """Return the cell of each row. Shapes: -> (rows,)."""
    trip, time = dataset.schema.trip, dataset.schema.time
    assert trip is not None  # a schema without has no time of trips
    slots = time.slots(_stamps(dataset), dataset.period)
    if trip.day is not None:
        slots += _label_codes(dataset, trip.day) * len(universe.windows)
    return universe.cells(_label_codes(dataset, trip.origin), _label_codes(dataset, trip.destination), slots)


def _stamps(dataset: Dataset) -> IntArray:
    trip = dataset.schema.trip
    assert trip is not None
    stamps: IntArray = dataset.column(trip.time).to_numpy(zero_copy_only=False)
    return stamps


def _label_codes(dataset: Dataset, name: str) -> IntArray:
    """Return the position of each label in its domain; each distinct one is looked up once."""
    encoded = dataset.column(name).dictionary_encode()
    domain = dataset.schema[name].domain
    assert domain is not None  # a quasi-identifier has one
    codes = _coded(domain).codes(np.asarray(encoded.dictionary.to_pylist(), dtype=object))
    indices: IntArray = encoded.indices.to_numpy(zero_copy_only=False)
    return codes[indices]


def _coded(domain: object) -> CodedDomain:
    assert hasattr(domain, "codes")  # the schema has checked the kinds
    return domain  # type: ignore[return-value]


def _tallied(cells: IntArray, weights: IntArray | None, num_cells: int) -> tuple[IntArray, IntArray]:
    """Add up the trips of equal cells; cells without any are not listed."""
    if num_cells <= max(_MOST_DENSE, 2 * len(cells)):
        dense = np.zeros(num_cells, dtype=np.int64)
        if weights is None:
            dense += np.bincount(cells, minlength=num_cells)
        else:
            np.add.at(dense, cells, weights)
        found = np.flatnonzero(dense)
        return found, dense[found]
    order = np.argsort(cells) if weights is not None else None
    ranked = np.sort(cells) if order is None else cells[order]
    starts = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1]))) if len(ranked) else np.zeros(0, int)
    if weights is None or order is None:
        return ranked[starts], np.diff(np.append(starts, len(ranked)))
    sums = np.add.reduceat(weights[order], starts) if len(starts) else np.zeros(0, dtype=np.int64)
    return ranked[starts][sums > 0], sums[sums > 0]


def most_trips(schema: Schema, period: str | None) -> int | None:
    """Return how many trips of one rider are counted in a release at most; None if that is not bounded."""
    bound = schema.contribution
    if bound is None or bound.per == "period":
        return None if bound is None else bound.max
    dates = schema.time.calendar(period)
    if dates is None:
        raise ParameterError(
            'per = "day" needs to know how many days there are, to say what a rider can change in all. Got none. Write '
            'dates = ["2026-11-01", "2026-11-30"], say, or [period].'
        )
    return bound.max * len(dates)


def kept_rows(dataset: Dataset, noise: Noise) -> BoolArray:
    """Choose the trips that are counted: of each rider, and day if so stated, at most ``max``, all alike likely.

    What is kept of one rider does not depend on any other: one rider more or less changes the counts by at most what
    :func:`most_trips` says.
    """
    bound, riders = dataset.schema.contribution, dataset.persons
    if bound is None or riders is None:
        raise ParameterError("the trips of a rider are bounded under a policy with [contribution] max. Got none.")
    groups = riders
    if bound.per == "day":
        ordinals, _ = split_stamps(_stamps(dataset))
        groups = riders * (int(ordinals.max(initial=0)) + 1) + ordinals
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    crowded = np.flatnonzero(sizes[group] > bound.max)
    kept = np.ones(len(riders), dtype=bool)
    # A uniform order of all rows orders those of each group uniformly, and each group by itself.
    shuffled = crowded[permutation(noise, len(crowded))]
    order = shuffled[np.argsort(group[shuffled], kind="stable")]
    _, starts, num = np.unique(group[order], return_index=True, return_counts=True)
    ranks = np.arange(len(order)) - np.repeat(starts, num)
    kept[order[ranks >= bound.max]] = False
    return kept
