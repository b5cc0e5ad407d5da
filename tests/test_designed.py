"""The designed law of one number: enumerated exactly, drawn on the device and in bulk, and against other laws."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from dunnage.auditing.carriers import number_guess
from dunnage.collecting.batch import number_symbols, perturb_column
from dunnage.collecting.estimate import estimate_means, moments_of
from dunnage.collecting.tally import Counts
from dunnage.devices.designs import DESIGNS
from dunnage.devices.numbers import Designed, LocalNumeric, Piecewise, designed, hybrid
from dunnage.devices.places import enumerated_loss
from dunnage.devices.subjects import Quantity
from dunnage.noise.source import Noise

EPSILONS = [Fraction(text) for text in ("0.1", "0.5", "0.9", "1", "1.6", "2", "3", "3.2", "4", "6")]


def chances(law: Designed, index: int) -> np.ndarray:
    odds = math.exp(float(law.epsilon))
    weights = [weight * (odds if index in arc else 1.0) for arc, weight in zip(law.arcs, law.weights, strict=True)]
    return np.array(weights) / sum(weights)


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_every_symbol_and_point_is_enumerated(epsilon: Fraction) -> None:
    law = Designed(epsilon=epsilon, steps=1024)
    assert enumerated_loss(law) == law.loss == epsilon
    for point in range(law.num_inputs):  # so all points have the same sum, whatever epsilon is
        assert sum(w for arc, w in zip(law.arcs, law.weights, strict=True) if point in arc) == law.around
        own, values = chances(law, point), np.array(law.values)
        number = point / law.points - 1
        assert float(own @ values) == pytest.approx(number, abs=1e-12)
        assert float(own @ values**2) - number**2 == pytest.approx(law.variance_at(number))
    assert np.allclose(law.values, -np.array(law.values)[[law.arcs.index(_mirrored(law, a)) for a in law.arcs]])
    # The worst variance is that of the worst number, rounding to points of the design included.
    dense = [law.variance_at(number) for number in np.linspace(-1, 1, 4001)]
    assert max(dense) <= law.worst() * (1 + 1e-12)
    assert law.worst() == pytest.approx(max(dense), rel=1e-4)
    assert law.quadratic == (law.worst(), 1.0)
    assert law.worst() < hybrid(epsilon=epsilon, steps=1024).worst()


def _mirrored(law: Designed, arc: range) -> range:
    return range(law.num_inputs - arc.stop, law.num_inputs - arc.start)


def test_worst_variance_beside_other_laws() -> None:
    ratios = {
        text: designed(epsilon=Fraction(text), steps=1024).worst() / hybrid(epsilon=Fraction(text), steps=1024).worst()
        for text in ("0.5", "1", "1.5", "2", "3", "4", "5", "6")
    }
    assert ratios["1"] < 0.94
    assert ratios["4"] < 0.80
    assert max(ratios.values()) < 1
    assert all(Fraction(text) <= 6 for text in DESIGNS)
    assert isinstance(designed(epsilon=Fraction(7), steps=4), Piecewise)


@pytest.mark.parametrize(("epsilon", "steps", "point"), [("1", 8, 3), ("4", 1024, -700), ("2", 1, 1), ("0.5", 3, 0)])
def test_draws_follow_the_law_on_the_device_and_in_bulk(epsilon: str, steps: int, point: int) -> None:
    law, noise = Designed(epsilon=Fraction(epsilon), steps=steps), Noise()
    below, rest = divmod((point + steps) * law.points, steps)
    expected = (1 - rest / steps) * chances(law, below)
    if rest:
        expected = expected + rest / steps * chances(law, below + 1)
    single = Counter(law.perturb(law.index_of(point, noise), noise) for _ in range(4_000))
    ((key, symbols),) = number_symbols(noise, law, np.full(200_000, point + steps))
    assert key == law.key
    for counts in (np.array([single[s] for s in range(len(law.arcs))]), np.bincount(symbols, minlength=len(law.arcs))):
        assert len(counts) == len(law.arcs)
        common = expected * counts.sum() >= 5
        seen = np.append(counts[common], counts[~common].sum())
        due = np.append(expected[common], expected[~common].sum()) * counts.sum()
        keep = due > 0
        assert chisquare(seen[keep], due[keep]).pvalue > 1e-9


def test_the_best_guess_of_a_bucket_is_that_of_all_symbols() -> None:
    law = Designed(epsilon=Fraction(2), steps=5)
    weights = np.random.default_rng(1).dirichlet(np.ones(4 * 11)).reshape(4, 11)  # (buckets, points)
    joint = np.zeros((4, len(law.arcs)))
    for point in range(11):
        below, rest = divmod(point * law.points, law.steps)
        own = (1 - rest / law.steps) * chances(law, below)
        own = own + (rest / law.steps * chances(law, below + 1) if rest else 0.0)
        joint += weights[:, [point]] * own
    assert number_guess(law, weights) == pytest.approx(joint.max(axis=0).sum())


def test_reports_and_estimates() -> None:
    speed = Quantity(name="speed", low=0, high=120, unit="km/h")
    numbers = LocalNumeric(quantities=(speed,), epsilon=2, method="designed")
    assert numbers.promise().guarantee.epsilon == 2
    noise, tier = Noise(), numbers.levels[0]
    rng = np.random.default_rng(3)
    true = np.clip(rng.normal(50, 20, 20_000), 0, 120)
    tally = perturb_column(numbers, tier, [true], noise)
    (mean,), _ = estimate_means(numbers, [tally], confidence=1 - 1e-9, rule="stratify")
    assert mean.lower <= true.mean() <= mean.upper
    assert mean.upper - mean.lower == pytest.approx(2 * 6.1 * numbers.predicted_sd(tier, 20_000)[0], rel=0.1)
    (part,) = tally.parts.values()
    assert isinstance(part, Counts)
    law = numbers.reading(tier, 0, "designed")
    num, value, squares = moments_of(law, part)
    values = np.repeat(law.values, part.counts)
    assert (num, value, squares) == pytest.approx((20_000, values.mean(), ((values - values.mean()) ** 2).sum()))
    assert perturb_column(numbers, tier, [true[:0]], noise).num_reports == 0
    payload = numbers.perturb({"speed": 60.0}, tier=tier, noise=noise)
    assert len(payload) == 1
    ((attribute, key, symbol),) = numbers.read(payload, tier=tier)
    assert (attribute, key) == (0, "designed")
    assert 0 <= symbol < len(law.arcs)
