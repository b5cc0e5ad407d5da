# SPDX-License-Identifier: Apache-2.0
"""apply on sealed plans, and exact restatements of linkage: equal to listing every fill, on tiny cases."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.oracles import bins as oracle
from tests.settle_help import FOUR, Published

from dunnage.auditing.plans import plan_utility
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
    num_bins = 1 + max(max(bins) for bins in bins_of_group.values())
    counts = [[list(bins).count(b) for bins in bins_of_group.values()] for b in range(num_bins)]
    found = oracle.all_fills(group, case.weights[:, None].tolist(), counts, [[capacity]] * num_bins)
    return [list(fill) for fill in found]


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
def test_sealed_plans_equal_listing_all_fills(weights, k, table, capacity):
    case = Published(weights, k)
    assert len(case.release.classes) == len(table[0])
    fills = all_fills(case, class_of(case).tolist(), slots_of(table), capacity)
    done = case.settle(case.sealed(table, capacity))
    assert (done.plan_feasible, done.repair) == (True, None)
    assert done.bin_of_row.tolist() in fills
    guesses = best_guesses(fills)
    assert (done.sealed.plain(), done.truck_linkage.kind) == ({"fills": len(fills), "exact": True}, "exact")
    assert done.truck_linkage.mean == pytest.approx(np.mean(guesses))
    assert done.truck_linkage.worst == pytest.approx(max(guesses))
    content = json.loads(json.dumps(done.to_dict()))
    assert (content["sealed"], content["overloaded"]) == ({"fills": len(fills), "exact": True}, [])


def far_from_uniform(counts: list[int]) -> float:
    """Return how likely counts of a uniform draw are that far from equal."""
    return float(chisquare(counts).pvalue)


def test_fills_are_drawn_uniformly(six: Published) -> None:
    """Chi-square on 400 draws passes a fair draw but for p = 1e-9; so does a first fill, whatever the weights."""
    fills = all_fills(six, class_of(six).tolist(), slots_of(ONE_EACH), 95)
    plan = six.sealed(ONE_EACH, 95)
    seen = Counter(tuple(six.apply(plan, noise=Noise()).bin_of_row.tolist()) for _ in range(400))
    assert set(seen) <= {tuple(fill) for fill in fills}
    assert far_from_uniform([seen[tuple(fill)] for fill in fills]) > 1e-9
    class_id = np.array([0, 1, 0, 0, 1])
    slots = Slots(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]), np.array([2, 1, 1, 1]))
    seen = Counter(tuple(random_fill(slots, class_id, Noise(seed=seed)).tolist()) for seed in range(2400))
    assert len(seen) == 6
    assert far_from_uniform(list(seen.values())) > 1e-9


def test_slots_name_classes_alone_and_must_fit_the_release(four: Published) -> None:
    # Slots name classes alone, so rows of one class with different sensitive values may change places.
    case = Published({"weight": FOUR, "mark": ["a", "b", "a", "b"]}, roles={"mark": "sensitive"})
    done = case.apply(case.sealed([[1, 1], [1, 1]], 90))
    assert (done.sealed.plain(), done.truck_linkage.worst) == ({"fills": 2, "exact": True}, 0.5)
    plan = four.sealed([[1, 1], [1, 1]], 90)
    for wrong, fact in (
        (four.sealed([[1, 1], [0, 1]], 90), "class 0"),
        (four.sealed([[1, 1], [1, 2]], 90), "class 1"),
        (four.sealed([[1, 1, 1], [1, 1, 0]], 90), "class 2"),
        (replace(plan, truck_of_bin=("truck",)), None),
        (replace(plan, slots=replace(plan.slots, count=np.array([-1, 1, 3, 1]))), None),
    ):
        with pytest.raises(InputError, match=fact):
            four.apply(wrong)


def test_a_sealed_plan_that_cannot_be_filled_is_filled_at_random_and_repaired(four: Published) -> None:
    """20 + 80 or 10 + 80 are above 85 whatever goes where, and 80 is above 75 alone."""
    plan = four.sealed([[1, 1], [1, 1]], 85)
    done = four.apply(plan)
    assert (done.plan_feasible, done.feasible, len(done.overloaded)) == (False, False, 1)
    assert done.sealed.plain() == {"fills": 0, "exact": True}
    assert done.truck_linkage.mean == truck_linkage(class_of(four), done.bin_of_row).mean
    mended = four.apply(plan, repair=True)
    assert (mended.feasible, mended.repair.opened, mended.truck_linkage.kind) == (True, 1, "estimate")
    left = four.apply(replace(plan, trucks=(replace(plan.trucks[0], count=2),)), leave_behind=True)
    assert (left.feasible, left.unplanned.left_behind) == (True, 1)
    plan = four.sealed([[1, 1], [1, 1]], 75)
    done, mended = four.apply(plan), four.apply(plan, leave_behind=True)
    assert (done.sealed.plain(), done.plan_feasible) == ({"fills": 0, "exact": True}, False)
    assert (mended.feasible, mended.unplanned.left_behind >= 1) == (True, True)


def test_fills_too_many_to_count_or_slots_to_write_down_are_an_estimate(six, monkeypatch):
    fills = all_fills(six, class_of(six).tolist(), slots_of(ONE_EACH), 95)
    with monkeypatch.context() as patch:
        patch.setattr(repair, "count_and_draw", lambda *_: None)
        patch.setattr(repair, "WALK_SECONDS", 0.25)
        done = six.apply(six.sealed(ONE_EACH, 95))
    assert done.bin_of_row.tolist() in fills
    if not done.sealed.exact:  # slots that need no walk are counted even so
        assert (done.sealed.fills, done.truck_linkage.kind) == (None, "estimate")
        assert done.truck_linkage.worst == pytest.approx(max(best_guesses(fills)), abs=0.15)
    monkeypatch.setattr(repair, "MAX_CELLS", 0)
    done, none = six.apply(six.sealed(ONE_EACH, 95)), six.apply(six.sealed(ONE_EACH, 85))
    assert done.bin_of_row.tolist() in fills
    assert (done.truck_linkage.kind, none.plan_feasible) == ("estimate", False)
    assert done.sealed.plain() == none.sealed.plain() == {"fills": None, "exact": False}


def test_sealed_plans_on_files(four: Published, tmp_path: Path) -> None:
    four.sealed([[1, 1], [1, 1]], 90).write(tmp_path / "plan")
    assert not (tmp_path / "plan" / "assignment.csv").exists()
    done = four.apply(tmp_path / "plan")
    file = tmp_path / "plan" / "slots.csv"
    file.write_text(file.read_text().replace("1,0,1", "1,0,2"))
    with pytest.raises(InputError, match="class 0"):
        four.apply(tmp_path / "plan")
    # 2000 packages that fit anywhere, one of each class in a bin: about 10^5000 fills, told in short.
    case = Published(np.arange(1, 1000, 0.5).tolist(), 666)
    sizes = np.bincount(class_of(case))
    table = [[int(at < size) for size in sizes] for at in range(int(sizes.max()))]
    many = case.apply(case.sealed(table, 10**4))
    for number, (settled, fills) in enumerate(((done, 2), (many, 1e300))):
        assert settled.sealed.plain() == {"fills": fills, "exact": True}
        folder = settled.write(tmp_path / str(number))
        assert json.loads((folder / "settlement.json").read_text())["sealed"] == {"fills": fills, "exact": True}
        assert settled.summary()


@pytest.mark.parametrize("role", ["sensitive", None])
def test_an_exchange_is_a_uniform_fill_of_the_plans_own_slots(role: str | None) -> None:
    weights, marks = (10, 20, 30, 60, 70, 80), ["a", "b", "a", "a", "b", "b"]
    case = Published({"weight": weights, **({"mark": marks} if role else {})}, 3, roles={"mark": role} if role else {})
    plan = case.plan([0, 1, 2, 0, 1, 2], 100)
    own_marks = case.column("mark") if role else [""] * len(weights)
    group = list(zip(class_of(case).tolist(), own_marks, strict=True))
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


def test_who_sees_that_everything_fitted_guesses_no_better_than_stated(six: Published) -> None:
    bins = [0, 1, 2, 2, 1, 0]
    plan = six.plan(bins, 95)
    linkage = truck_linkage(class_of(six), plan.assignment)
    chance = plan_utility(six.apply(plan), six.data).feasibility.value
    done = six.apply(replace(plan, certified=Certified(at_least=chance, at_most=chance)))
    assert (done.plan_feasible, done.truck_linkage.worst) == (True, linkage.worst)
    assert done.truck_linkage.if_seen_to_fit == pytest.approx(min(1, linkage.worst / chance))
    slots = slots_of_plan(six, plan)
    seen = best_guesses(all_fills(six, class_of(six).tolist(), slots, 95))
    assert max(seen) <= done.truck_linkage.if_seen_to_fit + 1e-12
    assert "if_seen_to_fit" not in six.apply(plan).truck_linkage
    unsure = six.apply(replace(plan, certified=Certified(at_least=0.0, at_most=1.0)))
    assert unsure.truck_linkage.if_seen_to_fit is None


def test_feasibility_equals_listing_all_orders(six: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    for capacity in (90, 95, 105, 120, 100):
        plan = six.plan([0, 1, 2, 2, 1, 0], capacity)
        everything = all_fills(six, class_of(six).tolist(), slots_of_plan(six, plan), 10**6)
        fits = [
            [sum(six.weights[row] for row, b in enumerate(fill) if b == bin_) <= capacity for bin_ in range(3)]
            for fill in everything
        ]
        exact = plan_utility(six.apply(plan), six.data).feasibility
        assert (exact.kind, exact.value) == ("exact", pytest.approx(np.mean([all(line) for line in fits]))), capacity
        assert (exact.interval, exact.bins) == ((exact.value, exact.value), pytest.approx(np.mean(fits)))
    monkeypatch.setattr(repair, "MAX_CELLS", 0)  # orders cannot be counted, so it is estimated
    done = six.apply(plan)
    found = plan_utility(done, six.data, noise=Noise(seed=1)).feasibility
    assert (found.kind, found.permutations) == ("estimate", 10_000)
    assert abs(found.value - exact.value) < 6.2 * 0.5 / 100  # p = 1e-9
    assert abs(found.bins - exact.bins) < 6.2 * 0.5 / 100
    assert found.interval[0] <= found.value <= found.interval[1]
    assert plan_utility(done, six.data, noise=Noise(seed=1), permutations=50).feasibility.permutations == 50


@pytest.mark.parametrize(("capacity", "value"), [(90, 1.0), (85, 0.0)])
def test_a_sealed_plan_is_feasible_if_it_can_be_filled(four: Published, capacity: float, value: float) -> None:
    plan = four.sealed([[1, 1], [1, 1]], capacity)
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
