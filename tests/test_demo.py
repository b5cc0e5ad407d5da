# SPDX-License-Identifier: Apache-2.0
"""The demo runs end to end and ends on a report."""

from __future__ import annotations

import pytest

import dunnage as dn
from dunnage.demo import run_demo


def test_demo_ends_on_a_report(tmp_path):
    stages = []
    report = run_demo(tmp_path / "out", quick=True, progress=stages.append)
    text = report.read_text()
    for part in ("k = 5", "Dry run", "interval of each class", "In order"):
        assert part in text
    assert stages == ["generating packages", "rehearsing", "publishing", "verifying"]
    assert dn.verify(report.parent / "release").ok
    assert sorted(path.name for path in report.parent.iterdir()) == [
        "dunnage-ledger.sqlite",
        "parcels.csv",
        "parcels.toml",
        "release",
        "release.key.parquet",
        "report.md",
    ]


def test_demo_replaces_only_its_own_folder(tmp_path):
    run_demo(tmp_path / "out", quick=True)
    with pytest.raises(dn.OutputError, match="--force"):
        run_demo(tmp_path / "out", quick=True)
    run_demo(tmp_path / "out", quick=True, force=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("keep")
    with pytest.raises(dn.OutputError, match="not a demo folder"):
        run_demo(tmp_path / "mine", quick=True, force=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()
