# SPDX-License-Identifier: Apache-2.0
"""Probabilities that patterns fit, compared with all choices listed one by one in fractions."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dunnage.kernels.bins import chances as module
from dunnage.kernels.bins.chances import ROUNDING, Between, Chances, Members, SumLaw, draw_sums, fit_chance
from dunnage.kernels.deadline import NEVER, Deadline

Member = tuple[int, ...]


def all_sums(members: Sequence[Member], number: int) -> dict[Member, Fraction]:
    """Slow and independent: the sum of every choice of so many members."""
    choices = list(itertools.combinations(members, number))
    sums = Counter(tuple(sum(column) for column in zip(*c, strict=True)) or (0,) * len(members[0]) for c in choices)
    return {total: Fraction(times, len(choices)) for total, times in sums.items()}


def true_chance(classes: Sequence[Sequence[Member]], pattern: Sequence[int], capacity: Sequence[int]) -> Fraction:
    """Slow and independent: the share of all choices that fit."""
    every = [all_sums(members, number).items() for members, number in zip(classes, pattern, strict=True)]
    fits = Fraction(0)
    for parts in itertools.product(*every):
        total = [sum(value[r] for value, _ in parts) for r in range(len(capacity))]
        if all(have <= room for have, room in zip(total, capacity, strict=True)):
            fits += math.prod((chance for _, chance in parts), start=Fraction(1))
    return fits


@st.composite
def members(draw: st.DrawFn, resources: int) -> list[Member]:
    """A class with ties and zeros, of one to six members."""
    values = st.sampled_from(
        draw(st.sampled_from([[0, 1, 2], [3, 4, 5, 11], list(range(30)), [7], [10**9, 10**9 + 1]]))
    )
    return draw(st.lists(st.tuples(*[values] * resources), min_size=1, max_size=6))


@st.composite
def patterns(draw: st.DrawFn) -> tuple[list[list[Member]], list[int], list[int]]:
    """Classes, how many items of each, and a capacity that may cut anywhere."""
    resources = draw(st.integers(1, 3))
    classes = draw(st.lists(members(resources), min_size=1, max_size=3))
    pattern = [draw(st.integers(0, len(own))) for own in classes]
    worst = [sum(sum(member[r] for member in own) for own in classes) for r in range(resources)]
    capacity = [draw(st.integers(0, total + 1)) for total in worst]
    return classes, pattern, capacity


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 3).flatmap(members))
def test_every_sum_and_its_chance(own: list[Member]) -> None:
    found = draw_sums(np.array(own), len(own))
    assert found is not None
    for number, sums in enumerate(found):
        truth = all_sums(own, number)
        assert {tuple(value) for value in sums.values.tolist()} == set(truth)
        assert len(sums.values) == len(truth)
        for value, chance in zip(sums.values.tolist(), sums.chances.tolist(), strict=True):
            assert chance == pytest.approx(float(truth[tuple(value)]), rel=1e-15)


@pytest.mark.parametrize("resources", [1, 2])
def test_large_classes_do_not_overflow(resources: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are 10**420 ways to choose 200 of 10000, more than a double holds: shares instead of counts."""
    sums = draw_sums(np.repeat([[1] * resources, [2] * resources], 5000, axis=0), 200)[200]
    law = stats.hypergeom(10_000, 5000, 200).pmf(sums.values[:, 0] - 200)
    assert np.abs(sums.chances - law).max() < 1e-14
    assert math.fsum(sums.chances.tolist()) == pytest.approx(1, abs=1e-12)
    monkeypatch.setattr(module, "MAX_SUMS", 50)
    assert draw_sums(np.column_stack([2 ** np.arange(12), 3 ** np.arange(12)]), 6) is None


@settings(max_examples=300, deadline=None)
@given(patterns())
def test_chances_are_those_of_all_choices(case: tuple[list[list[Member]], list[int], list[int]]) -> None:
    classes, pattern, capacity = case
    truth = true_chance(classes, pattern, capacity)
    chances = Chances([Members(np.array(own)) for own in classes], np.array(capacity))
    low, high = chances.fits(pattern)
    assert chances.exactly(pattern) == truth
    assert low - ROUNDING <= truth <= high + ROUNDING
    assert (high, low) == (pytest.approx(float(truth), abs=1e-14), pytest.approx(float(truth), abs=1e-14))
    assert chances.surely(pattern) <= (truth == 1)
    assert (low == 1) == chances.surely(pattern)
    if len(capacity) == 1:
        assert chances.surely(pattern) == (truth == 1)
    else:  # each resource by itself is known exactly
        own = [[(member[r],) for member in own] for r in range(len(capacity)) for own in classes]
        sure = all(
            true_chance(own[r * len(classes) : (r + 1) * len(classes)], pattern, [room]) == 1
            for r, room in enumerate(capacity)
        )
        assert chances.surely(pattern) == sure


@settings(max_examples=150, deadline=None)
@given(patterns(), st.booleans())
def test_less_exact_ways_still_bracket(case: tuple[list[list[Member]], list[int], list[int]], on_a_grid: bool) -> None:
    """Where the resources cannot be combined, or sums are too many and rounded both ways, bounds are wider and hold."""
    classes, pattern, capacity = case
    truth = true_chance(classes, pattern, capacity)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "GRID" if on_a_grid else "MAX_COMBINATIONS", 5 if on_a_grid else 0)
        known = [(Unsure if on_a_grid else Members)(np.array(own)) for own in classes]
        low, high = Chances(known, np.array(capacity)).fits(pattern)
    assert low - ROUNDING <= truth <= high + ROUNDING


def test_rounded_sums_enclose_the_true_ones() -> None:
    members = Members(np.array([[5], [8], [3]]))
    for number, (least, largest) in enumerate(((0, 0), (3, 8), (8, 13), (16, 16))):
        up, down = (members.draws(3, 0, 3, upward)[number].values for upward in (True, False))
        assert 3 * up.max() >= largest
        assert 3 * up.min() >= least
        assert 3 * down.max() <= largest
        assert 3 * down.min() <= least


def test_certainty_is_no_rounded_chance_and_counting_stops_in_time() -> None:
    assert fit_chance([], np.array([0])) == 1.0
    assert Chances([Members(np.array([[5]]))], np.array([0])).fits((0,)) == (1.0, 1.0)
    # Thirty of sixty do not fit in one choice of 10**17.
    chances = Chances([Members(np.repeat([[1], [2]], 30, axis=0))], np.array([59]))
    assert not chances.surely((30,))
    assert chances.fits((30,))[0] < 1
    exact = chances.exactly((30,))
    assert exact == 1 - Fraction(1, math.comb(60, 30))
    chances = Chances([Members(np.arange(3000).reshape(-1, 1))], np.array([2_000_000]))
    assert chances.exactly((1500,)) is None


def test_convolutions_agree_with_listing() -> None:
    """Long lists of sums are combined by (fast) convolution; the errors stay far below the allowance."""
    generator = np.random.default_rng(1)
    parts = []
    for _ in range(3):
        values = np.unique(generator.integers(0, 60_000, 300)).reshape(-1, 1)
        parts.append(SumLaw(values, np.full(len(values), 1 / len(values))))
    pair = (parts[0].values + parts[1].values.T).ravel()
    for capacity in (1000, 40_000, 90_000, 120_000, 179_000):
        last = np.sort(parts[2].values[:, 0])
        true = np.searchsorted(last, capacity - pair, side="right").sum() / (len(pair) * len(last))
        found = fit_chance(parts, np.array([capacity]))
        assert found == pytest.approx(float(true), abs=ROUNDING / 10)


class Unsure(Members):
    """Members whose exact sums are not to be had, only rounded ones."""

    def draws(
        self, most: int, resource: int | None, step: int, upward: bool, deadline: Deadline = NEVER
    ) -> list[SumLaw] | None:
        return None if step == 1 and self.values.max() > 6 else super().draws(most, resource, step, upward, deadline)


def uniform_chance(widths: Sequence[int], room: Fraction | int) -> Fraction:
    """Probability that independent uniform values from 0 to each width add up to at most the room, exactly."""
    if not widths:
        return Fraction(int(room >= 0))
    total = Fraction(0)
    for number in range(len(widths) + 1):
        for chosen in itertools.combinations(widths, number):
            total += (-1) ** number * Fraction(max(room - sum(chosen), 0)) ** len(widths)
    return total / (math.factorial(len(widths)) * math.prod(widths))


def between_chance(classes: Sequence[tuple[int, int, int]], pattern: Sequence[int], capacity: int) -> Fraction:
    """Exact probability for classes (lower, upper, count) with one item at each end and the rest uniform."""
    mixes: list[list[tuple[Fraction, int, list[int]]]] = []
    for (lower, upper, count), number in zip(classes, pattern, strict=True):
        mix = []
        for low, high in itertools.product((0, 1), repeat=2):
            rest = number - low - high
            if 0 <= rest <= count - 2:
                share = Fraction(math.comb(count - 2, rest), math.comb(count, number))
                mix.append((share, low * lower + high * upper + rest * lower, [upper - lower] * rest))
        mixes.append(mix)
    found = Fraction(0)
    for parts in itertools.product(*mixes):
        share = math.prod((part[0] for part in parts), start=Fraction(1))
        widths = [width for part in parts for width in part[2]]
        found += share * uniform_chance(widths, capacity - sum(part[1] for part in parts))
    return found


def between(classes: Sequence[tuple[int, int, int]]) -> list[Between]:
    return [Between(np.array([lower]), np.array([upper]), count) for lower, upper, count in classes]


def test_three_classes_by_hand() -> None:
    # One item of each of three classes from 100 to 200, room for 560.
    for count, percent in ((2, 13), (3, 9), (5, 6)):
        classes = [(100, 200, count)] * 3
        truth = 1 - between_chance(classes, (1, 1, 1), 560)
        low, high = Chances(between(classes), np.array([560])).fits((1, 1, 1))
        assert math.floor(100 * truth + Fraction(1, 2)) == percent
        assert low - ROUNDING <= 1 - truth <= high + ROUNDING
        assert high - low < 0.01
    assert float(1 - uniform_chance([100] * 3, 260)) == pytest.approx(0.011, abs=5e-4)


def test_brackets_the_exact_law() -> None:
    draw = random.Random(5)
    for _ in range(120):
        classes = []
        for _ in range(draw.randint(1, 3)):
            lower = draw.randint(0, 40)
            classes.append((lower, lower + draw.randint(1, 60), draw.randint(2, 6)))
        pattern = [draw.randint(0, min(count, 3)) for _, _, count in classes]
        most = sum(number * upper for (_, upper, _), number in zip(classes, pattern, strict=True))
        capacity = draw.randint(0, most + 1)
        truth = between_chance(classes, pattern, capacity)
        chances = Chances(between(classes), np.array([capacity]))
        low, high = chances.fits(pattern)
        assert low - ROUNDING <= truth <= high + ROUNDING
        assert chances.exactly(pattern) is None or not any(pattern)
        assert chances.surely(pattern) == (truth == 1)


def test_bounds_close_in_on_the_exact_law() -> None:
    classes = [(100_000, 200_000, 4), (150_000, 300_000, 3)]
    truth = between_chance(classes, (2, 1), 540_000)
    low, high = Chances(between(classes), np.array([540_000])).fits((2, 1))
    assert low - ROUNDING <= truth <= high + ROUNDING
    assert high - low < 0.005
    # A million draws of the law itself; a difference of seven standard errors fails.
    generator = np.random.default_rng(2)
    count, number, draws = 5, 3, 10**6
    places = np.argsort(generator.random((draws, count)), axis=1)
    sizes = generator.uniform(1000, 2000, (draws, count))
    sizes[:, 0], sizes[:, 1] = 1000, 2000
    total = np.take_along_axis(sizes, places[:, :number], axis=1).sum(axis=1)
    seen = float((total <= 4700).mean())
    low, high = Chances(between([(1000, 2000, count)]), np.array([4700])).fits((number,))
    error = 7 * math.sqrt(0.25 / draws)
    assert low - error <= seen <= high + error
    assert high - low < 0.01


def test_one_or_two_items_between_bounds() -> None:
    chances = Chances(between([(3, 9, 2)]), np.array([11]))
    assert (chances.fits((1,)), chances.fits((2,))[1]) == ((1.0, 1.0), 0.0)
    assert Chances(between([(3, 9, 2)]), np.array([12])).fits((2,)) == (1.0, 1.0)
    half = Chances(between([(3, 9, 2)]), np.array([8])).fits((1,))
    assert half == (0.5, 0.5)
    alone = between([(3, 9, 1)])
    assert Chances(alone, np.array([9])).fits((1,)) == (1.0, 1.0)
    assert Chances(alone, np.array([8])).fits((1,)) == (0.0, 0.0)
    for lower, upper, count in ((3, 9, 1), (3, 9, 2), (3, 9, 5), (4, 4, 3)):
        known = Between(np.array([lower]), np.array([upper]), count)
        inner = [lower, *[lower] * (count - 2), upper] if count > 1 else [upper]
        outer = [lower, *[upper] * (count - 2), upper] if count > 1 else [upper]
        for number in range(count + 1):
            assert known.largest(count)[number, 0] == sum(sorted(outer, reverse=True)[:number])
            assert known.smallest(count)[number, 0] == sum(sorted(inner)[:number])


def test_several_resources_use_no_joint_law() -> None:
    classes = [Between(np.array([10, 20]), np.array([30, 50]), 4), Members(np.array([[5, 1], [1, 9]]))]
    for capacity in itertools.product((15, 31, 36, 40, 60), (22, 30, 52, 55, 60)):
        low, high = Chances(classes, np.array(capacity)).fits((1, 1))
        single = [
            sum(between_chance([(lower, upper, 4)], [1], room - extra) for extra in extras) / 2
            for lower, upper, room, extras in ((10, 30, capacity[0], (5, 1)), (20, 50, capacity[1], (1, 9)))
        ]
        assert low - ROUNDING <= max(Fraction(0), 1 - sum(1 - chance for chance in single))
        assert high + ROUNDING >= min(single)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3).flatmap(members))
def test_ends_and_moments_of_members(own: list[Member]) -> None:
    known = Members(np.array(own))
    largest, smallest = known.largest(len(own)), known.smallest(len(own))
    mean, variance = known.moments()
    for r in range(len(own[0])):
        column = sorted(member[r] for member in own)
        assert largest[:, r].tolist() == [sum(column[len(column) - n :]) for n in range(len(column) + 1)]
        assert smallest[:, r].tolist() == [sum(column[:n]) for n in range(len(column) + 1)]
        assert mean[r] == pytest.approx(sum(column) / len(column))
        spread = np.var(column, ddof=1) if len(column) > 1 else 0.0
        assert variance[r] == pytest.approx(spread, rel=1e-6, abs=1e-6 * max(column, default=0) + 1e-12)
