# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that keep sums: largest remainders, from the top of a tree down.

Every node of the tree has a real value, the sum of its children's. Every node is given one of the two whole numbers
next to its value, or the value itself if that is whole, such that children add up to their parent.

Why that is always possible
---------------------------
Values are held in whole units of 2**-bits, so that sums are exact. A value within some slack of a whole number counts
as whole. The slack of a cell is fixed, that of any other node is the sum of its children's, and all are below 1/2. A
node may get low = floor(value + slack) or high = ceil(value - slack): the same number if its value counts as whole, and
the two next to it otherwise.

Claim: let L and H be the sums of the children's lows and highs; then L <= low and high <= H for their parent. So
whichever number the parent has, raising some children from low to high makes them add up to it. Proof:
low <= value + slack for every child; added up, L <= value + slack of the parent, and as L is whole,
L <= floor(value + slack), the parent's low. In the same way H >= ceil(value - slack), its high.

Of all ways to do it, raising the largest remainders has the least sum of squared changes: raising a child of
remainder f adds 1 - 2 f to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dunnage import noise_arrays
from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.noise import Noise

SLACK = 1e-9
"""A cell within this distance of a whole number counts as whole: more if the total is above 2**29, as its sums are
then held in larger units, and less if there are over 2**28 cells."""

_MOST_BITS = 32
_MOST_TOTAL = 2**46


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class _Level:
    """The nodes of one level: their lower numbers, and what is above those in units; 0 for whole values."""

    lows: IntArray
    remainders: IntArray


def round_tree(values: FloatArray, levels: Sequence[IntArray], noise: Noise) -> IntArray:
    """Round values so that all sums over a tree are rounded too, each to a whole number next to it.

    Parents hand their number down to their children: everyone gets its value rounded down, and the largest remainders
    one more. Of equal remainders the larger value comes first; equal values are drawn at random. The topmost nodes are
    rounded to the nearest number, halves at random.

    Examples
    --------
    >>> round_tree(np.array([0.6, 0.7, 2.9, 0.8]), [np.array([0, 2, 4]), np.array([0, 4])], Noise()).tolist()
    [0, 1, 3, 1]
    """
    bits, links = _checked_bits(values), _checked_links(values.size, levels)
    units = np.rint(np.ldexp(values, bits)).astype(np.int64)
    slack = min(int(SLACK * 2**_MOST_BITS), (1 << bits) // (4 * max(1, values.size)))  # 1/4 in all at most
    slacks = np.full(values.size, slack)
    nodes = [_bounded(units, slacks, bits)]
    for starts in links:
        units, slacks = _sums(units, starts), _sums(slacks, starts)
        nodes.append(_bounded(units, slacks, bits))
    numbers = _nearest(nodes[-1], bits, noise)
    for starts, level in zip(reversed(links), reversed(nodes[:-1]), strict=True):
        numbers = _handed_down(numbers, starts, level, bits, noise)
    return numbers


def _checked_bits(values: FloatArray) -> int:
    """Return how many binary digits after the point are kept: as many as let all sums fit 62 bits, 32 at most."""
    if not np.all(np.isfinite(values)):
        raise ParameterError("A value to round is infinite or no number. Pass finite values.")
    total = float(np.abs(values).sum())
    if total >= _MOST_TOTAL:
        raise ParameterError("The values to round add up to 2**46 or more. Scale them down.")
    return min(_MOST_BITS, 61 - int(total).bit_length())


def _checked_links(size: int, levels: Sequence[IntArray]) -> list[IntArray]:
    """Return the starts of each level counted in nodes of the level below."""
    links, below = [], np.arange(size + 1)
    for starts in levels:
        link = np.searchsorted(below, starts)
        if starts.size == 0 or starts[0] != 0 or starts[-1] != size or np.any(np.diff(starts) < 0):
            raise ParameterError("The starts of a level must ascend from 0 to the number of values. Check their order.")
        if np.any(below[link] != starts):
            raise ParameterError("A node ends inside a node of the level below. Pass levels that are nested.")
        link[-1] = below.size - 1  # empty nodes at the end have a parent too
        links.append(link)
        below = starts
    return links


def _sums(units: IntArray, starts: IntArray) -> IntArray:
    running = np.concatenate([[0], np.cumsum(units)])
    return np.asarray(running[starts[1:]] - running[starts[:-1]], dtype=np.int64)


def _bounded(units: IntArray, slacks: IntArray, bits: int) -> _Level:
    lows, highs = (units + slacks) >> bits, -((slacks - units) >> bits)
    return _Level(lows=lows, remainders=np.where(highs > lows, units - (lows << bits), 0))


def _nearest(level: _Level, bits: int, noise: Noise) -> IntArray:
    halves = np.flatnonzero(2 * level.remainders == 1 << bits)
    numbers = level.lows + (2 * level.remainders > 1 << bits)
    numbers[halves] += noise_arrays.below(noise, 2, halves.size)
    return numbers


def _handed_down(numbers: IntArray, starts: IntArray, level: _Level, bits: int, noise: Noise) -> IntArray:
    """Give the children of each parent their low number and the largest remainders one more."""
    parents = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    raises = numbers - _sums(level.lows, starts)
    able = np.flatnonzero((level.remainders > 0) & (raises[parents] > 0))
    # One key orders by parent, then by remainder downwards.
    keys = (parents[able] << bits) + (1 << bits) - level.remainders[able]
    order = np.argsort(keys)
    keys, able = keys[order], able[order]
    served = np.flatnonzero(raises)
    firsts = np.searchsorted(parents[able], served)
    limits = np.zeros_like(raises)  # key of the last child to be raised
    limits[served] = keys[firsts + raises[served] - 1]
    left = np.zeros_like(raises)  # what children with the very same key may have
    left[served] = raises[served] - (np.searchsorted(keys, limits[served]) - firsts)
    owners = parents[able]
    tied = np.flatnonzero(keys == limits[owners])
    result = level.lows.copy()
    result[able[keys < limits[owners]]] += 1
    result[_drawn(able[tied], owners[tied], left, level.lows, noise)] += 1
    return result


def _drawn(children: IntArray, owners: IntArray, left: IntArray, lows: IntArray, noise: Noise) -> IntArray:
    """Choose among tied children as many as each parent has left: the larger first, equals at random."""
    shuffled = noise_arrays.permutation(noise, children.size)
    order = shuffled[np.lexsort((-lows[children[shuffled]], owners[shuffled]))]
    ranks = np.arange(children.size) - np.searchsorted(owners[order], owners[order])
    return children[order[ranks < left[owners[order]]]]
