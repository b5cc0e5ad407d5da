# SPDX-License-Identifier: Apache-2.0
"""The commands for fleets on files: size, apply, show; good and bad input."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_fleet import tiny_city
from tests.test_settle_fleets import trip_table

from dunnage.cli import main

POLICY = """
dataset = "trips"
protects = "trip"
[trip]
origin = "from"
destination = "to"
time = "at"
[city]
stops = "city/stops.csv"
[attributes.card]
role = "identifier"
[attributes.from]
role = "quasi-identifier"
kind = "stop"
[attributes.to]
role = "quasi-identifier"
kind = "stop"
[attributes.at]
role = "quasi-identifier"
kind = "time"
window_minutes = 30
domain = ["08:00", "10:00"]
[mechanism]
name = "noisy-counts"
epsilon = 8
"""


@pytest.fixture
def inside(monkeypatch, capsys):
    """Run a command in this process: exit code, what was printed, what went wrong."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dunnage", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return int(left.value.code or 0), printed.out, printed.err

    return run


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dunnage", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def sized(tmp_path_factory):
    """Trips in a tiny city, published and sized for."""
    from pyarrow import csv as arrow_csv

    folder = tmp_path_factory.mktemp("sized")
    place = tiny_city(1)
    place.write(folder / "city")
    arrow_csv.write_csv(trip_table(place, 5), folder / "trips.csv")
    (folder / "trips.toml").write_text(POLICY)
    published = run("publish", "trips.csv", "--policy", "trips.toml", "-o", "release", cwd=folder)
    assert published.returncode == 0, published.stderr
    options = ("--max-wait", 300, "--expansions", 2, "--seed", 3, "--export", "out", "--json")
    done = run("size", "release", "--city", "city", *options, "-o", "plan", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_size_writes_a_plan_and_exports(sized):
    folder, told = sized
    assert told["status"] == "feasible"
    assert told["objective"] == sum(told["fleet"].values())
    assert told["model"]["seed"] == 3
    assert json.loads((folder / "plan" / "plan.json").read_text())["fleet"] == told["fleet"]
    assert (folder / "plan" / "fleet.csv").read_text().startswith("zone,shuttles\n")
    assert (folder / "out" / "maps" / "flows.geojson").is_file()


def test_a_plan_is_shown(sized, inside):
    folder, told = sized
    code, text, _ = inside("show", folder / "plan")
    assert code == 0
    assert f"Shuttles    {told['objective']}" in text
    code, text, _ = inside("show", folder / "plan", "--json")
    assert json.loads(text)["fleet"] == told["fleet"]


def test_apply_runs_the_fleet_on_the_truth(sized, inside, tmp_path):
    folder, told = sized
    common = ("--policy", folder / "trips.toml", "--release", folder / "release", "--city", folder / "city")
    place = tmp_path / "settlement"
    options = ("--shuttle-hour", 35, "-o", place)
    code, text, err = inside("apply", folder / "plan", folder / "trips.csv", *common, *options, "--json")
    assert code == 0, err
    done = json.loads(text)
    assert done["shuttles"] == told["objective"]
    assert set(done["relative_error"]) == {"shuttles", "wait_seconds", "idle_seconds"}
    assert done["cost"]["per_shuttle_hour"] == 35
    assert [zone["shuttles"] for zone in done["zones"]] == list(told["fleet"].values())
    assert done["checked"] is True
    assert stat.S_IMODE((place / "events.csv").stat().st_mode) == 0o600
    code, text, _ = inside("show", place)
    assert code == 0
    assert "Private" in text
    assert "shuttle-hour" in text
    code, _, err = inside("apply", folder / "plan", folder / "trips.csv", *common, *options)
    assert code == 2
    assert "exists already" in err


def test_apply_takes_a_bare_table_and_says_what_it_lacks(sized, inside, tmp_path):
    folder, _ = sized
    (tmp_path / "mine.csv").write_text("zone,shuttles\neast,9\nwest,9\n")
    common = ("--policy", folder / "trips.toml", "--release", folder / "release", "-o", tmp_path / "s")
    plan = (tmp_path / "mine.csv", folder / "trips.csv")
    code, _, err = inside("apply", *plan, *common)
    assert code == 2
    assert "Give --city" in err
    code, _, err = inside("apply", *plan, *common, "--city", folder / "city", "--repair", "--capacity", "8")
    assert code == 2
    assert "does not take --repair, --capacity" in err
    code, text, err = inside("apply", *plan, *common, "--city", folder / "city")
    assert code == 0, err
    assert "18" in text


def test_bad_input_is_refused(sized, inside, tmp_path):
    folder, _ = sized
    size = ("size", folder / "release", "-o", tmp_path / "plan")
    code, _, err = inside(*size)
    assert code == 2
    assert "--city" in err
    code, _, err = inside(*size, "--city", tmp_path / "nowhere")
    assert code == 2
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "stops.csv").write_text((folder / "city" / "stops.csv").read_text().replace("zone", "hub", 0))
    stops = (folder / "city" / "stops.csv").read_text().splitlines()
    columns = [line.split(",") for line in stops]
    keep = [place for place, name in enumerate(columns[0]) if name != "zone"]
    bare = "\n".join(",".join(line[place] for place in keep) for line in columns)
    (tmp_path / "bare" / "stops.csv").write_text(bare + "\n")
    code, _, err = inside(*size, "--city", tmp_path / "bare")
    assert code == 2
    assert "zones" in err
    assert "generate city" in err
    code, _, err = inside(*size, "--city", folder / "city", "--max-wait", 1)
    assert code == 1
    assert "gives a mean wait of at most 1 seconds" in err
    code, _, err = inside(*size, "--city", folder / "city", "--capacity", 0)
    assert code == 2
    assert "capacity must be" in err
    code, _, err = inside(*size, "--city", folder / "city", "--export", tmp_path / "plan")
    assert code == 2
    assert "a folder each" in err
    code, _, err = inside("size", folder / "release", "--city", folder / "city", "-o", folder / "plan")
    assert code == 2
    assert "exists already" in err
    assert not (tmp_path / "plan").exists()


@pytest.mark.parametrize("wait", ["1e300", "inf", "nan", "0", "86401"])
def test_waits_that_make_no_sense_are_refused(sized, inside, tmp_path, wait):
    folder, _ = sized
    asked = ("--max-wait", wait, "-o", tmp_path / "plan")
    code, _, err = inside("size", folder / "release", "--city", folder / "city", *asked)
    assert code == 2
    assert "the longest mean wait must be above 0 seconds, and at most 86400" in err


@pytest.mark.parametrize("cost", ["1e308", "inf", "nan"])
def test_costs_that_make_no_sense_are_refused(sized, inside, tmp_path, cost):
    folder, _ = sized
    truth = ("--policy", folder / "trips.toml", "--release", folder / "release", "--city", folder / "city")
    asked = ("--shuttle-hour", cost, "-o", tmp_path / "s")
    code, _, err = inside("apply", folder / "plan", folder / "trips.csv", *truth, *asked)
    assert code == 2
    assert "Mend --shuttle-hour" in err


@pytest.mark.parametrize(("day", "words"), [("x", "does not tell apart. It has: all days"), ([1], "model.day")])
def test_a_plan_for_a_day_that_is_none_is_refused(sized, inside, tmp_path, day, words):
    folder, _ = sized
    shutil.copytree(folder / "plan", tmp_path / "plan")
    content = json.loads((tmp_path / "plan" / "plan.json").read_text())
    content["model"]["day"] = day
    (tmp_path / "plan" / "plan.json").write_text(json.dumps(content))
    truth = ("--policy", folder / "trips.toml", "--release", folder / "release", "--city", folder / "city")
    code, _, err = inside("apply", tmp_path / "plan", folder / "trips.csv", *truth, "-o", tmp_path / "s")
    assert code == 2
    assert words in err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file"),
        ("", "begins with row,bin for packages, or zone,shuttles for shuttles"),
        ("a,b\n1,2\n", "begins with row,bin for packages, or zone,shuttles for shuttles"),
        (b"\xff\xfe\x00", "nor a CSV file in UTF-8"),
        ({"format": 2, "kind": "fleet"}, "is not a plan of format 1"),
        ([], "is not a plan of format 1"),
        ({"format": 1, "kind": "menu"}, "neither of packages nor of shuttles"),
        ({}, "is not a plan of format 1"),
    ],
)
def test_a_plan_whose_kind_cannot_be_told(sized, inside, tmp_path, content, words):
    folder, _ = sized
    plan = tmp_path / "plan"
    if isinstance(content, (dict, list)):
        plan.mkdir()
        (plan / "plan.json").write_text(json.dumps(content))
    elif content is not None:
        plan.write_bytes(content if isinstance(content, bytes) else content.encode())
    truth = ("--policy", folder / "trips.toml", "--release", folder / "release", "--city", folder / "city")
    code, _, err = inside("apply", plan, folder / "trips.csv", *truth, "-o", tmp_path / "s")
    assert code == 2
    assert words in err
    assert "does not take" not in err


def test_rows_cannot_be_sized_for(sized, inside, tmp_path):
    folder, _ = sized
    size = ("--size", 60, "--destinations", 2, "--seed", 5)
    assert inside("generate", "packages", "-o", tmp_path / "p.csv", *size)[0] == 0
    assert inside("publish", tmp_path / "p.csv", "--policy", tmp_path / "p.toml", "-o", tmp_path / "r")[0] == 0
    code, _, err = inside("size", tmp_path / "r", "--city", folder / "city", "-o", tmp_path / "plan")
    assert code == 2
    assert "release of counts" in err
    plan = ("--policy", tmp_path / "p.toml", "--release", tmp_path / "r", "-o", tmp_path / "s")
    code, _, err = inside("apply", folder / "plan", tmp_path / "p.csv", *plan, "--city", folder / "city")
    assert code == 2
    assert "applied to trips" in err
    assert inside("pack", tmp_path / "r", "--capacity", "500", "-o", tmp_path / "packed")[0] == 0
    code, _, err = inside("apply", tmp_path / "packed", tmp_path / "p.csv", *plan, "--city", folder / "city")
    assert code == 2
    assert "a plan of packages does not take --city" in err


def test_help_has_an_example(inside):
    code, text, _ = inside("size", "--help")
    assert code == 0
    assert "Example: dunnage size" in text
