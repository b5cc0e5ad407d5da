"""Plan: written and read back, malformed folders refused, truck linkage by counting."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dunnage.errors import InputError, ParameterError
from dunnage.planning.plan import Plan, Truck, parse_capacity, read_assignment, read_trucks, truck_linkage


def small_plan(**changes: Any) -> Plan:
    """Five rows, two trucks of one kind and one of another."""
    content = {
        "release": "a" * 64,
        "bin_of_row": np.array([0, 0, 1, 2, 2]),
        "truck_of_bin": ("van", "van", "lorry"),
        "trucks": (Truck(name="van", capacity={"weight": 50.5}), Truck(name="lorry", capacity={"weight": 90}, count=4)),
        "model": {"name": "standard", "statistic": "upper", "quantity": "weight"},
        "bound": 2,
        "seconds": 0.25,
        "unit": "kg",
        "by": None,
        "truck_linkage": {"mean": 0.5, "worst": 1.0, "kind": "exact"},
        "unplanned": {"count": 3, "suppressed": 3},
    }
    return Plan(**{**content, **changes})


def test_a_plan_comes_back_from_its_folder(tmp_path: Path) -> None:
    plan = small_plan(by="destination")
    plan.write(tmp_path / "plan")
    again = Plan.read(tmp_path / "plan")
    assert again.to_dict() == plan.to_dict()
    assert again.bin_of_row.tolist() == plan.bin_of_row.tolist()
    assert again.truck_of_bin == plan.truck_of_bin
    assert again.trucks == plan.trucks
    assert again.capacity_of_bins("weight").tolist() == [50.5, 50.5, 90]
    assert "at least 2 needed: feasible" in again.summary()


def test_an_external_plan_and_an_empty_bin_come_back(tmp_path: Path) -> None:
    plan = small_plan(external=True, bin_of_row=np.array([0, 0, 2, 2, 2]), truck_linkage={})
    plan.write(tmp_path / "plan")
    again = Plan.read(tmp_path / "plan")
    assert again.status == "external"
    assert again.bin_of_row.tolist() == [0, 0, 2, 2, 2]


def test_status_and_gap() -> None:
    assert (small_plan().status, small_plan().gap) == ("feasible", 1)
    assert small_plan(bound=3).status == "optimal"


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in JSON."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


STRANGE = [None, True, -1, 0.5, float("inf"), float("nan"), 2**70, "x", "", [], {}, [1], {"a": 1}, [["a", 1]]]


def test_any_value_replaced_is_read_or_refused_as_input(tmp_path: Path) -> None:
    small_plan().write(tmp_path / "plan")
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


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, "\xff\xfe", '{"format": 2}', "9" * 5000])
def test_whatever_is_no_plan_file_is_refused(tmp_path: Path, text: str) -> None:
    small_plan().write(tmp_path / "plan")
    (tmp_path / "plan" / "plan.json").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"plan\.json"):
        Plan.read(tmp_path / "plan")


@pytest.mark.parametrize("name", ["plan.json", "bins.csv", "assignment.csv"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    small_plan().write(tmp_path / "plan")
    (tmp_path / "plan" / name).unlink()
    with pytest.raises(InputError, match=name):
        Plan.read(tmp_path / "plan")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bins.csv", "bin,truck\n0,van\n1,van\n", "bin without a truck"),
        ("bins.csv", "bin,truck\n0,van\n2,van\n1,lorry\n", "not the next bin"),
        ("bins.csv", "bin,truck\n0,van\n1,van\n2,ship\n", "not a plan"),
        ("bins.csv", "bin,truck\n0,van\n1\n2,lorry\n", "too few cells"),
        ("bins.csv", "truck,bin\n", "header"),
        ("assignment.csv", "row,bin\n0,0\n1,0\n2,1\n4,2\n", "row 3 is missing"),
        ("assignment.csv", "row,bin\n0,0\n1,0\n1,1\n", "row 1 stands in it more than once"),
        ("assignment.csv", "row,bin\n0,0\n1,-1\n", "no whole number in row 2"),
        ("assignment.csv", "row,bin\n", "assigns no row"),
        ("assignment.csv", "", "header"),
    ],
)
def test_malformed_tables_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    small_plan().write(tmp_path / "plan")
    (tmp_path / "plan" / name).write_text(text)
    with pytest.raises(InputError, match=message):
        Plan.read(tmp_path / "plan")


def test_bins_of_another_solver_may_have_gaps(tmp_path: Path) -> None:
    file = tmp_path / "theirs.csv"
    file.write_text("row,bin,why\n2,70,x\n0,7,y\n\n1,70,z\n")
    assert read_assignment(file).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row,bin\n0,1\n", "row 1, 2 is missing"),
        ("row,bin\n0,1\n1,1\n2,1\n7,1\n", "no row 7"),
        ("row,bin\n0,1\n1,1\n2,1\n2,1\n", "row 2 stands"),
        ("row,bin\n0,1\n1,1\n999999999,1\n", "row 2 is missing"),
        (f"row,bin\n0,1\n1,1\n{'9' * 5000},1\n", "no whole number"),
        ("row,bin\n0,1\n1,1\n2,1.5\n", "no whole number"),
        ("row,bin\n0,1\n1,x\n2,\n", "no whole number"),
        ("0,1\n1,1\n2,1\n", "header"),
    ],
)
def test_an_assignment_that_does_not_cover_the_release_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "theirs.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_assignment(file, num_rows=3)


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
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
    assert found["kind"] == "exact"
    assert found["mean"] == pytest.approx(sum(guesses) / len(guesses))
    assert found["worst"] == pytest.approx(max(guesses))


@pytest.mark.parametrize(
    ("text", "value"),
    [("500", 500), (500, 500), (2.5, 2.5), ("500kg", 500), (" 0.5 kg ", 0.5), ("weight=1e3 kg", 1000)],
)
def test_capacities(text: str | float, value: float) -> None:
    assert parse_capacity(text, "weight", "kg") == value


@pytest.mark.parametrize("text", ["", "kg", "0", "-5", "nan", "inf", "500t", "volume=9", "5,5", "1e999", "True"])
def test_capacities_that_make_no_sense(text: str) -> None:
    with pytest.raises(ParameterError):
        parse_capacity(text, "weight", "kg")


def test_trucks_are_read(tmp_path: Path) -> None:
    file = tmp_path / "trucks.csv"
    file.write_text("truck,count,cost,weight\nvan,3,1.5,500\nlorry,,,900.5\n")
    van, lorry = read_trucks(file, ["weight"])
    assert van == Truck(name="van", capacity={"weight": 500}, count=3, cost=1.5)
    assert lorry == Truck(name="lorry", capacity={"weight": 900.5})


@pytest.mark.parametrize(
    "text",
    [
        "truck,count,cost\nvan,1,1\n",
        "truck,count,cost,weight\n",
        "truck,count,cost,weight\nvan,1,1,0\n",
        "truck,count,cost,weight\nvan,-1,1,5\n",
        "truck,count,cost,weight\nvan,x,1,5\n",
        "truck,count,cost,weight\nvan,1,1,nan\n",
        "truck,count,cost,weight\nvan,1,1\n",
        "truck,count,cost,weight\n ,1,1,5\n",
        "truck,count,cost,weight\nvan,1,1,5\nvan,1,1,5\n",
    ],
)
def test_trucks_that_make_no_sense(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trucks.csv"
    file.write_text(text)
    with pytest.raises(InputError):
        read_trucks(file, ["weight"])
