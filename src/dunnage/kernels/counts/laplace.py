# SPDX-License-Identifier: Apache-2.0
"""Laws of noise on counts: exact laws of whole numbers, and the floating-point law of the papers.

With ``r = exp(-1 / scale)``, a law of whole numbers changes its probabilities by a factor of at most ``1 / r`` when a
count changes by one. Beyond zero all of them have geometric tails, so the excess over a threshold has the same law.

``discrete``
    Proportional to ``r ** abs(x)``.
``round``, ``floor``
    A continuous Laplace number, rounded to the nearest whole number, or down. They are sampled directly, without that
    number: ``round`` is 0 with probability ``1 - exp(-1 / (2 scale))``, ``floor`` has ``P(x) = P(-1 - x)``.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.model.laws import count_noise_above, count_noise_spread, count_noise_surplus
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise, positive

FLOATING_BITS = 52  # bits of a word behind a floating-point number: with one more, its middle would be rounded


@dataclass(frozen=True)
class CountLaw(abc.ABC):
    name: ClassVar[str]
    scale: Fraction  # scale of the noise: one over epsilon, for counts that change by one

    @abc.abstractmethod
    def draw(self, noise: Noise, size: int) -> IntArray | FloatArray:
        """Sample noise for ``size`` counts."""

    @property
    def spread(self) -> float:
        return count_noise_spread(self.name, self.scale)

    def above(self, threshold: int) -> float:
        """Return the chance of noise of at least a threshold, which is 1 or more."""
        return count_noise_above(self.name, self.scale, threshold)


@dataclass(frozen=True)
class DiscreteLaplace(CountLaw):
    name: ClassVar[str] = "discrete"

    def draw(self, noise: Noise, size: int) -> IntArray:
        return noise_arrays.discrete_laplace(noise, self.scale, size)


@dataclass(frozen=True)
class RoundedLaplace(CountLaw):
    name: ClassVar[str] = "round"

    def draw(self, noise: Noise, size: int) -> IntArray:
        values = np.zeros(size, dtype=np.int64)
        moved = np.flatnonzero(noise_arrays.bernoulli_exp(noise, 1 / (2 * self.scale), size))
        sizes = 1 + noise_arrays.geometric(noise, self.scale, len(moved))
        values[moved] = np.where(_coins(noise, len(moved)), -sizes, sizes)
        return values


@dataclass(frozen=True)
class FlooredLaplace(CountLaw):
    name: ClassVar[str] = "floor"

    def draw(self, noise: Noise, size: int) -> IntArray:
        sizes = noise_arrays.geometric(noise, self.scale, size)
        return np.where(_coins(noise, size), -1 - sizes, sizes)


@dataclass(frozen=True)
class DiscreteGaussian(CountLaw):
    """Proportional to ``exp(-x ** 2 / (2 scale))``: its scale is its variance."""

    name: ClassVar[str] = "gaussian"

    def draw(self, noise: Noise, size: int) -> IntArray:
        return noise_arrays.discrete_gaussian(noise, self.scale, size)


@dataclass(frozen=True)
class FloatingLaplace(CountLaw):
    """Laplace numbers in floating point, as published: their last digits reveal what they were added to."""

    name: ClassVar[str] = "floating"

    def draw(self, noise: Noise, size: int) -> FloatArray:
        return floating_noise(noise_arrays.below(noise, 1 << FLOATING_BITS, size), self.scale)


def floating_noise(words: IntArray, scale: Fraction) -> FloatArray:
    """Return the floating-point Laplace number of each word of 52 bits."""
    uniform = (words + 0.5) / 2.0**FLOATING_BITS - 0.5
    return np.asarray(-float(scale) * np.sign(uniform) * np.log1p(-2 * np.abs(uniform)))


def surplus(law: CountLaw, threshold: int = 1) -> float:
    """Return the mean count of a cell without trips, if noise below the threshold is dropped."""
    return count_noise_surplus(law.name, law.scale, threshold)


def _coins(noise: Noise, size: int) -> BoolArray:
    return np.equal(noise_arrays.below(noise, 2, size), 1)


# Noise of empty cells, sampled only if it reaches a threshold.
#
# A universe may have billions of cells, nearly all of them empty, each with its own discrete Laplace noise. Only a few
# with high noise can matter. So cells are listed lazily: in each group of empty cells, the number and values of those
# with noise of at least the group's threshold are sampled; if these are too few, the threshold is lowered and the cells
# in between are added. The law is that of sampling every cell's noise and then revealing it threshold by threshold:
#
# - In a group of n cells the number that reach a threshold t is binomial, and if a noise X reaches t >= 1, its excess
#   X - t is geometric. So a group may also be listed from a lower threshold, keeping only values of t or more: that
#   turns the many thresholds of many groups into a few.
# - The noise of an unlisted cell has the law of X given X < t, independent of everything listed. Sampling X again until
#   it is below t gives this law. For t <= 0 it is the law of t - 1 less a geometric number.
# - Cells of a group are alike: the set of listed cells is uniform, whatever their values. So addresses can be sampled
#   last, only for the cells that need one.

Listing = tuple[IntArray, IntArray]  # groups and values of listed cells
UNLISTED = np.iinfo(np.int64).max  # the threshold of a group without a list yet
_FEW = 1000  # a list so short that a higher threshold would not pay for its tables


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Tail:
    """Empty cells with noise of at least their group's threshold, group by group."""

    scale: Fraction  # of the discrete Laplace law
    sizes: IntArray  # number of empty cells of each group
    thresholds: IntArray  # of each group: all unlisted cells have noise below it
    groups: IntArray  # group of each listed cell, in ascending order
    # Noise of each: in a group, cells listed earlier come first; among those listed together the order means nothing
    values: IntArray

    @property
    def counts(self) -> IntArray:
        return np.bincount(self.groups, minlength=self.sizes.size).astype(np.int64)


def draw_tail(noise: Noise, scale: int | Fraction, sizes: IntArray, thresholds: IntArray) -> Tail:
    """Sample the noise of all empty cells as far as it reaches the thresholds: 0.1 s for a million of a billion."""
    if sizes.size and sizes.min() < 0:
        raise ParameterError("the number of empty cells of a group must not be negative. Pass zero or more.")
    nothing = np.empty(0, dtype=np.int64)
    unlisted = np.full_like(sizes, UNLISTED)
    before = Tail(scale=positive(scale, "scale"), sizes=sizes, thresholds=unlisted, groups=nothing, values=nothing)
    return lower(noise, before, thresholds)


def lower(noise: Noise, tail: Tail, thresholds: IntArray) -> Tail:
    """List further cells: those with noise between new thresholds and the present ones."""
    if thresholds.shape != tail.sizes.shape or np.any(thresholds > tail.thresholds):
        raise ParameterError("each group needs one threshold, at most its present one. Pass lower ones or the same.")
    scale, ceilings = tail.scale, tail.thresholds
    pending = np.where(thresholds < ceilings, tail.sizes - tail.counts, 0)
    # Noise below a ceiling of 0 or less is the ceiling less a geometric number.
    owners = np.repeat(np.arange(pending.size), np.where(ceilings <= 0, pending, 0))
    values = ceilings[owners] - 1 - noise_arrays.geometric(noise, scale, owners.size)
    parts = [(tail.groups, tail.values), _reached(owners, values, thresholds)]
    pending = np.where(ceilings <= 0, 0, pending)
    # Noise at its ceiling or above is sampled again. It reaches a ceiling of 1 or more at most every other time.
    while pending.any():
        listings = _reaching(noise, scale, pending, thresholds)
        over = [values >= ceilings[groups] for groups, values in listings]
        parts += [(groups[~o], values[~o]) for (groups, values), o in zip(listings, over, strict=True)]
        again = np.concatenate([groups[o] for (groups, _), o in zip(listings, over, strict=True)])
        pending = np.bincount(again, minlength=pending.size)
    groups, values = (np.concatenate(side) for side in zip(*parts, strict=True))
    order = np.argsort(groups, kind="stable")  # merges runs that are sorted already
    return replace(tail, thresholds=thresholds.copy(), groups=groups[order], values=values[order])


def _reaching(noise: Noise, scale: Fraction, sizes: IntArray, thresholds: IntArray) -> list[Listing]:
    """Sample noise for cells without any list, and list what reaches the thresholds."""
    dense = np.flatnonzero((thresholds <= 0) & (sizes > 0))
    groups = np.repeat(dense, sizes[dense])
    parts = [_reached(groups, noise_arrays.discrete_laplace(noise, scale, groups.size), thresholds)]
    rare = np.flatnonzero((thresholds >= 1) & (sizes > 0))
    bases = thresholds[rare]
    if bases.size:  # lower the many thresholds to a few: only the time depends on this choice, not the law
        least, width = int(bases.min()), max(1, int(scale / 2))  # so at most exp(1/2) times as many are sampled
        few = int(float(scale) * np.log(max(1.0, float(sizes[rare].sum(dtype=np.float64)) / _FEW)))
        bases = least + (np.minimum(bases, max(least, few)) - least) // width * width
    for base in np.unique(bases).tolist():
        members = rare[bases == base]
        groups = np.repeat(members, noise_arrays.tail_counts(noise, scale, base, sizes[members]))
        parts.append(_reached(groups, base + noise_arrays.geometric(noise, scale, groups.size), thresholds))
    return parts


def _reached(groups: IntArray, values: IntArray, thresholds: IntArray) -> Listing:
    kept = values >= thresholds[groups]
    return groups[kept], values[kept]


def exceeding_cells(
    noise: Noise, law: CountLaw, size: int, threshold: int, *, taken: IntArray
) -> tuple[IntArray, IntArray]:
    """Sample which of the cells that are not taken have noise of at least a threshold, and that noise."""
    if threshold < 1:
        raise ParameterError("the threshold must be at least 1. Sample the noise of every cell instead.")
    step = 1 / law.scale
    chances = {  # x and y such that noise reaches the threshold with probability exp(-x) / (1 + exp(-y))
        "discrete": (threshold * step, step),
        "round": ((threshold - Fraction(1, 2)) * step, Fraction(0)),
        "floor": (threshold * step, Fraction(0)),
    }
    if law.name not in chances:
        raise ParameterError("only laws of whole numbers have exact tails. Use the discrete, rounded or floored law.")
    x, y = chances[law.name]
    (number,) = noise_arrays.binomial_exp(noise, x, y, np.array([size - taken.size])).tolist()
    cells = addresses(noise, np.array([0, size]), np.zeros(number, dtype=np.int64), taken)
    return cells, threshold + noise_arrays.geometric(noise, law.scale, number)


def addresses(noise: Noise, starts: IntArray, groups: IntArray, taken: IntArray) -> IntArray:
    """Sample the places of listed cells: all ways to give them distinct free places of their groups are alike."""
    room, wanted = np.diff(starts), np.bincount(groups, minlength=starts.size - 1)
    used = np.diff(np.searchsorted(taken, starts))
    if np.any(wanted + used > room):
        raise ParameterError("a group lists more cells than it has free places. Check its size.")
    crowded = (wanted > 0) & (2 * (wanted + used) > room)
    places = np.empty(groups.size, dtype=np.int64)
    inside = crowded[groups]
    # Put all free places of crowded groups into random order and take the first ones.
    sizes, full = room[crowded], np.flatnonzero(crowded)
    owner = np.repeat(full, sizes)
    free = np.arange(owner.size) + np.repeat(starts[full] - (np.cumsum(sizes) - sizes), sizes)
    kept = ~_contains(taken, free)
    owner, free = owner[kept], free[kept]
    shuffled = noise_arrays.permutation(noise, free.size)
    shuffled = shuffled[np.argsort(owner[shuffled], kind="stable")]  # group by group, uniform inside each
    listed = np.flatnonzero(inside)[np.argsort(groups[inside], kind="stable")]
    rank = np.arange(listed.size) - np.searchsorted(groups[listed], groups[listed])
    places[listed] = free[shuffled[np.searchsorted(owner, groups[listed]) + rank]]
    # The others sample in turn, and again in the next round if their place was gone; each attempt succeeds with
    # probability 1/2 at least. An accepted place is uniform among those free at that moment, and acceptance depends on
    # how many are gone, not on which.
    late, gone = np.flatnonzero(~inside), [taken]
    while late.size:
        tried = starts[groups[late]] + noise_arrays.below_each(noise, room[groups[late]])
        places[late] = tried
        order = np.argsort(tried, kind="stable")
        ranked = tried[order]
        repeated = np.concatenate([[False], ranked[1:] == ranked[:-1]])  # the first in turn keeps its place
        for others in gone:
            repeated |= _contains(others, ranked)
        gone.append(ranked[~repeated])
        late = np.sort(late[order[repeated]])
    return places


def _contains(members: IntArray, values: IntArray) -> BoolArray:
    if not members.size:
        return np.zeros(values.size, dtype=np.bool_)
    at = np.searchsorted(members, values)
    return np.equal(members[np.minimum(at, members.size - 1)], values)
