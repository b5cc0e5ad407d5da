# SPDX-License-Identifier: Apache-2.0
"""Places: which cell of a public grid a vehicle is in, reported so that no report gives away more than epsilon.

:class:`LocalLocation` reports a cell, or that it is missing, through a channel. A channel maps one of finitely many
public inputs to a random symbol. Every channel here is *exponential*: the probability of a symbol is
``base(symbol) * exp(exponent(input, symbol))`` with rational exponents and a base that does not depend on the input. So
the loss between two inputs is a difference of rational numbers, and the worst case over all inputs and symbols is
exact, without floating-point numbers.

Frequency oracles report one of k inputs so that the share of each can be estimated. They differ in the variance of the
estimate and in the size of a report; :func:`choose_oracle` picks one. :class:`Planar` reports a cell near the true one:
geo-indistinguishability as an exact law, by a norm that is at most 0.5 % shorter than the Euclidean distance.

``docs/proofs/local-location.md`` has the proofs and a table of variances. The oracles are those of Wang, Blocki, Li,
Jha, USENIX Security 2017 (randomised response, unary encodings), Acharya, Sun, Zhang, AISTATS 2019 (Hadamard response)
and Yao et al. 2024, Algorithm 3 (L-RR).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
NEARLY_AS_GOOD = Fraction(11, 10)  # times the least variance: such an oracle is as good, if its report is smaller
ORACLE_NOTE, AREA_NOTE = "local-location.md#frequency-oracles", "local-location.md#area-in-clear"
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

    def read(self, symbol: int) -> list[tuple[int | None, int]]:
        """Split a symbol into its part in clear, or None, and the symbol of the oracle; one pair for each place."""
        return [(None, symbol)]


# Exact chances. Each is weight / (e^x + weight) for a whole number and a rational x > 0. This is irrational; its binary
# digits come from bounds on e^-x that are as close as necessary.
@lru_cache(maxsize=512)
def chance_digits(weight: int, x: Fraction, bits: int) -> tuple[int, int]:
    """Return the first binary digits of ``weight / (exp(x) + weight)`` that are certain, at most ``bits`` of them."""
    width = bits + weight.bit_length() + 8
    low, high = exp_interval(x, width)
    one = 1 << width
    lower = (weight * low << width) // (one + weight * low)
    upper = min(ceil_divide(weight * high << width, one + weight * high), one - 1)  # the chance is below 1
    # The whole part of chance * 2^width is between lower and upper, so the digits that these two share are right.
    certain = width - (lower ^ upper).bit_length()
    return lower >> max(width - bits, width - certain), min(certain, bits)


def draw_chance(weight: int, x: Fraction, noise: Noise) -> bool:
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


@lru_cache(maxsize=512)
def best_blocks(epsilon: Fraction, most: int) -> int:
    """Return the best number of blocks of a Hadamard response: a power of two, at most ``most``, by integers alone."""

    # With inputs spread evenly, B blocks have a variance of (e^epsilon + 2B - 1)^2 / (B (e^epsilon - 1)^2). Twice as
    # many have less exactly if e^epsilon > 1 + sqrt(8) B; 17/6 stands for the root, so that device and platform agree.
    def odds_exceed(limit: Fraction) -> bool:
        bits = 64 + limit.numerator.bit_length()
        while True:  # exp(epsilon) is irrational, so never equal to the limit
            low, high = exp_interval(epsilon, bits)
            border = (limit.denominator << bits) // limit.numerator  # exp(-epsilon) < 1/limit, times 2^bits
            if high <= border or low > border:
                return high <= border
            bits *= 2

    blocks = 1
    while 2 * blocks <= most and odds_exceed(1 + Fraction(17 * blocks, 6)):
        blocks *= 2
    return blocks


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

    def exponent(self, index: int, symbol: int) -> Fraction:
        return self.loss if self.score(symbol, index) == 1 else Fraction(0)

    def variance(self, share: float, num: float) -> float:
        return self.variance_of_one(share, self.ratio) / num

    def variance_of_one(self, share: Number, ratio: Number) -> Number:
        p, q = self.chances(ratio)
        return (share * p * (1 - p) + (1 - share) * q * (1 - q)) / (p - q) ** 2


class RandomisedResponse(_Oracle):
    name: ClassVar[str] = "randomised-response"

    def perturb(self, index: int, noise: Noise) -> int:
        if draw_chance(self.num_inputs - 1, self.epsilon, noise):
            other = noise.below(self.num_inputs - 1)
            return other + (other >= index)
        return index

    def score(self, symbol: int, index: int) -> int:
        return int(symbol == index)

    def chances(self, ratio: Number) -> tuple[Number, Number]:
        p = 1 / (1 + (self.num_inputs - 1) * ratio)
        return p, ratio * p


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


Oracle = RandomisedResponse | SymmetricUnary | OptimisedUnary | HadamardResponse

ORACLES: Mapping[str, type[Oracle]] = {
    kind.name: kind for kind in (RandomisedResponse, SymmetricUnary, OptimisedUnary, HadamardResponse)
}


@lru_cache(maxsize=256)
def choose_oracle(num_inputs: int, epsilon: Fraction) -> Oracle:
    """Choose the oracle with the smallest report among those within 10 % of the least variance at a share of 0."""

    # None may be worse than symmetric unary encoding if that fits. So the choice is randomised response up to about 3.4
    # exp(epsilon) + 2 inputs, then unary encoding as long as its k bits fit, then Hadamard response.
    # Device and platform must make the same choice, so variances are compared as fractions, not as floats.
    def variance_at_zero(oracle: Oracle) -> Fraction:
        return oracle.variance_of_one(Fraction(0), Fraction(exp_interval(oracle.ratio_epsilon, 256)[0], 1 << 256))

    unary_fits = num_inputs <= MAX_REPORT_BITS
    kinds: tuple[type[Oracle], ...] = (RandomisedResponse, HadamardResponse, *((OptimisedUnary,) if unary_fits else ()))
    oracles: list[Oracle] = [kind(num_inputs=num_inputs, epsilon=epsilon) for kind in kinds]
    pairs = [(variance_at_zero(oracle), oracle) for oracle in oracles]
    bound = NEARLY_AS_GOOD * min(variance for variance, _ in pairs)
    if unary_fits:
        bound = min(bound, variance_at_zero(SymmetricUnary(num_inputs=num_inputs, epsilon=epsilon)))
    return min((pair for pair in pairs if pair[0] <= bound), key=lambda pair: (pair[1].payload_bits, pair[0]))[1]


def find_oracle(method: str, num_inputs: int, epsilon: Fraction) -> Oracle:
    if method == "auto":
        return choose_oracle(num_inputs, epsilon)
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

    def oracle(self, tier: Tier | str) -> Oracle | Planar:
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
        if symbol >= law.num_symbols:
            raise ReportError("no report of this task can have this payload: its number is too large. Leave it out.")
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
        ``auto`` (see :func:`choose_oracle`), ``randomised-response``, ``symmetric-unary``, ``optimised-unary``,
        ``hadamard``; or ``planar``: a nearby cell, for a promise that weakens with distance.
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
    methods: ClassVar[tuple[str, ...]] = ("auto", *ORACLES, Planar.name)

    def _check_method(self) -> None:
        if not isinstance(self.grid, Grid):
            raise ParameterError(f"{self.name} needs a grid, Grid(box=..., levels=...).")
        if self.grid.levels < 2:
            raise ParameterError("a map needs a grid of at least 2 levels. Got 1, which is a single cell.")
        if self.method not in self.methods:
            raise ParameterError(f"method must be one of {', '.join(self.methods)}. Got {str(self.method)[:40]!r}.")
        if self.as_published and self.method != "auto":
            raise ParameterError("as_published has its own method. Leave method out.")
        if self.area_in_clear and self.method == Planar.name:
            raise ParameterError("planar hides the area by its own law. Leave area_in_clear out.")

    def law(self, grid: Grid, epsilon: Fraction) -> Law:
        if self.as_published:
            return InClear(
                oracle=PublishedUnary(num_inputs=grid.num_inner + 1, epsilon=epsilon), num_groups=grid.num_areas
            )
        if self.method == Planar.name:
            return Planar(grid=grid, epsilon=epsilon)
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
