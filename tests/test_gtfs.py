# SPDX-License-Identifier: Apache-2.0
"""Cities from GTFS feeds: a small feed built here with everything that feeds have, broken ones, and a real one."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from datetime import date
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from dunnage.errors import DunnageError, OutputError, ParameterError
from dunnage.model.city import City
from dunnage.model.routes import find_routes
from dunnage.tables import gtfs
from dunnage.tables.gtfs import FeedSetting, feed_city, generate_feed_city, load_city

STOPS = '''stop_id,stop_name,stop_lat,stop_lon,zone_id,location_type,parent_station
A,"Main St, ""north""",42.00,-83.00,z1,,
B,Žižkov,42.01,-83.00,z1,0,
P1,Platform 1,42.0201,-83.00,z2,0,S
P2,Platform 2,42.0199,-83.00,z2,0,S
S,Station,,,z2,1,
E,Entrance,42.02,-83.00,z2,2,S
D,Far end,42.05,-83.00,z2,0,
R,Retired,42.06,-83.00,z2,0,
'''
TRIPS = """route_id,service_id,trip_id
r1,week,t1
r1,week,t2
r1,week,t3
r2,week,back1
r2,week,back2
r1,sunday,s1
r1,week,single
"""
TIMES = """trip_id,arrival_time,departure_time,stop_id,stop_sequence
t1,08:00:00,08:00:00,A,1
t1,,,B,2
t1,08:10:00,08:11:00,P1,5
t1,08:30:00,08:30:00,D,9
t2,8:20:00,8:20:00,A,1
t2,8:25:00,8:25:00,B,2
t2,8:32:00,8:33:00,P1,5
t2,8:50:00,8:50:00,D,9
t3,24:40:00,24:40:00,A,1
t3,24:45:00,24:45:00,B,2
t3,24:54:00,24:55:00,P1,5
t3,25:15:00,25:15:00,D,9
back1,09:00:00,09:00:00,D,1
back1,09:20:00,09:20:00,P2,2
back2,09:30:00,09:30:00,D,1
back2,09:52:00,09:52:00,P2,2
s1,10:00:00,10:00:00,A,1
s1,10:10:00,10:10:00,D,2
single,07:00:00,07:00:00,A,1
"""
CALENDAR = """service_id,monday,tuesday,wednesday,thursday,friday,saturday,sunday,start_date,end_date
week,1,1,1,1,1,0,0,20261101,20261130
sunday,0,0,0,0,0,0,1,20261101,20261130
"""
DATES = """service_id,date,exception_type
week,20261111,2
sunday,20261111,1
week,20261112,2
"""
FEED = {"stops": STOPS, "trips": TRIPS, "stop_times": TIMES, "calendar": CALENDAR, "calendar_dates": DATES}
ALL_HUBS = {"hubs": ["A", "S", "D"], "zones": 1, "max_headway_seconds": 86_400}


def feed(tmp_path: Path, **changes: str | None) -> Path:
    place = tmp_path / "feed"
    place.mkdir(exist_ok=True)
    for name, text in {**FEED, **changes}.items():
        if text is None:
            (place / f"{name}.txt").unlink(missing_ok=True)
        else:
            (place / f"{name}.txt").write_text(text, encoding="utf-8")
    return place


def zipped(path: Path, files: dict[str, str | bytes], **options) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def rides(city: City) -> dict[tuple[str, str], tuple[int, int]]:
    columns = (city.buses.origins, city.buses.destinations, city.buses.seconds, city.buses.headway_seconds)
    return {
        (city.stops[start], city.stops[end]): (seconds, headway)
        for start, end, seconds, headway in zip(*(column.tolist() for column in columns), strict=True)
    }


def refused(path: Path, *facts: str, **asked) -> None:
    """Check that a feed is refused with a message that has these facts: files, lines, columns, names, dates."""
    with pytest.raises(DunnageError) as caught:
        load_city(path, **asked)
    assert [fact for fact in facts if fact not in str(caught.value)] == [], str(caught.value)


def assumes(city: City, fact: str) -> bool:
    return any(fact in said for said in city.assumed)


def test_stops_and_rides_between_hubs_are_those_of_the_timetable(tmp_path):
    city = load_city(feed(tmp_path), **ALL_HUBS)
    assert city.stops == ("A", "B", "S", "D")  # platforms are their station, and R is retired
    assert (city.lat[2], city.hubs.tolist()) == (pytest.approx(42.02), [True, False, True, True])
    span = 24 * 60 + 40 - 8 * 60  # minutes between the first and the last of three
    assert rides(city) == {
        ("A", "S"): (12 * 60, span * 30),
        ("A", "D"): (30 * 60, span * 30),
        ("S", "D"): (19 * 60, (24 * 60 + 55 - 8 * 60 - 11) * 30),
        ("D", "S"): (21 * 60, 1800),
    }
    assert all(assumes(city, fact) for fact in ("2 platforms", "1 stop ", "1 trip ", "3 stops"))
    # Rare buses are left out.
    assert set(rides(load_city(feed(tmp_path), **{**ALL_HUBS, "max_headway_seconds": 1800}))) == {("D", "S")}
    assert rides(load_city(feed(tmp_path), **{**ALL_HUBS, "max_headway_seconds": 1799})) == {}


def test_rides_of_odd_timetables(tmp_path):
    # 8:00 at A, 8:10 at P1: B between them is at 8:05. To B it took 5 minutes by all three.
    city = load_city(feed(tmp_path), hubs=["A", "B", "S"], zones=1, max_headway_seconds=86_400)
    assert (rides(city)["A", "B"][0], rides(city)["B", "S"][0]) == (300, 7 * 60)
    assert assumes(city, "1 time ")
    fewer = "".join(line for line in TIMES.splitlines(keepends=True) if not line.startswith("t2"))
    city = load_city(feed(tmp_path, stop_times=fewer), hubs=["A", "B", "S"], zones=1, max_headway_seconds=86_400)
    assert rides(city)["B", "S"][0] == (5 + 9) * 60 / 2  # the minute at P1 is not spread over the way there
    # A2 is 111 m from A; back to it is back to A.
    stops = STOPS + "A2,Opposite,42.001,-83.00,z1,0,\n"
    times = TIMES + "back1,09:40:00,09:40:00,A2,3\nback2,10:10:00,10:10:00,A2,3\n"
    city = load_city(feed(tmp_path, stops=stops, stop_times=times), **ALL_HUBS)
    assert (rides(city)["D", "A"], rides(city)["S", "A"]) == ((40 * 60, 1800), (19 * 60, 1920))
    often = "trip_id,start_time,end_time,headway_secs\nt1,06:00:00,07:00:00,600\nt1,07:00:00,08:00:00,1200\n"
    times = "\n".join(line for line in TIMES.splitlines() if not line.startswith("t3"))
    city = load_city(feed(tmp_path, frequencies=often, stop_times=times), **ALL_HUBS)
    # 6:00 to 6:50 every ten minutes, 7:00, 7:20 and 7:40, never at 8:00; and t2 at 8:20, which takes longer
    assert rides(city)["A", "S"] == (600, round(140 * 60 / 9))
    assert assumes(city, "frequencies.txt")
    times = TIMES + "loop,11:00:00,11:00:00,A,1\nloop,11:10:00,11:10:00,A,2\nloop,11:30:00,11:30:00,D,3\n"
    times += "loop,11:50:00,11:50:00,D,4\n"
    trips = TRIPS + "r9,once,loop\n"
    dates = DATES + "once,20261128,1\n"
    often = "trip_id,start_time,end_time,headway_secs\nloop,06:00:00,07:00:00,600\n"
    place = feed(tmp_path, trips=trips, stop_times=times, calendar_dates=dates, frequencies=often)
    assert rides(load_city(place, date="2026-11-28", **ALL_HUBS)) == {("A", "D"): (1200, 600)}


def test_zip_and_folder_are_the_same(tmp_path):
    files = {f"{name}.txt": text for name, text in FEED.items()}
    expected = load_city(feed(tmp_path))
    assert load_city(zipped(tmp_path / "feed.zip", files)) == expected
    nested = {f"export/{name}": text for name, text in files.items()} | {"__MACOSX/stops.txt": "x"}
    assert load_city(zipped(tmp_path / "nested.gtfs", nested)) == expected
    marked = {name: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode() for name, text in files.items()}
    assert load_city(zipped(tmp_path / "bom.zip", marked, compression=zipfile.ZIP_DEFLATED)) == expected
    # Names in a zip cannot leave the folder.
    (tmp_path / "deep").mkdir()
    assert load_city(zipped(tmp_path / "deep" / "up.zip", {f"../../{n}": t for n, t in files.items()})) == expected
    assert not [path for path in tmp_path.rglob("*.txt") if path.parent.name != "feed"]


def test_the_day_decides_which_buses_run(tmp_path):
    place = feed(tmp_path)
    assert assumes(load_city(place), "2026-11-02")
    holiday = load_city(place, date="2026-11-11", **ALL_HUBS)
    assert assumes(holiday, "2026-11-11")
    assert (rides(holiday), holiday.stops) == ({}, ("A", "B", "S", "D"))
    assert len(rides(load_city(place, date=date(2026, 11, 10), **ALL_HUBS))) == 4
    refused(place, "2026-11-01", "2026-11-30", "2026-12-01", date="2026-12-01")
    for day in ("2026-11-07", "2026-11-12", "tomorrow"):
        refused(place, day, date=day)
    place = feed(tmp_path, calendar_dates=DATES + "sunday,19700101,2\n")  # a first year without trips
    refused(place, "1970-01-01", "1971-01-01")
    assert load_city(place, date="2026-11-02").stops == ("A", "B", "S", "D")


def test_a_feed_may_hold_for_ages(tmp_path):
    """Only a year of it is looked at, so not a busier Monday after that; the ends of the calendar do no harm."""
    for first, day in (("00010101", "0001-01-01"), ("20261101", "2026-11-02")):
        ages = CALENDAR.replace("20261101", first).replace("20261130", "99991231")
        place = feed(tmp_path, calendar=ages, calendar_dates=DATES + "sunday,20271108,1\n")
        assert assumes(load_city(place), day)
        # The last Saturday of the calendar has no trip, the days around it are few.
        refused(place, "9999-12-31", date="9999-12-25")
        assert assumes(load_city(place, date="9999-12-31"), "9999-12-31")


def test_calendars_may_be_missing(tmp_path):
    place = feed(tmp_path, calendar_dates=None)
    assert assumes(load_city(place), "2026-11-02")
    (place / "calendar.txt").unlink()
    everything = load_city(place, **ALL_HUBS)
    assert assumes(everything, "calendar")
    assert rides(everything)["A", "D"][0] == 30 * 60
    refused(place, "calendar.txt", "calendar_dates.txt", date="2026-11-10")
    (place / "calendar_dates.txt").write_text("service_id,date,exception_type\nsunday,20261206,1\n")
    assert assumes(load_city(place), "2026-12-06")


def test_hubs_and_zones(tmp_path):
    # One can leave A, B and S three times a day; two routes call at S.
    for num, expected in ((1, ["S"]), (2, ["A", "S"]), (3, ["A", "B", "S"])):
        city = load_city(feed(tmp_path), hubs=num, zones=2)
        assert [city.stops[place] for place in np.flatnonzero(city.hubs)] == expected
    near = STOPS.replace("42.01,", "42.001,")  # B is 111 m from A
    chosen = load_city(feed(tmp_path, stops=near), hubs=2, zones=2)
    assert [chosen.stops[place] for place in np.flatnonzero(chosen.hubs)] == ["A", "S"]
    assert load_city(feed(tmp_path), hubs=99).hubs.sum() == 4
    refused(feed(tmp_path), "'Q'", hubs=["A", "Q"])
    refused(feed(tmp_path), "'P1'", hubs=["P1"])
    city = load_city(feed(tmp_path), zones="zone_id")
    assert [city.zone_names[zone] for zone in city.zones] == ["z1", "z1", "z2", "z2"]
    without = STOPS.replace("S,Station,,,z2", "S,Station,,,")
    assert load_city(feed(tmp_path, stops=without), zones="zone_id").zones.tolist() == [0, 0, 1, 1]
    blank = STOPS.replace("42.05,-83.00,z2", "42.05,-83.00,")
    refused(feed(tmp_path, stops=blank), "zone_id", "1 of 4", zones="zone_id")
    assert np.bincount(load_city(feed(tmp_path), zones=2).zones).tolist() == [2, 2]
    refused(feed(tmp_path), "4 zones", "5", zones=5)
    stops = "stop_id,stop_lat,stop_lon\nA,42,-83\nB,42.1,-83\n"
    times = "trip_id,arrival_time,departure_time,stop_id,stop_sequence\nt1,08:00:00,,A,1\nt1,,08:10:00,B,2\n"
    city = load_city(feed(tmp_path, stops=stops, stop_times=times), zones=1, hubs=2)
    assert city.stops == ("A", "B")


def test_trips_whose_times_make_no_sense_are_left_out(tmp_path):
    times = TIMES.replace("t2,8:32:00,8:33:00", "t2,8:20:00,8:19:00").replace("back2,09:30:00,09:30:00", "back2,,")
    city = load_city(feed(tmp_path, stop_times=times), **ALL_HUBS)
    assert assumes(city, "2 trips")
    assert rides(city)["A", "D"][1] == (24 * 60 + 40 - 8 * 60) * 60
    assert ("D", "S") not in rides(city)
    before = load_city(feed(tmp_path, stop_times=TIMES.replace("t2,8:50:00", "t2,8:32:30")), **ALL_HUBS)
    assert rides(before)["A", "D"] == rides(city)["A", "D"]
    header, *lines = TIMES.splitlines()
    blank = "\n".join([header, *(re.sub(r"[0-9]+:[0-9:]+", "", line) for line in lines)]) + "\n"
    place = feed(tmp_path, stop_times=blank)
    refused(place, "stop_times.txt", "2026-11-02")
    for name in ("calendar", "calendar_dates"):
        (place / f"{name}.txt").unlink()
    refused(place, "stop_times.txt")


def test_broken_feeds_are_refused_by_name(tmp_path):
    many = "".join(f"X{i},far,,,,0,\n" for i in range(7))
    calls = "".join(f"t1,2{i}:00:00,2{i}:00:00,X{i},{20 + i}\n" for i in range(7))
    for changes, facts in (
        ({"stops": STOPS + many, "stop_times": TIMES + calls}, ["'X4'", "2 more"]),
        ({"stops": STOPS + "A,again,42,-83,,0,\nB,again,42,-83,,0,\n"}, ["stops.txt", "'A', 'B'"]),
        ({"trips": TRIPS + "r1,week,t1\n"}, ["trips.txt", "'t1'"]),
        ({"stops": STOPS.replace("P1,Platform 1,42.0201,-83.00,z2,0,S", "P1,x,42,-83,z2,0,Q")}, ["'Q'"]),
        ({"stops": STOPS.replace("S,Station,,,z2,1,", "S,Station,,,z2,1,P1")}, ["stops.txt", "'P1'", "parent_station"]),
        ({"stops": STOPS.replace("42.05", "142.05")}, ["line 8: ", "stop_lat", "-90"]),
        ({"stops": STOPS.replace("42.05", "x").replace("42.06", "y")}, ["line 8: ", "line 9: ", "stop_lat"]),
        ({"stops": STOPS.replace("42.05,-83.00", ",")}, ["'D'"]),
        ({"stops": "stop_id,stop_id\nA,B\n"}, ["line 1: ", "stop_id"]),
        ({"stops": "id\nA\n"}, ["stop_id"]),
        ({"stops": ""}, ["stop_id"]),
        ({"stops": STOPS + "F,x\n"}, ["line 10: ", "7 cells", "2"]),
        ({"stops": STOPS + 'F,"x,1,2,3\n'}, ["line 10"]),
        ({"stop_times": TIMES + "t1,26:00:00,26:00:00,Q,10\n"}, ["stop_times.txt", "stop_id", "'Q'"]),
        ({"stop_times": TIMES + "t1,26:00:00,26:00:00,E,10\n"}, ["stop_id", "'E'"]),
        ({"stop_times": TIMES + "t77,26:00:00,26:00:00,A,10\n"}, ["trip_id", "'t77'"]),
        ({"stop_times": TIMES + "t1,26:00:00,26:00:00,A,9\n"}, ["stop_sequence", "'t1'"]),
        (
            {"stop_times": TIMES + "t1,8:61:00,26:00:00,A,1\nt1,x,1:1:1,A,1\n"},
            ["line 21: ", "line 22: ", "arrival_time"],
        ),
        ({"stop_times": TIMES + "t1,x,1:1:1,A,-1\n"}, ["stop_sequence", "departure_time"]),
        ({"stop_times": TIMES.splitlines()[0] + "\n"}, ["stop_times.txt"]),
        ({"calendar": CALENDAR.replace("20261130", "20261131")}, ["calendar.txt", "line 2: ", "end_date"]),
        ({"calendar": CALENDAR.replace("week,1", "week,2")}, ["monday"]),
        ({"calendar_dates": DATES.replace(",2", ",3")}, ["exception_type"]),
        ({"frequencies": "trip_id,start_time,end_time,headway_secs\nt1,06:00:00,,0\n"}, ["end_time", "headway_secs"]),
    ):
        refused(feed(tmp_path, **{"frequencies": None, **changes}), *facts)
    named = {"stops": STOPS.replace("B,Žižkov", "NA,Žižkov"), "stop_times": TIMES.replace(",B,", ",NA,")}
    assert "NA" in load_city(feed(tmp_path, **named, frequencies=None)).stops  # which is a name like any other


def test_files_that_are_no_feed(tmp_path, monkeypatch):
    refused(tmp_path / "nothing.zip", "nothing.zip")
    (tmp_path / "text.zip").write_text("stop_id")
    refused(tmp_path, "stops.txt", "trips.txt", "stop_times.txt")
    refused(zipped(tmp_path / "a.zip", {"stops.txt": "", "stop_times.txt": ""}), "trips.txt")
    refused(zipped(tmp_path / "b.zip", {"a/stops.txt": STOPS, "b/stops.txt": STOPS}), "stops.txt")
    whole = zipped(tmp_path / "c.zip", {f"{name}.txt": text for name, text in FEED.items()}).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "hurt.zip").write_bytes(whole.replace(b"Platform 1", b"Platform X"))
    for name in ("text.zip", "cut.zip", "hurt.zip"):
        refused(tmp_path / name, "zip")
    place = feed(tmp_path)
    (place / "stops.txt").write_bytes(STOPS.encode("cp1250"))
    refused(place, "stops.txt: line 3: ", "UTF-8")
    monkeypatch.setattr(gtfs, "MAX_STOPS_WITH_PAIRS", 3)
    refused(feed(tmp_path), "3 stops", "4")
    for wrong in ({"zones": 0}, {"zones": "x"}, {"hubs": 0}, {"hubs": "A"}, {"hubs": []}, {"max_headway_seconds": 0}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            FeedSetting(**wrong)


def test_bombs_are_not_unpacked(tmp_path, monkeypatch):
    """Neither one that says how large it is nor one that lies about it."""
    monkeypatch.setattr(gtfs, "MAX_FEED_BYTES", 1 << 20)
    files = {f"{name}.txt": text for name, text in FEED.items()}
    bomb = zipped(tmp_path / "bomb.zip", {**files, "stops.txt": b"0" * (50 << 20)}, compression=zipfile.ZIP_DEFLATED)
    read: list[int] = []
    plain = zipfile.ZipExtFile.read

    def counted(stream, size=-1):
        content = plain(stream, size)
        read.append(len(content))
        return content

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counted)
    refused(bomb, "1 MB")
    assert not read
    plain_infos = zipfile.ZipFile.infolist

    def lying(archive):
        infos = plain_infos(archive)
        for info in infos:
            info.file_size = min(info.file_size, 100)
        return infos

    monkeypatch.setattr(zipfile.ZipFile, "infolist", lying)
    refused(bomb)
    assert sum(read) <= 3 << 20
    refused(feed(tmp_path, stops="0" * (2 << 20)), "1 MB")


def test_a_feed_becomes_a_folder(tmp_path):
    made = generate_feed_city(feed(tmp_path), tmp_path / "city", FeedSetting(**ALL_HUBS))
    assert load_city(tmp_path / "city") == made
    names = {"buses.csv", "city.json", "modes.csv", "stops.csv", "times.csv"}
    assert {path.name for path in (tmp_path / "city").iterdir()} == names
    routes = find_routes(made)
    assert [made.mode_names[code] for code in made.modes.flat] == [routes.mode_names[code] for code in routes.mode]
    refused(tmp_path / "city", "zones", zones=3)
    with pytest.raises(OutputError):
        generate_feed_city(tmp_path / "nothing", tmp_path / "city")


@pytest.fixture(scope="module")
def cairns(data_folder) -> Path:
    path = data_folder / "cairns_gtfs" / "cairns_gtfs.zip"
    if not path.is_file():
        pytest.skip(f"no feed at {path}: set DUNNAGE_DATA to the folder that holds it")
    return path


def rows_of(path: Path, name: str) -> list[dict[str, str]]:
    with zipfile.ZipFile(path) as archive:
        return list(csv.DictReader(io.StringIO(archive.read(name).decode("utf-8-sig"))))


@pytest.mark.data
def test_a_real_feed_is_read_as_it_is(cairns):
    """A ride between two hubs, counted by hand from the files: Wednesday's services, calls at the very stops."""
    stops = {row["stop_id"] for row in rows_of(cairns, "stop_times.txt")}
    city = feed_city(cairns, FeedSetting(date=date(2014, 6, 4)))
    assert (set(city.stops), len(city.stops)) == (stops, 416)
    assert (np.bincount(city.zones).tolist(), city.hubs.sum()) == ([104] * 4, 12)
    services = {row["service_id"] for row in rows_of(cairns, "calendar.txt") if row["wednesday"] == "1"}
    running = {row["trip_id"] for row in rows_of(cairns, "trips.txt") if row["service_id"] in services}
    far = city.kilometres()
    hubs = np.flatnonzero(city.hubs)
    hub_of = {
        stop: hubs[far[place, hubs].argmin()] for place, stop in enumerate(city.stops) if far[place, hubs].min() <= 0.25
    }
    calls: dict[str, list[tuple[int, int, str, str]]] = {}
    for row in rows_of(cairns, "stop_times.txt"):
        if row["trip_id"] in running and row["stop_id"] in hub_of and row["arrival_time"]:
            call = (int(row["stop_sequence"]), hub_of[row["stop_id"]], row["arrival_time"], row["departure_time"])
            calls.setdefault(row["trip_id"], []).append(call)
    found = rides(city)
    checked = 0
    for (start, end), (seconds, headway) in found.items():
        runs = []
        for called in calls.values():
            called.sort()
            gone = None
            for _, hub, come, go in called:
                if hub == city.stops.index(start):
                    gone = clock(go)
                elif hub == city.stops.index(end) and gone is not None:
                    runs.append((gone, clock(come) - gone))
                    gone = None
        if len(runs) > 1:
            span = max(runs)[0] - min(runs)[0]
            assert seconds == round(median(ride for _, ride in runs))
            assert headway == round(span / (len(runs) - 1))
            checked += 1
    assert checked == len(found) > 20


def clock(text: str) -> int:
    hours, minutes, seconds = map(int, text.split(":"))
    return 3600 * hours + 60 * minutes + seconds


@pytest.mark.data
def test_a_real_feed_becomes_a_city_for_fleets(cairns, tmp_path):
    made = generate_feed_city(cairns, tmp_path / "city")
    assert load_city(tmp_path / "city") == made
    routes = find_routes(made)
    assert len(set(routes.mode.tolist())) == 12
    # To one hub the bus goes less often than every half hour, so a few stops have no way but the straight one.
    assert any("2292" in said for said in routes.assumed)
    refused(cairns, "2014-05-26", "2014-12-28", date="2026-11-16")
    refused(cairns, "zone_id", "416 of 416", zones="zone_id")


def test_a_path_without_anything_does_not_exist(tmp_path):
    refused(tmp_path / "nowhere", "nowhere: does not exist")


def test_names_and_ways_are_for_maps_only(tmp_path):
    """Shapes are drawn, thinned out and once; a broken point is left out, and nothing of it changes a fleet."""
    from dunnage.planning.demand import Ground
    from dunnage.showing.figures import CityMap, Flows

    feed = tmp_path / "feed"
    feed.mkdir()
    (feed / "stops.txt").write_text("stop_id,stop_name,stop_lat,stop_lon\na,Main Street,1.0,2.0\nb,,1.1,2.1\n")
    (feed / "trips.txt").write_text("trip_id,service_id,route_id\nt,s,r\n")
    times = (
        "trip_id,stop_id,stop_sequence,arrival_time,departure_time\nt,a,1,08:00:00,08:00:00\nt,b,2,08:30:00,08:30:00\n"
    )
    (feed / "stop_times.txt").write_text(times)
    plain = load_city(feed, zones=1, hubs=1)
    way = [(1.0 + step / 1000, 2.0 + step / 1000) for step in range(101)]
    lines = [f"{shape},{lat},{lon},{place}" for shape in "xy" for place, (lat, lon) in enumerate(way)]
    (feed / "shapes.txt").write_text(
        "\n".join(["shape_id,shape_pt_lat,shape_pt_lon,shape_pt_sequence", *lines, "x,?,2,7", ""])
    )
    city = load_city(feed, zones=1, hubs=1)
    assert [line[0] for line in city.lines] == [(1.0, 2.0)]  # y shows nothing that x does not
    assert (city.called(0), city.called(1)) == ("Main Street (a)", "b")
    assert Ground.of(city).digest() == Ground.of(plain).digest()
    assert load_city(city.write(tmp_path / "city")) == city
    none = Flows(ends=np.zeros((0, 2), dtype=np.int64), trips=np.zeros(0))
    drawn = CityMap(city).drawn(none, most=1.0, style="release", label="map")
    assert drawn.count('class="road"') == 1
    assert "Main Street (a)" in drawn
