# SPDX-License-Identifier: Apache-2.0
"""The two clusterings of Bhati et al. 2021 (Algorithm 1), to the letter: greedy and density.

A class is a head and its k - 1 nearest records that are in no class yet. Greedy takes heads in a random order; density
takes the record whose k - 1 nearest are nearest on average (eq. 21), and looks again after every class. The fewer than
k records at the end are *left over*: each joins the class whose charge rises least by it.

What the paper leaves open is settled so:

* The average is over the k - 1 *other* records that would join the head. Counting the head too, at distance 0,
  divides every sum by the same k instead and changes no choice.
* **Ties.** Heads: the lowest average, then the lowest record number. Neighbours: the least distance to the head, then
  the lowest record number. Left-overs: lowest record number first; of equally good classes the one formed first.
* **Rounding.** A distance is the sum over attributes in the metric's order (numeric first) of ``near`` times the
  distance in the attribute, and averages are compared as sums of k - 1 distances, least first, in double precision.
* **Left-overs** join the class whose charge in eq. 15, its size times its cost, rises least, and the class is as wide
  as it has become when the next one is placed.
* **Limits** (C1). A head whose class would be wider than a limit is suppressed and its neighbours stay free. A
  left-over that fits into no class within the limits is suppressed too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.clustering.metric import Metric
from dunnage.clustering.scaling import distance_moments
from dunnage.errors import ParameterError

if TYPE_CHECKING:
    from dunnage.clustering.published_kernels import Grid, Living, Places

_MOST_STEPS = 512
_CELLS_PER_RECORD = 4


def published_greedy(metric: Metric, k: int, *, order: IntArray, limits: FloatArray | None = None) -> IntArray:
    """Form classes around heads in a given random order, each with its k - 1 nearest free records."""
    _check_size(metric, k)
    order = np.asarray(order, dtype=np.int64)
    if not np.array_equal(np.sort(order), np.arange(len(metric))):
        raise ParameterError("order must have every record once. Give a permutation of the record numbers.")
    limits = _checked_limits(metric, limits)
    from dunnage.clustering import published_kernels as kernels

    places, living = _lay_out(metric)
    of_record = kernels.greedy(k, order, limits, metric.arrays[:5], places, living)
    return _finished(metric, of_record, limits, living)


def published_density(metric: Metric, k: int, *, limits: FloatArray | None = None) -> IntArray:
    """Form classes around the record that is nearest on average to its k - 1 nearest free records.

    The result is exactly that of computing all averages anew after every class; only those that can matter are.
    """
    _check_size(metric, k)
    limits = _checked_limits(metric, limits)
    from dunnage.clustering import published_kernels as kernels

    places, living = _lay_out(metric)
    of_record = kernels.density(k, limits, metric.arrays[:5], places, living)
    return _finished(metric, of_record, limits, living)


def _check_size(metric: Metric, k: int) -> None:
    if not 1 <= k <= len(metric):
        raise ParameterError(f"k must be between 1 and the number of records, {len(metric)}. Got {k}. Ask for fewer.")


def _checked_limits(metric: Metric, limits: FloatArray | None) -> FloatArray:
    if limits is None:
        return np.full(len(metric.charge), np.inf)
    checked = np.asarray(limits, dtype=np.float64)
    if checked.shape != metric.charge.shape or not (checked >= 0).all():
        raise ParameterError("limits must be one number for each attribute, 0 or more. Use infinity for no limit.")
    return checked


def _finished(metric: Metric, of_record: IntArray, limits: FloatArray, living: Living) -> IntArray:
    """Place the left-over records; without any class they stay in none."""
    from dunnage.clustering import published_kernels as kernels

    left_over = np.flatnonzero(living.records)
    if len(left_over) and of_record.max() >= 0:
        widths = np.ascontiguousarray(metric.widths(of_record).T)
        kernels.place_left_over(of_record, left_over, widths, limits, metric.arrays[5], metric.arrays[:5])
    return of_record


def _lay_out(metric: Metric) -> tuple[Places, Living]:
    """Sort records into the cells of a grid, along a line, and into points of equal values."""
    from dunnage.clustering.published_kernels import Living, Places

    num = len(metric)
    (row_of, rows), (column_of, columns) = _sides(metric)
    num_cells = len(rows.apart) * len(columns.apart)
    cell_of = row_of * len(columns.apart) + column_of
    line_axis = _line_axis(metric)
    line = np.zeros(num) if line_axis is None else metric.numbers[line_axis]
    values = [column for axis, column in enumerate((*metric.numbers, *metric.codes)) if metric.near[axis] > 0]
    members = np.lexsort((*values, line, cell_of)).astype(np.int64)  # stable: equal records stay in order
    new = np.arange(num) == 0
    for column in (*values, cell_of):
        new[1:] |= np.diff(column[members]) != 0
    starts = np.flatnonzero(new)
    first = members[starts]
    place_of, point_of = np.empty(num, dtype=np.int64), np.empty(num, dtype=np.int64)
    place_of[members] = np.arange(num)
    point_of[members] = np.cumsum(new) - 1
    points = metric.take(first).arrays
    places = Places(
        points=(*points[:5], points[6]),
        line=np.ascontiguousarray(line[first], dtype=np.float64),
        line_near=0.0 if line_axis is None else float(metric.near[line_axis]),
        rows=rows,
        columns=columns,
        cell_of=cell_of[first],
        cell_starts=np.searchsorted(cell_of[first], np.arange(num_cells + 1)).astype(np.int64),
        point_of=point_of,
        members=members,
        member_starts=np.append(starts, num).astype(np.int64),
        place_of=place_of,
    )
    living = Living(
        records=np.ones(num, dtype=np.bool_),
        in_point=np.diff(places.member_starts),
        in_cell=np.bincount(cell_of, minlength=num_cells).astype(np.int64),
        in_row=np.bincount(row_of, minlength=len(rows.apart)).astype(np.int64),
        after=np.arange(len(first) + 1),
        before=np.arange(len(first) + 1),
        member_after=np.arange(num + 1),
    )
    return places, living


def _line_axis(metric: Metric) -> int | None:
    """Return the numeric attribute in which records are farthest apart on average."""
    apart = [near * distance_moments(column)[0] for near, column in zip(metric.near, metric.numbers, strict=False)]
    return int(np.argmax(apart)) if max(apart, default=0.0) > 0 else None


def _sides(metric: Metric) -> list[tuple[IntArray, Grid]]:
    """Return the rows and the columns of the grid: the step of each record, and which steps are near each other.

    The coded attribute that tells most makes the rows, the next one the columns; others refine them as long as there
    are not many more cells than records.
    """
    steps = [(np.zeros(len(metric), dtype=np.int64), np.zeros((1, 1))) for _ in range(2)]
    for place, axis in enumerate(_telling_codes(metric)):
        for side in (1, 0) if place == 1 else (0, 1):
            most = min(_MOST_STEPS, _CELLS_PER_RECORD * len(metric) // len(steps[1 - side][1]))
            finer = _refined(metric, axis, *steps[side], most)
            if finer is not None:
                steps[side] = finer
                break
    return [(of_record, _by_distance(apart)) for of_record, apart in steps]


def _refined(
    metric: Metric, axis: int, of_record: IntArray, apart: FloatArray, most: int
) -> tuple[IntArray, FloatArray] | None:
    """Split the steps of a side by a coded attribute; None if there would be too many."""
    codes, table = metric.codes[axis], metric.tables[axis]
    _, firsts, finer = np.unique(of_record * len(table) + codes, return_index=True, return_inverse=True)
    if len(firsts) > most:
        return None
    old, present = of_record[firsts], codes[firsts]
    near = float(metric.near[len(metric.numbers) + axis])
    return finer.astype(np.int64), apart[np.ix_(old, old)] + near * table[np.ix_(present, present)]


def _by_distance(apart: FloatArray) -> Grid:
    from dunnage.clustering.published_kernels import Grid

    nearest = np.argsort(apart, axis=1, kind="stable")
    return Grid(nearest.astype(np.int32), np.ascontiguousarray(np.take_along_axis(apart, nearest, axis=1)))


def _telling_codes(metric: Metric) -> list[int]:
    """Return the coded attributes that tell records apart, the farthest apart on average first."""
    near = metric.near[len(metric.numbers) :]
    apart = {
        axis: float(near[axis]) * distance_moments(codes, table)[0]
        for axis, (codes, table) in enumerate(zip(metric.codes, metric.tables, strict=True))
        if near[axis] > 0
    }
    return sorted((axis for axis, mean in apart.items() if mean > 0), key=lambda axis: (-apart[axis], axis))
