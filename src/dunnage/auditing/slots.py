# SPDX-License-Identifier: Apache-2.0
"""Releases of slots: what the certificate allows anyone to learn, and how well the true records fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dunnage.auditing.findings import KeyFigure, figure
from dunnage.auditing.plans import truck_figures
from dunnage.planning.plan import Plan
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.settle import matched_records
from dunnage.tables.dataset import Dataset


def view_figures(release: Release, plan: Plan | None) -> Iterator[KeyFigure]:
    """Compute what anyone can: the bound on any guess, how large slots are, and trucks that can be named."""
    unit = release.certificate.guarantee.protects
    for row in release.certificate.meaning.odds:  # what the certificate states for a suspicion of 50 %
        if row.before == 0.5 and row.at_most is not None:
            yield figure("membership bound", row.at_most, 0.5, odds=row.sentence, record=unit)
    if len(release):
        yield from truck_figures(release, plan)


def truth_figures(release: Release, data: Dataset, key: Key) -> Iterator[KeyFigure]:
    """Compute how many records have a slot, how many slots are empty, and how much larger slots are than needed."""
    records = matched_records(data, release, key)
    filled = np.flatnonzero(records >= 0)
    share = len(filled) / max(len(data), 1)
    stated, num = release.certificate.rows.slots, len(release)
    assert stated is not None
    facts = {"num": len(data) - len(filled), "in_all": len(data), "risk": float(str(stated.risk))}
    yield figure("records with a slot", share, 1.0, **facts)
    if num:
        yield figure("slots filled", len(filled) / num, 1.0, num=num - len(filled), in_all=num)
    for name in release.bounded if len(filled) else ():
        known, truth = release.uncertain(name), data.numbers(name)[records[filled]]
        span = float(known.upper.max() - known.lower.min()) or 1.0
        spare = float((known.upper[filled] - truth).mean())
        yield figure("spare size ({column})", spare / span, 1.0, column=name, spare=spare, unit=known.unit)
