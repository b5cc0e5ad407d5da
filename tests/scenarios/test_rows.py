# SPDX-License-Identifier: Apache-2.0
"""Rows that are published: every mechanism of classes and of noise, seeded and not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.harness import Here, check
from tests.scenarios.inputs import EDGES, parcel_policy, parcels, rides, rides_policy

NOISY = {"sensitive": False}
PARCELS: dict[str, tuple[str, dict[str, Any]]] = {
    "full-domain": (
        "full-domain",
        {"k": 3, "max_suppressed": 0.5, "importance": {"weight": 2}, "statistic": "multiset"},
    ),
    "full-domain-mean": ("full-domain", {"k": 4, "statistic": "mean", "alpha": 2}),
    "partition-bounds": ("partition", {"k": 3}),
    "partition-mean-grid": ("partition", {"k": 4, "statistic": "mean", "bounds": "grid"}),
    "partition-multiset": ("partition", {"k": 5, "statistic": "multiset", "alpha": 2}),
    "partition-packing": ("partition", {"k": 4, "statistic": "multiset", "goal": "packing", "capacity": 200}),
    "noisy-values": ("noisy-values", {"epsilon": 1, **NOISY}),
    "noisy-values-piecewise": ("noisy-values", {"epsilon": 2.5, "confidence": 0, "law": "piecewise", **NOISY}),
    "noisy-clusters-borders": ("noisy-clusters", {"epsilon": 1, "borders": [30, 50, 70], **NOISY}),
    "noisy-clusters-quantiles": (
        "noisy-clusters",
        {"epsilon": 2, "quantiles": [0.25, 0.5, 0.75], "law": "piecewise", **NOISY},
    ),
    "noisy-clusters-as-published": (
        "noisy-clusters",
        {"epsilon": 1, "quantiles": [0.3, 0.7], "as_published": True, **NOISY},
    ),
    "sampled-lattice": ("sampled-lattice", {"k": 3, "beta": 0.9, "epsilon_choice": 1, **NOISY}),
    "sampled-lattice-delta": ("sampled-lattice", {"epsilon": 3, "delta": 0.3, "epsilon_choice": 0.5, **NOISY}),
    "sampled-lattice-noisy": (
        "sampled-lattice",
        {"k": 3, "beta": 0.8, "epsilon_choice": 1, "left_out": "noisy", "left_out_epsilon": 1, **NOISY},
    ),
    "sampled-lattice-pool": (
        "sampled-lattice",
        {"k": 4, "beta": 0.7, "epsilon_choice": 1, "left_out": "pool", **NOISY},
    ),
    "sampled-lattice-as-published": (
        "sampled-lattice",
        {"k": 3, "beta": 0.9, "epsilon_choice": 1, "as_published": True, **NOISY},
    ),
}
CLUSTERS: dict[str, dict[str, Any]] = {
    "growth": {"k": 4},
    "persons": {"k": 3, "person": True},
    "diversity": {"k": 3, "l": 2, "t": 0.6, "max_suppressed": 0.9},
    "max-distortion": {"max_distortion": 0.3, "scaling": "maximum", "importance": "entropy-normalised"},
    "published-density": {"k": 4, "method": "published-density", "importance": {"start": 2}},
    "published-greedy": {"k": 4, "method": "published-greedy", "limits": {"start": 60}, "max_suppressed": 0.9},
}
LOOP = """
show policy.toml
publish data.csv --policy policy.toml --dry-run
publish data.csv --policy policy.toml -o seeded --seed 7 --ledger seeded.sqlite
verify seeded --require void
publish data.csv --policy policy.toml -o release
verify release
show release
show release --json
"""


@pytest.mark.parametrize("name", PARCELS)
def test_parcels(name: str, tmp_path: Path, record: bool) -> None:
    mechanism, parameters = PARCELS[name]

    def scenario(here: Here) -> None:
        here.write("data.csv", parcels())
        here.write("policy.toml", parcel_policy(mechanism, **parameters))
        here.lines(LOOP)

    check(name, scenario, tmp_path, record=record)


@pytest.mark.parametrize("name", CLUSTERS)
def test_clusters(name: str, tmp_path: Path, record: bool) -> None:
    def scenario(here: Here) -> None:
        here.write("data.csv", rides())
        here.write("edges.csv", EDGES)
        here.write("policy.toml", rides_policy(**CLUSTERS[name]))
        here.lines(LOOP)

    check(f"utility-clusters-{name}", scenario, tmp_path, record=record)
