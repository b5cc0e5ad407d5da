# SPDX-License-Identifier: Apache-2.0
"""The number of dates of a release is stated, kept and used; bounds on riders' trips are chosen with a preview."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.builders import RIDERS, a_trip_policy, trips
from tests.certificates_help import verified, with_body
from tests.commands import fine, run
from tests.fleet_help import policy_of, some_trips, tiny_city, trip_rows
from tests.refusals import refusal

import dunnage as dn
from dunnage.errors import ParameterError, PolicyError
from dunnage.planning.fleet import size
from dunnage.planning.plan import FleetPlan
from dunnage.publishing import owner_warnings
from dunnage.settle.fleets import apply_fleet
from dunnage.tables.dataset import drafted, dropped_shares

COUNTS = {"name": "noisy-counts", "epsilon": 8}
WEEK = {"dates": ["2026-11-09", "2026-11-15"]}
EVERY_DAY = {"monday": 2, "tuesday": 2, "wednesday": 2, "thursday": 1, "friday": 1, "saturday": 1, "sunday": 1}


def dates_of(time: dict[str, Any] | None = None, period: str | None = None, **expect: Any) -> tuple[int, ...]:
    more = {"period": {"length": "month", "column": "at"}} if period else {}
    return a_trip_policy(COUNTS, time, expect=expect, **more).schema.num_dates(period)


def five_days(folder: Path, **expect: Any) -> tuple[Any, dn.Dataset, dn.Publication]:
    """Publish five equal days of trips in the tiny city."""
    place = tiny_city(1)
    one = trip_rows(place, some_trips(120, len(place.stops), 5))
    days = [
        one.set_column(3, "at", pa.array([text.replace("-09T", f"-{day:02d}T") for text in one["at"].to_pylist()]))
        for day in range(9, 14)
    ]
    document = {**policy_of(folder, place).document, "expect": expect}
    data = dn.load(pa.concat_tables(days), dn.Policy.from_dict(document, path=folder / "p.toml"))
    return place, data, dn.publish(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise(seed=3))


def test_the_number_of_dates_is_stated_or_follows_from_the_calendar():
    assert dates_of() == ()
    assert dates_of(dates=5) == (5,)
    assert dates_of(WEEK) == (7,)
    assert dates_of(WEEK, dates=5) == (5,)  # a service that runs on working days
    assert dates_of(period="2026-11") == (30,)
    assert dates_of({**WEEK, "day": "day-type"}) == (5, 1, 1)
    assert dates_of({**WEEK, "day": "day-type"}, dates=7) == (5, 1, 1)
    assert dates_of({"day": "weekday"}, days=EVERY_DAY) == (2, 2, 2, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("time", "expect", "where"),
    [
        ({}, {"dates": 0}, "expect"),
        (WEEK, {"dates": 8}, "expect.dates"),
        ({"day": "weekday"}, {"dates": 7}, "expect.dates"),
        ({**WEEK, "day": "day-type"}, {"dates": 6}, "expect.dates"),
        ({**WEEK, "day": "day-type"}, {"days": {"weekday": 4, "saturday": 1, "sunday": 1}}, "expect.days"),
        ({"day": "weekday"}, {"days": {"monday": 1}}, "expect.days"),
        ({"day": "weekday"}, {"days": {**EVERY_DAY, "holiday": 1}}, "expect.days"),
        ({}, {"days": {"monday": 1}}, "expect.days"),
    ],
)
def test_impossible_numbers_of_dates_are_refused(time, expect, where):
    (problem,) = refusal(PolicyError, a_trip_policy, COUNTS, time, expect=expect).problems
    assert problem.where == where


def test_a_release_keeps_its_dates_and_verify_checks_them(tmp_path):
    for expect, num in (({"dates": 5}, [5]), ({}, None)):
        data = dn.load(trips(), a_trip_policy(COUNTS, expect=expect))
        release = dn.publish(data, out=tmp_path / str(num), ledger=dn.Ledger(":memory:")).release
        assert release.attributes["window"].num_dates == num
        assert dn.Release.read(tmp_path / str(num)).universe.num_dates == tuple(num or ())
        assert dn.verify(tmp_path / str(num)).ok
    release = dn.publish(dn.load(trips(), a_trip_policy(COUNTS, WEEK)), ledger=dn.Ledger(":memory:")).release
    for num in ([8], [0], [1, 1], None):  # more than the calendar has, none, too many, and not stated

        def forge(body: dict[str, Any], num: list[int] | None = num) -> None:
            body["attributes"][-1]["num_dates"] = num
            if num is None:
                del body["attributes"][-1]["num_dates"]

        assert not verified(with_body(release, forge), tmp_path / f"forged {num}").ok


def test_five_days_of_taps_are_sized_as_an_average_day(tmp_path):
    place, data, (release, key) = five_days(tmp_path, dates=5)
    plan = size(release, place, max_wait=300, expansions=2)
    assert 80 <= plan.demand.trips <= 190  # 120 a day, and noise; not 600
    assert any("average day" in sentence for sentence in plan.assumed)
    done = apply_fleet(plan, data, release, place, key)
    assert [day.weight for day in done.task.days] == [1.0] * 5
    assert done.demand.trips == 120


def test_sizing_refuses_to_guess_the_dates(tmp_path):
    place, data, (release, key) = five_days(tmp_path)
    assert "--dates" in str(refusal(ParameterError, size, release, place))
    for wrong in (0, {"monday": 5}):
        refusal(ParameterError, size, release, place, dates=wrong)
    plan = size(release, place, max_wait=300, expansions=2, dates=5)
    read = FleetPlan.read(plan.write(tmp_path / "plan"))
    assert read.model.dates == 5
    assert apply_fleet(read, data, release, place, key).demand.trips == 120
    # A plan of an earlier version took all trips for one day; the truth is shown date by date.
    old = json.loads((tmp_path / "plan" / "plan.json").read_text())
    del old["model"]["dates"]
    (tmp_path / "plan" / "plan.json").write_text(json.dumps(old))
    assert apply_fleet(FleetPlan.read(tmp_path / "plan"), data, release, place, key).demand.trips == 120
    stated = five_days(tmp_path, dates=5)[2].release
    refusal(ParameterError, size, stated, place, dates=4)


def test_days_that_are_counted_separately_need_a_number_each(tmp_path):
    data = dn.load(trips(), a_trip_policy(COUNTS, {"day": "day-type"}))
    release = dn.publish(data, ledger=dn.Ledger(":memory:")).release
    place = dn.City(stops=tuple(f"S{i}" for i in range(5)), lat=np.arange(5) / 100, lon=np.zeros(5)).with_zones(1)
    assert "saturday=N" in str(refusal(ParameterError, size, release, place))
    refusal(ParameterError, size, release, place, dates=5)
    plan = size(release, place, max_wait=3000, expansions=1, dates={"weekday": 5, "saturday": 1, "sunday": 1})
    assert plan.model.dates == {"weekday": 5, "saturday": 1, "sunday": 1}


def test_owners_are_told_of_dates_that_are_missing_or_wrong():
    def words(**expect: Any) -> str:
        return " ".join(owner_warnings(dn.load(trips(), a_trip_policy(COUNTS, expect=expect))))

    assert "[expect] dates" in words()
    assert "7 dates" in words(dates=5)
    assert "date" not in words(dates=7)


def rider_trips(sizes: list[int]) -> pa.Table:
    cards = [f"C{rider}" for rider, num in enumerate(sizes) for _ in range(num)]
    many = {"from": ["S0"] * len(cards), "to": ["S1"] * len(cards), "at": ["2026-11-09T08:10"] * len(cards)}
    return pa.table({"card": cards, **many})


def test_a_dry_run_shows_the_owner_what_each_bound_drops():
    sizes = random.Random(4).choices(range(1, 12), k=40)
    data = dn.load(rider_trips(sizes), a_trip_policy(COUNTS, **RIDERS, expect={"dates": 1}))
    run = dn.rehearse(data, ledger=dn.Ledger(":memory:"))
    table = {row["max"]: row["dropped_share"] for row in run.foresight.to_dict()["trips_dropped"]}
    for bound, share in table.items():  # one by one
        assert share == pytest.approx(sum(max(0, num - bound) for num in sizes) / sum(sizes))
    assert list(table) == [1, 2, 3, 5, 10, 20]
    assert table[20] == 0
    assert any("max = 2" in warning for warning in run.foresight.warnings)
    release = dn.publish(data, ledger=dn.Ledger(":memory:")).release
    assert "dropped" not in json.dumps(release.certificate.plain())
    assert dropped_shares(np.zeros(0, dtype=np.int64)) == {1: 0.0}


def test_a_bound_a_day_is_previewed_by_rider_and_day():
    riders = {"protects": "rider", "contribution": {"person": "card", "max": 1, "per": "day"}}
    table = pa.concat_tables([rider_trips([2, 1]), rider_trips([1, 1])])
    days = pa.array(["2026-11-09T08:10"] * 3 + ["2026-11-10T08:10"] * 2)
    data = dn.load(table.set_column(3, "at", days), a_trip_policy(COUNTS, WEEK, **riders))
    details = dn.rehearse(data, ledger=dn.Ledger(":memory:")).foresight.to_dict()
    assert details["trips_dropped"] == [{"max": 1, "dropped_share": 0.2}, {"max": 2, "dropped_share": 0.0}]


def test_a_draft_tells_only_the_owner_about_riders_and_dates(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"C{i % 3},A,B,2026-11-{9 + i % 5:02d}T08:{i:02d}\n" for i in range(15))
    Path("taps.csv").write_text("card,from_stop,to_stop,tap_in\n" + rows)
    text, remarks = drafted("taps.csv")
    assert any("5: 0 %" in remark for remark in remarks)
    assert any("5 dates" in remark for remark in remarks)
    assert "max = 2" not in text
    assert not any(remark in text for remark in remarks)
    assert all(remark in run("draft taps.csv -o p.toml --force").out for remark in remarks)
    assert fine("draft taps.csv -o q.toml")["owner"]["remarks"] == list(remarks)
    assert Path("p.toml").read_text() == text


def test_the_command_takes_dates(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    five_days(tmp_path)[2].write("release")
    for given in ("", "--dates five", "--dates 5 --dates 4", "--dates monday=5"):
        run(f"size release --city city --max-wait 300 --expansions 1 {given} -o plan").refused("dates")
    told = fine("size release --city city --max-wait 300 --expansions 1 --dates 5 -o plan")
    assert told["model"]["dates"] == 5
    assert 80 <= told["demand"]["trips"] <= 190
