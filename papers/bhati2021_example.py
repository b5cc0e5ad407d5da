# SPDX-License-Identifier: Apache-2.0
"""Bhati et al. 2021: the eight rides of its Table 2, clustered with k = 2, and the values of its Table 3.

Figure 1 is a picture of four stations and two lines without a list of edges. Example 8 says A-B is 1 and A-D is 2. The
ride distances of Table 2 fit a star: B joined to A (2 km), C (1.6 km) and D (2.2 km), for A-C is
3.6, A-D is 4.2, B-A is 2, B-D is 2.2 and C-D is 3.8. Hops on it agree with Example 8.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import dunnage as dn
from dunnage.kernels.clusters.growth import Metric, distance_deviations
from dunnage.kernels.clusters.published import published_density
from papers.measuring import written

EDGES = (("A", "B"), ("B", "C"), ("B", "D"))
STATIONS = dn.Graph(edges=EDGES)
TYPES = dn.Tree(parents={"SeC": "Not Adult", "C/S": "Not Adult", "Not Adult": "Person", "Adult": "Person"})
COLUMNS = ("type", "board", "alight", "start", "ride time", "ride distance")
TABLE_2, CLASSES, TABLE_3 = (written("bhati2021")["example"][name] for name in ("rides", "classes", "generalised"))


def seconds(clock: str) -> int:
    hours, minutes = map(int, clock.split(":"))
    return 3600 * hours + 60 * minutes


def metric() -> Metric:
    """Return the eight rides with equal importance and unit-variance scaling."""
    types, board, alight, start, taken, far = (list(column) for column in zip(*TABLE_2, strict=True))
    numbers = np.array([[seconds(str(clock)) for clock in start], taken, far], dtype=np.float64)
    codes = np.array([TYPES.codes(types), STATIONS.codes(board), STATIONS.codes(alight)], dtype=np.int32)
    tables = (TYPES.distances(), STATIONS.distances(), STATIONS.distances())
    diameters = np.array([*np.ptp(numbers, axis=1), *(table.max() for table in tables)])
    weights = np.full(len(COLUMNS), 1 / len(COLUMNS))
    return Metric(numbers, codes, tables, weights / diameters, weights / distance_deviations(numbers, codes, tables))


def classes() -> list[tuple[int, ...]]:
    """Cluster the eight rides by density with k = 2; records are numbered from 1, classes by their first record."""
    of_record = published_density(metric(), 2)
    return sorted(tuple((np.flatnonzero(of_record == c) + 1).tolist()) for c in range(int(of_record.max()) + 1))


def generalised(records: Sequence[int]) -> tuple[str, ...]:
    rows = [TABLE_2[record - 1] for record in records]
    types, board, alight, start, taken, far = (list(column) for column in zip(*rows, strict=True))
    return (
        TYPES.generalise(types),
        _set(STATIONS.generalise(board)),
        _set(STATIONS.generalise(alight)),
        _range(sorted(map(str, start), key=seconds)),
        _range([f"{value:g}" for value in sorted(taken)]),
        _range([f"{value:g}" for value in sorted(far)]),
    )


def _set(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{{{','.join(labels)}}}"


def _range(values: Sequence[str]) -> str:
    return values[0] if values[0] == values[-1] else f"{values[0]}-{values[-1]}"


def table() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    printed = dict(zip(CLASSES, TABLE_3, strict=True))
    for records in classes():
        values = generalised(records)
        row = {"records": ", ".join(f"r{record}" for record in records), **dict(zip(COLUMNS, values, strict=True))}
        rows.append({**row, "as printed": "yes" if values == printed.get(records) else "no"})
    return rows
