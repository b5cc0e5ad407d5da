# SPDX-License-Identifier: Apache-2.0
"""Rounding keeps sums: every node gets a whole number next to its value, and children add up to their parent."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dunnage.errors import ParameterError
from dunnage.kernels.counts.tables import SLACK, round_tree
from dunnage.noise.source import Noise

ALPHA = 1e-9


@st.composite
def trees(draw, values):
    """Values and nested levels, empty nodes included."""
    given_values = np.array(draw(st.lists(values, max_size=40)), dtype=np.float64)
    levels, below = [], np.arange(given_values.size + 1)
    for _ in range(draw(st.integers(0, 3))):
        inner = sorted(draw(st.lists(st.integers(0, below.size - 1), max_size=6)))
        below = np.array([0, *below[inner], given_values.size], dtype=np.int64)
        levels.append(below)
    return given_values, levels


def sums(values, starts):
    return [math.fsum(values[low:high]) for low, high in pairwise(starts)]


def assert_next_to(numbers, values, starts):
    """Every node has a whole number next to its value; the value itself if it is as good as whole."""
    for number, value, cells in zip(sums(numbers, starts), sums(values, starts), np.diff(starts), strict=True):
        if abs(value - round(value)) <= 0.8 * SLACK * cells:
            assert number == round(value)
        else:
            assert abs(number - value) < 1 + SLACK * cells


@settings(max_examples=300, deadline=None)
@given(trees(st.floats(0, 50)) | trees(st.floats(-1000, 1000)))
def test_every_node_is_rounded_up_or_down(tree):
    values, levels = tree
    numbers = round_tree(values, levels, Noise(seed=1))
    assert numbers.dtype == np.int64
    for starts in [np.arange(values.size + 1), *levels]:
        assert_next_to(numbers, values, starts)


@settings(max_examples=200, deadline=None)
@given(trees(st.integers(0, 8).map(lambda eighths: eighths / 8)))
def test_many_ties(tree):
    # Eighths are held exactly: no slack is needed to compare.
    values, levels = tree
    numbers = round_tree(values, levels, Noise(seed=1))
    for starts in [np.arange(values.size + 1), *levels]:
        for number, value in zip(sums(numbers, starts), sums(values, starts), strict=True):
            assert math.floor(value) <= number <= math.ceil(value)


@settings(max_examples=150, deadline=None)
@given(trees(st.integers(-(10**6), 10**6).map(float)), st.integers(0, 2**32))
def test_whole_and_nearly_whole_values_stay(tree, seed):
    values, levels = tree
    assert np.array_equal(round_tree(values, levels, Noise(seed=1)), values.astype(np.int64))
    off = np.random.default_rng(seed).uniform(-5e-10, 5e-10, values.size)
    assert np.array_equal(round_tree(values + off, levels, Noise(seed=1)), values.astype(np.int64))


def test_sums_that_are_whole_but_for_rounding():
    assert round_tree(np.array([2.9999999999, 0.1 + 0.2 + 0.7]), [], Noise()).tolist() == [3, 1]
    assert round_tree(np.array([2.9999999999, 1.0000000001]), [np.array([0, 2])], Noise()).tolist() == [3, 1]
    # Thirds add up to a whole number in each group, and every group must get exactly that.
    num = 30_000
    levels = [np.arange(0, num + 1, 3), np.arange(0, num + 1, 300), np.array([0, num])]
    numbers = round_tree(np.full(num, 1 / 3), levels, Noise())
    assert np.all(numbers.reshape(-1, 3).sum(axis=1) == 1)


def test_large_totals_and_many_cells():
    for num in (1, 1000, 10**5):
        values = np.random.default_rng(num).random(num) * (2.0**45 / num)
        starts = np.unique(np.concatenate([np.arange(0, num, 10), [num]]))
        numbers = round_tree(values, [starts, np.array([0, num])], Noise())
        assert np.all(np.abs(numbers - values) < 1.01)
        assert np.all(np.abs(np.add.reduceat(numbers - values, starts[:-1])) < 1.01)
        assert abs(math.fsum(numbers.tolist()) - math.fsum(values.tolist())) <= num * 2.0**-15 + 0.51
    rng = np.random.default_rng(3)
    values = np.where(rng.random(10**6) < 0.7, 0.0, rng.exponential(1, 10**6))
    levels = [np.arange(0, 10**6 + 1, 100), np.arange(0, 10**6 + 1, 10**4), np.array([0, 10**6])]
    numbers = round_tree(values, levels, Noise())
    assert np.all((numbers >= np.floor(values)) & (numbers <= np.ceil(values)))
    for starts in levels:
        totals, real = np.add.reduceat(numbers, starts[:-1]), np.add.reduceat(values, starts[:-1])
        assert np.all(np.abs(totals - real) < 1)


def least_change(values, total):
    """The least sum of squared changes of whole numbers that add up to a total, by trying all."""
    near = [range(math.floor(value) - 1, math.ceil(value) + 2) for value in values]
    return min(
        sum((number - value) ** 2 for number, value in zip(numbers, values, strict=True))
        for numbers in product(*near)
        if sum(numbers) == total
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=5))
def test_least_change_of_one_level(hundredths):
    values = [Fraction(number, 100) for number in hundredths]
    floats = np.array([float(value) for value in values])
    numbers = round_tree(floats, [np.array([0, len(values)])], Noise(seed=1)).tolist()
    total = sum(numbers)
    assert abs(total - sum(values)) <= Fraction(1, 2)
    change = sum((number - value) ** 2 for number, value in zip(numbers, values, strict=True))
    assert change == least_change(values, total)


def test_the_top_is_rounded_to_the_nearest_and_parents_are_served_by_remainder():
    values = np.array([0.2, 0.2, 0.3, 0.3, 0.3, 0.3])
    numbers = round_tree(values, [np.array([0, 3, 6])], Noise())
    assert numbers.reshape(2, 3).sum(axis=1).tolist() == [1, 1]
    assert round_tree(np.array([0.4, 0.6, 7.0, -0.4, -0.6]), [], Noise()).tolist() == [0, 1, 7, 0, -1]
    values = np.array([0.45, 0.45, 0.5, 0.3, 0.4])  # groups of 0.9 and 0.8 and 0.4 share a total of 2.1
    numbers = round_tree(values, [np.array([0, 2, 4, 5]), np.array([0, 5])], Noise())
    assert numbers[:2].sum() == 1
    assert numbers[2:].tolist() == [1, 0, 0]


def test_the_larger_value_comes_first_and_cells_above_a_tie_are_always_raised():
    for values, expected in (([0.5, 3.5, 1.5, 2.5], [0, 4, 1, 3]), ([0.2, 0.9, 0.2, 0.2, 0.5], [0, 1, 0, 0, 1])):
        for _ in range(20):
            assert round_tree(np.array(values), [np.array([0, len(values)])], Noise()).tolist() == expected
    tied = [round_tree(np.array([0.4, 0.8, 0.4, 0.4]), [np.array([0, 4])], Noise()) for _ in range(60)]
    assert all(numbers[1] == 1 and numbers.sum() == 2 for numbers in tied)
    assert np.all(sum(tied)[[0, 2, 3]] > 0)


def test_equals_are_drawn_evenly():
    # Two of six equal cells are raised: any pair as often as any other.
    noise, draws, pairs = Noise(), 3000, {}
    for _ in range(draws):
        raised = tuple(np.flatnonzero(round_tree(np.full(6, 1 / 3), [np.array([0, 6])], noise)).tolist())
        pairs[raised] = pairs.get(raised, 0) + 1
    assert len(pairs) == 15
    assert stats.chisquare(list(pairs.values())).pvalue > ALPHA


def test_equals_of_many_parents():
    # One call, 20,000 parents of four cells: the place of the one that is raised is uniform, and independent.
    num = 20_000
    levels = [np.arange(0, 4 * num + 1, 4), np.array([0, 4 * num])]
    places = round_tree(np.full(4 * num, 0.25), levels, Noise()).reshape(num, 4).argmax(axis=1)
    pairs = np.bincount(places[::2] * 4 + places[1::2], minlength=16)
    assert stats.chisquare(pairs).pvalue > ALPHA


def test_equal_parents_and_halves_at_the_top_are_drawn_evenly():
    noise, draws = Noise(), 3000
    levels = [np.arange(0, 9, 2), np.array([0, 8])]
    counts = sum(round_tree(np.full(8, 0.125), levels, noise) for _ in range(draws))
    assert counts.sum() == draws
    assert stats.chisquare(counts).pvalue > ALPHA
    ups = int(round_tree(np.full(40_000, 2.5), [], Noise()).sum()) - 80_000
    assert stats.binomtest(ups, 40_000).pvalue > ALPHA


def test_refusals_before_noise_is_drawn_and_nothing_to_round():
    noise, halves = Noise(), [0.5] * 4
    cases = [(values, []) for values in ([math.nan], [math.inf, 1.0])]
    cases += [(halves, [starts]) for starts in ([], [0], [0, 3], [1, 4], [0, 3, 2, 4], [0, 5, 4], [-1, 4])]
    cases += [(halves, levels) for levels in ([[0, 2, 4], [0, 1, 4]], [[0, 4], [0, 2, 4]])]
    for values, levels in cases:
        with pytest.raises(ParameterError):
            round_tree(np.array(values), [np.array(starts, dtype=np.int64) for starts in levels], noise)
    assert noise.bytes_drawn == 0
    large = np.array([2.0**46, 2.5, -(2.0**60)])  # sums would not fit: each by itself
    assert round_tree(large, [np.array([0, 3])], noise).tolist() == [2**46, 2, -(2**60)]
    for levels in ([], [np.array([0, 0])], [np.array([0]), np.array([0, 0])], [np.array([0])]):
        assert round_tree(np.empty(0), levels, Noise()).shape == (0,)
