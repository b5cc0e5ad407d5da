# SPDX-License-Identifier: Apache-2.0
"""Exports for other tools: rides and travel times in the layout of FleetPy, and stops, zones and flows as GeoJSON.

FleetPy reads ``networks/NAME/base`` (``nodes.csv``, ``edges.csv``, ``crs.info``), travel times and distances between
all nodes in ``networks/NAME/ff/tables``, and requests in ``demand/NAME/matched/NAME``. GeoJSON follows RFC 7946:
longitude before latitude, outer rings counter-clockwise and closed.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import IntArray
from dunnage.errors import ParameterError
from dunnage.folders import new_folder
from dunnage.model.city import City, haversine
from dunnage.planning.demand import Dates, Ground, released_counts
from dunnage.planning.dispatch import Requests
from dunnage.planning.fleet import dates_of_plan, planned_task
from dunnage.planning.plan import FleetPlan
from dunnage.release import Release
from dunnage.tables.reader import write_lines

MARKER = "README.md"
_NAME = "dunnage"  # of the network and of the demand
MAX_STOPS_WITH_EDGES = 1_000
MAX_FLOWS = 5_000  # the largest
Feature = dict[str, object]
_MERCATOR_METRES = 6_378_137.0
_MERCATOR_DEGREES = 85.06
_METRES_A_SECOND = 20 / 3.6
_ABOUT = """# A fleet plan for other tools

- `fleetpy`: the shuttle rides of one simulated day, and travel times, in the layout of FleetPy.
- `maps`: stops, zones and flows as GeoJSON, if stops have coordinates.

Everything was made from a release and a city, which are both public.
"""
_ABOUT_FLEETPY = """# Rides and travel times for FleetPy

- `networks/{name}`: one node per stop and one edge per pair of stops. `ff/tables` has travel times (seconds) and
  distances (metres, {distances}) between all nodes. Positions: {positions}.
- `demand/{name}/matched/{name}/requests.csv`: all rides (`rq_time,start,end,request_id`; seconds of the service day).
  `requests_ZONE.csv`: the rides of one zone, by its number: {zones}.

One request is one shuttle ride of one rider. FleetPy does not know that some rides follow others. A rider's second ride
is requested {second}.
"""


def export_plan(folder: str | os.PathLike[str], release: Release, city: City, plan: FleetPlan) -> Path:
    """Write a plan for other tools: ``fleetpy`` and, if stops have coordinates, ``maps``.

    FleetPy gets the first simulated day. A second ride is requested at the same second as with the planned fleet.

    Parameters
    ----------
    folder
        Folder to create.
    release, city, plan
        The plan, and the release and city it was made from.

    Raises
    ------
    OutputError
        If the folder cannot be created.
    """
    ground = Ground.of(city)
    task = planned_task(release, ground, plan)
    first = task.days[0].requests
    requested = task.operate(plan.shuttles_of(ground.zones))[0].requested
    with new_folder(folder, marker=MARKER) as work:
        export_fleetpy(work / "fleetpy", first, ground.city, times=ground.times, requested=requested)
        if city.lat is not None:
            dates = dates_of_plan(release.universe, plan)
            export_geojson(work / "maps", city, release, shuttles=plan.shuttles_of(ground.zones), dates=dates)
        (work / MARKER).write_text(_ABOUT, encoding="utf-8")
    return Path(folder)


def export_fleetpy(
    folder: str | os.PathLike[str],
    requests: Requests,
    city: City,
    *,
    times: NDArray[np.int32],
    requested: IntArray | None = None,  # when each ride was really requested; by default, the earliest possible second
) -> Path:
    """Write rides and travel times in the layout of FleetPy; copy the contents into FleetPy's ``data``."""
    if len(city.stops) > MAX_STOPS_WITH_EDGES:
        raise ParameterError(
            f"an export to FleetPy can have at most {MAX_STOPS_WITH_EDGES:,} stops. The city has {len(city.stops):,}."
        )
    with new_folder(folder, marker=MARKER) as work:
        base, tables = work / "networks" / _NAME / "base", work / "networks" / _NAME / "ff" / "tables"
        demand = work / "demand" / _NAME / "matched" / _NAME
        for place in (base, tables, demand):
            place.mkdir(parents=True)
        num, placed = len(city.stops), city.lat is not None and city.lon is not None
        # With coordinates: distances along great circles, and Web Mercator. Without: distances from times, and zeros.
        metres, east, north = np.asarray(times * _METRES_A_SECOND), np.zeros(num), np.zeros(num)
        if city.lat is not None and city.lon is not None:
            lat = np.radians(np.clip(city.lat, -_MERCATOR_DEGREES, _MERCATOR_DEGREES))
            metres = 1000 * haversine(city.lat, city.lon)
            east = _MERCATOR_METRES * np.radians(city.lon)
            north = _MERCATOR_METRES * np.log(np.tan(np.pi / 4 + lat / 2))
        columns = ("node_index", "is_stop_only", "pos_x", "pos_y")
        # 0 means False: the reader converts it to a whole number.
        nodes = ([node, 0, round(float(east[node]), 3), round(float(north[node]), 3)] for node in range(num))
        write_lines(base / "nodes.csv", columns, nodes)
        edges = (
            [start, end, round(float(metres[start, end]), 1), int(times[start, end])]
            for start, end in itertools.permutations(range(num), 2)
        )
        write_lines(base / "edges.csv", ("from_node", "to_node", "distance", "travel_time"), edges)
        (base / "crs.info").write_text("epsg:3857", encoding="utf-8")
        np.save(tables / "nn_fastest_tt.npy", times.astype(np.float64))
        np.save(tables / "nn_fastest_distance.npy", metres)
        seconds = requests.seconds if requested is None else requested
        order = np.argsort(seconds, kind="stable")
        # lines : rq_time, start, end, request_id
        lines = np.column_stack([seconds, requests.origin, requests.destination])[order].astype(np.int64)
        lines = np.column_stack([lines, np.arange(len(lines))])
        header, zones = ("rq_time", "start", "end", "request_id"), np.asarray(requests.zone)[order]
        write_lines(demand / "requests.csv", header, lines.tolist())
        for zone in range(len(city.zone_names)):
            write_lines(demand / f"requests_{zone}.csv", header, lines[zones == zone].tolist())
        far = "along great circles" if placed else "from travel times at 20 km/h, because stops have no coordinates"
        when = "at the earliest possible second" if requested is None else "at the same second as in our simulation"
        about = _ABOUT_FLEETPY.format(
            name=_NAME,
            distances=far,
            positions="Web Mercator, EPSG:3857" if placed else "unknown, so all are 0",
            zones=", ".join(f"{number} {zone}" for number, zone in enumerate(city.zone_names)) or "none",
            second=when,
        )
        (work / MARKER).write_text(about, encoding="utf-8")
    return Path(folder)


def export_geojson(
    folder: str | os.PathLike[str],
    city: City,
    release: Release | None = None,
    *,
    shuttles: Sequence[int] | None = None,  # of each zone
    dates: Dates | None = None,  # their number, if the release does not state it
) -> Path:
    """Write stops, zones and, with a release of counts, the largest flows of an average date."""
    if city.lat is None or city.lon is None:
        raise ParameterError("a map needs coordinates of stops, but the city has none. Add lat and lon to stops.csv.")
    places = [[round(float(lon), 6), round(float(lat), 6)] for lon, lat in zip(city.lon, city.lat, strict=True)]
    zones = [None] * len(places) if city.zones is None else [city.zone_names[zone] for zone in city.zones]
    hubs = [False] * len(places) if city.hubs is None else city.hubs.tolist()
    stops = [
        feature("Point", place, {"stop": stop, "zone": zone, "hub": hub})
        for stop, place, zone, hub in zip(city.stops, places, zones, hubs, strict=True)
    ]
    # The hull of each zone: a polygon, or a line or a point if its stops do not span one.
    hulls = []
    for number, name in enumerate(city.zone_names if city.zones is not None else ()):
        if members := np.flatnonzero(city.zones == number).tolist():
            ring = convex_hull([places[stop] for stop in members])
            more: Feature = {} if shuttles is None else {"shuttles": int(shuttles[number])}
            shapes = {1: ("Point", ring[0]), 2: ("LineString", ring), 3: ("Polygon", [[*ring, ring[0]]])}
            hulls.append(feature(*shapes[min(len(ring), 3)], {"zone": name, "stops": len(members), **more}))
    collections = {"stops": stops, "zones": hulls}
    if release is not None:  # trips of an average date by pair of stops, the largest first; within a stop, points
        counts = released_counts(release, city, dates)
        num = len(city.stops)
        pairs, place = np.unique(counts.origin * num + counts.destination, return_inverse=True)
        trips = np.bincount(place.reshape(-1), weights=counts.count, minlength=len(pairs)) / sum(counts.num_dates)
        flows = []
        for index in np.argsort(-trips, kind="stable")[:MAX_FLOWS].tolist():
            start, end = divmod(int(pairs[index]), num)
            same = places[start] == places[end]
            geometry, line = ("Point", places[start]) if same else ("LineString", [places[start], places[end]])
            daily = round(float(trips[index]), 3)
            about: Feature = {"origin": city.stops[start], "destination": city.stops[end], "trips": daily}
            flows.append(feature(geometry, line, about))
        collections["flows"] = flows
    with new_folder(folder, marker="stops.geojson") as work:
        for name, features in collections.items():
            text = json.dumps({"type": "FeatureCollection", "features": features}, ensure_ascii=False, allow_nan=False)
            (work / f"{name}.geojson").write_text(text + "\n", encoding="utf-8")
    return Path(folder)


def feature(geometry: str, coordinates: object, properties: Feature) -> Feature:
    return {"type": "Feature", "geometry": {"type": geometry, "coordinates": coordinates}, "properties": properties}


def convex_hull(points: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the corners of the convex hull, counter-clockwise, without repeating the first."""
    ordered = sorted({(x, y) for x, y in points})
    if len(ordered) < 3:
        return [list(point) for point in ordered]
    hull: list[list[float]] = []
    for chain in (ordered, ordered[::-1]):  # from the first point to the last, turning left
        kept: list[tuple[float, float]] = []
        for x, y in chain:
            while len(kept) > 1:
                (ax, ay), (bx, by) = kept[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                kept.pop()
            kept.append((x, y))
        hull += [list(point) for point in kept[:-1]]
    return hull
