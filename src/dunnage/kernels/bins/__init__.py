# SPDX-License-Identifier: Apache-2.0
"""Packing kernels on bare numbers: no release, no privacy, only whole numbers, patterns and probabilities.

Searches here use a seed, outside ``noise``. On released numbers, privacy does not depend on it. A caller that passes
private numbers and publishes the result must take the seed from ``Noise``.
"""

from dunnage.kernels.bins.certified import BinKind, ChancePacker, ClassPacking, VectorPacking, pack_vectors
from dunnage.kernels.bins.chances import Between, Chances, Members
from dunnage.kernels.bins.scalar import Packing, Pricing, Sizes, WholeNumbers, l2_bound, pack_bins, whole_numbers

__all__ = [
    "Between",
    "BinKind",
    "ChancePacker",
    "Chances",
    "ClassPacking",
    "Members",
    "Packing",
    "Pricing",
    "Sizes",
    "VectorPacking",
    "WholeNumbers",
    "l2_bound",
    "pack_bins",
    "pack_vectors",
    "whole_numbers",
]
