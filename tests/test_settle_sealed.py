# SPDX-License-Identifier: Apache-2.0
"""apply on sealed plans, and exact restatements of linkage: equal to listing every fill, on tiny cases."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.settle_help import FOUR, Published, few_repairs  # noqa: F401

from dunnage.auditing.plans import feasibility, plan_utility
from dunnage.errors import InputError
from dunnage.noise.source import Noise
from dunnage.planning.linkage import truck_linkage
from dunnage.planning.plan import Certified, Plan, Slots
from dunnage.settle import repair
from dunnage.settle.repair import random_fill


def all_fills(
    case: Published, group: Sequence[int], bins_of_group: dict[int, Sequence[int]], capacity: float
) -> list[list[int]]:
    """List every feasible fill: rows of a group over its slots, in all ways that differ."""
    members = {number: [row for row, own in enumerate(group) if own == number] for number in bins_of_group}
    ways = [sorted(set(itertools.permutations(slots))) for slots in bins_of_group.values()]
    fills = []
    for choice in itertools.product(*ways):
        fill = [0] * len(group)
        for rows, bins in zip(members.values(), choice, strict=True):
            for row, bin_ in zip(rows, bins, strict=True):
                fill[row] = bin_
        if max(load for (load,) in case.loads(fill, max(fill) + 1)) <= capacity:
            fills.append(fill)
    return fills


def class_of(case: Published) -> np.ndarray:
    return case.release.data.column("class_id").to_numpy()


def slots_of_plan(case: Published, plan: Plan) -> dict[int, list[int]]:
    return {c: [b for b, own in zip(plan.assignment.tolist(), class_of(case), strict=True) if own == c] for c in (0, 1)}


SIX = (10, 20, 30, 60, 70, 80)
ONE_EACH = [[1, 1], [1, 1], [1, 1]]


@pytest.fixture(scope="module")
def four() -> Published:
    return Published(FOUR)


@pytest.fixture(scope="module")
def six() -> Published:
    return Published(SIX, 3)


def slots_of(table: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    return {c: [b for b, line in enumerate(table) for _ in range(line[c])] for c in range(len(table[0]))}


def best_guesses(fills: list[list[int]]) -> list[float]:
    return [max(Counter(column).values()) / len(fills) for column in zip(*fills, strict=True)]


TINY = [
    (FOUR, 2, [[1, 1], [1, 1]], 90),
    (FOUR, 2, [[1, 1], [1, 1]], 100),
    (FOUR, 2, [[2, 1], [0, 1]], 90),
    (SIX, 3, [[1, 1], [1, 1], [1, 1]], 95),
    (SIX, 3, [[2, 1], [1, 2]], 150),
    ((10, 10, 30, 60, 60, 80, 100, 101, 140), 3, [[1, 1, 1], [1, 1, 1], [1, 1, 1]], 215),
]


@pytest.mark.parametrize(("weights", "k", "table", "capacity"), TINY)
def test_sealed_plans_equal_listing_all_fills(
    weights: Sequence[float], k: int, table: list[list[int]], capacity: float
) -> None:
    case = Published(weights, k)
    assert len(case.release.classes) == len(table[0])
    fills = all_fills(case, class_of(case).tolist(), slots_of(table), capacity)
    done = case.apply(case.sealed(table, capacity))
    assert done.plan_feasible
    assert done.bin_of_row.tolist() in fills
    assert done.sealed.plain() == {"fills": len(fills), "exact": True}
    guesses = best_guesses(fills)
    assert done.truck_linkage.kind == "exact"
    assert done.truck_linkage.mean == pytest.approx(np.mean(guesses))
    assert done.truck_linkage.worst == pytest.approx(max(guesses))
    assert done.repair is None
    assert "equally likely" in done.summary()
    content = json.loads(json.dumps(done.to_dict()))
    assert (content["sealed"], content["overloaded"]) == ({"fills": len(fills), "exact": True}, [])
    assert sorted(done.loading.column("row").to_pylist()) == list(range(len(weights)))


def far_from_uniform(counts: list[int]) -> float:
    """Return how likely counts of a uniform draw are that far from equal."""
    from scipy.stats import chisquare

    return float(chisquare(counts).pvalue)


def test_fills_are_drawn_uniformly(six: Published) -> None:
    """Chi-square on 500 draws passes a fair draw but for p = 1e-9."""
    fills = all_fills(six, class_of(six).tolist(), slots_of(ONE_EACH), 95)
    plan = six.sealed(ONE_EACH, 95)
    seen = Counter(tuple(six.apply(plan, noise=Noise()).bin_of_row.tolist()) for _ in range(500))
    assert set(seen) <= {tuple(fill) for fill in fills}
    assert far_from_uniform([seen[tuple(fill)] for fill in fills]) > 1e-9


def test_slots_are_filled_whatever_the_rows_say() -> None:
    """Slots name classes alone, so rows of one class with different sensitive values may change places."""
    case = Published({"weight": FOUR, "mark": ["a", "b", "a", "b"]}, roles={"mark": "sensitive"})
    done = case.apply(case.sealed([[1, 1], [1, 1]], 90))
    assert (done.sealed.plain(), done.truck_linkage.worst) == ({"fills": 2, "exact": True}, 0.5)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[1, 1], [0, 1]], "class 0 has 2 rows in the release, the slots take 1"),
        ([[1, 1], [1, 2]], "class 1 has 2 rows in the release, the slots take 3"),
        ([[1, 1, 1], [1, 1, 0]], "class 2 has 0 rows in the release, the slots take 1"),
    ],
)
def test_slots_that_do_not_cover_a_class_are_refused(four: Published, table: list[list[int]], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        four.apply(four.sealed(table, 90))
    assert error.value.exit_code == 2


def test_slots_in_bins_without_a_truck_are_refused(four: Published) -> None:
    plan = four.sealed([[1, 1], [1, 1]], 90)
    with pytest.raises(InputError, match="bin without a truck"):
        four.apply(replace(plan, truck_of_bin=("truck",)))
    with pytest.raises(InputError, match="below 0"):
        four.apply(replace(plan, slots=replace(plan.slots, count=np.array([-1, 1, 3, 1]))))


def test_a_sealed_plan_that_cannot_be_filled_is_filled_at_random_and_repaired(four: Published) -> None:
    """20 + 80 or 10 + 80 are above 85 whatever goes where."""
    plan = four.sealed([[1, 1], [1, 1]], 85)
    done = four.apply(plan)
    assert (done.plan_feasible, done.feasible) == (False, False)
    assert (done.sealed.plain(), len(done.overloaded)) == ({"fills": 0, "exact": True}, 1)
    assert done.truck_linkage.mean == truck_linkage(class_of(four), done.bin_of_row).mean
    assert "no feasible fill exists" in done.summary()
    mended = four.apply(plan, repair=True)
    assert mended.feasible
    assert (mended.repair.opened, mended.truck_linkage.kind) == (1, "estimate")
    left = four.apply(replace(plan, trucks=(replace(plan.trucks[0], count=2),)), leave_behind=True)
    assert left.unplanned.left_behind == 1
    assert left.feasible


def test_a_package_too_heavy_for_any_truck_leaves_no_fill(four: Published) -> None:
    done = four.apply(four.sealed([[1, 1], [1, 1]], 75))
    assert done.sealed.plain() == {"fills": 0, "exact": True}
    assert not done.plan_feasible
    mended = four.apply(four.sealed([[1, 1], [1, 1]], 75), leave_behind=True)
    assert mended.feasible
    assert mended.unplanned.left_behind >= 1


def test_fills_too_many_to_count_are_an_estimate(six: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "count_and_draw", lambda *_: None)
    monkeypatch.setattr(repair, "WALK_SECONDS", 0.25)
    fills = all_fills(six, class_of(six).tolist(), slots_of(ONE_EACH), 95)
    done = six.apply(six.sealed(ONE_EACH, 95))
    assert done.bin_of_row.tolist() in fills
    if not done.sealed.exact:  # slots that need no walk are counted even so
        assert done.sealed.fills is None
        assert done.truck_linkage.kind == "estimate"
        assert done.truck_linkage.worst == pytest.approx(max(best_guesses(fills)), abs=0.15)


def test_slots_too_many_to_write_down_are_filled_by_exchanges(six: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "MAX_CELLS", 0)
    fills = all_fills(six, class_of(six).tolist(), slots_of(ONE_EACH), 95)
    done = six.apply(six.sealed(ONE_EACH, 95))
    assert done.sealed.plain() == {"fills": None, "exact": False}
    assert done.bin_of_row.tolist() in fills
    assert done.truck_linkage.kind == "estimate"
    none = six.apply(six.sealed(ONE_EACH, 85))
    assert not none.plan_feasible
    assert none.sealed.plain() == {"fills": None, "exact": False}
    assert "was found" in none.summary()


def test_a_first_fill_of_slots_is_uniform() -> None:
    """Whatever the weights: six fills, 2400 draws."""
    class_id = np.array([0, 1, 0, 0, 1])
    slots = Slots(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]), np.array([2, 1, 1, 1]))
    seen = Counter(tuple(random_fill(slots, class_id, Noise(seed=seed)).tolist()) for seed in range(2400))
    assert len(seen) == 6
    assert far_from_uniform(list(seen.values())) > 1e-9


def test_sealed_plans_on_files(four: Published, tmp_path: Path) -> None:
    four.sealed([[1, 1], [1, 1]], 90).write(tmp_path / "plan")
    assert not (tmp_path / "plan" / "assignment.csv").exists()
    done = four.apply(tmp_path / "plan")
    assert done.sealed.plain() == {"fills": 2, "exact": True}
    done.write(tmp_path / "settlement")
    content = json.loads((tmp_path / "settlement" / "settlement.json").read_text())
    assert content["sealed"] == {"fills": 2, "exact": True}
    file = tmp_path / "plan" / "slots.csv"
    file.write_text(file.read_text().replace("1,0,1", "1,0,2"))
    with pytest.raises(InputError, match="class 0 has 2 rows in the release, the slots take 3"):
        four.apply(tmp_path / "plan")


def test_numbers_of_fills_too_long_to_print_are_told_in_short(tmp_path: Path) -> None:
    """2000 packages that fit anywhere, one of each class in a bin: about 10^5000 fills."""
    case = Published(np.arange(1, 1000, 0.5).tolist(), 666)
    sizes = np.bincount(class_of(case))
    table = [[int(at < size) for size in sizes] for at in range(int(sizes.max()))]
    done = case.apply(case.sealed(table, 10**4))
    assert done.sealed.plain() == {"fills": 1e300, "exact": True}
    done.write(tmp_path / "settlement")
    assert json.loads((tmp_path / "settlement" / "settlement.json").read_text())["sealed"]["fills"] == 1e300
    assert "1e+300" in done.summary()


@pytest.mark.parametrize("role", ["sensitive", None])
def test_an_exchange_is_a_uniform_fill_of_the_plans_own_slots(role: str | None) -> None:
    weights, marks = (10, 20, 30, 60, 70, 80), ["a", "b", "a", "a", "b", "b"]
    case = Published({"weight": weights, **({"mark": marks} if role else {})}, 3, roles={"mark": role} if role else {})
    plan = case.plan([0, 1, 2, 0, 1, 2], 100)
    group = [(c, m) for c, m in zip(class_of(case).tolist(), _marks(case, role), strict=True)]
    number = {key: at for at, key in enumerate(sorted(set(group)))}
    codes = [number[key] for key in group]
    bins = {c: [b for b, own in zip(plan.assignment.tolist(), codes, strict=True) if own == c] for c in set(codes)}
    fills = all_fills(case, codes, dict(sorted(bins.items())), 100)
    done = case.apply(plan, repair=True)
    assert not done.plan_feasible
    if not fills:
        assert done.repair.moved > 0
        assert done.truck_linkage.kind == "estimate"
        return
    assert done.bin_of_row.tolist() in fills
    assert (done.repair.repairs_found, done.truck_linkage.kind) == (len(fills), "exact")
    assert done.truck_linkage.mean == pytest.approx(np.mean(best_guesses(fills)))
    assert done.truck_linkage.worst == pytest.approx(max(best_guesses(fills)))


def _marks(case: Published, role: str | None) -> list[str]:
    return case.release.data.column("mark").to_pylist() if role else [""] * len(case.weights)


def test_who_sees_that_everything_fitted_guesses_no_better_than_stated(six: Published) -> None:
    bins = [0, 1, 2, 2, 1, 0]
    plan = six.plan(bins, 95)
    linkage = truck_linkage(class_of(six), plan.assignment)
    chance = feasibility(plan, six.data, six.release, six.key).value
    done = six.apply(replace(plan, certified=Certified(at_least=chance, at_most=chance)))
    assert done.plan_feasible
    assert done.truck_linkage.worst == linkage.worst
    assert done.truck_linkage.if_seen_to_fit == pytest.approx(min(1, linkage.worst / chance))
    slots = slots_of_plan(six, plan)
    seen = best_guesses(all_fills(six, class_of(six).tolist(), slots, 95))
    assert max(seen) <= done.truck_linkage.if_seen_to_fit + 1e-12
    assert "who also sees that all fitted" in done.summary()
    assert "if_seen_to_fit" not in six.apply(plan).truck_linkage
    unsure = six.apply(replace(plan, certified=Certified(at_least=0.0, at_most=1.0)))
    assert unsure.truck_linkage.if_seen_to_fit is None


@pytest.mark.parametrize("capacity", [90, 95, 100, 105, 120])
def test_feasibility_equals_listing_all_orders(six: Published, capacity: float) -> None:
    plan = six.plan([0, 1, 2, 2, 1, 0], capacity)
    slots = slots_of_plan(six, plan)
    everything = all_fills(six, class_of(six).tolist(), slots, 10**6)
    fits = [
        [sum(six.weights[row] for row, b in enumerate(fill) if b == bin_) <= capacity for bin_ in range(3)]
        for fill in everything
    ]
    found = feasibility(plan, six.data, six.release, six.key)
    assert found.kind == "exact"
    assert found.value == pytest.approx(np.mean([all(line) for line in fits]))
    assert (found.interval, found.bins) == ((found.value, found.value), pytest.approx(np.mean(fits)))
    done = six.apply(plan)
    assert plan_utility(done, six.data).feasibility == found


def test_feasibility_is_estimated_where_orders_cannot_be_counted(
    six: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = six.plan([0, 1, 2, 2, 1, 0], 100)
    exact = feasibility(plan, six.data, six.release, six.key)
    monkeypatch.setattr(repair, "MAX_CELLS", 0)
    found = feasibility(plan, six.data, six.release, six.key, noise=Noise(seed=1))
    assert (found.kind, found.permutations) == ("estimate", 10_000)
    assert abs(found.value - exact.value) < 6.2 * 0.5 / 100  # p = 1e-9
    assert abs(found.bins - exact.bins) < 6.2 * 0.5 / 100
    assert found.interval[0] <= found.value <= found.interval[1]
    assert feasibility(plan, six.data, six.release, six.key, noise=Noise(seed=1), permutations=50).permutations == 50


@pytest.mark.parametrize(("capacity", "value"), [(90, 1.0), (85, 0.0)])
def test_a_sealed_plan_is_feasible_if_it_can_be_filled(four: Published, capacity: float, value: float) -> None:
    plan = four.sealed([[1, 1], [1, 1]], capacity)
    assert feasibility(plan, four.data, four.release, four.key).value == value
    worth = plan_utility(four.apply(plan, repair=True), four.data)
    assert (worth.feasibility.value, worth.feasibility.kind) == (value, "exact")
    assert worth.objective == worth.optimum == (2 if value else 3)
    assert worth.ratio == 1


def test_repairs_of_sealed_plans_start_from_slots_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bin of a repair by exchanges takes more or fewer of a class than its slots say."""
    monkeypatch.setattr(repair, "MAX_CELLS", 0)
    monkeypatch.setattr(repair, "MAX_REPAIRS", 5)
    generator = np.random.default_rng(5)
    case = Published(generator.integers(10, 300, 30).tolist(), 5)
    num = len(case.release.classes)
    table = np.zeros((10, num), dtype=int)
    for at, class_ in enumerate(np.sort(class_of(case))):
        table[at % 10, class_] += 1
    done = case.apply(case.sealed(table.tolist(), 700))
    assert done.plan_feasible
    found = np.zeros_like(table)
    np.add.at(found, (done.bin_of_row, class_of(case)), 1)
    assert np.array_equal(found, table)
