# SPDX-License-Identifier: Apache-2.0
"""Laws that hide one number: exact, discrete, unbiased.

A number of [-1, 1] has been rounded at random to a point i of -m .. m (:meth:`dunnage.local.task.Quantity.point`), so
that its mean is kept. A law takes the point on: :meth:`~NumberLaw.index_of` makes an input of it, and the law is a
:class:`~dunnage.local.oracles.Channel` from inputs to symbols. Every law's estimate is *linear* in the symbol,
``value(symbol) = scale * symbol``, and its mean is i/m exactly, so that sums of symbols are all an estimate needs.

===================  ================================================
law                  inputs                             symbols                     one symbol has weight
===================  ================================================
:class:`Warner`      no, yes (0, 1)                     -1, 1                       E if it agrees, else 1
:class:`Duchi`       -1, 1 (0, 1), drawn from the point  -1, 1                      E if it agrees, else 1
:class:`Piecewise`   points (i + m)                     -N .. N, N = m s + h        E if within h of i s, else 1
:class:`SquareWave`  points (i + m)                     the same with s = 1         the same
:class:`LaplaceNumber`  points (i + m)                  all whole numbers           exp(-abs(o - i) epsilon / (2 m))
:class:`Hybrid`      point and sign (2 (i + m) + sign)  -N-1 .. N+1                 that of the law that was chosen
===================  ================================================

E stands for e to the epsilon. Where a formula needs E as a number (scales, variances, the choice of a window) it is a
fraction that is right to 128 binary digits, never a float of some platform's library: device and platform always agree.
Draws need no such number. Proofs: ``docs/proofs/local-numeric.md``. Only the standard library is used.

References
----------
Warner 1965; Duchi, Jordan, Wainwright 2018; Wang et al. 2019 (piecewise, hybrid); Li et al. 2020 (square wave); Yao et
al. 2024 (L-PM). Discrete forms: here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar

from dunnage.errors import ParameterError
from dunnage.exact import shown, shown_number
from dunnage.local.oracles import MOST_ENUMERATED
from dunnage.noise import WORD_BITS, Interval, Noise, ceil_divide, exp_interval, rational

LEAST_EPSILON = Fraction(1, 10**6)
MOST_EPSILON = 100  # Smallest and largest epsilon of a law: outside, a report says nothing, or everything
HYBRID_FROM, HYBRID_TO = Fraction(61, 100), Fraction(11, 5)
"""Up to this epsilon the hybrid law is Duchi's alone (Wang et al. 2019, eq. 8: 0.6102...)."""
MOST_STRIDE = 16
_DIGITS = 128
_WORTH = Fraction(1001, 1000)


@lru_cache(maxsize=1024)
def odds_of(epsilon: Fraction) -> Fraction:
    """Return e to the epsilon as a fraction, right to 128 binary digits, the same on every machine."""
    bits = _DIGITS + 2 * math.ceil(epsilon)
    low, high = exp_interval(epsilon, bits)
    return Fraction(2 << bits, low + high)


class Coin(ABC):
    """A coin of an irrational probability, tossed exactly: 64 digits of a uniform number decide nearly always."""

    @abstractmethod
    def bounds(self, bits: int) -> Interval:
        """Enclose the probability of yes, times ``2**bits``, between two integers a bounded number apart."""

    @cached_property
    def _first(self) -> Interval:
        return self.bounds(WORD_BITS)

    def toss(self, noise: Noise) -> bool:
        word, (low, high) = noise.bits(WORD_BITS), self._first
        if word < low or word >= high:
            return word < low
        return noise.invert(lambda bits: [self.bounds(bits)], word, WORD_BITS) == 0


class OddsCoin(Coin):
    """Yes with odds of ``likely`` to ``other * exp(-epsilon)``."""

    def __init__(self, likely: int, other: int, epsilon: Fraction) -> None:
        self.likely, self.other, self.epsilon = likely, other, epsilon

    def bounds(self, bits: int) -> Interval:
        width = bits + self.other.bit_length() + 4
        low, high = exp_interval(self.epsilon, width)
        yes = self.likely << width
        return (yes << bits) // (yes + self.other * high), ceil_divide(yes << bits, yes + self.other * low)


class _LiteralCoin(Coin):
    """Yes with probability ``exp(epsilon / 2) / (exp(epsilon) + 1)``, the threshold that Algorithm 1 prints."""

    def __init__(self, epsilon: Fraction) -> None:
        self.epsilon = epsilon

    def bounds(self, bits: int) -> Interval:
        width = bits + 4
        (half_low, half_high), (low, high) = exp_interval(self.epsilon / 2, width), exp_interval(self.epsilon, width)
        one = 1 << width
        return (half_low << bits) // (one + high), ceil_divide(half_high << bits, one + low)


@dataclass(frozen=True, kw_only=True)
class Reading(ABC):
    """How the symbols of one number are read: the estimate of each, and how far it is off."""

    key: ClassVar[str]
    epsilon: Fraction  # What one symbol gives away at most
    steps: int = 1  # The points are -steps .. steps

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", rational(self.epsilon, "epsilon"))
        if not LEAST_EPSILON <= self.epsilon <= MOST_EPSILON:
            raise ParameterError(
                f"epsilon for one number must lie between 0.000001 and {MOST_EPSILON}. "
                f"Got {shown_number(self.epsilon)}. Use 1, say."
            )
        if type(self.steps) is not int or self.steps < 1:
            raise ParameterError(f"steps must be a whole number of at least 1. Got {shown(self.steps)}. Use 1024, say.")

    @abstractmethod
    def scale_at(self, odds: Fraction) -> Fraction:
        """Return the scale as the rational function of E = e^epsilon that it is."""

    @property
    @abstractmethod
    def quadratic(self) -> tuple[float, float]:
        """Give a and b of the second moment ``a + b t^2`` of the estimate of a point ``t = i / m``."""

    @cached_property
    def scale(self) -> float:
        """Factor that makes an unbiased estimate in [-1, 1] units of a symbol: exact, rounded once."""
        return float(self.scale_at(odds_of(self.epsilon)))

    def value(self, symbol: int) -> float:
        """Return the unbiased estimate, in units of [-1, 1], that a symbol stands for."""
        return self.scale * symbol

    def variance_at(self, number: float) -> float:
        """Return the variance of the estimate of a number of [-1, 1], with its random rounding to a point."""
        constant, square = self.quadratic
        below = min(math.floor(abs(number) * self.steps), self.steps - 1)
        # The second moment is linear between the points on either side.
        inner = below * below + (abs(number) * self.steps - below) * (2 * below + 1)
        return constant + square * inner / self.steps**2 - number * number

    def worst(self, kept: float = 1.0) -> float:
        """Return the largest value, over numbers t, of the second moment less ``kept * t^2``; ``kept`` above 0."""
        # Between points the curve is concave, and along the points it only rises or only falls: first or last cell.
        square, best = self.quadratic[1], 0.0
        for cell in (0, self.steps - 1):
            part = min(max(square * (2 * cell + 1) / (2 * kept) - cell, 0.0), 1.0)
            number = (cell + part) / self.steps
            best = max(best, self.variance_at(number) + (1 - kept) * number * number)
        return best

    @cached_property
    def worst_variance(self) -> float:
        return self.worst()


class NumberLaw(Reading):
    """A law of one number: a channel whose symbols can be read."""

    @property
    def loss(self) -> Fraction | None:
        return self.epsilon

    @property
    def num_inputs(self) -> int:
        """Number of inputs: of points, unless the law knows ends only."""
        return 2 * self.steps + 1

    @property
    @abstractmethod
    def symbol_range(self) -> range | None:
        """All symbols in order, however many; None if they are endless."""

    def index_of(self, point: int, noise: Noise) -> int:
        """Make an input of a point; at random where the law knows ends only."""
        return point + self.steps

    @abstractmethod
    def perturb(self, index: int, noise: Noise) -> int:
        """Draw a symbol for an input."""

    @abstractmethod
    def exponent(self, index: int, symbol: int) -> Fraction | None:
        """Return the part of the logarithm of the probability that depends on the input."""

    def symbols(self) -> range:
        """All symbols there are; refuses if a check of all pairs would be too long, or endless."""
        found = self.symbol_range
        if found is None or len(found) * self.num_inputs > MOST_ENUMERATED:
            raise ParameterError(
                f"the symbols of the {self.key} law at {self.steps} steps are too many to list. Use fewer steps."
            )
        return found

    @cached_property
    def num_symbols(self) -> int | None:
        return None if self.symbol_range is None else len(self.symbol_range)

    def code(self, symbol: int) -> int:
        """Return the place of a symbol, from 0: in order, or in zig-zag (0, -1, 1, -2, ...) if they are endless."""
        if self.symbol_range is None:
            return 2 * symbol if symbol >= 0 else -2 * symbol - 1
        return self.symbol_range.index(symbol)

    def symbol(self, code: int) -> int:
        if self.symbol_range is None:
            return -(code + 1) // 2 if code % 2 else code // 2
        return self.symbol_range[code]

    def split(self, symbol: int) -> tuple[str, int]:
        """Return which law drew a symbol, and its symbol there: the coin of the hybrid law is public."""
        return self.key, symbol

    def part(self, key: str) -> NumberLaw:
        """Return the law of a key that :meth:`split` gave."""
        if key != self.key:
            raise ParameterError(f"the {self.key} law has no part of that name. Got {shown(key)}.")
        return self

    def variance(self, index: int) -> float:
        constant, square = self.quadratic
        point = (index - self.steps) / self.steps
        return constant + (square - 1) * point * point


class _SignLaw(NumberLaw):
    """A sign, kept with odds of e to the epsilon."""

    @property
    def num_inputs(self) -> int:
        """Number of inputs: minus (0) and plus (1)."""
        return 2

    @property
    def symbol_range(self) -> range:
        return range(-1, 2, 2)

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

    def variance(self, index: int) -> float:
        """Return the variance of the estimate for a sign: 4 E / (E - 1)^2."""
        odds = odds_of(self.epsilon)
        return float(4 * odds / (odds - 1) ** 2)


class Duchi(_SignLaw):
    """Round a number to -1 or 1 at random and keep the sign with odds of e to the epsilon.

    Together that is Duchi's law for one number, P(1) = 1/2 + t (E - 1) / (2 (E + 1)), in two exact draws.

    Examples
    --------
    >>> round(Duchi(epsilon=Fraction(1)).scale, 4)
    2.164
    """

    key: ClassVar[str] = "duchi"


class Warner(_SignLaw):
    """Answer yes (1) or no (-1), truly with odds of e to the epsilon.

    Examples
    --------
    >>> Warner(epsilon=Fraction(1)).share(731, 1000) > 0.99
    True
    """

    key: ClassVar[str] = "warner"

    def share(self, num_yes: int, num: int) -> float:
        """Estimate the true share of yes, without bias: ``(n2/n1 - (1 - p)) / (2p - 1)`` with p = E / (E + 1).

        Yao et al. 2024 print it (eq. 11) without p in the numerator, which is right for no p.
        """
        odds = odds_of(self.epsilon)
        return float((Fraction(num_yes, num) * (odds + 1) - 1) / (odds - 1))


class LaplaceNumber(NumberLaw):
    """Add discrete Laplace noise of scale ``2 m / epsilon`` points; nothing is clamped, so the mean stays."""

    key: ClassVar[str] = "laplace"

    @property
    def symbol_range(self) -> None:
        return None

    @property
    def noise_scale(self) -> Fraction:
        """Scale of the noise in points."""
        return 2 * self.steps / self.epsilon

    def perturb(self, index: int, noise: Noise) -> int:
        return index - self.steps + noise.discrete_laplace(self.noise_scale)

    def exponent(self, index: int, symbol: int) -> Fraction:
        return -abs(symbol - index + self.steps) / self.noise_scale

    def scale_at(self, odds: Fraction) -> Fraction:
        return Fraction(1, self.steps)

    @cached_property
    def quadratic(self) -> tuple[float, float]:
        """Give the variance of the noise, ``2 r / (1 - r)^2`` with r = exp(-1 / scale), and 1."""
        growth = odds_of(1 / self.noise_scale)
        return float(2 * growth / (growth - 1) ** 2 / self.steps**2), 1.0


class WindowLaw(NumberLaw):
    """Land within ``half`` of ``stride * i`` with odds of e to the epsilon for each symbol, else anywhere, evenly."""

    @property
    @abstractmethod
    def design(self) -> tuple[int, int]:
        """Stride s and half width h: a function of epsilon and steps, the same on every machine."""

    @cached_property
    def stride(self) -> int:
        """How many symbols a point is from the next (s)."""
        return self.design[0]

    @cached_property
    def half(self) -> int:
        """How far the window goes on either side (h)."""
        return self.design[1]

    @property
    def window(self) -> int:
        """Number of symbols in the window: 2 h + 1."""
        return 2 * self.half + 1

    @property
    def num_outside(self) -> int:
        """Number of symbols outside it: 2 m s."""
        return 2 * self.steps * self.stride

    @property
    def last(self) -> int:
        """The largest symbol N = m s + h."""
        return self.steps * self.stride + self.half

    @property
    def symbol_range(self) -> range:
        return range(-self.last, self.last + 1)

    @cached_property
    def _inside(self) -> Coin:
        return OddsCoin(self.window, self.num_outside, self.epsilon)

    def perturb(self, index: int, noise: Noise) -> int:
        below = index * self.stride  # symbols below the window; it begins at this one, counted from -N
        if self._inside.toss(noise):
            return below - self.last + noise.below(self.window)
        other = noise.below(self.num_outside)
        return other - self.last + (self.window if other >= below else 0)

    def exponent(self, index: int, symbol: int) -> Fraction:
        return self.epsilon if abs(symbol - (index - self.steps) * self.stride) <= self.half else Fraction(0)

    def scale_at(self, odds: Fraction) -> Fraction:
        """Return ``(w E + 2 m s) / ((E - 1) w s m)`` with w = 2 h + 1."""
        total = self.window * odds + self.num_outside
        return total / ((odds - 1) * self.window * self.stride * self.steps)

    def quadratic_at(self, odds: Fraction) -> tuple[Fraction, Fraction]:
        """Give a and b of the second moment ``a + b t^2`` as rational functions of E."""
        return _window_moments(odds, self.steps, self.stride, self.half)

    @cached_property
    def quadratic(self) -> tuple[float, float]:
        constant, square = self.quadratic_at(odds_of(self.epsilon))
        return float(constant), float(square)


def _window_moments(odds: Fraction, steps: int, stride: int, half: int) -> tuple[Fraction, Fraction]:
    """Give a and b of the second moment of a window law."""
    window, reach, last = 2 * half + 1, steps * stride, steps * stride + half
    total = window * odds + 2 * reach
    squares = Fraction(last * (last + 1) * (2 * last + 1), 3) + (odds - 1) * window * Fraction(half * (half + 1), 3)
    square = total / ((odds - 1) * window)
    return square * squares / ((odds - 1) * window * reach * reach), square


@lru_cache(maxsize=1024)
def best_window(steps: int, epsilon: Fraction) -> tuple[int, int]:
    """Choose stride and half width of the piecewise law: least variance at the ends of the domain, where it is largest.

    For each stride up to 16 (4 on finer grids) the best half width is found by bisection, in fractions; the smallest
    stride within a thousandth of the best is taken, as a larger one costs bits. The window is wider than the published
    ``m s e^(-epsilon/2)``, which is not the best one: at epsilon 2 the worst variance falls from 1.228 to 1.092.
    """
    odds = odds_of(epsilon)
    strides = range(1, max(MOST_STRIDE // steps, 4) + 1)
    found = []
    for stride in strides:

        def end_variance(half: int, stride: int = stride) -> Fraction:
            constant, square = _window_moments(odds, steps, stride, half)
            return constant + square - 1

        low, high = 0, steps * stride
        while low < high:  # the variance at an end falls up to the best half width and rises from there on
            middle = (low + high) // 2
            low, high = (low, middle) if end_variance(middle) <= end_variance(middle + 1) else (middle + 1, high)
        found.append((end_variance(low), low, stride))
    enough = min(found)[0] * _WORTH
    return next((stride, half) for variance, half, stride in found if variance <= enough)


class Piecewise(WindowLaw):
    """The piecewise mechanism in its exact discrete form, with the window that makes the worst variance least.

    Examples
    --------
    >>> law = Piecewise(epsilon=Fraction(2), steps=100)
    >>> law.stride, law.half, round(law.worst_variance, 3)
    (1, 59, 1.092)
    """

    key: ClassVar[str] = "piecewise"

    @property
    def design(self) -> tuple[int, int]:
        return best_window(self.steps, self.epsilon)


class SquareWave(WindowLaw):
    """The square wave mechanism: one symbol per point, a window made to tell a whole distribution.

    The half width is ``floor(b (2 m + 1))`` with b = (epsilon E - E + 1) / (2 E (E - 1 - epsilon)), Li et al. 2020.
    """

    key: ClassVar[str] = "square-wave"

    @property
    def design(self) -> tuple[int, int]:
        odds = odds_of(self.epsilon)
        share = (self.epsilon * odds - odds + 1) / (2 * odds * (odds - 1 - self.epsilon))
        return 1, math.floor(share * (2 * self.steps + 1))


class Hybrid(NumberLaw):
    """Piecewise with probability ``1 - e^(-epsilon/2)``, else Duchi's; which one was drawn is part of the symbol.

    Symbols -N .. N are the piecewise law's, -N-1 and N+1 the signs of Duchi's. The coin does not look at the number,
    and each law is unbiased by itself, so that whoever estimates may weigh the two as is best. An input is a point
    with a sign drawn from it, ``2 (i + m) + sign``, of which the law drawn uses one.

    Examples
    --------
    >>> law = Hybrid(epsilon=Fraction(2), steps=100)
    >>> round(law.worst_variance, 3), law.split(law.last), law.split(3)
    (1.059, ('duchi', 1), ('piecewise', 3))
    """

    key: ClassVar[str] = "hybrid"

    @cached_property
    def piecewise(self) -> Piecewise:
        return Piecewise(epsilon=self.epsilon, steps=self.steps)

    @cached_property
    def duchi(self) -> Duchi:
        return Duchi(epsilon=self.epsilon, steps=self.steps)

    @cached_property
    def share(self) -> float:
        """Probability of the piecewise law."""
        return float(1 - 1 / odds_of(self.epsilon / 2))

    @property
    def last(self) -> int:
        """The largest symbol, which is Duchi's plus."""
        return self.piecewise.last + 1

    @property
    def num_inputs(self) -> int:
        return 2 * self.piecewise.num_inputs

    @property
    def symbol_range(self) -> range:
        return range(-self.last, self.last + 1)

    def index_of(self, point: int, noise: Noise) -> int:
        return 2 * (point + self.steps) + self.duchi.index_of(point, noise)

    def perturb(self, index: int, noise: Noise) -> int:
        if noise.bernoulli_exp(self.epsilon / 2):
            return self.last * self.duchi.perturb(index & 1, noise)
        return self.piecewise.perturb(index >> 1, noise)

    def split(self, symbol: int) -> tuple[str, int]:
        if abs(symbol) == self.last:
            return Duchi.key, 1 if symbol > 0 else -1
        return Piecewise.key, symbol

    def part(self, key: str) -> NumberLaw:
        parts = {Duchi.key: self.duchi, Piecewise.key: self.piecewise}
        if key not in parts:
            raise ParameterError(f"the hybrid law has the parts {' and '.join(parts)}. Got {shown(key)}.")
        return parts[key]

    def exponent(self, index: int, symbol: int) -> Fraction | None:
        """Return the exponent of the law that drew the symbol; its own probability is the same for all inputs."""
        key, inner = self.split(symbol)
        return self.part(key).exponent(index & 1 if key == Duchi.key else index >> 1, inner)

    def scale_at(self, odds: Fraction) -> Fraction:
        """Refuse: each part has its own."""
        raise ParameterError("the hybrid law has a scale for each of its parts. Use split and part.")

    def value(self, symbol: int) -> float:
        key, inner = self.split(symbol)
        return self.part(key).value(inner)

    @cached_property
    def quadratic(self) -> tuple[float, float]:
        constant, square = self.piecewise.quadratic
        return self.share * constant + (1 - self.share) * self.duchi.quadratic[0], self.share * square

    def variance(self, index: int) -> float:
        """Return the variance of the estimate for an input, about the mean that the input has."""
        point, sign = (index >> 1) / self.steps - 1, 2 * (index & 1) - 1
        constant, square = self.quadratic
        mean = self.share * point + (1 - self.share) * sign
        return constant + square * point * point - mean * mean


def hybrid(*, epsilon: Fraction, steps: int) -> Hybrid | Duchi | Piecewise:
    """Return the hybrid law where it varies least at worst: up to epsilon 0.61 Duchi's alone does, above 2.2 piecewise.

    The borders are constants, as device and platform must choose alike.
    """
    if epsilon > HYBRID_TO:
        return Piecewise(epsilon=epsilon, steps=steps)
    kind: type[Hybrid] | type[Duchi] = Hybrid if epsilon > HYBRID_FROM else Duchi
    return kind(epsilon=epsilon, steps=steps)


class PublishedPiecewise(WindowLaw):
    """L-PM with its right threshold, and the published window: C = (e^(epsilon/2) + 1) / (e^(epsilon/2) - 1).

    A window from C has the half width ``m s e^(-epsilon/2)``, here the nearest whole number to it. Yao et al. 2024
    perturb every attribute with it at the whole epsilon.
    """

    key: ClassVar[str] = "published-piecewise"

    @property
    def design(self) -> tuple[int, int]:
        """Enough symbols for a close window on a coarse grid, and the nearest half width."""
        stride = max(1, MOST_STRIDE // self.steps)
        return stride, round(self.steps * stride / odds_of(self.epsilon / 2))


class LiteralPiecewise(PublishedPiecewise):
    """L-PM as Algorithm 1 of Yao et al. 2024 prints it: the wrong threshold, so a biased estimate. Never a default.

    It lands in the window with probability ``e^(epsilon/2) / (e^epsilon + 1)`` instead of
    ``e^(epsilon/2) / (e^(epsilon/2) + 1)``, and its symbols are read with the scale that the right threshold would
    need: on a fine grid the mean of an estimate is t / (e^epsilon + 1) instead of t. Its probabilities are no powers of
    e^epsilon, so that what it gives away is not epsilon and has no rational closed form: :meth:`ratio_bounds` has it.
    """

    key: ClassVar[str] = "literal-piecewise"

    @cached_property
    def _inside(self) -> Coin:
        return _LiteralCoin(self.epsilon)

    @property
    def inside(self) -> float:
        odds = odds_of(self.epsilon)
        return float(odds_of(self.epsilon / 2) / (odds + 1))

    @property
    def loss(self) -> Fraction | None:
        """What one symbol gives away at worst, rounded up at the 40th digit: no closed form is rational."""
        context, ratio = Context(prec=40), self.ratio_bounds()[1]
        above = context.divide(Decimal(ratio.numerator), Decimal(ratio.denominator)).next_plus(context)
        return Fraction(above.ln(context).next_plus(context))

    def exponent(self, index: int, symbol: int) -> Fraction:
        """Refuse: the exponents of this law are not rational."""
        raise ParameterError("the printed Algorithm 1 has no rational exponents. Use ratio_bounds.")

    def ratio_bounds(self) -> tuple[Fraction, Fraction]:
        """Enclose the largest ratio of two probabilities of one symbol."""
        low, high = self._inside.bounds(_DIGITS)
        one = 1 << _DIGITS
        bounds = [Fraction(yes * self.num_outside, (one - yes) * self.window) for yes in (low, high)]
        return (bounds[0], bounds[1]) if bounds[0] >= 1 else (1 / bounds[1], 1 / bounds[0])

    @property
    def slope(self) -> float:
        """Mean of an estimate over the number it estimates: 1 would be unbiased, about 1 / (e^epsilon + 1) it is."""
        shift = self.inside - (1 - self.inside) * self.window / self.num_outside
        return self.scale * shift * self.stride * self.steps

    def bias(self, number: float) -> float:
        return (self.slope - 1) * number

    @cached_property
    def quadratic(self) -> tuple[float, float]:
        half, window, reach, last = self.half, self.window, self.steps * self.stride, self.last
        inner = half * (half + 1) / 3
        everything = last * (last + 1) * (2 * last + 1) / 3
        each = (1 - self.inside) / self.num_outside
        scale = self.scale**2
        constant = scale * (self.inside * inner + each * (everything - window * inner))
        return constant, scale * reach * reach * (self.inside - each * window)

    def variance(self, index: int) -> float:
        """Return the variance of the estimate for an input, about its own, biased, mean."""
        constant, square = self.quadratic
        point = (index - self.steps) / self.steps
        return constant + (square - self.slope**2) * point * point


@dataclass(frozen=True, kw_only=True)
class JointDuchi:
    """Duchi's law for d numbers at once, each rounded to -1 or 1: one symbol of d signs for all of epsilon.

    A sign vector that agrees with the input in more than half of the places is likelier by e^epsilon. At even d the
    vectors that agree in exactly half of them count with the unlikely ones, all of them: as usually printed they are in
    both halves, and the loss is ln(e^epsilon + 1). On the unlikely side they make the scale smallest.

    Examples
    --------
    >>> JointDuchi(epsilon=Fraction(1), dimensions=1).reading.scale == Duchi(epsilon=Fraction(1)).scale
    True
    """

    key: ClassVar[str] = Duchi.key
    epsilon: Fraction  # What one symbol gives away
    dimensions: int  # How many numbers (d)

    def __post_init__(self) -> None:
        Duchi(epsilon=self.epsilon)
        if type(self.dimensions) is not int or self.dimensions < 1:
            raise ParameterError(f"dimensions must be a whole number of at least 1. Got {shown(self.dimensions)}.")

    @property
    def num_inputs(self) -> int:
        """Number of sign vectors; bit j of one is set where number j is plus."""
        return 1 << self.dimensions

    @property
    def loss(self) -> Fraction | None:
        return self.epsilon

    @cached_property
    def num_likely(self) -> int:
        """Number of sign vectors that agree with the input in more than half of the places."""
        return sum(math.comb(self.dimensions, agreeing) for agreeing in self._likely)

    @property
    def _likely(self) -> range:
        return range(self.dimensions // 2 + 1, self.dimensions + 1)

    @cached_property
    def _side(self) -> Coin:
        return OddsCoin(self.num_likely, self.num_inputs - self.num_likely, self.epsilon)

    def symbols(self) -> range:
        if self.num_inputs**2 > MOST_ENUMERATED:
            raise ParameterError(f"the sign vectors of {self.dimensions} numbers are too many to list. Use fewer.")
        return range(self.num_inputs)

    def perturb(self, index: int, noise: Noise) -> int:
        likely = self._side.toss(noise)
        # How often this repeats does not depend on the input.
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
    def reading(self) -> JointSign:
        return JointSign(epsilon=self.epsilon, dimensions=self.dimensions)


@dataclass(frozen=True, kw_only=True)
class JointSign(Reading):
    """One sign of a symbol of :class:`JointDuchi`."""

    key: ClassVar[str] = Duchi.key
    dimensions: int

    def scale_at(self, odds: Fraction) -> Fraction:
        return JointDuchi(epsilon=self.epsilon, dimensions=self.dimensions).scale_at(odds)

    @cached_property
    def quadratic(self) -> tuple[float, float]:
        return self.scale**2, 0.0
