# SPDX-License-Identifier: Apache-2.0
"""Channel: what every local mechanism draws its reports from, and the one check of what a report gives away.

A channel takes one of finitely many public inputs to a symbol, at random. Every channel here is *exponential*: the
probability of a symbol is ``base(symbol) * exp(exponent(input, symbol))`` with rational exponents and a base that does
not depend on the input. So the loss between two inputs is a difference of rational numbers, and the worst case over all
inputs and symbols is exact, without a floating-point number on the way. Only the standard library is used: this is part
of what a device carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Protocol

from dunnage.noise import Noise

MOST_ENUMERATED = 1 << 20
"""Most pairs of an input and a symbol that :func:`enumerated_loss` looks at."""


class Channel(Protocol):
    """A randomiser with exact probabilities, from inputs ``0 .. num_inputs - 1`` to symbols: whole numbers."""

    @property
    def num_inputs(self) -> int:
        """Number of inputs; all are public."""

    @property
    def loss(self) -> Fraction | None:
        """What one symbol gives away at worst, in closed form; None if there is no bound."""

    def perturb(self, index: int, noise: Noise) -> int:
        """Draw a symbol for an input."""

    def symbols(self) -> Sequence[int] | range:
        """All symbols there are; refuses where there are too many, or endlessly many."""

    def exponent(self, index: int, symbol: int) -> Fraction | None:
        """Return the part of the logarithm of the probability that depends on the input; None for probability 0."""


def enumerated_loss(channel: Channel) -> Fraction | None:
    """Find what a symbol gives away at worst by looking at every symbol and every input."""
    worst = Fraction(0)
    for symbol in channel.symbols():
        exponents = [channel.exponent(index, symbol) for index in range(channel.num_inputs)]
        found = spread(exponents)
        if found is None:
            return None
        worst = max(worst, found)
    return worst


def spread(exponents: Iterable[Fraction | None]) -> Fraction | None:
    """Return how far exponents lie apart; None if one input can have led to a symbol and another cannot."""
    given = list(exponents)
    possible = [exponent for exponent in given if exponent is not None]
    if not possible:
        return Fraction(0)
    return max(possible) - min(possible) if len(possible) == len(given) else None
