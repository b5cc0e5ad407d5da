# SPDX-License-Identifier: Apache-2.0
"""Restating: truck linkage once the trucks are filled.

Filling by the weights tells something of them. A uniformly random feasible fill tells least, and what it tells can be
computed where fills can be counted; else it is estimated from the repairs found. Noisy rows are never exchanged, so
there it is how well a row is told by its noisy values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.planning.linkage import linkage_of_rows, truck_linkage
from dunnage.release import Release
from dunnage.settle.drawing import Drawn, most_frequent_share
from dunnage.settle.filling import ESTIMATE_NOTE, LINKAGE_NOTE
from dunnage.settle.repair import Repair
from dunnage.settle.task import LEFT_BEHIND, Fill, Task

OUTSIDE_NOTE = "packages outside the plan travel in trucks of their own and are not hidden by it"
MOVED_NOTE = "packages were moved by their true weights: who sees which ones learns more of them, which is not counted"


def planned_linkage(release: Release, group: IntArray, bin_of_row: IntArray) -> dict[str, Any]:
    """State truck linkage of a plan on a release: by its classes, or by how well noise hides a row."""
    if release.noisy:
        from dunnage.planning.identification import noisy_linkage

        return noisy_linkage(release, bin_of_row)
    return truck_linkage(group, bin_of_row)


def restated_linkage(
    task: Task, release: Release, final: Fill, mended: Repair | None, drawn: Drawn | None
) -> dict[str, Any]:
    """State truck linkage for the final bins; packages left behind count as if they were in one truck."""
    counted = mended.counted if mended is not None else drawn
    if counted is not None and counted.best_guess is not None:
        kind = "exact" if counted.exact and not release.noisy else "estimate"
        note = LINKAGE_NOTE if counted.exact else f"{LINKAGE_NOTE}; {ESTIMATE_NOTE}"
        return {**_summary(counted.best_guess, kind), "note": f"{note}; {OUTSIDE_NOTE}"}
    bins = np.where(final.bin_of_row == LEFT_BEHIND, len(final.loads), final.bin_of_row)
    linkage = planned_linkage(release, task.group, bins)
    if not linkage:
        return {}
    note = f"{linkage['note']}; {OUTSIDE_NOTE}"
    if mended is None:
        # Where it rests on noise, how likely everything fits says nothing of how likely it does given the release.
        seen = {} if release.noisy else _if_seen_to_fit(task, final, linkage["worst"])
        return {**linkage, "note": note, **seen}
    if "class_id" not in release.data.column_names:
        return {**linkage, "note": f"{note}; {MOVED_NOTE}"}
    found = most_frequent_share(np.array([_comparable(fill) for fill in mended.found]))
    return {
        **_summary(np.maximum(linkage_of_rows(task.group, bins), found), "estimate"),
        "repairs": len(mended.found),
        "note": f"{note}; the repair was drawn from {len(mended.found)} found; others may exist, "
        "and few make the estimate high",
    }


def _summary(share: FloatArray, kind: str) -> dict[str, Any]:
    return {"mean": float(share.mean()), "worst": float(share.max()), "kind": kind}


def _if_seen_to_fit(task: Task, final: Fill, worst: float) -> dict[str, float]:
    """Bound the best guess of someone who also sees that everything fitted as planned.

    Seeing what happens with probability f multiplies no chance by more than 1/f.
    """
    least = float(task.plan.certified.get("at_least", 0.0))
    fits = task.plan.slots is None and not len(final.overloaded)
    return {"if_seen_to_fit": min(1.0, worst / least)} if fits and least > 0 else {}


def _comparable(fill: Fill) -> IntArray:
    """Give bins the same numbers in all repairs: opened ones have none of their own, so they count as one."""
    return np.minimum(fill.bin_of_row, fill.task.plan.num_bins)
