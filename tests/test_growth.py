# SPDX-License-Identifier: Apache-2.0
"""Grown classes: valid whatever the table, never below the optimum, cheaper than the published method on rides."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.clusters import closeness, diversity, keeps

from dunnage.kernels.clusters import growth, refine
from dunnage.kernels.clusters.growth import Constraints, Metric, grow
from dunnage.kernels.clusters.published import published_density

TREE = np.array([[0.0, 2, 2], [2, 0, 1], [2, 1, 0]])


def network(num: int, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """Shortest paths of lines of stations that meet at random ones."""
    away = np.full((num, num), np.inf)
    np.fill_diagonal(away, 0)
    for station in range(1, num):
        other = station - 1 if station % 15 else int(generator.integers(station))
        away[station, other] = away[other, station] = 1
    for _ in range(num // 8):
        one, other = generator.choice(num, 2, replace=False)
        away[one, other] = away[other, one] = 1
    for middle in range(num):
        away = np.minimum(away, away[:, middle : middle + 1] + away[middle])
    return away


def bits(codes: npt.NDArray[np.int64]) -> float:
    shares = np.bincount(codes) / len(codes)
    return float(-sum(share * np.log2(share) for share in shares if share))


def rides(num: int, seed: int, stations: int = 150) -> Metric:
    """Start, passenger type, boarding and alighting station of metro-like rides, weighted by entropy."""
    generator = np.random.default_rng(seed)
    away = network(stations, generator)
    busy = generator.lognormal(0, 0.8, stations)
    boarding = generator.choice(stations, num, p=busy / busy.sum())
    pull = busy * np.exp(-np.abs(away - 8) / 6) * (away > 0)
    alighting = np.array([generator.choice(stations, p=pull[one] / pull[one].sum()) for one in boarding])
    peaks = [generator.normal(28800, 3600, num), generator.normal(64800, 4500, num), generator.uniform(2e4, 86e3, num)]
    start = np.choose(generator.choice(3, num, p=[0.35, 0.35, 0.3]), peaks).round()
    kind = generator.choice(3, num, p=[0.75, 0.17, 0.08])
    coded, tables = (kind, boarding, alighting), (TREE, away, away)
    weights = np.array([bits(((start - start.min()) // 900).astype(np.int64)), *map(bits, coded)])
    weights /= weights.sum()
    one, two = generator.integers(0, num, (2, 50_000))
    deviations = [np.abs(start[one] - start[two]).std()]
    deviations += [table[codes[one], codes[two]].std() for codes, table in zip(coded, tables, strict=True)]
    diameters = np.array([np.ptp(start), *[table.max() for table in tables]])
    codes = np.array(coded, dtype=np.int32)
    return Metric(start[None], codes, tables, weights / diameters, weights / np.array(deviations))


def partitions(num: int, k: int) -> Iterator[npt.NDArray[np.int64]]:
    """All ways to put records into classes of at least k."""

    def place(record: int, of_record: list[int], sizes: list[int]) -> Iterator[npt.NDArray[np.int64]]:
        if record == num:
            if min(sizes) >= k:
                yield np.array(of_record)
            return
        for class_ in range(len(sizes) + 1):
            longer = [*sizes, 1] if class_ == len(sizes) else [s + (i == class_) for i, s in enumerate(sizes)]
            yield from place(record + 1, [*of_record, class_], longer)

    return place(0, [], [])


@st.composite
def tables(draw: st.DrawFn, most: int = 40) -> Metric:
    """Small tables with ties, duplicates and constant columns; any of the kinds of attributes may be missing."""
    num = draw(st.integers(2, most))
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    num_numbers = draw(st.integers(0, 2))
    num_codes = draw(st.integers(0 if num_numbers else 1, 2))
    few = draw(st.integers(1, 6))
    numbers = generator.integers(0, few, (num_numbers, num)).astype(np.float64)
    codes = generator.integers(0, 3, (num_codes, num)).astype(np.int32)
    charge = generator.integers(1, 4, num_numbers + num_codes) / 10
    return Metric(numbers, codes, (TREE,) * num_codes, charge, charge * generator.uniform(0.5, 2, len(charge)))


def assert_valid(of_record: npt.NDArray[np.int64], k: int, person: npt.NDArray[np.int64] | None = None) -> None:
    """Each class has k persons by an independent count, and classes are numbered without gaps."""
    present = sorted(set(of_record.tolist()) - {-1})
    assert present == list(range(len(present)))
    for class_ in present:
        records = np.flatnonzero(of_record == class_)
        assert len({int(record if person is None else person[record]) for record in records}) >= k


@settings(max_examples=200, deadline=None)
@given(tables(), st.data())
def test_all_records_are_in_classes_of_k_records_or_persons(metric: Metric, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(metric)))
    found = grow(metric, k)
    assert_valid(found, k)
    assert found.min() >= 0
    assert metric.total(found) <= metric.total(published_density(metric, k)) + 1e-12
    person = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(metric), max_size=len(metric))))
    k = data.draw(st.integers(1, 6))
    found = grow(metric, k, person=person)
    assert_valid(found, k, person)
    assert (found >= 0).all() == (len(set(person.tolist())) >= k)


@settings(max_examples=150, deadline=None)
@given(tables(), st.data())
def test_classes_keep_to_constraints(metric: Metric, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, 5))
    limits = np.array([data.draw(st.sampled_from([0.0, 1.0, 2.0, np.inf])) for _ in metric.charge])
    sensitive = np.random.default_rng(len(metric)).integers(0, 4, (1, len(metric))).astype(np.int32)
    constraints = Constraints(
        limits=limits,
        l=data.draw(st.sampled_from([1.0, 2.0, 2.5])),
        l_kind=data.draw(st.sampled_from(["distinct", "entropy"])),
        t=data.draw(st.sampled_from([0.2, 0.5, np.inf])),
        t_kind=data.draw(st.sampled_from(["equal", "ordered"])),
        sensitive=sensitive,
    )
    found = grow(metric, k, constraints=constraints)
    assert_valid(found, k)
    assert keeps(constraints, metric, found)


def test_constraints_see_what_breaks_them() -> None:
    metric = Metric(np.array([[0.0, 1, 5, 6]]), np.zeros((0, 4), np.int32), (), np.ones(1), np.ones(1))
    of_record = np.array([0, 0, 1, 1])
    sensitive = np.array([[0, 1, 1, 1]], dtype=np.int32)
    assert keeps(Constraints(limits=np.array([1.0])), metric, of_record)
    assert not keeps(Constraints(limits=np.array([0.9])), metric, of_record)
    assert not keeps(Constraints(l=2, sensitive=sensitive), metric, of_record)
    assert keeps(Constraints(l=2, sensitive=sensitive), metric, np.array([0, 0, 0, 0]))
    # shares 1/2, 1/2 against 1/4, 3/4
    assert closeness(Constraints(sensitive=sensitive), of_record)[0] == pytest.approx([0.25, 0.25])
    assert not keeps(Constraints(max_suppressed=0.25), metric, np.array([0, 0, -1, -1]))
    codes = np.array([[0, 1, 2, 2]], dtype=np.int32)
    constraints = Constraints(sensitive=codes, l_kind="entropy", t_kind="ordered")
    assert diversity(constraints, of_record)[0] == pytest.approx([2.0, 1.0])
    # cumulated differences of (1/2, 1/2, 0) and (0, 0, 1) from (1/4, 1/4, 1/2), halved for three codes
    assert closeness(constraints, of_record)[0] == pytest.approx([(0.25 + 0.5) / 2, (0.25 + 0.5) / 2])


def test_never_below_the_optimum_and_not_far_above() -> None:
    classes = {k: list(partitions(8, k)) for k in (2, 3, 4)}
    for seed in range(12):
        generator = np.random.default_rng(seed)
        numbers = generator.integers(0, 10, (1, 8)).astype(np.float64)
        codes = generator.integers(0, 3, (1, 8)).astype(np.int32)
        metric = Metric(numbers, codes, (TREE,), np.array([0.05, 0.25]), np.array([0.3, 0.7]))
        for k, ways in classes.items():
            best = min(metric.total(of_record) for of_record in ways)
            assert best - 1e-12 <= metric.total(grow(metric, k)) <= 2 * best + 1e-12, (seed, k)


def test_rides_are_never_worse_than_published_and_many_cost_an_eighth_less() -> None:
    for num, k, share in ((700, 2, 1.0), (700, 5, 1.0), (700, 20, 1.0), (4_000, 5, 0.88), (4_000, 10, 0.88)):
        metric = rides(num, k)
        found = grow(metric, k)
        assert_valid(found, k)
        assert metric.total(found) <= share * metric.total(published_density(metric, k)), (num, k)


def test_left_out_only_where_allowed_and_cheaper() -> None:
    numbers = np.array([[0.0, 0, 0, 0, 100]])
    metric = Metric(numbers, np.zeros((0, 5), np.int32), (), np.array([0.01]), np.ones(1))
    assert grow(metric, 2).min() == 0
    assert grow(metric, 2, constraints=Constraints())[4] == -1
    assert grow(metric, 2, constraints=Constraints(max_suppressed=0.0)).min() == 0
    assert grow(metric, 2, constraints=Constraints(), price=10.0).min() == 0
    assert (grow(metric, 3, person=np.array([0, 0, 1, 1, 1])) == -1).all()  # too few persons make no class
    assert (grow(metric, 6) == -1).all()


def tree_rides(num: int, seed: int) -> Metric:
    """Rides with stations as leaves of a tree, charged by its leaves: groups of 5, 10, 50 and all 150."""
    generator = np.random.default_rng(seed)
    group = np.arange(150)
    stations = np.full((150, 150), 149.0)
    for size in (50, 10, 5, 1):
        stations[group[:, None] // size == group // size] = size - 1
    codes = generator.choice(150, (2, num), p=(share := 1 / np.arange(1.0, 151) ** 0.6) / share.sum())
    start = generator.normal(generator.choice([8.0, 17.5], num), 1.25)
    charge = np.array([1 / 72, 1 / 3 / 149, 1 / 3 / 149])
    return Metric(start[None], codes.astype(np.int32), (stations, stations), charge, charge)


def test_exchanges_at_the_end_make_classes_of_tree_nodes_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = tree_rides(3_000, 1)
    found = {k: grow(metric, k) for k in (5, 20)}
    monkeypatch.setattr(refine, "polish", lambda metric, of_record, *_: of_record)
    for k, of_record in found.items():
        assert_valid(of_record, k)
        assert metric.total(of_record) < 0.97 * metric.total(grow(metric, k)), k


def test_progress_is_told_while_classes_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "REPORT_SECONDS", 0.01)
    metric = rides(4_000, 1)
    told: list[float] = []
    found = grow(metric, 5, progress=told.append)
    assert found.tolist() == grow(metric, 5).tolist()
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert any(0 < share < 1 for share in told)
