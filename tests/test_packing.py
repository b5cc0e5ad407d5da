# SPDX-License-Identifier: Apache-2.0
"""pack: every row once, nothing above capacity, a true bound, and errors that say what to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.settle_help import WEIGHT, Published, published

from dunnage.errors import NoPlanError, ParameterError
from dunnage.planning.linkage import exchangeable, truck_linkage
from dunnage.planning.models import Sealed
from dunnage.planning.packing import Standard, pack
from dunnage.planning.plan import Plan
from dunnage.planning.trucks import Truck


def random_weights(seed: int, size: int, decimals: int = 1) -> list[float]:
    return np.random.default_rng(seed).uniform(100, 400, size).round(decimals).tolist()


def loads(plan: Plan, weights: Any) -> dict[int, Fraction]:
    found: dict[int, Fraction] = defaultdict(Fraction)
    for row, bin_ in enumerate(plan.bin_of_row.tolist()):
        found[bin_] += Fraction(repr(float(weights[row])))
    return found


@pytest.mark.parametrize("statistic", ["upper", "mean"])
def test_every_row_is_in_one_bin_and_none_is_above_capacity(statistic: str) -> None:
    release = published(random_weights(0, 60), k=5)
    plan = pack(release, capacity=500, model=Standard(statistic=statistic))
    known = release.uncertain("weight")
    packed = known.upper if statistic == "upper" else known.nominal
    assert len(plan.bin_of_row) == len(release)
    assert set(plan.bin_of_row.tolist()) == set(range(plan.objective))
    assert max(loads(plan, packed).values()) <= 500
    assert plan.bound <= plan.objective == len(plan.truck_of_bin)
    assert plan.bound >= sum(Fraction(repr(float(w))) for w in packed) / 500
    assert plan.release == release.certificate.digest


def test_means_never_need_more_bins_than_upper_bounds_and_linkage_is_stated() -> None:
    release = published(random_weights(4, 40), 8)
    upper, mean = (pack(release, capacity=500, model=Standard(statistic=s)) for s in ("upper", "mean"))
    assert mean.bound <= upper.objective
    assert upper.model.plain() == {"name": "standard", "statistic": "upper"}
    assert upper.truck_linkage.kind == "exact"
    assert 1 / 8 <= upper.truck_linkage.mean <= upper.truck_linkage.worst <= 1
    assert upper.unplanned.plain() == {"count": 0, "suppressed": 0, "left_out": 0}
    everything = published([0.1, 0.5, 0.6, 200.0, 300.0, 301.0], 3)
    plan = pack(everything, capacity=1e308)
    assert (plan.objective, plan.bound) == (1, 1)
    roles = {"weight": {**WEIGHT, "missing": "leave-out"}}  # rows left out by the policy are not said to be none
    release = published([1.0, 2.0, None, 3.0, 4.0], 2, roles=roles)
    assert pack(release, capacity=9).unplanned.plain() == {"count": 0, "suppressed": 0, "left_out": None}


def test_values_of_a_column_are_packed_apart() -> None:
    towns, lines = np.random.default_rng(1).choice(["A", "B", "C"], 60).tolist(), []
    release = published(random_weights(5, 60), 3, town=towns)
    plan = pack(release, capacity="1300kg", by="town", progress=lines.append)
    assert any(line.count("3") > 1 for line in lines)
    pairs = set(zip(plan.bin_of_row.tolist(), release.data.column("town").to_pylist(), strict=True))
    assert (len(pairs), plan.by) == (plan.num_bins, "town")
    assert plan.objective >= pack(release, capacity="1300kg").bound
    for column in ("parcel", "weight", "nothing"):
        with pytest.raises(ParameterError, match=column):
            pack(release, capacity=500, by=column)


def test_a_capacity_a_truck_and_a_time_limit_are_needed() -> None:
    release = published([10, 11, 12, 13], 2)
    van = Truck(name="van", capacity={"weight": 50})
    arguments: list[dict[str, Any]] = [{"capacity": text} for text in ("500t", "volume=500", "", "0", -3, "many")]
    arguments += [{"capacity": 500, "seconds": seconds} for seconds in (0, -1, float("nan"))]
    arguments += [
        {},
        {"capacity": []},
        {"capacity": 5, "trucks": [van]},
        {"trucks": []},
        {"trucks": [van, van]},
        {"trucks": [Truck(name="van", capacity={"volume": 50})]},
        {"trucks": [Truck(name="van", capacity={"weight": 0})]},
        {"capacity": 50, "quantity": "volume"},
    ]
    for given_ in arguments:
        with pytest.raises(ParameterError):
            pack(release, **given_)
    assert pack(release, trucks=[van]).truck_of_bin == ("van",)


def test_rows_too_heavy_and_trucks_too_few_are_named() -> None:
    release = published([10, 11, 900, 901], 2)
    heavy = np.flatnonzero(release.uncertain("weight").upper > 500)
    with pytest.raises(NoPlanError, match=f"{heavy[0]}, {heavy[1]}") as error:
        pack(release, capacity=500)
    assert error.value.exit_code == 1
    release = published([60, 61, 62, 63], 2)
    with pytest.raises(NoPlanError):
        pack(release, trucks=[Truck(name="van", capacity={"weight": 100}, count=3)])
    assert pack(release, trucks=[Truck(name="van", capacity={"weight": 100}, count=4)]).status == "optimal"
    release = published([10, 11, 12, 13], 2, "bounds")
    with pytest.raises(ParameterError, match="mean"):
        pack(release, capacity=500, model=Standard(statistic="mean"))
    with pytest.raises(ParameterError, match="statistic"):
        Standard(statistic="median")


def test_the_time_limit_is_kept_and_a_plan_returned(within: Callable[..., Any]) -> None:
    weights = np.random.default_rng(0).uniform(20_000, 35_000, 200).round().tolist()
    release = published([w / 100 for w in weights], 2)
    with within(5):
        plan = pack(release, capacity=1000, seconds=0.2)
    assert plan.bound <= plan.objective


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_plans_on_upper_bounds_always_fit(data: st.DataObject) -> None:
    decimals = data.draw(st.integers(0, 12))
    numbers = st.integers(1, 100 * 10**decimals).map(lambda number: float(f"{number}e-{decimals}"))
    weights = data.draw(st.lists(numbers, min_size=6, max_size=25))
    capacity = data.draw(st.sampled_from([100, 100.1, 133.3, 250]))
    case = Published(weights, data.draw(st.integers(2, 3)))
    done = case.settle(pack(case.release, capacity=capacity, seconds=1))
    assert (done.plan_feasible, done.bins_feasible, done.overloaded) == (True, 1, [])


def test_long_fractions_below_one_are_proven_too() -> None:
    """Class means such as 0.4 have no short decimal; rounding them must not cost the proof."""
    generator = np.random.default_rng(3)
    for _ in range(4):
        weights = np.concatenate([generator.uniform(0.1, 1, 6), generator.uniform(1, 300, 24)]).round(1)
        release = published(weights.tolist(), 3)
        plan = pack(release, capacity=500, model=Standard(statistic="mean"), seconds=20)
        assert plan.status == "optimal"
        assert max(loads(plan, release.uncertain("weight").nominal).values()) <= 500


def test_sealed_plans_of_any_floats_state_a_bound() -> None:
    """They stated 0, because these numbers are rounded."""
    weights = np.random.default_rng(2).lognormal(2, 1.5, 60).clip(0.1, 400).tolist()
    shop = Published({"weight": weights, "place": ["a", "b"] * 30}, k=3)
    whole = [sum(map(Fraction, shop.weights[shop.release.data["place"].to_numpy() == name])) for name in "ab"]
    for by, parts in ((None, [sum(whole)]), ("place", whole)):
        plan = pack(shop.release, capacity=500, model=Sealed(), by=by, seconds=1)
        assert sum(-(-part // 500) for part in parts) <= plan.bound <= plan.objective


def test_sensitive_values_limit_who_looks_alike() -> None:
    """One class of four, two fragile: who knows that a package is fragile knows its truck."""
    release = published([5.0] * 4, 4, fragile=["yes", "yes", "no", "no"], roles={"fragile": "sensitive"})
    fragile = np.array([value == "yes" for value in release.data["fragile"].to_pylist()])
    assert truck_linkage(exchangeable(release), fragile.astype(np.int64)).mean == 1.0
    place = np.argsort(np.argsort(fragile, kind="stable"))  # rows come in random order: 0, 1 not fragile, 2, 3 fragile
    assert truck_linkage(exchangeable(release), place % 2).mean == 0.5
