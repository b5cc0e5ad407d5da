# SPDX-License-Identifier: Apache-2.0
"""Margins of noisy tail counts: how many slots to add so that, very likely, none of many sums is too low.

Cells of a histogram are in chains, each from its largest size down. The estimate of a tail, the number of records in
the first j cells of a chain, is off by a sum of j random numbers: a walk. The chance that no walk ever falls below its
margin is computed exactly, by following the law of the walk and dropping what falls below. Rounding is bounded and
added to the chance of failure. ``docs/proofs/size-profile.md`` has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dunnage.arrays import FloatArray, IntArray, kernel

# Shape of the margins along a chain: a line that rises by this share of its start. Found by minimising the sum of the
# margins at both ends, which decides how many trucks pairs need, for a Brownian walk and a risk of 0.05.
RISE = 1.3
MAX_TIGHTENED = 24  # cells up to which margins are lowered one by one, after the common factor
_ROUNDING = 1e-15  # of a discrete Fourier transform and back, per doubling of its size, relative to its norm
_REACH = 7.0  # standard deviations of a walk beyond which its mass counts as lost


class NoiseLaw(NamedTuple):
    """Noise on the cells of a histogram: z is as likely as ratio^(sum of |z|) * pull^(sum of |block sums|)."""

    scale: float  # ratio is exp(-1 / scale)
    fixed_total: bool  # whether all noise adds up to 0
    block: int = 0  # cells of a block, the last may have fewer; 0: no blocks
    block_scale: float = math.inf  # pull is exp(-1 / block_scale)

    def blocks(self, num: int) -> list[int]:
        """Return how many cells each block has."""
        full = num // self.block if self.block else 0
        rest = num - full * self.block
        return [self.block] * full + [rest] * (rest > 0)


@kernel
def _walk_law(
    margins: IntArray, blocks: IntArray, depth: int, size: int, ratio: float, pull: float, lift: float
) -> FloatArray:
    """Return the mass of walks that never fell below minus their margin, by where they end, from -depth on."""
    law = np.zeros(size)
    law[depth] = 1.0
    row, forth = np.empty(size), np.empty(size)
    share = (1 - ratio) / (1 + ratio)
    cell = 0
    for block in blocks:
        after = np.zeros(size)
        for start in range(size):
            if law[start] < 1e-14:  # what is lost only adds to the chance of failure
                continue
            row[:] = 0.0
            row[start] = law[start]
            for step in range(cell, cell + block):
                # Convolution with a discrete Laplace law, as one recursion from each side; every term is positive.
                total = 0.0
                for at in range(size):
                    total = total * ratio + row[at]
                    forth[at] = total
                total = 0.0
                for at in range(size - 1, -1, -1):
                    own = row[at]
                    row[at] = share * (forth[at] + total) if at >= depth - margins[step] else 0.0
                    total = (total + own) * ratio
            for at in range(size):
                after[at] += row[at] * lift * pull ** abs(at - start)
        law = after
        cell += block
    return law


def window(num: int, law: NoiseLaw) -> int:
    """Return how far above 0 a walk of so many cells is followed; what goes further counts as lost."""
    ratio = math.exp(-1 / law.scale)
    of_cell = math.sqrt(2 * ratio) / (1 - ratio)
    if not law.block:
        return math.ceil(_REACH * of_cell * math.sqrt(num) + 45 * law.scale) + 1
    # The sum of a block is Laplace with the scale of blocks or, if that is smaller, as its cells make it.
    of_block = min(of_cell * math.sqrt(law.block), math.sqrt(2) * law.block_scale)
    blocks = math.sqrt(num / law.block) * of_block
    return math.ceil(6 * (blocks + of_cell * math.sqrt(law.block) / 2) + 20 * law.scale)


def failure(
    chains: Sequence[IntArray],  # the margins of each chain, from the cell with the largest size on
    law: NoiseLaw,
) -> float:
    """Return a bound on the chance that some tail is below minus its margin; blocks are for a single chain."""
    num = sum(map(len, chains))
    if num == 1 and law.fixed_total:
        return 0.0
    ratio, pull = math.exp(-1 / law.scale), math.exp(-1 / law.block_scale)
    size = 1 << (2 * math.ceil(_REACH * math.sqrt(2 * ratio * num) / (1 - ratio) + 45 * law.scale)).bit_length()
    offsets = np.rint(np.fft.fftfreq(size, 1 / size)).astype(np.int64)  # 0, 1, 2, ..., -2, -1
    of_cell = np.fft.rfft((1 - ratio) / (1 + ratio) * ratio ** np.abs(offsets))
    sums = {length: np.abs(np.fft.irfft(of_cell**length, size)) * pull ** np.abs(offsets) for length in law.blocks(num)}
    lift = 1 / float(max(own.sum() for own in sums.values()))  # the same for every block, so that masses stay near 1
    rounding, roundings = _ROUNDING * math.log2(size) * num * max(1.0, lift), 6 * num * (size + 4)
    total, kept = np.ones_like(of_cell), np.ones_like(of_cell)
    for length in law.blocks(num):
        total = total * np.fft.rfft(lift * sums[length])
    for margins in chains:
        depth, reach = int(margins.max()), window(num, law)
        blocks = np.array(law.blocks(len(margins)), dtype=np.int64)
        ends = np.zeros(size)
        walk = _walk_law(margins, blocks, depth, depth + reach + 1, ratio, pull, lift)
        ends[: len(walk)] = walk[:size]
        kept = kept * np.fft.rfft(np.roll(ends, -depth))
    # Laws of walks are sums of positive terms, each with at most so many roundings; transforms have their own error.
    exactly = 1 - 2**-52 * roundings
    if not law.fixed_total:
        return 1 - exactly * float(kept[0].real - rounding) / float(total[0].real + rounding * math.sqrt(size))
    return 1 - (exactly * float(np.fft.irfft(kept, size)[0]) - rounding) / (
        float(np.fft.irfft(total, size)[0]) + rounding
    )


def margins_of(lengths: Sequence[int], law: NoiseLaw, risk: float) -> list[IntArray]:
    """Return margins, chain by chain, that all hold together with probability at least 1 - risk, for any data.

    With a fixed total, the tail of all cells of a single chain is known, so its margin is 0.
    """
    known = law.fixed_total and len(lengths) == 1
    rise = 0.0 if known else RISE
    shapes: list[FloatArray] = [math.sqrt(num) * (1 + rise * np.arange(1, num + 1) / num) for num in lengths]
    largest, finer = max(float(shape[-1]) for shape in shapes), 1 if known else 2

    def rounded(margin: int) -> list[IntArray]:
        # Shapes are sums of a few operations on small numbers: less than 1e-9 off, so the next whole number is safe.
        made = [np.ceil(margin / finer * (shape / largest) - 1e-9).astype(np.int64) for shape in shapes]
        if known:
            made[0][-1] = 0
        return made

    def holds(margins: list[IntArray]) -> bool:
        return failure(margins, law) <= risk

    high = max(1, math.ceil(finer * largest * law.scale * math.sqrt(math.log(1 / risk))))
    while not holds(rounded(high)):
        high *= 2
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(rounded(middle)) else (middle, high)
    margins = rounded(high)
    if sum(lengths) <= MAX_TIGHTENED:  # whole numbers leave some of the risk unused
        lowered = True
        while lowered:
            lowered = False
            for margin in margins:
                for cell in range(len(margin)):
                    margin[cell] -= 1
                    if margin[cell] >= 0 and holds(margins):
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
