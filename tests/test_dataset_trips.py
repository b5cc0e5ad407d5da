# SPDX-License-Identifier: Apache-2.0
"""Datasets of trips: times by the service day, stops of the city, counts; everything that does not fit is named."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa
import pytest

from dunnage.errors import InputError, ParameterError
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


def problems_of(times: Any, made: Policy, period: str | None = None, **columns: Any) -> str:
    with pytest.raises(InputError) as caught:
        loaded(times, made, period, **columns)
    for private in ("2026", "08:", "stop-x"):
        assert private not in EXAMPLES.sub("", str(caught.value))
    return str(caught.value)


def dates_of(dataset: Dataset) -> list[str]:
    ordinals, _ = split_stamps(dataset.column("tap").to_numpy(zero_copy_only=False))
    return [date.fromordinal(ordinal).isoformat() for ordinal in ordinals.tolist()]


def test_times_become_stamps():
    dataset = loaded(["2026-11-15T03:00", "2026-11-15T08:12:30"], policy())
    assert dates_of(dataset) == ["2026-11-14", "2026-11-15"]
    assert split_stamps(dataset.column("tap").to_numpy(zero_copy_only=False))[1].tolist() == [97200, 29550]
    assert "2026" not in repr(dataset)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([datetime(2026, 11, 15, 8)], pa.timestamp("ms")),
        ([datetime(2026, 11, 15, 13, tzinfo=UTC)], pa.timestamp("ns", tz="UTC")),
        (["2026-11-15T08:00"], pa.large_string()),
        (["2026-11-15T14:00+01:00"], pa.dictionary(pa.int32(), pa.string())),
    ],
)
def test_all_types_of_times_are_alike(values, kind):
    made = policy(zone="America/Detroit")
    dataset = Dataset.from_table(table(values, kind), made)
    assert dataset.column("tap").equals(loaded(["2026-11-15 08:00:00"], made).column("tap"))


def test_columns_that_hold_no_times():
    assert "has type int64" in problems_of([5], policy())
    assert "has type date32" in problems_of([date(2026, 11, 15)], policy())


def test_what_does_not_fit_is_named_by_row():
    made = policy(upper="22:00", dates=NOVEMBER)
    times = ["2026-11-15T08:12", "x", "2026-11-15T23:00", "2026-12-15T08:12", "", "2026-11-15T08:12Z"]
    found = problems_of(times, made, board=["A", "A", "A", "A", "A", "stop-x"])
    assert "column 'tap': is no time such as 2026-11-15T08:12 or 08:12 in row 2" in found
    assert "column 'tap': lies outside the public domain in row 3. Widen the domain, or set outside" in found
    assert "column 'tap': has a service date that is not in dates, in row 4. Widen dates, or set outside" in found
    assert "column 'tap': has no value in row 5" in found
    assert "the policy names no zone" in found
    assert "column 'board': lies outside the public domain in row 6. Add it to the stops file, or set outside" in found
    assert "clamp" not in found


def test_what_does_not_fit_may_be_left_out():
    made = policy(upper="22:00", dates=NOVEMBER, outside="leave-out", missing="leave-out")
    times = ["2026-11-15T08:12", "2026-11-15T23:00", "2026-12-15T08:12", "", "2026-11-15T08:12"]
    dataset = loaded(times, made, board=["A", "A", "A", "A", "stop-x"])
    assert (len(dataset), dataset.num_left_out) == (1, 4)


def test_clocks_that_change_follow_the_rule_for_outside():
    times = ["2026-11-01T01:30", "2026-11-01T12:00", "2026-03-08T02:30"]
    found = problems_of(times, policy(zone="America/Detroit"))
    assert "does not exist on the clock of its zone, or occurs twice in 2 rows: 1, 3" in found
    assert len(loaded(times, policy(zone="America/Detroit", outside="leave-out"))) == 1
    assert len(loaded(times, policy())) == 3


def test_a_day_of_25_hours_has_an_hour_outside():
    times = ["2026-11-01T02:59", "2026-11-01T03:00", "2026-11-01T04:00"]
    for upper in ("28:00", "22:00"):
        made = policy(zone="America/Detroit", upper=upper)
        found = problems_of(times, made)
        assert (
            "25th hour of a service day on which clocks were put back, which no domain can hold, in row 2. S" in found
        )
        assert ("Widen the domain" in found) == (upper == "22:00")
    assert len(loaded(times, policy(zone="America/Detroit", outside="leave-out"))) == 2
    assert len(loaded(times, policy())) == 3


def test_hours_past_midnight_go_without_a_date():
    found = problems_of(["25:30", "2026-11-15T25:30", "2026-11-31T25:30"], policy())
    assert "column 'tap': has an hour past 23 after a date in row 2. Write" in found
    assert "or as 25:30 alone" in found
    assert "is no time such as 2026-11-15T08:12 or 08:12 in row 3" in found
    assert "in row 1. Begin the domain later (it has 24 hours), or set" in problems_of(["29:30"], policy())
    monthly = policy(period=PeriodRule(length="month", column="tap"))
    assert "up to 23:59 in row 1" in problems_of(["2026-11-15T25:30"], monthly, "2026-11")


@pytest.mark.parametrize("outside", ["refuse", "leave-out"])
def test_no_trips_can_be_counted(outside):
    """That there is a release must not tell that somebody travelled."""
    made = policy(outside=outside)
    assert len(Dataset.from_table(table([], pa.string()), made)) == 0
    monthly = policy(period=PeriodRule(length="month", column="tap"), outside=outside)
    assert len(loaded(["2026-10-15T12:00"], monthly, "2026-11")) == 0
    if outside == "leave-out":
        assert len(loaded(["2026-11-15T12:00"], made, board=["stop-x"])) == 0
    assert len(Dataset.from_table(table([], pa.string()), policy(bound=RIDER, dates=NOVEMBER))) == 0


def test_a_rider_is_the_same_with_a_space_behind_the_name():
    times = ["2026-11-15T12:00"] * 3
    dataset = loaded(times, policy(bound=RIDER, dates=NOVEMBER), card=["w", "w ", "v"])
    assert dataset.persons is not None
    assert dataset.persons.tolist() == [0, 0, 1]
    assert dataset.column("card").to_pylist() == ["w", "w ", "v"]


def test_times_without_dates_serve_where_days_do_not_matter():
    assert len(loaded(["8:12", "25:10", "2026-11-15T08:12"], policy(dates=NOVEMBER))) == 3
    assert len(Dataset.from_table(table([time(8, 12)], pa.time32("s")), policy())) == 1
    assert "a time of day without a date" in problems_of(["8:12"], policy(day="weekday"))
    bounded = policy(bound=RIDER, dates=NOVEMBER)
    assert "a time of day without a date" in problems_of(["8:12"], bounded)
    period = PeriodRule(length="day", column="tap")
    assert "holds no date" in problems_of(["8:12"], policy(period=period), "2026-11-15")


def test_a_period_is_one_of_service_days():
    made = policy(period=PeriodRule(length="month", column="tap"))
    times = ["2026-11-01T03:59", "2026-11-01T04:00", "2026-12-01T03:59", "2026-12-01T04:00"]
    assert loaded(times, made, "2026-11").source_rows.tolist() == [1, 2]
    assert loaded(times, made, "2026-10").source_rows.tolist() == [0]
    daily = policy(period=PeriodRule(length="day", column="tap"), day="date")
    assert loaded(times, daily, "2026-11-30").source_rows.tolist() == [2]
    assert len(loaded(times, daily, "2026-11-29")) == 0


def test_only_the_rows_of_the_period_are_judged():
    made = policy(period=PeriodRule(length="month", column="tap"), upper="20:00")
    times = ["2026-11-01T12:00", "2026-10-01T22:00"]
    assert len(loaded(times, made, "2026-11")) == 1
    assert "outside" in problems_of(times, made, "2026-10")
    assert "holds no date" in problems_of([*times, "x"], made, "2026-11")
    left = policy(period=PeriodRule(length="month", column="tap"), missing="leave-out")
    assert len(loaded([*times, ""], left, "2026-11")) == 1
    assert "names no zone" in problems_of([*times, "2026-09-01T12:00Z"], made, "2026-11")


def test_days_of_another_period_lie_outside():
    made = policy(
        day="date",
        period=PeriodRule(length="day", column="day"),
        attributes=(Attribute(name="day", role=Role.DROP),),
        outside="leave-out",
    )
    times = ["2026-11-15T12:00", "2026-11-15T02:00"]
    assert loaded(times, made, "2026-11-15", day=["2026-11-15"] * 2).source_rows.tolist() == [0]


def test_riders_days_are_those_of_the_calendar():
    """A bound per day is one in all only if there are no more days than stated."""
    made = policy(bound=RIDER, period=PeriodRule(length="day"))
    found = problems_of(["2026-11-15T12:00", "2026-11-16T12:00"], made, "2026-11-15")
    assert "has a service date outside the period in row 2. Check --period, or set outside" in found


def counted(upper: float = 2**53 - 1, **changes: Any) -> Policy:
    domain = Numeric(lower=0, upper=upper)
    count = Attribute(name="count", role=Role.QUASI_IDENTIFIER, domain=domain, counts=True, **changes)
    return policy(attributes=(count,), trip={"count": "count"})


def test_counts_are_whole_and_not_negative():
    times = ["2026-11-15T12:00"] * 4
    assert loaded(times, counted(), count=["3", "0", "1", "2.0"]).numbers("count").tolist() == [3, 0, 1, 2]
    found = problems_of(times, counted(), count=["3", "-1", "1.5", ""])
    assert "column 'count': is below 0, and counts are 0 or more, in row 2. Mend the cells, or set outside" in found
    assert "column 'count': is not a whole number in row 3" in found
    assert "column 'count': has no value in row 4" in found
    assert len(loaded(times, counted(outside="leave-out"), count=["3", "-1", "1", "2"])) == 3
    assert "adds up to 2^53" in problems_of(times, counted(), count=[2**52] * 4)


def test_counts_may_be_moved_to_the_ends():
    made = counted(9, outside="clamp")
    assert loaded(["2026-11-15T12:00"] * 2, made, count=["12", "-1"]).numbers("count").tolist() == [9, 0]
    assert made.schema["count"].exception.endswith("were moved to the nearest end before counting")
    above = problems_of(["2026-11-15T12:00"], counted(9), count=["12"])
    assert 'lies outside the public domain in row 1. Widen the domain, or set outside = "leave-out" or "clamp"' in above
    assert counted(9.5).schema["count"].counts
    with pytest.raises(ParameterError, match="begins or ends between two"):
        counted(9.5, outside="clamp")


def test_labels_of_days_are_added_to_their_domain():
    day = Attribute(name="label", role=Role.QUASI_IDENTIFIER, domain=Category(values=("work", "free")))
    found = problems_of(["2026-11-15T12:00"], policy(attributes=(day,), trip={"day": "label"}), label=["other"])
    assert "column 'label': lies outside the public domain in row 1. Add it to the domain, or set outside" in found


def test_trips_of_nobody_cannot_be_protected_by_rider():
    times = ["2026-11-15T12:00"] * 3
    made = policy(bound=RIDER, dates=NOVEMBER)
    found = problems_of(times, made, card=["c", "", None])
    assert "nobody knows whose trips these are and they cannot be protected by rider, in 2 rows: 2, 3" in found
    assert 'missing = "leave-out"' in found
    left = policy(bound=RIDER, dates=NOVEMBER, card="leave-out")
    assert len(loaded(times, left, card=["c", "", None])) == 1


def test_words_for_missing_count_for_times():
    made = policy(read=ReadOptions(null=("never",)), missing="leave-out")
    assert len(loaded(["never", "2026-11-15T12:00"], made)) == 1
