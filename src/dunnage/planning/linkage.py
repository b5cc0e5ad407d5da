# SPDX-License-Identifier: Apache-2.0
"""Truck linkage: how likely someone who knows a package's weight, the release and the plan names its truck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from dunnage.arrays import IntArray
from dunnage.release import Release


def combinations(release: Release, names: Sequence[str]) -> IntArray:
    """Give each released row the number of its combination of values in some columns."""
    codes = np.zeros(len(release), dtype=np.int64)
    for name in names:
        own = release.data.column(name).combine_chunks().dictionary_encode().indices
        numbers = pc.fill_null(own, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        codes = np.unique(codes * (int(numbers.max(initial=0)) + 1) + numbers, return_inverse=True)[1].reshape(-1)
    return codes


def rows_by_group(codes: IntArray) -> list[IntArray]:
    """Return the rows of each number, in the order of the numbers."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def exchangeable(release: Release) -> IntArray:
    """Give a number to the released rows that nobody can tell apart: same class, equal public and sensitive values.

    Noise makes every row different, so a noisy row is exchangeable with no other.
    """
    told = [name for name, item in release.attributes.items() if item["role"] in ("public", "sensitive")]
    told_apart = combinations(release, told)
    num_told = int(told_apart.max(initial=0)) + 1
    return np.asarray(np.unique(release.class_of_row * num_told + told_apart, return_inverse=True)[1].reshape(-1))


LINKAGE_NOTE = (
    "the best guess of someone who knows the weight, public and sensitive values of one released package, the release "
    "and the plan, but no outcome and no second package"
)


def truck_linkage(group: IntArray, bin_of_row: IntArray) -> dict[str, Any]:
    """Return how likely someone who knows a package's values, the release and the plan names its truck.

    Rows of a group are exchangeable, so the truck of a package of the group is each truck with the share of the
    group's rows that go there; the best guess is the largest share. ``mean`` is over released packages.

    Examples
    --------
    >>> truck_linkage(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]))["mean"]
    0.75
    """
    _, largest, sizes = _largest_shares(group, bin_of_row)
    mean, worst = float(largest.sum() / sizes.sum()), float((largest / sizes).max())
    return {"mean": mean, "worst": worst, "kind": "exact", "note": LINKAGE_NOTE}


def linkage_of_rows(group: IntArray, bin_of_row: IntArray) -> npt.NDArray[np.float64]:
    """Return for each row the best guess that :func:`truck_linkage` summarises."""
    group, largest, sizes = _largest_shares(group, bin_of_row)
    return np.asarray((largest / sizes)[group])


def _largest_shares(group: IntArray, bin_of_row: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the group of each row from 0 on, and for each group its most rows in one bin and its size."""
    num_bins = int(bin_of_row.max()) + 1
    _, group, sizes = np.unique(group, return_inverse=True, return_counts=True)
    pairs, counts = np.unique(group * num_bins + bin_of_row, return_counts=True)
    largest = np.zeros(len(sizes), dtype=np.int64)
    np.maximum.at(largest, pairs // num_bins, counts)
    return group, largest, sizes
