# SPDX-License-Identifier: Apache-2.0
"""What draws alone can say about a mechanism that is treated as a closed box, and whether noise follows its laws.

:func:`lower_bound` bounds the loss between two inputs from below: half of the draws choose an event that distinguishes
the two, the other half measures its two probabilities, with exact (Clopper-Pearson) limits. The event is fixed before
it is measured, so the bound has the stated confidence however the event was chosen. It can show that a claim is wrong,
but never that it is right. :func:`agrees` compares draws with a law that is known exactly.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import FloatArray
from dunnage.errors import ParameterError
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.proving.verdict import NOISE, UNBOUNDED, Check, Verdict

CONFIDENCE = 0.999999  # default confidence of a lower bound: wrong once in a million
UNLIKELY = 1e-9  # A p value below this shows that draws do not follow a law: a correct check never fails by chance
_THRESHOLDS = 64  # about how many events of each kind are compared, in each direction
_ENOUGH_EXPECTED = 25.0  # expected draws from which the chi-square law is close enough far out in its tail


class Event(NamedTuple):
    members: frozenset[Hashable] = frozenset()  # the outputs, if they are listed
    least: float | None = None  # least, most: the end of a half-line of numbers otherwise
    most: float | None = None

    def holds(self, output: Any) -> bool:
        if self.least is not None:
            return bool(output >= self.least)
        if self.most is not None:
            return bool(output <= self.most)
        return output in self.members

    def __str__(self) -> str:
        if self.least is not None:
            return f"outputs of at least {self.least:g}"
        if self.most is not None:
            return f"outputs of at most {self.most:g}"
        return f"{len(self.members)} output{'s' if len(self.members) != 1 else ''}"


class LowerBound(NamedTuple):
    epsilon: float  # 0 if the draws show nothing
    confidence: float
    event: Event  # what distinguishes the two inputs
    num_drawn: int  # draws that measured it, of both inputs together


def lower_bound(
    one: Iterable[Any], other: Iterable[Any], *, delta: float = 0.0, confidence: float = CONFIDENCE
) -> LowerBound:
    if not (0 < confidence < 1 and 0 <= delta < 1):
        raise ParameterError("confidence must lie between 0 and 1, and delta from 0 to below 1. Example: 0.999 and 0.")
    outputs = [draws.tolist() if hasattr(draws, "tolist") else list(draws) for draws in (one, other)]
    outputs = [[tuple(value) if isinstance(value, list) else value for value in values] for values in outputs]
    if min(map(len, outputs)) < 4:
        raise ParameterError("a lower bound needs at least four draws of each input. Give more draws.")
    # A quarter of the draws proposes events, and another compares them: otherwise the best of many sets of rare
    # outputs would be the one that fits the noise best.
    making, comparing, measuring = (
        [Counter(values[len(values) * first // 4 : len(values) * last // 4]) for values in outputs]
        for first, last in ((0, 1), (1, 2), (2, 4))
    )

    def bounded(event: Event, likely: Counter[Any], unlikely: Counter[Any]) -> LowerBound:
        wrong = (1 - confidence) / 2  # for each of the two limits
        hits = [sum(num for output, num in counts.items() if event.holds(output)) for counts in (likely, unlikely)]
        low = lower_limit(hits[0], likely.total(), wrong)
        high = upper_limit(hits[1], unlikely.total(), wrong)
        epsilon = max(math.log((low - delta) / high), 0.0) if low > delta else 0.0
        return LowerBound(epsilon, confidence, event, likely.total() + unlikely.total())

    events = [(event, way) for way in (1, -1) for event in _events(*making[::way])]
    bounds = [bounded(event, *comparing[::way]).epsilon for event, way in events]
    event, way = events[bounds.index(max(bounds))]
    return bounded(event, *measuring[::way])


def _events(likely: Counter[Any], unlikely: Counter[Any]) -> Iterator[Event]:
    """Yield sets of the outputs with the largest ratios, and half-lines if outputs are numbers."""
    num = likely.total()

    def ratio(output: Any) -> float:
        # Half a draw more on both sides keeps an output that was seen once from being the best.
        return (likely[output] + 0.5) / (unlikely[output] + 0.5)

    ordered = sorted(likely, key=ratio, reverse=True)
    for size in _sizes([likely[output] for output in ordered], num):
        yield Event(members=frozenset(ordered[:size]))
    if all(isinstance(output, int | float) for output in (*likely, *unlikely)):
        rising = sorted(likely)
        for size in _sizes([likely[output] for output in rising], num):
            yield Event(most=rising[size - 1])
            yield Event(least=rising[-size])


def _sizes(counts: Sequence[int], num: int) -> list[int]:
    """Return after how many outputs to cut: evenly by number of draws, and after each of the first few."""
    sizes, seen = set(range(1, min(len(counts), 8) + 1)), 0
    for size, count in enumerate(counts, start=1):
        if (seen + count) * _THRESHOLDS // num > seen * _THRESHOLDS // num:
            sizes.add(size)
        seen += count
    return sorted(sizes)


def lower_limit(successes: int, num: int, wrong: float) -> float:
    """Return what a probability exceeds, except with a chance of ``wrong`` (Clopper and Pearson)."""
    from scipy.special import betaincinv

    return float(betaincinv(successes, num - successes + 1, wrong)) if successes else 0.0


def upper_limit(successes: int, num: int, wrong: float) -> float:
    """Return what a probability stays below, except with a chance of ``wrong`` (Clopper and Pearson)."""
    return 1.0 - lower_limit(num - successes, num, wrong)


def agrees(observed: Mapping[Any, int], masses: Mapping[Any, float]) -> float:
    """Return the p value: how likely draws of a law are at least as far off as these."""
    from scipy.special import bdtr, bdtrc, chdtrc

    # An exact test of each outcome that is likely enough, and of all others together, is combined with a chi-square
    # test of those that are common enough for it.
    num = sum(observed.values())
    rest = max(0.0, 1.0 - math.fsum(masses.values()))
    if num == 0:
        return 1.0
    if rest < UNLIKELY / num and any(count and not masses.get(outcome) for outcome, count in observed.items()):
        return 0.0  # an outcome that the law does not have
    cells = [(observed.get(outcome, 0), mass) for outcome, mass in masses.items() if mass * num >= 5]
    pooled = max(0.0, 1.0 - math.fsum(mass for _, mass in cells))
    cells.append((num - sum(count for count, _ in cells), pooled))
    # Test each count by itself with the binomial law: the smallest p value times their number.
    by_itself = 1.0
    for count, mass in cells:
        above = bdtrc(count - 1, num, min(mass, 1.0)) if count else 1.0
        by_itself = min(by_itself, len(cells) * float(2 * min(bdtr(count, num, min(mass, 1.0)), above)))
    # Test all common outcomes together, with all others merged into one.
    common, together = [cell for cell in cells if cell[1] * num >= _ENOUGH_EXPECTED], 1.0
    count, mass = (sum(column) for column in zip(*common, strict=True)) if common else (0, 0.0)
    if (1 - mass) * num >= _ENOUGH_EXPECTED:
        common.append((num - count, 1 - mass))
    elif common:  # too few others to test: compare only the proportions among the common ones
        num, common = count, [(each, share / mass) for each, share in common]
    if len(common) >= 2 and num:
        statistic = sum((count - mass * num) ** 2 / (mass * num) for count, mass in common)
        together = float(chdtrc(len(common) - 1, statistic))
    return min(1.0, 2 * min(by_itself, together))


# The draws that everything rests on: each law of ``Noise`` and of ``noise_arrays``, against the exact one.
# Whole mechanisms are examined with decisions in place of draws, which have the law that the code requests. That the
# code gets it is checked here: very many numbers really come from every law, at small and large scales, and
# compared with the law as its definition states it. A law that is off by a twentieth is detected almost surely; a
# right one fails once in 10^9 times.
FEW, SOME, MANY = 20_000, 100_000, 1_000_000
_MAX_BINS = 64
_SURE = 6.5  # standard deviations that a correct law never strays by

Draw = Callable[[Noise], Any]


class ExactLaw(NamedTuple):
    """Chances of whole numbers in a row, as a definition states them."""

    chances: FloatArray  # of `first` and the numbers after it
    first: int = 0
    endless: bool = False  # whether there are numbers beyond, on either side, with a negligible chance


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


def _gaussian(variance: Fraction) -> ExactLaw:
    last = math.ceil(12 * math.sqrt(variance)) + 2
    weights = np.exp(-(np.arange(-last, last + 1) ** 2) / (2 * float(variance)))
    return ExactLaw(weights / weights.sum(), -last, True)


def _binomial(num: int, chance: float) -> ExactLaw:
    return ExactLaw(np.array([math.comb(num, k) * chance**k * (1 - chance) ** (num - k) for k in range(num + 1)]))


def _choice(scores: list[Fraction]) -> ExactLaw:
    weights = np.exp([float(score) for score in scores])
    return ExactLaw(weights / weights.sum())


def _bins(law: ExactLaw, size: int) -> NDArray[np.intp]:
    """Return where bins of enough expected draws begin. Zero has its own bin if possible, because signs meet there."""
    enough = max(_ENOUGH_EXPECTED / size, 1 / _MAX_BINS if len(law.chances) > 2 * _MAX_BINS else 0.0)
    starts, mass, zero = [0], 0.0, -law.first
    for at, chance in enumerate(law.chances):
        alone = at in (zero, zero + 1) and min(law.chances[zero], mass) * size >= _ENOUGH_EXPECTED
        if mass >= enough or alone:
            starts.append(at)
            mass = 0.0
        mass += chance
    if mass * size < _ENOUGH_EXPECTED and len(starts) > 1:
        starts.pop()
    return np.array(starts, dtype=np.intp)


def off_by(sample: Any, law: ExactLaw) -> float:
    """Return how far the chances of a sample are off, as a logarithm: 0 if the sample agrees with a law."""
    from scipy.special import chdtrc

    places = np.asarray(sample).astype(np.int64) - law.first
    outside = (places < 0) | (places >= len(law.chances))
    if outside.any() and not law.endless:
        return math.inf
    counts = np.bincount(np.clip(places, 0, len(law.chances) - 1), minlength=len(law.chances))
    starts = _bins(law, places.size)
    seen = np.add.reduceat(counts, starts).astype(np.float64)
    expected = np.add.reduceat(law.chances, starts) * places.size
    if len(starts) < 2 or chdtrc(len(starts) - 1, float(((seen - expected) ** 2 / expected).sum())) >= UNLIKELY:
        return 0.0
    # Bound from below how far the worst bin is off; it is above 0, as the draws failed the test.
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
"""A small one, and one that is large enough for numbers to be made of digits and signs."""
_VARIANCES = (Fraction(2), Fraction(50, 3))
_EIGHTHS = ExactLaw(np.array([1 / 8, 3 / 8, 1 / 2]))


def _logistic(x: Fraction) -> float:
    return 1 / (1 + math.exp(-x))


def _order(order: Any) -> int:
    return _ORDERS[tuple(int(place) for place in order)]


def _numbers(size: int, law: ExactLaw, name: str, *given: Any) -> Trial:
    return Trial(_times(size, lambda noise: getattr(noise, name)(*given)), law)


def _arrays(law: ExactLaw, name: str, *given: Any) -> Trial:
    return Trial(lambda noise: getattr(noise_arrays, name)(noise, *given), law)


def public_draws() -> dict[str, list[str]]:
    numbers = [name for name, kept in vars(Noise).items() if inspect.isfunction(kept)]
    functions = inspect.getmembers(noise_arrays, inspect.isfunction)
    arrays = [name for name, kept in functions if kept.__module__ == noise_arrays.__name__]
    every = {"numbers": numbers, "arrays": arrays}
    return {kind: [name for name in names if not name.startswith("_")] for kind, names in every.items()}


def trials() -> dict[str, Mapping[str, list[Trial]]]:
    half = SOME // 2
    limits, groups = np.tile(np.array([3, 1000], dtype=np.int64), SOME), np.full(SOME, 12, dtype=np.int64)
    x, y, scale, packed = Fraction(3, 2), Fraction(1, 3), Fraction(5, 2), Fraction(3, 2)
    reached = math.exp(-3 / scale) / (1 + math.exp(-1 / scale))  # that a number of this scale is 3 or more
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
            "discrete_gaussian": [_numbers(FEW, _gaussian(v), "discrete_gaussian", v) for v in _VARIANCES],
            "binomial": [_numbers(FEW, _binomial(24, 0.3), "binomial", 24, Fraction(3, 10))],
            "exponential_choice": [_numbers(half, _choice(_FEW_SCORES), "exponential_choice", _FEW_SCORES)],
            # bounds of the cumulative chances of one and of four eighths
            "invert": [
                _numbers(FEW, _EIGHTHS, "invert", lambda b: [((n << b) // 8, -(-(n << b) // 8)) for n in (1, 4)])
            ],
            "permutation": [Trial(_times(half, lambda noise: _order(noise.permutation(4))), _uniform(24))],
        },
        "arrays": {
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
            "discrete_gaussian": [_arrays(_gaussian(v), "discrete_gaussian", v, MANY) for v in _VARIANCES],
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
        },
    }


def examine_draws(kind: str, name: str, tried: list[Trial]) -> Verdict:
    noise, num, worst = Noise(), 0, 0.0
    for trial in tried:
        sample = trial.draw(noise)
        num += len(sample)
        worst = max(worst, off_by(sample, trial.law))
    problems: tuple[str, ...] = ("its draws do not follow its law",) if worst else ()
    sentence = "Its draws follow the law that every mechanism relies on."
    if not tried:
        problems, sentence = ("no check compares its draws with its law",), "No check compares its draws with its law."
    elif math.isinf(worst):
        sentence = "It draws numbers that its law does not have: nothing that relies on it keeps its promise."
    elif worst:
        sentence = (
            f"The chances of its draws are off by a factor of at least {math.exp(worst):.3g}: nothing that relies on "
            "it keeps its promise exactly."
        )
    return Verdict.of(
        NOISE,
        f"{name}, {kind}",
        0.0,
        UNBOUNDED if math.isinf(worst) else worst,
        confidence=1 - UNLIKELY,
        method=f"{num:,} numbers sampled and compared with the exact law",
        sentence=sentence,
        problems=problems,
    )


def check_noise(long: bool) -> Iterator[Verdict]:
    """Check every draw of ``Noise`` and of ``noise_arrays``; a draw without a check fails."""
    every = trials()
    for kind, names in public_draws().items():
        for name in names:
            yield examine_draws(kind, name, every[kind].get(name, []))


CHECKS: dict[str, Check] = {NOISE: check_noise}
