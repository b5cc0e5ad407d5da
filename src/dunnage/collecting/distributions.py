# SPDX-License-Identifier: Apache-2.0
"""What square-wave reports say about shares of values: how small or large the share of a range can be.

A report falls into a window around its value, or anywhere. Reports are counted in groups, and the chance of each group
is a piecewise linear function of the value, with *knots* where an end of the window meets an end of the group. So the
values behind any reports may be taken to lie on knots: a value between two of them counts as a mixture of both, and
nothing is assumed about how values are spread.

The interval of a share has the shares of all distributions whose squared distance from the counts, in standard
deviations, exceeds the least possible one by no more than a quantile of the chi-square law (Rust and Burrus 1972, Stark
1992). At its upper end, the range includes all knots from which a part of it can be mixed; at its lower end, only those
that mix to nothing outside it. The quantile has two degrees of freedom, where one would do inside the set of all
distributions. Shares of exactly 0 or 1 leave whole stretches of the domain empty, where the nearest distribution
follows chance in every window: they are excluded only beyond the quantile with one more degree for each window in it.
How often intervals are right is measured, not proved: ``docs/proofs/local-numeric.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dunnage.arrays import FloatArray
from dunnage.devices.numbers import SquareWave, odds_of

KNOTS = 4  # Equal parts of a bin
_TURNS = 500
_TRIES = 40
_CLOSE = 0.01
_RIDGE = 1e-9


class ShareBounds:
    """The shares that agree with the reports of one or more tiers, if these have one distribution."""

    def __init__(self, laws: Sequence[SquareWave], counts: Sequence[ArrayLike], bins: int) -> None:
        self.size, self.window = 2 * laws[0].steps, min(law.window for law in laws)
        parts = min(KNOTS * bins, self.size)
        grid = np.rint(np.linspace(0, self.size, parts + 1)).astype(np.int64)
        places = np.concatenate([grid, *(grid + law.window for law in laws), *(grid - law.window for law in laws)])
        self.knots = np.unique(np.clip(places, 0, self.size))
        self.starts = []  # where groups of symbols begin, in each tier
        channels, frequencies, nums = [], [], []
        for law, count in zip(laws, counts, strict=True):
            array = np.asarray(count, dtype=np.float64)
            starts = np.unique(np.concatenate([grid, grid + law.window]))[:-1]  # symbols count from 0 here
            self.starts.append(starts)
            ends = np.append(starts[1:], array.size)
            inside = [np.clip(end[:, None] - self.knots, 0, law.window) for end in (starts, ends)]
            odds = float(odds_of(law.epsilon))
            weights = (ends - starts)[:, None] + (odds - 1) * (inside[1] - inside[0])
            channels.append(weights / (law.window * odds + law.num_outside))
            frequencies.append(np.add.reduceat(array, starts) / array.sum())
            nums.append(np.full(starts.size, array.sum()))
        self.channel, observed, num = (np.concatenate(part) for part in (channels, frequencies, nums))
        expected = self.channel.mean(axis=1)
        for _ in range(2):  # the variance of a count is that of an even distribution first, then of the nearest one
            weight = num / expected
            whole = 1e3 * float(weight.mean())  # shares add up to 1, nearly
            self.matrix = self.channel.T @ (weight[:, None] * self.channel) + whole
            self.matrix[np.diag_indices(self.knots.size)] *= 1 + _RIDGE
            self.vector = self.channel.T @ (weight * observed) + whole
            everywhere, nowhere = np.ones(self.knots.size, dtype=np.bool_), np.zeros(self.knots.size, dtype=np.bool_)
            self.shares, self.active = self._nearest(self.vector, nowhere, everywhere)
            expected = self.channel @ self.shares
        self.least = self._distance(self.shares)

    def share(self, low: float, high: float, confidence: float) -> tuple[float, float, float]:
        """Return a share of values from ``low`` to ``high``, parts of the domain, with its least and largest one."""
        first, last = low * self.size, high * self.size
        before, after = np.append(0, self.knots[:-1]), np.append(self.knots[1:], self.size)
        within = (before >= first) & (after <= last) & ((self.knots < last) | (high == 1))
        touches = ((after > first) & (before < last)) | ((self.knots >= first) & (self.knots <= last))
        least = 0.0 if self._possible(~within, last - first, confidence) else self._least(within, confidence)
        outside = self.size - (last - first)
        most = 1.0 if self._possible(touches, outside, confidence) else 1 - self._least(~touches, confidence)
        middle = float(self.shares[within].sum() + self.shares[touches].sum()) / 2
        return min(max(middle, least), max(least, most)), least, max(least, most)

    def _distance(self, shares: FloatArray) -> float:
        return float(shares @ self.matrix @ shares - 2 * self.vector @ shares)

    def _possible(self, allowed: NDArray[np.bool_], empty: float, confidence: float) -> bool:
        """Return whether all values may lie on the allowed knots, so that this length of the domain is empty."""
        from scipy.special import chdtri

        if not allowed.any():
            return False
        shares, _ = self._nearest(self.vector, self.active & allowed, allowed)
        return self._distance(shares) - self.least <= float(chdtri(1 + empty / self.window, 1 - confidence))

    def _least(self, goal: NDArray[np.bool_], confidence: float) -> float:
        """Return the smallest sum of these shares whose distance is not too large."""
        # They minimise half the distance plus a multiple of the sum: the larger the multiple, the further they are.
        if not goal.any():
            return 0.0
        reach = math.sqrt(-2 * math.log(1 - confidence))
        active, own, wanted = self.active, np.flatnonzero(self.active), goal.astype(np.float64)
        spread = wanted[own] @ np.linalg.solve(self.matrix[np.ix_(own, own)], wanted[own])
        push = reach / math.sqrt(max(float(spread), float(np.max(wanted / self.matrix.diagonal()))))
        below, above = (0.0, 0.0), None  # multiples and their distances, on either side of the reach
        for _ in range(_TRIES):
            shares, active = self._nearest(self.vector - push * wanted, active, np.ones_like(active))
            away = math.sqrt(max(self._distance(shares) - self.least, 0.0))
            if abs(away - reach) <= _CLOSE * reach or (away < reach and not shares[goal].any()):
                break
            below, above = ((push, away), above) if away < reach else (below, (push, away))
            if above is None:
                push *= min(reach / max(away, 1e-3 * reach), 8.0)
            else:
                part = (reach - below[1]) / (above[1] - below[1])
                push = below[0] + min(max(part, 0.05), 0.95) * (above[0] - below[0])
        return float(shares[goal].sum()) / float(shares.sum())

    def _nearest(
        self, vector: FloatArray, active: NDArray[np.bool_], allowed: NDArray[np.bool_]
    ) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Minimise ``x M x / 2 - vector x`` over x of at least 0, beginning with active knots (Lawson and Hanson)."""

        def solve() -> FloatArray:
            own, solution = np.flatnonzero(active), np.zeros(vector.size)
            if own.size:
                solution[own] = np.linalg.solve(self.matrix[np.ix_(own, own)], vector[own])
            return solution

        shares = solve()
        while np.any(shares[active] <= 0):
            active = active & (shares > 0)
            shares = solve()
        for _ in range(_TURNS):
            gain = np.where(active | ~allowed, -math.inf, vector - self.matrix @ shares)
            enters = int(gain.argmax())
            if gain[enters] <= 1e-9 * float(np.abs(vector).max()):
                break
            active = active.copy()
            active[enters] = True
            moved = solve()
            while np.any(moved[active] <= 0):
                bad = np.flatnonzero(active & (moved <= 0))
                step = float(np.min(shares[bad] / (shares[bad] - moved[bad] + 1e-300)))
                shares = shares + step * (moved - shares)
                active = active & (shares > 1e-14)
                shares[~active] = 0.0
                moved = solve()
            shares = moved
        return shares, active
