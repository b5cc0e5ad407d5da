# SPDX-License-Identifier: Apache-2.0
"""Constrained and hierarchical counts: exact privacy on tiny universes, sums, laws of both paths, least squares."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise, product
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.chance_help import chance_of
from tests.counts_help import SCHEMA, answers, asked, counted, discrete_laplace, law_of, outcomes, universe

from dunnage.errors import ParameterError
from dunnage.kernels.counts import projection
from dunnage.kernels.counts import tables as tables_of_counts
from dunnage.kernels.counts.laplace import DiscreteLaplace
from dunnage.kernels.counts.tables import consistent_tree
from dunnage.mechanisms import counts as constrained_counts
from dunnage.mechanisms.counts import ConstrainedCounts, Feature, HierarchicalCounts, Layout
from dunnage.model.trips import END_COLUMNS, is_nested
from dunnage.noise.source import Noise


@pytest.mark.parametrize(
    "mechanism",
    [
        ConstrainedCounts(epsilon=8, features=[[]], feature_weights="size"),
        HierarchicalCounts(epsilon=8, features=[[]], budget="uniform", prune=True),
        HierarchicalCounts(epsilon=8, features=[[]], budget="uniform", prune=False),
    ],
    ids=["size", "pruned", "whole"],
)
def test_worst_ratio_between_neighbours_is_within_epsilon(mechanism):
    """Two cells and their total, all answers within 5 of the truth: what is missed has a chance below 1e-9."""
    question = asked(mechanism, universe(), DiscreteLaplace)
    found = outcomes(mechanism, question, reach=5, most=2)
    sizes = zip(question.laws, question.sizes, strict=True)
    chances = [discrete_laplace(law.scale) for law, size in sizes for _ in range(size)]
    tables = [counts for counts in product(range(3), repeat=2) if sum(counts) <= 2]
    laws = {counts: law_of(found, answers(question, counts), chances) for counts in tables}
    worst = 0.0
    for (a, b), law in laws.items():
        assert sum(law.values()) == pytest.approx(1, abs=1e-6)
        for more in ((a + 1, b), (a, b + 1)):
            if more in laws:
                ratios = [law[result] / laws[more][result] for result in law if law[result] > 1e-4]
                ratios += [laws[more][result] / law[result] for result in law if laws[more][result] > 1e-4]
                worst = max(worst, *ratios)
    assert worst <= exp(8) * (1 + 1e-3)
    assert worst > exp(4)  # most of epsilon is used: the tables are not just far apart from each other


def test_shares_add_up_and_scale_the_noise():
    mechanism = ConstrainedCounts(epsilon="0.3", features="O5")
    for shares in ("uniform", "cells", "margins"):
        queries = ConstrainedCounts(epsilon="0.3", budget_shares=shares).queries(SCHEMA)
        assert sum(query.share for query in queries) == 1
    question = asked(mechanism, universe(4, 2, city=True), DiscreteLaplace)
    assert sum(1 / law.scale for law in question.laws) == mechanism.epsilon
    assert [law.scale for law in question.laws] == [Fraction(50, 3)] * 5


def test_noise_of_every_query_has_its_law():
    """Noise is what remains after the true sums; chi-square on 40,000 draws of each."""
    of = universe(2, 1, city=True)
    shares = {"cells": 0.5, "total": 0.3, "mode": 0.2}
    mechanism = ConstrainedCounts(epsilon=2, features=[[], ["mode"]], budget_shares=shares)
    question = asked(mechanism, of, DiscreteLaplace)
    table, noise = counted(of, [3, 0, 1, 0]), Noise()
    layout = Layout.of(of, question.features)
    true = np.array(answers(question, [3, 0, 1, 0]))
    draws = []
    for _ in range(10_000):
        draws.append(np.concatenate([question.noisy_cells(table, layout, noise), *question.noisy_sums(table, noise)]))
    draws, start = np.array(draws) - true, 0
    for law, size in zip(question.laws, question.sizes, strict=True):
        sample = np.clip(draws[:, start : start + size].reshape(-1), -6, 6)
        chance = discrete_laplace(law.scale)
        inner = np.array([chance(value) for value in range(-5, 6)])
        expected = np.concatenate(([(1 - inner.sum()) / 2], inner, [(1 - inner.sum()) / 2])) * len(sample)
        observed = np.bincount(sample + 6, minlength=13)
        assert chance_of(observed, expected) > 1e-9
        start += size


def test_lazy_and_dense_paths_have_the_same_law(monkeypatch, thorough):
    """Two empty cells of one group, one occupied: many releases of each path, chi-square on their outcomes."""
    num = 1_200 if thorough else 800
    of = universe(2, 1)
    mechanism = ConstrainedCounts(epsilon=3, features=[[]])
    question = asked(mechanism, of, DiscreteLaplace)
    table, noise = counted(of, [2, 0, 0, 1]), Noise()

    def sample() -> Counter:
        drawn = (mechanism.draw_counts(table, question, noise) for _ in range(num))
        return Counter((tuple(d.cells.tolist()), tuple(d.counts.tolist())) for d in drawn)

    dense = sample()
    monkeypatch.setattr(constrained_counts, "MAX_DENSE_CELLS", 0)
    lazy = sample()
    common = [key for key in dense if dense[key] + lazy[key] >= 30]
    observed = np.array([[dense[key], lazy[key]] for key in common])
    rest = np.array([[num, num]]) - observed.sum(axis=0)
    assert stats.chi2_contingency(np.vstack([observed, rest]) if rest.sum() >= 30 else observed).pvalue > 1e-9


def test_nothing_is_refused_after_the_spend(monkeypatch):
    """Counts and noise of any size, more cells than the memory holds, and a projection that does not converge."""
    of, rng = universe(6, 3, city=True), np.random.default_rng(3)
    most = constrained_counts.MAX_TRIPS // of.num_cells
    tables = [np.where(rng.random(of.num_cells) < 0.3, size, 0) for size in (0, 1, 10**6, most)]
    forms = [{}, {"budget_shares": "cells", "structure": "hierarchical"}, {"feature_weights": "uniform"}]
    for steps, listed in ((300, 10**8), (1, 10**8), (300, 1)):
        monkeypatch.setattr(projection, "MAX_STEPS", steps)
        monkeypatch.setattr(tables_of_counts, "MAX_LISTED", listed)
        for form, epsilon, true, dense in product(
            [*forms, {"budget_shares": "margins"}], ("3e-11", 1, 700), tables, (1 << 22, 0)
        ):
            if "margins" in form.values() and not dense:
                continue  # refused before the spend
            monkeypatch.setattr(constrained_counts, "MAX_DENSE_CELLS", dense)
            mechanism = ConstrainedCounts(epsilon=epsilon, **form)
            drawn = mechanism.draw_counts(counted(of, true), asked(mechanism, of, DiscreteLaplace), Noise())
            assert (drawn.counts > 0).all()
            residual = drawn.figures["kkt_residual"]
            assert residual == float(f"{residual:.1e}") <= 1  # two digits


def test_counts_are_positive_and_sums_are_those_of_the_projection(monkeypatch):
    of = universe(12, 4, city=True)
    rng = np.random.default_rng(7)
    true = np.where(rng.random(of.num_cells) < 0.05, rng.geometric(0.2, of.num_cells), 0)
    nothing, plain = universe(4, 2), ConstrainedCounts(epsilon="0.5", features=[[]])
    for dense, all_shares in ((True, ("uniform", "cells", "margins")), (False, ("uniform", "cells"))):
        monkeypatch.setattr(constrained_counts, "MAX_DENSE_CELLS", 1 << 22 if dense else 0)
        for shares in all_shares:
            mechanism = ConstrainedCounts(epsilon=1, budget_shares=shares)
            drawn = mechanism.draw_counts(counted(of, true), asked(mechanism, of, DiscreteLaplace), Noise())
            assert (drawn.counts > 0).all()
            assert (np.diff(drawn.cells) > 0).all()
            assert drawn.figures["kkt_residual"] <= 1e-10
            # The noise of the total has a scale of 5 or 12.5: a chance below 1e-9.
            assert abs(int(drawn.counts.sum()) - true.sum()) < 300
        question, empty = asked(plain, nothing, DiscreteLaplace), counted(nothing, [0] * nothing.num_cells)
        for _ in range(20):  # trips are created where there are none, and no cell is occupied
            assert (plain.draw_counts(empty, question, Noise()).counts > 0).all()


def test_far_more_cells_than_memory_holds():
    of = universe(1_000, 1_000)
    rng = np.random.default_rng(3)
    cells = np.unique(rng.integers(0, of.num_cells, 20_000))
    counts = rng.geometric(0.05, len(cells))
    mechanism = ConstrainedCounts(epsilon=1, features="O3")
    table = constrained_counts.Counted(universe=of, cells=cells, counts=counts)
    drawn = mechanism.draw_counts(table, asked(mechanism, of, DiscreteLaplace), Noise())
    assert abs(int(drawn.counts.sum()) / counts.sum() - 1) < 0.01
    assert len(np.unique(drawn.cells)) == len(drawn.cells)
    assert np.isin(cells[counts > 100], drawn.cells).all()


def test_margins_add_the_margin_and_beat_the_published_shares():
    of = universe(20, 6, city=True)
    rng = np.random.default_rng(5)
    true = np.zeros(of.num_cells, dtype=np.int64)
    hot = rng.choice(400, 12, replace=False)
    true[(np.repeat(hot, 6) + 400 * np.tile(np.arange(6), 12))] = rng.geometric(0.03, 72)
    table = counted(of, true)

    def error(shares: str) -> float:
        mechanism = ConstrainedCounts(epsilon=1, budget_shares=shares)
        squares = []
        for _ in range(20):
            drawn = mechanism.draw_counts(table, asked(mechanism, of, DiscreteLaplace), Noise())
            found = np.zeros(of.num_cells)
            found[drawn.cells] = drawn.counts
            squares.append(((found - true) ** 2).mean())
        return float(np.sqrt(np.mean(squares)))

    assert END_COLUMNS["stop"] in [
        query.columns for query in ConstrainedCounts(epsilon=1, budget_shares="margins").queries(SCHEMA)
    ]
    assert error("margins") < 0.7 * error("uniform")
    assert error("cells") < 0.8 * error("uniform")


def test_hierarchical_structure_nests_features():
    queries = ConstrainedCounts(epsilon=1, structure="hierarchical").queries(SCHEMA)
    features = [Feature.of(universe(6, 2, city=True), query.columns) for query in queries[1:]]
    assert is_nested([feature.columns for feature in features])


def test_bad_parameters_are_refused():
    for parameters, what in (
        ({"epsilon": 0}, "epsilon"),
        ({"features": "O7"}, "features"),
        ({"features": [["window"], ["window"]]}, None),
        ({"features": ["window"]}, None),
        ({"budget_shares": "all"}, "budget_shares"),
        ({"budget_shares": {"cells": "x"}}, "share"),
        ({"feature_weights": "none"}, "feature_weights"),
        ({"structure": "round"}, "structure"),
        ({"as_published": "false"}, "as_published"),
        ({"budget_shares": "margins", "as_published": True}, "margins"),
        ({"budget_shares": "margins", "feature_weights": "uniform"}, "margins"),
    ):
        with pytest.raises(ParameterError, match=what):
            ConstrainedCounts(**{"epsilon": 1, **parameters})
    with pytest.raises(ParameterError, match="wheels"):  # only the schema says which columns there are
        ConstrainedCounts(epsilon=1, features=[["wheels"]]).queries(SCHEMA)
    for shares in (
        {"cells": 1},
        {"cells": 0.5, "total": 0.4},
        {"cells": 0.5, "total": 0.5, "mode": 0},
        {"cells": 1.5, "total": -0.5},
    ):
        with pytest.raises(ParameterError, match="share"):
            ConstrainedCounts(epsilon=1, features=[[]], budget_shares=shares).queries(SCHEMA)
    with pytest.raises(ParameterError, match="noisy-counts"):
        ConstrainedCounts(epsilon=1, features=[]).queries(SCHEMA)
    with pytest.raises(ParameterError, match="epsilon"):  # noise that drowns everything, before it is paid for
        asked(ConstrainedCounts(epsilon="1e-400"), universe(2, 2, city=True), DiscreteLaplace)
    for parameters in ({"epsilon": 0}, {"epsilon": 1, "budget": "even"}, {"epsilon": 1, "features": "X"}):
        with pytest.raises(ParameterError):
            HierarchicalCounts(**parameters)


@given(st.integers(0, 2**32), st.booleans())
def test_least_squares_in_a_tree(seed, even):
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
