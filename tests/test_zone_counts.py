# SPDX-License-Identifier: Apache-2.0
"""Counts between zones instead of stops: `level = "zone"` in `[trip]`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.builders import RIDERS, WEEKDAYS, a_trip_policy, trips
from tests.refusals import refusal

import dunnage as dn
from dunnage.errors import ParameterError, PolicyError, ReleaseError
from dunnage.mechanisms.counts import true_counts
from dunnage.publishing import mechanism_of
from dunnage.samples.shape import like

TRIP = {"origin": "from", "destination": "to", "time": "at", "level": "zone"}
ZONE_OF = {f"S{i}": "east" if i < 2 else "west" for i in range(5)}
MECHANISMS = (
    {"name": "noisy-counts", "epsilon": 1},
    {"name": "hierarchical-counts", "epsilon": 1},
    {"name": "constrained-counts", "epsilon": 1},
    {"name": "constrained-counts", "epsilon": 1, "features": "O4", "budget_shares": "cells"},
    {"name": "constrained-counts", "epsilon": 1, "features": [[], ["origin_zone"]], "budget_shares": "margins"},
)


def zone_policy(mechanism: Any, time: Any = None, **more: Any) -> dn.Policy:
    return a_trip_policy(mechanism, time, trip=TRIP, **more)


def test_true_counts_are_those_of_the_zones_of_stops():
    table, policy = trips(), zone_policy(MECHANISMS[0], WEEKDAYS)
    counted = true_counts(dn.Dataset.from_table(table, policy))
    universe = counted.universe
    assert universe.stops == ("east", "west")
    assert universe.cell_columns == ("origin_zone", "destination_zone", "window", "day")
    names = {name: universe.labels(name) for name in universe.cell_columns}
    codes = {name: universe.column_codes(name, counted.cells) for name in names}
    read = {
        tuple(names[name][codes[name][i]] for name in ("origin_zone", "destination_zone", "day")): 0
        for i in range(len(counted.cells))
    }
    for i, count in enumerate(counted.counts.tolist()):
        read[tuple(names[name][codes[name][i]] for name in ("origin_zone", "destination_zone", "day"))] += count
    days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
    rows = table.to_pylist()
    due = Counter((ZONE_OF[row["from"]], ZONE_OF[row["to"]], days[int(row["at"][8:10]) - 9]) for row in rows)
    assert read == dict(due)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: "-".join(map(str, mechanism.values())))
@pytest.mark.parametrize(
    ("time", "more"), [({}, {}), (WEEKDAYS, {}), ({}, RIDERS)], ids=["no days", "weekdays", "riders"]
)
def test_releases_are_published_verified_and_audited(mechanism, time, more, tmp_path):
    policy = zone_policy(mechanism, time, **more)
    data = dn.Dataset.from_table(trips(), policy)
    release, key = dn.publish(data, ledger=dn.Ledger(":memory:"), out=tmp_path / "release")
    assert release.data.column_names[:3] == ["origin_zone", "destination_zone", "window"]
    assert release.universe.level == "zone"
    assert release.universe.num_cells == data.schema.universe().num_cells
    outcome = dn.verify(tmp_path / "release")
    assert outcome.ok, outcome.summary()
    audit = dn.audit(release, data, key=key)
    flows = next(item.details["flows"] for item in audit.findings if "flows" in item.details)
    assert set(flows) == {"zones"}
    assert flows["zones"]["names"] == ["east", "west"]
    readme = (tmp_path / "release" / "README.md").read_text()
    assert '["origin_zone", "destination_zone"]' in readme
    assert "stop" not in readme.split("## What it is")[1].split("## Read it")[0]


def test_an_audit_under_the_other_level_is_refused():
    zones = dn.Dataset.from_table(trips(), zone_policy(MECHANISMS[0]))
    stops = dn.Dataset.from_table(trips(), a_trip_policy(MECHANISMS[0]))
    for one, other in ((zones, stops), (stops, zones)):
        release, _ = dn.publish(one, ledger=dn.Ledger(":memory:"))
        refusal(ReleaseError, dn.audit, release, other)


def test_a_fleet_needs_stops():
    data = dn.Dataset.from_table(trips(), zone_policy(MECHANISMS[0]))
    release, _ = dn.publish(data, ledger=dn.Ledger(":memory:"))
    assert data.schema.city is not None
    city = replace(data.schema.city, lat=np.arange(5) / 100, lon=np.arange(5) / 100)
    assert 'level = "stop"' in str(refusal(ParameterError, dn.size, release, city))


def test_generated_trips_name_stops_whatever_is_released():
    data = like(zone_policy(MECHANISMS[0]), 50, 1)
    assert set(data.column("from").to_pylist()) <= set(ZONE_OF)
    assert true_counts(data).universe.level == "zone"
    assert true_counts(data).num_trips == true_counts(data, level="stop").num_trips == 50


def problem_places(make: Any, *given: Any) -> list[str]:
    return [problem.where for problem in refusal(PolicyError, make, *given).problems]


def test_what_only_stops_have_is_refused(tmp_path):
    (tmp_path / "stops.csv").write_text("stop\nS0\nS1\n")
    document = {**zone_policy(MECHANISMS[0]).document, "city": {"stops": "stops.csv"}}
    assert problem_places(lambda: dn.Policy.from_dict(document, path=tmp_path / "p.toml")) == ["trip.level"]
    wrong = {**document, "trip": {**TRIP, "level": "county"}}
    assert "trip.level" in problem_places(lambda: dn.Policy.from_dict(wrong, path=tmp_path / "p.toml"))
    for columns in (["origin"], ["mode", "window"]):
        mechanism = {"name": "constrained-counts", "epsilon": 1, "features": [[], columns]}
        assert problem_places(mechanism_of, zone_policy(mechanism)) == ["mechanism.features"]


def test_the_level_of_stops_is_the_default_and_changes_no_digest():
    policy = a_trip_policy(MECHANISMS[0])
    assert policy.schema.level == "stop"
    assert "level" not in policy.document["trip"]
    assert [item["name"] for item in policy.schema.universe().describe()] == ["origin", "destination", "window"]
