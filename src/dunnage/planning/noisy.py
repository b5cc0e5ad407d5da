# SPDX-License-Identifier: Apache-2.0
"""Planning on noisy releases: how likely a whole plan fits if it was chosen after the noise was seen.

A planner puts rows together because their noisy weights are small, and these are often rows that noise made small. So
the noise of the rows in a chosen bin is not typical noise, and a bound that assumes so is wrong
(``papers/li2022_naive.py`` shows how it fails). Two other bounds are true:

- *simultaneous*: with the stated probability, all rows are at most their sizes at the same time. So any plan that fits
  the sizes fits, whichever plan was chosen and whatever the data;
- *posterior*: if true weights come from a stated prior then, given the release, they are independent with known laws.
  The probability of any plan follows exactly, on average over the prior.

Then the probability that a bin fits is that of a sum of independent numbers. Sums are computed in whole units. Values
are rounded up for a lower bound and down for an upper bound; ``_ROUNDING`` allows for floating point.

``docs/proofs/plan-risk.md`` has the proofs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import NoPlanError, ParameterError
from dunnage.exact import exact, shown_number
from dunnage.kernels.bins.exchanges import settled, shares, without_bin
from dunnage.kernels.deadline import NEVER, Deadline
from dunnage.model.laws import Cells
from dunnage.planning.linkage import noisy_rows, stated_cells
from dunnage.planning.models import Model, Prior, Sealed, Standard, Stochastic
from dunnage.planning.plan import Certified
from dunnage.planning.problem import PackingProblem, Telling
from dunnage.release import Release, Uncertain

Packed = tuple[IntArray, IntArray, int]  # bin of each row, kind of each bin, and a bound in whole costs

SEARCH_WIDTH = 400
_BUFFERS = 8
_LARGEST_BUFFER = 8.0
_TRIES = 4
_SHARE = 0.05
_SEARCH_SECONDS = 8.0
_ALMOST_SURE = Fraction(10**9 - 1, 10**9)

ANY_DATA = (
    "the law of the noise, for any data and whichever plan is chosen after seeing the noisy values: all rows are at "
    "most their {size} at the same time"
)


# What the release says about its noise


def check_model(release: Release, model: Model, spread: int | None) -> None:
    remedy = "Use the standard model, or the stochastic model with a risk."
    if isinstance(model, Stochastic) and model.prior is not None and (not release.noisy or release.classes is not None):
        raise ParameterError("a prior is only for releases with noisy rows and no classes. Remove the prior.")
    if release.certificate.rows.slots is not None and not isinstance(model, Sealed) and model != Standard():
        raise ParameterError("a slot is as large as it says, so only the standard and sealed models apply. Use one.")
    if not release.noisy:
        return
    if spread is not None:
        raise ParameterError(f"a spread is only for classes, and noisy rows have no class. Remove the spread. {remedy}")
    if not isinstance(model, Standard | Stochastic):
        raise ParameterError(f"the {model.name} model is only for classes, and noisy rows have no class. {remedy}")
    if isinstance(model, Stochastic) and model.as_published:
        raise ParameterError(f"the published stochastic model permutes classes, and noisy rows have no class. {remedy}")


def cells_of(release: Release, name: str) -> Cells:
    stated = (release.certificate.rows.noise or {}).get(name)
    if stated is None:
        raise ParameterError(
            f"the release does not state the law of its noise on {name}, so no risk can be computed. Use the standard "
            "model."
        )
    return stated_cells(release, name, stated)


# Sizes that are valid for any data


def intervals_hold(problem: PackingProblem) -> Certified | None:
    """Return how likely every row is at most the upper end of its interval; None if no law is stated."""
    if problem.release.certificate.rows.noise is None:
        return None
    noisy = noisy_rows(problem.release)
    misses: list[tuple[Fraction, int]] = []
    for known in problem.known:
        cells = cells_of(problem.release, known.name)
        # Without a released noisy value, the lower end also shows the cell.
        met = np.bincount(cells.index(cells.steps(known.lower[noisy])), minlength=len(cells.cells)).tolist()
        laws = [cell.law for cell in cells.cells]
        each = [law.miss(law.radius) if law.radius >= 0 else Fraction(1) for law in laws]
        misses += zip(each, met, strict=True)
    rests = ANY_DATA.format(size="upper end")
    return Certified(at_least=all_hold(misses), at_most=1.0, rests_on=rests)


def item_risk(risk: Fraction, num: int) -> Fraction:
    """Return the largest share, rounded down, with (1 - share)^num >= 1 - risk."""
    if not risk or not num:
        return risk
    # The share is at least risk / num, so 60 more digits than that has are enough.
    context = Context(prec=80 + len(str(num)) + len(str(risk.denominator)))
    left = context.divide(Decimal((1 - risk).numerator), Decimal((1 - risk).denominator))
    root = context.exp(context.divide(context.ln(left), Decimal(num)))
    share = Fraction(1) - Fraction(root)
    # One unit less, for the rounding of the logarithm and the root.
    return Fraction(math.floor(share * 10**60) - 1, 10**60) if share > Fraction(1, 10**20) else risk / num


def simultaneous_sizes(problem: PackingProblem, risk: Fraction) -> tuple[list[FloatArray], Certified]:
    """Return a size for each row and quantity; for any data, all hold together with probability 1 - risk."""
    noisy = noisy_rows(problem.release)
    share = item_risk(risk, len(noisy) * len(problem.known))
    sizes, misses = [], list[tuple[Fraction, int]]()
    for known in problem.known:
        cells = cells_of(problem.release, known.name)
        values = _noisy_values(cells, known, noisy)
        upper = known.upper.copy()
        upper[noisy] = cells.upper(values, share)
        sizes.append(upper)
        met = np.bincount(cells.index(cells.steps(values)), minlength=len(cells.cells)).tolist()
        misses += [(cell.law.miss(cell.law.reach(share)), times) for cell, times in zip(cells.cells, met, strict=True)]
    return sizes, Certified(at_least=all_hold(misses), at_most=1.0, rests_on=ANY_DATA.format(size="size"))


def _noisy_values(cells: Cells, known: Uncertain, rows: IntArray) -> FloatArray:
    """Return the noisy values of some rows; if only intervals were released, the largest possible noisy values."""
    values = (known.upper if known.nominal is None else known.nominal)[rows]
    if not cells.domain.contains(values).all():
        raise ParameterError("a noisy value is outside its public domain. Verify the release.")
    if known.nominal is not None:
        return values
    high = cells.domain.steps_below(values)
    of_cell = cells.index(high)
    end = np.array([cell.end for cell in cells.cells])[of_cell]
    radius = np.array([max(cell.law.radius, 0) for cell in cells.cells])[of_cell]
    # An interval that was cut at the end of its cell can have its centre anywhere near that end.
    return cells.domain.grid_values(np.where(high < end, high - radius, end))


# The plan under a prior


def odds_of(problem: PackingProblem, prior: Prior) -> Odds:
    if prior.mean is not None and len(problem.known) > 1:
        raise ParameterError(
            "a normal prior is for one quantity, but there are several. Use the uniform prior, or pack one quantity."
        )
    beliefs = []
    for known in problem.known:
        cells = cells_of(problem.release, known.name)
        beliefs.append(Beliefs.of(cells, _noisy_values(cells, known, noisy_rows(problem.release)), prior))
    rooms = tuple(
        tuple(exact(truck.capacity[known.name], what="capacity") for known in problem.known) for truck in problem.trucks
    )
    return Odds(tuple(beliefs), rooms)


class LikelyPlan(NamedTuple):
    bin_of_row: IntArray
    kinds: IntArray
    bound: int
    certified: Certified


def likely_plan(
    problem: PackingProblem,
    model: Stochastic,
    packed: Callable[[Sequence[FloatArray], float], Packed],  # packs rows of given sizes within some seconds
    groups: Sequence[IntArray],  # rows of each group; groups are packed apart
    deadline: float,
    tell: Telling | None = None,
) -> LikelyPlan:
    """Pack noisy rows so that everything fits with probability 1 - risk, given the release, under the model's prior."""
    stop, risk = Deadline(deadline), model.risk
    odds = odds_of(problem, Prior.parse(model.prior or "uniform"))
    costs = np.array([kind.cost for kind in problem.kinds(np.zeros((len(problem.trucks), len(problem.known)), int))])
    (bins, kinds), low = _started(problem, odds, risk, packed, costs, stop)
    bound = 0
    if len(odds) <= MAX_SEARCHED and not stop.late:  # with more rows, the sizes would be almost 0
        # Pack sizes that all rows reach together with a probability above the risk. A plan that fits with probability
        # 1 - risk must sometimes fit while all rows are that large, so its cost is at least that of this packing.
        share = item_risk(1 - risk, len(odds) * len(odds.beliefs)) * Fraction(999_999, 10**6) if risk else _ALMOST_SURE
        sizes = [belief.low_quantiles(share) for belief in odds.beliefs]
        with contextlib.suppress(NoPlanError):
            bound = packed(sizes, _seconds(odds, stop))[2]
    if len(problem.trucks) > 1:
        bound = max(bound, least_cost(odds, costs, risk))
    else:
        bound = max(bound, least_bins(odds, groups, risk))
        if len(odds) <= MAX_SEARCHED:
            bins, low = _searched(odds, problem.group, (bins, low), bound, risk, stop, tell)
        kinds = np.zeros(int(bins.max()) + 1, dtype=np.int64)
    at_least = max(low, odds.at_least(bins, kinds, stop))
    parts = []
    for known, belief in zip(problem.known, odds.beliefs, strict=True):
        domain, prior = belief.cells.domain, belief.prior
        assert domain.resolution is not None
        ends = f"{shown_number(domain.lower)} to {shown_number(domain.upper)} {known.unit}".strip()
        parts.append(f"{prior.text} over {known.name} from {ends} in steps of {shown_number(domain.resolution)}")
    rests_on = (
        f"the stated prior ({'; '.join(parts)}): right on average over data sampled from it, whichever plan is chosen, "
        "but not for every dataset"
    )
    certified = Certified(at_least=at_least, at_most=odds.at_most(bins, kinds, stop), rests_on=rests_on)
    return LikelyPlan(bins, kinds, bound, certified)


def _searched(
    odds: Odds,
    group: IntArray,
    plan: tuple[IntArray, float],  # bin of each row, and how likely everything fits at least
    bound: int,
    risk: Fraction,
    deadline: Deadline,
    tell: Telling | None,
) -> tuple[IntArray, float]:
    """Remove bins one by one, as long as everything still fits with the required probability."""
    budget = -math.log1p(-float(risk))
    stop = deadline.part(most=_SEARCH_SECONDS)
    if stop.late:
        return plan
    laws = []
    for axis, belief in enumerate(odds.beliefs):
        unit = odds.unit(axis, SEARCH_WIDTH)
        laws.append(belief.table(unit, odds.limits(axis, unit)[0], "near")[belief.of_row])
    best, low = plan

    def accepted(bins: IntArray) -> bool:
        nonlocal low
        likely = odds.at_least(bins, np.zeros(int(bins.max()) + 1, dtype=np.int64), stop)
        low = likely if likely >= 1 - risk else low
        return likely >= 1 - risk

    while (num := int(best.max()) + 1) > bound and not stop.late:
        if tell is not None:
            tell("packing", num, bound)
        loads = np.bincount(best, weights=shares(laws))
        for gone in np.argsort(loads, kind="stable")[:_TRIES].tolist():
            state = without_bin(laws, group, best, gone)
            if state is not None and settled(state, budget, accepted, stop):
                best = state.bin_of_row
                break
        else:
            break
    return best, low


def plan_odds(
    problem: PackingProblem, model: Stochastic, bin_of_row: IntArray, kinds: IntArray, deadline: Deadline = NEVER
) -> tuple[float, float]:
    """Return a lower and an upper bound on how likely a plan fits given the release, under the model's prior."""
    odds = odds_of(problem, Prior.parse(model.prior or "uniform"))
    return odds.at_least(bin_of_row, kinds, deadline), odds.at_most(bin_of_row, kinds, deadline)


def _seconds(odds: Odds, deadline: Deadline) -> float:
    return deadline.part(_SHARE, most=0.001 * len(odds) + 0.5).left


def _started(
    problem: PackingProblem,
    odds: Odds,
    risk: Fraction,
    packed: Callable[[Sequence[FloatArray], float], Packed],
    costs: IntArray,
    deadline: Deadline,
) -> tuple[tuple[IntArray, IntArray], float]:
    """Return the cheapest likely plan on one size per row, and how likely it fits at least, as far as is known."""
    plans: list[tuple[int, float, float, IntArray, IntArray]] = []  # cost, tie-break, at least how likely, bins, kinds

    def offer(sizes: Sequence[FloatArray], sure: float = 0.0) -> bool:
        try:
            bins, kinds, _ = packed(sizes, _seconds(odds, deadline))
        except NoPlanError:
            return True  # try smaller sizes, as if these had been enough
        # The first plan is needed, however long it takes.
        low = sure if sure >= 1 - risk else odds.at_least(bins, kinds, deadline if plans else NEVER)
        if low >= 1 - risk:
            plans.append((int(costs[kinds].sum()), -sure, low, bins, kinds))
        return low >= 1 - risk

    share = item_risk(risk, len(odds) * len(odds.beliefs))
    quantiles = [belief.quantiles(share) for belief in odds.beliefs]
    offer([sizes for sizes, _ in quantiles], math.prod(sure for _, sure in quantiles))
    if not plans or not deadline.late:
        # Accepted only if likely given this release: choosing the better of two kinds of plan would add up their risks.
        offer(simultaneous_sizes(problem, risk)[0])
    small, large, halfway = 0.0, _LARGEST_BUFFER, deadline.part(1 / 2)
    for _ in range(_BUFFERS):
        if halfway.late:
            break
        middle = (small + large) / 2
        sizes = []
        for axis, belief in enumerate(odds.beliefs):
            # The mean of each row and some deviations, rounded up to the grid, but at most the capacity of a truck: a
            # row that may exceed every truck travels alone, and counts with its own probability.
            (mean, deviation), domain = belief.moments, belief.cells.domain
            wanted = domain.steps_above(domain.clamp(mean + middle * deviation))
            largest = np.array([max(room[axis] for room in odds.rooms)], dtype=np.float64)
            most = int(domain.steps_below(domain.clamp(largest))[0])
            sizes.append(domain.grid_values(np.minimum(wanted, most)))
        small, large = (small, middle) if offer(sizes) else (middle, large)
    alone = np.arange(len(odds))
    for kind, truck in enumerate(() if plans else problem.trucks):
        if truck.count is None or truck.count >= len(odds):
            kinds = np.full(len(odds), kind)
            if (low := odds.at_least(alone, kinds)) >= 1 - risk:
                plans.append((int(costs[kinds].sum()), 0.0, low, alone, kinds))
    if not plans:
        raise NoPlanError(
            f"Dunnage could not make a plan that fits with probability {shown_number(1 - risk)}. {problem.remedy} Or "
            "allow more risk."
        )
    _, _, low, bins, kinds = min(plans, key=lambda one: one[:2])
    return (bins, kinds), low


# True values, given noisy values and a prior


MAX_SEARCHED = 500  # maximum number of rows for a search row by row; more rows are packed with a buffer for each
MIN_WIDTH, MAX_WIDTH = 512, 1 << 15
MAX_TOTAL_WIDTH = 1 << 18
MAX_POINTS = 10**8
_CELLS = 4_000_000
_ROUNDING = 1e-10  # allowance for floating point in a probability, for each row of a bin


def all_hold(misses: Iterable[tuple[Fraction, int]]) -> float:
    """Return, rounded down, how likely all of some independent events happen, from (probability to fail, number)."""
    total = 0.0
    for miss, times in misses:
        above = math.nextafter(float(miss), 1.0) if miss and times else 0.0
        if above >= 1:
            return 0.0
        total += times * math.log1p(-above)
    return max(0.0, math.exp(total) * (1 - 1e-12)) if total else 1.0


@dataclass(frozen=True, eq=False)
class Beliefs:
    """One quantity of a noisy release: the law of each true value given the noisy one."""

    cells: Cells  # the noise
    prior: Prior  # of true values, over the grid points of a row's cell, which is public
    steps: IntArray  # the distinct noisy values, as grid steps
    of_row: IntArray  # which of them each row has

    @classmethod
    def of(cls, cells: Cells, values: FloatArray, prior: Prior) -> Beliefs:
        if cells.domain.lower < 0:
            raise ParameterError(
                "a prior is only for weights of at least 0, but the domain includes negative values. Remove the prior."
            )
        steps, of_row = np.unique(cells.steps(values), return_inverse=True)
        met = np.bincount(cells.index(steps), minlength=len(cells.cells))
        work = sum(int(times) * (cell.law.last + 1) for times, cell in zip(met, cells.cells, strict=True))
        if work > MAX_POINTS:
            raise ParameterError(
                f"a prior needs every grid point for every noisy value: {work:,} points are too many. Remove the "
                "prior, or ask the owner for a coarser resolution."
            )
        return cls(cells, prior, steps, of_row.reshape(-1))

    def laws(self) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """Yield some distinct noisy values, the steps of their true values, and probabilities (values by steps)."""
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
        """The largest amount of which every grid point is a multiple."""
        lower, resolution = self.cells.domain.lower, self.cells.domain.resolution
        assert resolution is not None
        denominator = math.lcm(lower.denominator, resolution.denominator)
        return Fraction(math.gcd(int(lower * denominator), int(resolution * denominator)), denominator)

    def amounts(self, steps: IntArray) -> IntArray:
        domain = self.cells.domain
        assert domain.resolution is not None
        return int(domain.lower / self.measure) + steps * int(domain.resolution / self.measure)

    @cached_property
    def tops(self) -> IntArray:
        """The largest possible true amount of each row, in measures."""
        ends = np.array([cell.end for cell in self.cells.cells])[self.cells.index(self.steps)]
        return self.amounts(ends)[self.of_row]

    @cached_property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        mean, square = np.empty(len(self.steps)), np.empty(len(self.steps))
        for part, truth, likely in self.laws():
            points = self.cells.domain.grid_values(truth)
            mean[part] = likely @ points
            square[part] = ((points - mean[part][:, None]) ** 2 * likely).sum(axis=1)
        return mean[self.of_row], np.sqrt(square)[self.of_row]

    def quantiles(self, risk: Fraction) -> tuple[FloatArray, float]:
        """Return values that rows exceed with at most this probability each, and how likely none does."""
        steps, missed = np.empty(len(self.steps), dtype=np.int64), np.empty(len(self.steps))
        for part, truth, likely in self.laws():
            above = np.zeros_like(likely)
            above[:, :-1] = np.cumsum(likely[:, :0:-1], axis=1)[:, ::-1] * (1 + 1e-9)
            first = (above <= float(risk)).argmax(axis=1)
            steps[part], missed[part] = truth[first], above[np.arange(len(part)), first]
        rows = np.bincount(self.of_row, minlength=len(self.steps)).tolist()
        likely_all = all_hold((Fraction(miss), times) for miss, times in zip(missed.tolist(), rows, strict=True))
        return self.cells.domain.grid_values(steps)[self.of_row], likely_all

    def low_quantiles(self, risk: Fraction) -> FloatArray:
        """Return a value that each row's true value is below with at most this probability."""
        steps = np.empty(len(self.steps), dtype=np.int64)
        for part, truth, likely in self.laws():
            below = np.zeros_like(likely)
            below[:, 1:] = np.cumsum(likely[:, :-1], axis=1) * (1 + 1e-9)
            steps[part] = truth[len(truth) - 1 - (below <= float(risk))[:, ::-1].argmax(axis=1)]
        return self.cells.domain.grid_values(steps)[self.of_row]

    def table(self, unit: int, width: int, rounded: str) -> FloatArray:
        """Return the law of each distinct value in units of ``unit`` measures, up to a width."""
        table = np.zeros((len(self.steps), width + 2))
        for part, truth, likely in self.laws():
            amounts = self.amounts(truth)
            units = -(-amounts // unit) if rounded == "up" else amounts // unit
            starts = np.flatnonzero(np.diff(units, prepend=-1))
            at = np.minimum(units[starts], width + 1)
            if rounded == "near":
                high = likely * ((amounts % unit) / unit)
                np.add.at(table, (part[:, None], np.minimum(at + 1, width + 1)), np.add.reduceat(high, starts, axis=1))
                likely = likely - high
            np.add.at(table, (part[:, None], at[None]), np.add.reduceat(likely, starts, axis=1))
        return table[:, : width + 1]


def convolved(first: FloatArray, second: FloatArray, width: int) -> FloatArray:
    """Return the laws of sums of pairs of independent numbers, up to a width, along the last axis."""
    from scipy import fft

    length = fft.next_fast_len(first.shape[-1] + second.shape[-1] - 1, real=True)
    product = fft.rfft(first, length) * fft.rfft(second, length)
    return np.asarray(np.maximum(fft.irfft(product, length)[..., : width + 1], 0.0))


# How likely a plan fits


@dataclass(frozen=True, eq=False)
class Odds:
    """How likely plans fit, given the laws of each quantity."""

    beliefs: tuple[Beliefs, ...]  # the law of each row, for each quantity
    rooms: tuple[tuple[Fraction, ...], ...]  # capacity of each kind of truck. Shape: kinds, quantities

    def __len__(self) -> int:
        return len(self.beliefs[0].of_row)

    def unit(self, axis: int, width: int) -> int:
        """Return the number of measures in a unit, so that no truck holds more units than the width."""
        most = max(room[axis] for room in self.rooms) / self.beliefs[axis].measure
        return max(1, math.ceil(most / width))

    def limits(self, axis: int, unit: int) -> list[int]:
        return [math.floor(room[axis] / (unit * self.beliefs[axis].measure)) for room in self.rooms]

    def _tabled(self, axis: int, rounded: str) -> tuple[FloatArray, list[int]]:
        unit = self.unit(axis, min(MAX_WIDTH, max(MIN_WIDTH, _CELLS // len(self))))
        limits = self.limits(axis, unit)
        return self.beliefs[axis].table(unit, max(limits), rounded), limits

    @cached_property
    def _up(self) -> list[tuple[FloatArray, list[int]]]:
        return [self._tabled(axis, "up") for axis in range(len(self.beliefs))]

    @cached_property
    def down(self) -> list[tuple[FloatArray, list[int]]]:
        """The law of each distinct value of each quantity in units, rounded down, and the capacities in units."""
        return [self._tabled(axis, "down") for axis in range(len(self.beliefs))]

    def at_least(self, bin_of_row: IntArray, kinds: IntArray, deadline: Deadline = NEVER) -> float:
        return 0.0 if deadline.late else self._chance(bin_of_row, kinds, -1, deadline)

    def at_most(self, bin_of_row: IntArray, kinds: IntArray, deadline: Deadline = NEVER) -> float:
        return 1.0 if deadline.late else self._chance(bin_of_row, kinds, 1, deadline)

    def _chance(self, bin_of_row: IntArray, kinds: IntArray, side: int, deadline: Deadline) -> float:
        total = 0.0
        sizes = np.bincount(bin_of_row, minlength=len(kinds))
        tables = self._up if side < 0 else self.down
        for axis, (belief, (table, limits)) in enumerate(zip(self.beliefs, tables, strict=True)):
            tops = np.zeros(len(kinds), dtype=np.int64)
            np.add.at(tops, bin_of_row, belief.tops)
            room = np.array([math.floor(room[axis] / belief.measure) for room in self.rooms])
            open_ = np.flatnonzero(tops > room[kinds])  # the others always fit
            chance = np.empty(len(open_))
            order, starts = np.argsort(bin_of_row, kind="stable"), np.cumsum(sizes) - sizes
            cumulated = np.cumsum(table, axis=1)
            pairs = np.column_stack([sizes, np.array(limits)[kinds]])[open_]
            for size, limit in np.unique(pairs, axis=0).tolist():  # bins with equally many rows are done together
                alike = np.flatnonzero((pairs == (size, limit)).all(axis=1))
                for part in np.array_split(alike, -(-len(alike) * table.shape[1] // _CELLS)):
                    # Shape: bins, rows of each
                    rows = belief.of_row[order[starts[open_[part]][:, None] + np.arange(size)]]
                    loads = table[rows[:, 0]]
                    for column in range(1, size - 1):
                        if deadline.late:
                            return 0.0 if side < 0 else 1.0
                        loads = convolved(loads, table[rows[:, column]], table.shape[1] - 1)
                    if size == 1:
                        chance[part] = cumulated[rows[:, 0], limit]
                    else:
                        chance[part] = (loads[:, : limit + 1] * cumulated[rows[:, -1], limit::-1]).sum(axis=1)
            chance = np.clip(chance + side * _ROUNDING * (sizes[open_] + 1), 0.0, 1.0)
            if (chance <= 0).any():
                return 0.0
            total += float(np.log(chance).sum())
        return min(1.0, math.exp(total) * (1 + side * 1e-12)) if total else 1.0


# Lower bounds for any plan


def least_bins(odds: Odds, groups: Sequence[IntArray], risk: Fraction) -> int:
    """Return a lower bound on the trucks of any plan that fits with probability 1 - risk, with one kind of truck."""
    return sum(
        max(
            1,
            *(
                math.ceil(least_total(belief, rows, risk) / odds.rooms[0][axis])
                for axis, belief in enumerate(odds.beliefs)
            ),
            *(_least_by_sharing(odds, axis, rows, risk) for axis in range(len(odds.beliefs))),
        )
        for rows in groups
    )


def least_total(belief: Beliefs, rows: IntArray, risk: Fraction) -> Fraction:
    """Return a lower bound on the total capacity of trucks, if rows are to fit with probability 1 - risk."""
    # Whenever all rows fit, their total is at most the total capacity. So that is at least the value below which the
    # total stays with probability 1 - risk: by Cantelli's inequality and, for few rows, by the law of the total.
    mean, deviation = belief.moments
    total, spread = float(mean[rows].sum()), math.sqrt(float((deviation[rows] ** 2).sum()))
    by_moments = (total - spread * math.sqrt(float(risk / (1 - risk)))) * (1 - 1e-9) - 1e-9
    if len(rows) > MAX_SEARCHED:
        return Fraction(max(by_moments, 0.0))
    unit = max(1, -(-int(belief.tops[rows].sum()) // MAX_TOTAL_WIDTH))
    table = belief.table(unit, int(belief.tops.max()) // unit, "down")
    sums = [table[law] for law in belief.of_row[rows].tolist()]
    while len(sums) > 1:
        joined = [convolved(a, b, len(a) + len(b)) for a, b in zip(sums[::2], sums[1::2], strict=False)]
        sums = joined + ([sums[-1]] if len(sums) % 2 else [])
    enough = np.cumsum(sums[0]) + _ROUNDING * (len(rows) + 1) >= float(1 - risk)
    by_law = int(enough.argmax()) * unit * belief.measure
    return max(by_law, Fraction(max(by_moments, 0.0)))


def _least_by_sharing(odds: Odds, axis: int, rows: IntArray, risk: Fraction) -> int:
    """Return a lower bound on the number of trucks, from the least risk of a row that shares a truck."""
    # The logarithms of the bins' probabilities share one budget. A row in a bin of a rows is 1/a of a truck, and takes
    # 1/a of the bin's part of the budget, which is at least that of the row with the a - 1 smallest rows. Any price for
    # the budget gives a bound.
    if len(odds) > MAX_SEARCHED:
        return 0
    table, (limit,) = odds.down[axis]
    cumulated = np.cumsum(table[odds.beliefs[axis].of_row[rows]], axis=1)
    # Laws, one for each row, such that the sum of any a rows is stochastically at least that of the first a.
    ordered = cumulated[np.argsort(-cumulated.sum(axis=1), kind="stable")]
    if (np.diff(ordered, axis=0) > 1e-12).any():  # rows cannot be ordered: use the smallest of all for each
        ordered = np.broadcast_to(cumulated.max(axis=0), cumulated.shape)
    smallest = np.diff(ordered, axis=1, prepend=0.0)
    loads = np.zeros(limit + 1)
    loads[0] = 1.0
    rows_costs: list[FloatArray] = []
    for others, smaller in enumerate(smallest):
        chance = np.minimum(cumulated[:, ::-1] @ loads + _ROUNDING * (others + 2), 1.0)
        allowed = chance >= float(1 - risk)
        if not allowed.any():
            break
        rows_costs.append(np.where(allowed, -np.log(np.maximum(chance, 1e-300)), np.inf))
        loads = convolved(loads, smaller, limit)
    if not rows_costs:
        return len(rows)
    # The best bound over prices of the budget. Shape of costs: rows in the bin, rows
    costs, budget = np.array(rows_costs), -math.log1p(-float(risk)) + 1e-12
    share = 1.0 / np.arange(1, len(costs) + 1)[:, None]
    barred = np.isinf(costs)  # sharing that is not allowed stays so at price 0
    paid = np.where(barred, 0.0, costs)
    best = -math.inf
    for price in (0.0, *np.geomspace(1e-2, 1e4, 61).tolist()):
        parts = np.where(barred, np.inf, share * (1 + price * paid)).min(axis=0)
        best = max(best, float(parts.sum()) - price * budget)
    return math.ceil(best - 1e-6)


def least_cost(odds: Odds, costs: IntArray, risk: Fraction) -> int:
    bounds = [int(costs.min())]
    for axis, belief in enumerate(odds.beliefs):
        cheapest = min(int(cost) / room[axis] for cost, room in zip(costs.tolist(), odds.rooms, strict=True))
        bounds.append(math.ceil(least_total(belief, np.arange(len(odds)), risk) * cheapest))
    return max(bounds)
