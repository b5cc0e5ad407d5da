# SPDX-License-Identifier: Apache-2.0
"""NoisyCounts: laws of the noise, exact privacy, thresholds, universes too large to hold, refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from tests.chance_help import chance_of
from tests.counts_help import counted, universe

from dunnage.errors import ParameterError
from dunnage.kernels.counts.laplace import DiscreteLaplace, FloatingLaplace, FlooredLaplace, RoundedLaplace, surplus
from dunnage.mechanisms import counts as noisy_counts
from dunnage.mechanisms.counts import NoisyCounts
from dunnage.noise.source import Noise

WHOLE = (DiscreteLaplace, RoundedLaplace, FlooredLaplace)


def chance(kind: type, scale: float, value: int) -> float:
    """Probability of a value: of a Laplace number's integral over what is rounded to it, worked out anew."""
    if kind is DiscreteLaplace:
        ratio = math.exp(-1 / scale)
        return (1 - ratio) / (1 + ratio) * ratio ** abs(value)
    low = value - 0.5 if kind is RoundedLaplace else value
    if low >= 0:  # from its own end, or the small difference of two large numbers remains
        return float(stats.laplace.sf(low, scale=scale) - stats.laplace.sf(low + 1, scale=scale))
    return float(stats.laplace.cdf(low + 1, scale=scale) - stats.laplace.cdf(low, scale=scale))


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(5), Fraction(50)])
def test_laws_are_those_of_rounded_laplace_numbers(kind, scale):
    """Chi-square on 200,000 draws: a probability of 0.1 that is off by a twentieth is found, all but surely."""
    values = kind(scale).draw(Noise(), 200_000)
    reach = int(4 * scale) + 2
    inner = np.array([chance(kind, float(scale), value) for value in range(-reach, reach + 1)])
    expected = np.append(inner, 1 - inner.sum()) * len(values)
    inside = np.abs(values) <= reach
    observed = np.append(np.bincount(values[inside] + reach, minlength=2 * reach + 1), (~inside).sum())
    assert chance_of(observed, expected) > 1e-9


@pytest.mark.parametrize("kind", WHOLE)
def test_spread_above_and_surplus(kind):
    scale = Fraction(7, 3)
    law, values = kind(scale), range(-400, 401)
    table = {value: chance(kind, float(scale), value) for value in values}
    assert law.spread == pytest.approx(math.sqrt(sum(p * value**2 for value, p in table.items())))
    for threshold in (1, 2, 9):
        above = {value: p for value, p in table.items() if value >= threshold}
        assert law.above(threshold) == pytest.approx(sum(above.values()))
        assert surplus(law, threshold) == pytest.approx(sum(p * value for value, p in above.items()))


@pytest.mark.parametrize("rounding", ["round", "floor"])
@pytest.mark.parametrize("threshold", [1, 3])
def test_worst_ratio_of_a_cell_is_within_epsilon(rounding, threshold):
    """All outcomes of a cell, between every two counts that differ by one: dropped ones are a single outcome."""
    epsilon = 0.7
    kind = RoundedLaplace if rounding == "round" else FlooredLaplace

    def law(count: int) -> dict[int, float]:
        chances = {value: chance(kind, 1 / epsilon, value - count) for value in range(threshold, 60)}
        dropped = sum(chance(kind, 1 / epsilon, value - count) for value in range(threshold - 200, threshold))
        return {0: dropped, **chances}

    worst = 0.0
    for count in range(12):
        one, more = law(count), law(count + 1)
        worst = max(worst, *(max(one[v] / more[v], more[v] / one[v]) for v in one))
    assert math.exp(0.9 * epsilon) < worst <= math.exp(epsilon) * (1 + 1e-9)


@pytest.mark.parametrize("rounding", ["round", "floor"])
@pytest.mark.parametrize("dense", [True, False])
def test_released_counts_have_the_law(monkeypatch, rounding, dense):
    """A cell of 2 trips and three empty ones, by both paths; 6,000 releases."""
    monkeypatch.setattr(noisy_counts, "MAX_DENSE_CELLS", 1 << 22 if dense else 0)
    of, mechanism, noise = universe(2, 1), NoisyCounts(epsilon=1, rounding=rounding, threshold=2), Noise()
    kind = RoundedLaplace if rounding == "round" else FlooredLaplace
    table, law = counted(of, [0, 2, 0, 0]), kind(Fraction(1))
    found = np.zeros((6_000, 4), dtype=np.int64)
    for row in found:
        drawn = mechanism.draw_counts(table, law, noise)
        row[drawn.cells] = drawn.counts
    for cell, count in enumerate([0, 2, 0, 0]):
        chances = np.array([chance(kind, 1.0, value - count) for value in range(2, 8)])
        expected = np.concatenate(
            ([1 - chances.sum() - law_above(kind, 8 - count)], chances, [law_above(kind, 8 - count)])
        )
        observed = np.bincount(np.minimum(np.where(found[:, cell], found[:, cell] - 1, 0), 7), minlength=8)
        assert chance_of(observed, expected * len(found)) > 1e-9


def law_above(kind: type, value: int) -> float:
    return sum(chance(kind, 1.0, other) for other in range(value, 80))


def test_a_trillion_cells():
    of = universe(100_000, 100)
    cells = np.sort(np.random.default_rng(1).choice(of.num_cells, 1_000, replace=False))
    table = noisy_counts.Counted(universe=of, cells=cells, counts=np.full(1_000, 60))
    drawn = NoisyCounts(epsilon=1, threshold=30).draw_counts(table, RoundedLaplace(Fraction(1)), Noise())
    assert np.isin(cells, drawn.cells).mean() > 0.99
    created = len(drawn.cells) - 1_000
    assert created < 3 * 1e12 * RoundedLaplace(Fraction(1)).above(30) + 60
    assert (np.diff(drawn.cells) > 0).all()


def test_as_published_rounds_floating_noise():
    of = universe(3, 2)
    mechanism = NoisyCounts(epsilon=1, as_published=True)
    drawn = mechanism.draw_counts(counted(of, [50] * 18), FloatingLaplace(Fraction(1)), Noise())
    assert len(drawn.cells) == 18
    assert drawn.figures["noise"].law == "floating"


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": 1, "rounding": "up"}, "rounding"),
        ({"epsilon": 1, "threshold": 0}, "threshold"),
        ({"epsilon": 1, "threshold": 1.5}, "threshold"),
        ({"epsilon": 1, "threshold": True}, "threshold"),
        ({"epsilon": 1, "threshold": 10**30}, "threshold"),
        ({"epsilon": 1, "as_published": 1}, "true or false"),
    ],
)
def test_bad_parameters_are_refused(parameters, what):
    with pytest.raises(ParameterError, match=what):
        NoisyCounts(**parameters)
