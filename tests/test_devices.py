"""Files of devices: reading rows, one vehicle's reports, a simulated fleet, tallies and sealed records."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import stat
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.collecting import files, fleet, identity, reading
from dunnage.collecting.identity import KeyRing
from dunnage.collecting.reading import MICROS, FileColumns, Log, RowFile, Window
from dunnage.collecting.tally import Tally
from dunnage.devices.allowance import Allowance
from dunnage.devices.client import mechanism_of
from dunnage.devices.report import Report, ReportFile, write_reports
from dunnage.devices.task import Grid, Limits, Purpose, Quantity, Schedule, Task, Tier
from dunnage.errors import (
    AllowanceError,
    InputError,
    OutputError,
    ParameterError,
    ReportError,
    SealError,
    TaskError,
)
from dunnage.tables import columns as cells

DAY = 20_740  # 14 October 2026
SECONDS = 86_400
BOX = ("103.9", "30.5", "104.2", "30.8")
# A report at this epsilon tells the truth: one that lies would be seen once in e^60 runs.
SURE = "60"


def make_task(*, epsilon: str = SURE, lifetime: str = "100000", tiers: tuple[str, ...] = ("all",), **more: Any) -> Task:
    """Two numbers, places and paths of two steps, one slot in six hours."""
    levels = tuple(Tier(name=name, epsilon=epsilon) for name in tiers)
    numbers = tuple(
        Quantity(name=name, low="0", high=high, steps=4) for name, high in (("speed", "100"), ("load", "40"))
    )
    on_grid: dict[str, Any] = {"grid": Grid(box=BOX, levels=3), "parameters": {"method": "randomised-response"}}
    duchi = {"method": "duchi"}
    purposes = (
        Purpose(name="telemetry", mechanism="local-numeric", tiers=levels, quantities=numbers, parameters=duchi),
        Purpose(name="places", mechanism="local-location", tiers=levels, **on_grid),
        Purpose(name="paths", mechanism="local-trajectory", tiers=levels, steps=2, **on_grid),
    )
    schedule = Schedule(slots_per_day=4, slot_minutes=60, lateness_minutes=60)
    facts: dict[str, Any] = {"purposes": purposes, "schedule": schedule, **more}
    return Task(dataset="fleet", limits=Limits(lifetime=lifetime), **facts)


def cell_centre(cell: int) -> tuple[float, float]:
    return Grid(box=BOX, levels=3).centre(cell)


def rows_of(vehicle: str, hours: Any, cells: Any) -> list[dict[str, Any]]:
    """One row at each hour after the first midnight, at the middle of a cell; the speed is 100 in cell 5, else 0."""
    return [
        {
            "vehicle": vehicle,
            "time": DAY * SECONDS + int(hour * 3600),
            "speed": 100.0 if cell == 5 else 0.0,
            "load": 40.0 if cell == 5 else 0.0,
            "lon": cell_centre(cell)[0],
            "lat": cell_centre(cell)[1],
        }
        for hour, cell in zip(hours, cells, strict=True)
    ]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    table = pa.Table.from_pylist(rows)
    stamps = pa.array([row["time"] * 10**6 for row in rows], pa.timestamp("us"))
    table = table.set_column(table.column_names.index("time"), "time", stamps)
    if path.suffix == ".csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=7)
    return path


def day_rows(vehicle: str = "V1", days: int = 1) -> list[dict[str, Any]]:
    hours = range(24 * days)
    return rows_of(vehicle, hours, [hour % 16 for hour in hours])


def places_told(task: Task, reports: Iterable[bytes | Report]) -> list[Any]:
    """Read what the reports of places among some say, in order."""
    read = [report if isinstance(report, Report) else Report.from_bytes(report) for report in reports]
    return [cells_told(task, report) for report in read if report.purpose == 1]


def cells_told(task: Task, report: Report) -> Any:
    """Read what a report of places or paths says."""
    purpose = task.purposes[report.purpose]
    mechanism = mechanism_of(task, purpose)
    ((_, symbol),) = mechanism.read(report.payload, tier=task.slot_tiers(purpose)[report.tier])
    if purpose.name == "places":
        return None if symbol == purpose.grid.outside else symbol  # type: ignore[union-attr]
    return mechanism.paths.cells(symbol)


# Moments and numbers


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:01", MICROS),
        ("1970-01-01 00:00:01", MICROS),
        ("1970-01-01T00:00:01Z", MICROS),
        ("1970-01-01T08:00:01+08:00", MICROS),
        ("1970-01-01T08:00:01.5+0800", 1_500_000),
        ("1970-01-02", SECONDS * MICROS),
        ("86400", SECONDS * MICROS),
        ("0.25", 250_000),
        ("20261014", DAY * SECONDS * MICROS),
        ("1969-12-31T23:59:59", -1),
        ("1970-01-01T00:00:00+08:00", -1),
        ("14/10/2026 08:00", -1),
        ("", -1),
        ("soon", -1),
        ("1791965100000", -1),  # milliseconds
        ("9" * 400, -1),
        ("\N{DIGIT ONE}", MICROS),
        ("\N{ARABIC-INDIC DIGIT ONE}", -1),
    ],
)
def test_moments_of_text(text: str, micros: int) -> None:
    assert cells.parse_moment(text) == micros
    found, wrong = cells.moments_of(pa.array([text, "soon", None, "1970-01-01T00:00:07"]))
    assert wrong.tolist() == [micros < 0, True, True, False]
    assert found[3] == 7 * MICROS
    if micros >= 0:
        assert found[0] == micros


@given(moment=st.datetimes(datetime(1970, 1, 2), datetime(9990, 1, 1)), hours=st.integers(-12, 12))
@settings(max_examples=60, deadline=None)
def test_a_zone_changes_the_text_not_the_moment(moment: datetime, hours: int) -> None:
    there = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=hours)))
    assert cells.parse_moment(there.isoformat()) == cells.parse_moment(moment.isoformat())


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_moments_of_timestamps(unit: str) -> None:
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    told = pa.array([7 * per, None, -1, 0], pa.timestamp(unit))
    found, wrong = cells.moments_of(told)
    assert wrong.tolist() == [False, True, True, False]
    assert found[[0, 3]].tolist() == [7 * MICROS, 0]
    zoned = pa.array([7 * per], pa.timestamp(unit, "America/Detroit"))
    assert cells.moments_of(zoned)[0].tolist() == [7 * MICROS]


def test_moments_of_plain_numbers_and_dates() -> None:
    for kind in (pa.int64(), pa.uint64(), pa.float64(), pa.int32()):
        found, wrong = cells.moments_of(pa.array([7, None], kind))
        assert (found[0], wrong.tolist()) == (7 * MICROS, [False, True])
    largest = pa.array([2**64 - 1], pa.uint64())
    assert cells.moments_of(largest)[1].tolist() == [True]
    assert cells.moments_of(pa.array([math.nan, math.inf, -1.0]))[1].all()
    assert cells.moments_of(pa.array([1], pa.date32()))[0].tolist() == [SECONDS * MICROS]
    late = pa.array([2**62], pa.timestamp("s"))
    assert cells.moments_of(late)[1].tolist() == [True]


def test_numbers_of_text() -> None:
    texts = ["1.5", " 2 ", "", "NaN", "n/a", "abc", "1_000", "+4", "1e400", "-inf", None, "61,5"]
    found, num_wrong = cells.numbers_of(pa.array(texts))
    assert num_wrong == 3
    expected = [1.5, 2, *[math.nan] * 5, 4, math.inf, -math.inf, *[math.nan] * 2]
    np.testing.assert_array_equal(found, expected)
    clean, none = cells.numbers_of(pa.array(["1.5", "", "2"]))
    np.testing.assert_array_equal(clean, [1.5, math.nan, 2])
    assert none == 0


def test_numbers_of_other_types() -> None:
    for column in (
        pa.array([1, None]),
        pa.array([Decimal("1.0"), None]),
        pa.array([1.0, math.nan]),
        pa.array(["1", ""]).dictionary_encode(),
    ):
        np.testing.assert_array_equal(cells.numbers_of(column)[0], [1, math.nan])


# Files of rows


def row_file(path: Path, **more: Any) -> RowFile:
    return RowFile(path, numbers=["speed"], time="time", labels=["vehicle"], **more)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_files_read_the_same(tmp_path: Path, ending: str) -> None:
    path = write_rows(tmp_path / f"rows{ending}", day_rows("V1") + day_rows("V2"))
    batches = list(row_file(path))
    speeds = np.concatenate([rows.numbers["speed"] for rows in batches])
    micros = np.concatenate([rows.micros for rows in batches if rows.micros is not None])
    names = [name for rows in batches for name in rows.labels["vehicle"].to_pylist()]
    assert speeds.tolist() == [row["speed"] for row in day_rows() * 2]
    assert micros.tolist() == [row["time"] * MICROS for row in day_rows() * 2]
    assert names == ["V1"] * 24 + ["V2"] * 24


def test_all_missing_columns_are_named_at_once(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.csv", day_rows())
    with pytest.raises(InputError) as caught:
        RowFile(path, numbers=["speed", "height"], time="when", labels=["plate"])
    assert [problem.where for problem in caught.value.problems] == ["plate", "when", "height"]


def test_columns_of_the_wrong_type(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"vehicle": [1.5], "time": [True], "speed": [[1.0]]}), path)
    with pytest.raises(InputError) as caught:
        row_file(path)
    assert [problem.where for problem in caught.value.problems] == ["vehicle", "time", "speed"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("rows.csv", b"", "is empty"),
        ("rows.csv", b"\n\n", "is empty"),
        ("rows.csv", b"vehicle,time,speed\nV1,0,1,2\nV1,0,1\n", "more or fewer cells"),
        ("rows.csv", b"vehicle,time,speed\nV1,soon,1\n", "no moment"),
        ("rows.csv", b"vehicle,time,speed\nV1,,1\n", "no moment"),
        ("rows.csv", b"vehicle,time,speed\n,0,1\n", "is missing in row 1"),
        ("rows.csv", b"vehicle,time,speed\n\xff\xfe,0,1\n", "not UTF-8"),
        ("rows.csv", b"vehicle,time,speed,speed\nV1,0,1,1\n", "several such columns"),
        ("rows.csv", b"PAR1\0\0\0", "no such column"),
        ("rows.csv.gz", b"\x1f\x8b\x08\0garbage", "damaged"),
        ("rows.parquet", b"PAR1 cut off", "Parquet"),
        ("rows.ods", b"PK", "neither CSV nor Parquet"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        list(row_file(path))


def test_a_missing_file_or_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(InputError):
            row_file(path)


def test_errors_quote_no_cell(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("vehicle,time,speed\nSECRET,SECRET,SECRET\n")
    with pytest.raises(InputError) as caught:
        list(row_file(path))
    assert "SECRET" not in str(caught.value)


def test_cells_that_are_no_numbers_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("vehicle,time,speed\nV1,0,fast\nV1,1,\nV1,2,7\n")
    source = row_file(path)
    (rows,) = source
    np.testing.assert_array_equal(rows.numbers["speed"], [math.nan, math.nan, 7])
    assert source.notes() == ["speed: 1 cell is no number, and counts as missing"]


def test_column_names_are_checked() -> None:
    with pytest.raises(ParameterError):
        FileColumns(places=("lon",))  # type: ignore[arg-type]
    with pytest.raises(ParameterError):
        FileColumns(vehicle="time")


# Which row a slot reports


def slow_latest(rows: list[tuple[int, int, float]], vehicle: int, moment: int, age: int) -> float:
    """The same, row by row."""
    best, value = (-1, -1), math.nan
    for at, (own, micros, number) in enumerate(rows):
        late_enough = moment * MICROS - age * MICROS < micros <= moment * MICROS
        if own == vehicle and late_enough and (micros, at) > best:
            best, value = (micros, at), number
    return value


@pytest.mark.parametrize("max_age", [None, 1, 90, 1440])
def test_the_latest_row_of_a_slot(max_age: int | None) -> None:
    task, generator = make_task(), random.Random(7)
    window = Window(task=task, max_age=max_age)
    log, rows = Log(window, FileColumns()), []
    for first in (0, 40):
        some = [
            (generator.randrange(3), DAY * SECONDS * MICROS + generator.randrange(30 * 3600 * MICROS), float(at))
            for at in range(first, first + 40)
        ]
        some += [(2, (DAY * SECONDS + 3600) * MICROS + extra, 100.0 + extra) for extra in (-1, 0, 0, 1)]
        rows += some
        numbers = np.array([number for _, _, number in some])
        columns = dict.fromkeys(FileColumns().numbers_of(task), numbers)
        micros = np.array([micros for _, micros, _ in some])
        log.add(np.array([own for own, _, _ in some]), reading.Rows(1, len(some), columns, micros))
    log.close()
    pairs = [(vehicle, DAY * 24 + hour) for vehicle in range(4) for hour in range(-1, 33)]
    vehicles, slots = (np.array(column) for column in zip(*pairs, strict=True))
    found = log.readings(vehicles, vehicles, slots)
    for back, step in enumerate(reversed(found.steps)):
        expected = [slow_latest(rows, v, (s - back) * 3600, window.age_seconds) for v, s in pairs]
        np.testing.assert_array_equal(step["speed"], expected)
    assert found.num_missing == int(np.isnan(found.steps[-1]["speed"]).sum())


def test_no_rows_at_all() -> None:
    log = Log(Window(task=make_task()), FileColumns())
    log.close()
    zeros = np.zeros(3, dtype=np.int64)
    assert log.readings(zeros, zeros, zeros + DAY).num_missing == 3


@pytest.mark.parametrize("max_age", [0, -1, 1441])
def test_ages_out_of_range(max_age: int) -> None:
    with pytest.raises(ParameterError):
        Window(task=make_task(), max_age=max_age)


# One vehicle


def perturbed(tmp_path: Path, data: Path, task: Task, out: str = "reports.jsonl", **more: Any) -> files.Perturbed:
    return files.perturb(data, task, tmp_path / "truck.allowance", tmp_path / out, **more)


def slots_of(task: Task, tmp_path: Path, day: int) -> tuple[int, ...]:
    with Allowance.open(tmp_path / "truck.allowance", task) as allowance:
        return allowance.slots(day)


@pytest.mark.parametrize("ending", [".jsonl", ".bin"])
def test_each_slot_reports_each_purpose_once(tmp_path: Path, ending: str) -> None:
    task, data = make_task(), write_rows(tmp_path / "rows.csv", day_rows())
    done = perturbed(tmp_path, data, task, f"reports{ending}", enrol=True)
    reports = list(ReportFile(tmp_path / f"reports{ending}", task=task))
    slots = slots_of(task, tmp_path, DAY)
    assert [(r.day, r.slot, r.purpose) for r in reports] == [(DAY, s, p) for s in slots for p in range(3)]
    assert (len(done.reports), done.num_slots, done.num_missing) == (12, 4, 0)
    for report in reports:
        if report.purpose == 1:
            assert cells_told(task, report) == report.slot % 16
        elif report.purpose == 2 and report.slot > 0:
            mechanism = mechanism_of(task, task.purposes[2])
            walk = [cell_centre((report.slot + back) % 16) for back in (-1, 0)]
            assert mechanism.paths.index(cells_told(task, report)) == mechanism.index(walk)


def test_a_second_run_gives_the_same_bytes(tmp_path: Path) -> None:
    task, data = make_task(), write_rows(tmp_path / "rows.parquet", day_rows())
    perturbed(tmp_path, data, task, enrol=True)
    allowance = (tmp_path / "truck.allowance").read_bytes()
    again = perturbed(tmp_path, data, task, "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "reports.jsonl").read_bytes()
    assert (tmp_path / "truck.allowance").read_bytes() == allowance
    assert again.num_again == 12


def test_what_was_made_before_a_crash_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, data = make_task(), write_rows(tmp_path / "rows.csv", day_rows())
    stored: list[bytes] = []
    store = Allowance.store

    def crash(self: Allowance, slot: Any, purpose: str, report: bytes) -> None:
        if len(stored) == 5:
            raise KeyboardInterrupt
        store(self, slot, purpose, report)
        stored.append(report)

    monkeypatch.setattr(Allowance, "store", crash)
    with pytest.raises(KeyboardInterrupt):
        perturbed(tmp_path, data, task, enrol=True)
    monkeypatch.undo()
    assert not (tmp_path / "reports.jsonl").exists()
    done = perturbed(tmp_path, data, task)
    assert done.reports[:5] == stored
    assert len(done.reports) == 12
    # The slot that was spent in vain reports the missing input, and is not spent again.
    lost = Report.from_bytes(done.reports[5])
    assert lost.purpose == 2
    assert cells_told(task, lost) is None
    with Allowance.open(tmp_path / "truck.allowance", task) as allowance:
        assert allowance.spent_in_all().num_reports == 12


def test_several_days_and_a_day_without_rows(tmp_path: Path) -> None:
    task = make_task()
    rows = [row for row in day_rows(days=3) if row["time"] // SECONDS != DAY + 1]
    done = perturbed(tmp_path, write_rows(tmp_path / "rows.csv", rows), task, enrol=True)
    reports = [Report.from_bytes(data) for data in done.reports]
    assert Counter(report.day for report in reports) == {DAY: 12, DAY + 1: 12, DAY + 2: 12}
    assert places_told(task, [report for report in reports if report.day == DAY + 1]) == [None] * 4
    # The first days have closed, but their reports are kept until later days are written.
    written = (tmp_path / "reports.jsonl").read_bytes()
    again = perturbed(tmp_path, tmp_path / "rows.csv", task, force=True)
    assert (again.reports, again.num_again, again.num_lapsed) == (done.reports, 36, 0)
    assert (tmp_path / "reports.jsonl").read_bytes() == written


def test_written_days_are_forgotten_when_later_ones_are_written(tmp_path: Path) -> None:
    task, later = make_task(), [row for row in day_rows(days=6) if row["time"] // SECONDS >= DAY + 4]
    early = write_rows(tmp_path / "early.csv", day_rows(days=3))
    done = perturbed(tmp_path, early, task, enrol=True)
    perturbed(tmp_path, write_rows(tmp_path / "later.csv", later), task, "later.jsonl")
    allowance = (tmp_path / "truck.allowance").read_bytes()
    # What cannot be given again is not replaced, and nothing is spent to find out.
    longer = write_rows(tmp_path / "longer.csv", day_rows(days=9))
    for data in (early, longer):
        with pytest.raises(OutputError, match=r"closed since.*Nothing was spent"):
            perturbed(tmp_path, data, task, force=True)
    assert [r.to_bytes() for r in ReportFile(tmp_path / "reports.jsonl")] == done.reports
    assert (tmp_path / "truck.allowance").read_bytes() == allowance
    # A file of other days may be replaced.
    perturbed(tmp_path, write_rows(tmp_path / "later.csv", later), task, force=True)


@pytest.mark.parametrize("at", ["store", "write", "rename"])
def test_a_crash_among_several_days_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    task, data = make_task(), write_rows(tmp_path / "rows.csv", day_rows(days=5))
    stored: list[bytes] = []
    store = Allowance.store

    def note(self: Allowance, slot: Any, purpose: str, report: bytes) -> None:
        if at == "store" and len(stored) == 50:
            raise KeyboardInterrupt
        store(self, slot, purpose, report)
        stored.append(report)

    def crash(*arguments: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Allowance, "store", note)
    if at == "write":
        monkeypatch.setattr("dunnage.collecting.files.write_reports", crash)
    elif at == "rename":
        monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        perturbed(tmp_path, data, task, enrol=True)
    monkeypatch.undo()
    assert not (tmp_path / "reports.jsonl").exists()
    done = perturbed(tmp_path, data, task)
    assert done.reports[: len(stored)] == stored
    assert (len(done.reports), done.num_again, done.num_lapsed) == (60, len(stored), 0)
    with Allowance.open(tmp_path / "truck.allowance", task) as allowance:
        assert allowance.spent_in_all().num_reports == 60


def test_rows_need_no_order(tmp_path: Path) -> None:
    task, rows = make_task(), day_rows()
    random.Random(1).shuffle(rows)
    done = perturbed(tmp_path, write_rows(tmp_path / "rows.csv", rows), task, enrol=True)
    reports = [Report.from_bytes(data) for data in done.reports]
    assert all(cells_told(task, report) == report.slot % 16 for report in reports if report.purpose == 1)


def test_odd_values_still_report(tmp_path: Path) -> None:
    task, path = make_task(), tmp_path / "rows.csv"
    lines = [f"2026-10-14T{hour:02}:00:00,fast,NaN,500,-inf" for hour in range(24)]
    path.write_text("\n".join(["time,speed,load,lon,lat", *lines, ""]))
    done = perturbed(tmp_path, path, task, enrol=True)
    assert len(done.reports) == 12
    assert done.num_missing == 0
    assert any("speed: 24 cells are no numbers" in note for note in done.notes)
    assert places_told(task, done.reports) == [None] * 4


def test_one_vehicle_of_several(tmp_path: Path) -> None:
    task = make_task()
    data = write_rows(tmp_path / "rows.csv", day_rows("V1") + rows_of("V2", range(24), [5] * 24))
    with pytest.raises(InputError, match="--vehicle"):
        perturbed(tmp_path, data, task, enrol=True)
    with pytest.raises(InputError, match="no rows of the vehicle"):
        perturbed(tmp_path, data, task, enrol=True, vehicle="V3")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv"]
    done = perturbed(tmp_path, data, task, enrol=True, vehicle="V2")
    assert places_told(task, done.reports) == [5] * 4


def test_a_device_reports_what_is_due_now(tmp_path: Path) -> None:
    task, data = make_task(), write_rows(tmp_path / "rows.csv", day_rows())
    midnight = DAY * SECONDS
    perturbed(tmp_path, data, task, "first.bin", enrol=True, now=midnight)
    slots = slots_of(task, tmp_path, DAY)
    for at, slot in enumerate(slots):
        now = midnight + slot * 3600 + 60
        done = perturbed(tmp_path, data, task, f"slot{at}.bin", now=now)
        made = [Report.from_bytes(report) for report in done.reports]
        assert slot in {report.slot for report in made}
        again = perturbed(tmp_path, data, task, f"again{at}.bin", now=now)
        assert again.reports == done.reports
    with pytest.raises(AllowanceError, match="clock went back"):
        perturbed(tmp_path, data, task, "back.bin", now=midnight)


def test_a_device_without_rows_reports_that_now(tmp_path: Path) -> None:
    task = make_task(schedule=Schedule(slots_per_day=24, slot_minutes=60, lateness_minutes=60))
    path = tmp_path / "rows.csv"
    path.write_text("time,speed,load,lon,lat\n")
    done = perturbed(tmp_path, path, task, enrol=True, now=DAY * SECONDS + 30)
    assert places_told(task, done.reports) == [None]
    with pytest.raises(InputError, match="no rows"):
        perturbed(tmp_path, path, task, "more.bin")


HOURLY = Schedule(slots_per_day=24, slot_minutes=60, lateness_minutes=60)
NOW = DAY * SECONDS + 5 * 3600 + 30
HEADER = b"vehicle,time,speed,load,lon,lat\n"
ROW = b"V1,2026-10-14T04:58:00,100,40,104.05,30.65\n"


@pytest.mark.parametrize(
    ("content", "num_missing", "num_skipped"),
    [
        (HEADER + ROW, 0, 0),
        (HEADER + b"V1,,1,1,1,1\n" + ROW, 0, 1),
        (HEADER + ROW + b"V1,soon,1,1,1,1\n,0,1,1,1,1\n", 0, 2),
        (HEADER + b"V1,1,1,1,1,1,1,1\n" + ROW + b"V1\n", 0, 2),
        (HEADER + b"V1,1970-01-01T00:00:00,1,1,1,1\n" + ROW + b"V1,9998-01-01,1,1,1,1\n", 0, 0),
        (HEADER + b"V1,soon,1,1,1,1\n", 1, 1),
        (HEADER + b"V2,0,1,1,1,1\n" + ROW, 1, 0),  # without --vehicle nobody knows whose rows these are
        (HEADER + b"\xff\xfe,0,1,1,1,1\n", 1, 0),
        (HEADER, 1, 0),
        (b"", 1, 0),
        (None, 1, 0),
    ],
)
def test_no_cell_silences_a_device(tmp_path: Path, content: bytes | None, num_missing: int, num_skipped: int) -> None:
    task, path = make_task(schedule=HOURLY), tmp_path / "rows.csv"
    path.write_bytes(HEADER + ROW)
    perturbed(tmp_path, path, task, "first.bin", enrol=True, now=NOW - 3600)
    path.unlink() if content is None else path.write_bytes(content)
    done = perturbed(tmp_path, path, task, now=NOW)
    assert (len(done.reports), done.num_missing, done.num_skipped) == (3, num_missing, num_skipped)
    told = cells_told(task, Report.from_bytes(done.reports[1]))
    assert (told is None) == bool(num_missing)
    assert bool(done.warnings) == (content not in (HEADER + ROW, HEADER) and b"9998" not in (content or b""))
    assert done.to_dict()["skipped"] == num_skipped


def test_a_damaged_parquet_file_silences_no_device(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    for number, content in enumerate((b"", b"PAR1 cut off")):
        path.write_bytes(content)
        folder = tmp_path / str(number)
        folder.mkdir()
        done = perturbed(folder, path, make_task(schedule=HOURLY), enrol=True, now=NOW)
        assert (len(done.reports), done.num_missing, len(done.warnings)) == (3, 1, 1)


def test_a_file_that_could_never_be_used_is_refused_at_a_time_too(tmp_path: Path) -> None:
    task, path = make_task(schedule=HOURLY), tmp_path / "rows.csv"
    for content, says in ((b"vehicle,speed\n", "no such column"), (HEADER + ROW + b"V2" + ROW[2:], "--vehicle")):
        path.write_bytes(content)
        with pytest.raises(InputError, match=says):
            perturbed(tmp_path, path, task, enrol=True, now=NOW)
    for other in (tmp_path, tmp_path / "rows.ods"):
        if other != tmp_path:
            other.write_bytes(b"PK")
        with pytest.raises(InputError):
            perturbed(tmp_path, other, task, enrol=True, now=NOW)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rows.csv", "rows.ods"]


def test_a_clock_years_ahead(tmp_path: Path) -> None:
    task, data = make_task(schedule=HOURLY), write_rows(tmp_path / "rows.csv", day_rows())
    perturbed(tmp_path, data, task, enrol=True, now=NOW)
    held = (tmp_path / "truck.allowance").read_bytes()
    late = NOW + 3_000 * SECONDS
    with pytest.raises(AllowanceError, match="forwards by 3000 days"):
        perturbed(tmp_path, data, task, "late.bin", now=late)
    assert (tmp_path / "truck.allowance").read_bytes() == held
    assert perturbed(tmp_path, data, task, "right.bin", now=NOW + 3600).reports
    assert perturbed(tmp_path, data, task, "late.bin", now=late, accept_clock=True).reports


def test_a_report_file_that_is_an_input(tmp_path: Path) -> None:
    task, data = make_task(), write_rows(tmp_path / "rows.csv", day_rows())
    perturbed(tmp_path, data, task, enrol=True)
    (tmp_path / "hard.jsonl").hardlink_to(tmp_path / "truck.allowance")
    (tmp_path / "soft.bin").symlink_to("truck.allowance")
    (tmp_path / "rows.jsonl").symlink_to("rows.csv")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for out in ("hard.jsonl", "soft.bin", "rows.jsonl"):
        with pytest.raises(OutputError, match="which is needed"):
            perturbed(tmp_path, data, task, out, force=True)
    with pytest.raises(OutputError, match="which is needed"):  # not there yet
        files.perturb(data, task, tmp_path / "y.jsonl", tmp_path / "." / "y.jsonl", enrol=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert (tmp_path / "soft.bin").is_symlink()


def test_a_vehicle_falls_silent(tmp_path: Path) -> None:
    task = make_task(epsilon="1", lifetime="16")  # 12 reports a day
    data = write_rows(tmp_path / "rows.csv", day_rows(days=2))
    done = perturbed(tmp_path, data, task, enrol=True)
    assert (len(done.reports), done.num_silent) == (16, 8)
    late = [{**row, "time": row["time"] + 5 * SECONDS} for row in day_rows()]
    with pytest.raises(AllowanceError, match="used up"):
        perturbed(tmp_path, write_rows(tmp_path / "late.csv", late), task, "late.bin")
    assert not (tmp_path / "late.bin").exists()


def test_refusals_before_anything_is_spent(tmp_path: Path) -> None:
    task, data = make_task(), write_rows(tmp_path / "rows.csv", day_rows())
    (tmp_path / "reports.jsonl").write_text("mine")
    for out, error in (("reports.jsonl", OutputError), ("none/r.bin", OutputError), ("r.txt", ParameterError)):
        with pytest.raises(error):
            perturbed(tmp_path, data, task, out, enrol=True)
    with pytest.raises(AllowanceError, match="enrols"):
        perturbed(tmp_path, data, task, "r.bin")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reports.jsonl", "rows.csv"]


def test_times_centuries_apart(tmp_path: Path) -> None:
    rows = day_rows()
    rows[0]["time"] = 0
    data = write_rows(tmp_path / "rows.csv", rows)
    with pytest.raises(InputError, match="spans"):
        perturbed(tmp_path, data, make_task(), enrol=True)
    with pytest.raises(InputError, match="spans"):
        fleet.simulate(data, make_task(), tmp_path / "r.bin")


def test_allowance_and_lock_are_private(tmp_path: Path) -> None:
    perturbed(tmp_path, write_rows(tmp_path / "rows.csv", day_rows()), make_task(), enrol=True)
    for path in tmp_path.glob("truck.allowance*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_clock() -> None:
    for text in ("", "yesterday", "25:00", "-5"):
        with pytest.raises(ParameterError):
            files.read_clock(text)
    assert abs(files.read_clock("now") - datetime.now(UTC).timestamp()) < 60


# A fleet


def fleet_rows(num: int = 6, days: int = 1) -> list[dict[str, Any]]:
    """Vehicle v stands in cell v all the time."""
    return [row for at in range(num) for row in rows_of(f"V{at}", range(24 * days), [at] * (24 * days))]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_fleet_by_schedule(tmp_path: Path, ending: str) -> None:
    task, data = make_task(), write_rows(tmp_path / f"rows{ending}", fleet_rows(days=2))
    done = fleet.simulate(data, task, tmp_path / "reports.bin")
    reports = list(ReportFile(tmp_path / "reports.bin", task=task))
    assert done.num_reports == len(reports) == 6 * 2 * 4 * 3
    assert (done.num_vehicles, done.num_rows, done.first_day, done.last_day) == (6, 6 * 48, DAY, DAY + 1)
    assert Counter(report.purpose for report in reports) == {0: 48, 1: 48, 2: 48}
    told = Counter((cells_told(task, r), r.day) for r in reports if r.purpose == 1)
    assert told == {(cell, day): 4 for cell in range(6) for day in (DAY, DAY + 1)}
    assert "compose to epsilon 1440" in done.composed[0]
    # At midnight of the first day there is no place before, so such a path is missing.
    paths = Counter(cells_told(task, r) for r in reports if r.purpose == 2 and (r.day, r.slot) != (DAY, 0))
    assert set(paths) == {(cell, cell) for cell in range(6)}


def test_slots_of_a_vehicle_differ_and_are_uniform() -> None:
    from dunnage.noise.source import Noise

    task = make_task()
    drawn = fleet._DrawnSlots(task, Noise())
    drawn.reach(DAY, DAY, 2_000)
    drawn.reach(DAY - 1, DAY + 1, 5_000)
    counts = np.zeros(24)
    for day in (DAY - 1, DAY, DAY + 1):
        vehicles, slots = drawn.of_day(day, 5_000)
        assert (np.bincount(vehicles) == 4).all()
        counts += np.bincount(slots, minlength=24)
    # 60,000 draws, 2,500 of each: ten standard deviations are 490.
    assert counts.sum() == 60_000
    assert np.abs(counts - 2_500).max() < 490


def test_what_was_drawn_stays_drawn() -> None:
    from dunnage.noise.source import Noise

    drawn = fleet._DrawnSlots(make_task(), Noise())
    drawn.reach(DAY, DAY, 10)
    before = drawn.of_day(DAY, 10)
    drawn.reach(DAY - 2, DAY + 2, 1_000)
    np.testing.assert_array_equal(before, drawn.of_day(DAY, 10))


def test_vehicles_without_rows_on_a_day_still_report(tmp_path: Path) -> None:
    task = make_task()
    rows = rows_of("V0", range(48), [3] * 48) + rows_of("V1", [47], [4])
    done = fleet.simulate(write_rows(tmp_path / "rows.parquet", rows), task, tmp_path / "reports.jsonl")
    assert done.num_reports == 2 * 2 * 4 * 3
    assert done.num_missing >= 7


def test_a_fleet_falls_silent(tmp_path: Path) -> None:
    task = make_task(epsilon="1", lifetime="18")  # six slots of three reports
    data = write_rows(tmp_path / "rows.parquet", fleet_rows(days=3))
    done = fleet.simulate(data, task, tmp_path / "reports.bin")
    assert (done.num_reports, done.num_silent) == (6 * 6 * 3, 6 * 6)
    days = Counter(r.day for r in ReportFile(tmp_path / "reports.bin") if r.purpose == 0)
    assert days == {DAY: 24, DAY + 1: 12}
    assert "6 slots of a vehicle compose to epsilon 18" in done.composed[0]


def test_every_row_is_a_slot(tmp_path: Path) -> None:
    task, data = make_task(epsilon="60", lifetime="1000"), write_rows(tmp_path / "rows.parquet", fleet_rows())
    done = fleet.simulate(data, task, tmp_path / "reports.bin", every_row=True)
    reports = list(ReportFile(tmp_path / "reports.bin", task=task))
    assert len(reports) == 6 * 24 * 3
    assert "24 slots of a vehicle compose to epsilon 4320" in done.composed[0]
    assert "beyond the limit" in done.composed[0]
    paths = Counter(cells_told(task, report) for report in reports if report.purpose == 2)
    assert paths == {None: 6, **{(cell, cell): 23 for cell in range(6)}}


def test_paths_of_rows_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of vehicles in one order of time, in batches of every size."""
    places = Purpose(
        name="paths",
        mechanism="local-trajectory",
        tiers=(Tier(name="all", epsilon=SURE),),
        grid=Grid(box=BOX, levels=3),
        steps=3,
        parameters={"method": "randomised-response", "hops": 3},
    )
    task = make_task(purposes=(places,))
    generator = random.Random(3)
    rows = [
        row
        for hour in range(30)
        for vehicle in generator.sample(range(5), 3)
        for row in rows_of(f"V{vehicle}", [hour], [generator.randrange(16)])
    ]
    grid = Grid(box=BOX, levels=3)
    walks: dict[str, list[int]] = {}
    expected: Counter[Any] = Counter()
    for row in rows:
        walk = walks.setdefault(row["vehicle"], [])
        walk.append(grid.cell(row["lon"], row["lat"]))
        expected[tuple(walk[-3:]) if len(walk) >= 3 else None] += 1
    data = write_rows(tmp_path / "rows.parquet", rows)
    for size in (1, 2, 5, 7, 1_000):
        monkeypatch.setattr("dunnage.tables.reader.BATCH_ROWS", size)
        fleet.simulate(data, task, tmp_path / "reports.bin", every_row=True, force=True)
        reports = list(ReportFile(tmp_path / "reports.bin", task=task))
        assert Counter(cells_told(task, report) for report in reports) == expected


def test_paths_of_rows_need_order(tmp_path: Path) -> None:
    rows = fleet_rows()
    rows[3], rows[4] = rows[4], rows[3]
    data = write_rows(tmp_path / "rows.parquet", rows)
    with pytest.raises(InputError, match="Sort the file"):
        fleet.simulate(data, make_task(), tmp_path / "reports.bin", every_row=True)
    assert not list(tmp_path.glob("*reports*"))


@pytest.mark.parametrize("every_row", [True, False])
def test_tallies_are_those_of_reports(tmp_path: Path, every_row: bool) -> None:
    task, data = make_task(tiers=("basic", "strict")), write_rows(tmp_path / "rows.parquet", fleet_rows())
    options: dict[str, Any] = {"every_row": every_row, "seed": 5}
    fleet.simulate(data, task, tmp_path / "reports.bin", **options)
    fleet.simulate(data, task, tmp_path / "tallies.json", tally=True, **options)
    counted = files.collect([tmp_path / "reports.bin"], task).tallies
    tallied = files.read_tallies(tmp_path / "tallies.json", task)
    # At this epsilon places and paths are told as they are, so both must agree; numbers are rounded at random.
    for names in counted.by_tier:
        one, other = counted.by_tier[names], tallied.by_tier[names]
        assert one.num_reports == other.num_reports
        if names[0] != "telemetry":
            assert one.to_dict() == other.to_dict()


def test_tiers_of_a_public_column(tmp_path: Path) -> None:
    task = make_task(tiers=("basic", "strict"))
    rows = [{**row, "tier": "strict" if row["vehicle"] == "V5" else "basic"} for row in fleet_rows()]
    data = write_rows(tmp_path / "rows.parquet", rows)
    fleet.simulate(data, task, tmp_path / "reports.bin", tiers_column="tier")
    told = {(cells_told(task, r), r.tier) for r in ReportFile(tmp_path / "reports.bin") if r.purpose == 1}
    assert told == {*((cell, 0) for cell in range(5)), (5, 1)}


def test_tiers_that_do_not_fit(tmp_path: Path) -> None:
    task = make_task(tiers=("basic", "strict"))
    rows = [{**row, "tier": "basic"} for row in fleet_rows()]
    for tier, says in (("gold", "no tier of the task"), ("strict", "differs")):
        rows[-1]["tier"] = tier
        data = write_rows(tmp_path / "rows.parquet", rows)
        with pytest.raises(InputError, match=says):
            fleet.simulate(data, task, tmp_path / "reports.bin", tiers_column="tier")


def test_tiers_are_drawn_evenly_and_a_seed_repeats_them(tmp_path: Path) -> None:
    task = make_task(tiers=("basic", "strict"))
    rows = [row for at in range(400) for row in rows_of(f"V{at}", [12], [1])]
    data = write_rows(tmp_path / "rows.parquet", rows)
    slots = []
    for out in ("one.bin", "two.bin"):
        fleet.simulate(data, task, tmp_path / out, seed=4)
        slots.append(Counter((r.tier, r.day, r.slot) for r in ReportFile(tmp_path / out)))
    assert slots[0] == slots[1]
    basic = sum(num for (tier, _, _), num in slots[0].items() if tier == 0) / 12
    assert 100 < basic < 300
    ids = [{r.report_id for r in ReportFile(tmp_path / out)} for out in ("one.bin", "two.bin")]
    assert not ids[0] & ids[1]


def test_reports_of_a_vehicle_do_not_lie_together(tmp_path: Path) -> None:
    task = make_task(schedule=Schedule(slots_per_day=24, slot_minutes=60))
    rows = [row for at in range(200) for row in rows_of(f"V{at}", [12], [at % 16])]
    fleet.simulate(write_rows(tmp_path / "rows.parquet", rows), task, tmp_path / "reports.bin")
    at_noon = [r for r in ReportFile(tmp_path / "reports.bin") if r.slot == 12]
    assert len(at_noon) == 600
    assert places_told(task, at_noon) != [at % 16 for at in range(200)]
    assert [r.report_id[::-1] for r in at_noon] == sorted(r.report_id[::-1] for r in at_noon)


def test_vehicles_may_be_numbers_or_names_of_a_dictionary_that_no_row_has(tmp_path: Path) -> None:
    table, path = pa.Table.from_pylist(fleet_rows()), tmp_path / "rows.parquet"
    codes = table["vehicle"].combine_chunks().dictionary_encode().indices
    names = pa.DictionaryArray.from_arrays(codes, pa.array([f"V{at}" for at in range(9)]))
    for vehicles in (names, pa.array([int(name[1:]) for name in table["vehicle"].to_pylist()])):
        pq.write_table(table.set_column(0, "vehicle", vehicles), path)
        assert fleet.simulate(path, make_task(), tmp_path / "reports.bin", force=True).num_vehicles == 6


def test_an_empty_fleet(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(fleet_rows()).slice(0, 0), path)
    for options in ({}, {"every_row": True}, {"every_row": True, "tally": True}):
        out = tmp_path / ("t.json" if "tally" in options else "r.bin")
        with pytest.raises(InputError, match="holds no rows"):
            fleet.simulate(path, make_task(), out, **options)
    assert [item.name for item in tmp_path.iterdir()] == ["rows.parquet"]


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.parquet", fleet_rows())
    with pytest.raises(ParameterError, match="max-age"):
        fleet.simulate(data, make_task(), tmp_path / "r.bin", every_row=True, max_age=5)
    with pytest.raises(ParameterError, match="json"):
        fleet.simulate(data, make_task(), tmp_path / "r.bin", tally=True)
    with pytest.raises(ParameterError, match="bin"):
        fleet.simulate(data, make_task(), tmp_path / "r.json")


def test_too_large_a_fleet_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "MAX_DRAWN_BYTES", 10)
    data = write_rows(tmp_path / "rows.parquet", fleet_rows())
    with pytest.raises(ParameterError, match="Split it"):
        fleet.simulate(data, make_task(), tmp_path / "r.bin")


def test_old_rows_count_if_asked(tmp_path: Path) -> None:
    rows = [row for at in range(6) for row in rows_of(f"V{at}", [0, 12], [at, at])]
    data, task = write_rows(tmp_path / "rows.parquet", rows), make_task()
    strict = fleet.simulate(data, task, tmp_path / "one.bin")
    assert strict.num_missing > 12
    assert any("--max-age" in note for note in strict.notes)
    assert fleet.simulate(data, task, tmp_path / "two.bin", max_age=720).num_missing == 0


# Tasks, reports and tallies of files


@pytest.fixture
def reported(tmp_path: Path) -> tuple[Task, Path]:
    task = make_task()
    fleet.simulate(write_rows(tmp_path / "rows.parquet", fleet_rows()), task, tmp_path / "reports.jsonl")
    return task, tmp_path / "reports.jsonl"


def test_task_files(tmp_path: Path) -> None:
    path, task = tmp_path / "task.json", make_task()
    path.write_text(task.to_json())
    assert files.read_task_file(path).digest == task.digest
    path.write_text(task.to_json().replace('"format": 1', '"format": 2'))
    with pytest.raises(TaskError, match="format 1"):
        files.read_task_file(path)
    policy = tmp_path / "policy.toml"
    policy.write_text("")
    for wrong, says in ((tmp_path / "none.json", "cannot be read"), (tmp_path, "cannot be read"), (policy, "policy")):
        with pytest.raises(TaskError, match=says):
            files.read_task_file(wrong)


def test_bad_reports_are_counted_by_kind(reported: tuple[Task, Path]) -> None:
    task, path = reported
    lines = path.read_text().splitlines()
    other = json.loads(make_other(lines[0]))
    impossible = Report.from_json(lines[1])
    longer = Report(**{**vars(impossible), "payload": b"\xff" * 9, "report_id": bytes(8)})
    twin = Report(**{**vars(impossible), "slot": (impossible.slot + 1) % 24})
    extra = [json.dumps(other), longer.to_json(), lines[2], twin.to_json(), lines[3][:-9], "{}"]
    path.write_text("\n".join([*lines, *extra]))
    found = files.collect([path], task)
    assert found.num_reports == len(lines)
    assert found.left_out == {"other_task": 1, "impossible": 1, "duplicate": 1, "conflicting": 1, "damaged": 2}
    assert len(found.lines()) == 5
    assert len(found.first_bad) == 4


def make_other(line: str) -> str:
    report = Report.from_json(line)
    return Report(**{**vars(report), "task": bytes(8)}).to_json()


def test_only_bad_reports_are_refused(reported: tuple[Task, Path], tmp_path: Path) -> None:
    task, path = reported
    with pytest.raises(ReportError, match="another task"):
        files.collect([path], make_task(version=2))
    empty = tmp_path / "empty.bin"
    empty.write_bytes(b"")
    with pytest.raises(ReportError, match="no report"):
        files.collect([empty], task)
    with pytest.raises(InputError):
        files.collect([tmp_path / "none.bin"], task)


def test_a_truncated_file_keeps_what_came_before(reported: tuple[Task, Path], tmp_path: Path) -> None:
    task, path = reported
    reports = list(ReportFile(path))
    whole = tmp_path / "reports.bin"
    write_reports(whole, reports)
    cut = tmp_path / "cut.bin"
    cut.write_bytes(whole.read_bytes()[:-3])
    found = files.collect([cut], task)
    assert (found.num_reports, found.left_out) == (len(reports) - 1, {"damaged": 1})


def test_reports_and_tallies_add_up(reported: tuple[Task, Path], tmp_path: Path) -> None:
    task, path = reported
    fleet.simulate(tmp_path / "rows.parquet", task, tmp_path / "tallies.json", tally=True)
    once = files.collect([path], task)
    both = files.collect([path, tmp_path / "tallies.json"], task)
    assert both.num_reports == 2 * once.num_reports
    assert once.warnings == files.collect([tmp_path / "tallies.json"], task).warnings == []
    assert len(both.warnings) == 1
    assert "no ids" in both.to_dict()["warnings"][0]


def test_the_same_tallies_are_not_collected_twice(reported: tuple[Task, Path], tmp_path: Path) -> None:
    task, path = reported
    one, again, other = (tmp_path / f"{name}.json" for name in ("one", "again", "other"))
    fewer = write_rows(tmp_path / "fewer.parquet", fleet_rows(5))
    for data, out in ((tmp_path / "rows.parquet", one), (fewer, other)):
        fleet.simulate(data, task, out, tally=True)
    again.write_text(json.dumps(json.loads(one.read_text()), indent=3))
    for paths in ((one, one), (one, path, again), (other, one, again)):
        with pytest.raises(InputError, match="count twice"):
            files.collect(paths, task)
    assert files.collect([one, other], task).num_reports == (6 + 5) * 4 * 3


WHOLE = [{"task": "0" * 64}, {"kind": "another"}, {"format": 2}, {"tallies": {}}]
OF_TALLY = [{"tier": "gold"}, {"purpose": "shoes"}, {"num_reports": -1}, {"num_reports": 1}]
OF_COUNTS = [{"num": 10**6}, {"key": [99]}, {"counts": [0], "shape": [1]}, {"kind": "bits"}]
OF_SUMS = [{"total": 10**9}, {"key": [0, "laplace"]}, {"key": [9, "duchi"]}]


def test_tallies_that_cannot_be(tmp_path: Path) -> None:
    task, path = make_task(), tmp_path / "tallies.json"
    fleet.simulate(write_rows(tmp_path / "rows.parquet", fleet_rows()), task, path, tally=True)
    text = path.read_text()
    assert [item["purpose"] for item in json.loads(text)["tallies"]] == ["paths", "places", "telemetry"]
    changes: list[Any] = [lambda data, change=change: data.update(change) for change in WHOLE]
    changes += [lambda data, change=change: data["tallies"][0].update(change) for change in OF_TALLY]
    changes += [lambda data, change=change: data["tallies"][0]["parts"][0].update(change) for change in OF_COUNTS]
    changes += [lambda data, change=change: data["tallies"][2]["parts"][0].update(change) for change in OF_SUMS]
    changes += [lambda data: data["tallies"].append(data["tallies"][0])]
    changes += [lambda data: data["tallies"][0]["parts"][0]["counts"].append(0)]
    for change in changes:
        data = json.loads(text)
        change(data)
        path.write_text(json.dumps(data))
        with pytest.raises(InputError):
            files.read_tallies(path, task)


@pytest.mark.parametrize(
    ("mechanism", "parameters"),
    [
        ("local-numeric", {"method": "hybrid"}),
        ("local-numeric", {"method": "square-wave"}),
        ("local-numeric", {"as_published": True}),
        ("local-location", {"method": "optimised-unary"}),
        ("local-location", {"method": "hadamard"}),
        ("local-location", {"method": "planar"}),
        ("local-location", {"as_published": True}),
        ("local-location", {"area_in_clear": True}),
        ("local-trajectory", {"as_published": True}),
        ("local-trajectory", {"area_in_clear": True}),
    ],
)
def test_tallies_of_every_law_come_back(tmp_path: Path, mechanism: str, parameters: dict[str, Any]) -> None:
    numeric = mechanism == "local-numeric"
    purpose = Purpose(
        name="one",
        mechanism=mechanism,
        tiers=(Tier(name="all", epsilon="1"),),
        quantities=(Quantity(name="speed", low="0", high="100", missing="symbol"),) if numeric else (),
        grid=None if numeric else Grid(box=BOX, levels=3, area_levels=2),
        steps=2 if mechanism == "local-trajectory" else 1,
        parameters=parameters,
    )
    schedule = Schedule(slots_per_day=4, slot_minutes=60)
    task = Task(
        dataset="fleet",
        purposes=(purpose,),
        schedule=schedule,
        limits=Limits(lifetime=Fraction(10_000), allow_unbounded=True),
    )
    data = write_rows(tmp_path / "rows.parquet", fleet_rows())
    fleet.simulate(data, task, tmp_path / "tallies.json", tally=True)
    fleet.simulate(data, task, tmp_path / "reports.bin")
    tallies = files.read_tallies(tmp_path / "tallies.json", task)
    assert tallies.num_reports == files.collect([tmp_path / "reports.bin"], task).num_reports == 24
    # What is counted from reports must pass the same check.
    counted = files.collect([tmp_path / "reports.bin"], task).tallies
    (tmp_path / "again.json").write_text(json.dumps(counted.to_dict()))
    again = files.read_tallies(tmp_path / "again.json", task)
    assert again.to_dict() == counted.to_dict()
    assert all(isinstance(tally, Tally) for tally in again.by_tier.values())


def test_files_are_described(reported: tuple[Task, Path], tmp_path: Path) -> None:
    task, path = reported
    data, text = files.describe_reports(path)
    assert data["reports"] == 72
    assert {group["task"] for group in data["groups"]} == {task.prefix.hex()}
    assert "2026-10-14" in text
    fleet.simulate(tmp_path / "rows.parquet", task, tmp_path / "tallies.json", tally=True)
    data, text = files.describe_tallies(tmp_path / "tallies.json")
    assert data["reports"] == 72
    assert "telemetry, tier all: 24" in text


# Identity records


RECORDS = 'vehicle,plate,owner\nV1,"XY ""12""",Zoë\nV2,,"a\nb"\n'


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing.new()


def test_records_come_back_from_their_seals(tmp_path: Path, ring: KeyRing) -> None:
    plain, sealed, back = (tmp_path / name for name in ("plain.csv", "sealed.jsonl", "back.csv"))
    plain.write_text(RECORDS, encoding="utf-8")
    assert identity.seal_file(plain, ring, sealed) == 2
    written = sealed.read_text(encoding="utf-8")
    assert not any(name in written for name in ("Zoë", "Zo\\u00eb", "XY "))
    assert identity.open_file(sealed, ring, back) == 2
    with plain.open(newline="", encoding="utf-8") as one, back.open(newline="", encoding="utf-8") as other:
        assert list(csv.reader(one)) == list(csv.reader(other))
    assert stat.S_IMODE(back.stat().st_mode) == 0o600


def test_keys_are_rotated(tmp_path: Path, ring: KeyRing) -> None:
    plain, sealed, newer, back = (tmp_path / name for name in ("p.csv", "s.jsonl", "n.jsonl", "b.csv"))
    plain.write_text(RECORDS, encoding="utf-8")
    identity.seal_file(plain, ring, sealed)
    renewed = ring.renewed()
    assert identity.rotate_file(sealed, renewed, newer) == 2
    without = renewed.without(ring.active.key_id)
    assert identity.open_file(newer, without, back) == 2
    back.unlink()
    with pytest.raises(SealError):
        identity.open_file(sealed, without, back)
    assert not list(tmp_path.glob("*b.csv*"))


def test_a_record_moved_to_another_alias(tmp_path: Path, ring: KeyRing) -> None:
    plain, sealed = tmp_path / "p.csv", tmp_path / "s.jsonl"
    plain.write_text(RECORDS, encoding="utf-8")
    identity.seal_file(plain, ring, sealed)
    sealed.write_text(sealed.read_text().replace('"V1"', '"V9"'))
    with pytest.raises(SealError):
        identity.open_file(sealed, ring, tmp_path / "b.csv")
    with pytest.raises(SealError):
        identity.rotate_file(sealed, ring.renewed(), tmp_path / "n.jsonl")
    assert sorted(os.listdir(tmp_path)) == ["p.csv", "s.jsonl"]


def test_records_that_cannot_be_sealed(tmp_path: Path, ring: KeyRing) -> None:
    plain = tmp_path / "p.csv"
    for text, says in (
        ("", "empty"),
        ("vehicle,plate\n", "empty"),
        ("plate\nX\n", "no such column"),
        ("vehicle,plate,plate\nV1,a,b\n", "twice"),
        ("vehicle,plate\nV1\n", "fewer cells"),
        ("vehicle,plate\n,X\n", "missing in row 1"),
        ("vehicle,plate\nV1,X\nV1,Y\n", "comes twice in row 2"),
        ('vehicle,plate\nV1,"X\n', "quote"),
    ):
        plain.write_text(text)
        with pytest.raises(InputError, match=says):
            identity.seal_file(plain, ring, tmp_path / "s.jsonl")
        assert os.listdir(tmp_path) == ["p.csv"]


def test_lines_that_are_no_sealed_records(tmp_path: Path, ring: KeyRing) -> None:
    sealed = tmp_path / "s.jsonl"
    for text in ("", "{}\n", "[]\n", '{"alias": "V1"', '{"alias": 1, "sealed": {}}'):
        sealed.write_text(text)
        with pytest.raises(InputError):
            identity.open_file(sealed, ring, tmp_path / "b.csv")
