# SPDX-License-Identifier: Apache-2.0
"""Speed and loss of FullDomain: finding the best levels of a dataset, on one core.

The peer is the same optimum by looking at every node of the lattice, in numpy, run beside ours. Losses are printed
beside those that ARX 3.9.2 reached on a table of the same description (passenger types, 150 stations, start times),
and on weights U(125, 375); its rows were others, so that only the order of magnitude compares.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.measuring import Row, dataset, row, taken
from dunnage.arrays import IntArray
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.model.hierarchies import IntervalHierarchy, hierarchy_of
from dunnage.tables.dataset import Dataset

LOSS = "loss per record and attribute (less is better)"
ARX_RIDES = {0: {5: 0.241, 10: 0.248, 20: 0.283, 50: 0.414}, 0.05: {5: 0.191, 10: 0.213, 20: 0.244, 50: 0.297}}
ARX_WEIGHTS = {(25, 2): 0.252, (25, 5): 0.457, (25, 10): 0.656, (50, 5): 0.239, (50, 10): 0.406, (1000, 10): 0.060}


def stations() -> dict[str, str]:
    """Return 150 stations under groups of 5, 10 and 50."""
    parents = {f"S{i}": f"five {i // 5}" for i in range(150)}
    parents |= {f"five {i}": f"ten {i // 2}" for i in range(30)}
    return parents | {f"ten {i}": f"fifty {i // 5}" for i in range(15)} | {f"fifty {i}": "*" for i in range(3)}


def rides(num: int, generator: np.random.Generator) -> Dataset:
    """Make rides: a few stations are busy, and there are two rush hours."""
    popularity = 1 / np.arange(1, 151) ** 0.6
    busy = generator.permutation(150)
    pick = [busy[generator.choice(150, num, p=popularity / popularity.sum())] for _ in range(2)]
    rush = np.where(generator.random(num) < 0.5, 8 * 3600, 17.5 * 3600)
    columns = {
        "type": generator.choice(["adult", "child", "senior"], num, p=[0.7, 0.2, 0.1]),
        "board": [f"S{i}" for i in pick[0]],
        "alight": [f"S{i}" for i in pick[1]],
        "start": (rush + generator.normal(0, 4500, num)).clip(0, 86400).round(),
    }
    types = {"adult": "full", "child": "reduced", "senior": "reduced", "full": "*", "reduced": "*"}
    attributes = {
        "type": {"kind": "tree", "parents": types},
        "board": {"kind": "tree", "parents": stations()},
        "alight": {"kind": "tree", "parents": stations()},
        "start": {"kind": "numeric", "domain": [0, 86400], "doubling": 60},
    }
    return dataset(columns, attributes)


def weights(num: int, generator: np.random.Generator) -> Dataset:
    columns = {"weight": generator.uniform(125, 375, num)}
    return dataset(columns, {"weight": {"kind": "numeric", "domain": [125, 375], "doubling": 1}})


def coded(data: Dataset) -> Iterator[tuple[Any, Any]]:
    """Return the hierarchy of each attribute, and its values as numbers or codes."""
    for attribute in data.schema.quasi_identifiers:
        assert attribute.domain is not None
        hierarchy = hierarchy_of(attribute.domain)
        if isinstance(hierarchy, IntervalHierarchy):
            yield hierarchy, data.numbers(attribute.name)
        else:
            yield hierarchy, hierarchy.domain.codes(data.column(attribute.name).to_pylist())


def grouped(groups: list[list[IntArray]]) -> Iterator[tuple[tuple[int, ...], IntArray]]:
    """Return every combination of levels, with a number for each row that is the same in one class."""
    for node in itertools.product(*(range(len(levels)) for levels in groups)):
        keys = np.zeros(len(groups[0][0]), dtype=np.int64)
        for levels, level in zip(groups, node, strict=True):
            keys = keys * (levels[level].max() + 1) + levels[level]
        yield node, keys


def every_node(data: Dataset, k: int, most: float) -> float:
    groups, losses, least = [], [], float("inf")
    for hierarchy, values in coded(data):
        levels = range(hierarchy.num_levels)
        groups.append([np.unique(hierarchy.groups(values, level), return_inverse=True)[1] for level in levels])
        losses.append([hierarchy.widths(values, level) / hierarchy.whole for level in levels])
    for node, keys in grouped(groups):
        _, number, sizes = np.unique(keys, return_inverse=True, return_counts=True)
        kept = (sizes >= k)[number]
        num_suppressed = int((~kept).sum())
        if num_suppressed <= most * len(keys):
            lost = sum(float(widths[level][kept].sum()) for widths, level in zip(losses, node, strict=True))
            least = min(least, lost + len(groups) * num_suppressed)
    return least / len(data) / len(groups)


def measure(data: Dataset, mechanism: FullDomain, rounds: int = 3) -> tuple[float, float]:
    """Return CPU seconds, best of several rounds, and the loss found per record and attribute."""
    loss, seconds = taken(lambda: mechanism.classes(data).loss_sum, rounds)
    return seconds, loss / len(data) / len(data.schema.quasi_identifiers)


def run() -> list[Row]:
    generator, rows = np.random.default_rng(2021), []
    data = rides(10_000, generator)
    for most, arx in ARX_RIDES.items():
        for k, theirs in arx.items():
            seconds, loss = measure(data, FullDomain(k=k, max_suppressed=most))
            name = f"10,000 rides x 4, k = {k}, suppressed <= {most:.0%}"
            if k in (5, 50):
                least, their_seconds = taken(lambda k=k, most=most: every_node(data, k, most))
                assert abs(least - loss) < 1e-9
                rows.append(row(f"{name}; peer every node of 975", seconds, their_seconds))
            rows.append(row(f"{name}; peer ARX on its rows", loss, theirs, LOSS))
    seconds, _ = measure(rides(100_000, generator), FullDomain(k=10, max_suppressed=0.05))
    rows.append(row("100,000 rides x 4, k = 10, suppressed <= 5%; peer ARX as recorded", seconds, 0.6))
    for (num, k), theirs in ARX_WEIGHTS.items():
        found = [measure(weights(num, generator), FullDomain(k=k, max_suppressed=0), 1)[1] for _ in range(40)]
        rows.append(row(f"{num} weights, k = {k}, mean of 40; peer ARX", float(np.mean(found)), theirs, LOSS))
    return rows
