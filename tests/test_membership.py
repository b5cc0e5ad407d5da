# SPDX-License-Identifier: Apache-2.0
"""Membership: every figure against the whole space of outcomes, enumerated."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.auditing import counts as membership
from dunnage.auditing.counts import (
    Answer,
    Evidence,
    Membership,
    WholeLaw,
    impossible_share,
    noisy_answer,
    posterior,
    reachable,
    released_ratios,
    trips_apart,
    trips_together,
)
from dunnage.errors import ParameterError
from dunnage.kernels.counts.laplace import DiscreteLaplace, FlooredLaplace, RoundedLaplace, floating_noise
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise

SCALES = [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(20)]
DRAWN = {"discrete": DiscreteLaplace, "round": RoundedLaplace, "floor": FlooredLaplace}
LAWS = tuple(DRAWN)  # Gaussian noise has its own way, and tests with its mechanism


def laplace_masses(name: str, scale: Fraction, values: np.ndarray) -> np.ndarray:
    """Probabilities from the definitions: of discrete noise, or of a Laplace number rounded."""
    if name == "discrete":
        weights = np.exp(-np.abs(values) / float(scale))
        return weights * math.tanh(1 / (2 * float(scale)))
    low = values - (0.5 if name == "round" else 0.0)

    def cumulative(x: np.ndarray) -> np.ndarray:
        half = np.exp(-np.abs(x) / float(scale)) / 2
        return np.where(x < 0, half, 1 - half)

    return cumulative(low + 1.0) - cumulative(low)


@pytest.mark.parametrize("name", LAWS)
def test_laws_are_those_of_the_definition_and_of_the_mechanisms(name):
    for scale in SCALES:
        law, near, values = WholeLaw(name, scale), np.arange(-30, 31), np.arange(-900, 901)
        assert np.exp(law.log_mass(near)) == pytest.approx(laplace_masses(name, scale, near), abs=1e-14)
        masses = np.exp(law.log_mass(values))
        assert masses.sum() == pytest.approx(1, abs=1e-12)
        assert np.exp(law.log_below(values)) == pytest.approx(np.cumsum(masses), abs=1e-12)
        assert np.exp(law.log_above(values)) == pytest.approx(np.cumsum(masses[::-1])[::-1], abs=1e-12)
        for threshold in (1, 2, 9):
            assert math.exp(law.log_above(threshold)) == pytest.approx(DRAWN[name](scale).above(threshold), rel=1e-12)
    drawn = DRAWN[name](Fraction(2)).draw(Noise(seed=3), 100_000)
    for value in range(-4, 5):
        expected = math.exp(WholeLaw(name, Fraction(2)).log_mass(value))
        error = math.sqrt(expected * (1 - expected) / 100_000)
        assert (drawn == value).mean() == pytest.approx(expected, abs=6.5 * error)


def test_laws_far_out_lose_no_digits_and_equal_worlds_are_refused():
    law = WholeLaw("round", Fraction(1, 50))
    assert float(law.log_below(-100)) == pytest.approx(-50 * 99.5 - math.log(2))
    assert noisy_answer(law, 40).ratios[[0, -1]] == pytest.approx([-2000, 2000])
    with pytest.raises(ParameterError):
        noisy_answer(WholeLaw("floor", Fraction(2)), 0)


def brute_force(name, scale, shift, dropped=None, reach=800):
    """Total variation over all noisy values; those left out are one outcome."""
    values = np.arange(-reach, reach + 1)
    absent, present = laplace_masses(name, scale, values), laplace_masses(name, scale, values - shift)
    if dropped is not None:
        gone = values <= dropped
        absent = np.append(absent[~gone], absent[gone].sum())
        present = np.append(present[~gone], present[gone].sum())
    return float(np.maximum(present - absent, 0).sum())


@pytest.mark.parametrize("name", LAWS)
def test_one_answer_against_all_noisy_values(name):
    for scale, shift in itertools.product(SCALES, (1, 2, 7)):
        evidence = noisy_answer(WholeLaw(name, scale), shift)
        found = Membership.of([evidence])
        assert found.advantage == pytest.approx(brute_force(name, scale, shift), abs=1e-12)
        assert found.largest == pytest.approx(float(shift / scale))
        assert evidence.absent.sum() == pytest.approx(1)
        assert evidence.present.sum() == pytest.approx(1)
        assert evidence.present == pytest.approx(evidence.absent * np.exp(evidence.ratios), rel=1e-9)
        assert (np.diff(evidence.ratios) > -1e-12).all()
    # Counts that are left out say less.
    law = WholeLaw(name, Fraction(3))
    for shift, dropped in itertools.product((1, 4), (-3, -1, 0, 1, 5, 12)):
        advantage = Membership.of([noisy_answer(law, shift, dropped=dropped)]).advantage
        seen = Membership.of([noisy_answer(law, shift)]).advantage
        assert advantage == pytest.approx(brute_force(name, Fraction(3), shift, dropped), abs=1e-12)
        assert advantage <= seen + 1e-12
        if dropped < 0:  # all that is left out says the same anyway
            assert advantage == pytest.approx(seen, abs=1e-12)


def test_a_gaussian_answer_against_all_noisy_values():
    values = np.arange(-300, 301)
    for variance, shift in itertools.product(SCALES, (1, 2, 7)):
        absent, present = (np.exp(-((values - by) ** 2) / (2 * float(variance))) for by in (0, shift))
        apart = np.maximum(present / present.sum() - absent / absent.sum(), 0).sum()
        assert Membership.of([noisy_answer(WholeLaw("gaussian", variance), shift)]).advantage == pytest.approx(apart)


def test_a_discrete_answer_is_randomised_response_and_a_floored_one_says_nothing_in_the_middle():
    found = Membership.of([noisy_answer(WholeLaw("discrete", Fraction(1)))])
    assert found.success == pytest.approx(found.suspicion)
    assert found.success == pytest.approx(math.e / (1 + math.e))
    assert found.share_at_largest == pytest.approx(found.success)
    evidence = noisy_answer(WholeLaw("floor", Fraction(2)))
    assert evidence.ratios == pytest.approx([-0.5, 0, 0.5])
    assert evidence.present == pytest.approx(evidence.absent[::-1])


@given(st.lists(st.fractions(Fraction(1, 20), 2), min_size=1, max_size=7))
@settings(max_examples=60, deadline=None)
def test_signs_of_several_features_one_by_one(epsilons):
    advantage, at_largest = 0.0, 1.0
    for signs in itertools.product((1, -1), repeat=len(epsilons)):
        likely = [1 / (1 + math.exp(-sign * float(epsilon))) for sign, epsilon in zip(signs, epsilons, strict=True)]
        advantage += max(math.prod(likely) - math.prod(1 - one for one in likely), 0)
    for epsilon in epsilons:
        at_largest /= 1 + math.exp(-float(epsilon))
    found = Membership.of(noisy_answer(WholeLaw("discrete", 1 / epsilon)) for epsilon in epsilons)
    assert found.advantage == pytest.approx(advantage, abs=1e-12)
    assert found.largest == pytest.approx(float(sum(epsilons)))
    assert found.share_at_largest == pytest.approx(at_largest)
    assert found.advantage <= math.tanh(found.largest / 2) + 1e-12
    assert found.success <= found.suspicion + 1e-12


def test_the_whole_space_of_three_noisy_answers():
    scales, shifts, values = (Fraction(1), Fraction(4, 5), Fraction(6, 5)), (1, 3, 2), np.arange(-45, 46)
    for names in (("discrete",) * 3, ("round", "floor", "discrete")):
        each, worlds = list(zip(names, scales, shifts, strict=True)), []
        for by in (0, 1):
            parts = [laplace_masses(name, scale, values - by * shift) for name, scale, shift in each]
            worlds.append(np.einsum("i,j,k->ijk", *parts))
        found = Membership.of(noisy_answer(WholeLaw(name, scale), shift) for name, scale, shift in each)
        assert found.advantage == pytest.approx(float(np.maximum(worlds[1] - worlds[0], 0).sum()), abs=1e-9)


def test_many_features(monkeypatch):
    """Equal ones are counted by their number, different ones weighed in two halves, too many refused."""
    num, epsilon = 60, Fraction(1, 60)
    found = Membership.of(noisy_answer(WholeLaw("discrete", 1 / epsilon)) for _ in range(num))
    yes = 1 / (1 + math.exp(-float(epsilon)))
    right = sum(math.comb(num, k) * yes**k * (1 - yes) ** (num - k) for k in range(num // 2 + 1, num + 1))
    wrong = sum(math.comb(num, k) * (1 - yes) ** k * yes ** (num - k) for k in range(num // 2 + 1, num + 1))
    assert found.advantage == pytest.approx(right - wrong, abs=1e-12)
    epsilons = [Fraction(1, 10) + Fraction(prime, 100_003) for prime in range(1, 60, 2)]  # 30 of them: 2^30 outcomes
    found = Membership.of(noisy_answer(WholeLaw("discrete", 1 / epsilon)) for epsilon in epsilons)
    # Nearly equal to as many alike, whose signs can be counted.
    alike = Membership.of([noisy_answer(WholeLaw("discrete", Fraction(30) / sum(epsilons)))] * 30)
    assert found.advantage == pytest.approx(alike.advantage, rel=1e-3)
    monkeypatch.setattr(membership, "MAX_OUTCOMES", 100)
    with pytest.raises(ParameterError):
        Membership.of(noisy_answer(WholeLaw("discrete", 1 / epsilon)) for epsilon in epsilons)


def test_no_answer_tells_nothing():
    found = Membership.of([])
    assert (found.advantage, found.success, found.suspicion) == (0, 0.5, 0.5)
    evidence = noisy_answer(WholeLaw("round", Fraction(2)), 3)
    again = Evidence.nothing().joined(evidence)
    assert again.ratios == pytest.approx(evidence.ratios)
    assert again.present == pytest.approx(evidence.present)
    assert posterior(math.log(3), 0.25) == pytest.approx(0.5)
    assert posterior(0.0, 0.1) == pytest.approx(0.1)


def rider_by_force(answers, moved, reach=28):
    """Total variation where ``moved`` says by how much each sum of each feature moves."""
    values = np.arange(-reach, reach + 1)
    absent = present = np.ones(1)
    for answer, shifts in zip(answers, moved, strict=True):
        for shift in shifts:
            parts = [laplace_masses(answer.law.name, answer.law.scale, values - by) for by in (0, shift)]
            absent = np.multiply.outer(absent, parts[0]).reshape(-1)
            present = np.multiply.outer(present, parts[1]).reshape(-1)
    return float(np.maximum(present - absent, 0).sum())


def test_trips_of_a_rider_together_and_apart():
    cells, total = Answer(WholeLaw("discrete", Fraction(1)), 9), Answer(WholeLaw("discrete", Fraction(3, 2)), 1)
    together, apart = trips_together([cells, total], 3), trips_apart([cells, total], 3)
    assert together.advantage == pytest.approx(rider_by_force([cells, total], [[3], [3]]), abs=1e-7)
    assert apart.advantage == pytest.approx(rider_by_force([cells, total], [[1, 1, 1], [3]]), abs=1e-7)
    assert together.largest == pytest.approx(apart.largest)
    few = Answer(WholeLaw("round", Fraction(1)), 2)  # three trips in two sums: one moves by two
    assert trips_apart([few], 3).advantage == pytest.approx(rider_by_force([few], [[2, 1]]), abs=1e-9)


@given(st.sampled_from(LAWS), st.fractions(Fraction(1, 2), 30), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_more_trips_tell_more_and_never_beyond_their_loss(name, scale, trips):
    answers = [Answer(WholeLaw(name, scale), 1000), Answer(WholeLaw(name, scale), 1)]
    found = [trips_together(answers, num).advantage for num in (trips, trips + 1)]
    assert found[0] <= found[1] + 1e-12
    assert trips_apart(answers, trips).advantage <= math.tanh(float(trips / scale)) + 1e-9
    assert trips_apart(answers, 1).advantage == pytest.approx(trips_together(answers, 1).advantage)


def test_a_rider_of_many_trips_under_uneven_shares():
    weights = [2 ** (level / 3) for level in range(5)]
    shares = [Fraction(weight).limit_denominator(10**9) for weight in weights]
    answers = [Answer(WholeLaw("discrete", Fraction(60) * sum(shares) / share), 10**6) for share in shares]
    found = trips_together(answers, 60)
    assert found.largest == pytest.approx(1)
    # The same by a fine histogram of ratios in the world with the rider.
    step, values, summed = 1e-4, np.arange(-20_000, 20_001), np.ones(1)
    for answer in answers:
        scale = float(answer.law.scale)
        ratios = (np.abs(values) - np.abs(values - 60)) / scale
        masses = laplace_masses("discrete", answer.law.scale, values - 60)
        places = np.rint((ratios + 60 / scale) / step).astype(np.int64)
        summed = np.convolve(summed, np.bincount(places, weights=masses))
    ratios = np.arange(len(summed)) * step - 1
    assert found.advantage == pytest.approx(float(summed @ np.maximum(0, 1 - np.exp(-ratios))), abs=1e-3)
    assert found.advantage < math.tanh(0.5)


@pytest.mark.parametrize("name", LAWS)
def test_what_a_released_count_says(name):
    law, noisy = WholeLaw(name, Fraction(5, 2)), np.arange(-400, 401)
    for threshold, known in itertools.product((1, 4), (0, 1, 3, 20)):
        absent = laplace_masses(name, law.scale, noisy - known)
        present = laplace_masses(name, law.scale, noisy - known - 1)
        gone = noisy < threshold
        shown = (~gone) & (noisy < 45)
        seen = np.append(noisy[shown], 0)
        ratios = released_ratios(law, seen, np.full(len(seen), known), threshold)
        expected = np.log(present[shown] / absent[shown])
        assert ratios[:-1] == pytest.approx(expected, abs=1e-5)  # differences of tails lose digits
        assert ratios[-1] == pytest.approx(math.log(present[gone].sum() / absent[gone].sum()), abs=1e-9)
        assert np.abs(ratios).max() <= law.rate + 1e-9


def test_what_a_world_gives_is_finite_and_in_its_reach():
    ends = floating_noise(np.array([0, (1 << 51) - 1, 1 << 51, (1 << 52) - 1]), Fraction(5))
    assert np.isfinite(ends).all()
    assert ends == pytest.approx(-ends[::-1])
    words = noise_arrays.below(Noise(seed=4), 1 << 52, 20_000)
    for scale, count in itertools.product((Fraction(1, 3), Fraction(1), Fraction(20)), (0, 1, 7)):
        assert reachable(count + floating_noise(words, scale), count, scale).all()


def test_what_is_out_of_reach_is_never_given():
    for scale in (Fraction(1), Fraction(20)):
        seen = floating_noise(noise_arrays.below(Noise(seed=5), 1 << 52, 500), scale)
        out = seen[~reachable(seen, 1, scale)]
        assert len(out) > 50
        size = -np.expm1(-np.abs(out - 1) / float(scale)) / 2
        nearest = np.rint((0.5 + np.sign(out - 1) * size) * 2.0**52).astype(np.int64)
        for step in range(-2000, 2001):
            assert not (1 + floating_noise(np.clip(nearest + step, 0, (1 << 52) - 1), scale) == out).any()
    told, draws = impossible_share(Fraction(5), 20_000, Noise(seed=6))  # most values belong to one world
    assert draws == 20_000
    assert 0.8 < told / draws < 0.97
