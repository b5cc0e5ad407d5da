"""plan_utility: bins against the fewest the true weights need."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.builders import WEIGHT, a_policy
from tests.plans_help import plan_of

import dunnage as dn
from dunnage.auditing.plans import plan_utility
from dunnage.errors import ParameterError, ReleaseError


def published(weights: Any, k: int = 2, towns: Any = None) -> tuple[Any, Any, Any]:
    attributes = {"parcel": {"role": "identifier"}, "weight": {**WEIGHT, "domain": [0, 1000]}}
    columns = {"parcel": [f"P{i}" for i in range(len(weights))], "weight": list(weights)}
    if towns is not None:
        attributes["town"], columns["town"] = {"role": "public"}, towns
    data = dn.load(pa.table(columns), a_policy({"name": "partition", "k": k, "statistic": "multiset"}, attributes))
    return data, *dn.publish(data, ledger=":memory:")


def test_what_privacy_costs_by_hand() -> None:
    """Truth: 60 + 40 and 60 + 40 fill two trucks; on upper bounds 60 + 41 do not fit, so privacy costs two more."""
    data, release, key = published([59, 60, 40, 41], k=2)
    plan = dn.pack(release, capacity=100)
    assert plan.objective == 3
    utility = plan_utility(dn.apply(plan, data, release, key), data)
    assert (utility.objective, utility.optimum, utility.proven) == (3, 2, True)
    assert utility.ratio == 1.5
    assert utility.plan_feasible
    assert utility.bins_feasible == 1
    assert utility.to_dict()["ratio"] == 1.5
    assert "1.500" in utility.summary()
    json.dumps(utility.to_dict())


def test_truth_is_packed_apart_as_the_plan_is_and_opened_bins_count() -> None:
    data, release, key = published([50, 50, 50, 50, 50, 50], k=3, towns=["A", "B"] * 3)
    for by, optimum in (("town", 4), (None, 3)):
        plan = dn.pack(release, capacity=100, by=by)
        assert plan_utility(dn.apply(plan, data, release, key), data).optimum == optimum
    data, release, key = published([10, 20, 60, 80], k=2)
    plan = dn.pack(release, capacity=200)
    assert plan_utility(dn.apply(plan, data, release, key, capacity=85, repair=True), data).objective == 3
    trucks = [dn.Truck(name="truck", capacity={"weight": 85}, count=1)]
    utility = plan_utility(dn.apply(plan, data, release, key, trucks=trucks, leave_behind=True), data)
    assert (utility.objective, utility.optimum) == (1, 1)  # packages left behind do not count


def test_a_plan_on_true_weights_cannot_be_handed_out(tmp_path: Path) -> None:
    _, release, _ = published([10, 20, 60, 80], k=2)
    plan = plan_of(release, [0, 0, 1, 1], trucks=(dn.Truck(name="truck", capacity={"weight": 100}),), private=True)
    with pytest.raises(ParameterError):
        plan.write(tmp_path / "plan")
    assert not (tmp_path / "plan").exists()


def test_packages_that_were_not_released_are_shipped_too() -> None:
    """Two vans are planned for 41, 41, 42, 42; 58 and 9 were suppressed, and there are no more vans than two."""
    mechanism = {"name": "full-domain", "k": 2, "max_suppressed": 0.5, "alpha": 0.01}
    policy = a_policy(mechanism, {"weight": {**WEIGHT, "resolution": 1, "doubling": 10}}, small="suppress")
    data = dn.load(pa.table({"weight": [41, 41, 42, 42, 58, 9]}), policy)
    release, key = dn.publish(data, ledger=":memory:")
    assert len(release) == 4
    kinds = (
        dn.Truck(name="van", capacity={"weight": 100}, cost=1.5, count=2),
        dn.Truck(name="lorry", capacity={"weight": 200}, cost=9.0),
    )
    plan = plan_of(release, [0, 0, 1, 1], truck_of_bin=("van", "van"), trucks=kinds, quantities={"weight": ""})
    worth = plan_utility(dn.apply(plan, data, release, key), data)
    assert (worth.objective, worth.in_plan, worth.outside, worth.outside_bound) == (4.5, 3, 1.5, 1.5)
    assert (worth.packages, worth.packages_outside) == (6, 2)
    assert (worth.optimum, worth.proven, worth.ratio) == (4.5, True, 1)  # three vans, as the plan and the rest take
    assert worth.to_dict()["outside"] == {"packages": 2, "objective": 1.5, "bound": 1.5}


def test_other_data_are_refused() -> None:
    data, release, key = published([10, 20, 60, 80], k=2)
    done = dn.apply(dn.pack(release, capacity=200), data, release, key)
    other, *_ = published([10, 20], k=2)
    with pytest.raises(ReleaseError):
        plan_utility(done, other)
    data, release, key = published([60, 61, 62, 63], k=2)
    done = dn.apply(dn.pack(release, capacity=100), data, release, key, capacity=50, leave_behind=True)
    with pytest.raises(ParameterError):
        plan_utility(done, data)


def two_quantities(weights: Sequence[float], volumes: Sequence[float], towns: Sequence[str]) -> tuple[Any, Any, Any]:
    number = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 100], "doubling": 50}
    attributes = {"weight": {**number, "unit": "kg"}, "volume": number, "town": {"role": "public"}}
    policy = a_policy({"name": "full-domain", "k": 2, "statistic": "multiset", "max_suppressed": 0}, attributes)
    data = dn.load(pa.table({"weight": weights, "volume": volumes, "town": towns}), policy)
    return data, *dn.publish(data, ledger=":memory:")


def packings(rows: list[int]) -> Iterator[list[list[int]]]:
    """List every way to split rows into bins."""
    if not rows:
        yield []
        return
    for rest in packings(rows[1:]):
        yield [[rows[0]], *rest]
        for at in range(len(rest)):
            yield [*rest[:at], [rows[0], *rest[at]], *rest[at + 1 :]]


def least_cost(amounts: np.ndarray, towns: list[str], trucks: list[dn.Truck], names: list[str]) -> Fraction:
    """Return the least cost of trucks, each of one town, that take all rows: by listing all packings."""
    best = Fraction(10**9)
    for split in packings(list(range(len(amounts)))):
        if any(len({towns[row] for row in rows}) > 1 for rows in split):
            continue
        cost = Fraction(0)
        for rows in split:
            load = amounts[rows].sum(axis=0)
            able = [t for t in trucks if all(load[q] <= t.capacity[name] for q, name in enumerate(names))]
            cost += min((Fraction(str(t.cost)) for t in able), default=Fraction(10**9))
        best = min(best, cost)
    return best


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("apart", [None, "town"])
def test_optima_of_vectors_and_kinds_equal_listing_all_packings(seed: int, apart: str | None) -> None:
    generator = np.random.default_rng(seed)
    weights, volumes = (generator.integers(10, 60, 7).astype(float) for _ in range(2))
    towns = ["A", "B", "A", "B", "A", "A", "B"]
    data, release, key = two_quantities(weights, volumes, towns)
    kinds = [dn.Truck(name="van", capacity={"weight": 70, "volume": 80}, cost=1.0)]
    if seed % 2:
        kinds.append(dn.Truck(name="lorry", capacity={"weight": 130, "volume": 110}, cost=1.7))
    names = ["weight", "volume"]
    optimum = least_cost(np.column_stack([weights, volumes]), towns if apart else ["A"] * 7, kinds, names)
    each = {"truck_of_bin": (kinds[-1].name,) * 7, "trucks": tuple(kinds), "apart": apart}
    alone = plan_of(release, range(7), quantities={"weight": "kg", "volume": ""}, **each)
    worth = plan_utility(dn.apply(alone, data, release, key), data)
    assert worth.proven
    assert worth.optimum == pytest.approx(float(optimum))
    assert worth.ratio == pytest.approx(7 * kinds[-1].cost / float(optimum) if seed % 2 else 7 / float(optimum))
    json.dumps(worth.to_dict())


def test_counts_of_kinds_bind_the_optimum_too() -> None:
    """One cheap lorry for two towns: only one of them gets it."""
    data, release, key = two_quantities([50.0, 50, 50, 50], [1.0, 1, 1, 1], ["A", "A", "B", "B"])
    kinds = (
        dn.Truck(name="van", capacity={"weight": 60, "volume": 9}, cost=1.0),
        dn.Truck(name="lorry", capacity={"weight": 100, "volume": 9}, cost=1.2, count=1),
    )
    each = {"truck_of_bin": ("van",) * 4, "trucks": kinds, "by": "town", "quantities": {"weight": "kg", "volume": ""}}
    worth = plan_utility(dn.apply(plan_of(release, range(4), **each), data, release, key), data)
    assert worth.optimum == pytest.approx(3.2)
    assert worth.proven


def test_how_likely_the_plan_fits_is_told() -> None:
    """Of the ways to pair 10, 20 with 60, 80 half put 20 beside 80."""
    data, release, key = published([10, 20, 60, 80], k=2)
    plan = dn.pack(release, capacity=200)
    sure = plan_utility(dn.apply(plan, data, release, key), data)
    assert (sure.feasibility.value, sure.feasibility.bins, sure.feasibility.kind) == (1, 1, "exact")
    classes = release.data.column("class_id").to_numpy()
    pairs = np.array([int((classes[:row] == classes[row]).sum()) for row in range(4)])
    paired = plan_of(release, pairs, capacity=90)
    worth = plan_utility(dn.apply(paired, data, release, key, repair=True, noise=dn.Noise(seed=1)), data)
    assert (worth.feasibility.value, worth.feasibility.bins) == (0.5, 0.75)
    assert "50 %" in worth.summary()
