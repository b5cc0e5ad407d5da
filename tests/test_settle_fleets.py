# SPDX-License-Identifier: Apache-2.0
"""A planned fleet run on the true trips: errors against the fleet these need, cost, events; private."""

from __future__ import annotations

import csv
import json
import stat
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tests.fleet_help import policy_of, publish, some_trips, tiny_city, trip_rows

import dunnage as dn
from dunnage.errors import InputError, ParameterError, ReleaseError
from dunnage.model.city import City
from dunnage.planning.demand import Ground
from dunnage.planning.dispatch import EVENTS
from dunnage.planning.fleet import size
from dunnage.planning.plan import FleetPlan
from dunnage.settle.fleets import apply_fleet, read_settlement

WAIT = 300


def trip_table(place: City, seed: int, num: int = 200, days: int = 1) -> pa.Table:
    return trip_rows(place, some_trips(num, len(place.stops), seed), days)


@pytest.fixture(scope="module")
def settled(tmp_path_factory):
    """A day's trips, published, sized for, and settled."""
    folder = tmp_path_factory.mktemp("settled")
    place = tiny_city(1)
    data = dn.load(trip_table(place, 5), policy_of(folder, place))
    release, key = publish(data)
    plan = size(release, place, max_wait=WAIT, expansions=2)
    return place, data, release, key, plan, apply_fleet(plan, data, release, place, key, shuttle_hour=40)


def test_true_trips_keep_their_seconds(settled):
    place, *_, done = settled
    (day,) = done.task.days
    expected = some_trips(200, len(place.stops), 5)
    assert np.array_equal(day.trips.seconds, expected.seconds)
    assert np.array_equal(day.trips.origin, expected.origin)


def test_errors_are_those_against_the_fleet_that_the_truth_needs(settled):
    *_, plan, done = settled
    told = done.to_dict()
    truth = told["sized_on_truth"]
    assert told["shuttles"] == plan.objective
    assert truth["wait_seconds"] <= WAIT
    for name in ("shuttles", "wait_seconds", "idle_seconds"):
        assert told["relative_error"][name] == pytest.approx((told[name] - truth[name]) / truth[name])
    assert told["wait_seconds"] == pytest.approx(told["operation"]["wait_seconds"]["mean"])
    assert 0 < told["idle_seconds"] < 3 * 3600
    assert told["unserved"] == 0
    assert told["checked"] is True


def test_cost_is_that_of_all_shuttle_hours(settled):
    *_, plan, done = settled
    needed = sum(done.needed)
    assert done.cost.plain() == {
        "per_shuttle_hour": 40,
        "hours_a_day": 2.0,
        "planned_per_day": plan.objective * 80,
        "needed_per_day": needed * 80,
        "difference_per_day": (plan.objective - needed) * 80,
    }
    assert "a shuttle-hour" in done.summary()


def test_files_are_private_and_read_back(settled, tmp_path):
    place, *_, done = settled
    folder = done.write(tmp_path / "settlement")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} == {"settlement.json", "events.csv"}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    assert json.loads((folder / "settlement.json").read_text()) == done.to_dict()
    assert read_settlement(folder).text() == done.summary()
    with (folder / "events.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["shuttle", "seconds", "stop", "event", "rider"]
    assert {row[3] for row in rows} <= set(EVENTS)
    picked = [row for row in rows if row[3] == "pickup"]
    assert len(picked) == len(done.task.days[0].requests)
    assert {row[2] for row in picked} <= set(place.stops)
    assert {int(row[4]) for row in picked} == set(done.task.days[0].requests.rider.tolist())
    assert all(row[4] == "" for row in rows if row[3] not in ("pickup", "dropoff"))
    assert "C1" not in (folder / "events.csv").read_text().replace(",", "\n").split()


def test_nothing_private_is_printed(settled):
    *_, done = settled
    assert repr(done) == "FleetSettlement(2 zones, private)"
    assert "200" not in repr(done.task) + repr(done.task.days[0]) + repr(done.task.days[0].trips)


def test_somebody_elses_fleet_is_applied_too(settled, tmp_path):
    place, data, release, *_ = settled
    (tmp_path / "mine.csv").write_text("zone,shuttles\neast,9\nwest,9\n")
    done = apply_fleet(tmp_path / "mine.csv", data, release, place)
    assert done.planned == (9, 9)
    assert done.to_dict()["external"]
    assert not done.checked
    assert "nobody checked" in done.summary()
    (tmp_path / "other.csv").write_text("zone,shuttles\nnorth,9\n")
    with pytest.raises(InputError, match="no line for zone"):
        apply_fleet(tmp_path / "other.csv", data, release, place)


def test_rides_of_a_zone_without_shuttles_are_unserved(settled, tmp_path):
    place, data, release, *_ = settled
    (tmp_path / "half.csv").write_text("zone,shuttles\neast,0\nwest,9\n")
    done = apply_fleet(tmp_path / "half.csv", data, release, place)
    requests = done.task.days[0].requests
    east = requests.zone == 1
    follows = (requests.after >= 0) & east[requests.after]
    assert done.unserved == (east | follows).sum() > 0
    assert "Unserved" in done.summary()
    (tmp_path / "none.csv").write_text("zone,shuttles\neast,0\nwest,0\n")
    nothing = apply_fleet(tmp_path / "none.csv", data, release, place)
    assert nothing.wait_seconds == nothing.idle_seconds == 0
    assert nothing.relative_error.shuttles == -1


def test_a_target_that_the_truth_cannot_meet_is_told(settled):
    place, data, release, key, plan, _ = settled
    hard = replace(plan, model=plan.model.model_copy(update={"max_wait_seconds": 1}))
    done = apply_fleet(hard, data, release, place, key, shuttle_hour=10)
    assert done.needed is None
    assert done.to_dict()["sized_on_truth"] is None
    assert done.relative_error.plain() == {"shuttles": None, "wait_seconds": None, "idle_seconds": None}
    assert "no fleet meets 1 s" in done.summary()


def test_zones_are_told_beside_the_target(settled, tmp_path):
    place, data, release, key, _, done = settled
    (run,) = done.task.operate(done.planned)
    requests = done.task.days[0].requests
    told = done.to_dict()["zones"]
    assert [zone["zone"] for zone in told] == ["west", "east"]
    for number, zone in enumerate(told):
        assert (zone["shuttles"], zone["needed"]) == (done.planned[number], done.needed[number])
        assert zone["wait_seconds"] == pytest.approx(run.waits[requests.zone == number].mean())
        assert zone["meets_target"] is bool(zone["wait_seconds"] <= WAIT)
    (tmp_path / "few.csv").write_text("zone,shuttles\neast,1\nwest,30\n")
    few = apply_fleet(tmp_path / "few.csv", data, release, place, key)
    assert few.meets_target == (True, False)
    text = few.summary()
    assert f"WARNING     1 zone misses the target of 180 s: east {few.zone_waits[1]:.0f} s" in text
    assert (few.wait_seconds > 180) == ("WARNING     true riders wait" in text)
    (tmp_path / "many.csv").write_text("zone,shuttles\neast,30\nwest,30\n")
    many = apply_fleet(tmp_path / "many.csv", data, release, place, key)
    assert many.meets_target == (True, True)
    assert "WARNING" not in many.summary()


def test_a_zone_whose_riders_are_not_served_misses_the_target(settled, tmp_path):
    place, data, release, *_ = settled
    (tmp_path / "none.csv").write_text("zone,shuttles\neast,0\nwest,30\n")
    done = apply_fleet(tmp_path / "none.csv", data, release, place)
    assert done.zone_waits[1] is None
    assert done.meets_target[1] is False
    assert "east (not all served)" in done.summary()
    assert sum(done.unserved_by_zone) == pytest.approx(done.unserved)


@pytest.mark.parametrize("cost", [-1, 1e308, float("inf"), float("nan")])
def test_costs_that_make_no_sense_are_refused(settled, cost):
    place, data, release, key, plan, _ = settled
    with pytest.raises(ParameterError, match="costs 0 or more, and at most"):
        apply_fleet(plan, data, release, place, key, shuttle_hour=cost)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"day": "x"}, "a day that the release does not tell apart. It has: all days"),
        ({"max_wait_seconds": 1e300}, "at most 86400"),
    ],
)
def test_plans_sized_for_something_else_are_refused(settled, change, words):
    place, data, release, key, plan, _ = settled
    with pytest.raises(ParameterError, match=words):
        apply_fleet(replace(plan, model=plan.model.model_copy(update=change)), data, release, place, key)


def test_a_plan_for_all_days_by_name_is_applied(settled):
    place, data, release, key, plan, done = settled
    named = apply_fleet(
        replace(plan, model=plan.model.model_copy(update={"day": "all days"})), data, release, place, key
    )
    assert named.zone_waits == done.zone_waits


def test_a_settlement_that_was_altered_is_refused(settled, tmp_path):
    *_, done = settled
    folder = done.write(tmp_path / "settlement")
    content = done.to_dict()
    for altered in ({"zones": [{}]}, {"zones": 3}, {"cost": {}}, {"wait_seconds": "x"}):
        (folder / "settlement.json").write_text(json.dumps({**content, **altered}))
        with pytest.raises(InputError, match="Apply the plan anew"):
            read_settlement(folder)


@pytest.mark.parametrize("change", [{"service": {"seats": 3}}, {"service": {"capacity": 0}}, {"day": [1]}])
def test_a_plan_that_does_not_say_how_shuttles_serve_is_refused(settled, tmp_path, change):
    *_, plan, _ = settled
    folder = plan.write(tmp_path / "plan")
    content = plan.to_dict()
    (folder / "plan.json").write_text(json.dumps({**content, "model": {**content["model"], **change}}))
    with pytest.raises(InputError, match=f"model.{next(iter(change))}"):
        FleetPlan.read(folder)


def test_parts_that_do_not_belong_together_are_refused(settled, tmp_path):
    place, data, release, key, plan, _ = settled
    with pytest.raises(ReleaseError, match="another release"):
        apply_fleet(replace(plan, release="0" * 64), data, release, place, key)
    with pytest.raises(ParameterError, match="another city"):
        apply_fleet(plan, data, release, replace(place, zones=1 - place.zones), key)
    with pytest.raises(ReleaseError, match="not made from these trips"):
        apply_fleet(plan, dn.load(trip_table(place, 6), policy_of(tmp_path, place)), release, place, key)
    with pytest.raises(ReleaseError, match="key belongs to another release"):
        apply_fleet(plan, data, release, place, replace(key, certificate_digest="1" * 64))
    with pytest.raises(ParameterError, match="costs 0 or more"):
        apply_fleet(plan, data, release, place, key, shuttle_hour=-1)
    with pytest.raises(ParameterError, match="lacks stops of the policy, such as 'S"):
        apply_fleet(
            FleetPlan(release="", zones=("west", "east"), shuttles=(3, 3), external=True),
            data,
            release,
            tiny_city(1, num=6),
        )


def test_each_date_is_a_day(tmp_path):
    place = tiny_city(1)
    policy = policy_of(tmp_path, place, dates=["2026-11-09", "2026-11-13"])
    data = dn.load(trip_table(place, 5, num=400, days=4), policy)
    release, key = publish(data)
    plan = size(release, place, max_wait=WAIT, expansions=2)
    done = apply_fleet(plan, data, release, place, key)
    assert [len(day.trips) for day in done.task.days] == [100, 100, 100, 100, 0]
    assert [day.label for day in done.task.days][:2] == ["2026-11-09", "2026-11-10"]
    assert (done.demand.trips, done.events.column_names[-1]) == (80, "day")
    assert set(done.events.column("day").to_pylist()) >= {"2026-11-09", "2026-11-12"}


def test_labelled_days_and_one_day_alone(tmp_path):
    place = tiny_city(1)
    policy = policy_of(tmp_path, place, day="date", dates=["2026-11-09", "2026-11-12"])
    data = dn.load(trip_table(place, 5, num=400, days=4), policy)
    release, key = publish(data)
    done = apply_fleet(size(release, place, max_wait=WAIT, expansions=2), data, release, place, key)
    assert [len(day.trips) for day in done.task.days] == [100] * 4
    alone = size(release, place, max_wait=WAIT, expansions=2, day="2026-11-10")
    (day,) = apply_fleet(alone, data, release, place, key).task.days
    assert len(day.trips) == 100


def test_counts_are_expanded_as_released_ones_are(tmp_path):
    place = tiny_city(1)
    rows = trip_table(place, 5).drop_columns(["card"]).append_column("trips", pa.array([2] * 200))
    data = dn.load(rows, policy_of(tmp_path, place, count=True))
    release, key = publish(data)
    plan = size(release, place, max_wait=WAIT, expansions=3)
    done = apply_fleet(plan, data, release, place, key)
    assert [len(day.trips) for day in done.task.days] == [400] * 3
    assert done.demand.trips == pytest.approx(400)


def test_times_without_dates_are_spread_over_the_dates(tmp_path):
    place = tiny_city(1)
    table = trip_table(place, 5, num=400)
    bare = table.set_column(3, "at", pa.array([text[11:] for text in table.column("at").to_pylist()]))
    data = dn.load(bare, policy_of(tmp_path, place, dates=["2026-11-09", "2026-11-12"]))
    release, key = publish(data)
    done = apply_fleet(size(release, place, max_wait=WAIT, expansions=2), data, release, place, key)
    assert 40 < done.demand.trips < 160


def test_nobody_travelled(tmp_path):
    place = tiny_city(1)
    data = dn.load(trip_table(place, 5).slice(0, 0), policy_of(tmp_path, place))
    release, key = publish(data)
    plan = FleetPlan(release="", zones=("west", "east"), shuttles=(2, 0), external=True)
    done = apply_fleet(plan, data, release, place, key)
    assert (done.needed, done.wait_seconds, done.idle_seconds) == ((0, 0), 0, 7200)
    assert done.relative_error.shuttles is None
    done.write(tmp_path / "settlement")
    assert Ground.of(place).zones == done.zones
