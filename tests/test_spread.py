# SPDX-License-Identifier: Apache-2.0
"""Spread: no truck takes more than its part of a class, whatever the model; what cannot be spread is refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.settle_help import Published, few_repairs, published, setting_weights  # noqa: F401

import dunnage as dn
from dunnage.errors import NoPlanError, ParameterError
from dunnage.planning.plan import Plan, Slots
from dunnage.release import Release
from dunnage.samples import package_setting

MODELS = {
    "upper": dn.Standard(),
    "mean": dn.Standard(statistic="mean"),
    "stochastic": dn.Stochastic(),
    "largest": dn.Robust(),
    "items": dn.Robust(budget="items"),
    "sealed": dn.Sealed(),
}


def setting_release(name: str, k: int, seed: int = 1) -> Release:
    return published(setting_weights(name, seed), k)


def most_of_each_class(release: Release, plan: Plan) -> tuple[list[int], list[int]]:
    """Return the size of each class and its most rows in one bin."""
    class_id = release.uncertain("weight").class_id
    slots = plan.slots or Slots.of_assignment(plan.assignment, class_id)
    table = slots.table(plan.num_bins, int(class_id.max()) + 1)
    assert table.sum(axis=0).tolist() == np.bincount(class_id).tolist()
    return table.sum(axis=0).tolist(), table.max(axis=0).tolist()


def check_spread(release: Release, plan: Plan, spread: int) -> None:
    sizes, most = most_of_each_class(release, plan)
    assert all(held <= size // spread for size, held in zip(sizes, most, strict=True))
    assert plan.spread == spread


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("name", "k", "spread"), [("25-S-U", 5, 3), ("25-L-U", 5, 5)])
def test_no_truck_takes_more_than_its_part(model: str, name: str, k: int, spread: int) -> None:
    release = setting_release(name, k)
    capacity = package_setting(name).capacity
    plan = dn.pack(release, capacity=capacity, model=MODELS[model], spread=spread, seconds=10)
    free = dn.pack(release, capacity=capacity, model=MODELS[model], seconds=10)
    check_spread(release, plan, spread)
    assert plan.bound <= plan.objective
    assert plan.objective >= free.bound
    if model != "sealed":
        assert plan.truck_linkage.worst <= 1 / spread
        if model not in ("mean", "items"):
            assert plan.certified.at_least >= 0.95


@pytest.mark.parametrize("name", ["25-S-U", "50-S-U"])
@pytest.mark.parametrize("spread", [2, 3, 5])
def test_small_packages_are_named_less_often(name: str, spread: int) -> None:
    release = setting_release(name, 5, seed=spread)
    plan = dn.pack(release, capacity=2500, spread=spread)
    assert plan.truck_linkage.worst <= 1 / spread
    assert plan.truck_linkage.mean <= 1 / spread
    upper = release.uncertain("weight").upper
    assert np.bincount(plan.assignment, weights=np.rint(10 * upper)).max() <= 25_000


def test_a_spread_of_one_asks_for_nothing() -> None:
    release = setting_release("25-L-U", 5)
    assert dn.pack(release, capacity=500, spread=1).objective == dn.pack(release, capacity=500).objective


def test_more_than_the_smallest_class_is_refused() -> None:
    release = setting_release("25-L-U", 5)
    smallest = int(np.bincount(release.uncertain("weight").class_id).min())
    for model in MODELS.values():
        with pytest.raises(NoPlanError, match=f"The largest spread is {smallest}") as error:
            dn.pack(release, capacity=500, model=model, spread=smallest + 1)
        assert error.value.exit_code == 1


def test_a_spread_is_a_whole_number() -> None:
    release = published([1, 2, 3, 4], 2)
    for spread in (0, -2, 1.5, "3", True):
        with pytest.raises(ParameterError, match="spread"):
            dn.pack(release, capacity=50, spread=spread)


@pytest.mark.parametrize("model", MODELS)
def test_a_class_of_one_size_needs_as_many_trucks_as_its_spread(model: str) -> None:
    """Seven equal packages that one truck could take: at most two of them in each; or six, at most one of them."""
    release, how = published([10.0] * 7, 7), MODELS[model]
    plan = dn.pack(release, capacity=100, model=how, spread=3)
    check_spread(release, plan, 3)
    assert plan.objective == 4
    vans = {count: [dn.Truck(name="van", capacity={"weight": 100}, count=count)] for count in (3, 4)}
    assert dn.pack(release, trucks=vans[4], model=how, spread=3).objective == 4
    six = published([10.0] * 6, 6)
    assert dn.pack(six, trucks=vans[3], model=how, spread=3).objective == 3
    with pytest.raises(NoPlanError, match=r"spread of 6.*The largest spread is 3") as error:
        dn.pack(six, trucks=vans[3], model=how, spread=6)
    assert error.value.exit_code == 1


def test_spread_groups_stay_apart() -> None:
    weights = setting_weights("50-S-U", 2)
    release = published(weights, 5, town=["A", "B"] * 25)
    town = release.data.column("town").to_pylist()
    for model in ("upper", "stochastic", "sealed"):
        plan = dn.pack(release, capacity=2500, model=MODELS[model], spread=4, by="town")
        check_spread(release, plan, 4)
        if plan.slots is None:
            pairs = set(zip(plan.assignment.tolist(), town, strict=True))
        else:
            of_class = dict(zip(release.uncertain("weight").class_id.tolist(), town, strict=True))
            pairs = {
                (b, of_class[c]) for b, c in zip(plan.slots.bin.tolist(), plan.slots.class_id.tolist(), strict=True)
            }
        assert len(pairs) == plan.num_bins


@pytest.mark.parametrize("statistic", ["bounds", "mean"])
def test_spread_without_multisets(statistic: str) -> None:
    release = published(setting_weights("25-S-U", 2), 5, statistic)
    for model in ("upper", "stochastic", "sealed"):
        plan = dn.pack(release, capacity=2500, model=MODELS[model], spread=4)
        check_spread(release, plan, 4)


def test_several_kinds_of_truck_are_spread_too() -> None:
    release = setting_release("25-S-U", 5)
    kinds = [
        dn.Truck(name="van", capacity={"weight": 900}, cost=2),
        dn.Truck(name="lorry", capacity={"weight": 2500}, cost=4),
    ]
    for model in ("upper", "stochastic", "largest", "sealed"):
        plan = dn.pack(release, trucks=kinds, model=MODELS[model], spread=4, seconds=10)
        check_spread(release, plan, 4)
        assert plan.bound <= plan.objective


@pytest.mark.parametrize("name", ["25-L-U", "50-L-U", "25-S-U", "50-S-U", "25-L-Un"])
def test_less_linkage_never_costs_a_truck(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import dunnage.planning.packing as packing

    release = setting_release(name, 5, seed=4)
    capacity = package_setting(name).capacity
    less = {
        model: dn.pack(release, capacity=capacity, model=MODELS[model], seconds=10) for model in ("upper", "largest")
    }
    monkeypatch.setattr(packing, "_less_linked", lambda packer, plan, deadline, also=(): plan)
    monkeypatch.setattr(packing, "spread_items", lambda sizes, class_of, group_of, bin_of, room, **more: bin_of)
    for model, found in less.items():
        plain = dn.pack(release, capacity=capacity, model=MODELS[model], seconds=10)
        assert found.objective == plain.objective
        assert found.truck_linkage.mean <= plain.truck_linkage.mean + 1e-12


def test_stated_linkage_is_counted() -> None:
    for model in ("upper", "mean", "stochastic", "largest", "items"):
        release = setting_release("25-S-U", 5, seed=6)
        plan = dn.pack(release, capacity=2500, model=MODELS[model])
        class_id = release.uncertain("weight").class_id.tolist()
        held = Counter(zip(class_id, plan.assignment.tolist(), strict=True))
        sizes = Counter(class_id)
        guesses = [max(held[class_, bin_] for bin_ in range(plan.num_bins)) / sizes[class_] for class_ in class_id]
        assert plan.truck_linkage.mean == pytest.approx(sum(guesses) / len(guesses))
        assert plan.truck_linkage.worst == pytest.approx(max(guesses))
        assert plan.truck_linkage.kind == "exact"


@pytest.mark.parametrize("seed", range(2))
def test_a_settlement_says_whether_a_repair_kept_the_spread(seed: int) -> None:
    """Smaller trucks came than were planned for, so that packages must move."""
    case = Published(setting_weights("50-S-U", seed), 4, statistic="mean")
    release = case.release
    done = case.apply(dn.pack(release, capacity=2500, spread=2), capacity=1800, repair=True)
    held = Counter(zip(done.bin_of_row.tolist(), release.uncertain("weight").class_id.tolist(), strict=True))
    sizes = Counter(release.uncertain("weight").class_id.tolist())
    above = {pair for pair, count in held.items() if pair[0] >= 0 and count > sizes[pair[1]] // 2}
    stated = done.to_dict()["spread"]
    assert {(item["bin"], item["class_id"]) for item in stated["above"]} == above
    assert (stated["kept"], "Spread" in done.summary()) == (not above, bool(above))
    assert done.repair.moved > 0
