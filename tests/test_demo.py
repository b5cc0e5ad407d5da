# SPDX-License-Identifier: Apache-2.0
"""The demo runs the whole loop and ends on one page."""

from __future__ import annotations

import json

import pytest

import dunnage as dn
from dunnage.demo import run_demo


def test_demo_ends_on_a_page(tmp_path):
    stages = []
    done = run_demo(tmp_path / "out", quick=True, progress=stages.append)
    folder = done.report.parent
    text = done.report.read_text()
    for part in ("True weights", "Mean", "Upper bound", "Owner's view", "K-anonymity with k = 5"):
        assert part in text.replace("&#39;", "'")
    assert stages[:2] == ["generating packages", "publishing and verifying"]
    assert len(done.lines) == 5
    assert dn.verify(folder / "release").ok
    assert done.report.stat().st_mode & 0o777 == 0o600
    plan = json.loads((folder / "plan-upper" / "plan.json").read_text())
    assert plan["status"] == "optimal"
    assert f"{plan['objective']} trucks" in done.lines[2]
    settled = json.loads((folder / "settlement-upper" / "settlement.json").read_text())
    assert settled["plan_feasible"]
    assert not (folder / "plan-true").exists()


def test_demo_replaces_only_its_own_folder(tmp_path):
    run_demo(tmp_path / "out", quick=True)
    with pytest.raises(dn.OutputError, match="--force"):
        run_demo(tmp_path / "out", quick=True)
    run_demo(tmp_path / "out", quick=True, force=True)
    (tmp_path / "out" / "thesis.txt").write_text("keep")
    with pytest.raises(dn.OutputError, match="more than a demo wrote"):
        run_demo(tmp_path / "out", quick=True, force=True)
    assert (tmp_path / "out" / "thesis.txt").exists()
    with pytest.raises(dn.OutputError, match=r"cannot be made|more than a demo"):
        run_demo(tmp_path / "out" / "thesis.txt" / "deeper", quick=True)
