# SPDX-License-Identifier: Apache-2.0
"""Generated telemetry and positions look like a fleet's, come in files that agree, and with policies that are valid."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.commands import run
from tests.estimates_help import refuses

from dunnage import samples
from dunnage.collecting.tasks import carriers_from_text, read_carriers, read_task, task_of
from dunnage.devices.client import mechanism_of
from dunnage.errors import OutputError, ParameterError
from dunnage.samples import (
    CITY_BOX,
    PositionSetting,
    TelemetrySetting,
    generate_positions,
    generate_telemetry,
    positions,
    telemetry,
)

KM_EAST, KM_NORTH = 95.8, 110.6
WEST, SOUTH, EAST, NORTH = CITY_BOX


def numbers(setting):
    """Each number with NaN where it is missing. Shapes: vehicles, readings."""
    table = telemetry(setting, seed=1)
    return {s.name: table[s.name].to_numpy().reshape(setting.size, -1) for s in setting.sensors}


@pytest.fixture(scope="module")
def fleet():
    return numbers(TelemetrySetting(size=800, days=2, readings=24, attributes=10))


@pytest.fixture(scope="module")
def fixes():
    """Longitude and latitude of a fleet over a day, as long as the paper's. Shapes: epochs, vehicles."""
    assert PositionSetting().num_rows == 9_858 * 265
    table = positions(PositionSetting(size=2_500), seed=1)
    return table["lon"].to_numpy().reshape(265, -1), table["lat"].to_numpy().reshape(265, -1)


def test_rows_are_those_of_every_vehicle_day_and_reading():
    setting = TelemetrySetting(size=7, days=3, readings=10)
    table = telemetry(setting, seed=1)
    assert table.num_rows == setting.num_rows == 210
    assert table.column_names[:2] == ["vehicle", "time"]
    order = list(zip(table["vehicle"].to_pylist(), table["time"].to_pylist(), strict=True))
    assert order == sorted(order)
    assert len(set(order)) == 210
    assert len({(vehicle, time.date()) for vehicle, time in order}) == 21
    assert all(time.second == time.microsecond == 0 for _, time in order)
    for readings in (1, 7, 288, 1440):  # within their day
        times = telemetry(TelemetrySetting(size=20, days=2, readings=readings), seed=1)["time"].to_pylist()
        assert ({time.date().day for time in times}, len(times)) == ({14, 15}, 40 * readings)


def test_some_readings_are_missing_and_some_lie_outside(fleet):
    for sensor in TelemetrySetting(attributes=10).sensors:
        values = fleet[sensor.name]
        known = values[~np.isnan(values)]
        assert 0.002 < np.isnan(values).mean() < 0.03
        assert 0.001 < ((known < sensor.low) | (known > sensor.high)).mean() < 0.006
        assert known.std() > 0
    missing = np.isnan(fleet["speed"]).reshape(800, 2, 24)
    # A sensor that fails is silent until midnight: single losses alone would follow each other in 4 of 1000 cases.
    assert missing[missing[:, :, -1]][:, -2].mean() > 0.5


def test_numbers_hang_together(fleet):
    inside = {}
    for sensor in TelemetrySetting(attributes=10).sensors:
        values = fleet[sensor.name]
        inside[sensor.name] = np.where((values < sensor.low) | (values > sensor.high), np.nan, values)
    whole = ~np.isnan(np.stack(list(inside.values()))).any(axis=0)
    columns = {name: values[whole] for name, values in inside.items()}

    def correlation(a, b, rows=slice(None)):
        return np.corrcoef(columns[a][rows], columns[b][rows])[0, 1]

    assert correlation("age", "tenure") > 0.4
    assert correlation("speed", "shocks") > 0.3
    assert correlation("speed", "load", columns["speed"] > 0) < -0.03
    assert correlation("temperature", "humidity") > 0.3
    at_rest = columns["speed"] == 0
    assert columns["light"][at_rest].mean() > 2 * columns["light"][~at_rest].mean()
    assert (columns["tenure"] <= columns["age"] - 18).all()
    for constant in ("age", "tenure"):
        assert (np.nanmax(inside[constant], axis=1) == np.nanmin(inside[constant], axis=1)).all()


def test_laws_of_the_paper():
    gauss = np.stack(list(numbers(TelemetrySetting(size=5_000, readings=1, law="gauss")).values()))
    assert gauss.shape == (10, 5_000, 1)
    assert abs(gauss.mean() - 60) < 0.03  # more than six standard errors
    assert abs(gauss.std() - 1) < 0.02
    for values in numbers(TelemetrySetting(size=5_000, readings=1, law="uniform", attributes=4)).values():
        assert 29 < values.mean() < 71
        assert 59 < np.ptp(values) <= 60
        assert 0 <= values.min() <= values.max() <= 100
    census = TelemetrySetting(size=5_000, readings=1, law="census")
    persons = numbers(census)
    assert len(persons) == 5
    for sensor in census.sensors:
        assert sensor.low <= persons[sensor.name].min() <= persons[sensor.name].max() <= sensor.high
    assert np.median(persons["income"]) < 0.6 * persons["income"].mean()


def test_seeds_repeat_and_pieces_do_not_matter(monkeypatch):
    """However few rows are in memory at once, all vehicles are there, and positions are the same."""
    for draw, setting in ((telemetry, TelemetrySetting(size=50)), (positions, PositionSetting(size=30, epochs=20))):
        whole = draw(setting, seed=1)
        assert draw(setting, seed=1).equals(whole)
        assert not draw(setting, seed=2).equals(whole)
    monkeypatch.setattr(sys.modules["dunnage.samples.telemetry"], "GROUP_ROWS", 64)
    assert positions(setting, seed=1).equals(whole)
    table = telemetry(TelemetrySetting(size=30, readings=5), seed=1)
    assert (table.num_rows, len(set(table["vehicle"].to_pylist()))) == (150, 30)


def test_what_cannot_be_is_refused():
    wrong = [{"size": 0}, {"days": 0}, {"readings": 0}, {"readings": 1441}, {"attributes": 1}, {"attributes": 11}]
    wrong += [{"attributes": 6, "law": "census"}, {"law": "normal"}, {"size": 10**6, "days": 10**3}]
    for parameters in wrong:
        with refuses(ParameterError, parameters):
            TelemetrySetting(**parameters)
    for parameters in ({"size": 0}, {"size": 10**7}, {"epochs": 0}, {"size": 10**6, "epochs": 10**3}):
        with refuses(ParameterError, parameters):
            PositionSetting(**parameters)


def test_moments_are_five_minutes_apart():
    table = positions(PositionSetting(size=3, epochs=300), seed=1)
    times = table["time"].to_pylist()[::3]
    assert times[0] == datetime(2026, 10, 14)
    assert {(later - time).total_seconds() for time, later in pairwise(times)} == {300.0}
    assert table["vehicle"].to_pylist()[:4] == ["V0000001", "V0000002", "V0000003", "V0000001"]


def test_some_fixes_are_missing_and_some_outside(fixes):
    lon, lat = fixes
    assert (np.isnan(lon) == np.isnan(lat)).all()
    assert 0.005 < np.isnan(lon).mean() < 0.04
    again = np.isnan(lon[1:]) & np.isnan(lon[:-1])
    assert again.sum() > 0.5 * np.isnan(lon).sum()  # most are lost for a while
    outside = (lon < WEST) | (lon > EAST) | (lat < SOUTH) | (lat > NORTH)
    assert 0.005 < outside.mean() < 0.05
    assert np.nanmin(lon) > WEST - 0.1
    assert np.nanmax(lat) < NORTH + 0.1


def test_vehicles_drive_at_a_pace_that_is_allowed(fixes):
    lon, lat = fixes
    km = np.hypot(np.diff(lon, axis=0) * KM_EAST, np.diff(lat, axis=0) * KM_NORTH)
    assert np.nanmax(km) < 130 / 12
    moving = km > 0.1
    assert 1 < km[moving].mean() < 3
    assert np.nanmean(moving[12:36]) < 0.5 * np.nanmean(moving[96:216])  # at night and by day
    parked = np.nanmax(np.hypot((lon - np.nanmedian(lon, 0)) * KM_EAST, (lat - np.nanmedian(lat, 0)) * KM_NORTH), 0)
    assert 0.08 < (parked < 0.1).mean() < 0.2


def histogram(lon, lat, bins):
    known = ~np.isnan(lon)
    return np.histogram2d(lon[known], lat[known], bins=bins, range=[[WEST, EAST], [SOUTH, NORTH]])[0]


def test_the_centre_is_busier_and_vehicles_are_on_streets(fixes):
    counts = histogram(fixes[0][150], fixes[1][150], 8)
    assert counts[2:6, 2:6].sum() > counts.sum() / 2
    assert counts.max() > 10 * np.median(counts)  # no cell is like another
    # Streets are lines: fine cells are mostly empty although many vehicles drive.
    lon, lat = (values[100:110].ravel() for values in fixes)
    shuffled = lat.copy()
    shuffled[~np.isnan(lat)] = np.random.default_rng(1).permutation(lat[~np.isnan(lat)])
    assert (histogram(lon, lat, 300) > 0).sum() < 0.75 * (histogram(lon, shuffled, 300) > 0).sum()


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_files_say_what_was_drawn(tmp_path, ending):
    for name, draw, write, setting in (
        ("t", telemetry, generate_telemetry, TelemetrySetting(size=40, readings=6)),
        ("p", positions, generate_positions, PositionSetting(size=40, epochs=6)),
    ):
        expected = draw(setting, seed=3)
        path, policy = write(setting, tmp_path / f"{name}{ending}", seed=3)
        assert (path.name, policy.name) == (f"{name}{ending}", f"{name}.toml")
        read = pq.read_table(path) if ending == ".parquet" else pacsv.read_csv(path)
        assert read.column_names == expected.column_names
        assert read["vehicle"].type == pa.string()
        assert [read[key].to_pylist() for key in ("vehicle", "time")] == [
            expected[key].to_pylist() for key in ("vehicle", "time")
        ]
        for column in expected.column_names[2:]:
            told = read[column].to_numpy().astype(float)
            np.testing.assert_allclose(told, expected[column].to_numpy(), rtol=0, atol=1e-9)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([f"p{ending}", "p.toml", f"t{ending}", "t.toml"])


def test_places_to_write_to(tmp_path, monkeypatch):
    setting = PositionSetting(size=1, epochs=2)
    path, _ = generate_positions(setting, tmp_path / "p.csv", seed=1)
    assert path.read_text().splitlines()[2].split(",")[:2] == ['"V0000001"', '"2026-10-14T00:05:00"']
    for name in ("p.csv", "p.parquet", "p.txt", "none/p.csv"):  # the second has the policy of the first
        with refuses(OutputError, name):
            generate_positions(setting, tmp_path / name)
    generate_positions(setting, tmp_path / "p.parquet", force=True)

    def fails(self, table):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fails)
    (tmp_path / "full").mkdir()
    with pytest.raises(OutputError, match="No space left"):
        generate_positions(setting, tmp_path / "full" / "p.parquet")
    assert not list((tmp_path / "full").iterdir())


def test_row_groups_are_small_and_memory_does_not_grow(tmp_path):
    """Eight times the moments take hardly more memory: all rows at once would take 30 MB more."""
    path = tmp_path / "rows.parquet"
    code = (
        "import resource, sys; from dunnage.samples import PositionSetting, generate_positions\n"
        "sys.modules['dunnage.samples.telemetry'].GROUP_ROWS = 1 << 15\n"
        "for epochs in (20, 160):\n"
        "    generate_positions(PositionSetting(size=8_000, epochs=epochs), sys.argv[1], seed=1, force=True)\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    before, after = (int(line) / 1024 for line in done.stdout.split())
    assert after - before < 20
    facts = pq.ParquetFile(path).metadata
    assert facts.num_rows == 1_280_000
    assert max(facts.row_group(number).num_rows for number in range(facts.num_row_groups)) <= 1 << 15


def test_the_policy_of_telemetry_makes_a_task(tmp_path):
    for law, attributes in product(samples.TELEMETRY_LAWS, (2, 5)):
        setting = TelemetrySetting(size=3, law=law, attributes=attributes)
        data, path = generate_telemetry(setting, tmp_path / "t.csv", seed=1, force=True)
        task, policy = read_task(path), read_carriers(path)
        assert list(policy.columns) == pacsv.read_csv(data).column_names
        quantities = [(q.name, q.low, q.high, q.unit) for q in task.purposes[0].quantities]
        assert quantities == [(s.name, s.low, s.high, s.unit) for s in setting.sensors]
        assert (len(task.purposes), task.tier_names) == (1, ("basic", "strict"))


@given(st.integers(1, 1_000_000))
@settings(max_examples=20)
def test_the_policy_of_positions_makes_a_task_whose_map_is_no_noise(size):
    policy = carriers_from_text(samples.positions_policy(PositionSetting(size=size, epochs=1), "fleet"))
    task = task_of(policy)
    places, paths = (mechanism_of(task, purpose) for purpose in task.purposes)
    assert paths.grid.levels <= places.grid.levels
    assert size < 100 or not any(mechanism.noise_verdict(size).is_noise for mechanism in (places, paths))
    assert policy.columns == ("vehicle", "time", "lon", "lat")


def test_the_fleet_of_the_paper_has_64_cells():
    places, paths = task_of(carriers_from_text(samples.positions_policy(PositionSetting(), "fleet"))).purposes
    assert (places.grid.num_cells, paths.grid.num_cells, paths.steps) == (64, 16, 2)
    assert tuple(float(side) for side in places.grid.box) == CITY_BOX


def test_commands(tmp_path):
    told, fixes = tmp_path / "t.csv", tmp_path / "p.parquet"
    done = run("generate", "telemetry", "-o", told, "--size", 2, "--readings", 3, "--law", "gauss")
    assert (done.code, pacsv.read_csv(told).num_rows) == (0, 6)
    assert run("generate", "positions", "-o", fixes, "--size", 1, "--epochs", 4, "--seed", 1).code == 0
    assert pq.read_metadata(fixes).num_rows == 4
