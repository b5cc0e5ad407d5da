# SPDX-License-Identifier: Apache-2.0
"""Exports: FleetPy's layout, and GeoJSON as RFC 7946 says."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.commands import rows as rows_of
from tests.fleet_help import policy_of, publish, some_trips, tiny_city, trip_rows

import dunnage as dn
from dunnage.errors import OutputError, ParameterError
from dunnage.model.city import City
from dunnage.planning import exports
from dunnage.planning.demand import Day, Ground
from dunnage.planning.exports import convex_hull, export_fleetpy, export_geojson, export_plan
from dunnage.planning.fleet import size


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder, place = tmp_path_factory.mktemp("counts"), tiny_city(1)
    table = trip_rows(place, some_trips(240, 10, 5), days=4)
    return place, publish(dn.load(table, policy_of(folder, place))).release


def test_fleetpy_reads_nodes_edges_and_tables(tmp_path):
    ground = Ground.of(tiny_city())
    requests = Day.of(some_trips(60, 10, 3), ground).requests
    folder = export_fleetpy(tmp_path / "out", requests, ground.city, times=ground.times)
    base = folder / "networks" / "dunnage" / "base"
    nodes, edges = rows_of(base / "nodes.csv"), rows_of(base / "edges.csv")
    assert list(nodes[0]) == ["node_index", "is_stop_only", "pos_x", "pos_y"]
    assert [int(row["node_index"]) for row in nodes] == list(range(10))
    assert (list(edges[0]), len(edges)) == (["from_node", "to_node", "distance", "travel_time"], 90)
    tables = folder / "networks" / "dunnage" / "ff" / "tables"
    seconds, metres = (np.load(tables / f"nn_fastest_{name}.npy") for name in ("tt", "distance"))
    assert np.array_equal(seconds, ground.times)
    assert metres == pytest.approx(1000 * ground.city.kilometres())
    for row in edges:
        start, end = int(row["from_node"]), int(row["to_node"])
        assert float(row["travel_time"]) == seconds[start, end]
        assert float(row["distance"]) == pytest.approx(metres[start, end], abs=0.06)
    assert (base / "crs.info").read_text() == "epsg:3857"
    # Web Mercator, undone
    lon = np.degrees(np.array([float(row["pos_x"]) for row in nodes]) / 6_378_137)
    lat = np.degrees(2 * np.arctan(np.exp(np.array([float(row["pos_y"]) for row in nodes]) / 6_378_137)) - np.pi / 2)
    assert lon == pytest.approx(ground.city.lon, abs=1e-7)
    assert lat == pytest.approx(ground.city.lat, abs=1e-7)
    demand = folder / "demand" / "dunnage" / "matched" / "dunnage"
    rows = rows_of(demand / "requests.csv")  # in order, and by zone
    assert list(rows[0]) == ["rq_time", "start", "end", "request_id"]
    assert [int(row["rq_time"]) for row in rows] == sorted(requests.seconds.tolist())
    assert [int(row["request_id"]) for row in rows] == list(range(len(requests)))
    assert all(row["start"] != row["end"] for row in rows)
    parts = [rows_of(demand / f"requests_{zone}.csv") for zone in range(2)]
    assert [len(part) for part in parts] == np.bincount(requests.zone, minlength=2).tolist()
    assert sorted((row for part in parts for row in part), key=lambda row: int(row["request_id"])) == rows
    assert "0 west, 1 east" in (folder / "README.md").read_text()
    bare = replace(ground.city, lat=None, lon=None)  # without coordinates
    folder = export_fleetpy(tmp_path / "bare", requests, bare, times=ground.times)
    metres = np.load(folder / "networks" / "dunnage" / "ff" / "tables" / "nn_fastest_distance.npy")
    assert metres == pytest.approx(ground.times * 20 / 3.6)


def test_what_cannot_be_exported_is_refused(tmp_path, monkeypatch):
    ground = Ground.of(tiny_city())
    requests = Day.of(some_trips(10, 10, 3), ground).requests
    (tmp_path / "there").mkdir()
    with pytest.raises(OutputError):
        export_fleetpy(tmp_path / "there", requests, ground.city, times=ground.times)
    monkeypatch.setattr(exports, "MAX_STOPS_WITH_EDGES", 9)
    with pytest.raises(ParameterError, match="9 stops"):
        export_fleetpy(tmp_path / "out", requests, ground.city, times=ground.times)
    with pytest.raises(ParameterError, match="coordinates"):
        export_geojson(tmp_path / "maps", City(stops=("A",)))


def test_a_plan_is_exported_whole(released, tmp_path):
    place, release = released
    plan = size(release, place, max_wait=300, expansions=2)
    folder = export_plan(tmp_path / "out", release, place, plan)
    assert {path.name for path in folder.iterdir()} == {"README.md", "fleetpy", "maps"}
    zones = json.loads((folder / "maps" / "zones.geojson").read_text())
    assert [item["properties"]["shuttles"] for item in zones["features"]] == list(plan.shuttles)
    times = [int(row["rq_time"]) for row in rows_of(next(folder.glob("fleetpy/demand/*/matched/*/requests.csv")))]
    assert times == sorted(times)


def positions(coordinates) -> list[list[float]]:
    if not isinstance(coordinates[0], list):
        return [coordinates]
    return list(itertools.chain.from_iterable(map(positions, coordinates)))


def test_geojson_is_as_the_standard_says(released, tmp_path):
    place, release = released
    folder = export_geojson(tmp_path / "maps", place, release)
    found = {path.stem: json.loads(path.read_text()) for path in folder.iterdir()}
    assert set(found) == {"stops", "zones", "flows"}
    for collection in found.values():
        assert collection["type"] == "FeatureCollection"
        for item in collection["features"]:
            assert item["type"] == "Feature"
            for lon, lat in positions(item["geometry"]["coordinates"]):
                assert -83.1 < lon < -82.9
                assert 41.9 < lat < 42.1
    for item in found["zones"]["features"]:
        (ring,) = item["geometry"]["coordinates"]
        assert ring[0] == ring[-1]
        assert len(ring) >= 4
        assert sum(a[0] * b[1] - b[0] * a[1] for a, b in itertools.pairwise(ring)) > 0  # counter-clockwise
    assert [item["properties"]["stop"] for item in found["stops"]["features"]] == list(place.stops)
    flows = found["flows"]["features"]
    assert sum(item["properties"]["trips"] for item in flows) == sum(release.data.column("count").to_pylist())
    assert {item["geometry"]["type"] for item in flows} == {"LineString", "Point"}
    trips = [item["properties"]["trips"] for item in flows]
    assert trips == sorted(trips, reverse=True)


def test_flows_are_the_largest_and_zones_may_be_lines_or_points(released, tmp_path, monkeypatch):
    monkeypatch.setattr(exports, "MAX_FLOWS", 3)
    folder = export_geojson(tmp_path / "flows", *released)
    assert len(json.loads((folder / "flows.geojson").read_text())["features"]) == 3
    for num, (points, geometry) in enumerate(
        (([(1, 2)], "Point"), ([(1, 2), (3, 4)], "LineString"), ([(0, 0), (1, 1), (2, 2)], "LineString")), start=1
    ):
        lon, lat = np.array(points, dtype=float).T
        place = City(stops=tuple("ABC"[:num]), zone_names=("z",), zones=np.zeros(num, np.int32), lat=lat, lon=lon)
        folder = export_geojson(tmp_path / str(num), place)
        (item,) = json.loads((folder / "zones.geojson").read_text())["features"]
        assert item["geometry"]["type"] == geometry
        assert not (folder / "flows.geojson").exists()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=1, max_size=12))
def test_hulls_hold_all_points_and_turn_left(points):
    hull = convex_hull(points)
    assert {tuple(corner) for corner in hull} <= set(points)
    if len(hull) < 3:
        return
    around = [*hull, hull[0], hull[1]]
    for (ax, ay), (bx, by), (cx, cy) in zip(around, around[1:], around[2:], strict=False):
        assert (bx - ax) * (cy - ay) - (by - ay) * (cx - ax) > 0
        assert all((bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0 for x, y in points)
