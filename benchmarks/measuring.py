# SPDX-License-Identifier: Apache-2.0
"""Time a piece of work, here or in a process of its own, and write a row of the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import dunnage as dn

SECONDS, GIGABYTES = "CPU seconds", "GB at most"
Row = dict[str, Any]  # name, ours, peer, ratio and unit

# A process starts with the peak memory of the one that started it: a small one stands in between.
_WATCH = """
import json, resource, subprocess, sys
done = subprocess.run([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, done.stdout, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""


def row(name: str, ours: float, peer: float, unit: str = SECONDS) -> Row:
    return {"name": name, "ours": ours, "peer": peer, "ratio": ours / peer if peer else float("inf"), "unit": unit}


def dataset(columns: Mapping[str, Any], attributes: Mapping[str, Any], **mechanism: Any) -> dn.Dataset:
    """Put columns under a policy in which all of them are quasi-identifiers."""
    document = {
        "dataset": "benchmark",
        "protects": "row",
        "attributes": {name: {"role": "quasi-identifier", **item} for name, item in attributes.items()},
        "mechanism": mechanism or {"name": "partition", "k": 2},
    }
    return dn.Dataset.from_table(pa.table(columns), dn.Policy.from_dict(document))


# The C library keeps freed memory up to a limit that grows with the largest block that was ever freed. Freeing one of
# its largest size first makes times independent of what was read before: below it, every array is new memory.
np.zeros(2**22 - 2**12).fill(1.0)


class Timed(NamedTuple):
    result: Any
    seconds: float  # of the processor


def taken(work: Callable[[], Any], runs: int = 1) -> Timed:
    """Return what a piece of work returns, and the least processor time of some runs."""
    times, result = [], None
    for _ in range(runs):
        start = time.process_time()
        result = work()
        times.append(time.process_time() - start)
    return Timed(result, min(times))


def rate(work: Callable[[], Any], num: int, runs: int = 3) -> float:
    """Return the best rate of some runs, in millions per second of processor time."""
    return num / taken(work, runs).seconds / 1e6


class Used(NamedTuple):
    printed: str
    seconds: float  # of the processor
    gigabytes: float  # peak memory


def run_apart(arguments: list[str]) -> Used:
    """Run Python with some arguments in a process of its own, which can import from the repository."""
    path = [str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-c", _WATCH, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    code, printed, seconds, peak = json.loads(done.stdout)
    if code:
        raise SystemExit(f"{arguments} failed")
    return Used(printed, seconds, peak / (2**20 if sys.platform != "darwin" else 2**30))


def apart(part: str, call: str) -> tuple[list[float], float]:
    """Call a function of a benchmark in a process of its own; return the numbers it prints and its peak memory."""
    used = run_apart(["-c", f"from benchmarks import {part}; {part}.{call}"])
    return [float(number) for number in used.printed.split()], used.gigabytes
