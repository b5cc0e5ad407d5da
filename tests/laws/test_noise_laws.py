# SPDX-License-Identifier: Apache-2.0
"""The noise has the laws it claims: chi-square tests that fail only below p = 1e-9.

Power. With n draws, a scale that is wrong by a share d moves the chi-square statistic by about n * d**2. The
scalar tests (n = 30,000) catch a scale that is 9 % off, the array tests (n = 1,000,000) one that is 1.6 % off,
each with probability above 0.999, and a yes or no of probability 1/2 that is off by 0.027 or 0.0047;
``test_power`` computes it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from fractions import Fraction
from itertools import accumulate, permutations

import numpy as np
import pytest
from scipy import stats
from tests.chance_help import ENOUGH, chance_of

from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise, choice_cumulative, exp_interval

ALPHA = 1e-9
NUM_SCALAR, NUM_ARRAY = 30_000, 1_000_000
TARGETS = [1e-4, 1e-3, 1e-2, *np.linspace(0.04, 0.96, 24), 1 - 1e-2, 1 - 1e-3, 1 - 1e-4]


class Scalar:
    """Draws one number at a time."""

    size = NUM_SCALAR

    def draw(self, law, *args, size=None):
        noise = Noise()
        return np.array([getattr(noise, law)(*args) for _ in range(size or self.size)], dtype=np.int64)


class Array:
    """Draws whole arrays."""

    size = NUM_ARRAY

    def draw(self, law, *args, size=None):
        return getattr(noise_arrays, law)(Noise(), *args, size or self.size).astype(np.int64)


class Tiny(Array):
    """Draws whole arrays with so few digits per word that ties, digits and tails come up all the time."""

    size = NUM_SCALAR // 3

    def __init__(self, *layout):
        self.layout = noise_arrays._Layout(*layout)

    def draw(self, law, *args, size=None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(noise_arrays, "_LAYOUT", self.layout)
            return super().draw(law, *args, size=size)


ENGINES = [Scalar(), Array(), Tiny(2, 4, 2), Tiny(4, 8, 3), Tiny(3, 3, 1)]


@pytest.fixture(params=ENGINES, ids=["scalar", "array", "tiny-4", "tiny-8", "tiny-3"])
def engine(request):
    return request.param


def edges(cdf):
    """The least k with cdf(k) >= t for each target t, found without looking at any draw."""
    found = set()
    for target in TARGETS:
        low, high = -(2**50), 2**50
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if cdf(middle) >= target else (middle + 1, high)
        found.add(low)
    return np.array(sorted(found))


def bins(cdf):
    """Bin edges and probabilities; bin i holds at[i - 1] < k <= at[i]."""
    cdf = functools.cache(cdf)
    at = edges(cdf)
    return at, np.diff([0.0, *(cdf(int(k)) for k in at), 1.0])


def pvalue(values, cdf):
    at, shares = bins(cdf)
    counts = np.bincount(np.searchsorted(at, values, side="left"), minlength=len(shares))
    if counts[shares * len(values) < ALPHA].any():  # this happened, and had no chance to
        return 0.0
    return chance_of(counts, shares * len(values))


def pvalue_pmf(values, pmf):
    steps = list(accumulate(pmf))
    return pvalue(values, lambda k: 0.0 if k < 0 else steps[min(k, len(steps) - 1)])


def laplace_cdf(scale):
    s, total = float(scale), 1 + math.exp(-1 / scale)
    return lambda k: math.exp(max(k / s, -700)) / total if k < 0 else 1 - math.exp(-(k + 1) / s) / total


def geometric_cdf(scale):
    return lambda k: 0.0 if k < 0 else -math.expm1(-(k + 1) / float(scale))


SCALES = [Fraction(1, 3), 1, Fraction(7, 2), 10, 1000]
LARGE_SCALES = [2049, 10**6, 10**9, Fraction(10**13, 11)]


def test_discrete_laplace_and_geometric(engine):
    for scale in SCALES:
        assert pvalue(engine.draw("discrete_laplace", scale), laplace_cdf(scale)) > ALPHA
        assert pvalue(engine.draw("geometric", scale), geometric_cdf(scale)) > ALPHA


def gaussian_cdf(variance):
    reach = 40 + int(12 * math.sqrt(variance))
    masses = [math.exp(-(k * k) / (2 * float(variance))) for k in range(-reach, reach + 1)]
    steps = list(accumulate(masses))
    return lambda k: 0.0 if k < -reach else steps[min(k + reach, 2 * reach)] / steps[-1]


def test_discrete_gaussian(engine):
    """Variances whose proposals are kept with probability 1 at some number (2), or that are tiny or no square."""
    for variance in (Fraction(1, 5), 2, Fraction(50, 3), 1000):
        assert pvalue(engine.draw("discrete_gaussian", variance), gaussian_cdf(variance)) > ALPHA, variance
    large = engine.draw("discrete_gaussian", 10**14, size=10_000)
    assert pvalue_pmf(np.abs(large) % 16, [1 / 16] * 16) > ALPHA
    assert stats.kstest(large / 1e7, "norm").pvalue > ALPHA


@pytest.mark.parametrize(("law", "cdf_of"), [("geometric", geometric_cdf), ("discrete_laplace", laplace_cdf)])
def test_large_scales(law, cdf_of):
    for scale, (engine, size) in itertools.product(LARGE_SCALES, zip(ENGINES, (30_000, 400_000), strict=False)):
        values = engine.draw(law, scale, size=size)
        assert pvalue(values, cdf_of(scale)) > ALPHA, scale
        # The last digits are uniform but for a share 16/scale, too little to be seen here.
        assert pvalue_pmf(np.abs(values) % 16, [1 / 16] * 16) > ALPHA, scale


def test_last_digit_of_a_geometric_number(engine):
    # Catches digits that are each right but not independent, or in the wrong order.
    r = math.exp(-1 / 30)
    values = engine.draw("geometric", 30)
    assert pvalue_pmf(values % 8, [r**d * (1 - r) / (1 - r**8) for d in range(8)]) > ALPHA
    assert pvalue(values[values % 8 == 3] // 8, geometric_cdf(Fraction(30, 8))) > ALPHA


def test_bernoulli(engine):
    chances = {
        ("bernoulli_exp", x): math.exp(-x) for x in (0, Fraction(1, 1000), Fraction(1, 3), 1, Fraction(7, 2), 40)
    }
    for x in (0, Fraction(1, 3), Fraction(-1, 3), 2, -2, 40, -40):
        chances["bernoulli_logistic", x] = 1 / (1 + math.exp(-x))
    chances |= {("bernoulli", p): float(p) for p in (0, 1, Fraction(1, 2), Fraction(1, 3), Fraction(999, 1000))}
    for (law, parameter), p in chances.items():
        assert pvalue_pmf(engine.draw(law, parameter), [1 - p, p]) > ALPHA, (law, parameter)


def test_binomial(engine):
    for n, p in ((1, Fraction(1, 3)), (7, Fraction(3, 8)), (20, Fraction(9, 10)), (5, 0), (5, 1)):
        exact = [math.comb(n, k) * Fraction(p) ** k * (1 - Fraction(p)) ** (n - k) for k in range(n + 1)]
        assert pvalue_pmf(engine.draw("binomial", n, p), [float(share) for share in exact]) > ALPHA


def test_binomial_of_many_trials():
    for n, p, size in ((1500, Fraction(1, 7), 20_000), (100_000, Fraction(1, 997), 3_000)):
        for engine in ENGINES[:2]:
            assert pvalue(engine.draw("binomial", n, p, size=size), stats.binom(n, float(p)).cdf) > ALPHA


ARRAY_ENGINES = pytest.mark.parametrize(
    "engine", ENGINES[1:], ids=["array", "tiny-4", "tiny-8", "tiny-3"], indirect=True
)


class TestRareSuccesses:
    """Groups of very many trials, of which few succeed."""

    @staticmethod
    def draw(engine, law, *args):
        with pytest.MonkeyPatch.context() as patch:
            if isinstance(engine, Tiny):
                patch.setattr(noise_arrays, "_LAYOUT", engine.layout)
            return getattr(noise_arrays, law)(Noise(), *args)

    @ARRAY_ENGINES
    @pytest.mark.parametrize("n", [1, 7, 40])
    def test_binomial_exp(self, engine, n):
        for x, y in ((0, 0), (Fraction(1, 3), 0), (2, Fraction(1, 5)), (6, 1)):
            counts = self.draw(engine, "binomial_exp", x, y, np.full(engine.size // 20 + 1000, n))
            p = math.exp(-x) / (1 + math.exp(-y))
            assert pvalue(counts, stats.binom(n, p).cdf) > ALPHA

    @ARRAY_ENGINES
    def test_groups_are_independent(self, engine):
        # What one group has must not tell about the next: the law of both is the product of their laws.
        p, sizes = math.exp(-1) / 2, np.tile([2, 0, 3], engine.size // 20 + 1000)
        counts = self.draw(engine, "binomial_exp", 1, 0, sizes).reshape(-1, 3)
        assert not counts[:, 1].any()
        pairs = [a * b for a in stats.binom(2, p).pmf(range(3)) for b in stats.binom(3, p).pmf(range(4))]
        assert pvalue_pmf(counts[:, 0] * 4 + counts[:, 2], pairs) > ALPHA
        across = stats.binom(3, p).pmf(range(4))[:, None] * stats.binom(2, p).pmf(range(3))
        assert pvalue_pmf(counts[:-1, 2] * 3 + counts[1:, 0], across.ravel().tolist()) > ALPHA

    @ARRAY_ENGINES
    def test_tail_counts(self, engine):
        scale, n = Fraction(7, 2), 6
        for threshold in (-4, -1, 0, 1, 2, 9):
            counts = self.draw(engine, "tail_counts", scale, threshold, np.full(engine.size // 20 + 1000, n))
            assert pvalue(counts, stats.binom(n, 1 - laplace_cdf(scale)(threshold - 1)).cdf) > ALPHA

    @pytest.mark.parametrize(("scale", "threshold", "n", "size"), [
        (5, 40, 10**5, 20_000), (5, 100, 10**10, 2_000), (1000, 9000, 10**6, 3_000), (5, -40, 10**5, 10_000),
        (Fraction(1, 2), 12, 10**12, 30),
    ])  # fmt: skip
    def test_very_many_trials(self, scale, threshold, n, size):
        counts = noise_arrays.tail_counts(Noise(), scale, threshold, np.full(size, n))
        s, total = float(scale), 1 + math.exp(-1 / scale)
        p = math.exp(-max(threshold, 1 - threshold) / s) / total  # 1 - cdf would have lost its digits
        rare = counts if threshold > 0 else n - counts
        assert pvalue(rare, stats.binom(n, p).cdf) > ALPHA

    def test_hits_are_spread_evenly(self):
        # A thousand groups of unlike sizes: successes fall by size.
        sizes = 10_000 + np.arange(1000) * 100
        counts = noise_arrays.tail_counts(Noise(), 5, 30, sizes)
        groups = np.repeat(np.arange(1000), counts)
        assert pvalue_pmf(groups // 50, (sizes.reshape(20, 50).sum(axis=1) / sizes.sum()).tolist()) > ALPHA

    @ARRAY_ENGINES
    def test_gaps_by_digit(self, engine):
        # Catches digits of waiting times that are each right but not independent, or in the wrong order.
        chance = noise_arrays._Chance(Fraction(3), Fraction(0))
        with pytest.MonkeyPatch.context() as patch:
            if isinstance(engine, Tiny):
                patch.setattr(noise_arrays, "_LAYOUT", engine.layout)
            gaps = noise_arrays._gaps(Noise(), chance, 0, 2000, 40_000)
        miss = 1 - math.exp(-3) / 2
        assert (
            pvalue(np.minimum(gaps, 2000), lambda k: 0.0 if k < 0 else 1 - miss ** (k + 1) if k < 2000 else 1.0) > ALPHA
        )

    def test_power(self):
        # A threshold that is off by one at scale 5 moves the chance by 18 %; 51,000 groups of 40 trials see 3 %.
        n, p, size = 40, math.exp(-2) / 2, 51_000
        right, wrong = (stats.binom(n, q).pmf(range(20)) for q in (p, 1.03 * p))
        kept = right * size > ENOUGH
        shift = size * ((wrong - right)[kept] ** 2 / right[kept]).sum()
        assert stats.ncx2.sf(stats.chi2.isf(ALPHA, kept.sum() - 1), kept.sum() - 1, shift) > 0.999


def test_below(engine):
    for n in (1, 2, 3, 10, 255, 256, 257, 65_537):
        values = engine.draw("below", n)
        assert values.min() >= 0
        assert values.max() < n
        assert pvalue(values, lambda k, n=n: min(max((k + 1) / n, 0.0), 1.0)) > ALPHA


def test_below_large_and_each():
    for engine, n in itertools.product(ENGINES[:2], (2**62 + 1, 3 * 2**61, 2**63)):
        assert pvalue_pmf(engine.draw("below", n, size=NUM_SCALAR) // -(-n // 10), [0.1] * 10) > ALPHA
    for limits in ([1, 2, 3], [3, 5, 2**40], [7, 2**62 + 1, 2**63 - 1]):
        drawn = noise_arrays.below_each(Noise(), np.tile(limits, 100_000)).reshape(-1, 3)
        for column, limit in zip(drawn.T, limits, strict=True):
            assert column.min() >= 0
            assert column.max() < limit
            cells = min(limit, 8)
            assert pvalue_pmf(column if limit <= 8 else column // -(-limit // 8), [1 / cells] * cells) > ALPHA


@pytest.mark.parametrize(
    "scores",
    [[0], [0, 0], [0, 1, 2], [Fraction(-1, 3), 5, Fraction(9, 2), 5, -1000], [Fraction(i, 10) for i in range(30)]],
)
def test_exponential_choice(engine, scores):
    weights = [math.exp(score - max(scores)) for score in scores]
    values = engine.draw("exponential_choice", scores, size=2000 if isinstance(engine, Scalar) else None)
    assert pvalue_pmf(values, [weight / sum(weights) for weight in weights]) > ALPHA


def test_exponential_choice_of_widely_spread_scores():
    # One good candidate, 10,000 hopeless ones, and two that share what is left: exp(0) against 2 exp(-1).
    scores = [-1] + [-1000] * 10_000 + [0, -1]
    values = noise_arrays.exponential_choice(Noise(), scores, NUM_ARRAY)
    pmf = np.array([1, math.e, 1]) / (2 + math.e)
    assert pvalue_pmf(np.select([values == 0, values == 10_001], [0, 1], 2), list(pmf)) > ALPHA
    assert set(np.unique(values)) == {0, 10_001, 10_002}
    noise = Noise()
    assert {noise.exponential_choice(scores) for _ in range(3)} <= {0, 10_001, 10_002}


@pytest.mark.parametrize("word_bits", [3, 64])
def test_permutation_of_four(word_bits, monkeypatch):
    monkeypatch.setattr(noise_arrays, "_LAYOUT", noise_arrays._Layout(word_bits=word_bits))
    names = {order: name for name, order in enumerate(permutations(range(4)))}
    noise = Noise()
    for draw in (noise.permutation, lambda n: noise_arrays.permutation(noise, n).tolist()):
        values = np.array([names[tuple(draw(4))] for _ in range(20_000)])
        assert pvalue_pmf(values, [1 / 24] * 24) > ALPHA


def test_permutation_positions():
    for order in (np.array(Noise().permutation(40_000)), noise_arrays.permutation(Noise(), 400_000)):
        n = len(order)
        assert np.array_equal(np.sort(order), np.arange(n))
        blocks = (order * 8 // n) * 8 + np.arange(n) * 8 // n
        assert pvalue_pmf(blocks, [1 / 64] * 64) > ALPHA


@pytest.mark.parametrize("scale", [2.5, 30.0])
def test_same_law_as_opendp(scale):
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    domain, metric = dp.vector_domain(dp.atom_domain(T=dp.i32)), dp.l1_distance(T=dp.i32)
    theirs = np.array(dp.m.make_laplace(domain, metric, scale=scale)([0] * NUM_SCALAR))
    ours = noise_arrays.discrete_laplace(Noise(), Fraction(scale), NUM_ARRAY)
    at, shares = bins(laplace_cdf(scale))
    counts = [np.bincount(np.searchsorted(at, v), minlength=len(shares)) for v in (theirs, ours)]
    kept = shares * NUM_SCALAR > ENOUGH
    assert stats.chi2_contingency([row[kept] for row in counts]).pvalue > ALPHA


def test_power():
    wrong = {ENGINES[0]: Fraction(109, 100), ENGINES[1]: Fraction(1016, 1000)}
    for engine, scale in itertools.product(wrong, (Fraction(7, 2), 10, 1000)):
        (at, shares), cdf = bins(laplace_cdf(scale)), laplace_cdf(scale * wrong[engine])
        drawn = np.diff([0.0, *(cdf(int(k)) for k in at), 1.0])
        shift, df = engine.size * ((drawn - shares) ** 2 / shares).sum(), len(shares) - 1
        assert stats.ncx2.sf(stats.chi2.isf(ALPHA, df), df, shift) > 0.999
    for engine, error in zip(ENGINES, (0.027, 0.0047), strict=False):  # of a yes or no
        assert stats.ncx2.sf(stats.chi2.isf(ALPHA, 1), 1, engine.size * 4 * error**2) > 0.999


def test_wrong_laws_are_rejected():
    off = noise_arrays.discrete_laplace(Noise(), Fraction(1030, 100), NUM_ARRAY)
    assert pvalue(off, laplace_cdf(10)) < ALPHA
    zero_twice = noise_arrays.geometric(Noise(), 10, NUM_ARRAY) * np.where(
        noise_arrays.bernoulli(Noise(), Fraction(1, 2), NUM_ARRAY), 1, -1
    )
    assert pvalue(zero_twice, laplace_cdf(10)) < ALPHA
    remainder = noise_arrays.below(Noise(), 256, NUM_ARRAY) % 100
    assert pvalue_pmf(remainder, [0.01] * 100) < ALPHA
    assert pvalue_pmf(noise_arrays.bernoulli(Noise(), Fraction(51, 100), NUM_ARRAY), [0.5, 0.5]) < ALPHA


class Tape(Noise):
    """Hands out given binary digits and then stops."""

    def __init__(self, digits, num_digits):
        super().__init__(seed=0)
        self.digits, self.left = digits, num_digits

    def bits(self, n):
        self.left -= n
        if self.left < 0:
            raise EOFError
        return self.digits >> self.left & ((1 << n) - 1)


def laws():
    yield [0.5, 0.5], choice_cumulative([0, 0])
    third = [math.exp(-Fraction(k, 3)) for k in range(4)]
    yield [w / sum(third) for w in third], choice_cumulative([Fraction(-k, 3) for k in range(4)])
    yield [math.exp(-2), 1 - math.exp(-2)], lambda bits: [exp_interval(2, bits)]
    r = math.exp(-1)
    pmf = [(1 - r) / (1 + r) * r ** abs(k) for k in range(-4, 5)]
    pmf[0] = pmf[-1] = r**4 / (1 + r)
    yield pmf, noise_arrays._laplace_table(Fraction(1), noise_arrays._Layout(2, 4, 2))[0]._law


def test_inversion_bracket():
    """Over all 2**12 beginnings of U, the decided share of each outcome brackets its probability."""
    for (pmf, law), step in itertools.product(laws(), (1, 3)):
        num_digits, decided = 12, Counter()
        for digits in range(1 << num_digits):
            try:
                decided[Tape(digits, num_digits).invert(law, step=step)] += 1
            except EOFError:
                decided[None] += 1
        undecided = decided[None] / 2**num_digits
        assert undecided < 6 * len(pmf) / 2**num_digits
        for outcome, share in enumerate(pmf):
            assert decided[outcome] / 2**num_digits <= share <= decided[outcome] / 2**num_digits + undecided
