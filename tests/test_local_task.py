# SPDX-License-Identifier: Apache-2.0
"""The task that devices and platform agree on, and the reports that travel between them."""

from __future__ import annotations

import json
import math
import pickle
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import FrozenInstanceError, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.devices.report import ID_BYTES, MAX_LINE, MAX_PAYLOAD, Report, ReportFile, write_reports
from dunnage.devices.task import Grid, Limits, Purpose, Quantity, Schedule, Task, Tier
from dunnage.errors import InputError, OutputError, ParameterError, ReportError, TaskError
from dunnage.noise.source import Noise

BOX = ("103.9", "30.5", "104.2", "30.8")
GRID = Grid(box=BOX, levels=5, area_levels=3)
SPEED = Quantity(name="speed", low="0", high="120", unit="km/h", steps=4)
TIERS = (Tier(name="basic", epsilon="1"), Tier(name="strict", epsilon="0.5"))
PLACES = Purpose(name="places", mechanism="local-location", tiers=TIERS, grid=GRID)
PATHS = Purpose(
    name="paths",
    mechanism="local-trajectory",
    tiers=TIERS,
    grid=GRID,
    steps=2,
    parameters={"hops": 1, "method": "auto"},
)
NUMBERS = Purpose(name="telemetry", mechanism="local-numeric", tiers=TIERS[:1], quantities=(SPEED,))


def make_task(**changes: object) -> Task:
    """A task with all three kinds of purposes."""
    given: dict[str, object] = {
        "dataset": "fleet",
        "purposes": (NUMBERS, PLACES, PATHS),
        "schedule": Schedule(),
        "limits": Limits(lifetime="100", day="3"),
    }
    return Task(**{**given, **changes})


TASK = make_task()


def refuses(make: Callable[..., object], error: type[Exception], **wrong: tuple[object, ...]) -> None:
    """Check that each of the values, by itself, is refused."""
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(error):
                make(**{name: value})


class Hostile:
    """A value whose own code raises."""

    def __float__(self) -> float:
        raise RuntimeError("no")


UNREADABLE = [None, math.nan, "61", b"1", 1j, [], {}, object(), Hostile(), Decimal("NaN"), Decimal("sNaN")]


class TestQuantity:
    def test_ends_and_middle_are_points(self) -> None:
        noise = Noise()
        assert [SPEED.point(v, noise) for v in (0, 30, 60.0, 120, Decimal(90), Fraction(15))] == [-4, -2, 0, 4, 2, -3]

    def test_clamps_and_takes_anything(self) -> None:
        for value in (-1, -1e300, -math.inf, Decimal("-1e999999"), -(10**400)):
            assert SPEED.point(value, Noise()) == -4
        for value in (121, 1e308, math.inf, Decimal("Infinity"), Decimal("1e999999")):
            assert SPEED.point(value, Noise()) == 4
        for value in UNREADABLE:
            assert SPEED.point(value, Noise()) == 0
            assert not SPEED.present(value)

    def test_a_yes_is_a_number(self) -> None:
        yes = Quantity(name="loaded", low=0, high=1, steps=1)
        assert (yes.point(True, Noise()), yes.point(False, Noise())) == (1, -1)

    @settings(deadline=None)
    @given(st.floats(0, 120))
    def test_rounding_is_to_a_neighbouring_point(self, value: float) -> None:
        scaled = SPEED.normalised(value) * SPEED.steps
        assert abs(SPEED.point(value, Noise()) - scaled) < 1

    def test_rounding_has_the_right_mean(self) -> None:
        # 50 is at -2/3 steps: -1 with probability 2/3, 0 with 1/3; 9000 draws stay within 7 standard deviations.
        noise = Noise()
        drawn = Counter(SPEED.point(50, noise) for _ in range(9000))
        assert set(drawn) == {-1, 0}
        assert abs(drawn[0] - 3000) < 7 * math.sqrt(9000 * 2 / 9)

    def test_a_double_is_taken_as_it_is(self) -> None:
        # 0.1 as a double is a little more than one tenth, so it is not quite a point of this grid.
        tenths = Quantity(name="x", low=0, high=1, steps=5)
        assert tenths.normalised(0.1) == 2 * Fraction(0.1) - 1 != Fraction(-4, 5)

    def test_back_to_units(self) -> None:
        assert [SPEED.in_units(t) for t in (-1.0, 0.0, 1.0)] == [0, 60, 120]

    def test_refuses(self) -> None:
        names, steps = ("", " a", "a\n", "x" * 65, 5), (0, True, 2.0)
        change = partial(replace, SPEED)
        refuses(
            change, TaskError, name=names, low=("120",), high=("nan", None), steps=steps, missing=("zero",), unit=(3,)
        )


class TestGrid:
    def test_sizes(self) -> None:
        sizes = (GRID.num_columns, GRID.num_rows, GRID.num_cells, GRID.outside, GRID.num_areas, GRID.num_inner)
        assert sizes == (16, 16, 256, 256, 16, 16)

    def test_the_code_starts_with_the_column(self) -> None:
        # Yao et al., Algorithm 4: odd bits from x, even bits from y.
        two = Grid(box=(0, 0, 2, 2), levels=2)
        cells = [two.cell(x, y) for x, y in ((0.5, 0.5), (0.5, 1.5), (1.5, 0.5), (1.5, 1.5))]
        assert cells == [0, 1, 2, 3]

    def test_borders(self) -> None:
        four = Grid(box=(0, 0, 4, 4), levels=3)
        assert four.column_row(four.cell(1, 1)) == (1, 1)
        assert four.column_row(four.cell(math.nextafter(1, 0), 2)) == (0, 2)
        assert four.cell(4, 4) == 15
        assert four.cell(4.0, 0) == four.cell_at(3, 0)
        outside = [(math.nextafter(4, 5), 1), (1, math.nextafter(4, 5)), (-5e-324, 1), (1, -5e-324)]
        assert {four.cell(x, y) for x, y in outside} == {four.outside}

    def test_a_place_on_a_decimal_side_is_inside(self) -> None:
        assert GRID.cell(104.2, 30.8) == 255
        assert GRID.cell(103.9, 30.5) == 0
        assert GRID.cell(math.nextafter(104.2, 200), 30.8) == GRID.outside

    def test_what_is_no_place_is_outside(self) -> None:
        for value in (*UNREADABLE, math.inf, -math.inf, Decimal("Infinity")):
            assert GRID.cell(value, 30.6) == GRID.cell(104, value) == GRID.cell(value, value) == GRID.outside

    @settings(deadline=None)
    @given(st.integers(0, 255))
    def test_codes_fall_apart_and_join(self, cell: int) -> None:
        assert GRID.cell_at(*GRID.column_row(cell)) == cell
        assert GRID.joined(GRID.area(cell), GRID.inner(cell)) == cell
        assert GRID.cell(*GRID.centre(cell)) == cell

    def test_columns_and_rows_against_plain_interleaving(self) -> None:
        for column in range(16):
            for row in range(16):
                bits = "".join(a + b for a, b in zip(f"{column:04b}", f"{row:04b}", strict=True))
                assert GRID.cell_at(column, row) == int(bits, 2)
                assert f"{GRID.area(int(bits, 2)):04b}" == bits[:4]

    @settings(deadline=None)
    @given(st.floats(103.9, 104.2), st.floats(30.5, 30.8))
    def test_a_cell_holds_its_places(self, longitude: float, latitude: float) -> None:
        west, south, east, north = GRID.bounds(GRID.cell(longitude, latitude))
        slack = Fraction(1, 10**12)  # the sides are doubles, the bounds decimals
        assert west - slack <= Fraction(longitude) <= east + slack
        assert south - slack <= Fraction(latitude) <= north + slack

    def test_neighbours(self) -> None:
        four = Grid(box=(0, 0, 4, 4), levels=3)
        corner, inside = four.cell_at(0, 0), four.cell_at(1, 2)
        assert four.neighbours(corner) == sorted(four.cell_at(x, y) for x in (0, 1) for y in (0, 1))
        assert len(four.neighbours(inside)) == 9
        assert len(four.neighbours(inside, hops=5)) == 16

    def test_one_level_is_one_cell(self) -> None:
        one = Grid(box=BOX, levels=1)
        assert (one.num_cells, one.cell(104, 30.6), one.cell(0, 0), one.num_areas) == (1, 0, 1, 1)

    def test_pitch_never_overstates(self) -> None:
        wide, high = GRID.pitch_km
        assert (
            0.99999 < wide / (Fraction("0.3") / 16 * Fraction("111.31") * Fraction(math.cos(math.radians(30.8)))) <= 1
        )
        assert high == Fraction("0.3") / 16 * Fraction("110.57")
        # The length of a degree on the WGS 84 ellipsoid, by its radii of curvature.
        a, e2 = 6378.137, 0.00669437999014
        for degrees in range(0, 90, 5):
            sine2 = math.sin(math.radians(degrees)) ** 2
            along = math.radians(1) * a * (1 - e2) / (1 - e2 * sine2) ** 1.5
            across = math.radians(1) * a * math.cos(math.radians(degrees)) / math.sqrt(1 - e2 * sine2)
            small = Grid(box=(0, degrees, 1, degrees + 1) if degrees else (0, 0, 1, "0.001"), levels=1)
            assert small.pitch_km[0] <= across
            assert float(small.pitch_km[1] / (small.box[3] - small.box[1])) <= along

    def test_refuses(self) -> None:
        boxes = (("1", "0", "0", "1"), ("0", "1", "1", "1"), ("0", "0", "1"), "0123", 5, ("0", "0", "181", "1"))
        boxes += (("0", "-90", "1", "1"), ("0", "0", "x", "1"), ("1", "0", "1.00000000000000000001", "1"))
        refuses(partial(replace, GRID), TaskError, box=boxes, levels=(0, 13, True), area_levels=(6, 0))


def test_purposes_and_tiers_refuse() -> None:
    parameters = ({"epsilon": "1"}, {"method": 0.5}, {"method": "x" * 65}, {"hops": 2**63}, {"not a name": 1}, [1])
    refuses(
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
    refuses(partial(replace, PATHS), TaskError, steps=(1, 4))  # a path has two or three
    refuses(partial(Tier, name="a"), TaskError, epsilon=("0", "-1", "inf", "x", None))


class TestSchedule:
    def test_moments(self) -> None:
        schedule = Schedule(slot_minutes=10, lateness_minutes=30, closing="02:30", skew_seconds=60)
        assert schedule.num_moments == 144
        moment = schedule.moment(20000, 6)
        assert moment == 20000 * 86400 + 3600
        assert schedule.deadline(20000, 6) == moment + 1800
        assert schedule.closes(20000) == 20001 * 86400 + 9000
        accepted = [schedule.accepts(20000, 6, moment + seconds) for seconds in (-61, -60, 0, 1860, 1861)]
        assert accepted == [False, True, True, True, False]

    def test_closing_cuts_lateness(self) -> None:
        schedule = Schedule(lateness_minutes=600, closing="00:10")
        assert schedule.deadline(7, 287) == schedule.closes(7) == 8 * 86400 + 600

    def test_every_set_of_slots_is_as_likely(self) -> None:
        schedule = Schedule(slots_per_day=2, slot_minutes=288)  # five moments, ten pairs
        noise = Noise()
        drawn = Counter(schedule.draw_slots(noise) for _ in range(20_000))
        assert len(drawn) == 10
        chi = sum((count - 2000) ** 2 / 2000 for count in drawn.values())
        assert chi < 60.7  # 9 degrees of freedom: p < 1e-9 beyond
        assert all(len(set(slots)) == 2 and list(slots) == sorted(slots) for slots in drawn)

    def test_all_slots(self) -> None:
        assert Schedule(slots_per_day=288).draw_slots(Noise()) == tuple(range(288))

    def test_refuses(self) -> None:
        refuses(
            Schedule,
            TaskError,
            slot_minutes=(7, 0),
            slots_per_day=(0, 289),
            lateness_minutes=(0, 1441),
            closing=("24:00", "12:60", "1:00", "aa:bb", "\u0661\u0662:00", 3),
            skew_seconds=(-1,),
            window=(0, 1.5),
        )


class TestTask:
    def test_is_frozen_and_keyword_only(self) -> None:
        with pytest.raises(FrozenInstanceError):
            TASK.version = 2
        with pytest.raises(TypeError):
            Tier("a", 1)

    def test_round_trip(self) -> None:
        for task in (
            TASK,
            make_task(schedule=Schedule(window=3), limits=Limits(lifetime="10/3", allow_unbounded=True)),
        ):
            assert Task.from_json(task.to_json()) == Task.from_json(task.to_bytes()) == task
            assert Task.from_json(task.to_json()).digest == task.digest
            assert pickle.loads(pickle.dumps(task)) == task

    def test_the_canonical_form_is_fixed(self) -> None:
        small = Task(
            dataset="fleet",
            purposes=(replace(NUMBERS, parameters={"method": "hybrid"}),),
            schedule=Schedule(),
            limits=Limits(lifetime="365"),
        )
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

    def test_no_floating_point_number_anywhere(self) -> None:
        def refuse(text: str) -> None:
            raise AssertionError(text)

        json.loads(TASK.to_bytes(), parse_float=refuse)

    @settings(deadline=None)
    @given(st.fractions(Fraction(1, 10**6), 3))
    def test_equal_numbers_have_equal_digests(self, epsilon: Fraction) -> None:
        tiers = [Tier(name="a", epsilon=e) for e in (epsilon, f"{epsilon.numerator}/{epsilon.denominator}")]
        one, other = (make_task(purposes=(replace(PLACES, tiers=(tier,)),)) for tier in tiers)
        assert one.digest == other.digest
        assert Task.from_json(one.to_json()).purposes[0].tiers[0].epsilon == epsilon

    def test_any_change_changes_the_digest(self) -> None:
        changed = [
            make_task(dataset="other"),
            make_task(version=2),
            make_task(protects="driver"),
            make_task(schedule=Schedule(skew_seconds=121)),
            make_task(limits=Limits(lifetime="100", day="4")),
            make_task(purposes=(PLACES, NUMBERS, PATHS)),
            make_task(purposes=(replace(NUMBERS, quantities=(replace(SPEED, steps=5),)), PLACES, PATHS)),
        ]
        assert len({task.digest for task in (TASK, *changed)}) == 8

    def test_tiers_of_a_vehicle(self) -> None:
        assert TASK.tier_names == ("basic", "strict")
        assert [TASK.tier_index(purpose, "strict") for purpose in TASK.purposes] == [0, 1, 1]
        with pytest.raises(TaskError, match="basic, strict"):
            TASK.tier_index(PLACES, "gold")

    def test_a_window_shares_its_epsilon(self) -> None:
        task = make_task(schedule=Schedule(window=4))
        assert [tier.epsilon for tier in task.slot_tiers(PLACES)] == [Fraction(1, 4), Fraction(1, 8)]
        assert TASK.slot_tiers(PLACES) == TIERS

    def test_a_day_that_cannot_fit_is_refused(self) -> None:
        limits = (Limits(lifetime="100", day="2.9"), Limits(lifetime="2.9"))
        refuses(make_task, TaskError, limits=limits, schedule=(Schedule(slots_per_day=2),))
        assert make_task(schedule=Schedule(slots_per_day=2, window=2))

    def test_refuses(self) -> None:
        other_tiers = replace(PATHS, tiers=(TIERS[0], Tier(name="gold", epsilon="1")))
        purposes = ((), (PLACES, PLACES), (PLACES, other_tiers))
        limits = ({"lifetime": 1},)
        refuses(make_task, TaskError, purposes=purposes, schedule=(None,), limits=limits, version=(0,), dataset=("",))
        refuses(make_task, TaskError, protects=(None,))
        refuses(partial(Limits, lifetime="100"), TaskError, day=("0", "101"), allow_unbounded=(1,))
        refuses(Limits, TaskError, lifetime=("0", None))

    def test_no_such_purpose(self) -> None:
        assert TASK.purpose_index("paths") == 2
        with pytest.raises(TaskError, match="telemetry, places, paths"):
            TASK.purpose_index("map")


def edited(**changes: object) -> str:
    """The task's JSON with some keys changed, or dropped where the value is ``...``."""
    data = {**TASK.to_dict(), **changes}
    return json.dumps({key: value for key, value in data.items() if value is not ...})


def edited_purpose(purpose: Purpose = PLACES, **changes: object) -> str:
    return edited(purposes=[{**purpose.to_dict(), **changes}])


class TestTaskJson:
    def test_refuses(self) -> None:
        for text, says in (
            ("", "JSON"),
            ("[]", "table"),
            ("null", "table"),
            ("[" * 100_000, "deeply"),
            ('{"format":1,"format":1}', "twice"),
            ('{"format":1.0}', "decimals"),
            ('{"format":NaN}', "decimals"),
            ('{"format":' + "9" * 5000 + "}", "JSON"),
            (b"\xff\xfe", "JSON"),
            (" " * (1 << 20) + "{}", "bytes"),
            (edited(format=2), "format 1"),
            (edited(format=True), "not a task"),
            (edited(kind="release"), "not a task"),
            (edited(extra=1), "'extra'"),
            (edited(limits=...), "lacks limits"),
            (edited(purposes={}), "list"),
            (edited(purposes=[1] * 17), "list"),
            (edited_purpose(colour=1), "'colour'"),
            (edited_purpose(tiers=[{"name": "a", "epsilon": 1}]), "text"),
            (edited_purpose(tiers=[{"name": "a", "epsilon": "1" * 201}]), "text"),
            (edited_purpose(grid={"box": [0, 0, 1, 1], "levels": 3}), "text"),
            (edited_purpose(grid=3), "table"),
            (edited_purpose(NUMBERS, quantities=[[]]), "table"),
            (edited_purpose(name=5), "text"),
            (edited_purpose(name="\ud800"), "text"),
            (edited(schedule={}), "lacks"),
            (edited(schedule={**Schedule().to_dict(), "closing": ["03:00"]}), "closing"),
            (edited(limits={"lifetime": 5}), "text"),
            (edited(version="1"), "version"),
        ):
            with pytest.raises(TaskError, match=says):
                Task.from_json(text)

    @settings(deadline=None)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        )
    )
    def test_any_json_is_a_task_or_an_error(self, data: object) -> None:
        for text in (json.dumps(data), edited(purposes=data), edited(schedule=data), edited(limits=data)):
            with pytest.raises(TaskError):
                Task.from_json(text)

    @settings(deadline=None)
    @given(st.data())
    def test_any_replaced_leaf_is_a_task_or_an_error(self, data: st.DataObject) -> None:
        plain = TASK.to_dict()
        place: object = plain
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            below = place[key]
            if not isinstance(below, dict | list) or not below:
                place[key] = data.draw(st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just([]))
                break
            place = below
        with suppress(TaskError):
            task = Task.from_json(json.dumps(plain))
            assert Task.from_json(task.to_json()) == task


REPORT = Report(
    task=TASK.prefix,
    purpose=1,
    tier=1,
    day=20773,
    slot=287,
    report_id=bytes(range(ID_BYTES)),
    payload=b"\x00\xffpayload",
)


class TestReport:
    def test_forms(self) -> None:
        binary = REPORT.to_bytes()
        # version, digest, two indices, day 20773 in three bytes, slot 287 in two, id, length, payload, checksum
        assert len(binary) == 1 + 8 + 1 + 1 + 3 + 2 + 8 + 1 + 9 + 4
        assert binary[0] == 1
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
            report_id=st.binary(min_size=8, max_size=8),
            payload=st.binary(max_size=300),
        )
    )
    def test_round_trip(self, report: Report) -> None:
        assert Report.from_bytes(report.to_bytes()) == report
        assert Report.from_json(report.to_json()) == report

    @settings(deadline=None)
    @given(st.binary(max_size=100))
    def test_any_bytes_are_a_report_or_an_error(self, data: bytes) -> None:
        for text in (data, b"\x01" + data):
            with suppress(ReportError):
                assert Report.from_bytes(text).to_bytes() == text  # one way only to write a report

    @settings(deadline=None)
    @given(st.text(max_size=50) | st.binary(max_size=50))
    def test_any_text_is_a_report_or_an_error(self, text: str | bytes) -> None:
        with pytest.raises(ReportError):
            Report.from_json(text)

    @settings(deadline=None)
    @given(
        st.sampled_from(sorted(json.loads(REPORT.to_json()))),
        st.none() | st.booleans() | st.integers() | st.text() | st.just([]),
    )
    def test_any_field_changed_is_an_error(self, key: str, value: object) -> None:
        fields = json.loads(REPORT.to_json())
        if fields[key] == value and type(fields[key]) is type(value):
            return
        with pytest.raises(ReportError):
            Report.from_json(json.dumps({**fields, key: value}))

    def test_every_flipped_bit_is_found(self) -> None:
        for whole, read in ((REPORT.to_bytes(), Report.from_bytes), (REPORT.to_json().encode(), Report.from_json)):
            for bit in range(8 * len(whole)):
                flipped = bytearray(whole)
                flipped[bit // 8] ^= 1 << bit % 8
                with pytest.raises(ReportError):
                    read(bytes(flipped))

    def test_every_cut_is_found(self) -> None:
        binary = REPORT.to_bytes()
        for end in range(len(binary)):
            with pytest.raises(ReportError, match="cut off"):
                Report.from_bytes(binary[:end])
        with pytest.raises(ReportError, match="1 bytes follow"):
            Report.from_bytes(binary + b"\0")

    def test_a_report_of_another_task(self) -> None:
        for changes, says in (
            ({"task": bytes(8)}, "another task"),
            ({"purpose": 3}, "3 purposes"),
            ({"tier": 2}, "2 tiers"),
            ({"purpose": 0, "tier": 1}, "1 tiers"),
            ({"slot": 288}, "288 slots"),
        ):
            other = replace(REPORT, **changes)
            for read, form in ((Report.from_bytes, other.to_bytes()), (Report.from_json, other.to_json())):
                with pytest.raises(ReportError, match=says):
                    read(form, task=TASK)
        assert Report.from_bytes(REPORT.to_bytes(), task=TASK) == REPORT

    def test_an_unknown_version(self) -> None:
        with pytest.raises(ReportError, match="version 2"):
            Report.from_bytes(b"\x02" + REPORT.to_bytes()[1:])

    def test_a_number_written_too_long(self) -> None:
        binary = REPORT.to_bytes()
        longer = binary[:9] + b"\x81\x00" + binary[10:-4]
        with pytest.raises(ReportError, match="purpose"):
            Report.from_bytes(longer + zlib.crc32(longer).to_bytes(4, "big"))
        endless = binary[:9] + b"\xff" * 20
        with pytest.raises(ReportError, match="purpose"):
            Report.from_bytes(endless)

    def test_refuses(self) -> None:
        refuses(Report.from_bytes, ReportError, data=(None, "text", 5, b"\x01" * (MAX_PAYLOAD + 100)))
        tasks, days = (b"", "12345678"), (-1, 2_932_897)
        change = partial(replace, REPORT)
        refuses(change, ReportError, task=tasks, report_id=(b"1",), day=days, slot=(True,), payload=(None,))


REPORTS = [replace(REPORT, slot=slot, payload=bytes([slot] * slot)) for slot in range(10)]


class TestReportFile:
    @pytest.mark.parametrize("ending", ["jsonl", "bin"])
    def test_round_trip(self, tmp_path: Path, ending: str) -> None:
        path = tmp_path / f"reports.{ending}"
        assert write_reports(path, iter(REPORTS)) == 10
        file = ReportFile(path, task=TASK)
        assert list(file) == list(file) == REPORTS  # twice: each pass starts again
        assert (file.num_read, file.num_bad) == (10, 0)
        joined = tmp_path / f"joined.{ending}"
        joined.write_bytes(path.read_bytes() * 2)
        assert list(ReportFile(joined)) == REPORTS * 2

    def test_bad_lines_are_counted_and_named(self, tmp_path: Path) -> None:
        path = tmp_path / "reports.jsonl"
        other = replace(REPORT, task=bytes(8)).to_json()
        good = [report.to_json() for report in REPORTS[:3]]
        path.write_text("\n".join([good[0], "{", "", other, good[1], "x" * (MAX_LINE + 10), good[2]]))
        file = ReportFile(path, task=TASK)
        assert list(file) == REPORTS[:3]
        assert [bad.where for bad in file.first_bad] == ["line 2", "line 4", "line 6"]
        assert file.num_bad == 3
        assert "another task" in str(file.first_bad)

    def test_bad_blocks_are_counted_and_named(self, tmp_path: Path) -> None:
        path = tmp_path / "reports.bin"
        write_reports(path, REPORTS)
        content = bytearray(path.read_bytes())
        second = 4 + int.from_bytes(content[:4], "big")
        content[second + 20] ^= 1
        path.write_bytes(content)
        file = ReportFile(path)
        assert list(file) == [REPORTS[0], *REPORTS[2:]]
        assert [bad.where for bad in file.first_bad] == [f"byte {second}"]

    def test_a_cut_file(self, tmp_path: Path) -> None:
        path = tmp_path / "reports.bin"
        for cut in (1, 2, 5, 20):
            write_reports(path, REPORTS, force=True)
            path.write_bytes(path.read_bytes()[:-cut])
            file = ReportFile(path)
            assert list(file) == REPORTS[:-1]
            assert file.num_bad == 1
            assert "cut off" in file.first_bad[0].why

    @settings(deadline=None)
    @given(st.binary(max_size=60), st.sampled_from(["jsonl", "bin"]))
    def test_any_file_is_read_without_an_exception(self, content: bytes, ending: str) -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"reports.{ending}"
            path.write_bytes(content)
            file = ReportFile(path)
            assert list(file) == []
            assert file.num_bad >= 1 or not content.strip()

    def test_a_mark_at_the_start_of_a_text_file(self, tmp_path: Path) -> None:
        path = tmp_path / "reports.jsonl"
        write_reports(path, REPORTS)
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        file = ReportFile(path, task=TASK)
        assert list(file) == REPORTS
        assert file.num_bad == 0

    def test_another_version_is_said_to_be_one(self, tmp_path: Path) -> None:
        path = tmp_path / "reports.jsonl"
        for more in ('"format":2', '"format":2,"region":"x"'):
            path.write_text(REPORTS[0].to_json().replace('"format":1', more) + "\n")
            file = ReportFile(path, task=TASK)
            assert list(file) == []
            assert "Got version 2. Update Dunnage" in file.first_bad[0].why

    def test_only_the_first_bad_places_are_named(self, tmp_path: Path) -> None:
        path = tmp_path / "reports.jsonl"
        path.write_text("bad\n" * 100)
        file = ReportFile(path)
        assert list(file) == []
        assert (file.num_bad, len(file.first_bad)) == (100, 20)

    def test_refuses(self, tmp_path: Path) -> None:
        with pytest.raises(InputError):
            list(ReportFile(tmp_path / "none.jsonl"))
        with pytest.raises(ParameterError, match=r"jsonl or \.bin"):
            ReportFile(tmp_path / "reports.csv")
        with pytest.raises(ParameterError, match=r"jsonl or \.bin"):
            write_reports(tmp_path / "reports.csv", REPORTS)
        with pytest.raises(OutputError):
            write_reports(tmp_path / "no" / "reports.bin", REPORTS)
        write_reports(tmp_path / "reports.bin", REPORTS)
        with pytest.raises(OutputError, match="exists"):
            write_reports(tmp_path / "reports.bin", REPORTS)
        assert write_reports(tmp_path / "reports.bin", REPORTS[:2], force=True) == 2
        assert [path.name for path in tmp_path.iterdir()] == ["reports.bin"]
