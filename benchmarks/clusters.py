# SPDX-License-Identifier: Apache-2.0
"""Distortion and speed of clustering rides, each beside a peer on the same rows and in the same run.

Peers: the two methods of Bhati et al. 2021 as published (``published-density``, ``published-greedy``), the literal form
of the first in numpy on 1,000 rides, and plain Mondrian in numpy, which cuts the widest attribute at its median and
publishes tight ranges. On a table of the same description as theirs, losses stand beside those that ARX 3.9.2 (local
recoding) and anjana 1.2.3 printed; their rows were others, so that only the order of magnitude compares. anjana itself
is not run: it pins exact versions of numpy and pandas.

Loss is the mean over attributes of the generalised width over the width of the domain: for passenger types and stations
the other leaves that are left possible by all others. Stations are published as nodes of their tree (as ARX and anjana
do), as the set of a class's stations (in a network that is a line, S0 to S149), or as a range of numbers (as Mondrian
does, which knows no trees). Plain Mondrian ran on the rows of ARX and anjana too: losses by its own on the same rows
compare better than losses on different rows, as far as the two Mondrians are alike. Distortion of generated rides on a
network (``samples.rides``) is that of the paper, with automatic importance.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import dunnage as dn
from benchmarks import full_domain
from benchmarks.measuring import GIGABYTES, Row, apart, row, taken
from dunnage import samples
from dunnage.arrays import FloatArray, IntArray
from dunnage.kernels.clusters.growth import Metric, distance_deviations, grow, grow_in_blocks, near_weights
from dunnage.kernels.clusters.published import published_density, published_greedy
from dunnage.kernels.clusters.refine import refine

BY_MONDRIAN = "loss by that of plain Mondrian on the same rows (less is better)"
LOSS, DISTORTION = full_domain.LOSS, "total distortion (less is better)"
ARX_LOCAL = {5: 0.080, 10: 0.113, 20: 0.151, 50: 0.208}
ANJANA = {5: 0.196, 10: 0.217, 20: 0.244, 50: 0.297}
MONDRIAN = {5: 0.052, 10: 0.080, 20: 0.112, 50: 0.169}
"""Of plain Mondrian on the rows of ARX and anjana: says how hard these were."""
ARX_LOCAL_100K = (0.044, 14.4)  # loss and CPU seconds at k = 10
REFINE_SECONDS = 3.0
BUCKET = 900


def weighed(numbers: FloatArray, codes: IntArray, tables: tuple[FloatArray, ...], weights: Any, wide: Any) -> Metric:
    """Make a metric: charged by weight over width of the domain, near by weight over the deviation of distances."""
    codes32 = np.ascontiguousarray(codes, dtype=np.int32)
    near = near_weights(weights, distance_deviations(numbers, codes32, tables))
    return Metric(numbers, codes32, tables, np.asarray(weights) / np.asarray(wide), near)


def described(num: int, generator: np.random.Generator) -> tuple[Metric, Metric]:
    """Return rides as the peers' table is described, with stations as trees and as plain numbers."""
    data = full_domain.rides(num, generator)
    start = data.numbers("start")[None].astype(np.float64)
    tables, codes = [], []
    for name in ("type", "board", "alight"):
        domain = data.schema[name].domain
        assert isinstance(domain, dn.Tree)
        tables.append(domain.distances())
        codes.append(domain.codes(data.column(name).to_pylist()))
    wide = np.array([86_400.0, *(table.max() for table in tables)])
    equal = np.full(4, 0.25)
    trees = weighed(start, np.array(codes), tuple(tables), equal, wide)
    numbers = np.concatenate([start, np.array(codes, dtype=np.float64)])
    return trees, weighed(numbers, np.zeros((0, num), dtype=np.int32), (), equal, wide)


def metro(num: int, seed: int = 1) -> Metric:
    """Return generated rides on a network with automatic importance and unit-variance scaling."""
    table = samples.rides(num, seed=seed)
    types, stations = dn.Tree(parents=samples.PASSENGER_PARENTS), dn.Graph(edges=samples.metro_edges())
    columns = {"type": types, "board": stations, "alight": stations}
    codes = np.array([_codes(domain, table.column(name)) for name, domain in columns.items()])
    start = table.column("start").to_numpy().astype(np.float64)
    tables = tuple(domain.distances() for domain in columns.values())
    bits = np.array([_entropy(start // BUCKET), *map(_entropy, codes)])
    wide = [np.ptp(start), *(t.max() for t in tables)]
    return weighed(start[None], codes, tables, bits / bits.sum(), wide)


def _codes(domain: Any, column: Any) -> IntArray:
    """Return codes of texts, each different text looked up once."""
    encoded = column.combine_chunks().dictionary_encode()
    return np.asarray(domain.codes(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()])


def _entropy(values: Any) -> float:
    share = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(share * np.log2(share)).sum())


def literal_density(metric: Metric, k: int) -> IntArray:
    """Compute all averages again after every class, from all distances: what the paper's Algorithm 1 says."""
    apart = sum(
        near * np.abs(column[:, None] - column) for near, column in zip(metric.near, metric.numbers, strict=False)
    )
    coded = zip(metric.near[len(metric.numbers) :], metric.codes, metric.tables, strict=True)
    apart = apart + sum(near * table[np.ix_(column, column)] for near, column, table in coded)
    free, found, number = np.arange(len(metric)), np.full(len(metric), -1, dtype=np.int64), 0
    while len(free) >= k:
        near = apart[np.ix_(free, free)]
        nearest = np.partition(near, k - 1, axis=1)[:, :k]
        head = int(np.argmin(nearest.sum(axis=1)))
        members = np.argsort(near[head], kind="stable")[:k]
        found[free[members]] = number
        free, number = np.delete(free, members), number + 1
    found[free] = number - 1
    return found


def mondrian(metric: Metric, k: int) -> IntArray:
    """Cut the widest attribute at the median as long as both sides have k; coded attributes are taken as numbers."""
    columns = np.concatenate([metric.numbers, metric.codes]) * metric.charge[:, None]
    found, number = np.empty(len(metric), dtype=np.int64), 0
    todo = [np.arange(len(metric))]
    while todo:
        rows = todo.pop()
        if len(rows) < 2 * k:
            found[rows] = number
            number += 1
            continue
        part = columns[:, rows]
        order = np.argpartition(part[np.ptp(part, axis=1).argmax()], len(rows) // 2)
        todo += [rows[order[: len(rows) // 2]], rows[order[len(rows) // 2 :]]]
    return found


def cluster_many(num: int, k: int) -> None:
    """Cluster rides in blocks and print distortion and CPU seconds; alone in its process, so that memory is its own."""
    warm_up()
    metric = metro(num)
    found, seconds = taken(lambda: grow_in_blocks(metric, k))
    sys.stdout.write(f"{metric.total(found)} {seconds}")


def warm_up() -> None:
    small = metro(600)
    for work in (grow, published_density):
        work(small, 5)
    published_greedy(small, 5, order=np.arange(600))
    refine(small, grow(small, 5), 5, seconds=0.1)
    grow_in_blocks(small, 5, size=300)


def run() -> list[Row]:
    warm_up()
    return [*_described_rows(), *_metro_rows(), *_literal_rows(), *_large_rows()]


def _described_rows() -> list[Row]:
    """Compare losses on a table that is described as that of ARX and anjana."""
    trees, numbers = described(10_000, np.random.default_rng(2021))
    rows, on_its_rows = [], "peer ARX local recoding on its rows"
    for k, arx in ARX_LOCAL.items():
        name = f"10,000 rides x 4, k = {k}, growth"
        grown = grow(trees, k)
        nodes = trees.total(grown)
        refined = trees.total(refine(trees, grown, k, seconds=REFINE_SECONDS))
        ranges, seconds = taken(lambda k=k: grow(numbers, k))
        cut, cut_seconds = taken(lambda k=k: mondrian(numbers, k))
        median, density = numbers.total(cut), trees.total(published_density(trees, k))
        rows += [
            row(f"{name}, stations as nodes; {on_its_rows}", nodes, arx, LOSS),
            row(f"{name} refined {REFINE_SECONDS:g} s, stations as nodes; {on_its_rows}", refined, arx, LOSS),
            row(f"{name}, stations as nodes; peer anjana on its rows", nodes, ANJANA[k], LOSS),
            row(f"{name}, stations as nodes; peer ARX local recoding", nodes / median, arx / MONDRIAN[k], BY_MONDRIAN),
            row(f"{name}, stations as nodes; peer published-density", nodes, density, LOSS),
            row(f"{name}, stations as sets; {on_its_rows}", set_loss(numbers, ranges), arx, LOSS),
            row(f"{name}, stations as ranges; peer plain Mondrian", numbers.total(ranges), median, LOSS),
            row(f"{name}, stations as ranges; peer plain Mondrian", seconds, cut_seconds),
        ]
    many = described(100_000, np.random.default_rng(2022))[0]
    found, seconds = taken(lambda: grow_in_blocks(many, 10))
    label = "100,000 rides x 4, k = 10, growth in blocks, stations as nodes; peer ARX local recoding"
    rows.append(row(f"{label} on its rows", many.total(found), ARX_LOCAL_100K[0], LOSS))
    rows.append(row(f"{label} as recorded", seconds, ARX_LOCAL_100K[1]))
    return rows


def set_loss(numbers: Metric, of_record: IntArray) -> float:
    """Return the loss if each class publishes the set of its stations: other stations in it by all others."""
    sizes = np.bincount(of_record)
    loss = numbers.charge @ numbers.widths(of_record)
    for axis in (2, 3):
        pairs = np.unique(np.stack([of_record, numbers.numbers[axis].astype(np.int64)]), axis=1)
        loss += numbers.charge[axis] * (np.bincount(pairs[0]) - 1 - numbers.widths(of_record)[axis])
    return float(sizes @ loss) / len(of_record)


def _metro_rows() -> list[Row]:
    """Compare distortions with those of the published methods, on rides of a network."""
    metric, rows = metro(10_000), []
    order = np.random.default_rng(1).permutation(len(metric))
    for k in (5, 10, 20, 50):
        density, density_seconds = taken(lambda k=k: published_density(metric, k))
        theirs = metric.total(density)
        found, seconds = taken(lambda k=k: grow(metric, k), 2)
        better = metric.total(refine(metric, found, k, seconds=REFINE_SECONDS))
        greedy = metric.total(published_greedy(metric, k, order=order))
        name = f"10,000 rides on a network, k = {k}"
        rows.append(row(f"{name}, growth; peer published-density", metric.total(found), theirs, DISTORTION))
        rows.append(row(f"{name}, refined {REFINE_SECONDS:g} s; peer published-density", better, theirs, DISTORTION))
        rows.append(row(f"{name}, growth; peer published-greedy", metric.total(found), greedy, DISTORTION))
        rows.append(row(f"{name}, growth; peer published-density", seconds, density_seconds))
    return rows


def _literal_rows() -> list[Row]:
    """Compare the published density method by lazy averages with the literal one: the same classes, sooner."""
    metric = metro(1_000)
    ours, seconds = taken(lambda: published_density(metric, 5), 2)
    theirs, literal = taken(lambda: literal_density(metric, 5))
    assert np.array_equal(ours, theirs)
    return [row("1,000 rides on a network, k = 5, published-density; peer its literal form", seconds, literal)]


def _large_rows() -> list[Row]:
    rows = []
    for num in (100_000, 1_000_000):
        (ours, seconds), memory = apart("clusters", f"cluster_many({num}, 10)")
        metric = metro(num)
        cut, cut_seconds = taken(lambda metric=metric: mondrian(metric, 10))
        name = f"{num:,} rides on a network, k = 10, growth in blocks"
        rows.append(row(f"{name}; peer plain Mondrian", ours, metric.total(cut), DISTORTION))
        rows.append(row(f"{name}; peer plain Mondrian", seconds, cut_seconds))
        rows.append(row(f"{name}; peer 4 GB", memory, 4.0, GIGABYTES))
        if num == 100_000:
            order = np.random.default_rng(1).permutation(num)
            greedy, greedy_seconds = taken(lambda m=metric, o=order: published_greedy(m, 10, order=o))
            rows.append(row(f"{name}; peer published-greedy", ours, metric.total(greedy), DISTORTION))
            rows.append(row(f"{name}; peer published-greedy", seconds, greedy_seconds))
    return rows
