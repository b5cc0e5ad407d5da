# SPDX-License-Identifier: Apache-2.0
"""Repair: mend the bins that overflow, without telling more of the weights than must be.

Stages, each only if those before found nothing: exchange packages that look alike to the planner; move packages between
bins; open bins; leave packages behind. Where all ways to exchange can be counted, one is drawn uniformly from them all.
Else each stage is tried from many random fills, and one of the repairs found is drawn uniformly.

References
----------
Selman, Kautz, Cohen 1994 (descent with steps sideways, from many starts).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dunnage import noise_arrays
from dunnage.arrays import IntArray
from dunnage.exact import exact
from dunnage.noise import Noise
from dunnage.planning.linkage import linkage_of_rows
from dunnage.settle.drawing import Drawn, count_and_draw, most_frequent_share, told_number
from dunnage.settle.opening import MOST_REPACKED, assign, leave_fewest, open_bins, packed_rows, set_aside, spill
from dunnage.settle.task import LEFT_BEHIND, Fill, Task, WholeArray

STAGE_SECONDS = 2.0
ROW_SECONDS = 1e-4
MOST_REPAIRS = 200
MOST_IDLE_STARTS = 30
MOST_STUCK_STEPS = 25
MOST_MIXING_STEPS = 2000
MOST_PAIRS = 200_000

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False, repr=False)
class Repair:
    """The repair drawn, those it was drawn from (all there are, if they were counted), and what to say of it."""

    fill: Fill
    found: list[Fill]
    counted: Drawn | None
    report: dict[str, Any]


def find_repair(task: Task, noise: Noise, *, leave_behind: bool, tell: Progress, tried: Drawn | None = None) -> Repair:
    """Go through the stages until one finds repairs, and draw one of its best uniformly."""
    tell(_STAGES[0])
    counted = None if task.too_heavy.any() else tried or count_and_draw(task, noise)
    if counted is not None and counted.exact and counted.bin_of_row is not None:
        fill = Fill.of(task, counted.bin_of_row)
        return Repair(fill, [fill], counted, _report(fill, True, told_number(counted.number)))
    none_exists = counted is not None and counted.exact
    best, done = ([], False) if none_exists else _search(task, noise, 1)
    for stage, line in enumerate(_STAGES[1 : 4 if leave_behind else 3], 2):
        if not done:
            tell(line)
            best, done = _search(task, noise, stage)
    drawn = best[noise.below(len(best))]
    feasible = done and (leave_behind or not task.too_heavy.any())
    if not leave_behind:
        for row in np.flatnonzero(drawn.bin_of_row == LEFT_BEHIND).tolist():
            drawn.put(row, int(task.start[row]))
    return Repair(drawn, best, None, _report(drawn, feasible, len(best) if feasible else 0))


def find_exchange(task: Task, noise: Noise) -> Drawn:
    """Look for fills in which every bin fits by exchanging rows alone, and draw one of those found uniformly."""
    found, done = _search(task, noise, 1)
    if not done or task.too_heavy.any():
        return Drawn(None, False, None, None)
    share = most_frequent_share(np.array([fill.bin_of_row for fill in found]))
    drawn = found[noise.below(len(found))].bin_of_row
    return Drawn(drawn, False, None, np.maximum(share, linkage_of_rows(task.group, drawn)))


_STAGES = ("exchanging packages that look alike", "moving packages", "opening bins", "leaving packages behind")


def _search(task: Task, noise: Noise, stage: int) -> tuple[list[Fill], bool]:
    """Look for repairs of a stage from many random starts; return the distinct best, and whether they are repairs."""
    deadline = time.monotonic() + STAGE_SECONDS + len(task.whole) * ROW_SECONDS
    found: dict[bytes, Fill] = {}
    cost: tuple[int, int, int, Fraction] | None = None
    idle = 0
    while cost is None or (time.monotonic() < deadline and idle < MOST_IDLE_STARTS and len(found) < MOST_REPAIRS):
        fill = _attempt(task, noise, stage, deadline)
        own = _cost(fill, stage)
        idle += 1
        if cost is None or own < cost:
            found, cost, idle = {}, own, 0
        if own == cost and fill.bin_of_row.tobytes() not in found:
            found[fill.bin_of_row.tobytes()] = fill
            idle = 0 if cost[0] == 0 else idle
    return list(found.values()), cost is not None and cost[0] == 0


def _cost(fill: Fill, stage: int) -> tuple[int, int, int, Fraction]:
    """Say how bad a fill is: what does not fit, what breaks the spread, packages left behind, cost of bins opened."""
    above = sum(item["count"] - item["allowed"] for item in fill.task.above_spread(fill.bin_of_row))
    aside = len(set_aside(fill))
    opened = fill.truck_of_bin[fill.task.plan.num_bins :]
    cost = sum((exact(truck.cost, what="cost") for truck in opened), Fraction(0))
    return fill.overload + (aside if stage < 4 else 0), above, aside, cost


def _attempt(task: Task, noise: Noise, stage: int, deadline: float) -> Fill:
    fill = _shuffled(task, noise)
    _descend(fill, noise, _exchanges, deadline)
    if fill.overload and stage >= 2:
        _descend(fill, noise, _moves, deadline)
        _repack(fill, noise, deadline)
    if fill.overload and stage >= 3:
        spill(fill)
        open_bins(fill, noise, deadline)
    if stage >= 4 and set_aside(fill).size:
        leave_fewest(fill, noise, deadline)
    if not fill.overload:
        _mix(fill, noise)
    return fill


def _shuffled(task: Task, noise: Noise) -> Fill:
    """Fill the plan's bins anew: rows that may be exchanged, at random; rows too heavy for any truck, set aside."""
    planned = np.where(task.too_heavy, LEFT_BEHIND, task.start)
    group = np.where(task.too_heavy, -1, task.group)
    keys = noise_arrays.permutation(noise, len(group))
    bin_of_row = np.empty_like(planned)
    bin_of_row[np.argsort(group, kind="stable")] = planned[np.lexsort((keys, group))]
    return Fill.of(task, bin_of_row)


class _Changes(NamedTuple):
    """Changes that could be made to one bin: a row out into another bin, and a row from there in (or -1: none)."""

    row: IntArray
    to: IntArray
    back: IntArray


def _descend(fill: Fill, noise: Noise, changes: Callable[[Fill, Noise, int], _Changes], deadline: float) -> None:
    """Lower the overload change by change, with a few steps sideways where it does not fall; keep the best met."""
    total = lowest = fill.overload
    best: tuple[IntArray, WholeArray] | None = None  # None while the fill itself is the best met
    stuck = 0
    while lowest and stuck < MOST_STUCK_STEPS and time.monotonic() < deadline:
        over = fill.overloaded
        bin_ = int(over[noise.below(len(over))])
        options = changes(fill, noise, bin_)
        stuck += 1
        if not len(options.row):
            continue
        pick, change = _choice(fill, noise, bin_, options)
        if change >= 0 and best is None:
            best = fill.bin_of_row.copy(), fill.loads.copy()
        fill.make(bin_, *(int(part[pick]) for part in options))
        total += change
        if total < lowest:
            best, lowest, stuck = None, total, 0
    if best is not None:
        fill.bin_of_row, fill.loads = best


def _choice(fill: Fill, noise: Noise, bin_: int, options: _Changes) -> tuple[int, int]:
    """Choose a change: any that settles both bins, else the one that helps most, else one of the least harmful."""
    whole, priced = fill.task.whole, fill.task.priced
    less = whole[options.row] - np.where((options.back >= 0)[:, None], whole[options.back], 0)
    other = fill.loads[options.to] - fill.capacities[options.to]
    own = fill.loads[bin_] - fill.capacities[bin_]
    after = priced(np.maximum(own - less, 0) + np.maximum(other + less, 0))
    change = after - priced(np.maximum(other, 0)) - priced(np.maximum(own, 0)[None])[0]
    ties = np.flatnonzero(after == 0)
    if not len(ties):
        least = change.min()
        ties = np.flatnonzero(change == least) if least < 0 else np.argsort(change, kind="stable")[:8]
    pick = int(ties[noise.below(len(ties))])
    return pick, int(change[pick])


def _exchanges(fill: Fill, noise: Noise, bin_: int) -> _Changes:
    """List swaps of a bin's rows with rows elsewhere that look the same to the planner."""
    task = fill.task
    rows = fill.rows_of(np.array([bin_])).tolist()
    partners = [_few(task.members[task.group[row]], MOST_PAIRS // len(rows), noise) for row in rows]
    row = np.repeat(rows, [len(found) for found in partners])
    back = np.concatenate(partners)
    other = (fill.bin_of_row[back] != bin_) & (fill.bin_of_row[back] != LEFT_BEHIND)
    row, back = row[other], back[other]
    other = (task.whole[row] != task.whole[back]).any(axis=1)
    return _Changes(row[other], fill.bin_of_row[back[other]], back[other])


def _few(rows: IntArray, most: int, noise: Noise) -> IntArray:
    """Return all rows, or some at random if they are many."""
    return rows if len(rows) <= most else rows[noise_arrays.below(noise, len(rows), max(most, 1))]


def _moves(fill: Fill, noise: Noise, bin_: int) -> _Changes:
    """List moves of a bin's rows into others, and swaps, that bring no row among strangers."""
    task = fill.task
    rows = fill.rows_of(np.array([bin_]))
    may_come = np.isin(task.stratum, list(fill.strata[bin_]))
    parts = []
    for stratum in np.unique(task.stratum[rows]).tolist():
        bins = np.array([b for b, held in enumerate(fill.strata) if stratum in held and b != bin_], dtype=np.int64)
        own = rows[task.stratum[rows] == stratum]
        back = fill.rows_of(bins)
        back = back[may_come[back]]
        back = _few(back, MOST_PAIRS // len(own), noise)
        nobody = np.full(len(bins), -1)
        to, back = np.concatenate([bins, fill.bin_of_row[back]]), np.concatenate([nobody, back])
        parts.append(_Changes(np.repeat(own, len(to)), np.tile(to, len(own)), np.tile(back, len(own))))
    return _Changes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _alike(fill: Fill) -> Iterator[IntArray]:
    """Yield bins of equal capacity and strata, some of them overloaded: their rows may change places freely."""
    alike: dict[tuple[tuple[int, ...], frozenset[int]], list[int]] = {}
    for bin_, (room, strata) in enumerate(zip(fill.capacities.tolist(), fill.strata, strict=True)):
        alike.setdefault((tuple(room), strata), []).append(bin_)
    over = set(fill.overloaded.tolist())
    yield from (np.array(bins) for bins in alike.values() if not over.isdisjoint(bins))


def _repack(fill: Fill, noise: Noise, deadline: float) -> None:
    """Pack bins that are alike anew, a few of them or else many, where that needs no more bins than there are."""
    for bins in _alike(fill):
        for chosen in _few_then_many(fill, bins, noise):
            packed = packed_rows(fill.task, fill.rows_of(chosen), fill.capacities[chosen[0]], noise, deadline)
            if packed is not None and len(packed) <= len(chosen):
                assign(fill, packed, chosen.tolist())
                break


def _few_then_many(fill: Fill, bins: IntArray, noise: Noise) -> Iterator[IntArray]:
    """Yield the overloaded bins with some others at random, then with as many as can be packed anew in a second."""
    order = bins[noise_arrays.permutation(noise, len(bins))]
    over = (fill.excess[order] > 0).any(axis=1)
    order, num_over = order[np.argsort(~over, kind="stable")], int(over.sum())
    sizes = np.bincount(fill.bin_of_row + 1, minlength=len(fill.loads) + 1)[1:]
    most = max(num_over, int(np.searchsorted(np.cumsum(sizes[order]), MOST_REPACKED, side="right")))
    few = min(3 * num_over + 5, most)
    yield order[:few]
    if few < most:
        yield order[:most]


def _mix(fill: Fill, noise: Noise) -> None:
    """Swap rows that look alike at random wherever all still fits, so that the fill tells less of how it was found."""
    task = fill.task
    rows = np.concatenate([found for found in task.members if len(found) > 1] or [np.empty(0, dtype=np.int64)])
    if not len(rows):
        return
    steps = min(4 * len(rows), MOST_MIXING_STEPS)
    drawn = rows[noise_arrays.below(noise, len(rows), steps)]
    mates = [task.members[group] for group in task.group[drawn].tolist()]
    others = np.array([int(members[noise.below(len(members))]) for members in mates])
    less = (task.whole[drawn] - task.whole[others]).tolist()
    room = (-fill.excess).tolist()
    for row, other, change in zip(drawn.tolist(), others.tolist(), less, strict=True):
        here, there = int(fill.bin_of_row[row]), int(fill.bin_of_row[other])
        if LEFT_BEHIND in (here, there) or here == there:
            continue
        left = [free + amount for free, amount in zip(room[here], change, strict=True)]
        taken = [free - amount for free, amount in zip(room[there], change, strict=True)]
        if min(left) >= 0 and min(taken) >= 0:
            room[here], room[there] = left, taken
            fill.bin_of_row[row], fill.bin_of_row[other] = there, here
    fill.loads = fill.capacities - np.array(room, dtype=fill.loads.dtype)


def _report(fill: Fill, feasible: bool, num_found: float | None) -> dict[str, Any]:
    """Count what was changed. Net: rows of a group that traded places are permuted, the others moved."""
    task = fill.task
    before, after = task.start, fill.bin_of_row
    num_bins = len(fill.loads) + 1
    change = Counter((task.group * num_bins + after)[after != LEFT_BEHIND].tolist())
    change.subtract((task.group * num_bins + before).tolist())
    moved = sum(number for number in change.values() if number > 0)
    counts = {
        "permuted": int(((before != after) & (after != LEFT_BEHIND)).sum()) - moved,
        "moved": moved,
        "opened": len(fill.loads) - task.plan.num_bins,
        "left_behind": int((after == LEFT_BEHIND).sum()),
    }
    return {"feasible": feasible, **counts, "repairs_found": num_found, "sentence": _sentence(feasible, counts)}


def _sentence(feasible: bool, counts: dict[str, int]) -> str:
    words = {
        "permuted": "{} packages changed places with others of their class",
        "moved": "{} moved to another bin",
        "opened": "{} bins opened",
        "left_behind": "{} left behind",
    }
    done = ", ".join(text.format(counts[name]) for name, text in words.items() if counts[name])
    if feasible:
        return f"every bin fits: {done}."
    return (
        f"not every bin fits{f', though {done}' if done else ''}. Leave packages behind, or use more or larger trucks."
    )
