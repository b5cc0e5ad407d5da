# SPDX-License-Identifier: Apache-2.0
"""The whole of ``dunnage publish`` on a million packages: CSV in, folder out, multisets.

The baseline is the floor under any tool that does this: Arrow reads the same CSV file and writes the same tables as
CSV and Parquet, with nothing decided in between. Both run as processes of their own; CPU-seconds and peak memory are
the operating system's figures.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measuring import Row, row, run_apart

SIZE = 1_000_000
_FLOOR = """
import sys
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

source, release, out = sys.argv[1:]
pacsv.read_csv(source)
for name in ("data", "classes", "members"):
    table = pq.read_table(f"{release}/{name}.parquet")
    pacsv.write_csv(table, f"{out}/{name}.csv")
    pq.write_table(table, f"{out}/{name}.parquet", compression="zstd")
"""


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packages = ["generate", "packages", "-o", f"{folder}/p.csv", "--size", str(SIZE), "--destinations", "8"]
        run_apart(["-m", "dunnage", *packages, "--decimals", "2", "--seed", "1", "--json"])
        publish = ["-m", "dunnage", "publish", f"{folder}/p.csv", "--policy", f"{folder}/p.toml", "--json"]
        run_apart([*publish, "-o", f"{folder}/first"])  # the first use also compiles
        _, seconds, memory = run_apart([*publish, "-o", f"{folder}/release", "--again"])
        verify = run_apart(["-m", "dunnage", "verify", f"{folder}/release", "--json"]).seconds
        (folder / "floor").mkdir()
        floor = ["-c", _FLOOR, f"{folder}/p.csv", f"{folder}/release", f"{folder}/floor"]
        _, least, least_memory = run_apart(floor)
    return [
        row("publish 1e6 packages end to end, k = 5; baseline Arrow read and write", seconds, least, "CPU seconds"),
        row("the same, peak memory", memory, least_memory, "GB"),
        row("verify the release; baseline as above", verify, least, "CPU seconds"),
    ]
