# SPDX-License-Identifier: Apache-2.0
"""What tests of all papers share: their modules, and a miniature of everything that is reproduced."""

from __future__ import annotations

import csv
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERDICTS = ("agrees", "the paper cannot be right", "differs by a choice or by data of ours", "not comparable")


@pytest.fixture(scope="module")
def paper(request):
    """A module of the paper that the test's file names, by the end of its name; without one, the paper's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield lambda end="": importlib.import_module(f"papers.{request.module.PAPER}{end and '_'}{end}")


@pytest.fixture(scope="module")
def runs(paper):
    """How everything is measured: in a module of its own where the paper has one."""
    own = Path(paper().__file__).with_name(f"{paper().__name__.split('.')[1]}_runs.py")
    return paper("runs" if own.exists() else "")


@pytest.fixture
def miniature(request, tmp_path):
    """What a tiny reproduction wrote: its folder, every line that the text states, and the page."""
    script = tmp_path / "tiny.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{request.module.TINY}")
    command = [sys.executable, str(script), str(tmp_path / "out")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out" / "quoted.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert all(line["paper"] and line["ours"] and line["verdict"] for line in lines)
    assert all(line["verdict"].startswith(VERDICTS) for line in lines)  # no difference without its cause
    report, page = ((tmp_path / "out" / name).read_text() for name in ("report.md", "report.html"))
    for verdict in VERDICTS:
        number = sum(line["verdict"].startswith(verdict) for line in lines)
        assert f"{number} {verdict}" in report.splitlines()[2]  # the split comes first
    return tmp_path / "out", lines, page
