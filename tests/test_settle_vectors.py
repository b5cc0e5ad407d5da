# SPDX-License-Identifier: Apache-2.0
"""apply with several quantities, several kinds of truck, columns kept apart, and records of several rows."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.settle_help import Published, truck

from dunnage.errors import InputError, ParameterError
from dunnage.noise.source import Noise
from dunnage.settle import repair
from dunnage.settle.repair import Fill, repair_task

UNITS = {"weight": "kg", "volume": "m3"}


def published(columns: Any, k: int = 2, **more: Any) -> Published:
    return Published(columns, k, name="full-domain", **more)


@pytest.fixture(scope="module")
def both() -> Published:
    return published({"weight": [10, 20, 30, 40], "volume": [1, 2, 3, 4]})


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_bin_overflows_if_one_of_its_quantities_does(data: st.DataObject) -> None:
    decimals = data.draw(st.sampled_from([0, 1, 3, 13]))
    weight = st.integers(0, 10 ** (decimals + 2)).map(lambda whole: float(f"{whole}e-{decimals}"))
    volume = st.integers(0, 500).map(lambda whole: whole / 10)
    rows = data.draw(st.lists(st.tuples(weight, volume, st.integers(0, 2)), min_size=4, max_size=12))
    weights, volumes, bins = (list(column) for column in zip(*rows, strict=True))
    room = (data.draw(st.sampled_from([50.0, 99.9, 123.4567890123])), data.draw(st.sampled_from([20.0, 55.5])))
    case = published({"weight": weights, "volume": volumes})
    plan = case.plan(bins, [truck(*room)])
    done = case.apply(plan)
    loads = case.loads(plan.assignment.tolist(), plan.num_bins)
    over = [
        {"bin": b, "quantity": name, "load": float(load), "capacity": most}
        for b, line in enumerate(loads)
        for name, load, most in zip(UNITS, line, room, strict=True)
        if load > Fraction(repr(most))
    ]
    assert [item.plain() for item in done.overloaded] == over
    assert done.plan_feasible is (not over)
    assert done.bins_feasible == pytest.approx(1 - len({item["bin"] for item in over}) / plan.num_bins)
    case.check(done)


def test_loads_are_exact_however_long_their_decimals() -> None:
    """A gram of weight and a litre of volume both count, whatever their units."""
    case = published({"weight": [100.0, 100.0, 100.001, 1.0], "volume": [1.0, 2.0, 3.0, 50.0]})
    for room, fits in (((100.001, 50), True), ((100, 50), False), ((100.001, 49.999), False)):
        task = repair_task(case.plan([0, 1, 2, 3], [truck(*room)]), case.amounts, case.release, Noise(seed=1))
        fill = Fill.of(task, task.start)
        assert (fill.overload == 0, len(fill.overloaded) == 0) == (fits, fits), room
    # Sums of these need more than 64 bits in units of the last digit.
    weights, volumes = [123.45678901234567, 200.0, 3e-13, 4.0], [1.0, 2e-12, 3.0, 99.99999999999999]
    case = published({"weight": weights, "volume": volumes})
    assert case.settle(case.plan([0, 0, 1, 1], [truck(323.4567890123457, 200)])).overloaded == []
    done = case.settle(case.plan([0, 0, 1, 1], [truck(323.4567890123456, 200)]), repair=True)
    assert ([item.bin for item in done.overloaded], done.feasible) == ([0], True)


def test_several_quantities_are_told_apart_in_files(both: Published, tmp_path: Path) -> None:
    done = both.apply(both.plan([0, 0, 1, 1], [truck(60, 5)]), repair=False)
    content = done.to_dict()
    assert content["quantities"] == UNITS
    assert "quantity" not in content
    assert content["loads"] == {"weight": [30, 70], "volume": [3, 7]}
    assert content["capacities"] == {"weight": [60, 60], "volume": [5, 5]}
    assert content["final_loads"] == content["loads"]
    assert [(item["bin"], item["quantity"]) for item in content["overloaded"]] == [(1, "weight"), (1, "volume")]
    done.write(tmp_path / "settlement")
    with (tmp_path / "settlement" / "loads.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert list(lines[0]) == ["bin", "truck", "load_weight", "capacity_weight", "load_volume", "capacity_volume"]
    assert [float(line["load_volume"]) for line in lines] == [3, 7]
    alone = published({"weight": [10, 20, 30, 40]})
    content = alone.apply(alone.plan([0, 0, 1, 1], [truck(60)])).to_dict()
    assert (content["quantity"], content["unit"], content["quantities"]) == ("weight", "kg", {"weight": "kg"})
    assert content["loads"] == [30, 70]
    json.dumps(content, allow_nan=False)


@pytest.mark.parametrize(("seed", "apart"), [(0, None), (1, "town")])
def test_repaired_plans_of_vectors_hold(seed: int, apart: str | None) -> None:
    generator = np.random.default_rng(seed)
    towns = generator.choice(["A", "B"], 24)
    case = published({**drawn_columns(generator, 24, 400, 40), "town": towns.tolist()}, k=3)
    bins = np.unique(generator.integers(0, 4, 24) * 2 + (towns == "B"), return_inverse=True)[1]
    plan = case.plan(bins.tolist(), [truck(800, 70)], apart=apart)
    done = case.settle(plan, repair=True)
    assert (done.plan_feasible, done.feasible) == (False, True)
    held = {(bin_, town) for bin_, town in zip(done.bin_of_row.tolist(), case.column("town"), strict=True)}
    assert len(held) == len({bin_ for bin_, _ in held}), "the plan kept towns apart, so the repair does"
    few = replace(plan, trucks=(replace(plan.trucks[0], count=plan.num_bins),))
    done = case.settle(few, repair=True, leave_behind=True)
    assert (done.feasible, len(done.truck_of_bin)) == (True, plan.num_bins)


def drawn_columns(generator: np.random.Generator, num: int, weight: float, volume: float) -> dict[str, Any]:
    return {"weight": generator.uniform(20, weight, num).round(1), "volume": generator.uniform(1, volume, num).round(2)}


def test_repairs_by_hand() -> None:
    # Weights are equal, so only volumes say which exchange helps: 1 + 4 and 2 + 3, not 2 + 4.
    case = published({"weight": [10, 10, 300, 300], "volume": [1, 2, 3, 4]}, k=2)
    done = case.settle(case.plan([1, 0, 1, 0], [truck(310, 5)]), repair=True)
    assert [item.quantity for item in done.overloaded] == ["volume"]
    assert (done.feasible, done.repair.moved, done.repair.opened) == (True, 0, 0)
    assert done.repair.repairs_found == 2
    kinds = [truck(100), truck(300, name="lorry", cost=2.0), truck(120, name="van", cost=0.5)]
    case = published({"weight": [60, 61, 90, 90]}, k=2)
    done = case.settle(case.plan([0, 0, 0, 0], kinds, ["lorry"]), repair=True)
    assert (done.plan_feasible, done.truck_of_bin) == (False, ("lorry", "van"))
    kinds = [truck(100, count=2), truck(200, name="lorry", cost=3.0, count=1), truck(60, name="van", cost=0.4, count=2)]
    case = published({"weight": [50, 51, 52, 53, 54, 55, 90, 95]}, k=2)
    done = case.settle(case.plan([0] * 8, kinds, ["truck"]), repair=True)
    assert Counter(done.truck_of_bin) == {"truck": 2, "lorry": 1, "van": 2}
    assert not done.feasible, "eight packages, and room for seven"
    left = case.settle(case.plan([0] * 8, kinds, ["truck"]), leave_behind=True)
    assert (left.feasible, left.unplanned.left_behind) == (True, 1)
    # Orders of two parcels each: weights add up, and both parcels are in the loading list beside their order.
    columns = {"weight": [10, 20, 30, 40, 50, 60, 70, 80], "order": list("aabbccdd")}
    case = published(columns, roles={"order": "identifier"}, together="order")
    assert len(case.release) == 4
    done = case.settle(case.plan([0, 1, 1, 0], [truck(200)]), repair=True)
    assert sorted(done.loads[:, 0]) == [180, 180]
    mended = case.settle(case.plan([0, 0, 1, 1], [truck(200)]), repair=True)
    assert (mended.feasible, sorted(mended.loads[:, 0])) == (True, [100, 260])
    assert len(done.loading) == len(mended.loading) == 8


def test_plans_that_make_no_sense_are_refused(both: Published, tmp_path: Path) -> None:
    plan = both.plan([0, 0, 1, 1], [truck(60, 5), truck(60, name="van")])
    with pytest.raises(ParameterError, match="'van'"):
        both.apply(plan)
    with pytest.raises(ParameterError, match="cost"):
        both.apply(both.plan([0, 0, 1, 1], [truck(60, 5, cost=0.0)]))
    case = published({"weight": [10, 10, 20, 20], "town": ["A", "A", "B", "B"]}, k=2)
    for column in ("by", "apart"):
        case.apply(case.plan([0, 0, 1, 1], [truck(100)], **{column: "town"}))
        for bins, name, fact in (([0, 0, 0, 1], "town", "town"), ([0, 0, 1, 1], "weight", "'weight'")):
            with pytest.raises(ParameterError, match=fact):
                case.apply(case.plan(bins, [truck(100)], **{column: name}))
    both.plan([0, 0, 1, 1], [truck(60, 5)]).write(tmp_path / "plan")
    assert both.apply(tmp_path / "plan").quantities == UNITS
    file = tmp_path / "plan" / "plan.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantities": {"weight": "kg", "length": "m"}}))
    with pytest.raises((InputError, ParameterError)):
        both.apply(tmp_path / "plan")


def test_repairs_with_several_kinds_hold() -> None:
    generator = np.random.default_rng(0)
    case = published(drawn_columns(generator, 30, 200, 20), k=3)
    kinds = [truck(500, 60), truck(900, 90, name="lorry", cost=1.6, count=3), truck(250, 30, name="van", cost=0.6)]
    names = [kinds[number].name for number in generator.integers(0, 3, 5)]
    done = case.settle(case.plan([*range(5), *generator.integers(0, 5, 25).tolist()], kinds, names), repair=True)
    assert (done.feasible, done.truck_of_bin[:5]) == (True, tuple(names))
    # Rows are kept apart by both columns, which settle checks.
    towns, dates = ["A", "A", "B", "B"] * 4, ["x"] * 8 + ["y"] * 8
    weights = np.random.default_rng(3).integers(100, 300, 16).astype(float)
    case = published({"weight": weights, "town": towns, "date": dates}, k=2)
    bins = [2 * (date == "y") + (town == "B") for town, date in zip(towns, dates, strict=True)]
    done = case.settle(case.plan(bins, [truck(400)], by="town", apart="date"), repair=True)
    assert (done.feasible, len(done.truck_of_bin) > 4) == (True, True)


def test_capacities_of_several_quantities_can_be_given(both: Published, tmp_path: Path) -> None:
    plan = both.plan([0, 0, 1, 1], [truck(60, 5)])
    assert both.apply(plan, capacity=["70kg", "volume=7"]).plan_feasible
    assert both.apply(plan, capacity=["weight=70", "7m3"]).plan_feasible
    assert [item.quantity for item in both.apply(plan, capacity="weight=70").overloaded] == ["volume"]
    rows = np.argsort(both.record).tolist()
    file = tmp_path / "theirs.csv"
    file.write_text("row,bin\n" + "".join(f"{row},{number // 2}\n" for number, row in enumerate(rows)))
    external = both.apply(file, capacity=["70kg", "volume=5"])
    assert external.quantities == UNITS
    assert [(item.bin, item.quantity) for item in external.overloaded] == [(1, "volume")]
    assert both.apply(file, capacity="weight=70").quantities == {"weight": "kg"}
    assert both.apply(file, trucks=[truck(70)]).quantities == {"weight": "kg"}
    for wrong in (["70"], ["70kg", "71kg"], ["length=3"], ["weight=0", "volume=5"]):
        with pytest.raises(ParameterError):
            both.apply(file, capacity=wrong)


def test_true_packings_of_vectors_fit() -> None:
    case = published(drawn_columns(np.random.default_rng(0), 25, 200, 20), k=2)
    task = repair_task(case.plan([0] * 25, [truck(400, 41)]), case.amounts, case.release, Noise(seed=1))
    room = task.capacity_of["truck"]
    packed = repair.packed_rows(task, np.arange(25), room, Noise(seed=2), deadline=0.0)
    assert packed is not None
    assert sorted(np.concatenate(packed).tolist()) == list(range(25))
    assert all((task.whole[rows].sum(axis=0) <= room).all() for rows in packed)
    assert repair.packed_rows(task, np.arange(25), room // 50, Noise(seed=2), deadline=0.0) is None
