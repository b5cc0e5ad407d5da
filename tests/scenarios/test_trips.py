# SPDX-License-Identifier: Apache-2.0
"""Trips: counts of every mechanism, and fleets that are sized on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.harness import Here, check
from tests.scenarios.inputs import MODES, STOPS, trips, trips_policy

DAYS = 'day = "date"\ndates = ["2026-10-14", "2026-10-15"]'
COUNTS: dict[str, tuple[str, dict[str, Any]]] = {
    "noisy-counts": ("noisy-counts", {"epsilon": 1}),
    "noisy-counts-floor": ("noisy-counts", {"epsilon": 0.5, "rounding": "floor", "threshold": 2}),
    "noisy-counts-as-published": ("noisy-counts", {"epsilon": 1, "as_published": True}),
    "hierarchical-counts": ("hierarchical-counts", {"epsilon": 1}),
    "hierarchical-counts-uniform": (
        "hierarchical-counts",
        {"epsilon": 1, "features": "H3", "budget": "uniform", "prune": False, "rider": True},
    ),
    "hierarchical-counts-as-published": ("hierarchical-counts", {"epsilon": 1, "as_published": True}),
    "constrained-counts": ("constrained-counts", {"epsilon": 1, "features": "O5"}),
    "constrained-counts-riders": ("constrained-counts", {"epsilon": 1, "rider": True, "day": DAYS}),
    "constrained-counts-cells": (
        "constrained-counts",
        {"epsilon": 1, "budget_shares": "cells", "structure": "hierarchical"},
    ),
    "constrained-counts-margins": ("constrained-counts", {"epsilon": 2, "budget_shares": "margins"}),
    "constrained-counts-shares": (
        "constrained-counts",
        {"epsilon": 1, "features": [["mode"]], "budget_shares": {"cells": 0.7, "mode": 0.3}},
    ),
    "constrained-counts-as-published": (
        "constrained-counts",
        {"epsilon": 1, "features": [[], ["origin", "window"]], "as_published": True},
    ),
}
LOOP = """
show policy.toml
publish data.csv --policy policy.toml --dry-run --json
publish data.csv --policy policy.toml -o seeded --seed 7 --ledger seeded.sqlite
verify seeded --require void
publish data.csv --policy policy.toml -o release --json
verify release --json
show release
"""


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str, tmp_path: Path, record: bool) -> None:
    mechanism, parameters = COUNTS[name]

    def scenario(here: Here) -> None:
        here.write("data.csv", trips())
        here.write("stops.csv", STOPS)
        here.write("modes.csv", MODES)
        here.write("policy.toml", trips_policy(mechanism, **parameters))
        here.lines(LOOP)
        here.leave_out("seeded/*.parquet", "seeded/README.md", "seeded/datapackage.json")

    check(name, scenario, tmp_path, record=record)


def fleets(here: Here) -> None:
    here.line("generate city -o city --stops 32 --zones 2 --seed 1", quiet=True)
    here.line(
        "generate trips -o trips.csv --size 80 --city city --level stop --from 08:00 --to 09:00 --seed 1", quiet=True
    )
    text = (here.folder / "trips.toml").read_text().replace("constrained-counts", "noisy-counts")
    here.write("trips.toml", text.replace("epsilon = 1.0", "epsilon = 12").replace('features = "O5"\n', ""))
    here.lines("""
        publish trips.csv --policy trips.toml -o counts --seed 4
        show city
        size counts --city city --max-wait 400 --expansions 2 --seed 3 -o fleet --export exported
        size counts --city city --max-wait 300 --expansions 2 --capacity 4 --seed 3 -o fleet2 --json
        show fleet
        show fleet --json
        apply fleet trips.csv --policy trips.toml --release counts --city city --shuttle-hour 40 -o settlement
        show settlement
        apply fleet2 trips.csv --policy trips.toml --release counts --city city -o settlement2 --json
        audit counts trips.csv --policy trips.toml --plan fleet --city city --shuttle-hour 40 -o audit
        show audit
    """)
    here.write("mine.csv", "zone,shuttles\nzone 1,3\nzone 2,3\n")
    here.lines("""
        show mine.csv
        apply mine.csv trips.csv --policy trips.toml --release counts --city city -o settlement3
        apply mine.csv trips.csv --policy trips.toml --release counts -o settlement4
        size counts --city city --max-wait 0.01 --expansions 2 --seed 3 -o never
        size counts --city nowhere -o never
        size counts --city city --day monday -o never
    """)
    here.leave_out("city/*", "trips.csv", "counts/*.parquet", "exported/**/*", "exported/*", "*/events.csv")


def test_fleets(tmp_path: Path, record: bool) -> None:
    check("fleets", fleets, tmp_path, record=record)


def periods(here: Here) -> None:
    here.write("data.csv", trips())
    here.write("stops.csv", STOPS)
    here.write("modes.csv", MODES)
    head = '[period]\ncolumn = "at"\nlength = "day"\n[budget]\nepsilon = 2.5\nneighbours = "add-remove"\n'
    here.write("policy.toml", trips_policy("noisy-counts", head=head, epsilon=1))
    here.lines("""
        show policy.toml
        publish data.csv --policy policy.toml -o none
        publish data.csv --policy policy.toml --period 2026-10-14 -o first
        publish data.csv --policy policy.toml --period 2026-10-14 -o second
        publish data.csv --policy policy.toml --period 2026-10-15 -o second
        publish data.csv --policy policy.toml --period 2026-10-16 -o third
        publish data.csv --policy policy.toml --period 2026-10-14 -o again --again --json
        publish data.csv --policy policy.toml --period 2026-10 -o month
        budget show dunnage-ledger.sqlite
        budget show dunnage-ledger.sqlite --dataset trips --json
        budget set dunnage-ledger.sqlite --dataset trips --epsilon 4 --neighbours add-remove --note more
        publish data.csv --policy policy.toml --period 2026-10-14 -o again --again
        budget set dunnage-ledger.sqlite --dataset trips --epsilon 1/3 --neighbours replace-one --note less --json
        budget set dunnage-ledger.sqlite --dataset other --epsilon 1 --delta 1e-6 --neighbours some --note x
        budget show none.sqlite
        show dunnage-ledger.sqlite
        show dunnage-ledger.sqlite --json
    """)
    here.leave_out("*/*.parquet", "*/*.csv", "*/README.md", "*/datapackage.json")


def test_periods(tmp_path: Path, record: bool) -> None:
    check("periods-and-budgets", periods, tmp_path, record=record)
