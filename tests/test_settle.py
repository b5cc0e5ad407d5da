"""apply: exact loads, checks that say what to do, repair stage by stage, and nothing private where it may be seen."""

from __future__ import annotations

import csv
import json
import os
import stat
from collections import Counter, defaultdict
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

import dunnage as dn
from dunnage.errors import InputError, OutputError, ParameterError, ReleaseError, UserError
from dunnage.kernels.bins import pack_bins, whole_numbers
from dunnage.noise.source import Noise
from dunnage.planning.linkage import truck_linkage
from dunnage.planning.models import PackingModel
from dunnage.planning.packing import Standard, pack
from dunnage.planning.plan import Plan
from dunnage.planning.trucks import Truck
from dunnage.settle import Overload, Settlement, apply, repair
from dunnage.settle.repair import most_frequent_share, whole_amounts

FOUR = (10, 20, 60, 80)
"""Classes {10, 20} and {60, 80} at k = 2."""


def load(weights: Sequence[float], k: int = 2, roles: dict[str, str] | None = None, **columns: Any) -> dn.Dataset:
    kinds = {name: {"role": (roles or {}).get(name, "public")} for name in columns}
    policy = dn.Policy.from_dict(
        {
            "dataset": "parcels",
            "protects": "package",
            "attributes": {
                "parcel": {"role": "identifier"},
                "weight": {
                    "role": "quasi-identifier",
                    "kind": "numeric",
                    "domain": [0, 1000],
                    "unit": "kg",
                    "missing": "leave-out",
                },
                **kinds,
            },
            "mechanism": {"name": "partition", "k": k, "statistic": "multiset"},
            "small": "suppress",
        }
    )
    names = [f"=CANARY{number}" for number in range(len(weights))]
    return dn.load(pa.table({"parcel": names, "weight": list(weights), **columns}), policy)


class Case:
    """A published dataset; plans are written by the order of its source."""

    def __init__(self, weights: Sequence[float], **more: Any) -> None:
        self.data = load(weights, **more)
        self.release, self.key = dn.publish(self.data, ledger=":memory:")
        self.source = self.key.table.column("source_row").to_numpy()
        self.weights = np.array(weights, dtype=float)[self.source]

    def plan(self, bins: Sequence[int], capacity: float = 100, *, by: str | None = None, **truck: Any) -> Plan:
        bin_of_row = np.array(bins)[self.source]
        kind = Truck(name="truck", capacity={"weight": capacity}, **truck)
        return Plan(
            release=self.release.certificate.digest,
            bin_of_row=bin_of_row,
            truck_of_bin=("truck",) * (max(bins) + 1),
            trucks=(kind,),
            model=PackingModel(name="by hand"),
            bound=1,
            seconds=0.0,
            quantities={"weight": "kg"},
            by=by,
        )

    def apply(self, plan: Plan | Path, **more: Any) -> Settlement:
        more.setdefault("noise", Noise(seed=1))
        return apply(plan, self.data, self.release, self.key, **more)

    def bins_by_source(self, done: Settlement) -> list[int]:
        return done.bin_of_row[np.argsort(self.source)].tolist()


def check_whole(case: Case, done: Settlement) -> None:
    """Every released row stands in the loading list once, and loads add up."""
    table = done.loading.to_pydict()
    assert sorted(table["row"]) == list(range(len(case.release)))
    assert sorted(table["source_row"]) == sorted(case.source.tolist())
    sums: dict[int, Fraction] = defaultdict(Fraction)
    for row, bin_ in zip(table["row"], table["bin"], strict=True):
        assert done.bin_of_row[row] == bin_
        sums[bin_] += Fraction(repr(float(case.weights[row])))
    assert [float(sums[b]) for b in range(len(done.truck_of_bin))] == done.final_loads[:, 0].tolist()
    over = [b for b in range(len(done.truck_of_bin)) if sums[b] > Fraction(repr(float(done.final_capacities[b, 0])))]
    assert done.feasible == (not over)


# Loads


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_loads_are_exact(data: st.DataObject) -> None:
    decimals = data.draw(st.sampled_from([0, 1, 2, 6, 12, 15]))
    number = st.integers(0, 10 ** (decimals + 2)).map(lambda whole: float(f"{whole}e-{decimals}"))
    weights = data.draw(st.lists(number, min_size=4, max_size=15))
    bins = data.draw(st.lists(st.integers(0, 3), min_size=len(weights), max_size=len(weights)))
    capacity = data.draw(st.sampled_from([0.3, 50.0, 99.99, 123.456789012345]))
    case = Case(weights)
    done = case.apply(case.plan(bins, capacity))
    true = [
        sum((Fraction(repr(w)) for w, b in zip(weights, bins, strict=True) if b == c), Fraction()) for c in range(4)
    ]
    true = true[: max(bins) + 1]
    fits = [load <= Fraction(repr(capacity)) for load in true]
    assert done.loads[:, 0].tolist() == [float(load) for load in true]
    assert [item.bin for item in done.overloaded] == [b for b, fit in enumerate(fits) if not fit]
    assert done.plan_feasible is all(fits)
    assert done.bins_feasible == pytest.approx(sum(fits) / len(fits))
    check_whole(case, done)


def test_full_to_the_last_gram_is_not_overloaded() -> None:
    case = Case([0.1, 0.2, 0.1, 0.7, 1e-13, 0.2])
    done = case.apply(case.plan([0, 0, 1, 1, 1, 0], 0.5))
    assert 0.1 + 0.2 + 0.2 <= 0.5
    assert done.loads[0] == 0.5
    assert [item.bin for item in done.overloaded] == [1]
    assert done.overloaded[0].plain() == {
        "bin": 1,
        "quantity": "weight",
        "load": float(Fraction("0.8000000000001")),
        "capacity": 0.5,
    }
    sums = Case([0.1, 0.2, 0.1, 0.2])
    assert sums.apply(sums.plan([0, 0, 1, 1], 0.3)).plan_feasible, "0.1 + 0.2 = 0.3, whatever doubles say"


@given(st.lists(st.floats(0, 1e300, allow_nan=False), min_size=1, max_size=8))
def test_whole_amounts_are_what_numbers_print_as(values: list[float]) -> None:
    whole, scale = whole_amounts(np.array(values))
    assert [Fraction(int(number), scale) for number in whole] == [Fraction(repr(value)) for value in values]


# Checks


def test_a_key_of_another_release_is_refused(tmp_path: Path) -> None:
    case = Case(FOUR)
    written = dn.Publication(case.release, case.key).write(tmp_path / "one")
    other = dn.publish(case.data, ledger=":memory:").write(tmp_path / "two")
    plan = pack(written.release, capacity=200)
    with pytest.raises(ReleaseError, match="another release"):
        apply(plan, case.data, written.release, other.key)
    with pytest.raises(ReleaseError, match="another release"):
        apply(plan, case.data, other.release, other.key)
    assert apply(plan, case.data, dn.Release.read(tmp_path / "one"), written.key).plan_feasible


def test_keys_in_memory_are_compared_by_their_rows() -> None:
    case, other = Case(FOUR), Case((10, 20, 60, 80, 90))
    with pytest.raises(ReleaseError, match="does not fit the rows"):
        apply(case.plan([0, 0, 1, 1]), case.data, case.release, other.key)
    swapped = replace(case.key, table=case.key.table.set_column(2, "class_id", pa.array([0, 0, 0, 0])))
    with pytest.raises(ReleaseError, match="does not fit the rows"):
        apply(case.plan([0, 0, 1, 1]), case.data, case.release, swapped)
    with pytest.raises(ReleaseError, match="lacks a column"):
        apply(case.plan([0, 0, 1, 1]), case.data, case.release, replace(case.key, table=pa.table({"row": [0]})))


@pytest.mark.parametrize("case", ["cell", "identifier", "row less", "order"])
def test_data_that_were_not_published_are_refused(case: str) -> None:
    made = Case(FOUR)
    table = pa.table({"parcel": [f"=CANARY{i}" for i in range(4)], "weight": [float(w) for w in FOUR]})
    if case == "cell":
        table = table.set_column(1, "weight", pa.array([10.0, 20.0, 60.0, 80.5]))
    if case == "identifier":
        table = table.set_column(0, "parcel", pa.array(["=CANARY0", "=CANARY1", "=CANARY2", "X"]))
    if case == "row less":
        table = table.slice(1)
    if case == "order":
        table = table.take([1, 0, 2, 3])
    with pytest.raises(ReleaseError, match="not made from these rows") as error:
        apply(made.plan([0, 0, 1, 1]), dn.load(table, made.data.policy), made.release, made.key)
    assert "CANARY" not in str(error.value)
    assert error.value.exit_code == 2


def test_plans_of_another_release_are_refused() -> None:
    case, other = Case(FOUR), Case(FOUR)
    with pytest.raises(ReleaseError, match="made on another release"):
        case.apply(other.plan([0, 0, 1, 1]))
    with pytest.raises(ReleaseError, match="made on another release"):
        case.apply(replace(case.plan([0, 0, 1, 1]), release=""))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bin_of_row": np.array([0, 0, 1])}, "row 3 is missing"),
        ({"bin_of_row": np.array([0, 0, 1, 1, 1])}, "has no row 4"),
        ({"bin_of_row": np.array([0, 0, 1, 2])}, "row 3 is in a bin without a truck"),
        ({"bin_of_row": np.array([0, 0, 1, -1])}, "row 3 is in a bin without a truck"),
        ({"truck_of_bin": ("truck", "ship")}, "no kind is called 'ship'"),
        ({"trucks": (Truck(name="truck", capacity={"volume": 1}),)}, "no capacity for weight"),
        ({"trucks": (Truck(name="truck", capacity={"weight": 0}),)}, "no capacity for weight"),
        ({"trucks": (Truck(name="truck", capacity={"weight": 9}, count=1),)}, "1 bins have no truck"),
        ({"quantities": {"volume": "m3"}}, "packs 'volume'"),
        ({"by": "weight"}, "packs apart by 'weight'"),
        ({"apart": "weight"}, "packs apart by 'weight'"),
    ],
)
def test_plans_that_do_not_cover_the_release_are_refused(changes: dict[str, Any], message: str) -> None:
    case = Case(FOUR)
    with pytest.raises(UserError, match=message):
        case.apply(replace(case.plan([0, 0, 1, 1]), **changes))


def test_trucks_can_be_given_anew() -> None:
    case = Case(FOUR)
    plan = case.plan([0, 0, 1, 1], 200)
    assert case.apply(plan).plan_feasible
    assert not case.apply(plan, capacity="100kg").plan_feasible
    assert not case.apply(plan, trucks=[Truck(name="truck", capacity={"weight": 100})]).plan_feasible
    kinds = [Truck(name="truck", capacity={"weight": 9}), Truck(name="van", capacity={"weight": 9})]
    for wrong in ({"capacity": "1t"}, {"capacity": 5, "trucks": kinds}, {"trucks": kinds[1:]}):
        with pytest.raises(ParameterError):
            case.apply(plan, **wrong)
    with pytest.raises(ParameterError, match="2 kinds"):
        case.apply(replace(plan, trucks=tuple(kinds)), capacity=5)


def test_a_plan_folder_is_applied(tmp_path: Path) -> None:
    case = Case(FOUR)
    case.plan([0, 0, 1, 1], 200).write(tmp_path / "plan")
    assert case.apply(tmp_path / "plan").loads[:, 0].tolist() == [30, 140]
    with pytest.raises(InputError):
        case.apply(tmp_path)


def test_a_csv_file_of_another_solver_is_applied(tmp_path: Path) -> None:
    case = Case(FOUR)
    file = tmp_path / "theirs.csv"
    rows = np.argsort(case.source).tolist()  # row of each source row
    file.write_text(f"row,bin\n{rows[0]},7\n{rows[1]},7\n{rows[2]},900\n{rows[3]},7\n")
    done = case.apply(file, capacity="100 kg")
    assert done.plan.external
    assert done.plan.status == "external"
    assert done.loads[:, 0].tolist() == [110, 60]
    assert done.truck_linkage.mean == truck_linkage(case.release.data["class_id"].to_numpy(), done.bin_of_row).mean
    assert case.apply(file, trucks=[Truck(name="van", capacity={"weight": 110})]).truck_of_bin == ("van", "van")
    kinds = [Truck(name=name, capacity={"weight": 110}) for name in "ab"]
    for wrong in ({}, {"trucks": kinds}, {"capacity": "5t"}, {"capacity": "volume=5"}):
        with pytest.raises(ParameterError):
            case.apply(file, **wrong)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row,bin\n0,0\n1,0\n2,0\n", "row 3 is missing"),
        ("row,bin\n0,0\n1,0\n2,0\n2,0\n3,1\n", "row 2 stands in it more than once"),
        ("row,bin\n0,0\n1,0\n2,0\n3,0\n4,0\n", "no row 4"),
        ("row,bin\n0,0\n1,0\n2,0\n3,x\n", "no whole number"),
        ("a,b\n", "header"),
    ],
)
def test_csv_files_that_do_not_cover_the_release_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "theirs.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        Case(FOUR).apply(file, capacity=100)


# Repair


def test_nothing_is_repaired_unless_asked_and_needed() -> None:
    case = Case(FOUR)
    assert case.apply(case.plan([0, 1, 0, 1], 100), repair=True).repair is None
    done = case.apply(case.plan([0, 1, 0, 1], 90))
    assert done.repair is None
    assert not done.feasible
    assert "--repair" in done.summary()


def test_an_exchange_is_enough() -> None:
    """20 + 80 > 90, but 10 + 80 and 20 + 60 are not."""
    case = Case(FOUR)
    done = case.apply(case.plan([0, 1, 0, 1], 90), repair=True)
    assert done.overloaded == [Overload(bin=1, quantity="weight", load=100, capacity=90)]
    assert (done.plan_feasible, done.bins_feasible, done.feasible) == (False, 0.5, True)
    assert done.repair is not None
    report = done.repair
    assert (report.feasible, report.permuted, report.moved, report.opened, report.left_behind) == (True, 2, 0, 0, 0)
    assert done.repair.repairs_found == 2
    assert sorted(done.final_loads[:, 0]) == [80, 90]
    check_whole(case, done)


@pytest.mark.parametrize("role", ["sensitive", "public"])
def test_rows_that_look_different_are_not_exchanged(role: str) -> None:
    """The same exchange, but class mates differ in another column: only a move is left, and in public none."""
    case = Case(
        (10, 10, 20, 20, 60, 60, 80, 80),
        mark=["a", "a", "b", "b", "a", "a", "b", "b"],
        roles={"mark": role},
    )
    plan = case.plan([0, 2, 1, 3, 0, 2, 1, 3], 90)
    done = case.apply(plan, repair=True)
    assert done.repair is not None
    marks = case.release.data.column("mark").to_pylist()
    if role == "public":
        assert done.repair.opened > 0
        bins = {(mark, bin_) for mark, bin_ in zip(marks, done.bin_of_row.tolist(), strict=True)}
        assert len({bin_ for _, bin_ in bins}) == len(bins), "a truck of one mark took none of the other"
    else:
        assert done.repair.opened == 0
        assert done.repair.moved > 0
    assert done.feasible
    check_whole(case, done)


def test_a_move_is_enough() -> None:
    """Both heavy ones in one truck, both light ones in the other: their classes have no one to exchange with."""
    case = Case(FOUR)
    done = case.apply(case.plan([1, 1, 0, 0], 100), repair=True)
    assert done.repair is not None
    assert done.feasible
    assert done.repair.moved > 0
    assert done.repair.opened == done.repair.left_behind == 0
    check_whole(case, done)


def test_packing_anew_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no change by itself helps, the true weights are packed anew into the same bins, each full to the gram."""
    monkeypatch.setattr(repair, "_descend", lambda *_: None)
    case = Case([51, 27, 22] * 6, k=2)
    done = case.apply(case.plan([*range(6)] * 3, 100), repair=True)
    assert done.feasible
    assert done.final_loads[:, 0].tolist() == [100] * 6
    check_whole(case, done)


def test_a_bin_is_opened() -> None:
    case = Case(FOUR)
    done = case.apply(case.plan([0, 0, 1, 1], 85), repair=True)
    assert done.repair is not None
    assert done.repair.opened == 1
    assert done.repair.left_behind == 0
    assert len(done.truck_of_bin) == len(done.final_loads) == len(done.final_capacities) == 3
    assert done.feasible
    check_whole(case, done)


def test_everything_in_one_bin_is_spread_over_as_few_as_it_takes() -> None:
    weights = np.random.default_rng(2).uniform(10, 60, 60).round(1).tolist()
    case = Case(weights, k=3)
    done = case.apply(case.plan([0] * 60, 100), repair=True)
    assert done.feasible
    assert len(done.truck_of_bin) <= sum(weights) / 100 * 1.1 + 1
    check_whole(case, done)


def test_packages_are_left_behind_only_if_told() -> None:
    case = Case(FOUR)
    plan = case.plan([0, 0, 1, 1], 85, count=2)
    stuck = case.apply(plan, repair=True)
    assert stuck.repair is not None
    assert not stuck.feasible
    assert "not every bin fits" in stuck.repair.sentence
    assert stuck.repair.left_behind == stuck.unplanned.left_behind == 0
    assert stuck.bin_of_row.min() == 0
    check_whole(case, stuck)
    done = case.apply(plan, leave_behind=True)
    assert done.repair is not None
    assert done.repair.left_behind == done.unplanned.left_behind == done.unplanned.count == 1
    assert done.feasible
    assert done.loading.column("bin").to_pylist()[-1] == -1
    check_whole(case, done)


def test_as_few_as_possible_are_left_behind() -> None:
    """Three of 60 and 30 small ones in one truck of 100 each: the heavy third alone stays."""
    weights = [60, 61, 62, *([10.0] * 7)]
    case = Case(weights)
    done = case.apply(case.plan([0, 0, 0, *([1] * 7)], 100, count=2), leave_behind=True)
    assert done.unplanned.left_behind == 1
    check_whole(case, done)


def test_a_package_heavier_than_every_truck_can_only_be_left_behind() -> None:
    case = Case(FOUR)
    plan = case.plan([0, 1, 0, 1], 75)
    stuck = case.apply(plan, repair=True)
    assert not stuck.feasible
    assert stuck.bin_of_row.min() == 0
    done = case.apply(plan, repair=True, leave_behind=True)
    assert done.feasible
    assert case.bins_by_source(done)[3] == -1
    assert done.unplanned.plain() == {"count": 1, "left_out": 0, "suppressed": 0, "left_behind": 1}
    check_whole(case, done)


def test_a_larger_truck_takes_what_a_smaller_one_cannot() -> None:
    case = Case(FOUR)
    kinds = (Truck(name="truck", capacity={"weight": 50}), Truck(name="lorry", capacity={"weight": 150}))
    plan = replace(case.plan([1, 0, 1, 0], 100), trucks=kinds, truck_of_bin=("truck", "lorry"))
    done = case.apply(plan, repair=True)
    assert done.feasible
    assert done.truck_of_bin == ("truck", "lorry")
    check_whole(case, done)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("by", [None, "town"])
def test_repaired_plans_are_whole_and_towns_stay_apart(seed: int, by: str | None) -> None:
    generator = np.random.default_rng(seed)
    weights = generator.uniform(100, 400, 60).round(2).tolist()
    case = Case(weights, k=4, town=generator.choice(["A", "B", "C"], 60).tolist())
    plan = pack(case.release, capacity=500, by=by, model=Standard(statistic="mean"))
    done = case.apply(plan, repair=True)
    assert done.feasible
    check_whole(case, done)
    towns = case.release.data.column("town").to_pylist()
    planned, final = (
        {(bin_, town) for bin_, town in zip(bins.tolist(), towns, strict=True)}
        for bins in (plan.assignment, done.bin_of_row)
    )
    assert {pair for pair in final if pair[0] < plan.num_bins} <= planned
    opened = Counter(bin_ for bin_, _ in final if bin_ >= plan.num_bins)
    assert all(number == 1 for number in opened.values())


def test_exchanges_keep_how_many_of_a_class_a_bin_takes() -> None:
    """Each bin takes one of 10..19 and one of 60..69; the plan pairs light with light and heavy with heavy."""
    case = Case([*range(10, 20), *range(60, 70)], k=10)
    plan = case.plan([*range(10), *range(10)], 82)
    done = case.apply(plan, repair=True)
    assert done.repair is not None
    assert (done.feasible, done.repair.moved, done.repair.opened) == (True, 0, 0)
    classes = case.release.data.column("class_id").to_pylist()
    counts = [Counter(zip(classes, bins.tolist(), strict=True)) for bins in (plan.assignment, done.bin_of_row)]
    assert counts[0] == counts[1]
    assert done.repair.permuted == int((plan.assignment != done.bin_of_row).sum())
    assert 0.1 <= done.truck_linkage.mean < 0.6


@pytest.mark.parametrize("seed", range(24))
def test_no_repair_of_small_plans_is_worse_than_need_be(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many bins as the true weights need, or else as few packages left behind as there can be."""
    monkeypatch.setattr(repair, "MAX_REPAIRS", 3)
    monkeypatch.setattr(repair, "MAX_IDLE_STARTS", 3)
    generator = np.random.default_rng(seed)
    weights = generator.uniform(1, 60, 12) if seed % 2 else generator.integers(1, 60, 12).astype(float)
    bins = np.unique(generator.integers(0, 4, 12), return_inverse=True)[1].tolist()
    case, planned, count = Case(weights.tolist()), max(bins) + 1, max(bins) + 2
    done = case.apply(case.plan(bins, 80, count=count), leave_behind=True)
    check_whole(case, done)
    num_left = next(n for n in range(12) if fewest_bins(sorted(weights)[: 12 - n], 80) <= count)
    assert done.feasible
    assert done.unplanned.left_behind == num_left
    if num_left == 0:
        assert len(done.truck_of_bin) == max(planned, fewest_bins(weights, 80))


def fewest_bins(weights: Sequence[float], capacity: float) -> int:
    numbers = whole_numbers(np.array(weights), capacity)
    return len(pack_bins(numbers.items, numbers.capacity, seconds=5).bins)


def test_smaller_trucks_are_opened_when_the_larger_ones_are_used_up() -> None:
    case = Case([50, 51, 52, 53, 54, 55])
    kinds = (Truck(name="truck", capacity={"weight": 60}), Truck(name="lorry", capacity={"weight": 110}, count=2))
    plan = replace(case.plan([0] * 6, 110), trucks=kinds, truck_of_bin=("lorry",))
    done = case.apply(plan, repair=True)
    assert Counter(done.truck_of_bin) == {"lorry": 2, "truck": 2}
    assert done.feasible
    check_whole(case, done)


def test_repairs_found_are_drawn_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two repairs exist. 500 draws find a bias of 15 points almost surely and pass a fair one but for p = 1e-9."""
    monkeypatch.setattr(repair, "MAX_IDLE_STARTS", 8)
    case = Case(FOUR)
    plan = case.plan([0, 1, 0, 1], 90)
    seen = Counter(tuple(case.bins_by_source(case.apply(plan, repair=True, noise=Noise()))) for _ in range(500))
    assert set(seen) == {(1, 0, 0, 1), (0, 1, 1, 0)}
    first, second = seen.values()
    assert (first - second) ** 2 / 500 < 37.3  # chi-square, one degree of freedom, p = 1e-9


def test_seeded_noise_repeats_a_repair() -> None:
    case = Case(FOUR)
    plan = case.plan([0, 1, 0, 1], 90)
    one, two = (case.apply(plan, repair=True, noise=Noise(seed=5)) for _ in range(2))
    assert one.bin_of_row.tolist() == two.bin_of_row.tolist()


def test_progress_names_the_stages() -> None:
    case = Case(FOUR)
    lines: list[str] = []
    case.apply(case.plan([0, 0, 1, 1], 85), repair=True, progress=lines.append)
    assert lines == ["exchanging packages that look alike", "moving packages", "opening bins"]


# Linkage, what is unplanned


def test_linkage_is_that_of_the_plan_if_nothing_was_changed() -> None:
    case = Case(FOUR)
    plan = case.plan([0, 1, 0, 1], 100)
    linkage = case.apply(plan, repair=True).truck_linkage
    counted = truck_linkage(case.release.data.column("class_id").to_numpy(), plan.assignment)
    assert linkage == counted.model_copy(update={"note": linkage.note})
    assert "outside the plan" in linkage.note


def test_linkage_after_an_exchange_is_counted() -> None:
    """Two repairs exist, so who knows all weights and that one was drawn names the truck with one half: exactly."""
    case = Case(FOUR)
    done = case.apply(case.plan([0, 1, 0, 1], 90), repair=True)
    linkage = done.truck_linkage
    assert (linkage.mean, linkage.worst, linkage.kind) == (0.5, 0.5, "exact")
    assert done.repair is not None
    assert done.repair.repairs_found == 2


@pytest.mark.parametrize("bins", [[0, 1, 0, 1], [0, 1, 1, 1]])
def test_linkage_after_any_other_repair_is_an_estimate_no_better_than_counting(
    bins: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "count_and_draw", lambda *_: None)
    case = Case(FOUR)
    done = case.apply(case.plan(bins, 90), repair=True)
    counted = truck_linkage(case.release.data.column("class_id").to_numpy(), done.bin_of_row)
    assert done.truck_linkage.kind == "estimate"
    assert done.truck_linkage.repairs == (2 if bins == [0, 1, 0, 1] else done.truck_linkage.repairs)
    assert done.truck_linkage.mean >= counted.mean
    assert done.truck_linkage.worst >= counted.worst


@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.lists(st.integers(-1, 3), min_size=n, max_size=n), min_size=1)))
def test_the_most_frequent_truck_by_counting(repairs: list[list[int]]) -> None:
    by_hand = [max(Counter(column).values()) / len(repairs) for column in zip(*repairs, strict=True)]
    assert most_frequent_share(np.array(repairs)).tolist() == pytest.approx(by_hand)


def test_what_travels_outside_the_plan_is_counted() -> None:
    weights = [10.0, 20.0, 60.0, 80.0, None, None, 500.0]
    case = Case(weights, town=["A", "A", "A", "A", "A", "A", "B"])
    assert len(case.release) == 4
    done = case.apply(pack(case.release, capacity=200))
    assert done.unplanned.plain() == {"count": 3, "left_out": 2, "suppressed": 1, "left_behind": 0}
    assert "3 packages: 2 left out, 1 suppressed, 0 left behind" in done.summary()
    check_whole(case, done)


# What is written and shown


@pytest.fixture
def settled() -> tuple[Case, Settlement]:
    case = Case(FOUR)
    return case, case.apply(case.plan([0, 1, 0, 1], 90), repair=True)


def test_the_folder_is_private_and_readable(settled: tuple[Case, Settlement], tmp_path: Path) -> None:
    case, done = settled
    before = os.umask(0)
    try:
        done.write(tmp_path / "settlement")
    finally:
        os.umask(before)
    folder = tmp_path / "settlement"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(os.listdir(folder)) == ["loading.csv", "loads.csv", "settlement.json"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    content = json.loads((folder / "settlement.json").read_text())
    assert content == json.loads(json.dumps(done.to_dict()))
    assert content["format"] == 1
    assert content["release"] == case.release.certificate.digest
    fixed = {"plan_feasible", "bins_feasible", "overloaded", "repair", "unplanned", "truck_linkage", "loads"}
    assert fixed <= set(content)
    with (folder / "loading.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert list(lines[0]) == ["row", "source_row", "bin", "parcel"]
    assert [int(line["bin"]) for line in lines] == sorted(done.bin_of_row.tolist())
    assert {line["parcel"] for line in lines} == {f"'=CANARY{number}" for number in range(4)}, "escaped"
    with (folder / "loads.csv").open(newline="") as stream:
        loads = list(csv.DictReader(stream))
    assert [float(line["load"]) for line in loads] == done.final_loads[:, 0].tolist()
    assert list(loads[0]) == ["bin", "truck", "load", "capacity"]


def test_writing_replaces_by_force_only(settled: tuple[Case, Settlement], tmp_path: Path) -> None:
    _, done = settled
    done.write(tmp_path / "settlement")
    with pytest.raises(OutputError, match="--force"):
        done.write(tmp_path / "settlement")
    done.write(tmp_path / "settlement", force=True)
    assert os.listdir(tmp_path) == ["settlement"]


def test_nothing_printable_tells_who_is_in_it(settled: tuple[Case, Settlement]) -> None:
    _, done = settled
    for text in (repr(done), str(done), done.summary(), json.dumps(done.to_dict())):
        assert "CANARY" not in text
    assert "amounts" not in repr(done.task)
    assert repr(done) == "Settlement(2 bins, 1 overloaded, private)"


@pytest.mark.parametrize("count", [4, None])
def test_a_bin_that_another_town_can_spare_is_used_before_one_is_opened(count: int | None) -> None:
    """A's three packages of 60 need three trucks, and have two; B's two of 30 need one, and have two."""
    case = Case([60, 60, 60, 30, 30], town=["A", "A", "A", "B", "B"])
    done = case.apply(case.plan([0, 0, 1, 2, 3], by="town", count=count), repair=True)
    assert done.repair is not None
    assert done.repair.feasible
    assert done.repair.opened == 0
    bins = case.bins_by_source(done)
    assert len(set(bins[:3])) == 3
    assert bins[3] == bins[4]
    check_whole(case, done)
