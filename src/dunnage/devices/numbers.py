# SPDX-License-Identifier: Apache-2.0
"""Numbers: speed, load, temperature, reported so that one report of all of them gives away no more than epsilon.

A number of [-1, 1] is first rounded at random to a point i of -m .. m (``Quantity.point``), which keeps its mean.
Then :meth:`~NumberLaw.index_of` turns the point into an input of a law, which is a
:class:`~dunnage.devices.places.Channel` from inputs to symbols. Every law's estimate is *linear* in the symbol,
``scale * symbol``, and its mean is exactly i/m, so an estimate needs only sums of symbols.

===================  ================================================
law                  inputs                             symbols                     one symbol has weight
===================  ================================================
:class:`Warner`      no, yes (0, 1)                     -1, 1                       E if it agrees, else 1
:class:`Duchi`       -1, 1 (0, 1), from the point       -1, 1                       E if it agrees, else 1
:class:`Piecewise`   points (i + m)                     -N .. N, N = m s + h        E if within h of i s, else 1
:class:`SquareWave`  points (i + m)                     the same with s = 1         the same
:class:`LaplaceNumber`  points (i + m)                  all whole numbers           exp(-abs(o - i) epsilon / (2 m))
:class:`Designed`    few points, from the point         intervals of points         w E if the point is in it, else w
:class:`Hybrid`      point and sign (2 (i + m) + sign)  -N-1 .. N+1                 that of the chosen law
===================  ================================================

E stands for e to the epsilon. If a formula needs E as a number (scales, variances, the choice of a window), it is a
fraction that is right to 128 binary digits, never a float of some library, so device and platform always agree.
Sampling needs no such number. Proofs: ``docs/proofs/local-numeric.md``. :class:`LocalNumeric` has the references.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

from dunnage.devices.designs import DESIGNS
from dunnage.devices.places import MAX_ENUMERATED
from dunnage.devices.subjects import MAX_EPSILON, MIN_EPSILON, Quantity, Tier, Tiered
from dunnage.errors import ParameterError, ReportError
from dunnage.exact import plain, shown, shown_number
from dunnage.model.guarantees import REPORT_ASSUMPTIONS, Basis, LocalDP, Neighbours, Promise
from dunnage.noise.source import WORD_BITS, Interval, Noise, ceil_divide, exp_interval, integer, rational

HYBRID_FROM, HYBRID_TO = Fraction(61, 100), Fraction(11, 5)  # Wang et al. 2019, eq. 8: 0.6102...
DESIGNED_TO = Fraction(25, 4)  # up to here the designs have less variance than any other law
MAX_STRIDE = 16
MAX_QUANTITIES = 64
EPSILON_EACH = Fraction(5, 2)  # if a report has more than one number, each gets at least this epsilon
_DIGITS = 128
_WORTH = Fraction(1001, 1000)
_MAX_VARINT_BYTES = 10
_RARE = 7  # fewer than one in a thousand Laplace numbers exceed seven scales


@lru_cache(maxsize=1024)
def odds_of(epsilon: Fraction) -> Fraction:
    """Return e to the epsilon as a fraction, right to 128 binary digits, the same on every machine."""
    bits = _DIGITS + 2 * math.ceil(epsilon)
    low, high = exp_interval(epsilon, bits)
    return Fraction(2 << bits, low + high)


class Coin:
    """A coin with an irrational probability, tossed exactly: 64 digits of a uniform number nearly always decide."""

    def __init__(self, bounds: Callable[[int], Interval]) -> None:
        self.bounds = bounds  # encloses the probability of yes, times ``2**bits``, between two integers

    @cached_property
    def _first(self) -> Interval:
        return self.bounds(WORD_BITS)

    def toss(self, noise: Noise) -> bool:
        word, (low, high) = noise.bits(WORD_BITS), self._first
        if word < low or word >= high:
            return word < low
        return noise.invert(lambda bits: [self.bounds(bits)], word, WORD_BITS) == 0


def odds_coin(likely: int, other: int, epsilon: Fraction) -> Coin:
    """Return a coin that says yes with odds of ``likely`` to ``other * exp(-epsilon)``."""

    def bounds(bits: int) -> Interval:
        width = bits + other.bit_length() + 4
        low, high = exp_interval(epsilon, width)
        yes = likely << width
        return (yes << bits) // (yes + other * high), ceil_divide(yes << bits, yes + other * low)

    return Coin(bounds)


@dataclass(frozen=True, kw_only=True)
class Reading(ABC):
    """How to read the symbols of one number: the estimate of each, and its error."""

    key: ClassVar[str]
    signs: ClassVar[bool] = False  # whether every symbol is 1 or -1
    counted: ClassVar[bool] = False  # whether a tally counts each symbol, instead of adding them up
    epsilon: Fraction  # largest loss of one symbol
    steps: int = 1  # the points are -steps .. steps

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", rational(self.epsilon, "epsilon"))
        if not MIN_EPSILON <= self.epsilon <= MAX_EPSILON:
            raise ParameterError(
                f"epsilon for one number must be between 0.000001 and {MAX_EPSILON}. "
                f"Got {shown_number(self.epsilon)}. Try 1."
            )
        if type(self.steps) is not int or self.steps < 1:
            raise ParameterError(f"steps must be a whole number of at least 1. Got {shown(self.steps)}. Try 1024.")

    @property
    def loss(self) -> Fraction | None:
        return self.epsilon

    @abstractmethod
    def scale_at(self, odds: Fraction) -> Fraction:
        """Return the scale, which is a rational function of E = e^epsilon."""

    @property
    @abstractmethod
    def quadratic(self) -> tuple[float, float]:
        """Return a and b of the second moment ``a + b t^2`` of the estimate of a point ``t = i / m``."""

    @property
    def reach(self) -> float | None:
        """The largest estimate of one report; None if there is none."""
        return self.scale * last if (last := getattr(self, "last", None)) else None

    @cached_property
    def scale(self) -> float:
        """Factor that turns a symbol into an unbiased estimate in [-1, 1] units: exact, rounded once."""
        return float(self.scale_at(odds_of(self.epsilon)))

    def variance_at(self, number: float) -> float:
        """Return the variance of the estimate of a number of [-1, 1], with its random rounding to a point."""
        constant, square = self.quadratic
        below = min(math.floor(abs(number) * self.steps), self.steps - 1)
        # The second moment is linear between the points on either side.
        inner = below * below + (abs(number) * self.steps - below) * (2 * below + 1)
        return constant + square * inner / self.steps**2 - number * number

    def worst(self, kept: float = 1.0) -> float:
        """Return the maximum over numbers t of the second moment less ``kept * t^2``; ``kept`` above 0."""
        # Between points the curve is concave, and along the points it only rises or only falls, so the maximum is in
        # the first or the last cell.
        square, best = self.quadratic[1], 0.0
        for cell in (0, self.steps - 1):
            part = min(max(square * (2 * cell + 1) / (2 * kept) - cell, 0.0), 1.0)
            number = (cell + part) / self.steps
            best = max(best, self.variance_at(number) + (1 - kept) * number * number)
        return best


class NumberLaw(Reading):
    last: int  # the largest symbol, where symbols are -last .. last

    @property
    def num_inputs(self) -> int:
        return 2 * self.steps + 1

    @property
    def symbol_range(self) -> range | None:
        """All symbols in order, however many; None if they are endless."""
        return range(-self.last, self.last + 1)

    def index_of(self, point: int, noise: Noise) -> int:
        return point + self.steps

    @abstractmethod
    def perturb(self, index: int, noise: Noise) -> int: ...

    @abstractmethod
    def exponent(self, index: int, symbol: int) -> Fraction | None:
        """Return the part of the logarithm of the probability that depends on the input."""

    def symbols(self) -> range:
        symbols = self.symbol_range
        if symbols is None or len(symbols) * self.num_inputs > MAX_ENUMERATED:
            raise ParameterError(
                f"the {self.key} law at {self.steps} steps has too many symbols to list. Use fewer steps."
            )
        return symbols

    @cached_property
    def num_symbols(self) -> int | None:
        return None if self.symbol_range is None else len(self.symbol_range)

    def code(self, symbol: int) -> int:
        """Return the position of a symbol, from 0: in order, or in zig-zag (0, -1, 1, -2, ...) if they are endless."""
        if self.symbol_range is None:
            return 2 * symbol if symbol >= 0 else -2 * symbol - 1
        return self.symbol_range.index(symbol)

    def symbol(self, code: int) -> int:
        if self.symbol_range is None:
            return -(code + 1) // 2 if code % 2 else code // 2
        return self.symbol_range[code]

    def split(self, symbol: int) -> tuple[str, int]:
        """Return the law that made a symbol, and its symbol there: the coin of the hybrid law is public."""
        return self.key, symbol

    def part(self, key: str) -> NumberLaw:
        if key != self.key:
            raise ParameterError(f"the {self.key} law has no part {shown(key)}.")
        return self


class _SignLaw(NumberLaw):
    signs: ClassVar[bool] = True
    num_inputs: ClassVar[int] = 2  # minus (0) and plus (1)
    symbol_range: ClassVar[range] = range(-1, 2, 2)

    def index_of(self, point: int, noise: Noise) -> int:
        """Round a point to plus with probability ``(1 + i/m) / 2``, else to minus."""
        return int(noise.below(2 * self.steps) < self.steps + point)

    def perturb(self, index: int, noise: Noise) -> int:
        sign = 2 * index - 1
        return sign if noise.bernoulli_logistic(self.epsilon) else -sign

    def exponent(self, index: int, symbol: int) -> Fraction:
        return self.epsilon if symbol == 2 * index - 1 else Fraction(0)

    def scale_at(self, odds: Fraction) -> Fraction:
        return (odds + 1) / (odds - 1)

    @cached_property
    def quadratic(self) -> tuple[float, float]:
        return float(self.scale_at(odds_of(self.epsilon)) ** 2), 0.0


class Duchi(_SignLaw):
    """Round a number to -1 or 1 at random, and keep the sign: P(1) = 1/2 + t (E - 1) / (2 (E + 1)), in two steps."""

    key: ClassVar[str] = "duchi"


class Warner(_SignLaw):
    key: ClassVar[str] = "warner"


class LaplaceNumber(NumberLaw):
    """Add discrete Laplace noise of scale ``2 m / epsilon`` points, without clamping, which keeps the mean."""

    key: ClassVar[str] = "laplace"
    symbol_range: ClassVar[None] = None

    @property
    def noise_scale(self) -> Fraction:
        return 2 * self.steps / self.epsilon

    def perturb(self, index: int, noise: Noise) -> int:
        return index - self.steps + noise.discrete_laplace(self.noise_scale)

    def exponent(self, index: int, symbol: int) -> Fraction:
        return -abs(symbol - index + self.steps) / self.noise_scale

    def scale_at(self, odds: Fraction) -> Fraction:
        return Fraction(1, self.steps)

    @cached_property
    def quadratic(self) -> tuple[float, float]:
        """Return the variance of the noise, ``2 r / (1 - r)^2`` with r = exp(-1 / scale), and 1."""
        growth = odds_of(1 / self.noise_scale)
        return float(2 * growth / (growth - 1) ** 2 / self.steps**2), 1.0


class WindowLaw(NumberLaw):
    stride: int  # symbols from one point to the next (s)
    half: int  # width of the window on either side (h)
    window: int  # number of symbols in the window: 2 h + 1
    num_outside: int  # number of symbols outside it: 2 m s

    def __post_init__(self) -> None:
        super().__post_init__()
        stride, half = self.design()
        reach = self.steps * stride
        vars(self).update(stride=stride, half=half, window=2 * half + 1, num_outside=2 * reach, last=reach + half)

    @abstractmethod
    def design(self) -> tuple[int, int]:
        """Return stride s and half width h: a function of epsilon and steps, the same on every machine."""

    @cached_property
    def _inside(self) -> Coin:
        return odds_coin(self.window, self.num_outside, self.epsilon)

    def perturb(self, index: int, noise: Noise) -> int:
        below = index * self.stride  # symbols below the window, which begins at this one, counted from -N
        if self._inside.toss(noise):
            return below - self.last + noise.below(self.window)
        other = noise.below(self.num_outside)
        return other - self.last + (self.window if other >= below else 0)

    def exponent(self, index: int, symbol: int) -> Fraction:
        return self.epsilon if abs(symbol - (index - self.steps) * self.stride) <= self.half else Fraction(0)

    def scale_at(self, odds: Fraction) -> Fraction:
        total = self.window * odds + self.num_outside
        return total / ((odds - 1) * self.window * self.stride * self.steps)

    @cached_property
    def quadratic(self) -> tuple[float, float]:
        constant, square = window_moments(odds_of(self.epsilon), self.steps, self.stride, self.half)
        return float(constant), float(square)


def window_moments(odds: Fraction, steps: int, stride: int, half: int) -> tuple[Fraction, Fraction]:
    """Return a and b of the second moment ``a + b t^2`` of a window law, as rational functions of E."""
    window, reach, last = 2 * half + 1, steps * stride, steps * stride + half
    total = window * odds + 2 * reach
    squares = Fraction(last * (last + 1) * (2 * last + 1), 3) + (odds - 1) * window * Fraction(half * (half + 1), 3)
    square = total / ((odds - 1) * window)
    return square * squares / ((odds - 1) * window * reach * reach), square


@lru_cache(maxsize=1024)
def best_window(steps: int, epsilon: Fraction) -> tuple[int, int]:
    """Choose stride and half width of the piecewise law: least variance at the ends of the domain, where it is most."""
    # The smallest stride within a thousandth of the best wins, because a larger one costs bits. The window is wider
    # than the published m s e^(-epsilon/2), which is not optimal: at epsilon 2 the worst variance falls from 1.228 to
    # 1.092.
    odds = odds_of(epsilon)
    designs = []
    for stride in range(1, max(MAX_STRIDE // steps, 4) + 1):

        def end_variance(half: int, stride: int = stride) -> Fraction:
            constant, square = window_moments(odds, steps, stride, half)
            return constant + square - 1

        low, high = 0, steps * stride
        while low < high:  # the variance at an end falls up to the best half width, and rises after it
            middle = (low + high) // 2
            low, high = (low, middle) if end_variance(middle) <= end_variance(middle + 1) else (middle + 1, high)
        designs.append((end_variance(low), low, stride))
    enough = min(designs)[0] * _WORTH
    return next((stride, half) for variance, half, stride in designs if variance <= enough)


class Piecewise(WindowLaw):
    """The piecewise mechanism in its exact discrete form, with the window that minimises the worst variance."""

    key: ClassVar[str] = "piecewise"

    def design(self) -> tuple[int, int]:
        return best_window(self.steps, self.epsilon)


class SquareWave(WindowLaw):
    """The square wave mechanism of Li et al. 2020: one symbol per point, and a window for a whole distribution."""

    key: ClassVar[str] = "square-wave"
    counted: ClassVar[bool] = True

    def design(self) -> tuple[int, int]:
        odds = odds_of(self.epsilon)
        share = (self.epsilon * odds - odds + 1) / (2 * odds * (odds - 1 - self.epsilon))
        return 1, math.floor(share * (2 * self.steps + 1))


class Hybrid(NumberLaw):
    """A piecewise law with probability ``1 - e^(-epsilon/2)``, else Duchi's; the symbol says which one it is."""

    # Symbols -N .. N are the piecewise law's, -N-1 and N+1 the signs of Duchi's. The coin does not depend on the
    # number, and each law is unbiased by itself, so an estimate may weigh the two in the best way.

    key: ClassVar[str] = "hybrid"
    window_law: ClassVar[type[WindowLaw]] = Piecewise
    piecewise: WindowLaw
    duchi: Duchi
    share: float  # the probability of the piecewise law

    def __post_init__(self) -> None:
        super().__post_init__()
        piecewise, duchi = (law(epsilon=self.epsilon, steps=self.steps) for law in (self.window_law, Duchi))
        share = float(1 - 1 / odds_of(self.epsilon / 2))
        vars(self).update(piecewise=piecewise, duchi=duchi, share=share, last=piecewise.last + 1)

    @property
    def num_inputs(self) -> int:
        return 2 * self.piecewise.num_inputs

    def index_of(self, point: int, noise: Noise) -> int:
        return 2 * (point + self.steps) + self.duchi.index_of(point, noise)

    def perturb(self, index: int, noise: Noise) -> int:
        if noise.bernoulli_exp(self.epsilon / 2):
            return self.last * self.duchi.perturb(index & 1, noise)
        return self.piecewise.perturb(index >> 1, noise)

    def split(self, symbol: int) -> tuple[str, int]:
        if abs(symbol) == self.last:
            return Duchi.key, 1 if symbol > 0 else -1
        return self.window_law.key, symbol

    def part(self, key: str) -> NumberLaw:
        parts: dict[str, NumberLaw] = {Duchi.key: self.duchi, self.window_law.key: self.piecewise}
        if key not in parts:
            raise ParameterError(f"the hybrid law has the parts {' and '.join(parts)}. Got {shown(key)}.")
        return parts[key]

    def exponent(self, index: int, symbol: int) -> Fraction | None:
        """Return the exponent of the law that made the symbol; all inputs choose it with the same probability."""
        key, inner = self.split(symbol)
        return self.part(key).exponent(index & 1 if key == Duchi.key else index >> 1, inner)

    def scale_at(self, odds: Fraction) -> Fraction:
        raise ParameterError("the hybrid law has a scale for each of its parts. Use split and part.")

    @cached_property
    def quadratic(self) -> tuple[float, float]:
        constant, square = self.piecewise.quadratic
        return self.share * constant + (1 - self.share) * self.duchi.quadratic[0], self.share * square


def hybrid(*, epsilon: Fraction, steps: int) -> Hybrid | Duchi | Piecewise:
    """Return the law with the smallest worst variance: up to epsilon 0.61 Duchi's, above 2.2 piecewise, else hybrid."""
    # The borders are constants, because device and platform must choose alike.
    if epsilon > HYBRID_TO:
        return Piecewise(epsilon=epsilon, steps=steps)
    kind: type[Hybrid] | type[Duchi] = Hybrid if epsilon > HYBRID_FROM else Duchi
    return kind(epsilon=epsilon, steps=steps)


class Designed(NumberLaw):
    """Report an interval of points, one with the own point in it with the odds of epsilon: the least worst variance."""

    # Points of the number are first rounded at random to the few points of a design, 0 .. 2 p. Intervals have whole
    # weights, and those with any one point in them weigh the same together. So every point has the same sum, whatever
    # epsilon is, and the design with the nearest epsilon will do. Symbols are numbers of intervals. The estimate is not
    # linear in the symbol: each has a value of its own, so symbols are counted and not added up.

    key: ClassVar[str] = "designed"
    counted: ClassVar[bool] = True
    points: int  # on either side of the middle (p)
    arcs: tuple[range, ...]  # the points of each interval
    weights: tuple[int, ...]
    around: int  # sum of the weights of the intervals with a point in them
    designed_values: tuple[Fraction, ...]  # about the values, for the epsilon of the design

    def __post_init__(self) -> None:
        super().__post_init__()
        nearest = min(DESIGNS, key=lambda each: abs(Fraction(each) - self.epsilon))
        points, half = DESIGNS[nearest]
        num, arcs = 2 * points + 1, dict[tuple[int, int], tuple[int, Fraction]]()
        for first, stop, weight, value in half:
            exactly = Fraction(str(value))
            arcs |= {(first, stop): (weight, exactly), (num - stop, num - first): (weight, -exactly)}
        order = sorted(arcs)
        weights = tuple(arcs[arc][0] for arc in order)
        vars(self).update(points=points, arcs=tuple(range(*arc) for arc in order), weights=weights)
        around = sum(weight for arc, weight in zip(self.arcs, weights, strict=True) if 0 in arc)
        vars(self).update(around=around, designed_values=tuple(arcs[arc][1] for arc in order))

    @property
    def num_inputs(self) -> int:
        return 2 * self.points + 1

    @property
    def symbol_range(self) -> range:
        return range(len(self.arcs))

    @property
    def elsewhere(self) -> int:
        """Sum of the weights of the intervals without a point in them."""
        return sum(self.weights) - self.around

    def index_of(self, point: int, noise: Noise) -> int:
        below, rest = divmod((point + self.steps) * self.points, self.steps)
        return below + (noise.below(self.steps) < rest)

    @cached_property
    def _inside(self) -> Coin:
        return odds_coin(self.around, self.elsewhere, self.epsilon)

    def perturb(self, index: int, noise: Noise) -> int:
        inside = self._inside.toss(noise)
        at = noise.below(self.around if inside else self.elsewhere)
        for symbol, (arc, weight) in enumerate(zip(self.arcs, self.weights, strict=True)):
            if (index in arc) == inside:
                if at < weight:
                    return symbol
                at -= weight
        raise AssertionError("the weights of intervals add up")

    def exponent(self, index: int, symbol: int) -> Fraction:
        return self.epsilon if index in self.arcs[symbol] else Fraction(0)

    def scale_at(self, odds: Fraction) -> Fraction:
        raise ParameterError("the designed law has a value for each symbol. Use values.")

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The estimate of a number of [-1, 1] for each symbol: unbiased, as near to those of the design as possible."""
        # The mean is right if, for every point, weight times value over the intervals with it adds up to `due`. What is
        # missing is spread over intervals: each gets the sum of the multipliers of its points (least squares).
        odds, num = odds_of(self.epsilon), self.num_inputs
        slope = (self.around * odds + self.elsewhere) / ((odds - 1) * self.points)
        parts = list(zip(self.arcs, self.weights, self.designed_values, strict=True))
        lines = []
        for point in range(num):
            own = [(arc, weight, value) for arc, weight, value in parts if point in arc]
            line = [Fraction(sum(weight for arc, weight, _ in own if other in arc)) for other in range(num)]
            lines.append([*line, slope * (point - self.points) - sum(weight * value for _, weight, value in own)])
        for at in range(num):  # elimination; the matrix is positive definite
            lines[at] = [entry / lines[at][at] for entry in lines[at]]
            for other in range(num):
                if other != at and (factor := lines[other][at]):
                    pairs = zip(lines[other], lines[at], strict=True)
                    lines[other] = [entry - factor * own for entry, own in pairs]
        return tuple(float(value + sum(lines[point][-1] for point in arc)) for arc, _, value in parts)

    @property
    def reach(self) -> float:
        return max(self.values)

    @cached_property
    def moments(self) -> tuple[float, ...]:
        """The second moment of the estimate at each point of the design."""
        odds = float(odds_of(self.epsilon))
        total = self.around * odds + self.elsewhere
        squares = [weight * value**2 for weight, value in zip(self.weights, self.values, strict=True)]
        return tuple(
            math.fsum(square * (odds if point in arc else 1.0) for arc, square in zip(self.arcs, squares, strict=True))
            / total
            for point in range(self.num_inputs)
        )

    @cached_property
    def quadratic(self) -> tuple[float, float]:
        """Return the worst variance and 1: a bound on the second moment, and nearly it, because the design is even."""
        return self.worst(), 1.0

    def variance_at(self, number: float) -> float:
        at = (number + 1) * self.points
        below = min(max(math.floor(at), 0), 2 * self.points - 1)
        rest = at - below
        return (1 - rest) * self.moments[below] + rest * self.moments[below + 1] - number * number

    def worst(self, kept: float = 1.0) -> float:
        best, moments = 0.0, self.moments
        for below in range(2 * self.points):
            # In a cell the curve is moments on a line less a square: its top is where both rise alike.
            rise = (moments[below + 1] - moments[below]) * self.points
            low = below / self.points - 1
            number = min(max(rise / (2 * kept), low), low + 1 / self.points)
            best = max(best, self.variance_at(number) + (1 - kept) * number * number)
        return best


def designed(*, epsilon: Fraction, steps: int) -> Designed | Piecewise:
    """Return the designed law; beyond the largest epsilon with a design, the piecewise law."""
    return (Designed if epsilon <= DESIGNED_TO else Piecewise)(epsilon=epsilon, steps=steps)


class PublishedPiecewise(WindowLaw):
    """L-PM of Yao et al. 2024 with the correct threshold and the published window: half width m s e^(-epsilon/2)."""

    key: ClassVar[str] = "published-piecewise"

    def design(self) -> tuple[int, int]:
        """Return enough symbols for a close window on a coarse grid, and the nearest half width."""
        stride = max(1, MAX_STRIDE // self.steps)
        return stride, round(self.steps * stride / odds_of(self.epsilon / 2))


class PublishedHybrid(Hybrid):
    """The hybrid law as published: the published window is the one that suits its coin."""

    key: ClassVar[str] = "published-hybrid"
    window_law: ClassVar[type[WindowLaw]] = PublishedPiecewise


def published_hybrid(*, epsilon: Fraction, steps: int) -> PublishedHybrid | Duchi:
    return (PublishedHybrid if epsilon > HYBRID_FROM else Duchi)(epsilon=epsilon, steps=steps)


class LiteralPiecewise(PublishedPiecewise):
    """L-PM as Algorithm 1 of Yao et al. 2024 prints it: the wrong threshold, so a biased estimate. Never a default."""

    # Its symbols are read with the scale of the correct threshold, e^(epsilon/2) / (e^(epsilon/2) + 1): on a fine grid
    # the mean of an estimate is t / (e^epsilon + 1) instead of t. Its probabilities are not powers of e^epsilon, so its
    # loss is not epsilon and has no rational closed form; ratio_bounds encloses it.

    key: ClassVar[str] = "literal-piecewise"

    @cached_property
    def _inside(self) -> Coin:
        """A coin of probability ``exp(epsilon / 2) / (exp(epsilon) + 1)``, the threshold that Algorithm 1 prints."""

        def bounds(bits: int) -> Interval:
            width = bits + 4
            (half_low, half_high), (low, high) = (exp_interval(x, width) for x in (self.epsilon / 2, self.epsilon))
            one = 1 << width
            return (half_low << bits) // (one + high), ceil_divide(half_high << bits, one + low)

        return Coin(bounds)

    @property
    def inside(self) -> float:
        return float(odds_of(self.epsilon / 2) / (odds_of(self.epsilon) + 1))

    @property
    def loss(self) -> Fraction | None:
        """The largest loss of one symbol, rounded up at the 40th digit because no closed form is rational."""
        context, ratio = Context(prec=40), self.ratio_bounds()[1]
        above = context.divide(Decimal(ratio.numerator), Decimal(ratio.denominator)).next_plus(context)
        return Fraction(above.ln(context).next_plus(context))

    def exponent(self, index: int, symbol: int) -> Fraction:
        raise ParameterError("the printed Algorithm 1 has no rational exponents. Use ratio_bounds.")

    def ratio_bounds(self) -> tuple[Fraction, Fraction]:
        one = 1 << _DIGITS
        low, high = (
            Fraction(yes * self.num_outside, (one - yes) * self.window) for yes in self._inside.bounds(_DIGITS)
        )
        return (low, high) if low >= 1 else (1 / high, 1 / low)

    @property
    def slope(self) -> float:
        """Mean of an estimate over the number it estimates: not 1 (unbiased), but about 1 / (e^epsilon + 1)."""
        shift = self.inside - (1 - self.inside) * self.window / self.num_outside
        return self.scale * shift * self.stride * self.steps

    @cached_property
    def quadratic(self) -> tuple[float, float]:
        half, window, reach, last = self.half, self.window, self.steps * self.stride, self.last
        inner = half * (half + 1) / 3
        everything = last * (last + 1) * (2 * last + 1) / 3
        each = (1 - self.inside) / self.num_outside
        scale = self.scale**2
        constant = scale * (self.inside * inner + each * (everything - window * inner))
        return constant, scale * reach * reach * (self.inside - each * window)


@dataclass(frozen=True, kw_only=True)
class JointDuchi(Reading):
    """Duchi's law for d numbers at once, each rounded to -1 or 1; as a reading, it reads one sign of a symbol."""

    # A sign vector that agrees with the input in more than half of the places is likelier by e^epsilon. At even d all
    # vectors that agree in exactly half of the places count with the unlikely ones, which makes the scale smallest. In
    # the usual printed form they are in both halves, and the loss is ln(e^epsilon + 1).

    key: ClassVar[str] = Duchi.key
    signs: ClassVar[bool] = True
    dimensions: int  # how many numbers (d)

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.dimensions) is not int or self.dimensions < 1:
            raise ParameterError(f"dimensions must be a whole number of at least 1. Got {shown(self.dimensions)}.")

    @property
    def num_inputs(self) -> int:
        """Number of sign vectors; bit j of one is set where number j is plus."""
        return 1 << self.dimensions

    @cached_property
    def num_likely(self) -> int:
        return sum(math.comb(self.dimensions, agreeing) for agreeing in self._likely)

    @property
    def _likely(self) -> range:
        return range(self.dimensions // 2 + 1, self.dimensions + 1)

    @cached_property
    def _side(self) -> Coin:
        return odds_coin(self.num_likely, self.num_inputs - self.num_likely, self.epsilon)

    def symbols(self) -> range:
        if self.num_inputs**2 > MAX_ENUMERATED:
            raise ParameterError(f"{self.dimensions} numbers have too many sign vectors to list. Use fewer numbers.")
        return range(self.num_inputs)

    def perturb(self, index: int, noise: Noise) -> int:
        likely = self._side.toss(noise)
        # The number of repetitions does not depend on the input.
        while (2 * (agree := noise.bits(self.dimensions)).bit_count() > self.dimensions) != likely:
            continue
        return index ^ agree ^ (self.num_inputs - 1)

    def exponent(self, index: int, symbol: int) -> Fraction:
        agreeing = self.dimensions - (index ^ symbol).bit_count()
        return self.epsilon if 2 * agreeing > self.dimensions else Fraction(0)

    def scale_at(self, odds: Fraction) -> Fraction:
        """Return ``(E T+ + T-) / ((E - 1) Z)``, Z the sum over likely vectors of the agreement in one place."""
        dimensions, likely = self.dimensions, self.num_likely
        agreement = sum(math.comb(dimensions, a) * (2 * a - dimensions) for a in self._likely)
        return (odds * likely + self.num_inputs - likely) * dimensions / ((odds - 1) * agreement)

    @cached_property
    def quadratic(self) -> tuple[float, float]:
        return self.scale**2, 0.0


Entry = tuple[int, int]  # an attribute and its symbol
Symbol = tuple[int, str, int]  # an attribute, the key of the law of its symbol, and the symbol
Points = Callable[[int], int]  # from an attribute to its point; called only for sampled attributes


@dataclass(frozen=True, kw_only=True)
class ReportedNumber:
    quantity: Quantity
    presence: bool = False  # whether this is the virtual number that is 1 if the quantity has a value, and else -1

    @property
    def name(self) -> str:
        return f"{self.quantity.name} present" if self.presence else self.quantity.name

    @property
    def steps(self) -> int:
        return 1 if self.presence else self.quantity.steps

    def point(self, value: object, noise: Noise) -> int:
        """Round a value to a point of -steps .. steps; never raises."""
        if self.presence:
            return 1 if self.quantity.present(value) else -1
        return self.quantity.point(value, noise)


def attributes_of(quantities: Sequence[Quantity]) -> tuple[ReportedNumber, ...]:
    """List the attributes: all quantities in order, then a presence for each that has ``missing = "symbol"``."""
    presences = (
        ReportedNumber(quantity=quantity, presence=True) for quantity in quantities if quantity.missing == "symbol"
    )
    return (*(ReportedNumber(quantity=quantity) for quantity in quantities), *presences)


def combination(rank: int, num: int, size: int) -> Iterator[int]:
    """Yield the members of a set of ``size`` out of ``num``, by the rank of the set in lexicographic order."""
    for member in range(num):
        if not size:
            return
        with_it = math.comb(num - member - 1, size - 1)
        if rank < with_it:
            yield member
            size -= 1
        else:
            rank -= with_it


def _refused(what: str) -> ReportError:
    return ReportError(f"a report of numbers cannot be read: {what}. No device of this task made it. Leave it out.")


def _symbol_of(payload: bytes) -> int:
    """Return a payload as a whole number that also encodes its length."""
    return int.from_bytes(payload + b"\x01", "little")


def _num_bytes(num: int) -> int:
    return ((num - 1).bit_length() + 7) // 8


@dataclass(frozen=True)
class SampledReport:
    """A report of ``num_sampled`` attributes out of all, sampled evenly, each hidden by its own law."""

    # An input combines one input for each attribute (the first varies fastest). Two may differ in all attributes, so
    # the loss is the sum over the sampled laws; with all attributes at epsilon each this is e-L_LDP. A payload has the
    # rank of the sampled set and the symbols, in the order of the attributes: as one number of mixed radix in a fixed
    # number of bytes, least first; if a law has endlessly many symbols, each symbol as a varint after the rank. A
    # symbol of this channel is the payload as a whole number.

    laws: tuple[NumberLaw, ...]  # one for each attribute
    num_sampled: int  # how many are in a report

    @cached_property
    def num_sets(self) -> int:
        return math.comb(len(self.laws), self.num_sampled)

    @property
    def share(self) -> float:
        return self.num_sampled / len(self.laws)

    @cached_property
    def num_inputs(self) -> int:
        return math.prod(law.num_inputs for law in self.laws)

    @cached_property
    def loss(self) -> Fraction | None:
        """The largest loss of one report: the sum of the largest losses that a sample may combine."""
        losses = sorted((law.epsilon if law.loss is None else law.loss for law in self.laws), reverse=True)
        return sum(losses[: self.num_sampled], Fraction(0))

    @cached_property
    def _num_payloads(self) -> int | None:
        """The largest number of payloads, by the laws with the most symbols; None if they are endless."""
        sizes = sorted(law.num_symbols for law in self.laws if law.num_symbols is not None)
        return self.num_sets * math.prod(sizes[-self.num_sampled :]) if len(sizes) == len(self.laws) else None

    @property
    def payload_bits(self) -> int:
        """Bits of a payload; with Laplace noise, of nearly all payloads, because there is no limit."""
        if self._num_payloads is not None:
            return (self._num_payloads - 1).bit_length()
        rare = [law.code(math.ceil(_RARE * law.noise_scale)) for law in self.laws if isinstance(law, LaplaceNumber)]
        return 8 * (_num_bytes(self.num_sets) + self.num_sampled * len(varint(max(rare))))

    def reading(self, attribute: int, key: str) -> Reading:
        return self.laws[attribute].part(key)

    def worst_of(self, attribute: int) -> float:
        return self.laws[attribute].worst(self.share) / self.share

    def draw(self, points: Points, noise: Noise) -> bytes:
        rank = noise.below(self.num_sets)
        entries = []
        for attribute in combination(rank, len(self.laws), self.num_sampled):
            law = self.laws[attribute]
            entries.append((attribute, law.perturb(law.index_of(points(attribute), noise), noise)))
        return self._pack(rank, entries)

    def _pack(self, rank: int, entries: Sequence[Entry]) -> bytes:
        if self._num_payloads is None:
            varints = (varint(self.laws[attribute].code(symbol)) for attribute, symbol in entries)
            return rank.to_bytes(_num_bytes(self.num_sets), "little") + b"".join(varints)
        number = 0
        for attribute, symbol in reversed(entries):
            law = self.laws[attribute]
            number = number * (law.num_symbols or 1) + law.code(symbol)
        return (number * self.num_sets + rank).to_bytes(_num_bytes(self._num_payloads), "little")

    def entries(self, payload: bytes) -> list[Entry]:
        endless, entries = self._num_payloads is None, []
        start, number = _num_bytes(self.num_sets), 0
        rank, rest = int.from_bytes(payload[:start], "little"), payload[start:]
        if endless and (len(payload) < start or rank >= self.num_sets):
            raise _refused("it does not say which numbers it contains")
        if self._num_payloads is not None:
            due = _num_bytes(self._num_payloads)
            if len(payload) != due:
                raise _refused(f"it has {len(payload)} bytes instead of {due}")
            number, rank = divmod(int.from_bytes(payload, "little"), self.num_sets)
        for attribute in combination(rank, len(self.laws), self.num_sampled):
            law = self.laws[attribute]
            if endless:
                code, rest = _read_varint(rest)
                if law.num_symbols is not None and code >= law.num_symbols:
                    raise _refused("a symbol does not belong to its law")
            else:
                number, code = divmod(number, law.num_symbols or 1)
            entries.append((attribute, law.symbol(code)))
        if number:
            raise _refused("its number is too large")
        if endless and rest:
            raise _refused(f"it has {len(rest)} bytes too many")
        return entries

    def read(self, payload: bytes) -> list[Symbol]:
        return [(attribute, *self.laws[attribute].split(symbol)) for attribute, symbol in self.entries(payload)]

    def perturb(self, index: int, noise: Noise) -> int:
        rank, inputs = noise.below(self.num_sets), self._inputs(index)
        members = combination(rank, len(self.laws), self.num_sampled)
        return _symbol_of(self._pack(rank, [(at, self.laws[at].perturb(inputs[at], noise)) for at in members]))

    def _inputs(self, index: int) -> list[int]:
        inputs = []
        for law in self.laws:
            index, own = divmod(index, law.num_inputs)
            inputs.append(own)
        return inputs

    def exponent(self, index: int, symbol: int) -> Fraction | None:
        inputs = self._inputs(index)
        payload = symbol.to_bytes((symbol.bit_length() + 7) // 8, "little")[:-1]
        parts = [self.laws[at].exponent(inputs[at], own) for at, own in self.entries(payload)]
        possible = [part for part in parts if part is not None]
        return sum(possible, Fraction(0)) if len(possible) == len(parts) else None

    def symbols(self) -> list[int]:
        most = self._num_payloads
        if most is None or most * self.num_inputs > MAX_ENUMERATED:
            raise ParameterError(
                "there are too many reports to list. Use fewer steps or quantities, or another method."
            )
        symbols = []
        for rank in range(self.num_sets):
            members = combination(rank, len(self.laws), self.num_sampled)
            num = math.prod(self.laws[at].num_symbols or 1 for at in members)
            numbers = range(rank, num * self.num_sets, self.num_sets)
            symbols += [_symbol_of(number.to_bytes(_num_bytes(most), "little")) for number in numbers]
        return symbols


@dataclass(frozen=True, kw_only=True)
class JointReport(JointDuchi):
    """A report of all attributes by Duchi's law for many numbers: one bit each, the first lowest."""

    attribute_steps: tuple[int, ...]  # the points of each attribute are -steps .. steps
    share: ClassVar[float] = 1.0  # share of the reports about one attribute: all

    @property
    def payload_bits(self) -> int:
        return self.dimensions

    def reading(self, attribute: int, key: str) -> Reading:
        if key != self.key or not 0 <= attribute < self.dimensions:
            raise ParameterError(f"the joint law has no part {shown(key)} for attribute {attribute}.")
        return self

    def worst_of(self, attribute: int) -> float:
        return self.worst()

    def draw(self, points: Points, noise: Noise) -> bytes:
        index = 0
        for attribute, steps in enumerate(self.attribute_steps):
            index |= (noise.below(2 * steps) < steps + points(attribute)) << attribute
        return self.perturb(index, noise).to_bytes(_num_bytes(self.num_inputs), "little")

    def read(self, payload: bytes) -> list[Symbol]:
        due, signs = _num_bytes(self.num_inputs), int.from_bytes(payload, "little")
        if len(payload) != due or signs >= self.num_inputs:
            raise _refused(f"it has {len(payload)} bytes instead of {self.dimensions} bits in {due}")
        return [(attribute, self.key, 1 if signs >> attribute & 1 else -1) for attribute in range(self.dimensions)]


def varint(number: int) -> bytes:
    """Write seven bits to a byte, lowest first, with the highest bit set in all bytes but the last."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _read_varint(data: bytes) -> tuple[int, bytes]:
    """Read a number in its shortest form; also return the bytes after it."""
    number = 0
    for place, byte in enumerate(data[:_MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if place and not byte:
                raise _refused("a number is longer than necessary")
            return number, data[place + 1 :]
    raise _refused("a number does not end")


NumberReport = SampledReport | JointReport

_LAWS: Mapping[str, Callable[..., NumberLaw]] = {
    "hybrid": hybrid,
    PublishedHybrid.key: published_hybrid,
    "designed": designed,
    "piecewise": Piecewise,
    "harmony": Duchi,
    "laplace": LaplaceNumber,
    "square-wave": SquareWave,
    "warner": Warner,
}


def _laws(
    make: Callable[..., NumberLaw], attributes: Sequence[ReportedNumber], epsilon: Fraction
) -> tuple[NumberLaw, ...]:
    # For a yes or no, the best law keeps it with odds of e^epsilon.
    return tuple((Warner if at.presence else make)(epsilon=epsilon, steps=at.steps) for at in attributes)


def published_report(attributes: Sequence[ReportedNumber], epsilon: Fraction) -> SampledReport:
    """Return e-L_LDP: every attribute through L-PM (with the correct threshold) at the whole epsilon."""
    return SampledReport(_laws(PublishedPiecewise, attributes, epsilon), len(attributes))


def sampled_report(
    attributes: Sequence[ReportedNumber], epsilon: Fraction, *, method: str, sampled: int | None
) -> SampledReport:
    """Return the sound report: ``sampled`` attributes, chosen evenly, share epsilon."""
    num = sampled or (1 if method == "harmony" else num_sampled(epsilon, len(attributes)))
    return SampledReport(_laws(_LAWS[method], attributes, epsilon / num), num)


def joint_report(attributes: Sequence[ReportedNumber], epsilon: Fraction) -> JointReport:
    steps = tuple(attribute.steps for attribute in attributes)
    return JointReport(epsilon=epsilon, dimensions=len(attributes), attribute_steps=steps)


def num_sampled(epsilon: Fraction, num_attributes: int) -> int:
    """Return the best number of attributes to sample: ``max(1, min(d, floor(epsilon / 2.5)))``, Wang et al. 2019."""
    return max(1, min(num_attributes, math.floor(epsilon / EPSILON_EACH)))


@dataclass(frozen=True, kw_only=True)
class LocalNumeric(Tiered[NumberReport]):
    """Report numbers with public bounds, a few at random or all at once.

    Parameters
    ----------
    quantities
        The numbers.
    epsilon, tiers
        Privacy loss of one report, over all its numbers: one value for all devices, or public tiers.
    method
        ``designed`` (least worst variance), ``hybrid``, ``published-hybrid``, ``piecewise``, ``laplace`` (means),
        ``square-wave`` (distributions), ``warner`` (each quantity a yes or no: ``steps = 1``), ``harmony`` (one number,
        by Duchi's), ``duchi`` (the signs of all numbers at once).
    sampled
        How many numbers a report contains; None for ``max(1, min(d, floor(epsilon / 2.5)))``.
    as_published
        The published e-L_LDP: every number at the whole epsilon, by the piecewise law with the published window.

    Guarantee
    ---------
    Epsilon-local differential privacy of one report, proved; ``as_published``: claimed, and really d times epsilon.

    Assumptions
    -----------
    Bounds, steps and tiers are public; every slot sends a report, whatever there is to report.

    Runtime
    -------
    Some 20 microseconds for each number in a report.

    Utility
    -------
    Unbiased means; :meth:`predicted_sd` predicts their error before anything is collected.

    References
    ----------
    Yao et al. 2024, Algorithms 1 and 2; Wang et al. 2019 (sampling, hybrid); Nguyen et al. 2016 (Harmony); Duchi,
    Jordan, Wainwright 2018; Li et al. 2020 (square wave); Warner 1965.

    Examples
    --------
    >>> speed = Quantity(name="speed", low="0", high="120", unit="km/h")
    >>> load = Quantity(name="load", low="0", high="20", unit="t")
    >>> numbers = LocalNumeric(quantities=(speed, load), epsilon="1")
    >>> payload = numbers.perturb({"speed": 63.5, "load": None}, tier="all", noise=Noise())
    >>> len(payload), [round(sd, 2) for sd in numbers.predicted_sd("all", 5000)]
    (2, [2.61, 0.43])
    """

    name: ClassVar[str] = "local-numeric"
    subject: ClassVar[str] = "quantities"
    num_steps: ClassVar[tuple[int, int]] = (1, 1)
    parameters: ClassVar[tuple[str, ...]] = ("method", "as_published", "sampled")
    methods: ClassVar[tuple[str, ...]] = (*_LAWS, "duchi")
    quantities: Sequence[Quantity]
    method: str = "hybrid"
    as_published: bool = False
    sampled: int | None = None
    attributes: tuple[ReportedNumber, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set_levels()
        quantities = tuple(self.quantities) if isinstance(self.quantities, tuple | list) else ()
        if not 1 <= len(quantities) <= MAX_QUANTITIES or not all(isinstance(each, Quantity) for each in quantities):
            raise ParameterError(
                f"quantities must be a list of 1 to {MAX_QUANTITIES} objects of the form Quantity(name=...)."
            )
        if len({quantity.name for quantity in quantities}) < len(quantities):
            raise ParameterError("quantities must have different names. Rename one.")
        object.__setattr__(self, "quantities", quantities)
        object.__setattr__(self, "attributes", attributes_of(self.quantities))
        if self.method not in self.methods:
            raise ParameterError(f"method must be one of {', '.join(self.methods)}. Got {shown(self.method)}.")
        if self.as_published and (self.method not in ("hybrid", "piecewise") or self.sampled is not None):
            raise ParameterError("as_published has its own method and reports all numbers. Leave the others out.")
        if self.method == "warner" and any(quantity.steps != 1 for quantity in self.quantities):
            raise ParameterError("warner is for a yes or no. Give every quantity steps = 1, or use hybrid.")
        most = len(self.attributes)
        fixed = {"harmony": 1, "duchi": most}.get(self.method)
        if self.sampled is not None and (type(self.sampled) is not int or not 1 <= self.sampled <= most):
            raise ParameterError(f"sampled must be a whole number from 1 to {most}. Got {shown(self.sampled)}.")
        if fixed and self.sampled not in (None, fixed):
            raise ParameterError(f"{self.method} always reports {fixed} of {most} numbers. Leave sampled out.")
        make: Callable[..., NumberReport] = partial(sampled_report, method=self.method, sampled=self.sampled)
        if self.as_published or self.method == "duchi":
            make = published_report if self.as_published else joint_report
        object.__setattr__(self, "_laws", {tier.name: make(self.attributes, tier.epsilon) for tier in self.levels})

    def reading(self, tier: Tier | str, attribute: int, key: str) -> Reading:
        """Return how to read the symbols that :meth:`read` returns for an attribute and a key."""
        return self.channel(tier).reading(attribute, key)

    def perturb(self, value: object, *, tier: Tier | str, noise: Noise) -> bytes:
        """Make a report of a value for each quantity; there is always one, whatever the values."""
        values: Mapping[Any, object] = value if isinstance(value, Mapping) else {}
        if not isinstance(value, Mapping):
            names = [quantity.name for quantity in self.quantities]
            with suppress(Exception):  # no private value of any type may stop the report
                values = dict(zip(names, value, strict=False))  # type: ignore[call-overload]
        draw, own = self.channel(tier).draw, self.attributes
        return draw(lambda at: own[at].point(values.get(own[at].quantity.name), noise), noise)

    def read(self, payload: bytes, *, tier: Tier | str) -> list[Symbol]:
        """Read a payload as triples: attribute (see :attr:`attributes`), key of the law, symbol of that law."""
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise _refused(f"its payload is of type {type(payload).__name__} instead of bytes")
        return self.channel(tier).read(bytes(payload))

    def predicted_sd(self, tier: Tier | str, num_devices: int) -> tuple[float, ...]:
        """Return the largest standard deviation of each quantity's estimated mean, in its unit.

        The maximum is over all ways in which a number may be spread among devices, all of this tier. A quantity with
        ``missing = "symbol"`` is assumed to be hardly ever missing: if only a share of the slots has it, divide by it.
        """
        report, num = self.channel(tier), integer(num_devices, "num_devices", least=1)
        variances = [report.worst_of(at) / num for at in range(len(self.attributes))]
        # A mean over those present is a ratio; if all are present, the variance of their share is added.
        shares = {at.quantity.name: v / 4 for at, v in zip(self.attributes, variances, strict=True) if at.presence}
        return tuple(
            float((quantity.high - quantity.low) / 2) * math.sqrt(variance + shares.get(quantity.name, 0.0))
            for quantity, variance in zip(self.quantities, variances, strict=False)
        )

    def describe(self) -> dict[str, object]:
        return {
            "name": self.name,
            "quantities": [quantity.to_dict() for quantity in self.quantities],
            "tiers": {tier.name: plain(tier.epsilon) for tier in self.levels},
            "method": "published-piecewise" if self.as_published else self.method,
            "sampled": {tier.name: self.num_told(tier) for tier in self.levels},
            "as_published": self.as_published,
        }

    def num_told(self, tier: Tier | str) -> int:
        report = self.channel(tier)
        return report.num_sampled if isinstance(report, SampledReport) else len(self.attributes)

    def promise(self) -> Promise:
        """State what one report guarantees, for the tier with the largest loss. This needs no data."""
        epsilon, num = max(tier.epsilon for tier in self.levels), len(self.attributes)
        some = any(self.channel(tier).share < 1 for tier in self.levels)
        middle = [quantity.name for quantity in self.quantities if quantity.missing == "middle"]
        stated = Promise(
            guarantee=LocalDP(epsilon=epsilon, protects="report", neighbours=Neighbours.REPLACE_ONE),
            basis=Basis.PROVED,
            mechanism=self.describe(),
            assumptions=REPORT_ASSUMPTIONS,
            in_clear=("which of the numbers a report tells, drawn without looking at them",) if some else (),
            warnings=(f"a missing number counts as the middle of its domain: {', '.join(middle)}",) if middle else (),
            notes=("local-numeric.md#whole-reports",),
        )
        if not self.as_published:
            return stated
        loss = num * epsilon
        return replace(
            stated,
            basis=Basis.CLAIMED,
            claim=f"epsilon {shown_number(epsilon)} for all numbers of a report",
            holds=LocalDP(epsilon=loss, protects="report", neighbours=Neighbours.REPLACE_ONE),
            why=f"each of {num} numbers is hidden at the whole epsilon: a report gives away {shown_number(loss)}",
        )
