# SPDX-License-Identifier: Apache-2.0
"""Fleets sized on simulated days: feasible, minimal zone by zone, bounded, and told in a plan that reads back."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.fleet_help import SPAN, policy_of, publish, simulate, some_trips, starts, tiny_city, trip_rows
from tests.oracles.operations import check_operation

import dunnage as dn
from dunnage.errors import InputError, NoPlanError, ParameterError, Refusal
from dunnage.kernels.deadline import Deadline
from dunnage.model.city import City
from dunnage.model.domains import Windows
from dunnage.model.routes import Routes
from dunnage.model.trips import Universe
from dunnage.planning import demand
from dunnage.planning.demand import (
    Day,
    Ground,
    TripCounts,
    Trips,
    counted_trips,
    released_counts,
    service_seconds,
    shuttle_requests,
    window_seconds,
)
from dunnage.planning.dispatch import Service
from dunnage.planning.fleet import FleetTask, expanded_days, planned_task, size, solo_cover, wait_facts
from dunnage.planning.plan import FleetModel, FleetPlan, Waits, is_fleet_plan


def task_of(
    num_trips: int = 40, *, days: int = 2, seed: int = 0, max_wait: float = 240, length: int = 7200
) -> FleetTask:
    ground = Ground.of(tiny_city(seed))
    drawn = [Day.of(some_trips(num_trips, 10, 10 * seed + draw, length), ground) for draw in range(days)]
    return FleetTask(ground, drawn, service=Service(capacity=4), max_wait=max_wait, span=SPAN)


def waits_by_hand(task: FleetTask, fleet: tuple[int, ...]) -> list[float]:
    """Simulate each day anew and average over all riders of a zone."""
    total, legs = np.zeros(len(fleet)), np.zeros(len(fleet))
    for day in task.days:
        homes = task.ground.homes
        run = simulate(day.requests, np.array(fleet), task.ground.times, homes, task.service, task.parking)
        for zone in range(len(fleet)):
            own = day.requests.zone == zone
            total[zone] += day.weight * run.waits[own].sum()
            legs[zone] += day.weight * own.sum()
    return [float(t / n) if n else 0.0 for t, n in zip(total, legs, strict=True)]


@pytest.mark.parametrize("seed", range(5))
def test_fleets_meet_the_target_and_one_shuttle_fewer_anywhere_breaks_it(seed):
    task = task_of(30 + 10 * (seed % 3), seed=seed, max_wait=(260, 300, 400)[seed % 3], length=3600)
    sized = task.size()
    assert max(waits_by_hand(task, sized.fleet)) <= task.max_wait
    for zone in task.served:
        fewer = tuple(number - (zone == place) for place, number in enumerate(sized.fleet))
        if fewer[zone]:
            assert max(waits_by_hand(task, fewer)) > task.max_wait
    # All fleets up to one shuttle more in every zone: how close is the smallest of them?
    spans = [range(1, number + 2) for number in sized.fleet]
    able = [sum(one) for one in itertools.product(*spans) if max(task.mean_waits(one)) <= task.max_wait]
    assert min(able) <= sum(sized.fleet) <= min(able) + 1
    bounds = [task.bound(zone) for zone in range(2)]
    assert all(bound <= number for bound, number in zip(bounds, sized.fleet, strict=True))
    assert sum(bounds) <= min(able)


def test_a_search_ends_at_its_time_limit_with_a_fleet_that_meets_the_target(published):
    task, late = task_of(num_trips=120), task_of(num_trips=120)
    late.deadline = Deadline.after(0)
    sized, early = task.size(), late.size()
    assert (sized.complete, early.complete) == (True, False)
    assert late.probes < task.probes
    for own, result in ((task, sized), (late, early)):
        assert (own.mean_waits(result.fleet) <= own.max_wait).all()
    city, release = published
    lines: list[str] = []
    plan = size(release, city, max_wait=400, seconds=1e-6, progress=lines.append)
    assert any("stopped at its time limit" in note for note in plan.notes)
    assert any(line.endswith("(2 simulated days so far)") for line in lines)
    with pytest.raises(ParameterError, match="more than 0 seconds"):
        size(release, city, seconds=0)


def test_a_sized_fleet_runs_as_a_fleet_can() -> None:
    task = task_of(120, days=2, seed=3, max_wait=300, length=3600)
    fleet = task.size().fleet
    for day, run in zip(task.days, task.operate(fleet), strict=True):
        ground = task.ground
        homes = starts(ground.homes, task.parking)
        assert check_operation(day.requests, np.array(fleet), ground.times, homes, task.service, run) == []
    requests = task_of(60).days[0].requests
    assert (requests.after >= 0).any()
    assert (requests.zone[requests.after >= 0] != requests.zone[requests.after[requests.after >= 0]]).any()
    ground = Ground.of(tiny_city())
    days = [Day.of(some_trips(num, 10, num), ground, weight) for num, weight in ((30, 5.0), (80, 1.0), (0, 2.0))]
    task = FleetTask(ground, days, service=Service(), max_wait=240, span=SPAN)
    assert task.mean_waits((3, 3)).tolist() == pytest.approx(waits_by_hand(task, (3, 3)))


def test_waits_that_no_fleet_can_reach_or_that_are_none_are_refused():
    with pytest.raises(NoPlanError, match=r"0\.01 seconds"):
        task_of(30, max_wait=0.01).size()
    for wait in (0, -3, float("nan"), float("inf")):
        with pytest.raises(ParameterError):
            task_of(5, max_wait=wait)
    assert wait_facts(np.array([10, 20, 30, 40]), np.ones(4)) == Waits(mean=25.0, median=20.0, p95=40.0)
    assert wait_facts(np.array([10, 100]), np.array([3.0, 1.0])) == Waits(mean=32.5, median=10.0, p95=100.0)


def test_zones_without_rides_homes_and_bounds() -> None:
    ground = Ground.of(tiny_city())
    west = np.flatnonzero(ground.city.zones == 0)
    trips = some_trips(60, len(west), 3)
    trips = Trips.in_order(west[trips.origin], west[trips.destination], trips.seconds)
    task = FleetTask(ground, [Day.of(trips, ground)], service=Service(), max_wait=240, span=SPAN)
    sized = task.size()
    assert task.served == [0]
    assert sized.fleet[0] > 0
    assert (sized.fleet[1], task.bound(1)) == (0, 0)
    ground = Ground.of(tiny_city())
    task = FleetTask(ground, [Day.of(Trips.none(), ground)], service=Service(), max_wait=180, span=SPAN)
    assert task.size().fleet == (0, 0)
    place = tiny_city()
    ground = Ground.of(place)
    assert ground.homes == [np.flatnonzero((place.zones == zone) & place.hubs).tolist() for zone in (0, 1)]
    bare = Ground.of(
        City(stops=place.stops, zone_names=("west", "east", "void"), zones=place.zones, times=ground.times)
    )
    for zone in (0, 1):
        own = np.flatnonzero(place.zones == zone)
        sums = {int(stop): int(ground.times[stop, own].sum()) for stop in own}
        assert [sums[int(stop)] for stop in bare.homes[zone]] == [min(sums.values())]
    assert FleetTask(bare, [], service=Service(), max_wait=1, span=SPAN).size().fleet == (0, 0, 0)
    task = task_of(80, days=1)
    requests, times = task.days[0].requests, task.ground.times
    rides = [
        (second, second + max(1, int(times[start, end])))
        for second, start, end in zip(requests.seconds, requests.origin, requests.destination, strict=True)
    ]
    at_once = max(sum(begin <= second < end for begin, end in rides) for second, _ in rides)
    assert solo_cover(requests, times) == at_once
    ground = Ground.of(tiny_city())
    west = np.flatnonzero(ground.city.zones == 0)
    far = np.unravel_index(ground.times[np.ix_(west, west)].argmax(), (len(west), len(west)))
    ends = [np.full(5_000, west[end]) for end in far]
    crowd = Trips.in_order(ends[0], ends[1], np.sort(SPAN[0] + np.arange(5_000) % 600))
    task = FleetTask(ground, [Day.of(crowd, ground)], service=Service(capacity=1), max_wait=60, span=SPAN)
    assert task.legs[0, 0] == 5_000
    assert task.bound(0) > 100


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Counts of trips in the tiny city, with little noise, and the city."""
    folder = tmp_path_factory.mktemp("counts")
    place = tiny_city(1)
    return place, release_of(folder, place, some_trips(240, 10, 5))


def release_of(folder: Path, place: City, trips: Trips, **time) -> dn.Release:
    return publish(dn.load(trip_rows(place, trips, days=4), policy_of(folder, place, **time))).release


def test_a_plan_tells_what_it_is_worth(published, tmp_path):
    place, release = published
    plan = size(release, place, max_wait=250, expansions=3, seed=4)
    told = plan.to_dict()
    assert (told["format"], told["release"]) == (1, release.certificate.digest)
    assert told["objective"] == sum(plan.shuttles) == told["bound"] + told["gap"]
    assert (told["status"], told["unplanned"]) == ("feasible", {"count": 0})
    assert told["operation"]["wait_seconds"]["mean"] <= 250
    assert sum(told["operation"][f"{name}_share"] for name in ("busy", "empty", "parked")) == pytest.approx(1)
    assert told["operation"]["idle_share"] == pytest.approx(1 - told["operation"]["busy_share"])
    assert 1 <= told["operation"]["occupancy"] <= 8
    assert sum(told["demand"]["modes"].values()) == pytest.approx(1)
    assert told["demand"]["same_stop"] <= told["demand"]["without_shuttle"]
    assert told["demand"]["trips"] == sum(release.data.column("count").to_pylist())
    for zone, facts in told["zones"].items():
        assert facts["spread"]["smallest"] <= facts["spread"]["mean"] <= facts["spread"]["largest"]
        assert facts["wait_seconds"]["mean"] <= 250
        assert facts["bound"] <= told["fleet"][zone]
    assert told["probes"] > 6
    assert any("3 " in sentence for sentence in told["assumed"])
    assert plan.summary()
    folder = plan.write(tmp_path / "plan")
    assert FleetPlan.read(folder).to_dict() == told | {"seconds": round(plan.seconds, 3)}
    assert (folder / "fleet.csv").read_text() == f"zone,shuttles\nwest,{plan.shuttles[0]}\neast,{plan.shuttles[1]}\n"
    assert is_fleet_plan(folder)


def test_modes_that_are_not_known_are_said_to_be_ignored_and_seeds_repeat(published):
    place, release = published
    num = len(place.stops)
    known = size(release, place, max_wait=300, expansions=2, seed=9)
    plan = size(
        release, place.with_modes(("walk", "tram"), np.arange(num * num) % 2), max_wait=300, expansions=2, seed=9
    )
    assert any("'tram'" in said for said in plan.assumed)
    same = {"seconds": 0, "assumed": [], "city": {}}
    assert {**known.to_dict(), **same} == {**plan.to_dict(), **same}
    task = planned_task(release, Ground.of(place), known)
    assert task.mean_waits(known.shuttles).max() <= 300
    days = expanded_days(released_counts(release, Ground.of(place).city), Ground.of(place), expansions=4, seed=1)
    assert [day.weight for day in days] == [0.25] * 4


def test_days_are_sized_together_or_alone(tmp_path):
    place, trips = tiny_city(1), some_trips(240, 10, 5)
    release = release_of(tmp_path, place, trips, day="date", dates=["2026-11-09", "2026-11-12"])
    task = planned_task(release, Ground.of(place), size(release, place, max_wait=300, expansions=2))
    assert len(task.days) == len(release.universe.days) == 4
    one = size(release, place, max_wait=300, expansions=2, day="2026-11-10")
    assert any("2026-11-10" in said for said in one.assumed)
    with pytest.raises(ParameterError, match="'monday'"):
        size(release, place, day="monday")
    release = release_of(tmp_path, place, trips, dates=["2026-11-09", "2026-11-12"])  # one average day
    plan = size(release, place, max_wait=300, expansions=4)
    total = sum(release.data.column("count").to_pylist())
    assert abs(plan.demand.trips - total / 4) < 6.5 * np.sqrt(total / 4 * 0.75 / 4)
    assert any("4 dates" in said for said in plan.assumed)


def test_an_empty_release_needs_no_shuttle(tmp_path):
    place = tiny_city(1)
    release = release_of(tmp_path, place, Trips.none())
    plan = size(dn.Release(certificate=release.certificate, data=release.data.slice(0, 0)), place)
    assert (plan.objective, plan.bound, len(plan.notes)) == (0, 0, 1)
    assert FleetPlan.read(plan.write(tmp_path / "plan")).objective == 0
    assert plan.summary()


def test_what_cannot_be_sized_is_refused(published, monkeypatch):
    place, release = published
    with pytest.raises(Refusal, match="zones"):
        size(release, City(stops=place.stops, lat=place.lat, lon=place.lon))
    for where, more, fact in (
        (tiny_city(1, num=6), {}, "stops"),
        (place, {"expansions": 0}, "expansions"),
        (place, {"seed": -1}, "seed"),
    ):
        with pytest.raises(ParameterError, match=fact):
            size(release, where, **more)
    monkeypatch.setattr(demand, "MAX_TRIPS", 50)
    with pytest.raises(ParameterError, match="50 trips"):
        size(release, place)


def test_a_bare_table_is_a_plan_of_somebody_else(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("zone,shuttles\n east ,4\nwest,0\n")
    plan = FleetPlan.read(path)
    assert (plan.external, plan.status, plan.shuttles_of(["west", "east"])) == (True, "external", [0, 4])
    assert is_fleet_plan(path)
    assert "4" in plan.summary()
    with pytest.raises(InputError, match=r"'north'[\s\S]*'west'"):
        plan.shuttles_of(["north", "east"])
    path = tmp_path / "mine.csv"
    lines = ("", "a,x\n", "a,-1\n", "a,1.5\n", "a,1\na,2\n", "a,9999999\n", ",1\n", "a,1,2\n")
    for text in (*(f"zone,shuttles\n{line}" for line in lines), "shuttles,zone\n1,a\n", ""):
        path.write_text(text)
        with pytest.raises(InputError):
            FleetPlan.read(path)
    fleets = [{"shuttles": shuttles} for shuttles in ((1,), (-1, 2), (10**7, 0))]
    for wrong in (*fleets, {"zones": ("a", "a")}, {"bound": 5}):
        with pytest.raises(ParameterError):
            FleetPlan(**{"release": "", "zones": ("a", "b"), "shuttles": (1, 2), **wrong})


def test_a_folder_that_was_altered_is_refused(tmp_path):
    plan = FleetPlan(release="abc", zones=("a", "b"), shuttles=(3, 0), model=FleetModel(name="smallest-fleet"), bound=1)
    folder = plan.write(tmp_path / "plan")
    files = {name: (folder / name).read_text() for name in ("plan.json", "fleet.csv")}
    spoilt = [
        *(("objective", 4), ("bound", 9), ("bound", -1), ("gap", 0), ("fleet", {"a": 3, "b": 1}), ("zones", {"c": {}})),
        *(
            ("zones", {"a": {"legs": "many"}}),
            ("seconds", "soon"),
            ("assumed", [1]),
            ("format", 2),
            ("kind", "packing"),
        ),
        *(("operation", {"wait_seconds": 3}), ("demand", {"trips": 1})),
    ]
    changes: list[tuple[str, str | None]] = [
        *(("plan.json", json.dumps({**json.loads(files["plan.json"]), name: value})) for name, value in spoilt),
        *(("fleet.csv", "zone,shuttles\na,3\n"), ("fleet.csv", None), ("plan.json", "{"), ("plan.json", None)),
    ]
    taken = []
    for name, text in changes:
        for file, content in files.items():
            (folder / file).write_text(content)
        assert FleetPlan.read(folder).shuttles == (3, 0)
        (folder / name).unlink()
        if text is not None:
            (folder / name).write_text(text)
        with suppress(InputError):
            FleetPlan.read(folder)
            taken.append((name, text))
    assert taken == []


STOPS = ("A", "B", "C", "D")
CITY = City(stops=("X", *STOPS[::-1]))


def universe(**more) -> Universe:
    return Universe(stops=STOPS, windows=("08:00", "08:30"), window_minutes=30, **{"num_dates": (1,), **more})


def counts_of(of: Universe, table: dict[tuple[int, int, int], int]) -> TripCounts:
    """Make counts of (origin, destination, slot)."""
    ends = np.array(list(table), dtype=np.int64).reshape(-1, 3).T
    return counted_trips(of, of.cells(*ends), np.array(list(table.values()), dtype=np.int64), CITY)


def routes_of(num: int, drops: dict[tuple[int, int], tuple[int, int, int]]) -> Routes:
    """Make routes: by pair, where the first shuttle drops, the second picks up, and the seconds between."""
    first, second, lag = (np.full(num * num, value, dtype=np.int32) for value in (-1, -1, 0))
    for (origin, destination), legs in drops.items():
        pair = origin * num + destination
        first[pair], second[pair], lag[pair] = legs
    return Routes(
        num_stops=num,
        mode=np.zeros(num * num, dtype=np.int8),
        first_drop=first,
        second_pickup=second,
        first_zone=np.where(first >= 0, 0, -1).astype(np.int32),
        second_zone=np.where(second >= 0, 1, -1).astype(np.int32),
        lag_seconds=lag,
        total_seconds=lag,
    )


def test_trips_are_expanded_within_their_windows_in_order():
    found = counts_of(universe(), {(0, 1, 0): 2, (3, 3, 1): 4})
    assert (found.origin.tolist(), found.destination.tolist()) == ([4, 1], [3, 1])
    assert (found.start.tolist(), found.length.tolist()) == ([8 * 3600, 8 * 3600 + 1800], [1800, 1800])
    assert (found.count.tolist(), found.num_dates) == ([2, 4], (1,))
    table = {(0, 1, 0): 20, (2, 3, 1): 30, (1, 1, 1): 5}
    trips = counts_of(universe(), table).expanded(0, (7, 0, 0))
    assert len(trips) == 55
    assert (np.diff(trips.seconds) >= 0).all()
    first = trips.seconds < 8 * 3600 + 1800
    assert (first.sum(), set(trips.origin[first])) == (20, {4})
    assert trips.seconds.min() >= 8 * 3600
    assert trips.seconds.max() < 9 * 3600
    time = Windows(lower="22:00", upper="25:10", window_minutes=60)
    of = Universe(stops=STOPS, windows=time.labels, window_minutes=60, time=time)
    starts, lengths = window_seconds(of)
    assert starts.tolist() == [hour * 3600 for hour in (22, 23, 24, 25)]
    assert lengths.tolist() == [3600, 3600, 3600, 600]
    assert service_seconds(of) == (22 * 3600, 25 * 3600 + 600)


def test_seconds_are_uniform_and_follow_from_the_seed():
    counts = counts_of(universe(), {(0, 1, 0): 40_000})
    trips = counts.expanded(0, (1, 0, 0))
    assert stats.chisquare(np.bincount(trips.seconds - 8 * 3600, minlength=1800)).pvalue > 1e-9
    assert np.array_equal(trips.seconds, counts.expanded(0, (1, 0, 0)).seconds)
    assert not np.array_equal(trips.seconds, counts.expanded(0, (1, 0, 1)).seconds)


def test_trips_of_several_dates_are_spread_over_them_and_days_apart():
    counts = counts_of(universe(num_dates=(4,)), {(0, 1, 0): 8_000, (1, 2, 1): 4_000})
    drawn = [len(counts.expanded(0, (seed,))) for seed in range(40)]
    assert counts.trips_a_date(0) == 3_000
    assert abs(np.mean(drawn) - 3_000) < 6.5 * np.sqrt(3_000 * 0.75 / 40)
    counts = counts_of(
        universe(days=("weekday", "sunday"), num_dates=(5, 1)), {(0, 1, 0): 10, (2, 1, 2): 3, (2, 1, 3): 4}
    )
    assert (counts.days, len(counts.expanded(1, (0,)))) == (("weekday", "sunday"), 7)
    assert set(counts.expanded(1, (0,)).origin) == {2}


def test_stops_that_the_city_lacks_and_too_many_trips_are_refused(monkeypatch):
    small, of = City(stops=("A", "B")), universe()
    assert len(counted_trips(of, of.cells(*np.array([[0], [1], [0]])), np.array([1]), small).count) == 1
    with pytest.raises(ParameterError, match="'C'"):
        counted_trips(of, of.cells(*np.array([[0], [2], [0]])), np.array([1]), small)
    counts = counts_of(of, {(0, 1, 0): 11})
    monkeypatch.setattr(demand, "MAX_TRIPS", 10)
    with pytest.raises(ParameterError, match=r"10.*11"):
        counts.expanded(0, (0,))


def test_released_counts_are_those_of_the_release(tmp_path: Path):
    table = pa.table({"card": ["x"] * 9, "from": ["A"] * 9, "to": ["B"] * 9, "at": ["08:10"] * 9})
    release = publish(dn.load(table, policy_of(tmp_path, City(stops=STOPS), epsilon=2))).release
    found = released_counts(release, CITY)
    assert found.count.sum() == sum(release.data.column("count").to_pylist())
    assert len(found.expanded(0, (0,))) == found.count.sum()


def trips_of(*rows: tuple[int, int, int]) -> Trips:
    return Trips.in_order(*np.array(rows, dtype=np.int64).T)


def test_rides_follow_the_route():
    times = np.array([[0, 60, 200], [60, 0, 90], [200, 90, 0]], dtype=np.int32)
    routes = routes_of(3, {(0, 1): (1, -1, 0), (0, 2): (1, 1, 300), (1, 2): (-1, 2, 40), (2, 0): (-1, 1, 500)})
    found = shuttle_requests(trips_of((0, 1, 10), (0, 2, 20), (2, 0, 30), (1, 1, 40)), routes, times)
    # The second ride of the second trip: 20 + 60 + 300; the only ride of the third: 30 + 500.
    assert (found.seconds.tolist(), found.rider.tolist()) == ([10, 20, 380, 530], [0, 1, 1, 2])
    assert (found.origin.tolist(), found.destination.tolist()) == ([0, 0, 1, 1], [1, 1, 2, 0])
    assert (found.after.tolist(), found.lag.tolist()) == ([-1, -1, 1, -1], [0, 0, 300, 0])
    assert found.zone.tolist() == [0, 0, 1, 1]
    times = np.array([[0, 60], [60, 0]], dtype=np.int32)
    routes = routes_of(2, {(0, 1): (0, 0, 30)})
    found = shuttle_requests(trips_of((0, 1, 5), (0, 0, 6)), routes, times)
    assert (found.seconds.tolist(), found.after.tolist(), found.lag.tolist()) == ([35], [-1], [0])
    assert len(shuttle_requests(Trips.none(), routes_of(2, {}), np.zeros((2, 2), np.int32)).seconds) == 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_links_lead_to_the_first_ride_of_the_same_rider(data):
    num = 4
    legs = st.tuples(st.integers(-1, num - 1), st.integers(-1, num - 1), st.integers(0, 900))
    drops = {(a, b): data.draw(legs) for a in range(num) for b in range(num) if a != b}
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3600)), max_size=30))
    times = np.arange(num * num, dtype=np.int32).reshape(num, num) * 10
    np.fill_diagonal(times, 0)
    trips = Trips.in_order(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)
    found = shuttle_requests(trips, routes_of(num, drops), times)
    assert (np.diff(found.seconds) >= 0).all()
    expected = 0
    for rider in range(len(trips)):
        start, end = int(trips.origin[rider]), int(trips.destination[rider])
        drop, pickup, _ = drops.get((start, end), (-1, -1, 0))
        own = np.flatnonzero(found.rider == rider)
        first, second = drop not in (-1, start), pickup not in (-1, end)
        assert len(own) == first + second
        expected += first + second
        if first and second:
            assert found.after[own].tolist() == [-1, own[0]]
    assert len(found.seconds) == expected
    assert (found.origin != found.destination).all()
