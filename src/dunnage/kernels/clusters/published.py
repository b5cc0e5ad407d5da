# SPDX-License-Identifier: Apache-2.0
"""The two clusterings of Bhati et al. 2021 (Algorithm 1), to the letter: greedy and density.

A class is a head and its k - 1 nearest records that are in no class yet. Greedy takes heads in a random order; density
takes the record with the smallest average distance to its k - 1 nearest (eq. 21), and compares again after every class.
The fewer than k records at the end are *left over*: each joins the class with the smallest rise in charge.

The paper leaves some questions open; the answers here are:

* The average is over the k - 1 *other* records that would join the head. Counting the head too, at distance 0,
  divides every sum by the same k instead and changes no choice.
* **Ties.** Heads: the lowest average, then the lowest record number. Neighbours: the least distance to the head, then
  the lowest record number. Left-overs: lowest record number first; among equally good classes, the one formed first.
* **Rounding.** A distance is the sum over attributes in the metric's order (numeric first) of ``near`` times the
  distance in the attribute, and averages are compared as sums of k - 1 distances, least first, in double precision.
* **Left-overs** join the class with the smallest rise in its charge in eq. 15, its size times its cost; the class keeps
  its new width when the next one is placed.
* **Limits** (C1). If the class of a head would be wider than a limit, the head is suppressed and its neighbours stay
  free. A left-over that fits into no class within the limits is suppressed too.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray, kernel, piece
from dunnage.kernels.clusters.growth import CodeArray, Metric, MetricTable, distance, distance_moments

# Compiled loops of the published clusterings.
#
# Records with equal values form one *point*. Points lie in the *cells* of a grid with rows and columns (each a
# combination of codes), and inside a cell along a *line* (one numeric attribute). The search for the nearest living
# records goes row by row and cell by cell, nearest first, and outwards along the line, until nothing nearer can come.
#
# Every bound that ends a search is below the distance it stands for, even as rounded numbers: a distance is a sum of
# terms that are at least 0, rounding keeps the order, and ``_SAFE`` covers terms that are added in another order.
_SAFE = 1 - 1e-12


class GridSide(NamedTuple):
    nearest: CodeArray  # for each step all steps by their distance from it
    apart: FloatArray  # those distances


class Places(NamedTuple):
    points: MetricTable  # the first records of points
    line: FloatArray
    line_near: float
    rows: GridSide
    columns: GridSide
    cell_of: IntArray  # row times number of columns, plus column
    cell_starts: IntArray  # where the points of each cell start
    point_of: IntArray
    members: IntArray  # the records of points, one after another, in ascending order
    member_starts: IntArray  # where those of each point start
    place_of: IntArray  # of each record in `members`


class Living(NamedTuple):
    records: BoolArray
    in_point: IntArray
    in_cell: IntArray
    in_row: IntArray
    after: IntArray  # leads from a point to the next living one, itself if it lives
    before: IntArray  # the same downwards, shifted by one, so that 0 means none
    member_after: IntArray  # leads from a place in `members` to the next living one


class NearestRecords(NamedTuple):
    distances: FloatArray
    records: IntArray


@piece
def _follow(links: IntArray, place: int) -> int:
    """Return the end of the links from a place, and shorten the way there."""
    while links[place] != place:
        links[place] = links[links[place]]
        place = links[place]
    return place


@piece
def _remove(record: int, places: Places, living: Living) -> None:
    living.records[record] = False
    place = places.place_of[record]
    living.member_after[place] = place + 1
    point = places.point_of[record]
    cell = places.cell_of[point]
    living.in_cell[cell] -= 1
    living.in_row[cell // len(places.columns.apart)] -= 1
    living.in_point[point] -= 1
    if living.in_point[point] == 0:
        living.after[point] = point + 1
        living.before[point + 1] = point


@piece
def _search_cell(
    cell: int, apart: float, head: int, num: int, nearby: NearestRecords, places: Places, living: Living
) -> int:
    """Search nearer records in one cell, outwards from the head's place on the line; return how many there are."""
    distances, records = nearby
    last, own = len(records) - 1, places.point_of[head]
    line, starts, after, before = places.line, places.member_starts, living.after, living.before
    start, end = places.cell_starts[cell], places.cell_starts[cell + 1]
    value = line[own]
    middle = own if start <= own < end else start + np.searchsorted(line[start:end], value)
    right, left = _follow(after, middle), _follow(before, middle) - 1
    while right < end or left >= start:
        gap_right = line[right] - value if right < end else np.inf
        gap_left = value - line[left] if left >= start else np.inf
        if num > last and (apart + places.line_near * min(gap_right, gap_left)) * _SAFE > distances[last]:
            break
        if gap_right <= gap_left:
            point, right = right, _follow(after, right + 1)
        else:
            point, left = left, _follow(before, left) - 1
        away = distance(own, point, places.points, places.points.near)
        if num > last and away > distances[last]:
            continue
        # The living records of the point, lowest number first, until one is not better than the last one listed
        member = _follow(living.member_after, starts[point])
        while member < starts[point + 1]:
            record = places.members[member]
            if record != head:
                if num > last and (away > distances[last] or (away == distances[last] and record > records[last])):
                    break
                place = min(num, last)  # the last one falls out if all places are taken
                while place > 0 and (
                    distances[place - 1] > away or (distances[place - 1] == away and records[place - 1] > record)
                ):
                    distances[place], records[place] = distances[place - 1], records[place - 1]
                    place -= 1
                distances[place], records[place] = away, record
                num = min(num + 1, last + 1)
            member = _follow(living.member_after, member + 1)
    return num


@piece
def nearest(head: int, nearby: NearestRecords, places: Places, living: Living) -> None:
    """List the living records nearest to one, by distance and number, as many as there is room for."""
    distances = nearby.distances
    num, last = 0, len(distances) - 1
    if last < 0:
        return
    num_columns = len(places.columns.apart)
    own_row, own_column = divmod(places.cell_of[places.point_of[head]], num_columns)
    for row_rank in range(len(places.rows.apart)):
        row, row_apart = places.rows.nearest[own_row, row_rank], places.rows.apart[own_row, row_rank]
        if num > last and row_apart * _SAFE > distances[last]:
            break
        if living.in_row[row] == 0:
            continue
        for rank in range(num_columns):
            apart = row_apart + places.columns.apart[own_column, rank]
            if num > last and apart * _SAFE > distances[last]:
                break
            cell = row * num_columns + places.columns.nearest[own_column, rank]
            if living.in_cell[cell] > 0:
                num = _search_cell(cell, apart, head, num, nearby, places, living)


@piece
def _gap(axis: int, first: int, second: int, table: MetricTable) -> Any:
    numbers, codes = table.numbers, table.codes
    if axis < numbers.shape[0]:
        return abs(numbers[axis, first] - numbers[axis, second])
    axis -= numbers.shape[0]
    return table.entries[table.starts[axis] + codes[axis, first] * table.sizes[axis] + codes[axis, second]]


@piece
def _fits(members: IntArray, limits: FloatArray, table: MetricTable) -> bool:
    """Return whether no two members are farther apart than the limits (constraint C1)."""
    for axis in range(len(limits)):
        if limits[axis] == np.inf:
            continue
        for later in range(1, len(members)):
            for earlier in range(later):
                if _gap(axis, members[later], members[earlier], table) > limits[axis]:
                    return False
    return True


@piece
def _close(
    number: int,
    members: IntArray,
    of_record: IntArray,
    limits: FloatArray,
    table: MetricTable,
    places: Places,
    living: Living,
) -> int:
    """Form a class of a head and its neighbours or, if limits forbid it, suppress the head; return the next number."""
    if not _fits(members, limits, table):
        _remove(members[0], places, living)
        return number
    for record in members:
        of_record[record] = number
        _remove(record, places, living)
    return number + 1


@kernel
def greedy(k: int, order: IntArray, limits: FloatArray, table: MetricTable, places: Places, living: Living) -> IntArray:
    """Form classes around heads in a given order while k records live."""
    of_record = np.full(len(order), -1, dtype=np.int64)
    distances, members = np.empty(k - 1), np.empty(k, dtype=np.int64)
    number, num_left = 0, len(order)
    for head in order:
        if num_left < k:
            break
        if not living.records[head]:
            continue
        members[0] = head
        nearest(head, NearestRecords(distances, members[1:]), places, living)
        following = _close(number, members, of_record, limits, table, places, living)
        num_left -= k if following > number else 1
        number = following
    return of_record


@kernel
def density(k: int, limits: FloatArray, table: MetricTable, places: Places, living: Living) -> IntArray:
    """Form classes around the record with the least average distance to its k - 1 nearest while k records live."""
    # Averages only rise when records die, even as rounded sums. So if the least of all recorded sums is still right, it
    # is the least of all: only that one is recomputed, and only if one of its recorded neighbours died.
    num_records = len(places.point_of)
    of_record = np.full(num_records, -1, dtype=np.int64)
    distances, members = np.empty(k - 1), np.empty(k, dtype=np.int64)
    neighbours = np.zeros((num_records, k - 1), dtype=np.int32)
    heap = [(-1.0, record) for record in range(num_records)]  # a heap: all sums are equal, and below any right one
    number, num_left = 0, num_records
    while num_left >= k:
        recorded, head = heap[0]
        if not living.records[head]:
            heapq.heappop(heap)
            continue
        if recorded < 0 or not living.records[neighbours[head]].all():
            nearest(head, NearestRecords(distances, members[1:]), places, living)
            neighbours[head] = members[1:]
            total = 0.0
            for apart in distances:
                total += apart
            if total > recorded:
                heapq.heapreplace(heap, (total, head))
                continue
        members[0] = head
        members[1:] = neighbours[head]
        following = _close(number, members, of_record, limits, table, places, living)
        num_left -= k if following > number else 1
        number = following
    return of_record


@kernel
def place_left_over(
    of_record: IntArray, left_over: IntArray, widths: FloatArray, limits: FloatArray, table: MetricTable
) -> None:
    """Put each left-over record, lowest number first, into its best class; one that fits nowhere stays without."""
    charge, class_sizes = table.charge, np.zeros(len(widths), dtype=np.int64)
    for number in of_record:
        if number >= 0:
            class_sizes[number] += 1
    reach = np.empty((2, *widths.shape))  # widths of all classes as they are, and with the record in them
    reach[0] = widths
    for record in left_over:
        reach[1] = reach[0]
        for other in range(len(of_record)):
            number = of_record[other]
            if number >= 0:
                for axis in range(len(charge)):
                    reach[1, number, axis] = max(reach[1, number, axis], _gap(axis, record, other, table))
        best, least = -1, np.inf  # the class with the smallest rise in charge for all its records, within limits
        for number in range(len(class_sizes)):
            before, after, allowed = 0.0, 0.0, True
            for axis in range(len(charge)):
                before += charge[axis] * reach[0, number, axis]
                after += charge[axis] * reach[1, number, axis]
                allowed = allowed and reach[1, number, axis] <= limits[axis]
            rise = (class_sizes[number] + 1) * after - class_sizes[number] * before
            if allowed and rise < least:
                best, least = number, rise
        if best >= 0:
            of_record[record] = best
            class_sizes[best] += 1
            reach[0, best] = reach[1, best]


_MAX_STEPS = 512
_CELLS_PER_RECORD = 4


def published_greedy(metric: Metric, k: int, *, order: IntArray, limits: FloatArray | None = None) -> IntArray:
    """Form classes around heads in a given random order, each with its k - 1 nearest free records."""
    return _published(metric, k, limits, np.asarray(order, dtype=np.int64))


def published_density(metric: Metric, k: int, *, limits: FloatArray | None = None) -> IntArray:
    """Form classes around the record that is nearest on average to its k - 1 nearest free records."""
    return _published(metric, k, limits, None)


def _published(metric: Metric, k: int, limits: FloatArray | None, order: IntArray | None) -> IntArray:
    widest = np.full(len(metric.charge), np.inf) if limits is None else np.asarray(limits, dtype=np.float64)
    places, living = _lay_out(metric)
    of_record: IntArray
    if order is None:
        of_record = density(k, widest, metric.arrays, places, living)
    else:
        of_record = greedy(k, order, widest, metric.arrays, places, living)
    left_over = np.flatnonzero(living.records)
    if len(left_over) and of_record.max() >= 0:  # without any class they stay in none
        place_left_over(of_record, left_over, np.ascontiguousarray(metric.widths(of_record).T), widest, metric.arrays)
    return of_record


def _lay_out(metric: Metric) -> tuple[Places, Living]:
    """Sort records into the cells of a grid, along a line, and into points of equal values."""
    num = len(metric)
    (row_of, rows), (column_of, columns) = _sides(metric)
    num_cells = len(rows.apart) * len(columns.apart)
    cell_of = row_of * len(columns.apart) + column_of
    # The numeric attribute in which records are farthest apart on average
    apart = [near * distance_moments(column)[0] for near, column in zip(metric.near, metric.numbers, strict=False)]
    line_axis = int(np.argmax(apart)) if max(apart, default=0.0) > 0 else None
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
    places = Places(
        points=metric.take(first).arrays,
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


def _sides(metric: Metric) -> list[tuple[IntArray, GridSide]]:
    """Return the rows and the columns of the grid: the step of each record, and which steps are near each other."""
    # The coded attribute that spreads most makes the rows, the next one the columns; others refine them as long as
    # there are not many more cells than records.
    steps = [(np.zeros(len(metric), dtype=np.int64), np.zeros((1, 1))) for _ in range(2)]
    # The coded attributes with different values, the farthest apart on average first
    near = metric.near[len(metric.numbers) :]
    apart = {
        axis: float(near[axis]) * distance_moments(codes, table)[0]
        for axis, (codes, table) in enumerate(zip(metric.codes, metric.tables, strict=True))
        if near[axis] > 0
    }
    for place, axis in enumerate(
        sorted((axis for axis, mean in apart.items() if mean > 0), key=lambda axis: (-apart[axis], axis))
    ):
        codes, table = metric.codes[axis], metric.tables[axis]
        for side in (1, 0) if place == 1 else (0, 1):
            # Split the steps of a side by this attribute, unless there would be too many.
            of_record, away = steps[side]
            _, firsts, finer = np.unique(of_record * len(table) + codes, return_index=True, return_inverse=True)
            if len(firsts) <= min(_MAX_STEPS, _CELLS_PER_RECORD * len(metric) // len(steps[1 - side][1])):
                old, present = of_record[firsts], codes[firsts]
                between = float(near[axis]) * table[np.ix_(present, present)]
                steps[side] = finer.astype(np.int64), away[np.ix_(old, old)] + between
                break
    sides = []
    for of_record, away in steps:
        by_distance = np.argsort(away, axis=1, kind="stable")
        sorted_away = np.ascontiguousarray(np.take_along_axis(away, by_distance, axis=1))
        sides.append((of_record, GridSide(by_distance.astype(np.int32), sorted_away)))
    return sides
