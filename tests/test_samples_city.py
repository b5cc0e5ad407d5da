# SPDX-License-Identifier: Apache-2.0
"""Generated cities and trips in them: files that agree, one shape in every city, and the commands."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.commands import fine, run

import dunnage as dn
from dunnage.errors import InputError, OutputError, ParameterError
from dunnage.model.city import City
from dunnage.model.routes import find_routes
from dunnage.samples import (
    CitySetting,
    TripSetting,
    city,
    generate_city,
    generate_city_trips,
    trip_modes,
    trip_stops,
    trips,
)
from dunnage.samples.town import Town, lay_town

BUSY = ("08:00", "10:00")


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
        dn.publish(dn.load(data, policy), ledger=dn.Ledger(":memory:"))


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
