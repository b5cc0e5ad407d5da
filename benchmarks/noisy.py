# SPDX-License-Identifier: Apache-2.0
"""Speed of the differentially private mechanisms for rows, on one core, each beside a plain baseline in the same run.

``noisy-values``: releasing a million records in memory, against the floating-point Laplace noise of numpy on the same
column (which is unsafe) with the same shuffle and table. ``sampled-lattice``: sampling, weighing every combination of
levels and choosing one, against grouping the rows again for every combination. ``delta``: the proved bound, against a
sum of scipy's binomial tails (which is not rounded outward). ``size-profile``: the trucks of a plan on it for each
truck that the true weights need, against those of ``noisy-values``; ``python -m benchmarks.noisy`` prints more of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.full_domain import coded, grouped, rides
from benchmarks.measuring import Row, dataset, row, taken
from dunnage.kernels.bins.scalar import pack_bins
from dunnage.ledger import Ledger
from dunnage.mechanisms.noisy import NoisyValues
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.mechanisms.size_profile import SizeProfile
from dunnage.noise.sampling import sampling_delta
from dunnage.noise.source import Noise
from dunnage.tables.dataset import Dataset


def packages(num: int) -> Dataset:
    weights = np.round(np.random.default_rng(1).uniform(125, 375, num), 1)
    weight = {"kind": "numeric", "domain": [0, 500], "resolution": 0.1, "doubling": 4}
    return dataset({"weight": weights}, {"weight": weight}, name="noisy-values", epsilon=1)


def floating_laplace(data: Dataset, epsilon: float) -> pa.Table:
    """Add floating-point Laplace noise, shuffle and build a table: what a script would do."""
    generator = np.random.default_rng()
    values = data.numbers("weight") + generator.laplace(0, 500 / epsilon, len(data))
    noisy = np.clip(values, 0, 500)[generator.permutation(len(data))]
    reach = 500 / epsilon * math.log(10)
    return pa.table({"row": np.arange(len(data)), "x": noisy, "x_lower": noisy - reach, "x_upper": noisy + reach})


def release(mechanism: Any, data: Dataset) -> None:
    with Ledger(":memory:") as ledger:
        mechanism.release(data, ledger=ledger, noise=Noise())


def every_node(data: Dataset, k: int, beta: float) -> int:
    """Sample rows and count what each combination of levels keeps, by grouping all of them again; the best count."""
    sampled = np.random.default_rng(2).random(len(data)) < beta
    groups = [[h.groups(values[sampled], level) for level in range(h.num_levels)] for h, values in coded(data)]
    counts = (np.unique(keys, return_counts=True)[1] for _, keys in grouped(groups))
    return max(int(own[own >= k].sum()) for own in counts)


def scipy_delta(k: int, beta: float) -> float:
    from scipy.stats import binom

    gamma = 1 - (1 - beta) ** 2
    thresholds = np.arange(k, 2 * k)
    return float(binom.sf(thresholds - 1, np.ceil(thresholds / gamma) - 1, beta).max())


def trucks(upper: Any) -> int:
    """Pack upper ends of weights into trucks of 500 kg."""
    return len(pack_bins(np.rint(10 * np.asarray(upper)).astype(np.int64), 5000, seconds=2).bins)


def truck_ratios(mechanisms: dict[str, Any], num: int, draws: int) -> dict[str, list[float]]:
    """Return planned trucks for each truck that true weights need, draw by draw; weights from 125 to 375 kg."""
    ratios: dict[str, list[float]] = {name: [] for name in mechanisms}
    weight = {"kind": "numeric", "domain": [125, 375], "resolution": 0.1}
    for seed in range(draws):
        weights = np.round(np.random.default_rng(1000 + seed).uniform(125, 375, num), 1)
        data, fewest = dataset({"weight": weights}, {"weight": weight}, name="noisy-values", epsilon=1), trucks(weights)
        for name, mechanism in mechanisms.items():
            with Ledger(":memory:") as ledger:
                made, _ = mechanism.release(data, ledger=ledger, noise=Noise())
            ratios[name].append(trucks(made.uncertain("weight").upper) / fewest)
    return ratios


def profiles() -> None:
    for num, draws in ((25, 150), (100, 100), (1000, 48), (5000, 20)):
        for epsilon in (1, 4):
            given = {"epsilon": epsilon, "risk": "0.05", "capacity": 500}
            mechanisms = {
                "hidden": SizeProfile(**given, expected=num),
                "public": SizeProfile(**given),
                "noisy-values": NoisyValues(epsilon=epsilon),
            }
            means = ((name, float(np.mean(own))) for name, own in truck_ratios(mechanisms, num, draws).items())
            print(num, f"epsilon {epsilon}", *(f"{name} {mean:.4f}" for name, mean in means))


def run() -> list[Row]:
    many, journeys = packages(1_000_000), rides(100_000, np.random.default_rng(1))
    floating = taken(lambda: floating_laplace(many, 1.0), 2).seconds
    rows = [
        row(
            f"noisy-values ({law}), 1,000,000 records in memory; peer: floating-point Laplace (unsafe)",
            taken(lambda law=law: release(NoisyValues(epsilon=4, law=law), many), 2).seconds,
            floating,
        )
        for law in ("laplace", "piecewise")
    ]
    profile = SizeProfile(epsilon=1, risk="0.05", capacity=500)
    narrow = np.round(np.random.default_rng(1).uniform(125, 375, 1_000_000), 1)
    weight = {"kind": "numeric", "domain": [125, 375], "resolution": 0.1}
    sized = dataset({"weight": narrow}, {"weight": weight}, name="noisy-values", epsilon=1)
    rows.append(
        row(
            "size-profile, 1,000,000 records in memory; peer: noisy-values",
            taken(lambda: release(profile, sized), 2).seconds,
            taken(lambda: release(NoisyValues(epsilon=1), sized), 2).seconds,
        )
    )
    for num in (100, 1000, 5000):
        forms = {"hidden": SizeProfile(epsilon=1, risk="0.05", capacity=500, expected=num), "public": profile}
        ratios = truck_ratios({**forms, "peer": NoisyValues(epsilon=1)}, num, 4)
        for form in forms:
            means = [float(np.mean(ratios[name])) for name in (form, "peer")]
            words = f"size-profile, epsilon 1, {num:,} packages of 125 to 375 kg, number {form}"
            rows.append(row(f"{words}; peer: noisy-values on upper ends", *means, "trucks for each that is needed"))
    lattice = SampledLattice(k=40, beta="0.7", epsilon_choice=1)
    rows.append(
        row(
            "sampled-lattice, 100,000 x 4, 975 combinations; peer: every combination grouped again",
            taken(lambda: release(lattice, journeys), 2).seconds,
            taken(lambda: every_node(journeys, 40, 0.7), 2).seconds,
        )
    )
    for k in (40, 10_000):
        rows.append(
            row(
                f"delta of k = {k:,}, beta = 0.7, rounded outward; peer: k of scipy's binomial tails",
                taken(lambda k=k: sampling_delta(k, "0.7")).seconds,
                taken(lambda k=k: scipy_delta(k, 0.7), 2).seconds,
            )
        )
    return rows


if __name__ == "__main__":
    profiles()
