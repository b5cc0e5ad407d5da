"""plan_utility: bins against the fewest the true weights need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dunnage as dn
from dunnage.auditing.utility import plan_utility, true_plan
from dunnage.errors import NoPlanError, ParameterError, ReleaseError
from dunnage.planning.packing import pack
from dunnage.planning.plan import Truck
from dunnage.settle import apply


def published(weights: Any, k: int = 2, towns: Any = None) -> tuple[Any, Any, Any]:
    attributes = {
        "parcel": {"role": "identifier"},
        "weight": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 1000], "unit": "kg"},
    }
    columns = {"parcel": [f"P{i}" for i in range(len(weights))], "weight": list(weights)}
    if towns is not None:
        attributes["town"], columns["town"] = {"role": "public"}, towns
    policy = dn.Policy.from_dict(
        {
            "dataset": "parcels",
            "protects": "package",
            "attributes": attributes,
            "mechanism": {"name": "partition", "k": k, "statistic": "multiset"},
        }
    )
    data = dn.load(pa.table(columns), policy)
    return data, *dn.publish(data, ledger=":memory:")


def test_what_privacy_costs_by_hand() -> None:
    """Truth: 60 + 40 and 60 + 40 fill two trucks; on upper bounds 60 + 41 do not fit, so privacy costs two more."""
    data, release, key = published([60, 60, 40, 40, 41, 41], k=2)
    assert true_plan(data, release, key, capacity=100).objective == 3
    data, release, key = published([59, 60, 40, 41], k=2)
    plan = pack(release, capacity=100)
    assert plan.objective == 3
    utility = plan_utility(apply(plan, data, release, key), data)
    assert (utility.objective, utility.optimum, utility.proven) == (3, 2, True)
    assert utility.ratio == 1.5
    assert utility.plan_feasible
    assert utility.bins_feasible == 1
    assert utility.to_dict()["ratio"] == 1.5
    assert "1.500" in utility.summary()
    json.dumps(utility.to_dict())


def test_columns_packed_apart_are_packed_apart_in_truth_too() -> None:
    data, release, key = published([50, 50, 50, 50, 50, 50], k=3, towns=["A", "B"] * 3)
    apart = pack(release, capacity=100, by="town")
    assert plan_utility(apply(apart, data, release, key), data).optimum == 4
    assert true_plan(data, release, key, capacity=100, by="town").objective == 4
    together = pack(release, capacity=100)
    assert plan_utility(apply(together, data, release, key), data).optimum == 3


def test_opened_bins_count_and_packages_left_behind_do_not() -> None:
    data, release, key = published([10, 20, 60, 80], k=2)
    path_plan = pack(release, capacity=200)
    opened = apply(path_plan, data, release, key, capacity=85, repair=True)
    assert plan_utility(opened, data).objective == 3
    left = apply(
        path_plan, data, release, key, trucks=[Truck(name="truck", capacity={"weight": 85}, count=1)], leave_behind=True
    )
    utility = plan_utility(left, data)
    assert (utility.objective, utility.optimum) == (1, 1)


def test_the_true_plan_fits_and_is_no_worse() -> None:
    weights = np.random.default_rng(3).uniform(100, 400, 60).round(1).tolist()
    data, release, key = published(weights, k=5)
    truth = true_plan(data, release, key, capacity=500)
    assert apply(truth, data, release, key).plan_feasible
    assert truth.objective <= pack(release, capacity=500).objective
    assert truth.model == {"name": "true weights", "quantity": "weight"}
    with pytest.raises(NoPlanError):
        true_plan(data, release, key, capacity=50)
    with pytest.raises(ParameterError):
        true_plan(data, release, key, capacity=500, quantity="volume")


def test_other_data_are_refused() -> None:
    data, release, key = published([10, 20, 60, 80], k=2)
    done = apply(pack(release, capacity=200), data, release, key)
    other, *_ = published([10, 20], k=2)
    with pytest.raises(ReleaseError, match="other data"):
        plan_utility(done, other)
    with pytest.raises(ReleaseError, match="not made from these rows"):
        true_plan(published([10, 20, 60, 81])[0], release, key, capacity=500)


def test_nothing_loaded_is_nothing_to_compare() -> None:
    data, release, key = published([60, 61, 62, 63], k=2)
    done = apply(pack(release, capacity=100), data, release, key, capacity=50, leave_behind=True)
    with pytest.raises(ParameterError, match="nothing to compare"):
        plan_utility(done, data)


def test_a_plan_on_true_weights_cannot_be_handed_out(tmp_path: Path) -> None:
    data = dn.load(*dn.generate_packages(dn.package_setting("25-L-U"), tmp_path / "p.csv", seed=1))
    release, key = dn.publish(data, ledger=":memory:")
    plan = true_plan(data, release, key, capacity=500)
    assert plan.private
    with pytest.raises(ParameterError, match="stays with the owner"):
        plan.write(tmp_path / "plan")
    assert not (tmp_path / "plan").exists()
