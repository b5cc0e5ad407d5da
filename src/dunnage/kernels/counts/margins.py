# SPDX-License-Identifier: Apache-2.0
"""Margins of noisy tail counts: how many slots to add so that, very likely, none of many sums is too low.

Cells of a histogram are in chains, each from its largest size down. The estimate of a tail, the number of records in
the first j cells of a chain, is off by a sum of j discrete Laplace numbers: a random walk. The chance that no walk ever
falls below its margin is computed exactly, by following the law of the walk and dropping what falls below. Rounding is
bounded and added to the chance of failure. ``docs/proofs/size-profile.md`` has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dunnage.arrays import FloatArray, IntArray

# Shape of the margins along a chain: a line that rises by this share of its start. Found by minimising the sum of the
# margins at both ends, which decides how many trucks pairs need, for a Brownian walk and a risk of 0.05.
RISE = 1.3
MAX_TIGHTENED = 24  # cells up to which margins are lowered one by one, after the common factor
_ROUNDING = 1e-15  # of a discrete Fourier transform and back, per doubling of its size, relative to its norm
_REACH = 7.0  # standard deviations of a walk beyond which its mass counts as lost


def failure(
    chains: Sequence[IntArray],  # the margins of each chain, from the cell with the largest size on
    scale: float,  # of the discrete Laplace noise on every cell
    *,
    fixed_total: bool,  # whether the noise of all cells is conditioned on its sum being 0
) -> float:
    """Return a bound on the chance that some tail of the noise is below minus its margin."""
    num = sum(map(len, chains))
    if num == 1 and fixed_total:
        return 0.0
    ratio = math.exp(-1 / scale)
    deviation = math.sqrt(2 * ratio * num) / (1 - ratio)
    reach = math.ceil(_REACH * deviation + 45 * scale) + 1
    size = 1 << (2 * reach).bit_length()
    offsets = np.rint(np.fft.fftfreq(size, 1 / size)).astype(np.int64)  # 0, 1, 2, ..., -2, -1
    law = np.fft.rfft((1 - ratio) / (1 + ratio) * ratio ** np.abs(offsets))
    whole, product = np.ones_like(law), 1.0
    for margins in chains:
        walk = np.zeros(size)
        walk[0] = 1.0
        for margin in margins.tolist():
            walk = np.fft.irfft(np.fft.rfft(walk) * law, size)
            walk[(offsets < -margin) | (offsets > reach)] = 0.0
        whole, product = whole * np.fft.rfft(walk), product * float(walk.sum())
    rounding = _ROUNDING * math.log2(size) * num
    if not fixed_total:
        return 1 - product + rounding * math.sqrt(size)
    total = float(np.fft.irfft(law**num, size)[0])
    return 1 - (float(np.fft.irfft(whole, size)[0]) - rounding) / (total + rounding)


def margins_of(lengths: Sequence[int], scale: float, risk: float, *, fixed_total: bool) -> list[IntArray]:
    """Return margins, chain by chain, that all hold together with probability at least 1 - risk, for any data.

    With a fixed total, the tail of all cells of a single chain is known, so its margin is 0.
    """
    known = fixed_total and len(lengths) == 1
    rise = 0.0 if known else RISE
    shapes: list[FloatArray] = [math.sqrt(num) * (1 + rise * np.arange(1, num + 1) / num) for num in lengths]

    def rounded(eighths: int) -> list[IntArray]:
        # Shapes are sums of a few operations on small numbers: less than 1e-9 off, so the next whole number is safe.
        made = [np.ceil(eighths / 8 * shape - 1e-9).astype(np.int64) for shape in shapes]
        if known:
            made[0][-1] = 0
        return made

    def holds(margins: list[IntArray]) -> bool:
        return failure(margins, scale, fixed_total=fixed_total) <= risk

    high = max(1, math.ceil(8 * scale * math.sqrt(2 * math.log(1 / risk))))
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
