# SPDX-License-Identifier: Apache-2.0
"""The reproductions run from the repository: a tiny one goes through every table and figure."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TINY = """
from dataclasses import replace
from pathlib import Path
import sys
from papers import hoogervorst2019, hoogervorst2019_runs as runs

less = dict(instances=1, ks=(8, 10), permutations=200, seconds=1.0, law_draws=5, spreads={10: (3,)})
runs.QUICK = replace(runs.QUICK, sampled_ks=(8,), sampled_seconds=1.0, **less)
if __name__ == "__main__":
    hoogervorst2019.reproduce(Path(sys.argv[1]), quick=True, workers=1)
"""


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_an_unknown_paper_is_refused() -> None:
    done = python("-m", "papers", "nobody1900")
    assert done.returncode == 2
    assert "hoogervorst2019" in done.stderr


def test_a_tiny_reproduction_writes_every_table_with_the_papers_value_beside_ours(tmp_path: Path) -> None:
    script = tmp_path / "tiny.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{TINY}")
    done = python(str(script), str(tmp_path / "out"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out" / "quoted.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) >= 20
    assert all(line["paper"] and line["ours"] and line["verdict"] for line in lines)
    robust = [line for line in lines if line["what"].startswith("robust with the published budget")]
    assert robust[0]["verdict"].startswith("agrees")
    assert "<svg" in (tmp_path / "out" / "report.html").read_text()
