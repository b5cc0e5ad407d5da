# SPDX-License-Identifier: Apache-2.0
"""Compiled loops of the published clusterings. Imports numba: import this module only where a kernel is run.

Records with equal values form one *point*. Points lie in the *cells* of a grid with rows and columns (each a
combination of codes), and inside a cell along a *line* (one numeric attribute). The nearest living records are looked
for row by row and cell by cell, nearest first, and outwards along the line, until nothing nearer can come.

Every bound that ends a search is below the distance it stands for, even as rounded numbers: a distance is a sum of
terms that are at least 0, rounding keeps the order, and ``_SAFE`` covers terms that are added in another order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.clustering.compiling import distance
from dunnage.clustering.metric import CodeArray
from dunnage.compiling import kernel, piece

_SAFE = 1 - 1e-12


class Grid(NamedTuple):
    """One side of the grid: ``nearest[s]`` are all its steps by their distance ``apart[s]`` from step ``s``."""

    nearest: CodeArray
    apart: FloatArray


class Places(NamedTuple):
    """Where records are; nothing in it changes.

    ``points`` is what :func:`~dunnage.clustering.compiling.distance` takes for points. Cell ``c`` (row times number of
    columns, plus column) has the points ``cell_starts[c]`` up to the next start, point ``p`` the records
    ``members[member_starts[p]]`` and so on, in ascending order.
    """

    points: Any
    line: FloatArray
    line_near: float
    rows: Grid
    columns: Grid
    cell_of: IntArray
    cell_starts: IntArray
    point_of: IntArray
    members: IntArray
    member_starts: IntArray
    place_of: IntArray


class Living(NamedTuple):
    """Who is in no class yet.

    ``after`` and ``before`` lead from a point to the next living one (itself if it lives), ``member_after`` from a
    place in ``members`` to the next living one. ``before`` is shifted by one, so that 0 means none.
    """

    records: Any
    in_point: IntArray
    in_cell: IntArray
    in_row: IntArray
    after: IntArray
    before: IntArray
    member_after: IntArray


@piece
def _follow(links: IntArray, place: int) -> int:
    """Return where the links from a place end, and shorten the way there."""
    while links[place] != place:
        links[place] = links[links[place]]
        place = links[place]
    return place


@piece
def _remove(record: int, places: Places, living: Living) -> None:
    """Take a record out of all further searches."""
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
def _insert(apart: float, record: int, num: int, distances: FloatArray, records: IntArray) -> int:
    """Put a record among those found, sorted by distance and number; the last one falls out if all places are taken."""
    place = min(num, len(records) - 1)
    while place > 0 and (
        distances[place - 1] > apart or (distances[place - 1] == apart and records[place - 1] > record)
    ):
        distances[place], records[place] = distances[place - 1], records[place - 1]
        place -= 1
    distances[place], records[place] = apart, record
    return min(num + 1, len(records))


@piece
def _offer(
    start: int,
    end: int,
    apart: float,
    head: int,
    num: int,
    distances: FloatArray,
    found: IntArray,
    members: IntArray,
    member_after: IntArray,
) -> int:
    """Offer the living records of a point, lowest number first, until one is not better than the last one found."""
    last = len(found) - 1
    place = _follow(member_after, start)
    while place < end:
        record = members[place]
        if record != head:
            full = num > last
            if full and (apart > distances[last] or (apart == distances[last] and record > found[last])):
                break
            num = _insert(apart, record, num, distances, found)
        place = _follow(member_after, place + 1)
    return num


@piece
def _first_from(line: FloatArray, value: float, start: int, end: int) -> int:
    """Return the first place from ``start`` whose number is not below a value."""
    while start < end:
        middle = (start + end) // 2
        if line[middle] < value:
            start = middle + 1
        else:
            end = middle
    return start


@piece
def _search_cell(
    cell: int,
    apart: float,
    head: int,
    num: int,
    distances: FloatArray,
    found: IntArray,
    places: Places,
    living: Living,
) -> int:
    """Look for nearer records in one cell, outwards from the head's place on the line."""
    last, own = len(found) - 1, places.point_of[head]
    line, starts, after, before = places.line, places.member_starts, living.after, living.before
    start, end = places.cell_starts[cell], places.cell_starts[cell + 1]
    value = line[own]
    middle = own if start <= own < end else _first_from(line, value, start, end)
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
        away = distance(own, point, *places.points)
        if num <= last or away <= distances[last]:
            ends = starts[point], starts[point + 1]
            num = _offer(*ends, away, head, num, distances, found, places.members, living.member_after)
    return num


@piece
def nearest(head: int, distances: FloatArray, found: IntArray, places: Places, living: Living) -> int:
    """Find the living records nearest to one, by distance and number, as many as there is room for."""
    num, last = 0, len(found) - 1
    if last < 0:
        return 0
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
                num = _search_cell(cell, apart, head, num, distances, found, places, living)
    return num


@piece
def _gap(axis: int, first: int, second: int, records: Any) -> Any:
    """Distance of two records in one attribute, in its own unit."""
    numbers, codes, entries, starts, sizes = records
    if axis < numbers.shape[0]:
        return abs(numbers[axis, first] - numbers[axis, second])
    axis -= numbers.shape[0]
    return entries[starts[axis] + codes[axis, first] * sizes[axis] + codes[axis, second]]


@piece
def _fits(members: IntArray, limits: FloatArray, records: Any) -> bool:
    """Return whether no two members are farther apart than the limits (constraint C1)."""
    for axis in range(len(limits)):
        if limits[axis] == np.inf:
            continue
        for later in range(1, len(members)):
            for earlier in range(later):
                if _gap(axis, members[later], members[earlier], records) > limits[axis]:
                    return False
    return True


@piece
def _close(
    number: int,
    members: IntArray,
    of_record: IntArray,
    limits: FloatArray,
    records: Any,
    places: Places,
    living: Living,
) -> int:
    """Make a class of a head and its neighbours or, if limits forbid it, suppress the head; return the next number."""
    if not _fits(members, limits, records):
        _remove(members[0], places, living)
        return number
    for record in members:
        of_record[record] = number
        _remove(record, places, living)
    return number + 1


@kernel
def greedy(k: int, order: IntArray, limits: FloatArray, records: Any, places: Places, living: Living) -> IntArray:
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
        nearest(head, distances, members[1:], places, living)
        following = _close(number, members, of_record, limits, records, places, living)
        num_left -= k if following > number else 1
        number = following
    return of_record


@piece
def _sink(heap: CodeArray, num: int, place: int, sums: FloatArray) -> None:
    """Move an entry of the heap down until no lower one has a smaller sum, or an equal sum and a lower number."""
    record = heap[place]
    while 2 * place + 1 < num:
        child = 2 * place + 1
        if child + 1 < num:
            one, other = heap[child], heap[child + 1]
            if sums[other] < sums[one] or (sums[other] == sums[one] and other < one):
                child += 1
        least = heap[child]
        if sums[least] > sums[record] or (sums[least] == sums[record] and least > record):
            break
        heap[place] = least
        place = child
    heap[place] = record


@piece
def _all_live(noted: CodeArray, alive: Any) -> bool:
    """Return whether all of some records live."""
    num = 0
    for record in noted:
        num += alive[record]
    return num == len(noted)


@kernel
def density(k: int, limits: FloatArray, records: Any, places: Places, living: Living) -> IntArray:
    """Form classes around the record with the least average distance to its k - 1 nearest while k records live.

    Averages only rise when records die, also as rounded sums. So if the least of all noted sums is still right, it is
    the least of all: only that one is looked at anew, and only if one of its noted neighbours died.
    """
    num_records = len(places.point_of)
    of_record = np.full(num_records, -1, dtype=np.int64)
    distances, members = np.empty(k - 1), np.empty(k, dtype=np.int64)
    neighbours, sums = np.zeros((num_records, k - 1), dtype=np.int32), np.full(num_records, -1.0)
    heap = np.arange(num_records).astype(np.int32)  # in order: all sums are equal, and below any right one
    number, num_left, num_heap = 0, num_records, num_records
    while num_left >= k:
        head = heap[0]
        if not living.records[head]:
            num_heap -= 1
            heap[0] = heap[num_heap]
            _sink(heap, num_heap, 0, sums)
            continue
        if sums[head] < 0 or not _all_live(neighbours[head], living.records):
            nearest(head, distances, members[1:], places, living)
            neighbours[head] = members[1:]
            total = 0.0
            for apart in distances:
                total += apart
            risen = total > sums[head]
            sums[head] = total
            if risen:
                _sink(heap, num_heap, 0, sums)
                continue
        members[0] = head
        members[1:] = neighbours[head]
        following = _close(number, members, of_record, limits, records, places, living)
        num_left -= k if following > number else 1
        number = following
    return of_record


@piece
def _best_class(reach: FloatArray, class_sizes: IntArray, limits: FloatArray, charge: FloatArray) -> int:
    """Return the class whose charge for all its records rises least by one record more; -1 if limits forbid all.

    ``reach`` has the widths of all classes twice: as they are, and with that record in them.
    """
    best, least = -1, np.inf
    for number in range(len(class_sizes)):
        before, after, allowed = 0.0, 0.0, True
        for axis in range(len(charge)):
            before += charge[axis] * reach[0, number, axis]
            after += charge[axis] * reach[1, number, axis]
            allowed = allowed and reach[1, number, axis] <= limits[axis]
        rise = (class_sizes[number] + 1) * after - class_sizes[number] * before
        if allowed and rise < least:
            best, least = number, rise
    return best


@kernel
def place_left_over(
    of_record: IntArray, left_over: IntArray, widths: FloatArray, limits: FloatArray, charge: FloatArray, records: Any
) -> None:
    """Put each left-over record, lowest number first, into its best class; one that fits nowhere stays in none."""
    class_sizes = np.zeros(len(widths), dtype=np.int64)
    for number in of_record:
        if number >= 0:
            class_sizes[number] += 1
    reach = np.empty((2, *widths.shape))
    reach[0] = widths
    for record in left_over:
        reach[1] = reach[0]
        for other in range(len(of_record)):
            number = of_record[other]
            if number >= 0:
                for axis in range(len(charge)):
                    reach[1, number, axis] = max(reach[1, number, axis], _gap(axis, record, other, records))
        best = _best_class(reach, class_sizes, limits, charge)
        if best >= 0:
            of_record[record] = best
            class_sizes[best] += 1
            reach[0, best] = reach[1, best]
