# SPDX-License-Identifier: Apache-2.0
"""Datasets of trips: times by the service day, stops of the city, counts; everything that does not fit is named."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa
from tests.refusals import found, refusal

from dunnage.errors import InputError, ParameterError
from dunnage.mechanisms.counts import MAX_TRIPS, true_counts
from dunnage.model.domains import Category, Numeric, Stops, Windows, split_stamps
from dunnage.model.policy import PeriodRule, Policy
from dunnage.model.schema import Attribute, Contribution, Role, Schema
from dunnage.model.trips import Trip
from dunnage.tables.dataset import Dataset
from dunnage.tables.reader import ReadOptions

STOPS = Stops(stops=("B", "A"))
RIDER = Contribution(person="card", max=2, per="day")
NOVEMBER = ["2026-11-01", "2026-11-30"]
EXAMPLES = re.compile(r"2026-11-15T08:12 or 08:12|2026-11-15T25:30 as 2026-11-16T01:30")


def policy(
    *,
    attributes: tuple[Attribute, ...] = (),
    period: PeriodRule | None = None,
    read: ReadOptions | None = None,
    bound: Contribution | None = None,
    trip: dict[str, Any] | None = None,
    card: str = "refuse",
    outside: str = "refuse",
    missing: str = "refuse",
    **time: Any,
) -> Policy:
    quasi = {"role": Role.QUASI_IDENTIFIER, "outside": outside, "missing": missing}
    windows = Windows(**{"lower": "04:00", "upper": "28:00", "window_minutes": 30, **time})
    columns = (
        Attribute(name="card", role=Role.IDENTIFIER, missing=card),
        Attribute(name="board", domain=STOPS, **quasi),
        Attribute(name="alight", domain=STOPS, **quasi),
        Attribute(name="tap", domain=windows, **quasi),
        *attributes,
    )
    return Policy(
        dataset="trips",
        schema=Schema(
            attributes=columns,
            protects="rider" if bound else "trip",
            trip=Trip(origin="board", destination="alight", time="tap", **(trip or {})),
            contribution=bound,
        ),
        mechanism={"name": "noisy-counts", "epsilon": 1},
        read_options=read or ReadOptions(),
        period=period,
    )


def table(times: Any, kind: pa.DataType | None = None, **columns: Any) -> pa.Table:
    num = len(times)
    made = {"card": ["c"] * num, "board": ["A"] * num, "alight": ["B"] * num, "tap": pa.array(times, kind)}
    return pa.table({**made, **columns})


def loaded(times: Any, made: Policy, period: str | None = None, **columns: Any) -> Dataset:
    return Dataset.from_table(table(times, **columns), made, period=period)


def wrong(times: Any, made: Policy, period: str | None = None, **columns: Any) -> list[tuple[Any, ...]]:
    """Say what is wrong where, after checking that nothing private is told."""
    error = refusal(InputError, loaded, times, made, period, **columns)
    assert not re.search("2026|08:|stop-x", EXAMPLES.sub("", str(error)))
    return found(error)


def dates_of(dataset: Dataset) -> list[str]:
    ordinals, _ = split_stamps(dataset.column("tap").to_numpy(zero_copy_only=False))
    return [date.fromordinal(ordinal).isoformat() for ordinal in ordinals.tolist()]


def test_times_become_stamps():
    dataset = loaded(["2026-11-15T03:00", "2026-11-15T08:12:30"], policy())
    assert dates_of(dataset) == ["2026-11-14", "2026-11-15"]
    assert split_stamps(dataset.column("tap").to_numpy(zero_copy_only=False))[1].tolist() == [97200, 29550]
    assert "2026" not in repr(dataset)
    made = policy(zone="America/Detroit")
    for values, kind in (
        ([datetime(2026, 11, 15, 8)], pa.timestamp("ms")),
        ([datetime(2026, 11, 15, 13, tzinfo=UTC)], pa.timestamp("ns", tz="UTC")),
        (["2026-11-15T08:00"], pa.large_string()),
        (["2026-11-15T14:00+01:00"], pa.dictionary(pa.int32(), pa.string())),
    ):
        dataset = Dataset.from_table(table(values, kind), made)
        assert dataset.column("tap").equals(loaded(["2026-11-15 08:00:00"], made).column("tap")), kind
    for value in (5, date(2026, 11, 15)):
        assert wrong([value], policy()) == [("tap",)], "no type of times"


def test_what_does_not_fit_is_named_by_row_or_left_out():
    made = {"upper": "22:00", "dates": NOVEMBER}
    times = ["2026-11-15T08:12", "x", "2026-11-15T23:00", "2026-12-15T08:12", "", "2026-11-15T08:12Z"]
    places = wrong(times, policy(**made), board=["A", "A", "A", "A", "A", "stop-x"])
    assert sorted(places) == [("board", 6), *(("tap", row) for row in (2, 3, 4, 5, 6))]
    times = ["2026-11-15T08:12", "2026-11-15T23:00", "2026-12-15T08:12", "", "2026-11-15T08:12"]
    lenient = policy(**made, outside="leave-out", missing="leave-out")
    dataset = loaded(times, lenient, board=["A", "A", "A", "A", "stop-x"])
    assert (len(dataset), dataset.num_left_out) == (1, 4)
    assert wrong(times, policy(**made, outside="leave-out")) == [("tap", 4)]
    assert wrong(times, policy(**made, missing="leave-out")) == [("tap", 2), ("tap", 3)]
    day = Attribute(name="label", role=Role.QUASI_IDENTIFIER, domain=Category(values=("work", "free")))
    labelled = policy(attributes=(day,), trip={"day": "label"})
    assert wrong(["2026-11-15T12:00"], labelled, label=["other"]) == [("label", 1)]
    never = policy(read=ReadOptions(null=("never",)), missing="leave-out")
    assert len(loaded(["never", "2026-11-15T12:00"], never)) == 1


def test_clocks_that_change_follow_the_rule_for_outside():
    times = ["2026-11-01T01:30", "2026-11-01T12:00", "2026-03-08T02:30"]
    zone = "America/Detroit"
    assert wrong(times, policy(zone=zone)) == [("tap", 1, 3)]
    assert len(loaded(times, policy(zone=zone, outside="leave-out"))) == 1
    assert len(loaded(times, policy())) == 3
    # A day of 25 hours has an hour that no domain can hold.
    times = ["2026-11-01T02:59", "2026-11-01T03:00", "2026-11-01T04:00"]
    assert wrong(times, policy(zone=zone)) == [("tap", 2)]
    assert sorted(wrong(times, policy(zone=zone, upper="22:00"))) == [("tap", 1), ("tap", 2)]
    assert len(loaded(times, policy(zone=zone, outside="leave-out"))) == 2
    assert len(loaded(times, policy())) == 3


def test_times_without_dates():
    """They serve where days do not matter, and alone count on past midnight."""
    assert sorted(wrong(["25:30", "2026-11-15T25:30", "2026-11-31T25:30"], policy())) == [("tap", 2), ("tap", 3)]
    assert wrong(["29:30"], policy()) == [("tap", 1)]
    monthly = policy(period=PeriodRule(length="month", column="tap"))
    assert wrong(["2026-11-15T25:30"], monthly, "2026-11") == [("tap", 1)]
    assert len(loaded(["8:12", "25:10", "2026-11-15T08:12"], policy(dates=NOVEMBER))) == 3
    assert len(Dataset.from_table(table([time(8, 12)], pa.time32("s")), policy())) == 1
    for made in (policy(day="weekday"), policy(bound=RIDER, dates=NOVEMBER)):
        assert wrong(["8:12"], made) == [("tap", 1)]
    daily = policy(period=PeriodRule(length="day", column="tap"))
    assert wrong(["8:12"], daily, "2026-11-15") == [("tap", 1)]


def test_no_trips_can_be_counted():
    """That there is a release must not tell that somebody travelled."""
    for outside in ("refuse", "leave-out"):
        assert len(Dataset.from_table(table([], pa.string()), policy(outside=outside))) == 0
        monthly = policy(period=PeriodRule(length="month", column="tap"), outside=outside)
        assert len(loaded(["2026-10-15T12:00"], monthly, "2026-11")) == 0
    assert len(loaded(["2026-11-15T12:00"], policy(outside="leave-out"), board=["stop-x"])) == 0
    assert len(Dataset.from_table(table([], pa.string()), policy(bound=RIDER, dates=NOVEMBER))) == 0


def test_riders():
    times = ["2026-11-15T12:00"] * 3
    dataset = loaded(times, policy(bound=RIDER, dates=NOVEMBER), card=["w", "w ", "v"])
    assert dataset.persons is not None
    assert dataset.persons.tolist() == [0, 0, 1], "the same with a space behind the name"
    assert dataset.column("card").to_pylist() == ["w", "w ", "v"]
    # Trips of nobody cannot be protected by rider.
    nobody = {"card": ["c", "", None]}
    assert wrong(times, policy(bound=RIDER, dates=NOVEMBER), **nobody) == [("card", 2, 3)]
    assert len(loaded(times, policy(bound=RIDER, dates=NOVEMBER, card="leave-out"), **nobody)) == 1
    # A bound per day is one in all only if there are no more days than stated.
    made = policy(bound=RIDER, period=PeriodRule(length="day"))
    assert wrong(["2026-11-15T12:00", "2026-11-16T12:00"], made, "2026-11-15") == [("tap", 2)]


def test_a_period_is_one_of_service_days():
    month = PeriodRule(length="month", column="tap")
    times = ["2026-11-01T03:59", "2026-11-01T04:00", "2026-12-01T03:59", "2026-12-01T04:00"]
    assert loaded(times, policy(period=month), "2026-11").source_rows.tolist() == [2, 3]
    assert loaded(times, policy(period=month), "2026-10").source_rows.tolist() == [1]
    daily = policy(period=PeriodRule(length="day", column="tap"), day="date")
    assert loaded(times, daily, "2026-11-30").source_rows.tolist() == [3]
    assert len(loaded(times, daily, "2026-11-29")) == 0
    # Only the rows of the period are judged.
    made, times = policy(period=month, upper="20:00"), ["2026-11-01T12:00", "2026-10-01T22:00"]
    assert len(loaded(times, made, "2026-11")) == 1
    assert wrong(times, made, "2026-10") == [("tap", 2)]
    for other in ("x", "2026-09-01T12:00Z"):
        assert wrong([*times, other], made, "2026-11") == [("tap", 3)]
    assert len(loaded([*times, ""], policy(period=month, missing="leave-out"), "2026-11")) == 1
    # Days of another period lie outside.
    by_column = {"period": PeriodRule(length="day", column="day"), "day": "date", "outside": "leave-out"}
    made = policy(**by_column, attributes=(Attribute(name="day", role=Role.DROP),))
    times = ["2026-11-15T12:00", "2026-11-15T02:00"]
    assert loaded(times, made, "2026-11-15", day=["2026-11-15"] * 2).source_rows.tolist() == [1]


def counted(upper: float = 2**53 - 1, **changes: Any) -> Policy:
    domain = Numeric(lower=0, upper=upper)
    count = Attribute(name="count", role=Role.QUASI_IDENTIFIER, domain=domain, counts=True, **changes)
    return policy(attributes=(count,), trip={"count": "count"})


def test_counts_are_whole_and_not_negative():
    times = ["2026-11-15T12:00"] * 4
    assert loaded(times, counted(), count=["3", "0", "1", "2.0"]).numbers("count").tolist() == [3, 0, 1, 2]
    assert sorted(wrong(times, counted(), count=["3", "-1", "1.5", ""])) == [("count", row) for row in (2, 3, 4)]
    assert len(loaded(times, counted(outside="leave-out"), count=["3", "-1", "1", "2"])) == 3
    huge = loaded(times, counted(), count=[2**52] * 4)  # a table holds fewer trips, and refuses none
    assert true_counts(huge).counts.tolist() == [MAX_TRIPS // huge.schema.universe().num_cells]
    moved = counted(9, outside="clamp")
    assert loaded(times[:2], moved, count=["12", "-1"]).numbers("count").tolist() == [9, 0]
    assert moved.schema["count"].exception != counted(9).schema["count"].exception
    assert wrong(times[:1], counted(9), count=["12"]) == [("count", 1)]
    assert counted(9.5).schema["count"].counts
    refusal(ParameterError, counted, 9.5, outside="clamp")
