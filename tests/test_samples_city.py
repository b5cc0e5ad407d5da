# SPDX-License-Identifier: Apache-2.0
"""Generated cities and trips in them: files that agree, one shape in every city, and the commands."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import dunnage as dn
from dunnage.cli import main
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
    trips_policy,
)
from dunnage.samples.town import Town, lay_town

BUSY = ("08:00", "10:00")


@dataclass(frozen=True)
class Done:
    exit_code: int
    output: str


def run(*arguments: object) -> Done:
    """Run a command as a terminal would, where errors become messages and exit codes."""
    printed = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        mock.patch.object(sys, "argv", ["dunnage", *map(str, arguments)]),
        pytest.raises(SystemExit) as caught,
    ):
        main()
    return Done(int(caught.value.code or 0), printed.getvalue())


def test_cities_are_whole_and_read_back_equal(tmp_path):
    for stops, zones, seed in ((130, 4, None), (60, 3, 1), (20, 1, 2), (40, 2, 3), (100, 7, 4)):
        made = city(stops, zones, seed)
        assert len(made.stops) == len(set(made.stops)) == stops
        assert len(made.zone_names) == zones
        assert np.bincount(made.zones, minlength=zones).min() >= 2
        assert made.hubs.sum() == 1 + 2 * zones
        assert set(made.zones[made.hubs].tolist()) == set(range(zones))
        assert len(made.buses) > 0
        setting = CitySetting(stops=stops, zones=zones)
        assert City.read_folder(generate_city(setting, tmp_path / f"{stops}", seed=seed)) == made
        routes = find_routes(made)
        modes = [made.mode_names[code] for code in made.modes.reshape(-1)]
        assert [routes.mode_names[code] for code in routes.mode] == modes
        assert not any("nothing else connects" in said for said in routes.assumed)


def test_the_usual_city_is_that_of_generated_trips():
    made = city()
    assert list(made.stops) == trip_stops()["stop"].to_pylist()
    assert made.lat.tolist() == trip_stops()["lat"].to_pylist()
    assert [made.mode_names[code] for code in made.modes.reshape(-1)] == trip_modes()["mode"].to_pylist()


def test_seeds_move_stops_a_little():
    plain, one, again, other = city(), city(seed=1), city(seed=1), city(seed=2)
    assert one == again
    assert one != other
    assert one != plain
    assert np.abs(np.sort(one.lat) - np.sort(plain.lat)).max() < 0.02


def test_cities_that_cannot_be():
    wrong = {
        (5, 4): "too few for 4 zones",
        (1, 1): "2 to 4000 stops",
        (5000, 4): "2 to 4000",
        (50, 0): "1 to 100 zones",
    }
    for numbers, words in wrong.items():
        with pytest.raises(ParameterError, match=words):
            city(*numbers)


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


def test_trips_in_the_towns_own_city_are_much_like_those_without_one():
    """Places are rounded in a file, so not every trip is the same; the shape is."""
    flat = Town.of(city())
    assert flat.scale == pytest.approx(1.0, abs=0.01)
    assert np.abs(flat.apart - lay_town().apart).max() < 0.05
    own, given = (trips(seed=1, window=BUSY, city=made)["board_stop"].to_pylist() for made in (None, city()))
    common = sum((Counter(own) & Counter(given)).values())
    assert common > 0.9 * len(own)


def test_size_does_not_matter_for_the_shape():
    """A city half as large again has the same trips between the same stops."""
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
        made = City(
            stops=tuple("abc"[: len(places)]),
            lat=np.array([place[0] for place in places]),
            lon=np.array([place[1] for place in places]),
        )
        assert trips(50, 1, city=made).num_rows == 50
    for wrong in (City(stops=("a", "b")), City(stops=("a",), lat=np.zeros(1), lon=np.zeros(1))):
        with pytest.raises(ParameterError, match="two stops or more"):
            trips(5, 1, city=wrong)


def test_policies_name_the_files_of_the_city(tmp_path):
    city(60, 3, seed=1).write(tmp_path / "city")
    (tmp_path / "data").mkdir()
    data, policy = generate_city_trips(TripSetting(window=BUSY), tmp_path / "city", tmp_path / "data" / "t.csv", seed=1)
    loaded = dn.load(data, policy)
    assert len(loaded) == 4878
    assert 'stops = "../city/stops.csv"' in policy.read_text()
    assert dn.publish(loaded, ledger=tmp_path / "ledger.sqlite").release is not None
    with pytest.raises(OutputError, match="exists already"):
        generate_city_trips(TripSetting(), tmp_path / "city", data)


def test_policies_count_what_the_city_tells(tmp_path):
    whole = city(60, 3, seed=1)
    for facts, features in (({"zone_names": whole.zone_names, "zones": whole.zones}, "O4"), ({}, "O3")):
        City(stops=whole.stops, lat=whole.lat, lon=whole.lon, **facts).write(tmp_path / features)
        out = tmp_path / f"{features}.csv"
        data, policy = generate_city_trips(TripSetting(size=500), tmp_path / features, out, seed=1)
        assert f'features = "{features}"' in policy.read_text()
        assert "modes" not in policy.read_text()
        dn.publish(dn.load(data, policy), ledger=dn.Ledger(":memory:"))


def test_the_policy_of_plain_trips_is_as_it_was():
    text = trips_policy(TripSetting(), "d", "s.csv", "m.csv")
    assert 'stops = "s.csv"\nmodes = "m.csv"\n\n[mechanism]' in text
    assert text.endswith('features = "O5"\n')


def test_generate_city_and_trips_in_it(tmp_path):
    done = run("generate", "city", "-o", tmp_path / "city", "--stops", 60, "--zones", 3, "--seed", 1, "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)
    assert [result[name] for name in ("stops", "zones", "hubs")] == [60, 3, 7]
    assert "The city is made up." in result["assumed"]
    assert City.read_folder(tmp_path / "city") == city(60, 3, seed=1)
    done = run("generate", "trips", "-o", tmp_path / "t.csv", "--city", tmp_path / "city", "--seed", 1, "--size", 300)
    assert done.exit_code == 0, done.output
    assert f"City      {tmp_path / 'city'}" in done.output
    assert not (tmp_path / "t-stops.csv").exists()
    done = run("generate", "city", "-o", tmp_path / "city")
    assert done.exit_code == 2
    assert run("generate", "city", "-o", tmp_path / "city", "--force").exit_code == 0
    assert City.read_folder(tmp_path / "city") == city()


def test_city_commands_that_are_refused(tmp_path):
    feed = ["--gtfs", "x.zip"]
    for arguments, words in (
        (["--hubs", "3"], "--hubs is for the city of a GTFS feed"),
        (["--date", "2026-11-16", "--zone-id"], "--date, --zone-id is for the city of a GTFS feed"),
        ([*feed, "--stops", "3", "--seed", "1"], "--stops, --seed is for a made-up city"),
        ([*feed, "--zones", "3", "--zone-id"], "exclude each other"),
        ([*feed, "--date", "soon"], "a date is written as 2026-11-16"),
        ([*feed, "--hubs", "0"], "hubs must be a number of 1 or more"),
        (feed, "the feed cannot be read"),
        (["--stops", "3"], "too few for 4 zones"),
    ):
        done = run("generate", "city", "-o", tmp_path / "city", *arguments)
        assert done.exit_code == 2
        assert words in done.output
        assert not (tmp_path / "city").exists()


def test_trips_in_no_city_are_refused(tmp_path):
    done = run("generate", "trips", "-o", tmp_path / "t.csv", "--city", tmp_path / "nothing")
    assert done.exit_code == 2
    assert "there is no stops.csv" in done.output
    with pytest.raises(InputError):
        generate_city_trips(TripSetting(), tmp_path, tmp_path / "t.csv")
    assert not list(Path(tmp_path).iterdir())
