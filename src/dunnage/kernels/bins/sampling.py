# SPDX-License-Identifier: Apache-2.0
"""Random orders inside classes: what a planner who knows the values of a class, but not whose they are, can try out.

The values are released ones, so no privacy depends on these draws: they are ordinary seeded random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.model.domains import decimal_scale

CONFIDENCE = 0.95
_CHUNK_NUMBERS = 2_000_000


def within_class_permutations(class_of_row: IntArray, num: int, seed: int) -> IntArray:
    """Draw permutations of rows that exchange rows of one class only, each equally likely."""
    return _permutations(_rows_by_class(class_of_row), num, np.random.default_rng(seed))


def _rows_by_class(class_of_row: IntArray) -> list[IntArray]:
    order = np.argsort(class_of_row, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(class_of_row[order])) + 1)


def _permutations(classes: list[IntArray], num: int, generator: np.random.Generator) -> IntArray:
    lines = np.empty((num, sum(map(len, classes))), dtype=np.int64)
    for rows in classes:
        lines[:, rows] = generator.permuted(np.broadcast_to(rows, (num, len(rows))), axis=1)
    return lines


def fits_by_permutation(
    values: FloatArray,  # What each row weighs if nothing is exchanged; one column a resource, or one number a row
    class_of_row: IntArray,  # class_of_row, bin_of_row: class and bin of each row; bins count from 0
    bin_of_row: IntArray,
    capacities: FloatArray,  # What each bin holds of each resource; one line, or one number, stands for all bins
    *,
    permutations: int,  # How many to draw
    seed: int,  # Equal seeds draw equal permutations
) -> Iterator[BoolArray]:
    """Try a plan on random permutations inside classes, some thousands at a time.

    Decimals are added up as whole numbers, so that a load equal to the capacity fits.
    """
    # Values (row, resource) and capacities (bin, resource), scaled to whole numbers where they are decimals.
    loads = np.array(values, dtype=np.float64).reshape(len(class_of_row), -1)
    lines = np.asarray(capacities, dtype=np.float64).reshape(-1, loads.shape[1])
    num_bins = max(int(bin_of_row.max()) + 1, len(lines))
    rooms = np.array(np.broadcast_to(lines, (num_bins, loads.shape[1])))
    for own, room in zip(loads.T, rooms.T, strict=True):
        scale = decimal_scale(np.concatenate([own, room[np.isfinite(room)]])) or 1
        if scale > 1:
            own[:], room[:] = np.rint(own * scale), np.rint(room * scale)
    order = np.argsort(bin_of_row, kind="stable")
    used, starts = np.unique(bin_of_row[order], return_index=True)
    classes, generator = _rows_by_class(class_of_row), np.random.default_rng(seed)
    chunk = max(1, _CHUNK_NUMBERS // len(loads))
    for first in range(0, permutations, chunk):
        orders = _permutations(classes, min(chunk, permutations - first), generator)[:, order]
        fits = np.ones((len(orders), len(rooms)), dtype=np.bool_)  # an empty bin fits
        for resource, room in zip(loads.T, rooms.T, strict=True):
            # (permutation, bin in use): the load of one resource
            fits[:, used] &= np.add.reduceat(resource[orders], starts, axis=1) <= room[used]
        yield fits


def clopper_pearson(hits: int, tries: int) -> tuple[float, float]:
    """Return an interval that holds the probability behind so many hits with at least 95 % confidence."""
    from scipy.special import betaincinv

    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if hits == 0 else float(betaincinv(hits, tries - hits + 1, tail))
    high = 1.0 if hits == tries else float(betaincinv(hits + 1, tries - hits, 1 - tail))
    return low, high
