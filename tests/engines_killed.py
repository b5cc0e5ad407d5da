# SPDX-License-Identifier: Apache-2.0
"""Executors that are killed, tasks that run twice and stages that are tried again: spent once, the same bytes.

Run by ``test_engines.py`` in a process of its own, on a small cluster of two executors: an executor is killed while it
releases rows, and one while trips of riders are gathered, after which Spark runs the stage before it again.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import SparkSession
from tests.builders import PARCEL, RIDERS, Repeated, a_policy, a_trip_policy, trips
from tests.test_engines import some_parcels

import dunnage as dn
from dunnage.engines import rows, spark
from dunnage.engines.sources import FileRows
from dunnage.mechanisms import cells

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.1",
    "spark.executorEnv.PYTHONPATH": os.getcwd(),
}


def die_once(mark: str) -> None:
    """Kill the executor of this task, and this worker, unless that was done before."""
    if TaskContext.get() is not None and not os.path.exists(mark):
        Path(mark).touch()
        executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(executor, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class DyingTask(rows._RowTask):
    def __call__(self, piece: Any, batches: Any) -> Iterator[Any]:
        if piece.group == 1:
            die_once(str(piece.path) + ".rows")
        yield from super().__call__(piece, batches)


class DyingTrips(cells.RiderTrips):
    def gather(self, content: bytes) -> bytes:
        die_once(os.path.join(os.environ["MARKS"], "trips"))
        return super().gather(content)


def released(data: dn.Dataset) -> tuple[int, dict[str, list[Any]]]:
    ledger = dn.Ledger(":memory:")
    made = dn.publish(data, ledger=ledger, noise=Repeated(seed=5)).release
    return len(ledger.statement(data.policy.dataset).spends), made.data.to_pydict()


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = Path(tempfile.mkdtemp())
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in {**SETTINGS, "spark.executorEnv.MARKS": str(folder)}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    pq.write_table(some_parcels(random.Random(1), 90), folder / "parcels.parquet", row_group_size=20)
    pq.write_table(trips(90), folder / "trips.parquet", row_group_size=20)
    spark._TASK_ROWS = 20
    noisy = a_policy({"name": "noisy-values", "epsilon": 1}, {**PARCEL, "content": {"role": "drop"}})
    riders = a_trip_policy({"name": "noisy-counts", "epsilon": 1}, **RIDERS)
    for name, policy, mark in (("parcels", noisy, "parcels.parquet.rows"), ("trips", riders, "trips")):
        path = folder / f"{name}.parquet"
        alone = released(dn.load(FileRows(path), policy))
        rows._RowTask, cells.RiderTrips = DyingTask, DyingTrips  # type: ignore[misc]
        killed = released(dn.load(spark.SparkFiles(path, session), policy))
        rows._RowTask, cells.RiderTrips = DyingTask.__mro__[1], DyingTrips.__mro__[1]  # type: ignore[misc]
        assert (folder / mark).exists(), "no executor was killed"
        assert killed == alone, "another release"
        assert killed[0] == 1, "spent more than once"
    session.stop()


if __name__ == "__main__":
    main()
