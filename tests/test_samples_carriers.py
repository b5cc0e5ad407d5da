# SPDX-License-Identifier: Apache-2.0
"""Generated telemetry and positions look like a fleet's, come in files that agree, and with policies that are valid."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dunnage.cli import app
from dunnage.collecting.tasks import carriers_from_text, read_carriers, read_task, task_of
from dunnage.devices.client import mechanism_of
from dunnage.errors import OutputError, ParameterError
from dunnage.samples import (
    CITY_BOX,
    TELEMETRY_LAWS,
    PositionSetting,
    TelemetrySetting,
    generate_positions,
    generate_telemetry,
    positions,
    positions_policy,
    telemetry,
)

KM_EAST, KM_NORTH = 95.8, 110.6


def numbers(table: pa.Table, setting: TelemetrySetting) -> dict[str, np.ndarray]:
    """Each number with NaN where it is missing. Shapes: vehicles, readings."""
    return {s.name: table[s.name].to_numpy().reshape(setting.size, -1) for s in setting.sensors}


@pytest.fixture(scope="module")
def fleet() -> dict[str, np.ndarray]:
    setting = TelemetrySetting(size=800, days=2, readings=24, attributes=10)
    return numbers(telemetry(setting, seed=1), setting)


@pytest.fixture(scope="module")
def fixes() -> tuple[np.ndarray, np.ndarray]:
    """Longitude and latitude of a fleet over a day, as long as the paper's. Shapes: epochs, vehicles."""
    assert PositionSetting().num_rows == 9_858 * 265
    table = positions(PositionSetting(size=4_000), seed=1)
    return table["lon"].to_numpy().reshape(265, -1), table["lat"].to_numpy().reshape(265, -1)


# Telemetry


def test_rows_are_those_of_every_vehicle_day_and_reading() -> None:
    setting = TelemetrySetting(size=7, days=3, readings=10)
    table = telemetry(setting, seed=1)
    assert table.num_rows == setting.num_rows == 210
    assert table.column_names[:2] == ["vehicle", "time"]
    times = table["time"].to_pylist()
    by_day = {(vehicle, time.date()) for vehicle, time in zip(table["vehicle"].to_pylist(), times, strict=True)}
    assert len(by_day) == 21
    assert all(time.second == time.microsecond == 0 for time in times)
    assert len(set(zip(table["vehicle"].to_pylist(), times, strict=True))) == 210
    order = list(zip(table["vehicle"].to_pylist(), times, strict=True))
    assert order == sorted(order)


def test_readings_stay_within_their_day() -> None:
    for readings in (1, 7, 288, 1440):
        times = telemetry(TelemetrySetting(size=20, days=2, readings=readings), seed=1)["time"].to_pylist()
        assert {time.date().day for time in times} == {14, 15}
        assert len(times) == 40 * readings


def test_some_readings_are_missing_and_some_lie_outside(fleet: dict[str, np.ndarray]) -> None:
    for sensor in TelemetrySetting(attributes=10).sensors:
        values = fleet[sensor.name]
        assert 0.002 < np.isnan(values).mean() < 0.03
        known = values[~np.isnan(values)]
        outside = ((known < sensor.low) | (known > sensor.high)).mean()
        assert 0.001 < outside < 0.006
        assert known.std() > 0


def test_a_sensor_that_fails_is_silent_until_midnight(fleet: dict[str, np.ndarray]) -> None:
    missing = np.isnan(fleet["speed"]).reshape(800, 2, 24)
    ends_missing = missing[:, :, -1]
    runs = missing[ends_missing][:, -2]
    assert runs.mean() > 0.5  # single losses alone would follow each other in 4 of 1000 cases


def test_numbers_hang_together(fleet: dict[str, np.ndarray]) -> None:
    setting = TelemetrySetting(attributes=10)
    inside = {
        sensor.name: np.where(
            (fleet[sensor.name] < sensor.low) | (fleet[sensor.name] > sensor.high), np.nan, fleet[sensor.name]
        )
        for sensor in setting.sensors
    }
    whole = ~np.isnan(np.stack(list(inside.values()))).any(axis=0)
    columns = {name: values[whole] for name, values in inside.items()}

    def correlation(a: str, b: str, rows: np.ndarray | slice = slice(None)) -> float:
        return float(np.corrcoef(columns[a][rows], columns[b][rows])[0, 1])

    assert correlation("age", "tenure") > 0.4
    assert correlation("speed", "shocks") > 0.3
    assert correlation("speed", "load", columns["speed"] > 0) < -0.03
    assert correlation("temperature", "humidity") > 0.3
    at_rest = columns["speed"] == 0
    assert columns["light"][at_rest].mean() > 2 * columns["light"][~at_rest].mean()
    assert (columns["tenure"] <= columns["age"] - 18).all()
    for constant in ("age", "tenure"):
        assert (np.nanmax(inside[constant], axis=1) == np.nanmin(inside[constant], axis=1)).all()


def test_laws_of_the_paper() -> None:
    gauss = TelemetrySetting(size=5_000, readings=1, law="gauss")
    values = np.stack(list(numbers(telemetry(gauss, seed=1), gauss).values()))
    assert values.shape == (10, 5_000, 1)
    assert abs(values.mean() - 60) < 0.03  # more than six standard errors
    assert abs(values.std() - 1) < 0.02
    uniform = TelemetrySetting(size=5_000, readings=1, law="uniform", attributes=4)
    for values in numbers(telemetry(uniform, seed=1), uniform).values():
        assert 29 < values.mean() < 71
        assert 59 < np.ptp(values) <= 60
        assert 0 <= values.min() <= values.max() <= 100
    census = TelemetrySetting(size=5_000, readings=1, law="census")
    persons = numbers(telemetry(census, seed=1), census)
    assert len(persons) == 5
    for sensor in census.sensors:
        values = persons[sensor.name]
        assert sensor.low <= values.min() <= values.max() <= sensor.high
    income = persons["income"]
    assert np.median(income) < 0.6 * income.mean()


def test_seeds() -> None:
    setting = TelemetrySetting(size=50)
    assert telemetry(setting, seed=1).equals(telemetry(setting, seed=1))
    assert not telemetry(setting, seed=1).equals(telemetry(setting, seed=2))
    fleet = PositionSetting(size=50, epochs=9)
    assert positions(fleet, seed=1).equals(positions(fleet, seed=1))
    assert not positions(fleet, seed=1).equals(positions(fleet, seed=2))


def test_pieces_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows are in memory at once, all vehicles are there, and positions are the same."""
    fleet = PositionSetting(size=30, epochs=20)
    whole = positions(fleet, seed=1)
    monkeypatch.setattr(sys.modules["dunnage.samples.telemetry"], "GROUP_ROWS", 64)
    assert positions(fleet, seed=1).equals(whole)
    table = telemetry(TelemetrySetting(size=30, readings=5), seed=1)
    assert table.num_rows == 150
    assert len(set(table["vehicle"].to_pylist())) == 30


def test_what_cannot_be_is_refused() -> None:
    wrong: list[dict[str, Any]] = [{"size": 0}, {"days": 0}, {"readings": 0}, {"readings": 1441}, {"attributes": 1}]
    wrong += [{"attributes": 11}, {"attributes": 6, "law": "census"}, {"law": "normal"}, {"size": 10**6, "days": 10**3}]
    for parameters in wrong:
        with pytest.raises(ParameterError):
            TelemetrySetting(**parameters)
    for parameters in ({"size": 0}, {"size": 10**7}, {"epochs": 0}, {"size": 10**6, "epochs": 10**3}):
        with pytest.raises(ParameterError):
            PositionSetting(**parameters)


# Positions


def test_moments_are_five_minutes_apart() -> None:
    table = positions(PositionSetting(size=3, epochs=300), seed=1)
    times = table["time"].to_pylist()[::3]
    assert times[0] == datetime(2026, 10, 14)
    assert {(later - time).total_seconds() for time, later in pairwise(times)} == {300.0}
    assert table["vehicle"].to_pylist()[:4] == ["V0000001", "V0000002", "V0000003", "V0000001"]


def test_some_fixes_are_missing_and_some_outside(fixes: tuple[np.ndarray, np.ndarray]) -> None:
    lon, lat = fixes
    assert (np.isnan(lon) == np.isnan(lat)).all()
    assert 0.005 < np.isnan(lon).mean() < 0.04
    again = np.isnan(lon[1:]) & np.isnan(lon[:-1])
    assert again.sum() > 0.5 * np.isnan(lon).sum()  # most are lost for a while
    west, south, east, north = CITY_BOX
    outside = (lon < west) | (lon > east) | (lat < south) | (lat > north)
    assert 0.005 < outside.mean() < 0.05
    assert np.nanmin(lon) > west - 0.1
    assert np.nanmax(lat) < north + 0.1


def test_vehicles_drive_at_a_pace_that_is_allowed(fixes: tuple[np.ndarray, np.ndarray]) -> None:
    lon, lat = fixes
    km = np.hypot(np.diff(lon, axis=0) * KM_EAST, np.diff(lat, axis=0) * KM_NORTH)
    assert np.nanmax(km) < 130 / 12
    moving = km > 0.1
    assert 1 < km[moving].mean() < 3
    night, day = np.nanmean(moving[12:36]), np.nanmean(moving[96:216])
    assert night < 0.5 * day
    parked = np.nanmax(np.hypot((lon - np.nanmedian(lon, 0)) * KM_EAST, (lat - np.nanmedian(lat, 0)) * KM_NORTH), 0)
    assert 0.08 < (parked < 0.1).mean() < 0.2


def test_the_centre_is_busier_and_no_cell_is_like_another(fixes: tuple[np.ndarray, np.ndarray]) -> None:
    known = ~np.isnan(fixes[0][150])
    west, south, east, north = CITY_BOX
    sides = [[west, east], [south, north]]
    counts = np.histogram2d(fixes[0][150][known], fixes[1][150][known], bins=8, range=sides)[0]
    assert counts[2:6, 2:6].sum() > counts.sum() / 2
    assert counts.max() > 10 * np.median(counts)


def test_vehicles_are_on_streets(fixes: tuple[np.ndarray, np.ndarray]) -> None:
    """Streets are lines: fine cells are mostly empty although many vehicles drive."""
    lon, lat = (values[100:110].ravel() for values in fixes)
    known = ~np.isnan(lon)
    west, south, east, north = CITY_BOX
    fine = np.histogram2d(lon[known], lat[known], bins=300, range=[[west, east], [south, north]])[0]
    shuffled = np.random.default_rng(1).permutation(lat[known])
    free = np.histogram2d(lon[known], shuffled, bins=300, range=[[west, east], [south, north]])[0]
    assert (fine > 0).sum() < 0.75 * (free > 0).sum()


# Files


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_files_say_what_was_drawn(tmp_path: Path, ending: str) -> None:
    for name, data, expected in (
        ("t", generate_telemetry, telemetry(TelemetrySetting(size=40, readings=6), seed=3)),
        ("p", generate_positions, positions(PositionSetting(size=40, epochs=6), seed=3)),
    ):
        setting = TelemetrySetting(size=40, readings=6) if name == "t" else PositionSetting(size=40, epochs=6)
        path, policy = data(setting, tmp_path / f"{name}{ending}", seed=3)  # type: ignore[operator]
        assert (path.name, policy.name) == (f"{name}{ending}", f"{name}.toml")
        read = pq.read_table(path) if ending == ".parquet" else pacsv.read_csv(path)
        assert read.column_names == expected.column_names
        assert read["vehicle"].to_pylist() == expected["vehicle"].to_pylist()
        assert read["vehicle"].type == pa.string()
        assert read["time"].to_pylist() == expected["time"].to_pylist()
        for column in expected.column_names[2:]:
            np.testing.assert_allclose(
                read[column].to_numpy().astype(float), expected[column].to_numpy(), rtol=0, atol=1e-9
            )
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([f"p{ending}", "p.toml", f"t{ending}", "t.toml"])


def test_moments_are_written_as_iso_8601(tmp_path: Path) -> None:
    path, _ = generate_positions(PositionSetting(size=1, epochs=2), tmp_path / "p.csv", seed=1)
    assert path.read_text().splitlines()[2].split(",")[:2] == ['"V0000001"', '"2026-10-14T00:05:00"']


def test_places_to_write_to(tmp_path: Path) -> None:
    setting = PositionSetting(size=1, epochs=1)
    generate_positions(setting, tmp_path / "p.csv")
    with pytest.raises(OutputError, match="exists already"):
        generate_positions(setting, tmp_path / "p.csv")
    with pytest.raises(OutputError, match=r"p\.toml exists already"):
        generate_positions(setting, tmp_path / "p.parquet")
    with pytest.raises(OutputError, match=r"must end in \.csv or \.parquet"):
        generate_telemetry(TelemetrySetting(size=1), tmp_path / "p.txt")
    with pytest.raises(OutputError, match="is not a folder"):
        generate_telemetry(TelemetrySetting(size=1), tmp_path / "none" / "p.csv")
    generate_positions(setting, tmp_path / "p.parquet", force=True)


def test_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: object, table: pa.Table) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fails)
    with pytest.raises(OutputError, match="No space left"):
        generate_positions(PositionSetting(size=5, epochs=1), tmp_path / "p.parquet")
    assert list(tmp_path.iterdir()) == []


def test_row_groups_are_small_and_memory_does_not_grow(tmp_path: Path) -> None:
    """Eight times the moments take hardly more memory: all rows at once would take 30 MB more."""
    code = (
        "import resource, sys; from dunnage.samples import PositionSetting, generate_positions\n"
        "sys.modules['dunnage.samples.telemetry'].GROUP_ROWS = 1 << 15\n"
        "generate_positions(PositionSetting(size=8_000, epochs=int(sys.argv[1])), sys.argv[2], seed=1)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    used = []
    for epochs in ("20", "160"):
        path = tmp_path / f"{epochs}.parquet"
        done = subprocess.run([sys.executable, "-c", code, epochs, path], capture_output=True, text=True, check=True)
        used.append(int(done.stdout) / 1024)
    assert used[1] - used[0] < 20
    facts = pq.ParquetFile(path).metadata
    assert facts.num_rows == 1_280_000
    assert max(facts.row_group(number).num_rows for number in range(facts.num_row_groups)) <= 1 << 15


# Policies


def test_the_policy_of_telemetry_makes_a_task(tmp_path: Path) -> None:
    for law, attributes in product(TELEMETRY_LAWS, (2, 5)):
        setting = TelemetrySetting(size=3, law=law, attributes=attributes)
        data, path = generate_telemetry(setting, tmp_path / "t.csv", seed=1, force=True)
        task, policy = read_task(path), read_carriers(path)
        assert list(policy.columns) == pacsv.read_csv(data).column_names
        (purpose,) = task.purposes
        quantities = [(q.name, q.low, q.high, q.unit) for q in purpose.quantities]
        assert quantities == [(s.name, s.low, s.high, s.unit) for s in setting.sensors]
        assert task.tier_names == ("basic", "strict")


@given(st.integers(1, 1_000_000))
@settings(max_examples=20)
def test_the_policy_of_positions_makes_a_task_whose_map_is_no_noise(size: int) -> None:
    policy = carriers_from_text(positions_policy(PositionSetting(size=size, epochs=1), "fleet"))
    task = task_of(policy)
    places, paths = (mechanism_of(task, purpose) for purpose in task.purposes)
    assert paths.grid.levels <= places.grid.levels
    if size >= 100:
        assert not places.noise_verdict(size).is_noise
        assert not paths.noise_verdict(size).is_noise
    assert policy.columns == ("vehicle", "time", "lon", "lat")


def test_the_fleet_of_the_paper_has_64_cells() -> None:
    places, paths = task_of(carriers_from_text(positions_policy(PositionSetting(), "fleet"))).purposes
    assert places.grid is not None
    assert paths.grid is not None
    assert (places.grid.num_cells, paths.grid.num_cells, paths.steps) == (64, 16, 2)
    assert tuple(float(side) for side in places.grid.box) == CITY_BOX


# Commands


def test_commands(tmp_path: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(
        app,
        ["generate", "telemetry", "-o", str(tmp_path / "t.csv"), "--size", "2", "--readings", "3", "--law", "gauss"],
    )
    assert done.exit_code == 0
    assert "6 readings of 2 vehicles" in done.output
    done = runner.invoke(
        app, ["generate", "positions", "-o", str(tmp_path / "p.parquet"), "--size", "1", "--epochs", "4", "--seed", "1"]
    )
    assert done.exit_code == 0
    assert "4 positions of 1 vehicle" in done.output
    assert pq.read_metadata(tmp_path / "p.parquet").num_rows == 4
