# SPDX-License-Identifier: Apache-2.0
"""The planner's and the owner's commands on files: pack, apply, show of a plan; good and bad input."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dunnage.cli import main

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
def inside(monkeypatch, capsys):
    """Run a command in this process: exit code, what was printed, what went wrong."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dunnage", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return int(left.value.code or 0), printed.out, printed.err

    return run


def told(answer: tuple[int, str, str]) -> dict:
    code, out, err = answer
    assert code == 0, err
    return json.loads(out)


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


def sealed_plan(place: Path, capacity: float, more: int = 0) -> None:
    """Write a sealed plan by hand: a bin for every two packages, the lightest class beside the heaviest and so on."""
    (place / "plan").mkdir()
    certificate = json.loads((place / "release" / "certificate.json").read_text())
    lightest = sorted(rows(place / "release" / "data.csv"), key=lambda item: float(item["weight_upper"]))
    classes = [int(item["class_id"]) for item in lightest]
    num = len(classes) // 2
    slots: dict[tuple[int, int], int] = {}
    for at, class_id in enumerate(classes):
        bin_ = min(at, len(classes) - 1 - at)
        slots[bin_, class_id] = slots.get((bin_, class_id), 0) + 1
    slots[0, classes[0]] += more
    lines = [f"{bin_},{class_id},{count}" for (bin_, class_id), count in sorted(slots.items())]
    (place / "plan" / "slots.csv").write_text("bin,class_id,count\n" + "\n".join(lines) + "\n")
    (place / "plan" / "bins.csv").write_text("bin,truck\n" + "".join(f"{bin_},truck\n" for bin_ in range(num)))
    plan = {
        "format": 1,
        "kind": "packing",
        "release": certificate["digest"],
        "objective": num,
        "bound": 1,
        "status": "feasible",
        "seconds": 0.0,
        "model": {"name": "by hand"},
        "quantities": {"weight": "kg"},
        "sealed": True,
        "by": None,
        "apart": None,
        "spread": None,
        "certified": {},
        "trucks": [{"truck": "truck", "capacity": {"weight": capacity}, "count": None, "cost": 1.0}],
        "truck_linkage": {},
        "unplanned": {},
    }
    (place / "plan" / "plan.json").write_text(json.dumps(plan))


def test_a_sealed_plan_is_filled(place):
    sealed_plan(place, 560)
    done = fine("apply", "plan", *APPLY, "-o", "settlement", cwd=place)
    assert done["plan_feasible"] is True
    assert set(done["sealed"]) == {"fills", "exact"}
    assert done["truck_linkage"]["kind"] == ("exact" if done["sealed"]["exact"] else "estimate")
    data = {item["row"]: item["class_id"] for item in rows(place / "release" / "data.csv")}
    truth = {str(n): item for n, item in enumerate(rows(place / "parcels.csv"))}
    filled: dict[tuple[str, str], int] = {}
    loads: dict[str, int] = {}
    for item in rows(place / "settlement" / "loading.csv"):
        slot = item["bin"], data[item["row"]]
        filled[slot] = filled.get(slot, 0) + 1
        loads[item["bin"]] = loads.get(item["bin"], 0) + round(10 * float(truth[item["source_row"]]["weight"]))
    slots = {(item["bin"], item["class_id"]): int(item["count"]) for item in rows(place / "plan" / "slots.csv")}
    assert filled == slots
    assert max(loads.values()) <= 5600


def test_a_sealed_plan_that_overflows_is_no_failure(place):
    sealed_plan(place, 450)
    done = fine("apply", "plan", *APPLY, "-o", "settlement", cwd=place)
    assert done["plan_feasible"] is False
    assert done["overloaded"] != []
    assert fine("apply", "plan", *APPLY, "--repair", "-o", "mended", cwd=place)["repair"]["feasible"]


def test_slots_that_do_not_cover_the_classes_are_refused(place):
    sealed_plan(place, 700, more=1)
    done = dunnage("apply", "plan", *APPLY, "-o", "settlement", cwd=place)
    assert done.returncode == 2
    assert " rows in the release, the slots take " in done.stderr
    assert not (place / "settlement").exists()


TWO_QUANTITIES = """dataset = "parcels"
protects = "package"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
doubling = 50
unit = "kg"
[attributes.volume]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 10]
doubling = 5
unit = "m3"
[mechanism]
name = "full-domain"
k = 2
statistic = "multiset"
max_suppressed = 0
"""


def test_two_quantities(tmp_path):
    amounts = list(itertools.product(range(10, 90, 10), (1, 4, 7)))
    (tmp_path / "two.csv").write_text("weight,volume\n" + "".join(f"{w},{v}\n" for w, v in amounts))
    (tmp_path / "two.toml").write_text(TWO_QUANTITIES)
    fine("publish", "two.csv", "--policy", "two.toml", "-o", "release", cwd=tmp_path)
    (tmp_path / "theirs.csv").write_text("row,bin\n" + "".join(f"{row},{row // 3}\n" for row in range(24)))
    applied = ("theirs.csv", "two.csv", "--policy", "two.toml", "--release", "release")
    room = ("--capacity", "120kg", "--capacity", "volume=10")
    done = fine("apply", *applied, *room, "--repair", "-o", "settlement", cwd=tmp_path)
    assert done["quantities"] == {"weight": "kg", "volume": "m3"}
    assert done["feasible"]
    assert max(done["final_loads"]["weight"]) <= 120
    assert max(done["final_loads"]["volume"]) <= 10
    header = (tmp_path / "settlement" / "loads.csv").read_text().splitlines()[0].replace('"', "")
    assert header == "bin,truck,load_weight,capacity_weight,load_volume,capacity_volume"
    (tmp_path / "trucks.csv").write_text("truck,count,cost,weight,volume\nlorry,,2,120,10\n")
    again = fine("apply", *applied, "--trucks", "trucks.csv", "-o", "other", cwd=tmp_path)
    assert again["overloaded"] == done["overloaded"]
    refused = dunnage("apply", *applied, "--capacity", "120", "-o", "none", cwd=tmp_path)
    assert refused.returncode == 2
    assert "Name it" in refused.stderr


def test_two_quantities_are_packed(tmp_path, inside):
    amounts = list(itertools.product(range(10, 90, 10), (1, 4, 7)))
    (tmp_path / "two.csv").write_text("weight,volume\n" + "".join(f"{w},{v}\n" for w, v in amounts))
    (tmp_path / "two.toml").write_text(TWO_QUANTITIES.replace('"full-domain"', '"partition"').replace("max_sup", "#"))
    told(
        inside("publish", tmp_path / "two.csv", "--policy", tmp_path / "two.toml", "-o", tmp_path / "release", "--json")
    )
    room = ("--capacity", "120kg", "--capacity", "volume=14 m3")
    for model in ("standard", "stochastic", "robust", "sealed"):
        made = told(
            inside("pack", tmp_path / "release", *room, "--model", model, "-o", tmp_path / f"plan-{model}", "--json")
        )
        assert made["quantities"] == {"weight": "kg", "volume": "m3"}
        assert made["trucks"][0]["capacity"] == {"weight": 120, "volume": 14}
        applied = ("two.csv", "--policy", "two.toml", "--release", "release")
        applied = tuple(word if word.startswith("--") else tmp_path / word for word in applied)
        settled = ("-o", tmp_path / f"settlement-{model}", "--json")
        done = told(inside("apply", tmp_path / f"plan-{model}", *applied, *settled))
        assert done["plan_feasible"] or model == "stochastic"
        if done["plan_feasible"]:
            assert max(done["final_loads"]["weight"]) <= 120
            assert max(done["final_loads"]["volume"]) <= 14
    for bad, message in (
        (("--capacity", "120"), "Name it: weight=120"),
        (("--capacity", "120kg", "--capacity", "9kg"), "released in m3"),
        (("--capacity", "120kg", "--capacity", "height=9"), "no quantity 'height'"),
        (("--capacity", "volume=9", "--capacity", "volume=8"), "two capacities"),
    ):
        code, _, err = inside("pack", tmp_path / "release", *bad, "-o", tmp_path / "none")
        assert code == 2
        assert message in err


def test_without_multisets_the_models_that_fit_are_named(tmp_path, inside):
    (tmp_path / "w.csv").write_text("weight,volume\n" + "".join(f"{w},{w % 3}\n" for w in range(10, 40)))
    text = TWO_QUANTITIES.replace('"full-domain"', '"partition"').replace("max_sup", "#").replace("multiset", "bounds")
    (tmp_path / "w.toml").write_text(text)
    told(inside("publish", tmp_path / "w.csv", "--policy", tmp_path / "w.toml", "-o", tmp_path / "release", "--json"))
    pack = ("pack", tmp_path / "release", "--capacity", "weight=120")
    for more, word in ((("--statistic", "mean"), "upper bound"), (("--model", "robust"), "standard model")):
        code, _, err = inside(*pack, *more, "-o", tmp_path / "plan")
        assert code == 2
        assert word in err
    for model in ("stochastic", "sealed"):
        made = told(inside(*pack, "--model", model, "-o", tmp_path / model, "--json"))
        assert "bound" in made["certified"]["rests_on"] + made["model"].get("from", "")


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
        (("--capacity", "500kg", "--capacity", "volume=3"), "no quantity 'volume'"),
        (("--capacity", "500kg", "--capacity", "400kg"), "may be of weight"),
        (("--capacity", "0"), "positive number"),
        ((), "either a capacity or trucks"),
        (("--capacity", "500", "--by", "weight"), "public column only"),
        (("--capacity", "500", "--statistic", "median"), "one of upper, mean"),
        (("--capacity", "500", "--apart", "parcel_id"), "public column only"),
        (("--capacity", "500", "--model", "exact"), "one of standard, robust, stochastic, sealed"),
        (("--capacity", "500", "--model", "sealed", "--risk", "0.1"), "does not take --risk"),
        (("--capacity", "500", "--model", "standard", "--risk", "0.1"), "does not take --risk"),
        (("--capacity", "500", "--risk", "0.1", "--statistic", "mean"), "does not take --statistic"),
        (("--capacity", "500", "--prior", "uniform"), "without classes"),
        (("--capacity", "500", "--prior", "flat"), "uniform or normal"),
        (("--capacity", "500", "--margin", "1"), "margin must be"),
        (("--capacity", "500", "--as-published"), "does not take --as-published"),
        (("--capacity", "500", "--model", "stochastic", "--statistic", "mean"), "does not take --statistic"),
        (("--capacity", "500", "--model", "stochastic", "--budget", "items"), "does not take --budget"),
        (("--capacity", "500", "--model", "robust", "--budget", "all"), "largest, items, published"),
        *(
            (("--capacity", "500", "--model", "stochastic", "--risk", risk), "risk")
            for risk in ("1", "-0.1", "nan", "x")
        ),
        (("--capacity", "500", "--model", "robust", "--risk", "0"), "more than 0"),
        (("--capacity", "500", "--spread", "0"), "spread must be"),
        (("--capacity", "500", "--spread", "1.5"), "--spread"),
        (("--capacity", "500", "--model", "stochastic", "--as-published", "--spread", "2"), "without as_published"),
        (("--capacity", "500", "--model", "stochastic", "--as-published", "--by", "destination"), "as_published"),
        (("--capacity", "500", "--trucks", "nothing.csv"), "cannot be read"),
        (("--trucks", "nothing.csv"), "cannot be read"),
    ],
)
def test_bad_requests_to_pack(inside, released, tmp_path, options, message):
    code, _, err = inside("pack", released / "release", *options, "-o", tmp_path / "plan")
    assert code == 2
    assert err.startswith("error: ")
    assert message in err
    assert not (tmp_path / "plan").exists()


FIXED = ("format", "release", "objective", "bound", "gap", "status", "seconds", "model", "unplanned", "truck_linkage")


@pytest.mark.parametrize(
    "options",
    [
        ("--statistic", "mean"),
        ("--model", "stochastic"),
        ("--model", "stochastic", "--risk", "0"),
        ("--model", "stochastic", "--as-published", "--time-limit", "1"),
        ("--model", "robust"),
        ("--model", "robust", "--budget", "items"),
        ("--model", "robust", "--budget", "published", "--risk", "0.01"),
        ("--model", "sealed", "--by", "destination"),
        ("--model", "sealed", "--by", "destination", "--spread", "2"),
        ("--model", "stochastic", "--by", "destination", "--spread", "3"),
        ("--spread", "4", "--apart", "destination"),
    ],
)
def test_every_model_on_files(inside, released, tmp_path, options):
    made = told(
        inside("pack", released / "release", "--capacity", "800kg", *options, "-o", tmp_path / "plan", "--json")
    )
    written = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert {**written, "plan": made["plan"]} == made
    assert set(FIXED) <= set(written)
    assert {"mean", "worst", "kind"} <= set(written["truck_linkage"])
    assert written["sealed"] is ("sealed" in options)
    assert (tmp_path / "plan" / "assignment.csv").exists() is not written["sealed"]
    assert (tmp_path / "plan" / "slots.csv").exists() is written["sealed"]
    if written["sealed"]:
        slots = rows(tmp_path / "plan" / "slots.csv")
        assert list(slots[0]) == ["bin", "class_id", "count"]
        assert sum(int(line["count"]) for line in slots) == 60
    code, out, _ = inside("show", tmp_path / "plan")
    assert code == 0
    assert written["model"]["name"] in out
    assert "names its truck with" in out
    again = told(inside("show", tmp_path / "plan", "--json"))
    assert {name: again[name] for name in FIXED} == {name: written[name] for name in FIXED}
    truth = ("--policy", released / "parcels.toml", "--release", released / "release")
    applied = ("apply", tmp_path / "plan", released / "parcels.csv", *truth, "-o", tmp_path / "settlement", "--json")
    done = told(inside(*applied))
    if written["certified"]["at_least"] == 1:
        assert done["plan_feasible"] is True


def test_no_plan_is_exit_code_one(inside, released, tmp_path):
    sizes: dict[str, int] = {}
    for line in rows(released / "release" / "data.csv"):
        sizes[line["class_id"]] = sizes.get(line["class_id"], 0) + 1
    smallest = min(sizes.values())
    for model in ("standard", "stochastic", "robust", "sealed"):
        asked = ("--capacity", "800", "--model", model, "--spread", smallest + 1)
        code, _, err = inside("pack", released / "release", *asked, "-o", tmp_path / "plan")
        assert code == 1
        assert f"The largest spread is {smallest}" in err
    (tmp_path / "few.csv").write_text("truck,count,cost,weight\nvan,1,1,300\nlorry,1,2,500\n")
    for model in ("standard", "stochastic", "robust", "sealed"):
        asked = ("--trucks", tmp_path / "few.csv", "--model", model)
        code, _, err = inside("pack", released / "release", *asked, "-o", tmp_path / "plan")
        assert code == 1
        assert err.startswith("error: no ")
    assert not (tmp_path / "plan").exists()


def test_several_kinds_of_truck(inside, released, tmp_path):
    (tmp_path / "trucks.csv").write_text("truck,count,cost,weight\nvan,4,2.5,400\nlorry,,4,800.5\n")
    trucks = ("--trucks", tmp_path / "trucks.csv", "--time-limit", "2")
    asked = (*trucks, "--model", "stochastic", "-o", tmp_path / "plan", "--json")
    made = told(inside("pack", released / "release", *asked))
    used = [line["truck"] for line in rows(tmp_path / "plan" / "bins.csv")]
    assert made["minimises"] == "cost"
    assert made["objective"] == 2.5 * used.count("van") + 4 * used.count("lorry")
    assert used.count("van") <= 4
    assert made["gap"] == pytest.approx(made["objective"] - made["bound"])
    assert "used at 2.5" in inside("show", tmp_path / "plan")[1]


@pytest.mark.parametrize(
    "text",
    [
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
    ],
)
def test_trucks_that_make_no_sense(inside, released, tmp_path, text):
    (tmp_path / "trucks.csv").write_text(text, encoding="latin-1")
    code, _, err = inside("pack", released / "release", "--trucks", tmp_path / "trucks.csv", "-o", tmp_path / "plan")
    assert code == 2
    assert err.startswith("error: ")
    assert not (tmp_path / "plan").exists()


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
