"""Plan: written and read back, malformed folders refused, truck linkage by counting."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import a_policy
from tests.settle_help import published

import dunnage as dn
from dunnage.errors import InputError, ParameterError
from dunnage.planning.linkage import truck_linkage
from dunnage.planning.models import Standard
from dunnage.planning.plan import Certified, Linkage, Plan, Slots, Unplanned, read_assignment
from dunnage.planning.trucks import Truck, parse_capacities, read_trucks
from dunnage.showing.text import release_text


def small_plan(**changes: Any) -> Plan:
    """Five rows, two trucks of one kind and one of another."""
    content = {
        "release": "a" * 64,
        "bin_of_row": np.array([0, 0, 1, 2, 2]),
        "truck_of_bin": ("van", "van", "lorry"),
        "trucks": (Truck(name="van", capacity={"weight": 50.5}), Truck(name="lorry", capacity={"weight": 90}, count=4)),
        "model": Standard().describe(),
        "bound": 2,
        "seconds": 0.25,
        "quantities": {"weight": "kg"},
        "by": None,
        "truck_linkage": Linkage(mean=0.5, worst=1.0, kind="exact"),
        "unplanned": Unplanned(count=3, suppressed=3),
    }
    return Plan(**{**content, **changes})


def test_plans_come_back_from_their_folders(tmp_path: Path) -> None:
    rows, sealed = small_plan(by="destination"), sealed_plan()
    external = small_plan(external=True, bin_of_row=np.array([0, 0, 2, 2, 2]), truck_linkage=None)
    for plan in (rows, sealed, external, rows):  # each replaces the one before, whatever its files
        plan.write(tmp_path / "plan", force=True)
        again = Plan.read(tmp_path / "plan")
        assert (again.to_dict(), again.truck_of_bin, again.trucks) == (plan.to_dict(), plan.truck_of_bin, plan.trucks)
        assert again.capacity_of_bins("weight").tolist() == [50.5, 50.5, 90]
        assert (tmp_path / "plan" / "slots.csv").exists() == (plan is sealed)
        assert (tmp_path / "plan" / "assignment.csv").exists() == (plan is not sealed)
        if plan is sealed:
            text = (tmp_path / "plan" / "slots.csv").read_text()
            assert text == "bin,class_id,count\n0,0,2\n1,0,1\n1,1,1\n2,1,3\n"
            assert again.slots.table(3, 2).tolist() == [[2, 0], [1, 1], [0, 3]]
            assert (again.to_dict()["sealed"], again.spread, again.apart) == (True, 2, "day")
        else:
            assert again.bin_of_row.tolist() == plan.bin_of_row.tolist()
        content = json.loads((tmp_path / "plan" / "plan.json").read_text())
        assert set(FIXED) <= set(content)
        assert plan is external or {"mean", "worst", "kind"} <= set(content["truck_linkage"])
        assert (content["format"], content["minimises"]) == (1, "cost")
        assert again.status == ("external" if plan is external else "feasible")
        assert again.summary()


def sealed_plan(**changes: Any) -> Plan:
    """Three bins of classes 0 and 1."""
    slots = Slots(np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1]), np.array([2, 1, 1, 3]))
    certified = Certified(at_least=1.0, at_most=1.0, rests_on="the owner")
    own = {"bin_of_row": None, "slots": slots, "spread": 2, "apart": "day", "certified": certified}
    return small_plan(**{**own, **changes})


def test_sides_of_boxes_are_not_added_up_in_silence() -> None:
    trucks = (Truck(name="van", capacity={"height": 250.0, "length": 600.0}),)
    sides = small_plan(trucks=trucks, truck_of_bin=("van",) * 3, quantities={"height": "cm", "length": "cm"})
    assert sides.summary().startswith("CAUTION     height and length are lengths")
    floor = {"weight": "kg", "length": "m"}  # metres of the loading floor do add up
    assert small_plan(trucks=trucks, truck_of_bin=("van",) * 3, quantities=floor).cautions == ()


def test_a_plan_says_what_it_does_not_limit_and_when_the_release_saves_nothing(tmp_path: Path) -> None:
    """Both were exit 0 without a word: volumes that no truck has a capacity for, and noise packed as the largest."""
    weights, volumes = [100.0, 200.0, 300.0, 400.0] * 3, [9.0, 8.0, 7.0, 6.0] * 3
    release = published(weights, 2, "bounds", volume=volumes)
    alone, both = (dn.pack(release, capacity=given, seconds=1) for given in ("1500kg", ["1500kg", "volume=100"]))
    assert ["volume" in text for text in alone.cautions] == [True]
    assert both.cautions == ()
    alone.write(tmp_path / "plan")
    assert Plan.read(tmp_path / "plan").cautions == alone.cautions
    domain = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 500], "resolution": 1, "unit": "kg"}
    policy = a_policy({"name": "noisy-values", "epsilon": 1}, {"weight": domain})
    noisy, _ = dn.publish(dn.load(pa.table({"weight": weights}), policy), ledger=":memory:")
    useless = dn.pack(noisy, capacity="1500kg", seconds=1)
    assert useless.num_bins == 4
    assert ["mostly noise" in text or "saves no truck" in text for text in useless.cautions] == [True, True]
    assert "mostly noise" in release_text(noisy)


def test_a_margin_comes_back_and_older_plans_have_none(tmp_path: Path) -> None:
    for margin in (None, 0, 0.05, "1/3"):
        small_plan(margin=margin).write(tmp_path / "plan", force=True)
        assert Plan.read(tmp_path / "plan").margin == margin
    file = tmp_path / "plan" / "plan.json"
    content = json.loads(file.read_text())
    for bad in (1, -0.1, "x", True, [0.05]):
        file.write_text(json.dumps({**content, "margin": bad}))
        with pytest.raises(InputError, match="margin"):
            Plan.read(tmp_path / "plan")
    del content["margin"]
    file.write_text(json.dumps(content))
    assert Plan.read(tmp_path / "plan").margin is None


def test_plans_that_cannot_be_or_not_be_written(tmp_path: Path) -> None:
    for changes in ({"slots": sealed_plan().slots}, {"bin_of_row": None}):
        with pytest.raises(ParameterError):
            small_plan(**changes)
    with pytest.raises(ParameterError):
        _ = sealed_plan().assignment
    with pytest.raises(ParameterError):  # made on the truth, it stays with the owner
        small_plan(private=True).write(tmp_path / "plan")
    assert not (tmp_path / "plan").exists()


FIXED = ("format", "release", "objective", "bound", "gap", "status", "seconds", "model", "unplanned", "truck_linkage")


def test_costs_and_capacities() -> None:
    kinds = [Truck(name=n, capacity={"weight": w}, cost=c) for n, w, c in (("van", 5, 0.1), ("lorry", 9, 0.3))]
    plan = small_plan(trucks=tuple(kinds), truck_of_bin=("van", "van", "van"), bound=0.3)
    assert (plan.objective, plan.gap, plan.status) == (0.3, 0, "optimal")
    assert (small_plan().status, small_plan().gap, small_plan(bound=3).status) == ("feasible", 1, "optimal")
    good = {"500": 500, 500: 500, 2.5: 2.5, "500kg": 500, " 0.5 kg ": 0.5, "weight=1e3 kg": 1000}
    for text, value in good.items():
        assert parse_capacities([text], {"weight": "kg"}) == {"weight": value}
    for bad in ("", "kg", "0", "-5", "nan", "inf", "500t", "volume=9", "5,5", "1e999", "True"):
        with pytest.raises(ParameterError):
            parse_capacities([bad], {"weight": "kg"})
    both = {"weight": "kg", "volume": "m3"}
    assert parse_capacities(["500kg", "volume=9"], both) == {"weight": 500.0, "volume": 9.0}


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in JSON."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


STRANGE = [None, True, -1, 0.5, float("inf"), float("nan"), 2**70, "x", "", [], {}, [1], {"a": 1}, [["a", 1]]]


@pytest.mark.parametrize("make", [small_plan, sealed_plan])
def test_any_value_replaced_is_read_or_refused_as_input(make: Any, tmp_path: Path) -> None:
    make().write(tmp_path / "plan")
    file = tmp_path / "plan" / "plan.json"
    content = json.loads(file.read_text())
    refused = 0
    for path in places(content):
        for value in (*STRANGE, ...):
            changed = copy.deepcopy(content)
            holder = changed
            for key in path[:-1]:
                holder = holder[key]
            if value is ...:
                del holder[path[-1]]
            else:
                holder[path[-1]] = value
            file.write_text(json.dumps(changed))
            try:
                plan = Plan.read(tmp_path / "plan")
            except InputError:
                refused += 1
                continue
            assert plan.summary()
            json.dumps(plan.to_dict())
    assert refused > 200


def test_whatever_is_no_plan_is_refused(tmp_path: Path) -> None:
    small_plan().write(tmp_path / "plan")
    for text in ("", "{", "[]", "[" * 100_000, "\xff\xfe", '{"format": 2}', "9" * 5000):
        (tmp_path / "plan" / "plan.json").write_text(text, encoding="latin-1")
        with pytest.raises(InputError, match=r"plan\.json"):
            Plan.read(tmp_path / "plan")
    for name in ("plan.json", "bins.csv", "assignment.csv"):
        small_plan().write(tmp_path / name)
        (tmp_path / name / name).unlink()
        with pytest.raises(InputError, match=name):
            Plan.read(tmp_path / name)
    sealed_plan().write(tmp_path / "sealed")
    (tmp_path / "sealed" / "slots.csv").rename(tmp_path / "sealed" / "assignment.csv")
    with pytest.raises(InputError, match=r"slots\.csv"):
        Plan.read(tmp_path / "sealed")


def test_malformed_tables_are_refused(tmp_path: Path) -> None:
    bins, rows, slots = "bin,truck\n", "row,bin\n", "bin,class_id,count\n"
    cells = ("0,-1", "x,1", "0,1.5", f"0,{'9' * 40}", "0,\u0661\u0662,\n1,0,\xb2")
    tables = {
        "bins.csv": [
            *(f"{bins}0,van\n{more}" for more in ("1,van\n", "2,van\n1,lorry\n", "1,van\n2,ship\n", "1\n2,lorry\n")),
            "truck,bin\n",
        ],
        "assignment.csv": [rows + "0,0\n1,0\n2,1\n4,2\n", rows + "0,0\n1,0\n1,1\n", rows + "0,0\n1,-1\n", rows, ""],
        "slots.csv": [
            *("", slots, "class_id,bin,count\n0,0,1\n", "bin,class_id\n0,0\n"),
            *(slots + line + "\n" for line in ("0,0", "0,0,0", "0,0,1\n1,0,1\n0,0,2", "0,0,1\n3,1,1")),
            *(f"{slots}0,{cell}\n" for cell in cells),
        ],
    }
    taken = []
    for number, (name, text) in enumerate((name, text) for name, texts in tables.items() for text in texts):
        folder = (sealed_plan if name == "slots.csv" else small_plan)().write(tmp_path / str(number))
        assert Plan.read(folder)
        (folder / name).write_text(text, encoding="utf-8")
        with suppress(InputError):
            Plan.read(folder)
            taken.append((name, text))
    assert taken == []


def test_values_that_no_plan_has_are_refused(tmp_path: Path) -> None:
    file = sealed_plan().write(tmp_path / "plan") / "plan.json"
    content = json.loads(file.read_text())
    changes: list[tuple[str, Any]] = [
        *(("spread", value) for value in (0, -2, 2.0)),
        ("bound", 4),
        ("truck_linkage", {"mean": 1.5, "worst": 2, "kind": "exact"}),
        ("certified", {"at_least": 0.9}),
        ("certified", {"at_least": -0.5, "at_most": 1}),
        ("quantities", {}),
        ("quantities", {"volume": "m3"}),
        ("objective", 2),
        ("sealed", "yes"),
    ]
    for name, value in changes:
        file.write_text(json.dumps({**content, name: value}))
        with pytest.raises(InputError):
            Plan.read(tmp_path / "plan")


def test_assignments_of_another_solver(tmp_path: Path) -> None:
    file = tmp_path / "theirs.csv"
    file.write_text("row,bin,why\n2,70,x\n0,7,y\n\n1,70,z\n")
    assert read_assignment(file).tolist() == [0, 1, 1]
    wrong = ("0,1\n", "0,1\n1,1\n2,1\n7,1\n", "0,1\n1,1\n2,1\n2,1\n", "0,1\n1,1\n999999999,1\n")
    wrong += (f"0,1\n1,1\n{'9' * 5000},1\n", "0,1\n1,1\n2,1.5\n", "0,1\n1,x\n2,\n")
    taken = []
    for text in (*(f"row,bin\n{lines}" for lines in wrong), "0,1\n1,1\n2,1\n"):
        file.write_text(text)
        with suppress(InputError):
            read_assignment(file, num_rows=3)
            taken.append(text)
    assert taken == []
    for path in (tmp_path, tmp_path / "nothing", tmp_path / "nul\0"):
        with pytest.raises(InputError):
            read_assignment(path)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=40))
def test_truck_linkage_is_the_best_guess_by_counting(rows: list[tuple[int, int]]) -> None:
    guesses = []
    for class_id, _ in rows:
        trucks = Counter(bin_ for other, bin_ in rows if other == class_id)
        guesses.append(max(trucks.values()) / sum(trucks.values()))
    found = truck_linkage(np.array([c for c, _ in rows]), np.array([b for _, b in rows]))
    assert (found.kind, found.mean) == ("exact", pytest.approx(sum(guesses) / len(guesses)))
    assert found.worst == pytest.approx(max(guesses))


def test_trucks_are_read_or_refused(tmp_path: Path) -> None:
    file, weight = tmp_path / "trucks.csv", "truck,count,cost,weight"
    file.write_text(f"{weight}\nvan,3,1.5,500\nlorry,,,900.5\n")
    van, lorry = read_trucks(file, ["weight"])
    assert van == Truck(name="van", capacity={"weight": 500}, count=3, cost=1.5)
    assert lorry == Truck(name="lorry", capacity={"weight": 900.5})
    lines = ("van,1,1,0", "van,-1,1,5", "van,x,1,5", "van,1,1,nan", "van,1,1", " ,1,1,5", "van,1,1,5\nvan,1,1,5")
    texts = ["truck,count,cost\nvan,1,1\n", f"{weight}\n", *(f"{weight}\n{line}\n" for line in lines)]
    taken = []
    texts += [f"{weight}{more}\nvan,1,1,400,3\n" for more in (",volum", ",weight", "")]
    for text in texts:
        file.write_text(text)
        with suppress(InputError):
            read_trucks(file, ["weight", "volume"])
            taken.append(text)
    assert taken == []
