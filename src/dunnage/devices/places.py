# SPDX-License-Identifier: Apache-2.0
"""Places: which cell of a public grid a vehicle is in, reported so that no report gives away more than epsilon.

:class:`LocalLocation` reports a cell, or that it is missing, through a channel. A channel maps one of finitely many
public inputs to a random symbol. Every channel here is *exponential*: the probability of a symbol is
``base(symbol) * exp(exponent(input, symbol))`` with rational exponents and a base that does not depend on the input. So
the loss between two inputs is a difference of rational numbers, and the worst case over all inputs and symbols is
exact, without floating-point numbers.

Frequency oracles report one of k inputs so that the share of each can be estimated. They differ in the variance of the
estimate and in the size of a report; :func:`best_oracle` picks one. :class:`Planar` reports a cell near the true one:
geo-indistinguishability as an exact law, by a norm that is at most 0.5 % shorter than the Euclidean distance.

``docs/proofs/local-location.md`` has the proofs and a table of variances. The oracles are those of Wang, Blocki, Li,
Jha, USENIX Security 2017 (randomised response, unary encodings), Ye, Barg, IEEE Transactions on Information Theory 2018
(subset selection), Acharya, Sun, Zhang, AISTATS 2019 (Hadamard response), Feldman, Nelson, Nguyen, Talwar, ICML 2022
(projective geometry) and Yao et al. 2024, Algorithm 3 (L-RR).
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from dunnage.devices.subjects import MAX_EPSILON, MIN_EPSILON, Grid, Tier, Tiered, read_number
from dunnage.errors import ParameterError, ReportError
from dunnage.exact import plain, shown, shown_number
from dunnage.model.guarantees import (
    REPORT_ASSUMPTIONS,
    Basis,
    LocalDP,
    MetricLocalDP,
    Neighbours,
    Promise,
    WithinCluster,
)
from dunnage.noise.source import Noise, ceil_divide, exp_interval, integer, positive

MAX_ENUMERATED = 1 << 20  # pairs of an input and a symbol that :func:`enumerated_loss` compares
MAX_INPUTS = 1 << 48
MAX_UNARY_INPUTS = 1 << 20
MAX_REPORT_BITS = 4097  # longest report that :func:`choose_oracle` accepts: half a kilobyte
NEARLY_AS_GOOD = Fraction(103, 100)  # times the least variance: such an oracle is as good, if its report is smaller
MAX_POINTS = 1 << 24  # points of a projective space that are worth counting for a lower variance
ORACLE_NOTE, AREA_NOTE = "local-location.md#frequency-oracles", "local-location.md#area-in-clear"
DISK_NOTE = "local-location.md#the-disk-law"
NOISE_FACTOR = Fraction(5, 2)  # a map is noise if a share's standard deviation exceeds this many mean shares
Number = TypeVar("Number", float, Fraction)


class Channel(Protocol):
    """A randomiser with exact probabilities, from public inputs ``0 .. num_inputs - 1`` to symbols: whole numbers."""

    @property
    def num_inputs(self) -> int: ...

    @property
    def loss(self) -> Fraction | None:
        """The largest loss of one symbol, in closed form; None if there is no bound."""

    def perturb(self, index: int, noise: Noise) -> int: ...

    def symbols(self) -> Sequence[int] | range:
        """Return all symbols; refuse if there are too many, or endlessly many."""

    def exponent(self, index: int, symbol: int) -> Fraction | None:
        """Return the part of the logarithm of the probability that depends on the input; None for probability 0."""


def enumerated_loss(
    channel: Channel, symbols: Iterable[int] | None = None, inputs: Sequence[int] | None = None
) -> Fraction | None:
    """Return the largest loss over symbols and inputs, by default all of them; None if there is no bound."""
    every = range(channel.num_inputs) if inputs is None else inputs
    given = channel.symbols() if symbols is None else symbols
    losses = [spread(channel.exponent(index, symbol) for index in every) for symbol in given]
    return None if None in losses else max((loss for loss in losses if loss is not None), default=Fraction(0))


def spread(exponents: Iterable[Fraction | None]) -> Fraction | None:
    """Return the range of exponents; None if one input can lead to a symbol and another cannot."""
    given = list(exponents)
    possible = [exponent for exponent in given if exponent is not None]
    if not possible:
        return Fraction(0)
    return max(possible) - min(possible) if len(possible) == len(given) else None


class Law(ABC):
    if TYPE_CHECKING:  # fields in some laws, properties in others

        @property
        def num_inputs(self) -> int: ...

        @property
        def num_symbols(self) -> int: ...

    counts_bits: ClassVar[bool] = False  # whether a symbol is a row of bits, one for each input, counted one by one

    @property
    @abstractmethod
    def loss(self) -> Fraction | None: ...

    @property
    def num_counts(self) -> int:
        return self.num_inputs if self.counts_bits else self.num_symbols

    @property
    def payload_bits(self) -> int:
        return (self.num_symbols - 1).bit_length()

    @abstractmethod
    def perturb(self, index: int, noise: Noise) -> int: ...

    @abstractmethod
    def exponent(self, index: int, symbol: int) -> Fraction | None: ...

    @abstractmethod
    def variance(self, share: float, num: float) -> float:
        """Return the variance of the estimated share of one input."""

    def symbols(self) -> range:
        if self.num_inputs * self.num_symbols > MAX_ENUMERATED:
            raise ParameterError("there are too many symbols to list. Use the closed form, loss.")
        return range(self.num_symbols)

    def possible(self, symbol: int) -> bool:
        """Return whether some input can lead to a symbol."""
        return symbol < self.num_symbols

    def read(self, symbol: int) -> list[tuple[int | None, int]]:
        """Split a symbol into its part in clear, or None, and the symbol of the oracle; one pair for each place."""
        return [(None, symbol)]


# Exact chances. Each is weight / (e^x + weight) for a rational weight and a rational x > 0. This is irrational; its
# binary digits come from bounds on e^-x that are as close as necessary.
@lru_cache(maxsize=512)
def chance_digits(weight: int | Fraction, x: Fraction, bits: int) -> tuple[int, int]:
    """Return the first binary digits of ``weight / (exp(x) + weight)`` that are certain, at most ``bits`` of them."""
    width = bits + weight.numerator.bit_length() + 8
    low, high = (weight.numerator * end for end in exp_interval(x, width))
    one = 1 << width
    all_of = weight.denominator << width
    lower = (low << width) // (all_of + low)
    upper = min(ceil_divide(high << width, all_of + high), one - 1)  # the chance is below 1
    # The whole part of chance * 2^width is between lower and upper, so the digits that these two share are right.
    certain = width - (lower ^ upper).bit_length()
    return lower >> max(width - bits, width - certain), min(certain, bits)


def draw_chance(weight: int | Fraction, x: Fraction, noise: Noise) -> bool:
    word = num_bits = 0
    bits = 64
    while True:
        digits, certain = chance_digits(weight, x, bits)
        if certain > num_bits:
            word, num_bits = word << certain - num_bits | noise.bits(certain - num_bits), certain
            if word != digits:
                return word < digits
        bits *= 2


def draw_bits(num: int, x: Fraction, noise: Noise) -> int:
    """Return ``num`` independent bits, each 1 with probability ``1 / (exp(x) + 1)``, as one number."""
    # Each bit compares its own uniform number with the chance, one binary digit at a time. The first digit that differs
    # decides, so each digit decides about half of the bits that are left.
    undecided, ones, num_used, precision = (1 << num) - 1, 0, 0, 64
    while True:
        digits, certain = chance_digits(1, x, precision)
        for place in range(certain - 1 - num_used, -1, -1):
            coins = noise.bits(num)
            if digits >> place & 1:
                ones |= undecided & ~coins
                undecided &= coins
            else:
                undecided &= ~coins
            if not undecided:
                return ones
        num_used, precision = max(certain, num_used), 2 * precision


def odds_exceed(epsilon: Fraction, limit: Fraction) -> bool:
    """Return whether exp(epsilon) exceeds a positive limit, by integers alone, so that device and platform agree."""
    bits = 64 + limit.numerator.bit_length()
    while True:  # exp(epsilon) is irrational, so never equal to the limit
        low, high = exp_interval(epsilon, bits)
        border = (limit.denominator << bits) // limit.numerator  # exp(-epsilon) < 1/limit, times 2^bits
        if high <= border or low > border:
            return high <= border
        bits *= 2


@lru_cache(maxsize=512)
def best_blocks(epsilon: Fraction, most: int) -> int:
    """Return the best number of blocks of a Hadamard response: a power of two, at most ``most``."""
    # With inputs spread evenly, B blocks have a variance of (e^epsilon + 2B - 1)^2 / (B (e^epsilon - 1)^2). Twice as
    # many have less exactly if e^epsilon > 1 + sqrt(8) B; 17/6 stands for the root.
    blocks = 1
    while 2 * blocks <= most and odds_exceed(epsilon, 1 + Fraction(17 * blocks, 6)):
        blocks *= 2
    return blocks


@lru_cache(maxsize=512)
def best_size(epsilon: Fraction, num_inputs: int) -> int:
    """Return the size of subsets with the least variance: the number nearest to num_inputs / (exp(epsilon) + 1)."""
    low, high = 1, num_inputs
    while low < high:  # the least size for which num_inputs < (size + 1/2) (exp(epsilon) + 1)
        size = (low + high) // 2
        limit = Fraction(2 * num_inputs, 2 * size + 1) - 1
        low, high = (low, size) if limit <= 1 or odds_exceed(epsilon, limit) else (size + 1, high)
    return low


def _next_prime(start: int) -> int:
    """Return the smallest prime of at least ``start``."""
    number = max(start, 2)
    while any(number % divisor == 0 for divisor in range(2, math.isqrt(number) + 1)):
        number += 1
    return number


@lru_cache(maxsize=512)
def best_geometry(epsilon: Fraction, num_inputs: int) -> tuple[int, int]:
    """Return the prime and the dimension of a projective space for some inputs, with the least variance."""
    # The variance is least near exp(epsilon) + 1 elements of the field, and almost the same for half or twice as many.
    # So the candidates are the primes around it, in the least dimension with enough points, and for each dimension the
    # smallest prime that has enough, in case the others have too many points to count.
    below, above = 1, num_inputs  # exp(epsilon), rounded down, but at most the number of inputs
    while below < above:
        middle = (below + above + 1) // 2
        below, above = (middle, above) if odds_exceed(epsilon, Fraction(middle)) else (below, middle - 1)
    primes = {_next_prime(below + 2)}
    primes.add(next(prime for prime in range(below + 1, 1, -1) if _next_prime(prime) == prime))
    sizes = []
    for prime in primes:
        dimension = 2
        while _num_points(prime, dimension) < num_inputs:
            dimension += 1
        sizes.append((prime, dimension))
    for dimension in range(3, num_inputs.bit_length() + 2):
        prime = 2
        while _num_points(prime, dimension) < num_inputs:
            prime = _next_prime(max(prime + 1, int(num_inputs ** (1 / (dimension - 1))) - 2))
        sizes.append((prime, dimension))
    ratio = Fraction(exp_interval(epsilon, 256)[0], 1 << 256)

    def variance(size: tuple[int, int]) -> tuple[bool, Fraction | int, int]:
        points = _num_points(*size)
        if points > MAX_POINTS:
            return True, points, 0
        chances = design_chances(*_evenness(*size), ratio)
        return False, variance_of_pair(*chances, Fraction(1, num_inputs)), points

    return min(sizes, key=variance)


def _num_points(prime: int, dimension: int) -> int:
    return int((prime**dimension - 1) // (prime - 1))  # int: powers of whole numbers have no type of their own


def _evenness(prime: int, dimension: int) -> tuple[Fraction, Fraction]:
    """Return the rarity and the overlap of hyperplanes; see :class:`Design`."""
    on_plane = _num_points(prime, dimension - 1)
    return Fraction(prime ** (dimension - 1), on_plane), Fraction(_num_points(prime, dimension - 2), on_plane)


def design_chances(rarity: Fraction, overlap: Fraction, ratio: Number) -> tuple[Number, Number]:
    p = rarity.denominator / (rarity.denominator + rarity.numerator * ratio)
    both = overlap.numerator + (overlap.denominator - overlap.numerator) * ratio
    return p, p * both / overlap.denominator


def variance_of_pair(p: Number, q: Number, share: Number) -> Number:
    return (share * p * (1 - p) + (1 - share) * q * (1 - q)) / (p - q) ** 2


def check_epsilon(epsilon: Fraction) -> Fraction:
    if not MIN_EPSILON <= positive(epsilon, "epsilon") <= MAX_EPSILON:
        raise ParameterError(
            f"epsilon of a report of a place or path must be between 0.000001 and {MAX_EPSILON}. "
            f"Got {shown_number(epsilon)}. Try 1."
        )
    return epsilon


@dataclass(frozen=True, kw_only=True)
class _Oracle(Law):
    num_inputs: int
    epsilon: Fraction
    name: ClassVar[str]
    max_inputs: ClassVar[int] = MAX_INPUTS
    loss_factor: ClassVar[int] = 1  # the loss of a report, over the stated epsilon
    ratio_share: ClassVar[Fraction] = Fraction(1)  # share of epsilon in the odds of one symbol, or of one bit

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if not 2 <= integer(self.num_inputs, "the number of inputs") <= self.max_inputs:
            raise ParameterError(
                f"{self.name} takes 2 to {self.max_inputs} inputs. Got {self.num_inputs}. "
                "Choose another method or fewer levels."
            )

    @property
    def loss(self) -> Fraction:
        return self.loss_factor * self.epsilon

    @property
    def ratio_epsilon(self) -> Fraction:
        return self.ratio_share * self.epsilon

    @property
    def ratio(self) -> float:
        return math.exp(-float(self.ratio_epsilon))  # for predicted errors only

    @property
    def num_symbols(self) -> int:
        return self.num_inputs

    @property
    def p(self) -> float:
        return self.chances(self.ratio)[0]

    @property
    def q(self) -> float:
        """Chance that a symbol supports another input (Hadamard response: one of another block)."""
        return self.chances(self.ratio)[1]

    @property
    def offset(self) -> float:
        """What is subtracted from the mean score of an input; see :meth:`score`."""
        return self.q

    @property
    def scale(self) -> float:
        """Factor that turns the mean score less the offset into an unbiased estimate of the share of an input."""
        return 1 / (self.p - self.q)

    @abstractmethod
    def chances(self, ratio: Number) -> tuple[Number, Number]:
        """Return p and q for a ratio ``exp(-ratio_epsilon)``, in the arithmetic of the ratio."""

    @abstractmethod
    def score(self, symbol: int, index: int) -> int:
        """Return 1 if a symbol supports an input; the estimate of its share is scale * (mean score - offset)."""

    def exponent(self, index: int, symbol: int) -> Fraction | None:
        return self.loss if self.score(symbol, index) == 1 else Fraction(0)

    def variance(self, share: float, num: float) -> float:
        return self.variance_of_one(share, self.ratio) / num

    def variance_of_one(self, share: Number, ratio: Number) -> Number:
        return variance_of_pair(*self.chances(ratio), share)


class Design(_Oracle):
    """A law whose symbols support inputs evenly: each input by as many symbols, and any two together by as many."""

    # A symbol that supports the input has odds exp(epsilon) to 1 against one that does not.

    @property
    @abstractmethod
    def rarity(self) -> Fraction:
        """Symbols that do not support an input, over those that do."""

    @property
    @abstractmethod
    def overlap(self) -> Fraction:
        """Share of the symbols that support an input which support a given other one as well."""

    @property
    @abstractmethod
    def num_supporting(self) -> int:
        """Number of symbols that support an input."""

    def chances(self, ratio: Number) -> tuple[Number, Number]:
        return design_chances(self.rarity, self.overlap, ratio)

    def draws_outside(self, noise: Noise) -> bool:
        """Decide at random that the symbol shall not support its input."""
        return draw_chance(self.rarity, self.epsilon, noise)


class RandomisedResponse(Design):
    name: ClassVar[str] = "randomised-response"
    overlap: ClassVar[Fraction] = Fraction(0)
    num_supporting: ClassVar[int] = 1

    @property
    def rarity(self) -> Fraction:
        return Fraction(self.num_inputs - 1)

    def perturb(self, index: int, noise: Noise) -> int:
        if self.draws_outside(noise):
            other = noise.below(self.num_inputs - 1)
            return other + (other >= index)
        return index

    def score(self, symbol: int, index: int) -> int:
        return int(symbol == index)


class _Unary(_Oracle):
    """A symbol is a number of k bits, bit j for input j; before the noise, only the input's own bit is 1."""

    max_inputs: ClassVar[int] = MAX_UNARY_INPUTS
    counts_bits: ClassVar[bool] = True

    @property
    def num_symbols(self) -> int:
        return 1 << self.num_inputs

    @property
    def payload_bits(self) -> int:
        return self.num_inputs

    def score(self, symbol: int, index: int) -> int:
        return symbol >> index & 1


class OptimisedUnary(_Unary):
    """Unary encoding with the least variance: the own bit is a fair coin, others are 1 with odds 1 to exp(epsilon)."""

    name: ClassVar[str] = "optimised-unary"

    def perturb(self, index: int, noise: Noise) -> int:
        own = 1 << index
        return draw_bits(self.num_inputs, self.epsilon, noise) & ~own | noise.bits(1) << index

    def chances(self, ratio: Number) -> tuple[Number, Number]:
        return 1 / (ratio / ratio + 1), ratio / (1 + ratio)


class SymmetricUnary(_Unary):
    """Flip each bit with odds 1 to exp(epsilon / 2): two inputs differ in two bits, so the loss is epsilon."""

    name: ClassVar[str] = "symmetric-unary"
    ratio_share: ClassVar[Fraction] = Fraction(1, 2)

    def perturb(self, index: int, noise: Noise) -> int:
        return draw_bits(self.num_inputs, self.ratio_epsilon, noise) ^ 1 << index

    def chances(self, ratio: Number) -> tuple[Number, Number]:
        return 1 / (1 + ratio), ratio / (1 + ratio)


class PublishedUnary(SymmetricUnary):
    """L-RR (Yao et al. 2024, Algorithm 3): its proof (eq. 26) compares one bit, but two differ: it loses 2 epsilon."""

    name: ClassVar[str] = "published-unary"
    loss_factor: ClassVar[int] = 2
    ratio_share: ClassVar[Fraction] = Fraction(1)


class SubsetSelection(_Unary, Design):
    """Report a set of inputs of a fixed size, the own one among them with the odds of epsilon: the least variance."""

    name: ClassVar[str] = "subset-selection"

    @property
    def size(self) -> int:
        """Number of inputs in every set; any other symbol is impossible."""
        return best_size(self.epsilon, self.num_inputs)

    @property
    def rarity(self) -> Fraction:
        return Fraction(self.num_inputs - self.size, self.size)

    @property
    def overlap(self) -> Fraction:
        return Fraction(self.size - 1, self.num_inputs - 1)

    @property
    def num_supporting(self) -> int:
        return math.comb(self.num_inputs - 1, self.size - 1)

    def possible(self, symbol: int) -> bool:
        return symbol < self.num_symbols and symbol.bit_count() == self.size

    def exponent(self, index: int, symbol: int) -> Fraction | None:
        return super().exponent(index, symbol) if self.possible(symbol) else None

    def perturb(self, index: int, noise: Noise) -> int:
        outside = self.draws_outside(noise)
        others = 0  # a uniform set of the others, as bits (Floyd's algorithm)
        for last in range(self.num_inputs - self.size - outside, self.num_inputs - 1):
            other = noise.below(last + 1)
            others |= 1 << (last if others >> other & 1 else other)
        below = others & (1 << index) - 1
        return (others ^ below) << 1 | below | (not outside) << index


class HadamardResponse(_Oracle):
    """Report one column of a Hadamard matrix: a few bits, however many inputs."""

    # There are B blocks of b columns, both powers of two; symbol block * b + column. Input i belongs to block i % B (so
    # that neighbouring cells are in different blocks) and owns row 1 + i // B of the matrix of order b. The b/2 columns
    # of its block in which that row has a 1 have odds exp(epsilon) to 1 against each other symbol.

    name: ClassVar[str] = "hadamard"
    offset: ClassVar[float] = 0.0  # an entry has mean 0 for any other input

    @cached_property
    def num_blocks(self) -> int:
        return best_blocks(self.epsilon, 2 * self.num_inputs)

    @cached_property
    def num_columns(self) -> int:
        """Columns b of a block: the smallest power of two with a row for each input besides the first row."""
        return 1 << ceil_divide(self.num_inputs, self.num_blocks).bit_length()

    @property
    def num_symbols(self) -> int:
        return self.num_blocks * self.num_columns

    def perturb(self, index: int, noise: Noise) -> int:
        blocks, columns = self.num_blocks, self.num_columns
        row, block = divmod(index, blocks)
        row += 1
        column = noise.bits(columns.bit_length() - 1)
        # All 2B half blocks have the same number of columns: choose the own one or another, then a column of it.
        half = 1 + noise.below(2 * blocks - 1) if draw_chance(2 * blocks - 1, self.epsilon, noise) else 0
        if (column & row).bit_count() & 1 != half & 1:
            column ^= row & -row  # maps the two halves of a block to each other, one to one
        return (block + (half >> 1)) % blocks * columns + column

    def score(self, symbol: int, index: int) -> int:
        """Return the matrix entry of the input's row, 1 or -1, and 0 in another block."""
        row, block = divmod(index, self.num_blocks)
        of_block, column = divmod(symbol, self.num_columns)
        if of_block != block:
            return 0
        return -1 if (column & (row + 1)).bit_count() & 1 else 1

    def chances(self, ratio: Number) -> tuple[Number, Number]:
        """Return p, and q for an input of another block; one of the same block is supported with (p + q)/2."""
        p = 1 / (1 + (2 * self.num_blocks - 1) * ratio)
        return p, ratio * p

    def variance_of_one(self, share: Number, ratio: Number) -> Number:
        """Return ``num`` times the variance if all other inputs are equally likely, for an input of a largest block."""
        others = ceil_divide(self.num_inputs, self.num_blocks) - 1
        return self.block_variance(share, share + (1 - share) * others / (self.num_inputs - 1), ratio)

    def block_variance(self, share: Number, block_share: Number, ratio: Number) -> Number:
        p, q = self.chances(ratio)
        # An entry is 1 or -1 in the own block, which occurs with p + q for an input of it and 2q for any other; less
        # the square of its mean, p - q for the input itself. With 1 - p = (2B - 1) q there is no difference of nearly
        # equal terms.
        own = p * (2 * self.num_blocks - 1) * q + q * (1 - q) + 2 * p * q
        square = (block_share - share) * (p + q) + share * own + (1 - block_share) * 2 * q
        return square / (p - q) ** 2


class ProjectiveResponse(Design):
    """Report a point of a finite projective space: a few bits, and nearly the least variance, for any many inputs."""

    # Inputs and symbols are points: vectors over the field of q elements, of which all multiples are one point. A
    # symbol supports the inputs to which it is orthogonal: a hyperplane. Symbol y < q^(t-1) is the point (1, digits of
    # y), the others are (0, point y - q^(t-1) of one dimension less). Input i is (i mod q, point i // q of one
    # dimension less), the very last one (1, 0, ..., 0): so the supports of all inputs come from sums along lines.

    name: ClassVar[str] = "projective"

    @property
    def geometry(self) -> tuple[int, int]:
        """The prime q and the dimension t."""
        return best_geometry(self.epsilon, self.num_inputs)

    @property
    def num_symbols(self) -> int:
        return _num_points(*self.geometry)

    @property
    def num_supporting(self) -> int:
        prime, dimension = self.geometry
        return _num_points(prime, dimension - 1)

    @property
    def rarity(self) -> Fraction:
        return _evenness(*self.geometry)[0]

    @property
    def overlap(self) -> Fraction:
        return _evenness(*self.geometry)[1]

    def point(self, number: int, dimension: int) -> list[int]:
        prime, zeros = self.geometry[0], 0
        while number >= (size := prime ** (dimension - zeros - 1)):
            number, zeros = number - size, zeros + 1
        digits = [number // prime**place % prime for place in range(dimension - zeros - 2, -1, -1)]
        return [0] * zeros + [1] + digits

    def input_point(self, index: int) -> list[int]:
        prime, dimension = self.geometry
        if index == prime * self.num_supporting:
            return [1] + [0] * (dimension - 1)
        direction, first = divmod(index, prime)
        return [first, *self.point(direction, dimension - 1)]

    def score(self, symbol: int, index: int) -> int:
        pairs = zip(self.input_point(index), self.point(symbol, self.geometry[1]), strict=True)
        return int(sum(one * other for one, other in pairs) % self.geometry[0] == 0)

    def perturb(self, index: int, noise: Noise) -> int:
        prime, dimension = self.geometry
        own = self.input_point(index)
        pivot = own.index(1, 1) if any(own[1:]) else 0  # a coordinate in which the own point has a 1
        # Every point on the hyperplane has just one representative with these other coordinates, up to a factor; every
        # point off it has just one whose product with the own point is 1.
        if outside := self.draws_outside(noise):
            number = noise.below(prime ** (dimension - 1))
            vector = [number // prime**place % prime for place in range(dimension - 1)]
        else:
            vector = self.point(noise.below(self.num_supporting), dimension - 1)
        vector.insert(pivot, 0)
        vector[pivot] = (outside - sum(one * other for one, other in zip(own, vector, strict=True))) % prime
        zeros = next(place for place, coordinate in enumerate(vector) if coordinate)
        factor, symbol = pow(vector[zeros], -1, prime), 0
        for coordinate in vector[zeros + 1 :]:
            symbol = symbol * prime + coordinate * factor % prime
        return symbol + sum(int(prime ** (dimension - 1 - place)) for place in range(zeros))


Oracle = RandomisedResponse | SymmetricUnary | OptimisedUnary | SubsetSelection | HadamardResponse | ProjectiveResponse

ORACLES: Mapping[str, type[Oracle]] = {
    kind.name: kind
    for kind in (
        *(RandomisedResponse, SymmetricUnary, OptimisedUnary),
        *(HadamardResponse, SubsetSelection, ProjectiveResponse),
    )
}


def _variance(oracle: Oracle, share: Fraction) -> Fraction:
    """Return the variance of one report as a fraction: device and platform must compare the same numbers."""
    return oracle.variance_of_one(share, Fraction(exp_interval(oracle.ratio_epsilon, 256)[0], 1 << 256))


@lru_cache(maxsize=256)
def best_oracle(num_inputs: int, epsilon: Fraction) -> Oracle:
    """Choose the oracle with the smallest report among those within 3 % of the least variance at the mean share."""
    kinds: tuple[type[Oracle], ...] = (RandomisedResponse, HadamardResponse, ProjectiveResponse)
    kinds += (SubsetSelection,) if num_inputs <= MAX_REPORT_BITS else ()
    oracles = [kind(num_inputs=num_inputs, epsilon=epsilon) for kind in kinds]
    pairs = [(_variance(oracle, Fraction(1, num_inputs)), oracle) for oracle in oracles]
    bound = NEARLY_AS_GOOD * min(variance for variance, _ in pairs)
    return min((pair for pair in pairs if pair[0] <= bound), key=lambda pair: (pair[1].payload_bits, pair[0]))[1]


@lru_cache(maxsize=256)
def first_oracle(num_inputs: int, epsilon: Fraction) -> Oracle:
    """Choose as version 0.1.0 did, because its tasks name no law: the smallest report within 10 % at a share of 0."""
    unary_fits = num_inputs <= MAX_REPORT_BITS
    kinds: tuple[type[Oracle], ...] = (RandomisedResponse, HadamardResponse, *((OptimisedUnary,) if unary_fits else ()))
    oracles: list[Oracle] = [kind(num_inputs=num_inputs, epsilon=epsilon) for kind in kinds]
    pairs = [(_variance(oracle, Fraction(0)), oracle) for oracle in oracles]
    bound = Fraction(11, 10) * min(variance for variance, _ in pairs)
    if unary_fits:  # none may be worse than symmetric unary encoding
        bound = min(bound, _variance(SymmetricUnary(num_inputs=num_inputs, epsilon=epsilon), Fraction(0)))
    return min((pair for pair in pairs if pair[0] <= bound), key=lambda pair: (pair[1].payload_bits, pair[0]))[1]


# Methods that choose an oracle. "auto" is what a policy or task of version 0.1.0 means, also if it names no method;
# what Dunnage writes today says "best".
CHOICES = {"auto": first_oracle, "best": best_oracle}


def find_oracle(method: str, num_inputs: int, epsilon: Fraction) -> Oracle:
    if method in CHOICES:
        return CHOICES[method](num_inputs, epsilon)
    return ORACLES[method](num_inputs=num_inputs, epsilon=epsilon)


@dataclass(frozen=True, kw_only=True)
class InClear(Law):
    """A channel that shows a group (an area) in clear, and reports the place inside it through an oracle."""

    # Input group * group_size + inner; the last input, outside or missing, is the oracle's last input in group 0.
    # Symbol group * oracle.num_symbols + symbol of the oracle.

    oracle: Oracle  # the law of the place inside its group
    num_groups: int
    num_filled: int = 0  # how many groups of equal size the vehicles fill, for predicted errors; 0 for all

    @property
    def group_size(self) -> int:
        return self.oracle.num_inputs - 1

    @property
    def num_inputs(self) -> int:
        return self.num_groups * self.group_size + 1

    @property
    def num_symbols(self) -> int:
        return self.num_groups * self.oracle.num_symbols

    @property
    def loss(self) -> Fraction | None:
        """The largest loss of a symbol: no bound, because it shows the group, unless there is only one group."""
        return None if self.num_groups > 1 else self.oracle.loss

    @property
    def loss_within(self) -> Fraction:
        return self.oracle.loss

    def split(self, index: int) -> tuple[int, int]:
        if index == self.num_inputs - 1:
            return 0, self.group_size
        return divmod(index, self.group_size)

    def possible(self, symbol: int) -> bool:
        group, of_oracle = divmod(symbol, self.oracle.num_symbols)
        return group < self.num_groups and self.oracle.possible(of_oracle)

    def read(self, symbol: int) -> list[tuple[int | None, int]]:
        return [divmod(symbol, self.oracle.num_symbols)]

    def exponent(self, index: int, symbol: int) -> Fraction | None:
        group, inner = self.split(index)
        of_group, of_oracle = divmod(symbol, self.oracle.num_symbols)
        return self.oracle.exponent(inner, of_oracle) if of_group == group else None

    def perturb(self, index: int, noise: Noise) -> int:
        group, inner = self.split(index)
        return group * self.oracle.num_symbols + self.oracle.perturb(inner, noise)

    def variance(self, share: float, num: float) -> float:
        """Return the variance of the estimated share of one input if all filled groups have the same size."""
        filled = self.num_filled or self.num_groups
        return self.oracle.variance(min(share * filled, 1.0), num / filled) / filled**2


@lru_cache(maxsize=64)
def best_disk(columns: int, pitch: tuple[Fraction, Fraction], epsilon: Fraction) -> tuple[tuple[int, int], ...]:
    """Return how far a disk reaches: for each row from its middle, the largest column; the most informative disk."""
    # A report says most about an even map if log M - log Z + epsilon D e^epsilon / Z is largest, for D cells in a disk,
    # M cells in any disk and Z = D e^epsilon + M - D (Li et al. 2020 choose the window of a square wave like this).
    # Decimals of 30 digits are the same on every machine.
    context, bits = Context(prec=30), 128
    low, high = exp_interval(epsilon, bits)
    odds = context.divide(Decimal(2 << bits), Decimal(low + high))
    loss = context.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))
    width, height = pitch
    norms: dict[Fraction, list[tuple[int, int]]] = {}
    for across, along in itertools.product(range(columns), repeat=2):
        norms.setdefault((across * width) ** 2 + (along * height) ** 2, []).append((across, along))
    inside, chosen, best = list[tuple[int, int]](), 0, Decimal("-Infinity")
    size = right = top = 0
    for norm in sorted(norms):
        inside += norms[norm]
        size += sum((1 + (across > 0)) * (1 + (along > 0)) for across, along in norms[norm])
        right, top = max(right, *(a for a, _ in norms[norm])), max(top, *(a for _, a in norms[norm]))
        every = Decimal(columns**2 + (columns - 1) * 2 * (right + top) + size - 1)
        total = context.add(context.multiply(Decimal(size), context.subtract(odds, Decimal(1))), every)
        gain = context.divide(context.multiply(context.multiply(loss, odds), Decimal(size)), total)
        value = context.add(context.subtract(every.ln(context), total.ln(context)), gain)
        if value > best:
            best, chosen = value, len(inside)
    reach: dict[int, int] = {}
    for across, along in inside[:chosen]:
        reach[along] = max(across, reach.get(along, 0))
    return tuple(sorted(reach.items()))


@dataclass(frozen=True, kw_only=True)
class Disk(Law):
    """Report a cell near the true one with the odds of epsilon against any other: full epsilon between all places."""

    # A report is a cell of the grid or of a margin around it, so that the disk of cells around every cell is complete;
    # cells in no disk are no reports. All D cells in the disk of the true cell have odds exp(epsilon) to 1 against the
    # others. "Outside or missing" has one more symbol, which weighs as much as D cells: so all inputs have the same
    # sum. Symbols count cells row by row from the south, then from the west. After the Disk Area Mechanism (2024).

    name: ClassVar[str] = "disk"
    max_cells: ClassVar[int] = 1 << 12
    grid: Grid
    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if self.grid.num_cells > self.max_cells:
            raise ParameterError(
                f"disk takes grids of at most {self.max_cells:,} cells. Got {self.grid.num_cells:,}. Use fewer levels."
            )

    @property
    def num_inputs(self) -> int:
        return self.grid.num_cells + 1

    @property
    def num_symbols(self) -> int:
        return self.starts[-1] + 1

    @property
    def loss(self) -> Fraction:
        return self.epsilon

    @cached_property
    def reach(self) -> dict[int, int]:
        """The largest column of the disk in each row from its middle, by the row."""
        half = dict(best_disk(self.grid.num_columns, self.grid.pitch_km, self.epsilon))
        return {sign * row: column for row, column in half.items() for sign in (1, -1)}

    @cached_property
    def size(self) -> int:
        """Number of cells in a disk."""
        return sum(2 * column + 1 for column in self.reach.values())

    @cached_property
    def margins(self) -> tuple[int, ...]:
        """Columns of the margin on either side of each row of reports, from the south."""
        top, last = max(self.reach), self.grid.num_columns - 1
        beyond = (max(-row, row - last, 0) for row in range(-top, last + top + 1))
        return tuple(self.reach[row] for row in beyond)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first symbol of each row of reports; the last one means outside or missing."""
        return tuple(itertools.accumulate((self.grid.num_columns + 2 * m for m in self.margins), initial=0))

    def disk(self, index: int) -> list[range]:
        """Return the symbols that support an input, as ranges in order."""
        if index == self.grid.outside:
            return [range(self.starts[-1], self.starts[-1] + 1)]
        (column, row), top = self.grid.column_row(index), max(self.reach)
        rows = ((row + top + at, self.reach[at]) for at in range(-top, top + 1))
        middles = ((self.starts[at] + self.margins[at] + column, wide) for at, wide in rows)
        return [range(middle - wide, middle + wide + 1) for middle, wide in middles]

    def perturb(self, index: int, noise: Noise) -> int:
        runs, every = self.disk(index), self.starts[-1]
        if draw_chance(Fraction(every, self.size), self.epsilon, noise):  # not in the disk of the input
            other = noise.below(every)
            if index == self.grid.outside:
                return other
            if other < self.size:  # the symbol of "outside or missing" weighs as much as a disk
                return every
            other -= self.size
            for run in runs:
                other += len(run) if other >= run.start else 0
            return other
        if index == self.grid.outside:
            return every
        at = noise.below(self.size)
        for run in runs:
            if at < len(run):
                return run[at]
            at -= len(run)
        raise AssertionError("a disk has as many cells as its rows")

    def exponent(self, index: int, symbol: int) -> Fraction:
        return self.epsilon if any(symbol in run for run in self.disk(index)) else Fraction(0)

    def variance(self, share: float, num: float) -> float:
        """Return the variance of the share of the places in one disk, if places outside it are far away."""
        p = 1 / (1 + self.starts[-1] / self.size * math.exp(-float(self.epsilon)))
        q = p * math.exp(-float(self.epsilon))
        return variance_of_pair(p, q, share) / num


DIRECTIONS = (
    *((1, 0, 1), (99, 20, 101), (12, 5, 13), (91, 60, 109), (21, 20, 29)),
    *((20, 21, 29), (60, 91, 109), (5, 12, 13), (20, 99, 101), (0, 1, 1)),
)  # points ``(a/c, b/c)`` on the circle, exactly, in the first quadrant; with their mirror images 36 in all


@dataclass(frozen=True, kw_only=True)
class Planar(Law):
    """Report a cell near the true one: two at distance d km lead to it with probabilities within exp(epsilon * d)."""

    # Inputs are the cells of the grid, and one past the last for a missing place, which counts as the middle of the
    # box. The norm of a displacement is its largest scalar product with one of the 36 directions: nearly its length.
    # After Andrés et al., Geo-indistinguishability, CCS 2013, whose law is continuous (rounding it keeps no such
    # promise), and Yao et al. 2024, Definition 8, where the epsilon is missing.

    name: ClassVar[str] = "planar"
    grid: Grid
    epsilon: Fraction  # loss per kilometre between two cells

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))

    @property
    def num_inputs(self) -> int:
        return self.grid.num_cells + 1

    @property
    def num_symbols(self) -> int:
        return self.grid.num_cells

    @property
    def loss(self) -> Fraction:
        """The largest loss of a report, between any two places of the box, however far apart."""
        last = self.grid.num_columns - 1
        return -self.displacement_exponent(last, last)

    @property
    def centre(self) -> int:
        return self.grid.cell_at(*(self.grid.num_columns // 2,) * 2)

    def index(self, longitude: object, latitude: object) -> int:
        """Return the input for a place; one outside the box is moved to its border, a missing one has its own input."""
        west, south, east, north = self.grid.sides
        across, along = read_number(longitude), read_number(latitude)
        if across is None or along is None:
            return self.grid.outside
        return self.grid.cell(min(max(across, west), east), min(max(along, south), north))

    def symbols(self) -> range:
        """Refuse: before it is moved onto the border of the box, a report may be any point of an endless lattice."""
        raise ParameterError(
            "the planar law uses an endless lattice, so its symbols cannot be listed. Use its closed form, loss."
        )

    def exponent(self, index: int, symbol: int) -> Fraction:
        column, row = self._at(index)
        to_column, to_row = self.grid.column_row(symbol)
        return self.displacement_exponent(to_column - column, to_row - row)

    def displacement_exponent(self, columns: int, rows: int) -> Fraction:
        """Return the exponent of a displacement by columns and rows, of either sign: minus epsilon times its norm."""
        slopes, denominator = self._slopes
        columns, rows = abs(columns), abs(rows)
        return Fraction(-max(across * columns + along * rows for across, along in slopes), denominator)

    def perturb(self, index: int, noise: Noise) -> int:
        last = self.grid.num_columns - 1
        column, row = self._at(index)
        columns, rows = self.displacement(noise)
        return self.grid.cell_at(min(max(column + columns, 0), last), min(max(row + rows, 0), last))

    def displacement(self, noise: Noise) -> tuple[int, int]:
        """Sample columns and rows to move by, with probability proportional to the exponential of their exponent."""
        across, along = self.rates
        while True:
            columns, rows = noise.discrete_laplace(1 / across), noise.discrete_laplace(1 / along)
            # The norm is the maximum of scalar products, and the proposal uses one of them: never below the law's.
            proposed = across * abs(columns) + along * abs(rows)
            if noise.bernoulli_exp(-self.displacement_exponent(columns, rows) - proposed):
                return columns, rows

    def variance(self, share: float, num: float) -> float:
        """Return the variance of the share of reports that name a cell: of the blurred map, not of the true one."""
        return share * (1 - share) / num

    @cached_property
    def _slopes(self) -> tuple[list[tuple[int, int]], int]:
        """Epsilon times the scalar product of each direction with a column and with a row, over one denominator."""
        width, height = (self.epsilon * side for side in self.grid.pitch_km)
        slopes = [(width * a / c, height * b / c) for a, b, c in DIRECTIONS]
        denominator = math.lcm(*(slope.denominator for pair in slopes for slope in pair))
        return [(int(across * denominator), int(along * denominator)) for across, along in slopes], denominator

    @cached_property
    def rates(self) -> tuple[Fraction, Fraction]:
        """Rates of the proposals for columns and rows: of a direction near the diagonal, which is rejected least."""
        a, b, c = DIRECTIONS[4]
        width, height = self.grid.pitch_km
        return self.epsilon * width * a / c, self.epsilon * height * b / c

    def _at(self, index: int) -> tuple[int, int]:
        return self.grid.column_row(self.centre if index == self.grid.outside else index)


@dataclass(frozen=True, kw_only=True)
class NoiseVerdict:
    is_noise: bool  # whether a share would be off by more than :data:`NOISE_FACTOR` mean shares (standard deviation)
    predicted_sd: float  # predicted standard deviation of a share
    limit: float  # the largest standard deviation that is not noise
    levels: int | None  # the deepest level that would be enough; None if no level is
    epsilon: Fraction | None  # the smallest epsilon (in halves, up to 5) that would be enough; None if none is
    message: str  # all of this in a sentence


@dataclass(frozen=True, kw_only=True)
class OnGrid(Tiered[Law], ABC):
    name: ClassVar[str]
    subject: ClassVar[str] = "grid"
    grid: Grid
    method: str = "auto"
    area_in_clear: bool = False
    as_published: bool = False

    def __post_init__(self) -> None:
        self._set_levels()
        for tier in self.levels:
            check_epsilon(tier.epsilon)
        for name in ("area_in_clear", "as_published"):
            if not isinstance(getattr(self, name), bool):  # a text "false" would count as true
                got = shown(getattr(self, name))
                raise ParameterError(f"{name} must be true or false. Got {got}. Write it without quotes.")
        self._check_method()
        object.__setattr__(self, "_laws", {tier.name: self.law(self.grid, tier.epsilon) for tier in self.levels})

    @abstractmethod
    def _check_method(self) -> None: ...

    @abstractmethod
    def law(self, grid: Grid, epsilon: Fraction) -> Law: ...

    @abstractmethod
    def num_shares(self, grid: Grid) -> int:
        """Return the number of different shares on a grid if nothing is in clear."""

    @abstractmethod
    def index(self, value: object) -> int: ...

    def oracle(self, tier: Tier | str) -> Oracle | Disk | Planar:
        """Return the law of the symbols in a payload: on the places of one area if that is in clear."""
        law = self.channel(tier)
        return law.oracle if isinstance(law, InClear) else law  # type: ignore[return-value]

    def perturb(self, value: object, *, tier: Tier | str, noise: Noise) -> bytes:
        """Make a report of a place ``(longitude, latitude)``, or a path; there is always one, whatever the value."""
        law = self.channel(tier)
        return law.perturb(self.index(value), noise).to_bytes(ceil_divide(law.payload_bits, 8), "little")

    def read(self, payload: bytes, *, tier: Tier | str) -> list[tuple[int | None, int]]:
        """Read a payload as pairs, one for each place: what is in clear, or None, and a symbol of :meth:`oracle`."""
        law = self.channel(tier)
        size = ceil_divide(law.payload_bits, 8)
        if not isinstance(payload, bytes | bytearray | memoryview) or len(payload) != size:
            raise ReportError(f"the payload of this report must be {size} bytes long. Leave the report out.")
        symbol = int.from_bytes(payload, "little")
        if not law.possible(symbol):
            raise ReportError("no report of this task can have this payload. Leave it out.")
        return law.read(symbol)

    def predicted_sd(self, tier: Tier | str, num_devices: int) -> float:
        """Return the standard deviation of an estimated share if all cells, paths and areas are equally likely."""
        share = 1 / self.num_shares(self.grid)
        return math.sqrt(self.channel(tier).variance(share, integer(num_devices, "num_devices", least=1)))

    def noise_verdict(self, num_devices: int, present: float = 1.0) -> NoiseVerdict:
        """Judge whether a fleet with tiers of equal size is large enough for shares, and what would be enough."""
        # `present` is the share of reports with a place in the box: the others say nothing about places.
        epsilons, grid = [tier.epsilon for tier in self.levels], self.grid
        num = integer(num_devices, "num_devices", least=1)

        def judged(on: Grid, at: list[Fraction]) -> tuple[float, float, bool]:
            """Return the standard deviation of a mean share, the largest that is not noise, and whether it is noise."""
            laws, size = [self.law(on, epsilon) for epsilon in at], self.num_shares(on)
            sd = math.sqrt(1 / sum(1 / law.variance(1 / size, num / len(laws)) for law in laws))
            limit = present * float(NOISE_FACTOR / size)
            # A planar report is about 2 / epsilon away from the true place (as if cells were small and the box
            # endless): beyond half the shorter side of the box, a map says nothing.
            half = float(min(on.pitch_km)) * on.num_columns / 2
            blurred = any(isinstance(law, Planar) and float(2 / law.epsilon) > half for law in laws)
            return sd, limit, sd > limit or blurred

        sd, limit, noise = judged(grid, epsilons)
        coarser = (
            replace(grid, levels=at, area_levels=min(grid.area_levels, at)) for at in range(grid.levels - 1, 1, -1)
        )
        depth = next((on.levels for on in coarser if not judged(on, epsilons)[2]), None)
        candidates = (Fraction(half, 2) for half in range(1, 11))  # beyond 5 a report hides little: no advice
        more = next((e for e in candidates if e > max(epsilons) and not judged(grid, [e])[2]), None)
        advice = [f"level {depth}"] if depth is not None else []
        advice += [f"epsilon >= {shown_number(more)}"] if more is not None else []
        text = f"use {' or '.join(advice) or 'more reports'}" if noise else f"a share is off by about {sd:.2g}"
        stated = f"{num_devices:,} reports at epsilon {', '.join(shown_number(e) for e in epsilons)}: {text}"
        return NoiseVerdict(is_noise=noise, predicted_sd=sd, limit=limit, levels=depth, epsilon=more, message=stated)

    def describe(self) -> dict[str, object]:
        return {
            "name": self.name,
            "grid": self.grid.to_dict(),
            "tiers": {tier.name: plain(tier.epsilon) for tier in self.levels},
            "method": self.method,
            "laws": {tier.name: self.oracle(tier).name for tier in self.levels},
            "area_in_clear": self.area_in_clear or self.as_published,
            "as_published": self.as_published,
        }

    def promised(self, *, areas: str, what: str, notes: tuple[str, ...], warnings: tuple[str, ...] = ()) -> Promise:
        epsilon = max(tier.epsilon for tier in self.levels)
        law, in_clear = self.law(self.grid, epsilon), ""
        bound: LocalDP | WithinCluster
        if law.loss is not None:
            bound = LocalDP(epsilon=law.loss, protects="report", neighbours=Neighbours.REPLACE_ONE)
        else:
            within: Fraction = law.loss_within  # type: ignore[attr-defined]
            bound = WithinCluster(epsilon=within, protects="report", neighbours=Neighbours.REPLACE_ONE, clusters=areas)
            in_clear = f"which of {areas} a report comes from; "
            in_clear += "one of a place outside the box, or missing, comes from the first"
        stated = Promise(
            guarantee=bound,
            basis=Basis.PROVED,
            mechanism=self.describe(),
            assumptions=REPORT_ASSUMPTIONS,
            in_clear=(in_clear,) if in_clear else (),
            warnings=warnings,
            notes=notes,
        )
        if not self.as_published:
            return stated
        loss = shown_number(bound.epsilon)
        why = f"every bit is turned over with odds of its own: two {what} differ by epsilon {loss}"
        return replace(
            stated,
            guarantee=LocalDP(epsilon=epsilon, protects="report", neighbours=Neighbours.REPLACE_ONE),
            basis=Basis.CLAIMED,
            claim=f"epsilon {shown_number(epsilon)} between any two {what}",
            holds=bound,
            why=why + (", and areas are shown as they are: across areas there is no bound" if in_clear else ""),
        )


@dataclass(frozen=True, kw_only=True)
class LocalLocation(OnGrid):
    """Report which cell of a public grid a vehicle is in, or that it is outside or its place is missing.

    Parameters
    ----------
    grid
        The public grid.
    epsilon, tiers
        Privacy loss of one report: one value for all, or public tiers. With ``planar``: per kilometre.
    method
        ``best`` (see :func:`best_oracle`; ``auto`` is the choice of version 0.1.0), ``randomised-response``,
        ``symmetric-unary``, ``optimised-unary``, ``subset-selection``, ``hadamard``, ``projective``: for the share of
        each cell. ``disk``: for roughly where vehicles are, with the same promise; fewer are put far away, while shares
        of single cells are worse. ``planar``: a nearby cell, for a promise that weakens with distance.
    area_in_clear
        Show the area of the grid, and hide only the place inside it.
    as_published
        The published e-LT_LDP: area in clear, and each bit of the place inside it flipped at epsilon.

    Guarantee
    ---------
    Epsilon-local differential privacy of one report, proved. With ``area_in_clear`` only between places of one area;
    ``planar``: epsilon per kilometre; ``as_published``: claimed, and really twice epsilon, within the area only.

    Utility
    -------
    Unbiased shares; :meth:`predicted_sd` predicts their error before anything is collected.

    References
    ----------
    Yao et al. 2024, Algorithms 3 and 4, and the oracles cited in this module.

    Examples
    --------
    >>> grid = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=5)
    >>> LocalLocation(grid=grid, epsilon="0.5").noise_verdict(9858).message
    '9,858 reports at epsilon 0.5: use level 3 or epsilon >= 2'
    """

    name: ClassVar[str] = "local-location"
    num_steps: ClassVar[tuple[int, int]] = (1, 1)
    parameters: ClassVar[tuple[str, ...]] = ("method", "as_published", "area_in_clear")
    methods: ClassVar[tuple[str, ...]] = (*CHOICES, *ORACLES, Disk.name, Planar.name)

    def _check_method(self) -> None:
        if not isinstance(self.grid, Grid):
            raise ParameterError(f"{self.name} needs a grid, Grid(box=..., levels=...).")
        if self.grid.levels < 2:
            raise ParameterError("a map needs a grid of at least 2 levels. Got 1, which is a single cell.")
        if self.method not in self.methods:
            raise ParameterError(f"method must be one of {', '.join(self.methods)}. Got {str(self.method)[:40]!r}.")
        if self.as_published and self.method not in CHOICES:
            raise ParameterError("as_published has its own method. Leave method out.")
        if self.area_in_clear and self.method in (Disk.name, Planar.name):
            raise ParameterError(f"{self.method} hides the area by its own law. Leave area_in_clear out.")

    def law(self, grid: Grid, epsilon: Fraction) -> Law:
        if self.as_published:
            return InClear(
                oracle=PublishedUnary(num_inputs=grid.num_inner + 1, epsilon=epsilon), num_groups=grid.num_areas
            )
        if self.method in (Disk.name, Planar.name):
            return (Disk if self.method == Disk.name else Planar)(grid=grid, epsilon=epsilon)
        if self.area_in_clear:
            return InClear(oracle=find_oracle(self.method, grid.num_inner + 1, epsilon), num_groups=grid.num_areas)
        return find_oracle(self.method, grid.num_cells + 1, epsilon)

    def num_shares(self, grid: Grid) -> int:
        return grid.num_cells + 1

    def index(self, value: object) -> int:
        """Return the input for a place ``(longitude, latitude)``; never raises an error.

        Any other value, and a place that is missing or outside the box, is the last input. With ``planar`` a place
        outside the box is moved to its border.
        """
        longitude, latitude = read_place(value)
        law = self._laws[self.levels[0].name]
        return law.index(longitude, latitude) if isinstance(law, Planar) else self.grid.cell(longitude, latitude)

    def promise(self) -> Promise:
        """State what one report guarantees, for the tier with the largest loss. This needs no data."""
        if self.method != Planar.name:
            notes = (ORACLE_NOTE, AREA_NOTE) if self.area_in_clear or self.as_published else (ORACLE_NOTE,)
            notes = (DISK_NOTE,) if self.method == Disk.name else notes
            return self.promised(areas=areas_text(self.grid), what="places", notes=notes)
        law = Planar(grid=self.grid, epsilon=max(tier.epsilon for tier in self.levels))
        return Promise(
            guarantee=MetricLocalDP(
                epsilon=law.epsilon, protects="report", neighbours=Neighbours.REPLACE_ONE, distance="1 km"
            ),
            basis=Basis.PROVED,
            mechanism=self.describe(),
            assumptions=REPORT_ASSUMPTIONS,
            warnings=(
                f"between the corners of the box a report gives away epsilon {float(law.loss):.4g}",
                "a place outside the box is moved to its border, a missing one to its middle",
                "distances are those between cells",
            ),
            notes=("local-location.md#the-planar-law",),
        )


def read_place(value: object) -> tuple[object, object]:
    """Split a private value into longitude and latitude; a pair of None if it is not a pair."""
    try:
        longitude, latitude = iter(value)  # type: ignore[call-overload]
    except Exception:  # no private value of any type may stop the report
        return None, None
    return longitude, latitude


def areas_text(grid: Grid) -> str:
    return f"the {grid.num_areas} areas of the first {grid.area_levels} levels of the grid"
