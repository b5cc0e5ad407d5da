# SPDX-License-Identifier: Apache-2.0
"""Policies, rows and releases that tests of all mechanisms share: parcels, rides, and trips through a small town."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

import dunnage as dn

CANARY = "CANARY"
"""Begins every identifier, which no release may hold."""
QUASI = "quasi-identifier"
WEIGHT = {"role": QUASI, "kind": "numeric", "domain": [0, 100], "resolution": 0.1, "unit": "kg", "doubling": 5}
PARCEL = {
    "parcel": {"role": "identifier"},
    "destination": {"role": "public"},
    "content": {"role": "sensitive"},
    "weight": WEIGHT,
}
WITHOUT_CONTENT = {**PARCEL, "content": {"role": "drop"}}
LINE = [f"S{i}" for i in range(7)]
RIDE = {
    "card": {"role": "identifier"},
    "board": {"role": QUASI, "kind": "graph", "edges": "edges.csv"},
    "start": {"role": QUASI, "kind": "numeric", "domain": [0, 960], "doubling": 60, "missing": "leave-out"},
    "bag": {"role": QUASI, "kind": "category", "domain": ["box", "none", "rucksack"]},
    "rating": {"role": "sensitive", "kind": "ordinal", "domain": ["poor", "fair", "good"]},
}
KINDS = {"a": "A", "b": "A", "c": "B", "d": "B", "A": "*", "B": "*"}
LEVELLED = {
    "card": {"role": "identifier"},
    "rating": {"role": "drop"},
    "start": {"role": QUASI, "kind": "numeric", "domain": [0, 960], "doubling": 60, "outside": "clamp"},
    "board": {
        "role": QUASI,
        "kind": "tree",
        "parents": {stop: f"Z{i // 4}" for i, stop in enumerate(LINE)} | {"Z0": "*", "Z1": "*"},
    },
    "bag": RIDE["bag"],
}
STOP = {"role": QUASI, "kind": "stop"}
CLOCK = {"role": QUASI, "kind": "time", "window_minutes": 30, "domain": ["08:00", "10:00"]}
WEEKDAYS = {"day": "weekday", "dates": ["2026-11-09", "2026-11-22"], "zone": "Europe/Madrid"}
RIDERS = {"protects": "rider", "contribution": {"person": "card", "max": 2, "per": "period"}}
Table = Mapping[str, Any]


def a_policy(mechanism: Table, attributes: Table = PARCEL, **more: Any) -> dn.Policy:
    """Make a policy for parcels, or for whatever has these attributes; public files are those of the town."""
    document = {"dataset": "parcels", "protects": "package", "attributes": dict(attributes), **more}
    return dn.Policy.from_dict({**document, "mechanism": dict(mechanism)}, path=town() / "policy.toml")


def a_trip_policy(mechanism: Table, time: Table | None = None, **more: Any) -> dn.Policy:
    """Make a policy for trips; ``time`` adds to what is said of the time, ``more`` to the policy."""
    trip = {"origin": "from", "destination": "to", "time": "at"}
    city = {"stops": "stops.csv", "modes": "modes.csv"}
    attributes = {"card": {"role": "identifier"}, "from": STOP, "to": STOP, "at": {**CLOCK, **(time or {})}}
    attributes |= more.pop("attributes", {})
    document = {"dataset": "trips", "protects": "trip", "trip": trip, "city": city, **more}
    return a_policy(mechanism, attributes, **document)


def parcels(num: int = 24) -> pa.Table:
    """Make parcels whose every private cell can be recognised."""
    return pa.table(
        {
            "parcel": [f"{CANARY}-{i}" for i in range(num)],
            "destination": ["north", "south"] * (num // 2),
            "content": ["phones", "books", "shoes"] * (num // 3),
            "weight": [round(73.1371 + 0.3 * ((7 * i) % 24), 4) for i in range(num)],
        }
    )


def rides(num: int = 80) -> pa.Table:
    """Make rides along a line of stops."""
    draw = random.Random(3)
    return pa.table(
        {
            "card": [f"{CANARY}-{draw.randrange(num // 2)}" for _ in range(num)],
            "board": [draw.choice(LINE) for _ in range(num)],
            "start": [float(draw.randrange(960)) for _ in range(num)],
            "bag": [draw.choice(["box", "none", "rucksack"]) for _ in range(num)],
            "rating": [draw.choice(["poor", "fair", "good"]) for _ in range(num)],
        }
    )


def trips(num: int = 24) -> pa.Table:
    """Make trips through the town, in a week of November 2026."""
    stops = [f"S{i % 5}" for i in range(num)]
    return pa.table(
        {
            "card": [f"{CANARY}-{i % 9}" for i in range(num)],
            "from": stops,
            "to": stops[3:] + stops[:3],
            "at": [f"2026-11-{9 + i % 7:02d}T08:{7 + 2 * (i % 24):02d}:13" for i in range(num)],
        }
    )


@cache
def town() -> Path:
    """Write the public files of a town of five stops in two zones, and of a line of seven."""
    folder = Path(tempfile.mkdtemp(prefix="town"))
    stops = LINE[:5]
    zones = [f"{stop},{'east' if i < 2 else 'west'}" for i, stop in enumerate(stops)]
    (folder / "stops.csv").write_text("\n".join(["stop,zone", *zones]) + "\n")
    modes = [f"{a},{b},{'walk' if a == b else 'bus'}" for a in stops for b in stops]
    (folder / "modes.csv").write_text("\n".join(["origin,destination,mode", *modes]) + "\n")
    edges = [f"{a},{b}" for a, b in itertools.pairwise(LINE)]
    (folder / "edges.csv").write_text("\n".join(["from,to", *edges]) + "\n")
    return folder


class Repeated(dn.Noise):
    """Noise from a seed that nobody is told of."""

    seeded = False  # type: ignore[assignment]


@dataclass(frozen=True)
class Case:
    """A mechanism as a policy names it, and rows to release by it."""

    name: str
    parameters: Table
    attributes: Table = field(default_factory=lambda: PARCEL)
    more: Table = field(default_factory=dict)

    def policy(self, **extra: Any) -> dn.Policy:
        return a_policy({"name": self.name, **self.parameters}, self.attributes, **{**self.more, **extra})

    def rows(self) -> pa.Table:
        return parcels() if "parcel" in self.attributes else rides()

    def dataset(self, **extra: Any) -> dn.Dataset:
        return dn.load(self.rows(), self.policy(**extra))

    def release(self) -> dn.Release:
        """Release by noise that is the same every time, though nothing tells so."""
        return dn.publish(self.dataset(), ledger=dn.Ledger(":memory:"), noise=Repeated(seed=5)).release

    def private_texts(self, data: dn.Dataset) -> list[str]:
        return [f"{value:.4f}" for value in data.numbers("weight")]

    def other_rows(self) -> pa.Table:
        return self.rows().set_column(3, "weight", pa.array([80.0] * 24))

    def __str__(self) -> str:
        return f"{self.name}-{'-'.join(map(str, [*self.parameters.values(), *self.more.values()]))}"


@dataclass(frozen=True)
class CountsCase(Case):
    """A mechanism of the counts kind."""

    attributes: Table = field(default_factory=dict)

    def policy(self, **extra: Any) -> dn.Policy:
        return a_trip_policy({"name": self.name, **self.parameters}, **{**self.more, **extra})

    def rows(self) -> pa.Table:
        return trips()

    def private_texts(self, data: dn.Dataset) -> list[str]:
        return [":13"]  # no second of any trip may appear

    def other_rows(self) -> pa.Table:
        return self.rows().set_column(1, "from", pa.array(["S0"] * 24))


SAMPLE = {"k": 3, "beta": 0.9, "epsilon_choice": 1}
CASES = [
    Case("full-domain", {"k": 3, "max_suppressed": 0.5, "importance": {"weight": 2}, "statistic": "multiset"}),
    Case("partition", {"k": 3}),
    Case("partition", {"k": 4, "statistic": "mean", "bounds": "grid"}),
    Case("partition", {"k": 3, "statistic": "multiset", "alpha": 2}),
    Case("noisy-values", {"epsilon": 1}, WITHOUT_CONTENT),
    Case("noisy-values", {"epsilon": 2.5, "confidence": 0, "law": "piecewise"}, WITHOUT_CONTENT),
    Case("noisy-clusters", {"epsilon": 1, "borders": [70, 75, 80]}, WITHOUT_CONTENT),
    Case("noisy-clusters", {"epsilon": 1, "quantiles": [0.25, 0.5, 0.75], "law": "piecewise"}, WITHOUT_CONTENT),
    Case("noisy-clusters", {"epsilon": 1, "quantiles": [0.3, 0.7], "as_published": True}, WITHOUT_CONTENT),
    Case("sampled-lattice", SAMPLE, WITHOUT_CONTENT),
    Case("sampled-lattice", {"epsilon": 3, "delta": 0.3, "epsilon_choice": 0.5}, WITHOUT_CONTENT),
    Case("sampled-lattice", {**SAMPLE, "left_out": "noisy", "left_out_epsilon": 1}, WITHOUT_CONTENT),
    Case("sampled-lattice", {**SAMPLE, "as_published": True}, WITHOUT_CONTENT),
    Case("size-profile", {"epsilon": 1, "risk": 0.05}, WITHOUT_CONTENT),
    Case("size-profile", {"epsilon": 2, "risk": 0.1, "expected": 20, "capacity": 300}, WITHOUT_CONTENT),
    Case("utility-clusters", {"k": 3}),
    Case("utility-clusters", {"max_distortion": 0.1, "scaling": "maximum", "importance": "entropy-normalised"}),
    Case("utility-clusters", {"k": 3, "statistic": "multiset"}),
    Case("utility-clusters", {"k": 4, "method": "published-density", "importance": {"weight": 2}}),
    Case("utility-clusters", {"k": 4, "method": "published-greedy", "limits": {"weight": 5}, "max_suppressed": 0.5}),
    CountsCase("noisy-counts", {"epsilon": 1}),
    CountsCase("noisy-counts", {"epsilon": 0.5, "rounding": "floor", "threshold": 2}),
    CountsCase("noisy-counts", {"epsilon": 1, "as_published": True}),
    CountsCase("hierarchical-counts", {"epsilon": 1}),
    CountsCase("hierarchical-counts", {"epsilon": 1, "features": "H3", "budget": "uniform", "prune": False}),
    CountsCase("hierarchical-counts", {"epsilon": 1, "as_published": True, "root": False, "negatives": True}),
    CountsCase("constrained-counts", {"epsilon": 1}),
    CountsCase("constrained-counts", {"epsilon": 1, "budget_shares": "cells", "structure": "hierarchical"}),
    CountsCase("constrained-counts", {"epsilon": 2, "budget_shares": "margins"}),
    CountsCase("constrained-counts", {"epsilon": 1, "features": [[], ["origin", "window"]], "as_published": True}),
    CountsCase(
        "constrained-counts", {"epsilon": 1, "features": [["mode"]], "budget_shares": {"cells": 0.7, "mode": 0.3}}
    ),
    CountsCase("fitted-counts", {"epsilon": 1}),
    CountsCase("gaussian-counts", {"epsilon": 1, "delta": 1e-6}),
    CountsCase("gaussian-counts", {"epsilon": 2, "delta": 1e-6, "features": "O3", "budget_shares": "cells"}),
    CountsCase("fitted-counts", {"epsilon": 2, "workload": ["zone pairs by window", "stop pairs by window"]}),
    CountsCase("fitted-counts", {"epsilon": 1, "budget_shares": {"departures": 0.7, "windows": 0.3}}),
]
"""Every mechanism, in its sound and its published forms. A new mechanism adds one line."""

CLUSTERED = {
    "k": 4,
    "t": 0.5,
    "t_kind": "ordered",
    "l": 2,
    "limits": {"board": 6},
    "keep": {"start": {"mean": 0.4}},
    "buckets": {"start": 100},
}
CORRECTED = {
    "protects": "rider",
    "contribution": {"person": "card", "max": 3, "per": "period", "total_max": 9, "per_cell": 1},
}
BY_DAY = {"protects": "rider", "contribution": {"person": "card", "max": 3, "per": "day"}}
LARGER_CASES = [
    Case("utility-clusters", CLUSTERED, RIDE, {"protects": "ride", "contribution": {"person": "card"}}),
    Case("full-domain", {"k": 4, "alpha": 0.6, "importance": {"start": 3}}, LEVELLED, {"protects": "ride"}),
    Case("sampled-lattice", SAMPLE, LEVELLED, {"protects": "ride"}),
    CountsCase("noisy-counts", {"epsilon": 1}, {}, {**BY_DAY, "time": WEEKDAYS}),
    CountsCase("constrained-counts", {"epsilon": 1}, {}, {**RIDERS, "time": WEEKDAYS}),
    CountsCase("fitted-counts", {"epsilon": 1}, {}, {**RIDERS, "time": WEEKDAYS}),
    CountsCase("gaussian-counts", {"epsilon": 1, "delta": 1e-6}, {}, CORRECTED),
    CountsCase("noisy-counts", {"epsilon": 1}, {}, CORRECTED),
]
"""More kinds of columns, persons, days and riders."""
