# SPDX-License-Identifier: Apache-2.0
"""Noise listed from the top down has the law of noise drawn for every cell.

Laws are compared with tables of exact probabilities, by chi-square tests that fail only below p = 1e-9. Every group of
a call is a sample of its own, so that a table of a hundred outcomes is met by tens of thousands of draws.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.chance_help import chance_of

from dunnage.errors import ParameterError
from dunnage.kernels.counts.laplace import (
    UNLISTED,
    DiscreteLaplace,
    FloatingLaplace,
    FlooredLaplace,
    RoundedLaplace,
    addresses,
    draw_tail,
    exceeding_cells,
    lower,
)
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise

ALPHA = 1e-9
SAMPLES = 20_000
SCALE = Fraction(3, 2)
TOP = 5  # values from here on are one outcome


def pvalue(outcomes, table):
    """Compare outcomes with the probability of each; rare ones are put together."""
    counts, num = Counter(outcomes), len(outcomes)
    if set(counts) - set(table):
        return 0.0
    common = sorted(table, key=table.__getitem__)
    rest = 1 - sum(table.values())  # what the table does not tell apart
    return chance_of(
        [0, *(counts[outcome] for outcome in common)],
        [num * max(rest, 0), *(num * table[outcome] for outcome in common)],
    )


def probability(value, scale=SCALE):
    ratio = math.exp(-1 / scale)
    if value == TOP:
        return ratio**TOP / (1 + ratio)
    return (1 - ratio) / (1 + ratio) * ratio ** abs(value)


def above(threshold, scale=SCALE):
    ratio = math.exp(-1 / scale)
    return ratio**threshold / (1 + ratio) if threshold > 0 else 1 - ratio ** (1 - threshold) / (1 + ratio)


def listing_law(size, threshold, ceiling=None):
    """Probability of each set of values that a group may list, given that all are below the ceiling."""
    known = 1.0 if ceiling is None else 1 - above(ceiling)
    chances = {value: probability(value) / known for value in range(threshold, TOP + 1 if ceiling is None else ceiling)}
    table = {}
    for num in range(size + 1):
        for values in combinations_with_replacement(chances, num):
            ways = math.factorial(size) // math.factorial(size - num)
            for times in Counter(values).values():
                ways //= math.factorial(times)
            rest = (1 - sum(chances.values())) ** (size - num)
            table[values] = ways * math.prod(chances[value] for value in values) * rest
    assert math.isclose(sum(table.values()), 1)
    return table


def outcomes(groups, values, num):
    """The values listed by each group, as a set."""
    listed = [[] for _ in range(num)]
    for group, value in zip(groups.tolist(), np.minimum(values, TOP).tolist(), strict=True):
        listed[group].append(value)
    return [tuple(sorted(one)) for one in listed]


def of(tail):
    return outcomes(tail.groups, tail.values, tail.sizes.size)


def test_law_of_listing():
    for size, threshold in ((1, 1), (3, 1), (3, 2), (2, 0), (3, -1), (2, -3)):
        tail = draw_tail(Noise(), SCALE, np.full(SAMPLES, size), np.full(SAMPLES, threshold))
        assert pvalue(of(tail), listing_law(size, threshold)) > ALPHA
    # The table itself is right: noise for every cell, then the threshold.
    for size, threshold in ((3, 1), (3, -1)):
        values = noise_arrays.discrete_laplace(Noise(), SCALE, size * SAMPLES)
        groups, kept = np.arange(values.size) // size, values >= threshold
        assert pvalue(outcomes(groups[kept], values[kept], SAMPLES), listing_law(size, threshold)) > ALPHA
    sizes, thresholds = np.tile([2, 1], SAMPLES), np.tile([1, 0], SAMPLES)
    drawn = of(draw_tail(Noise(), SCALE, sizes, thresholds))
    first, second = listing_law(2, 1), listing_law(1, 0)
    table = {(a, b): first[a] * second[b] for a, b in product(first, second)}
    assert pvalue(list(zip(drawn[::2], drawn[1::2], strict=True)), table) > ALPHA
    tail = draw_tail(Noise(), SCALE, np.full(SAMPLES, 2), np.full(SAMPLES, 1))
    both = np.flatnonzero(tail.counts == 2)
    at = np.searchsorted(tail.groups, both)
    pairs = list(zip(tail.values[at].tolist(), tail.values[at + 1].tolist(), strict=True))
    ratio = math.exp(-1 / SCALE)
    table = {(a, b): (1 - ratio) ** 2 * ratio ** (a + b - 2) for a, b in product(range(1, 60), repeat=2)}
    assert pvalue(pairs, table) > ALPHA


def test_many_thresholds_at_once():
    # Groups are listed from a lower threshold than their own: whichever, the law is that of their own.
    for num in (100, 1000):
        thresholds = np.tile(np.arange(1, 41), num)
        tail = draw_tail(Noise(), 5, np.full(thresholds.size, 300), thresholds)
        counts = tail.counts.reshape(-1, 40)
        for column in (0, 1, 2, 7, 20, 39):
            law = stats.binom(300, above(column + 1, 5)).pmf
            assert pvalue(counts[:, column].tolist(), {k: float(law(k)) for k in range(301)}) > ALPHA
        ratio = math.exp(-1 / 5)
        for threshold in (2, 3, 12):
            excess = (tail.values - thresholds[tail.groups])[thresholds[tail.groups] == threshold]
            assert pvalue(excess.tolist(), {k: (1 - ratio) * ratio**k for k in range(300)}) > ALPHA


def test_nothing_everything_or_billions_of_cells(within):
    noise = Noise()
    tail = draw_tail(noise, 5, np.full(4, 10**9), np.full(4, UNLISTED))
    assert (tail.values.size, noise.bytes_drawn) == (0, 0)
    tail = draw_tail(Noise(), 5, np.array([10, 0, 3]), np.full(3, -(10**6)))
    assert (tail.counts.tolist(), tail.groups.tolist()) == ([10, 0, 3], [0] * 10 + [2] * 3)
    sizes, thresholds = np.full(5000, 200_000), np.full(5000, 32)
    with within(2):
        tail = draw_tail(Noise(), 5, sizes, thresholds)
    expected = 1e9 * above(32, 5)
    assert abs(tail.values.size - expected) < 7 * math.sqrt(expected)
    taken = np.arange(0, 10**9, 10**4)
    cells, values = exceeding_cells(Noise(), DiscreteLaplace(Fraction(5)), 5 * 10**9, 60, taken=taken)
    assert np.unique(cells).size == cells.size == values.size
    assert values.min() >= 60
    expected = (5 * 10**9 - 10**5) * above(60, 5)
    assert abs(cells.size - expected) < 7 * math.sqrt(expected)
    assert not np.isin(cells, taken).any()


STEPS = [(4, 2, 1), (3, 1), (2, 0), (4, 2, 0, -2), (1, -1), (0, -2), (-1, -2, -3)]


def test_lowering_has_the_law_of_one_step():
    noise = Noise()
    for steps in STEPS:
        tail = draw_tail(noise, SCALE, np.full(SAMPLES, 3), np.full(SAMPLES, steps[0]))
        for threshold in steps[1:]:
            tail = lower(noise, tail, np.full(SAMPLES, threshold))
        assert pvalue(of(tail), listing_law(3, steps[-1])) > ALPHA, steps
    # With the law above this is the joint law: the earlier listing is the upper part of the later one.
    noise, num = Noise(), 2000
    for high, low, *_ in STEPS:
        first = draw_tail(noise, SCALE, np.full(num, 3), np.full(num, high))
        second = lower(noise, first, np.full(num, low))
        old = second.values >= high
        assert np.array_equal(second.values[old], first.values)
        assert np.array_equal(second.groups[old], first.groups)
        assert np.all(np.diff(second.groups) >= 0)
        # earlier ones come first in their group
        same = second.groups[1:] == second.groups[:-1]
        assert not np.any(old[1:] & ~old[:-1] & same)
    # Which groups are lowered may depend on what they list: here those that list nothing.
    noise = Noise()
    for high, low in ((3, 1), (2, -1), (1, -1), (0, -2)):
        tail = draw_tail(noise, SCALE, np.full(2 * SAMPLES, 2), np.full(2 * SAMPLES, high))
        empty = tail.counts == 0
        after = lower(noise, tail, np.where(empty, low, high))
        listed = of(after)
        assert np.array_equal(after.counts[~empty], tail.counts[~empty])
        assert pvalue([listed[group] for group in np.flatnonzero(empty)], listing_law(2, low, high)) > ALPHA
    tail = draw_tail(Noise(), 5, np.full(9, 1000), np.arange(9) - 2)
    noise = Noise()
    again = lower(noise, tail, tail.thresholds)
    assert np.array_equal(again.values, tail.values)
    assert noise.bytes_drawn == 0


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 6), st.fractions(Fraction(1, 4), 30, max_denominator=9))
def test_listings_are_sound(data, num, scale):
    sizes = np.array(data.draw(st.lists(st.integers(0, 300), min_size=num, max_size=num)), dtype=np.int64)
    noise, present = Noise(seed=num), np.full(num, UNLISTED)
    tail = draw_tail(noise, scale, sizes, present)
    for _ in range(3):
        drops = data.draw(st.lists(st.integers(0, 20), min_size=num, max_size=num))
        present = np.minimum(present, 40) - np.array(drops, dtype=np.int64)
        tail = lower(noise, tail, present)
        assert tail.groups.shape == tail.values.shape
        assert np.all(np.diff(tail.groups) >= 0)
        assert np.all(tail.values >= present[tail.groups])
        assert np.all(tail.counts <= sizes)
        assert np.array_equal(tail.thresholds, present)


def test_refusals_draw_nothing_and_values_are_not_shown():
    tail = draw_tail(Noise(), 5, np.array([5, 31337]), np.array([3, 3]))
    assert "31337" not in repr(tail)
    noise, none = Noise(), np.empty(0, dtype=np.int64)
    wrong = [
        lambda thresholds=thresholds: lower(noise, tail, np.array(thresholds)) for thresholds in ([3, 4], [3], [3] * 3)
    ]
    wrong += [
        lambda: draw_tail(noise, 5, np.array([5, -5]), np.array([3, 3])),
        lambda: draw_tail(noise, 2.5, np.array([5, 5]), np.array([3, 3])),
        lambda: addresses(noise, np.array([0, 3, 9]), np.array([0, 0]), np.array([1, 2])),
        lambda: exceeding_cells(noise, DiscreteLaplace(Fraction(5)), 9, 0, taken=none),
        lambda: exceeding_cells(noise, FloatingLaplace(Fraction(5)), 9, 1, taken=none),
    ]
    for call in wrong:
        with pytest.raises(ParameterError):
            call()
    assert noise.bytes_drawn == 0


def test_law_of_addresses():
    for size, taken, wanted in ((6, [1], 2), (8, [], 3), (9, [0, 8], 2), (5, [1], 3), (4, [], 4)):
        # Sparse groups draw again what collides, crowded ones take from a random order; all ways are equally likely.
        num = 20_000
        starts = np.arange(num + 1) * size
        gone = (starts[:-1, None] + np.array(taken, dtype=np.int64)).ravel()
        groups = np.repeat(np.arange(num), wanted)
        order = noise_arrays.permutation(Noise(), groups.size)
        places = np.empty(groups.size, dtype=np.int64)
        places[order] = addresses(Noise(), starts, groups[order], gone)
        ranks = (places - starts[groups]).reshape(num, wanted)
        free = [rank for rank in range(size) if rank not in taken]
        ways = list(permutations(free, wanted))
        assert pvalue(list(map(tuple, ranks.tolist())), dict.fromkeys(ways, 1 / len(ways))) > ALPHA
    num = 40_000
    starts = np.arange(2 * num + 1) * 4 - np.arange(2 * num + 1) % 2  # sizes 3, 5, 3, 5, ...
    places = addresses(Noise(), starts, np.arange(2 * num), np.empty(0, dtype=np.int64))
    ranks = (places - starts[:-1]).reshape(num, 2)
    table = dict.fromkeys(product(range(3), range(5)), 1 / 15)
    assert pvalue(list(map(tuple, ranks.tolist())), table) > ALPHA


@settings(max_examples=100, deadline=None)
@given(st.data(), st.lists(st.integers(0, 12), max_size=8))
def test_places_are_free_and_distinct(data, sizes):
    starts = np.concatenate([[0], np.cumsum(np.array(sizes, dtype=np.int64))])
    taken, groups = [], []
    for group, size in enumerate(sizes):
        used = data.draw(st.integers(0, size))
        taken += sorted(data.draw(st.permutations(range(size)))[:used] + np.array(starts[group]))
        groups += [group] * data.draw(st.integers(0, size - used))
    groups = np.array(data.draw(st.permutations(groups)), dtype=np.int64)
    taken = np.array(taken, dtype=np.int64)
    places = addresses(Noise(seed=1), starts, groups, taken)
    assert np.array_equal(np.searchsorted(starts, places, side="right") - 1, groups)
    assert np.unique(places).size == places.size
    assert not np.isin(places, taken).any()


@pytest.mark.parametrize("law", [DiscreteLaplace, RoundedLaplace, FlooredLaplace])
@pytest.mark.parametrize("threshold", [1, 3])
def test_law_exceeding_cells(law, threshold):
    noise, law, taken, listed, values = Noise(), law(SCALE), np.array([1, 4]), [], []
    for _ in range(1500):
        cells, drawn = exceeding_cells(noise, law, 6, threshold, taken=taken)
        listed.append(tuple(sorted(cells.tolist())))
        values += drawn.tolist()
    chance, free = law.above(threshold), (0, 2, 3, 5)
    table = {}
    for chosen in product([False, True], repeat=4):
        cells = tuple(cell for cell, one in zip(free, chosen, strict=True) if one)
        table[cells] = chance ** len(cells) * (1 - chance) ** (4 - len(cells))
    assert pvalue(listed, table) > ALPHA
    ratio = math.exp(-1 / SCALE)
    assert pvalue(values, {threshold + k: (1 - ratio) * ratio**k for k in range(100)}) > ALPHA


@pytest.mark.parametrize("law", [DiscreteLaplace, RoundedLaplace, FlooredLaplace])
@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_same_law_as_the_dense_path(law, threshold):
    noise, law, size = Noise(), law(SCALE), 400_000
    dense = law.draw(noise, size)
    _, sparse = exceeding_cells(noise, law, size, threshold, taken=np.empty(0, dtype=np.int64))
    rows = [
        np.bincount(np.minimum(values - threshold + 1, 6), minlength=7)
        for values in (dense[dense >= threshold], sparse)
    ]
    for row in rows:
        row[0] = size - row.sum()
    assert stats.chi2_contingency(rows).pvalue > ALPHA


def test_the_tests_above_can_fail():
    # Lowering that draws cells again as if nothing was known of them.
    noise, num = Noise(), SAMPLES
    first = draw_tail(noise, SCALE, np.full(num, 3), np.full(num, 3))
    rest = draw_tail(noise, SCALE, 3 - first.counts, np.full(num, 1))
    groups = np.concatenate([first.groups, rest.groups])
    values = np.concatenate([first.values, rest.values])
    assert pvalue(outcomes(groups, values, num), listing_law(3, 1)) < ALPHA
    tail = draw_tail(Noise(), Fraction(5), np.full(SAMPLES, 3), np.full(SAMPLES, 2))
    counts = {k: float(stats.binom(3, above(3, 5)).pmf(k)) for k in range(4)}
    assert pvalue(tail.counts.tolist(), counts) < ALPHA
    # The right sets of places, but handed out in order.
    num, starts = 40_000, np.arange(40_001) * 6
    groups = np.repeat(np.arange(num), 2)
    places = np.sort(addresses(Noise(), starts, groups, np.empty(0, dtype=np.int64))) - starts[groups]
    ways = list(permutations(range(6), 2))
    assert pvalue(list(map(tuple, places.reshape(-1, 2).tolist())), dict.fromkeys(ways, 1 / len(ways))) < ALPHA
