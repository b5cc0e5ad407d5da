# SPDX-License-Identifier: Apache-2.0
"""Estimates of cells: exact where laws are known, near the best possible where they are learned, and never wild."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.kernels.counts import tables as bayes
from dunnage.kernels.counts.projection import Family
from dunnage.kernels.counts.tables import (
    CellEstimate,
    estimate_cells,
    fit_weights,
    laplace_variance,
    moments,
    posterior,
    project_dense,
    reconciling_ratios,
    round_tree,
)
from dunnage.noise.source import Noise


def laplace(rng, scale, shape):
    """Draw discrete Laplace noise: a difference of two geometric numbers."""
    chance = -math.expm1(-1 / scale)
    return rng.geometric(chance, shape) - rng.geometric(chance, shape)


def rmse(one, other):
    return float(np.sqrt(np.mean((one - other) ** 2)))


def enumerated(value, mean, scale, end=60_000):
    """Add up n**j times the law of a count times the weight of its noise, term by term."""
    counts = np.arange(end, dtype=np.float64)
    ratio = mean / (1 + mean)
    terms = (1 - ratio) * ratio**counts * np.exp(-np.abs(value - counts) / scale)
    return [float((terms * counts**power).sum()) for power in (0, 1, 2)]


@settings(deadline=None, max_examples=60)
@given(value=st.integers(0, 400), mean=st.floats(2**-8, 900) | st.just(0.0), scale=st.floats(bayes.SMALLEST_SCALE, 200))
def test_moments_are_the_sums_term_by_term(value, mean, scale):
    same = 1 / math.expm1(1 / scale)  # laws that fall as noise does are kept away from
    apart = mean if abs(mean / same - 1) >= 0.1 else 1.2 * same
    found = moments(np.array([float(value)]), np.array([apart]), scale)
    for closed, added in zip(found, enumerated(value, apart, scale), strict=True):
        assert float(closed[0]) == pytest.approx(added, rel=1e-6, abs=1e-200)


def test_closed_forms_and_means_of_noise():
    values = np.arange(-20_000, 20_001)
    for scale in (0.1, 0.5, 3.0, 80.0):
        chances = np.exp(-np.abs(values) / scale)
        assert laplace_variance(scale) == pytest.approx((chances * values**2).sum() / chances.sum(), rel=1e-9)
    rng = np.random.default_rng(4)
    counts = np.where(rng.random(100_000) < 0.1, rng.geometric(0.1, 100_000), 0)
    found = posterior(counts + laplace(rng, 2.0, counts.shape), 2.0, np.ones(counts.shape))
    assert found.means.sum() == pytest.approx(counts.sum(), rel=0.05)
    assert found.variances.mean() == pytest.approx(((found.means - counts) ** 2).mean(), rel=0.1)
    rng = np.random.default_rng(8)
    rates = np.exp(2 * rng.standard_normal(40_000)) / 4
    counts = rng.poisson(rates)
    values = counts + laplace(rng, 5.0, counts.shape)
    blind, seeing, misled = (
        rmse(posterior(values, 5.0, expected).means, counts)
        for expected in (np.ones(counts.shape), rates, rng.permutation(rates))
    )
    assert seeing < 0.75 * blind
    assert misled < 1.05 * blind


def enumerated_posterior(values, scale, expected):
    """Do the same as ``posterior`` with sums over counts, loops over cells and no tables."""
    bins, centres = bayes._binned(expected)
    means, first = bayes._laws(centres, float(bayes._grid(scale, int(max(values.max(), 0)))[0][-1]))
    means = bayes._apart(means, scale)
    cells = zip(values, bins, strict=True)
    sums = np.array([[enumerated(max(v, 0), mean, scale, end=3000) for mean in means[place]] for v, place in cells])
    weights = first
    for _ in range(bayes.ITERATIONS):
        grown = bayes.PSEUDO_CELLS * first
        for cell in sums[:, :, 0]:
            grown = grown + weights * cell / (weights @ cell)
        weights = grown / grown.sum()
    mixed = np.einsum("nkj,k->nj", sums, weights)
    mean = mixed[:, 1] / mixed[:, 0]
    return mean, mixed[:, 2] / mixed[:, 0] - mean**2


@pytest.mark.parametrize("scale", [0.4, 1.7, 3.9])
def test_posterior_is_that_of_enumeration(scale):
    rng = np.random.default_rng(5)
    counts = rng.poisson(rng.choice([0.0, 0.2, 6.0], 12))
    values = counts + laplace(rng, scale, 12)
    expected = rng.choice([0.1, 1.0, 5.0], 12)
    found = posterior(values, scale, expected)
    mean, variance = enumerated_posterior(values, scale, expected)
    assert found.means == pytest.approx(mean, rel=1e-6)
    assert found.variances == pytest.approx(variance, rel=1e-5, abs=1e-9)


def test_each_iteration_makes_weights_likelier():
    rng = np.random.default_rng(1)
    likelihoods = rng.random((3, 40, 6)) ** 4
    histogram = rng.integers(0, 30, (3, 40)).astype(np.float64)
    first = np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])

    def worth(weights):
        fitted = (histogram * np.log(likelihoods @ weights)).sum()
        return fitted + bayes.PSEUDO_CELLS * (first * np.log(weights)).sum()

    worths = [worth(fit_weights(likelihoods, histogram, first, iterations=steps)) for steps in range(25)]
    assert (np.diff(worths) > 0).all()
    likelihoods = np.zeros((1, 1, 3))
    likelihoods[..., 0] = 1.0
    weights = fit_weights(likelihoods, np.array([[1000.0]]), np.full(3, 1 / 3))
    assert weights.sum() == pytest.approx(1)
    assert weights.min() > 1e-5


def best_rule(counts, values, scale):
    """Return what one would say who knew the histogram of the true counts, though not where each is."""
    sizes, cells = np.unique(counts, return_counts=True)
    seen, where = np.unique(np.maximum(values, 0), return_inverse=True)
    terms = np.exp(-np.abs(seen[:, None] - sizes) / scale) * cells
    return (terms @ sizes / terms.sum(axis=1))[where]


@pytest.mark.parametrize("scale", [0.5, 2.0, 8.0, 40.0])
@pytest.mark.parametrize("tail", ["light", "heavy"])
def test_many_cells_teach_nearly_the_best_rule(scale, tail):
    rng = np.random.default_rng(7)
    busy = rng.random(60_000) < 0.03
    drawn = rng.geometric(0.1, 60_000) if tail == "light" else np.minimum(rng.zipf(1.7, 60_000), 5000)
    counts = np.where(busy, drawn, 0)
    values = counts + laplace(rng, scale, counts.shape)
    found = posterior(values, scale, np.ones(counts.shape)).means
    best, nothing = rmse(best_rule(counts, values, scale), counts), rmse(0, counts)
    assert rmse(found, counts) <= 1.05 * best + 0.02 * nothing


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.integers(-(10**9), 10**12) | st.integers(-5, 30), min_size=1, max_size=30),
    scale=st.floats(1e-4, 1e6),
    rate=st.floats(0, 1e6),
    margin=st.booleans(),
    seed=st.integers(0, 99),
)
def test_anything_gives_counts_that_are_finite_and_not_negative(values, scale, rate, margin, seed):
    rng = np.random.default_rng(seed)
    cells = np.array(values)
    pairs = rng.integers(0, 4, len(cells))
    rates = rate * rng.integers(0, 3, len(cells))
    sums = rng.integers(-1000, 10**6, 4) if margin else None
    found = estimate_cells(cells, scale, pairs=pairs, rates=rates, margin=sums, margin_scale=2 * scale)
    for part in (found.means, found.variances):
        assert part.shape == cells.shape
        assert np.isfinite(part).all()
        assert (part >= 0).all()
    assert found.means.max() <= 1.2 * max(cells.max(), 0, 0 if sums is None else sums.max()) + 100 * max(scale, 1)


def test_empty_tables_stay_empty_and_large_counts_are_left_alone():
    nothing = np.zeros(0, dtype=np.int64)
    found = estimate_cells(nothing, 1.0, pairs=nothing, rates=np.zeros(0))
    assert found.means.size == found.variances.size == 0
    for scale in (0.1, 2.0, 300.0):
        rng = np.random.default_rng(2)
        values = laplace(rng, scale, 20_000)
        found = estimate_cells(values, scale, pairs=np.arange(20_000) // 4, rates=np.zeros(20_000))
        assert rmse(found.means, 0) < 0.1 * scale
        assert found.means.mean() < 0.02 * scale
    for scale in (0.5, 2.0, 20.0):
        rng = np.random.default_rng(6)
        counts = rng.integers(500, 100_000, 400)
        values = counts + laplace(rng, scale, 400)
        found = estimate_cells(values, scale, pairs=np.arange(400) // 4, rates=np.full(400, 5e4))
        assert np.abs(found.means - values).max() < 0.2 * scale + 0.1
        assert found.variances == pytest.approx(laplace_variance(scale), rel=0.3, abs=0.3)


def test_values_and_cells_in_any_order():
    values = np.array([0, -1, -7, -300, 5, 9, 0, 2])
    found = posterior(values, 1.5, np.ones(8))
    assert len(set(found.means[[0, 1, 2, 3, 6]].tolist())) == 1
    rng = np.random.default_rng(9)
    values = np.sort(np.minimum(rng.zipf(1.5, 5000), 10_000) + laplace(rng, 3.0, 5000))
    assert (np.diff(posterior(values, 3.0, np.ones(5000)).means) >= -1e-9).all()
    rng = np.random.default_rng(10)
    values, pairs, rates = rng.integers(-5, 20, 300), rng.integers(0, 60, 300), rng.random(300)
    margin = rng.integers(0, 50, 60)
    order = rng.permutation(300)
    one, other = (
        estimate_cells(values[by], 2.0, pairs=pairs[by], rates=rates[by], margin=margin, margin_scale=3.0).means
        for by in (np.arange(300), order)
    )
    assert one[order] == pytest.approx(other, rel=1e-9)
    again = estimate_cells(values, 2.0, pairs=pairs, rates=rates, margin=margin, margin_scale=3.0).means
    assert again.tobytes() == one.tobytes()


def pair_table(rng, num_pairs=4000, num_slots=8):
    """Make pairs of which a tenth are busy, in all slots. Returns counts, and the pair of each."""
    level = np.where(rng.random(num_pairs) < 0.1, rng.geometric(0.2, num_pairs), 0)
    counts = rng.poisson(np.repeat(level, num_slots))
    return counts, np.repeat(np.arange(num_pairs), num_slots)


def test_other_cells_of_a_pair_and_a_margin_help():
    rng = np.random.default_rng(11)
    counts, pairs = pair_table(rng)
    values, rates = counts + laplace(rng, 4.0, counts.shape), np.full(counts.shape, counts.mean())
    margin = np.bincount(pairs, counts).astype(np.int64) + laplace(rng, 1.0, 4000)
    alone = rmse(posterior(values, 4.0, rates).means, counts)
    without, having = (
        rmse(estimate_cells(values, 4.0, pairs=pairs, rates=rates, margin=sums, margin_scale=1.0).means, counts)
        for sums in (None, margin)
    )
    assert without < 0.8 * alone
    assert having < 0.95 * without
    # An exact margin is met.
    exact = np.bincount(pairs, counts).astype(np.int64)
    found = estimate_cells(values, 4.0, pairs=pairs, rates=rates, margin=exact, margin_scale=0.01)
    many = exact > 40
    assert np.bincount(pairs, found.means)[many] == pytest.approx(exact[many], rel=0.02)


def two_features(sums, variances, estimate, total=1000.0):
    """Ask for the weights of a total and of two halves."""
    starts = np.array([0, 50, 100])
    groups = [np.zeros(2, dtype=np.int64), np.arange(2)]
    return reconciling_ratios(estimate, 2.0, starts=starts, groups=groups, sums=sums, variances=variances, total=total)


SPARSE = CellEstimate(means=np.repeat([0.1, 20.0], 50), variances=np.repeat([0.5, 7.0], 50))


def test_sums_weigh_less_the_noisier_and_more_if_estimates_are_wrong():
    sums = [np.array([1005.0]), np.array([5.0, 1000.0])]
    rising = np.array([two_features(sums, [noise, noise], SPARSE) for noise in (0.0, 1.0, 100.0, 1e6, 1e12)])
    assert (np.diff(rising, axis=0) <= 0).all()
    assert (rising > 0).all()
    assert rising[0].tolist() == [100.0, 50.0]  # never above the weight of the paper
    agreeing = two_features([np.array([1005.0]), np.array([5.0, 1000.0])], [50.0, 50.0], SPARSE)
    differing = two_features([np.array([1005.0]), np.array([400.0, 605.0])], [50.0, 50.0], SPARSE)
    assert differing[1] > 5 * agreeing[1]


def gravity(rng, num_stops, num_slots, num_trips):
    """Make a table of trips between places of different size. Shape: slots, pairs."""
    places, size = rng.random((num_stops, 2)), np.exp(1.5 * rng.standard_normal((2, num_stops)))
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    pull = size[0][:, None] * size[1] * np.exp(-4 * apart + 0.7 * rng.standard_normal(apart.shape))
    rates = rng.dirichlet(np.full(num_slots, 5.0))[:, None] * pull.reshape(-1)
    return rng.poisson(rates * num_trips / rates.sum()), (10 * apart).astype(np.int64).reshape(-1)


def whole(values, starts):
    return round_tree(values, [starts, np.array([0, len(values)])], Noise(seed=1))


def test_half_the_error_of_equal_shares_in_whole_numbers():
    rng = np.random.default_rng(14)
    counts, modes = gravity(rng, 60, 6, 8000)
    num_slots, num_pairs = counts.shape
    order = np.argsort(modes, kind="stable")
    sizes = np.tile(np.bincount(modes)[np.unique(modes)], num_slots)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    slots = np.repeat(np.arange(num_slots), len(sizes) // num_slots)
    truth, pairs = counts[:, order].reshape(-1), np.tile(order, num_slots)
    groups = (np.zeros_like(slots), slots, np.arange(len(sizes)))
    numbers = (1, num_slots, len(sizes))
    family = Family(groups=groups, sizes=numbers, ratios=tuple(truth.size / number for number in numbers), blocks=slots)
    exact = [
        np.bincount(of, np.add.reduceat(truth, starts[:-1]), number) for of, number in zip(groups, numbers, strict=True)
    ]

    def noisy(share):
        return [part + laplace(rng, 1 / share, part.shape) for part in exact]

    even = project_dense(truth + laplace(rng, 4.0, truth.shape), starts, family, noisy(0.25)).x
    values, sums = truth + laplace(rng, 1 / 0.65, truth.shape), noisy(0.1)
    margin = np.bincount(pairs, truth).astype(np.int64) + laplace(rng, 20.0, num_pairs)
    plain = project_dense(values, starts, family, sums).x
    rates = np.repeat(np.add.reduceat(plain, starts[:-1]) / sizes, sizes)
    found = estimate_cells(values, 1 / 0.65, pairs=pairs, rates=rates, margin=margin, margin_scale=20.0)
    spread = [laplace_variance(10.0)] * 3
    ratios = reconciling_ratios(
        found, 1 / 0.65, starts=starts, groups=groups, sums=sums, variances=spread, total=float(plain.sum())
    )
    units = np.rint(found.means * 2**16).astype(np.int64)
    weighed = Family(groups=groups, sizes=numbers, ratios=ratios, blocks=slots)
    best = project_dense(units, starts, weighed, [part * 2.0**16 for part in sums]).x / 2**16
    assert rmse(whole(best, starts), truth) < 0.5 * rmse(whole(even, starts), truth)
    assert abs(best.sum() - truth.sum()) < 20 * math.sqrt(laplace_variance(10.0))


def test_a_day_takes_about_a_second_at_most(within):
    rng = np.random.default_rng(15)
    counts = np.where(rng.random(811_200) < 0.006, rng.geometric(0.12, 811_200), 0)
    values, pairs = counts + laplace(rng, 1.5, counts.shape), np.tile(np.arange(16_900), 48)
    rates = np.full(counts.shape, counts.mean())
    with within(2.5):
        estimate_cells(values, 1.5, pairs=pairs, rates=rates)
