# SPDX-License-Identifier: Apache-2.0
"""Noise on the points of a public grid: its laws, their guarantees, and how much a noisy value still reveals.

A law maps a point 0..last to a point 0..last. Two laws keep epsilon between any two points: the discrete Laplace law,
clamped to the range afterwards, and a bounded law. The bounded law lands in a window around the point with the highest
probability that epsilon allows, and otherwise anywhere, evenly (the discrete form of the piecewise mechanism). An
attribute is cut into one or more cells, consecutive ranges of the grid, each with its law. Everything here is public
except the perturbed values, so planners and attackers may use it too. ``docs/proofs/noisy-values.md`` has the proofs.

Radii, coverages and one-sided bounds are rounded to the safe side: no printed number promises more than holds.

References
----------
Holohan, Antonatos, Braghin, Mac Aonghusa 2017 (intervals of noisy values, eqs. 22-23 of Li et al. 2022); Wang et al.
2019 (piecewise mechanism; here in its exact discrete form).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.exact import Exact, exact, plain, shown, shown_number
from dunnage.model.domains import Numeric, PointGrid
from dunnage.model.guarantees import MOST_EPSILON
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise

_DIGITS = 40
_PRINTED = 10**6


@lru_cache(maxsize=4096)
def exp_bounds(exponent: Fraction) -> tuple[Fraction, Fraction]:
    """Enclose e to a rational exponent between two fractions, to 40 digits."""
    context = Context(prec=_DIGITS)
    near = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    low = near.next_minus(context).exp(context).next_minus(context)
    high = near.next_plus(context).exp(context).next_plus(context)
    return max(Fraction(low), Fraction(0)), Fraction(high)


@dataclass(frozen=True, kw_only=True)
class _Law(ABC):
    """What the laws share: noise on the points 0, ..., last."""

    name: ClassVar[str]
    last: int  # The last point; a range of one point hides nothing
    epsilon: Fraction  # The guarantee between any two points
    confidence: Fraction  # Minimum probability that the interval contains the point: 0 (no interval) to below 1

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= MOST_EPSILON:
            raise ParameterError(
                f"epsilon must be above 0 and at most {MOST_EPSILON}. Got {shown_number(self.epsilon)}."
            )
        if not 0 <= self.confidence < 1:
            raise ParameterError(f"confidence must be at least 0 and below 1. Got {shown_number(self.confidence)}.")

    def perturb(self, points: IntArray, noise: Noise) -> IntArray:
        """Draw a noisy point for each private point; the result may be released."""
        if self.last == 0:
            return np.zeros_like(points)
        return np.clip(self._outcomes(points, noise), 0, self.last)

    @abstractmethod
    def _outcomes(self, points: IntArray, noise: Noise) -> IntArray:
        """Draw an outcome for each point; it may lie outside the range."""

    @abstractmethod
    def log_likelihood(self, seen: npt.ArrayLike, truth: npt.ArrayLike) -> FloatArray:
        """Return the log-probability of seeing a point if another is true; shapes broadcast."""

    @abstractmethod
    def miss(self, reach: int) -> Fraction:
        """Return an upper bound on the probability that a true point is more than ``reach`` above the noisy one."""

    @property
    @abstractmethod
    def radius(self) -> int:
        """How far the interval goes on either side of a noisy point, in points; -1 for no interval."""

    @property
    @abstractmethod
    def coverage(self) -> Fraction:
        """A lower bound on the probability that the interval contains the true point, whatever it is."""

    def reach(self, risk: Fraction) -> int:
        """Return the smallest distance that a true point exceeds above the noisy one with at most this probability."""
        low, high = -1, self.last  # miss(last) is 0, and miss only falls with the reach
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.miss(middle) <= risk else (middle, high)
        return high

    @abstractmethod
    def evidence(self, seen: IntArray) -> FloatArray:
        """Return the probability of seeing each point if all true points are equally likely."""


@dataclass(frozen=True, kw_only=True)
class LaplaceLaw(_Law):
    """Discrete Laplace noise of scale last / epsilon, then clamped to the range."""

    name: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.last > noise_arrays.MOST_SCALE * self.epsilon:
            raise ParameterError(
                f"the noise would be too large: {self.last} grid steps at epsilon {shown_number(self.epsilon)}. "
                "Choose a coarser resolution or a larger epsilon."
            )

    @property
    def scale(self) -> Fraction:
        return Fraction(self.last) / self.epsilon

    def _outcomes(self, points: IntArray, noise: Noise) -> IntArray:
        return points + noise_arrays.discrete_laplace(noise, self.scale, len(points))

    @cached_property
    def _step(self) -> Fraction:
        return self.epsilon / max(self.last, 1)

    @cached_property
    def _one_plus_ratio(self) -> Fraction:
        return 1 + exp_bounds(-self._step)[0]

    def miss(self, reach: int) -> Fraction:
        if reach >= self.last:
            return Fraction(0)
        return exp_bounds(-(reach + 1) * self._step)[1] / self._one_plus_ratio

    @cached_property
    def radius(self) -> int:
        return self.reach((1 - self.confidence) / 2) if self.confidence else -1

    @property
    def coverage(self) -> Fraction:
        return 1 - 2 * self.miss(self.radius) if self.confidence else Fraction(0)

    def log_likelihood(self, seen: npt.ArrayLike, truth: npt.ArrayLike) -> FloatArray:
        seen, truth = np.broadcast_arrays(seen, truth)
        if self.last == 0:
            return np.zeros(seen.shape)
        step = float(self._step)
        # Noise is clamped at both ends, so an end stands for itself and everything beyond.
        inner = math.log(-math.expm1(-step)) * ((seen > 0) & (seen < self.last))
        return np.asarray(inner - step * np.abs(seen - truth) - math.log1p(math.exp(-step)))

    def evidence(self, seen: IntArray) -> FloatArray:
        if self.last == 0:
            return np.ones(len(seen))
        step, num = float(self._step), self.last + 1
        ends = -math.expm1(-step * num) / -math.expm1(-step)
        inner = -np.expm1(-step * (seen + 1.0)) + math.exp(-step) * -np.expm1(-step * (self.last - seen + 0.0))
        within = (seen > 0) & (seen < self.last)
        return np.asarray(np.where(within, inner, ends) / ((1 + math.exp(-step)) * num))


@dataclass(frozen=True, kw_only=True)
class PiecewiseLaw(_Law):
    """Land in a window around the true point with odds of e to the epsilon, otherwise anywhere, evenly."""

    # The window is as narrow as the confidence allows, so that it is the interval; without a confidence its width is
    # the best for a single number. A window may extend beyond the range; points outside are clamped.

    name: ClassVar[str] = "piecewise"

    @cached_property
    def half(self) -> int:
        """Points of the window on either side of the true one."""
        if not self.confidence:
            # Below 1/2 the window is the whole range: a smaller number would only overflow.
            return min(self.last, int(self.last / 2 / max(math.expm1(float(self.epsilon) / 2), 0.25)))
        # (2 half + 1) e^epsilon (1 - c) >= c last
        needed = self.confidence * self.last / (1 - self.confidence) / exp_bounds(self.epsilon)[0]
        return min(self.last, max(0, -((1 - needed) // 2)))

    @property
    def _window(self) -> int:
        return 2 * self.half + 1

    @cached_property
    def _each(self) -> Fraction:
        """An upper bound on the probability of a point outside the window."""
        return 1 / (self._window * exp_bounds(self.epsilon)[0] + self.last)

    def _outcomes(self, points: IntArray, noise: Noise) -> IntArray:
        num = len(points)
        inside = noise_arrays.bernoulli_odds(noise, self._window, self.last, self.epsilon, num)
        near = points - self.half + noise_arrays.below(noise, self._window, num)
        # Outside are the points from -half to last + half without the window: `points` of them below it.
        other = noise_arrays.below(noise, self.last, num)
        far = other - self.half + np.where(other < points, 0, self._window)
        return np.where(inside, near, far)

    def miss(self, reach: int) -> Fraction:
        if reach >= self.last:
            return Fraction(0)
        if reach >= self.half:
            return (self.last - reach + self.half) * self._each
        likely = exp_bounds(self.epsilon)[1] * self._each
        return min(Fraction(1), self.last * self._each + (self.half - reach) * likely)

    @property
    def radius(self) -> int:
        return self.half if self.confidence else -1

    @property
    def coverage(self) -> Fraction:
        if not self.confidence:
            return Fraction(0)
        return Fraction(1) if self.half >= self.last else 1 - self.last * self._each

    def log_likelihood(self, seen: npt.ArrayLike, truth: npt.ArrayLike) -> FloatArray:
        # How many outcomes are seen as a point, and how many of them lie in the window of the true point
        seen, truth = np.broadcast_arrays(seen, truth)
        low = np.where(seen == 0, -self.half, seen)
        high = np.where(seen == self.last, self.last + self.half, seen)
        inside = np.maximum(np.minimum(high, truth + self.half) - np.maximum(low, truth - self.half) + 1, 0)
        outcomes, growth = high - low + 1, math.exp(self.epsilon)
        return np.asarray(np.log((outcomes - inside + inside * growth) / (self._window * growth + self.last)))

    def evidence(self, seen: IntArray) -> FloatArray:
        num, growth, half = self.last + 1, math.exp(self.epsilon), self.half
        inner = np.minimum(seen + half, self.last) - np.maximum(seen - half, 0) + 1
        outcomes, inside = np.ones(len(seen)), inner.astype(np.float64)
        # An end takes half + 1 outcomes; the window of a true point i away has half + 1 - i of them.
        near = min(half, self.last) + 1
        at_end = (seen == 0) | (seen == self.last)
        outcomes[at_end] = half + 1
        inside[at_end] = near * (half + 1) - near * (near - 1) // 2
        if self.last == 0:
            return np.ones(len(seen))
        return np.asarray((outcomes * num - inside + inside * growth) / (self._window * growth + self.last) / num)


Law = LaplaceLaw | PiecewiseLaw
LAWS: Mapping[str, type[LaplaceLaw] | type[PiecewiseLaw]] = {"laplace": LaplaceLaw, "piecewise": PiecewiseLaw}


@dataclass(frozen=True)
class Cell:
    """A range of grid points from the step ``first`` on, with its law of noise."""

    first: int
    law: Law

    @property
    def end(self) -> int:
        return self.first + self.law.last


@dataclass(frozen=True)
class Cells:
    """One noisy attribute: a public grid, cut into consecutive cells."""

    domain: Numeric
    cells: tuple[Cell, ...]

    def __post_init__(self) -> None:
        step = 0
        for cell in self.cells:
            if cell.first != step:
                raise ParameterError("cells must follow one another on the grid, from its first point on.")
            step = cell.end + 1
        if step != self.domain.num_steps + 1:
            raise ParameterError("cells must reach the end of the grid.")

    @property
    def is_noise(self) -> bool:
        """Whether most values are further off than the middle of their range would be: a quarter of it on average."""
        hiding = [cell.law for cell in self.cells if cell.law.last]
        return bool(hiding) and all(2 * law.miss(law.last // 4) >= Fraction(1, 2) for law in hiding)

    @classmethod
    def cut(
        cls, domain: Numeric, borders: Sequence[Fraction], *, law: str, epsilon: Fraction, confidence: Fraction
    ) -> Cells:
        """Cut a domain at borders on its grid; a border is the first point of the cell above it."""
        if domain.resolution is None:
            raise ParameterError("noise needs a public grid. Add a resolution, such as 0.1, to the attribute.")
        starts = [0]
        for border in borders:
            place = (border - domain.lower) / domain.resolution
            if place.denominator != 1 or not starts[-1] < place <= domain.num_steps:
                raise ParameterError(
                    "borders must rise, lie inside the domain and on its grid. "
                    f"Got {shown_number(border)}. Use multiples of the resolution."
                )
            starts.append(int(place))
        kind = LAWS[law]
        ends = [*(start - 1 for start in starts[1:]), domain.num_steps]
        made = (kind(last=b - a, epsilon=epsilon, confidence=confidence) for a, b in zip(starts, ends, strict=True))
        return cls(domain, tuple(Cell(start, one) for start, one in zip(starts, made, strict=True)))

    @classmethod
    def of(cls, domain: Numeric, described: Sequence[Mapping[str, Any]]) -> Cells:
        try:
            first = described[0]
            law, epsilon, confidence = first["law"], first["epsilon"], first["confidence"]
            borders = [exact(item["lower"]) for item in described[1:]]
            return cls.cut(domain, borders, law=law, epsilon=exact(epsilon), confidence=exact(confidence))
        except (KeyError, IndexError, TypeError):
            raise ParameterError(f"cells of noise need law, epsilon and confidence. Got {shown(described)}.") from None

    @cached_property
    def _starts(self) -> IntArray:
        return np.array([cell.first for cell in self.cells], dtype=np.int64)

    @cached_property
    def _halves(self) -> PointGrid:
        """The grid of half steps: grid points and the points halfway between them."""
        resolution = self.domain.resolution
        assert resolution is not None
        return PointGrid.of(self.domain.lower, resolution / 2)

    def steps(self, values: npt.ArrayLike) -> IntArray:
        """Return the nearest grid step of each value of the domain; at a tie the one above."""
        given = np.asarray(values, dtype=np.float64)
        below = self.domain.steps_below(given)
        up = (below < self.domain.num_steps) & (given >= self._halves.points(2 * below + 1))
        return below + up

    def index(self, steps: IntArray) -> IntArray:
        return np.searchsorted(self._starts, steps, side="right") - 1

    def perturb(self, values: npt.ArrayLike, noise: Noise) -> FloatArray:
        """Draw a noisy value for each value. It stays in its cell, so it shows the cell."""
        steps = self.steps(values)
        of_cell = self.index(steps)
        noisy = np.empty_like(steps)
        for number, cell in enumerate(self.cells):
            rows = np.flatnonzero(of_cell == number)
            noisy[rows] = cell.first + cell.law.perturb(steps[rows] - cell.first, noise)
        return self.domain.grid_values(noisy)

    def _ends(self, steps: IntArray, below: IntArray, above: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the ends of intervals around steps, half a step wider, within the cell and the domain."""
        of_cell = self.index(steps)
        first, end = self._starts[of_cell], np.array([cell.end for cell in self.cells])[of_cell]
        # A value off the grid is up to half a step away from its grid point.
        low = 2 * np.maximum(steps - below, first) - 1
        high = 2 * np.minimum(steps + above, end) + 1
        inside = (np.maximum(low, 0), np.minimum(high, 2 * self.domain.num_steps))
        lower, upper = (self.domain.clamp(self._halves.points(steps)) for steps in inside)
        return lower, upper

    def interval(self, values: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the intervals of the stated confidence around noisy values; without one, the values themselves."""
        steps = self.steps(values)
        radius = np.array([cell.law.radius for cell in self.cells], dtype=np.int64)[self.index(steps)]
        lower, upper = self._ends(steps, radius, radius)
        exact_values = self.domain.grid_values(steps)
        return np.where(radius < 0, exact_values, lower), np.where(radius < 0, exact_values, upper)

    def upper(self, values: npt.ArrayLike, risk: Fraction) -> FloatArray:
        """Return bounds that the true values exceed with at most this probability."""
        steps = self.steps(values)
        reach = np.array([cell.law.reach(risk) for cell in self.cells], dtype=np.int64)[self.index(steps)]
        return self._ends(steps, reach, reach)[1]

    def miss(self, values: npt.ArrayLike) -> list[Fraction]:
        """Return for each value an upper bound on the probability that the true one is above its interval."""
        in_cells = np.bincount(self.index(self.steps(values)), minlength=len(self.cells)).tolist()
        misses = [cell.law.miss(cell.law.radius) if cell.law.radius >= 0 else Fraction(1) for cell in self.cells]
        return [miss for miss, times in zip(misses, in_cells, strict=True) for _ in range(times)]

    def describe(self) -> list[dict[str, Any]]:
        resolution, described = self.domain.resolution, []
        assert resolution is not None
        for cell in self.cells:
            law = cell.law
            radius = law.radius * resolution + resolution / 2 if law.radius >= 0 else Fraction(0)
            numbers = {
                "lower": self.domain.lower + cell.first * resolution,
                "upper": self.domain.lower + cell.end * resolution,
                "epsilon": law.epsilon,
                "confidence": law.confidence,
                "radius": radius,
            }
            coverage = math.floor(law.coverage * _PRINTED) / _PRINTED
            exact_numbers = {name: plain(number) for name, number in numbers.items()}
            described.append({**exact_numbers, "law": law.name, "coverage": coverage})
        return described


def cut_text(name: str, domain: Numeric, borders: Sequence[Exact]) -> str:
    """Name the clusters of a column so that equal clusters, and no others, have equal names."""
    numbers = (domain.lower, domain.upper, domain.resolution or Fraction(0))
    lower, upper, step = (f"{shown_number(number)} {domain.unit}".strip() for number in numbers)
    cut = f"cut at {', '.join(shown_number(exact(border)) for border in borders)}" if borders else "not cut"
    return f"{name} from {lower} to {upper} in steps of {step}, {cut}"


# Laws of noise on counts, by name: ``discrete``, ``round``, ``floor``, ``floating`` (see ``kernels.counts.laplace``).


def count_noise_spread(law: str, scale: Fraction) -> float:
    """Return the standard deviation around zero of noise on counts, including a mean of one half."""
    if law == "gaussian":  # its scale is its variance; below 1, whole numbers spread less
        masses = [math.exp(-(k**2) / (2 * float(scale))) for k in range(1, 12)]
        small = math.sqrt(2 * sum(k * k * mass for k, mass in enumerate(masses, 1)) / (1 + 2 * sum(masses)))
        return small if scale < 1 else math.sqrt(scale)
    ratio = math.exp(-1 / scale)
    spreads = {
        "discrete": math.sqrt(2 * ratio) / (1 - ratio),
        "round": math.sqrt(math.sqrt(ratio) * (1 + ratio)) / (1 - ratio),
        "floor": (1 + ratio) / (math.sqrt(2) * (1 - ratio)),
        "floating": math.sqrt(2) * float(scale),
    }
    return spreads[law]


def count_noise_above(law: str, scale: Fraction, threshold: int) -> float:
    ratio = math.exp(-1 / scale)
    chances = {
        "discrete": ratio**threshold / (1 + ratio),
        "round": math.exp((0.5 - threshold) / scale) / 2,
        "floor": ratio**threshold / 2,
        "floating": math.exp(-threshold / scale) / 2,
    }
    return chances[law]


def count_noise_surplus(law: str, scale: Fraction, threshold: int) -> float:
    """Return how many trips noise adds on average to a cell without trips if noise below a threshold is dropped."""
    # A cell with trips gains less: what it loses below the threshold counts against it.
    ratio = math.exp(-1 / scale)
    return count_noise_above(law, scale, threshold) * (threshold + ratio / (1 - ratio))
