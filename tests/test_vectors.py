# SPDX-License-Identifier: Apache-2.0
"""Packing of vectors and of several kinds of bin, compared with every way to part the items."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from tests.oracles.bins import parts

from dunnage.errors import NoPlanError
from dunnage.kernels.bins.certified import (
    BinKind,
    ChancePacker,
    VectorPacking,
    _PlanSearch,
    bound_parts,
    pack_types,
    pack_vectors,
)
from dunnage.kernels.bins.chances import Members
from dunnage.kernels.deadline import NEVER
from dunnage.kernels.solver import spread_bins

IntArray = npt.NDArray[np.int64]


def cheapest(sets: list[list[int]], items: IntArray, kinds: list[BinKind]) -> Fraction | None:
    """Least cost of bins for given sets, by trying every kind for each."""
    loads = [items[part].sum(axis=0) for part in sets]

    def go_on(at: int, left: tuple[int | None, ...]) -> Fraction | None:
        if at == len(loads):
            return Fraction(0)
        best = None
        for number, kind in enumerate(kinds):
            have = left[number]
            if (have is not None and have <= 0) or (loads[at] > np.array(kind.capacity)).any():
                continue
            fewer = tuple(h - 1 if i == number and h is not None else h for i, h in enumerate(left))
            rest = go_on(at + 1, fewer)
            if rest is not None and (best is None or rest + Fraction(kind.cost) < best):
                best = rest + Fraction(kind.cost)
        return best

    return go_on(0, tuple(kind.count for kind in kinds))


def least_cost(items: IntArray, kinds: list[BinKind], groups: IntArray) -> Fraction | None:
    costs = [
        cheapest(own, items, kinds)
        for own in parts(len(items))
        if all(len(set(groups[part].tolist())) == 1 for part in own)
    ]
    return min((cost for cost in costs if cost is not None), default=None)


def check(packing: VectorPacking, items: IntArray, kinds: list[BinKind], groups: IntArray) -> None:
    """Check that every item is in one bin, nothing is above capacity, groups are apart and limits kept."""
    assert sorted(i for own in packing.bins for i in own) == list(range(len(items)))
    assert len(packing.bins) == len(packing.kind_of_bin)
    for own, kind in zip(packing.bins, packing.kind_of_bin, strict=True):
        assert own
        assert (items[own].sum(axis=0) <= np.array(kinds[kind].capacity)).all()
        assert len(set(groups[own].tolist())) == 1
    for number, kind in enumerate(kinds):
        assert kind.count is None or packing.kind_of_bin.count(number) <= kind.count
    assert packing.cost == sum(Fraction(kinds[kind].cost) for kind in packing.kind_of_bin)
    assert packing.bound <= packing.cost


def drawn(seed: int) -> tuple[IntArray, list[BinKind], IntArray]:
    draw = random.Random(seed)
    resources, n = draw.choice([1, 2, 2, 3]), draw.randint(1, 6)
    values = draw.choice([[0, 1, 5, 6], list(range(1, 11)), [3, 4, 5], [0, 0, 10]])
    items = np.array([[draw.choice(values) for _ in range(resources)] for _ in range(n)])
    costs = [1, 2, 3, Fraction(5, 2), Fraction(1, 3), Fraction("12.99")]
    kinds = [
        BinKind(
            capacity=tuple(draw.choice([0, 5, 10, 10, 12, 20]) for _ in range(resources)),
            cost=draw.choice(costs),
            count=draw.choice([None, None, None, 1, 2]),
        )
        for _ in range(draw.randint(1, 3))
    ]
    groups = np.array([draw.choice([0, 0, 0, 1]) for _ in range(n)])
    return items, kinds, groups


def test_packings_are_the_cheapest_of_all() -> None:
    for seed in range(200):
        items, kinds, groups = drawn(seed)
        least = least_cost(items, kinds, groups)
        try:
            packing = pack_vectors(items, kinds, seconds=10, groups=groups)
        except NoPlanError:
            assert least is None
            continue
        check(packing, items, kinds, groups)
        assert packing.bound == packing.cost == least, seed


def test_bounds_of_groups_add_up_and_never_exceed_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    met = 0
    for seed in range(120):
        items, kinds, groups = drawn(seed)
        kinds = [BinKind(capacity=kind.capacity, cost=int(kind.cost * 300), count=kind.count) for kind in kinds]
        costs, least = [int(kind.cost) for kind in kinds], least_cost(items, kinds, groups)
        parted = [items[groups == group] for group in np.unique(groups)]
        bounds = bound_parts(parted, [1] * len(parted), kinds, costs, NEVER)
        assert sum(bounds.each) <= bounds.total
        assert least is None or bounds.total <= least
        met += least is not None and bounds.total == least
        if least is not None and not any(kind.count for kind in kinds):
            monkeypatch.setattr("dunnage.kernels.bins.certified.too_many_types", lambda *given: len(given[0]) > 2)
            packed = pack_types(items, *([np.ones(len(items), int)] * 2), groups, kinds, seconds=5)
            monkeypatch.undo()
            assert packed is not None
            assert packed[1] <= least <= packed[0].cost(costs)
    assert met > 50


def test_classes_that_are_spread_force_bins_in_each_group() -> None:
    draw = random.Random(5)
    for _ in range(20):
        numbers = np.array([draw.randint(1, 3) for _ in range(3)])
        sizes, groups = np.array([[draw.randint(1, 5)] for _ in range(3)]), np.array([0, 0, draw.randint(0, 1)])
        caps = np.array([draw.randint(1, number) for number in numbers])
        kinds = [BinKind(capacity=(9,), cost=2), BinKind(capacity=(14,), cost=3)][: draw.randint(1, 2)]
        type_of = np.repeat(np.arange(3), numbers)
        ways = [
            cheapest(own, sizes[type_of], kinds)
            for own in parts(len(type_of))
            if all((np.bincount(type_of[part], minlength=3) <= caps).all() for part in own)
            and all(len(set(groups[type_of[part]].tolist())) == 1 for part in own)
        ]
        packed = pack_types(sizes, numbers, caps, groups, kinds, seconds=10)
        assert packed is not None
        least = min(c for c in ways if c is not None)
        assert packed[1] == packed[0].cost([int(kind.cost) for kind in kinds]) == least
        rooms, costs = (
            np.array([kind.capacity for kind in kinds], float),
            np.array([float(kind.cost) for kind in kinds]),
        )
        bound = spread_bins(sizes.astype(float), numbers, caps, rooms, costs, [None] * len(kinds), seconds=60).bound
        assert groups.any() or bound <= least


def test_spread_classes_and_several_kinds_of_bin_leave_a_small_gap() -> None:
    generator = np.random.default_rng(3)
    numbers, sizes = generator.integers(5, 10, 40), generator.integers(1, 120, 40)
    classes = [Members(np.full((number, 1), size)) for number, size in zip(numbers, sizes, strict=True)]
    kinds = [BinKind(capacity=(1000,), cost=50), BinKind(capacity=(5000,), cost=110)]
    packer, search = ChancePacker(classes, numbers // 5, kinds, risk=Fraction(0)), _PlanSearch(NEVER, None)
    packer._spread(search)
    plan = search.plan
    assert plan is not None
    assert search.bound <= plan.cost <= 1.02 * search.bound
    assert (plan.counts.sum(axis=0) == numbers).all()
    assert (plan.counts <= numbers // 5).all()
    assert (plan.counts @ sizes <= np.array([1000, 5000])[plan.kinds]).all()


def test_a_kind_with_no_room_for_a_resource_does_not_raise_the_bound() -> None:
    # Cheap bins that hold nothing of what fills the dear ones; largest first would take a dear one too many.
    items = np.array([[size, 0] for size in (17, 14, 12, 9, 9, 6, 5, 5)])
    kinds = [BinKind(capacity=(0, 9), cost=2), BinKind(capacity=(39, 9), cost=100)]
    packing = pack_vectors(items, kinds, seconds=5)
    check(packing, items, kinds, np.zeros(8, dtype=np.int64))
    assert packing.cost == packing.bound == 200
    seen: list[tuple[int, int]] = []
    items = np.random.default_rng(4).integers(10, 60, (20, 2))
    pack_vectors(
        items, [BinKind(capacity=(100, 100))], seconds=10, progress=lambda _, cost, bound: seen.append((cost, bound))
    )
    assert seen
    assert all(later[0] <= earlier[0] and later[1] >= earlier[1] for earlier, later in itertools.pairwise(seen))


def test_too_large_an_item_or_too_few_bins_is_no_plan() -> None:
    small, halves = BinKind(capacity=(10,)), [BinKind(capacity=(9, 0)), BinKind(capacity=(0, 9))]
    for items, kinds in (
        ([[11], [3]], [small]),
        ([[11], [3]], [small, BinKind(capacity=(9,))]),
        ([[9, 1], [1, 9]], halves),
        ([[6], [6], [6]], [BinKind(capacity=(10,), count=2)]),
    ):
        with pytest.raises(NoPlanError):
            pack_vectors(np.array(items), kinds, seconds=2)


@pytest.mark.parametrize(("resources", "num", "cases"), [(2, 25, 3), (4, 25, 3), (4, 50, 1)])
def test_medium_packings_are_mostly_proven(resources: int, num: int, cases: int) -> None:
    """Items of a tenth to half a bin: one more bin than the bound at most, and none in most cases."""
    proven = 0
    for seed in range(cases):
        items = np.random.default_rng(seed).integers(100, 500, (num, resources))
        kinds = [BinKind(capacity=(1000,) * resources)]
        packing = pack_vectors(items, kinds, seconds=15)
        check(packing, items, kinds, np.zeros(len(items), dtype=np.int64))
        proven += packing.cost == packing.bound
        assert packing.cost <= packing.bound + 1
    assert proven >= cases - 1
