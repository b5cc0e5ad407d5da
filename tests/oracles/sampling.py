# SPDX-License-Identifier: Apache-2.0
"""How likely every bin of a plan fits, on permutations that it was not made with: judges any plan independently."""

from __future__ import annotations

from dunnage.arrays import FloatArray, IntArray
from dunnage.kernels.bins.chances import clopper_pearson, fits_by_permutation


def held_out_feasibility(
    values: FloatArray,
    class_of_row: IntArray,
    bin_of_row: IntArray,
    capacities: FloatArray,
    *,
    permutations: int,
    seed: int,
) -> tuple[float, float, float]:
    """The feasibility ``f_k`` of Hoogervorst et al. 2019, section 6.1, and an interval for it."""
    tried = fits_by_permutation(values, class_of_row, bin_of_row, capacities, permutations=permutations, seed=seed)
    hits = sum(int(fits.all(axis=1).sum()) for fits in tried)
    return (hits / permutations, *clopper_pearson(hits, permutations))
