# SPDX-License-Identifier: Apache-2.0
"""The privacy loss of releasing the k-anonymous part of a secret sample: the delta of Li, Qardaji and Su 2012.

Each record is sampled with probability beta, then generalised in a way that does not depend on the sample, and classes
of fewer than k records are left out. Between datasets that differ in one record this keeps (epsilon, delta) for every
epsilon of at least -ln(1 - beta), with the theorem's

    delta = max over n >= ceil(k / gamma - 1) of P(Bin(n, beta) > gamma n),   gamma = 1 - (1 - beta) e^-epsilon.

The theorem counts every release that reveals too much. Its exact loss is what these exceed e^epsilon times their
probability without the record, for a class that has n records with it:

    delta = max over n and m >= k of P(Bin(n, beta) >= m) - e^epsilon P(Bin(n - 1, beta) >= m).

Everything is rounded to the safe side, so no printed delta or epsilon promises more than is true. All arithmetic uses
whole numbers, fractions and decimals of 50 digits, never floats. ``docs/proofs/sampled-lattice.md`` has the proofs.

References
----------
N. Li, W. Qardaji, D. Su, "On sampling, anonymization, and differential privacy: or, k-anonymization meets differential
privacy", ASIACCS 2012, theorem 1. T. Li, Z. Erkin, R. L. Lagendijk 2022, eq. 14, begin one step later, at
n = ceil(k / gamma), and so state a smaller delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache

from dunnage.errors import ParameterError
from dunnage.exact import Exact, exact, shown, shown_number

MAX_K = 10**6
MIN_BETA = Fraction(1, 10**9)
MAX_BETA = 1 - Fraction(1, 10**12)
MAX_EPSILON = 700
LARGE_DELTA = Fraction(1, 1000)  # releases with at least this delta carry a warning, whatever the number of records
_DIGITS = 50
_PRINTED_DIGITS = 12
# The limits of exponents are far beyond the smallest possible probability.
_UP = Context(prec=_DIGITS, rounding=ROUND_CEILING, Emin=MIN_EMIN, Emax=MAX_EMAX)
_DOWN = Context(prec=_DIGITS, rounding=ROUND_FLOOR, Emin=MIN_EMIN, Emax=MAX_EMAX)
_PRINT = Context(prec=_PRINTED_DIGITS, rounding=ROUND_CEILING, Emin=MIN_EMIN, Emax=MAX_EMAX)
_NEGLIGIBLE = Decimal("1e-30")


def sampling_delta(k: int, beta: Exact, epsilon_rest: Exact | None = None, *, as_published: bool = False) -> Fraction:
    """Return the theorem's bound of delta for releasing the classes of at least k records of a secret sample."""
    rest = None if epsilon_rest is None else _checked_rest(epsilon_rest)
    return _largest_tail(_checked_k(k) + (1 if as_published else 0), _checked_beta(beta), rest)


def exact_delta(k: int, beta: Exact) -> Fraction:
    """Return the smallest delta at epsilon -ln(1 - beta) for levels chosen without this sample, rounded up."""
    return _largest_tail(_checked_k(k), _checked_beta(beta), None, True)


def sampling_epsilon(beta: Exact) -> Fraction:
    """Return -ln(1 - beta), rounded up to 12 digits: the smallest epsilon for a sample of rate beta."""
    missed = _decimal(1 - _checked_beta(beta), _DOWN)
    return Fraction(_PRINT.plus(-missed.ln(_DOWN).next_minus(_DOWN)))


def sampling_beta(epsilon_rest: Exact) -> Fraction:
    """Return 1 - e^-epsilon_rest, rounded down to 12 decimals: the largest rate of a sample for that epsilon."""
    rest = _checked_rest(epsilon_rest)
    scaled = (1 - _exp_above(-rest)) * 10**_PRINTED_DIGITS
    beta = Fraction(math.floor(scaled), 10**_PRINTED_DIGITS)
    if beta < MIN_BETA:
        raise ParameterError(
            f"an epsilon of {shown_number(rest)} for the sample gives a rate below {float(MIN_BETA)}. "
            "Choose a larger epsilon, or spend less of it on the choice."
        )
    return min(beta, MAX_BETA)


def smallest_k(beta: Exact, delta: Exact, *, by_theorem: bool = False) -> int:
    """Return the smallest k of at least 2 that keeps to delta at epsilon -ln(1 - beta)."""
    limit = exact(delta, what="delta")
    if not 0 < limit < 1:
        raise ParameterError(f"delta must be above 0 and below 1. Got {shown_number(limit)}. Try 1e-6.")
    tails = _Tails(_checked_beta(beta), None, not by_theorem)
    k = max(2, tails.threshold(tails.enough_records(_decimal(limit, _DOWN))))
    if k > MAX_K:
        raise ParameterError(
            f"a delta of {shown_number(limit)} at a rate of {shown_number(tails.beta)} needs a k above {MAX_K}. "
            "Choose a larger delta, or sample less."
        )
    while k > 2 and _rounded(tails.tail(k - 1, tails.mass(k - 1))) <= limit:
        k -= 1
    return k


def published_choice_delta(k: int, beta: Exact, epsilon_choice: Exact) -> Fraction:
    """Return the delta that holds if classes are chosen on the released sample, with scores between 0 and epsilon'."""
    # Such a choice can raise the odds of a class that reveals too much by a factor of up to e^(2 epsilon').
    rate, growth = _checked_beta(beta), _exp_above(2 * _checked_rest(epsilon_choice))
    revealing = min(Fraction(1), sampling_delta(k, rate) / rate)  # given that the record in question is sampled
    return _rounded(_decimal(rate * growth * revealing / (1 + (growth - 1) * revealing), _UP))


@lru_cache(maxsize=256)
def _largest_tail(first: int, beta: Fraction, rest: Fraction | None, excess: bool = False) -> Fraction:
    """Return the largest tail over all thresholds from ``first`` on; for each threshold, one n is enough."""
    tails = _Tails(beta, rest, excess)
    threshold, mass = first, tails.mass(first)
    largest = tails.tail(threshold, mass)
    enough = tails.enough_records(largest)
    while tails.records(threshold + 1) < enough:
        mass = tails.next_mass(threshold, mass)
        threshold += 1
        if (tail := tails.tail(threshold, mass)) > largest:
            largest, enough = tail, tails.enough_records(tail)
    return min(_rounded(largest), Fraction(1))


@dataclass(frozen=True)
class _Tails:
    """Upper tails of binomial laws of one rate, each bounded from above."""

    beta: Fraction
    rest: Fraction | None
    excess: bool  # only what a tail exceeds e^epsilon times that of a class without the record

    @cached_property
    def gamma(self) -> Fraction:
        """The share of a class beyond which its count reveals too much, from below: a smaller one takes larger n."""
        missed = 1 - self.beta
        if self.rest is None:
            return 1 - missed * missed
        gamma = 1 - missed * _exp_above(-self.rest)
        if gamma < 1 - missed * missed and self.rest < sampling_epsilon(self.beta):
            raise ParameterError(
                f"a sample of rate {shown_number(self.beta)} needs an epsilon of at least -ln(1 - beta), which is "
                f"{float(sampling_epsilon(self.beta)):.6g}, besides that of the choice. "
                f"Got {shown_number(self.rest)}. Raise epsilon, or sample less."
            )
        return gamma

    @cached_property
    def _missed(self) -> Decimal:
        return _decimal(1 - self.beta, _UP)

    @cached_property
    def _odds(self) -> Decimal:
        return _decimal(self.beta / (1 - self.beta), _UP)

    @cached_property
    def _divergence(self) -> Decimal:
        """Kullback-Leibler divergence of rate gamma from rate beta, from below."""
        gamma, beta = self.gamma, self.beta
        more = _DOWN.multiply(_decimal(gamma, _DOWN), _ln_below(gamma / beta))
        # The other logarithm is negative: its size and its factor are rounded up.
        less = _UP.multiply(_decimal(1 - gamma, _UP), -_ln_below((1 - gamma) / (1 - beta)))
        return _DOWN.subtract(more, less)

    def records(self, threshold: int) -> int:
        """Return the n for which the tail from a threshold on is largest: a count of the threshold is above gamma n."""
        # Tails grow with n. Their excess grows as long as gamma n <= threshold - 1, and falls from there on.
        return math.ceil((threshold - 1) / self.gamma) if self.excess else math.ceil(threshold / self.gamma) - 1

    def threshold(self, records: int) -> int:
        """Return the smallest threshold for at least this number of records."""
        return math.floor(self.gamma * records) + 1

    def enough_records(self, delta: Decimal) -> int:
        """Return an n beyond which every tail is at most delta: P(Bin(n, beta) > gamma n) <= e^(-n divergence)."""
        if delta >= 1:
            return 0
        return math.ceil(_UP.divide(-_ln_below(Fraction(delta)), self._divergence))

    def mass(self, threshold: int) -> Decimal:
        num = self.records(threshold)
        mass = _UP.multiply(
            _power_above(_decimal(self.beta, _UP), threshold), _power_above(self._missed, num - threshold)
        )
        few = min(threshold, num - threshold)
        for i in range(1, few + 1):
            mass = _UP.divide(_UP.multiply(mass, Decimal(num - few + i)), Decimal(i))
        return mass

    def next_mass(self, threshold: int, mass: Decimal) -> Decimal:
        """Bound the same for the next threshold, from the bound for this one or from scratch if that is shorter."""
        num, more = self.records(threshold), self.records(threshold + 1)
        if more - num > threshold:
            return self.mass(threshold + 1)
        for i in range(num + 1, more + 1):
            mass = _UP.divide(_UP.multiply(_UP.multiply(mass, Decimal(i)), self._missed), Decimal(i - threshold))
        return _UP.multiply(mass, self._step(more, threshold))

    def tail(self, threshold: int, mass: Decimal) -> Decimal:
        num = self.records(threshold)
        if num < threshold:
            return Decimal(0)
        term, total = mass, self._part(num, threshold, mass)
        for count in range(threshold, num):
            step = self._step(num, count)
            term = _UP.multiply(term, step)
            total = _UP.add(total, self._part(num, count + 1, term))
            if term < _UP.multiply(total, _NEGLIGIBLE):
                # Steps only fall, so the rest is less than a geometric series.
                return _UP.add(total, _UP.divide(_UP.multiply(term, step), _DOWN.subtract(Decimal(1), step)))
        return total

    def _part(self, num: int, count: int, mass: Decimal) -> Decimal:
        """Bound how much of the probability of a count counts."""
        if not self.excess:
            return mass
        # Without the record: (num - count) / (num (1 - beta)) of it, times e^epsilon. Not above 1 beyond gamma num.
        return _UP.multiply(mass, _decimal(1 - Fraction(num - count, num) / (1 - self.beta) ** 2, _UP))

    def _step(self, num: int, count: int) -> Decimal:
        """Bound how much likelier the next count is than this one."""
        return _UP.multiply(_UP.divide(Decimal(num - count), Decimal(count + 1)), self._odds)


def _checked_k(k: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int) or not 2 <= k <= MAX_K:
        raise ParameterError(f"k must be a whole number from 2 to {MAX_K}. Got {shown(k)}.")
    return k


def _checked_beta(beta: Exact) -> Fraction:
    rate = exact(beta, what="beta")
    if not MIN_BETA <= rate <= MAX_BETA:
        raise ParameterError(
            f"beta, the share of records to sample, must be at least {float(MIN_BETA)} and at most 1 - 1e-12. "
            f"Got {shown_number(rate)}. Try 0.7."
        )
    return rate


def _checked_rest(epsilon_rest: Exact) -> Fraction:
    rest = exact(epsilon_rest, what="epsilon_rest")
    if not 0 < rest <= MAX_EPSILON:
        raise ParameterError(
            f"the epsilon for the sample must be above 0 and at most {MAX_EPSILON}. Got {shown_number(rest)}."
        )
    return rest


def _rounded(bound: Decimal) -> Fraction:
    return Fraction(_PRINT.plus(bound))


def _decimal(value: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def _ln_below(value: Fraction) -> Decimal:
    return _decimal(value, _DOWN).ln(_DOWN).next_minus(_DOWN)


def _exp_above(exponent: Fraction) -> Fraction:
    return Fraction(_decimal(exponent, _UP).exp(_UP).next_plus(_UP))


def _power_above(base: Decimal, exponent: int) -> Decimal:
    result = Decimal(1)
    while exponent:
        if exponent & 1:
            result = _UP.multiply(result, base)
        base, exponent = _UP.multiply(base, base), exponent >> 1
    return result
