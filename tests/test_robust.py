# SPDX-License-Identifier: Apache-2.0
"""The robust model: the literal integer program of the paper, the largest members of a class, budgets by items."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from tests.settle_help import published, setting_weights

import dunnage as dn
import dunnage.planning.packing as budgeted
from dunnage.errors import NoPlanError, ParameterError
from dunnage.planning.packing import budget_of, robust_load
from dunnage.release import Release
from dunnage.samples import package_setting


def literal_program(mean: Sequence[float], deviation: Sequence[float], capacity: float, budget: float) -> int:
    """Solve eqs. 9, 20 and 21 as they stand: x_ij, y_j, and the dual z_j, p_ij of the inner maximum, by HiGHS.

    Load of bin j: sum mu_i x_ij + budget z_j + sum p_ij <= C y_j, with z_j + p_ij >= d_i x_ij.
    """
    n = len(mean)
    x, p = np.arange(n * n).reshape(n, n), n * n + np.arange(n * n).reshape(n, n)  # item, bin
    z, y = 2 * n * n + np.arange(n), 2 * n * n + n + np.arange(n)
    num = 2 * n * n + 2 * n
    lines, low, high = [], [], []
    for j in range(n):
        line = np.zeros(num)
        line[x[:, j]], line[p[:, j]], line[z[j]], line[y[j]] = mean, 1, budget, -capacity
        lines.append(line), low.append(-np.inf), high.append(0)
    for i, j in itertools.product(range(n), range(n)):
        line = np.zeros(num)
        line[z[j]], line[p[i, j]], line[x[i, j]] = 1, 1, -deviation[i]
        lines.append(line), low.append(0), high.append(np.inf)
    for i in range(n):
        line = np.zeros(num)
        line[x[i]] = 1
        lines.append(line), low.append(1), high.append(1)
    cost, whole = np.zeros(num), np.zeros(num)
    cost[y], whole[x.ravel()], whole[y] = 1, 1, 1
    upper = np.where(whole > 0, 1, np.inf)
    done = milp(
        cost, constraints=LinearConstraint(np.array(lines), low, high), integrality=whole, bounds=Bounds(0, upper)
    )
    assert done.status == 0
    return round(done.fun)


@pytest.mark.parametrize("seed", range(4))
def test_the_published_budget_is_the_literal_program_and_the_upper_bound(seed: int) -> None:
    generator = np.random.default_rng(seed)
    release = published(generator.integers(10, 60, 6).tolist(), 2)
    capacity = float(generator.integers(70, 150))
    known = release.uncertain("weight")
    model = dn.Robust(budget="published")
    budget = budget_of(model, 6, 1)
    assert budget == pytest.approx(math.sqrt(-2 * 6 * math.log(0.05 / 6)))
    least = literal_program(known.nominal.tolist(), (known.upper - known.nominal).tolist(), capacity, budget)
    plan = dn.pack(release, capacity=capacity, model=model)
    assert plan.objective == least == dn.pack(release, capacity=capacity).objective
    assert plan.status == "optimal"


def fewest_by_budget(release: Release, capacity: float, model: dn.Robust) -> int:
    """List all divisions of the rows into bins that the budget allows."""
    known = release.uncertain("weight")
    assert known.nominal is not None
    mean, deviation, n = known.nominal, known.upper - known.nominal, len(known)

    def fits(rows: list[int]) -> bool:
        return robust_load(mean[rows], deviation[rows], budget_of(model, n, len(rows))) <= capacity * (1 + 1e-12)

    def longer(row: int, bins: list[list[int]], best: int) -> int:
        if len(bins) >= best:
            return best
        if row == n:
            return len(bins)
        for number in range(len(bins)):
            bins[number].append(row)
            if fits(bins[number]):
                best = longer(row + 1, bins, best)
            bins[number].pop()
        return longer(row + 1, [*bins, [row]], best)

    return longer(0, [], n + 1)


@pytest.mark.parametrize("budget", ["items", "published"])
def test_a_budget_that_is_less_than_a_bin_holds(budget: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a budget of one row (set by hand) the model is between means and upper bounds, and equals listing."""
    monkeypatch.setattr(budgeted, "budget_of", lambda model, num_rows, in_bin: 1.5)
    monkeypatch.setitem(globals(), "budget_of", lambda model, num_rows, in_bin: 1.5)
    generator = np.random.default_rng(3)
    between = 0
    for _ in range(5):
        release = published(generator.integers(5, 60, 9).tolist(), 3)
        model = dn.Robust(budget=budget)
        plan = dn.pack(release, capacity=100, model=model)
        upper = dn.pack(release, capacity=100)
        mean = dn.pack(release, capacity=100, model=dn.Standard(statistic="mean"))
        assert mean.bound <= plan.bound <= plan.objective <= upper.objective
        assert (plan.objective, plan.status) == (fewest_by_budget(release, 100, model), "optimal")
        between += int(plan.objective < upper.objective)
        assert plan.certified.at_least <= plan.certified.at_most
    assert between


def test_loads_and_statistics_that_models_need() -> None:
    mean, deviation = np.array([10.0, 20.0, 30.0]), np.array([1.0, 5.0, 2.0])
    loads = [robust_load(mean, deviation, budget) for budget in (0, 0.5, 1, 1.5, 2.5, 3, 99)]
    assert loads == [60, 62.5, 65, 66, 67.5, 68, 68]
    bounds, means = (published([10, 11, 12, 13], 2, statistic) for statistic in ("bounds", "mean"))
    for budget in ("items", "published"):
        with pytest.raises(ParameterError, match="weight"):
            dn.pack(bounds, capacity=50, model=dn.Robust(budget=budget))
        assert dn.pack(means, capacity=50, model=dn.Robust(budget=budget)).objective == 1
    for release in (bounds, means):
        with pytest.raises(ParameterError, match="multiset"):
            dn.pack(release, capacity=50, model=dn.Robust())


@pytest.mark.parametrize(("name", "k"), [("25-S-U", 2), ("25-S-U", 10), ("25-L-Un", 5)])
def test_items_never_need_more_than_upper_bounds(name: str, k: int) -> None:
    setting = package_setting(name)
    release = published(setting_weights(name, k), k)
    upper = dn.pack(release, capacity=setting.capacity)
    for budget in ("items", "published"):
        plan = dn.pack(release, capacity=setting.capacity, model=dn.Robust(budget=budget), seconds=5)
        assert plan.objective <= upper.objective
        assert plan.bound >= sum(release.uncertain("weight").nominal) / setting.capacity
        if plan.objective == upper.objective and budget == "published":
            assert plan.certified.at_least == 1
        assert float(plan.model.risk) == 0.05


def test_the_largest_members_of_any_bin_fit() -> None:
    release = published(setting_weights("25-S-U", 0), 6)
    plan = dn.pack(release, capacity=1300, model=dn.Robust())
    known = release.uncertain("weight")
    assert known.scenarios is not None
    for bin_ in range(plan.num_bins):
        counts = np.bincount(known.class_id[plan.assignment == bin_], minlength=len(known.scenarios))
        held = [sorted(members)[len(members) - counts[c] :] for c, members in enumerate(known.scenarios)]
        assert sum(round(10 * value) for own in held for value in own) <= 13_000
    assert plan.certified.at_least == 1
    assert plan.objective <= dn.pack(release, capacity=1300).objective
    assert "if_seen_to_fit" not in plan.truck_linkage


def test_the_first_plan_of_groups_gets_most_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    release = published(list(range(1, 41)), 4, town=["Nord", "Sud"] * 20)
    ends: list[float] = []
    monkeypatch.setattr(budgeted.time, "monotonic", lambda: 0.0)
    standard = budgeted._Packer.standard

    def noted(packer: budgeted._Packer, model: dn.Standard) -> budgeted._Solution:
        ends.append(packer.deadline)
        return standard(packer, model)

    monkeypatch.setattr(budgeted._Packer, "standard", noted)
    for by in (None, "town"):
        dn.pack(release, capacity=100, by=by, model=dn.Robust(), seconds=10)
    assert ends[1] > 2 * ends[0]


def test_a_budget_may_be_enough_where_upper_bounds_are_not() -> None:
    """Some forty packages of 1 to 9 to a bin: not all can be heavy at once."""
    generator = np.random.default_rng(4)
    release = published(generator.integers(1, 10, 120).tolist(), 120)
    model = dn.Robust(budget="items")
    plan = dn.pack(release, capacity=310, model=model, seconds=5)
    needed = plan.objective
    assert 0 <= plan.certified.at_least <= plan.certified.at_most <= 1
    assert needed < dn.pack(release, capacity=310).bound
    trucks = [dn.Truck(name="van", capacity={"weight": 310}, count=int(needed))]
    assert dn.pack(release, trucks=trucks, model=model, seconds=5).objective == needed
    with pytest.raises(NoPlanError):
        dn.pack(release, trucks=[dn.Truck(name="van", capacity={"weight": 310}, count=1)], model=model, seconds=5)
