# SPDX-License-Identifier: Apache-2.0
"""Iterative proportional fitting on a whole table of cells, slowly: the oracle of the fit by factors."""

from __future__ import annotations

import numpy as np


def dense_fit(start, pairs, by_origin=None, by_destination=None, by_zone=None, zones=None, sweeps=400):
    """Scale a table (origin, destination, slot) to its sums in turn, as Deming and Stephan did."""
    table = np.array(start, dtype=np.float64)
    blocks = None if zones is None else np.eye(int(zones.max()) + 1)[zones]
    for _ in range(sweeps):
        if by_origin is not None:
            table *= (by_origin / table.sum(axis=1))[:, None, :]
        if by_destination is not None:
            table *= (by_destination / table.sum(axis=0))[None]
        if by_zone is not None:
            sums = np.einsum("odt,oz,dy->zyt", table, blocks, blocks)
            table *= np.einsum("oz,zyt,dy->odt", blocks, by_zone / sums, blocks)
        table *= (pairs / table.sum(axis=2))[:, :, None]
    return table
