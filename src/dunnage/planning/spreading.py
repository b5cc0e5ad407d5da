# SPDX-License-Identifier: Apache-2.0
"""Lower the truck linkage of a plan without breaking the promise of its model.

Linkage is the second objective of every plan. Each model says what it allows: sums of sizes, probabilities, or any
check of a whole assignment. Rows then move and change places between the trucks of a plan, and perhaps some more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from dunnage.arrays import IntArray
from dunnage.errors import NoPlanError, ParameterError
from dunnage.exact import Exact, share, shown, shown_number
from dunnage.kernels.bins.certified import ChancePacker, ClassPacking
from dunnage.kernels.bins.spreading import (
    MAX_ROUNDS,
    TypeLoads,
    exchange_checked,
    exchange_likely,
    over_caps,
    spread_items,
)
from dunnage.kernels.deadline import Deadline
from dunnage.planning.linkage import ESTIMATE_SECONDS, NoisyRows, exchangeable, noisy_linkage, slots_linkage
from dunnage.planning.plan import Linkage, LinkageOffer, Slots
from dunnage.planning.problem import PackingProblem, Whole
from dunnage.release import Release
from dunnage.text import percent, percent_at_least, several

MAX_EXTRA = 10_000  # trucks; each takes memory for every class
FIRST_SHARE = 0.85  # of the time, for a plan without extra trucks
HIGH_LINKAGE = 0.5
ABOVE_LEAST = 1.5  # also high: this much above the lowest that classes allow, and above LOW_LINKAGE
LOW_LINKAGE = 0.2
OFFER_ROUNDS, OFFER_SECONDS = 6, 1.0
OFFER_SHARE = 0.05  # of the trucks, for the largest offer
WORTH_OFFERING = 0.9
NOTHING_LOWER = 1.005
CHANCE_TRIES = 6
SURE_SHARE, LIKELY_SHARE, EXACT_SHARE = 0.25, 0.6, 0.3
TIGHTER, MAX_CORRECTION = 0.9, 4.0
RISK_ROUNDING = 1e-8
CHECKED_STEPS = 20_000
CHECKED_IDLE = 2500
CHECKED_SECONDS = 2.0
NOISY_STEPS, NOISY_IDLE = 500, 120  # each computes the linkage of noisy rows
SLOT_STEPS, SLOT_IDLE = 3000, 300
MAX_SLOTS = 300
COUNTING_SECONDS = 0.05
MAX_CLUSTER = 64

Solution = TypeVar("Solution")


class Effort(NamedTuple):
    """How long to search: rounds make the result repeatable, the deadline keeps the time limit."""

    deadline: float
    rounds: int = MAX_ROUNDS
    estimating: float = ESTIMATE_SECONDS  # for the linkage of slots whose fills cannot be counted
    hasty: bool = False  # whether the time limit is over: then no solver is started

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.deadline

    def part(self, share: float) -> Effort:
        now = time.monotonic()
        return self._replace(deadline=now + share * max(self.deadline - now, 0.0))


class Outcome(NamedTuple, Generic[Solution]):
    solution: Solution
    offers: tuple[LinkageOffer, ...] = ()  # what more trucks would give, if linkage is high
    least: float | None = None  # if linkage is high: the lowest that the classes of the release allow


class _Low(NamedTuple, Generic[Solution]):
    solution: Solution
    mean: float
    tried: int  # the largest number of extra trucks


@dataclass(frozen=True)
class Purchase:
    """How many trucks may be used to lower linkage, and how low it has to be."""

    extra: int | None = None
    max_linkage: Fraction | None = None

    @classmethod
    def of(cls, extra_trucks: int | None, max_linkage: Exact | None) -> Purchase:
        if extra_trucks is not None and (type(extra_trucks) is not int or not 0 <= extra_trucks <= MAX_EXTRA):
            raise ParameterError(
                f"extra_trucks must be a whole number from 0 to {MAX_EXTRA:,}, such as 2. Got {shown(extra_trucks)}."
            )
        wanted = None if max_linkage is None else share(max_linkage, what="max_linkage")
        if wanted is not None and not 0 < wanted <= 1:
            raise ParameterError(
                f"max_linkage must be more than 0 and at most 1, such as 0.25. Got {shown_number(wanted)}."
            )
        return cls(extra_trucks, wanted)

    def spend(
        self,
        base: Solution,
        num_trucks: int,
        less: Callable[[int, Effort], Solution | None],  # lowers linkage with some more trucks
        stated: Callable[[Solution], float | None],  # the mean linkage of a solution
        least: float | None,  # below which no plan gets
        deadline: float,
        *,
        again: Callable[[Solution, Effort], Solution | None] | None = None,  # goes on with a solution
        hasty: bool = False,
    ) -> Outcome[Solution]:
        requested = self.extra or self.max_linkage is not None
        effort = Effort(deadline, hasty=hasty)
        part = effort.part(FIRST_SHARE)
        first, cut_off = less(0, part), part.over
        now = base if first is None else first
        mean = stated(now)
        if mean is None:
            if requested:
                raise ParameterError(
                    "truck linkage is not known, because the release does not state the law of its noise. Leave out "
                    "extra_trucks and max_linkage."
                )
            return Outcome(now)

        def fewest(mean: float, target: float, most: int | None) -> _Low[Solution]:
            """Find a plan at the target, or else the lowest linkage, with few more trucks: double, then halve."""
            best = _Low(now, mean, 0)
            low, high = 0, None  # ``low`` more trucks are too few, ``high`` are enough
            while best.mean > target or (high is not None and high - low > 1):
                number = max(2 * low, 1) if high is None else (low + high) // 2
                number = number if most is None else min(number, most)
                more = less(number, effort.part(0.3)) if number > low and not effort.over else None
                gain = None if more is None else stated(more)
                if more is None or gain is None:
                    break
                best = best._replace(tried=max(best.tried, number))
                if gain <= target or (high is None and gain < best.mean):
                    best = best._replace(solution=more, mean=gain)
                low, high = (low, number) if gain <= target else (number, high)
            return best

        if self.max_linkage is not None:
            if least is not None and self.max_linkage < Fraction(least) * (1 - Fraction(1, 10**9)):
                raise NoPlanError(
                    f"truck linkage cannot be {percent(float(self.max_linkage))}: with the classes of this release, no "
                    f"plan gets below {percent_at_least(least)}. Allow more, or ask the owner for larger classes."
                )
            low = fewest(mean, float(self.max_linkage), self.extra)
            if low.mean > self.max_linkage:
                tried = f", with up to {several(low.tried, 'extra truck')}" if low.tried else ""
                raise NoPlanError(
                    f"Dunnage found no plan with a truck linkage of at most {percent(float(self.max_linkage))}: the "
                    f"lowest was {percent(low.mean)}{tried}. Allow more trucks, more time or more linkage."
                )
            return Outcome(low.solution)
        if self.extra:
            more = less(self.extra, effort.part(FIRST_SHARE))
            if more is None:
                raise NoPlanError(f"there are not {several(self.extra, 'more truck')}. Allow fewer extra trucks.")
            gain = stated(more)
            if gain is not None and gain < mean:  # and no truck that lowers nothing
                low = fewest(mean, gain * NOTHING_LOWER, self.extra - 1)
                now, mean = (low.solution, low.mean) if low.mean <= gain * NOTHING_LOWER else (more, gain)
        high = mean >= HIGH_LINKAGE or (least is not None and mean >= max(ABOVE_LEAST * least, LOW_LINKAGE))
        if not high:  # nothing is offered, so the rest of the time is free
            more = again(now, effort) if again is not None and cut_off and not requested else None
            gain = None if more is None else stated(more)
            return Outcome(now if more is None or gain is None or gain >= mean else more)
        offers: list[LinkageOffer] = []
        already, lowest = self.extra or 0, mean
        for number in sorted({1, 2, max(3, math.ceil(OFFER_SHARE * num_trucks))}):
            if effort.over or (least is not None and mean <= least * (1 + 1e-9)):
                break
            more = less(already + number, effort.part(0.5)._replace(rounds=OFFER_ROUNDS, estimating=OFFER_SECONDS))
            gain = None if more is None else stated(more)
            if gain is not None and gain <= WORTH_OFFERING * lowest:
                offers.append(LinkageOffer(extra_trucks=already + number, mean=gain))
                lowest = gain
        return Outcome(now, tuple(offers), least)


def more_trucks(problem: PackingProblem, kinds: IntArray, number: int) -> IntArray | None:
    """Add trucks of the cheapest kinds that are still available; None if there are not enough."""
    for kind in np.argsort([truck.cost for truck in problem.trucks], kind="stable").tolist():
        count = problem.trucks[kind].count
        free = number if count is None else min(number, count - int((kinds == kind).sum()))
        kinds, number = np.append(kinds, np.full(max(free, 0), kind)), number - max(free, 0)
    return None if number else kinds.astype(np.int64)


def spread_rows(
    problem: PackingProblem,
    whole: Whole,
    bin_of_row: IntArray,
    kinds: IntArray,  # of the bins; those without rows may be used
    effort: Effort,
    look: IntArray | None = None,  # rows that are not to be together, if other than those that nobody can distinguish
) -> IntArray:
    """Spread rows that each have one size for every quantity; noisy rows that could belong to one package are alike."""
    release, room = problem.release, whole.rooms[kinds]
    table = np.column_stack([problem.class_id, whole.values])
    types, type_of, times = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    type_of, loads = type_of.reshape(-1), TypeLoads.of_sizes(types[:, 1:], times)
    # A class of one size is capped as a class. Noisy rows have sizes of their own, but are never spread.
    caps = np.minimum(times, problem.caps[types[:, 0]])
    if not release.noisy:
        look = exchangeable(release) if look is None else look
        return spread_items(
            loads, type_of, look, problem.group, bin_of_row, room, caps=caps, deadline=effort.deadline,
            rounds=effort.rounds,
        )  # fmt: skip
    best, least = bin_of_row, _noisy_mean(release, bin_of_row)
    for look in clusters_of_rows(release):
        other = spread_items(
            loads, type_of, look, problem.group, best, room, caps=np.bincount(look), deadline=effort.deadline,
            by_look=True, rounds=effort.rounds,
        )  # fmt: skip
        if effort.over or (mean := _noisy_mean(release, other)) is None or least is None:
            break
        if mean < least:
            best, least = other, mean
    return best


def _noisy_mean(release: Release, bin_of_row: IntArray) -> float | None:
    linkage = noisy_linkage(release, bin_of_row)
    return None if linkage is None else linkage.mean


def clusters_of_rows(release: Release) -> list[IntArray]:
    """Return clusterings of rows: rows of a cluster could belong to one package, or are exchangeable."""
    # A noisy value says little about which of the nearest rows it is, so neighbours by noisy values are a cluster. How
    # many depends on the noise, so several sizes are tried.
    rows = NoisyRows.of(release)
    if rows is None:
        return []
    look, clusterings, size = exchangeable(release), [], 2
    while size <= min(MAX_CLUSTER, 2 * int(rows.sizes.max(initial=1))):
        order = np.lexsort((*rows.steps[::-1], rows.group))
        place = np.arange(len(order)) - (np.cumsum(rows.sizes) - rows.sizes)[rows.group[order]]
        codes = np.empty(len(order), dtype=np.int64)
        codes[order] = rows.group[order] * len(release) + place // size
        own = look.copy()
        own[rows.rows] = int(look.max()) + 1 + codes
        clusterings.append(np.unique(own, return_inverse=True)[1].reshape(-1))
        size *= 2
    return clusterings


class LikelySpread(NamedTuple):
    bin_of_row: IntArray
    packing: ClassPacking


def spread_likely(
    problem: PackingProblem,
    packer: ChancePacker,
    whole: Whole,
    look: IntArray,  # rows with the same look are not to be together; a look is part of a class
    bin_of_row: IntArray,
    kinds: IntArray,
    effort: Effort,
) -> LikelySpread | None:
    """Spread rows known by their classes alone, at the packer's probability; None if there is no time to compute it."""
    classes, room = packer.classes, whole.rooms[kinds]
    sizes, moments = np.array([own.count for own in classes]), [own.moments() for own in classes]
    loads = TypeLoads(
        sums=np.concatenate([own.largest(own.count) for own in classes]),
        first=np.cumsum(sizes + 1) - (sizes + 1),
        sizes=sizes,
        mean=np.array([mean for mean, _ in moments], dtype=np.float64),
        variance=np.array([variance for _, variance in moments], dtype=np.float64),
    )
    for chances in packer.chances:
        chances.joint = False
    best, budget, soon = None, 0.0, effort.part(1.0 if not packer.risk else 1 - EXACT_SHARE)
    for attempt in range(CHANCE_TRIES):
        # Without any new risk first, for a part of the time: spreading takes room, and the risk gives some.
        part = soon if not packer.risk else soon.part(SURE_SHARE if not attempt else LIKELY_SHARE)
        bins = spread_items(
            loads, problem.class_id, look, problem.group, bin_of_row if best is None else best.bin_of_row, room,
            caps=packer.caps, deadline=part.deadline, budget=budget, rounds=effort.rounds,
        )  # fmt: skip
        counts = class_table(bins, problem.class_id, len(kinds), len(packer.classes))
        failing = 1 - packer.weighed(counts, kinds, Deadline(effort.deadline))[0]
        packing = packer.planned(counts, kinds)
        lower = best is None or together(look, bins) < together(look, best.bin_of_row)
        if packing is not None and lower:
            best = LikelySpread(bins, packing)
        if not packer.risk or soon.over or (packing is not None and attempt and not lower):
            break
        # The search uses normal laws, which is rough: the budget is corrected by what they missed.
        if not attempt:
            budget = packer.risk * TIGHTER
        elif packing is None or failing < packer.risk * TIGHTER:
            budget *= TIGHTER * min(packer.risk / max(failing, 1e-12), MAX_CORRECTION)
        else:
            break
    if best is None or not packer.risk or effort.over:
        return best
    # Last, what only the exact probabilities allow.
    counts = exchange_likely(
        loads, best.packing.counts, room, packer.groups, packer.caps,
        lambda bin_, line: 1 - packer.chances[kinds[bin_]].fits(line)[0], packer.risk - RISK_ROUNDING,
        deadline=effort.deadline,
    )  # fmt: skip
    last = packer.planned(counts, kinds)
    if last is None:
        return best
    of_class, places = np.nonzero(counts.T)
    bins = np.empty_like(bin_of_row)
    bins[np.argsort(problem.class_id, kind="stable")] = np.repeat(places, counts[places, of_class])
    return LikelySpread(bins, last)


def class_table(bin_of_row: IntArray, class_id: IntArray, num_bins: int, num_classes: int) -> IntArray:
    return Slots.of_assignment(bin_of_row, class_id).table(num_bins, num_classes)


def together(look: IntArray, bin_of_row: IntArray) -> int:
    """Return the sum, over looks, of the largest number of rows in one bin."""
    num_bins = int(bin_of_row.max()) + 1
    pairs, counts = np.unique(look * num_bins + bin_of_row, return_counts=True)
    largest = np.zeros(int(look.max()) + 1, dtype=np.int64)
    np.maximum.at(largest, pairs // num_bins, counts)
    return int(largest.sum())


def spread_members(
    problem: PackingProblem, whole: Whole, bin_of_member: IntArray, kinds: IntArray, effort: Effort, seed: int = 0
) -> IntArray:
    """Spread the members of classes, by their own sizes; every state is a fill that fits."""
    class_of = problem.class_of_member
    types, type_of, times = np.unique(whole.values, axis=0, return_inverse=True, return_counts=True)
    return spread_items(
        TypeLoads.of_sizes(types, times), type_of.reshape(-1), class_of, problem.group_of_class[class_of],
        bin_of_member, whole.rooms[kinds], caps=problem.caps, deadline=effort.deadline, by_look=True,
        rounds=effort.rounds, seed=seed,
    )  # fmt: skip


def least_together(look: IntArray, num_bins: int) -> int:
    """Return what :func:`together` cannot fall below."""
    return int((-(-np.bincount(look) // num_bins)).sum())


def spread_slots(
    problem: PackingProblem, whole: Whole, slots: Slots, kinds: IntArray, linkage: Linkage, effort: Effort
) -> tuple[Slots, Linkage]:
    """Exchange slots between bins as long as fewer fills give a package away, if the fills can be counted quickly."""
    class_of, room = problem.class_of_member, whole.rooms[kinds]
    order = np.lexsort((slots.bin, slots.class_id))
    start = np.repeat(slots.bin[order], slots.count[order])  # one slot after another, by class
    seen: dict[bytes, Linkage | None] = {}

    def stated(bins: IntArray) -> Linkage | None:
        key = np.sort(bins * len(problem.class_sizes) + class_of).tobytes()
        if key not in seen:
            own = Slots.of_assignment(bins, class_of)
            seen[key] = slots_linkage(class_of, whole.values, own, room, seconds=0.0, counting=COUNTING_SECONDS)
        return seen[key]

    def value(bins: IntArray) -> float:
        own = stated(bins)
        return math.inf if own is None else own.mean

    floor = least_together(class_of, len(kinds)) / len(class_of)
    if len(class_of) > MAX_SLOTS or linkage.mean <= floor + 1e-9 or effort.over:
        return slots, linkage
    begun = time.monotonic()
    if value(start) > linkage.mean + 1e-9 or time.monotonic() - begun > COUNTING_SECONDS:
        return slots, linkage
    bins = exchange_checked(
        start, problem.group_of_class[class_of], len(kinds), value,
        lambda bins: not over_caps(class_of, bins, problem.caps, len(kinds)),
        deadline=effort.deadline, steps=SLOT_STEPS, max_idle=SLOT_IDLE,
    )  # fmt: skip
    better = stated(bins)
    return (slots, linkage) if better is None else (Slots.of_assignment(bins, class_of), better)


def spread_checked(
    problem: PackingProblem, bin_of_row: IntArray, kinds: IntArray, accepted: Callable[[IntArray], bool], effort: Effort
) -> IntArray:
    """Spread rows under any check of a whole assignment, for small plans: exchange rows as long as it helps."""
    release, num_bins = problem.release, len(kinds)
    look = exchangeable(release)

    def value(bins: IntArray) -> float:
        if release.noisy:
            mean = _noisy_mean(release, bins)
            return 0.0 if mean is None else mean
        table = np.zeros((int(look.max()) + 1, num_bins))
        np.add.at(table, (look, bins), 1)
        return float(table.max(axis=1).sum() + 0.01 * (table**2).sum())  # pairs show the way where maxima are equal

    if not release.noisy and together(look, bin_of_row) <= least_together(look, num_bins):
        return bin_of_row
    return exchange_checked(
        bin_of_row, problem.group, num_bins, value,
        lambda bins: not over_caps(problem.class_id, bins, problem.caps, num_bins) and accepted(bins),
        deadline=min(effort.deadline, time.monotonic() + CHECKED_SECONDS),
        steps=NOISY_STEPS if release.noisy else CHECKED_STEPS, max_idle=NOISY_IDLE if release.noisy else CHECKED_IDLE,
    )  # fmt: skip
