# SPDX-License-Identifier: Apache-2.0
"""Mechanisms: one file each, named by what it does, and the one table of their names.

A mechanism is loaded when it is first looked up: publishing needs one of them, not the kernels of all.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from dunnage.mechanisms.base import Mechanism

_MODULES = {
    "ConstrainedCounts": ".counts",
    "FittedCounts": ".fitted_counts",
    "FullDomain": ".full_domain",
    "GaussianCounts": ".gaussian_counts",
    "HierarchicalCounts": ".counts",
    "NoisyClusters": ".noisy",
    "NoisyCounts": ".counts",
    "NoisyValues": ".noisy",
    "Partition": ".partition",
    "SampledLattice": ".sampled_lattice",
    "SizeProfile": ".size_profile",
    "UtilityClusters": ".clusters",
}


class _Mechanisms(MutableMapping[str, "type[Mechanism]"]):
    """Every mechanism by its name: that of its class in lower case, with hyphens."""

    def __init__(self) -> None:
        names = {re.sub(r"(?<=.)(?=[A-Z])", "-", name).lower(): name for name in _MODULES}
        self._kinds: dict[str, type[Mechanism] | str] = {**names}

    def __getitem__(self, name: str) -> type[Mechanism]:
        kind = self._kinds[name]
        if isinstance(kind, str):
            kind = cast("type[Mechanism]", getattr(importlib.import_module(_MODULES[kind], __name__), kind))
            self._kinds[name] = kind
        return kind

    def __setitem__(self, name: str, kind: type[Mechanism]) -> None:
        self._kinds[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


MECHANISMS = _Mechanisms()
