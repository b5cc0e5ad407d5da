# SPDX-License-Identifier: Apache-2.0
"""Sealed slots: how much a plan that names only classes tells about each package's truck.

An onlooker knows the release, the slots, and that the owner fills them uniformly at random among the fills that fit.
What he can say of a package is the share of those fills that put it into a truck; see ``docs/proofs/linkage.md``.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from dunnage.arrays import IntArray
from dunnage.bins.exchanges import over_caps, spread_items
from dunnage.bins.fills import Items, count_fills, estimate_chances, sealed_linkage
from dunnage.bins.fills import Slots as FillSlots
from dunnage.errors import ParameterError
from dunnage.planning.linkage import exchangeable, truck_linkage
from dunnage.planning.plan import Plan, Slots
from dunnage.planning.problem import PackingProblem
from dunnage.release import Release

VARIANTS = 6
ESTIMATE_SECONDS = 4.0
_EXACT_IN_JSON = 10**15
_MOST_IN_JSON = 1e300
SEALED_NOTE = (
    "the best guess of someone who knows the weight of one released package, the release and the slots, and that the "
    "owner fills them at random among all fills that fit; no outcome, no second package"
)


def least_linked_slots(
    class_of: IntArray,  # class_of, sizes, group_of, bin_of: class, size, group and bin of each member
    sizes: IntArray,
    group_of: IntArray,
    bin_of: IntArray,
    room: IntArray,  # What each bin holds
    caps: IntArray,  # Most members of each class that a bin may take
    *,
    seconds: float,  # Time for looking at other packings; the first is always weighed
    estimating: float = ESTIMATE_SECONDS,
) -> tuple[Slots, dict[str, Any]]:
    """Return slots, among some packings with the same bins, that tell least, and what they tell."""
    deadline = time.monotonic() + seconds
    variants = [bin_of]
    best: tuple[float, Slots, dict[str, Any]] | None = None
    for number in range(VARIANTS):
        if number and time.monotonic() >= deadline:
            break
        if number:
            step = seconds / VARIANTS / 2
            other = spread_items(sizes, class_of, group_of, bin_of, room, caps=caps, seconds=step, seed=number)
            if over_caps(class_of, other, caps, len(room)) or any(np.array_equal(other, seen) for seen in variants):
                continue
            variants.append(other)
        slots = Slots.of_assignment(variants[-1], class_of)
        linkage = slots_linkage(class_of, sizes, slots, room, seconds=estimating if not number else 0.0)
        if linkage is not None and (best is None or linkage["mean"] < best[0]):
            best = linkage["mean"], slots, linkage
    assert best is not None  # the first is always weighed
    return best[1], best[2]


def slots_linkage(
    class_of: IntArray, sizes: IntArray, slots: Slots, room: IntArray, *, seconds: float
) -> dict[str, Any] | None:
    """State what slots tell: exactly if the fills can be counted, else by an estimate that takes ``seconds``.

    None if they cannot be counted and no time is given.
    """
    table = slots.table(len(room), int(class_of.max()) + 1)
    items, places = Items(class_of, sizes), FillSlots(table, room)
    fills = count_fills(items, places, deadline=time.monotonic() + max(seconds, 1.0))
    if fills is not None and fills.number:
        return _stated(fills.chances(), "exact", {"fills": _told(fills.number)})
    if seconds <= 0:
        return None
    estimate = estimate_chances(items, places, seconds=seconds)
    if estimate is None:
        # Nobody could tell by the same means; the only safe word is certainty.
        return {"mean": 1.0, "worst": 1.0, "kind": "estimate", "note": f"not estimated in time; {SEALED_NOTE}"}
    return _stated(estimate.chances, "estimate", {"error": float(np.max(estimate.error))})


def _told(number: int) -> float:
    """Return a count as a number that JSON can hold."""
    if number < _EXACT_IN_JSON:
        return number
    return float(number) if number < 10**300 else _MOST_IN_JSON


def _stated(chances: npt.NDArray[np.float64], kind: str, more: dict[str, Any]) -> dict[str, Any]:
    best = sealed_linkage(chances)
    worst = float(best.max())
    mean = min(float(best.mean()), worst)  # equal chances add up to a little more
    return {"mean": mean, "worst": worst, "kind": kind, "note": SEALED_NOTE, **more}


def linkage_of_plan(plan: Plan, release: Release, *, seconds: float = ESTIMATE_SECONDS) -> dict[str, Any]:
    """Compute what a plan tells from its assignment or slots, whatever it states itself."""
    class_id = np.asarray(release.data.column("class_id").combine_chunks().to_numpy(zero_copy_only=False))
    if plan.slots is None:
        if len(plan.assignment) != len(release):
            raise ParameterError("the plan does not assign every row of the release once. Plan on the release anew.")
        return truck_linkage(exchangeable(release), plan.assignment)
    slots, sizes = plan.slots, np.bincount(class_id)
    if int(slots.class_id.max()) >= len(sizes) or not np.array_equal(
        np.bincount(slots.class_id, weights=slots.count, minlength=len(sizes)), sizes
    ):
        raise ParameterError("the slots of the plan do not take each class exactly. Plan on the release anew.")
    if release.members is None:
        rows = np.repeat(slots.class_id, slots.count)
        return truck_linkage(rows, np.repeat(slots.bin, slots.count))
    return _counted_linkage(plan, release, sizes, seconds)


def _counted_linkage(plan: Plan, release: Release, sizes: IntArray, seconds: float) -> dict[str, Any]:
    assert plan.slots is not None
    known = tuple(release.uncertain(name) for name in plan.quantities)
    members = PackingProblem(release=release, known=known, trucks=plan.trucks).class_members()
    assert members is not None
    rooms = {truck.name: line for truck, line in zip(plan.trucks, members[1].rooms, strict=True)}
    room = np.array([rooms[name] for name in plan.truck_of_bin])
    class_of = np.repeat(np.arange(len(sizes)), sizes)
    found = slots_linkage(class_of, members[1].values, plan.slots, room, seconds=seconds)
    assert found is not None  # with time given there is always an answer
    return found
