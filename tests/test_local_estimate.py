# SPDX-License-Identifier: Apache-2.0
"""Estimates from reports: exact small cases by slow second implementations, unbiasedness, and coverage of intervals."""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize
from scipy.stats import binom
from tests.estimates_help import GRID, SPEED, fleet_tallies, fleet_task, refuses

from dunnage.collecting import estimate as est
from dunnage.collecting.batch import find_cells, perturb_column
from dunnage.collecting.distributions import ShareBounds
from dunnage.collecting.estimate import Intervals, combine_tiers, estimate, estimate_means, estimate_shares
from dunnage.collecting.frames import Source, tally_reports
from dunnage.collecting.promises import num_bins, path_text
from dunnage.collecting.tally import Counts, Sums, Tallies, Tally
from dunnage.devices.client import mechanism_of
from dunnage.devices.numbers import Duchi, LocalNumeric, SquareWave
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import ORACLES, LocalLocation, Planar, PublishedUnary
from dunnage.devices.report import Report
from dunnage.devices.subjects import Grid, Quantity
from dunnage.devices.task import Tier
from dunnage.errors import InputError, ParameterError, Refusal
from dunnage.noise.source import Noise

RARE = 1e-9
SMALL = Grid(box=(0, 0, 1, 1), levels=3, area_levels=2)


def covered(hits, num, confidence=0.95):
    """Return whether so many hits of intervals are believable."""
    return bool(stats.binomtest(int(hits), num, confidence, alternative="less").pvalue > RARE)


def test_binomial_bounds_are_those_of_exact_tests_and_cover_every_chance():
    for num in (1, 7, 30):
        lower, upper = est.binomial_bounds(np.arange(num + 1), num, 0.9)
        for count in range(num + 1):
            expected = stats.binomtest(count, num).proportion_ci(0.9, method="exact")
            assert (lower[count], upper[count]) == pytest.approx((expected.low, expected.high), abs=1e-9)
    lower, upper = est.binomial_bounds(np.arange(21), 20, 0.95)
    for chance in np.linspace(0, 1, 201):
        held = (lower <= chance) & (chance <= upper)
        assert stats.binom.pmf(np.arange(21), 20, chance)[held].sum() >= 0.95 - 1e-9


@given(st.floats(0, 1), st.floats(1.5, 50), st.integers(2, 10**6))
@settings(deadline=None)
def test_score_bounds_are_where_the_distance_is_the_quantile(share, constant, num):
    for end in est.score_bounds(share, num, (constant, 0.0), 0.95):
        distance = (share - end) ** 2 / ((constant - end**2) / num)
        assert math.isclose(distance, stats.norm.ppf(0.975) ** 2, rel_tol=1e-6)


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=30))
@settings(deadline=None)
def test_projection_is_the_nearest_point_of_the_simplex(values):
    found = est.project_shares(values)
    assert found.min() >= 0
    assert math.isclose(found.sum(), 1)
    low, high = min(values) - 1.1, max(values)
    for _ in range(200):  # by bisection on what is taken off all
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(np.array(values) - middle, 0).sum() > 1 else (low, middle)
    assert np.allclose(found, np.maximum(np.array(values) - low, 0), atol=1e-9)
    assert est.project_shares(values, 0.0).tolist() == [0.0] * len(values)


def test_walsh_hadamard_is_the_signed_sum():
    for size in (1, 2, 8):
        table = np.random.default_rng(0).integers(0, 9, (3, size))
        slow = [[sum((-1) ** (r & c).bit_count() * row[c] for c in range(size)) for r in range(size)] for row in table]
        assert est.walsh_hadamard(table).tolist() == slow


def one(value, lower, upper, variance=0.0):
    return Intervals(*(np.float64(each) for each in (value, lower, upper, variance)))


def test_combined_intervals():
    found = est.combine([one(0.2, 0.1, 0.4, 0.01), one(0.4, 0.3, 0.5, 0.01)], [0.5, 0.5])
    ends = (0.3, 0.3 - 0.5 * math.hypot(0.1, 0.1), 0.3 + 0.5 * math.hypot(0.2, 0.1))  # they keep being lopsided
    assert (found.value, found.lower, found.upper) == pytest.approx(ends)
    nothing = one(math.nan, -math.inf, math.inf, math.inf)  # a tier that told nothing may be anything
    found = est.combine([one(0.2, 0.1, 0.3, 0.01), nothing], [0.75, 0.25])
    assert (found.value, found.upper) == pytest.approx((0.15, 0.15 + 0.075 + 0.25))
    lower, upper = est.ratio_bounds(one(0.3, 0.2, 0.4), one(0.8, 0.75, 0.85))
    # As Fieller's: (m - r s)^2 = a^2 + r^2 b^2 with a = 0.1, b = 0.05
    roots = np.roots([0.8**2 - 0.05**2, -2 * 0.3 * 0.8, 0.3**2 - 0.1**2])
    assert (lower, upper) == pytest.approx((roots.min(), roots.max()), abs=3e-4)
    assert est.ratio_bounds(one(0.3, 0.2, 0.4), one(0.01, -0.1, 0.1)) == (-1.0, 1.0)


def test_rules_for_tiers():
    alike = [one(0.2, 0.1, 0.3, 0.0025), one(0.21, -0.2, 0.6, 0.04)]
    apart = [one(0.2, 0.1, 0.3, 0.0025), one(0.9, 0.5, 1.3, 0.04)]
    nums, precisions = [100, 300], [400.0, 25.0]
    precise, how = combine_tiers(alike, nums, precisions, "auto")
    stratified, told = combine_tiers(alike, nums, precisions, "stratify")
    assert (how.rule, told.rule) == ("precision", "stratify")
    assert float(precise.value) == pytest.approx((0.2 * 400 + 0.21 * 25) / 425)
    assert float(stratified.value) == pytest.approx(0.25 * 0.2 + 0.75 * 0.21)
    assert (precise.lower, precise.upper) == (stratified.lower, stratified.upper)  # hold whatever tiers are
    narrow, _ = combine_tiers(alike, nums, precisions, "precision")
    assert narrow.upper - narrow.lower < precise.upper - precise.lower
    split, how = combine_tiers(apart, nums, precisions, "auto")
    weights = np.array([1 / 0.0025, 1 / 0.04])
    mean = (weights * [0.2, 0.9]).sum() / weights.sum()
    distance = (weights * (np.array([0.2, 0.9]) - mean) ** 2).sum()
    assert (how.rule, how.p_value) == ("stratify", pytest.approx(stats.chi2.sf(distance, 1)))
    assert float(split.value) == pytest.approx(0.25 * 0.2 + 0.75 * 0.9)


# Numbers, against means of what each report stands for


def test_means_are_weighted_means_of_unbiased_values():
    noise, quantities = Noise(), (SPEED, Quantity(name="light", low=-5, high=5))
    for method in ("hybrid", "piecewise", "duchi", "harmony", "laplace", "square-wave"):
        mechanism = LocalNumeric(quantities=quantities, epsilon=3, method=method)
        tally, values = Tally(purpose="p", tier="all"), {}
        for number in range(60):
            payload = mechanism.perturb((float(number), -1.0), tier="all", noise=noise)
            tally.add_payload(mechanism, "all", payload)
            for attribute, key, symbol in mechanism.read(payload, tier="all"):
                reading = mechanism.reading("all", attribute, key)
                values.setdefault(attribute, {}).setdefault(key, []).append((reading.scale * symbol, reading))
        means, _ = estimate_means(mechanism, [tally], confidence=0.95, rule="auto")
        for attribute, quantity in enumerate(quantities):
            total = weight = 0.0
            for told in values[attribute].values():
                constant, square = told[0][1].quadratic
                weight += len(told) / (constant + square / 3)
                total += sum(value for value, _ in told) / (constant + square / 3)
            expected = min(max(quantity.in_units(total / weight), float(quantity.low)), float(quantity.high))
            assert means[attribute].value == pytest.approx(expected), method
            assert means[attribute].lower <= means[attribute].value <= means[attribute].upper
    symbols = [-3, -3, 0, 2]  # square waves have the sums of their symbols
    counts = Counts("symbols", np.bincount(np.array(symbols) + 3, minlength=7), 4)
    reading = Duchi(epsilon=1)
    scaled = [reading.scale * symbol for symbol in symbols]
    squares = sum((value - sum(scaled) / 4) ** 2 for value in scaled)
    assert est.moments_of(reading, counts) == pytest.approx((4, sum(scaled) / 4, squares))


def test_what_nobody_told_is_the_whole_domain():
    task = fleet_task("telemetry", quantities=tuple(Quantity(name=f"q{i}", low=1, high=3) for i in range(8)))
    mechanism = mechanism_of(task, task.purposes[0])
    tally = perturb_column(mechanism, "strict", [np.full(1, 2.0)] * 8, Noise(), purpose="telemetry")
    unknown = [line for line in estimate([tally], task).data.to_pylist() if line["value"] is None]
    assert [(line["lower"], line["upper"]) for line in unknown] == [(1.0, 3.0)] * 7


# Shares, against scores of each report


def oracles(epsilon):
    return [kind(num_inputs=5, epsilon=Fraction(epsilon)) for kind in (*ORACLES.values(), PublishedUnary)]


def test_shares_are_scaled_mean_scores():
    noise = Noise()
    for oracle in oracles("3/2"):
        symbols = [oracle.perturb(index % 5, noise) for index in range(70)]
        if oracle.counts_bits:
            bits = [sum(symbol >> bit & 1 for symbol in symbols) for bit in range(5)]
            part = Counts("bits", np.array(bits), 70)
        else:
            part = Counts("symbols", np.bincount(symbols, minlength=oracle.num_symbols), 70)
        found = est.oracle_shares(oracle, part, 0.95)
        scores = [sum(oracle.score(symbol, index) for symbol in symbols) / 70 for index in range(5)]
        assert found.value == pytest.approx([oracle.scale * (score - oracle.offset) for score in scores]), oracle
        assert (found.lower <= found.value + 1e-12).all()
        assert (found.value <= found.upper + 1e-12).all()
    law = LocalLocation(grid=SMALL, epsilon=1, area_in_clear=True, method="hadamard").channel("all")
    tally, read = Tally(purpose="p", tier="all", num_reports=90), []
    for number in range(90):
        group, symbol = divmod(law.perturb(number * number % 17, noise), law.oracle.num_symbols)
        tally.counts((group,), "symbols", law.oracle.num_symbols).add_one(symbol)
        read.append((group, symbol))
    found = est.tier_shares(law, tally, 0.95)
    for index in range(17):
        group, inner = law.split(index)
        scores = [law.oracle.score(symbol, inner) if of == group else 0 for of, symbol in read]
        assert found.value[index] == pytest.approx(law.oracle.scale * sum(scores) / 90)


def test_shares_are_unbiased_exactly():
    """Feed expected counts: the shares come out again."""
    shares, big = np.array([0.4, 0.3, 0.2, 0.1, 0.0]), 10**15
    for oracle in oracles(1):
        symbols, unary = range(oracle.num_symbols), oracle.counts_bits
        exponents = [[oracle.exponent(i, symbol) for symbol in symbols] for i in range(5)]
        weights = np.array([[0.0 if e is None else math.exp(e) for e in row] for row in exponents])
        if "unary" in oracle.name:  # the base of a symbol: each bit that is set costs a factor
            weights *= (oracle.q / (1 - oracle.q)) ** np.array([symbol.bit_count() for symbol in symbols])
        chances = shares @ (weights / weights.sum(axis=1, keepdims=True))
        if unary:
            chances = np.array([sum(c for s, c in enumerate(chances) if s >> bit & 1) for bit in range(5)])
        part = Counts("bits" if unary else "symbols", (chances * big).round().astype(np.int64), big)
        assert np.allclose(est.oracle_shares(oracle, part, 0.95).value, shares, atol=1e-9), oracle


def test_published_paths_are_means_of_products():
    noise, grid = Noise(), Grid(box=(0, 0, 1, 1), levels=2, area_levels=1)
    for steps in (2, 3):
        mechanism = LocalTrajectory(grid=grid, steps=steps, epsilon=2, as_published=True)
        law, tally, read = mechanism.channel("all"), Tally(purpose="p", tier="all"), []
        for number in range(40):
            places = [(0.2, 0.2), (0.7, 0.2 + 0.5 * (number % 2)), (5.0, 0.1)][:steps]
            payload = mechanism.perturb(places, tier="all", noise=noise)
            tally.add_payload(mechanism, "all", payload)
            read.append([symbol for _, symbol in mechanism.read(payload, tier="all")])
        found, oracle = est.tier_shares(law, tally, 0.95), law.place.oracle
        for index, path in enumerate(product(range(5), repeat=steps)):
            products = [
                math.prod(((s >> place & 1) - oracle.q) * oracle.scale for s, place in zip(report, path, strict=True))
                for report in read
            ]
            assert found.value[index] == pytest.approx(np.mean(products), abs=1e-12)
            assert found.variance[index] * 40 >= np.var(products) * (1 - 1e-9)


def test_planar_matrix_adds_up_what_is_beyond_the_border():
    law = Planar(grid=Grid(box=(0, 0, 1, 1), levels=2), epsilon=Fraction(1, 50))
    weights = {at: math.exp(law.displacement_exponent(*at)) for at in product(range(-60, 61), repeat=2)}
    total, matrix = sum(weights.values()), est.planar_matrix(law)
    for cell in range(4):
        column, row = law.grid.column_row(cell)
        chances = np.zeros(4)
        for (columns, rows), weight in weights.items():
            place = min(max(column + columns, 0), 1), min(max(row + rows, 0), 1)
            chances[law.grid.cell_at(*place)] += weight / total
        assert np.allclose(matrix[:, cell], chances, atol=1e-6)


def test_wave_matrix_is_that_of_values_spread_evenly():
    for steps, bins in [(1, 2), (4, 8), (40, 16)]:
        law = SquareWave(epsilon=Fraction(1), steps=steps)
        inputs = range(law.num_inputs)
        weights = np.array([[math.exp(law.exponent(index, symbol)) for index in inputs] for symbol in law.symbols()])
        channel, matrix = weights / weights.sum(axis=0), est.wave_matrix(law, bins)
        assert np.allclose(matrix.sum(axis=0), 1)
        for at in range(bins):
            inside = (at + (np.arange(4000) + 0.5) / 4000) / bins * 2 * steps
            below = np.minimum(inside.astype(int), 2 * steps - 1)
            mean = (channel[:, below] * (1 - inside + below) + channel[:, below + 1] * (inside - below)).mean(axis=1)
            assert np.allclose(matrix[:, at], mean, atol=2e-3 * mean.max())


def test_em_finds_the_likeliest_distribution():
    channel = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
    truth = np.array([[0.5], [0.3], [0.2]])
    assert np.allclose(est.maximise(channel, channel @ truth, smooth=False), truth, atol=1e-3)


@pytest.mark.parametrize("epsilon", ["0.5", "2", "6"])
def test_every_value_is_a_mixture_of_the_knots_beside_it(epsilon):
    """All points and groups of symbols, by enumeration: so intervals assume nothing about how values are spread."""
    law = SquareWave(epsilon=Fraction(epsilon), steps=40)
    weights = np.array([[math.exp(law.exponent(i, o)) for i in range(law.num_inputs)] for o in law.symbols()])
    bounds = ShareBounds([law], [np.ones(len(weights))], 8)
    exact = np.add.reduceat(weights / weights.sum(axis=0), bounds.starts[0], axis=0)
    assert np.allclose(bounds.channel, exact[:, bounds.knots], atol=1e-14)
    between = [np.interp(np.arange(law.num_inputs), bounds.knots, row) for row in bounds.channel]
    assert np.allclose(between, exact, atol=1e-14)


def test_ends_of_shares_against_a_general_solver():
    law, generator = SquareWave(epsilon=Fraction(2), steps=4), np.random.default_rng(3)
    bounds = ShareBounds([law], [generator.integers(100, 300, 2 * law.last + 1)], 2)
    for low, high in ((0.0, 0.5), (0.25, 0.75), (0.5, 1.0)):
        _, least, most = bounds.share(low, high, 0.9)
        outer = (bounds.knots >= low * 8) & (bounds.knots <= high * 8)
        inner = outer & ((bounds.knots > low * 8) | (low == 0)) & ((bounds.knots < high * 8) | (high == 1))
        within = {"type": "ineq", "fun": lambda x: bounds.least - 2 * math.log(0.1) - bounds._distance(x)}
        for goal, end in ((inner, least), (-1.0 * outer, -most)):
            given = {"bounds": [(0, 1)] * goal.size, "constraints": [within], "options": {"ftol": 1e-9}}
            found = minimize(lambda x, goal=goal: goal @ x, bounds.shares, method="SLSQP", **given)
            assert 0 < abs(end) < 1
            assert end == pytest.approx(found.fun, abs=0.005)


@pytest.mark.parametrize("epsilon", ["1", "4"])
def test_intervals_of_distributions_cover(epsilon, thorough):
    """A share and a median of each draw; the numbers are two humps, or all the same."""
    quantity = Quantity(name="x", low=0, high=100, steps=64)
    mechanism = LocalNumeric(quantities=(quantity,), epsilon=epsilon, method="square-wave")
    law, generator = mechanism.reading("all", 0, "square-wave"), np.random.default_rng(5)
    draws = 200 if thorough else 8
    humps = np.where(generator.uniform(size=2000) < 0.4, 20.0, 70.0) + generator.normal(0, 6, 2000)
    for values in (np.clip(humps, 0, 99.99), np.full(2000, 42.0)):
        truth, middle, missed = np.histogram(values, 8, (0, 100))[0] / 2000, np.median(values) / 50 - 1, 0
        for draw in range(draws):
            (part,) = perturb_column(mechanism, "all", [values], Noise()).parts.values()
            found, at = est.fit_distribution([law], [part.counts], [1.0], 0.95, bins=8), draw % 8
            assert math.isclose(found.shares.value.sum(), 1)
            missed += not found.shares.lower[at] - 1e-9 <= truth[at] <= found.shares.upper[at] + 1e-9
            missed += not found.quantiles.lower[1] <= middle <= found.quantiles.upper[1]
            assert (found.shares.upper - found.shares.lower).mean() < 0.6 / float(epsilon)  # 0.3 and 0.5 before
        assert missed <= 2 * binom.isf(1e-9, draws, 0.05)


def test_the_number_of_bins_follows_from_epsilon_and_reports():
    bins = {}
    for epsilon, steps in product(("0.5", "2", "4"), (1, 3, 1024)):
        quantity = Quantity(name="x", low=0, high=100, steps=steps)
        mechanism = LocalNumeric(quantities=(quantity,), epsilon=epsilon, method="square-wave")
        bins[epsilon, steps] = [num_bins(mechanism, quantity, {"all": num}) for num in (100, 10_000, 1_000_000)]
    assert bins["0.5", 1024] == [4, 8, 64]
    assert bins["2", 1024] == [8, 32, 64]
    assert bins["4", 1024] == [8, 64, 64]
    assert bins["4", 1] == [2, 2, 2]
    assert bins["4", 3] == [4, 4, 4]


def skewed(num, seed, shift=0.0):
    return np.clip(np.random.default_rng(seed).exponential(8, num) + shift, 0, 100)


FLEETS = [("auto", num, shift) for num, shift in ((15, 0.0), (15, 60.0), (400, 0.0), (400, 15.0), (400, 60.0))]
OTHER_RULES = [("stratify", 15, 60.0), ("stratify", 400, 60.0), ("precision", 15, 0.0), ("precision", 400, 0.0)]


@pytest.mark.parametrize(
    ("epsilons", "rule", "num", "shift"),
    [*((("0.5", "3"), *case) for case in FLEETS + OTHER_RULES), *((("1", "8"), *case) for case in FLEETS)],
    ids=str,
)
def test_intervals_of_means_cover(num, shift, epsilons, rule, thorough):
    """Skewed numbers in two tiers; with a shift, those of the second tier are larger."""
    tiers = tuple(Tier(name=f"tier {epsilon}", epsilon=epsilon) for epsilon in epsilons)
    quantities = tuple(Quantity(name=f"q{i}", low=0, high=100) for i in range(3))
    mechanism = LocalNumeric(quantities=quantities, tiers=tiers)
    values = [[skewed(num, 7 + place, shift * tier) for place in range(3)] for tier in range(2)]
    if rule == "precision":
        values[1] = values[0]
    truth = [np.concatenate([of_tier[place] for of_tier in values]).mean() for place in range(3)]
    noise, draws, hits = Noise(), 150 if thorough else 100, np.zeros(3, dtype=int)
    for _ in range(draws):
        tallies = [perturb_column(mechanism, tier, columns, noise) for tier, columns in zip(tiers, values, strict=True)]
        means, _ = estimate_means(mechanism, tallies, confidence=0.95, rule=rule)
        hits += [mean.lower <= true <= mean.upper for mean, true in zip(means, truth, strict=True)]
    assert all(covered(each, draws) for each in hits), hits


def test_intervals_of_means_cover_for_every_method_and_over_present_values():
    quantities = tuple(Quantity(name=f"q{i}", low=0, high=100, steps=64) for i in range(3))
    noise, draws, values = Noise(), 150, [skewed(30, place) for place in range(3)]
    forms = [{"method": method} for method in ("duchi", "harmony", "laplace", "square-wave")]
    for parameters in (*forms, {"as_published": True}):
        mechanism, hits = LocalNumeric(quantities=quantities, epsilon=2, **parameters), 0
        for _ in range(draws):
            tally = perturb_column(mechanism, "all", values, noise)
            means, _ = estimate_means(mechanism, [tally], confidence=0.95, rule="auto")
            hits += means[0].lower <= values[0].mean() <= means[0].upper
        assert covered(hits, draws), (parameters, hits)
    load = Quantity(name="load", low=0, high=20, missing="symbol")
    mechanism = LocalNumeric(quantities=(load,), epsilon=2)
    for num in (30, 600):
        loads, hits = np.random.default_rng(1).uniform(2, 9, num), np.zeros(2, dtype=int)
        loads[::3] = np.nan
        for _ in range(draws):
            tally = perturb_column(mechanism, "all", [loads], noise)
            found = estimate_means(mechanism, [tally], confidence=0.95, rule="auto")
            truth = (np.nanmean(loads), 2 / 3)  # the mean, and the share present
            hits += [each[0].lower <= true <= each[0].upper for each, true in zip(found, truth, strict=True)]
        assert all(covered(each, draws) for each in hits), hits


def positions(num, seed, shift):
    generator = np.random.default_rng(seed)
    lon, lat = np.clip(generator.beta(2, 6, num) + shift, 0, 1), generator.beta(2, 3, num)
    lon[::10] = 5.0
    return lon, lat


CLEAR, PUBLISHED = {"area_in_clear": True}, {"as_published": True}
PLACES = [{}, *({"method": method} for method in ("subset-selection", "symmetric-unary", "projective", "planar"))]
PLACES += [CLEAR, {**CLEAR, "method": "hadamard"}, PUBLISHED]


@pytest.mark.parametrize("parameters", PLACES, ids=str)
@pytest.mark.parametrize(("num", "shift"), [(15, 0.0), (1000, 0.4)], ids=str)
def test_intervals_of_places_cover(num, shift, parameters):
    """Two tiers; with a shift the second has other places. One cell of each draw counts, so that draws are apart."""
    planar = parameters.get("method") == "planar"
    tiers = tuple(Tier(name=e, epsilon=e) for e in (("0.1", "0.2") if planar else ("0.5", "3")))
    mechanism = LocalLocation(grid=SMALL, tiers=tiers, **parameters)
    places = [positions(num, 3 + tier, shift * tier) for tier in range(2)]
    inside = [(lon.clip(0, 1), lat) if planar else (lon, lat) for lon, lat in places]
    cells = np.concatenate([find_cells(SMALL, *each) for each in inside])
    truth = np.bincount(cells, minlength=17) / len(cells)
    noise, draws, hits = Noise(), 96 if planar else 170, 0
    for draw in range(draws):
        tallies = [perturb_column(mechanism, tier, columns, noise) for tier, columns in zip(tiers, places, strict=True)]
        found = estimate_shares(mechanism, tallies, confidence=0.95, rule="auto")
        cell = draw % found.value.size
        hits += found.lower[cell] <= truth[cell] <= found.upper[cell]
        assert math.isclose(found.value.sum(), 1)
        assert ((found.lower >= 0) & (found.lower <= found.value) & (found.value <= found.upper)).all()
        assert found.upper.max() <= 1
    assert covered(hits, draws), hits


PATHS = [{}, {"method": "hadamard"}, CLEAR, PUBLISHED, *({**PUBLISHED, "method": name} for name in ("qlp", "qjlp"))]


@pytest.mark.parametrize("parameters", PATHS, ids=str)
def test_intervals_of_paths_cover(parameters):
    tiers = tuple(Tier(name=epsilon, epsilon=epsilon) for epsilon in ("1", "3"))
    mechanism = LocalTrajectory(grid=SMALL, steps=2, tiers=tiers, **parameters)
    places = [positions(400, 3 + tier, 0.3 * tier) for tier in range(2)]
    columns = [(lon, lat, np.where(lon > 1, lon, (lon + 0.2).clip(0, 1)), lat) for lon, lat in places]
    rows = [row for of_tier in columns for row in zip(*of_tier, strict=True)]
    numbers = [mechanism.index((row[:2], row[2:])) for row in rows]
    truth = np.bincount(numbers, minlength=mechanism.channel("1").num_inputs) / len(numbers)
    often = np.argsort(-truth)[:20]
    noise, draws, hits = Noise(), 160, 0
    for draw in range(draws):
        tallies = [perturb_column(mechanism, tier, own, noise) for tier, own in zip(tiers, columns, strict=True)]
        found = estimate_shares(mechanism, tallies, confidence=0.95, rule="auto")
        path = often[draw % 20]
        hits += found.lower[path] <= truth[path] <= found.upper[path]
    assert covered(hits, draws), hits


def measures(release):
    return release.certificate.plain()["measures"]


def test_reports_and_their_tallies_give_the_same():
    task, noise, reports = fleet_task("telemetry"), Noise(), []
    mechanism = mechanism_of(task, task.purposes[0])
    for number in range(40):
        tier = task.slot_tiers(task.purposes[0])[number % 2]
        payload = mechanism.perturb({"speed": float(number), "load": 3.0}, tier=tier, noise=noise)
        facts = {"task": task.prefix, "purpose": 0, "tier": number % 2, "day": 20000, "slot": 5}
        reports.append(Report(**facts, report_id=number.to_bytes(8, "big"), payload=payload))
    by_reports = estimate([*reports, reports[0]], task)
    none = dict.fromkeys(("damaged", "other_task", "impossible", "duplicate", "conflicting", "other_time"), 0)
    assert measures(by_reports)["left_out"] == {**none, "duplicate": 1}
    assert measures(estimate(reports, task, left_out={"damaged": 3}))["left_out"] == {**none, "damaged": 3}
    for wrong in ({"lost": 1}, {"damaged": -1}, {"damaged": True}):
        with refuses(ParameterError, wrong):
            estimate(reports, task, left_out=wrong)
    tallies = tally_reports(task, [Source.of_reports(reports)])
    assert estimate(tallies, task).data.equals(by_reports.data)
    assert estimate(tallies.by_tier.values(), task).data.equals(by_reports.data)


def test_a_map_of_noise_is_refused_unless_allowed():
    task = fleet_task("places", grid=Grid(box=GRID.box, levels=5))
    tallies = fleet_tallies(task, num=30)
    with pytest.raises(Refusal, match="60 "):
        estimate(tallies, task)
    release = estimate(tallies, task, allow_noise=True)
    assert release.certificate.plain()["warnings"]
    assert len(release.data) == 257


def test_few_paths_are_listed_and_the_rest_told_together():
    task = fleet_task("paths", grid=Grid(box=GRID.box, levels=5))
    release = estimate(fleet_tallies(task, num=2000), task, allow_noise=True)
    listed = measures(release)["paths"]["paths"]["listed"]
    assert est.MAX_LISTED <= listed == len(release.data) - 1
    assert release.data.to_pylist()[-1]["path"] == "other"
    assert math.isclose(sum(release.data.column("value").to_pylist()), 1)
    mechanism, published = (LocalTrajectory(grid=SMALL, steps=2, epsilon=1, **form) for form in ({}, PUBLISHED))
    assert path_text(mechanism, mechanism.paths.index((0, 3))) == "0>3"
    assert path_text(mechanism, mechanism.channel("all").num_inputs - 1) == "outside"
    assert path_text(published, published.paths.index((16, 3))) == "outside>3"


def test_what_cannot_be_estimated_is_refused():
    task = fleet_task("telemetry")
    tallies = fleet_tallies(task, num=20)
    for error, reports, more in [
        (InputError, [], {}),
        (InputError, [Tally(purpose="other", tier="basic", num_reports=1)], {}),
        (InputError, [*tallies, copy.deepcopy(tallies[1])], {}),  # the same does not count twice
        (ParameterError, tallies, {"confidence": 95}),
        (ParameterError, tallies, {"combine": "mean"}),
        (ParameterError, Tallies(fleet_task("places")), {}),
        (ParameterError, [1], {}),
    ]:
        with refuses(error, (reports, more)):
            estimate(reports, task, **more)


def test_tallies_that_no_reports_add_up_to_are_refused():
    task = fleet_task("telemetry")
    sums = {(9, "duchi"): Sums(1, 1, 1), (0, "no law"): Sums(1, 1, 1), (0, "duchi"): Sums(5, 9, 5)}
    for key, part in (*sums.items(), ((0, "piecewise"), Sums(5, 10**9, 10**20)), (None, None)):
        tally = fleet_tallies(task, num=20)[0]
        if key is None:
            tally.num_reports = 7
        else:
            tally.parts[key] = part
        with refuses(InputError, key):
            estimate([tally], task)
    for spoil, method in product(("more", "less", "shorter", "another"), ("optimised-unary", "hadamard")):
        task = fleet_task("places", places={"method": method})
        tally = fleet_tallies(task, num=500)[0]
        part = tally.parts[()]
        part.counts[0] = {"more": part.num + 1, "less": -1}.get(spoil, part.counts[0])
        part.counts = part.counts[:-1] if spoil == "shorter" else part.counts
        part.num += spoil == "another"
        with refuses(InputError, (spoil, method)):
            estimate([tally], task)


def test_tallies_of_one_tier_are_added_up_and_left_alone():
    task = fleet_task("places")
    first, second = (fleet_tallies(task, num=500, seed=seed) for seed in (1, 2))
    empty = Tally(purpose="places", tier="basic")
    release = estimate([*first, *second, empty, copy.deepcopy(empty)], task)
    assert measures(release)["reports"] == {"places": {"basic": 1000, "strict": 1000}}
    assert {tally.num_reports for tally in (*first, *second)} == {500}
    task = fleet_task("telemetry")  # one tier needs no combination
    told = measures(estimate(fleet_tallies(task)[:1], task))
    assert {item["rule"] for item in told["combined"]["telemetry"].values()} == {"one tier"}
    assert list(told["reports"]["telemetry"]) == ["basic"]
