# SPDX-License-Identifier: Apache-2.0
"""Sealed plans: as many trucks as the truth needs, slots only, linkage by listing fills, no trace of the witness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles import bins as oracle
from tests.settle_help import Published, setting_weights

import dunnage as dn
from dunnage.errors import NoPlanError, ParameterError
from dunnage.kernels.bins.scalar import pack_bins
from dunnage.planning.plan import Plan
from dunnage.samples import package_setting

IMPROBABLE = 1e-9


class Case(Published):
    """Published weights, and sealed plans on them."""

    def __init__(self, weights: Sequence[float], k: int, statistic: str = "multiset", **columns: Sequence[str]) -> None:
        super().__init__({"weight": weights, **columns}, k, statistic=statistic)
        self.class_id = self.release.uncertain("weight").class_id

    def pack(self, capacity: float, **more: Any) -> Plan:
        return dn.pack(self.release, capacity=capacity, model=dn.Sealed(), **more)

    def check_slots(self, plan: Plan) -> None:
        """Slots cover the classes exactly, and no bin is empty."""
        assert plan.bin_of_row is None
        table = plan.slots.table(plan.num_bins, int(self.class_id.max()) + 1)
        assert table.sum(axis=0).tolist() == np.bincount(self.class_id).tolist()
        assert (table.sum(axis=1) > 0).all()
        assert (plan.slots.count > 0).all()
        assert len({*zip(plan.slots.bin.tolist(), plan.slots.class_id.tolist(), strict=True)}) == len(plan.slots.bin)

    def fill(self, plan: Plan) -> list[int]:
        """Apply a plan, check that the fill is one of its own and fits, and return the bin of each row."""
        done = dn.apply(plan, self.data, self.release, self.key)
        assert done.plan_feasible
        bins = done.loading.sort_by("row").column("bin").to_numpy()
        again = Counter(zip(bins.tolist(), self.class_id.tolist(), strict=True))
        asked = zip(plan.slots.bin.tolist(), plan.slots.class_id.tolist(), plan.slots.count.tolist(), strict=True)
        assert again == {(bin_, class_): count for bin_, class_, count in asked}
        loads = np.bincount(bins, weights=np.rint(10 * self.weights))
        assert (loads <= np.rint(10 * plan.capacity_of_bins("weight"))).all()
        return bins.tolist()


def all_fills(case: Case, plan: Plan) -> list[tuple[int, ...]]:
    """List every way to fill the slots that fits, rows told apart."""
    table = plan.slots.table(plan.num_bins, int(case.class_id.max()) + 1).tolist()
    room = plan.capacity_of_bins("weight")[:, None].tolist()
    return oracle.all_fills(case.class_id.tolist(), case.weights[:, None].tolist(), table, room)


def best_guesses(case: Case, fills: list[tuple[int, ...]], num_bins: int) -> list[float]:
    """For each row, the largest share of fills that agree on a truck for a package of its class and weight."""
    found = []
    for class_, weight in zip(case.class_id, case.weights, strict=True):
        alike = np.flatnonzero((case.class_id == class_) & (case.weights == weight))
        trucks = np.bincount(np.array(fills)[:, alike].ravel(), minlength=num_bins)
        found.append(trucks.max() / (len(fills) * len(alike)))
    return found


@pytest.mark.parametrize(("name", "k"), [("25-L-U", 2), ("25-L-U", 10), ("50-L-U", 5), ("25-S-U", 5), ("25-L-Un", 10)])
def test_privacy_costs_no_truck(name: str, k: int) -> None:
    setting = package_setting(name)
    weights = setting_weights(name, k)
    case = Case(weights, k)
    if len(case.release) < len(weights):
        pytest.skip("packages were suppressed")
    plan = case.pack(setting.capacity, seconds=15)
    true = pack_bins(np.rint(10 * np.array(weights)).astype(np.int64), int(10 * setting.capacity), seconds=10)
    assert (plan.objective, plan.status) == (true.objective, "optimal")
    assert plan.model.plain() == {"name": "sealed", "from": "multisets"}
    case.check_slots(plan)
    case.fill(plan)
    assert 1 / 25 <= plan.truck_linkage.mean <= plan.truck_linkage.worst <= 1


def test_linkage_is_that_of_all_fills_listed() -> None:
    for seed in range(6):
        generator = np.random.default_rng(seed)
        weights = generator.integers(10, 60, 7).tolist()
        case = Case(weights, 2 + seed % 2)
        plan = case.pack(float(generator.integers(60, 110)))
        case.check_slots(plan)
        fills = all_fills(case, plan)
        guesses = best_guesses(case, fills, plan.num_bins)
        assert (plan.truck_linkage.kind, plan.truck_linkage.fills) == ("exact", len(fills))
        assert plan.truck_linkage.mean == pytest.approx(np.mean(guesses))
        assert plan.truck_linkage.worst == pytest.approx(max(guesses))
    # A = {1, 2}, B = {3, 4}, capacity 5: 1 with 4 and 2 with 3, whichever truck is which.
    case = Case([1, 2, 3, 4], 2)
    plan = case.pack(5)
    case.check_slots(plan)
    assert (plan.objective, plan.slots.table(2, 2).tolist()) == (2, [[1, 1], [1, 1]])
    assert len(all_fills(case, plan)) == plan.truck_linkage.fills == 2
    assert plan.truck_linkage.worst == 0.5
    assert Counter(tuple(case.fill(plan)) for _ in range(60)).keys() == set(all_fills(case, plan))


def test_only_slots_are_written(tmp_path: Path) -> None:
    case = Case(setting_weights("25-L-U", 4), 5)
    plan = case.pack(500)
    plan.write(tmp_path / "plan")
    assert sorted(path.name for path in (tmp_path / "plan").iterdir()) == ["bins.csv", "plan.json", "slots.csv"]
    assert (tmp_path / "plan" / "slots.csv").read_text().splitlines()[0] == "bin,class_id,count"
    again = Plan.read(tmp_path / "plan")
    assert again.to_dict() == plan.to_dict()
    case.check_slots(again)
    case.fill(again)
    with pytest.raises(ParameterError):
        _ = again.assignment


@pytest.mark.parametrize("statistic", ["bounds", "mean"])
def test_without_multisets_slots_come_from_upper_bounds(statistic: str) -> None:
    case = Case(setting_weights("25-L-U", 4), 5, statistic)
    plan = case.pack(500)
    case.check_slots(plan)
    upper = dn.pack(case.release, capacity=500)
    assert (plan.objective, plan.model.from_) == (upper.objective, "upper bounds")
    first = np.unique(case.class_id, return_index=True)[1]
    heaviest = np.rint(10 * case.release.uncertain("weight").upper[first])
    loads = plan.slots.table(plan.num_bins, len(first)) @ heaviest
    assert plan.truck_linkage.kind == "exact"
    assert (loads <= 5000).all()
    case.fill(plan)


def test_groups_have_their_own_trucks_and_slots_tell_no_more_than_rows() -> None:
    weights = setting_weights("50-L-U", 4)
    case = Case(weights, 4, town=["A", "B"] * 25)
    plan = case.pack(500, by="town")
    case.check_slots(plan)
    town = dict(zip(case.class_id.tolist(), case.release.data.column("town").to_pylist(), strict=True))
    for bin_ in range(plan.num_bins):
        assert len({town[class_] for class_ in plan.slots.class_id[plan.slots.bin == bin_].tolist()}) == 1
    parts = [np.array(weights)[start::2] for start in (0, 1)]
    least = sum(pack_bins(np.rint(10 * part).astype(np.int64), 5000, seconds=10).objective for part in parts)
    assert plan.objective == least
    case.fill(plan)
    # Small packages: a packing of the members alone would leave few fills and so name trucks.
    for name, k in (("50-S-U", 10), ("200-S-U", 5)):
        case = Case(setting_weights(name, 3), k)
        plan = case.pack(2500)
        rows = dn.pack(case.release, capacity=2500, model=dn.Robust())
        assert (plan.objective, plan.truck_linkage.kind) == (rows.objective, "exact")
        assert plan.truck_linkage.mean <= rows.truck_linkage.mean + 1e-9


def test_too_few_trucks_and_packages_too_heavy() -> None:
    van = dn.Truck(name="van", capacity={"weight": 100}, count=3)
    with pytest.raises(NoPlanError, match="van"):
        dn.pack(Case([60, 61, 62, 63], 2).release, trucks=[van], model=dn.Sealed())
    for weights, fact in (([60, 61, 900, 901], "row "), ([60, 61, 99, 101], None)):  # 99 could fit, 101 cannot
        with pytest.raises(NoPlanError, match=fact):
            Case(weights, 2).pack(100)


def test_short_of_time_there_is_a_plan_that_costs_no_more_than_rows_would(within: Callable[..., Any]) -> None:
    case = Case(np.random.default_rng(5).uniform(125, 375, 30).round(1).tolist(), 5)
    van = dn.Truck(name="van", capacity={"weight": 400}, count=4, cost=2.5)
    kinds = [van, dn.Truck(name="lorry", capacity={"weight": 800.5}, cost=4)]
    with within(20):
        plan = dn.pack(case.release, trucks=kinds, model=dn.Sealed(), seconds=0.5)
    assert plan.objective <= dn.pack(case.release, trucks=kinds, seconds=0.5).objective
    case.check_slots(plan)
    case.fill(plan)
    case = Case(setting_weights("50-L-U", 4), 10)
    plan = case.pack(500, seconds=0.05)
    case.check_slots(plan)
    assert plan.bound <= plan.objective
