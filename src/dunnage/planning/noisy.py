# SPDX-License-Identifier: Apache-2.0
"""Planning on noisy releases: how likely a whole plan fits, when the plan was chosen after the noise was seen.

A planner puts rows together because their noisy weights are small, and small noisy weights are those that noise made
small. So the noise of the rows in a chosen bin is not what noise is in general, and a bound that takes it for that is
wrong; :func:`naive_chance` is that bound, kept to be shown. Two others hold:

- *simultaneous*: with the stated probability every row is at most its size at once, so that any plan that fits on the
  sizes fits, whichever was chosen, whatever the data;
- *posterior*: given the release, true weights are independent with known laws if they were drawn from a stated prior.
  The chance of any plan follows exactly, on average over the prior.

``docs/proofs/plan-risk.md`` has the proofs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.bins import pack_bins, whole_numbers
from dunnage.bins.exchanges import settled, shares, without_bin
from dunnage.domains import Numeric, domain_from
from dunnage.errors import NoPlanError, ParameterError
from dunnage.exact import exact, shown_number
from dunnage.laws import Cells, LaplaceLaw
from dunnage.planning.models import Model, Prior, Standard, Stochastic
from dunnage.planning.posterior import MOST_SEARCHED, Beliefs, Odds, all_hold, convolved, least_bins, least_cost
from dunnage.planning.problem import PackingProblem
from dunnage.release import Release, Uncertain

Packed = tuple[IntArray, IntArray, int]
"""Bin of each row, kind of each bin, and a bound in whole costs."""
Telling = Callable[[str, int, int], None]

SEARCH_WIDTH = 400
_BUFFERS = 8
_LARGEST_BUFFER = 8.0
_TRIES = 4
_SHARE = 0.05
_SEARCH_SECONDS = 8.0
_ALMOST_SURE = Fraction(10**9 - 1, 10**9)

ANY_DATA = (
    "the law of the noise, for any data and whichever plan is chosen after seeing the noisy values: every row is at "
    "most its {size} at once"
)


# What the release says of its noise


def check_model(release: Release, model: Model, spread: int | None) -> None:
    """Refuse what noisy rows cannot have."""
    fitting = "Use the standard model, or the stochastic one with a risk."
    if isinstance(model, Stochastic) and model.prior is not None and (not release.noisy or release.classes is not None):
        raise ParameterError("a prior is for releases all of whose rows are noisy, without classes. Leave it out.")
    if not release.noisy:
        return
    if spread is not None:
        raise ParameterError(f"a spread is for classes, and a noisy row is in none. Leave it out. {fitting}")
    if not isinstance(model, Standard | Stochastic):
        raise ParameterError(f"the {model.name} model is for classes, and a noisy row is in none. {fitting}")
    if isinstance(model, Stochastic) and model.as_published:
        raise ParameterError(f"the published stochastic model permutes classes, and a noisy row is in none. {fitting}")


def _cells_of(release: Release, name: str) -> Cells:
    described = release.certificate.body["measures"].get("noise", {}).get(name)
    if described is None:
        raise ParameterError(
            f"the release does not state the law of its noise on {name}, so that no risk can be computed. Use the "
            "standard model."
        )
    domain = domain_from(release.attributes[name]["domain"])
    if not isinstance(domain, Numeric):
        raise ParameterError(f"the certificate speaks of noise on {name!r}, which is no number. Verify the release.")
    return Cells.of(domain, described)


def _noisy_rows(release: Release) -> BoolArray:
    if "class_id" not in release.data.column_names:
        return np.ones(len(release), dtype=bool)
    return np.asarray(release.data.column("class_id").combine_chunks().to_numpy(zero_copy_only=False) < 0)


# Sizes that hold for any data


def intervals_hold(problem: PackingProblem) -> dict[str, Any]:
    """State how likely every row is at most the upper end of its interval; empty if no law is stated."""
    if "noise" not in problem.release.certificate.body["measures"]:
        return {}
    noisy = _noisy_rows(problem.release)
    misses: list[tuple[Fraction, int]] = []
    for known in problem.known:
        cells = _cells_of(problem.release, known.name)
        # The cell can be read off the lower end too, where no noisy value is released.
        met = np.bincount(cells.index(cells.steps(known.lower[noisy])), minlength=len(cells.cells)).tolist()
        laws = [cell.law for cell in cells.cells]
        each = [law.miss(law.radius) if law.radius >= 0 else Fraction(1) for law in laws]
        misses += zip(each, met, strict=True)
    rests = ANY_DATA.format(size="upper end")
    return {"at_least": all_hold(misses), "at_most": 1.0, "rests_on": rests}


def item_risk(risk: Fraction, num: int) -> Fraction:
    """Return how likely each of some independent things may fail so that all hold with probability 1 - risk.

    The largest such share, rounded down: (1 - share)^num >= 1 - risk.

    Examples
    --------
    >>> float(item_risk(Fraction(1, 20), 1)), item_risk(Fraction(0), 25)
    (0.05, Fraction(0, 1))
    """
    if not risk or not num:
        return risk
    # The share is at least risk / num, so that 60 digits more than that has are plenty.
    context = Context(prec=80 + len(str(num)) + len(str(risk.denominator)))
    left = context.divide(Decimal((1 - risk).numerator), Decimal((1 - risk).denominator))
    root = context.exp(context.divide(context.ln(left), Decimal(num)))
    share = Fraction(1) - Fraction(root)
    # One digit less for what the logarithm and the root were rounded by.
    return Fraction(math.floor(share * 10**60) - 1, 10**60) if share > Fraction(1, 10**20) else risk / num


def simultaneous_sizes(problem: PackingProblem, risk: Fraction) -> tuple[list[FloatArray], dict[str, Any]]:
    """Return a size for each row and quantity; all hold at once with probability 1 - risk, whatever the data."""
    noisy = _noisy_rows(problem.release)
    share = item_risk(risk, int(noisy.sum()) * len(problem.known))
    sizes, misses = [], list[tuple[Fraction, int]]()
    for known in problem.known:
        cells = _cells_of(problem.release, known.name)
        told = _noisy_values(cells, known, noisy)
        held = known.upper.copy()
        held[noisy] = cells.upper(told, share)
        sizes.append(held)
        met = np.bincount(cells.index(cells.steps(told)), minlength=len(cells.cells)).tolist()
        misses += [(cell.law.miss(cell.law.reach(share)), times) for cell, times in zip(cells.cells, met, strict=True)]
    certified = {"at_least": all_hold(misses), "at_most": 1.0, "rests_on": ANY_DATA.format(size="size")}
    return sizes, certified


def _noisy_values(cells: Cells, known: Uncertain, rows: BoolArray) -> FloatArray:
    """Return the noisy value of each of some rows; where only intervals were released, the largest it may have."""
    told = known.upper if known.nominal is None else known.nominal
    if not cells.domain.contains(told[rows]).all():
        raise ParameterError("a noisy value lies outside its public domain. Verify the release.")
    if known.nominal is not None:
        return known.nominal[rows]
    high = cells.domain.steps_below(told[rows])
    of_cell = cells.index(high)
    end = np.array([cell.end for cell in cells.cells])[of_cell]
    radius = np.array([max(cell.law.radius, 0) for cell in cells.cells])[of_cell]
    # An interval that was cut at the end of its cell may be around any value near that end.
    return cells.domain.grid_values(np.where(high < end, high - radius, end))


# The plan under a prior


def odds_of(problem: PackingProblem, prior: Prior) -> Odds:
    """Gather how likely true values are, given the noisy ones and a prior."""
    if prior.mean is not None and len(problem.known) > 1:
        raise ParameterError(
            "one normal prior cannot be that of several quantities. Use the uniform one, or pack one quantity."
        )
    beliefs = []
    for known in problem.known:
        cells = _cells_of(problem.release, known.name)
        beliefs.append(Beliefs.of(cells, _noisy_values(cells, known, _noisy_rows(problem.release)), prior))
    rooms = tuple(
        tuple(exact(truck.capacity[known.name], what="capacity") for known in problem.known) for truck in problem.trucks
    )
    return Odds(tuple(beliefs), rooms)


def _searched(
    odds: Odds,
    group: IntArray,
    bin_of_row: IntArray,
    bound: int,
    risk: Fraction,
    deadline: float,
    tell: Telling | None,
) -> IntArray:
    """Take bins away, one after another, as long as rows can be put so that everything still fits likely enough."""
    budget = -math.log1p(-float(risk))
    stop = min(deadline, time.monotonic() + _SEARCH_SECONDS)
    laws = []
    for axis, belief in enumerate(odds.beliefs):
        unit = odds.unit(axis, SEARCH_WIDTH)
        laws.append(belief.table(unit, odds.limits(axis, unit)[0], "near")[belief.of_row])

    def accepted(bins: IntArray) -> bool:
        return odds.at_least(bins, np.zeros(int(bins.max()) + 1, dtype=np.int64)) >= 1 - risk

    best = bin_of_row
    while (num := int(best.max()) + 1) > bound:
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
    return best


@dataclass(frozen=True, eq=False)
class Likely:
    """A plan that fits with the stated probability under a prior: where rows go, and what is proved."""

    bin_of_row: IntArray
    kinds: IntArray
    bound: int
    certified: dict[str, Any]


def likely_plan(
    problem: PackingProblem,  # What is packed
    model: Stochastic,  # Risk and prior
    packed: Callable[[Sequence[FloatArray], float], Packed],  # Packs rows of given sizes in so many seconds
    groups: Sequence[IntArray],  # Rows of each group that is packed apart
    deadline: float,  # When to stop
    tell: Telling | None = None,  # Called with stage, trucks or cost, and bound
) -> Likely:
    """Pack noisy rows so that everything fits with probability 1 - risk, given the release, under the model's prior."""
    odds = odds_of(problem, Prior.parse(model.prior or "uniform"))
    costs = np.array([kind.cost for kind in problem.kinds(np.zeros((len(problem.trucks), len(problem.known)), int))])
    start, sure = _started(problem, odds, model.risk, packed, costs, deadline)
    bound = _least_for_small(odds, model.risk, packed, deadline)
    if len(problem.trucks) > 1:
        bins, kinds = start
        bound = max(bound, least_cost(odds, costs, model.risk))
    else:
        bound = max(bound, least_bins(odds, groups, model.risk))
        bins = start[0]
        if len(odds) <= MOST_SEARCHED:
            bins = _searched(odds, problem.group, bins, bound, model.risk, deadline, tell)
        kinds = np.zeros(int(bins.max()) + 1, dtype=np.int64)
    at_least = max(odds.at_least(bins, kinds), sure if bins is start[0] else 0.0)
    certified = {"at_least": at_least, "at_most": odds.at_most(bins, kinds), "rests_on": _rests_on(problem, odds)}
    return Likely(bins, kinds, bound, certified)


def plan_odds(problem: PackingProblem, model: Stochastic, bin_of_row: IntArray, kinds: IntArray) -> dict[str, float]:
    """Bound how likely a plan fits given the release, under the model's prior."""
    odds = odds_of(problem, Prior.parse(model.prior or "uniform"))
    return {"at_least": odds.at_least(bin_of_row, kinds), "at_most": odds.at_most(bin_of_row, kinds)}


def _least_for_small(
    odds: Odds, risk: Fraction, packed: Callable[[Sequence[FloatArray], float], Packed], deadline: float
) -> int:
    """Bound what any likely plan costs by packing sizes that all rows reach at once with more than the risk.

    A plan that fits with probability 1 - risk and rows that are all so large with more than the risk happen together
    sometimes: so the plan fits on these sizes.
    """
    if len(odds) > MOST_SEARCHED:
        return 0  # the sizes would be all but 0
    share = item_risk(1 - risk, len(odds) * len(odds.beliefs)) * Fraction(999_999, 10**6) if risk else _ALMOST_SURE
    try:
        return packed([belief.low_quantiles(share) for belief in odds.beliefs], _seconds(odds, deadline))[2]
    except NoPlanError:
        return 0


def _seconds(odds: Odds, deadline: float) -> float:
    """Return how long one packing of sizes may take."""
    return min(_SHARE * max(deadline - time.monotonic(), 0.2), 0.001 * len(odds) + 0.5)


def _started(
    problem: PackingProblem,
    odds: Odds,
    risk: Fraction,
    packed: Callable[[Sequence[FloatArray], float], Packed],
    costs: IntArray,
    deadline: float,
) -> tuple[tuple[IntArray, IntArray], float]:
    """Return the cheapest likely plan that packs a size for each row, and how likely all sizes hold, if that is why.

    Sizes are quantiles, those that hold for any data, or the mean and some deviations. A plan on the second is taken
    only if it is likely given this release: whoever took the better of two kinds of plan would meet both their risks.
    """
    found: list[tuple[int, float, IntArray, IntArray]] = []

    def offer(sizes: Sequence[FloatArray], sure: float = 0.0) -> bool:
        try:
            bins, kinds, _ = packed(sizes, _seconds(odds, deadline))
        except NoPlanError:
            return True  # smaller sizes are to be tried, as if these had been enough
        likely = sure >= 1 - risk or odds.at_least(bins, kinds) >= 1 - risk
        if likely:
            found.append((int(costs[kinds].sum()), -sure, bins, kinds))
        return likely

    share = item_risk(risk, len(odds) * len(odds.beliefs))
    quantiles = [belief.quantiles(share) for belief in odds.beliefs]
    offer([sizes for sizes, _ in quantiles], math.prod(sure for _, sure in quantiles))
    offer(simultaneous_sizes(problem, risk)[0])
    low, high, halfway = 0.0, _LARGEST_BUFFER, (time.monotonic() + deadline) / 2
    for _ in range(_BUFFERS):
        if time.monotonic() > halfway:
            break
        middle = (low + high) / 2
        sizes = [_buffered(odds, axis, middle) for axis in range(len(odds.beliefs))]
        low, high = (low, middle) if offer(sizes) else (middle, high)
    if not found:
        alone = np.arange(len(odds))
        for kind, truck in enumerate(problem.trucks):
            kinds = np.full(len(odds), kind)
            if (truck.count is None or truck.count >= len(odds)) and odds.at_least(alone, kinds) >= 1 - risk:
                found.append((int(costs[kinds].sum()), 0.0, alone, kinds))
    if not found:
        raise NoPlanError(
            f"no plan was found that fits with probability {shown_number(1 - risk)}. {problem.remedy} "
            "Or allow more risk."
        )
    _, sure, bins, kinds = min(found, key=lambda one: one[:2])
    return (bins, kinds), -sure


def _buffered(odds: Odds, axis: int, deviations: float) -> FloatArray:
    """Return the mean of each row and some deviations, rounded up to the grid, but no more than a truck holds."""
    belief = odds.beliefs[axis]
    mean, deviation = belief.moments
    domain = belief.cells.domain
    wanted = domain.steps_above(domain.clamp(mean + deviations * deviation))
    # A row that may be larger than any truck goes alone, and counts with its own chance.
    largest = np.array([max(room[axis] for room in odds.rooms)], dtype=np.float64)
    most = int(domain.steps_below(domain.clamp(largest))[0])
    return domain.grid_values(np.minimum(wanted, most))


def _rests_on(problem: PackingProblem, odds: Odds) -> str:
    parts = []
    for known, belief in zip(problem.known, odds.beliefs, strict=True):
        domain, prior = belief.cells.domain, belief.prior
        assert domain.resolution is not None
        law = "uniform" if prior.mean is None else prior.text
        ends = f"{shown_number(domain.lower)} to {shown_number(domain.upper)} {known.unit}".strip()
        parts.append(f"{law} over {known.name} from {ends} in steps of {shown_number(domain.resolution)}")
    return (
        f"the stated prior ({'; '.join(parts)}): right on average over data drawn from it, whichever plan is chosen, "
        "not for every data set"
    )


# The wrong bound


def naive_chance(
    release: Release, *, capacity: float | str, bin_of_row: IntArray, quantity: str | None = None
) -> float:
    """Return how likely a plan would fit if noise were independent of the plan. It is not: **this bound is wrong**.

    It takes the sum of the true weights in a bin for that of the noisy ones less fresh noise, where the domain does not
    rule out an overload anyway. The plan was chosen after the noise was seen, so that bins are made of rows that noise
    made small. It is here to be shown failing.
    """
    problem = PackingProblem.of(
        release, capacity=capacity, trucks=None, by=None, apart=None, quantity=quantity, spread=None
    )
    known, room = problem.known[0], exact(problem.trucks[0].capacity[problem.known[0].name])
    cells = _cells_of(release, known.name)
    resolution, steps = cells.domain.resolution, cells.steps(np.asarray(known.nominal))
    assert resolution is not None
    laws = [cell.law for cell in cells.cells]
    scales = [float(law.scale) if isinstance(law, LaplaceLaw) else math.nan for law in laws]
    if any(map(math.isnan, scales)):
        raise ParameterError("the naive bound is for Laplace noise. Use another release.")
    of_cell, chance = cells.index(steps), 1.0
    for bin_ in range(int(bin_of_row.max()) + 1):
        rows = np.flatnonzero(bin_of_row == bin_)
        held = math.floor((room - len(rows) * cells.domain.lower) / resolution)
        if sum(cells.cells[cell].end for cell in of_cell[rows].tolist()) > held:
            spare = held - int(steps[rows].sum())
            chance *= _noise_at_most(spare, [scales[cell] for cell in of_cell[rows].tolist()])
    return chance


def _noise_at_most(most: int, scales: Sequence[float]) -> float:
    """Return how likely independent discrete Laplace numbers add up to at most a number."""
    reach = math.ceil(40 * max(scales)) + 1
    points = np.abs(np.arange(-reach, reach + 1))
    total, width = np.ones(1), len(points)
    for scale in scales:
        law = np.exp(-points / scale)
        total = convolved(total, law / law.sum(), len(total) + width)
    total = total[: len(scales) * (width - 1) + 1]
    return float(total[: max(0, most + len(scales) * reach + 1)].sum())


def naive_packing(
    release: Release, *, capacity: float | str, risk: Fraction, seconds: float = 1.0
) -> tuple[IntArray, float]:
    """Pack so that :func:`naive_chance` is at least 1 - risk, which is a wrong promise: it is here to be shown failing.

    Noisy weights and a buffer that is equal for all rows are packed; the smallest buffer that seems to do is taken.
    """
    problem = PackingProblem.of(
        release, capacity=capacity, trucks=None, by=None, apart=None, quantity=None, spread=None
    )
    known = problem.known[0]
    cells, room = _cells_of(release, known.name), problem.trucks[0].capacity[known.name]
    best: tuple[IntArray, float] | None = None
    low, high = -1, cells.domain.num_steps
    while high - low > 1:
        middle = (low + high) // 2
        steps = np.minimum(cells.steps(np.asarray(known.nominal)) + middle, cells.domain.num_steps)
        numbers = whole_numbers(np.minimum(cells.domain.grid_values(steps), room), room)
        packing = pack_bins(numbers.items, numbers.capacity, seconds=seconds)
        bins = np.empty(len(release), dtype=np.int64)
        for number, rows in enumerate(packing.bins):
            bins[rows] = number
        chance = naive_chance(release, capacity=capacity, bin_of_row=bins)
        likely = chance >= 1 - risk
        low, high = (low, middle) if likely else (middle, high)
        best = (bins, chance) if likely and (best is None or bins.max() < best[0].max()) else best
    alone = np.arange(len(release))
    return best or (alone, naive_chance(release, capacity=capacity, bin_of_row=alone))
