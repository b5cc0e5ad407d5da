# SPDX-License-Identifier: Apache-2.0
"""Laws of noise on counts: whole numbers, drawn exactly; and the floating-point law of the papers.

With ``r = exp(-1 / scale)``, a law of whole numbers changes its probabilities by a factor of at most ``1 / r`` when a
count changes by one. Beyond zero all of them have geometric tails, so what exceeds a threshold has the same law again.

``discrete``
    Proportional to ``r ** abs(x)``.
``round``, ``floor``
    What a Laplace number without a grid would be, rounded to the nearest whole number, or down. They are drawn
    without ever making that number: ``round`` is 0 with probability ``1 - exp(-1 / (2 scale))``, ``floor`` has
    ``P(x) = P(-1 - x)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dunnage import noise_arrays
from dunnage.arrays import FloatArray, IntArray
from dunnage.noise import Noise

FLOATING_BITS = 52
"""Bits of a word that a floating-point number is made of: with one more its middle would be rounded."""


class CountLaw(Protocol):
    """A law of noise on counts."""

    name: ClassVar[str]

    @property
    def scale(self) -> Fraction:
        """How far the noise reaches: one over epsilon, for counts that change by one."""

    def draw(self, noise: Noise, size: int) -> IntArray | FloatArray:
        """Draw noise for ``size`` counts."""

    @property
    def spread(self) -> float:
        """Standard deviation."""

    def above(self, threshold: int) -> float:
        """Return the chance of noise of at least a threshold, which is 1 or more."""


@dataclass(frozen=True)
class DiscreteLaplace:
    """Whole numbers with probabilities proportional to ``exp(-abs(x) / scale)``."""

    name: ClassVar[str] = "discrete"
    scale: Fraction

    def draw(self, noise: Noise, size: int) -> IntArray:
        """Draw noise for ``size`` counts."""
        return noise_arrays.discrete_laplace(noise, self.scale, size)

    @property
    def spread(self) -> float:
        """Standard deviation."""
        ratio = _ratio(self.scale)
        return math.sqrt(2 * ratio) / (1 - ratio)

    def above(self, threshold: int) -> float:
        """Return the chance of noise of at least a threshold, which is 1 or more."""
        return _ratio(self.scale) ** threshold / (1 + _ratio(self.scale))


@dataclass(frozen=True)
class RoundedLaplace:
    """A Laplace number rounded to the nearest whole number."""

    name: ClassVar[str] = "round"
    scale: Fraction

    def draw(self, noise: Noise, size: int) -> IntArray:
        """Draw noise for ``size`` counts."""
        values = np.zeros(size, dtype=np.int64)
        moved = np.flatnonzero(noise_arrays.bernoulli_exp(noise, 1 / (2 * self.scale), size))
        sizes = 1 + noise_arrays.geometric(noise, self.scale, len(moved))
        values[moved] = np.where(_coins(noise, len(moved)), -sizes, sizes)
        return values

    @property
    def spread(self) -> float:
        """Standard deviation."""
        ratio = _ratio(self.scale)
        return math.sqrt(math.sqrt(ratio) * (1 + ratio)) / (1 - ratio)

    def above(self, threshold: int) -> float:
        """Return the chance of noise of at least a threshold, which is 1 or more."""
        return math.exp((0.5 - threshold) / self.scale) / 2


@dataclass(frozen=True)
class FlooredLaplace:
    """A Laplace number rounded down; on average one half less."""

    name: ClassVar[str] = "floor"
    scale: Fraction

    def draw(self, noise: Noise, size: int) -> IntArray:
        """Draw noise for ``size`` counts."""
        sizes = noise_arrays.geometric(noise, self.scale, size)
        return np.where(_coins(noise, size), -1 - sizes, sizes)

    @property
    def spread(self) -> float:
        """Standard deviation around zero, its mean of one half included."""
        ratio = _ratio(self.scale)
        return (1 + ratio) / (math.sqrt(2) * (1 - ratio))

    def above(self, threshold: int) -> float:
        """Return the chance of noise of at least a threshold, which is 1 or more."""
        return _ratio(self.scale) ** threshold / 2


@dataclass(frozen=True)
class FloatingLaplace:
    """Laplace numbers in floating point, as published: their last digits tell what they were added to."""

    name: ClassVar[str] = "floating"
    scale: Fraction

    def draw(self, noise: Noise, size: int) -> FloatArray:
        """Draw noise for ``size`` counts."""
        return floating_noise(noise_arrays.below(noise, 1 << FLOATING_BITS, size), self.scale)

    @property
    def spread(self) -> float:
        """Standard deviation."""
        return math.sqrt(2) * float(self.scale)

    def above(self, threshold: int) -> float:
        """Return the chance of noise of at least a threshold, which is 1 or more."""
        return math.exp(-threshold / self.scale) / 2


def floating_noise(words: IntArray, scale: Fraction) -> FloatArray:
    """Return the floating-point Laplace number that each word of 52 bits is made into."""
    uniform = (words + 0.5) / 2.0**FLOATING_BITS - 0.5
    return np.asarray(-float(scale) * np.sign(uniform) * np.log1p(-2 * np.abs(uniform)))


def surplus(law: CountLaw, threshold: int = 1) -> float:
    """Return what a cell without trips is given on average, if noise below the threshold is dropped."""
    ratio = _ratio(law.scale)
    return law.above(threshold) * (threshold + ratio / (1 - ratio))


def _ratio(scale: Fraction) -> float:
    return math.exp(-1 / scale)


def _coins(noise: Noise, size: int) -> NDArray[np.bool_]:
    return np.equal(noise_arrays.below(noise, 2, size), 1)
