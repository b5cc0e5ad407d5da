# SPDX-License-Identifier: Apache-2.0
"""Truck linkage: how often someone who knows a package's weight, the release and the plan can name its truck.

Rows of a class that look alike are exchangeable, so the best guess is the truck with most of them.

For a sealed plan, an onlooker knows the release, the slots, and that the owner chooses uniformly at random among the
fills that fit. The best guess follows from the share of fills that put a package into a truck; see
``docs/proofs/linkage.md``.

For a noisy release, the onlooker also knows the law of the noise, which is public. Row i belongs to the record with a
probability proportional to f(b_i | w) / g(b_i): the probability of the noisy values b_i if the true values are w,
divided by their probability if nothing is known about the record except the public domain. This is eq. 30 of Li et al.
2022 with the denominators that it lacks; ``docs/proofs/identification.md`` derives it. A noisy value stays in its cell,
so only rows with the record's cells and public values can belong to it: its group.

References
----------
Li, Erkin, Lagendijk 2022, equations 24, 25 and 30.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.kernels.bins.fills import FillSlots, Items, count_fills, estimate_chances
from dunnage.kernels.deadline import Deadline
from dunnage.model.certificate import NoiseCell
from dunnage.model.domains import Numeric, domain_from
from dunnage.model.laws import Cell, Cells, LaplaceLaw, Law, PiecewiseLaw
from dunnage.planning.plan import Linkage, Plan, Slots
from dunnage.planning.problem import PackingProblem, combinations
from dunnage.release import Release


def exchangeable(release: Release) -> IntArray:
    """Return equal numbers for rows that nobody can distinguish: same class, equal values; never for noisy rows."""
    shown = [name for name, item in release.attributes.items() if item.role in ("public", "sensitive")]
    looks = combinations(release, shown)
    num_looks = int(looks.max(initial=0)) + 1
    return np.asarray(np.unique(release.class_of_row * num_looks + looks, return_inverse=True)[1].reshape(-1))


LINKAGE_NOTE = (
    "the best guess of someone who knows the weight, public and sensitive values of one released package, the release "
    "and the plan, but no outcome and no second package"
)


SLOTS_NOTE = (
    "the best guess of someone who knows one package, which size of slot the owner put it into, the release and the "
    "plan, but no outcome and no second package; averaged over all slots, also empty ones. Someone who knows only the "
    "package's weight does not know its size of slot, and does no better than the worst figure"
)


def linkage_note(release: Release) -> str:
    return LINKAGE_NOTE if release.certificate.rows.slots is None else SLOTS_NOTE


def truck_linkage(group: IntArray, bin_of_row: IntArray, note: str = LINKAGE_NOTE) -> Linkage:
    """Return the largest share of a package's group in one truck, on average over packages and in the worst case."""
    _, largest, sizes = _largest_shares(group, bin_of_row)
    mean, worst = float(largest.sum() / sizes.sum()), float((largest / sizes).max())
    return Linkage(mean=mean, worst=worst, kind="exact", note=note)


def linkage_of_rows(group: IntArray, bin_of_row: IntArray) -> FloatArray:
    """Return for each row the probability that :func:`truck_linkage` summarises."""
    group, largest, sizes = _largest_shares(group, bin_of_row)
    return np.asarray((largest / sizes)[group])


def _largest_shares(group: IntArray, bin_of_row: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the group of each row, from 0, and for each group the most rows in one bin and its size."""
    num_bins = int(bin_of_row.max()) + 1
    _, group, sizes = np.unique(group, return_inverse=True, return_counts=True)
    pairs, counts = np.unique(group * num_bins + bin_of_row, return_counts=True)
    largest = np.zeros(len(sizes), dtype=np.int64)
    np.maximum.at(largest, pairs // num_bins, counts)
    return group, largest, sizes


# Sealed slots


ESTIMATE_SECONDS = 4.0
COUNT_SECONDS = 0.25
COUNT_SHARE = 0.5
SECONDS_PER_CELL = 2.5e-7  # to look at a bin and a class, before anything is counted
SEALED_NOTE = (
    "the best guess of someone who knows the weight of one released package, the release and the slots, and that the "
    "owner fills them at random among all fills that fit; no outcome, no second package"
)


def slots_linkage(
    class_of: IntArray,
    sizes: IntArray,
    slots: Slots,
    room: IntArray,
    *,
    seconds: float,
    counting: float = COUNT_SECONDS,
) -> Linkage | None:
    """Return the linkage of slots, exact or estimated in ``seconds``; None if there is no time for either."""
    # Without an estimate, the only safe statement is certainty.
    unknown = Linkage(mean=1.0, worst=1.0, kind="estimate", note=f"there was no time for an estimate; {SEALED_NOTE}")
    num_classes = int(class_of.max()) + 1
    if max(seconds, counting) < SECONDS_PER_CELL * len(room) * num_classes:
        return unknown if seconds > 0 else None
    table = slots.table(len(room), num_classes)
    items, places = Items(class_of, sizes), FillSlots(table, room)
    stop = Deadline.after(max(seconds, counting))  # of both: where fills are too many to be counted, the rest estimates
    fills = count_fills(items, places, deadline=stop.part(COUNT_SHARE) if seconds > 0 else stop)
    if fills is not None and fills.number:
        return _stated(fills.best_chances(), "exact", fills=storable_count(fills.number))
    if seconds <= 0:
        return None
    estimate = estimate_chances(items, places, seconds=max(stop.left, COUNT_SECONDS))
    if estimate is None:
        return unknown
    return _stated(estimate.best_chances, "estimate", error=float(np.max(estimate.error)))


def storable_count(number: int | None) -> int | float | None:
    """Return a number of fills for a file: beyond 15 digits as a double, beyond 300 digits as 1e300."""
    if number is None or number < 10**15:
        return number
    return float(min(number, 10**300))


def _stated(best: FloatArray, kind: Literal["exact", "estimate"], **more: Any) -> Linkage:
    worst = min(float(best.max()), 1.0)  # rounding may lift a certain truck above 1
    mean = min(float(best.mean()), worst)  # rounding may lift the mean of equal chances
    return Linkage(mean=mean, worst=worst, kind=kind, note=SEALED_NOTE, **more)


def linkage_of_plan(plan: Plan, release: Release, *, seconds: float = ESTIMATE_SECONDS) -> Linkage:
    """Compute the linkage of a plan from its assignment or slots, whatever it states itself."""
    class_id = np.asarray(release.data.column("class_id").combine_chunks().to_numpy(zero_copy_only=False))
    if plan.slots is None:
        if len(plan.assignment) != len(release):
            raise ParameterError("the plan does not assign every row of the release once. Make the plan again.")
        return truck_linkage(exchangeable(release), plan.assignment, linkage_note(release))
    slots, sizes = plan.slots, np.bincount(class_id)
    if int(slots.class_id.max()) >= len(sizes) or not np.array_equal(
        np.bincount(slots.class_id, weights=slots.count, minlength=len(sizes)), sizes
    ):
        raise ParameterError("the slots of the plan do not match the sizes of the classes. Make the plan again.")
    if release.members is None:
        rows = np.repeat(slots.class_id, slots.count)
        return truck_linkage(rows, np.repeat(slots.bin, slots.count), linkage_note(release))
    known = tuple(release.uncertain(name) for name in plan.quantities)
    members = PackingProblem(release=release, known=known, trucks=plan.trucks).class_members()
    assert members is not None
    rooms = {truck.name: line for truck, line in zip(plan.trucks, members[1].rooms, strict=True)}
    room = np.array([rooms[name] for name in plan.truck_of_bin])
    class_of = np.repeat(np.arange(len(sizes)), sizes)
    linkage = slots_linkage(class_of, members[1].values, plan.slots, room, seconds=seconds)
    assert linkage is not None  # with time there is always an answer
    return linkage


# Noisy rows


MAX_WORK = 20_000_000  # pairs of a true value and a row that are considered for one figure of truck linkage
MAX_POINTS = 4096
_CHUNK = 1_000_000
_NODES = 1024

NOISY_NOTE = (
    "the best guess of someone who knows the weight and public values of one released package, the release, the law of "
    "its noise and the plan, but no outcome and no second package; right on average over weights that are spread "
    "evenly across the public domain"
)
POINTS_NOTE = "averaged over {points:,} weights that the rows make likely, evenly chosen, not over all weights"
LEFT_OUT_NOTE = (
    "as if this person knew whether the package is one of the noisy rows, which only helps the guess; their noisy "
    "values are inferred from their intervals"
)
MEMBER_NOTE = "if the package is in the release; before the release, the probability of that is at most beta"


@dataclass(frozen=True, eq=False)
class Segments:
    """Some true values, and the run of rows that could belong to each."""

    truths: IntArray  # numbers of the values
    starts: IntArray  # where the run of each begins
    rows: IntArray  # the rows, run by run
    weights: FloatArray  # proportional to the probability of each row within its run

    @cached_property
    def lengths(self) -> IntArray:
        return np.diff(np.append(self.starts, len(self.rows)))

    @cached_property
    def totals(self) -> FloatArray:
        return np.add.reduceat(self.weights, self.starts)

    @cached_property
    def largest(self) -> FloatArray:
        return np.maximum.reduceat(self.weights, self.starts)

    @property
    def probabilities(self) -> FloatArray:
        """The probability of each row within its run; 0 if no row of the run is possible."""
        totals = np.repeat(self.totals, self.lengths)
        return np.divide(self.weights, totals, out=np.zeros_like(totals), where=totals > 0)

    def by_truck(self, truck: IntArray) -> tuple[FloatArray, IntArray, IntArray]:
        of_row = truck[self.rows]
        new = np.append(True, of_row[1:] != of_row[:-1])
        new[self.starts] = True
        begins = np.flatnonzero(new)
        return np.add.reduceat(self.weights, begins), of_row[begins], np.searchsorted(begins, self.starts)


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyRows:
    """The noisy rows of a release, as everyone can see them."""

    names: tuple[str, ...]  # names, cells: the noisy columns and their laws
    cells: tuple[Cells, ...]
    rows: IntArray  # the noisy rows of the release
    steps: IntArray  # their grid steps. Shape: columns, rows
    stratum: IntArray  # number of the combination of public values of each

    @classmethod
    def of(cls, release: Release, stratum: IntArray | None = None) -> NoisyRows | None:
        """Read the noisy rows of a release; None if it does not state the law of its noise."""
        stated = release.certificate.rows.noise
        if not stated:
            return None
        if stratum is None:
            public = [name for name, item in release.attributes.items() if item.role == "public"]
            stratum = combinations(release, public)
        cells = tuple(stated_cells(release, name, laws) for name, laws in stated.items())
        rows = noisy_rows(release)
        steps = [_noisy_steps(release, name, one, rows) for name, one in zip(stated, cells, strict=True)]
        return cls(
            names=tuple(stated),
            cells=cells,
            rows=rows,
            steps=np.array(steps, dtype=np.int64).reshape(len(cells), len(rows)),
            stratum=stratum[rows],
        )

    def __len__(self) -> int:
        return len(self.rows)

    def _codes(self, steps: IntArray, stratum: IntArray) -> IntArray:
        codes = stratum.astype(np.int64)
        for cells, column in zip(self.cells, steps, strict=True):
            codes = codes * len(cells.cells) + cells.index(column)
        return codes

    @cached_property
    def _grouped(self) -> tuple[IntArray, IntArray]:
        codes, group = np.unique(self._codes(self.steps, self.stratum), return_inverse=True)
        return codes, group.reshape(-1)

    @property
    def group(self) -> IntArray:
        """The group of each row: rows of a group could belong to the same record."""
        return self._grouped[1]

    @cached_property
    def sizes(self) -> IntArray:
        return np.bincount(self.group, minlength=len(self._grouped[0])).astype(np.int64)

    @cached_property
    def cell_of_group(self) -> IntArray:
        """The cell of each group in each column. Shape: columns, groups."""
        first = np.unique(self.group, return_index=True)[1]
        columns = [cells.index(column[first]) for cells, column in zip(self.cells, self.steps, strict=True)]
        return np.array(columns, dtype=np.int64).reshape(len(self.cells), len(first))

    @cached_property
    def log_evidence(self) -> FloatArray:
        """The log-probability of each row's noisy values, if all true values of its cells are equally likely."""
        logs = np.zeros(len(self))
        for cells, column in zip(self.cells, self.steps, strict=True):
            for cell, rows in _by_cell(cells, cells.index(column)):
                logs[rows] += np.log(cell.law.evidence(column[rows] - cell.first))
        return logs

    def steps_of(self, truths: Mapping[str, npt.ArrayLike]) -> IntArray:
        """Return the grid steps of true values, column by column. Shape: columns, records."""
        return np.array([cells.steps(truths[name]) for name, cells in zip(self.names, self.cells, strict=True)])

    def group_of(self, truths: IntArray, stratum: IntArray) -> IntArray:
        """Return the group of each record's row; -1 if the release has no such row."""
        groups, wanted = self._grouped[0], self._codes(truths, stratum)
        if not len(groups):
            return np.full(len(wanted), -1)
        place = np.searchsorted(groups, wanted).clip(max=len(groups) - 1)
        return np.where((groups[place] == wanted) & (stratum >= 0), place, -1)

    def segments(
        self, truths: IntArray, group: IntArray, *, by: IntArray | None = None, as_printed: bool = False
    ) -> Iterator[Segments]:
        """Weigh the rows that could belong to each record, some records at a time."""
        own = self.stratum if as_printed else self.group
        num = int(own.max(initial=-1)) + 1
        order = np.lexsort((own,) if by is None else (by, own))
        sizes = np.bincount(own, minlength=num)
        begins = np.concatenate(([0], np.cumsum(sizes)))
        records = np.flatnonzero(group >= 0)
        stratum_of_group = self.stratum[np.unique(self.group, return_index=True)[1]]
        run = stratum_of_group[group[records]] if as_printed else group[records]
        ends, start = np.cumsum(sizes[run]), 0
        while start < len(run):  # parts without too many rows
            before = int(ends[start - 1]) if start else 0
            end = max(int(np.searchsorted(ends, before + _CHUNK, side="right")), start + 1)
            part, start = slice(start, end), end
            lengths = sizes[run[part]]
            starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
            shift = np.repeat(begins[run[part]] - starts, lengths)
            rows = order[shift + np.arange(len(shift))]
            # The log-likelihood of rows given true values, less their evidence; or the density as printed.
            true_steps = truths[:, np.repeat(records[part], lengths)]
            logs = np.zeros(len(rows)) if as_printed else -self.log_evidence[rows]
            for cells, column, truth in zip(self.cells, self.steps, true_steps, strict=True):
                seen = column[rows]
                for cell, some in _by_cell(cells, cells.index(seen)):
                    law, far = cell.law, np.abs(seen[some] - truth[some])
                    if not as_printed:
                        logs[some] += law.log_likelihood(seen[some] - cell.first, truth[some] - cell.first)
                    # The density of eq. 29, or of the other law, at the distance of two points, without clamping.
                    elif law.last == 0:
                        logs[some] += np.where(far == 0, 0.0, -np.inf)
                    elif isinstance(law, PiecewiseLaw):
                        scale = math.log((2 * law.half + 1) * math.exp(law.epsilon) + law.last)
                        logs[some] += np.where(far <= law.half, float(law.epsilon), 0.0) - scale
                    else:
                        step = 1 / float(law.scale)
                        logs[some] += math.log(math.tanh(step / 2)) - step * far
            yield Segments(records[part], starts, rows, np.exp(logs))


def _by_cell(cells: Cells, of_cell: IntArray) -> Iterator[tuple[Cell, Any]]:
    if len(cells.cells) == 1:
        yield cells.cells[0], slice(None)
        return
    for number in np.unique(of_cell).tolist():
        yield cells.cells[number], np.flatnonzero(of_cell == number)


def stated_cells(release: Release, name: str, laws: Sequence[NoiseCell]) -> Cells:
    stated = release.attributes[name].domain if name in release.attributes else None
    domain = domain_from(stated) if stated else None
    if not isinstance(domain, Numeric) or name not in release.bounded:
        raise ParameterError(f"the certificate states noise on {name!r}, which is not released as a number. Verify it.")
    return Cells.of(domain, [cell.plain() for cell in laws])


def _numbers(release: Release, name: str) -> FloatArray:
    column = release.data.column(name).combine_chunks().to_numpy(zero_copy_only=False)
    return np.asarray(column, dtype=np.float64)


def _noisy_steps(release: Release, name: str, cells: Cells, rows: IntArray) -> IntArray:
    """Return the grid steps of noisy values; if only intervals were released, of centres (or middles)."""
    if name in release.data.column_names:
        return cells.steps(_numbers(release, name)[rows])
    lower, upper = (_numbers(release, f"{name}_{end}")[rows] for end in ("lower", "upper"))
    # An end is half a step beyond the last point inside.
    low, high = cells.steps(lower), np.maximum(cells.domain.steps_below(upper), 0)
    steps: IntArray = (low + high) // 2
    for cell, some in _by_cell(cells, cells.index(steps)):
        reach = max(cell.law.radius, 0)
        around = np.where(high[some] < cell.end, high[some] - reach, steps[some])
        steps[some] = np.where(low[some] > cell.first, low[some] + reach, around)
    return np.clip(steps, 0, cells.domain.num_steps)


def noisy_rows(release: Release) -> IntArray:
    if "class_id" not in release.data.column_names:
        return np.arange(len(release))
    return np.flatnonzero(release.data.column("class_id").combine_chunks().to_numpy(zero_copy_only=False) < 0)


# Trucks


class _Guesses(NamedTuple):
    """How often the best guess at a truck is right, added up over packages."""

    total: float
    worst: float
    points: int = 0
    error: float = 0.0  # standard error of the total, if not all points were considered


def noisy_linkage(release: Release, bin_of_row: IntArray) -> Linkage | None:
    """Return how often someone who knows a package's weight, a noisy release and the plan can name its truck."""
    # The best guess is the truck with the largest sum of row probabilities. Given the release, the true values of row j
    # are w with probability p(w) f(b_j | w) / g(b_j), with p uniform on the public domain. So the mean over packages is
    # the sum over w of p(w) times the largest sum of f(b_i | w) / g(b_i) over the rows of a truck, divided by the rows.
    rows = NoisyRows.of(release)
    if rows is None or not len(release):
        return None
    truck_of_row = np.unique(bin_of_row, return_inverse=True)[1].reshape(-1)
    guesses, notes = _Guesses(0.0, 0.0), [NOISY_NOTE]
    if len(rows):
        truck = truck_of_row[rows.rows]
        least = np.full(len(rows.sizes), len(truck), dtype=np.int64)
        most = np.full(len(rows.sizes), -1, dtype=np.int64)
        np.minimum.at(least, rows.group, truck)
        np.maximum.at(most, rows.group, truck)
        mixed = least < most
        sure = int(rows.sizes[~mixed].sum())  # a group that is all in one truck is certain
        if mixed.any():
            # The number of possible true values of each group; doubles, because it may be very large.
            points = np.ones(len(rows.sizes))
            for cells, of_group in zip(rows.cells, rows.cell_of_group, strict=True):
                points *= np.array([cell.law.last + 1.0 for cell in cells.cells])[of_group]
            work = math.fsum((rows.sizes * points)[mixed].tolist())
            guesses = _over_all(rows, truck, mixed, points) if work <= MAX_WORK else _over_some(rows, truck, mixed)
        guesses = guesses._replace(total=sure + guesses.total, worst=max(guesses.worst, float(sure > 0)))
    if guesses.points:
        notes.append(POINTS_NOTE.format(points=guesses.points))
    total, worst = guesses.total, guesses.worst
    if len(rows) < len(release):
        kept = np.setdiff1d(np.arange(len(release)), rows.rows)
        best = linkage_of_rows(exchangeable(release)[kept], truck_of_row[kept])
        total, worst = total + float(best.sum()), max(worst, float(best.max()))
        notes.append(LEFT_OUT_NOTE)
    mean = min(total / len(release), worst)
    some: dict[str, Any] = {"points": guesses.points, "error": guesses.error / len(release)} if guesses.points else {}
    return Linkage(mean=mean, worst=worst, kind="estimate", note="; ".join(notes), **some)


def _over_all(rows: NoisyRows, truck: IntArray, mixed: BoolArray, points: FloatArray) -> _Guesses:
    groups = np.flatnonzero(mixed)
    each = points[groups].astype(np.int64)
    group = np.repeat(groups, each)
    left = np.arange(len(group)) - np.repeat(np.cumsum(each) - each, each)
    truths = np.empty((len(rows.cells), len(group)), dtype=np.int64)
    for axis, cells in enumerate(rows.cells):
        of_cell = rows.cell_of_group[axis][group]
        num = np.array([cell.law.last + 1 for cell in cells.cells])[of_cell]
        truths[axis] = np.array([cell.first for cell in cells.cells])[of_cell] + left % num
        left //= num
    total, worst = 0.0, 0.0
    for part in rows.segments(truths, group, by=truck):
        sums, _, begins = part.by_truck(truck)
        best = np.maximum.reduceat(sums, begins)
        total += math.fsum((best / points[group[part.truths]]).tolist())
        met = part.totals > 0  # far from every row, all weights may underflow
        worst = max(worst, float((best[met] / part.totals[met]).max(initial=0.0)))
    return _Guesses(total, min(worst, 1.0))


def _over_some(rows: NoisyRows, truck: IntArray, mixed: BoolArray) -> _Guesses:
    """Average over likely true values: evenly chosen rows, at evenly spread quantiles of their posteriors."""
    chosen = np.flatnonzero(mixed[rows.group])
    chosen = chosen[np.lexsort((rows.steps[0][chosen], rows.group[chosen]))]
    pairs = float(rows.sizes[rows.group[chosen]].mean())
    num = int(min(max(MAX_WORK / pairs, 64), MAX_POINTS))
    index, num_axes = np.arange(num), len(rows.cells)
    some = chosen[(index * len(chosen) + len(chosen) // 2) // num % len(chosen)]
    # Points between 0 and 1 that are evenly spread in each axis and in all axes (Kronecker's sequence).
    root = 1.5
    for _ in range(64):  # the positive solution of root**(d + 1) = root + 1
        root = (1 + root) ** (1 / (num_axes + 1))
    truths = np.empty((num_axes, num), dtype=np.int64)
    for axis, (cells, steps) in enumerate(zip(rows.cells, rows.steps, strict=True)):
        share = np.mod(0.5 + (index + 1) * root ** -(axis + 1), 1.0)
        seen, of_cell = steps[some], cells.index(steps[some])
        for number in np.unique(of_cell).tolist():
            cell, places = cells.cells[number], np.flatnonzero(of_cell == number)
            for part in np.array_split(places, -(-len(places) * 2 * _NODES // _CHUNK)):
                truths[axis, part] = cell.first + _quantile(cell.law, seen[part] - cell.first, share[part])
    best = np.empty(num)
    for run in rows.segments(truths, rows.group[some], by=truck):
        sums, _, begins = run.by_truck(truck)
        best[run.truths] = np.maximum.reduceat(sums, begins) / run.totals
    total, error = float(best.mean()) * len(chosen), float(best.std()) / math.sqrt(num) * len(chosen)
    return _Guesses(total, min(float(best.max()), 1.0), num, error)


def _quantile(law: Law, seen_of_share: IntArray, share: FloatArray) -> IntArray:
    """Return quantiles of the posterior under a uniform prior, on all points or on nodes that are denser nearby."""
    seen, which = np.unique(seen_of_share, return_inverse=True)  # few values may stand for many points
    if law.last < 2 * _NODES:
        nodes = np.broadcast_to(np.arange(law.last + 1), (len(seen), law.last + 1))
    else:
        near = math.ceil(law.scale) if isinstance(law, LaplaceLaw) else law.half + 1
        even = np.linspace(0, law.last, _NODES)
        close = seen[:, None] + np.linspace(-2 * near, 2 * near, _NODES)
        all_nodes = np.concatenate([np.broadcast_to(even, close.shape), close], axis=1)
        nodes = np.sort(np.rint(np.clip(all_nodes, 0, law.last)).astype(np.int64), axis=1)
    # Each node represents the points that are nearer to it than to its neighbours.
    borders = (nodes[:, 1:] + nodes[:, :-1]) / 2
    ends = np.full((len(seen), 1), -0.5), np.full((len(seen), 1), law.last + 0.5)
    width = np.diff(np.concatenate([ends[0], borders, ends[1]], axis=1), axis=1)
    logs = law.log_likelihood(seen[:, None], nodes)
    mass = np.cumsum(width * np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
    place = np.empty(len(share), dtype=np.int64)
    for number, sums in enumerate(mass):
        own = which == number
        place[own] = np.searchsorted(sums, share[own] * sums[-1])
    return np.asarray(nodes[which, place.clip(max=nodes.shape[1] - 1)], dtype=np.int64)
