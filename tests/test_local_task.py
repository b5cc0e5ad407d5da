# SPDX-License-Identifier: Apache-2.0
"""The task that devices and platform agree on, and the reports that travel between them."""

from __future__ import annotations

import json
import math
import pickle
import tempfile
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import FrozenInstanceError, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chance_help import chance_of
from tests.estimates_help import refuses

from dunnage.devices.report import ID_BYTES, MAX_LINE, MAX_PAYLOAD, Report, ReportFile, write_reports
from dunnage.devices.task import FileColumns, Grid, Limits, Purpose, Quantity, Schedule, Task, Tier
from dunnage.errors import InputError, OutputError, ParameterError, ReportError, TaskError
from dunnage.noise.source import Noise

BOX = ("103.9", "30.5", "104.2", "30.8")
GRID = Grid(box=BOX, levels=5, area_levels=3)
FOUR = Grid(box=(0, 0, 4, 4), levels=3)
SPEED = Quantity(name="speed", low="0", high="120", unit="km/h", steps=4)
TIERS = (Tier(name="basic", epsilon="1"), Tier(name="strict", epsilon="0.5"))
PLACES = Purpose(name="places", mechanism="local-location", tiers=TIERS, grid=GRID)
WALK = {"hops": 1, "method": "auto"}
PATHS = Purpose(name="paths", mechanism="local-trajectory", tiers=TIERS, grid=GRID, steps=2, parameters=WALK)
NUMBERS = Purpose(name="telemetry", mechanism="local-numeric", tiers=TIERS[:1], quantities=(SPEED,))


def make_task(**changes):
    """A task with all three kinds of purposes."""
    facts = {"dataset": "fleet", "purposes": (NUMBERS, PLACES, PATHS)}
    facts |= {"schedule": Schedule(), "limits": Limits(lifetime="100", day="3")}
    return Task(**{**facts, **changes})


TASK = make_task()


def refuses_each(make, error, **wrong):
    """Check that each of the values, by itself, is refused."""
    for name, values in wrong.items():
        for value in values:
            with refuses(error, (name, value)):
                make(**{name: value})


class Hostile:
    """A value whose own code raises."""

    def __float__(self):
        raise RuntimeError("no")


UNREADABLE = [None, math.nan, "61", b"1", 1j, [], {}, object(), Hostile(), Decimal("NaN"), Decimal("sNaN")]


def test_points_of_a_quantity():
    noise = Noise()
    assert [SPEED.point(v, noise) for v in (0, 30, 60.0, 120, Decimal(90), Fraction(15))] == [-4, -2, 0, 4, 2, -3]
    for value in (-1, -1e300, -math.inf, Decimal("-1e999999"), -(10**400)):
        assert SPEED.point(value, noise) == -4, value
    for value in (121, 1e308, math.inf, Decimal("Infinity"), Decimal("1e999999")):
        assert SPEED.point(value, noise) == 4, value
    for value in UNREADABLE:
        assert (SPEED.point(value, noise), SPEED.present(value)) == (0, False), value
    yes = Quantity(name="loaded", low=0, high=1, steps=1)
    assert (yes.point(True, noise), yes.point(False, noise)) == (1, -1)
    assert [SPEED.in_units(t) for t in (-1.0, 0.0, 1.0)] == [0, 60, 120]
    # 0.1 as a double is a little more than one tenth, so it is not quite a point of this grid.
    assert Quantity(name="x", low=0, high=1, steps=5).normalised(0.1) == 2 * Fraction(0.1) - 1 != Fraction(-4, 5)
    # 50 is at -2/3 steps: -1 with probability 2/3, 0 with 1/3.
    drawn = Counter(SPEED.point(50, noise) for _ in range(9000))
    assert set(drawn) == {-1, 0}
    assert chance_of([drawn[-1], drawn[0]], [6000, 3000]) > 1e-9


@settings(deadline=None)
@given(st.floats(0, 120))
def test_rounding_is_to_a_neighbouring_point(value):
    assert abs(SPEED.point(value, Noise()) - SPEED.normalised(value) * SPEED.steps) < 1


def test_what_parts_of_a_task_refuse():
    names, steps = ("", " a", "a\n", "x" * 65, 5), (0, True, 2.0)
    wrong = {"name": names, "low": ("120",), "high": ("nan", None), "steps": steps, "missing": ("zero",), "unit": (3,)}
    refuses_each(partial(replace, SPEED), TaskError, **wrong)
    boxes = [("1", "0", "0", "1"), ("0", "1", "1", "1"), ("0", "0", "1"), "0123", 5, ("0", "0", "181", "1")]
    boxes += [("0", "-90", "1", "1"), ("0", "0", "x", "1"), ("1", "0", "1.00000000000000000001", "1")]
    refuses_each(partial(replace, GRID), TaskError, box=boxes, levels=(0, 13, True), area_levels=(6, 0))
    parameters = [{"epsilon": "1"}, {"method": 0.5}, {"method": "x" * 65}, {"hops": 2**63}, {"not a name": 1}, [1]]
    refuses_each(
        partial(replace, PLACES),
        TaskError,
        mechanism=("noisy-counts", "local-numeric"),
        quantities=((SPEED,),),
        grid=(None, "grid"),
        steps=(2,),
        tiers=((), "basic", (TIERS[0], TIERS[0]), (1,)),
        parameters=(*parameters, {f"a{i}": 1 for i in range(17)}),
        name=("",),
    )
    refuses_each(partial(replace, PATHS), TaskError, steps=(1, 4))  # a path has two or three
    refuses_each(partial(Tier, name="a"), TaskError, epsilon=("0", "-1", "inf", "x", None))
    slots = {"slot_minutes": (7, 0), "slots_per_day": (0, 289), "lateness_minutes": (0, 1441), "window": (0, 1.5)}
    closing = ("24:00", "12:60", "1:00", "aa:bb", "\u0661\u0662:00", 3)
    refuses_each(Schedule, TaskError, closing=closing, skew_seconds=(-1,), **slots)
    refuses_each(partial(Limits, lifetime="100"), TaskError, day=("0", "101"), allow_unbounded=(1,))
    refuses_each(Limits, TaskError, lifetime=("0", None))


def test_cells_of_a_grid():
    sizes = (GRID.num_columns, GRID.num_rows, GRID.num_cells, GRID.outside, GRID.num_areas, GRID.num_inner)
    assert sizes == (16, 16, 256, 256, 16, 16)
    # Yao et al., Algorithm 4: odd bits from x, even bits from y; the code starts with the column.
    two = Grid(box=(0, 0, 2, 2), levels=2)
    assert [two.cell(x, y) for x, y in ((0.5, 0.5), (0.5, 1.5), (1.5, 0.5), (1.5, 1.5))] == [0, 1, 2, 3]
    for column in range(16):
        for row in range(16):
            bits = "".join(a + b for a, b in zip(f"{column:04b}", f"{row:04b}", strict=True))
            cell = int(bits, 2)
            assert (GRID.cell_at(column, row), GRID.column_row(cell)) == (cell, (column, row))
            assert f"{GRID.area(cell):04b}" == bits[:4]
            assert GRID.joined(GRID.area(cell), GRID.inner(cell)) == cell
            assert GRID.cell(*GRID.centre(cell)) == cell
    one = Grid(box=BOX, levels=1)
    assert (one.num_cells, one.cell(104, 30.6), one.cell(0, 0), one.num_areas) == (1, 0, 1, 1)
    corner, inside = FOUR.cell_at(0, 0), FOUR.cell_at(1, 2)
    assert FOUR.neighbours(corner) == sorted(FOUR.cell_at(x, y) for x in (0, 1) for y in (0, 1))
    assert [len(FOUR.neighbours(inside, hops=hops)) for hops in (1, 5)] == [9, 16]


def test_borders_of_a_grid():
    assert FOUR.column_row(FOUR.cell(1, 1)) == (1, 1)
    assert FOUR.column_row(FOUR.cell(math.nextafter(1, 0), 2)) == (0, 2)
    assert (FOUR.cell(4, 4), FOUR.cell(4.0, 0)) == (15, FOUR.cell_at(3, 0))
    outside = [(math.nextafter(4, 5), 1), (1, math.nextafter(4, 5)), (-5e-324, 1), (1, -5e-324)]
    assert {FOUR.cell(x, y) for x, y in outside} == {FOUR.outside}
    assert (GRID.cell(104.2, 30.8), GRID.cell(103.9, 30.5)) == (255, 0)  # on a decimal side
    assert GRID.cell(math.nextafter(104.2, 200), 30.8) == GRID.outside
    for value in (*UNREADABLE, math.inf, -math.inf, Decimal("Infinity")):
        assert GRID.cell(value, 30.6) == GRID.cell(104, value) == GRID.cell(value, value) == GRID.outside, value


@settings(deadline=None)
@given(st.floats(103.9, 104.2), st.floats(30.5, 30.8))
def test_a_cell_holds_its_places(longitude, latitude):
    west, south, east, north = GRID.bounds(GRID.cell(longitude, latitude))
    slack = Fraction(1, 10**12)  # the sides are doubles, the bounds decimals
    assert west - slack <= Fraction(longitude) <= east + slack
    assert south - slack <= Fraction(latitude) <= north + slack


def test_pitch_never_overstates():
    (wide, high), side = GRID.pitch_km, Fraction("0.3") / 16
    assert 0.99999 < wide / (side * Fraction("111.31") * Fraction(math.cos(math.radians(30.8)))) <= 1
    assert high == side * Fraction("110.57")
    # The length of a degree on the WGS 84 ellipsoid, by its radii of curvature.
    a, e2 = 6378.137, 0.00669437999014
    for degrees in range(0, 90, 5):
        sine2 = math.sin(math.radians(degrees)) ** 2
        along = math.radians(1) * a * (1 - e2) / (1 - e2 * sine2) ** 1.5
        across = math.radians(1) * a * math.cos(math.radians(degrees)) / math.sqrt(1 - e2 * sine2)
        small = Grid(box=(0, degrees, 1, degrees + 1) if degrees else (0, 0, 1, "0.001"), levels=1)
        assert small.pitch_km[0] <= across
        assert float(small.pitch_km[1] / (small.box[3] - small.box[1])) <= along


def test_moments_of_a_schedule():
    schedule = Schedule(slot_minutes=10, lateness_minutes=30, closing="02:30", skew_seconds=60)
    moment = schedule.moment(20000, 6)
    assert (schedule.num_moments, moment) == (144, 20000 * 86400 + 3600)
    assert schedule.deadline(20000, 6) == moment + 1800
    assert schedule.closes(20000) == 20001 * 86400 + 9000
    accepted = [schedule.accepts(20000, 6, moment + seconds) for seconds in (-61, -60, 0, 1860, 1861)]
    assert accepted == [False, True, True, True, False]
    cut = Schedule(lateness_minutes=600, closing="00:10")  # closing cuts lateness
    assert cut.deadline(7, 287) == cut.closes(7) == 8 * 86400 + 600


def test_slots_of_working_hours():
    """A slot is the time up to its moment, so that the first of the day ends one slot after the start."""
    day = Schedule(slot_minutes=60, hours=("06:00", "10:00"), slots_per_day=2)
    night = Schedule(slot_minutes=60, hours=("22:00", "02:00"))
    assert (day.moments, night.moments) == ((7, 8, 9, 10), (0, 1, 2, 23))
    assert Schedule(slot_minutes=45, hours=("06:10", "08:15")).moments == (10, 11)  # 07:30, 08:15
    for schedule in (day, night, Schedule(slot_minutes=60)):
        inside = [slot for slot in range(-1, 26) if schedule.chooses(slot)]
        assert inside == list(schedule.moments)
    drawn = Counter(day.draw_slots(Noise()) for _ in range(6_000))
    assert sorted(drawn) == [(a, b) for a in day.moments for b in day.moments if a < b]
    assert chance_of(list(drawn.values()), [1000] * 6) > 1e-9
    assert "hours" not in Schedule().to_dict()  # so that tasks without hours keep their digests
    task = make_task(schedule=night)
    assert Task.from_json(task.to_json()) == task
    assert task.digest != make_task(schedule=replace(night, hours=("22:00", "03:00"))).digest
    for hours in (("06:00", "06:00"), ("06:00", "06:59"), ("06:00",), "06:00", ("06:00", "24:01"), ("6", "7"), (6, 7)):
        with refuses(TaskError, hours):
            Schedule(slot_minutes=60, hours=hours)
    with pytest.raises(TaskError):
        Schedule(slot_minutes=60, hours=("06:00", "10:00"), slots_per_day=5)


def test_columns_of_files_are_not_agreed():
    named = make_task(file_columns=FileColumns(vehicle="truck_id", time="when", places=("x", "y")))
    assert (named.digest, named.to_dict()) == (TASK.digest, TASK.to_dict())
    assert "file_columns" not in TASK.to_json()
    assert Task.from_json(named.to_json()).file_columns == named.file_columns
    assert named.file_columns.numbers_of(named)[-2:] == ["x", "y"]
    data = json.loads(named.to_json())
    for wrong in (
        {"vehicle": ""},
        {"vehicle": "x", "time": "x"},
        {"places": ["x"]},
        {"places": "xy"},
        {"truck": "x"},
        [],
    ):
        with refuses(TaskError, wrong):
            Task.from_json(json.dumps({**data, "file_columns": wrong}))


def test_every_set_of_slots_is_as_likely():
    schedule, noise = Schedule(slots_per_day=2, slot_minutes=288), Noise()  # five moments, ten pairs
    drawn = Counter(schedule.draw_slots(noise) for _ in range(10_000))
    assert len(drawn) == 10
    assert chance_of(list(drawn.values()), [1000] * 10) > 1e-9
    assert all(len(set(slots)) == 2 and list(slots) == sorted(slots) for slots in drawn)
    assert Schedule(slots_per_day=288).draw_slots(noise) == tuple(range(288))


def test_tasks_come_back_and_are_frozen():
    more = {"schedule": Schedule(window=3), "limits": Limits(lifetime="10/3", allow_unbounded=True)}
    for task in (TASK, make_task(**more)):
        assert Task.from_json(task.to_json()) == Task.from_json(task.to_bytes()) == task
        assert Task.from_json(task.to_json()).digest == task.digest
        assert pickle.loads(pickle.dumps(task)) == task
    with pytest.raises(FrozenInstanceError):
        TASK.version = 2
    with pytest.raises(TypeError):
        Tier("a", 1)


def test_the_canonical_form_is_fixed():
    purposes = (replace(NUMBERS, parameters={"method": "hybrid"}),)
    small = Task(dataset="fleet", purposes=purposes, schedule=Schedule(), limits=Limits(lifetime="365"))
    assert small.to_bytes() == (
        b'{"dataset":"fleet","format":1,"kind":"dunnage task",'
        b'"limits":{"allow_unbounded":false,"lifetime":"365"},"protects":"vehicle",'
        b'"purposes":[{"mechanism":"local-numeric","name":"telemetry","parameters":{"method":"hybrid"},'
        b'"quantities":[{"high":"120","low":"0","missing":"middle","name":"speed","steps":4,"unit":"km/h"}],'
        b'"tiers":[{"epsilon":"1","name":"basic"}]}],'
        b'"schedule":{"closing":"03:00","lateness_minutes":60,"skew_seconds":120,"slot_minutes":5,'
        b'"slots_per_day":1},"version":1}'
    )
    assert small.prefix.hex() == small.digest[:16]

    def refuse(text):
        raise AssertionError(text)

    json.loads(TASK.to_bytes(), parse_float=refuse)  # no floating point number anywhere


@settings(deadline=None)
@given(st.fractions(Fraction(1, 10**6), 3))
def test_equal_numbers_have_equal_digests(epsilon):
    tiers = [Tier(name="a", epsilon=e) for e in (epsilon, f"{epsilon.numerator}/{epsilon.denominator}")]
    one, other = (make_task(purposes=(replace(PLACES, tiers=(tier,)),)) for tier in tiers)
    assert one.digest == other.digest
    assert Task.from_json(one.to_json()).purposes[0].tiers[0].epsilon == epsilon


def test_any_change_changes_the_digest():
    finer = replace(NUMBERS, quantities=(replace(SPEED, steps=5),))
    changes = [{"dataset": "other"}, {"version": 2}, {"protects": "driver"}, {"schedule": Schedule(skew_seconds=121)}]
    changes += [{"limits": Limits(lifetime="100", day="4")}]
    changes += [{"purposes": purposes} for purposes in ((PLACES, NUMBERS, PATHS), (finer, PLACES, PATHS))]
    assert len({make_task(**change).digest for change in ({}, *changes)}) == 8


def test_tiers_and_windows():
    assert TASK.tier_names == ("basic", "strict")
    assert [TASK.tier_index(purpose, "strict") for purpose in TASK.purposes] == [0, 1, 1]
    with pytest.raises(TaskError, match="basic, strict"):
        TASK.tier_index(PLACES, "gold")
    assert TASK.purpose_index("paths") == 2
    with pytest.raises(TaskError, match="telemetry, places, paths"):
        TASK.purpose_index("map")
    task = make_task(schedule=Schedule(window=4))  # a window shares its epsilon
    assert [tier.epsilon for tier in task.slot_tiers(PLACES)] == [Fraction(1, 4), Fraction(1, 8)]
    assert TASK.slot_tiers(PLACES) == TIERS
    assert make_task(schedule=Schedule(slots_per_day=2, window=2))


def test_what_a_task_refuses():
    other_tiers = replace(PATHS, tiers=(TIERS[0], Tier(name="gold", epsilon="1")))
    wrong = {"purposes": ((), (PLACES, PLACES), (PLACES, other_tiers)), "version": (0,), "dataset": ("",)}
    wrong["limits"] = ({"lifetime": 1}, Limits(lifetime="100", day="2.9"), Limits(lifetime="2.9"))  # a day cannot fit
    wrong["schedule"] = (None, Schedule(slots_per_day=2))
    refuses_each(make_task, TaskError, protects=(None,), **wrong)


def edited(**changes):
    """The task's JSON with some keys changed, or dropped where the value is ``...``."""
    data = {**TASK.to_dict(), **changes}
    return json.dumps({key: value for key, value in data.items() if value is not ...})


def edited_purpose(purpose=PLACES, **changes):
    return edited(purposes=[{**purpose.to_dict(), **changes}])


def test_json_that_is_no_task():
    texts = ["", "[]", "null", "[" * 100_000, '{"format":1,"format":1}', '{"format":1.0}', '{"format":NaN}']
    texts += ['{"format":' + "9" * 5000 + "}", b"\xff\xfe", " " * (1 << 20) + "{}"]
    texts += [edited(format=2), edited(format=True), edited(kind="release"), edited(extra=1), edited(limits=...)]
    texts += [edited(purposes={}), edited(purposes=[1] * 17), edited(limits={"lifetime": 5}), edited(version="1")]
    texts += [edited(schedule={}), edited(schedule={**Schedule().to_dict(), "closing": ["03:00"]})]
    texts += [edited_purpose(tiers=[{"name": "a", "epsilon": epsilon}]) for epsilon in (1, "1" * 201)]
    texts += [edited_purpose(grid=grid) for grid in ({"box": [0, 0, 1, 1], "levels": 3}, 3)]
    texts += [edited_purpose(NUMBERS, quantities=[[]]), edited_purpose(colour=1)]
    texts += [edited_purpose(name=name) for name in (5, "\ud800")]
    for text in texts:
        with refuses(TaskError, text[:200]):
            Task.from_json(text)


plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None)
@given(plain_json, st.data())
def test_any_json_is_a_task_or_an_error(data, draw):
    for text in (json.dumps(data), edited(purposes=data), edited(schedule=data), edited(limits=data)):
        with pytest.raises(TaskError):
            Task.from_json(text)
    place = plain = TASK.to_dict()
    while True:  # any leaf replaced
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw.draw(st.sampled_from(keys))
        below = place[key]
        if not isinstance(below, dict | list) or not below:
            place[key] = draw.draw(st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just([]))
            break
        place = below
    with suppress(TaskError):
        task = Task.from_json(json.dumps(plain))
        assert Task.from_json(task.to_json()) == task


FACTS = {"task": TASK.prefix, "purpose": 1, "tier": 1, "day": 20773, "slot": 287}
REPORT = Report(**FACTS, report_id=bytes(range(ID_BYTES)), payload=b"\x00\xffpayload")


def test_the_forms_of_a_report():
    binary = REPORT.to_bytes()
    # version, digest, two indices, day 20773 in three bytes, slot 287 in two, id, length, payload, checksum
    assert len(binary) == 1 + 8 + 1 + 1 + 3 + 2 + 16 + 1 + 9 + 4
    assert binary[0] == 2
    before = replace(REPORT, report_id=bytes(8)).to_bytes()  # as earlier versions wrote it
    assert (len(before), before[0]) == (len(binary) - 8, 1)
    assert binary[-4:] == zlib.crc32(binary[:-4]).to_bytes(4, "big")
    assert json.loads(REPORT.to_json())["day"] == "2026-11-16"
    assert "payload" not in repr(REPORT)


@settings(deadline=None)
@given(
    st.builds(
        Report,
        task=st.binary(min_size=8, max_size=8),
        purpose=st.integers(0, 1 << 16),
        tier=st.integers(0, 1 << 16),
        day=st.integers(0, 2_932_896),
        slot=st.integers(0, 1439),
        report_id=st.binary(min_size=8, max_size=8) | st.binary(min_size=16, max_size=16),
        payload=st.binary(max_size=300),
    )
)
def test_reports_come_back(report):
    assert Report.from_bytes(report.to_bytes()) == report
    assert Report.from_json(report.to_json()) == report


@settings(deadline=None)
@given(st.binary(max_size=100), st.text(max_size=50))
def test_any_bytes_or_text_are_a_report_or_an_error(data, text):
    for some in (data, b"\x01" + data):
        with suppress(ReportError):
            assert Report.from_bytes(some).to_bytes() == some  # one way only to write a report
    for some in (text, data):
        with pytest.raises(ReportError):
            Report.from_json(some)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(json.loads(REPORT.to_json()))),
    st.none() | st.booleans() | st.integers() | st.text() | st.just([]),
)
def test_any_field_changed_is_an_error(key, value):
    fields = json.loads(REPORT.to_json())
    if fields[key] == value and type(fields[key]) is type(value):
        return
    with pytest.raises(ReportError):
        Report.from_json(json.dumps({**fields, key: value}))


def test_every_flipped_bit_and_every_cut_is_found():
    binary = REPORT.to_bytes()
    for whole, read in ((binary, Report.from_bytes), (REPORT.to_json().encode(), Report.from_json)):
        for bit in range(8 * len(whole)):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            with refuses(ReportError, (read, bit)):
                read(bytes(flipped))
    longer = binary[:9] + b"\x81\x00" + binary[10:-4]  # a number written too long
    wrong = [binary[:end] for end in range(len(binary))] + [binary + b"\0", b"\x03" + binary[1:]]
    wrong += [longer + zlib.crc32(longer).to_bytes(4, "big"), binary[:9] + b"\xff" * 20]
    for data in (*wrong, None, "text", 5, b"\x01" * (MAX_PAYLOAD + 100)):
        with refuses(ReportError, data):
            Report.from_bytes(data)
    changes = {"task": (b"", "12345678"), "report_id": (b"1",), "day": (-1, 2_932_897)}
    refuses_each(partial(replace, REPORT), ReportError, slot=(True,), payload=(None,), **changes)


def test_a_report_of_another_task():
    for changes in ({"task": bytes(8)}, {"purpose": 3}, {"tier": 2}, {"purpose": 0, "tier": 1}, {"slot": 288}):
        other = replace(REPORT, **changes)
        for read, form in ((Report.from_bytes, other.to_bytes()), (Report.from_json, other.to_json())):
            assert read(form) == other
            with refuses(ReportError, changes):
                read(form, task=TASK)
    assert Report.from_bytes(REPORT.to_bytes(), task=TASK) == REPORT


REPORTS = [replace(REPORT, slot=slot, payload=bytes([slot] * slot)) for slot in range(10)]


@pytest.mark.parametrize("ending", ["jsonl", "bin"])
def test_files_of_reports_come_back(tmp_path, ending):
    path = tmp_path / f"reports.{ending}"
    assert write_reports(path, iter(REPORTS)) == 10
    file = ReportFile(path, task=TASK)
    assert list(file) == list(file) == REPORTS  # twice: each pass starts again
    assert (file.num_read, file.num_bad) == (10, 0)
    path.write_bytes(path.read_bytes() * 2)  # joined
    assert list(ReportFile(path)) == REPORTS * 2
    if ending == "jsonl":  # a mark at the start of a text file
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        file = ReportFile(path, task=TASK)
        assert (list(file), file.num_bad) == (REPORTS * 2, 0)


def test_bad_lines_and_blocks_are_counted_and_named(tmp_path):
    path = tmp_path / "reports.jsonl"
    other, good = replace(REPORT, task=bytes(8)).to_json(), [report.to_json() for report in REPORTS[:3]]
    later = [good[0].replace('"format":2', more) for more in ('"format":3', '"format":3,"region":"x"')]
    path.write_text("\n".join([good[0], "{", "", other, good[1], "x" * (MAX_LINE + 10), good[2], *later]))
    file = ReportFile(path, task=TASK)
    assert list(file) == REPORTS[:3]
    assert [bad.where for bad in file.first_bad] == [f"line {number}" for number in (2, 4, 6, 8, 9)]
    assert file.num_bad == 5
    assert all("2" in bad.why for bad in file.first_bad[3:])  # the version
    path.write_text("bad\n" * 100)  # only the first places are named
    file = ReportFile(path)
    assert (list(file), file.num_bad, len(file.first_bad)) == ([], 100, 20)
    path = tmp_path / "reports.bin"
    write_reports(path, REPORTS)
    content = path.read_bytes()
    second = 4 + int.from_bytes(content[:4], "big")
    changed = bytearray(content)
    changed[second + 20] ^= 1
    cuts = [(content[:-cut], REPORTS[:-1]) for cut in (1, 2, 5, 20)]
    for spoilt, left in ((bytes(changed), [REPORTS[0], *REPORTS[2:]]), *cuts):
        path.write_bytes(spoilt)
        file = ReportFile(path)
        assert (list(file), file.num_bad) == (left, 1)
        assert len(left) == 9
        assert len(spoilt) < len(content) or file.first_bad[0].where == f"byte {second}"


@settings(deadline=None)
@given(st.binary(max_size=60), st.sampled_from(["jsonl", "bin"]))
def test_any_file_is_read_without_an_exception(content, ending):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"reports.{ending}"
        path.write_bytes(content)
        file = ReportFile(path)
        assert list(file) == []
        assert file.num_bad >= 1 or not content.strip()


def test_files_of_reports_that_are_refused(tmp_path):
    with pytest.raises(InputError):
        list(ReportFile(tmp_path / "none.jsonl"))
    for attempt in (ReportFile, partial(write_reports, reports=REPORTS)):
        with pytest.raises(ParameterError, match=r"\.jsonl"):
            attempt(tmp_path / "reports.csv")
    write_reports(tmp_path / "reports.bin", REPORTS)
    for name in ("no/reports.bin", "reports.bin"):
        with refuses(OutputError, name):
            write_reports(tmp_path / name, REPORTS)
    assert write_reports(tmp_path / "reports.bin", REPORTS[:2], force=True) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["reports.bin"]
