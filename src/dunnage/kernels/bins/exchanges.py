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

from dunnage.arrays import FloatArray, IntArray


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
    until = np.zeros((state.num_bins, num), dtype=np.int64)  # the turn up to which a row may not go back to a bin
    least, stalled, turn = math.inf, 0, 0
    while stalled < 30 + num // 2 and time.monotonic() < deadline:
        if state.cost <= budget:
            if accepted(state.bin_of_row):
                return True
            budget = state.cost * 0.99  # the coarse chance was too high
        least, stalled = (state.cost, 0) if state.cost < least - 1e-9 else (least, stalled + 1)
        turn += 1
        # The best move or exchange that is not barred, or that beats everything before
        own, shut, needed = state.bin_of_row, until >= turn, state.cost - least + 1e-9
        moves, swaps = state.gains_of_moves(), state.gains_of_swaps()
        back = shut[own]  # whether the column's row may not go to the bin of the line's
        moves[shut & (moves <= needed)] = -np.inf
        swaps[(back | back.T) & (swaps <= needed)] = -np.inf
        move, swap = np.unravel_index(moves.argmax(), moves.shape), np.unravel_index(swaps.argmax(), swaps.shape)
        if max(moves[move], swaps[swap]) == -np.inf:
            return False
        one, other = int(swap[0]), int(swap[1])
        changes = {one: int(own[other]), other: int(own[one])}
        if moves[move] >= swaps[swap]:
            changes = {int(move[1]): int(move[0])}
        for row in changes:
            until[own[row], row] = turn + 7 + num // 20
        state.move(changes)
    return False


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
