# SPDX-License-Identifier: Apache-2.0
"""The exact laws of :mod:`dunnage.noise` on whole arrays.

One kernel samples nearly everything: inversion against a table. It compares a uniform number with integer bounds on the
cumulative distribution: 16 binary digits (8 for a yes or no) look up a guide, the undecided get 64 digits and a binary
search, and ties (about one in 2**50) as many more as necessary (:meth:`dunnage.noise.Noise.invert`). So no outcome is
ever rounded: the law is exact, and the tables only make it fast. ``docs/proofs/noise.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import IntArray
from dunnage.errors import ParameterError
from dunnage.noise.source import (
    Cumulative,
    Interval,
    Noise,
    ceil_divide,
    ceil_shift,
    choice_cumulative,
    exp_interval,
    gaussian_exponent,
    gaussian_scale,
    integer,
    nonnegative,
    positive,
    probability,
    ratio_interval,
    rational,
)

Words = NDArray[np.unsignedinteger[Any]]

MOST_SCALE = 2**40  # largest scale: the chance that a number does not fit 64 bits is then below exp(-2**22)

MAX_BELOW = 2**63

MAX_VARIANCE = 2**80  # of discrete Gaussian numbers: the scale of their proposals is then at most 2**40 + 1

MAX_TRIALS = 2**46
"""Largest number of trials of :func:`binomial_exp`: sums of a chunk of waiting times then fit 64 bits."""

_CHUNK = 1 << 16  # numbers sampled at a time: their arrays stay in the processor's cache
_BLOCK = 1024  # trials of a binomial law that one table covers
_UNDECIDED = np.iinfo(np.int32).min
_GAUGE = 64  # binary digits of a chance that decides how to sample, not what
_POWERS_OF_TWO = np.left_shift(1, np.arange(63, dtype=np.int64))


@dataclass(frozen=True)
class _Layout:
    """How many binary digits each step uses. Tests shrink them to make rare paths common."""

    guide_bits: int = 16
    word_bits: int = 64
    digit_bits: int = 12

    @property
    def radix(self) -> int:
        return 1 << self.digit_bits


_LAYOUT = _Layout()


def _uniform(noise: Noise, bits: int, size: int) -> Words:
    """Sample ``size`` uniform integers of ``bits`` binary digits, 1 to 64."""
    num_bytes = 1 << max(0, (bits - 1).bit_length() - 3)
    words: Words = np.frombuffer(noise.draw_bytes(num_bytes * size), dtype=f"<u{num_bytes}")
    return words if bits == 8 * num_bytes else words >> words.dtype.type(8 * num_bytes - bits)


class _LawTable:
    """A law on ``first, first + 1, ...`` ready for inversion."""

    def __init__(self, law: Cumulative, layout: _Layout, first: int = 0, open_ends: Sequence[int] = ()) -> None:
        bounds = law(layout.word_bits)
        self._law = lru_cache(maxsize=4)(law)
        self._first, self._word_bits = first, layout.word_bits
        self._guide_bits = min(layout.guide_bits, layout.word_bits, 8 if len(bounds) == 1 else 16)
        self._lows = np.array([low for low, _ in bounds], dtype=np.uint64)
        # Words from low to high - 1 are ties of that step. The leading 0 stands for the time before the first step: it
        # makes at most word 0 a tie, and treating a word as a tie is never wrong, only slow.
        self._last_ties = np.array([0, *(high - 1 for _, high in bounds)], dtype=np.uint64)
        self._rest = self._word_bits - self._guide_bits
        starts = np.arange(1 << self._guide_bits, dtype=np.uint64) << np.uint64(self._rest)
        passed = np.searchsorted(self._last_ties[1:], starts, side="left")
        reached = np.searchsorted(self._lows, starts + np.uint64((1 << self._rest) - 1), side="right")
        guide = np.where(passed == reached, passed + self._first, _UNDECIDED)
        guide[np.isin(guide, open_ends)] = _UNDECIDED
        self._guide = guide.astype(np.int32)

    def draw(self, noise: Noise, size: int) -> tuple[IntArray, NDArray[np.intp]]:
        """Sample ``size`` outcomes; also return the positions that the guide left undecided."""
        prefixes = _uniform(noise, self._guide_bits, size)
        values = self._guide.take(prefixes).astype(np.int64)
        late = np.flatnonzero(values == _UNDECIDED)
        if late.size:
            words = prefixes[late].astype(np.uint64)
            if self._rest:
                words = words << np.uint64(self._rest) | _uniform(noise, self._rest, words.size).astype(np.uint64)
            outcomes = np.searchsorted(self._lows, words, side="right").astype(np.int64)
            for tie in np.flatnonzero(words <= self._last_ties[outcomes]):
                outcomes[tie] = noise.invert(self._law, int(words[tie]), self._word_bits)
            values[late] = outcomes + self._first
        return values, late


def _in_chunks(size: int, draw: Callable[[int], IntArray]) -> IntArray:
    size = integer(size, "size")
    values = np.empty(size, dtype=np.int64)
    for start in range(0, size, _CHUNK):
        values[start : start + _CHUNK] = draw(min(_CHUNK, size - start))
    return values


def _yes(noise: Noise, table: _LawTable, size: int) -> NDArray[np.bool_]:
    """Sample from a law of two outcomes, of which the first means yes."""
    return np.equal(_in_chunks(size, lambda count: table.draw(noise, count)[0]), 0)


def below(noise: Noise, n: int, size: int) -> IntArray:
    """Sample ``size`` uniform integers from 0 to ``n - 1``, for ``n`` up to 2**63."""
    n = integer(n, "n", least=1)
    if n > MAX_BELOW:
        raise ParameterError("n must be at most 2**63. Use Noise.below for larger numbers.")
    return _in_chunks(size, lambda count: _below(noise, n, count))


def _below(noise: Noise, n: int, size: int) -> IntArray:
    if n == 1:
        return np.zeros(size, dtype=np.int64)
    bits = (n - 1).bit_length()
    values = _uniform(noise, bits, size).astype(np.int64)
    # Numbers of n or more are sampled again; a remainder would favour small numbers.
    late = np.flatnonzero(values > n - 1)
    while late.size:
        values[late] = _uniform(noise, bits, late.size)
        late = late[values[late] > n - 1]
    return values


def below_each(noise: Noise, limits: IntArray) -> IntArray:
    """Sample for each limit a uniform integer from 0 to ``limit - 1``, for limits from 1 to 2**63 - 1."""
    if limits.size and limits.min() < 1:
        raise ParameterError("each limit must be at least 1. Leave out the limits below it.")
    values = np.empty(limits.size, dtype=np.int64)
    for start in range(0, limits.size, _CHUNK):
        own, chunk = limits[start : start + _CHUNK], values[start : start + _CHUNK]
        bits = np.searchsorted(_POWERS_OF_TWO, own - 1, side="right")  # binary length of limit - 1
        most, late = max(1, int(bits.max())), np.arange(own.size)
        while late.size:  # as in _below, with as many digits as each limit needs
            words = _uniform(noise, most, late.size).astype(np.int64)
            chunk[late] = words >> (most - bits[late])
            late = late[chunk[late] >= own[late]]
    return values


def permutation(noise: Noise, n: int) -> IntArray:
    n = integer(n, "n")
    while True:
        keys = _uniform(noise, _LAYOUT.word_bits, n)
        order = np.argsort(keys)
        ranked = keys[order]
        # All orders of distinct keys are equally likely; equal keys would leave the order to the sort.
        if not np.any(ranked[1:] == ranked[:-1]):
            return order.astype(np.int64)


def bernoulli(noise: Noise, p: int | Fraction, size: int) -> NDArray[np.bool_]:
    p = probability(p, "p")
    if p in (0, 1):
        return np.full(integer(size, "size"), p == 1)
    return _yes(noise, _coin_table(ratio_interval, p, _LAYOUT), size)


@lru_cache(maxsize=128)
def _coin_table(chance: Callable[[Fraction, int], Interval], x: Fraction, layout: _Layout) -> _LawTable:
    return _LawTable(lambda bits: [chance(x, bits)], layout)


def bernoulli_exp(noise: Noise, x: int | Fraction, size: int) -> NDArray[np.bool_]:
    """Sample ``size`` booleans that are true with probability ``exp(-x)``, for ``x >= 0``."""
    x = nonnegative(x, "x")
    if x == 0:
        return np.full(integer(size, "size"), True)
    return _yes(noise, _coin_table(exp_interval, x, _LAYOUT), size)


def bernoulli_logistic(noise: Noise, x: int | Fraction, size: int) -> NDArray[np.bool_]:
    """Sample ``size`` booleans that are true with probability ``1 / (1 + exp(-x))``."""
    x = rational(x, "x")
    unlikely = _yes(noise, _coin_table(_unlikely, abs(x), _LAYOUT), size)
    return unlikely if x < 0 else ~unlikely


def _unlikely(x: Fraction, bits: int) -> Interval:
    one, (low, high) = 1 << bits, exp_interval(x, bits)
    return (low << bits) // (one + low), ceil_divide(high << bits, one + high)


def bernoulli_odds(noise: Noise, yes: int, no: int, x: int | Fraction, size: int) -> NDArray[np.bool_]:
    """Sample ``size`` booleans that are true with odds of ``yes`` to ``no * exp(-x)``, for ``x >= 0``."""
    yes, no, x = integer(yes, "yes"), integer(no, "no"), nonnegative(x, "x")
    if not yes + no:
        raise ParameterError("odds of 0 to 0 have no meaning. Pass a number above zero on either side.")
    if not (yes and no):
        return np.full(integer(size, "size"), no == 0)
    return _yes(noise, _bernoulli_odds_table(yes, no, x, _LAYOUT), size)


@lru_cache(maxsize=64)
def _bernoulli_odds_table(yes: int, no: int, x: Fraction, layout: _Layout) -> _LawTable:

    def law(bits: int) -> list[Interval]:
        # The unlikely side is off by at most 2 no / 2**width, which this many digits bring below 1.
        width = bits + no.bit_length() + 4
        (low, high), scaled = exp_interval(x, width), yes << width
        return [((scaled << bits) // (scaled + no * high), ceil_divide(scaled << bits, scaled + no * low))]

    return _LawTable(law, layout)


def geometric(noise: Noise, scale: int | Fraction, size: int) -> IntArray:
    """Sample ``size`` integers ``i >= 0`` with probability ``(1 - exp(-1/scale)) * exp(-i/scale)``."""
    scale = _checked_scale(scale)
    return _in_chunks(size, lambda count: _geometric(noise, scale, count))


def _checked_scale(scale: int | Fraction) -> Fraction:
    scale = positive(scale, "scale")
    if scale > MOST_SCALE:
        raise ParameterError("scale must be at most 2**40. Use Noise, which has no such limit.")
    return scale


def _geometric(noise: Noise, scale: Fraction, size: int) -> IntArray:
    radix = _LAYOUT.radix
    if 2 * scale <= radix:
        return _endless(noise, *_geometric_table(scale, _LAYOUT), size)
    # The last digit of a geometric number in any base is independent of the digits before it, and those form a
    # geometric number of a smaller scale.
    lowest, _ = _low_digit_table(scale, _LAYOUT).draw(noise, size)
    return lowest + radix * _geometric(noise, Fraction(scale, radix), size)


def _endless(noise: Noise, table: _LawTable, end: int, size: int) -> IntArray:
    values, late = table.draw(noise, size)
    tail = late[values[late] == end]
    if tail.size:  # if a geometric number is at least `end`, its excess has the same law
        values[tail] += _endless(noise, table, end, tail.size)
    return values


def _table_end(scale: Fraction, layout: _Layout) -> int:
    # exp(-45) < 2^-64: a longer table would have steps that hardly any word reaches.
    return min(layout.radix, math.ceil(45 * scale))


@lru_cache(maxsize=64)
def _geometric_table(scale: Fraction, layout: _Layout) -> tuple[_LawTable, int]:
    """Build the geometric law on ``0, ..., end``, where ``end`` stands for itself and all above."""
    end = _table_end(scale, layout)
    return _endless_table(partial(exp_interval, Fraction(1, scale)), end, layout), end


def _endless_table(ratio: Callable[[int], Interval], end: int, layout: _Layout) -> _LawTable:
    def law(bits: int) -> list[Interval]:
        one = 1 << bits
        return [(one - high, one - low) for low, high in _powers(ratio, end, bits)]

    return _LawTable(law, layout, open_ends=[end])


@lru_cache(maxsize=64)
def _low_digit_table(scale: Fraction, layout: _Layout) -> _LawTable:
    """Build the law of a geometric number's last digit: ``F(d) = (1 - r**(d+1)) / (1 - r**radix)``."""
    # 1 - r**radix is above 1/(2 scale): this many more digits keep the quotient sharp.
    return _digit_table(partial(exp_interval, Fraction(1, scale)), int(scale).bit_length() + 8, layout)


def _digit_table(ratio: Callable[[int], Interval], extra: int, layout: _Layout) -> _LawTable:
    """Build the law of a last digit, with ``extra`` digits against the smallness of ``1 - ratio``."""

    def law(bits: int) -> list[Interval]:
        width = bits + extra
        one = 1 << width
        *steps, (total_low, total_high) = [(one - high, one - low) for low, high in _powers(ratio, layout.radix, width)]
        return [_quotient(low, high, total_low, total_high, bits) for low, high in steps]

    return _LawTable(law, layout)


def _quotient(low: int, high: int, divisor_low: int, divisor_high: int, bits: int) -> Interval:
    """Enclose a quotient of at most 1, given bounds on both of its sides."""
    return (low << bits) // divisor_high, min(ceil_divide(high << bits, divisor_low), 1 << bits)


def _powers(ratio: Callable[[int], Interval], count: int, bits: int) -> list[Interval]:
    """Enclose ``ratio**1, ..., ratio**count``, times ``2**bits``, each between integers at most 2 apart."""
    # The bounds of the j-th product are at most 4 j apart: this many more digits bring that below 1.
    extra = count.bit_length() + 4
    width = bits + extra
    ratio_low, ratio_high = ratio(width)
    low = high = 1 << width
    powers = []
    for _ in range(count):
        low, high = low * ratio_low >> width, ceil_shift(high * ratio_high, width)
        powers.append((low >> extra, ceil_shift(high, extra)))
    return powers


def discrete_laplace(noise: Noise, scale: int | Fraction, size: int) -> IntArray:
    """Sample ``size`` integers ``x`` with probability proportional to ``exp(-abs(x)/scale)``."""
    scale = _checked_scale(scale)
    draw = _laplace_by_table if 2 * scale <= _LAYOUT.radix else _laplace_by_sign
    return _in_chunks(size, lambda count: draw(noise, scale, count))


def _laplace_by_table(noise: Noise, scale: Fraction, size: int) -> IntArray:
    table, end = _laplace_table(scale, _LAYOUT)
    values, late = table.draw(noise, size)
    tail = late[np.abs(values[late]) == end]
    if tail.size:  # beyond either end the law is geometric
        excess = _endless(noise, *_geometric_table(scale, _LAYOUT), tail.size)
        values[tail] += np.sign(values[tail]) * excess
    return values


@lru_cache(maxsize=64)
def _laplace_table(scale: Fraction, layout: _Layout) -> tuple[_LawTable, int]:
    """Build the law on ``-end, ..., end``; the ends stand for themselves and everything beyond."""
    end = _table_end(scale, layout)

    def law(bits: int) -> list[Interval]:
        # P(X <= -j) = P(X >= j) = r**j / (1 + r) for j >= 1
        width, one = bits + 4, 1 << bits
        powers = _powers(partial(exp_interval, Fraction(1, scale)), end, width)
        total_low, total_high = (side + (1 << width) for side in powers[0])
        tails = [_quotient(low, high, total_low, total_high, bits) for low, high in powers]
        return tails[::-1] + [(one - high, one - low) for low, high in tails]

    return _LawTable(law, layout, first=-end, open_ends=[-end, end]), end


def _laplace_by_sign(noise: Noise, scale: Fraction, size: int) -> IntArray:
    values = _geometric(noise, scale, size)
    negative = _uniform(noise, 1, size) == 1
    again = np.flatnonzero(negative & (values == 0))
    values[negative] *= -1
    if again.size:  # zero must not count twice, as +0 and -0
        values[again] = _laplace_by_sign(noise, scale, again.size)
    return values


def discrete_gaussian(noise: Noise, variance: int | Fraction, size: int) -> IntArray:
    """Sample ``size`` integers ``x`` with probability proportional to ``exp(-x**2 / (2 * variance))``."""
    variance = positive(variance, "variance")
    if variance >= MAX_VARIANCE:
        raise ParameterError("variance must be below 2**80. Use Noise, which has no such limit.")
    scale, bits = gaussian_scale(variance), _LAYOUT.word_bits
    values = discrete_laplace(noise, scale, size)
    pending = np.arange(values.size)
    while pending.size:
        # Each number stays if a uniform number of its own is below exp(-x); x depends on its size alone.
        sizes, place = np.unique(np.abs(values[pending]), return_inverse=True)
        exponents = [gaussian_exponent(variance, scale, number) for number in sizes.tolist()]
        bounds = [exp_interval(x, bits) for x in exponents]
        # Words from low to high - 1 are ties; treating the last word as one is never wrong, only slow.
        lows = np.array([min(low, (1 << bits) - 1) for low, _ in bounds], dtype=np.uint64)[place]
        last_ties = np.array([high - 1 for _, high in bounds], dtype=np.uint64)[place]
        words = _uniform(noise, bits, pending.size).astype(np.uint64)
        lost = words > last_ties
        for tie in np.flatnonzero(~lost & (words >= lows)):
            law = partial(_one_step, exponents[place[tie]])
            lost[tie] = noise.invert(law, int(words[tie]), bits) == 1
        pending = pending[lost]
        values[pending] = discrete_laplace(noise, scale, pending.size)
    return values


def _one_step(x: Fraction, bits: int) -> list[Interval]:
    return [exp_interval(x, bits)]


def tail_counts(noise: Noise, scale: int | Fraction, threshold: int, sizes: IntArray) -> IntArray:
    """Sample for each group how many of its discrete Laplace numbers are at least ``threshold``."""
    # The numbers themselves are not sampled: if one is at least a threshold of 1 or more, its excess is `geometric`,
    # independent of everything else.
    step, threshold = Fraction(1, _checked_scale(scale)), integer(threshold, "threshold", least=-MAX_BELOW)
    if threshold >= 1:
        return binomial_exp(noise, threshold * step, step, sizes)
    # The law is symmetric: a number is as often below the threshold as above minus the threshold.
    return sizes - binomial_exp(noise, (1 - threshold) * step, step, sizes)


def binomial_exp(noise: Noise, x: int | Fraction, y: int | Fraction, sizes: IntArray) -> IntArray:
    """Sample for each group the number of successes in its trials of probability ``exp(-x) / (1 + exp(-y))``."""
    chance = _Chance(nonnegative(x, "x"), nonnegative(y, "y"))
    if sizes.size and sizes.min() < 0:
        raise ParameterError("the size of a group must not be negative. Pass zero or more.")
    if (int((sizes >> 32).sum()) << 32) + int((sizes & 0xFFFFFFFF).sum()) > MAX_TRIALS:  # in halves: no overflow
        raise ParameterError("the sizes of the groups must add up to at most 2**46. Use several calls.")
    ends = np.cumsum(sizes, dtype=np.int64)
    counts = np.zeros(ends.size, dtype=np.int64)
    for hits in _hits(noise, chance, int(ends[-1]) if ends.size else 0):
        first, last = np.searchsorted(ends, hits[[0, -1]], side="right")
        before = np.searchsorted(hits, ends[first:last])
        counts[first : last + 1] += np.diff(before, prepend=0, append=hits.size)
    return counts


@dataclass(frozen=True)
class _Chance:
    """A probability ``p = exp(-x) / (1 + exp(-y))``, known by bounds."""

    x: Fraction
    y: Fraction

    def misses(self, squarings: int) -> Callable[[int], Interval]:
        """Return the bounds on ``(1 - p)**(2**squarings)`` at any precision."""

        def ratio(bits: int) -> Interval:
            # p is at most 5 wide, and a squaring doubles a width and adds 2: this many digits bring it below 1.
            width = bits + squarings + 4
            one, (low, high) = 1 << width, exp_interval(self.x, width)
            other_low, other_high = exp_interval(self.y, width)
            low, high = one - ceil_divide(high << width, one + other_low), one - (low << width) // (one + other_high)
            for _ in range(squarings):
                low, high = low * low >> width, ceil_shift(high * high, width)
            return low >> (width - bits), ceil_shift(high, width - bits)

        return ratio

    def gauge(self, squarings: int) -> int:
        """Return about ``2**64 * (1 - (1 - p)**(2**squarings))``, to decide how to sample, not what."""
        return (1 << _GAUGE) - self.misses(squarings)(_GAUGE)[1]


def _hits(noise: Noise, chance: _Chance, num: int) -> Iterator[IntArray]:
    """Yield, chunk by chunk, which of the trials ``0, ..., num - 1`` succeed."""
    # The numbers of misses before each success are independent and geometric. The size of a chunk depends on the past
    # alone, so it does not affect their law.
    last, share = -1, chance.gauge(0)
    while last < num - 1:
        expected = (num - 1 - last) * share >> _GAUGE
        size = min(_CHUNK, expected + 4 * math.isqrt(expected) + 8)
        hits = last + np.cumsum(1 + np.minimum(_gaps(noise, chance, 0, num, size), num))
        last = int(hits[-1])
        if inside := int(np.searchsorted(hits, num)):
            yield hits[:inside]


def _gaps(noise: Noise, chance: _Chance, level: int, most: int, size: int) -> IntArray:
    """Sample numbers of misses in a row, in units of ``radix**level``; all numbers above ``most`` trials are alike."""
    radix = _LAYOUT.radix
    if radix**level > most:  # a single unit is above
        return 1 - _yes(noise, _gap_table(chance, level, 1, _LAYOUT), size).astype(np.int64)
    if end := _gap_end(chance, level, _LAYOUT):
        values = _endless(noise, _gap_table(chance, level, end, _LAYOUT), end, size)
        return values.clip(max=most // radix**level + 1)
    values = radix * _gaps(noise, chance, level + 1, most, size)
    inside = np.flatnonzero(values <= most // radix**level)
    if inside.size:  # above, the last digit does not matter, and its table is expensive for a tiny chance
        values[inside] += _gap_digit_table(chance, level, _LAYOUT).draw(noise, inside.size)[0]
    return values


@lru_cache(maxsize=256)
def _gap_end(chance: _Chance, level: int, layout: _Layout) -> int:
    """Return where the table of a gap's leading digits should end; 0 if a digit must be split off first."""
    share = chance.gauge(level * layout.digit_bits)
    if share * layout.radix < 2 << _GAUGE:
        return 0
    return min(layout.radix, ceil_divide(45 << _GAUGE, share))  # as _table_end: exp(-45) < 2^-64


@lru_cache(maxsize=64)
def _gap_table(chance: _Chance, level: int, end: int, layout: _Layout) -> _LawTable:
    return _endless_table(chance.misses(level * layout.digit_bits), end, layout)


@lru_cache(maxsize=64)
def _gap_digit_table(chance: _Chance, level: int, layout: _Layout) -> _LawTable:
    # 1 - ratio >= p >= exp(-x) / 2 >= 2**-(2 x + 1): this many more digits keep the quotient sharp.
    return _digit_table(chance.misses(level * layout.digit_bits), int(2 * chance.x) + 10, layout)


def binomial(noise: Noise, n: int, p: int | Fraction, size: int) -> IntArray:
    """Sample ``size`` numbers of successes in ``n`` trials of probability ``p``: one lookup for every 1024 trials."""
    n, p = integer(n, "n"), probability(p, "p")
    if n == 0 or p in (0, 1):
        return np.full(integer(size, "size"), n if p == 1 else 0, dtype=np.int64)
    return _in_chunks(size, lambda count: _binomial(noise, n, p, count))


def _binomial(noise: Noise, n: int, p: Fraction, size: int) -> IntArray:
    blocks, rest = divmod(n, _BLOCK)
    values = np.zeros(size, dtype=np.int64)
    if rest:
        values += _binomial_table(rest, p, _LAYOUT).draw(noise, size)[0]
    while blocks:  # as many blocks at a time as fill a chunk
        num = min(blocks, ceil_divide(_CHUNK, size))
        successes, _ = _binomial_table(_BLOCK, p, _LAYOUT).draw(noise, num * size)
        values += successes.reshape(num, size).sum(axis=0)  # successes : (block, position)
        blocks -= num
    return values


@lru_cache(maxsize=16)
def _binomial_table(n: int, p: Fraction, layout: _Layout) -> _LawTable:
    def law(bits: int) -> list[Interval]:
        # The binomial coefficients add up to 2**n, and each multiplies an error of up to 2 in either power.
        width = bits + n + n.bit_length() + 8
        yes, no = ([(1 << width,) * 2, *_powers(partial(ratio_interval, side), n, width)] for side in (p, 1 - p))
        low = high = 0
        bounds = []
        ways = 1  # n choose k, by its recurrence
        for k in range(n):
            low += ways * yes[k][0] * no[n - k][0]
            high += ways * yes[k][1] * no[n - k][1]
            bounds.append((low >> (2 * width - bits), min(ceil_shift(high, 2 * width - bits), 1 << bits)))
            ways = ways * (n - k) // (k + 1)
        return bounds

    return _LawTable(law, layout)


def exponential_choice(noise: Noise, scores: Sequence[int | Fraction], size: int) -> IntArray:
    """Sample ``size`` indices ``i`` with probability proportional to ``exp(scores[i])``."""
    law = choice_cumulative(scores)
    if len(scores) == 1:
        return np.zeros(integer(size, "size"), dtype=np.int64)
    table = _LawTable(law, _LAYOUT)
    return _in_chunks(size, lambda count: table.draw(noise, count)[0])


def packed_bits(noise: Noise, x: int | Fraction, num_bits: int, size: int) -> NDArray[np.uint8]:
    """Sample ``size`` rows of ``num_bits`` bits, each 1 with probability ``1 / (1 + exp(x))``, eight to a byte."""
    x, num_bits, size = rational(x, "x"), integer(num_bits, "num_bits", least=1), integer(size, "size")
    table, num_bytes = _packed_bits_table(x, _LAYOUT), ceil_divide(num_bits, 8)
    flat = np.empty(size * num_bytes, dtype=np.uint8)
    for start in range(0, flat.size, _CHUNK):
        flat[start : start + _CHUNK] = table.draw(noise, min(_CHUNK, flat.size - start))[0]
    rows = flat.reshape(size, num_bytes)
    rows[:, -1] &= 0xFF >> -num_bits % 8
    return rows


@lru_cache(maxsize=64)
def _packed_bits_table(x: Fraction, layout: _Layout) -> _LawTable:
    """Build the law of eight bits at once: a byte's chance is proportional to ``exp(-x)`` to the power of its ones."""
    return _LawTable(choice_cumulative([-x * byte.bit_count() for byte in range(256)]), layout)
