# SPDX-License-Identifier: Apache-2.0
"""Linkage is the second objective of every plan: lower than random exchanges reach, with no more trucks."""

from __future__ import annotations

import itertools
import json
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.commands import run
from tests.noisy_help import numeric
from tests.oracles.exchanges import mean_linkage, random_exchanges
from tests.settle_help import FOUR, Published, published, setting_weights

import dunnage as dn
from dunnage.errors import NoPlanError, ParameterError
from dunnage.kernels.bins.certified import ChancePacker
from dunnage.kernels.bins.spreading import TypeLoads, spread_items
from dunnage.planning import packing, spreading
from dunnage.planning.linkage import exchangeable, noisy_linkage
from dunnage.planning.models import Robust
from dunnage.planning.plan import Plan, Slots
from dunnage.planning.problem import PackingProblem
from dunnage.planning.spreading import Effort, class_table, spread_likely
from dunnage.release import Release

VANS = [
    dn.Truck(name="van", capacity={"weight": 150}, cost=40, count=3),
    dn.Truck(name="lorry", capacity={"weight": 400}, cost=100),
]
CASES: dict[str, tuple[bool, dict[str, Any]]] = {  # whether there are volumes, and what is asked for
    "one quantity": (False, {"capacity": 200}),
    "means": (False, {"capacity": 200, "model": dn.Standard(statistic="mean")}),
    "two quantities": (True, {"capacity": [200, "volume=45"]}),
    "two quantities, by": (True, {"capacity": [200, "volume=45"], "by": "town"}),
    "by and apart": (False, {"capacity": 200, "by": "town", "apart": "goods"}),
    "mixed fleet": (False, {"trucks": VANS, "seconds": 8}),
    "largest members": (False, {"capacity": 200, "model": dn.Robust()}),
    "stochastic": (False, {"capacity": 200, "model": dn.Stochastic(risk=0)}),
}


def parcels(num: int, k: int, seed: int, *, volumes: bool = False, statistic: str = "multiset") -> Release:
    """Publish parcels as a carrier has them: many light ones, few heavy ones, in two towns."""
    draw = np.random.default_rng(seed)
    weights = np.round(np.minimum(draw.lognormal(1.5, 0.9, num), 60)) + 1
    columns: dict[str, Any] = {"town": [("Nord", "Sud")[one] for one in draw.integers(0, 2, num).tolist()]}
    columns["goods"] = [("food", "paint")[one] for one in draw.integers(0, 2, num).tolist()]
    if volumes:
        columns["volume"] = (np.round(weights * draw.uniform(0.05, 0.4, num)) + 1).tolist()
    return published(weights.tolist(), k, statistic, **columns)


def unspread(release: Release, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Plan:
    """Pack without any exchange of rows."""
    with monkeypatch.context() as patch:
        patch.setattr(spreading, "spread_items", lambda *given, **more: given[4])
        patch.setattr(packing, "MAX_TIGHTENED_CLASSES", 0)
        return dn.pack(release, **options)


def loads(release: Release, plan: Plan) -> np.ndarray[Any, Any]:
    """Return the load of each bin in upper bounds, one column per quantity."""
    columns = [release.uncertain(name).upper for name in plan.quantities]
    return np.column_stack([np.bincount(plan.assignment, weights=column) for column in columns])


@pytest.mark.parametrize("case", CASES)
def test_linkage_is_lower_than_random_exchanges_reach(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    volumes, options = CASES[case]
    release = parcels(160, 6, seed=len(case), volumes=volumes)
    options = {"seconds": 3, **options}
    plan, plain = dn.pack(release, **options), unspread(release, monkeypatch, **options)
    assert plan.objective <= plain.objective
    model = options.get("model", dn.Standard())
    known = [release.uncertain(name) for name in plan.quantities]
    columns = [model.weights(one) if isinstance(model, dn.Standard) else one.upper for one in known]
    rooms = np.column_stack([plain.capacity_of_bins(name) for name in plan.quantities])

    def fits(rows: np.ndarray[Any, Any], bin_: int) -> bool:
        return all(column[rows].sum() <= room for column, room in zip(columns, rooms[bin_], strict=True))

    problem = PackingProblem.of(
        release, **{"capacity": None, "trucks": None, "by": None, "apart": None, "quantity": None, "spread": None}
        | {name: value for name, value in options.items() if name in ("capacity", "trucks", "by", "apart")}
    )  # fmt: skip
    look = exchangeable(release)
    reached = random_exchanges(look, problem.group, plain.assignment, fits, steps=8000)
    assert plan.truck_linkage.mean == pytest.approx(mean_linkage(look, plan.assignment))
    assert plan.truck_linkage.mean <= reached + 1e-12
    # Rows of different groups do not share a truck, and what certainly fits still does.
    pairs = set(zip(plan.assignment.tolist(), problem.group.tolist(), strict=True))
    assert len(pairs) == plan.num_bins
    if not isinstance(model, dn.Robust | dn.Stochastic) and plan.certified.at_least == 1:
        wide = np.column_stack([plan.capacity_of_bins(name) for name in plan.quantities])
        assert (loads(release, plan) <= wide + 1e-9).all()


def test_full_trucks_are_spread_as_well_as_by_random_exchanges() -> None:
    """Room for pairs that do not count was taken from those that do: .65, where 2 s of random exchanges gave .59."""
    draw = np.random.default_rng(1)
    weights = np.round(np.minimum(draw.lognormal(2.2, 0.8, 300), 60) * 10).astype(int) + 1
    capacity = int(np.ceil(weights.sum() / 4 * 1.01))
    plan = dn.pack(published(weights.tolist(), 8), capacity=capacity, model=Robust(), seconds=30)
    assert plan.num_bins == 4
    assert plan.truck_linkage.mean < 0.61


def test_likely_plans_of_two_quantities_use_their_risk_to_spread() -> None:
    """Certain fits took all the time, and after a packer's own deadline no risk was ever used: .69, exchanges .64."""
    release = parcels(200, 6, seed=3, volumes=True)
    problem = PackingProblem.of(
        release, capacity=[200, "volume=45"], trucks=None, by=None, apart=None, quantity=None, spread=None
    )
    classes, whole = problem.class_members()
    kinds, risk = problem.kinds(whole.rooms), Fraction(1, 20)
    packer = ChancePacker(classes, problem.caps, kinds, risk=risk, groups=problem.group_of_class)
    start = packer.solve(seconds=0.0)
    assert start is not None
    counts = start.counts
    bins = np.empty(len(release), dtype=np.int64)
    of_class, places = np.nonzero(counts.T)
    bins[np.argsort(problem.class_id, kind="stable")] = np.repeat(places, counts[places, of_class])
    effort = Effort(time.monotonic() + 300, rounds=4)
    spread = spread_likely(problem, packer, whole, problem.class_id, bins, start.kinds, effort)
    assert spread is not None
    assert 0.95 <= spread.packing.at_least < 1
    np.testing.assert_array_equal(
        spread.packing.counts, class_table(spread.bin_of_row, problem.class_id, len(start.kinds), len(classes))
    )

    def risk_of(rows: np.ndarray[Any, Any]) -> float:
        return 1 - packer.chances[0].fits(np.bincount(problem.class_id[rows], minlength=len(classes)))[0]

    risks = [risk_of(np.flatnonzero(spread.bin_of_row == bin_)) for bin_ in range(len(start.kinds))]
    spare = (float(risk) - 1e-8 - sum(risks)) / len(risks)
    reached = random_exchanges(
        problem.class_id, problem.group, spread.bin_of_row, lambda rows, bin_: risk_of(rows) <= risks[bin_] + spare,
        steps=1500,
    )  # fmt: skip
    assert reached == pytest.approx(mean_linkage(problem.class_id, spread.bin_of_row))


@pytest.mark.parametrize("mixed", [False, True])
def test_several_quantities_and_mixed_fleets_are_spread_too(mixed: bool) -> None:
    """They never were: 80 and 66 % of these packages could be linked to their truck, with as many trucks."""
    draw = np.random.default_rng(1)
    weights = np.round(np.minimum(draw.lognormal(1.5, 0.9, 3000), 60), 1) + 0.1
    volumes = np.round(np.minimum(weights * draw.uniform(0.05, 0.3, 3000), 20) + 0.1, 1)
    release = published(weights.tolist(), 5, volume=volumes.tolist())
    small, large = {"weight": 150, "volume": 30}, {"weight": 400, "volume": 60}
    trucks = [dn.Truck(name="lorry", capacity=large, cost=100), dn.Truck(name="van", capacity=small, cost=40)]
    plan = dn.pack(release, trucks=trucks if mixed else trucks[:1], seconds=3)
    assert plan.objective <= (6680 if mixed else 79)
    assert plan.truck_linkage.mean < 0.15


@pytest.mark.usefixtures("_lower_effort")
@pytest.mark.parametrize("statistic", ["multiset", "bounds"])
def test_sealed_is_never_worse_than_standard_with_as_many_trucks(statistic: str) -> None:
    compared = 0
    for seed in (1, 2):
        release = published(setting_weights("25-S-U", seed), 5, statistic)
        sealed, open_ = (dn.pack(release, capacity=2500, model=one, seconds=5) for one in (dn.Sealed(), dn.Standard()))
        assert sealed.objective <= open_.objective
        if sealed.objective == open_.objective:
            compared += 1
            assert sealed.truck_linkage.mean <= open_.truck_linkage.mean + 1e-12
    assert compared


@pytest.mark.parametrize("model", [dn.Robust(), dn.Stochastic()])
def test_plans_on_upper_bounds_are_spread_if_they_take_no_more_trucks(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A likely plan of 72 trucks had .158 where upper bounds, which fit for certain, had .155 with 72."""
    monkeypatch.setattr(packing, "spread_likely", lambda *arguments: None)  # as if there were no time for it
    release = published(setting_weights("50-L-U", 1), 5)
    likely, open_ = (dn.pack(release, capacity=500, model=one, seconds=2) for one in (model, dn.Standard()))
    assert likely.objective == open_.objective
    assert likely.truck_linkage.mean <= open_.truck_linkage.mean + 1e-12
    assert likely.certified.at_least == 1


def test_likely_plans_keep_their_probability() -> None:
    for name, capacity in (("25-S-U", 2500), ("50-L-U", 500)):
        release = published(setting_weights(name, 4), 5)
        plan = dn.pack(release, capacity=capacity, model=dn.Stochastic(risk=0.2), seconds=5)
        assert plan.certified.at_least >= 0.8
        problem = PackingProblem.of(
            release, capacity=capacity, trucks=None, by=None, apart=None, quantity=None, spread=None
        )
        solution = packing._Solution(kinds=np.zeros(plan.num_bins, dtype=np.int64), bound=0, bin_of_row=plan.assignment)
        weighed = packing._weighed(problem, solution)
        assert weighed.at_least == pytest.approx(plan.certified.at_least)


@pytest.mark.usefixtures("_lower_effort")
def test_spreads_that_cost_no_truck_are_tried(thorough: bool) -> None:
    for seed in (5, 6)[: 1 + thorough]:
        release = published(setting_weights("50-S-U", seed), 5)
        plan = dn.pack(release, capacity=1200)
        for spread in (2, 3, 4, 5):
            promised = dn.pack(release, capacity=1200, spread=spread)
            if promised.objective == plan.objective:
                assert plan.truck_linkage.mean <= promised.truck_linkage.mean + 1e-12


def test_budgets_samples_and_priors_are_kept() -> None:
    release = published(setting_weights("25-S-U", 3), 5)
    problem = PackingProblem.of(release, capacity=900, trucks=None, by=None, apart=None, quantity=None, spread=None)
    group = np.zeros(len(release), dtype=np.int64)
    # Two bins of one class each, and room for anything: every check is asked, and what it accepts is spread.
    start, asked = release.uncertain("weight").class_id % 2, []

    def accepted(bins: np.ndarray[Any, Any]) -> bool:
        asked.append(bins)
        return bool(bins[0] == start[0])

    found = spreading.spread_checked(problem, start, group[:2], accepted, Effort(time.monotonic() + 20))
    assert asked
    assert found[0] == start[0]
    assert mean_linkage(exchangeable(release), found) < mean_linkage(exchangeable(release), start)
    model = Robust(budget="items", risk=0.5)
    plan = dn.pack(release, capacity=900, model=model, seconds=10)
    assert packing.budget_holds(problem, model, plan.assignment)


def test_noisy_rows_are_spread_by_what_their_noise_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(3)
    weights = (np.round(np.minimum(draw.lognormal(1.5, 0.9, 80), 60)) + 1).tolist()
    case = Published({"weight": weights}, mechanism=dn.NoisyValues(epsilon=4), roles={"weight": numeric(0, 100)})
    release = case.release
    plan, plain = dn.pack(release, capacity=300), unspread(release, monkeypatch, capacity=300)
    assert plan.objective == plain.objective
    assert plan.truck_linkage.mean < plain.truck_linkage.mean
    assert plan.truck_linkage.mean == pytest.approx(noisy_linkage(release, plan.assignment).mean)
    assert (loads(release, plan) <= 300 + 1e-9).all()


# More trucks


@pytest.mark.usefixtures("_lower_effort")
def test_extra_trucks_lower_linkage_and_are_recorded(tmp_path: Any) -> None:
    release = published(setting_weights("25-S-U", 1), 5)
    plain, plan = (dn.pack(release, capacity=2500, extra_trucks=number) for number in (None, 2))
    assert (plain.num_bins, plan.num_bins) == (3, 5)
    assert plan.truck_linkage.mean == pytest.approx(0.2)
    assert plan.truck_linkage.mean < plain.truck_linkage.mean
    assert plan.bound <= plain.num_bins
    plan.write(tmp_path / "plan")
    again = Plan.read(tmp_path / "plan")
    assert (again.extra_trucks, again.max_linkage, again.lower_linkage) == (2, None, plan.lower_linkage)
    # Trucks that lower nothing are not used.
    assert dn.pack(release, capacity=2500, extra_trucks=9).num_bins == 5


@pytest.mark.usefixtures("_lower_effort")
@pytest.mark.parametrize("model", [dn.Standard(), dn.Robust(), dn.Stochastic(), dn.Sealed()])
def test_a_largest_linkage_takes_as_few_trucks_as_needed(model: Any) -> None:
    release = published(setting_weights("25-S-U", 1), 5)
    plan = dn.pack(release, capacity=2500, model=model, max_linkage="25%", seconds=20)
    assert plan.truck_linkage.mean <= 0.25
    assert plan.num_bins <= 5
    assert plan.max_linkage == 0.25
    loose = dn.pack(release, capacity=2500, model=model, max_linkage=1, seconds=20)
    assert loose.num_bins == 3


@pytest.mark.usefixtures("_lower_effort")
def test_what_cannot_be_bought_is_refused() -> None:
    release = published(setting_weights("25-S-U", 1), 5)
    with pytest.raises(NoPlanError, match="20 %"):  # classes of five: one guess in five is right with any trucks
        dn.pack(release, capacity=2500, max_linkage=0.1)
    with pytest.raises(NoPlanError, match="1 extra truck"):
        dn.pack(release, capacity=2500, max_linkage=0.2, extra_trucks=1)
    few = [dn.Truck(name="lorry", capacity={"weight": 2500}, count=3)]
    with pytest.raises(NoPlanError, match="40 %"):
        dn.pack(release, trucks=few, max_linkage=0.2)
    with pytest.raises(NoPlanError, match="1 more truck"):
        dn.pack(release, trucks=few, extra_trucks=1)
    for wrong in (-1, 1.5, True, "2"):
        with pytest.raises(ParameterError, match="extra_trucks"):
            dn.pack(release, capacity=2500, extra_trucks=wrong)
    for amount in (0, -0.1, 1.1, "much"):
        with pytest.raises(ParameterError, match="max_linkage"):
            dn.pack(release, capacity=2500, max_linkage=amount)


@pytest.mark.usefixtures("_lower_effort")
def test_a_plan_says_what_would_lower_a_high_linkage() -> None:
    release = published(setting_weights("25-S-U", 1), 5)
    plan = dn.pack(release, capacity=2500)
    assert plan.truck_linkage.mean == pytest.approx(0.4)
    assert plan.least_linkage == pytest.approx(0.2)
    assert plan.lower_linkage
    for offer in plan.lower_linkage:
        made = dn.pack(release, capacity=2500, extra_trucks=offer.extra_trucks)
        assert made.truck_linkage.mean <= offer.mean + 1e-12
        assert str(offer.extra_trucks) in plan.linkage_advice
    assert plan.linkage_advice in plan.summary()
    # As low as classes allow: nothing to say, unless that is high too.
    assert dn.pack(published(setting_weights("25-L-U", 1), 5), capacity=500).linkage_advice is None
    pairs = dn.pack(published(FOUR, 2), capacity=100)
    assert pairs.truck_linkage.mean == pairs.least_linkage == 0.5
    assert pairs.linkage_advice
    assert not pairs.lower_linkage


@pytest.mark.usefixtures("_lower_effort")
def test_the_command_takes_trucks_for_linkage(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case = Published(setting_weights("25-S-U", 1), 5)
    dn.publish(case.data, ledger=":memory:").write(tmp_path / "release")
    assert run("pack release --capacity 2500 --extra-trucks 2 -o more").code == 0
    assert run("pack release --capacity 2500 --max-linkage 0.25 -o low").code == 0
    stated = [json.loads((tmp_path / name / "plan.json").read_text()) for name in ("more", "low")]
    assert [one["extra_trucks"] for one in stated] == [2, None]
    assert [one["max_linkage"] for one in stated] == [None, 0.25]
    assert all(one["truck_linkage"]["mean"] <= 0.25 for one in stated)
    for wrong, code in (("--max-linkage 0.1", 1), ("--max-linkage 2", 2), ("--extra-trucks -1", 2)):  # 1: no plan
        done = run(f"pack release --capacity 2500 {wrong} -o wrong")
        assert (done.code, (tmp_path / "wrong").exists()) == (code, False)


@pytest.mark.usefixtures("_lower_effort")
def test_equal_input_gives_equal_plans_and_plans_of_earlier_versions_are_read(tmp_path: Any) -> None:
    release = parcels(200, 6, seed=4, volumes=True)
    one, other = (dn.pack(release, capacity=[200, "volume=45"], seconds=60) for _ in range(2))
    assert one.assignment.tolist() == other.assignment.tolist()
    one.write(tmp_path / "plan")
    file = tmp_path / "plan" / "plan.json"
    stated = json.loads(file.read_text())
    for name in ("extra_trucks", "max_linkage", "lower_linkage", "least_linkage"):
        del stated[name]
    file.write_text(json.dumps(stated))
    assert Plan.read(tmp_path / "plan").linkage_advice is None


# The search itself


def all_assignments(num: int, bins: int) -> Any:
    return (np.array(line) for line in itertools.product(range(bins), repeat=num))


@pytest.mark.parametrize("seed", range(6))
def test_tiny_packings_become_the_best_of_all(seed: int) -> None:
    """Seven items of three types with two looks each, in three bins with room to move."""
    draw = np.random.default_rng(seed)
    type_of = np.sort(draw.integers(0, 3, 7))
    _, type_of = np.unique(type_of, return_inverse=True)
    look_of = type_of * 2 + draw.integers(0, 2, 7)
    sizes = draw.integers(1, 9, (int(type_of.max()) + 1, 2))
    room = np.tile(sizes[type_of].sum(axis=0) * 2 // 3 + 5, (3, 1))
    start = np.array([0, 0, 0, 1, 1, 2, 2])

    def fitting(bins: np.ndarray[Any, Any]) -> bool:
        table = np.zeros((3, 2), dtype=np.int64)
        np.add.at(table, bins, sizes[type_of])
        return bool((table <= room).all()) and len(np.unique(bins)) == 3

    if not fitting(start):
        pytest.skip("the first packing does not fit")
    given = TypeLoads.of_sizes(sizes, np.bincount(type_of))
    found = spread_items(
        given, type_of, look_of, np.zeros(7, dtype=np.int64), start, room, caps=np.full(len(sizes), 7),
        deadline=time.monotonic() + 20,
    )  # fmt: skip
    best = min(mean_linkage(look_of, bins) for bins in all_assignments(7, 3) if fitting(bins))
    assert fitting(found)
    assert mean_linkage(look_of, found) == pytest.approx(best)


@pytest.mark.parametrize("seed", [1, 2])
def test_items_that_have_to_leave_are_tried_more_often(seed: int) -> None:
    """One look of 160 kept two items in a bin: among 800 items, random exchanges seldom met one of them."""
    draw = np.random.default_rng(seed)
    sizes = np.round(np.minimum(draw.lognormal(2.2, 0.8, 160), 60) * 10).astype(np.int64)[:, None] + 1
    look = np.unique(np.sort(draw.integers(0, 160, 800)), return_inverse=True)[1]
    times, load, start = np.bincount(look), np.zeros(12, dtype=np.int64), np.empty(800, dtype=np.int64)
    for item in np.argsort(-sizes[look, 0], kind="stable").tolist():
        start[item] = load.argmin()
        load[start[item]] += sizes[look[item], 0]
    found = spread_items(
        TypeLoads.of_sizes(sizes[: len(times)], times), look, look, np.zeros_like(look), start,
        np.full((12, 1), load.max()), caps=times, deadline=time.monotonic() + 60, rounds=1,
    )  # fmt: skip
    assert np.bincount(found, weights=sizes[look, 0]).max() <= load.max()
    assert spreading.together(look, found) == spreading.least_together(look, 12)


def test_full_bins_are_spread_by_items_of_about_the_same_size() -> None:
    """Bins without room to spare take few other items: half of the partners were any, and 860 were left for 827."""
    together = 0
    for seed in (1, 3):
        draw = np.random.default_rng(seed)
        look = np.arange(2000) // 5
        sizes, times = np.sort(draw.integers(10, 4000, (400, 2)), axis=0), np.bincount(look)
        start = np.repeat(draw.permutation(400) % 25, 5)
        room = np.array([np.bincount(start, weights=column[look]) for column in sizes.T]).T.astype(np.int64) + 10
        found = spread_items(
            TypeLoads.of_sizes(sizes, times), look, look, np.zeros_like(look), start, room, caps=times,
            deadline=time.monotonic() + 60, rounds=3,
        )  # fmt: skip
        together += spreading.together(look, found)
        taken = np.array([np.bincount(found, weights=column[look]) for column in sizes.T]).T
        assert (taken <= room).all()
    assert together < 845


def test_the_largest_members_of_a_class_are_what_a_bin_must_hold() -> None:
    """A bin with two of a class needs room for its two largest: 9 + 8, not twice the mean."""
    loads_ = TypeLoads(
        sums=np.array([[0], [9], [17], [18], [0], [1], [2]]), first=np.array([0, 4]), sizes=np.array([3, 2]),
        mean=np.array([[6.0], [1.0]]), variance=np.array([[19.0], [0.0]]),
    )  # fmt: skip
    type_of, start = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 1])
    common: dict[str, Any] = {"caps": np.array([3, 2]), "deadline": time.monotonic() + 20}
    none = np.zeros(5, dtype=np.int64)
    kept = spread_items(loads_, type_of, type_of, none, start, np.array([[18], [8]]), **common)
    assert kept is start  # 9 does not fit beside anything in a bin of 8
    found = spread_items(loads_, type_of, type_of, none, start, np.array([[18], [10]]), **common)
    assert sorted(np.bincount(found[:3], minlength=2).tolist()) == [1, 2]
    # With a budget of risk, a bin of 8 may take one of the three.
    risky = spread_items(loads_, type_of, type_of, none, start, np.array([[18], [8]]), budget=0.9, **common)
    assert sorted(np.bincount(risky[:3], minlength=2).tolist()) == [1, 2]


def test_looks_of_several_sizes_and_slots_that_are_counted() -> None:
    release = published(setting_weights("25-L-U", 2), 5)
    plan = dn.pack(release, capacity=500, model=dn.Sealed(), seconds=10)
    assert plan.truck_linkage.kind == "exact"
    problem = PackingProblem.of(release, capacity=500, trucks=None, by=None, apart=None, quantity=None, spread=None)
    _, whole = problem.class_members()
    kinds = np.zeros(plan.num_bins, dtype=np.int64)
    table = plan.slots.table(plan.num_bins, len(problem.class_sizes))
    # As good as what 60 random exchanges of slots find
    slots, linkage = spreading.spread_slots(
        problem, whole, plan.slots, kinds, plan.truck_linkage, Effort(time.monotonic() + 5)
    )
    assert linkage.mean <= plan.truck_linkage.mean
    assert slots.table(plan.num_bins, table.shape[1]).sum(axis=0).tolist() == table.sum(axis=0).tolist()
    assert isinstance(slots, Slots)
