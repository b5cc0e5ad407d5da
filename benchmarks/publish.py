# SPDX-License-Identifier: Apache-2.0
"""The whole of ``dunnage publish`` on a million packages: CSV in, folder out, multisets.

The baseline is the floor under any tool that does this: Arrow reads the same CSV file and writes the same tables as
CSV and Parquet, with nothing decided in between. Both run as processes of their own; CPU-seconds and peak memory are
the operating system's figures.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.apart import run_apart

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


def usage(command: list[str]) -> tuple[float, float]:
    """Run a command and return its CPU-seconds and peak memory in GB."""
    used = run_apart(command)
    return used.seconds, used.gigabytes


def run() -> list[dict[str, object]]:
    """Measure everything in one run; each row has name, ours, peer, ratio and unit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packages = ["generate", "packages", "-o", f"{folder}/p.csv", "--size", str(SIZE), "--destinations", "8"]
        usage(["-m", "dunnage", *packages, "--decimals", "2", "--seed", "1", "--json"])
        publish = ["-m", "dunnage", "publish", f"{folder}/p.csv", "--policy", f"{folder}/p.toml", "--json"]
        usage([*publish, "-o", f"{folder}/first"])  # the first use also compiles
        seconds, memory = usage([*publish, "-o", f"{folder}/release", "--again"])
        verify, _ = usage(["-m", "dunnage", "verify", f"{folder}/release", "--json"])
        (folder / "floor").mkdir()
        floor = ["-c", _FLOOR, f"{folder}/p.csv", f"{folder}/release", f"{folder}/floor"]
        least, least_memory = usage(floor)
    return [
        _row("publish 1e6 packages end to end, k = 5; baseline Arrow read and write", seconds, least, "CPU seconds"),
        _row("the same, peak memory", memory, least_memory, "GB"),
        _row("verify the release; baseline as above", verify, least, "CPU seconds"),
    ]


def _row(name: str, ours: float, peer: float, unit: str) -> dict[str, object]:
    return {"name": name, "ours": ours, "peer": peer, "ratio": ours / peer, "unit": unit}


if __name__ == "__main__":
    for row in run():
        print(row)
