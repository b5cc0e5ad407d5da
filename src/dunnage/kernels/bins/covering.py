# SPDX-License-Identifier: Apache-2.0
"""Cover classes by patterns at least cost: several kinds of bin, a limit on each, and a budget of risk.

The program: choose how often to use each listed pattern, so that every class is covered as often as it has items, no
kind of bin exceeds its number of bins, and the patterns' shares of the budget add up to at most the budget. There are
many patterns, so the relaxation is solved by adding those with a wrong price; all are priced each time.

Why the bound is never above the truth: see ``docs/proofs/patterns.md#numbers``.

References
----------
Gilmore, Gomory 1961 (column generation); Farley 1990 (bound from any prices).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray, kernel
from dunnage.kernels.bins.chances import ROUNDING, SumLaw
from dunnage.kernels.deadline import NEVER, Deadline
from dunnage.kernels.solver import CoverTable, solve_prices, solve_program

# List every pattern worth using: how many items of each class a bin may take, and the risk that they do not fit.
#
# One walk serves all models. A class is a list of sums, one for each number of items; a class of equal items has one
# sum with probability 1, so that a pattern either fits or does not. One more item never lowers the risk, so a walk
# turns back at the first pattern above the limit.
#
# A pattern is useless in a cover if another contains it at no more risk. Patterns that certainly fit, even with one
# more item, are therefore left out; for every cover from all patterns there is an equally good one from the rest.

MAX_PATTERNS = 300_000
MAX_WORK = 2 * 10**9
_MAX_POINTS = 30_000
_MAX_DEPTH = 40
_PAIRS_EACH = 6
_MAX_DENSE = 2_000_000
_PIECE = 2e7  # steps of a walk between two looks at the clock: less than a quarter of a second
_PAUSED = 4


@dataclass(frozen=True, eq=False)
class PatternList:
    # Pattern j takes `numbers[i]` items of class `kinds[i]` for i from `starts[j]` to `starts[j + 1]`
    starts: IntArray
    kinds: IntArray
    numbers: IntArray
    risk: FloatArray  # probability that the pattern does not fit; exactly 0 if it certainly fits
    num_classes: int

    def __len__(self) -> int:
        return len(self.risk)

    @classmethod
    def together(cls, parts: Sequence[tuple[PatternList, IntArray]], num_classes: int) -> PatternList:
        """Join lists of different classes; each comes with the numbers of its classes in the whole."""
        ends = np.concatenate([[0], np.cumsum([len(part.kinds) for part, _ in parts])])
        starts = [part.starts[:-1] + end for (part, _), end in zip(parts, ends, strict=False)]
        return cls(
            np.append(np.concatenate(starts), ends[-1]),
            np.concatenate([own[part.kinds] for part, own in parts]),
            np.concatenate([part.numbers for part, _ in parts]),
            np.concatenate([part.risk for part, _ in parts]),
            num_classes,
        )

    def matrix(self) -> Any:
        from scipy.sparse import csr_matrix

        shape = (len(self), self.num_classes)
        return csr_matrix((self.numbers.astype(np.float64), self.kinds, self.starts), shape=shape)


def list_patterns(
    classes: Sequence[Sequence[SumLaw]],
    worst: Sequence[IntArray],
    capacity: IntArray,  # of a bin for each resource
    *,
    most_risk: float,  # largest risk of a pattern, up to rounding
    least: int = 0,
    slack: int = 0,
    most_patterns: int = MAX_PATTERNS,  # most_patterns, most_work: when to give up
    most_work: int = MAX_WORK,
    deadline: Deadline = NEVER,
) -> PatternList | None:
    """List the useful patterns with at most a certain risk; None if there are too many or time is up."""
    capacity = np.asarray(capacity, dtype=np.int64)
    # Put the sums of all classes and numbers into flat arrays, with the place where each begins.
    resources = len(capacity)
    caps = np.array([len(sums) - 1 for sums in classes], dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(caps)]).astype(np.int64)
    every = [sums[number] for sums in classes for number in range(1, len(sums))]
    starts = np.concatenate([[0], np.cumsum([len(sums.values) for sums in every])]).astype(np.int64)
    values = np.concatenate([sums.values for sums in every] or [np.zeros((0, resources), dtype=np.int64)])
    chances = np.concatenate([sums.chances for sums in every] or [np.zeros(0)])
    lines = [table[number] for table, sums in zip(worst, classes, strict=True) for number in range(1, len(sums))]
    largest = np.array(lines, dtype=np.int64).reshape(-1, resources)
    flat = _Flat(caps, first, starts, np.ascontiguousarray(values), chances, largest)
    # Most of this is never used, and memory that is never written to costs nothing.
    room = _PatternRoom(
        pairs=np.empty((most_patterns * _PAIRS_EACH, 2), dtype=np.int64),
        ends=np.zeros(most_patterns + 1, dtype=np.int64),
        risk=np.empty(most_patterns),
        sums=np.empty((most_patterns, len(capacity)), dtype=np.int64),
    )
    depth, dense = _MAX_DEPTH + 1, resources == 1 and int(capacity[0]) <= _MAX_DENSE
    stack = _Stack(
        np.zeros(int(capacity[0]) + 1 if dense else 0),
        np.empty((depth, _MAX_POINTS, resources), dtype=np.int64),
        np.empty((depth, _MAX_POINTS)),
        np.zeros(depth, dtype=np.int64),
        np.zeros((depth, resources), dtype=np.int64),
        np.zeros(depth, dtype=np.int64),
        np.zeros(depth, dtype=np.int64),
    )
    stack.points[0, 0, :], stack.odds[0, 0], stack.size[0] = 0, 1.0, 1
    place, work, status = np.zeros(3, dtype=np.int64), 0.0, _PAUSED
    limits = _Limits(most_risk + ROUNDING, least, slack, float(most_work), _PIECE)
    while status == _PAUSED and not deadline.late:
        status, work = _walk(flat, capacity, limits, stack, room, place, work)
    num = int(place[1])
    if status != 0:
        return None
    starts, risk = room.ends[: num + 1], room.risk[:num]
    kinds, numbers = room.pairs[: starts[-1], 0], room.pairs[: starts[-1], 1]
    useful = np.ones(num, dtype=np.bool_)
    block = max(1, int(_PIECE) // max(len(classes), 1))
    for begin in range(0, num, block):
        if deadline.late:
            return None
        _mark_useful(starts, kinds, numbers, risk, room.sums, flat, capacity, useful, begin, min(begin + block, num))
    lengths = np.diff(starts)
    kept = np.repeat(useful, lengths)
    ends = np.concatenate([[0], np.cumsum(lengths[useful])])
    return PatternList(ends, kinds[kept], numbers[kept], risk[useful], len(classes))


class _Flat(NamedTuple):
    caps: IntArray  # most items of each class
    first: IntArray  # where a class's numbers begin, from 1 on
    starts: IntArray  # where the sums of each number begin
    values: IntArray
    chances: FloatArray
    largest: IntArray


class _Limits(NamedTuple):
    most_risk: float
    least: int
    slack: int
    most_work: float
    piece: float  # steps after which to pause


class _Stack(NamedTuple):
    cells: FloatArray  # odds by sum, if there is one resource and few sums
    points: IntArray  # sums
    odds: FloatArray
    size: IntArray  # how many there are
    total: IntArray  # largest sum
    kind: IntArray  # class
    number: IntArray


class _PatternRoom(NamedTuple):
    pairs: IntArray  # of class and number of items
    ends: IntArray  # where the pairs of each pattern end
    risk: FloatArray
    sums: IntArray  # its largest sum


@kernel
def _walk(
    flat: _Flat, capacity: IntArray, limits: _Limits, stack: _Stack, out: _PatternRoom, place: IntArray, work: float
) -> tuple[int, float]:
    """Walk on through all patterns, class by class; return 0 (or why it paused or gave up) and the work so far."""
    # `place` has the depth, the number of patterns and that of their pairs; a paused walk goes on from there.
    caps, first, starts, values, chances, largest = flat
    cells, points, odds, size, total, kind, number = stack
    most_risk, least, slack, most_work, piece = limits
    num, resources, dense = len(caps), len(capacity), len(cells) > 0
    depth, num_patterns, pairs = place
    status, steps, before = 0, 0.0, work
    while depth >= 0:
        if steps + work - before > piece:
            status = 4  # paused
            break
        steps += 1.0
        k = kind[depth]
        if k >= num:
            depth -= 1
            continue
        if number[depth] >= caps[k]:
            kind[depth] += 1
            number[depth] = 0
            continue
        number[depth] += 1
        at = first[k] + number[depth] - 1
        begin, end = starts[at], starts[at + 1]
        work += size[depth] * (end - begin)
        if work > most_work:
            status = 1
            break
        # Combine the load of the bin with the sums of the class, and keep what still fits.
        fits, kept = 0.0, 0
        if dense:
            low, high = capacity[0] + 1, -1
            for i in range(size[depth]):
                for j in range(begin, end):
                    value = points[depth, i, 0] + values[j, 0]
                    if value > capacity[0]:
                        break  # the sums of a class ascend
                    cells[value] += odds[depth, i] * chances[j]
                    low, high = min(low, value), max(high, value)
            steps += max(high - low, 0)
            for value in range(low, high + 1):
                if cells[value] > 0.0 and kept < points.shape[1]:
                    points[depth + 1, kept, 0] = value
                    odds[depth + 1, kept] = cells[value]
                    fits += cells[value]
                    kept += 1
                cells[value] = 0.0
        else:
            for i in range(size[depth]):
                for j in range(begin, end):
                    inside = kept < points.shape[1]
                    for r in range(resources):
                        inside = inside and points[depth, i, r] + values[j, r] <= capacity[r]
                    if inside:
                        points[depth + 1, kept] = points[depth, i] + values[j]
                        odds[depth + 1, kept] = odds[depth, i] * chances[j]
                        fits += odds[depth + 1, kept]
                        kept += 1
        if kept == points.shape[1]:
            status = 2  # there may have been more
            break
        sure = True
        for r in range(resources):
            total[depth + 1, r] = total[depth, r] + largest[at, r]
            sure = sure and total[depth + 1, r] <= capacity[r]
        risk = 0.0 if sure else max(1.0 - fits, 1e-300)
        if risk > most_risk:
            kind[depth] += 1
            number[depth] = 0
            continue
        full, densest = 1.0, 1.0
        if least > 0 and dense:
            full, densest, inside_window, tail = 0.0, 0.0, 0.0, 0
            for i in range(kept):
                inside_window += odds[depth + 1, i]
                while points[depth + 1, i, 0] - points[depth + 1, tail, 0] > capacity[0] - least + slack:
                    inside_window -= odds[depth + 1, tail]
                    tail += 1
                densest = max(densest, inside_window)
                if points[depth + 1, i, 0] >= least - slack:
                    full += odds[depth + 1, i]
        if densest < 1.0 - most_risk:
            continue  # another number of this class may be possible again: the whole class has no spread
        if depth + 2 >= len(size) or num_patterns >= len(out.risk) or pairs + depth + 1 > len(out.pairs):
            status = 3
            break
        if full >= 1.0 - most_risk:
            for level in range(depth + 1):
                out.pairs[pairs, 0], out.pairs[pairs, 1] = kind[level], number[level]
                pairs += 1
            out.risk[num_patterns] = risk
            out.sums[num_patterns] = total[depth + 1]
            num_patterns += 1
            out.ends[num_patterns] = pairs
        depth += 1
        size[depth], kind[depth], number[depth] = kept, k + 1, 0
    place[0], place[1], place[2] = depth, num_patterns, pairs
    return status, work


@kernel
def _mark_useful(
    starts: IntArray,
    kinds: IntArray,
    numbers: IntArray,
    risk: FloatArray,
    sums: IntArray,
    flat: _Flat,
    capacity: IntArray,
    useful: npt.NDArray[np.bool_],
    begin: int,
    end: int,
) -> None:
    """Unmark those of some patterns that certainly fit, even with one more item."""
    caps, largest, first = flat.caps, flat.largest, flat.first
    taken = np.zeros(len(caps), dtype=np.int64)
    for j in range(begin, end):
        if risk[j] > 0.0:
            continue
        for i in range(starts[j], starts[j + 1]):
            taken[kinds[i]] = numbers[i]
        for k in range(len(caps)):
            if taken[k] >= caps[k]:
                continue
            sure = True
            for r in range(len(capacity)):
                before = largest[first[k] + taken[k] - 1, r] if taken[k] > 0 else 0
                if sums[j, r] + largest[first[k] + taken[k], r] - before > capacity[r]:
                    sure = False
                    break
            if sure:
                useful[j] = False
                break
        for i in range(starts[j], starts[j + 1]):
            taken[kinds[i]] = 0


MARGIN = 1e-6
BUDGET_SLACK = 1e-9
MAX_PROGRAM_COLUMNS = 20_000
NEW_COLUMNS = 400
_FIRST_COLUMNS = 2500


@dataclass(frozen=True, eq=False)
class KindPatterns:
    listing: PatternList
    cost: int = 1  # of a bin
    count: int | None = None  # of bins; None: any number


class Cover(NamedTuple):
    """Bins that cover every class exactly, one line each (none if there is no cover yet), and a bound on the cost."""

    kinds: IntArray
    rows: IntArray  # the listed patterns
    patterns: IntArray  # the same without items that are covered twice
    cost: int | None
    bound: int | None  # None if no cover exists


class CoverProgram:
    """The patterns of all kinds of bin, for one demand under one or another budget."""

    def __init__(self, demand: IntArray, choices: Sequence[KindPatterns]) -> None:
        from scipy.sparse import vstack

        self.demand = np.asarray(demand, dtype=np.int64)
        self.choices = list(choices)
        sizes = [len(choice.listing) for choice in choices]
        self.matrix: Any = vstack([choice.listing.matrix() for choice in choices], format="csr")
        self.kind = np.repeat(np.arange(len(choices)), sizes)
        self.cost = np.repeat([choice.cost for choice in choices], sizes).astype(np.float64)
        self.risk = np.concatenate([choice.listing.risk for choice in choices])
        self.step = math.gcd(*(choice.cost for choice in choices))

    def table(self, rows: IntArray, use: FloatArray | None, budget: float) -> CoverTable:
        limits = {kind: choice.count for kind, choice in enumerate(self.choices) if choice.count is not None}
        own = None if use is None else use[rows]
        return CoverTable(self.matrix[rows], self.demand, self.cost[rows], self.kind[rows], limits, own, budget)

    def solve(
        self,
        *,
        deadline: float,
        use: FloatArray | None = None,  # use, budget: how much of the budget each pattern takes, and the budget
        budget: float = math.inf,
        at_most: float = math.inf,
        known_bound: int = 0,  # a lower bound on the cost of any cover, from elsewhere
        usable: npt.NDArray[np.bool_] | None = None,  # which patterns may be used; by default all
    ) -> Cover:
        """Return a cover of least cost, or one below ``at_most`` if there is one, with a bound."""
        if math.isfinite(at_most):
            at_most = math.ceil(at_most / self.step) * self.step
        allowed = np.ones(len(self.cost), dtype=bool) if usable is None else usable
        rows = np.flatnonzero(allowed if use is None else allowed & (use <= budget * (1 + BUDGET_SLACK)))
        if not bool((np.bincount(self.matrix[rows].indices, minlength=len(self.demand)) > 0).all()):
            return self._nothing(None)
        search, stop = _Relaxed(self, rows, use, budget), Deadline(deadline)
        if not search.run(stop):
            return self._nothing(known_bound)
        if search.infeasible:
            return self._nothing(None)
        bound = max(known_bound, self._rounded_up(search.bound))
        if bound >= at_most:
            return self._nothing(int(at_most))
        # The integer program: first over the patterns that the relaxation favours, then over all that matter.
        best, limit = self._nothing(bound), at_most
        for share, most in ((0.25, len(self.demand) * 6 + 200), (1.0, MAX_PROGRAM_COLUMNS)):
            seconds = stop.left * share
            if seconds <= 0 or (best.cost is not None and best.cost <= bound):
                break
            # In a cover below the limit, no pattern has a reduced cost above what is left to save.
            spare = max(limit - self.step - search.bound, 0.0) + MARGIN * max(1.0, limit)
            order = np.argsort(search.reduced, kind="stable")[:most]
            rows = search.rows[order[search.reduced[order] <= spare]]
            complete = len(rows) == int((search.reduced <= spare).sum())
            table = self.table(rows, use, budget)
            answer = solve_program(table, at_most=limit - self.step if math.isfinite(limit) else None, seconds=seconds)
            if complete and answer.impossible and not math.isfinite(limit):
                return self._nothing(None)  # nothing covers at all
            proved = bound
            if complete:
                proved = max(bound, int(limit) if answer.impossible else self._rounded_up(answer.bound))
            if answer.values is not None:
                # Turn the solution into bins, without items that are covered too often.
                chosen = np.repeat(rows, answer.values)
                whole = np.asarray(self.matrix[chosen].toarray()).astype(np.int64)
                patterns, kept = without_surplus(whole, chosen, self.demand)
                best = Cover(self.kind[kept], kept, patterns, int(self.cost[kept].sum()), proved)
                limit = min(limit, best.cost or math.inf)
            bound = max(bound, min(proved, int(limit) if math.isfinite(limit) else proved))
        return best._replace(bound=bound)

    def _nothing(self, bound: int | None) -> Cover:
        empty = np.zeros((0, len(self.demand)), dtype=np.int64)
        return Cover(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), empty, None, bound)

    def _rounded_up(self, value: float) -> int:
        return max(0, math.ceil(value / self.step - MARGIN)) * self.step


def without_surplus(patterns: IntArray, names: IntArray, demand: IntArray) -> tuple[IntArray, IntArray]:
    """Remove what is covered twice, and bins that are then empty; ``names`` go with the bins."""
    left = patterns.copy()
    surplus = left.sum(axis=0) - demand
    for line in left:
        fewer = np.minimum(line, surplus)
        line -= fewer
        surplus = surplus - fewer
    kept = left.any(axis=1)
    return left[kept], names[kept]


class _Relaxed:
    """The relaxation of a program over some of its patterns, solved by adding those with a wrong price."""

    def __init__(self, program: CoverProgram, rows: IntArray, use: FloatArray | None, budget: float) -> None:
        self.program, self.rows, self.use, self.budget = program, rows, use, budget
        self.bound = 0.0
        self.infeasible = False
        self.reduced = np.zeros(len(rows))

    def run(self, deadline: Deadline) -> bool:
        """Solve the relaxation; return whether the bound holds for all patterns."""
        program, rows = self.program, self.rows
        matrix = program.matrix[rows]
        inside = np.arange(len(rows))
        if len(rows) > _FIRST_COLUMNS:  # too many to begin with all: for each class those that take most of it
            columns, first = matrix.tocsc(), []
            for start, end in itertools.pairwise(columns.indptr.tolist()):
                first.append(columns.indices[start:end][np.argsort(-columns.data[start:end], kind="stable")[:3]])
            inside = np.unique(np.concatenate(first)).astype(np.int64)
        while True:
            seconds = deadline.left
            if not seconds:
                return False
            prices = solve_prices(program.table(rows[inside], self.use, self.budget), seconds=seconds)
            if prices is None:
                return False
            worth = matrix @ prices.cover
            allowed = program.cost[rows].copy()
            if self.use is not None:
                allowed += prices.budget * self.use[rows]
            for kind, price in prices.limits.items():
                allowed[program.kind[rows] == kind] += price
            self.reduced = allowed - worth
            excess = max(0.0, float((-self.reduced / program.cost[rows]).max()))
            self.bound = max(self.bound, prices.objective / (1 + excess))
            wrong = np.flatnonzero(self.reduced < -MARGIN * program.cost[rows] / 10)
            fresh = wrong[~np.isin(wrong, inside, assume_unique=True)]
            if not len(fresh):
                # A cover needs no more bins than items. If the bound exceeds their cost, there is no cover.
                self.infeasible = self.bound > float(program.demand.sum() * program.cost.max()) * (1 + MARGIN)
                return True
            worst = fresh[np.argsort(self.reduced[fresh], kind="stable")[:NEW_COLUMNS]]
            inside = np.concatenate([inside, worst])
