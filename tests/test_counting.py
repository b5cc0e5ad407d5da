# SPDX-License-Identifier: Apache-2.0
"""Counting trips against a dictionary, and the bound on a rider's trips by going through all random orders."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dunnage as dn
from dunnage.errors import ParameterError
from dunnage.mechanisms import counts as counting
from dunnage.mechanisms.counts import Counted, kept_rows, most_trips, true_counts
from dunnage.model.domains import Numeric, Ordinal, Stops, Windows
from dunnage.model.schema import Attribute, Contribution, Role, Schema
from dunnage.model.trips import Trip

STOPS = ("B", "A", "C")


def policy(*, bound: Contribution | None = None, trip: Any = None, more: Any = (), **time: Any) -> dn.Policy:
    quasi = {"role": Role.QUASI_IDENTIFIER}
    windows = Windows(**{"lower": "04:00", "upper": "28:00", "window_minutes": 360, **time})
    columns = (
        Attribute(name="card", role=Role.IDENTIFIER),
        Attribute(name="board", domain=Stops(stops=STOPS), **quasi),
        Attribute(name="alight", domain=Stops(stops=STOPS), **quasi),
        Attribute(name="tap", domain=windows, **quasi),
        *more,
    )
    trips_ = Trip(origin="board", destination="alight", time="tap", **(trip or {}))
    schema = Schema(attributes=columns, protects="rider" if bound else "trip", trip=trips_, contribution=bound)
    return dn.Policy(dataset="trips", schema=schema, mechanism={"name": "noisy-counts", "epsilon": 1})


def dataset_of(rows: list[tuple[str, str, str, str]], made: dn.Policy, **more: Any) -> dn.Dataset:
    columns = dict(zip(("card", "board", "alight", "tap"), zip(*rows, strict=True), strict=True))
    return dn.Dataset.from_table(pa.table({**{name: list(values) for name, values in columns.items()}, **more}), made)


def shown(counted: Counted) -> dict[tuple[str, ...], int]:
    """Counts by the labels of their cells."""
    universe = counted.universe
    labels = [
        [universe.labels(name)[code] for code in universe.column_codes(name, counted.cells)]
        for name in universe.cell_columns
    ]
    assert (np.diff(counted.cells) > 0).all()
    return dict(zip(zip(*labels, strict=True), counted.counts.tolist(), strict=True))


ROWS = [
    ("1", "A", "B", "2026-11-14T08:12"),
    ("1", "A", "B", "2026-11-15T09:12"),
    ("2", "B", "A", "2026-11-15T02:12"),
    ("2", "C", "C", "2026-11-15T21:59"),
]


@pytest.mark.parametrize("most_dense", [0, 1 << 22])
def test_small_counts_and_counts_that_come_counted(monkeypatch, most_dense):
    monkeypatch.setattr(counting, "MAX_DENSE_CELLS", most_dense)
    found = true_counts(dataset_of(ROWS, policy()))
    assert shown(found) == {("A", "B", "04:00"): 2, ("B", "A", "22:00"): 1, ("C", "C", "16:00"): 1}
    assert found.num_trips == 4
    assert repr(found) == "Counted(private)"
    by_day = shown(true_counts(dataset_of(ROWS, policy(day="day-type"))))
    days = {
        ("A", "B", "04:00"): ["saturday", "sunday"],
        ("B", "A", "22:00"): ["saturday"],
        ("C", "C", "16:00"): ["sunday"],
    }
    assert by_day == {(*cell, day): 1 for cell, own in days.items() for day in own}
    count = Attribute(name="n", role=Role.QUASI_IDENTIFIER, domain=Numeric(lower=0, upper=100))
    day = Attribute(name="day", role=Role.QUASI_IDENTIFIER, domain=Ordinal(levels=("work", "free")))
    made = policy(trip={"count": "n", "day": "day"}, more=(count, day), window_minutes=1)
    found = true_counts(dataset_of(ROWS, made, n=[5, 0, 7, 1], day=["free", "free", "work", "work"]))
    work = {("B", "A", "26:12", "work"): 7, ("C", "C", "21:59", "work"): 1}
    assert shown(found) == {("A", "B", "08:12", "free"): 5, **work}
    assert shown(true_counts(dataset_of(ROWS, made, n=[0, 0, 0, 0], day=["free"] * 4))) == {}


trips = st.tuples(
    st.sampled_from("123"),
    st.sampled_from(STOPS),
    st.sampled_from(STOPS),
    st.builds("2026-11-{:02d}T{:02d}:00".format, st.integers(10, 13), st.integers(0, 23)),
)


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(trips, min_size=1, max_size=30), dense=st.booleans())
def test_counts_against_a_dictionary(rows, dense):
    wanted: Counter[tuple[str, ...]] = Counter()
    for _, start, end, when in rows:
        day, hour = int(when[8:10]), int(when[11:13])
        day, hour = (day - 1, hour + 24) if hour < 4 else (day, hour)
        wanted[start, end, f"{(hour - 4) // 6 * 6 + 4:02d}:00", f"2026-11-{day:02d}"] += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "MAX_DENSE_CELLS", 1 << 22 if dense else 0)
        made = policy(day="date", dates=["2026-11-01", "2026-11-30"])
        assert shown(true_counts(dataset_of(rows, made))) == wanted


def bounded_policy(most: int, per: str = "period") -> dn.Policy:
    return policy(bound=Contribution(person="card", max=most, per=per), dates=["2026-11-01", "2026-11-30"])


def ordered(order: Sequence[int]) -> np.ndarray:
    return np.array([order, order], dtype=np.uint64).T


def all_outcomes(dataset: dn.Dataset, monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[bool, ...]]:
    """Every way to choose rows, as often as random orders lead to it."""
    noise, found = dn.Noise(seed=1), Counter()
    sizes: list[int] = []
    monkeypatch.setattr(counting, "priorities", lambda key, rows, choice: sizes.append(len(rows)) or ordered(rows))
    kept_rows(dataset, noise)
    for order in itertools.permutations(range(sizes[0])):
        monkeypatch.setattr(counting, "priorities", lambda key, rows, choice, order=order: ordered(order))
        found[tuple(kept_rows(dataset, noise).tolist())] += 1
    return found


def test_each_choice_of_trips_is_equally_likely(monkeypatch):
    rows = [(card, "A", "B", "2026-11-15T08:12") for card in "1121121"]
    of_card = {card: [place for place, row in enumerate(rows) if row[0] == card] for card in "12"}
    for most in (1, 2, 3):
        outcomes = all_outcomes(dataset_of(rows, bounded_policy(most)), monkeypatch)
        assert len(set(outcomes.values())) == 1
        assert set(outcomes) == {
            tuple(place in (*one, *other) for place in range(len(rows)))
            for one in itertools.combinations(of_card["1"], min(most, 5))
            for other in itertools.combinations(of_card["2"], min(most, 2))
        }


def test_one_rider_changes_nothing_for_the_others(monkeypatch):
    """The exact law of what is kept of the others is the same with and without a rider of many trips."""
    others = [("1", "A", "B", "2026-11-15T08:12"), ("2", "B", "A", "2026-11-15T08:12")]
    others += [("1", "B", "B", "2026-11-15T08:12"), ("1", "C", "B", "2026-11-15T08:12")]
    many = [("9", "C", "C", "2026-11-15T08:12")] * 4
    without = all_outcomes(dataset_of(others, bounded_policy(2)), monkeypatch)
    both = all_outcomes(dataset_of([*others, *many], bounded_policy(2)), monkeypatch)
    law: Counter[tuple[bool, ...]] = Counter()
    for outcome, times in both.items():
        assert sum(outcome[len(others) :]) == 2
        law[outcome[: len(others)]] += times
    shares = [{key: times / sum(found.values()) for key, times in found.items()} for found in (law, without)]
    assert shares[0] == shares[1]


@pytest.mark.parametrize(("per", "most"), [("period", 3), ("day", 6)])
def test_a_rider_of_a_thousand_trips_changes_what_the_bound_says(per, most):
    generator = np.random.default_rng(8)
    heavy = [
        ("heavy", *generator.choice(STOPS, 2).tolist(), f"2026-11-{day:02d}T{hour:02d}:00")
        for day, hour in zip((10 + np.arange(1000) % 2).tolist(), generator.integers(4, 24, 1000).tolist(), strict=True)
    ]
    others = [(str(card), "A", "B", "2026-11-10T08:00") for card in range(40)]  # each below the bound
    made = bounded_policy(3, per)
    without = true_counts(dataset_of(others, made))
    both = dataset_of([*others, *heavy], made)
    for _ in range(20):
        kept = kept_rows(both, dn.Noise())
        assert (~kept).sum() == 1000 - most
        counted = true_counts(both, rows=kept)
        before, after = shown(without), shown(counted)
        change = sum(abs(after.get(key, 0) - before.get(key, 0)) for key in {*before, *after})
        assert change == most <= most_trips(made.schema, None)


def test_bounds_by_day_and_none():
    rows = [("1", "A", "B", when) for when in ("2026-11-15T08:00", "2026-11-16T03:00", "2026-11-16T04:00")]
    kept = kept_rows(dataset_of(rows, bounded_policy(1, "day")), dn.Noise())  # service days
    assert kept[2]
    assert kept[:2].sum() == 1
    below = dataset_of(ROWS, bounded_policy(2))
    assert kept_rows(below, dn.Noise()).all()
    dataset, noise = dataset_of(ROWS, policy()), dn.Noise()
    assert true_counts(dataset).num_trips == 4
    assert noise.bytes_drawn == 0
    with pytest.raises(ParameterError):
        kept_rows(dataset, noise)


def test_most_trips():
    assert most_trips(policy().schema, None) is None
    assert most_trips(bounded_policy(3).schema, None) == 3
    assert most_trips(bounded_policy(3, "day").schema, None) == 90
    assert most_trips(bounded_policy(3, "day").schema, "2026-11-15") == 3
    unknown = policy(bound=Contribution(person="card", max=3, per="day")).schema
    assert most_trips(unknown, "2026-02") == 84
    with pytest.raises(ParameterError):
        most_trips(unknown, None)
