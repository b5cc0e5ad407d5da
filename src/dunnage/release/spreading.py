# SPDX-License-Identifier: Apache-2.0
"""Counts read from classes: each record stands for every value that its class may have, by how often it occurs there.

The rows of a class are alike, so a reader must decide where inside the class they are. **Evenly**: all combinations of
the values of a class are equally likely, or as likely as multisets say. **By steps** of expectation-maximisation: all
classes together say which combinations are frequent, and each class is filled in these proportions, within its values
and the counts it states. Both use the release alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pyarrow.compute as pc

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.model.domains import CodedDomain, Numeric, Tree
from dunnage.model.schema import COUNTS_SUFFIX
from dunnage.release.kinds import domain_of, floats, generalised
from dunnage.tables.columns import is_set

if TYPE_CHECKING:
    import pyarrow as pa

    from dunnage.release import Release

MAX_CELLS = 20_000_000  # combinations that are counted
MAX_ENTRIES = 100_000_000  # combinations of all classes
FITTING = 2  # rounds in which a class is fitted to its own counts, in each step


class Axis(NamedTuple):
    """One attribute: the cells that it may have, and the cells of each class with their weights, class by class."""

    cells: list[object]  # labels, or the lower ends of steps of a number
    places: IntArray
    weights: FloatArray  # how many records of the class; relative where only a set, node or interval is known
    starts: IntArray  # where each class begins; one entry more than there are classes
    counted: bool  # whether weights are numbers of records


def axis_of(release: Release, name: str, width: float | None) -> Axis:
    """Read one attribute of each class; a number is cut at multiples of ``width``."""
    classes = release.classes
    if classes is None or name not in generalised(release):
        names = ", ".join(generalised(release)) if classes is not None else "none, because it has no classes"
        raise ParameterError(f"the release has no generalised attribute {name!r}. It has: {names}.")
    domain, num = domain_of(release, name), len(classes)
    if isinstance(domain, Numeric):
        if width is None or not (math.isfinite(width) and 0 < width <= domain.span):
            raise ParameterError(f"{name!r} is a number, so a width from above 0 to {domain.span:g} is needed.")
        first = math.floor(domain.lower_float / width)
        # The very end of the domain, such as 24:00, belongs to the step before it.
        begins = width * np.arange(first, max(first + 1, math.ceil(domain.upper_float / width)))
        # On a grid a value stands for the step that begins there.
        grid = float(domain.resolution) if domain.resolution is not None else 0.0
        lower, end = floats(classes, f"{name}_lower"), floats(classes, f"{name}_upper") + grid
        at = np.clip(np.searchsorted(begins, lower, side="right") - 1, 0, None)
        last = np.maximum(np.clip(np.searchsorted(begins, end, side="left") - 1, 0, None), at)
        numbers = last - at + 1
        of_class = np.repeat(np.arange(num), numbers)
        places = at[of_class] + np.arange(len(of_class)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        ends = np.append(begins[1:], np.inf)
        inside = np.minimum(end[of_class], ends[places]) - np.maximum(lower[of_class], begins[places])
        weights = np.where(numbers[of_class] == 1, 1.0, inside)
        return Axis(begins.tolist(), places, weights, np.append(0, np.cumsum(numbers)), counted=False)
    labels = cast("CodedDomain", domain).labels
    column = classes.column(name).combine_chunks()
    if is_set(column.type):
        sizes = pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
        places = cast("CodedDomain", domain).codes(column.flatten().to_pylist())
        counted = name + COUNTS_SUFFIX in classes.column_names
        weights = np.ones(len(places))
        if counted:
            weights = floats_of_lists(classes, name + COUNTS_SUFFIX)
        return Axis(list(labels), places, weights, np.append(0, np.cumsum(sizes)), counted)
    below: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        for node in domain.levels(label) if isinstance(domain, Tree) else (label,):
            below.setdefault(node, []).append(place)
    lists = [below.get(node, range(len(labels))) for node in column.to_pylist()]
    places, sizes = np.concatenate([np.asarray(own) for own in lists]), np.array([len(own) for own in lists])
    return Axis(list(labels), places.astype(np.int64), np.ones(len(places)), np.append(0, np.cumsum(sizes)), False)


def floats_of_lists(table: pa.Table, name: str) -> FloatArray:
    return np.asarray(table.column(name).combine_chunks().flatten().to_numpy(zero_copy_only=False), dtype=np.float64)


def spread_counts(release: Release, axes: Sequence[Axis], steps: int) -> FloatArray:
    """Count records by combinations of the cells of some attributes. Shape: the cells of each."""
    assert release.classes is not None
    sizes = release.classes.column("size").to_numpy().astype(np.float64)
    shape = tuple(len(axis.cells) for axis in axes)
    numbers = [np.diff(axis.starts) for axis in axes]
    num_entries = np.prod(numbers, axis=0, dtype=np.float64)
    if math.prod(shape) > MAX_CELLS or num_entries.sum() > MAX_ENTRIES:
        raise ParameterError("there are too many combinations to count. Count fewer attributes, or a larger width.")
    # entries : one line for each combination of the values of a class; their class, cell, and place in each attribute
    of_class = np.repeat(np.arange(len(sizes)), num_entries.astype(np.int64))
    rest = np.arange(len(of_class)) - (np.cumsum(num_entries) - num_entries).astype(np.int64)[of_class]
    cell, weight, lines = np.zeros(len(of_class), dtype=np.int64), np.ones(len(of_class)), list[IntArray]()
    for axis, number in zip(reversed(axes), reversed(numbers), strict=True):
        rest, own = np.divmod(rest, number[of_class])
        lines.insert(0, axis.starts[of_class] + own)
        weight *= axis.weights[lines[0]]
    for axis, line in zip(axes, lines, strict=True):
        cell = cell * len(axis.cells) + axis.places[line]

    def counted(weight: FloatArray) -> FloatArray:
        """Give each class its number of records, and add up cells."""
        weight = weight * (sizes / np.bincount(of_class, weight))[of_class]
        return np.asarray(np.bincount(cell, weight, minlength=math.prod(shape)), dtype=np.float64)

    counts = counted(weight)
    for _ in range(steps):
        weight = counts[cell]
        for axis, line in ((a, own) for _ in range(FITTING) for a, own in zip(axes, lines, strict=True) if a.counted):
            weight = weight * (axis.weights / np.bincount(line, weight, minlength=len(axis.weights)))[line]
        counts = counted(weight)
    return counts.reshape(shape)
