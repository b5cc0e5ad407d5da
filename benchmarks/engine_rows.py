# SPDX-License-Identifier: Apache-2.0
"""Count trips from Parquet files by engine: CPU seconds and peak memory of this process (not of workers of Spark).

Usage: python benchmarks/engine_rows.py FOLDER NUM_ROWS [ENGINE]. The first run makes the files.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dunnage as dn

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


def make(folder: Path, num_rows: int) -> None:
    """Write trips with times as timestamps; stops are as uneven as real ones."""
    stops = [f"stop {number:03d}" for number in range(NUM_STOPS)]
    (folder / "stops.csv").write_text("\n".join(["stop", *stops]) + "\n")
    (folder / "policy.toml").write_text(POLICY)
    (folder / "rows").mkdir(parents=True)
    rng, weights = np.random.default_rng(1), 1 / np.arange(1, NUM_STOPS + 1) ** 0.7
    for number in range(-(-num_rows // FILE_ROWS)):
        size = min(FILE_ROWS, num_rows - number * FILE_ROWS)
        ends = [pa.array(stops).take(pa.array(rng.choice(NUM_STOPS, size, p=weights / weights.sum()))) for _ in "ab"]
        seconds = 1_794_000_000 + rng.integers(0, 30, size) * 86_400 + rng.integers(4 * 3600, 24 * 3600, size)
        table = pa.table({"board": ends[0], "alight": ends[1], "tap": pa.array(seconds, pa.timestamp("s"))})
        pq.write_table(table, folder / "rows" / f"{number:04d}.parquet", row_group_size=1 << 18)


def main() -> None:
    folder, num_rows = Path(sys.argv[1]), int(sys.argv[2])
    engine = sys.argv[3] if len(sys.argv) > 3 else "files"
    if not (folder / "rows").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, num_rows)
        return
    policy, begin = dn.Policy.read(folder / "policy.toml"), time.process_time()
    query = f"SELECT * FROM read_parquet('{folder}/rows/*.parquet')"
    data = dn.load(query if engine == "duckdb" else folder / "rows", policy, engine=engine)
    loaded = time.process_time() - begin
    dn.publish(data, ledger=dn.Ledger(":memory:"))
    published = time.process_time() - begin - loaded
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{engine}: {len(data):,} rows, load {loaded:.1f} CPU-s, publish {published:.1f} CPU-s, peak {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
