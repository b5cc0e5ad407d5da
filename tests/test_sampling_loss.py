"""The delta of a secret sample against sums of exact fractions over many n, and the figures of the papers."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.errors import ParameterError
from dunnage.model.guarantees import exp_upper
from dunnage.noise.sampling import (
    MAX_BETA,
    MAX_K,
    MIN_BETA,
    exact_delta,
    published_choice_delta,
    sampling_beta,
    sampling_delta,
    sampling_epsilon,
    smallest_k,
)

HALF, SEVEN_TENTHS = Fraction(1, 2), Fraction(7, 10)
BETAS = st.fractions(min_value=Fraction(1, 50), max_value=Fraction(49, 50), max_denominator=50)


def exact_tail(num: int, least: int, beta: Fraction) -> Fraction:
    return sum((math.comb(num, j) * beta**j * (1 - beta) ** (num - j) for j in range(least, num + 1)), Fraction(0))


def theorem_delta(k: int, beta: Fraction, gamma: Fraction, *, as_published: bool = False, most: int = 25) -> Fraction:
    """Look at every n of the theorem, up to so many beyond the first."""
    first = math.ceil(k / gamma) if as_published else math.ceil(k / gamma - 1)
    return max(exact_tail(n, math.floor(gamma * n) + 1, beta) for n in range(first, first + most))


def test_figures_of_the_papers():
    for rest, as_published, expected in (
        ("1.2040", False, 6.790e-4),
        ("1.3", False, 2.526e-4),
        ("1.3", True, 2.270e-4),
    ):
        assert float(sampling_delta(40, "0.7", rest, as_published=as_published)) == pytest.approx(expected, rel=1e-4)
    assert [sampling_delta(k, "0.7") for k in range(2, 7)] == [SEVEN_TENTHS**k for k in range(2, 7)]
    assert MAX_BETA**2 <= sampling_delta(2, MAX_BETA) < 1
    # As the rate falls, gamma n = 2 beta n records are too many of a Poisson number, beta n of them expected.
    assert float(sampling_delta(2, MIN_BETA)) == pytest.approx(1 - 2 * math.exp(-1), rel=1e-6)
    assert sampling_beta(700) == MAX_BETA


@given(st.integers(2, 12), BETAS, st.booleans())
@settings(max_examples=15, deadline=None)
def test_bound_is_the_exact_maximum_rounded_up(k, beta, as_published):
    exact = theorem_delta(k, beta, 1 - (1 - beta) ** 2, as_published=as_published)
    assert exact <= sampling_delta(k, beta, as_published=as_published) <= exact * (1 + Fraction(1, 10**9))


@given(st.integers(2, 12), BETAS, st.fractions(min_value=0, max_value=3, max_denominator=100))
@settings(max_examples=15, deadline=None)
def test_bound_with_more_epsilon_than_the_sample_needs(k, beta, more):
    rest = sampling_epsilon(beta) + more
    exact = theorem_delta(k, beta, 1 - (1 - beta) / exp_upper(rest))
    assert exact <= sampling_delta(k, beta, rest) <= exact * (1 + Fraction(1, 10**9))


def divergence(k: int, beta: Fraction, most: int) -> Fraction:
    """Sum what each count of a class exceeds e^epsilon times its probability without the record, for every size."""
    masses = [Fraction(1)]  # of each count, without the record
    largest = Fraction(0)
    for _ in range(most):
        grown = [
            (1 - beta) * (masses[i] if i < len(masses) else 0) + beta * (masses[i - 1] if i else 0)
            for i in range(len(masses) + 1)
        ]
        gains = (grown[i] - (masses[i] / (1 - beta) if i < len(masses) else 0) for i in range(k, len(grown)))
        largest, masses = max(largest, sum((gain for gain in gains if gain > 0), Fraction(0))), grown
    return largest


@given(st.integers(2, 9), st.fractions(min_value=Fraction(1, 10), max_value=Fraction(19, 20), max_denominator=20))
@settings(max_examples=60, deadline=None)
def test_exact_delta_is_the_enumerated_divergence_rounded_up(k, beta):
    exact = divergence(k, beta, most=math.ceil(2 * k / (1 - (1 - beta) ** 2)) + 12)
    assert exact <= exact_delta(k, beta) <= exact * (1 + Fraction(1, 10**9))
    assert exact_delta(k + 1, beta) <= exact_delta(k, beta) <= sampling_delta(k, beta)


def test_exact_delta_at_the_edges_and_the_k_it_saves():
    for k, beta in ((2, MIN_BETA), (2, MAX_BETA), (3, Fraction(1, 1000)), (200, HALF), (MAX_K, HALF)):
        assert 0 < exact_delta(k, beta) <= sampling_delta(k, beta) < 1
    pairs = [
        (smallest_k(rate, "1e-4", by_theorem=True), smallest_k(rate, "1e-4"))
        for rate in map(sampling_beta, ("0.6", "1.2", "1.8"))
    ]
    assert pairs == [(41, 27), (53, 39), (77, 60)]


def test_no_later_n_is_worse():
    """The search stops by a bound on all later n; here many of them are looked at."""
    for beta in (Fraction(1, 20), HALF, Fraction(9, 10)):
        assert sampling_delta(5, beta) >= theorem_delta(5, beta, 1 - (1 - beta) ** 2, most=100)


@given(st.integers(2, 300), BETAS)
@settings(max_examples=40, deadline=None)
def test_delta_falls_with_k_and_with_epsilon(k, beta):
    rest = sampling_epsilon(beta)
    assert sampling_delta(k + 1, beta) <= sampling_delta(k, beta)
    assert sampling_delta(k, beta, rest + 1) <= sampling_delta(k, beta, rest) <= sampling_delta(k, beta)
    assert sampling_delta(k, beta, as_published=True) <= sampling_delta(k, beta)


def test_fast_up_to_large_k(within):
    for beta in ("0.001", "0.01", "0.1", "0.5", "0.9", "0.99"):
        with within(1):
            deltas = [sampling_delta(k, beta) for k in (9_999, 10_000)]
        assert deltas[1] <= deltas[0] < Fraction(1, 10**40)


@given(BETAS)
@settings(max_examples=40, deadline=None)
def test_epsilon_is_rounded_up_and_beta_down(beta):
    rest = sampling_epsilon(beta)
    assert exp_upper(rest) >= 1 / (1 - beta)
    assert float(rest) == pytest.approx(-math.log(1 - beta), rel=1e-11)
    rate = sampling_beta(rest)
    assert exp_upper(-rest) <= 1 - rate
    assert abs(rate - beta) < Fraction(1, 10**10)


@given(BETAS, st.floats(1e-12, 0.95))
@settings(max_examples=40, deadline=None)
def test_smallest_k_is_the_smallest(beta, delta):
    for by_theorem, loss in ((True, sampling_delta), (False, exact_delta)):
        k = smallest_k(beta, delta, by_theorem=by_theorem)
        assert loss(k, beta) <= Fraction(repr(delta))
        assert k == 2 or loss(k - 1, beta) > Fraction(repr(delta))
    assert smallest_k("0.7", SEVEN_TENTHS**2) == smallest_k("0.7", "0.9") == 2
    assert smallest_k("0.7", sampling_delta(100, "0.7")) <= 100


@given(st.integers(2, 60), BETAS, st.fractions(min_value=Fraction(1, 100), max_value=20, max_denominator=100))
@settings(max_examples=40, deadline=None)
def test_a_choice_on_the_released_sample_tilts_odds(k, beta, choice):
    plain, tilted = sampling_delta(k, beta), published_choice_delta(k, beta, choice)
    assert min(plain, beta) <= tilted <= beta + Fraction(1, 10**12)
    odds = [float(share / (1 - share)) for share in (plain / beta, tilted / beta) if share < 1]
    if len(odds) == 2 and odds[1] < 1e6:
        assert math.log(odds[1] / odds[0]) == pytest.approx(2 * float(choice), rel=1e-3)


def test_refusals():
    for call, given_, word in (
        *((sampling_delta, (k, HALF), "^k ") for k in (1, MAX_K + 1, True)),
        *((exact_delta, (k, HALF), "^k ") for k in (1, MAX_K + 1, True)),
        *((sampling_delta, (5, beta), "^beta") for beta in (0, 1, MIN_BETA / 2)),
        (sampling_delta, (5, "0.7", "1.2"), "1.20397"),
        (sampling_delta, (5, "0.7", 0), "700"),
        (sampling_beta, (-1,), None),
        (sampling_beta, ("1e-11",), None),
        *((smallest_k, (HALF, delta), "^delta ") for delta in (0, 1)),
        (smallest_k, (MAX_BETA, "1e-6"), "k"),
    ):
        with pytest.raises(ParameterError, match=word):
            call(*given_)
