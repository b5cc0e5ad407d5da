# SPDX-License-Identifier: Apache-2.0
"""Speed and loss of Partition: finding the classes of a dataset, on one core, after a warm-up.

Two peers, each run beside ours:

- Mondrian: halve at the median value as long as both halves have k records. It is quick and not optimal, so its loss
  is listed too. Sorted once, which is kinder to it than the usual form.
- The same optimum by the textbook program, every class of k to 2k records tried in plain Python, on fewer records;
  its rate does not depend on their number.

Run with ``python -m benchmarks.partition``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dunnage.dataset import Dataset
from dunnage.mechanisms.partition import Partition
from dunnage.policy import Policy

FloatArray = npt.NDArray[np.float64]

LOWER, UPPER = 125.0, 375.0
NUM_TEXTBOOK = 20_000
RATE, LOSS = "million records per CPU second", "loss per record, times 1000 (less is better)"


def uniform(num: int, generator: np.random.Generator) -> FloatArray:
    return generator.uniform(LOWER, UPPER, num)


def clusters(num: int, k: int, generator: np.random.Generator) -> FloatArray:
    """Draw clusters of one and a half k: the program then has the most begins to try for each end."""
    centre = np.arange(num) // (3 * k // 2) / (num // (3 * k // 2) + 1)
    values = LOWER + (UPPER - LOWER) * (centre + generator.uniform(0, 1e-6, num))
    return generator.permutation(values)


def dataset(weights: FloatArray) -> Dataset:
    weight = {"role": "quasi-identifier", "kind": "numeric", "domain": [LOWER, UPPER]}
    document = {
        "dataset": "parcels",
        "protects": "package",
        "attributes": {"weight": weight},
        "mechanism": {"name": "partition", "k": 2},
    }
    return Dataset.from_table(pa.table({"weight": weights}), Policy.from_dict(document))


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
    """Return million records per CPU second, best of several rounds, and the loss found."""
    seconds, loss = [], 0.0
    for _ in range(rounds):
        start = time.process_time()
        loss = find()
        seconds.append(time.process_time() - start)
    return num / min(seconds) / 1e6, loss


def ours(weights: FloatArray, k: int) -> tuple[float, float]:
    data, mechanism = dataset(weights), Partition(k=k)
    return measure(lambda: mechanism.classes(data).loss_sum / len(weights), len(weights))


def run() -> list[dict[str, Any]]:
    """Measure everything in one run; each row has name, ours, peer, ratio and unit."""
    generator, rows = np.random.default_rng(2019), []
    ours(uniform(100_000, generator), 10)  # compiles
    for num, k in ((100_000, 10), (1_000_000, 10), (1_000_000, 5), (1_000_000, 50), (1_000_000, 500)):
        rows += _against_mondrian(f"{num:,} records, k = {k}", uniform(num, generator), k)
    rows += _against_mondrian("1,000,000 records, k = 500, clusters of 750", clusters(1_000_000, 500, generator), 500)
    weights = uniform(1_000_000, generator)
    few = generator.choice(weights, NUM_TEXTBOOK, replace=False)
    for k in (10, 50):
        slow, expected = measure(lambda k=k: textbook(few, k), NUM_TEXTBOOK, rounds=1)  # type: ignore[misc]
        assert abs(ours(few, k)[1] - expected) < 1e-9
        name = f"1,000,000 records, k = {k}; peer textbook, rate at {NUM_TEXTBOOK:,}"
        rows.append(_row(name, ours(weights, k)[0], slow, RATE))
    return rows


def _against_mondrian(name: str, weights: FloatArray, k: int) -> list[dict[str, Any]]:
    rate, loss = ours(weights, k)
    their_rate, their_loss = measure(lambda: mondrian(weights, k), len(weights), rounds=2)
    return [
        _row(f"{name}; peer Mondrian", rate, their_rate, RATE),
        _row(f"{name}; peer Mondrian", 1000 * loss, 1000 * their_loss, LOSS),
    ]


def _row(name: str, value: float, peer: float, unit: str) -> dict[str, Any]:
    return {"name": name, "ours": value, "peer": peer, "ratio": value / peer, "unit": unit}


def main() -> None:
    print(f"{'':66}{'ours':>9}{'peer':>9}{'ratio':>8}  unit")
    for row in run():
        print(f"{row['name']:66}{row['ours']:9.4f}{row['peer']:9.4f}{row['ratio']:8.2f}  {row['unit']}")


if __name__ == "__main__":
    main()
