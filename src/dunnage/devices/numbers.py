# SPDX-License-Identifier: Apache-2.0
"""Laws that hide one number: exact, discrete, unbiased.

A number of [-1, 1] has been rounded at random to a point i of -m .. m (:meth:`dunnage.devices.task.Quantity.point`), so
that its mean is kept. A law takes the point on: :meth:`~NumberLaw.index_of` makes an input of it, and the law is a
:class:`~dunnage.devices.places.Channel` from inputs to symbols. Every law's estimate is *linear* in the symbol,
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from dunnage.devices.places import MOST_ENUMERATED
from dunnage.devices.subjects import Quantity, Tier, Tiered
from dunnage.errors import ParameterError, ReportError
from dunnage.exact import plain, shown, shown_number
from dunnage.guarantees import REPORT_ASSUMPTIONS, Basis, LocalDP, Neighbours, Promise
from dunnage.noise import WORD_BITS, Interval, Noise, ceil_divide, exp_interval, integer, rational

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


MOST_QUANTITIES = 64
EPSILON_EACH = Fraction(5, 2)
"""Where more than one number is drawn, each gets at least this epsilon: floor(epsilon / 2.5) of them are drawn."""
_MOST_VARINT_BYTES = 10
_RARE = 7  # Laplace noise of more than seven scales comes up less than once in a thousand times

Entry = tuple[int, int]  # An attribute and its symbol
Symbol = tuple[int, str, int]  # An attribute, the key of the law that drew its symbol, and the symbol
Points = Callable[[int], int]  # From an attribute to its point; only those drawn are asked for


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """What is drawn and hidden by itself: a quantity, or whether it is there."""

    quantity: Quantity  # The quantity
    # Whether this is the virtual number that is 1 if the quantity has a value and -1 if it is missing
    presence: bool = False

    @property
    def name(self) -> str:
        return f"{self.quantity.name} present" if self.presence else self.quantity.name

    @property
    def steps(self) -> int:
        """The points are -steps .. steps."""
        return 1 if self.presence else self.quantity.steps

    def point(self, value: object, noise: Noise) -> int:
        """Round a value to a point; never raises."""
        if self.presence:
            return 1 if self.quantity.present(value) else -1
        return self.quantity.point(value, noise)


def attributes_of(quantities: Sequence[Quantity]) -> tuple[Attribute, ...]:
    """List the attributes: all quantities in order, then a presence for each that has ``missing = "symbol"``."""
    presences = (Attribute(quantity=quantity, presence=True) for quantity in quantities if quantity.missing == "symbol")
    return (*(Attribute(quantity=quantity) for quantity in quantities), *presences)


def combination(rank: int, num: int, size: int) -> Iterator[int]:
    """Yield the members of a set of ``size`` out of ``num``, by the rank of the set in lexicographic order.

    Examples
    --------
    >>> [tuple(combination(rank, 3, 2)) for rank in range(3)]
    [(0, 1), (0, 2), (1, 2)]
    """
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
    return ReportError(f"a report of numbers cannot be read: {what}. No device of this task made it: leave it out.")


def _symbol_of(payload: bytes) -> int:
    """Return a payload as a whole number that tells its length, too."""
    return int.from_bytes(payload + b"\x01", "little")


def _payload_of(symbol: int) -> bytes:
    return symbol.to_bytes((symbol.bit_length() + 7) // 8, "little")[:-1]


def _num_bytes(num: int) -> int:
    """Return how many bytes tell ``num`` things apart."""
    return ((num - 1).bit_length() + 7) // 8


@dataclass(frozen=True)
class SampledReport:
    """A report of ``num_sampled`` attributes out of all, drawn evenly, each hidden by its own law.

    An input is one input for each attribute, mixed (the first varies fastest). Two inputs may differ in all attributes,
    so the loss is that of the laws drawn, added up; with all attributes drawn at epsilon each this is e-L_LDP.

    A payload holds the rank of the drawn set and then the symbols, in the order of the attributes: as one number of
    mixed radix in a fixed number of bytes, least first. If a law has endlessly many symbols: the rank in a fixed number
    of bytes, then each symbol as a varint. A symbol of this channel is the payload as a whole number.
    """

    laws: tuple[NumberLaw, ...]  # One for each attribute
    num_sampled: int  # How many are drawn

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
        """What one report gives away at worst: the largest losses that may be drawn together."""
        losses = sorted((law.epsilon if law.loss is None else law.loss for law in self.laws), reverse=True)
        return sum(losses[: self.num_sampled], Fraction(0))

    @cached_property
    def _sizes(self) -> tuple[int | None, ...]:
        return tuple(law.num_symbols for law in self.laws)

    @cached_property
    def _num_payloads(self) -> int | None:
        """How many payloads there are at most, by the laws with most symbols; None if they are endless."""
        sizes = sorted(size for size in self._sizes if size is not None)
        return self.num_sets * math.prod(sizes[-self.num_sampled :]) if len(sizes) == len(self.laws) else None

    @property
    def payload_bits(self) -> int:
        """Bits of a payload; with Laplace noise of nearly all payloads, as there is no limit to them."""
        if self._num_payloads is not None:
            return (self._num_payloads - 1).bit_length()
        rare = [law.code(math.ceil(_RARE * law.noise_scale)) for law in self.laws if isinstance(law, LaplaceNumber)]
        return 8 * (_num_bytes(self.num_sets) + self.num_sampled * len(varint(max(rare))))

    def reading(self, attribute: int, key: str) -> Reading:
        """Return how symbols of a key that :meth:`read` gave for an attribute are read."""
        return self.laws[attribute].part(key)

    def worst(self, attribute: int) -> float:
        """Return the variance of an attribute's estimated mean, times the number of devices, at worst.

        It comes from the noise in the reports that tell of the attribute, and from these being a sample of all; the
        worst is taken over all ways in which the attribute may be spread among devices.
        """
        return self.laws[attribute].worst(self.share) / self.share

    def draw(self, points: Points, noise: Noise) -> bytes:
        rank = noise.below(self.num_sets)
        drawn = []
        for attribute in combination(rank, len(self.laws), self.num_sampled):
            law = self.laws[attribute]
            drawn.append((attribute, law.perturb(law.index_of(points(attribute), noise), noise)))
        return self._pack(rank, drawn)

    def _pack(self, rank: int, drawn: Sequence[Entry]) -> bytes:
        if self._num_payloads is None:
            varints = (varint(self.laws[attribute].code(symbol)) for attribute, symbol in drawn)
            return rank.to_bytes(_num_bytes(self.num_sets), "little") + b"".join(varints)
        number = 0
        for attribute, symbol in reversed(drawn):
            law = self.laws[attribute]
            number = number * (law.num_symbols or 1) + law.code(symbol)
        return (number * self.num_sets + rank).to_bytes(_num_bytes(self._num_payloads), "little")

    def entries(self, payload: bytes) -> list[Entry]:
        """Unpack a payload: the exact inverse of packing."""
        endless, found = self._num_payloads is None, []
        start, number = _num_bytes(self.num_sets), 0
        rank, rest = int.from_bytes(payload[:start], "little"), payload[start:]
        if endless and (len(payload) < start or rank >= self.num_sets):
            raise _refused("it does not say which numbers it tells")
        if self._num_payloads is not None:
            due = _num_bytes(self._num_payloads)
            if len(payload) != due:
                raise _refused(f"{len(payload)} bytes where {due} are due")
            number, rank = divmod(int.from_bytes(payload, "little"), self.num_sets)
        for attribute in combination(rank, len(self.laws), self.num_sampled):
            size = self._sizes[attribute]
            if endless:
                code, rest = _read_varint(rest)
                if size is not None and code >= size:
                    raise _refused("a symbol is none of its law")
            else:
                number, code = divmod(number, size or 1)
            found.append((attribute, self.laws[attribute].symbol(code)))
        if number:
            raise _refused("its number is too large")
        if endless and rest:
            raise _refused(f"{len(rest)} bytes too many")
        return found

    def read(self, payload: bytes) -> list[Symbol]:
        """Read a payload as attributes, keys of laws and their symbols."""
        return [(attribute, *self.laws[attribute].split(symbol)) for attribute, symbol in self.entries(payload)]

    def perturb(self, index: int, noise: Noise) -> int:
        rank, inputs = noise.below(self.num_sets), self._inputs(index)
        members = combination(rank, len(self.laws), self.num_sampled)
        return _symbol_of(self._pack(rank, [(at, self.laws[at].perturb(inputs[at], noise)) for at in members]))

    def _inputs(self, index: int) -> list[int]:
        found = []
        for law in self.laws:
            index, own = divmod(index, law.num_inputs)
            found.append(own)
        return found

    def exponent(self, index: int, symbol: int) -> Fraction | None:
        inputs = self._inputs(index)
        parts = [self.laws[at].exponent(inputs[at], own) for at, own in self.entries(_payload_of(symbol))]
        known = [part for part in parts if part is not None]
        return sum(known, Fraction(0)) if len(known) == len(parts) else None

    def symbols(self) -> list[int]:
        """All symbols there are; refuses where they are too many, or endlessly many."""
        most = self._num_payloads
        if most is None or most * self.num_inputs > MOST_ENUMERATED:
            raise ParameterError("the reports are too many to list. Use fewer steps or quantities, or another method.")
        found = []
        for rank in range(self.num_sets):
            members = combination(rank, len(self.laws), self.num_sampled)
            num = math.prod(self._sizes[at] or 1 for at in members)
            numbers = range(rank, num * self.num_sets, self.num_sets)
            found += [_symbol_of(number.to_bytes(_num_bytes(most), "little")) for number in numbers]
        return found


@dataclass(frozen=True)
class JointReport:
    """A report of all attributes at once by Duchi's law for many numbers: one sign each, for all of epsilon.

    A payload holds one bit for each attribute, the first lowest. As a channel it is :class:`JointDuchi`.
    """

    law: JointDuchi  # The joint law
    steps: tuple[int, ...]  # The points of each attribute are -steps .. steps

    @property
    def share(self) -> float:
        """Share of the reports that tell of one attribute: all."""
        return 1.0

    @property
    def payload_bits(self) -> int:
        return len(self.steps)

    @property
    def num_inputs(self) -> int:
        return self.law.num_inputs

    @property
    def loss(self) -> Fraction | None:
        return self.law.loss

    def reading(self, attribute: int, key: str) -> Reading:
        if key != self.law.key or not 0 <= attribute < len(self.steps):
            raise ParameterError(f"the joint law has no part {shown(key)} for attribute {attribute}.")
        return self.law.reading

    def worst(self, attribute: int) -> float:
        return self.law.reading.worst()

    def draw(self, points: Points, noise: Noise) -> bytes:
        """Round every attribute to a sign at random, draw signs for all, and pack them."""
        index = 0
        for attribute, steps in enumerate(self.steps):
            index |= (noise.below(2 * steps) < steps + points(attribute)) << attribute
        return self.perturb(index, noise).to_bytes(_num_bytes(self.num_inputs), "little")

    def read(self, payload: bytes) -> list[Symbol]:
        due, signs = _num_bytes(self.num_inputs), int.from_bytes(payload, "little")
        if len(payload) != due or signs >= self.num_inputs:
            raise _refused(f"{len(payload)} bytes where {len(self.steps)} bits in {due} are due")
        return [(attribute, self.law.key, 1 if signs >> attribute & 1 else -1) for attribute in range(len(self.steps))]

    def perturb(self, index: int, noise: Noise) -> int:
        return self.law.perturb(index, noise)

    def symbols(self) -> range:
        return self.law.symbols()

    def exponent(self, index: int, symbol: int) -> Fraction:
        return self.law.exponent(index, symbol)


def varint(number: int) -> bytes:
    """Write seven bits a byte, lowest first, the highest bit set on all bytes but the last."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _read_varint(data: bytes) -> tuple[int, bytes]:
    """Read a number and return what follows it; only the shortest form is taken."""
    number = 0
    for place, byte in enumerate(data[:_MOST_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if place and not byte:
                raise _refused("a number is longer than it must be")
            return number, data[place + 1 :]
    raise _refused("a number does not end")


Report = SampledReport | JointReport

_LAWS: Mapping[str, Callable[..., NumberLaw]] = {
    "hybrid": hybrid,
    "piecewise": Piecewise,
    "harmony": Duchi,
    "laplace": LaplaceNumber,
    "square-wave": SquareWave,
    "warner": Warner,
}


def _law(make: Callable[..., NumberLaw], attribute: Attribute, epsilon: Fraction) -> NumberLaw:
    # For a yes or no, keeping it with odds of e^epsilon is the best there is.
    return (Warner if attribute.presence else make)(epsilon=epsilon, steps=attribute.steps)


def published_report(attributes: Sequence[Attribute], epsilon: Fraction) -> SampledReport:
    """Return e-L_LDP: every attribute through L-PM (with its right threshold) at the whole epsilon."""
    return SampledReport(tuple(_law(PublishedPiecewise, at, epsilon) for at in attributes), len(attributes))


def sampled_report(
    attributes: Sequence[Attribute], epsilon: Fraction, *, method: str, sampled: int | None
) -> SampledReport:
    """Return the sound report: ``sampled`` attributes, drawn evenly, share epsilon."""
    num = sampled or (1 if method == "harmony" else num_sampled(epsilon, len(attributes)))
    return SampledReport(tuple(_law(_LAWS[method], attribute, epsilon / num) for attribute in attributes), num)


def joint_report(attributes: Sequence[Attribute], epsilon: Fraction) -> JointReport:
    law = JointDuchi(epsilon=epsilon, dimensions=len(attributes))
    return JointReport(law, tuple(attribute.steps for attribute in attributes))


def num_sampled(epsilon: Fraction, num_attributes: int) -> int:
    """Return how many attributes are best drawn: ``max(1, min(d, floor(epsilon / 2.5)))``, Wang et al. 2019."""
    return max(1, min(num_attributes, math.floor(epsilon / EPSILON_EACH)))


@dataclass(frozen=True, kw_only=True)
class LocalNumeric(Tiered[Report]):
    """Report numbers with public bounds, a few drawn at random or all at once.

    Parameters
    ----------
    quantities
        The numbers.
    epsilon, tiers
        What one report may give away, over all its numbers: one number for all devices, or public tiers.
    method
        ``hybrid``, ``piecewise``, ``laplace`` (means), ``square-wave`` (distributions), ``warner`` (each quantity a yes
        or no: ``steps = 1``), ``harmony`` (one number, by Duchi's law), ``duchi`` (the signs of all numbers at once).
    sampled
        How many numbers a report tells; None for ``max(1, min(d, floor(epsilon / 2.5)))``.
    as_published
        The published e-L_LDP: every number at the whole epsilon, by the piecewise law with the published window.

    Guarantee
    ---------
    Epsilon-local differential privacy of one report, proved; ``as_published``: claimed, and really d times epsilon.

    Assumptions
    -----------
    Bounds, steps and tiers are public; at every slot a report is sent, whatever there is to report.

    Runtime
    -------
    Some 20 microseconds for each number told.

    Utility
    -------
    Unbiased means; :meth:`predicted_sd` says how far they are off before anything is collected.

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
    attributes: tuple[Attribute, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set_levels()
        quantities = tuple(self.quantities) if isinstance(self.quantities, tuple | list) else ()
        if not 1 <= len(quantities) <= MOST_QUANTITIES or not all(isinstance(each, Quantity) for each in quantities):
            raise ParameterError(
                f"quantities must be a list of 1 to {MOST_QUANTITIES} Quantity. Give Quantity(name=...)."
            )
        if len({quantity.name for quantity in quantities}) < len(quantities):
            raise ParameterError("quantities must have different names. Rename one.")
        object.__setattr__(self, "quantities", quantities)
        object.__setattr__(self, "attributes", attributes_of(self.quantities))
        self._check_method()
        object.__setattr__(self, "_laws", {tier.name: self._report(tier.epsilon) for tier in self.levels})

    def _check_method(self) -> None:
        if self.method not in self.methods:
            raise ParameterError(f"method must be one of {', '.join(self.methods)}. Got {shown(self.method)}.")
        if self.as_published and (self.method not in ("hybrid", "piecewise") or self.sampled is not None):
            raise ParameterError("as_published has a method of its own and tells all numbers. Leave the others out.")
        if self.method == "warner" and any(quantity.steps != 1 for quantity in self.quantities):
            raise ParameterError("warner is for a yes or no. Give every quantity steps = 1, or use hybrid.")
        fixed = {"harmony": 1, "duchi": len(self.attributes)}.get(self.method)
        most = len(self.attributes)
        if self.sampled is not None and (type(self.sampled) is not int or not 1 <= self.sampled <= most):
            raise ParameterError(f"sampled must be a whole number from 1 to {most}. Got {shown(self.sampled)}.")
        if fixed and self.sampled not in (None, fixed):
            raise ParameterError(f"{self.method} tells {fixed} of {most} numbers. Leave sampled out.")

    def _report(self, epsilon: Fraction) -> Report:
        if self.as_published:
            return published_report(self.attributes, epsilon)
        if self.method == "duchi":
            return joint_report(self.attributes, epsilon)
        return sampled_report(self.attributes, epsilon, method=self.method, sampled=self.sampled)

    def reading(self, tier: Tier | str, attribute: int, key: str) -> Reading:
        """Return how the symbols are read that :meth:`read` gives for an attribute under a key."""
        return self.channel(tier).reading(attribute, key)

    def perturb(self, value: object, *, tier: Tier | str, noise: Noise) -> bytes:
        """Draw a report of a value for each quantity; there is always one, whatever the values."""
        report, values = self.channel(tier), self._values(value)

        def point(at: int) -> int:
            attribute = self.attributes[at]
            return attribute.point(values.get(attribute.quantity.name), noise)

        return report.draw(point, noise)

    def _values(self, value: object) -> Mapping[Any, object]:
        """Return private values by the names of their quantities."""
        if isinstance(value, Mapping):
            return value
        names = [quantity.name for quantity in self.quantities]
        try:
            return dict(zip(names, value, strict=False))  # type: ignore[call-overload]
        except Exception:  # a private value of any type at all must not stop the report
            return {}

    def read(self, payload: bytes, *, tier: Tier | str) -> list[Symbol]:
        """Read a payload as triples: attribute (see :attr:`attributes`), key of the law, symbol of that law."""
        return self.channel(tier).read(payload)

    def predicted_sd(self, tier: Tier | str, num_devices: int) -> tuple[float, ...]:
        """Return the standard deviation of each quantity's estimated mean, in its unit, at worst.

        The worst is taken over all ways in which a number may be spread among devices, all of this tier. A quantity
        with ``missing = "symbol"`` is taken to be missing hardly ever.
        """
        report, num = self.channel(tier), integer(num_devices, "num_devices", least=1)
        variances = [report.worst(at) / num for at in range(len(self.attributes))]
        # A mean over those present is a ratio; where all are present its variance gains that of their share.
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
        """State what one report guarantees, for the tier that gives away most; needs no data."""
        epsilon, num = max(tier.epsilon for tier in self.levels), len(self.attributes)
        drawn = any(self.channel(tier).share < 1 for tier in self.levels)
        middle = [quantity.name for quantity in self.quantities if quantity.missing == "middle"]
        stated = Promise(
            guarantee=LocalDP(epsilon=epsilon, protects="report", neighbours=Neighbours.REPLACE_ONE),
            basis=Basis.PROVED,
            mechanism=self.describe(),
            assumptions=REPORT_ASSUMPTIONS,
            in_clear=("which of the numbers a report tells, drawn without looking at them",) if drawn else (),
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
