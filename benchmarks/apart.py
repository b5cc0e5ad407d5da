# SPDX-License-Identifier: Apache-2.0
"""Run Python in a process of its own, so that CPU time and memory are its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# A process starts with the peak memory of the one that started it: a small one stands in between.
_WATCH = """
import json, resource, subprocess, sys
done = subprocess.run([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
found = {"code": done.returncode, "told": done.stdout, "seconds": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss}
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Used:
    """What a process printed and used: CPU seconds, and peak memory in gigabytes."""

    told: str
    seconds: float
    gigabytes: float


def run_apart(arguments: list[str]) -> Used:
    """Run Python with some arguments; the repository can be imported from."""
    root = str(Path(__file__).resolve().parents[1])
    path = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}
    command = [sys.executable, "-c", _WATCH, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    found = json.loads(done.stdout)
    if found["code"]:
        raise SystemExit(f"{arguments} failed")
    kilobytes = found["peak"] if sys.platform != "darwin" else found["peak"] / 1024
    return Used(found["told"], found["seconds"], kilobytes / 2**20)
