# SPDX-License-Identifier: Apache-2.0
"""The sampled stochastic model and the sampling it rests on, against enumeration of all plans and permutations."""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare
from tests.oracles.sampling import held_out_feasibility

from dunnage.errors import NoPlanError
from dunnage.kernels.bins.chances import clopper_pearson, fits_by_permutation, within_class_permutations
from dunnage.planning import packing as sampled
from dunnage.planning.packing import sampled_assignment

NEVER = 1e-9  # below this p-value a statistical test fails
SOLVERS = [
    pytest.param(
        sampled._solve_cp_sat,
        id="cp-sat",
        marks=pytest.mark.skipif(importlib.util.find_spec("ortools") is None, reason="needs ortools"),
    ),
    pytest.param(sampled._solve_highs, id="highs"),
]


def orders(classes):
    """All permutations inside classes, as lines of row numbers."""
    rows = [np.flatnonzero(classes == number) for number in np.unique(classes)]
    for parts in itertools.product(*(itertools.permutations(part.tolist()) for part in rows)):
        line = np.empty(len(classes), dtype=np.int64)
        for part, taken in zip(rows, parts, strict=True):
            line[part] = taken
        yield line


def loads(weights, bins):
    return np.bincount(bins, weights=weights)


def partitions(num):
    """All ways to put rows into bins, each once: a row opens at most one new bin."""
    plans = [()]
    for _ in range(num):
        plans = [(*plan, b) for plan in plans for b in range(max(plan, default=-1) + 2)]
    return [np.array(plan) for plan in plans]


def fewest_bins(weights, capacity, misses):
    """Eqs. 12-16 by enumeration."""
    return min(
        plan.max() + 1
        for plan in partitions(weights.shape[1])
        if sum((loads(line, plan) > capacity).any() for line in weights) <= misses
    )


@st.composite
def small_problems(draw):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).filter(lambda sizes: 2 <= sum(sizes) <= 6))
    classes = np.repeat(np.arange(len(sizes)), sizes)
    weights = draw(st.lists(st.integers(1, 9), min_size=len(classes), max_size=len(classes)))
    return np.sort(np.array(weights, dtype=float)), classes, draw(st.integers(9, 16))


# Permutations


def test_permutations_stay_inside_classes_and_repeat_with_the_seed():
    classes = np.array([2, 0, 2, 1, 0, 2])
    drawn = within_class_permutations(classes, 500, seed=3)
    assert drawn.shape == (500, 6)
    assert (classes[drawn] == classes).all()
    assert (np.sort(drawn, axis=1) == np.arange(6)).all()
    assert (drawn == within_class_permutations(classes, 500, seed=3)).all()
    assert (drawn != within_class_permutations(classes, 500, seed=4)).any()


def test_every_permutation_is_equally_likely():
    classes = np.array([0, 1, 0, 1, 0])
    drawn = within_class_permutations(classes, 24_000, seed=5)
    counts = Counter(map(tuple, drawn.tolist()))
    assert set(counts) == {tuple(line.tolist()) for line in orders(classes)}
    assert chisquare(list(counts.values())).pvalue > NEVER


# Held-out feasibility


@given(problem=small_problems(), seed=st.integers(0, 2**20), data=st.data())
@settings(max_examples=25, deadline=None)
def test_held_out_feasibility_is_that_of_all_permutations(problem, seed, data):
    weights, classes, capacity = problem
    bins = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(classes), max_size=len(classes))))
    truth = np.mean([(loads(weights[line], bins) <= capacity).all() for line in orders(classes)])
    share, low, high = held_out_feasibility(weights, classes, bins, np.array([capacity]), permutations=2000, seed=seed)
    hits = round(share * 2000)
    assert min(binom.cdf(hits, 2000, truth), binom.sf(hits - 1, 2000, truth)) > NEVER
    assert low <= share <= high


def test_vectors_are_judged_jointly():
    """Class {(3, 1), (1, 3)}, bins that take one each: the joint probability is 1/2, not 1/4."""
    values, capacities = np.array([[3.0, 1.0], [1.0, 3.0]]), np.array([[3.0, 1.0], [1.0, 3.0]])
    classes, bins = np.array([0, 0]), np.array([0, 1])
    share, low, high = held_out_feasibility(values, classes, bins, capacities, permutations=40_000, seed=1)
    assert binom.cdf(round(share * 40_000), 40_000, 0.5) == pytest.approx(0.5, abs=0.5 - NEVER)
    assert high - low < 0.011


def test_several_chunks_count_each_permutation_once(monkeypatch):
    monkeypatch.setattr("dunnage.kernels.bins.chances._CHUNK_NUMBERS", 7)
    weights, classes, bins = np.array([1.0, 3.0, 2.0]), np.array([0, 0, 1]), np.array([2, 0, 0])
    tried = list(fits_by_permutation(weights, classes, bins, np.array([4.0]), permutations=101, seed=1))
    assert sum(map(len, tried)) == 101
    assert all(fits.shape[1] == 3 and fits[:, 1].all() for fits in tried)  # bin 1 is empty


def test_decimals_are_added_exactly_and_a_bin_may_be_endless():
    weights, one = np.array([0.1, 0.2, 5.0]), np.array([0, 1, 2])
    assert 0.1 + 0.2 > 0.3
    bins, capacities = np.array([0, 0, 1]), np.array([0.3, np.inf])
    assert held_out_feasibility(weights, one, bins, capacities, permutations=10, seed=1)[0] == 1.0


@pytest.mark.parametrize("hits", [0, 1, 37, 99, 100])
def test_clopper_pearson_tails(hits):
    low, high = clopper_pearson(hits, 100)
    assert hits == 0 or binom.sf(hits - 1, 100, low) == pytest.approx(0.025)
    assert hits == 100 or binom.cdf(hits, 100, high) == pytest.approx(0.025)
    assert low <= hits / 100 <= high


# The sampled model


@pytest.mark.parametrize("solve", SOLVERS)
@given(problem=small_problems(), seed=st.integers(0, 99), num=st.integers(1, 6), misses=st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_optimum_of_the_sample(solve, problem, seed, num, misses):
    weights, classes, capacity = problem
    num += misses
    members = [weights[classes == number] for number in np.unique(classes)]
    risk = Fraction(misses, num)
    sample = sampled._draw(members, classes, capacity, risk, num, 600, seed)
    best = fewest_bins(sample.weights, sample.capacity, sample.misses)
    found, bound = solve(sample, time.monotonic() + 600, seed, None)
    assert sample.misses == misses
    assert sample.fits(sample.start)
    assert sample.least <= best
    assert sample.fits(found)
    assert found.max() + 1 == best == max(bound, sample.least)


@given(problem=small_problems(), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_function_returns_the_optimum(problem, seed):
    weights, classes, capacity = problem
    members = [weights[classes == number] for number in np.unique(classes)]
    bins, bound = sampled_assignment(members, classes, capacity, risk=0.2, num_scenarios=5, seconds=600, seed=seed)
    drawn = weights[within_class_permutations(classes, 5, seed)]
    assert sorted(set(bins.tolist())) == list(range(bins.max() + 1))
    assert bins.max() + 1 == bound == fewest_bins(drawn, capacity, 1)


def test_one_scenario_overfits_wholly():
    """Fitting the only sampled order reaches the optimum of the true weights, and fails on nearly all other orders."""
    weights, classes = np.array([1.0, 2, 3, 4, 5, 6, 7, 8]), np.zeros(8, dtype=int)
    bins, bound = sampled_assignment([weights], classes, 9, risk=0.05, num_scenarios=1, seconds=600, seed=2)
    assert bins.max() + 1 == bound == 4
    share, _, high = held_out_feasibility(weights, classes, bins, np.array([9.0]), permutations=20_000, seed=7)
    # Pairs of 9: 4! 2^4 of the 8! orders fit.
    assert share < high < 0.05


def test_without_time_there_is_still_a_plan():
    weights = np.sort(np.random.default_rng(4).integers(125, 376, 60).astype(float))
    classes = np.repeat(np.arange(6), 10)
    members = np.split(weights, 6)
    bins, bound = sampled_assignment(members, classes, 500, risk=0.05, seconds=0.01, seed=1)
    assert len(bins) == 60
    assert bound <= bins.max() + 1
    drawn = weights[within_class_permutations(classes, 100, 1)]
    assert sum((loads(line, bins) > 500).any() for line in drawn) <= 5


def test_a_model_too_large_to_write_down_keeps_to_its_time(within):
    weights = np.sort(np.random.default_rng(5).integers(125, 376, 400).astype(float))
    with within(10):
        bins, bound = sampled_assignment(
            np.split(weights, 40), np.repeat(np.arange(40), 10), 500, risk=0.05, seconds=1.0, seed=1
        )
    assert bound <= bins.max() + 1


def test_progress_is_told():
    pytest.importorskip("ortools")
    told = []
    members = [np.array([1.0, 2, 3, 6]), np.array([7.0, 8])]
    sampled_assignment(
        members, np.array([0, 0, 0, 0, 1, 1]), 9, risk=0.5, num_scenarios=4, seconds=600, seed=1, progress=told.append
    )
    assert all("bins, at least" in line for line in told)
    assert told


def test_without_ortools_highs_solves(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sampled, "_solve_cp_sat", None)
    told = []
    members = [np.array([1.0, 2, 3, 6]), np.array([7.0, 8])]
    bins, bound = sampled_assignment(
        members, np.array([0, 0, 0, 0, 1, 1]), 9, risk=0.5, num_scenarios=4, seconds=600, seed=1, progress=told.append
    )
    assert bound == bins.max() + 1
    assert told


def test_risk_is_read_as_a_decimal():
    """In binary 0.29 of 100 is just below 29."""
    assert 0.29 * 100 < 29
    sample = sampled._draw([np.array([1.0, 2.0])], np.array([0, 0]), 4.0, 0.29, 100, 1.0, 1)
    assert sample.misses == 29


def test_decimal_weights():
    members = [np.array([0.1, 0.2]), np.array([0.3, 0.4])]
    bins, bound = sampled_assignment(members, np.array([0, 0, 1, 1]), 0.5, risk=0, num_scenarios=9, seconds=600, seed=1)
    assert bins.max() + 1 == bound == 3


def test_a_value_larger_than_a_bin():
    with pytest.raises(NoPlanError, match="larger than a bin"):
        sampled_assignment([np.array([3.0])], np.array([0]), 2.0, risk=0.05, seconds=1.0, seed=1)
