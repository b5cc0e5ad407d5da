# SPDX-License-Identifier: Apache-2.0
"""Stops and zones: stops from a GTFS feed; zones drawn, ticked or proposed; and the city that fleets run in."""

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

from dunnage.errors import InputError, ParameterError
from dunnage.model.city import City, numbered
from dunnage.model.policy import Policy
from dunnage.serving import forms
from dunnage.serving.jobs import DONE
from dunnage.serving.owner import ready
from dunnage.serving.planner import is_feed, received_city
from dunnage.serving.projects import Project
from dunnage.serving.studio import Routes, Visit
from dunnage.serving.web import OWNER, HttpError

MAX_DRAWN, MAX_ZONES, MAX_NAME = 4_000, 200, 40  # stops on the page, zones, letters of a zone's name
REST = "other stops"  # until they are in a zone of their own: every stop has a zone, or none has
_FEED, _OWN = "feed", "dunnage generate city --own stops.csv --zones 4 -o city"
WIDTH, MARGIN, HEIGHTS = 1000.0, 30.0, (400.0, 1000.0)


def _stops(visit: Visit) -> tuple[Project, Policy | None, City | None]:
    """Return a project with its policy and stops; before its columns are described it has neither."""
    project = visit.project
    if not project.now.policy:
        return project, None, None
    policy = Policy.read(project.folder / project.policy)
    if policy.schema.trip is None or policy.schema.city is None:
        raise HttpError(409, "no_stops", "Zones are for trips between stops. Add the stops on the page Columns first.")
    return project, policy, policy.schema.city


def _zones(visit: Visit) -> Response:
    return _page(visit)


def _page(visit: Visit, *problems: str) -> Response:
    """Show stops and their zones: as a map where there are coordinates, and as a table."""
    project, policy, city = _stops(visit)
    jobs = visit.studio.jobs.of(project.id, _FEED) if "feed" in visit.request.query_params else []
    how: Any = {
        "problems": [text[:1].upper() + text[1:] for text in problems],
        "title": "Zones", "project": project, "sent": visit.form, "max_zones": MAX_ZONES,
        "feed": next((job for job in jobs[:1] if job.state == DONE), None), "described": city is not None,
        "placed": city is not None and city.lat is not None, "by_zone": False,
        "command": "dunnage generate city --gtfs feed.zip --zones 4 -o city",
    }  # fmt: skip
    if policy is not None and city is not None:
        zones = [""] * len(city.stops)
        if city.zones is not None:
            zones = [city.zone_names[zone] for zone in city.zones.tolist()]
        lines = list(zip(city.stops, city.names or [""] * len(zones), zones, strict=True))
        drawn = len(lines) <= MAX_DRAWN
        trip = policy.schema.trip
        how |= {
            "lines": lines if drawn else [], "num": len(lines), "most": MAX_DRAWN, "map": _map(city) if drawn else None,
            "zones": [(name, zones.count(name)) for name in city.zone_names],
            "by_zone": trip is not None and trip.level == "zone", "command": f"{how['command']}\n{_OWN}",
        }  # fmt: skip
    return visit.page("zones", 422 if problems else 200, **how)


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
    """Put ticked stops into a zone, propose zones, or take a feed's stops; the new list is a new project version."""
    project, policy, city = _stops(visit)
    form = visit.form
    try:
        if form.get("do") == "feed":
            made, what = _of_feed(visit, project)
        elif city is None:
            raise ParameterError("there are no stops yet. Take them from a GTFS feed, or add them on the page Columns.")
        else:
            made, what = _proposed(city, form.get("num", "")) if form.get("do") == "propose" else _assigned(visit, city)
        if policy is None:  # the page Columns writes them into the first policy
            settings = {"stops": f"../{_kept(visit, project, made)}"}
            visit.studio.projects.change(project, visit.version, what, visit.person.name, settings=settings)
            return visit.go(visit.at("columns") + "?story=trips")
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


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MAX_ZONES):
        raise ParameterError(f"say how many zones: 1 to {MAX_ZONES}.")
    return int(text)


def _proposed(city: City, num: str) -> tuple[City, str]:
    return city.with_zones(_number(num)), f"{_number(num)} zones proposed"


def _read_feed(visit: Visit) -> Response:
    """Make a city from a GTFS feed that was uploaded, as a job; the project changes only when its stops are taken."""
    project, _, _ = _stops(visit)
    try:
        num, upload = _number(visit.form.get("num", "")), visit.uploads.get("feed")
        if upload is None:
            raise ParameterError("choose the zip of a GTFS feed first.")
        if not is_feed(upload):
            raise ParameterError("this is not a GTFS feed: its zip has stops.txt, trips.txt and stop_times.txt.")
    except InputError as error:
        return _page(visit, *(f"{error.source} {problem}" for problem in error.problems))
    except ParameterError as error:
        return _page(visit, str(error))
    feed = received_city(project, upload, "received")
    argv = ["dunnage", "generate", "city", "--gtfs", feed, "--zones", str(num), "-o", feed.removesuffix(".zip")]
    return visit.wait(visit.start(project, _FEED, *argv, "--json", role=OWNER, place=visit.at("zones") + "?feed=read"))


def _of_feed(visit: Visit, project: Project) -> tuple[City, str]:
    """Return the stops and zones that a job made from a feed."""
    job = visit.studio.jobs.get(visit.form.get("job", ""))
    if job is None or (job.project, job.kind, job.state) != (project.id, _FEED, DONE):
        raise ParameterError("the feed is not there any more. Upload it again.")
    folder = project.inside("received", job.argv[job.argv.index("-o") + 1].removeprefix("received/"))
    return City.read(folder / "stops.csv"), "Stops of a GTFS feed"


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
    f"POST {_P}/feed": ((OWNER,), _read_feed),
    f"POST {_P}/city": ((OWNER,), _city),
}
NAV: list[tuple[str, str]] = []
