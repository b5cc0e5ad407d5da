# SPDX-License-Identifier: Apache-2.0
"""Run all benchmarks, or those named, and print one table.

``python -m benchmarks [PART ...] [--long] [--write]``: ``--long`` gives packing 20 seconds an instance and shows each k
apart; ``--write`` puts the rows into ``docs/benchmarks.md`` and leaves the rows of other parts as they are.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measuring import Row
from dunnage import __version__

Lines = dict[tuple[str, str], str]  # lines of the table, by what was measured and its unit
PARTS = ("noise", "partition", "full_domain", "clusters", "noisy", "packing", "stochastic")
PARTS += ("boxes", "projection", "counts", "local", "dispatch", "fleets", "publish", "collector", "ledger")
LONG = ("packing", "stochastic", "boxes")  # parts with a longer form
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


def lines_of(rows: list[Row]) -> Lines:
    lines = {}
    for row in rows:
        ours, peer, ratio = (f"{row[key]:.3g}" for key in ("ours", "peer", "ratio"))
        lines[row["name"], row["unit"]] = f"| {row['name']} | {ours} | {peer} | {ratio} | {row['unit']} |"
    return lines


def table(lines: Lines) -> str:
    return "\n".join(["| what | ours | peer or baseline | ratio | unit |", "|---|---|---|---|---|", *lines.values()])


def kept_lines() -> Lines:
    found = re.findall(r"^(\| (?!what \|)([^|]+) \|.*\| ([^|]+) \|)$", PAGE.read_text(), re.MULTILINE)
    return {(name, unit): line for line, name, unit in found}


def page(lines: Lines) -> str:
    where = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"""# Benchmarks

Ours against peers or baselines, each part measured in one run: absolute figures do not travel between machines. Where
the unit is a rate, a ratio above 1 is in our favour; where it is seconds or memory, one below 1. `make bench`
repeats it; `python -m benchmarks PART --write` measures one part again.

## {__version__}, {datetime.now(UTC).date().isoformat()}, {where}

{table(lines)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", epilog=f"Parts: {', '.join(PARTS)}.")
    parser.add_argument("parts", nargs="*", metavar="PART", help="what to run; by default everything")
    parser.add_argument("--write", action="store_true", help=f"put the rows into {PAGE.name}")
    parser.add_argument("--long", action="store_true", help=f"the longer form of {' and '.join(LONG)}")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}. There are {', '.join(PARTS)}.")
    rows: list[Row] = []
    for part in given.parts or PARTS:
        print(f"running {part}", file=sys.stderr)
        rows += importlib.import_module(f"benchmarks.{part}").run(
            **({"long": True} if given.long and part in LONG else {})
        )
    lines = lines_of(rows)
    print(table(lines))
    if given.write:
        PAGE.write_text(page({**kept_lines(), **lines} if given.parts else lines))


if __name__ == "__main__":
    main()
