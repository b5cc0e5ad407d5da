# SPDX-License-Identifier: Apache-2.0
"""pack: every row once, nothing above capacity, a true bound, and errors that say what to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dunnage as dn
from dunnage.errors import NoPlanError, ParameterError
from dunnage.planning.linkage import exchangeable, truck_linkage
from dunnage.planning.packing import Standard, pack
from dunnage.planning.plan import Plan
from dunnage.planning.trucks import Truck
from dunnage.settle import apply


def policy(k: int, statistic: str = "multiset", **columns: dict[str, Any]) -> dn.Policy:
    weight = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 1000], "unit": "kg"}
    return dn.Policy.from_dict(
        {
            "dataset": "parcels",
            "protects": "package",
            "attributes": {"parcel": {"role": "identifier"}, "weight": weight, **columns},
            "mechanism": {"name": "partition", "k": k, "statistic": statistic},
        }
    )


def published(weights: Any, *, k: int = 2, statistic: str = "multiset", **columns: Any) -> tuple[Any, Any, Any]:
    """Publish weights; every further column is public."""
    names = {name: {"role": "public"} for name in columns}
    table = pa.table({"parcel": [f"P{i}" for i in range(len(weights))], "weight": list(weights), **columns})
    data = dn.load(table, policy(k, statistic, **names))
    return data, *dn.publish(data, ledger=":memory:")


def random_weights(seed: int, size: int, decimals: int = 1) -> list[float]:
    return np.random.default_rng(seed).uniform(100, 400, size).round(decimals).tolist()


def loads(plan: Plan, weights: Any) -> dict[int, Fraction]:
    found: dict[int, Fraction] = defaultdict(Fraction)
    for row, bin_ in enumerate(plan.bin_of_row.tolist()):
        found[bin_] += Fraction(repr(float(weights[row])))
    return found


@pytest.mark.parametrize("statistic", ["upper", "mean"])
@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_in_one_bin_and_none_is_above_capacity(seed: int, statistic: str) -> None:
    _, release, _ = published(random_weights(seed, 60), k=5)
    plan = pack(release, capacity=500, model=Standard(statistic=statistic))
    known = release.uncertain("weight")
    packed = known.upper if statistic == "upper" else known.nominal
    assert len(plan.bin_of_row) == len(release)
    assert set(plan.bin_of_row.tolist()) == set(range(plan.objective))
    assert max(loads(plan, packed).values()) <= 500
    assert plan.bound <= plan.objective == len(plan.truck_of_bin)
    assert plan.bound >= sum(Fraction(repr(float(w))) for w in packed) / 500
    assert plan.release == release.certificate.digest


def test_means_never_need_more_bins_than_upper_bounds() -> None:
    _, release, _ = published(random_weights(4, 80), k=8)
    upper, mean = (pack(release, capacity=500, model=Standard(statistic=s)) for s in ("upper", "mean"))
    assert mean.bound <= upper.objective
    assert upper.model.plain() == {"name": "standard", "statistic": "upper"}


def test_values_of_a_column_are_packed_apart() -> None:
    towns = np.random.default_rng(1).choice(["A", "B", "C"], 60).tolist()
    _, release, _ = published(random_weights(5, 60), k=3, town=towns)
    plan = pack(release, capacity="500kg", by="town")
    released = release.data.column("town").to_pylist()
    of_bin: dict[int, set[str]] = defaultdict(set)
    for row, bin_ in enumerate(plan.bin_of_row.tolist()):
        of_bin[bin_].add(released[row])
    assert all(len(held) == 1 for held in of_bin.values())
    assert plan.by == "town"
    assert plan.objective >= pack(release, capacity="500kg").bound


def test_columns_that_are_not_public_are_refused() -> None:
    _, release, _ = published(random_weights(5, 20))
    for column in ("parcel", "weight", "nothing"):
        with pytest.raises(ParameterError, match="public column"):
            pack(release, capacity=500, by=column)


@pytest.mark.parametrize("capacity", ["500t", "volume=500", "", "0", -3, "many"])
def test_capacities_are_checked(capacity: Any) -> None:
    _, release, _ = published([10, 11, 12, 13])
    with pytest.raises(ParameterError):
        pack(release, capacity=capacity)


def test_a_capacity_or_a_truck_is_needed() -> None:
    _, release, _ = published([10, 11, 12, 13])
    van = Truck(name="van", capacity={"weight": 50})
    for arguments in (
        {},
        {"capacity": []},
        {"capacity": 5, "trucks": [van]},
        {"trucks": []},
        {"trucks": [van, van]},
        {"trucks": [Truck(name="van", capacity={"volume": 50})]},
        {"trucks": [Truck(name="van", capacity={"weight": 0})]},
        {"capacity": 50, "quantity": "volume"},
    ):
        with pytest.raises(ParameterError):
            pack(release, **arguments)
    assert pack(release, trucks=[van]).truck_of_bin == ("van",)


def test_rows_too_heavy_are_named() -> None:
    _, release, _ = published([10, 11, 900, 901])
    heavy = np.flatnonzero(release.uncertain("weight").upper > 500)
    with pytest.raises(NoPlanError, match=f"row {heavy[0]}, {heavy[1]}") as error:
        pack(release, capacity=500)
    assert error.value.exit_code == 1


def test_the_number_of_trucks_is_kept() -> None:
    _, release, _ = published([60, 61, 62, 63])
    with pytest.raises(NoPlanError, match="cannot be enough"):
        pack(release, trucks=[Truck(name="van", capacity={"weight": 100}, count=3)])
    assert pack(release, trucks=[Truck(name="van", capacity={"weight": 100}, count=4)]).status == "optimal"


def test_a_release_without_means_says_so() -> None:
    _, release, _ = published([10, 11, 12, 13], statistic="bounds")
    with pytest.raises(ParameterError, match="no mean"):
        pack(release, capacity=500, model=Standard(statistic="mean"))
    with pytest.raises(ParameterError, match="statistic"):
        Standard(statistic="median")


def test_the_time_limit_is_kept_and_a_plan_returned(within: Callable[..., Any]) -> None:
    weights = np.random.default_rng(0).uniform(20_000, 35_000, 200).round().tolist()
    _, release, _ = published([w / 100 for w in weights], k=2)
    with within(5):
        plan = pack(release, capacity=1000, seconds=0.2)
    assert plan.bound <= plan.objective


def test_progress_is_told() -> None:
    _, release, _ = published(random_weights(7, 40), k=2, town=["A", "B"] * 20)  # three or more to a truck
    lines: list[str] = []
    pack(release, capacity=1300, by="town", progress=lines.append)
    assert any("part 2 of 2" in line for line in lines)


def test_linkage_and_what_is_unplanned_are_stated() -> None:
    _, release, _ = published(random_weights(8, 40), k=5)
    plan = pack(release, capacity=2500)
    assert plan.truck_linkage.kind == "exact"
    assert 0.2 <= plan.truck_linkage.mean <= plan.truck_linkage.worst <= 1
    assert plan.unplanned.plain() == {"count": 0, "suppressed": 0, "left_out": 0}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_plans_on_upper_bounds_always_fit(data: st.DataObject) -> None:
    decimals = data.draw(st.integers(0, 12))
    numbers = st.integers(1, 100 * 10**decimals).map(lambda number: float(f"{number}e-{decimals}"))
    weights = data.draw(st.lists(numbers, min_size=6, max_size=25))
    capacity = data.draw(st.sampled_from([100, 100.1, 133.3, 250]))
    rows, release, key = published(weights, k=data.draw(st.integers(2, 3)))
    plan = pack(release, capacity=capacity, seconds=1)
    done = apply(plan, rows, release, key)
    assert done.plan_feasible
    assert done.bins_feasible == 1
    assert done.overloaded == []


def test_long_fractions_below_one_are_proven_too() -> None:
    """Class means such as 0.4 have no short decimal; rounding them must not cost the proof."""
    generator = np.random.default_rng(3)
    for _ in range(4):
        weights = np.concatenate([generator.uniform(0.1, 1, 6), generator.uniform(1, 300, 24)]).round(1)
        _, release, _ = published(weights.tolist(), k=3)
        plan = pack(release, capacity=500, model=Standard(statistic="mean"), seconds=20)
        assert plan.status == "optimal"
        assert max(loads(plan, release.uncertain("weight").nominal).values()) <= 500


def test_a_truck_that_holds_everything_is_needed_once() -> None:
    _, release, _ = published([0.1, 0.5, 0.6, 200.0, 300.0, 301.0], k=3)
    plan = pack(release, capacity=1e308)
    assert (plan.objective, plan.bound) == (1, 1)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_the_time_limit_must_be_one(seconds: float) -> None:
    _, release, _ = published(random_weights(1, 10))
    with pytest.raises(ParameterError, match="time limit"):
        pack(release, capacity=500, seconds=seconds)


def test_sensitive_values_limit_who_looks_alike() -> None:
    """One class of four, two fragile: who knows that a package is fragile knows its truck."""
    document = {
        "dataset": "parcels",
        "protects": "package",
        "attributes": {
            "weight": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 9]},
            "fragile": {"role": "sensitive"},
        },
        "mechanism": {"name": "partition", "k": 4},
    }
    table = pa.table({"weight": [5.0] * 4, "fragile": ["yes", "yes", "no", "no"]})
    release, _ = dn.publish(dn.load(table, dn.Policy.from_dict(document)), ledger=":memory:")
    fragile = np.array([value == "yes" for value in release.data["fragile"].to_pylist()])
    assert truck_linkage(exchangeable(release), fragile.astype(np.int64)).mean == 1.0
    place = np.argsort(np.argsort(fragile, kind="stable"))  # rows come in random order: 0, 1 not fragile, 2, 3 fragile
    assert truck_linkage(exchangeable(release), place % 2).mean == 0.5


def test_rows_left_out_by_the_policy_are_not_said_to_be_none() -> None:
    rules = policy(2, parcel={"role": "identifier"}).document
    rules["attributes"]["weight"]["missing"] = "leave-out"
    table = pa.table({"parcel": list("abcde"), "weight": [1.0, 2.0, None, 3.0, 4.0]})
    release, _ = dn.publish(dn.load(table, dn.Policy.from_dict(rules)), ledger=":memory:")
    assert pack(release, capacity=9).unplanned.plain() == {"count": 0, "suppressed": 0, "left_out": None}
