# SPDX-License-Identifier: Apache-2.0
"""Pages of fleets: well-formed, closed to the network, escaped, true to plan and settlement; maps that stay inside."""

from __future__ import annotations

import itertools
import re
import stat
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from tests.pages_help import Page, check_closed
from tests.test_fleet import task_of, tiny_city
from tests.test_settle_fleets import WAIT, policy_of, publish, trip_table

import dunnage as dn
from dunnage.errors import OutputError, ParameterError
from dunnage.model.city import City
from dunnage.planning.demand import Ground
from dunnage.planning.fleet import planned_task, size
from dunnage.planning.plan import FleetPlan
from dunnage.settle.fleets import apply_fleet, read_settlement
from dunnage.showing.figures import FOOT, MAP_WIDTH, MAX_FLOWS, CityMap, Flows
from dunnage.showing.fleets import (
    MAX_CURVES,
    WAIT_STEP,
    WAIT_STEPS,
    Curves,
    Running,
    fleets_around,
    plan_page,
    settlement_page,
)

HOSTILE = "<script>alert(1)</script>&\"'"


def settle(folder, place: City, *, num: int = 200, days: int = 1, fleet: str = "", **more) -> SimpleNamespace:
    """Publish trips in a city, size a fleet or take somebody's, and apply it."""
    data = dn.load(trip_table(place, 5, num, days), policy_of(folder, place))
    release, key = publish(data)
    if fleet:
        (folder / "mine.csv").write_text(fleet)
    plan = FleetPlan.read(folder / "mine.csv") if fleet else size(release, place, max_wait=WAIT, expansions=2)
    done = apply_fleet(plan, data, release, place, key, **more)
    return SimpleNamespace(place=place, release=release, plan=plan, done=done)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    found = settle(tmp_path_factory.mktemp("story"), tiny_city(1), shuttle_hour=40)
    found.plan_html = plan_page(found.plan, found.release, found.place)
    found.settlement_html = settlement_page(found.done, found.release)
    return found


def test_pages_are_well_formed_closed_styled_and_the_same_again(story):
    for html in (story.plan_html, story.settlement_html):
        page = check_closed(html)
        assert sum(tag == "svg" for tag, _ in page.tags) >= 6
        (style,) = page.styles
        drawn = {"rect", "line", "path", "circle", "i"}
        used = {name for tag, attrs in page.tags if tag in drawn for name in attrs.get("class", "").split()}
        assert {name for name in used if f".{name}" not in style} <= {"chosen", "key"}
    assert plan_page(story.plan, story.release, story.place) == story.plan_html
    assert settlement_page(story.done, story.release) == story.settlement_html


def test_plan_page_says_what_the_plan_says(story):
    page, plan = Page(story.plan_html), story.plan
    rows = page.named_rows()
    assert set(rows) == set(plan.zones)
    for zone, number in zip(plan.zones, plan.shuttles, strict=True):
        facts = plan.by_zone[zone]
        _, shuttles, _, wait, *_, bound = rows[zone].values()
        assert (shuttles, wait, bound) == (f"{number}", f"{facts.wait_seconds.mean:.0f} s", f"{facts.bound}")
    for fact in (f"{WAIT} s", *plan.assumed, *plan.notes):
        assert " ".join(fact.split()) in page.text
    for mode, share in plan.demand.modes.items():
        assert (f"{mode}: " in page.text) == (share > 0)
    assert f"{pa.compute.sum(story.release.data['count']).as_py():,} trips" in page.text


def test_curves_and_running_agree_with_the_plan(story):
    plan = story.plan
    task = planned_task(story.release, Ground.of(story.place), plan)
    curves = Curves.of(task, fleets_around(plan.shuttles))
    assert curves.days == 2
    for zone, name in enumerate(plan.zones):
        points = dict(curves.points[zone])
        assert points[plan.shuttles[zone]] == pytest.approx(plan.by_zone[name].wait_seconds.mean)
        assert list(points) == sorted(points)
    around = [tuple(zone) for zone in zip(*fleets_around((40, 0, 1)), strict=True)]
    assert around == [(40, 38, 36, 32, 42, 44, 48), (0,) * 7, (1, 1, 1, 1, 2, 3, 4)]
    running = Running.of(task, plan.shuttles)
    assert running.mean_wait == pytest.approx(plan.operation.wait_seconds.mean)
    busy = np.average([run.busy.sum() for run in task.runs(plan.shuttles)], weights=task.weights)
    assert (running.busy.sum() * 1800, running.starts[0]) == (pytest.approx(busy, rel=0.01), 8 * 3600)
    assert (running.busy + running.empty <= plan.objective + 1e-9).all()
    assert np.allclose(running.busy + running.empty + running.parked, plan.objective)
    task, fleet = task_of(60), (3, 3)  # waits are counted by their bar
    expected = Counter(min(wait // WAIT_STEP, WAIT_STEPS) for run in task.runs(fleet) for wait in run.waits.tolist())
    shares = [expected[bar] / expected.total() for bar in range(WAIT_STEPS + 1)]
    assert Running.of(task, fleet).waits.tolist() == pytest.approx(shares)


def test_a_plan_without_rides_or_price_has_a_page(story, tmp_path):
    place = tiny_city(1)
    data = dn.load(trip_table(place, 5, 1).slice(0, 0), policy_of(tmp_path, place))
    noisy, _ = publish(data)
    release = replace(noisy, data=noisy.data.slice(0, 0))  # noise may have made trips
    plan = size(release, place, max_wait=WAIT, expansions=1)
    assert plan.objective == 0
    check_closed(plan_page(plan, release, place))
    check_closed(settlement_page(apply_fleet(plan, data, release, place), release))
    external = FleetPlan(release="", zones=("west", "east"), shuttles=(1, 1), external=True)
    with pytest.raises(ParameterError):
        plan_page(external, story.release, story.place)
    pages = (Page(settlement_page(done, story.release)) for done in (story.done, replace(story.done, cost=None)))
    assert [len(page.rows) for page in pages] == [6, 5]


def test_names_are_escaped_and_a_city_without_coordinates_has_no_map(tmp_path):
    place = tiny_city(1)
    named = replace(place, zone_names=(HOSTILE, "east"), stops=(f"{HOSTILE}0", *place.stops[1:]))
    bare = replace(place.with_times(), lat=None, lon=None)
    for case in (named, bare):
        (tmp_path / str(case is bare)).mkdir()
        found = settle(tmp_path / str(case is bare), case, num=80)
        for html in (plan_page(found.plan, found.release, case), settlement_page(found.done, found.release)):
            assert "<script" not in html
            assert (HOSTILE in Page(html).text) == (case is named)
            assert ('class="chart map"' in html) == (case is named)


def a_city(lat, lon, **more):
    lat, lon = np.array(lat, dtype=float), np.array(lon, dtype=float)
    return City(stops=tuple(f"S{i}" for i in range(len(lat))), lat=lat, lon=lon, **more)


def drawn_map(drawing, num):
    none = np.zeros(0, dtype=np.int64)
    return drawing.drawn(Flows.of(none, none, np.zeros(0), num), most=1.0, style="truth", label="map")


def test_many_zones_are_not_all_drawn(tmp_path):
    num, rng = MAX_CURVES + 2, np.random.default_rng(3)
    names, zones = tuple(f"Z{i}" for i in range(num)), np.repeat(np.arange(num), 2).astype(np.int32)
    lat, lon = 42 + 0.04 * rng.random(2 * num), -83 + 0.04 * rng.random(2 * num)
    found = settle(tmp_path, a_city(lat, lon, zone_names=names, zones=zones), num=300)
    page = Page(plan_page(found.plan, found.release, found.place))
    assert (page.text.count("300 s") >= MAX_CURVES, len(page.rows)) == (True, num)


def test_settlement_page_says_what_privacy_cost(story):
    done = story.done
    told, errors = done.to_dict(), done.relative_error
    page = Page(story.settlement_html)
    shuttles, wait, idle, cost = ([*row.values()][1:] for row in page.rows[:4])  # the plan, the truth, needed, error
    assert shuttles[2] == f"{told['sized_on_truth']['shuttles']}"
    assert wait[:2] == [f"{story.plan.operation.wait_seconds.mean:.0f} s", f"{done.wait_seconds:.0f} s"]
    assert (idle[3], cost[1]) == (f"{100 * errors.idle_seconds:+.1f} %", f"{done.cost.planned_per_day:,.0f}")
    verdicts = {}
    for place, zone in enumerate(done.zones):
        _, planned, needed, _, rides, waited, met = page.named_rows()[zone].values()
        assert (planned, needed) == (f"{done.planned[place]}", f"{done.needed[place]}")
        assert rides == f"{(done.task.days[0].requests.zone == place).sum()}"
        assert waited == f"{done.zone_waits[place]:.0f} s"
        verdicts.setdefault(done.meets_target[place], set()).add(met)
    assert all(len(words) == 1 for words in verdicts.values())


def test_somebody_elses_fleet_has_a_settlement_page(tmp_path):
    for east in (0, 9):
        (tmp_path / str(east)).mkdir()
        fleet = f"zone,shuttles\nwest,9\neast,{east}\n"
        found = settle(tmp_path / str(east), tiny_city(1), num=80, fleet=fleet, shuttle_hour=10)
        page = Page(settlement_page(found.done, found.release))
        assert (found.done.unserved > 0) == (f"{found.done.unserved:,.1f} rides" in page.text) == (east == 0)
        assert [*page.rows[1].values()][1] == "-"  # what the plan said of waits
        assert [*page.named_rows()["west"].values()][1] == "9"


def test_several_dates_are_averaged(tmp_path):
    place = tiny_city(1)
    dated = policy_of(tmp_path, place, day="date", dates=["2026-11-09", "2026-11-11"])
    data = dn.load(trip_table(place, 5, 240, days=3), dated)
    release, key = publish(data)
    plan = size(release, place, max_wait=WAIT, expansions=3)
    done = apply_fleet(plan, data, release, place, key)
    assert len(done.task.days) == 3
    rows = Page(settlement_page(done, release)).named_rows()
    for zone, name in enumerate(done.zones):
        each = [(day.requests.zone == zone).sum() for day in done.task.days]
        assert [*rows[name].values()][4] == f"{np.mean(each):,.0f}"


def test_folders_hold_their_pages(story, tmp_path):
    folder = story.plan.write(tmp_path / "plan", page=story.plan_html)
    assert {path.name for path in folder.iterdir()} == {"plan.json", "fleet.csv", "parking.csv", "plan.html"}
    assert FleetPlan.read(folder).to_dict() == story.plan.to_dict()
    with pytest.raises(OutputError):
        story.plan.write(folder, page=story.plan_html)
    story.plan.write(folder, page="again", force=True)
    assert (folder / "plan.html").read_text() == "again"
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]
    folder = story.done.write(tmp_path / "settlement", page=story.settlement_html)
    assert {path.name for path in folder.iterdir()} == {"settlement.json", "events.csv", "settlement.html"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700  # its owner's alone
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    assert read_settlement(folder) == story.done.document
    story.done.write(folder, page=story.settlement_html, force=True)


def test_flows_add_up_both_ways_and_only_the_largest_are_drawn():
    rng = np.random.default_rng(1)
    origin, destination, trips = rng.integers(0, 6, 300), rng.integers(0, 6, 300), rng.random(300)
    expected: Counter[tuple[int, int]] = Counter()
    for start, end, number in zip(origin.tolist(), destination.tolist(), trips.tolist(), strict=True):
        if start != end:
            expected[min(start, end), max(start, end)] += number
    flows = Flows.of(origin, destination, trips, 6)
    found = {(start, end): number for (start, end), number in zip(flows.ends.tolist(), flows.trips, strict=True)}
    assert found == pytest.approx(dict(expected))
    assert (np.diff(flows.trips) <= 0).all()
    assert (flows.most, flows.shown) == (pytest.approx(max(expected.values())), 15)
    assert flows.shown_share == pytest.approx(1)
    num = 20
    origin, destination = np.divmod(np.arange(num * num), num)
    flows = Flows.of(origin, destination, np.ones(num * num), num)
    drawn = CityMap(a_city(np.linspace(0, 1, num), np.linspace(0, 1, num) ** 2)).drawn(
        flows, most=flows.most, style="release", label="map"
    )
    assert drawn.count('class="flow release"') == MAX_FLOWS
    assert flows.shown_share == pytest.approx(MAX_FLOWS / 190)


def test_stops_stay_inside_the_map():
    for lat, lon in (
        *(([1], [2]), ([1, 1], [2, 2]), ([0, 0, 0], [10, 10.1, 10.2]), ([0, 3, 1], [10, 10, 10])),
        *(([-17, -17.1, -17.2], [179.9, -179.9, 180]), ([89.9, 89.8, 90], [-120, 50, 0])),
    ):
        num = len(lat)
        zones, hubs = np.zeros(num, dtype=np.int32), np.arange(num) == 0
        drawing = CityMap(a_city(lat, lon, zone_names=("a", "empty"), zones=zones, hubs=hubs))
        assert (drawing.places >= 0).all()
        assert (drawing.places <= [MAP_WIDTH, drawing.height - FOOT]).all()
        html = drawn_map(drawing, num)
        assert ("nan" in html, html.count('class="hub"'), html.count("zone-name")) == (False, 1, 1)


def test_names_of_zones_hide_no_hub_and_no_other_name():
    rng = np.random.default_rng(4)
    zones, hubs = np.repeat(np.arange(3, dtype=np.int32), 6), np.arange(18) % 6 == 0
    for _ in range(20):
        lat, lon = 42 + 0.05 * rng.random(18), -83 + 0.05 * rng.random(18)
        for zone in range(3):  # a hub where its zone's name would stand
            lat[6 * zone], lon[6 * zone] = (side[6 * zone + 1 : 6 * zone + 6].mean() for side in (lat, lon))
        drawing = CityMap(a_city(lat, lon, zone_names=("zone 1", "zone 2", "zone 3"), zones=zones, hubs=hubs))
        found = re.findall(r'zone-name" x="([\d.]+)" y="([\d.]+)"', drawn_map(drawing, 18))
        feet = [(float(x), float(y)) for x, y in found]
        assert len(feet) == 3
        for x, y in feet:
            assert 0 < x < MAP_WIDTH
            for hub_x, hub_y in drawing.places[hubs].tolist():
                assert abs(hub_x - x) > 25 or not y - 16 < hub_y < y + 4
        for first, second in itertools.combinations(feet, 2):
            assert abs(first[0] - second[0]) > 45 or abs(first[1] - second[1]) > 14


def test_distances_on_the_map_are_true():
    rng = np.random.default_rng(2)
    place = a_city(42 + 0.05 * rng.random(12), -83 + 0.05 * rng.random(12))
    places = CityMap(place).places
    drawn = np.linalg.norm(places[:, None] - places, axis=2)
    ratio = drawn[~np.eye(12, dtype=bool)] / place.kilometres()[~np.eye(12, dtype=bool)]
    assert np.ptp(ratio) < 0.01 * ratio.mean()
    north = int(np.argmax(place.lat))
    assert (places[:, 1].argmin(), places[:, 0].argmax()) == (north, int(np.argmax(place.lon)))
