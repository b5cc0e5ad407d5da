# SPDX-License-Identifier: Apache-2.0
"""Whether classes keep to constraints, counted apart from the kernels that form them."""

from __future__ import annotations

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.kernels.clusters.growth import Constraints, Metric

TOLERANCE = 1e-9


def class_shares(constraints: Constraints, of_record: IntArray) -> list[FloatArray]:
    """Return the share of each code in each class, per sensitive attribute. Shape of each: classes, codes."""
    kept, found = of_record >= 0, []
    for codes, whole in zip(constraints.sensitive, constraints.shares, strict=True):
        counts = np.zeros((int(of_record.max(initial=-1)) + 1, len(whole)))
        np.add.at(counts, (of_record[kept], codes[kept]), 1)
        found.append(counts / np.maximum(1, counts.sum(axis=1, keepdims=True)))
    return found


def diversity(constraints: Constraints, of_record: IntArray) -> list[FloatArray]:
    found = []
    for share in class_shares(constraints, of_record):
        logs = np.log(share, out=np.zeros_like(share), where=share > 0)
        distinct = constraints.l_kind == "distinct"
        found.append((share > 0).sum(axis=1) if distinct else np.exp(-(share * logs).sum(axis=1)))
    return found


def closeness(constraints: Constraints, of_record: IntArray) -> list[FloatArray]:
    found = []
    for share, whole in zip(class_shares(constraints, of_record), constraints.shares, strict=True):
        if constraints.t_kind == "equal":
            found.append(np.abs(share - whole).sum(axis=1) / 2)
        else:
            found.append(np.abs(np.cumsum(share - whole, axis=1)).sum(axis=1) / max(1, len(whole) - 1))
    return found


def keeps(constraints: Constraints, metric: Metric, of_record: IntArray) -> bool:
    """Whether every class keeps to the conditions, and no more records are left out than may be."""
    limits = np.full(len(metric.charge), np.inf) if constraints.limits is None else constraints.limits
    return bool(
        np.all(metric.widths(of_record) <= (limits * (1 + TOLERANCE) + TOLERANCE)[:, None])
        and all(np.all(of_class >= constraints.l - TOLERANCE) for of_class in diversity(constraints, of_record))
        and all(np.all(of_class <= constraints.t + TOLERANCE) for of_class in closeness(constraints, of_record))
        and (of_record < 0).sum() <= constraints.max_suppressed * len(of_record) + TOLERANCE
    )
