# SPDX-License-Identifier: Apache-2.0
"""Windows of a service day, and times read on its clock: against dates and zones of the standard library."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.errors import ParameterError
from dunnage.model.domains import STAMPS_PER_DATE, Stops, Windows, domain_from, split_stamps, stamps_of
from dunnage.model.hierarchies import hierarchy_of
from dunnage.tables.columns import TimeReadings, read_times

NIGHT = {"lower": "04:00", "upper": "28:00", "window_minutes": 30}
ZONES = ("America/Detroit", "Europe/Madrid", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu", "UTC")
HALVES = ("missing", "unreadable", "undated", "astray", "unclear")


def windows(**changes: Any) -> Windows:
    return Windows(**{**NIGHT, **changes})


def read(values: Any, domain: Windows, kind: pa.DataType | None = None) -> TimeReadings:
    return read_times(pa.array(values, kind), domain)


def service(readings: TimeReadings) -> list[tuple[str, str]]:
    """Service date and clock of each time, for a person."""
    found = []
    for stamp in readings.stamps.tolist():
        ordinal, second = divmod(stamp, STAMPS_PER_DATE)
        day = date.fromordinal(ordinal).isoformat() if ordinal else ""
        found.append((day, f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"))
    return found


def masks(readings: TimeReadings) -> dict[str, list[int]]:
    return {name: np.flatnonzero(getattr(readings, name)).tolist() for name in HALVES if getattr(readings, name).any()}


def test_stops_and_windows_are_domains():
    made = Stops(stops=("C", "A", "B"))
    assert (made.labels, made.codes(["A", "C"]).tolist()) == (("C", "A", "B"), [1, 0])
    assert made.contains(["A", "Q"]).tolist() == [True, False]
    assert (made.distance("A", "B"), made.distance("A", "A"), made.diameter) == (1.0, 0.0, 1.0)
    assert (made.generalise(["B", "C", "B"]), made.width(("C", "B"))) == (("C", "B"), 0.5)
    assert made.distances().tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert domain_from(made.describe()) == made

    assert hierarchy_of(Stops(stops=("C", "A"))).labels(1) == ["*", "*"]
    with pytest.raises(ParameterError):
        Stops(stops=("A", "A"))
    assert windows(upper="06:00", window_minutes=45).labels == ("04:00", "04:45", "05:30")
    assert (windows().labels[-1], windows(lower="4:00")) == ("27:30", windows())
    for made in (
        windows(),
        windows(zone="Europe/Madrid", day="day-type", dates=["2026-11-01", "2026-11-30"], holidays=["2026-11-02"]),
    ):
        assert (domain_from(made.describe()), hash(domain_from(made.describe()))) == (made, hash(made))
    made = windows(dates=("2026-11-01", "2026-11-30"))
    day = date(2026, 11, 15).toordinal()
    stamps = stamps_of(np.array([day, day, day, day, day - 20, 0]), np.array([14399, 14400, 100799, 100800, 20000, 5]))
    assert made.contains(stamps).tolist() == [False, True, True, False, False, False]
    assert (made.diameter, made.distance(int(stamps[1]), int(stamps[2]))) == (86400.0, 86399.0)
    assert (made.generalise(stamps[:3]), made.width((14400, 57600))) == ((14399, 100799), 0.5)
    for call in (lambda: made.width((2, 1)), lambda: made.generalise([])):
        with pytest.raises(ParameterError):
            call()


def test_what_cannot_be():
    for changes in (
        *({"lower": lower, "upper": upper} for lower, upper in (("08:00", "08:00"), ("00:00", "24:01"))),
        *({"lower": lower, "upper": upper} for lower, upper in (("24:00", "25:00"), ("23:30", "48:01"))),
        *({"lower": wrong} for wrong in ("08:60", 8)),
        *({"window_minutes": wrong} for wrong in (0, -30, 7.5, True)),
        *({"zone": wrong} for wrong in ("Mars/Olympus", "America", "../etc/passwd", 5)),
        {"day": "month"},
        *({"dates": wrong} for wrong in (["2026-11-30", "2026-11-01"], ["2026-11-30"], "2026-11-30")),
        *({"dates": [wrong, "2026-12-01"]} for wrong in ("2026-11-31", "20261101", "1926-11-01")),
        {"holidays": ["2026-12-25"]},
        *({"day": "day-type", "holidays": wrong} for wrong in (["Christmas"], "2026-12-25")),
    ):
        with pytest.raises(ParameterError, match="|".join(map(str, changes)) if len(changes) == 1 else None):
            windows(**changes)


def test_days_of_november():
    dates = ["2026-11-01", "2026-11-30"]  # a Sunday to a Monday
    assert (windows(dates=dates).days(), windows(dates=dates).num_dates()) == ((), (30,))
    assert windows().num_dates() == ()
    by_date = windows(day="date", dates=dates)
    assert (by_date.days()[:2], by_date.num_dates()) == (("2026-11-01", "2026-11-02"), (1,) * 30)
    assert by_date.days("2026-11-15") == ("2026-11-15",)
    weekly = windows(day="weekday", dates=dates)
    assert (weekly.days()[0], weekly.num_dates()) == ("monday", (5, 4, 4, 4, 4, 4, 5))
    types = windows(day="day-type", dates=dates, holidays=["2026-11-26"])
    assert (types.days(), types.num_dates()) == (("weekday", "saturday", "sunday"), (20, 4, 6))
    made = windows(day="weekday")
    assert (len(made.days()), made.num_dates(), made.days("2026-11-15")) == (7, (), ("sunday",))
    assert windows(day="day-type").num_dates("2026-02") == (20, 4, 4)
    for more, period in (({}, None), ({"dates": ["2026-11-01", "2026-11-30"]}, "2026-12")):
        with pytest.raises(ParameterError):
            windows(day="date", **more).days(period)


@pytest.mark.parametrize("day", [None, "date", "weekday", "day-type"])
@pytest.mark.parametrize("period", [None, "2026-11", "2026-11-14"])
def test_slots_against_the_calendar(day, period):
    holidays = ["2026-11-14"] if day == "day-type" else []
    made = windows(day=day, dates=["2026-11-01", "2026-12-31"], holidays=holidays, window_minutes=7)
    generator = np.random.default_rng(5)
    first, num = {None: (1, 61), "2026-11": (1, 30), "2026-11-14": (14, 1)}[period]
    ordinals = date(2026, 11, first).toordinal() + generator.integers(0, num, 200)
    seconds = generator.integers(made.lower_seconds, made.upper_seconds, 200)
    slots = made.slots(stamps_of(ordinals, seconds), period)
    days = made.days(period)
    for ordinal, second, slot in zip(ordinals.tolist(), seconds.tolist(), slots.tolist(), strict=True):
        when = date.fromordinal(ordinal)
        kind = {5: "saturday", 6: "sunday"}.get(when.weekday(), "weekday")
        words = {None: None, "date": when.isoformat(), "weekday": when.strftime("%A").lower(), "day-type": kind}
        words["day-type"] = "sunday" if when.isoformat() in holidays else kind
        place, window = divmod(slot, len(made.labels))
        assert (days[place] if days else None) == words[day]
        start = made.lower_seconds + window * 7 * 60
        assert start <= second < start + 7 * 60


def test_texts_of_times():
    values = ["2026-11-15T08:12", " 2026-11-15 08:12:30 ", "2026-11-15t03:59:59.75"]
    values += ["8:12", "08:12:30", "25:10:00", "3:59"]
    readings = read(values, windows())
    assert service(readings) == [
        ("2026-11-15", "08:12:00"),
        ("2026-11-15", "08:12:30"),
        ("2026-11-14", "27:59:59"),
        ("", "08:12:00"),
        ("", "08:12:30"),
        ("", "25:10:00"),
        ("", "27:59:00"),
    ]
    assert masks(readings) == {"undated": [3, 4, 5, 6]}
    values = [*("", None, "NA", "x", "2026-02-30T08:00", "2026-11-15T24:00", "2026-11-15", "8:60", "8:00Z", "8", "8:0")]
    values += ["2026-11-15T08:00+25:00", "0001-01-01T00:00", "2026-11-15T08:00:61", "2026-11-15T", "-1:00", "8:0"]
    values += ["2026-11-15T08:00Z+01:00", "2026-11-15T08:00:00.", "123:00", "\u0668:00"]
    readings = read_times(pa.array(values, pa.string()), windows(), ["NA"])
    assert masks(readings) == {"missing": [0, 1, 2], "unreadable": list(range(3, len(values)))}
    values = ["2026-11-15T08:00", "2026-11-15T08:00Z", "2026-11-15T08:00:00+0100", "2026-11-15 08:00 -05"]
    assert masks(read(values, windows())) == {"astray": [1, 2, 3]}
    readings = read(values, windows(zone="Europe/Madrid"))
    assert masks(readings) == {}
    assert [when for _, when in service(readings)] == ["08:00:00", "09:00:00", "08:00:00", "14:00:00"]
    values = [
        "2026-11-01T01:30",  # twice
        "2026-11-01T01:30-04:00",
        "2026-11-01T01:30-05:00",
        "2026-11-01T03:30",  # the 29th hour of its service day
        "2026-03-08T02:30",  # never
        "2026-03-08T03:30",
        "2026-03-08T05:00",
    ]
    readings = read(values, windows(zone="America/Detroit"))
    assert masks(readings) == {"unclear": [0, 4]}
    found = service(readings)
    assert found[1:4] == [("2026-10-31", "25:30:00"), ("2026-10-31", "26:30:00"), ("2026-10-31", "28:30:00")]
    assert found[5:] == [("2026-03-07", "26:30:00"), ("2026-03-08", "05:00:00")]


def test_chunks_make_no_difference_and_nothing_private_is_shown():
    values = ["2026-11-15T08:12", None, "9:00", "x", "2026-11-01T01:30", "2026-11-15T08:12Z"]
    few, many = (read(values * times, windows(zone="America/Detroit")) for times in (1, 180_000))
    for name in ("stamps", *HALVES):
        assert np.array_equal(np.tile(getattr(few, name), 180_000), getattr(many, name)), name
    assert "08:12" not in repr(read(["08:12"], windows()))
    assert read([], windows(zone="UTC"), pa.string()).stamps.tolist() == []


def test_timestamps():
    times = [datetime(2026, 11, 15, 3, 59, 59), None, datetime(2026, 11, 15, 8, 12)]
    for unit in ("s", "ms", "us", "ns"):
        readings = read(times, windows(), pa.timestamp(unit))
        assert service(readings)[::2] == [("2026-11-14", "27:59:59"), ("2026-11-15", "08:12:00")]
        assert masks(readings) == {"missing": [1]}
    times = [datetime(2026, 11, 15, 8, 12, tzinfo=UTC)]
    kind = pa.timestamp("us", tz="Asia/Tokyo")
    assert masks(read(times, windows(), kind)) == {"astray": [0]}
    assert service(read(times, windows(zone="America/Detroit"), kind)) == [("2026-11-14", "27:12:00")]
    for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        seconds = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit] * 3600
        column = pa.array([seconds, None], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
        readings = read_times(column, windows())
        assert service(readings)[0] == ("", "25:00:00")
        assert masks(readings) == {"missing": [1], "undated": [0]}
    assert masks(read([datetime(1700, 1, 1), datetime(2500, 1, 1)], windows(zone="UTC"))) == {"unreadable": [0, 1]}

    for values in ([1, 2], [1.5], [date(2026, 11, 15)], [True]):
        with pytest.raises(pa.ArrowTypeError):
            read(values, windows())


def service_by_hand(moment: datetime, zone: ZoneInfo, lower_seconds: int) -> tuple[int, int]:
    """Service date and second of a moment, one at a time, with the standard library."""
    day = moment.astimezone(zone).date()
    for shift in (0, 1):
        service_day = day - timedelta(days=shift)
        noon = datetime(service_day.year, service_day.month, service_day.day, 12, tzinfo=zone)
        second = int(moment.timestamp()) - (int(noon.timestamp()) - 43200)
        if second >= lower_seconds:
            break
    return service_day.toordinal(), second


# Around clock changes of all zones above, and anywhere else.
CHANGES = [(2026, 3, 8), (2026, 11, 1), (2026, 3, 29), (2026, 10, 25), (2026, 4, 4), (2026, 2, 15), (2045, 3, 26)]
STARTS = [int(datetime(*day, tzinfo=UTC).timestamp()) for day in ((2021, 1, 1), (2060, 1, 1), *CHANGES)]
MOMENTS = st.one_of(st.integers(*STARTS[:2]), *(st.integers(start - 90_000, start + 180_000) for start in STARTS[2:]))


@settings(max_examples=120, deadline=None)
@given(zone=st.sampled_from(ZONES), lower=st.integers(0, 23), moments=st.lists(MOMENTS, min_size=1, max_size=8))
def test_moments_against_the_standard_library(zone, lower, moments):
    domain = windows(lower=f"{lower:02d}:00", upper=f"{lower + 24:02d}:00", zone=zone)
    times = [datetime.fromtimestamp(moment, UTC) for moment in moments]
    readings = read([time.isoformat() for time in times], domain)
    assert masks(readings) == {}
    ordinals, seconds = split_stamps(readings.stamps)
    found = list(zip(ordinals.tolist(), seconds.tolist(), strict=True))
    assert found == [service_by_hand(time, ZoneInfo(zone), domain.lower_seconds) for time in times]
    arrow = read(times, domain, pa.timestamp("s", tz="UTC"))
    assert arrow.stamps.tolist() == readings.stamps.tolist()


@settings(max_examples=120, deadline=None)
@given(zone=st.sampled_from(ZONES), moments=st.lists(MOMENTS, min_size=1, max_size=8))
def test_local_times_against_the_standard_library(zone, moments):
    domain, info = windows(zone=zone), ZoneInfo(zone)
    naive = [datetime.fromtimestamp(moment, UTC).replace(tzinfo=None) for moment in moments]
    readings = read([time.isoformat(sep=" ") for time in naive], domain)
    ordinals, seconds = split_stamps(readings.stamps)
    for place, time in enumerate(naive):
        early, late = time.replace(tzinfo=info), time.replace(tzinfo=info, fold=1)
        assert readings.unclear[place] == (early.utcoffset() != late.utcoffset())
        if not readings.unclear[place]:
            wanted = service_by_hand(early.astimezone(UTC), info, domain.lower_seconds)
            assert (ordinals[place], seconds[place]) == wanted
