# SPDX-License-Identifier: Apache-2.0
"""Checks of the draws that everything rests on: each law of ``Noise`` and of ``noise_arrays``, against the exact one.

Whole mechanisms are examined with decisions in place of draws, which have the law that the code asks for. That the code
gets it is checked here: very many numbers are really drawn of every law, at small scales and at large ones, and
compared with the law as its definition states it. A law that is off by a twentieth is found all but surely; one that is
right fails once in 10^9 times.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import FloatArray
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.proving.statistical import UNLIKELY
from dunnage.proving.verdict import NOISE, UNBOUNDED, Check, Verdict

FEW, SOME, MANY = 20_000, 100_000, 1_000_000
_MAX_BINS = 64
_ENOUGH = 25.0  # expected draws from which on the chi-square law is close enough far out in its tail
_SURE = 6.5  # standard deviations that no right law strays by

Draw = Callable[[Noise], Any]


class ExactLaw(NamedTuple):
    """Chances of whole numbers in a row, as a definition states them."""

    chances: FloatArray  # of `first` and the numbers behind it
    first: int = 0
    endless: bool = False  # whether there are numbers beyond, on either side, of hardly any chance


class Trial(NamedTuple):
    draw: Draw
    law: ExactLaw


def _uniform(num: int) -> ExactLaw:
    return ExactLaw(np.full(num, 1 / num))


def _coin(chance: float) -> ExactLaw:
    return ExactLaw(np.array([1 - chance, chance]))


def _geometric(scale: Fraction) -> ExactLaw:
    values = np.arange(math.ceil(40 * scale) + 1)
    return ExactLaw(-math.expm1(-1 / scale) * np.exp(-values / float(scale)), endless=True)


def _laplace(scale: Fraction) -> ExactLaw:
    last = math.ceil(40 * scale)
    return ExactLaw(
        math.tanh(1 / (2 * scale)) * np.exp(-np.abs(np.arange(-last, last + 1)) / float(scale)), -last, True
    )


def _binomial(num: int, chance: float) -> ExactLaw:
    return ExactLaw(np.array([math.comb(num, k) * chance**k * (1 - chance) ** (num - k) for k in range(num + 1)]))


def _choice(scores: list[Fraction]) -> ExactLaw:
    weights = np.exp([float(score) for score in scores])
    return ExactLaw(weights / weights.sum())


def _bins(law: ExactLaw, size: int) -> NDArray[np.intp]:
    """Return where bins of enough expected draws begin. Zero is one by itself if it can be, as signs meet there."""
    enough = max(_ENOUGH / size, 1 / _MAX_BINS if len(law.chances) > 2 * _MAX_BINS else 0.0)
    starts, held, zero = [0], 0.0, -law.first
    for at, chance in enumerate(law.chances):
        alone = at in (zero, zero + 1) and law.chances[zero] * size >= _ENOUGH and held * size >= _ENOUGH
        if held >= enough or alone:
            starts.append(at)
            held = 0.0
        held += chance
    if held * size < _ENOUGH and len(starts) > 1:
        starts.pop()
    return np.array(starts, dtype=np.intp)


def off_by(drawn: Any, law: ExactLaw) -> float:
    """Return by how much the chances of drawn numbers are off, as a logarithm: 0 if they agree with a law."""
    from scipy.special import chdtrc

    places = np.asarray(drawn).astype(np.int64) - law.first
    outside = (places < 0) | (places >= len(law.chances))
    if outside.any() and not law.endless:
        return math.inf
    counts = np.bincount(np.clip(places, 0, len(law.chances) - 1), minlength=len(law.chances))
    starts = _bins(law, places.size)
    seen = np.add.reduceat(counts, starts).astype(np.float64)
    expected = np.add.reduceat(law.chances, starts) * places.size
    if len(starts) < 2 or chdtrc(len(starts) - 1, float(((seen - expected) ** 2 / expected).sum())) >= UNLIKELY:
        return 0.0
    # Bound from below by how much the worst bin is off; it is above 0, as draws are known to be off.
    spread = _SURE * np.sqrt(np.maximum(seen, 1.0))
    more = np.log(np.maximum((seen - spread) / expected, 1.0))
    fewer = np.log(np.maximum(expected / (seen + spread), 1.0))
    return float(max(more.max(), fewer.max(), 1e-6))


def _times(size: int, draw: Draw) -> Draw:
    return lambda noise: [draw(noise) for _ in range(size)]


_SCORES = [Fraction(4), *[Fraction(0)] * 30, *[Fraction(3, 2)] * 4]
_FEW_SCORES = [Fraction(2), *[Fraction(0)] * 7]
_ORDERS = {order: at for at, order in enumerate(permutations(range(4)))}
_RATES = (Fraction(1, 3), Fraction(1, 64))
_EXPONENTS = (Fraction(1, 2), Fraction(7, 3))
_LOGISTIC = (Fraction(2), Fraction(-5, 2))
_SCALES = (Fraction(3, 2), Fraction(5001, 2))
"""A small one, and one from which on numbers are made of digits and signs."""
_EIGHTHS = ExactLaw(np.array([1 / 8, 3 / 8, 1 / 2]))


def _logistic(x: Fraction) -> float:
    return 1 / (1 + math.exp(-x))


def _order(order: Any) -> int:
    return _ORDERS[tuple(int(place) for place in order)]


def _eighths(bits: int) -> list[tuple[int, int]]:
    """Bound the cumulative chances of one, three and four eighths, in this order."""
    return [((eighths << bits) // 8, -(-(eighths << bits) // 8)) for eighths in (1, 4)]


def _numbers(size: int, law: ExactLaw, name: str, *given: Any) -> Trial:
    def draw(noise: Noise) -> list[int]:
        one = getattr(noise, name)
        return [one(*given) for _ in range(size)]

    return Trial(draw, law)


def _arrays(law: ExactLaw, name: str, *given: Any) -> Trial:
    return Trial(lambda noise: getattr(noise_arrays, name)(noise, *given), law)


def _array_trials() -> dict[str, list[Trial]]:
    limits, groups = np.tile(np.array([3, 1000], dtype=np.int64), SOME), np.full(SOME, 12, dtype=np.int64)
    x, y, scale, packed = Fraction(3, 2), Fraction(1, 3), Fraction(5, 2), Fraction(3, 2)
    reached = math.exp(-3 / scale) / (1 + math.exp(-1 / scale))  # that a number of this scale is 3 or more
    return {
        "below": [_arrays(_uniform(n), "below", n, MANY) for n in (11, 3000)],
        "below_each": [
            Trial(lambda noise: noise_arrays.below_each(noise, limits)[::2], _uniform(3)),
            Trial(lambda noise: noise_arrays.below_each(noise, limits)[1::2], _uniform(1000)),
        ],
        "permutation": [Trial(_times(FEW, lambda noise: _order(noise_arrays.permutation(noise, 4))), _uniform(24))],
        "bernoulli": [_arrays(_coin(float(p)), "bernoulli", p, MANY) for p in _RATES],
        "bernoulli_exp": [_arrays(_coin(math.exp(-x)), "bernoulli_exp", x, MANY) for x in _EXPONENTS],
        "bernoulli_logistic": [_arrays(_coin(_logistic(x)), "bernoulli_logistic", x, MANY) for x in _LOGISTIC],
        "bernoulli_odds": [_arrays(_coin(3 / (3 + 2 * math.exp(-x))), "bernoulli_odds", 3, 2, x, MANY)],
        "geometric": [_arrays(_geometric(scale), "geometric", scale, MANY) for scale in _SCALES],
        "discrete_laplace": [_arrays(_laplace(scale), "discrete_laplace", scale, MANY) for scale in _SCALES],
        "tail_counts": [
            _arrays(_binomial(12, reached), "tail_counts", scale, 3, groups),
            _arrays(_binomial(12, 1 - reached), "tail_counts", scale, -2, groups),
        ],
        "binomial_exp": [_arrays(_binomial(12, math.exp(-x) / (1 + math.exp(-y))), "binomial_exp", x, y, groups)],
        "binomial": [_arrays(_binomial(24, 0.3), "binomial", 24, Fraction(3, 10), MANY)],
        "exponential_choice": [_arrays(_choice(_SCORES), "exponential_choice", _SCORES, MANY)],
        "packed_bits": [
            Trial(
                lambda noise: np.unpackbits(noise_arrays.packed_bits(noise, packed, 11, SOME), axis=1).sum(axis=1),
                _binomial(11, _logistic(-packed)),
            ),
            Trial(
                lambda noise: noise_arrays.packed_bits(noise, packed, 11, MANY)[:, 0],
                _choice([-packed * byte.bit_count() for byte in range(256)]),
            ),
        ],
    }


def public_draws() -> dict[str, list[str]]:
    numbers = [name for name, kept in vars(Noise).items() if inspect.isfunction(kept)]
    functions = inspect.getmembers(noise_arrays, inspect.isfunction)
    arrays = [name for name, kept in functions if kept.__module__ == noise_arrays.__name__]
    every = {"numbers": numbers, "arrays": arrays}
    return {kind: [name for name in names if not name.startswith("_")] for kind, names in every.items()}


def trials() -> dict[str, Mapping[str, list[Trial]]]:
    half = SOME // 2
    return {
        "numbers": {
            "draw_bytes": [Trial(lambda noise: np.frombuffer(noise.draw_bytes(MANY), dtype=np.uint8), _uniform(256))],
            "bits": [
                _numbers(SOME, _uniform(256), "bits", 8),
                Trial(_times(FEW, lambda noise: noise.bits(100) >> 94), _uniform(64)),
            ],
            "below": [_numbers(SOME, _uniform(11), "below", 11)],
            "bernoulli": [_numbers(SOME, _coin(1 / 3), "bernoulli", Fraction(1, 3))],
            "bernoulli_exp": [_numbers(SOME, _coin(math.exp(-x)), "bernoulli_exp", x) for x in _EXPONENTS],
            "bernoulli_logistic": [_numbers(SOME, _coin(_logistic(x)), "bernoulli_logistic", x) for x in _LOGISTIC],
            "geometric": [_numbers(half, _geometric(scale), "geometric", scale) for scale in _SCALES],
            "discrete_laplace": [_numbers(half, _laplace(scale), "discrete_laplace", scale) for scale in _SCALES],
            "binomial": [_numbers(FEW, _binomial(24, 0.3), "binomial", 24, Fraction(3, 10))],
            "exponential_choice": [_numbers(half, _choice(_FEW_SCORES), "exponential_choice", _FEW_SCORES)],
            "invert": [_numbers(FEW, _EIGHTHS, "invert", _eighths)],
            "permutation": [Trial(_times(half, lambda noise: _order(noise.permutation(4))), _uniform(24))],
        },
        "arrays": _array_trials(),
    }


def examine_draws(kind: str, name: str, tried: list[Trial]) -> Verdict:
    """Draw very many numbers of a law and compare them with what it should be."""
    noise, num, worst = Noise(), 0, 0.0
    for trial in tried:
        drawn = trial.draw(noise)
        num += len(drawn)
        worst = max(worst, off_by(drawn, trial.law))
    problems: tuple[str, ...] = ("its draws do not follow its law",) if worst else ()
    sentence = "What is drawn follows the law that every mechanism counts on."
    if not tried:
        problems, sentence = ("no check compares its draws with its law",), "No check compares its draws with its law."
    elif math.isinf(worst):
        sentence = "It draws numbers that its law does not have: nothing that rests on this draw keeps its promise."
    elif worst:
        sentence = (
            f"The chances of its draws are off by a factor of at least {math.exp(worst):.3g}: nothing that rests on "
            "this draw keeps its promise exactly."
        )
    return Verdict.of(
        NOISE,
        f"{name}, {kind}",
        0.0,
        UNBOUNDED if math.isinf(worst) else worst,
        confidence=1 - UNLIKELY,
        method=f"{num:,} numbers drawn and compared with the exact law",
        sentence=sentence,
        problems=problems,
    )


def check_noise(long: bool) -> Iterator[Verdict]:
    """Check every draw of ``Noise`` and of ``noise_arrays``; one without a check fails."""
    every = trials()
    for kind, names in public_draws().items():
        for name in names:
            yield examine_draws(kind, name, every[kind].get(name, []))


CHECKS: dict[str, Check] = {NOISE: check_noise}
