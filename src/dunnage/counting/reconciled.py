# SPDX-License-Identifier: Apache-2.0
"""Bayes estimates of cells, made consistent with noisy sums: two projections with an estimate in between.

The first projection says how many trips each join group may hold. From that, the noisy cells and the noisy margin,
each cell is estimated (:mod:`dunnage.counting.bayes`). The second projection reconciles the estimates with the noisy
sums, which weigh as much as they are better than the sums of estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.counting.bayes import estimate_cells, reconciling_ratios
from dunnage.counting.projection import Family, Projection
from dunnage.counting.tables import project_dense

_STEPS = 2.0**16
"""Estimates are put on a grid of so many steps a trip, as projections of whole tables are of whole numbers."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Margin:
    """Noisy sums over all cells of each pair."""

    pairs: IntArray  # Pair of each cell, in the order of the cells
    sums: IntArray  # sums, scale: noisy sums, and the scale of their noise
    scale: float


def project_estimates(
    noisy: IntArray,  # noisy, scale: noisy cells, join group by join group, and the scale of their noise
    scale: float,
    *,
    starts: IntArray,  # Where each join group starts, and the number of cells
    margin: Margin,  # Noisy sums over the cells of pairs
    family: Family,  # family, sums, variances: coarse features, their noisy sums, and the variance of the noise of each
    sums: Sequence[FloatArray],
    variances: Sequence[float],
) -> Projection:
    """Return consistent, non-negative counts near the Bayes estimates of cells."""
    plain = project_dense(noisy, starts, family, sums)
    sizes = np.diff(starts)
    rates = np.repeat(np.add.reduceat(plain.x, starts[:-1]) / sizes, sizes)
    estimate = estimate_cells(
        noisy, scale, pairs=margin.pairs, rates=rates, margin=margin.sums, margin_scale=margin.scale
    )
    ratios = reconciling_ratios(
        estimate,
        scale,
        starts=starts,
        groups=family.groups,
        sums=sums,
        variances=variances,
        total=float(plain.x.sum()),
    )
    values = np.rint(estimate.means * _STEPS).astype(np.int64)
    weighted = replace(family, ratios=ratios)
    found = project_dense(values, starts, weighted, [of_feature * _STEPS for of_feature in sums])
    return replace(found, x=found.x / _STEPS)
