# SPDX-License-Identifier: Apache-2.0
"""Stops and zones: draw zones on a map, tick them in a table or have them proposed; and the city that fleets run in."""

from __future__ import annotations

import copy
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w
from starlette.responses import Response

from dunnage.errors import ParameterError
from dunnage.model.city import City, numbered
from dunnage.model.policy import Policy
from dunnage.serving import forms
from dunnage.serving.owner import ready
from dunnage.serving.planner import received_city
from dunnage.serving.projects import Project
from dunnage.serving.studio import Routes, Visit
from dunnage.serving.web import OWNER, HttpError

MAX_DRAWN, MAX_ZONES, MAX_NAME = 4_000, 200, 40  # stops on the page, zones, letters of a zone's name
REST = "other stops"  # until they are in a zone of their own: every stop has a zone, or none has
WIDTH, MARGIN, HEIGHTS = 1000.0, 30.0, (400.0, 1000.0)


def _stops(visit: Visit) -> tuple[Project, Policy, City]:
    project = ready(visit)
    policy = Policy.read(project.folder / project.policy)
    if policy.schema.trip is None or policy.schema.city is None:
        raise HttpError(409, "no_stops", "Zones are for trips between stops. Add the stops on the page Columns first.")
    return project, policy, policy.schema.city


def _zones(visit: Visit) -> Response:
    return _page(visit, "")


def _page(visit: Visit, problem: str) -> Response:
    """Show stops and their zones: as a map where there are coordinates, and as a table."""
    project, policy, city = _stops(visit)
    zones = [""] * len(city.stops) if city.zones is None else [city.zone_names[zone] for zone in city.zones.tolist()]
    lines = list(zip(city.stops, city.names or [""] * len(zones), zones, strict=True))
    sizes = np.bincount(city.zones, minlength=len(city.zone_names)).tolist() if city.zones is not None else []
    trip = policy.schema.trip
    assert trip is not None
    return visit.page(
        "zones", 422 if problem else 200, title="Zones", project=project, problems=[problem] if problem else [],
        lines=lines if len(lines) <= MAX_DRAWN else [], num=len(lines), most=MAX_DRAWN,
        zones=list(zip(city.zone_names, sizes, strict=True)), map=_map(city) if len(lines) <= MAX_DRAWN else None,
        placed=city.lat is not None, by_zone=trip.level == "zone", sent=visit.form, max_zones=MAX_ZONES,
        command="dunnage generate city --own stops.csv --zones 4 -o city",
    )  # fmt: skip


class Drawn(NamedTuple):
    """Stops on a map, north up."""

    stops: list[tuple[float, float, int]]  # across, down and zone; -1: none
    names: list[tuple[str, int, int]]  # of zones, amid their stops
    width: float
    height: float


def _map(city: City) -> Drawn | None:
    """Return where stops are on a map, north up; None without coordinates."""
    if city.lat is None or city.lon is None:
        return None
    east, north = city.lon * math.cos(math.radians(float(np.median(city.lat)))), city.lat
    across, up = max(float(np.ptp(east)), 1e-9), float(np.ptp(north))
    height = min(max(WIDTH * up / across, HEIGHTS[0]), HEIGHTS[1])
    scale = min(WIDTH / across, height / max(up, 1e-9))
    x = MARGIN + (east - east.min()) * scale + (WIDTH - across * scale) / 2
    y = MARGIN + (north.max() - north) * scale + (height - up * scale) / 2
    zones = np.full(len(x), -1) if city.zones is None else city.zones
    names = [
        (name, round(float(x[zones == zone].mean())), round(float(y[zones == zone].mean())))
        for zone, name in enumerate(city.zone_names)
    ]
    stops = list(zip(x.round(1).tolist(), y.round(1).tolist(), zones.tolist(), strict=True))
    return Drawn(stops, names, WIDTH + 2 * MARGIN, round(height + 2 * MARGIN))


def _save(visit: Visit) -> Response:
    """Put ticked stops into a zone, or propose zones; the new list of stops is a new version of the project."""
    project, policy, city = _stops(visit)
    form = visit.form
    try:
        made, what = _proposed(city, form.get("num", "")) if form.get("do") == "propose" else _assigned(visit, city)
        if form.get("level") == "zone" and len(made.zone_names) < 2:
            raise ParameterError("counts between zones need two zones or more.")
        document: Any = copy.deepcopy(dict(policy.document))
        document["trip"]["level"] = "zone" if form.get("level") == "zone" else "stop"
        if made is not city:
            document["city"]["stops"] = f"../{_kept(visit, project, made)}"
        text = forms.checked(tomli_w.dumps(document), project.folder / "policies" / "next.toml")
    except ParameterError as error:
        return _page(visit, str(error))
    visit.studio.projects.change(project, visit.version, what, visit.person.name, policy=text)
    return visit.go(visit.at("zones"))


def _proposed(city: City, num: str) -> tuple[City, str]:
    if not num.isdigit() or not 1 <= int(num) <= MAX_ZONES:
        raise ParameterError(f"say how many zones: 1 to {MAX_ZONES}.")
    return city.with_zones(int(num)), f"{int(num)} zones proposed"


def _assigned(visit: Visit, city: City) -> tuple[City, str]:
    name, ticked = " ".join(visit.form.get("zone", "").split()), visit.lists.get("stop", [])
    if not name and not ticked:
        return city, "What trips are counted between"
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise ParameterError(f"name the zone, with at most {MAX_NAME} letters.")
    chosen = {int(text) for text in ticked if text.isdigit() and int(text) < len(city.stops)}
    if not chosen:
        raise ParameterError("choose the stops of the zone first: on the map, or in the table.")
    before = [REST] * len(city.stops) if city.zones is None else [city.zone_names[zone] for zone in city.zones.tolist()]
    after = [name if stop in chosen else zone for stop, zone in enumerate(before)]
    zone_names, zones = numbered(after)
    if len(zone_names) > MAX_ZONES:
        raise ParameterError(f"there are {MAX_ZONES} zones already.")
    return replace(city, zone_names=zone_names, zones=zones), f"Zone {name}"


def _kept(visit: Visit, project: Project, city: City) -> str:
    """Keep a list of stops with its zones among the project's files."""
    with tempfile.TemporaryDirectory(prefix="stops-") as folder:
        city = City(
            stops=city.stops, zone_names=city.zone_names, zones=city.zones, lat=city.lat, lon=city.lon, hubs=city.hubs,
            names=city.names,
        )  # fmt: skip
        path = city.write(Path(folder) / "city") / "stops.csv"
        with path.open("rb") as source:
            return visit.studio.projects.add_file(project, "stops.csv", source, path.stat().st_size).name


def _city(visit: Visit) -> Response:
    """Keep the city in which the preview sizes shuttles, or forget it."""
    project, upload = ready(visit), visit.uploads.get("city")
    if upload is None and not visit.form.get("forget"):
        raise HttpError(422, "no_city", "Choose the zip of a GTFS feed, or of a city folder.")
    city = None if upload is None else received_city(project, upload, "received")
    what = "City for the preview" if city else "The preview's city forgotten"
    visit.studio.projects.change(project, visit.version, what, visit.person.name, settings={"city": city})
    return visit.go(visit.at("preview"))


_P = "/studio/projects/{project}"
ROUTES: Routes = {
    f"GET {_P}/zones": ((OWNER,), _zones),
    f"POST {_P}/zones": ((OWNER,), _save),
    f"POST {_P}/city": ((OWNER,), _city),
}
NAV: list[tuple[str, str]] = []
