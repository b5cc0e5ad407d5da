# SPDX-License-Identifier: Apache-2.0
"""Laws of noise on a grid against slow, independent laws in decimals of 60 digits, point by point.

The oracle knows the laws by their definition alone: discrete Laplace weights added up beyond either end, and windows
of outcomes counted one by one. Statistical tests fail only below p = 1e-9.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.refusals import refusal

from dunnage.errors import ParameterError
from dunnage.model.domains import Numeric
from dunnage.model.laws import LAWS, Cell, Cells, exp_bounds
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise

ALPHA = 1e-9
DIGITS = 60
TINY = Fraction(1, 10**50)
CONFIDENCES = [Fraction(0), Fraction(1, 2), Fraction(7, 10), Fraction(9, 10), Fraction(99, 100)]
EPSILONS = [Fraction(1, 10), Fraction(1), Fraction(10, 3), Fraction(8)]
LASTS = [0, 1, 2, 3, 7, 40]
KINDS = sorted(LAWS)


def decimal(number):
    number = Fraction(number)
    return Decimal(number.numerator) / Decimal(number.denominator)


def laplace_row(last, epsilon, truth):
    """Probabilities of seeing 0..last: weights ratio^|i - truth|, those beyond an end added to the end."""
    if last == 0:
        return [Decimal(1)]
    ratio = (-decimal(epsilon) / last).exp()
    row = [ratio ** abs(i - truth) for i in range(last + 1)]
    row[0] += row[0] * ratio / (1 - ratio)
    row[-1] += row[-1] * ratio / (1 - ratio)
    total = 1 + 2 * ratio / (1 - ratio)
    return [weight / total for weight in row]


def piecewise_row(last, epsilon, half, truth):
    """Probabilities of seeing 0..last: outcomes -half..last + half, those of the window e^epsilon times as likely."""
    growth = decimal(epsilon).exp()
    row = [Decimal(0)] * (last + 1)
    for outcome in range(-half, last + half + 1):
        row[min(max(outcome, 0), last)] += growth if abs(outcome - truth) <= half else 1
    total = sum(row)
    return [weight / total for weight in row]


@cache
def oracle(law):
    """All probabilities, truth by seen, as fractions that are right to 55 digits."""
    with localcontext() as context:
        context.prec = DIGITS
        if law.name == "laplace":
            rows = [laplace_row(law.last, law.epsilon, truth) for truth in range(law.last + 1)]
        else:
            rows = [piecewise_row(law.last, law.epsilon, law.half, truth) for truth in range(law.last + 1)]
    return [[Fraction(chance) for chance in row] for row in rows]


def growth(epsilon):
    """Return e to the epsilon, to 60 digits."""
    with localcontext() as context:
        context.prec = DIGITS
        return Fraction(decimal(epsilon).exp())


def made(kind, last, epsilon, confidence):
    return LAWS[kind](last=last, epsilon=Fraction(epsilon), confidence=Fraction(confidence))


ALL_LAWS = [made(*given) for given in itertools.product(KINDS, LASTS, EPSILONS, CONFIDENCES)]


def test_likelihood_evidence_ratio_and_coverage():
    for law in ALL_LAWS:
        exact = oracle(law)
        table, points = np.array(exact, dtype=float), np.arange(law.last + 1)
        assert np.allclose(np.exp(law.log_likelihood(points[None, :], points[:, None])), table, rtol=1e-11, atol=0)
        assert np.allclose(law.evidence(points), table.mean(axis=0), rtol=1e-11, atol=0)
        worst = max(max(column) / min(column) for column in zip(*exact, strict=True))
        assert worst <= growth(law.epsilon) * (1 + TINY), "the ratio is kept"
        # A window as wide as the range hides more than it must: nothing narrower would give the confidence.
        if law.last and (law.name == "laplace" or law.half < law.last - 1):
            assert worst >= growth(law.epsilon) * (1 - TINY), "and not wasted"
        if not law.confidence:
            assert (law.radius, law.coverage) == (-1, 0)
            continue
        reach = law.radius
        covered = [sum(row[max(0, truth - reach) : truth + reach + 1]) for truth, row in enumerate(exact)]
        assert law.confidence <= law.coverage <= min(covered) + TINY, "for every point"


def test_miss_is_the_worst_case_and_reach_the_smallest():
    for law in ALL_LAWS:
        for reach in range(law.last + 1):
            worst = max(sum(row[: max(0, truth - reach)]) for truth, row in enumerate(oracle(law)))
            assert -TINY <= law.miss(reach) - worst < Fraction(1, 10**30)
        for risk in (Fraction(1, 2), Fraction(1, 10), Fraction(1, 1000), Fraction(0)):
            reach = law.reach(risk)
            assert law.miss(reach) <= risk
            assert reach == 0 or law.miss(reach - 1) > risk


def test_radii_are_not_wider_than_needed():
    for last, epsilon, confidence in itertools.product([1, 5, 60, 1000], EPSILONS, CONFIDENCES[1:]):
        laplace = made("laplace", last, epsilon, confidence)
        assert laplace.radius == 0 or 1 - 2 * laplace.miss(laplace.radius - 1) < confidence
        window = made("piecewise", last, epsilon, confidence).radius
        narrower = (2 * window - 1) * math.exp(epsilon)
        assert window == 0 or narrower / (narrower + last) < confidence


def test_perturb_follows_the_law():
    sizes = [(1, 1), (6, 2), (30, 5), (5000, Fraction(1, 2))]
    for kind, confidence, (last, epsilon) in itertools.product(KINDS, (Fraction(0), Fraction(9, 10)), sizes):
        law, points, num = made(kind, last, epsilon, confidence), np.arange(last + 1), 60_000
        for truth in sorted({0, last // 3, last}):
            drawn = law.perturb(np.full(num, truth), Noise())
            assert drawn.min() >= 0
            assert drawn.max() <= last
            expected = num * np.exp(law.log_likelihood(points, truth))
            # Neighbouring points are added up until at least 20 draws are expected.
            group = np.minimum(np.cumsum(expected) // 20, expected.sum() // 20 - 1).astype(int)
            group = np.unique(group, return_inverse=True)[1]
            counts = np.bincount(group[drawn], minlength=group.max() + 1)
            shares = np.bincount(group, expected)
            chance = stats.chisquare(counts, shares * num / shares.sum()).pvalue if group.max() else 1
            assert chance > ALPHA, (law, truth)


def test_large_and_single_grids():
    for kind in KINDS:
        law, truth = made(kind, 2**45, 35, Fraction(9, 10)), 2**44
        drawn = law.perturb(np.full(20_000, truth), Noise())
        inside = int((np.abs(drawn - truth) <= law.radius).sum())
        assert stats.binomtest(inside, 20_000, float(law.coverage), alternative="less").pvalue > ALPHA
        noise, single = Noise(), made(kind, 0, 1, Fraction(9, 10))
        assert single.perturb(np.zeros(5, dtype=np.int64), noise).tolist() == [0] * 5
        assert (single.radius, single.coverage, single.miss(0)) == (0, 1, 0)
        assert noise.bytes_drawn == 0, "a single point needs no randomness"
        for epsilon, confidence in ((0, 0), (-1, 0), (701, 0), (1, 1), (1, -1)):
            word = "epsilon" if confidence == 0 else "confidence"
            assert word in str(refusal(ParameterError, made, kind, 5, epsilon, confidence))
    assert made("piecewise", 2**50, Fraction(1, 10**600), 0).half == 2**50
    refusal(ParameterError, made, "laplace", 2**45, Fraction(1, 100), Fraction(1, 2))  # beyond 64 bits


@given(st.fractions(min_value=-700, max_value=700, max_denominator=10**9))
def test_exp_bounds_enclose(exponent):
    low, high = exp_bounds(exponent)
    with localcontext() as context:
        context.prec = 80
        true = Fraction(decimal(exponent).exp())
    assert low < true * (1 + Fraction(1, 10**70))
    assert high > true * (1 - Fraction(1, 10**70))
    assert high - low <= true / 10**35


def domain(lower=0, upper=12, resolution=1):
    return Numeric(lower=lower, upper=upper, resolution=resolution, unit="kg")


def cut(grid, borders, kind="laplace", epsilon=2, confidence=Fraction(9, 10)):
    given_borders = [Fraction(border) for border in borders]
    return Cells.cut(grid, given_borders, law=kind, epsilon=Fraction(epsilon), confidence=Fraction(confidence))


def values_everywhere(grid):
    """Grid points, points halfway, eighths between, and the doubles next to all of these, within the domain."""
    eighths = np.array([float(grid.lower + i * grid.resolution / 8) for i in range(8 * grid.num_steps + 1)])
    near = np.concatenate([eighths, np.nextafter(eighths, -math.inf), np.nextafter(eighths, math.inf)])
    return np.unique(near[grid.contains(near)])


GRIDS = [domain(), domain(-3, 3, "1/2"), domain("0.1", "2.5", "0.3"), domain(1000, 1002, "0.1")]


def seen_probabilities(cells, value):
    """Every grid point with its probability given a true value, by the oracle."""
    step = int(cells.steps([value])[0])
    cell = cells.cells[int(cells.index(np.array([step]))[0])]
    row = oracle(cell.law)[step - cell.first]
    return np.arange(cell.first, cell.end + 1), np.array(row, dtype=float)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid.lower}..{grid.upper}")
def test_intervals_cover_every_value_on_and_off_the_grid(kind, grid):
    every, values = grid.grid_values(np.arange(grid.num_steps + 1)), values_everywhere(grid).tolist()
    for confidence, num_borders in itertools.product(CONFIDENCES[1:], (0, 2)):
        cells = cut(grid, [grid.lower + grid.resolution * i for i in (1, 5)[:num_borders]], kind, 2, confidence)
        lower, upper = cells.interval(every)
        assert (lower >= grid.lower_float).all()
        assert (upper <= grid.upper_float).all()
        assert ((lower <= every) & (every <= upper)).all()
        above = cells.upper(every, (1 - confidence) / 2)
        for value in values:
            seen, chances = seen_probabilities(cells, value)
            inside = (lower[seen] <= value) & (value <= upper[seen])
            assert chances[inside].sum() >= float(confidence) - 1e-12
            assert chances[value > above[seen]].sum() <= float(1 - confidence) / 2 + 1e-12
    for value in values:  # steps are the nearest, halves up; a double stands for the decimal it prints as
        wanted = math.floor((Fraction(repr(value)) - grid.lower) / grid.resolution + Fraction(1, 2))
        assert cells.steps([value]).tolist() == [min(wanted, grid.num_steps)]
    described = cut(grid, [grid.lower + 2 * grid.resolution], kind, Fraction(10, 3), Fraction(7, 10)).describe()
    again = Cells.of(grid, described)
    assert again == cut(grid, [grid.lower + 2 * grid.resolution], kind, Fraction(10, 3), Fraction(7, 10))
    assert [item["law"] for item in described] == [kind] * 2
    for item, cell in zip(described, again.cells, strict=True):
        assert float(cell.law.coverage) - 2e-6 <= item["coverage"] <= cell.law.coverage


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_steps_of_any_grid(data):
    resolution = Fraction(data.draw(st.integers(1, 400)), 10 ** data.draw(st.integers(0, 3)))
    lower = Fraction(data.draw(st.integers(-(10**6), 10**6)), 10 ** data.draw(st.integers(0, 3)))
    grid = Numeric(lower=lower, upper=lower + data.draw(st.integers(1, 500)) * resolution, resolution=resolution)
    cells = cut(grid, [])
    value = data.draw(st.floats(grid.lower_float, grid.upper_float))
    step = int(cells.steps([value])[0])
    place = (Fraction(repr(value)) - grid.lower) / resolution
    assert abs(place - step) <= Fraction(1, 2) + Fraction(1, 10**6)


def test_noisy_values_stay_in_their_cell_and_follow_its_law():
    num = 40_000
    for kind in KINDS:
        cells = cut(domain(), [3, 4, 9], kind, Fraction(1, 2))
        values = np.repeat(np.arange(0, 12.25, 0.25), 50)
        drawn = cells.perturb(values, Noise())
        assert domain().on_grid(drawn).all()
        assert (cells.index(cells.steps(drawn)) == cells.index(cells.steps(values))).all()
        cells = cut(domain(), [3, 9], kind, 3)
        for value in (0, 2.2, 5, 12):
            seen, chances = seen_probabilities(cells, value)
            counts = np.bincount(cells.perturb(np.full(num, value), Noise()).astype(int), minlength=13)
            assert counts.sum() == counts[seen].sum()
            assert stats.chisquare(counts[seen], num * chances / chances.sum()).pvalue > ALPHA


def test_cells():
    """Borders are the first points of the cells above; without confidence the interval is the value."""
    cells = cut(domain(), [3, 4, 12])
    assert [(cell.first, cell.end) for cell in cells.cells] == [(0, 2), (3, 3), (4, 11), (12, 12)]
    found = cells.index(cells.steps([0, 2, 2.4, 2.5, 3, 3.49, 3.5, 11.49, 11.5, 12])).tolist()
    assert found == [*(0, 0, 0, 1, 1, 1, 2, 2, 3, 3)]
    cells, every = cut(domain(), [4], confidence=0), np.arange(13.0)
    assert [side.tolist() for side in cells.interval(every)] == [every.tolist()] * 2
    assert cells.miss(every) == [1] * 13
    assert cells.describe()[0]["radius"] == 0
    cells = cut(domain(), [4], epsilon=8, confidence=Fraction(1, 2))
    small, large = (cell.law.miss(cell.law.radius) for cell in cells.cells)
    assert small != large
    assert cells.miss([0, 5, 6]) == [small, large, large]
    for described in ([], [{}], [1], None, [{"law": "gauss", "epsilon": 1, "confidence": 0}], "x"):
        refusal(ParameterError, Cells.of, domain(), described)
    for borders in ([0], [13], [-1], ["1/2"], [4, 4], [5, 4]):
        refusal(ParameterError, cut, domain(), borders)
    refusal(ParameterError, cut, Numeric(lower=0, upper=1), [])
    for first in (0, 1):  # they do not reach the end, or do not begin at the beginning
        refusal(ParameterError, Cells, domain(), (Cell(first, made("laplace", 3, 1, 0)),))


@pytest.mark.parametrize(
    ("yes", "no", "x"), [(1, 1, 0), (3, 5, 1), (1, 100, Fraction(7, 2)), (7, 2**40, 30), (1, 1, 20)]
)
@pytest.mark.parametrize("layout", [None, (2, 4, 2), (3, 3, 1)])
def test_odds(yes, no, x, layout, monkeypatch):
    if layout:
        monkeypatch.setattr(noise_arrays, "_LAYOUT", noise_arrays._Layout(*layout))
    num = 10_000 if layout else 200_000
    drawn = noise_arrays.bernoulli_odds(Noise(), yes, no, x, num)
    chance = yes / (yes + no * math.exp(-x))
    assert drawn.dtype == bool
    assert stats.binomtest(int(drawn.sum()), num, chance).pvalue > ALPHA


@given(st.integers(1, 2**50), st.integers(1, 2**50), st.fractions(0, 700, max_denominator=1000), st.integers(1, 200))
def test_odds_are_enclosed_at_every_precision(yes, no, x, bits):
    laws = []

    class Kept:
        def __init__(self, law, layout):
            laws.append(law)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_arrays, "_LawTable", Kept)
        noise_arrays._bernoulli_odds_table.__wrapped__(yes, no, x, noise_arrays._LAYOUT)
    with localcontext() as context:
        context.prec = 500
        true = Fraction(yes / (yes + no * (-decimal(x)).exp())) * 2**bits
    ((low, high),) = laws[0](bits)
    assert low - Fraction(1, 10**100) <= true <= high + Fraction(1, 10**100)
    assert high - low <= 3


def test_sure_and_senseless_odds():
    noise = Noise()
    assert noise_arrays.bernoulli_odds(noise, 1, 0, 5, 4).tolist() == [True] * 4
    assert noise_arrays.bernoulli_odds(noise, 0, 1, 5, 4).tolist() == [False] * 4
    assert noise.bytes_drawn == 0
    for arguments in ((0, 0, 1), (-1, 1, 1), (1, 1, -1)):
        refusal(ParameterError, noise_arrays.bernoulli_odds, noise, *arguments, 4)
