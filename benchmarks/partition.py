# SPDX-License-Identifier: Apache-2.0
"""Speed and loss of Partition: finding the classes of a dataset, on one core, after a warm-up.

Two peers, each run beside ours:

- Mondrian: halve at the median value as long as both halves have k records. It is quick and not optimal, so its loss
  is listed too. Sorted once, which is kinder to it than the usual form.
- The same optimum by the textbook program, every class of k to 2k records tried in plain Python, on fewer records;
  its rate does not depend on their number.

Several attributes are compared with a grid of equal shares, the best of all numbers of intervals; ``goal = "packing"``
with ``goal = "loss"`` by the bins that upper bounds need.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measuring import Row, dataset, row, taken
from dunnage.arrays import FloatArray
from dunnage.kernels.bins.scalar import pack_bins
from dunnage.mechanisms.classes import EquivalenceClasses
from dunnage.mechanisms.partition import Partition, Runs, _solve, opening_runs
from dunnage.model.policy import Policy
from dunnage.tables.dataset import Dataset

LOWER, UPPER = 125.0, 375.0
NUM_TEXTBOOK = 20_000
NUM_DRAWS = 10
RATE, LOSS = "million records per CPU second", "loss per record, times 1000 (less is better)"
BINS, SECONDS = "bins in all (fewer is better)", "CPU seconds (less is better)"


def uniform(num: int, generator: np.random.Generator) -> FloatArray:
    return generator.uniform(LOWER, UPPER, num)


def clusters(num: int, k: int, generator: np.random.Generator) -> FloatArray:
    """Draw clusters of one and a half k: the program then has the most begins to try for each end."""
    centre = np.arange(num) // (3 * k // 2) / (num // (3 * k // 2) + 1)
    values = LOWER + (UPPER - LOWER) * (centre + generator.uniform(0, 1e-6, num))
    return generator.permutation(values)


def parcels(**columns: FloatArray) -> Dataset:
    return dataset(columns, {name: {"kind": "numeric", "domain": [LOWER, UPPER]} for name in columns})


def mondrian(weights: FloatArray, k: int) -> float:
    """Return the loss per record of halving at the median, with each class's own bounds."""
    values = np.sort(weights)
    total, todo = 0.0, [(0, len(values))]
    while todo:
        start, stop = todo.pop()
        median = values[(start + stop) // 2]
        cut = start + int(np.searchsorted(values[start:stop], median))  # equal values stay together
        if min(cut - start, stop - cut) >= k:
            todo += [(start, cut), (cut, stop)]
        else:
            total += (stop - start) * (values[stop - 1] - values[start])
    return float(total) / (UPPER - LOWER) / len(values)


def textbook(weights: FloatArray, k: int) -> float:
    """Return the least loss per record (no ties, no suppression): O(n k) in plain Python."""
    values = sorted(weights.tolist())
    best = [0.0] + [float("inf")] * len(values)
    for end in range(k, len(values) + 1):
        for begin in range(max(0, end - 2 * k + 1), end - k + 1):
            cost = best[begin] + (end - begin) * (values[end - 1] - values[begin])
            if cost < best[end]:
                best[end] = cost
    return best[-1] / (UPPER - LOWER) / len(values)


def measure(find: Callable[[], float], num: int, rounds: int = 3) -> tuple[float, float]:
    loss, seconds = taken(find, rounds)
    return num / seconds / 1e6, loss


def ours(weights: FloatArray, k: int) -> tuple[float, float]:
    data, mechanism = parcels(weight=weights), Partition(k=k)
    return measure(lambda: mechanism.classes(data).loss_sum / len(weights), len(weights))


def vectors(num: int, num_attributes: int, generator: np.random.Generator) -> Dataset:
    names = ("weight", "height", "width", "length")[:num_attributes]
    return parcels(**{name: np.round(uniform(num, generator), 2) for name in names})


def even_grid(data: Dataset, k: int) -> float:
    """Return the loss of the best grid of equal shares, the same number of intervals in each attribute."""
    values = np.column_stack([data.numbers(a.name) for a in data.schema])
    ranks = values.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    losses = []
    for num in range(1, int((len(values) / k) ** (1 / values.shape[1])) + 2):
        cell = np.unique(ranks * num // len(values), axis=0, return_inverse=True)[1].reshape(-1)
        order, sizes = np.argsort(cell, kind="stable"), np.bincount(cell)
        begins = np.cumsum(sizes) - sizes
        widths = np.maximum.reduceat(values[order], begins) - np.minimum.reduceat(values[order], begins)
        paid = np.where(sizes >= k, widths.sum(axis=1) / (UPPER - LOWER), values.shape[1])
        losses.append(float(sizes @ paid))
    return min(losses)


def _several(generator: np.random.Generator) -> list[Row]:
    rows = []
    for num, num_attributes in ((50, 2), (50, 4), (10_000, 2), (10_000, 4)):
        data = vectors(num, num_attributes, generator)
        found, seconds = taken(lambda data=data: Partition(k=5).search(data))
        their_loss, their_seconds = taken(lambda data=data: even_grid(data, 5))
        outcome = "proven least" if found.proven else f"gap {found.gap:.0%}"
        name = f"{num:,} x {num_attributes} attributes, k = 5; peer even grid"
        rows.append(row(f"{name} ({outcome})", 1000 * found.loss / num, 1000 * their_loss / num, LOSS))
        rows.append(row(name, seconds, their_seconds))
    return rows


def _packing(generator: np.random.Generator) -> list[Row]:
    """Count bins of 500 for 25 parcels: the borders that pack well, against those of least loss."""
    draws = [parcels(weight=np.round(uniform(25, generator))) for _ in range(NUM_DRAWS)]
    rows = []
    for k in (4, 8, 10):
        mechanisms = Partition(k=k, goal="packing", capacity=500), Partition(k=k)
        bins = [sum(bins_of(mechanism.classes(data), 500) for data in draws) for mechanism in mechanisms]
        rows.append(row(f"25 parcels, k = {k}, goal packing; peer goal loss", bins[0], bins[1], BINS))
    return rows


def bins_of(classes: EquivalenceClasses, capacity: int) -> int:
    """Return how many bins the upper bounds of all records need; a suppressed one has its own."""
    kept = classes.of_row[classes.of_row >= 0]
    tops = classes.generalised[0].upper[kept].astype(np.int64)
    return pack_bins(tops, capacity, seconds=5).objective + len(classes.of_row) - len(kept)


def by_sorting(data: Dataset, k: int) -> float:
    """Find the classes of one attribute as 0.1.0 did: rank the public column, sort all rows. Return the loss."""
    ranks = pc.rank(data.column("town"), tiebreaker="dense").to_numpy().astype(np.int64) - 1
    present, stratum = np.unique(ranks, return_inverse=True)
    assert (np.bincount(stratum, minlength=len(present)) >= k).all()
    values = data.numbers("weight")
    order = np.lexsort((values, stratum))
    ordered, of_stratum = values[order], stratum[order]
    first = np.append(0, np.flatnonzero((np.diff(of_stratum) != 0) | (np.diff(ordered) != 0)) + 1)
    ends = ordered[first]
    runs = Runs.of(of_stratum[first], np.diff(np.append(first, len(order))), ends, ends)
    of_run, span = np.full(len(first), -1, dtype=np.int64), data.schema["weight"].numeric.span
    loss = float(_solve(runs.lower, runs.upper, runs.before, runs.starts, k, span, of_run))
    class_of_run = np.where(of_run < 0, -1, np.cumsum(opening_runs(runs, of_run)) - 1)
    of_row = np.empty(len(order), dtype=np.int64)
    of_row[order] = np.repeat(class_of_run, np.diff(np.append(first, len(order))))
    assert of_row.max() > 0
    return loss / span


def _many(generator: np.random.Generator) -> Row:
    num, k = 10_000_000, 50
    weights = pa.array(np.round(generator.gamma(3, 20, num).clip(1, 500)))
    towns = pa.array([f"town {number:02d}" for number in range(30)]).take(pa.array(generator.integers(0, 30, num)))
    document = {
        "dataset": "packages",
        "protects": "package",
        "attributes": {
            "town": {"role": "public"},
            "weight": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 500]},
        },
        "mechanism": {"name": "partition", "k": k},
    }
    data = Dataset.from_table(pa.table({"town": towns, "weight": weights}), Policy.from_dict(document))
    _ = by_sorting(data, k), Partition(k=k).search(data)  # compiles
    counted, sorted_all = taken(lambda: Partition(k=k).search(data).loss), taken(lambda: by_sorting(data, k))
    assert counted.result == sorted_all.result
    name = f"{num:,} packages in 30 towns, finding classes; peer ranking and sorting all rows, as 0.1.0"
    return row(name, counted.seconds, sorted_all.seconds, SECONDS)


def run() -> list[Row]:
    generator, rows = np.random.default_rng(2019), []
    ours(uniform(100_000, generator), 10)  # compiles
    for num, k in ((100_000, 10), (1_000_000, 10), (1_000_000, 5), (1_000_000, 50), (1_000_000, 500)):
        rows += _against_mondrian(f"{num:,} records, k = {k}", uniform(num, generator), k)
    rows += _against_mondrian("1,000,000 records, k = 500, clusters of 750", clusters(1_000_000, 500, generator), 500)
    weights = uniform(1_000_000, generator)
    few = generator.choice(weights, NUM_TEXTBOOK, replace=False)
    for k in (10, 50):
        slow, expected = measure(lambda k=k: textbook(few, k), NUM_TEXTBOOK, rounds=1)
        assert abs(ours(few, k)[1] - expected) < 1e-9
        name = f"1,000,000 records, k = {k}; peer textbook, rate at {NUM_TEXTBOOK:,}"
        rows.append(row(name, ours(weights, k)[0], slow, RATE))
    Partition(k=5).search(vectors(50, 3, generator))  # compiles
    return [*rows, *_several(generator), *_packing(generator), _many(generator)]


def _against_mondrian(name: str, weights: FloatArray, k: int) -> list[Row]:
    rate, loss = ours(weights, k)
    their_rate, their_loss = measure(lambda: mondrian(weights, k), len(weights), rounds=2)
    return [
        row(f"{name}; peer Mondrian", rate, their_rate, RATE),
        row(f"{name}; peer Mondrian", 1000 * loss, 1000 * their_loss, LOSS),
    ]
