# SPDX-License-Identifier: Apache-2.0
"""apply: exact loads, checks that say what to do, repair stage by stage, and nothing private where it may be seen."""

from __future__ import annotations

import csv
import json
import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.settle_help import FOUR, WEIGHT, Published, truck

import dunnage as dn
from dunnage.errors import InputError, OutputError, ParameterError, ReleaseError, UserError
from dunnage.kernels.bins.scalar import pack_bins, whole_numbers
from dunnage.noise.source import Noise
from dunnage.planning.linkage import truck_linkage
from dunnage.planning.packing import Standard, pack
from dunnage.settle import Overload, apply, repair
from dunnage.settle.repair import most_frequent_share, whole_amounts


@pytest.fixture(scope="module")
def four() -> Published:
    return Published(FOUR)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_loads_are_exact(data: st.DataObject) -> None:
    decimals = data.draw(st.sampled_from([0, 1, 2, 6, 12, 15]))
    number = st.integers(0, 10 ** (decimals + 2)).map(lambda whole: float(f"{whole}e-{decimals}"))
    weights = data.draw(st.lists(number, min_size=4, max_size=15))
    bins = data.draw(st.lists(st.integers(0, 3), min_size=len(weights), max_size=len(weights)))
    capacity = data.draw(st.sampled_from([0.3, 50.0, 99.99, 123.456789012345]))
    case = Published(weights)
    plan = case.plan(bins, capacity)
    done = case.settle(plan)
    true = [load for (load,) in case.loads(plan.assignment.tolist(), plan.num_bins)]
    fits = [load <= Fraction(repr(capacity)) for load in true]
    assert done.loads[:, 0].tolist() == [float(load) for load in true]
    assert [item.bin for item in done.overloaded] == [b for b, fit in enumerate(fits) if not fit]
    assert done.plan_feasible is all(fits)
    assert done.bins_feasible == pytest.approx(sum(fits) / len(fits))


@given(st.lists(st.floats(0, 1e300, allow_nan=False), min_size=1, max_size=8))
def test_whole_amounts_are_what_numbers_print_as(values: list[float]) -> None:
    whole, scale = whole_amounts(np.array(values))
    assert [Fraction(int(number), scale) for number in whole] == [Fraction(repr(value)) for value in values]


def test_keys_plans_and_data_of_another_release_are_refused(four: Published, tmp_path: Path) -> None:
    written = dn.Publication(four.release, four.key).write(tmp_path / "one")
    other = dn.publish(four.data, ledger=":memory:").write(tmp_path / "two")
    plan, own = pack(written.release, capacity=200), four.plan([0, 0, 1, 1])
    assert apply(plan, four.data, dn.Release.read(tmp_path / "one"), written.key).plan_feasible
    classless = replace(four.key, table=four.key.table.set_column(2, "class_id", pa.array([0, 0, 0, 0])))
    table = pa.table({"parcel": [f"=CANARY{i}" for i in range(4)], "weight": [float(w) for w in FOUR]})
    changed = [
        table.set_column(1, "weight", pa.array([10.0, 20.0, 60.0, 80.5])),
        table.set_column(0, "parcel", pa.array(["=CANARY0", "=CANARY1", "=CANARY2", "X"])),
        table.slice(1),
        table.take([1, 0, 2, 3]),
    ]
    for number, case in enumerate(
        [
            *((plan, four.data, release, other.key) for release in (written.release, other.release)),
            *((foreign, four.data, four.release, four.key) for foreign in (plan, replace(own, release=""))),
            # Keys in memory are compared by their rows.
            *((own, four.data, four.release, key) for key in (Published((*FOUR, 90)).key, classless)),
            (own, four.data, four.release, replace(four.key, table=pa.table({"row": [0]}))),
            *((own, dn.load(rows, four.data.policy), four.release, four.key) for rows in changed),
        ]
    ):
        with pytest.raises(ReleaseError) as error:
            apply(*case)
        assert "CANARY" not in str(error.value), number


def test_plans_that_do_not_cover_the_release_are_refused(four: Published) -> None:
    plan, kinds = four.plan([0, 0, 1, 1], 200), [truck(9), truck(9, name="van")]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"bin_of_row": np.array([0, 0, 1])}, "row 3"),
        ({"bin_of_row": np.array([0, 0, 1, 1, 1])}, "row 4"),
        ({"bin_of_row": np.array([0, 0, 1, 2])}, "row 3"),
        ({"bin_of_row": np.array([0, 0, 1, -1])}, "row 3"),
        ({"truck_of_bin": ("truck", "ship")}, "'ship'"),
        ({"trucks": (dn.Truck(name="truck", capacity={"volume": 1}),)}, "weight"),
        ({"trucks": (truck(0),)}, "weight"),
        ({"trucks": (truck(9, count=1),)}, "1 bin"),
        ({"quantities": {"volume": "m3"}}, "'volume'"),
        ({"by": "weight"}, "'weight'"),
        ({"apart": "weight"}, "'weight'"),
    ]
    for changes, fact in cases:
        with pytest.raises(UserError, match=fact):
            four.apply(replace(plan, **changes))
    assert four.apply(plan).plan_feasible
    assert not four.apply(plan, capacity="100kg").plan_feasible
    assert not four.apply(plan, trucks=[truck(100)]).plan_feasible
    for wrong in ({"capacity": "1t"}, {"capacity": 5, "trucks": kinds}, {"trucks": kinds[1:]}):
        with pytest.raises(ParameterError):
            four.apply(plan, **wrong)
    with pytest.raises(ParameterError):
        four.apply(replace(plan, trucks=tuple(kinds)), capacity=5)


def test_plan_folders_and_csv_files_of_another_solver_are_applied(four: Published, tmp_path: Path) -> None:
    four.plan([0, 0, 1, 1], 200).write(tmp_path / "plan")
    assert four.apply(tmp_path / "plan").loads[:, 0].tolist() == [30, 140]
    with pytest.raises(InputError):
        four.apply(tmp_path)
    file = tmp_path / "theirs.csv"
    rows = np.argsort(four.record).tolist()  # row of each source row
    file.write_text(f"row,bin\n{rows[0]},7\n{rows[1]},7\n{rows[2]},900\n{rows[3]},7\n")
    done = four.apply(file, capacity="100 kg")
    assert (done.plan.external, done.plan.status) == (True, "external")
    assert done.loads[:, 0].tolist() == [110, 60]
    assert done.truck_linkage.mean == truck_linkage(four.release.data["class_id"].to_numpy(), done.bin_of_row).mean
    assert four.apply(file, trucks=[truck(110, name="van")]).truck_of_bin == ("van", "van")
    kinds = [truck(110, name=name) for name in "ab"]
    for wrong in ({}, {"trucks": kinds}, {"capacity": "5t"}, {"capacity": "volume=5"}):
        with pytest.raises(ParameterError):
            four.apply(file, **wrong)
    whole = "row,bin\n0,0\n1,0\n2,0\n"
    lines = {"": "3", "2,0\n3,1\n": "2", "3,0\n4,0\n": "4", "3,x\n": "whole"}
    for text, fact in (*((whole + more, fact) for more, fact in lines.items()), ("a,b\n", "row,bin")):
        file.write_text(text)
        with pytest.raises(InputError, match=fact):
            four.apply(file, capacity=100)


def test_each_stage_does_no_more_than_is_needed(four: Published) -> None:
    """20 + 80 > 90, but 10 + 80 and 20 + 60 are not. Two heavy ones in one truck have no one to exchange with."""
    assert four.apply(four.plan([0, 1, 0, 1], 100), repair=True).repair is None  # nothing needs repair
    unrepaired = four.apply(four.plan([0, 1, 0, 1], 90))
    assert (unrepaired.repair, unrepaired.feasible) == (None, False)
    exchanged = four.settle(four.plan([0, 1, 0, 1], 90), repair=True)
    assert exchanged.overloaded == [Overload(bin=1, quantity="weight", load=100, capacity=90)]
    assert (exchanged.plan_feasible, exchanged.bins_feasible, exchanged.feasible) == (False, 0.5, True)
    made = exchanged.repair
    assert (made.permuted, made.moved, made.opened, made.left_behind, made.repairs_found) == (2, 0, 0, 0, 2)
    assert sorted(exchanged.final_loads[:, 0]) == [80, 90]
    moved = four.settle(four.plan([1, 1, 0, 0], 100), repair=True)
    assert (moved.feasible, moved.repair.moved > 0, moved.repair.opened, moved.repair.left_behind) == (True, True, 0, 0)
    lines: list[str] = []
    opened = four.settle(four.plan([0, 0, 1, 1], 85), repair=True, progress=lines.append)
    assert (opened.feasible, opened.repair.opened, opened.repair.left_behind) == (True, 1, 0)
    assert len(opened.truck_of_bin) == len(opened.final_loads) == len(opened.final_capacities) == len(lines) == 3


@pytest.mark.parametrize("role", ["sensitive", "public"])
def test_rows_that_look_different_are_not_exchanged(role: str) -> None:
    """The same exchange, but class mates differ in another column: only a move is left, and in public none."""
    columns = {"weight": [10, 10, 20, 20, 60, 60, 80, 80], "mark": ["a", "a", "b", "b", "a", "a", "b", "b"]}
    case = Published(columns, roles={"mark": role})
    done = case.settle(case.plan([0, 2, 1, 3, 0, 2, 1, 3], 90), repair=True)
    assert (done.feasible, done.repair.opened > 0) == (True, role == "public")
    assert done.repair.moved > 0
    if role == "public":
        bins = set(zip(case.column("mark"), done.bin_of_row.tolist(), strict=True))
        assert len({bin_ for _, bin_ in bins}) == len(bins), "a truck of one mark took none of the other"


def test_everything_in_one_bin_is_spread_over_as_few_as_it_takes() -> None:
    case = Published([51, 27, 22] * 6)  # packed again, each bin is full to the gram
    done = case.settle(case.plan([*range(6)] * 3, 100), repair=True)
    assert (done.feasible, done.final_loads[:, 0].tolist()) == (True, [100] * 6)
    weights = np.random.default_rng(2).uniform(10, 60, 60).round(1).tolist()
    case = Published(weights, 3)
    done = case.settle(case.plan([0] * 60, 100), repair=True)
    assert done.feasible
    assert len(done.truck_of_bin) <= sum(weights) / 100 * 1.1 + 1


def test_as_few_as_possible_are_left_behind_and_only_if_told(four: Published) -> None:
    plan = four.plan([0, 0, 1, 1], 85, count=2)
    stuck = four.settle(plan, repair=True)
    assert (stuck.feasible, stuck.bin_of_row.min()) == (False, 0)
    assert stuck.repair.left_behind == stuck.unplanned.left_behind == 0
    done = four.settle(plan, leave_behind=True)
    assert done.feasible
    assert done.repair.left_behind == done.unplanned.left_behind == done.unplanned.count == 1
    assert done.loading.column("bin").to_pylist()[-1] == -1
    # Three of 60 and seven small ones in two trucks of 100: the heavy third alone stays.
    case = Published([60, 61, 62, *([10.0] * 7)])
    done = case.settle(case.plan([0, 0, 0, *([1] * 7)], 100, count=2), leave_behind=True)
    assert done.unplanned.left_behind == 1
    plan = four.plan([0, 1, 0, 1], 75)  # 80 is too heavy for any
    assert not four.apply(plan, repair=True).feasible
    done = four.settle(plan, repair=True, leave_behind=True)
    assert (done.feasible, four.by_record(done)[3]) == (True, -1)
    assert done.unplanned.plain() == {"count": 1, "left_out": 0, "suppressed": 0, "left_behind": 1}


def test_trucks_of_several_sizes_and_what_travels_outside(four: Published) -> None:
    kinds = [truck(50), truck(150, name="lorry")]
    done = four.settle(four.plan([1, 0, 1, 0], kinds, ["truck", "lorry"]), repair=True)
    assert (done.feasible, done.truck_of_bin) == (True, ("truck", "lorry"))
    case = Published([50, 51, 52, 53, 54, 55])
    kinds = [truck(60), truck(110, name="lorry", count=2)]
    done = case.settle(case.plan([0] * 6, kinds, ["lorry"]), repair=True)
    assert (done.feasible, Counter(done.truck_of_bin)) == (True, {"lorry": 2, "truck": 2})
    columns = {"weight": [10.0, 20.0, 60.0, 80.0, None, None, 500.0], "town": ["A"] * 6 + ["B"]}
    case = Published(columns, roles={"weight": {**WEIGHT, "missing": "leave-out"}})
    assert len(case.release) == 4
    done = case.settle(pack(case.release, capacity=200))
    assert done.unplanned.plain() == {"count": 3, "left_out": 2, "suppressed": 1, "left_behind": 0}
    case = Published([0.1, 0.2, 0.1, 0.7, 1e-13, 0.2])
    done = case.apply(case.plan([0, 0, 1, 1, 1, 0], 0.5))
    assert done.loads[0] == 0.5
    (over,) = done.overloaded
    load = float(Fraction("0.8000000000001"))
    assert over.plain() == {"bin": 1, "quantity": "weight", "load": load, "capacity": 0.5}
    sums = Published([0.1, 0.2, 0.1, 0.2])
    assert sums.apply(sums.plan([0, 0, 1, 1], 0.3)).plan_feasible, "0.1 + 0.2 = 0.3, whatever doubles say"


@pytest.mark.parametrize(("seed", "by"), [(0, None), (1, "town"), (2, "town")])
def test_repaired_plans_are_whole_and_towns_stay_apart(seed: int, by: str | None) -> None:
    generator = np.random.default_rng(seed)
    weights = generator.uniform(100, 400, 40).round(2).tolist()
    case = Published({"weight": weights, "town": generator.choice(["A", "B", "C"], 40).tolist()}, 4)
    plan = pack(case.release, capacity=500, by=by, model=Standard(statistic="mean"), seconds=5)
    done = case.settle(plan, repair=True)
    assert done.feasible
    planned, final = (
        set(zip(bins.tolist(), case.column("town"), strict=True)) for bins in (plan.assignment, done.bin_of_row)
    )
    assert {pair for pair in final if pair[0] < plan.num_bins} <= planned
    opened = Counter(bin_ for bin_, _ in final if bin_ >= plan.num_bins)
    assert all(number == 1 for number in opened.values())


@pytest.mark.parametrize("count", [4, None])
def test_a_bin_that_another_town_can_spare_is_used_before_one_is_opened(count: int | None) -> None:
    """A's three packages of 60 need three trucks, and have two; B's two of 30 need one, and have two."""
    case = Published({"weight": [60, 60, 60, 30, 30], "town": ["A", "A", "A", "B", "B"]})
    done = case.settle(case.plan([0, 0, 1, 2, 3], by="town", count=count), repair=True)
    assert (done.repair.feasible, done.repair.opened) == (True, 0)
    bins = case.by_record(done)
    assert (len(set(bins[:3])), bins[3]) == (3, bins[4])


def test_exchanges_keep_how_many_of_a_class_a_bin_takes() -> None:
    """Each bin takes one of 10..19 and one of 60..69; the plan pairs light with light and heavy with heavy."""
    case = Published([*range(10, 20), *range(60, 70)], 10)
    plan = case.plan([*range(10), *range(10)], 82)
    done = case.apply(plan, repair=True)
    assert (done.feasible, done.repair.moved, done.repair.opened) == (True, 0, 0)
    counts = [
        Counter(zip(case.column("class_id"), b.tolist(), strict=True)) for b in (plan.assignment, done.bin_of_row)
    ]
    assert (counts[0], done.repair.permuted) == (counts[1], int((plan.assignment != done.bin_of_row).sum()))
    assert 0.1 <= done.truck_linkage.mean < 0.6


def fewest_bins(weights: Sequence[float], capacity: float) -> int:
    numbers = whole_numbers(np.array(weights), capacity)
    return len(pack_bins(numbers.items, numbers.capacity, seconds=60).bins)


def test_no_repair_of_small_plans_is_worse_than_need_be() -> None:
    """As many bins as the true weights need, or else as few packages left behind as there can be."""
    for seed in range(14):
        generator = np.random.default_rng(seed)
        weights = generator.uniform(1, 60, 12) if seed % 2 else generator.integers(1, 60, 12).astype(float)
        bins = np.unique(generator.integers(0, 4, 12), return_inverse=True)[1].tolist()
        case, planned, count = Published(weights.tolist()), max(bins) + 1, max(bins) + 2
        done = case.settle(case.plan(bins, 80, count=count), leave_behind=True)
        num_left = next(n for n in range(12) if fewest_bins(sorted(weights)[: 12 - n], 80) <= count)
        assert (done.feasible, done.unplanned.left_behind) == (True, num_left), seed
        if num_left == 0:
            assert len(done.truck_of_bin) == max(planned, fewest_bins(weights, 80)), seed


def test_repairs_found_are_drawn_alike(four: Published) -> None:
    """Two repairs exist. 500 draws find a bias of 15 points almost surely and pass a fair one but for p = 1e-9."""
    plan = four.plan([0, 1, 0, 1], 90)
    seen = Counter(tuple(four.by_record(four.apply(plan, repair=True, noise=Noise()))) for _ in range(500))
    assert set(seen) == {(1, 0, 0, 1), (0, 1, 1, 0)}
    first, second = seen.values()
    assert (first - second) ** 2 / 500 < 37.3  # chi-square, one degree of freedom, p = 1e-9
    one, two = (four.apply(plan, repair=True, noise=Noise(seed=5)) for _ in range(2))
    assert one.bin_of_row.tolist() == two.bin_of_row.tolist(), "seeded noise repeats a repair"


def test_linkage_is_counted_before_and_after_an_exchange(four: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two repairs exist, so who knows all weights and that one was drawn names the truck with one half: exactly."""
    plan, classes = four.plan([0, 1, 0, 1], 100), four.release.data.column("class_id").to_numpy()
    linkage = four.apply(plan, repair=True).truck_linkage
    assert linkage == truck_linkage(classes, plan.assignment).model_copy(update={"note": linkage.note})
    linkage = four.apply(four.plan([0, 1, 0, 1], 90), repair=True).truck_linkage
    assert (linkage.mean, linkage.worst, linkage.kind) == (0.5, 0.5, "exact")
    # After any other repair it is an estimate, no better than counting.
    monkeypatch.setattr(repair, "count_and_draw", lambda *_: None)
    for bins, number in (([0, 1, 0, 1], 2), ([0, 1, 1, 1], None)):
        done = four.apply(four.plan(bins, 90), repair=True)
        counted = truck_linkage(classes, done.bin_of_row)
        assert done.truck_linkage.kind == "estimate"
        assert number in (None, done.truck_linkage.repairs)
        assert done.truck_linkage.mean >= counted.mean
        assert done.truck_linkage.worst >= counted.worst


@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.lists(st.integers(-1, 3), min_size=n, max_size=n), min_size=1)))
def test_the_most_frequent_truck_by_counting(repairs: list[list[int]]) -> None:
    by_hand = [max(Counter(column).values()) / len(repairs) for column in zip(*repairs, strict=True)]
    assert most_frequent_share(np.array(repairs)).tolist() == pytest.approx(by_hand)


def test_the_folder_is_private_and_readable(four: Published, tmp_path: Path) -> None:
    settled = four.apply(four.plan([0, 1, 0, 1], 90), repair=True)
    folder, before = tmp_path / "settlement", os.umask(0)
    try:
        settled.write(folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(os.listdir(folder)) == ["loading.csv", "loads.csv", "settlement.json", "unplanned.csv"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    content = json.loads((folder / "settlement.json").read_text())
    assert content == json.loads(json.dumps(settled.to_dict()))
    assert (content["format"], content["release"]) == (1, four.release.certificate.digest)
    fixed = {"plan_feasible", "bins_feasible", "overloaded", "repair", "unplanned", "truck_linkage", "loads"}
    assert fixed <= set(content)
    lines, loads = (
        list(csv.DictReader((folder / name).read_text().splitlines())) for name in ("loading.csv", "loads.csv")
    )
    assert list(lines[0]) == ["row", "source_row", "bin", "parcel"]
    assert [int(line["bin"]) for line in lines] == sorted(settled.bin_of_row.tolist())
    assert {line["parcel"] for line in lines} == {f"'=CANARY{number}" for number in range(4)}, "escaped"
    assert [float(line["load"]) for line in loads] == settled.final_loads[:, 0].tolist()
    assert list(loads[0]) == ["bin", "truck", "load", "capacity"]
    with pytest.raises(OutputError):
        settled.write(folder)
    settled.write(folder, force=True)
    assert os.listdir(tmp_path) == ["settlement"]
    for text in (repr(settled), str(settled), settled.summary(), json.dumps(settled.to_dict())):
        assert "CANARY" not in text
    assert "amounts" not in repr(settled.task)
