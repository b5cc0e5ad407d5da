# SPDX-License-Identifier: Apache-2.0
"""The planner's and the owner's commands on files: pack, apply, show of a plan; good and bad input."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "dunnage"]


def dunnage(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [str(argument) for argument in arguments]
    done = subprocess.run([*COMMAND, *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done


def fine(*arguments: object, cwd: Path) -> dict:
    done = dunnage(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Sixty packages for two destinations, published."""
    folder = tmp_path_factory.mktemp("released")
    size = ("--size", 60, "--destinations", 2, "--decimals", 1, "--seed", 5)
    fine("generate", "packages", "-o", "parcels.csv", *size, cwd=folder)
    fine("publish", "parcels.csv", "--policy", "parcels.toml", "-o", "release", cwd=folder)
    return folder


@pytest.fixture
def place(released, tmp_path):
    shutil.copytree(released, tmp_path / "place")
    return tmp_path / "place"


APPLY = ("parcels.csv", "--policy", "parcels.toml", "--release", "release")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_plan_on_files(place):
    made = fine("pack", "release", "--capacity", "500kg", "--by", "destination", "-o", "plan", cwd=place)
    plan = json.loads((place / "plan" / "plan.json").read_text())
    for name in ("format", "release", "objective", "bound", "gap", "status", "seconds", "model", "unplanned"):
        assert plan[name] == made[name]
    assert plan["status"] == "optimal"
    assert set(plan["truck_linkage"]) == {"mean", "worst", "kind", "note"}
    assert plan["truck_linkage"]["kind"] == "exact"
    certificate = json.loads((place / "release" / "certificate.json").read_text())
    assert plan["release"] == certificate["digest"]
    assignment = rows(place / "plan" / "assignment.csv")
    assert [int(item["row"]) for item in assignment] == list(range(60))
    data = {item["row"]: item for item in rows(place / "release" / "data.csv")}
    bins: dict[str, list] = {}
    for item in assignment:
        bins.setdefault(item["bin"], []).append(data[item["row"]])
    assert len(bins) == plan["objective"] == len(rows(place / "plan" / "bins.csv"))
    for packed in bins.values():
        assert len({item["destination"] for item in packed}) == 1
        assert sum(round(10 * float(item["weight_upper"])) for item in packed) <= 5000
    assert "optimal" in dunnage("show", "plan", cwd=place).stdout


def test_a_plan_on_upper_bounds_always_fits(place):
    fine("pack", "release", "--capacity", 500, "-o", "plan", cwd=place)
    done = fine("apply", "plan", *APPLY, "-o", "settlement", cwd=place)
    assert done["plan_feasible"] is True
    assert done["bins_feasible"] == 1
    assert done["overloaded"] == []
    assert (place / "settlement").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (place / "settlement").iterdir()} == {0o600}


def test_a_plan_on_means_is_repaired(place):
    fine("pack", "release", "--capacity", 500, "--by", "destination", "--statistic", "mean", "-o", "plan", cwd=place)
    before = fine("apply", "plan", *APPLY, "-o", "before", cwd=place)
    after = fine("apply", "plan", *APPLY, "--repair", "-o", "after", cwd=place)
    assert before["overloaded"] == after["overloaded"] != []
    assert after["repair"]["feasible"]
    truth = {str(n): item for n, item in enumerate(rows(place / "parcels.csv"))}
    loads: dict[str, int] = {}
    places: dict[str, set] = {}
    loading = rows(place / "after" / "loading.csv")
    assert sorted(int(item["source_row"]) for item in loading) == list(range(60))
    for item in loading:
        parcel = truth[item["source_row"]]
        assert parcel["parcel_id"] == item["parcel_id"]
        loads[item["bin"]] = loads.get(item["bin"], 0) + round(10 * float(parcel["weight"]))
        places.setdefault(item["bin"], set()).add(parcel["destination"])
    assert max(loads.values()) <= 5000
    assert {len(found) for found in places.values()} == {1}


def test_somebody_elses_plan(place):
    (place / "theirs.csv").write_text("row,bin\n" + "".join(f"{row},{row // 2}\n" for row in range(60)))
    done = fine("apply", "theirs.csv", *APPLY, "--capacity", "500kg", "--repair", "-o", "settlement", cwd=place)
    assert done["external"] is True
    assert done["repair"]["feasible"] or done["plan_feasible"]
    assert dunnage("apply", "theirs.csv", *APPLY, "-o", "again", cwd=place).returncode == 2


def test_trucks_file(place):
    (place / "trucks.csv").write_text("truck,count,cost,weight\nlorry,60,90,500\n")
    made = fine("pack", "release", "--trucks", "trucks.csv", "-o", "plan", cwd=place)
    assert made["trucks"] == [{"truck": "lorry", "capacity": {"weight": 500.0}, "count": 60, "cost": 90.0}]
    (place / "few.csv").write_text("truck,count,cost,weight\nlorry,3,90,500\n")
    done = dunnage("pack", "release", "--trucks", "few.csv", "-o", "none", cwd=place)
    assert done.returncode == 1
    assert "3 trucks cannot be enough" in done.stderr
    assert not (place / "none").exists()


def test_a_package_heavier_than_any_truck_is_named_by_row(place):
    done = dunnage("pack", "release", "--capacity", "300", "-o", "plan", cwd=place)
    assert done.returncode == 1
    assert "heavier than 300 kg: row " in done.stderr
    assert not (place / "plan").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--capacity", "5t"), "Give it in kg"),
        (("--capacity", "volume=3"), "no quantity 'volume'"),
        (("--capacity", "500kg", "--capacity", "volume=3"), "Give one"),
        (("--capacity", "0"), "positive number"),
        ((), "either a capacity or trucks"),
        (("--capacity", "500", "--by", "weight"), "public column only"),
        (("--capacity", "500", "--statistic", "median"), "one of upper, mean"),
        (("--capacity", "500", "--model", "robust"), "standard"),
        (("--trucks", "nothing.csv"), "cannot be read"),
    ],
)
def test_bad_requests_to_pack(place, options, message):
    done = dunnage("pack", "release", *options, "-o", "plan", cwd=place)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (place / "plan").exists()


def spoil_key(place: Path) -> None:
    fine("publish", "parcels.csv", "--policy", "parcels.toml", "-o", "other", "--again", cwd=place)
    shutil.copy(place / "other.key.parquet", place / "release.key.parquet")


def spoil_release(place: Path) -> None:
    fine("publish", "parcels.csv", "--policy", "parcels.toml", "-o", "other", "--again", cwd=place)
    shutil.rmtree(place / "release")
    shutil.move(place / "other", place / "release")
    shutil.move(place / "other.key.parquet", place / "release.key.parquet")


def spoil_data(place: Path) -> None:
    text = (place / "parcels.csv").read_text().splitlines()
    text[1], text[2] = text[2], text[1]
    (place / "parcels.csv").write_text("\n".join(text) + "\n")


def lose_a_row(place: Path) -> None:
    path = place / "plan" / "assignment.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("7,")))


def double_a_row(place: Path) -> None:
    path = place / "plan" / "assignment.csv"
    path.write_text(path.read_text() + "7,0\n")


@pytest.mark.parametrize("spoil", [spoil_key, spoil_release, spoil_data, lose_a_row, double_a_row])
def test_what_does_not_belong_together_is_refused(place, spoil):
    fine("pack", "release", "--capacity", 500, "-o", "plan", cwd=place)
    spoil(place)
    done = dunnage("apply", "plan", *APPLY, "-o", "settlement", cwd=place)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert not (place / "settlement").exists()


def test_existing_folders_are_kept(place):
    fine("pack", "release", "--capacity", 500, "-o", "plan", cwd=place)
    before = (place / "plan" / "plan.json").read_bytes()
    assert dunnage("pack", "release", "--capacity", 400, "-o", "plan", cwd=place).returncode == 2
    assert (place / "plan" / "plan.json").read_bytes() == before
    assert dunnage("pack", "release", "--capacity", 400, "-o", "release", "--force", cwd=place).returncode == 2
    fine("pack", "release", "--capacity", 400, "-o", "plan", "--force", cwd=place)
    assert (place / "plan" / "plan.json").read_bytes() != before
