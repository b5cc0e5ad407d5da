# SPDX-License-Identifier: Apache-2.0
"""Local search on classes: never worse, always valid, never below the optimum, ends in time."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.clusters import keeps

from dunnage.kernels.clusters import refine as refining
from dunnage.kernels.clusters.growth import Constraints, Metric, grow
from dunnage.kernels.clusters.refine import LocalSearch, dissolve, polish, refine, renumbered

TREE = np.array([[0.0, 2, 2], [2, 0, 1], [2, 1, 0]])
RING = np.array([[min(abs(a - b), 9 - abs(a - b)) for b in range(9)] for a in range(9)], dtype=np.float64)


def partition_of(classes, num_records):
    of_record = np.full(num_records, -1, dtype=np.int64)
    for number, records in enumerate(classes):
        of_record[records] = number
    return of_record


def table(num: int, seed: int, *, few: int = 50) -> Metric:
    generator = np.random.default_rng(seed)
    codes = np.stack((generator.integers(0, 3, num), generator.integers(0, 9, num))).astype(np.int32)
    numbers = generator.integers(0, few, (1, num)).astype(np.float64)
    charge = np.array([0.5 / few, 0.1, 0.1])
    return Metric(numbers, codes, (TREE, RING), charge, charge)


def line(*numbers: float) -> Metric:
    return Metric(np.array([numbers]), np.zeros((0, len(numbers)), np.int32), (), np.array([0.01]), np.ones(1))


def in_order(num: int, k: int) -> npt.NDArray[np.int64]:
    """Classes of k records one after another, whatever they cost; the last takes what is over."""
    return np.minimum(np.arange(num) // k, num // k - 1)


def assert_valid(of_record: npt.NDArray[np.int64], k: int, person: npt.NDArray[np.int64]) -> None:
    present = sorted(set(of_record.tolist()) - {-1})
    assert present == list(range(len(present)))
    for class_ in present:
        assert len(set(person[of_record == class_].tolist())) >= k


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 60), st.integers(0, 1000), st.integers(1, 6), st.data())
def test_never_worse_and_valid(num: int, seed: int, few: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, num))
    metric = table(num, seed, few=few)
    start = in_order(num, k)
    found = refine(metric, start, k, seconds=600.0)
    assert_valid(found, k, np.arange(num))
    assert found.min() >= 0
    assert metric.total(found) <= metric.total(start)
    assert metric.total(dissolve(metric, start, k)) <= metric.total(start)


@settings(max_examples=80, deadline=None)
@given(st.integers(8, 60), st.integers(0, 1000), st.data())
def test_persons_and_constraints_are_kept(num: int, seed: int, data: st.DataObject) -> None:
    metric = table(num, seed)
    generator = np.random.default_rng(seed)
    person = generator.integers(0, num // 2, num)
    constraints = Constraints(
        limits=np.array([data.draw(st.sampled_from([15.0, np.inf])), 2.0, data.draw(st.sampled_from([1.0, 3.0, 4.0]))]),
        max_suppressed=data.draw(st.sampled_from([0.0, 0.1, 1.0])),
        l=data.draw(st.sampled_from([1.0, 2.0])),
        l_kind=data.draw(st.sampled_from(["distinct", "entropy"])),
        t=data.draw(st.sampled_from([0.4, np.inf])),
        t_kind=data.draw(st.sampled_from(["equal", "ordered"])),
        sensitive=generator.integers(0, 3, (1, num)).astype(np.int32),
    )
    start = grow(metric, 3, person=person, constraints=constraints)
    for found in (
        refine(metric, start, 3, seconds=600.0, person=person, constraints=constraints),
        dissolve(metric, start, 3, person=person, constraints=constraints),
    ):
        assert_valid(found, 3, person)
        assert metric.total(found) <= metric.total(start)
        lost = max(constraints.max_suppressed * num, (start < 0).sum())
        assert (found < 0).sum() <= lost
        assert keeps(replace(constraints, max_suppressed=1.0), metric, found)


def test_never_below_the_optimum_and_mostly_at_it() -> None:
    halves = [np.array([0, *labels]) for labels in itertools.product(range(2), repeat=7) if sum(labels) == 4]
    for seed in range(15):
        metric = table(8, seed, few=10)
        best = min(metric.total(of_record) for of_record in (*halves, np.zeros(8, dtype=np.int64)))
        assert refine(metric, in_order(8, 4), 4, seconds=600.0).max() <= 1
        found = metric.total(refine(metric, grow(metric, 4), 4, seconds=600.0))
        assert best - 1e-12 <= found <= 1.25 * best, seed


def test_exchanges_moves_and_records_that_come_back() -> None:
    found = refine(line(0, 100, 1, 101), np.array([0, 0, 1, 1]), 2, seconds=600.0)  # crossed records
    assert found[0] == found[2] != found[1] == found[3]
    found = refine(line(0, 1, 50, 51, 52, 2), np.array([0, 0, 1, 1, 1, 1]), 2, seconds=600.0)  # one that is over
    assert found[5] == found[0] != found[2]
    found = refine(line(0, 1, 2, 500), np.array([0, 0, -1, -1]), 2, seconds=600.0, constraints=Constraints())
    assert found.tolist() == [0, 0, 0, -1]  # lost ones come back where they cost little
    assert renumbered(np.array([7, -1, 3, 7])).tolist() == [1, -1, 0, 1]


def test_dissolves_a_class_that_costs_less_elsewhere_or_at_the_price_of_a_lost_record() -> None:
    metric = line(0, 0, 0, 100, 100, 100, 0, 100)
    assert dissolve(metric, np.array([0, 0, 0, 1, 1, 1, 2, 2]), 2).tolist() == [0, 0, 0, 1, 1, 1, 0, 1]
    metric = line(0, 0, 0, 0, 200, 400)
    of_record = np.array([0, 0, 0, 0, 1, 1])  # the second class costs 2 for each of its records
    assert dissolve(metric, of_record, 2).tolist() == of_record.tolist()
    assert dissolve(metric, of_record, 2, constraints=Constraints()).tolist() == [0, 0, 0, 0, -1, -1]
    assert dissolve(metric, of_record, 2, constraints=Constraints(), price=3.0).tolist() == of_record.tolist()
    few = Constraints(max_suppressed=0.2)  # one record of six
    assert (dissolve(metric, of_record, 2, constraints=few) < 0).sum() <= 1


def test_ends_when_time_is_up_and_tells_how_far_it_is() -> None:
    ticks = itertools.count()
    told: list[float] = []
    metric = table(600, 1)
    start = in_order(600, 3)
    found = refine(metric, start, 3, seconds=6.0, progress=told.append, clock=lambda: float(next(ticks)))
    assert metric.total(found) < metric.total(start)
    assert next(ticks) < 20
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert refine(metric, start, 3, seconds=0.0).tolist() == start.tolist()


def test_search_gains_on_grown_classes_also_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    for num, k, few, share in ((900, 5, 5000, 0.98), (900, 3, 1000, 1.0)):
        metric = table(num, 3, few=few)
        start = grow(metric, k)
        found = refine(metric, start, k, seconds=600.0)
        assert_valid(found, k, np.arange(num))
        assert found.min() >= 0
        assert metric.total(found) < share * metric.total(start)
        monkeypatch.setattr(refining, "GROUP", 40)


@settings(max_examples=40, deadline=None)
@given(st.integers(4, 60), st.integers(0, 1000), st.integers(1, 6), st.integers(1, 5))
def test_what_a_search_keeps_of_its_classes_is_true(num: int, seed: int, few: int, k: int) -> None:
    metric = table(num, seed, few=few)
    k = min(k, num)
    search = LocalSearch(metric, in_order(num, k), np.arange(num), k, None, None, 1.0, 0)
    for _ in range(3):
        refining.improve(0, refining.VISITS, refining.STAGES[0], search.state)
        search.dissolve()
        state = search.state
        slots, sizes, costs, holes, without = state.slots, state.sizes, state.costs, state.holes, state.without
        for class_ in np.flatnonzero(sizes):
            records = slots[class_, : sizes[class_]]
            whole = metric.widths(partition_of([records], num))
            assert costs[class_] == pytest.approx(float(metric.charge @ whole[:, 0]))
            assert state.spans[class_, :, 1] - state.spans[class_, :, 0] == pytest.approx(whole[:, 0])
            for place in range(len(records) if len(records) > 1 else 0):
                rest = metric.widths(partition_of([np.delete(records, place)], num))
                assert holes[class_, :, 1, place] - holes[class_, :, 0, place] == pytest.approx(rest[:, 0])
                assert without[class_, place] == pytest.approx(float(metric.charge @ rest[:, 0]))
    assert sorted(np.concatenate([slots[c, : sizes[c]] for c in range(len(sizes))]).tolist()) == list(range(num))


def test_classes_far_larger_than_k_stay_as_they_are() -> None:
    metric = table(1_000, 5)
    start = np.where(np.arange(1_000) < 400, 0, 1 + np.arange(1_000) // 4)
    start = renumbered(start)
    for found in (refine(metric, start, 4, seconds=600.0), dissolve(metric, start, 4)):
        assert len(set(found[:400].tolist())) == 1
        assert set(found[:400].tolist()).isdisjoint(found[400:].tolist())
    assert metric.total(refine(metric, start, 4, seconds=600.0)) < metric.total(start)


def test_polish_is_never_worse_and_keeps_to_the_rules() -> None:
    metric = table(500, 6)
    for person, constraints in ((None, None), (np.arange(500) % 120, Constraints(limits=np.array([20.0, 2.0, 3.0])))):
        start = grow(metric, 4, person=person, constraints=constraints, patience=0)
        found = polish(metric, start, 4, person, constraints)
        assert_valid(found, 4, np.arange(500) if person is None else person)
        assert ((found < 0) == (start < 0)).all()
        assert metric.total(found) < metric.total(start)
        assert constraints is None or keeps(constraints, metric, found)
    alone = np.zeros(500, dtype=np.int64)
    assert polish(metric, alone, 4, None, None).tolist() == alone.tolist()
