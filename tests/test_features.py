# SPDX-License-Identifier: Apache-2.0
"""Features: names, groups, partial order and layout, each against brute force over all cells."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.errors import ParameterError
from dunnage.mechanisms.counts import NAMED, Feature, Layout, feature_name, read_features
from dunnage.model.city import City
from dunnage.model.trips import COLUMNS, Universe, is_nested


def universe(num_stops: int = 4, num_days: int = 2, seed: int = 3) -> Universe:
    generator = np.random.default_rng(seed)
    stops = tuple(f"S{place}" for place in range(num_stops))
    city = City(
        stops=stops,
        zone_names=("x", "y"),
        zones=generator.integers(0, 2, num_stops).astype(np.int32),
        mode_names=("a", "b", "c"),
        modes=generator.integers(0, 3, (num_stops, num_stops)).astype(np.int16),
    )
    days = tuple(f"D{place}" for place in range(num_days))
    return Universe(stops=stops, windows=("08:00", "08:30", "09:00"), window_minutes=30, days=days, city=city)


def values(made: Universe, columns: tuple[str, ...]) -> list[tuple[int, ...]]:
    """What each cell is in some columns, one cell at a time."""
    num, found = len(made.stops), []
    for cell in range(made.num_cells):
        rest, destination = divmod(cell, num)
        rest, origin = divmod(rest, num)
        day, window = divmod(rest, len(made.windows))
        all_columns = {
            "origin": origin,
            "destination": destination,
            "origin_zone": int(made.city.zones[origin]),
            "destination_zone": int(made.city.zones[destination]),
            "mode": int(made.city.modes[origin, destination]),
            "day": day,
            "window": window,
        }
        found.append(tuple(all_columns[name] for name in columns))
    return found


def same_partition(one: list, other: list) -> bool:
    return len(set(zip(one, other, strict=True))) == len(set(one)) == len(set(other))


subsets = st.sets(st.sampled_from(COLUMNS)).map(lambda chosen: tuple(name for name in COLUMNS if name in chosen))


def test_names_of_features():
    zones = ("origin_zone", "destination_zone")
    assert read_features("O3", days=False) == ((), ("window",))
    assert read_features("O4", days=False) == ((), ("window",), (*zones, "window"))
    assert read_features("O5", days=False) == ((), ("window",), (*zones, "window"), ("mode", "window"))
    assert read_features("H5", days=False)[-1] == (*zones, "mode", "window")
    assert read_features("O3", days=True) == ((), ("day", "window"))
    assert read_features([[], ["window", "mode"]], days=True) == ((), ("mode", "window"))
    assert (feature_name(("mode", "window")), feature_name(())) == ("mode x window", "total")
    for wrong in ("O6", 5, {"a": 1}, ["window"], [5], [["hour"]], [["window"] * 2], [["mode", "day"], ["day", "mode"]]):
        with pytest.raises(ParameterError):
            read_features(wrong, days=False)
    bare = Universe(stops=("A",), windows=("08:00",), window_minutes=30)
    for column in ("mode", "origin_zone", "day"):
        with pytest.raises(ParameterError, match=column.split("_")[-1]):
            Feature.of(bare, (column,))
    for name in ("H3", "H4", "H5"):
        assert is_nested(read_features(name, days=True))
    assert is_nested([["origin_zone"], ["origin"], ["origin", "destination"], ["mode", "origin", "destination"]])
    assert not is_nested(NAMED["O5"])


@pytest.mark.parametrize("num_days", [0, 2])
def test_groups_and_sums(num_days):
    made = universe(num_days=num_days)
    cells = np.arange(made.num_cells)
    pairs, slots = made.split(cells)
    counts = np.random.default_rng(4).integers(0, 9, made.num_cells)
    for size in range(len(made.columns) + 1):
        for columns in itertools.combinations(made.columns, size):
            feature = Feature.of(made, columns)
            groups = feature.groups(pairs, slots)
            wanted = values(made, columns)
            assert same_partition(groups.tolist(), wanted)
            assert groups.max() < feature.size
            sums = feature.sums(pairs, slots, counts)
            assert sums.dtype == counts.dtype
            for group in range(feature.size):
                assert sums[group] == counts[groups == group].sum()


@settings(deadline=None, max_examples=60)
@given(columns=st.lists(subsets, min_size=1, max_size=4), seed=st.integers(0, 5))
def test_a_tree_of_features_refines_in_every_cell(columns, seed):
    made = universe(3, seed=seed)
    known = [values(made, item) for item in columns]
    wanted = [
        (finer, coarser)
        for finer, coarser in itertools.product(range(len(columns)), repeat=2)
        if finer != coarser and len(set(zip(known[finer], known[coarser], strict=True))) == len(set(known[finer]))
    ]
    if is_nested(columns):
        assert all((place + 1, place) in wanted for place in range(len(columns) - 1))


@settings(deadline=None, max_examples=60)
@given(columns=st.lists(subsets, max_size=4), num_stops=st.integers(1, 4), num_days=st.integers(0, 2))
def test_layout_against_all_cells(columns, num_stops, num_days):
    made = universe(num_stops, num_days)
    columns = [tuple(name for name in item if name in made.columns) for item in columns]
    features = [Feature.of(made, item) for item in columns]
    layout = Layout.of(made, features)
    cells = np.arange(made.num_cells)
    groups, ranks = layout.places(cells)
    assert layout.cells(groups, ranks).tolist() == cells.tolist()
    places = layout.starts[groups] + ranks
    assert sorted(places.tolist()) == cells.tolist()  # each cell has one place
    assert np.bincount(groups, minlength=layout.num_groups).tolist() == layout.sizes.tolist()
    assert layout.starts[-1] == made.num_cells
    # Join classes of pairs and of slots are joined apart, so groups are as fine as all columns of pairs, and of slots.
    pairs, slots = made.split(cells)
    known = [(feature.pairs.codes_of(pairs).tolist(), feature.slots.codes_of(slots).tolist()) for feature in features]
    together = list(zip(*(part for both in known for part in both), strict=True)) if known else [()] * len(cells)
    assert same_partition(groups.tolist(), together)
    for feature in features:
        assert layout.groups_of(feature)[groups].tolist() == feature.groups(pairs, slots).tolist()
    assert (groups // layout.pairs.num).tolist() == layout.slots.codes_of(slots).tolist()
    for group in range(layout.num_groups):  # ranks go by slot and then by pair
        assert ranks[groups == group].tolist() == list(range(int((groups == group).sum())))
