# SPDX-License-Identifier: Apache-2.0
"""Trips from taps: on a small feed that can be followed by hand, and on a real one with hidden destinations."""

from __future__ import annotations

import csv
import json
import random
from datetime import date
from pathlib import Path

import pytest
from benchmarks.taps import measure
from tests.commands import fine, run
from tests.refusals import refusal

import dunnage as dn
from dunnage.errors import InputError, ParameterError
from dunnage.tables.gtfs import feed_rides
from dunnage.tables.taps import NEXT, NEXT_DAY, RETURN, TapSetting, infer_trips

# Stops a km apart from west to east (A1 ... A5), each with its twin across the street for the way back (B1 ... B5), and
# line 2 from C3, near A3, to the north.
STOPS = {
    **{f"A{n}": (0.0, 0.009 * n) for n in range(1, 6)},
    **{f"B{n}": (0.0003, 0.009 * n) for n in range(1, 6)},
    "C3": (0.001, 0.027),
    "C4": (0.02, 0.027),
    "D4": (0.0203, 0.027),
    "D3": (0.0013, 0.027),
    "far": (1.0, 1.0),
}
LINES = {"east": ["A1", "A2", "A3", "A4", "A5"], "west": ["B5", "B4", "B3", "B2", "B1"]}
LINES |= {"north": ["C3", "C4"], "south": ["D4", "D3"]}
ROUTES = {"east": "1", "west": "1", "north": "2", "south": "2"}


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    """Every line runs each hour, and takes five minutes from stop to stop."""
    folder = tmp_path / "feed"
    folder.mkdir()

    def write(name: str, header: str, rows: list[str]) -> None:
        (folder / f"{name}.txt").write_text("\n".join([header, *rows]) + "\n")

    write("stops", "stop_id,stop_lat,stop_lon", [f"{name},{lat},{lon}" for name, (lat, lon) in STOPS.items()])
    trips = [(f"{line}{hour}", line, hour) for line in LINES for hour in range(5, 24)]
    write("trips", "trip_id,service_id,route_id", [f"{trip},all,{ROUTES[line]}" for trip, line, _ in trips])
    times = [
        f"{trip},{stop},{n},{hour:02}:{5 * n:02}:00,{hour:02}:{5 * n:02}:00"
        for trip, line, hour in trips
        for n, stop in enumerate(LINES[line])
    ]
    write("stop_times", "trip_id,stop_id,stop_sequence,arrival_time,departure_time", times)
    days = "monday,tuesday,wednesday,thursday,friday,saturday,sunday"
    write("calendar", f"service_id,start_date,end_date,{days}", ["all,20260101,20261231,1,1,1,1,1,1,1"])
    return folder


def taps_of(tmp_path: Path, *taps: str, header: str = "card,stop,time") -> Path:
    path = tmp_path / "taps.csv"
    path.write_text("\n".join([header, *taps]) + "\n")
    return path


def trips(path: Path, feed: Path, **changes: float) -> list[tuple[str, str, str, int]]:
    found = infer_trips(path, feed_rides(feed), TapSetting(**changes))
    return [(row["card"], row["origin"], row["destination"], row["legs"]) for row in found.table.to_pylist()]


def test_there_and_back(tmp_path, feed):
    taps = ["x,A1,2026-11-02 08:00:00", "x,B4,2026-11-02 17:05:00"]
    assert trips(taps_of(tmp_path, *taps), feed) == [("x", "A1", "A4", 1), ("x", "B4", "B1", 1)]
    found = infer_trips(taps_of(tmp_path, *taps), feed_rides(feed))
    assert found.rules == {NEXT: 1, RETURN: 1, NEXT_DAY: 0}
    assert (found.not_inferred, repr(found)) == (0, "InferredTrips(private)")


def test_changes_join_rides_unless_they_take_long_or_lead_back(tmp_path, feed):
    change = ["x,A1,2026-11-02 08:00:00", "x,C3,2026-11-02 08:30:00", "x,D4,2026-11-02 17:00:00"]
    change += ["x,B3,2026-11-02 17:10:00"]
    assert trips(taps_of(tmp_path, *change), feed) == [("x", "A1", "C4", 2), ("x", "D4", "B1", 2)]
    apart = [("x", "A1", "A3", 1), ("x", "C3", "C4", 1), ("x", "D4", "D3", 1), ("x", "B3", "B1", 1)]
    assert trips(taps_of(tmp_path, *change), feed, transfer_minutes=2) == apart
    # Back after ten minutes: an errand, not a change
    errand = ["x,A1,2026-11-02 08:00:00", "x,B4,2026-11-02 08:25:00"]
    assert trips(taps_of(tmp_path, *errand), feed) == [("x", "A1", "A4", 1), ("x", "B4", "B1", 1)]


def test_the_next_day_tells_where_a_single_ride_ended(tmp_path, feed):
    single = ["x,A1,2026-11-02 08:00:00", "x,B5,2026-11-03 08:00:00"]
    assert trips(taps_of(tmp_path, *single), feed) == [("x", "A1", "A5", 1)]
    assert trips(taps_of(tmp_path, *single), feed, days_ahead=0) == []
    late = ["x,A1,2026-11-02 23:00:00", "x,B5,2026-11-03 01:00:00"]  # one service day
    assert trips(taps_of(tmp_path, *late), feed) == [("x", "A1", "A5", 1), ("x", "B5", "B1", 1)]


def test_what_cannot_be_inferred_is_left_out_and_counted(tmp_path, feed):
    taps = [
        "same,A1,2026-11-02 08:00:00",  # boards twice at the same stop
        "same,A1,2026-11-02 17:00:00",
        "gone,A1,2026-11-02 08:00:00",  # goes on from a place that no line reaches
        "gone,far,2026-11-02 17:00:00",
        "once,A1,2026-11-02 08:00:00",
        "lost,nowhere,2026-11-02 08:00:00",
        "lost,A2,2026-11-02 09:00:00",
    ]
    found = infer_trips(taps_of(tmp_path, *taps), feed_rides(feed))
    assert (found.table.num_rows, found.trips, found.not_inferred, found.unknown_stops) == (0, 7, 1.0, 1)
    assert trips(taps_of(tmp_path, "a,A1,2026-11-02 08:00", "a,B5,2026-11-02 09:00"), feed, walk_km=0.01) == []


def test_a_route_narrows_where_one_can_get_off(tmp_path, feed):
    header = "card,stop,time,route"
    for route, num in (("1", 1), ("2", 0), ("", 1)):
        path = taps_of(tmp_path, f"x,A1,2026-11-02 08:00,{route}", "x,B5,2026-11-02 18:00,1", header=header)
        found = infer_trips(path, feed_rides(feed), TapSetting(route="route"))
        assert found.rules[NEXT] == num


def test_trips_follow_from_the_taps_of_one_card_alone(tmp_path, feed):
    """Taps of others change nothing, and each tap is in one trip at most: bounds of riders hold."""
    generator = random.Random(5)
    places = [name for name in STOPS if name != "far"]
    taps = [
        f"c{generator.randrange(12)},{generator.choice(places)},2026-11-{generator.randint(2, 8):02} "
        f"{generator.randint(5, 23):02}:{generator.randrange(60):02}:00"
        for _ in range(300)
    ]
    together = trips(taps_of(tmp_path, *taps), feed)
    for card in ("c0", "c7"):
        own = [tap for tap in taps if tap.startswith(f"{card},")]
        alone = trips(taps_of(tmp_path, *own), feed)
        assert sorted(alone) == sorted(trip for trip in together if trip[0] == card)
        assert sum(trip[3] for trip in alone) <= len(own)
    assert sorted(together) == sorted(trips(taps_of(tmp_path, *taps[::-1]), feed)), "in any order of rows"


def test_the_command_and_what_it_refuses(tmp_path, feed, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = taps_of(tmp_path, "x,A1,2026-11-02 08:00:00", "x,B4,2026-11-02 17:05:00")
    owner = fine("taps", str(path), "--gtfs", "feed", "-o", "trips.csv")["owner"]
    assert (owner["trips"], owner["inferred"], owner["not_inferred"]) == (2, 2, 0)
    assert (tmp_path / "trips.csv").stat().st_mode & 0o777 == 0o600
    with (tmp_path / "trips.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert rows[0] == {
        "card": "x",
        "origin": "A1",
        "destination": "A4",
        "time": "2026-11-02 08:00:00",
        "legs": "1",
    }
    run("taps", str(path), "--gtfs", "feed", "-o", "trips.csv").refused("exists")
    run("taps", str(path), "--gtfs", "feed", "-o", "x.csv", "--card", "who").refused("who")
    run("taps", str(path), "--gtfs", "nowhere", "-o", "x.csv").refused("nowhere")
    run("taps", str(path), "--gtfs", "feed", "-o", "x.csv", "--walk", "99").refused("walk_km")
    wrong = taps_of(tmp_path, "SECRET,A1,yesterday", ",A1,2026-11-02 08:00")
    message = str(refusal(InputError, infer_trips, wrong, feed_rides(feed)))
    assert "SECRET" not in message
    assert "row 1" in message
    assert "row 2" in message
    refusal(ParameterError, TapSetting, transfer_minutes=-1)
    assert not (tmp_path / "x.csv").exists()


def test_counts_of_inferred_trips_keep_the_bound_of_riders(tmp_path, feed, monkeypatch):
    monkeypatch.chdir(tmp_path)
    taps = [
        tap
        for card in range(40)
        for tap in (f"c{card},A{card % 4 + 1},2026-11-02 08:00:00", f"c{card},B5,2026-11-02 17:00:00")
    ]
    fine("taps", str(taps_of(tmp_path, *taps)), "--gtfs", "feed", "-o", "trips.csv")
    (tmp_path / "stops.csv").write_text("stop\n" + "\n".join(STOPS) + "\n")
    policy = {
        "dataset": "trips",
        "protects": "rider",
        "attributes": {
            "card": {"role": "identifier"},
            "origin": {"role": "quasi-identifier", "kind": "stop"},
            "destination": {"role": "quasi-identifier", "kind": "stop"},
            "time": {
                "role": "quasi-identifier",
                "kind": "time",
                "domain": ["05:00", "24:00"],
                "window_minutes": 60,
                "zone": "Europe/Madrid",
            },
            "legs": {"role": "drop"},
        },
        "city": {"stops": "stops.csv"},
        "trip": {"origin": "origin", "destination": "destination", "time": "time"},
        "contribution": {"person": "card", "max": 2, "per": "period"},
        "mechanism": {"name": "noisy-counts", "epsilon": 2},
    }
    data = dn.load("trips.csv", dn.Policy.from_dict(policy, path=tmp_path / "trips.toml"))
    release = dn.publish(data, ledger=dn.Ledger(":memory:")).release
    assert release.certificate.guarantee.protects == "rider"
    assert release.certificate.counts.contribution.max == 2


@pytest.mark.data
def test_on_a_real_feed_with_hidden_destinations_most_are_right(data_folder):
    path = data_folder / "cairns_gtfs" / "cairns_gtfs.zip"
    if not path.exists():
        pytest.skip("the feed is not here")
    found = measure(path, date(2014, 6, 2), 3, 8, seed=3)
    assert found["taps: within 400 m"] > 0.5, json.dumps(found)
    for simpler in ("nearest stop", "next boarding itself"):
        assert found["taps: right stop"] > 2 * found[f"{simpler}: right stop"]
        assert found["taps: within 400 m"] > 1.5 * found[f"{simpler}: within 400 m"]
