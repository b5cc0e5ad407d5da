# SPDX-License-Identifier: Apache-2.0
"""Any partitions of cells: the same objective as a general solver of quadratic programs on hundreds of tables."""

from __future__ import annotations

import importlib.util

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.projection import join_groups, project_cells, project_general

from dunnage.errors import InternalError, ParameterError
from dunnage.kernels.counts.projection import Family, ListedCells, project

needs_piqp = pytest.mark.skipif(importlib.util.find_spec("piqp") is None, reason="needs piqp")

Problem = tuple[npt.NDArray[np.float64], list[npt.NDArray[np.int64]], list[npt.NDArray[np.float64]], list[float]]


def random_problem(seed: int) -> Problem:
    """Cells, partitions (any, of one group, nested, each cell its own), noisy sums of either sign, weights."""
    rng = np.random.default_rng(seed)
    num = int(rng.integers(1, 60))
    cells = rng.integers(-20, 20, num).astype(float) if seed % 2 else rng.normal(0, 10, num)
    groups: list[npt.NDArray[np.int64]] = []
    for feature in range(int(rng.integers(1, 6))):
        kind = rng.choice(["any", "one", "nested", "own", "few"])
        if kind == "nested" and feature:
            groups.append(groups[-1] // 3)
        elif kind == "own":
            groups.append(rng.permutation(num))
        else:
            groups.append(rng.integers(0, {"one": 1, "few": 3}.get(str(kind), num + 3), num))
    sums = [np.round(rng.normal(10, 30, int(part.max()) + 1 + int(rng.integers(0, 2)))) for part in groups]
    reach = 5 if seed % 4 == 0 else 1
    return cells, groups, sums, list(10.0 ** rng.uniform(-reach, reach, len(groups) + 1))


def objective(x: npt.NDArray[np.float64], problem: Problem) -> float:
    cells, groups, sums, weights = problem
    total = weights[0] * float(((x - cells) ** 2).sum())
    for part, noisy, weight in zip(groups, sums, weights[1:], strict=True):
        total += weight * float(((np.bincount(part, x, minlength=len(noisy)) - noisy) ** 2).sum())
    return total


@needs_piqp
@pytest.mark.parametrize("batch", range(4))
def test_objective_is_that_of_a_general_solver(batch):
    for seed in range(100 * batch, 100 * (batch + 1)):
        problem = random_problem(seed)
        ours = project_cells(*problem)
        assert ours.residual <= 1e-12
        theirs = project_cells(*problem, method="general", tolerance=1e-5)
        expected = objective(theirs.x, problem)
        assert objective(ours.x, problem) == pytest.approx(expected, rel=1e-8, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_order_of_cells_groups_and_features_does_not_matter(seed):
    cells, groups, sums, weights = random_problem(seed)
    rng = np.random.default_rng(seed + 1)
    expected = project_cells(cells, groups, sums, weights).x
    order = rng.permutation(len(cells))
    features = rng.permutation(len(groups))
    renumbered, moved = [], []
    for feature in features:
        names = rng.permutation(len(sums[feature]))
        renumbered.append(names[groups[feature][order]])
        moved.append(np.empty(len(names)))
        moved[-1][names] = sums[feature]
    found = project_cells(
        cells[order], renumbered, moved, [weights[0], *(weights[1 + feature] for feature in features)]
    )
    assert found.x == pytest.approx(expected[order], abs=1e-8)


def test_weights_matter_only_relative_to_each_other():
    cells, groups, sums, weights = random_problem(7)
    once = project_cells(cells, groups, sums, weights)
    twice = project_cells(cells, groups, sums, [3 * weight for weight in weights])
    assert twice.x == pytest.approx(once.x, abs=1e-12)


def test_join_groups_by_hand():
    join, num = join_groups([np.array([0, 0, 1, 1, 0]), np.array([2, 5, 2, 2, 2])])
    assert num == 3
    assert len({join[0], join[1], join[2]}) == 3
    assert (join[0], join[2]) == (join[4], join[3])


@needs_piqp
def test_floors_and_other_results_are_those_of_project():
    family = Family(groups=(np.array([0, 0, 1]), np.array([0, 1, 1])), sizes=(2, 3), ratios=(3.0, 0.5))
    listed = ListedCells(
        values=np.array([9.0, 4, 7, 1, 0]), starts=np.array([0, 2, 4, 5]), floors=np.array([3.0, 0, -np.inf])
    )
    sums = [np.array([40.0, -5]), np.array([10.0, 30, 2])]
    ours, theirs = project(listed, family, sums), project_general(listed, family, sums)
    assert theirs.x == pytest.approx(ours.x, abs=1e-6)
    assert theirs.theta == pytest.approx(ours.theta, abs=1e-5)
    assert theirs.needed.tolist() == ours.needed.tolist()
    assert theirs.counts.tolist() == ours.counts.tolist()
    for mine, other in zip(ours.duals, theirs.duals, strict=True):
        assert other == pytest.approx(mine, abs=1e-5)
    with pytest.raises(InternalError, match="PIQP"):
        project_general(listed, family, sums, tolerance=0.0)


def test_bad_partitions():
    cells, groups, sums = np.ones(2), [np.array([0, 1])], [np.ones(2)]
    for bad_groups, bad_sums, weights in [
        (groups, sums, [1.0]),
        ([], [], [1.0]),
        (groups, sums, [1.0, -1.0]),
        ([np.array([0, 1, 1])], sums, [1.0, 1.0]),
        ([np.array([0.0, 1.0])], sums, [1.0, 1.0]),
        ([np.array([0, 2])], sums, [1.0, 1.0]),
        (groups, [np.array([1.0, np.nan])], [1.0, 1.0]),
    ]:
        with pytest.raises(ParameterError):
            project_cells(cells, bad_groups, bad_sums, weights)
    with pytest.raises(ParameterError):
        project_cells(np.array([1.0, np.nan]), groups, sums, [1.0, 1.0])
