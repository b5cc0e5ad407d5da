# SPDX-License-Identifier: Apache-2.0
"""Numbers between public bounds, their grid, and the decimals that a column of numbers needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.exact import Exact, exact, nearest_float, shown, shown_number
from dunnage.model.domains.labels import Domain

MAX_GRID = 2**52  # Largest integer on a grid: below it, neighbouring grid points are different doubles


@dataclass(frozen=True)
class PointGrid:
    """Equidistant public points: point i is the double nearest to (first + i * step) / denominator."""

    first: int  # first, step, denominator: integers below 2**52, so that neighbouring points are different doubles
    step: int
    denominator: int

    @classmethod
    def of(cls, lower: Fraction, step: Fraction, *others: Fraction) -> PointGrid:
        """Put all numbers over one denominator; ``others`` are numbers that it must be able to write too."""
        denominator = math.lcm(lower.denominator, step.denominator, *(other.denominator for other in others))
        return cls(int(lower * denominator), int(step * denominator), denominator)

    def is_exact(self, upper: Fraction) -> bool:
        """Tell whether all points up to one are different doubles."""
        return max(abs(self.first), abs(int(upper * self.denominator)), self.denominator) < MAX_GRID

    def points(self, steps: ArrayLike) -> FloatArray:
        """Points at these steps, each the double nearest to its decimal."""
        # All integers are below 2**53, hence exact as doubles, and one division rounds once.
        points = (self.first + np.asarray(steps, dtype=np.int64) * self.step) / self.denominator
        return np.asarray(points, dtype=np.float64)

    def below(self, values: FloatArray, last: int) -> IntArray:
        """Largest step, from 0 to ``last``, whose point is at most the value."""
        guess = np.floor((values - self.first / self.denominator) / (self.step / self.denominator))
        steps = np.clip(guess, 0, last).astype(np.int64)
        # The guess is off by a few steps at most (three roundings of a number below 2**53): compare with
        # the neighbours until none is better.
        while (high := (self.points(steps) > values) & (steps > 0)).any():
            steps = steps - high
        while (low := (self.points(steps + 1) <= values) & (steps < last)).any():
            steps = steps + low
        return steps


@dataclass(frozen=True, kw_only=True)
class Numeric(Domain):
    """Numbers between two public bounds, both included.

    With a ``resolution`` the domain has a public grid of ``num_steps + 1`` points
    ``lower + i * resolution``. A grid point is the double nearest to that decimal, so 0.3 is on a grid
    of 0.1 although ``0.3 / 0.1`` is not whole in floating point.

    Parameters
    ----------
    lower, upper
        Bounds; never read from the data. A float means the decimal it prints as.
    resolution
        Distance of neighbouring grid points; ``upper - lower`` must be a whole number of them.
    unit
        Name of the unit, for people.
    doubling
        Width of the intervals at the first level of a hierarchy, doubled from level to level up to the whole domain;
        see :func:`hierarchy_of`.
    """

    kind: ClassVar[str] = "numeric"
    lower: Fraction
    upper: Fraction
    resolution: Fraction | None = None
    unit: str = ""
    doubling: Fraction | None = None

    if TYPE_CHECKING:  # what may be passed is wider than what is kept

        def __init__(
            self,
            *,
            lower: Exact,
            upper: Exact,
            resolution: Exact | None = None,
            unit: str = "",
            doubling: Exact | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "resolution", "doubling"):
            if name in ("lower", "upper") or getattr(self, name) is not None:
                object.__setattr__(self, name, exact(getattr(self, name), what=name))
        if not isinstance(self.unit, str):
            raise ParameterError(f"unit must be text. Got {shown(self.unit)}. Write it like 'kg'.")
        got = f"Got {shown_number(self.lower)} and {shown_number(self.upper)}."
        if not self.lower < self.upper:
            raise ParameterError(f"lower must be below upper. {got} Swap them or widen the domain.")
        if not 0 < nearest_float(self.upper) - nearest_float(self.lower) < math.inf:
            raise ParameterError(f"The bounds must be different finite doubles. {got} Change the unit.")
        resolution, doubling = self.resolution, self.doubling
        if resolution is not None:
            if resolution <= 0:
                raise ParameterError(f"resolution must be above 0. Got {shown_number(resolution)}.")
            steps = (self.upper - self.lower) / resolution
            if steps.denominator != 1:
                below = self.lower + math.floor(steps) * resolution
                raise ParameterError(
                    "upper - lower must be a whole number of steps of the resolution. "
                    f"Got {shown_number(self.upper - self.lower)} in steps of {shown_number(resolution)}. Move "
                    f"upper to {shown_number(below)} or {shown_number(below + resolution)}, or change resolution."
                )
            if not self._grid.is_exact(self.upper):
                raise ParameterError(
                    f"The grid is too fine for exact arithmetic. Got a resolution of {shown_number(resolution)}. "
                    "Choose a coarser resolution, or bounds with fewer decimals."
                )
        if doubling is not None:
            if doubling <= 0:
                raise ParameterError(f"doubling must be above 0. Got {shown_number(doubling)}.")
            if not self.borders.is_exact(self.upper):
                raise ParameterError(
                    f"The intervals are too narrow for exact arithmetic. Got a doubling of {shown_number(doubling)}. "
                    "Choose a wider first interval, or bounds with fewer decimals."
                )

    @cached_property
    def _grid(self) -> PointGrid:
        if self.resolution is None:
            raise ParameterError("This domain has no grid. Give it a resolution.")
        return PointGrid.of(self.lower, self.resolution)

    @cached_property
    def borders(self) -> PointGrid:
        """Where intervals of the width ``doubling`` begin; the domain's upper end has the same denominator."""
        if self.doubling is None:
            raise ParameterError("A numeric domain needs a first width to have a hierarchy. Add doubling = WIDTH.")
        return PointGrid.of(self.lower, min(self.doubling, self.upper - self.lower), self.upper)

    @property
    def lower_float(self) -> float:
        return float(self.lower)

    @property
    def upper_float(self) -> float:
        return float(self.upper)

    @property
    def span(self) -> float:
        return self.upper_float - self.lower_float

    @property
    def diameter(self) -> float:
        return self.span

    @property
    def num_steps(self) -> int:
        return int((self.upper - self.lower) * self._grid.denominator) // self._grid.step

    def contains(self, values: ArrayLike) -> BoolArray:
        numbers = _floats(values)
        return (numbers >= self.lower_float) & (numbers <= self.upper_float)

    def clamp(self, values: ArrayLike) -> FloatArray:
        """Move values outside to the nearer bound; NaN stays NaN."""
        return np.clip(_floats(values), self.lower_float, self.upper_float)

    def distance(self, a: float, b: float) -> float:
        return abs(float(a) - float(b))

    def generalise(self, values: ArrayLike) -> tuple[float, float]:
        given = _floats(values)
        if given.size == 0 or np.isnan(given).any():
            raise ParameterError("Only one or more numbers can be generalised. Got none, or a NaN.")
        return float(given.min()), float(given.max())

    def width(self, generalised: tuple[float, float]) -> float:
        lower, upper = generalised
        if not lower <= upper:
            raise ParameterError("An interval must be (lower, upper), the lower bound first.")
        return (upper - lower) / self.span

    def grid_values(self, steps: ArrayLike) -> FloatArray:
        return self._grid.points(steps)

    def steps_below(self, values: ArrayLike) -> IntArray:
        """Largest step whose grid point is at most the value; -1 below the domain."""
        given = _floats(values)
        if np.isnan(given).any():
            raise ParameterError("NaN has no place on a grid. Leave such values out first.")
        steps = self._grid.below(self.clamp(given), self.num_steps)
        return np.where(given < self.lower_float, np.int64(-1), steps)

    def steps_above(self, values: ArrayLike) -> IntArray:
        """Smallest step whose grid point is at least the value; ``num_steps + 1`` above the domain."""
        below = self.steps_below(values)
        reached = (below >= 0) & (self.grid_values(below) == _floats(values))
        return np.where(reached, below, below + 1)

    def on_grid(self, values: ArrayLike) -> BoolArray:
        given = _floats(values)
        known = self.contains(given)
        steps = self.steps_below(np.where(known, given, self.lower_float))
        return np.asarray(known & (self.grid_values(steps) == given))


def decimal_scale(values: ArrayLike, largest: int = 9) -> int | None:
    """Find the fewest decimals that write all values exactly."""
    if not 0 <= largest <= 22:
        raise ParameterError(f"largest must be 0 to 22 (10**22 is the last exact double). Got {largest}.")
    numbers = _floats(values)
    if not np.isfinite(numbers).all():
        return None
    few = numbers[:1000]  # most scales fail at once, on a few values
    for decimals in range(largest + 1):
        scale: int = 10**decimals
        if _are_decimals(few, scale) and _are_decimals(numbers, scale):
            return scale
    return None


def _are_decimals(values: FloatArray, scale: int) -> bool:
    with np.errstate(over="ignore"):
        nearest = np.rint(values * scale)
    left = ~_are_quotients(values, nearest, scale)
    for shift in (-1.0, 1.0):  # from 2**51 up the product may be rounded to a neighbour
        left[left] = ~_are_quotients(values[left], nearest[left] + shift, scale)
    return not left.any()


def _are_quotients(values: FloatArray, integers: FloatArray, scale: int) -> BoolArray:
    # Both operands are exact integers, so the quotient is the double nearest to the decimal.
    return np.asarray((integers / scale == values) & (np.abs(integers) < 2.0**53))


def _floats(values: ArrayLike) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(
            "A numeric domain takes numbers. Got values of another type. Convert them first."
        ) from None
