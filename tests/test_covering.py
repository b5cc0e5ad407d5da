# SPDX-License-Identifier: Apache-2.0
"""Covers of least cost, compared with all multisets of patterns."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from dunnage.kernels.bins.covering import Cover, CoverProgram, KindPatterns, PatternList

Pattern = tuple[int, ...]


def listing(patterns: Sequence[Pattern], risk: Sequence[float] | None = None) -> PatternList:
    """Put patterns into a listing."""
    table = np.array(patterns, dtype=np.int64)
    lines, kinds = np.nonzero(table)
    starts = np.concatenate([[0], np.cumsum((table > 0).sum(axis=1))])
    own = np.zeros(len(table)) if risk is None else np.array(risk, dtype=np.float64)
    return PatternList(starts, kinds, table[lines, kinds], own, table.shape[1])


@dataclass(frozen=True)
class Kind:
    """Patterns of one kind of bin with their share of the budget."""

    patterns: tuple[Pattern, ...]
    use: tuple[float, ...]
    cost: int
    count: int | None


def least_cost(demand: Pattern, kinds: Sequence[Kind], budget: float) -> int | None:
    """Try all multisets of patterns, in exact numbers; no cover needs more bins than items."""
    every = [
        (number, pattern, Fraction(use))
        for number, kind in enumerate(kinds)
        for pattern, use in zip(kind.patterns, kind.use, strict=True)
    ]
    best: int | None = None

    def go_on(first: int, left: Pattern, cost: int, spare: Fraction | float, used: tuple[int, ...]) -> None:
        nonlocal best
        if best is not None and cost >= best:
            return
        if max(left) <= 0:
            best = cost
            return
        for position in range(first, len(every)):
            kind, pattern, use = every[position]
            limit = kinds[kind].count
            more = tuple(times + (kind == number) for number, times in enumerate(used))
            if use > spare or (limit is not None and more[kind] > limit) or sum(more) > sum(demand):
                continue
            rest = tuple(have - taken for have, taken in zip(left, pattern, strict=True))
            go_on(position, rest, cost + kinds[kind].cost, spare - use, more)

    go_on(0, demand, 0, math.inf if math.isinf(budget) else Fraction(budget), (0,) * len(kinds))
    return best


def solve(demand: Pattern, kinds: Sequence[Kind], budget: float = math.inf, **options: float) -> Cover:
    program = CoverProgram(
        np.array(demand), [KindPatterns(listing(kind.patterns, kind.use), kind.cost, kind.count) for kind in kinds]
    )
    use = None if math.isinf(budget) else program.risk
    return program.solve(deadline=time.monotonic() + 600, use=use, budget=budget, **options)  # type: ignore[arg-type]


def check(cover: Cover, demand: Pattern, kinds: Sequence[Kind], budget: float) -> None:
    """Check that bins are of listed patterns, within limits and budget, and cover each class exactly."""
    assert cover.patterns.sum(axis=0).tolist() == list(demand)
    spent = Fraction(0)
    flat = [(pattern, use) for kind in kinds for pattern, use in zip(kind.patterns, kind.use, strict=True)]
    for kind, row, line in zip(cover.kinds.tolist(), cover.rows.tolist(), cover.patterns.tolist(), strict=True):
        pattern, use = flat[row]
        assert pattern in kinds[kind].patterns
        assert any(line)
        assert all(have <= listed for have, listed in zip(line, pattern, strict=True))
        spent += Fraction(use)
    assert math.isinf(budget) or spent <= Fraction(budget) * (1 + Fraction(1, 10**12))
    for number, kind in enumerate(kinds):
        assert kind.count is None or cover.kinds.tolist().count(number) <= kind.count
    assert cover.cost == sum(kinds[kind].cost for kind in cover.kinds.tolist())


def drawn(seed: int) -> tuple[Pattern, list[Kind], float]:
    draw = random.Random(seed)
    num = draw.randint(1, 3)
    demand = tuple(draw.randint(1, 3) for _ in range(num))
    budget = draw.choice([math.inf, 0.5, 0.25, 0.05])
    kinds = []
    for _ in range(draw.randint(1, 3)):
        patterns = {tuple(draw.randint(0, 2) for _ in range(num)) for _ in range(draw.randint(1, 5))}
        patterns = {pattern for pattern in patterns if any(pattern)} or {(1,) * num}
        shares = [0.0, 0.0, budget / 4, budget / 3, budget / 2, budget] if math.isfinite(budget) else [0.0]
        use = tuple(draw.choice(shares) for _ in patterns)
        kinds.append(
            Kind(tuple(sorted(patterns)), use, draw.choice([1, 2, 3, 10, 25]), draw.choice([None, None, 0, 1, 2]))
        )
    return demand, kinds, budget


def test_covers_are_the_cheapest_of_all() -> None:
    found = 0
    for seed in range(400):
        demand, kinds, budget = drawn(seed)
        least, cover = least_cost(demand, kinds, budget), solve(demand, kinds, budget)
        if least is None:
            assert cover.cost is None
            assert cover.bound is None
            assert len(cover.kinds) == len(cover.patterns) == 0
            continue
        found += 1
        check(cover, demand, kinds, budget)
        assert cover.cost == cover.bound == least
    assert 100 < found < 390


def test_only_cheaper_covers_are_of_interest() -> None:
    for seed in range(150):
        demand, kinds, budget = drawn(seed)
        least = least_cost(demand, kinds, budget)
        if least is None:
            continue
        for at_most in (least - 1, least, least + 1, least + 7):
            cover = solve(demand, kinds, budget, at_most=at_most, known_bound=0)
            if least < at_most:
                check(cover, demand, kinds, budget)
                assert cover.cost == cover.bound == least
            else:  # what is known is that nothing cheaper than at_most exists
                assert cover.cost is None
                assert cover.bound is None or max(at_most, 0) <= cover.bound <= least


def test_few_patterns_at_first_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding patterns by their prices, or looking at the cheapest ones first, must end at the same cover."""
    from dunnage.kernels.bins import covering

    monkeypatch.setattr(covering, "_FIRST_COLUMNS", 1)
    monkeypatch.setattr(covering, "NEW_COLUMNS", 1)
    for seed in range(150):
        demand, kinds, budget = drawn(seed)
        least, cover = least_cost(demand, kinds, budget), solve(demand, kinds, budget)
        assert (cover.cost, cover.bound) == (least, least)


def test_nearly_equal_shares_are_told_apart_or_left_open() -> None:
    """A cheap and a dear pattern differ in their share by a hair: prices are then beyond any ceiling."""
    for hair in (1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12):
        kinds = [Kind(((1,),), (0.01 + hair,), 1, None), Kind(((1,),), (0.01 - hair,), 2, None)]
        for budget in (0.02 - 3 * hair, 0.02 - hair, 0.02 + hair / 2, 0.02 + 3 * hair):
            least, cover = least_cost((2,), kinds, budget), solve((2,), kinds, budget)
            if cover.cost is not None:
                check(cover, (2,), kinds, budget)
            if least is not None:
                assert cover.bound is not None
                assert cover.bound <= least <= (math.inf if cover.cost is None else cover.cost)


@pytest.mark.parametrize("dear", [10**3, 10**6, 10**9])
def test_costs_far_apart(dear: int) -> None:
    kinds = [Kind(((1, 0), (0, 1)), (0.0, 0.0), 1, 2), Kind(((1, 1),), (0.0,), dear, None)]
    cover = solve((3, 4), kinds)
    assert cover.cost == cover.bound == 3 * dear + 1
    check(cover, (3, 4), kinds, math.inf)


def test_a_class_in_no_pattern_is_never_covered() -> None:
    assert solve((1, 1), [Kind(((1, 0),), (0.0,), 1, None)]).bound is None


def test_more_bins_than_there_are_is_no_cover() -> None:
    """Every two of three: a fractional cover needs three halves, a whole one two."""
    pairs = tuple(itertools.permutations((1, 1, 0)))[::2]
    kind = Kind(tuple(sorted(set(pairs))), (0.0,) * len(set(pairs)), 1, 1)
    assert solve((1, 1, 1), [kind]).bound is None
    enough = Kind(kind.patterns, kind.use, 1, 2)
    assert solve((1, 1, 1), [enough]).cost == 2
    by_budget = Kind(kind.patterns, (0.2,) * len(kind.use), 1, None)
    assert solve((1, 1, 1), [by_budget], 0.35).bound is None


def test_many_items_and_no_cover() -> None:
    cover = solve((200_000,), [Kind(((2,),), (0.0,), 1, 99_999)])
    assert cover.cost is None
    assert cover.bound is None
    cover = solve((200_000,), [Kind(((2,),), (0.0,), 1, 100_000)])
    assert cover.cost == cover.bound == 100_000


def test_no_time_leaves_what_was_known() -> None:
    program = CoverProgram(np.array([3]), [KindPatterns(listing([(1,)]))])
    cover = program.solve(deadline=time.monotonic() - 1, known_bound=2)
    assert cover.cost is None
    assert cover.bound == 2


def test_patterns_may_be_excluded() -> None:
    program = CoverProgram(np.array([2]), [KindPatterns(listing([(1,), (2,)]))])
    cover = program.solve(deadline=time.monotonic() + 600, usable=np.array([True, False]))
    assert cover.cost == cover.bound == 2
    assert cover.rows.tolist() == [0, 0]
