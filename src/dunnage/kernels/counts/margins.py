# SPDX-License-Identifier: Apache-2.0
"""Margins of noisy tail counts: how many slots to add so that, very likely, none of many sums is too low.

Cells of a histogram are in chains, each from its largest size down. The estimate of a tail, the number of records in
the first j cells of a chain, is off by a sum of j random numbers: a walk. The chance that no walk ever falls below its
margin is computed exactly, by following the law of the walk and dropping what falls below. Walks may be pulled towards
0: then they are followed in tubes of all radii. Rounding is bounded and added to the chance of failure.
``docs/proofs/size-profile.md`` has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dunnage.arrays import FloatArray, IntArray, kernel

# Shape of the margins along a chain without a tube: a line that rises by this share of its start. Found by minimising
# the sum of the margins at both ends, which decides how many trucks pairs need, for a Brownian walk and a risk of 0.05.
RISE = 1.3
MAX_TIGHTENED = 24  # cells up to which margins are lowered one by one, after the common factor
_ROUNDING = 1e-15  # of a discrete Fourier transform and back, per doubling of its size, relative to its norm
_REACH = 7.0  # standard deviations of a walk beyond which its mass counts as lost
_REST = 1e-6  # share of the mass that tubes of radii that are not followed may have


class NoiseLaw(NamedTuple):
    """Noise on the cells of a histogram: z is as likely as exp(-sum of |z| / scale - largest |tail of z| / tube)."""

    scale: float
    fixed_total: bool  # whether all noise adds up to 0
    tube: float = math.inf  # infinite: tails are as large as their cells make them

    @property
    def ratio(self) -> float:
        return math.exp(-1 / self.scale)

    @property
    def stride(self) -> int:
        """Return the steps between radii of the tube that are enough for estimates."""
        return max(1, round(self.tube / 4)) if self.tube < math.inf else 1

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the noise of one cell by itself."""
        return math.sqrt(2 * self.ratio) / (1 - self.ratio)


class Mass(NamedTuple):
    """How likely independent noises are to have their sum, and to be kept by a tube."""

    kept: float
    radii: tuple[tuple[int, float], ...]  # of the tube, and what share of the noises each of them keeps; none: all


@kernel
def _walk_law(margins: IntArray, depth: int, height: int, ratio: float) -> FloatArray:
    """Return the mass of walks that stay between minus their margins and a height, by their end, from -depth on."""
    size = depth + height + 1
    law = np.zeros(size)
    law[depth] = 1.0
    forth = np.empty(size)
    share = (1 - ratio) / (1 + ratio)
    for margin in margins:
        # Convolution with a discrete Laplace law, as one recursion from each side; every term is positive.
        total = 0.0
        for at in range(size):
            total = total * ratio + law[at]
            forth[at] = total
        total = 0.0
        for at in range(size - 1, -1, -1):
            own = law[at]
            law[at] = share * (forth[at] + total) if at >= depth - margin else 0.0
            total = (total + own) * ratio
    return law


def _stay(chains: Sequence[IntArray], law: NoiseLaw, radius: int) -> float:
    """Return a lower bound on the mass of walks between minus their margins (or radius) and the radius, with their sum.

    Laws of walks are sums of positive terms with at most so many roundings each; transforms have an error of their own.
    """
    depths = [min(int(margins.max()), radius) for margins in chains]
    ends = [_walk_law(np.minimum(m, d), d, radius, law.ratio) for m, d in zip(chains, depths, strict=True)]
    exactly = 1 - 2**-52 * 6 * sum(map(len, chains)) * (2 * radius + 4)
    if not law.fixed_total:
        return exactly * math.prod(float(own.sum()) for own in ends)
    if len(ends) == 1:
        return exactly * float(ends[0][depths[0]])
    size = 1 << sum(map(len, ends)).bit_length()
    product = np.prod([np.fft.rfft(own, size) for own in ends], axis=0)
    rounding = _ROUNDING * math.log2(size) * (len(ends) + 1)
    return max(0.0, exactly * float(np.fft.irfft(product, size)[sum(depths)]) - rounding)


@lru_cache(maxsize=1024)
def mass_of(lengths: tuple[int, ...], law: NoiseLaw, stride: int = 1) -> Mass:
    """Return an upper bound on the mass of all noises; with a stride only an estimate, from a part of all radii."""
    num, total = sum(lengths), 1.0
    if law.fixed_total:
        size = 1 << (2 * math.ceil(_REACH * law.deviation * math.sqrt(num) + 45 * law.scale)).bit_length()
        offsets = np.abs(np.fft.fftfreq(size, 1 / size))
        of_cell = np.fft.rfft((1 - law.ratio) / (1 + law.ratio) * law.ratio**offsets)
        total = float(np.fft.irfft(of_cell**num, size)[0]) + _ROUNDING * math.log2(size) * num
    if law.tube == math.inf:
        return Mass(total, ())
    # exp(-furthest / tube) is the chance that a geometric radius is at least as large.
    wide, pull, kept = [np.full(n, 2**40) for n in lengths], math.exp(-stride / law.tube), 0.0
    radii: list[tuple[int, float]] = []
    while pull ** len(radii) * total > _REST * kept:
        radii.append((stride * len(radii) + stride // 2, (1 - pull) * pull ** len(radii)))
        kept += radii[-1][1] * _stay(wide, law, radii[-1][0]) * (1 + 1e-9)
    return Mass(kept + pull ** len(radii) * total, tuple(radii))


def failure(
    chains: Sequence[IntArray],  # the margins of each chain, from the cell with the largest size on
    law: NoiseLaw,
    stride: int = 1,
) -> float:
    """Return a bound on the chance that some tail is below minus its margin; with a stride, an estimate."""
    num = sum(map(len, chains))
    if num == 1 and law.fixed_total:
        return 0.0
    mass = mass_of(tuple(map(len, chains)), law, stride)
    # Without a tube, what goes beyond the reach counts as lost.
    reach = math.ceil(_REACH * law.deviation * math.sqrt(num) + 45 * law.scale) + 1
    return 1 - sum(share * _stay(chains, law, radius) for radius, share in mass.radii or ((reach, 1.0),)) / mass.kept


def margins_of(lengths: Sequence[int], law: NoiseLaw, risk: float, rough: bool = False) -> list[IntArray]:
    """Return margins, chain by chain, that all hold together with probability at least 1 - risk, for any data.

    Rough margins hold with about that probability, and take less time if the tube is wide. With a fixed total, the tail
    of all cells of a single chain is known, so its margin is 0.
    """
    known = law.fixed_total and len(lengths) == 1
    rise = 0.0 if known or law.tube < math.inf else RISE
    shapes: list[FloatArray] = [math.sqrt(num) * (1 + rise * np.arange(1, num + 1) / num) for num in lengths]
    largest, finer = max(float(shape[-1]) for shape in shapes), 1 if known else 2

    def rounded(margin: int) -> list[IntArray]:
        # Shapes are sums of a few operations on small numbers: less than 1e-9 off, so the next whole number is safe.
        made = [np.ceil(margin / finer * (shape / largest) - 1e-9).astype(np.int64) for shape in shapes]
        if known:
            made[0][-1] = 0
        return made

    def holds(margins: list[IntArray], stride: int = 1) -> bool:
        return failure(margins, law, stride) <= risk

    high = max(1, math.ceil(finer * largest * law.scale * math.sqrt(math.log(1 / risk))))
    while not holds(rounded(high), law.stride):
        high *= 2
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(rounded(middle), law.stride) else (middle, high)
    while not rough and not holds(rounded(high)):
        high += 1
    margins = rounded(high)
    # Whole numbers leave some of the risk unused: many margins are lowered from both ends on, few one by one.
    if sum(lengths) > MAX_TIGHTENED and not rough:
        whole, low, high = margins, 0, (max(lengths) + 1) // 2
        while high - low > 1:
            middle = (low + high) // 2
            outer = [np.minimum(np.arange(num), num - 1 - np.arange(num)) < middle for num in lengths]
            lowered_ends = [np.maximum(own - ends, 0) for own, ends in zip(whole, outer, strict=True)]
            if holds(lowered_ends):
                margins, low = lowered_ends, middle
            else:
                high = middle
    if sum(lengths) <= MAX_TIGHTENED:
        lowered = True
        while lowered:
            lowered = False
            for margin in margins:
                for cell in range(len(margin)):
                    margin[cell] -= 1
                    if margin[cell] >= 0 and holds(margins, law.stride if rough else 1):
                        lowered = True
                    else:
                        margin[cell] += 1
    return margins


def first_fit_count(sizes: FloatArray, numbers: IntArray, capacity: FloatArray) -> int:
    """Return how many bins a first fit of so many items of each size needs. Shape of sizes: items by quantities."""
    order = np.argsort(-(sizes / capacity).max(axis=1), kind="stable")
    # items : size in parts of a bin, from the largest on, and how many are left
    items = list(zip((sizes / capacity)[order].tolist(), numbers[order].tolist(), strict=True))
    items, bins, axes = [item for item in items if item[1]], 0, range(len(capacity))
    while items:
        room, taken = [1 + 1e-12] * len(capacity), []
        for at, (size, number) in enumerate(items):
            fit = min([number, *(int(room[axis] / size[axis]) for axis in axes if size[axis] > 0)])
            if fit or at == 0:  # also what is larger than a bin
                taken.append((at, max(fit, 1)))
                room = [max(room[axis] - fit * size[axis], 0.0) for axis in axes]
        times = min(items[at][1] // fit for at, fit in taken)
        bins += times
        for at, fit in taken:
            items[at] = (items[at][0], items[at][1] - times * fit)
        items = [item for item in items if item[1]]
    return bins
