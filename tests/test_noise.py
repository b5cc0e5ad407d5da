# SPDX-License-Identifier: Apache-2.0
"""The noise source and its exact arithmetic; the laws themselves are tested in laws/test_noise_laws.py."""

from __future__ import annotations

import ast
import copy
import itertools
import math
import pickle
import subprocess
import sys
import threading
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refusal

from dunnage.errors import ParameterError
from dunnage.noise import arrays as noise_arrays
from dunnage.noise import source as noise_module
from dunnage.noise.source import Noise, choice_cumulative, exp_interval, rational

SCALAR_LAWS = {
    "below": (10,),
    "bernoulli": (Fraction(1, 3),),
    "bernoulli_exp": (Fraction(1, 3),),
    "bernoulli_logistic": (Fraction(-1, 3),),
    "geometric": (Fraction(7, 2),),
    "discrete_laplace": (Fraction(7, 2),),
    "binomial": (100, Fraction(1, 3)),
    "exponential_choice": ([0, -1, Fraction(1, 2)],),
}
BAD_ARGUMENTS = {
    "below": [(0,), (-1,), (2.0,)],
    "bernoulli": [(Fraction(-1, 3),), (Fraction(4, 3),)],
    "bernoulli_exp": [(-1,)],
    "geometric": [(0,)],
    "discrete_laplace": [(0,), (-3,), (True,), ("1",)],
    "binomial": [(-1, Fraction(1, 2)), (2.0, Fraction(1, 2)), (2, 2)],
    "exponential_choice": [([],)],
}
FLOAT_ARGUMENTS = {
    "bernoulli": [(0.5,)],
    "bernoulli_exp": [(1.0,)],
    "bernoulli_logistic": [(1.0,)],
    "geometric": [(2.0,)],
    "discrete_laplace": [(np.float64(2.0),), (math.inf,)],
    "binomial": [(3, 0.5)],
    "exponential_choice": [([0, 0.5],), ([0, 31337.25],)],
}


def draw(name, args, noise):
    return getattr(noise, name)(*args)


def draw_array(name, args, noise):
    return getattr(noise_arrays, name)(noise, *args, 50).tolist()


class TestSource:
    def test_seeds(self):
        for name, args in SCALAR_LAWS.items():
            for drawing in (draw, draw_array):
                pair = Noise(seed=7), Noise(seed=7)
                first, second = ([drawing(name, args, noise) for _ in range(30)] for noise in pair)
                assert first == second
        assert Noise(seed=1).bits(128) != Noise(seed=2).bits(128)
        assert Noise().bits(128) != Noise().bits(128)
        assert Noise().draw_bytes(16) != Noise().draw_bytes(16)
        assert Noise(seed=0).seeded
        assert not Noise().seeded
        for seed in (-1, 1.5, "a", True):
            refusal(ParameterError, Noise, seed=seed)
        refusal(TypeError, Noise, 7)
        assert "7311" not in repr(Noise(seed=7311))
        assert "seeded" in repr(Noise(seed=7311))
        assert "seeded" not in repr(Noise())

    def test_bytes_drawn(self):
        for noise in (Noise(), Noise(seed=7)):
            assert noise.bytes_drawn == 0
            noise.bits(1)
            assert noise.bytes_drawn == 8
            noise.draw_bytes(5)
            assert noise.bytes_drawn == 13
            noise_arrays.below(noise, 256, 100)
            assert noise.bytes_drawn == 113

    def test_copies_do_not_repeat(self):
        noise = Noise()
        noise.bits(8)
        for other in (copy.copy(noise), copy.deepcopy(noise), pickle.loads(pickle.dumps(noise))):
            assert other.bits(64) != noise.bits(64)
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            refusal(TypeError, duplicate, Noise(seed=1))

    def test_forked_children_do_not_repeat(self):
        # In a process of its own: a fork of this one would inherit the test runner's threads.
        code = (
            "import os\n"
            "from dunnage.noise.source import Noise\n"
            "noise = Noise()\n"
            "noise.bits(1)\n"  # fills the pool that a careless fork would share
            "for _ in range(3):\n"
            "    if os.fork() == 0:\n"
            "        print(noise.bits(64), noise.bits(100), flush=True)\n"
            "        os._exit(0)\n"
            "    os.wait()\n"
            "print(noise.bits(64), noise.bits(100))\n"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        drawn = run.stdout.split()
        assert len(drawn) == len(set(drawn)) == 8

    def test_threads_do_not_repeat(self):
        noise, drawn = Noise(), []
        work = lambda: drawn.extend([noise.bits(64) for _ in range(5000)])  # noqa: E731
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(drawn)) == 20_000

    def test_bits(self):
        for n in range(301):
            assert 0 <= Noise(seed=n).bits(n) < 1 << n
        for n in (1, 63, 64, 65, 200):
            noise, seen = Noise(seed=n), 0
            for _ in range(100):
                seen |= noise.bits(n)
            assert seen == (1 << n) - 1, "every position is reached"
        for call in (Noise().bits, Noise().draw_bytes):
            refusal(ParameterError, call, -1)


class TestArguments:
    def test_bad_ones_are_refused_before_anything_is_drawn(self):
        for kind in (BAD_ARGUMENTS, FLOAT_ARGUMENTS):
            for name, cases in kind.items():
                for args, drawing in itertools.product(cases, (draw, draw_array)):
                    noise = Noise()
                    error = refusal(ParameterError, drawing, name, args, noise)
                    assert kind is BAD_ARGUMENTS or "Fraction" in str(error), (name, args)
                    assert "31337" not in str(error), "messages hold no value"
                    assert noise.bytes_drawn == 0

    def test_too_large_for_arrays_and_bad_sizes(self):
        for name in ("geometric", "discrete_laplace"):
            getattr(noise_arrays, name)(Noise(), 2**40, 10)
            refusal(ParameterError, getattr(noise_arrays, name), Noise(), 2**40 + 1, 10)
        refusal(ParameterError, noise_arrays.below, Noise(), 2**63 + 1, 10)
        for name, args in SCALAR_LAWS.items():
            for size in (-1, 1.0, None):
                refusal(ParameterError, getattr(noise_arrays, name), Noise(), *args, size)
        tails = [(0, 1, [5]), (2.0, 1, [5]), (2**40 + 1, 1, [5]), (2, 1.5, [5]), (2, 1, [5, -1])]
        tails += [(2, 1, [2**45, 2**45 + 1]), (2, 1, [2**62] * 4)]
        trials = [(-1, 0, [5]), (0, -1, [5]), (0.5, 0, [5])]
        for law, cases in {"tail_counts": tails, "binomial_exp": trials, "below_each": [([3, 0],)]}.items():
            for args in cases:
                noise = Noise()
                refusal(ParameterError, getattr(noise_arrays, law), noise, *args[:-1], np.array(args[-1]))
                assert noise.bytes_drawn == 0

    def test_numbers_of_numpy(self):
        assert noise_arrays.below(Noise(), np.int64(3), np.int64(5)).shape == (5,)
        assert Noise().binomial(np.int64(3), 1) == 3
        assert Noise().bits(np.int64(64)) < 1 << 64
        # Numerators of such fractions are 64-bit integers that wrap around, unless they are converted.
        third = Fraction(np.int64(1), np.int64(3))
        assert exp_interval(third, 128) == exp_interval(Fraction(1, 3), 128)
        assert type(rational(third, "x").numerator) is int


class TestArrays:
    def test_shape_and_type(self):
        for name, args in SCALAR_LAWS.items():
            for size in (0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1):
                values = getattr(noise_arrays, name)(Noise(), *args, size)
                assert values.shape == (size,)
                assert values.dtype == (np.bool_ if name.startswith("bernoulli") else np.int64)

    def test_certain_outcomes(self):
        noise = Noise()
        assert not noise_arrays.binomial(noise, 0, Fraction(1, 2), 5).any()
        assert (noise_arrays.binomial(noise, 5, 1, 5) == 5).all()
        assert not noise_arrays.exponential_choice(noise, [Fraction(7, 3)], 5).any()
        assert not noise_arrays.below(noise, 1, 5).any()
        assert noise_arrays.permutation(noise, 0).shape == (0,)
        assert noise.permutation(1) == [0]
        assert noise.bytes_drawn == 0
        # P(X != 0) = 2 exp(-1000) / (1 + exp(-1000))
        assert not noise_arrays.discrete_laplace(Noise(), Fraction(1, 1000), 10_000).any()
        for sizes in (np.zeros(0, dtype=np.int64), np.zeros(3, dtype=np.int64)):
            for threshold in (1, -1):
                assert noise_arrays.tail_counts(Noise(), 5, threshold, sizes).tolist() == sizes.tolist()
        assert noise_arrays.below_each(Noise(), np.zeros(0, dtype=np.int64)).shape == (0,)
        sizes = np.full(3, 10**13)
        for scale, threshold in ((5, 2**62), (Fraction(1, 10**9), 1), (1, 10**6)):  # hopeless
            assert not noise_arrays.tail_counts(Noise(), scale, threshold, sizes).any()
            assert (noise_arrays.tail_counts(Noise(), scale, -threshold, sizes) == sizes).all()
        (successes,) = noise_arrays.binomial(Noise(), 10**9, Fraction(1, 4), 1)
        assert abs(int(successes) - 250_000_000) < 150_000  # 11 standard deviations


def decimal_exp(x, bits):
    with localcontext() as context:
        context.prec = bits // 3 + 60
        return Fraction((-Decimal(x.numerator) / Decimal(x.denominator)).exp()) * 2**bits


class TestBounds:
    @settings(max_examples=200, deadline=None)
    @given(st.fractions(0, 400, max_denominator=10**9), st.integers(0, 400))
    def test_exp_interval_encloses(self, x, bits):
        low, high = exp_interval(x, bits)
        assert 0 <= low <= decimal_exp(x, bits) <= high <= 1 << bits
        assert high - low <= 2

    def test_exp_interval_extremes(self):
        extremes = Fraction(1, 10**30), Fraction(10**4), Fraction(10**30), Fraction(1, 3)
        for x, bits in itertools.product(extremes, (0, 1, 64, 256, 5000)):
            low, high = exp_interval(x, bits)
            assert high - low <= 2
            if x < 10**5:
                assert low <= decimal_exp(x, bits) <= high
        low, high = exp_interval(10**4, 15_000)
        assert 0 < low <= decimal_exp(Fraction(10**4), 15_000) <= high
        assert exp_interval(0, 20) == (1 << 20, 1 << 20)
        for args in ((-1, 8), (0.5, 8), (1, -1), (1, 8.0)):
            refusal(ParameterError, exp_interval, *args)

    def test_cumulative_bounds_are_narrow_and_sorted(self):
        layout, large = noise_arrays._Layout(4, 8, 6), Fraction(10**9)
        laws = [
            choice_cumulative([0, -1000, Fraction(1, 3), 5]),
            noise_arrays._geometric_table(Fraction(20), layout)[0]._law,
            noise_arrays._laplace_table(Fraction(20), layout)[0]._law,
            noise_arrays._low_digit_table(large, layout)._law,
            noise_arrays._binomial_table(300, Fraction(1, 3), layout)._law,
            noise_arrays._coin_table(noise_arrays._unlikely, Fraction(7), layout)._law,
        ]
        for law, bits in itertools.product(laws, (3, 64, 200)):
            bounds = law(bits)
            lows, highs = zip(*bounds, strict=True)
            assert list(lows) == sorted(lows)
            assert list(highs) == sorted(highs)
            assert all(0 <= low <= high <= 1 << bits and high - low <= 3 for low, high in bounds)

    def test_bounds_on_misses_enclose(self):
        bits, chances = 90, [(Fraction(1, 3), 0), (Fraction(20), Fraction(1, 5)), (0, 0), (Fraction(70), 1)]
        for (x, y), squarings in itertools.product(chances, (0, 12, 36)):
            low, high = noise_arrays._Chance(Fraction(x), Fraction(y)).misses(squarings)(bits)
            with localcontext() as context:
                context.prec = 120
                p = (-Decimal(Fraction(x).numerator) / Fraction(x).denominator).exp()
                p /= 1 + (-Decimal(Fraction(y).numerator) / Fraction(y).denominator).exp()
                exact = (1 - p) ** (2**squarings) * 2**bits
            assert low <= exact <= high
            assert high - low <= 2

    def test_bounds_on_last_digits_of_gaps(self):
        layout, bits = noise_arrays._Layout(digit_bits=4), 80
        for x in (1, 9, 70):
            with localcontext() as context:
                context.prec = 150
                miss = 1 - Decimal(-x).exp() / (1 + Decimal(-1).exp())
                shares = [(1 - miss ** (d + 1)) / (1 - miss**16) * 2**bits for d in range(15)]
            bounds = noise_arrays._gap_digit_table(noise_arrays._Chance(Fraction(x), Fraction(1)), 0, layout)._law(bits)
            assert all(low <= share <= high <= low + 3 for share, (low, high) in zip(shares, bounds, strict=True))

    def test_binomial_bounds_enclose(self):
        n, p, bits = 40, Fraction(2, 7), 100
        bounds = noise_arrays._binomial_table(n, p, noise_arrays._LAYOUT)._law(bits)
        total = Fraction(0)
        for k, (low, high) in enumerate(bounds):
            total += math.comb(n, k) * p**k * (1 - p) ** (n - k)
            assert low <= total * 2**bits <= high

    def test_last_digit_bounds_enclose(self):
        layout, scale, bits = noise_arrays._Layout(digit_bits=4), Fraction(10**6), 80
        r = decimal_exp(1 / scale, 300) / 2**300  # right to about 300 digits
        for d, (low, high) in enumerate(noise_arrays._low_digit_table(scale, layout)._law(bits)):
            share = (1 - r ** (d + 1)) / (1 - r**16)
            assert low <= share * 2**bits <= high


def test_no_floating_point():
    ours = {"dunnage.errors"}
    for module, others in ((noise_module, ours), (noise_arrays, {*ours, "dunnage.arrays", "dunnage.noise.source"})):
        names = set()
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.Div)
            assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
            assert not (isinstance(node, ast.Name) and "float" in node.id)
            if isinstance(node, ast.Attribute):
                assert "float" not in node.attr
                assert node.attr not in {"exp", "log", "expm1", "log1p", "random", "uniform", "mean", "divide"}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module)
        allowed = sys.stdlib_module_names | others | ({"numpy"} if module is noise_arrays else set())
        assert {name if name.startswith("dunnage") else name.split(".")[0] for name in names} <= allowed
    table = noise_arrays._laplace_table(Fraction(10), noise_arrays._LAYOUT)[0]
    assert table._guide.dtype == np.int32
    assert table._lows.dtype == table._last_ties.dtype == np.uint64
