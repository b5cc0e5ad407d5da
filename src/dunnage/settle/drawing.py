# SPDX-License-Identifier: Apache-2.0
"""Drawing: a uniformly random way to put a plan's packages where it wants ones like them, such that every bin fits.

A sealed plan leaves to its owner which package of a class goes where; a repair that exchanges packages that look alike
does the same. Either way the trucks tell least if all feasible fills are equally likely. Where they can be counted the
draw is exactly uniform, and so are the chances that someone who knows every weight could compute.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins.fills import Fills, Items, Slots, count_fills
from dunnage.errors import NoPlanError
from dunnage.noise import Noise
from dunnage.settle.filling import draw_fill
from dunnage.settle.task import Fill, Task

COUNT_SECONDS = 2.0
DRAW_SECONDS = 10.0
MOST_CELLS = 20_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Drawn:
    """A fill drawn from all feasible ones."""

    bin_of_row: IntArray | None  # The bin of each row; None if no feasible fill exists, or none was found
    exact: bool  # Whether all were counted: then the draw is exactly uniform, and None means that there is none
    number: int | None  # How many feasible fills there are; None if they were not counted
    best_guess: FloatArray | None  # For each row the largest chance that it is in a bin; None without a fill


def told_number(number: int | None) -> int | float | None:
    """Return a number of fills as files can hold it: beyond 15 digits as a double, beyond 300 as 1e300.

    Examples
    --------
    >>> told_number(6), told_number(10**20), told_number(10**5000)
    (6, 1e+20, 1e+300)
    """
    if number is None or number < 10**15:
        return number
    return float(min(number, 10**300))


def planned_counts(task: Task) -> IntArray:
    """Return how many rows of each group the plan puts into each bin. Shape: bins by groups."""
    counts = np.zeros((task.plan.num_bins, len(task.members)), dtype=np.int64)
    np.add.at(counts, (task.start, task.group), 1)
    return counts


def counted_fills(task: Task) -> Fills | None:
    """Count the feasible fills with the plan's numbers of each group in each bin; None if they cannot be counted."""
    problem = _problem(task)
    return count_fills(*problem, deadline=time.monotonic() + COUNT_SECONDS) if problem is not None else None


def _problem(task: Task) -> tuple[Items, Slots] | None:
    """Write a plan as a counting problem; None if it is too large for one, or its numbers are."""
    if task.plan.num_bins * max(len(task.members), len(task.whole)) > MOST_CELLS or task.whole.dtype == object:
        return None
    return Items(task.group, task.whole), Slots(planned_counts(task), task.rooms)


def count_and_draw(task: Task, noise: Noise) -> Drawn | None:
    """Draw a fill exactly uniformly from all feasible ones; None if they cannot be counted."""
    if len(task.members) == len(task.start):  # no two rows look alike, so the plan's own fill is the only one
        fits = not len(Fill.of(task, task.start).overloaded)
        return Drawn(task.start, True, 1, np.ones(len(task.start))) if fits else Drawn(None, True, 0, None)
    fills = counted_fills(task)
    if fills is None:
        return None
    if fills.number == 0:
        return Drawn(None, True, 0, None)
    return Drawn(fills.draw(noise.below), True, fills.number, fills.chances().max(axis=1))


def draw(task: Task, noise: Noise) -> Drawn:
    """Draw a feasible fill: exactly uniformly if they can be counted, else from those that random walks meet."""
    problem = None if task.too_heavy.any() else _problem(task)
    if problem is None:
        return Drawn(None, bool(task.too_heavy.any()), 0 if task.too_heavy.any() else None, None)
    counted = count_and_draw(task, noise)
    if counted is not None:
        return counted
    try:
        filling = draw_fill(*problem, noise, seconds=DRAW_SECONDS, most_states=0)
    except NoPlanError:
        return Drawn(None, False, None, None)
    return Drawn(filling.bin_of_item, filling.exact, filling.number, filling.linkage)


def most_frequent_share(bins: IntArray) -> FloatArray:
    """Return for each row the share of its most frequent bin. Shapes: repairs x rows -> rows.

    Examples
    --------
    >>> most_frequent_share(np.array([[0, 1], [0, 2], [1, 3]])).round(2).tolist()
    [0.67, 0.33]
    """
    ranked = np.sort(bins, axis=0)
    run = np.ones(bins.shape[1], dtype=np.int64)
    longest = run.copy()
    for above, below in itertools.pairwise(ranked):
        run = np.where(above == below, run + 1, 1)
        longest = np.maximum(longest, run)
    return np.asarray(longest / len(bins))
