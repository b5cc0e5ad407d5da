# SPDX-License-Identifier: Apache-2.0
"""Membership: what somebody who knows all trips but one can tell about that one. Pure numbers, by exact likelihoods.

The attacker compares two worlds: one with the trip (or the rider's trips) and one without. A noisy answer in which they
differ by ``shift`` says how much likelier it is in the one than in the other. Noise on whole numbers with
``r = exp(-1 / scale)`` has geometric tails, in which that likelihood ratio does not change: so a few outcomes, the
*evidence* of an answer, stand for all of them and nothing is lost. Answers have noise of their own, so the
logarithms of their ratios add up.

Nobody who sees less than the noisy answers can do better: what is made of them afterwards is at most as telling.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dunnage import noise_arrays
from dunnage.arrays import FloatArray, IntArray
from dunnage.counting.laplace import FLOATING_BITS, floating_noise
from dunnage.errors import ParameterError
from dunnage.noise import Noise

LAWS = ("discrete", "round", "floor")
MOST_OUTCOMES = 1 << 22  # Outcomes of one half of the answers that are held at once
_SAME = 1e-12  # ratios this near are one: sums of floats
_REACH = 8  # how far around the likeliest word others are tried; inversion is right within two or three


# Laws of whole numbers


@dataclass(frozen=True)
class WholeLaw:
    """A law of noise on counts: its probabilities, in logarithms."""

    name: str  # `discrete`, `round` or `floor`
    scale: Fraction  # How far it reaches: its tails shrink by `exp(-1 / scale)` a step

    def __post_init__(self) -> None:
        if self.name not in LAWS or self.scale <= 0:
            raise ParameterError(f"a law is one of {', '.join(LAWS)}, of a positive scale. Got {self.name!r}.")

    @property
    def rate(self) -> float:
        """By how much the logarithm of a probability falls with each step outwards."""
        return float(1 / self.scale)

    @property
    def low(self) -> int:
        """The highest value up to which probabilities grow by one factor."""
        return 0 if self.name == "discrete" else -1

    @property
    def high(self) -> int:
        """The lowest value from which on probabilities fall by one factor."""
        return 1 if self.name == "round" else 0

    def log_mass(self, values: ArrayLike) -> FloatArray:
        values, rate = np.asarray(values, dtype=np.float64), self.rate
        if self.name == "discrete":
            return np.asarray(math.log(math.tanh(rate / 2)) - rate * np.abs(values))
        half = _log_complement(rate) - math.log(2)
        if self.name == "floor":
            return np.asarray(half - rate * np.maximum(values, -1 - values))
        return np.where(values == 0, _log_complement(rate / 2), half - rate * (np.abs(values) - 0.5))

    def log_below(self, values: ArrayLike) -> FloatArray:
        values = np.asarray(values, dtype=np.float64)
        lower = self._log_tail(self._mirrored(np.minimum(values, -1)))
        upper = np.log(-np.expm1(self._log_tail(np.maximum(values + 1, 1))))
        return np.where(values <= -1, lower, upper)

    def log_above(self, values: ArrayLike) -> FloatArray:
        return self.log_below(self._mirrored(np.asarray(values, dtype=np.float64)))

    def _mirrored(self, values: FloatArray) -> FloatArray:
        """Return the values that are as likely: across zero, or, rounded down, across minus one half."""
        return -1 - values if self.name == "floor" else -values

    def _log_tail(self, values: FloatArray) -> FloatArray:
        """Return the logarithm of the chance of at least some values, which are at least 1 (``floor``: 0)."""
        if self.name == "discrete":
            return np.asarray(-self.rate * values - math.log1p(math.exp(-self.rate)))
        return np.asarray(-self.rate * (values - (0.5 if self.name == "round" else 0.0)) - math.log(2))


def _log_complement(rate: float) -> float:
    return math.log(-math.expm1(-rate))


# Evidence


@dataclass(frozen=True, eq=False)
class Evidence:
    """What answers may say about two worlds: outcomes that say the same are one."""

    ratios: FloatArray  # Logarithm of how much likelier an outcome is in the world with the trip, rising
    absent: FloatArray  # absent, present: probability of each outcome in the world without and with it
    present: FloatArray

    @classmethod
    def nothing(cls) -> Evidence:
        return cls(np.zeros(1), np.ones(1), np.ones(1))

    def __len__(self) -> int:
        return len(self.ratios)

    def joined(self, other: Evidence) -> Evidence:
        """Return the evidence of two answers with noise of their own."""
        ratios = np.add.outer(self.ratios, other.ratios).reshape(-1)
        masses = [np.multiply.outer(getattr(self, name), getattr(other, name)) for name in ("absent", "present")]
        unit = _SAME * max(1.0, float(np.abs(ratios).max()))
        _, first, places = np.unique(np.rint(ratios / unit), return_index=True, return_inverse=True)
        absent, present = (np.bincount(places.reshape(-1), mass.reshape(-1)).astype(np.float64) for mass in masses)
        return Evidence(ratios[first], absent, present)


def noisy_answer(law: WholeLaw, shift: int = 1, *, dropped: int | None = None) -> Evidence:
    if shift < 1:
        raise ParameterError(f"the worlds must differ by a whole number of at least 1. Got {shift}.")
    low = law.low if dropped is None else max(law.low, dropped)
    high = max(law.high + shift, low + 1)
    inner = np.arange(low + 1, high)
    logs = [
        np.concatenate(([law.log_below(low - by)], law.log_mass(inner - by), [law.log_above(high - by)]))
        for by in (0, shift)
    ]
    return Evidence(logs[1] - logs[0], np.exp(logs[0]), np.exp(logs[1]))


@dataclass(frozen=True, kw_only=True)
class Membership:
    """How well the best test between two worlds does."""

    # Total variation between the worlds: how much more often the best test says "with" where that is true
    advantage: float
    largest: float  # The largest logarithm of a ratio that can occur: the loss
    share_at_largest: float  # How often it does, where the trip is there

    @property
    def success(self) -> float:
        """How often the best test is right, from a suspicion of one half."""
        return (1 + self.advantage) / 2

    @property
    def suspicion(self) -> float:
        """What a suspicion of one half becomes at most; no test under a loss as large is right more often."""
        return float(posterior(self.largest))

    @classmethod
    def of(cls, answers: Iterable[Evidence]) -> Membership:
        halves = [Evidence.nothing(), Evidence.nothing()]
        largest, share = 0.0, 1.0
        for answer in sorted(answers, key=len, reverse=True):
            largest, share = largest + float(answer.ratios[-1]), share * float(answer.present[-1])
            halves.sort(key=len)
            if len(halves[0]) * len(answer) > MOST_OUTCOMES:
                raise ParameterError(f"answers have more than {MOST_OUTCOMES:,} outcomes together. Ask fewer features.")
            halves[0] = halves[0].joined(answer)
        one, other = halves
        # Outcomes that speak for the trip: for each of one half, those of the other whose ratios outweigh it.
        first = np.searchsorted(other.ratios, -one.ratios, side="right")
        absent, present = (np.append(np.cumsum(mass[::-1])[::-1], 0.0) for mass in (other.absent, other.present))
        gains = one.present * present[first] - one.absent * absent[first]
        advantage = min(1.0, max(0.0, math.fsum(gains.tolist())))  # the total variation between the worlds
        return cls(advantage=advantage, largest=largest, share_at_largest=share)


def posterior(ratio: ArrayLike, prior: float = 0.5) -> FloatArray:
    """Return what a suspicion becomes by evidence, given as the logarithm of its likelihood ratio."""
    return np.asarray(1 / (1 + (1 - prior) / prior * np.exp(-np.asarray(ratio, dtype=np.float64))))


# Riders


@dataclass(frozen=True)
class Answer:
    """One feature that was asked with noise."""

    law: WholeLaw  # Law of the noise on each of its sums
    groups: int  # How many sums it has


def trips_together(answers: Sequence[Answer], num: int) -> Membership:
    """Find how well somebody is told who has so many trips, all of one type: one sum of each feature moves."""
    return Membership.of(noisy_answer(answer.law, num) for answer in answers)


def trips_apart(answers: Sequence[Answer], num: int) -> Membership:
    """Find how well somebody is told whose trips lie as far apart as features can tell: each moves as many sums."""
    moved = []
    for answer in answers:
        sums = min(num, answer.groups)
        each, rest = divmod(num, sums)
        moved += [noisy_answer(answer.law, each + 1)] * rest + [noisy_answer(answer.law, each)] * (sums - rest)
    return Membership.of(moved)


# Counts as they were released


def released_ratios(law: WholeLaw, seen: IntArray, known: IntArray, threshold: int) -> FloatArray:
    """Return what each released count says about one more trip in its cell, in logarithms of likelihood ratios."""
    above = seen - known
    cut = threshold - 1 - known
    return np.where(
        seen >= threshold, law.log_mass(above - 1) - law.log_mass(above), law.log_below(cut - 1) - law.log_below(cut)
    )


# Noise in floating point


def impossible_share(scale: Fraction, draws: int, noise: Noise) -> tuple[int, int]:
    """Draw noisy zeros in floating point, and count those that a count of one can never become."""
    seen = floating_noise(noise_arrays.below(noise, 1 << FLOATING_BITS, draws), scale)
    return int((~reachable(seen, 1, scale)).sum()), draws


def reachable(seen: FloatArray, count: int, scale: Fraction) -> NDArray[np.bool_]:
    """Return whether a count plus floating-point noise can be exactly each of some values.

    The words that come nearest are tried. A value counts as out of reach only if it lies between what two of them
    give, so that no further word, which would give a lower or a higher one, can reach it.
    """
    wanted = seen - count
    size = -np.expm1(-np.abs(wanted) / float(scale)) / 2
    nearest = np.rint((0.5 + np.sign(wanted) * size) * 2.0**FLOATING_BITS - 0.5).astype(np.int64)
    hit, lower, higher = (np.zeros(len(seen), dtype=bool) for _ in range(3))
    for step in range(-_REACH, _REACH + 1):
        given = count + floating_noise(np.clip(nearest + step, 0, (1 << FLOATING_BITS) - 1), scale)
        hit |= given == seen
        lower |= given < seen
        higher |= given > seen
    return hit | ~lower | ~higher
