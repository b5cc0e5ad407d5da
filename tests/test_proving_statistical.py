# SPDX-License-Identifier: Apache-2.0
"""Lower bounds from draws: below the truth in every run, most of it with enough draws; draws against exact laws."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dunnage.errors import ParameterError
from dunnage.proving.statistical import UNLIKELY, Event, agrees, lower_bound, lower_limit, upper_limit

RANDOM = np.random.default_rng(10)
START = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def same_draws():
    """Every test draws the same, whichever ran before."""
    RANDOM.bit_generator.state = START


def randomised(index, size, *, epsilon, inputs=5):
    """Draw randomised response."""
    kept = math.exp(epsilon) / (math.exp(epsilon) + inputs - 1)
    others = (index + RANDOM.integers(1, inputs, size)) % inputs
    return np.where(RANDOM.random(size) < kept, index, others)


def laplace(value, size, scale=1.0):
    return value + RANDOM.geometric(1 - math.exp(-1 / scale), size) - RANDOM.geometric(1 - math.exp(-1 / scale), size)


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 3.0])
def test_a_bound_is_below_the_truth_in_every_run(epsilon):
    """By chance one of these runs would be above it once in ten thousand times."""
    bounds = [
        lower_bound(randomised(0, 1500, epsilon=epsilon), randomised(3, 1500, epsilon=epsilon)).epsilon
        for _ in range(100)
    ]
    assert max(bounds) <= epsilon


def test_a_bound_is_wrong_as_seldom_as_it_says():
    """Of 300 bounds at 80 %, at most 20 % may be wrong; fewer are, as the limits are careful."""
    wrong = sum(
        lower_bound(randomised(0, 400, epsilon=1), randomised(1, 400, epsilon=1), confidence=0.8).epsilon > 1
        for _ in range(300)
    )
    assert stats.binomtest(wrong, 300, 0.2, alternative="greater").pvalue > UNLIKELY


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_most_of_the_truth_is_found(epsilon):
    found = lower_bound(randomised(0, 60_000, epsilon=epsilon), randomised(3, 60_000, epsilon=epsilon))
    assert 0.7 * epsilon < found.epsilon <= epsilon
    assert found.event.holds(0) != found.event.holds(3)
    assert found.num_drawn == 60_000


def test_numbers_are_told_apart_by_half_lines_too():
    """With a large scale no single number comes up often; a half-line shows the whole loss of 1."""
    found = lower_bound(laplace(0, 40_000, 100.0), laplace(100, 40_000, 100.0))
    assert 0.85 < found.epsilon <= 1
    assert found.event.least is not None or found.event.most is not None
    assert "outputs of at" in str(found.event)


def test_equal_laws_show_nothing():
    for _ in range(20):
        assert lower_bound(randomised(2, 500, epsilon=1), randomised(2, 500, epsilon=1)).epsilon < 0.5
    assert lower_bound([1] * 100, [1] * 100).epsilon == 0


def test_what_cannot_happen_elsewhere_is_found():
    """An output of probability 1/2 that the other input never has: the bound grows with the draws, without end."""
    few, many = (
        lower_bound(RANDOM.integers(0, 2, size), np.zeros(size, dtype=int)).epsilon for size in (1000, 100_000)
    )
    assert few > 2.5
    assert many > few + 4


def test_delta_is_granted():
    """A mechanism that shows everything with probability 0.1 has no epsilon, and 0 at delta 0.1."""

    def leaking(index, size):
        return [(index if shown else -1) for shown in RANDOM.random(size) < 0.1]

    draws = leaking(0, 20_000), leaking(1, 20_000)
    assert lower_bound(*draws).epsilon > 3
    assert lower_bound(*draws, delta=0.1).epsilon == 0


def test_outputs_of_any_kind():
    rows = np.column_stack([randomised(0, 3000, epsilon=2), np.zeros(3000, dtype=int)])
    texts = [bytes(row) for row in rows.tolist()]
    others = np.column_stack([randomised(1, 3000, epsilon=2), np.zeros(3000, dtype=int)])
    assert lower_bound(rows, others).epsilon > 1
    assert lower_bound(texts, [bytes(row) for row in others.tolist()]).epsilon > 1
    assert str(Event(members=frozenset({b"x"}))) == "1 output"


@pytest.mark.parametrize(
    "wrong", [{"confidence": 1}, {"confidence": 0}, {"delta": 1}, {"delta": -0.1}, {"one": [1, 2, 3]}, {"other": []}]
)
def test_bad_parameters_are_refused(wrong):
    given_ = {"one": [1, 2, 3, 4], "other": [1, 2, 3, 4], **wrong}
    with pytest.raises(ParameterError):
        lower_bound(given_.pop("one"), given_.pop("other"), **given_)


@given(st.integers(1, 60), st.data())
def test_limits_are_those_of_the_binomial_law(num, data):
    successes = data.draw(st.integers(0, num))
    interval = stats.binomtest(successes, num).proportion_ci(0.98, "exact")
    assert lower_limit(successes, num, 0.01) == pytest.approx(interval.low, abs=1e-9)
    assert upper_limit(successes, num, 0.01) == pytest.approx(interval.high, abs=1e-9)


LAWS = [
    {0: 0.5, 1: 0.5},
    dict.fromkeys(range(40), 1 / 40),
    {at: 0.7 * 0.3**at for at in range(30)},
    {at: 0.7 * 0.3**at for at in range(3)},  # the rest is not named
]


@pytest.mark.parametrize(("law", "num"), list(product(LAWS, [10, 1000])))
def test_draws_of_a_law_agree_with_it(law, num):
    """P values are not smaller than they may be: of 200, few below 0.05, none below 1e-6."""
    outcomes, masses = [*law, "rest"], [*law.values(), max(0.0, 1 - sum(law.values()))]
    draws = RANDOM.multinomial(num, np.array(masses) / sum(masses), 200)
    found = [agrees(dict(zip(outcomes, row.tolist(), strict=True)), law) for row in draws]
    assert stats.binomtest(sum(p < 0.05 for p in found), 200, 0.05, alternative="greater").pvalue > UNLIKELY
    assert min(found) > UNLIKELY


@pytest.mark.parametrize("num", [2_000, 20_000])
def test_draws_of_another_law_do_not(num):
    tilted = {at: 1 / 40 + (-1) ** at * 12 / num for at in range(40)}
    counts = Counter(RANDOM.choice(40, num, p=np.array(list(tilted.values())) / sum(tilted.values())).tolist())
    away = {0: num // 2 + round(7 * math.sqrt(num) / 2), 1: num // 2 - round(7 * math.sqrt(num) / 2)}
    assert agrees(away, LAWS[0]) < UNLIKELY
    assert agrees({**counts, 0: counts[0] + num // 8}, LAWS[1]) < UNLIKELY
    assert agrees({0: 5, "other": 1}, LAWS[0]) == 0  # which the law does not have at all
    assert agrees({0: 5, "other": 1}, LAWS[3]) > UNLIKELY


def test_rare_outcomes_are_seen_together():
    """Each of a thousand rare outcomes comes up once or not at all, but all of them together far too often."""
    law = {"common": 0.999, **dict.fromkeys(range(1000), 1e-06)}
    assert agrees({"common": 9_990, **dict.fromkeys(range(10), 1)}, law) > 0.01
    assert agrees({"common": 9_900, **dict.fromkeys(range(100), 1)}, law) < UNLIKELY


def test_nothing_drawn_says_nothing():
    assert agrees({}, LAWS[0]) == 1
    assert agrees({"only": 7}, {"only": 1.0}) == 1
