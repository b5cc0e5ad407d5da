# SPDX-License-Identifier: Apache-2.0
"""Speed and memory of local differential privacy on whole columns: perturb and aggregate, with system entropy.

Peers: multi-freq-ldpy and pure-ldp, their optimised unary encoding at k = 256 and their optimised local hashing at
k = 4096, each as a client per user and a server; also pure-ldp's own Hadamard response, whose server only lists what it
gets. They use floating-point probabilities and generators that are not made for secrets; ours are exact and draw from
the operating system. They run on fewer users, and rates are compared per user. Positions are streamed from a generated
Parquet file in a process of its own, beside the goal that was set; memory is the operating system's figure.

The peers are not dependencies: install ``multi-freq-ldpy pure-ldp scikit-learn statsmodels 'xxhash<4'`` here, or in
another environment and name its Python in ``DUNNAGE_PEERS``; without them their rows are left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import GIGABYTES, Row, apart, rate, row, taken
from dunnage.collecting import batch
from dunnage.collecting.files import RowFile
from dunnage.collecting.frames import Source, tally_reports
from dunnage.collecting.tally import Tally
from dunnage.devices.client import mechanism_of
from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.places import HadamardResponse, Law, LocalLocation, OptimisedUnary
from dunnage.devices.report import Report
from dunnage.devices.task import Grid, Limits, Purpose, Quantity, Schedule, Task, Tier
from dunnage.noise.source import Noise

RATE = "million users per CPU second"
NUM_USERS, NUM_REPORTS, POSITIONS = 2_000_000, 1_000_000, 20_000_000
UNARY_INPUTS, HASHED_INPUTS = 256, 4096
GOAL_RATE, GOAL_GIGABYTES = 2.0, 1.0
BOX = ("103.9", "30.5", "104.2", "30.8")

# Run by the Python of the peers, which need not know Dunnage; prints users per CPU second.
_PEERS = """
import json, random, time
from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client
from pure_ldp.frequency_oracles.hadamard_response import HadamardResponseClient, HadamardResponseServer
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

def plain(value):
    return value

def multi_unary(users, k):
    UE_Aggregator_MI([UE_Client(user, k, 1.0, True) for user in users], 1.0, True)

def multi_hashing(users, k):
    LH_Aggregator_MI([LH_Client(user, k, 1.0, True) for user in users], k, 1.0, True)

def pure(client, server, users):
    for user in users:
        server.aggregate(client.privatise(user))

def pure_unary(users, k):
    pure(UEClient(1.0, k, use_oue=True, index_mapper=plain), UEServer(1.0, k, use_oue=True, index_mapper=plain), users)

def pure_hashing(users, k):
    pure(LHClient(1.0, k, use_olh=True, index_mapper=plain), LHServer(1.0, k, use_olh=True, index_mapper=plain), users)

def pure_hadamard(users, k):
    server = HadamardResponseServer(1.0, k, index_mapper=plain)
    pure(HadamardResponseClient(1.0, k, server.get_hash_funcs(), index_mapper=plain), server, users)

def rate(work, k, num):
    users = [random.randrange(k) for _ in range(num)]
    work(users[:5], k)
    start = time.process_time()
    work(users, k)
    return num / (time.process_time() - start)

print(json.dumps({
    "unary": {"multi-freq-ldpy": rate(multi_unary, UNARY, 50_000), "pure-ldp": rate(pure_unary, UNARY, 20_000)},
    "hadamard": {
        "multi-freq-ldpy, local hashing": rate(multi_hashing, HASHED, 300),
        "pure-ldp, local hashing": rate(pure_hashing, HASHED, 300),
        "pure-ldp, Hadamard response": rate(pure_hadamard, HASHED, 20_000),
    },
}))
"""


def peer_rates() -> dict[str, dict[str, float]]:
    """Return the peers' users per CPU second by method; nothing where they are not installed."""
    python = os.environ.get("DUNNAGE_PEERS", sys.executable)
    code = _PEERS.replace("UNARY,", f"{UNARY_INPUTS},").replace("HASHED,", f"{HASHED_INPUTS},")
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"left out: multi-freq-ldpy and pure-ldp ({reason})", file=sys.stderr)
        return {"unary": {}, "hadamard": {}}
    return json.loads(done.stdout)


def perturb_inputs(law: Law, indices: Any) -> Tally:
    """Perturb a column of inputs a chunk at a time and tally the reports."""
    noise, tally = Noise(), Tally(purpose="places", tier="all")
    for start in range(0, len(indices), batch.CHUNK_ROWS):
        batch.add_places(tally, law, indices[start : start + batch.CHUNK_ROWS], noise)
    return tally


def input_rate(law: Law) -> float:
    indices = np.random.default_rng(1).integers(0, law.num_inputs, NUM_USERS)
    perturb_inputs(law, indices[:10])
    return rate(lambda: perturb_inputs(law, indices), NUM_USERS)


def number_rate() -> float:
    quantities = [Quantity(name=f"x{number}", low="0", high="100") for number in range(10)]
    mechanism = LocalNumeric(quantities=quantities, epsilon=1)
    columns = list(np.random.default_rng(1).normal(60, 20, (10, NUM_USERS // 4)))
    batch.perturb_column(mechanism, "all", [column[:10] for column in columns], Noise())
    return rate(lambda: batch.perturb_column(mechanism, "all", columns, Noise()), NUM_USERS // 4)


def report_rates() -> tuple[float, float]:
    """Return how fast binary reports are decoded and tallied: in bulk without copies, and one by one."""
    tiers, grid = (Tier(name="all", epsilon="1"),), Grid(box=BOX, levels=4)
    purpose = Purpose(name="places", mechanism="local-location", tiers=tiers, grid=grid)
    task = Task(dataset="fleet", purposes=(purpose,), schedule=Schedule(), limits=Limits(lifetime="100"))
    mechanism, (tier,), noise = mechanism_of(task, purpose), task.slot_tiers(purpose), Noise()
    payloads = [mechanism.perturb((104.0, 30.6), tier=tier, noise=noise) for _ in range(1000)]
    facts = {"task": task.prefix, "purpose": 0, "tier": 0, "day": 20773, "slot": 1}
    reports = [
        Report(**facts, report_id=noise.draw_bytes(16), payload=payloads[at % 1000]) for at in range(NUM_REPORTS)
    ]
    source, few = Source.of_reports(reports), [report.to_bytes() for report in reports[:20_000]]
    tally_reports(task, [Source.of_reports(reports[:10])])

    def singly() -> None:
        tally = Tally(purpose="places", tier="all")
        for data in few:
            tally.add_payload(mechanism, tier, Report.from_bytes(data, task=task).payload)

    return rate(lambda: tally_reports(task, [source]), NUM_REPORTS), rate(singly, len(few))


def write_positions(path: Path, num: int) -> None:
    """Write generated positions, some outside the box and some missing, a million at a time."""
    generator = np.random.default_rng(1)
    schema = pa.schema([("vehicle", pa.int32()), ("lon", pa.float64()), ("lat", pa.float64())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, num, 1 << 20):
            size = min(1 << 20, num - start)
            lost = generator.random(size) < 0.01
            lon, lat = (pa.array(generator.normal(at, 0.08, size), mask=lost) for at in (104.05, 30.65))
            vehicles = pa.array(generator.integers(0, 9858, size).astype(np.int32))
            writer.write_table(pa.table([vehicles, lon, lat], schema=schema))


def stream_positions(path: str, levels: int, method: str) -> None:
    """Perturb and aggregate positions from a file and print the CPU seconds; alone in its process."""
    mechanism = LocalLocation(grid=Grid(box=BOX, levels=levels), epsilon=1, method=method)
    tally, noise = Tally(purpose="places", tier="all"), Noise()

    def work() -> None:
        for rows in RowFile(Path(path), numbers=["lon", "lat"]):
            batch.perturb_column(mechanism, "all", [rows.numbers["lon"], rows.numbers["lat"]], noise, tally=tally)

    print(taken(work).seconds)  # kernels compiled or read from disk included
    assert tally.num_reports == POSITIONS


def run() -> list[Row]:
    peers = peer_rates()
    unary = input_rate(OptimisedUnary(num_inputs=UNARY_INPUTS, epsilon=Fraction(1)))
    hadamard = input_rate(HadamardResponse(num_inputs=HASHED_INPUTS, epsilon=Fraction(1)))
    names = {
        "unary": (f"optimised unary encoding, k = {UNARY_INPUTS}, perturbed and aggregated", unary),
        "hadamard": (f"Hadamard response, k = {HASHED_INPUTS}, perturbed and aggregated", hadamard),
    }
    rows = [
        row(f"{name}; peer {peer}", ours, theirs / 1e6, RATE)
        for kind, (name, ours) in names.items()
        for peer, theirs in peers[kind].items()
    ]
    goal = f"ten numbers, hybrid, perturbed and aggregated; peer {GOAL_RATE:g} million"
    rows.append(row(goal, number_rate(), GOAL_RATE, RATE))
    name = f"{NUM_REPORTS:,} binary reports, decoded, checked and tallied in bulk; peer one by one"
    rows.append(row(name, *report_rates(), "million reports per CPU second"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "positions.parquet"
        write_positions(path, POSITIONS)
        for levels, method in ((5, "optimised-unary"), (5, "hadamard"), (7, "hadamard")):
            (seconds,), memory = apart("local", f"stream_positions({str(path)!r}, {levels}, {method!r})")
            name = f"{POSITIONS:,} positions from Parquet, {4 ** (levels - 1)} cells, {method}"
            rows.append(row(f"{name}; peer {GOAL_RATE:g} million", POSITIONS / seconds / 1e6, GOAL_RATE, RATE))
            rows.append(row(f"{name}; peer {GOAL_GIGABYTES:g} GB", memory, GOAL_GIGABYTES, GIGABYTES))
    return rows
