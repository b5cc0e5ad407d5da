# SPDX-License-Identifier: Apache-2.0
"""HierarchicalCounts: least squares in a tree, pruning, exact privacy on tiny universes, refusals."""

from __future__ import annotations

from itertools import pairwise, product
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.counts_help import SCHEMA, answers, asked, counted, discrete_laplace, law_of, outcomes, universe

from dunnage.errors import ParameterError
from dunnage.kernels.counts.laplace import DiscreteLaplace
from dunnage.kernels.counts.tables import consistent_tree
from dunnage.mechanisms.counts import HierarchicalCounts
from dunnage.noise.source import Noise


@given(st.integers(0, 2**32), st.booleans())
def test_least_squares(seed, even):
    rng = np.random.default_rng(seed)
    middle = np.zeros(4, dtype=np.int64)
    leaves = np.repeat(np.arange(4), [2, 1, 3, 2]) if even else np.sort(rng.integers(0, 4, 8))
    leaves[:4] = np.arange(4)  # every node has a child
    noisy = [rng.normal(3, 4, size) for size in (1, 4, 8)]
    variances = rng.uniform(0.2, 5, 3)
    root, inner, found = consistent_tree(noisy, [middle, leaves], variances, prune=False)
    matrix = np.vstack([np.ones((1, 8)), np.eye(4)[:, leaves], np.eye(8)])
    weights = 1 / np.sqrt(np.repeat(variances, [1, 4, 8]))
    best = np.linalg.lstsq(matrix * weights[:, None], np.concatenate(noisy) * weights, rcond=None)[0]
    np.testing.assert_allclose(found, best, atol=1e-9)
    np.testing.assert_allclose(inner, np.bincount(leaves, best, minlength=4), atol=1e-9)
    np.testing.assert_allclose(root, [best.sum()], atol=1e-9)


def test_pruned_nodes_are_zero_with_all_below_and_others_keep_the_sum():
    noisy = [np.array([10.0]), np.array([-5.0, 12.0]), np.array([3.0, -9.0, 4.0, 5.0, -1.0])]
    parents = [np.array([0, 0]), np.array([0, 0, 1, 1, 1])]
    root, inner, leaves = consistent_tree(noisy, parents, [1.0, 1.0, 1.0], prune=True)
    assert inner[0] == 0
    assert (leaves[:2] == 0).all()
    assert leaves[4] == 0
    assert inner.sum() == pytest.approx(root.sum())
    assert leaves.sum() == pytest.approx(root.sum())


@pytest.mark.parametrize("prune", [True, False])
def test_worst_ratio_between_neighbours_is_within_epsilon(prune):
    mechanism = HierarchicalCounts(epsilon=8, features=[[]], budget="uniform", prune=prune)
    question = asked(mechanism, universe(), DiscreteLaplace)
    found = outcomes(mechanism, question, reach=5, most=2)
    sizes = zip(question.laws, question.sizes, strict=True)
    chances = [discrete_laplace(law.scale) for law, size in sizes for _ in range(size)]
    tables = [counts for counts in product(range(3), repeat=2) if sum(counts) <= 2]
    laws = {counts: law_of(found, answers(question, counts), chances) for counts in tables}
    for (a, b), law in laws.items():
        for more in ((a + 1, b), (a, b + 1)):
            if more in laws:
                assert max(law[o] / laws[more][o] for o in law if law[o] > 1e-4) <= exp(8) * (1 + 1e-3)
                assert max(laws[more][o] / law[o] for o in law if laws[more][o] > 1e-4) <= exp(8) * (1 + 1e-3)


def test_budgets_add_up_and_grow_towards_the_cells():
    for budget in ("geometric", "uniform"):
        queries = HierarchicalCounts(epsilon=1, budget=budget).queries(SCHEMA)
        assert sum(query.share for query in queries) == 1
    shares = [query.share for query in HierarchicalCounts(epsilon=1).queries(SCHEMA)]
    levels = [*shares[1:], shares[0]]
    for above, below in pairwise(levels):
        assert float(below / above) == pytest.approx(2 ** (1 / 3))


def test_counts_are_positive_and_near_the_truth_where_epsilon_is_large():
    of = universe(6, 3, city=True)
    true = np.arange(of.num_cells) % 5
    mechanism = HierarchicalCounts(epsilon=200)
    drawn = mechanism.draw_counts(counted(of, true), asked(mechanism, of, DiscreteLaplace), Noise())
    found = np.zeros(of.num_cells, dtype=np.int64)
    found[drawn.cells] = drawn.counts
    assert (found == true).all()


def test_bad_parameters_are_refused():
    for parameters in ({"epsilon": 0}, {"epsilon": 1, "budget": "even"}, {"epsilon": 1, "features": "X"}):
        with pytest.raises(ParameterError):
            HierarchicalCounts(**parameters)
