# SPDX-License-Identifier: Apache-2.0
"""Generated trips meet the counts of the case study exactly, look like a town's, and come with files that agree."""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from datetime import datetime
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.commands import fine, run
from tests.commands import rows as read

import dunnage as dn
from dunnage.errors import InputError, OutputError, ParameterError
from dunnage.mechanisms.counts import true_counts
from dunnage.model.city import City
from dunnage.model.routes import find_routes
from dunnage.samples import (
    TRIP_MODES,
    CitySetting,
    TripSetting,
    city,
    generate_city,
    generate_city_trips,
    generate_trips,
    trip_modes,
    trip_stops,
    trips,
    trips_policy,
)
from dunnage.samples.trips import Town, lay_town

STOPS = trip_stops().to_pylist()
NUMBER = {row["stop"]: number for number, row in enumerate(STOPS)}
MODE = {(row["origin"], row["destination"]): row["mode"] for row in trip_modes().to_pylist()}
BUSY = ("08:00", "10:00")


def columns(table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return origins and destinations as numbers, and seconds of the day."""
    codes = [np.array([NUMBER[stop] for stop in table[name].to_pylist()]) for name in ("board_stop", "alight_stop")]
    return codes[0], codes[1], table["tap_in"].cast(pa.int64()).to_numpy() % 86_400


def cells(table: pa.Table) -> np.ndarray:
    origins, destinations, seconds = columns(table)
    return (seconds // 1800 * len(STOPS) + origins) * len(STOPS) + destinations


@pytest.fixture(scope="module")
def weekday() -> pa.Table:
    return trips(seed=1)


@pytest.fixture(scope="module")
def weekend() -> pa.Table:
    return trips(seed=1, weekend=True)


def test_every_count_of_the_case_study_is_met(weekday):
    """130 stops, 16,900 pairs, 48 half-hours, 37,714 trips; 8 to 10 am: 67,600 cells, 591 occur, 4,878 trips."""
    assert (len(STOPS), len(MODE)) == (130, 16_900)
    for table in (weekday, trips(seed=10**12), trips()):
        day = cells(table)
        assert len(day) == 37_714
        assert 0 <= day.min() <= day.max() < 48 * 16_900
        busy = day[(day >= 16 * 16_900) & (day < 20 * 16_900)]
        assert (len(busy), len(np.unique(busy))) == (4_878, 591)


def test_windows_and_weekends(weekday, weekend):
    whole = cells(weekday)
    for window, first, last in ((BUSY, 16, 20), (("00:00", "1:30"), 0, 3), (("23:30", "24:00"), 47, 48)):
        inside = (whole >= first * 16_900) & (whole < last * 16_900)
        piece = trips(seed=1, window=window)
        assert piece.drop(["card"]).equals(weekday.drop(["card"]).filter(pa.array(inside)))
    assert weekend.num_rows == 18_300 == TripSetting(weekend=True).num_trips
    early = [
        (columns(table)[2] < 9 * 3600).mean() - (columns(table)[2] < 4 * 3600).mean() for table in (weekday, weekend)
    ]
    assert early[0] > 1.4 * early[1]
    days = [{tap.date() for tap in table["tap_in"].to_pylist()} for table in (weekday, weekend)]
    assert [[day.weekday() for day in found] for found in days] == [[2], [5]]


def test_any_size_is_met_and_seeds_repeat():
    for size, weekend, window in product((1, 17, 3_000), (False, True), (("00:00", "24:00"), BUSY)):
        table = trips(size, size, weekend=weekend, window=window)
        assert table.num_rows == size == TripSetting(size=size, weekend=weekend, window=window).num_trips
        _, _, seconds = columns(table)
        assert (np.diff(seconds) >= 0).all()
        assert window != BUSY or 8 * 3600 <= seconds[0] <= seconds[-1] < 10 * 3600
    assert trips(500, 7).equals(trips(500, seed=7))
    assert not trips(500, 7).equals(trips(500, 8))
    assert not trips(500).equals(trips(500))


def test_another_size_has_the_same_shape(weekday, within):
    large = trips(80_000, seed=1)
    shares = [np.bincount(columns(table)[2] // 1800, minlength=48) / table.num_rows for table in (weekday, large)]
    assert np.abs(shares[0] - shares[1]).max() < 2e-4
    assert np.array_equal(cells(trips(37_714, seed=1)), cells(weekday))
    assert len(np.unique(cells(large))) < 80_000 / 37_714 * len(np.unique(cells(weekday)))
    # At most every pair but those from a stop to itself has trips.
    with within(4):
        table = trips(700_000, seed=1, window=("17:00", "17:30"))
    origins, destinations, _ = columns(table.slice(0, 50_000))
    assert (origins != destinations).all()
    names = table.select(["board_stop", "alight_stop"]).group_by(["board_stop", "alight_stop"]).aggregate([])
    assert names.num_rows == 16_900 - 130


def test_demand_is_concentrated_as_in_the_case_study():
    """Publishing zeros has an RMSE of about 3.5 a cell between 8 and 10 am."""
    for seed in (1, 2, 3):
        counts = np.unique(cells(trips(seed=seed, window=BUSY)), return_counts=True)[1]
        assert 3.2 < np.sqrt((counts**2).sum() / 67_600) < 3.8
        assert np.sort(counts)[-40:].sum() > counts.sum() / 2
        assert (counts <= 2).sum() > len(counts) / 2


def test_a_weekday_has_two_peaks_and_all_zones_are_travelled(weekday):
    origins, destinations, seconds = columns(weekday)
    hours = np.bincount(seconds // 3600, minlength=24)
    assert hours[8] > hours[10] < hours[17]
    assert 0 < hours[0] < 200  # past midnight
    assert hours[2:5].sum() == 0
    assert (origins != destinations).all()
    pair = origins * 130 + destinations
    morning, evening = (np.bincount(pair[seconds // 3600 // 2 == half], minlength=16_900) for half in (4, 8))
    mirrored = evening.reshape(130, 130).T.reshape(-1)
    assert np.corrcoef(morning, mirrored)[0, 1] > np.corrcoef(morning, evening)[0, 1]
    rows = weekday.select(["board_stop", "alight_stop"]).to_pylist()
    zone = {row["stop"]: row["zone"] for row in STOPS}
    assert len({(zone[row["board_stop"]], zone[row["alight_stop"]]) for row in rows}) == 16
    modes = Counter(MODE[row["board_stop"], row["alight_stop"]] for row in rows)
    assert len(modes) >= 9
    assert modes["shuttle-bus-shuttle"] > 0.1 * len(rows)


@pytest.mark.parametrize("day", ["weekday", "weekend"])
def test_cards_go_out_and_back_and_few_have_many_trips(day, request):
    cards = defaultdict(list)
    for row in request.getfixturevalue(day).to_pylist():
        cards[row["card"]].append(row)
    num_trips = np.array([len(own) for own in cards.values()])
    assert 0.3 < (num_trips == 1).mean() < 0.7
    assert 0.3 < (num_trips == 2).mean() < 0.6
    assert 0.01 < (num_trips > 2).mean() < 0.15
    assert 10 < num_trips.max() <= 60  # some are shared
    goes_on = [own for own in cards.values() if all(a["alight_stop"] == b["board_stop"] for a, b in pairwise(own))]
    assert len(goes_on) > 0.98 * len(cards)
    back = [own for own in goes_on if len(own) == 2 and own[0]["board_stop"] == own[1]["alight_stop"]]
    assert len(back) > 0.25 * len(cards)
    stays = [(b["tap_in"] - a["tap_in"]).total_seconds() for own in goes_on for a, b in pairwise(own)]
    assert min(stays) >= 0
    assert np.mean(np.array(stays) > 900) > 0.99


def test_every_pair_has_a_mode_and_all_modes_occur():
    assert Counter(row["zone"] for row in STOPS) == {"north": 33, "east": 33, "south": 32, "west": 32}
    assert (trip_modes().num_rows, set(MODE)) == (16_900, set(product(NUMBER, NUMBER)))
    assert set(MODE.values()) == set(TRIP_MODES)
    assert set(TRIP_MODES.values()) == set(product((False, True), (0, 1, 2), (False, True)))
    assert min(Counter(MODE.values()).values()) >= 20


def test_files_agree_and_the_town_does_not_depend_on_the_seed(tmp_path):
    setting = TripSetting(window=BUSY)
    paths = generate_trips(setting, tmp_path / "t.csv", seed=1)
    assert [path.name for path in paths] == ["t.csv", "t.toml", "t-stops.csv", "t-modes.csv"]
    rows, stops, modes = (read(paths[number]) for number in (0, 2, 3))
    assert list(rows[0]) == ["card", "board_stop", "alight_stop", "tap_in"]
    table = trips(seed=1, window=BUSY)
    assert [row["card"] for row in rows] == table["card"].to_pylist()
    assert [row["board_stop"] for row in rows] == table["board_stop"].to_pylist()
    assert [datetime.strptime(row["tap_in"], "%Y-%m-%dT%H:%M:%S") for row in rows] == table["tap_in"].to_pylist()
    assert list(stops[0]) == ["stop", "zone", "lat", "lon", "hub"]
    assert [row["stop"] for row in stops] == list(NUMBER)
    assert {row["hub"] for row in stops} == {"true", "false"}
    assert {(row["origin"], row["destination"]): row["mode"] for row in modes} == MODE
    first, second = (generate_trips(TripSetting(size=5), tmp_path / f"{seed}.csv", seed=seed) for seed in (1, 2))
    assert first[0].read_bytes() != second[0].read_bytes()
    for one, other in zip(first[2:], second[2:], strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_the_starter_policy_says_what_is_there():
    where = {"role": "quasi-identifier", "kind": "stop"}
    for window, domain, size in (
        (("00:00", "24:00"), ["00:00", "24:00"], 37_714),
        (("7:30", "9:00"), ["07:30", "09:00"], 3_910),
    ):
        policy = tomllib.loads(trips_policy(TripSetting(window=window), 'a "name"', "t-stops.csv", "t-modes.csv"))
        when = {"role": "quasi-identifier", "kind": "time", "window_minutes": 30, "domain": domain}
        assert policy == {
            "dataset": 'a "name"',
            "protects": "trip",
            "trip": {"origin": "board_stop", "destination": "alight_stop", "time": "tap_in", "level": "zone"},
            "attributes": {"card": {"role": "identifier"}, "board_stop": where, "alight_stop": where, "tap_in": when},
            "city": {"stops": "t-stops.csv", "modes": "t-modes.csv"},
            "expect": {"dates": 1, "trips": size},
            "mechanism": {"name": "constrained-counts", "epsilon": 1.0, "features": "O5"},
        }


def test_counts_under_a_starter_policy_are_useful_at_every_size(tmp_path):
    for size, minutes in ((2_000, 120), (400, 720), (160, 1440)):
        data, policy, _, _ = generate_trips(TripSetting(size=size), tmp_path / f"{size}.csv", seed=3)
        loaded = dn.load(data, policy)
        assert loaded.schema.time.window_minutes == minutes
        release, _ = dn.publish(loaded, noise=dn.Noise(seed=1), ledger=":memory:")
        truth, wrong = true_counts(loaded), Counter[int]()
        for cells, counts, sign in ((truth.cells, truth.counts, 1), (*release.counted(), -1)):
            wrong.update(dict(zip(cells.tolist(), (sign * counts).tolist(), strict=True)))
        assert sum(map(abs, wrong.values())) < 0.6 * size
    stops = trips_policy(TripSetting(level="stop"), "a", "s.csv", "m.csv")
    assert tomllib.loads(stops)["attributes"]["tap_in"]["window_minutes"] == 30
    assert tomllib.loads(trips_policy(TripSetting(), "a", "s.csv", None, num_zones=0))["trip"]["level"] == "stop"


def test_files_that_are_there_are_kept_and_impossible_trips_refused(tmp_path):
    (tmp_path / "t-modes.csv").write_text("mine")
    with pytest.raises(OutputError):
        generate_trips(TripSetting(size=3), tmp_path / "t.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["t-modes.csv"]
    generate_trips(TripSetting(size=3), tmp_path / "t.csv", force=True)
    assert len(read(tmp_path / "t-modes.csv")) == 16_900
    for size in (0, -1, 50_000_001):
        with pytest.raises(ParameterError, match="size"):
            TripSetting(size=size)
    windows = [("10:00", "08:00"), ("08:00", "08:00"), ("02:00", "04:30"), ("08:00", "24:30"), ("08:00", "25:00")]
    for window in (*windows, *((start, "10:00") for start in ("08:15", "8", "08:00\n", "", "-1:00"))):
        with pytest.raises(ParameterError):
            trips(window=window)


def test_the_command_line_writes_them(tmp_path):
    told = fine("generate", "trips", "-o", tmp_path / "t.csv", "--from", "08:00", "--to", "10:00")
    names = [Path(told[name]).name for name in ("data", "policy", "stops", "modes")]
    assert (told["size"], names) == (4_878, ["t.csv", "t.toml", "t-stops.csv", "t-modes.csv"])
    fine("generate", "trips", "-o", tmp_path / "t.csv", "--size", 12, "--weekend", "--seed", 3, "--force")
    assert [row["tap_in"][:10] for row in read(tmp_path / "t.csv")] == ["2026-10-17"] * 12


def test_cities_are_whole_and_read_back_equal(tmp_path):
    for stops, zones, seed in ((130, 4, None), (60, 3, 1), (20, 1, 2), (40, 2, 3), (100, 7, 4)):
        made = city(stops, zones, seed)
        assert len(made.stops) == len(set(made.stops)) == stops
        assert len(made.zone_names) == zones
        assert np.bincount(made.zones, minlength=zones).min() >= 2
        assert (made.hubs.sum(), set(made.zones[made.hubs].tolist())) == (1 + 2 * zones, set(range(zones)))
        assert len(made.buses) > 0
        setting = CitySetting(stops=stops, zones=zones)
        assert City.read_folder(generate_city(setting, tmp_path / f"{stops}", seed=seed)) == made
        routes = find_routes(made)
        modes = [made.mode_names[code] for code in made.modes.reshape(-1)]
        assert [routes.mode_names[code] for code in routes.mode] == modes
        assert len(routes.assumed) == len(find_routes(city()).assumed)  # nothing is said to be unconnected
    made = city()
    assert list(made.stops) == trip_stops()["stop"].to_pylist()
    assert made.lat.tolist() == trip_stops()["lat"].to_pylist()
    assert [made.mode_names[code] for code in made.modes.reshape(-1)] == trip_modes()["mode"].to_pylist()
    plain, one, again, other = city(), city(seed=1), city(seed=1), city(seed=2)
    assert one == again
    assert one != other
    assert one != plain
    assert np.abs(np.sort(one.lat) - np.sort(plain.lat)).max() < 0.02


def far_city(num: int = 50) -> City:
    """Stops on both sides of the date line, ten times as far apart as those of the town."""
    generator = np.random.default_rng(5)
    lon = (180 + 0.8 * generator.standard_normal(num) + 180) % 360 - 180
    return City(
        stops=tuple(f"s{place}" for place in range(num)), lat=-17 + 0.8 * generator.standard_normal(num), lon=lon
    )


def test_trips_have_the_counts_of_the_case_study_in_every_city():
    for made in (city(60, 3, seed=1), far_city()):
        table = trips(seed=1, window=BUSY, city=made)
        assert table.num_rows == 4878
        ends = list(zip(table["board_stop"].to_pylist(), table["alight_stop"].to_pylist(), strict=True))
        assert {stop for pair in ends for stop in pair} <= set(made.stops)
        assert all(start != end for start, end in ends)
        half = (table["tap_in"].to_numpy() - np.datetime64("2026-10-14")).astype("timedelta64[s]").astype(int) // 1800
        assert len(set(zip(ends, half.tolist(), strict=True))) == 591
        assert max(Counter(ends).values()) > 100
        assert trips(seed=1, window=BUSY, city=made).equals(table)


def test_the_shape_of_trips_depends_on_neither_files_nor_size():
    # Places are rounded in a file, so not every trip is the same; the shape is.
    flat = Town.of(city())
    assert flat.scale == pytest.approx(1.0, abs=0.01)
    assert np.abs(flat.apart - lay_town().apart).max() < 0.05
    own, given = (trips(seed=1, window=BUSY, city=made)["board_stop"].to_pylist() for made in (None, city()))
    common = sum((Counter(own) & Counter(given)).values())
    assert common > 0.9 * len(own)
    # A city half as large again has the same trips between the same stops.
    small = city(60, 3, seed=1)
    middle = (np.median(small.lat), np.median(small.lon))
    wide = City(
        stops=small.stops, lat=middle[0] + 1.5 * (small.lat - middle[0]), lon=middle[1] + 1.5 * (small.lon - middle[1])
    )
    tables = [trips(seed=2, window=BUSY, city=made) for made in (small, wide)]
    assert tables[0]["board_stop"].equals(tables[1]["board_stop"])
    assert tables[0]["alight_stop"].equals(tables[1]["alight_stop"])


def test_small_and_odd_cities():
    for places in ([(0.0, 0.0), (0.0, 0.1)], [(0.0, 0.0)] * 3):
        lat, lon = np.array(places).T
        assert trips(50, 1, city=City(stops=tuple("abc"[: len(places)]), lat=lat, lon=lon)).num_rows == 50
    for wrong in (City(stops=("a", "b")), City(stops=("a",), lat=np.zeros(1), lon=np.zeros(1))):
        with pytest.raises(ParameterError):
            trips(5, 1, city=wrong)
    for numbers in ((5, 4), (1, 1), (5000, 4), (50, 0)):
        with pytest.raises(ParameterError):
            city(*numbers)


def test_policies_name_and_count_what_the_city_tells(tmp_path):
    city(60, 3, seed=1).write(tmp_path / "city")
    (tmp_path / "data").mkdir()
    data, policy = generate_city_trips(TripSetting(window=BUSY), tmp_path / "city", tmp_path / "data" / "t.csv", seed=1)
    loaded = dn.load(data, policy)
    assert len(loaded) == 4878
    assert 'stops = "../city/stops.csv"' in policy.read_text()
    dn.publish(loaded, ledger=":memory:")
    with pytest.raises(OutputError):
        generate_city_trips(TripSetting(), tmp_path / "city", data)
    whole = city(60, 3, seed=1)
    for facts, features in (({"zone_names": whole.zone_names, "zones": whole.zones}, "O4"), ({}, "O3")):
        City(stops=whole.stops, lat=whole.lat, lon=whole.lon, **facts).write(tmp_path / features)
        out = tmp_path / f"{features}.csv"
        data, policy = generate_city_trips(TripSetting(size=500), tmp_path / features, out, seed=1)
        assert f'features = "{features}"' in policy.read_text()
        assert "modes" not in policy.read_text()
        dn.publish(dn.load(data, policy), ledger=dn.Ledger(":memory:"), allow_noise=True)


def test_generate_city_and_trips_in_it(tmp_path):
    made = ("generate", "city", "-o", tmp_path / "city")
    result = fine(*made, "--stops", 60, "--zones", 3, "--seed", 1)
    assert [result[name] for name in ("stops", "zones", "hubs")] == [60, 3, 7]
    assert result["assumed"]
    assert City.read_folder(tmp_path / "city") == city(60, 3, seed=1)
    fine("generate", "trips", "-o", tmp_path / "t.csv", "--city", tmp_path / "city", "--seed", 1, "--size", 300)
    assert not (tmp_path / "t-stops.csv").exists()
    run(*made).refused()
    fine(*made, "--force")
    assert City.read_folder(tmp_path / "city") == city()


def test_city_commands_that_are_refused(tmp_path):
    for words, facts in (
        ("--hubs 3", ["--hubs"]),
        ("--date 2026-11-16 --zone-id", ["--date", "--zone-id"]),
        ("--gtfs x.zip --stops 3 --seed 1", ["--stops", "--seed"]),
        ("--gtfs x.zip --zones 3 --zone-id", ["--zones", "--zone-id"]),
        ("--gtfs x.zip --date soon", ["date"]),
        ("--gtfs x.zip --hubs 0", ["hubs"]),
        ("--gtfs x.zip", ["x.zip"]),
        ("--stops 3", ["4 zones"]),
    ):
        done = run("generate", "city", "-o", tmp_path / "city", *words.split())
        done.refused()
        assert [fact for fact in facts if fact not in done.err] == [], words
    run("generate", "trips", "-o", tmp_path / "t.csv", "--city", tmp_path / "nothing").refused("stops.csv")
    with pytest.raises(InputError):
        generate_city_trips(TripSetting(), tmp_path, tmp_path / "t.csv")
    assert not list(Path(tmp_path).iterdir())
