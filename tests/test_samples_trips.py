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
from tests.commands import fine
from tests.commands import rows as read

from dunnage.errors import OutputError, ParameterError
from dunnage.samples import TRIP_MODES, TripSetting, generate_trips, trip_modes, trip_stops, trips, trips_policy

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
    for window, domain in ((("00:00", "24:00"), ["00:00", "24:00"]), (("7:30", "9:00"), ["07:30", "09:00"])):
        policy = tomllib.loads(trips_policy(TripSetting(window=window), 'a "name"', "t-stops.csv", "t-modes.csv"))
        when = {"role": "quasi-identifier", "kind": "time", "window_minutes": 30, "domain": domain}
        assert policy == {
            "dataset": 'a "name"',
            "protects": "trip",
            "trip": {"origin": "board_stop", "destination": "alight_stop", "time": "tap_in"},
            "attributes": {"card": {"role": "identifier"}, "board_stop": where, "alight_stop": where, "tap_in": when},
            "city": {"stops": "t-stops.csv", "modes": "t-modes.csv"},
            "mechanism": {"name": "constrained-counts", "epsilon": 1.0, "features": "O5"},
        }


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
