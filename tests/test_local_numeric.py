# SPDX-License-Identifier: Apache-2.0
"""Laws of numbers and whole reports: what they give away by enumeration, exact means, variances, payloads.

Means and second moments are checked exactly, with a rational number in the place of E = e^epsilon. Each identity is
one of rational functions of E whose numerators, cleared of denominators, have degree at most 4; so the nine values
of :data:`ODDS` prove it for all E.
"""

from __future__ import annotations

import itertools
import math
import random
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chance_help import chance_of

from dunnage.devices.numbers import (
    HYBRID_FROM,
    HYBRID_TO,
    Duchi,
    Hybrid,
    JointDuchi,
    LaplaceNumber,
    LiteralPiecewise,
    LocalNumeric,
    Piecewise,
    PublishedPiecewise,
    Reading,
    SampledReport,
    SquareWave,
    Warner,
    attributes_of,
    best_window,
    combination,
    hybrid,
    joint_report,
    literal_coin,
    num_sampled,
    odds_coin,
    odds_of,
    published_report,
    sampled_report,
    window_moments,
)
from dunnage.devices.places import enumerated_loss, spread
from dunnage.devices.subjects import Quantity
from dunnage.devices.task import Tier
from dunnage.errors import ParameterError, ReportError
from dunnage.model.guarantees import Basis, Neighbours
from dunnage.noise.source import Noise

ALPHA = 1e-9
EPSILONS = [Fraction(text) for text in ("0.01", "0.25", "0.5", "0.61", "1", "4/3", "2", "5", "10")]
ODDS = [Fraction(text) for text in ("1.01", "1.5", "2", "2.7", "4", "7", "20", "150", "30000")]
FINITE = [Warner, Duchi, Piecewise, PublishedPiecewise, SquareWave, Hybrid]
WINDOWS = [Piecewise, PublishedPiecewise, SquareWave]
PINNED = ["1c8e", "0100", "0600", "1e8e", "5942", "0700", "1d8e", "238e"]
METHODS = ["hybrid", "piecewise", "harmony", "laplace", "square-wave", "duchi"]


def quantities(num, steps=1, **more):
    return [Quantity(name=f"q{at}", low=-1, high=1, steps=steps, **more) for at in range(num)]


def attributes(num, steps=1, **more):
    return attributes_of(quantities(num, steps, **more))


def law_at(law, index, odds):
    """The law of an input with a rational number in the place of E: probabilities by symbol, exact."""
    powers = {symbol: law.exponent(index, symbol) / law.epsilon for symbol in law.symbols()}
    assert all(power.denominator == 1 for power in powers.values())
    weights = {symbol: odds ** int(power) for symbol, power in powers.items()}
    total = sum(weights.values())
    return {symbol: weight / total for symbol, weight in weights.items()}


def float_law(channel, index):
    """The law of an input in floats, all bases being equal."""
    weights = {symbol: math.exp(channel.exponent(index, symbol)) for symbol in channel.symbols()}
    total = sum(weights.values())
    return {symbol: weight / total for symbol, weight in weights.items()}


def check_law(draws, expected):
    """Chi-square test of draws against probabilities, rare outcomes put together."""
    seen, num = Counter(draws), len(draws)
    assert set(seen) <= set(expected)
    rarest_first = sorted(expected, key=expected.__getitem__)
    wanted = [expected[outcome] * num for outcome in rarest_first]
    assert chance_of([seen[outcome] for outcome in rarest_first], wanted) > ALPHA


# What a symbol gives away


def test_enumerated_loss_is_epsilon():
    for epsilon, steps, law in itertools.product(EPSILONS, [1, 2, 3, 5], FINITE):
        found = law(epsilon=epsilon, steps=steps)
        assert found.loss == epsilon == enumerated_loss(found)


def test_laplace_loss():
    for epsilon, steps in itertools.product(EPSILONS, [1, 2, 7]):
        law = LaplaceNumber(epsilon=epsilon, steps=steps)
        exponents = {o: [law.exponent(i, o) for i in range(law.num_inputs)] for o in range(-9 * steps, 9 * steps + 1)}
        losses = [spread(each) for each in exponents.values()]
        # Beyond the points all exponents fall alike, so that the window shows all there is.
        assert max(losses) == law.loss == epsilon == losses[0] == losses[-1]
        with pytest.raises(ParameterError, match="too many to list"):
            law.symbols()


def test_joint_duchi_loss():
    for epsilon, dimensions in itertools.product(EPSILONS, range(1, 7)):
        assert enumerated_loss(JointDuchi(epsilon=epsilon, dimensions=dimensions)) == epsilon


def test_ties_in_both_halves_would_lose_more():
    """As usually printed, a vector that ties is drawn in either half: its loss is ln(E + 1) (notes, 6)."""
    for dimensions in [2, 4]:
        odds, half = Fraction(3), dimensions / 2
        every = list(itertools.product((0, 1), repeat=dimensions))
        agree = lambda v, s: sum(a == b for a, b in zip(v, s, strict=True))  # noqa: E731
        closed = sum(agree(every[0], s) >= half for s in every)
        probabilities = [
            [(odds * (agree(v, s) >= half) + (agree(v, s) <= half)) / ((odds + 1) * closed) for v in every]
            for s in every
        ]
        assert max(max(row) / min(row) for row in probabilities) == odds + 1


def test_whole_report_loss():
    for method, (num, sampled) in itertools.product(
        ["hybrid", "piecewise", "harmony", "square-wave", "warner"], [(1, None), (2, 1), (2, 2), (3, 1)]
    ):
        for epsilon in (Fraction(1, 2), Fraction(3)):
            report = sampled_report(attributes(num), epsilon, method=method, sampled=sampled)
            assert report.loss == epsilon == enumerated_loss(report)


def test_whole_report_loss_with_two_of_three_and_unequal_steps():
    mixed = attributes_of([*quantities(2), Quantity(name="fine", low=0, high=9, steps=2, missing="symbol")])
    report = sampled_report(mixed, Fraction(1), method="harmony", sampled=2)
    assert len(mixed) == 4
    assert enumerated_loss(report) == report.loss == 1


def test_published_report_loses_epsilon_for_each_number():
    for num in [1, 2]:
        for epsilon in (Fraction(1, 2), Fraction(2)):
            report = published_report(attributes(num), epsilon)
            assert report.loss == num * epsilon == enumerated_loss(report)


def test_published_report_of_three_numbers_loses_three_epsilon():
    report = published_report(attributes(3), Fraction(1))
    ends = [0, report.num_inputs - 1]  # all numbers at the low end, all at the high end
    top = report._pack(0, [(at, law.last) for at, law in enumerate(report.laws)])
    symbol = int.from_bytes(top + b"\x01", "little")
    assert spread(report.exponent(index, symbol) for index in ends) == report.loss == 3


def test_joint_report_loss():
    for num in [1, 2, 3]:
        report = joint_report(attributes(num, 4), Fraction(3, 2))
        assert enumerated_loss(report) == report.loss == Fraction(3, 2)


# Exact means, second moments and variances


def test_windows_are_unbiased_exactly():
    for steps, law, epsilon in itertools.product([1, 2, 3, 5], WINDOWS, [Fraction(1, 4), Fraction(1), Fraction(5)]):
        found = law(epsilon=epsilon, steps=steps)
        for odds in ODDS:
            scale, (constant, square) = (
                found.scale_at(odds),
                window_moments(odds, found.steps, found.stride, found.half),
            )
            for index in range(found.num_inputs):
                probabilities, point = law_at(found, index, odds), Fraction(index - steps, steps)
                assert sum(scale * o * p for o, p in probabilities.items()) == point
                second = sum((scale * o) ** 2 * p for o, p in probabilities.items())
                assert second == constant + square * point**2


def test_signs_are_unbiased_exactly():
    for law in [Warner, Duchi]:
        found = law(epsilon=Fraction(1))
        for odds, index in itertools.product(ODDS, range(2)):
            scale = found.scale_at(odds)
            assert sum(scale * o * p for o, p in law_at(found, index, odds).items()) == 2 * index - 1


def test_joint_duchi_is_unbiased_exactly():
    for dimensions in range(1, 7):
        law = JointDuchi(epsilon=Fraction(1), dimensions=dimensions)
        for odds in ODDS[1:7]:
            scale = law.scale_at(odds)
            for index in {0, 1, law.num_inputs - 1, law.num_inputs // 3}:
                probabilities = law_at(law, index, odds)
                for at in range(dimensions):
                    mean = sum(scale * (1 if s >> at & 1 else -1) * p for s, p in probabilities.items())
                    assert mean == (1 if index >> at & 1 else -1)


def test_ties_on_the_unlikely_side_make_the_smaller_scale():
    for dimensions in [2, 4, 6]:
        law, odds = JointDuchi(epsilon=Fraction(1), dimensions=dimensions), Fraction(2)
        likely = law.num_likely + math.comb(dimensions, dimensions // 2)
        agreement = (odds * law.num_likely + law.num_inputs - law.num_likely) / law.scale_at(odds)
        assert law.scale_at(odds) < (odds * likely + law.num_inputs - likely) / agreement


def test_variance_against_enumeration():
    for epsilon, law in itertools.product(EPSILONS, FINITE):
        found = law(epsilon=epsilon, steps=2)
        for index in range(found.num_inputs):
            parts = [(1.0, found, index)]
            if law is Hybrid:
                parts = [(found.share, found.piecewise, index >> 1), (1 - found.share, found.duchi, index & 1)]
            second = sum(w * p * (sub.scale * o) ** 2 for w, sub, i in parts for o, p in float_law(sub, i).items())
            constant, square = found.quadratic
            point = (index >> 1 if law is Hybrid else index) / found.steps - 1
            assert constant + square * point**2 == pytest.approx(second, rel=1e-9)


def test_laplace_variance_and_symmetry():
    for epsilon in [Fraction(1, 2), Fraction(2), Fraction(8)]:
        law = LaplaceNumber(epsilon=epsilon, steps=2)
        for index, noise in itertools.product(range(5), range(1, 20)):
            assert law.exponent(index, index - 2 + noise) == law.exponent(index, index - 2 - noise)
        ratio = math.exp(-float(epsilon) / 4)
        weights = {z: ratio ** abs(z) for z in range(-4000, 4001)}
        variance = sum(w * z * z for z, w in weights.items()) / sum(weights.values()) * law.scale**2
        assert law.scale == 0.5
        assert law.variance_at(0.5) == pytest.approx(variance)


def test_worst_variance_is_the_largest_over_numbers():
    for make, steps, epsilon in itertools.product(
        [Duchi, Piecewise, SquareWave, LaplaceNumber, Hybrid], [1, 2, 5], [Fraction(1, 2), Fraction(2), Fraction(12)]
    ):
        law = make(epsilon=epsilon, steps=steps)
        numbers = [at / 2000 for at in range(-2000, 2001)]
        for kept in (1.0, 0.6, 0.1):
            largest = max(law.variance_at(t) + (1 - kept) * t * t for t in numbers)
            assert largest <= law.worst(kept) * (1 + 1e-12)
            assert law.worst(kept) == pytest.approx(largest, rel=1e-3)


@given(st.fractions(-1, 1), st.sampled_from([Duchi, Piecewise, SquareWave, Hybrid]), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_variance_of_a_number_with_its_rounding(number, make, steps):
    law = make(epsilon=Fraction(3, 2), steps=steps)
    below = math.floor(number * steps)
    ends = {below: 1 - (number * steps - below), below + 1: number * steps - below}
    total = mean = 0.0
    for point, chance in ends.items():
        if not chance:
            continue
        parts = [(1.0, law)] if make is not Hybrid else [(law.share, law.piecewise), (1 - law.share, law.duchi)]
        for weight, part in parts:
            up = Fraction(steps + point, 2 * steps)
            inputs = {1: up, 0: 1 - up} if isinstance(part, Duchi) else {point + steps: Fraction(1)}
            for index, share in inputs.items():
                for o, p in float_law(part, index).items():
                    mean += chance * weight * share * p * part.scale * o
                    total += chance * weight * share * p * (part.scale * o) ** 2
    assert mean == pytest.approx(float(number), abs=1e-9)
    assert law.variance_at(float(number)) == pytest.approx(total - float(number) ** 2, rel=1e-9)


def test_numbers_that_stand_for_e_are_right_to_many_digits():
    for epsilon in (Fraction(1, 10**6), Fraction(1), Fraction(100)):
        assert odds_of(epsilon / 2) ** 2 / odds_of(epsilon) - 1 < Fraction(1, 2**120)
        assert float(odds_of(epsilon)) == pytest.approx(math.exp(epsilon), rel=1e-13)


# The window


def test_window_is_the_best_of_all():
    for epsilon, steps in itertools.product(EPSILONS, [1, 2, 5, 20]):
        odds, (stride, half) = odds_of(epsilon), best_window(steps, epsilon)
        worst = {
            (s, h): sum(window_moments(odds, steps, s, h)) - 1
            for s in range(1, max(16 // steps, 4) + 1)
            for h in range(2 * steps * s + 1)
        }
        assert worst[stride, half] <= min(worst.values()) * Fraction(1001, 1000)
        assert worst[stride, half] == min(v for (s, _), v in worst.items() if s == stride)


def test_windows_are_the_same_on_every_machine():
    """Device and platform must agree: a change here is a change of the wire."""
    found = {(m, e): best_window(m, Fraction(e)) for m, e in [(1, "1"), (2, "2"), (100, "2"), (1024, "1"), (1024, "5")]}
    assert found == {
        (1, "1"): (1, 0),
        (2, "2"): (2, 2),
        (100, "2"): (1, 59),
        (1024, "1"): (1, 794),
        (1024, "5"): (1, 240),
    }
    assert [SquareWave(epsilon=Fraction(e), steps=1024).half for e in ("0.5", "1", "3")] == [733, 524, 130]
    assert [PublishedPiecewise(epsilon=Fraction(e), steps=1024).half for e in ("0.5", "1", "5")] == [797, 621, 84]


def test_fine_grids_come_near_the_continuous_laws():
    for epsilon in [Fraction(1, 2), Fraction(1), Fraction(2), Fraction(5)]:
        growth = math.exp(epsilon / 2)
        published = PublishedPiecewise(epsilon=epsilon, steps=4096)
        for number in (0.0, 0.3, 1.0):
            continuous = number**2 / (growth - 1) + (growth + 3) / (3 * (growth - 1) ** 2)
            assert published.variance_at(number) == pytest.approx(continuous, rel=5e-3)
        assert Piecewise(epsilon=epsilon, steps=4096).worst() < published.worst()


def test_square_wave_window_is_li_et_al():
    for epsilon in (Fraction(1, 10**6), Fraction(1, 2), Fraction(1), Fraction(4)):
        e, odds = float(epsilon), math.exp(epsilon)
        width = (e * odds - odds + 1) / (2 * odds * (odds - 1 - e)) if e > 0.01 else 0.5 - 1e-9
        assert SquareWave(epsilon=epsilon, steps=50).half == math.floor(width * 101)


# The literal Algorithm 1


def test_literal_algorithm_is_biased_and_gives_away_less():
    for epsilon in [Fraction(1, 2), Fraction(1), Fraction(2), Fraction(5)]:
        law, growth = LiteralPiecewise(epsilon=epsilon, steps=4096), math.exp(epsilon / 2)
        assert law.slope == pytest.approx(1 / (growth**2 + 1), rel=0.02)
        low, high = law.ratio_bounds()
        assert low < high < math.exp(epsilon)
        assert float(low) == pytest.approx(float(high), rel=1e-12)
        assert float(low) == pytest.approx(growth**2 / (growth**2 - growth + 1), rel=0.02)
        with pytest.raises(ParameterError, match="no rational exponents"):
            law.exponent(0, 0)


def test_literal_algorithm_law_and_moments():
    law, index = LiteralPiecewise(epsilon=Fraction(2), steps=2), 3
    inside, outside = law.inside / law.window, (1 - law.inside) / law.num_outside
    expected = {o: inside if abs(o - law.stride) <= law.half else outside for o in law.symbol_range}
    assert sum(expected.values()) == pytest.approx(1)
    mean = sum(p * law.scale * o for o, p in expected.items())
    assert mean == pytest.approx(law.slope / 2)
    constant, square = law.quadratic
    assert constant + square / 4 == pytest.approx(sum(p * (law.scale * o) ** 2 for o, p in expected.items()))
    noise = Noise()
    check_law([law.perturb(index, noise) for _ in range(20_000)], expected)


def test_literal_algorithm_loss_is_that_of_its_ratio():
    for epsilon in EPSILONS:
        for steps in (1, 2, 3, 16, 100):
            law = LiteralPiecewise(epsilon=epsilon, steps=steps)
            ratio = law.inside / law.window / ((1 - law.inside) / law.num_outside)
            assert float(law.loss) == pytest.approx(abs(math.log(ratio)), abs=1e-12)
            assert law.ratio_bounds()[1] <= odds_of(law.loss) * (1 + Fraction(1, 10**30))


# Draws have the law


def test_draws_have_the_law():
    for epsilon, law in itertools.product(
        [Fraction(1, 4), Fraction(3, 2), Fraction(6)], [Warner, Piecewise, PublishedPiecewise, SquareWave]
    ):
        found, noise = law(epsilon=epsilon, steps=3), Noise()
        for index in {0, found.num_inputs // 2, found.num_inputs - 1}:
            check_law([found.perturb(index, noise) for _ in range(20_000)], float_law(found, index))


def test_hybrid_draws_have_the_law():
    law, noise = Hybrid(epsilon=Fraction(3, 2), steps=2), Noise()
    for index in (0, 5, 9):
        expected = {o: law.share * p for o, p in float_law(law.piecewise, index >> 1).items()}
        signs = float_law(law.duchi, index & 1).items()
        expected |= {law.last * o: (1 - law.share) * p for o, p in signs}
        check_law([law.perturb(index, noise) for _ in range(20_000)], expected)


def test_laplace_draws_have_the_law():
    law, noise = LaplaceNumber(epsilon=Fraction(2), steps=3), Noise()
    ratio = math.exp(-1 / law.noise_scale)
    expected = {2 + z: (1 - ratio) / (1 + ratio) * ratio ** abs(z) for z in range(-100, 101)}
    check_law([law.perturb(5, noise) for _ in range(20_000)], expected)


def test_joint_draws_have_the_law():
    for dimensions in [1, 2, 3, 4]:
        law, noise = JointDuchi(epsilon=Fraction(1), dimensions=dimensions), Noise()
        index = law.num_inputs // 3
        check_law([law.perturb(index, noise) for _ in range(20_000)], float_law(law, index))


def test_signs_are_drawn_from_points():
    noise = Noise()
    for law in (Duchi(epsilon=Fraction(1), steps=4), Hybrid(epsilon=Fraction(1), steps=4)):
        for point in (-4, -1, 3, 4):
            drawn = [law.index_of(point, noise) & 1 for _ in range(10_000)]
            check_law(drawn, {sign: share for sign, share in ((1, (4 + point) / 8), (0, (4 - point) / 8)) if share})
    assert Hybrid(epsilon=Fraction(1), steps=4).index_of(3, noise) >> 1 == 7


def test_coins_enclose_their_probability():
    for coin in [odds_coin(3, 7, Fraction(1, 3)), odds_coin(1, 10**12, Fraction(30)), literal_coin(Fraction(1))]:
        low, high = coin.bounds(200)
        for bits in (1, 8, 64, 100):
            near_low, near_high = coin.bounds(bits)
            assert near_low << (200 - bits) <= high
            assert near_high << (200 - bits) >= low
            assert near_high - near_low <= 3


def test_coins_decide_ties_exactly():
    coin, noise = odds_coin(3, 7, Fraction(1, 3)), Noise()
    coin.__dict__["_first"] = (0, 1 << 64)  # a true enclosure, so wide that every toss is a tie
    p = 3 / (3 + 7 * math.exp(-1 / 3))
    check_law([coin.toss(noise) for _ in range(20_000)], {True: p, False: 1 - p})


def law_of_one(law, point):
    """The law of the symbols of one number at an end of its domain, in floats, as (key, symbol)."""
    parts = [(law.share, law.piecewise), (1 - law.share, law.duchi)] if isinstance(law, Hybrid) else [(1, law)]
    found = {}
    for weight, part in parts:
        index = part.index_of(point, Noise())  # certain at an end
        found |= {(part.key, o): weight * p for o, p in float_law(part, index).items()}
    return found


def test_whole_reports_have_the_law():
    for method, epsilon in [("hybrid", "3"), ("piecewise", "1"), ("harmony", "1")]:
        numbers, noise = LocalNumeric(quantities=quantities(2), epsilon=epsilon, method=method), Noise()
        report = numbers.channel("all")
        assert report.num_sampled == 1
        expected = {}
        for at, point in enumerate((1, -1)):
            expected |= {(at, *symbol): p / 2 for symbol, p in law_of_one(report.laws[at], point).items()}
        drawn = [numbers.perturb([1.0, -5.0], tier="all", noise=noise) for _ in range(20_000)]
        check_law([numbers.read(payload, tier="all")[0] for payload in drawn], expected)


def test_joint_reports_have_the_law():
    numbers, noise = LocalNumeric(quantities=quantities(2), epsilon=2, method="duchi"), Noise()
    either = [float_law(numbers.channel("all"), index) for index in (1, 3)]  # the second number is 0: either sign
    expected = {o: sum(each[o] for each in either) / 2 for o in either[0]}
    check_law([numbers.perturb([1.0, 0.0], tier="all", noise=noise)[0] for _ in range(20_000)], expected)


def test_channel_draws_are_those_of_reports():
    report, noise = sampled_report(attributes(3), Fraction(1), method="harmony", sampled=2), Noise()
    check_law([report.perturb(6, noise) for _ in range(20_000)], float_law(report, 6))


# Estimates


def test_means_come_out():
    """Estimates from drawn reports lie where their predicted variance says, and the prediction is not too small."""
    for method, missing in itertools.product(METHODS, ["middle", "symbol"]):
        numbers = LocalNumeric(quantities=quantities(3, 8, missing=missing), epsilon=4, method=method)
        noise, num, truth = Noise(), 6000, {"q0": 0.55, "q1": -1.0, "q2": 7.0}
        sums, squares, counts = Counter(), Counter(), Counter()
        for _ in range(num):
            for at, key, symbol in numbers.read(numbers.perturb(truth, tier="all", noise=noise), tier="all"):
                value = numbers.reading("all", at, key).scale * symbol
                sums[at] += value
                squares[at] += value * value
                counts[at] += 1
        for at, attribute in enumerate(numbers.attributes):
            true = 1.0 if attribute.presence else {"q0": 0.55, "q1": -1.0, "q2": 1.0}[attribute.name]
            mean = sums[at] / counts[at]
            sd = math.sqrt((squares[at] / counts[at] - mean**2) / counts[at])
            assert abs(mean - true) < 6.5 * sd
            if not attribute.presence:
                assert sd < numbers.predicted_sd("all", num)[at] * 1.3
        expected = num * numbers.channel("all").share
        assert all(abs(count - expected) < 6.5 * math.sqrt(expected) for count in counts.values())


def test_predicted_sd_is_in_units_and_falls_with_devices():
    speed = Quantity(name="speed", low=0, high=120)
    numbers = LocalNumeric(quantities=[speed, *quantities(3, 1024)], epsilon="0.5")
    sds = numbers.predicted_sd("all", 5000)
    assert sds[0] == pytest.approx(60 * sds[1])
    assert sds[1] == pytest.approx(math.sqrt(4 * Duchi(epsilon=Fraction(1, 2)).scale ** 2 / 5000), rel=1e-6)
    assert numbers.predicted_sd("all", 20_000)[0] == pytest.approx(sds[0] / 2)
    both = LocalNumeric(quantities=quantities(1, missing="symbol"), epsilon="0.5")
    assert (
        both.predicted_sd("all", 100)[0]
        > LocalNumeric(quantities=quantities(1), epsilon="0.5").predicted_sd("all", 100)[0]
    )
    with pytest.raises(ParameterError, match="num_devices"):
        numbers.predicted_sd("all", 0)


def test_predicted_sd_of_the_worst_spread():
    """Half of the devices at either end, one attribute of two drawn: the closed form against enumeration."""
    report = sampled_report(attributes(2, 4), Fraction(2), method="piecewise", sampled=1)
    law = report.laws[0]
    # Mean of those who tell (half of n): noise, and the spread of a sample without replacement.
    noise, between = law.variance_at(1.0), 1.0
    assert report.worst_of(0) == pytest.approx((noise + between * (1 - 0.5)) / 0.5)


def test_sound_beats_published_at_equal_true_loss():
    """MSE over n at the same true loss of the whole report, at worst and for numbers spread evenly (closed form)."""
    for num in [2, 4, 6, 8, 10]:
        for epsilon in (Fraction(1, 2), Fraction(1), Fraction(2)):
            sound = sampled_report(attributes(num, 1024), epsilon, method="hybrid", sampled=None)
            published = published_report(attributes(num, 1024), epsilon / num)
            assert sound.loss == published.loss == epsilon
            gain = published.worst_of(0) / sound.worst_of(0)
            evenly = [
                (a + b / 3 - report.share / 3) / report.share
                for report in (sound, published)
                for a, b in [report.laws[0].quadratic]
            ]
            at_least = 2 if num >= 4 or epsilon == Fraction(1, 2) else 1.5
            assert gain >= at_least
            assert evenly[1] / evenly[0] >= at_least
        for epsilon in (Fraction(5), Fraction(10)):
            sound = sampled_report(attributes(num, 1024), epsilon, method="hybrid", sampled=None)
            assert published_report(attributes(num, 1024), epsilon / num).worst_of(0) > sound.worst_of(0)


def test_hybrid_is_best_of_its_parts():
    for epsilon in EPSILONS:
        law = hybrid(epsilon=epsilon, steps=256)
        parts = [make(epsilon=epsilon, steps=256).worst() for make in (Duchi, Piecewise)]
        assert law.worst() <= min(parts) * 1.01
        assert isinstance(law, Piecewise if epsilon > HYBRID_TO else Hybrid if epsilon > HYBRID_FROM else Duchi)


# Payloads


def mechanisms():
    mixed = [Quantity(name="a", low=0, high=1, steps=3), Quantity(name="b", low=0, high=1, steps=40, missing="symbol")]
    mixed += [Quantity(name=f"c{at}", low=0, high=1, steps=1) for at in range(3)]
    yield from (LocalNumeric(quantities=mixed, epsilon=e, method=m) for m in METHODS for e in ("0.5", "6"))
    yield LocalNumeric(quantities=mixed, epsilon=1, as_published=True)
    yield LocalNumeric(quantities=quantities(3), epsilon=1, method="warner")
    yield LocalNumeric(quantities=quantities(1, 1024), epsilon=1)


MECHANISMS = list(mechanisms())
NAMES = [f"{m.method}-{m.levels[0].epsilon}-{len(m.attributes)}-{m.as_published}" for m in MECHANISMS]


@pytest.mark.parametrize("numbers", MECHANISMS, ids=NAMES)
def test_payloads_round_trip(numbers):
    noise, report = Noise(), numbers.channel("all")
    for _ in range(100):
        payload = numbers.perturb([random.random() for _ in numbers.quantities], tier="all", noise=noise)
        symbols = numbers.read(payload, tier="all")
        assert len({at for at, _, _ in symbols}) == len(symbols)
        if isinstance(report, SampledReport):
            entries = report.entries(payload)
            members = [at for at, _ in entries]
            sets = [tuple(combination(rank, len(report.laws), len(members))) for rank in range(report.num_sets)]
            assert report._pack(sets.index(tuple(members)), entries) == payload
        if numbers.method != "laplace":
            assert len(payload) == -(-numbers.payload_bits("all") // 8)


@given(st.binary(max_size=12), st.sampled_from(range(len(MECHANISMS))))
@settings(max_examples=500, deadline=None)
def test_any_bytes_are_read_or_refused(payload, at):
    """What is read packs to the very same bytes: no two payloads mean the same, nothing else is accepted."""
    numbers = MECHANISMS[at]
    report = numbers.channel("all")
    try:
        symbols = numbers.read(payload, tier="all")
    except ReportError:
        return
    if isinstance(report, SampledReport):
        entries = report.entries(payload)
        sets = {tuple(combination(rank, len(report.laws), report.num_sampled)): rank for rank in range(report.num_sets)}
        assert report._pack(sets[tuple(at for at, _ in entries)], entries) == payload
    else:
        bits = sum((sign > 0) << at for at, _, sign in symbols)
        assert bits.to_bytes(len(payload), "little") == payload


@given(st.integers(-(2**60), 2**60))
def test_laplace_codes(symbol):
    law = LaplaceNumber(epsilon=Fraction(1), steps=1)
    assert law.symbol(law.code(symbol)) == symbol
    assert 2 * abs(symbol) - 1 <= law.code(symbol) <= 2 * abs(symbol)


def test_symbols_listed_are_all_payloads():
    report = sampled_report(attributes(3), Fraction(1), method="harmony", sampled=2)
    listed = report.symbols()
    assert len(listed) == len(set(listed)) == 3 * 4
    readable = 0
    for number in range(256):
        try:
            report.entries(bytes([number]))
        except ReportError:
            continue
        readable += 1
    assert readable == len(listed)


def test_refused_payloads():
    for method, payload, message in [
        ("hybrid", b"", "0 bytes where 2 are due"),
        ("hybrid", b"\xff\xff", "too large"),
        ("hybrid", b"\x00\x00\x00", "3 bytes where 2 are due"),
        ("duchi", b"\x04", "2 bits in 1 are due"),
        ("duchi", b"\x00\x00", "2 bytes where 2 bits"),
        ("laplace", b"", "which numbers"),
        ("laplace", b"\x02\x00", "which numbers"),
        ("laplace", b"\x00", "does not end"),
        ("laplace", b"\x00" + b"\x80" * 40, "does not end"),
        ("laplace", b"\x00\x80\x00", "longer than it must be"),
        ("laplace", b"\x00\x01\x01", "1 bytes too many"),
    ]:
        numbers = LocalNumeric(quantities=quantities(2, 1024), epsilon=1, method=method)
        with pytest.raises(ReportError, match=message):
            numbers.read(payload, tier="all")


def test_laplace_payload_with_a_symbol_beyond_its_law():
    numbers = LocalNumeric(quantities=quantities(1, missing="symbol"), epsilon=1, method="laplace")
    assert numbers.read(b"\x01\x01", tier="all") == [(1, "warner", 1)]
    with pytest.raises(ReportError, match="none of its law"):
        numbers.read(b"\x01\x02", tier="all")


def test_combinations():
    for num, size in [(5, 0), (5, 2), (6, 3), (4, 4)]:
        found = [tuple(combination(rank, num, size)) for rank in range(math.comb(num, size))]
        assert found == list(itertools.combinations(range(num), size))


def test_same_seed_same_payloads():
    """The draws are a function of the random bytes alone: pinned, so that devices keep telling the same."""
    for numbers in MECHANISMS:
        first, second = (
            [numbers.perturb([0.3] * 5, tier="all", noise=Noise(seed=at)) for at in range(5)] for _ in range(2)
        )
        assert first == second
    telemetry = LocalNumeric(quantities=quantities(10, 1024), epsilon=1)
    drawn = [telemetry.perturb([0.25] * 10, tier="all", noise=Noise(seed=at)).hex() for at in range(8)]
    assert drawn == PINNED


def test_draws_use_no_floats(monkeypatch):
    def refuse(_):
        raise AssertionError("a draw asked for a float")

    fresh = [LocalNumeric(quantities=m.quantities, epsilon="1.5", method=m.method) for m in MECHANISMS[:12:2]]
    for name in ("scale", "quadratic"):
        for law in (Reading, Piecewise, Duchi, Hybrid, LaplaceNumber, SquareWave):
            monkeypatch.setattr(law, name, property(refuse))
    for numbers in fresh:
        assert numbers.read(numbers.perturb([0.1] * 5, tier="all", noise=Noise()), tier="all")


# Values of any kind


@pytest.mark.parametrize(
    "value",
    [
        *(None, 7, "text", b"bytes", object(), {}, {"a": {}}, {"a": 10**400}),
        *([], [None] * 5, ["x"] * 5, [math.nan] * 5, [math.inf, -math.inf], [1] * 99, (complex(1, 1),) * 5, {0.5}),
    ],
    ids=[str(at) for at in range(16)],
)
def test_there_is_always_a_report(value):
    for numbers in MECHANISMS:
        payload = numbers.perturb(value, tier="all", noise=Noise())
        assert numbers.read(payload, tier="all")


def test_mapping_sequence_and_missing_are_read():
    exactly = {"epsilon": 100, "method": "piecewise", "sampled": 4}  # at epsilon 25 each hardly any noise
    numbers = LocalNumeric(quantities=quantities(2, 2, missing="symbol"), **exactly)
    for value, expected in [
        ({"q0": 1.0, "q1": -1.0}, [2, -2, 1, 1]),
        ([1.0, -1.0], [2, -2, 1, 1]),
        ({"q1": -1.0, "other": 3}, [0, -2, -1, 1]),
        ([1.0], [2, 0, 1, -1]),
        (None, [0, 0, -1, -1]),
    ]:
        symbols = numbers.read(numbers.perturb(value, tier="all", noise=Noise()), tier="all")
        assert [symbol for _, _, symbol in symbols] == expected
    assert [attribute.name for attribute in numbers.attributes] == ["q0", "q1", "q0 present", "q1 present"]


# Parameters and promises


def test_tiers():
    tiers = (Tier(name="basic", epsilon=6), Tier(name="strict", epsilon="0.5"))
    numbers = LocalNumeric(quantities=quantities(4, 8), tiers=tiers)
    assert numbers.levels == tiers
    assert [numbers.channel(tier).num_sampled for tier in tiers] == [2, 1]
    assert numbers.true_loss("basic") == 6
    assert numbers.true_loss(tiers[1]) == Fraction(1, 2)
    assert numbers.promise().guarantee.epsilon == 6
    for tier in ("gold", Tier(name="basic", epsilon=1)):
        with pytest.raises(ParameterError, match="not one of this mechanism"):
            numbers.channel(tier)


def test_refused_parameters():
    for parameters, message in [
        ({}, "either epsilon or tiers"),
        ({"epsilon": 1, "tiers": (Tier(name="a", epsilon=1),)}, "either epsilon or tiers"),
        ({"epsilon": 1, "method": "gauss"}, "method must be one of"),
        ({"epsilon": 1, "method": "warner"}, "yes or no"),
        ({"epsilon": 1, "sampled": 0}, "sampled"),
        ({"epsilon": 1, "sampled": 3}, "sampled"),
        ({"epsilon": 1, "sampled": True}, "sampled"),
        ({"epsilon": 1, "method": "harmony", "sampled": 2}, "harmony tells 1"),
        ({"epsilon": 1, "method": "duchi", "sampled": 1}, "duchi tells 2"),
        ({"epsilon": 1, "as_published": True, "method": "duchi"}, "method of its own"),
        ({"epsilon": 1, "as_published": True, "sampled": 1}, "method of its own"),
        ({"epsilon": "1e-7"}, "must lie between"),
        ({"epsilon": 101, "sampled": 1}, "must lie between"),
        ({"epsilon": 1, "quantities": []}, "1 to 64"),
        ({"epsilon": 1, "quantities": [1]}, "1 to 64"),
        ({"epsilon": 1, "quantities": quantities(1) * 2}, "different names"),
    ]:
        with pytest.raises(ParameterError, match=message):
            LocalNumeric(**{"quantities": quantities(2, 2), **parameters})


def test_refused_parameters_of_laws():
    with pytest.raises(ParameterError, match="steps"):
        Duchi(epsilon=Fraction(1), steps=0)
    with pytest.raises(ParameterError, match="Fraction"):
        Duchi(epsilon=0.5)
    with pytest.raises(ParameterError, match="dimensions"):
        JointDuchi(epsilon=Fraction(1), dimensions=0)
    with pytest.raises(ParameterError, match="too many to list"):
        JointDuchi(epsilon=Fraction(1), dimensions=11).symbols()
    with pytest.raises(ParameterError, match="too many to list"):
        Piecewise(epsilon=Fraction(1), steps=1024).symbols()
    with pytest.raises(ParameterError, match="too many to list"):
        published_report(attributes(2, 64), Fraction(1)).symbols()
    law = Hybrid(epsilon=Fraction(1), steps=2)
    with pytest.raises(ParameterError, match="scale for each"):
        law.scale_at(Fraction(2))
    for found in (law, law.duchi):
        with pytest.raises(ParameterError, match="Got 'other'"):
            found.part("other")
    with pytest.raises(ParameterError, match="no part"):
        joint_report(attributes(2), Fraction(1)).reading(0, "piecewise")


def test_promise_of_the_sound_form():
    numbers = LocalNumeric(quantities=quantities(4, 8), epsilon="0.5")
    promise = numbers.promise()
    assert promise.basis is Basis.PROVED
    assert promise.guarantee.to_dict() == {
        "model": "local-dp", "protects": "report", "epsilon": 0.5, "neighbours": "replace-one"
    }  # fmt: skip
    assert promise.true_loss(Neighbours.REPLACE_ONE).epsilon == numbers.true_loss("all") == Fraction(1, 2)
    assert promise.mechanism["sampled"] == {"all": 1}
    assert "drawn without looking" in promise.in_clear[0]
    assert not LocalNumeric(quantities=quantities(1), epsilon=1).promise().in_clear
    assert any("middle of its domain" in warning for warning in promise.warnings)
    assert len(promise.digest()) == 64
    assert not LocalNumeric(quantities=quantities(1, missing="symbol"), epsilon=1).promise().warnings


def test_promise_of_the_published_form():
    numbers = LocalNumeric(quantities=quantities(10, 8), epsilon="0.5", as_published=True)
    promise = numbers.promise()
    assert promise.basis is Basis.CLAIMED
    assert promise.guarantee.epsilon == Fraction(1, 2)
    assert promise.holds.epsilon == numbers.true_loss("all") == 5
    assert promise.true_loss(Neighbours.REPLACE_ONE).epsilon == 5
    assert "each of 10 numbers" in promise.why


def test_how_many_are_drawn():
    for epsilon, num, drawn in [("0.5", 10, 1), ("4.99", 10, 1), ("5", 10, 2), ("7.5", 2, 2), ("100", 10, 10)]:
        assert num_sampled(Fraction(epsilon), num) == drawn


# Speed


@pytest.mark.parametrize(
    "parameters",
    [{"epsilon": 1}, {"epsilon": 30}, {"epsilon": 1, "as_published": True}, {"epsilon": 1, "method": "duchi"}],
)
def test_one_report_is_fast(parameters, within):
    numbers, noise = LocalNumeric(quantities=quantities(10, 1024), **parameters), Noise()
    values = [0.1 * at for at in range(10)]
    numbers.perturb(values, tier="all", noise=noise)
    with within(200 * 1e-3):
        for _ in range(200):
            numbers.perturb(values, tier="all", noise=noise)


def test_import_needs_the_standard_library_only():
    code = "import sys, dunnage.devices.numbers; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "dunnage.devices.numbers" in found
    assert not {"numpy", "scipy", "pyarrow", "numba", "cryptography"} & set(found)
