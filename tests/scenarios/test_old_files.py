# SPDX-License-Identifier: Apache-2.0
"""Files that version 0.1.0 wrote are read by today's commands."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.scenarios.harness import run_main

OLD = Path(__file__).parents[1] / "fixtures" / "v0.1.0"
RELEASES = sorted(path.parent.name for path in OLD.glob("*/certificate.json"))
PLANS = sorted(path.parent.name for path in OLD.glob("*/plan.json"))
SHOWN = sorted(
    path.name
    for path in OLD.iterdir()
    if path.suffix != ".parquet"
    and path.name not in ("fleet.keys", "truck.own.enrolled")
    and not path.name.endswith(".pool.csv")
)


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the old files, to work in."""
    shutil.copytree(OLD, tmp_path / "old")
    for path in (tmp_path / "old").glob("*"):
        if path.is_file() and (path.suffix in (".own", ".keys", ".sqlite") or path.name.endswith(".key.parquet")):
            os.chmod(path, 0o600)  # a checkout does not keep that they are private
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def fine(line: str) -> str:
    code, out, err = run_main(*line.split())
    assert code == 0, f"{line}: exit {code}\n{out}{err}"
    return out


@pytest.mark.parametrize("name", RELEASES)
def test_releases(name: str, old: Path) -> None:
    told = fine(f"verify {name} --require {'void' if name == 'seeded' else 'claimed'}")
    assert run_main("verify", name)[0] == (name == "seeded")
    assert ("void" in told) is (name == "seeded")
    basis = json.loads(fine(f"show {name} --json"))["basis"]
    assert basis == json.loads((OLD / name / "certificate.json").read_text())["basis"]


def test_a_signature(old: Path) -> None:
    fine("verify signed --signed-by owner.pub.pem")
    assert run_main("verify", "partition", "--signed-by", "owner.pub.pem")[0] == 1


def test_everything_is_shown(old: Path) -> None:
    refused = [name for name in SHOWN if run_main("show", name)[0] != 0]
    assert refused == []


def test_plans(old: Path) -> None:
    assert len(PLANS) == 7
    for name in PLANS:
        if name.startswith("plan-"):
            release = "noisy-values" if name == "plan-noisy" else "partition"
            truth = f"parcels.csv --policy {release}.toml --release {release}"
            fine(f"apply {name} {truth} --repair -o now-{name}")
            if name != "plan-trucks":  # what is best for several kinds of truck is searched for until time is up
                fine(f"audit {release} parcels.csv --policy {release}.toml --plan {name} -o audit-{name}")
    fine("apply fleet ride-trips.csv --policy ride-trips.toml --release city-counts --city city -o now-fleet")


def test_planning_anew(old: Path) -> None:
    fine("pack partition --capacity 200kg -o again")
    before, now = (json.loads((old / name / "plan.json").read_text()) for name in ("plan-standard", "again"))
    assert before["release"] == now["release"]
    assert before["objective"] == now["objective"]
    fine("pack noisy-clusters --capacity 300kg --by destination -o noisy")
    fine("size city-counts --city city --max-wait 400 --expansions 2 --seed 1 --dates 1 -o sized")
    before, now = (json.loads((old / name / "plan.json").read_text()) for name in ("fleet", "sized"))
    assert before["fleet"] == now["fleet"]


@pytest.mark.parametrize("name", ["partition", "full-domain", "noisy-values", "noisy-clusters"])
def test_audits(name: str, old: Path) -> None:
    fine(f"audit {name} parcels.csv --policy {name}.toml -o now")


@pytest.mark.parametrize("name", ["telemetry", "positions"])
def test_reports(name: str, old: Path) -> None:
    for file in ("reports.jsonl", "reports.bin", "tallies.json"):
        fine(f"estimate {name}-{file} --task {name}-task.json --allow-noise -o now-{file.replace('.', '-')}")
    fine("verify now-reports-bin")
    before, now = ((old / place / "data.csv").read_text() for place in (f"{name}-estimates", "now-reports-jsonl"))
    assert before == now
    fine(f"device task {name}.toml -o again.json")
    assert (old / "again.json").read_text() == (OLD / f"{name}-task.json").read_text()


def test_an_allowance_goes_on(old: Path) -> None:
    perturb = "device perturb telemetry.csv --task telemetry-task.json --allowance truck.own --vehicle V0000003"
    fine(f"{perturb} --max-age 1440 --from 2026-10-14 --to 2026-10-14 -o again.jsonl")
    assert (old / "again.jsonl").read_text() == (OLD / "truck.jsonl").read_text()


def test_sealed_records_open(old: Path) -> None:
    fine("device open sealed.jsonl --keys fleet.keys -o opened.csv")
    assert "AB-1" in (old / "opened.csv").read_text()


def test_a_ledger_goes_on(old: Path) -> None:
    def spends() -> int:
        told = json.loads(fine("budget show dunnage-ledger.sqlite --dataset parcels --json"))
        return json.dumps(told).count('"promise_digest"') or json.dumps(told).count('"at"')

    before = spends()
    assert run_main("publish", "parcels.csv", "--policy", "partition.toml", "-o", "now")[0] == 2
    assert run_main("publish", "parcels.csv", "--policy", "partition.toml", "-o", "now", "--again")[0] == 2
    fine("ledger upgrade dunnage-ledger.sqlite")
    fine("publish parcels.csv --policy partition.toml -o now --again")
    assert spends() == before + 1
    fine("budget set dunnage-ledger.sqlite --dataset other --epsilon 3 --neighbours add-remove --note more")
