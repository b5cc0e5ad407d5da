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
from dunnage.showing.fleets import settlement_page

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


def test_errors_are_those_against_the_fleet_that_the_truth_needs(settled):
    place, *_, plan, done = settled
    (day,) = done.task.days
    expected = some_trips(200, len(place.stops), 5)  # true trips keep their seconds
    assert np.array_equal(day.trips.seconds, expected.seconds)
    assert np.array_equal(day.trips.origin, expected.origin)
    told = done.to_dict()
    truth = told["sized_on_truth"]
    assert truth["wait_seconds"] <= WAIT
    for name in ("shuttles", "wait_seconds", "idle_seconds"):
        assert told["relative_error"][name] == pytest.approx((told[name] - truth[name]) / truth[name])
    assert told["wait_seconds"] == pytest.approx(told["operation"]["wait_seconds"]["mean"])
    assert 0 < told["idle_seconds"] < 3 * 3600
    assert (told["shuttles"], told["unserved"], told["checked"]) == (plan.objective, 0, True)
    needed = sum(done.needed)
    assert done.cost.plain() == {
        "per_shuttle_hour": 40,
        "hours_a_day": 2.0,
        "planned_per_day": plan.objective * 80,
        "needed_per_day": needed * 80,
        "difference_per_day": (plan.objective - needed) * 80,
    }


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
    assert "200" not in repr(done.task) + repr(done.task.days[0]) + repr(done.task.days[0].trips)


def test_somebody_elses_fleet_is_applied_too(settled, tmp_path):
    place, data, release, *_ = settled

    def applied(*lines):
        (tmp_path / "mine.csv").write_text("\n".join(["zone,shuttles", *lines]) + "\n")
        return apply_fleet(tmp_path / "mine.csv", data, release, place)

    done = applied("east,9", "west,9")
    assert (done.planned, done.to_dict()["external"], done.checked) == ((9, 9), True, False)
    with pytest.raises(InputError):
        applied("north,9")
    # Rides of a zone without shuttles are not served, and that zone misses the target.
    done = applied("east,0", "west,30")
    requests = done.task.days[0].requests
    east = requests.zone == 1
    follows = (requests.after >= 0) & east[requests.after]
    assert done.unserved == (east | follows).sum() > 0
    assert (done.zone_waits[1], done.meets_target[1]) == (None, False)
    assert sum(done.unserved_by_zone) == pytest.approx(done.unserved)
    nothing = applied("east,0", "west,0")
    assert nothing.wait_seconds == nothing.idle_seconds == 0
    assert nothing.relative_error.shuttles == -1
    few, many = applied("east,1", "west,30"), applied("east,30", "west,30")
    assert (few.meets_target, many.meets_target) == ((True, False), (True, True))
    assert f"{few.zone_waits[1]:.0f} s" in few.summary()
    assert ("WARNING" in few.summary(), "WARNING" in many.summary()) == (True, False)


def test_a_target_that_the_truth_cannot_meet_and_zones_beside_it_are_told(settled):
    place, data, release, key, plan, done = settled
    hard = replace(plan, model=plan.model.model_copy(update={"max_wait_seconds": 0.01}))
    missed = apply_fleet(hard, data, release, place, key, shuttle_hour=10)
    assert (missed.needed, missed.to_dict()["sized_on_truth"]) == (None, None)
    assert missed.relative_error.plain() == {"shuttles": None, "wait_seconds": None, "idle_seconds": None}
    assert missed.summary()
    (zone, *_) = missed.to_dict()["reach"]  # the owner sees what can be reached
    assert 0.01 < zone["wait_seconds"] <= zone["near_seconds"]
    assert zone["shuttles"] <= zone["most"]
    assert settlement_page(missed, release)
    (run,) = done.served.operate(done.planned)
    requests = done.task.days[0].requests
    told = done.to_dict()["zones"]
    assert [zone["zone"] for zone in told] == ["west", "east"]
    for number, zone in enumerate(told):
        assert (zone["shuttles"], zone["needed"]) == (done.planned[number], done.needed[number])
        assert zone["wait_seconds"] == pytest.approx(run.waits[requests.zone == number].mean())
        assert zone["meets_target"] is bool(zone["wait_seconds"] <= WAIT)


def test_parts_that_do_not_belong_together_are_refused(settled, tmp_path):
    place, data, release, key, plan, done = settled

    def sized_for(**change):
        return replace(plan, model=plan.model.model_copy(update=change))

    named = apply_fleet(sized_for(day="all days"), data, release, place, key)
    assert named.zone_waits == done.zone_waits
    other = dn.load(trip_table(place, 6), policy_of(tmp_path, place))
    theirs = FleetPlan(release="", zones=("west", "east"), shuttles=(3, 3), external=True)
    for error, fact, arguments in (
        (ReleaseError, None, (replace(plan, release="0" * 64), data, release, place, key)),
        (ParameterError, None, (plan, data, release, replace(place, zones=1 - place.zones), key)),
        (ReleaseError, None, (plan, other, release, place, key)),
        (ReleaseError, None, (plan, data, release, place, replace(key, certificate_digest="1" * 64))),
        (ParameterError, "'S", (theirs, data, release, tiny_city(1, num=6))),
        (ParameterError, "all days", (sized_for(day="x"), data, release, place, key)),
        (ParameterError, "86400", (sized_for(max_wait_seconds=1e300), data, release, place, key)),
    ):
        with pytest.raises(error, match=fact):
            apply_fleet(*arguments)
    for cost in (-1, 1e308, float("inf"), float("nan")):
        with pytest.raises(ParameterError):
            apply_fleet(plan, data, release, place, key, shuttle_hour=cost)


def test_settlements_and_plans_that_were_altered_are_refused(settled, tmp_path):
    *_, plan, done = settled
    folder, content = done.write(tmp_path / "settlement"), done.to_dict()
    for altered in ({"zones": [{}]}, {"zones": 3}, {"cost": {}}, {"wait_seconds": "x"}):
        (folder / "settlement.json").write_text(json.dumps({**content, **altered}))
        with pytest.raises(InputError):
            read_settlement(folder)
    folder, content = plan.write(tmp_path / "plan"), plan.to_dict()
    for change in ({"service": {"seats": 3}}, {"service": {"capacity": 0}}, {"day": [1]}):
        (folder / "plan.json").write_text(json.dumps({**content, "model": {**content["model"], **change}}))
        with pytest.raises(InputError, match=f"model.{next(iter(change))}"):
            FleetPlan.read(folder)


def published(folder, rows, **policy):
    place = tiny_city(1)
    data = dn.load(rows, policy_of(folder, place, **policy))
    release, key = publish(data)
    return place, data, release, key


def test_each_date_is_a_day(tmp_path):
    rows = trip_table(tiny_city(1), 5, num=400, days=4)
    place, data, release, key = published(tmp_path, rows, dates=["2026-11-09", "2026-11-13"])
    done = apply_fleet(size(release, place, max_wait=WAIT, expansions=2), data, release, place, key)
    assert [len(day.trips) for day in done.task.days] == [100, 100, 100, 100, 0]
    assert [day.label for day in done.task.days][:2] == ["2026-11-09", "2026-11-10"]
    assert (done.demand.trips, done.events.column_names[-1]) == (80, "day")
    assert set(done.events.column("day").to_pylist()) >= {"2026-11-09", "2026-11-12"}
    place, data, release, key = published(tmp_path, rows, day="date", dates=["2026-11-09", "2026-11-12"])
    done = apply_fleet(size(release, place, max_wait=WAIT, expansions=2), data, release, place, key)
    assert [len(day.trips) for day in done.task.days] == [100] * 4
    alone = size(release, place, max_wait=WAIT, expansions=2, day="2026-11-10")
    (day,) = apply_fleet(alone, data, release, place, key).task.days
    assert len(day.trips) == 100
    # Times without dates are spread over the dates.
    table = trip_table(place, 5, num=400)
    bare = table.set_column(3, "at", pa.array([text[11:] for text in table.column("at").to_pylist()]))
    place, data, release, key = published(tmp_path, bare, dates=["2026-11-09", "2026-11-12"])
    done = apply_fleet(size(release, place, max_wait=WAIT, expansions=2), data, release, place, key)
    assert 40 < done.demand.trips < 160


def test_counts_are_expanded_as_released_ones_are_and_nobody_may_travel(tmp_path):
    rows = trip_table(tiny_city(1), 5)
    counted = rows.drop_columns(["card"]).append_column("trips", pa.array([2] * 200))
    place, data, release, key = published(tmp_path, counted, count=True)
    done = apply_fleet(size(release, place, max_wait=WAIT, expansions=3), data, release, place, key)
    assert [len(day.trips) for day in done.task.days] == [400] * 3
    assert done.demand.trips == pytest.approx(400)
    place, data, release, key = published(tmp_path, rows.slice(0, 0))
    plan = FleetPlan(release="", zones=("west", "east"), shuttles=(2, 0), external=True)
    done = apply_fleet(plan, data, release, place, key)
    assert (done.needed, done.wait_seconds, done.idle_seconds) == ((0, 0), 0, 7200)
    assert done.relative_error.shuttles is None
    done.write(tmp_path / "settlement")
    assert Ground.of(place).zones == done.zones
