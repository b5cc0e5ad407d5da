# SPDX-License-Identifier: Apache-2.0
"""Counts fitted to margins: a dense fit, whole numbers, shares, usefulness. prove enumerates its law."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from benchmarks.counts import Stops, bikes, released, rmse
from scipy.stats import norm, poisson
from tests.builders import a_trip_policy, trips
from tests.oracles.dense_fitting import dense_fit
from tests.refusals import refusal

import dunnage as dn
from dunnage.errors import ParameterError, PolicyError
from dunnage.kernels.counts import fitting
from dunnage.kernels.counts.laplace import DiscreteLaplace
from dunnage.mechanisms.counts import ConstrainedCounts, NoisyQueries
from dunnage.mechanisms.fitted_counts import QUESTIONS, Asked, FittedCounts, predicted_shares
from dunnage.publishing import mechanism_of
from dunnage.usefulness import predict_usefulness

GENERATOR = np.random.default_rng


def test_factors_fit_as_a_dense_table_does():
    draw = GENERATOR(3)
    zones = np.array([0, 0, 1, 1, 1, 2])
    truth = draw.gamma(0.5, 4, size=(6, 6, 5)) + 0.01
    zone_of = np.eye(3)[zones]
    sums = [truth.sum(axis=1), truth.sum(axis=0), np.einsum("odt,oz,dy->zyt", truth, zone_of, zone_of)]
    windows, pairs = truth.sum(axis=(0, 1)), truth.sum(axis=2)
    start = pairs[..., None] * windows
    for chosen in ((1, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)):
        targets = [own if use else None for own, use in zip(sums, chosen, strict=True)]
        due = dense_fit(start, pairs, *targets, zones=zones)
        found, sweeps = pairs, fitting.SWEEPS
        try:
            fitting.SWEEPS = 400
            found = fitting.cells_of(fitting.proportional(pairs, targets, zone_of, windows), zone_of)
        finally:
            fitting.SWEEPS = sweeps
        assert np.allclose(found, due, rtol=1e-6)
        assert np.allclose(found.sum(axis=2), pairs)


def test_margins_are_pooled_by_their_precision():
    draw = GENERATOR(4)
    zone_of = np.eye(2)[[0, 1, 1]]
    pairs, ends = draw.normal(size=(3, 3)), draw.normal(size=(3, 4))
    margins = {
        ("pairs", False): fitting.Margin(pairs, np.full((3, 3), 2.0)),
        ("origins", True): fitting.Margin(ends, np.full((3, 4), 0.5)),
    }
    found = fitting.pooled(margins, "origins", zone_of, slots=False)
    assert np.allclose(found.sums, (pairs.sum(axis=1) / 6 + ends.sum(axis=1) / 2) / (1 / 6 + 1 / 2))
    assert np.allclose(found.variances, 1 / (1 / 6 + 1 / 2))
    between = fitting.pooled(margins, "zones", zone_of, slots=False)
    assert np.allclose(between.sums, zone_of.T @ pairs @ zone_of)
    assert np.allclose(between.variances, 2 * np.outer([1, 2], [1, 2]))
    assert fitting.pooled(margins, "destinations", zone_of, slots=True) is None


def test_chances_of_noisy_counts_are_sums_over_all_counts():
    numbers = np.arange(20_000)
    for scale in (0.9, 5.0, 60.0):
        grid = np.array([-40.0, 0.0, 3.0, 45.0, 400.0, 3_000.0])
        rates = np.array([[0.0, 0.3, 7.0, 39.0], [60.0, 900.0, 2_500.0, 39.9]])
        found = np.stack(fitting.noisy_poisson(grid, rates, scale))
        for (row, column), rate in np.ndenumerate(rates):
            if rate < fitting.MANY:
                law = poisson.pmf(numbers, rate)
            else:
                law = norm.pdf(numbers, rate, np.sqrt(rate + (fitting.MEETING * rate) ** 2))
            noise = np.exp(-np.abs(grid[:, None] - numbers) / scale) * np.tanh(1 / (2 * scale))
            due = np.stack([noise @ (law * numbers.astype(float) ** power) for power in range(3)])
            near = due[0] > 1e-4 * due[0].max()  # normal laws reach below zero, where they do not matter
            assert np.allclose(found[:, row, near, column], due[:, near], rtol=0.05), (scale, rate)


def test_beliefs_are_closer_than_noise_and_than_what_is_expected():
    draw = GENERATOR(6)
    expected = draw.gamma(2, 6, size=(200, 24))
    for spread, worst in ((0.0, 0.9), (0.5, 0.8), (1.5, 0.8)):
        truth = draw.poisson(expected * np.exp(spread * draw.normal(size=expected.shape) - spread**2 / 2))
        noisy = truth + np.rint(draw.laplace(0, 6, size=truth.shape))
        found = fitting.beliefs(fitting.Margin(noisy, np.full(truth.shape, 72.0)), expected)
        best = min(rmse(noisy - truth), rmse(expected - truth))
        assert rmse(found.means - truth) < worst * best or (spread == 0 and rmse(found.means - truth) < 1.01 * best)
        assert 0.8 < rmse(found.means - truth) / np.sqrt(found.variances.mean()) < 1.25  # and they know how close


def test_whole_numbers_keep_the_sums():
    draw = GENERATOR(5)
    pairs = draw.gamma(0.4, 2, size=(40, 40))
    factors = [draw.gamma(3, 1, size=(40, 12)), draw.gamma(3, 1, size=(40, 12)), np.ones((1, 1, 12))]
    none = np.zeros((0, 0, 0))
    fitted = fitting.Fitted(pairs, *factors, by_slot=(), cells=none, alone=none)
    cells = fitting.cells_of(fitted, np.ones((40, 1)))
    found = np.zeros((1600, 12))
    places, slots, counts = fitting.whole_counts(fitted, None, (), ())
    np.add.at(found, (places, slots), counts)
    found = found.reshape(cells.shape)
    assert counts.min() >= 1
    assert len(set(zip(places.tolist(), slots.tolist(), strict=True))) == len(places)
    assert abs(found.sum() - pairs.sum()) <= 1
    assert np.abs(found.sum(axis=2) - pairs).max() < 1  # each pair is rounded up or down
    assert np.abs(found.sum(axis=(1, 2)) - pairs.sum(axis=1)).max() <= 1
    assert np.abs(found.sum(axis=(0, 2)) - pairs.sum(axis=0)).max() <= 4
    assert rmse(found.sum(axis=1) - cells.sum(axis=1)) < 1
    # Numbers that are expected to be worse than nothing go, and only then.
    few = np.full((10, 10), 0.05)
    assert not fitting.worthwhile(fitting.round_pairs(few), few).any()
    assert fitting.worthwhile(np.array([9, 1]), np.array([9.0, 0.1])).tolist() == [9, 1]


def test_better_than_the_presets_and_never_worse_than_nothing():
    """The judged comparison, on smaller systems: 1.5 times better per pair and per stop at epsilon 1."""
    for size, slots, num, spread in ((60, 20, 3_000, 0.6), (40, 24, 20_000, 0.4), (80, 12, 1_500, 1.2)):
        counts = bikes(size, slots, num, spread, seed=size)
        pairs, ends = counts.sum(axis=2), counts.sum(axis=(1, 2))
        best = [np.inf, np.inf]
        for shares in ("uniform", "cells", "margins"):
            preset = ConstrainedCounts(epsilon=1, features="O3", budget_shares=shares)
            found = released(counts, preset, seed=1)
            errors = rmse(found.sum(axis=2) - pairs), rmse(found.sum(axis=(1, 2)) - ends)
            best = [min(one, other) for one, other in zip(best, errors, strict=True)]
        slots_best = rmse(counts.sum(axis=1) - np.outer(ends, counts.sum(axis=(0, 1))) / num)
        for workload in ((), ("stop pairs", "departures")):
            fitted = FittedCounts(epsilon=1, workload=workload, expected_trips=num)
            found = released(counts, fitted, seed=1)
            assert rmse(found.sum(axis=2) - pairs) < best[0] / 1.5
            assert rmse(found.sum(axis=(1, 2)) - ends) < best[1] / 1.5
            # Measured or not, departures by window are about as close as true departures times true windows, or closer.
            assert rmse(found.sum(axis=1) - counts.sum(axis=1)) < 1.25 * slots_best
        every = (("stop pairs", 2), ("departures", (1, 2)), ("departures by window", 1), ("stop pairs by window", ()))
        for question, axes in every:
            fitted = FittedCounts(epsilon="0.1", workload=question, expected_trips=num)
            found = released(counts, fitted, seed=1)
            nothing = counts.sum(axis=axes) if axes else counts
            assert rmse((found.sum(axis=axes) if axes else found) - nothing) <= 1.01 * rmse(nothing)


def test_few_trips_are_never_further_off_than_an_empty_table():
    counts = bikes(50, 20, 300, 0.8, seed=3)
    for question, axes in (("stop pairs", 2), ("departures", (1, 2)), ("departures by window", 1)):
        fitted, nothing = FittedCounts(epsilon="0.1", workload=question, expected_trips=300), counts.sum(axis=axes)
        errors = [rmse(released(counts, fitted, seed).sum(axis=axes) - nothing) for seed in range(6)]
        assert np.mean(errors) <= rmse(nothing), question


def test_departures_by_window_are_as_close_as_with_even_shares():
    """Private-pgm with even shares is off by the noise of a third of epsilon, or by little less, on dense tables."""
    counts = bikes(100, 24, 150_000, 0.5)
    errors = released(counts, FittedCounts(epsilon=1, expected_trips=150_000), seed=1) - counts
    even = DiscreteLaplace(Fraction(3)).spread
    assert max(rmse(errors.sum(axis=axis)) for axis in (0, 1, 2)) < 0.98 * even
    assert rmse(errors.sum(axis=(1, 2))) < 1.1 * even / np.sqrt(1 / 24 + 1 / 100)


def test_patterns_that_stops_share_stand_out_of_noise():
    draw = GENERATOR(8)
    plain, lean = draw.gamma(3, 5, size=(150, 1)) * np.ones(40), draw.normal(size=(150, 1)) * np.sin(np.arange(40) / 6)
    for pattern in (0.3 * lean, 0 * lean):
        truth = plain * np.exp(pattern)
        seen = draw.poisson(truth) + np.rint(draw.laplace(0, 3, truth.shape))
        found = fitting.in_common(fitting.Margin(seen, np.full(truth.shape, 18.0)), plain)
        assert (found > 0).all()
        assert rmse(found - truth) < max(0.5 * rmse(plain - truth), 0.15 * rmse(seen - truth))
    assert fitting.in_common(fitting.Margin(plain, plain), plain) == pytest.approx(plain)  # nothing stands out


def test_extreme_noise_and_counts_are_released():
    for counts in (np.zeros((2, 2, 3), int), np.full((2, 2, 3), 2**52 // 12), np.eye(4, dtype=int)[..., None]):
        for epsilon in ("0.0001", 500):
            for question in QUESTIONS:
                if not question.startswith("zone"):
                    fitted = FittedCounts(epsilon=epsilon, workload=question)
                    with np.errstate(all="raise", under="ignore"):
                        found = released(counts, fitted, seed=1)
                    assert (found >= 0).all()


def test_shares_follow_from_public_facts():
    pairs, ends = Asked("pairs", False, 90_000), Asked("origins", True, 6_000)
    shares = predicted_shares([pairs, ends], 70_000.0, 1.0)
    assert sum(shares) == 1
    assert shares[0] > shares[1] > 0
    assert predicted_shares([ends, pairs], 70_000.0, 1.0)[0] > shares[1]  # the first question counts twice
    assert predicted_shares([ends], 10.0, 5.0) == [1]
    policy = a_trip_policy({"name": "fitted-counts", "epsilon": 1}, expect={"trips": 400})
    stated = dn.promise(policy).mechanism
    assert stated["expected_trips"] == 400
    assert stated["workload"] == ["stop pairs", "departures by window", "arrivals by window"]
    assert sum(Fraction(str(share)) for share in stated["budget_shares"].values()) == 1


def test_usefulness_is_judged_by_what_is_asked(tmp_path):
    for workload in (["departures", "zone pairs by window"], ["windows"]):
        policy = a_trip_policy({"name": "fitted-counts", "epsilon": 1, "workload": workload}, expect={"trips": 5_000})
        expected = predict_usefulness(policy, mechanism_of(policy)).expected
        assert [item.level for item in expected.levels[: len(workload)]] == workload
        assert "stop pairs by window" in [item.level for item in expected.levels]
        assert not expected.is_noise
    data = dn.load(trips(), a_trip_policy({"name": "fitted-counts", "epsilon": 1}))
    dn.publish(data, ledger=dn.Ledger(":memory:"), out=tmp_path / "release")
    assert "a model was fitted to them" in (tmp_path / "release" / "README.md").read_text()


def test_large_margins_name_it_as_the_remedy():
    policy = a_trip_policy({"name": "constrained-counts", "epsilon": 1, "features": "O3", "budget_shares": "margins"})
    data = dn.load(trips(), policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dunnage.mechanisms.counts.MAX_DENSE_CELLS", 10)
        message = str(refusal(ParameterError, mechanism_of(policy).asked, data))
    workload = message[message.index("[") : message.index("]") + 1]
    made = FittedCounts(epsilon=1, workload=json.loads(workload))
    assert made.name in message
    assert made.workload == made.questions(data.schema)


def test_wrong_parameters_are_refused():
    for wrong in ("stops", [], ["departures", "departures"], 3):
        refusal(ParameterError, FittedCounts, epsilon=1, workload=wrong)
    for wrong in ("even", {}, {"departures": 0.5}, {"departures": 1.5, "arrivals": -0.5}, {"stops": 1}):
        refusal(ParameterError, FittedCounts, epsilon=1, budget_shares=wrong)
    for wrong in (0, 1.5, "many", True):
        refusal(ParameterError, FittedCounts, epsilon=1, expected_trips=wrong)
    zoned = {"trip": {"origin": "from", "destination": "to", "time": "at", "level": "zone"}}
    policy = a_trip_policy({"name": "fitted-counts", "epsilon": 1, "workload": ["stop pairs"]}, **zoned)
    assert "zones" in str(refusal(PolicyError, dn.promise, policy))
    made = FittedCounts(epsilon=1, workload="stop pairs by window", budget_shares={"stop pairs by window": 1})
    with pytest.raises(ParameterError, match="coarser"):
        made.check_size(
            NoisyQueries.of(Stops(3000, 48).universe(), made.queries(Stops(3000, 48)), made.epsilon, 1, DiscreteLaplace)
        )
