# SPDX-License-Identifier: Apache-2.0
"""The sampled stochastic model and the sampling it rests on, against enumeration of all plans and permutations."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
from collections import Counter
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare
from tests.oracles.sampling import held_out_feasibility

from dunnage.errors import NoPlanError
from dunnage.kernels.bins.chances import clopper_pearson, fits_by_permutation, within_class_permutations
from dunnage.planning.packing import sampled_assignment

NEVER = 1e-9  # below this p-value a statistical test fails
HAS_ORTOOLS = importlib.util.find_spec("ortools") is not None


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


def test_permutations_stay_inside_classes_repeat_with_the_seed_and_are_equally_likely():
    classes = np.array([2, 0, 2, 1, 0, 2])
    drawn = within_class_permutations(classes, 500, seed=3)
    assert drawn.shape == (500, 6)
    assert (classes[drawn] == classes).all()
    assert (np.sort(drawn, axis=1) == np.arange(6)).all()
    assert (drawn == within_class_permutations(classes, 500, seed=3)).all()
    assert (drawn != within_class_permutations(classes, 500, seed=4)).any()
    classes = np.array([0, 1, 0, 1, 0])
    counts = Counter(map(tuple, within_class_permutations(classes, 24_000, seed=5).tolist()))
    assert set(counts) == {tuple(line.tolist()) for line in orders(classes)}
    assert chisquare(list(counts.values())).pvalue > NEVER


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


def test_each_permutation_is_counted_once_and_decimals_exactly():
    weights, classes, bins = np.array([1.0, 3.0, 2.0]), np.array([0, 0, 1]), np.array([2, 0, 0])
    num = 2_000_000 // 3 + 7  # in several chunks
    tried = list(fits_by_permutation(weights, classes, bins, np.array([4.0]), permutations=num, seed=1))
    assert len(tried) > 1
    assert sum(map(len, tried)) == num
    assert all(fits.shape[1] == 3 and fits[:, 1].all() for fits in tried)  # bin 1 is empty
    weights, one = np.array([0.1, 0.2, 5.0]), np.array([0, 1, 2])
    assert 0.1 + 0.2 > 0.3
    bins, capacities = np.array([0, 0, 1]), np.array([0.3, np.inf])  # a bin may be endless
    assert held_out_feasibility(weights, one, bins, capacities, permutations=10, seed=1)[0] == 1.0


def test_clopper_pearson_tails():
    for hits in (0, 1, 37, 99, 100):
        low, high = clopper_pearson(hits, 100)
        assert hits == 0 or binom.sf(hits - 1, 100, low) == pytest.approx(0.025)
        assert hits == 100 or binom.cdf(hits, 100, high) == pytest.approx(0.025)
        assert low <= hits / 100 <= high


def solved(members, classes, capacity, *, ortools=True, **more):
    """Solve a sample by CP-SAT or by HiGHS, in the time that it takes."""
    with contextlib.ExitStack() as stack:
        if not ortools:
            stack.enter_context(mock.patch.object(importlib.util, "find_spec", return_value=None))
        return sampled_assignment(members, classes, capacity, seconds=600, **more)


@pytest.mark.parametrize("ortools", [HAS_ORTOOLS, False] if HAS_ORTOOLS else [False])
@given(problem=small_problems(), seed=st.integers(0, 99), num=st.integers(1, 6), misses=st.integers(0, 2))
@settings(max_examples=90, deadline=None)
def test_optimum_of_the_sample(ortools, problem, seed, num, misses):
    weights, classes, capacity = problem
    members = [weights[classes == number] for number in np.unique(classes)]
    given_ = {"risk": Fraction(misses, num + misses), "num_scenarios": num + misses, "seed": seed}
    bins, bound = solved(members, classes, capacity, ortools=ortools, **given_)
    drawn = weights[within_class_permutations(classes, num + misses, seed)]
    assert sorted(set(bins.tolist())) == list(range(bins.max() + 1))
    assert sum((loads(line, bins) > capacity).any() for line in drawn) <= misses
    assert bins.max() + 1 == bound == fewest_bins(drawn, capacity, misses)


def test_one_scenario_overfits_wholly():
    """Fitting the only sampled order reaches the optimum of the true weights, and fails on nearly all other orders."""
    weights, classes = np.array([1.0, 2, 3, 4, 5, 6, 7, 8]), np.zeros(8, dtype=int)
    bins, bound = sampled_assignment([weights], classes, 9, risk=0.05, num_scenarios=1, seconds=600, seed=2)
    assert bins.max() + 1 == bound == 4
    share, _, high = held_out_feasibility(weights, classes, bins, np.array([9.0]), permutations=20_000, seed=7)
    # Pairs of 9: 4! 2^4 of the 8! orders fit.
    assert share < high < 0.05


def test_without_time_there_is_still_a_plan(within):
    weights = np.sort(np.random.default_rng(4).integers(125, 376, 60).astype(float))
    classes = np.repeat(np.arange(6), 10)
    bins, bound = sampled_assignment(np.split(weights, 6), classes, 500, risk=0.05, seconds=0.01, seed=1)
    assert len(bins) == 60
    assert bound <= bins.max() + 1
    drawn = weights[within_class_permutations(classes, 100, 1)]
    assert sum((loads(line, bins) > 500).any() for line in drawn) <= 5
    weights = np.sort(np.random.default_rng(5).integers(125, 376, 400).astype(float))  # too large to write down
    with within(10):
        limits = {"risk": 0.05, "seconds": 1.0, "seed": 1}
        bins, bound = sampled_assignment(np.split(weights, 40), np.repeat(np.arange(40), 10), 500, **limits)
    assert bound <= bins.max() + 1


def test_progress_is_told():
    members, classes = [np.array([1.0, 2, 3, 6]), np.array([7.0, 8])], np.array([0, 0, 0, 0, 1, 1])
    for ortools in {HAS_ORTOOLS, False}:
        told = []
        limits = {"risk": 0.5, "num_scenarios": 4, "seed": 1, "progress": told.append}
        bins, bound = solved(members, classes, 9, ortools=ortools, **limits)
        assert bound == bins.max() + 1
        assert told


def test_decimal_risks_and_weights():
    """In binary 0.58 of 50 is just below 29, and in 29 of these 50 orders the second row is heavy."""
    assert 0.58 * 50 < 29
    members, classes = [np.array([1.0, 3.0, 3.0]), np.array([2.0])], np.array([0, 0, 0, 1])
    for risk, num in ((0.58, 3), (0.57, 4)):
        bins, bound = solved(members, classes, 3.0, risk=risk, num_scenarios=50, seed=1)
        assert bins.max() + 1 == bound == num
    members, classes = [np.array([0.1, 0.2]), np.array([0.3, 0.4])], np.array([0, 0, 1, 1])
    bins, bound = solved(members, classes, 0.5, risk=0, num_scenarios=9, seed=1)
    assert bins.max() + 1 == bound == 3
    with pytest.raises(NoPlanError):
        solved([np.array([3.0])], np.array([0]), 2.0, risk=0.05, seed=1)
