# SPDX-License-Identifier: Apache-2.0
"""The only source of privacy randomness, and exact laws sampled from it.

Every law here is exact: it uses only integers and fractions, never floating point, so its numbers have precisely the
stated probabilities, and their last digits reveal nothing about the inputs. :mod:`dunnage.noise.arrays` samples the
same laws on whole arrays. ``docs/proofs/noise.md`` shows why each law is exact.

Parameters are ``int`` or :class:`~fractions.Fraction`; :func:`dunnage.exact.exact` reads ``"0.1"`` as 1/10. Floats are
refused, because they are seldom exactly the intended number. No error message repeats a value, as it may be private.

References
----------
C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020
(Bernoulli(exp(-x)), the discrete Laplace and the discrete Gaussian law from integers).
"""

from __future__ import annotations

import math
import operator
import os
import random
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate

from dunnage.errors import ParameterError

Interval = tuple[int, int]
Cumulative = Callable[[int], Sequence[Interval]]
"""Bounds on a cumulative distribution at any precision.

``cumulative(bits)[i]`` is ``(low, high)`` with ``low <= F(i) * 2**bits <= high`` for every outcome ``i`` but
the last, both sides non-decreasing in ``i``, and ``high - low`` bounded whatever ``bits`` is.
"""

WORD_BITS = 64
_POOL_WORDS = 512
_CHUNK_BITS = 1 << 20

# Unseeded sources share one pool of words. ``list.pop`` and ``list.extend`` are atomic, so two threads never get the
# same word. A forked child must not repeat its parent's words either, hence the hook.
_POOL: list[int] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOL.clear)


def rational(value: int | Fraction, name: str) -> Fraction:
    """Check that a parameter is an ``int`` or a ``Fraction`` and return it as a fraction."""
    if isinstance(value, Fraction):
        # A fraction of NumPy's integers would overflow silently.
        if type(value.numerator) is int and type(value.denominator) is int:
            return value
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    raise ParameterError(
        f"{name} must be an int or a Fraction. Got {type(value).__name__}. "
        "Pass a Fraction, or read a decimal with dunnage.exact.exact('0.1')."
    )


def integer(value: int, name: str, *, least: int = 0) -> int:
    """Check that a parameter is a whole number of at least ``least``."""
    if type(value) is int and value >= least:
        return value
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise ParameterError(f"{name} must be an int of at least {least}. Got another {type(value).__name__}.")
    return number


def positive(value: int | Fraction, name: str) -> Fraction:
    number = rational(value, name)
    if number <= 0:
        raise ParameterError(f"{name} must be positive. Pass a number above zero.")
    return number


def nonnegative(value: int | Fraction, name: str) -> Fraction:
    number = rational(value, name)
    if number < 0:
        raise ParameterError(f"{name} must not be negative. Pass zero or more.")
    return number


def probability(value: int | Fraction, name: str) -> Fraction:
    number = rational(value, name)
    if not 0 <= number <= 1:
        raise ParameterError(f"{name} must lie between 0 and 1.")
    return number


class Noise:
    """The only source of privacy randomness.

    ``Noise()`` uses the random numbers of the operating system. ``Noise(seed=7)`` repeats itself and is for tests:
    anyone who knows the seed knows the noise. Threads may share a source. A forked child process gets its own noise,
    unless the source is seeded.

    Parameters
    ----------
    seed
        Makes the source deterministic. Leave it out for anything that you publish.

    Examples
    --------
    >>> noise = Noise(seed=7)
    >>> -50 < noise.discrete_laplace(Fraction(5, 2)) < 50
    True
    """

    __slots__ = ("_bytes_drawn", "_pool", "_seeded", "_source")

    _source: Callable[[int], bytes]

    def __init__(self, *, seed: int | None = None) -> None:
        self._seeded = seed is not None
        self._bytes_drawn = 0
        if seed is None:
            self._source, self._pool = os.urandom, _POOL
        else:
            # random.Random ignores the sign of a seed, so two seeds would be the same.
            self._source, self._pool = random.Random(integer(seed, "the seed")).randbytes, []

    @property
    def seeded(self) -> bool:
        """Whether the noise is repeatable, and therefore protects nobody."""
        return self._seeded

    @property
    def bytes_drawn(self) -> int:
        """How many random bytes this source has handed out."""
        return self._bytes_drawn

    def __repr__(self) -> str:
        return f"<Noise {'seeded' if self._seeded else 'from the operating system'}>"

    def __reduce__(self) -> tuple[type[Noise], tuple[()]]:
        # A copy of a seeded source would hand out the same noise twice.
        if self._seeded:
            raise TypeError("a seeded Noise cannot be copied or pickled. Create one with its own seed.")
        return Noise, ()

    def draw_bytes(self, n: int) -> bytes:
        """Return ``n`` uniform bytes."""
        n = integer(n, "the number of bytes")
        self._bytes_drawn += n
        return self._source(n)

    def bits(self, n: int) -> int:
        """Sample a uniform integer from 0 to ``2**n - 1``."""
        n = integer(n, "the number of bits")
        if n > WORD_BITS:
            num_bytes = ceil_divide(n, 8)
            return int.from_bytes(self.draw_bytes(num_bytes), "little") >> (8 * num_bytes - n)
        return self._word() >> (WORD_BITS - n) if n else 0

    def _word(self) -> int:
        while True:
            try:
                word = self._pool.pop()
            except IndexError:
                self._pool.extend(struct.unpack(f"<{_POOL_WORDS}Q", self._source(8 * _POOL_WORDS)))
            else:
                self._bytes_drawn += 8
                return word

    def below(self, n: int) -> int:
        """Sample a uniform integer from 0 to ``n - 1``."""
        return self._below(integer(n, "n", least=1))

    def _below(self, n: int) -> int:
        # Numbers of n or more are discarded; a remainder would favour small numbers.
        num_bits = (n - 1).bit_length()
        while (number := self.bits(num_bits)) >= n:
            pass
        return number

    def bernoulli(self, p: int | Fraction) -> bool:
        """Return ``True`` with probability ``p``."""
        p = probability(p, "p")
        return self._below(p.denominator) < p.numerator

    def bernoulli_exp(self, x: int | Fraction) -> bool:
        """Return ``True`` with probability ``exp(-x)``, for ``x >= 0``."""
        x = nonnegative(x, "x")
        return self._bernoulli_exp(x.numerator, x.denominator)

    def _bernoulli_exp(self, numerator: int, denominator: int) -> bool:
        whole, rest = divmod(numerator, denominator)
        # exp(-x) = exp(-1)^whole * exp(-rest): all must succeed, and most failures come early.
        while whole and self._bernoulli_exp_unit(1, 1):
            whole -= 1
        return not whole and self._bernoulli_exp_unit(rest, denominator)

    def _bernoulli_exp_unit(self, numerator: int, denominator: int) -> bool:
        # Canonne, Kamath, Steinke, Algorithm 1: the first failure among Bernoulli(x/k), k = 1, 2, ..., comes
        # at an odd k with probability 1 - x + x^2/2! - x^3/3! + ... = exp(-x), for x <= 1.
        k = 1
        while self._below(denominator * k) < numerator:
            k += 1
        return k % 2 == 1

    def bernoulli_logistic(self, x: int | Fraction) -> bool:
        """Return ``True`` with probability ``1 / (1 + exp(-x))``, for ``x`` of either sign."""
        x = rational(x, "x")
        numerator, denominator = abs(x.numerator), x.denominator
        # One round says "likely side" with probability 1/2, "other side" with exp(-|x|)/2, or starts again.
        while not self.bits(1):
            if self._bernoulli_exp(numerator, denominator):
                return x < 0
        return x >= 0

    def geometric(self, scale: int | Fraction) -> int:
        """Sample ``i >= 0`` with probability ``(1 - exp(-1/scale)) * exp(-i/scale)``."""
        scale = positive(scale, "scale")
        return self._geometric(scale.numerator, scale.denominator)

    def _geometric(self, numerator: int, denominator: int) -> int:
        # low + numerator * high is geometric with ratio exp(-1/numerator); whole division by the denominator raises the
        # ratio to that power.
        low = self._below(numerator)
        while not self._bernoulli_exp_unit(low, numerator):
            low = self._below(numerator)
        high = 0
        while self._bernoulli_exp_unit(1, 1):
            high += 1
        return (low + numerator * high) // denominator

    def discrete_laplace(self, scale: int | Fraction) -> int:
        """Sample an integer ``x`` with probability proportional to ``exp(-abs(x)/scale)``."""
        scale = positive(scale, "scale")
        while True:
            negative = self.bits(1)
            magnitude = self._geometric(scale.numerator, scale.denominator)
            if magnitude or not negative:  # zero must not count twice, as +0 and -0
                return -magnitude if negative else magnitude

    def discrete_gaussian(self, variance: int | Fraction) -> int:
        """Sample an integer ``x`` with probability proportional to ``exp(-x**2 / (2 * variance))``."""
        variance = positive(variance, "variance")
        scale = gaussian_scale(variance)
        # Canonne, Kamath, Steinke, Algorithm 3: x of a discrete Laplace law stays with this probability.
        while not self.bernoulli_exp(gaussian_exponent(variance, scale, value := self.discrete_laplace(scale))):
            pass
        return value

    def binomial(self, n: int, p: int | Fraction) -> int:
        """Sample the number of successes in ``n`` trials of probability ``p``, from about ``2 * n`` random bits."""
        tied, p, successes = integer(n, "n"), probability(p, "p"), 0
        if p == 1:
            return tied
        # Trial t succeeds if its uniform number U_t < p. All trials reveal their next binary digit at once. The first
        # digit that differs from p's decides, so only the tied trials continue, up to p's last nonzero digit.
        left = p.numerator
        while left and tied:
            digit, left = divmod(2 * left, p.denominator)
            whole, rest = divmod(tied, _CHUNK_BITS)
            ones = sum(self.bits(_CHUNK_BITS).bit_count() for _ in range(whole)) + self.bits(rest).bit_count()
            successes += (tied - ones) * digit
            tied = ones if digit else tied - ones
        return successes  # a U_t that is still tied is at least p

    def exponential_choice(self, scores: Sequence[int | Fraction]) -> int:
        """Sample an index ``i`` with probability proportional to ``exp(scores[i])``, however far apart scores are."""
        # By inversion, without rejection: one exp_interval for each distinct score.
        return self.invert(choice_cumulative(scores))

    def invert(self, cumulative: Cumulative, prefix: int = 0, bits: int = 0, step: int = WORD_BITS) -> int:
        """Sample from a law with known bounds on its cumulative distribution.

        It samples a uniform number U in [0, 1) digit by digit, with ever tighter bounds, until they say for every
        outcome on which side of U it is.
        """
        while True:
            prefix, bits = prefix << step | self.bits(step), bits + step
            bounds = cumulative(bits)
            # prefix <= U * 2^bits < prefix + 1, so certainly U >= F(i) if high <= prefix, and U < F(i) if low > prefix.
            passed = bisect_right(bounds, prefix, key=operator.itemgetter(1))
            if passed == bisect_right(bounds, prefix, key=operator.itemgetter(0)):
                return passed

    def permutation(self, n: int) -> list[int]:
        """Sample a uniform order of ``0, ..., n - 1``."""
        order = list(range(integer(n, "n")))
        for last in range(len(order) - 1, 0, -1):
            other = self._below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order


def gaussian_scale(variance: Fraction) -> int:
    """Return the scale of the discrete Laplace law from which discrete Gaussian numbers are chosen."""
    return math.isqrt(variance.numerator // variance.denominator) + 1


def gaussian_exponent(variance: Fraction, scale: int, value: int) -> Fraction:
    """Return x such that a discrete Laplace number of that scale is kept with probability exp(-x)."""
    top, bottom = variance.numerator, variance.denominator  # (|value| - variance / scale)^2 / (2 variance)
    return Fraction((abs(value) * bottom * scale - top) ** 2, 2 * top * bottom * scale**2)


def ceil_shift(value: int, bits: int) -> int:
    return -(-value >> bits)


def ceil_divide(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def ratio_interval(p: Fraction, bits: int) -> Interval:
    """Enclose ``p * 2**bits`` between two integers."""
    return (p.numerator << bits) // p.denominator, ceil_divide(p.numerator << bits, p.denominator)


def exp_interval(x: int | Fraction, bits: int) -> Interval:
    """Enclose ``exp(-x) * 2**bits`` between two integers."""
    x, bits = nonnegative(x, "x"), integer(bits, "bits")
    if x == 0:
        return 1 << bits, 1 << bits
    if x >= bits:  # exp(-x) < 2^-x <= 2^-bits
        return 0, 1
    # exp(-x) = exp(-y)^(2^halvings) with y = x / 2^halvings < 2^-8, where the series is short. Each squaring at most
    # doubles the error, so it needs `halvings` more digits; the others cover the error of the series.
    halvings = (x.numerator // x.denominator).bit_length() + 8
    width = bits + halvings + bits.bit_length() + 16
    y = (x.numerator << width) // (x.denominator << halvings)
    total, term, k = 0, 1 << width, 0
    while term:
        total += -term if k % 2 else term
        k += 1
        term = (term * y >> width) // k
    # Each term is too small by at most 4: half the error of the term before, and 1 each from rounding y and itself.
    # The first term left out is therefore at most 4, and all later ones add up to less.
    error = 4 * k + 8
    low, high = max(total - error, 0), min(total + error, 1 << width)
    for _ in range(halvings):
        low, high = low * low >> width, ceil_shift(high * high, width)
    return low >> (width - bits), ceil_shift(high, width - bits)


def choice_cumulative(scores: Sequence[int | Fraction]) -> Cumulative:
    """Return the law with ``P(i)`` proportional to ``exp(scores[i])``, for :meth:`Noise.invert`."""
    exact_scores = [rational(score, "each score") for score in scores]
    if not exact_scores:
        raise ParameterError("there is no score to choose from. Pass at least one.")
    best = max(exact_scores)
    gaps = [best - score for score in exact_scores]

    def cumulative(bits: int) -> list[Interval]:
        # Sums of len(gaps) weights, each 2 wide; the total is at least 1 since the best weight is exp(0).
        width = bits + len(gaps).bit_length() + 4
        weights = {gap: exp_interval(gap, width) for gap in set(gaps)}
        lows = list(accumulate(weights[gap][0] for gap in gaps))
        highs = list(accumulate(weights[gap][1] for gap in gaps))
        return [
            ((low << bits) // highs[-1], min(ceil_divide(high << bits, lows[-1]), 1 << bits))
            for low, high in zip(lows[:-1], highs[:-1], strict=True)
        ]

    return cumulative
