# SPDX-License-Identifier: Apache-2.0
"""Trips, reports and parcels from Parquet files by engine: CPU seconds of all processes, and peak memory of this one.

Usage: python -m benchmarks.engine_rows KIND FOLDER NUM_ROWS [ENGINE], with KIND trips, riders, reports, twice (every
report comes two times), packages (partition), full, noisy or clusters. The first run makes the files, others publish
them to FOLDER/release, which KIND verify then verifies. Memory is what cannot be dropped (anonymous pages); CPU is
without the start of Spark, which a first small job pays for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dunnage as dn
from dunnage.collecting.frames import _crc_tables
from dunnage.devices.client import mechanism_of
from dunnage.devices.report import Report
from dunnage.devices.task import Grid, Limits, Purpose, Schedule, Task, Tier

NUM_STOPS, FILE_ROWS = 300, 1_000_000
POLICY = """
dataset = "taps"
protects = "trip"
[mechanism]
name = "noisy-counts"
epsilon = 1
threshold = 20
[trip]
origin = "board"
destination = "alight"
time = "tap"
[city]
stops = "stops.csv"
[attributes.board]
role = "quasi-identifier"
kind = "stop"
[attributes.alight]
role = "quasi-identifier"
kind = "stop"
[attributes.tap]
role = "quasi-identifier"
kind = "time"
window_minutes = 30
domain = ["04:00", "28:00"]
"""
PACKAGES = """
dataset = "packages"
protects = "package"
[mechanism]
{mechanism}
[attributes.town]
role = "public"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 500]
resolution = 1
doubling = 1
"""
VOLUME = """[attributes.volume]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 1000]
resolution = 1
doubling = 1
"""
MECHANISMS = {
    "packages": 'name = "partition"\nk = 50',
    "full": 'name = "full-domain"\nk = 50',
    "noisy": 'name = "noisy-values"\nepsilon = 1',
    "clusters": 'name = "utility-clusters"\nk = 10',
}


def make_trips(folder: Path, sizes: list[int], riders: bool = False) -> None:
    """Write trips with times as timestamps; stops are as uneven as real ones. A rider has ten trips on average."""
    stops = [f"stop {number:03d}" for number in range(NUM_STOPS)]
    (folder / "stops.csv").write_text("\n".join(["stop", *stops]) + "\n")
    rng, weights = np.random.default_rng(1), 1 / np.arange(1, NUM_STOPS + 1) ** 0.7
    for number, size in enumerate(sizes):
        ends = [pa.array(stops).take(pa.array(rng.choice(NUM_STOPS, size, p=weights / weights.sum()))) for _ in "ab"]
        seconds = 1_794_000_000 + rng.integers(0, 30, size) * 86_400 + rng.integers(4 * 3600, 24 * 3600, size)
        columns = {"board": ends[0], "alight": ends[1], "tap": pa.array(seconds, pa.timestamp("s"))}
        columns |= {"card": rng.integers(0, sum(sizes) // 10, size)} if riders else {}
        pq.write_table(pa.table(columns), folder / "rows" / f"{number:04d}.parquet", row_group_size=1 << 18)


def make_packages(folder: Path, sizes: list[int]) -> None:
    towns, rng = pa.array([f"town {number:02d}" for number in range(30)]), np.random.default_rng(1)
    for number, size in enumerate(sizes):
        weights = np.round(rng.gamma(3, 20, size).clip(1, 500))
        volumes = np.round((weights * rng.gamma(9, 0.2, size)).clip(1, 1000))
        uneven = (30 * rng.random(size) ** 2).astype(np.int64)
        table = pa.table({"town": towns.take(pa.array(uneven)), "weight": weights, "volume": volumes})
        pq.write_table(table, folder / "rows" / f"{number:04d}.parquet", row_group_size=1 << 18)


def report_task() -> Task:
    tiers, grid = (Tier(name="all", epsilon="1"),), Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3)
    purpose = Purpose(name="places", mechanism="local-location", tiers=tiers, grid=grid)
    return Task(dataset="fleet", purposes=(purpose,), schedule=Schedule(), limits=Limits(lifetime="100"))


def make_reports(folder: Path, sizes: list[int], times: int = 1) -> None:
    """Write reports of places (65 bits) with ids of 16 bytes, each report so many times."""
    task, rng, table = report_task(), np.random.default_rng(1), _crc_tables()[0]
    (folder / "task.json").write_text(task.to_json())
    mechanism, (tier,) = mechanism_of(task, task.purposes[0]), task.slot_tiers(task.purposes[0])
    payloads = [mechanism.perturb((104.0, 30.6), tier=tier, noise=dn.Noise()) for _ in range(1000)]
    facts = {"task": task.prefix, "purpose": 0, "tier": 0, "day": 20773, "slot": 1}
    whole = [Report(**facts, report_id=bytes(range(16)), payload=payload).to_bytes() for payload in payloads]
    frames, at = np.frombuffer(b"".join(whole), dtype=np.uint8).reshape(1000, -1), whole[0].index(bytes(range(16)))
    for number, size in enumerate(sizes[: len(sizes) // times]):
        rows = frames[rng.integers(0, 1000, size)]
        rows[:, at : at + 16] = np.frombuffer(rng.bytes(16 * size), dtype=np.uint8).reshape(size, 16)
        crc = np.full(size, 0xFFFFFFFF, dtype=np.uint32)
        for byte in range(rows.shape[1] - 4):
            crc = table[(crc ^ rows[:, byte]) & 0xFF] ^ crc >> np.uint32(8)
        rows[:, -4:] = (~crc).astype(">u4").view(np.uint8).reshape(size, 4)
        ends = pa.py_buffer(np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32))
        reports = pa.Array.from_buffers(pa.binary(), size, [None, ends, pa.py_buffer(rows.tobytes())])
        for again in range(times):
            path, writing = folder / "rows" / f"{again}{number:04d}.parquet", {"row_group_size": 1 << 18}
            pq.write_table(pa.table({"report": reports}), path, use_dictionary=False, compression="none", **writing)


def policy_of(kind: str, folder: Path) -> dn.Policy:
    path = folder / "policy.toml"
    if kind in ("trips", "riders"):
        riders = '[contribution]\nperson = "card"\nmax = 20\nper = "period"\n[attributes.card]\nrole = "identifier"\n'
        path.write_text(
            POLICY.replace('protects = "trip"', 'protects = "rider"') + riders if kind == "riders" else POLICY
        )
    else:
        volume = VOLUME if kind in ("clusters", "full") else '[attributes.volume]\nrole = "drop"\n'
        path.write_text(PACKAGES.format(mechanism=MECHANISMS[kind]) + volume)
    return dn.Policy.read(path)


class Watch:
    """CPU time of this process and all that it started, and the anonymous memory of this one, five times a second."""

    def __init__(self) -> None:
        self.megabytes, self._ticks = 0.0, dict[int, int]()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._look()
            time.sleep(0.2)

    def _look(self) -> None:
        ticks, children = dict[int, int](), dict[int, list[int]]()
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has just ended
                fields = path.read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(path.parent.name))
                ticks[int(path.parent.name)] = int(fields[11]) + int(fields[12])
        waiting = [os.getpid()]
        while waiting:
            process = waiting.pop()
            self._ticks[process] = ticks.get(process, 0)
            waiting += children.get(process, [])
        status = Path("/proc/self/status").read_text()
        self.megabytes = max(self.megabytes, int(status.partition("RssAnon:")[2].split()[0]) / 1024)

    def seconds(self) -> float:
        self._look()
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")


def started(folder: Path, kind: str) -> None:
    """Start Spark, and its workers, with a file of its own."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.memory", "4g").config("spark.driver.maxResultSize", "3g").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.sparkContext.parallelize(range(4), 4).map(
        lambda number: __import__("dunnage.engines.rows") and number
    ).collect()


def main() -> None:
    kind, folder, num_rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    engine, rows = sys.argv[4] if len(sys.argv) > 4 else "files", folder / "rows"
    if kind != "verify" and not rows.is_dir():
        rows.mkdir(parents=True)
        sizes = [min(FILE_ROWS, num_rows - first) for first in range(0, num_rows, FILE_ROWS)]
        makers = {"trips": make_trips, "riders": partial(make_trips, riders=True), "reports": make_reports}
        makers["twice"] = partial(make_reports, times=2)
        makers.get(kind, make_packages)(folder, sizes)
        return
    if engine == "spark":
        started(folder, kind)
    query, watch = f"SELECT * FROM read_parquet('{rows}/*.parquet')", Watch()
    begin, data = watch.seconds(), query if engine == "duckdb" else rows
    if kind == "verify":
        ok = dn.verify(folder / "release", engine=engine).ok
        done = [f"in order: {ok}", f"verify {watch.seconds() - begin:.1f} CPU-s"]
    elif kind in ("reports", "twice"):
        found = dn.collect(data, dn.Task.from_json((folder / "task.json").read_text()), engine=engine)
        done = [f"{found.num_reports:,} reports", f"{watch.seconds() - begin:.1f} CPU-s"]
    else:
        loaded = dn.load(data, policy_of(kind, folder), engine=engine)
        done = [f"{len(loaded):,} rows", f"load {watch.seconds() - begin:.1f} CPU-s"]
        begin = watch.seconds()
        shutil.rmtree(folder / "release", ignore_errors=True)
        (folder / "release.key.parquet").unlink(missing_ok=True)
        dn.publish(loaded, ledger=dn.Ledger(":memory:"), out=folder / "release")
        done.append(f"publish {watch.seconds() - begin:.1f}")
    print(f"{kind}, {engine}: {', '.join(done)}, peak {watch.megabytes:,.0f} MiB")


if __name__ == "__main__":
    main()
