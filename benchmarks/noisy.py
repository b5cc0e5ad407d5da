# SPDX-License-Identifier: Apache-2.0
"""Speed of the differentially private mechanisms for rows, on one core, each beside a plain baseline in the same run.

``noisy-values``: releasing a million records in memory, against the floating-point Laplace noise of numpy on the same
column (which is unsafe) with the same shuffle and table. ``sampled-lattice``: sampling, weighing every combination of
levels and choosing one, against grouping the rows anew for every combination. ``delta``: the proved bound, against a
sum of scipy's binomial tails (which is not rounded outward).

Run with ``python -m benchmarks.noisy``.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.full_domain import rides
from dunnage.ledger import Ledger
from dunnage.mechanisms.noisy import NoisyValues
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.model.domains import Hierarchy, IntervalHierarchy, hierarchy_of
from dunnage.model.policy import Policy
from dunnage.noise.sampling import sampling_delta
from dunnage.noise.source import Noise
from dunnage.tables.dataset import Dataset

SECONDS = "CPU seconds"


def taken(work: Callable[[], object], runs: int = 2) -> float:
    """Return the processor time of a piece of work, the best of some runs."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def packages(num: int) -> Dataset:
    weights = np.round(np.random.default_rng(1).uniform(125, 375, num), 1)
    weight = {
        "role": "quasi-identifier",
        "kind": "numeric",
        "domain": [0, 500],
        "resolution": 0.1,
        "doubling": 4,
    }
    document = {
        "dataset": "packages",
        "protects": "package",
        "attributes": {"weight": weight},
        "mechanism": {"name": "noisy-values", "epsilon": 1},
    }
    return Dataset.from_table(pa.table({"weight": weights}), Policy.from_dict(document))


def floating_laplace(data: Dataset, epsilon: float) -> pa.Table:
    """Add floating-point Laplace noise, shuffle and build a table: what a script would do."""
    generator = np.random.default_rng()
    values = data.numbers("weight") + generator.laplace(0, 500 / epsilon, len(data))
    told = np.clip(values, 0, 500)[generator.permutation(len(data))]
    reach = 500 / epsilon * math.log(10)
    return pa.table({"row": np.arange(len(data)), "x": told, "x_lower": told - reach, "x_upper": told + reach})


def release(mechanism: Any, data: Dataset) -> None:
    with Ledger(":memory:") as ledger:
        mechanism.release(data, ledger=ledger, noise=Noise())


def _codes(data: Dataset, name: str, hierarchy: Hierarchy) -> Any:
    if isinstance(hierarchy, IntervalHierarchy):
        return data.numbers(name)
    return hierarchy.domain.codes(np.asarray(data.column(name).to_pylist(), dtype=object))


def every_node(data: Dataset, k: int, beta: float) -> int:
    """Sample rows and count what each combination of levels keeps, by grouping all of them anew; the best count."""
    sampled = np.random.default_rng(2).random(len(data)) < beta
    groups = []
    for attribute in data.schema.quasi_identifiers:
        assert attribute.domain is not None
        hierarchy = hierarchy_of(attribute.domain)
        values = _codes(data, attribute.name, hierarchy)[sampled]
        groups.append([hierarchy.groups(values, level) for level in range(hierarchy.num_levels)])
    best = 0
    for node in itertools.product(*(range(len(levels)) for levels in groups)):
        keys = np.zeros(int(sampled.sum()), dtype=np.int64)
        for levels, level in zip(groups, node, strict=True):
            keys = keys * (int(levels[level].max()) + 1) + levels[level]
        counts = np.unique(keys, return_counts=True)[1]
        best = max(best, int(counts[counts >= k].sum()))
    return best


def scipy_delta(k: int, beta: float) -> float:
    from scipy.stats import binom

    gamma = 1 - (1 - beta) ** 2
    thresholds = np.arange(k, 2 * k)
    return float(binom.sf(thresholds - 1, np.ceil(thresholds / gamma) - 1, beta).max())


def _row(name: str, ours: float, peer: float, unit: str = SECONDS) -> dict[str, object]:
    return {"name": name, "ours": ours, "peer": peer, "ratio": ours / peer, "unit": unit}


def run() -> list[dict[str, object]]:
    """Measure everything and return the rows of the table."""
    many, journeys = packages(1_000_000), rides(100_000, np.random.default_rng(1))
    floating = taken(lambda: floating_laplace(many, 1.0))
    rows = [
        _row(
            f"noisy-values ({law}), 1,000,000 records in memory; peer: floating-point Laplace (unsafe)",
            taken(lambda law=law: release(NoisyValues(epsilon=4, law=law), many)),  # type: ignore[misc]
            floating,
        )
        for law in ("laplace", "piecewise")
    ]
    lattice = SampledLattice(k=40, beta="0.7", epsilon_choice=1)
    rows.append(
        _row(
            "sampled-lattice, 100,000 x 4, 975 combinations; peer: every combination grouped anew",
            taken(lambda: release(lattice, journeys)),
            taken(lambda: every_node(journeys, 40, 0.7)),
        )
    )
    for k in (40, 10_000):
        rows.append(
            _row(
                f"delta of k = {k:,}, beta = 0.7, rounded outward; peer: k of scipy's binomial tails",
                taken(lambda k=k: sampling_delta(k, "0.7"), runs=1),  # type: ignore[misc]
                taken(lambda k=k: scipy_delta(k, 0.7)),  # type: ignore[misc]
            )
        )
    return rows


if __name__ == "__main__":
    for row in run():
        print(f"{row['name']:<90} {row['ours']:.3g} {row['peer']:.3g} ratio {row['ratio']:.3g} {row['unit']}")
