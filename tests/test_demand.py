# SPDX-License-Identifier: Apache-2.0
"""Counts of trips made single trips, and trips made shuttle rides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.fleet_help import policy_of, publish

import dunnage as dn
from dunnage.errors import ParameterError
from dunnage.model.city import City
from dunnage.model.domains import Windows
from dunnage.model.routes import Routes
from dunnage.model.trips import Universe
from dunnage.planning import demand
from dunnage.planning.demand import (
    TripCounts,
    Trips,
    counted_trips,
    released_counts,
    service_seconds,
    shuttle_requests,
    window_seconds,
)

STOPS = ("A", "B", "C", "D")
CITY = City(stops=("X", *STOPS[::-1]))


def universe(**more) -> Universe:
    return Universe(stops=STOPS, windows=("08:00", "08:30"), window_minutes=30, **more)


def counts_of(of: Universe, table: dict[tuple[int, int, int], int]) -> TripCounts:
    """Make counts of (origin, destination, slot)."""
    ends = np.array(list(table), dtype=np.int64).reshape(-1, 3).T
    return counted_trips(of, of.cells(*ends), np.array(list(table.values()), dtype=np.int64), CITY)


def routes_of(num: int, drops: dict[tuple[int, int], tuple[int, int, int]]) -> Routes:
    """Make routes: by pair, where the first shuttle drops, the second picks up, and the seconds between."""
    first, second, lag = (np.full(num * num, value, dtype=np.int32) for value in (-1, -1, 0))
    for (origin, destination), legs in drops.items():
        pair = origin * num + destination
        first[pair], second[pair], lag[pair] = legs
    return Routes(
        num_stops=num,
        mode=np.zeros(num * num, dtype=np.int8),
        first_drop=first,
        second_pickup=second,
        first_zone=np.where(first >= 0, 0, -1).astype(np.int32),
        second_zone=np.where(second >= 0, 1, -1).astype(np.int32),
        lag_seconds=lag,
        total_seconds=lag,
    )


def test_stops_are_numbered_as_in_the_city_and_windows_have_their_seconds():
    found = counts_of(universe(), {(0, 1, 0): 2, (3, 3, 1): 4})
    assert found.origin.tolist() == [4, 1]
    assert found.destination.tolist() == [3, 1]
    assert found.start.tolist() == [8 * 3600, 8 * 3600 + 1800]
    assert found.length.tolist() == [1800, 1800]
    assert found.count.tolist() == [2, 4]
    assert found.num_dates == (1,)


def test_every_trip_is_expanded_within_its_window_in_order():
    table = {(0, 1, 0): 20, (2, 3, 1): 30, (1, 1, 1): 5}
    trips = counts_of(universe(), table).expanded(0, (7, 0, 0))
    assert len(trips) == 55
    assert (np.diff(trips.seconds) >= 0).all()
    first = trips.seconds < 8 * 3600 + 1800
    assert first.sum() == 20
    assert set(trips.origin[first]) == {4}
    assert trips.seconds.min() >= 8 * 3600
    assert trips.seconds.max() < 9 * 3600


def test_seconds_are_uniform_and_follow_from_the_seed():
    counts = counts_of(universe(), {(0, 1, 0): 40_000})
    trips = counts.expanded(0, (1, 0, 0))
    assert stats.chisquare(np.bincount(trips.seconds - 8 * 3600, minlength=1800)).pvalue > 1e-9
    assert np.array_equal(trips.seconds, counts.expanded(0, (1, 0, 0)).seconds)
    assert not np.array_equal(trips.seconds, counts.expanded(0, (1, 0, 1)).seconds)


def test_trips_of_several_dates_are_spread_over_them():
    counts = counts_of(universe(num_dates=(4,)), {(0, 1, 0): 8_000, (1, 2, 1): 4_000})
    drawn = [len(counts.expanded(0, (seed,))) for seed in range(40)]
    assert counts.trips_a_date(0) == 3_000
    assert abs(np.mean(drawn) - 3_000) < 6.5 * np.sqrt(3_000 * 0.75 / 40)


def test_days_are_expanded_apart():
    counts = counts_of(
        universe(days=("weekday", "sunday"), num_dates=(5, 1)), {(0, 1, 0): 10, (2, 1, 2): 3, (2, 1, 3): 4}
    )
    assert counts.days == ("weekday", "sunday")
    assert len(counts.expanded(1, (0,))) == 7
    assert set(counts.expanded(1, (0,)).origin) == {2}


def test_a_stop_that_the_city_lacks_is_named_if_trips_need_it():
    small = City(stops=("A", "B"))
    of = universe()
    assert len(counted_trips(of, of.cells(*np.array([[0], [1], [0]])), np.array([1]), small).count) == 1
    with pytest.raises(ParameterError, match=r"lacks stops .*'C'"):
        counted_trips(of, of.cells(*np.array([[0], [2], [0]])), np.array([1]), small)


def test_too_many_trips_are_refused(monkeypatch):
    counts = counts_of(universe(), {(0, 1, 0): 11})
    monkeypatch.setattr(demand, "MAX_TRIPS", 10)
    with pytest.raises(ParameterError, match=r"at most 10 trips a day. Got 11"):
        counts.expanded(0, (0,))
    assert counts.count.sum() == 11


def test_a_quarter_of_a_million_trips_are_expanded():
    rng = np.random.default_rng(0)
    of = Universe(stops=tuple(f"S{i}" for i in range(130)), windows=("08:00", "08:30"), window_minutes=30)
    city = City(stops=of.stops)
    counts = counted_trips(of, np.arange(of.num_cells), rng.integers(0, 16, of.num_cells), city)
    trips = counts.expanded(0, (0,))
    assert len(trips) == counts.count.sum() > 250_000


def test_the_last_window_may_be_shorter():
    time = Windows(lower="22:00", upper="25:10", window_minutes=60)
    of = Universe(stops=STOPS, windows=time.labels, window_minutes=60, time=time)
    starts, lengths = window_seconds(of)
    assert starts.tolist() == [hour * 3600 for hour in (22, 23, 24, 25)]
    assert lengths.tolist() == [3600, 3600, 3600, 600]
    assert service_seconds(of) == (22 * 3600, 25 * 3600 + 600)


def test_released_counts_are_those_of_the_release(tmp_path: Path):
    table = pa.table({"card": ["x"] * 9, "from": ["A"] * 9, "to": ["B"] * 9, "at": ["08:10"] * 9})
    release = publish(dn.load(table, policy_of(tmp_path, City(stops=STOPS), epsilon=2))).release
    found = released_counts(release, CITY)
    assert found.count.sum() == sum(release.data.column("count").to_pylist())
    assert len(found.expanded(0, (0,))) == found.count.sum()


def trips_of(*rows: tuple[int, int, int]) -> Trips:
    return Trips.in_order(*np.array(rows, dtype=np.int64).T)


def test_rides_follow_the_route():
    times = np.array([[0, 60, 200], [60, 0, 90], [200, 90, 0]], dtype=np.int32)
    routes = routes_of(3, {(0, 1): (1, -1, 0), (0, 2): (1, 1, 300), (1, 2): (-1, 2, 40), (2, 0): (-1, 1, 500)})
    found = shuttle_requests(trips_of((0, 1, 10), (0, 2, 20), (2, 0, 30), (1, 1, 40)), routes, times)
    # The second ride of the second trip: 20 + 60 + 300; the only ride of the third: 30 + 500.
    assert found.seconds.tolist() == [10, 20, 380, 530]
    assert found.rider.tolist() == [0, 1, 1, 2]
    assert found.origin.tolist() == [0, 0, 1, 1]
    assert found.destination.tolist() == [1, 1, 2, 0]
    assert found.after.tolist() == [-1, -1, 1, -1]
    assert found.lag.tolist() == [0, 0, 300, 0]
    assert found.zone.tolist() == [0, 0, 1, 1]


def test_a_ride_that_ends_where_it_begins_is_none():
    times = np.array([[0, 60], [60, 0]], dtype=np.int32)
    routes = routes_of(2, {(0, 1): (0, 0, 30)})
    found = shuttle_requests(trips_of((0, 1, 5), (0, 0, 6)), routes, times)
    assert found.seconds.tolist() == [35]
    assert found.after.tolist() == [-1]
    assert found.lag.tolist() == [0]


def test_no_trips_ask_for_no_rides():
    assert len(shuttle_requests(Trips.none(), routes_of(2, {}), np.zeros((2, 2), np.int32)).seconds) == 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_links_lead_to_the_first_ride_of_the_same_rider(data):
    num = 4
    legs = st.tuples(st.integers(-1, num - 1), st.integers(-1, num - 1), st.integers(0, 900))
    drops = {(a, b): data.draw(legs) for a in range(num) for b in range(num) if a != b}
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3600)), max_size=30))
    times = np.arange(num * num, dtype=np.int32).reshape(num, num) * 10
    np.fill_diagonal(times, 0)
    trips = Trips.in_order(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)
    found = shuttle_requests(trips, routes_of(num, drops), times)
    assert (np.diff(found.seconds) >= 0).all()
    expected = 0
    for rider in range(len(trips)):
        start, end = int(trips.origin[rider]), int(trips.destination[rider])
        drop, pickup, _ = drops.get((start, end), (-1, -1, 0))
        own = np.flatnonzero(found.rider == rider)
        first, second = drop not in (-1, start), pickup not in (-1, end)
        assert len(own) == first + second
        expected += first + second
        if first and second:
            assert found.after[own].tolist() == [-1, own[0]]
    assert len(found.seconds) == expected
    assert (found.origin != found.destination).all()
