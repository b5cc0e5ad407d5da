# SPDX-License-Identifier: Apache-2.0
"""The planner's and the owner's commands on files: pack, size, apply, show of a plan; good and bad input."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import stat
from collections import Counter
from pathlib import Path

import pytest
from pyarrow import csv as arrow_csv
from tests.commands import fine, rows, run
from tests.test_fleet import tiny_city
from tests.test_settle_fleets import trip_table

from dunnage.text import percent

MODELS = ("standard", "stochastic", "robust", "sealed")
APPLY = "parcels.csv --policy parcels.toml --release release"


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Sixty packages for two destinations, published."""
    with contextlib.chdir(folder := tmp_path_factory.mktemp("released")):
        fine("generate packages -o parcels.csv --size 60 --destinations 2 --decimals 1 --seed 5")
        fine("publish parcels.csv --policy parcels.toml -o release")
    return folder


@pytest.fixture
def place(released, tmp_path, monkeypatch):
    shutil.copytree(released, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


def true_loads(place: Path, folder: str) -> Counter[str]:
    """What each bin of a settlement weighs, in tenths of a kilogram."""
    truth = {str(number): parcel for number, parcel in enumerate(rows("parcels.csv"), 1)}
    loads: Counter[str] = Counter()
    for item in rows(place / folder / "loading.csv"):
        assert truth[item["source_row"]]["parcel_id"] == item["parcel_id"]
        loads[item["bin"]] += round(10 * float(truth[item["source_row"]]["weight"]))
    return loads


def test_a_plan_on_upper_bounds_always_fits(place):
    made = fine("pack release --capacity 500kg --by destination -o plan")
    plan = json.loads(Path("plan/plan.json").read_text())
    for name in ("format", "release", "objective", "bound", "gap", "status", "seconds", "model", "unplanned"):
        assert plan[name] == made[name]
    assert plan["truck_linkage"]["kind"] == "exact"
    assert plan["release"] == json.loads(Path("release/certificate.json").read_text())["digest"]
    assignment, data = rows("plan/assignment.csv"), {item["row"]: item for item in rows("release/data.csv")}
    assert [int(item["row"]) for item in assignment] == list(range(60))
    bins: dict[str, list] = {}
    for item in assignment:
        bins.setdefault(item["bin"], []).append(data[item["row"]])
    assert len(bins) == plan["objective"] == len(rows("plan/bins.csv"))
    for packed in bins.values():
        assert len({item["destination"] for item in packed}) == 1
        assert sum(round(10 * float(item["weight_upper"])) for item in packed) <= 5000
    assert "optimal" in run("show plan").out
    done = fine(f"apply plan {APPLY} -o settlement")
    assert (done["plan_feasible"], done["bins_feasible"], done["overloaded"]) == (True, 1, [])
    assert stat.S_IMODE(Path("settlement").stat().st_mode) == 0o700
    assert {path.stat().st_mode & 0o777 for path in Path("settlement").iterdir()} == {0o600}


def test_a_plan_on_means_is_repaired(place):
    fine("pack release --capacity 500 --by destination --statistic mean -o plan")
    before = fine(f"apply plan {APPLY} -o before")
    after = fine(f"apply plan {APPLY} --repair -o after")
    assert before["overloaded"] == after["overloaded"] != []
    assert after["repair"]["feasible"]
    loading = rows("after/loading.csv")
    assert sorted(int(item["source_row"]) for item in loading) == list(range(1, 61))
    assert max(true_loads(place, "after").values()) <= 5000
    destination = {str(number): parcel["destination"] for number, parcel in enumerate(rows("parcels.csv"), 1)}
    assert len({(item["bin"], destination[item["source_row"]]) for item in loading}) == len(
        {item["bin"] for item in loading}
    )


def sealed_plan(place: Path, capacity: float, more: int = 0) -> None:
    """Write a sealed plan by hand: a bin for every two packages, the lightest class beside the heaviest and so on."""
    if not Path("plan").exists():
        fine("pack release --capacity 99999 --model sealed -o plan")
    lightest = sorted(rows("release/data.csv"), key=lambda item: float(item["weight_upper"]))
    classes = [int(item["class_id"]) for item in lightest]
    slots = Counter((min(at, len(classes) - 1 - at), class_id) for at, class_id in enumerate(classes))
    slots[0, classes[0]] += more
    lines = [f"{bin_},{class_id},{count}" for (bin_, class_id), count in sorted(slots.items())]
    (place / "plan" / "slots.csv").write_text("bin,class_id,count\n" + "\n".join(lines) + "\n")
    num = len(classes) // 2
    (place / "plan" / "bins.csv").write_text("bin,truck\n" + "".join(f"{bin_},truck\n" for bin_ in range(num)))
    plan = json.loads((place / "plan" / "plan.json").read_text())
    trucks = [{"truck": "truck", "capacity": {"weight": capacity}, "count": None, "cost": 1.0}]
    plan |= {"objective": num, "bound": 1, "status": "feasible", "trucks": trucks, "truck_linkage": {}, "certified": {}}
    plan.pop("gap", None)
    (place / "plan" / "plan.json").write_text(json.dumps(plan))


def test_a_sealed_plan_is_filled_or_says_why_not(place):
    sealed_plan(place, 560)
    done = fine(f"apply plan {APPLY} -o settlement")
    assert done["plan_feasible"] is True
    assert done["truck_linkage"]["kind"] == ("exact" if done["sealed"]["exact"] else "estimate")
    class_of = {item["row"]: item["class_id"] for item in rows("release/data.csv")}
    filled = Counter((item["bin"], class_of[item["row"]]) for item in rows("settlement/loading.csv"))
    assert filled == {(item["bin"], item["class_id"]): int(item["count"]) for item in rows("plan/slots.csv")}
    assert max(true_loads(place, "settlement").values()) <= 5600
    sealed_plan(place, 450)  # one that overflows is no failure
    done = fine(f"apply plan {APPLY} -o overflows")
    assert done["plan_feasible"] is False
    assert done["overloaded"] != []
    assert fine(f"apply plan {APPLY} --repair -o repaired")["repair"]["feasible"]
    sealed_plan(place, 700, more=1)
    run(f"apply plan {APPLY} -o none").refused()
    assert not Path("none").exists()


TWO_QUANTITIES = """dataset = "parcels"
protects = "package"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
unit = "kg"
[attributes.volume]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 10]
unit = "m3"
[mechanism]
name = "partition"
k = 2
statistic = "multiset"
"""


def test_two_quantities(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    amounts = list(itertools.product(range(10, 90, 10), (1, 4, 7)))
    Path("two.csv").write_text("weight,volume\n" + "".join(f"{w},{v}\n" for w, v in amounts))
    Path("two.toml").write_text(TWO_QUANTITIES)
    fine("publish two.csv --policy two.toml -o release")
    applied = "two.csv --policy two.toml --release release"
    for model in MODELS:
        made = fine(f"pack release --capacity 120kg --capacity volume=14 --model {model} -o plan-{model}")
        assert made["quantities"] == {"weight": "kg", "volume": "m3"}
        assert made["trucks"][0]["capacity"] == {"weight": 120, "volume": 14}
        done = fine(f"apply plan-{model} {applied} -o settlement-{model}")
        assert done["plan_feasible"] or model == "stochastic"
        if done["plan_feasible"]:
            assert max(done["final_loads"]["weight"]) <= 120
            assert max(done["final_loads"]["volume"]) <= 14
    for bad, says in (
        ("--capacity 120", "weight"),
        ("--capacity 120kg --capacity 9kg", "m3"),
        ("--capacity 120kg --capacity height=9", "height"),
        ("--capacity volume=9 --capacity volume=8", "volume"),
    ):
        run(f"pack release {bad} -o none").refused(says)
    Path("theirs.csv").write_text("row,bin\n" + "".join(f"{row},{row // 3}\n" for row in range(24)))
    done = fine(f"apply theirs.csv {applied} --capacity 120kg --capacity volume=10 --repair -o settlement")
    assert done["feasible"]
    header = Path("settlement/loads.csv").read_text().splitlines()[0].replace('"', "")
    assert header == "bin,truck,load_weight,capacity_weight,load_volume,capacity_volume"
    Path("trucks.csv").write_text("truck,count,cost,weight,volume\nlorry,,2,120,10\n")
    assert fine(f"apply theirs.csv {applied} --trucks trucks.csv -o other")["overloaded"] == done["overloaded"]
    run(f"apply theirs.csv {applied} --capacity 120 -o none").refused("volume")
    # Without multisets the models that fit are named.
    Path("two.toml").write_text(TWO_QUANTITIES.replace("multiset", "bounds"))
    fine("publish two.csv --policy two.toml -o bounds --again")
    pack = "pack bounds --capacity weight=120"
    run(f"{pack} --statistic mean -o none").refused("upper")
    run(f"{pack} --model robust -o none").refused("robust")
    for model in ("stochastic", "sealed"):
        made = fine(f"{pack} --model {model} -o {model}")
        assert "bound" in made["certified"]["rests_on"] + made["model"].get("from", "")


BAD_PACKS = {
    "--capacity 500kg --capacity volume=3": "volume",
    "--capacity 500kg --capacity 400kg": "weight",
    "--capacity 0": "capacity",
    "--capacity 500 --statistic median": "upper, mean",
    "--capacity 500 --apart parcel_id": "parcel_id",
    "--capacity 500 --model standard --risk 0.1": "--risk",
    "--capacity 500 --risk 0.1 --statistic mean": "--statistic",
    "--capacity 500 --prior flat": "uniform",
    "--capacity 500 --as-published": "--as-published",
    "--capacity 500 --model stochastic --statistic mean": "--statistic",
    "--capacity 500 --model stochastic --budget items": "--budget",
    "--capacity 500 --model robust --budget all": "largest, items, published",
    **{f"--capacity 500 --model stochastic --risk {risk}": "risk" for risk in ("1", "-0.1", "nan", "x")},
    "--capacity 500 --model robust --risk 0": "risk",
    "--capacity 500 --model robust --risk 5%": "--budget items",
    "--capacity 500 --model stochastic --risk 5%%": "5%",
    "--capacity 500 --spread 0": "spread",
    "--capacity 500 --spread 1.5": "--spread",
    "--capacity 500 --model stochastic --as-published --spread 2": "as_published",
    "--capacity 500 --model stochastic --as-published --by destination": "as_published",
    "--capacity 500 --trucks nothing.csv": "nothing.csv",
    "--trucks nothing.csv": "nothing.csv",
}
BAD_TRUCKS = (
    "truck,count,cost,volume\nvan,1,1,5\n",
    "truck,count,cost,weight\nvan,1,1\n",
    "truck,count,cost,weight\nvan,1,1,-5\n",
    "truck,count,cost,weight\nvan,1,-1,5\n",
    "truck,count,cost,weight\nvan,1,1,heavy\n",
    "truck,count,cost,weight\nvan,two,1,5\n",
    "truck,count,cost,weight\nvan,1.5,1,5\n",
    "truck,count,cost,weight\nvan,,1,500\nvan,,2,900\n",
    "truck,cost,count,weight\nvan,1,1,5\n",
    "truck,count,cost,weight\n",
    "truck,count,cost,weight\nvan,,1,500\nlorry,,1e9,900\n",
    "",
    "\xff",
)


def test_bad_requests_to_pack(place):
    for options, says in BAD_PACKS.items():
        run(f"pack release {options} -o plan").refused(says)
    for text in BAD_TRUCKS:
        Path("trucks.csv").write_text(text, encoding="latin-1")
        run("pack release --trucks trucks.csv -o plan").refused()
    assert not Path("plan").exists()


def test_no_plan_is_exit_code_one(place):
    smallest = min(Counter(line["class_id"] for line in rows("release/data.csv")).values())
    Path("few.csv").write_text("truck,count,cost,weight\nvan,1,1,300\nlorry,1,2,500\n")
    Path("three.csv").write_text("truck,count,cost,weight\nlorry,3,90,500\n")
    for model in MODELS:
        spread = run(f"pack release --capacity 800 --model {model} --spread {smallest + 1} -o plan")
        spread.refused(str(smallest), code=1)
        run(f"pack release --trucks few.csv --model {model} -o plan").refused(code=1)
    run("pack release --trucks three.csv -o plan").refused("3 trucks", code=1)
    run("pack release --capacity 300 -o plan").refused("300 kg", code=1)
    assert not Path("plan").exists()


FIXED = ("format", "release", "objective", "bound", "gap", "status", "seconds", "model", "unplanned", "truck_linkage")


def test_what_is_written_is_what_is_shown_and_applied(place):
    """By options that no scenario records, and one sealed plan."""
    for number, options in enumerate(
        (
            "--risk 5% --margin 2%",
            "--model stochastic --as-published --time-limit 1",
            "--model sealed --by destination --spread 2",
            "--model stochastic --by destination --spread 3",
            "--spread 4 --apart destination",
        )
    ):
        plan = Path(f"plan{number}")
        made = fine(f"pack release --capacity 800kg {options} -o {plan}")
        written = json.loads((plan / "plan.json").read_text())
        assert {**written, "plan": made["plan"]} == made
        assert set(FIXED) <= set(written)
        assert {"mean", "worst", "kind"} <= set(written["truck_linkage"])
        assert written["sealed"] is ("sealed" in options) is (plan / "slots.csv").exists()
        assert (plan / "assignment.csv").exists() is not written["sealed"]
        if written["sealed"]:
            assert sum(int(line["count"]) for line in rows(plan / "slots.csv")) == 60
        shown = run(f"show {plan}").out
        assert written["model"]["name"] in shown
        assert percent(written["truck_linkage"]["mean"]) in shown
        again = fine(f"show {plan}")
        assert {name: again[name] for name in FIXED} == {name: written[name] for name in FIXED}
        done = fine(f"apply {plan} {APPLY} -o settlement{number}")
        assert done["plan_feasible"] is True or written["certified"]["at_least"] < 1


def test_several_kinds_of_truck(place):
    Path("trucks.csv").write_text("truck,count,cost,weight\nvan,4,2.5,400\nlorry,,4,800.5\n")
    made = fine("pack release --trucks trucks.csv --time-limit 2 --model stochastic -o plan")
    used = Counter(line["truck"] for line in rows("plan/bins.csv"))
    assert made["minimises"] == "cost"
    assert made["objective"] == 2.5 * used["van"] + 4 * used["lorry"]
    assert used["van"] <= 4
    assert made["gap"] == pytest.approx(made["objective"] - made["bound"])
    assert "2.5" in run("show plan").out


def spoil_key() -> None:
    fine("publish parcels.csv --policy parcels.toml -o other --again")
    shutil.copy("other.key.parquet", "release.key.parquet")


def spoil_release() -> None:
    fine("publish parcels.csv --policy parcels.toml -o other --again --ledger other.sqlite")
    shutil.rmtree("release")
    shutil.move("other", "release")
    shutil.move("other.key.parquet", "release.key.parquet")


def spoil_data() -> None:
    text = Path("parcels.csv").read_text().splitlines()
    Path("parcels.csv").write_text("\n".join([text[0], text[2], text[1], *text[3:]]) + "\n")


def lose_a_row() -> None:
    lines = Path("plan/assignment.csv").read_text().splitlines(keepends=True)
    Path("plan/assignment.csv").write_text("".join(line for line in lines if not line.startswith("7,")))


def double_a_row() -> None:
    with Path("plan/assignment.csv").open("a") as file:
        file.write("7,0\n")


@pytest.mark.parametrize("spoil", [spoil_key, spoil_release, spoil_data, lose_a_row, double_a_row])
def test_what_does_not_belong_together_is_refused(place, spoil):
    fine("pack release --capacity 500 -o plan")
    spoil()
    run(f"apply plan {APPLY} -o settlement").refused()
    assert not Path("settlement").exists()


def test_existing_folders_are_kept(place):
    fine("pack release --capacity 500 -o plan")
    before = Path("plan/plan.json").read_bytes()
    run("pack release --capacity 400 -o plan").refused()
    assert Path("plan/plan.json").read_bytes() == before
    run("pack release --capacity 400 -o release --force").refused()
    fine("pack release --capacity 400 -o plan --force")
    assert Path("plan/plan.json").read_bytes() != before


# Fleets


TRUTH = "trips.csv --policy trips.toml --release release"
POLICY = """
dataset = "trips"
protects = "trip"
trip = { origin = "from", destination = "to", time = "at" }
city = { stops = "city/stops.csv" }
expect = { dates = 1 }
[attributes]
card = { role = "identifier" }
from = { role = "quasi-identifier", kind = "stop" }
to = { role = "quasi-identifier", kind = "stop" }
at = { role = "quasi-identifier", kind = "time", window_minutes = 30, domain = ["08:00", "10:00"] }
[mechanism]
name = "noisy-counts"
epsilon = 8
"""


@pytest.fixture(scope="module")
def sized(tmp_path_factory):
    """Trips in a tiny city, published and sized for."""
    with contextlib.chdir(folder := tmp_path_factory.mktemp("sized")):
        city = tiny_city(1)
        city.write(folder / "city")
        arrow_csv.write_csv(trip_table(city, 5), folder / "trips.csv")
        Path("trips.toml").write_text(POLICY)
        fine("publish trips.csv --policy trips.toml -o release")
        made = fine("size release --city city --max-wait 300 --expansions 2 --seed 3 --export out -o plan")
    return folder, made


@pytest.fixture
def town(sized, tmp_path, monkeypatch):
    """A copy of it."""
    shutil.copytree(sized[0], tmp_path / "town")
    monkeypatch.chdir(tmp_path / "town")
    return sized[1]


def test_a_fleet_is_sized_shown_and_run_on_the_truth(town):
    assert town["status"] == "feasible"
    assert town["objective"] == sum(town["fleet"].values())
    assert town["model"]["seed"] == 3
    assert json.loads(Path("plan/plan.json").read_text())["fleet"] == town["fleet"] == fine("show plan")["fleet"]
    assert Path("plan/fleet.csv").read_text().startswith("zone,shuttles\n")
    assert Path("out/maps/flows.geojson").is_file()
    assert f"Shuttles    {town['objective']}" in run("show plan").out
    apply = f"apply plan {TRUTH} --city city --shuttle-hour 35 -o settlement"
    done = fine(apply)
    assert done["shuttles"] == town["objective"]
    assert set(done["relative_error"]) == {"shuttles", "wait_seconds", "idle_seconds"}
    assert done["cost"]["per_shuttle_hour"] == 35
    assert [zone["shuttles"] for zone in done["zones"]] == list(town["fleet"].values())
    assert done["checked"] is True
    assert stat.S_IMODE(Path("settlement/events.csv").stat().st_mode) == 0o600
    shown = run("show settlement").out
    assert "Private" in shown
    assert "Shuttles" in shown
    run(apply).refused("settlement")


def test_drivers_of_a_fleet_have_shifts(town):
    size = "size release --city city --max-wait 300 --expansions 2 --seed 3"
    made = fine(f"{size} --shift 1.25 --break 15 --drive 0.75 -o driven")
    assert made["fleet"] == town["fleet"]
    listed = rows("driven/shifts.csv")
    assert sum(int(line["drivers"]) for line in listed) == made["drivers"]["number"] > town["objective"]
    assert {line["zone"] for line in listed} == {zone for zone, number in town["fleet"].items() if number}
    assert min(line["begin"] for line in listed) == "08:00"
    assert "drivers" not in town
    shown = run("show driven", code=0).out
    assert f"Drivers     {made['drivers']['number']} a day" in shown
    assert "break of 15 min after at most 0.75 h" in shown
    assert fine("show driven")["drivers"] == made["drivers"]
    assert fine(f"apply driven {TRUTH} --city city -o done")["shuttles"] == town["objective"]
    run(f"{size} --break 30 -o other").refused("--shift")
    run(f"{size} --shift 40 -o other").refused("shift_hours")


def test_apply_takes_a_bare_table_and_says_what_it_lacks(town):
    Path("mine.csv").write_text("zone,shuttles\neast,9\nwest,9\n")
    run(f"apply mine.csv {TRUTH} -o s").refused("--city")
    run(f"apply mine.csv {TRUTH} -o s --city city --repair --capacity 8").refused("--repair, --capacity")
    assert "18" in run(f"apply mine.csv {TRUTH} -o s --city city").out


def test_bad_input_is_refused(town):
    Path("bare").mkdir()
    columns = [line.split(",") for line in Path("city/stops.csv").read_text().splitlines()]
    keep = [place for place, name in enumerate(columns[0]) if name != "zone"]
    Path("bare/stops.csv").write_text("\n".join(",".join(line[place] for place in keep) for line in columns) + "\n")
    size = "size release -o new"
    run(size).refused("--city")
    run(f"{size} --city nowhere").refused()
    run(f"{size} --city bare").refused("generate city")
    run(f"{size} --city city --capacity 0").refused("capacity")
    run(f"{size} --city city --export new").refused()
    run("size release --city city -o plan").refused("plan")
    for wait in ("1e300", "inf", "nan", "0", "86401"):
        run(f"{size} --city city --max-wait {wait}").refused("86400")
    for cost in ("1e308", "inf", "nan"):
        run(f"apply plan {TRUTH} --city city --shuttle-hour {cost} -o new").refused("--shuttle-hour")
    plan = json.loads(Path("plan/plan.json").read_text())
    for day, says in (("x", "all days"), ([1], "model.day")):
        Path("plan/plan.json").write_text(json.dumps({**plan, "model": {**plan["model"], "day": day}}))
        run(f"apply plan {TRUTH} --city city -o new").refused(says)
    assert not Path("new").exists()


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"a,b\n1,2\n",
        b"\xff\xfe\x00",
        {"format": 2, "kind": "fleet"},
        [],
        {"format": 1, "kind": "menu"},
        {},
    ],
)
def test_a_plan_whose_kind_cannot_be_told(town, content):
    if isinstance(content, bytes):
        Path("strange").write_bytes(content)
    elif content is not None:
        Path("strange").mkdir()
        Path("strange/plan.json").write_text(json.dumps(content))
    done = run(f"apply strange {TRUTH} --city city -o s")
    done.refused()
    assert "--city" not in done.err  # which is not at fault


def test_rows_cannot_be_sized_for(town, released):
    shutil.copytree(released, "rows")
    run("size rows/release --city city -o new").refused()
    truth = "rows/parcels.csv --policy rows/parcels.toml --release rows/release"
    run(f"apply plan {truth} --city city -o new").refused()
    fine("pack rows/release --capacity 500 -o packed")
    run(f"apply packed {truth} --city city -o new").refused("--city")
