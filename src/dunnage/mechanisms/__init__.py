# SPDX-License-Identifier: Apache-2.0
"""Mechanisms: one file each, named by what it does, and the one table of their names."""

from __future__ import annotations

from dunnage.mechanisms.base import Mechanism
from dunnage.mechanisms.clusters import UtilityClusters
from dunnage.mechanisms.counts import ConstrainedCounts, HierarchicalCounts, NoisyCounts
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
from dunnage.mechanisms.partition import Partition
from dunnage.mechanisms.sampled_lattice import SampledLattice

MECHANISMS: dict[str, type[Mechanism]] = {
    kind.name: kind
    for kind in (
        ConstrainedCounts,
        FullDomain,
        HierarchicalCounts,
        NoisyClusters,
        NoisyCounts,
        NoisyValues,
        Partition,
        SampledLattice,
        UtilityClusters,
    )
}
