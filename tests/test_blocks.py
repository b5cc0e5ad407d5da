# SPDX-License-Identifier: Apache-2.0
"""Blocks: every record in one, of about equal size, never too few persons; methods joined without mixing classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.clusters import closeness, keeps

from dunnage.arrays import IntArray
from dunnage.errors import ParameterError
from dunnage.kernels.clusters import growth
from dunnage.kernels.clusters.growth import Constraints, Metric, blocks, grow, grow_in_blocks

LINE = np.abs(np.arange(12.0)[:, None] - np.arange(12.0))


def table(num: int, seed: int, *, few: int = 1000, codes: int = 12) -> Metric:
    generator = np.random.default_rng(seed)
    numbers = generator.integers(0, few, (1, num)).astype(np.float64)
    coded = generator.integers(0, codes, (1, num)).astype(np.int32)
    return Metric(numbers, coded, (LINE,), np.array([0.5 / few, 0.5 / 11]), np.array([0.5 / few, 0.5 / 11]))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 200), st.integers(0, 100), st.integers(1, 9), st.integers(1, 12), st.integers(1, 40))
def test_every_record_is_in_one_block_with_k_persons(num: int, seed: int, few: int, k: int, size: int) -> None:
    metric = table(num, seed, few=few, codes=few)
    person = np.random.default_rng(seed).integers(0, num // 2 + 1, num)
    found = list(blocks(metric, k, size=size, person=person))
    assert sorted(np.concatenate(found).tolist()) == list(range(num))
    assert all(np.all(np.diff(block) > 0) for block in found)
    if len(found) > 1:
        assert min(len(set(person[block].tolist())) for block in found) >= k


def test_where_tables_are_cut() -> None:
    sizes = [len(block) for block in blocks(table(7_000, 1), 5, size=1_000)]
    assert len(sizes) == 7
    assert 700 <= min(sizes) <= max(sizes) <= 1_300
    assert len(list(blocks(table(50, 1, few=1, codes=1), 2, size=10))) == 1  # a constant table
    equal = Metric(np.array([[0.0] * 9 + [1.0]]), np.zeros((0, 10), np.int32), (), np.ones(1), np.ones(1))
    assert [len(block) for block in blocks(equal, 1, size=5)] == [9, 1]  # equal numbers stay together
    numbers = np.array([[0.0, 1, 2, 3], [0.0, 10, 10, 0]])  # the second attribute charges most
    metric = Metric(numbers, np.zeros((0, 4), np.int32), (), np.array([1.0, 1.0]), np.ones(2))
    assert [block.tolist() for block in blocks(metric, 1, size=2)] == [[0, 3], [1, 2]]
    codes = np.tile(np.arange(12), 10)[None].astype(np.int32)
    metric = Metric(np.zeros((0, 120)), codes, (LINE,), np.ones(1), np.ones(1))
    sides = [set(codes[0, block].tolist()) for block in blocks(metric, 1, size=60)]
    assert sorted(map(sorted, sides)) == [list(range(6)), list(range(6, 12))]


def test_small_tables_are_grouped_as_without_blocks() -> None:
    metric = table(300, 2)
    assert grow(metric, 4).tolist() == grow_in_blocks(metric, 4).tolist()


def test_classes_of_blocks_are_joined_however_many_are_grouped_at_once() -> None:
    metric = table(3_000, 3)
    told: list[float] = []
    found = grow_in_blocks(metric, 5, size=500, progress=told.append)
    assert np.bincount(found).min() >= 5
    assert told[-1] == 1.0
    assert told == sorted(told)
    for block in blocks(metric, 5, size=500):
        assert set(found[block].tolist()).isdisjoint(set(np.delete(found, block).tolist()))
    assert metric.total(found) < 1.25 * metric.total(grow(metric, 5, patience=0))  # as blocks of larger tables are
    for workers in (1, 4):
        assert grow_in_blocks(metric, 5, size=500, workers=workers).tolist() == found.tolist()


def test_persons_constraints_and_options_reach_each_block() -> None:
    metric = table(400, 4)
    person = np.arange(400) // 2
    sensitive = (np.arange(400) % 4)[None].astype(np.int32)
    constraints = Constraints(t=0.5, l=2, sensitive=sensitive)
    found = grow_in_blocks(metric, 3, size=100, person=person, constraints=constraints, price=2.0)
    assert len(list(blocks(metric, 3, size=100, person=person))) > 1
    assert keeps(constraints, metric, found)
    part = Constraints(t=0.1, sensitive=np.array([[0, 0, 1, 1]], dtype=np.int32)).take(np.array([0, 1]))
    assert closeness(part, np.array([0, 0]))[0][0] == pytest.approx(0.5)  # shares are measured against the whole
    assert all(len(set(person[found == class_].tolist())) >= 3 for class_ in range(found.max() + 1))


def test_an_error_in_one_block_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = table(600, 7)

    def fail(part: Metric, *_: object, **__: object) -> IntArray:
        if part.numbers[0].min() == metric.numbers[0].min():
            raise ParameterError("this block fails")
        return np.zeros(len(part), dtype=np.int64)

    monkeypatch.setattr(growth, "grow", fail)
    with pytest.raises(ParameterError, match="this block fails"):
        grow_in_blocks(metric, 3, size=100, workers=3)
