# SPDX-License-Identifier: Apache-2.0
"""Fleets sized on simulated days: feasible, minimal zone by zone, bounded, and told in a plan that reads back."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from tests.fleet_help import SPAN, policy_of, publish, simulate, some_trips, tiny_city, trip_rows
from tests.oracles.operations import check_operation

import dunnage as dn
from dunnage.errors import InputError, NoPlanError, ParameterError, Refusal
from dunnage.model.city import City
from dunnage.planning.demand import Day, Ground, Trips
from dunnage.planning.dispatch import Service
from dunnage.planning.fleet import FleetTask, expanded_days, planned_task, size, solo_cover, wait_facts
from dunnage.planning.plan import FleetModel, FleetPlan, Waits, ZoneFacts, is_fleet_plan


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
        run = simulate(day.requests, np.array(fleet), task.ground.times, homes, task.service)
        for zone in range(len(fleet)):
            own = day.requests.zone == zone
            total[zone] += day.weight * run.waits[own].sum()
            legs[zone] += day.weight * own.sum()
    return [float(t / n) if n else 0.0 for t, n in zip(total, legs, strict=True)]


@pytest.mark.parametrize("seed", range(8))
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


def test_a_sized_fleet_runs_as_a_fleet_can():
    task = task_of(120, days=2, seed=3, max_wait=300, length=3600)
    fleet = task.size().fleet
    for day, run in zip(task.days, task.operate(fleet), strict=True):
        ground = task.ground
        assert check_operation(day.requests, np.array(fleet), ground.times, ground.homes, task.service, run) == []


def test_zones_hang_together_through_linked_rides():
    requests = task_of(60).days[0].requests
    assert (requests.after >= 0).any()
    assert (requests.zone[requests.after >= 0] != requests.zone[requests.after[requests.after >= 0]]).any()


def test_mean_waits_are_those_of_all_riders_of_all_days_by_weight():
    ground = Ground.of(tiny_city())
    days = [Day.of(some_trips(num, 10, num), ground, weight) for num, weight in ((30, 5.0), (80, 1.0), (0, 2.0))]
    task = FleetTask(ground, days, service=Service(), max_wait=240, span=SPAN)
    assert task.mean_waits((3, 3)).tolist() == pytest.approx(waits_by_hand(task, (3, 3)))


def test_a_smaller_fleet_that_does_where_a_larger_fails_is_found(monkeypatch):
    task = task_of(200)
    monkeypatch.setattr(FleetTask, "_does_alone", lambda self, day, zone, number: number >= 7 or number == 5)
    for guess in range(1, 20):
        assert task._smallest_alone(0, 0, guess) == 5
    monkeypatch.setattr(FleetTask, "_does_alone", lambda self, day, zone, number: number >= 6)
    for guess in range(1, 20):
        assert task._smallest_alone(0, 0, guess) == 6
    monkeypatch.setattr(FleetTask, "_does_alone", lambda self, day, zone, number: True)
    assert [task._smallest_alone(0, 0, guess) for guess in (1, 2, 3, 17)] == [1] * 4


def test_a_wait_that_no_fleet_can_reach_is_refused():
    with pytest.raises(NoPlanError, match="gives a mean wait of at most 1 seconds"):
        task_of(30, max_wait=1).size()


def test_a_wait_that_is_none_is_refused():
    for wait in (0, -3, float("nan"), float("inf")):
        with pytest.raises(ParameterError, match="above 0 seconds"):
            task_of(5, max_wait=wait)


def test_a_zone_without_rides_gets_no_shuttle():
    ground = Ground.of(tiny_city())
    west = np.flatnonzero(ground.city.zones == 0)
    trips = some_trips(60, len(west), 3)
    trips = Trips.in_order(west[trips.origin], west[trips.destination], trips.seconds)
    task = FleetTask(ground, [Day.of(trips, ground)], service=Service(), max_wait=240, span=SPAN)
    sized = task.size()
    assert task.served == [0]
    assert sized.fleet[0] > 0
    assert (sized.fleet[1], task.bound(1)) == (0, 0)


def test_shuttles_park_at_hubs_or_in_the_middle():
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


def test_nobody_travels():
    ground = Ground.of(tiny_city())
    task = FleetTask(ground, [Day.of(Trips.none(), ground)], service=Service(), max_wait=180, span=SPAN)
    assert task.size().fleet == (0, 0)


def test_solo_cover_counts_rides_at_once():
    task = task_of(80, days=1)
    requests, times = task.days[0].requests, task.ground.times
    rides = [
        (second, second + max(1, int(times[start, end])))
        for second, start, end in zip(requests.seconds, requests.origin, requests.destination, strict=True)
    ]
    at_once = max(sum(begin <= second < end for begin, end in rides) for second, _ in rides)
    assert solo_cover(requests, times) == at_once


def test_a_bound_grows_with_crowds():
    ground = Ground.of(tiny_city())
    west = np.flatnonzero(ground.city.zones == 0)
    far = np.unravel_index(ground.times[np.ix_(west, west)].argmax(), (len(west), len(west)))
    ends = [np.full(5_000, west[end]) for end in far]
    crowd = Trips.in_order(ends[0], ends[1], np.sort(SPAN[0] + np.arange(5_000) % 600))
    task = FleetTask(ground, [Day.of(crowd, ground)], service=Service(capacity=1), max_wait=60, span=SPAN)
    assert task.legs[0, 0] == 5_000
    assert task.bound(0) > 100


def test_waits_are_summed_up_by_weight():
    facts = wait_facts(np.array([10, 20, 30, 40]), np.array([1.0, 1.0, 1.0, 1.0]))
    assert facts == Waits(mean=25.0, median=20.0, p95=40.0)
    assert wait_facts(np.array([10, 100]), np.array([3.0, 1.0])) == Waits(mean=32.5, median=10.0, p95=100.0)


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
    assert any("3 such days" in sentence for sentence in told["assumed"])
    assert "3 such days" in plan.summary()
    folder = plan.write(tmp_path / "plan")
    assert FleetPlan.read(folder).to_dict() == told | {"seconds": round(plan.seconds, 3)}
    assert (folder / "fleet.csv").read_text() == f"zone,shuttles\nwest,{plan.shuttles[0]}\neast,{plan.shuttles[1]}\n"
    assert is_fleet_plan(folder)


def test_modes_that_are_not_known_are_said_to_be_ignored(published):
    place, release = published
    num = len(place.stops)
    trams = place.with_modes(("walk", "tram"), np.arange(num * num) % 2)
    plan = size(release, trams, max_wait=300, expansions=1)
    assert any("'tram' is none of the 12 known ones" in said for said in plan.assumed)
    assert plan.shuttles == size(release, place, max_wait=300, expansions=1).shuttles
    walks = size(release, place.with_modes(("walk",), np.zeros(num * num, int)), max_wait=300, expansions=1)
    assert not any("ignored" in said for said in walks.assumed)


def test_one_of_a_thing_has_no_ending():
    facts = ZoneFacts(legs=1.0, bound=1, solo_cover=1, spread=None, wait_seconds=None)
    plan = FleetPlan(release="r", zones=("a",), shuttles=(1,), probes=1, by_zone={"a": facts})
    assert "a: 1 shuttle for 1 ride a day" in plan.summary()
    assert "1 day simulated" in plan.summary()


def test_the_same_seed_gives_the_same_plan(published):
    place, release = published
    one, other = (size(release, place, max_wait=300, expansions=2, seed=9).to_dict() for _ in range(2))
    assert {**one, "seconds": 0} == {**other, "seconds": 0}
    task = planned_task(release, Ground.of(place), size(release, place, max_wait=300, expansions=2, seed=9))
    assert task.mean_waits(list(one["fleet"].values())).max() <= 300


def test_days_are_sized_together_or_alone(tmp_path):
    place, trips = tiny_city(1), some_trips(240, 10, 5)
    release = release_of(tmp_path, place, trips, day="date", dates=["2026-11-09", "2026-11-12"])
    counts_days = release.universe.days
    task = planned_task(release, Ground.of(place), size(release, place, max_wait=300, expansions=2))
    assert len(task.days) == len(counts_days) == 4
    one = size(release, place, max_wait=300, expansions=2, day="2026-11-10")
    assert "Only 2026-11-10 was planned for." in one.assumed
    with pytest.raises(ParameterError, match="tells no day 'monday' apart"):
        size(release, place, day="monday")


def test_several_dates_without_labels_are_one_average_day(tmp_path):
    place, trips = tiny_city(1), some_trips(240, 10, 5)
    release = release_of(tmp_path, place, trips, dates=["2026-11-09", "2026-11-12"])
    plan = size(release, place, max_wait=300, expansions=4)
    total = sum(release.data.column("count").to_pylist())
    assert abs(plan.demand.trips - total / 4) < 6.5 * np.sqrt(total / 4 * 0.75 / 4)
    assert any("counts 4 dates" in sentence for sentence in plan.assumed)


def test_an_empty_release_needs_no_shuttle(tmp_path):
    place = tiny_city(1)
    release = release_of(tmp_path, place, Trips.none())
    empty = release.data.slice(0, 0)
    nothing = dn.Release(certificate=release.certificate, data=empty)
    plan = size(nothing, place)
    assert (plan.objective, plan.bound) == (0, 0)
    assert any("No trip needs a shuttle" in note for note in plan.notes)
    folder = plan.write(tmp_path / "plan")
    assert FleetPlan.read(folder).objective == 0
    assert "No trip needs a shuttle" in plan.summary()


def test_what_cannot_be_sized_is_refused(published):
    place, release = published
    with pytest.raises(Refusal, match="zones"):
        size(release, City(stops=place.stops, lat=place.lat, lon=place.lon))
    with pytest.raises(ParameterError, match="lacks stops"):
        size(release, tiny_city(1, num=6))
    with pytest.raises(ParameterError, match="expansions must be"):
        size(release, place, expansions=0)
    with pytest.raises(ParameterError, match="seed"):
        size(release, place, seed=-1)


def test_more_trips_than_the_limit_are_refused(published, monkeypatch):
    from dunnage.planning import demand

    place, release = published
    monkeypatch.setattr(demand, "MAX_TRIPS", 50)
    with pytest.raises(ParameterError, match="at most 50 trips"):
        size(release, place)


def test_expansions_are_shared_among_days(published):
    from dunnage.planning.demand import released_counts

    place, release = published
    ground = Ground.of(place)
    days = expanded_days(released_counts(release, ground.city), ground, expansions=4, seed=1)
    assert [day.weight for day in days] == [0.25] * 4


def plan_folder(tmp_path: Path) -> Path:
    plan = FleetPlan(release="abc", zones=("a", "b"), shuttles=(3, 0), model=FleetModel(name="smallest-fleet"), bound=1)
    return plan.write(tmp_path / "plan")


def test_a_bare_table_is_a_plan_of_somebody_else(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("zone,shuttles\n east ,4\nwest,0\n")
    plan = FleetPlan.read(path)
    assert plan.external
    assert (plan.status, plan.shuttles_of(["west", "east"])) == ("external", [0, 4])
    assert is_fleet_plan(path)
    assert "4" in plan.summary()
    with pytest.raises(InputError, match=r"no line for zone 'north'[\s\S]*'west', which is no zone"):
        plan.shuttles_of(["north", "east"])


def test_tables_that_are_no_plan_are_refused(tmp_path):
    path = tmp_path / "mine.csv"
    lines = ("", "a,x\n", "a,-1\n", "a,1.5\n", "a,1\na,2\n", "a,9999999\n", ",1\n", "a,1,2\n")
    for text in (*(f"zone,shuttles\n{line}" for line in lines), "shuttles,zone\n1,a\n", ""):
        path.write_text(text)
        with pytest.raises(InputError):
            FleetPlan.read(path)


def spoil(name: str, value: object):
    def change(folder: Path) -> None:
        content = json.loads((folder / "plan.json").read_text())
        content[name] = value
        (folder / "plan.json").write_text(json.dumps(content))

    return change


@pytest.mark.parametrize(
    "change",
    [
        spoil("objective", 4),
        spoil("bound", 9),
        spoil("bound", -1),
        spoil("gap", 0),
        spoil("fleet", {"a": 3, "b": 1}),
        spoil("zones", {"c": {}}),
        spoil("zones", {"a": {"legs": "many"}}),
        spoil("seconds", "soon"),
        spoil("assumed", [1]),
        spoil("format", 2),
        spoil("kind", "packing"),
        spoil("operation", {"wait_seconds": 3}),
        spoil("demand", {"trips": 1}),
        lambda folder: (folder / "fleet.csv").write_text("zone,shuttles\na,3\n"),
        lambda folder: (folder / "fleet.csv").unlink(),
        lambda folder: (folder / "plan.json").write_text("{"),
        lambda folder: (folder / "plan.json").unlink(),
    ],
)
def test_a_folder_that_was_altered_is_refused(tmp_path, change):
    folder = plan_folder(tmp_path)
    assert FleetPlan.read(folder).shuttles == (3, 0)
    change(folder)
    with pytest.raises(InputError):
        FleetPlan.read(folder)


def test_a_plan_that_makes_no_sense_cannot_be():
    fleets = [{"shuttles": shuttles} for shuttles in ((1,), (-1, 2), (10**7, 0))]
    for wrong in (*fleets, {"zones": ("a", "a")}, {"bound": 5}):
        with pytest.raises(ParameterError):
            FleetPlan(**{"release": "", "zones": ("a", "b"), "shuttles": (1, 2), **wrong})
