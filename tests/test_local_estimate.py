# SPDX-License-Identifier: Apache-2.0
"""Estimates from reports: exact small cases by slow second implementations, unbiasedness, and coverage of intervals."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.estimates_help import GRID, SPEED, TIERS, fleet_tallies, fleet_task

from dunnage.collecting.batch import find_cells, perturb_column
from dunnage.collecting.estimate import (
    MAX_LISTED,
    Intervals,
    binomial_bounds,
    combine,
    combine_tiers,
    estimate,
    estimate_means,
    estimate_shares,
    fit_distribution,
    maximise,
    oracle_shares,
    planar_matrix,
    project_shares,
    ratio_bounds,
    score_bounds,
    sums_of,
    tier_shares,
    walsh_hadamard,
    wave_matrix,
)
from dunnage.collecting.promises import path_text
from dunnage.collecting.tally import Counts, Sums, Tallies, Tally
from dunnage.devices.client import mechanism_of
from dunnage.devices.numbers import LocalNumeric, SquareWave
from dunnage.devices.paths import Independent, LocalTrajectory
from dunnage.devices.places import ORACLES, InClear, LocalLocation, Planar, PublishedUnary
from dunnage.devices.report import Report
from dunnage.devices.subjects import Grid, Quantity
from dunnage.devices.task import Tier
from dunnage.errors import InputError, ParameterError, Refusal
from dunnage.noise.source import Noise

RARE = 1e-9
SMALL = Grid(box=(0, 0, 1, 1), levels=3, area_levels=2)


def covered(hits: int, num: int, confidence: float = 0.95) -> bool:
    """Return whether so many hits of intervals are believable."""
    return bool(stats.binomtest(hits, num, confidence, alternative="less").pvalue > RARE)


# Intervals and projections


def test_binomial_bounds_are_those_of_exact_tests() -> None:
    for num in [1, 7, 30]:
        lower, upper = binomial_bounds(np.arange(num + 1), num, 0.9)
        for count in range(num + 1):
            expected = stats.binomtest(count, num).proportion_ci(0.9, method="exact")
            assert (lower[count], upper[count]) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_binomial_bounds_cover_every_chance() -> None:
    lower, upper = binomial_bounds(np.arange(21), 20, 0.95)
    for chance in np.linspace(0, 1, 201):
        held = (lower <= chance) & (chance <= upper)
        assert stats.binom.pmf(np.arange(21), 20, chance)[held].sum() >= 0.95 - 1e-9


@given(st.floats(0, 1), st.floats(1.5, 50), st.integers(2, 10**6))
@settings(deadline=None)
def test_score_bounds_are_where_the_distance_is_the_quantile(share: float, constant: float, num: int) -> None:
    for end in score_bounds(share, num, (constant, 0.0), 0.95):
        distance = (share - end) ** 2 / ((constant - end**2) / num)
        assert math.isclose(distance, stats.norm.ppf(0.975) ** 2, rel_tol=1e-6)


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=30))
@settings(deadline=None)
def test_projection_is_the_nearest_point_of_the_simplex(values: list[float]) -> None:
    found = project_shares(values)
    assert found.min() >= 0
    assert math.isclose(found.sum(), 1)
    low, high = min(values) - 1.1, max(values)
    for _ in range(200):  # by bisection on what is taken off all
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(np.array(values) - middle, 0).sum() > 1 else (low, middle)
    assert np.allclose(found, np.maximum(np.array(values) - low, 0), atol=1e-9)


def test_projection_to_nothing() -> None:
    assert project_shares([0.2, -0.1], 0.0).tolist() == [0.0, 0.0]


def test_walsh_hadamard_is_the_signed_sum() -> None:
    for size in [1, 2, 8]:
        table = np.random.default_rng(0).integers(0, 9, (3, size))
        slow = [[sum((-1) ** (r & c).bit_count() * row[c] for c in range(size)) for r in range(size)] for row in table]
        assert walsh_hadamard(table).tolist() == slow


def one(value: float, lower: float, upper: float, variance: float) -> Intervals:
    return Intervals(*(np.float64(each) for each in (value, lower, upper, variance)))


def test_combined_intervals_keep_being_lopsided() -> None:
    found = combine([one(0.2, 0.1, 0.4, 0.01), one(0.4, 0.3, 0.5, 0.01)], [0.5, 0.5])
    assert float(found.value) == pytest.approx(0.3)
    assert float(found.lower) == pytest.approx(0.3 - 0.5 * math.hypot(0.1, 0.1))
    assert float(found.upper) == pytest.approx(0.3 + 0.5 * math.hypot(0.2, 0.1))


def test_a_tier_that_told_nothing_may_be_anything() -> None:
    nothing = one(math.nan, -math.inf, math.inf, math.inf)
    found = combine([one(0.2, 0.1, 0.3, 0.01), nothing], [0.75, 0.25])
    assert float(found.value) == pytest.approx(0.15)
    assert float(found.upper) == pytest.approx(0.15 + 0.075 + 0.25)


def test_rules_for_tiers() -> None:
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
    assert how.rule == "stratify"
    weights = np.array([1 / 0.0025, 1 / 0.04])
    mean = (weights * [0.2, 0.9]).sum() / weights.sum()
    distance = (weights * (np.array([0.2, 0.9]) - mean) ** 2).sum()
    assert how.p_value == pytest.approx(stats.chi2.sf(distance, 1))
    assert float(split.value) == pytest.approx(0.25 * 0.2 + 0.75 * 0.9)


def test_a_ratio_is_bounded_like_fieller() -> None:
    lower, upper = ratio_bounds(one(0.3, 0.2, 0.4, 0), one(0.8, 0.75, 0.85, 0))
    # (m - r s)^2 = a^2 + r^2 b^2 with a = 0.1, b = 0.05
    roots = np.roots([0.8**2 - 0.05**2, -2 * 0.3 * 0.8, 0.3**2 - 0.1**2])
    assert (lower, upper) == pytest.approx((roots.min(), roots.max()), abs=3e-4)
    assert ratio_bounds(one(0.3, 0.2, 0.4, 0), one(0.01, -0.1, 0.1, 0)) == (-1.0, 1.0)


# Numbers, against means of what each report stands for


def test_means_are_weighted_means_of_unbiased_values() -> None:
    for method in ["hybrid", "piecewise", "duchi", "harmony", "laplace", "square-wave"]:
        quantities = (SPEED, Quantity(name="light", low=-5, high=5))
        mechanism = LocalNumeric(quantities=quantities, epsilon=3, method=method)
        noise, tally, values = Noise(), Tally(purpose="p", tier="all"), {}
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
            assert means[attribute].value == pytest.approx(expected)
            assert means[attribute].lower <= means[attribute].value <= means[attribute].upper


def test_square_waves_have_the_sums_of_their_symbols() -> None:
    symbols = [-3, -3, 0, 2]
    counts = np.bincount(np.array(symbols) + 3, minlength=7)
    assert sums_of(Counts("symbols", counts, 4)) == Sums(4, sum(symbols), sum(s * s for s in symbols))


def test_what_nobody_told_is_the_whole_domain() -> None:
    task = fleet_task("telemetry", quantities=tuple(Quantity(name=f"q{i}", low=1, high=3) for i in range(8)))
    mechanism = mechanism_of(task, task.purposes[0])
    tally = perturb_column(mechanism, "strict", [np.full(1, 2.0)] * 8, Noise(), purpose="telemetry")
    lines = estimate([tally], task).data.to_pylist()
    unknown = [line for line in lines if line["value"] is None]
    assert len(unknown) == 7
    assert all((line["lower"], line["upper"]) == (1.0, 3.0) for line in unknown)


# Shares, against scores of each report


def oracles(num_inputs: int, epsilon: Fraction) -> list[Any]:
    kinds = [*ORACLES.values(), PublishedUnary]
    return [kind(num_inputs=num_inputs, epsilon=epsilon) for kind in kinds]


def counted(oracle: Any, symbols: Sequence[int]) -> Counts:
    """Count symbols slowly."""
    if "unary" in oracle.name:
        bits = [sum(symbol >> bit & 1 for symbol in symbols) for bit in range(oracle.num_inputs)]
        return Counts("bits", np.array(bits), len(symbols))
    return Counts("symbols", np.bincount(symbols, minlength=oracle.num_symbols), len(symbols))


@pytest.mark.parametrize("oracle", oracles(5, Fraction(3, 2)), ids=lambda each: each.name)
def test_shares_are_scaled_mean_scores(oracle: Any) -> None:
    noise = Noise()
    symbols = [oracle.perturb(index % 5, noise) for index in range(70)]
    found = oracle_shares(oracle, counted(oracle, symbols), 0.95)
    for index in range(5):
        scores = [oracle.score(symbol, index) for symbol in symbols]
        expected = oracle.scale * (sum(scores) / 70 - oracle.offset)
        assert found.value[index] == pytest.approx(expected)
        assert found.lower[index] <= found.value[index] + 1e-12
        assert found.value[index] <= found.upper[index] + 1e-12


@pytest.mark.parametrize("oracle", oracles(5, Fraction(1)), ids=lambda each: each.name)
def test_shares_are_unbiased_exactly(oracle: Any) -> None:
    """Feed expected counts: the shares come out again."""
    shares, big = np.array([0.4, 0.3, 0.2, 0.1, 0.0]), 10**15
    weights = np.array(
        [[math.exp(float(oracle.exponent(i, symbol))) for symbol in range(oracle.num_symbols)] for i in range(5)]
    )
    if "unary" in oracle.name:  # the base of a symbol: each bit that is set costs a factor
        other = oracle.q / (1 - oracle.q)
        bits = np.array([symbol.bit_count() for symbol in range(oracle.num_symbols)])
        weights = weights * other**bits
    chances = shares @ (weights / weights.sum(axis=1, keepdims=True))
    if "unary" in oracle.name:
        counts = [sum(c for s, c in enumerate(chances) if s >> bit & 1) * big for bit in range(5)]
        part = Counts("bits", np.array(counts).round().astype(np.int64), big)
    else:
        part = Counts("symbols", (chances * big).round().astype(np.int64), big)
    assert np.allclose(oracle_shares(oracle, part, 0.95).value, shares, atol=1e-9)


def test_shares_with_areas_in_clear_are_scaled_mean_scores() -> None:
    law = LocalLocation(grid=SMALL, epsilon=1, area_in_clear=True, method="hadamard").channel("all")
    assert isinstance(law, InClear)
    noise, tally, read = Noise(), Tally(purpose="p", tier="all", num_reports=90), []
    for number in range(90):
        group, symbol = divmod(law.perturb(number * number % 17, noise), law.oracle.num_symbols)
        tally.counts((group,), "symbols", law.oracle.num_symbols).add_one(symbol)
        read.append((group, symbol))
    found = tier_shares(law, tally, 0.95)
    for index in range(17):
        group, inner = law.split(index)
        scores = [law.oracle.score(symbol, inner) if of == group else 0 for of, symbol in read]
        assert found.value[index] == pytest.approx(law.oracle.scale * sum(scores) / 90)


def test_published_paths_are_means_of_products() -> None:
    for steps in [2, 3]:
        grid = Grid(box=(0, 0, 1, 1), levels=2, area_levels=1)
        mechanism = LocalTrajectory(grid=grid, steps=steps, epsilon=2, as_published=True)
        law, noise, tally, read = mechanism.channel("all"), Noise(), Tally(purpose="p", tier="all"), []
        assert isinstance(law, Independent)
        for number in range(40):
            places = [(0.2, 0.2), (0.7, 0.2 + 0.5 * (number % 2)), (5.0, 0.1)][:steps]
            payload = mechanism.perturb(places, tier="all", noise=noise)
            tally.add_payload(mechanism, "all", payload)
            read.append([symbol for _, symbol in mechanism.read(payload, tier="all")])
        found, oracle = tier_shares(law, tally, 0.95), law.place.oracle
        for index, path in enumerate(itertools.product(range(5), repeat=steps)):
            products = [
                math.prod(((s >> place & 1) - oracle.q) * oracle.scale for s, place in zip(report, path, strict=True))
                for report in read
            ]
            assert found.value[index] == pytest.approx(np.mean(products), abs=1e-12)
            assert found.variance[index] * 40 >= np.var(products) * (1 - 1e-9)


# Known channels


def test_planar_matrix_adds_up_what_is_beyond_the_border() -> None:
    law = Planar(grid=Grid(box=(0, 0, 1, 1), levels=2), epsilon=Fraction(1, 50))
    reach, weights = 60, {}
    for columns, rows in itertools.product(range(-reach, reach + 1), repeat=2):
        weights[columns, rows] = math.exp(float(law.displacement_exponent(columns, rows)))
    total = sum(weights.values())
    matrix = planar_matrix(law)
    for cell in range(4):
        column, row = law.grid.column_row(cell)
        chances = np.zeros(4)
        for (columns, rows), weight in weights.items():
            place = min(max(column + columns, 0), 1), min(max(row + rows, 0), 1)
            chances[law.grid.cell_at(*place)] += weight / total
        assert np.allclose(matrix[:, cell], chances, atol=1e-6)


def test_wave_matrix_is_that_of_values_spread_evenly() -> None:
    for steps, bins in [(1, 2), (4, 8), (40, 16)]:
        law = SquareWave(epsilon=Fraction(1), steps=steps)
        weights = np.array(
            [
                [math.exp(float(law.exponent(index, symbol))) for index in range(law.num_inputs)]
                for symbol in law.symbols()
            ]
        )
        channel = weights / weights.sum(axis=0)
        matrix = wave_matrix(law, bins)
        assert np.allclose(matrix.sum(axis=0), 1)
        for at in range(bins):
            inside = (at + (np.arange(4000) + 0.5) / 4000) / bins * 2 * steps
            below = np.minimum(inside.astype(int), 2 * steps - 1)
            mean = (channel[:, below] * (1 - inside + below) + channel[:, below + 1] * (inside - below)).mean(axis=1)
            assert np.allclose(matrix[:, at], mean, atol=2e-3 * mean.max())


def test_em_finds_the_likeliest_distribution() -> None:
    channel = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
    truth = np.array([[0.5], [0.3], [0.2]])
    assert np.allclose(maximise(channel, channel @ truth, smooth=False), truth, atol=1e-3)


def test_bounds_of_a_distribution_hold_all_at_once() -> None:
    for kind in ["humps", "spike"]:
        law, generator = SquareWave(epsilon=Fraction(2), steps=64), np.random.default_rng(5)
        humps = np.where(generator.uniform(size=2000) < 0.4, 20.0, 70.0) + generator.normal(0, 6, 2000)
        values = np.clip(humps, 0, 99.99) if kind == "humps" else np.full(2000, 42.0)
        truth = np.histogram(values, 16, (0, 100))[0] / 2000
        mechanism = LocalNumeric(
            quantities=(Quantity(name="x", low=0, high=100, steps=64),), epsilon=2, method="square-wave"
        )
        hits = 0
        for _ in range(2):
            tally = perturb_column(mechanism, "all", [values], Noise())
            (part,) = tally.parts.values()
            assert isinstance(part, Counts)
            found = fit_distribution([law], [part.counts], [1.0], 0.95)
            middle = np.median(values) / 50 - 1
            within = (found.shares.lower <= truth + 1e-9) & (truth <= found.shares.upper + 1e-9)
            hits += bool(within.all()) and found.quantiles.lower[1] <= middle <= found.quantiles.upper[1]
            assert math.isclose(found.shares.value.sum(), 1)
        assert hits >= 1  # the band is far wider than it must be: both miss hardly ever


# Coverage over many draws


def skewed(num: int, seed: int, shift: float = 0.0) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).exponential(8, num) + shift, 0, 100)


FLEETS = [("auto", num, shift) for num, shift in ((15, 0.0), (15, 60.0), (400, 0.0), (400, 15.0), (400, 60.0))]
OTHER_RULES = [("stratify", 15, 60.0), ("stratify", 400, 60.0), ("precision", 15, 0.0), ("precision", 400, 0.0)]


@pytest.mark.parametrize(
    ("epsilons", "rule", "num", "shift"),
    [*((("0.5", "3"), *case) for case in FLEETS + OTHER_RULES), *((("1", "8"), *case) for case in FLEETS)],
    ids=str,
)
def test_intervals_of_means_cover(num: int, shift: float, epsilons: tuple[str, str], rule: str) -> None:
    """Skewed numbers in two tiers; with a shift, those of the second tier are larger."""
    tiers = tuple(Tier(name=f"tier {epsilon}", epsilon=epsilon) for epsilon in epsilons)
    quantities = tuple(Quantity(name=f"q{i}", low=0, high=100) for i in range(3))
    mechanism = LocalNumeric(quantities=quantities, tiers=tiers)
    values = [[skewed(num, 7 + place, shift * tier) for place in range(3)] for tier in range(2)]
    if rule == "precision":
        values[1] = values[0]
    truth = [np.concatenate([of_tier[place] for of_tier in values]).mean() for place in range(3)]
    noise, draws = Noise(), 150
    hits = np.zeros(3, dtype=int)
    for _ in range(draws):
        tallies = [perturb_column(mechanism, tier, columns, noise) for tier, columns in zip(tiers, values, strict=True)]
        means, _ = estimate_means(mechanism, tallies, confidence=0.95, rule=rule)
        hits += [mean.lower <= true <= mean.upper for mean, true in zip(means, truth, strict=True)]
    assert all(covered(int(each), draws) for each in hits), hits


def test_intervals_of_means_cover_for_every_method() -> None:
    for method in ["duchi", "harmony", "laplace", "square-wave", "published"]:
        parameters = {"as_published": True} if method == "published" else {"method": method}
        quantities = tuple(Quantity(name=f"q{i}", low=0, high=100, steps=64) for i in range(3))
        mechanism = LocalNumeric(quantities=quantities, epsilon=2, **parameters)
        values, noise, draws = [skewed(30, place) for place in range(3)], Noise(), 200
        hits = 0
        for _ in range(draws):
            tally = perturb_column(mechanism, "all", values, noise)
            means, _ = estimate_means(mechanism, [tally], confidence=0.95, rule="auto")
            hits += means[0].lower <= values[0].mean() <= means[0].upper
        assert covered(hits, draws), hits


def test_intervals_of_means_over_present_values_cover() -> None:
    for num in [30, 600]:
        quantity = Quantity(name="load", low=0, high=20, missing="symbol")
        mechanism = LocalNumeric(quantities=(quantity,), epsilon=2)
        values, noise, draws = np.random.default_rng(1).uniform(2, 9, num), Noise(), 200
        values[::3] = np.nan
        hits = shares = 0
        for _ in range(draws):
            means, presences = estimate_means(
                mechanism, [perturb_column(mechanism, "all", [values], noise)], confidence=0.95, rule="auto"
            )
            hits += means[0].lower <= np.nanmean(values) <= means[0].upper
            shares += presences[0].lower <= 2 / 3 <= presences[0].upper
        assert covered(hits, draws)
        assert covered(shares, draws)


def positions(num: int, seed: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    lon, lat = np.clip(generator.beta(2, 6, num) + shift, 0, 1), generator.beta(2, 3, num)
    lon[::10] = 5.0
    return lon, lat


PLACES: list[dict[str, Any]] = [
    {},
    {"method": "randomised-response"},
    {"method": "symmetric-unary"},
    {"method": "hadamard"},
    {"area_in_clear": True},
    {"area_in_clear": True, "method": "hadamard"},
    {"as_published": True},
    {"method": "planar"},
]


@pytest.mark.parametrize("parameters", PLACES, ids=str)
@pytest.mark.parametrize(("num", "shift"), [(15, 0.0), (1000, 0.4)], ids=str)
def test_intervals_of_places_cover(num: int, shift: float, parameters: dict[str, Any]) -> None:
    """Two tiers; with a shift the second has other places. One cell of each draw counts, so that draws are apart."""
    planar = parameters.get("method") == "planar"
    tiers = tuple(Tier(name=e, epsilon=e) for e in (("0.1", "0.2") if planar else ("0.5", "3")))
    mechanism = LocalLocation(grid=SMALL, tiers=tiers, **parameters)
    places = [positions(num, 3 + tier, shift * tier) for tier in range(2)]
    inside = [(lon.clip(0, 1), lat) if planar else (lon, lat) for lon, lat in places]
    cells = np.concatenate([find_cells(SMALL, *each) for each in inside])
    truth = np.bincount(cells, minlength=17) / len(cells)
    noise, draws, hits = Noise(), 96 if planar else 255, 0
    for draw in range(draws):
        tallies = [perturb_column(mechanism, tier, columns, noise) for tier, columns in zip(tiers, places, strict=True)]
        found = estimate_shares(mechanism, tallies, confidence=0.95, rule="auto")
        cell = draw % found.value.size
        hits += found.lower[cell] <= truth[cell] <= found.upper[cell]
        assert math.isclose(found.value.sum(), 1)
        assert ((found.lower <= found.value) & (found.value <= found.upper)).all()
        assert found.lower.min() >= 0
        assert found.upper.max() <= 1
    assert covered(hits, draws), hits


PATHS: list[dict[str, Any]] = [
    {},
    {"method": "hadamard"},
    {"area_in_clear": True},
    {"as_published": True},
    {"as_published": True, "method": "qlp"},
    {"as_published": True, "method": "qjlp"},
]


@pytest.mark.parametrize("parameters", PATHS, ids=str)
def test_intervals_of_paths_cover(parameters: dict[str, Any]) -> None:
    tiers = tuple(Tier(name=epsilon, epsilon=epsilon) for epsilon in ("1", "3"))
    mechanism = LocalTrajectory(grid=SMALL, steps=2, tiers=tiers, **parameters)
    places = [positions(400, 3 + tier, 0.3 * tier) for tier in range(2)]
    columns = [(lon, lat, np.where(lon > 1, lon, (lon + 0.2).clip(0, 1)), lat) for lon, lat in places]
    numbers = [
        mechanism.index(((each[0], each[1]), (each[2], each[3])))
        for of_tier in columns
        for each in zip(*of_tier, strict=True)
    ]
    truth = np.bincount(numbers, minlength=mechanism.channel("1").num_inputs) / len(numbers)
    often = np.argsort(-truth)[:20]
    noise, draws, hits = Noise(), 200, 0
    for draw in range(draws):
        tallies = [perturb_column(mechanism, tier, own, noise) for tier, own in zip(tiers, columns, strict=True)]
        found = estimate_shares(mechanism, tallies, confidence=0.95, rule="auto")
        path = often[draw % 20]
        hits += found.lower[path] <= truth[path] <= found.upper[path]
    assert covered(hits, draws), hits


# The whole


def test_reports_and_their_tallies_give_the_same() -> None:
    task, noise, reports = fleet_task("telemetry"), Noise(), []
    mechanism = mechanism_of(task, task.purposes[0])
    for number in range(40):
        tier = task.slot_tiers(task.purposes[0])[number % 2]
        payload = mechanism.perturb({"speed": float(number), "load": 3.0}, tier=tier, noise=noise)
        report_id = number.to_bytes(8, "big")
        facts: dict[str, Any] = {"task": task.prefix, "purpose": 0, "tier": number % 2, "day": 20000, "slot": 5}
        reports.append(Report(**facts, report_id=report_id, payload=payload))
    by_reports = estimate([*reports, reports[0]], task)
    none = dict.fromkeys(("damaged", "other_task", "impossible", "duplicate", "conflicting"), 0)
    assert by_reports.certificate.plain()["measures"]["left_out"] == {**none, "duplicate": 1}
    told = estimate(reports, task, left_out={"damaged": 3}).certificate.plain()["measures"]["left_out"]
    assert told == {**none, "damaged": 3}
    for wrong in ({"lost": 1}, {"damaged": -1}, {"damaged": True}):
        with pytest.raises(ParameterError, match="left_out"):
            estimate(reports, task, left_out=wrong)
    tallies = Tally.of_reports(task, reports)
    assert estimate(tallies, task).data.equals(by_reports.data)
    assert estimate(tallies.by_tier.values(), task).data.equals(by_reports.data)


def test_a_map_of_noise_is_refused_unless_allowed() -> None:
    task = fleet_task("places", grid=Grid(box=GRID.box, levels=5))
    tallies = fleet_tallies(task, num=30)
    with pytest.raises(Refusal, match=r"places would be noise\. 60 vehicles at epsilon 2, 1: use "):
        estimate(tallies, task)
    release = estimate(tallies, task, allow_noise=True)
    assert any("is noise" in warning for warning in release.certificate.plain()["warnings"])
    assert len(release.data) == 257


def test_few_paths_are_listed_and_the_rest_told_together() -> None:
    task = fleet_task("paths", grid=Grid(box=GRID.box, levels=5))
    release = estimate(fleet_tallies(task, num=2000), task, allow_noise=True)
    told = release.certificate.plain()["measures"]["paths"]["paths"]
    assert told["listed"] >= MAX_LISTED
    assert len(release.data) == told["listed"] + 1
    last = release.data.to_pylist()[-1]
    assert last["path"] == "other"
    assert math.isclose(sum(release.data.column("value").to_pylist()), 1)


def test_paths_are_written_as_cells() -> None:
    mechanism = LocalTrajectory(grid=SMALL, steps=2, epsilon=1)
    assert path_text(mechanism, mechanism.paths.index((0, 3))) == "0>3"
    assert path_text(mechanism, mechanism.channel("all").num_inputs - 1) == "outside"
    published = LocalTrajectory(grid=SMALL, steps=2, epsilon=1, as_published=True)
    assert path_text(published, published.paths.index((16, 3))) == "outside>3"


def test_what_cannot_be_estimated_is_refused() -> None:
    task = fleet_task("telemetry")
    tallies = fleet_tallies(task, num=20)
    with pytest.raises(InputError, match="none of this task"):
        estimate([], task)
    with pytest.raises(InputError, match="does not have"):
        estimate([Tally(purpose="other", tier="basic", num_reports=1)], task)
    with pytest.raises(ParameterError, match="confidence must lie"):
        estimate(tallies, task, confidence=95)
    with pytest.raises(ParameterError, match="combine must be one of"):
        estimate(tallies, task, combine="mean")
    with pytest.raises(ParameterError, match="another task"):
        estimate(Tallies(fleet_task("places")), task)
    with pytest.raises(ParameterError, match="give reports, or tallies"):
        estimate([1], task)  # type: ignore[list-item]


def test_a_tally_that_no_reports_add_up_to_is_refused() -> None:
    for spoil in [
        lambda tally: tally.parts.update({(9, "duchi"): Sums(1, 1, 1)}),
        lambda tally: tally.parts.update({(0, "no law"): Sums(1, 1, 1)}),
        lambda tally: tally.parts.update({(0, "duchi"): Sums(5, 9, 5)}),
        lambda tally: tally.parts.update({(0, "piecewise"): Sums(5, 10**9, 10**20)}),
        lambda tally: setattr(tally, "num_reports", 7),
    ]:
        task = fleet_task("telemetry")
        tally = fleet_tallies(task, num=20)[0]
        spoil(tally)
        with pytest.raises(InputError, match="add up"):
            estimate([tally], task)


def test_counts_that_no_reports_add_up_to_are_refused() -> None:
    for spoil, method in itertools.product(
        [
            lambda part: part.counts.__setitem__(0, part.num + 1),
            lambda part: part.counts.__setitem__(0, -1),
            lambda part: setattr(part, "counts", part.counts[:-1]),
            lambda part: setattr(part, "num", part.num + 1),
        ],
        ["optimised-unary", "hadamard"],
    ):
        task = fleet_task("places", places={"method": method})
        tally = fleet_tallies(task, num=500)[0]
        spoil(tally.parts[()])
        with pytest.raises(InputError, match="add up"):
            estimate([tally], task)


def test_tallies_of_one_tier_are_added_up_and_left_alone() -> None:
    task = fleet_task("places")
    first, second = (fleet_tallies(task, num=500, seed=seed) for seed in (1, 2))
    before = [tally.num_reports for tally in (*first, *second)]
    release = estimate([*first, *second], task)
    assert release.certificate.plain()["measures"]["reports"] == {"places": {"basic": 1000, "strict": 1000}}
    assert [tally.num_reports for tally in (*first, *second)] == before


def test_one_tier_needs_no_combination() -> None:
    task = fleet_task("telemetry")
    release = estimate(fleet_tallies(task)[:1], task)
    combined = release.certificate.plain()["measures"]["combined"]["telemetry"]
    assert {item["rule"] for item in combined.values()} == {"one tier"}
    assert TIERS[0].name in release.certificate.plain()["measures"]["reports"]["telemetry"]


def test_the_same_tally_does_not_count_twice() -> None:
    task = fleet_task("telemetry")
    tallies, others = fleet_tallies(task, 100), fleet_tallies(task, 100, seed=2)
    with pytest.raises(InputError, match="count twice"):
        estimate([*tallies, copy.deepcopy(tallies[1])], task)
    assert estimate([*tallies, *others], task).certificate.plain()["measures"]["reports"]["telemetry"]["basic"] == 200
    empty = Tally(purpose="telemetry", tier="basic")
    estimate([*tallies, empty, copy.deepcopy(empty)], task)
