# SPDX-License-Identifier: Apache-2.0
"""Routes: against all combinations listed in plain Python, and the modes of the generated town."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.errors import ParameterError, Refusal
from dunnage.model.city import Buses, City
from dunnage.model.routes import TRIP_MODES, Routes, RouteSetting, find_routes
from dunnage.samples import trip_modes, trip_stops
from dunnage.samples.trips import lay_town

NAMES = list(TRIP_MODES)
NEVER = float("inf")


def buses(*rides: tuple[int, int, int, int]) -> Buses:
    columns = np.array(rides, dtype=np.int32).reshape(-1, 4).T
    return Buses(**dict(zip(("origins", "destinations", "seconds", "headway_seconds"), columns, strict=True)))


@st.composite
def cities(draw) -> City:
    num = draw(st.integers(2, 6))
    whole = st.integers(0, 900)
    times = np.array(draw(st.lists(st.lists(whole, min_size=num, max_size=num), min_size=num, max_size=num)), np.int32)
    np.fill_diagonal(times, 0)
    hubs = np.array(draw(st.lists(st.booleans(), min_size=num, max_size=num)))
    stops = np.flatnonzero(hubs).tolist()
    pairs = [pair for pair in product(stops, stops) if pair[0] != pair[1]]
    ridden = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    rides = [(*pair, draw(st.integers(0, 900)), 2 * draw(st.integers(1, 300))) for pair in ridden]
    zones = draw(st.lists(st.integers(0, 2), min_size=num, max_size=num))
    return City(
        stops=tuple("abcdef"[:num]),
        zone_names=("x", "y", "z"),
        zones=np.array(zones, dtype=np.int32),
        hubs=hubs if draw(st.booleans()) or rides else None,
        times=times,
        buses=buses(*rides),
    )


SETTINGS = st.builds(
    RouteSetting,
    max_walk_seconds=st.sampled_from([0, 300, 2000]),
    max_feeder_seconds=st.sampled_from([0, 200, 450]),
    shuttle_wait_seconds=st.sampled_from([0, 60, 300]),
)


class Oracle:
    """Every way of a pair, listed one by one."""

    def __init__(self, city: City, setting: RouteSetting) -> None:
        self.times, self.zones, self.setting = city.times.tolist(), city.zones.tolist(), setting
        self.stops = range(len(city.stops))
        self.hubs = [] if city.hubs is None else [stop for stop in self.stops if city.hubs[stop]]
        rides = (city.buses.origins, city.buses.destinations, city.buses.seconds, city.buses.headway_seconds)
        lines = zip(*(column.tolist() for column in rides), strict=True)
        self.bus = {(start, end): seconds + headway / 2 for start, end, seconds, headway in lines}
        totals = {hub: sum(self.times[hub][x] + self.times[x][hub] for x in self.stops) for hub in self.hubs}
        self.shared = min(self.hubs, key=lambda hub: (totals[hub], hub)) if self.hubs else None

    def walk(self, a: int, b: int) -> float:
        seconds = round(self.times[a][b] * 20.0 / 4.5)
        return seconds if seconds <= self.setting.max_walk_seconds else NEVER

    def shuttle(self, a: int, b: int) -> float:
        return self.setting.shuttle_wait_seconds + self.times[a][b] if self.zones[a] == self.zones[b] else NEVER

    def fed(self, stop: int, hub: int, way) -> float:
        own = [other for other in self.hubs if self.zones[other] == self.zones[stop] or other == self.shared]
        if hub not in own or hub == stop:
            return NEVER
        nearest = min(way(other) for other in own)
        limit = max(self.setting.max_feeder_seconds, nearest)
        return self.setting.shuttle_wait_seconds + way(hub) if way(hub) <= limit else NEVER

    def to_hub(self, a: int, hub: int, by_shuttle: bool) -> float:
        return self.fed(a, hub, lambda x: self.times[a][x]) if by_shuttle else self.walk(a, hub)

    def from_hub(self, hub: int, b: int, by_shuttle: bool) -> float:
        return self.fed(b, hub, lambda x: self.times[x][b]) if by_shuttle else self.walk(hub, b)

    def between(self, start: int, end: int, num: int) -> float:
        if num == 0:
            return 0.0 if start == end else NEVER
        if start == end:
            return NEVER
        if num == 1:
            return self.bus.get((start, end), NEVER)
        return min((self.bus.get((start, x), NEVER) + self.bus.get((x, end), NEVER) for x in self.hubs), default=NEVER)

    def ways(self, a: int, b: int, mode: str) -> dict[tuple[int, int, int], float]:
        """Return all ways of a mode: (first drop, second pickup, lag) and how long each takes."""
        first, num, last = TRIP_MODES[mode]
        if mode == "walk":
            return {(-1, -1, 0): self.walk(a, b)}
        found: dict[tuple[int, int, int], float] = {}
        if mode == "shuttle":
            found[b, -1, 0] = self.shuttle(a, b)
        for start, end in product(self.hubs, self.hubs):
            there, bused = self.to_hub(a, start, first), self.between(start, end, num)
            total = there + bused + self.from_hub(end, b, last)
            if total < NEVER:
                lag = round((0 if first else there) + bused) if last else 0
                key = (start if first else -1, end if last else -1, lag)
                found[key] = min(total, found.get(key, NEVER))
        return found

    def best(self, a: int, b: int, mode: str) -> float:
        return min(self.ways(a, b, mode).values(), default=NEVER)


def check_against(city: City, setting: RouteSetting, routes: Routes, wanted: dict[tuple[int, int], str] | None = None):
    oracle, num = Oracle(city, setting), len(city.stops)
    for a, b in product(range(num), range(num)):
        pair = a * num + b
        leg = (int(routes.first_drop[pair]), int(routes.second_pickup[pair]), int(routes.lag_seconds[pair]))
        mode, total = NAMES[routes.mode[pair]], int(routes.total_seconds[pair])
        assert routes.first_zone[pair] == (city.zones[a] if leg[0] >= 0 else -1)
        assert routes.second_zone[pair] == (city.zones[b] if leg[1] >= 0 else -1)
        if a == b:
            assert (mode, total, leg) == ("walk", 0, (-1, -1, 0))
            continue
        best = {name: oracle.best(a, b, name) for name in NAMES}
        expected = min(NAMES, key=lambda name: (best[name], NAMES.index(name)))
        if wanted is not None and best[wanted[a, b]] < NEVER:
            expected = wanted[a, b]
        if best[expected] == NEVER:  # nothing connects them
            assert (mode, leg) == ("shuttle", (b, -1, 0))
            assert total == city.times[a, b] + setting.shuttle_wait_seconds
            continue
        assert (mode, total) == (expected, pytest.approx(best[mode], abs=0.51))
        assert oracle.ways(a, b, mode)[leg] == best[mode]
        assert a != leg[0]
        assert b != leg[1]


@settings(max_examples=150, deadline=None)
@given(cities(), SETTINGS)
def test_routes_are_the_best_of_all_combinations(city, setting):
    check_against(city, setting, find_routes(city, setting=setting))


@settings(max_examples=60, deadline=None)
@given(cities(), SETTINGS, st.data())
def test_given_modes_are_followed_where_they_can_be(city, setting, data):
    num = len(city.stops)
    codes = np.array(data.draw(st.lists(st.integers(0, 11), min_size=num * num, max_size=num * num)))
    asked = city.with_modes(NAMES, codes)
    wanted = {(a, b): NAMES[codes[a * num + b]] for a, b in product(range(num), range(num))}
    routes = find_routes(asked, setting=setting)
    check_against(city, setting, routes, wanted)
    differ = sum(wanted[a, b] != NAMES[routes.mode[a * num + b]] for a, b in wanted if a != b)
    assert not differ or any(f" {differ} " in said for said in routes.assumed)


def test_modes_of_the_generated_town() -> None:
    # Published counts of the case study rest on them: digests of what was generated before routes were.
    def digest(table):
        return hashlib.sha256(repr([column.to_pylist() for column in table.columns]).encode()).hexdigest()

    assert digest(trip_modes()) == "07fe37704ccc718043db01168679b258eea864efb20ab34f12370066b429f2f1"
    assert digest(trip_stops()) == "2e162c8e36e9ca9e7d6d3dfff7218679857e45bec07256fc6206ca867adb0233"
    # The quickest two modes of a pair tie exactly or differ by more than rounding to seconds can change.
    city = replace(lay_town().city, modes=None, mode_names=())
    for shift in (-1, 1):
        times = np.maximum(city.times + shift, 0).astype(np.int32)
        np.fill_diagonal(times, 0)
        moved = find_routes(replace(city, times=times), setting=RouteSetting(max_feeder_seconds=450 + shift))
        assert np.array_equal(moved.mode, find_routes(city).mode)
    city = lay_town(40, 2).city
    other = city.with_modes(["tram"], np.zeros(1600, dtype=np.int64))
    assert np.array_equal(find_routes(other).mode, find_routes(replace(city, modes=None, mode_names=())).mode)


def test_a_city_without_hubs_is_driven():
    times = np.array([[0, 600, 700], [600, 0, 800], [700, 800, 0]], dtype=np.int32)
    city = City(stops=("a", "b", "c"), zone_names=("x", "y"), zones=np.array([0, 0, 1], np.int32), times=times)
    routes = find_routes(city)
    assert [NAMES[mode] for mode in routes.mode[[1, 2, 4, 5]]] == ["shuttle", "shuttle", "walk", "shuttle"]
    assert routes.first_drop.tolist() == [-1, 1, 2, 0, -1, 2, 0, 1, -1]
    assert routes.first_zone.tolist() == [-1, 0, 0, 0, -1, 0, 1, 1, -1]
    assert any("4 pairs" in said for said in routes.assumed)
    assert routes.pairs(np.array([0, 2]), np.array([1, 2])).tolist() == [1, 8]
    assert routes.mode_names == tuple(NAMES)
    with pytest.raises(Refusal, match=r"stops.csv.*times.csv"):
        find_routes(City(stops=("a", "b")))
    for wrong in ({"walk_kmh": 0}, {"drive_kmh": float("nan")}, {"max_walk_seconds": -1}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            RouteSetting(**wrong)


def test_large_cities_are_routed_in_little_time_and_memory(within):
    generator = np.random.default_rng(1)
    hubs = np.zeros(400, dtype=bool)
    hubs[generator.choice(400, 30, replace=False)] = True
    stops = np.flatnonzero(hubs).tolist()
    rides = [(a, b, 600, 600) for a, b in product(stops, stops) if a != b and generator.random() < 0.2]
    city = City(
        stops=tuple(map(str, range(400))),
        zone_names=tuple("abcdefgh"),
        zones=generator.integers(0, 8, 400).astype(np.int32),
        lat=42 + 0.1 * generator.random(400),
        lon=-83 + 0.1 * generator.random(400),
        hubs=hubs,
        buses=buses(*rides),
    ).with_times()
    with within(2):  # 0.1 s on a free core
        routes = find_routes(city)
    assert len(routes.mode) == 160_000
    sample = generator.choice(400, 5, replace=False)
    small = Oracle(replace(city, buses=buses(*rides)), RouteSetting())
    walked = np.rint(city.kilometres() * 800)
    small.walk = lambda a, b: walked[a, b] if walked[a, b] <= 640 else NEVER
    for a, b in product(sample.tolist(), sample.tolist()):
        if a != b:
            best = min(small.best(a, b, name) for name in NAMES)
            assert routes.total_seconds[a * 400 + b] == pytest.approx(best, abs=0.51)
