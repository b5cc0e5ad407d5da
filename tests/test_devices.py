"""Files of devices: reading rows, one vehicle's reports, a simulated fleet, tallies and sealed records."""

from __future__ import annotations

import csv
import functools
import itertools
import json
import math
import os
import random
import stat
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chance_help import chance_of
from tests.estimates_help import refuses

from dunnage.collecting import files, fleet, identity
from dunnage.collecting.estimate import estimate
from dunnage.collecting.files import MICROS, FileColumns, Log, RowFile, Rows, Window
from dunnage.collecting.identity import KeyRing
from dunnage.collecting.tally import Tally
from dunnage.devices.allowance import Allowance
from dunnage.devices.client import mechanism_of
from dunnage.devices.places import ORACLES, RandomisedResponse
from dunnage.devices.report import Report, ReportFile, write_reports
from dunnage.devices.task import Grid, Limits, Purpose, Quantity, Schedule, Task, Tier
from dunnage.errors import AllowanceError, InputError, OutputError, ParameterError, ReportError, SealError, TaskError
from dunnage.tables import columns as cells

DAY = 20_740  # 14 October 2026
SECONDS = 86_400
BOX = ("103.9", "30.5", "104.2", "30.8")
GRID = Grid(box=BOX, levels=3)
SURE = "60"  # a report at this epsilon tells the truth: one that lies would be seen once in e^60 runs
HOURLY = Schedule(slots_per_day=24, slot_minutes=60, lateness_minutes=60)
RESPONSE = {"method": "randomised-response"}


def make_task(*, epsilon=SURE, lifetime="100000", tiers=("all",), **more):
    """Two numbers, places and paths of two steps, four of 24 hourly slots a day."""
    levels = tuple(Tier(name=name, epsilon=epsilon) for name in tiers)
    numbers = tuple(
        Quantity(name=name, low="0", high=high, steps=4) for name, high in (("speed", "100"), ("load", "40"))
    )
    duties = [
        ("telemetry", "local-numeric", {"quantities": numbers, "parameters": {"method": "duchi"}}),
        ("places", "local-location", {"grid": GRID, "parameters": RESPONSE}),
        ("paths", "local-trajectory", {"grid": GRID, "parameters": RESPONSE, "steps": 2}),
    ]
    purposes = tuple(Purpose(name=name, mechanism=kind, tiers=levels, **rest) for name, kind, rest in duties)
    schedule = Schedule(slots_per_day=4, slot_minutes=60, lateness_minutes=60)
    facts = {"purposes": purposes, "schedule": schedule, **more}
    return Task(dataset="fleet", limits=Limits(lifetime=lifetime), **facts)


def rows_of(vehicle, hours, places):
    """One row at each hour after the first midnight, at the middle of a cell; the speed is 100 in cell 5, else 0."""
    rows = []
    for hour, cell in zip(hours, places, strict=True):
        (lon, lat), there = GRID.centre(cell), cell == 5
        moment = DAY * SECONDS + int(hour * 3600)
        rows.append(
            {"vehicle": vehicle, "time": moment, "speed": 100.0 * there, "load": 40.0 * there, "lon": lon, "lat": lat}
        )
    return rows


def day_rows(vehicle="V1", days=1):
    hours = range(24 * days)
    return rows_of(vehicle, hours, [hour % 16 for hour in hours])


def fleet_rows(num=6, days=1):
    """Vehicle v stands in cell v all the time."""
    return [row for at in range(num) for row in rows_of(f"V{at}", range(24 * days), [at] * (24 * days))]


def write_rows(path, rows):
    table = pa.Table.from_pylist(rows)
    stamps = pa.array([row["time"] * 10**6 for row in rows], pa.timestamp("us"))
    table = table.set_column(table.column_names.index("time"), "time", stamps)
    if path.suffix == ".csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=7)
    return path


def cells_told(task, report):
    """Read what a report of places or paths says."""
    purpose = task.purposes[report.purpose]
    mechanism = mechanism_of(task, purpose)
    ((_, symbol),) = mechanism.read(report.payload, tier=task.slot_tiers(purpose)[report.tier])
    if purpose.name == "places":
        return None if symbol == GRID.outside else symbol
    return mechanism.paths.cells(symbol)


def places_told(task, reports):
    """Read what the reports of places among some say, in order."""
    read = [report if isinstance(report, Report) else Report.from_bytes(report) for report in reports]
    return [cells_told(task, report) for report in read if report.purpose == 1]


def problems_of(caught):
    return [(problem.where, problem.rows) for problem in caught.value.problems]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


MOMENTS = {
    "1970-01-01T00:00:01": MICROS,
    "1970-01-01 00:00:01": MICROS,
    "1970-01-01T00:00:01Z": MICROS,
    "1970-01-01T08:00:01+08:00": MICROS,
    "1970-01-01T08:00:01.5+0800": 1_500_000,
    "1970-01-02": SECONDS * MICROS,
    "86400": SECONDS * MICROS,
    "0.25": 250_000,
    "20261014": DAY * SECONDS * MICROS,
    "\N{DIGIT ONE}": MICROS,
}
NO_MOMENTS = ["1969-12-31T23:59:59", "1970-01-01T00:00:00+08:00", "14/10/2026 08:00", "", "soon", "9" * 400]
NO_MOMENTS += ["1791965100000", "\N{ARABIC-INDIC DIGIT ONE}"]  # the first are milliseconds


def test_moments_of_text():
    for text, micros in [*MOMENTS.items(), *((text, -1) for text in NO_MOMENTS)]:
        assert cells.parse_moment(text) == micros, text
        found, wrong = cells.moments_of(pa.array([text, "soon", None, "1970-01-01T00:00:07"]))
        assert wrong.tolist() == [micros < 0, True, True, False], text
        assert (found[0] if micros >= 0 else -1, found[3]) == (micros, 7 * MICROS), text


@given(moment=st.datetimes(datetime(1970, 1, 2), datetime(9990, 1, 1)), hours=st.integers(-12, 12))
@settings(max_examples=60, deadline=None)
def test_a_zone_changes_the_text_not_the_moment(moment, hours):
    there = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=hours)))
    assert cells.parse_moment(there.isoformat()) == cells.parse_moment(moment.isoformat())


def test_moments_of_other_types():
    for unit, per in {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}.items():
        found, wrong = cells.moments_of(pa.array([7 * per, None, -1, 0], pa.timestamp(unit)))
        assert wrong.tolist() == [False, True, True, False], unit
        assert found[[0, 3]].tolist() == [7 * MICROS, 0], unit
        zoned = pa.array([7 * per], pa.timestamp(unit, "America/Detroit"))
        assert cells.moments_of(zoned)[0].tolist() == [7 * MICROS], unit
    for kind in (pa.int64(), pa.uint64(), pa.float64(), pa.int32()):
        found, wrong = cells.moments_of(pa.array([7, None], kind))
        assert (found[0], wrong.tolist()) == (7 * MICROS, [False, True]), kind
    assert cells.moments_of(pa.array([1], pa.date32()))[0].tolist() == [SECONDS * MICROS]
    too_large = pa.array([2**64 - 1], pa.uint64()), pa.array([2**62], pa.timestamp("s"))
    for column in (*too_large, pa.array([math.nan, math.inf, -1.0])):
        assert cells.moments_of(column)[1].all(), column


def test_numbers():
    texts = ["1.5", " 2 ", "", "NaN", "n/a", "abc", "1_000", "+4", "1e400", "-inf", None, "61,5"]
    found, num_wrong = cells.numbers_of(pa.array(texts))
    assert num_wrong == 3
    np.testing.assert_array_equal(found, [1.5, 2, *[math.nan] * 5, 4, math.inf, -math.inf, *[math.nan] * 2])
    clean, none = cells.numbers_of(pa.array(["1.5", "", "2"]))
    np.testing.assert_array_equal(clean, [1.5, math.nan, 2])
    assert none == 0
    for column in ([1, None], [Decimal("1.0"), None], [1.0, math.nan], pa.array(["1", ""]).dictionary_encode()):
        np.testing.assert_array_equal(cells.numbers_of(pa.array(column))[0], [1, math.nan])


def row_file(path):
    return RowFile(path, numbers=["speed"], time="time", labels=["vehicle"])


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_files_read_the_same(tmp_path, ending):
    path = write_rows(tmp_path / f"rows{ending}", day_rows("V1") + day_rows("V2"))
    batches = list(row_file(path))
    assert np.concatenate([rows.numbers["speed"] for rows in batches]).tolist() == [r["speed"] for r in day_rows() * 2]
    assert np.concatenate([rows.micros for rows in batches]).tolist() == [r["time"] * MICROS for r in day_rows() * 2]
    assert [v for rows in batches for v in rows.labels["vehicle"].to_pylist()] == ["V1"] * 24 + ["V2"] * 24
    with pytest.raises(InputError) as caught:  # all missing columns are named at once
        RowFile(path, numbers=["speed", "height"], time="when", labels=["plate"])
    assert [where for where, _ in problems_of(caught)] == ["plate", "when", "height"]


def test_unreadable_files(tmp_path):
    header = b"vehicle,time,speed\n"
    for name, content, problems in [
        ("rows.csv", b"", [("", ())]),
        ("rows.csv", b"\n\n", [("", ())]),
        ("rows.csv", header + b"V1,0,1,2\nV1,0,1\n", [("", (1,))]),
        ("rows.csv", header + b"V1,0,1\nSECRET,SECRET,1\n", [("time", (2,))]),
        ("rows.csv", header + b"V1,,1\n", [("time", (1,))]),
        ("rows.csv", header + b",0,1\n", [("vehicle", (1,))]),
        ("rows.csv", header + b"\xff\xfe,0,1\n", [("", ())]),
        ("rows.csv", b"vehicle,time,speed,speed\nV1,0,1,1\n", [("speed", ())]),
        ("rows.csv", b"PAR1\0\0\0", [("vehicle", ()), ("time", ()), ("speed", ())]),
        ("rows.csv.gz", b"\x1f\x8b\x08\0garbage", [("", ())]),
        ("rows.parquet", b"PAR1 cut off", [("", ())]),
        ("rows.ods", b"PK", [("", ())]),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError) as caught:
            list(row_file(tmp_path / name))
        assert problems_of(caught) == problems, content
        assert "SECRET" not in str(caught.value)  # errors quote no cell
    typed = tmp_path / "typed.parquet"
    pq.write_table(pa.table({"vehicle": [1.5], "time": [True], "speed": [[1.0]]}), typed)
    with pytest.raises(InputError) as caught:
        row_file(typed)
    assert [where for where, _ in problems_of(caught)] == ["vehicle", "time", "speed"]
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(InputError):
            row_file(path)


def test_cells_that_are_no_numbers_are_counted(tmp_path):
    (tmp_path / "rows.csv").write_text("vehicle,time,speed\nV1,0,fast\nV1,1,\nV1,2,7\n")
    source = row_file(tmp_path / "rows.csv")
    (rows,) = source
    np.testing.assert_array_equal(rows.numbers["speed"], [math.nan, math.nan, 7])
    (note,) = source.notes()
    assert note.startswith("speed: 1 ")


def test_parameters_are_checked():
    for wrong in ({"places": ("lon",)}, {"vehicle": "time"}):
        with pytest.raises(ParameterError):
            FileColumns(**wrong)
    for max_age in (0, -1, 1441):
        with pytest.raises(ParameterError):
            Window(task=make_task(), max_age=max_age)
    for text in ("", "yesterday", "25:00", "-5"):
        with pytest.raises(ParameterError):
            files.read_clock(text)
    assert abs(files.read_clock("now") - datetime.now(UTC).timestamp()) < 60


def slow_latest(rows, vehicle, moment, age):
    """The same, row by row."""
    best, value = (-1, -1), math.nan
    for at, (own, micros, number) in enumerate(rows):
        late_enough = moment * MICROS - age * MICROS < micros <= moment * MICROS
        if own == vehicle and late_enough and (micros, at) > best:
            best, value = (micros, at), number
    return value


def test_the_latest_row_of_a_slot():
    task, zeros = make_task(), np.zeros(3, dtype=np.int64)
    empty = Log(Window(task=task), FileColumns())
    empty.close()
    assert empty.readings(zeros, zeros, zeros + DAY).num_missing == 3
    for max_age in (None, 1, 90, 1440):
        window, draw = Window(task=task, max_age=max_age), random.Random(7)
        log, rows = Log(window, FileColumns()), []
        for first in (0, 40):
            some = [
                (draw.randrange(3), DAY * SECONDS * MICROS + draw.randrange(30 * 3600 * MICROS), float(at))
                for at in range(first, first + 40)
            ]
            some += [(2, (DAY * SECONDS + 3600) * MICROS + extra, 100.0 + extra) for extra in (-1, 0, 0, 1)]
            some += [(3, (DAY * SECONDS + 3600) * MICROS, 7.0)]  # just too old an hour later
            rows += some
            own, micros, numbers = (np.array(column) for column in zip(*some, strict=True))
            columns = dict.fromkeys(FileColumns().numbers_of(task), numbers)
            log.add(own, Rows(1, len(some), columns, micros))
        log.close()
        pairs = [(vehicle, DAY * 24 + hour) for vehicle in range(4) for hour in range(-1, 33)]
        vehicles, slots = (np.array(column) for column in zip(*pairs, strict=True))
        found = log.readings(vehicles, vehicles, slots)
        for back, step in enumerate(reversed(found.steps)):
            expected = [slow_latest(rows, v, (s - back) * 3600, window.age_seconds) for v, s in pairs]
            np.testing.assert_array_equal(step["speed"], expected)
        assert found.num_missing == int(np.isnan(found.steps[-1]["speed"]).sum())


def days_of(num=1, *, after=0):
    """Some days of the rows, as they are stated to play them back."""
    return tuple(files.day_text(DAY + after + day) for day in (0, num - 1))


def perturbed(folder, data, task, out="reports.jsonl", *, num=1, after=0, **more):
    """Play back some days, by default the first, or report what is due at a time."""
    more = {"days": days_of(num, after=after), **more} if "now" not in more else more
    return files.perturb(data, task, folder / "truck.allowance", folder / out, cap="none", **more)


def spent_in(folder, task):
    with Allowance.open(folder / "truck.allowance", task) as allowance:
        return allowance.spent_in_all().num_reports


@pytest.mark.parametrize(("ending", "rows"), [(".jsonl", "rows.csv"), (".bin", "rows.parquet")])
def test_each_slot_reports_each_purpose_once_and_again_the_same(tmp_path, ending, rows):
    shuffled = day_rows()
    random.Random(1).shuffle(shuffled)  # rows need no order
    task, data, out = make_task(), write_rows(tmp_path / rows, shuffled), f"reports{ending}"
    done = perturbed(tmp_path, data, task, out, enrol=True)
    reports = list(ReportFile(tmp_path / out, task=task))
    with Allowance.open(tmp_path / "truck.allowance", task) as allowance:
        slots = allowance.slots(DAY)
    assert [(r.day, r.slot, r.purpose) for r in reports] == [(DAY, s, p) for s in slots for p in range(3)]
    assert (len(done.reports), done.num_slots, done.num_missing) == (12, 4, 0)
    for report in reports:
        if report.purpose == 1:
            assert cells_told(task, report) == report.slot % 16
        elif report.purpose == 2 and report.slot > 0:
            mechanism = mechanism_of(task, task.purposes[2])
            walk = [GRID.centre((report.slot + back) % 16) for back in (-1, 0)]
            assert mechanism.paths.index(cells_told(task, report)) == mechanism.index(walk)
    private = list(tmp_path.glob("truck.allowance*"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    allowance = (tmp_path / "truck.allowance").read_bytes()
    assert perturbed(tmp_path, data, task, f"again{ending}").num_again == 12
    assert (tmp_path / f"again{ending}").read_bytes() == (tmp_path / out).read_bytes()
    assert (tmp_path / "truck.allowance").read_bytes() == allowance


@pytest.mark.parametrize(
    ("days", "at"), [(1, "draw"), (5, "store"), (5, "write"), (5, "rename")], ids=lambda part: str(part)
)
def test_a_crash_loses_nothing(tmp_path, monkeypatch, days, at):
    task, data = make_task(), write_rows(tmp_path / "rows.csv", day_rows(days=days))
    stored, store = [], Allowance.store
    last = {"draw": 5, "store": 50}.get(at)

    def note(self, slot, purpose, report):
        if len(stored) == last:
            raise KeyboardInterrupt
        store(self, slot, purpose, report)
        stored.append(report)

    def crash(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(Allowance, "store", note)
    if at == "write":
        monkeypatch.setattr("dunnage.collecting.files.write_reports", crash)
    elif at == "rename":
        monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        perturbed(tmp_path, data, task, num=days, enrol=True)
    monkeypatch.undo()
    assert not (tmp_path / "reports.jsonl").exists()
    done = perturbed(tmp_path, data, task, num=days)
    assert done.reports[: len(stored)] == stored
    assert (len(done.reports), done.num_again, done.num_lapsed) == (12 * days, len(stored), 0)
    if at == "draw":  # the slot that was spent in vain reports the missing input, and is not spent again
        lost = Report.from_bytes(done.reports[5])
        assert (lost.purpose, cells_told(task, lost)) == (2, None)
    assert spent_in(tmp_path, task) == 12 * days


def test_several_days_and_a_day_without_rows(tmp_path):
    task = make_task()
    rows = [row for row in day_rows(days=3) if row["time"] // SECONDS != DAY + 1]
    done = perturbed(tmp_path, write_rows(tmp_path / "rows.csv", rows), task, num=3, enrol=True)
    reports = [Report.from_bytes(data) for data in done.reports]
    assert Counter(report.day for report in reports) == {DAY: 12, DAY + 1: 12, DAY + 2: 12}
    assert places_told(task, [report for report in reports if report.day == DAY + 1]) == [None] * 4
    # The first days have closed, but their reports are kept until later days are written.
    written = (tmp_path / "reports.jsonl").read_bytes()
    again = perturbed(tmp_path, tmp_path / "rows.csv", task, num=3, force=True)
    assert (again.reports, again.num_again, again.num_lapsed) == (done.reports, 36, 0)
    assert (tmp_path / "reports.jsonl").read_bytes() == written


def test_written_days_are_forgotten_when_later_ones_are_written(tmp_path):
    task, later = make_task(), [row for row in day_rows(days=6) if row["time"] // SECONDS >= DAY + 4]
    early = write_rows(tmp_path / "early.csv", day_rows(days=3))
    done = perturbed(tmp_path, early, task, num=3, enrol=True)
    perturbed(tmp_path, write_rows(tmp_path / "later.csv", later), task, "later.jsonl", num=2, after=4)
    allowance = (tmp_path / "truck.allowance").read_bytes()
    # What cannot be given again is not replaced, and nothing is spent to find out.
    for num in (3, 9):
        with pytest.raises(OutputError):
            perturbed(tmp_path, early, task, num=num, force=True)
    assert [r.to_bytes() for r in ReportFile(tmp_path / "reports.jsonl")] == done.reports
    assert (tmp_path / "truck.allowance").read_bytes() == allowance
    # A file of other days may be replaced.
    perturbed(tmp_path, tmp_path / "later.csv", task, num=2, after=4, force=True)


def tiny_task(**schedule):
    """One report a day at epsilon 1, which says in which quarter of the box the vehicle is."""
    here = Purpose(
        name="places",
        mechanism="local-location",
        tiers=(Tier(name="all", epsilon="1"),),
        grid=Grid(box=BOX, levels=2),
        parameters=RESPONSE,
    )
    schedule = Schedule(slots_per_day=1, slot_minutes=1440, **schedule)
    return Task(dataset="fleet", purposes=(here,), schedule=schedule, limits=Limits(lifetime="100"))


def show_inputs(monkeypatch):
    """Let reports say what they are about instead of something random."""
    monkeypatch.setattr("dunnage.devices.places.RandomisedResponse.perturb", lambda law, index, noise: index)


def inputs_of(task, reports):
    """Return what is visible of some reports, and what each is about."""
    read = [report if isinstance(report, Report) else Report.from_bytes(report) for report in reports]
    mechanism = mechanism_of(task, task.purposes[0])
    inputs = tuple(mechanism.read(report.payload, tier="all")[0][1] for report in read)
    return tuple((report.day, report.slot, report.purpose, report.tier) for report in read), inputs


@functools.cache
def exact_loss(one, other):
    """Return the largest log ratio of all that can be seen at epsilon 1 between two histories, trying all outputs."""
    if one[0] != other[0]:
        return math.inf  # told apart for certain
    law = RandomisedResponse(num_inputs=5, epsilon=Fraction(1))
    chance = dict(zip((True, False), map(math.log, law.chances(math.exp(-1))), strict=True))
    return max(
        sum(chance[out == a] - chance[out == b] for out, a, b in zip(outputs, one[1], other[1], strict=True))
        for outputs in itertools.product(range(5), repeat=len(one[1]))
    )


ROWS_OF_SLOT = {
    "there": "{day}T00:00:00,104.05,30.65",
    "away": "{day}T00:00:00,0,0",
    "nowhere": "{day}T00:00:00,,x",
    "no moment": "soon,104.05,30.65",
    "no row": None,
    "cut off": "{day}T00:00:00",
}


@pytest.mark.parametrize("stated", ["days", "task"])
def test_one_slot_changes_the_odds_of_a_playback_by_epsilon_at_most(tmp_path, monkeypatch, stated):
    """All histories of two days, each slot with any kind of row: enumerated, no chance involved."""
    show_inputs(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    task = tiny_task(days=days_of(2)) if stated == "task" else tiny_task()
    seen = {}
    for history in itertools.product(ROWS_OF_SLOT, repeat=2):
        lines = [
            ROWS_OF_SLOT[kind] and ROWS_OF_SLOT[kind].format(day=day) for kind, day in zip(history, DATES, strict=True)
        ]
        (tmp_path / "rows.csv").write_text("\n".join(["time,lon,lat", *filter(None, lines)]) + "\n")
        for old in tmp_path.glob("*.allowance*"):
            old.unlink()
        own = (tmp_path / "rows.csv", task, tmp_path / "truck.allowance", tmp_path / "out.bin")
        days = None if stated == "task" else days_of(2)
        done = files.perturb(*own, days=days, enrol=True, force=True)
        seen[history] = inputs_of(task, done.reports)
    losses = []
    for one, other in itertools.product(seen, repeat=2):
        if sum(a != b for a, b in zip(one, other, strict=True)) == 1:
            losses.append(exact_loss(seen[one], seen[other]))
    assert max(losses) == pytest.approx(1, abs=1e-12)


DATES = [files.day_text(DAY + day) for day in range(2)]


@pytest.mark.parametrize("content", ["empty", "header", "no columns typed", "damaged", "no files"])
def test_a_file_without_rows_is_played_back_like_any_other(tmp_path, content):
    task, path = tiny_task(), tmp_path / ("rows.parquet" if content in ("no columns typed", "damaged") else "rows.csv")
    if content == "no columns typed":
        pq.write_table(pa.table({name: pa.nulls(2) for name in ("vehicle", "time", "lon", "lat")}), path)
    elif content == "no files":
        (path := tmp_path / "rows").mkdir()
    else:
        path.write_text({"empty": "", "header": "time,lon,lat\n", "damaged": "PAR1"}[content])
    done = perturbed(tmp_path, path, task, num=3, enrol=True)
    assert (len(done.reports), done.num_missing) == (3, 3)


def test_one_slot_is_never_reported_twice_through_links_locks_or_copies(tmp_path, monkeypatch):
    """What an owner can do by accident with the file: the exact loss of a slot stays at the stated epsilon."""
    show_inputs(monkeypatch)
    task, now = tiny_task(), DAY * SECONDS + 60
    header = "time,lon,lat\n"
    rows = {"there": header + f"{DATES[0]}T00:00:00,104.05,30.65\n", "away": header}
    seen = {}
    for truth, text in rows.items():
        folder = tmp_path / truth
        folder.mkdir()
        (folder / "rows.csv").write_text(text)
        (own := folder / "own").with_name("link").symlink_to("own")
        reports = []

        def report(allowance, **more):
            out = folder / f"{len(reports)}.bin"  # noqa: B023
            try:
                done = files.perturb(folder / "rows.csv", task, folder / allowance, out, now=now, **more)  # noqa: B023
            except AllowanceError:
                return
            reports.extend(done.reports)  # noqa: B023

        with Allowance.open(own, task, enrol=True, now=now):
            pass
        before = {file: file.read_bytes() for file in folder.glob("own*")}
        report("link")
        report("own")
        (folder / "own.lock").unlink()
        with Allowance.open(own, task):
            (folder / "own.lock").unlink()
            report("own")
        after = own.read_bytes()
        own.write_bytes(before[own])  # an older copy
        report("own")
        (folder / "copy").write_bytes(before[own])
        report("copy")
        report("copy", enrol=True)
        own.write_bytes(after)
        report("own")
        (folder / "hard").hardlink_to(own)
        report("hard")
        report("own")
        seen[truth] = inputs_of(task, set(reports))
        assert len(reports) == 3  # through the link, and the same bytes twice
    assert exact_loss(seen["there"], seen["away"]) == pytest.approx(1, abs=1e-12)


def test_odd_values_still_report(tmp_path):
    task, path = make_task(), tmp_path / "rows.csv"
    lines = [f"2026-10-14T{hour:02}:00:00,fast,NaN,500,-inf" for hour in range(24)]
    path.write_text("\n".join(["time,speed,load,lon,lat", *lines, ""]))
    done = perturbed(tmp_path, path, task, enrol=True)
    assert (len(done.reports), done.num_missing) == (12, 0)
    assert any(note.startswith("speed: 24 ") for note in done.notes)
    assert places_told(task, done.reports) == [None] * 4


def test_one_vehicle_of_several(tmp_path):
    task = make_task()
    data = write_rows(tmp_path / "rows.csv", day_rows("V1") + rows_of("V2", range(24), [5] * 24))
    with pytest.raises(InputError):
        perturbed(tmp_path, data, task, enrol=True)
    assert names_in(tmp_path) == ["rows.csv"]
    done = perturbed(tmp_path, data, task, enrol=True, vehicle="V2")
    assert places_told(task, done.reports) == [5] * 4


def test_a_device_reports_what_is_due_now(tmp_path):
    task, data = make_task(), write_rows(tmp_path / "rows.csv", day_rows())
    midnight = DAY * SECONDS
    perturbed(tmp_path, data, task, "first.bin", enrol=True, now=midnight)
    with Allowance.open(tmp_path / "truck.allowance", task) as allowance:
        slots = allowance.slots(DAY)
    for at, slot in enumerate(slots):
        now = midnight + slot * 3600 + 60
        done = perturbed(tmp_path, data, task, f"slot{at}.bin", now=now)
        assert slot in {Report.from_bytes(report).slot for report in done.reports}
        assert perturbed(tmp_path, data, task, f"again{at}.bin", now=now).reports == done.reports
    spent = spent_in(tmp_path, task)
    with pytest.raises(AllowanceError):  # the clock went back
        perturbed(tmp_path, data, task, "back.bin", now=midnight)
    assert spent_in(tmp_path, task) == spent
    # Without rows it reports just that.
    folder, path = tmp_path / "other", tmp_path / "rows.csv"
    folder.mkdir()
    path.write_text("time,speed,load,lon,lat\n")
    task = make_task(schedule=HOURLY)
    assert places_told(task, perturbed(folder, path, task, enrol=True, now=midnight + 30).reports) == [None]


NOW = DAY * SECONDS + 5 * 3600 + 30
HEADER = b"vehicle,time,speed,load,lon,lat\n"
ROW = b"V1,2026-10-14T04:58:00,100,40,104.05,30.65\n"


def test_nothing_in_a_file_silences_a_device(tmp_path):
    task, first = make_task(schedule=HOURLY), write_rows(tmp_path / "first.csv", day_rows())
    for number, (name, content, num_missing, num_skipped, warns) in enumerate(
        [
            ("rows.csv", HEADER + ROW, 0, 0, False),
            ("rows.csv", HEADER + b"V1,,1,1,1,1\n" + ROW, 0, 1, True),
            ("rows.csv", HEADER + ROW + b"V1,soon,1,1,1,1\n,0,1,1,1,1\n", 0, 2, True),
            ("rows.csv", HEADER + b"V1,1,1,1,1,1,1,1\n" + ROW + b"V1\n", 0, 2, True),
            ("rows.csv", HEADER + b"V1,1970-01-01T00:00:00,1,1,1,1\n" + ROW + b"V1,9998-01-01,1,1,1,1\n", 0, 0, False),
            ("rows.csv", HEADER + b"V1,soon,1,1,1,1\n", 1, 1, True),
            ("rows.csv", HEADER + b"V2,0,1,1,1,1\n" + ROW, 1, 0, True),  # without --vehicle nobody knows whose
            ("rows.csv", HEADER + b"\xff\xfe,0,1,1,1,1\n", 1, 0, True),
            ("rows.csv", HEADER, 1, 0, False),
            ("rows.csv", b"", 1, 0, True),
            ("rows.csv", None, 1, 0, True),
            ("rows.parquet", b"", 1, 0, True),
            ("rows.parquet", b"PAR1 cut off", 1, 0, True),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        perturbed(folder, first, task, "first.bin", enrol=True, now=NOW - 3600)
        if content is not None:
            (folder / name).write_bytes(content)
        done = perturbed(folder, folder / name, task, now=NOW)
        counts = (len(done.reports), done.num_missing, done.num_skipped, bool(done.warnings))
        assert counts == (3, num_missing, num_skipped, warns), content
        assert (cells_told(task, Report.from_bytes(done.reports[1])) is None) == bool(num_missing), content
        assert done.to_dict()["skipped"] == num_skipped


def test_a_file_that_could_never_be_used_is_refused_at_a_time_too(tmp_path):
    task, path = make_task(schedule=HOURLY), tmp_path / "rows.csv"
    (tmp_path / "rows.ods").write_bytes(b"PK")
    for content, where in ((b"vehicle,speed\n", "time"), (HEADER + ROW + b"V2" + ROW[2:], "vehicle")):
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            perturbed(tmp_path, path, task, enrol=True, now=NOW)
        assert caught.value.problems[0].where == where
    for other in (tmp_path, tmp_path / "rows.ods"):
        with pytest.raises(InputError):
            perturbed(tmp_path, other, task, enrol=True, now=NOW)
    assert names_in(tmp_path) == ["rows.csv", "rows.ods"]


def test_a_report_file_that_is_an_input(tmp_path):
    task, data = make_task(), write_rows(tmp_path / "rows.csv", day_rows())
    perturbed(tmp_path, data, task, enrol=True)
    (tmp_path / "hard.jsonl").hardlink_to(tmp_path / "truck.allowance")
    (tmp_path / "soft.bin").symlink_to("truck.allowance")
    (tmp_path / "rows.jsonl").symlink_to("rows.csv")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for out in ("hard.jsonl", "soft.bin", "rows.jsonl"):
        with pytest.raises(OutputError):
            perturbed(tmp_path, data, task, out, force=True)
    with pytest.raises(OutputError):  # not there yet
        files.perturb(data, task, tmp_path / "y.jsonl", tmp_path / "." / "y.jsonl", enrol=True, days=days_of())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert (tmp_path / "soft.bin").is_symlink()


def test_a_vehicle_falls_silent(tmp_path):
    task = make_task(epsilon="1", lifetime="16")  # 12 reports a day
    done = perturbed(tmp_path, write_rows(tmp_path / "rows.csv", day_rows(days=2)), task, num=2, enrol=True)
    assert (len(done.reports), done.num_silent) == (16, 8)
    late = [{**row, "time": row["time"] + 5 * SECONDS} for row in day_rows()]
    with pytest.raises(AllowanceError):
        perturbed(tmp_path, write_rows(tmp_path / "late.csv", late), task, "late.bin", after=5)
    assert not (tmp_path / "late.bin").exists()


def test_refusals_before_anything_is_spent(tmp_path):
    task, data = make_task(), write_rows(tmp_path / "rows.csv", day_rows())
    centuries = write_rows(tmp_path / "centuries.csv", [{**day_rows()[0], "time": 0}, *day_rows()])
    lines = data.read_text().splitlines()
    (tmp_path / "wrong.csv").write_text("\n".join([*lines[:5], lines[5].replace("2026-10-14", "on"), *lines[6:]]))
    (tmp_path / "reports.jsonl").write_text("mine")
    for out, error in (("reports.jsonl", OutputError), ("none/r.bin", OutputError), ("r.txt", ParameterError)):
        with pytest.raises(error):
            perturbed(tmp_path, data, task, out, enrol=True)
    with pytest.raises(AllowanceError):  # it was not enrolled
        perturbed(tmp_path, data, task, "r.bin")
    with pytest.raises(InputError):
        perturbed(tmp_path, tmp_path / "none.csv", task, "r.bin", enrol=True)
    wrong_days = [None, ("2026-10-14", "2026-10-13"), ("2026-10-14", "2046-10-14"), ("1970-01-01", "1970-01-02")]
    for days in [*wrong_days, ("today", "2026-10-14"), (14, 15)]:
        with refuses((ParameterError, TaskError), days):
            perturbed(tmp_path, data, task, "r.bin", enrol=True, days=days)
    with pytest.raises(ParameterError):
        perturbed(tmp_path, data, task, "r.bin", enrol=True, days=days_of(), now=NOW)
    for wrong, row in ((centuries, ()), (tmp_path / "wrong.csv", (5,))):
        with pytest.raises(InputError) as caught:
            fleet.simulate(wrong, task, tmp_path / "r.bin")
        assert problems_of(caught) == [("time", row)]
    assert names_in(tmp_path) == ["centuries.csv", "reports.jsonl", "rows.csv", "wrong.csv"]


def simulated(folder, task, rows=None, out="reports.bin", **options):
    """Simulate a fleet of some rows, by default six vehicles on one day; return the result and its reports."""
    data = write_rows(folder / "rows.parquet", fleet_rows() if rows is None else rows)
    done = fleet.simulate(data, task, folder / out, **options)
    return done, [] if out.endswith(".json") else list(ReportFile(folder / out, task=task))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_fleet_by_schedule(tmp_path, monkeypatch, ending):
    task, rows = make_task(), fleet_rows(days=2)
    random.Random(2).shuffle(rows)
    data = write_rows(tmp_path / f"rows{ending}", rows)
    for size in (10**6, 5):  # days and vehicles turn up late: what was drawn for the others before stays drawn
        monkeypatch.setattr("dunnage.tables.reader.BATCH_ROWS", size)
        done = fleet.simulate(data, task, tmp_path / "reports.bin", force=True)
        reports = list(ReportFile(tmp_path / "reports.bin", task=task))
        assert done.num_reports == len(reports) == 6 * 2 * 4 * 3
        assert (done.num_vehicles, done.num_rows, done.first_day, done.last_day) == (6, 6 * 48, DAY, DAY + 1)
        assert Counter(report.purpose for report in reports) == {0: 48, 1: 48, 2: 48}
        told = Counter((cells_told(task, r), r.day) for r in reports if r.purpose == 1)
        assert told == {(cell, day): 4 for cell in range(6) for day in (DAY, DAY + 1)}
        slots = Counter((cells_told(task, r), r.day, r.slot) for r in reports if r.purpose == 1)
        assert set(slots.values()) == {1}  # the slots of a vehicle differ
        assert "1440" in done.composed[0]  # the epsilon of all reports of a vehicle
        # At midnight of the first day there is no place before, so such a path is missing.
        paths = Counter(cells_told(task, r) for r in reports if r.purpose == 2 and (r.day, r.slot) != (DAY, 0))
        assert set(paths) == {(cell, cell) for cell in range(6)}


def test_tiers_and_slots_are_drawn_evenly_and_reports_do_not_lie_together(tmp_path):
    task = make_task(tiers=("basic", "strict"))
    rows = [row for at in range(400) for row in rows_of(f"V{at}", [12], [at % 16])]
    runs = [simulated(tmp_path, task, rows, out, seed=4)[1] for out in ("one.bin", "two.bin")]
    slots = [Counter((r.tier, r.day, r.slot) for r in reports) for reports in runs]
    assert slots[0] == slots[1]  # a seed repeats what is public
    assert not {r.report_id for r in runs[0]} & {r.report_id for r in runs[1]}
    assert 100 < sum(r.tier == 0 for r in runs[0]) / 12 < 300
    moments = Counter(r.slot for r in simulated(tmp_path, task, rows, "three.bin")[1] if r.purpose == 0)
    assert chance_of([moments[slot] for slot in range(24)], [1600 / 24] * 24) > 1e-9
    hourly = make_task(schedule=HOURLY)
    at_noon = [r for r in simulated(tmp_path, hourly, rows[:100], "four.bin")[1] if r.slot == 12]
    assert len(at_noon) == 300
    assert places_told(hourly, at_noon) != [at % 16 for at in range(100)]
    assert [r.report_id[::-1] for r in at_noon] == sorted(r.report_id[::-1] for r in at_noon)


def test_vehicles_without_rows_on_a_day_still_report(tmp_path):
    rows = rows_of("V0", range(48), [3] * 48) + rows_of("V1", [47], [4])
    done, reports = simulated(tmp_path, make_task(), rows, "reports.jsonl")
    assert done.num_reports == len(reports) == 2 * 2 * 4 * 3
    assert done.num_missing >= 7
    rows = [row for at in range(6) for row in rows_of(f"V{at}", [0, 12], [at, at])]
    assert simulated(tmp_path, make_task(), rows, "strict.bin")[0].num_missing > 12
    assert simulated(tmp_path, make_task(), rows, "old.bin", max_age=720)[0].num_missing == 0  # old rows count if asked


def test_a_fleet_falls_silent(tmp_path):
    task = make_task(epsilon="1", lifetime="18")  # six slots of three reports
    done, reports = simulated(tmp_path, task, fleet_rows(days=3))
    assert (done.num_reports, done.num_silent) == (6 * 6 * 3, 6 * 6)
    assert Counter(r.day for r in reports if r.purpose == 0) == {DAY: 24, DAY + 1: 12}
    assert "18" in done.composed[0]


def test_every_row_is_a_slot(tmp_path):
    task = make_task(lifetime="1000")
    done, reports = simulated(tmp_path, task, every_row=True)
    assert len(reports) == 6 * 24 * 3
    assert "4320" in done.composed[0]  # 24 slots of three reports, beyond the limit
    paths = Counter(cells_told(task, report) for report in reports if report.purpose == 2)
    assert paths == {None: 6, **{(cell, cell): 23 for cell in range(6)}}
    rows = fleet_rows()
    rows[3], rows[4] = rows[4], rows[3]
    with pytest.raises(InputError) as caught:  # paths need order
        simulated(tmp_path, task, rows, "other.bin", every_row=True)
    assert [where for where, _ in problems_of(caught)] == ["time"]
    assert not list(tmp_path.glob("*other*"))


def test_paths_of_rows_across_batches(tmp_path, monkeypatch):
    """Rows of vehicles in one order of time, in batches of every size."""
    more = {"grid": GRID, "steps": 3, "parameters": {**RESPONSE, "hops": 3}}
    paths = Purpose(name="paths", mechanism="local-trajectory", tiers=(Tier(name="all", epsilon=SURE),), **more)
    task, draw = make_task(purposes=(paths,)), random.Random(3)
    walks, expected, rows = {}, Counter(), []
    for hour in range(30):
        for vehicle in draw.sample(range(5), 3):
            cell = draw.randrange(16)
            walk = walks.setdefault(vehicle, [])
            walk.append(cell)
            expected[tuple(walk[-3:]) if len(walk) >= 3 else None] += 1
            rows += rows_of(f"V{vehicle}", [hour], [cell])
    for size in (1, 2, 5, 7, 1_000):
        monkeypatch.setattr("dunnage.tables.reader.BATCH_ROWS", size)
        _, reports = simulated(tmp_path, task, rows, every_row=True, force=True)
        assert Counter(cells_told(task, report) for report in reports) == expected, size


@pytest.mark.parametrize("every_row", [True, False])
def test_tallies_are_those_of_reports(tmp_path, every_row):
    task, options = make_task(tiers=("basic", "strict")), {"every_row": every_row, "seed": 5}
    simulated(tmp_path, task, **options)
    simulated(tmp_path, task, out="tallies.json", tally=True, **options)
    counted = files.collect([tmp_path / "reports.bin"], task).tallies
    tallied = files.read_tallies(tmp_path / "tallies.json", task)
    # At this epsilon places and paths are told as they are, so both must agree; numbers are rounded at random.
    for names, one in counted.by_tier.items():
        other = tallied.by_tier[names]
        assert one.num_reports == other.num_reports
        assert names[0] == "telemetry" or one.to_dict() == other.to_dict()


def test_tiers_of_a_public_column(tmp_path):
    task = make_task(tiers=("basic", "strict"))
    rows = [{**row, "tier": "strict" if row["vehicle"] == "V5" else "basic"} for row in fleet_rows()]
    _, reports = simulated(tmp_path, task, rows, tiers_column="tier")
    told = {(cells_told(task, r), r.tier) for r in reports if r.purpose == 1}
    assert told == {*((cell, 0) for cell in range(5)), (5, 1)}
    for tier in ("gold", "basic"):  # no such tier, and another than in the vehicle's other rows
        with pytest.raises(InputError) as caught:
            simulated(tmp_path, task, [*rows[:-1], {**rows[-1], "tier": tier}], "other.bin", tiers_column="tier")
        assert problems_of(caught) == [("tier", (144,))]


def test_vehicles_may_be_numbers_or_names_of_a_dictionary_that_no_row_has(tmp_path):
    table, path = pa.Table.from_pylist(fleet_rows()), tmp_path / "rows.parquet"
    codes = table["vehicle"].combine_chunks().dictionary_encode().indices
    names = pa.DictionaryArray.from_arrays(codes, pa.array([f"V{at}" for at in range(9)]))
    for vehicles in (names, pa.array([int(name[1:]) for name in table["vehicle"].to_pylist()])):
        pq.write_table(table.set_column(0, "vehicle", vehicles), path)
        assert fleet.simulate(path, make_task(), tmp_path / "reports.bin", force=True).num_vehicles == 6


def test_fleets_that_are_refused(tmp_path, monkeypatch):
    data, empty = tmp_path / "rows.parquet", tmp_path / "empty.parquet"
    write_rows(data, fleet_rows())
    pq.write_table(pq.read_table(data).slice(0, 0), empty)
    for options in ({}, {"every_row": True}, {"every_row": True, "tally": True}):
        with pytest.raises(InputError):
            fleet.simulate(empty, make_task(), tmp_path / ("t.json" if "tally" in options else "r.bin"), **options)
    for out, options, says in [
        ("r.bin", {"every_row": True, "max_age": 5}, "max-age"),
        ("r.bin", {"tally": True}, ".json"),
        ("r.json", {}, ".bin"),
    ]:
        with pytest.raises(ParameterError, match=says):
            fleet.simulate(data, make_task(), tmp_path / out, **options)
    monkeypatch.setattr(fleet, "MAX_DRAWN_BYTES", 10)
    with pytest.raises(ParameterError):
        fleet.simulate(data, make_task(), tmp_path / "r.bin")
    assert names_in(tmp_path) == ["empty.parquet", "rows.parquet"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Reports and tallies of six vehicles, which no test changes."""
    folder, task = tmp_path_factory.mktemp("made"), make_task()
    simulated(folder, task, out="reports.jsonl")
    simulated(folder, task, out="tallies.json", tally=True)
    return folder, task


def test_reports_of_times_at_which_no_device_reports_are_left_out(made, tmp_path):
    folder, task = made
    reports = list(ReportFile(folder / "reports.jsonl"))
    first = reports[0]
    odd = [
        replace(first, day=day, report_id=bytes([at] * 8)) for at, day in enumerate((0, 365, 18_261, 84_371, 2_932_896))
    ]
    write_reports(tmp_path / "r.bin", [*reports, *odd])
    found = files.collect([tmp_path / "r.bin"], task)
    assert (found.num_reports, found.left_out, found.num_days) == (len(reports), {"other_time": 5}, 1)
    assert len(found.first_bad) == 5
    assert estimate([*reports, *odd], task).certificate.measures.left_out["other_time"] == 5
    for days in (days_of(), days_of(3)):
        assert files.collect([folder / "reports.jsonl"], task, days=days).num_reports == len(reports)
    with pytest.raises(ReportError):
        files.collect([folder / "reports.jsonl"], task, days=days_of(after=1))
    # When a report came in decides by the rules of its task, with the clocks that may differ.
    own = [report for report in reports if report.slot == first.slot]
    write_reports(tmp_path / "own.bin", own)
    moment = task.schedule.moment(first.day, first.slot)
    for received, accepted in ((-121, False), (-120, True), (3600 + 120, True), (3600 + 121, False)):
        if accepted:
            assert files.collect([tmp_path / "own.bin"], task, received=moment + received).num_reports == len(own)
        else:
            with pytest.raises(ReportError):
                files.collect([tmp_path / "own.bin"], task, received=moment + received)
    stated = replace(task, schedule=replace(task.schedule, days=days_of(after=1)))
    assert not stated.schedule.accepts(DAY, 0)
    assert stated.schedule.accepts(DAY + 1, 0)


def test_a_fleet_on_stated_days_reports_whatever_the_rows(tmp_path):
    task, days = tiny_task(), days_of(3)
    lines = [f"V{number},2026-10-14T00:00:00,104.05,30.65" for number in range(4)]
    odd = ["V0,soon,0,0", "V1,1971-01-01T00:00:00,0,0", "V2,9999-01-01T00:00:00,0,0", ",2026-10-15T00:00:00,0,0", "V3"]
    for rows in (lines, [*lines, *odd], [*lines[:3], "V3,2030-01-01T00:00:00,0,0"]):
        (tmp_path / "rows.csv").write_text("\n".join(["vehicle,time,lon,lat", *rows]) + "\n")
        done = fleet.simulate(tmp_path / "rows.csv", task, tmp_path / "r.bin", days=days, force=True)
        made = Counter(report.day for report in ReportFile(tmp_path / "r.bin", task=task))
        assert (made, done.num_vehicles) == (dict.fromkeys(range(DAY, DAY + 3), 4), 4), rows
    with pytest.raises(ParameterError):
        fleet.simulate(tmp_path / "rows.csv", task, tmp_path / "r.bin", days=days, every_row=True, force=True)


def test_task_files(tmp_path):
    path, task = tmp_path / "task.json", make_task()
    path.write_text(task.to_json())
    assert files.read_task_file(path).digest == task.digest
    path.write_text(task.to_json().replace('"format": 1', '"format": 2'))
    (tmp_path / "policy.toml").write_text("")
    for wrong in (path, tmp_path / "none.json", tmp_path, tmp_path / "policy.toml"):
        with pytest.raises(TaskError):
            files.read_task_file(wrong)


def test_bad_reports_are_counted_by_kind(made, tmp_path):
    folder, task = made
    reports = list(ReportFile(folder / "reports.jsonl"))
    lines = [report.to_json() for report in reports]
    changes = (
        (0, {"task": bytes(8)}),
        (1, {"payload": b"\xff" * 9, "report_id": bytes(8)}),
        (1, {"slot": (reports[1].slot + 1) % 24}),
    )
    other, impossible, twin = (Report(**{**vars(reports[at]), **change}).to_json() for at, change in changes)
    path = tmp_path / "reports.jsonl"
    path.write_text("\n".join([*lines, other, impossible, lines[2], twin, lines[3][:-9], "{}"]))
    found = files.collect([path], task)
    assert (found.num_reports, len(lines)) == (71, 72)
    assert found.left_out == {"other_task": 1, "impossible": 1, "duplicate": 1, "conflicting": 2, "damaged": 2}
    assert (len(found.lines()), len(found.first_bad)) == (5, 4)
    # A truncated file keeps what came before.
    write_reports(tmp_path / "whole.bin", reports)
    (tmp_path / "cut.bin").write_bytes((tmp_path / "whole.bin").read_bytes()[:-3])
    found = files.collect([tmp_path / "cut.bin"], task)
    assert (found.num_reports, found.left_out) == (71, {"damaged": 1})
    # Only bad reports are refused.
    (tmp_path / "empty.bin").write_bytes(b"")
    with pytest.raises(ReportError):
        files.collect([folder / "reports.jsonl"], make_task(version=2))
    with pytest.raises(ReportError):
        files.collect([tmp_path / "empty.bin"], task)
    with pytest.raises(InputError):
        files.collect([tmp_path / "none.bin"], task)


def test_reports_and_tallies_add_up_but_the_same_tallies_only_once(made, tmp_path):
    folder, task = made
    reports, one = folder / "reports.jsonl", folder / "tallies.json"
    again, other = tmp_path / "again.json", tmp_path / "other.json"
    both = files.collect([reports, one], task)
    assert both.num_reports == 2 * 72
    assert files.collect([reports], task).warnings == files.collect([one], task).warnings == []
    assert len(both.warnings) == len(both.to_dict()["warnings"]) == 1
    simulated(tmp_path, task, fleet_rows(5), "other.json", tally=True)
    again.write_text(json.dumps(json.loads(one.read_text()), indent=3))
    for paths in ((one, one), (one, reports, again), (other, one, again)):
        with pytest.raises(InputError):
            files.collect(paths, task)
    assert files.collect([one, other], task).num_reports == (6 + 5) * 4 * 3
    for describe, path in ((files.describe_reports, reports), (files.describe_tallies, one)):
        data, text = describe(path)
        assert data["reports"] == 72
        assert ("2026-10-14" if path == reports else "telemetry") in text
    assert {group["task"] for group in files.describe_reports(reports)[0]["groups"]} == {task.prefix.hex()}


WHOLE = [{"task": "0" * 64}, {"kind": "another"}, {"format": 2}, {"tallies": {}}]
OF_TALLY = [{"tier": "gold"}, {"purpose": "shoes"}, {"num_reports": -1}, {"num_reports": 1}]
OF_COUNTS = [{"num": 10**6}, {"key": [99]}, {"counts": [0], "shape": [1]}, {"kind": "bits"}]
OF_SUMS = [{"total": 10**9}, {"key": [0, "laplace"]}, {"key": [9, "duchi"]}]


def test_tallies_that_cannot_be(made, tmp_path):
    folder, task = made
    text, path = (folder / "tallies.json").read_text(), tmp_path / "tallies.json"
    tallies = json.loads(text)["tallies"]
    assert [item["purpose"] for item in tallies] == ["paths", "places", "telemetry"]
    changes = [((), change) for change in WHOLE] + [((), {"tallies": [*tallies, tallies[0]]})]
    changes += [(("tallies", 0), change) for change in OF_TALLY]
    longer = {"counts": [*tallies[0]["parts"][0]["counts"], 0]}
    changes += [(("tallies", 0, "parts", 0), change) for change in [*OF_COUNTS, longer]]
    changes += [(("tallies", 2, "parts", 0), change) for change in OF_SUMS]
    for place, change in changes:
        data = part = json.loads(text)
        for key in place:
            part = part[key]
        part.update(change)
        path.write_text(json.dumps(data))
        with refuses(InputError, (place, change)):
            files.read_tallies(path, task)


EVERY_LAW = [("local-numeric", {"method": method}) for method in ("hybrid", "square-wave")]
EVERY_LAW += [("local-location", {"method": method}) for method in (*ORACLES, "planar")]
EVERY_LAW += [(f"local-{kind}", {"as_published": True}) for kind in ("numeric", "location", "trajectory")]
EVERY_LAW += [(f"local-{kind}", {"area_in_clear": True}) for kind in ("location", "trajectory")]


def test_tallies_of_every_law_come_back(tmp_path):
    speed, grid = Quantity(name="speed", low="0", high="100", missing="symbol"), Grid(box=BOX, levels=3, area_levels=2)
    for mechanism, parameters in EVERY_LAW:
        subject = {"quantities": (speed,)} if mechanism == "local-numeric" else {"grid": grid}
        subject |= {"steps": 2} if mechanism == "local-trajectory" else {}
        tiers = (Tier(name="all", epsilon="1"),)
        purpose = Purpose(name="one", mechanism=mechanism, tiers=tiers, parameters=parameters, **subject)
        limits = Limits(lifetime=Fraction(10_000), allow_unbounded=True)
        schedule = Schedule(slots_per_day=4, slot_minutes=60)
        task = Task(dataset="fleet", purposes=(purpose,), schedule=schedule, limits=limits)
        simulated(tmp_path, task, fleet_rows(2), "tallies.json", tally=True, force=True)
        simulated(tmp_path, task, fleet_rows(2), force=True)
        collected = files.collect([tmp_path / "reports.bin"], task)
        tallies = files.read_tallies(tmp_path / "tallies.json", task)
        assert tallies.num_reports == collected.num_reports == 8, (mechanism, parameters)
        # What is counted from reports must pass the same check.
        (tmp_path / "again.json").write_text(json.dumps(collected.tallies.to_dict()))
        again = files.read_tallies(tmp_path / "again.json", task)
        assert again.to_dict() == collected.tallies.to_dict(), (mechanism, parameters)
        assert all(isinstance(tally, Tally) for tally in again.by_tier.values())


RECORDS = 'vehicle,plate,owner\nV1,"XY ""12""",Zoë\nV2,,"a\nb"\n'


def test_a_line_that_was_dropped_added_moved_or_played_back_is_found(tmp_path):
    ring, plain, sealed = KeyRing.new(), tmp_path / "plain.csv", tmp_path / "sealed.jsonl"

    def opened(**more):
        return identity.open_file(sealed, ring, tmp_path / "back.csv", force=True, **more)

    versions = []
    for plate in ("old", "new"):  # replacing the file goes on with its version
        plain.write_text(f"vehicle,plate\nV1,{plate} 1\nV2,{plate} 2\nV3,{plate} 3\n")
        assert identity.seal_file(plain, ring, sealed, force=True).version == len(versions) + 1
        versions.append(sealed.read_text().splitlines())
    (old, new), older = versions, sealed.with_name("older.jsonl")
    assert (opened().version, [record.version for _, record in opened().records]) == (2, [2, 2, 2])
    tag = json.loads(new[3])["tag"]
    changed = [{**tag, "version": 3}, {**tag, "file": "x"}, {**tag, "key_id": "x"}, {**tag, "nonce": ""}, {}, [], 5]
    for lines in (
        [old[0], *new[1:]],  # an older line played back
        [*old[:3], new[3]],
        [new[0], new[2], new[3]],  # dropped
        new[:3],  # the tag dropped
        [new[1], new[0], *new[2:]],
        [*new[:3], old[3]],  # the tag of the older file
        [*new[:2], new[3]],
        *([*new[:3], json.dumps({"tag": one})] for one in changed),
        [*(json.dumps(as_format_1(line)) for line in new[:3])],  # as if it had never had versions
    ):
        sealed.write_text("\n".join(lines) + "\n")
        with refuses((SealError, InputError), lines):
            opened()
        with refuses((SealError, InputError), lines):
            identity.rotate_file(sealed, ring, older, force=True)
    sealed.write_text("\n".join(old) + "\n")  # a whole older file: only who knows the version can tell
    assert opened().version == 1
    with pytest.raises(SealError, match="older"):
        opened(at_least=2)
    sealed.write_text("\n".join(new) + "\n")
    assert identity.seal_file(plain, ring, older, after=sealed).version == 3
    renewed = ring.renewed()
    assert identity.rotate_file(sealed, renewed, sealed, force=True).version == 3
    ring = renewed
    assert [record.version for _, record in opened(at_least=3).records] == [3, 3, 3]


def as_format_1(line):
    data = json.loads(line)
    data["sealed"] = {**data["sealed"], "format": 1}
    del data["sealed"]["version"]
    return data


def test_records_come_back_from_their_seals_also_under_a_newer_key(tmp_path):
    ring = KeyRing.new()
    plain, sealed, newer, back = (tmp_path / name for name in ("plain.csv", "sealed.jsonl", "newer.jsonl", "back.csv"))
    plain.write_text(RECORDS, encoding="utf-8")
    assert len(identity.seal_file(plain, ring, sealed).records) == 2
    written = sealed.read_text(encoding="utf-8")
    assert not any(name in written for name in ("Zoë", "Zo\\u00eb", "XY "))
    assert len(identity.open_file(sealed, ring, back).records) == 2
    with plain.open(newline="", encoding="utf-8") as one, back.open(newline="", encoding="utf-8") as other:
        assert list(csv.reader(one)) == list(csv.reader(other))
    assert stat.S_IMODE(back.stat().st_mode) == 0o600
    back.unlink()
    lines = sealed.read_bytes().splitlines(keepends=True)
    newer.write_bytes(b"\xef\xbb\xbf" + b"".join(lines))  # behind a mark
    assert len(identity.open_file(newer, ring, back).records) == 2
    back.unlink()
    newer.write_bytes(b"".join([*lines[:2], lines[0], lines[2]]))
    with pytest.raises(InputError) as caught:
        identity.open_file(newer, ring, back)
    assert caught.value.problems[0].rows == (3,)
    newer.unlink()
    renewed = ring.renewed()
    assert len(identity.rotate_file(sealed, renewed, newer).records) == 2
    without = renewed.without(ring.active.key_id)
    assert len(identity.open_file(newer, without, back).records) == 2
    back.unlink()
    with pytest.raises(SealError):
        identity.open_file(sealed, without, back)
    sealed.write_text(sealed.read_text().replace('"V1"', '"V9"'))  # moved to another alias
    with pytest.raises(SealError):
        identity.open_file(sealed, ring, back)
    with pytest.raises(SealError):
        identity.rotate_file(sealed, renewed, tmp_path / "other.jsonl")
    assert names_in(tmp_path) == ["newer.jsonl", "plain.csv", "sealed.jsonl"]


def test_records_that_cannot_be_sealed_or_opened(tmp_path):
    ring, file = KeyRing.new(), tmp_path / "p.csv"
    for text, problem in (
        ("", ("", ())),
        ("vehicle,plate\n", ("", ())),
        ("plate\nX\n", ("vehicle", ())),
        ("vehicle,plate,plate\nV1,a,b\n", ("", ())),
        ("vehicle,plate\nV1\n", ("", (1,))),
        ("vehicle,plate\n,X\n", ("vehicle", (1,))),
        ("vehicle,plate\nV1,X\nV1,Y\n", ("vehicle", (2,))),
        ('vehicle,plate\nV1,"X\n', ("", ())),
    ):
        file.write_text(text)
        with pytest.raises(InputError) as caught:
            identity.seal_file(file, ring, tmp_path / "s.jsonl")
        assert problems_of(caught) == [problem], text
    for text in ("", "{}\n", "[]\n", '{"alias": "V1"', '{"alias": 1, "sealed": {}}'):
        file.write_text(text)
        with pytest.raises(InputError):
            identity.open_file(file, ring, tmp_path / "b.csv")
    assert names_in(tmp_path) == ["p.csv"]
