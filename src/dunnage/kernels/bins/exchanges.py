# SPDX-License-Identifier: Apache-2.0
"""Put independent random numbers into a fixed number of bins so that all bins fit with a high probability.

The chance of a bin with a row more, less or exchanged is one product of vectors, so all moves and exchanges are
compared at once. The best is made, better or not, and may not be undone for a while; nothing is random.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray, kernel

# Spread the items of each class over the bins of a packing, without more bins.
#
# A packing does not care which class goes where. Moving and swapping items between bins with room lowers the largest
# share of a class in one bin, and an onlooker's best guess rests on that share. This is a plain descent: nothing is
# proved, and every state on the way fits.

MAX_CELLS = 20_000_000
_STEPS = 200_000
_EXCESS = 1e6


def spread_items(
    sizes: IntArray,  # of each item, one column per resource
    class_of: IntArray,
    group_of: IntArray,
    bin_of: IntArray,
    room: IntArray,  # capacity of each bin. Shape: (bins, resources). A bin may be empty
    *,
    caps: IntArray,  # largest number of items of each class in a bin, if the descent can reach it
    seconds: float,  # seconds, seed: time limit and seed
    seed: int = 0,
) -> IntArray:
    num_classes, num_bins = int(class_of.max()) + 1, len(room)
    if num_classes * num_bins > MAX_CELLS or num_bins < 2 or seconds <= 0:
        return bin_of
    deadline = time.monotonic() + seconds
    group_of_bin = np.full(num_bins, -1, dtype=np.int64)
    group_of_bin[bin_of] = group_of
    best, value = bin_of.copy(), _value(class_of, bin_of, caps, num_bins)
    state = np.random.default_rng(seed).integers(2**62)
    now = bin_of.copy()
    idle = 0
    while idle < 3 and time.monotonic() < deadline:
        state = _descend(sizes, class_of, group_of, now, room, caps, group_of_bin, _STEPS, state)
        own = _value(class_of, now, caps, num_bins)
        idle = 0 if own < value else idle + 1
        if own < value:
            best, value = now.copy(), own
    return best


def _value(class_of: IntArray, bin_of: IntArray, caps: IntArray, num_bins: int) -> tuple[int, int]:
    """Return the items above the caps, and the sum over classes of the largest number of items in one bin."""
    pairs, counts = np.unique(class_of * num_bins + bin_of, return_counts=True)
    largest = np.zeros(len(caps), dtype=np.int64)
    np.maximum.at(largest, pairs // num_bins, counts)
    return int(np.maximum(counts - caps[pairs // num_bins], 0).sum()), int(largest.sum())


def over_caps(class_of: IntArray, bin_of: IntArray, caps: IntArray, num_bins: int) -> int:
    return _value(class_of, bin_of, caps, num_bins)[0]


@kernel
def _descend(
    sizes: IntArray,
    class_of: IntArray,
    group_of: IntArray,
    bin_of: IntArray,
    room: IntArray,
    caps: IntArray,
    group_of_bin: IntArray,
    steps: int,
    state: int,
) -> int:
    """Try random moves and swaps, and keep those that spread. Changes ``bin_of``."""
    n, resources, bins = len(class_of), sizes.shape[1], len(room)
    load = np.zeros((bins, resources), dtype=np.int64)
    counts = np.zeros((len(caps), bins), dtype=np.int64)
    total = np.zeros(len(caps), dtype=np.int64)
    contents = np.zeros(bins, dtype=np.int64)
    for i in range(n):
        counts[class_of[i], bin_of[i]] += 1
        total[class_of[i]] += 1
        contents[bin_of[i]] += 1
        for r in range(resources):
            load[bin_of[i], r] += sizes[i, r]
    word = np.uint64(state) | np.uint64(1)
    for _ in range(steps):
        word ^= word << np.uint64(13)
        word ^= word >> np.uint64(7)
        word ^= word << np.uint64(17)
        i = int(np.int64(word % np.uint64(n)))
        word ^= word << np.uint64(13)
        word ^= word >> np.uint64(7)
        word ^= word << np.uint64(17)
        alone = (word & np.uint64(3)) == np.uint64(0)
        j = int(np.int64((word >> np.uint64(8)) % np.uint64(n)))
        b = int(bin_of[i])
        t = int(bin_of[j])
        if alone:
            t = int(np.int64((word >> np.uint64(8)) % np.uint64(bins)))
        if t == b or (group_of_bin[t] >= 0 and group_of_bin[t] != group_of[i]) or (alone and contents[b] == 1):
            continue
        c = class_of[i]
        d = class_of[j]
        if c == d and not alone:
            continue
        fits = True
        for r in range(resources):
            back = 0 if alone else sizes[j, r]
            if load[t, r] + sizes[i, r] - back > room[t, r] or load[b, r] - sizes[i, r] + back > room[b, r]:
                fits = False
                break
        if not fits:
            continue
        change = 2.0 * (counts[c, t] - counts[c, b] + 1) / total[c]
        change += _EXCESS * ((counts[c, t] >= caps[c]) * 1.0 - (counts[c, b] > caps[c]) * 1.0)
        if not alone:
            change += 2.0 * (counts[d, b] - counts[d, t] + 1) / total[d]
            change += _EXCESS * ((counts[d, b] >= caps[d]) * 1.0 - (counts[d, t] > caps[d]) * 1.0)
        if change > 0.0:
            continue
        for r in range(resources):
            back = 0 if alone else sizes[j, r]
            load[t, r] += sizes[i, r] - back
            load[b, r] += back - sizes[i, r]
        counts[c, b] -= 1
        counts[c, t] += 1
        bin_of[i] = t
        if alone:
            contents[b] -= 1
            contents[t] += 1
            group_of_bin[t] = group_of[i]
        else:
            counts[d, t] -= 1
            counts[d, b] += 1
            bin_of[j] = b
    return int(word >> np.uint64(2))


def shares(laws: Sequence[FloatArray]) -> FloatArray:
    """Return about how much of a truck each row needs, over all quantities."""
    return np.asarray(sum((1 - np.cumsum(law, axis=1)).mean(axis=1) for law in laws))


@dataclass(eq=False)
class Exchanges:
    """Rows in a fixed number of bins, moved and exchanged so that everything is more likely to fit."""

    laws: list[FloatArray]  # law of each row in units, for each quantity. Shape of each: rows, units
    group: IntArray  # rows of different groups never share a bin
    bin_of_row: IntArray  # bin of each row; -1 for none yet
    num_bins: int
    loads: list[FloatArray] = field(init=False)
    rests: list[FloatArray] = field(init=False)

    def __post_init__(self) -> None:
        num = len(self.bin_of_row)
        self.tails = [np.ascontiguousarray(np.cumsum(law, axis=1)[:, ::-1].T) for law in self.laws]
        self.loads = [np.zeros((self.num_bins, law.shape[1])) for law in self.laws]
        self.rests = [np.zeros_like(law) for law in self.laws]
        self.log_bin = np.zeros(self.num_bins)  # logarithm of the chance that a bin fits
        self.log_without = np.zeros(num)  # ... that a row's bin fits without it
        self.log_with = np.zeros((self.num_bins, num))  # ... that a bin fits with a row more
        self.log_instead = np.zeros((num, num))  # ... that a row's bin fits with another row instead of it
        self.group_of_bin = np.zeros(self.num_bins, dtype=np.int64)
        placed = self.bin_of_row >= 0  # rows of a removed bin have no place yet
        self.group_of_bin[self.bin_of_row[placed]] = self.group[placed]
        self.refresh(range(self.num_bins))

    def refresh(self, bins: Iterable[int]) -> None:
        for bin_ in bins:
            rows = np.flatnonzero(self.bin_of_row == bin_)
            self.log_bin[bin_], self.log_with[bin_] = 0.0, 0.0
            self.log_without[rows], self.log_instead[rows] = 0.0, 0.0
            # einsum, because BLAS is slow for small products if it has to share its processors
            for law, tail, load, rest in zip(self.laws, self.tails, self.loads, self.rests, strict=True):
                load[bin_], rest[rows] = _with_and_without(law[rows])
                self.log_bin[bin_] += _log(load[bin_].sum())
                self.log_with[bin_] += _log(np.einsum("s,sr->r", load[bin_], tail))
                self.log_without[rows] += _log(rest[rows].sum(axis=1))
                self.log_instead[rows] += _log(np.einsum("is,sr->ir", rest[rows], tail))

    @property
    def cost(self) -> float:
        return -float(self.log_bin.sum())

    def gains_of_moves(self) -> FloatArray:
        """Return how much the logarithm grows if a row moves to a bin. Shape: bins, rows."""
        own = self.bin_of_row
        gains = self.log_with - self.log_bin[:, None] + (self.log_without - self.log_bin[own])[None]
        gains[self.group_of_bin[:, None] != self.group[None]] = -np.inf
        gains[own, np.arange(len(own))] = -np.inf
        return gains

    def gains_of_swaps(self) -> FloatArray:
        """Return how much the logarithm grows if two rows are exchanged. Shape: rows, rows."""
        own = self.bin_of_row
        before = self.log_bin[own]
        gains = self.log_instead + self.log_instead.T - before[:, None] - before[None]
        gains[(self.group[:, None] != self.group[None]) | (own[:, None] == own[None])] = -np.inf
        return gains

    def move(self, changes: dict[int, int]) -> None:
        touched = {int(self.bin_of_row[row]) for row in changes} | set(changes.values())
        for row, bin_ in changes.items():
            self.bin_of_row[row] = bin_
        self.refresh(sorted(touched))


def _log(chance: FloatArray | np.float64) -> FloatArray:
    return np.asarray(np.log(np.clip(chance, 1e-300, 1.0)))


def _with_and_without(laws: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the law of the sum of some rows, and for each row that of the sum of the others."""
    width = laws.shape[1]
    nothing = np.zeros(width)
    nothing[0] = 1.0
    before, after = [nothing], [nothing]
    for law in laws:
        before.append(np.convolve(before[-1], law)[:width])
    for law in laws[::-1]:
        after.append(np.convolve(after[-1], law)[:width])
    rests = [np.convolve(a, b)[:width] for a, b in zip(before, after[len(laws) - 1 :: -1], strict=False)]
    return before[-1], np.array(rests[: len(laws)]).reshape(len(laws), width)


def settled(state: Exchanges, budget: float, accepted: Callable[[IntArray], bool], deadline: float) -> bool:
    """Move and exchange rows, best first, until the bins are accepted; a change may not be reversed for a while."""
    num = len(state.bin_of_row)
    barred = np.zeros((state.num_bins, num), dtype=np.int64)
    least, stalled, turn = math.inf, 0, 0
    while stalled < 30 + num // 2 and time.monotonic() < deadline:
        if state.cost <= budget:
            if accepted(state.bin_of_row):
                return True
            budget = state.cost * 0.99  # the coarse chance was too high
        least, stalled = (state.cost, 0) if state.cost < least - 1e-9 else (least, stalled + 1)
        turn += 1
        changes = _best_change(state, barred >= turn, state.cost - least)
        if changes is None:
            return False
        for row in changes:
            barred[state.bin_of_row[row], row] = turn + 7 + num // 20
        state.move(changes)
    return False


def _best_change(state: Exchanges, barred: BoolArray, needed: float) -> dict[int, int] | None:
    """Return the best move or exchange that is not barred, or that beats everything before."""
    own = state.bin_of_row
    moves, swaps = state.gains_of_moves(), state.gains_of_swaps()
    back = barred[own]  # whether the column's row may not go to the bin of the line's
    moves[barred & (moves <= needed + 1e-9)] = -np.inf
    swaps[(back | back.T) & (swaps <= needed + 1e-9)] = -np.inf
    best_move, best_swap = np.unravel_index(moves.argmax(), moves.shape), np.unravel_index(swaps.argmax(), swaps.shape)
    if max(moves[best_move], swaps[best_swap]) == -np.inf:
        return None
    if moves[best_move] >= swaps[best_swap]:
        return {int(best_move[1]): int(best_move[0])}
    one, other = int(best_swap[0]), int(best_swap[1])
    return {one: int(own[other]), other: int(own[one])}


def without_bin(laws: list[FloatArray], group: IntArray, bin_of_row: IntArray, gone: int) -> Exchanges | None:
    """Remove a bin: put each of its rows, the largest first, into the bin where it fits best."""
    rows = np.flatnonzero(bin_of_row == gone)
    if not (group[bin_of_row != gone] == group[rows[0]]).any():
        return None
    left = np.where(bin_of_row == gone, -1, bin_of_row - (bin_of_row > gone))
    state = Exchanges(laws, group, left, int(bin_of_row.max()))
    for row in rows[np.argsort(-shares(laws)[rows], kind="stable")].tolist():
        gains = np.where(state.group_of_bin == group[row], state.log_with[:, row] - state.log_bin, -np.inf)
        state.bin_of_row[row] = int(gains.argmax())
        state.refresh([int(gains.argmax())])
    return state
