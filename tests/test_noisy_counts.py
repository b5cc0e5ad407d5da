# SPDX-License-Identifier: Apache-2.0
"""NoisyCounts: laws of the noise, exact privacy, thresholds, universes too large to hold, refusals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.builders import RIDERS, a_trip_policy, trips
from tests.chance_help import chance_of
from tests.counts_help import counted, universe

import dunnage as dn
from dunnage.errors import ParameterError
from dunnage.kernels.counts.laplace import DiscreteLaplace, FloatingLaplace, FlooredLaplace, RoundedLaplace
from dunnage.mechanisms import counts as noisy_counts

WHOLE = (DiscreteLaplace, RoundedLaplace, FlooredLaplace)


def chance(kind: type, scale: float, value: int) -> float:
    """Probability of a value: of a Laplace number's integral over what is rounded to it, worked out anew."""
    if kind is DiscreteLaplace:
        ratio = math.exp(-1 / scale)
        return (1 - ratio) / (1 + ratio) * ratio ** abs(value)
    low = value - 0.5 if kind is RoundedLaplace else value
    if low <= -1:  # by symmetry, from its own end: else the small difference of two large numbers remains
        low = -1 - low
    if low < 0:  # around the middle
        return 1 - (math.exp(low / scale) + math.exp(-(low + 1) / scale)) / 2
    return (math.exp(-low / scale) - math.exp(-(low + 1) / scale)) / 2


def test_laws_are_those_of_rounded_laplace_numbers():
    """Chi-square on 200,000 draws: a probability of 0.1 that is off by a twentieth is found, all but surely."""
    for kind, scale in itertools.product(WHOLE, (Fraction(1, 2), Fraction(5), Fraction(50))):
        values = kind(scale).draw(dn.Noise(), 200_000)
        reach = int(4 * scale) + 2
        inner = np.array([chance(kind, float(scale), value) for value in range(-reach, reach + 1)])
        expected = np.append(inner, 1 - inner.sum()) * len(values)
        inside = np.abs(values) <= reach
        observed = np.append(np.bincount(values[inside] + reach, minlength=2 * reach + 1), (~inside).sum())
        assert chance_of(observed, expected) > 1e-9, (kind, scale)


def test_worst_ratio_of_a_cell_is_within_epsilon():
    """All outcomes of a cell, between every two counts that differ by one: dropped ones are a single outcome."""
    epsilon = 0.7
    for kind, threshold in itertools.product((RoundedLaplace, FlooredLaplace), (1, 3)):
        laws = []
        for count in range(13):
            chances = {value: chance(kind, 1 / epsilon, value - count) for value in range(threshold, 60)}
            dropped = sum(chance(kind, 1 / epsilon, value - count) for value in range(threshold - 200, threshold))
            laws.append({0: dropped, **chances})
        worst = max(max(one[v] / more[v], more[v] / one[v]) for one, more in itertools.pairwise(laws) for v in one)
        assert math.exp(0.9 * epsilon) < worst <= math.exp(epsilon) * (1 + 1e-9), (kind, threshold)


@pytest.mark.parametrize("rounding", ["discrete", "round", "floor"])
@pytest.mark.parametrize("dense", [True, False])
def test_released_counts_have_the_law(monkeypatch, rounding, dense, thorough):
    """A cell of 2 trips and three empty ones, by both paths."""
    monkeypatch.setattr(noisy_counts, "MAX_DENSE_CELLS", 1 << 22 if dense else 0)
    of, mechanism, noise = universe(2, 1), dn.NoisyCounts(epsilon=1, rounding=rounding, threshold=2), dn.Noise()
    kind = {law.name: law for law in (DiscreteLaplace, RoundedLaplace, FlooredLaplace)}[rounding]
    table, law = counted(of, [0, 2, 0, 0]), kind(Fraction(1))
    found = np.zeros((4_000 if thorough else 2_000, 4), dtype=np.int64)
    for row in found:
        drawn = mechanism.draw_counts(table, law, noise)
        row[drawn.cells] = drawn.counts
    for cell, count in enumerate([0, 2, 0, 0]):
        chances = np.array([chance(kind, 1.0, value - count) for value in range(2, 8)])
        above = sum(chance(kind, 1.0, other) for other in range(8 - count, 80))
        expected = np.concatenate(([1 - chances.sum() - above], chances, [above]))
        observed = np.bincount(np.minimum(np.where(found[:, cell], found[:, cell] - 1, 0), 7), minlength=8)
        assert chance_of(observed, expected * len(found)) > 1e-9


def test_a_trillion_cells():
    of = universe(100_000, 100)
    cells = np.sort(np.random.default_rng(1).choice(of.num_cells, 1_000, replace=False))
    table = noisy_counts.Counted(universe=of, cells=cells, counts=np.full(1_000, 60))
    drawn = dn.NoisyCounts(epsilon=1, threshold=30).draw_counts(table, RoundedLaplace(Fraction(1)), dn.Noise())
    assert np.isin(cells, drawn.cells).mean() > 0.99
    created = len(drawn.cells) - 1_000
    assert created < 3 * 1e12 * RoundedLaplace(Fraction(1)).above(30) + 60
    assert (np.diff(drawn.cells) > 0).all()


def test_as_published_rounds_floating_noise():
    of = universe(3, 2)
    mechanism = dn.NoisyCounts(epsilon=1, as_published=True)
    assert (mechanism.rounding, dn.NoisyCounts(epsilon=1).rounding) == ("round", "discrete")
    drawn = mechanism.draw_counts(counted(of, [50] * 18), FloatingLaplace(Fraction(1)), dn.Noise())
    assert len(drawn.cells) == 18
    assert drawn.figures["noise"].law == "floating"


def test_bad_parameters_are_refused():
    for parameters, what in (
        ({"epsilon": -1}, "epsilon"),
        ({"rounding": "up"}, "rounding"),
        *(({"threshold": threshold}, "threshold") for threshold in (0, 1.5, True, 10**30)),
        ({"as_published": 1}, "as_published"),
        ({"as_published": True, "rounding": "discrete"}, "as_published"),
    ):
        with pytest.raises(ParameterError, match=what):
            dn.NoisyCounts(**{"epsilon": 1, **parameters})


def test_noise_and_loss_grow_with_the_trips_of_a_rider():
    """A rider changes as many counts as are counted of him; a trip more of one with too many replaces another."""
    for most in (1, 2, 3):
        bound = {**RIDERS["contribution"], "max": most}
        policy = a_trip_policy({"name": "noisy-counts", "epsilon": 2}, **{**RIDERS, "contribution": bound})
        data = dn.load(trips(), policy)
        assert noisy_counts.NoisyCounts(epsilon=2).law(data).scale == Fraction(most, 2)
        queries = noisy_counts.ConstrainedCounts(epsilon=2).asked(data)
        shares = [
            most / (query.share * 2) for query in noisy_counts.ConstrainedCounts(epsilon=2).queries(policy.schema)
        ]
        assert [law.scale for law in queries.laws] == shares
        loss = noisy_counts.NoisyCounts(epsilon=2).losses(policy.schema, None)
        assert (Fraction(loss.trip), loss.rider) == (Fraction(4, most), 2)
