# SPDX-License-Identifier: Apache-2.0
"""What noisy values and a prior tell of the true ones: how likely a plan fits, and what any plan needs.

Given the release, true values are independent, each with a law over the grid points of its cell. The chance that a bin
fits is that of a sum of such numbers. Sums are computed on whole units, values rounded up for a bound from below and
down for one from above; floating point is allowed for by ``_ROUNDING``. ``docs/proofs/plan-risk.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.laws import Cells
from dunnage.planning.models import Prior

MOST_SEARCHED = 500
"""Most rows whose plan is searched row by row; more are packed with a buffer for each."""
LEAST_WIDTH, MOST_WIDTH = 512, 1 << 15
MOST_TOTAL_WIDTH = 1 << 18
MOST_POINTS = 10**8
_CELLS = 4_000_000
_ROUNDING = 1e-10
"""Allowance for floating point in a chance, for each row of a bin."""


def all_hold(misses: Iterable[tuple[Fraction, int]]) -> float:
    """Return, rounded down, how likely independent events all happen: how likely each does not, and how often."""
    total = 0.0
    for miss, times in misses:
        above = math.nextafter(float(miss), 1.0) if miss and times else 0.0
        if above >= 1:
            return 0.0
        total += times * math.log1p(-above)
    return max(0.0, math.exp(total) * (1 - 1e-12)) if total else 1.0


# What a prior and the noisy values tell of the true ones


@dataclass(frozen=True, eq=False)
class Beliefs:
    """One quantity of a noisy release: the law of each true value given the noisy one."""

    cells: Cells  # The noise
    prior: Prior  # What true values are drawn from: over the grid points of a row's cell, which is public
    steps: IntArray  # The distinct noisy values, as grid steps
    of_row: IntArray  # Which of them each row has

    @classmethod
    def of(cls, cells: Cells, values: FloatArray, prior: Prior) -> Beliefs:
        """Gather what noisy values tell."""
        if cells.domain.lower < 0:
            raise ParameterError("a prior is for weights of at least 0, and the domain goes below. Leave it out.")
        steps, of_row = np.unique(cells.steps(values), return_inverse=True)
        met = np.bincount(cells.index(steps), minlength=len(cells.cells))
        work = sum(int(times) * (cell.law.last + 1) for times, cell in zip(met, cells.cells, strict=True))
        if work > MOST_POINTS:
            raise ParameterError(
                f"a prior is weighed at every grid point for every noisy value: {work:,} points are too many. "
                "Leave the prior out, or ask the owner for a coarser resolution."
            )
        return cls(cells, prior, steps, of_row.reshape(-1))

    def laws(self) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """Yield some distinct values, the steps their true ones may have, and the probability of each.

        Shapes: (values,), (steps,), (values, steps).
        """
        of_cell = self.cells.index(self.steps)
        for number in np.unique(of_cell).tolist():
            cell = self.cells.cells[number]
            truth = np.arange(cell.law.last + 1)
            weights = self.prior.log_weights(self.cells.domain.grid_values(cell.first + truth))
            values = np.flatnonzero(of_cell == number)
            for part in np.array_split(values, -(-len(values) * len(truth) // _CELLS)):
                seen = (self.steps[part] - cell.first)[:, None]
                logs = cell.law.log_likelihood(seen, truth[None]) + weights
                likely = np.exp(logs - logs.max(axis=1, keepdims=True))
                yield part, cell.first + truth, likely / likely.sum(axis=1, keepdims=True)

    @cached_property
    def measure(self) -> Fraction:
        """Largest amount that every grid point is a multiple of."""
        lower, resolution = self.cells.domain.lower, self.cells.domain.resolution
        assert resolution is not None
        denominator = math.lcm(lower.denominator, resolution.denominator)
        return Fraction(math.gcd(int(lower * denominator), int(resolution * denominator)), denominator)

    def amounts(self, steps: IntArray) -> IntArray:
        """Return grid points in measures."""
        domain = self.cells.domain
        assert domain.resolution is not None
        return int(domain.lower / self.measure) + steps * int(domain.resolution / self.measure)

    @cached_property
    def tops(self) -> IntArray:
        """Largest possible true amount of each row, in measures."""
        ends = np.array([cell.end for cell in self.cells.cells])[self.cells.index(self.steps)]
        return self.amounts(ends)[self.of_row]

    @cached_property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of each row's true value."""
        mean, square = np.empty(len(self.steps)), np.empty(len(self.steps))
        for part, truth, likely in self.laws():
            points = self.cells.domain.grid_values(truth)
            mean[part] = likely @ points
            square[part] = ((points - mean[part][:, None]) ** 2 * likely).sum(axis=1)
        return mean[self.of_row], np.sqrt(square)[self.of_row]

    def quantiles(self, risk: Fraction) -> tuple[FloatArray, float]:
        """Return what each row's true value is above with at most this probability; and how likely none is above."""
        found, missed = np.empty(len(self.steps), dtype=np.int64), np.empty(len(self.steps))
        for part, truth, likely in self.laws():
            above = np.zeros_like(likely)
            above[:, :-1] = np.cumsum(likely[:, :0:-1], axis=1)[:, ::-1] * (1 + 1e-9)
            first = (above <= float(risk)).argmax(axis=1)
            found[part], missed[part] = truth[first], above[np.arange(len(part)), first]
        rows = np.bincount(self.of_row, minlength=len(self.steps)).tolist()
        likely_all = all_hold((Fraction(miss), times) for miss, times in zip(missed.tolist(), rows, strict=True))
        return self.cells.domain.grid_values(found)[self.of_row], likely_all

    def low_quantiles(self, risk: Fraction) -> FloatArray:
        """Return what each row's true value is below with at most this probability."""
        found = np.empty(len(self.steps), dtype=np.int64)
        for part, truth, likely in self.laws():
            below = np.zeros_like(likely)
            below[:, 1:] = np.cumsum(likely[:, :-1], axis=1) * (1 + 1e-9)
            found[part] = truth[len(truth) - 1 - (below <= float(risk))[:, ::-1].argmax(axis=1)]
        return self.cells.domain.grid_values(found)[self.of_row]

    def table(self, unit: int, width: int, rounded: str) -> FloatArray:
        """Return the law of each distinct value in units of so many measures, up to a width."""
        found = np.zeros((len(self.steps), width + 2))
        for part, truth, likely in self.laws():
            amounts = self.amounts(truth)
            units = -(-amounts // unit) if rounded == "up" else amounts // unit
            starts = np.flatnonzero(np.diff(units, prepend=-1))
            at = np.minimum(units[starts], width + 1)
            if rounded == "near":
                high = likely * ((amounts % unit) / unit)
                np.add.at(found, (part[:, None], np.minimum(at + 1, width + 1)), np.add.reduceat(high, starts, axis=1))
                likely = likely - high
            np.add.at(found, (part[:, None], at[None]), np.add.reduceat(likely, starts, axis=1))
        return found[:, : width + 1]


def convolved(first: FloatArray, second: FloatArray, width: int) -> FloatArray:
    """Return the laws of sums of two independent numbers each, up to a width; along the last axis."""
    from scipy import fft

    length = fft.next_fast_len(first.shape[-1] + second.shape[-1] - 1, real=True)
    product = fft.rfft(first, length) * fft.rfft(second, length)
    return np.asarray(np.maximum(fft.irfft(product, length)[..., : width + 1], 0.0))


# How likely a plan fits


@dataclass(frozen=True, eq=False)
class Odds:
    """How likely plans fit, for what is believed of each quantity."""

    beliefs: tuple[Beliefs, ...]  # The law of each row, for each quantity
    rooms: tuple[tuple[Fraction, ...], ...]  # Capacity of each kind of truck. Shape: kinds, quantities

    def __len__(self) -> int:
        return len(self.beliefs[0].of_row)

    def unit(self, axis: int, width: int) -> int:
        """Return how many measures of a quantity a unit has so that no truck holds more units than the width."""
        most = max(room[axis] for room in self.rooms) / self.beliefs[axis].measure
        return max(1, math.ceil(most / width))

    def limits(self, axis: int, unit: int) -> list[int]:
        """Return how many units of a quantity each kind of truck holds."""
        return [math.floor(room[axis] / (unit * self.beliefs[axis].measure)) for room in self.rooms]

    def _tabled(self, axis: int, rounded: str) -> tuple[FloatArray, list[int]]:
        unit = self.unit(axis, min(MOST_WIDTH, max(LEAST_WIDTH, _CELLS // len(self))))
        limits = self.limits(axis, unit)
        return self.beliefs[axis].table(unit, max(limits), rounded), limits

    @cached_property
    def _up(self) -> list[tuple[FloatArray, list[int]]]:
        return [self._tabled(axis, "up") for axis in range(len(self.beliefs))]

    @cached_property
    def down(self) -> list[tuple[FloatArray, list[int]]]:
        """Law of each distinct value of each quantity in units, rounded down, and the units that trucks hold."""
        return [self._tabled(axis, "down") for axis in range(len(self.beliefs))]

    def at_least(self, bin_of_row: IntArray, kinds: IntArray) -> float:
        """Bound from below how likely everything fits."""
        return self._chance(bin_of_row, kinds, self._up, -1)

    def at_most(self, bin_of_row: IntArray, kinds: IntArray) -> float:
        """Bound from above how likely everything fits."""
        return self._chance(bin_of_row, kinds, self.down, 1)

    def _chance(
        self, bin_of_row: IntArray, kinds: IntArray, tables: list[tuple[FloatArray, list[int]]], side: int
    ) -> float:
        total = 0.0
        sizes = np.bincount(bin_of_row, minlength=len(kinds))
        for axis, (belief, (table, limits)) in enumerate(zip(self.beliefs, tables, strict=True)):
            tops = np.zeros(len(kinds), dtype=np.int64)
            np.add.at(tops, bin_of_row, belief.tops)
            room = np.array([math.floor(room[axis] / belief.measure) for room in self.rooms])
            open_ = np.flatnonzero(tops > room[kinds])  # the others fit whatever is true
            chance = _bin_chances(table, belief.of_row, bin_of_row, sizes, np.array(limits)[kinds], open_)
            chance = np.clip(chance + side * _ROUNDING * (sizes[open_] + 1), 0.0, 1.0)
            if (chance <= 0).any():
                return 0.0
            total += float(np.log(chance).sum())
        return min(1.0, math.exp(total) * (1 + side * 1e-12)) if total else 1.0


def _bin_chances(
    table: FloatArray, of_row: IntArray, bin_of_row: IntArray, sizes: IntArray, limits: IntArray, bins: IntArray
) -> FloatArray:
    """Return how likely each of some bins holds at most its limit; bins of as many rows are done together."""
    found = np.empty(len(bins))
    if not len(bins):
        return found
    order = np.argsort(bin_of_row, kind="stable")
    starts = np.cumsum(sizes) - sizes
    cumulated = np.cumsum(table, axis=1)
    pairs = np.column_stack([sizes[bins], limits[bins]])
    for size, limit in np.unique(pairs, axis=0).tolist():
        alike = np.flatnonzero((pairs == (size, limit)).all(axis=1))
        for part in np.array_split(alike, -(-len(alike) * table.shape[1] // _CELLS)):
            # Shape: bins, rows of each
            rows = of_row[order[starts[bins[part]][:, None] + np.arange(size)]]
            loads = table[rows[:, 0]]
            for column in range(1, size - 1):
                loads = convolved(loads, table[rows[:, column]], table.shape[1] - 1)
            if size == 1:
                found[part] = cumulated[rows[:, 0], limit]
            else:
                found[part] = (loads[:, : limit + 1] * cumulated[rows[:, -1], limit::-1]).sum(axis=1)
    return found


# What any plan needs


def least_bins(odds: Odds, groups: Sequence[IntArray], risk: Fraction) -> int:
    """Bound from below how many trucks of the only kind any plan needs that fits with probability 1 - risk."""
    return sum(
        max(
            1,
            *(math.ceil(least_total(belief, rows, risk) / odds.rooms[0][axis]) for axis, belief in _each(odds)),
            *(_least_by_sharing(odds, axis, rows, risk) for axis in range(len(odds.beliefs))),
        )
        for rows in groups
    )


def _each(odds: Odds) -> Iterator[tuple[int, Beliefs]]:
    return iter(enumerate(odds.beliefs))


def least_total(belief: Beliefs, rows: IntArray, risk: Fraction) -> Fraction:
    """Bound from below what trucks must hold together, for rows to be able to fit with probability 1 - risk.

    Whenever all fit, the rows' total is at most what the trucks hold. So that is at least what the total stays below
    with probability 1 - risk: by Cantelli's inequality, and for few rows by the law of the total.
    """
    mean, deviation = belief.moments
    total, spread = float(mean[rows].sum()), math.sqrt(float((deviation[rows] ** 2).sum()))
    by_moments = (total - spread * math.sqrt(float(risk / (1 - risk)))) * (1 - 1e-9) - 1e-9
    if len(rows) > MOST_SEARCHED:
        return Fraction(max(by_moments, 0.0))
    unit = max(1, -(-int(belief.tops[rows].sum()) // MOST_TOTAL_WIDTH))
    table = belief.table(unit, int(belief.tops.max()) // unit, "down")
    sums = [table[law] for law in belief.of_row[rows].tolist()]
    while len(sums) > 1:
        joined = [convolved(a, b, len(a) + len(b)) for a, b in zip(sums[::2], sums[1::2], strict=False)]
        sums = joined + ([sums[-1]] if len(sums) % 2 else [])
    enough = np.cumsum(sums[0]) + _ROUNDING * (len(rows) + 1) >= float(1 - risk)
    by_law = int(enough.argmax()) * unit * belief.measure
    return max(by_law, Fraction(max(by_moments, 0.0)))


def _least_by_sharing(odds: Odds, axis: int, rows: IntArray, risk: Fraction) -> int:
    """Bound from below how many trucks are needed, by what it costs a row at least to share one with so many others.

    The logarithms of the bins' chances have a budget in common. A row in a bin of a rows is 1/a of a truck, and takes
    1/a of the bin's part of the budget, which is at least what the row and the a - 1 smallest rows take. Any price for
    the budget gives a bound.
    """
    if len(odds) > MOST_SEARCHED:
        return 0
    table, (limit,) = odds.down[axis]
    cumulated = np.cumsum(table[odds.beliefs[axis].of_row[rows]], axis=1)
    smallest = _smallest(cumulated)
    loads = np.zeros(limit + 1)
    loads[0] = 1.0
    costs: list[FloatArray] = []
    for others, smaller in enumerate(smallest):
        chance = np.minimum(cumulated[:, ::-1] @ loads + _ROUNDING * (others + 2), 1.0)
        allowed = chance >= float(1 - risk)
        if not allowed.any():
            break
        costs.append(np.where(allowed, -np.log(np.maximum(chance, 1e-300)), np.inf))
        loads = convolved(loads, smaller, limit)
    if not costs:
        return len(rows)
    return math.ceil(_best_price(np.array(costs), -math.log1p(-float(risk)) + 1e-12) - 1e-6)


def _smallest(cumulated: FloatArray) -> FloatArray:
    """Return laws such that the sum of any a rows is at least, in law, that of the first a; one for each row."""
    ordered = cumulated[np.argsort(-cumulated.sum(axis=1), kind="stable")]
    if (np.diff(ordered, axis=0) > 1e-12).any():  # rows cannot be ordered: none is smaller than the least of all
        ordered = np.broadcast_to(cumulated.max(axis=0), cumulated.shape)
    return np.diff(ordered, axis=1, prepend=0.0)


def _best_price(costs: FloatArray, budget: float) -> float:
    """Return the best bound over prices of the budget. Shape of costs: rows in the bin, rows."""
    share = 1.0 / np.arange(1, len(costs) + 1)[:, None]
    barred = np.isinf(costs)  # sharing that is not allowed is not free at price 0 either
    paid = np.where(barred, 0.0, costs)
    bounds: list[float] = []
    for price in (0.0, *np.geomspace(1e-2, 1e4, 61).tolist()):
        parts = np.where(barred, np.inf, share * (1 + price * paid)).min(axis=0)
        bounds.append(float(parts.sum()) - price * budget)
    return max(bounds)


def least_cost(odds: Odds, costs: IntArray, risk: Fraction) -> int:
    """Bound from below what trucks cost, by what they must hold together."""
    everything = np.arange(len(odds))
    found = [int(costs.min())]
    for axis, belief in enumerate(odds.beliefs):
        cheapest = min(int(cost) / room[axis] for cost, room in zip(costs.tolist(), odds.rooms, strict=True))
        found.append(math.ceil(least_total(belief, everything, risk) * cheapest))
    return max(found)
