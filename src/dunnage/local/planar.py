# SPDX-License-Identifier: Apache-2.0
"""Planar: report a cell near the true one; the nearer two places are, the less a report tells them apart.

Geo-indistinguishability as an exact law: the true cell is moved on the lattice of cells, endless in all directions, by
a displacement ``v`` that has probability proportional to ``exp(-epsilon * rho(v))``, and what falls outside the box is
put on its border. ``rho`` is a norm with rational values that is never longer than the Euclidean distance and at most
0.5 % shorter, so every draw is made with integers alone. ``docs/proofs/local-location.md`` has the proofs.

Kilometres are those of :attr:`dunnage.local.task.Grid.pitch_km`, which never overstates a distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dunnage.errors import ParameterError
from dunnage.local.oracles import check_epsilon
from dunnage.local.subjects import Grid, read_number
from dunnage.noise import Noise

DIRECTIONS = (
    *((1, 0, 1), (99, 20, 101), (12, 5, 13), (91, 60, 109), (21, 20, 29)),
    *((20, 21, 29), (60, 91, 109), (5, 12, 13), (20, 99, 101), (0, 1, 1)),
)
"""Points ``(a/c, b/c)`` on the circle, exactly, in the first quadrant; with their mirror images 36 in all."""

_STEEP = DIRECTIONS[4]  # the proposal: near the diagonal, so that it is refused least


def norm(across: Fraction, along: Fraction) -> Fraction:
    """Return the longest scalar product of a displacement with one of the 36 directions: nearly its length.

    Examples
    --------
    >>> norm(Fraction(-12), Fraction(5)), norm(Fraction(0), Fraction(2))
    (Fraction(13, 1), Fraction(2, 1))
    """
    across, along = abs(across), abs(along)
    return max((a * across + b * along) / c for a, b, c in DIRECTIONS)


@dataclass(frozen=True, kw_only=True)
class Planar:
    """The law of a report that is a cell near the true one.

    Inputs are the cells of the grid, and one past the last for a missing place, which counts as the middle of the box.

    Guarantee
    ---------
    Two cells at distance d km lead to any report with probabilities within a factor of exp(epsilon * d).

    References
    ----------
    Andrés, Bordenabe, Chatzikokolakis, Palamidessi, "Geo-indistinguishability", CCS 2013 (their law is continuous, and
    rounding it keeps no such promise); Yao et al. 2024, Definition 8, where the epsilon is missing.
    """

    name: ClassVar[str] = "planar"
    grid: Grid  # The public grid
    epsilon: Fraction  # What is kept per kilometre between two cells

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))

    @property
    def num_inputs(self) -> int:
        """Number of cells, and one more for a missing place."""
        return self.grid.num_cells + 1

    @property
    def num_symbols(self) -> int:
        """Number of cells."""
        return self.grid.num_cells

    @property
    def payload_bits(self) -> int:
        """Bits of one report."""
        return (self.num_symbols - 1).bit_length()

    @property
    def loss(self) -> Fraction:
        """What a report gives away at worst between any two places of the box, however far apart."""
        last = self.grid.num_columns - 1
        return -self.displacement_exponent(last, last)

    @property
    def centre(self) -> int:
        """The cell that a missing place counts as."""
        middle = self.grid.num_columns // 2
        return self.grid.cell_at(middle, middle)

    @property
    def mean_distance_km(self) -> float:
        """About how far a report lies from the true place (as if cells were small and the box endless)."""
        return float(2 / self.epsilon)

    def index(self, longitude: object, latitude: object) -> int:
        """Return the input for a place: one outside the box is moved to its border, a missing one is its own input."""
        # The grid's sides stand for the nearest doubles where places are concerned.
        west, south, east, north = (Fraction(float(side)) for side in self.grid.box)
        across, along = read_number(longitude), read_number(latitude)
        if across is None or along is None:
            return self.grid.outside
        return self.grid.cell(min(max(across, west), east), min(max(along, south), north))

    def symbols(self) -> range:
        """Refuse: before it is put on the border of the box, a report may be any point of an endless lattice."""
        raise ParameterError(
            "the planar law draws from an endless lattice: its symbols cannot be listed. Use its closed form, loss."
        )

    def exponent(self, index: int, symbol: int) -> Fraction:
        """Return the exponent of drawing the lattice point of a cell, before anything is put on the border."""
        column, row = self._at(index)
        to_column, to_row = self.grid.column_row(symbol)
        return self.displacement_exponent(to_column - column, to_row - row)

    def displacement_exponent(self, columns: int, rows: int) -> Fraction:
        """Return the exponent of a displacement by columns and rows, of either sign: minus epsilon times its norm."""
        slopes, denominator = self._slopes
        columns, rows = abs(columns), abs(rows)
        return Fraction(-max(across * columns + along * rows for across, along in slopes), denominator)

    def perturb(self, index: int, noise: Noise) -> int:
        """Draw a cell: move the true one by a random displacement, and back onto the border if it left the box."""
        last = self.grid.num_columns - 1
        column, row = self._at(index)
        columns, rows = self.displacement(noise)
        return self.grid.cell_at(min(max(column + columns, 0), last), min(max(row + rows, 0), last))

    def displacement(self, noise: Noise) -> tuple[int, int]:
        """Draw columns and rows to move by, with probability proportional to the exponential of their exponent."""
        across, along = self._rates
        while True:
            columns, rows = noise.discrete_laplace(1 / across), noise.discrete_laplace(1 / along)
            # The proposal's exponent is one of the scalar products whose maximum the norm is: never below the law's.
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
    def _rates(self) -> tuple[Fraction, Fraction]:
        a, b, c = _STEEP
        width, height = self.grid.pitch_km
        return self.epsilon * width * a / c, self.epsilon * height * b / c

    def _at(self, index: int) -> tuple[int, int]:
        return self.grid.column_row(self.centre if index == self.grid.outside else index)
