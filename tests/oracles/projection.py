# SPDX-License-Identifier: Apache-2.0
"""The projection as a quadratic program, for a general solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.kernels.counts.projection import Family


def quadratic_program(
    values: FloatArray, lengths: IntArray, family: Family, sums: Sequence[FloatArray]
) -> tuple[dict[str, Any], FloatArray]:
    """Return what PIQP is set up with, and lower bounds: cells and sums are variables, tied by rows."""
    from scipy import sparse

    num, num_sums = len(values), sum(family.sizes)
    weights = np.repeat(family.ratios, family.sizes)
    noisy = np.concatenate([np.asarray(part, dtype=np.float64) for part in sums])
    firsts = np.cumsum((0, *family.sizes[:-1]))
    rows = np.concatenate([first + np.repeat(own, lengths) for first, own in zip(firsts, family.groups, strict=True)])
    columns = np.tile(np.arange(num), len(family.sizes))
    ties = sparse.csc_matrix((np.ones(len(rows)), (rows, columns)), shape=(num_sums, num))
    program = {
        "P": sparse.csc_matrix(sparse.diags_array(np.concatenate([np.ones(num), weights]))),
        "c": -np.concatenate([values, weights * noisy]),
        "A": sparse.csc_matrix(sparse.hstack([ties, -sparse.eye_array(num_sums)])),
        "b": np.zeros(num_sums),
    }
    return program, np.concatenate([np.zeros(num), np.full(num_sums, -np.inf)])
