# SPDX-License-Identifier: Apache-2.0
"""Several quantities, several kinds of truck, rows kept apart: an independent checker, brute force, clear refusals."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from tests.oracles.bins import parts
from tests.settle_help import Published

import dunnage as dn
from dunnage.errors import NoPlanError, ParameterError
from dunnage.planning.plan import Plan

UNITS = {"weight": "kg", "volume": "m3", "height": "cm", "width": "cm", "length": "cm"}
MODELS = [dn.Standard(), dn.Standard(statistic="mean"), dn.Stochastic(), dn.Robust(), dn.Sealed()]
NAMES = ["upper", "mean", "stochastic", "largest", "sealed"]
IMPROBABLE = 1e-9


class Case(Published):
    """Published quantities, and the truth of each released row."""

    def __init__(self, quantities: dict[str, Sequence[float]], k: int, name: str = "partition", **columns: Any) -> None:
        number = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 1000], "doubling": 25}
        roles = {quantity: {**number, "unit": UNITS[quantity]} for quantity in quantities}
        super().__init__({**quantities, **columns}, k, name=name, roles=roles)
        self.names, self.truth = list(quantities), self.amounts
        self.class_id = self.release.data.column("class_id").to_numpy()


def drawn(seed: int, size: int, *highs: int) -> dict[str, list[float]]:
    generator = np.random.default_rng(seed)
    names = ["weight", "volume"] if len(highs) == 2 else ["weight", "height", "width", "length"]
    return {name: generator.integers(1, high, size).tolist() for name, high in zip(names, highs, strict=True)}


@pytest.fixture(scope="module")
def flat() -> Case:
    """Weight and volume of twenty-four packages."""
    return Case(drawn(1, 24, 60, 40), 3)


@pytest.fixture(scope="module")
def deep() -> Case:
    """Weight, height, width and length of twelve packages."""
    return Case(drawn(2, 12, 60, 50, 50, 50), 4)


FLAT_ROOM = ["150kg", "volume=110"]
DEEP_ROOM = ["weight=170kg", "height=140", "width=150", "length=160cm"]


def check_loads(case: Case, plan: Plan, values: np.ndarray, bins: np.ndarray) -> None:
    """Add up each bin in fractions; nothing but the numbers of the release."""
    assert sorted(set(bins.tolist())) == list(range(plan.num_bins))
    for column, name in enumerate(case.names):
        loads = [Fraction(0)] * plan.num_bins
        for row, bin_ in enumerate(bins.tolist()):
            loads[bin_] += Fraction(float(values[row, column]))
        held = [Fraction(float(room)) for room in plan.capacity_of_bins(name)]
        assert all(load <= room * (1 + Fraction(1, 10**9)) for load, room in zip(loads, held, strict=True))


def check_plan(case: Case, plan: Plan, model: Any) -> None:
    """Check what a model promises, against the release or against the truth."""
    if isinstance(model, dn.Standard):
        known = [case.release.uncertain(name) for name in case.names]
        values = np.column_stack([one.upper if model.statistic == "upper" else one.nominal for one in known])
        check_loads(case, plan, values, plan.assignment)
    done = dn.apply(plan, case.data, case.release, case.key)
    if isinstance(model, dn.Sealed | dn.Robust) or model == dn.Standard():
        assert done.plan_feasible
        bins = done.loading.sort_by("row").column("bin").to_numpy()
        check_loads(case, plan, case.truth, bins)
    assert plan.bound <= plan.objective
    if isinstance(model, dn.Stochastic):
        low, high = plan.certified.at_least, plan.certified.at_most
        assert 0.95 <= low <= high <= 1
        tries, hits = 4000, 0
        generator = np.random.default_rng(3)
        rooms = np.column_stack([plan.capacity_of_bins(name) for name in case.names])
        for _ in range(tries):
            order = np.arange(len(case.class_id))
            for class_ in range(case.class_id.max() + 1):
                rows = np.flatnonzero(case.class_id == class_)
                order[rows] = generator.permutation(rows)
            loads = np.zeros(rooms.shape)
            np.add.at(loads, plan.assignment, case.truth[order])
            hits += bool((loads <= rooms).all())
        assert binom.cdf(hits, tries, low) > IMPROBABLE
        assert binom.sf(hits - 1, tries, high) > IMPROBABLE


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_several_quantities(flat: Case, deep: Case, model: Any) -> None:
    plan = dn.pack(flat.release, capacity=FLAT_ROOM, model=model, seconds=10)
    assert plan.quantities == {"weight": "kg", "volume": "m3"}
    assert plan.trucks[0].capacity == {"weight": 150, "volume": 110}
    check_plan(flat, plan, model)
    plan = dn.pack(deep.release, capacity=DEEP_ROOM, model=model, seconds=10)
    assert list(plan.quantities) == ["weight", "height", "width", "length"]
    check_plan(deep, plan, model)


def test_models_are_ordered_by_what_they_know_and_come_back_from_folders(flat: Case, tmp_path: Path) -> None:
    plans = {name: dn.pack(flat.release, capacity=FLAT_ROOM, model=m) for name, m in zip(NAMES, MODELS, strict=True)}
    assert plans["sealed"].bound <= plans["stochastic"].objective <= plans["largest"].objective
    assert plans["largest"].objective <= plans["upper"].objective
    for name, plan in plans.items():
        again = Plan.read(plan.write(tmp_path / name))
        assert again.to_dict() == plan.to_dict(), name
        assert again.summary().splitlines()[:-1] == plan.summary().splitlines()[:-1]  # the last has the seconds
        assert (plan.release, plan.unplanned.count) == (flat.release.certificate.digest, 0)
    for model in (*(dn.Robust(budget=budget) for budget in ("items", "published")), dn.Stochastic(as_published=True)):
        with pytest.raises(ParameterError):  # these are for one quantity
            dn.pack(flat.release, capacity=FLAT_ROOM, model=model)


def test_for_vectors_the_product_is_no_bound() -> None:
    """Class {(3,1), (1,3)}, rooms (3,1) and (1,3): both fit with 1/2, though the product is 1/4."""
    case = Case({"weight": [3, 1], "volume": [1, 3]}, 2)
    rooms = {"broad": {"weight": 3, "volume": 1}, "tall": {"weight": 1, "volume": 3}}
    kinds = [dn.Truck(name=name, capacity=room, count=1) for name, room in rooms.items()]
    with suppress(NoPlanError):  # the union bound cannot certify it, and nothing is claimed
        assert dn.pack(case.release, trucks=kinds, model=dn.Stochastic(risk="0.6")).certified.at_most >= 0.5


def test_capacities_must_be_clear(flat: Case, deep: Case) -> None:
    wrong = [
        *("150", ["150kg", "160kg"], ["150kg", "volume=9", "20"], ["weight=150", "weight=160"], ["150kg", "height=9"]),
        *(["150kg", "volume=9kg"], ["150kg", "volume=-9"], ["=150"], [], [150, 90]),
    ]
    for release, capacity in (*((flat.release, one) for one in wrong), (deep.release, ["100cm", "weight=9"])):
        with pytest.raises(ParameterError):
            dn.pack(release, capacity=capacity)
    for word, column in itertools.product(("by", "apart"), ("weight", "class_id", "row", "", "nothing")):
        with pytest.raises(ParameterError, match=column or None):
            dn.pack(flat.release, capacity=FLAT_ROOM, **{word: column})
    alone = dn.pack(flat.release, capacity=["weight=150"])
    assert alone.quantities == {"weight": "kg"}
    assert alone.objective == dn.pack(flat.release, capacity="150", quantity="weight").objective
    assert alone.objective <= dn.pack(flat.release, capacity=FLAT_ROOM).objective
    upper = flat.release.uncertain("weight").upper
    assert np.bincount(alone.assignment, weights=upper).max() <= 150
    rows = np.flatnonzero(flat.release.uncertain("volume").upper > 20).tolist()
    assert rows
    with pytest.raises(NoPlanError, match=f"row {rows[0]}"):
        dn.pack(flat.release, capacity=["150kg", "volume=20"])
    for model in (dn.Stochastic(), dn.Robust(), dn.Sealed()):
        with pytest.raises(NoPlanError):
            dn.pack(flat.release, capacity=["150kg", "volume=3"], model=model)


def least_cost(values: Sequence[float], kinds: Sequence[dn.Truck]) -> Fraction | None:
    """List every division of rows into bins and every choice of trucks for them."""
    best: Fraction | None = None
    for bins in parts(len(values)):
        loads = sorted((sum(values[row] for row in rows) for rows in bins), reverse=True)
        for chosen in itertools.combinations_with_replacement(range(len(kinds)), len(bins)):
            if any(k.count is not None and chosen.count(at) > k.count for at, k in enumerate(kinds)):
                continue
            rooms = sorted((kinds[at].capacity["weight"] for at in chosen), reverse=True)
            if all(load <= room for load, room in zip(loads, rooms, strict=True)):
                cost = sum((Fraction(str(kinds[at].cost)) for at in chosen), Fraction(0))
                best = cost if best is None else min(best, cost)
    return best


def fleet(*kinds: tuple[float, float, int | None]) -> list[dn.Truck]:
    return [
        dn.Truck(name=f"kind {number}", capacity={"weight": room}, cost=cost, count=count)
        for number, (room, cost, count) in enumerate(kinds)
    ]


FLEETS = [
    fleet((50, 3, None), (80, 4, None)),
    fleet((50, 3, 2), (80, 4.5, None)),
    fleet((50, 0.1, 1), (80, 0.3, 1), (100, 0.35, None)),
    fleet((50, 1, 2), (60, 1, 2)),
    fleet((50, 1.3333333333333333, None), (80, 2.1, None)),
    fleet((55, 7, None), (110, 7, None)),
    fleet((60, 100000, None), (80, 100001, 3)),
]


@pytest.mark.parametrize("kinds", FLEETS, ids=range(len(FLEETS)))
def test_the_cheapest_fleet(kinds: list[dn.Truck]) -> None:
    case = Case({"weight": np.random.default_rng(len(kinds)).integers(5, 50, 6).tolist()}, 2)
    values = case.release.uncertain("weight").upper.tolist()
    least = least_cost(values, kinds)
    true_least = least_cost(case.truth[:, 0].tolist(), kinds)
    if least is None:
        with pytest.raises(NoPlanError):
            dn.pack(case.release, trucks=kinds)
        return
    plan = dn.pack(case.release, trucks=kinds)
    short = all(Fraction(str(kind.cost)).denominator < 1000 for kind in kinds)
    assert plan.minimises == "cost"
    assert plan.status == ("optimal" if short else "feasible")  # costs too long for a solver leave a gap, tiny and true
    assert plan.objective == pytest.approx(float(least), rel=1e-12)
    assert plan.bound == pytest.approx(float(least), rel=1e-5)
    assert Fraction(plan.bound) <= least * (1 + Fraction(1, 10**15))
    for kind in kinds:
        assert kind.count is None or plan.truck_of_bin.count(kind.name) <= kind.count
    check_plan(case, plan, dn.Standard())
    sealed = dn.pack(case.release, trucks=kinds, model=dn.Sealed())
    assert true_least is not None
    assert sealed.objective == pytest.approx(float(true_least), rel=1e-12)
    check_plan(case, sealed, dn.Sealed())
    largest = dn.pack(case.release, trucks=kinds, model=dn.Robust())
    assert float(true_least) - 1e-9 <= largest.objective <= plan.objective
    check_plan(case, largest, dn.Robust())


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_a_mixed_fleet_of_vectors(flat: Case, model: Any) -> None:
    kinds = [
        dn.Truck(name="van", capacity={"weight": 80, "volume": 70}, cost=2.5, count=3),
        dn.Truck(name="lorry", capacity={"weight": 200, "volume": 120}, cost=5),
    ]
    plan = dn.pack(flat.release, trucks=kinds, model=model, seconds=2)
    assert plan.truck_of_bin.count("van") <= 3
    assert plan.objective == sum(plan.truck(name).cost for name in plan.truck_of_bin)
    check_plan(flat, plan, model)


def test_kinds_of_trucks(flat: Case) -> None:
    plan = dn.pack(flat.release, trucks=[dn.Truck(name="van", capacity={"weight": 150}, cost=12.5)])
    assert (plan.minimises, plan.objective) == ("trucks", plan.num_bins)  # one kind counts, whatever it costs
    van = dn.Truck(name="van", capacity={"weight": 100, "volume": 80})
    kinds = [van, dn.Truck(name="lorry", capacity={"weight": 200}, cost=2)]
    assert dn.pack(flat.release, trucks=kinds).quantities == {"weight": "kg"}  # what every kind has a capacity for
    lorry = dn.Truck(name="lorry", capacity={"weight": 500, "height": 5}, cost=2)
    rooms: list[Any] = [{}, {"height": 5}, *({"weight": room} for room in (-5, float("nan"), float("inf"), "50"))]
    wrong: list[Any] = [{"cost": cost} for cost in (0, -1, float("nan"), "2")] + [{"count": n} for n in (-1, 1.5)]
    for more in [*({"capacity": room} for room in rooms), *({"capacity": {"weight": 50}, **one} for one in wrong)]:
        van = dn.Truck(name="van", **more)
        for kinds in ([van], [lorry, van]):
            with pytest.raises(ParameterError, match="truck"):
                dn.pack(flat.release, trucks=kinds)
    with pytest.raises(ParameterError):  # costs too far apart
        dn.pack(flat.release, trucks=fleet((90, 1, None), (120, 1e7, None)))
    for model in MODELS:
        for kinds in (fleet((900, 1, 0)), fleet((900, 1, 0), (950, 2, 0))):
            with pytest.raises(NoPlanError):
                dn.pack(flat.release, trucks=kinds, model=model)


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_both_columns_keep_rows_apart(model: Any) -> None:
    towns, days = ["A", "B", "B"] * 12, ["mon", "mon", "mon", "tue", "tue", "tue"] * 6
    case = Case(drawn(3, 36, 60, 40), 3, town=towns, day=days)
    plan = dn.pack(case.release, capacity=FLAT_ROOM, model=model, by="town", apart="day", seconds=10)
    assert (plan.by, plan.apart) == ("town", "day")
    done = dn.apply(plan, case.data, case.release, case.key)
    bins = done.loading.sort_by("row").column("bin").to_pylist()
    town, day = (case.release.data.column(name).to_pylist() for name in ("town", "day"))
    assert len(set(zip(bins, town, day, strict=True))) == plan.num_bins
    check_plan(case, plan, model)


def test_the_order_of_the_columns_does_not_matter() -> None:
    towns, days = ["A", "B", "B"] * 8, ["mon", "mon", "mon", "tue", "tue", "tue"] * 4
    case, model = Case({"weight": drawn(3, 24, 60, 40)["weight"]}, 3, town=towns, day=days), dn.Stochastic()
    plan = dn.pack(case.release, capacity=150, model=model, by="town", apart="day")
    again = dn.pack(case.release, capacity=150, model=model, by="day", apart="town")
    assert again.objective == plan.objective
    same = dn.pack(case.release, capacity=150, model=model, by="town", apart="town")
    assert same.objective == dn.pack(case.release, capacity=150, model=model, by="town").objective <= plan.objective


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_full_domain_releases(model: Any) -> None:
    case = Case({"weight": np.random.default_rng(4).integers(1, 200, 24).tolist()}, 4, name="full-domain")
    plan = dn.pack(case.release, capacity=500, model=model)
    check_plan(case, plan, model)
    both = Case(drawn(5, 12, 60, 40), 3, name="full-domain")
    check_plan(both, dn.pack(both.release, capacity=["170kg", "volume=120"], model=model, seconds=10), model)
