# SPDX-License-Identifier: Apache-2.0
"""The projection: exact by rational arithmetic on tiny tables, optimal by its conditions on any, in whatever way."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.projection import quadratic_program

from dunnage.errors import InternalError, ParameterError
from dunnage.kernels.counts import projection
from dunnage.kernels.counts.projection import Family, ListedCells, Projection, optimality, project
from dunnage.kernels.counts.tables import list_cells, project_dense, project_table

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def sort_candidates(values, starts, floors=None):
    values = np.ascontiguousarray(values, dtype=np.int64)
    return list_cells(values, starts, np.full(len(starts) - 1, -np.inf) if floors is None else floors)


@dataclass(frozen=True)
class Table:
    """Noisy values group by group, coarse features and their noisy sums."""

    values: Ints
    starts: Ints
    family: Family
    sums: tuple[Floats, ...]

    def groups_of_cells(self) -> list[Ints]:
        lengths = np.diff(self.starts)
        return [np.repeat(groups, lengths) for groups in self.family.groups]

    def whole(self) -> Projection:
        return project(sort_candidates(self.values, self.starts), self.family, self.sums)

    def residual(self, x: Floats) -> float:
        return optimality(x, self.values, self.starts, self.family, self.sums)[0]


def in_order(found: Projection, listed: ListedCells) -> Floats:
    x = np.empty(len(listed))
    x[listed.cells] = found.x
    return x


def random_table(
    rng: np.random.Generator, *, most_groups: int = 12, most_cells: int = 5, spread: float = 1.0, scale: int = 10
) -> Table:
    """Features nested, crossing, of one group, with groups that have no cells; sums of either sign."""
    num = int(rng.integers(1, most_groups + 1))
    lengths = rng.integers(0, most_cells + 1, num)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = rng.integers(-scale, scale + 1, starts[-1])
    groups, sizes = [], []
    for feature in range(int(rng.integers(1, 6))):
        kind = rng.choice(["any", "one", "nested", "own"])
        if kind == "one":
            groups.append(np.zeros(num, dtype=np.int64))
        elif kind == "nested" and feature:
            groups.append(groups[-1] // 2)
        elif kind == "own":
            groups.append(rng.permutation(num))
        else:
            groups.append(rng.integers(0, num + 2, num))
        sizes.append(int(groups[-1].max()) + 1 + int(rng.integers(0, 2)))
    ratios = tuple(10.0 ** rng.uniform(-spread, spread, len(groups)))
    sums = tuple(rng.integers(-2 * scale, 5 * scale, size).astype(float) for size in sizes)
    return Table(values, starts, Family(groups=tuple(groups), sizes=tuple(sizes), ratios=ratios), sums)


def slots_table(rng: np.random.Generator, num_slots: int, *, margins: bool = False, per_class: int = 12) -> Table:
    """Total, slots, 4 zones and 3 modes by slot; with margins each class over all slots, every cell one group."""
    zone, mode = np.divmod(np.arange(12), 3)
    cells = np.arange(12).repeat(per_class)
    slot, cell = np.divmod(np.arange(num_slots * len(cells)), len(cells))
    lengths = np.full(num_slots * 12, per_class)
    if margins:
        classes, lengths = cells[cell], np.ones(len(cell), dtype=np.int64)
    else:
        slot, classes = np.divmod(np.arange(num_slots * 12), 12)
    groups = [np.zeros(len(slot), dtype=np.int64), slot, slot * 4 + zone[classes], slot * 3 + mode[classes]]
    sizes = [1, num_slots, num_slots * 4, num_slots * 3]
    if margins:
        groups.append(cell)
        sizes.append(len(cells))
    truth = rng.poisson(rng.pareto(1.0, int(lengths.sum())) * 0.3).clip(0, 500)
    noise = [rng.geometric(0.2, size) - rng.geometric(0.2, size) for size in (len(truth), *sizes)]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    of_group = np.add.reduceat(truth, starts[:-1])
    sums = tuple(
        np.bincount(one, of_group, minlength=size) + more
        for one, size, more in zip(groups, sizes, noise[1:], strict=True)
    )
    family = Family(groups=tuple(groups), sizes=tuple(sizes), ratios=tuple(len(truth) / size for size in sizes))
    return Table(truth + noise[0], starts, family, sums)


def exact_solution(table: Table, active: npt.NDArray[np.bool_]) -> list[Fraction] | None:
    """Solve the optimality conditions with given positive cells in rational numbers; None if they do not hold."""
    cells, members = np.flatnonzero(active).tolist(), table.groups_of_cells()
    ratios = [Fraction(ratio) for ratio in table.family.ratios]
    values = [Fraction(int(value)) for value in table.values]
    sums = [[Fraction(float(one)) for one in part] for part in table.sums]

    def shared(one: int, other: int) -> Fraction:
        return sum((r for r, part in zip(ratios, members, strict=True) if part[one] == part[other]), Fraction(0))

    def wanted(cell: int) -> Fraction:
        every = zip(ratios, members, sums, strict=True)
        return values[cell] + sum((r * part[members_of[cell]] for r, members_of, part in every), Fraction(0))

    matrix = [[shared(one, other) + (one == other) for other in cells] + [wanted(one)] for one in cells]
    for pivot, row in enumerate(matrix):  # positive definite: pivots in order
        matrix[pivot] = row = [entry / row[pivot] for entry in row]
        for other in range(len(matrix)):
            if other != pivot and matrix[other][pivot]:
                share = matrix[other][pivot]
                matrix[other] = [entry - share * here for entry, here in zip(matrix[other], row, strict=True)]
    x = [Fraction(0)] * len(values)
    for cell, row in zip(cells, matrix, strict=True):
        x[cell] = row[-1]
    for cell in range(len(values)):
        gradient = x[cell] + sum((x[other] * shared(cell, other) for other in cells), Fraction(0)) - wanted(cell)
        if x[cell] < 0 or gradient < 0:
            return None
    return x


def away(x: Floats, exact: list[Fraction]) -> float:
    return float(np.sqrt(sum(float(Fraction(float(mine)) - true) ** 2 for mine, true in zip(x, exact, strict=True))))


def is_optimal(x: Floats, table: Table) -> bool:
    """Whether the gradient is 0 where counts are positive and not negative elsewhere, by sums of all cells anew."""
    gradient, size = x - table.values, np.abs(x) + np.abs(table.values)
    for of_cells, noisy, ratio in zip(table.groups_of_cells(), table.sums, table.family.ratios, strict=True):
        sums = np.bincount(of_cells, x, minlength=len(noisy))
        gradient, size = gradient + ratio * (sums - noisy)[of_cells], size + ratio * (sums + np.abs(noisy))[of_cells]
    slack = 1e-11 * (1 + size.max(initial=0))
    return bool((x >= 0).all() and (gradient >= -slack).all() and (np.abs(gradient[x > 0]) <= slack).all())


def test_by_hand_one_sum():
    # Two cells 3 and -1, their sum is said to be 6 with weight 1: the first gets half of what is missing.
    family = Family(groups=(np.array([0]),), sizes=(1,), ratios=(1.0,))
    found = project(sort_candidates(np.array([3, -1]), np.array([0, 2])), family, [np.array([6.0])])
    # Both positive: x = c + u, u = 6 - sum: u = (6 - 2) / 3.
    assert found.x == pytest.approx([3 + 4 / 3, 1 / 3])
    found = project(sort_candidates(np.array([3, -3]), np.array([0, 2])), family, [np.array([6.0])])
    assert found.x == pytest.approx([4.5, 0.0])
    assert found.theta == pytest.approx([1.5])
    assert found.counts.tolist() == [1]
    assert found.duals[0] == pytest.approx([1.5])
    assert found.sums[0] == pytest.approx([4.5])


def test_exact_in_rational_numbers_and_within_the_certified_distance(thorough):
    for spread in (1.0, 5.0, 9.0):
        rng = np.random.default_rng(int(spread))
        for _ in range(30 if thorough else 10):
            table = random_table(rng, most_groups=5, most_cells=2, spread=spread)
            listed = sort_candidates(table.values, table.starts)
            found = project(listed, table.family, table.sums)
            x = in_order(found, listed)
            # Rational numbers prove these cells to be the positive ones.
            exact = exact_solution(table, x > 1e-9) or exact_solution(table, x > 0)
            assert exact is not None
            assert away(x, exact) < 1e-9
            # What rounding does to x itself, whatever the multipliers, is not in the certificate.
            assert away(x, exact) <= found.distance + 1e-14 * (1 + np.abs(table.values).sum())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.5, 2.0, 6.0, 12.0]), st.sampled_from([3, 30, 3000]))
def test_optimal(seed, spread, scale):
    table = random_table(np.random.default_rng(seed), most_groups=40, most_cells=9, spread=spread, scale=scale)
    listed = sort_candidates(table.values, table.starts)
    found = project(listed, table.family, table.sums)
    x = in_order(found, listed)
    assert found.residual <= 1e-12
    assert table.residual(x) <= 1e-12
    assert is_optimal(x, table)
    assert not is_optimal(x + 1e-3 * scale, table) or not len(x)
    assert not found.needed.any()
    groups = np.repeat(np.arange(len(table.family)), np.diff(table.starts))
    assert found.counts.tolist() == np.bincount(groups[x > 0], minlength=len(table.family)).tolist()
    for own, of_cells in zip(found.sums, table.groups_of_cells(), strict=True):
        assert own == pytest.approx(np.bincount(of_cells, x, minlength=len(own)))
    again = project(listed, table.family, table.sums, start=found.duals)
    assert again.x == pytest.approx(found.x, abs=1e-9 * scale)
    assert again.iterations <= 4


def test_weights_very_far_apart_take_few_steps():
    # With features of tiny weight inside chains these took hundreds of steps, or failed.
    for seed, spread, scale in ((10_054, 12, 100), (10_259, 12, 10_000), (11_399, 12, 10_000), (11_728, 9, 1)):
        table = random_table(np.random.default_rng(seed), most_groups=60, most_cells=12, spread=spread, scale=scale)
        found = table.whole()
        assert found.residual <= 1e-12, seed
        assert found.iterations <= 30, seed
    # Zones say 1,000 trips, modes say 10: multipliers of 1e11 that almost cancel.
    groups = (np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4))
    family = Family(groups=groups, sizes=(4, 3), ratios=(1e9, 1e9))
    values = np.random.default_rng(2).integers(-9, 9, 240)
    found = project(sort_candidates(values, np.arange(0, 241, 20)), family, [np.full(4, 250.0), np.full(3, 10 / 3)])
    assert found.residual <= 1e-12
    assert found.distance < 1e-3
    assert found.x.sum() == pytest.approx((3 * 1000 + 4 * 10) / 7, rel=1e-6)
    # Ratios as of 1e9 cells: the total alone would make the Hessian singular to rounding.
    table = slots_table(np.random.default_rng(8), 30, per_class=40)
    found = replace(
        table, family=replace(table.family, ratios=tuple(1e9 / size for size in table.family.sizes))
    ).whole()
    assert found.residual <= 1e-12
    assert found.distance < 1e-5


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 9), st.booleans())
def test_same_whatever_way_the_steps_are_solved(seed, num_slots, margins):
    table = slots_table(np.random.default_rng(seed), num_slots, margins=margins, per_class=3)
    listed = sort_candidates(table.values, table.starts)
    expected = project(listed, table.family, table.sums)
    other = Family(groups=table.family.groups, sizes=table.family.sizes, ratios=table.family.ratios)
    other.__dict__["plan"] = replace(table.family.plan, arrow=None)
    found = project(listed, other, table.sums)
    assert found.residual <= 1e-12
    assert found.x == pytest.approx(expected.x, abs=1e-9)


def test_large_global_feature_is_eliminated_and_small_blocks_stay_small():
    rng = np.random.default_rng(3)
    table = slots_table(rng, 60, margins=True, per_class=60)
    assert table.family.plan.arrow is None
    found = project_dense(table.values, table.starts, table.family, table.sums)
    assert table.residual(found.x) <= 1e-12
    plain = slots_table(rng, 60, per_class=60)
    assert plain.family.plan.arrow.num_shared == 1  # the total is shared, 8 unknowns a slot are not
    assert set(plain.family.plan.arrow.widths) == {8}
    below = np.flatnonzero(plain.family.plan.parent >= 0)
    assert (plain.family.plan.parent[below] < below).all()  # kernels rely on it


def stops_table(rng: np.random.Generator, size: int, slots: int, *, by_slot: bool) -> Table:
    """Every cell is a join group: total, slots, origins and destinations (by slot, or over all slots with pairs)."""
    slot, origin, end = (part.reshape(-1) for part in np.indices((slots, size, size)))
    groups = [np.zeros_like(slot), slot, origin, end, origin * size + end]
    if by_slot:
        groups[2:] = [slot * size + origin, slot * size + end]
    sizes = tuple(int(own.max()) + 1 for own in groups)
    truth = rng.poisson(np.exp(1.5 * rng.normal(size=(size, size)) - 2), (slots, size, size)).reshape(-1)
    noisy = [np.bincount(own, truth) + rng.laplace(0, 5, num) for own, num in zip(groups, sizes, strict=True)]
    family = Family(groups=tuple(groups), sizes=sizes, ratios=tuple(len(slot) / num for num in sizes), blocks=slot)
    values = truth + np.rint(rng.laplace(0, 5, len(truth))).astype(np.int64)
    return Table(values, np.arange(len(truth) + 1), family, tuple(noisy))


def test_features_of_stops_take_few_steps_and_agree_with_a_general_solver(monkeypatch):
    piqp = pytest.importorskip("piqp")
    monkeypatch.setattr(projection, "MAX_ARROW", 0)  # as if there were many more stops
    for by_slot in (False, True):
        table = stops_table(np.random.default_rng(4), 12, 5, by_slot=by_slot)
        assert table.family.plan.arrow is None
        found = project_dense(table.values, table.starts, table.family, table.sums)
        assert found.residual <= 1e-12
        assert found.iterations <= 60
        program, lower = quadratic_program(table.values.astype(float), np.diff(table.starts), table.family, table.sums)
        solver = piqp.SparseSolver()
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-11
        solver.setup(**program, x_l=lower)
        solver.solve()
        assert found.x == pytest.approx(np.asarray(solver.result.x)[: len(found.x)], abs=1e-3)
    table = random_table(np.random.default_rng(5), most_groups=200, most_cells=3)  # features in no order
    assert table.family.plan.arrow is None
    assert table.residual(in_order(table.whole(), sort_candidates(table.values, table.starts))) <= 1e-12


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(-30, 30))
def test_floors(seed, floor):
    rng = np.random.default_rng(seed)
    table = random_table(rng, most_groups=20, most_cells=12)
    expected = in_order(table.whole(), sort_candidates(table.values, table.starts))
    floors = floor + rng.integers(-5, 6, len(table.family)).astype(float)
    start = None
    for _ in range(200):
        listed = sort_candidates(table.values, table.starts, floors)
        found = project(listed, table.family, table.sums, start=start)
        assert found.needed.tolist() == (-found.theta < floors).tolist()
        if not found.needed.any():
            break
        floors, start = np.where(found.needed, floors - 3, floors), found.duals
    x = np.zeros(len(table.values))
    x[listed.cells] = found.x
    assert x == pytest.approx(expected, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 10, 100_000]))
def test_dense_is_the_same_as_listing_every_cell(seed, scale):
    table = random_table(np.random.default_rng(seed), most_groups=30, most_cells=30, scale=scale)
    dense = project_dense(table.values, table.starts, table.family, table.sums)
    expected = in_order(table.whole(), sort_candidates(table.values, table.starts))
    assert dense.x == pytest.approx(expected, abs=1e-9 * scale)
    assert table.residual(dense.x) <= 1e-12
    found = project_table(table.values, table.starts, table.family, table.sums)
    assert dense.cells is None
    assert found.cells.tolist() == np.flatnonzero(dense.x).tolist()
    assert found.x.tolist() == dense.x[found.cells].tolist()
    assert (found.x > 0).all()


def test_steps_do_not_grow_with_the_number_of_slots():
    for per_class, scale, num_slots in itertools.product((3, 50), (0, 1, 40), (1, 4, 40, 400)):
        rng = np.random.default_rng(num_slots)
        table = slots_table(rng, num_slots, per_class=per_class)
        noise = scale * (rng.geometric(0.2, len(table.values)) - rng.geometric(0.2, len(table.values)))
        found = project_dense(table.values + noise, table.starts, table.family, table.sums)
        assert replace(table, values=table.values + noise).residual(found.x) <= 1e-12
        assert found.iterations <= 20, (per_class, scale, num_slots)


def test_blocks_that_are_not_in_order_are_not_settled_but_the_result_is_the_same():
    table = slots_table(np.random.default_rng(3), 6)
    sizes = np.diff(table.starts)
    order = np.random.default_rng(4).permutation(len(sizes))
    cells = np.concatenate([np.arange(table.starts[group], table.starts[group + 1]) for group in order])
    starts = np.concatenate([[0], np.cumsum(sizes[order])]).astype(np.int64)
    mixed = replace(table.family, groups=tuple(groups[order] for groups in table.family.groups))
    assert table.family.plan.inner_chains is not None
    assert mixed.plan.inner_chains is None
    found = project_dense(table.values[cells], starts, mixed, table.sums)
    expected = project_dense(table.values, table.starts, table.family, table.sums)
    assert found.x == pytest.approx(expected.x[cells], abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(-50, 50), max_size=40), min_size=1, max_size=8), st.integers(-60, 60))
def test_sorting(rows, floor):
    values = np.array([value for row in rows for value in row], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    listed = sort_candidates(values, starts, np.full(len(rows), float(floor)))
    expected = [sorted((value for value in row if value > floor), reverse=True) for row in rows]
    parts = itertools.pairwise(listed.starts.tolist())
    assert [listed.values[first:last].tolist() for first, last in parts] == expected
    assert listed.cells is not None
    assert values[listed.cells].tolist() == listed.values.tolist()
    assert len(set(listed.cells.tolist())) == len(listed)
    assert len(sort_candidates(values, starts)) == len(values)


def test_a_long_group_is_sorted_and_nothing_may_be_listed():
    values = np.random.default_rng(1).integers(-1000, 1000, 20_000)
    listed = sort_candidates(values, np.array([0, 20_000]))
    assert listed.values.tolist() == np.sort(values)[::-1].tolist()
    family = Family(groups=(np.array([0, 1]),), sizes=(3,), ratios=(2.0,))
    found = project(sort_candidates(np.zeros(0, dtype=np.int64), np.zeros(3, dtype=np.int64)), family, [np.ones(3)])
    assert found.x.tolist() == []
    assert found.duals[0] == pytest.approx([2.0, 2.0, 2.0])
    assert not found.needed.any()
    dense = project_dense(np.zeros(0, dtype=np.int64), np.zeros(3, dtype=np.int64), family, [np.ones(3)])
    assert dense.theta == pytest.approx([2.0, 2.0])


def test_residual_sees_each_kind_of_fault_on_any_scale(monkeypatch):
    table = slots_table(np.random.default_rng(5), 4)
    start = np.maximum(table.values, 0).astype(float)
    plain = table.residual(start)
    assert plain > 1e-6
    for factor in (8.0, 1e-6, 1e9):
        sums = [factor * part for part in table.sums]
        scaled = optimality(factor * start, factor * table.values, table.starts, table.family, sums)
        assert scaled[0] == pytest.approx(plain)
    x = in_order(table.whole(), sort_candidates(table.values, table.starts))
    assert table.residual(x) < 1e-13
    idle, busy = int(np.flatnonzero(x == 0)[0]), int(np.argmax(x))
    for cell, change in ((busy, 1e-3), (busy, -1e-3), (idle, 1e-3), (idle, -1e-3)):
        wrong = x.copy()
        wrong[cell] += change
        assert table.residual(wrong) > 1e-9
    assert 1e-10 < table.residual(np.where(x > 0, x * (1 + 1e-8), x)) < 1e-7
    monkeypatch.setattr(projection, "MAX_STEPS", 1)
    with pytest.raises(InternalError):  # no wrong result is returned
        slots_table(np.random.default_rng(6), 3).whole()


def test_bad_weights_and_values():
    one = np.array([0, 1])
    for ratio in (0.0, float("nan"), float("inf")):
        with pytest.raises(ParameterError):
            Family(groups=(one,), sizes=(2,), ratios=(ratio,))
    family = Family(groups=(one,), sizes=(2,), ratios=(1.0,))
    for values in (np.array([0.5, 1.0, 2.0]), np.array([2**60, 1, 2])):
        with pytest.raises(ParameterError):
            project_dense(values, np.array([0, 2, 3]), family, [np.ones(2)])


def test_given_blocks_are_used():
    table = slots_table(np.random.default_rng(9), 6)
    groups = (table.family.groups[0], *table.family.groups[2:])  # no feature is the slots themselves
    sizes, ratios = (1, *table.family.sizes[2:]), (1.0, 2.0, 3.0)
    family = Family(groups=groups, sizes=sizes, ratios=ratios, blocks=table.family.groups[1])
    assert set(family.plan.arrow.widths) == {7}
    found = project(sort_candidates(table.values, table.starts), family, (table.sums[0], *table.sums[2:]))
    assert found.residual <= 1e-12


@pytest.mark.parametrize("with_pairs", [False, True])
@pytest.mark.parametrize("most_cells", [1, 3])
def test_slots_are_solved_over_their_own_join_groups_first(monkeypatch, with_pairs, most_cells):
    """Features of stops cross slots, so slots are one family, of fewer join groups, and everything starts from it."""
    rng, stops, slots = np.random.default_rng(5), 12, 6
    monkeypatch.setattr(projection, "SMALL", 1e4)
    monkeypatch.setattr(projection, "MAX_ARROW", 1e4)
    slot, pair = np.divmod(np.arange(slots * stops**2), stops**2)
    origin, destination = np.divmod(pair, stops)
    groups = [np.zeros_like(slot), slot, slot * 4 + origin % 2 * 2 + destination % 2, origin, destination]
    sizes = [1, slots, slots * 4, stops, stops]
    if with_pairs:
        groups, sizes = [*groups, pair], [*sizes, stops**2]
    lengths = rng.integers(0 if most_cells > 1 else 1, most_cells + 1, len(slot))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    truth = np.where(rng.random(starts[-1]) < 0.05, rng.integers(1, 40, starts[-1]), 0)
    cells = [np.repeat(own, lengths) for own in groups]
    every = zip(cells, sizes, strict=True)
    sums = tuple(np.bincount(own, truth, size) + rng.integers(-9, 10, size) for own, size in every)
    ratios = tuple(len(truth) / size for size in sizes)
    family = Family(groups=tuple(groups), sizes=tuple(sizes), ratios=ratios, blocks=slot)
    assert family.inner is not None
    assert len(family.inner.family) == slots * 4
    table = Table(truth + rng.integers(-12, 13, len(truth)), starts, family, sums)
    found = project_dense(table.values, starts, family, sums)
    assert table.residual(found.x) < 1e-12
    listed = sort_candidates(table.values, starts)
    assert np.allclose(found.x, in_order(project(listed, family, sums), listed), atol=1e-9)
