# SPDX-License-Identifier: Apache-2.0
"""Trips: columns of a trip, partitions, and the universe of trip types against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from dunnage.errors import ParameterError
from dunnage.model.city import City
from dunnage.model.domains import domain_from
from dunnage.model.trips import COLUMNS, Grouping, Trip, Universe

STOPS = ("A", "B", "C")
CITY = City(
    stops=STOPS,
    zone_names=("x", "y"),
    zones=np.array([0, 1, 0], dtype=np.int32),
    mode_names=("walk", "bus"),
    modes=np.array([[0, 1, 1], [1, 0, 1], [0, 1, 0]], dtype=np.int16),
)


def universe(*, days: tuple[str, ...] = ("sat", "sun"), city: City | None = CITY) -> Universe:
    return Universe(stops=STOPS, windows=("08:00", "08:30"), window_minutes=30, days=days, city=city)


def brute_cells(made: Universe) -> list[dict[str, str]]:
    """All cells in order, each with all its columns as text."""
    found = []
    for day, window, origin, destination in itertools.product(made.days or ("",), made.windows, STOPS, STOPS):
        start, end = STOPS.index(origin), STOPS.index(destination)
        cell = {"day": day, "window": window, "origin": origin, "destination": destination}
        cell |= {"origin_zone": "xyx"[start], "destination_zone": "xyx"[end], "mode": str(CITY.modes[start, end])}
        found.append(cell)
    return found


def test_trips_and_universes():
    assert Trip(origin="a", destination="b", time="c", count="d").columns == ("a", "b", "c", "d")
    refusal(ParameterError, Trip, origin="a", destination="a", time="c")
    assert universe().columns == COLUMNS
    assert universe(city=None, days=()).columns == ("origin", "destination", "window")
    assert universe(days=()).cell_columns == ("origin", "destination", "window")
    large = {"stops": tuple(map(str, range(2**16))), "windows": ("0",) * 2**15, "days": ("d",) * 2**16}
    assert "2^62" in str(refusal(ParameterError, Universe, window_minutes=1, **large))


def test_cells_are_numbered_in_order():
    made = universe()
    brute = brute_cells(made)
    assert made.num_cells == len(brute) == 36
    cells = np.arange(36)
    pairs, slots = made.split(cells)
    origins, destinations = np.divmod(pairs, 3)
    assert made.cells(origins, destinations, slots).tolist() == cells.tolist()
    for name in made.cell_columns:
        labels = made.labels(name)
        assert [labels[code] for code in made.column_codes(name, cells)] == [cell[name] for cell in brute]


@pytest.mark.parametrize("days", [(), ("sat", "sun")])
def test_columns_partition_cells_as_their_values_do(days):
    made = universe(days=days)
    brute = brute_cells(made)
    pairs, slots = made.split(np.arange(made.num_cells))
    for num in range(len(made.columns) + 1):
        for columns in itertools.combinations(made.columns, num):
            of_pair, of_slot = made.pair_classes(columns), made.slot_classes(columns)
            found = list(zip(of_pair.codes_of(pairs).tolist(), of_slot.codes_of(slots).tolist(), strict=True))
            wanted = [tuple(cell[name] for name in columns) for cell in brute]
            assert len(set(zip(found, wanted, strict=True))) == len(set(found)) == len(set(wanted))
            assert sorted(set(of_pair.codes_of(np.arange(made.num_pairs)).tolist())) == list(range(of_pair.num))
            assert sorted(set(of_slot.codes.tolist())) == list(range(of_slot.num))


def test_the_description_can_be_read_back():
    made = Universe(stops=STOPS, windows=("08:00",), window_minutes=30, days=("sat",), num_dates=(4,))
    described = {item["name"]: item for item in made.describe()}
    assert list(described) == ["origin", "destination", "window", "day"]
    for name, item in described.items():
        assert domain_from(item["domain"]).labels == made.labels(name)
    assert described["window"]["window_minutes"] == 30
    assert described["day"]["num_dates"] == [4]


labels = st.lists(st.integers(0, 3), min_size=6, max_size=6)


@given(parts=st.lists(labels, max_size=4))
def test_joining_partitions(parts):
    made = Grouping.joined([Grouping.of(np.array(part)) for part in parts], 6)
    together = list(zip(*parts, strict=True)) if parts else [()] * 6
    found = made.codes.tolist()
    assert sorted(set(found)) == list(range(made.num))
    assert len(set(zip(found, together, strict=True))) == len(set(found)) == len(set(together))


@given(one=labels, other=labels)
def test_refining(one, other):
    finer, coarser = Grouping.of(np.array(one)), Grouping.of(np.array(other))
    wanted = len(set(zip(one, other, strict=True))) == len(set(one))
    assert finer.refines(coarser) == wanted
