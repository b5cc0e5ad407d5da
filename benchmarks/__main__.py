# SPDX-License-Identifier: Apache-2.0
"""Run all benchmarks and print one table; ``--write`` puts it into ``docs/benchmarks.md``."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import clusters, counts, full_domain, noise, noisy, packing, partition, projection, publish, stochastic
from dunnage import __version__

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


def table(rows: list[dict[str, object]]) -> str:
    """Write rows as a Markdown table."""
    lines = ["| what | ours | peer or baseline | ratio | unit |", "|---|---|---|---|---|"]
    for row in rows:
        ours, peer, ratio = (f"{float(str(row[key])):.3g}" for key in ("ours", "peer", "ratio"))
        lines.append(f"| {row['name']} | {ours} | {peer} | {ratio} | {row['unit']} |")
    return "\n".join(lines)


def page(rows: list[dict[str, object]]) -> str:
    """Write the results page."""
    where = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"""# Benchmarks

Ours against peers or baselines, measured in one run: absolute figures do not travel between machines. Where the unit
is a rate, a ratio above 1 is in our favour; where it is seconds or memory, one below 1. `make bench` repeats it.

## {__version__}, {datetime.now(UTC).date().isoformat()}, {where}

{table(rows)}
"""


def main() -> None:
    """Run everything."""
    rows: list[dict[str, object]] = []
    for part in (noise, partition, full_domain, clusters, noisy, packing, stochastic, projection, counts, publish):
        print(f"running {part.__name__}", file=sys.stderr)
        rows += part.run()
    print(table(rows))
    if "--write" in sys.argv:
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
