# SPDX-License-Identifier: Apache-2.0
"""Pages of packing plans and settlements: what they show, what they must not show."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.builders import CANARY, a_policy, parcels
from tests.pages_help import check_closed
from tests.settle_help import published

import dunnage as dn
from dunnage.planning.linkage import exchangeable
from dunnage.release import Release
from dunnage.showing.packing import MAX_COLUMNS, MAX_LISTED, plan_page, settlement_page

K = {"name": "partition", "k": 3, "statistic": "multiset"}
WEIGHT = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 500], "unit": "kg"}


def released(num: int = 24) -> tuple[dn.Dataset, Release, dn.Key]:
    data = dn.Dataset.from_table(parcels(num), a_policy(K))
    release, key = dn.publish(data, ledger=":memory:")
    return data, release, key


@pytest.mark.parametrize("model", [dn.Standard(), dn.Sealed(), dn.Robust(), dn.Stochastic(risk=0.1)], ids=str)
def test_a_plan_has_a_public_page(model: object) -> None:
    _, release, _ = released()
    plan = dn.pack(release, capacity=250, model=model, by="destination", seconds=1)
    page = check_closed(plan_page(plan, release))
    assert "Public" in page.text
    assert CANARY not in page.text
    assert len([row for row in page.rows if row.get("destination")]) == plan.num_bins
    in_trucks = [int(row["Packages"]) for row in page.rows if "Packages" in row]
    assert sum(in_trucks) == len(release)
    assert plan.truck_linkage is not None
    assert "Truck linkage" in page.text


def test_a_plan_page_says_how_many_are_in_none_of_its_trucks() -> None:
    """The page left out what the command printed: a planner took 1,229 parcels for all of them."""
    policy = a_policy(K).document | {"small": "suppress"}
    rows = parcels(24).to_pydict()
    rows["destination"][0] = "a place of its own"
    release, _ = dn.publish(dn.Dataset.from_table(pa.table(rows), dn.Policy.from_dict(policy)), ledger=":memory:")
    plan = dn.pack(release, capacity=250, by="destination", seconds=1)
    assert plan.unplanned is not None
    assert plan.unplanned.count == 1
    assert "Outside the plan" in check_closed(plan_page(plan, release)).text


def test_plans_that_always_fit_do_not_say_that_trucks_can_be_overloaded() -> None:
    """Two rows between 10 and 100 may weigh 200, but as all of their class they weigh 110."""
    release = published([10, 100], 2)
    for model in (dn.Robust(), dn.Sealed()):
        page = check_closed(plan_page(dn.pack(release, capacity=120, model=model, seconds=1), release))
        assert "can be overloaded" not in page.text
        assert "110" in page.text


def test_a_sealed_page_does_not_promise_less_than_its_linkage() -> None:
    """It said that the true chance "can be lower" than a share of a class, where the plan states 99 % at worst."""
    release = published([10, 100], 2)
    page = check_closed(plan_page(dn.pack(release, capacity=120, model=dn.Sealed(), seconds=1), release))
    assert "can be lower" not in page.text


def test_the_bounds_of_loads_hold_in_truth_and_classes_are_ranked_by_linkage() -> None:
    data, release, key = released()
    plan = dn.pack(release, capacity=250, model=dn.Stochastic(risk=0.1), by="destination", seconds=1)
    page = check_closed(plan_page(plan, release))
    done = dn.apply(plan, data, release, key)
    for row, load in zip([row for row in page.rows if "Load (weight)" in row], done.loads[:, 0], strict=True):
        low, _, high = row["Load (weight)"].removesuffix(" kg").partition(" to ")
        assert float(low) - 0.5 <= load <= float(high or low) + 0.5
    groups = exchangeable(release)
    shares = {g: np.bincount(plan.assignment[groups == g]).max() / (groups == g).sum() for g in set(groups.tolist())}
    named = [float(row["Truck named"].removesuffix(" %")) for row in page.rows if "Truck named" in row]
    assert named == sorted(named, reverse=True)
    assert named[0] == pytest.approx(100 * max(shares.values()), rel=0.01)


def test_a_large_plan_stays_small() -> None:
    num = 1800
    weights = pa.table({"weight": np.round(100 + np.arange(num) % 97, 1)})
    data = dn.Dataset.from_table(weights, a_policy({"name": "partition", "k": 6}, {"weight": WEIGHT}))
    release, key = dn.publish(data, ledger=":memory:")
    plan = dn.pack(release, capacity=500, seconds=0.5)
    assert plan.num_bins > max(MAX_COLUMNS, MAX_LISTED)
    text = plan_page(plan, release)
    assert len(text) < 400_000
    page = check_closed(text)
    assert len([row for row in page.rows if "Filled at most" in row]) == MAX_LISTED
    assert "more line" in page.text
    check_closed(settlement_page(dn.apply(plan, data, release, key), release))


def test_a_settlement_has_a_private_page() -> None:
    data, release, key = released()
    plan = dn.pack(release, capacity=250, by="destination", seconds=1)
    done = dn.apply(plan, data, release, key, capacity=["225"], repair=True)
    assert done.overloaded
    page = check_closed(settlement_page(done, release))
    assert "For the owner only" in page.text
    over = [row for row in page.rows if "True load" in row]
    assert [int(row["Plan"]) for row in over] == [
        item.bin for item in sorted(done.overloaded, key=lambda item: -item.load / item.capacity)
    ]
    assert "after repair" in page.text
