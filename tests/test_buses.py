# SPDX-License-Identifier: Apache-2.0
"""How full buses are: rides against the routes they belong to, loads by hand, plans and settlements that state them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from tests.fleet_help import SPAN, policy_of, publish, some_trips, tiny_city, trip_rows
from tests.test_routes import SETTINGS, Oracle, cities

import dunnage as dn
from dunnage.model.city import Buses, City
from dunnage.model.routes import TRIP_MODES, RouteSetting, bus_rides, find_routes
from dunnage.model.trips import Universe
from dunnage.planning.buses import ASSUMED, bus_loads
from dunnage.planning.demand import Day, Ground, Trips
from dunnage.planning.fleet import size
from dunnage.planning.plan import BusLoads, FleetPlan
from dunnage.settle.fleets import apply_fleet, read_settlement
from dunnage.showing.fleets import plan_page, settlement_page


def seated(place: City, seats: int) -> City:
    return replace(place, buses=replace(place.buses, seats=np.full(len(place.buses), seats, np.int32)))


@settings(max_examples=60, deadline=None)
@given(cities(), SETTINGS)
def test_rides_are_those_of_the_routes(city: City, setting: RouteSetting) -> None:
    routes, oracle, num = find_routes(city, setting=setting), Oracle(city, setting), len(city.stops)
    pairs = np.arange(num * num)
    rides, boarded = bus_rides(city, routes, pairs)
    half = city.buses.headway_seconds / 2
    for pair in pairs.tolist():
        first, buses, last = list(TRIP_MODES.values())[routes.mode[pair]]
        own = [ride for ride in rides[:, pair].tolist() if ride >= 0]
        assert len(own) == buses
        if not own:
            continue
        origin, destination = divmod(pair, num)
        ends = [(int(city.buses.origins[ride]), int(city.buses.destinations[ride])) for ride in own]
        assert all(one[1] == two[0] for one, two in pairwise(ends))
        assert routes.first_drop[pair] == (ends[0][0] if first else -1)
        assert routes.second_pickup[pair] == (ends[-1][1] if last else -1)
        clock = oracle.to_hub(origin, ends[0][0], first)
        for place, ride in enumerate(own):
            assert boarded[place, pair] == clock + half[ride]
            clock += half[ride] + city.buses.seconds[ride]
        total = clock + oracle.from_hub(ends[-1][1], destination, last)
        assert routes.total_seconds[pair] == round(total)


def city_of_three(seats: tuple[int, int] | None) -> City:
    """Make hubs A, B, C in a row, far apart, with buses from A to B to C."""
    ride = {"seconds": [100, 100], "headway_seconds": [600, 1200]} | ({} if seats is None else {"seats": seats})
    columns = {"origins": [0, 1], "destinations": [1, 2], **ride}
    return City(
        stops=("A", "B", "C"),
        zone_names=("x", "y", "z"),
        zones=np.arange(3, dtype=np.int32),
        hubs=np.ones(3, dtype=bool),
        times=np.array([[0, 5000, 9000], [5000, 0, 5000], [9000, 5000, 0]], np.int32),
        buses=Buses(**{name: np.array(column, np.int32) for name, column in columns.items()}),
    )


def test_loads_by_hand() -> None:
    universe = Universe(stops=("A", "B", "C"), windows=("08:00", "08:30"), window_minutes=30, num_dates=(1,))
    begin = 8 * 3600

    def loads(seats: tuple[int, int] | None) -> BusLoads | None:
        ground = Ground.of(city_of_three(seats))
        # Nine riders from A to B at 8:00, seven from A to C at 8:24: aboard at 8:29, and on the second bus at 8:40:40.
        first = Trips.in_order(*(np.repeat(column, [9, 7]) for column in ([0, 0], [1, 2], [begin, begin + 24 * 60])))
        days = [Day.of(first, ground), Day.of(Trips.none(), ground, 0.0), Day.of(first, ground, 3.0)]
        return bus_loads(ground, days, universe)

    assert loads(None) is None
    found = loads((5, 4))
    assert found.windows == ["08:00", "08:30"]
    one, two = found.lines
    assert ((one.origin, one.destination), (two.origin, two.destination)) == (("A", "B"), ("B", "C"))
    assert (one.riders, one.offered) == ([16, 0], [15, 15])
    assert (two.riders, two.offered) == ([0, 7], [6, 6])
    # 16 riders in three buses need six seats, or a bus every 5 / 16 of half an hour.
    assert (one.seats_needed, one.headway_needed, one.too_full) == (6, 562, True)
    assert (two.seats_needed, two.headway_needed, two.too_full) == (5, 1028, True)
    assert [line.origin for line in found.fullest_first] == ["B", "A"]
    assert "08:30" in found.text_lines[1]
    # What is said to do does.
    enough = loads((one.seats_needed, two.seats_needed))
    assert not any(line.too_full for line in enough.lines)
    assert len(enough.text_lines) == 1
    for line in (one, two):
        assert line.riders[line.fullest] <= line.seats * 1800 / line.headway_needed


def test_plans_and_settlements_state_loads_only_with_seats(tmp_path) -> None:
    place = tiny_city(1)
    data = dn.load(trip_rows(place, some_trips(200, len(place.stops), 5)), policy_of(tmp_path, place))
    release, key = publish(data)
    plain, full = (size(release, city, max_wait=300, expansions=2) for city in (place, seated(place, 1)))
    assert "buses" not in plain.to_dict()
    assert full.shuttles == plain.shuttles
    assert full.city.digest != plain.city.digest == Ground.of(place).digest()
    assert set(full.assumed) - set(plain.assumed) == {ASSUMED}
    told = full.to_dict()
    assert FleetPlan.read(full.write(tmp_path / "plan")).to_dict() == told
    text, page = full.summary(), plan_page(full, release, seated(place, 1))
    assert all(line in text for line in full.buses.text_lines)
    assert "How full buses are" in page
    assert "How full buses are" not in plan_page(plain, release, place)
    done = apply_fleet(full, data, release, seated(place, 1), key)
    true = done.to_dict()["buses"]
    assert read_settlement(done.write(tmp_path / "settlement")).buses.plain() == true
    assert all(line in done.summary() for line in done.buses.text_lines)
    assert "True riders" in settlement_page(done, release)
    # Every rider of a mode with buses is on one, or on two.
    modes = done.demand.modes
    trips = done.demand.trips - done.demand.same_stop
    ridden = sum(share * TRIP_MODES[mode][1] for mode, share in modes.items()) * trips
    assert sum(sum(line["riders"]) for line in true["lines"]) == pytest.approx(ridden)
    assert ridden > 0
    assert sum(true["lines"][0]["offered"]) == (SPAN[1] - SPAN[0]) / 60
    bare = apply_fleet(plain, data, release, place, key)
    assert "buses" not in bare.to_dict()
    assert read_settlement(bare.write(tmp_path / "bare")).buses is None
