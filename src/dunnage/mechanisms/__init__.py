# SPDX-License-Identifier: Apache-2.0
"""Mechanisms: one file each, named by what it does, and the one table of their names."""

from __future__ import annotations

from collections.abc import Mapping

from dunnage.errors import ParameterError
from dunnage.exact import shown
from dunnage.mechanisms.base import Mechanism
from dunnage.mechanisms.constrained_counts import ConstrainedCounts
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.mechanisms.hierarchical_counts import HierarchicalCounts
from dunnage.mechanisms.noisy_clusters import NoisyClusters
from dunnage.mechanisms.noisy_counts import NoisyCounts
from dunnage.mechanisms.noisy_values import NoisyValues
from dunnage.mechanisms.partition import Partition
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.mechanisms.utility_clusters import UtilityClusters

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


def mechanism_from(description: Mapping[str, object]) -> Mechanism:
    """Rebuild the mechanism that a certificate names, with its parameters."""
    name = description.get("name")
    if not isinstance(name, str) or name not in MECHANISMS:
        raise ParameterError(f"no mechanism {shown(name)} in this version.")
    return MECHANISMS[name].from_description(description)
