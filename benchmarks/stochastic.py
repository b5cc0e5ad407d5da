# SPDX-License-Identifier: Apache-2.0
"""Plans that fit with 95 %: certified by exact probabilities, against a sample of 100 permutations in CP-SAT.

The peer is the model of Hoogervorst et al. 2019, section 5.1, with OR-Tools CP-SAT and one worker (HiGHS if OR-Tools is
not installed), started with the packing of upper bounds. Both plans are judged on fresh permutations inside classes: a
plan made for 95 % should fit in 95 % of them. Instances are the paper's settings, drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dunnage as dn
from benchmarks.measuring import Row, dataset, row, taken
from dunnage.arrays import IntArray
from dunnage.kernels.bins.chances import fits_by_permutation
from dunnage.planning.packing import sampled_assignment
from dunnage.samples import draw_weights
from dunnage.samples.packages import PackageSetting, package_setting

SHORT = {"I": "25-L-U", "II": "50-L-U", "V": "25-L-Un"}
LONG = {**SHORT, "III": "25-S-U", "IV": "50-S-U"}
KS = (2, 5, 8, 10)
RISK = 0.05
SHORT_SECONDS, LONG_SECONDS = 5.0, 20.0
NUM_SHORT, NUM_LONG = 3, 3
PERMUTATIONS, HELD_OUT_SEED = 100_000, 2019


@dataclass(frozen=True)
class Outcome:
    seconds: float
    bins: int
    feasible: float


def released(setting: PackageSetting, k: int, seed: int) -> dn.Release:
    weights = draw_weights(setting, np.random.default_rng(seed))
    data = dataset({"weight": weights}, {"weight": {"kind": "numeric", "domain": [setting.low, setting.high]}})
    mechanism = dn.Partition(k=k, alpha=setting.size, statistic="multiset")
    return mechanism.release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise(seed=seed)).release


def certified(release: dn.Release, capacity: float, seconds: float) -> IntArray:
    plan = dn.pack(release, capacity=capacity, model=dn.Stochastic(risk=RISK), seconds=seconds)
    return np.asarray(plan.bin_of_row)


def sampled(release: dn.Release, capacity: float, seconds: float) -> IntArray:
    known = release.uncertain("weight")
    members = known.scenarios or ()
    return sampled_assignment(members, known.class_id, capacity, risk=RISK, seconds=seconds, seed=1)[0]


def outcome(plan: Callable[..., IntArray], release: dn.Release, capacity: float, seconds: float) -> Outcome:
    bins, spent = taken(lambda: plan(release, capacity, seconds))
    known = release.uncertain("weight")
    values = np.empty(len(known))
    values[np.argsort(known.class_id, kind="stable")] = np.concatenate(known.scenarios or ())
    rooms = np.array([capacity])
    tried = fits_by_permutation(values, known.class_id, bins, rooms, permutations=PERMUTATIONS, seed=HELD_OUT_SEED)
    hits = sum(int(fits.all(axis=1).sum()) for fits in tried)
    return Outcome(spent, int(bins.max()) + 1, hits / PERMUTATIONS)


def outcomes(name: str, k: int, num: int, seconds: float) -> list[tuple[Outcome, Outcome]]:
    setting = package_setting(name)
    releases = [released(setting, k, seed) for seed in range(num)]
    return [
        (outcome(certified, release, setting.capacity, seconds), outcome(sampled, release, setting.capacity, seconds))
        for release in releases
    ]


def rows_of(title: str, pairs: Sequence[tuple[Outcome, Outcome]]) -> list[Row]:
    mine, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
    worst = [min(plan.feasible for plan in plans) for plans in (mine, theirs)]
    return [
        row(f"{title}: time", *(_mean(plans, "seconds") for plans in (mine, theirs)), "CPU seconds a plan"),
        row(f"{title}: bins", *(_mean(plans, "bins") for plans in (mine, theirs)), "bins a plan (less is better)"),
        row(f"{title}: least held-out feasibility", *worst, "share of permutations, to 0.001 (0.95 is the target)"),
    ]


def _mean(plans: Sequence[Outcome], field: str) -> float:
    return sum(float(getattr(plan, field)) for plan in plans) / len(plans)


def run(*, long: bool = False) -> list[Row]:
    settings, num, seconds = (LONG, NUM_LONG, LONG_SECONDS) if long else (SHORT, NUM_SHORT, SHORT_SECONDS)
    outcomes("25-L-U", 10, 1, 1.0)  # imports and compiles
    rows = []
    for numeral, name in settings.items():
        title = f"packing at 95 %, setting {numeral}, {num} drawn, {seconds:g} s each"
        by_k: dict[int, Any] = {k: outcomes(name, k, num, seconds) for k in KS}
        if long:
            rows += [row for k, pairs in by_k.items() for row in rows_of(f"{title}, k = {k}; peer CP-SAT", pairs)]
        else:
            ks = ", ".join(map(str, KS))
            rows += rows_of(f"{title}, k = {ks}; peer CP-SAT", [pair for pairs in by_k.values() for pair in pairs])
    return rows
