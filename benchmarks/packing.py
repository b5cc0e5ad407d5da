# SPDX-License-Identifier: Apache-2.0
"""Proven packings: share of instances proved optimal, and processor seconds, against OR-Tools CP-SAT.

The peer solves the textbook model (is item i in bin j, is bin j used) with one worker in a process of its own; its
seconds are those of the solver. Both have the same time limit. Instances are the papers' settings, drawn again, and
published hard ones if the data folder is there (``DUNNAGE_DATA``, default ``../shared/data``). Truck linkage: of plans
on parcels with two quantities in two towns, against two seconds of random exchanges of rows with as many trucks.

Last, how long large plans take against their time limit: seconds on the wall, on an idle machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from tests.oracles.exchanges import random_exchanges
from tests.oracles.instances import Instance, nearly_full, no_round_up

import dunnage as dn
from benchmarks.measuring import Row, dataset, row, taken
from dunnage.kernels.bins.scalar import pack_bins
from dunnage.planning.linkage import exchangeable
from dunnage.planning.problem import combinations
from dunnage.samples import draw_weights, package_setting

SETTINGS = {"II": "50-L-U", "V": "25-L-Un", "unequal-50": "50-L-Un"}
HARD = ("HARD0", "HARD2")
SHORT_SECONDS, LONG_SECONDS = 5.0, 20.0
NUM_SHORT, NUM_LONG = 5, 10
EXCHANGE_SECONDS = 2.0
MANY, LIMIT, MIN_LIMIT = 100_000, 10.0, 0.1
DATA = Path(os.environ.get("DUNNAGE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))

Outcome = tuple[bool, float]  # proved, processor seconds

PEER = """
import json, sys, time
from ortools.sat.python import cp_model

weights, capacity, seconds = json.load(sys.stdin)
items, bins = range(len(weights)), range(len(weights))
model = cp_model.CpModel()
used = [model.new_bool_var("") for _ in bins]
inside = [[model.new_bool_var("") for _ in bins] for _ in items]
for i in items:
    model.add_exactly_one(inside[i])
for j in bins:
    model.add(sum(weights[i] * inside[i][j] for i in items) <= capacity * used[j])
model.minimize(sum(used))
solver = cp_model.CpSolver()
solver.parameters.max_time_in_seconds = seconds
solver.parameters.num_workers = 1
start = time.process_time()
status = solver.solve(model)
print(json.dumps([status == cp_model.OPTIMAL, time.process_time() - start]))
"""


def ours(instance: Instance, seconds: float) -> Outcome:
    packing, spent = taken(lambda: pack_bins(np.array(instance[0]), instance[1], seconds=seconds))
    return packing.gap == 0, spent


def cp_sat(instance: Instance, seconds: float) -> Outcome:
    task = json.dumps([*instance, seconds])
    command = [sys.executable, "-c", PEER]
    done = subprocess.run(command, input=task, capture_output=True, text=True, check=True)
    proved, spent = json.loads(done.stdout)
    return bool(proved), float(spent)


def drawn(setting: str, num: int) -> list[Instance]:
    law = package_setting(setting)
    return [
        (draw_weights(law, np.random.default_rng(seed)).astype(np.int64).tolist(), int(law.capacity))
        for seed in range(num)
    ]


def published(name: str) -> Instance:
    _, capacity, *weights = map(int, (DATA / "bpplib" / "scholl_hard" / f"{name}.txt").read_text().split())
    return weights, capacity


def families(num: int) -> dict[str, list[Instance]]:
    found = {f"setting {name}": drawn(setting, num) for name, setting in SETTINGS.items()}
    found["201 items without round-up (as ANI-201)"] = [no_round_up(62, 2500, seed) for seed in range(num)]
    found["202 items that just fit (as AI-202)"] = [no_round_up(62, 2500, seed, split=True) for seed in range(num)]
    found["160 to 200 items, total just below whole trucks (as Hard28)"] = [nearly_full(seed) for seed in range(num)]
    if (DATA / "bpplib").is_dir():
        found["Scholl " + ", ".join(HARD)] = [published(name) for name in HARD]
    return found


def parcels(num: int) -> dn.Release:
    draw = np.random.default_rng(1)
    weights = np.round(np.minimum(draw.lognormal(1.5, 0.9, num), 60), 1) + 0.1
    volumes = np.round(np.minimum(weights * draw.uniform(0.05, 0.3, num), 20) + 0.1, 1)
    columns = {"weight": weights, "volume": volumes, "town": np.array(["Nord", "Sud"])[draw.integers(0, 2, num)]}
    number = {"role": "quasi-identifier", "kind": "numeric", "resolution": 0.1, "domain": [0, 100]}
    kinds = {"weight": number, "volume": number, "town": {"role": "public"}}
    data = dataset(columns, kinds, name="partition", k=10)
    return dn.publish(data, ledger=":memory:")[0]


def linkage(num: int, seconds: float) -> Row:
    """Compare the linkage of a plan with what random exchanges make of it; they start from the same trucks."""
    release, by = parcels(num), "town"
    plan = dn.pack(release, capacity=["weight=400", "volume=60"], by=by, seconds=seconds)
    uppers = [release.uncertain(name).upper for name in plan.quantities]
    order = np.lexsort((uppers[0], combinations(release, [by])))  # the next rows by weight: what packers often give

    def fits(rows: np.ndarray, _: int) -> bool:
        return bool(uppers[0][rows].sum() <= 400 and uppers[1][rows].sum() <= 60)

    start, group = np.empty(num, dtype=np.int64), combinations(release, [by])
    bins: list[list[int]] = []
    for at in order.tolist():
        if not bins or group[bins[-1][0]] != group[at] or not fits(np.array([*bins[-1], at]), 0):
            bins.append([])
        bins[-1].append(at)
    for number, rows in enumerate(bins):
        start[rows] = number
    reached = random_exchanges(exchangeable(release), group, start, fits, seconds=EXCHANGE_SECONDS)
    title = f"truck linkage, {num:,} parcels, two quantities by town, {plan.num_bins} trucks; peer random exchanges, "
    return row(f"{title}{EXCHANGE_SECONDS:g} s, {len(bins)} trucks", plan.truck_linkage.mean, reached, "mean linkage")


def run(*, long: bool = False) -> list[Row]:
    seconds, num = (LONG_SECONDS, NUM_LONG) if long else (SHORT_SECONDS, NUM_SHORT)
    ours(([7, 7, 7, 6, 6, 5, 5, 5, 4, 4], 13), seconds)  # imports are not part of the time
    rows = []
    for name, instances in families(num).items():
        mine = [ours(instance, seconds) for instance in instances]
        theirs = [cp_sat(instance, seconds) for instance in instances]
        title = f"packing, {name}, {len(instances)} instances, {seconds:g} s each; peer CP-SAT"
        for place, (what, unit) in enumerate([("proved", "share of instances"), ("time", "CPU seconds an instance")]):
            means = [sum(found[place] for found in side) / len(side) for side in (mine, theirs)]
            rows.append(row(f"{title}: {what}", *means, unit))
    return [*rows, *gaps(seconds), linkage(10_000 if long else 1200, seconds), *limits()]


def gaps(seconds: float) -> list[Row]:
    """Say how far plans are from their bounds: 10,000 parcels in mixed fleets, spread or robust; distinct weights."""
    generator = np.random.default_rng(1)
    weight = np.round(generator.lognormal(1.5, 0.9, 10_000).clip(0.1, 60), 1)
    columns = {"weight": weight, "town": generator.integers(0, 40, len(weight)).astype(str)}
    kinds = {"weight": {"kind": "numeric", "domain": [0, 60]}, "town": {"role": "public"}}
    mechanism = dn.Partition(k=5, statistic="multiset")
    ledger, noise = dn.Ledger(":memory:"), dn.Noise(seed=1)
    release = mechanism.release(dataset(columns, kinds), ledger=ledger, noise=noise).release
    mixed = [dn.Truck(name="small", capacity={"weight": 100.0}, cost=50)]
    mixed.append(dn.Truck(name="large", capacity={"weight": 500.0}, cost=110))
    cases: dict[str, dict[str, Any]] = {
        "mixed fleet": {"trucks": mixed},
        "mixed fleet, spread 5": {"trucks": mixed, "spread": 5},
        "spread 5": {"capacity": 500, "spread": 5},
        "robust": {"capacity": 500, "model": dn.Robust()},
    }
    plans = {name: dn.pack(release, by="town", seconds=seconds, **options) for name, options in cases.items()}
    plans = {f"10,000 parcels in 40 towns, {name}": plan for name, plan in plans.items()}
    columns = {"weight": np.round(np.random.default_rng(3).uniform(125, 375, 5_000), 2)}
    data = dataset(columns, {"weight": {"kind": "numeric", "domain": [0, 375]}})
    release = mechanism.release(data, ledger=ledger, noise=noise).release
    plan = dn.pack(release, capacity=500, model=dn.Stochastic(risk=0.05), seconds=seconds)
    plans["5,000 distinct weights, stochastic"] = plan
    return [
        row(f"{name}; peer: the bound", float(plan.objective), float(plan.bound), "cost")
        for name, plan in plans.items()
    ]


# Time limits


def many_parcels(num: int, *, several: bool) -> dn.Release:
    """Release weights, and volumes if ``several``, as multisets in eight zones."""
    generator = np.random.default_rng(num)
    weight = np.round(generator.lognormal(1.5, 0.9, num).clip(0.1, 60), 1)
    columns = {"weight": weight, "zone": generator.integers(0, 8, num).astype(str)}
    number = {"kind": "numeric", "domain": [0, 60]}
    attributes: dict[str, dict[str, object]] = {"weight": number, "zone": {"role": "public"}}
    if several:
        columns["volume"] = np.rint(weight * generator.lognormal(0.8, 0.6, num)).clip(1, 400)
        attributes["volume"] = {**number, "domain": [0, 400]}
    mechanism = dn.Partition(k=5, statistic="multiset")
    return mechanism.release(dataset(columns, attributes), ledger=dn.Ledger(":memory:"), noise=dn.Noise(seed=1)).release


def limits() -> list[Row]:
    one, two = many_parcels(MANY, several=False), many_parcels(MANY, several=True)
    mixed = [dn.Truck(name="small", capacity={"weight": 300.0}, cost=0.7)]
    mixed.append(dn.Truck(name="large", capacity={"weight": 800.0}, cost=1.4))
    rooms = ["weight=500", "volume=1500"]
    cases: dict[str, tuple[float, dict[str, Any]]] = {
        "robust": (MIN_LIMIT, {"release": one, "capacity": 500, "model": dn.Robust()}),
        "stochastic, two quantities": (LIMIT, {"release": two, "capacity": rooms, "model": dn.Stochastic()}),
        "sealed": (LIMIT, {"release": one, "capacity": 500, "model": dn.Sealed()}),
        "two kinds of truck": (LIMIT, {"release": one, "trucks": mixed}),
        "two quantities, eight groups": (LIMIT, {"release": two, "capacity": rooms, "by": "zone"}),
    }
    rows = []
    for name, (seconds, options) in cases.items():
        dn.pack(**options, seconds=MIN_LIMIT)  # compiles and imports
        start = time.perf_counter()
        dn.pack(**options, seconds=seconds)
        spent = time.perf_counter() - start
        title = f"pack {MANY:,} parcels, {name}; peer: the time limit, {seconds:g} s"
        rows.append(row(title, spent, seconds, "seconds"))
    return rows
